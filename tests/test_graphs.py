"""Graphs: what they are made from, what is refused, and paths that do not depend on the order of nodes."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from real_data import need_real_data
from test_graphormer import random_graph

from headwater.errors import EmptyInput, InputError, MissingExtra
from headwater.models.graphormer import GraphormerConfig
from headwater.models.graphs import Graph, as_graph, collate, find_distances, find_paths, from_networkx, from_pyg
from headwater.models.molecules import ATOM, ATOM_RANGES, BOND, BOND_RANGES, from_molecule, from_smiles
from headwater_experiments.models import segmentation, superpixels
from headwater_experiments.models.segmentation import Cut, segment
from headwater_experiments.models.superpixels import Superpixels, graph_of, measure_regions

ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
TYPES = 6  # of random_graph's edges


def one_column(nodes: int, edges: list[tuple[int, int]], kinds: list[int] | None = None) -> Graph:
    features = np.zeros((nodes, 1), int)
    return Graph(features, np.array(edges).T, edge_features=None if kinds is None else np.array(kinds)[:, None])


def test_an_edge_is_kept_once_whichever_way_it_is_listed():
    both = one_column(3, [(1, 0), (0, 1), (2, 1), (1, 2)], [4, 4, 5, 5])
    assert both.edges.tolist() == [[0, 1], [1, 2]]
    assert both.edge_features.tolist() == [[4], [5]]
    assert both.degrees.tolist() == [1, 2, 1]
    assert both.distances.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]


@pytest.mark.parametrize(
    ("edges", "kinds", "message"),
    [
        ([(0, 3)], None, "leads to node 3; the graph has 3 nodes"),
        ([(0, -1)], None, "leads to node -1"),
        ([(0, 1), (2, 2)], None, "joins node 2 to itself"),
        ([(0, 1), (1, 0)], [1, 2], "between 0 and 1 is listed with different features"),
        ([(0, 1)], [1, 2], "1 edge has 2 rows"),
    ],
)
def test_edges_that_cannot_be_are_refused(edges, kinds, message):
    with pytest.raises(InputError, match=message):
        one_column(3, edges, kinds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros((3, 1))}, "node features must be whole numbers"),
        ({"features": np.zeros(3, int)}, "two dimensions"),
        ({"numbers": np.zeros((2, 1))}, "3 nodes, but 2 rows of node numbers"),
        ({"numbers": np.full((3, 1), np.nan)}, "node 0 has a number that is not finite"),
        ({"names": ("a",)}, "1 row of names"),
        ({"edges": np.zeros((3, 2), int)}, r"shape \[2, edges\]"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    parts = {"features": np.zeros((3, 1), int), "edges": np.zeros((2, 0), int)}
    with pytest.raises(InputError, match=message):
        Graph(**{**parts, **change})


def test_what_the_model_does_not_know_is_refused():
    graph = random_graph()
    fits = {"node_ranges": (5, 3), "number_features": 2, "edge_ranges": (3, 2)}
    collate([graph], GraphormerConfig(**fits))
    for change, message in (
        ({"node_ranges": (2, 3)}, "in feature column 0; the model knows 0 to 1"),
        ({"node_ranges": (5,)}, "1 categorical features, the graph's nodes have 2"),
        ({"number_features": 1}, "1 continuous features, the graph's nodes have 2"),
        ({"edge_ranges": (3, 1)}, "edge .* in feature column 1; the model knows 0 to 0"),
        ({"edge_ranges": (3,)}, "1 column of features, the graph's have 2"),
    ):
        with pytest.raises(InputError, match=message):
            collate([graph], GraphormerConfig(**{**fits, **change}))
    with pytest.raises(EmptyInput, match="no graph to collate"):
        collate([], GraphormerConfig(**fits))


def test_a_value_stays_as_it_was_made():
    given = np.zeros((2, 1), int)
    graph = Graph(given, np.array([[0], [1]]))
    given[0] = 7
    assert graph.features[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        graph.features[0] = 7


def test_a_subgraph_is_induced_and_counts_anew():
    ring = one_column(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)], [1, 2, 3, 4, 5])
    part = ring.subgraph([3, 2, 0])
    assert part.names == ("3", "2", "0")
    assert part.edges.tolist() == [[0], [1]]
    assert part.edge_features.tolist() == [[3]]
    assert part.degrees.tolist() == [1, 1, 0]
    assert part.distances[0].tolist() == [0, 1, -1]
    assert ring.subgraph(np.array([False, True, True, False, False])).names == ("1", "2")
    assert len(ring.subgraph([])) == 0
    for wrong, message in (([5], "names node 5"), ([1, 1], "twice"), ([0.5], "list nodes")):
        with pytest.raises(InputError, match=message):
            ring.subgraph(wrong)


def test_permuting_moves_everything_along():
    graph, order = random_graph(), np.random.default_rng(3).permutation(9)
    moved = graph.permute(order)
    assert np.array_equal(moved.distances, graph.distances[np.ix_(order, order)])
    paths, expected = moved.edge_paths((3, 2), 4), graph.edge_paths((3, 2), 4)
    assert np.array_equal(paths, expected[np.ix_(order, order)])
    with pytest.raises(InputError, match="each of the 9 nodes once"):
        graph.permute([0, 1])


def test_of_several_shortest_paths_the_first_in_the_dictionary_is_taken():
    """A ring of four: from 0 to 2 by way of 1 with the types 1, 0, or by way of 3 with 0, 5."""
    ring = one_column(4, [(0, 1), (1, 2), (2, 3), (3, 0)], [1, 0, 5, 0])
    paths = ring.edge_paths([6], 3)
    assert paths[0, 2].tolist() == [1, 6, 0]
    assert paths[2, 0].tolist() == [1, 2, 0]  # the way back is read from 2, and need not be the same path
    assert paths[0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_distances_and_paths_equal_networkx_and_the_batched_ones(seed):
    graph, longest = random_graph(14, seed, 20), 3
    distances, paths = graph.distances, graph.edge_paths((3, 2), longest)
    other = nx.Graph(graph.edges.T.tolist())
    other.add_nodes_from(range(14))
    types = {frozenset(e): t for e, t in zip(graph.edges.T.tolist(), graph.edge_types((3, 2)).tolist(), strict=True)}
    for i in range(14):
        for j in range(14):
            if not nx.has_path(other, i, j):
                assert distances[i, j] == -1
                assert not paths[i, j].any()
                continue
            ways = nx.all_shortest_paths(other, i, j)
            first = min([types[frozenset(s)] + 1 for s in pairwise(way)] for way in ways)
            assert distances[i, j] == len(first)
            assert paths[i, j].tolist() == (first + [0] * longest)[:longest]
    matrix = torch.zeros(14, 14, dtype=torch.int16)
    for (u, v), kind in zip(graph.edges.T, graph.edge_types((3, 2)), strict=True):
        matrix[u, v] = matrix[v, u] = int(kind) + 1
    assert torch.equal(find_distances(matrix[None] > 0)[0], torch.from_numpy(distances))
    found = find_paths(matrix[None], torch.from_numpy(distances)[None], TYPES, longest)[0]
    assert torch.equal(found, torch.from_numpy(paths))


def test_a_batch_of_no_nodes_has_no_paths():
    nothing = torch.zeros(2, 0, 0, dtype=torch.int16)
    assert find_distances(nothing > 0).shape == (2, 0, 0)
    assert find_paths(nothing, nothing, 3, 4).shape == (2, 0, 0, 4)


def test_smiles_become_atoms_and_bonds():
    graph = from_smiles(ASPIRIN, label=1)
    assert "".join(graph.names) == "CCOOCCCCCCCOO"
    assert graph.edges.shape[1] == 13
    assert graph.label == 1
    assert graph.features[0].tolist() == [2, 1, 2, 0, 3, 0, 3, 0]  # C, degree 1, charge 0, SP3, 3 hydrogens, no ring
    double = graph.edges.T.tolist().index([1, 2])
    assert graph.edge_features[double].tolist() == [1, 1, 0, 0]  # double, conjugated, no ring, no stereo
    collate([graph], GraphormerConfig(node_ranges=ATOM_RANGES, edge_ranges=BOND_RANGES))


def test_what_is_not_in_the_vocabulary_is_the_last_category():
    gold, bond = from_smiles("[Au+3]"), from_smiles("[Cu]<-N")
    assert gold.features[0, :3].tolist() == [column.range - 1 if c != 1 else 0 for c, column in enumerate(ATOM[:3])]
    assert bond.edge_features[0, 0] == BOND[0].range - 1
    assert all(from_smiles(s).features.max(0)[c] < ATOM_RANGES[c] for s in ("[Au+3]", ASPIRIN) for c in range(8))


@pytest.mark.parametrize(
    ("smiles", "message"),
    [("not a molecule", "no valid SMILES"), ("C(", "no valid SMILES"), ("CN(C)(C)C", "valence")],
)
def test_an_invalid_smiles_string_is_refused(smiles, message, capfd):
    with pytest.raises(InputError, match=message):
        from_smiles(smiles)
    assert capfd.readouterr().err == ""


def test_an_empty_smiles_string_has_no_atoms():
    with pytest.raises(EmptyInput, match="no atoms"):
        from_smiles("")


def test_a_conformer_gives_positions():
    from rdkit import Chem
    from rdkit.Chem import rdDepictor

    molecule = Chem.MolFromSmiles(ASPIRIN)
    assert from_molecule(molecule).positions is None
    rdDepictor.Compute2DCoords(molecule)
    assert from_molecule(molecule).positions.shape == (13, 3)


def test_pyg_data_becomes_a_graph():
    from torch_geometric.data import Data

    edges, kinds = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([3, 3, 4, 4])
    whole = from_pyg(Data(x=torch.tensor([[1], [2], [0]]), edge_index=edges, edge_attr=kinds, y=torch.tensor([1])))
    assert whole.features.tolist() == [[1], [2], [0]]
    assert whole.edge_features.tolist() == [[3], [4]]
    assert (whole.numbers, whole.label) == (None, 1)
    real = from_pyg(Data(x=torch.rand(3, 1), pos=torch.rand(3, 2), edge_index=edges), numbers=("x", "pos"))
    assert real.numbers.shape == (3, 3)
    assert real.features.shape == (3, 0)
    for data, message in (
        (Data(x=torch.rand(3, 1), edge_index=edges, edge_attr=torch.rand(4, 1)), "edge features are categories"),
        (Data(x=torch.rand(3, 1)), "no edge_index"),
    ):
        with pytest.raises(InputError, match=message):
            from_pyg(data)
    with pytest.raises(InputError, match="no attribute 'pos'"):
        from_pyg(Data(x=torch.rand(3, 1), edge_index=edges), numbers=("pos",))


def test_a_networkx_graph_becomes_a_graph():
    graph = nx.Graph()
    graph.add_node("a", kind=1, size=0.5)
    graph.add_node("b", kind=0, size=1.5)
    graph.add_edge("a", "b", bond=2)
    found = from_networkx(graph, ["kind"], ["size"], ["bond"])
    assert found.names == ("a", "b")
    assert (found.features.tolist(), found.numbers.tolist()) == ([[1], [0]], [[0.5], [1.5]])
    assert (found.edges.tolist(), found.edge_features.tolist()) == ([[0], [1]], [[2]])
    with pytest.raises(InputError, match="node 'a' has no attribute 'colour'"):
        from_networkx(graph, ["colour"])
    with pytest.raises(InputError, match="parallel edges"):
        from_networkx(nx.MultiGraph(graph), ["kind"])


def test_anything_that_is_a_graph_becomes_one():
    from rdkit import Chem
    from torch_geometric.data import Data

    graph = from_smiles("CO")
    things = (
        "CO",
        Chem.MolFromSmiles("CO"),
        Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]])),
        nx.path_graph(2),
    )
    assert as_graph(graph) is graph
    assert [as_graph(thing).edges.tolist() for thing in things] == [[[0], [1]]] * 4
    with pytest.raises(InputError, match=r"builtins\.int is no graph"):
        as_graph(3)


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("rdkit", lambda: from_smiles("C")),
        ("skimage.segmentation", lambda: segment(np.zeros((28, 28), np.uint8), Cut())),
        ("scipy.sparse", lambda: one_column(2, [(0, 1)]).distances),
    ],
)
def test_a_missing_library_is_named(monkeypatch, module, call):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(MissingExtra, match=r"headwater(-experiments)?\[graphs\]"):
        call()


def test_patches_are_measured_and_joined():
    """Three patches in a picture of 3 by 2 pixels: two beside each other above, one below both."""
    segments = torch.tensor([[[0, 1], [0, 1], [2, 2]]], dtype=torch.uint8)
    images = torch.tensor([[[255, 0], [0, 0], [51, 51]]], dtype=torch.uint8)
    numbers, adjacency = measure_regions(images, segments, 4)
    expected = torch.tensor([[0.5, 0, 0.25], [0, 1, 0.25], [0.2, 0.5, 1], [0, 0, 0]])
    assert torch.allclose(numbers[0], expected)
    assert adjacency[0].int().tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def digit() -> np.ndarray:
    image = np.zeros((28, 28), np.uint8)
    image[6:22, 12:16] = 255
    return image


def test_an_image_becomes_a_connected_graph_of_patches():
    graph = graph_of(digit(), segment(digit(), Cut()), label=1)
    assert 40 < len(graph) < 100
    assert graph.distances.min() == 0
    assert 0 <= graph.numbers.min() <= graph.numbers.max() <= 1
    assert graph.numbers[:, 0].max() == 1
    with pytest.raises(InputError, match="must be bytes"):
        segment(np.zeros((28, 28)), Cut())


def test_several_processes_cut_as_one_does(monkeypatch):
    monkeypatch.setattr(segmentation, "CHUNK", 2)
    images = np.stack([digit(), digit().T, digit()])
    found = segmentation.segment_all(images, Cut(), processes=2)
    assert np.array_equal(found, np.stack([segment(image, Cut()) for image in images]))


def test_real_digits_have_75_patches_that_hang_together(monkeypatch, tmp_path):
    need_real_data("MNIST")
    from scipy import ndimage

    whole = superpixels.load_mnist_images
    monkeypatch.setattr(superpixels, "load_mnist_images", lambda split: tuple(array[:40] for array in whole(split)))
    monkeypatch.setenv(superpixels.CACHE, str(tmp_path))
    found: Superpixels = superpixels.mnist_superpixels("test")
    assert found.sizes.mean() == pytest.approx(75, abs=2)  # the standard error of 40 images is 0.4
    for segments, size in zip(found.segments, found.sizes, strict=True):
        assert all(ndimage.label(segments == patch)[1] == 1 for patch in range(size))
    assert len(found.graph(0)) == found.sizes[0]
    monkeypatch.setattr(superpixels, "segment_all", None)  # a second call reads what the first one kept
    assert np.array_equal(superpixels.mnist_superpixels("test").segments, found.segments)
