"""`explain_entities`: every entity that a token classifier finds, each with its explanation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ..engine.kind import choose_method, output_of
from ..engine.model import in_copy, place_batch
from ..engine.options import ExplainOptions, Request, refuse_unused
from ..engine.session import Session
from ..engine.texts import TextJob
from ..errors import UsageError
from ..inputs.batch import Batch
from ..inputs.classes import class_names, is_vocabulary
from ..inputs.entities import EntityReader, PredictedEntity, check_token_scores, find_entities
from ..inputs.places import find_place
from ..inputs.readouts import logits_of
from ..inputs.restoring import restores
from ..inputs.text import Text, encode
from ..inputs.walking import walk_once
from ..methods.registry import Method
from ..results.explanation import Entity
from .requests import Model, make_request


@overload
def explain_entities(model: Model, data: str | tuple[str, str], **options: Unpack[ExplainOptions]) -> list[Entity]: ...


@overload
def explain_entities(
    model: Model, data: list[Any] | Iterator[Any], **options: Unpack[ExplainOptions]
) -> list[list[Entity]]: ...


@overload
def explain_entities(
    model: Model, data: Any, **options: Unpack[ExplainOptions]
) -> list[Entity] | list[list[Entity]]: ...


@restores
def explain_entities(model: Model, data: Any, **options: Unpack[ExplainOptions]) -> list[Entity] | list[list[Entity]]:
    """Every entity that a token classifier finds in a text, in the order of the text, each with its explanation.

    What is explained of an entity is the mean, over its words, of the logit of the class that is predicted at the
    word's first token. `explanation.target` says label and words, "LOC: New York".

    Args:
        model: a token classifier, as `explain` takes models.
        data: a text, or a list of texts.
        options: all other options of `explain`, by name.

    Returns:
        A list of `Entity`; for a list of texts, a list of those.

    Raises:
        UsageError: an option is wrong, or names a target: that is the entity.
        ModelError: the model does not classify tokens, or cannot be explained.

    Example:
        >>> from transformers import BertConfig, BertForTokenClassification
        >>> _, tokenizer = hw.load("headwater/sentiment")
        >>> config = BertConfig(vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...                     intermediate_size=16, id2label={0: "O", 1: "B-LOC", 2: "I-LOC"})
        >>> tagger = BertForTokenClassification(config).eval()  # random weights: what it finds means nothing
        >>> found = hw.explain_entities(tagger, "we saw rome", tokenizer=tokenizer)
        >>> all(isinstance(entity, hw.Entity) for entity in found)
        True
    """
    ask = make_request(model, data, **options)
    if ask.options.target is not None or ask.options.score is not None or ask.options.window:
        raise UsageError(
            "explain_entities explains what the model finds: target=, score= and window= have no place there."
        )
    unused = ("inside", "memory_limit", "stride", "patch")
    refuse_unused(ask.options, unused, "explain_entities explains several scores of one text")
    if not ask.of_texts:
        raise UsageError("explain_entities takes a text or a list of texts, with the model's tokenizer.")
    with walk_once():
        session = Session.open(ask.model, ask.options)
        found = [explain_text(session, ask, text) for text in (ask.data if isinstance(ask.data, list) else [ask.data])]
    return found if isinstance(ask.data, list) else found[0]


def explain_text(session: Session, ask: Request, text: Text) -> list[Entity]:
    """The entities of one text: one prediction, of which several scores are explained."""
    options, model = ask.options, session.model
    place = find_place(model, in_copy(ask.model, model, options.inputs), options.at)
    job = TextJob(model, options.tokenizer, 1, options.truncate, place)
    batch = job.batch(encode([text], options.tokenizer, job.limit, options.truncate))
    entities = predict_entities(model, batch)
    method = choose_method(options.method, model)
    return explain_each(session, ask, batch, entities, method) if entities else []


def predict_entities(model: nn.Module, batch: Batch) -> list[PredictedEntity]:
    placed = place_batch(model, batch)
    with torch.no_grad():
        logits: Tensor = logits_of(model(*placed.args, **placed.kwargs))
    vocabulary = logits.dim() == 3 and is_vocabulary(model, logits.shape[-1])
    check_token_scores(logits, [len(item.tokens) for item in batch.items], vocabulary)
    return find_entities(logits[0], batch.items[0], class_names(getattr(model, "config", None), logits.shape[-1]))


def explain_each(
    session: Session, ask: Request, batch: Batch, entities: list[PredictedEntity], method: Method
) -> list[Entity]:
    words = [entity.words(batch.items[0]) for entity in entities]
    output = output_of(ask.options, session.model)
    readers = [
        EntityReader(entity, f"{entity.label}: {text}", output)
        for entity, (text, _, _) in zip(entities, words, strict=True)
    ]
    made = session.explain_scores(batch, readers, method, ask.options)
    return [
        Entity(entity.label, *said, entity.positions, explanation)
        for entity, said, explanation in zip(entities, words, made, strict=True)
    ]
