"""The tool that puts faults into rules: which ones it makes of a piece of code, and which it leaves alone."""

from __future__ import annotations

import ast

from mutating import mutants_of

SOURCE = b'''
"""A docstring with 1 number."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 3

SIZE = 4


@on("add", "sub")
def rule(scope, x: "tuple[int, 2]", eps=1e-5):
    """Another, of 2."""
    if x.dim() > 1 and eps is not None:
        raise ValueError(f"{x} has {1 + 1} axes")
    with torch.no_grad():
        y = x.detach() * -eps
    total(x, y)
    count += 1
    return call.get(1, "dim")
'''


def made(source: bytes = SOURCE) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for one in mutants_of(source, "file.py"):
        found.setdefault(one.operator, set()).add((one.before, one.after))
    return found


def test_every_kind_of_fault_is_made() -> None:
    found = made()
    assert {("x.dim() > 1", "(x.dim() <= 1)"), ("x.dim() > 1", "(x.dim() >= 1)")} <= found["comparison"]
    assert ("eps is not None", "(eps is None)") in found["comparison"]
    whole = "x.dim() > 1 and eps is not None"
    assert found["boolean"] == {
        (whole, f"({whole.replace('and', 'or')})"),
        (whole, "(eps is not None)"),
        (whole, "(x.dim() > 1)"),
    }
    assert found["negated"] == {(whole, f"(not ({whole}))")}
    assert ("x.detach() * -eps", "(x.detach() / -eps)") in found["arithmetic"]
    assert ("count += 1", "count -= 1") in found["arithmetic"]
    assert found["unary"] == {("-eps", "(eps)")}
    assert {("4", "(4 + 1)"), ("4", "0"), ("1e-5", "(1e-05 + 1)"), ("1e-5", "0.0")} <= found["number"]
    assert found["call removed"] == {("x.dim()", "(x)")}
    assert found["swapped"] == {("total(x, y)", "total(y, x)")}
    assert {("total(x, y)", "pass"), ("count += 1", "pass")} <= found["removed"]
    assert any(after == "pass" and before.startswith("raise") for before, after in found["removed"])
    assert any("nullcontext" in after and before == "torch.no_grad()" for before, after in found["removed"])
    assert found["return"] == {('return call.get(1, "dim")', "return None")}
    assert found["key"] == {('call.get(1, "dim")', "call.get(1, 'nothing')")}
    assert found["name dropped"] == {('"add"', '"nothing"'), ('"sub"', '"nothing"')}


def test_what_says_nothing_at_run_time_is_left_alone() -> None:
    """Docstrings, annotations, what is raised, types for the checker alone; and `detach` where no gradient is made."""
    texts = {before for pairs in made().values() for before, _ in pairs}
    assert not texts & {"3", "2", "1 + 1", "x.detach()", '"tuple[int, 2]"'}


def test_a_fault_is_one_change_that_is_still_python() -> None:
    for one in mutants_of(SOURCE, "file.py"):
        changed = one.put_into(SOURCE)
        assert changed != SOURCE
        ast.parse(changed)


def test_keys_are_apart_and_stay_where_lines_move() -> None:
    keys = [one.key for one in mutants_of(SOURCE, "file.py")]
    assert len(set(keys)) == len(keys)
    assert [one.key for one in mutants_of(b"# a comment\n" + SOURCE, "file.py")] == keys


def test_a_fault_in_a_function_can_be_exchanged_and_one_outside_acts_on_import() -> None:
    paths = {one.before: one.path for one in mutants_of(SOURCE, "file.py")}
    assert paths["x.dim() > 1"] == ("rule",)
    assert paths["4"] == paths["1e-5"] == paths['"add"'] == ()
