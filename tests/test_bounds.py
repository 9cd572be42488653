"""`evaluate` within a limit of memory: the same numbers, and never more than the limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from test_cli import call
from test_evaluation import same
from torch import nn

from headwater.errors import UnknownName, UsageError
from headwater.evaluation import fitting, job, run
from headwater.evaluation.bounds import Bounds, model_bytes, share_limit
from headwater.evaluation.results import Evaluation
from headwater.evaluation.run import evaluate
from headwater.memory import saved_tensors
from headwater.memory.meter import peak_of
from headwater.memory.policy import MemoryPolicy
from headwater_experiments.bench.shapes import ModelShape

WORDS = ("the movie is very good and great", "a bad film", "not so dull", "good")
TEXTS = [(" ".join([WORDS[i % 4]] * (1 + 4 * (i % 3))), i % 2) for i in range(6)]
METHODS = ["random", "gi", "lrp", "lrp-gamma", "rollout"]


@pytest.fixture(autouse=True)
def _only_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the block that is asked for and never touched."""
    monkeypatch.setattr(job, "keep_freed_memory", lambda: None)


@cache
def wide() -> nn.Module:
    """Wide enough that a text takes more than a block of attention."""
    return ModelShape("bert", 128, 2, 4, 512, 120, 512).build(dtype=torch.float64)


