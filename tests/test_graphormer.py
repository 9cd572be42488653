"""Graphormer: equal to a slow version from the paper, whatever stands beside a graph and however it is ordered."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from reference import difference
from reference import graphormer as slow

from headwater.errors import EmptyInput, InputError, UsageError
from headwater.models.graphormer import GraphormerConfig, GraphormerForGraphClassification
from headwater.models.graphs import Graph, collate, induce_subgraphs

NODES, NUMBERS, EDGES = (5, 3), 2, (3, 2)
SMALL = {
    "node_ranges": NODES,
    "number_features": NUMBERS,
    "edge_ranges": EDGES,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "edge_size": 3,
    "max_degree": 4,
    "max_distance": 4,
    "max_path": 3,
    "num_labels": 3,
}


def random_graph(nodes: int = 9, seed: int = 0, links: int = 11) -> Graph:
    """Rings and several components are likely; labels are given."""
    chance = np.random.default_rng(seed)
    pairs = np.array(list(nx.gnm_random_graph(nodes, links, seed=seed).edges)).T
    return Graph(
        features=np.stack([chance.integers(0, size, nodes) for size in NODES], 1),
        numbers=chance.normal(size=(nodes, NUMBERS)),
        edges=pairs,
        edge_features=np.stack([chance.integers(0, size, pairs.shape[1]) for size in EDGES], 1),
        label=seed % 3,
    )


def tiny(seed: int = 0, **changes) -> GraphormerForGraphClassification:
    """A random model in float64 whose every weight matters."""
    torch.manual_seed(seed)
    model = GraphormerForGraphClassification(GraphormerConfig(**{**SMALL, **changes})).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.5)
    return model.requires_grad_(False)


def run(model, *graphs, **options):
    return model(**collate(graphs, model.config, dtype=model.dtype, **options)).logits


def slow_logits(model, graph):
    edges = {(int(u), int(v)): e.tolist() for (u, v), e in zip(graph.edges.T, graph.edge_features, strict=True)}
    config = model.config
    return slow.logits(
        model.state_dict(),
        graph.features.tolist(),
        graph.numbers.tolist(),
        edges,
        config.num_attention_heads,
        config.max_distance,
        config.max_path,
        config.post_norm,
    )


@pytest.mark.parametrize(
    "changes", [{}, {"virtual_node": False}, {"number_hidden_size": 7}, {"post_norm": True}], ids=str
)
@pytest.mark.parametrize("seed", range(3))
def test_equals_a_slow_version_from_the_paper(changes, seed):
    model, graph = tiny(**changes), random_graph(seed=seed)
    assert difference(run(model, graph)[0], slow_logits(model, graph)) < 1e-12


def test_a_long_path_is_cut_and_a_far_node_shares_a_bucket():
    model, size = tiny(), 12
    line = Graph(
        features=np.zeros((size, 2), int),
        numbers=np.zeros((size, NUMBERS)),
        edges=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_features=np.stack([np.arange(size - 1) % 3, np.arange(size - 1) % 2], 1),
    )
    assert line.distances.max() > model.config.max_distance > model.config.max_path
    assert difference(run(model, line)[0], slow_logits(model, line)) < 1e-12


@pytest.mark.parametrize("part", ["features", "numbers", "edge_features", "edges"])
def test_every_part_of_a_graph_matters(part):
    model, graph = tiny(), random_graph()
    other = random_graph(seed=5, links=graph.edges.shape[1])
    parts = ("features", "numbers", "edges", "edge_features")
    changed = Graph(**{name: getattr(other if name == part else graph, name) for name in parts})
    assert difference(run(model, changed), run(model, graph)) > 1e-3


@pytest.mark.parametrize("virtual", [True, False])
def test_neighbours_in_a_batch_and_padding_change_nothing(virtual):
    model = tiny(virtual_node=virtual)
    graphs = [random_graph(n, seed=n, links=n) for n in (3, 9, 14)]
    alone = torch.cat([run(model, graph) for graph in graphs])
    assert difference(run(model, *graphs), alone) < 1e-12


def test_padding_without_its_mask_would_be_seen():
    model = tiny()
    batch = collate([random_graph(4, 1, 4), random_graph(9)], model.config, dtype=torch.float64)
    masked = model(**batch).logits
    batch.pop("attention_mask")
    assert difference(model(**batch).logits[:1], masked[:1]) > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_nodes_changes_nothing(seed):
    model, graph = tiny(), random_graph(12, seed, 18)
    order = np.random.default_rng(seed).permutation(len(graph))
    assert difference(run(model, graph.permute(order)), run(model, graph)) < 1e-12


def test_relevance_moves_with_its_node():
    model, graph = tiny(), random_graph(12, 1, 18)
    order = np.random.default_rng(1).permutation(len(graph))
    assert difference(input_gradient(model, graph.permute(order)), input_gradient(model, graph)[order]) < 1e-10


def input_gradient(model, graph):
    batch = collate([graph], model.config, dtype=torch.float64)
    embeds = model.node_embeddings(*(batch[k] for k in ("node_features", "node_numbers", "degrees"))).detach()
    embeds.requires_grad_()
    structure = {k: batch[k] for k in ("distances", "edge_paths", "attention_mask")}
    (gradient,) = torch.autograd.grad(model(inputs_embeds=embeds, **structure).logits[0, 0], embeds)
    return gradient[0]


def test_inputs_embeds_replace_the_node_embeddings():
    model, graph = tiny(), random_graph()
    batch = collate([graph], model.config, dtype=torch.float64)
    heard = []
    hook = model.get_input_embeddings().register_forward_hook(lambda module, given, output: heard.append(output))
    logits = model(**batch).logits
    hook.remove()
    assert [tuple(output.shape) for output in heard] == [(1, len(graph), model.config.hidden_size)]
    structure = {k: batch[k] for k in ("distances", "edge_paths", "attention_mask")}
    assert torch.equal(model(inputs_embeds=heard[0], **structure).logits, logits)
    assert difference(model(inputs_embeds=heard[0] * 2, **structure).logits, logits) > 1e-3


def test_the_virtual_node_alone_answers_for_an_empty_graph():
    model, graph = tiny(), random_graph()
    empty = graph.subgraph([])
    alone = run(model, empty, allow_empty=True)
    assert difference(run(model, graph, empty, allow_empty=True)[1:], alone) < 1e-12
    with pytest.raises(EmptyInput, match="allow_empty=True"):
        run(model, empty)
    with pytest.raises(EmptyInput, match="no virtual node"):
        run(tiny(virtual_node=False), empty, allow_empty=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_induced_subgraphs_is_that_of_the_subgraphs(seed):
    model, graphs = tiny(), [random_graph(12, seed, 18), random_graph(9, seed + 10, 12)]
    batch = collate(graphs, model.config, dtype=torch.float64)
    keep = torch.rand(2, 12, generator=torch.Generator().manual_seed(seed)) < 0.6
    parts = [graph.subgraph(row[: len(graph)].numpy()) for graph, row in zip(graphs, keep, strict=True)]
    found = model(**induce_subgraphs(batch, keep, model.config.edge_types)).logits
    assert difference(found, run(model, *parts)) < 1e-12
    masked_only = {**batch, "attention_mask": keep & batch["attention_mask"]}
    assert difference(model(**masked_only).logits, found) > 1e-6  # degrees and paths of the whole graph differ


def test_a_graph_without_edge_features_needs_no_paths():
    model = tiny(edge_ranges=())
    graph = random_graph()
    plain = Graph(features=graph.features, numbers=graph.numbers, edges=graph.edges)
    assert "edge_paths" not in collate([plain], model.config)
    assert difference(run(model, plain), run(model, graph)) == 0


def test_labels_give_the_loss_and_a_tuple_where_asked():
    model = tiny()
    batch = collate([random_graph(seed=s) for s in range(3)], model.config, dtype=torch.float64)
    output = model(**batch)
    expected = -output.logits.log_softmax(-1)[range(3), batch["labels"]].mean()
    assert difference(output.loss, expected) < 1e-12
    assert torch.equal(model(**batch, return_dict=False)[1], output.logits)


def test_saving_and_loading_changes_nothing(tmp_path):
    model, graph = tiny(number_hidden_size=5), random_graph()
    model.save_pretrained(tmp_path)
    loaded = GraphormerForGraphClassification.from_pretrained(tmp_path, dtype=torch.float64).requires_grad_(False)
    weights = zip(loaded.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(found, written) for found, written in weights)
    assert difference(run(loaded, graph), run(model, graph)) < 1e-12
    assert loaded.config.to_diff_dict() == {**model.config.to_diff_dict(), "dtype": "float64"}


def test_heads_start_out_looking_at_different_distances():
    torch.manual_seed(0)
    model = GraphormerForGraphClassification(GraphormerConfig(**SMALL, number_hidden_size=50)).requires_grad_(False)
    assert model.structure.spatial.weight.std() == pytest.approx(1, abs=0.3)
    assert model.structure.edges.table()[:, 1:].std() == pytest.approx(1, abs=0.3)
    assert model.node_embeddings.numbers.up.weight.std() == pytest.approx(4, abs=1)
    assert model.layers[0].query.weight.std() == pytest.approx(16**-0.5, abs=0.05)


def test_padded_rows_stay_finite_on_the_way_back():
    model = tiny(virtual_node=False).train().requires_grad_()
    batch = collate([random_graph(2, 1, 1), random_graph(9)], model.config, dtype=torch.float64)
    model(**batch).loss.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


@pytest.mark.parametrize(("nodes", "edge_ranges"), [(200, EDGES), (2000, ())])
def test_large_graphs_run(nodes, edge_ranges):
    model = tiny(edge_ranges=edge_ranges).float()
    assert torch.isfinite(run(model, random_graph(nodes, 0, 2 * nodes))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 18}, "cannot be shared by 4 heads"),
        ({"node_ranges": (), "number_features": 0}, "no features"),
        ({"edge_ranges": (1000,), "max_path": 20}, "Lower max_path"),
    ],
)
def test_a_size_that_cannot_be_is_refused(change, message):
    with pytest.raises(UsageError, match=message):
        GraphormerForGraphClassification(GraphormerConfig(**{**SMALL, **change}))


@pytest.mark.parametrize("missing", ["distances", "degrees", "node_features", "node_numbers", "edge_paths"])
def test_a_missing_input_is_named(missing):
    model = tiny()
    batch = collate([random_graph()], model.config, dtype=torch.float64)
    del batch[missing]
    with pytest.raises(InputError, match=missing):
        model(**batch)
