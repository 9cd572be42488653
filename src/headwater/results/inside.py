"""Relevance inside a model: heads, neurons, layers and modules of one prediction, and cuts that add up to its score.

A value, with no model behind it. Each group of nodes (the heads of one attention, the neurons of one layer) has its
relevance by position, and belongs to a cut through the model, whose ledger says what by-passes the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import NotApplicable, UnknownName, UsageError
from .files import name_dtype, read_tensor
from .ledger import TOLERANCE

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("heads", "neurons", "layers", "queries", "keys", "values", "experts")
ROUTER = "router"  # the kind of weights that experts are multiplied by
MODULES = "modules"  # the kind of what was named itself
_UNIT = {"heads": "head", "neurons": "neuron", "queries": "queries of head", "keys": "keys of head"}
_UNIT |= {"values": "values of head"}


class Node(NamedTuple):
    """One part of the model and its relevance: a head, a neuron, a layer's output, a module's output."""

    name: str
    relevance: float
    kind: str
    module: str
    layer: int | None
    unit: int | None


@dataclass(frozen=True)
class CutLedger:
    """One cut through the model: nodes + what by-passes them + biases so far + readout = score.

    `by_passing` goes around the nodes on other ways, such as the residual stream. `sources` are biases and constants
    that enter between the cut and the score. `unaccounted` alone is a remainder.
    """

    name: str
    score: float
    nodes: float
    by_passing: float
    sources: float
    readout: float = 0.0
    dtype: str = "float32"
    size: float = 0.0  # the absolute sum of all that was added up: the scale on which rounding is judged

    @property
    def unaccounted(self) -> float:
        return self.score - (self.nodes + self.by_passing + self.sources + self.readout)

    @property
    def error(self) -> float:
        """|unaccounted| relative to `size`. 0 is a cut that closes."""
        return abs(self.unaccounted) / (max(self.size, abs(self.score)) or 1.0)

    @property
    def closed(self) -> bool:
        return self.error <= TOLERANCE[self.dtype]

    def __str__(self) -> str:
        lines = {"nodes": self.nodes, "by-passing": self.by_passing, "biases so far": self.sources}
        lines |= {"readout": self.readout} if self.readout else {}
        lines |= {"unaccounted": self.unaccounted} if not self.closed else {}
        places = 5 - decimal_order(max(map(abs, (*lines.values(), self.score))))  # six digits of the largest
        *said, score = (f"{round(amount, places):.6g}" for amount in (*lines.values(), self.score))
        return " + ".join(f"{name} {amount}" for name, amount in zip(lines, said, strict=True)) + f" = {score}"


def decimal_order(amount: float) -> int:
    """The power of ten of its first digit."""
    return math.floor(math.log10(amount)) if amount and math.isfinite(amount) else 0


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """The nodes of one place: `relevance` is [positions, units], padding left out.

    `layer` is the number of the layer they lie in, where the model has a stack of layers, `stack` the name of that
    stack. `by_token`: its positions are the explanation's tokens. `padding` is what positions that are no tokens have.
    `expert` is the number of an expert and how many there are in its layer, where the group is of one expert.
    """

    kind: str
    module: str
    relevance: Tensor
    layer: int | None = None
    stack: str = ""
    call: int = 0
    by_token: bool = False
    padding: float = 0.0
    ledger: CutLedger | None = None
    expert: tuple[int, int] | None = None

    @property
    def units(self) -> Tensor:
        """[units], summed over positions; what lies on padding is not among them."""
        return self.relevance.sum(0)

    @property
    def place(self) -> str:
        """The name of the module, with the number of the call where it was called before."""
        return f"{self.module} (call {self.call + 1})" if self.call else self.module

    def to_dict(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in _PLAIN}
        ledger = None if self.ledger is None else {name: getattr(self.ledger, name) for name in _LEDGER}
        numbers = {"relevance": self.relevance.tolist(), "relevance_dtype": name_dtype(self.relevance)}
        expert = {} if self.expert is None else {"expert": list(self.expert)}
        return {**found, **numbers, "ledger": ledger, **expert}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> NodeGroup:
        plain = {name: found[name] for name in _PLAIN}
        ledger = None if found["ledger"] is None else CutLedger(**found["ledger"])
        expert = None if found.get("expert") is None else tuple(found["expert"])
        relevance = read_tensor(found["relevance"], found["relevance_dtype"])
        return cls(**plain, relevance=relevance, ledger=ledger, expert=expert)


_PLAIN = ("kind", "module", "layer", "stack", "call", "by_token", "padding")
_LEDGER = ("name", "score", "nodes", "by_passing", "sources", "readout", "dtype", "size")


@dataclass(frozen=True, eq=False)
class Inside:
    """What passes through the parts of a model: `e.inside` of an explanation with `inside=`.

    `heads` is [layer, head], `neurons` [layer, neuron], `layers` [layer]; `positions.heads` is [layer, token, head],
    and so on. Rows follow the order in which the model computes, and `names(kind)` says which module each is of.
    `groups` has all of it, one by one, also where layers differ in size.
    """

    groups: tuple[NodeGroup, ...]  # one per layer and kind
    tokens: tuple[str, ...] = ()  # names of the positions

    @property
    def heads(self) -> Tensor:
        """[layers, heads]: the relevance of every attention head."""
        return self._stack("heads")

    @property
    def neurons(self) -> Tensor:
        """[layers, neurons]: the relevance of every neuron of the feed-forward layers."""
        return self._stack("neurons")

    @property
    def layers(self) -> Tensor:
        """[layer]: the residual stream as each layer leaves it."""
        return self._stack("layers").squeeze(-1)

    @property
    def queries(self) -> Tensor:
        """[layers, heads]: the relevance of the queries of every attention head."""
        return self._stack("queries")

    @property
    def keys(self) -> Tensor:
        """[layers, heads]: the relevance of the keys of every attention head."""
        return self._stack("keys")

    @property
    def values(self) -> Tensor:
        """[layers, heads]: the relevance of the values of every attention head."""
        return self._stack("values")

    @property
    def experts(self) -> Tensor:
        """[layer, expert]: what each expert gives; zero where no token went to it."""
        return self._table_experts("experts")

    @property
    def router(self) -> Tensor:
        """[layer, expert]: what goes to the router, by the weights that it gives each expert."""
        self.of_kind("experts")
        return self._table_experts(ROUTER)

    @property
    def positions(self) -> ByPosition:
        """The same by token."""
        return ByPosition(self)

    def __getitem__(self, module: str) -> Tensor:
        """[positions]: the relevance of the output of a module that was named."""
        found = self.find(module, MODULES)
        return found.relevance.squeeze(-1)

    def of_kind(self, kind: str) -> tuple[NodeGroup, ...]:
        """The groups of a `kind`, in the order in which the model computes them."""
        found = tuple(group for group in self.groups if group.kind == kind)
        if kind not in (*KINDS, ROUTER, MODULES):
            raise UnknownName("kind of node", kind, (*KINDS, MODULES))
        if not found:
            asked = ", ".join(dict.fromkeys(group.kind for group in self.groups)) or "nothing"
            raise UsageError(f"{kind} were not asked for, or not found: there are {asked}. Pass inside=[{kind!r}].")
        return found

    def names(self, kind: str) -> list[str]:
        """The module of every row of that `kind`."""
        return [group.place for group in self._rows(kind)]

    def top(self, count: int = 20, kind: str | None = None) -> list[Node]:
        """The `count` nodes with the largest relevance, whatever its sign; of one `kind`, or of heads, neurons and
        modules.
        """
        known = {group.kind for group in self.groups}
        usual = [one for one in ("heads", "neurons", MODULES) if one in known] or sorted(known)
        kinds = usual if kind is None else [kind]
        found = [node for one in kinds for group in self.of_kind(one) for node in self._nodes(group)]
        return sorted(found, key=lambda node: -abs(node.relevance))[:count]

    def ledger(self, name: str) -> CutLedger:
        """The cut through the group `name`: "layer 3", "layer 3 heads", "layer 3 neurons", or the name of a module.

        "layer 3" alone is what the layer leaves, where layers were asked for; else its heads, else its neurons.
        """
        place, _, kind = name.rpartition(" ")
        group = self.find(place, kind) if kind in (*KINDS, MODULES) and place else self.find(name)
        if group.ledger is None:
            raise UsageError(f"{group.kind} of one attention are no cut by themselves. Ask for its heads.")
        return group.ledger

    def find(self, name: str, kind: str | None = None) -> NodeGroup:
        """The group `name`: "layer 3", or a module by its name or a pattern of names; of one `kind` if given."""
        for one in (kind,) if kind is not None else ("layers", "heads", "neurons", MODULES, *KINDS[3:]):
            found = [group for group in self.groups if group.kind == one and self._is_called(group, name)]
            if len(found) > 1:
                several = ", ".join(repr(group.place) for group in found)
                raise UsageError(f"{name!r} is {len(found)} groups of {one}: {several}. Name one of them.")
            if found:
                return found[0]
        groups = self.groups if kind is None else self.of_kind(kind)
        layers = [f"layer {group.layer}" for group in groups if group.layer is not None]
        raise UnknownName("place inside the model", name, dict.fromkeys([*layers, *(one.place for one in groups)]))

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the result back."""
        return {"tokens": list(self.tokens), "groups": [group.to_dict() for group in self.groups]}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Inside:
        """The result again: `found` is what `to_dict` gave, also where it went through JSON."""
        return cls(tuple(map(NodeGroup.from_dict, found["groups"])), tuple(found["tokens"]))

    def _is_called(self, group: NodeGroup, name: str) -> bool:
        if group.expert is not None and name == self.name_unit(group, 0):
            return True
        return name in (f"layer {group.layer}", group.place) or fnmatchcase(group.place, name)

    def label(self, group: NodeGroup) -> str:
        """What a `group` is called: "layer 3", or the module where that does not tell it from others of its kind.

        A module that was named is called so always: "layer 3" is what the layer leaves.
        """
        same = [one for one in self.groups if one.kind == group.kind and one.layer == group.layer]
        alone = group.layer is not None and group.kind != MODULES and len(same) == 1
        return f"layer {group.layer}" if alone else group.place

    def _nodes(self, group: NodeGroup) -> Iterator[Node]:
        single = group.kind not in _UNIT
        for number, amount in enumerate(group.units.tolist()):
            name, unit = self.name_unit(group, number), None if single else number
            unit = unit if group.expert is None else group.expert[0]
            yield Node(name, amount, group.kind, group.place, group.layer, unit)

    def name_unit(self, group: NodeGroup, number: int) -> str:
        """What node `number` of a `group` is called: "layer 3 head 5"; where a group is one node, as the group."""
        if group.expert is not None:
            said = f"{'router of ' if group.kind == ROUTER else ''}expert {group.expert[0]}"
            return f"{group.module if group.layer is None else f'layer {group.layer}'} {said}"
        unit = _UNIT.get(group.kind)
        return self.label(group) if unit is None else f"{self.label(group)} {unit} {number}".strip()

    def _rows(self, kind: str) -> Sequence[NodeGroup]:
        """The groups of a kind that lie in layers; all of them where none does."""
        found = self.of_kind(kind)
        return [group for group in found if group.layer is not None] or found

    def _table_experts(self, kind: str) -> Tensor:
        """Groups of single experts as [layer, expert]; layers without experts are no rows."""
        import torch

        experts = self.of_kind("experts")
        layers = list(dict.fromkeys((group.stack, group.layer, group.module) for group in experts))
        count = max(group.expert[1] for group in experts if group.expert is not None)
        table = torch.zeros(len(layers), count, dtype=torch.float64)
        for group in self.groups:
            place = (group.stack, group.layer, group.module)
            if group.kind == kind and group.expert is not None and place in layers:
                table[layers.index(place), group.expert[0]] += group.relevance.double().sum()
        return table

    def _stack(self, kind: str, by_token: bool = False) -> Tensor:
        import torch

        rows = [group.relevance if by_token else group.units for group in self._rows(kind)]
        shapes = {tuple(row.shape) for row in rows}
        if len(shapes) > 1:
            raise NotApplicable(
                f"{kind} lie in groups of different sizes ({', '.join(map(str, sorted(shapes)))}), which make no "
                "table. Read e.inside.groups, one by one."
            )
        return torch.stack(rows)


@dataclass(frozen=True)
class ByPosition:
    """`heads` [layer, token, head], `neurons` [layer, token, neuron], `layers` [layer, token]; attention's roles."""

    inside: Inside

    @property
    def heads(self) -> Tensor:
        return self.inside._stack("heads", True)

    @property
    def neurons(self) -> Tensor:
        return self.inside._stack("neurons", True)

    @property
    def layers(self) -> Tensor:
        return self.inside._stack("layers", True).squeeze(-1)

    @property
    def queries(self) -> Tensor:
        return self.inside._stack("queries", True)

    @property
    def keys(self) -> Tensor:
        return self.inside._stack("keys", True)

    @property
    def values(self) -> Tensor:
        return self.inside._stack("values", True)


@dataclass(frozen=True, eq=False)
class HeadPairs:
    """The heads of one attention: `attention` and `relevance` are [head, query, key].

    y_q = Σ_k A_qk v_k, so that the relevance of a head at a query is a sum over keys: A_qk (v_k · dy_q). Summed over
    keys it is the head's relevance by position, and summed over all it is that of the head.
    """

    module: str
    attention: Tensor
    relevance: Tensor
