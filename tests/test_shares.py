"""Queries, keys and values take the shares that a name gives them, on every attention, and the ledger closes."""

from __future__ import annotations

import pytest
import torch
from attending import closed, fused_and_written
from scoped import Passed, drawn_upstream, passed, rules
from test_attention_variants import BIAS, SCALE, WAYS, K, Q, V, is_same, unaccounted
from tiny import BUILD, arguments, tiny
from torch import Tensor

import headwater as hw
from headwater.engine.forward import Demand
from headwater.errors import UnknownName, UsageError
from headwater.kernels.capped import capped_attention
from headwater.methods.lrp import make_method
from headwater.rules import RuleSet
from headwater.rules.attention.query import QUERY_SHARE
from headwater.rules.attention.registry import find_variant, variant_for
from headwater.rules.attention.shares import OFFSET

SHARES = "shares(q=0.35,k=0.15,v=0.5)"
TO_VALUES = "shares(q=0.35,k=0.15,v=0.5,offset=values)"
METHODS = tuple(f"lrp(ah={name}+ln+act+gate=half+gamma=0.03)" for name in (SHARES, TO_VALUES))
ALL = ("ah", "ln", "act", "gate")


def attend(way: str, variant: str, gate: str = "half") -> Passed:
    return passed(WAYS[way], (Q, K, V), rules(*ALL, attention=variant, gate=gate))


def by_the_sums(q: Tensor, k: Tensor, v: Tensor, shares: tuple[float, float, float], to_values: bool) -> list[Tensor]:
    """y_id = sum_j p_ij v_jd with p = J s + c, s_ij = scale sum_e q_ie k_je, element by element; one head."""
    a, b, c = shares
    g = drawn_upstream(torch.Size((1, 1, len(q), v.shape[1])))[0, 0]
    s = SCALE * q @ k.T
    p = s.softmax(-1)
    mean = (p * s).sum(-1, keepdim=True)
    offset = p * (1 + mean - s)
    back = p * (g @ v.T - (p * (g @ v.T)).sum(-1, keepdim=True))  # what reaches s
    to_query = torch.stack([a * SCALE * sum(back[i, j] * k[j] for j in range(len(k))) for i in range(len(q))])
    to_key = torch.stack([b * SCALE * sum(back[i, j] * q[i] for i in range(len(q))) for j in range(len(k))])
    mixing = c * p + ((a + b) * offset if to_values else 0)
    to_value = torch.stack([sum(mixing[i, j] * g[i] for i in range(len(q))) for j in range(len(k))])
    left = torch.zeros(()) if to_values else (a + b) * (g * (offset @ v)).sum()
    return [to_query, to_key, to_value, left]


@pytest.mark.parametrize("shares", [(0.35, 0.15, 0.5), (0.0, 0.25, 0.75), (0.6, 0.0, 0.4), (0.5, 0.5, 0.0)])
@pytest.mark.parametrize("offset", ["constant", "values"])
@pytest.mark.parametrize("way", ["fused", "written out", "by hand", "capped"])
def test_it_is_what_the_sums_say(way: str, offset: str, shares: tuple[float, float, float]) -> None:
    ways = {
        "fused": WAYS["fused"],
        "written out": lambda q, k, v: torch.softmax((q @ k.transpose(-2, -1)) * SCALE, -1) @ v,
        "by hand": WAYS["softmax by hand"],
        "capped": lambda q, k, v: capped_attention(q, k, v, scale=SCALE),
    }
    parts = [part[:, :1] for part in (Q, K, V)]
    name = "shares(q={},k={},v={},offset={})".format(*shares, offset)
    found = passed(ways[way], parts, rules(*ALL, attention=name, gate="half"))
    *expected, left = by_the_sums(*(part[0, 0] for part in parts), shares, offset == "values")
    for ours, theirs in zip(found.gradients, expected, strict=True):
        torch.testing.assert_close(ours[0, 0], theirs, rtol=1e-9, atol=1e-11)
    booked = sum(amount for line, amount in found.lines.items() if OFFSET in line)
    assert booked == pytest.approx(float(left), abs=1e-10)


@pytest.mark.parametrize("gate", ["constant", "half"])
@pytest.mark.parametrize("variant", [SHARES, TO_VALUES, "shares(v=1)", "shares(k=0.3,v=0.7)"])
@pytest.mark.parametrize("way", WAYS)
def test_they_close_on_every_attention(way: str, variant: str, gate: str) -> None:
    found = attend(way, variant, gate)
    assert unaccounted(found) == pytest.approx(0, abs=1e-10)
    torch.testing.assert_close(found.value, attend(way, "constant", gate).value, rtol=0, atol=1e-14)
    if variant == TO_VALUES:
        assert not any(OFFSET in line for line in found.lines)


@pytest.mark.parametrize("way", WAYS)
def test_query_is_one_of_them(way: str) -> None:
    ours, theirs = attend(way, "query"), attend(way, f"shares(q={QUERY_SHARE},v={1 - QUERY_SHARE})")
    assert all(torch.equal(a, b) for a, b in zip(ours.gradients, theirs.gradients, strict=True))
    assert ours.lines == theirs.lines
    assert not is_same(ours, attend(way, SHARES))


def test_half_differs_in_its_offset_alone() -> None:
    """The gradient of a softmax is its tangent's; AttnLRP leaves the offset out, and its ledger open."""
    for way in ("fused", "written out", "capped", "sinks"):
        ours, theirs = attend(way, "shares(q=0.25,k=0.25,v=0.5)"), attend(way, "half")
        assert is_same(ours, theirs)
        assert abs(unaccounted(theirs)) > 1e-3


