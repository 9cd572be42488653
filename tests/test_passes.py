"""What is asked of a model around its passes: how it is called, how its score is read, and what is checked of it."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import tiny
from torch import Tensor, nn
from weighing import drawn, seeded

import headwater as hw
from headwater.engine import checks
from headwater.engine.checks import (
    OFTEN,
    changing_sites,
    check_met,
    check_prediction,
    check_score,
    check_visible,
    find_escapes,
    find_tables,
    is_due,
    look_at_another,
    look_at_others,
    looks_words_up,
    lookups,
    other_input,
    predict_plainly,
    settle_choices,
    unlike,
)
from headwater.engine.forward import (
    Demand,
    Known,
    Read,
    Run,
    asks_links,
    forward,
    known_of,
    map_output,
    model_arguments,
    plainly_first,
    read_score,
    scope_for,
    tables_of,
    watch_nothing,
)
from headwater.errors import (
    AnotherPrediction,
    HiddenOperation,
    NoSignal,
    RandomPrediction,
    RuleNotMet,
    UsageError,
)
from headwater.inputs.batch import Batch
from headwater.inputs.places import Captured
from headwater.inputs.protocol import SideInput
from headwater.inputs.readouts import ScoreReading
from headwater.inputs.targets import Reader
from headwater.rules import Books, RuleSet, Scope
from headwater.rules.constants import BESIDE_HELD, EnteredConstant
from headwater.rules.cuts import Choice, Chosen
from headwater.rules.sources import Site, Sort

NOTHING = RuleSet(frozenset())
ALL = RuleSet(frozenset(("ah", "ln", "act", "gate")))


def run_of(model: nn.Module, batch: Batch | None = None, target: Any = 0, **more: Any) -> Run:
    return Run(model, batch or Batch(1, []), Reader(model, None, target), **more)


def with_config(forward: Callable[..., Any], **config: Any) -> nn.Module:
    model = nn.Identity()
    model.config = SimpleNamespace(**config)
    model.forward = forward
    return model


# How a model is called


def test_a_cache_is_turned_off_where_there_is_one() -> None:
    def named(x: Tensor, use_cache: bool = True, return_dict: bool = True) -> None: ...

    def anything(x: Tensor, **more: Any) -> None: ...

    def neither(x: Tensor) -> None: ...

    def called(model: nn.Module, **given: Any) -> dict[str, Any]:
        return model_arguments(run_of(model, Batch(1, [], kwargs=given)))

    for function in (named, anything):
        assert called(with_config(function, use_cache=True)) == {"use_cache": False}
        assert called(with_config(function, use_cache=True), use_cache=True) == {"use_cache": True}
        assert called(with_config(function)) == {}
        assert called(with_config(function, return_dict=False)) == {"return_dict": True}
        assert called(with_config(function, return_dict=True)) == {}
        assert called(with_config(function), return_dict=False) == {"return_dict": True}
        assert called(with_config(function, return_dict=False), return_dict=True) == {"return_dict": True}
        assert called(with_config(function, return_dict=True), return_dict=False) == {"return_dict": True}
    assert called(with_config(neither, use_cache=True, return_dict=False), x=1) == {"x": 1}
    assert called(nn.Linear(2, 2), return_dict=False) == {"return_dict": False}
    bare = nn.Identity()
    bare.forward = anything
    assert called(bare, return_dict=False) == {"return_dict": False}


@pytest.mark.parametrize("method", ["lrp", "lrp-language", "occlusion"])
@pytest.mark.parametrize("gradients", [True, False])
def test_a_cache_of_the_callers_is_read_by_every_pass_and_not_written_into(method: str, gradients: bool) -> None:
    """A first explanation passes through the model several times; each pass adds its text to the cache that it has."""
    model, text = deepcopy(tiny("llama")), torch.tensor([[5, 6, 7, 8, 9, 10, 11]])
    with torch.set_grad_enabled(gradients):
        cache = model(input_ids=text[:, :4], use_cache=True).past_key_values
    whole = float(model(input_ids=text).logits[0, -1].max().detach())
    for _ in range(3):
        found = hw.explain(model, {"input_ids": text[:, 4:], "past_key_values": cache}, method=method, output="logit")
        assert found[0].score == pytest.approx(whole, abs=1e-6)  # llama's norms are in float32
        assert found[0].ledger.closed or method == "occlusion"
        assert cache.get_seq_length() == 4


def test_weights_and_modules_have_their_names_and_what_is_elsewhere_has_none() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    scope = scope_for(run_of(model, Batch(5, [], ids=torch.zeros(5, 7))), Demand(ALL))
    assert scope.names[id(model[0].weight)] == "0.weight"
    assert scope.names[id(model[1].running_mean)] == "1.running_mean"
    assert scope.modules == {id(model): "", id(model[0]): "0", id(model[1]): "1"}
    assert (scope.rules, scope.books.samples, scope.books.length, scope.fleeting) == (ALL, 5, 7, False)
    model[0].weight = nn.Parameter(torch.empty(3, 2, device="meta"))
    scope = scope_for(run_of(model), Demand(ALL))
    assert scope.fleeting
    assert id(model[0].weight) not in scope.names
    assert id(model[0].bias) in scope.names


def test_links_are_asked_for_where_attention_has_a_gradient() -> None:
    run = run_of(nn.Linear(2, 2))
    assert asks_links(run, Demand(NOTHING))
    assert not asks_links(run, Demand(ALL))
    assert not asks_links(run, Demand(NOTHING, backward=False))
    assert not asks_links(replace(run, links=False), Demand(NOTHING))


def started(run: Run, **more: Any) -> tuple[Any, list[Captured]]:
    with torch.enable_grad():
        return forward(run, scope_for(run, Demand(NOTHING)), **more)


def test_the_argument_that_is_explained_is_a_leaf_of_its_own() -> None:
    x, other = drawn(2, 3), drawn(2, 3, seed=4)
    model = nn.Identity()
    model.forward = lambda *args, **kwargs: (args, kwargs)
    batch = Batch(2, [], args=(other, [x]), kwargs={"x": x, "other": other}, tensor=x)
    (args, kwargs), (found,) = started(run_of(model, batch))
    assert args[0] is kwargs["other"] is other
    for given in (args[1][0], kwargs["x"]):
        assert given.tolist() == x.tolist()
        assert torch.autograd.grad(given.sum(), found.leaf, retain_graph=True)[0].tolist() == [[1.0] * 3] * 2
    assert found.leaf.is_leaf
    assert found.leaf.data_ptr() != x.data_ptr()
    assert (found.ids, found.beside, x.requires_grad) == (None, False, False)
    (args, kwargs), (found,) = started(run_of(model, batch, noise=lambda leaf: leaf + 1))
    assert found.leaf.tolist() == kwargs["x"].tolist() == (x + (x + 1)).tolist()
    assert kwargs["other"] is other


class Placed(nn.Module):
    """Two places of which the second is called where it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Identity(), nn.Identity()
        self.calls: list[str] = []

    def forward(self, x: Tensor, both: bool = True) -> Tensor:
        return self.one(x) + (self.two(x) if both else 0)


