"""Explanations of graphs: every node's share, whatever the order of nodes and whatever else is in the batch."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from test_graphormer import EDGES, NODES, NUMBERS, random_graph, tiny
from torch import nn

import headwater as hw
from headwater.errors import EmptyInput, InputError, ModelError, UsageError
from headwater.inputs.protocol import Prepared
from headwater.models.graphormer import GraphormerConfig, GraphormerForGraphClassification
from headwater.models.graphs import Graph, collate
from headwater.models.molecules import ATOM_RANGES, BOND_RANGES, from_smiles

METHODS = ("random", "a-last", "rollout", "a-flow", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp", "lrp-gamma")
REACH_EDGES = ("gi", "lrp(ln)")
GRAPHS = [random_graph(9, 0), random_graph(6, 1, links=7), random_graph(3, 2, links=2).subgraph([0])]


def shift(a, b):
    """The largest difference between two explanations' numbers, relative to the first's size."""
    return float((a.relevance - b.relevance).abs().max() / a.relevance.abs().max().clamp(min=1e-12))


@pytest.mark.parametrize("method", ["lrp", "lrp-gamma"])
@pytest.mark.parametrize("virtual_node", [True, False])
@pytest.mark.parametrize("edge_ranges", [EDGES, ()])
def test_ledger_closes(method, virtual_node, edge_ranges):
    model = tiny(virtual_node=virtual_node, edge_ranges=edge_ranges)
    for explanation in hw.explain(model, GRAPHS, method=method):
        assert explanation.ledger.error < 1e-10
        assert ("virtual_node.weight" in explanation.ledger.biases) is virtual_node


@pytest.mark.parametrize("missing", ["ah", "ln", "act"])
def test_ledger_stays_open_without(missing):
    rules = "+".join(rule for rule in ("ah", "ln", "act") if rule != missing)
    found = hw.explain(tiny(), GRAPHS[:2], method=f"lrp({rules})")
    assert min(e.ledger.error for e in found) > 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("virtual_node", [True, False])
def test_every_method_gives_a_number_for_every_node(method, virtual_node):
    model = tiny(virtual_node=virtual_node)
    for graph, e in zip(GRAPHS, hw.explain(model, GRAPHS, method=method), strict=True):
        assert e.tokens == graph.names
        assert e.relevance.shape == (len(graph),)
        assert bool(e.relevance.isfinite().all())
        assert (e.edges is not None) is (method in REACH_EDGES)
        lines = {**e.ledger.biases, **e.ledger.constants}
        assert ("virtual_node.weight" in lines) is virtual_node


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("virtual_node", [True, False])
def test_the_batch_makes_no_difference(method, virtual_node):
    model = tiny(virtual_node=virtual_node)
    together = hw.explain(model, GRAPHS, method=method)
    for graph, e in zip(GRAPHS, together, strict=True):
        alone = hw.explain(model, graph, method=method)
        assert shift(alone, e) < 1e-6
        assert e.ledger.to_dict()["unaccounted"] == pytest.approx(alone.ledger.unaccounted, abs=1e-6)
    split = hw.explain(model, GRAPHS, method=method, batch_size=1)
    assert max(map(shift, together, split)) < 1e-6


@pytest.mark.parametrize("method", [m for m in METHODS if m != "random"])
@pytest.mark.parametrize("virtual_node", [True, False])
def test_the_order_of_nodes_makes_no_difference(method, virtual_node):
    model, graph = tiny(virtual_node=virtual_node), random_graph(9, 0)
    order = np.random.default_rng(5).permutation(len(graph))
    plain, moved = (hw.explain(model, g, method=method) for g in (graph, graph.permute(order)))
    back = torch.empty_like(moved.relevance)
    back[torch.from_numpy(order)] = moved.relevance
    assert float((plain.relevance - back).abs().max()) < 1e-6 * float(plain.relevance.abs().max())
    if plain.edges is not None:
        named = {frozenset((int(order[i]), int(order[j]))): r for i, j, r in moved.edges}
        assert all(named[frozenset((i, j))] == pytest.approx(r, abs=1e-12) for i, j, r in plain.edges)


def test_a_wrong_order_would_be_seen():
    model, graph = tiny(), random_graph(9, 0)
    moved = hw.explain(model, graph.permute(np.roll(np.arange(9), 1)), method="lrp")
    assert shift(hw.explain(model, graph, method="lrp"), moved) > 0.1


class ScaledEdges(nn.Module):
    """The edge encoding from its definition, each edge's part times a factor: shares of equally good paths are even."""

    def __init__(self, encoding, graph, config):
        super().__init__()
        table, types = encoding.table(), graph.edge_types(config.edge_ranges)
        number = {frozenset(map(int, pair)): k for k, pair in enumerate(graph.edges.T)}
        network = nx.Graph([tuple(map(int, pair)) for pair in graph.edges.T])
        network.add_nodes_from(range(len(graph)))
        self.factor = nn.Parameter(torch.ones(len(types), dtype=table.dtype))
        self.parts = torch.zeros(len(types), 1, len(graph), len(graph), table.shape[-1], dtype=table.dtype)
        for i, lengths in nx.shortest_path_length(network):
            for j in lengths:
                ways = [[number[frozenset(step)] for step in pairwise(p)] for p in paths(network, i, j)]
                best = min([types[e] for e in way[: config.max_path]] for way in ways)
                taken = [way for way in ways if [types[e] for e in way[: config.max_path]] == best]
                for way in taken:
                    for place, edge in enumerate(way[: config.max_path]):
                        part = table[place, types[edge] + 1] / min(len(way), config.max_path) / len(taken)
                        self.parts[edge, 0, i, j] += part

    def forward(self, edge_paths):
        return torch.einsum("e,ebijh->bijh", self.factor, self.parts)


