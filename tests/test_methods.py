"""Every registered method through one conformance test; the paper's baselines against slow versions of their own."""

from __future__ import annotations

import copy
import time
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch
import transformers as tf
from tiny import arguments, randomised, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.engine.forward import Run
from headwater.engine.outcome import Outcome
from headwater.errors import MissingExtra, NotApplicable, UsageError
from headwater.inputs.batch import Batch
from headwater.methods import Method, available, resolve_method
from headwater.methods.attention import flow_matrix, with_residual
from headwater.methods.registry import _METHODS
from headwater.models.bundled import load_bundled
from headwater.testing import NotConforming, check_method

TEXTS = ["a gripping, beautifully acted film", "the movie is not good"]
NAMES = [method.name for method in available()]
FOLLOWS_ONE_STACK = ("a-last", "rollout", "a-flow", "gae", "gae-rollout", "ifr")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "distilbert", "gpt2", "llama"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method_conforms_on_text(name: str, model: str) -> None:
    assert check_method(name, tiny(model), TEXTS, tokenizer=tokenizer(), tolerance=1e-4) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_method_conforms_on_images(name: str) -> None:
    assert check_method(name, tiny("vit"), arguments("vit"), tolerance=1e-4) is not None


@pytest.mark.parametrize(
    "name", ["smoothgrad(lrp)", "smoothgrad(lrp-gamma)", "lrp(ah+ln+act+gate=half)", "lrp-gamma(0.3)"]
)
def test_composed_methods_conform(name: str) -> None:
    assert check_method(name, tiny("bert"), TEXTS, tokenizer=tokenizer()) is not None


def test_a_method_that_cheats_is_caught() -> None:
    """The conformance test can fail: a method whose numbers depend on the batch, one without numbers, one too short."""

    def broken(change: Any) -> Method:
        gi = resolve_method("gi")

        def run(job: Any) -> Any:
            outcome = gi.run(job)
            return replace(outcome, positions=[change(job, int(n)) for n in job.batch.real.sum(1)])

        return replace(gi, name="broken", run=run)

    for change, says in (
        (lambda job, n: torch.full((n,), float(job.batch.samples)), "in a batch"),
        (lambda job, n: torch.full((n,), torch.nan), "not finite"),
        (lambda job, n: torch.ones(n - 1), "a token"),
    ):
        with pytest.raises(NotConforming, match=says):
            check_method(broken(change), tiny("bert"), TEXTS, tokenizer=tokenizer())


@pytest.mark.parametrize("name", FOLLOWS_ONE_STACK)
def test_attention_methods_refuse_what_they_cannot_follow(name: str) -> None:
    with pytest.raises(NotApplicable, match="one stack"):
        hw.explain(tiny("bart"), arguments("bart", 1), method=name)
    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()
    with pytest.raises(NotApplicable, match="has none"):
        hw.explain(plain, torch.randn(1, 4), method=name)


# Slow versions, from transformers' own eager attentions


def eager_maps(text: str = TEXTS[0]) -> tuple[list[Tensor], Tensor, Any]:
    """[heads, queries, keys] of every layer, as the model gives them itself, with their gradients."""
    model = copy.deepcopy(tiny("bert"))
    model.set_attn_implementation("eager")
    out = model(**tokenizer()(text, return_tensors="pt"), output_attentions=True)
    for a in out.attentions:
        a.retain_grad()
    return list(out.attentions), out.logits[0].max(), model


def explained(name: str, **options: Any) -> Tensor:
    found: Tensor = hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), method=name, **options).relevance
    return found


def test_a_last_is_the_models_own_last_attention() -> None:
    maps, _, _ = eager_maps()
    last = maps[-1].detach()
    expected = [sum(float(last[0, :, q, k].mean()) for q in range(8)) for k in range(8)]
    assert explained("a-last") == pytest.approx(expected, abs=1e-6)


def test_rollout_by_loops() -> None:
    maps, _, _ = eager_maps()
    total = torch.eye(8, dtype=torch.float64)
    for a in maps:
        layer = a[0].mean(0).detach()
        rows = []
        for q in range(8):
            row = layer[q].clone()
            row[q] += 1
            rows.append(row / row.sum())
        total = torch.stack(rows) @ total
    assert explained("rollout") == pytest.approx(total.sum(0), abs=1e-6)


