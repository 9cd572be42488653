"""Gradient x Input and its conservative relatives: the same backward pass with rules on operations.

`gi` has none, `lrp(ah)`, `lrp(ln)`, `lrp(ah+ln)` are the paper's, `lrp` is `ah+ln+act+gate`: the ledger that closes.
"""

from __future__ import annotations

import re

from ..errors import UnknownName, UsageError
from .propagation import Demand, Outcome, Run, propagate
from .registry import Method, family, register

ALL = ("ah", "ln", "act", "gate")
GATES = ("constant", "half")


def rules() -> tuple[tuple[str, str], ...]:
    """The rules by name, and what each holds constant."""
    from ..rules import RULES

    return tuple(RULES.items())


def composed(name: str, summary: str, demand: Demand) -> Method:
    def run(job: Run) -> Outcome:
        return propagate(job, demand)

    return Method(name, summary, run, demand.rules)


def named(rules: tuple[str, ...], gate: str = "constant") -> Demand:
    """Rules that were asked for by name: the paper's two must each meet an operation, of all of them at least one."""
    return Demand(rules, gate, tuple(rule for rule in rules if rule in ("ah", "ln")), some=True)


register(composed("gi", "Gradient x Input: no rules", Demand(())))
register(composed("lrp(ah)", "the paper's AH-rule alone", named(("ah",))))
register(composed("lrp(ln)", "the paper's LN-rule alone", named(("ln",))))
register(composed("lrp(ah+ln)", "the paper's method: both its rules", named(("ah", "ln"))))
register(composed("lrp", "all rules (ah+ln+act+gate): the ledger closes", Demand(ALL)))


@family
def parse(name: str) -> Method | None:
    """lrp(ah+ln+act+gate=half): rules joined by +, in any order."""
    match = re.fullmatch(r"lrp\((.*)\)", name)
    if match is None:
        return None
    gate, names = "constant", []
    for part in filter(None, match[1].split("+")):
        rule, _, value = part.partition("=")
        if rule not in ALL:
            raise UnknownName("rule", rule, ALL)
        if value:
            gate = checked_gate(rule, value)
        if rule not in names:
            names.append(rule)
    ordered = tuple(rule for rule in ALL if rule in names)
    if not ordered:
        raise UsageError(f"{name!r} names no rule. Known: {', '.join(ALL)}.")
    spelled = "+".join("gate=half" if rule == "gate" and gate == "half" else rule for rule in ordered)
    return composed(f"lrp({spelled})", "rules by name", named(ordered, gate))


def checked_gate(rule: str, value: str) -> str:
    if rule != "gate":
        raise UsageError(f"the rule {rule!r} takes no value.")
    if value not in GATES:
        raise UnknownName("gate", value, GATES)
    return value
