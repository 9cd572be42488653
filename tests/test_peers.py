"""Other tools in the benchmark: LXT's patches act, agree with our rules, and leave nothing behind.

A stand-in with LXT's names (`tests/standins`) serves where it is not installed. The one test of the package itself is
skipped there; `pip install --no-deps --target DIRECTORY lxt` and `PYTHONPATH=DIRECTORY` have it run.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from test_cli import call, refusal
from tiny import tiny
from torch import Tensor, nn
from transformers.activations import GELUActivation
from transformers.models.bert import modeling_bert
from transformers.models.llama import modeling_llama

import headwater as hw
from headwater.errors import NotApplicable
from headwater_experiments.bench import lxt_adapter, peers

STANDINS = Path(__file__).parent / "standins"
KINDS = ("bert", "llama")
RULES = ("AttnLRP", "CP-LRP")
INPUTS = {"input_ids": torch.tensor([[7, 19, 33, 101, 54, 88, 12], [5, 9, 2, 61, 44, 3, 17]])}
REAL = find_spec("lxt") is not None


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STANDINS))


def touched() -> list[dict[str, Any]]:
    """All that LXT could reach."""
    places: list[Any] = [nn.LayerNorm, nn.Dropout, nn.Tanh, GELUActivation, modeling_bert, modeling_llama]
    places += [modeling_llama.LlamaMLP, modeling_llama.LlamaRMSNorm]
    shared = modeling_llama.ALL_ATTENTION_FUNCTIONS
    return [*(dict(vars(place)) for place in places), dict(shared), dict(shared._local_mapping)]


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_patches_act_inside_and_leave_no_trace(kind, rules):
    model = tiny(kind)
    before, plain = touched(), hw.explain(model, INPUTS, method="gi")
    tool = lxt_adapter.Lxt.of(model, rules)
    assert peers.largest_difference(tool, model, INPUTS, "gi") > 0.01
    assert peers.largest_difference(tool, model, INPUTS, peers.OURS[rules]) < 1e-6
    assert touched() == before
    assert all(weight.requires_grad for weight in model.parameters())
    again = hw.explain(model, INPUTS, method="gi")
    assert all(torch.equal(a.relevance, b.relevance) for a, b in zip(plain, again, strict=True))
    assert not [name for name in sys.modules if name.partition(".")[0] == "lxt"]


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize("kind", KINDS)
def test_nor_do_they_after_a_failure(kind):
    def failing(x: Tensor) -> Tensor:
        raise RuntimeError("stop")

    before, model = touched(), tiny(kind)
    with pytest.raises(RuntimeError, match="stop"):
        lxt_adapter.Lxt.of(model, "CP-LRP").relevance(torch.ones(1, requires_grad=True), failing)
    assert touched() == before
    assert all(weight.requires_grad for weight in model.parameters())


def test_what_was_added_changed_or_taken_away_is_put_back():
    class Place:
        kept, changed, gone = 1, [2], 3

    before, changed = dict(vars(Place)), Place.changed
    with lxt_adapter.restore_names(Place):
        Place.changed, Place.new = [2], 4  # type: ignore[attr-defined]
        del Place.gone
    assert dict(vars(Place)) == before
    assert Place.changed is changed


def test_a_patch_that_does_not_take_is_no_row():
    refused = lxt_adapter.apply_patches({nn.Tanh: lambda target: False})
    with pytest.raises(NotApplicable, match="lxt could not patch Tanh"), refused:
        pass


def bench(*words: str) -> Any:
    return call("bench", "--layers", "1", "--batch", "1", "--tokens", "6", "--rounds", "1", *words)


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize("shape", ["bert-base", "llama-small"])
def test_the_benchmark_times_both_sets_of_rules(shape):
    done = bench("--shape", shape, "--methods", "lrp", "--peers", "lxt", "--json")
    assert done.exit_code == 0, done.output
    assert [one["name"] for one in json.loads(done.stdout)] == ["forward", "lrp", "lxt AttnLRP", "lxt CP-LRP"]
    assert all(one["ratio"] > 0 for one in json.loads(done.stdout))
    assert "lxt AttnLRP: its relevance is" in done.stderr


@pytest.mark.usefixtures("standin")
def test_an_lxt_that_cannot_be_used_is_one_line_and_the_rest_is_timed(monkeypatch):
    def missing(name: str) -> Any:
        raise ImportError("cannot import name 'sdpa'\nfrom transformers")

    monkeypatch.setattr(lxt_adapter, "load_alone", missing)
    done = bench("--methods", "gi", "--peers", "lxt", "--json")
    assert done.exit_code == 0, done.output
    assert [one["name"] for one in json.loads(done.stdout)] == ["forward", "gi"]
    (line,) = [line for line in done.stderr.splitlines() if "lxt" in line]
    assert "is not timed beside transformers" in line
    assert line.endswith("cannot import name 'sdpa' from transformers")


def test_models_that_no_patches_are_known_for_say_so():
    with pytest.raises(NotApplicable, match="no patches of lxt are known for GPT2LMHeadModel"):
        lxt_adapter.Lxt.of(tiny("gpt2"), "AttnLRP")


def test_all_that_is_installed_is_timed_unless_named(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: name == "lxt" or None)
    assert peers.find_installed() == ["lxt"]
    assert "captum is not installed, so it cannot be timed: pip install" in refusal("bench", "--peers", "captum")
    assert "Did you mean 'captum'?" in refusal("bench", "--peers", "captun")
    assert "--peers has a meaning only with neither" in refusal("bench", "--throughput", "--peers", "lxt")
    done = bench("--methods", "gi", "--peers", "none", "--json")
    assert [one["name"] for one in json.loads(done.stdout)] == ["forward", "gi"]


@pytest.mark.skipif(not REAL, reason="lxt is not installed")
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_package_itself_agrees_with_our_rules_in_float64(kind, rules):
    """Its activations divide by x + 1e-10, and its RMSNorm computes in float32."""
    before, model = touched(), tiny(kind)
    assert peers.largest_difference(lxt_adapter.Lxt.of(model, rules), model, INPUTS, peers.OURS[rules]) < 1e-6
    assert touched() == before
