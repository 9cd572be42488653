"""A text explained at any layer: by name, by pattern, as a module; ledgers close there, and tokens keep their names."""

from __future__ import annotations

import json

import pytest
import torch
from tiny import BUILD, randomised, tiny, tokenizer
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from typer.testing import CliRunner

import headwater as hw
from headwater import errors
from headwater.cli import app
from headwater.memory.cuda_graphs import Recorder

TEXTS = ["a gripping, beautifully acted film", "the movie is not good", "dull"]
CASTING = {"llama", "gemma2"}  # norms in float32 whatever the dtype

LAYERS = {
    "bert": "bert.encoder.layer.{}",
    "deberta-v2": "deberta.encoder.layer.{}",
    "xlnet": "transformer.layer.{}",  # positions before samples
    "modernbert": "model.layers.{}",
    "gpt2": "transformer.h.{}",
    "llama": "model.layers.{}",  # a layer is given position numbers, which are no words
    "bart": "model.encoder.layers.{}",  # the decoder reads the words once more
    "torch-encoder-sequence-first": "encoder.layers.{}",
}


def side_of(name: str) -> str:
    return "left" if name == "xlnet" else "right"


def explain_at(name: str, place: object, data: object = None, **options: object) -> list[hw.Explanation]:
    options = {"method": "lrp", "output": "logit", **options}
    return hw.explain(tiny(name), data or TEXTS, tokenizer=tokenizer(side=side_of(name)), inputs=place, **options)


@pytest.mark.crossed
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", LAYERS)
def test_ledgers_close_at_every_layer_batched_and_padded(name: str, number: int) -> None:
    place = LAYERS[name].format(number)
    for e, text in zip(explain_at(name, place), TEXTS, strict=True):
        alone = hw.explain(
            tiny(name), text, tokenizer=tokenizer(side=side_of(name)), inputs=place, method="lrp", output="logit"
        )
        assert e.ledger.closed, e.ledger.why
        assert e.ledger.error < (1e-6 if name in CASTING else 1e-12)
        assert e.at == place
        assert e.tokens == alone.tokens == tuple(tokenizer().convert_ids_to_tokens(tokenizer()(text)["input_ids"]))
        assert torch.allclose(e.relevance, alone.relevance, rtol=1e-5, atol=1e-9)


def test_relevance_at_a_layer_is_that_of_plain_autograd() -> None:
    """`gi` has no rules: hidden state times its gradient, which two lines of torch give as well."""
    model, kept = tiny("bert"), []
    hook = model.bert.encoder.layer[0].register_forward_hook(lambda m, a, out: kept.append(out) or out.retain_grad())
    model(**tokenizer()(TEXTS[0], return_tensors="pt")).logits[0, 1].backward()
    hook.remove()
    model.zero_grad()
    expected = (kept[0] * kept[0].grad).sum(-1)[0].detach()
    (found,) = explain_at("bert", "bert.encoder.layer.0", TEXTS[:1], method="gi", target=1)
    assert torch.allclose(found.relevance, expected, rtol=1e-10)
    (embeddings,) = explain_at("bert", None, TEXTS[:1], method="gi", target=1)
    assert not torch.allclose(found.relevance, embeddings.relevance, rtol=1e-2)


def test_name_pattern_module_and_at_are_one_place() -> None:
    ways = [
        {"inputs": "bert.encoder.layer.1"},
        {"inputs": "*layer.1*"},  # of all modules in it the outermost
        {"inputs": tiny("bert").bert.encoder.layer[1]},
        {"at": "bert.encoder.layer.1"},
    ]
    found = [hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), **way) for way in ways]
    assert {e.at for e in found} == {"bert.encoder.layer.1"}
    assert all(torch.equal(e.relevance, found[0].relevance) for e in found)
    named = hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), inputs="bert.embeddings")
    usual = hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer())
    assert torch.equal(named.relevance, usual.relevance)
    assert (named.at, usual.at) == ("bert.embeddings", "embeddings")


