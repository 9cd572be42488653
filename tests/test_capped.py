"""Attention with capped scores and sinks, in blocks, is what models write out: forwards, backwards, and explained.

`pytest tests/test_capped.py --gpu` runs the Triton kernels on an NVIDIA card; elsewhere Triton's interpreter serves.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
import transformers as tf
from test_kernels import DEVICE, HALF, MASKS, ROOM, SCALE, Attention, Shape, apart
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import headwater as hw
from headwater.api import fast_attention as interface
from headwater.errors import NotApplicable
from headwater.kernels import attention as kernels
from headwater.kernels import blocked, capped, fused, rows
from headwater.kernels.scoring import ScoreForm
from headwater.rules.attention import capped as rule
from headwater.rules.attention import constant as plain

CAP = 1.5  # low enough to bend the scores of random queries and keys
KINDS = {"capped": (CAP, False), "sinks": (0.0, True), "both": (CAP, True), "neither": (0.0, False)}
ODD = Shape(37, 37, 24, 24, groups=2)
SHAPES = (
    Shape(1, 1, 32, 32),
    ODD,
    Shape(129, 129, 80, 80, kv_heads=1, groups=4, batch=1),
    Shape(33, 90, 64, 32),
    Shape(40, 40, 256, 256, kv_heads=1, batch=1),
)


class Case(Attention):
    """Random queries, keys, values, sinks and a gradient of the result."""

    value: Tensor
    sinks: Tensor | None
    cap: float

    @classmethod
    def of(
        cls, shape: Shape, kind: str, masked: str = "none", dtype: torch.dtype = torch.float64, device: str = "cpu"
    ) -> Case:
        case = cls.drawn(shape, masked, dtype, device)
        generator = torch.Generator().manual_seed(1)
        values = torch.randn(*case.key.shape[:3], shape.width, generator=generator, dtype=torch.float64)
        sinks = torch.randn(case.query.shape[1], generator=generator, dtype=torch.float64)
        case.cap = KINDS[kind][0]
        case.value = values.to(device, dtype)
        case.sinks = sinks.to(device, dtype) if KINDS[kind][1] else None
        return case

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": SCALE, "is_causal": self.causal, "cap": self.cap}

    @property
    def scoring(self) -> ScoreForm:
        return ScoreForm(SCALE, self.causal, self.cap, self.mask, self.sinks)

    def exactly(self) -> Written:
        return Written(self)


class Written:
    """The definition, in float64, with autograd's gradients."""

    def __init__(self, case: Case) -> None:
        q, k, v = (part.double().detach().requires_grad_() for part in (case.query, case.key, case.value))
        groups = q.shape[1] // k.shape[1]
        scores = SCALE * q @ k.repeat_interleave(groups, 1).transpose(-2, -1)
        scores = case.cap * (scores / case.cap).tanh() if case.cap else scores
        if case.causal:
            scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
        if case.mask is not None:
            looks = case.mask.dtype is torch.bool
            scores = scores.masked_fill(~case.mask, -math.inf) if looks else scores + case.mask.double()
        self.leaves = [q, k, v]
        none = torch.full((q.shape[1],), -math.inf, dtype=torch.float64, device=q.device)
        sinks = none if case.sinks is None else case.sinks.double().detach().requires_grad_()
        if case.sinks is not None:
            self.leaves.append(sinks)
        column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        joined = torch.cat([scores, column], -1)
        dead = (joined == -math.inf).all(-1, keepdim=True)
        self.sums = joined.logsumexp(-1).detach()
        self.weights = joined.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)[..., :-1]
        self.result = self.weights @ v.repeat_interleave(groups, 1)

    def gradients(self, gradient: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.result, self.leaves, gradient.double(), retain_graph=True)


@pytest.fixture(params=[rows.CACHED, 500], ids=["large blocks", "small blocks"])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, blocked):
        monkeypatch.setattr(module, "CACHED", request.param)


EVERY = pytest.mark.parametrize("kind", KINDS)
MASKED = pytest.mark.parametrize("masked", MASKS)


