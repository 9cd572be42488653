"""The study of patching: its estimates are exact where the model is linear, and its pairs are what they say."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from real_data import need_real_data
from tiny import tiny, tokenizer

import headwater as hw
from headwater.evaluation.pruning import Pruner
from headwater.evaluation.unit_scores import Examples
from headwater.inputs.inside_demand import InsideDemand
from headwater_experiments.inside import truth
from headwater_experiments.inside.circuits import ALL as CIRCUIT_METHODS
from headwater_experiments.inside.circuits import CircuitMeasures, area, measure_order, read_rows, write_rows
from headwater_experiments.inside.circuits import measure_pair as measure_circuits
from headwater_experiments.inside.cost import main as measure_inside_cost
from headwater_experiments.inside.cuts import judge_entry
from headwater_experiments.inside.estimating import Estimator
from headwater_experiments.inside.pairs import InputPair, PairTask, agreement_pairs, name_pairs
from headwater_experiments.inside.pruning import OURS as OURS_PRUNING
from headwater_experiments.inside.pruning import SHARES, choose, summarise
from headwater_experiments.inside.truth import (
    MEASURED,
    OURS,
    RULES,
    PairAgreement,
    estimate_places,
    leave_out_patched,
    list_nodes,
    make_table,
    measure_pair,
    patch_nodes,
)
from headwater_experiments.zoo.entries import entries

PAIR = InputPair("the movie was very good", "the movie was not bad", 1)
MLP = "bert.encoder.layer.[0-9].output.dense"


def make_bert_task() -> PairTask:
    return PairTask("tiny", tiny("bert"), tokenizer(), [PAIR], MLP)


def small(task: PairTask) -> list[torch.Tensor]:
    """What changes from the other text to this one, a thousandth of it: there gradients are exact."""
    estimator = Estimator.of(task, PAIR, InsideDemand(frozenset(["heads"]), (MLP,)))
    return [one / 1000 for one in estimator.changes]


def test_the_estimate_by_gradients_is_the_slope_of_patching() -> None:
    """Halfway to the other text and back, integrated gradients and the gradient there are one for tiny changes."""
    task = make_bert_task()
    estimator = Estimator.of(task, PAIR, InsideDemand(frozenset(["heads"]), (MLP,)))
    nearby = replace(estimator, changes=small(task))
    whole, part = estimator.estimate_falls(RULES["gi"]), nearby.estimate_falls(RULES["gi"])
    for a, b in zip(whole, part, strict=True):
        assert torch.allclose(a, 1000 * b, rtol=1e-9)
    assert len(whole) == 4
    assert {len(one) for one in whole} == {4, 1}


def test_one_step_at_the_input_itself_is_the_estimate() -> None:
    task = make_bert_task()
    estimator = Estimator.of(task, replace(PAIR, other="the movie was very dull"), InsideDemand(frozenset(["heads"])))
    here = replace(estimator, other_input=next(iter([estimator.other_input])))
    same = replace(here, other_input=input_of_clean(task))
    for a, b in zip(same.integrate(RULES["lrp"], 3), same.estimate_falls(RULES["lrp"]), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-14)


def input_of_clean(task: PairTask) -> torch.Tensor:
    """The embeddings of the text itself: a way from there to there."""
    turned = InputPair(PAIR.other, PAIR.clean, PAIR.target)
    return Estimator.of(task, turned, InsideDemand(frozenset(["heads"]))).other_input


def test_every_method_is_measured_beside_patching() -> None:
    task = make_bert_task()
    rows = list(measure_pair(task, PAIR, 0))
    assert {row.part for row in rows} == {"heads", "mlp"}
    assert len({row.method for row in rows}) == len(RULES) + 3
    assert all(-1 <= row.pearson <= 1 and -1 <= row.spearman <= 1 for row in rows)
    assert all(row.forwards > 0 for row in rows)
    nodes = list_nodes(task, PAIR)
    heads = [one.effect for one in patch_nodes(task, PAIR, nodes) if "head" in one.nodes[0]]
    assert rows[0].truth == tuple(heads)


def test_the_few_that_are_patched_are_no_estimates_and_are_left_out_of_what_is_said_of_those(monkeypatch: Any) -> None:
    monkeypatch.setattr(truth, "EXACT", 5)
    rows = list(measure_pair(make_bert_task(), PAIR, 0, ["gi", MEASURED]))
    heads, ours = (next(row for row in rows if row.method == m and row.part == "heads") for m in ("gi", MEASURED))
    assert len(ours.patched) == 3  # and both outputs of feed-forward layers
    for node, (plain, said, true) in enumerate(zip(heads.estimate, ours.estimate, ours.truth, strict=True)):
        assert said == pytest.approx(true if node in ours.patched else plain, rel=1e-6)
    errors = [sum(abs(a - b) for a, b in zip(one.estimate, one.truth, strict=True)) for one in (heads, ours)]
    assert errors[1] < errors[0]
    rest = leave_out_patched(rows)
    assert [(row.method, row.part, len(row.truth)) for row in rest] == [("gi", "heads", 5), (MEASURED, "heads", 5)]
    assert rest[0].pearson == pytest.approx(rest[1].pearson, abs=1e-6)


def test_places_are_those_of_the_estimator() -> None:
    task = make_bert_task()
    of_all, by_gradients = (estimate_places(task, PAIR, method) for method in (MEASURED, "gi"))
    assert [len(one) for one in of_all] == [len(one) for one in by_gradients] == [4, 1, 4, 1]
    true = [effect.effect for effect in patch_nodes(task, PAIR, list_nodes(task, PAIR))]
    assert torch.cat(of_all).tolist() == pytest.approx(true)  # ten nodes are fewer than are patched


def test_a_perfect_and_a_reversed_method_in_the_table() -> None:
    true = (1.0, 2.0, 4.0)
    rows = [
        PairAgreement("t", number, "heads", name, sign, sign, tuple(sign * one for one in true), true)
        for number in range(3)
        for name, sign in ((OURS, 1.0), ("gi", -1.0))
    ]
    table = make_table(rows)
    assert f"| {OURS} | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] |  |  |" in table
    assert "-1.000 [-1.000, -1.000] | +2.000 [+2.000, +2.000] | +2.000 [+2.000, +2.000] |" in table


class Spaces:
    """A tokenizer whose tokens are words."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, Any]:
        return {"input_ids": [hash(word) % 1000 for word in text.split()]}


