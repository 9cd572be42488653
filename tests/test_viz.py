"""Pictures say what the result says: the same numbers, the sign in more than colour, nothing that a text injects."""

from __future__ import annotations

import re

import pytest
import torch
from page_reader import Reader
from rich.console import Console
from rich.text import Text

from headwater.errors import UnknownName
from headwater.results.audit import Audit, HeadFlow, Leak, ModuleFlow, NormFlow
from headwater.results.explanation import Explanation, Provenance
from headwater.results.ledger import Ledger, Lines
from headwater.viz.colour import GROUND, INK, NEGATIVE, PALETTES, POSITIVE, blend_colours, largest, palette, shade
from headwater.viz.html import page
from headwater.viz.plain import plain, plain_audit, plain_methods
from headwater.viz.reading import decimals, readable, sum_by_layer, token_cells, with_sign
from headwater.viz.svg import picture
from headwater.viz.tables import find_common_module
from headwater.viz.terminal import TokenLines, render, render_audit, render_methods, style_of

MADE = Provenance("0", "0", "0", "tiny", "cpu", "float32", 0)
BIASES = {f"bert.encoder.layer.{i}.{part}.bias": 0.1 * i for i in range(4) for part in ("a", "b")} | {
    "classifier.bias": 0.25
}


def example(tokens=("[CLS]", "good", "film", "##s", "[SEP]"), relevance=(0.0, 1.5, -0.5, 0.25, 0.125), **changes):
    values = torch.tensor(relevance, dtype=torch.float64)
    ledger = Ledger(float(values.sum()) + sum(BIASES.values()), float(values.sum()), Lines(BIASES), Lines())
    fields = {
        "tokens": tokens,
        "relevance": values,
        "score": ledger.score,
        "target": "positive",
        "ledger": ledger,
        "method": "lrp",
        "provenance": MADE,
        "special": tuple(t.startswith("[") for t in tokens),
    }
    return Explanation(**{**fields, **changes})


def on_screen(renderable, width=100, **console) -> str:
    screen = Console(width=width, record=True, force_terminal=True, color_system="truecolor", **console)
    with screen.capture() as captured:
        screen.print(renderable)
    return captured.get()


def without_codes(text: str) -> str:
    return Text.from_ansi(text).plain


# colour


