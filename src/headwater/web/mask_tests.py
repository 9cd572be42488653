"""Parts of an input masked, and the model asked again: words, patches of an image, atoms, tokens of a prompt.

What stands for a masked part is what the measures put there: the unknown token, the mean colour, no embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..api.output_text import Text, namer
from ..api.token_scores import At, Scoring, runner_up
from ..engine.kind import choose_output
from ..engine.model import where_it_is
from ..errors import InputError, ModelError
from ..evaluation.graphs import GraphSource
from ..evaluation.images import ImageSource, prepare_image
from ..evaluation.protocols import Protocol
from ..inputs.batch import Batch, Item
from ..inputs.prompt import tokenise_prompt
from ..inputs.readouts import logits_of
from ..inputs.targets import Reader
from ..inputs.text import find_nothing_token
from ..results.comparison import Comparison
from ..results.explanation import Explanation
from ..results.generation import Generation
from ..results.mask_test import MaskTest, sum_claims
from ..results.readable import name_piece, visible
from .generation_schemas import GenerateAsked
from .models import Loaded
from .picture_schemas import ImageAsked, MoleculeAsked
from .schemas import Claim, ClassShare, MaskAnswer
from .text_schemas import PredictAsked, TextAsked
from .texts import class_shares, predict_with_masks, show_phrases

if TYPE_CHECKING:
    from PIL.Image import Image

PROTOCOL = Protocol("mask test", 1, removal="masked")


def ask_without_words(loaded: Loaded, ask: TextAsked, found: Comparison) -> MaskAnswer:
    """Words, counted as `Explanation.words` counts them."""
    first = found.explanations[0]
    target = ask.target if ask.target is not None else first.target
    said = predict_with_masks(loaded, PredictAsked(text=ask.text, masked=ask.masked, target=target, output=ask.output))
    words = first.words()
    test = MaskTest(
        tuple(visible(words[n].text) for n in sorted(set(ask.masked))),
        said.target,
        said.score_before,
        said.score_after,
        claims_of(found, [[word.relevance for word in e.words()] for e in found.explanations], ask.masked),
    )
    return mask_answer(test, said.output, said.before, said.after, said.text)


def ask_without_patches(loaded: Loaded, ask: ImageAsked, found: Comparison, image: Image) -> MaskAnswer:
    """Patches, painted in the mean colour."""
    model = loaded.session.model
    source = ImageSource(model, [prepare_image(model, loaded.reader, image, "the image", {})])
    return ask_without_items(loaded, source.part([0]), source.patches, ask, found, list(found.explanations[0].tokens))


def ask_without_atoms(loaded: Loaded, ask: MoleculeAsked, found: Comparison, graph: Any) -> MaskAnswer:
    """Atoms, whose embedding is taken out; the graph around them stays."""
    source = GraphSource(loaded.session.model, [graph], PROTOCOL)
    names = [f"{token} {i}" for i, token in enumerate(found.explanations[0].tokens)]
    return ask_without_items(loaded, source.part([0]), len(graph), ask, found, names)


def ask_without_items(
    loaded: Loaded, part: Any, count: int, ask: ImageAsked | MoleculeAsked, found: Comparison, names: Sequence[str]
) -> MaskAnswer:
    """The score of one sample, whole and with some of its items taken out."""
    check_masked(ask.masked, count)
    keep = np.ones((2, count), dtype=bool)
    keep[1, list(ask.masked)] = False
    rows = torch.from_numpy(np.asarray(part.logits(part.perturb(0, keep))))
    first = found.explanations[0]
    output = choose_output(ask.output, loaded.model)
    reading = Reader(loaded.model, None, settle_target(ask.target, rows), output)(rows, Batch(2, [Item(())] * 2))
    before, after = (float(score) for score in reading.score)
    claims = claims_of(found, [e.relevance.flatten().tolist() for e in found.explanations], ask.masked)
    test = MaskTest(tuple(names[n] for n in sorted(set(ask.masked))), first.target, before, after, claims)
    whole, less = (class_shares(loaded, row.tolist()) for row in rows.double())
    return mask_answer(test, output, whole, less)


def settle_target(target: str | None, rows: Tensor) -> str | int:
    """What was asked for, else what is predicted for the whole input: for both rows the same."""
    return target if target is not None else int(rows[0].argmax())


def ask_without_tokens(loaded: Loaded, ask: GenerateAsked, found: Generation, shown: Generation) -> MaskAnswer:
    """Pieces before an output token, each replaced by the token for nothing: what does its score become?

    `found` is by token, `shown` by what the page shows (tokens or words).
    """
    spans = found.word_spans() if shown.unit == "word" else [[i] for i in range(len(found.pieces))]
    number = shown.row(min(ask.masked_for, len(shown) - 1))
    check_masked(ask.masked, shown.prompt + number)
    places = [i for n in set(ask.masked) for i in spans[n]]
    rows = [i - found.prompt for i in spans[shown.prompt + number]]
    whole, less = (score_outputs(loaded, ask, found, taken, rows) for taken in ([], places))
    test = MaskTest(
        tuple(name_piece(shown.pieces[n]) for n in sorted(set(ask.masked))),
        name_piece(shown.output[number]),
        whole[0],
        less[0],
        ((found.method, sum_claims(shown.relevance[number].tolist(), ask.masked)),),
    )
    one, other = ([ClassShare(name=test.target, logit=score, probability=share)] for score, share in (whole, less))
    return mask_answer(test, found.score, one, other)


def score_outputs(
    loaded: Loaded, ask: GenerateAsked, found: Generation, masked: Sequence[int], rows: Sequence[int]
) -> tuple[float, float]:
    """Score and probability of some output tokens together, with tokens before them masked."""
    model, tokenizer = loaded.session.model, loaded.reader
    turns = [{"role": "user", "content": ask.prompt}] if ask.chat else None
    said = tokenise_prompt(tokenizer, None if ask.chat else ask.prompt, turns)
    output = [int(i) for i in tokenizer.convert_tokens_to_ids(list(found.tokens[found.prompt :]))]
    text = Text.of(model, tokenizer, said, output)
    batch = text.batch(len(output), len(output), []).to(*where_it_is(model))
    others = other_tokens(model, text, ask, found, rows)
    for field in ("input_ids", "decoder_input_ids"):
        mask_ids(batch.kwargs.get(field), tokenizer, masked, len(said.ids) if field != "input_ids" else 0)
    with torch.no_grad():
        out = model(*batch.args, **batch.kwargs)
    score, share = 0.0, 1.0
    for row in rows:
        read = At(len(output) - row, output[row], others.get(row), found.score, namer(tokenizer))
        score += float(read(out, batch).score)
        share *= float(logits_of(out)[0, -read.behind].double().softmax(-1)[output[row]])
    return score, share


def other_tokens(model: Any, text: Text, ask: GenerateAsked, found: Generation, rows: Sequence[int]) -> dict[int, int]:
    """What output tokens are set against, where the score is a difference: the same before and after."""
    if found.score != "contrast":
        return {}
    batch = text.batch(len(text.output), len(text.output), []).to(*where_it_is(model))
    with torch.no_grad():
        logits = logits_of(model(*batch.args, **batch.kwargs))[0]
    best = {row: runner_up(logits[row - len(text.output)], text.output[row]) for row in rows}
    return best | Scoring.of(None, ask.contrast).others(text)


def mask_ids(ids: Any, tokenizer: Any, masked: Sequence[int], start: int) -> None:
    """Write the token for nothing in place of the masked ones; `start` is the place of the first id among all."""
    nothing = find_nothing_token(tokenizer)
    if nothing is None:
        raise ModelError("the tokenizer has no token that could stand for a masked one.")
    for place in masked:
        if isinstance(ids, Tensor) and 0 <= place - start < ids.shape[1]:
            ids[0, place - start] = nothing


def check_masked(masked: Sequence[int], count: int) -> None:
    if not masked:
        raise InputError("nothing is masked: name what is to be masked.")
    wrong = [n for n in masked if n >= count]
    if wrong:
        raise InputError(f"{wrong[0]} cannot be masked: there are {count}, counted from 0.")


def claims_of(
    found: Comparison, rows: Sequence[Sequence[float]], masked: Sequence[int]
) -> tuple[tuple[str, float], ...]:
    made: Sequence[Explanation] = found.explanations
    return tuple((e.method, sum_claims(row, masked)) for e, row in zip(made, rows, strict=True))


def mask_answer(
    test: MaskTest, output: str, before: list[ClassShare], after: list[ClassShare], text: str | None = None
) -> MaskAnswer:
    return MaskAnswer(
        target=test.target,
        output=output,
        before=before,
        after=after,
        score_before=test.before,
        score_after=test.after,
        claims=[Claim(method=method, amount=amount) for method, amount in test.claims],
        nearest=list(test.nearest),
        said=show_phrases(test.phrases),
        text=text,
    )
