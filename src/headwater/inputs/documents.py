"""A question and its documents as one prompt, in which the place of every part is known by its characters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from ..errors import InputError, UsageError
from ..results.answer import TextSentence
from ..results.sentences import find_sentences
from .prompt import TEMPLATE, Prompt, Turn, tokenise_prompt

Documents = Sequence[str] | Mapping[str, str]
DOCUMENT, QUESTION = "document", "question"
NOWHERE = -1  # the place of tokens that the tokenizer adds, which have no letters of the text
ANSWER = "Answer:"  # the last line of a prompt for a model without a chat template


@dataclass(frozen=True)
class PromptPart:
    """Characters of a text that belong to one part: a document by its number, the question, a turn of a chat."""

    start: int
    end: int
    role: str
    document: int | None = None
    turn: int | None = None

    def move(self, by: int) -> PromptPart:
        return replace(self, start=self.start + by, end=self.end + by)


@dataclass(frozen=True)
class Material:
    """What a model is asked with. `texts` are the documents, `names` what they are called.

    The prompt is `prompt` or `chat` where one was given: the documents and the question are then looked for in it, word
    for word. Else it is made here: each document under its name, then the question.
    """

    question: str | None
    texts: tuple[str, ...]
    names: tuple[str, ...]
    prompt: str | None = None
    chat: tuple[Turn, ...] | None = None
    left_out: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, question: str | None, documents: Documents | None, prompt: str | None, chat: Sequence[Turn] | None
    ) -> Material:
        if prompt is not None and chat is not None:
            raise UsageError("give either prompt= or chat=, not both.")
        if question is None and prompt is None and chat is None:
            raise UsageError("there is nothing to answer: give a question, prompt= or chat=.")
        if question is not None and (not isinstance(question, str) or not question.strip()):
            raise InputError("the question must be a text that is not empty.")
        names, texts = read_documents(documents)
        return cls(question, texts, names, prompt, None if chat is None else tuple(chat))

    def render(self, tokenizer: Any) -> tuple[Prompt, list[PromptPart]]:
        """The prompt as tokens, and where its parts stand in its text."""
        if self.prompt is not None:
            return tokenise_prompt(tokenizer, self.prompt, None), self.find_parts(self.prompt)
        if self.chat is not None:
            return self._render_chat(tokenizer, self.chat)
        body, parts = self.compose()
        if getattr(tokenizer, "chat_template", None) is None:
            return tokenise_prompt(tokenizer, f"{body}\n{ANSWER}", None), parts
        said = tokenise_prompt(tokenizer, None, [{"role": "user", "content": body}])
        blank = len(body) - len(body.lstrip())
        return said, [part.move(said.turns[0].start - blank) for part in parts]

    def compose(self) -> tuple[str, list[PromptPart]]:
        """Documents under their names, then the question; and where each of them stands."""
        body, parts = "", []
        for number, (name, text) in enumerate(zip(self.names, self.texts, strict=True)):
            if number in self.left_out:
                continue
            body += f"{name}:\n"
            parts.append(PromptPart(len(body), len(body) + len(text), DOCUMENT, number))
            body += f"{text}\n\n"
        question = (self.question or "").strip()
        body += "Question: "
        parts.append(PromptPart(len(body), len(body) + len(question), QUESTION))
        return body + question, parts

    def _render_chat(self, tokenizer: Any, chat: tuple[Turn, ...]) -> tuple[Prompt, list[PromptPart]]:
        said = tokenise_prompt(tokenizer, None, chat)
        turns = [PromptPart(place.start, place.end, place.role, turn=place.turn) for place in said.turns]
        return said, [*self.find_parts(said.text, [(one.start, one.end) for one in turns]), *turns]

    def find_parts(self, text: str, turns: Sequence[tuple[int, int]] | None = None) -> list[PromptPart]:
        """Where documents and question stand in a text that was given: in the order of the documents, or anywhere.

        Of a chat that is in one of its turns: a template may have the same words.
        """
        spans = [(0, len(text))] if turns is None else turns
        parts, cursor = [], 0
        for number, document in enumerate(self.texts):
            if number in self.left_out:
                continue
            wanted = document.strip()
            places = [text.find(wanted, max(a, cursor), b) for a, b in spans if b > cursor]
            places += [text.find(wanted, a, b) for a, b in spans]
            start = next((place for place in places if place >= 0), -1)
            if start < 0:
                raise InputError(f"{self.names[number]} does not stand word for word in the prompt that was given.")
            cursor = start + len(wanted)
            parts.append(PromptPart(start, cursor, DOCUMENT, number))
        question = (self.question or "").strip()
        start = max((text.rfind(question, a, b) for a, b in spans), default=-1) if question else -1
        return [*parts, PromptPart(start, start + len(question), QUESTION)] if start >= 0 else parts

    def without(self, document: int, start: int = 0, end: int | None = None) -> Material:
        """The same without a document, or without these characters of it."""
        text = self.texts[document]
        whole = end is None
        kept = "" if whole else text[:start] + text[end:]
        texts = (*self.texts[:document], kept, *self.texts[document + 1 :])
        left_out = self.left_out | {document} if whole else self.left_out
        changed = replace(self, texts=texts, left_out=left_out)
        own = kept.strip()
        if self.prompt is not None:
            part = self._find_document(document, self.prompt)
            return replace(changed, prompt=replace_part(self.prompt, part.start, part.end, own))
        if self.chat is None:
            return changed
        contents = [turn.get("content") or "" for turn in self.chat]
        ends = list(accumulate(map(len, contents)))
        starts = [0, *ends[:-1]]
        part = self._find_document(document, "".join(contents), list(zip(starts, ends, strict=True)))
        turns, number = list(map(dict, self.chat)), bisect_left(ends, part.end)
        shift = starts[number]
        turns[number]["content"] = replace_part(contents[number], part.start - shift, part.end - shift, own)
        return replace(changed, chat=tuple(turns))

    def _find_document(self, document: int, text: str, turns: Sequence[tuple[int, int]] | None = None) -> PromptPart:
        return next(part for part in self.find_parts(text, turns) if part.document == document)

    def without_words(self, turn: int, start: int, end: int) -> Material:
        """The same without these characters of a turn of the chat."""
        turns = list(map(dict, self.chat or ()))
        turns[turn]["content"] = turns[turn]["content"][:start] + turns[turn]["content"][end:]
        return replace(self, chat=tuple(turns))


def replace_part(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def read_documents(documents: Documents | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and texts. Documents without names are numbered from 1."""
    if isinstance(documents, (str, bytes)):
        raise InputError("documents= is a list of texts, or {name: text}, not one text.")
    if isinstance(documents, Mapping):
        names, texts = tuple(map(str, documents)), tuple(documents.values())
    else:
        texts = tuple(documents or ())
        names = tuple(f"Document {n}" for n in range(1, len(texts) + 1))
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str):
            raise InputError(f"{name} must be a text, not {type(text).__name__}.")
    return names, texts


