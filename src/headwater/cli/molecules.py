"""Molecules on the command line: what `--smiles` means for every command that has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import ModelError, UsageError

if TYPE_CHECKING:
    from headwater.models.graphs import Graph
    from headwater.results.explanation import Explanation


def parse_molecule(smiles: str, *texts: object) -> Graph:
    """The graph of a molecule, before any model is loaded."""
    if any(texts):
        raise UsageError("--smiles is in place of a text: give one or the other.")
    from headwater.models.molecules import from_smiles

    return from_smiles(smiles)


def check_takes_graphs(model: Any) -> None:
    from headwater.inputs.protocol import SupportsSamples

    if not isinstance(model, SupportsSamples):
        raise ModelError(
            f"the model is a {type(model).__name__}, which takes no graphs. Name a Graphormer with --model."
        )


def draw_molecule(explanations: Sequence[Explanation], smiles: str) -> str:
    """The molecule with its atoms coloured, once for each explanation; one alone is drawn larger."""
    from headwater.viz.molecules import SIZE, picture

    return picture(explanations, smiles, size=(520, 400) if len(explanations) == 1 else SIZE)
