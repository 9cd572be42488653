"""What is taken where nothing was chosen, each in one place. Loads nothing."""

from __future__ import annotations

LANGUAGE_METHOD = "lrp-language"  # of language models: those that predict a next token (`engine.kind`)
DEFAULT_METHOD = "lrp"  # of every other model
TEXT_METHOD = DEFAULT_METHOD  # of those that read tokens; docs/paper.md says how another one is chosen
GRAPH_METHOD = DEFAULT_METHOD  # of those that read samples of their own kind, such as graphs
LANGUAGE_OUTPUT = "advantage"  # which number of a prediction is explained: of language models
DEFAULT_OUTPUT = "logit"  # of every other model
OUTPUT_BY_KIND = f"{LANGUAGE_OUTPUT} for language models, else {DEFAULT_OUTPUT}"
METHOD_BY_KIND = f"{LANGUAGE_METHOD} for language models, else {DEFAULT_METHOD}"  # for people
