"""What is taken where nothing was chosen, by kind of model: language models have defaults of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import defaults
from ..inputs.protocol import SupportsSamples
from ..inputs.text import can_generate, encoder_decoder
from ..methods.registry import Method, resolve_method
from .options import SHOWN, Options


def default_method(model: Any, plain: bool = True) -> str:
    """The method where none was chosen.

    A language model predicts a next token: it is causal, or an encoder-decoder with a head for its vocabulary, and
    transformers lets it generate. Each of the two has its own default. A masked language model, a classifier on a
    decoder, a model of images or of graphs is none. `plain`: a tokenizer says which token stands for nothing, and the
    model is neither watched inside nor is memory saved; differences from a reference need that.
    """
    if can_generate(model):
        return defaults.ENCODER_DECODER_METHOD if encoder_decoder(model) else defaults.LANGUAGE_METHOD
    if isinstance(model, SupportsSamples):
        return defaults.GRAPH_METHOD
    return defaults.TEXT_METHOD if plain and reads_tokens(model) else defaults.DEFAULT_METHOD


def reads_tokens(model: Any) -> bool:
    """Whether a model is one of transformers' for texts."""
    return getattr(model, "main_input_name", None) == "input_ids"


def choose_method(method: str | Method | None, model: Any, plain: bool = True) -> Method:
    """The method that was asked for; None is the default for the kind of this model."""
    return resolve_method(default_method(model, plain) if method is None else method)


def choose_for(options: Options, model: Any, watched: bool = False) -> Method:
    """The same for these options."""
    return choose_method(options.method, model, allows_reference(options) and not watched)


def allows_reference(options: Options) -> bool:
    """Whether differences from a reference can answer these options."""
    saves_memory = options.saves_memory or options.memory_limit is not None
    return options.tokenizer is not None and not (options.inside or saves_memory)


def choose_output(output: str | None, model: Any) -> str:
    """Which number of a prediction is explained; where that was not said, it depends on the kind of model."""
    if output is not None:
        return output
    return defaults.LANGUAGE_OUTPUT if can_generate(model) else defaults.DEFAULT_OUTPUT


def output_of(options: Options, model: Any) -> str:
    """Which number these options ask for. The caller's own score function is called logit."""
    return choose_output(defaults.DEFAULT_OUTPUT if options.score is not None else options.output, model)


def settle_output(options: Options, model: Any) -> Options:
    """The same options, with the number that is explained named."""
    return replace(options, output=output_of(options, model))


def choose_sinks(sinks: str | None, method: Method, model: Any) -> str:
    """What happens to the attention sink, the first token: "show" or "aside".

    Where that was not said, it is put aside by the default methods of language models, as `explain_generation` does.
    Every other method shows it.
    """
    if sinks is not None:
        return sinks
    return "aside" if can_generate(model) and defaults.is_language_method(method.name) else SHOWN
