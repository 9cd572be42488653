"""Names -> methods, those of plug-ins too. An unknown name answers with the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..errors import UnknownName

if TYPE_CHECKING:
    from ..engine.forward import Run
    from ..engine.propagate import Outcome


@dataclass(frozen=True)
class Method:
    """A way to give relevance. `rules` are the rules it puts on the model's operations.

    `each`, where a method has it, explains several scores of one prediction, given their readers, in one forward pass.
    """

    name: str
    summary: str
    run: Callable[[Run], Outcome] = field(repr=False, compare=False)
    rules: tuple[str, ...] = ()
    gradient: bool = False
    group: str = "other"
    each: Callable[[Run, Sequence[Any]], Iterator[Outcome]] | None = field(default=None, repr=False, compare=False)


GROUPS = ("chance", "attention", "rules", "perturbation", "captum", "other")
_METHODS: dict[str, Method] = {}
_FAMILIES: list[Callable[[str], Method | None]] = []


def register(method: Method) -> Method:
    _METHODS[method.name] = method
    return method


def method(name: str, summary: str, group: str = "other") -> Callable[[Callable[[Run], Outcome]], Method]:
    """Decorates a function that explains one run: it becomes a method of that name.

    @method("mine", "what it does")
    def mine(run: Run) -> Outcome:
        return propagate(run, NO_RULES)
    """

    def decorate(run: Callable[[Run], Outcome]) -> Method:
        return register(Method(name, summary, run, group=group))

    return decorate


def family(parse: Callable[[str], Method | None]) -> Callable[[str], Method | None]:
    """Methods whose names are composed, such as lrp(ah+ln): `parse` gives the method or None."""
    _FAMILIES.append(parse)
    return parse


def add_plugin_methods() -> None:
    """The methods and rules that other packages add, once. A name of ours stays ours.

    Each entry point names a `Method`, or a module that registers methods, rules or variants of attention.
    """
    plugins.load_all(plugins.RULES)
    for found in plugins.load_all(plugins.METHODS).values():
        if isinstance(found, Method) and found.name not in _METHODS:
            register(found)


def available() -> tuple[Method, ...]:
    """Every method that has a name of its own: chance and attention first, the rules, what others do.

    A group that a plug-in brings comes after these, in the order in which it was registered.
    """
    add_plugin_methods()
    groups = dict.fromkeys((*GROUPS, *(method.group for method in _METHODS.values())))
    order = {group: place for place, group in enumerate(groups)}
    return tuple(sorted(_METHODS.values(), key=lambda method: order[method.group]))


def resolve_method(name: str | Method) -> Method:
    """The method called `name`; a method is its own."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        raise UnknownName("method", name, _METHODS)
    plain = name.strip().lower().replace(" ", "")
    add_plugin_methods()
    if plain in _METHODS:
        return _METHODS[plain]
    for parse in _FAMILIES:
        found = parse(plain)
        if found is not None:
            return found
    raise UnknownName("method", name, _METHODS)
