"""The words behind the gender names: the list of first names, ordinary words, and how special entries are read.

`lists/ordinary.txt` holds the common words of English (SCOWL, sizes 10 to 35, by Kevin Atkinson and others; its terms
stand beside it): lower case, without proper names. `lists/handling.txt` was made by hand for this library.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import DataError, require_extra
from ..inputs.table import DATA_DIRECTORY

LISTS = Path(__file__).parent / "lists"
FEMALE, MALE = "female", "male"
FILES = {FEMALE: "female.txt", MALE: "male.txt"}

# A regular ending, and what stands in its place in the dictionary.
ENDINGS = (("ies", "y"), ("ied", "y"), ("s", ""), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("ly", ""))
HISSING = ("ses", "xes", "zes", "ches", "shes", "oes")


@dataclass(frozen=True)
class FirstNames:
    """First names in lower case with the genders that the list gives them."""

    genders: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> FirstNames:
        found: dict[str, set[str]] = {}
        for name, gender in pairs:
            found.setdefault(name.strip().lower(), set()).add(gender)
        return cls({name: frozenset(genders) for name, genders in found.items() if name})

    @property
    def source(self) -> str:
        """The list's terms ask for this credit."""
        return f"Names Corpus by Mark Kantrowitz, with additions by Bill Ross: {len(self.genders):,} first names"

    @property
    def sha256(self) -> str:
        lines = sorted(f"{name}:{','.join(sorted(genders))}" for name, genders in self.genders.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def first_names() -> FirstNames:
    """Kantrowitz' list of names: from the directory in HEADWATER_DATA, else from an installed nltk."""
    folder = Path(os.environ[DATA_DIRECTORY]) / "names" if os.environ.get(DATA_DIRECTORY) else None
    if folder is not None and folder.is_dir():
        parquet = folder / "names.parquet"
        return lexicon_from_parquet(parquet) if parquet.is_file() else from_lines(folder)
    installed = nltk_folder()
    if installed is not None:
        return from_lines(installed)
    raise DataError(
        "the list of names by gender is not here. Fetch it with `pip install nltk` and `python -m nltk.downloader "
        f"names`, put female.txt and male.txt into names/ under the directory in {DATA_DIRECTORY}, or pass groups of "
        "your own (--groups FILE)."
    )


def lexicon_from_parquet(path: Path) -> FirstNames:
    """Columns `name` and `label`, 0 female and 1 male."""
    with require_extra(f"reading {path.name}", "data"):
        from pyarrow import parquet
    columns = parquet.read_table(path).to_pydict()
    pairs = zip(columns["name"], columns["label"], strict=True)
    return FirstNames.of(((str(name), (FEMALE, MALE)[int(label)]) for name, label in pairs))


def from_lines(folder: Path) -> FirstNames:
    """One name a line in female.txt and male.txt, as nltk hands them out."""
    for name in FILES.values():
        if not (folder / name).is_file():
            raise DataError(f"there is no {name} in {folder}; needed are names.parquet, or female.txt and male.txt.")
    pairs = [(n, gender) for gender, file in FILES.items() for n in (folder / file).read_text("utf-8").splitlines()]
    return FirstNames.of(pairs)


def nltk_folder() -> Path | None:
    """Where nltk keeps its corpus of names, if it has one."""
    try:
        import nltk
    except ImportError:
        return None
    try:
        return Path(str(nltk.data.find("corpora/names")))
    except LookupError:
        return None


@dataclass(frozen=True)
class Lexicon:
    """Ordinary words, and list entries with a treatment of their own, by section of `handling.txt`."""

    ordinary: frozenset[str]
    sections: Mapping[str, frozenset[str]]

    @property
    def sha256(self) -> str:
        lines = [f"{name}:{' '.join(sorted(words))}" for name, words in sorted(self.sections.items())]
        return hashlib.sha256("\n".join([*lines, *sorted(self.ordinary)]).encode()).hexdigest()

    def section(self, word: str) -> str | None:
        """How an entry is to be read; None for a plain first name."""
        for name in ("usual", "full", "capital", "place", "figure", "surname", "either", "word"):
            if word in self.sections[name]:
                return None if name == "usual" else name
        return "word" if word in self.ordinary else None

    def is_ordinary(self, word: str) -> bool:
        """A word of the dictionary, a regular form of one, or a compound of such."""
        if word in self.sections["usual"]:
            return False
        if word in self.sections["word"] or any(form in self.ordinary for form in list_forms(word)):
            return True
        parts = re.split(r"[-'’]", word)
        return len(parts) > 1 and all(not part or part.isdigit() or self.is_ordinary(part) for part in parts)

    def is_idiom(self, first: str, second: str) -> bool:
        """Two words in a row in which a name is no person's."""
        return f"{first}_{second}" in self.sections["idiom"]

    def is_family(self, word: str) -> bool:
        """An ordinary word that is a common family name, too."""
        return word in self.sections["family"]


def list_forms(word: str) -> Iterator[str]:
    """The word, and what it would be without a regular ending: deploys, stomped, tapping, shamefully."""
    yield word
    if word.endswith(HISSING):
        yield word[:-2]
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 3:
            stem = word.removesuffix(ending)
            yield stem + instead
            if ending in ("ed", "ing") and stem[-1] == stem[-2]:
                yield stem[:-1]


@cache
def lexicon() -> Lexicon:
    ordinary = frozenset((LISTS / "ordinary.txt").read_text("utf-8").split())
    return Lexicon(ordinary, read_sections((LISTS / "handling.txt").read_text("utf-8")))


def read_sections(content: str) -> dict[str, frozenset[str]]:
    """`[section]`, then its words; a line that begins with # says why."""
    found: dict[str, set[str]] = {}
    here: set[str] = set()
    for line in content.splitlines():
        if line.startswith("["):
            here = found.setdefault(line.strip("[] "), set())
        elif not line.startswith("#"):
            here.update(line.split())
    return {name: frozenset(words) for name, words in found.items()}
