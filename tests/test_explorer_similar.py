"""The explorer's tab of two texts in a real browser: pointer, keyboard, phone, what is saved, hostile strings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
import tokenizers
import transformers as tf
from browsing import Watched, make_state, saved
from hostile import HOSTILE
from test_explorer import serious, shot
from test_injection import ARMED, harmless, one_token, opens_harmlessly
from tiny import tiny, tokenizer

import headwater as hw
from headwater.web.encoders import VectorParts
from headwater.web.models import Loaded
from headwater.web.server import serve_in_thread

pytest.importorskip("fastapi")
A, B = "the film was not good", "a gripping movie , very dull acting"
PASSAGES = ["a gripping movie", "paris is the capital of france", "very dull , bad acting", "john and mary play"]
ASKED = f"tab=similar&ta={quote(A)}&tb={quote(B)}&tr=all"
RANKED = f"tab=similar&tm=rank&tq={quote(A)}&tp={quote(chr(10).join(PASSAGES))}"
PAIRS = "all => all.map(one => one.dataset.pair)"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    made = make_state(sentence=lambda: Loaded(tiny("bert").base_model, tokenizer(), None, VectorParts(limit=40)))
    with serve_in_thread(made) as address:
        yield address


def compared(page: Any, home: str, more: str = "") -> None:
    page.goto(f"{home}#{ASKED}{more}")
    page.locator(".twin-lines path").first.wait_for()


def ranked(page: Any, home: str) -> None:
    page.goto(f"{home}#{RANKED}")
    page.locator(".why-table").wait_for()


def library(first: str = A, second: str = B) -> hw.Similarity:
    return hw.explain_similarity(tiny("bert").base_model, first, second, tokenizer=tokenizer())


def strong(share: float) -> set[str]:
    matrix = library().words().matrix
    return {f"{i},{j}" for i, j in (matrix.abs() > share * matrix.abs().max()).nonzero().tolist()}


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_lines_are_the_strongest_pairs_and_a_word_keeps_its_own(watched, home):
    page = watched.page
    compared(page, home)
    lines = page.locator(".twin-lines path")
    expected = strong(0.05)
    assert set(lines.evaluate_all(PAIRS)) == expected if len(expected) <= 60 else lines.count() == 60
    widths = lines.evaluate_all("all => all.map(one => Number(one.getAttribute('stroke-width')))")
    assert widths == sorted(widths)
    assert widths[-1] == 9
    matrix = library().words().matrix
    for pair, dash in zip(
        lines.evaluate_all(PAIRS),
        lines.evaluate_all("all => all.map(one => one.hasAttribute('stroke-dasharray'))"),
        strict=True,
    ):
        i, j = map(int, pair.split(","))
        assert dash == (float(matrix[i, j]) < 0)  # colour is never the only sign
    shot(page, "similar")
    page.locator(".twin .w", has_text="film").hover()
    assert set(lines.evaluate_all(PAIRS)) == {pair for pair in strong(0.015) if pair.startswith("2,")}
    shot(page, "similar-word")
    page.locator(".brand").hover()
    assert lines.count() == min(60, len(expected))


def test_what_a_word_does_is_a_sum_that_adds_up_as_shown(watched, home):
    page = watched.page
    compared(page, home)
    page.locator(".twin-words").nth(1).locator(".w", has_text="gripping").hover()
    said = page.locator(".twin-said").inner_text()
    *parts, total = map(number, re.findall(r"[+−]?\d+\.\d+", said))
    assert sum(parts) == pytest.approx(total, abs=1e-9)
    assert total == pytest.approx(library().column_words()[2].relevance, abs=1e-3)
    page.locator(".twin-words").nth(1).locator(".w", has_text=",").hover()
    assert page.locator(".twin-said").inner_text().startswith("“,” with")
    book = page.locator(".ledger .verdict").inner_text()
    assert "It adds up: pairs" in book
    *lines, score = map(number, re.findall(r"[+−]?\d+\.\d+(?!e|\d)", book.split(". ")[0].split("up:")[1]))
    assert sum(lines) == pytest.approx(score, abs=1e-9)
    assert score == pytest.approx(library().score, abs=0.006)


def test_a_word_that_is_clicked_is_left_out_and_the_similarity_moves(watched, home):
    page = watched.page
    compared(page, home)
    page.locator(".twin .w", has_text="not").click()
    page.locator(".test h3").wait_for()
    after = library("the film was good").score
    assert (
        f"Without not the cosine is {after:.3f}, not {library().score:.3f}" in page.locator(".test .found").inner_text()
    )
    claim = library().row_words()[4].relevance
    assert f"had given {claim:+.3f} to it".replace("-", "−") in page.locator(".test").inner_text()
    assert page.locator(".twin .masked").all_inner_texts() == ["not"]
    assert "tl=a4" in page.url
    shot(page, "similar-left-out")
    page.get_by_role("button", name="Put all words back").click()
    assert page.locator(".twin .masked").count() == 0
    assert page.locator(".test").first.inner_text() == ""


def test_keyboard_alone_asks_points_and_leaves_out(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=similar")
    page.locator("#first-text").fill(A)
    page.locator("#second-text").fill(B)
    page.keyboard.press("Control+Enter")
    page.locator(".twin-lines path").first.wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.twin .w')"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "film"
    assert all(pair.startswith("2,") for pair in page.locator(".twin-lines path").evaluate_all(PAIRS))
    assert page.locator(".twin-said").inner_text().startswith("film with")
    page.keyboard.press("Enter")
    page.locator(".test h3").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.side") == "b"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")  # a special token is no word of the text
    assert page.locator(".twin .masked").all_inner_texts() == ["film"]


def test_fewer_directions_cost_less_and_say_what_is_cut(watched, home):
    page = watched.page
    compared(page, home)
    assert "All 32 directions: 32 backward passes per text" in page.locator("#cost").inner_text()
    before = page.locator(".twin .w").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    page.locator("#directions").select_option("8")
    page.locator("#cost", has_text="8 of 32 directions").wait_for()
    assert "Single pairs" in page.locator("#cost").inner_text()
    assert page.locator(".twin .w").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))") == before


def test_passages_stand_in_their_order_and_one_above_another_adds_up(watched, home):
    page = watched.page
    ranked(page, home)
    own = hw.rank(tiny("bert").base_model, A, PASSAGES, tokenizer=tokenizer())
    shown = page.locator(".ranked li b").all_inner_texts()
    assert [number(one) for one in shown] == pytest.approx([own.scores[n] for n in own.order], abs=1e-3)
    first = page.locator(".ranked li").first.locator(".w").all_inner_texts()
    assert first == [word.text for word in own.words(0)]
    for above, below in ((0, 1), (1, 3)):
        if (above, below) != (0, 1):
            page.locator("#above").select_option(str(above))
            page.locator("#below").select_option(str(below))
            page.locator(".pair h3", has_text=f"{below + 1}: below").wait_for()
            page.locator(".pair h3", has_text=f"{above + 1}: above").wait_for()
        *parts, total = map(number, page.locator(".why-table td").all_inner_texts())
        assert sum(parts) == pytest.approx(total, abs=1e-9)
        assert total == pytest.approx(own.why(above, below).score, abs=1e-3)
    assert "tw=1%2C3" in page.url
    shot(page, "similar-rank")
    page.locator("[data-why='0']").click()
    page.locator(".pair h3", has_text="1: above").wait_for()
    assert page.locator("#below").input_value() == "1"


@pytest.mark.slow
def test_passages_are_read_from_a_file_and_more_are_shown_when_asked(watched, home, tmp_path):
    page = watched.page
    page.goto(f"{home}#tab=similar&tm=rank")
    (tmp_path / "bad.txt").write_bytes(b"\x00\x01")
    page.locator("#panel-similar input[type=file]").set_input_files(tmp_path / "bad.txt")
    page.locator("#panel-similar .status.failed", has_text="bad.txt is no text").wait_for()
    (tmp_path / "lines.txt").write_text("\n\n".join(PASSAGES * 4))
    page.locator("#panel-similar input[type=file]").set_input_files(tmp_path / "lines.txt")
    page.locator("#panel-similar .status", has_text="lines.txt: 16 passages").last.wait_for()
    page.locator("#rank").click()
    page.locator(".why-table").wait_for()
    assert page.locator(".ranked li").count() == 10
    page.locator("#more-passages").click()
    page.locator(".ranked li").nth(15).wait_for()
    assert not page.locator("#more-passages").is_visible()


@pytest.mark.slow
def test_a_link_holds_texts_and_what_is_left_out(watched, chrome, home):
    page = watched.page
    compared(page, home)
    page.locator(".twin .w", has_text="movie").click()
    page.locator(".test h3").wait_for()
    other = Watched(chrome.new_context(), home)
    other.page.goto(page.url)
    other.page.locator(".test h3").wait_for()
    assert other.page.locator(".twin .masked").all_inner_texts() == ["movie"]
    assert other.page.locator(".test .found").inner_text() == page.locator(".test .found").inner_text()
    other.page.goto("about:blank")
    compared(other.page, home, f"&tl={quote('a0|b99|x1|a4')}")  # what somebody else wrote there may be anything
    other.page.locator(".test h3").wait_for()
    assert other.page.locator(".twin .masked").all_inner_texts() == ["not"]
    assert other.trouble == []
    other.page.context.close()


@pytest.mark.slow
def test_what_is_missing_or_too_long_is_said_and_nothing_stale_stays(watched, home):
    page = watched.page
    compared(page, home)
    page.locator("#second-text").fill("  ")
    page.locator("#compare").click()
    page.locator("#panel-similar .missing", has_text="The second text is empty").first.wait_for()
    assert page.locator(".twin .w").count() == page.locator(".twin-lines path").count() == 0
    watched.trouble.clear()
    page.locator("#second-text").fill("film " * 60)
    page.locator("#compare").click()
    page.locator("#panel-similar .missing", has_text="62 tokens, and this model takes at most 40").first.wait_for()
    page.locator("[data-way=rank]").click()
    page.locator("#passages").fill("\n \n")
    page.locator("#rank").click()
    page.locator("#panel-similar .missing", has_text="There are no passages").last.wait_for()
    page.locator("#passages").fill("a film\n" * 1001)
    page.locator("#rank").click()
    page.locator("#panel-similar .missing", has_text="At most 1,000 passages").last.wait_for()
    watched.trouble[:] = [one for one in watched.trouble if "400" not in one]  # the browser tells of a refusal


def test_without_an_encoder_the_tab_says_what_is_needed(chrome):
    context = chrome.new_context()
    with serve_in_thread(make_state()) as home:
        found = Watched(context, home)
        found.page.goto(f"{home}#tab=similar")
        found.page.locator(".note", has_text="No sentence encoder here yet").wait_for()
        assert "--sentence-model" in found.page.locator("#panel-similar").inner_text()
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_wide_and_on_a_phone_nothing_scrolls_sideways_and_axe_finds_no_fault(window, home, scheme, width):
    found = window(home, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = found.page
    compared(page, home, "&tl=a4")
    page.locator(".test h3").wait_for()
    page.locator(".twin .w", has_text="film").hover()
    shot(page, f"similar-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []
    left, right = (page.locator(".twin-words").nth(n).bounding_box() for n in (0, 1))
    assert left["x"] >= 0
    assert left["x"] + left["width"] < right["x"]  # side by side, on a phone too
    assert right["x"] + right["width"] <= width
    page.locator("[data-way=rank]").click()
    page.goto(f"{home}#{RANKED}")
    page.locator(".why-table").wait_for()
    shot(page, f"similar-rank-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(page) == []


@pytest.mark.slow
def test_what_is_shown_is_saved_as_page_drawing_and_numbers(watched, window, home, tmp_path):
    page = watched.page
    compared(page, home)
    page.locator(".twin .w", has_text="not").click()
    page.locator(".test h3").wait_for()
    page.locator("#compare").focus()
    page.locator(".brand").hover()
    count = page.locator(".twin-lines path").count()
    pair = page.locator("#panel-similar .view").first

    def save(form: str) -> Any:
        return saved(page, pair.locator(f"[data-save={form}]"), tmp_path)

    drawn = ElementTree.fromstring(save("svg").read_text(encoding="utf-8"))
    texts = ["".join(one.itertext()) for one in drawn.iter(f"{SVG}text")]
    assert {"film", "gripping", "Without"} <= set(texts)
    assert len(list(drawn.iter(f"{SVG}path"))) == count
    assert save("png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(save("json").read_text())["left_out"]["name"] == "not"
    file = save("html")
    alone = window(viewport={"width": 390, "height": 900}, offline=True)
    alone.page.goto(file.as_uri())
    assert "Without not the cosine is" in alone.page.locator("article").inner_text()
    assert alone.page.locator("svg line").count() > 0
    assert alone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(alone.page) == []


@pytest.mark.slow
def test_a_ranking_is_saved_as_page_drawing_and_numbers(watched, window, home, tmp_path):
    page = watched.page
    ranked(page, home)
    part = page.locator("#panel-similar .view").last
    drawn = saved(page, part.locator("[data-save=svg]"), tmp_path).read_text(encoding="utf-8")
    texts = ["".join(one.itertext()) for one in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert {"gripping", "difference"} <= set(texts)
    file = saved(page, part.locator("[data-save=html]"), tmp_path)
    alone = window(viewport={"width": 390, "height": 900}, offline=True)
    alone.page.goto(file.as_uri())
    assert alone.page.locator("ol li").count() == len(PASSAGES)
    assert alone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(alone.page) == []


def hostile_encoder() -> Loaded:
    """An encoder whose every word is a hostile string."""
    found = one_token()
    found.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = tf.BertConfig(vocab_size=len(found), max_position_embeddings=600, pad_token_id=0, **sizes)
    return Loaded(tf.BertModel(config).eval(), found, None, VectorParts(guessed=HOSTILE[0]))


@pytest.mark.slow
def test_hostile_strings_run_nowhere(chrome, tmp_path):
    """Every string as a text, a query and a passage, on the screen and in the saved pages."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.add_init_script(ARMED)
    with serve_in_thread(make_state(sentence=hostile_encoder)) as home:
        found = Watched(context, home)
        for start in range(0, len(HOSTILE), 13):
            some = [text.replace("\x00", "").replace("\n", " ") for text in HOSTILE[start : start + 13]]
            some = [text for text in some if text.strip()]
            text = " ".join(some)
            found.page.goto("about:blank")
            found.page.goto(f"{home}#tab=similar&ta={quote(text)}&tb={quote(text)}")
            found.page.locator(".twin-lines path").first.wait_for()
            found.page.locator(".twin .w.can").first.hover()
            found.page.locator(".twin .w.can").first.click()
            found.page.locator(".test h3").wait_for()
            harmless(found)
            files = [saved(found.page, found.page.locator("[data-save=html]:visible"), tmp_path)]
            found.page.goto(f"{home}#tab=similar&tm=rank&tq={quote(text)}&tp={quote(chr(10).join(some))}")
            found.page.locator(".why-table").wait_for()
            harmless(found)
            files.append(saved(found.page, found.page.locator("[data-save=html]:visible"), tmp_path))
            for file in files:
                opens_harmlessly(context, file)
        assert [t for t in found.trouble if not t.startswith("console")] == []
    context.close()
