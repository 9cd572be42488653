"""Results as tables of pandas: one row per token, patch, entry of a tensor, module or line of a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from headwater.errors import require_extra
from headwater.results.audit import Audit
from headwater.results.comparison import Comparison
from headwater.results.display import TABLE, shows
from headwater.results.explanation import Explanation
from headwater.results.generation import Generation

if TYPE_CHECKING:
    from pandas import DataFrame

FACTS = ("target", "prediction", "score", "output", "method", "at")


def need_pandas() -> Any:
    with require_extra("a DataFrame", "data"):
        import pandas
    return pandas


@shows(TABLE, Explanation)
def explanation_frame(e: Explanation) -> DataFrame:
    """One row per token, patch, node or entry; `attrs` has the score and what it is of."""
    frame = need_pandas().DataFrame({**places_of(e), "relevance": e.relevance.flatten().tolist()})
    frame.attrs = {name: getattr(e, name) for name in FACTS} | {"probabilities": dict(e.probabilities)}
    return frame


def places_of(e: Explanation) -> dict[str, Sequence[Any]]:
    """What says where each number of the relevance belongs."""
    if e.image is not None:
        grid = e.image.grid
        rows, columns = zip(*product(range(grid.rows), range(grid.columns)), strict=True)
        return {"row": rows, "column": columns}
    if not e.tokens or e.relevance.dim() != 1:
        indices = list(product(*(range(size) for size in e.relevance.shape)))
        return {f"axis_{k}": [index[k] for index in indices] for k in range(e.relevance.dim())}
    found: dict[str, Sequence[Any]] = {"token": e.tokens}
    if e.special:
        found["special"] = fill_up(e.special, len(e.tokens))
    if e.offsets is not None:
        starts, ends = ([place[k] for place in e.offsets] for k in (0, 1))
        found |= {"start": fill_up(starts, len(e.tokens)), "end": fill_up(ends, len(e.tokens))}
    return found | ({"segment": e.segments} if e.segments else {})


def fill_up(values: Sequence[Any], size: int) -> list[Any]:
    """With None for the tokens that a decoder is given: they come after those of the text, and have no place in it."""
    return [*values, *[None] * (size - len(values))]


@shows(TABLE, Comparison)
def comparison_frame(compared: Comparison) -> DataFrame:
    """One row per token, one column per method; methods that see other tokens than the first have rows below."""
    pandas = need_pandas()
    columns: dict[str, Any] = {}
    for e in compared.explanations:
        frame = pandas.DataFrame(places_of(e))
        columns[e.method] = pandas.Series(e.relevance.flatten().tolist())
        columns = {**{name: frame[name] for name in frame}, **columns}
    return pandas.DataFrame(columns)


@shows(TABLE, Generation)
def generation_frame(made: Generation) -> DataFrame:
    """One row for each output token and each token before it."""
    rows = [
        (number, piece, position, made.pieces[position], made.roles[position], value)
        for number, piece in enumerate(made.output)
        for position, value in enumerate(made.relevance[number].tolist()[: made.prompt + number])
    ]
    names = ("output", "output_text", "position", "token", "role", "relevance")
    return need_pandas().DataFrame(rows, columns=names)


@shows(TABLE, Audit)
def audit_frame(found: Audit) -> DataFrame:
    """One row per module that was called, in the order of the calls."""
    return need_pandas().DataFrame([{**vars(flow), "lost": flow.lost} for flow in found.modules])
