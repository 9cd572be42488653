"""One file a method family. A method is a function with a name; `available()` lists them."""

from . import attention, captums, chance, smooth
from .lrp import rules
from .registry import Method, available, resolve

__all__ = ["Method", "attention", "available", "captums", "chance", "resolve", "rules", "smooth"]
