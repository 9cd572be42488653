"""Faults that can be put into a module, one at a time: a source text in, `Mutant`s out. Knows nothing of tests.

A fault is a small change that a careless edit could have made: `<` for `<=`, `+` for `-`, a condition negated, a
statement or a call left out, two arguments swapped, a number that is one off. Annotations, docstrings, what is raised
and `if TYPE_CHECKING` are left alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
HOLDERS = {
    "torch",
    "math",
    "inspect",
    "copy",
    "kernels",
    "sys",
    "self",
    "scope",
    "call",
    "ctx",
}  # no values of their own
TYPED = {"isinstance", "getattr", "setattr", "hasattr", "get", "pop"}  # calls that fail with other arguments first
SYMMETRIC = {
    "max",
    "min",
    "maximum",
    "minimum",
    "promote_types",
    "equal",
    "transpose",
}  # in whose arguments no order is
KEYED = {"get", "pop", "applies"}  # calls whose text is a key and not a message
NOTHING = '__import__("contextlib").nullcontext()'

Fault = tuple[str, str]  # the kind of change, and the text in place of the node's


EVERYWHERE = (1, 1 << 30)
DROPPED = "name dropped"


@dataclass(frozen=True)
class Place:
    """Where a node stands: in which function, and which lines a test must run to meet it.

    `path` leads to the outermost function, whose code can be exchanged while the module stays loaded. Outside of one
    stands what acts on import: a decorator, a default, met by whoever runs its function; a constant, met by anyone.
    """

    name: str = ""
    path: tuple[str, ...] = ()
    inside: bool = False
    lines: tuple[int, int] = EVERYWHERE
    still: bool = False  # under no_grad, where `detach` does nothing

    def within(self, node: ast.FunctionDef | ast.ClassDef) -> Place:
        path = self.path if self.inside else (*self.path, node.name)
        return replace(self, name=f"{self.name}.{node.name}".lstrip("."), path=path)


@dataclass(frozen=True)
class Mutant:
    """One fault: `after` stands for `before` in a file. `key` stays the same while the function around it does."""

    file: str
    line: int
    lines: tuple[int, int]
    where: str
    path: tuple[str, ...]  # empty where it acts on import
    operator: str
    before: str
    after: str
    span: tuple[int, int]
    key: str = ""

    def __str__(self) -> str:
        before, after = short(self.before), short(self.after)
        return f"{self.key} {self.file}:{self.line} {self.where}: {self.operator}: {before}  →  {after}"

    def put_into(self, source: bytes) -> bytes:
        return source[: self.span[0]] + self.after.encode() + source[self.span[1] :]


def short(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def mutants_of(source: bytes, file: str) -> list[Mutant]:
    """Every fault of one file that is still Python."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, seen = [], Counter[str]()
    for node, place, operator, after in faults_below(ast.parse(source), Place()):
        span = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = source[span[0] : span[1]].decode()
        lines, path = ((node.lineno, node.end_lineno), place.path) if place.inside else (place.lines, ())
        one = Mutant(file, node.lineno, lines, place.name or "module", path, operator, before, after, span)
        spot = f"{file} {one.where} {operator} {' '.join(before.split())} {' '.join(after.split())}"
        seen[spot] += 1
        found.append(replace(one, key=hashlib.sha1(f"{spot} {seen[spot]}".encode()).hexdigest()[:8]))
    return [one for one in found if is_python(one.put_into(source))]


def is_python(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


Found = tuple[Any, Place, str, str]


def faults_below(node: ast.AST, place: Place) -> Iterator[Found]:
    if isinstance(node, ast.FunctionDef):
        yield from faults_of_function(node, place)
    elif isinstance(node, ast.ClassDef):
        yield from faults_of_fields(node, ("body",), place.within(node))
    else:
        yield from faults_of_fields(node, node._fields, place)


def faults_of_function(node: ast.FunctionDef, place: Place) -> Iterator[Found]:
    named = place.within(node)
    yield from faults_of_fields(node, ("body",), replace(named, inside=True))
    if not place.inside:
        named = replace(named, lines=(node.body[0].lineno, node.end_lineno or node.lineno))
    for decorator in node.decorator_list:
        for text in decorator.args if isinstance(decorator, ast.Call) else []:
            yield text, named, DROPPED, '"nothing"' if isinstance(text, ast.Constant) else "*()"
    yield from faults_of_fields(node.args, ("defaults", "kw_defaults"), named)


def faults_of_fields(node: ast.AST, fields: tuple[str, ...], place: Place) -> Iterator[Found]:
    if isinstance(node, ast.With) and "no_grad" in "".join(ast.unparse(item) for item in node.items):
        place = replace(place, still=True)
    for field in fields:
        value = getattr(node, field, None)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_left_alone(child, node, field):
                for operator, after in faults(child, node, field):
                    if not (place.still and operator == "call removed" and child.func.attr == "detach"):
                        yield child, place, operator, after
                yield from faults_below(child, place)


def is_left_alone(node: ast.AST, parent: ast.AST, field: str) -> bool:
    if isinstance(parent, ast.keyword) and parent.arg == "strict":
        return True  # of `zip`: an assertion
    if field == "annotation" or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr):
        return True
    if isinstance(parent, ast.Raise) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.Assign) and (is_type(node.value) or ast.unparse(node.targets[0]).startswith("__")):
        return True
    return isinstance(parent, ast.Subscript) and field == "slice" and is_type(parent)


