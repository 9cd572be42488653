"""What is wrong with a request, as a sentence: which field, what it holds, and what it may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LONG = 60  # characters of a value that is repeated
NAMES = {
    "new_tokens": "new tokens",
    "masked": "masked words",
    "prompt": "the prompt",
    "question": "the question",
    "text": "the text",
    "first": "the first text",
    "second": "the second text",
    "query": "the query",
    "passages": "the passages",
    "smiles": "the SMILES string",
    "image": "the image",
}
UNITS = {"methods": "methods", "masked": "masked words", "passages": "passages"}


def fault_sentence(fault: Mapping[str, Any]) -> str:
    """One sentence for one fault, as pydantic reports it."""
    name, limits = field_name(fault["loc"]), fault.get("ctx", {})
    given = shorten_value(fault.get("input"))
    kind = str(fault["type"])
    if kind == "too_long":
        there = format_length(limits)
        return f"At most {limits['max_length']} {unit(fault['loc'])} are taken at once, and there are {there}."
    if kind == "too_short":
        return f"At least {limits['min_length']} of {name} must be named."
    if kind == "string_too_long":
        return f"{capitalise(name)} may have at most {limits['max_length']:,} characters."
    if kind == "string_too_short":
        return f"{capitalise(name)} must not be empty."
    if kind in BOUNDS:
        return f"{capitalise(name)} must be {BOUNDS[kind].format(**limits)}, not {given}."
    if kind.startswith(("int_", "float_", "bool_")):
        what = {"int": "a whole number", "float": "a number", "bool": "true or false"}[kind.partition("_")[0]]
        return f"{capitalise(name)} must be {what}, not {given}."
    if kind in ("literal_error", "enum"):
        return f"{capitalise(name)} must be one of {limits['expected']}, not {given}."
    if kind == "extra_forbidden":
        return f"The field {name!r} is not known here."
    if kind == "missing":
        return f"{capitalise(name)} is missing."
    return f"{capitalise(name)} is not as it should be: {shorten_value(fault['msg'], plain=True)}."


BOUNDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}


def field_name(where: Sequence[str | int]) -> str:
    """The last name on the way to the fault; a number is a place in a list."""
    named = [str(part) for part in where[1:] if isinstance(part, str)]
    return shorten_value(NAMES.get(named[-1], named[-1]), plain=True) if named else "the request"


def unit(where: Sequence[str | int]) -> str:
    return UNITS.get(str(where[-1]), f"entries of {field_name(where)}")


def format_length(limits: Mapping[str, Any]) -> str:
    found = limits.get("actual_length")
    return "more" if found is None else str(found)


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def shorten_value(value: object, plain: bool = False) -> str:
    text = str(value) if plain else repr(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"
