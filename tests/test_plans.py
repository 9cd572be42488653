"""A run that was written down and is played says the same, bit for bit, and is left for every reason to leave it."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType, SimpleNamespace

import pytest
import torch
from tiny import BUILD, tiny, tokenizer
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_map
from transformers import BertConfig, BertForSequenceClassification

import headwater as hw
from headwater.engine import propagate, run_graphs, run_plans
from headwater.kernels import blocked, elementwise, pointwise, sparse_rows
from headwater.memory.meter import peak_of
from headwater.rules import gamma, ratio
from headwater.traces.join import Size, fits, join_traces, size_through
from headwater.traces.play import Left, compile_trace
from headwater.traces.record import TraceRecorder, as_operation, looks_at_numbers, mark_of, untraced

LENGTHS = (9, 14, 11, 12, 20, 13)
SOME = ("bert", "roberta", "gpt2", "llama", "gemma3", "t5", "modernbert")


END = {"t5": 1, "bart": 2}  # what these look for in a text


def ids(length: int, samples: int = 1, end: int | None = None) -> dict[str, Tensor]:
    drawn = torch.randint(5, 100, (samples, length), generator=torch.Generator().manual_seed(length))
    if end is not None:
        drawn[:, -1] = end
    return {"input_ids": drawn}


def differing(one: hw.Explanation, other: hw.Explanation) -> list[object]:
    """What is not the same bit for bit: relevance, score, and every line of the ledger."""
    found: list[object] = [] if torch.equal(one.relevance, other.relevance) else [one.relevance - other.relevance]
    found += [] if one.score == other.score else [one.score - other.score]
    for group in ("biases", "constants", "cut_off", "held"):
        ours, theirs = dict(getattr(one.ledger, group)), dict(getattr(other.ledger, group))
        found += [(group, n, ours.get(n), theirs.get(n)) for n in ours | theirs if ours.get(n) != theirs.get(n)]
    return found


def same(one: hw.Explanation, other: hw.Explanation) -> bool:
    return not differing(one, other)


def both(model: nn.Module, data: dict[str, Tensor], **options: object) -> tuple[hw.Explanation, bool]:
    """An explanation, and whether it is the one that is computed without plans."""
    found = hw.explain(model, data, **options)
    plain = hw.explain(model, data, plans=False, **options)
    other = [differing(a, b) for a, b in zip(found, plain, strict=True)]
    if any(other):
        logging.warning("%s differs in %s", found[0].provenance.way, other)
    return found[0], not any(other)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are on, and none is there."""
    monkeypatch.setenv(run_plans.SWITCH, "on")
    run_plans.PLANS.clear()


def new(name: str) -> nn.Module:
    """A model that no other test has explained."""
    torch.manual_seed(0)
    return BUILD[name]().double().eval()


@pytest.mark.parametrize(
    "name",  # an image has no length
    [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in BUILD if name != "vit"],
)
def test_played_it_says_the_same_at_every_length(name: str) -> None:
    model = tiny(name)
    ways = []
    for length in LENGTHS:
        found, agrees = both(model, ids(length, end=END.get(name)))
        assert agrees, length
        ways.append(found.provenance.way)
    assert ways[0] == "plain"
    if name not in ("mixtral", "deberta-v2"):  # experts by numbers; a function of TorchScript
        assert "plan" in ways


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gi", "lrp(ah+ln)", "lrp-gamma", "attnlrp", "lrp-secant", "lrp-query"])
@pytest.mark.parametrize("name", SOME)
def test_by_every_set_of_rules(name: str, method: str) -> None:
    model = tiny(name)
    found = [both(model, ids(length, end=END.get(name)), method=method) for length in (9, 14, 11)]
    assert all(agrees for _, agrees in found)
    assert found[-1][0].provenance.way == "plan"


def test_texts_in_batches_with_padding() -> None:
    model, texts = tiny("bert"), ["a good film", "a gripping and beautifully acted film", "bad"]
    for _ in range(4):
        found = hw.explain(model, texts, tokenizer=tokenizer())
        plain = hw.explain(model, texts, tokenizer=tokenizer(), plans=False)
        assert all(same(a, b) for a, b in zip(found, plain, strict=True))
    assert {e.provenance.way for e in found} == {"plan"}


@pytest.mark.parametrize("target", [0, 1, "LABEL_0 - LABEL_1"])
def test_one_plan_serves_every_target(target: object) -> None:
    model = tiny("bert")
    for length in (9, 14):
        hw.explain(model, ids(length))
    found, agrees = both(model, ids(11), target=target)
    assert (found.provenance.way, agrees) == ("plan", True)


