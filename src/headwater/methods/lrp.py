"""Gradient x Input and its conservative relatives: the same backward pass with rules on operations.

`gi` has none, `lrp(ah)`, `lrp(ln)`, `lrp(ah+ln)` are the paper's, `lrp` is `ah+ln+act+gate`: the ledger that closes.
`lrp-gamma` adds a boost in linear layers. `attnlrp` is AttnLRP (Achtibat et al. 2024) in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..engine.forward import Demand, Run
from ..engine.outcome import Outcome
from ..engine.propagate import propagate, propagate_each
from ..engine.replay import find_recorder
from ..engine.sharing import plain_pass, sharing
from ..errors import UnknownName, UsageError, in_range
from ..names import split_names
from ..rules import RULES, VARIANTS, RuleSet, Scope
from ..rules.rule_set import Gamma, Named
from .parameters import Parameter
from .registry import Method, family, register, register_with_parameters

__all__ = ["gamma", "lrp_with", "only"]

ALL = ("ah", "ln", "act", "gate")
SUMS = ("gamma", "output", "token", "residual")  # rules whose value is a gamma
ORDER = (*ALL, *SUMS)
EVERY = (*ORDER, "difference")
MOST_GAMMA = 1e6  # from some 1e7 on, what is not boosted is below float32's rounding, and gamma changes nothing more
OUTPUT, TOKEN, RESIDUAL = 0.02, 4.0, 1.0  # where a name gives no number
GAMMA = 0.02  # chosen on validation parts: docs/studies/gamma.md


def variants() -> tuple[tuple[str, str], ...]:
    """The variants of attention by name, the values of `ah=`, and what each does.

    Returns:
        Pairs of a name and a line.

    Example:
        >>> from headwater.methods import variants
        >>> "half" in dict(variants())
        True
    """
    return tuple((name, (one.__doc__ or "").strip().splitlines()[0]) for name, one in VARIANTS.items())


def rules() -> tuple[tuple[str, str], ...]:
    """The rules by name, and what each holds constant.

    Returns:
        Pairs of a name and a line.

    Example:
        >>> from headwater.methods import rules
        >>> [name for name, _ in rules()][:3]
        ['ah', 'ln', 'act']
    """
    return tuple(RULES.items())


def make_method(name: str, summary: str, demand: Demand) -> Method:
    def run(job: Run) -> Outcome:
        usual = job.scope is Scope and job.noise is None and job.inside is None
        if sharing() and not demand.rules.names and usual:
            return plain_pass(job, backward=True)[0]
        recorder = find_recorder(job, demand)
        return propagate(job, demand) if recorder is None else recorder.explain_run(job, demand)

    def each(job: Run, readers: Sequence[Any]) -> Iterator[Outcome]:
        return propagate_each(job, demand, readers)

    rules = tuple(rule for rule in EVERY if rule in demand.rules)
    return Method(name, summary, run, rules, gradient=True, group="rules", each=each)


def all_rules(**options: object) -> RuleSet:
    """All the rules that close the ledger."""
    return RuleSet(frozenset(ALL), **options)  # type: ignore[arg-type]


def demand_of(chosen: RuleSet) -> Demand:
    """Rules that were asked for by name: the paper's two must each meet an operation, of all of them at least one."""
    return Demand(chosen, tuple(rule for rule in ("ah", "ln") if rule in chosen), some=True)


def only(*names: str) -> Demand:
    """A demand for these rules and no others.

    Args:
        names: of rules.

    Returns:
        A `Demand`.

    Raises:
        UnknownName: there is no such rule.

    Example:
        >>> from headwater.methods.lrp import only
        >>> sorted(only("ah", "ln").rules.names)
        ['ah', 'ln']
    """
    return demand_of(RuleSet(frozenset(names)))


def check_gamma(given: str | float) -> float:
    """A gamma: a boost, so it is not negative, and finite."""
    try:
        return in_range("gamma", float(given), 0.0, MOST_GAMMA)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"gamma is a number, not {given!r}.") from error


def gamma(value: float | Mapping[str, float]) -> Method:
    """`lrp-gamma` with another gamma.

    Args:
        value: for all linear layers; or by layer, {pattern of weight names: gamma}, of which the last match counts.

    Returns:
        A `Method`.

    Raises:
        UsageError: a gamma is no number that it may be.

    Example:
        >>> from headwater.methods.lrp import gamma
        >>> method = gamma({"*": 0.02, "*classifier*": 0.0})
        >>> hw.explain("headwater/sentiment", "a fine film", method=method).ledger.closed
        True
    """
    by_name = isinstance(value, Mapping)
    name = f"lrp({'+'.join(ALL)}+{spell_rule('gamma', value)})" if by_name else f"lrp-gamma({value})"
    demand = Demand(RuleSet(frozenset((*ALL, "gamma")), gamma=gamma_table(value)))
    return make_method(name, "lrp with a boost in linear layers", demand)


