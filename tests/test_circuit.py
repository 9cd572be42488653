"""Circuits: every node's ledger closes, edges are what a hand computes, and what cannot be told is said."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from by_hand import ByHand
from tiny import BUILD, arguments, tiny
from torch import Tensor, nn

import headwater as hw
from headwater.engine import node_flows
from headwater.errors import DataError, NotApplicable, UnknownName, UsageError
from headwater.results.circuit import LEFT_OUT, Circuit
from headwater.rules.flow_gates import FlowGate

QUICK = ("bert", "gpt2", "llama", "t5", "vit", "mixtral", "deberta-v2", "torch-encoder-sequence-first")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BUILD]


def trace(name: str, **options: Any) -> Circuit:
    return hw.circuit(tiny(name), arguments(name, 1), **{"method": "lrp", "nodes": 5, **options})


def errors_of(circuit: Circuit) -> dict[str, float]:
    names = [*(node.name for node in circuit.nodes), LEFT_OUT]
    return {name: circuit.ledger(name).error for name in names}


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_of_every_node_closes(name: str) -> None:
    """In float64; models that cast to float32 inside close to its rounding."""
    found = trace(name)
    room = 1e-10 if found.dtype == "float64" else 1e-6
    assert max(errors_of(found).values()) <= room
    assert found.closed
    assert len(found.parts) == 5
    assert found.left_out.parts > 0
    assert found.left_out.size > 0


@pytest.mark.parametrize("name", QUICK)
def test_the_ledgers_open_without_rules(name: str) -> None:
    found = trace(name, method="gi", output="logit")
    assert max(errors_of(found).values()) > 1e-3
    assert not found.closed


def test_relevance_that_does_not_stop_at_nodes_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = FlowGate.__call__

    def pass_on(self: FlowGate, gradient: Tensor | None) -> None:
        stopping(self, gradient)

    monkeypatch.setattr(FlowGate, "__call__", pass_on)
    assert max(errors_of(trace("bert")).values()) > 1e-3


def test_words_biases_and_score_are_those_of_the_explanation() -> None:
    """All biases of all nodes, and of what is left out, are those of the explanation's ledger."""
    found = trace("bert")
    (e,) = hw.explain(tiny("bert"), arguments("bert", 1), method="lrp", inside=["heads"])
    assert [word.relevance for word in found.words] == pytest.approx(e.relevance.tolist(), rel=1e-10)
    assert found.score == found.find("score").relevance == pytest.approx(e.score, rel=1e-12)
    sources = sum(node.sources for node in found.nodes) + found.left_out.sources
    assert sources == pytest.approx(e.score - float(e.relevance.sum()), rel=1e-10)
    assert e.inside is not None
    heads = [node for node in found.parts if node.kind == "heads"]
    assert heads
    for node in heads:
        assert node.relevance == pytest.approx(float(e.inside.heads[node.layer, node.unit]), rel=1e-10)


@pytest.mark.parametrize("parts", ["layers", ["heads", "neurons"], ["heads", "mlps", "layers"], "bert.encoder.layer.*"])
def test_other_parts(parts: Any) -> None:
    found = trace("bert", parts=parts, nodes=7)
    assert max(errors_of(found).values()) <= 1e-10
    assert len(found.parts) == min(7, len(found.parts) + found.left_out.parts)


def test_with_the_stream_as_nodes_nothing_goes_around_them() -> None:
    """A layer's output is all that the next layer gets: one edge leads from each to the next."""
    found = trace("bert", parts=["layers"], nodes=2)
    assert found.left_out.parts == 0
    assert {(edge.start, edge.end) for edge in found.edges if edge.start.startswith("layer")} == {
        ("layer 0", "layer 1"),
        ("layer 1", "score"),
    }
    assert found.left_out.relevance == 0.0


