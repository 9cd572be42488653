"""A chunk of rows -> its explanations: the same code in every engine.

A row that cannot be explained does not fail its batch. Where a batch fails, its rows are run one by one. Rows that
still fail are kept apart, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import methods
from ..engine.options import Options
from ..engine.session import Session
from ..engine.steps import Step
from ..engine.texts import TextJob, in_windows, read_last
from ..errors import EmptyInput, HeadwaterError, InputError, TooLong
from ..inputs.batch import group_by_length
from ..inputs.places import find_place
from ..inputs.targets import Reader
from ..inputs.text import Encoded, check_encoded, split_pair, tokenise
from ..inputs.walking import walk_once
from ..methods.registry import Method
from ..results.explanation import Explanation
from ..store.columns import to_table
from ..store.manifest import Counts
from .failures import Place, RetryState
from .planning import Chunk
from .reading.rows import EMPTY, FAILED, TOO_LONG, Bad, escape_beginning
from .reading.sources import InputFiles, RowReader
from .settings import JobSettings

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CHARACTERS = 10**6  # of a text that is looked at by the tokenizer
AT_ONCE = 10**4  # characters of a text that it may look at together with others
WINDOWS_AT_ONCE = 8


@dataclass(frozen=True)
class Finished:
    """A chunk's rows as they are to be written."""

    chunk: Chunk
    table: pa.Table
    errors: pa.Table
    counts: Counts


Tell = Callable[[Place, int, int], None]  # where the worker stands; rows and tokens that are done since it last told


@dataclass(frozen=True)
class TokenisedRow:
    """One row that can be run."""

    id: int
    text: str
    length: int
    encoded: Encoded | None  # None for one that is explained in windows


