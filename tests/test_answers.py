"""The study of answers: words and their tokens, what stands in for them, and measures that know the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speaker import Additive, likelihood, speaker, talker
from torch import nn
from typer.testing import CliRunner

from headwater.cli import app
from headwater.errors import InputError, UnknownName, UsageError
from headwater_experiments.answers.measuring import FRACTIONS, effects, first_words, measure_answer, rank_correlation
from headwater_experiments.answers.questions import Question, words_of
from headwater_experiments.answers.replacing import Answers, Substitutes
from headwater_experiments.answers.settings import OURS, Setting
from headwater_experiments.answers.study import StudyRow, paired_difference, study, study_page, summarise_settings
from headwater_experiments.prompts import Prompt, choose_prompts

TEXTS = ("the capital of France is", "a good film in London was it", "she said it was a good film.", "in Paris it is")
PROMPTS = tuple(
    Prompt(f"p{i}", "fact" if i < 2 else "copy", text, "Paris", ("France",)) for i, text in enumerate(TEXTS)
)


def ids(text: str) -> list[int]:
    return list(speaker()(text)["input_ids"])


def asked(text: str, model: nn.Module) -> Question:
    return Question.of(model, speaker(), Prompt("p", "fact", text, "", ()))


def test_words_are_runs_between_spaces_and_know_their_tokens():
    text = "Go to\n\nParis, now"
    offsets = [(0, 2), (2, 5), (5, 6), (6, 7), (7, 10), (10, 12), (12, 13), (13, 17)]
    found = list(words_of(text, offsets))
    assert [(w.text, w.positions) for w in found] == [
        ("Go", (0,)),
        ("to", (1,)),
        ("Paris,", (4, 5, 6)),
        ("now", (7,)),
    ]


def test_relevance_of_a_word_is_the_sum_of_its_tokens():
    question = Question(PROMPTS[0], (1, 2, 3), tuple(words_of("ab c", [(0, 1), (1, 2), (2, 4)])), 5)
    assert question.relevance(torch.tensor([1.0, 2.0, 4.0])) == [3.0, 4.0]


def test_one_word_cannot_be_ranked():
    with pytest.raises(InputError, match="has 1 word"):
        asked("France", Additive({}))


def test_other_words_of_as_many_tokens_stand_in_and_no_word_for_itself():
    model = Additive({})
    questions = [Question.of(model, speaker(), prompt) for prompt in PROMPTS]
    pool = Substitutes.of(speaker(), PROMPTS)
    for question in questions:
        for drawn in pool.draw(question, 20, seed=0):
            assert len(drawn) == len(question.ids)
            for word in question.words:
                own = tuple(question.ids[p] for p in word.positions)
                new = tuple(drawn[list(word.positions)].tolist())
                assert new != own
                others = set(pool.pool[question.prompt.kind, len(own)]) - {own}
                assert new in others or not others
    again = [d.tolist() for d in pool.draw(questions[0], 3, seed=0)]
    assert again == [d.tolist() for d in pool.draw(questions[0], 3, seed=0)]
    assert again != [d.tolist() for d in pool.draw(questions[0], 3, seed=1)]


@pytest.fixture
def known() -> Answers:
    """France counts 3, capital 1, the other words nothing; what stands in counts nothing, too."""
    values = dict(zip(ids("France capital"), (3.0, 1.0), strict=True))
    question = asked("the capital of France is", Additive(values))
    nothing = torch.tensor(ids("a film in London it"))
    return Answers(Additive(values), question, [nothing])


def test_kept_words_stay_and_the_others_are_replaced(known):
    row = np.array([True, False, True, True, False])
    assert speaker().decode(known.put_together(row, known.substitutes[0])) == "the film of France it"


def test_what_a_word_takes_along_is_what_it_was_worth(known):
    assert known.question.answer == 5
    probability = {value: float(np.exp(value) / (np.exp(value) + 119)) for value in (4, 3, 1, 0)}
    expected = [0, np.log(probability[4] / probability[3]), 0, np.log(probability[4] / probability[1]), 0]
    assert effects(known) == pytest.approx(expected)


def test_the_truth_is_best_in_every_measure_and_its_opposite_worst(known):
    taken = effects(known)
    true = measure_answer(known, [0.0, 1.0, 0.0, 3.0, 0.0], taken)
    wrong = measure_answer(known, [3.0, 0.5, 2.0, 0.0, 1.0], taken)
    assert true.found
    assert not wrong.found
    assert true.activation > wrong.activation
    assert true.pruning < wrong.pruning
    assert true.agreement > 0.6 > 0 > wrong.agreement


def test_areas_are_those_of_the_curves(known):
    """Five words: after 0, 0, 1, 2, … words put back, by hand."""
    found = measure_answer(known, [0.0, 1.0, 0.0, 3.0, 0.0], effects(known))

    counts = [round(f * 5) for f in FRACTIONS]
    values = [likelihood((0, 3, 4, 4, 4, 4)[n]) / likelihood(4) for n in counts]
    assert found.activation == pytest.approx(np.trapezoid(values, FRACTIONS))
    changes = [np.log(likelihood((4, 4, 4, 4, 3, 0)[n]) / likelihood(4)) ** 2 for n in counts]
    assert found.pruning == pytest.approx(np.trapezoid(changes, FRACTIONS))


def test_first_words_grow_from_none_to_all():
    rows = first_words(np.array([2, 0, 1]))
    assert rows[0].tolist() == [False] * 3
    assert rows[-1].tolist() == [True] * 3
    assert rows[4].tolist() == [False, False, True]


def test_rank_correlation_without_ranks_is_zero():
    assert rank_correlation(np.ones(3), np.arange(3)) == 0
    assert rank_correlation(np.array([1.0, 5.0, 9.0]), np.array([0.0, 0.1, 7.0])) == pytest.approx(1)


@pytest.mark.parametrize("text", ["lrp", "lrp@contrast", "lrp-gamma(0.02)@logprob+aside", "attnlrp@aside"])
def test_a_setting_reads_as_it_is_written(text):
    assert str(Setting.parse(text)) == text


def test_an_unknown_score_is_named():
    with pytest.raises(UnknownName, match="'loss'"):
        Setting.parse("lrp@loss")


def test_a_study_goes_on_where_it_stopped_and_is_not_mixed_with_another(tmp_path):
    model, out = talker("llama"), tmp_path / "study.jsonl"
    whole = list(study(model, speaker(), PROMPTS, ["lrp@contrast", "random"], draws=2))
    assert len(whole) == 8
    part = study(model, speaker(), PROMPTS, ["lrp@contrast", "random"], draws=2, out=out)
    begun = [next(part) for _ in range(3)]
    part.close()
    resumed = list(study(model, speaker(), PROMPTS, ["lrp@contrast", "random"], draws=2, out=out))
    assert resumed == whole
    assert begun == whole[:3]
    assert len(out.read_text().splitlines()) == 9
    with pytest.raises(UsageError, match="holds another study"):
        list(study(model, speaker(), PROMPTS, ["random"], draws=3, out=out))


def test_a_part_of_the_prompts_gives_the_same_rows_as_all_of_them():
    model, settings = talker("gpt2"), ["random"]
    whole = list(study(model, speaker(), PROMPTS, settings, draws=2))
    part = list(study(model, speaker(), PROMPTS[2:], settings, pool=PROMPTS, draws=2))
    assert part == whole[2:]
    assert list(study(model, speaker(), PROMPTS[2:3], settings, draws=2)) != whole[2:3]


def test_the_page_has_a_row_a_setting_and_closed_ledgers():
    rows = list(study(talker("gpt2"), speaker(), PROMPTS, ["lrp@contrast", "gi@contrast", "random"], draws=2))
    found = summarise_settings(rows)
    assert set(found) == {"lrp@contrast", "gi@contrast", "random"}
    assert all(e.low <= e.value <= e.high for setting in found.values() for e in setting.values())
    assert max(r.ledger_error for r in rows if r.setting == "lrp@contrast") < 1e-9
    assert max(r.ledger_error for r in rows if r.setting == "gi@contrast") > 1e-3
    said = study_page(rows)
    assert "| `lrp@contrast` |" in said
    assert "| setting | fact | copy |" in said


def test_prompts_by_kind_and_number():
    found = choose_prompts("choose", ("copy", "fact"), 2)
    assert [p.kind for p in found] == ["fact", "fact", "copy", "copy"]
    with pytest.raises(UnknownName, match="'poem'"):
        choose_prompts("choose", ("poem",))


def test_the_command_says_what_it_wants():
    result = CliRunner().invoke(app, ["answers", "--help"])
    assert result.exit_code == 0
    assert "--settings" in result.output


def test_the_default_is_set_beside_the_others_prompt_by_prompt():
    rows = [
        StudyRow(f"p{i}", "fact", setting, "a", "b", "c", None, found, found, 0.5, 2.0 + i + found, 0.0)
        for i in range(4)
        for setting, found in ((OURS, True), ("attnlrp", i < 2))
    ]
    gap = paired_difference(rows, OURS, "attnlrp")
    assert gap["found"].value == pytest.approx(0.5)
    assert gap["pruning"].value == pytest.approx(0.5)
    assert gap["activation"].value == gap["activation"].low == gap["activation"].high == 0
    text = study_page(rows)
    assert f"`{OURS}` minus the others" in text
    assert "| `attnlrp` | 0.500 (" in text


def test_later_words_need_no_explanation():
    relevance, error = Setting.parse("later-words").words(None, None, asked(TEXTS[0], Additive({})), 0)
    assert relevance == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert error is None


def test_the_last_word_is_taken_out_of_the_question():
    """Of the words before the last, the second takes most; the explanation names it after the last."""
    words = ids(TEXTS[0])
    model = Additive({words[-1]: 5.0, words[1]: 3.0})
    question = asked(TEXTS[0], model)
    answers = Answers(model, question, [torch.zeros(len(question.ids), dtype=torch.long)])
    taken = effects(answers)
    relevance = [0.0] * len(question.words)
    relevance[-1], relevance[1] = 1.0, 0.5
    found = measure_answer(answers, relevance, taken)
    assert found.found
    assert found.before
    relevance[0] = 0.7
    assert not measure_answer(answers, relevance, taken).before
