"""The explorer where one leaves a tab and comes back, takes another model, or the server fails meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from browsing import make_state
from speaker import speaker, talker
from test_explorer import shot
from test_explorer_similar import RANKED, compared, ranked
from tiny import tiny, tokenizer

from headwater.web.encoders import VectorParts
from headwater.web.models import LazyModel, Loaded
from headwater.web.server import serve_in_thread

pytestmark = pytest.mark.slow

pytest.importorskip("fastapi")
DOCUMENTS = [["paris", "the capital of France is Paris. it was a good film."], ["film", "she said London!"]]
ASKED = f"tab=answer&question=the capital is&given=Paris is good. it was London.&docs={quote(json.dumps(DOCUMENTS))}"
BROKEN = "the server fails at this"


def encoder(name: str) -> Any:
    return lambda: Loaded(tiny(name).base_model, tokenizer(), None, VectorParts(limit=40))


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    made = make_state(language=lambda: Loaded(talker("llama"), speaker()), sentence=encoder("bert"))
    others = (
        LazyModel("language", "other", lambda: Loaded(talker("gpt2"), speaker())),
        LazyModel("sentence", "other", encoder("distilbert")),
    )
    made.models = replace(made.models, others=others)
    with serve_in_thread(made) as address:
        yield address


def answered(page: Any, home: str, more: str = "") -> None:
    page.goto(f"{home}#{ASKED}{more}")
    page.locator(".answer-sentence.now").first.wait_for()


def fail(page: Any, path: str) -> None:
    """From now on the server fails at this address."""
    page.route(f"**/api/{path}", lambda route: route.fulfill(status=400, json={"error": "x", "message": BROKEN}))


def expect_one_failure(watched: Any) -> None:
    assert len(watched.trouble) == 1
    assert "400" in watched.trouble.pop()


@pytest.mark.parametrize(
    ("tab", "boxes"),
    [
        ("answer", ["#question", ".document-row textarea", ".document-row input", "#given-answer"]),
        ("generation", ["#prompt"]),
        ("similar", ["#first-text", "#second-text"]),
        ("inside", ["#inside-text"]),
    ],
)
def test_what_was_typed_and_not_asked_is_there_when_one_comes_back(watched, home, tab, boxes):
    page = watched.page
    page.goto(f"{home}#tab={tab}")
    for number, box in enumerate(boxes):
        page.locator(box).first.fill(f"my own words {number}")
    page.locator("#tab-molecules").click()
    page.locator("#panel-molecules").wait_for()
    page.locator(f"#tab-{tab}").click()
    kept = [page.locator(box).first.input_value() for box in boxes]
    assert kept == [f"my own words {number}" for number in range(len(boxes))]


def test_a_language_model_that_is_taken_on_one_tab_is_taken_on_the_other(watched, home):
    page = watched.page
    answered(page, home)
    page.locator("#tab-generation").click()
    page.locator("#panel-generation [data-models]").select_option("other")
    with page.expect_request(lambda request: request.url.endswith("/api/answer")) as sent:
        page.locator("#tab-answer").click()
    assert sent.value.post_data_json["model"] == "other"
    assert page.locator("#panel-answer [data-models]").input_value() == "other"


def test_nothing_that_another_model_found_stays_on_the_screen(watched, home):
    page = watched.page
    ranked(page, home)
    scores = page.locator(".ranked .change")
    before = scores.all_inner_texts()
    page.locator("[data-way=pair]").click()
    page.locator("#panel-similar [data-models]").select_option("other")
    page.locator("[data-way=rank]").click()
    page.wait_for_function("all => document.querySelector('.ranked .change')?.textContent !== all", arg=before[0])
    page.goto("about:blank")
    page.goto(f"{home}#{RANKED}&tmodel=other")
    page.locator(".why-table").wait_for()
    expected = scores.all_inner_texts()
    assert before != expected
    page.locator("#panel-similar [data-models]").select_option("tiny")
    page.wait_for_function("all => document.querySelector('.ranked .change')?.textContent === all", arg=before[0])
    page.go_back()
    page.wait_for_function("all => document.querySelector('.ranked .change')?.textContent === all", arg=expected[0])
    assert page.locator("#panel-similar [data-models]").input_value() == "other"


def test_several_prompts_are_asked_again_of_another_model(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=generation&prompt=the film&prompts=the film%0Ait was")
    rows = page.locator(".batch-table tbody tr")
    rows.nth(1).wait_for()
    before = rows.all_inner_texts()
    page.locator("#panel-generation [data-models]").select_option("other")
    page.wait_for_function(
        """before => { const rows = [...document.querySelectorAll('.batch-table tbody tr')];
        return rows.length === 2 && rows.every((row, i) => row.innerText !== before[i]); }""",
        arg=before,
    )


def test_a_step_back_puts_a_word_back_and_closes_a_head(watched, home):
    page = watched.page
    compared(page, home)
    page.locator("#panel-similar .w.can").first.click()
    page.locator("#panel-similar .test .found").wait_for()
    page.go_back()
    page.wait_for_function("() => !document.querySelector('#panel-similar .masked')")
    page.go_forward()
    page.locator("#panel-similar .masked").wait_for()
    ranked(page, home)
    page.locator("[data-why='1']").click()
    assert page.locator("#above").input_value() == "1"
    page.go_back()
    page.wait_for_function("() => document.querySelector('#above').value === '0'")
    page.goto(f"{home}#tab=inside&text=the film")
    page.locator("#panel-inside .head-grid button, #panel-inside [data-head]").first.click()
    page.locator(".head-card h2").wait_for()
    page.go_back()
    page.locator(".head-card").wait_for(state="hidden")
    page.go_forward()
    page.locator(".head-card h2").wait_for()


def test_a_link_and_a_step_back_know_which_sources_are_left_out(watched, home):
    page = watched.page
    answered(page, home)
    page.locator(".source").first.click()
    page.locator("#panel-answer .test h3").wait_for()
    page.locator(".source").nth(2).click()
    assert page.locator(".source.masked").count() == 2
    link = page.url
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('.source.masked').length === 1")
    page.goto("about:blank")
    page.goto(f"{link}|7,7|x")
    page.locator("#panel-answer .test h3").wait_for()
    said = page.locator("#panel-answer .test .found").inner_text()
    assert said.startswith("Sentence 1 of the answer without paris, sentence 1 and film, sentence 1: ")
    assert page.locator(".source.masked").count() == 2
    page.locator("#answer").click()  # asked anew, with all of them
    page.wait_for_function("() => document.querySelectorAll('.source.masked').length === 0")
    assert "al=" not in page.url


def test_an_answer_whose_sources_cannot_be_read_says_so(watched, home):
    page = watched.page
    fail(page, "answer/sources")
    page.goto(f"{home}#{ASKED}")
    page.locator(".answer-verdict", has_text="could not be found out").first.wait_for()
    assert BROKEN in page.locator("#panel-answer .status").inner_text()
    expect_one_failure(watched)
    fail(page, "answer/without")
    page.locator(".source").first.click()
    tested = page.locator("#panel-answer .test")
    tested.get_by_text("could not read the answer again").wait_for()
    shot(page, "answer-failed")
    page.locator(".answer-sentence").nth(1).hover()
    assert "could not" in tested.inner_text()
    tested.get_by_role("button", name="Put all sources back").click()
    assert page.locator(".source.masked").count() == 0
    assert tested.inner_text() == ""
    expect_one_failure(watched)


@pytest.mark.parametrize("at", ["-1", "1.5", "9", "x"])
def test_a_link_to_a_sentence_that_is_not_there_shows_one_that_is(watched, home, at):
    page = watched.page
    answered(page, home, f"&sat={at}")
    assert page.locator(".answer-sentence.now").count() == 1
    page.get_by_text("Whose words gave what").wait_for()


@pytest.mark.parametrize("name", ["__proto__", "constructor", "nowhere"])
def test_a_link_to_a_tab_that_is_not_there_shows_the_first(watched, home, name):
    page = watched.page
    page.goto(f"{home}#tab={name}")
    page.locator(".method .w").first.wait_for()
    assert page.locator("#tab-text").get_attribute("aria-selected") == "true"


def test_documents_that_are_too_long_together_are_refused_before_they_are_sent(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=answer")
    page.locator("#add-document").click()
    for box in page.locator(".document-row textarea").all():
        box.fill("ü" * 15_000)
    page.locator("#answer").click()
    said = page.locator("#panel-answer .status").inner_text()
    assert "may have 40,000 characters, and these have 45,000" in said
    assert "docs" not in page.url