@pytest.mark.parametrize("variant", ["gae", "gae-rollout"])
def test_gae_by_the_models_own_gradients(variant: str) -> None:
    maps, score, _ = eager_maps()
    score.backward()
    cams = [(a * a.grad).clamp(min=0)[0].mean(0).detach() for a in maps]
    if variant == "gae":
        total = torch.eye(8, dtype=torch.float64)
        for cam in cams:
            total = total + cam @ total
        expected = total[0].clone()
        expected[0] = 0
    else:
        total = torch.eye(8, dtype=torch.float64)
        for cam in cams:
            mixed = cam + torch.eye(8)
            total = (mixed / mixed.sum(-1, keepdim=True)) @ total
        total[0, 0] = 0
        expected = total.sum(0)
    assert explained(variant) == pytest.approx(expected, abs=1e-6)


def networkx_flow(layers: list[Tensor]) -> Tensor:
    import networkx as nx

    size, depth = len(layers[0]), len(layers)
    graph = nx.DiGraph()
    for level, matrix in enumerate(layers):
        for q in range(size):
            for k in range(size):
                graph.add_edge((level + 1, q), (level, k), capacity=float(matrix[q, k]))
    return torch.tensor([[nx.maximum_flow_value(graph, (depth, q), (0, k)) for k in range(size)] for q in range(size)])


def random_layers(size: int, depth: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(size)
    return [with_residual(torch.rand(size, size, generator=generator).softmax(-1)) for _ in range(depth)]


@pytest.mark.parametrize(("size", "depth"), [(3, 2), (5, 3), (6, 4)])
def test_flow_is_exact(size: int, depth: int) -> None:
    layers = random_layers(size, depth)
    assert flow_matrix(layers) == pytest.approx(networkx_flow(layers), abs=1e-6)


def test_flow_is_fast() -> None:
    """Against networkx on a few of the 1,024 flows of 32 tokens and 6 layers: at least 50 times faster each."""
    import networkx as nx

    layers = random_layers(32, 6)
    start = time.process_time()
    flow_matrix(layers)
    ours = (time.process_time() - start) / 1024
    graph = nx.DiGraph()
    for level, matrix in enumerate(layers):
        for q in range(32):
            for k in range(32):
                graph.add_edge((level + 1, q), (level, k), capacity=float(matrix[q, k]))
    start = time.process_time()
    nx.maximum_flow_value(graph, (6, 3), (0, 5))
    assert (time.process_time() - start) / ours > 50


def test_random_is_seeded_by_the_argument() -> None:
    assert torch.equal(explained("random", seed=1), explained("random", seed=1))
    assert not torch.equal(explained("random", seed=1), explained("random", seed=2))


def test_maps_are_read_without_a_slower_attention() -> None:
    model = tiny("bert")
    before = model.config._attn_implementation
    assert before == "sdpa"
    hw.explain(model, TEXTS[0], tokenizer=tokenizer(), method="rollout")
    assert model.config._attn_implementation == before


# captum's


def test_integrated_gradients_are_complete() -> None:
    """Relevance sums to the score less that of the baseline, to 1e-3: on a random model and on a trained one."""
    pairs = [(tiny("bert"), tokenizer()), load_bundled()]
    for model, words in pairs:
        e = hw.explain(model, TEXTS[0], tokenizer=words, method="integrated-gradients")
        assert e.ledger.unaccounted == pytest.approx(0, abs=1e-3)
        assert e.ledger.constants["score of the baseline"] != 0


def test_shapley_values_are_complete_and_occlusion_is_by_hand() -> None:
    e = hw.explain(tiny("bert"), TEXTS[1], tokenizer=tokenizer(), method="shapley-sampling")
    assert e.ledger.unaccounted == pytest.approx(0, abs=1e-6)
    e = hw.explain(tiny("bert"), TEXTS[1], tokenizer=tokenizer(), method="occlusion", at="words")
    fields = tokenizer()(TEXTS[1], return_tensors="pt")
    with torch.no_grad():
        whole = tiny("bert")(**fields).logits[0]
        label = int(whole.argmax())
        for place in range(len(e.tokens)):
            ids = fields["input_ids"].clone()
            ids[0, place] = tokenizer().unk_token_id
            without = tiny("bert")(**{**fields, "input_ids": ids}).logits[0]
            assert float(e.relevance[place]) == pytest.approx(float(whole[label] - without[label]), abs=1e-6)


def test_a_classifier_that_takes_one_text_at_a_time_is_not_run_on_copies() -> None:
    """GPT-2's refuses a batch where its configuration names no padding: a comparison ended in a ValueError."""
    pytest.importorskip("captum")
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 120, "n_positions": 64}
    model = randomised(
        tf.GPT2ForSequenceClassification(tf.GPT2Config(**sizes, bos_token_id=2, eos_token_id=3)).double()
    )
    found = hw.compare(model, "a dull film", tokenizer=tokenizer(), methods=["lrp", "occlusion"])
    assert [e.method for e in found.explanations] == ["lrp"]
    (refused,) = found.refused
    assert "model.config.pad_token_id = tokenizer.pad_token_id" in refused[1]
    model.config.pad_token_id = tokenizer().pad_token_id
    assert hw.explain(model, "a dull film", tokenizer=tokenizer(), method="occlusion").method == "occlusion"


