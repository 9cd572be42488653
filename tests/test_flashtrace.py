"""FlashTrace's row against the package `flashtrace` itself, by numbers that the package gave."""

from __future__ import annotations

import pytest
import torch
from speaker import speaker, talker

from headwater.errors import NotApplicable
from headwater.evaluation.language.asking import AnsweringModel
from headwater.evaluation.language.flashtrace import FLASHTRACE, trace_answer
from headwater.inputs.prompt import tokenise_prompt

PROMPT, ANSWER = "the capital of France is in a good film.", "Paris. it was London and she said"

# FlashTrace(model, tokenizer).trace(prompt=PROMPT, target=ANSWER, hops=…).scores of flashtrace 0.1.1 with torch 2.13.0
# and transformers 5.23.0, attention "eager", on the weights of talker(name), saved and loaded again in float64.
PACKAGE = {
    ("llama", 0): [0.108968, 0.17328, 0.14141, 0.170472, 0.039917, 0.074405, 0.187575, 0.053831, 0.190446, 0.0],
    ("llama", 1): [0.122782, 0.200421, 0.168697, 0.198378, 0.049696, 0.090824, 0.238628, 0.068162, 0.221781, 0.0],
    ("llama", 2): [0.126691, 0.20457, 0.172388, 0.204631, 0.050404, 0.092548, 0.245477, 0.069017, 0.223574, 0.0],
    ("qwen3", 0): [0.04588, 0.141352, 0.189819, 0.126952, 0.025076, 0.081427, 0.12377, 0.18161, 0.202944, 0.0],
    ("qwen3", 1): [0.058729, 0.177819, 0.227616, 0.147395, 0.040045, 0.097562, 0.151527, 0.230952, 0.249383, 0.0],
    ("qwen3", 2): [0.06246, 0.18835, 0.235006, 0.153149, 0.045979, 0.101478, 0.156505, 0.239073, 0.258714, 0.0],
}


def trace(name: str, hops: int, answer: str = ANSWER) -> torch.Tensor:
    words = speaker()
    said = tokenise_prompt(words, PROMPT, None)
    return trace_answer(talker(name), words, said, words(answer, add_special_tokens=False)["input_ids"], hops)


@pytest.mark.parametrize(("name", "hops"), list(PACKAGE))
def test_it_gives_what_the_package_gives(name: str, hops: int) -> None:
    """The package adds up in float32, and its numbers are kept to six places."""
    expected = torch.tensor(PACKAGE[name, hops], dtype=torch.float64)
    torch.testing.assert_close(trace(name, hops), expected, rtol=0, atol=3e-6)


def test_full_stops_count_for_nothing_in_the_answer_too() -> None:
    """Where a full stop did weigh, an answer of full stops and one word would not be that word's alone."""
    assert float(trace("llama", 0)[-1]) == 0 < float(trace("llama", 0)[:-1].min())
    torch.testing.assert_close(trace("llama", 0, "Paris."), trace("llama", 0, "Paris"))


def test_it_is_a_row_of_the_study_for_one_token_and_for_a_whole_answer() -> None:
    asked = AnsweringModel(talker("llama"), speaker())
    whole, first = (asked.pose(PROMPT, f" {ANSWER}", whole=one) for one in (True, False))
    assert len(whole.answer) > len(first.answer) == 1
    torch.testing.assert_close(torch.from_numpy(asked.relevance(whole, FLASHTRACE, 0)), trace("llama", 1))
    assert asked.relevance(first, FLASHTRACE, 0).min() >= 0


def test_a_model_that_information_flow_routes_cannot_follow_is_refused() -> None:
    asked = AnsweringModel(talker("t5-lm"), speaker())
    with pytest.raises(NotApplicable):
        asked.relevance(asked.pose(PROMPT, ANSWER, whole=True), FLASHTRACE, 0)
