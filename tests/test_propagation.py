"""One pass forward and one back: several scores of one prediction, what is kept of it, and what is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError
from weighing import drawn, seeded

import headwater as hw
from headwater.engine import finite
from headwater.engine import propagate as propagation
from headwater.engine.finite import Watch, check_finite, not_finite, read_again
from headwater.engine.forward import KNOWN, Demand, Run
from headwater.engine.outcome import Outcome
from headwater.engine.propagate import propagate, propagate_each
from headwater.errors import AnotherPrediction, HiddenOperation, NoSignal, NotFinite, RuleNotMet, UsageError
from headwater.inputs.batch import Batch
from headwater.inputs.protocol import SideInput
from headwater.inputs.readouts import ScoreReading
from headwater.inputs.targets import Reader
from headwater.rules import Books, RuleSet, Scope
from headwater.rules.sources import Site, Sort

ALL = RuleSet(frozenset(("ah", "ln", "act", "gate")))
NOTHING = RuleSet(frozenset())


class Model(nn.Module):
    """A layer, an activation, a constant, a layer; `extra` comes on top."""

    def __init__(self, extra: Callable[[Any, Tensor], Tensor] = lambda m, y: y) -> None:
        super().__init__()
        self.one, self.act, self.two, self.extra = nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3), extra

    def forward(self, x: Tensor) -> Tensor:
        return self.extra(self, self.two(self.act(self.one(x)) + 1.0))


def run_of(model: nn.Module, x: Tensor, target: Any = 0, **more: Any) -> Run:
    return Run(model, Batch(len(x), [], args=(x,), tensor=x), Reader(model, None, target), **more)


def told(outcome: Outcome) -> dict[str, Any]:
    lines = {sort.name: {n: a.tolist() for n, a in outcome.books.totals(sort).items()} for sort in Sort}
    return {"score": outcome.score.tolist(), "relevance": outcome.relevance[0].tolist(), **lines}


@pytest.mark.parametrize("scrambled", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_scores_of_one_prediction_are_as_each_alone(count: int, scrambled: bool) -> None:
    """Also where shapes do not tell the samples, and further passes do."""
    extra = (lambda m, y: (y.flip(0) + 1).flip(0)) if scrambled else (lambda m, y: y)
    x = drawn(3, 4)
    model = seeded(lambda: Model(extra))
    readers = [Reader(model, None, number) for number in range(count)]
    together = list(propagate_each(run_of(model, x), Demand(ALL), readers))
    assert len(together) == count
    for number, one in enumerate(together):
        alone = propagate(run_of(seeded(lambda: Model(extra)), x, number), Demand(ALL))
        assert_close(told(one), told(alone))
        assert one.reading.targets == alone.reading.targets


def assert_close(one: Any, other: Any) -> None:
    """Equal but for rounding: the scores may have shared a backward pass."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, (list, tuple)) and not all(isinstance(value, float) for value in one):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    else:
        assert one == pytest.approx(other, rel=1e-12, abs=1e-14) if isinstance(one, (float, list)) else one == other


@pytest.mark.parametrize("samples", [3, 17])
def test_where_shapes_do_not_tell_the_samples_it_adds_up_too(samples: int) -> None:
    """Further passes go through the same graph: one for up to sixteen samples, two for more."""
    model = seeded(lambda: Model(lambda m, y: (y.flip(0) + 1).flip(0)))
    outcome = propagate(run_of(model, drawn(samples, 4)), Demand(ALL))
    lines = sum(amount for sort in Sort for amount in outcome.books.totals(sort).values())
    total = outcome.relevance[0].sum(1) + lines + outcome.readout
    assert total.tolist() == pytest.approx(outcome.score.tolist(), abs=1e-12)


def test_each_outcome_has_books_of_its_own() -> None:
    model = seeded(Model)
    readers = [Reader(model, None, number) for number in range(3)]
    first, second, third = propagate_each(run_of(model, drawn(2, 4)), Demand(ALL), readers)
    for one, other in ((first, second), (second, third), (first, third)):
        assert one.books is not other.books
        assert told(one) != told(other)


