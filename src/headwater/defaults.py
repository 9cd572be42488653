"""What is taken where nothing was chosen, each in one place; docs/studies says how it was chosen. Loads nothing."""

from __future__ import annotations

LANGUAGE_METHOD = "lrp-language"  # of language models: those that predict a next token (`engine.kind`)
ENCODER_DECODER_METHOD = "lrp-seq2seq"  # of those that read with an encoder
DEFAULT_METHOD = "lrp"  # of every other model
TEXT_METHOD = "lrp-difference"  # of other models that read tokens
GRAPH_METHOD = "lrp-secant(0.02)"  # of models of graphs
LANGUAGE_OUTPUT = "advantage"  # which number of a prediction is explained: of language models
DEFAULT_OUTPUT = "logit"  # of every other model
OUTPUT_BY_KIND = f"{LANGUAGE_OUTPUT} for language models, else {DEFAULT_OUTPUT}"
LANGUAGE_BY_KIND = f"{LANGUAGE_METHOD}, or {ENCODER_DECODER_METHOD} for encoder-decoders"


def is_language_method(name: str) -> bool:
    """Whether a method is made for language models, with values in brackets or without: it explains their output."""
    return name.partition("(")[0] in (LANGUAGE_METHOD, ENCODER_DECODER_METHOD, "lrp-halves")


METHOD_BY_KIND = (  # for people
    f"{LANGUAGE_METHOD} for language models ({ENCODER_DECODER_METHOD} for encoder-decoders), {TEXT_METHOD} for other"
    f" models of texts, {GRAPH_METHOD} for graphs, else {DEFAULT_METHOD}"
)
