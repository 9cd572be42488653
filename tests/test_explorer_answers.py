"""The explorer's tab of whole answers in a real browser: pointer, keyboard, phone, what is saved, hostile strings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
import tokenizers
from browsing import Watched, make_state, saved
from hostile import HOSTILE
from making_pdfs import make_pdf
from speaker import speaker, talker
from test_explorer import serious, shot
from test_injection import ARMED, harmless, one_token, opens_harmlessly

import headwater as hw
from headwater.results.answer_report import describe_change
from headwater.viz import answer_page, generation
from headwater.web.models import Loaded
from headwater.web.server import serve_in_thread

pytest.importorskip("fastapi")
DOCUMENTS = [["one", "the capital of France is Paris. it was a good film."], ["", ""], ["two", "she said London!"]]
ANSWER = "Paris is good. it was London."
ASKED = f"tab=answer&question=the+capital+is&given={quote(ANSWER)}&docs={quote(json.dumps(DOCUMENTS))}"
LIT = "all => all.map(one => [one.className, one.style.getPropertyValue('--o')].join(' '))"


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    with serve_in_thread(make_state(language=lambda: Loaded(talker("gpt2"), speaker()))) as address:
        yield address


def answered(page: Any, home: str) -> None:
    page.goto(f"{home}#{ASKED}")
    page.locator(".answer-verdict", has_text="rests").nth(1).wait_for()


def library() -> hw.AnswerExplainer:
    named = {name or f"Document {n}": text for n, (name, text) in enumerate(DOCUMENTS, 1)}
    return hw.explain_answer(talker("gpt2"), "the capital is", tokenizer=speaker(), documents=named, answer=ANSWER)


def test_pointing_at_a_sentence_lights_its_sources_with_lines_to_them(watched, home):
    page = watched.page
    answered(page, home)
    assert page.locator(".answer-document h3").all_inner_texts() == ["one", "Document 2", "two"]
    assert page.locator(".answer-document", has_text="Document 2").locator("p").inner_text() == "empty"
    sources, lines = page.locator(".source"), page.locator(".answer-lines path")
    first, drawn = sources.evaluate_all(LIT), lines.evaluate_all("all => all.map(one => one.getAttribute('d'))")
    page.locator(".answer-sentence").nth(1).hover()
    assert sources.evaluate_all(LIT) != first
    assert lines.evaluate_all("all => all.map(one => one.getAttribute('d'))") != drawn
    page.locator(".brand").hover()  # what is kept comes back
    assert sources.evaluate_all(LIT) == first
    found = library().sentence(0)
    own = [one.relevance for one in found.by_sentence() if one.document is not None]
    largest = max(map(abs, own))
    assert [("add" in kind.split(), float(kind.split()[-1])) for kind in first] == [
        (value > 0, pytest.approx(abs(value) / largest, abs=2e-3)) for value in own
    ]
    crossed = """path => { const foot = path.getPointAtLength(0).y + path.ownerSVGElement.getBoundingClientRect().top;
      const half = parseFloat(path.getAttribute('stroke-width')) / 2;
      return [...document.querySelectorAll('.source')].flatMap(one => [...one.getClientRects()])
        .filter(box => box.bottom > foot - half + 0.5 && box.top < foot + half - 0.5).length; }"""
    assert {line.evaluate(crossed) for line in lines.all()} == {0}  # it would look like a mark of theirs
    total = sum(value for value in own if value > 0)
    assert lines.count() == sum(value > 0.05 * total for value in own) > 0
    shot(page, "answer")


def test_the_verdict_is_the_librarys(watched, home):
    page = watched.page
    answered(page, home)
    report = library().report()
    for number, said in enumerate(page.locator(".answer-verdict").all_inner_texts()):
        assert said == "".join(part.text for part in report.verdict(number)) + "."
    rows = page.locator(".answer-sources tbody tr")
    assert rows.count() == len(report.citations[0])
    table = page.locator("table", has_text="Whose words gave what").locator("td").all_inner_texts()
    assert sum(float(one.replace("−", "-")) for one in table) == pytest.approx(report.spans[0].ledger.inputs, abs=0.03)


def test_a_source_that_is_clicked_is_left_out_and_the_probability_moves(watched, home):
    page = watched.page
    answered(page, home)
    page.locator(".source", has_text="London").click()
    page.locator(".test h3").wait_for()
    left = library().without(2, 0)
    assert "Sentence 1 of the answer without two, sentence 1:" in page.locator(".test .found").inner_text()
    assert page.locator(".source.masked").all_inner_texts() == ["she said London!"]
    assert page.locator(".test .change").inner_text() == describe_change(
        left.sentences_before[0], left.sentences_after[0]
    )
    page.locator(".answer-sentence").nth(1).click()
    assert page.locator(".test .change").inner_text() == describe_change(
        left.sentences_before[1], left.sentences_after[1]
    )
    shot(page, "answer-left-out")
    page.get_by_role("button", name="Put all sources back").click()
    assert page.locator(".source.masked").count() == 0
    assert page.locator(".test").last.inner_text() == ""


def test_keyboard_alone_asks_points_and_leaves_out(watched, home):
    page = watched.page
    answered(page, home)
    focused = "document.activeElement"
    page.locator("#question").focus()
    page.keyboard.press("Control+Enter")
    page.locator(".answer-verdict", has_text="rests").first.wait_for()

    def reach(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate(f"{focused}.classList.contains('{name}')"):
                return
        raise AssertionError(f"Tab never comes to {name}")

    reach("source")
    first = page.evaluate(f"{focused}.textContent")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{focused}.textContent") != first
    page.keyboard.press("Enter")
    page.locator(".test h3").wait_for()
    assert page.evaluate(f"{focused}.getAttribute('aria-pressed')") == "true"
    before = page.locator(".source").evaluate_all(LIT)
    reach("answer-sentence")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(f"{focused}.dataset.n") == "1"
    assert page.locator(".source").evaluate_all(LIT) != before
    assert "sat=1" in page.url


@pytest.mark.slow
def test_a_link_holds_question_documents_and_answer(watched, chrome, home):
    page = watched.page
    page.goto(f"{home}#tab=answer")
    page.get_by_label("Ask about these documents").fill("the capital is")
    for number, text in enumerate(["Paris is good.", "London."], 1):
        page.get_by_label(f"Text of document {number}").fill(text)
    page.get_by_label("Name of document 2").fill("tower")
    page.locator("#add-document").click()
    page.get_by_label("Text of document 3").fill("she said it.")
    page.get_by_label("Take document 1 away").click()
    page.locator("#given-answer").fill("it was good.")
    page.locator("#answer").click()
    page.locator(".answer-verdict", has_text="rests").wait_for()
    other = Watched(chrome.new_context(), home)
    other.page.goto(page.url)
    other.page.locator(".answer-verdict", has_text="rests").wait_for()
    assert other.page.locator(".answer-document").all_inner_texts() == [
        "tower\n\nLondon.",
        "Document 2\n\nshe said it.",
    ]
    assert other.trouble == []
    other.page.context.close()


def test_files_of_text_pages_and_pdf_become_documents_and_others_are_refused(watched, home, tmp_path):
    pytest.importorskip("pypdf")
    page = watched.page
    answered(page, home)
    files = {
        "notes.txt": b"a good film.",
        "not.txt": b"\x00\x01",
        "page.html": b"<style>no</style><p>she said London!<p hidden>no<p>&lt;script>alert(2)&lt;/script>",
        "paper.pdf": make_pdf("the capital of France\nis Paris."),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    page.locator("#panel-answer input[type=file]").set_input_files([tmp_path / name for name in files])
    page.locator("#panel-answer .status", has_text="not.txt is no text").wait_for()
    shown = [page.get_by_label(f"Name of document {n}").input_value() for n in (4, 5, 6)]
    assert shown == ["notes.txt", "page.html", "paper.pdf"]
    assert page.get_by_label("Text of document 6").input_value() == "the capital of France is Paris."
    watched.trouble.clear()  # the refused file is an error in the console, as it should be
    for _ in DOCUMENTS:  # the model is a small one
        page.get_by_label("Take document 1 away").click()
    page.locator("#answer").click()
    page.locator(".answer-document h3", has_text="paper.pdf").wait_for()
    page.locator(".answer-verdict", has_text="rests").nth(1).wait_for()
    assert page.locator(".answer-document").last.locator(".source").all_inner_texts() == [
        "the capital of France is Paris."
    ]
    text = page.get_by_label("Text of document 2").input_value()
    assert text == "she said London!\n<script>alert(2)</script>"
    assert page.locator("#panel-answer img, #panel-answer script").count() == 0
    shot(page, "answer-files")


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_said_and_nothing_stale_stays(watched, home):
    page = watched.page
    answered(page, home)
    page.locator("#question").fill(" ")
    page.locator("#answer").click()
    page.locator("#panel-answer .missing", has_text="There is no question").wait_for()
    assert page.locator(".answer-sentence").count() == 0
    assert page.locator(".answer-lines path").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_wide_and_on_a_phone_nothing_scrolls_sideways_and_axe_finds_no_fault(window, home, scheme, width):
    found = window(home, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = found.page
    answered(page, home)
    page.locator(".source").first.click()
    page.locator(".test h3").wait_for()
    shot(page, f"answer-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = [page.locator(one).first.bounding_box() for one in (".answer-sentence", ".answer-document")]
    for box in boxes:
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert (boxes[0]["y"] < boxes[1]["y"]) == (width == 390)  # a phone shows the answer first
    assert page.locator(".answer-lines").is_visible() == (width == 1280)
    assert serious(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1100, 390])
def test_the_saved_page_works_alone_by_pointer_and_keyboard(watched, window, home, tmp_path, width):
    page = watched.page
    answered(page, home)
    page.locator(".source", has_text="London").click()
    page.locator(".test h3").wait_for()
    file = saved(page, page.locator("#panel-answer [data-save=html]"), tmp_path)
    numbers = json.loads(saved(page, page.locator("#panel-answer [data-save=json]"), tmp_path).read_text())
    assert numbers["left_out"]["name"] == "two, sentence 1"
    assert [one["text"] for one in numbers["sentences"]] == ["Paris is good.", "it was London."]
    alone = window(viewport={"width": width, "height": 900}, offline=True)
    read = alone.page
    read.goto(file.as_uri())
    assert "Without two, sentence 1" in read.locator("article").inner_text()
    first = read.locator(".s").evaluate_all(LIT)
    assert read.locator(".panel:visible").count() == 1
    assert read.locator(".lines path").count() > 0
    assert read.locator(".lines").is_visible() == (width == 1100)
    read.locator(".o").first.focus()
    read.keyboard.press("ArrowDown")
    assert read.locator(".s").evaluate_all(LIT) != first
    assert read.locator(".panel:visible h3").first.inner_text().strip("“”") == "it was London."
    read.locator(".s").nth(1).focus()
    read.keyboard.press("Enter")
    assert re.match(r"Sentence 2 of the answer without one, sentence 2: .+", read.locator("#left").inner_text())
    assert read.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(read) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_words_without_end_make_no_saved_page_scroll_sideways(window, tmp_path, width):
    model, long = talker("gpt2"), "w" * 400
    found = hw.explain_answer(
        model, "the capital is", tokenizer=speaker(), documents={long: f"{long}. it is.", "": "Paris"}, answer=ANSWER
    )
    report = found.report()
    spans = tuple(replace(span, text=long) for span in report.spans)
    made = found.tokens()
    made = replace(made, pieces=(*(long for _ in made.pieces),), targets=(long,) * len(made))
    pages = [answer_page.page(replace(report, question=long, spans=spans)), generation.page(made)]
    for number, drawn in enumerate(pages):
        file = tmp_path / f"{number}.html"
        file.write_text(drawn, encoding="utf-8")
        page = window(viewport={"width": width, "height": 900}, offline=True).page
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shot(page, f"long-words-{number}-{width}")


def hostile_speaker() -> Loaded:
    """A language model that says nothing but hostile strings, and reads long prompts."""
    model, tokenizer = deepcopy(talker("llama")), one_token()
    model.config.max_position_embeddings = 10_000
    tokenizer.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return Loaded(model, tokenizer)


@pytest.mark.slow
def test_hostile_strings_run_nowhere(chrome, tmp_path):
    """Every string as a document, a name, a question and an answer, on the screen and in the saved page."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.add_init_script(ARMED)
    with serve_in_thread(make_state(language=hostile_speaker)) as home:
        found = Watched(context, home)
        for start in range(0, len(HOSTILE), 13):
            some = [text.replace("\x00", "") for text in HOSTILE[start : start + 13]]
            given = quote(json.dumps([[text, f"{text} the film."] for text in some]))
            asked = f"tab=answer&question={quote(some[0])}&an=3&docs={given}"
            found.page.goto("about:blank")
            found.page.goto(f"{home}#{asked}")
            found.page.locator(".answer-verdict", has_text="rests").first.wait_for()
            found.page.locator(".source").first.click()
            found.page.locator(".test h3").wait_for()
            assert some[-1].strip()[:12] in found.page.locator(".answer-documents").inner_text()
            assert found.page.locator(".answer-sentence").count() > 0
            harmless(found)
            file = saved(found.page, found.page.locator("#panel-answer [data-save=html]"), tmp_path)
            opens_harmlessly(
                context, file, lambda page: (page.locator(".s").first.click(), page.locator(".o").last.hover())
            )
        assert [t for t in found.trouble if not t.startswith("console")] == []
    context.close()
