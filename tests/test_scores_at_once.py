"""Several output tokens in one backward pass: the same numbers as one by one, in bounded memory, with a way back."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from speaker import speaker, talker
from torch import nn

import headwater as hw
from headwater.engine import at_once, backward
from headwater.engine.forward import NO_RULES, Run
from headwater.inputs.batch import Batch
from headwater.kernels.batching import close_batch, is_batched, map_batch, open_batch
from headwater.kernels.sparse_rows import RowBlocks
from headwater.rules import Books, Scope, gamma, gated
from headwater.rules.maps import MapScope

PROMPT = "the capital of France is"
METHODS = ("gi", "lrp", "lrp-query", "lrp-gamma", "attnlrp", "lrp-secant")
NAMES = ("llama", "gpt2", "t5-lm", "bart-lm", "gemma2", "gemma3", "mixtral", "opt", "gpt-neox", "qwen3", "phi3")
TOKENS = 5


def made(name: str, method: str = "lrp-query", **options) -> hw.Generation:
    options = {"max_new_tokens": TOKENS, "sinks": "show"} | options
    return hw.explain_generation(talker(name), PROMPT, tokenizer=speaker(), method=method, **options)


@pytest.fixture
def passes(monkeypatch):
    """How many scores each backward pass had."""
    found = []
    together, alone = at_once.gradients_at_once, backward.gradients_at

    def count_together(leaves, reads):
        made = together(leaves, reads)
        found.append(len(reads))
        return made

    def count_alone(*args):
        found.append(1)
        return alone(*args)

    monkeypatch.setattr(at_once, "gradients_at_once", count_together)
    monkeypatch.setattr(backward, "gradients_at", count_alone)
    return found


def one_by_one(monkeypatch, name: str, method: str = "lrp-query", **options) -> hw.Generation:
    with monkeypatch.context() as patch:
        patch.setattr(at_once, "ROWS", 0)
        return made(name, method, **options)


def lines(ledger: hw.Ledger) -> dict[tuple[str, str], float]:
    groups = {"biases": ledger.biases, "constants": ledger.constants}
    return {(group, name): value for group, found in groups.items() for name, value in dict(found).items()}


def check_equal(found: hw.Generation, plain: hw.Generation) -> None:
    room = 1e-12 * float(plain.relevance.abs().max())
    assert torch.allclose(found.relevance, plain.relevance, rtol=0, atol=room)
    assert found.scores == plain.scores
    assert found.probabilities == plain.probabilities
    for ours, theirs in zip(found.ledgers, plain.ledgers, strict=True):
        assert lines(ours) == pytest.approx(lines(theirs), rel=1e-12, abs=max(room, 1e-13))
        assert ours.unaccounted == pytest.approx(theirs.unaccounted, abs=max(room, 1e-13))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_one_pass_for_all_says_what_one_for_each_says(name, method, passes, monkeypatch):
    found = made(name, method)
    assert passes == [TOKENS]
    check_equal(found, one_by_one(monkeypatch, name, method))
    assert passes == [TOKENS, *[1] * TOKENS]


@pytest.mark.parametrize("score", ["logprob", "contrast"])
def test_any_score_can_be_read(score, passes, monkeypatch):
    found = made("llama", score=score)
    assert passes == [TOKENS]
    check_equal(found, one_by_one(monkeypatch, "llama", score=score))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_rows_of_a_pass_are_bounded(size, passes, monkeypatch):
    positions = len(speaker()(PROMPT)["input_ids"]) + TOKENS - 1
    plain = one_by_one(monkeypatch, "gpt2")
    passes.clear()
    monkeypatch.setattr(at_once, "ROWS", size * positions + positions - 1)
    check_equal(made("gpt2"), plain)
    assert len(passes) == math.ceil(TOKENS / size)
    assert max(passes) == math.ceil(TOKENS / len(passes)) <= size  # as many in each
    assert sum(passes) == TOKENS


def test_numbers_that_a_pass_starts_from_are_bounded(passes, monkeypatch):
    monkeypatch.setattr(at_once, "SEEDS", 2 * TOKENS * 120)
    made("gpt2")
    assert passes == [2, 2, 1]


def test_tokens_at_once_bounds_the_backward_pass_too(passes):
    made("gpt2", tokens_at_once=2)
    assert passes == [2, 2, 1]


@pytest.mark.parametrize("options", [{"keep": "host"}, {"keep": "disk"}, {"recompute": "blocks"}])
def test_what_is_kept_elsewhere_comes_for_one_token(options, passes, monkeypatch):
    found = made("llama", **options)
    assert passes == [1] * TOKENS
    check_equal(found, one_by_one(monkeypatch, "llama"))


def test_within_a_limit_it_is_one_by_one(passes):
    made("gpt2", memory_limit="4GiB")
    assert set(passes) == {1}


def test_what_cannot_be_batched_is_explained_one_by_one(passes, monkeypatch):
    plain = one_by_one(monkeypatch, "llama")
    passes.clear()
    backward, calls = gated._Gated.backward, []

    def refuse(ctx, *gradients):
        calls.append(is_batched(gradients[0]))
        if calls.count(True) == 2 and calls[-1]:  # what came before it is booked by then
            raise RuntimeError("no batching rule")
        return backward(ctx, *gradients)

    monkeypatch.setattr(gated._Gated, "backward", staticmethod(refuse))
    found = made("llama")
    assert calls[:2] == [True, True]
    assert calls.count(True) == 2  # it is tried once
    assert passes == [1] * TOKENS
    assert torch.equal(found.relevance, plain.relevance)
    assert [lines(ledger) for ledger in found.ledgers] == [lines(ledger) for ledger in plain.ledgers]


class Watched(nn.Module):
    """A hook of the model's looks at gradients."""

    def __init__(self, inner: nn.Module, seen: list[float]) -> None:
        super().__init__()
        self.inner, self.seen = inner, seen

    def forward(self, *args, **kwargs):
        out = self.inner(*args, **kwargs)
        if out.requires_grad:
            out.register_hook(lambda gradient: self.seen.append(float(gradient.abs().sum())))
        return out


