"""How results show themselves. They are values that know no picture: whoever draws one says so here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Made = TypeVar("Made", bound=Callable[..., Any])

NOTEBOOK, FILE, TEXT, SCREEN, PLOT, TABLE = "notebook", "file", "text", "screen", "plot", "table"
DRAWING = "drawing"  # SVG
_FORMS: dict[tuple[str, type], Callable[..., Any]] = {}
_DRAWN_BY: list[str] = []


def shows(form: str, kind: type) -> Callable[[Made], Made]:
    """Decorates the function that gives results of a kind this form."""

    def decorate(function: Made) -> Made:
        _FORMS[form, kind] = function
        return function

    return decorate


def register_drawer(module: str) -> None:
    """Names a module that gives results a form. It is loaded when a result is first shown."""
    if module not in _DRAWN_BY:
        _DRAWN_BY.append(module)


def find_form(form: str, result: Any) -> Callable[..., Any] | None:
    """The function that gives a result this form, if one has said so."""
    for module in tuple(_DRAWN_BY):
        import_module(module)
    return next((_FORMS[form, kind] for kind in type(result).__mro__ if (form, kind) in _FORMS), None)


class Shown:
    """A result that a notebook shows as a picture and `print` as plain text. Without either, its fields are shown."""

    def __init_subclass__(cls) -> None:
        """IPython asks each class in turn, and would take the `repr` of a dataclass before anything above it."""
        super().__init_subclass__()
        cls._repr_pretty_ = Shown._repr_pretty_  # type: ignore[method-assign]

    def _repr_html_(self) -> str | None:
        draw = find_form(NOTEBOOK, self)
        return None if draw is None else draw(self)

    def __str__(self) -> str:
        """What the command line prints into a pipe: plain text, no colour."""
        write = find_form(TEXT, self)
        return repr(self) if write is None else write(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """At IPython's prompt the result is written as it is printed."""
        printer.text(str(self))

    def show(self) -> None:
        """Shows it where one looks: in colour in a notebook and on a terminal, else as plain text."""
        draw = find_form(SCREEN, self)
        print(self) if draw is None else draw(self)  # noqa: T201


class Plotted:
    """A result that matplotlib draws, and that becomes a table of pandas."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws it with matplotlib, on `ax` or on axes of its own, and gives the axes. Nothing is shown or saved."""
        axes: Axes = self._formed(PLOT)(self, ax)
        return axes

    def to_frame(self) -> DataFrame:
        """A DataFrame of pandas; docs/guide.md names the columns."""
        frame: DataFrame = self._formed(TABLE)(self)
        return frame

    def _formed(self, form: str) -> Callable[..., Any]:
        function = find_form(form, self)
        if function is None:
            raise UsageError(f"nothing is known that gives a {type(self).__name__} as a {form}.")
        return function