REFUSED = [
    (3, errors.InputError, r"not 3\. The model's layers are 'bert.encoder.layer.0' to 'bert.encoder.layer.1'"),
    ("bert.encoder.layer.7", errors.UnknownName, r"Did you mean 'bert.encoder.layer.\d'"),
    ("nowhere", errors.UnknownName, "The model's layers are 'bert.encoder.layer.0'"),
    ("*layer.?", errors.InputError, "names 2 modules: 'bert.encoder.layer.0', 'bert.encoder.layer.1'"),
    ("bert.pooler", errors.InputError, r"'bert.pooler' has the shape \(3, 32\)"),
    (nn.Linear(2, 2), errors.InputError, "not part of the model"),
    ("dropout.inner", errors.UnknownName, "Did you mean"),
]


@pytest.mark.parametrize(("place", "error", "said"), REFUSED, ids=[str(one[0])[:20] for one in REFUSED])
def test_a_place_that_is_none_is_refused(place: object, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        explain_at("bert", place)


def test_two_places_at_once_are_refused() -> None:
    with pytest.raises(errors.InputError, match="at='words' has no place beside it"):
        explain_at("bert", "bert.encoder.layer.0", at="words")


@pytest.mark.parametrize("place", ["bert.encoder.layer.0.attention.self", "bert.encoder.layer.1.intermediate"])
def test_what_goes_around_a_module_is_a_line_of_its_own(place: str) -> None:
    """A part of a block does not carry the residual stream; what the stream carries past it is named, not lost."""
    for e in explain_at("bert", place):
        line = e.ledger.constants[f"words that go around {place}"]
        assert abs(line) > 1e-6
        assert e.ledger.closed
    (whole,) = explain_at("bert", "bert.encoder.layer.0", TEXTS[:1])
    assert not any("around" in name for name in whole.ledger.constants)
    with pytest.raises(errors.NotApplicable, match="go around"):
        explain_at("bert", place, method="rollout")


def test_a_decoder_is_explained_at_its_own_positions() -> None:
    sizes = {"vocab_size": 120, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    model = randomised(T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).double())
    encoder, decoder = (
        hw.explain(model, TEXTS[0], tokenizer=tokenizer(), inputs=place, method="lrp", output="logit")
        for place in ("encoder.block.1", "decoder.block.0")
    )
    assert encoder.ledger.closed
    assert len(encoder.tokens) == 8
    assert decoder.segments[-1] == "target"
    assert decoder.relevance[:-1].abs().sum() == 0  # what the text brings goes around it, by the encoder
    assert abs(decoder.ledger.constants["words that go around decoder.block.0"]) > 1e-6


@pytest.mark.parametrize("method", ["gi", "smoothgrad", "lrp-difference", "leave-one-out", "contextcite", "random"])
def test_other_methods_are_the_same_in_a_batch_at_a_layer(method: str) -> None:
    together = explain_at("bert", "bert.encoder.layer.0", method=method)
    for e, text in zip(together, TEXTS, strict=True):
        (alone,) = explain_at("bert", "bert.encoder.layer.0", [text], method=method)
        assert torch.allclose(e.relevance, alone.relevance, rtol=1e-6, atol=1e-9)


def test_what_a_tokenizer_returned_keeps_its_tokens_and_leaves_padding_out() -> None:
    fields = dict(tokenizer()(TEXTS, return_tensors="pt", padding=True))
    found = hw.explain(tiny("bert"), fields, tokenizer=tokenizer(), inputs="bert.encoder.layer.0", method="lrp")
    for e, other in zip(found, explain_at("bert", "bert.encoder.layer.0"), strict=True):
        assert e.tokens == other.tokens
        assert torch.allclose(e.relevance, other.relevance)


def test_a_plan_of_one_layer_never_serves_another() -> None:
    torch.manual_seed(0)
    model, places = randomised(BUILD["bert"]().double()), (None, "bert.encoder.layer.0", "bert.encoder.layer.1")
    asked = {"tokenizer": tokenizer(), "method": "lrp"}
    plain = {p: [hw.explain(model, t, inputs=p, plans=False, **asked) for t in TEXTS] for p in places}
    ways: dict[object, set[str]] = {p: set() for p in places}
    for _ in range(4):
        for place in places:
            for text, expected in zip(TEXTS, plain[place], strict=True):
                found = hw.explain(model, text, inputs=place, **asked)
                ways[place].add(found.provenance.way)
                assert torch.allclose(found.relevance, expected.relevance, rtol=1e-9, atol=1e-12)
                assert found.ledger.closed
                assert found.at == expected.at
    assert all(way != {"plain"} for way in ways.values())  # each place has plans of its own, and they were played


def test_a_recording_of_one_place_never_serves_another() -> None:
    recorder, places = Recorder(call=lambda body, pool: body), (None, "bert.encoder.layer.0", "bert.encoder.layer.1")
    plain = {place: explain_at("bert", place) for place in places}
    with recorder.at_work():
        for _ in range(3):
            for place in places:
                for found, expected in zip(explain_at("bert", place), plain[place], strict=True):
                    assert torch.allclose(found.relevance, expected.relevance, rtol=1e-9, atol=1e-12)
    assert recorder.replays


def test_saving_memory_changes_nothing_at_a_layer() -> None:
    for place in ("bert.encoder.layer.0", "bert.encoder.layer.1.attention.self"):
        plain = explain_at("bert", place, plans=False)
        for more in ({"recompute": "blocks"}, {"keep": "disk"}):
            for found, expected in zip(explain_at("bert", place, **more), plain, strict=True):
                assert torch.allclose(found.relevance, expected.relevance)
                assert found.ledger.closed


def test_audit_compare_session_and_windows_take_a_layer() -> None:
    model, place = tiny("bert"), "bert.encoder.layer.0"
    audit = hw.audit(model, TEXTS[0], tokenizer=tokenizer(), inputs=place, method="gi")
    assert audit.explanation.at == place
    assert sum(leak.amount for leak in audit.leaks) == pytest.approx(audit.explanation.ledger.unaccounted, abs=1e-9)
    assert not any(leak.module.startswith(place) for leak in audit.leaks)  # nothing before it is of interest
    compared = hw.compare(model, TEXTS[0], tokenizer=tokenizer(), inputs=place)
    assert {e.at for e in compared.explanations} == {place}
    assert compared.refused == ()
    with hw.session(model, tokenizer=tokenizer(), dtype="float32") as session:  # a copy; the module is the original's
        by_module = session.explain(TEXTS[0], inputs=model.bert.encoder.layer[0])
        assert by_module.at == place
        assert torch.equal(by_module.relevance, session.explain(TEXTS[0], inputs=place).relevance)
    long = " ".join(["the movie is not good"] * 20)
    windows = hw.explain(model, long, tokenizer=tokenizer(), inputs=place, window=True, method="lrp")
    assert windows.at == place
    assert windows.ledger.closed


class Own(nn.Module):
    """A module as people write them: no names of transformers, no mask, positions of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(120, 16), nn.Embedding(64, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.encoder(x).mean(1))


@pytest.mark.parametrize("place", ["words", "encoder.layers.0", "encoder.layers.1"])
def test_a_module_of_ones_own_takes_texts_once_inputs_are_named(place: str) -> None:
    model = randomised(Own().double())
    with pytest.raises(errors.ModelError, match="inputs='words'"):
        hw.explain(model, TEXTS, tokenizer=tokenizer())
    for e, text in zip(hw.explain(model, TEXTS, tokenizer=tokenizer(), inputs=place), TEXTS, strict=True):
        assert e.at == place
        assert e.ledger.closed
        score = model(tokenizer()(text, return_tensors="pt")["input_ids"])[0, int(e.target.removeprefix("LABEL_"))]
        assert e.score == pytest.approx(score.item(), rel=1e-9)


def test_the_command_line_takes_a_layer() -> None:
    for option in ("--at", "--inputs"):
        asked = ["explain", TEXTS[0], option, "*layer.1", "--json"]
        found = json.loads(CliRunner().invoke(app, asked).stdout)
        assert found["at"] == "bert.encoder.layer.1"
        assert found["ledger"]["closed"]
    wrong = CliRunner().invoke(app, ["audit", TEXTS[0], "--inputs", "bert.encoder.layer.9"])
    assert wrong.exit_code == 2
    assert "Did you mean" in wrong.output