def place_tokens(said: Prompt, parts: Sequence[PromptPart], other: str) -> tuple[list[TextSentence], list[int]]:
    """The sentences of a prompt, and which of them each token stands in.

    A token belongs to the part with its first letter. `other`: the role of words that are in no part.
    """
    if said.offsets is None:
        raise InputError("documents need character offsets, which only a fast tokenizer gives.")
    cuts = cut_text(said.text, parts, other)
    begins = [first for first, _, _ in cuts]
    places: list[TextSentence] = []
    of_token: list[int] = []
    known: dict[int, int] = {}
    for start, end in said.offsets:
        number = bisect_right(begins, first_letter(said.text, start, end)) - 1 if end > start else NOWHERE
        if number not in known:
            known[number] = len(places)
            places.append(TextSentence("", other) if number == NOWHERE else make_place(said.text, *cuts[number]))
        of_token.append(known[number])
    return places, of_token


def make_place(text: str, start: int, end: int, part: PromptPart) -> TextSentence:
    return TextSentence(text[start:end].strip(), part.role, part.document, part.turn)


def cut_text(text: str, parts: Sequence[PromptPart], other: str) -> list[tuple[int, int, PromptPart]]:
    """The whole text in pieces: a sentence of one part each. Where parts overlap, the first named has the letters."""
    edges = sorted({0, len(text), *(edge for part in parts for edge in (part.start, part.end))})
    cuts: list[tuple[int, int, PromptPart]] = []
    for start, end in pairwise(edges):
        nothing = PromptPart(start, end, other)
        part = next((one for one in parts if one.start <= start and end <= one.end), nothing)
        inside = part is not nothing
        begins = [start, *(start + first for first, _ in find_sentences(text[start:end])[1:])] if inside else [start]
        cuts += [(a, b, part) for a, b in zip(begins, [*begins[1:], end], strict=True)]
    return cuts or [(0, 0, PromptPart(0, 0, other))]


def first_letter(text: str, start: int, end: int) -> int:
    """Where a token's first letter stands; a token of nothing but space is where it begins."""
    blank = len(text[start:end]) - len(text[start:end].lstrip())
    return start + blank if blank < end - start else start


def role_of_others(material: Material) -> str:
    """Whose the words are that belong to no part: the user's own prompt, or what the template adds."""
    return "prompt" if material.prompt is not None else TEMPLATE
