"""The same answer, read again without some of its sources: batches of prompts of different lengths, no gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..engine.model import place_batch
from ..engine.session import Session
from ..errors import UsageError, check_integer
from ..inputs.batch import Batch, Item
from ..inputs.documents import Material
from ..inputs.readouts import logits_of
from ..inputs.restoring import restores
from ..inputs.text import takes
from ..results.answer import TextSentence
from ..results.answer_report import LeftOut, label_source
from .output_text import Text
from .prefix_cache import PrefixCache, ReadText, read_text, read_with_cache
from .span_scores import logprobs_at

Source = tuple[int, int | None]  # a document, and one of its sentences or all of them; both count from 0
BATCH = 8  # prompts that are read at once
ROOM = 64 * 2**20  # logits that are made at once, a number each


@dataclass(frozen=True, eq=False)
class AnswerReader:
    """Reads one answer again without some of its sources; what was read before is not read again.

    `places`: the sentences of prompt and answer. `spans`: the answer's sentences as spans of output tokens.
    """

    session: Session
    material: Material
    text: Text
    places: tuple[TextSentence, ...]
    spans: list[tuple[int, int]]
    found: dict[tuple[Source, ...], LeftOut] = field(default_factory=dict)

    @functools.cached_property
    def original(self) -> ReadText:
        """The answer after the whole prompt."""
        return read_original(self.session, self.text)

    def leave_out(self, wanted: Sequence[tuple[Source, ...]]) -> list[LeftOut]:
        """The same answer without each of these."""
        new = [one for one in wanted if one not in self.found]
        for sources, after in zip(new, self.read_without(new), strict=True):
            self.found[sources] = self._compare(sources, after)
        return [self.found[one] for one in wanted]

    def read_without(self, wanted: Sequence[Sequence[Source]]) -> list[Tensor]:
        """The log-probabilities of the answer's tokens, once without each of these."""
        return self.read([leave_out(self.material, self.places, sources) for sources in wanted])

    def read(self, materials: Sequence[Material]) -> list[Tensor]:
        """The log-probabilities of the answer's tokens after other prompts."""
        texts = []
        for material in materials:
            said = material.tokenise(self.text.tokenizer)
            texts.append(Text.of(self.session.model, self.text.tokenizer, said, self.text.output))
        return measure_logprobs(self.session, texts, self.original.cache)

    def by_sentence(self, logprobs: Tensor) -> tuple[float, ...]:
        return tuple(float(logprobs[start:end].sum()) for start, end in self.spans)

    def sentences_of(self, document: int) -> list[int]:
        return sentences_of(document, self.places)

    def all_sources(self) -> list[tuple[int, int]]:
        """Every sentence of every document."""
        return [(d, n) for d in range(len(self.material.texts)) for n in range(len(self.sentences_of(d)))]

    def source_of(self, place: int) -> tuple[int, int]:
        """A place of the prompt as a document and the number of its sentence."""
        document = self.places[place].document
        assert document is not None
        return document, self.sentences_of(document).index(place)

    def find_sources(self, named: Sequence[Source]) -> tuple[Source, ...]:
        """Sources as they were named, with negative numbers from the end: each once, in order."""
        wanted = {self._find_source(*source) for source in named}
        if not wanted:
            raise UsageError("nothing is left out: name a document.")
        return tuple(sorted(wanted, key=lambda one: (one[0], -1 if one[1] is None else one[1])))

    def _find_source(self, document: int, sentence: int | None) -> Source:
        count = len(self.material.texts)
        document = check_integer("the number of a document", document)
        if not -count <= document < count:
            raise UsageError(f"no document {document}: there are {count}, counted from 0.")
        number = document % count
        if sentence is None:
            return number, None
        known = len(self.sentences_of(number))
        sentence = check_integer("the number of a sentence", sentence)
        if not -known <= sentence < known:
            name = self.material.names[number]
            raise UsageError(f"no sentence {sentence} in {name}: it has {known}, counted from 0.")
        return number, sentence % known

    def _compare(self, sources: tuple[Source, ...], after: Tensor) -> LeftOut:
        then, now = self.by_sentence(self.original.logprobs), self.by_sentence(after)
        named = [label_source(self.material.names[document], sentence) for document, sentence in sources]
        return LeftOut(
            sources[0][0],
            " and ".join(named),
            before=sum(then),
            after=sum(now),
            sentences_before=then,
            sentences_after=now,
            sources=sources,
        )