def test_a_hook_of_the_models_sees_every_token_by_itself(passes):
    model, seen = deepcopy(talker("gpt2")), []
    model.transformer.h[1].mlp = Watched(model.transformer.h[1].mlp, seen)
    hw.explain_generation(model.eval(), PROMPT, tokenizer=speaker(), max_new_tokens=TOKENS)
    assert passes == [1] * TOKENS
    assert len(set(seen)) == TOKENS


def test_what_is_watched_or_needs_further_passes_is_one_by_one():
    run = Run(nn.Identity(), Batch(samples=2, items=[], kwargs={}), lambda out, batch: out)
    scope = Scope(NO_RULES.rules, Books(2), {}, {})
    assert at_once.AtOnce.of(run, NO_RULES, scope, []).possible
    assert not at_once.AtOnce.of(replace(run, inspect=lambda scope: None), NO_RULES, scope, []).possible
    assert not at_once.AtOnce.of(replace(run, scope=MapScope), NO_RULES, scope, []).possible
    assert not at_once.AtOnce.of(run, replace(NO_RULES, backward=False), scope, []).possible
    scope.books.enter_vector(torch.zeros(2, 2, 2, requires_grad=True).exp(), "bias", torch.zeros(2))
    assert scope.books.needs_probe
    assert not at_once.AtOnce.of(run, NO_RULES, scope, []).possible


def test_torch_says_nothing_of_loops(recwarn):
    made("llama", "lrp-query")
    assert not [one for one in recwarn if "performance" in str(one.message)]


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_absolute_weights_a_few_rows_at_a_time(name, monkeypatch):
    whole, alone = made(name), one_by_one(monkeypatch, name)
    monkeypatch.setattr(gamma, "WHOLE", 0)
    monkeypatch.setattr(gamma, "CACHED", 100)
    check_equal(made(name), whole)
    check_equal(one_by_one(monkeypatch, name), alone)


def test_a_batch_is_opened_and_closed():
    numbers = torch.randn(3, 4, 5)

    def double(row):
        assert is_batched(row)
        opened, level = open_batch(row)
        assert opened.shape == (4, 3, 5)
        assert not is_batched(opened)
        return close_batch(2 * opened, level), map_batch(lambda one: (3 * one, None), row)[0]

    twice, thrice = torch.vmap(double, in_dims=1, out_dims=1)(numbers)
    assert torch.equal(twice, 2 * numbers)
    assert torch.equal(thrice, 3 * numbers)
    assert open_batch(numbers) == (numbers, None)


def test_rows_that_are_zero_are_left_out_and_put_back():
    gradients = torch.zeros(4, 6, 3)
    gradients[0, 1:3], gradients[1, 5], gradients[3] = 1.0, 2.0, 3.0
    gradients[3, 2] = 0.0  # between others
    blocks = RowBlocks.of(gradients)
    assert blocks.ranges == [(1, 3), (5, 6), (0, 0), (0, 6)]
    factor = torch.arange(6.0)[:, None].expand(6, 3)
    gathered = blocks.gather(gradients, factor)
    assert len(gathered) == 9
    assert torch.equal(gathered, (gradients * factor).view(24, 3)[blocks.rows()])
    assert torch.equal(blocks.scatter(gathered), gradients * factor)
    assert RowBlocks.of(gradients[3:]).rows() is None
