"""Rows with relevance inside the model: the same explanations, with columns for heads, neurons, layers or modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from ..engine.options import Options
from ..results.explanation import Explanation
from ..store.inside_columns import inside_columns, inside_row, inside_type
from .explaining import Explainer, TokenisedRow, to_arrays
from .reading.sources import InputFiles
from .settings import JobSettings

if TYPE_CHECKING:
    import pyarrow as pa


class InsideRows(Explainer):
    """A model with its settings, ready for chunks of texts, whose parts are noted as well.

    Neurons by token are as large as the activations, so each batch is summed up as soon as it is explained.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, settings: JobSettings, sources: InputFiles) -> None:
        super().__init__(model, tokenizer, settings, sources)
        self.options: Options = replace(self.options, inside=settings.inside)
        self.columns: tuple[str, ...] = inside_columns(settings.inside)
        self.cells: dict[int, dict[str, list[dict[str, Any]]]] = {}

    def explain_batch(self, batch: Sequence[TokenisedRow]) -> list[Explanation]:
        made = super().explain_batch(batch)
        for row, e in zip(batch, made, strict=True):
            assert e.inside is not None
            self.cells[row.id] = inside_row(e.inside, self.columns)
        return [replace(e, inside=None) for e in made]

    def more_columns(self, ids: Sequence[int]) -> dict[str, pa.Array]:
        """The parts of the model beside them."""
        rows = [self.cells[i] for i in ids]
        self.cells.clear()
        return to_arrays(rows, dict.fromkeys(self.columns, inside_type(self.number)))
