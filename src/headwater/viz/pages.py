"""Pages from templates: what comes from a text, a file or a model is escaped; HTML made here says so with `Markup`."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment() -> Environment:
    return Environment(
        loader=PackageLoader("headwater.viz"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_page(template: str, **values: Any) -> str:
    """The template of that name in `viz/templates`, filled in."""
    return environment().get_template(template).render(**values)