def gamma_table(value: str | float | Mapping[str, Any]) -> Gamma:
    """A gamma for all, or by patterns of names."""
    if isinstance(value, Mapping):
        return tuple((name, check_gamma(one)) for name, one in value.items())
    return check_gamma(value)


def lrp_with(
    *,
    ah: str | Mapping[str, str] = "constant",
    gate: str | Mapping[str, str] = "constant",
    gamma: float | Mapping[str, float] = 0.0,
    output: float | Mapping[str, float] = 0.0,
    token: float | Mapping[str, float] = 0.0,
    residual: float | Mapping[str, float] = 0.0,
) -> Method:
    """`lrp` with a share for attention and gates, and a gamma for each kind of sum: for the whole model, or by depth.

    By depth, {pattern of names: value}, of which the last match counts: names of weights for `gamma` and `output`, of
    modules for the others. Where no pattern matches, the value is that of `lrp`.

    Args:
        ah: a variant of attention, or shares of queries, keys and values.
        gate: how a product of two signals is shared: "constant", "half", or shares.
        gamma: of linear layers.
        output: of output projections.
        token: of sums over tokens.
        residual: of residual sums.

    Returns:
        A `Method`.

    Raises:
        UsageError: a value is not what its rule takes.

    Example:
        >>> from headwater.methods.lrp import lrp_with
        >>> method = lrp_with(gate="half", gamma=0.03, residual={"*": 1, "*layer.0*": 0})
        >>> hw.explain("headwater/sentiment", "a fine film", method=method).ledger.closed
        True
    """
    given = {"gamma": gamma, "output": output, "token": token, "residual": residual}
    numbers = {rule: gamma_table(value) for rule, value in given.items()}
    active = frozenset((*ALL, *(rule for rule, value in numbers.items() if value)))
    chosen = RuleSet(active, attention=by_pattern(ah), gate=by_pattern(gate), **numbers)
    spelled = [
        spell_rule(rule, {"ah": ah, "gate": gate, **given}.get(rule, "constant")) for rule in ORDER if rule in active
    ]
    return make_method(f"lrp({'+'.join(spelled)})", "lrp with values for the whole model, or by depth", Demand(chosen))


def by_pattern(value: str | Mapping[str, str]) -> Named:
    """A name for all, or by patterns."""
    return value if isinstance(value, str) else tuple(value.items())


def read_table(text: str) -> str | dict[str, str]:
    """What `spell_rule` wrote: a value for all, or by patterns of names."""
    if ":" not in text:
        return text
    found = [one.rpartition(":") for one in split_names(text)]
    if not all(pattern and value for pattern, _, value in found):
        raise UsageError(f"{text!r} is no value by depth, which is pattern:value,pattern:value, as *:0.02,*layer.0*:0.")
    return {pattern: value for pattern, _, value in found}


def spell_rule(rule: str, value: object) -> str:
    """A rule and its value as a part of a method's name: "gamma=0.03", "gate=*:half,*.0.*:constant"."""
    if isinstance(value, Mapping):
        value = ",".join(f"{pattern}:{one}" for pattern, one in value.items())
    return rule if value == "constant" else f"{rule}={value}"


GI = register(make_method("gi", "Gradient x Input: no rules", Demand(RuleSet(frozenset()))))
register(make_method("lrp(ah)", "the paper's AH-rule alone", only("ah")))
register(make_method("lrp(ln)", "the paper's LN-rule alone", only("ln")))
register(make_method("lrp(ah+ln)", "the paper's method: both its rules", only("ah", "ln")))
register(make_method("lrp", "all rules (ah+ln+act+gate): the ledger closes", Demand(all_rules())))
ATTNLRP = Demand(all_rules(attention="half", gate="half"))
register(make_method("attnlrp", "AttnLRP: softmax keeps its gradient, products half each", ATTNLRP))
QUERY = Demand(RuleSet(frozenset((*ALL, "gamma")), attention="query", gate="half", gamma=0.03))
register(make_method("lrp-query", "queries take part in attention, gates half each, gamma=0.03", QUERY))
HALVES = Demand(all_rules(attention="shares(q=0.25,k=0.25,v=0.5)", gate="half"))
register(make_method("lrp-halves", "AttnLRP with a ledger that closes: q 0.25, k 0.25, v 0.5, gates half each", HALVES))
SEQ2SEQ = Demand(all_rules(attention="shares(q=0.2,k=0.4,v=0.4,offset=values)", gate="half"))
register(make_method("lrp-seq2seq", "for encoder-decoders: q 0.2, k 0.4, v 0.4 and offset, gates half each", SEQ2SEQ))