def paths(network, i, j):
    return [[i]] if i == j else list(nx.all_shortest_paths(network, i, j))


@pytest.mark.parametrize("seed", [0, 4])
def test_edge_relevance_is_the_slope_along_each_edges_part(seed):
    """Gradient x Input of an edge is df/ds at s = 1, where s scales what that edge adds to attention's scores."""
    model, graph = tiny(seed), random_graph(9, seed)
    e = hw.explain(model, graph, method="gi", target=1)
    arguments = model.headwater_inputs([graph]).arguments
    plain = model(**arguments).logits
    scaled = model.structure.edges = ScaledEdges(model.structure.edges, graph, model.config)
    logits = model(**arguments).logits
    assert float((logits - plain).detach().abs().max()) < 1e-12
    (slope,) = torch.autograd.grad(logits[0, 1], scaled.factor)
    assert [r for _, _, r in e.edges] == pytest.approx(slope.tolist(), abs=1e-12)
    assert e.ledger.constants["structure.edges"] == pytest.approx(float(slope.sum()), abs=1e-12)
    assert [(i, j) for i, j, _ in e.edges] == list(map(tuple, graph.edges.T.tolist()))


def test_a_parameter_that_learns_changes_nothing():
    frozen = hw.explain(tiny(), GRAPHS[0], method="gi")
    learning = hw.explain(tiny().requires_grad_(True), GRAPHS[0], method="gi")
    assert shift(frozen, learning) < 1e-12
    assert np.array(learning.edges) == pytest.approx(np.array(frozen.edges))


def test_comparison_shares_one_pass_and_agrees():
    model = tiny()
    found = hw.compare(model, GRAPHS[0], methods=METHODS)
    assert found.refused == ()
    for e in found.explanations:
        assert shift(hw.explain(model, GRAPHS[0], method=e.method), e) < 1e-6


def test_saved_as_plain_types():
    record = json.loads(json.dumps(hw.explain(tiny(), GRAPHS[0], method="gi").to_dict()))
    assert len(record["relevance"]) == 9
    assert len(record["edges"][0]) == 3
    assert "edges" not in hw.explain(tiny(), GRAPHS[0], method="lrp").to_dict()


# what can be given


def test_collated_tensors_are_still_bare_tensors():
    model = tiny()
    fields = collate(GRAPHS[:1], model.config, dtype=model.dtype)
    fields.pop("labels")
    assert shift(hw.explain(model, fields)[0], hw.explain(model, GRAPHS[0])) < 1e-12


def test_graphs_of_other_libraries():
    chem = pytest.importorskip("rdkit.Chem")
    data = pytest.importorskip("torch_geometric.data")
    model = tiny(node_ranges=ATOM_RANGES, number_features=0, edge_ranges=BOND_RANGES)
    graph = from_smiles("CC(=O)Oc1ccccc1C(=O)O")
    plain = hw.explain(model, graph)
    assert plain.tokens[:4] == ("C", "C", "O", "O")
    assert shift(plain, hw.explain(model, chem.MolFromSmiles("CC(=O)Oc1ccccc1C(=O)O"))) < 1e-12
    tensors = {"x": graph.features, "edge_index": graph.edges, "edge_attr": graph.edge_features}
    pyg = data.Data(**{name: torch.from_numpy(np.array(array)) for name, array in tensors.items()})
    assert shift(plain, hw.explain(model, pyg)) < 1e-12
    assert len(hw.explain(model, [graph, pyg])) == 2


