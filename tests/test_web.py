"""The explorer's server: what it answers, what it refuses, and that it lives."""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import io
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
import httpx
import torch
from browsing import make_state
from fastapi.testclient import TestClient
from speaker import speaker, talker

from headwater.engine import run_plans
from headwater.errors import LoadError, UsageError
from headwater.web.app import create_app
from headwater.web.cancelling import Cancelled, Interruptible, OutOfTime
from headwater.web.limits import Limits
from headwater.web.models import LazyModel, Loaded, Models, models_of
from headwater.web.pool import Busy, JobPool
from headwater.web.security import LOOPBACK
from headwater.web.server import make_address, open_browser, serve_in_thread, token_for
from headwater.web.state import AppState
from headwater.web.text_schemas import TextAsked

TEXT = "a gripping, beautifully acted film"
SLOW = {"text": "a fine film and " * 120, "methods": ["shapley-sampling", "kernel-shap", "lime"]}
HERE = {"base_url": "http://127.0.0.1"}
PATIENCE = 60.0  # seconds that a busy machine may need; what is bound to come fails only where it never does


def await_that(holds: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def made() -> AppState:
    return make_state(language=lambda: Loaded(talker("llama"), speaker()))


@pytest.fixture(scope="module")
def client(made: AppState) -> TestClient:
    for model in (made.models.image, made.models.molecule, made.models.language):
        model.load()
    return TestClient(create_app(made), **HERE)


def picture(width: int = 28, height: int = 28, form: str = "PNG", mode: str = "L") -> str:
    from PIL import Image

    kept = io.BytesIO()
    Image.new(mode, (width, height)).save(kept, form)
    return base64.b64encode(kept.getvalue()).decode()


# what it answers


def test_an_explanation_is_the_librarys(client, made):
    import headwater as hw

    found = client.post("/api/explain", json={"text": TEXT, "methods": ["lrp", "gi"], "unit": "token"}).json()
    loaded = made.models.text.take()
    ours = hw.explain(loaded.model, TEXT, tokenizer=loaded.reader, method="lrp")
    assert found["rows"][0]["relevance"] == pytest.approx(ours.relevance.tolist(), rel=1e-5, abs=1e-6)
    assert found["score"] == pytest.approx(ours.score)
    book = found["rows"][0]["ledger"]
    folded = sum(layer["amount"] for part in ("biases", "constants") for layer in book[part])
    assert book["inputs"] + folded + book["readout"] + book["unaccounted"] == pytest.approx(book["score"], abs=1e-5)
    for layer in book["biases"]:
        assert sum(line["amount"] for line in layer["lines"]) == pytest.approx(layer["amount"], abs=1e-6)


def test_a_long_text_goes_in_windows(client):
    found = client.post("/api/explain", json={"text": "a fine film and " * 100}).json()
    assert found["windows"] > 1
    assert len(found["cells"]) == 402


def test_masking_is_what_the_measures_do(client, made):
    loaded = made.models.text.take()
    found = client.post("/api/predict", json={"text": TEXT, "masked": [2, 5]}).json()
    assert found["text"] == "a [UNK], beautifully [UNK] film"
    with torch.no_grad():
        logits = loaded.model(**loaded.reader(found["text"], return_tensors="pt")).logits[0]
    assert found["after"][1]["logit"] == pytest.approx(float(logits[1]), abs=1e-5)
    assert found["score_after"] == pytest.approx(float(logits[1]), abs=1e-5)
    assert found["score_before"] != found["score_after"]


def test_words_are_masked_in_both_units(client):
    text = "unputdownable film"  # a word of several tokens
    tokens = client.post("/api/explain", json={"text": text, "unit": "token"}).json()["cells"]
    words = client.post("/api/explain", json={"text": text}).json()["cells"]
    assert {c["word"] for c in tokens} == {c["word"] for c in words}
    assert len(tokens) > len(words)


def test_an_audit_goes_from_the_score_to_the_inputs(client):
    found = client.post("/api/audit", json={"text": TEXT}).json()
    for row in found["rows"]:
        assert row["layers"][0]["arrives"] == pytest.approx(row["score"])
        assert row["layers"][-1]["leaves"] == pytest.approx(row["inputs"], abs=2e-3 * abs(row["score"]) + 1e-3)
        for layer, after in zip(row["layers"], row["layers"][1:], strict=False):
            assert layer["leaves"] == pytest.approx(after["arrives"])
            assert layer["arrives"] - layer["sources"] - layer["lost"] == pytest.approx(layer["leaves"])
    gi, lrp = found["rows"]
    assert abs(gi["lost"]) > 0.5 * abs(gi["score"])
    assert abs(lrp["lost"]) < 1e-4


def test_images_molecules_and_generated_text(client):
    image = client.post("/api/image", json={"image": picture(), "methods": ["lrp"]}).json()
    assert len(image["items"]) == 49
    assert image["svg"].startswith("<svg")
    molecule = client.post("/api/molecule", json={"smiles": "CCO", "methods": ["lrp", "gi"]}).json()
    assert molecule["items"] == ["C 0", "C 1", "O 2"]
    said = client.post("/api/generate", json={"prompt": "the capital of France is", "new_tokens": 3}).json()
    assert [len(row["relevance"]) for row in said["rows"]] == [said["prompt"] + i for i in range(3)]
    assert all(row["ledger"]["closed"] for row in said["rows"])


@pytest.mark.parametrize("form", ["html", "svg", "json"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("explain", {"text": TEXT, "methods": ["lrp", "gi"]}),
        ("audit", {"text": TEXT}),
        ("molecule", {"smiles": "CCO"}),
        ("generate", {"prompt": "the capital of", "new_tokens": 2}),
        ("image", {"image": picture()}),
    ],
)
def test_every_view_is_a_file(client, path, body, form):
    found = client.post(f"/api/{path}/report?form={form}", json=body)
    assert found.status_code == 200
    assert found.headers["content-disposition"].startswith("attachment")
    assert len(found.content) > 500
    if form == "html":
        assert b"Content-Security-Policy" in found.content
        assert b"http://" not in found.content.replace(b"http://www.w3.org", b"")


def test_palettes_reach_the_files(client):
    body = {"text": TEXT, "methods": ["lrp"]}
    found = client.post("/api/explain/report?palette=green-purple", json=body).text
    assert "116 196 134" in found
    assert "255 107 107" not in found


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("1", (1, 1)),
        ("L", (3, 90)),
        ("LA", (40, 30)),
        ("P", (8, 8)),
        ("RGB", (9, 5)),
        ("RGBA", (2, 2)),
        ("CMYK", (7, 7)),
    ],
)
def test_images_of_every_kind_are_taken(client, mode, size):
    image = picture(*size, "JPEG" if mode == "CMYK" else "PNG", mode)
    assert client.post("/api/image", json={"image": image}).status_code == 200
    assert client.post("/api/image/report?form=png", json={"image": image}).content.startswith(b"\x89PNG")


