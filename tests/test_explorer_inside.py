"""The explorer's tab of a model's parts in a real browser: pointer, keyboard, phone, what is saved, hostile strings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")
from browsing import Watched, make_state, saved
from hostile import HOSTILE
from jobs_here import made
from speaker import speaker, talker
from test_explorer import serious, shot
from test_injection import ARMED, harmless, opens_harmlessly

import headwater as hw
from headwater.web.models import Loaded
from headwater.web.server import serve_in_thread
from headwater.web.stores import stores_in

TEXT = "the film is not good, but never boring"
ASKED = f"tab=inside&text={quote(TEXT)}"
FOCUSED = "document.activeElement"
ORDER = (".heads-card", ".head-card", ".off-card", ".cut", ".layers", ".circuit")


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    made(folder / "out", {"text": [TEXT, "a boring film", HOSTILE[0]]}, inside=["heads", "neurons"])
    language = lambda: Loaded(talker("llama"), speaker())  # noqa: E731
    with serve_in_thread(make_state(language=language, stores=stores_in([folder]))) as address:
        yield address


def looked(page: Any, home: str, more: str = "") -> None:
    page.goto(f"{home}#{ASKED}{more}")
    page.locator("button.head").first.wait_for()


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def library() -> hw.Inside:
    model, tokenizer = hw.load("headwater/sentiment")
    return hw.explain(model, TEXT, tokenizer=tokenizer, inside=["heads", "neurons", "layers"]).inside


def test_the_grid_is_the_librarys_and_a_cut_adds_up(watched, home):
    page = watched.page
    looked(page, home)
    own = library()
    shown = [number(text) for text in page.locator("button.head").all_inner_texts()]
    assert shown == pytest.approx(own.heads.flatten().tolist(), abs=0.006)
    kinds = page.locator("button.head").evaluate_all("all => all.map(one => one.classList.contains('add'))")
    assert kinds == (own.heads.flatten() > 0).tolist()
    assert "The cut adds up to the score" in page.locator(".cut").inner_text()
    amounts = [number(text) for text in page.locator(".cut td").all_inner_texts()]
    assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=0.021)
    assert page.locator(".neurons tbody th").first.inner_text() == own.top(1, "neurons")[0].name
    assert page.locator(".layer").count() == 4
    shot(page, "inside")


def test_a_head_opens_with_attention_beside_relevance_and_a_word_has_its_own_lines(watched, home):
    page = watched.page
    looked(page, home)
    page.locator("button.head[data-at='1,0']").click()
    page.locator(".pair-lines").nth(1).wait_for()
    assert page.locator(".head-card h2").inner_text().lower() == "layer 1 head 0"
    assert page.locator(".pairs figcaption").all_inner_texts() == ["Attention", "Relevance"]
    assert page.locator(".head-card .head-line").count() == 3
    everything = page.locator(".pair-lines").first.locator("path").count()
    page.locator(".words.pick .w", has_text="boring").click()
    assert 0 < page.locator(".pair-lines").first.locator("path").count() < everything
    assert page.locator(".head-card .hint").nth(1).inner_text().startswith("boring attends most to ")
    assert "head=1%2C0" in page.url
    assert "layer 1 heads" in page.locator(".cut h3").inner_text()
    shot(page, "inside-head")
    page.reload()
    page.locator(".pair-lines").first.wait_for()  # a link holds the head


def test_what_is_switched_off_moves_the_prediction_as_the_library_says(watched, home):
    page = watched.page
    looked(page, home, "&head=1,0")
    page.locator(".head-card .off").click()
    page.locator(".moved .found").wait_for()
    model, tokenizer = hw.load("headwater/sentiment")
    expected = hw.patch(model, TEXT, "layer 1 head 0", with_="zeros", tokenizer=tokenizer)
    said = page.locator(".moved .change").first.inner_text()
    assert [number(part) for part in said.split(" → ")] == pytest.approx([expected.score, expected.patched], abs=0.006)
    assert "replaced by zeros" in page.locator(".moved").inner_text()
    assert page.locator("button.head.masked").count() == 1
    page.locator("#replaced-by").select_option("mean")
    page.locator(".moved", has_text="replaced by their mean").wait_for()
    page.locator(".neurons .off").first.click()
    page.locator(".moved .found", has_text="neuron").wait_for()
    page.get_by_role("button", name="Switch all on").click()
    page.locator(".moved", has_text="Nothing.").wait_for()
    assert page.locator("button.head.masked").count() == 0
    assert page.locator(".off[aria-pressed=true]").count() == 0


def test_a_language_model_is_chosen_opened_and_its_next_token_moves(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=inside")
    page.locator("button.head").first.wait_for()
    page.locator("#panel-inside .which select").select_option("tiny")
    page.locator(".heads-card .says", has_text="Next token").wait_for()
    assert page.locator("#inside-text").input_value() == "The keys to the cabinet"  # an example of this kind
    assert page.locator("button.head").count() == 8
    page.locator("button.head[data-at='1,2']").click()
    page.locator(".pair-lines").nth(1).wait_for()
    page.locator(".head-card .off").click()
    page.locator(".moved .found").wait_for()
    expected = hw.patch(
        talker("llama"), "The keys to the cabinet", "layer 1 head 2", tokenizer=speaker(), output="probability"
    )
    before, after = page.locator(".moved .change").nth(1).inner_text().split(" → ")
    assert float(before.rstrip(" %")) == pytest.approx(100 * expected.score, abs=0.06)
    assert float(after.rstrip(" %")) == pytest.approx(100 * expected.patched, abs=0.06)
    page.reload()
    page.locator(".heads-card .says", has_text="Next token").wait_for()  # a link holds the model


def test_on_a_phone_the_grid_comes_before_what_is_made_of_it(chrome, home):
    context = chrome.new_context(viewport={"width": 390, "height": 844})
    page = Watched(context, home).page
    looked(page, home, "&head=1,0")
    page.locator(".pair-lines").first.wait_for()
    places = [page.locator(f"#panel-inside {name}").first.bounding_box()["y"] for name in ORDER]
    assert places == sorted(places)
    context.close()


def test_keyboard_alone_walks_the_grid_opens_a_head_and_switches_it_off(watched, home):
    page = watched.page
    looked(page, home)

    def reach(name: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate(f"{FOCUSED}.classList.contains('{name}')"):
                return
        raise AssertionError(f"Tab never comes to {name}")

    page.locator("#inside-text").focus()
    page.keyboard.press("Control+Enter")
    page.locator("button.head").first.wait_for()
    reach("head")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(f"{FOCUSED}.dataset.at") == "1,1"
    page.keyboard.press("Enter")
    page.locator(".pair-lines").first.wait_for()
    assert page.evaluate(f"{FOCUSED}.dataset.at") == "1,1"
    reach("off")
    page.keyboard.press("Enter")
    page.locator(".moved .found", has_text="layer 1 head 1").wait_for()
    reach("can")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate(f"{FOCUSED}.getAttribute('aria-pressed')") == "true"


def test_a_stored_run_is_ranked_with_its_tokens(watched, home):
    page = watched.page
    looked(page, home)
    page.locator(".ranked tbody tr").first.wait_for()
    assert page.locator(".ranked tbody th").first.inner_text().startswith("layer")
    assert page.locator(".ranked tbody tr").first.locator(".w").count() > 0
    page.get_by_label("Parts", exact=True).select_option("heads")
    page.locator(".ranked tbody th", has_text="head").first.wait_for()


def test_the_circuit_opens_node_by_node(watched, home):
    page = watched.page
    looked(page, home)
    page.locator("#trace").click()
    page.locator(".circuit-picture svg").wait_for()
    assert page.locator(".circuit-node h3").inner_text() == "score"
    first = page.locator(".circuit-node .opens").first
    name = first.inner_text()
    first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".circuit-node h3").inner_text() == name
    for table in page.locator(".circuit-node table").all():
        amounts = [number(text) for text in table.locator("td").all_inner_texts()]
        assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=0.02)
    page.locator(".circuit-picture [data-item]").first.click()
    assert page.locator(".circuit-node h3").inner_text() != name
    shot(page, "inside-circuit")


def test_an_empty_text_is_said_and_nothing_stale_stays(watched, home):
    page = watched.page
    looked(page, home)
    page.locator("#inside-text").fill("  ")
    page.locator("#look-inside").click()
    page.locator("#panel-inside .missing", has_text="There is no text").wait_for()
    assert page.locator("button.head").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_wide_and_on_a_phone_nothing_scrolls_sideways_and_axe_finds_no_fault(window, home, scheme, width):
    found = window(home, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = found.page
    looked(page, home, "&head=1,0")
    page.locator(".pair-lines").first.wait_for()
    page.locator(".head-card .off").click()
    page.locator(".moved .found").wait_for()
    page.locator(".ranked").wait_for()
    shot(page, f"inside-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("button.head").last.bounding_box()
    assert box["x"] + box["width"] <= width
    assert serious(page) == []


@pytest.mark.slow
def test_the_saved_page_works_alone(watched, window, home, tmp_path):
    page = watched.page
    looked(page, home, "&head=1,0")
    page.locator(".head-card .off").click()
    page.locator(".moved .found").wait_for()
    file = saved(page, page.locator("#panel-inside [data-save=html]"), tmp_path)
    numbers = json.loads(saved(page, page.locator("#panel-inside [data-save=json]"), tmp_path).read_text())
    assert numbers["patched"]["nodes"] == ["layer 1 head 0"]
    alone = window(viewport={"width": 390, "height": 900}, offline=True)
    alone.page.goto(file.as_uri())
    assert alone.page.locator(".grid td").count() == 24
    assert "layer 1 head 0 replaced by zeros" in alone.page.locator("article").inner_text()
    assert alone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious(alone.page) == []


@pytest.mark.slow
def test_hostile_strings_run_nowhere(chrome, home, tmp_path):
    """As a text, on the screen and in the saved page; one of them is also a token of the stored run."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.add_init_script(ARMED)
    found = Watched(context, home)
    for start in range(0, len(HOSTILE), 20):
        text = " ".join(part.replace("\x00", "") for part in HOSTILE[start : start + 4])
        found.page.goto("about:blank")
        found.page.goto(f"{home}#tab=inside&head=0,0&text={quote(text)}")
        found.page.locator(".words.pick .w").nth(1).click()
        found.page.locator(".neurons .off").first.click()
        found.page.locator(".moved .found").wait_for()
        harmless(found)
        file = saved(found.page, found.page.locator("#panel-inside [data-save=html]"), tmp_path)
        opens_harmlessly(context, file)
    assert [t for t in found.trouble if not t.startswith("console")] == []
    context.close()
