"""Prompts with other names: the same sentence, two other persons, and the answer is the one in the answer's place."""

from __future__ import annotations

from headwater_experiments.language.other_names import exchange_names

RECORDS = [
    {"prompt": "Then, Ann and Bo went to the park. Bo gave a rose to", "answer": "Ann"},
    {"prompt": "While Cy and Di were at work, Cy gave a peach to", "answer": " Di"},
    {"prompt": "After Eve and Flo had lunch, Eve gave Anna a kiss, and then", "answer": "Flo"},
]


def test_two_persons_are_replaced_and_all_else_stays() -> None:
    made = list(exchange_names(RECORDS, 5))
    assert len(made) == 15
    for number, one in enumerate(made):
        old = RECORDS[number // 5]
        names = {"Ann", "Bo", "Cy", "Di", "Eve", "Flo"}
        frame = old["prompt"].split()
        for before, after in zip(frame, one["prompt"].split(), strict=True):
            own = before.strip(",.") in ("Ann", "Bo", "Cy", "Di", "Eve", "Flo")
            assert (before != after) == own
            assert not own or after.strip(",.") in names
        assert one["answer"] in one["prompt"]
        assert one["answer"] != old["answer"].strip()


def test_the_answer_takes_the_place_of_the_answer() -> None:
    for old, one in zip(RECORDS, exchange_names(RECORDS, 1), strict=True):
        place = [word.strip(",.") for word in old["prompt"].split()].index(old["answer"].strip())
        assert [word.strip(",.") for word in one["prompt"].split()][place] == one["answer"]


def test_names_are_drawn_the_same_each_time() -> None:
    assert list(exchange_names(RECORDS, 3)) == list(exchange_names(RECORDS, 3))
