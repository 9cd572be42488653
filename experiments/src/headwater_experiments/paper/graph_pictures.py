"""Molecules and digits that a model has not seen and gets right, compared and laid out for the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.api.compare import compare
from headwater.models.loading import load
from headwater.models.molecules import from_smiles
from headwater.results.comparison import Comparison

from . import drawing
from .graph_checkpoints import record_of
from .graph_data import find_graph_dataset, unseen_digits, unseen_molecules

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel

NAMES = {"bace": "molecules", "mnist": "digits"}
EACH = 2  # molecules of each class
ATOMS = 32  # at most, so that they can be seen
MOLECULE_METHODS = ("rollout", "gae", "gi", "lrp(ah+ln)", "lrp")  # a picture of a molecule needs room
DIGITS = 6  # of different classes
LOOKED_AT = 60  # digits that are cut to find them
BOND = 1.5  # the length that RDKit draws


def draw_graphs(name: str, path: Path, methods: Sequence[str], seed: int) -> Figure:
    """The picture of a dataset's graphs by several methods, with the model in `path`."""
    model, _ = load(path)
    if name == "mnist":
        return drawing.digits(list(choose_digits(model, methods, seed)), methods)
    chosen = [method for method in methods if method in MOLECULE_METHODS]
    return drawing.molecules(choose_molecules(model, record_of(path), chosen, seed), chosen)


def choose_molecules(
    model: PreTrainedModel, record: dict[str, Any], methods: Sequence[str], seed: int
) -> dict[str, drawing.Molecule]:
    """Some of each class, the active ones first."""
    known = unseen_molecules(record)
    found: list[tuple[int, drawing.Molecule]] = []
    for i in np.random.default_rng(seed).permutation(len(known)).tolist():
        smiles, label = known[i]
        graph = from_smiles(smiles)
        if len(graph) > ATOMS or sum(other == label for other, _ in found) == EACH:
            continue
        made = compare(model, graph, methods=methods, target=label)
        if right(made, "bace", label):
            found.append((label, drawing.Molecule(*lay_out_atoms(smiles), made)))
    found.sort(key=lambda pair: -pair[0])
    return {f"molecule {i}": molecule for i, (_, molecule) in enumerate(found, 1)}


def right(made: Comparison, dataset: str, label: int) -> bool:
    return made.explanations[0].prediction == find_graph_dataset(dataset).label_names[label]


def lay_out_atoms(smiles: str) -> tuple[list[tuple[float, float]], list[str], list[tuple[int, int, int]]]:
    """Places of atoms with bonds of length 1, names of all but plain carbons, and bonds as single, double or triple."""
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    molecule = Chem.MolFromSmiles(smiles)
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    rdDepictor.Compute2DCoords(molecule)
    rdDepictor.NormalizeDepiction(molecule)
    places = [(x / BOND, y / BOND) for x, y, _ in molecule.GetConformer().GetPositions().tolist()]
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), round(b.GetBondTypeAsDouble())) for b in molecule.GetBonds()]
    return places, [atom_name(atom) for atom in molecule.GetAtoms()], bonds


def atom_name(atom: Any) -> str:
    """The element with its charge, nothing for a carbon without."""
    charge = atom.GetFormalCharge()
    said = "" if not charge else ("+" if charge > 0 else "−") * abs(charge)
    return "" if atom.GetSymbol() == "C" and not said else f"{atom.GetSymbol()}{said}"


def choose_digits(model: PreTrainedModel, methods: Sequence[str], seed: int) -> Iterator[drawing.Digit]:
    """Digits of different classes, in the order of their classes."""
    known = unseen_digits(LOOKED_AT, seed)
    found: dict[int, drawing.Digit] = {}
    for i, label in enumerate(known.labels.tolist()):
        if label in found or len(found) == DIGITS:
            continue
        made = compare(model, known.graph(i), methods=methods, target=label)
        if right(made, "mnist", label):
            found[label] = drawing.Digit(known.images[i], known.segments[i], made)
    return (found[label] for label in sorted(found))
