"""One file a method family. A method is a function with a name; `available()` lists them."""

from . import attention, captum, random, smoothgrad
from .lrp import rules
from .registry import Method, available, resolve

__all__ = ["Method", "attention", "available", "captum", "random", "resolve", "rules", "smoothgrad"]