# what it refuses


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("explain", {"text": "x" * 20_001}, "20000"),
        ("explain", {"text": TEXT, "methods": ["lrp"] * 9}, "8"),
        ("explain", {"text": TEXT, "model": "/etc/passwd"}, "no model called '/etc/passwd' was named at start"),
        ("explain", {"text": TEXT, "path": "/etc/passwd"}, "extra"),
        ("explain", {"text": TEXT, "target": "positive - positive"}, "set against itself"),
        ("explain", {"text": TEXT, "target": "1 - positive"}, "set against itself"),
        ("image/mask", {"image": picture()}, "nothing is masked"),
        ("image/mask", {"image": picture(), "masked": [49]}, "there are 49"),
        ("molecule/mask", {"smiles": "CCO", "masked": [3]}, "there are 3"),
        ("generate/mask", {"prompt": "the capital of", "new_tokens": 1, "masked": [9]}, "cannot be masked"),
        ("explain", {"text": TEXT, "methods": ["lpr"]}, "Did you mean"),
        ("explain", {"text": TEXT, "target": "nobody"}, "no class"),
        ("explain", {"text": "   "}, "empty"),
        ("predict", {"text": TEXT, "masked": [0]}, "cannot be masked"),
        ("image", {"image": "not base64!"}, "base64"),
        ("image", {"image": base64.b64encode(b"GIF89a nothing").decode()}, "cannot be read"),
        ("molecule", {"smiles": "C1CC"}, "SMILES"),
        ("molecule", {"smiles": "C" * 151}, "150"),
        ("generate", {"prompt": "x", "new_tokens": 49}, "48"),
    ],
)
def test_what_is_too_much_or_wrong_is_said(client, path, body, said):
    found = client.post(f"/api/{path}", json=body)
    assert found.status_code in (400, 404, 422)
    assert said in found.text


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("explain", {"text": TEXT, "methods": ["gi"] * 9}, "At most 8 methods are taken at once, and there are 9."),
        ("generate", {"prompt": "x", "new_tokens": 49}, "New tokens must be at most 48, not 49."),
        ("generate", {"prompt": "x", "new_tokens": "many"}, "New tokens must be a whole number, not 'many'."),
        ("generate", {"prompt": ""}, "The prompt must not be empty."),
        ("explain", {"text": "x" * 20_001}, "The text may have at most 20,000 characters."),
        ("explain", {"text": TEXT, "output": "guess"}, "Output must be one of 'logit'"),
        ("explain", {}, "The text is missing."),
        ("explain", {"text": TEXT, "colour": 1}, "The field 'colour' is not known here."),
    ],
)
def test_a_request_that_is_not_as_it_should_be_is_answered_in_a_sentence(client, path, body, said):
    found = client.post(f"/api/{path}", content=json.dumps(body), headers={"content-type": "application/json"})
    assert found.status_code == 422
    message = found.json()["message"]
    assert said in message
    assert message.endswith(".")


