"""How results show themselves. They are values that know no picture: whoever draws one says so here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

Made = TypeVar("Made", bound=Callable[..., Any])

NOTEBOOK, FILE = "notebook", "file"
_FORMS: dict[tuple[str, type], Callable[..., Any]] = {}
_DRAWN_BY: list[str] = []


def shows(form: str, kind: type) -> Callable[[Made], Made]:
    """Decorates the function that gives results of a kind this form."""

    def decorate(function: Made) -> Made:
        _FORMS[form, kind] = function
        return function

    return decorate


def drawn_by(module: str) -> None:
    """Names a module that gives results a form. It is loaded when a result is first shown."""
    if module not in _DRAWN_BY:
        _DRAWN_BY.append(module)


def find_form(form: str, result: Any) -> Callable[..., Any] | None:
    """The function that gives a result this form, if one has said so."""
    for module in tuple(_DRAWN_BY):
        import_module(module)
    return next((_FORMS[form, kind] for kind in type(result).__mro__ if (form, kind) in _FORMS), None)


class Shown:
    """A result that a notebook shows as a picture. Without one, the notebook prints it."""

    def _repr_html_(self) -> str | None:
        draw = find_form(NOTEBOOK, self)
        return None if draw is None else draw(self)
