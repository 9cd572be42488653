"""Texts that begin alike, read from where they part: the same numbers as in full, and only where a model allows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from speaker import speaker, talker

import headwater as hw
from headwater.api import leave_out, prefix_cache
from headwater.api.answers import AnswerExplainer
from headwater.api.output_text import Text

DOCUMENTS = ["the capital of France is Paris. a good film.", "London is in w1 w2. she said it was good.", "w3 w4 w5."]


def answer(model: Any) -> AnswerExplainer:
    return hw.explain_answer(
        model, "w6 is w7", tokenizer=speaker(), documents=DOCUMENTS, answer=[5, 6, 7, 9], method="gi", score="logit"
    )


def texts_without(found: AnswerExplainer) -> list[Text]:
    """The same text without its last document, without its first, without the one between."""
    left = [leave_out.leave_out(found._material, found._places[0], [(number, None)]) for number in (2, 0, 1)]
    return [Text.of(found._session.model, speaker(), one.render(speaker())[0], found._text.output) for one in left]


def read_both_ways(name: str) -> tuple[list[torch.Tensor] | None, list[torch.Tensor]]:
    found = answer(talker(name))
    texts, cache = texts_without(found), found._reader.original.cache
    shared = None if cache is None else leave_out.measure_logprobs(found._session, texts, cache)
    return shared, leave_out.measure_logprobs(found._session, texts)


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3"])
def test_it_gives_what_reading_in_full_gives(name: str) -> None:
    shared, full = read_both_ways(name)
    assert shared is not None
    for one, other in zip(shared, full, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert float((full[0] - full[1]).abs().max()) > 1e-6  # they do differ from each other
    assert prefix_cache.TRUSTED[talker(name)]


@pytest.mark.parametrize("name", ["mistral", "gemma3", "t5-lm"])
def test_windows_and_encoders_are_read_in_full(name: str) -> None:
    """A window forgets the beginning, so its cache cannot be cut; an encoder reads both ways."""
    shared, full = read_both_ways(name)
    assert shared is None
    assert len(full) == 3


def test_a_report_reads_the_whole_prompt_once_and_then_what_follows_the_common_beginning() -> None:
    model = talker("llama")
    answer(model).report()  # now the model is trusted, and was looked at
    found, read = answer(model), []
    found.all_sentences()

    def note(module: Any, args: Any, kwargs: Any) -> None:
        read.append(kwargs["input_ids"].numel())

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    report = found.report()
    hook.remove()
    full = len(found._text.said.ids) + len(found._text.output) - 1
    assert len(read) == 1 + len(report.tried) + len(report.without)
    assert read[0] == full
    assert sum(read[1:]) < 0.8 * full * len(read[1:])


def test_a_cache_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answer(talker("llama")).without(document=1).after
    monkeypatch.setattr(prefix_cache, "KEPT", 100)
    found = answer(talker("llama"))
    assert found._reader.original.cache is None
    assert found.without(document=1).after == pytest.approx(expected, abs=1e-10)


def test_a_model_whose_two_readings_differ_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    model = talker("llama")
    expected = answer(model).without(document=1).after
    monkeypatch.setattr(prefix_cache, "TRUSTED", {})
    plain = prefix_cache.PrefixCache.first

    def lose_a_token(cache: prefix_cache.PrefixCache, count: int) -> Any:
        return plain(cache, max(1, count - 1))

    monkeypatch.setattr(prefix_cache.PrefixCache, "first", lose_a_token)
    found = answer(model)
    left = found._reader.leave_out([((0, None),), ((1, None),)])
    assert not prefix_cache.TRUSTED[model]
    assert left[1].after == pytest.approx(expected, abs=1e-8)
