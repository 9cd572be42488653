"""Recorded and replayed, an explanation says what it says otherwise. On a processor the work is done again instead.

`pytest tests/test_recording.py --gpu` makes real recordings on an NVIDIA card.
"""

from __future__ import annotations

import copy
import gc
import sys
import time
import traceback
import weakref
from functools import partial

import pytest
import torch
import transformers as tf
from tiny import BUILD, arguments, randomised, tiny
from torch.utils._python_dispatch import TorchDispatchMode

import headwater as hw
from headwater.engine.forward import Demand, Run
from headwater.engine.model import place_batch
from headwater.engine.options import Request, read_options
from headwater.engine.plan import make_plan
from headwater.engine.propagate import propagate
from headwater.evaluation.peak_memory import Meter
from headwater.inputs.targets import Reader
from headwater.memory import cuda_graphs
from headwater.memory.cuda_graphs import PassedOn, Recorder, recorded
from headwater.rules import RuleSet
from headwater.traces.capture import pause_garbage_collection
from headwater_experiments.bench import cost


def again(body, pool):
    """In place of a graph: the work itself."""
    return body


def other(inputs):
    """The same shapes with other tokens; the last stays, for some models read the text there."""
    if "input_ids" not in inputs:
        return {name: value.flip(-1) for name, value in inputs.items()}
    ids = inputs["input_ids"].clone()
    ids[:, :-1] = ids[:, :-1].flip(1)
    return {**inputs, "input_ids": ids}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILD)
def test_replayed_it_is_the_same(name: str) -> None:
    model, inputs = tiny(name), arguments(name)
    recorder = Recorder(call=again)
    plain = [hw.explain(model, given, method="lrp") for given in (inputs, other(inputs))]
    with recorder.at_work():
        found = [hw.explain(model, given, method="lrp") for given in (inputs, inputs, inputs, other(inputs))]
    assert recorder.replays >= 2 or recorder.refused, "nothing was replayed, and nobody says why"
    for ours, theirs in zip((*found[2], *found[3]), (*plain[0], *plain[1]), strict=True):
        torch.testing.assert_close(ours.relevance, theirs.relevance, rtol=1e-12, atol=1e-12)
        assert ours.score == pytest.approx(theirs.score, rel=1e-12)
        assert ours.ledger.biases.total == pytest.approx(theirs.ledger.biases.total, abs=1e-12)
        assert ours.ledger.closed


