"""What is known of a tensor that was made from the input and has no gradient: each step of the way on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weighing import drawn, seeded

import headwater as hw
from headwater.rules.cuts import (
    ORIGIN,
    Choice,
    Chosen,
    Cuts,
    Origin,
    before,
    chooses,
    make_held_origin,
    merge,
    numbers_of,
    tensors,
)

CUT, OTHER = Origin("block: detach"), Origin("block: round")
HELD = make_held_origin("softmax")


def followed() -> Cuts:
    return Cuts(lambda: "block")


def signal(*shape: int) -> Tensor:
    return 2 * torch.randn(*shape or (3, 4), dtype=torch.float64).requires_grad_()


def marked(origin: Origin, *shape: int) -> Tensor:
    made = torch.ones(*shape or (3, 4), dtype=torch.float64)
    setattr(made, ORIGIN, origin)
    return made


def chosen_by(choice: Choice | None = None, *, integers: bool = False) -> Tensor:
    """What holds nothing but the outcome of a choice."""
    made = marked(Origin("block: argmax", choice=choice or Choice(), value=False))
    return made if not integers else with_origin(made.long(), getattr(made, ORIGIN))


def with_origin(tensor: Tensor, origin: Origin) -> Tensor:
    setattr(tensor, ORIGIN, origin)
    return tensor


def of(tensor: Any) -> Origin | None:
    return getattr(tensor, ORIGIN, None)


# Two origins


def test_what_was_cut_off_counts_before_what_is_held_and_both_before_a_choice() -> None:
    choice = Origin("argmax", choice=Choice(), value=False)
    for one, other, wins in ((CUT, HELD, CUT), (HELD, choice, HELD), (CUT, choice, CUT)):
        for found in (merge(one, other), merge(other, one)):
            assert found is not None
            assert (found.name, found.held, found.value) == (wins.name, wins.held, True)


def test_of_two_alike_the_first_is_named() -> None:
    assert merge(CUT, OTHER) is CUT
    assert merge(OTHER, CUT) is OTHER
    assert merge(CUT, CUT) is CUT
    assert merge(CUT, None) is merge(None, CUT) is CUT
    assert merge(None, None) is None


def test_a_choice_that_took_part_stays_known() -> None:
    ours, theirs = Choice(), Choice()
    by_choice = Origin("argmax", choice=ours, value=False)
    for found in (merge(CUT, by_choice), merge(by_choice, CUT)):
        assert found == replace(CUT, choice=ours)
    own = replace(CUT, choice=theirs)
    assert merge(own, by_choice) is merge(by_choice, own) is own
    assert merge(own, HELD) is own


# What a tensor is


def test_a_tensor_has_the_origin_it_carries_or_that_of_its_memory() -> None:
    cuts = followed()
    plain, memory = torch.ones(4), torch.ones(4)
    assert cuts.of(plain) is cuts.of(3.0) is None
    cuts.pass_on(memory, CUT, "add", (memory,))
    assert cuts.of(memory) is CUT
    assert cuts.of(memory.view(2, 2)[1]) is CUT
    assert cuts.of(plain) is cuts.of(3.0) is cuts.of(None) is None
    assert cuts.of(memory.view(4).requires_grad_()) is None
    view = with_origin(memory.view(2, 2), OTHER)
    assert cuts.of(view) is OTHER


def test_memory_that_was_given_back_says_nothing() -> None:
    cuts = followed()
    gone = torch.ones(4)
    cuts.pass_on(gone, CUT, "add", (gone,))
    address = gone.untyped_storage().data_ptr()
    del gone
    assert address in cuts.memory
    new = torch.ones(4)
    cuts.memory[new.untyped_storage().data_ptr()] = cuts.memory.pop(address)
    assert cuts.of(new) is None


def test_a_tensor_without_memory_has_no_origin() -> None:
    cuts = followed()
    empty = torch.eye(3).to_sparse()
    cuts.pass_on(torch.ones(4), CUT, "add", ())
    cuts.pass_on(empty, CUT, "add", ())
    delattr(empty, ORIGIN)
    assert cuts.of(empty) is None
    assert cuts.of(torch.eye(3).to_sparse()) is None


def test_where_no_gradient_is_made_a_signal_has_an_origin_too() -> None:
    cuts, parameter = followed(), torch.nn.Parameter(torch.ones(2))
    assert cuts.of_any((parameter, torch.ones(2), 3, None)) is None
    alive = signal()
    with torch.no_grad():
        assert cuts.of_any([alive]) == Origin("block: no_grad")
    with torch.inference_mode():
        assert cuts.of_any({"x": (alive,)}) == Origin("block: inference_mode")
    assert cuts.of_any((marked(CUT), marked(OTHER))) is CUT
    assert cuts.of_any((marked(CUT), signal())) is CUT
    assert cuts.of_any((signal(), marked(CUT))) == Origin("block: no_grad")
    assert cuts.of_any((parameter, marked(HELD))) is HELD
    assert Cuts(lambda: "").of_any((signal(),)) == Origin("no_grad")


def test_of_constants_alone() -> None:
    cuts = followed()
    assert cuts.of_constants((with_origin(signal(), OTHER), torch.ones(2))) is None
    assert cuts.of_constants((signal(), marked(CUT), marked(OTHER))) is CUT
    made, plain = torch.ones(2), torch.ones(2)
    assert cuts.carry(made, (signal(), marked(CUT))) is made
    assert cuts.carry(plain, (signal(), torch.ones(2))) is plain
    assert (of(made), of(plain)) == (CUT, None)
    index = of(cuts.carry(torch.ones(2, dtype=torch.long), (marked(CUT),)))
    assert index is not None
    assert (index.value, type(index.choice)) == (False, Choice)


# On constants


def passed(name: str, result: Any, *args: Any, inplace: bool = False, origin: Origin = CUT) -> tuple[Cuts, Any]:
    cuts = followed()
    cuts.pass_on(result, origin, name, args, inplace=inplace)
    return cuts, of(result)


def test_an_operation_hands_its_origin_on() -> None:
    assert passed("exp", torch.ones(2), marked(CUT))[1] is CUT
    for parts in ([torch.ones(2), torch.ones(3)], (torch.ones(2), torch.ones(3)), {"a": torch.ones(2)}):
        passed("split", parts, marked(CUT))
        assert all(of(part) is CUT for part in tensors(parts))
    alive = signal()
    assert passed("exp", alive, marked(CUT))[1] is None


@pytest.mark.parametrize("name", ["zeros_like", "new_zeros", "size"])
def test_of_a_shape_no_numbers_come(name: str) -> None:
    first = marked(CUT)
    cuts, found = passed(name, torch.zeros(2), first, 3.0)
    assert (found, of(first), cuts.memory) == (None, CUT, {})


def test_numbers_beside_a_shape_are_used() -> None:
    assert passed("new_tensor", torch.ones(2), marked(CUT), marked(OTHER))[1] is OTHER


@pytest.mark.parametrize("name", ["copy", "fill", "zero"])
def test_what_is_written_over_is_forgotten(name: str) -> None:
    cuts, target = followed(), torch.ones(4)
    cuts.pass_on(target, CUT, "add", (target,))
    view = target.view(4)
    cuts.pass_on(target, CUT, name, (target, torch.ones(4)), inplace=True)
    assert (of(target), cuts.of(target), cuts.of(view)) == (None, None, None)
    cuts.pass_on(target, CUT, "add", (target,))
    cuts.pass_on(target, CUT, name, (target, marked(OTHER, 4)), inplace=True)
    assert cuts.of(target) is OTHER


def test_what_was_never_cut_off_may_be_written_over() -> None:
    cuts, target = followed(), torch.ones(4)
    cuts.pass_on(torch.ones(2), CUT, "add", ())
    cuts.pass_on(target, CUT, "copy", (target, torch.ones(4)), inplace=True)
    assert cuts.of(target) is None


def test_a_part_that_is_written_over_says_nothing_of_the_rest() -> None:
    cuts, whole = followed(), torch.ones(4)
    cuts.pass_on(whole, CUT, "add", (whole,))
    part = whole[1:]
    cuts.pass_on(part, CUT, "fill", (part, 0.0), inplace=True)
    assert of(part) is None
    assert cuts.of(whole.view(2, 2)) is CUT


def test_what_is_written_into_has_the_origin() -> None:
    target, read = torch.ones(4), marked(CUT, 4)
    passed("add", torch.ones(4), target, read, inplace=True)
    assert of(target) is CUT
    target = torch.ones(4)
    passed("add", torch.ones(4), target, read)
    assert of(target) is None


def test_memory_is_remembered_of_what_was_cut_off_and_of_nothing_else() -> None:
    chosen = Origin("argmax", choice=Choice(), value=False)  # integers that became numbers again, say
    for origin, remembered in ((CUT, 1), (HELD, 0), (chosen, 1)):
        assert len(passed("add", torch.ones(4), origin=origin)[0].memory) == remembered
    assert len(passed("add", torch.ones(4, dtype=torch.long), origin=chosen)[0].memory) == 0
    assert len(passed("add", torch.ones(4), origin=Origin("argmax", True, Choice(), False))[0].memory) == 0


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.int8])
def test_integers_are_the_outcome_of_a_choice(dtype: torch.dtype) -> None:
    found = passed("argmax", torch.ones(2, dtype=dtype), marked(CUT))[1]
    assert (found.name, found.value, type(found.choice)) == (CUT.name, False, Choice)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.complex64])
def test_numbers_are_no_choice(dtype: torch.dtype) -> None:
    assert passed("exp", torch.ones(2, dtype=dtype), marked(CUT))[1] is CUT
    assert not chooses(torch.ones(2, dtype=dtype))
    assert not chooses(3)
    assert chooses((torch.ones(2, dtype=dtype), torch.ones(2, dtype=torch.long)))


def test_all_choices_by_one_tensor_are_one() -> None:
    cuts, source, another = followed(), marked(CUT), marked(CUT)
    results = [torch.ones(2, dtype=torch.long) for _ in range(4)]
    for result, args in zip(results, ((source,), (torch.ones(2), source), (signal(), source), (another,)), strict=True):
        cuts.pass_on(result, CUT, "argmax", args)
    first, second, third, fourth = (of(one).choice for one in results)  # type: ignore[union-attr]
    assert first is second
    assert len({first, third, fourth}) == 3
    again = torch.ones(2, dtype=torch.long)
    cuts.pass_on(again, of(results[3]), "add", (source,))  # type: ignore[arg-type]
    assert of(again).choice is fourth  # type: ignore[union-attr]


def test_a_choice_of_which_nothing_is_known_is_its_own() -> None:
    cuts = followed()
    one, other = torch.ones(2, dtype=torch.long), torch.ones(2, dtype=torch.long)
    for result in (one, other):
        cuts.pass_on(result, CUT, "argmax", ())
    assert of(one).choice is not of(other).choice  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["matmul", "linear", "einsum", "scaled_dot_product_attention", "addmm", "baddbmm"])
def test_values_that_were_looked_up_and_are_summed_stay_looked_up(name: str) -> None:
    values = chosen_by()
    assert passed(name, torch.ones(2), marked(CUT), values)[1] is of(values)
    assert passed(name, torch.ones(2), values, torch.ones(2), marked(HELD))[1] is of(values)
    assert passed(name, torch.ones(2), marked(CUT), torch.ones(2))[1] is CUT


def test_values_that_their_own_choice_weighs_are_a_mixture() -> None:
    choice = Choice()
    weights, values = marked(replace(CUT, choice=choice)), chosen_by(choice)
    assert passed("matmul", torch.ones(2), weights, values)[1] is CUT
    assert passed("matmul", torch.ones(2), weights, marked(OTHER), values)[1] is CUT
    assert passed("mul", torch.ones(2), marked(CUT), chosen_by())[1] is CUT


def test_integers_and_signals_are_no_values_of_a_sum() -> None:
    looked_up = Origin("argmax", choice=Choice(), value=False)
    assert passed("matmul", torch.ones(2), marked(CUT), chosen_by(integers=True))[1] is CUT
    assert passed("matmul", torch.ones(2), marked(CUT), with_origin(signal(), looked_up))[1] is CUT


# On signals


def lost(
    name: str, result: Any, *args: Any, given: Origin | None = None, by_rule: bool = False, cuts: Cuts | None = None
) -> Origin | None:
    cuts = cuts or followed()
    cuts.lose(result, name, args, given, by_rule=by_rule)
    return of(result)


def test_a_signal_that_lost_its_gradient_names_module_and_operation() -> None:
    cuts, result = followed(), torch.ones(4)
    assert lost("round", result, signal(), cuts=cuts) == Origin("block: round")
    assert cuts.of(result.view(2, 2)) == Origin("block: round")
    assert lost("round", signal(), signal()) is None


def test_a_rule_that_holds_is_named_without_a_module_and_its_memory_is_not_remembered() -> None:
    cuts, result = followed(), torch.ones(4)
    assert lost("softmax", result, signal(), by_rule=True, cuts=cuts) == HELD
    parts = [torch.ones(2), torch.ones(2)]
    lost("softmax", parts, signal(), by_rule=True, cuts=cuts)
    assert [of(part) for part in parts] == [HELD, HELD]
    assert cuts.memory == {}


@pytest.mark.parametrize("by_rule", [False, True])
def test_a_choice_by_a_signal(by_rule: bool) -> None:
    cuts, source = followed(), signal()
    found = lost("argmax", torch.ones(2, dtype=torch.long), source, by_rule=by_rule, cuts=cuts)
    assert found is not None
    assert (found.held, found.value, cuts.memory) == (by_rule, False, {})
    assert found.name == ("argmax" if by_rule else "block: argmax")
    values, order = signal(2), torch.ones(2, dtype=torch.long)
    cuts.lose((values, order), "max", (source,), None, by_rule=by_rule)
    assert of(order).choice is found.choice  # type: ignore[union-attr]
    assert of(values) is None
    assert cuts.selected == {values.grad_fn: found.choice}


def test_what_has_no_choice_selects_nothing() -> None:
    cuts = followed()
    cuts.lose([signal(2), torch.ones(2)], "split", (signal(),), None, by_rule=False)
    cuts.lose([signal(2), signal(2)], "split", (signal(),), None, by_rule=False)
    cuts.lose(torch.ones(2, dtype=torch.long), "argmax", (signal(),), None, by_rule=False)
    assert cuts.selected == {}


def test_the_shape_of_a_signal_is_no_number_of_it() -> None:
    cuts = followed()
    assert lost("zeros_like", torch.ones(2), signal(), cuts=cuts) is None
    assert lost("zeros_like", torch.ones(2), with_origin(signal(), OTHER), given=CUT, cuts=cuts) is None
    assert lost("new_tensor", torch.ones(2), signal(), marked(CUT), given=CUT, cuts=cuts) is CUT
    assert lost("new_full", torch.ones(2), signal(), (2,), marked(OTHER), given=OTHER, cuts=cuts) is OTHER


def test_what_met_a_cut_is_of_that_cut() -> None:
    cuts, mask = followed(), torch.ones(2, dtype=torch.bool)
    found = lost("gt", mask, signal(), marked(CUT), given=CUT, cuts=cuts)
    assert (found.name, found.value) == (CUT.name, False)  # type: ignore[union-attr]
    assert lost("softmax", torch.ones(2), signal(), marked(CUT), given=CUT, by_rule=True) is CUT
    assert lost("gt", torch.ones(2), signal(), marked(HELD), given=HELD) == Origin("block: gt")
    looked_up = chosen_by()
    assert lost("gt", torch.ones(2), signal(), looked_up, given=of(looked_up)) == Origin("block: gt")


@pytest.mark.parametrize("name", ["to", "type_as", "expand_as"])
def test_a_constant_in_the_shape_of_a_signal_is_what_it_was(name: str) -> None:
    for by_rule in (False, True):
        assert lost(name, torch.ones(2), torch.ones(2), signal(), by_rule=by_rule) is None
        assert lost(name, torch.ones(2), marked(CUT), signal(), given=CUT, by_rule=by_rule) is CUT
        assert lost(name, torch.ones(2), marked(HELD), signal(), given=HELD, by_rule=by_rule) is HELD
    assert lost(name, torch.ones(2), signal(), marked(CUT), given=CUT) == Origin(f"block: {name}")
    assert lost(name, torch.ones(2, dtype=torch.long), signal(), by_rule=True).held  # type: ignore[union-attr]
    assert lost(name, torch.ones(2), by_rule=True) == Origin(name, held=True)


def test_a_weight_that_a_choice_selected_is_that_choices_though_a_rule_holds_it() -> None:
    cuts, choice, other = followed(), Choice(), Choice()
    selected = signal()
    cuts.selected[selected.grad_fn] = choice
    after = 3 * selected
    assert lost("sigmoid", torch.ones(2), after, by_rule=True, cuts=cuts) == Origin("sigmoid", True, choice)
    assert lost("sigmoid", torch.ones(2), signal(), by_rule=True, cuts=cuts) == Origin("sigmoid", True)
    given = Origin("softmax", True, other)
    assert lost("div", torch.ones(2), after, marked(given), given=given, by_rule=True, cuts=cuts) == Origin(
        "div", True, other
    )
    assert lost("div", torch.ones(2), signal(), marked(given), given=given, by_rule=True) == Origin("div", True, other)
    assert lost("div", torch.ones(2), after, marked(HELD), given=HELD, by_rule=True, cuts=cuts).choice is choice  # type: ignore[union-attr]


def test_held_weights_over_values_that_were_looked_up_are_looked_up() -> None:
    values = chosen_by()
    assert lost("matmul", torch.ones(2), signal(), values, given=of(values), by_rule=True) is of(values)
    assert lost("mul", torch.ones(2), signal(), values, given=of(values), by_rule=True).held  # type: ignore[union-attr]


def test_selection_is_not_seen_through_a_linear_layer() -> None:
    cuts, choice = followed(), Choice()
    selected = signal(3, 4)
    cuts.selected[selected.grad_fn] = choice
    layer = selected @ torch.ones(4, 4, dtype=torch.float64)
    assert lost("sigmoid", torch.ones(2), layer, by_rule=True, cuts=cuts).choice is None  # type: ignore[union-attr]


# Choices that weigh


def weighing(name: str, operation: Callable[..., Tensor], *args: Tensor, cuts: Cuts, origin: Origin | None) -> Tensor:
    result = operation(*args)
    cuts.meet(result, name, args, origin)
    return result


@pytest.mark.parametrize(("name", "weighs"), [("mul", True), ("matmul", True), ("add", False), ("where", False)])
def test_a_chosen_number_that_multiplies_a_signal_weighs(name: str, weighs: bool) -> None:
    cuts, choice, entered = followed(), Choice(), signal()
    cuts.place(entered, [5])
    factor = 3 * entered
    weight = marked(Origin("block: topk", choice=choice))
    weighing(name, torch.mul, factor, weight, cuts=cuts, origin=of(weight))
    assert choice.weighs is weighs
    assert cuts.is_weighed(5) is cuts.is_weighed(5, choice) is weighs
    assert not cuts.is_weighed(5, Choice())
    assert not cuts.is_weighed(6)


def test_what_was_looked_up_does_not_weigh_by_itself() -> None:
    cuts, values = followed(), chosen_by()
    weighing("mul", torch.mul, signal(), values, cuts=cuts, origin=of(values))
    weighing("mul", torch.mul, signal(), marked(CUT), cuts=cuts, origin=CUT)
    weighing("mul", torch.mul, signal(), signal(), cuts=cuts, origin=None)
    assert not of(values).choice.weighs  # type: ignore[union-attr]
    assert cuts.weighed == []


def test_a_selected_signal_weighs_the_other_factor_and_not_itself() -> None:
    cuts, choice, value = followed(), Choice(), signal()
    weight = signal()
    cuts.place(value, [1])
    cuts.place(weight, [2])
    cuts.selected[weight.grad_fn] = choice
    weighing("add", torch.add, 2 * weight, 2 * value, cuts=cuts, origin=None)
    assert not choice.weighs
    weighing("mul", torch.mul, 2 * weight, torch.ones(3, 4), cuts=cuts, origin=None)
    assert not choice.weighs
    weighing("mul", torch.mul, 2 * weight, 2 * value, cuts=cuts, origin=None)
    assert choice.weighs
    assert (cuts.is_weighed(1), cuts.is_weighed(2)) == (True, False)


@pytest.mark.parametrize(("name", "selects"), [("gather", True), ("getitem", True), ("mul", True), ("add", False)])
def test_what_a_choice_took_of_a_signal_is_selected(name: str, selects: bool) -> None:
    cuts, choice = followed(), Choice()
    index = Origin("block: argmax", choice=choice, value=False)
    result = weighing(name, torch.mul, signal(), torch.ones(3, 4), cuts=cuts, origin=index)
    assert cuts.selected == ({result.grad_fn: choice} if selects else {})
    done = Choice()
    done.weighs = True
    weighing(name, torch.mul, signal(), torch.ones(3, 4), cuts=cuts, origin=replace(index, choice=done))
    assert done not in cuts.selected.values()
    cuts.meet([result, torch.ones(2)], name, (), replace(CUT, choice=None))
    assert len(cuts.selected) == selects


def test_what_was_chosen_is_placed_where_it_enters_and_only_once() -> None:
    cuts, choice = followed(), Choice()
    index = Origin("block: argmax", choice=choice, value=False)
    cuts.chosen = [Chosen(2, choice, "table", True), Chosen(4, choice, "table", True)]
    cuts.nodes[2] = before_it = object()
    result = weighing("add", torch.mul, signal(), torch.ones(3, 4), cuts=cuts, origin=index)
    assert cuts.nodes == {2: before_it, 4: result.grad_fn}
    cuts.place(torch.ones(2), [7])
    cuts.place((result,), [8])
    assert set(cuts.nodes) == {2, 4}


# Numbers that leave torch


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.float64])
def test_numbers_read_of_what_depends_on_the_input_are_noted(dtype: torch.dtype) -> None:
    cuts = followed()
    cuts.read(with_origin(torch.ones(2).to(dtype), CUT))
    cuts.read(torch.ones(2).to(dtype))
    cuts.read(torch.nn.Parameter(torch.ones(2)))
    cuts.read(None)
    assert cuts.reads == ([] if dtype is torch.bool else [None])
    assert cuts.unclear() is (dtype is not torch.bool)
    assert cuts.memory == {}


def test_the_memory_of_a_signal_that_is_read_is_remembered() -> None:
    cuts, read = followed(), signal()
    cuts.read(read)
    assert (cuts.reads, cuts.unclear()) == ([None], True)
    assert cuts.of(read.detach()) == Origin("block: numbers read")
    assert of(read) is None
    turned = torch.view_as_complex(torch.stack([read, read], -1))
    cuts.read(turned)
    assert cuts.of(turned.detach()) == Origin("block: numbers read")


def test_an_index_that_is_read_is_clear_once_its_choice_weighs() -> None:
    cuts, index = followed(), chosen_by(integers=True)
    choice = of(index).choice  # type: ignore[union-attr]
    cuts.read(index)
    assert (cuts.reads, cuts.unclear()) == ([choice], True)
    choice.weighs = True  # type: ignore[union-attr]
    assert not cuts.unclear()
    assert not followed().unclear()
    cuts.read(marked(Origin("block: topk", choice=choice)))  # numbers are more than the choice that took part
    assert (cuts.reads, cuts.unclear()) == ([choice, None], True)


def test_nothing_is_kept_of_a_run_that_is_over() -> None:
    cuts, made = followed(), signal()
    cuts.selected[made.grad_fn] = Choice()
    cuts.place(made, [1])
    cuts.read(made)
    weight = marked(Origin("block: topk", choice=Choice()))
    weighing("mul", torch.mul, made, weight, cuts=cuts, origin=of(weight))
    assert cuts.selected and cuts.memory and cuts.weighed and cuts.nodes  # noqa: PT018
    cuts.release()
    assert (cuts.selected, cuts.memory, cuts.weighed, cuts.nodes) == ({}, {}, [], {})


# The graph


def test_the_nearest_nodes_come_first_each_once_and_no_further_than_asked() -> None:
    x = signal()
    y = x + 1
    z = y * y
    nodes = list(before(z, 100))
    assert nodes[:2] == [z.grad_fn, y.grad_fn]
    assert len(nodes) == len(set(nodes)) == 4  # the product, the sum, 2 * leaf, the leaf
    assert list(before(z, 2)) == nodes[:2]
    assert [node.name() for node in before(z, 100, ("Add",))] == ["MulBackward0", "AddBackward0"]
    assert list(before(torch.ones(2), 100)) == []


def test_operands_whose_numbers_are_used() -> None:
    one, two, more = object(), object(), {"alpha": 2}
    assert numbers_of("add", (one, two), more) == ((one, two), more)
    assert numbers_of("to", (one, two), more) == (one,)
    assert numbers_of("zeros_like", (one, two), more) == ((two,), more)


def test_tensors_inside_a_value() -> None:
    a, b, c, d = (torch.ones(n) for n in range(1, 5))
    assert [len(t) for t in tensors([a, (b, {"x": c, "y": [d, 3, None, "text"]})])] == [1, 2, 3, 4]


# In a model


class Model(nn.Module):
    """head(hidden(x)); `hidden` may use a constant."""

    def __init__(self, hidden: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.head, self.hidden = nn.Linear(4, 4), nn.Linear(4, 2), hidden
        self.register_buffer("constant", drawn(3, 4, seed=6))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self, x))


def out_of(m: Any, x: Tensor, without_gradient: bool) -> Tensor:
    room, constant = torch.zeros_like(x), m.constant * 1.0
    with torch.set_grad_enabled(not without_gradient):
        torch.mul(constant, x if without_gradient else x.detach(), out=room)
    return m.layer(x) * room + constant


def filled(m: Any, x: Tensor, without_gradient: bool) -> Tensor:
    room = x.detach() * 1.0
    with torch.set_grad_enabled(not without_gradient):
        torch.fill_(input=room, value=2.0)
    return m.layer(x) + room


def bent(m: Any, x: Tensor, without_gradient: bool) -> Tensor:
    room = x.detach() * 1.0
    with torch.set_grad_enabled(not without_gradient):
        torch.sigmoid_(input=room)
    return m.layer(x) + room


@pytest.mark.parametrize("without_gradient", [False, True])
@pytest.mark.parametrize("how", [out_of, filled])
def test_what_is_only_read_or_written_over_stays_a_constant(how: Callable[..., Tensor], without_gradient: bool) -> None:
    model = seeded(lambda: Model(lambda m, x: how(m, x, without_gradient)))
    for e in hw.explain(model, drawn(3, 4), target=0):
        assert e.ledger.closed, e.ledger.why
        assert not e.ledger.cut_off


@pytest.mark.parametrize("without_gradient", [False, True])
def test_what_is_written_into_by_name_stays_cut_off(without_gradient: bool) -> None:
    model = seeded(lambda: Model(lambda m, x: bent(m, x, without_gradient)))
    x = drawn(3, 4)
    for i, e in enumerate(hw.explain(model, x, target=0)):
        amount = float((torch.sigmoid(x[i]) * model.head.weight[0].detach()).sum())
        assert dict(e.ledger.cut_off) == pytest.approx({"detach": amount})
