"""`ifr`: Information Flow Routes (Ferrando & Voita 2024). Relevance flows down the sums of the residual stream.

At a sum y = residual + sum over heads and source tokens of their outputs (+ feed-forward), a term a has the importance
max(0, |y|_1 - |y - a|_1), divided by that of all terms. What a head brings from a source token is its value, times its
weight, through the linear map that leads to the sum. That map is read off the model's gradients, so that no model's
names are needed; a normalisation on the way is linear, its divisor held constant (LN-rule).

Feed-forward layers move nothing between tokens, so of a layer the sum with attention is all that counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..engine.compiled import run_eagerly
from ..engine.forward import Demand, Run, forward, read_score, scope_for
from ..engine.outcome import Outcome
from ..errors import NotApplicable, NotFinite
from ..inputs.readouts import ScoreReading, join_readings
from ..inputs.restoring import outside_inference
from ..rules import Books, RuleSet
from ..rules.residual_stream import NOTHING, MixedValues, ResidualScope, ResidualSum, Term
from ..rules.sources import wide
from .attention import align_positions
from .perturbation import split_samples
from .registry import Method, register

LINEAR_NORMS = Demand(RuleSet(frozenset(("ln",))))
NUMBERS, NUMBERS_ON_CARD = 1 << 22, 1 << 26  # of differences that are held at once
REFUSAL = "'ifr' follows one stack of residual blocks, each the sum of its input and one self-attention; "


@dataclass(frozen=True)
class Stream:
    """One sample's run: the sums with attention, first layer first, of `length` positions each."""

    sums: list[ResidualSum]
    attentions: list[MixedValues]
    length: int

    @classmethod
    def of(cls, scope: ResidualScope, run: Run, start: Tensor) -> Stream:
        shapes = {tuple(one.map.weights.shape[-2:]) for one in scope.attentions}
        if not shapes:
            raise NotApplicable("'ifr' reads attention, and this model has none that can be seen.")
        if len(shapes) != 1 or len(set(next(iter(shapes)))) != 1:
            raise NotApplicable(f"{REFUSAL}this model has attention of shapes {sorted(shapes)}.")
        length = next(iter(shapes))[0]
        inner = {id(t.inner) for one in scope.sums for t in one.pair if t.inner is not None and not t.inner.used}
        sums = [one for one in scope.sums if id(one) not in inner and any(t.attentions for t in one.terms)]
        found = cls(sums, scope.attentions, length)
        found.check(get_gradient_edge(start), run.batch.ids is not None)
        if run.batch.length not in (None, length):
            raise NotApplicable(f"{REFUSAL}this model has {length} positions for {run.batch.length} tokens.")
        return found

    def check(self, start: GradientEdge, of_tokens: bool) -> None:
        """Every attention is in one sum, and all that a sum adds up comes from the sum before it."""
        met = sorted(k for one in self.sums for k in NOTHING.union(*(t.attentions for t in one.terms)))
        if met != list(range(len(self.attentions))):
            raise NotApplicable(
                f"{REFUSAL}of this model's {len(self.attentions)} attentions {len(met)} were met there."
            )
        sizes = {one.value.shape[-1] for one in self.sums}
        if len(sizes) != 1 or any(one.value.numel() != self.length * max(sizes) for one in self.sums):
            raise NotApplicable(f"{REFUSAL}this model's sums have several shapes.")
        for before, after in zip(self.sums, self.sums[1:], strict=False):
            if reaches(after.edge.node, start.node, before.edge.node):
                raise NotApplicable(f"{REFUSAL}in this model a signal goes around one of them.")
        starts = [start if of_tokens else None, *(one.edge for one in self.sums)]
        for edge, after in zip(starts, self.sums, strict=False):
            for term in others_of(after):
                self._check_stays(term, edge)

    def _check_stays(self, term: Term, before: GradientEdge | None) -> None:
        """A term without attention has at a position what came before it there, and nothing of other positions."""
        if before is None or term.edge.node is before.node or self.length == 1:
            return
        place = self.length // 2
        seed = torch.zeros_like(term.value)
        self.rows(seed)[place] = draw(seed.shape[-1], like=seed)
        found = gradient(term.edge, before, seed)
        if found is not None:
            reached = self.rows(found).abs().sum(-1)
            reached[place] = 0
            if float(reached.max()) > 0:
                raise NotApplicable(
                    "'ifr' follows attention, and this model moves signals between tokens in another way."
                )

    def rows(self, value: Tensor) -> Tensor:
        """[positions, size] of a tensor of the stream, of one sample."""
        return value.view(self.length, -1)

    def matrices(self) -> list[Tensor]:
        """Of each sum, [queries, sources]: the share of a position that comes from each position of the sum before."""
        return [self._shares(one) for one in self.sums]

    def reach(self, sinks: Tensor) -> Tensor:
        """[positions]: what attention brings from each position to the sum of several ones, weighed by `sinks`.

        Of every layer the shares in its own sum, added up over layers; nothing is passed on from layer to layer.
        """
        return sum((self._reach_of(one, sinks) for one in self.sums), sinks.new_zeros(self.length))

    def _reach_of(self, one: ResidualSum, sinks: Tensor) -> Tensor:
        whole = sinks @ wide(self.rows(one.value))
        stays = sum(measure_importance(sinks @ wide(self.rows(t.value)), whole) for t in others_of(one))
        found = sinks.new_zeros(self.length)
        for number in sorted(NOTHING.union(*(t.attentions for t in one.terms))):
            parts = self._parts(self.attentions[number], one)
            looked = torch.einsum("q,hqk->hk", sinks, parts.weights)
            found = found + measure_importance(looked[..., None] * parts.vectors, whole).sum(0)
        total = found.sum() + stays
        return found / total if float(total) > 0 else found

    def _shares(self, one: ResidualSum) -> Tensor:
        whole = wide(self.rows(one.value))
        shares = torch.diag(sum((self._importance_of(t, whole) for t in others_of(one)), whole.new_zeros(self.length)))
        rest = sum((wide(self.rows(t.value)) for t in one.terms if t.attentions), torch.zeros_like(whole))
        size = float(rest.abs().max())
        for number in sorted(NOTHING.union(*(t.attentions for t in one.terms))):
            parts = self._parts(self.attentions[number], one)
            rest = rest - parts.mix()
            shares = shares + parts.importance(whole)
        check_offset(rest, size * find_tolerance(one.value))
        total = shares.sum(1, keepdim=True)
        return torch.where(total == 0, torch.eye(self.length).to(shares), shares / total)

    def _importance_of(self, term: Term, whole: Tensor) -> Tensor:
        return measure_importance(wide(self.rows(term.value)), whole)

    def _parts(self, attention: MixedValues, one: ResidualSum) -> RoutedValues:
        """What every head brings from every source."""
        width, like = one.value.shape[-1], one.value

        def pull(seed: Tensor) -> Tensor:
            found = gradient(one.edge, attention.edge, seed.reshape(one.value.shape))
            if found is None:
                raise NotApplicable(f"{REFUSAL}an attention of this model does not reach its sum.")
            turned = found.permute(attention.order)
            return wide(turned.reshape(-1, *turned.shape[-2:]))

        scale = self._scale(pull, draw(width, like=like))
        usable = (scale.abs() > 1e-3).all(0).nonzero().flatten()
        columns = []
        for channels in torch.arange(width, device=like.device).split(len(usable)):
            places = usable[: len(channels)]
            seed = like.new_zeros(self.length, width)
            seed[places, channels] = 1
            columns.append((pull(seed)[:, places] / scale[:, places, None]).transpose(0, 1))
        outward = torch.cat(columns)  # [width, heads, size]
        values = wide(attention.map.values.reshape(-1, *attention.map.values.shape[-2:]))
        weights = wide(attention.map.weights.reshape(-1, self.length, self.length))
        return RoutedValues(weights * scale[:, :, None], torch.einsum("hks,whs->hkw", values, outward))

    def _scale(self, pull: Any, vector: Tensor) -> Tensor:
        """[heads, positions]: the map from attention to the sum is the same everywhere but for these factors."""
        everywhere = pull(vector.expand(self.length, -1))
        place = int(everywhere.abs().sum((0, 2)).argmax())
        single = torch.zeros_like(vector.expand(self.length, -1))
        single[place] = vector
        alone, model = pull(single), everywhere[:, place]
        expected = torch.zeros_like(alone)
        expected[:, place] = model
        square = model.square().sum(-1)
        scale = torch.where(square[:, None] > 0, (everywhere * model[:, None]).sum(-1) / square[:, None], 1.0)
        off = torch.maximum(
            (alone - expected).abs().max(), (everywhere - scale[..., None] * model[:, None]).abs().max()
        )
        if float(off) > find_tolerance(vector) * float(everywhere.abs().max()):
            raise NotApplicable(f"{REFUSAL}in this model another signal takes part in what attention brings.")
        return scale


