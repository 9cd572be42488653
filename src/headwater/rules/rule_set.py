"""Which rules there are, and which of them act."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..errors import UnknownName, UsageError
from .attention.registry import check_variants
from .shares import parse_gate

RULES: dict[str, str] = {
    "ah": "attention weights are constants (the paper's AH-rule)",
    "ln": "the divisor of a normalisation is a constant (the paper's LN-rule)",
    "act": "an activation is its input times a constant",
    "gate": "in a product of two signals the gate is a constant, or each takes its share",
    "gamma": "in a linear layer, contributions that agree with the output count 1 + gamma times",
    "output": "the same in output projections: linear layers that no normalised signal goes into",
    "token": "in a sum over tokens (attention, pooling), tokens that agree with the sum count 1 + gamma times",
    "residual": "in a residual sum, the part that agrees with the sum counts 1 + gamma times",
    "difference": "every operation passes on its rise from a reference (a text of [UNK]); gamma alone acts beside it",
}

OF_WEIGHTS = ("gamma", "output")  # rules whose patterns are of weights' names; those of the others are of modules'
SHOWN = 4  # names in an error

Gamma = float | tuple[tuple[str, float], ...]  # a number for all, or by patterns of names
Named = str | tuple[tuple[str, str], ...]  # the same for what has a name


def gamma_of(gamma: Gamma, name: str | None) -> float:
    """The gamma at one place: a number for all, or by patterns of names, of which the last match counts."""
    if not isinstance(gamma, tuple):
        return gamma
    found = [value for pattern, value in gamma if fnmatchcase(name or "", pattern)]
    return found[-1] if found else 0.0


def named_of(table: Named, name: str, usual: str) -> str:
    """The same for what has a name: `usual` where no pattern matches."""
    if isinstance(table, str):
        return table
    found = [value for pattern, value in table if fnmatchcase(name, pattern)]
    return found[-1] if found else usual


def check_patterns(table: Gamma | Named, rule: str, names: Collection[str]) -> None:
    """An error where a pattern is that of no name: a rule that was asked for would act nowhere, without a word."""
    for pattern, _ in table if isinstance(table, tuple) else ():
        if not any(fnmatchcase(name, pattern) for name in names):
            kind = "weight" if rule in OF_WEIGHTS else "module"
            some = ", ".join(repr(name) for name in list(filter(None, names))[:SHOWN])
            raise UsageError(
                f"{rule!r} names {pattern!r}, and no {kind} of the model is called so. There are {some}, …: "
                "capital and small letters differ."
            )


def names_in(table: Named) -> tuple[str, ...]:
    """All the names in a table."""
    return (table,) if isinstance(table, str) else tuple(value for _, value in table)


@dataclass(frozen=True)
class RuleSet:
    """Which rules act, and how.

    `gate` says how a product of two signals is shared: one factor is "constant", each takes "half", or
    "shares(gate=0.3,value=0.7)"; or this by patterns of modules' names. `attention` is the name of a variant of
    attention (`attention.registry.VARIANTS`), or "shares(q=0.35,k=0.15,v=0.5)". `gamma` (linear layers), `output`
    (output projections), `token` (sums over tokens) and `residual` (residual sums) are numbers, or numbers by patterns
    of names: of weights for `gamma` and `output`, of modules for the others. A name that is not known is an error.

    Example:
        >>> from headwater.rules import RuleSet
        >>> rules = RuleSet(frozenset({"ah", "ln", "act"}), attention="half")
        >>> "ln" in rules, "gate" in rules
        (True, False)
    """

    names: frozenset[str]  # the rules that act: ah, ln, act, gate, …
    gate: Named = "constant"  # how a product of two signals is shared
    attention: Named = "constant"  # the variant of the AH-rule
    gamma: Gamma = 0.0  # γ of linear layers; 0 is off
    output: Gamma = 0.0  # γ of output projections; 0 is off
    token: Gamma = 0.0  # γ of sums over tokens; 0 is off
    residual: Gamma = 0.0  # γ of residual sums; 0 is off

    def __post_init__(self) -> None:
        for rule in self.names:
            if rule not in RULES:
                raise UnknownName("rule", rule, RULES)
        if "difference" in self.names and self.names - {"difference", "gamma"}:
            raise UsageError("the rule 'difference' holds nothing constant: no rule but gamma goes with it.")
        for gate in names_in(self.gate):
            parse_gate(gate)
        check_variants(self.attention)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def check_names(self, weights: Collection[str], modules: Collection[str]) -> None:
        """Refuse a value by depth that acts nowhere in a model.

        `weights` are the names of its parameters and buffers, `modules` those of its modules.
        """
        tables = {"ah": self.attention, "gate": self.gate, "token": self.token, "residual": self.residual}
        for rule, table in (tables | {"gamma": self.gamma, "output": self.output}).items():
            if rule in self.names:
                check_patterns(table, rule, weights if rule in OF_WEIGHTS else modules)
