"""People's names by gender, also in texts without capitals.

The first name decides: it must stand in one gender's list only. What belongs to the same person is joined to it (middle
names, initials, particles, the family name), so that "jennifer love hewitt" and "robert de niro" are one name each.
Where a text has capitals, capitalised words are joined. Where it has none, a word that is no ordinary word is taken as
the family name.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .finding import Hit, Occurrences
from .lexicon import FEMALE, MALE, FirstNames, Lexicon, first_names, lexicon

TOKEN = re.compile(
    r"(?:[^\W\d_]\.)+(?![^\W\d_])|(?:mr|mrs|ms|dr|jr|sr|st)\.|[^\W\d_]+(?:[-'’](?!s\b)[^\W\d_]+)*|\d+|\S", re.IGNORECASE
)
INITIALS = re.compile(r"(?:[^\W\d_]\.)+")
WORD = re.compile(r"(?=..)[^\W\d_]+(?:[-'’][^\W\d_]+)*")
TITLES = frozenset("mr mrs ms miss dr mr. mrs. ms. dr.".split())
BEFORE_PLACES = frozenset("san santa saint st st. port fort lake mount mt. cape".split())
PARTICLES = frozenset("de da di du del della des la le van von der den ter el bin".split())
SUFFIXES = frozenset("jr jr. sr sr. ii iii".split())
MIDDLE = frozenset({"love"})
ENDS = frozenset(".!?:;\"“”`'…")
LONGEST = 5

ORDINARY = "an ordinary word"
FAMILY = "a family name alone"
FIGURE = "a work, prize, god or brand"
PLACE = "a place"
BOTH = "a name of both genders"
ALONE = {"place": PLACE, "figure": FIGURE, "surname": FAMILY}

RULE = (
    "A person's name begins with a first name that stands in one gender's list only; names in both lists, and those "
    "commonly given to both genders, are set aside. Middle names, initials, particles and the family name are joined "
    "to it, a possessive 's is not. A first name that is also an ordinary word (mark, rose), mostly a family name "
    "(allen, jackson), a place or a title counts only at the head of a full name. Words that are hardly ever names "
    "(may, love, see) never count; others (will, grace, hope) only where capitals show that they are one. In texts "
    "with capitals, a name must be capitalised."
)


@dataclass(frozen=True)
class NameToken:
    """A piece of a text and where it stands; `word` is in lower case and without accents."""

    text: str
    word: str
    start: int
    end: int

    @property
    def capital(self) -> bool:
        return self.text[:1].isupper()


@dataclass(frozen=True)
class NameFinder:
    """Names of women and men. The groups are `female` and `male`."""

    names: FirstNames
    words: Lexicon

    @property
    def groups(self) -> tuple[str, ...]:
        return (FEMALE, MALE)

    @property
    def source(self) -> str:
        return self.names.source

    @property
    def sha256(self) -> str:
        """Of the names and of how they are read."""
        return hashlib.sha256(f"{self.names.sha256} {self.words.sha256}".encode()).hexdigest()

    @property
    def rule(self) -> str:
        return RULE

    def find(self, text: str) -> Occurrences:
        """The names in a text, and the list entries that are none there."""
        reading = NameReading.of(text, self)
        hits: list[Hit] = []
        skipped: list[tuple[str, str]] = []
        place = 0
        while place < len(reading.tokens):
            entry = self.entry(reading.tokens[place].word)
            if entry is None:
                place += 1
                continue
            name = reading.name_at(place)
            reason = reading.against(name, entry)
            if reason is None:
                first, last = reading.tokens[place], reading.tokens[name.end - 1]
                hits.append(Hit(next(iter(self.genders(entry))), entry, first.start, last.end))
            else:
                skipped.append((entry, reason))
            place = name.end if reason in (None, BOTH, FAMILY) else place + 1
        return Occurrences(tuple(hits), tuple(skipped))

    def entry(self, word: str) -> str | None:
        """The entry of the list that a word is: itself, or the first of a double name whose parts are all listed."""
        if word in self.names.genders:
            return word
        first, *more = word.split("-")
        return first if more and all(part in self.names.genders for part in (first, *more)) else None

    def genders(self, entry: str) -> frozenset[str]:
        return self.names.genders[entry]

    def is_name(self, word: str) -> bool:
        """A listed first or family name that is no ordinary word."""
        entry = self.entry(word)
        return entry is not None and self.words.section(entry) not in ("word", "full", "capital")

    def is_first(self, word: str) -> bool:
        """A listed name that is a first name before anything else."""
        entry = self.entry(word)
        return entry is not None and self.words.section(entry) in (None, "either")


@dataclass(frozen=True)
class Name:
    """Tokens from `head` to before `end`; `full` where a middle or family name is among them."""

    head: int
    end: int
    full: bool


@dataclass(frozen=True)
class NameReading:
    """One text, read for names. `cased`: capitals mean something in it."""

    finder: NameFinder
    text: str
    tokens: Sequence[NameToken]
    cased: bool

    @classmethod
    def of(cls, text: str, finder: NameFinder) -> NameReading:
        found = TOKEN.finditer(text)
        tokens = [NameToken(m.group(), strip_accents(m.group().lower()), m.start(), m.end()) for m in found]
        return cls(finder, text, tokens, cased=not (text.islower() or text.isupper()))

    def against(self, name: Name, entry: str) -> str | None:
        """Why the entry at the head of `name` is not counted; None where it is a person's name."""
        section = self.finder.words.section(entry)
        before, after = self.beside(name.head)
        if section == "word" or (self.cased and not self.tokens[name.head].capital):
            return ORDINARY
        if self.finder.words.is_idiom(before, entry) or self.finder.words.is_idiom(entry, after):
            return FIGURE
        if before in BEFORE_PLACES:
            return PLACE
        if before in TITLES or INITIALS.fullmatch(before):
            return FAMILY
        if section in ("full", "capital") and not self.is_head(name, section):
            return ORDINARY
        if section in ALONE and not name.full:
            return ALONE[section]
        return BOTH if section == "either" or len(self.finder.genders(entry)) > 1 else None

    def is_head(self, name: Name, section: str) -> bool:
        """Whether an ordinary word is a first name here: a family name follows that is no ordinary word, too.

        With capitals, the head of any full name is one; and some words are, where a capital stands inside a sentence.
        """
        if self.cased:
            return name.full or (section == "full" and not self.begins(name.head))
        if section == "capital" or not name.full or self.finder.is_first(self.tokens[name.head + 1].word):
            return False
        return not self.finder.words.is_family(self.tokens[name.end - 1].word)

    def begins(self, place: int) -> bool:
        """Whether a sentence begins here, where a capital says nothing."""
        return place == 0 or self.tokens[place - 1].word in ENDS

    def beside(self, place: int) -> tuple[str, str]:
        """The words before and behind a token; nothing where there is more than a blank between."""
        before = self.tokens[place - 1].word if place and self.follows(place) else ""
        last = place + 1 == len(self.tokens)
        return before, "" if last or not self.follows(place + 1) else self.tokens[place + 1].word

    def follows(self, place: int) -> bool:
        """Whether nothing but blanks stands before the token."""
        gap = self.text[self.tokens[place - 1].end : self.tokens[place].start]
        return gap.isspace() and "\n" not in gap

    def name_at(self, head: int) -> Name:
        """What belongs to the person whose first name stands at `head`."""
        place, full, closed = head + 1, False, False
        while place < min(len(self.tokens), head + LONGEST) and self.follows(place):
            kind = self.kind(place, closed)
            if kind is None:
                break
            place += 2 if kind == "particle" else 1
            full = full or kind not in ("initial", "suffix")
            closed = closed or kind in ("particle", "family")
            if kind == "suffix":
                break
        return Name(head, place, full)

    def kind(self, place: int, closed: bool) -> str | None:
        """What the token is as part of a name, which is `closed` once it has a family name; None for no part of it."""
        word = self.tokens[place].word
        if word in SUFFIXES:
            return "suffix"
        if INITIALS.fullmatch(word):
            return "initial"
        if word in PARTICLES:
            return "particle" if not closed and self.can_be_family(place + 1) else None
        if not self.cased and self.finder.is_name(word):
            return None if closed and self.finder.is_first(word) else "name"
        if closed and not self.cased:
            return None
        if self.is_middle(place):
            return "name"
        return "family" if self.is_family(place) or (not self.cased and self.finder.words.is_family(word)) else None

    def is_middle(self, place: int) -> bool:
        """An ordinary word as a second name, as in "jennifer love hewitt"."""
        word, words = self.tokens[place].word, self.finder.words
        if self.cased or words.is_family(word) or not (word in MIDDLE or words.section(word) in ("full", "capital")):
            return False
        return self.can_be_family(place + 1) and not self.finder.is_first(self.tokens[place + 1].word)

    def can_be_family(self, place: int) -> bool:
        """Whether a family name can stand here, behind a particle or a middle name."""
        if place >= len(self.tokens) or not self.follows(place):
            return False
        return self.is_family(place) or (not self.cased and self.finder.is_name(self.tokens[place].word))

    def is_family(self, place: int) -> bool:
        """A word that can only be a name: capitalised, or, in a text without capitals, in no dictionary."""
        token = self.tokens[place]
        if not WORD.fullmatch(token.text):
            return False
        return token.capital if self.cased else not self.finder.words.is_ordinary(token.word)


@lru_cache(maxsize=2**16)
def strip_accents(word: str) -> str:
    """josé -> jose: the list has no accents."""
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def gender_names() -> NameFinder:
    """The paper's groups: first names of women and men, from the list of names."""
    return NameFinder(first_names(), lexicon())
