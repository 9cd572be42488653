"""How the default for encoders is chosen: the file of validation samples, the measuring, and the rule itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny, tokenizer

import headwater as hw
from headwater.evaluation.ranking import Floats
from headwater.methods import resolve_method
from headwater.models.graphs.graph import Graph
from headwater_experiments.paper import choose, path_gradients, validation_parts, verdicts
from headwater_experiments.paper.verdicts import Cell, Found, compare_candidates, judge

EDGES = [[0, 1, 2, 4], [1, 2, 3, 5]]


def found_of(**methods: Sequence[float] | Floats) -> Found:
    """A model on which every sample has these scores; AU-MSE is 1 - AUAC, so that both say the same."""
    names = [name.replace("_", "-") for name in methods]
    auac = np.array(list(methods.values()))
    return {"methods": names, "errors": np.zeros(len(names)), "seconds": 1.0, "auac": auac, "aumse": 1 - auac}


def test_every_candidate_is_a_method_and_stands_there_once() -> None:
    names = [resolve_method(name).name for name in (*verdicts.ROWS, *choose.CANDIDATES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", choose.CANDIDATES)
def test_the_ledger_of_every_candidate_closes(name: str) -> None:
    text = "a gripping, beautifully acted film"
    found = hw.explain(tiny("bert").double(), text, tokenizer=tokenizer(), method=name, target=1)
    assert found.ledger.unaccounted == pytest.approx(0, abs=1e-9)


def test_path_gradients_are_those_of_captum() -> None:
    pytest.importorskip("captum")
    text = "the movie is not good"
    names = (path_gradients.path_gradients.name, "integrated-gradients")
    own, theirs = (hw.explain(tiny("bert").double(), text, tokenizer=tokenizer(), method=name) for name in names)
    torch.testing.assert_close(own.relevance, theirs.relevance, rtol=1e-5, atol=1e-8)
    assert own.ledger.unaccounted == pytest.approx(theirs.ledger.unaccounted, abs=1e-6)


def test_a_graph_survives_the_file() -> None:
    edge_features = np.arange(8).reshape(4, 2)
    graph = Graph(
        np.arange(12).reshape(6, 2), np.array(EDGES), np.linspace(0, 1, 18).reshape(6, 3), edge_features, label=1
    )
    line = json.loads(json.dumps({"label": 1, **validation_parts.write_sample(graph)}))
    again = validation_parts.read_sample(line)
    assert isinstance(again, Graph)
    assert again.sha256 == graph.sha256
    assert again.label == 1
    assert (again.distances == graph.distances).all()


def test_texts_are_measured_and_the_rule_read_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file of samples to the table, as the command line does it, with the bundled model."""
    parts, out, names = tmp_path / "parts.jsonl.gz", tmp_path / "found.npz", tmp_path / "names"
    with gzip.open(parts, "wt") as file:
        for text, label in (("a gripping film", 1), ("a dull, dull film", 0), ("not good", 0)):
            file.write(json.dumps({"part": "sst2-tune", "text": text, "label": label}) + "\n")
    names.write_text("random lrp lrp-difference")
    arguments = ["measure", "bundled", "--parts", str(parts), "--out", str(out), "--methods", str(names), "--rows", "2"]
    choose.run_choose_command(arguments)
    (found,) = verdicts.read_found([out]).values()
    assert found["methods"] == ["random", "lrp", "lrp-difference"]
    assert found["auac"].shape == found["aumse"].shape == (3, 2)
    choose.run_choose_command(["compare", str(out), "--method", "lrp-difference"])
    assert "1 columns, 0 of the 16" in capsys.readouterr().out


def test_methods_measured_later_are_joined(tmp_path: Path) -> None:
    first, second = tmp_path / "1.npz", tmp_path / "2.npz"
    verdicts.write_found(first, {"paper/sst2/0": found_of(gi=[0.1, 0.2], lrp=[0.3, 0.4])})
    verdicts.write_found(second, {"paper/sst2/0": found_of(lrp=[0.0, 0.0], mine=[0.5, 0.6])})
    joined = verdicts.read_found([first, second])["paper/sst2/0"]
    assert joined["methods"] == ["gi", "lrp", "mine"]
    assert joined["auac"][:, 0] == pytest.approx([0.1, 0.3, 0.5])


def test_who_is_surely_below_the_best_row_is_not_level() -> None:
    chance = np.random.default_rng(0).normal(0, 0.1, 50)
    lrp = 0.5 + chance
    models = {
        "paper/sst2/0": found_of(lrp=lrp, gi=lrp - 0.2, worse=lrp - 0.05, close=lrp + chance[::-1], better=lrp + 0.01)
    }
    cells = compare_candidates(models)
    level = {name: [cell.level for cell in own] for name, own in cells.items()}
    assert level == {
        "lrp": [True] * 2,
        "gi": [False] * 2,
        "worse": [False] * 2,
        "close": [True] * 2,
        "better": [True] * 2,
    }
    assert all(cell.row == "lrp" for own in cells.values() for cell in own)
    assert judge(cells)[0].method == "better"


def test_trainings_are_averaged_sample_by_sample() -> None:
    """Above the row in one training and below it by as much in the other: level, with a difference of 0."""
    one, other = (found_of(lrp=[0.5, 0.6, 0.7], mine=[0.5 + d, 0.6 + d, 0.7 + d]) for d in (0.1, -0.1))
    cells = compare_candidates({"minilm/sst2/0": one, "minilm/sst2/1": other})["mine"]
    assert [cell.value for cell in cells] == pytest.approx([0, 0], abs=1e-12)


def test_trainings_are_compared_by_the_methods_that_all_of_them_have() -> None:
    one = found_of(lrp=[0.5, 0.6], gi=[0.1, 0.2], mine=[0.6, 0.7])
    other = found_of(mine=[0.7, 0.8], lrp=[0.5, 0.6])
    cells = compare_candidates({"minilm/sst2/0": one, "minilm/sst2/1": other})
    assert set(cells) == {"lrp", "mine"}
    assert [abs(cell.value) for cell in cells["mine"]] == pytest.approx([0.15, 0.15])


def test_the_16_columns_come_first() -> None:
    """Level in the one reported column counts more than in two others; of the measures the lesser counts."""

    def cells(reported: float, others: float) -> list[Cell]:
        columns = {"paper/sst2": reported, "tuned/sst2": others, "bundled": others}
        return [Cell(name, m.score, "lrp", d, d, d, 0.1) for name, d in columns.items() for m in verdicts.MEASURES]

    first, second = judge({"abroad": cells(-0.1, 0.1), "home": cells(0.1, -0.1)})
    assert (first.method, first.key[:2]) == ("home", (1, 2))
    assert (second.method, second.key[:2]) == ("abroad", (0, 4))


def test_what_trainings_leave_open_is_not_surely_below() -> None:
    """Below the row on every sample in two trainings, far above it in none: sure by samples, open over trainings."""
    lrp = np.linspace(0.4, 0.6, 20)
    models = {f"paper/sst2/{i}": found_of(lrp=lrp, mine=lrp - d) for i, d in enumerate((0.001, 0.001, 0.2))}
    for cell in compare_candidates(models)["mine"]:
        assert not cell.level
        assert cell.open
    alone = compare_candidates({"paper/sst2/0": models["paper/sst2/2"]})["mine"]
    assert not any(cell.open for cell in alone)