def ready(name: str = "bert") -> nn.Module:
    """A model with a plan for lengths from 9 to 14."""
    model = new(name)
    for length in (9, 14):
        hw.explain(model, ids(length))
    assert hw.explain(model, ids(11))[0].provenance.way == "plan"
    return model


def put_weight(model: nn.Module) -> None:
    layer = model.bert.encoder.layer[0].output.dense
    layer.weight = nn.Parameter(layer.weight.detach() * 1.5)


def exchange_data(model: nn.Module) -> None:
    layer = model.bert.encoder.layer[0].output.dense
    layer.weight.data = layer.weight.data * 1.5


def replace_part(model: nn.Module) -> None:
    model.bert.encoder.layer[0].intermediate.intermediate_act_fn = nn.ReLU().eval()


def add_hook(model: nn.Module) -> None:
    model.bert.encoder.layer[0].register_forward_hook(
        lambda module, args, out: (out[0] * 2, *out[1:]) if isinstance(out, tuple) else out * 2
    )


def change_config(model: nn.Module) -> None:
    model.set_attn_implementation("eager")


def change_attribute(model: nn.Module) -> None:
    model.bert.encoder.layer[0].attention.self.scaling = 0.1


def change_list(model: nn.Module) -> None:
    model.adapters.append("other")


def change_object(model: nn.Module) -> None:
    model.bert.encoder.layer[0].attention.self.settings.values["inner"]["factor"] = 0.1


def change_class(model: nn.Module) -> None:
    """As %autoreload does, and whoever puts another method into a class."""
    kind = type(model.bert.encoder.layer[0].attention.self)
    kind.forward.__code__ = (lambda self, x, *a, **k: (self.inner(x) * 2, None)).__code__


def change_kind(model: nn.Module) -> None:
    model.bert.encoder.layer[0].attention.self.__class__ = Halved


CHANGES = [put_weight, exchange_data, replace_part, add_hook, change_config, change_attribute]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_in_the_model_ends_its_plans(change: object) -> None:
    model = ready()
    before = hw.explain(model, ids(11))[0]
    change(model)
    found, agrees = both(model, ids(11))
    assert agrees
    assert found.provenance.way == "plain"
    assert change in (change_config,) or not torch.equal(found.relevance, before.relevance)


def test_a_name_in_a_list_of_the_models_ends_its_plans() -> None:
    model = new("bert")
    model.adapters = ["one"]
    for length in (9, 14, 11):
        hw.explain(model, ids(length))
    change_list(model)
    assert hw.explain(model, ids(11))[0].provenance.way == "plain"


