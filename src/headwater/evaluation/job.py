"""The work of an evaluation: samples explained by every method, and perturbed for every measure, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..results.explanation import Explanation
from .files import EvaluationDirectory
from .measures import LEDGER, Answer, Measure
from .perturbation import InputPool, SampleSource, Subjects
from .progress import show_progress
from .protocols import Protocol
from .ranking import Counts, Floats
from .results import Samples
from .workers import compute_chunks, working

Tick = Callable[[float], None]


@dataclass(frozen=True)
class EvaluationJob:
    """The samples of a source, explained by every method and perturbed for every measure; knows nothing of texts."""

    source: SampleSource
    rows: Sequence[int]
    labels: Sequence[int] | None
    methods: tuple[str, ...]
    measures: tuple[Measure, ...]
    protocol: Protocol
    budget: int
    seed: int

    @property
    def by_steps(self) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if measure.by_steps)

    def run(
        self, chunk: int, place: EvaluationDirectory | None = None, progress: bool | None = None, workers: int = 1
    ) -> Samples:
        """All samples, a chunk at a time; chunks that lie in `place` are not computed again."""
        starts = range(0, len(self.source), chunk)
        chunks = {n: range(start, min(start + chunk, len(self.source))) for n, start in enumerate(starts)}
        found = {n: part for n in chunks if place and (part := place.part(n)) is not None}
        done = sum(len(part) for part in found.values())
        left = {n: numbers for n, numbers in chunks.items() if n not in found}
        with show_progress(len(self.source), done, progress) as tick:
            for n, part in self.chunks(left, min(workers, len(left)), tick):
                found[n] = part
                if place is not None:
                    place.keep(n, part)
        return Samples.join([found[n] for n in sorted(found)])

    def chunks(self, left: Mapping[int, Sequence[int]], workers: int, tick: Tick) -> Iterator[tuple[int, Samples]]:
        """The chunks by number, as they are done: here, or by worker processes."""
        if workers <= 1:
            if not self.source.bounds.methods:  # else memory is short
                keep_freed_memory()
            yield from ((n, self.chunk(numbers, tick)) for n, numbers in left.items())
            return
        with working(self, workers) as pool:
            for n, part in compute_chunks(pool, left):
                tick(len(part))
                yield n, part

    def chunk(self, numbers: Sequence[int], tick: Tick) -> Samples:
        """Some samples: explanations first, then all their perturbed inputs together."""
        part = self.source.part(numbers)
        pool = InputPool(part, self.budget)
        whole = np.array([pool.add(i, keep_everything(part, i))[0] for i in range(len(part))])
        pool.run()
        predicted = pool.logits[whole].argmax(1)
        truth = np.array([self.labels[n] for n in numbers]) if self.labels is not None else np.full(len(part), -1)
        targets = truth if self.protocol.target == "true" else predicted
        share = len(part) / 2 / len(self.methods)
        asked = []
        for method in self.methods:
            asked.append(self.ask(part, pool, method, targets, predicted))
            tick(share)
        pool.run(lambda done: tick(done * len(part) / 2))
        logits = pool.logits
        values = {a.method: self.answers(a, logits, whole, targets, predicted) for a in asked}
        items = np.array([len(part.items(i)) for i in range(len(part))])
        common = {
            "row": np.array([self.rows[n] for n in numbers]),
            "label": truth,
            "predicted": predicted,
            "items": items,
        }
        return Samples(common, values)

    def ask(self, part: Subjects, pool: InputPool, method: str, targets: Counts, predicted: Counts) -> MethodRequest:
        """One method's explanations, and where the answers to its perturbed inputs will stand."""
        made = explain_samples(part, method, targets, self.seed)
        own = [items_relevance(e, part.items(i)) for i, e in enumerate(made)]
        other = own
        if any(measure.of == "predicted" for measure in self.by_steps):
            other = self.explain_prediction(part, method, own, targets, predicted)
        places = {
            measure.name: [
                pool.add(i, measure.inputs((own if measure.of == "protocol" else other)[i], self.protocol))
                for i in range(len(part))
            ]
            for measure in self.by_steps
        }
        singles = {m.name: m.compute(part, method, made, targets, self.seed) for m in self.measures if m.compute}
        return MethodRequest(method, {**ledger_columns(made), **singles}, places)

    def explain_prediction(
        self, part: Subjects, method: str, own: list[Floats], targets: Counts, predicted: Counts
    ) -> list[Floats]:
        """Relevance for the predicted class: explained again only where it is not the class that was explained."""
        wrong = np.flatnonzero(targets != predicted).tolist()
        found = list(own)
        made = explain_samples(part, method, predicted[wrong], self.seed, wrong)
        for i, e in zip(wrong, made, strict=True):
            found[i] = items_relevance(e, part.items(i))
        return found

    def answers(
        self, asked: MethodRequest, logits: Floats, whole: Counts, targets: Counts, predicted: Counts
    ) -> dict[str, Any]:
        """One method's numbers: [samples] for its ledger, [samples, steps] for every measure."""
        found: dict[str, Any] = dict(asked.columns)
        for measure in self.by_steps:
            labels = targets if measure.of == "protocol" else predicted
            found[measure.name] = np.stack(
                [
                    measure.answers(Answer(logits[places], logits[whole[i]], int(labels[i]), self.protocol))
                    for i, places in enumerate(asked.places[measure.name])
                ]
            )
        return found


@dataclass(frozen=True)
class MethodRequest:
    """What one method said of a chunk, and where the answers to its perturbed inputs stand."""

    method: str
    columns: dict[str, Floats]
    places: dict[str, list[Counts]]


def keep_freed_memory() -> None:
    """Lets the C library keep what large tensors free, up to 64 MiB, instead of handing it back after every layer.

    Freeing one block of just under 32 MiB is what moves glibc's thresholds; the pages are never touched. Without it a
    batch on the CPU spends a sixth of its time on fresh pages. Elsewhere it does nothing.
    """
    torch.empty(2**25 - 2**13, dtype=torch.uint8)


def keep_everything(part: Subjects, sample: int) -> Any:
    return np.ones((1, len(part.items(sample))), dtype=np.bool_)


def explain_samples(
    part: Subjects, method: str, targets: Counts, seed: int, samples: Sequence[int] | None = None
) -> list[Explanation]:
    """One explanation per sample, each for its own class: `targets` stands beside `samples`."""
    chosen = range(len(part)) if samples is None else samples
    found: dict[int, Explanation] = {}
    for label in sorted(set(targets.tolist())):
        group = [i for i, target in zip(chosen, targets, strict=True) if target == label]
        found.update(zip(group, part.explain(group, method, label, seed), strict=True))
    return [found[i] for i in chosen]


def items_relevance(explanation: Explanation, items: Counts) -> Floats:
    """The relevance of the items that take part."""
    return np.asarray(explanation.relevance.double().cpu().numpy()[items], dtype=np.float64)


def ledger_columns(made: Sequence[Explanation]) -> dict[str, Floats]:
    rows = list(ledger_numbers(made))
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(LEDGER)}


def ledger_numbers(made: Sequence[Explanation]) -> Iterator[tuple[float, ...]]:
    """One row of numbers per explanation. Amounts that were cut off or held count as constants, so a row adds up."""
    for e in made:
        books = e.ledger
        others = books.constants.total + books.cut_off.total + books.held.total
        yield e.score, books.inputs, books.biases.total, others, books.readout, books.error