def judged(methods: Any = METHODS, model: nn.Module | None = None, **options: Any) -> Evaluation:
    settings = {"tokenizer": tiny.tokenizer(), "progress": False, "runtime": False, "measures": "activation", **options}
    return evaluate(wide() if model is None else model, TEXTS, methods=methods, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("room", [{"keep": "disk"}, {"recompute": "blocks"}, {"keep": "disk", "recompute": 1}])
def test_where_things_wait_and_what_is_computed_again_changes_no_number(room, monkeypatch):
    monkeypatch.setattr(saved_tensors, "SMALL", 0)
    seen: list[MemoryPolicy] = []
    opened = MemoryPolicy.open
    monkeypatch.setattr(MemoryPolicy, "open", lambda self, model: seen.append(self) or opened(self, model))
    model = tiny.tiny("bert")
    plain = judged(model=model)
    seen.clear()
    assert same(judged(model=model, **room), plain)
    # methods that are not made of rules have nothing to compute again, and pass by what saves no memory
    others = {None} if "keep" in room else set()
    assert {one.recompute for one in seen} == {room.get("recompute")} | others
    assert {one.keep for one in seen} == {room.get("keep", "device")}


def close(a: Evaluation, b: Evaluation) -> bool:
    pairs = [(a.samples.values[m][n], b.samples.values[m][n]) for m in a.methods for n in a.samples.values[m]]
    return a.methods == b.methods and all(np.allclose(x, y, rtol=1e-6, atol=1e-8) for x, y in pairs)


def limited(monkeypatch: pytest.MonkeyPatch, limit: int, **options: Any) -> tuple[Evaluation, Bounds, int]:
    """An evaluation within a limit, what was chosen, and how much it then held with the weights.

    What is counted is counted once at a time, so that the choice, which counts too, is made before.
    """
    chosen: list[Bounds] = []
    fit = fitting.fit_bounds
    with monkeypatch.context() as patch:
        patch.setattr(run, "fit_bounds", lambda *a, **o: chosen.append(fit(*a, **o)) or chosen[0])
        found = judged(memory_limit=limit, **options)
        patch.setattr(run, "fit_bounds", lambda *a, **o: chosen[0])
        peak = counted(lambda: judged(memory_limit=limit, **options))
    return found, chosen[0], peak


def counted(job: Callable[[], Any]) -> int:
    return model_bytes(wide()) + peak_of(job, torch.device("cpu"))


@pytest.mark.slow
def test_a_limit_is_kept_by_smaller_batches_and_changes_no_number(monkeypatch):
    options = {"methods": ["lrp", "gi"], "runtime": True, "batch_tokens": 64}  # so that explanations take the most
    plain, most = judged(**options), counted(lambda: judged(**options))
    limit = model_bytes(wide()) + (most - model_bytes(wide())) // 3
    found, chosen, peak = limited(monkeypatch, limit, **options)
    assert close(found, plain)
    assert peak <= limit < most
    assert all(1 <= bound.samples < 32 and bound.room == MemoryPolicy() for bound in chosen.methods.values())
    assert chosen.methods["gi"].samples <= chosen.methods["lrp"].samples  # a gradient keeps more


def test_blocks_are_computed_again_where_one_text_alone_is_too_much(monkeypatch):
    plain = judged("lrp")
    one, _, _ = trial("lrp")
    limit = int((model_bytes(wide()) + 0.9 * one) / 0.98)
    found, chosen, peak = limited(monkeypatch, limit, methods="lrp")
    assert (chosen.methods["lrp"].samples, bool(chosen.methods["lrp"].room.recompute)) == (1, True)
    assert peak <= limit
    assert close(found, plain)


def trial(method: str) -> tuple[float, float, int]:
    """What the longest text alone takes, what of it is kept, and its length."""
    from headwater.api import estimate

    longest = max((text for text, _ in TEXTS), key=len)
    found = estimate.estimate(wide(), longest, tokenizer=tiny.tokenizer(), method=method, truncate=True)
    return found.above, found.kept, found.length or 0


def test_perturbed_inputs_are_bounded_where_explanations_need_nothing(monkeypatch):
    most = counted(lambda: judged("random"))
    limit = model_bytes(wide()) + (most - model_bytes(wide())) // 4
    found, chosen, peak = limited(monkeypatch, limit, methods="random")
    assert chosen.inputs is not None
    assert 1 <= chosen.inputs < 32  # of 64 tokens, where a batch would have 2,048
    assert peak <= limit < most
    assert close(found, judged("random"))


def test_too_little_is_said_before_any_work():
    with pytest.raises(UsageError, match="is too little"):
        judged("lrp", memory_limit=model_bytes(wide()) + 1000)
    with pytest.raises(UsageError, match="no amount of memory"):
        judged("lrp", memory_limit="much")
    with pytest.raises(UnknownName, match="place to keep"):
        judged("lrp", keep="cellar")


def test_scrambled_weights_and_workers_have_their_share():
    assert share_limit(1000, 100, 1) == 1000
    assert share_limit(1000, 100, 3) == 300
    own, (above, _, _) = model_bytes(wide()), trial("lrp")
    fits = int((own + 1.1 * above) / 0.98)
    judged("lrp", memory_limit=fits)
    with pytest.raises(UsageError, match="is too little"):
        judged("lrp", memory_limit=fits, measures="randomisation")  # needs a second model
    assert judged("lrp", memory_limit=fits + own, measures="randomisation").methods == ("lrp",)


def test_measures_through_captum_go_in_groups(monkeypatch):
    pytest.importorskip("captum")
    measures = ["infidelity", "sensitivity"]
    texts = [("the movie is very good", 1), ("a bad film", 0)]

    def found(**more: Any) -> Evaluation:
        options = {"tokenizer": tiny.tokenizer(), "progress": False, "runtime": False, "measures": measures, **more}
        return evaluate(tiny.tiny("bert"), texts, methods="lrp", **options)

    plain = found()
    monkeypatch.setattr(fitting, "most_inputs", lambda *_: 3)
    grouped: list[tuple[int, int | None]] = []
    groups = Bounds.groups
    monkeypatch.setattr(
        Bounds, "groups", lambda self, count, most: grouped.append((count, most)) or groups(self, count, most)
    )
    assert close(found(memory_limit="1GB", batch_size=4), plain)
    assert {(10, 3), (10, 4)} <= set(grouped)


@pytest.mark.slow
def test_images_and_graphs_are_bounded_too():
    from test_graph_measures import FAST, GRAPHS
    from test_graph_measures import tiny as graphormer
    from test_images import photo, processor

    images = [(photo(seed=i), i % 2) for i in range(3)]
    options: dict[str, Any] = {"methods": ["lrp", "rollout"], "progress": False, "runtime": False}
    for model, data, more in (
        (tiny.tiny("vit"), images, {**options, "processor": processor()}),
        (graphormer(), GRAPHS, {**FAST, "methods": ["lrp"]}),
    ):
        assert close(evaluate(model, data, **more, memory_limit="200MB"), evaluate(model, data, **more))
        assert close(evaluate(model, data, **more, recompute="blocks"), evaluate(model, data, **more))
        with pytest.raises(UsageError, match="too little"):
            evaluate(model, data, **more, memory_limit=model_bytes(model) + 100)


def test_groups_are_as_large_as_they_may_be():
    assert Bounds().groups(10, 4) == [range(4), range(4, 8), range(8, 10)]
    assert Bounds().groups(10, None) == [range(10)]


def test_the_command_takes_a_limit(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,label\na gripping film,1\na dull film,0\n")
    words = ["evaluate", "--data", str(file), "--methods", "lrp", "--no-runtime", "--json"]
    done = call(*words, "--memory-limit", "1GiB", "--keep", "disk")
    assert done.exit_code == 0, done.output
    refused = call(*words, "--memory-limit", "1MB")
    assert refused.exit_code == 2
    assert "too little" in refused.stderr
