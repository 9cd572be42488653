"""A closed ledger is a promise that the explanation is right. Models that try to make it a false one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from adversarial_models import CASES, Case, relevance
from adversarial_models.cases import Model
from adversarial_models.cut_places import Joined
from torch import Tensor, nn

import headwater as hw
from headwater import errors
from headwater.errors import HeadwaterError

REFUSED, OPEN, RIGHT, WRONG = "refused", "open", "closed and right", "closed and wrong"


def explained(model: nn.Module, case: Case) -> hw.Explanation:
    found: list[hw.Explanation] = hw.explain(model, case.data(), score=lambda out: out[:, 1], dtype=case.dtype)
    return found[0]


def arguments(case: Case) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = case.data()
    if isinstance(given, dict):
        return (), given
    return (given if isinstance(given, tuple) else (given,)), {}


def plain_score(case: Case) -> float:
    """The first prediction of a model of its own, for some change when they are asked."""
    args, kwargs = arguments(case)
    with torch.no_grad():
        return float(case.model()(*args, **kwargs)[0, 1])


def right_answers(model: nn.Module, case: Case) -> list[Tensor]:
    """Relevance by the linear map that stands beside the model; none where no explanation can be right."""
    args, kwargs = arguments(case)
    if kwargs:
        tokens = getattr(model, "tokens", None)
        return [] if tokens is None else [tokens(kwargs["input_ids"])]
    map_of = model.reference if isinstance(model, Model) else None
    return [] if map_of is None else [relevance(map_of, args[0])]


def lines(ledger: hw.Ledger) -> float:
    """All that the ledger accounts for. Two groups of lines may not be there yet."""
    more = sum(float(getattr(ledger, name, 0.0)) for name in ("cut_off", "held"))
    return ledger.inputs + ledger.biases.total + ledger.constants.total + ledger.readout + more


def judge(case: Case) -> tuple[str, list[str]]:
    """What became of a case, and what is wrong with it."""
    model = quietly(case.model)
    try:
        score, answers = quietly(lambda: (plain_score(case), right_answers(model, case)))
        found = quietly(lambda: explained(model, case))
    except HeadwaterError as error:
        return REFUSED, [f"it is honest, and was refused: {error}"] if case.closes else []
    if not found.ledger.closed:
        why = getattr(found.ledger, "why", "")
        missing = f"it is honest, and {found.ledger.unaccounted:.3g} of {score:.3g} is open: {why}"
        return OPEN, [missing] if case.closes else []
    said = wrong(case, found, score, answers)
    return WRONG if said else RIGHT, said


def wrong(case: Case, found: hw.Explanation, score: float, answers: list[Tensor]) -> list[str]:
    """What a closed ledger conceals."""
    said, scale = [], max(abs(score), abs(found.ledger.inputs))
    if not abs(found.score - score) <= case.tolerance * scale:
        said.append(f"another prediction was explained: {found.score:.6g} instead of {score:.6g}")
    gap = found.ledger.score - lines(found.ledger)
    if not abs(gap) <= case.tolerance * scale:
        said.append(f"{gap:.3g} of {score:.3g} is in no line")
    if case.conserves_only:
        last = found.relevance[-1].abs().max() if case.family == "honest" else 0.0
        return said + ([f"a token without part in it got {last:.3g}"] if last > 0 else [])
    if 0 < found.ledger.held.absolute <= 0.1 * found.ledger.size:
        return said  # little is held, and shown
    if not answers:
        return [*said, f"no explanation of this model can be right: inputs {found.ledger.inputs:.3g} of {score:.3g}"]
    errors = [float((found.relevance.double() - one).abs().max() / one.abs().max()) for one in answers]
    if not min(errors) <= case.tolerance:  # so that NaN is noticed, too
        share = found.ledger.inputs, float(answers[0].sum())
        said.append(f"relevance is off by {min(errors):.2g} of the largest: inputs {share[0]:.3g}, not {share[1]:.3g}")
    return said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_closed_means_right(case: Case) -> None:
    _, said = judge(case)
    assert not said


def quietly(ask: Callable[[], Any]) -> Any:
    """torch warns of what some of these models do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ask()


def with_map() -> list[tuple[Case, nn.Module]]:
    """Cases in float64 that have a linear map, with their models."""
    exact = [case for case in CASES if case.tolerance < 1e-6 and not isinstance(case.data(), dict)]
    made = [(case, quietly(case.model)) for case in exact]
    return [(case, model) for case, model in made if getattr(model, "reference", None) is not None]


def test_linear_maps_have_the_models_scores() -> None:
    """The references stand without the library: they give the number that the model gives."""
    gaps = {}
    for case, model in with_map():
        found = float(model.reference(arguments(case)[0][0])[0, 1].detach())
        gaps[case.label] = abs(found - quietly(lambda case=case: plain_score(case)))
    assert len(gaps) > 200
    assert {label: gap for label, gap in gaps.items() if not gap < 1e-12} == {}


def test_linear_maps_are_the_models_own_slopes() -> None:
    """Some models are linear around their input: there differences of plain predictions must give the reference."""
    gaps = {}
    for case, model in with_map():
        if isinstance(model, Joined):
            right = relevance(model.reference, case.data())
            gaps[case.label] = float((relevance_by_differences(model, case.data()) - right).abs().max())
    assert len(gaps) > 30
    assert {label: gap for label, gap in gaps.items() if not gap < 1e-8} == {}