@pytest.mark.parametrize("find", [agreement_pairs, name_pairs])
def test_pairs_differ_in_one_word_and_have_as_many_tokens(find: Any) -> None:
    need_real_data("llm")
    for _, pair in zip(range(12), find(Spaces(), random.Random(0)), strict=False):
        clean, other = pair.clean.split(), pair.other.split()
        assert len(clean) == len(other)
        assert sum(a != b for a, b in zip(clean, other, strict=True)) == 1
        assert pair.target.label != pair.target.versus


def test_cuts_of_the_zoo() -> None:
    (entry,) = entries(["causal-lm"], ["gpt2"])
    found = judge_entry(entry)
    assert [(one.kind, one.verdict) for one in found] == [
        ("heads", "closed"),
        ("neurons", "closed"),
        ("layers", "closed"),
    ]
    assert all(one.error is not None and one.error <= 1e-10 for one in found)


def test_areas_of_circuits_by_hand() -> None:
    """A circuit that does all at once has CPR 1 - half the first step; one that rises evenly has a half of each."""
    assert area([0.1, 0.5, 1.0], [1.0, 1.0, 1.0]) == pytest.approx(0.95)
    assert area([0.25, 0.5, 1.0], [0.25, 0.5, 1.0]) == pytest.approx(0.5)
    assert area([0.25, 0.5, 1.0], [0.75, 0.5, 0.0], at_zero=1.0) == pytest.approx(0.5)


def test_a_perfect_order_is_ahead_of_a_reversed_one() -> None:
    """The truth of each node by itself, taken as its estimate, in a model whose parts only add up."""

    class Sums:
        """Parts whose scores add up; what `PartsKeeper` is asked for."""

        amounts = torch.tensor([3.0, 0.5, -1.0, 0.0])
        score = 2.5

        def keep_only(self, kept: list[Any]) -> list[float]:
            return [float(sum(self.amounts[one.unit] for one in parts)) for parts in kept]

    true, reversed_ = (
        measure_order(Sums(), 0.0, "", [sign * Sums.amounts], ("", 0))
        for sign in (1, -1)  # type: ignore[arg-type]
    )
    assert true.cpr > 1 > reversed_.cpr
    assert true.completeness == pytest.approx(3.0 / 2.5)
    assert true.by_size == reversed_.by_size
    assert true.signed[-1] == pytest.approx(1.0)


