"""Patching runs the model with other values, and nothing else; differences of cuts add up to that of two scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as tf
from test_inside import ByHand
from tiny import GROUPED, SMALL, SPECIAL, arguments, randomised, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.api.patch import Patcher, run_with_swaps
from headwater.api.patch_estimates import choose_unsure
from headwater.errors import InputError, UnknownName, UsageError
from headwater.inputs.hooks import hook_modules

ONE, TWO = "the movie was very good", "the movie was not bad"
IDS, OTHER = torch.tensor([[1, 4, 7, 2]]), torch.tensor([[3, 4, 8, 2]])


def score_by_hand(mixed: Tensor | None = None, hidden: Tensor | None = None) -> float:
    """The second logit of `ByHand`, with other values of its heads or neurons."""
    model = ByHand()
    with torch.no_grad():
        x = model.embed(IDS)
        mixed = model.mix(x) if mixed is None else mixed
        x = x + model.o(mixed.transpose(1, 2).flatten(2))
        hidden = F.relu(model.up(x)) if hidden is None else hidden
        return float(model.head((x + model.down(hidden)).mean(1))[0, 1])


def named(node: str, with_: Any) -> hw.PatchEffect:
    # neurons lie in `down`; this model has no stack of layers, and its attention no module of its own
    return hw.patch(ByHand(), {"input_ids": IDS}, node, with_=with_, target=1)


@pytest.mark.parametrize("with_", ["zeros", {"input_ids": OTHER}], ids=["zeros", "other"])
def test_a_patched_neuron_and_head_are_what_a_hand_computes(with_: Any) -> None:
    model = ByHand()
    with torch.no_grad():
        there, here = (model.embed(ids) for ids in (OTHER, IDS))
        after = here + model.o(model.mix(here).transpose(1, 2).flatten(2))
        neurons, mixed = F.relu(model.up(after)), model.mix(here)
        other = there + model.o(model.mix(there).transpose(1, 2).flatten(2))
        zeros = with_ == "zeros"
        neurons[..., 3] = 0 if zeros else F.relu(model.up(other))[..., 3]
        mixed[:, 1] = 0 if zeros else model.mix(there)[:, 1]
    found = named("down neuron 3", with_)
    assert found.score == pytest.approx(score_by_hand(), rel=1e-12)
    assert found.patched == pytest.approx(score_by_hand(hidden=neurons), rel=1e-12)
    (head,) = [one for one in hw.explain(model, {"input_ids": IDS}, inside=["heads"])[0].inside.top() if one.unit == 1]
    assert hw.patch(model, {"input_ids": IDS}, head, with_=with_, target=1).patched == pytest.approx(
        score_by_hand(mixed=mixed), rel=1e-12
    )


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "deberta-v2"])
def test_each_is_what_it_is_alone(name: str) -> None:
    nodes = ["layer 0 head 1", "layer 1 head 3", "layer 1 neuron 5", "layer 0", "layer 1 heads"]
    options: dict[str, Any] = {"tokenizer": tokenizer(), "with_": TWO}
    effects = hw.patch_each(tiny(name), ONE, nodes, **options)
    assert [effect.nodes for effect in effects] == [(node,) for node in nodes]
    for effect, node in zip(effects, nodes, strict=True):
        alone = hw.patch(tiny(name), ONE, node, **options)
        assert effect.patched == pytest.approx(alone.patched, rel=1e-6)
        assert effect.effect != 0
    assert len({round(effect.patched, 9) for effect in effects}) == len(nodes)


@pytest.mark.parametrize("name", ["bert", "llama", "modernbert"])
def test_put_into_itself_nothing_changes(name: str) -> None:
    effect = hw.patch(tiny(name), ONE, "layer 1 heads", with_=ONE, tokenizer=tokenizer())
    assert effect.effect == 0


def test_the_last_layer_of_another_text_gives_its_score() -> None:
    """All that leaves the last layer is replaced, so that the other text is all that is left."""
    options: dict[str, Any] = {"tokenizer": tokenizer(), "target": 0}
    assert hw.patch(tiny("bert"), ONE, "layer 1", with_=TWO, **options).patched == pytest.approx(
        hw.explain(tiny("bert"), TWO, **options).score, rel=1e-12
    )


def test_a_module_is_what_a_hook_gives() -> None:
    model, given = tiny("llama"), arguments("llama", 1)
    effect = hw.patch(model, given, "model.layers.1.mlp", target=7, output="logit")
    mlp = model.get_submodule("model.layers.1.mlp")
    with torch.no_grad(), hook_modules([mlp], after=lambda module, args, kwargs, out: torch.zeros_like(out)):
        expected = float(model(**given).logits[0, -1, 7])
    assert effect.patched == pytest.approx(expected, rel=1e-9)


class Encoder(nn.Module):
    """torch's own layers, which in inference take a fused path past their parts; the last position is padding."""

    def __init__(self, norm_first: bool, padded: bool) -> None:
        super().__init__()
        self.embed, self.padded = nn.Embedding(10, 16), padded
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
        self.head = nn.Linear(16, 3)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor) -> Tensor:
        padding = torch.zeros(input_ids.shape, dtype=torch.bool)
        padding[:, -1] = self.padded
        x = self.encoder(self.embed(input_ids), src_key_padding_mask=padding)
        return self.head(x.mean(1))