def relevance_by_differences(model: nn.Module, x: Tensor, step: float = 1e-6) -> Tensor:
    steps = step * torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    with torch.no_grad():
        slopes = [(model(x + one) - model(x - one))[0, 1] / (2 * step) for one in steps]
    return x[0] * torch.stack(slopes).reshape(x.shape[1:])


def test_a_score_that_cuts_its_own_output() -> None:
    """The score is the caller's; what it cuts off is cut off all the same."""
    case = named("legitimate: a block")
    try:
        (found,) = hw.explain(case.model(), case.data(), score=lambda out: 0.01 * out[:, 1] + out[:, 1].detach())
    except HeadwaterError:
        return
    assert not found.ledger.closed


def named(label: str) -> Case:
    return next(case for case in CASES if case.label == label)


class Moody(nn.Module):
    """A number is read at one and the same line, and enters for some inputs alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        number = h.detach().sum().item() if x[0, 0, 0] > 0 else 0 * h.detach().sum().item()
        return self.head(h + number).mean(1)


def test_a_second_input_is_looked_at_as_the_first_was() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Moody().double().eval()
    x = torch.full((1, 4, 6), 0.1, dtype=torch.float64)
    for _ in range(2):
        (harmless,) = hw.explain(model, -x, score=lambda out: out[:, 1])
        assert harmless.ledger.constants.total == 0
    (found,) = hw.explain(model, x, score=lambda out: out[:, 1])
    assert not found.ledger.closed


WAYS_TO_ASK: dict[str, dict[str, Any]] = {
    "on disk": {"keep": "disk"},
    "by blocks": {"recompute": "blocks"},
    "in single precision": {"dtype": "float32"},
    "in half precision": {"dtype": "bfloat16"},
}


class Stack(nn.Module):
    """Blocks in a list, each of which cuts its own residual stream off."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x).mean(1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x.detach() + self.down(nn.functional.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize("options", WAYS_TO_ASK.values(), ids=WAYS_TO_ASK)
def test_a_cut_is_seen_however_it_is_computed(options: dict[str, Any]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Stack().double().eval()
    x = named("cut: detach").data()
    (found,) = hw.explain(model, x.to(torch.float64), score=lambda out: out[:, 1], **options)
    assert not found.ledger.closed


def test_a_cut_is_seen_in_a_comparison_and_by_an_audit() -> None:
    case, score = named("cut enters: add"), lambda out: out[:, 1]
    compared = hw.compare(case.model(), case.data(), methods=["gi", "lrp"], score=score)
    audited = hw.audit(case.model(), case.data(), method="lrp", score=score)
    found = [*compared.explanations, audited.explanation]
    assert [explanation.ledger.closed for explanation in found] == [False] * 3


METHODS = ("gi", "lrp(ah+ln+act+gate=half)", "attnlrp", "lrp-secant", "lrp-query", "lrp-gamma")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("label", ["cut enters: add", "cut enters: cat", "cut enters: bias of F.linear", "cut: tolist"])
def test_no_method_closes_over_a_cut(method: str, label: str) -> None:
    case = named(label)
    try:
        (found,) = hw.explain(case.model(), case.data(), score=lambda out: out[:, 1], method=method)
    except HeadwaterError:
        return
    assert not found.ledger.closed


def test_a_cut_is_on_the_books_of_its_own_sample() -> None:
    case = named("cut enters: one sample alone")
    model = case.model()
    cut, whole = hw.explain(model, case.data(), score=lambda out: out[:, 1])
    right = relevance(model.reference, case.data()[1:])
    assert not cut.ledger.closed
    assert whole.ledger.closed
    assert float((whole.relevance - right).abs().max()) < 1e-12


@pytest.mark.parametrize("label", ["cut enters: add", "cut enters: residual", "cut: detach", "cut: from_numpy"])
def test_what_was_cut_has_a_line_and_a_reason(label: str) -> None:
    """The lines add up to the score with it, and it is what the biases and the inputs leave."""
    case = named(label)
    found = explained(case.model(), case)
    assert abs(found.ledger.cut_off.total) > 1e-3
    assert found.ledger.score == pytest.approx(lines(found.ledger), abs=1e-12)
    assert abs(found.ledger.unaccounted) < 1e-12
    assert found.ledger.why


@pytest.mark.parametrize("label", ["held: softmax memory", "held: inverse root mean", "held: student"])
def test_what_rules_hold_has_a_line_and_a_reason(label: str) -> None:
    case = named(label)
    found = explained(case.model(), case)
    assert abs(found.ledger.held.total) > 0.1 * abs(found.ledger.score)
    assert found.ledger.score == pytest.approx(lines(found.ledger), abs=1e-12)
    assert found.ledger.why


@pytest.mark.parametrize("case", [c for c in CASES if "noise by" in c.label], ids=lambda case: case.name)
def test_noise_is_refused_by_name(case: Case) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a permutation of four may happen to be the same twice
        with pytest.raises(errors.RandomPrediction):
            explained(case.model(), case)


@pytest.mark.parametrize("name", ["gradients are on", "input has a gradient", "a torch function mode is on"])
def test_another_prediction_is_refused_by_name(name: str) -> None:
    case = named(f"another score: {name}")
    with pytest.raises(errors.AnotherPrediction):
        explained(case.model(), case)


def test_there_are_many_of_them() -> None:
    names = [case.label for case in CASES]
    assert len(set(names)) == len(names)
    assert len(names) >= 113