@pytest.mark.parametrize("taking", ["qkv", "q", "k", "v", "qk", "qv", "kv"])
@pytest.mark.parametrize("variant", [SHARES, TO_VALUES])
@pytest.mark.parametrize("way", ["fused", "written out", "capped", "sinks"])
def test_what_depends_on_no_input_leaves_its_share_to_the_others(way: str, variant: str, taking: str) -> None:
    """First to those of its own side: queries and keys, or values."""
    given = dict(zip("qkv", (Q, K, V), strict=True))

    def some(*signals: Tensor) -> Tensor:
        return WAYS[way](*(given | dict(zip(taking, signals, strict=True))).values())

    found = passed(some, [given[name] for name in taking], rules(*ALL, attention=variant, gate="half"))
    arrived = {n: float((given[n] * g).sum()) for n, g in zip(taking, found.gradients, strict=True)}
    score = float((drawn_upstream(found.value.shape) * found.value).sum())
    assert score == pytest.approx(sum(arrived.values()) + sum(found.lines.values()), abs=1e-10)
    whole = attend(way, variant)
    before = dict(
        zip("qkv", (float((x * g).sum()) for x, g in zip((Q, K, V), whole.gradients, strict=True)), strict=True)
    )
    if "v" in taking and taking != "v":
        scores = before["q"] + before["k"]
        assert sum(arrived[n] for n in taking if n != "v") == pytest.approx(scores, rel=1e-9)
        assert arrived["v"] == pytest.approx(before["v"], rel=1e-9)
    if taking == "v":
        assert arrived["v"] == pytest.approx(score, rel=1e-9)


def test_a_bias_of_the_scores_that_is_a_signal_takes_its_part() -> None:
    from torch.nn.functional import scaled_dot_product_attention

    ways = {
        "fused": lambda q, k, v, bias: scaled_dot_product_attention(q, k, v, bias, scale=SCALE),
        "written out": lambda q, k, v, bias: torch.softmax((q @ k.transpose(-2, -1)) * SCALE + bias, -1) @ v,
    }
    found = {way: passed(one, (Q, K, V, BIAS), rules(*ALL, attention=SHARES, gate="half")) for way, one in ways.items()}
    for one in found.values():
        arrived = sum(float((x * g).sum()) for x, g in zip((Q, K, V, BIAS), one.gradients, strict=True))
        score = float((drawn_upstream(one.value.shape) * one.value).sum())
        assert score == pytest.approx(arrived + sum(one.lines.values()), abs=1e-10)
    assert is_same(found["fused"], found["written out"])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", BUILD)
def test_ledgers_of_models_close(name: str, method: str) -> None:
    booked = [any(OFFSET in line for line in e.ledger.constants) for e in closed(name, method)]
    assert all(booked) == ("offset" not in method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "qwen3"])
def test_written_out_or_fused_it_is_the_same(name: str, method: str) -> None:
    fused_and_written(name, method)


def test_the_same_text_is_the_same_variant() -> None:
    assert find_variant(SHARES) is find_variant(SHARES)
    assert find_variant(SHARES) is not find_variant(TO_VALUES)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("shares(q=0.5,k=0.1,v=0.5)", UsageError, "add up to 1"),
        ("shares(q=0.5,w=0.5)", UnknownName, "'w'"),
        ("shares(q=0.5,v=half)", UsageError, "number from 0 to 1"),
        ("shares(q=1.5,v=-0.5)", UsageError, "share of q"),
        ("shares(q=0.5,v=0.5,offset=keys)", UnknownName, "offset.*'keys'"),
        ("shares", UsageError, "written as"),
        ("share(q=1)", UnknownName, "shares"),
    ],
)
def test_shares_that_are_none_are_refused(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        find_variant(text)


TABLE = (("*", SHARES), ("*layer*.1.*", "query"))


def test_by_names_of_modules_the_last_match_counts() -> None:
    asked = RuleSet(frozenset(ALL), attention=TABLE)
    assert variant_for(asked, "bert.encoder.layer.0.attention.self").name == SHARES
    assert variant_for(asked, "bert.encoder.layer.1.attention.self").name == "query"
    assert variant_for(RuleSet(frozenset(ALL), attention="half"), "anywhere").name == "half"
    assert variant_for(RuleSet(frozenset(ALL), attention=(("a", "constant"),)), "b").name == "constant"


@pytest.mark.parametrize(
    "table", [(("*", "query"), ("*1*", "half")), (("*1*", "query"),), (("*", "half"), ("b", "constant"))]
)
def test_variants_of_one_table_treat_the_softmax_alike(table: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(UsageError, match="treat the softmax alike"):
        RuleSet(frozenset(ALL), attention=table)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_by_depth_each_layer_has_its_own(name: str) -> None:
    def offsets(attention: object) -> dict[str, float]:
        asked = RuleSet(frozenset(ALL), attention=attention, gate="half")
        (e, *_) = hw.explain(tiny(name), arguments(name), method=make_method("by depth", "", Demand(asked)))
        assert e.ledger.closed
        return {line: amount for line, amount in e.ledger.constants.items() if OFFSET in line}

    mixed, of_query, of_shares = offsets(TABLE), offsets("query"), offsets(SHARES)
    last = max(mixed)  # nothing behind the last layer differs
    assert mixed[last] == pytest.approx(of_query[last])
    assert mixed[last] != pytest.approx(of_shares[last])
    first = min(mixed)
    assert mixed[first] != pytest.approx(of_query[first])
