"""What is shown adds up: parts are rounded such that the sum a reader makes is the total a reader sees."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
import torch
from test_viz import MADE, example, on_screen, without_codes

import headwater as hw
from headwater.models.bundled import load_bundled
from headwater.results.audit import Audit, Leak, ModuleFlow
from headwater.results.explanation import Explanation
from headwater.results.ledger import BASELINE_SCORE, Ledger, Lines
from headwater.results.meanings import MEANINGS, OWN_NAMES, meaning_of
from headwater.viz.audits import along_the_way
from headwater.viz.flow_chart import flow_chart
from headwater.viz.html import ledger_section
from headwater.viz.layers import layer_sums
from headwater.viz.notebook import show_explanation
from headwater.viz.panels import panel_sum
from headwater.viz.plain import ledger_lines, plain
from headwater.viz.reading import ledger_rows
from headwater.viz.sums import large_lines, ledger_sum, round_amounts, round_to_sum
from headwater.viz.terminal import render

LEDGER = Ledger(3.1290, 4.3071, Lines({"layer.0.bias": -0.5893, "layer.1.bias": -0.5888}))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("places", [0, 2, 4])
def test_rounded_parts_add_up_and_none_is_a_unit_off(seed, places):
    dice = random.Random(seed)
    parts = [dice.gauss(0, 10 ** dice.uniform(-3, 2)) for _ in range(dice.randint(1, 30))]
    shown = round_to_sum(parts, sum(parts), places)
    assert sum(round(s * 10**places) for s in shown) == round(sum(parts) * 10**places)
    assert max(abs(a - b) for a, b in zip(shown, parts, strict=True)) < 10**-places


def test_rounding_one_by_one_would_not_do():
    parts = [0.004] * 3
    assert sum(round(p, 2) for p in parts) != round(sum(parts), 2)
    assert sum(round_to_sum(parts, sum(parts), 2)) == pytest.approx(0.01)


def test_what_is_exact_stays_and_what_does_not_add_up_is_not_made_to():
    assert round_to_sum([1.0, 0.004, 0.004, 0.0], 1.008, 2) == [1.0, 0.01, 0.0, 0.0]
    assert round_to_sum([1.0, 1.0], 5.0, 2) == [1.0, 1.0]
    assert round_to_sum([float("nan"), 1.0], 1.0, 2)[1] == 1.0


def test_the_sum_in_a_line():
    assert ledger_sum(LEDGER) == "words 4.31 + biases -1.18 = 3.13"
    assert ledger_sum(Ledger(2.0, 0.5), "tokens") == "tokens 0.50 + unaccounted 1.50 = 2.00"
    assert ledger_sum(Ledger(0.0, 0.0)) == "words 0.00 = 0.00"


def test_a_sum_names_the_constants_that_have_a_name():
    lines = Lines(
        {**{f"layers.{i}.attn: attention offset": 0.2 for i in range(30)}, "attention sink": 0.5, "eps": 0.25}
    )
    ledger = Ledger(7.75, 1.0, constants=lines)
    assert ledger_sum(ledger) == "words 1.00 + attention offset 6.00 + attention sink 0.50 + constants 0.25 = 7.75"
    rows = [(row.name, round(row.amount, 2)) for row in ledger_rows(ledger) if row.depth == 1]
    assert rows == [("attention offset", 6.0), ("attention sink", 0.5), ("eps", 0.25)]
    assert len(ledger_rows(ledger, full=True)) > 30
    assert f"{BASELINE_SCORE} 2.00" in ledger_sum(Ledger(3.0, 1.0, constants=Lines({BASELINE_SCORE: 2.0})))


def sum_read_off(line: str) -> tuple[float, float]:
    left, right = line.split(" = ")
    return sum(float(n) for n in re.findall(r"-?\d+\.\d+", left)), float(re.match(r"-?\d+\.\d+", right)[0])


@pytest.mark.parametrize("method", ["lrp", "gi"])
def test_every_output_shows_a_sum_that_is_right(method):
    model, tokenizer = load_bundled()
    e = hw.explain(model, "The plot is thin, but the cast is wonderful.", tokenizer=tokenizer, method=method)
    for shown in (plain(e, words=True), without_codes(on_screen(render(e, words=True))), show_explanation(e)):
        line = re.search(r"words [-\d.]+ \+ .* = [-\d.]+", re.sub(r"<[^>]+>", "\n", shown))[0]
        left, right = sum_read_off(line)
        assert left == pytest.approx(right, abs=1e-9)
        assert right == pytest.approx(e.score, abs=0.005)


def test_lines_within_a_group_add_up_to_the_group():
    names = {f"a.layer.{i}.w{j}": 0.11111 * (i + 1) * (-1) ** j for i in range(3) for j in range(5)}
    ledger = Ledger(1.00005 + sum(names.values()), 1.00005, Lines(names))
    rows = ledger_rows(ledger)
    shown = round_amounts(rows, ledger.score, 2)
    inside = [a for row, a in zip(rows, shown, strict=True) if row.depth == 1]
    top = {row.name: a for row, a in zip(rows, shown, strict=True) if row.depth == 0}
    assert sum(inside) == pytest.approx(top["biases"], abs=1e-9)
    assert sum(top.values()) == pytest.approx(round(ledger.score, 2), abs=1e-9)


# what lines are, in words


def test_large_lines_are_said_in_words_and_small_ones_are_not():
    assert [name for name, _ in large_lines(LEDGER)] == ["biases"]
    assert large_lines(Ledger(3.0, 2.99, Lines({"b": 0.01}))) == []
    sink = Ledger(3.0, 1.0, constants=Lines({"attention sink": 2.0}))
    assert [name for name, _ in large_lines(sink)] == ["attention sink"]
    spread = Ledger(3.0, 1.0, constants=Lines({f"layers.{i}.attn: attention offset": 0.2 for i in range(10)}))
    assert [name for name, _ in large_lines(spread)] == ["attention offset"]
    assert any("attention rests" in line for line in ledger_lines(sink))
    assert "attention rests" in ledger_section(sink)


@pytest.mark.parametrize(
    "name", ["biases", "constants", "readout", "attention offset", "attention sink", BASELINE_SCORE]
)
def test_every_line_that_a_ledger_can_have_is_explained(name):
    assert len(meaning_of(name)) > 20
    assert meaning_of(f"encoder.layer.0.{name}")


def test_lines_that_the_library_writes_have_a_meaning():
    from headwater.results.ledger import SINK, SPECIAL
    from headwater.results.verdict import ASIDE
    from headwater.rules.attention.shares import OFFSET

    assert {SINK, SPECIAL, OFFSET} == set(ASIDE)
    assert {*ASIDE, BASELINE_SCORE} == set(OWN_NAMES)
    assert all(meaning_of(name) for name in (BASELINE_SCORE, SPECIAL, SINK, OFFSET))
    assert meaning_of("bert.pooler.dense.bias") == MEANINGS["biases"]
    assert meaning_of("bert.pooler") == ""


# an audit's bars reach the score


def made_audit() -> Audit:
    ledger = Ledger(3.0, 4.0, Lines({"layer.0.bias": -1.5, "layer.1.bias": 0.25}))
    e = example(ledger=ledger, relevance=(0.0, 4.0, 0.0, 0.0, 0.0))
    modules = tuple(ModuleFlow(f"layer.{i}", "Block", 1.0, 1.0, 0.0) for i in range(2))
    return Audit(e, modules, (), (), (Leak("softmax", "layer.1.attention", 0.25),))


def test_at_every_layer_relevance_taken_and_lost_are_the_score():
    found = layer_sums(made_audit())
    assert [one.name for one in found] == ["layer.1", "layer.0", "inputs"]
    assert all(one.relevance + one.taken + one.lost == pytest.approx(3.0) for one in found)
    assert [one.relevance for one in found] == pytest.approx([3.0, 2.5, 4.0])
    for _, *numbers, score in along_the_way(made_audit()).rows:
        assert sum(map(float, numbers)) == pytest.approx(float(score))


def test_the_table_of_layers_adds_up_as_shown():
    from headwater.viz.audit_page import layer_amounts, round_layers
    from headwater.viz.layers import audit_layers

    audit = made_audit()
    ledger = Ledger(3.0049, 4.0049, Lines({"layer.0.bias": -1.5049, "layer.1.bias": 0.2549}))
    found, inputs = round_layers(
        audit_layers(replace(audit, explanation=replace(audit.explanation, ledger=ledger))), ledger, 2
    )
    shown = [[round(amount, 2) for amount in layer_amounts(one)] for one in found]
    for arrives, sources, lost, leaves in shown:
        assert arrives - sources - lost == pytest.approx(leaves, abs=1e-9)
    assert shown[0][0] == 3.0
    assert shown[-1][3] == pytest.approx(inputs, abs=1e-9)


def test_every_layers_last_bar_ends_at_the_score():
    drawn = flow_chart(made_audit())
    line = float(re.search(r"y1='([\d.]+)'[^>]*stroke-dasharray='6 3'", drawn)[1])
    bars = re.findall(r"<rect x='([\d.]+)' y='([\d.]+)' width='[\d.]+' height='([\d.]+)'[^>]*><title>([^:]+):", drawn)
    for name in ("layer.1", "layer.0", "inputs"):
        _, top, height, _ = [bar for bar in bars if bar[3] == name][-1]
        assert any(end == pytest.approx(line, abs=0.11) for end in (float(top), float(top) + float(height)))


def test_a_hostile_name_of_a_layer_stays_text():
    e = Explanation(("x",), torch.zeros(1), 1.0, "a", Ledger(1.0, 0.0, Lines({"<b>.0.bias": 1.0})), "<i>", MADE)
    drawn = flow_chart(Audit(e, (ModuleFlow("<b>.0", "B", 1.0, 1.0, 0.0),), (), (), ()))
    assert "<b>" not in drawn
    assert "<i>" not in drawn


def test_the_bars_of_a_page_add_up_as_they_are_shown():
    from headwater.viz.bars import ledger_bars

    ledger = Ledger(3.3140, 4.1364, biases=Lines({"layer.bias": -0.8224}))  # rounded one by one, 4.14 - 0.82 is 3.32
    *parts, score = (float(n) for n in re.findall(r'class="n">([^<]*)<', ledger_bars(ledger)))
    assert sum(parts) == pytest.approx(score)
    assert score == 3.31


@pytest.mark.parametrize(
    ("ledger", "line"),
    [
        (LEDGER, "sum 4.31 + biases -1.18 = 3.13"),
        (Ledger(1.0, 1.0), "sum 1.00 = 1.00"),
        (replace(LEDGER, score=4.1290, constants=Lines({"x": 1.0})), "sum 4.31 + others -0.18 = 4.13"),
        (Ledger(2.0, 1.0, Lines(), Lines({f"{BASELINE_SCORE}": 1.0})), "sum 1.00 + others 1.00 = 2.00"),  # a long name
    ],
)
def test_the_line_below_a_panel_is_a_sum_that_adds_up(ledger, line):
    assert panel_sum(ledger) == line