def put_zeros(module: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
    return (torch.zeros_like(out[0]), *out[1:]) if isinstance(out, tuple) else torch.zeros_like(out)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_modules_inside_torchs_own_encoder_are_what_hooks_give(norm_first: bool, padded: bool) -> None:
    torch.manual_seed(0)
    model = Encoder(norm_first, padded).double().eval()
    parts = ("linear1", "linear2", "norm1", "self_attn")
    nodes = [f"encoder.layers.{layer}{end}" for layer in (0, 1) for end in ("", *(f".{part}" for part in parts))]
    with torch.no_grad():
        plain = float(model(IDS)[0, 1])
    for node in nodes:
        with torch.no_grad(), hook_modules([model.get_submodule(node)], after=put_zeros):
            expected = float(model(IDS)[0, 1])
        found = hw.patch(model, {"input_ids": IDS}, node, target=1)
        assert found.score == pytest.approx(plain, rel=1e-10)
        assert found.patched != found.score
        if not padded or norm_first:  # else hooks end the fused path, which leaves the padding out
            assert found.patched == pytest.approx(expected, rel=1e-10)
    heads = [f"encoder.layers.0.self_attn head {n}" for n in range(4)]
    assert len({one.patched for one in hw.patch_each(model, {"input_ids": IDS}, heads, target=1)}) == 4


def test_a_mean_over_texts() -> None:
    """Of one neuron over all positions of two texts, by hand."""
    model = ByHand()
    with torch.no_grad():
        values = []
        for ids in (IDS, OTHER):
            x = model.embed(ids)
            x = x + model.o(model.mix(x).transpose(1, 2).flatten(2))
            values.append(F.relu(model.up(x)))
        neurons = values[0].clone()
        neurons[..., 2] = torch.cat(values)[..., 2].mean()
    found = named("down neuron 2", [{"input_ids": IDS}, {"input_ids": OTHER}])
    assert found.patched == pytest.approx(score_by_hand(hidden=neurons), rel=1e-12)


def test_what_cannot_be_patched() -> None:
    options: dict[str, Any] = {"tokenizer": tokenizer()}
    with pytest.raises(UnknownName, match="layer 1 head 3"):
        hw.patch(tiny("bert"), ONE, "layer 1 head 4", **options)
    with pytest.raises(UnknownName, match="layer 1"):
        hw.patch(tiny("bert"), ONE, "layer 2 head 0", **options)
    with pytest.raises(InputError, match="same number of tokens"):
        hw.patch(tiny("bert"), ONE, "layer 1 head 0", with_="dull", **options)
    with pytest.raises(UsageError, match="one input"):
        hw.patch(tiny("bert"), [ONE, TWO], "layer 1 head 0", **options)
    with pytest.raises(UsageError, match="no nodes"):
        hw.patch(tiny("bert"), ONE, [], **options)
    with pytest.raises(UsageError, match="empty list"):
        hw.patch(tiny("bert"), ONE, "layer 0", with_=[], **options)
    for node in ("layer 1 head -1", "layer 1 queries of head 2", "heads", "", 3, [None]):
        with pytest.raises(UsageError, match="'layer 3 head 5'"):
            hw.patch(tiny("bert"), ONE, node, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no experts that can be told"):
        hw.patch(tiny("bert"), ONE, "layer 1 expert 0", **options)
    e = hw.explain(tiny("bert"), ONE, inside="queries", **options)
    assert e.inside is not None
    with pytest.raises(UsageError, match=r"queries of head \d' cannot be replaced"):
        hw.patch(tiny("bert"), ONE, e.inside.top(1), **options)


@pytest.mark.parametrize(
    "option",
    [
        {"method": "lrp"},
        {"inside": "heads"},
        {"sinks": "aside"},
        {"keep": "host"},
        {"recompute": "blocks"},
        {"memory_limit": "1GiB"},
        {"window": True},
        {"stride": 2},
    ],
)
def test_options_that_would_have_no_effect_are_refused(option: dict[str, Any]) -> None:
    message = f"explains nothing: leave out {next(iter(option))}="
    for function in (hw.patch, hw.patch_each):
        with pytest.raises(UsageError, match=message):
            function(tiny("bert"), ONE, "layer 1 head 0", tokenizer=tokenizer(), **option)


def test_modules_of_a_model_that_takes_a_tensor_are_replaced() -> None:
    """The copies of a tensor were not known as the explained input, so that no module seemed to be called."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double().eval()
    x, y = torch.randn(2, 1, 3, dtype=torch.float64)
    expected = model[2](torch.zeros(1, 4, dtype=torch.float64))[0, 0].item()
    assert hw.patch(model, x, "1", target=0).patched == pytest.approx(expected, abs=1e-12)
    assert hw.patch(model, x, "1", with_=y, target=0).patched == pytest.approx(model(y)[0, 0].item(), abs=1e-12)
    both = hw.patch_each(model, x, ["1", "2"], target=0)
    assert [one.patched for one in both] == pytest.approx([expected, 0.0], abs=1e-12)
    c = hw.circuit(model, x, parts=["0"], with_="zeros", target=0)
    assert c.faithfulness() is not None


@pytest.mark.parametrize("option", [{"window": True}, {"stride": 2}])
def test_a_difference_is_of_no_windows(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(option))}="):
        hw.difference(tiny("bert"), ONE, TWO, inside="layers", tokenizer=tokenizer(), **option)


def test_options_that_say_what_is_done_anyway_are_taken() -> None:
    options = {"tokenizer": tokenizer(), "with_": TWO}
    plain = hw.patch(tiny("bert"), ONE, "layer 1 head 0", **options)
    usual = {"sinks": "show", "keep": "device", "recompute": None, "memory_limit": None, "window": False, "seed": 3}
    assert hw.patch(tiny("bert"), ONE, "layer 1 head 0", **options, **usual) == plain


def test_nodes_come_one_by_one_or_in_any_iterable() -> None:
    """A name was read letter by letter, and a generator named nothing after its first reading."""
    options: dict[str, Any] = {"tokenizer": tokenizer()}
    e = hw.explain(tiny("bert"), ONE, inside="heads", **options)
    assert e.inside is not None
    two = e.inside.top(2)
    found = hw.patch_each(tiny("bert"), ONE, two, **options)
    alone = hw.patch(tiny("bert"), ONE, two[0], **options).patched
    assert [one.patched for one in hw.patch_each(tiny("bert"), ONE, two[0].name, **options)] == [alone]
    assert [one.patched for one in hw.patch_each(tiny("bert"), ONE, two[0], **options)] == [alone]
    assert hw.patch_each(tiny("bert"), ONE, (node for node in two), **options) == found


def test_a_module_that_is_called_twice_is_named_by_its_call() -> None:
    e = hw.explain(tiny("albert"), ONE, inside="*.ffn", tokenizer=tokenizer())
    assert e.inside is not None
    nodes = e.inside.top()
    assert {node.name.endswith("(call 2)") for node in nodes} == {True, False}
    by_node = hw.patch_each(tiny("albert"), ONE, nodes, tokenizer=tokenizer())
    assert hw.patch_each(tiny("albert"), ONE, [node.name for node in nodes], tokenizer=tokenizer()) == by_node
    assert len({effect.patched for effect in by_node}) == 2


def test_a_module_is_not_called_as_its_layer_is() -> None:
    """A module of each layer was called "layer 0", which is what the layer leaves."""
    options: dict[str, Any] = {"tokenizer": tokenizer()}
    e = hw.explain(tiny("bert"), ONE, inside=["layers", "*.attention"], **options)
    assert e.inside is not None
    nodes = [*e.inside.top(kind="layers"), *e.inside.top(kind="modules")]
    by_name = hw.patch_each(tiny("bert"), ONE, [node.name for node in nodes], **options)
    assert by_name == hw.patch_each(tiny("bert"), ONE, nodes, **options)
    assert hw.circuit(tiny("bert"), ONE, parts=["layers", "*.attention"], **options).closed


@pytest.mark.parametrize("name", ["bloom", "bitnet"])
def test_neurons_are_the_same_with_rules_and_without(name: str) -> None:
    """BLOOM's activation is an autograd function of its own, and BitNet normalises neurons by hand."""
    model = tiny(name) if name == "bloom" else bitnet()
    options: dict[str, Any] = {"tokenizer": tokenizer(), "method": "lrp"}
    e = hw.explain(model, ONE, inside="neurons", **options)
    assert e.inside is not None
    without = {name: one for name, one in options.items() if name != "method"}
    (effect,) = hw.patch_each(model, ONE, e.inside.top(1), **without)
    assert effect.effect != 0
    measured = hw.circuit(model, ONE, with_="zeros", **options).faithfulness()
    assert measured.sizes[-1] == measured.parts
    assert measured.faithfulness == pytest.approx(1)
    plain = hw.explain(model, ONE, inside="neurons", **{**options, "method": "gi"}).inside
    assert plain is not None
    assert plain.names("neurons") == e.inside.names("neurons")


def bitnet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(tf.BitNetForCausalLM(tf.BitNetConfig(**GROUPED, **SPECIAL)).double())


@pytest.mark.parametrize("name", ["bert", "llama", "modernbert"])
def test_a_difference_adds_up(name: str) -> None:
    options: dict[str, Any] = {"tokenizer": tokenizer(), "method": "lrp"}
    found = hw.difference(tiny(name), ONE, TWO, inside=["heads", "neurons", "layers"], **options)
    assert found.score == pytest.approx(found.clean.score - found.other.score)
    assert abs(found.score) > 1e-6
    for group in found.inside.groups:
        assert group.ledger is not None
        assert group.ledger.score == pytest.approx(found.score)
        assert group.ledger.error <= (1e-10 if found.clean.ledger.dtype == "float64" else 1e-6)
    assert found.clean.target == found.other.target
    assert torch.allclose(found.inside.heads, found.clean.inside.heads - found.other.inside.heads)


def test_a_difference_is_of_one_answer_whatever_it_is_called() -> None:
    """An answer to a question is a span, a token of a padded vocabulary and one of two classes have no name of their
    own, and the class of a token may be another for each text.
    """
    options: dict[str, Any] = {"tokenizer": tokenizer(), "inside": "layers"}
    asked = "who is good ?"
    spans = randomised(tf.BertForQuestionAnswering(tf.BertConfig(**SMALL)).double())
    found = hw.difference(spans, (asked, ONE), (asked, "the film was not dull"), **options)
    assert found.clean.target == found.clean.prediction == found.other.target

    names = {0: "film", 1: "film", 2: "other"}
    classes = randomised(
        tf.BertForSequenceClassification(tf.BertConfig(**SMALL, num_labels=3, id2label=names)).double()
    )
    with torch.no_grad():
        classes.classifier.bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    found = hw.difference(classes, ONE, TWO, **options)
    assert found.clean.score == pytest.approx(float(run(classes, ONE)[0, 1]))
    assert found.other.score == pytest.approx(float(run(classes, TWO)[0, 1]))

    tagger = randomised(tf.BertForTokenClassification(tf.BertConfig(**SMALL, num_labels=3)).double(), 2)
    texts = ["good", "the movie was very good", "not good", "dull , good"]
    best = {text: int(run(tagger, text)[0, find_word(text)].argmax()) for text in texts}
    one, two = next((a, b) for a in texts for b in texts if best[a] != best[b])
    found = hw.difference(tagger, one, two, target=hw.Token("good"), **options)
    assert found.other.score == pytest.approx(float(run(tagger, two)[0, find_word(two), best[one]]))


def test_a_difference_of_tensors_and_what_has_none() -> None:
    one, two = (
        torch.randn(1, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (1, 2)
    )
    found = hw.difference(tiny("vit"), {"pixel_values": one}, {"pixel_values": two}, inside="layers", method="lrp")
    assert found.ledger("layer 0").closed
    assert found.clean.target == found.other.target
    for changed, said in (({"inside": []}, "no parts were named"), ({"window": True}, "use truncate=")):
        with pytest.raises(UsageError, match=said):
            hw.difference(tiny("bert"), ONE, TWO, **{"inside": "layers", "tokenizer": tokenizer(), **changed})
    with pytest.raises(UsageError, match="two inputs"):
        hw.difference(tiny("bert"), [ONE, TWO], TWO, inside="layers", tokenizer=tokenizer())


def run(model: nn.Module, text: str) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(**tokenizer()(text, return_tensors="pt")).logits
    return logits


def find_word(text: str) -> int:
    return tokenizer().tokenize(text, add_special_tokens=True).index("good")


def test_a_difference_of_texts_of_two_lengths() -> None:
    found = hw.difference(tiny("bert"), ONE, "dull", inside=["heads"], tokenizer=tokenizer(), method="lrp")
    assert found.inside.heads.shape == (2, 4)
    assert found.ledger("layer 0").closed
    assert not any(group.by_token for group in found.inside.groups)


@pytest.mark.parametrize("name", ["bert", "gpt2", "deberta-v2"])
@pytest.mark.parametrize("with_", [TWO, "zeros", [TWO]], ids=["other", "zeros", "mean"])
def test_estimates_are_exact_to_the_first_degree(name: str, with_: Any) -> None:
    """Of half a change the error is a quarter."""
    nodes = [f"layer 0 head {head}" for head in range(4)]
    errors = [estimate_error(name, nodes, with_, size) for size in (2e-3, 1e-3)]
    assert 3.0 < errors[0] / errors[1] < 5.0


def estimate_error(name: str, nodes: list[str], with_: Any, size: float) -> float:
    """Of estimates where nodes go only a small part of the way to their other value."""
    patcher = Patcher.open(tiny(name), ONE, nodes, with_, {"tokenizer": tokenizer(), "output": "logit"})
    here, _ = run_with_swaps(patcher.run_of_text, patcher.demand, {})
    near = {n: here.found[n] + size * (value - here.found[n]) for n, value in patcher.values.items()}
    patcher = replace(patcher, values=near)
    true, said = patcher.run([(node,) for node in nodes]), patcher.run_some(nodes, 0)
    assert [one.nodes for one in said] == [(node,) for node in nodes]
    assert all(one.estimated and one.patched_prediction is None for one in said)
    return sum(abs(a.effect - b.effect) for a, b in zip(true, said, strict=True))


def test_an_estimate_is_the_change_times_the_gradient() -> None:
    """Attribution patching of `ByHand`'s heads, by torch's own gradient; patching itself gives something else."""
    model = ByHand()
    mixed = model.mix(model.embed(IDS)).detach().requires_grad_()
    x = model.embed(IDS) + model.o(mixed.transpose(1, 2).flatten(2))
    score = model.head((x + model.down(F.relu(model.up(x)))).mean(1))[0, 1]
    (gradient,) = torch.autograd.grad(score, mixed)
    expected = (mixed * gradient).sum((0, 2, 3)).tolist()
    inside = hw.explain(model, {"input_ids": IDS}, inside=["heads"])[0].inside
    nodes = sorted(inside.top(kind="heads"), key=lambda node: node.unit)
    options: dict[str, Any] = {"with_": "zeros", "target": 1}
    said = hw.patch_each(model, {"input_ids": IDS}, nodes, exact=0, **options)
    true = hw.patch_each(model, {"input_ids": IDS}, nodes, **options)
    assert [one.effect for one in said] == pytest.approx(expected, rel=1e-6)
    assert [one.effect for one in true] != pytest.approx(expected, rel=1e-3)


def test_an_estimate_of_what_the_score_is_linear_in_is_exact() -> None:
    """After the last layer of `ByHand` there are sums and a linear layer alone."""
    data = {"input_ids": IDS}
    nodes = [f"down neuron {number}" for number in range(4)]
    true = hw.patch_each(ByHand(), data, nodes, with_="zeros", target=1)
    for exact in range(4):
        said = hw.patch_each(ByHand(), data, nodes, with_="zeros", target=1, exact=exact)
        assert [one.patched for one in said] == pytest.approx([one.patched for one in true], rel=1e-6)
        assert sum(one.estimated for one in said) == 4 - exact


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("exact", [8, 9])
def test_as_many_as_there_are_is_patching_each(name: str, exact: int) -> None:
    nodes = [f"layer {layer} head {head}" for layer in range(2) for head in range(4)]
    options: dict[str, Any] = {"with_": TWO, "tokenizer": tokenizer()}
    true = hw.patch_each(tiny(name), ONE, nodes, **options)
    assert hw.patch_each(tiny(name), ONE, nodes, exact=exact, **options) == true


def test_what_is_patched_is_what_patching_gives_and_all_else_is_what_the_estimate_was() -> None:
    nodes = [f"layer {layer} head {head}" for layer in range(2) for head in range(4)] + ["layer 0", "layer 1"]
    options: dict[str, Any] = {"with_": TWO, "tokenizer": tokenizer()}
    every, none, some = (hw.patch_each(tiny("bert"), ONE, nodes, exact=exact, **options) for exact in (None, 0, 4))
    assert sum(not one.estimated for one in some[:8]) == sum(not one.estimated for one in some[8:]) == 2
    for true, guess, one in zip(every, none, some, strict=True):
        expected = guess if one.estimated else true
        assert one.patched == pytest.approx(expected.patched, rel=1e-9)
        assert one.nodes == expected.nodes
        assert true.patched != pytest.approx(guess.patched, rel=1e-9)


class Cancelling(nn.Module):
    """The score is l - m^2 / 6 + s for the outputs (l, m) and s of two modules: 3 - 9 / 6 + 1 / 2 for one word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.large, self.small = nn.Embedding(9, 2), nn.Linear(2, 2), nn.Linear(2, 1)
        with torch.no_grad():
            self.embed.weight.fill_(1.0)
            self.large.weight.copy_(3 * torch.eye(2))
            self.small.weight.copy_(torch.tensor([[0.5, 0.0]]))
            self.large.bias.zero_()
            self.small.bias.zero_()
        self.double().eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        (first, second), small = self.large(x).unbind(-1), self.small(x)[..., 0]
        score = (first - second.square() / 6 + small).sum(1)
        return torch.stack([torch.zeros_like(score), score], -1)


def test_large_terms_that_cancel_are_patched_first() -> None:
    """Gradients say 3 - 3 = 0 of the large ones: less than of the small one, of which they are right."""
    options: dict[str, Any] = {"with_": "zeros", "target": 1}
    ids = {"input_ids": torch.tensor([[1]])}
    true, guess, one = (hw.patch_each(Cancelling(), ids, ["large", "small"], exact=k, **options) for k in (None, 0, 1))
    assert [effect.effect for effect in true] == pytest.approx([1.5, 0.5])
    assert [effect.effect for effect in guess] == pytest.approx([0.0, 0.5], abs=1e-6)
    assert [effect.effect for effect in one] == pytest.approx([1.5, 0.5])
    assert [effect.estimated for effect in one] == [False, True]


def test_terms_are_those_at_the_text_and_halfway_to_the_other() -> None:
    """The gradient of m^2 / 6 is m / 3: for m = 3 and 1 for the other text, terms are 2 + 2 here, 2 + 4 / 3 halfway."""
    model = Cancelling()
    with torch.no_grad():
        model.embed.weight[2] = 1 / 3
    ids, other = ({"input_ids": torch.tensor([[number]])} for number in (1, 2))
    patcher = Patcher.open(model, ids, ["large"], other, {"target": 1})
    ((found,), _) = patcher._estimate()
    assert float(found.terms) == pytest.approx(2 + 2 + 2 + 4 / 3, rel=1e-6)
    assert float(found.falls) == pytest.approx(0.0, abs=1e-6)


def test_nodes_are_chosen_by_their_terms_as_many_of_each_kind() -> None:
    kinds = ["heads", "modules", "modules", "heads", "modules"]
    terms = [1.0, 10.0, 30.0, 2.0, 20.0]
    chosen = [choose_unsure(kinds, terms, count) for count in range(6)]
    assert chosen == [[], [2], [2, 3], [2, 3, 4], [2, 3, 4, 0], [2, 3, 4, 0, 1]]


def test_nothing_is_estimated_to_change_where_nothing_is_replaced() -> None:
    (found,) = hw.patch_each(tiny("bert"), ONE, ["layer 0 head 1"], with_=ONE, tokenizer=tokenizer(), exact=0)
    assert found.effect == 0
    assert str(found).endswith("(estimated)")


@pytest.mark.parametrize(
    ("nodes", "exact", "said"),
    [
        (["layer 1 heads"], 0, "many nodes"),
        (["layer 0"], -1, "at least 0"),
        (["layer 0"], 1.5, "whole number"),
    ],
)
def test_what_no_estimate_is_of(nodes: list[str], exact: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        hw.patch_each(tiny("bert"), ONE, nodes, tokenizer=tokenizer(), exact=exact)


def test_an_estimate_needs_as_many_tokens() -> None:
    with pytest.raises(InputError, match="same number of tokens"):
        hw.patch_each(tiny("bert"), ONE, ["layer 0 head 1"], with_="the movie", tokenizer=tokenizer(), exact=0)
