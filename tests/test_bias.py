"""The bias study: statistics by hand, planted bias found, chance not, and names that are names."""

from __future__ import annotations

import csv
import json
import re
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import tokenizers
import torch
import transformers as tf
import typer
from real_data import need_real_data
from torch import Tensor, nn
from typer.testing import CliRunner

import headwater
from headwater.bias import calibration, effects, pictures
from headwater.bias.analysis import FEWEST, Resampling, analyse
from headwater.bias.audit import audit_bias, default_target
from headwater.bias.calibration import calibrate, shift_entries
from headwater.bias.finding import Hit, Occurrences
from headwater.bias.groups import read_groups
from headwater.bias.mentions import CUT_OFF, Explained, Mention, collect
from headwater.bias.page import page, relevance_by_group
from headwater.bias.pictures import histogram_file
from headwater.bias.summary import audit_tables
from headwater.bias.swaps import compare_swaps
from headwater.bias.texts import read_texts
from headwater.cli import bias as bias_command
from headwater.cli.refusals import Commands
from headwater.errors import DataError, InputError, UnknownName, UsageError
from headwater.evaluation.statistics import correct_for_many, permutation_p
from headwater.viz.plain import tables_as_text
from headwater_experiments.data import load

QUICK = Resampling(seed=0, permutations=199, resamples=200)


# ---- statistics, worked out by hand


def test_means_and_cohens_d_by_hand():
    first, second = np.array([1.0, 3.0, 5.0]), np.array([0.0, 2.0])
    found = effects.effect((first, ["a", "a", "b"]), (second, ["c", "d"]), seed=0, permutations=99, resamples=99)
    assert found.difference.value == pytest.approx(3 - 1)
    # squared deviations 4 + 0 + 4 and 1 + 1 over 3 + 2 - 2 degrees of freedom
    assert found.d.value == pytest.approx(2 / np.sqrt(10 / 3))
    assert found.difference.low <= 2 <= found.difference.high


def test_groups_without_spread_have_no_d():
    same = (np.ones(3), ["a", "b", "c"])
    found = effects.effect(same, same, seed=0, permutations=9, resamples=9)
    assert (found.d.value, found.p) == (0.0, 1.0)


def test_the_permutation_test_agrees_with_all_labellings():
    values = {"a": [3.0, 4.0], "b": [2.5], "c": [0.5, 1.0, 0.0], "d": [1.5], "e": [0.2], "f": [2.0, 2.2]}
    sums = np.array([[len(v), sum(v), sum(x * x for x in v)] for v in values.values()])

    def difference(chosen: tuple[int, ...]) -> float:
        rest = [i for i in range(6) if i not in chosen]
        return abs(
            sums[list(chosen), 1].sum() / sums[list(chosen), 0].sum() - sums[rest, 1].sum() / sums[rest, 0].sum()
        )

    exact = np.mean([difference(chosen) >= difference((0, 1)) - 1e-12 for chosen in combinations(range(6), 2)])
    found = permutation_p(sums[:2], sums[2:], effects.find_means, seed=0, permutations=20_000)
    assert found == pytest.approx(exact, abs=0.01)  # three standard errors of 20,000 draws


