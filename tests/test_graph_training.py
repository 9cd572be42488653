"""Training on graphs: it learns, it is repeatable and resumable, and no test row is looked at to choose an epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from real_data import need_real_data
from sklearn.metrics import roc_auc_score
from test_graphs import digit

from headwater.errors import DataError, UnknownName
from headwater.models.graphormer import GraphormerConfig, GraphormerForGraphClassification
from headwater.models.graphs import Graph, collate
from headwater_experiments.models.segmentation import Cut, segment
from headwater_experiments.models.superpixels import Superpixels
from headwater_experiments.paper import graph_arrays, graphs
from headwater_experiments.paper.graph_arrays import Sheet, superpixel_sheet
from headwater_experiments.paper.graph_training import (
    GraphPhase,
    GraphTraining,
    Split,
    fit_graphs,
    predict_rows,
    roc_auc,
    score_rows,
    share_correct,
)

CONFIG = GraphormerConfig(node_ranges=(2,), hidden_size=16, intermediate_size=16, num_attention_heads=2)
SPLIT = Split(torch.arange(40), torch.arange(40, 60))


def rings_and_lines() -> Sheet:
    """Whether the ends of a line are joined: something that only the structure tells."""
    made = []
    for i in range(60):
        size, label = 4 + i % 5, i // 5 % 2
        edges = np.stack([np.arange(size - 1 + label), (np.arange(size - 1 + label) + 1) % size])
        made.append(Graph(np.zeros((size, 1), int), edges, label=label))
    return Sheet(collate(made, CONFIG), np.array([len(graph) for graph in made]))


def new_model() -> GraphormerForGraphClassification:
    torch.manual_seed(0)
    return GraphormerForGraphClassification(CONFIG)


def test_it_learns_what_only_the_structure_tells():
    model, sheet = new_model(), rings_and_lines()
    before = score_rows(model, sheet, SPLIT.valid, share_correct)
    history = fit_graphs(model, sheet, SPLIT, GraphPhase(epochs=30, batch=8, rate=3e-3, patience=10), share_correct)
    assert before < 0.8
    assert score_rows(model, sheet, SPLIT.valid, share_correct) == max(history) == 1
    assert len(history) < 30  # no better than perfect, so it stopped early
    assert not model.training


def test_a_training_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path):
    sheet, phase = rings_and_lines(), GraphPhase(epochs=4, batch=8, rate=3e-3, average=0.9, falling=True)
    whole = new_model()
    history = fit_graphs(whole, sheet, SPLIT, phase, roc_auc)
    cut_off = GraphTraining(new_model(), sheet, SPLIT, phase, roc_auc, 0, None)
    cut_off.epoch()
    cut_off.epoch()
    cut_off.save(tmp_path / "state.pt")
    resumed = new_model()
    assert fit_graphs(resumed, sheet, SPLIT, phase, roc_auc, state=tmp_path / "state.pt") == history
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert list(tmp_path.iterdir()) == []


def test_test_rows_have_no_say():
    def shuffled_tests(sheet: Sheet) -> Sheet:
        labels = sheet.labels.clone()
        labels[50:] = 1 - labels[50:]
        return Sheet({**sheet.tensors, "labels": labels}, sheet.sizes)

    split, phase = Split(torch.arange(40), torch.arange(40, 50)), GraphPhase(epochs=3, batch=8, rate=3e-3)
    models = [new_model(), new_model()]
    for model, sheet in zip(models, (rings_and_lines(), shuffled_tests(rings_and_lines())), strict=True):
        fit_graphs(model, sheet, split, phase, roc_auc)
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))


def test_predictions_come_in_the_order_of_the_rows():
    model, sheet, rows = new_model().eval(), rings_and_lines(), torch.tensor([7, 3, 44, 0])
    alone = torch.cat([predict_rows(model, sheet, rows[i : i + 1]) for i in range(4)])
    assert torch.allclose(predict_rows(model, sheet, rows, size=2), alone, atol=1e-6)


def test_roc_auc_equals_scikit_learn_and_known_answers():
    chance = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 5, (50, 2), generator=chance).double()  # few values: many ties
    labels = torch.randint(0, 2, (50,), generator=chance)
    assert roc_auc(logits, labels) == pytest.approx(roc_auc_score(labels, logits[:, 1] - logits[:, 0]), abs=1e-12)
    perfect = torch.stack([-labels, labels], 1).double()
    assert (roc_auc(perfect, labels), roc_auc(-perfect, labels), roc_auc(perfect * 0, labels)) == (1, 0, 0.5)


def test_the_rate_rises_and_falls():
    falling = GraphPhase(epochs=10, warmup=2, falling=True)
    assert falling.rate_at(0) < 0.01
    assert [falling.rate_at(e) for e in (2, 6, 10)] == pytest.approx([1, 0.5, 0])
    assert GraphPhase(epochs=10).rate_at(9) == 1


@pytest.mark.parametrize("split", graphs.SPLITS)
def test_parts_of_bace_do_not_overlap(split):
    scaffold = np.array([0] * 80 + [1] * 10 + [2] * 10, np.int8)
    parts = graphs.bace_split(scaffold, split, seed=3)
    assert [len(part) for part in parts] == [80, 10, 10]
    assert sorted(torch.cat(parts).tolist()) == list(range(100))
    with pytest.raises(UnknownName, match="Did you mean 'random'"):
        graphs.bace_split(scaffold, "randon", 0)


def test_bending_moves_centres_and_nothing_else():
    found = superpixels_of_digits()
    batch = superpixel_sheet(found, "cpu").batch(torch.arange(4))
    bent = graphs.distort_centres(batch, torch.Generator().manual_seed(0))
    assert torch.equal(bent["node_numbers"][..., 0], batch["node_numbers"][..., 0])
    moved = (bent["node_numbers"] - batch["node_numbers"])[..., 1:].abs()
    assert 0.01 < moved.max() < 0.35
    assert all(bent[name] is batch[name] for name in batch if name != "node_numbers")


def superpixels_of_digits() -> Superpixels:
    images = np.stack([np.roll(digit() if i % 2 else digit().T, i % 5, i % 2) for i in range(24)])
    segments = np.stack([segment(image, Cut()) for image in images])
    return Superpixels(images, segments, np.arange(24) % 2)


def test_a_sheet_of_digits_equals_their_graphs():
    found = superpixels_of_digits()
    sheet = superpixel_sheet(found, "cpu")
    expected = collate([found.graph(i) for i in range(4)], graph_arrays.MNIST)
    real = expected["attention_mask"]
    expected["distances"].diagonal(dim1=1, dim2=2)[~real] = 0  # padding is 0 from itself on the device; nobody looks
    for name, values in sheet.batch(torch.arange(4)).items():
        assert torch.equal(values.to(expected[name].dtype), expected[name]), name


def test_mnist_trains_from_its_array_file(tmp_path, capsys, monkeypatch):
    found, arrays = superpixels_of_digits(), {}
    for part in ("train", "test"):
        arrays |= {f"images_{part}": found.images, f"segments_{part}": found.segments, f"labels_{part}": found.labels}
    np.savez_compressed(tmp_path / "mnist.npz", **arrays)
    small = replace(graphs.MNIST, hidden_size=16, intermediate_size=16, heads=2)
    monkeypatch.setitem(graphs.RECIPES["tuned"], "mnist", small)
    graphs.run_graphs_command(
        ["train", "mnist", "--arrays", str(tmp_path), "--out", str(tmp_path / "out"), "--epochs", "1"]
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["dataset"] == "mnist"
    assert 0 <= answer["mean"] <= 1
    assert sorted(f.name for f in (tmp_path / "out" / "mnist-0").iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(DataError, match=r"no bace\.npz"):
        graphs.run_graphs_command(["train", "bace", "--arrays", str(tmp_path), "--out", str(tmp_path / "out")])


def test_bace_is_prepared_and_trained(tmp_path, monkeypatch):
    need_real_data("BACE")
    whole = graph_arrays.read_bace()
    few = {name: column[::30] for name, column in whole.items()}
    monkeypatch.setattr(graph_arrays, "read_bace", lambda: few)
    graphs.prepare(tmp_path, ["bace"])
    recipe = replace(graphs.BACE, phase=GraphPhase(epochs=1, batch=16), hidden_size=16, intermediate_size=16, heads=2)
    report = graphs.train_bace(tmp_path, tmp_path, seeds=(0, 1), recipe=recipe)
    assert [run.seed for run in report.runs] == [0, 1]
    assert all(0 <= run.test <= 1 for run in report.runs)
    assert report.mean == pytest.approx(np.mean([run.test for run in report.runs]))


def test_the_numbers_of_patches_are_reported(tmp_path):
    """Two digits of 3 and 5 patches, one of 4."""
    cut = {"train": [3, 5], "test": [4]}
    arrays = {}
    for part, counts in cut.items():
        arrays[f"segments_{part}"] = np.stack([np.arange(16, dtype=np.uint8).reshape(4, 4) % n for n in counts])
    np.savez(tmp_path / "mnist.npz", **arrays)
    found = graph_arrays.count_patches(tmp_path / "mnist.npz")
    assert [found["train"][name] for name in ("mean", "spread", "0 %", "50 %", "100 %")] == [4, 1, 3, 4, 5]
    assert (found["test"]["mean"], found["test"]["spread"]) == (4, 0)


@pytest.mark.slow
def test_training_needs_none_of_the_libraries_that_prepare():
    """Array files are trained on where these are not installed."""
    blocked = ("rdkit", "skimage", "torch_geometric", "pyarrow")
    code = f"import sys, headwater_experiments.paper.graphs\nprint([m for m in {blocked!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
