"""The scope, operation by operation: what it calls them, what it hands to them, and what it notes of what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from weighing import drawn, seeded

import headwater as hw
from headwater.engine.forward import KNOWN
from headwater.errors import HiddenOperation
from headwater.rules import OPERATIONS, Books, RuleSet, Scope
from headwater.rules.call import Call, find_signal, is_signal
from headwater.rules.constants import BESIDE_HELD, EnteredConstant, fingerprint_constant, parameter_of
from headwater.rules.cuts import ORIGIN, Choice, Chosen, Origin
from headwater.rules.gradients import check_derivative, only_looking, times, value_of
from headwater.rules.handlers import on
from headwater.rules.lineage import Kind, keep_kind, lineage, lineage_kind, mark
from headwater.rules.python_functions import inside
from headwater.rules.sources import Site, Sort
from headwater.rules.spelling import canonical, positional

ALL = RuleSet(frozenset(("ah", "ln", "act", "gate")))


def acting(model: nn.Module | None = None, samples: int = 1, **more: Any) -> Scope:
    names = {id(p): n for n, p in (*model.named_parameters(), *model.named_buffers())} if model is not None else {}
    modules = {id(m): n for n, m in model.named_modules()} if model is not None else {}
    return Scope(more.pop("rules", ALL), Books(samples), names, modules, **more)


def signal(*shape: int, seed: int = 3) -> Tensor:
    return drawn(*shape or (3, 4), seed=seed).requires_grad_() * 1


def lines(scope: Scope) -> list[tuple[str, Sort]]:
    return [(site.name, site.sort) for site in scope.books.sites]


def amounts(scope: Scope, result: Tensor, weights: Tensor | None = None) -> list[float]:
    """What is booked where each element of a result counts as often as its weight says."""
    (result * (drawn(*result.shape, seed=8) if weights is None else weights)).sum().backward()
    return [float(scope.books.amounts[i].sum()) for i in range(len(scope.books.sites))]


# Names


@pytest.mark.parametrize(
    ("name", "known", "inplace"),
    [
        ("add", "add", False),
        ("add_", "add", True),
        ("__add__", "add", False),
        ("__radd__", "add", False),
        ("__iadd__", "add", True),
        ("__ipow__", "pow", True),
        ("__itruediv__", "div", True),
        ("__rtruediv__", "rdiv", False),
        ("__rsub__", "rsub", False),
        ("__matmul__", "matmul", False),
        ("__getitem__", "getitem", False),
        ("__setitem__", "setitem", True),
        ("concat", "cat", False),
        ("clip_", "clamp", True),
        ("_softmax", "softmax", False),
        ("add.Tensor", "add", False),
        ("add_.Tensor", "add", True),
        ("_weight_norm", "_weight_norm", False),
    ],
)
def test_operations_have_one_name_whatever_their_spelling(name: str, known: str, inplace: bool) -> None:
    assert canonical(name) == (known, inplace)


def test_operands_given_by_name_stand_where_handlers_look() -> None:
    assert positional("add", (1,), {"other": 2, "alpha": 3}) == ((1, 2), {"alpha": 3})
    assert positional("add", (), {"other": 2, "input": 1}) == ((1, 2), {})
    assert positional("where", (1,), {"other": 3, "input": 2}) == ((1, 2, 3), {})
    assert positional("where", (1,), {"other": 3}) == ((1,), {"other": 3})
    assert positional("linear", (1,), {"weight": 2, "bias": 3}) == ((1, 2, 3), {})
    assert positional("relu", (1,), {"inplace": True}) == ((1,), {"inplace": True})


def test_an_argument_of_a_call_by_place_or_by_name() -> None:
    call = Call(max, "max", False, (3, 5), {"key": 7})
    assert [call.get(0, "key"), call.get(1, "key"), call.get(2, "key"), call.get(2, "none", 9)] == [3, 5, 7, 9]
    assert call.get(2, "none") is None
    assert Call(max, "max", False, (3, 5), {}).run() == 5


def test_a_handler_is_registered_under_each_of_its_names() -> None:
    def handler(scope: Scope, call: Call) -> Any: ...

    try:
        assert on("one of ours", "another")(handler) is handler
        assert OPERATIONS["one of ours"] is OPERATIONS["another"] is handler
    finally:
        del OPERATIONS["one of ours"], OPERATIONS["another"]


# Small things


def test_a_product_with_no_gradient_is_zero_even_of_an_infinity() -> None:
    gradient, value = torch.tensor([0.0, 2.0, -1.0]), torch.tensor([-torch.inf, 3.0, torch.inf])
    assert times(gradient, value).tolist() == [0.0, 6.0, -torch.inf]
    assert times(gradient, -torch.inf).tolist() == [0.0, -torch.inf, torch.inf]
    assert times(gradient, 2.0).tolist() == [0.0, 4.0, -2.0]


def test_the_number_of_one_with_the_gradient_of_another() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    value = torch.tensor([5.0, 7.0], requires_grad=True) * 1
    made = value_of(value, gradient_of=4 * x)
    assert made.tolist() == [5.0, 7.0]
    (made * torch.tensor([1.0, 10.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 40.0]
    made.mul_(2)  # it may be written into
    left = torch.tensor([5.0, 7.0], requires_grad=True)
    doubled = left * 2
    value_of(doubled, gradient_of=4 * x)
    assert torch.autograd.grad(doubled.sum(), left)[0].tolist() == [2.0, 2.0]


def test_signals_among_arguments() -> None:
    one, other, constant = signal(), signal(), drawn(2)
    assert [is_signal(value) for value in (one, constant, 3.0, None, [one])] == [True, False, False, False, False]

    def first(*args: Any, **kwargs: Any) -> Any:
        return find_signal(Call(max, "max", False, args, kwargs))

    assert first(constant, one, other) is one
    assert first(constant, [constant, other], one) is other
    assert first((constant,), x=(other,)) is other
    assert first(constant, x=one) is one
    assert first(constant, 3, "text", [constant]) is None


def test_two_numbers_tell_a_constant_from_others() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert fingerprint_constant(x) == (10.0, 1.0 + 4.0 + 9.0 + 16.0)
    assert fingerprint_constant(x.flip(0)) != fingerprint_constant(x)
    assert fingerprint_constant(torch.tensor([torch.nan, 1.0])) == (1.0, 2.0)
    assert fingerprint_constant(2.5) == (2.5, 0.0)
    assert fingerprint_constant(torch.tensor([True, False, True])) == (2.0, 4.0)
    assert fingerprint_constant(torch.tensor([1.0, 2.0], requires_grad=True)) == (3.0, 5.0)
    tiny = torch.full((2,), 1.0, dtype=torch.float32)
    assert fingerprint_constant(tiny + 1e-7) != fingerprint_constant(tiny)


@pytest.mark.parametrize("known", Kind)
@pytest.mark.parametrize("name", ["sigmoid", "mul", "matmul"])
def test_what_a_hidden_activation_has_been_through_goes_along(known: Kind, name: str) -> None:
    source, result, smaller = torch.ones(2), torch.ones(2), torch.ones(1)
    mark(source, known)
    assert keep_kind(result, name, (source,)) is result
    keep_kind(smaller, name, (source,))
    goes = known in (Kind.ACTIVATED, Kind.SHIFTED) and name != "matmul"
    assert lineage_kind(result) is (known if goes else Kind.LINEAR)
    assert lineage_kind(smaller) is Kind.LINEAR
    assert hasattr(result, "_headwater_lineage") is goes
    assert keep_kind(None, name, (source,)) is None
    assert keep_kind(result, name, ()) is result
    assert keep_kind(result, name, (3.0, source)) is result


def test_an_operation_without_a_derivative_is_refused() -> None:
    for result in (signal(), drawn(2), None, [signal()]):
        check_derivative("fine", result)

    class Node:
        def name(self) -> str:
            return "NotImplemented"

    class Packed(Tensor):
        is_quantized = True
        grad_fn = None

    class Result(Tensor):
        is_quantized = False
        grad_fn = Node()  # type: ignore[assignment]

    with pytest.raises(HiddenOperation, match="'packed' has no derivative"):
        check_derivative("packed", Packed())
    with pytest.raises(HiddenOperation, match="'lost' has no derivative"):
        check_derivative("lost", Result())


def test_a_hook_may_look_and_not_change() -> None:
    seen: list[Any] = []
    assert only_looking(seen.append)(torch.ones(2)) is None
    assert len(seen) == 1
    with pytest.raises(HiddenOperation, match="register_hook"):
        only_looking(lambda gradient: gradient)(torch.ones(2))


def test_a_python_function_of_torch_opened_up_is_the_same_function() -> None:
    def add(x: float, y: float = 2, *, z: float = 3) -> float:
        return x + y * z + has_torch_function(x)  # type: ignore[name-defined]  # noqa: F821

    opened = inside(add)
    assert opened(1.0) == 7.0
    assert opened(1.0, 1, z=1) == 2.0
    assert opened.__name__ == "add"

    def closed(x: float) -> float:
        return add.__defaults__[0] + x  # type: ignore[index, return-value]

    assert inside(closed)(1.0) == 3.0
    assert inside(F.softmax) is inside(F.softmax)


# What enters


@pytest.mark.parametrize("sign", [1.0, -1.0, 2.0, 0.0])
@pytest.mark.parametrize(
    "shape", [(4,), (3, 4), (3, 1), (1, 4), (1,), (), (2, 3, 4), (2, 1, 1), (3,)], ids=lambda shape: f"shape {shape}"
)
def test_a_source_is_worth_its_value_times_the_gradient(shape: tuple[int, ...], sign: float) -> None:
    scope, value = acting(), drawn(*shape, seed=5) if shape else drawn(1, seed=5).reshape(())
    result = signal(2, 3, 4) if shape != (3,) else signal(2, 4, 3)
    scope.source(result, value, "add", sign=sign)
    scope.source(result, value, "ours", sign=sign, by_rule=True)
    scope.source(result, 2.5, "number", sign=sign)
    scope.source(result, 0.0, "nothing", sign=sign)
    weights = drawn(*result.shape, seed=8)
    whole = float((sign * value * weights).sum())
    expected = {"add": whole, "ours": whole, **({"number": 2.5 * sign * float(weights.sum())} if sign else {})}
    assert amounts(scope, result, weights) == pytest.approx(list(expected.values()))
    assert lines(scope) == [(name, Sort.CONSTANT) for name in expected]


def test_a_source_enters_as_it_is_where_nothing_is_said_of_its_sign() -> None:
    scope, result = acting(), signal(2, 3)
    scope.source(result, torch.ones(3), "add")
    assert amounts(scope, result, torch.ones(2, 3)) == [6.0]


@pytest.mark.parametrize(
    ("result", "value", "axis"),
    [
        ((3, 4, 5), (4, 5), 0),
        ((3, 3, 5), (3, 5), 0),  # along the second axis the source varies
        ((3, 3, 5), (3, 1, 1), None),
        ((3, 3, 5), (1, 5), None),
        ((3, 5), (5,), 0),
        ((3, 3), (3,), 0),
        ((4, 3), (1,), 1),
        ((3,), (3,), None),
        ((2, 2, 5), (2, 5), 0),
    ],
)
def test_axes_along_which_a_source_varies_are_not_the_samples(
    result: tuple[int, ...], value: tuple[int, ...], axis: int | None
) -> None:
    scope = acting(samples=min(result[0], 3))
    scope.source(signal(*result), drawn(*value), "add")
    assert scope.books.sites[0].axis == axis


def test_a_vector_that_lies_along_the_samples_is_told_apart() -> None:
    scope, result = acting(samples=3), signal(3)
    scope.source(result, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), "add")
    for probe in (None, 0):
        scope.books.probe = probe
        seeds = torch.ones(3) if probe is None else torch.tensor(scope.books.seeds(probe))
        torch.autograd.grad((result * seeds).sum(), result, retain_graph=True)
    scope.books.settle()
    assert scope.books.totals(Sort.CONSTANT)["add"].tolist() == [1.0, 2.0, 3.0]


class Net(nn.Module):
    """Parts by which sources get their names."""

    def __init__(self, body: Callable[[Any, Tensor], Tensor] = lambda m, x: x) -> None:
        super().__init__()
        self.inner, self.table, self.body = nn.Linear(4, 4), nn.Embedding(5, 4), body
        self.weight = nn.Parameter(drawn(4, seed=4))
        self.turn = nn.Parameter(torch.complex(drawn(4, seed=4), drawn(4, seed=5)))
        self.register_buffer("constant", drawn(4, seed=6))
        self.inner.double()
        self.table.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def entered(body: Callable[[Any, Tensor], Tensor], **more: Any) -> Scope:
    model, x = Net(body), signal()
    scope = acting(model, **more)
    with scope:
        model(x)
    return scope


ENTERS: dict[str, tuple[Callable[[Any, Tensor], Tensor], list[tuple[str, Sort]]]] = {
    "a parameter": (lambda m, x: x + m.weight, [("weight", Sort.BIAS)]),
    "a buffer": (lambda m, x: x + m.constant, [("constant", Sort.BIAS)]),
    "made of a parameter": (lambda m, x: x + m.weight.exp() * 2, [("weight", Sort.BIAS)]),
    "made of two": (lambda m, x: x + (m.constant + m.weight), [("constant", Sort.BIAS)]),
    "by name": (lambda m, x: torch.add(input=x, other=m.weight), [("weight", Sort.BIAS)]),
    "in a list": (lambda m, x: torch.cat([x, m.weight[None]]), [("weight", Sort.BIAS)]),
    "looked up": (lambda m, x: x + F.embedding(torch.tensor([1]), m.table.weight), [("table.weight", Sort.CONSTANT)]),
    "looked up and scaled": (
        lambda m, x: x + 2 * F.embedding(torch.tensor([1]), m.table.weight),
        [("table.weight", Sort.CONSTANT)],
    ),
    "looked up by a number": (lambda m, x: x + m.table.weight[1], [("table.weight", Sort.BIAS)]),
    "a number": (lambda m, x: x + 1.0, [("add", Sort.CONSTANT)]),
    "a constant": (lambda m, x: x + torch.ones(4), [("add", Sort.CONSTANT)]),
    "integers of a parameter": (lambda m, x: x + (m.weight > 0), [("add", Sort.CONSTANT)]),
    "a bias": (lambda m, x: m.inner(x), [("inner.bias", Sort.BIAS)]),
    "a real part": (lambda m, x: x + m.turn.real, [("turn", Sort.BIAS)]),
    "an imaginary part": (lambda m, x: x + 2 * m.turn.imag, [("turn", Sort.BIAS)]),
    "a signal by name": (
        lambda m, x: torch.index_copy(m.constant.expand(3, 4), 0, torch.arange(2), source=x[:2]),
        [("index_copy", Sort.CONSTANT)],
    ),
    "the first of two that were cut off": (
        lambda m, x: x + torch.index_add(x.detach(), 0, torch.arange(3), source=x.data),
        [("detach", Sort.CUT_OFF)],
    ),
    "the first of two, by their memory": (
        lambda m, x: x + (torch.from_numpy((x * 2).detach().numpy()) + torch.from_numpy(x.data.numpy())),
        [("detach", Sort.CUT_OFF)],
    ),
}


@pytest.mark.parametrize("name", ENTERS)
def test_what_enters_has_its_name_and_sort(name: str) -> None:
    body, expected = ENTERS[name]
    assert lines(entered(body)) == expected


def test_a_constant_is_named_by_the_module_whose_code_runs() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.twice(x)

        def twice(self, x: Tensor) -> Tensor:
            return deeper(x)

    class Apart:
        def __init__(self, x: Tensor) -> None:
            self.result = x + 3.0

    def deeper(x: Tensor) -> Tensor:
        self = None  # another's name
        return Apart(x + 2.0).result + 1.0 if self is None else x

    model = Net(lambda m, x: m.part(x) + 1.0)
    model.part, x = Inner(), signal()
    scope = acting(model)
    with scope:
        model(x)
    assert lines(scope) == [(f"part: {name}", Sort.CONSTANT) for name in ("add", "add", "add")] + [
        ("add", Sort.CONSTANT)
    ]
    unknown = acting(Net())
    with unknown:
        model(x)
    assert {name for name, _ in lines(unknown)} == {"add"}


def test_weights_are_handed_on_without_gradient_and_once() -> None:
    seen: list[Tensor] = []

    @on("ours to see")
    def see(scope: Scope, call: Call) -> Any:
        seen.extend(value for value in call.args if isinstance(value, Tensor))
        return call.args[0] * 1

    def ours_to_see(*args: Any) -> Any:
        return torch.overrides.handle_torch_function(ours_to_see, args, *args)

    ours_to_see.__name__ = "ours to see"
    try:
        model = Net(lambda m, x: ours_to_see(x, m.weight, m.weight, m.constant, torch.ones(2)))
        scope, x = acting(model), signal()
        with scope:
            model(x)
    finally:
        del OPERATIONS["ours to see"]
    _, one, again, buffer, plain = seen
    assert one is again
    assert (one.requires_grad, one.data_ptr()) == (False, model.weight.data_ptr())
    assert parameter_of(one) is model.weight
    assert parameter_of(buffer) is model.constant
    assert parameter_of(plain) is plain
    assert scope.name_of(one) == "weight"
    assert scope.name_of(buffer) == "constant"
    assert scope.name_of(plain) is scope.name_of(3.0) is None
    scope.release()
    assert scope._frozen == {}


def test_origins_and_what_was_chosen_are_noted_where_they_enter() -> None:
    scope, choice = acting(), Choice()
    scope.books.sites.append(Site("before", Sort.BIAS, 0))

    def label(origin: Origin, name: str | None = None) -> tuple[str, Sort]:
        value = scope.rename(torch.ones(2), name)
        setattr(value, ORIGIN, origin)
        return scope.label(value, "add")

    assert label(Origin("block: detach")) == ("block: detach", Sort.CUT_OFF)
    assert label(Origin("block: detach", choice=choice), "weight") == ("block: detach", Sort.CUT_OFF)
    assert label(Origin("softmax", held=True), "weight") == ("softmax", Sort.HELD)
    assert scope.cuts.chosen == []
    assert label(Origin("block: argmax", choice=choice, value=False), "weight") == ("block: argmax", Sort.CUT_OFF)
    assert label(Origin("topk", True, choice, False)) == ("topk", Sort.CUT_OFF)
    assert label(Origin("topk", True, None, False)) == ("topk", Sort.CUT_OFF)
    assert scope.cuts.chosen == [Chosen(1, choice, "weight", True), Chosen(1, choice, "add", False)]
    assert label(Origin("block: detach"), None) == ("block: detach", Sort.CUT_OFF)


def test_constants_are_noted_where_somebody_compares_them_but_for_whole_parameters() -> None:
    scope = entered(
        lambda m, x: x + m.weight + 2 * m.weight + m.constant + nn.Parameter(torch.full((4,), 0.5)) + 3.0,
        entered=[],
    )
    model_weight, buffer = drawn(4, seed=4), drawn(4, seed=6)
    assert scope.entered == [
        EnteredConstant(1, "weight", fingerprint_constant(2 * model_weight)),
        EnteredConstant(2, "constant", fingerprint_constant(buffer)),
        EnteredConstant(3, "add", (2.0, 5.0)),
        EnteredConstant(4, "add", (3.0, 0.0)),
    ]
    assert set(scope.cuts.nodes) == {0, 1, 2, 3, 4}
    assert entered(lambda m, x: x + 1.0).entered is None
    assert entered(lambda m, x: x + 1.0).cuts.nodes == {}


def test_constants_beside_what_is_held_are_noted_apart() -> None:
    scope = entered(lambda m, x: x + torch.softmax(x, -1) * torch.full((4,), 2.0) * m.weight, entered=[])
    assert [(one.site, one.name) for one in scope.entered or []] == [(BESIDE_HELD, "mul"), (0, "weight")]
    assert lines(scope) == [("softmax", Sort.HELD)]
    scope = entered(lambda m, x: x * (x > torch.full((4,), 2.0)).double(), entered=[])
    assert [(one.site, one.name, one.value) for one in scope.entered or []] == [(BESIDE_HELD, "gt", (8.0, 20.0))]


def test_rules_are_counted_where_they_act() -> None:
    scope = acting(rules=RuleSet(frozenset(("ah", "ln"))))
    assert [scope.applies(rule) for rule in ("ah", "act", "ah", "ln")] == [True, False, True, True]
    assert scope.met == {"ah": 2, "ln": 1}
    assert "ah" in scope.rules
    assert "act" not in scope.rules
    assert ALL.gamma == 0.0
    ways = [("ah", "constant"), ("ah", "half"), ("ah", "secant"), ("ah", "query"), ("ln", "secant")]
    follows = [acting(rules=RuleSet(frozenset((rule,)), attention=how)).follows for rule, how in ways]
    assert follows == [False, False, True, True, False]
    fresh = acting()
    assert (fresh.reads_weights, fresh.fleeting, fresh.entered, fresh.coarsest) == (False, False, None, None)


# What is fleeting


def test_weights_that_are_put_into_their_module_when_it_is_called_have_names() -> None:
    class Offloaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(4, 4).double()
            self.register_buffer("table", drawn(4, seed=2))
            self.shift = nn.Parameter(drawn(4, seed=9))

        def forward(self, x: Tensor) -> Tensor:
            return self.part(x) + self.table + self.shift

    model, x = Offloaded(), signal()
    for fleeting, expected in (
        (True, ["part.bias", "table", "shift"]),
        (False, ["part: linear bias", "add", "add"]),
    ):
        scope = Scope(ALL, Books(1), {}, {id(m): n for n, m in model.named_modules()}, fleeting=fleeting)
        with scope:
            model(x)
        found = [name for name, _ in lines(scope)]
        assert found == expected or (not fleeting and len(found) == 3 and "part.bias" not in found)
        assert scope.name_of(3.0) is None


# Precision


@pytest.mark.parametrize(
    ("types", "coarsest"),
    [
        ((torch.float64,), torch.float64),
        ((torch.float32, torch.float64), torch.float32),
        ((torch.float32, torch.bfloat16, torch.float64), torch.bfloat16),
        ((torch.float16, torch.float32), torch.float16),
        ((torch.bfloat16, torch.float16), torch.bfloat16),
        ((torch.float8_e4m3fn, torch.float32), torch.float32),
    ],
)
def test_the_least_precise_type_of_a_signal_is_noted(types: tuple[torch.dtype, ...], coarsest: torch.dtype) -> None:
    scope, x = acting(), signal()
    with scope:
        for dtype in types:
            x = x.to(dtype)
    assert scope.coarsest is coarsest


def test_types_of_what_is_no_signal_do_not_count() -> None:
    scope, x = acting(), signal()
    with scope:
        torch.ones(2).half() * 2
        (x > 0).to(torch.float16)
        x.long()
        x.detach().half()
        torch.softmax(x, -1).half()
        x + 1
    assert scope.coarsest is torch.float64


# Writing in place


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "a sum": lambda y: y[:, 1:].add_(drawn(3, seed=5)),
    "by a sign": lambda y: y.view(-1).__iadd__(2.0),
    "an activation": lambda y: F.gelu(y[:, :2]).sum() + y[:, 2:].sigmoid_().sum(),
    "a relu": lambda y: y[0].relu_(),
    "an assignment": lambda y: y[:, :2].__setitem__((slice(None), 0), drawn(3, seed=6)),
    "a product": lambda y: y.t().mul_(drawn(3, seed=7)),
    "a part of a part": lambda y: y[1:][:, 1:].sub_(drawn(3, seed=5)),
}


def writing(name: str, in_place: bool) -> Callable[[Tensor], Tensor]:
    def body(x: Tensor) -> Tensor:
        y = x * 1.0
        if in_place:
            WRITES[name](y)
            return y
        z = y.clone()
        return {
            "a sum": lambda: torch.cat([y[:, :1], y[:, 1:] + drawn(3, seed=5)], 1),
            "by a sign": lambda: y + 2.0,
            "an activation": lambda: torch.cat([y[:, :2], y[:, 2:].sigmoid()], 1),
            "a relu": lambda: torch.cat([y[:1].relu(), y[1:]]),
            "an assignment": lambda: torch.cat([drawn(3, seed=6)[:, None], y[:, 1:]], 1),
            "a product": lambda: (y.t() * drawn(3, seed=7)).t(),
            "a part of a part": lambda: torch.cat([y[:1], torch.cat([y[1:, :1], y[1:, 1:] - drawn(3, seed=5)], 1)]),
        }[name]() + 0 * z

    return body


@pytest.mark.parametrize("name", WRITES)
def test_writing_into_a_view_is_as_writing_it_out(name: str) -> None:
    """Relevance and lines, element by element."""
    found = []
    for in_place in (True, False):
        leaf, scope = drawn(3, 4).requires_grad_(), acting()
        x = leaf * 1
        with scope:
            result = writing(name, in_place)(x)
        (result * drawn(3, 4, seed=8)).sum().backward()
        constants = scope.books.totals(Sort.CONSTANT)
        found.append((result.detach().tolist(), leaf.grad.tolist(), sum(float(v.sum()) for v in constants.values())))  # type: ignore[union-attr]
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)
    assert found[0][2] == pytest.approx(found[1][2], abs=1e-12)


def test_what_a_view_has_been_through_goes_along_when_it_is_written_into() -> None:
    y = signal()
    with acting():
        part = y[:2]
        assert part.sigmoid_() is part
        assert lineage_kind(part) is Kind.SHIFTED
        part.mul_(2.0)
        assert lineage_kind(part) is Kind.SHIFTED
        root = lineage(part).root
        part.mul_(2.0)
        assert lineage(part).root is root
        part[0] = 1.0


# What is no operation


def test_gradients_inside_a_model_and_hooks() -> None:
    seen: list[Any] = []
    x = signal()
    with acting():
        y = x * 2
        y.register_hook(seen.append)
        y.register_hook(lambda gradient: None)
        y.register_hook(hook=seen.append)
        torch.ones(2).requires_grad_(False)
    y.sum().backward(retain_graph=True)
    assert len(seen) == 2
    for how in ("args", "kwargs"):
        with acting():
            z = x * 2
            if how == "args":
                z.register_hook(lambda gradient: gradient * 2)
            else:
                z.register_hook(hook=lambda gradient: gradient * 2)
        with pytest.raises(HiddenOperation, match="register_hook"):
            z.sum().backward(retain_graph=True)
    with acting(), pytest.raises(HiddenOperation, match="takes gradients inside"):
        torch.autograd.grad(x.sum(), x)
    with acting(), pytest.raises(HiddenOperation, match="takes gradients inside"):
        x.sum().backward()


def test_data_that_is_exchanged_is_another_tensor() -> None:
    class Exchanging(nn.Module):
        def __init__(self, what: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.weight, self.what = nn.Parameter(drawn(4, seed=4)), what

        def forward(self, x: Tensor) -> Tensor:
            first = x + self.weight
            self.weight.data = self.what(x)
            return first + self.weight

    for what, sorts in (
        (lambda x: torch.ones(4, dtype=torch.float64), [Sort.BIAS, Sort.BIAS]),
        (lambda x: x.detach()[0], [Sort.BIAS, Sort.CUT_OFF]),
    ):
        model, x = Exchanging(what), signal()
        scope = acting(model)
        with scope:
            result = model(x)
        assert [sort for _, sort in lines(scope)] == sorts
        before, after = amounts(scope, result)
        weights = drawn(3, 4, seed=8)
        assert before == pytest.approx(float((weights * drawn(4, seed=4)).sum()))
        assert after == pytest.approx(float((weights * model.weight.detach()).sum()))


def test_numbers_that_are_read_are_noted() -> None:
    scope, x = acting(), signal()
    with scope:
        torch.ones(3).tolist()
        float(torch.ones(()))
        assert not scope.cuts.unclear()
        x.detach().tolist()
        assert scope.cuts.unclear()


def test_properties_that_are_operations() -> None:
    scope, x = acting(), signal()
    with scope:
        mark(x, Kind.SHIFTED)
        for turned in (x.T, x.mT, x.H, x.mH):
            assert lineage_kind(turned) is Kind.SHIFTED
        assert getattr(x.data, ORIGIN).name == "data"
        assert x.shape == (3, 4)
        assert not hasattr(x.grad_fn, ORIGIN)
        x.requires_grad  # noqa: B018
        assert x.data_ptr() == x.data.data_ptr()


def test_a_fused_layer_is_refused() -> None:
    def flex_attention(x: Tensor) -> Any:
        return torch.overrides.handle_torch_function(flex_attention, (x,), x)

    x = signal()
    with acting(), pytest.raises(HiddenOperation, match="flex_attention"):
        flex_attention(x)


def test_a_checkpoint_keeps_what_the_rules_had() -> None:
    class Kept(nn.Module):
        def __init__(self, kept: bool) -> None:
            super().__init__()
            self.one, self.two, self.head, self.kept = nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 2), kept

        def inner(self, x: Tensor) -> Tensor:
            return self.two(F.gelu(self.one(x)) + 1.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.inner, x, use_reentrant=False) if self.kept else self.inner(x))

    x = drawn(2, 4)
    plain, kept = (hw.explain(seeded(lambda k=k: Kept(k)), x, target=0) for k in (False, True))
    for a, b in zip(plain, kept, strict=True):
        assert a.relevance.tolist() == b.relevance.tolist()
        assert dict(a.ledger.biases) == dict(b.ledger.biases)
        assert sum(a.ledger.constants.values()) == sum(b.ledger.constants.values())
        assert a.ledger.error < 1e-12


def test_nothing_of_a_run_keeps_the_model_alive() -> None:
    import gc
    import weakref

    model = seeded(lambda: Net(lambda m, x: m.inner(x)[:, :2].sum(1)))
    e = hw.explain(model, drawn(1, 3, 4), score=lambda out: out.sum(1))
    gone = weakref.ref(model)
    assert model in KNOWN
    del model
    gc.collect()
    assert gone() is None
    assert e[0].ledger.closed


def test_what_a_model_asks_of_a_parameter_is_answered_for_the_parameter() -> None:
    model = Net()
    with acting(model):
        assert model.weight.requires_grad
        assert model.weight.is_leaf
        assert model.weight.grad is None


def doubled(x: Tensor) -> Tensor:
    """As functions in Python are that hand over to overrides by another name than torch's own do."""
    if torch.overrides.has_torch_function_unary(x):
        return torch.overrides.handle_torch_function(doubled, (x,), x)  # type: ignore[no-any-return]
    return x * 2


def test_a_function_that_hands_over_again_is_run_as_it_is() -> None:
    x = signal()
    with acting():
        result = doubled(x)
    assert result.tolist() == (2 * x).tolist()


def test_what_a_choice_takes_of_a_signal_is_noted_from_the_first_on() -> None:
    x, scope = signal(), acting()
    with scope:
        taken = x.gather(1, x.argmax(-1, keepdim=True))
    assert list(scope.cuts.selected) == [taken.grad_fn]
    assert scope.cuts.memory == {}
    with scope:
        x.detach()
    assert len(scope.cuts.memory) == 1
    scope.release()
    assert (scope.cuts.memory, scope.cuts.selected) == ({}, {})


def test_tensors_that_wait_go_through_the_hooks_that_somebody_has_set() -> None:
    x, packed = signal(), []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), acting():
        x.exp() * 2
        x @ torch.ones(4, 2, dtype=torch.float64)
    assert len(packed) > 0


def test_an_operation_may_be_given_everything_by_name() -> None:
    x = signal(3, 3)
    with acting():
        assert torch.linalg.diagonal(A=x).tolist() == x.diagonal().tolist()
