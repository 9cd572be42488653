"""Relevance inside the model: every cut adds up to the score, nodes are what a hand computes, and nothing is silent."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from by_hand import ByHand
from tiny import BUILD, arguments, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.engine import run_plans
from headwater.errors import NotApplicable, UnknownName, UsageError
from headwater.rules.inside import InsideScope

QUICK = ("bert", "gpt2", "llama", "gemma2", "t5", "torch-encoder-sequence-first")
ALL = ["heads", "neurons", "layers"]


def room(e: hw.Explanation) -> float:
    """Of the float64 models: 1e-10, or float32's rounding where a model casts inside."""
    return 1e-10 if e.ledger.dtype == "float64" else 1e-6


def names(slow: bool = True) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BUILD]


@pytest.mark.parametrize("name", names())
def test_every_cut_closes(name: str) -> None:
    for e in hw.explain(tiny(name), arguments(name, 2), method="lrp", inside=ALL):
        assert e.inside is not None
        assert {group.kind for group in e.inside.groups} == {*ALL}
        for group in e.inside.groups:
            assert group.ledger is not None
            assert group.ledger.error <= room(e), group.place
            assert group.ledger.nodes == pytest.approx(float(group.relevance.double().sum()) + group.padding, rel=1e-4)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_cut_stays_open_where_a_rule_is_missing(name: str) -> None:
    """Gradient x Input leaks in every layer, so that cuts close the less the further they are from the score."""
    (e,) = hw.explain(tiny(name), arguments(name, 1), method="gi", output="logit", inside=["layers"])
    assert e.inside is not None
    errors = [group.ledger.error for group in e.inside.groups if group.ledger is not None]
    assert errors[0] > 1e-3


def test_a_by_pass_that_is_not_seen_leaves_the_cut_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InsideScope, "with_edges", lambda self, call: call)
    (e,) = hw.explain(tiny("bert"), arguments("bert", 1), method="lrp", inside=["heads"], plans=False)
    assert e.inside is not None
    assert e.inside.ledger("layer 0").error > 1e-3
    assert e.ledger.closed


@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma2", "mixtral"])
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "lrp-language", "attnlrp", "gi"])
def test_the_explanation_is_the_one_without(name: str, method: str) -> None:
    plain = hw.explain(tiny(name), arguments(name, 2), method=method, plans=False)
    noted = hw.explain(tiny(name), arguments(name, 2), method=method, plans=False, inside=[*ALL, "queries", "keys"])
    for one, other in zip(plain, noted, strict=True):
        assert torch.allclose(one.relevance, other.relevance, rtol=1e-12, atol=1e-14)
        assert one.score == pytest.approx(other.score, rel=1e-12)  # some are explained one by one
        assert one.inside is None


def test_heads_and_neurons_are_what_a_hand_computes() -> None:
    """relu is linear in each of its pieces and attention's weights are held, so relevance is value times a product."""
    model, ids = ByHand(), torch.tensor([[1, 4, 7, 2]])
    (e,) = hw.explain(model, {"input_ids": ids}, method="lrp", target=1, inside=["heads", "neurons", "values"])
    assert e.inside is not None
    with torch.no_grad():
        x = model.embed(ids)
        mixed = model.mix(x)
        after = x + model.o(mixed.transpose(1, 2).flatten(2))
        hidden = F.relu(model.up(after))
        to_logit = model.head.weight[1] / 4  # of every token, for the mean
        neurons = hidden[0] * (to_logit @ model.down.weight)
        on = (hidden > 0).double()[0]
        to_stream = to_logit + ((to_logit @ model.down.weight) * on) @ model.up.weight
        heads = mixed[0].transpose(0, 1) * (to_stream @ model.o.weight).unflatten(-1, (2, 3))
    assert torch.allclose(e.inside.positions.neurons[0], neurons, rtol=1e-10)
    assert torch.allclose(e.inside.positions.heads[0], heads.sum(-1), rtol=1e-10)
    assert e.inside.values.sum() == pytest.approx(float(e.inside.heads.sum()), rel=1e-10)  # weights are constants


def test_ledger_and_nodes_by_name() -> None:
    (e,) = hw.explain(tiny("bert"), arguments("bert", 1), method="lrp", inside=[*ALL, "bert.encoder.layer.*.output"])
    inside = e.inside
    assert inside is not None
    assert inside.heads.shape == (2, 4)
    assert inside.neurons.shape == (2, 48)  # the pooler's lie in no layer
    assert inside.layers.shape == (2,)
    assert inside.positions.heads.shape == (2, 9, 4)
    assert inside.positions.layers.shape == (2, 9)
    assert torch.allclose(inside.positions.neurons.sum(1), inside.neurons)
    assert inside.ledger("layer 1").name == "bert.encoder.layer.1: layers"
    assert inside.ledger("layer 1 heads").nodes == pytest.approx(float(inside.heads[1].sum()))
    assert inside["bert.encoder.layer.0.output"].shape == (9,)
    assert inside["bert.encoder.layer.0.output"].sum() == pytest.approx(float(inside.layers[0]))
    top = inside.top(5, "heads")
    assert [abs(node.relevance) for node in top] == sorted((abs(node.relevance) for node in top), reverse=True)
    assert top[0].relevance == inside.heads[top[0].layer, top[0].unit]
    assert top[0].name == f"layer {top[0].layer} head {top[0].unit}"
    assert "nodes" in str(inside.ledger("layer 0"))
    with pytest.raises(UnknownName, match="layer 1"):
        inside.ledger("layer 7")
    with pytest.raises(UsageError, match="queries were not asked for"):
        _ = inside.queries
    with pytest.raises(UsageError, match="queries were not asked for"):
        inside.top(3, "queries")  # all other kinds were given in their place
    with pytest.raises(UsageError, match="values were not asked for"):
        inside.ledger("layer 1 values")
    with pytest.raises(UnknownName, match="'heads'"):
        inside.top(3, "head")


