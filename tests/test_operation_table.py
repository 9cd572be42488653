"""`headwater methods --operations`: every operation, the rules that act on it, and where."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from test_keywords import EXAMPLES, OPEN, Called
from torch import Tensor

from headwater.errors import UnknownName
from headwater.inputs.places import start
from headwater.rules import OPERATIONS, Books, Call, RuleSet, Scope, on
from headwater.rules.handlers import RULES_AT, list_operations
from headwater.rules.rule_set import RULES


@dataclass(eq=False)
class Watching(Scope):
    """Which rules acted inside each operation."""

    seen: dict[str, set[str]] = field(default_factory=dict)
    depth: int = 0

    def perform(self, call: Call) -> Any:
        before, outermost = dict(self.met), self.depth == 0
        self.depth += 1
        try:
            return super().perform(call)
        finally:
            self.depth -= 1
            if outermost:
                acted = {rule for rule, times in self.met.items() if times > before.get(rule, 0)}
                self.seen.setdefault(call.name, set()).update(acted)


def seen_in(name: str) -> dict[str, set[str]]:
    torch.manual_seed(0)
    model = Called(name, by_keyword=False).double().eval()
    found: dict[str, set[str]] = {}
    for gate in ("constant", "half"):
        scope = Watching(
            RuleSet(frozenset(RULES) - {"difference"}, gate=gate, gamma=0.1, token=1.0, residual=1.0), Books(1), {}, {}
        )
        leaf: Tensor = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
        with scope:
            model(start(leaf))
        for operation, acted in scope.seen.items():
            found.setdefault(operation, set()).update(acted)
    return found


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - OPEN))
def test_no_rule_acts_that_the_table_does_not_have(name: str) -> None:
    for operation, acted in seen_in(name).items():
        assert acted <= set(RULES_AT.get(operation, ())), operation


EXACTLY = {
    "gelu": {"act"},
    "layer_norm": {"ln"},
    "rms_norm": {"ln"},
    "prod": {"gate"},
    "softmax": {"ah"},
    "glu": {"gate"},
    "scaled_dot_product_attention": {"ah", "token"},
    "conv2d": {"gamma"},
    "logsumexp": {"act"},
    "rsqrt": {"ln"},
    "linear": {"gamma", "gate"},
    "add": {"residual"},
    "index_add": {"residual"},
    "adaptive_avg_pool1d": {"token"},
    "transpose": set(),
    "sum": set(),
}


@pytest.mark.parametrize("name", EXACTLY)
def test_the_rules_that_act_are_those_of_the_table(name: str) -> None:
    assert seen_in(name)[name] == EXACTLY[name]
    assert EXACTLY[name] <= set(RULES_AT[name])


def test_every_operation_has_a_line_and_says_what_it_does() -> None:
    found = {one.operation: one for one in list_operations()}
    assert found.keys() == OPERATIONS.keys()
    for one in found.values():
        module, _, name = one.function.rpartition(".")
        assert getattr(importlib.import_module(module), name) is OPERATIONS[one.operation]
        assert one.summary
        assert set(one.rules) <= RULES.keys()


def test_a_rule_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownName, match="no rule called 'ahh'"):
        on("an operation", rules=("ahh",))
    assert "an operation" not in OPERATIONS


def answer(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "methods", "--operations", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_the_command_lists_operations() -> None:
    listed = json.loads(answer("--json"))["operations"]
    (softmax,) = [one for one in listed if one["operation"] == "softmax"]
    assert softmax["rules"] == ["ah"]
    assert softmax["function"] == "headwater.rules.attention.softmax.softmax"
    rows = answer("--plain").splitlines()
    assert any(row.split()[:2] == ["rules.norm.layer_norm", "ln"] and "layer_norm" in row.split()[2:] for row in rows)
    said = {word for row in rows for word in row.split()}
    assert {one["operation"] for one in listed} <= said