@dataclass(frozen=True)
class RoutedValues:
    """What heads bring: weights [heads, queries, sources] times vectors [heads, sources, width]."""

    weights: Tensor
    vectors: Tensor

    def mix(self) -> Tensor:
        return torch.einsum("hqk,hkw->qw", self.weights, self.vectors)

    def importance(self, whole: Tensor) -> Tensor:
        """[queries, sources], summed over heads. Sources that no query of a block looks at are left out."""
        heads, length, width = self.vectors.shape
        found = whole.new_zeros(length, length)
        for rows in torch.arange(length, device=whole.device).split(queries_at_once(length, width, whole.device)):
            seen = self.weights[:, rows].abs().sum((0, 1)).nonzero().flatten()
            for head in range(heads):
                parts = self.weights[head, rows][:, seen, None] * self.vectors[head, seen]
                found[rows[:, None], seen] += measure_importance(parts, whole[rows, None])
        return found


def queries_at_once(length: int, width: int, device: torch.device) -> int:
    """A card is kept busy by large blocks; on a processor small ones stay in its cache."""
    return max(1, (NUMBERS if device.type == "cpu" else NUMBERS_ON_CARD) // (length * width))


def measure_importance(part: Tensor, whole: Tensor) -> Tensor:
    """How near a term is to its sum: |y|_1 - |y - a|_1, at least 0."""
    return (whole.abs().sum(-1) - (whole - part).abs().sum(-1)).clamp(min=0)


def others_of(one: ResidualSum) -> list[Term]:
    return [term for term in one.terms if not term.attentions]


def check_offset(rest: Tensor, most: float) -> None:
    """What attention's terms have besides its parts is a bias: the same at every position, to rounding."""
    if float((rest - rest[:1]).abs().max()) > most:
        raise NotApplicable(f"{REFUSAL}in this model more than attention and a bias is in a term with attention.")


def reaches(node: Any, goal: Any, around: Any) -> bool:
    """Whether a way through the graph leads from `node` to `goal` without passing `around`."""
    seen, waiting = {around}, [node]
    while waiting:
        here = waiting.pop()
        if here is goal:
            return True
        if here is not None and here not in seen:
            seen.add(here)
            waiting.extend(following for following, _ in here.next_functions)
    return False


def gradient(of: GradientEdge, at: GradientEdge, seed: Tensor) -> Tensor | None:
    (found,) = torch.autograd.grad([of], [at], [seed], retain_graph=True, allow_unused=True)
    return found


def draw(size: int, like: Tensor) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)