class Scaled(nn.Module):
    """Attention whose size an object says that the module holds."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.value
        self.settings = SimpleNamespace(values={"inner": {"factor": 0.5}})

    def forward(self, x: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        return self.inner(x) * self.settings.values["inner"]["factor"], None


class Halved(Scaled):
    def forward(self, x: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        return self.inner(x) * 0.25, None


@pytest.mark.parametrize("change", [change_object, change_class, change_kind])
def test_what_an_object_holds_and_what_a_class_does_are_the_models_too(change: Callable[[nn.Module], None]) -> None:
    model, code = new("bert"), Scaled.forward.__code__
    part = model.bert.encoder.layer[0].attention
    part.self = Scaled(part.self).eval()
    for length in (9, 14):
        hw.explain(model, ids(length))
    before = hw.explain(model, ids(11))[0]
    assert before.provenance.way == "plan"
    try:
        change(model)
        found, agrees = both(model, ids(11))
    finally:
        Scaled.forward.__code__ = code
    assert (found.provenance.way, agrees) == ("plain", True)
    assert found.score != before.score


def wrap_forward(model: nn.Module) -> None:
    """As accelerate and autocast wrappers do."""
    old = model.forward
    model.forward = lambda *args, **kwargs: old(*args, **kwargs)


def bind_forward(model: nn.Module) -> None:
    model.forward = MethodType(type(model).forward, model)


def hook_on_part(model: nn.Module) -> None:
    def look(*_: object) -> None:
        assert not model.training

    model.bert.encoder.layer[0].register_forward_hook(look)


@pytest.mark.parametrize(("change", "way"), [(wrap_forward, "plan"), (bind_forward, "plan"), (hook_on_part, "plain")])
def test_a_model_whose_parts_lead_back_to_it_can_go(change: Callable[[nn.Module], None], way: str) -> None:
    model = new("bert")
    change(model)
    for length in (9, 14):
        hw.explain(model, ids(length))
    assert hw.explain(model, ids(11))[0].provenance.way == way
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_plans_of_weights_that_a_model_had_go_with_its_next_explanation() -> None:
    """The model is explained as a copy from then on; its plans have views of the weights, as large as these."""
    model = ready()
    hw.explain(model, ids(11), dtype="float32")
    assert model in run_plans.PLANS
    model.half()
    hw.explain(model, ids(11))
    assert model not in run_plans.PLANS


def test_weights_that_are_written_into_are_read_anew() -> None:
    model = ready()
    before = hw.explain(model, ids(11))[0]
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight.mul_(1.5)
    found, agrees = both(model, ids(11))
    assert agrees
    assert found.provenance.way == "plan"
    assert not torch.equal(found.relevance, before.relevance)


def test_another_dtype_is_another_plan() -> None:
    model = ready()
    model.float()
    found, agrees = both(model, ids(11))
    assert agrees
    assert found.provenance.way == "plain"


def test_training_mode_is_refused_as_before() -> None:
    model = ready()
    model.train()
    with pytest.raises(hw.errors.TrainingMode):
        hw.explain(model, ids(11))


def test_hooks_are_called_in_every_explanation() -> None:
    """They may look at the run, and act by numbers that nobody else knows: a model that has them is never played."""
    model, factor, sizes = ready(), 1.0, []

    def scale(module: nn.Module, args: object, out: Tensor) -> Tensor:
        sizes.append(out.shape[1])
        return out * factor

    handle = model.bert.encoder.layer[0].output.dense.register_forward_hook(scale)
    for length in (9, 14, 11, 12, 13):
        found, agrees = both(model, ids(length))
        assert (found.provenance.way, agrees) == ("plain", True)
        assert sizes[-2:] == [length, length]
    before, factor = found.score, 2.0
    assert hw.explain(model, ids(13))[0].score != before
    handle.remove()
    ways = [hw.explain(model, ids(length))[0].provenance.way for length in (9, 14, 11)]
    assert ways[-1] == "plan"


def test_a_hook_on_all_modules_ends_plans() -> None:
    model = ready()
    handle = register_module_forward_hook(lambda *_: None)
    try:
        assert hw.explain(model, ids(11))[0].provenance.way == "plain"
    finally:
        handle.remove()


def test_autocast_is_another_kind_of_run() -> None:
    model = ready().float()
    for length in (9, 14, 11):
        hw.explain(model, ids(length))
    with torch.autocast("cpu", torch.bfloat16):
        assert hw.explain(model, ids(11))[0].provenance.way == "plain"


@pytest.mark.parametrize("off", ["off", "0"])
def test_the_switches_turn_plans_off(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ready()
    assert hw.explain(model, ids(11), plans=False)[0].provenance.way == "plain"
    monkeypatch.setenv(run_plans.SWITCH, off)
    assert hw.explain(model, ids(11))[0].provenance.way == "plain"


class Branching(nn.Module):
    """Its way depends on its numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.head = (nn.Linear(4, 4).double() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = self.second(y) if bool(x.sum() > 0) else torch.relu(y)
        return self.head(y).sum(1)


def test_a_number_that_python_looks_at_is_asked_again() -> None:
    model, chance = Branching().eval(), torch.Generator().manual_seed(0)
    for number in range(12):
        x = torch.randn(1, 6, 4, generator=chance, dtype=torch.float64) + (1 if number % 3 else -1)
        found = hw.explain(model, x, score=lambda out: out[:, 0], inputs=None)[0]
        plain = hw.explain(model, x, score=lambda out: out[:, 0], inputs=None, plans=False)[0]
        assert same(found, plain)


class Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(3)  # drawn, and thrown away
        return self.head(x).sum(1)


class Counting(Drawing):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(x).sum(1)


class Writing(Counting):
    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return self.head(x).sum(1)


@pytest.mark.parametrize("kind", [Drawing, Counting, Writing])
def test_a_model_that_is_not_a_function_of_its_input_runs_plainly(kind: type[nn.Module]) -> None:
    model = kind().eval()
    ways = [
        hw.explain(model, torch.ones(1, 3, 4).double(), score=lambda o: o[:, 0])[0].provenance.way for _ in range(9)
    ]
    assert set(ways) == {"plain"}


def test_a_score_that_reads_other_outputs_leaves_the_plan() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(4, 2).double(), nn.Linear(4, 2).double()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"a": self.a(x).sum(1), "b": self.b(x).sum(1)}

    model, x = Two().eval(), torch.randn(1, 3, 4, dtype=torch.float64)
    for _ in range(3):
        first = hw.explain(model, x, score=lambda out: out["a"][:, 0])[0]
    assert first.provenance.way == "plan"
    for score in (lambda out: out["b"][:, 0], lambda out: out["a"][:, 0] + out["b"][:, 1]):
        found, plain = (hw.explain(model, x, score=score, plans=plans)[0] for plans in (True, False))
        assert same(found, plain)


