"""One file per method family. A method is a function with a name; `available()` lists them.

What a method of your own needs is here: `@method`, `Run`, `Outcome`, `propagate`. See docs/extending.md.
"""

from ..engine.forward import NO_RULES, Demand, Run
from ..engine.propagate import Outcome, propagate
from ..rules import RuleSet
from . import ablation, attention, captum, ifr, random, smoothgrad
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
    "ablation",
    "attention",
    "available",
    "captum",
    "ifr",
    "method",
    "propagate",
    "random",
    "register",
    "register_with_parameters",
    "resolve",
    "resolve_method",
    "rules",
    "smoothgrad",
    "variants",
]
