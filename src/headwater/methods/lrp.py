"""Gradient x Input and its conservative relatives: the same backward pass with rules on operations.

`gi` has none, `lrp(ah)`, `lrp(ln)`, `lrp(ah+ln)` are the paper's, `lrp` is `ah+ln+act+gate`: the ledger that closes.
`lrp-gamma` adds a boost in linear layers. `attnlrp` is AttnLRP (Achtibat et al. 2024) in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..engine.forward import Demand, Run
from ..engine.propagate import Outcome, propagate_each
from ..engine.replay import explain_run
from ..engine.sharing import plain_pass, sharing
from ..errors import UnknownName, UsageError, in_range
from ..rules import RULES, VARIANTS, RuleSet, Scope
from ..rules.scope import GATES
from .registry import Method, family, register

ALL = ("ah", "ln", "act", "gate")
ORDER = (*ALL, "gamma")
SHARES: dict[str, Collection[str]] = {"ah": VARIANTS, "gate": GATES}
MOST_GAMMA = 1e6  # from some 1e7 on, what is not boosted is below float32's rounding, and gamma changes nothing more
GAMMA = 0.05  # chosen on the held-back part of SST-2 that no table reports on: docs/methods.md


def rules() -> tuple[tuple[str, str], ...]:
    """The rules by name, and what each holds constant."""
    return tuple(RULES.items())


def composed(name: str, summary: str, demand: Demand) -> Method:
    def run(job: Run) -> Outcome:
        if sharing() and not demand.rules.names and job.scope is Scope and job.noise is None:
            return plain_pass(job, backward=True)[0]
        return explain_run(job, demand)

    def each(job: Run, readers: Sequence[Any]) -> Iterator[Outcome]:
        return propagate_each(job, demand, readers)

    rules = tuple(rule for rule in ORDER if rule in demand.rules)
    return Method(name, summary, run, rules, gradient=True, group="rules", each=each)


def every(**options: object) -> RuleSet:
    """All the rules that close the ledger."""
    return RuleSet(frozenset(ALL), **options)  # type: ignore[arg-type]


def named(chosen: RuleSet) -> Demand:
    """Rules that were asked for by name: the paper's two must each meet an operation, of all of them at least one."""
    return Demand(chosen, tuple(rule for rule in ("ah", "ln") if rule in chosen), some=True)


def only(*names: str) -> Demand:
    return named(RuleSet(frozenset(names)))


def number(given: str | float) -> float:
    """A gamma: a boost, so it is not negative, and finite."""
    try:
        return in_range("gamma", float(given), 0.0, MOST_GAMMA)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"gamma is a number, not {given!r}.") from error


def gamma(value: float | Mapping[str, float]) -> Method:
    """`lrp-gamma` with another gamma; by layer, {pattern of weight names: gamma}, of which the last match counts.

    `explain(…, method=gamma({"*": 0.02, "*classifier*": 0.0}))`
    """
    table = tuple((name, number(one)) for name, one in value.items()) if isinstance(value, Mapping) else number(value)
    said = value if not isinstance(value, Mapping) else ",".join(f"{k}:{v}" for k, v in value.items())
    demand = Demand(replace(every(gamma=table), names=frozenset(ORDER)))
    return composed(f"lrp-gamma({said})", "lrp with a boost in linear layers", demand)


GI = register(composed("gi", "Gradient x Input: no rules", Demand(RuleSet(frozenset()))))
register(composed("lrp(ah)", "the paper's AH-rule alone", only("ah")))
register(composed("lrp(ln)", "the paper's LN-rule alone", only("ln")))
register(composed("lrp(ah+ln)", "the paper's method: both its rules", only("ah", "ln")))
register(composed("lrp", "all rules (ah+ln+act+gate): the ledger closes", Demand(every())))
ATTNLRP = Demand(every(attention="half", gate="half"))
register(composed("attnlrp", "AttnLRP: softmax keeps its gradient, products half each", ATTNLRP))
SECANT = Demand(every(attention="secant"))
register(composed("lrp-secant", "lrp in which queries and keys take part: the ledger closes", SECANT))
QUERY = Demand(replace(every(attention="query", gate="half", gamma=0.03), names=frozenset(ORDER)))
register(composed("lrp-query", "for language models: queries take part, gates half each, gamma=0.03", QUERY))
register(replace(gamma(GAMMA), name="lrp-gamma", summary=f"lrp with a boost in linear layers (gamma={GAMMA})"))


@family
def parse_gamma(name: str) -> Method | None:
    """lrp-gamma(0.05)."""
    match = re.fullmatch(r"lrp-gamma\((.*)\)", name)
    return gamma(number(match[1])) if match else None


@family
def parse(name: str) -> Method | None:
    """lrp(ah+ln+act+gate=half+gamma=0.02): rules joined by +, in any order."""
    match = re.fullmatch(r"lrp\((.*)\)", name)
    if match is None:
        return None
    given: dict[str, str] = {}
    for part in filter(None, match[1].split("+")):
        rule, _, value = part.partition("=")
        if rule not in ORDER:
            raise UnknownName("rule", rule, ORDER)
        given[rule] = value
    if not given:
        raise UsageError(f"{name!r} names no rule. Known: {', '.join(ORDER)}.")
    chosen = RuleSet(
        frozenset(given),
        gate=share("gate", given.get("gate")),
        attention=share("ah", given.get("ah")),
        gamma=number(given["gamma"]) if given.get("gamma") else GAMMA,
    )
    for rule in ("ln", "act"):
        if given.get(rule):
            raise UsageError(f"the rule {rule!r} takes no value.")
    spelled = "+".join(f"{rule}={given[rule]}" if given[rule] else rule for rule in ORDER if rule in given)
    return composed(f"lrp({spelled})", "rules by name", named(chosen))


def share(rule: str, value: str | None) -> str:
    if not value:
        return "constant"
    if value not in SHARES[rule]:
        raise UnknownName(f"share for {rule!r}", value, SHARES[rule])
    return value