def test_places_are_captured_and_what_enters_beside_them_if_asked() -> None:
    model, x = Placed(), drawn(2, 3)
    beside = SideInput("edges", model.two, lambda *_: [])
    batch = Batch(2, [], args=(x,), places=[model.one], beside=beside)
    assert [one.place for one in started(run_of(model, batch))[1]] == [model.one]
    found = started(run_of(model, batch, noise=lambda leaf: leaf + 1), beside=True)[1]
    assert [(one.place, one.beside) for one in found] == [(model.one, False), (model.two, True)]
    assert found[0].leaf.tolist() == (x + (x + 1)).tolist()
    assert found[1].leaf.tolist() == x.tolist()
    assert len(started(run_of(model, replace(batch, beside=None)), beside=True)[1]) == 1
    alone = replace(batch, places=[model.two], beside=None, kwargs={"both": False})
    with pytest.raises(NoSignal, match=r"was not called.*Name one that this input goes through"):
        started(run_of(model, alone))
    lists = replace(alone, places=[nn.ModuleList([nn.ModuleList([model.two])])], at="blocks")
    with pytest.raises(NoSignal, match=r"It is a list of modules: name one of them, such as 'blocks\.0\.0'"):
        started(run_of(model, lists))


def test_further_tables_are_captured_where_ids_are_given() -> None:
    model, x = Placed(), torch.ones(2, 3)
    batch = Batch(2, [], args=(x,), places=[model.one], ids=torch.zeros(2, 3))
    run = run_of(model, batch)
    assert tables_of(run) == []
    known = known_of(run)
    assert tables_of(run) == []
    known.tables = [model.two]
    assert tables_of(run) == [model.two]
    assert tables_of(replace(run, batch=replace(batch, ids=None))) == []
    assert [one.place for one in started(run)[1]] == [model.one, model.two]


def test_who_watches_sees_the_pass_and_nobody_else() -> None:
    seen: list[Any] = []

    class Watching:
        def __init__(self, scope: Scope) -> None:
            self.scope = scope

        def __enter__(self) -> None:
            seen.append(self.scope)

        def __exit__(self, *_: Any) -> None:
            seen.append(None)

    model, x = nn.Identity(), drawn(2, 3)
    run = run_of(model, Batch(2, [], args=(x,), tensor=x), watch=Watching)
    scope = scope_for(run, Demand(NOTHING))
    forward(run, scope)
    assert seen == [scope, None]


# How a score is read


Pair = namedtuple("Pair", "one two")


class Output(OrderedDict):
    """As transformers': a dict whose entries are attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def test_outputs_are_mapped_whatever_they_are() -> None:
    a, b = torch.ones(1), torch.ones(2)
    seen: list[Any] = []

    def doubled(value: Any) -> Any:
        seen.append(value)
        return 2 * value if isinstance(value, Tensor) else value

    given = Output(one=a, more=(b, "text"), none=None)
    found = map_output(given, doubled)
    assert type(found) is Output
    assert (found.one.tolist(), found.more[0].tolist(), found.more[1], found.none) == ([2.0], [2.0, 2.0], "text", None)
    assert given.one is a
    found = map_output({"one": [a], "two": (b,)}, doubled)
    assert (type(found), found["one"][0].tolist(), found["two"][0].tolist()) == (dict, [2.0], [2.0, 2.0])
    assert [one.tolist() for one in map_output([a, b], doubled)] == [[2.0], [2.0, 2.0]]
    assert type(map_output((a, b), doubled)) is tuple
    assert map_output(a, doubled).tolist() == [2.0]
    named = map_output(Pair(a, (Output(one=b), 3)), doubled)
    assert (type(named), type(named.two[0]), named.two[1]) == (Pair, Output, 3)
    assert (named.one.tolist(), named.two[0].one.tolist()) == ([2.0], [2.0, 2.0])
    largest = map_output(torch.ones(1, 2).max(1), doubled)
    assert (largest.values.tolist(), largest.indices.tolist()) == ([2.0], [0])
    seen.clear()
    module = nn.Linear(1, 1)
    assert [map_output(one, doubled) for one in (module, Tensor, None)] == seen == [module, Tensor, None]


class Holder:
    """An output of one's own: it has a tensor and whatever else is put on it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.more: Any = None


def test_outputs_that_lead_back_to_themselves_lead_back_to_their_copy() -> None:
    """The tensors that are reached on the way back are those that were changed, as on the way there."""
    one, two = Holder(torch.ones(1)), Holder(torch.ones(2))
    one.more, two.more = (two, "text"), {"back": one}
    found = map_output(one, lambda value: 2 * value if isinstance(value, Tensor) else value)
    assert (found.tensor.tolist(), found.more[0].tensor.tolist(), found.more[1]) == ([2.0], [2.0, 2.0], "text")
    assert found.more[0].more["back"] is found
    assert (one.tensor.tolist(), two.more["back"]) == ([1.0], one)
    for given in ({"tensor": torch.ones(1)}, Output(tensor=torch.ones(1))):
        given["back"] = given
        found = map_output(given, lambda value: 2 * value)
        assert (type(found), found["back"] is found, found["tensor"].tolist()) == (type(given), True, [2.0])
    row: list[Any] = [torch.ones(1)]
    row.append((row,))
    found = map_output(row, lambda value: 2 * value)
    assert (found[0].tolist(), found[1][0] is found) == ([2.0], True)


