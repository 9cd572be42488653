"""A verdict says in one sentence what the ledger says; explanations made by hand have one right answer each."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hostile import HOSTILE
from test_viz import MADE, on_screen, without_codes

import headwater as hw
from headwater.results.comparison import Comparison
from headwater.results.explanation import Explanation
from headwater.results.generation import Generation
from headwater.results.ledger import Ledger, Lines
from headwater.results.mask_test import MaskTest
from headwater.results.picture import Grid, ImageFrame, Picture
from headwater.results.verdict import percent
from headwater.viz.html import page, verdict_paragraph
from headwater.viz.plain import plain
from headwater.viz.terminal import render


def said(words: dict[str, float], biases: float = 0.0, lost: float = 0.0, probability: float | None = 0.997, **changes):
    """An explanation of these words, [CLS] before them."""
    tokens, amounts = ("[CLS]", *words), [changes.pop("cls", 0.0), *words.values()]
    text, offsets, at = " ".join(words), [(0, 0)], 0
    for word in words:
        offsets.append((at, at + len(word)))
        at += len(word) + 1
    inputs = float(sum(amounts))
    ledger = Ledger(inputs + biases + lost, inputs, Lines({"layer.0.bias": biases}))
    fields = {
        "tokens": tokens,
        "relevance": torch.tensor(amounts, dtype=torch.float64),
        "score": ledger.score,
        "target": "positive",
        "prediction": "positive",
        "ledger": ledger,
        "method": "lrp",
        "provenance": MADE,
        "text": text,
        "special": (True, *[False] * len(words)),
        "offsets": tuple(offsets),
        "word_ids": (None, *range(len(words))),
        "sequence_ids": (None, *[0] * len(words)),
    }
    return Explanation(**{**fields, **changes}).verdict(probability)


def test_one_word():
    found = said({"a": 0.1, "wonderful": 5.0, "film": 0.2})
    assert str(found) == "99.7 % positive, mostly because of *wonderful*"
    assert (found.cause, found.adds, found.against) == ("inputs", ("wonderful",), ())


def test_several_words_and_words_against():
    found = said({"warm": 2.0, "funny": 1.9, "kind": 1.8, "wise": 0.9, "long": -2.5})
    assert str(found) == "99.7 % positive, mostly because of *warm* and *funny*; *long* speaks against it"
    found = said({"warm": 2.0, "funny": 1.5, "kind": 1.4, "wise": 1.3, "calm": 1.2, "dull": -1.6, "slow": -1.6})
    assert found.adds == ("warm", "funny", "kind")
    assert str(found).endswith("*warm*, *funny* and *kind*; *dull* speaks against it")


def test_a_word_that_hardly_counts_is_not_named_as_speaking_against():
    assert said({"good": 5.0, "thin": -1.0}).against == ()
    assert said({"good": 5.0, **{f"w{i}": -0.3 for i in range(8)}}).against == ()


def test_nothing_stands_out():
    found = said({f"w{i}": 1.0 for i in range(9)} | {"most": 1.1})
    assert found.cause == "spread"
    assert str(found) == "99.7 % positive; no word stands out, *most* adds most"


def test_a_word_that_comes_twice_is_named_once():
    e = said({"not": 3.0, "one": 0.1})
    assert e.adds == ("not",)


def test_biases_dominate():
    found = said({"the": 0.1, "film": 0.2}, biases=3.0)
    assert found.cause == "fixed"
    assert str(found).endswith("the model's biases (+3.00), whatever the input is; of the input, *film* adds most")
    assert said({"good": 4.0}, biases=3.0).cause == "inputs"
    assert "special tokens" in str(said({"the": 0.1}, cls=2.0))


def test_a_special_token_is_never_named():
    assert "[CLS]" not in str(said({"good": 2.0, "bad": -1.5}, cls=-4.0))


def test_a_method_that_loses_the_score_is_told():
    found = said({"good": 0.2}, lost=3.0, method="gi")
    assert found.cause == "unaccounted"
    assert str(found) == "99.7 % positive; *gi* cannot say why: it leaves +3.00 of +3.20 unaccounted for"


def test_no_word_adds_or_none_counts():
    assert str(said({"bad": -2.0, "dull": -1.0})).endswith("no word adds, *bad* speaks most against it")
    assert said({"the": 0.0}).cause == "nothing"


def test_another_class_than_the_predicted_one():
    found = said({"good": -3.0, "thin": 1.0}, target="negative")
    assert str(found) == "99.7 % positive. negative (-2.00): held down mostly by *good*; *thin* speaks for it"
    found = said({"good": 3.0}, target="positive - negative")
    assert str(found) == "99.7 % positive, rather than negative (+3.00): mostly because of *good*"


def test_without_a_probability_the_score_is_said_and_a_probability_is_read_off_where_it_is_the_score():
    assert str(said({"good": 3.0}, probability=None)) == "positive (+3.00), mostly because of *good*"
    found = said({"good": 0.9}, probability=None, output="probability")
    assert str(found).startswith("90.0 % positive, mostly")
    assert str(said({"good": 3.0}, prediction=None, probability=None)).startswith("positive +3.00, mostly")


@pytest.mark.parametrize(
    ("share", "shown"), [(0.9973, "99.7 %"), (0.9999, "99.99 %"), (0.9999999, "over 99.99 %"), (1.0, "100.00 %")]
)
def test_a_probability_is_never_shown_as_all_where_it_is_less(share, shown):
    assert percent(share) == shown


def picture(cells: list[list[float]]) -> Explanation:
    values = torch.tensor(cells, dtype=torch.float64)
    grid = Grid(len(cells), len(cells[0]), (1, 1))
    total = float(values.sum())
    return Explanation(
        tokens=grid.names,
        relevance=values.flatten(),
        score=total,
        target="4",
        prediction="4",
        ledger=Ledger(total, total),
        method="lrp",
        provenance=MADE,
        image=Picture(grid, ImageFrame((6, 6), None)),
    )


def test_an_image_is_told_by_its_parts():
    cells = [[0.0] * 6 for _ in range(6)]
    cells[0][5], cells[1][4], cells[5][0] = 2.0, 2.0, -2.0
    found = picture(cells).verdict(0.9)
    assert str(found) == "90.0 % 4, mostly because of *the upper right*; *the lower left* speaks against it"
    assert picture([[0.0, 3.0]]).verdict().adds == ("row 1, column 2",)


def test_atoms_are_named_with_their_number():
    e = Explanation(
        ("C", "C", "N"), torch.tensor([0.1, 0.2, 3.0]), 3.3, "active", Ledger(3.3, 3.3), "lrp", MADE,
        prediction="active", edges=((0, 1, 0.0),),
    )  # fmt: skip
    assert e.verdict(0.8).adds == ("N 2",)


def test_entries_of_a_bare_tensor():
    values = torch.zeros(2, 3)
    values[1, 2] = 4.0
    e = Explanation((), values, 4.0, "score", Ledger(4.0, 4.0), "lrp", MADE)
    assert e.verdict().adds == ("[1, 2]",)


def test_generated_tokens():
    made = Generation(
        tokens=("The", "Ġcapital", "ĠFrance", "ĠParis"),
        pieces=("The", " capital", " France", " Paris"),
        prompt=3,
        relevance=torch.tensor([[0.0, 1.0, 4.0, 0.0]]),
        ledgers=(Ledger(7.0, 5.0, constants=Lines({"attention sink": 2.0})),),
        targets=("Paris",),
        probabilities=(0.631,),
        score="logit",
        method="lrp",
        provenance=MADE,
        roles=("prompt",) * 3 + ("output",),
        special=(False,) * 4,
        aside=(True, False, False, False),
    )
    assert str(made.verdict()) == "*Paris* (63.1 %), mostly because of *France*"
    large = replace(made, ledgers=(Ledger(14.0, 5.0, constants=Lines({"layers.0.self_attn: attention offset": 9.0})),))
    assert str(large.verdict()) == "*Paris* (63.1 %); among the tokens mostly because of *France*"


def test_a_comparison_takes_a_method_that_adds_up():
    closed, lost = Ledger(3.0, 3.0), Ledger(3.0, 0.5)
    words = {"prediction": "positive", "special": (False, False)}
    gi = Explanation(("good", "film"), torch.tensor([0.1, 0.4]), 3.0, "positive", lost, "gi", MADE, **words)
    lrp = Explanation(("good", "film"), torch.tensor([2.5, 0.5]), 3.0, "positive", closed, "lrp", MADE, **words)
    assert Comparison((gi, lrp)).verdict().adds == ("good",)
    assert Comparison((gi,)).verdict().cause == "unaccounted"


# where it is shown


def test_the_verdict_stands_above_everything():
    from headwater.models.bundled import load_bundled

    model, tokenizer = load_bundled()
    e = hw.explain(model, "The plot is thin, but the cast is wonderful.", tokenizer=tokenizer)
    assert e.verdict().adds == ("wonderful",)
    assert "wonderful" in " ".join(without_codes(on_screen(render(e))).splitlines()[:2])
    assert plain(e).startswith("verdict: ")
    assert "<strong>wonderful</strong>" in page(e)


@pytest.mark.parametrize("text", HOSTILE[::6])
def test_a_hostile_word_stays_text(text):
    from html import escape

    e = said({"a": 0.0}).phrases
    assert e
    shown = verdict_paragraph(MaskTest((text,), text, 1.0, 0.0, ((text, 1.0),)).phrases)
    assert escape(text) in shown
    assert text not in shown or escape(text) == text


# masking


def test_masking_says_who_was_nearer():
    found = MaskTest(("not",), "positive", 4.0, -1.2, (("lrp", 8.8), ("gi", 1.0)))
    assert str(found) == "Masking *not* took 5.20 from positive; *lrp* had said 8.80, *gi* 1.00: *lrp* was nearer"
    assert found.nearest == ("lrp",)


def test_a_score_that_rises_and_a_claim_of_the_other_sign():
    found = MaskTest(("thin",), "positive", 3.0, 5.0, (("lrp", -2.5), ("gi", 0.4), ("x", -0.1)))
    assert str(found).startswith("Masking *thin* added 2.00 to positive; *lrp* had said 2.50, *gi* -0.40, *x* 0.10")
    assert str(found).endswith(": *lrp* was nearest")


def test_who_is_far_off_did_not_come_near():
    found = MaskTest(("wonderful",), "p", 3.3, -1.6, (("lrp", 9.2), ("gi", 0.6)))
    assert str(found).endswith("*lrp* had said 9.20, *gi* 0.60: neither came near")


def test_ties_one_method_and_hardly_any_change():
    assert str(MaskTest(("a",), "p", 2.0, 1.0, (("x", 1.5), ("y", 0.5)))).endswith("both were equally near")
    off = MaskTest(("not",), "p", 0.59, 0.47, (("x", 0.44), ("y", 0.45)))  # both say almost four times what it took
    assert str(off).endswith("neither came near")
    assert MaskTest(("not",), "p", 0.59, 0.47, (("x", 0.44), ("y", 0.60))).nearest == ("x",)
    assert (
        str(MaskTest(("a", "b"), "p", 2.0, 1.0, (("x", 1.5),)))
        == "Masking *a* and *b* took 1.00 from p; *x* had said 1.50"
    )
    assert "hardly changed p (-0.01)" in str(MaskTest(("a",), "p", 2.0, 1.99, (("x", 1.5),)))
