"""Heads and neurons cut out of a model: as if they were zeros, lowest first, and saved as transformers reads it."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest
import tiny
import torch
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import NotApplicable, UnknownName, UsageError
from headwater.evaluation.pruning import Pruner, choose_lowest, find_accuracy, measure_pruning
from headwater.evaluation.unit_removal import check_cut, cut_units, find_units
from headwater.evaluation.unit_scores import Examples

TEXT = "the film is good"
TEXTS = [TEXT, "a bad film", "she was a good doctor", "the film is not good"]
EXAMPLES = Examples(TEXTS, [1, 0, 1, 0])


@pytest.mark.parametrize("kind", ["heads", "neurons"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_a_unit_that_is_cut_is_as_if_it_were_zero(name, kind):
    model, tokenizer = tiny.tiny(name), tiny.tokenizer()
    groups = find_units(model, tokenizer, TEXT, kind)
    assert len(groups) == 2
    check_cut(model, tokenizer, TEXT, groups)
    before = deepcopy(model.state_dict())
    made = cut_units(model, groups, {1: [1]})
    options = {"tokenizer": tokenizer, "output": "logit"}
    expected = hw.patch(model, TEXT, f"layer 1 {kind[:-1]} 1", with_="zeros", **options)
    found = hw.explain(made, TEXT, target=expected.target, method="gi", **options).score
    assert found == pytest.approx(expected.patched, abs=1e-9)
    assert abs(expected.patched - expected.score) > 1e-9
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_weights_that_are_read_in_another_order_are_refused():
    """A reader whose inputs are not the heads one after another: cutting its weights is not cutting the head."""
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    groups = find_units(model, tokenizer, TEXT, "heads")
    turned = deepcopy(model)
    turned.bert.encoder.layer[0].attention.output.dense = Turned(turned.bert.encoder.layer[0].attention.output.dense)
    with pytest.raises(NotApplicable, match="not read one after another"):
        check_cut(turned, tokenizer, TEXT, groups)


class Turned(nn.Linear):
    """Reads its inputs from the last to the first."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__(inner.in_features, inner.out_features, dtype=inner.weight.dtype)
        self.load_state_dict(inner.state_dict())
        self.eval()

    def forward(self, x):
        return nn.functional.linear(x, self.weight.flip(1), self.bias)


def test_the_lowest_go_first_over_all_groups():
    scores = [np.array([3.0, 0.1, 2.0]), np.array([0.2, 5.0, 4.0])]
    assert choose_lowest(scores, 0.34) == {0: [1], 1: [0]}
    assert choose_lowest(scores, 0.5) == {0: [1, 2], 1: [0]}
    assert choose_lowest(scores, 0.0) == {}
    with pytest.raises(UsageError, match="share"):
        choose_lowest(scores, 1.0)


def test_scores_are_what_they_say():
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    pruner = Pruner.open(model, tokenizer, "heads", TEXT)
    options = {"tokenizer": tokenizer, "inside": ["heads"]}
    by_hand = [
        hw.explain(model, text, target=label, method="lrp", output="logit", **options).inside.heads.abs()
        for text, label in zip(TEXTS, EXAMPLES.labels, strict=True)
    ]
    expected = torch.stack(by_hand).mean(0).numpy()
    assert np.stack(pruner.score("relevance", EXAMPLES)) == pytest.approx(expected, rel=1e-9)
    weight = model.bert.encoder.layer[0].attention.output.dense.weight.detach()
    size = weight.shape[1] // len(expected[0])
    assert pruner.score("magnitude", EXAMPLES)[0][1] == pytest.approx(float(weight[:, size : 2 * size].norm()))
    assert np.concatenate(pruner.score("random", EXAMPLES, 1)) != pytest.approx(
        np.concatenate(pruner.score("random", EXAMPLES, 2))
    )
    with pytest.raises(UnknownName, match="relevance"):
        pruner.score("relevanc", EXAMPLES)


def test_taylor_is_value_times_gradient_of_the_loss():
    """Of one neuron by finite difference: a factor on its value, one at 1."""
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    pruner = Pruner.open(model, tokenizer, "neurons", TEXT)
    one = Examples([TEXT], [1])
    found = pruner.score("taylor", one)[0]
    unit, step = int(np.argmax(found)), 1e-5
    losses = []
    for factor in (1 + step, 1 - step):
        made = deepcopy(model)
        with torch.no_grad():
            made.get_submodule(pruner.groups[0].reader).weight[:, unit] *= factor
            given = tokenizer(TEXT, return_tensors="pt")
            losses.append(float(nn.functional.cross_entropy(made(**given).logits, torch.tensor([1]))))
    assert found[unit] == pytest.approx(abs(losses[0] - losses[1]) / (2 * step), rel=1e-4)


def test_accuracy_and_the_report():
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    said = [int(hw.explain(model, text, tokenizer=tokenizer, method="gi").prediction[-1]) for text in TEXTS]
    assert find_accuracy(model, tokenizer, Examples(TEXTS, said)) == 1.0
    assert find_accuracy(model, tokenizer, Examples(TEXTS, [1 - said[0], *said[1:]])) == 0.75
    report = measure_pruning(Pruner.open(model, tokenizer, "heads", TEXT), EXAMPLES, Examples(TEXTS, said), [0.25, 0.5])
    assert report.accuracy == 1.0
    assert [(one.score, one.removed) for one in report.pruned[:2]] == [("relevance", 2), ("relevance", 4)]
    assert {one.score for one in report.pruned} == {"relevance", "taylor", "magnitude", "random"}


def test_the_command_saves_a_model_that_transformers_reads(tmp_path):
    pytest.importorskip("pyarrow")
    from jobs_here import write
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    texts = ["a gripping film", "a boring mess", "beautifully acted", "dull and bad", "a good film", "not good"]
    data = write(tmp_path / "in.parquet", text=texts, label=[1, 0, 1, 0, 1, 0])
    words = ["prune", "--data", str(data), "--share", ".5", "--by", "relevance,random", "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout.splitlines()[0])
    assert [one["removed"] for one in report["pruned"]] == [12, 12]
    assert "are zeros" in found.stderr
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    groups = find_units(model, tokenizer, texts[0], "heads")
    gone = 0
    for group in groups:
        weights = model.get_submodule(group.reader).weight.unflatten(1, (group.units, -1))
        gone += int((weights.abs().amax((0, 2)) == 0).sum())
    assert gone == 12


@pytest.mark.parametrize("wrong", [["--share", "2"], ["--share", "x"], ["--parts", "hats"]])
def test_the_command_refuses_in_one_line(tmp_path, wrong):
    found = CliRunner().invoke(app, ["prune", "--data", str(tmp_path / "in.parquet"), *wrong])
    assert found.exit_code == 2
