"""How much memory an explanation will take, and how to make it fit a limit.

The request is run at a few short lengths, and the bytes that torch allocates are counted. In a transformer they are a
polynomial of the length: a constant, a part per token, and a part per pair of tokens. The polynomial is extrapolated to
the whole request. So no formula for any architecture is needed.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..engine.kind import choose_for, output_of
from ..engine.options import Request
from ..engine.plan import make_plan
from ..engine.session import Session
from ..engine.steps import Step
from ..errors import NotApplicable, UsageError
from ..inputs.batch import Batch, map_leaves
from ..inputs.readouts import ScoreReading
from ..inputs.targets import Reader, Token
from ..methods.registry import Method
from ..plurals import say_count
from .backends import free_on_host
from .meter import Tally, peak_of
from .offload import AHEAD, UNDERWAY
from .policy import UNLIMITED, MemoryPolicy
from .recompute import Count, choose_blocks

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
MOST = 2**60  # bytes of a limit: more than any machine has
LONGEST = 8192  # tokens of the longest trial
SHORT = 512  # up to here a trial of half the length costs nothing
STEP = 128  # lengths of trials are multiples of this where they are long enough: kernels work in such blocks
STEADY = 1e-4  # of the memory: a curvature below this is rounding
MARGIN = 0.02  # of a limit, for what an estimate may miss
HOST_SHARE = 4  # one in so many free bytes of main memory may be taken: it is then nobody else's


def parse_bytes(text: int | str) -> int:
    """24GiB, "500 MB", or a number of bytes."""
    if isinstance(text, int) and not isinstance(text, bool):
        found: float = text
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", str(text))
        if match is None or match[2].lower() not in UNITS or match[1].count(".") > 1 or match[1] == ".":
            raise UsageError(f"{text!r} is no amount of memory. Write it as 24GiB, 500MB, or a number of bytes.")
        found = float(match[1]) * UNITS[match[2].lower()]
    if not 1 <= found <= MOST:
        raise UsageError(f"a memory limit must be from 1 byte to 1 EiB, not {str(text)[:40]}.")
    return int(found)


def in_words(size: float) -> str:
    """Bytes as people say them."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size) >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size:.0f} bytes"


@dataclass(frozen=True)
class MemoryCurve:
    """Bytes for so many samples of a length: constant + samples * (length * linear + length^2 * square)."""

    constant: float
    linear: float
    square: float

    def at(self, samples: int, length: int) -> float:
        return self.constant + samples * (self.linear * length + self.square * length**2)

    @classmethod
    def through(cls, lengths: Sequence[int], sizes: Sequence[float]) -> MemoryCurve:
        """Fits one, two or three points. Where the square part would be noise, a line through the last two is taken."""
        if len(lengths) == 1:
            return cls(0.0, sizes[0] / lengths[0], 0.0)
        (x, u), (y, v) = zip(lengths[-2:], sizes[-2:], strict=True)
        slope = (v - u) / (y - x)
        square = 0.0
        if len(lengths) == 3:
            first = (u - sizes[0]) / (x - lengths[0])
            square = (slope - first) / (y - lengths[0])
            if square * y**2 < STEADY * v:
                square = 0.0
        linear = slope - square * (x + y)
        return cls(u - linear * x - square * x**2, linear, square)


@dataclass(frozen=True)
class Estimate:
    """Bytes that an explanation takes on its device: its model's `weights`, and at most so much `above` them.

    `samples` of `length` positions are computed at once; `kept` of what is above waits for the backward pass. What is
    kept elsewhere, or computed again, stands in `room`.
    """

    weights: int  # bytes of the model
    above: int  # bytes above it, at the most
    kept: int  # of these, bytes that wait for the backward pass
    samples: int  # computed at once
    length: int | None  # positions of each
    room: MemoryPolicy = UNLIMITED  # what is kept elsewhere or computed again

    @property
    def peak(self) -> int:
        """Bytes at the most, the model's weights among them."""
        return self.weights + self.above

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {**dataclasses.asdict(self), "peak": self.peak}

    def __str__(self) -> str:
        each = f" x {self.length}" if self.length is not None else ""
        lines = [
            f"{in_words(self.peak)} at the most: {in_words(self.weights)} of weights and {in_words(self.above)} above",
            f"{self.samples}{each} at once; {in_words(self.kept)} wait for the backward pass",
        ]
        if self.room.keep != "device":
            lines.append(f"{in_words(self.room.on_device)} of them on the device, the rest on the {self.room.keep}")
        if self.room.recompute:
            what = self.room.recompute
            lines.append("all blocks are computed again" if what == "blocks" else f"{what} blocks are computed again")
        return "\n".join(lines)


def fit_to_limit(ask: Request) -> Request:
    """The same request, made so that it stays within its memory limit."""
    assert ask.options.memory_limit is not None
    trial = MemoryTrial.of(ask)
    found = trial.fit(parse_bytes(ask.options.memory_limit))
    whole = found.samples == trial.step.batch.samples
    size = ask.options.batch_size if whole else found.samples
    return replace(ask, options=replace(ask.options.with_memory(found.room), method=trial.method, batch_size=size))