def test_no_plan_outlives_its_model() -> None:
    model = ready()
    gone = weakref.ref(model)
    weight = weakref.ref(model.bert.encoder.layer[0].output.dense.weight)
    del model
    gc.collect()
    assert gone() is None
    assert weight() is None
    assert len(run_plans.PLANS) == 0


def test_two_threads_with_two_methods() -> None:
    model = tiny("bert")
    wrong: list[object] = []

    def work(method: str) -> None:
        for length in (9, 14, 11, 12, 10):
            found, agrees = both(model, ids(length), method=method)
            if not agrees:
                wrong.append((method, length, found.provenance.way))

    threads = [threading.Thread(target=work, args=(method,)) for method in ("lrp", "attnlrp")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_plans_of_a_model_are_bounded() -> None:
    model = new("bert")
    for samples in range(1, 12):
        hw.explain(model, ids(9, samples=samples))
    assert len(run_plans.PLANS[model].kinds) <= run_plans.KEPT


def test_a_closer_look_still_comes_and_agrees() -> None:
    model = new("bert")
    ways = [hw.explain(model, ids(9 + number % 3))[0].provenance.way for number in range(70)]
    assert ways[64] == "plain"
    assert ways[65:] == ["plan"] * 5


def test_a_closer_look_throws_away_a_plan_that_no_longer_holds() -> None:
    """What a model reads outside itself cannot be seen to change, but it is found out."""
    around = {"twice": False}

    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(4, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x * 2 if around["twice"] else x).sum(1)

    model, x = Reading().eval(), torch.ones(1, 3, 4, dtype=torch.float64)
    ways = [hw.explain(model, x, score=lambda out: out[:, 0])[0].provenance.way for _ in range(64)]
    around["twice"] = True
    look, later = (hw.explain(model, x, score=lambda out: out[:, 0])[0] for _ in range(2))
    assert (ways[-1], look.provenance.way, later.provenance.way) == ("plan", "plain", "plan")
    assert same(look, later)


def test_what_is_not_finite_is_still_named() -> None:
    model = ready()
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight.fill_(float("nan"))
    with pytest.raises(hw.errors.NotFinite, match=r"output\.dense\.weight"):
        hw.explain(model, ids(11))


# The trace itself


def traced(function: object, *inputs: Tensor) -> tuple[TraceRecorder, object]:
    recorder = TraceRecorder()
    with recorder.part(list(inputs)):
        result = function(*inputs)
    return recorder, result


def played(recorder: TraceRecorder, result: Tensor, *inputs: Tensor, length: int = 0) -> Tensor:
    slot = recorder.find(result)
    program = compile_trace(recorder.trace, [[slot]])
    ((found,), _) = program.parts[0](inputs, (), length)
    return found


def test_a_trace_is_played_on_other_numbers() -> None:
    def work(x: Tensor) -> Tensor:
        y = (x * 2).exp_()
        y[:, 0] = 1.0
        return y.t() @ x

    recorder, result = traced(work, torch.randn(3, 4))
    other = torch.randn(3, 4)
    assert recorder.trace.refused is None
    assert torch.equal(played(recorder, result, other), work(other))


def test_two_lengths_make_one_trace() -> None:
    def work(x: Tensor) -> Tensor:
        n = x.shape[1]
        return x.reshape(n * 2, -1).sum(1).view(2, n)[:, : n - 1] + torch.arange(n - 1)

    first, second, third = (traced(work, torch.randn(2, n, 3)) for n in (5, 7, 12))
    joined = join_traces(first[0].trace, second[0].trace, (5, 7))
    assert joined is not None
    assert fits(joined, third[0].trace, 12)
    assert not fits(joined, third[0].trace, 11)
    program = compile_trace(joined, [[first[0].find(first[1])]])
    x = torch.randn(2, 9, 3)
    assert torch.equal(program.parts[0]((x,), (), 9)[0][0], work(x))


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ((5, 7), Size(0, 1, 0)),
        ((50, 98), Size(2, 0, 0)),
        ((4, 6), Size(0, 1, -1)),
        ((3, 3), 3),
        ((60, 84), Size(0, 12, 0)),
    ],
)
def test_sizes_that_two_lengths_tell(values: tuple[int, int], size: object) -> None:
    assert size_through(*values, (5, 7)) == size