def lightness(colour: tuple[int, int, int]) -> float:
    """Relative luminance, as WCAG has it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    low, high = sorted((lightness(one), lightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PALETTES)
def test_text_is_read_on_the_full_colours_of_every_palette(name, theme):
    with palette(name):
        for hue in (POSITIVE, NEGATIVE):
            assert contrast(INK[theme], hue[theme]) >= 4.5


def test_a_palette_ends_with_its_block():
    before = POSITIVE["light"]
    with palette("green-purple"):
        assert POSITIVE["light"] != before
    assert POSITIVE["light"] == before
    with pytest.raises(UnknownName, match="red-blue"), palette("red-blu"):
        pass


def test_the_largest_gets_full_colour_and_zero_none():
    scale = largest([0.0, -2.0, 1.0])
    assert shade(-2.0, scale) == shade(-2.0, 2.0)
    assert (shade(-2.0, scale).sign, shade(-2.0, scale).opacity) == (-1, 1.0)
    assert (shade(1.0, scale).sign, shade(1.0, scale).opacity) == (1, 0.5)
    assert (shade(0.0, scale).sign, shade(0.0, scale).opacity) == (0, 0.0)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_nothing_and_what_is_no_number_get_no_colour(value):
    assert shade(value, largest([value])).opacity == 0


def test_blending_starts_at_the_ground_and_ends_at_the_colour():
    assert blend_colours((0, 0, 0), (200, 100, 50), 0) == (0, 0, 0)
    assert blend_colours((0, 0, 0), (200, 100, 50), 1) == (200, 100, 50)


def luminance(rgb):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("opacity", [0, 0.25, 0.5, 0.75, 1])
def test_text_can_be_read_on_every_colour(theme, opacity):
    """Contrast of at least 4.5 to 1, as WCAG 2 asks for text of this size."""
    for full in (POSITIVE[theme], NEGATIVE[theme]):
        dark, light = sorted(map(luminance, (INK[theme], blend_colours(GROUND[theme], full, opacity))))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


# tokens and numbers


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("##ly", "ly"),
        ("Ġfilm", "film"),
        ("▁film", "film"),
        ("Ċ", "↵"),
        ("a\x1b[31m", "a\\x1b[31m"),
        (" ", "␣"),
        ("##", "##"),
    ],
)
def test_tokens_are_readable(token, shown):
    assert readable(token) == shown


def test_sub_words_stand_together_and_words_apart():
    assert [cell.gap for cell in token_cells(example())] == [True, True, True, False, True]
    byte_level = example(tokens=("The", "Ġfilm", "s", "Ġare", "Ġgood"), special=())
    assert [cell.gap for cell in token_cells(byte_level)] == [True, True, False, True, True]
    offsets = ((0, 0), (0, 4), (4, 5), (6, 7), (0, 0))
    assert [cell.gap for cell in token_cells(example(offsets=offsets))] == [True, True, False, True, True]


def test_words_stand_apart_where_the_text_has_a_space():
    e = example(
        tokens=("[CLS]", "good", "film", "##s", "!"),
        text="good films!",
        special=(True, False, False, False, False),
        offsets=((0, 0), (0, 4), (5, 9), (9, 10), (10, 11)),
        word_ids=(None, 0, 1, 1, 2),
        sequence_ids=(None, 0, 0, 0, 0),
    )
    shown = token_cells(e, words=True)
    assert [(cell.text, cell.gap) for cell in shown] == [("[CLS]", True), ("good", True), ("films", True), ("!", False)]
    assert shown[2].relevance == -0.25


def test_tokens_of_a_decoder_have_no_offsets_and_their_own_heading():
    both = example(
        offsets=((0, 0), (0, 4), (0, 0)), special=(True, False, True), segments=("source",) * 3 + ("target",) * 2
    )
    assert [cell.part for cell in token_cells(both)] == ["source"] * 3 + ["target"] * 2
    assert "target:" in plain(both)
    assert "target" in page(both)


def test_a_bare_tensor_is_shown_by_its_largest_entries():
    grid = torch.zeros(3, 40, dtype=torch.float64)
    grid[2, 7], grid[0, 1] = -3.0, 2.0
    shown = token_cells(example(tokens=(), relevance=grid.tolist(), special=()))
    assert [(cell.text, cell.relevance) for cell in shown[:2]] == [("[2, 7]", -3.0), ("[0, 1]", 2.0)]
    assert len(shown) == 20


@pytest.mark.parametrize(("value", "text"), [(0.5, "+0.500"), (-0.5, "-0.500"), (0.0, " 0.000"), (-1e-9, " 0.000")])
def test_numbers_have_a_sign_unless_they_are_shown_as_zero(value, text):
    assert with_sign(value, 3) == text


def test_a_column_has_one_precision_for_all():
    assert decimals([1234.5, 0.1]) == 2
    assert decimals([0.00123]) == 7
    assert decimals([]) == decimals([0.0]) == 4


def test_lines_are_summed_by_layer_and_lose_nothing():
    folded = sum_by_layer(BIASES)
    assert list(folded) == [f"bert.encoder.layer.{i}" for i in range(4)] + ["classifier"]
    assert sum(folded.values()) == pytest.approx(sum(BIASES.values()))


# plain text


def numbers_in(text: str) -> dict[str, float]:
    return {m[1].strip(): float(m[2]) for m in re.finditer(r"^\s*(\S.*?)\s{2,}([+-]?[\d.]+)$", text, re.M)}


def test_plain_text_shows_the_values_and_they_add_up():
    e = example()
    shown = numbers_in(plain(e, full=True))
    assert [shown[name] for name in ("[CLS]", "good", "film", "s", "[SEP]")] == e.relevance.tolist()
    assert shown["inputs"] == pytest.approx(e.ledger.inputs)
    assert sum(shown[name] for name in BIASES) == pytest.approx(shown["biases"])
    assert shown["inputs"] + shown["biases"] + shown["constants"] + shown["unaccounted"] == pytest.approx(
        shown["score"]
    )


def test_plain_text_has_no_escape_codes_even_from_a_hostile_text():
    e = example(tokens=("\x1b[31mred", "good", "film", "\x07", "[SEP]"), text="\x1b]0;title\x07")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", plain(e))


def test_an_open_ledger_is_said_to_be_open():
    ledger = Ledger(2.0, 1.0)
    for shown in (
        plain(example(ledger=ledger)),
        page(example(ledger=ledger)),
        on_screen(render(example(ledger=ledger))),
    ):
        assert "NOT closed" in shown
    assert "NOT" not in plain(example())


# terminal


def test_the_terminal_shows_the_same_numbers_as_plain_text():
    text = without_codes(on_screen(render(example(), full=True)))
    for line in plain(example(), full=True).split("ledger:")[1].split("  score")[0].splitlines()[1:]:
        name, number = line.split()
        assert re.search(rf"{re.escape(name)}\s+{re.escape(number)}", text), line
    for number in ("+1.50", "-0.50", "+0.25"):
        assert number in text


def test_what_takes_away_is_underlined_as_well_as_blue():
    adds, takes = style_of(shade(1.0, 1.0), "dark"), style_of(shade(-1.0, 1.0), "dark")
    assert takes.underline
    assert not adds.underline
    assert adds.bgcolor != takes.bgcolor
    assert style_of(shade(0.0, 1.0), "dark").bgcolor is None


def test_a_terminal_of_sixteen_colours_has_red_and_blue_too():
    """Its nearest colour to a dark red would be yellow, and to most others black."""
    screen = Console(width=100, force_terminal=True, color_system="standard")
    with screen.capture() as captured:
        screen.print(render(example(relevance=(0.0, 1.5, -1.5, 0.5, -0.5))))
    for codes in ("1;37;41mgood", "1;4;37;44mfilm", "31ms", "4;34m[SEP]"):
        assert f"\x1b[{codes}" in captured.get()


@pytest.mark.parametrize("first", ["256", "truecolor"])
def test_each_terminal_of_a_process_gets_its_own_colours(first):
    """rich keeps the sum of two styles with the codes that it first had, and another terminal got them, too."""
    relevance = (0.0, *((1.5, -1.5, 0.6) if first == "256" else (1.5, -1.5, 0.7)), 0.0)  # not drawn by another test
    written = {}
    for colours in (first, {"256": "truecolor", "truecolor": "256"}[first]):
        screen = Console(width=100, force_terminal=True, color_system=colours)
        with screen.capture() as captured:
            screen.print(render(example(relevance=relevance)))
        written[colours] = captured.get()
    assert "48;2;" in written["truecolor"]
    assert "48;5;" not in written["truecolor"]
    assert "48;5;" in written["256"]
    assert "48;2;" not in written["256"]


def test_without_colour_the_sign_remains():
    text = on_screen(render(example()), no_color=True)
    assert not re.search(r"\x1b\[[\d;]*(38|48)", text)
    assert "\x1b[4mfilm" in text


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("count", [5, 70])
def test_tokens_fit_the_terminal(width, count):
    tokens = tuple(f"token{i}" for i in range(count))
    shown = TokenLines(tuple(token_cells(example(tokens, [0.1] * count, special=()))), 0.1, "dark")
    lines = without_codes(on_screen(shown, width=width)).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    assert re.findall(r"token\d+", " ".join(lines)) == list(tokens)


def test_markup_in_a_text_stays_text():
    e = example(tokens=("[red]", "[/]", "[bold", ":smile:", "[SEP]"))
    assert "[red]" in without_codes(on_screen(render(e)))
    assert ":smile:" in without_codes(on_screen(render(e)))


# HTML and SVG


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b", "</style>", "[SEP]")


def test_tokens_stay_text_in_html():
    read = Reader(page(example(tokens=HOSTILE, target="<b>positive</b>"), title="<i>title</i>"))
    assert not {"script", "img", "b", "i"} & {tag for tag, _ in read.tags}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    for token in HOSTILE:
        assert token in read.text


def test_the_page_forbids_scripts_and_asks_nobody_for_anything():
    html = page([example(), example()])
    policy = next(a["content"] for tag, a in Reader(html).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert not re.search(r"https?://|src=|url\(|@import|<link", html)


def test_the_sign_is_in_the_page_for_those_who_do_not_see_it():
    read = Reader(page(example()))
    marks = {a["title"]: (a["class"] or "").split() for _, a in read.tags if "title" in a}
    assert "take" in marks["-0.50"]
    assert "add" in marks["+1.50"]
    assert "film (-0.50)" in read.text
    assert "text-decoration: underline" in page(example())


def test_opacity_in_the_page_is_the_scale():
    styles = [a.get("style") for _, a in Reader(page(example())).tags if "t" in (a.get("class") or "").split()]
    assert styles[2:] == [f"--o:{o}" for o in ("0.000", "1.000", "0.333", "0.167", "0.083")]  # two are the key


def test_the_page_says_how_it_was_made():
    text = Reader(page(example(output="log-probability", prediction="negative"))).text
    for fact in (
        "positive",
        "log-probability",
        "predictednegative",
        "methodlrp",
        "atembeddings",
        "model tiny",
        "seed 0",
    ):
        assert fact in text


def test_the_page_shows_the_ledger_and_every_bias():
    e = example()
    text = Reader(page(e)).text
    for name, amount in BIASES.items():
        assert re.search(rf"{re.escape(name)}\s*{re.escape(with_sign(amount, 4).strip())}", text)
    assert with_sign(e.ledger.score, 4) in text


@pytest.mark.parametrize("relevance", [(0.0,) * 5, (1.0, -1.0, 0.5, -0.5, 0.0)])
def test_a_relevance_that_sums_to_zero_is_drawn_without_nan(relevance):
    e = example(relevance=relevance, ledger=Ledger(0.0, 0.0))
    for shown in (page(e), plain(e), on_screen(render(e)), picture(render(e))):
        assert not re.search(r"\b(nan|inf)\b", shown, re.I)


def test_the_svg_is_an_image_that_loads_nothing():
    image = picture(render(example()))
    assert image.startswith("<svg")
    assert "@font-face" not in image
    assert not re.search(r"(href|src)=|url\((?!#)", image)


def test_dark_and_light_pictures_differ():
    assert picture(render(example(), theme="light"), theme="light") != picture(render(example()))


# audit and methods


def audit() -> Audit:
    return Audit(
        example(),
        tuple(ModuleFlow(f"layer.{i}.dense", "Linear", 1.0 + i, 0.5, 0.25) for i in range(12)),
        (NormFlow("layer.0.LayerNorm", 2.0, 0.001, 0.0005, 0.0005, 0.0005),),
        tuple(HeadFlow("layer.0.attention", h, 1.0, 1.25, 0.25, 0.5, 0.5) for h in range(2)),
        (Leak("softmax", "layer.0.attention", -0.5),),
    )


@pytest.mark.parametrize("names", [("layer.11.dense", "layer.0.dense"), ("11.dense", "0.dense")])
def test_an_audit_shows_what_leaked_and_both_propositions(names):
    """In full in plain text; on a terminal without the beginning that all names share."""
    in_full = names[0].startswith("layer")
    shown = plain_audit(audit()) if in_full else without_codes(on_screen(render_audit(audit()), width=100))
    for fact in ("softmax", "-0.5", "layer.0.LayerNorm", "0.0005", "attention", names[0], "8 largest of 12"):
        assert fact in shown
    assert not re.search(rf"^ *{re.escape(names[1])}", shown, re.M)
    assert ("names within layer" in shown) is not in_full
    assert "layer.0.dense" in plain_audit(audit(), full=True)
    assert "\x1b" not in plain_audit(audit())


def test_a_common_beginning_of_module_names_is_said_once():
    assert find_common_module(["a.b.0.x", "a.b.1.y"]) == "a.b"
    assert find_common_module(["a.b.x", "a.b"]) == find_common_module(["a.0.self.x", "a.1.self.x"]) == "a"
    assert (
        find_common_module(["a.x", "b.x"])
        == find_common_module(["a.b.c"])
        == find_common_module(["a.b", ""])
        == find_common_module([])
        == ""
    )


def test_an_audit_without_losses_says_so_in_one_line():
    kept = tuple(ModuleFlow(f"layer.{i}", "Linear", 1.0, 0.5, 0.5) for i in range(12))
    for draw in (plain_audit, lambda audit: without_codes(on_screen(render_audit(audit), width=140))):
        assert "all 12 modules passed on what they received" in draw(Audit(example(), kept, (), (), ()))


def test_methods_are_listed_with_their_summaries():
    known, rules, variants = [("gi", "no rules")], [("ah", "attention is constant")], [("half", "half each")]
    listed = known, rules, variants
    for shown in (plain_methods(*listed), without_codes(on_screen(render_methods(*listed)))):
        assert re.search(r"gi\s+no rules", shown)
        assert re.search(r"half\s+half each", shown)
        assert re.search(r"ah\s+attention is constant", shown)