@dataclass(frozen=True)
class MemoryTrial:
    """The largest batch of a request, and what its short pieces take."""

    ask: Request
    session: Session
    method: Method
    step: Step
    seen: dict[MemoryPolicy, tuple[MemoryCurve, MemoryCurve]] = field(default_factory=dict)

    @classmethod
    def of(cls, ask: Request) -> MemoryTrial:
        session = Session.open(ask.model, ask.options)
        steps = make_plan(ask, session.model).steps
        if not steps:
            raise UsageError("there is nothing to explain, so nothing to estimate.")
        step = max(steps, key=lambda step: step.batch.samples * (step.batch.length or 1))
        return cls(ask, session, choose_for(ask.options, session.model), step)

    @property
    def device(self) -> torch.device:
        return self.session.device

    @cached_property
    def weights(self) -> int:
        """Bytes of the model that lie on its device."""
        model = self.session.model
        parts = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in (*model.parameters(), *model.buffers())
            if t.device == self.device
        }
        return sum(parts.values())

    @property
    def plain(self) -> tuple[MemoryCurve, MemoryCurve]:
        return self.curves(UNLIMITED)

    @property
    def length(self) -> int:
        return (self.step.batch.length or 1) if self.by_length else 1

    @property
    def fewest(self) -> int:
        """Samples in the smallest possible batch: inputs that were given as tensors are not split."""
        return 1 if self.ask.of_images or self.ask.of_texts or self.step.batch.alone else self.step.batch.samples

    @property
    def by_length(self) -> bool:
        return self.step.batch.ids is not None and not self.step.batch.before

    def curves(self, room: MemoryPolicy) -> tuple[MemoryCurve, MemoryCurve]:
        """Two curves: the most bytes that are held, and the bytes that are saved for the backward pass."""
        if room not in self.seen:
            lengths, batches = self.pieces
            for batch in batches if self.device.type == "cuda" else batches[:1]:
                self.try_piece(batch, room)  # kernels are chosen, on a card for every length, and caches filled
            found = [self.try_piece(batch, room) for batch in batches]
            peaks, kept = ([one[i] for one in found] for i in (0, 1))
            self.seen[room] = MemoryCurve.through(lengths, peaks), MemoryCurve.through(lengths, kept)
        return self.seen[room]

    @cached_property
    def pieces(self) -> tuple[list[int], list[Batch]]:
        """Lengths, and the batch cut to each; or numbers of samples, where a sample cannot be cut."""
        batch = self.step.batch
        if self.by_length:
            lengths = trial_lengths(self.length)
            return lengths, [shorten_batch(batch, length) for length in lengths]
        counts = [1, 2] if batch.samples > 1 and batch.alone is None else [1]
        return counts, [fewer(batch, count) for count in counts]

    def try_piece(self, batch: Batch, room: MemoryPolicy) -> tuple[int, int]:
        """Runs one piece: the most bytes that it held, and how many of them were saved for the backward pass."""
        model, options = self.session.model, self.ask.options
        tally = Tally(model)
        run = replace(self.session.make_run(batch, self.read_piece, options), watch=tally.watch)
        with room.open(model) as kept:
            peak = peak_of(lambda: self.method.run(kept(run)), self.device)
        return peak, tally.kept

    def read_piece(self, out: Any, batch: Batch) -> ScoreReading:
        """A score of a piece, in which the position or mask that is asked for may be missing: another takes as much."""
        options, model = self.ask.options, self.session.model
        failures: list[Exception] = []
        for target in (options.score, None, Token()):
            try:
                return Reader(model, options.tokenizer, target, output_of(options, model))(out, batch)
            except Exception as error:  # a score function of the caller's may raise any
                failures.append(error)
        raise failures[0]

    def estimate_request(self) -> Estimate:
        """The memory of the request as it is, without regard to a limit."""
        samples, room = self.step.batch.samples, self.ask.options.memory
        above, kept = self.at(samples, MemoryPolicy(recompute=room.recompute))
        away = max(0.0, kept - room.on_device)
        if away and (room.keep == "disk" or (room.keep == "host" and self.device.type == "cuda")):
            above = min(above, self.beside(samples, room) + kept - away + min(away, underway(room.keep)))
        return self.estimate(above, kept, samples, room)

    def at(self, samples: int, room: MemoryPolicy = UNLIMITED) -> tuple[float, float]:
        above, kept = (curve.at(samples, self.length) for curve in self.curves(room))
        return above, kept

    def beside(self, samples: int, room: MemoryPolicy) -> float:
        """Bytes that are held on the device when all saved tensors are offloaded.

        This is more than the peak minus the most that is saved, because the two maxima do not come at one time.
        """
        return self.at(samples, MemoryPolicy(room.keep, room.recompute, synchronous=True))[0]

    def estimate(self, above: float, kept: float, samples: int, room: MemoryPolicy) -> Estimate:
        length = self.length if self.by_length else None
        return Estimate(self.weights, round(above), round(kept), samples, length, room)

    @cached_property
    def blocks(self) -> int:
        try:
            return len(choose_blocks("blocks", self.session.model, self.step.batch.places))
        except NotApplicable:
            return 0

    def fit(self, limit: int, most: int | None = None) -> Estimate:
        """The first that fits of: all as asked, smaller batches, a part on the host, blocks computed again.

        Batches may have up to `most` samples such as these, if that is another number than was given.
        """
        free = limit * (1 - MARGIN) - self.weights
        for samples in range(most or self.step.batch.samples, self.fewest - 1, -1):
            above, kept = self.at(samples)
            if above <= free:
                return self.estimate(above, kept, samples, UNLIMITED)
        found = self.on_host(free) or self.fit_by_recomputing(free)
        if found is None:
            raise TooLittle(self, limit)
        return found

    def on_host(self, free: float) -> Estimate | None:
        """The smallest batch, with the oldest saved tensors in main memory; None where main memory is too small."""
        if self.device.type != "cuda":
            return None
        _, kept = self.at(self.fewest)
        on_device = free - self.beside(self.fewest, MemoryPolicy("host")) - underway("host")
        if on_device < 0 or kept - on_device > free_on_host() / HOST_SHARE:
            return None
        return self.estimate(free, kept, self.fewest, MemoryPolicy("host", None, int(on_device)))

    def fit_by_recomputing(self, free: float) -> Estimate | None:
        """The smallest batch, with as few blocks recomputed as make it fit."""
        if not self.blocks or self.method.group != "rules":
            return None
        (above, kept), (_, least) = self.at(self.fewest), self.at(self.fewest, MemoryPolicy(recompute="blocks"))
        each = (kept - least) / self.blocks
        first = max(1, math.ceil((above - free) / each)) if each > 0 else self.blocks
        for count in (*range(first, self.blocks), "blocks"):
            above, kept = self.at(self.fewest, MemoryPolicy(recompute=count))
            if above <= free:
                return self.estimate(above, kept, self.fewest, MemoryPolicy(recompute=count))
        return None


