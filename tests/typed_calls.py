"""What type checkers, and so editors, know of the public functions: checked by mypy, never run."""

from __future__ import annotations

from typing import Any, assert_type

from torch import nn

import headwater as hw

Chat = list[dict[str, str]]


def check_functions(model: nn.Module, tokenizer: Any, chats: list[Chat]) -> None:
    assert_type(hw.explain(model, "a", tokenizer=tokenizer), hw.Explanation)
    assert_type(hw.explain(model, ("a", "b"), tokenizer=tokenizer), hw.Explanation)
    assert_type(hw.explain(model, ["a"], tokenizer=tokenizer), list[hw.Explanation])
    assert_type(hw.compare(model, "a", tokenizer=tokenizer), hw.Comparison)
    assert_type(hw.audit(model, "a", tokenizer=tokenizer), hw.Audit)
    assert_type(hw.explain(model, "a", tokenizer=tokenizer, inside=["heads"]).inside, hw.Inside | None)
    assert_type(hw.patch(model, "a", "layer 0", with_="b", tokenizer=tokenizer), hw.PatchEffect)
    assert_type(hw.patch_each(model, "a", ["layer 0"], tokenizer=tokenizer), list[hw.PatchEffect])
    assert_type(hw.patch_each(model, "a", ["layer 0"], exact=5, tokenizer=tokenizer), list[hw.PatchEffect])
    assert_type(hw.difference(model, "a", "b", inside="heads", tokenizer=tokenizer).inside, hw.Inside)
    assert_type(hw.explain_generation(model, "a", tokenizer=tokenizer), hw.Generation)
    assert_type(hw.explain_generation(model, ["a"], tokenizer=tokenizer), list[hw.Generation])
    assert_type(hw.explain_generation(model, chat=chats[0], tokenizer=tokenizer), hw.Generation)
    assert_type(hw.explain_generation(model, chat=chats, tokenizer=tokenizer), list[hw.Generation])
    assert_type(hw.explain_answer(model, "a", tokenizer=tokenizer, documents=["b"]), hw.AnswerExplainer)
    assert_type(hw.explain_answer(model, "a", tokenizer=tokenizer).whole(), hw.SpanExplanation)
    assert_type(hw.explain_answer(model, ["a", "b"], tokenizer=tokenizer), list[hw.AnswerExplainer])
    assert_type(hw.explain_answer(model, "a", tokenizer=tokenizer).report(), hw.AnswerReport)


def check_session(session: hw.ExplainSession) -> None:
    assert_type(session.explain("a"), hw.Explanation)
    assert_type(session.explain(["a"]), list[hw.Explanation])
    assert_type(session.generate("a"), hw.Generation)
    assert_type(session.generate(["a"]), list[hw.Generation])


def check_files() -> None:
    assert_type(hw.Explanation.load("e.json"), hw.Explanation)
    assert_type(hw.Comparison.load("c.json"), hw.Comparison)
    assert_type(hw.Generation.load("g.json"), hw.Generation)
    assert_type(hw.Audit.load("a.json"), hw.Audit)
    assert_type(hw.Explanation.load("e.json").probability, float | None)