def test_what_an_output_holds_twice_is_changed_twice() -> None:
    """Only what leads back to itself is met again: each place of a tensor has its own copy, as before."""
    shared = (torch.ones(1),)
    found = map_output({"one": shared, "two": shared}, lambda value: 2 * value)
    assert found["one"] is not found["two"]
    assert found["one"][0] is not found["two"][0]


def test_a_model_whose_output_leads_back_to_itself_is_explained() -> None:
    """The relevance is that of the same model with a plain output."""

    class Model(nn.Module):
        def __init__(self, back: bool) -> None:
            super().__init__()
            self.linear, self.back = nn.Linear(3, 2, dtype=torch.float64), back

        def forward(self, x: Tensor) -> Holder:
            out = Holder(self.linear(x))
            out.more = out if self.back else None
            return out

    torch.manual_seed(0)
    plain, back = Model(False).eval(), Model(True).eval()
    back.load_state_dict(plain.state_dict())
    x = drawn(1, 3)

    def read(out: Any) -> Tensor:
        return (out if out.more is None else out.more.more).tensor[:, 0]

    for _ in range(3):  # what is explained for the third time is played
        (one,), (two,) = (hw.explain(model, x, score=read) for model in (plain, back))
        assert torch.equal(one.relevance, two.relevance)


def cut_at(score: Callable[..., Tensor], *values: Tensor) -> Read:
    cut = [value.clone().requires_grad_() for value in values]
    result = score(*cut)
    return Read(ScoreReading(result, [], []), cut, cut)


