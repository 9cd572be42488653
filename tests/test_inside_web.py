"""The API of a model's parts: its numbers are the library's, what cannot be told says so, files are complete."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")
import tiny
import torch
from browsing import make_state
from fastapi.testclient import TestClient
from jobs_here import made
from speaker import speaker, talker
from torch import nn

import headwater as hw
from headwater.api.head_pairs import read_head_pairs
from headwater.web.app import create_app
from headwater.web.models import LazyModel, Loaded, Models, models_of
from headwater.web.state import AppState
from headwater.web.stores import stores_in

approx = pytest.approx
TEXT = "a gripping, beautifully acted film"
ASK = {"text": TEXT}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("runs")
    made(found / "out", {"text": [TEXT, "a boring film", "not good"]}, inside=["heads", "neurons"])
    made(found / "plain", {"text": [TEXT]})
    return found


@pytest.fixture(scope="module")
def client(folder) -> TestClient:
    return TestClient(create_app(make_state(stores=stores_in([folder]))), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def own() -> hw.Explanation:
    model, tokenizer = hw.load("headwater/sentiment")
    return hw.explain(model, TEXT, tokenizer=tokenizer, inside=["heads", "neurons", "layers"])


def test_parts_are_the_librarys(client, own):
    found = client.post("/api/inside", json=ASK).json()
    assert found["score"] == approx(own.score, rel=1e-5)
    assert torch.tensor([one["relevance"] for one in found["heads"]]) == approx(own.inside.heads, rel=1e-4)
    by_token = own.inside.positions.heads.transpose(1, 2)
    torch.testing.assert_close(torch.tensor([one["positions"] for one in found["heads"]]), by_token)
    assert [one["relevance"] for one in found["layers"]] == approx(own.inside.layers.tolist(), rel=1e-4)
    assert [one["name"] for one in found["neurons"]] == [node.name for node in own.inside.top(20, "neurons")]
    assert [cell["text"] for cell in found["cells"]] == list(own.tokens)
    for group in (*found["heads"], *found["layers"], *found["neuron_groups"]):
        cut = group["cut"]
        whole = cut["nodes"] + cut["by_passing"] + cut["sources"] + cut["readout"]
        assert whole == approx(cut["score"], abs=1e-5)
        assert cut["closed"]
        said, total = cut["sum"].split(" = ")
        assert sum(float(part.rsplit(" ", 1)[1]) for part in said.split(" + ")) == approx(float(total), abs=1e-9)
    assert found["refused"] == []


def test_a_head_between_words_sums_to_its_relevance(client, own):
    groups = client.post("/api/inside", json=ASK).json()["heads"]
    found = client.post("/api/inside/head", json={**ASK, "module": groups[1]["module"], "head": 3}).json()
    attention, relevance = torch.tensor(found["attention"]), torch.tensor(found["relevance"])
    assert attention.sum(-1) == approx(torch.ones(len(own.tokens)), rel=1e-5)
    torch.testing.assert_close(relevance.sum(-1), own.inside.positions.heads[1, :, 3], atol=1e-5, rtol=1e-4)
    wrong = client.post("/api/inside/head", json={**ASK, "module": groups[1]["module"], "head": 6})
    assert wrong.status_code == 400
    assert "6 heads" in wrong.json()["message"]
    assert client.post("/api/inside/head", json={**ASK, "module": "nowhere", "head": 0}).status_code == 400


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_pairs_of_every_spelling_sum_to_the_heads(name):
    """Fused attention and grouped heads: summed over keys, pairs are the head's relevance by position."""
    options = {"tokenizer": tiny.tokenizer(), "method": "lrp"}
    inside = hw.explain(tiny.tiny(name), "the film is good", inside=["heads"], **options).inside
    pairs = read_head_pairs(tiny.tiny(name), "the film is good", **options)
    assert [one.module for one in pairs] == inside.names("heads")
    found = torch.stack([one.relevance.sum(-1).T for one in pairs])
    torch.testing.assert_close(found, inside.positions.heads, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("by", ["zeros", "mean"])
def test_what_is_switched_off_is_patched_as_the_library_does(client, by):
    model, tokenizer = hw.load("headwater/sentiment")
    nodes = [{"kind": "heads", "module": "bert.encoder.layer.3.attention.self", "unit": 5}]
    nodes += [{"kind": "neurons", "module": "bert.encoder.layer.0.output.dense", "unit": 262}]
    found = client.post("/api/inside/patch", json={**ASK, "nodes": nodes, "replaced_by": by}).json()
    names = ["layer 3 head 5", "layer 0 neuron 262"]
    with_ = "zeros" if by == "zeros" else [TEXT]
    expected = hw.patch(model, TEXT, names, with_=with_, tokenizer=tokenizer)
    assert found["nodes"] == names
    assert (found["score"], found["patched"]) == approx((expected.score, expected.patched), rel=1e-5)
    assert abs(found["patched"] - found["score"]) > 1e-3
    assert 0 < found["patched_probability"] < 1


def test_runs_with_parts_are_ranked_and_others_refused(client, folder):
    runs = client.get("/api/inside/runs").json()
    assert [(one["name"], one["kinds"], one["rows"]) for one in runs] == [("out", ["heads", "neurons"], 3)]
    found = client.get(f"/api/inside/runs/{runs[0]['id']}/neurons").json()
    stored = [e.inside.neurons.abs() for e in hw.open_run(folder / "out").explanations()]
    mean = torch.stack(stored).mean(0)
    best = [one for one in found["units"] if one["name"].startswith("layer")]
    assert best[0]["size"] == approx(float(mean.max()), rel=1e-5)
    assert best[0]["name"] == "layer {} neuron {}".format(*divmod(int(mean.argmax()), mean.shape[1]))
    assert sum(token["rows"] for token in best[0]["tokens"]) == 3
    everything = client.get("/api/datasets").json()
    plain = next(one["id"] for one in everything if one["name"] == "plain")
    refused = client.get(f"/api/inside/runs/{plain}/neurons")
    assert refused.status_code == 400
    assert "holds no neurons" in refused.json()["message"]


@pytest.mark.parametrize("form", ["html", "json"])
def test_the_parts_are_a_file(client, form):
    nodes = [{"kind": "heads", "module": "bert.encoder.layer.3.attention.self", "unit": 5}]
    found = client.post(f"/api/inside/report?form={form}", json={**ASK, "nodes": nodes, "replaced_by": "mean"})
    assert found.headers["content-disposition"] == f'attachment; filename="headwater-inside.{form}"'
    if form == "html":
        assert "Content-Security-Policy" in found.text
        assert "<strong>layer 3 head 5</strong> replaced by their mean over the tokens" in found.text
        assert found.text.count("by-passing") >= 4
    else:
        assert json.loads(found.text)["patched"]["replaced_by"] == "mean"
        assert len(json.loads(found.text)["inside"]["groups"]) == 13


def test_a_circuit_is_the_librarys_and_every_node_adds_up(client):
    model, tokenizer = hw.load("headwater/sentiment")
    found = client.post("/api/inside/circuit", json={**ASK, "nodes": 12}).json()
    own = hw.circuit(model, TEXT, nodes=12, tokenizer=tokenizer)
    assert len(found["nodes"]) == len(own.nodes)
    assert found["closed"]
    for number, node in enumerate(found["nodes"]):
        assert node["relevance"] == approx(own.nodes[number].relevance, abs=1e-5)
        into = sum(edge["relevance"] for edge in found["edges"] if edge["end"] == number)
        if node["kind"] != "words":
            assert into + node["sources"] + node["from_left_out"] == approx(node["relevance"], abs=1e-5)
    assert found["svg"].count("data-item") == len(found["nodes"])


@pytest.fixture(scope="module")
def talking() -> Iterator[TestClient]:
    state = make_state(language=lambda: Loaded(talker("llama"), speaker()))
    state.models.language.load()
    yield TestClient(create_app(state), base_url="http://127.0.0.1")
    state.close()


SAID = {"text": "the film is", "kind": "language"}


def test_a_language_model_is_looked_into_for_its_next_token(talking):
    found = talking.post("/api/inside", json=SAID).json()
    e = hw.explain(talker("llama"), SAID["text"], tokenizer=speaker(), inside=["heads"])
    assert torch.tensor([one["relevance"] for one in found["heads"]]) == approx(e.inside.heads, rel=1e-4, abs=1e-7)
    assert all(group["cut"]["closed"] for group in (*found["heads"], *found["layers"]))
    with torch.no_grad():
        shares = talker("llama")(**speaker()(SAID["text"], return_tensors="pt")).logits[0, -1].softmax(-1)
    assert [one["probability"] for one in found["classes"]] == approx(shares.topk(5).values.tolist(), rel=1e-4)
    assert found["classes"][0]["name"] == found["prediction"]
    head = talking.post("/api/inside/head", json={**SAID, "module": found["heads"][1]["module"], "head": 2}).json()
    assert sum(map(sum, head["relevance"])) == approx(found["heads"][1]["relevance"][2], rel=1e-3, abs=1e-6)
    assert talking.post("/api/inside", json={**SAID, "kind": "image"}).status_code == 422


def test_a_head_of_a_language_model_switched_off_moves_the_next_token(talking):
    groups = talking.post("/api/inside", json=SAID).json()["heads"]
    nodes = [{"kind": "heads", "module": groups[1]["module"], "unit": 2}]
    found = talking.post("/api/inside/patch", json={**SAID, "nodes": nodes}).json()
    options = {"tokenizer": speaker(), "output": "probability"}
    expected = hw.patch(talker("llama"), SAID["text"], "layer 1 head 2", **options)
    got = (found["probability"], found["patched_probability"])
    assert got == approx((expected.score, expected.patched), rel=1e-4)
    assert got[0] != got[1]
    page = talking.post("/api/inside/report", json={**SAID, "nodes": nodes})
    assert "layer 1 head 2" in page.text


class Opaque(nn.Module):
    """Words are added up and pass two layers: there are no heads and no activations."""

    def __init__(self) -> None:
        super().__init__()
        bert = tiny.tiny("bert", torch.float32)
        self.config, self.device = bert.config, torch.device("cpu")
        self.embedding = nn.Embedding(bert.config.vocab_size, 8)
        self.layers, self.head = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]), nn.Linear(8, 2)
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids, **_):
        found = self.embedding(input_ids)
        for layer in self.layers:
            found = layer(found)
        return {"logits": self.head(found.sum(1))}


def test_a_model_whose_heads_cannot_be_told_says_so():
    found = models_of()
    text = LazyModel("text", "opaque", lambda: Loaded(Opaque(), tiny.tokenizer()))
    state = AppState(Models(text, found.image, found.molecule, found.language))
    text.load()
    client = TestClient(create_app(state), base_url="http://127.0.0.1")
    found = client.post("/api/inside", json={"text": "the film"}).json()
    assert [one["label"] for one in found["layers"]] == ["layer 0", "layer 1"]
    assert found["heads"] == found["neurons"] == []
    assert [one["kind"] for one in found["refused"]] == ["heads", "neurons"]
    assert "no heads that can be told" in found["refused"][0]["reason"]
    state.close()
