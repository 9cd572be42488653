"""What is taken where nothing was chosen, each in one place. Loads nothing."""

from __future__ import annotations

LANGUAGE_METHOD = "lrp-language"  # of language models: `explain_generation`, the command line and the explorer
