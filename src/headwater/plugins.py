"""What other packages add to Headwater, found by their entry points.

A package names what it adds in its `pyproject.toml`, under the group of its kind:

    [project.entry-points."headwater.methods"]
    my-method = "my_package.methods:my_method"

Nothing is imported before the kind is asked for.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

METHODS = "headwater.methods"  # a `Method`, or a module that registers some
RULES = "headwater.rules"  # a module that registers rules for operations, or variants of attention
MEASURES = "headwater.measures"  # a `Measure`, or a module that registers some
COMMANDS = "headwater.commands"  # a function for `headwater NAME`, or a `typer.Typer` of several
MODELS = "headwater.models"  # a function that makes model classes known to transformers
PEERS = "headwater.peers"  # a function (model, ids, token, other) that gives another tool's relevance of the ids
DATASETS = "headwater.datasets"  # a function that gives the parts of a dataset, each a name and a `Table`


def find(group: str) -> list[EntryPoint]:
    """The entry points of a group, by name."""
    return sorted(entry_points(group=group), key=lambda point: point.name)


@cache
def load_all(group: str) -> dict[str, Any]:
    """What every entry point of a group names. One that cannot be imported is left out, and a warning names it."""
    found = {}
    for point in find(group):
        try:
            found[point.name] = point.load()
        except Exception as error:
            warnings.warn(
                f"the plug-in {point.name!r} of {group} ({point.value}) could not be loaded and is left out: "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
    return found
