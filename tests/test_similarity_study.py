"""The study of similarities: what is removed, and that its numbers have the direction they claim."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from real_data import need_real_data
from test_similarity import A, B, encoder, similar
from tiny import tokenizer

from headwater_experiments.similarity import __main__ as command
from headwater_experiments.similarity import cost
from headwater_experiments.similarity.explaining import explain_pair
from headwater_experiments.similarity.pairs import QuestionPair, read_pairs
from headwater_experiments.similarity.rank_error import RankError, write_errors
from headwater_experiments.similarity.removing import MaskedPair, MaskedText
from headwater_experiments.similarity.study import lose_place, measure_pair, summarise, write_table


class WordCounter(torch.nn.Module):
    """Its vector has a dimension per token, so that shared words alone make texts similar."""

    def forward(self, input_ids, attention_mask):
        known = (input_ids != tokenizer().unk_token_id).unsqueeze(-1)
        return SimpleNamespace(last_hidden_state=torch.nn.functional.one_hot(input_ids, 120).double() * known)


def pair(model=None, a: str = "good film", b: str = "bad film") -> MaskedPair:
    model = model or WordCounter()
    return MaskedPair(MaskedText(model, tokenizer(), a), MaskedText(model, tokenizer(), b))


def test_words_that_are_removed_are_unknown():
    found = pair()
    none, film, bad = found.score(
        [(frozenset(), frozenset()), (frozenset(), frozenset([1])), (frozenset(), frozenset([0]))]
    )
    assert none == pytest.approx(3 / 4)  # [CLS], [SEP] and film, of four tokens each
    assert film == pytest.approx(2 / (2 * 3**0.5))
    assert bad == pytest.approx(3 / (2 * 3**0.5))


def test_the_right_order_is_good_and_the_reverse_is_bad():
    found = pair(a="good film", b="bad film of london")
    right = np.array([0.0, 1.0, 0.0, 0.0])
    assert found.measure_side(right, 1) > 0.1
    assert found.measure_side(-right, 1) < -0.1
    assert lose_place(found, SimpleNamespace(columns=right), nearest=0.7) == 1.0
    assert lose_place(found, SimpleNamespace(columns=right), nearest=0.1) == 0.0


def test_shared_words_are_the_first_pairs():
    found = pair(a="good film acting", b="film acting bad london of")
    small = np.arange(15).reshape(3, 5) / 1000  # no two pairs are alike
    matrix = np.add.outer([0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0, 0.0]) + small
    assert found.measure_pairs(matrix) > 0.1
    assert found.measure_pairs(-matrix) == pytest.approx(-found.measure_pairs(matrix))


def test_rules_and_leave_one_out_are_asked_word_by_word():
    found = pair(encoder(), A, B)
    s = similar(rank=16)
    made = explain_pair(found, "lrp")
    assert made.rows == pytest.approx([w.relevance for w in s.row_words()][1:-1], abs=1e-9)
    assert made.matrix == pytest.approx(s.words().matrix[1:-1, 1:-1].numpy(), abs=1e-9)
    two = explain_pair(found, "lrp@2")
    assert two.rows == pytest.approx(made.rows, abs=1e-9)
    assert two.matrix == pytest.approx(similar(rank=2).words().matrix[1:-1, 1:-1].numpy(), abs=1e-9)
    left = explain_pair(found, "leave-one-out")
    whole, without = found.score([(frozenset(), frozenset()), (frozenset([2]), frozenset())])
    assert left.rows[2] == pytest.approx(whole - without, abs=1e-9)


def test_the_two_parts_share_no_question_and_no_sentence():
    need_real_data("SQuAD and HotpotQA")
    parts = [read_pairs(part, 30) for part in ("choose", "report")]
    texts = [{text for one in part for text in (one.question, one.sentence)} for part in parts]
    assert not texts[0] & texts[1]
    assert {one.data for one in parts[0]} == {"squad", "hotpot"}


def test_pairs_that_were_seen_can_be_left_out(monkeypatch):
    pairs = [QuestionPair("squad", question, B) for question in "xyz"]
    monkeypatch.setattr(command, "read_pairs", lambda part, count: pairs[:count])
    assert command.choose_pairs("report", 3, 0) == pairs
    assert command.choose_pairs("report", 3, 2) == pairs[2:]


def test_a_cost_is_asked_for_every_method(monkeypatch, capsys):
    monkeypatch.setattr(cost.hw, "load", lambda name: (encoder(), tokenizer()))
    monkeypatch.setattr(cost, "read_texts", lambda words: (A, B))
    cost.main(["--ranks", "2", "--rounds", "1", "--methods", "lrp,lrp-secant"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1::2]] == [
        "lrp, rank  2, with oneDNN",
        "lrp-secant, rank  2, with oneDNN",
    ]


def test_a_table_has_every_method_and_its_difference():
    one = QuestionPair("squad", A, B, ("very dull",))
    rows = [measure_pair(encoder(), tokenizer(), one, ["lrp", "leave-one-out"]) for _ in range(2)]
    lines = summarise(rows, ["lrp", "leave-one-out"], "lrp")
    table = write_table(lines, "lrp")
    assert "`leave-one-out`" in table
    assert {line["difference"] for line in lines if line["method"] == "lrp"} == {0.0}


def test_a_further_sentence_of_evidence_counts_as_evidence_alone():
    one = QuestionPair("hotpot", "good film", "bad film", ("very dull",), further=True)
    row = measure_pair(WordCounter(), tokenizer(), one, ["leave-one-out"])
    assert list(row["evidence"]) == ["leave-one-out"]
    assert row["words of a"] == row["words of b"] == row["pairs"] == {}


def test_a_study_that_was_stopped_goes_on(monkeypatch, tmp_path, capsys):
    asked = []

    def measure(model, tokenizer, pair, methods):
        if len(asked) == 1:
            raise KeyboardInterrupt
        asked.append((pair.question, tuple(methods)))
        return {measure: {method: len(method) for method in methods} for measure in command.MEASURES}

    monkeypatch.setattr(command, "measure_pair", measure)
    monkeypatch.setattr(command, "read_pairs", lambda part, count: [QuestionPair("squad", q, B) for q in "xy"[:count]])
    monkeypatch.setattr(command.hw, "load", lambda name: (None, None))
    arguments = ["--methods", "lrp", "--out", str(tmp_path / "numbers.json")]
    with pytest.raises(KeyboardInterrupt):
        command.main(arguments)
    asked[:] = [()] * 2
    command.main(arguments)
    command.main([*arguments, "--methods", "lrp,lrp-secant"])
    assert asked[2:] == [("y", ("lrp",)), ("x", ("lrp-secant",)), ("y", ("lrp-secant",))]
    assert "| `lrp-secant` | 10.000 (-7.000" in capsys.readouterr().out


def test_what_few_directions_miss_is_nothing_where_there_are_all():
    exact, cut = similar(encoder()), similar(encoder(), rank=3)
    none, some = RankError.of(exact, exact), RankError.of(cut, exact)
    assert (none.missing, none.correlation) == (0.0, pytest.approx(1.0))
    assert some.missing > 1e-3 * some.whole
    assert some.correlation < 1 - 1e-6
    assert "from 0.00 to" in write_errors([RankError(1.0, 1e-9, 1.0, 1.0), some])