def find_tolerance(value: Tensor) -> float:
    """For comparisons of two ways to compute one thing; models may normalise in float32 whatever their type."""
    return max(1e-3, 4 * math.sqrt(torch.finfo(value.dtype).eps))


@contextmanager
def follow_stream(run: Run) -> Iterator[tuple[Stream, Any]]:
    """The residual stream of one sample's run, and what the model gave."""
    scope = scope_for(replace(run, scope=ResidualScope), LINEAR_NORMS)
    assert isinstance(scope, ResidualScope)
    with outside_inference(), torch.enable_grad(), run_eagerly():
        out, inputs = forward(run, scope)
        if len(inputs) != 1:
            raise NotApplicable(f"{REFUSAL}this model looks its input up twice.")
        scope.books.open = False
        yield Stream.of(scope, run, inputs[0].leaf), out
    scope.release()


def explain_sample(run: Run, readers: Sequence[Any]) -> list[tuple[ScoreReading, Tensor]]:
    """Of each score, its reading and the relevance of the model's positions, which sums to 1."""
    with follow_stream(run) as (stream, out):
        matrices = stream.matrices()
        found = []
        for reader in readers:
            read = read_score(replace(run, read=reader), out)
            top = torch.autograd.grad(
                read.ends, [stream.sums[-1].edge], read.gradients(), retain_graph=True, allow_unused=True
            )[0]
            found.append((read.reading, flow_down(stream, top, matrices)))
    return found


def flow_down(stream: Stream, top: Tensor | None, matrices: list[Tensor]) -> Tensor:
    """From the positions that the score is read off, in even shares, to those of the input."""
    if top is None:
        raise NotApplicable(f"{REFUSAL}this model's score does not depend on the last of them.")
    read = stream.rows(top).abs().sum(-1) > 0
    relevance = read.to(matrices[-1].dtype) / read.sum().clamp(min=1)
    for matrix in reversed(matrices):
        relevance = relevance @ matrix
    if not bool(relevance.isfinite().all()):
        raise NotFinite("the residual stream is not finite. It overflowed; a more precise dtype= helps.")
    return relevance.cpu()


def read_scores_at_once(job: Run, readers: Sequence[Any]) -> Iterator[Outcome]:
    """All scores are read off one forward pass."""
    samples = [explain_sample(part, readers) for part in split_samples(job)]
    yield from (join_flows(list(parts), job) for parts in zip(*samples, strict=True))


def join_flows(parts: list[tuple[ScoreReading, Tensor]], job: Run) -> Outcome:
    score = torch.cat([reading.score.detach().double().cpu() for reading, _ in parts])
    reading = join_readings([reading for reading, _ in parts], score)
    outcome = Outcome(reading, score, torch.zeros_like(score), [], [], Books(job.batch.samples), {})
    return align_positions(job, outcome, [row for _, row in parts])


def run_ifr(job: Run) -> Outcome:
    (outcome,) = read_scores_at_once(job, [job.read])
    return outcome


register(
    Method(
        "ifr",
        "information flow routes (Ferrando & Voita 2024): nearness of terms to the residual stream's sums",
        run_ifr,
        group="attention",
        each=read_scores_at_once,
    )
)