def generating_t5() -> torch.nn.Module:
    small = {"vocab_size": 120, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return randomised(tf.T5ForConditionalGeneration(tf.T5Config(**small, decoder_start_token_id=0)).double())


def test_an_encoder_decoder_that_generates() -> None:
    """Its decoder's first token is there when the batch is made ready, and not written into it on the way."""
    model, inputs = generating_t5(), arguments("t5")
    plain = [hw.explain(model, given, method="lrp") for given in (inputs, other(inputs))]
    recorder = Recorder(call=again)
    with recorder.at_work():
        found = [hw.explain(model, given, method="lrp") for given in (inputs, inputs, inputs, other(inputs))]
    assert recorder.replays >= 2
    for ours, theirs in zip((*found[2], *found[3]), (*plain[0], *plain[1]), strict=True):
        torch.testing.assert_close(ours.relevance, theirs.relevance, rtol=1e-12, atol=1e-12)
        assert ours.tokens == theirs.tokens
        assert ours.segments == theirs.segments
        assert "target" in ours.segments


def test_a_run_leaves_its_batch_as_it_was() -> None:
    model = generating_t5()
    batch = make_plan(Request(model, arguments("t5"), read_options()), model).steps[0].batch
    with pytest.raises(ValueError, match="input_ids"):  # what is not made ready has no first token
        propagate(Run(model, batch, Reader(model, None, 0)), Demand(RuleSet(frozenset())))
    assert "decoder_input_ids" not in batch.kwargs
    assert "decoder_input_ids" in place_batch(model, batch).kwargs


def is_known(place: str) -> bool:
    return "headwater" in place or "transformers" in place


class Asked(TorchDispatchMode):
    """Notes operations that want a number from the card, or bring one there: neither can be recorded."""

    OPERATIONS = (
        "aten._local_scalar_dense.default",
        "aten.equal.default",
        "aten.nonzero.default",
        "aten.lift_fresh.default",
    )

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if str(func) in self.OPERATIONS:
            stack = [f"{f.filename}:{f.lineno}" for f in traceback.extract_stack()]
            self.places.add(f"{func} at {[place for place in stack if is_known(place)][-2:]}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "lrp-query", "attnlrp"])
@pytest.mark.parametrize("name", ["bert", "llama", "qwen3", "gpt-neox"])
def test_nothing_is_asked_of_the_card_on_the_way(name: str, method: str) -> None:
    watch = Asked()

    def watched(body, pool):
        def call():
            with watch:
                return body()

        return call

    model, inputs = tiny(name, torch.float32), arguments(name, samples=1)
    with Recorder(call=watched).at_work():
        for _ in range(2):
            hw.explain(model, inputs, method=method)
    # Two are questions that the processor alone is asked: how to divide, what to leave out. The last is not put while a
    # card records.
    elsewhere = ("kernels/elementwise.py", "kernels/sparse_rows.py", "masking_utils.py")
    assert not [place for place in watch.places if not any(part in place for part in elsewhere)], watch.places


@pytest.mark.slow
def test_most_architectures_can_be_replayed() -> None:
    refused = []
    for name in BUILD:
        recorder = Recorder(call=again)
        with recorder.at_work():
            for _ in range(3):
                hw.explain(tiny(name), arguments(name, samples=1), method="lrp")
        if not recorder.replays:
            refused.append(name)
    assert refused == []


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3", "gemma2", "gpt-neox", "phi3", "mixtral"])
def test_a_decoder_is_recorded_without_looking_for_packed_texts(name: str) -> None:
    """Else transformers would make a mask while a card records."""
    recorder = Recorder(call=again)
    model, inputs = tiny(name), arguments(name, samples=1)
    with recorder.at_work():
        for _ in range(3):
            hw.explain(model, inputs, method="lrp")
    (captured_run,) = recorder.captured_runs.values()
    assert isinstance(captured_run.run.batch.kwargs["past_key_values"], PassedOn)
    assert not recorder.refused


def test_a_model_that_asks_is_told_that_no_card_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would do something else while it is recorded than it does otherwise."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)  # as while a card records
    model, told = BUILD["llama"]().eval(), []
    model.model.norm.register_forward_pre_hook(lambda *_: told.append(torch.cuda.is_current_stream_capturing()))
    with Recorder(call=again).at_work():
        for _ in range(2):
            hw.explain(model, arguments("llama"), method="lrp")
    assert told.count(False) == 1  # plainly, as often as it takes, and then for the recording
    assert told[-1] is False
    assert torch.cuda.is_current_stream_capturing()


def test_no_garbage_is_collected_while_a_card_records() -> None:
    """A graph among it would be destroyed, which ends the recording."""
    assert gc.isenabled()
    with pause_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_reason_is_what_went_wrong_first() -> None:
    def failing(body, pool):
        def call():
            try:
                raise RuntimeError("it looked at a number\nfor a reason that takes lines to tell")
            finally:
                raise RuntimeError("something went wrong before")

        return call

    recorder = Recorder(call=failing)
    with recorder.at_work():
        for _ in range(2):
            hw.explain(tiny("bert"), arguments("bert"), method="lrp")
    assert list(recorder.refused.values()) == ["it cannot be recorded: it looked at a number"]


def test_another_target_and_a_mask_are_heeded() -> None:
    model, inputs = tiny("bert"), arguments("bert")
    masked = {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])}
    masked["attention_mask"][1, 5:] = 0
    recorder, found = Recorder(call=again), []
    with recorder.at_work():
        for _ in range(2):
            hw.explain(model, inputs, method="lrp", target=0)
        for given, target in ((inputs, 1), (masked, 1), (masked, 0), (masked, 2), (masked, 1)):
            found.append((given, target, hw.explain(model, given, method="lrp", target=target)))
    assert recorder.replays == 3
    for given, target, ours in found:
        for a, b in zip(ours, hw.explain(model, given, method="lrp", target=target), strict=True):
            torch.testing.assert_close(a.relevance, b.relevance, rtol=1e-12, atol=1e-12)


