"""Pictures of molecules and superpixels, and molecules on the command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_graphormer import tiny
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.errors import InputError, MissingExtra, UsageError
from headwater.models.graphormer import GraphormerConfig, GraphormerForGraphClassification
from headwater.models.molecules import ATOM_RANGES, BOND_RANGES, from_smiles
from headwater.viz import molecules, superpixels
from headwater_experiments.models.superpixels import graph_of

pytest.importorskip("rdkit")
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drug():
    model = tiny(node_ranges=ATOM_RANGES, number_features=0, edge_ranges=BOND_RANGES, num_labels=2)
    return hw.compare(model, from_smiles(ASPIRIN), methods=["lrp", "gi", "rollout"])


def parts(svg, name):
    return list(ElementTree.fromstring(svg).iter(f"{SVG}{name}"))


def rings(svg):
    return [c for c in parts(svg, "circle") if "stroke-dasharray" in c.attrib and c.find(f"{SVG}title") is not None]


def test_a_molecule_with_its_atoms_coloured(drug):
    e = drug["lrp"]
    svg = molecules.picture([e], ASPIRIN)
    titles = [c.find(f"{SVG}title").text for c in parts(svg, "circle") if c.find(f"{SVG}title") is not None]
    assert titles == [f"{s} {i}: {r:+.4f}" for i, (s, r) in enumerate(zip(e.tokens, e.relevance.tolist(), strict=True))]
    largest = float(e.relevance.abs().max())
    assert len(rings(svg)) == int((e.relevance < -0.05 * largest).sum())
    said = " ".join(text.text for text in parts(svg, "text"))
    assert "adds" in said
    assert "takes away (dashed)" in said
    assert f"full colour ±{largest:.3g}" in said
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_the_largest_atom_is_red_and_the_smallest_blue(drug):
    values = torch.zeros(13, dtype=torch.float64)
    values[3], values[7] = 2.0, -2.0
    svg = molecules.picture([replace(drug["lrp"], relevance=values)], ASPIRIN)
    assert svg.count("#FF6B6B") >= 1
    assert svg.count("#74A9FF") >= 1
    assert len(rings(svg)) == 1


def test_bonds_where_a_method_reaches_them(drug):
    with_bonds, without = (molecules.picture([drug[name]], ASPIRIN) for name in ("gi", "lrp"))
    assert len(with_bonds) > len(without)
    edges = tuple((i, j, -1.0) for i, j, _ in drug["gi"].edges)
    marked = molecules.picture([replace(drug["gi"], edges=edges)], ASPIRIN)
    assert sum("stroke-dasharray" in path.attrib for path in parts(marked, "path")) == len(edges)


def test_methods_side_by_side(drug):
    svg = molecules.picture(drug.explanations, ASPIRIN, columns=2)
    texts = [text.text for text in parts(svg, "text")]
    assert [name for name in texts if name in ("lrp", "gi", "rollout")] == ["lrp", "gi", "rollout"]
    assert f"{drug['lrp'].target}: {drug['lrp'].score:+.4f} (logit)" in texts[0]


def test_names_are_escaped(drug):
    svg = molecules.picture([replace(drug["lrp"], target="<script>&", prediction=None)], ASPIRIN)
    assert "<script>" not in svg
    assert "<script>&" in parts(svg, "text")[0].text


def test_another_molecule_is_refused(drug):
    with pytest.raises(InputError, match="Draw the molecule that was explained"):
        molecules.picture([drug["lrp"]], "CCO")
    with pytest.raises(InputError, match="no valid SMILES"):
        molecules.picture([drug["lrp"]], "C1")
    with pytest.raises(UsageError, match="no explanation"):
        molecules.picture([], ASPIRIN)
    with pytest.raises(UsageError, match="columns"):
        molecules.picture([drug["lrp"]], ASPIRIN, columns=0)


def test_an_atom_alone():
    model = tiny(node_ranges=ATOM_RANGES, number_features=0, edge_ranges=BOND_RANGES)
    assert "<svg" in molecules.picture([hw.explain(model, from_smiles("[Na+]"))], "[Na+]")


def test_without_rdkit(drug, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    with pytest.raises(MissingExtra, match=r"headwater\[graphs\]"):
        molecules.picture([drug["lrp"]], ASPIRIN)


IMAGE = np.array([[0, 0, 255, 255], [0, 0, 255, 255], [90, 90, 90, 90]], np.uint8)
PATCHES = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]])


@pytest.fixture(scope="module")
def digit():
    model = tiny(node_ranges=(), number_features=3, edge_ranges=())
    return hw.compare(model, graph_of(IMAGE, PATCHES), methods=["lrp", "gi"])


def test_superpixels_are_tinted(digit):
    values = torch.tensor([1.0, -0.5, 0.0])
    svg = superpixels.picture([replace(digit["lrp"], relevance=values)], IMAGE, PATCHES)
    tints = [p for p in parts(svg, "path") if p.find(f"{SVG}title") is not None]
    assert [(p.get("fill"), p.get("fill-opacity")) for p in tints] == [("#ff6b6b", "0.850"), ("#74a9ff", "0.425")]
    assert tints[0].get("d") == "M0 0h2v1h-2zM0 1h2v1h-2z"
    assert [p.find(f"{SVG}title").text for p in tints] == ["patch 0: +1.0000", "patch 1: -0.5000"]
    hatched = [p for p in parts(svg, "path") if p.get("fill") == "url(#hatch)"]
    assert [p.get("d") for p in hatched] == [tints[1].get("d")]


def test_superpixels_side_by_side(digit):
    texts = [text.text for text in parts(superpixels.picture(digit.explanations, IMAGE, PATCHES), "text")]
    assert [name for name in texts if name in ("lrp", "gi")] == ["lrp", "gi"]
    assert "takes away (hatched)" in texts


def test_another_image_is_refused(digit):
    with pytest.raises(InputError, match="Give both of one size"):
        superpixels.picture(digit.explanations, IMAGE[:2], PATCHES)
    with pytest.raises(InputError, match="the image has 2 patches"):
        superpixels.picture(digit.explanations, IMAGE, PATCHES.clip(max=1))
    with pytest.raises(InputError, match="two dimensions"):
        superpixels.picture(digit.explanations, IMAGE[0], PATCHES)
    with pytest.raises(UsageError, match="no explanation"):
        superpixels.picture([], IMAGE, PATCHES)


# command line


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("checkpoints") / "tuned" / "bace" / "0"
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 4}
    config = GraphormerConfig(node_ranges=ATOM_RANGES, edge_ranges=BOND_RANGES, num_labels=2, **sizes)
    GraphormerForGraphClassification(config).save_pretrained(place)
    return place


def test_explain_smiles(saved, tmp_path):
    out = tmp_path / "out.svg"
    words = ["explain", "--smiles", ASPIRIN, "--model", str(saved), "--json", "--svg", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["text"] == ASPIRIN
    assert record["tokens"] == [atom for atom in ASPIRIN.upper() if atom.isalpha()]
    assert len(rings(out.read_text())) > 0


def test_the_bundled_model_unless_another_is_named():
    done = CliRunner().invoke(app, ["explain", "--smiles", "CCO", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["provenance"]["model"] == "headwater/bace"


def test_compare_smiles(saved, tmp_path):
    out = tmp_path / "out.svg"
    words = ["compare", "--smiles", "CCO", "--model", str(saved), "--methods", "lrp,rollout", "--svg", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    said = [t.text for t in parts(out.read_text(), "text")]
    assert [text for text in said if text in ("lrp", "rollout")] == ["lrp", "rollout"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "--smiles", "C1CC"], "'C1CC' is no valid SMILES string"),
        (["explain", "a text", "--smiles", "CCO"], "--smiles is in place of a text"),
        (["explain"], "Give a TEXT, a molecule with --smiles, or an image with --image"),
        (["compare"], "Give a TEXT, a molecule with --smiles, or an image with --image"),
    ],
)
def test_refusals(words, message):
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert message in done.stderr