def test_an_image_that_unpacks_to_too_much_is_refused_unread(client):
    found = client.post("/api/image", json={"image": picture(6000, 5000)})
    assert found.status_code == 400
    assert "30,000,000" in found.text or "6000 x 5000" in found.text


def test_a_body_that_is_too_large_is_refused(made):
    small = TestClient(create_app(AppState(made.models, Limits(body=1000))), **HERE)
    assert small.post("/api/explain", json={"text": "x" * 2000}).status_code == 413

    def endless() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(100):
            yield b"x" * 100

    assert small.post("/api/explain", content=endless()).status_code in (400, 413)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"])
def test_another_name_for_this_machine_is_refused(made, host):
    client = TestClient(create_app(made), base_url=f"http://{host}")
    assert client.get("/").status_code == 403
    assert client.post("/api/explain", json={"text": TEXT}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:1", "[::1]:8765"])
def test_its_own_names_are_not(made, host):
    assert TestClient(create_app(made), base_url=f"http://{host}").get("/api/about").status_code == 200


def test_pages_of_other_servers_may_not_ask(client):
    asked = {"json": {"text": TEXT}}
    assert client.post("/api/explain", headers={"origin": "https://evil.example"}, **asked).status_code == 403
    assert client.post("/api/explain", headers={"sec-fetch-site": "cross-site"}, **asked).status_code == 403
    assert client.post("/api/explain", headers={"origin": "http://127.0.0.1"}, **asked).status_code == 200
    plain = client.post("/api/explain", content='{"text": "x"}', headers={"content-type": "text/plain"})
    assert plain.status_code == 422  # what a form of another page could send is no request


def test_every_answer_forbids_foreign_scripts(client):
    for path in ("/", "/docs", "/static/main.js", "/api/about", "/nothing", "/api/jobs/12345678"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_files_outside_the_page_are_not_served(client):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
        assert client.get(path).status_code == 404


# the token


def test_another_address_demands_a_token():
    assert token_for("127.0.0.1", None) is None
    assert token_for("::1", None) is None
    assert len(token_for("0.0.0.0", None) or "") > 20
    assert token_for("0.0.0.0", "x" * 16) == "x" * 16
    with pytest.raises(UsageError, match="16"):
        token_for("0.0.0.0", "short")
    assert make_address("0.0.0.0", 80, "abc") == "http://127.0.0.1:80/?token=abc"


def test_without_the_token_nothing_is_answered(made):
    token = "a-token-of-some-length"
    client = TestClient(create_app(made, hosts=None, token=token), base_url="http://box.example")
    for path in ("/", "/api/about", "/static/main.js", "/?token=wrong", "/api/about?token=" + token):
        assert client.get(path).status_code == 401
    assert client.get("/api/about", headers={"authorization": f"Bearer {token}"}).status_code == 200
    came = client.get(f"/?token={token}", follow_redirects=False)
    assert came.status_code == 303
    assert came.headers["location"] == "/"
    assert "HttpOnly" in came.headers["set-cookie"]
    assert client.get("/api/about").status_code == 200  # by the cookie


# the line


def test_the_line_is_bounded_and_in_order():
    pool, go = JobPool(1, 2, 60), threading.Event()
    first = pool.submit(go.wait, "first-one")
    await_that(lambda: pool.place("first-one") == 0)
    second, third = pool.submit(lambda: 2, "second-one"), pool.submit(lambda: 3, "third-one")
    assert [pool.place(n) for n in ("first-one", "second-one", "third-one", "no-such")] == [0, 1, 2, None]
    with pytest.raises(Busy):
        pool.submit(lambda: 4)
    assert pool.cancel("second-one")
    assert pool.place("third-one") == 1
    with pytest.raises(Cancelled):
        second.done.result(PATIENCE)
    go.set()
    assert first.done.result(PATIENCE) is True
    assert third.done.result(PATIENCE) == 3
    pool.close()


def test_work_that_fails_leaves_its_worker():
    pool = JobPool(1, 2, 60)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).done.result(PATIENCE)
    assert pool.submit(lambda: 5).done.result(PATIENCE) == 5
    pool.close()


def endless() -> None:
    x = torch.zeros(2)
    while True:
        x = x + 1


def test_work_is_stopped_at_the_next_operation():
    pool = JobPool(1, 2, 60)
    job = pool.submit(endless, "endless-one")
    await_that(lambda: pool.place("endless-one") == 0)
    assert pool.cancel("endless-one")
    with pytest.raises(Cancelled):
        job.done.result(PATIENCE)
    assert pool.submit(lambda: 5).done.result(PATIENCE) == 5
    pool.close()


def test_work_that_takes_too_long_is_stopped():
    pool = JobPool(1, 2, 0.2)
    with pytest.raises(OutOfTime, match=r"0\.2 seconds"):
        pool.submit(endless).done.result(PATIENCE)
    assert pool.submit(lambda: 5).done.result(PATIENCE) == 5
    pool.close()


def test_work_that_does_not_hear_is_given_up(monkeypatch):
    """Some methods compute without torch: attention flow does for minutes."""
    monkeypatch.setattr("headwater.web.pool.GRACE", 0.2)
    begun, ended = threading.Event(), threading.Event()

    def deaf() -> None:
        try:
            begun.set()
            while True:
                sum(range(1000))
        finally:
            ended.set()

    pool = JobPool(1, 4, 60)
    job, after = pool.submit(deaf, "a-deaf-one"), pool.submit(lambda: 5)
    assert begun.wait(PATIENCE)
    assert pool.cancel("a-deaf-one")
    with pytest.raises(Cancelled):
        job.done.result(PATIENCE)
    assert after.done.result(PATIENCE) == 5  # by another worker
    assert ended.wait(PATIENCE)  # and the deaf one's thread has ended, too
    assert pool.running == 0
    pool.close()


def test_a_stop_is_no_refusal_of_a_method(made):
    """`compare` goes on with the next method where one refuses; it must not where the work is to stop."""
    from headwater.web.texts import compare_text

    pool = JobPool(1, 2, 0.3)
    ask = TextAsked(**SLOW)
    with pytest.raises(OutOfTime):
        pool.submit(lambda: compare_text(made.models.text.take(), ask)).done.result(PATIENCE)
    pool.close()


def test_being_interruptible_changes_no_number(made):
    import headwater as hw

    loaded = made.models.text.take()
    for method in ("lrp", "gi", "gae", "lrp-gamma", "attnlrp"):
        plain = hw.explain(loaded.model, TEXT, tokenizer=loaded.reader, method=method)
        with Interruptible(lambda: None):
            again = hw.explain(loaded.model, TEXT, tokenizer=loaded.reader, method=method)
        assert torch.equal(plain.relevance, again.relevance)


def test_a_request_that_goes_away_frees_its_worker(made):
    one = AppState(made.models, Limits(workers=1, seconds=120))
    with serve_in_thread(one) as home:
        with httpx.Client(base_url=home) as client, pytest.raises(httpx.ReadTimeout):
            client.post("/api/explain", json=SLOW, timeout=httpx.Timeout(PATIENCE, read=1.0))
        with httpx.Client(base_url=home) as client:  # the slow one would hold the only worker for longer than that
            assert client.post("/api/explain", json={"text": TEXT}, timeout=PATIENCE).status_code == 200
        assert one.pool.running == 0


def test_a_request_is_cancelled_by_its_name(made):
    one = AppState(made.models, Limits(workers=1, seconds=120))
    with serve_in_thread(one) as home, httpx.Client(base_url=home, timeout=PATIENCE) as client:
        found: list[httpx.Response] = []
        headers = {"X-Headwater-Job": "slow-job-1"}
        slow = threading.Thread(
            target=lambda: found.append(httpx.post(f"{home}api/explain", json=SLOW, headers=headers, timeout=PATIENCE))
        )
        slow.start()
        await_that(lambda: client.get("/api/jobs/slow-job-1").json()["place"] == 0)
        assert client.post("/api/explain", json={"text": TEXT}, headers=headers).status_code == 400  # a name in use
        assert client.delete("/api/jobs/slow-job-1").status_code == 204
        slow.join(PATIENCE)
        assert found[0].status_code == 409
        assert found[0].json()["error"] == "cancelled"
        assert client.delete("/api/jobs/slow-job-1").status_code == 404


@pytest.mark.slow
def test_200_requests_at_once_are_all_answered(made):
    """As many as may wait are computed; the others hear at once that it is busy, while both workers still are."""
    one, go = AppState(made.models, Limits(workers=2, waiting=32, kept=1)), threading.Event()
    for name in ("first-worker", "second-worker"):
        one.pool.submit(go.wait, name)
        await_that(partial(lambda name: one.pool.place(name) == 0, name))

    async def all_at_once(home: str) -> list[httpx.Response]:
        limits, found = httpx.Limits(max_connections=200), []
        async with httpx.AsyncClient(base_url=home, timeout=2 * PATIENCE, limits=limits) as client:
            asked = [client.post("/api/explain", json={"text": f"{TEXT} number {i}"}) for i in range(200)]
            for answer in asyncio.as_completed(asked):
                found.append(await answer)
                if len(found) == 200 - 32:
                    go.set()
        return found

    with serve_in_thread(one) as home:
        found = asyncio.run(all_at_once(home))
        assert [answer.status_code for answer in found] == [429] * 168 + [200] * 32
        assert found[0].json()["error"] == "busy"
        assert found[0].headers["retry-after"] == "1"
        assert httpx.post(f"{home}api/explain", json={"text": TEXT}).status_code == 200  # it lives


# models


def test_models_whose_libraries_are_missing_say_how_to_get_them(monkeypatch):
    monkeypatch.setattr("headwater.web.models.find_spec", lambda name: None)
    found = models_of()
    assert found.image.state == found.molecule.state == "absent"
    assert "headwater[images]" in found.image.hint
    assert "headwater[graphs]" in found.molecule.hint
    with pytest.raises(LoadError, match=r"headwater\[graphs\]"):
        found.molecule.take()


def test_a_model_that_cannot_be_read_leaves_the_others(made, tmp_path):
    broken = models_of(image=str(tmp_path / "none")).image
    client = TestClient(create_app(AppState(Models(made.models.text, broken, made.models.molecule, broken))), **HERE)
    assert client.post("/api/image", json={"image": picture()}).status_code == 503
    await_that(lambda: broken.state != "loading")
    refused = client.post("/api/image", json={"image": picture()})
    assert refused.status_code == 404
    assert "could not be read" in refused.json()["message"]
    assert client.post("/api/explain", json={"text": TEXT}).status_code == 200


def test_an_answer_takes_less_than_300_ms_of_a_core(made):
    """With the bundled model and two methods. In the processor's time, and the best of nine: others use the machine."""
    with serve_in_thread(AppState(made.models)) as home, httpx.Client(base_url=home) as client:
        taken = []
        for i in range(9):
            begun = time.process_time()
            assert (
                client.post("/api/explain", json={"text": f"{TEXT} {i}", "methods": ["lrp", "gi"]}).status_code == 200
            )
            taken.append(time.process_time() - begun)
    assert min(taken) < 0.3


# its own document


ANSWERS = tuple(f"/api/answer{part}" for part in ("", "/sources", "/without", "/report"))
SLOWER = ("/api/generate", "/api/generate/report", "/api/audit", "/api/audit/report", *ANSWERS)


@pytest.mark.slow
def test_schemathesis_finds_no_server_error(made, client):
    from trying import tried

    app = create_app(AppState(made.models), hosts=(*LOOPBACK, "testserver"))
    statuses = tried(app, lambda path: True, lambda path: 6 if path in SLOWER else 15)
    assert len(statuses) > 200
    assert statuses.count(200) > 40  # it was really asked, and not only turned away
    assert {400, 404, 422} <= set(statuses)
    assert 429 not in statuses


def test_static_files_are_in_the_package():
    static = Path(__file__).parents[1] / "src" / "headwater" / "web" / "static"
    assert {"index.html", "app.css", "main.js", "docs.html"} <= {file.name for file in static.iterdir()}
    for file in static.glob("*.js"):
        assert "innerHTML" not in file.read_text(encoding="utf-8"), "text goes in as text"


def test_a_model_that_cannot_be_read_is_said_at_the_start(tmp_path):
    with pytest.raises(LoadError, match="could not be read"):
        AppState(models_of(str(tmp_path / "none"))).warm()


def test_a_language_model_goes_to_its_own_place(made):
    found = Models(
        LazyModel("text", "tiny", lambda: Loaded(talker("llama"), speaker())),
        *(LazyModel(kind, "", None, "none") for kind in ("image", "molecule", "language")),
    ).ready()
    assert found.language.name == "tiny"
    assert found.language.take().generates
    assert found.text.take().classes == ["negative", "positive"]


def test_a_model_is_read_once():
    calls: list[int] = []
    go = threading.Event()

    def read() -> Loaded:
        calls.append(1)
        go.wait(PATIENCE)
        return Loaded(None, None)

    model = LazyModel("text", "x", read)
    for _ in range(5):
        model.begin()
    go.set()
    await_that(lambda: model.state == "ready")
    assert len(calls) == 1


# what it learns of a model


def way_of(found: Any) -> str:
    return found.explanations[0].provenance.way


def test_a_served_model_is_played():
    state = make_state()
    texts = ("a gripping film", "a dull film, and a long one", "not a film at all")
    asked = [TextAsked(text=text) for text in texts]
    jobs = [state.pool.submit(partial(state.text, ask)) for ask in asked]  # two of them at once
    assert [way_of(job.done.result()) for job in jobs] == ["plan"] * 3
    state.close()


def test_what_a_server_learned_goes_when_it_stops():
    before = {thread.ident for thread in threading.enumerate()}
    state = make_state()
    model = weakref.ref(state.models.text.take().model)
    with serve_in_thread(state) as home:
        httpx.post(f"{home}api/explain", json={"text": "a gripping film", "methods": ["lrp"]}).raise_for_status()
        assert model() in run_plans.PLANS
    assert model() not in run_plans.PLANS
    for thread in [thread for thread in threading.enumerate() if thread.ident not in before]:
        if thread.name in ("worker", "watches workers"):
            thread.join(PATIENCE)
            assert not thread.is_alive()
    del state
    end = time.monotonic() + PATIENCE  # the server's own thread may still be leaving its last request
    while model() is not None and time.monotonic() < end:
        gc.collect()
        time.sleep(0.02)
    assert model() is None


def test_what_was_learned_of_a_model_goes_when_another_is_read():
    place = LazyModel("language", "tiny", lambda: Loaded(copy.deepcopy(talker("llama")), speaker()))
    place.load()
    first = place.take()
    for text in ("a", "a good film", "a film"):
        first.session.explain(text, tokenizer=first.reader)
    model = weakref.ref(first.model)
    assert model() in run_plans.PLANS
    place.load()
    assert model() not in run_plans.PLANS
    del first
    gc.collect()
    assert model() is None


def test_half_precision_that_is_asked_for_is_computed_in():
    loaded = Loaded(copy.deepcopy(talker("llama")).bfloat16(), speaker(), "bfloat16")
    assert loaded.session.model is loaded.model
    assert loaded.session.explain("a film", tokenizer=loaded.reader).provenance.dtype == "bfloat16"


@pytest.mark.parametrize("there", [True, False])
def test_a_machine_without_a_browser_is_told_to_use_another(there, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda where: opened.append(where) or there)
    said: list[str] = []
    open_browser("http://127.0.0.1:8765/", said.append)
    assert opened == ["http://127.0.0.1:8765/"]
    assert said == ([] if there else ["no browser was found here: open that address in yours"])
