"""One file a method family. A method is a function with a name; `available()` lists them."""

from .lrp import rules
from .registry import Method, available, resolve

__all__ = ["Method", "available", "resolve", "rules"]