def leave_out(material: Material, places: Sequence[TextSentence], sources: Sequence[Source]) -> Material:
    """What is asked without these documents and sentences."""
    removed: dict[int, list[tuple[int, int]] | None] = {}
    for document in sorted({document for document, _ in sources}):
        own = [sentence for one, sentence in sources if one == document]
        ranges = find_ranges(material.texts[document], document, places)
        removed[document] = None if None in own else [ranges[n] for n in own if n is not None]
    return material.without(removed)


def sentences_of(document: int, places: Sequence[TextSentence]) -> list[int]:
    """The numbers of a document's sentences among all places, in order."""
    return [number for number, place in enumerate(places) if place.document == document and place.text]


def find_ranges(text: str, document: int, places: Sequence[TextSentence]) -> list[tuple[int, int]]:
    """Where the sentences of a document stand in it. They come in order, so a repeated one is told apart."""
    found, end = [], 0
    for number in sentences_of(document, places):
        start = text.find(places[number].text, end)
        end = start + len(places[number].text)
        found.append((start, end))
    return found


@restores
def read_original(session: Session, text: Text) -> ReadText:
    """The answer after the whole prompt; on a processor with the cache from which all leaving out goes on."""
    return read_with_cache(session, text) or ReadText(measure_logprobs(session, [text])[0], None)


@restores
def measure_logprobs(session: Session, texts: Sequence[Text], cache: PrefixCache | None = None) -> list[Tensor]:
    """[texts][outputs]: the log-probability of every output token. All texts have the same output.

    With the `cache` of a text that begins like them, each is read from where it parts from that. Else those of like
    length are read together, the shorter ones filled up at their end, which a model that reads from left to right does
    not see; an encoder is told by the mask.
    """
    if cache is not None:
        return [read_text(session.model, text, cache).logprobs for text in texts]
    found: dict[int, Tensor] = {}
    order = sorted(range(len(texts)), key=lambda n: len(texts[n].said.ids))
    for first in range(0, len(order), BATCH):
        numbers = order[first : first + BATCH]
        for some in [numbers] if fit_at_once(session.model, [texts[n] for n in numbers]) else [[n] for n in numbers]:
            found |= dict(zip(some, read_batch(session, [texts[n] for n in some]), strict=True))
    return [found[n] for n in range(len(texts))]


def fit_at_once(model: Any, texts: Sequence[Text]) -> bool:
    """Whether the logits that several texts need are few enough to be made at once."""
    widest = len(find_rows(texts)) if takes(model, "logits_to_keep") else len(texts[-1].said.ids)
    return len(texts) * widest * getattr(getattr(model, "config", None), "vocab_size", 0) <= ROOM


def find_rows(texts: Sequence[Text]) -> list[int]:
    """Positions whose logits predict an output token of any of these texts."""
    starts = [first_row(text) for text in texts]
    return sorted({start + n for start in starts for n in range(len(texts[0].output))})


def first_row(text: Text) -> int:
    """The position whose logits predict the first output token."""
    return 0 if text.start else text.prompt - 1


def read_batch(session: Session, texts: Sequence[Text]) -> list[Tensor]:
    rows = find_rows(texts)
    batch = place_batch(session.model, pad(texts))
    kwargs = dict(batch.kwargs)
    few = not texts[0].start and takes(session.model, "logits_to_keep")
    if few:
        kwargs["logits_to_keep"] = torch.tensor(rows, device=kwargs["input_ids"].device)
    with torch.no_grad():
        logits = logits_of(session.model(**kwargs))
    shift = {row: n for n, row in enumerate(rows)} if few else {row: row for row in rows}
    firsts = [shift[first_row(text)] for text in texts]
    return [
        logprobs_at(own[first : first + len(text.output)], text.output)
        for own, first, text in zip(logits, firsts, texts, strict=True)
    ]


def pad(texts: Sequence[Text]) -> Batch:
    """Several prompts with their output as one batch."""
    rows = [[*text.said.ids] if text.start else [*text.said.ids, *text.output[:-1]] for text in texts]
    longest = max(map(len, rows))
    own = torch.tensor([[*row, *[row[-1]] * (longest - len(row))] for row in rows])
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    kwargs: dict[str, Any] = {"input_ids": own, "attention_mask": real}
    if texts[0].start:
        kwargs["decoder_input_ids"] = torch.tensor([[*text.start, *text.output[:-1]] for text in texts])
    items = [Item(tokens=()) for _ in texts]
    return Batch(samples=len(texts), items=items, kwargs=kwargs, ids=own, real=real.bool(), places=[])
