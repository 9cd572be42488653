"""Which rules there are, and which of them act."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnknownName
from .attention.registry import find_variant
from .gamma import Gamma

RULES: dict[str, str] = {
    "ah": "attention weights are constants (the paper's AH-rule)",
    "ln": "the divisor of a normalisation is a constant (the paper's LN-rule)",
    "act": "an activation is its input times a constant",
    "gate": "in a product of two signals the gate is a constant, or each takes half",
    "gamma": "in a linear layer, contributions that agree with the output count 1 + gamma times",
}

GATES = ("constant", "half")  # the values of `gate=`


@dataclass(frozen=True)
class RuleSet:
    """Which rules act, and how.

    `gate` says how a product of two signals is shared: one factor is "constant", or each takes "half". `attention` is
    the name of a variant of attention (`attention.registry.VARIANTS`). `gamma` is a number, or numbers by patterns of
    names. A name that is not known is an error.
    """

    names: frozenset[str]
    gate: str = "constant"
    attention: str = "constant"
    gamma: Gamma = 0.0

    def __post_init__(self) -> None:
        for rule in self.names:
            if rule not in RULES:
                raise UnknownName("rule", rule, RULES)
        if self.gate not in GATES:
            raise UnknownName("share for 'gate'", self.gate, GATES)
        find_variant(self.attention)

    def __contains__(self, name: str) -> bool:
        return name in self.names
