"""What is taken where nothing was chosen, each in one place. Loads nothing."""

from __future__ import annotations

LANGUAGE_METHOD = "lrp-language"  # of language models: those that predict a next token (`engine.kind`)
DEFAULT_METHOD = "lrp"  # of every other model
TEXT_METHOD = "lrp-difference"  # of other models that read tokens; docs/paper.md says how it was chosen
GRAPH_METHOD = "lrp-secant(0.02)"  # of models of graphs; chosen likewise
LANGUAGE_OUTPUT = "advantage"  # which number of a prediction is explained: of language models
DEFAULT_OUTPUT = "logit"  # of every other model
OUTPUT_BY_KIND = f"{LANGUAGE_OUTPUT} for language models, else {DEFAULT_OUTPUT}"
METHOD_BY_KIND = (  # for people
    f"{LANGUAGE_METHOD} for language models, {TEXT_METHOD} for other models of texts, {GRAPH_METHOD} for graphs,"
    f" else {DEFAULT_METHOD}"
)
