"""Results on disk, opened by the explorer: through its API and in the browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")
import made_results
import numpy as np
from browsing import Watched, make_state, saved
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
from headwater.web.stores.interface import Query, Sheet
from headwater.web.stores.pairs import pair_names, share_apart
from headwater.web.stores.run_page import PARTS, round_row
from headwater.web.stores.runs import RunStore
from headwater.web.stores.slicing import confusion

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
        ("run-by-gi", "run"),
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


def test_words_are_listed_by_class_and_add_up(client, made):
    first = client.get("/api/datasets/run/words").json()
    assert [(one["name"], one["rows"]) for one in first["targets"]] == [("negative", 3), ("positive", 3)]
    found = client.get("/api/datasets/run/words?target=positive").json()
    assert found["rows"] == 3
    film = next(word for word in found["words"] if word["text"] == "film")
    ours = [w.relevance for e in made[1] if e.target == "positive" for w in e.words() if w.text == "film"]
    assert film["count"] == len(ours) == 2
    assert film["total"] == pytest.approx(sum(ours), abs=1e-5)
    assert film["mean"] == pytest.approx(sum(ours) / 2, abs=1e-5)
    totals = [word["total"] for word in found["words"]]
    assert totals == sorted(totals, reverse=True)
    means = [word["mean"] for word in client.get("/api/datasets/run/words?target=positive&by=mean").json()["words"]]
    assert means == sorted(means, reverse=True)
    assert client.get("/api/datasets/run/words?target=nothing").status_code == 400


def test_words_are_whole_and_punctuation_stands_apart(made):
    words = {one.target: one for one in made[0][1].run.words(least=1)}
    negative = [word.text for word in words["negative"].words]
    assert "doesn't" in negative
    assert not {"doesn", "t", "'"} & {*negative}
    assert [word.text for word in words["positive"].punctuation] == [","]
    assert "," not in [word.text for word in words["positive"].words]


def test_the_lists_of_all_classes_hold_all_relevance_of_the_texts(made):
    lists = made[0][1].run.words(least=1)
    listed = sum(word.total for one in lists for word in (*one.words, *one.punctuation))
    ours = sum(w.relevance for e in made[1] for w in e.words() if w.start < w.end)
    assert listed == pytest.approx(ours, abs=1e-4)


def test_words_of_a_large_run_are_counted_in_its_first_rows(made, monkeypatch):
    monkeypatch.setattr("headwater.web.stores.runs.COUNTED", 5)  # one row into the second shard
    run = made[0][1]
    again = type(run)(run.id, run.name, run.path)
    assert sum(one.rows for one in again.words()) == 5


def test_one_column_is_searched(client):
    everywhere = client.get("/api/datasets/run/rows?find=positive").json()["matched"]
    assert everywhere == 3  # as a label and as a prediction
    assert client.get("/api/datasets/run/rows?find=positive&within=text").json()["matched"] == 0
    assert client.get("/api/datasets/run/rows?find=film&within=text").json()["matched"] == 4
    assert client.get("/api/datasets/run/rows?find=film&within=nothing").status_code == 400


def where(*conditions: list[Any]) -> str:
    return f"where={quote(json.dumps(conditions))}"


def test_a_confusion_matrix_counts_and_its_cells_find_their_rows(client):
    found = client.get("/api/datasets/run/confusion").json()
    assert (found["label"], found["prediction"]) == ("label", "prediction")
    assert sum(map(sum, found["counts"])) == 6
    agree = sum(found["counts"][i][j] for i, j in enumerate(found["same"]))
    assert found["right"] == pytest.approx(agree / 6)
    for i, label in enumerate(found["labels"]):
        for j, said in enumerate(found["predictions"]):
            asked = where(["label", label], ["prediction", said])
            assert client.get(f"/api/datasets/run/rows?{asked}").json()["matched"] == found["counts"][i][j]
    numbers = client.get("/api/datasets/an-evaluation/confusion").json()
    assert (numbers["prediction"], sum(map(sum, numbers["counts"]))) == ("predicted", 6)
    assert client.get("/api/datasets/words-of-film/confusion").status_code == 404


def sheet_of(**columns: list[Any]) -> Sheet:
    return Sheet({name: np.array(values, None if name == "score" else object) for name, values in columns.items()})


def test_labels_that_are_numbers_are_the_models_classes_and_strangers_are_not_judged():
    sheet = sheet_of(label=[0, 1, 1, 0], prediction=["no", "yes", "no", "no"])
    assert confusion(sheet, Query(), None, ["no", "yes"]).right == 0.75
    assert confusion(sheet, Query(), None, []).right is None
    assert confusion(sheet, Query(), None, ["yes", "no"]).right == 0.25
    strangers = sheet_of(label=["a", "b"], prediction=["no", "yes"])
    assert confusion(strangers, Query(), None, ["no", "yes"]).right is None


def test_slices_cover_every_row_once(client):
    for column in ("label", "score", "closed"):
        found = client.get(f"/api/datasets/run/slices?by={column}").json()["slices"]
        assert sum(one["rows"] for one in found) == 6, column
        for one in found:
            assert client.get(f"/api/datasets/run/rows?{where(one['where'])}").json()["matched"] == one["rows"]
    by_label = client.get("/api/datasets/run/slices?by=label").json()["slices"]
    assert [one["name"] for one in by_label] == ["negative", "positive"]
    assert all(one["right"] is not None for one in by_label)


@pytest.mark.parametrize(
    "said", ["nonsense", '[["label"]]', '[["label", {}]]', '[["nothing", "1"]]', '[["text", 0, 1]]']
)
def test_a_wrong_condition_is_refused_in_words(client, said):
    found = client.get(f"/api/datasets/run/rows?where={quote(said)}")
    assert found.status_code == 400
    assert len(found.json()["message"]) > 20


def test_rows_come_with_the_relevance_of_their_words(client, made):
    found = client.get("/api/datasets/run/coloured?row=5&row=0&row=99").json()
    assert [one["row"] for one in found] == [5, 0]
    for one in found:
        ours = made[1][one["row"]].words()
        assert [cell["text"] for cell in one["cells"]] == [word.text for word in ours]
        assert one["relevance"] == pytest.approx([word.relevance for word in ours], abs=1e-5)
        assert one["scale"] == pytest.approx(max(abs(word.relevance) for word in ours), abs=1e-5)


def test_two_runs_stand_side_by_side_where_they_differ_first(client):
    found = client.get("/api/datasets/run/rows?beside=run-by-gi").json()
    names = [column["name"] for column in found["columns"]]
    assert {"score (lrp)", "score (gi)", "prediction (lrp)", "relevance moved"} <= {*names}
    moved = [row[names.index("relevance moved")] for row in found["rows"]]
    assert len(moved) == 6
    assert moved == sorted(moved, reverse=True)
    assert 0 < moved[-1] <= moved[0] <= 1
    assert not any(row[names.index("predictions differ")] for row in found["rows"])  # one model
    alike = client.get("/api/datasets/run/rows?beside=run").json()["rows"]
    assert [row[names.index("relevance moved")] for row in alike] == [0] * 6
    assert client.get("/api/datasets/run/rows?beside=an-evaluation").status_code == 400


def test_relevance_that_moved_is_a_share():
    a, b = np.array([1.0, 1.0]), np.array([2.0, 2.0])
    assert share_apart(a, b) == 0
    assert share_apart(np.array([1.0, 0.0]), np.array([0.0, 3.0])) == 1
    assert share_apart(a, -b) == 1
    assert share_apart(np.array([1.0, 0.0]), a) == 0.5


def test_a_text_column_of_long_texts_is_sorted_in_little_memory():
    import tracemalloc

    sheet = Sheet({"text": np.array(["b" * 100_000, *["a"] * 2000], object)})
    tracemalloc.start()
    assert sheet.find(Query(sort="text", down=True, count=1)).rows[0][0].startswith("b")
    assert tracemalloc.get_traced_memory()[1] < 2**22  # as wide as its longest text it would take 800 MB
    tracemalloc.stop()


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


def test_the_view_is_walked(home: str, window: Any, tmp_path: Path) -> None:
    found = window(home, viewport={"width": 1280, "height": 900}, accept_downloads=True)
    walk(found.page, home, tmp_path)


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
    page.get_by_label("Words for the class").select_option("positive")
    page.locator("#panel-results", has_text="over the 3 rows").wait_for()  # the table before had words, too
    page.locator(".numbers", has_text="film").first.wait_for()
    shot(page, "results-words")
    page.locator('[data-part="rows"]').click()
    page.locator(".rows-table .row-text .w.add").first.wait_for()
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

    page.locator('[data-part="slices"]').click()
    page.get_by_role("button", name=re.compile("^[1-9] rows?: label negative, prediction negative")).wait_for()
    shot(page, "results-slices")
    assert serious(page) == []

    page.get_by_label("Open a result").select_option(label="words of film (bias audit)")
    page.frame_locator("iframe.framed").locator("h1").wait_for()
    shot(page, "results-bias")


@pytest.mark.slow
def test_rows_that_cannot_be_shown_say_why_and_the_row_that_was_opened_last_stays(home: str, window: Any) -> None:
    found = window(home, viewport={"width": 1280, "height": 900})
    page = found.page
    page.goto(f"{home}#tab=results&result=run&part=rows&sort=nothing")
    page.locator("#panel-results .status.failed", has_text="nothing").wait_for()
    found.trouble.clear()  # the refused request

    page.goto(f"{home}#tab=results&result=run&part=rows")
    held: list[Any] = []
    page.route(re.compile("/rows/0$"), lambda route: held.append(route))
    page.get_by_label("Open row 0", exact=True).click()
    page.get_by_label("Open row 1", exact=True).click()
    page.locator(".opened h3", has_text="Row 1").wait_for()
    with page.expect_response(re.compile("/rows/0$")):
        held[0].continue_()
    page.wait_for_timeout(100)
    assert page.locator(".opened h3").inner_text() == "Row 1"


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
        (390, "dark"),
    ],
)
def test_cells_of_the_matrix_filter_and_two_runs_stand_beside_each_other(home, window, width, scheme):
    found = window(home, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = found.page
    page.goto(f"{home}#tab=results&result=run&part=slices")
    cell = page.get_by_role("button", name=re.compile("^[1-9] rows?: label negative, prediction negative"))
    cell.wait_for()
    shot(page, f"results-slices-{width}-{scheme}")
    for row in page.locator(".slices-table tbody tr").all():
        score, *parts = [Decimal(cell.replace("−", "-")) for cell in row.locator("td").all_inner_texts()[2:]]
        assert sum(parts) == score
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    count = int(cell.inner_text())
    cell.click()
    page.wait_for_function(f"() => document.querySelectorAll('.rows-table tbody tr').length === {count}")
    assert page.locator(".conditions .chip").count() == 2
    page.locator(".conditions .chip").first.click()
    page.locator(".conditions .chip").first.click()
    page.wait_for_function("() => document.querySelectorAll('.rows-table tbody tr').length === 6")
    page.get_by_label("side by side with").select_option("run-by-gi")
    page.wait_for_function("() => document.querySelectorAll('.rows-table .row-text').length === 12")
    assert page.locator(".rows-table tr td.text small").first.inner_text() == "lrp"
    page.get_by_label("Open row 0", exact=True).click()
    page.locator(".opened .ledger").nth(1).wait_for()
    shot(page, f"results-beside-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []


def test_a_late_answer_of_a_part_that_was_left_draws_nothing_on_the_next(home, chrome):
    page = chrome.new_page()
    page.set_default_timeout(60_000)
    held: list[Any] = []
    page.route("**/words?**", lambda route: held.append(route))  # playwright notes something on a function
    with page.expect_request("**/words?**"):
        page.goto(f"{home}#tab=results&result=run&part=words")
    page.locator('[data-part="rows"]').click()
    page.locator(".rows-table .row-text .w").first.wait_for()
    with page.expect_response("**/words?**") as late:
        held[0].continue_()
    late.value.finished()
    page.evaluate("() => new Promise((done) => setTimeout(done, 100))")  # for what the page makes of it
    assert page.locator(".rows-table").is_visible()
    assert page.get_by_label("Words for the class").count() == 0
    page.close()


APART = {"score": 2.0008, "inputs": 1.0004, "biases": 1.0004, "unaccounted": 0.0}  # one by one: 1.000 + 1.000


def test_the_parts_of_a_row_add_up_to_its_score_as_they_are_shown(home, chrome):
    """On a saved page with three places, in the explorer with two: here by numbers that rounding alone would part."""
    row = round_row({"row_id": 0, **APART, "text": "a film"})
    assert round(row["inputs"] + row["biases"] + row["unaccounted"], 3) == 2.001
    assert row["text"] == "a film"
    assert round_row({**APART, "inputs": None}) == {**APART, "inputs": None}
    scores = [{**APART, "score": 2.008, "inputs": 1.004, "biases": 1.004}, {"score": 3.0, "inputs": 1.0, "biases": 1.0}]
    page = chrome.new_page()
    page.goto(home)
    for given, wanted in zip(scores, (["+1.00", "+1.01"], ["+1.00", "+1.00"]), strict=True):  # what is apart stays so
        found = page.evaluate(
            "([names, row]) => import('/static/sums.js').then((m) => [...m.partsOf(names, row).values()])",
            [list(given), list(given.values())],
        )
        assert sorted(set(found) - {"0.00"}) == sorted(set(wanted))
    page.close()


@pytest.mark.parametrize(
    ("models", "names"),
    [(("a/small", "a/large"), ("a/small", "a/large")), (("a/small", "/models/of/mine/0"), ("one run", "another"))],
)
def test_two_runs_are_told_apart_by_names_that_can_be_read(models, names):
    """Of two methods by these, of two models by their names on the hub; a path would push the columns off the page."""
    runs = [
        SimpleNamespace(name=name, id=name, run=SimpleNamespace(method="lrp", provenance=SimpleNamespace(model=model)))
        for name, model in zip(("one run", "another"), models, strict=True)
    ]
    assert pair_names(*runs) == names
    runs[1].run.method = "gi"
    assert pair_names(*runs) == ("lrp", "gi")


def test_a_run_shows_every_part_of_its_scores_that_is_not_zero_everywhere(made):
    (run,) = (store for store in made[0] if store.id == "run")
    columns = run.sheet().columns
    parts = [np.asarray(columns[name], float) for name in PARTS if name in columns]
    assert np.allclose(sum(parts), columns["score"].astype(float), atol=1e-6)
    assert "held" not in columns
    assert np.asarray(columns["biases"], float).any()


HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest.mark.slow
def test_hostile_names_and_values_of_columns_are_text(ready, chrome, tmp_path):
    import jobs_here

    columns = {
        "text": [f"a good film {HOSTILE}"] * 3,
        "label": [HOSTILE, "positive", "negative"],
        f"a {HOSTILE}": ["x"] * 3,
    }
    jobs_here.made(tmp_path / "run", columns)
    jobs_here.made(tmp_path / "<b>run<b>", columns, method="gi")
    state = AppState(ready.models, stores=stores_in([tmp_path]))
    with serve_in_thread(state) as home:
        found = Watched(chrome.new_context(), home)
        page = found.page
        for part, ready_when in (("slices", ".confusion .count"), ("words", ".numbers .w"), ("rows", ".row-text .w")):
            page.goto("about:blank")
            page.goto(f"{home}#tab=results&result=run&part={part}&beside=b-run-b")
            page.locator(ready_when).first.wait_for()
            assert page.locator("#panel-results img").count() == 0
            assert "<" in page.locator("#panel-results").inner_text()
        svg = saved(page, page.locator('[data-save="svg"]'), tmp_path).read_text(encoding="utf-8")
        assert "<img" not in svg
        html = saved(page, page.locator('[data-save="html"]'), tmp_path).read_text(encoding="utf-8")
        assert "<img" not in html
        assert found.trouble == []
