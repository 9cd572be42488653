"""The API's mask tests say what the model says, for every kind of input; models are chosen; the docs are served."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
import torch
from browsing import make_state
from fastapi.testclient import TestClient
from speaker import speaker, talker
from test_explorer_reading import other_names
from test_web import HERE, picture

from headwater.errors import DataError
from headwater.results.meanings import MEANINGS
from headwater.web import help
from headwater.web.app import create_app
from headwater.web.models import LazyModel, Loaded, models_of
from headwater.web.state import AppState

ROOT = Path(__file__).parents[1]
TEXT = "The plot is thin, but the cast is wonderful."


@pytest.fixture(scope="module")
def made() -> AppState:
    state = make_state(language=lambda: Loaded(talker("llama"), speaker()))
    state.models = replace(state.models, others=(LazyModel("text", "another", other_names),))
    for model in state.models.all():
        if model.state != "absent":
            model.load()
    return state


@pytest.fixture(scope="module")
def client(made: AppState) -> TestClient:
    return TestClient(create_app(made), **HERE)


def ask(client: TestClient, path: str, **body: Any) -> Any:
    found = client.post(f"/api/{path}", json=body)
    assert found.status_code == 200, found.text
    return found.json()


def test_words(client):
    found = ask(client, "explain/mask", text=TEXT, methods=["lrp", "gi"], masked=[10])
    plain = ask(client, "predict", text=TEXT, masked=[10])
    assert (found["score_before"], found["score_after"]) == (plain["score_before"], plain["score_after"])
    rows = {row["method"]: row["relevance"] for row in ask(client, "explain", text=TEXT, methods=["lrp", "gi"])["rows"]}
    assert {c["method"]: c["amount"] for c in found["claims"]} == {m: pytest.approx(r[10]) for m, r in rows.items()}
    assert "".join(part["text"] for part in found["said"]).startswith("Masking wonderful took 4.87 from positive")


def test_patches_are_painted_in_the_colour_that_is_zero_for_the_model(client, made):
    loaded = made.models.image.take()
    found = ask(client, "image/mask", image=picture(), methods=["lrp"], masked=[0, 8])
    pixels = loaded.reader(picture_of(), return_tensors="pt")["pixel_values"]
    pixels[..., 0:4, 0:4] = 0
    pixels[..., 4:8, 4:8] = 0
    with torch.no_grad():
        logits = loaded.model(pixel_values=pixels).logits[0]
    assert found["score_after"] == pytest.approx(float(logits[int(found["target"])]), abs=1e-4)
    row = ask(client, "image", image=picture(), methods=["lrp"])["rows"][0]["relevance"]
    assert found["claims"][0]["amount"] == pytest.approx(row[0] + row[8], abs=1e-5)


def picture_of() -> Any:
    import base64
    import io

    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(picture()))).convert("L")


def test_atoms(client):
    found = ask(client, "molecule/mask", smiles="CCO", methods=["lrp", "gi"], masked=[2])
    whole = ask(client, "molecule", smiles="CCO", methods=["lrp", "gi"])
    assert found["score_before"] == pytest.approx(whole["score"], abs=1e-4)
    assert found["score_after"] != pytest.approx(found["score_before"], abs=1e-3)
    assert found["said"][1] == {"text": "O 2", "named": True}


@pytest.mark.parametrize(
    ("path", "body"), [("explain", {"text": TEXT}), ("image", {"image": picture()}), ("molecule", {"smiles": "CCO"})]
)
def test_a_saved_page_says_what_masking_showed(client, path, body):
    body = {**body, "methods": ["lrp", "gi"]}
    said = ask(client, f"{path}/mask", **body, masked=[2])["said"]
    sentence = "".join(f"<strong>{part['text']}</strong>" if part["named"] else part["text"] for part in said)
    assert sentence in client.post(f"/api/{path}/report", json={**body, "masked": [2]}).text
    assert "Put to the test" not in client.post(f"/api/{path}/report", json=body).text


@pytest.mark.parametrize("unit", ["token", "word"])
def test_the_saved_page_of_a_generated_text_says_it_too(client, unit):
    body = {"prompt": "the capital of France is", "new_tokens": 3, "unit": unit}
    asked = {**body, "masked": [3], "masked_for": 1}
    said = ask(client, "generate/mask", **asked)["said"]
    sentence = "".join(f"<strong>{part['text']}</strong>" if part["named"] else part["text"] for part in said)
    assert sentence in client.post("/api/generate/report", json=asked).text
    assert "Put to the test" not in client.post("/api/generate/report", json=body).text


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("score", ["advantage", "logprob", "contrast"])
def test_tokens_of_a_prompt(client, unit, score):
    body = {"prompt": "the capital of France is", "new_tokens": 3, "unit": unit, "score": score}
    found = ask(client, "generate/mask", **body, masked=[3], masked_for=1)
    row = ask(client, "generate", **body)["rows"][1]
    assert found["score_before"] == pytest.approx(row["score"], abs=1e-4)
    assert found["before"][0]["probability"] == pytest.approx(row["probability"], abs=1e-5)
    assert found["claims"] == [{"method": "lrp-language", "amount": pytest.approx(row["relevance"][3], abs=1e-5)}]
    assert found["score_after"] != pytest.approx(found["score_before"], abs=1e-3)


def test_an_answer_has_its_verdict_and_its_sum(client):
    found = ask(client, "explain", text=TEXT, methods=["gi", "lrp"])
    assert "".join(p["text"] for p in found["verdict"]).startswith("99.8 % positive, mostly because of wonderful")
    assert found["rows"][1]["ledger"]["sum"] == "words 4.13 + biases -0.82 = 3.31"
    assert "unaccounted 3.00 = 3.31" in found["rows"][0]["ledger"]["sum"]


# models


def test_a_request_chooses_among_the_models_that_were_named(client):
    assert ask(client, "explain", text=TEXT)["prediction"] == "positive"
    assert ask(client, "explain", text=TEXT, model="another")["prediction"] == "good"
    assert ask(client, "explain/mask", text=TEXT, model="another", masked=[10])["target"] == "good"
    assert [m["name"] for m in client.get("/api/about").json()["models"] if m["kind"] == "text"][1] == "another"
    assert client.post("/api/models/text?name=another").json()["state"] == "ready"
    assert client.post("/api/models/text?name=/etc/passwd").status_code == 404


def test_several_names_of_a_kind_are_kept_and_read_when_chosen():
    found = models_of(["a", "b", "a"], language=["c", "d"])
    assert [(m.kind, m.name) for m in found.others] == [("text", "b"), ("language", "d")]
    assert found.of("text", "b").state == "idle"
    assert found.of("text").name == "a"
    with pytest.raises(DataError, match="There are: a, b"):
        found.of("text", "c")


def test_the_command_takes_several_models():
    from typer.testing import CliRunner

    from headwater.cli import app

    told = CliRunner().invoke(app, ["app", "--help"], env={"COLUMNS": "100"}).output
    assert "--model" in told


# the documentation


def test_every_page_is_served_and_its_links_lead_somewhere(client):
    assert list(help.list_pages())[:3] == ["guide", "explorer", "glossary"]
    links: dict[str, str] = {}  # and a page that each stands on
    for name in help.list_pages():
        page = client.get(f"/help/{name}")
        assert "not run:" not in page.text  # what stands in comments is no part of the page
        assert page.status_code == 200
        assert "<script" not in page.text
        links |= dict.fromkeys(re.findall(r'(?:href|src)="(/help/[^"#]*)', page.text), name)
    assert {link: name for link, name in links.items() if client.get(link).status_code != 200} == {}
    assert client.get("/help").text == client.get("/help/guide").text


def test_pages_in_folders_are_served_and_linked_from_where_they_are_named(client):
    guide, study = client.get("/help/generation").text, client.get("/help/studies/language-default").text
    assert 'href="/help/studies/language-default' in guide
    assert 'href="/help/generation' in study  # written there as ../generation.md
    assert 'src="/help/images/faithfulness.svg"' in study
    assert re.search(r"<li>studies<ul>.*aria-current=page>language-default<", study)


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "studies/nothing",
        "../../etc/passwd",
        "%2e%2e%2fpyproject",
        "images/../guide.md",
        "studies/..%2fguide",
    ],
)
def test_a_page_that_is_not_there_is_not_served(client, name):
    assert client.get(f"/help/{name}").status_code in (404, 422)


def test_the_wheel_has_the_pages():
    made = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = made["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"]
    assert packed["docs"] == f"headwater/web/{help.PACKED.name}"


def test_the_glossary_has_the_same_words():
    """What the page says where a word stands is what the glossary says."""
    told = " ".join((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split())
    assert [word for word, meaning in MEANINGS.items() if f"**{word}** | {meaning}" not in told] == []