def test_weights_that_moved_are_recorded_anew() -> None:
    model = BUILD["bert"]().eval()
    inputs = arguments("bert")
    recorder = Recorder(call=again)
    with recorder.at_work():
        for _ in range(3):
            hw.explain(model, inputs, method="lrp", target=0)
        assert recorder.replays == 1
        model.double().float()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        before = recorder.replays
        moved = hw.explain(model, inputs, method="lrp", target=0)
        assert recorder.replays == before or len(recorder.captured_runs) == 1
    for a, b in zip(moved, hw.explain(model, inputs, method="lrp", target=0), strict=True):
        torch.testing.assert_close(a.relevance, b.relevance)


def test_a_recording_that_says_something_else_is_not_used() -> None:
    """The first thing that a new recording is asked is what the plain run said."""

    def lying(body, pool):
        def call():
            found = body()
            return [2 * gradient for gradient in found] if isinstance(found, list) else found

        return call

    model, inputs = tiny("llama"), arguments("llama")
    recorder = Recorder(call=lying)
    with recorder.at_work():
        found = [hw.explain(model, inputs, method="lrp")[0] for _ in range(3)]
    assert not recorder.captured_runs
    assert "does not say" in next(iter(recorder.refused.values()))
    torch.testing.assert_close(found[0].relevance, found[2].relevance)


def test_only_so_many_shapes_are_kept() -> None:
    model = tiny("llama")
    recorder = Recorder(shapes=2, call=again)
    with recorder.at_work():
        for length in (5, 6, 7):
            for _ in range(2):
                hw.explain(model, arguments("llama", samples=1, length=length), method="lrp")
    assert len(recorder.captured_runs) == 2


def recordings_of(recorder: Recorder, lengths: tuple[int, ...]) -> list[weakref.ref]:
    """Explains each length twice, so that it is recorded: the recordings that are kept, not kept alive from here."""
    model = tiny("llama")
    with recorder.at_work():
        for length in lengths:
            for _ in range(2):
                hw.explain(model, arguments("llama", samples=1, length=length), method="lrp")
    return [weakref.ref(kept) for kept in recorder.captured_runs.values()]