def test_edges_are_what_a_hand_computes() -> None:
    model, ids = ByHand(), torch.tensor([[1, 4, 7, 2]])
    found = hw.circuit(model, {"input_ids": ids}, method="lrp", target=1, parts=["heads", "neurons"], nodes=7)
    edges = {(edge.start, edge.end): edge.relevance for edge in found.edges}
    with torch.no_grad():
        x, weights = model.embed(ids), model.weigh(model.embed(ids))[0]
        values = (x @ model.v.weight.T)[0].unflatten(-1, (2, 3))  # [tokens, heads, 3], without the bias
        mixed = torch.einsum("hts,shd->thd", weights, values + model.v.bias.unflatten(-1, (2, 3)))
        written = torch.einsum("thd,ohd->hto", mixed, model.o.weight.unflatten(-1, (2, 3)))  # each head's in the stream
        stream = x[0] + written.sum(0) + model.o.bias
        on = (model.up(stream) > 0).double()
        to_logit = model.head.weight[1] / 4  # of every token, for the mean
        to_neuron = to_logit @ model.down.weight
        at_stream = to_logit + (to_neuron * on) @ model.up.weight
        at_heads = (at_stream @ model.o.weight).unflatten(-1, (2, 3))  # [tokens, heads, 3]
        expected: dict[tuple[str, str], Tensor] = {}
        for t in range(4):
            expected[f"word {t}", "score"] = to_logit @ x[0, t]
            for h in range(2):
                passed = torch.einsum("t,d,td->", weights[h, :, t], values[t, h], at_heads[:, h])
                expected[f"word {t}", f"head {h}"] = passed
            for n in range(5):
                expected[f"word {t}", f"down neuron {n}"] = on[t, n] * to_neuron[n] * (model.up.weight[n] @ x[0, t])
        for n in range(5):
            hidden = F.relu(model.up(stream))[:, n]
            expected[f"down neuron {n}", "score"] = (hidden * to_neuron[n]).sum()
            for h in range(2):
                before = written[h] @ model.up.weight[n]
                expected[f"head {h}", f"down neuron {n}"] = (on[:, n] * to_neuron[n] * before).sum()
        for h in range(2):
            expected[f"head {h}", "score"] = (written[h] @ to_logit).sum()
        biases = model.head.bias[1] + 4 * to_logit @ (model.o.bias + model.down.bias)
    kept = {names: float(amount) for names, amount in expected.items() if float(amount)}
    assert edges == pytest.approx(kept, rel=1e-10, abs=1e-14)
    assert found.find("score").sources == pytest.approx(float(biases), rel=1e-10)
    assert found.left_out.parts == 0


def test_what_is_left_out_adds_up_with_what_is_kept() -> None:
    """With fewer nodes, edges between those that stay are the same: what an edge is depends on no other choice."""
    many, few = trace("gpt2", nodes=10), trace("gpt2", nodes=4)
    kept = {node.name for node in few.nodes}
    assert kept < {node.name for node in many.nodes}
    all_edges = {(edge.start, edge.end): edge.relevance for edge in many.edges}
    for edge in few.edges:
        assert edge.relevance == pytest.approx(all_edges[edge.start, edge.end], rel=1e-9, abs=1e-13)
    assert many.left_out.parts == 0
    assert few.find("score").from_left_out == pytest.approx(
        sum(edge.relevance for edge in many.into("score") if edge.start not in kept), rel=1e-9
    )


def test_nodes_side_by_side_and_one_by_one_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = trace("bert", nodes=8, batch_size=1)
    passes: list[int] = []
    together = node_flows.pull_batch

    def count(leaves: Any, ends: Any, seeds: Any) -> Any:
        passes.append(len(seeds[0]))
        return together(leaves, ends, seeds)

    monkeypatch.setattr(node_flows, "pull_batch", count)
    found = trace("bert", nodes=8)
    assert max(passes) > 1
    amounts = {edge[:2]: edge.relevance for edge in alone.edges}
    assert {edge[:2]: edge.relevance for edge in found.edges} == pytest.approx(amounts)


def test_an_operation_that_cannot_be_batched_is_gone_through_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trace("bert", nodes=8)

    def refuse(*_: Any) -> Any:
        raise RuntimeError("no batching rule")

    monkeypatch.setattr(node_flows, "pull_batch", refuse)
    amounts = {edge[:2]: edge.relevance for edge in expected.edges}
    assert {edge[:2]: edge.relevance for edge in trace("bert", nodes=8).edges} == pytest.approx(amounts)


def test_it_is_written_and_read_without_loss(tmp_path: Any) -> None:
    found = trace("bert")
    assert Circuit.from_json(found.to_json()) == found
    found.save(tmp_path / "circuit.json")
    assert hw.Circuit.load(tmp_path / "circuit.json") == found
    with pytest.raises(DataError, match="no saved circuit"):
        Circuit.from_dict({"kind": "similarity"})


