"""A variant of attention is one object: right on fused, written-out and capped attention, wherever it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import outside_rules
import pytest
import torch
import torch.nn.functional as F
from attending import closed, fused_and_written
from scoped import UPSTREAM, Passed, passed, rules
from tiny import arguments, tiny
from torch import Tensor
from weighing import drawn

import headwater as hw
from headwater.errors import UnknownName, UsageError
from headwater.kernels.capped import capped_attention
from headwater.methods import lrp
from headwater.rules import VARIANTS, AttentionCall, RuleSet, Softmax, Variant, register_variant
from headwater.rules.call import Call

Q, K, V = drawn(1, 4, 5, 3, seed=1), drawn(1, 4, 6, 3, seed=2), drawn(1, 4, 6, 2, seed=3)
ALLOWED = (drawn(5, 6, seed=4) > -0.5) | (torch.arange(6) == 0)
BLIND = ALLOWED & (torch.arange(5) != 2)[:, None]  # the third query may look at nothing
BIAS = drawn(1, 4, 5, 6, seed=5)
SINKS = drawn(4, seed=6)
SCALE = 0.7
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * SCALE
    return torch.softmax(scores.masked_fill(~ALLOWED, -math.inf), -1) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) * SCALE + BIAS, -1)
    return torch.einsum("bhkd,bhqk->bhqd", v, weights)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    exponentials = ((q @ k.transpose(-2, -1)) * SCALE).exp()
    return (exponentials / exponentials.sum(-1, keepdim=True)) @ v


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)


WAYS: dict[str, Attention] = {
    "fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=SCALE),
    "fused, causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, True),
    "fused, masked": lambda q, k, v: F.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=ALLOWED),
    "fused, one sees nothing": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, BLIND),
    "fused, biased": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, BIAS),
    "fused, in groups": grouped,
    "written out": written,
    "einsum": by_einsum,
    "softmax by hand": by_hand,
    "capped": lambda q, k, v: capped_attention(q, k, v, cap=2.0),
    "capped, masked": lambda q, k, v: capped_attention(q, k, v, ALLOWED, scale=SCALE, cap=2.0),
    "sinks": lambda q, k, v: capped_attention(q, k, v, None, SINKS, is_causal=True),
}


def attend(way: str, variant: str, gate: str = "half") -> Passed:
    return passed(WAYS[way], (Q, K, V), rules("ah", "ln", "act", "gate", attention=variant, gate=gate))


def is_same(one: Passed, other: Passed) -> bool:
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(one.gradients, other.gradients, strict=True))


def unaccounted(found: Passed) -> float:
    """What came in, less what arrived and what is booked."""
    upstream = drawn(found.value.numel(), seed=UPSTREAM).reshape(found.value.shape)
    arrived = sum(float((x * g).sum()) for x, g in zip((Q, K, V), found.gradients, strict=True))
    return float((upstream * found.value).sum()) - arrived - sum(found.lines.values())


@pytest.mark.parametrize("gate", ["constant", "half"])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_half_from_outside_is_half_on_every_attention(way: str, gate: str) -> None:
    """It says nothing of fused or capped attention, which `half` has its own ways for."""
    theirs, ours = attend(way, "mirror", gate), attend(way, "half", gate)
    assert is_same(theirs, ours)
    torch.testing.assert_close(theirs.value, ours.value, rtol=0, atol=1e-14)
    assert not is_same(theirs, attend(way, "constant", gate))
    if way != "fused, biased":  # `half` books no bias of the scores that a fused attention hides
        assert sum(theirs.lines.values()) == pytest.approx(sum(ours.lines.values()), abs=1e-10)


@pytest.mark.parametrize("way", WAYS)
def test_thirds_from_outside_close_on_every_attention(way: str) -> None:
    """Queries and keys take part alike, and no longer do where their shares are those of another variant."""
    found = attend(way, "thirds")
    assert unaccounted(found) == pytest.approx(0, abs=1e-10)
    assert not is_same(found, attend(way, "secant"))
    relevance = [float((x * g).sum()) for x, g in zip((Q, K, V), found.gradients, strict=True)]
    assert relevance[0] == pytest.approx(relevance[1], abs=1e-10)
    secant = [float((x * g).sum()) for x, g in zip((Q, K), attend(way, "secant").gradients, strict=False)]
    assert relevance[0] == pytest.approx(4 / 3 * secant[0], abs=1e-10)  # a third, not a quarter


def test_left_to_its_gradient_attention_stays_open() -> None:
    assert all(abs(unaccounted(attend(way, "mirror"))) > 1e-3 for way in ("fused", "written out", "capped"))


def test_models_take_a_variant_from_outside() -> None:
    assert closed("bert", "lrp(ah=thirds+ln+act+gate)")
    assert fused_and_written("llama", "lrp(ah=thirds+ln+act+gate)")
    ours, theirs = (
        hw.explain(tiny("bert"), arguments("bert"), method=f"lrp(ah={name}+ln+act+gate=half)")[0].relevance
        for name in ("half", "mirror")
    )
    torch.testing.assert_close(theirs, ours, rtol=1e-9, atol=1e-11)


def test_an_unknown_variant_is_refused_wherever_it_is_named() -> None:
    with pytest.raises(UnknownName, match=r"no share for 'ah' called 'thrids'.*thirds"):
        RuleSet(frozenset({"ah"}), attention="thrids")
    with pytest.raises(UnknownName, match=r"no share for 'ah' called 'secent'.*secant"):
        hw.explain(tiny("bert"), arguments("bert"), method="lrp(ah=secent)")


def test_other_names_of_rules_are_refused_too() -> None:
    with pytest.raises(UnknownName, match="no share for 'gate' called 'secant'"):
        RuleSet(frozenset({"gate"}), gate="secant")
    with pytest.raises(UnknownName, match="no rule called 'ahh'"):
        RuleSet(frozenset({"ahh"}))


def test_the_values_of_ah_are_the_registry() -> None:
    assert {"constant", "half", "secant", "query", outside_rules.Mirror.name, "thirds"} <= {
        name for name, _ in lrp.variants()
    }


def mix(self: Any, call: Any, weights: Any, values: Any) -> Any: ...


def weigh(self: Any, *_: Any) -> Any: ...


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"softmax": Softmax.GRADIENT, "mix": mix}, "needs a name"),
        ({"name": "n", "mix": mix}, "needs a name"),
        ({"name": "n", "softmax": "gradient", "mix": mix}, "needs a name"),
        ({"name": "n", "softmax": Softmax.GRADIENT}, "needs `mix`"),
        ({"name": "n", "softmax": Softmax.CONSTANT, "mix": mix}, "needs `mix`"),
        ({"name": "n", "softmax": Softmax.LINEAR, "mix": mix}, "needs `weigh`"),
        ({"name": "n", "softmax": Softmax.GRADIENT, "mix": mix, "weigh": weigh}, "needs `weigh`"),
        ({"name": "half", "softmax": Softmax.GRADIENT, "mix": mix}, "called 'half' already"),
    ],
)
def test_half_a_variant_is_refused(parts: dict[str, Any], said: str) -> None:
    before = dict(VARIANTS)
    with pytest.raises(UsageError, match=said):
        register_variant(type("Partial", (Variant,), parts))
    assert before == VARIANTS


def test_a_file_that_is_read_again_registers_again() -> None:
    assert register_variant(outside_rules.Mirror) is outside_rules.Mirror


@pytest.mark.parametrize("way", WAYS)
def test_arguments_stand_in_the_same_places(way: str) -> None:
    """By position or by name; and the call that was read computes what was asked for."""
    seen: list[AttentionCall] = []

    class Reads(Variant):
        name, softmax = "reads", Softmax.CONSTANT

        def attend(self, scope: Any, call: AttentionCall) -> Any:
            seen.append(call)
            return call.run()

        attend_with_cap = attend

    register_variant(Reads)
    try:
        result = attend(way, "reads").value
    finally:
        del VARIANTS["reads"]
    if way in ("written out", "einsum", "softmax by hand"):
        assert not seen
        return
    (call,) = seen
    assert set(call.options) <= {"scale", "is_causal", "cap", "dropout_p", "enable_gqa"}
    assert torch.equal(call.query, Q)
    assert ("masked" in way) == (call.mask is ALLOWED)
    assert (way == "sinks") == (call.sinks is SINKS)
    assert torch.equal(call.run().detach(), result)
    assert torch.equal(result, WAYS[way](Q, K, V))


def test_a_mask_by_name_and_by_position_are_one() -> None:
    by_name = Call(
        F.scaled_dot_product_attention, "scaled_dot_product_attention", False, (Q, K, V), {"attn_mask": BIAS}
    )
    by_place = Call(F.scaled_dot_product_attention, "scaled_dot_product_attention", False, (Q, K, V, BIAS), {})
    assert AttentionCall.read(by_name).mask is AttentionCall.read(by_place).mask is BIAS