def test_layers_of_two_stacks_are_told_by_their_names() -> None:
    (e,) = hw.explain(tiny("bart"), arguments("bart", 1), method="lrp", inside=["heads", "layers"])
    assert e.inside is not None
    assert e.inside.heads.shape == (6, 4)
    assert e.inside.names("heads")[-1].endswith("decoder.layers.1.encoder_attn")
    with pytest.raises(UsageError, match="Name one of them"):
        e.inside.ledger("layer 0")
    assert e.inside.ledger("*decoder.layers.1").closed


def test_a_layer_that_is_called_again_is_another_layer() -> None:
    (e,) = hw.explain(tiny("albert"), arguments("albert", 1), method="lrp", inside=ALL)
    assert e.inside is not None
    assert [group.layer for group in e.inside.of_kind("heads")] == [0, 1]
    assert e.inside.ledger("layer 1 neurons").closed


@pytest.mark.parametrize("name", ["llama", "bloom", "by hand"])
def test_queries_keys_and_values_share_what_the_heads_have(name: str) -> None:
    """The attention offset is with the values here, so that they have all; but BLOOM adds a bias of distance."""
    model = ByHand() if name == "by hand" else tiny(name)
    given = {"input_ids": torch.tensor([[1, 4, 7, 2]])} if name == "by hand" else arguments(name, 1)
    method = f"lrp(ah=shares(q=0.3,k=0.2,v=0.5,offset=values){'' if name == 'by hand' else '+ln'}+act+gate)"
    (e,) = hw.explain(model, given, method=method, inside=["heads", "queries", "keys", "values"])
    inside = e.inside
    assert inside is not None
    assert inside.queries.shape[0] == inside.keys.shape[0] == inside.heads.shape[0]
    assert float(inside.queries.abs().sum()) > 0 < float(inside.keys.abs().sum())
    found = inside.queries.sum(-1) + inside.keys.sum(-1) + inside.values.sum(-1)
    assert torch.allclose(found, inside.heads.sum(-1), rtol=1e-5) == (name != "bloom")
    if name != "by hand":
        with pytest.raises(UsageError, match="no cut by themselves"):
            inside.ledger("layer 0 queries")


def test_grouped_queries_have_heads_of_their_own() -> None:
    """Four heads share two keys and values: each head is a node, and theirs are read as attention uses them."""
    (e,) = hw.explain(tiny("llama"), arguments("llama", 1), method="lrp", inside=["heads", "values"])
    assert e.inside is not None
    assert e.inside.heads.shape == (2, 4)
    assert e.inside.values.shape[1] in (2, 4)
    assert torch.allclose(e.inside.values.sum(1), e.inside.heads.sum(1), rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "mixtral", "deberta-v2"])
def test_a_sample_in_a_batch_is_what_it_is_alone(name: str) -> None:
    """Padding, too: it is no token, and what lies there is apart."""
    texts = ["the movie was very good", "dull"]
    options: dict[str, Any] = {"tokenizer": tokenizer(), "method": "lrp", "inside": ["heads", "layers"]}
    together = hw.explain(tiny(name), texts, **options)
    for e, text in zip(together, texts, strict=True):
        alone = hw.explain(tiny(name), text, **options)
        assert e.inside is not None
        assert alone.inside is not None
        assert len(e.tokens) == e.inside.positions.heads.shape[1]
        assert all(group.by_token for group in e.inside.groups)
        scale = float(alone.inside.heads.abs().max())
        assert float((e.inside.heads - alone.inside.heads).abs().max()) <= 1e-5 * scale
        assert all(group.ledger is not None and group.ledger.error <= room(e) for group in e.inside.groups)