def test_the_drawing_has_every_node_and_the_edges_asked_for() -> None:
    found = trace("bert", nodes=10)
    drawn = ElementTree.fromstring(found.draw(edges=12))
    space = "{http://www.w3.org/2000/svg}"
    items = [int(group.attrib["data-item"]) for group in drawn.iter(f"{space}g")]
    assert sorted(items) == list(range(len(found.nodes)))
    paths = list(drawn.iter(f"{space}path"))
    assert len(paths) == 12
    widths = [float(path.attrib["stroke-width"]) for path in paths]
    assert widths == sorted(widths)
    places = {g.attrib["data-item"]: float(g[0].attrib["y"]) for g in drawn.iter(f"{space}g")}
    heights = [places[str(number)] for number in range(len(found.nodes))]
    assert heights == sorted(heights, reverse=True)  # words at the bottom, the score on top
    rects = [g[0].attrib for g in drawn.iter(f"{space}g")]
    spans = sorted((float(r["y"]), float(r["x"]), float(r["x"]) + float(r["width"])) for r in rects)
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(spans))  # no two boxes meet


def test_words_and_names_cannot_break_the_drawing() -> None:
    found = trace("bert")
    nodes = (replace(found.nodes[0], text="<b>&'\""), *found.nodes[1:])
    ElementTree.fromstring(replace(found, nodes=nodes).draw())


def test_it_says_itself_as_text() -> None:
    found = trace("bert")
    said = str(found)
    assert f"5 of {5 + found.left_out.parts} parts" in said
    assert found.parts[0].name in said
    assert "left out" in said
    assert "from nodes" in str(found.ledger("score"))
    assert str(found.ledger("word 0")).startswith("to nodes")


def test_what_cannot_be_had_is_said() -> None:
    model, given = tiny("bert"), arguments("bert", 1)
    with pytest.raises(UsageError, match="nodes must be at least 1"):
        hw.circuit(model, given, nodes=0)
    with pytest.raises(UsageError, match="not for both"):
        hw.circuit(model, given, parts=["neurons", "mlps"])
    with pytest.raises(UsageError, match="Ask for its heads"):
        hw.circuit(model, given, parts=["queries"])
    with pytest.raises(UsageError, match="of one input"):
        hw.circuit(model, arguments("bert", 2))
    with pytest.raises(NotApplicable, match="gives no relevance to parts"):
        hw.circuit(model, given, method="rollout")
    with pytest.raises(UsageError, match="leave out recompute="):
        hw.circuit(model, given, recompute=2)
    with pytest.raises(UsageError, match="leave out keep="):
        hw.circuit(model, given, keep="host")
    with pytest.raises(UsageError, match="leave out sinks="):
        hw.circuit(model, given, sinks="aside")
    with pytest.raises(UsageError, match="leave out stride="):
        hw.circuit(model, given, stride=2)
    with pytest.raises(UnknownName, match="layer 1"):
        trace("bert", parts=["layers"]).ledger("layer 7")
    plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).double().eval()
    with pytest.raises(NotApplicable, match="has no heads"):
        hw.circuit(plain, torch.ones(1, 4, dtype=torch.float64), parts=["heads"])
    with pytest.raises(UsageError, match="with_="):
        trace("bert").faithfulness()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_faithfulness_is_that_of_patching(name: str) -> None:
    """With all parts the model says what it says; without them, what `patch` says when all are replaced."""
    model, given = tiny(name), arguments(name, 1)
    options: dict[str, Any] = {"target": 1, "output": "logit", "with_": "zeros"}
    found = hw.circuit(model, given, method="lrp", nodes=100, **options)
    measured = found.faithfulness()
    assert measured.sizes[-1] == measured.parts == len(found.parts)
    assert measured.kept[-1] == pytest.approx(found.score, rel=1e-10)
    assert (measured.faithfulness, measured.completeness) == pytest.approx((1, 1))
    effect = hw.patch(model, given, [node.name for node in found.parts], **options)
    assert (measured.empty, measured.removed[-1]) == pytest.approx((effect.patched, effect.patched), rel=1e-10)
    largest = hw.patch(model, given, [found.parts[0].name], **options)
    assert measured.sizes[0] == 1
    assert measured.removed[0] == pytest.approx(largest.patched, rel=1e-10)
    others = hw.patch(model, given, [node.name for node in found.parts[1:]], **options)
    assert measured.kept[0] == pytest.approx(others.patched, rel=1e-10)
    assert Circuit.from_json(found.to_json()) == found
    assert "faithfulness 1" in str(found)