def is_type(node: ast.AST) -> bool:
    """`Callable[..., Any]`, `float | tuple[int, ...]`: a type, which says nothing at run time."""
    if isinstance(node, ast.BinOp):
        return is_type(node.left) or is_type(node.right)
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return False
    name = node.value.id
    return name in ("tuple", "type") or (name[0].isupper() and not name.isupper())


def is_type_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("list", "tuple", "dict", "int", "float", "str")


def faults(node: Any, parent: ast.AST, field: str) -> Iterator[Fault]:
    make = OPERATORS.get(type(node))
    if make is not None:
        for operator, after in make(node):
            if not (isinstance(parent, ast.Expr) and operator == "call removed"):  # the statement is removed
                yield operator, after
    if field == "test" and isinstance(parent, ast.If | ast.IfExp | ast.While):
        yield from negation(node)
    if field == "ifs":
        yield from negation(node)
    if field == "context_expr" and getattr(parent, "optional_vars", None) is None:
        yield "removed", NOTHING


def bracketed(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"


def negation(node: ast.expr) -> Iterator[Fault]:
    """A comparison and a `not` have their own."""
    if not isinstance(node, ast.Compare) and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        yield "negated", f"(not {bracketed(node)})"


def of_comparison(node: ast.Compare) -> Iterator[Fault]:
    for i, operator in enumerate(node.ops):
        for table in (NEGATED, BOUNDARY):
            if type(operator) in table:
                ops = [*node.ops[:i], table[type(operator)](), *node.ops[i + 1 :]]
                yield "comparison", bracketed(ast.Compare(node.left, ops, node.comparators))


def of_arithmetic(node: ast.BinOp) -> Iterator[Fault]:
    if type(node.op) in ARITHMETIC and not is_type(node) and not is_type_name(node.left):
        yield "arithmetic", bracketed(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))


def of_update(node: ast.AugAssign) -> Iterator[Fault]:
    yield "removed", "pass"
    if type(node.op) in ARITHMETIC:
        yield "arithmetic", ast.unparse(ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value))


def of_boolean(node: ast.BoolOp) -> Iterator[Fault]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "boolean", bracketed(ast.BoolOp(other, node.values))
    for i in range(len(node.values)):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        yield "boolean", bracketed(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])


def of_unary(node: ast.UnaryOp) -> Iterator[Fault]:
    if not (isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)):
        yield "unary", bracketed(node.operand)
    else:
        yield "number", f"({ast.unparse(node)} + 1)"


def of_constant(node: ast.Constant) -> Iterator[Fault]:
    if isinstance(node.value, bool):
        yield "constant", str(not node.value)
    elif isinstance(node.value, int | float):
        yield "number", f"({node.value!r} + 1)"
        if node.value != 0:
            yield "number", "0" if isinstance(node.value, int) else "0.0"


def of_call(node: ast.Call) -> Iterator[Fault]:
    """A method left out (`x.detach()` is then `x`), neighbouring arguments swapped, a key that nobody gives.

    Where that could only end in an exception, it shows nothing.
    """
    called, args = node.func, node.args
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if isinstance(called, ast.Attribute) and is_value(called.value):
        yield "call removed", bracketed(called.value)
    for i, (a, b) in enumerate(pairwise(args)):
        if (
            name not in TYPED | SYMMETRIC
            and ast.dump(a) != ast.dump(b)
            and is_text(a) == is_text(b)
            and not is_holder(a)
        ):
            yield "swapped", ast.unparse(ast.Call(called, [*args[:i], b, a, *args[i + 2 :]], node.keywords))
    for i, key in enumerate(args):
        if name in KEYED and is_text(key):
            other = [*args[:i], ast.Constant("nothing"), *args[i + 1 :]]
            yield "key", ast.unparse(ast.Call(called, other, node.keywords))


def is_value(node: ast.expr) -> bool:
    """Whether something could stand where its method was called: no module, no class, no text."""
    if isinstance(node, ast.Attribute):
        return is_value(node.value) or (isinstance(node.value, ast.Name) and node.value.id in ("self", "ctx"))
    if isinstance(node, ast.Name):
        return node.id not in HOLDERS and not node.id.lstrip("_")[0].isupper()
    return not isinstance(node, ast.Constant | ast.JoinedStr)


def is_holder(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in HOLDERS


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def of_statement(node: ast.Expr) -> Iterator[Fault]:
    if isinstance(node.value, ast.Call):
        yield "removed", "pass"


def of_assignment(node: ast.Assign) -> Iterator[Fault]:
    """Only what is set on something that is there without it."""
    if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
        yield "removed", "pass"


def of_raise(node: ast.Raise) -> Iterator[Fault]:
    yield "removed", "pass"


def of_return(node: ast.Return) -> Iterator[Fault]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "return", "return None"


def of_jump(node: ast.Continue | ast.Break) -> Iterator[Fault]:
    yield "removed", "pass"


OPERATORS: dict[type[ast.AST], Callable[[Any], Iterator[Fault]]] = {
    ast.Compare: of_comparison,
    ast.BinOp: of_arithmetic,
    ast.AugAssign: of_update,
    ast.BoolOp: of_boolean,
    ast.UnaryOp: of_unary,
    ast.Constant: of_constant,
    ast.Call: of_call,
    ast.Expr: of_statement,
    ast.Assign: of_assignment,
    ast.Raise: of_raise,
    ast.Return: of_return,
    ast.Continue: of_jump,
    ast.Break: of_jump,
}
