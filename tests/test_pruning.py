"""Heads and neurons cut out of a model: as if they were zeros, lowest first, and saved as transformers reads it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import NotApplicable, UnknownName, UsageError
from headwater.evaluation.pruning import Pruner, choose_lowest, find_logits, measure_pruning
from headwater.evaluation.unit_refit import find_moments, refit_units
from headwater.evaluation.unit_removal import check_cut, cut_units, find_units
from headwater.evaluation.unit_scores import Examples
from headwater.evaluation.unshared import choose_in_steps, score_unshared

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


def test_what_cannot_be_asked_of_a_pruner():
    pruner = Pruner.open(tiny.tiny("bert"), tiny.tokenizer(), "heads", EXAMPLES, refit=False)
    with pytest.raises(UsageError, match="share"):
        pruner.choose("magnitude", [0.2, 1.0])
    with pytest.raises(UsageError, match="fitted again"):
        pruner.choose("unshared", [0.2])
    with pytest.raises(UnknownName, match="unshared"):
        pruner.choose("unshare", [0.2])


def test_scores_are_what_they_say():
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    pruner = Pruner.open(model, tokenizer, "heads", EXAMPLES)
    options = {"tokenizer": tokenizer, "inside": ["heads"]}
    by_hand = [
        hw.explain(model, text, target=label, method="lrp", output="logit", **options).inside.heads.abs()
        for text, label in zip(TEXTS, EXAMPLES.labels, strict=True)
    ]
    expected = torch.stack(by_hand).mean(0).numpy()
    assert np.stack(pruner.score("relevance")) == pytest.approx(expected, rel=1e-9)
    weight = model.bert.encoder.layer[0].attention.output.dense.weight.detach()
    size = weight.shape[1] // len(expected[0])
    assert pruner.score("magnitude")[0][1] == pytest.approx(float(weight[:, size : 2 * size].norm()))
    assert np.concatenate(pruner.score("random", 1)) != pytest.approx(np.concatenate(pruner.score("random", 2)))
    with pytest.raises(UnknownName, match="relevance"):
        pruner.score("relevanc")


def test_taylor_is_value_times_gradient_of_the_loss():
    """Of one neuron by finite difference: a factor on its value, one at 1."""
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    pruner = Pruner.open(model, tokenizer, "neurons", Examples([TEXT], [1]))
    found = pruner.score("taylor")[0]
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
    assert find_logits(model, tokenizer, Examples(TEXTS, said)).argmax(-1).tolist() == said
    report = measure_pruning(Pruner.open(model, tokenizer, "heads", EXAMPLES), Examples(TEXTS, said), [0, 0.25, 0.5])
    assert report.accuracy == 1.0
    assert [(one.score, one.removed) for one in report.pruned[:3]] == [
        ("unshared", 0),
        ("unshared", 2),
        ("unshared", 4),
    ]
    assert {one.score for one in report.pruned} == {"unshared", "relevance", "taylor", "magnitude", "random"}
    assert [(one.agreement, one.divergence) for one in report.pruned if one.share == 0] == [(1.0, 0.0)] * 5
    assert all(one.divergence > 0 for one in report.pruned if one.share > 0)


@pytest.mark.parametrize("kind", ["heads", "neurons"])
def test_what_is_left_says_what_can_be_said_of_what_goes(kind):
    """Where a unit says what another one does, nothing is lost; by zeros in its place it is."""
    model, tokenizer = deepcopy(tiny.tiny("bert")), tiny.tokenizer()
    make_twins(model)
    groups = find_units(model, tokenizer, TEXT, kind)
    moments = find_moments(model, tokenizer, TEXTS, groups)
    before = find_logits(model, tokenizer, EXAMPLES)
    refitted = find_logits(refit_units(model, groups, {0: [1]}, moments), tokenizer, EXAMPLES)
    zeros = find_logits(cut_units(model, groups, {0: [1]}), tokenizer, EXAMPLES)
    assert float((refitted - before).abs().max()) < 0.05 * float((zeros - before).abs().max())


def make_twins(model):
    """Head 1 and neuron 1 of the first layer compute what head 0 and neuron 0 do."""
    layer = model.bert.encoder.layer[0]
    attention = layer.attention.self
    size = attention.attention_head_size
    with torch.no_grad():
        for part in (attention.query, attention.key, attention.value):
            part.weight[size : 2 * size] = part.weight[:size]
            part.bias[size : 2 * size] = part.bias[:size]
        layer.intermediate.dense.weight[1] = layer.intermediate.dense.weight[0]
        layer.intermediate.dense.bias[1] = layer.intermediate.dense.bias[0]


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_a_refit_is_least_squares_over_positions(name):
    """By numpy, where the ridge is small: what the reader says of kept inputs, fitted to what it said of all."""
    model, tokenizer = tiny.tiny(name), tiny.tokenizer()
    groups = find_units(model, tokenizer, TEXT, "heads")
    moments = find_moments(model, tokenizer, TEXTS, groups)
    made = refit_units(model, groups, {0: [0]}, moments)
    with capture_first(model, groups) as rows:
        for text in TEXTS:
            model(**tokenizer(text, return_tensors="pt"))
    read = torch.cat(rows).double()
    reader, after = (one.get_submodule(groups[0].reader) for one in (model, made))
    with torch.no_grad():
        wanted, found = reader(read), after(read)
        said = cut_units(model, groups, {0: [0]}).get_submodule(groups[0].reader)(read)
    size = read.shape[1] // groups[0].units
    kept = read[:, size:].numpy()
    if getattr(reader, "bias", None) is not None:
        kept = np.concatenate([kept, np.ones((len(kept), 1))], axis=1)
    best = kept @ np.linalg.lstsq(kept, (wanted - said).numpy(), rcond=None)[0] + said.numpy()
    least, now, zeros = (float(((one - wanted.numpy()) ** 2).sum()) for one in (best, found.numpy(), said.numpy()))
    assert least <= now < 0.7 * zeros


@contextmanager
def capture_first(model, groups):
    rows = []
    reader = model.get_submodule(groups[0].reader)
    handle = reader.register_forward_pre_hook(lambda _, args: rows.append(args[0].detach().flatten(0, -2)))
    yield rows
    handle.remove()


@pytest.mark.parametrize("kind", ["heads", "neurons"])
def test_unshared_is_what_is_left_of_a_unit_after_prediction_times_the_gradient(kind):
    """By regression of one unit on all others, position by position, and a factor on what is left, by differences."""
    model, tokenizer = tiny.tiny("bert"), tiny.tokenizer()
    groups = find_units(model, tokenizer, TEXT, kind)
    moments = find_moments(model, tokenizer, TEXTS, groups)
    one = Examples([TEXT], [1])
    scores = score_unshared(model, tokenizer, one, groups, moments, {0: [1]})
    assert scores[0][1] == 0
    made = refit_units(model, groups, {0: [1]}, moments)
    reader = made.get_submodule(groups[0].reader)
    inputs = len(moments[0].mean)
    size = inputs // groups[0].units
    unit = torch.arange(inputs) // size
    own, others = (unit == 2).nonzero().flatten(), ((unit != 2) & (unit != 1)).nonzero().flatten()
    step, margins = 1e-5, []
    for sign in (step, -step):

        def move(_, args, sign=sign):
            centred = args[0] - moments[0].mean
            left = centred[..., own] - centred[..., others] @ moments[0].predict(others, own)
            moved = args[0].clone()
            moved[..., own] += sign * left
            return (moved,)

        handle = reader.register_forward_pre_hook(move)
        logits = made(**tokenizer(TEXT, return_tensors="pt")).logits[0].tolist()
        handle.remove()
        true = logits.pop(1)
        margins.append(true - sum(logits) / len(logits))
    assert scores[0][2] == pytest.approx(((margins[0] - margins[1]) / (2 * step)) ** 2, rel=1e-3)


def test_a_twin_has_nothing_of_its_own_until_the_other_goes():
    """Taken once, both of two twins score low; taken again, the one that is left does not."""
    model, tokenizer = deepcopy(tiny.tiny("bert")), tiny.tokenizer()
    make_twins(model)
    groups = find_units(model, tokenizer, TEXT, "neurons")
    moments = find_moments(model, tokenizer, TEXTS, groups)
    together = score_unshared(model, tokenizer, EXAMPLES, groups, moments, {})[0]
    alone = score_unshared(model, tokenizer, EXAMPLES, groups, moments, {0: [1]})[0]
    assert alone[0] > 2 * together[0]


def test_scores_are_taken_again_after_every_tenth():
    asked = []

    def scores_of(gone):
        asked.append(sum(map(len, gone.values())))
        return [np.arange(10.0), np.arange(10.0)[::-1] + 0.5]

    groups = find_units(tiny.tiny("bert"), tiny.tokenizer(), TEXT, "neurons")
    two = [replace(group, units=10) for group in groups]
    found = choose_in_steps(scores_of, two, [0.3, 0.0, 0.15])
    assert asked == [0, 2, 3, 5]
    assert found == [{0: [0, 1, 2], 1: [7, 8, 9]}, {}, {0: [0, 1], 1: [9]}]


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


@pytest.mark.parametrize(
    "wrong",
    [["--share", "2"], ["--share", "x"], ["--parts", "hats"], ["--share", ","], ["--by", ","], ["--out", "FILE"]],
)
def test_the_command_refuses_in_one_line(tmp_path, wrong):
    """A file as --out was said to be written, although transformers saves nothing there."""
    data = tmp_path / "in.csv"
    data.write_text("text,label\na gripping film,1\na boring mess,0\n")
    words = [str(data) if word == "FILE" else word for word in wrong]
    found = CliRunner().invoke(app, ["prune", "--data", str(data), *words])
    assert found.exit_code == 2
