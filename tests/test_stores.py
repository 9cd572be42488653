"""Results on disk, opened by the explorer: through its API and in the browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")
import made_results
from browsing import Watched, browser, make_state, saved
from fastapi.testclient import TestClient
from jobs_here import retold, rewritten
from test_explorer import serious, shot

from headwater.errors import UsageError
from headwater.results.explanation import Explanation
from headwater.web.app import create_app
from headwater.web.security import LOOPBACK
from headwater.web.server import serve_in_thread
from headwater.web.state import AppState
from headwater.web.stores import Store, stores_in
from headwater.web.stores.interface import Query
from headwater.web.stores.runs import RunStore

Made = tuple[tuple[Store, ...], list[Explanation]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("results")
    made_results.evaluation(folder / "an evaluation")
    explanations = made_results.run(folder / "run")
    made_results.bias(folder / "words of film")
    return stores_in([folder]), explanations


@pytest.fixture(scope="module")
def ready(made: Made) -> AppState:
    return AppState(make_state().models, stores=made[0])


@pytest.fixture(scope="module")
def client(ready: AppState) -> TestClient:
    return TestClient(create_app(ready), base_url="http://127.0.0.1")


def test_every_kind_is_found_below_a_directory(made):
    assert [(s.id, s.kind) for s in made[0]] == [
        ("an-evaluation", "evaluation"),
        ("run", "run"),
        ("words-of-film", "bias"),
    ]


def test_a_directory_without_results_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no results"):
        stores_in([tmp_path])


def test_rows_are_sorted_and_searched(client):
    found = client.get("/api/datasets/run/rows?sort=score&down=true").json()
    names = [column["name"] for column in found["columns"]]
    scores = [row[names.index("score")] for row in found["rows"]]
    assert scores == sorted(scores, reverse=True)
    assert "label" in names  # the user's own column
    found = client.get("/api/datasets/run/rows?find=FILM").json()
    assert (found["matched"], found["total"]) == (4, 6)
    assert client.get("/api/datasets/run/rows?start=4&count=1").json()["rows"][0][names.index("row_id")] == 4
    assert client.get("/api/datasets/run/rows?sort=nothing").status_code == 400
    assert client.get("/api/datasets/none/rows").status_code == 404


def test_numbers_that_are_none_sort_last(made):
    sheet = made[0][0].sheet()
    assert len(sheet.find(Query(sort="lrp auac", down=True)).rows) == 6


def test_a_row_is_the_explanation_that_was_made(client, made):
    for number in (0, 5):  # of both shards
        found = client.get(f"/api/datasets/run/rows/{number}").json()
        e = made[1][number]
        assert found["score"] == pytest.approx(e.score)
        assert found["rows"][0]["relevance"] == pytest.approx([w.relevance for w in e.words()], abs=1e-5)
        assert found["rows"][0]["ledger"]["closed"]
    assert client.get("/api/datasets/run/rows/6").status_code == 404


def test_words_add_up_over_all_rows(client, made):
    found = client.get("/api/datasets/run/words").json()
    assert found["rows"] == 6
    film = next(word for word in found["words"] if word["text"] == "film")
    ours = [w.relevance for e in made[1] for w in e.words() if w.text == "film"]
    assert film["count"] == len(ours) == 3
    assert film["total"] == pytest.approx(sum(ours), abs=1e-5)
    totals = [word["total"] for word in found["words"]]
    assert totals == sorted(totals, reverse=True)


def test_words_of_a_large_run_are_counted_in_its_first_rows(made, monkeypatch):
    monkeypatch.setattr("headwater.web.stores.runs.COUNTED", 5)  # one row into the second shard
    run = made[0][1]
    again = type(run)(run.id, run.name, run.path)
    assert again.words().rows == 5


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> RunStore:
    """A run of its own, to be damaged."""
    shutil.copytree(made[0][1].path, tmp_path / "copy")
    (found,) = stores_in([tmp_path / "copy"])
    return found


@pytest.fixture
def asked(copy: RunStore, ready: AppState) -> Callable[[str], tuple[int, str]]:
    client = TestClient(create_app(AppState(ready.models, stores=[copy])), base_url="http://127.0.0.1")

    def ask(part: str) -> tuple[int, str]:
        found = client.get(f"/api/datasets/copy{part}")
        return found.status_code, found.text

    return ask


def missing(shards: list[Path]) -> None:
    shards[1].unlink()


def no_parquet(shards: list[Path]) -> None:
    shards[1].write_bytes(b"not a parquet file")


def cut_pages(shards: list[Path]) -> None:
    """The footer is whole, so that it is found only when its rows are read."""
    whole = shards[1].read_bytes()
    shards[1].write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])


def of_another_place(shards: list[Path]) -> None:
    shutil.copy(shards[0], shards[1])


def of_another_job(shards: list[Path]) -> None:
    rewritten(shards[1], lambda table: table, job="another")


def without_a_column(shards: list[Path]) -> None:
    rewritten(shards[1], lambda table: table.drop_columns(["word_ids"]))


@pytest.mark.parametrize(
    "harm",
    [missing, no_parquet, cut_pages, of_another_place, of_another_job, without_a_column],
    ids=lambda f: f.__name__,
)
def test_a_damaged_shard_is_named_and_the_others_can_be_read(copy, asked, harm):
    shards = sorted((copy.path / "shards").iterdir())
    harm(shards)
    for part in ("", "/rows", "/words", "/page", "/rows/5"):
        status, said = asked(part)
        assert (status, "shard-000001.parquet is missing or damaged" in said) == (404, True), (part, said)
        assert "makes it again" in said
    assert asked("/rows/3")[0] == 200


def test_a_manifest_that_lacks_something_is_named(copy, asked):
    retold(copy.path, lambda told: told.pop("job"))
    status, said = asked("")
    assert (status, "lacks 'job'" in said) == (404, True)


@pytest.mark.parametrize(("limit", "value"), [("ROWS", 5), ("BYTES", 1)])
def test_a_large_run_is_shown_in_its_first_rows_and_says_so(copy, monkeypatch, limit, value):
    monkeypatch.setattr(f"headwater.web.stores.runs.{limit}", value)
    shown = len(copy.sheet())
    assert shown == {"ROWS": 5, "BYTES": 4}[limit]  # a shard has four rows
    assert ("in this view", f"the first {shown} rows") in copy.facts()
    assert ("rows", "6") in copy.facts()
    assert copy.explanation(5).text == made_results.TEXTS[5][0]  # also of a row that is not listed


def test_a_whole_run_says_nothing_of_first_rows(copy):
    assert "in this view" not in dict(copy.facts())
    assert dict(copy.facts())["score"] == "of the predicted class"


def test_curves_are_the_evaluations(client, made):
    found = client.get("/api/datasets/an-evaluation/curves").json()
    assert [one["name"] for one in found] == ["activation", "pruning"]
    lrp = next(s for s in found[0]["series"] if s["method"] == "lrp")
    assert lrp["area"] == pytest.approx(made[0][0].found["lrp"].auac)
    assert client.get("/api/datasets/run/curves").status_code == 404


@pytest.mark.parametrize("name", ["an-evaluation", "run", "words-of-film"])
def test_a_page_may_do_nothing(client, name):
    found = client.get(f"/api/datasets/{name}/page")
    assert found.status_code == 200
    assert "sandbox" in found.headers["content-security-policy"]
    assert "script-src" not in found.headers["content-security-policy"]
    assert found.text.startswith("<!doctype html>")
    assert "attachment" in client.get(f"/api/datasets/{name}/page?save=true").headers["content-disposition"]


@pytest.mark.parametrize(("name", "part"), [("an-evaluation", "curves"), ("run", "words"), ("run", "rows")])
def test_a_part_is_a_drawing(client, name, part):
    import xml.etree.ElementTree as tree

    found = client.get(f"/api/datasets/{name}/drawing?part={part}")
    assert found.headers["content-type"] == "image/svg+xml"
    assert tree.fromstring(found.text).tag.endswith("svg")
    assert client.get(f"/api/datasets/{name}/drawing?part=everything").status_code == 422


@pytest.mark.slow
@pytest.mark.parametrize("name", ["an-evaluation", "run", "words-of-film"])
def test_schemathesis_finds_no_server_error(made, name):
    from trying import tried

    app = create_app(AppState(make_state().models, stores=made[0]), hosts=(*LOOPBACK, "testserver"))
    statuses = tried(app, lambda path: "{name}" in path, lambda path: 8, name=name)
    assert statuses.count(200) > 15


@pytest.fixture(scope="module")
def home(ready: AppState) -> Iterator[str]:
    with serve_in_thread(ready) as address:
        yield address


def test_the_view_is_walked(home: str, tmp_path: Path) -> None:
    with browser() as chrome:
        context = chrome.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
        found = Watched(context, home)
        walk(found.page, home, tmp_path)
        assert found.trouble == []
        context.close()


def walk(page: Any, home: str, folder: Path) -> None:
    page.goto(f"{home}#tab=results")
    page.locator(".curve, .rows-table").first.wait_for()
    page.locator('[data-part="curves"]').click()
    page.locator(".curve .chart").nth(1).wait_for()
    shot(page, "results-curves")
    assert serious(page) == []
    page.locator('[data-part="page"]').click()
    frame = page.frame_locator("iframe.framed")
    frame.locator("h1").wait_for()
    assert "AUAC" in saved(page, page.locator('[data-save="html"]'), folder).read_text(encoding="utf-8")
    assert "polyline" in saved(page, page.locator('[data-save="svg"]'), folder).read_text(encoding="utf-8")
    assert saved(page, page.locator('[data-save="png"]'), folder).read_bytes().startswith(b"\x89PNG")
    assert "fractions" in saved(page, page.locator('[data-save="json"]'), folder).read_text(encoding="utf-8")

    page.get_by_label("Open a result").select_option(label="run (explained dataset)")
    page.locator('[data-part="words"][aria-pressed=true]').wait_for()
    page.locator(".numbers", has_text="film").first.wait_for()
    shot(page, "results-words")
    page.locator('[data-part="rows"]').click()
    page.get_by_role("button", name="score", exact=True).click()
    page.locator("th[aria-sort=ascending]").wait_for()
    page.get_by_label("Search the rows").fill("jokes")
    page.wait_for_function("() => document.querySelectorAll('.rows-table tbody tr').length === 1")
    page.get_by_label("Open row 1", exact=True).click()
    page.locator(".opened .words").wait_for()
    assert "jokes fall flat" in page.locator(".opened .words").inner_text()
    shot(page, "results-rows")
    assert serious(page) == []
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_function("() => document.querySelectorAll('.rows-table tbody tr').length === 1")

    page.get_by_label("Open a result").select_option(label="words of film (bias audit)")
    page.frame_locator("iframe.framed").locator("h1").wait_for()
    shot(page, "results-bias")
