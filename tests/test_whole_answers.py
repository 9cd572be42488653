"""Protocols of whole answers: the sum over their tokens is scored and explained, and choices are written by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from speaker import speaker, talker

import headwater as hw
from headwater.errors import NotApplicable, UnknownName, UsageError
from headwater.evaluation.language.asking import AnsweringModel, PosedPrompt, score_answers
from headwater.evaluation.language.catalogue import hotpot, needles, resolve_language_protocol
from headwater.evaluation.language.needles import Needles, PosedNeedle
from headwater.evaluation.language.study import measure_faithfulness

PROMPT, ANSWER = "the capital of France is in a", "good film . Paris"


def pose(name: str, whole: bool = True) -> tuple[AnsweringModel, PosedPrompt]:
    asked = AnsweringModel(talker(name), speaker())
    return asked, asked.pose(PROMPT, ANSWER, whole=whole)


@pytest.mark.parametrize("name", ["llama", "mistral", "t5-lm"])
def test_a_whole_answer_has_the_sum_of_its_tokens_log_probabilities(name: str) -> None:
    asked, prompt = pose(name)
    ids, answer = torch.tensor([prompt.ids]), torch.tensor([prompt.answer])
    with torch.no_grad():
        if name == "t5-lm":
            start = torch.cat([torch.tensor([[0]]), answer[:, :-1]], 1)
            rows = asked.model(input_ids=ids, decoder_input_ids=start).logits[0]
        else:
            rows = asked.model(input_ids=torch.cat([ids, answer], 1)).logits[0, len(prompt.ids) - 1 : -1]
    slow = sum(float(row.log_softmax(-1)[token]) for row, token in zip(rows, prompt.answer, strict=True))
    other = prompt.ids[:-2]
    found = asked.score_answers([prompt.ids, other, prompt.ids], prompt.answer)
    assert found == pytest.approx([slow, score_answers(asked.model, [other], prompt.answer)[0], slow], abs=1e-9)
    assert found[0] != pytest.approx(found[1], abs=1e-6)


def test_the_first_token_alone_is_what_it_was() -> None:
    asked, prompt = pose("llama", whole=False)
    assert len(prompt.answer) == 1
    expected = asked.log_probabilities([prompt.ids], prompt.answer)[:, 0]
    assert asked.score_answers([prompt.ids], prompt.answer) == pytest.approx(expected, abs=1e-12)


def test_our_row_is_the_whole_answer_as_a_user_gets_it() -> None:
    asked, prompt = pose("llama")
    answer = hw.explain_answer(
        asked.model, prompt=PROMPT, tokenizer=speaker(), answer=list(prompt.answer), sinks="show", score="logit"
    )
    expected = answer.whole().relevance[: len(prompt.ids)].double().numpy()
    assert asked.relevance(prompt, "lrp-language@logit", 0) == pytest.approx(expected, abs=1e-12)
    tokens = [asked.relevance(PosedPrompt(**{**vars(prompt), "answer": prompt.answer[:1]}), "lrp-language@logit", 0)]
    assert np.abs(tokens[0] - expected).max() > 1e-6


def test_a_copy_in_another_dtype_reads_what_is_perturbed_and_explains_nothing_else() -> None:
    asked, prompt = pose("llama")
    exact, coarse = (asked.score_answers([prompt.ids], prompt.answer, dtype=dtype)[0] for dtype in ("own", "float32"))
    assert exact != coarse
    assert exact == pytest.approx(coarse, abs=1e-4)
    assert asked.in_dtype("float32") is asked.in_dtype("float32") is not asked.model
    own, other = (asked.relevance(prompt, "lrp-language", 0, dtype) for dtype in ("own", "float32"))
    assert (own == other).all()
    own, other = (asked.relevance(prompt, "leave-one-out@logprob", 0, dtype) for dtype in ("own", "float32"))
    assert (own != other).any()
    assert own == pytest.approx(other, abs=1e-3)


def test_a_peer_that_explains_one_token_refuses_a_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, prompt = pose("llama")
    monkeypatch.setattr("headwater.plugins.load_all", lambda group: {"peer": lambda *given: torch.zeros(1)})
    with pytest.raises(NotApplicable, match="one token"):
        asked.relevance(prompt, "peer", 0)


def test_choices_are_written_behind_the_name() -> None:
    rule = resolve_language_protocol("needles(answer=whole, most_tokens=600,steps=10,least_probability=0.2)")
    assert rule == Needles(answer="whole", most_tokens=600, steps=10, least_probability=0.2)
    assert str(rule) == "needles 2(least_probability=0.2,most_tokens=600,answer=whole,steps=10)"
    assert resolve_language_protocol("hotpot") == hotpot
    assert str(needles) == "needles 2"


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("needle", UnknownName),
        ("needles(tokens=3)", UnknownName),
        ("needles(answer=half)", UnknownName),
        ("needles(steps=few)", UsageError),
        ("needles(steps=0)", UsageError),
        ("hotpot(top=1+2)", UsageError),
    ],
)
def test_choices_that_make_no_sense_are_refused(written: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        resolve_language_protocol(written)


def write_needles(directory: Path) -> None:
    records: dict[str, list[dict[str, Any]]] = {
        "essays": [{"title": f"e{i}", "text": "she said it was. " * 30} for i in range(6)],
        "needles_mrt": [
            {
                "question": f"w{i}?",
                "needles": ["The capital is Paris.", "London is good."],
                "gt_answers": ["Paris", "good"],
            }
            for i in range(8)
        ],
    }
    for name, lines in records.items():
        path = directory / "llm" / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


def test_all_needles_are_one_answer_and_one_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_needles(tmp_path)
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    rule = Needles(answer="whole", most_tokens=50, least_probability=0, steps=5, reads_in="float32")
    cases = rule.read("needles_mrt", "choose", speaker()).cases
    case = cases[0]
    assert case.text.endswith("?\nAnswer:")
    assert case.answer == " The capital is Paris. London is good."
    assert [case.text[slice(*place)] for place in case.needles] == ["The capital is Paris.", "London is good."]
    assert len(cases) == len({one.text for one in cases}) < 8
    monkeypatch.setattr(PosedNeedle, "hangs_on_context", True)  # nothing does, of a model with random weights
    rows = ["random", "later-words", "flashtrace", "contextcite(4)@logprob", "lrp-language"]
    found = measure_faithfulness(talker("llama"), speaker(), [rule], sets=["needles_mrt"], methods=rows, count=2)
    assert found.methods == tuple(rows)
    assert {row.protocol for row in found.rows} == {str(rule)}
    assert all(set(row.values) == {"rise", "mas", "recovery"} for row in found.rows)
