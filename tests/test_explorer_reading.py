"""The explorer, read by a newcomer: no stale result, sums that are right, words explained, verdicts, mask tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import make_state
from speaker import speaker, talker
from test_explorer import TEXT, explained, serious, shot

from headwater.defaults import GRAPH_METHOD, TEXT_METHOD
from headwater.web.models import LazyModel, Loaded, Loading, text_model
from headwater.web.server import serve_in_thread

pytestmark = pytest.mark.slow

pytest.importorskip("fastapi")
STATIC = Path(__file__).parents[1] / "src" / "headwater" / "web" / "static"
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


def other_names() -> Loaded:
    """The bundled model under other names of its classes."""
    found = text_model(None, Loading())
    found.model.config.id2label = {0: "bad", 1: "good"}
    return found


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    state = make_state(language=lambda: Loaded(talker("llama"), speaker()))
    state.models = replace(state.models, others=(LazyModel("text", "another", other_names),))
    with serve_in_thread(state) as address:
        yield address


def panel(page: Any, name: str) -> Any:
    return page.locator(f"#panel-{name}")


def left_over(place: Any) -> list[str]:
    """What a view still shows of a result."""
    shown = place.locator(".classes, .w[data-i], .sheet svg, .ledger .line, .says, .audit")
    return [one for one in shown.all_inner_texts() if one.strip()] if shown.first.is_visible() else []


# nothing stale


def test_an_emptied_text_takes_its_result_off_the_screen(watched, home):
    page = watched.page
    explained(page, home, f"text={TEXT}&audit=1&mask=10")
    page.locator(".audit .chart").wait_for()
    page.get_by_label("Type or paste a text").fill("  ")
    page.get_by_text("There is no text: type one, or choose an example.").wait_for()
    assert left_over(panel(page, "text")) == []
    assert "Nothing to predict" in panel(page, "text").locator(".side").inner_text()
    shot(page, "no-text")
    page.get_by_role("button", name="praise").click()
    page.locator(".method .w").first.wait_for()
    assert not page.get_by_text("There is no text").is_visible()


def test_a_cleared_drawing_a_broken_molecule_and_an_empty_prompt(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=images")
    panel(page, "images").locator(".sheet svg").wait_for(timeout=60_000)
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("There is no image: draw a digit").wait_for()
    assert left_over(panel(page, "images")) == []
    assert "image=" not in page.url
    page.get_by_role("button", name="seven", exact=True).click()
    panel(page, "images").locator(".sheet svg").wait_for()

    pytest.importorskip("rdkit")
    page.locator("#tab-molecules").click()
    panel(page, "molecules").locator(".sheet svg").wait_for(timeout=60_000)
    page.get_by_label("A molecule as SMILES").fill("C1CC")
    panel(page, "molecules").locator(".missing", has_text="SMILES").wait_for()
    assert left_over(panel(page, "molecules")) == []
    shot(page, "broken-molecule")
    watched.trouble.clear()  # the refused request is an error in the console, as it should be
    page.get_by_label("A molecule as SMILES").fill("")
    page.get_by_text("There is no molecule").wait_for()
    assert left_over(panel(page, "molecules")) == []

    page.locator("#tab-generation").click()
    page.get_by_label("Let the model go on from here").fill("the capital of")
    page.locator("#generate").click()
    panel(page, "generation").locator(".output .w").first.wait_for(timeout=60_000)
    page.get_by_label("Let the model go on from here").fill(" ")
    page.locator("#generate").click()
    page.get_by_text("There is no prompt").wait_for()
    assert left_over(panel(page, "generation")) == []


def test_a_class_rather_than_itself_is_refused_in_words(watched, home):
    page = watched.page
    explained(page, home, f"text={TEXT}")
    page.get_by_role("combobox", name="rather than").select_option(label="positive")
    page.locator(".missing", has_text="'positive' is set against itself").wait_for()
    assert left_over(panel(page, "text")) == []
    watched.trouble.clear()
    page.get_by_role("combobox", name="rather than").select_option(label="negative")
    page.locator(".method .w").first.wait_for()


# what is asked is what stands there


def test_what_is_predicted_is_set_against_a_class_of_this_text(watched, home):
    page = watched.page
    page.goto(f"{home}#text={TEXT}&v=0")  # a link: no prediction is known yet
    page.locator(".method header", has_text="positive - negative").first.wait_for()
    page.goto(f"{home}#text=a dull mess&v=1")
    page.locator(".method header", has_text="negative - positive").first.wait_for()
    page.get_by_label("Type or paste a text").fill(TEXT)  # it is predicted positive, and the last one was not
    page.locator(".missing", has_text="'positive' is set against itself").wait_for()
    watched.trouble.clear()


def test_a_link_to_a_class_of_a_model_that_is_not_read_yet_keeps_it(window):
    state = make_state()
    state.models = replace(state.models, others=(LazyModel("text", "another", other_names),))
    with serve_in_thread(state) as home:
        page = window(home).page
        page.goto(f"{home}#text={TEXT}&model=another&t=0")
        page.locator(".method header", has_text="bad").first.wait_for()
        assert page.get_by_role("combobox", name="Explain", exact=True).input_value() == "0"


def test_tokens_are_masked_in_the_prompt_that_is_shown(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=generation&n=3&prompt=the capital of France is")
    place = panel(page, "generation")
    place.locator(".output .w").first.wait_for(timeout=60_000)
    page.get_by_label("Let the model go on from here").fill("the film was not good")
    place.locator('select:has(option[value="word"])').select_option("word")  # neither has been asked for yet
    with page.expect_request("**/api/generate/mask") as masking:
        place.locator(".w.source", has_text="France").click()
    asked = masking.value.post_data_json
    assert (asked["prompt"], asked["unit"]) == ("the capital of France is", "token")
    with page.expect_request("**/api/generate/report*") as saving:
        place.locator('[data-save="json"]').first.click()
    assert saving.value.post_data_json["prompt"] == "the capital of France is"


# sums


def numbers(text: str) -> list[float]:
    return [float(n.replace("−", "-")) for n in re.findall(r"[−-]?\d+\.\d+", text)]


def test_every_sum_on_the_page_is_right_as_it_stands(watched, home):
    page = watched.page
    explained(page, home, f"text={TEXT}&methods=lrp|gi&audit=1&numbers=on")
    for line in page.locator(".method .sum, .verdict .sum").all_inner_texts():
        left, _, right = line.partition("=")
        assert sum(numbers(left)) == pytest.approx(numbers(right)[0], abs=1e-9), line
    for path in ("/biases", "/inputs"):
        page.locator(f'[data-line="{path}"]').click()
    lines = page.locator(".line").evaluate_all(
        "all => all.map(l => [Number(/depth(.)/.exec(l.className)[1]), l.querySelector('.amount').textContent])"
    )
    read = [(depth, numbers(amount)[0]) for depth, amount in lines]
    top = [amount for depth, amount in read if depth == 0]
    assert sum(top[:-1]) == pytest.approx(top[-1], abs=1e-9)
    at = [i for i, (depth, _) in enumerate(read) if depth == 0]
    for start, end in pairwise(at):
        inside = [amount for depth, amount in read[start + 1 : end] if depth == 1]
        assert not inside or sum(inside) == pytest.approx(read[start][1], abs=1e-9)
    page.locator(".audit .flow").first.wait_for()
    for row in page.locator(".audit .numbers tbody tr").all():
        arrives, taken, lost, leaves = (numbers(cell)[0] for cell in row.locator("td").all_inner_texts())
        assert arrives - taken - lost == pytest.approx(leaves, abs=1e-9)
    for fact in page.locator(".audit .facts li").all_inner_texts():
        left, _, right = fact.partition(" = ")
        assert sum(numbers(left.rpartition(": ")[2])) == pytest.approx(numbers(right)[0], abs=1e-9)


# a first visit


def test_a_first_visit_is_told_what_it_sees_once(watched, home):
    page = watched.page
    explained(page, home)
    welcome = page.locator("#welcome")
    assert welcome.locator("p:not(.links)").count() == 3
    assert welcome.get_by_role("img").get_attribute("aria-label").startswith("Words of a text")
    for link in welcome.locator("a").all():
        assert page.request.get(f"{home.rstrip('/')}{link.get_attribute('href')}").status == 200
    page.get_by_role("button", name="Got it").click()
    assert not welcome.is_visible()
    page.reload()
    page.locator(".method .w").first.wait_for()
    assert not welcome.is_visible()
    page.get_by_role("button", name="What is this?").click()
    assert welcome.is_visible()
    assert page.get_by_role("button", name="What is this?").get_attribute("aria-expanded") == "true"


@pytest.mark.parametrize("word", ["logit", "ledger", "biases", TEXT_METHOD, "gi"])
def test_a_word_is_explained_where_it_stands_by_keyboard(watched, home, word):
    page = watched.page
    explained(page, home)
    page.get_by_role("button", name="Got it").click()
    named = page.locator(f".term:text-is('{word}'):visible")
    place = named.first if named.count() else page.get_by_role("button", name=f"What is meant by {word}?").first
    place.focus()
    tip = page.locator("#tip")
    assert tip.is_visible()
    about = page.request.get(f"{home}api/about").json()
    meaning = about["words"].get(word) or next(m["summary"] for m in about["methods"] if m["name"] == word)
    assert meaning in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_the_model_stands_on_its_tab_and_another_can_be_chosen(watched, home):
    page = watched.page
    explained(page, home, f"text={TEXT}")
    choice = page.locator('[data-models="text"]')
    assert choice.locator("option").all_inner_texts() == ["headwater/sentiment", "another"]
    assert page.locator(".classes .best .label").inner_text() == "positive"
    choice.select_option("another")
    page.wait_for_function("() => document.querySelector('.classes .best .label')?.textContent === 'good'")
    assert "model=another" in page.url
    assert page.locator(".says").inner_text().startswith("99.8 % good")
    page.go_back()  # a step back is the model before, in the choice and in what is shown
    page.wait_for_function("() => document.querySelector('.classes .best .label')?.textContent === 'positive'")
    assert choice.input_value() == "headwater/sentiment"
    page.go_forward()
    page.wait_for_function("() => document.querySelector('.classes .best .label')?.textContent === 'good'")
    assert choice.input_value() == "another"
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_function("() => document.querySelector('.classes .best .label')?.textContent === 'good'")
    page.locator("#tab-molecules").click()
    assert panel(page, "molecules").locator(".which").inner_text() == "Model headwater/bace"


def first_example() -> str:
    return re.search(r"EXAMPLES = \[\s*\['[^']+', '([^']+)'\]", (STATIC / "text.js").read_text(encoding="utf-8"))[1]


def test_on_the_first_example_methods_differ_visibly():
    import torch

    import headwater as hw
    from headwater.models.bundled import load_bundled

    model, tokenizer = load_bundled()
    found = hw.compare(model, first_example(), tokenizer=tokenizer, methods=["gi", TEXT_METHOD])
    gi, ours = (torch.tensor([w.relevance for w in e.words() if w.start != w.end]) for e in found.explanations)
    assert torch.nn.functional.cosine_similarity(gi, ours, dim=0) < 0.5
    assert gi.abs().argmax() != ours.abs().argmax()
    large = (gi.abs() > 0.5 * gi.abs().max()) & (ours.abs() > 0.5 * ours.abs().max())
    assert bool((gi.sign() != ours.sign())[large].any())  # a word that both call important, and of which one is wrong


def test_one_scale_and_numbers_by_switches(watched, home):
    page = watched.page
    explained(page, home, f"text={TEXT}&methods=lrp|gi")
    strongest = """() => [...document.querySelectorAll('.method')].map(row =>
      Math.max(...[...row.querySelectorAll('.w')].map(w => Number(w.style.getPropertyValue('--o')))))"""
    assert page.evaluate(strongest) == [1, 1]
    page.get_by_label("one scale for all rows").check()
    lrp, gi = page.evaluate(strongest)
    assert lrp == 1
    assert gi < 0.2
    page.get_by_label("numbers under the words").check()
    below = "() => getComputedStyle(document.querySelector('.method .w.can'), '::after').content"
    assert re.fullmatch(r'"[+−]?\d+\.\d\d"', page.evaluate(below))
    shown = page.locator('.method[data-method="lrp"] .w').evaluate_all("all => all.map(w => w.dataset.n)")
    words = numbers(page.locator('.method[data-method="lrp"] .sum').inner_text())[0]
    assert sum(numbers(" ".join(shown))) == pytest.approx(words, abs=1e-9)
    assert "scale=one" in page.url
    assert "numbers=on" in page.url
    shot(page, "numbers")


# verdicts and mask tests


def test_a_text_has_a_verdict_and_masking_says_who_was_nearer(watched, home):
    page = watched.page
    explained(page, home)  # the first example
    said = page.locator("#panel-text .says")
    assert re.match(r"99\.\d % positive, .* already for unknown words; .* mostly because of dull", said.inner_text())
    page.locator(f'.method[data-method="{TEXT_METHOD}"] .w', has_text="dull").click()
    found = page.locator("#panel-text .found")
    found.wait_for()
    took, ours, gi = numbers(found.inner_text())
    assert found.inner_text().endswith(f"{TEXT_METHOD} was nearer.")
    assert abs(took - ours) < abs(took - gi)


def test_patches_are_masked_by_pointer_and_by_the_list(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=images")
    place = panel(page, "images")
    place.locator(".sheet svg").wait_for(timeout=60_000)
    assert "mostly because of" in place.locator(".says").inner_text()
    place.locator('.sheet [data-item="24"]').first.click()
    place.locator(".found").wait_for()
    assert place.locator(".found").inner_text().startswith("Masking [3, 3] ")
    assert "→" in place.locator(".classes .share").first.inner_text()
    assert place.locator(".sheet .masked").count() == 2  # in both panels
    place.locator("summary", has_text="every patch").click()
    place.locator('[data-mask="25"]').press("Enter")
    place.locator(".found", has_text="[3, 4]").wait_for()
    assert place.locator('[data-mask="25"]').get_attribute("aria-pressed") == "true"
    shot(page, "masked-patches")
    place.get_by_role("button", name="Show all patches again").click()
    assert place.locator(".sheet .masked").count() == 0
    assert not place.locator(".found").is_visible()


def test_atoms_are_masked(watched, home):
    pytest.importorskip("rdkit")
    page = watched.page
    page.goto(f"{home}#tab=molecules&smiles=CC(=O)Oc1ccccc1C(=O)O")
    place = panel(page, "molecules")
    place.locator(".sheet svg").wait_for(timeout=60_000)
    assert "inactive" in place.locator(".says").inner_text()
    place.locator('.sheet circle[data-item="3"]').first.click()
    place.locator(".found").wait_for()
    assert re.match(rf"Masking O 3 .*{re.escape(GRAPH_METHOD)} had said .*gi ", place.locator(".found").inner_text())
    shot(page, "masked-atom")


def test_tokens_of_a_prompt_are_masked(watched, home):
    page = watched.page
    page.goto(f"{home}#tab=generation&n=3&prompt=the capital of France is")
    place = panel(page, "generation")
    place.locator(".output .w").first.wait_for(timeout=60_000)
    assert "mostly because of" in place.locator(".says").inner_text()
    place.locator(".w.source", has_text="France").click()
    place.locator(".found").wait_for()
    assert re.match(r"Masking France .*lrp-language had said", place.locator(".found").inner_text())
    first = place.locator(".found").inner_text()
    place.locator(".output .w").nth(1).click()  # the same token, masked for another output
    page.wait_for_function("was => document.querySelector('#panel-generation .found').innerText !== was", arg=first)
    shot(page, "masked-prompt")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_these_views_are_walked_in_every_look(window, home, width, scheme):
    found = window(home, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = found.page
    explained(page, home, "numbers=on&mask=9&audit=1")
    page.locator(".found").first.wait_for()
    page.locator(".audit .flow").first.wait_for()
    page.locator(".sum .term").first.focus()
    faults = serious(page)
    shot(page, f"reading-{width}-{scheme}")
    page.goto(f"{home}#tab=images")
    place = panel(page, "images")
    place.locator(".sheet svg").wait_for(timeout=60_000)
    place.locator('.sheet [data-item="24"]').first.click()
    place.locator(".found").wait_for()
    faults += serious(page)
    shot(page, f"reading-image-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(f"{home}help/glossary")
    page.get_by_role("heading", name="Glossary").wait_for()
    shot(page, f"help-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faults + serious(page) == []


def test_a_hostile_word_stays_text_in_verdict_and_test(watched, home):
    page = watched.page
    page.goto(f"{home}#text=<img/src=x/onerror=alert(1)> wonderful&mask=1")
    page.locator(".method .w").first.wait_for()
    page.locator(".found").first.wait_for()
    assert page.locator("#main img").count() == 0
