"""One file a method family. A method is a function with a name; `available()` lists them."""

from . import attention, captum, random, smoothgrad
from .lrp import rules
from .registry import Method, available, resolve_method

resolve = resolve_method  # the former name, which plug-ins may use

__all__ = ["Method", "attention", "available", "captum", "random", "resolve", "resolve_method", "rules", "smoothgrad"]
