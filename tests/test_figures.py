"""Figures show the numbers they were given, on the page, without colour too, and the same bytes every time."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from headwater.errors import MissingExtra, UnknownName, UsageError
from headwater.evaluation.cost import Cost
from headwater.evaluation.measures import resolve_measures
from headwater.evaluation.protocols import ali2022
from headwater.evaluation.results import Samples, summarise
from headwater.results.audit import Audit, NormFlow
from headwater.results.comparison import Comparison
from headwater.results.explanation import Explanation, Provenance
from headwater.results.ledger import Ledger
from headwater_experiments.paper import drawing
from headwater_experiments.paper.drawing import marks, scatter, sentences, wrapping
from headwater_experiments.paper.drawing.page import DPI, PAGE, blank, use_style

matplotlib = pytest.importorskip("matplotlib")

MADE = Provenance("", "", None, "", "cpu", "float64")
PAPER = ("random", "rollout", "gi", "lrp(ah+ln)", "lrp")


# values


@lru_cache
def evaluation(methods=PAPER, samples=60, seed=0):
    """Scores drawn at random; sums that are the score (lrp, but for its biases), noise, or a number of tokens."""
    random = np.random.default_rng(seed)
    score = random.normal(0, 3, samples)
    common = {"row": np.arange(samples), "label": np.ones(samples, int), "predicted": np.ones(samples, int)}
    values = {name: method_columns(name, score, random) for name in methods}
    made = Samples({**common, "items": np.full(samples, 9)}, values)
    return summarise(made, resolve_measures(("activation", "pruning")), ali2022, {"seed": 0})


def method_columns(name, score, random):
    biases = random.normal(0, 0.5, len(score))
    totals = {"lrp": score - biases, "rollout": random.integers(20, 60, len(score)).astype(float)}
    inputs = totals.get(name, random.normal(0, 1, len(score)))
    books = {"score": score, "inputs": inputs, "biases": biases if name == "lrp" else 0 * biases}
    rest = {"constants": 0 * score, "readout": 0 * score, "unaccounted": 0 * score + (0 if name == "lrp" else 0.9)}
    steps = np.sort(random.uniform(0, 1, (len(score), 11)))
    return {**books, **rest, "activation": steps, "pruning": 30 * steps}


def audits(share, samples=5, norms=3):
    made = []
    for i in range(samples):
        flows = [NormFlow(f"layer.{n}", i + n + 1.0, (i + n + 1.0) * share, share, share, 1e-12) for n in range(norms)]
        made.append(Audit(explained(), (), tuple(flows), (), ()))
    return made


def explained(text="not a good film, really", relevance=None, method="lrp", special=True):
    words = text.split(" ")
    tokens = ["[CLS]", *words, "[SEP]"] if special else words
    flags = [special and t.startswith("[") for t in tokens]
    values = torch.tensor(relevance if relevance is not None else [0.0] * len(tokens), dtype=torch.float64)
    ledger = Ledger(float(values.sum()) + 1, float(values.sum()), dtype="float64")
    return Explanation(
        tuple(tokens), values, ledger.score, "positive", ledger, method, MADE, text=text, special=tuple(flags)
    )


def compared(**options):
    return Comparison((explained(**options),))


def shown_texts(figure):
    """Every text that can be seen, with its box in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    hidden = {id(text) for axes in figure.axes for text in beyond(axes)}
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in hidden]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in found]