@pytest.mark.usefixtures("cached")
class TestInBlocks:
    @EVERY
    @MASKED
    def test_forwards(self, kind: str, masked: str) -> None:
        case = Case.of(ODD, kind, masked)
        expected = case.exactly()
        found, sums = capped.attend_with_sums(case.query, case.key, case.value, case.mask, case.sinks, case.options)
        assert apart(found, expected.result.detach()) < 1e-12
        torch.testing.assert_close(sums, expected.sums)

    @EVERY
    @MASKED
    def test_every_gradient(self, kind: str, masked: str) -> None:
        case = Case.of(ODD, kind, masked)
        leaves = [part.clone().requires_grad_() for part in (case.query, case.key, case.value)]
        sinks = None if case.sinks is None else case.sinks.clone().requires_grad_()
        options = {"scale": SCALE, "is_causal": case.causal, "cap": case.cap}
        result = capped.capped_attention(*leaves, case.mask, sinks, **options)
        found = torch.autograd.grad(result, [*leaves, *([sinks] if sinks is not None else [])], case.gradient)
        for one, expected in zip(found, case.exactly().gradients(case.gradient), strict=True):
            assert apart(one, expected) < 1e-12

    @EVERY
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_every_shape(self, kind: str, shape: Shape) -> None:
        case = Case.of(shape, kind, "causal" if shape.queries == shape.keys else "none")
        expected = case.exactly()
        found, _ = capped.attend_with_sums(case.query, case.key, case.value, case.mask, case.sinks, case.options)
        assert apart(found, expected.result.detach()) < 1e-12
        made = rows.plan_blocks(case.query, case.key, case.value, case.mask, case.sinks, case.options)
        gradients = expected.gradients(case.gradient)
        for one, other in zip(total(made.gradients(case.gradient, found)), gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-11)  # of a single key, the scores have no gradient

    @EVERY
    @MASKED
    def test_the_gradient_of_values_alone(self, kind: str, masked: str) -> None:
        """By the kernel, and by the plain rule that serves where there is none."""
        case = Case.of(ODD, kind, masked)
        expected = case.exactly()
        options = {**case.options, "sinks": case.sinks}
        found = kernels.values_gradient(case.gradient, case.query, case.key, expected.sums, case.mask, options)
        simple = plain.values_gradient_torch(case.gradient, case.query, case.key, case.mask, options, case.key.shape[1])
        assert (found is None) == (masked == "lowest" and not KINDS[kind][1])  # the sum's digits are lost
        for one in (simple, *([] if found is None else [found])):
            assert apart(one, expected.gradients(case.gradient)[2]) < 1e-12

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_precision(self, dtype: torch.dtype) -> None:
        case = Case.of(ODD, "both", "causal", dtype)
        found, sums = capped.attend_with_sums(case.query, case.key, case.value, case.mask, case.sinks, case.options)
        assert found.dtype is dtype
        assert sums.dtype is torch.float32
        assert apart(found, case.exactly().result.detach()) < ROOM[dtype]

    def test_autocast_does_not_round_its_blocks(self) -> None:
        case = Case.of(ODD, "both", "causal", torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            found, _ = capped.attend_with_sums(case.query, case.key, case.value, case.mask, case.sinks, case.options)
        assert apart(found, case.exactly().result.detach()) < ROOM[torch.float32]

    @pytest.mark.parametrize("broken", ["cap", "slope", "sinks"])
    def test_a_broken_kernel_is_found(self, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
        case = Case.of(ODD, "both", "causal")
        made = rows.plan_blocks(case.query, case.key, case.value, case.mask, case.sinks, case.options)
        expected = case.exactly().gradients(case.gradient)
        if broken == "slope":
            monkeypatch.setattr(rows.BlockedAttention, "slope", lambda self, scores, block: torch.ones_like(scores))
        else:
            made = replace(made, **{"cap": {"cap": 1.001 * CAP}, "sinks": {"sinks": None}}[broken])
        result = made.result()[0]
        found = total(made.gradients(case.gradient, result))
        assert [apart(one, other) > 1e-6 for one, other in zip(found[:2], expected[:2], strict=True)] == [True, True]
        assert (apart(found[2], expected[2]) > 1e-6) == (broken != "slope")


def total(gradients: Any) -> list[Tensor]:
    """As autograd has them: those of the sinks summed over samples."""
    return [one for one in (*gradients[:3], None if gradients[3] is None else gradients[3].sum(0)) if one is not None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, behind Triton's interpreter, speaks of infinities
class TestTriton:
    def check(self, case: Case, room: float) -> None:
        expected = case.exactly()
        found, sums = fused.attend_by_triton(case.query, case.key, case.value, case.scoring)
        assert apart(found, expected.result.detach()) < room
        seen = expected.sums > -1e30
        torch.testing.assert_close(sums.double()[seen], expected.sums[seen], rtol=max(room, 1e-5), atol=max(room, 1e-5))
        for given in (sums, None):  # the backward kernel with these sums, and with its own
            made = fused.values_gradient_triton(case.gradient, case.query, case.key, given, case.scoring)
            assert apart(made, expected.gradients(case.gradient)[2]) < room

    @MASKED
    def test_every_mask(self, masked: str) -> None:
        self.check(Case.of(ODD, "both", masked, torch.float32, DEVICE), ROOM[torch.float32])

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_every_shape(self, shape: Shape) -> None:
        masked = "causal" if shape.queries == shape.keys else "none"
        self.check(Case.of(shape, "both", masked, torch.float32, DEVICE), ROOM[torch.float32])

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    @EVERY
    def test_half_precision(self, kind: str, dtype: torch.dtype) -> None:
        self.check(Case.of(ODD, kind, "causal", dtype, DEVICE), ROOM[dtype])

    @pytest.mark.parametrize("wrong", [{"cap": 1.01 * CAP}, {"sinks": None}, {"scale": 1.01 * SCALE}], ids=str)
    def test_a_wrong_constant_is_found(self, wrong: dict[str, Any]) -> None:
        case = Case.of(ODD, "both", "causal", torch.float32, DEVICE)
        scoring = dataclasses.replace(case.scoring, **wrong)
        expected = case.exactly()
        found, _ = fused.attend_by_triton(case.query, case.key, case.value, scoring)
        assert apart(found, expected.result.detach()) > 10 * ROOM[torch.float32]
        made = fused.values_gradient_triton(case.gradient, case.query, case.key, None, scoring)
        assert apart(made, expected.gradients(case.gradient)[2]) > 10 * ROOM[torch.float32]


LOW = {"head_dim": 8, "sliding_window": 5, "attn_implementation": "eager"}
MODELS = {
    "gemma2": lambda: tf.Gemma2ForCausalLM(
        tf.Gemma2Config(**tiny.GROUPED, **LOW, attn_logit_softcapping=CAP, query_pre_attn_scalar=1)
    ),
    "gpt-oss": lambda: tf.GptOssForCausalLM(
        tf.GptOssConfig(
            **tiny.GROUPED,
            **LOW,
            num_local_experts=4,
            num_experts_per_tok=2,
            experts_implementation="eager",
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    ),
    "t5gemma": lambda: tf.T5GemmaForSequenceClassification(t5gemma(), is_encoder_decoder=False),
}


def t5gemma() -> Any:
    """An encoder: attention that looks both ways."""
    part = {**tiny.GROUPED, **LOW, "attn_logit_softcapping": CAP, "query_pre_attn_scalar": 1}
    return tf.T5GemmaConfig(encoder=part, decoder=part, is_encoder_decoder=False, attn_implementation="eager")


def pair(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, nn.Module]:
    """The model as transformers computes it, and the same with our attention."""
    model = tiny.randomised(MODELS[name]().to(dtype))
    return model, hw.fast_attention(copy.deepcopy(model))


def sentences(padded: bool) -> dict[str, Tensor]:
    ids = torch.randint(3, 110, (2, 13), generator=torch.Generator().manual_seed(0))
    if not padded:
        return {"input_ids": ids}
    seen = torch.ones_like(ids)
    seen[1, 9:] = 0
    return {"input_ids": ids, "attention_mask": seen}


METHODS = (
    "lrp",
    "lrp-gamma",
    "attnlrp",
    "lrp-query",
    "lrp-secant",
    "gi",
    "lrp(ah)",
    "lrp(ln)",
    "lrp(ah=query)",
    "rollout",
    "gae",
)
ROUGH = 1e-5  # Gemma computes its softmax and its norms in float32 whatever the model's dtype is


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_models_are_explained_as_with_their_own_attention(name: str, padded: bool) -> None:
    slow, fast = pair(name)
    for method in METHODS:
        given = [hw.explain(model, sentences(padded), method=method) for model in (slow, fast)]
        for expected, found in zip(*given, strict=True):
            largest = float(expected.relevance.abs().max())
            torch.testing.assert_close(found.relevance, expected.relevance, rtol=0, atol=ROUGH * largest)
            assert found.score == pytest.approx(expected.score, abs=ROUGH)
            lines(found.ledger, expected.ledger)


def lines(found: hw.Ledger, expected: hw.Ledger) -> None:
    """Every line is the same; a line that one of them does not have is nothing."""
    for kind in ("biases", "constants"):
        one, other = getattr(found, kind), getattr(expected, kind)
        for name in {*one, *other}:
            assert one.get(name, 0.0) == pytest.approx(other.get(name, 0.0), abs=ROUGH), name
    assert found.unaccounted == pytest.approx(expected.unaccounted, abs=ROUGH * max(1, abs(expected.score)))


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss"])
@pytest.mark.parametrize("broken", ["cap", "sinks"])
def test_an_explanation_by_a_broken_kernel_is_another(name: str, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = pair(name)
    true = kernels.values_gradient

    def wrong(gradient: Tensor, query: Tensor, key: Tensor, sums: Any, mask: Any, options: Any) -> Any:
        if broken == "cap":
            return true(gradient, query, key, sums, mask, {**options, "cap": 0.0})
        weights = plain.attention_weights(
            query, key.repeat_interleave(2, 1), mask, {**options, "sinks": None}, slice(13)
        )
        return (weights.transpose(-2, -1) @ gradient).unflatten(1, (2, 2)).sum(2)

    monkeypatch.setattr(plain.kernels, "values_gradient", wrong)
    (expected, _), (found, _) = (hw.explain(model, sentences(False), method="lrp") for model in (slow, fast))
    differs = float((found.relevance - expected.relevance).abs().max() / expected.relevance.abs().max())
    relevant = (name, broken) in {("gemma2", "cap"), ("gpt-oss", "sinks")}
    assert (differs > 10 * ROUGH) == relevant


def test_the_model_itself_computes_the_same_and_generates() -> None:
    for name in ("gemma2", "gpt-oss"):
        slow, fast = pair(name, torch.float32)
        ids = sentences(False)["input_ids"]
        options = {"max_new_tokens": 6, "do_sample": False}
        assert torch.equal(fast.generate(ids, **options), slow.generate(ids, **options))


def test_left_padding_gives_numbers() -> None:
    """Queries that look at nothing stay finite, whatever eager attention makes of them."""
    given = {**sentences(True), "attention_mask": sentences(True)["attention_mask"].flip(1)}
    for name in ("gemma2", "gpt-oss"):
        slow, fast = pair(name, torch.float32)
        for expected, found in zip(*(hw.explain(model, given) for model in (slow, fast)), strict=True):
            torch.testing.assert_close(found.relevance, expected.relevance, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss"])
def test_ordinary_training_gradients(name: str) -> None:
    slow, fast = pair(name)
    for model in (slow, fast):
        model(**sentences(False)).logits.square().mean().backward()
    for (where, one), other in zip(slow.named_parameters(), fast.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), where
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-6)


def test_an_audit_sees_the_same_heads() -> None:
    slow, fast = pair("gemma2")
    ids = {"input_ids": sentences(False)["input_ids"][:1]}
    for method in ("gi", "lrp"):
        expected, found = (hw.audit(model, ids, method=method) for model in (slow, fast))
        assert [head.module for head in found.heads] == [head.module for head in expected.heads]
        for one, other in zip(found.heads, expected.heads, strict=True):
            assert one.measured == pytest.approx(other.measured, abs=ROUGH)
            assert one.predicted == pytest.approx(other.predicted, abs=ROUGH)


class Largest(TorchDispatchMode):
    """The most elements of a tensor that any operation gives."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, Tensor) and one.is_floating_point():
                self.most = max(self.most, one.untyped_storage().nbytes() // one.element_size())
        return made


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "gi", "attnlrp", "lrp-query"])
@pytest.mark.parametrize("name", ["gemma2", "gpt-oss"])
def test_no_weights_are_made_but_those_of_a_block(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, blocked):
        monkeypatch.setattr(module, "CACHED", 4096)
    ids = torch.randint(3, 110, (1, 300), generator=torch.Generator().manual_seed(0))
    found = []
    for model in pair(name, torch.float32):
        with Largest() as largest:
            hw.explain(model, {"input_ids": ids}, method=method)
        found.append(largest.most)
    weights = 4 * 300 * 300
    assert found[0] >= weights
    assert found[1] < weights // 4


class TestTheModelTakesIt:
    def test_and_its_masks(self) -> None:
        """An attention that is registered without a mask is given none: all tokens would then see all."""
        _, fast = pair("gemma2")
        ids = sentences(False)["input_ids"]
        changed = ids.clone()
        changed[:, -1] = 50
        with torch.no_grad():
            before, after = (fast(input_ids=one).logits for one in (ids, changed))
        assert torch.equal(before[:, :-1], after[:, :-1])
        assert not torch.equal(before[:, -1], after[:, -1])

    def test_a_window_is_heeded(self) -> None:
        """With a window of 5 tokens in one layer of two, and all before in the other, only the mask knows."""
        slow, fast = pair("gemma2", torch.float32)
        assert "sliding_attention" in slow.config.layer_types
        ids = sentences(False)
        torch.testing.assert_close(fast(**ids).logits, slow(**ids).logits)
        fast.config.sliding_window = 3
        assert not torch.allclose(fast(**ids).logits, slow(**ids).logits, atol=1e-3)

    def test_a_model_that_cannot_is_refused_and_left_alone(self) -> None:
        model = tiny.tiny("xlnet")
        before = model.config._attn_implementation
        with pytest.raises(NotApplicable, match="XLNet"):
            hw.fast_attention(model)
        assert model.config._attn_implementation == before

    def test_an_attention_that_it_does_not_have_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, _ = pair("gemma2")
        monkeypatch.setattr(type(model), "_supports_sdpa", False)  # versions of transformers differ about it
        with pytest.raises(NotApplicable, match="does not take the attention 'sdpa'"):
            interface.with_attention(model, "sdpa")
        assert model.config._attn_implementation == "eager"

    def test_a_model_of_another_library_is_refused(self) -> None:
        with pytest.raises(NotApplicable, match="TorchEncoder is no model of transformers"):
            hw.fast_attention(tiny.tiny("torch-encoder"))

    def test_a_model_with_neither_keeps_torchs_attention(self) -> None:
        model = copy.deepcopy(tiny.tiny("llama"))
        ids = {"input_ids": sentences(False)["input_ids"]}
        expected = hw.explain(model, ids)
        for one, other in zip(hw.explain(hw.fast_attention(model), ids), expected, strict=True):
            assert torch.equal(one.relevance, other.relevance)

    def test_attention_of_another_kind_is_refused(self, monkeypatch: pytest.MonkeyPatch, unchecked: None) -> None:
        _, fast = pair("gemma2")
        module = sys.modules[tf.Gemma2ForCausalLM.__module__]
        true = module.eager_attention_forward

        def tilted(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **rest: Any) -> Any:
            return true(module, query, key, value, mask + torch.arange(mask.shape[-1]), **rest)

        monkeypatch.setattr(module, "eager_attention_forward", tilted)
        with pytest.raises(NotApplicable, match="Gemma2Attention computes something else"):
            fast(**sentences(False))

    def test_dropout_is_refused(self) -> None:
        model = MODELS["gemma2"]()
        model.config.attention_dropout = 0.1
        again = hw.fast_attention(tf.Gemma2ForCausalLM(model.config)).train()
        with pytest.raises(NotApplicable, match="dropout"):
            again(**sentences(False))

    def test_the_rule_meets_it_as_one_operation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, fast = pair("gpt-oss")

        def never(*_: Any, **__: Any) -> Any:
            raise AssertionError("it was written out")

        monkeypatch.setattr(rule, "spell_capped_attention", never)
        hw.explain(fast, sentences(False))
        with pytest.raises(AssertionError, match="written out"):
            hw.explain(fast, sentences(False), method="lrp-secant")

    def test_nothing_is_registered_by_importing(self) -> None:
        code = (
            "import headwater, sys; assert 'transformers' not in sys.modules;"
            "import headwater.api.fast_attention; assert 'transformers' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def unchecked() -> Iterator[None]:
    before = set(interface._CHECKED)
    interface._CHECKED.clear()
    yield
    interface._CHECKED.clear()
    interface._CHECKED.update(before)
