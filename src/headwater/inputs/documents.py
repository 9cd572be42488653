"""A question and its documents as one prompt, in which the place of every part is known by its characters."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from ..errors import InputError, UsageError
from ..results.answer import TextSentence
from ..results.sentences import find_sentences
from .given import is_frame, list_columns, say_column, texts_in
from .prompt import TEMPLATE, Prompt, Turn, check_chat, tokenise_prompt

Documents = Sequence[str] | Mapping[str, str]
Ranges = Sequence[tuple[int, int]]  # of characters: a start, and the end behind the last
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
        if chat is not None:
            check_chat(chat)
        names, texts = read_documents(documents)
        return cls(question, texts, names, prompt, None if chat is None else tuple(chat))

    def render(self, tokenizer: Any) -> tuple[Prompt, list[PromptPart]]:
        """The prompt as tokens, and where its parts stand in its text."""
        said = self.tokenise(tokenizer)
        if self.prompt is not None:
            return said, self.find_parts(self.prompt)
        if self.chat is not None:
            turns = [PromptPart(place.start, place.end, place.role, turn=place.turn) for place in said.turns]
            return said, [*self.find_parts(said.text, [(one.start, one.end) for one in turns]), *turns]
        body, parts = self.compose()
        if not said.chat:
            return said, parts
        blank = len(body) - len(body.lstrip())
        return said, [part.move(said.turns[0].start - blank) for part in parts]

    def tokenise(self, tokenizer: Any) -> Prompt:
        """The prompt as tokens."""
        if self.prompt is not None or self.chat is not None:
            return tokenise_prompt(tokenizer, self.prompt, self.chat)
        body, _ = self.compose()
        if getattr(tokenizer, "chat_template", None) is None:
            return tokenise_prompt(tokenizer, f"{body}\n{ANSWER}", None)
        return tokenise_prompt(tokenizer, None, [{"role": "user", "content": body}])

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

    def without(self, removed: Mapping[int, Ranges | None]) -> Material:
        """The same without these characters of documents, or without all of a document where there is None."""
        texts = tuple(cut_away(text, removed.get(number, ())) for number, text in enumerate(self.texts))
        left_out = self.left_out | {number for number, ranges in removed.items() if ranges is None}
        changed = replace(self, texts=texts, left_out=left_out)
        if self.prompt is not None:
            gone = self._find_letters(removed, self.prompt, None)
            return replace(changed, prompt=cut_away(self.prompt, gone))
        if self.chat is None:
            return changed
        contents = [turn.get("content") or "" for turn in self.chat]
        places = list(pairwise([0, *accumulate(map(len, contents))]))
        gone = self._find_letters(removed, "".join(contents), places)
        turns = list(map(dict, self.chat))
        for turn, content, (start, end) in zip(turns, contents, places, strict=True):
            own = [(max(a, start) - start, min(b, end) - start) for a, b in gone if a < end and b > start]
            turn.update({"content": cut_away(content, own)} if own else {})
        return replace(changed, chat=tuple(turns))

    def _find_letters(
        self, removed: Mapping[int, Ranges | None], text: str, turns: Sequence[tuple[int, int]] | None
    ) -> Ranges:
        """Where the letters that go stand in a given text, with the space that they leave at a document's edges."""
        parts = {part.document: part for part in self.find_parts(text, turns) if part.document in removed}
        found: list[tuple[int, int]] = []
        for document, ranges in removed.items():
            part, whole = parts[document], self.texts[document]
            blank = len(whole) - len(whole.lstrip())
            own = range(blank, blank + part.end - part.start)
            gone = set(own) if ranges is None else {n for a, b in ranges for n in range(a, b)}
            left = [n for n in own if n not in gone and not whole[n].isspace()]
            gone |= {n for n in own if not left or not left[0] <= n <= left[-1]}
            found += [(part.start + n - blank, part.start + n - blank + 1) for n in gone if n in own]
        return found

    def without_words(self, turn: int, start: int, end: int) -> Material:
        """The same without these characters of a turn of the chat."""
        turns = list(map(dict, self.chat or ()))
        turns[turn]["content"] = turns[turn]["content"][:start] + turns[turn]["content"][end:]
        return replace(self, chat=tuple(turns))


def cut_away(text: str, ranges: Ranges | None) -> str:
    """A text without these characters, each a start and an end; None takes all of it."""
    gone = set(range(len(text))) if ranges is None else {n for start, end in ranges for n in range(start, end)}
    return "".join(letter for n, letter in enumerate(text) if n not in gone)


def read_documents(documents: Documents | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and texts. Documents without names are numbered from 1."""
    if isinstance(documents, (str, bytes)):
        raise InputError("documents= is a list of texts, or {name: text}, not one text.")
    if is_frame(documents):
        raise InputError(say_column(type(documents).__name__, list_columns(documents), texts_in(documents)))
    if documents is not None and (not isinstance(documents, Iterable) or isinstance(documents, Set)):
        raise InputError(f"documents= is a list of texts, or {{name: text}}, not {type(documents).__name__}.")
    if isinstance(documents, Mapping):
        names, texts = tuple(map(str, documents)), tuple(documents.values())
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two documents are called {twice!r}: give each a name of its own.")
    else:
        texts = () if documents is None else tuple(documents)
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