class Explainer:
    """A model with its settings, ready for chunks of `sources`."""

    def __init__(self, model: nn.Module, tokenizer: Any, settings: JobSettings, sources: InputFiles) -> None:
        self.options: Options = Options(
            tokenizer=tokenizer,
            method=settings.method,
            output=settings.output,
            target=settings.target,
            at=settings.at,
            sinks=settings.sinks,
            seed=settings.seed,
            dtype=settings.dtype,
        )
        self.session: Session = Session.open(model, self.options)
        ready = self.session.model
        self.settings = settings
        self.reading: RowReader = RowReader(sources)
        self.method: Method = methods.resolve_method(settings.method)
        self.job: TextJob = TextJob(
            ready, tokenizer, WINDOWS_AT_ONCE, settings.truncate, find_place(ready, None, settings.at)
        )
        self.job.limit = min((n for n in (self.job.limit, settings.max_tokens) if n is not None), default=None)
        self.reader: Reader = Reader(ready, tokenizer, settings.target, settings.output)
        self.carried: list[str] = list(settings.result_names.values())[1:]

    def close(self) -> None:
        """Let go of what its explanations learned of the model."""
        self.session.close()

    @property
    def number(self) -> str:
        """The type of relevance in the table."""
        return "double" if self.settings.dtype == "float64" else "float"

    def chunk(self, chunk: Chunk, tell: Tell = lambda *_: None, care: RetryState | None = None) -> Finished:
        """All rows of a chunk, explained or told apart."""
        with walk_once():
            return self._chunk(chunk, tell, care or RetryState())

    def _chunk(self, chunk: Chunk, tell: Tell, care: RetryState) -> Finished:
        rows = self.reading.read(chunk.start, chunk.stop)
        usable, bad = self.usable(rows.start, rows.texts, care, rows.carried)
        made: dict[int, Explanation] = {}
        done = (len(bad), 0)
        for number, batch in enumerate(self.batches(usable)):
            tell(Place(number), *done)
            found = {} if number in care.alone else self.together(batch)
            for row in batch if not found else ():
                tell(Place(number, row.id), 0, 0)
                found[row.id] = self.one(row)
            bad |= {i: e for i, e in found.items() if isinstance(e, Bad)}
            made |= {i: e for i, e in found.items() if not isinstance(e, Bad)}
            done = (len(batch), sum(row.length for row in batch))
        tell(Place(-1), *done)
        return self.finish_chunk(chunk, made, bad, rows.carried)

    def batches(self, rows: Sequence[TokenisedRow]) -> list[list[TokenisedRow]]:
        """Rows of like length together; one that is explained in windows is a batch of its own."""
        short = [row for row in rows if row.encoded is not None]
        most = inf if self.job.mixes else 1
        budget, lengths = self.settings.batch_tokens, [row.length for row in short]
        groups = group_by_length(lengths, most=most, budget=budget, mixes=self.job.pads)
        return [[row] for row in rows if row.encoded is None] + [[short[i] for i in group] for group in groups]

    def usable(
        self, start: int, texts: Sequence[str | Bad], care: RetryState, carried: pa.Table | None = None
    ) -> tuple[list[TokenisedRow], dict[int, Bad]]:
        """Rows as the model takes them; those it cannot take, with the reason. `carried` has the other columns."""
        usable: list[TokenisedRow] = []
        bad: dict[int, Bad] = {}
        known = self.read_beside([None if i in care.left_out else text for i, text in enumerate(texts, start)], carried)
        for i, (text, more) in enumerate(zip(texts, known, strict=True), start):
            left_out = i in care.left_out
            found = Bad(FAILED, care.left_out[i], bad_text(text)) if left_out else self.row(i, text, more)
            if isinstance(found, Bad):
                bad[i] = found
            else:
                usable.append(found)
        return usable, bad

    def read_beside(self, texts: Sequence[str | Bad | None], carried: pa.Table | None) -> Sequence[Any]:
        """What `row` is told of each row beside its text: here what the tokenizer says of all texts at once.

        Nothing, if it fails on any of them. Rows that are left out have no text.
        """
        short = [text for text in texts if isinstance(text, str) and len(text) <= AT_ONCE and text.strip()]
        try:
            said = tokenise(self.job.tokenizer, [(text,) for text in short], self.cut)
        except Exception:  # a tokenizer is anybody's code; each text is asked about by itself, then
            return [None] * len(texts)
        known = dict(zip(short, said, strict=True))
        return [known.get(text) if isinstance(text, str) else None for text in texts]

    @property
    def cut(self) -> int | None:
        """The length at which texts are cut."""
        return self.limit if self.settings.truncate else None

    @property
    def limit(self) -> int | None:
        """The length from which a text is too long."""
        return None if self.settings.window else self.job.limit

    def row(self, row: int, text: str | Bad, known: Any) -> TokenisedRow | Bad:
        """A text beyond all measure is not handed to the tokenizer: it would take its time and memory for nothing."""
        if isinstance(text, Bad):
            return text
        if len(text) > MOST_CHARACTERS and not self.settings.truncate:
            return Bad(
                TOO_LONG, f"the text has {len(text):,} characters, {MOST_CHARACTERS:,} at most", escape_beginning(text)
            )
        shortened = text[:MOST_CHARACTERS]
        try:
            parts = split_pair(shortened, "the text")
            said = tokenise(self.job.tokenizer, [parts], self.cut)[0] if known is None else known
            encoded = check_encoded(shortened, said, "the text", self.job.tokenizer, self.limit)
        except EmptyInput:
            return Bad(EMPTY, "the text is empty, or has no tokens but special ones", escape_beginning(text))
        except TooLong as error:
            told = f"the text has {error.length:,} tokens, {error.limit:,} at most; see --truncate and --window"
            return Bad(TOO_LONG, told, escape_beginning(text))
        except InputError as error:
            return Bad(FAILED, str(error), escape_beginning(text))
        except Exception as error:  # a tokenizer is anybody's code
            return Bad(FAILED, f"the tokenizer failed: {describe_error(error)}", escape_beginning(text))
        long = self.job.limit is not None and encoded.length > self.job.limit
        return TokenisedRow(row, text, encoded.length, None if long else encoded)

    def together(self, batch: Sequence[TokenisedRow]) -> dict[int, Explanation | Bad]:
        """Nothing, where the batch fails and its rows must be run one by one."""
        try:
            return dict(zip((row.id for row in batch), self.explain_batch(batch), strict=True))
        except Exception as error:  # a model is anybody's code
            if is_fatal(error):
                raise
            return {}

    def one(self, row: TokenisedRow) -> Explanation | Bad:
        try:
            return self.explain_batch([row])[0]
        except Exception as error:  # a model is anybody's code
            if is_fatal(error):
                raise
            return Bad(FAILED, describe_error(error), escape_beginning(row.text))

    def explain_batch(self, batch: Sequence[TokenisedRow]) -> list[Explanation]:
        encoded = [row.encoded for row in batch if row.encoded is not None]
        if not encoded:
            plan = in_windows(self.job, batch[0].text, None, self.reader)
            return plan.gather([self.session.explain_step(step, self.method, self.options) for step in plan.steps])
        step = Step(read_last(self.job.model, self.job.batch(encoded), self.reader), self.reader)
        return self.session.explain_step(step, self.method, self.options)

    def finish_chunk(
        self, chunk: Chunk, made: Mapping[int, Explanation], bad: Mapping[int, Bad], carried: pa.Table
    ) -> Finished:
        """Both in the order of the input."""
        import pyarrow as pa

        ids = sorted(made)
        kept = carried.take(pa.array([i - chunk.start for i in ids], pa.int64()))
        kept = kept.rename_columns(self.carried)
        table = to_table([made[i] for i in ids], ids, kept, self.number)
        for name, cells in self.more_columns(ids).items():
            table = table.append_column(name, cells)
        tokens, unclosed = sum(len(e.tokens) for e in made.values()), sum(not e.ledger.closed for e in made.values())
        counts = Counts(len(ids), len(bad), tokens, unclosed)
        return Finished(chunk, table, error_table(bad, self.reading.sources), counts)

    def more_columns(self, ids: Sequence[int]) -> dict[str, pa.Array]:
        """Of these rows, what stands in the table beside their explanations."""
        return {}


