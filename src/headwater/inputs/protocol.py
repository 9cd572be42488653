"""What a model makes of samples of its own kind: graphs, or whatever it can read, explained by the same `explain`.

A model with a method `headwater_inputs(samples)` that gives a `Prepared` is handed its samples as they are. Nothing
else of Headwater has to know what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Prepared", "SideInput", "SupportsSamples"]

Link = tuple[int, int, float]  # two items of a sample, and the relevance of what joins them


@dataclass(frozen=True)
class SideInput:
    """What enters a model beside its items, through the scores of its attention alone: the edges of a graph.

    Where attention is held constant (AH-rule) it has no relevance. Else `relevance(sample, value, gradient)` gives it
    to links between items; value and gradient are one sample's row of `module`'s output. `name` is its ledger line.

    Example:
        >>> from headwater.inputs.protocol import SideInput
        >>> bias = torch.nn.Embedding(4, 1)
        >>> edges = SideInput("edges", bias, lambda sample, value, gradient: [(0, 1, float((value * gradient).sum()))])
        >>> edges.relevance(0, torch.ones(1), torch.ones(1))
        [(0, 1, 1.0)]
    """

    name: str  # its line in the ledger
    module: nn.Module  # whose output it is
    relevance: Callable[[int, Tensor, Tensor], Sequence[Link]]  # shares of links, of one sample's row


@dataclass(frozen=True)
class Prepared:
    """Samples as arguments of a model.

    `arguments` are the model's own, by name. `names` are what a reader knows each sample's items by; `real` [samples,
    places] is true for items and false for padding. `before` names the positions that the model puts before the items,
    such as a class token or a virtual node, by the parameter they come from: each has a line of that name in the
    ledger. The answer is read off the first position, or, if `pooled`, off the mean of all.

    Example:
        >>> from headwater.inputs.protocol import Prepared
        >>> ids = torch.tensor([[3, 5]])
        >>> made = Prepared({"input_ids": ids}, names=(("three", "five"),), real=torch.ones_like(ids, dtype=torch.bool))
        >>> made.pooled
        False
    """

    arguments: dict[str, Tensor]  # the model's own, by name
    names: tuple[tuple[str, ...], ...]  # of each sample's items, for readers
    real: Tensor  # [samples, places]: true for items, false for padding
    before: tuple[str, ...] = ()  # positions in front of the items, by the parameter they come from
    pooled: bool = False  # whether the answer is read off the mean of all positions
    beside: SideInput | None = None  # what enters through the scores of attention, such as edges


@runtime_checkable
class SupportsSamples(Protocol):
    """A model that says how its inputs are made.

    Example:
        >>> from headwater.inputs.protocol import SupportsSamples
        >>> isinstance(hw.load("headwater/bace")[0], SupportsSamples)
        True
    """

    def headwater_inputs(self, samples: Sequence[Any]) -> Prepared:
        """These `samples` as one batch; one that cannot be used is an `InputError` that says which and why."""
        ...


def sample_name(kind: str, index: int, count: int) -> str:
    """What an error calls one of several samples: "text 3"; one alone is "the text"."""
    return f"the {kind}" if count == 1 else f"{kind} {index}"


# The former names, which models with `headwater_inputs` may use.
Beside: TypeAlias = SideInput
Prepares: TypeAlias = SupportsSamples