def test_an_outcome_by_hand() -> None:
    """score = inputs + biases + constants + readout, each of them written out."""
    model, x = seeded(Model), drawn(2, 4).float().double()
    outcome = propagate(run_of(model, x, lambda out: out[:, 1].square()), Demand(ALL))
    with torch.no_grad():
        hidden = model.one(x)
        factor = F.gelu(hidden) / hidden
        out = model(x)[:, 1]
        back = 2 * out[:, None] * (model.two.weight[1] * factor) @ model.one.weight
    assert outcome.score.tolist() == pytest.approx(out.square().tolist())
    assert outcome.score.dtype is torch.float64
    assert outcome.readout.tolist() == pytest.approx((-out.square()).tolist())
    assert outcome.relevance[0].flatten().tolist() == pytest.approx((back * x).flatten().tolist())
    constants = outcome.books.totals(Sort.CONSTANT)
    assert sum(constants.values()).tolist() == pytest.approx((2 * out * model.two.weight[1].sum()).tolist())
    assert (outcome.met["act"], outcome.coarsest, outcome.beside, outcome.positions) == (1, torch.float64, [], None)
    assert not outcome.score.requires_grad
    assert not outcome.relevance[0].requires_grad


@pytest.mark.parametrize("around", [torch.inference_mode, torch.no_grad])
def test_it_does_not_matter_what_the_caller_has_switched_off(around: Any) -> None:
    x = drawn(2, 4)
    expected = told(propagate(run_of(seeded(Model), x), Demand(ALL)))
    run = run_of(seeded(Model), x)
    with around():
        assert told(propagate(run, Demand(ALL))) == expected


