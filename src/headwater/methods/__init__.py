"""One file per method family. A method is a function with a name; `available()` lists them.

What a method of your own needs is here: `@method`, `Run`, `Outcome`, `propagate`. See docs/extending.md.
"""

from ..engine.forward import NO_RULES, Demand, Run
from ..engine.outcome import Outcome
from ..engine.propagate import propagate
from ..rules import RuleSet
from . import ablation, attention, captum, ifr, random, smoothgrad  # noqa: F401  (they register their methods)
from .lrp import rules, variants
from .registry import Method, available, method, register, register_with_parameters, resolve_method

resolve = resolve_method  # the former name, which plug-ins may use

__all__ = [
    "NO_RULES",
    "Demand",
    "Method",
    "Outcome",
    "RuleSet",
    "Run",
    "available",
    "method",
    "propagate",
    "register",
    "register_with_parameters",
    "resolve",
    "resolve_method",
    "rules",
    "variants",
]
