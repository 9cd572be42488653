"""Nodes by name, as `patch` takes them: "layer 3 head 5", "layer 3 heads", "layer 3", a module; or those of `top`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import UnknownName, UsageError
from ..results.inside import KINDS, MODULES, Inside, Node, NodeGroup

Chosen = str | Node
PATCHED = ("heads", "neurons", "layers", "experts", MODULES)  # kinds of nodes whose values can be replaced
SPELLINGS = (
    "Names are such as 'layer 3 head 5', 'layer 3 neuron 17', 'layer 3 heads', 'layer 3 neurons', 'layer 3', 'layer 3 "
    "expert 2', or a module by its dotted name."
)


@dataclass(frozen=True)
class NodeName:
    """A node by name: its kind, its place (a layer or a module), and its number there; None for all of them."""

    said: str
    kind: str
    place: str
    unit: int | None = None

    @classmethod
    def read(cls, given: Chosen) -> NodeName:
        if isinstance(given, Node):
            if given.kind not in PATCHED:
                raise UsageError(f"{given.name!r} cannot be replaced: {', '.join(PATCHED)} can.")
            single = given.kind in ("heads", "neurons")
            return cls(given.name, given.kind, given.module, given.unit if single else None)
        if not isinstance(given, str):
            raise UsageError(f"a node is one of e.inside.top(), or a name, not {type(given).__name__}. {SPELLINGS}")
        if re.search(r" (queries|keys|values) of head \d+$", given):
            raise UsageError(f"no node that can be replaced is called {given!r}. {SPELLINGS}")
        found = re.fullmatch(r"(.+) (head|neuron) (\d+)", given)
        if found is not None:
            return cls(given, f"{found[2]}s", found[1], int(found[3]))
        found = re.fullmatch(r"(.+) (heads|neurons)", given)
        if found is not None:
            return cls(given, found[2], found[1])
        if re.fullmatch(r".+ expert \d+", given):
            return cls(given, "experts", given)
        if re.fullmatch(r"layer \d+", given):
            return cls(given, "layers", given)
        if given in KINDS or not given.strip() or re.match(r"layer \d", given, re.IGNORECASE):
            raise UsageError(f"no node is called {given!r}. {SPELLINGS}")
        return cls(given, MODULES, given)

    @property
    def module(self) -> str:
        """The name of its place without the number of the call."""
        return re.sub(r" \(call \d+\)$", "", self.place)

    def find(self, groups: Sequence[NodeGroup]) -> int:
        """The number of its place among those that the model has."""
        inside = Inside(tuple(groups))
        if not any(group.kind == self.kind for group in groups):
            raise UsageError(
                f"the model has no {self.kind} that can be told, so {self.said!r} cannot be replaced: name a layer or "
                "a module."
            )
        group = inside.find(self.place, self.kind)
        size = group.relevance.shape[-1]
        if self.unit is not None and self.unit >= size:
            raise UnknownName("node", self.said, [f"{inside.label(group)} {self.kind[:-1]} {size - 1}"])
        return next(number for number, one in enumerate(groups) if one is group)


def read_nodes(nodes: Chosen | Iterable[Chosen]) -> list[Chosen]:
    """The nodes that were named: one, or several."""
    if isinstance(nodes, (str, Node)):
        return [nodes]
    if not isinstance(nodes, Iterable):
        raise UsageError(f"nodes are those of e.inside.top(), or names, not {type(nodes).__name__}. {SPELLINGS}")
    found = list(nodes)
    if not found:
        raise UsageError("no nodes were named. Name some, such as 'layer 3 head 5'.")
    return found
