"""`hw.session`: a model made ready once, and what its explanations learn."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from tiny import tiny, tokenizer

import headwater as hw
from headwater.engine import model as engine_model
from headwater.engine import run_plans
from headwater.errors import UsageError

TEXTS = ("a good film", "a bad film that I saw", "not a good film, alas", "a film")


def test_it_says_what_explain_says() -> None:
    model = copy.deepcopy(tiny("bert"))
    with hw.session(model, tokenizer=tokenizer(), method="lrp") as session:
        assert session.model is model
        for text in TEXTS:
            ours, theirs = session.explain(text), hw.explain(model, text, tokenizer=tokenizer(), plans=False)
            assert torch.equal(ours.relevance, theirs.relevance)
        assert session.explain(TEXTS[1]).provenance.way == "plan"
        assert session.explain(TEXTS[1], method="gi").method == "gi"
        assert session.compare(TEXTS[0], methods=("gi", "lrp")).explanations[1].score == ours_score(model)
    assert model not in run_plans.PLANS


def ours_score(model: torch.nn.Module) -> float:
    return hw.explain(model, TEXTS[0], tokenizer=tokenizer(), plans=False).score


def test_generated_text() -> None:
    model = copy.deepcopy(tiny("llama"))
    with hw.session(model, tokenizer=tokenizer()) as session:
        found = session.generate("a good", answer=[7, 9])
    plain = hw.explain_generation(model, tokenizer(), "a good", answer=[7, 9])
    assert torch.equal(found.relevance, plain.relevance)
    assert found.method == plain.method


def test_half_precision_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, copies = copy.deepcopy(tiny("bert")).half(), []
    made = copy.deepcopy
    monkeypatch.setattr(engine_model.copy, "deepcopy", lambda *given: copies.append(given[0] is model) or made(*given))
    with hw.session(model, tokenizer=tokenizer()) as session:
        ways = [session.explain(text).provenance.way for text in (*TEXTS, *TEXTS)]
        assert next(session.model.parameters()).dtype is torch.float32
        assert "plan" in ways
        gone = weakref.ref(session.model)
    assert sum(copies) == 1
    gc.collect()
    assert gone() is None


def test_half_precision_that_is_asked_for_is_kept() -> None:
    model = copy.deepcopy(tiny("bert")).bfloat16()
    with hw.session(model, tokenizer=tokenizer(), dtype="bfloat16") as session:
        assert session.model is model
        assert session.explain(TEXTS[0]).provenance.dtype == "bfloat16"


def test_a_closed_session_says_so() -> None:
    session = hw.session(tiny("bert"), tokenizer=tokenizer())
    session.close()
    session.close()
    with pytest.raises(UsageError, match="was closed"):
        session.explain(TEXTS[0])


@pytest.mark.parametrize("option", [{"device": "cpu"}, {"dtype": "float64"}])
def test_what_belongs_to_the_session_is_not_asked_for_again(option: dict[str, str]) -> None:
    with (
        hw.session(tiny("bert"), tokenizer=tokenizer()) as session,
        pytest.raises(UsageError, match="is the session's"),
    ):
        session.explain(TEXTS[0], **option)


def test_two_thousand_explanations_of_random_lengths_keep_nothing() -> None:
    model, draw = copy.deepcopy(tiny("bert")), torch.Generator().manual_seed(0)

    def explain(count: int) -> None:
        for _ in range(count):
            length = int(torch.randint(4, 60, (), generator=draw))
            session.explain({"input_ids": torch.randint(5, 100, (1, length), generator=draw)})

    with hw.session(model) as session:
        explain(150)
        gc.collect()
        before, held = sum(type(o) is torch.Tensor for o in gc.get_objects()), resident()
        explain(1850)
        gc.collect()
        assert sum(type(o) is torch.Tensor for o in gc.get_objects()) <= before + 20
        assert resident() - held < 20 * 2**20
        plans = [plan for kind in run_plans.PLANS[model].kinds.values() for plan in kind.plans]
        assert 1 <= len(plans) <= run_plans.KEPT


def resident() -> int:
    """Bytes that the process has in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
