"""An interrupt leaves nothing behind, at whatever line it arrives: it is raised at every one of them in turn.

`HEADWATER_EVERY_LINE=1` does so at all lines of every call, at more of the times that they run. That takes a quarter of
an hour.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import pytest
import torch
import transformers as tf
from interrupting import OURS, Moment, Place, interrupted, lines_of, moments, surroundings
from tiny import randomised, tokenizer
from torch import nn
from torch.overrides import TorchFunctionMode

import headwater as hw
from headwater.api import generate
from headwater.engine import run_plans
from headwater.engine.options import read_options
from headwater.engine.session import Session
from headwater.memory import cuda_graphs, saved_tensors
from headwater.web.cancelling import Cancelled, Stop
from headwater.web.pool import JobPool, LateStop, PoolJob

EVERY = bool(os.environ.get("HEADWATER_EVERY_LINE"))
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 120}
INPUTS = {"input_ids": torch.tensor([[7, 23, 41]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
CHECKED = 10 if EVERY else 40  # after so many interrupts numbers are compared
_DONE: Counter[Place] = Counter()  # lines that were tried already, in another call


@cache
def bert() -> nn.Module:
    return made(lambda: tf.BertForSequenceClassification(tf.BertConfig(**SIZES, max_position_embeddings=8)))


@cache
def llama() -> nn.Module:
    return made(lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES, max_position_embeddings=16)))


def made(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(build().double())


def explain(**options: Any) -> Any:
    return hw.explain(bert(), INPUTS, **options)[0].relevance


def audit() -> Any:
    return hw.audit(bert(), INPUTS).explanation.relevance


def inside() -> Any:
    (e,) = hw.explain(bert(), INPUTS, inside=["heads", "neurons", "layers", "queries", "bert.pooler"], plans=False)
    assert e.inside is not None
    return e.inside.positions.heads


def patch() -> Any:
    nodes = ["layer 0 head 0", "layer 0 head 1", "layer 0"]
    effects = hw.patch_each(llama(), "the movie", nodes, with_="a movie", exact=2, tokenizer=tokenizer())
    return torch.tensor([effect.patched for effect in effects])


def difference() -> Any:
    return hw.difference(llama(), "the movie", "the act", inside=["heads"], tokenizer=tokenizer()).inside.heads


def circuit() -> Any:
    found = hw.circuit(bert(), INPUTS, nodes=3, batch_size=2)
    return torch.tensor([edge.relevance for edge in found.edges])


def compare() -> Any:
    return torch.stack([e.relevance for e in hw.compare(bert(), INPUTS, methods=("gi", "lrp", "gae")).explanations])


def generation() -> Any:
    return hw.explain_generation(llama(), "the movie", tokenizer=tokenizer(), answer=[7, 9]).relevance


def answer() -> Any:
    return hw.explain_answer(llama(), prompt="the movie", tokenizer=tokenizer(), answer=[7, 9]).whole().relevance


def similarity() -> Any:
    return hw.explain_similarity(bert().base_model, "the movie", "the act", tokenizer=tokenizer(), rank=3).matrix


def ranking() -> Any:
    found = hw.rank(bert().base_model, "the movie", ["the act", "a film"], tokenizer=tokenizer(), directions=2)
    return found.why(0, 1).first.matrix


@cache
def tagger() -> nn.Module:
    return made(lambda: tf.BertForTokenClassification(tf.BertConfig(**SIZES, max_position_embeddings=8)))


def entities() -> Any:
    found = hw.explain_entities(tagger(), "the movie", tokenizer=tokenizer())
    return torch.stack([entity.explanation.relevance for entity in found])


def closed_in_the_middle() -> Any:
    """The rows of generated text one by one, of which only the first is asked for."""
    said = generate.tokenise_prompt(tokenizer(), "the movie", None)
    text = generate.Text.of(llama(), tokenizer(), said, [7, 9])
    options = read_options(tokenizer=tokenizer(), keep="disk")
    session = Session.open(llama(), options)
    rows = generate.explain_tokens(session, options, text, generate.Scoring.of(None, None), 2)
    first, _ = next(rows)
    rows.close()
    return first.relevance


def estimate() -> Any:
    return torch.tensor([float(hw.estimate(bert(), INPUTS).kept)])


def replayed() -> Any:
    with cuda_graphs.Recorder(call=lambda body, pool: body).at_work():
        return torch.stack([explain() for _ in range(3)])


def written_down() -> Any:
    """Twice plainly, which is written down, and once by the plan that was made of it."""
    run_plans.PLANS.clear()
    return torch.stack([explain() for _ in range(3)])


class Passes(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


CALLS: dict[str, Callable[[], Any]] = {
    "lrp": explain,
    "at a layer that words go around": partial(explain, inputs="bert.encoder.layer.0.attention.self"),
    "entities": entities,
    "on disk, blocks again": partial(explain, keep="disk", recompute="blocks"),
    "audit": audit,
    "inside": inside,
    "patch": patch,
    "difference": difference,
    "circuit": circuit,
    "compare": compare,
    "similarity": similarity,
    "ranking": ranking,
    "gae": partial(explain, method="gae"),
    "occlusion": partial(explain, method="occlusion"),
    "leave-one-out": partial(explain, method="leave-one-out"),
    "deeplift": partial(explain, method="deeplift"),
    "generation": generation,
    "answer": answer,
    "closed in the middle": closed_in_the_middle,
    "estimate": estimate,
    "recorded": replayed,
    "written down": written_down,
}
AGAIN = ("gae", "deeplift", "generation", "closed in the middle")  # they have few lines of their own


@pytest.fixture(autouse=True)
def _quick_and_all_on_disk(monkeypatch, tmp_path, request) -> None:
    monkeypatch.setenv(run_plans.SWITCH, "on" if "written down" in request.node.name else "off")
    monkeypatch.setattr(saved_tensors, "SMALL", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(gc, "collect", lambda: 0)  # it is slow, and has nothing to do with interrupts


def plain(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(**INPUTS).logits


def new_lines(act: Callable[[], Any], again: bool = False) -> list[Moment]:
    """Every line of a call, or those that no call before it has; `again` those that enter and leave blocks of torch."""
    counts = lines_of(act)
    if EVERY:
        return moments(counts, every=True)
    found = {p: n for p, n in counts.items() if p not in _DONE or (again and not p[0].startswith(OURS))}
    _DONE.update(counts.keys())
    return moments(Counter(found))


def check_at(act: Callable[[], Any], model: nn.Module, when: list[Moment]) -> int:
    """How many interrupts arrived. After each, nothing is left; numbers are what they were.

    Nor while the exception is still there, but for a block that the caller entered: that one is held by the traceback.
    """
    expected, prediction, before = act(), plain(model), surroundings(model)
    arrived = 0
    for number, moment in enumerate(when):
        error = interrupted(act, moment)
        arrived += error is not None
        assert act is replayed or changes(before, model) == {}, f"interrupted at {moment}"
        del error  # with its traceback, and all that lies in that
        assert changes(before, model) == {}, f"interrupted at {moment}, when the exception went"
        if number % CHECKED == 0 or number + 1 == len(when):
            assert torch.equal(plain(model), prediction), f"interrupted at {moment}"
            assert torch.equal(act(), expected), f"interrupted at {moment}"
    return arrived


def changes(before: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    after = surroundings(model)
    return {kind: after[kind] for kind in after if after[kind] != before[kind]}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_line_leaves_nothing(name):
    act = CALLS[name]
    act()  # what is imported or cached comes first
    when = new_lines(act, again=name in AGAIN)
    models = {"generation": llama, "answer": llama, "closed in the middle": llama, "entities": tagger}
    model = models.get(name, bert)()
    assert check_at(act, model, when) > 0.9 * len(when)


@pytest.mark.slow
def test_what_the_caller_has_set_up_stays():
    """Modes, hooks and switches of somebody else are as they were, whatever line an explanation is left at."""
    act, same = partial(explain, keep="disk", recompute="blocks"), lambda tensor: tensor
    handle = bert().register_forward_hook(lambda module, args, output: None)
    with ExitStack() as stack:
        stack.callback(handle.remove)
        for block in (
            Passes(),
            torch.no_grad(),
            torch.autocast("cpu", torch.bfloat16),
            torch.autograd.graph.saved_tensors_hooks(same, same),
            Passes(),
        ):
            stack.enter_context(block)
        counts = lines_of(act)
        check_at(act, bert(), moments(counts)[:: 1 if EVERY else 12])


@pytest.mark.slow
def test_an_interrupt_in_one_thread_does_not_disturb_another():
    expected, before = explain(), surroundings(bert())
    found: list[torch.Tensor] = []
    enough = threading.Event()

    def go_on() -> None:
        while not enough.is_set():
            found.append(explain())

    other = threading.Thread(target=go_on)
    other.start()
    try:
        for moment in moments(lines_of(explain))[:: 1 if EVERY else 9]:
            interrupted(explain, moment)
        while len(found) < 2 and other.is_alive():
            time.sleep(0.01)
    finally:
        enough.set()
        other.join()
    assert len(found) > 1
    assert all(torch.equal(one, expected) for one in found)
    assert changes(before, bert()) == {}


def test_a_stop_at_any_operation_leaves_nothing():
    """Where a request is cancelled, every operation raises from then on, those on the way out too."""

    def work() -> Any:
        with torch.no_grad():
            return explain() + plain(bert()).sum()

    job = PoolJob("a-job", work, 60.0)
    before, operations = surroundings(bert()), 0

    def counted() -> None:
        nonlocal operations
        operations += 1

    job.check = counted  # type: ignore[method-assign]
    job.run()
    for last in range(0, operations, 1 if EVERY else 5):
        left = iter(range(last))

        def stop(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Stop(Cancelled())

        job.check = stop  # type: ignore[method-assign]
        job.run()
        assert changes(before, bert()) == {}, f"stopped at operation {last}"


def test_a_late_stop_does_not_lock_the_others_out():
    """A worker that is given up is told to end wherever it is, also where it asks for the pool's lock."""
    armed, leaving = threading.Event(), threading.Condition.__exit__.__code__

    def late(frame: Any, event: str, _: Any) -> Any:
        here = armed.is_set() and frame.f_code is leaving and frame.f_locals["self"] is pool._changed
        if here and threading.current_thread().name == "worker":
            raise LateStop
        return None

    threading.settrace(late)
    try:
        pool = JobPool(workers=1, waiting=2, seconds=60)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    pool.submit(armed.set).done.exception(timeout=60)
    assert pool._changed.acquire(timeout=60)
    pool._changed.release()
    pool.close()


def test_an_interrupt_while_attention_is_replaced_puts_it_back(monkeypatch):
    before = bert().config._attn_implementation

    def halfway(name: str) -> None:
        bert().config._attn_implementation = name
        raise KeyboardInterrupt

    monkeypatch.setattr(bert(), "set_attn_implementation", halfway)
    with pytest.raises(KeyboardInterrupt):
        hw.fast_attention(bert())
    assert bert().config._attn_implementation == before