def test_several_targets() -> None:
    """The relevance of a difference of two logits is the difference of theirs, node by node."""
    model, given = tiny("bert"), arguments("bert", 1)
    first, second, apart = (
        hw.explain(model, given, method="lrp", target=target, inside=["heads"])[0].inside
        for target in (0, 2, "LABEL_0 - LABEL_2")
    )
    assert first is not None
    assert second is not None
    assert apart is not None
    assert torch.allclose(apart.heads, first.heads - second.heads, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_played_it_notes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_plans.SWITCH, "on")
    run_plans.PLANS.clear()
    ways = []
    for length in (9, 13, 11, 12, 10):
        given = arguments(name, 1, length)
        (found,) = hw.explain(tiny(name), given, method="lrp-gamma", inside=ALL)
        (plain,) = hw.explain(tiny(name), given, method="lrp-gamma", inside=ALL, plans=False)
        ways.append(found.provenance.way)
        assert found.inside is not None
        assert plain.inside is not None
        for one, other in zip(found.inside.groups, plain.inside.groups, strict=True):
            assert torch.equal(one.relevance, other.relevance)
            assert one.ledger == other.ledger
    assert "plan" in ways


class Pooled(nn.Module):
    """No attention, no activation."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.embed(input_ids).mean(1))


@pytest.mark.parametrize("kind", ALL)
def test_a_model_without_such_parts_says_so(kind: str) -> None:
    with pytest.raises(NotApplicable, match=f"no {kind} that can be told"):
        hw.explain(Pooled(), {"input_ids": torch.tensor([[1, 2]])}, inside=[kind])


class FiveAxes(ByHand):
    """Heads in groups within groups: which of them are heads cannot be told."""

    def mix(self, x: Tensor) -> Tensor:
        q, k, v = (one(x).unflatten(-1, (2, 1, 3)).permute(0, 2, 3, 1, 4) for one in (self.q, self.k, self.v))
        return (torch.softmax(q @ k.transpose(-2, -1), -1) @ v).squeeze(2)


class Dots(ByHand):
    """An einsum that does not name all of its axes, as LongT5's."""

    def mix(self, x: Tensor) -> Tensor:
        q, k, v = (one(x).unflatten(-1, (2, 3)) for one in (self.q, self.k, self.v))
        weights = torch.softmax(torch.einsum("...qhd,...khd->...hqk", q, k), -1)
        return torch.einsum("...hqk,...khd->...qhd", weights, v).transpose(1, 2)


@pytest.mark.parametrize("model", [FiveAxes, Dots])
def test_heads_that_cannot_be_told(model: type[ByHand]) -> None:
    given = {"input_ids": torch.tensor([[1, 4, 7]])}
    with pytest.raises(NotApplicable, match="cannot be told"):
        hw.explain(model(), given, inside=["heads"])
    (e,) = hw.explain(model(), given, method="lrp", inside=["neurons"])
    assert e.inside is not None
    assert e.inside.groups[0].ledger is not None
    assert e.inside.groups[0].ledger.closed


def test_what_cannot_be_asked() -> None:
    given = arguments("bert", 1)
    with pytest.raises(UnknownName, match="heads"):
        hw.explain(tiny("bert"), given, inside=["head"])
    with pytest.raises(NotApplicable, match="'rollout' gives no relevance to parts"):
        hw.explain(tiny("bert"), given, method="rollout", inside=["heads"])
    with pytest.raises(NotApplicable, match="lrp"):
        hw.explain(tiny("bert"), given, method="lrp-difference", inside=["heads"])
    with pytest.raises(UsageError, match="recompute"):
        hw.explain(tiny("bert"), given, recompute="blocks", inside=["heads"])
    with pytest.raises(UsageError, match="inside= takes names"):
        hw.explain(tiny("bert"), given, inside=[3])  # type: ignore[list-item]


def test_kept_elsewhere_it_notes_the_same() -> None:
    given = arguments("bert", 1)
    (here,), (disk,) = (hw.explain(tiny("bert"), given, method="lrp", inside=ALL, keep=k) for k in ("device", "disk"))
    assert here.inside is not None
    assert disk.inside is not None
    assert torch.equal(here.inside.heads, disk.inside.heads)


def test_it_is_saved_with_the_explanation(tmp_path: Any) -> None:
    (e,) = hw.explain(tiny("bert"), arguments("bert", 1), method="lrp", inside=["heads", "queries"])
    e.save(tmp_path / "e.json")
    again = hw.Explanation.load(tmp_path / "e.json")
    assert e.inside is not None
    assert again.inside is not None
    assert torch.equal(again.inside.positions.heads, e.inside.positions.heads)
    assert again.inside.ledger("layer 1") == e.inside.ledger("layer 1")


class WritesOver(ByHand):
    """The residual stream in place, over memory that went around the nodes."""

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids) * 1.0
        x += self.o(self.mix(x).transpose(1, 2).flatten(2))
        x += self.down(F.relu(self.up(x)))
        return self.head(x.mean(1))


def test_a_stream_that_is_written_over() -> None:
    given = {"input_ids": torch.tensor([[1, 4, 7, 2], [2, 3, 3, 1]])}
    for one, other in zip(
        hw.explain(ByHand(), given, method="lrp", inside=["heads", "neurons"]),
        hw.explain(WritesOver(), given, method="lrp", inside=["heads", "neurons"]),
        strict=True,
    ):
        assert one.inside is not None
        assert other.inside is not None
        assert torch.allclose(one.inside.heads, other.inside.heads, rtol=1e-12)
        assert all(group.ledger is not None and group.ledger.error < 1e-14 for group in other.inside.groups)