def to_arrays(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Columns of rows by name."""
    import pyarrow as pa

    return {name: pa.array([row[name] for row in rows], type=kind) for name, kind in types.items()}


def error_table(bad: Mapping[int, Bad], sources: InputFiles) -> pa.Table:
    import pyarrow as pa

    ids = sorted(bad)
    places = [sources.place(i) for i in ids]
    return pa.table(
        {
            "row_id": pa.array(ids, pa.int64()),
            "file": pa.array([path for path, _ in places], pa.string()),
            "row": pa.array([row for _, row in places], pa.int64()),
            "reason": pa.array([bad[i].reason for i in ids], pa.string()),
            "message": pa.array([bad[i].message for i in ids], pa.string()),
            "text": pa.array([bad[i].text for i in ids], pa.string()),
        }
    )


def bad_text(text: str | Bad) -> str | None:
    return text.text if isinstance(text, Bad) else escape_beginning(text)


def describe_error(error: BaseException) -> str:
    """What it says; of a `KeyError` and its like, which only name a thing, also what it is."""
    name, said = type(error).__name__, str(error).strip().splitlines()
    if not said:
        return name
    speaks = isinstance(error, (HeadwaterError, RuntimeError, ValueError, IndexError, MemoryError, OSError))
    return (said[0] if speaks else f"{name}: {said[0]}")[:400]


def is_fatal(error: BaseException) -> bool:
    """After a failed kernel a GPU answers nothing any more: the worker must go, not the rows that come after."""
    return "CUDA error" in str(error) and not isinstance(error, torch.OutOfMemoryError)
