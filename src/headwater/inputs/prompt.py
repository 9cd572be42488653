"""A prompt or a chat as token ids: the text of every token, and whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import EmptyInput, InputError, UsageError
from .text import call, check_characters

Turn = Mapping[str, str]
TEMPLATE = "template"
MARK = "\ue000{}\ue001"  # stands for a message's words, in characters that no template writes


class TurnPlace(NamedTuple):
    """Where a message's own words stand in a rendered chat, whose they are, and which turn that is."""

    start: int
    end: int
    role: str
    turn: int


@dataclass(frozen=True)
class Prompt:
    """What is said to a model. `pieces` are the tokens as text, with the space before them.

    `offsets`: where each token stands in `text`, as a fast tokenizer knows it. `turns`: where a chat's messages stand.
    """

    text: str
    ids: list[int]
    pieces: tuple[str, ...]
    roles: tuple[str, ...]
    chat: bool
    offsets: tuple[tuple[int, int], ...] | None = None
    turns: tuple[TurnPlace, ...] = ()

    @property
    def adds_special(self) -> bool:
        """Whether the tokenizer adds special tokens; a chat's template has written its own."""
        return not self.chat


def tokenise_prompt(tokenizer: Any, prompt: str | None, chat: Sequence[Turn] | None) -> Prompt:
    if (prompt is None) == (chat is None):
        raise UsageError("give either a prompt or chat=, a list of {'role', 'content'}.")
    if chat is not None:
        return tokenise_chat(tokenizer, chat)
    if not isinstance(prompt, str):
        raise InputError(f"a prompt is a text, not {type(prompt).__name__}.")
    if not prompt.strip():
        raise EmptyInput("the prompt is empty: there is nothing to continue.")
    ids, offsets = call_tokenizer(tokenizer, prompt, add_special_tokens=True)
    pieces = token_texts(tokenizer, prompt, ids, offsets)
    places = None if offsets is None else tuple(offsets)
    return Prompt(prompt, ids, pieces, ("prompt",) * len(ids), chat=False, offsets=places)


def tokenise_chat(tokenizer: Any, chat: Sequence[Turn]) -> Prompt:
    """A chat, rendered by the tokenizer's template. Tokens that the template adds have the role "template"."""
    check_turns(chat)
    if getattr(tokenizer, "chat_template", None) is None:
        raise InputError("the tokenizer has no chat template; pass the prompt as text.")
    text = render_chat(tokenizer, chat)
    ids, offsets = call_tokenizer(tokenizer, text, add_special_tokens=False)
    if offsets is None:
        raise InputError("roles need character offsets, which only a fast tokenizer gives.")
    places = find_turns(tokenizer, text, chat)
    roles = tuple(role_of(text, start, end, places) for start, end in offsets)
    pieces = token_texts(tokenizer, text, ids, offsets)
    return Prompt(text, ids, pieces, roles, chat=True, offsets=tuple(offsets), turns=places)


def render_chat(tokenizer: Any, chat: Sequence[Turn]) -> str:
    return str(tokenizer.apply_chat_template(list(map(dict, chat)), tokenize=False, add_generation_prompt=True))


def check_chat(chat: object) -> None:
    """Refuses what is no list of turns."""
    if isinstance(chat, (str, bytes, Mapping)) or not isinstance(chat, Sequence):
        raise InputError(f"a chat is a list of {{'role', 'content'}}, not {type(chat).__name__}.")


def check_turns(chat: Sequence[Turn]) -> None:
    check_chat(chat)
    if not chat:
        raise EmptyInput("the chat is empty: there is nothing to continue.")
    for number, turn in enumerate(chat):
        if not isinstance(turn, Mapping) or not all(isinstance(turn.get(k), str) for k in ("role", "content")):
            raise InputError(f"turn {number} of the chat must have a 'role' and a 'content', both text.")


def find_turns(tokenizer: Any, text: str, chat: Sequence[Turn]) -> tuple[TurnPlace, ...]:
    """Where each message's own words stand in the rendered chat, and whose they are."""
    found = place_marks(tokenizer, text, chat)
    return search_turns(text, chat) if found is None else found


def place_marks(tokenizer: Any, text: str, chat: Sequence[Turn]) -> tuple[TurnPlace, ...] | None:
    """By a mark in the place of each message's words: a template may have the same words ("user", a system prompt).

    None where the template looks at the words, so that it writes something else around the marks.
    """
    words = {number: turn["content"].strip() for number, turn in enumerate(chat) if turn["content"].strip()}
    marks = {number: MARK.format(number) for number in words}
    marked = render_chat(
        tokenizer,
        [
            {**turn, "content": turn["content"].replace(words[number], marks[number])} if number in words else turn
            for number, turn in enumerate(chat)
        ],
    )
    if any(marked.count(mark) != 1 for mark in marks.values()):
        return None
    made, places = "", []
    for number in sorted(words, key=lambda number: marked.index(marks[number])):
        before, marked = marked.split(marks[number])
        made += before
        places.append(TurnPlace(len(made), len(made) + len(words[number]), chat[number]["role"], number))
        made += words[number]
    return tuple(sorted(places, key=lambda place: place.turn)) if made + marked == text else None


def search_turns(text: str, chat: Sequence[Turn]) -> tuple[TurnPlace, ...]:
    """By the words themselves; messages come in order."""
    found, cursor = [], 0
    for number, turn in enumerate(chat):
        content = turn["content"].strip()
        start = text.find(content, cursor)
        if start < 0:
            raise InputError(f"the chat template changes the words of turn {number}, so that roles cannot be told.")
        cursor = start + len(content)
        if content:
            found.append(TurnPlace(start, cursor, turn["role"], number))
    return tuple(found)


def role_of(text: str, start: int, end: int, places: Sequence[TurnPlace]) -> str:
    """The role of the message that a token is from. A token across an edge belongs to the message with its letters."""
    for first, last, role, _ in places:
        if text[max(start, first) : min(end, last)].strip() or (first <= start and end <= last and start < end):
            return role
    return TEMPLATE


def call_tokenizer(tokenizer: Any, text: str, **options: Any) -> tuple[list[int], list[tuple[int, int]] | None]:
    check_characters(text, "the prompt")
    encoding = call(tokenizer, (text,), None, **options)
    offsets = encoding.get("offset_mapping")
    return list(encoding["input_ids"]), None if offsets is None else [(int(a), int(b)) for a, b in offsets]


def token_texts(tokenizer: Any, text: str, ids: list[int], offsets: list[tuple[int, int]] | None) -> tuple[str, ...]:
    """The text of each token, from the end of the one before it; of a character in several tokens the last has it.

    A token that stands for no text is shown by its name.
    """
    if offsets is None:
        return tuple(str(tokenizer.decode([token])) for token in ids)
    pieces, done = [], 0
    for token, (start, end), following in zip(ids, offsets, [*offsets[1:], (0, 0)], strict=True):
        inside = end > start or end > done
        until = following[0] if following[0] < end <= following[1] else end  # the next goes on with its last character
        pieces.append(text[done:until] if inside else str(tokenizer.convert_ids_to_tokens(token)))
        done = max(done, until)
    return tuple(pieces)
