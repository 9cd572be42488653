"""The explorer in a real browser: drawings for slides, back and forward, messages in words, phones, generated text."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as tree
from pathlib import Path
from typing import Any

import jobs_here
import pytest
from browsing import Watched, make_state, saved
from test_explorer import TEXT, explained, home, rows, serious, shot  # noqa: F401  (fixtures)

from headwater.web.server import serve_in_thread
from headwater.web.state import AppState
from headwater.web.stores import stores_in

pytestmark = pytest.mark.slow

pytest.importorskip("fastapi")
HOSTILE = '<img src=x onerror=alert(1)> & "good" \' film'
PHONE = {"width": 390, "height": 844}


def words_of(drawing: tree.Element) -> list[str]:
    return [text.text or "" for text in drawing.iter("{http://www.w3.org/2000/svg}text")]


def size_of(png: bytes) -> tuple[int, int]:
    found: tuple[int, int] = struct.unpack(">II", png[16:24])
    return found


# drawings for slides


def test_a_drawing_shows_what_the_screen_shows_at_twice_the_size(watched, home, tmp_path):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}&mask=10&methods=gi|lrp")
    page.locator(".test h3").wait_for()
    page.locator('[data-line="/biases"]').click()
    drawing = tree.fromstring(saved(page, page.locator('[data-save="svg"]').first, tmp_path).read_text("utf-8"))
    words = words_of(drawing)
    for method in ("gi", "lrp"):
        assert words.count(method) >= 1
    assert words.count("wonderful") >= 2  # a row for every method
    assert {"negative", "positive", "inputs", "biases", "score", "LEDGER", "PREDICTION"} <= {*words}
    assert not {"PNG", "Save", "Click", "Cancel"} & {*words}  # nothing that can only be clicked
    assert re.search(r"layer 0", " ".join(words))  # what is open on the screen is open here
    width, height = float(drawing.get("width")), float(drawing.get("height"))
    seen = [float(v) for v in drawing.get("viewBox").split()]
    assert (width, height) == pytest.approx((2 * seen[2], 2 * seen[3]))
    png = saved(page, page.locator('[data-save="png"]').first, tmp_path)
    assert size_of(png.read_bytes()) == pytest.approx((width, height), abs=1.5)
    assert page.locator(".slide").count() == 0  # nothing is left behind
    keep_shot(png, "slide")


def keep_shot(png: Path, name: str) -> None:
    from test_explorer import SHOTS

    if SHOTS:
        (Path(SHOTS) / f"{name}.png").write_bytes(png.read_bytes())


def test_numbers_that_are_on_are_in_the_drawing(watched, home, tmp_path):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}&methods=lrp")
    assert "?" not in words_of(drawn(page, tmp_path))  # no help in it
    page.get_by_label("numbers under the words").check()
    page.locator(".numbered .w").first.wait_for()
    numbers = page.locator(".numbered .w").evaluate_all("all => all.map(w => w.dataset.n)")
    assert len(numbers) > 8
    found = words_of(drawn(page, tmp_path))
    assert all(number in found for number in numbers)


def drawn(page: Any, folder: Path) -> tree.Element:
    return tree.fromstring(saved(page, page.locator('[data-save="svg"]').first, folder).read_text("utf-8"))


def test_a_drawings_grounds_are_the_colours_on_the_screen(watched, home, tmp_path):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}&methods=lrp&palette=green-purple")
    shares = page.locator(".method .w").evaluate_all("all => all.map(w => Number(w.style.getPropertyValue('--o')))")
    drawing = tree.fromstring(saved(page, page.locator('[data-save="svg"]').first, tmp_path).read_text("utf-8"))
    boxes = [rect for rect in drawing.iter("{http://www.w3.org/2000/svg}rect") if rect.get("fill-opacity")]
    green = [float(rect.get("fill-opacity")) for rect in boxes if rect.get("fill") == "#74c486"]
    assert max(green) == pytest.approx(1, abs=0.02)  # full colour of what adds most
    assert any(abs(o - max(shares)) < 0.02 for o in green)


def test_a_hostile_text_is_text_in_the_drawing(watched, home, tmp_path):  # noqa: F811
    page = watched.page
    explained(page, home)
    page.get_by_label("Type or paste a text").fill(HOSTILE)
    page.locator(".method .w", has_text="onerror").first.wait_for()
    file = saved(page, page.locator('[data-save="svg"]').first, tmp_path)
    drawing = tree.fromstring(file.read_text("utf-8"))
    assert not [one for one in drawing.iter() if one.tag.endswith(("script", "foreignObject", "img"))]
    assert "onerror" in words_of(drawing)
    page.goto(file.as_uri())
    assert watched.trouble == []


def test_a_page_keeps_bars_probabilities_and_the_test(watched, window, home, tmp_path):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}&mask=10")
    page.locator(".test h3").wait_for()
    shown = page.locator(".classes .share").all_inner_texts()
    file = saved(page, page.locator('[data-save="html"]').first, tmp_path)
    alone = window(offline=True, viewport={"width": 1000, "height": 800})
    alone.page.goto(file.as_uri())
    assert alone.page.locator(".shares .n").all_inner_texts() == shown  # before → after, as on the screen
    assert "Put to the test" in alone.page.locator("main").inner_text()
    bars = alone.page.locator("details[open] .bars .bar")
    assert bars.count() >= 4
    assert bars.first.evaluate("bar => bar.getBoundingClientRect().width") > 10
    shot(alone.page, "report-page")


# back and forward


def test_back_and_forward_walk_the_states(watched, home):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}&methods=gi|lrp")
    page.locator("#methods summary").click()
    page.get_by_label(re.compile("^gi ?Gradient")).uncheck()
    page.wait_for_function("() => document.querySelectorAll('.method').length === 1")
    page.get_by_role("button", name="praise").click()
    page.locator(".method .w", has_text="gripping").first.wait_for()
    page.locator("#tab-results").click()
    page.locator("#panel-results").wait_for()
    page.go_back()
    page.locator("#panel-text").wait_for()
    assert "gripping" in page.get_by_label("Type or paste a text").input_value()
    page.go_back()
    page.locator(".method .w", has_text="wonderful").first.wait_for()
    assert page.get_by_label("Type or paste a text").input_value() == TEXT
    assert rows(page) == ["lrp"]
    page.go_back()
    page.wait_for_function("() => document.querySelectorAll('.method').length === 2")
    page.go_forward()
    page.wait_for_function("() => document.querySelectorAll('.method').length === 1")
    page.go_forward()
    page.locator(".method .w", has_text="gripping").first.wait_for()


def test_a_burst_of_typing_is_one_step(watched, home):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}")
    before = page.evaluate("history.length")
    box = page.get_by_label("Type or paste a text")
    box.fill("a dull film")
    page.locator(".method .w", has_text="dull").first.wait_for()
    box.fill("a dull film indeed")
    page.locator(".method .w", has_text="indeed").first.wait_for()
    assert page.evaluate("history.length") == before + 1
    page.go_back()
    page.locator(".method .w", has_text="wonderful").first.wait_for()


# messages


def test_a_ninth_method_is_refused_in_a_sentence(watched, home):  # noqa: F811
    page = watched.page
    eight = "lrp|gi|attnlrp|cp-lrp|lrp-gamma|rollout|random|saliency"
    page.goto(f"{home}#text={TEXT}")
    page.locator(".method .w").first.wait_for()
    names = page.locator("#methods input").evaluate_all("all => all.map(box => box.value)")
    known = [name for name in eight.split("|") if name in names]
    nine = [*known, *[name for name in names if name not in known]][:9]
    page.goto(f"{home}#text=a+film&methods={'|'.join(nine[:8])}")
    page.locator("#methods summary").click()
    box = page.locator(f'#methods input[value="{nine[8]}"]')
    box.click()
    assert not box.is_checked()
    said = page.locator("#methods [role=alert]").inner_text()
    assert "At most 8 methods" in said
    assert nine[8] in said
    page.goto(f"{home}#text=a+film&methods={'|'.join(nine)}")
    page.locator(".status.failed", has_text="At most 8 methods are taken at once, and there are 9.").wait_for()
    watched.trouble.clear()  # the refused request is an error in the console, as it should be


def test_a_wrong_number_is_refused_in_a_sentence(watched, home):  # noqa: F811
    page = watched.page
    page.goto(f"{home}#tab=generation&prompt=the+capital&n=999")
    page.locator("#panel-generation .status.failed", has_text="a whole number from 1 to 48").wait_for()


def test_a_server_that_went_away_is_said_in_a_sentence(chrome):
    with serve_in_thread(make_state()) as address:
        found = Watched(chrome.new_context(), address)
        explained(found.page, address, f"text={TEXT}")
    found.page.get_by_label("Type or paste a text").fill("another film")
    found.page.locator(".status.failed", has_text="The server does not answer").wait_for()
    found.page.context.close()


def test_a_row_that_cannot_be_opened_says_so_where_one_looks(chrome, tmp_path):
    """On a phone the rows are far below the status of the page."""
    columns = {"text": [f"a good film, part {i}" for i in range(12)]}
    jobs_here.made(tmp_path / "run", columns)
    with serve_in_thread(AppState(make_state().models, stores=stores_in([tmp_path]))) as address:
        found = Watched(chrome.new_context(viewport=PHONE), address)
        page = found.page
        page.goto(f"{address}#tab=results&result=run&part=rows")
        page.locator(".row-text .w").first.wait_for()
        other = chrome.new_page()
        explained(other, address, f"text={TEXT}")
    other.locator("#tab-results").click()  # a view that was not opened before
    other.locator("#panel-results .status.failed", has_text="The server does not answer").wait_for()
    other.close()
    page.get_by_label("Open row 11", exact=True).click()
    said = page.locator("#panel-results .status.failed", has_text="The server does not answer")
    said.wait_for()
    box = said.bounding_box()
    assert -1 <= box["y"] <= PHONE["height"] - box["height"]  # less than a pixel may be cut
    page.context.close()


# the ledger's layers, the tip


def test_layers_are_counted_and_other_modules_are_none(watched, home):  # noqa: F811
    page = watched.page
    explained(page, home, f"text={TEXT}&methods=lrp")
    note = page.locator('.line:has([data-line="/biases"]) small').inner_text()
    assert re.match(r"4 layers and \d other modules?", note)
    said = page.evaluate(
        """async () => { const { counted } = await import('/static/layers.js'); return [
             counted(['model.encoder.layers.0', 'model.encoder.layers.1', 'model.decoder.layers.0', 'lm_head']),
             counted(['albert.embeddings', 'albert.encoder.albert_layer_groups.0', 'albert.pooler', 'classifier']),
             counted(['transformer.h.0', 'transformer.h.1', 'transformer.h.2']),
             counted(['classifier.0', 'classifier.2'])]; }"""
    )
    assert said == [
        "2 encoder layers and 1 decoder layer and 1 other module",
        "1 shared layer and 3 other modules",
        "3 layers",
        "2 other modules",
    ]


@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["wide", "phone"])
def test_the_tip_does_not_cover_the_next_row(chrome, home, size):  # noqa: F811
    context = chrome.new_context(viewport=size)
    found = Watched(context, home)
    explained(found.page, home, f"text={TEXT}&methods=gi|lrp")
    word = found.page.locator(".method").first.locator(".w", has_text="cast")
    word.scroll_into_view_if_needed()
    found.page.mouse.wheel(0, -200)
    word.hover()
    tip, following = found.page.locator("#tip").bounding_box(), found.page.locator(".method").nth(1).bounding_box()
    box = word.bounding_box()
    assert tip["y"] + tip["height"] <= following["y"]
    assert tip["y"] + tip["height"] <= box["y"] or tip["y"] >= box["y"] + box["height"]
    context.close()


# phones


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("tab", ["text", "images", "molecules", "generation", "results"])
def test_a_phone_shows_words_before_settings_and_never_scrolls_sideways(window, home, tab, scheme):  # noqa: F811
    found = window(home, viewport=PHONE, color_scheme=scheme)
    page = found.page
    page.goto(f"{home}#tab={tab}&text={TEXT}&prompt=the+capital+of+France+is&n=4")
    ready = {"text": ".method .w", "generation": "#panel-generation .output .w.can", "results": "#panel-results .note"}
    page.locator(ready.get(tab, f"#panel-{tab} .sheet svg")).first.wait_for(timeout=60_000)
    shot(page, f"phone-{tab}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if tab != "results":
        view = page.locator(f"#panel-{tab}")
        top = {
            name: view.locator(find).first.bounding_box()["y"]
            for name, find in (("input", ".input"), ("words", ".results > .card"), ("settings", ".choices"))
        }
        assert top["input"] < top["words"] < top["settings"]
    tabs = page.locator(".top [role=tab]").evaluate_all(
        "all => all.map(t => { const b = t.getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth; })"
    )
    assert all(tabs)
    tools = page.locator(".tools button").all()
    assert all(tool.bounding_box()["height"] < 44 for tool in tools)  # one line each
    assert serious(page) == []


# generated text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_alternatives_heatmap_and_a_batch_of_prompts(window, home, tmp_path, scheme):  # noqa: F811
    found = window(home, viewport={"width": 1280, "height": 900}, color_scheme=scheme, accept_downloads=True)
    page = found.page
    page.goto(f"{home}#tab=generation&n=4&prompt=the+capital+of+France+is")
    page.locator("#panel-generation .output .w.can").first.wait_for(timeout=60_000)
    chances = page.locator("#panel-generation .chances li")
    assert chances.count() == 5
    shares = [float(text.split()[0]) for text in chances.locator(".share").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)
    assert page.locator("#panel-generation .chances .best").count() == 1  # greedily, it said the likeliest
    lines = page.locator(".matrix .line")
    assert lines.count() == 4
    cells = [line.locator("rect.empty").count() for line in lines.all()]
    assert cells == list(range(cells[0], cells[0] + 4))  # each row sees one token more
    before = page.locator("#panel-generation .output .w[aria-pressed=true]").inner_text()
    lines.nth(2).locator("rect.empty + rect").first.click()
    assert page.locator(".matrix .line").nth(2).get_attribute("class") == "line chosen"
    assert page.locator("#panel-generation .output .w[aria-pressed=true]").inner_text() != before
    keep_shot(saved(page, page.locator('#panel-generation [data-save="png"]').first, tmp_path), f"slide-g-{scheme}")
    ask_batch(page, found)
    shot(page, f"generation-{scheme}")
    assert serious(page) == []


def ask_batch(page: Any, found: Watched) -> None:
    page.locator("#batch summary").first.click()
    page.locator("#prompts").fill(f"the capital of France is\na good film\n{HOSTILE}")
    page.locator("#ask-all").click()
    page.wait_for_function("() => document.querySelectorAll('.batch-table tbody tr').length === 3", timeout=60_000)
    page.wait_for_function("() => !document.querySelector('#batch .status.busy')")
    assert page.locator(".batch-table .w.add, .batch-table .w.take").count() > 6
    page.set_viewport_size(PHONE)
    assert page.locator(".batch-table").evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    shot(page, "batch-on-a-phone")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.locator("#prompts").fill("x\n" * 30)
    page.locator("#ask-all").click()
    assert "At most 24 prompts" in page.locator("#batch .status").inner_text()
    page.get_by_role("button", name="Open: a good film").click()
    page.wait_for_function("() => document.querySelector('#prompt').value === 'a good film'")
