"""The small language models of other builds: what they learn, and that their training runs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from real_data import need_real_data
from speaker import speaker, talker

from headwater.evaluation.language.asking import AnsweringModel
from headwater.evaluation.language.prompts import read_records
from headwater.models.loading import load
from headwater.results.ledger import Ledger, Lines
from headwater_experiments.language import lessons, score_parts, training
from headwater_experiments.language.lessons import Lesson, Material

STORY = Lesson("Then, Inez and Lorraine went to the zoo. Inez gave a plum to", " Lorraine")
PASSAGE = (
    "The tower was built by Eiffel in 1889 for the fair. It stands in Paris, near the river, and many people visit it."
)


def material() -> Material:
    reviews = [("A film that I loved from the first minute to the last, said Anna in Rome once more.", 1)] * 3
    return Material(reviews, [PASSAGE], [Lesson("The capital of France is", " Paris")], [STORY], ["Ada", "Bea", "Cleo"])


def test_names_of_a_story_are_replaced_and_the_answer_is_one_of_them() -> None:
    for seed in range(20):
        lesson = lessons.draw_story(material(), random.Random(seed))
        first, second = lessons.names_in(lesson)
        assert {first, second} < {"Ada", "Bea", "Cleo"}
        assert lesson.answer == f" {second}"
        assert lesson.prompt == STORY.prompt.replace("Inez", first).replace("Lorraine", second)


def test_the_answer_to_a_question_stands_in_its_passage() -> None:
    for seed in range(20):
        lesson = lessons.draw_question(material(), random.Random(seed))
        passage, question = lesson.prompt.split("\nQuestion: ")
        assert lesson.answer.strip() in passage
        assert "what" in question


def test_no_prompt_that_is_judged_is_learned_but_facts() -> None:
    need_real_data("prompts and reviews")
    found, draw = Material.read(), random.Random(0)
    reviews = {row["text"] for row in read_records("imdb_prompts")}
    stories = {row["prompt"] for row in read_records("ioi")}
    assert not reviews & {text for text, _ in found.reviews}
    assert not stories & {lessons.draw_story(found, draw).prompt for _ in range(200)}


@pytest.mark.parametrize("build", ["gpt2", "t5"])
def test_training_runs_and_what_it_saves_loads(build: str, tmp_path: Path) -> None:
    recipe = training.Recipe(steps=3, batch=2, length=40, warm_up=1)
    model, tokenizer = training.train(build, material(), recipe, "cpu", workers=0)
    training.save(model, tokenizer, tmp_path)
    again, _ = load(tmp_path)
    assert again.dtype is torch.float32
    assert type(again).__name__ == type(model).__name__


def test_parts_of_a_score_add_up_and_values_can_take_the_offset() -> None:
    """With its offset as a line, and with the values taking it: the same score, and no line of that name."""
    asked = AnsweringModel(talker("llama"), speaker())
    prompt = asked.pose("the capital of France is", None)
    parts = [score_parts.explain_parts(asked, prompt, row) for row in score_parts.ROWS]
    for one, other in zip(parts[:3], parts[3:], strict=True):
        assert one.score == pytest.approx(other.score, rel=1e-9)
        assert abs(one.offset) > 1e-3 * abs(one.score)
        assert other.offset == 0
    both = score_parts.add_up(parts[:2])
    assert both.words == pytest.approx(parts[0].words + parts[1].words)
    assert both.others == pytest.approx(parts[0].others + parts[1].others)


def test_lines_of_a_ledger_by_what_they_are() -> None:
    constants = {"layers.0.attn: attention offset": 2.0, "layers.1.attn: attention offset": 1.0, "attention sink": 0.5}
    ledger = Ledger(10.0, 4.0, biases=Lines({"bias": 1.0}), constants=Lines({**constants, "eps": 0.25}))
    parts = score_parts.ScoreParts.of(ledger)
    assert parts == score_parts.ScoreParts(10.0, 4.0, 1.0, 0.5, 3.0)
    assert parts.others == 1.5  # the other constants, and what is unaccounted for
    assert score_parts.write_shares("row", parts, 1) == "| `row` | 10.00 | 40% | 10% | 5% | 30% | 15% |"