def test_networkx_graphs_by_the_names_in_the_config():
    names = {"node_columns": ["colour", "size"], "number_columns": ["x", "y"], "edge_columns": ["kind", "way"]}
    model, graph = tiny(**names), random_graph(6, 1, links=7)
    network = nx.Graph()
    for i in range(len(graph)):
        values = [*graph.features[i].tolist(), *graph.numbers[i].tolist()]
        network.add_node(f"n{i}", **dict(zip(("colour", "size", "x", "y"), values, strict=True)))
    for (u, v), (kind, way) in zip(graph.edges.T, graph.edge_features.tolist(), strict=True):
        network.add_edge(f"n{u}", f"n{v}", kind=kind, way=way)
    found = hw.explain(model, network)
    assert found.tokens == tuple(f"n{i}" for i in range(6))
    assert shift(hw.explain(model, graph), found) < 1e-12
    del network.nodes["n3"]["size"]
    with pytest.raises(InputError, match=r"node 'n3' has no attribute 'size'"):
        hw.explain(model, network)


def empty(nodes=0):
    edges = np.zeros((2, 0), np.int64)
    return Graph(np.zeros((nodes, len(NODES)), np.int64), edges, numbers=np.zeros((nodes, NUMBERS)))


def out_of_range():
    graph = random_graph(6, 1, links=7)
    features = np.array(graph.features)
    features[2, 1] = 9
    return Graph(features, graph.edges, graph.numbers, graph.edge_features)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (empty(), EmptyInput, "the graph has no nodes: there is nothing to explain"),
        ([GRAPHS[0], empty()], EmptyInput, "graph 1 has no nodes"),
        (out_of_range(), InputError, "node 2 has the value 9 in feature column 1; the model knows 0 to 2"),
        ([GRAPHS[0], out_of_range()], InputError, "graph 1 does not fit: node 2 has the value 9"),
        ("CCO", InputError, "the graph is a str, and the model takes graphs. If it is a SMILES string: headwater"),
        (3.5, InputError, "a builtins.float is no graph"),
        (Graph(np.zeros((2, 1), np.int64), [[0], [1]]), InputError, "nodes with 2 categorical features, .* have 1"),
    ],
)
def test_refused(data, error, message):
    with pytest.raises(error, match=message):
        hw.explain(tiny(), data)


def test_no_graphs_no_explanations():
    assert hw.explain(tiny(), []) == []
    with pytest.raises(UsageError, match="batch_size"):
        hw.explain(tiny(), GRAPHS, batch_size=0)


def test_invalid_smiles():
    pytest.importorskip("rdkit")
    with pytest.raises(InputError, match=re.escape("'C1CC' is no valid SMILES string")):
        from_smiles("C1CC")


# any model may say how its inputs are made


class Counts(nn.Module):
    """A sample is a dict of words and how often each occurs; logits are linear in the counts, after a class token."""

    def __init__(self, wrong=False):
        super().__init__()
        self.embed, self.start = nn.Linear(1, 3, bias=False), nn.Parameter(torch.ones(1, 1, 3))
        self.wrong = wrong

    def get_input_embeddings(self):
        return self.embed

    def headwater_inputs(self, samples):
        real = torch.nn.utils.rnn.pad_sequence([torch.ones(len(s.words), dtype=torch.bool) for s in samples], True)
        counts = torch.zeros(*real.shape, 1)
        for row, s in zip(counts, samples, strict=True):
            row[: len(s.words), 0] = torch.tensor(s.counts)
        names = tuple(s.words[self.wrong :] for s in samples)
        return Prepared({"counts": counts, "mask": real}, names, real, before=("start",))

    def forward(self, counts, mask):
        return torch.cat([self.start.expand(len(counts), -1, -1), self.embed(counts) * mask[..., None]], 1).sum(1)


class Bag:
    def __init__(self, **counts):
        self.words, self.counts = tuple(counts), [float(n) for n in counts.values()]


def test_a_model_of_ones_own():
    torch.manual_seed(0)
    model = Counts().eval()
    bags = [Bag(cat=2), Bag(dog=1, cat=3)]
    found = hw.explain(model, bags, target=0, method="gi")
    weight = model.embed.weight[0].item()
    assert [e.tokens for e in found] == [("cat",), ("dog", "cat")]
    assert found[1].relevance.tolist() == pytest.approx([weight, 3 * weight])
    assert all(e.ledger.closed and e.ledger.biases["start"] == pytest.approx(1.0) for e in found)
    with pytest.raises(ModelError, match=r"gave \[0\] names for 1 samples that have \[1\] items"):
        hw.explain(Counts(wrong=True).eval(), bags[0], target=0, method="gi")


