"""Explanations as columns, and back: what a shard of a run holds.

Everything an `Explanation` of a text has is here, so that a page, a measure or an audit made later needs no model.
Where a token stands is kept as `starts` and `ends`; the ledger as its totals, which can be asked for in a query, and as
its single lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import require_extra
from ..results.explanation import Explanation, Provenance
from ..results.ledger import Ledger, Lines

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED = (
    *("row_id", "text", "tokens", "relevance", "special", "starts", "ends", "word_ids", "segments"),
    *("score", "target", "prediction", "output", "method", "at", "windows"),
    *("inputs", "biases", "constants", "readout", "unaccounted", "ledger_error", "closed", "magnitude", "precision"),
    *("bias_lines", "constant_lines"),
    *("cut_off", "held", "spread", "cut_size", "cut_off_lines", "held_lines"),
    "probabilities",
)
ANSWER_COLUMNS = ("answer", "sentences", "without")  # of runs over questions, after all others
SIMILAR_COLUMNS = ("measure", "other_tokens", "other_relevance", "pairs")  # of runs over pairs of texts
LATER = RESERVED[-7:]  # runs of earlier versions have no such columns: nothing of theirs was known to be cut off


def need_arrow(what: str) -> None:
    with require_extra(what, "data"):
        import pyarrow  # noqa: F401


def types(relevance: str) -> dict[str, pa.DataType]:
    """The type of each of our own columns; `relevance` is the type of its numbers, float or double."""
    import pyarrow as pa

    number = {"double": pa.float64(), "float": pa.float32()}[relevance]
    lines = pa.map_(pa.string(), pa.float64())
    found = dict.fromkeys(RESERVED, pa.float64())
    found |= dict.fromkeys(("text", "target", "prediction", "output", "method", "at", "precision"), pa.string())
    found |= dict.fromkeys(("starts", "ends", "word_ids"), pa.list_(pa.int32()))
    found |= dict.fromkeys(("tokens", "segments"), pa.list_(pa.string()))
    found |= {"row_id": pa.int64(), "windows": pa.int32(), "closed": pa.bool_(), "special": pa.list_(pa.bool_())}
    groups = ("bias_lines", "constant_lines", "cut_off_lines", "held_lines", "probabilities")
    return found | {"relevance": pa.list_(number), **dict.fromkeys(groups, lines)}


def answer_types() -> dict[str, pa.DataType]:
    """The types of the columns that a run over questions has besides."""
    import pyarrow as pa

    text, number, named = pa.string(), pa.float64(), pa.map_(pa.string(), pa.float64())
    fields = {"document": text, "sentence": pa.int32(), "text": text, "share": number, "drop": number, "sure": number}
    cited = pa.list_(pa.struct(list(fields.items())))
    found = {"text": text, "verdict": text, "log_probability": number, "score": number, "closed": pa.bool_()}
    found |= {"by_role": named, "by_document": named, "citations": cited}
    return dict(zip(ANSWER_COLUMNS, (text, pa.list_(pa.struct(list(found.items()))), named), strict=True))


def similar_types() -> dict[str, pa.DataType]:
    """The types of the columns that a run over pairs of texts has besides."""
    import pyarrow as pa

    pair = pa.struct([("a", pa.string()), ("b", pa.string()), ("relevance", pa.float64())])
    kinds = (pa.string(), pa.list_(pa.string()), pa.list_(pa.float64()), pa.list_(pair))
    return dict(zip(SIMILAR_COLUMNS, kinds, strict=True))


def to_table(made: Sequence[Explanation], ids: Sequence[int], carried: pa.Table, relevance: str) -> pa.Table:
    """One row an explanation; `carried` are columns of the input that go along, under the names they have there."""
    import pyarrow as pa

    rows = [explanation_row(e, i) for e, i in zip(made, ids, strict=True)]
    kinds = types(relevance)
    columns = {name: pa.array([row[name] for row in rows], type=kind) for name, kind in kinds.items()}
    return pa.table(columns | {name: carried.column(name) for name in carried.column_names})


def explanation_row(e: Explanation, row_id: int) -> dict[str, Any]:
    books, offsets = e.ledger, e.offsets
    return {
        "row_id": row_id,
        "text": e.text,
        "tokens": e.tokens,
        "relevance": e.relevance.numpy(),
        "special": e.special,
        "starts": None if offsets is None else [start for start, _ in offsets],
        "ends": None if offsets is None else [end for _, end in offsets],
        "word_ids": e.word_ids,
        "segments": e.segments,
        "score": e.score,
        "target": e.target,
        "prediction": e.prediction,
        "output": e.output,
        "method": e.method,
        "at": e.at,
        "windows": e.windows,
        "inputs": books.inputs,
        "biases": books.biases.total,
        "constants": books.constants.total,
        "readout": books.readout,
        "unaccounted": books.unaccounted,
        "ledger_error": books.error,
        "closed": books.closed,
        "magnitude": books.magnitude,
        "precision": books.dtype,
        "bias_lines": list(books.biases.items()),
        "constant_lines": list(books.constants.items()),
        "cut_off": books.cut_off.total,
        "held": books.held.total,
        "spread": books.spread,
        "cut_size": books.cut_size,
        "cut_off_lines": list(books.cut_off.items()),
        "held_lines": list(books.held.items()),
        "probabilities": list(e.probabilities.items()),
    }


def to_explanation(
    row: Mapping[str, Any], provenance: Provenance, rules_met: tuple[tuple[str, int], ...] = ()
) -> Explanation:
    """A row as it was before it was written. `rules_met` is the same for all texts of a run."""
    import torch

    starts, ends = row["starts"], row["ends"]
    ledger = Ledger(
        score=row["score"],
        inputs=row["inputs"],
        biases=Lines(dict(row["bias_lines"])),
        constants=Lines(dict(row["constant_lines"])),
        readout=row["readout"],
        dtype=row["precision"],
        magnitude=row["magnitude"],
        cut_off=Lines(dict(row.get("cut_off_lines") or ())),
        held=Lines(dict(row.get("held_lines") or ())),
        spread=row.get("spread") or 0.0,
        cut_size=row.get("cut_size") or 0.0,
    )
    return Explanation(
        tokens=tuple(row["tokens"]),
        relevance=torch.tensor(row["relevance"], dtype=torch.float64 if row["double"] else torch.float32),
        score=row["score"],
        target=row["target"],
        ledger=ledger,
        method=row["method"],
        provenance=provenance,
        text=row["text"],
        prediction=row["prediction"],
        output=row["output"],
        at=row["at"],
        special=tuple(row["special"]),
        offsets=None if starts is None else tuple(zip(starts, ends, strict=True)),
        word_ids=None if row["word_ids"] is None else tuple(row["word_ids"]),
        sequence_ids=None if starts is None else sequence_ids(row["special"]),
        segments=tuple(row["segments"]),
        rules_met=rules_met,
        windows=row["windows"],
        probabilities=dict(row.get("probabilities") or ()),
    )


def sequence_ids(special: Sequence[bool]) -> tuple[int | None, ...]:
    """A row has one text: every token is of it but those that the tokenizer added."""
    return tuple(None if s else 0 for s in special)
