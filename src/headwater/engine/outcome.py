"""What a method gives for a batch, and how a card is asked for what results hold of it: once, when all is computed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..inputs.host_copies import HostCopies
from ..inputs.places import Captured
from ..inputs.readouts import ScoreReading
from ..rules import Books
from ..rules.tapped import InsideRecord


class Fetched:
    """Copies in main memory, found by what they are copies of: none of another tensor, whatever takes its place."""

    def __init__(self) -> None:
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}
        self.sums: dict[int, tuple[Tensor, Tensor]] = {}  # of relevance over its last axis

    def copy_of(self, tensor: Tensor) -> Tensor:
        """The tensor in main memory."""
        known = self.copies.get(id(tensor))
        return known[1] if known is not None and known[0] is tensor else tensor.cpu()

    def sum_of(self, relevance: Tensor) -> Tensor:
        """The relevance summed over its last axis, in main memory."""
        known = self.sums.get(id(relevance))
        return known[1] if known is not None and known[0] is relevance else relevance.sum(-1).cpu()


@dataclass(frozen=True)
class Outcome:
    """What a method gives for a batch. `captured` are the inputs that were explained.

    `relevance` has a tensor for each of them, of its shape: input times gradient. `gradients` are those of the score
    under the rules, one for each input; a method that computes none leaves the list empty.

    Example:
        >>> from headwater.methods import NO_RULES, Method, propagate
        >>> def sizes(run):
        ...     outcome = propagate(run, NO_RULES)
        ...     rows = outcome.gradients[0].norm(dim=-1)  # [samples, positions]
        ...     return outcome.with_positions([row[real] for row, real in zip(rows, run.batch.real)])
        >>> e = hw.explain("headwater/sentiment", "a fine film", method=Method("sizes", "of gradients", sizes))
        >>> bool((e.relevance > 0).all())
        True
    """

    reading: ScoreReading  # the score that was read, and what it is called
    score: Tensor  # [samples], float64
    readout: Tensor  # [samples]
    captured: list[Captured]  # the inputs that were explained
    relevance: list[Tensor]  # input times gradient, one for each captured input
    books: Books  # what biases and constants took
    met: dict[str, int]  # how often each rule acted
    positions: list[Tensor] | None = None  # one number a real position, from methods that give no more than that
    coarsest: torch.dtype | None = None  # the least precise type that the model cast to inside
    constants: dict[str, list[float]] = field(default_factory=dict)  # lines of the ledger that are no model's sources
    beside: list[tuple[Captured, Tensor]] = field(default_factory=list)  # what entered beside the items, its gradient
    gradients: list[Tensor] = field(default_factory=list)  # one for each captured input
    way: str = "plain"  # how it was computed
    inside: InsideRecord | None = None  # relevance at parts of the model, where it was asked for
    fetched: Fetched = field(default_factory=Fetched)  # what of this lies in main memory, too

    def with_positions(self, positions: list[Tensor]) -> Outcome:
        """Relevance as one number per token: `positions` has a row per sample. Biases and constants get nothing."""
        nothing = torch.zeros_like(self.readout)
        return replace(self, positions=positions, books=Books(len(self.score)), readout=nothing)


class FetchingOutcome:
    """An outcome whose numbers are on their way to main memory: what does not need them can be done meanwhile.

    `real` are the batch's positions that are no padding, which are asked for with them.
    """

    def __init__(self, outcome: Outcome, real: Tensor | None = None) -> None:
        self.outcome: Outcome = outcome
        self.whole: list[Tensor] = [outcome.score, outcome.readout, *([] if real is None else [real])]
        books = outcome.books
        outcome.reading.send()
        sums = [one.sum(-1) for one in outcome.relevance]
        self.copies: HostCopies = HostCopies([*self.whole, *sums, *books.amounts.values(), *books.sizes.values()])

    def wait(self) -> Outcome:
        """The outcome with its books in main memory, and what else is read of it.

        The names of what was read come first: a card has their numbers when it has done the forward pass.
        """
        self.outcome.reading.prepare()
        outcome, books, found = self.outcome, self.outcome.books, iter(self.copies.wait())
        fetched = Fetched()
        fetched.copies = {id(one): (one, next(found)) for one in self.whole}
        fetched.sums = {id(one): (one, next(found)) for one in outcome.relevance}
        amounts, sizes = ({index: next(found) for index in some} for some in (books.amounts, books.sizes))
        return replace(outcome, books=replace(books, amounts=amounts, sizes=sizes), fetched=fetched)