# a truth that is known


def with_ring(seed):
    """A random tree that bears two rings of four. Label 1: the first has colour 0 all over; label 0: nowhere.

    The tree has any colours and the second ring any but 0, whatever the label. Also given: which nodes are the first.
    """
    chance = np.random.default_rng(seed)
    label, nodes = seed % 2, int(chance.integers(8, 13))
    tree = nx.random_labeled_tree(nodes, seed=int(chance.integers(2**30)))
    network = nx.disjoint_union_all([tree, nx.cycle_graph(4), nx.cycle_graph(4)])
    network.add_edges_from([(int(chance.integers(nodes)), nodes), (int(chance.integers(nodes)), nodes + 4)])
    rings = [chance.integers(1, 5, 4) * (not label), chance.integers(1, 5, 4)]
    colours = np.concatenate([chance.integers(0, 5, nodes), *rings])
    order = chance.permutation(nodes + 8)
    graph = Graph(colours[:, None], np.array(network.edges).T, label=label).permute(order)
    return graph, torch.from_numpy((order >= nodes) & (order < nodes + 4))


def trained(seed):
    """A Graphormer that tells rings of colour 0 from others."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 4, "max_degree": 8, "max_distance": 6}
    config = GraphormerConfig(node_ranges=[5], num_labels=2, attention_probs_dropout_prob=0.0, **sizes)
    model = GraphormerForGraphClassification(config)
    batch = collate([with_ring(number)[0] for number in range(600)], config)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(15):
        for chosen in torch.randperm(600).split(64):
            optimizer.zero_grad()
            model(**{name: values[chosen] for name, values in batch.items()}).loss.backward()
            optimizer.step()
    return model.eval().requires_grad_(False)


def auroc(relevance, truth):
    inside, outside = relevance[truth], relevance[~truth]
    return float(((inside[:, None] > outside).double() + 0.5 * (inside[:, None] == outside).double()).mean())


@pytest.mark.slow
def test_the_nodes_that_the_label_depends_on_are_found():
    """Attention finds them in some trainings and not in others, so three are looked at."""
    graphs, truths = zip(*(with_ring(number) for number in range(10_001, 10_201, 2)), strict=True)
    found = {"lrp": [], "rollout": [], "random": []}
    for seed in range(3):
        model = trained(seed)
        assert float((model(**collate(graphs, model.config)).logits.argmax(-1) == 1).double().mean()) > 0.95
        for method, scores in found.items():
            made = hw.explain(model, list(graphs), method=method, target=1)
            scores.append(np.mean([auroc(e.relevance, truth) for e, truth in zip(made, truths, strict=True)]))
    assert min(found["lrp"]) >= 0.9
    assert np.mean(found["lrp"]) > np.mean(found["rollout"]) + 0.05
    assert abs(np.mean(found["random"]) - 0.5) < 0.1


# large ones


def test_a_molecule_of_200_atoms():
    pytest.importorskip("rdkit")
    model = tiny(node_ranges=ATOM_RANGES, number_features=0, edge_ranges=BOND_RANGES)
    chain = from_smiles("C" * 100 + "(C(=O)N)" + "C" * 97)
    assert len(chain) == 200
    for method in ("lrp", "gi", "rollout"):
        assert hw.explain(model, chain, method=method).relevance.shape == (200,)


@pytest.mark.slow
def test_a_graph_of_2000_nodes():
    pairs = np.array(list(nx.random_regular_graph(4, 2000, seed=0).edges)).T
    colours = np.random.default_rng(0).integers(0, 2, (6000, 1))
    graph = Graph(colours[:2000], pairs, edge_features=colours[2000:])
    changes = {"node_ranges": [2], "number_features": 0, "edge_ranges": [2], "hidden_size": 8, "intermediate_size": 8}
    e = hw.explain(tiny(num_attention_heads=2, **changes), graph, method="lrp")
    assert e.relevance.shape == (2000,)
    assert e.ledger.closed


def test_audit_of_a_graph():
    """What the paper's propositions predict for heads and normalisations is what is measured."""
    found = hw.audit(tiny(), GRAPHS[0], method="gi")
    assert len(found.heads) == 8
    for head in found.heads:
        assert head.measured == pytest.approx(head.predicted, abs=1e-10)
    for norm in found.norms:
        assert norm.measured == pytest.approx(norm.predicted, abs=1e-6)
