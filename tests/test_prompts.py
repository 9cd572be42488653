"""The prompts of a study: as many as said, all different, and nothing seen in one half is asked in the other."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from headwater.errors import UnknownName
from headwater_experiments.prompts import HALVES, KINDS, Prompt, prompts

NO_NAMES = set("Review The This My An Team Class Value Item Key Name Room Desk".split())
ALL = [prompt for half in HALVES for prompt in prompts(half)]


def names(prompt: Prompt) -> set[str]:
    """Words with a capital inside a text, numbers of things left out: people, places, works."""
    inside = re.findall(r"(?<![.\n] )(?<!^)\b[A-Z][a-z]+", prompt.text)
    return {*inside} - NO_NAMES


def question(prompt: Prompt) -> str:
    """A text without the worked examples before it: its last line, or the review."""
    lines = prompt.text.split("\n")
    return lines[-2] if prompt.kind == "sentiment" else prompt.text if prompt.kind == "copy" else lines[-1]


def operands(prompt: Prompt) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"\d+|[+*/-]", question(prompt))))


@pytest.mark.parametrize("half", HALVES)
def test_a_hundred_prompts_of_four_kinds(half):
    assert Counter(prompt.kind for prompt in prompts(half)) == dict.fromkeys(KINDS, 25)
    assert all(prompt.id.startswith(f"{half}-{prompt.kind}-") for prompt in prompts(half))


def test_no_prompt_comes_twice():
    assert len({prompt.id for prompt in ALL}) == len({question(prompt) for prompt in ALL}) == 200


def test_every_prompt_has_an_answer_and_holds_its_decisive_words():
    for prompt in ALL:
        assert prompt.answer.strip() == prompt.answer != ""
        assert prompt.text.rstrip() == prompt.text
        assert prompt.decisive
        assert all(re.search(rf"\b{re.escape(word)}\b", prompt.text) for word in prompt.decisive), prompt.id


def test_halves_share_no_name_no_fact_no_review_and_no_sum():
    choose, report = (prompts(half) for half in HALVES)
    assert set.union(*map(names, choose)) & set.union(*map(names, report)) == set()
    for kind in ("fact", "copy"):
        answers = [{p.answer.lower() for p in half if p.kind == kind} for half in (choose, report)]
        assert answers[0] & answers[1] == set()
    sums = [{operands(p) for p in half if p.kind == "arithmetic" and operands(p)} for half in (choose, report)]
    assert sums[0] & sums[1] == set()
    words = [{w for p in half if p.kind == "sentiment" for w in p.decisive} for half in (choose, report)]
    assert words[0] & words[1] <= {"no"}


def test_an_unknown_half_is_named():
    with pytest.raises(UnknownName, match="choose"):
        prompts("both")
