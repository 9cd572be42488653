"""Names -> methods, those of plug-ins too. An unknown name answers with the nearest one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..errors import UnknownName, UsageError
from .aliases import AMBIGUOUS, find_alias
from .parameters import Parameter, read_arguments, say_parameters, spell_name

if TYPE_CHECKING:
    from ..engine.forward import Run
    from ..engine.outcome import Outcome

__all__ = ["Method", "available", "method", "register", "register_with_parameters", "resolve_method"]


@dataclass(frozen=True)
class Method:
    """A way to give relevance. `rules` are the rules it puts on the model's operations.

    `parameters` are those that its name may set in brackets. `each`, where a method has it, explains several scores of
    one prediction, given their readers, in one forward pass.

    Example:
        >>> from headwater.methods import resolve_method
        >>> resolve_method("gi").group, resolve_method("gi").rules
        ('rules', ())
    """

    name: str  # what one asks for
    summary: str  # one line for lists
    run: Callable[[Run], Outcome] = field(repr=False, compare=False)  # explains a batch
    rules: tuple[str, ...] = ()  # that it puts on the model's operations
    gradient: bool = False  # whether it is a gradient method, which smoothgrad takes
    group: str = "other"  # under which heading lists show it
    each: Callable[[Run, Sequence[Any]], Iterator[Outcome]] | None = field(  # several scores, one forward pass
        default=None, repr=False, compare=False
    )
    parameters: tuple[Parameter, ...] = field(
        default=(), repr=False, compare=False
    )  # what its name may set in brackets


GROUPS = ("chance", "attention", "rules", "perturbation", "captum", "other")
_METHODS: dict[str, Method] = {}
_FAMILIES: list[Callable[[str], Method | None]] = []
_MAKERS: dict[str, Callable[..., Method]] = {}


def register(method: Method) -> Method:
    """Makes a method known by its name, for `explain`, the command line and the explorer.

    Args:
        method: the method.

    Returns:
        The same method.

    Example:
        >>> from headwater.methods import NO_RULES, Method, propagate, register
        >>> mine = register(Method("mine", "what it does", lambda run: propagate(run, NO_RULES)))
        >>> hw.explain("headwater/sentiment", "a fine film", method="mine").method
        'mine'
    """
    _METHODS[method.name] = method
    return method


def register_with_parameters(name: str, parameters: Sequence[Parameter], make: Callable[..., Method]) -> Method:
    """Registers a method whose name may have values in brackets: `mine(power=2)`.

    Args:
        name: what the method is asked for by.
        parameters: what may stand in the brackets.
        make: gives the `Method`; it takes the values by keyword.

    Returns:
        The method with its defaults.

    Example:
        >>> from headwater.methods import NO_RULES, Method, propagate, register_with_parameters
        >>> from headwater.methods.parameters import number
        >>> def make(power=1.0):
        ...     return Method(f"mine({power:g})", "what it does", lambda run: propagate(run, NO_RULES))
        >>> mine = register_with_parameters("mine", [number("power", 1.0, "of the size", 0.0, 10.0)], make)
        >>> [parameter.name for parameter in mine.parameters]
        ['power']
    """
    _MAKERS[name] = make
    return register(replace(make(), name=name, parameters=tuple(parameters)))


def adjust_method(name: str, written: str) -> Method:
    """A method with parameters: `written` is what stands in its brackets."""
    usual = _METHODS[name]
    given = read_arguments(name, usual.parameters, written)
    values = {p.name: p.read(given[p.name]) for p in usual.parameters if p.name in given}
    defaults = {p.name: p.default for p in usual.parameters}
    plain = {key: spell(value) for key, value in values.items()}
    said = {key: text for key, text in plain.items() if not (isinstance(values[key], Method) and text == defaults[key])}
    spelled = spell_name(name, usual.parameters, said)
    return replace(_MAKERS[name](**values), name=spelled, parameters=usual.parameters)


def spell(value: Any) -> str:
    return value.name if isinstance(value, Method) else str(value)


def method(name: str, summary: str, group: str = "other") -> Callable[[Callable[[Run], Outcome]], Method]:
    """Decorates a function that explains one run: it becomes a method of that name.

    Args:
        name: what the method is asked for by.
        summary: a line for lists.
        group: where lists put it.

    Returns:
        A decorator, which gives the `Method`.

    Example:
        >>> from headwater.methods import NO_RULES, method, propagate
        >>> @method("mine", "what it does")
        ... def mine(run):
        ...     return propagate(run, NO_RULES)
        >>> hw.explain("headwater/sentiment", "a fine film", method="mine").target
        'positive'
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

    Returns:
        The methods.

    Example:
        >>> from headwater.methods import available
        >>> "lrp" in [method.name for method in available()]
        True
    """
    add_plugin_methods()
    groups = dict.fromkeys((*GROUPS, *(method.group for method in _METHODS.values())))
    order = {group: place for place, group in enumerate(groups)}
    return tuple(sorted(_METHODS.values(), key=lambda method: order[method.group]))


def resolve_method(name: str | Method, **parameters: Any) -> Method:
    """The method that is called so.

    Args:
        name: its name, with values in brackets if it takes any; a `Method` is its own.
        parameters: such values, by keyword.

    Returns:
        The method.

    Raises:
        UnknownName: there is none; the nearest name is offered.
        UsageError: a value is not what the method takes, or the name may mean several methods.

    Example:
        >>> from headwater.methods import resolve_method
        >>> resolve_method("lrp").rules
        ('ah', 'ln', 'act', 'gate')
    """
    if isinstance(name, Method):
        return resolve_method(name.name, **parameters) if parameters else name
    if not isinstance(name, str):
        raise UnknownName("method", name, _METHODS)
    add_plugin_methods()
    plain = add_parameters(plain_name(name), parameters)
    if plain in _METHODS:
        return _METHODS[plain]
    base, inside = split_brackets(plain)
    base = find_alias(base, _METHODS)
    if inside is None and base in _METHODS:
        return _METHODS[base]
    if inside is not None and base in _MAKERS:
        return adjust_method(base, inside)
    plain = base if inside is None else f"{base}({inside})"
    for parse in _FAMILIES:
        found = parse(plain)
        if found is not None:
            return found
    if inside is not None and base in _METHODS:
        raise UsageError(f"{say_parameters(base, ())[:-1]}, and {inside!r} was given.")
    if base in AMBIGUOUS:
        raise UsageError(f"no method called {name!r}. There are {AMBIGUOUS[base]}.")
    raise UnknownName("method", name, _METHODS)


def plain_name(name: str) -> str:
    """A name without spaces, in small letters; patterns of a model's names, which end in a colon, keep theirs."""
    parts = re.split(r"([^=,+()]+:)", "".join(name.split()))
    return "".join(part if number % 2 else part.lower() for number, part in enumerate(parts))


def split_brackets(name: str) -> tuple[str, str | None]:
    """`a(b)` -> a and b; None where there are no brackets."""
    match = re.fullmatch(r"([^()]*)\((.*)\)", name)
    return (name, None) if match is None else (match[1], match[2])


def add_parameters(name: str, parameters: dict[str, Any]) -> str:
    """A name with parameters written into its brackets."""
    if not parameters:
        return name
    base, inside = split_brackets(name)
    said = [f"{key}={spell(value)}".replace(" ", "") for key, value in parameters.items()]
    return f"{base}({','.join([*([inside] if inside else []), *said])})"