@pytest.mark.slow
def test_the_cost_of_cuts_is_measured_with_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    measure_inside_cost("--shape llama-small --layers 1 --tokens 16 --rounds 1 --methods lrp".split())
    said = capsys.readouterr().out
    assert "| lrp |" in said
    assert "| lrp, inside=heads,layers |" in said
    worst = float(said.split("order of the table: ")[1])
    assert 0 < worst < 1e-5  # float32


def test_circuits_of_every_order_are_measured() -> None:
    """Ten parts, fewer than are patched, so that ours is the order of the truth."""
    task = make_bert_task()
    rows = {row.method: row for row in measure_circuits(task, PAIR, 0, 8)}
    assert set(rows) == set(CIRCUIT_METHODS)
    assert all(row.parts == 10 and row.signed[-1] == pytest.approx(1.0) for row in rows.values())
    nodes = list_nodes(task, PAIR)
    effects = [one.effect for one in patch_nodes(task, PAIR, nodes)]
    best = nodes[max(range(len(nodes)), key=lambda number: abs(effects[number]))]
    others = [node for node in nodes if node is not best]
    options = {"with_": PAIR.other, "tokenizer": task.tokenizer, "target": PAIR.target, "output": "logit"}
    kept, none = (hw.patch(task.model, PAIR.clean, some, **options) for some in (others, nodes))
    expected = (kept.patched - none.patched) / (kept.score - none.patched)
    assert rows[MEASURED].by_size[0] == pytest.approx(expected, rel=1e-6)


def test_circuits_of_one_more_method_are_added_to_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    gi, measured, again = (
        CircuitMeasures("t", 0, name, 2, [0.5, 1.0], [0.5, 1.0], cpr, 0.2, 1.0)  # type: ignore[arg-type]  # as JSON has it
        for name, cpr in (("gi", 0.5), (MEASURED, 0.6), (MEASURED, 0.7))
    )
    for rows in ([gi], [measured], [again]):
        write_rows(path, rows)
    assert read_rows(path) == [gi, again]


def test_pruning_tables_pair_trainings(tmp_path: Path) -> None:
    """Ours is .1 above Taylor's in every training, whatever the trainings differ by: an interval of no width."""
    out = tmp_path / "pruning.jsonl"
    lines = []
    for seed, level in enumerate((0.5, 0.6, 0.8)):
        for name, more in ((OURS_PRUNING, 0.1), ("taylor, zeros", 0.0)):
            rest = {"removed": 1, "agreement": 1.0, "divergence": 0.0}
            pruned = [{"score": name, "share": share, "accuracy": level + more, **rest} for share in SHARES]
            lines.append({"seed": seed, "kind": "heads", "rows": 4, "accuracy": 0.9, "pruned": pruned})
    out.write_text("\n".join(json.dumps(line) for line in lines))
    table = summarise(out, ["accuracy"])
    assert table.count("| 0.633 | +0.100 [+0.100, +0.100] |") == len(SHARES) - 1  # borders are shared
    assert "3 trainings, 4 rows, 0.900 before" in table


def test_what_goes_is_the_same_for_all_fills_of_a_score_that_is_taken_once() -> None:
    given = Examples(["the film is good", "a bad film"], [1, 0])
    pruner = Pruner.open(tiny("bert"), tokenizer(), "heads", given)
    found = {
        name: list(choose(pruner, name, 0)) for name in ("taylor, zeros", "taylor, refit", "taylor, refit, taken again")
    }
    assert [one[1] for one in found["taylor, zeros"]] == [one[1] for one in found["taylor, refit"]]
    assert [one[2].moments is None for one in found["taylor, zeros"]] == [True] * 3
    assert all(sum(map(len, one[1].values())) == round(one[0] * 8) for rows in found.values() for one in rows)
