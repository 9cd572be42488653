"""FlashTrace (2026): a whole answer in one pass of nearness to the residual stream, then hops through the answer.

A layer's sum at the answer's tokens is one vector, the sum over them; what each head brings to it from a position
counts by its nearness, as in information flow routes, and the shares of all layers are added up. Nothing is negative.
What ends on the answer's own tokens weighs them in the next hop. Commas, full stops and spaces count for nothing, as
sources and in the sum. Written after the package `flashtrace` 0.1.1, with which the tests compare it; it knows no
model's names, so it runs where `ifr` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...api.output_text import Text, decode
from ...engine.model import where_it_is
from ...engine.options import read_options
from ...engine.session import Session
from ...inputs.places import find_places
from ...inputs.prompt import Prompt
from ...methods.ifr import Stream, follow_stream
from ...rules.sources import wide

FLASHTRACE = "flashtrace"
HOPS = 1  # the package's own choice
PASSED_OVER = (",", ".", "")


def trace_answer(model: nn.Module, tokenizer: Any, said: Prompt, answer: Sequence[int], hops: int = HOPS) -> Tensor:
    """[positions of the prompt]: the relevance of a whole answer, at least 0."""
    options = read_options(tokenizer=tokenizer)
    session = Session(model, *where_it_is(model))
    text = Text.of(model, tokenizer, said, [*answer, answer[-1]])  # the last answer token is read, too
    batch = text.batch(len(text.output), 1, find_places(model, options.at))
    ids = [*said.ids, *answer]
    counts = torch.tensor([decode(tokenizer, [token]).strip() not in PASSED_OVER for token in ids])
    with follow_stream(session.make_run(batch, None, options)) as (stream, _):
        return hop_on(stream, counts, len(said.ids), hops).cpu()


def hop_on(stream: Stream, counts: Tensor, first: int, hops: int) -> Tensor:
    """The answer's tokens weigh alike at first, then by what ended on each; `first` is where the answer begins."""
    counts = counts.to(wide(stream.sums[-1].value))
    own = torch.arange(len(counts), device=counts.device) >= first
    sinks = counts * own if bool((counts * own).any()) else own.to(counts)
    found, share = counts.new_zeros(first), 1.0
    for _ in range(hops + 1):
        reached = stream.reach(sinks / sinks.sum()) * counts
        found = found + share * reached[:first]
        sinks = reached * own
        if float(sinks.sum()) <= 0:
            break
        share *= float(sinks.sum() / reached.sum())
    return found
