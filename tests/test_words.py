"""Words over many rows: joined as a reader would, punctuation apart, and no relevance lost on the way."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headwater.store.words import count_words, whole_words


def row(text: str, pieces: str, target: str = "yes", word_ids: list[int] | None = None) -> dict[str, Any]:
    """A row whose tokens are cut at `|`, each with relevance 1; spaces belong to no token."""
    spans, at = [], 0
    for piece in pieces.split("|"):
        start = text.index(piece, at)
        at = start + len(piece)
        spans.append((start, at))
    return {
        "text": text,
        "relevance": [1.0] * len(spans),
        "special": [False] * len(spans),
        "starts": [start for start, _ in spans],
        "ends": [end for _, end in spans],
        "word_ids": word_ids,
        "target": target,
    }


def words(given: dict[str, Any]) -> list[str]:
    return [given["text"][word.start : word.end] for word in whole_words(given)]


@pytest.mark.parametrize(
    ("text", "pieces", "ids", "expected"),
    [
        ("it isn't bad.", "it|isn|'|t|bad|.", [0, 1, 2, 3, 4, 5], ["it", "isn't", "bad", "."]),  # BERT
        ("it isn't bad.", "it| isn|'t| bad|.", [0, 1, 2, 3, 4], ["it", "isn't", "bad", "."]),  # GPT-2
        ("a well-made film", "a|well|-|made|film", [0, 1, 2, 3, 4], ["a", "well-made", "film"]),
        ("over|long".replace("|", ""), "over|long", [0, 0], ["overlong"]),  # word pieces
        ("bad film.", "bad|film|.", [0, 1, 1], ["bad", "film", "."]),  # a tokenizer that cuts at spaces alone
        ("it 's fine", "it|'|s|fine", [0, 1, 2, 3], ["it", "'s", "fine"]),  # as corpora write it
        ("'fine' films", "'|fine|'|films", [0, 1, 2, 3], ["'", "fine", "'", "films"]),  # quotes are no apostrophes
        ("in 1,000.5 days", "in|1|,|000|.|5|days", [0, 1, 2, 3, 4, 5, 6], ["in", "1,000.5", "days"]),
        ("wait ... what?!", "wait|.|.|.|what|?|!", [0, 1, 2, 3, 4, 5, 6], ["wait", "...", "what", "?!"]),
        ("好电影", "好|电|影", [0, 1, 2], ["好", "电", "影"]),  # cut by the tokenizer, and left so
        ("बहुत अच्छी", "बहु|त|अच्छी", [0, 0, 1], ["बहुत", "अच्छी"]),
    ],
)
def test_words_are_joined_as_a_reader_would(text, pieces, ids, expected):
    assert words(row(text, pieces, word_ids=ids)) == expected


def test_without_places_there_are_no_words_and_special_tokens_are_none():
    given = row("a film", "a|film")
    assert words({**given, "starts": None}) == []
    assert words({**given, "special": [True, False]}) == ["film"]


def test_classes_are_never_mixed_and_nothing_is_lost():
    rows = [row("good, good", "good|,|good", "yes"), row("Good.", "Good|.", "no"), row("good", "good", "yes")]
    found = count_words(rows, least=1)
    assert [(one.target, one.rows) for one in found] == [("yes", 2), ("no", 1)]
    assert [(w.text, w.count, w.mean, w.total) for w in found[0].words] == [("good", 3, 1, 3)]
    assert [w.text for w in found[0].punctuation] == [","]
    assert [w.text for w in found[1].words] == ["good"]
    everything = sum(w.total for one in found for w in (*one.words, *one.punctuation))
    assert everything == sum(len(one["relevance"]) for one in rows)


def test_of_many_rows_a_rare_word_is_left_out_and_of_few_none_is():
    rare = row("rare", "rare")
    assert [w.text for w in count_words([rare])[0].words] == ["rare"]
    many = count_words([rare, *[row("good", "good")] * 60])[0]
    assert ([w.text for w in many.words], many.least) == (["good"], 3)


def test_a_window_is_drawn_only_where_it_is_asked_for():
    from headwater.viz.svg import picture

    framed, bare = picture("a film"), picture("a film", frame=False)
    assert framed.count("<circle") == 3  # the window's buttons
    assert "<circle" not in bare
    assert "a&#160;film" in bare
    wide, high, *_, width, height = map(float, re.findall(r"[\d.]+", bare.partition(">")[0].partition("<svg")[2])[:6])
    assert (wide, high) == (2 * width, 2 * height)
