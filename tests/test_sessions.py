"""`hw.session`: a model made ready once, and what its explanations learn."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest
import torch
from tiny import tiny, tokenizer

import headwater as hw
from headwater.engine import model as engine_model
from headwater.engine import run_plans
from headwater.engine import session as engine_session
from headwater.engine.model_state import ModelState
from headwater.errors import TrainingMode, UsageError
from headwater.inputs import walking
from headwater.inputs.hooks import hook_modules

TEXTS = ("a good film", "a bad film that I saw", "not a good film, alas", "a film")


def test_it_says_what_explain_says() -> None:
    model = copy.deepcopy(tiny("bert"))
    with hw.session(model, tokenizer=tokenizer(), method="lrp") as session:
        assert session.model is model
        for text in TEXTS:
            ours, theirs = (
                session.explain(text),
                hw.explain(model, text, tokenizer=tokenizer(), method="lrp", plans=False),
            )
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
    plain = hw.explain_generation(model, "a good", tokenizer=tokenizer(), answer=[7, 9])
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


@pytest.mark.slow
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


def test_threads_share_a_session_and_what_it_learns() -> None:
    model = copy.deepcopy(tiny("bert"))
    data = {n: {"input_ids": torch.arange(5, 5 + n)[None]} for n in range(6, 20)}
    plain = {n: hw.explain(model, one, plans=False)[0].relevance for n, one in data.items()}
    wrong: list[object] = []
    ways: list[str] = []

    def work(number: int) -> None:
        for n in [*data][number % 2 :: 2] * 3:
            (found,) = session.explain(data[n])
            ways.append(found.provenance.way)
            if not torch.equal(found.relevance, plain[n]):
                wrong.append((n, found.provenance.way))

    with hw.session(model) as session:
        first = [session.explain(data[n])[0].provenance.way for n in (6, 19)]
        state = run_plans.PLANS[model].state
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run_plans.PLANS[model].state is state  # hooks of another thread's run are no change of the model
    assert first == ["plain", "plain"]
    assert wrong == []
    assert ways.count("plan") > len(ways) / 2


def test_hooks_on_this_thread_are_a_change_of_the_model() -> None:
    model = copy.deepcopy(tiny("bert"))
    state = ModelState.of(model)
    seen: list[bool] = []
    with hook_modules([model.bert], after=lambda *_: None):
        thread = threading.Thread(target=lambda: seen.append(state.holds(model)))
        thread.start()
        thread.join()
        assert not state.holds(model)
    assert seen == [True]
    assert state.holds(model)


@pytest.mark.slow
def test_batches_of_ever_other_sizes_are_hardly_ever_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    model, written = copy.deepcopy(tiny("bert")), []
    learn = run_plans.KindOfRun.learn
    monkeypatch.setattr(run_plans.KindOfRun, "learn", lambda kind, run: written.append(run.length) or learn(kind, run))
    for samples in range(1, 81):
        hw.explain(model, {"input_ids": torch.full((samples, 6), 7)}, batch_size=99)
    assert 2 <= len(written) <= 21
    ways = [hw.explain(model, {"input_ids": torch.full((2, 6), 7)})[0].provenance.way for _ in range(80)]
    assert ways[-1] == "plan"  # what comes again and again is written down after all


def test_the_longest_and_the_shortest_batch_come_first() -> None:
    model = copy.deepcopy(tiny("bert"))
    texts = ["good " * n for n in range(1, 9)]
    ways = [found.provenance.way for found in hw.explain(model, texts, tokenizer=tokenizer(), batch_size=1)]
    assert ways == ["plain", *["plan"] * 6, "plain"]


def test_a_model_that_is_known_is_not_walked_again_and_one_that_changed_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(tiny("bert", torch.float32))
    data = {"input_ids": torch.arange(5, 25)[None]}
    first = hw.explain(model, data)[0]
    hw.explain(model, data)
    walked, prepared = [], []
    walk, prepare = walking.walk_modules, engine_session.prepare_model
    monkeypatch.setattr(walking, "walk_modules", lambda model: walked.append(model) or walk(model))
    monkeypatch.setattr(engine_session, "prepare_model", lambda *args: prepared.append(args) or prepare(*args))
    assert torch.equal(hw.explain(model, data)[0].relevance, first.relevance)
    assert (walked, prepared) == ([], [])
    model.train()
    with pytest.raises(TrainingMode):
        hw.explain(model, data)
    model.eval()
    model.extra = torch.nn.Linear(2, 2).eval()
    assert torch.equal(hw.explain(model, data)[0].relevance, first.relevance)
    assert walked
    assert len(prepared) == 2


def test_a_known_model_is_still_copied_where_another_dtype_is_asked_for() -> None:
    model = copy.deepcopy(tiny("bert", torch.float32))
    data = {"input_ids": torch.arange(5, 25)[None]}
    for _ in range(3):
        hw.explain(model, data)
    assert hw.explain(model, data, dtype="float64")[0].provenance.dtype == "float64"
    assert hw.explain(model, data)[0].provenance.dtype == "float32"