def make_difference(gamma: float = 0.0) -> Method:
    """Relevance is (x - b) times a gradient that is exact between the input x and a reference b, a text of [UNK].

    It adds up to the score's rise from b to x. The score of the reference is one line of the ledger, and there are no
    others. With `gamma`, differences that agree with their sum in a linear layer count 1 + gamma times.
    """
    rules = RuleSet(frozenset(("difference", "gamma") if gamma else ("difference",)), gamma=gamma)
    name = f"lrp-difference({gamma:g})" if gamma else "lrp-difference"
    boosted = f", gamma={gamma:g}" if gamma else ""
    return make_method(name, f"the rise of the score from a text of [UNK]{boosted}: the ledger closes", Demand(rules))


def make_secant(gamma: float = 0.0) -> Method:
    """`lrp` in which queries and keys take part (`ah=secant`), with `gamma` in linear layers."""
    active = frozenset((*ALL, "gamma") if gamma else ALL)
    boosted = f", gamma={gamma:g}" if gamma else ""
    summary = f"lrp in which queries and keys take part{boosted}: the ledger closes"
    name = f"lrp-secant({gamma:g})" if gamma else "lrp-secant"
    return make_method(name, summary, Demand(RuleSet(active, attention="secant", gamma=gamma)))


def demand_language(output: float = OUTPUT) -> Demand:
    """The rules of `lrp-language`."""
    shares = "shares(q=0.3,k=0.2,v=0.5)"
    return Demand(RuleSet(frozenset((*ALL, "output")), attention=shares, gate="half", output=output))


LANGUAGE = demand_language()


def make_language(output: float = OUTPUT) -> Method:
    """For language models that read and write with one stack: shares for queries, keys and values, gates half each.

    `output` is the gamma of output projections.
    """
    summary = f"for language models: shares q 0.3, k 0.2, v 0.5, gates half each, output={output:g}"
    return make_method(f"lrp-language({output:g})", summary, demand_language(output))


GAMMA_PARAMETER = "the boost of what agrees with the sum, from 0"
register_with_parameters(
    "lrp-language", [Parameter("output", str(OUTPUT), GAMMA_PARAMETER, check_gamma, leading=True)], make_language
)
register_with_parameters(
    "lrp-secant", [Parameter("gamma", "0", GAMMA_PARAMETER, check_gamma, leading=True)], make_secant
)
register_with_parameters(
    "lrp-difference", [Parameter("gamma", "0", GAMMA_PARAMETER, check_gamma, leading=True)], make_difference
)


def make_gamma(**given: float) -> Method:
    value = given.get("gamma", GAMMA)
    return replace(gamma(value), summary=f"lrp with a boost in linear layers (gamma={value})")


register_with_parameters(
    "lrp-gamma", [Parameter("gamma", str(GAMMA), GAMMA_PARAMETER, check_gamma, leading=True)], make_gamma
)


@family
def parse_lrp(name: str) -> Method | None:
    """lrp(ah+ln+act+gate=half+gamma=*:0.02,*layer.0*:0): rules joined by +, in any order, each by depth if need be."""
    match = re.fullmatch(r"lrp\((.*)\)", name)
    if match is None:
        return None
    given: dict[str, str] = {}
    for part in filter(None, match[1].split("+")):
        rule, _, value = part.partition("=")
        if rule not in EVERY:
            raise UnknownName("rule", rule, EVERY)
        given[rule] = value
    if not given:
        raise UsageError(f"{name!r} names no rule. Known: {', '.join(EVERY)}.")
    for rule in ("ln", "act", "difference"):
        if given.get(rule):
            raise UsageError(f"the rule {rule!r} takes no value.")
    usual = dict(zip(SUMS, (GAMMA, OUTPUT, TOKEN, RESIDUAL), strict=True))
    chosen = RuleSet(
        frozenset(given),
        gate=by_pattern(read_table(given.get("gate") or "constant")),
        attention=by_pattern(read_table(given.get("ah") or "constant")),
        **{
            rule: gamma_table(read_table(given[rule]) if given[rule] else usual[rule]) for rule in SUMS if rule in given
        },
    )
    spelled = "+".join(f"{rule}={given[rule]}" if given[rule] else rule for rule in EVERY if rule in given)
    return make_method(f"lrp({spelled})", "rules by name", demand_of(chosen))