def test_saliency_is_the_size_of_the_gradient() -> None:
    model, fields = tiny("bert"), tokenizer()(TEXTS[0], return_tensors="pt")
    x = model.bert.embeddings(fields["input_ids"]).detach().requires_grad_(True)
    score = model.classifier(model.bert.pooler(model.bert.encoder(x)[0]))[0].max()
    (gradient,) = torch.autograd.grad(score, x)
    assert explained("saliency") == pytest.approx(gradient.abs().sum(-1)[0], abs=1e-9)


def test_methods_of_captum_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "captum.attr", None)
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(MissingExtra, match=r"headwater\[captum\]"):
        explained("integrated-gradients")


def test_smoothgrad_wraps_gradient_methods_only() -> None:
    smooth, plain = explained("smoothgrad(lrp)"), explained("lrp")
    assert not torch.equal(smooth, plain)
    assert smooth == pytest.approx(plain, rel=0.5, abs=0.2)
    assert hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), method="smoothgrad(gi)").method == "smoothgrad"
    with pytest.raises(UsageError, match="gradient method"):
        explained("smoothgrad(rollout)")


def test_a_plugin_can_register() -> None:
    from headwater.methods.registry import register

    gi = resolve_method("gi")
    try:
        register(replace(gi, name="mine"))
        assert hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), method="mine").method == "mine"
    finally:
        _METHODS.pop("mine", None)


def test_a_plugin_may_have_a_group_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    from headwater.cli.methods import command
    from headwater.methods.registry import available, register

    gi = resolve_method("gi")
    try:
        for name, group in (("one", "theirs"), ("two", "others'"), ("three", "theirs")):
            register(replace(gi, name=name, group=group))
        assert [method.name for method in available()][-3:] == ["one", "three", "two"]
        command(plain=True)
        assert "three" in capsys.readouterr().out
    finally:
        for name in ("one", "two", "three"):
            _METHODS.pop(name, None)


@pytest.mark.parametrize("value", [Batch, Run, Outcome])
def test_what_a_method_is_given_and_gives_cannot_be_written_into(value: type) -> None:
    with pytest.raises(FrozenInstanceError):
        object.__new__(value).batch = None


def test_a_method_of_ones_own_reads_the_gradients() -> None:
    """Input times gradient is the relevance; a plug-in that squares gradients needs them as they are."""
    gi, seen = resolve_method("gi"), []

    def run(job: Run) -> Outcome:
        outcome = gi.run(job)
        seen.extend(zip(outcome.captured, outcome.gradients, outcome.relevance, strict=True))
        return replace(outcome, relevance=[gradient.square() for gradient in outcome.gradients])

    squares = hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), method=replace(gi, name="squares", run=run))
    assert squares.relevance.min() > 0
    for one, gradient, relevance in seen:
        assert torch.equal(one.leaf.detach().double() * gradient.double(), relevance.double())


def test_methods_that_share_a_pass_leave_it_as_it_was() -> None:
    """Attention methods and smoothgrad start from Gradient x Input's outcome, and its ledger is still its own."""
    alone = hw.explain(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), method="gi")
    together = hw.compare(tiny("bert"), TEXTS[0], tokenizer=tokenizer(), methods=["smoothgrad", "rollout", "gae", "gi"])
    found = together.explanations[-1]
    assert torch.equal(found.relevance, alone.relevance)
    assert found.ledger == alone.ledger