def test_holm_by_hand():
    assert correct_for_many([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_for_many([]) == []


def test_what_the_text_foretells_is_taken_out():
    random = np.random.default_rng(0)
    rest = [random.normal(2, 1, 400), random.normal(-2, 1, 400)]
    values = [0.5 * r + random.normal(0, 0.1, 400) for r in rest]
    plain = values[0].mean() - values[1].mean()
    left = effects.adjust(values, [r[:, None] for r in rest])
    assert plain == pytest.approx(2, abs=0.2)
    assert left[0].mean() - left[1].mean() == pytest.approx(0, abs=0.05)
    planted = effects.adjust([values[0] + 1, values[1]], [r[:, None] for r in rest])
    assert planted[0].mean() - planted[1].mean() == pytest.approx(1, abs=0.05)


def names_by_chance(seed: int, entries: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Entries with a value of their own, some with many mentions, and no groups at all."""
    random = np.random.default_rng(seed)
    counts = random.geometric(0.2, entries)
    owners = np.repeat(np.arange(entries), counts)
    return random.normal(0, 1, entries)[owners] + random.normal(0, 0.5, len(owners)), owners


def chance_ps(by_mention: bool) -> np.ndarray:
    """p-values of 400 random labellings; `by_mention` takes every mention for a witness of its own."""
    ps = []
    for seed in range(400):
        values, owners = names_by_chance(seed)
        label = np.random.default_rng(1000 + seed).permutation(40) < 20
        of = label[owners]
        entries = np.arange(len(values)) if by_mention else owners
        sums = [effects.entry_sums(values[at], entries[at].astype(str)) for at in (of, ~of)]
        ps.append(permutation_p(sums[0], sums[1], effects.find_means, seed, permutations=199))
    return np.array(ps)


def test_labels_by_chance_come_out_as_no_effect():
    ps = chance_ps(by_mention=False)
    # 400 draws at 5 %: between 2 % and 8 % but once in 300
    assert 0.02 <= (ps <= 0.05).mean() <= 0.08
    heights = np.linspace(0.1, 0.9, 9)
    assert np.abs([(ps <= h).mean() - h for h in heights]).max() < 0.08  # Kolmogorov's limit at 1 %


def test_mentions_taken_for_witnesses_would_see_effects_everywhere():
    assert (chance_ps(by_mention=True) <= 0.05).mean() > 0.2


def by_entry(values: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the entries, the first 20 as one group, the others as another."""
    return tuple(effects.entry_sums(values[at], owners[at].astype(str)) for at in (owners < 20, owners >= 20))


def test_calibration_finds_no_effect_in_random_labels_and_finds_what_is_planted():
    values, owners = names_by_chance(0)
    sums = by_entry(values, owners)
    detectable = effects.effect(
        (values[owners < 20], owners[owners < 20].astype(str)),
        (values[owners >= 20], owners[owners >= 20].astype(str)),
        0,
    ).detectable
    found = calibrate(("a", "b"), sums, detectable, labellings=200, seed=0)
    assert 0.01 <= found.false <= 0.1  # 200 draws at 5 %
    assert found.quartiles == pytest.approx((0.25, 0.5, 0.75), abs=0.12)  # Kolmogorov's limit at 1 %
    shares = [one.found for one in found.planted]
    assert shares == sorted(shares)
    assert shares[1] == pytest.approx(0.8, abs=0.15)
    assert [one.difference / detectable for one in found.planted] == pytest.approx([0.5, 1, 1.5])


def test_calibration_shows_a_test_that_is_wrong(monkeypatch):
    """A test whose p-values are too small by a factor of four calls too many random labellings an effect."""
    monkeypatch.setattr(calibration, "permutation_p", lambda *asked: effects.permutation_p(*asked) / 4)
    assert calibrate(("a", "b"), by_entry(*names_by_chance(0)), 1.0, labellings=200, seed=0).false > 0.12


def test_planted_differences_are_added_to_every_mention():
    values, owners = np.array([1.0, 2.0, 4.0]), ["a", "a", "b"]
    assert shift_entries(effects.entry_sums(values, owners), 0.5) == pytest.approx(
        effects.entry_sums(values + 0.5, owners)
    )


def test_the_bootstrap_draws_entries_not_mentions():
    values = np.array([5.0] * 50 + [0.0] * 50)
    one = effects.mean_with_interval(values, ["a"] * 50 + ["b"] * 50, seed=0)
    many = effects.mean_with_interval(values, [str(i) for i in range(100)], seed=0)
    assert (one.low, one.high) == (0.0, 5.0)
    assert 1.4 < many.low < many.high < 3.6


# ---- a model whose relevance is known: a bag of words

FILLER = "a film the is good bad great dull by with and un ##bear ##able !".split()
WOMEN = [f"w{i}" for i in range(30)]
MEN = [f"m{i}" for i in range(30)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *FILLER, *WOMEN, *MEN, "jr"]


def word_tokenizer() -> tf.PreTrainedTokenizerFast:
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({w: i for i, w in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return tf.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=32, **special)


TOKENS = word_tokenizer()


class Bag(nn.Module):
    """The logit of `positive` is the sum of the words' values, that of `negative` is 0."""

    def __init__(self, values: dict[str, float], labels: tuple[str, ...] = ("negative", "positive")) -> None:
        super().__init__()
        self.config = SimpleNamespace(id2label=dict(enumerate(labels)), pad_token_id=0)
        self.embed = nn.Embedding(len(VOCABULARY), len(labels), dtype=torch.float64)
        nn.init.zeros_(self.embed.weight)
        with torch.no_grad():
            for word, value in values.items():
                self.embed.weight[VOCABULARY.index(word), 1] = value
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        return (self.embed(input_ids) * attention_mask.unsqueeze(-1)).sum(1)


def values_of(bias: float) -> dict[str, float]:
    """Every name has a value of its own; those of men are `bias` higher."""
    random = np.random.default_rng(3)
    own = random.normal(0, 0.3, 60)
    names = {name: float(value) + (bias if name in MEN else 0) for name, value in zip(WOMEN + MEN, own, strict=True)}
    return {"good": 2.0, "great": 3.0, "bad": -2.0, "dull": -1.0, "##able": 0.5, **names}


def corpus() -> list[str]:
    """Each name in one to four sentences of either kind."""
    random = np.random.default_rng(4)
    words = ["good", "great", "bad", "dull"]
    return [
        f"a {words[random.integers(4)]} film by {name} and the {words[random.integers(4)]} film"
        for name in WOMEN + MEN
        for _ in range(int(random.integers(1, 5)))
    ]


GROUPS = {"women": WOMEN, "men": MEN}


def audited(bias: float = 0.0, groups=GROUPS, data=None, model=None, **options):
    settings = {"tokenizer": TOKENS, "groups": groups, "method": "gi", "permutations": 499, "progress": False}
    return audit_bias(model or Bag(values_of(bias)), data or corpus(), **{**settings, **options})


def test_planted_bias_is_found_and_has_its_size():
    found = audited(bias=1.0)
    c = found.compare("women", "men")
    assert c.effect.difference.low < -1 < c.effect.difference.high
    assert c.effect.p == c.corrected == pytest.approx(1 / 500)
    assert c.adjusted.difference.low < -1 < c.adjusted.difference.high
    assert c.verdict.startswith("men gets")
    assert found["women"].entries == 30
    assert found.target == "positive - negative"
    assert found.warnings == ()


def test_no_bias_is_not_found():
    c = audited(bias=0.0).compare("women", "men")
    assert c.effect.p > 0.05
    assert c.effect.difference.low < 0 < c.effect.difference.high
    assert c.verdict.startswith("No difference that chance would not explain")
    assert "no bias" not in c.verdict


@pytest.mark.slow
def test_a_planted_bias_is_gone_when_the_labels_are_shuffled():
    names = [*WOMEN, *MEN]
    ps = []
    for seed in range(30):
        order = np.random.default_rng(seed).permutation(60)
        shuffled = {"women": [names[i] for i in order[:30]], "men": [names[i] for i in order[30:]]}
        ps.append(audited(bias=1.0, groups=shuffled, permutations=199).comparisons[0].effect.p)
    assert sum(p <= 0.05 for p in ps) <= 5  # of 30 at 5 %, more than 5 come once in 300
    assert np.median(ps) > 0.2


def test_relevance_is_the_sum_over_the_words_of_a_mention():
    model = Bag({"good": 2.0, "un": 1.0, "##bear": 0.25, "##able": 0.5, "w1": 4.0, "jr": 0.125})
    found = audited(
        model=model, data=["a good film by w1 jr 's", "W1 unbearable"], groups={"g": ["w1 jr", "unbearable"]}
    )
    assert [(m.name, m.relevance, m.score) for m in found.mentions] == [
        ("w1 jr", 4.125, 6.125),
        ("unbearable", 1.75, 5.75),
    ]
    assert found.mentions[0].rest == 2.0
    # outside: a, good, film, by, 's in the first text, W1 in the second
    assert found.typical == pytest.approx((2 + 4) / 6)


def test_only_texts_with_a_mention_are_explained(monkeypatch):
    asked: list[str] = []
    original = headwater.bias.audit.explain

    def watched(model, texts, **options):
        asked.extend(texts)
        return original(model, texts, **options)

    monkeypatch.setattr("headwater.bias.audit.explain", watched)
    found = audited(data=["a good film", "w1 is good", "bad"], groups={"g": ["w1"]})
    assert asked == ["w1 is good"]
    assert (found.texts, len(found.mentions)) == (3, 1)


def test_small_groups_are_warned_of_and_get_no_verdict():
    found = audited(groups={"few": WOMEN[:5], "men": MEN, "none": ["unheard of"]})
    assert any(
        re.match(rf"few has 5 different entries .* Below {FEWEST}, nothing can be said", w) for w in found.warnings
    )
    assert any(w.startswith("No member of none stands in these texts") for w in found.warnings)
    assert not any(w.startswith("men has") for w in found.warnings)
    (c,) = found.comparisons
    assert not c.enough
    assert c.verdict.startswith("Too few to say anything: few has 5")
    with pytest.raises(UnknownName, match="none"):
        found["none"]


def test_one_entry_that_makes_up_a_group_is_warned_of():
    data = [*corpus(), *["a good film by w1"] * 60]
    assert any(w.startswith("'w1' makes up") for w in audited(data=data).warnings)


def test_a_method_that_does_not_conserve_is_warned_of():
    assert any("does not add up to the score" in w for w in audited(method="random").warnings)


def test_three_groups_are_compared_pairwise_with_a_correction():
    groups = {"x": WOMEN[:25], "y": MEN[:25], "z": [*WOMEN[25:], *MEN[25:]]}
    found = audited(bias=1.0, groups=groups)
    assert [(c.first, c.second) for c in found.comparisons] == [("x", "y"), ("x", "z"), ("y", "z")]
    assert [c.corrected for c in found.comparisons] == pytest.approx(
        correct_for_many([c.effect.p for c in found.comparisons])
    )
    assert found.comparisons[0].corrected == pytest.approx(3 / 500)
    with pytest.raises(UsageError, match="nothing to compare"):
        found.compare("x", "x")


def test_one_group_is_described_and_not_compared():
    found = audited(groups={"women": WOMEN})
    assert found.comparisons == ()
    assert "nothing is compared" in page(found)


def test_the_interval_over_one_entry_is_a_dash_and_null(tmp_path):
    found = audited(bias=1.0, groups={"women": WOMEN, "men": MEN[:1]}, swaps=1)
    assert np.isnan(found["men"].mean.low)
    shown, (table, *others) = page(found), audit_tables(found)
    assert [row[4] for row in table.rows if row[0] == "men"] == ["—"]
    assert [" to " in row[4] for row in table.rows if row[0] == "women"] == [True]
    assert f'{found["men"].mean.value:+.3f}<span class="i">—</span>' in shown
    assert not re.search(r"\bnan\b", shown)
    assert not any("nan" in cell for one in others for row in one.rows for cell in row)
    mean = json.loads(json.dumps(found.to_dict(), allow_nan=False))["whole"]["groups"][1]["mean"]
    assert mean == {"value": found["men"].mean.value, "low": None, "high": None}
    (written,) = found.save(tmp_path / "audit.json")
    assert json.loads(written.read_text(encoding="utf-8"))["whole"]["groups"][1]["mean"] == mean


def test_parts_are_reported_on_their_own():
    data = {"text": corpus(), "year": [str(2000 + i % 2) for i in range(len(corpus()))]}
    found = audited(bias=1.0, data=data, part_column="year")
    assert [part.name for part in found.parts] == ["2000", "2001"]
    assert sum(g.mentions for part in found.parts for g in part.groups) == len(found.mentions)
    ps = [part.comparisons[0].effect.p for part in found.parts]
    assert [part.comparisons[0].corrected for part in found.parts] == pytest.approx(correct_for_many(ps))


def test_analysis_needs_no_model():
    finder = read_groups({"g": ["w1"], "h": ["m1", "m2"]})
    stored = [
        Explained("w1 is good", [(0, 0), (0, 2), (3, 5), (6, 10)], [9.0, 1.0, 0.0, 2.0], 3.0, row=7),
        Explained("good m1 ! m2", [(0, 4), (4, 7), (8, 9), (10, 12)], [2.0, -1.0, 0.0, 0.5], 1.5),
    ]
    found = analyse(collect(stored, finder), finder, "a - b", "stored", {"model": "m", "data": "d"}, QUICK)
    assert [(m.entry, m.relevance, m.row) for m in found.mentions] == [("w1", 1.0, 7), ("m1", -1.0, 0), ("m2", 0.5, 0)]
    assert [(r.name, r.mean) for r in found.names] == [("w1", 1.0), ("m2", 0.5), ("m1", -1.0)]
    assert found.comparisons == ()  # one entry has no spread
    assert "a - b" in page(found)


def test_members_past_the_models_length_are_not_counted():
    text = " ".join(["good"] * 40) + " w1 and m1"
    with pytest.raises(DataError, match=r"row 1 of .*: the text has \d+ tokens, the model takes at most 32"):
        audited(data=["w1 is good", text], groups={"g": ["w1"], "h": ["m1"]})
    found = audited(data=["w1 is good", text], groups={"g": ["w1"], "h": ["m1"]}, truncate=True)
    assert len(found.mentions) == 1
    assert [(s.reason, s.occurrences) for s in found.skipped] == [(CUT_OFF, 2)]


def test_texts_come_in_many_forms(tmp_path):
    (tmp_path / "t.csv").write_text("review,label\nw1 is good,1\n", encoding="utf-8")
    assert read_texts(tmp_path / "t.csv", "review").texts == ["w1 is good"]
    assert read_texts([("w1", 1), ("m1", 0)]).texts == ["w1", "m1"]
    with pytest.raises(DataError, match=r"no column 'text'; it has review, label"):
        read_texts(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"row 1 of .*: the text is empty"):
        read_texts(["good", " "])
    drawn = read_texts([f"text {i}" for i in range(50)]).draw(10, seed=1)
    assert len(drawn) == 10
    assert drawn.texts == [f"text {row}" for row in drawn.rows]


def test_nothing_found_is_an_error():
    with pytest.raises(DataError, match=r"no member of g .* stands in the one text\."):
        audited(data=["a good film"], groups={"g": ["w1"]})


def test_the_score_is_the_difference_of_two_classes():
    assert default_target(Bag({})) == "positive - negative"
    assert default_target(Bag({}, ("POSITIVE", "NEGATIVE"))) == "POSITIVE - NEGATIVE"
    assert default_target(Bag({}, ("ham", "spam"))) == "spam - ham"
    assert default_target(Bag({}, ("a - b", "c"))) == "1 - 0"
    with pytest.raises(UsageError, match="classes a, b, c: say which score"):
        default_target(Bag({}, ("a", "b", "c")))
    other = audited(data=["w1 is good"], groups={"g": ["w1"]}, target="negative - positive", bias=1.0)
    same = audited(data=["w1 is good"], groups={"g": ["w1"]}, bias=1.0)
    assert other.mentions[0].relevance == pytest.approx(-same.mentions[0].relevance)


# ---- swaps


def test_swaps_find_what_only_the_names_do():
    """Women stand in bad sentences and men in good ones, and the names themselves bring nothing, then one more."""
    data = [f"a bad film by {w}" for w in WOMEN] + [f"a good film by {m}" for m in MEN]
    nothing = audited(model=Bag({"good": 2.0, "bad": -2.0}), data=data, swaps=3).swaps[0]
    assert nothing.effect.difference.value == pytest.approx(0)
    assert (nothing.places, nothing.trials) == (60, 60 * 2 * 3)
    more = audited(model=Bag({"good": 2.0, "bad": -2.0, **dict.fromkeys(MEN, 1.0)}), data=data, swaps=3).swaps[0]
    assert more.effect.difference.value == pytest.approx(-1)
    assert more.effect.p == pytest.approx(1 / 500)


def test_swaps_change_the_first_name_alone_and_keep_its_capitals():
    texts: list[str] = []

    def scores(asked):
        texts.extend(asked)
        return [0.0] * len(asked)

    def said(group: str, entry: str, name: str, text: str) -> Mention:
        start = text.index(name)
        return Mention(group, entry, name.lower(), 0.0, 0.0, 0, start, start + len(name), text)

    mentions = [
        said("f", "jane", "Jane Doe", "said Jane Doe ."),
        said("f", "amy", "amy", "amy said"),
        said("m", "tom", "TOM", "TOM !"),
        said("m", "jim", "jim", "by jim"),
    ]
    compare_swaps(mentions, scores, 1, QUICK)
    assert {re.sub("(?i)jane|amy", "F", re.sub("(?i)tom|jim", "M", t)) for t in texts[:2]} == {
        "said F Doe .",
        "said M Doe .",
    }
    assert all(t[5].isupper() and t[6].islower() for t in texts[:2])
    assert all(re.match("[A-Z]+ !", t) for t in texts[4:6])
    assert all(t.islower() for t in texts[2:4])


# ---- files and the page

HOSTILE = 'w1 <script>alert(1)</script> " onload="x" & m1'


def test_the_page_escapes_and_forbids_scripts():
    found = audited(data=[HOSTILE, *corpus()], groups={'<b onclick="y">': WOMEN, "men&co": [*MEN, "<script>"]})
    shown = page(found, heading="<i>heading</i>")
    assert "Content-Security-Policy" in shown
    assert "default-src 'none'" in shown
    for hostile in ("<script", "<b onclick", "<i>heading", 'onload="x"'):
        assert hostile not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert "men&amp;co" in shown
    assert not re.search(r"(src|href)=", shown)


def test_names_of_groups_are_shown_and_not_obeyed():
    found = audited(groups={"women\x1b[2J": WOMEN, "men\x07": MEN})
    drawn = histogram_file(*relevance_by_group(found))
    ElementTree.fromstring(drawn)
    for shown in (tables_as_text([], audit_tables(found)), drawn):
        assert not [c for c in shown if not c.isprintable() and c != "\n"]


def test_the_page_says_it_all():
    found = audited(bias=1.0, swaps=2)
    shown = page(found)
    for part in (
        "Relevance by group",
        "How the groups differ",
        "What pushes most",
        "The same texts",
        "Sentences",
    ):
        assert f"<h2>{part}" in shown
    assert found.comparisons[0].verdict in shown
    assert shown.count('<svg class="chart"') == 3
    assert "towards positive" in shown
    assert "towards negative" in shown
    best = found.names[0]
    assert f'<th scope="row">{best.name}</th><td>{best.group}</td>' in shown


def test_a_long_text_is_cut_around_its_mention():
    long = " ".join(["good"] * 300)
    one = Mention("g", "w1", "w1", 1.0, 1.0, 0, len(long) + 1, len(long) + 3, f"{long} w1 {long}")
    finder = SimpleNamespace(
        groups=("g",), source="s", rule="r", find=lambda text: Occurrences((Hit("g", "w1", 0, 2),))
    )
    kept = collect([Explained("w1", [(0, 2)], [1.0], 1.0)], finder)
    made = analyse(kept, finder, "t", "m", {"model": "m", "data": "d"}, QUICK)
    shown = page(headwater.bias.results.BiasAudit(**{**vars(made), "mentions": (one,)}))
    assert "… " in shown
    assert shown.count("good") < 120


def test_saving_by_ending_or_all(tmp_path):
    found = audited(bias=1.0)
    assert [file.name for file in found.save(tmp_path / "all")] == ["page.html", "audit.json", "mentions.csv"]
    written = json.loads((tmp_path / "all" / "audit.json").read_text(encoding="utf-8"))
    assert written["whole"]["comparisons"][0]["effect"]["difference"]["value"] == pytest.approx(
        found.comparisons[0].effect.difference.value
    )
    with (tmp_path / "all" / "mentions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.mentions)
    assert float(rows[0]["relevance"]) == found.mentions[0].relevance
    assert rows[0]["text"][int(rows[0]["start"]) : int(rows[0]["end"])] == rows[0]["name"]
    assert found.save(tmp_path / "p.html") == [tmp_path / "p.html"]
    (picture,) = found.save(tmp_path / "p.svg")
    drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    words = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {f"{g.name}: {g.mentions:,} mentions" for g in found.groups} <= set(words)
    with pytest.raises(UsageError, match=r"ends in none of \.html, \.json, \.csv"):
        found.save(tmp_path / "p.pdf")
    (tmp_path / "audit.v2").mkdir()
    assert [file.name for file in found.save(tmp_path / "audit.v2")] == ["page.html", "audit.json", "mentions.csv"]


def test_histograms_count_everything():
    edges = pictures.bins([-50.0, *np.linspace(-1, 1, 500), 70.0])
    assert -2 < edges[0] < edges[-1] < 2
    assert sum(pictures.bin_shares([-50.0, 0.0, 70.0], edges)) == pytest.approx(1)
    assert pictures.histogram({"a": [1.0], "b": [1.0, 1.0]}, "x")


def test_slow_tokenizers_are_refused():
    explanation = SimpleNamespace(offsets=None, text="a")
    with pytest.raises(InputError, match="fast tokenizer"):
        Explained.of(explanation)


# ---- the command


@pytest.fixture
def application(monkeypatch):
    def stand_in(*asked):
        return Bag(values_of(1.0)), TOKENS

    monkeypatch.setattr(bias_command, "load_chosen_model", stand_in)
    app = typer.Typer(cls=Commands)
    app.command("bias")(bias_command.command)
    app.callback()(lambda: None)
    return lambda *words, **options: CliRunner().invoke(app, ["bias", *words], **options)


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    texts, groups = tmp_path / "texts.jsonl", tmp_path / "groups.json"
    texts.write_text("\n".join(json.dumps({"text": t}) for t in corpus()) + "\n", encoding="utf-8")
    groups.write_text(json.dumps({"women": WOMEN, "few": MEN[:3]}), encoding="utf-8")
    return texts, groups


def test_the_command_prints_writes_and_warns(application, files, tmp_path):
    texts, groups = files
    asked = ("--data", str(texts), "--groups", str(groups), "--method", "gi", "--permutations", "99")
    done = application(*asked, "--plain", "--out", str(tmp_path / "out"), "--swaps", "1", "--calibrate", "20")
    assert done.exit_code == 0, done.output
    assert "20 random labellings of the entries of women and few" in done.stdout
    assert "relevance by group:" in done.stdout
    assert "women and few: Too few to say anything" in done.stdout
    assert "warning: few has 3 different entries" in done.stderr
    assert "20 random labellings" in (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    record = json.loads(application(*asked, "--json").stdout)
    assert [g["name"] for g in record["whole"]["groups"]] == ["women", "few"]
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "160"}
    coloured = application(*asked, env=terminal).stdout
    assert "\x1b[" in coloured
    assert "women - few" in coloured


def test_what_is_read_is_not_written_over(application, files, tmp_path):
    """Texts and groups were replaced by the results."""
    _, groups = files
    (tmp_path / "out").mkdir()
    texts = tmp_path / "out" / "mentions.csv"
    texts.write_text("text\n" + "\n".join(corpus()) + "\n", encoding="utf-8")
    for read, out in ((texts, texts), (groups, groups), (texts, texts.parent)):
        before = read.read_bytes()
        done = application("--data", str(texts), "--groups", str(groups), "--method", "gi", "--out", str(out))
        assert done.exit_code == 2
        assert f"{read.name} is read" in done.stderr.replace("\n", "")
        assert read.read_bytes() == before


def test_the_command_refuses_in_one_line(application, files, tmp_path):
    texts, groups = files
    for words, message in (
        (("--data", "nowhere.csv", "--groups", str(groups)), "there is no file nowhere.csv"),
        (("--data", str(texts), "--groups", "gender-nmes"), "Did you mean 'gender-names'"),
        (("--data", str(texts), "--groups", str(groups), "--out", str(tmp_path / "x.pdf")), "ends in none of"),
        (("--data", str(texts), "--groups", str(groups), "--method", "lpr"), "Did you mean 'lrp'"),
    ):
        done = application(*words)
        assert done.exit_code == 2
        assert message in done.stderr
        assert done.stdout == ""


def test_the_public_names():
    assert headwater.audit_bias is audit_bias
    assert headwater.BiasAudit.__name__ == "BiasAudit"
    assert {"audit_bias", "BiasAudit"} <= set(headwater.__all__)


# ---- SST-2


@pytest.mark.slow
def test_sst2_with_the_bundled_model():
    need_real_data()
    from headwater.models.bundled import load_bundled

    model, tokenizer = load_bundled()
    found = audit_bias(model, load("sst2", "dev"), tokenizer=tokenizer, permutations=499, progress=False)
    assert (found["female"].mentions, found["male"].mentions) == (34, 77)
    assert found.target == "positive - negative"
    assert found.warnings == ()
    shuffled = []
    for seed in range(20):
        entries = sorted({m.entry for m in found.mentions})
        label = dict(zip(entries, np.random.default_rng(seed).permutation(len(entries)) < 27, strict=True))
        mentions = [Mention(**{**vars(m), "group": "a" if label[m.entry] else "b"}) for m in found.mentions]
        values = [
            (np.array([m.relevance for m in mentions if m.group == g]), [m.entry for m in mentions if m.group == g])
            for g in "ab"
        ]
        shuffled.append(effects.effect(*values, seed=seed, permutations=199, resamples=50).p)
    assert sum(p <= 0.05 for p in shuffled) <= 4  # of 20 at 5 %, more than 4 come once in 300


def test_the_papers_study_is_one_flag(application, files, monkeypatch):
    texts, groups = files
    asked = []

    def audit(model, data, **options):
        asked.append(options)
        raise UsageError("asked")

    def chosen(name, *_):
        asked.append(name)
        return None, None

    monkeypatch.setattr("headwater.bias.audit.audit_bias", audit)
    monkeypatch.setattr(bias_command, "load_chosen_model", chosen)
    for words, model, method in (
        (["--paper"], bias_command.PAPERS_MODEL, "lrp(ah+ln)"),
        (["--paper", "--model", "mine", "--method", "gi"], "mine", "gi"),
        ([], None, None),  # the default for the kind of model
    ):
        asked.clear()
        application(*words, "--data", str(texts), "--groups", str(groups))
        assert asked[0] == model
        assert asked[1]["method"] == method


def test_the_papers_entities_are_a_set_of_groups():
    found = read_groups("entities").find("lee and barry meet chan, castro and sally jesse raphael")
    assert [(hit.group) for hit in found.hits] == [
        "western men",
        "western men",
        "non-western names",
        "politicians",
        "western women",
    ]
    with pytest.raises(UnknownName, match="Did you mean 'entities'"):
        read_groups("entites")