def test_numbers_that_were_read_must_be_read_again() -> None:
    def work(x: Tensor) -> Tensor:
        return x + 1 if bool((x > 0).all()) else x - 1

    recorder, result = traced(work, torch.ones(3))
    assert torch.equal(played(recorder, result, torch.full((3,), 2.0)), torch.full((3,), 3.0))
    with pytest.raises(Left):
        played(recorder, result, -torch.ones(3))


def test_sizes_that_numbers_decide_must_be_the_same() -> None:
    recorder, result = traced(lambda x: x.nonzero().flatten() * 2, torch.tensor([0.0, 1.0, 2.0]))
    assert played(recorder, result, torch.tensor([3.0, 0.0, 2.0])).tolist() == [0, 4]
    with pytest.raises(Left):
        played(recorder, result, torch.tensor([3.0, 1.0, 2.0]))


@as_operation
def loops(x: Tensor) -> Tensor:
    return torch.stack([row * number for number, row in enumerate(x)])


@looks_at_numbers
def first_negative(x: Tensor) -> Tensor | None:
    found = (x < 0).nonzero()
    return found[0] if len(found) else None


def test_a_function_of_ours_is_one_operation() -> None:
    recorder, result = traced(lambda x: loops(x) + 1, torch.ones(3, 2))
    assert len(recorder.trace.operations) == 2
    assert torch.equal(played(recorder, result, torch.full((5, 2), 2.0)), loops(torch.full((5, 2), 2.0)) + 1)


def test_a_function_that_looks_must_find_the_same() -> None:
    def work(x: Tensor) -> Tensor:
        found = first_negative(x)
        return x if found is None else x.index_select(0, found)

    recorder, result = traced(work, torch.tensor([1.0, -1.0]))
    assert played(recorder, result, torch.tensor([-3.0, -1.0])).tolist() == [-3.0]
    with pytest.raises(Left):
        played(recorder, result, torch.tensor([3.0, 1.0]))


def test_what_is_done_once_is_not_written_down() -> None:
    def work(x: Tensor) -> Tensor:
        with untraced():
            float((x * 3).sum())
        return x * 2

    assert len(traced(work, torch.ones(2))[0].trace.operations) == 1


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda x: x + torch.rand(2), "random"),
        (lambda x: x.add_(1), "lasts"),
        (lambda x: x[:1].detach().mul_(2), "lasts"),
    ],
)
def test_what_cannot_be_played_is_refused(work: object, why: str) -> None:
    assert why in str(traced(work, torch.ones(2))[0].trace.refused)