def test_gradients_of_a_score_by_its_seeds() -> None:
    x, y = drawn(3, 4), drawn(3, 2, seed=4)
    read = cut_at(lambda x, y: x.square().sum(1) + 3 * y.sum(1), x, y)
    ones, threes = read.gradients()
    assert ones.tolist() == (2 * x).tolist()
    assert threes.tolist() == torch.full((3, 2), 3.0).tolist()
    seeds = torch.tensor([1.0, 0.0, 2.0])
    assert read.gradients(seeds)[0].tolist() == (2 * x * seeds[:, None]).tolist()
    assert read.gradients(seeds)[0].tolist() == (2 * x * seeds[:, None]).tolist()


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize(
    "shapes", [((4,), (2, 5)), ((), (2,)), ((3, 2), (2,)), ((2, 3), (3, 3)), ((4, 2, 3), (4,))], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_linear_part_is_output_times_gradient(
    samples: int, shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype
) -> None:
    """Of a sum of squares it is twice the sum, whatever axes there are."""
    values = [drawn(samples, *shape, seed=i).to(dtype) for i, shape in enumerate(shapes)]
    read = cut_at(lambda *all: torch.stack([v.square().reshape(samples, -1).sum(1) for v in all]).sum(0), *values)
    expected = 2 * sum(v.double().square().reshape(samples, -1).sum(1) for v in values)
    assert read.linear_part().dtype is torch.float64
    assert read.linear_part().tolist() == pytest.approx(
        expected.tolist(), rel=1e-6 if dtype is torch.float32 else 1e-12
    )
    assert not read.linear_part().requires_grad
    assert read.linear_size().tolist() == read.linear_part().tolist()
    against = cut_at(lambda *all: -torch.stack([v.reshape(samples, -1).sum(1) for v in all]).sum(0), *values)
    sizes = sum(v.double().abs().reshape(samples, -1).sum(1) for v in values)
    assert against.linear_size().tolist() == pytest.approx(
        sizes.tolist(), rel=1e-6 if dtype is torch.float32 else 1e-12
    )


def test_the_linear_part_where_samples_stand_elsewhere() -> None:
    x = drawn(4, 3, 2)
    read = cut_at(lambda x: x.square().sum((0, 2)), x)
    assert read.linear_part().tolist() == pytest.approx((2 * x.square().sum((0, 2))).tolist())
    turned = drawn(3, 3, 2)
    read = cut_at(lambda x: x.square().sum((0, 2)), turned)
    assert read.linear_part().tolist() == pytest.approx((2 * turned.square().sum((0, 2))).tolist())


@pytest.mark.parametrize(
    ("shape", "samples", "first"),
    [
        ((1, 5), 1, True),
        ((7, 5), 1, True),
        ((3, 5), 3, True),
        ((3, 3), 3, True),  # the last axis has classes
        ((3, 3, 5), 3, False),
        ((3, 4, 3), 3, True),
        ((3, 4, 3, 5), 3, False),
        ((5, 3), 3, False),
        ((3,), 3, True),
        ((6, 4), 3, False),
    ],
)
def test_whether_only_the_first_axis_can_be_the_samples(shape: tuple[int, ...], samples: int, first: bool) -> None:
    assert plainly_first(torch.zeros(shape), samples) is first


def test_of_the_outputs_those_count_that_the_score_reads() -> None:
    a, b = drawn(2, 3).requires_grad_() * 2, drawn(2, 3, seed=4).requires_grad_() * 3
    constant = drawn(2, 3, seed=5)
    seen: list[Any] = []

    def score(out: Any) -> Tensor:
        seen.append(out)
        return (out["b"] * out["more"][0]).sum(1)

    out = {"a": a, "b": b, "more": (constant, "text", None)}
    read = read_score(run_of(nn.Identity(), Batch(2, []), score), out)
    assert len(read.ends) == len(read.cut) == 1
    assert read.ends[0] is b
    assert read.cut[0] is seen[0]["b"]
    assert (read.cut[0].is_leaf, read.cut[0].requires_grad, read.cut[0].tolist()) == (True, True, b.tolist())
    assert seen[0]["a"] is not a
    assert seen[0]["more"][0] is constant
    assert read.gradients()[0].tolist() == constant.tolist()
    assert read.linear_part().tolist() == pytest.approx((b * constant).sum(1).tolist())
    with pytest.raises(NoSignal, match="does not depend"):
        read_score(run_of(nn.Identity(), Batch(2, []), lambda out: out["more"][0].sum(1)), out)


# Is it the model's own prediction?


class Scored(nn.Module):
    """Gives its `values` one after the other, and notes how it is called."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values, self.gradients = list(values), []

    def forward(self, x: Tensor | None = None, **more: Any) -> Tensor:
        self.gradients.append(torch.is_grad_enabled())
        return torch.tensor([[self.values.pop(0)]])


@contextmanager
def noted(calls: list[str]) -> Iterator[None]:
    calls.append("in")
    yield
    calls.append("out")


def test_what_was_compiled_runs_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(checks, "run_eagerly", partial(noted, calls))
    x = torch.ones(1, 4)
    model = Fussy(100.0)
    model.register_forward_hook(lambda *_: calls.append("model"))
    run = run_of(model, Batch(1, [], args=(x,), tensor=x))
    predict_plainly(run)
    look_at_another(run, Demand(ALL), 0)
    assert calls == ["in", "model", "out"] * 2
    words = seeded(lambda: Tables(lambda m, ids: m.again(ids)))
    words.register_forward_hook(lambda *_: calls.append("model"))
    tables(words, torch.tensor([[0, 1, 2, 3, 4]]))
    assert calls == ["in", "model", "out"] * 3


def test_the_plain_prediction_has_no_gradients_and_no_rules() -> None:
    model = Scored(0.5)
    found = predict_plainly(run_of(model))
    assert (found.tolist(), found.dtype, model.gradients) == ([0.5], torch.float64, [False])
    weight = nn.Linear(1, 1)
    x = torch.ones(1, 1)
    assert not predict_plainly(run_of(weight, Batch(1, [], args=(x,)))).requires_grad


def judge(found: float, plain: float, again: float, *, dtype: torch.dtype | None = None, size: float = 1.0) -> None:
    score = torch.tensor([found], requires_grad=True)
    read = Read(ScoreReading(score, [], []), [torch.tensor([-size, 0.0]), torch.empty(0)], [])
    scope = Scope(NOTHING, Books(1), {}, {})
    scope.coarsest = dtype
    check_prediction(run_of(Scored(again)), torch.tensor([plain], dtype=torch.float64), read, scope)


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_score_may_be_off_by_the_root_of_the_precision(dtype: torch.dtype | None, size: float, sign: int) -> None:
    room = sign * math.sqrt(torch.finfo(dtype or torch.float32).eps) * size
    kind = {"dtype": dtype, "size": size}
    far, near = (3 * room, 0.3 * room) if dtype is not torch.float64 else (1e-3 * sign, 0.0)
    judge(0.5 + near, 0.5, 9.0, **kind)
    judge(0.5, 0.5, 9.0, **kind)
    with pytest.raises(AnotherPrediction, match="plain prediction"):
        judge(0.5 + far, 0.5, 0.5, **kind)
    with pytest.raises(AnotherPrediction, match="plain prediction"):
        judge(0.5 + far, 0.5, 0.5 + near, **kind)
    with pytest.raises(RandomPrediction, match="random"):
        judge(0.5 + far, 0.5, 0.5 - far, **kind)


def test_the_plain_scores_own_size_counts_and_no_number_is_for_others_to_report() -> None:
    judge(1e4 + 1.0, 1e4, 0.0)
    judge(float("nan"), 0.5, 0.5)
    judge(0.0, 0.0, 0.0, size=0.0)
    with pytest.raises(AnotherPrediction):
        judge(5.0, 0.0, 0.0, size=0.0)
    with pytest.raises(AnotherPrediction):
        judge(-0.5, 0.5, 0.5)
    scores = torch.tensor([1.0, 5.0], requires_grad=True)
    read = Read(ScoreReading(scores, [], []), [torch.ones(1)], [])
    with pytest.raises(AnotherPrediction):  # any of the samples
        check_prediction(
            run_of(nn.Identity(), Batch(2, [], args=(torch.tensor([[1.0], [2.0]]),))),
            torch.tensor([1.0, 2.0], dtype=torch.float64),
            read,
            Scope(NOTHING, Books(2), {}, {}),
        )


def test_each_set_of_rules_looks_closely_at_first_and_then_now_and_then() -> None:
    run, demand = run_of(nn.Linear(2, 2)), Demand(ALL)
    found = [is_due(run, demand) for _ in range(8 * OFTEN + 1)]
    assert [i for i, due in enumerate(found) if due] == [0, OFTEN, 2 * OFTEN, 4 * OFTEN, 8 * OFTEN]
    assert is_due(run, Demand(NOTHING))
    assert not is_due(run, Demand(NOTHING))
    known_of(run).reads = True
    assert is_due(run, demand)
    assert is_due(run_of(nn.Linear(2, 2)), demand)
    assert OFTEN == 64  # seldom enough to cost nothing, often enough to notice a model that changes


# Is the gradient of a score that of its value?


def check(score: Callable[[Tensor], Tensor], x: Tensor) -> None:
    out = x.clone().requires_grad_() * 1
    run = run_of(nn.Identity(), Batch(len(x), []), score)
    check_score(run, out, read_score(run, out))


HONEST: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda out: out[:, 1],
    "a square": lambda out: out.square().sum(1),
    "a probability": lambda out: out.softmax(-1)[:, 0],
    "a constant beside": lambda out: out[:, 0] + 100.0,
    "the largest": lambda out: out.max(-1).values,
    "nothing goes back": lambda out: out[:, 0] / out.norm(dim=1) * 1e-12,
    "scaled away": lambda out: out[:, 0] / out[:, 1],
    "a sigmoid": lambda out: out.sigmoid().sum(1),
    "a cube": lambda out: (out**3).sum(1),
}
DISHONEST: dict[str, Callable[[Tensor], Tensor]] = {
    "detached": lambda out: out[:, 0] + out[:, 1].detach(),
    "half of it": lambda out: out[:, 0] * out[:, 0].detach(),
    "of one sample": lambda out: out[:, 0] + out[:, 1].detach() * torch.arange(len(out)),
    "against it": lambda out: -out[:, 0] + 2 * out[:, 0].detach(),
    "a little": lambda out: out[:, 0] + 0.01 * out[:, 0].detach(),
    "small": lambda out: 1e-5 * (out[:, 0] + out[:, 1].detach()),
    "a number": lambda out: out[:, 0] * float(out.detach().abs().sum()),
    "of a constant beside it": lambda out: out[:, 0].detach() * 3 + 0 * out[:, 1],
}


@pytest.mark.parametrize("size", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize("name", HONEST)
def test_a_score_whose_gradient_is_its_own(name: str, size: float) -> None:
    check(HONEST[name], size * drawn(3, 4))
    check(HONEST[name], -size * drawn(3, 4))


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("name", DISHONEST)
def test_a_score_that_is_cut_off_is_refused(name: str, size: float) -> None:
    with pytest.raises(UsageError, match="gradient of score"):
        check(DISHONEST[name], size * drawn(3, 4).abs())


def test_only_what_a_caller_wrote_is_checked_and_nothing_that_is_very_large(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = DISHONEST["detached"]
    x = drawn(3, 4)
    monkeypatch.setattr(checks, "LARGE", 11)
    check(cut, x)
    monkeypatch.setattr(checks, "LARGE", 12)
    with pytest.raises(UsageError):
        check(cut, x)
    out = x.requires_grad_() * 1
    run = run_of(nn.Identity(), Batch(3, []), cut)
    own = replace(run, read=lambda out, batch: run.read(out, batch))  # no reader with a target
    check_score(own, out, read_score(own, out))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("inside", [torch.float64, torch.float32])
def test_a_score_that_does_not_change_with_the_outputs_size_is_no_rounding(
    dtype: torch.dtype, inside: torch.dtype
) -> None:
    """Its gradient along the output is 0, of terms that cancel."""
    reference = drawn(8, seed=9)
    for seed in range(5):
        x = drawn(3, 8, seed=seed).to(dtype)
        check(lambda out: torch.cosine_similarity(out.to(inside), reference.to(inside), dim=-1), x)
        check(lambda out: (out[:, 0] / out[:, 1]).to(inside), x)
        with pytest.raises(UsageError):
            check(lambda out: torch.cosine_similarity(out, reference.to(out)) + 0.01 * out[:, 0].detach() ** 2, x)


def test_a_similarity_can_be_explained_in_float32() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 8))).float()
    score = partial(torch.cosine_similarity, x2=drawn(8).float(), dim=-1)
    for e in hw.explain(model, drawn(2, 6).float(), score=score):
        assert e.ledger.error < 1e-5


def test_a_score_is_asked_three_times_more_in_float64() -> None:
    seen: list[tuple[bool, torch.dtype, float]] = []

    def score(out: Any) -> Tensor:
        seen.append((torch.is_grad_enabled(), out[0].dtype, float(out[0].detach()[0, 0])))
        assert out[1] == "text"
        assert out[2].dtype is torch.float32
        return out[0][:, 0] * out[2][:, 0]

    x, constant = torch.full((1, 2), 4.0), torch.full((1, 2), 3.0)
    run = run_of(nn.Identity(), Batch(1, []), score)
    out = [x.requires_grad_() * 1, "text", constant]
    with torch.enable_grad():
        check_score(run, out, read_score(run, out))
    assert [one[0] for one in seen] == [True, True, False, False]
    assert [one[1] for one in seen] == [torch.float32, torch.float64, torch.float64, torch.float64]
    first, again, more, less = (one[2] for one in seen)
    assert first == again == 4.0
    assert more == pytest.approx(4.0 * (1 + 1e-4 / 4), rel=1e-12)
    assert less == pytest.approx(4.0 * (1 - 1e-4 / 4), rel=1e-12)


def test_a_score_that_bends_within_a_small_part_of_the_output() -> None:
    far = torch.full((2, 3), 1e4, dtype=torch.float64)
    check(lambda out: (out[:, 0] - 1e4).sigmoid(), far)
    check(lambda out: (out[:, 0] + 1e4).sigmoid(), -far)


def test_an_output_that_is_zero_has_a_score_too() -> None:
    check(HONEST["linear"], torch.zeros(2, 3))


def test_a_score_that_takes_no_float64_is_believed() -> None:
    layer = nn.Linear(2, 1)
    check(lambda out: layer(out)[:, 0].detach() + 0 * out[:, 0], torch.ones(2, 2))


# Constants that change with the input


def test_a_look_up_by_a_choice_that_weighs_is_a_bias_or_a_constant_after_all() -> None:
    scope, choice = Scope(NOTHING, Books(1), {}, {}), Choice()
    scope.books.sites = [Site("cut", Sort.CUT_OFF, 0) for _ in range(3)]
    node = object()
    scope.cuts.chosen = [Chosen(i, choice, f"table {i}", i == 1) for i in range(3)]
    scope.cuts.nodes = {0: node, 1: node, 2: object()}
    scope.cuts.weighed = [(choice, {node})]
    settle_choices(scope)
    assert [(site.name, site.sort) for site in scope.books.sites] == [
        ("table 0", Sort.CONSTANT),
        ("table 1", Sort.BIAS),
        ("cut", Sort.CUT_OFF),
    ]


def entered(*constants: tuple[int, str, float]) -> list[EnteredConstant]:
    return [EnteredConstant(site, name, (value, 0.0)) for site, name, value in constants]


def test_sites_whose_constant_is_another() -> None:
    ours = entered((0, "a", 1.0), (1, "b", 2.0), (4, "a", 3.0))
    assert changing_sites(ours, entered((7, "a", 1.0), (8, "b", 2.5), (9, "a", 3.0))) == {1}
    assert changing_sites(ours, ours) == set()
    # In another order, or fewer: names tell. Of a name all sites count, for nobody knows which is which.
    assert changing_sites(ours, entered((0, "b", 2.0), (1, "a", 3.0), (2, "a", 1.0))) == set()
    assert changing_sites(ours, entered((0, "b", 2.0), (1, "a", 3.0), (2, "a", 1.5))) == {0, 4}
    assert changing_sites(ours, entered((0, "a", 1.0), (1, "a", 3.0))) == {1}
    assert changing_sites([EnteredConstant(2, "a", (1.0, 5.0))], [EnteredConstant(2, "a", (1.0, 6.0))]) == {2}


def sorted_by(
    scope: Scope, others: list[Any], inputs: list[Captured] | None = None, run: Run | None = None
) -> list[Any]:
    find_escapes(run or run_of(nn.Identity()), Demand(ALL), scope, inputs or [], others)
    return [(site.name, site.sort) for site in scope.books.sites]


def met(*sorts: Sort, values: dict[int, float] | None = None) -> Scope:
    scope = Scope(NOTHING, Books(1), {}, {})
    scope.books.sites = [Site(f"line {i}", sort, 0) for i, sort in enumerate(sorts)]
    scope.entered = entered(*((i, f"line {i}", (values or {}).get(i, 1.0)) for i in range(-1, len(sorts))))
    return scope


def test_what_changes_with_the_input_is_cut_off() -> None:
    """But for what is cut off already, what is held, what was chosen, and what a choice weighs."""
    sorts = (Sort.CONSTANT, Sort.BIAS, Sort.CUT_OFF, Sort.HELD, Sort.CONSTANT, Sort.CONSTANT, Sort.CONSTANT)
    scope, choice, node = met(*sorts), Choice(), object()
    scope.cuts.chosen = [Chosen(4, choice, "table", True)]
    scope.cuts.nodes, scope.cuts.weighed = {5: node}, [(choice, {node})]
    others = met(*sorts, values=dict.fromkeys(range(6), 2.0)).entered
    assert others is not None
    before = [(f"line {i}", sort) for i, sort in enumerate(sorts)]
    changed = [(f"line {i}, which changes with the input", Sort.CUT_OFF) for i in range(2)]
    assert sorted_by(scope, [(others, []), (others, [])]) == [*changed, *before[2:]]


def test_one_other_input_is_enough() -> None:
    same, another = met(Sort.BIAS, Sort.BIAS).entered, met(Sort.BIAS, Sort.BIAS, values={1: 2.0}).entered
    for others in ([(same, []), (another, [])], [(another, []), (same, [])]):
        assert [sort for _, sort in sorted_by(met(Sort.BIAS, Sort.BIAS), others)] == [Sort.BIAS, Sort.CUT_OFF]
    assert [sort for _, sort in sorted_by(met(Sort.BIAS, Sort.BIAS), [(same, [])])] == [Sort.BIAS, Sort.BIAS]
    assert [sort for _, sort in sorted_by(met(Sort.BIAS, Sort.BIAS), [])] == [Sort.BIAS, Sort.BIAS]


def test_sites_are_those_of_this_input() -> None:
    """For another one they may have other numbers."""
    scope, others = met(Sort.BIAS, Sort.BIAS), entered((5, "line 0", 1.0), (0, "line 1", 2.0))
    scope.entered = entered((0, "line 0", 1.0), (1, "line 1", 1.0))
    assert [sort for _, sort in sorted_by(scope, [(others, [])])] == [Sort.BIAS, Sort.CUT_OFF]
    assert not 0 <= BESIDE_HELD < 1000  # no site has that number


def test_what_is_held_is_cut_off_where_what_it_meets_changes() -> None:
    sorts = (Sort.CONSTANT, Sort.BIAS, Sort.HELD, Sort.CUT_OFF)
    others = met(*sorts, values={BESIDE_HELD: 2.0}).entered
    found = sorted_by(met(*sorts), [(others, [])])
    assert [sort for _, sort in found] == [Sort.CONSTANT, Sort.BIAS, Sort.CUT_OFF, Sort.CUT_OFF]
    assert [name for name, _ in found] == ["line 0", "line 1", "line 2, which changes with the input", "line 3"]


def text(*words: int) -> Tensor:
    return torch.tensor([words])


def test_words_in_another_order_are_refused() -> None:
    batch = Batch(1, [], ids=text(1, 2, 3))
    inputs = [Captured(torch.ones(1, 3, 2), text(1, 2, 3)), Captured(torch.ones(1, 3, 2), text(3, 2, 1))]
    run = run_of(nn.Identity(), batch)
    same = met(Sort.BIAS).entered
    sorted_by(met(Sort.BIAS), [(same, [True, False])], inputs, run)
    for own in ([True, True], [False, False], [False, True], [True]):
        with pytest.raises(HiddenOperation, match="another order"):
            sorted_by(met(Sort.BIAS), [(same, [True, False]), (same, own)], inputs, run)


def test_which_look_ups_are_those_of_the_text() -> None:
    leaf = torch.ones(1, 3, 2)
    inputs = [Captured(leaf, text(1, 2, 3)), Captured(leaf, None), Captured(leaf, text(5, 6)), Captured(leaf, text(9))]
    assert lookups(Batch(1, [], ids=text(1, 2, 3)), inputs) == [True, False, False, False]
    prefix = {"decoder_input_ids": text(5, 6)}
    assert lookups(Batch(1, [], ids=text(1, 2, 3), kwargs=prefix), inputs) == [True, False, True, False]
    assert lookups(Batch(1, [], ids=text(1, 2, 3), kwargs={"decoder_input_ids": [1]}), inputs)[2] is False
    assert lookups(Batch(1, []), inputs) == []


@pytest.mark.parametrize(("reads", "refuses", "looks"), [(False, False, 1), (True, False, 4), (True, True, 0)])
def test_how_many_other_inputs_are_looked_at(
    reads: bool, refuses: bool, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Identity()
    known_of(run_of(model)).reads = reads
    asked: list[int] = []

    def look(run: Run, demand: Demand, number: int) -> Any:
        asked.append(number)
        return None if refuses else (number, [])

    monkeypatch.setattr(checks, "look_at_another", look)
    found = look_at_others(run_of(model), Demand(ALL))
    assert len(found) == looks
    assert asked == list(range(4 if reads else 1))


@pytest.mark.parametrize("known", [1, 3, 4])
def test_where_numbers_are_read_more_inputs_are_looked_at(known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = nn.Identity(), []
    same = met(Sort.BIAS).entered
    changed = met(Sort.BIAS, values={0: 2.0}).entered

    def look(run: Run, demand: Demand, number: int) -> Any:
        asked.append(number)
        return None if number == 2 else (changed, [])

    monkeypatch.setattr(checks, "look_at_another", look)
    scope = met(Sort.BIAS)
    scope.cuts.reads.append(None)
    found = sorted_by(scope, [(same, [])] * known, run=run_of(model))
    assert asked == list(range(known, 4))
    assert found[0][1] is (Sort.CUT_OFF if known < 4 else Sort.BIAS)
    assert known_of(run_of(model)).reads
    sorted_by(met(Sort.BIAS), [(same, [])], run=run_of(model))
    assert known_of(run_of(model)).reads  # once is always
    clear = nn.Identity()
    sorted_by(met(Sort.BIAS), [(same, [])], run=run_of(clear))
    assert not known_of(run_of(clear)).reads
    assert asked == list(range(known, 4))


class Fussy(nn.Module):
    """A model that refuses inputs that are larger than what it knows."""

    def __init__(self, most: float, error: type[Exception] = ValueError) -> None:
        super().__init__()
        self.layer, self.most, self.error = nn.Linear(4, 2), most, error
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(float(x.detach().abs().max()))
        if self.seen[-1] > self.most:
            raise self.error("too large")
        return self.layer(x) + 1


def test_a_model_that_refuses_what_it_never_saw_gets_less_of_it() -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    batch = Batch(5, [], args=(x,), tensor=x)
    largest = float(x.abs().max())
    for most, tries in ((100.0, 1), (largest + 1.2, 2), (1.02 * largest, 3)):
        model = Fussy(most)
        look = look_at_another(run_of(model, batch), Demand(ALL), 0)
        assert look is not None
        assert [one.name for one in look[0]] == ["add"]
        assert len(model.seen) == tries
    for around in (torch.no_grad, torch.inference_mode):
        model = Fussy(100.0)
        with around():
            look = look_at_another(run_of(model, batch), Demand(ALL), 0)
        assert look is not None
        assert [one.name for one in look[0]] == ["add"]
    model = Fussy(0.0)
    assert look_at_another(run_of(model, batch), Demand(ALL), 0) is None
    assert len(model.seen) == 3
    with pytest.raises(HiddenOperation):
        look_at_another(run_of(Fussy(0.0, HiddenOperation), batch), Demand(ALL), 0)


def test_another_input_has_noise_of_its_own_size() -> None:
    leaf = 5 * drawn(200, 50) + 100
    noise = unlike(leaf.float().requires_grad_(), 0, 3.0)
    assert (noise.dtype, noise.shape, noise.requires_grad) == (torch.float32, leaf.shape, False)
    assert float(noise.double().std()) == pytest.approx(15.0, rel=0.05)
    assert abs(float(noise.mean())) < 1.0
    assert float(unlike(leaf, 0, 0.3).std()) == pytest.approx(1.5, rel=0.05)
    assert torch.equal(unlike(leaf, 1, 3.0), unlike(leaf, 1, 3.0))
    draws = [unlike(leaf, number, 3.0).flatten() for number in range(4)]
    correlations = torch.corrcoef(torch.stack(draws)) - torch.eye(4)
    assert float(correlations.abs().max()) < 0.1


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_a_single_number_and_numbers_that_are_all_the_same_get_noise_too(value: float) -> None:
    drawn_one = float(unlike(torch.tensor([1.0], dtype=torch.float64), 0, 1.0))
    for shape in ((1,), (1, 1), (2, 3)):
        leaf = torch.full(shape, value, dtype=torch.float64)
        size = 1.0 if value == 0 or leaf.numel() > 1 else abs(value)
        found = unlike(leaf, 0, 2.0).flatten()
        assert float(found[0]) == pytest.approx(2 * size * drawn_one)
    assert unlike(torch.tensor([float("nan"), 1.0]), 0, 1.0).isfinite().all()


def other_words(ids: Tensor, real: Tensor | None = None, number: int = 0, **more: Any) -> Tensor:
    run = run_of(nn.Identity(), Batch(len(ids), [], kwargs={"input_ids": ids}, ids=ids, real=real))
    before = ids.clone()
    found = other_input(run, number, **more)
    assert torch.equal(ids, before)
    assert found.batch.ids is found.batch.kwargs["input_ids"]
    assert found.noise is not None
    return found.batch.kwargs["input_ids"]


def test_words_change_places_and_the_first_and_the_last_stay() -> None:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 0, 0]])
    real = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]).bool()
    assert other_words(ids, real).tolist() == [[1, 5, 2, 3, 4, 6], [9, 7, 8, 6, 0, 0]]
    assert other_words(ids, real, 1).tolist() == [[1, 4, 5, 2, 3, 6], [9, 8, 7, 6, 0, 0]]
    assert other_words(ids[:1]).tolist() == [[1, 5, 2, 3, 4, 6]]
    assert other_words(ids[:1, :4]).tolist() == [[1, 3, 2, 4]]


def test_noise_alone_where_there_are_no_words_to_move() -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    for batch in (
        Batch(1, []),
        Batch(1, [], kwargs={"input_ids": ids}),
        Batch(1, [], ids=ids),
        Batch(1, [], ids=ids, kwargs={"input_ids": ids.tolist()}),
        Batch(1, [], ids=ids, kwargs={"input_ids": ids + 1}),
        Batch(1, [], ids=ids[:, :3], kwargs={"input_ids": ids[:, :3]}),
    ):
        found = other_input(run_of(nn.Identity(), batch), 2, 0.3)
        assert found.batch is batch
        assert isinstance(found.noise, partial)
        assert found.noise.keywords == {"number": 2, "times": 0.3}
    default = other_input(run_of(nn.Identity(), Batch(1, [])))
    assert default.noise.keywords == {"number": 0, "times": 3.0}  # type: ignore[union-attr]


# Tables of words beside the places


class Tables(nn.Module):
    """Words, their places, words once more; and a table of other things."""

    def __init__(self, later: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.words, self.again, self.places = nn.Embedding(20, 4), nn.Embedding(20, 4), nn.Embedding(20, 4)
        self.head, self.later = nn.Linear(4, 2), later

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def forward(self, input_ids: Tensor) -> Tensor:
        where = torch.arange(input_ids.shape[1])[None].expand_as(input_ids)
        x = self.words(input_ids) + self.places(where)
        return self.head(x.mean(1)) + self.head(self.later(self, input_ids).mean(1))


def tables(model: Tables, ids: Tensor) -> list[nn.Module] | None:
    run = run_of(model, Batch(len(ids), [], kwargs={"input_ids": ids}, ids=ids, places=[model.words]))
    find_tables(run)
    return known_of(run).tables


def test_tables_that_look_up_the_words_once_more_are_found() -> None:
    ids = torch.tensor([[0, 1, 2, 3, 4]])  # which are the numbers of their places, too
    assert tables(model := seeded(lambda: Tables(lambda m, ids: m.again(ids))), ids) == [model.again]
    assert tables(seeded(lambda: Tables(lambda m, ids: m.again(ids + 1))), ids) == []
    assert tables(seeded(lambda: Tables(lambda m, ids: torch.zeros(1, 5, 4).double())), ids) == []
    short = seeded(lambda: Tables(lambda m, ids: m.again(ids)))
    assert tables(short, ids[:, :3]) == []  # too short to be told from other words


def test_tables_are_looked_for_once_and_where_words_are_explained() -> None:
    ids = torch.tensor([[0, 1, 2, 3, 4]])
    model = seeded(lambda: Tables(lambda m, ids: m.again(ids)))
    batch = Batch(1, [], kwargs={"input_ids": ids}, ids=ids, places=[model.words])
    for without in ({"ids": None}, {"places": []}):
        run = run_of(model, replace(batch, **without))
        find_tables(run)
        assert known_of(run).tables is None
    asked: list[Any] = []
    model.register_forward_hook(lambda *_: asked.append(torch.is_grad_enabled()))
    for _ in range(3):
        with torch.enable_grad():
            find_tables(run_of(model, batch))
    assert asked == [False]
    inside = seeded(lambda: Tables(lambda m, ids: m.again(ids)))
    whole = run_of(inside, replace(batch, places=[inside]))
    find_tables(whole)
    assert known_of(whole).tables == []


def looked_up(ids: Tensor, leaf: Tensor | None = None, table: Any = None, text: Tensor | None = None) -> bool:
    embedding = nn.Embedding(6, 3).double()
    if table is not None:
        embedding.weight = table
    rows = drawn(6, 3) if leaf is None else leaf
    with torch.no_grad():
        if isinstance(embedding.weight, Tensor):
            embedding.weight.copy_(drawn(6, 3))
    found = looks_words_up(Captured(rows, ids, place=embedding), ids if text is None else text)
    assert type(found) is bool
    return found


def test_rows_of_the_text_scaled_or_shifted_by_one() -> None:
    ids, other = torch.tensor([[1, 2, 3, 5]]), torch.tensor([[1, 2, 4, 5]])
    table = drawn(6, 3)
    assert looked_up(ids, table[ids])
    assert looked_up(ids, -4.5 * table[ids])
    assert looked_up(ids, table[ids] * 1e-3)
    assert looked_up(ids, (table[ids] * (1 + 1e-5)).float())
    assert not looked_up(ids, table[ids] + 0.1)
    assert not looked_up(ids, table[ids] * torch.tensor([1.0, 1.0, 1.01]))
    assert not looked_up(ids, table[other])
    assert not looked_up(ids, table[ids], text=other)
    assert not looked_up(ids, table[ids][:, :, :2])
    assert not looked_up(ids, table[ids].flatten(1))
    assert looked_up(ids, table[ids], text=torch.tensor([[2, 3, 5, 0]]))  # a decoder's
    assert not looked_up(ids, table[ids], text=torch.tensor([[2, 3, 4, 0]]))
    assert not looked_up(ids, table[ids], text=torch.tensor([[0, 1, 2, 3]]))
    assert not looked_up(ids, table[ids], text=torch.tensor([[2, 3, 5, 0, 0]]))
    assert looks_words_up(Captured(table[ids], None, place=nn.Embedding(6, 3)), ids) is False
    assert looks_words_up(Captured(table[ids], ids, place=nn.Embedding(6, 3)), None) is False
    assert looks_words_up(Captured(table[ids], ids, place=nn.Identity()), ids) is False
    small = nn.Embedding(5, 3)
    assert looks_words_up(Captured(table[ids], ids, place=small), ids) is False  # 5 is no row of it
    six = nn.Embedding(6, 3).double()
    assert looks_words_up(Captured(six.weight.detach()[ids], ids, place=six), ids) is True
    with torch.no_grad():
        six.weight[1] = 0
    assert looks_words_up(Captured(six.weight.detach()[ids] + 1e-6, ids, place=six), ids) is True


# Rules that act, and operations that hide


def test_a_rule_that_is_required_must_meet_something() -> None:
    scope = Scope(ALL, Books(1), {}, {})
    check_met(scope, Demand(ALL))
    with pytest.raises(RuleNotMet, match="'ah'"):
        check_met(scope, Demand(ALL, required=("ah", "ln")))
    with pytest.raises(RuleNotMet, match="'act'"):  # the first by name
        check_met(scope, Demand(ALL, some=True))
    with pytest.raises(RuleNotMet, match="'ln'"):
        check_met(scope, Demand(ALL, required=("ln",), some=True))
    scope.met["ah"] = 2
    check_met(scope, Demand(ALL, some=True))
    check_met(scope, Demand(ALL, required=("ah",)))
    with pytest.raises(RuleNotMet, match="'ln'"):
        check_met(scope, Demand(ALL, required=("ah", "ln"), some=True))
    scope.met["ah"] = 0
    with pytest.raises(RuleNotMet, match="'ah'"):
        check_met(scope, Demand(ALL, required=("ah",)))


class Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2


def test_a_function_of_somebody_else_is_found_wherever_it_lies() -> None:
    x = drawn(3).requires_grad_()
    hidden = Hidden.apply(x * 1)
    after = (x + 1) * (hidden + x)
    scope = Scope(ALL, Books(1), {}, {})
    for ends in ([after], [x * 2, after], [after, x * 2], [hidden]):
        with pytest.raises(HiddenOperation, match=r"\(Hidden\)"):
            check_visible(ends, Demand(ALL), scope)
        check_visible(ends, Demand(NOTHING), scope)
    check_visible([x * 2, x + 1], Demand(ALL), scope)
    scope.known_foreign.add(hidden.grad_fn)
    check_visible([after], Demand(ALL), scope)
    with pytest.raises(HiddenOperation):
        check_visible([Hidden.apply(after)], Demand(ALL), scope)


def test_a_graph_of_many_paths_is_walked_once() -> None:
    """Two to the power of forty ways lead through it."""
    x = drawn(3).requires_grad_() * 1
    for _ in range(40):
        x = x + x
    check_visible([x], Demand(ALL), Scope(ALL, Books(1), {}, {}))


def test_a_custom_function_in_a_model_is_refused_with_its_name() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return Hidden.apply(self.layer(x))

    with pytest.raises(HiddenOperation, match="Hidden"):
        hw.explain(seeded(Model), drawn(1, 3), target=0)


def test_defaults() -> None:
    """What a plain run asks for."""
    demand, run = Demand(ALL), run_of(nn.Identity())
    assert (demand.required, demand.some, demand.backward) == ((), False, True)
    assert (run.seed, run.nothing, run.noise, run.links, run.scope, run.inspect) == (0, None, None, True, Scope, None)
    assert (Known().explained, Known().reads, Known().tables) == ({}, False, None)
    with watch_nothing(Scope(ALL, Books(1), {}, {})):
        pass
