"""Methods take parameters by name; other names for them are known, and wrong ones are answered with those there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from tiny import tiny, tokenizer
from typer.testing import CliRunner

import headwater as hw
from headwater import errors
from headwater.cli import app
from headwater.methods import available, registry, resolve_method
from headwater.methods.aliases import ALIASES, AMBIGUOUS

TEXT = "the movie is not good"


def explain(method: str) -> hw.Explanation:
    return hw.explain(tiny("bert"), TEXT, tokenizer=tokenizer(), method=method)


NAMES = {
    "ig": "integrated-gradients",
    "IG(steps=64)": "integrated-gradients(steps=64)",
    "integrated_gradients(baseline=zero, steps=64)": "integrated-gradients(steps=64,baseline=zero)",
    "ig(64)": "integrated-gradients(steps=64)",
    "gxi": "gi",
    "ixg": "gi",
    "input-x-gradient": "gi",
    "shapley(samples=5)": "shapley-sampling(samples=5)",
    "loo(mask)": "leave-one-out(mask)",
    "leave-one-out(baseline=zero)": "leave-one-out(zero)",
    "contextcite(samples=64)": "contextcite(64)",
    "contextcite(32)": "contextcite(32)",
    "smoothgrad(gi)": "smoothgrad",
    "smoothgrad(lrp, samples=3)": "smoothgrad(lrp,samples=3)",
    "smoothgrad(lrp(ln+ah), noise=0.2)": "smoothgrad(lrp(ah+ln),noise=0.2)",
    "smoothgrad(method=lrp-gamma(gamma=.1))": "smoothgrad(lrp-gamma(0.1))",
    "lrp-gamma(gamma=1)": "lrp-gamma(1.0)",
    "lrp-difference(gamma=.02)": "lrp-difference(0.02)",
    "lrp(difference+gamma=0.02)": "lrp(gamma=0.02+difference)",
}


@pytest.mark.parametrize("said", NAMES)
def test_a_name_has_one_spelling_which_gives_the_same_method_again(said: str) -> None:
    assert resolve_method(said).name == NAMES[said]
    assert resolve_method(NAMES[said]).name == NAMES[said]


WRONG = {
    "ig(step=3)": r"no parameter 'step'\. It takes steps= .*baseline=",
    "ig(3,4)": "'4' has no name",
    "ig(steps=many)": "whole number from 1 to 100,000, not 'many'",
    "ig(steps=0)": "steps must be from 1",
    "ig(steps=3,steps=4)": "steps twice",
    "ig(baseline=nul)": "no baseline called 'nul'",
    "smoothgrad(noise=loud)": "noise is a number",
    "smoothgrad(rollout)": "takes a gradient method",
    "kernel-shap(n=3)": "It takes samples=",
    "rollout(steps=3)": "rollout takes no parameters",
    "shap": "'kernel-shap' .*'shapley-sampling' .*'gradient-shap'",
    "attention": "'a-last'.*'rollout'",
    "integrated": "Did you mean 'integrated-gradients'",
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_name_or_parameter_is_answered_with_those_there_are(said: str) -> None:
    with pytest.raises(errors.UsageError, match=WRONG[said]):
        resolve_method(said)


def test_aliases_stand_for_methods_there_are_and_hide_none() -> None:
    names = {method.name for method in available()}
    assert set(ALIASES.values()) <= names
    assert not (set(ALIASES) | set(AMBIGUOUS)) & names


def test_parameters_are_given_by_keyword_too() -> None:
    assert resolve_method("ig", steps=64).name == "integrated-gradients(steps=64)"
    assert resolve_method("smoothgrad", method="lrp", samples=2).name == "smoothgrad(lrp,samples=2)"


def test_integrated_gradients_take_as_many_steps_and_that_baseline() -> None:
    """The sum by hand, from the baseline of zeros to the embeddings."""
    model, fields = tiny("bert"), tokenizer()(TEXT, return_tensors="pt")
    found = explain("ig(steps=7,baseline=zero)")
    with torch.no_grad():
        x = model.bert.embeddings(input_ids=fields["input_ids"])
    label = int(found.target.removeprefix("LABEL_"))
    points, weights = gauss_legendre(7)
    gradient = torch.zeros_like(x)
    for point, weight in zip(points, weights, strict=True):
        here = (x * point).detach().requires_grad_(True)
        hook = model.bert.embeddings.register_forward_hook(lambda m, a, out, here=here: here)
        score = model(**fields).logits[0, label]
        hook.remove()
        gradient += weight * torch.autograd.grad(score, here)[0]
    assert torch.allclose(found.relevance, (x * gradient).sum(-1)[0], rtol=1e-6, atol=1e-10)
    assert not torch.allclose(found.relevance, explain("ig(steps=7)").relevance, rtol=1e-2)


def gauss_legendre(count: int) -> tuple[list[float], list[float]]:
    """Captum's default rule, between 0 and 1."""
    import numpy as np

    points, weights = np.polynomial.legendre.leggauss(count)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


