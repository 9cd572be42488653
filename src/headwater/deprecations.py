"""What goes away, named with the version that warns first and the one that no longer has it.

What is deprecated warns for one minor version at least: a test holds that, and fails once the time is over.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass


@dataclass(frozen=True)
class Deprecation:
    """One thing of the public interface that goes away. `since` and `gone` are versions, as in "1.2"."""

    what: str
    instead: str
    since: str
    gone: str

    def warn(self, message: str = "", stacklevel: int = 3) -> None:
        """Says it to whoever called the function that calls this; `message` in place of the usual first half."""
        first = message or f"{self.what} is deprecated. Write {self.instead}."
        warnings.warn(f"{first} It goes away in {self.gone}.", DeprecationWarning, stacklevel=stacklevel)


MODULE_NAMES = Deprecation("an old name of a module", "its new name", since="1.0", gone="2.0")
OLD_ORDER = Deprecation(
    "explain_generation(model, tokenizer, prompt)",
    "explain_generation(model, prompt, tokenizer=tokenizer)",
    since="1.0",
    gone="2.0",
)
ALL = (MODULE_NAMES, OLD_ORDER)