def beyond(axes):
    """Numbers of ticks that lie outside of an axis, and all of one that is switched off: they are not drawn."""
    for number, axis in enumerate((axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for label in axis.get_ticklabels():
            if not low <= label.get_position()[number] <= high or not axes.axison:
                yield label


def off_the_page(figure):
    width, height = figure.get_size_inches() * figure.dpi
    return [s for s, b in shown_texts(figure) if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1]


def overlapping(figure):
    """Pairs of texts that cover each other by more than a pixel both ways."""
    found = []
    for (first, a), (second, b) in combinations(shown_texts(figure), 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > 1 and down > 1:
            found.append((first, second))
    return found


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


# conservation


def test_a_panel_for_every_dataset_and_method_with_every_sample_in_it():
    held = {"SST-2": evaluation(), "MNIST": evaluation(samples=40, seed=1)}
    figure = drawing.conservation(held, ["gi", "lrp(ah+ln)", "lrp"])
    assert titles(figure) == ["GI", "LRP (AH+LN)", "LRP (all rules)"] * 2
    panels = [(d, m) for d in held for m in ("gi", "lrp(ah+ln)", "lrp")]
    for axes, (data, method) in zip(figure.axes, panels, strict=True):
        values = held[data].samples.values[method]
        points = np.asarray(axes.collections[0].get_offsets())
        assert np.array_equal(points, np.stack([values["score"], values["inputs"]], 1))
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        assert ((left < points[:, 0]) & (points[:, 0] < right)).all()
        assert ((low < points[:, 1]) & (points[:, 1] < high)).all()


def test_rings_show_that_the_whole_ledger_is_the_score_where_it_closes():
    figure = drawing.conservation({"SST-2": evaluation()}, ["gi", "lrp"])
    gi, lrp = figure.axes
    assert len(gi.collections) == 1
    rings = np.asarray(lrp.collections[1].get_offsets())
    assert len(rings) > 10
    assert rings[:, 0] == pytest.approx(rings[:, 1], abs=1e-12)
    assert np.abs(np.diff(np.asarray(lrp.collections[0].get_offsets()))).max() > 0.5  # without biases it is not


def test_panels_say_correlation_and_error():
    held = evaluation()
    figure = drawing.conservation({"SST-2": held}, ["lrp"])
    kept = held["lrp"].conservation
    said = [text for text, _ in shown_texts(figure)]
    assert f"r = {kept.correlation:.2f}, error {100 * kept.error:.0f} %" in said
    assert scatter.format_correlation(float("nan")) == "–"
    assert (scatter.share(0.726), scatter.share(111.2)) == ("73 %", "111 ×")


def test_only_sums_far_from_the_scores_have_an_axis_of_their_own():
    gi, rollout, lrp = drawing.conservation({"SST-2": evaluation()}, ["gi", "rollout", "lrp"]).axes
    assert gi.get_ylim() == lrp.get_ylim() == gi.get_xlim() == rollout.get_xlim()
    assert rollout.get_ylim()[1] > 50 > gi.get_ylim()[1]


def test_a_method_that_one_dataset_lacks_leaves_its_panel_empty_and_one_that_all_lack_is_an_error():
    held = {"SST-2": evaluation(), "IMDB": evaluation(("gi", "lrp"))}
    figure = drawing.conservation(held, ["gi", "rollout"])
    assert [len(axes.collections) for axes in figure.axes] == [1, 1, 1, 0]
    assert [text for text, _ in shown_texts(figure)].count("not measured") == 1
    with pytest.raises(UnknownName, match="Did you mean 'rollout'"):
        drawing.conservation(held, ["rolout"])
    with pytest.raises(UsageError, match="at least one"):
        drawing.conservation({}, ["gi"])


@pytest.mark.slow
@pytest.mark.parametrize(("datasets", "methods"), [(1, 3), (1, 5), (2, 5), (3, 3), (5, 3), (9, 3)])
def test_no_text_covers_another_and_panels_line_up(datasets, methods):
    held = {f"T-Sentiment {i}": evaluation(seed=i) for i in range(datasets)}
    for figure in (drawing.conservation(held, PAPER[:methods]), drawing.curves(held, PAPER[:methods])):
        assert overlapping(figure) == []
        assert off_the_page(figure) == []
        boxes = [axes.get_position() for axes in figure.axes]
        assert len({(round(b.width, 6), round(b.height, 6)) for b in boxes}) == 1
        columns = len({round(b.x0, 6) for b in boxes})
        assert columns * len({round(b.y0, 6) for b in boxes}) - len(boxes) in range(columns)


def test_texts_that_cover_another_or_leave_the_page_would_be_seen():
    figure = blank(2, 1)
    figure.text(0.5, 0.5, "one")
    figure.text(0.52, 0.5, "two")
    figure.text(0.95, 0.1, "beyond the edge")
    assert overlapping(figure) == [("one", "two")]
    assert off_the_page(figure) == ["beyond the edge"]


# the collapse


def test_lines_run_from_what_arrives_to_what_passes():
    figure = drawing.collapse({"gi": audits(1e-12), "lrp(ah+ln)": audits(1.0)})
    assert titles(figure) == ["GI", "LRP (AH+LN)", "share that passes"]
    for axes, share in zip(figure.axes[:2], (1e-12, 1.0), strict=True):
        ends = [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 2 and line.get_alpha() is not None]
        assert sorted(before for before, _ in ends) == sorted(i + n + 1.0 for i in range(5) for n in range(3))
        assert all(after == pytest.approx(before * share) for before, after in ends)
    assert overlapping(figure) == []
    assert off_the_page(figure) == []


def test_the_last_panel_has_the_share_on_a_logarithmic_scale_and_the_first_norm_is_the_nearest_to_the_score():
    figure = drawing.collapse({"gi": audits(1e-12), "lrp(ah+ln)": audits(1.0)})
    last = figure.axes[-1]
    assert last.get_yscale() == "log"
    measured = {line.get_label(): line.get_ydata() for line in last.lines if "measured" in str(line.get_label())}
    assert measured["GI, measured"] == pytest.approx([1e-12] * 3)
    assert measured["LRP (AH+LN), measured"] == pytest.approx([1.0] * 3)
    assert [tick.get_text() for tick in last.get_xticklabels()] == ["3", "2", "1"]
    before = next(line for line in figure.axes[0].lines if line.get_label() == "before (mean)")
    assert before.get_ydata() == pytest.approx([5.0, 4.0, 3.0])  # out of norm n and sample i is i + n + 1


def test_audits_that_do_not_belong_together_are_refused():
    with pytest.raises(UsageError, match="different numbers"):
        drawing.collapse({"gi": audits(0.5), "lrp": audits(1.0, norms=2)})
    with pytest.raises(UsageError, match="no normalisation"):
        drawing.collapse({"gi": audits(0.5, norms=0)})


def test_a_norm_to_which_nothing_came_is_drawn_at_zero():
    empty = NormFlow("layer.0", float("nan"), 0.0, 1e-12, float("nan"), 1e-12)
    figure = drawing.collapse({"gi": [Audit(explained(), (), (empty,), (), ())]})
    before = next(line for line in figure.axes[0].lines if line.get_label() == "before (mean)")
    assert list(before.get_ydata()) == [0.0]


# curves


def test_curves_are_the_means():
    held = evaluation()
    activation, pruning = drawing.curves({"SST-2": held}, PAPER).axes
    for axes, name in ((activation, "activation"), (pruning, "pruning")):
        for line, method in zip(axes.lines, PAPER, strict=True):
            assert np.array_equal(line.get_ydata(), held[method].curve(name).mean)
            assert list(line.get_xdata()) == pytest.approx(list(range(0, 101, 10)))
    assert (activation.get_title(), pruning.get_title()) == ("activation ↑", "pruning ↓")
    assert "true class" in activation.get_ylabel()


def test_intervals_are_drawn_while_few_methods_share_a_panel():
    held = {"SST-2": evaluation()}
    assert [len(axes.collections) for axes in drawing.curves(held, PAPER[:4]).axes] == [4, 4]
    assert [len(axes.collections) for axes in drawing.curves(held, PAPER).axes] == [0, 0]
    band = drawing.curves(held, ["gi"]).axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(held["SST-2"]["gi"].activation.high.max())


def test_methods_can_be_told_apart_without_colour():
    looks = [*marks.MARKS.values(), *marks.marks([f"mine {i}" for i in range(5)]).values()]
    assert len({look.marker + str(look.filled) for look in looks}) == len(looks)
    assert len({(look.dash, look.colour) for look in looks}) == len(looks)


def test_a_method_of_ones_own_gets_a_mark_that_no_other_has():
    found = marks.marks(["lrp", "mine", "gi", "yours"])
    assert (found["lrp"], found["mine"].label) == (marks.MARKS["lrp"], "mine")
    assert found["mine"].marker != found["yours"].marker


# heatmaps


def lines_of(figure):
    return [line for line in figure.axes[0].lines if line.get_label() == "minus"]


def boxes_of(figure):
    return list(figure.axes[0].patches)


def test_what_takes_away_is_underlined_and_what_adds_is_not():
    without = drawing.heatmaps({"": compared(text="a good film", relevance=[0, 1, 2, 0, 0])})
    with_one = drawing.heatmaps({"": compared(text="a good film", relevance=[0, 1, -2, 0, 0])})
    assert len(lines_of(with_one)) - len(lines_of(without)) == 1
    assert len(lines_of(without)) == 1  # the key's
    assert len(boxes_of(with_one)) == len(boxes_of(without)) == 2 + 2


def test_opacity_is_the_share_of_the_rows_largest_relevance():
    figure = drawing.heatmaps({"": compared(text="a good film", relevance=[0, 1, -4, 2, 0])})
    assert [box.get_alpha() for box in boxes_of(figure)[:3]] == [0.25, 1.0, 0.5]


def test_a_long_sentence_wraps_inside_the_page_and_no_word_covers_another():
    text = " ".join(f"word{i}" for i in range(150))
    figure = drawing.heatmaps({"IMDB": compared(text=text, relevance=[(-1.0) ** i for i in range(152)])})
    assert off_the_page(figure) == []
    assert overlapping(figure) == []
    assert figure.get_size_inches()[0] == PAGE
    assert figure.get_size_inches()[1] > 2 * drawing.heatmaps({"": compared()}).get_size_inches()[1]


def test_a_word_wider_than_the_line_is_cut_and_keeps_its_relevance():
    with use_style():
        cells = wrapping.word_cells(explained(text="see " + "x" * 300, relevance=[1.0, 2.0], special=False))
        lines = wrapping.wrap(cells, 200, 8, 5)
    assert max(word.left + word.width for line in lines for word in line) <= 200 + 1e-6
    assert "".join(word.cell.text for line in lines for word in line) == "see" + "x" * 300
    assert {word.cell.relevance for line in lines for word in line if "x" in word.cell.text} == {2.0}


def test_words_stand_one_after_the_other_and_punctuation_stays_with_its_word():
    tokens = ("good", ",", "bad", "##ly")
    offsets = ((0, 4), (4, 5), (6, 9), (9, 11))
    base = explained(text="good, badly", relevance=[1.0, 0.5, -1.0, 0.25], special=False, method="lrp")
    made = {"tokens": tokens, "offsets": offsets, "word_ids": (0, 1, 2, 2), "special": (False,) * 4}
    e = Explanation(**{**vars(base), **made})
    with use_style():
        cells = wrapping.word_cells(e)
        (line,) = wrapping.wrap(cells, 1000, 8, 5)
        narrow = wrapping.wrap(cells, wrapping.wide("good,", 8) + 1, 8, 5)
    assert [(word.cell.text, word.cell.relevance) for word in line] == [("good", 1.0), (",", 0.5), ("badly", -0.75)]
    assert line[1].left == pytest.approx(line[0].left + line[0].width)
    assert all(b.left >= a.left + a.width - 1e-9 for a, b in pairwise(line))
    assert "".join(word.cell.text for word in narrow[0]) == "good,"


def test_special_tokens_are_small_and_a_dollar_is_a_dollar():
    figure = drawing.heatmaps({"$x$": compared(text="costs $9 or $12 \\alpha")})
    sizes = {text.get_text(): text.get_fontsize() for text in figure.axes[0].texts}
    assert sizes["[CLS]"] < sizes["costs"]
    assert {"$9", "$12", "\\alpha"} <= set(sizes)
    assert not any(text.get_parse_math() for text in figure.axes[0].texts)


def test_what_the_font_lacks_is_an_empty_box():
    with use_style():
        assert wrapping.legible("é 日 ♥") == "é □ ♥"


def test_the_page_is_as_wide_as_it_was_measured():
    """A box that is wider than its word would show another relevance than the word's."""
    figure = drawing.heatmaps({"": compared(text="unforgettable " * 5, relevance=[1.0] * 8)})
    figure.set_dpi(DPI)
    boxes = [box.get_width() for box in boxes_of(figure)]
    drawn = [extent.width * 72 / DPI for text, extent in shown_texts(figure) if text == "unforgettable"]
    assert max(drawn) == pytest.approx(max(boxes), abs=1.0)


def test_rows_are_the_methods_asked_for_in_their_order():
    both = Comparison((explained(method="gi"), explained(method="lrp")))
    said = [text.get_text() for text in drawing.heatmaps({"": both}, ["lrp", "gi"]).axes[0].texts]
    assert said.index("LRP (all rules)") < said.index("GI")
    with pytest.raises(UsageError, match="nothing to draw"):
        drawing.heatmaps({"": both}, ["rollout"])
    with pytest.raises(UnknownName, match="Did you mean 'lrp'"):
        drawing.heatmaps({"": both}, ["lpr"])


# runtimes

COSTS = [
    Cost("forward", 0.01, 1.0, 1.0, 1.0, None),
    Cost("gi", 0.03, 3.0, 2.5, 3.5, 0.9),
    Cost("lrp", 0.04, 4, 3, 5, 0),
]


def test_measured_and_reported_times_stand_side_by_side():
    rows = {row.method: row for row in drawing.timings(COSTS)}
    assert (rows["gi"].seconds, rows["gi"].paper_seconds) == (0.03, 0.017)  # the paper's appendix on runtimes
    assert rows["gi"].paper_ratio == pytest.approx(0.017 / 0.024)
    assert (rows["lrp"].ratio, rows["lrp"].paper_seconds) == (4, None)
    assert (rows["gae"].seconds, rows["gae"].paper_seconds) == (None, 0.016)
    table = drawing.timing_markdown(drawing.timings(COSTS))
    assert "| GI | 0.03 | 3 | 2.5 to 3.5 | 0.017 | 0.71 |" in table
    assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) == 1


def test_the_csv_has_every_digit():
    rows = list(csv.DictReader(io.StringIO(drawing.to_csv(drawing.timings(COSTS)))))
    gi = next(row for row in rows if row["method"] == "gi")
    assert float(gi["paper_ratio"]) == 0.017 / 0.024
    assert gi["seconds"] == "0.03"
    assert next(row for row in rows if row["method"] == "lrp")["paper_seconds"] == ""


def test_the_dots_are_the_times():
    figure = drawing.runtime(COSTS)
    seconds, ratios = figure.axes
    dots = {label: [line.get_xdata()[0] for line in seconds.lines if line.get_label() == label] for label in LABELS}
    assert sorted(dots["measured here"]) == [0.01, 0.03, 0.04]
    assert len(dots["the paper"]) == 8
    assert {axes.get_xscale() for axes in (seconds, ratios)} == {"log"}
    assert overlapping(figure) == []
    assert off_the_page(figure) == []


LABELS = ("measured here", "the paper")


# files and the world around


def test_two_runs_give_the_same_files_whatever_the_caller_has_set(tmp_path):
    from PIL import Image

    def drawn(stem):
        return drawing.save_figure(drawing.conservation({"SST-2": evaluation()}, ["gi", "lrp"]), tmp_path / stem)

    svg, png = drawn("first.of.two")
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "none", "savefig.dpi": 10, "axes.grid": True}):
        again = drawn("second")
        assert matplotlib.rcParams["font.size"] == 30
    assert (svg.name, png.name) == ("first.of.two.svg", "first.of.two.png")
    assert [path.read_bytes() for path in (svg, png)] == [path.read_bytes() for path in again]
    written = svg.read_text(encoding="utf-8")
    assert "<dc:date>" not in written
    assert "<text" not in written  # letters are outlines
    assert written.count("<image") == 2  # points are pixels, one picture a panel
    with Image.open(png) as picture:
        assert picture.size == tuple(round(inches * DPI) for inches in (PAGE, picture.height / DPI))
        assert picture.size[0] == 1350


def test_other_values_give_other_files(tmp_path):
    pictures = [
        drawing.save_figure(drawing.curves({"A": evaluation(seed=i)}, ["gi"]), tmp_path / f"{i}") for i in range(2)
    ]
    assert pictures[0][0].read_bytes() != pictures[1][0].read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        drawing.save_figure(blank(1, 1), tmp_path / "file" / "figure")


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"headwater-experiments\[paper\]"):
        drawing.curves({"SST-2": evaluation()}, ["gi"])


def loaded(code):
    report = "\nimport sys\nprint([m for m in ('matplotlib', 'matplotlib.pyplot', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_drawing_loads_nothing_and_drawing_opens_no_window():
    assert loaded("import headwater_experiments.paper.drawing") == "[]"
    drawn = (
        "from headwater_experiments.paper import drawing\n"
        "from headwater_experiments.paper.drawing.timing import Timing\ndrawing.runtime([])"
    )
    assert loaded(drawn) == "['matplotlib']"


def test_signs_and_names_read_as_the_paper_writes_them():
    assert marks.label("lrp(ah+ln)") == "LRP (AH+LN)"
    assert marks.label("something else") == "something else"
    assert sentences.minus("-1.25") == "−1.25"