class Asks(torch.autograd.Function):
    """Notes whether types are still chosen on the way back."""

    seen: ClassVar[list[bool]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        Asks.seen.append(torch.is_autocast_enabled("cpu"))
        return gradients[0]


def test_types_are_chosen_on_the_way_forward_alone() -> None:
    model, x = seeded(lambda: Model(lambda m, y: Asks.apply(y))).float(), drawn(2, 4).float()
    Asks.seen.clear()
    with torch.autocast("cpu", torch.bfloat16):
        outcome = propagate(run_of(model, x), Demand(NOTHING))
    assert outcome.coarsest is torch.bfloat16
    assert Asks.seen == [False]


def test_without_a_way_back_there_is_no_relevance() -> None:
    model, x = seeded(Model), drawn(2, 4)
    outcome = propagate(run_of(model, x), Demand(ALL, backward=False))
    assert outcome.relevance[0].tolist() == torch.zeros(2, 4).tolist()
    assert outcome.score.tolist() == pytest.approx(model(x)[:, 0].tolist())
    assert outcome.books.amounts == {}


@pytest.mark.parametrize("count", [1, 2])
def test_who_inspects_finds_the_graph_and_the_way_back_done(count: int) -> None:
    seen: list[Any] = []
    model, x = seeded(Model), drawn(2, 4)
    parts: list[Tensor] = []
    for part in (model.one, model):
        part.register_forward_hook(lambda module, args, out: parts.append(out))

    def inspect(scope: Scope, _: Any) -> None:
        slope = torch.autograd.grad(parts[-1].sum(), parts[-2], retain_graph=True)[0]
        seen.append((len(scope.books.amounts), float(slope.abs().sum()) > 0, len(scope._frozen) > 0))

    found = list(
        propagate_each(
            run_of(model, x, inspect=inspect), Demand(ALL), [Reader(model, None, number) for number in range(count)]
        )
    )
    assert len(found) == count
    assert [one[0] > 0 and one[1] and one[2] for one in seen] == [True] * count


def test_the_graph_is_let_go_once_it_is_not_needed() -> None:
    model, x = seeded(Model), drawn(2, 4)
    ends: list[Tensor] = []
    model.register_forward_hook(lambda module, args, out: ends.append(out))
    propagate(run_of(model, x), Demand(ALL))
    with pytest.raises(RuntimeError, match="second time"):
        ends[-1].sum().backward()
    scrambled = seeded(lambda: Model(lambda m, y: (y.flip(0) + 1).flip(0)))
    scrambled.register_forward_hook(lambda module, args, out: ends.append(out))
    propagate(run_of(scrambled, drawn(3, 4)), Demand(ALL))
    with pytest.raises(RuntimeError, match="second time"):
        ends[-1].sum().backward()


def test_what_enters_beside_the_items_has_a_gradient_and_no_relevance() -> None:
    class Sided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items, self.edges, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.head(self.items(x) * 2 + self.edges(y) * 3)

    model, x, y = seeded(Sided), drawn(2, 4), drawn(2, 4, seed=9)
    beside = SideInput("edges", model.edges, lambda *_: [])
    batch = Batch(2, [], args=(x, y), places=[model.items], beside=beside)
    run = Run(model, batch, Reader(model, None, 0))
    outcome = propagate(run, Demand(NOTHING))
    assert [one.place for one in outcome.captured] == [model.items]
    ((one, gradient),) = outcome.beside
    assert (one.place, one.beside) == (model.edges, True)
    weight = model.head.weight.detach()[0]
    assert gradient.tolist() == (3 * weight).expand(2, 4).tolist()
    expected = 2 * weight * model.items(x).detach()
    assert outcome.relevance[0].flatten().tolist() == pytest.approx(expected.flatten().tolist())
    assert propagate(replace(run, links=False), Demand(NOTHING)).beside == []


def test_a_score_that_reads_only_what_is_beside_the_input_is_no_explanation() -> None:
    class Aside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items, self.edges = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.items(x)
            return self.edges(x)

    model, x = seeded(Aside), drawn(2, 4)
    batch = Batch(2, [], args=(x,), places=[model.items], beside=SideInput("edges", model.edges, lambda *_: []))
    with pytest.raises(NoSignal, match="does not depend on the input"):
        propagate(Run(model, batch, Reader(model, None, 0)), Demand(NOTHING))


def test_an_input_that_the_score_does_not_read_has_none() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.one(x), self.two(x)

    model, x = seeded(Two), drawn(2, 4)
    batch = Batch(2, [], args=(x,), places=[model.one, model.two])
    outcome = propagate(Run(model, batch, Reader(model, None, lambda out: out[1][:, 0])), Demand(NOTHING))
    assert outcome.relevance[0].tolist() == torch.zeros(2, 4).tolist()
    assert outcome.relevance[1][:, 0].tolist() == model.two(x)[:, 0].tolist()


# Checks


@pytest.mark.parametrize("noise", [False, True])
def test_a_model_is_looked_at_closely_at_first_and_never_with_noise(
    noise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in (
        "find_tables",
        "predict_plainly",
        "look_at_others",
        "find_escapes",
        "check_prediction",
        "check_score",
        "check_visible",
        "check_met",
        "settle_choices",
    ):
        real = getattr(propagation, name)
        monkeypatch.setattr(propagation, name, lambda *args, name=name, real=real: asked.append(name) or real(*args))
    model, x = seeded(Model), drawn(2, 4)
    compared: list[bool] = []  # whether constants are noted as they enter

    def watch(scope: Scope) -> Any:
        compared.append(scope.entered == [])
        return nullcontext()

    run = run_of(model, x, noise=(lambda leaf: torch.ones_like(leaf)) if noise else None, watch=watch)
    always = ["settle_choices", "check_visible", "check_met"]
    first = propagate(run, Demand(ALL))
    closely = ["find_tables", "predict_plainly", "look_at_others", "settle_choices", "find_escapes"]
    assert asked == (always if noise else [*closely, "check_visible", "check_met", "check_prediction", "check_score"])
    asked.clear()
    again = propagate(run, Demand(ALL))
    assert asked == always
    assert told(again) == told(first)
    assert compared == [not noise, False]
    assert (model in KNOWN) is not noise
    if noise:
        plain = propagate(run_of(seeded(Model), x + 1), Demand(ALL))
        assert told(first)["score"] == told(plain)["score"]


def test_checks_of_the_score_are_made_of_the_first_reader() -> None:
    model, x = seeded(Model), drawn(2, 4)
    good, bad = Reader(model, None, 0), Reader(model, None, lambda out: out[:, 0] + out[:, 1].detach())
    with pytest.raises(UsageError, match="gradient of score"):
        list(propagate_each(run_of(model, x, bad.target), Demand(ALL), [bad, good]))
    fresh = seeded(Model)
    with pytest.raises(AnotherPrediction):
        list(propagate_each(run_of(fresh, x, 1), Demand(ALL), [good]))
    with pytest.raises(RuleNotMet, match="'ln'"):
        propagate(run_of(model, x), Demand(ALL, required=("ln",)))


def test_numbers_that_are_read_are_asked_after_at_every_explanation() -> None:
    class Reads(nn.Module):
        """Reads numbers from the third call on, under rules that were tried before."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.late = nn.Linear(4, 4), False

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + (float(x.detach().sum()) if self.late else 1.0)

    model, x = seeded(Reads), drawn(1, 4)
    assert hw.explain(model, x, target=0)[0].ledger.closed
    model.late = True
    e = hw.explain(model, x, target=0)[0]
    assert not e.ledger.closed
    assert "changes with the input" in e.ledger.why


def test_what_cannot_be_taken_back_is_said() -> None:
    x = drawn(1, 4)

    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise reasons[0]

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Breaks.apply(x)

    for reason, said, says in (
        (RuntimeError("an inplace operation, say"), HiddenOperation, "writes over"),
        (RuntimeError("something else"), RuntimeError, "something else"),
        (CheckpointError("another number of tensors"), HiddenOperation, "gradient checkpointing"),
    ):
        reasons = [reason]
        with pytest.raises(said, match=says):
            hw.explain(Broken().eval(), x, method="gi", target=0)


def test_what_was_compiled_runs_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    @contextmanager
    def noted() -> Iterator[None]:
        calls.append("in")
        yield
        calls.append("out")

    for module in (propagation, finite):
        monkeypatch.setattr(module, "run_eagerly", noted)
    model, x = seeded(Model), drawn(2, 4)
    propagate(run_of(model, x), Demand(ALL))
    model.register_forward_hook(lambda *_: calls.append("model"))
    calls.clear()
    run = run_of(model, x)
    propagate(run, Demand(ALL))
    read_again(run, Demand(ALL))
    assert calls == ["in", "model", "out"] * 2


# What is not finite


def outcome_with(score: float = 1.0, relevance: float = 1.0, line: float = 1.0, sort: Sort = Sort.BIAS) -> Outcome:
    books = Books(2)
    books.sites = [Site("fine", Sort.CONSTANT, 0), Site("bad", sort, 0)]
    books.amounts = {0: torch.ones(2).double(), 1: torch.tensor([1.0, line], dtype=torch.float64)}
    scores = torch.tensor([1.0, score], dtype=torch.float64)
    parts = [torch.ones(2, 3), torch.tensor([[1.0, relevance]])]
    return Outcome(ScoreReading(scores, [], []), scores, scores, [], parts, books, {})


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_told(wrong: float) -> None:
    assert not_finite(outcome_with()) is None
    assert not_finite(outcome_with(score=wrong)) == "the score"
    assert not_finite(outcome_with(relevance=wrong)) == "the relevance"
    for sort in Sort:
        assert not_finite(outcome_with(line=wrong, sort=sort)) == "the relevance of 'bad'"
    cancelling = outcome_with(line=float("inf"))
    cancelling.books.amounts[0] = torch.tensor([1.0, -float("inf")], dtype=torch.float64)
    assert not_finite(cancelling) == "the relevance of 'fine'"


def test_the_first_that_gave_something_is_remembered() -> None:
    watch = Watch()
    watch.see("fine", torch.ones(2))
    watch.see("nothing", None)
    assert watch.first is None
    watch.see("first", torch.tensor([1.0, torch.nan], requires_grad=True))
    watch.see("second", torch.tensor([torch.inf]))
    assert watch.first == "first"


class Bad(nn.Module):
    """A part that gives, or hands back, what is not finite."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class Broken(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any], read: Callable[[Any], Tensor] = lambda y: y) -> None:
        super().__init__()
        self.one, self.bad, self.two, self.read = nn.Linear(4, 4), Bad(function), nn.Linear(4, 2), read

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.read(self.bad(self.one(x))))


FORWARDS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "a tensor": (lambda x: x / 0, lambda y: y),
    "a dict": (lambda x: {"n": 3, "y": x / 0}, lambda y: y["y"]),
    "a list": (lambda x: [x.long(), x / 0], lambda y: y[1]),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_the_module_where_it_first_appeared_is_named(name: str) -> None:
    with pytest.raises(
        NotFinite, match=r"the score is not finite: it first appeared in the output of the module 'bad'"
    ):
        hw.explain(seeded(lambda: Broken(*FORWARDS[name])), drawn(2, 4), target=0)


def test_it_is_named_from_inside_inference_mode_too_and_beside_weights_that_are_elsewhere() -> None:
    model = seeded(lambda: Broken(*FORWARDS["a tensor"]))
    with torch.inference_mode(), pytest.raises(NotFinite, match="module 'bad'"):
        hw.explain(model, drawn(2, 4).clone(), target=0)
    model.register_buffer("elsewhere", torch.empty(2, device="meta"))
    run = run_of(model, drawn(2, 4))
    with pytest.raises(NotFinite, match="module 'bad'"):
        check_finite(run, Demand(ALL), outcome_with(score=torch.nan))


def test_the_model_itself_is_named_by_its_kind() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.part(x) / 0

    with pytest.raises(NotFinite, match="module 'Whole'"):
        hw.explain(seeded(Whole), drawn(2, 4), target=0)


class Overflows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * torch.inf


def test_where_it_first_appeared_on_the_way_back() -> None:
    model = seeded(lambda: Broken(Overflows.apply))
    with pytest.raises(
        NotFinite,
        match="the relevance is not finite: on the way back it first appeared at the output of the module 'one'",
    ):
        hw.explain(model, drawn(2, 4), method="gi", target=0)
    with torch.inference_mode(), pytest.raises(NotFinite, match="at the output of the module 'one'"):
        hw.explain(model, drawn(2, 4), method="gi", target=0)
    with pytest.raises(NotFinite, match=r"the relevance is not finite\. It overflowed"):  # it comes after all modules
        hw.explain(seeded(lambda: Bad(Overflows.apply)), drawn(2, 4), method="gi", target=0)


def test_a_parameter_that_is_no_number_is_named_before_all() -> None:
    def with_nan(name: str, **more: Tensor) -> nn.Module:
        model = seeded(lambda: Broken(lambda x: x / 0))
        for other, buffer in more.items():
            model.register_buffer(other, buffer)
        with torch.no_grad():
            dict((*model.named_parameters(), *model.named_buffers()))[name].flatten()[-1:] = torch.nan
        return model

    nan = torch.tensor([1.0, torch.nan])
    for name in ("one.bias", "two.weight"):
        with pytest.raises(NotFinite, match=f"the parameter '{name}' holds NaN"):
            hw.explain(with_nan(name), drawn(2, 4), target=0)
    numbers = {"count": torch.tensor([3]), "attention_mask": nan, "far": torch.tensor([torch.inf])}
    with pytest.raises(NotFinite, match="the parameter 'table' holds NaN"):
        hw.explain(with_nan("table", **numbers, table=torch.ones(2)), drawn(2, 4), target=0)
    model = seeded(lambda: Broken(lambda x: x / 0))
    model.register_buffer("attention_mask", nan)
    with pytest.raises(NotFinite, match="module 'bad'"):  # a mask may hold anything
        hw.explain(model, drawn(2, 4), target=0)


def test_where_the_score_cannot_be_read_again_the_way_forward_says_enough() -> None:
    calls: list[int] = []

    def score(out: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 5:
            raise NoSignal("not again")
        return out[:, 0]

    with pytest.raises(NotFinite, match="module 'bad'"):
        hw.explain(seeded(lambda: Broken(lambda x: x / 0)), drawn(2, 4), score=score)