class TooLittle(UsageError):
    """Even one sample with all blocks computed again would not fit."""

    def __init__(self, trial: MemoryTrial, limit: int) -> None:
        ways: list[Count] = [None, *(["blocks"] if trial.blocks and trial.method.group == "rules" else [])]
        needed = trial.weights + min(trial.at(trial.fewest, MemoryPolicy(recompute=way))[0] for way in ways)
        each = f" of {say_count(trial.length, 'position')}" if trial.by_length else ""
        fewest = say_count(trial.fewest, f"sample{each} needs", f"samples{each} at once need")
        super().__init__(
            f"the memory limit of {in_words(limit)} is too little: {fewest} about "
            f"{in_words(needed / (1 - MARGIN))}, of which {in_words(trial.weights)} are the model's weights. "
            "Explain a shorter text (truncate=True, window=True), or load the model in a smaller dtype."
        )


def underway(keep: str) -> int:
    """Bytes on the device that are being copied out or back. To a disk one tensor goes at a time: it does not count."""
    return UNDERWAY + AHEAD if keep == "host" else 0


def trial_lengths(length: int) -> list[int]:
    """Three lengths up to a quarter of the whole; what is short is tried as it is, or by halves."""
    longest = min(LONGEST, length // 2 if length <= SHORT else length // 4)
    if longest < 8:
        return [length]
    step = STEP if longest >= 4 * STEP else 1
    return [max(2, longest * part // 4 // step * step) for part in (2, 3, 4)]


def shorten_batch(batch: Batch, length: int) -> Batch:
    """The longest sample, cut to `length` positions. The last position stays: some models look for an end token."""
    assert batch.ids is not None
    whole = batch.ids.shape[1]
    longest = int(batch.real.sum(1).argmax()) if batch.real is not None else 0
    places = torch.tensor([*range(length - 1), whole - 1])

    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.dim() > 0 and value.shape[0] == batch.samples:
            value = value[longest : longest + 1]
        for axis in range(1, value.dim()):
            if value.shape[axis] == whole:
                value = value.index_select(axis, places.to(value.device))
        return value

    return cut_batch(batch, cut, [batch.items[longest]])


def fewer(batch: Batch, samples: int) -> Batch:
    if batch.alone is not None:
        return batch.alone(0)

    def cut(value: Any) -> Any:
        split = isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == batch.samples
        return value[:samples] if split else value

    return cut_batch(batch, cut, list(batch.items[:samples]))


def cut_batch(batch: Batch, cut: Any, items: list[Any]) -> Batch:
    known: dict[int, Any] = {}

    def once(value: Any) -> Any:
        return known.setdefault(id(value), cut(value)) if isinstance(value, Tensor) else value

    args, kwargs = map_leaves(batch.args, once), map_leaves(batch.kwargs, once)
    parts = {name: once(getattr(batch, name)) for name in ("ids", "real", "tensor")}
    return replace(batch, samples=len(items), items=items, args=args, kwargs=kwargs, **parts)
