"""What a job is asked, as one value: everything that its results depend on, and nothing else.

How many workers there are, and on which engine, is not in here: the same job can go on with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from .. import methods
from ..defaults import DEFAULT_METHOD
from ..engine.options import SHOWN, check_handling
from ..errors import UnknownName, UsageError, check_least
from ..inputs.inside_demand import InsideDemand
from ..inputs.readouts import OUTPUTS
from ..inputs.targets import Span, Token
from ..store.columns import ANSWER_COLUMNS, RESERVED, SIMILAR_COLUMNS
from ..store.inside_columns import inside_columns

Target = int | str | Token | Span | None
SHARD_ROWS = 4096
SCORED = ("advantage", "logit", "log-probability")  # outputs that a token of an answer has
BATCH_TOKENS = {"cpu": 1024, "cuda": 2**15}


@dataclass(frozen=True)
class JobSettings:
    """`method` and `sinks` are what is really done: `run` has chosen them by kind of model where nobody did.

    With `documents` or `answer`, which are among the columns, rows are questions about documents. With `similar`, which
    is one of them, rows are pairs of texts; `pooling`, `normalise` and `rank` are about these. `inside` are parts of
    the model that have columns of their own. `threads` are those of one worker. They are asked for and not found out:
    another number sums in another order.
    """

    columns: tuple[str, ...] = ("text",)
    documents: tuple[str, ...] | None = None
    answer: str | None = None
    max_new_tokens: int = 100
    similar: str | None = None
    pooling: tuple[str, ...] | None = None
    normalise: bool = True
    rank: int | None = None
    method: str = DEFAULT_METHOD
    target: Target = None
    output: str = "logit"
    at: str = "embeddings"
    sinks: str = SHOWN
    inside: tuple[str, ...] | None = None
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0
    truncate: bool = False
    window: bool = False
    max_tokens: int | None = None
    batch_tokens: int = BATCH_TOKENS["cpu"]
    shard_rows: int = SHARD_ROWS
    threads: int = 1

    def __post_init__(self) -> None:
        methods.resolve_method(self.method)
        if self.output not in OUTPUTS:
            raise UnknownName("output", self.output, OUTPUTS)
        check_handling(sinks=self.sinks)
        if self.target is not None and not isinstance(self.target, (int, str, Token, Span)):
            raise UsageError("the target of a run is a class, 'a - b', a Token or a Span: it is written down with it.")
        if self.truncate and self.window:
            raise UsageError("a text that is too long is cut (truncate) or explained in windows (window), not both.")
        for name in ("batch_tokens", "shard_rows", "threads"):
            check_least(name, getattr(self, name))
        check_least("max_tokens", self.max_tokens)
        if not self.columns:
            raise UsageError("name the column of the texts first: columns=['text', 'label'].")
        if len(set(self.columns)) != len(self.columns):
            raise UsageError(f"a column is named twice: {', '.join(self.columns)}.")
        if self.asks and self.output not in SCORED:
            raise UnknownName("output of an answer", self.output, SCORED)
        check_least("max_new_tokens", self.max_new_tokens)
        if self.asks and (self.columns[0] in (self.documents or ()) or self.columns[0] == self.answer):
            raise UsageError(f"the column {self.columns[0]!r} holds the questions: name others for the rest.")
        if self.asks and (self.truncate or self.window or self.target is not None):
            raise UsageError("answers have no target, and a prompt that is too long is not cut or read in windows.")
        if self.similar is not None:
            self.check_similar()
        elif self.pooling is not None or self.rank is not None or not self.normalise:
            raise UsageError("pooling, rank and dot product are for pairs of texts: name a second column, similar=.")
        if self.inside is not None:
            self.check_inside()
        _ = self.result_names

    def check_similar(self) -> None:
        if self.asks:
            raise UsageError("rows are pairs of texts (similar), or questions (documents, answer), not both.")
        if self.similar == self.columns[0]:
            raise UsageError(f"the column {self.similar!r} would be compared with itself: name two columns.")
        if self.window or self.target is not None:
            raise UsageError("a similarity has no target, and its texts are cut (truncate), not read in windows.")
        check_least("rank", self.rank)

    def check_inside(self) -> None:
        if InsideDemand.read(self.inside) is None:
            raise UsageError("inside= names no part of the model: name heads, neurons, layers or a module.")
        if self.window:
            raise UsageError("inside= explains one pass of the model, and window= makes several: use truncate=.")
        if self.asks or self.similar is not None:
            raise UsageError(
                "rows that are questions about documents, or pairs of texts, have no columns for parts of the model."
            )

    @property
    def asks(self) -> bool:
        """Whether rows are questions, whose answers are explained."""
        return self.documents is not None or self.answer is not None

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns beside the first whose cells are texts: of a pair the second, answers, documents one by one."""
        documents = self.documents or ()
        single = documents if len(documents) > 1 else ()
        return tuple(name for name in (self.similar, self.answer, *single) if name is not None)

    @property
    def result_names(self) -> dict[str, str]:
        """Columns of the input -> what they are called in the results."""
        own: tuple[str, ...] = inside_columns(self.inside)
        if self.asks:
            own = ANSWER_COLUMNS
        elif self.similar is not None:
            own = SIMILAR_COLUMNS
        return result_names(self.columns, own)

    def to_dict(self) -> dict[str, Any]:
        """In plain types, the method by its full name. Sinks are named where they are put aside."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.sinks == SHOWN:
            del found["sinks"]  # as in runs of earlier versions, which can go on
        if self.inside is None:
            del found["inside"]
        else:
            found["inside"] = list(self.inside)
        if not self.asks:
            for name in ("documents", "answer", "max_new_tokens"):
                del found[name]
        if self.similar is None:
            for name in ("similar", "pooling", "normalise", "rank"):
                del found[name]
        elif self.pooling is not None:
            found["pooling"] = list(self.pooling)
        if self.documents is not None:
            found["documents"] = list(self.documents)
        target = self.target if self.target is None or isinstance(self.target, (int, str)) else repr(self.target)
        return found | {
            "columns": list(self.columns),
            "method": methods.resolve_method(self.method).name,
            "target": target,
        }


def result_names(columns: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """Columns of the input -> what they are called in the results: as they are, or `input_…` where we have the name."""
    names = {columns[0]: "text"}
    for column in columns[1:]:
        name = f"input_{column}" if column in (*RESERVED, *taken) else column
        other = next((known for known, taken in names.items() if taken == name), None)
        if other is not None:
            raise UsageError(
                f"the columns {other!r} and {column!r} would both be called {name!r} in the results. Rename one of "
                "them in the input, or leave it out of the columns."
            )
        names[column] = name
    return names