@pytest.fixture
def no_garbage_collection():
    """A recording that is freed here is freed at once, and not when Python happens to look for cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_recording_that_is_given_back_is_freed_at_once() -> None:
    recorder = Recorder(call=again)
    kept = recordings_of(recorder, (5, 6))
    assert [ref() is None for ref in kept] == [False, False]
    recorder.release(keep=1)
    assert [ref() is None for ref in kept] == [True, False]
    recorder.release()
    assert [ref() is None for ref in kept] == [True, True]


@pytest.mark.usefixtures("no_garbage_collection")
def test_the_recording_used_longest_ago_goes_first() -> None:
    model, recorder = tiny("llama"), Recorder(shapes=2, call=again)
    first, second = recordings_of(recorder, (5, 6))
    with recorder.at_work():
        hw.explain(model, arguments("llama", samples=1, length=5), method="lrp")
    recordings_of(recorder, (7,))
    assert len(recorder.captured_runs) == 2
    assert first() is not None
    assert second() is None


class Card:
    """A stand-in for a card that holds so many recordings; a graph for one more is out of memory."""

    def __init__(self, holds: int) -> None:
        self.holds, self.held = holds, weakref.WeakSet()

    def call(self, body, pool):
        explanation = body.__self__
        if explanation not in self.held and len(self.held) >= self.holds:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.held.add(explanation)
        return body


@pytest.mark.usefixtures("no_garbage_collection")
def test_recordings_are_given_back_where_memory_is_short() -> None:
    card = Card(holds=2)
    recorder = Recorder(call=card.call)
    recordings_of(recorder, (5, 6, 7))
    assert len(recorder.captured_runs) == 1
    assert len(card.held) == 1
    assert not recorder.refused


def test_what_cannot_be_recorded_for_lack_of_memory_is_explained_all_the_same() -> None:
    recorder = Recorder(call=Card(holds=0).call)
    plain = hw.explain(tiny("llama"), arguments("llama", samples=1, length=5), method="lrp")[0]
    recordings_of(recorder, (5,))
    with recorder.at_work():
        found = hw.explain(tiny("llama"), arguments("llama", samples=1, length=5), method="lrp")[0]
    assert not recorder.captured_runs
    assert "memory is too little" in next(iter(recorder.refused.values()))
    torch.testing.assert_close(found.relevance, plain.relevance)


def test_a_plain_run_out_of_memory_runs_again_without_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, model = Recorder(call=again), tiny("llama")
    recordings_of(recorder, (5,))

    def short(run, demand):
        if recorder.captured_runs:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return propagate(run, demand)

    monkeypatch.setattr(cuda_graphs, "propagate", short)
    with recorder.at_work():
        assert hw.explain(model, arguments("llama", samples=1, length=9), method="lrp")[0].ledger.closed
    assert not recorder.captured_runs

    def never(run, demand):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cuda_graphs, "propagate", never)
    with recorder.at_work(), pytest.raises(torch.OutOfMemoryError):
        hw.explain(model, arguments("llama", samples=1, length=9), method="lrp")


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
def test_a_bench_of_five_methods_and_three_lengths_holds_one_recording_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card, model = Card(holds=1), tiny("llama")
    monkeypatch.setattr(cost, "Recorder", partial(Recorder, call=card.call))
    monkeypatch.setattr(Meter, "start", lambda on_card: None)
    methods = ("gi", "lrp(ah+ln)", "lrp", "lrp-gamma", "attnlrp")
    for length in (5, 6, 7):
        inputs = arguments("llama", samples=1, length=length)
        found, reasons = cost.measure_replays(model, inputs, methods, 3, time.perf_counter)
        assert [one.name for one in found] == [f"{name}, replayed" for name in methods]
        assert reasons == []
        assert len(card.held) == 0


def test_on_a_processor_nothing_changes() -> None:
    with recorded() as recorder:
        for _ in range(3):
            hw.explain(tiny("bert"), arguments("bert"), method="lrp")
    assert not recorder.captured_runs
    assert not recorder.replays


if "--gpu" in sys.argv:

    @pytest.mark.parametrize("method", ["lrp", "gi", "lrp-gamma", "attnlrp", "lrp-query"])
    @pytest.mark.parametrize("name", ["bert", "llama", "qwen3"])
    def test_on_a_card(name: str, method: str) -> None:
        model = copy.deepcopy(tiny(name)).float().cuda()
        inputs = {key: value.cuda() for key, value in arguments(name, samples=1).items()}
        expected = [hw.explain(model, given, method=method)[0] for given in (inputs, other(inputs))]
        with recorded() as recorder:
            found = [hw.explain(model, given, method=method)[0] for given in (inputs, inputs, inputs, other(inputs))]
            assert recorder.replays == 2, recorder.refused
        for ours, theirs in zip(found[2:], expected, strict=True):
            torch.testing.assert_close(ours.relevance, theirs.relevance, rtol=1e-3, atol=1e-4)
