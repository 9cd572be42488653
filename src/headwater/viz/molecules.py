"""Molecules drawn by RDKit as SVG: atoms, and bonds where a method reaches them, coloured by their relevance.

Atoms and bonds of one explanation share a scale, since their relevance has one unit. What takes away has a dashed ring
(an atom) or dashed sides (a bond), so that colour is not the only sign. Every atom says its number under the pointer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headwater.errors import InputError, UsageError, require_extra
from headwater.results.explanation import Explanation

from .colour import largest, shade
from .panels import panel_sheet, picture_of, swatch
from .reading import with_sign

__all__ = ["picture"]

SIZE = (360, 270)
RADIUS = 0.38  # of an atom's disc, in units of a bond of 1.5
BESIDE = 0.13  # of a bond's length: how far from it its dashes run
MARK = "#0b2a6b"  # dashes on blue
VISIBLE = 0.05  # of full colour: fainter ones get no mark of their sign


def picture(
    explanations: Sequence[Explanation], molecule: Any, *, columns: int = 4, size: tuple[int, int] = SIZE
) -> str:
    """The molecule once for every explanation.

    Args:
        explanations: of the molecule, by one or several methods. Atoms must stand in the order in which they were
            explained, as they do in the same molecule or string.
        molecule: an RDKit molecule, or a SMILES string.
        columns: so many pictures stand side by side.
        size: of one picture, in pixels.

    Returns:
        SVG.

    Raises:
        UsageError: there is no explanation, or one has other atoms.

    Example:
        >>> from headwater.models.graphs import as_graph
        >>> from headwater.viz.molecules import picture
        >>> model, _ = hw.load("headwater/bace")
        >>> picture([hw.explain(model, as_graph("CCO"))], "CCO").startswith("<svg")
        True
    """
    if not explanations:
        raise UsageError("there is no explanation to draw. Give at least one.")
    drawn = read_molecule(molecule)
    panels = []
    for explanation in explanations:
        check_atoms(explanation, drawn)
        scale = largest([*explanation.relevance.tolist(), *(r for *_, r in explanation.edges or ())])
        panels.append(picture_of(explanation, scale, one(explanation, drawn, scale, size)))
    negative = f"{swatch()}<circle cx='9' cy='9' r='7' {DASHED}/>"
    return panel_sheet(panels, size, columns, explanations[0], negative, "dashed")


DASHED = f"fill='none' stroke='{MARK}' stroke-width='1.6' stroke-dasharray='3 2.4'"


def rdkit() -> tuple[Any, Any]:
    with require_extra("drawing a molecule", "graphs"):
        from rdkit import Chem
        from rdkit.Chem.Draw import rdMolDraw2D
    return Chem, rdMolDraw2D


def read_molecule(molecule: Any) -> Any:
    chem, _ = rdkit()
    if not isinstance(molecule, str):
        return molecule
    found = chem.MolFromSmiles(molecule)
    if found is None:
        raise InputError(f"{molecule!r} is no valid SMILES string.")
    return found


def check_atoms(explanation: Explanation, molecule: Any) -> None:
    atoms = tuple(atom.GetSymbol() for atom in molecule.GetAtoms())
    if explanation.relevance.ndim != 1 or explanation.tokens != atoms:
        raise InputError(
            f"the explanation is of {len(explanation.tokens)} nodes ({' '.join(explanation.tokens[:12])} …), the "
            f"molecule has {len(atoms)} atoms ({' '.join(atoms[:12])} …). Draw the molecule that was explained."
        )


def one(explanation: Explanation, molecule: Any, scale: float, size: tuple[int, int]) -> str:
    """One drawing, as the inside of an SVG group."""
    _, draw = rdkit()
    atoms = dict(enumerate(explanation.relevance.tolist()))
    bonds = {molecule.GetBondBetweenAtoms(i, j).GetIdx(): r for i, j, r in explanation.edges or ()}
    drawer = draw.MolDraw2DSVG(*size)
    options = drawer.drawOptions()
    options.useBWAtomPalette()
    options.setHighlightColour((1, 1, 1))
    options.highlightBondWidthMultiplier = 14
    options.atomHighlightsAreCircles = True
    options.padding = 0.08
    draw.PrepareAndDrawMolecule(
        drawer,
        molecule,
        highlightAtoms=list(atoms),
        highlightAtomColors=atom_colours(atoms, scale),
        highlightAtomRadii=dict.fromkeys(atoms, RADIUS),
        highlightBonds=list(bonds),
        highlightBondColors=atom_colours(bonds, scale),
    )
    places = [drawer.GetDrawCoords(i) for i in atoms]
    drawer.FinishDrawing()
    marks = [bond_mark(molecule, bond, amount, scale, places) for bond, amount in bonds.items()]
    marks += [
        atom_mark(molecule, atom, amount, scale, places, measure_radius(molecule, places))
        for atom, amount in atoms.items()
    ]
    return cut_frame(drawer.GetDrawingText()) + "".join(marks)


def atom_colours(amounts: Mapping[int, float], scale: float) -> dict[int, tuple[float, ...]]:
    found = {i: shade(amount, scale).background("light") for i, amount in amounts.items()}
    return {i: tuple(channel / 255 for channel in colour) for i, colour in found.items()}


STYLED = re.compile(r"style='([^']*)'")


def write_attributes(styled: re.Match[str]) -> str:
    """Looks as attributes: a page that forbids inline styles shows them too."""
    parts = (part.partition(":") for part in styled[1].split(";") if part.strip())
    return " ".join(f"{name.strip()}='{value.strip()}'" for name, _, value in parts)


def cut_frame(svg: str) -> str:
    """What RDKit drew, without its frame and ground."""
    start, end = svg.index("<!-- END OF HEADER -->"), svg.rindex("</svg>")
    body = STYLED.sub(write_attributes, svg[start + len("<!-- END OF HEADER -->") : end].lstrip())
    return body.partition("</rect>")[2] if body.startswith("<rect") else body


def measure_radius(molecule: Any, places: Sequence[Any]) -> float:
    """The radius of an atom's disc in the picture: bonds are 1.5 long in the molecule's own units."""
    bonds = [(places[b.GetBeginAtomIdx()], places[b.GetEndAtomIdx()]) for b in molecule.GetBonds()]
    lengths = [((a.x - b.x) ** 2 + (a.y - b.y) ** 2) ** 0.5 for a, b in bonds]
    return RADIUS * (sum(lengths) / len(lengths) / 1.5 if lengths else 20.0)


def atom_mark(molecule: Any, atom: int, amount: float, scale: float, places: Sequence[Any], radius: float) -> str:
    """A ring around what takes away; over every atom a disc that says its number."""
    tone, at = shade(amount, scale), places[atom]
    ring = DASHED if tone.sign < 0 and tone.opacity >= VISIBLE else "fill='#fff' fill-opacity='0'"
    name = f"{molecule.GetAtomWithIdx(atom).GetSymbol()} {atom}: {with_sign(amount).strip()}"
    place = f"cx='{at.x:.1f}' cy='{at.y:.1f}' r='{radius:.1f}' data-item='{atom}'"
    return f"<circle {place} {ring}><title>{escape(name)}</title></circle>"


def bond_mark(molecule: Any, bond: int, amount: float, scale: float, places: Sequence[Any]) -> str:
    tone, found = shade(amount, scale), molecule.GetBondWithIdx(bond)
    if tone.sign >= 0 or tone.opacity < VISIBLE:
        return ""
    a, b = places[found.GetBeginAtomIdx()], places[found.GetEndAtomIdx()]
    aside = [(sign * (a.y - b.y) * BESIDE, sign * (b.x - a.x) * BESIDE) for sign in (1, -1)]
    ends = [(a.x + (b.x - a.x) * share, a.y + (b.y - a.y) * share) for share in (0.28, 0.72)]
    (x1, y1), (x2, y2) = ends
    path = "".join(f"M{x1 + x:.1f} {y1 + y:.1f}L{x2 + x:.1f} {y2 + y:.1f}" for x, y in aside)
    return f"<path d='{path}' {DASHED}/>"