def test_samples_and_noise_are_those_that_were_asked_for() -> None:
    passes = {name: count_passes(name) for name in ("contextcite(8)", "contextcite(80)")}
    assert passes["contextcite(80)"] > passes["contextcite(8)"]
    assert count_passes("smoothgrad(samples=2)") + 3 == count_passes("smoothgrad(samples=5)")
    assert torch.allclose(explain("smoothgrad(samples=2,noise=0)").relevance, explain("gi").relevance)
    few, many = (explain(f"shapley(samples={n})") for n in (1, 40))
    assert not torch.allclose(few.relevance, many.relevance)
    for e in (few, many):  # both sum to the difference from the baseline
        assert abs(e.ledger.unaccounted) < 1e-6  # captum sums in float32


def count_passes(method: str) -> int:
    """Forward passes of a second explanation, when the model has been looked at."""
    model, calls = tiny("bert"), []
    explain(method)
    hook = model.classifier.register_forward_hook(lambda *_: calls.append(1))
    hw.explain(model, TEXT, tokenizer=tokenizer(), method=method, plans=False)
    hook.remove()
    return len(calls)


def test_a_baseline_is_the_token_of_that_name() -> None:
    model, tokens = tiny("bert"), tokenizer()
    found = explain("leave-one-out(mask)")
    ids = tokens(TEXT, return_tensors="pt")["input_ids"]
    label = int(found.target.removeprefix("LABEL_"))
    with torch.no_grad():
        whole = model(ids).logits[0, label]
        changed = ids.clone()
        changed[0, 4] = tokens.mask_token_id
        drop = whole - model(changed).logits[0, label]
    assert found.relevance[4].item() == pytest.approx(drop.item(), rel=1e-9)
    bare = hw.explain(tiny("bert"), TEXT, tokenizer=tokenizer(), method="leave-one-out(unk)")
    assert not torch.allclose(bare.relevance, found.relevance)
    with pytest.raises(errors.NotApplicable, match="no pad token"):
        hw.explain(tiny("bert"), TEXT, tokenizer=tokenizer(pad=False), method="loo(pad)")


def test_a_method_of_ones_own_has_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_METHODS", "_MAKERS"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    page = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "make_grad_power" in one]
    exec(compile(block, "extending.md", "exec"), {})
    plain, squared = explain("grad-power"), explain("grad-power(power=2)")
    assert squared.method == "grad-power(power=2.0)"
    assert torch.allclose(squared.relevance, plain.relevance**2)
    with pytest.raises(errors.UsageError, match="It takes power="):
        explain("grad-power(size=2)")


def test_the_command_line_and_the_docs_list_every_parameter() -> None:
    listed = json.loads(CliRunner().invoke(app, ["methods", "--json"]).stdout)["methods"]
    page = (Path(__file__).parents[1] / "docs" / "methods.md").read_text()
    shown = CliRunner().invoke(app, ["methods", "--plain"]).stdout
    for method in available():
        (one,) = [known for known in listed if known["name"] == method.name]
        assert [p["name"] for p in one["parameters"]] == [p.name for p in method.parameters]
        for parameter in method.parameters:
            assert f"{parameter.name}=…" in shown
            row = re.search(rf"^\| `{re.escape(method.name)}` \|.*`{parameter.name}`.*$", page, re.MULTILINE)
            assert row, f"docs/methods.md does not list {parameter.name} of {method.name}"
    for alias in ALIASES:
        assert f"`{alias}`" in page
    run = CliRunner().invoke(app, ["explain", "a dull film", "--method", "ig(steps=2, baseline=zero)", "--json"])
    assert json.loads(run.stdout)["method"] == "integrated-gradients(steps=2,baseline=zero)"