def test_what_changes_with_the_input_is_cut_off_in_every_explanation() -> None:
    """Found by the closer look at the first one, it is not forgotten in the next."""

    class Escaping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(4, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            away = torch.from_numpy(x.detach().numpy() ** 2)
            return self.head(x + away).sum(1)

    model, chance = Escaping().eval(), torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randn(1, 3, 4, generator=chance, dtype=torch.float64)
        ledger = hw.explain(model, x, score=lambda out: out[:, 0])[0].ledger
        assert not ledger.closed
        assert any("changes with the input" in name for name in ledger.cut_off)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_what_is_explained_has_plans_of_its_own(name: str) -> None:
    """Embeddings, words, or a layer's output: a plan of one is not played for another."""
    model, places = new(name), {}
    layers = [n for n, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    for _ in range(3):
        for place in ({}, {"inputs": f"{layers[0]}.0"}, {"inputs": f"{layers[0]}.1"}):
            found, agrees = both(model, ids(7), **place)
            assert agrees, place
            places.setdefault(str(place), []).append(found)
    assert all(found[-1].provenance.way == "plan" for found in places.values())
    assert len({float(found[-1].relevance.abs().sum()) for found in places.values()}) == 3


def test_an_argument_that_cannot_be_seen_into_is_computed_plainly() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = new("bert")

        def forward(self, input_ids: Tensor, by: object = None) -> object:
            out = self.inner(input_ids=input_ids)
            out.logits = out.logits * by.factor
            return out

    class By:
        def __init__(self, factor: float) -> None:
            self.factor = torch.tensor(factor, dtype=torch.float64)

    model, found = Scaled().eval(), []
    for factor in (1.0, 1.0, 1.0, 2.0):
        data = {"input_ids": ids(7)["input_ids"], "by": By(factor)}
        found.append(hw.explain(model, data, inputs="inner.bert.embeddings", target=0)[0])
    assert [e.provenance.way for e in found] == ["plain"] * 4
    assert found[3].score == 2 * found[0].score


def test_a_tensor_at_the_address_of_one_that_is_gone_is_another() -> None:
    recorder, x = TraceRecorder(), torch.ones(3)
    with recorder.part([x]):
        made = x * 2
        gone = recorder.made[made._cdata]
        assert recorder._known(made) is gone.slot
        del made
        with untraced():
            other = x * 3
        recorder.made[other._cdata] = gone._replace(mark=mark_of(other))  # as if it had got that place in memory
        assert recorder._known(other) is None


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """As on a card, but a captured part is called again each time; the list has every call."""
    calls: list[object] = []

    class Call:
        def __init__(self, body: object, pool: object) -> None:
            self.body, self.kept = body, None

        def __call__(self) -> object:
            calls.append(self)
            found = self.body()
            if self.kept is None:
                self.kept = found
            copy_into(self.kept, found)  # a graph always writes into the same memory
            return self.kept

    def copy_into(kept: object, found: object) -> None:
        if isinstance(kept, Tensor):
            kept.copy_(found)
        elif isinstance(kept, (tuple, list)):
            for one, other in zip(kept, found, strict=True):
                copy_into(one, other)

    monkeypatch.setattr(run_graphs.RunGraphs, "call", Call)
    monkeypatch.setattr(
        run_graphs.RunGraphs.__init__, "__defaults__", (*run_graphs.RunGraphs.__init__.__defaults__[:-1], Call)
    )
    monkeypatch.setattr(run_graphs, "can_capture", lambda given, call: True)
    # on a card no numbers are looked at
    monkeypatch.setattr(sparse_rows, "FEW", 10**9)
    monkeypatch.setattr(blocked, "keeps_digits", lambda sums, mask: sums is not None)

    def unasked(x: Tensor, y: Tensor, zero: float, slope: float, into: Tensor | None = None) -> Tensor:
        close = x == 0
        return torch.div(y - zero, x, out=into).masked_fill_(close, slope)

    for module in (ratio, gamma):
        monkeypatch.setattr(module, "ratio", unasked)
    monkeypatch.setattr(elementwise, "divide_by_input", lambda x, y, slope, into=None: unasked(x, y, 0.0, slope, into))
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("method", ["gi", "lrp", "lrp-query"])
def test_a_length_that_comes_again_is_captured(name: str, method: str, captures: list[object]) -> None:
    model, ways, kept = new(name), [], []
    for turn in range(7):
        data = ids(9, end=END.get(name))
        data["input_ids"][0, 0] = 5 + turn
        found = hw.explain(model, data, method=method)
        plain = hw.explain(model, data, method=method, plans=False)
        ways.append(found[0].provenance.way)
        assert not differing(found[0], plain[0]), turn
        kept.append((found[0], plain[0]))
    assert ways[-1] == ("plan" if name == "t5" else "graph")  # T5 looks for the end of the text when all else is done
    assert bool(captures) == (name != "t5")
    assert all(same(one, other) for one, other in kept)  # later runs wrote into nothing that was given away


@pytest.mark.parametrize("wrong", [False, True])
def test_a_graph_has_joined_kernels_only_if_they_say_the_same(
    wrong: bool, captures: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Joined(run_graphs.PointwiseKernel):
        def __call__(self, *tensors: Tensor) -> object:
            found = super().__call__(*tensors)
            return tree_map(lambda one: one * 1.001, found) if wrong else found

    monkeypatch.setattr(run_graphs, "PointwiseKernel", partial(Joined, fits=lambda tensor: True))
    model = new("llama")
    for turn in range(7):
        data = ids(9)
        data["input_ids"][0, 0] = 5 + turn
        found, agrees = both(model, data, method="lrp")
        assert agrees, turn
    assert found.provenance.way == "graph"
    (program,) = {plan.graphs.program for kind in run_plans.PLANS[model].kinds.values() for plan in kind.plans}
    assert (program.joined is program.plain) == wrong


def test_only_kernels_that_are_wrong_are_left_to_torch(captures: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    launch, left = pointwise.launch_chain, []

    def launch_wrongly(plan: pointwise.Launch, tensors: list[Tensor]) -> list[Tensor]:
        found = launch(plan, tensors)
        left.append(len(found) > 1)
        return [one * 1.01 for one in found] if left[-1] else found

    monkeypatch.setattr(run_graphs, "PointwiseKernel", partial(run_graphs.PointwiseKernel, fits=lambda tensor: True))
    monkeypatch.setattr(pointwise, "launch_chain", launch_wrongly)
    model = new("llama").float()
    for turn in range(7):
        data = ids(9)
        data["input_ids"][0, 0] = 5 + turn
        found, plain = (hw.explain(model, data, method="lrp", plans=plans)[0] for plans in (True, False))
        assert torch.allclose(found.relevance, plain.relevance, rtol=1e-4, atol=1e-6), turn
    assert found.provenance.way == "graph"
    left.clear()
    hw.explain(model, data, method="lrp")
    assert left
    assert not any(left)  # the others are kernels still


def test_graphs_are_few_and_go_with_their_plan(captures: list[object]) -> None:
    model = new("bert")
    hw.explain(model, ids(5))
    hw.explain(model, ids(30))
    for length in range(8, 18):
        for _ in range(4):
            hw.explain(model, ids(length))
    assert 1 <= len(run_graphs.ALIVE) <= run_graphs.KEPT
    run_plans.PLANS.clear()
    assert not len(run_graphs.ALIVE)  # at once, not when garbage is collected


def test_what_cannot_be_captured_is_played(captures: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_graphs, "RunGraph", lambda *_: (_ for _ in ()).throw(RuntimeError("no memory")))
    model = new("bert")
    ways = [hw.explain(model, ids(9))[0].provenance.way for _ in range(6)]
    assert "graph" not in ways
    assert ways[-1] == "plan"


def test_a_question_in_the_middle_is_never_captured(captures: list[object]) -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            for _ in range(70):
                y = y + 1e-3
            return self.second(y if y.sum() > -1e9 else -y)

    model = Asks().double().eval()
    ways = [hw.explain(model, torch.full((1, 4), 1.0 + i).double(), target=0)[0].provenance.way for i in range(6)]
    assert set(ways[2:]) == {"plan"}


def test_another_number_leaves_a_graph(captures: list[object]) -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) if x.sum() > 0 else self.second(x)

    model, one = Asks().double().eval(), torch.ones(1, 4).double()
    ways = [hw.explain(model, one * (1 + i), target=0)[0].provenance.way for i in range(6)]
    assert ways[-1] == "graph"
    found, agrees = both(model, -one, target=0)
    assert (found.provenance.way, agrees) == ("plain", True)


def ready_on_card() -> nn.Module:
    """A model with a captured plan."""
    model = new("bert")
    ways = [hw.explain(model, ids(9))[0].provenance.way for _ in range(6)]
    assert ways[-1] == "graph"
    return model


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_while_a_card_is_at_work(change: object, captures: list[object]) -> None:
    model = ready_on_card()
    change(model)
    found, agrees = both(model, ids(9))
    assert (found.provenance.way, agrees) == ("plain", True)


def test_training_mode_is_found_while_a_card_is_at_work(captures: list[object]) -> None:
    model = ready_on_card().train()
    with pytest.raises(hw.errors.TrainingMode):
        hw.explain(model, ids(9))


def test_a_long_look_is_made_once_and_behind_the_launch(
    captures: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, looks, holds = ready_on_card(), [], run_plans.ModelState.holds

    def looking(state: run_plans.ModelState, own: nn.Module) -> bool:
        looks.append(len(captures))
        return holds(state, own)

    monkeypatch.setattr(run_plans.ModelState, "holds", looking)
    captures.clear()
    found = hw.explain(model, ids(9))[0]
    assert (found.provenance.way, looks) == ("graph", [2])  # both parts of the run were called before


@pytest.mark.parametrize("changed", [True, False])
def test_only_an_error_that_a_change_led_to_is_none(changed: bool, captures: list[object]) -> None:
    errors = [KeyError("stale")]

    def fails_once(run: object) -> object:
        if errors and captures:
            raise errors.pop()
        return propagate.propagate(run, hw.methods.NO_RULES)

    model, method = ready_on_card(), hw.methods.Method("mine", "fails once", fails_once)
    if changed:
        change_attribute(model)
        assert same(hw.explain(model, ids(9), method=method)[0], hw.explain(model, ids(9), method="gi")[0])
        return
    with pytest.raises(KeyError, match="stale"):
        hw.explain(model, ids(9), method=method)


def test_a_change_is_found_where_a_method_catches_every_error(captures: list[object]) -> None:
    def catches(run: object) -> object:
        try:
            return propagate.propagate(run, hw.methods.NO_RULES)
        except Exception:
            return hw.methods.resolve_method("lrp").run(run)

    model, method = ready_on_card(), hw.methods.Method("mine", "catches errors", catches)
    change_attribute(model)
    assert same(hw.explain(model, ids(9), method=method)[0], hw.explain(model, ids(9), method="gi")[0])


def test_a_closer_look_is_made_where_a_change_was_found_before_it(
    captures: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first explanation by a method looks closely, also where it is made again."""
    model, closes, passes = ready_on_card(), [], propagate.run_passes

    def noting(run: object, demand: object, readers: object, close: bool, writer: object) -> object:
        closes.append(close)
        return passes(run, demand, readers, close, writer)

    monkeypatch.setattr(propagate, "run_passes", noting)
    change_attribute(model)
    for _ in range(2):
        hw.explain(model, ids(9), method="gi")
    assert closes == [True, False]


@pytest.mark.parametrize("whole", [False, True])
def test_a_graph_is_not_asked_for_words_that_only_a_new_table_has(whole: bool, captures: list[object]) -> None:
    """On a card, an index behind the end of the old table would be the end of the process."""
    model = ready_on_card()
    table = model.bert.embeddings.word_embeddings
    longer = nn.Parameter(torch.cat([table.weight.detach(), table.weight.detach()[:5]]))
    if whole:  # the old one is held on to, so that it is not seen to be gone
        model.bert.embeddings.word_embeddings = nn.Embedding(len(longer), longer.shape[1], _weight=longer).eval()
    else:
        table.weight = longer
    data = ids(9)
    data["input_ids"][0, 3] = 123
    captures.clear()
    found, agrees = both(model, data)
    assert (found.provenance.way, agrees, captures) == ("plain", True, [])


class Past(nn.Module):
    """Adds what was copied past torch, as a kernel of somebody else's would: an operation that nobody sees."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = new("bert")

    def forward(self, input_ids: Tensor) -> object:
        out = self.inner(input_ids=input_ids)
        drawn = torch.stack([input_ids.double().sum(), input_ids.double().prod().log()])
        copied = torch.empty_like(drawn)
        ctypes.memmove(copied.data_ptr(), drawn.data_ptr(), drawn.nbytes)
        out.logits = out.logits * copied.sum().reshape(1, 1)
        return out


def test_a_kernel_that_nobody_sees_ends_a_plan() -> None:
    model, ways = Past().eval(), []
    for turn in range(5):
        data = {"input_ids": ids(9 + turn)["input_ids"]}
        found = hw.explain(model, data, inputs="inner.bert.embeddings", target=0)[0]
        plain = hw.explain(model, data, inputs="inner.bert.embeddings", target=0, plans=False)[0]
        assert not differing(found, plain)
        ways.append(found.provenance.way)
    assert set(ways) == {"plain"}


def test_operations_of_ours_are_written_down_in_any_context() -> None:
    """Autograd may go back in a thread of its own, where modes are handed on and context variables are not."""
    recorder, x = TraceRecorder(), torch.ones(3)
    double = as_operation(lambda t: t * 2)
    with recorder.part([x]):
        contextvars.Context().run(double, x)
    assert [operation.function.__name__ for operation in recorder.trace.operations] == ["<lambda>"]


def test_a_limit_of_memory_is_kept_by_plain_runs() -> None:
    """What is estimated is a plain run; a played one may take more."""
    model = new("bert")
    ways = [hw.explain(model, ids(9), memory_limit="4GiB")[0].provenance.way for _ in range(4)]
    assert ways == ["plain"] * 4


def test_a_plan_that_was_left_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it could not be compared with a plain run, it is computed plainly, and tried again."""
    model, real = new("bert"), propagate.play_run
    hw.explain(model, ids(9))
    monkeypatch.setattr(propagate, "play_run", lambda plan, run: None)
    assert hw.explain(model, ids(9))[0].provenance.way == "plain"
    (plan,) = (plan for kind in run_plans.PLANS[model].kinds.values() for plan in kind.plans)
    assert not plan.trusted
    monkeypatch.setattr(propagate, "play_run", real)
    found, agrees = both(model, ids(9))
    assert (found.provenance.way, agrees, plan.trusted) == ("plan", True, True)


@pytest.mark.parametrize("method", ["lrp", "gi", "attnlrp"])
def test_a_played_run_holds_no_more_than_a_plain_one(method: str) -> None:
    torch.manual_seed(0)
    size = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4}
    model = BertForSequenceClassification(BertConfig(**size, num_hidden_layers=4)).eval()
    for length in (300, 200, 250):
        hw.explain(model, ids(length), method=method)
    ways: list[str] = []

    def peak(**options: object) -> int:
        def work() -> None:
            ways.append(hw.explain(model, ids(240), method=method, **options)[0].provenance.way)

        return peak_of(work, torch.device("cpu"))

    assert peak() <= peak(plans=False)
    assert ways == ["plan", "plain"]
