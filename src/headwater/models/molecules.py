"""Molecules as graphs: what is known of an atom and of a bond, as categories whose numbers never change.

Hydrogens are counted at their atom unless they are atoms of the RDKit molecule. The last category of every column but
the yes-or-no ones stands for all values that are not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import EmptyInput, InputError, require_extra
from headwater.models.graphs.graph import Graph

__all__ = ["from_molecule", "from_smiles"]

YES_OR_NO = (False, True)


@dataclass(frozen=True)
class Column:
    """One feature: its name, the values that have a number of their own, and how it is read from RDKit."""

    name: str
    values: tuple[Any, ...]
    read: Callable[[Any], Any]

    @property
    def range(self) -> int:
        return len(self.values) + (self.values != YES_OR_NO)

    def category(self, thing: Any) -> int:
        value = self.read(thing)
        return self.values.index(value) if value in self.values else len(self.values)


ELEMENTS = tuple("H B C N O F Na Mg Si P S Cl K Ca Fe Zn As Se Br I".split())

ATOM = (
    Column("element", ELEMENTS, lambda atom: atom.GetSymbol()),
    Column("degree", tuple(range(7)), lambda atom: atom.GetDegree()),
    Column("formal charge", (-2, -1, 0, 1, 2), lambda atom: atom.GetFormalCharge()),
    Column(
        "chirality",
        ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW"),
        lambda atom: str(atom.GetChiralTag()),
    ),
    Column("hybridisation", ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2"), lambda atom: str(atom.GetHybridization())),
    Column("aromatic", YES_OR_NO, lambda atom: atom.GetIsAromatic()),
    Column("hydrogens", tuple(range(5)), lambda atom: atom.GetTotalNumHs()),
    Column("in a ring", YES_OR_NO, lambda atom: atom.IsInRing()),
)

BOND = (
    Column("type", ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC"), lambda bond: str(bond.GetBondType())),
    Column("conjugated", YES_OR_NO, lambda bond: bond.GetIsConjugated()),
    Column("in a ring", YES_OR_NO, lambda bond: bond.IsInRing()),
    Column(
        "stereo",
        ("STEREONONE", "STEREOANY", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS"),
        lambda bond: str(bond.GetStereo()),
    ),
)

ATOM_RANGES = tuple(column.range for column in ATOM)
BOND_RANGES = tuple(column.range for column in BOND)


def from_smiles(smiles: str, label: int | None = None) -> Graph:
    """The molecule that a SMILES string spells, as a graph; nodes are named by element.

    Args:
        smiles: the string.
        label: its class, if it is known.

    Returns:
        A `Graph`.

    Raises:
        InputError: it is no valid SMILES string.
        MissingExtra: RDKit is not installed.

    Example:
        >>> from headwater.models.molecules import from_smiles
        >>> ethanol = from_smiles("CCO")
        >>> ethanol.names, ethanol.edges.tolist()
        (('C', 'C', 'O'), [[0, 1], [1, 2]])
    """
    with require_extra("reading a molecule", "graphs"):
        from rdkit import Chem
        from rdkit.rdBase import BlockLogs
    with BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        if molecule is None:
            raise InputError(f"{smiles!r} is no valid SMILES string: {_problem(Chem, smiles)}. Correct the string.")
    return from_molecule(molecule, label)


def _problem(chem: Any, smiles: str) -> str:
    loose = chem.MolFromSmiles(smiles, sanitize=False)
    if loose is None:
        return "it cannot be read"
    try:
        said = "; ".join(problem.Message() for problem in chem.DetectChemistryProblems(loose))
    except RuntimeError:  # of what is far from any atom, [CH99999] or [#999], RDKit cannot say what is wrong
        said = "it has an atom that there is not"
    return said or "it cannot be read"


def from_molecule(molecule: Any, label: int | None = None) -> Graph:
    """An RDKit molecule as a graph: atoms are nodes, bonds are edges. Positions are its first conformer's, if any.

    Args:
        molecule: an RDKit molecule.
        label: its class, if it is known.

    Returns:
        A `Graph`.

    Raises:
        EmptyInput: the molecule has no atoms.

    Example:
        >>> from rdkit import Chem
        >>> from headwater.models.molecules import from_molecule
        >>> from_molecule(Chem.MolFromSmiles("CCO")).names
        ('C', 'C', 'O')
    """
    atoms, bonds = list(molecule.GetAtoms()), list(molecule.GetBonds())
    if not atoms:
        raise EmptyInput("the molecule has no atoms. Give one with at least one.")
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    return Graph(
        features=categories(atoms, ATOM),
        edges=np.array(ends, np.int64).reshape(-1, 2).T,
        edge_features=categories(bonds, BOND),
        names=tuple(atom.GetSymbol() for atom in atoms),
        positions=molecule.GetConformer().GetPositions() if molecule.GetNumConformers() else None,
        label=label,
    )


def categories(things: Sequence[Any], columns: Sequence[Column]) -> NDArray[np.int64]:
    """[things, columns]: the number of each category."""
    rows = [[column.category(thing) for column in columns] for thing in things]
    return np.array(rows, np.int64).reshape(len(things), len(columns))
