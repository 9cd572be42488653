"""Activation and pruning on graphs: what an input without some nodes is, in both readings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_graphormer import random_graph, run, tiny

import headwater as hw
from headwater.errors import DataError, EmptyInput, UnknownName, UsageError
from headwater.evaluation.files import load_evaluation
from headwater.evaluation.graphs import GraphSource, read_graphs
from headwater.evaluation.perturbation import InputPool
from headwater.evaluation.protocols import ali2022, resolve_protocol
from headwater.models.molecules import ATOM_RANGES, BOND_RANGES, from_smiles

GRAPHS = [random_graph(9, 0), random_graph(6, 1, links=7), random_graph(7, 2, links=8)]
KEPT = np.random.default_rng(3).random((5, 9)) < 0.5
FAST = {"progress": False, "runtime": False}


def answers(model, removal, sample, kept):
    pool = InputPool(GraphSource(model, GRAPHS, ali2022.replace(removal=removal)).part(range(3)), budget=20)
    places = pool.add(sample, kept)
    pool.run()
    return torch.from_numpy(pool.logits[places])


def test_induced_is_the_model_on_the_subgraph():
    model, graph = tiny(), GRAPHS[0]
    found = answers(model, "induced", 0, KEPT)
    for row, keep in zip(found, KEPT, strict=True):
        assert float((row - run(model, graph.subgraph(keep))[0]).abs().max()) < 1e-10


def test_induced_nothing_is_the_virtual_node_alone():
    model, graph = tiny(), GRAPHS[0]
    (row,) = answers(model, "induced", 0, np.zeros((1, 9), bool))
    assert float((row - run(model, graph.subgraph([]), allow_empty=True)[0]).abs().max()) < 1e-10


def test_masked_leaves_the_graph_and_takes_the_embedding():
    model, graph = tiny(), GRAPHS[0]
    arguments = model.headwater_inputs([graph]).arguments
    embedded = model.node_embeddings(arguments["node_features"], arguments["node_numbers"], arguments["degrees"])
    found = answers(model, "masked", 0, KEPT)
    for row, keep in zip(found, KEPT, strict=True):
        slow = model(**arguments, inputs_embeds=embedded * torch.from_numpy(keep)[None, :, None]).logits[0]
        assert float((row - slow).abs().max()) < 1e-10


def test_the_readings_differ_and_agree_on_the_whole_graph():
    model, every = tiny(), np.ones((1, 9), bool)
    assert float((answers(model, "induced", 0, KEPT) - answers(model, "masked", 0, KEPT)).abs().max()) > 0.1
    for removal in ("induced", "masked"):
        assert float((answers(model, removal, 0, every)[0] - run(model, GRAPHS[0])[0]).abs().max()) < 1e-10


@pytest.mark.parametrize("removal", ["induced", "masked"])
def test_the_reading_is_named_in_the_result(removal, tmp_path):
    name = f"ali2022(removal={removal})"
    found = hw.evaluate(tiny(), GRAPHS, methods=["lrp", "random"], protocol=name, out=tmp_path / "kept", **FAST)
    assert found.protocol.name == name
    assert (found.provenance["items"], found.provenance["removal"]) == ("nodes", removal)
    assert load_evaluation(tmp_path / "kept").protocol == found.protocol
    assert found.samples.common["items"].tolist() == [9, 6, 7]
    assert 0 <= found["lrp"].auac <= 1
    assert found["lrp"].aumse >= 0


def test_the_induced_subgraph_where_none_is_asked_for():
    found = hw.evaluate(tiny(), GRAPHS, methods="lrp", measures="all", **{**FAST, "runtime": True})
    assert found.protocol.name == "ali2022(removal=induced)"
    assert found["lrp"].runtime.ratio > 0
    assert found["lrp"].randomisation is not None


def test_curves_end_at_the_whole_graph_and_begin_at_none():
    model = tiny()
    found = hw.evaluate(model, GRAPHS, methods="lrp", **FAST)
    steps = found.samples.values["lrp"]["activation"]
    for i, graph in enumerate(GRAPHS):
        none, whole = (run(model, g, allow_empty=True)[0].softmax(-1) for g in (graph.subgraph([]), graph))
        assert steps[i, [0, -1]].tolist() == pytest.approx([float(none[graph.label]), float(whole[graph.label])])
    assert found.samples.values["lrp"]["pruning"][:, 0].tolist() == pytest.approx([0, 0, 0], abs=1e-20)


def test_an_order_by_what_counts_beats_its_reverse():
    """A model whose nodes add up, one by one: the best order is known."""
    model = tiny(num_hidden_layers=0, virtual_node=False)
    graphs = [g.subgraph(np.arange(len(g))) for g in GRAPHS]
    found = hw.evaluate(model, graphs, methods=["lrp", "random"], protocol="ali2022(removal=masked)", **FAST)
    assert found["lrp"].auac > found["random"].auac


def test_forms_of_data(tmp_path):
    pytest.importorskip("rdkit")
    model = tiny(node_ranges=ATOM_RANGES, number_features=0, edge_ranges=BOND_RANGES)
    smiles = ["CCO", "c1ccccc1", "CC(=O)O"]
    (tmp_path / "drugs.csv").write_text("smiles,label\n" + "".join(f"{s},{i}\n" for i, s in enumerate(smiles)))
    forms = [
        [(from_smiles(s), i) for i, s in enumerate(smiles)],
        [from_smiles(s, label=i) for i, s in enumerate(smiles)],
        {"smiles": smiles, "label": [0, 1, 2]},
        tmp_path / "drugs.csv",
    ]
    tables = [read_graphs(model, data, "smiles", "label", True) for data in forms]
    assert {table.sha256 for table in tables} == {tables[0].sha256}
    assert tables[0].labels == [0, 1, 2]
    with pytest.raises(DataError, match=r"row 1 of the data: 'C1' is no valid SMILES"):
        read_graphs(model, {"smiles": ["C", "C1"], "label": [0, 1]}, "smiles", "label", True)
    with pytest.raises(DataError, match=r"row 0 of the list: the model has no label 7"):
        read_graphs(model, [(from_smiles("C"), 7)], "smiles", "label", True)
    with pytest.raises(DataError, match="graphs without a label"):
        read_graphs(model, [from_smiles("C")], "smiles", "label", True)
    assert read_graphs(model, [from_smiles("C")], "smiles", "label", False).labels is None
    with pytest.raises(DataError, match="has no rows"):
        read_graphs(model, [], "smiles", "label", True)


def test_refused():
    with pytest.raises(EmptyInput, match=r"no virtual node.*removal=masked"):
        hw.evaluate(tiny(virtual_node=False), GRAPHS, methods="lrp", **FAST)
    with pytest.raises(UnknownName, match="removal"):
        resolve_protocol("ali2022(removal=hidden)")
    with pytest.raises(DataError, match="row 1 of the list has no nodes"):
        hw.evaluate(tiny(), [GRAPHS[0], GRAPHS[0].subgraph([])], methods="lrp", **FAST)
    with pytest.raises(UsageError, match="batch_size"):
        hw.evaluate(tiny(), GRAPHS, methods="lrp", batch_size=0, **FAST)


def test_removal_is_for_graphs():
    from test_evaluation import TOKENS, Bag

    with pytest.raises(UsageError, match="removal=induced is about the nodes of a graph"):
        hw.evaluate(Bag(), [("great", 1)], methods="gi", tokenizer=TOKENS, protocol="ali2022(removal=induced)", **FAST)
