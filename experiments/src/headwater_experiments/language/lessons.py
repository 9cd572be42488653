"""What the small language models learn: plain text, and prompts with answers like those of the protocols.

No prompt that explanations are judged on is learned, with one exception: facts can only be known by heart. Names in the
prompts of the third kind are replaced by others; reviews and questions are made from other texts.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from headwater.bias.lexicon import first_names
from headwater.evaluation.language.prompts import read_records
from headwater_experiments.data import load

SENTENCE = re.compile(r"(?<=[.!?])\s+")
WORD = re.compile(r"(?<=[a-z,] )(?:[A-Z][a-z]{2,}|\d[\d,.]*\d)\b")  # a name or a number inside a sentence
NAME = re.compile(r"\b[A-Z][a-z]+\b")
OPENERS = {"Then", "When", "After", "While", "Friends", "Afterwards", "The"}
MOST_WORDS = 170  # of a passage with a question
ASKED = (  # what is asked about a review
    "Review: {}\nSentiment:",
    "Classify the sentiment of the following review. Answer either 'Positive' or 'Negative'.\nReview: {}\nAnswer:",
)


@dataclass(frozen=True)
class Lesson:
    """A prompt and what follows it; `answer` begins with a blank."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class Material:
    """The texts that lessons are made from."""

    reviews: list[tuple[str, int]]
    passages: list[str]
    facts: list[Lesson]
    stories: list[Lesson]
    names: list[str]

    @classmethod
    def read(cls) -> Material:
        """From the datasets' own places: HEADWATER_DATA, or for the reviews the hub."""
        judged = {row["text"] for row in read_records("imdb_prompts")}
        table = load("imdb", "train")
        reviews = [pair for pair in zip(table.texts, table.labels, strict=True) if pair[0] not in judged]
        essays = [row["text"] for row in read_records("essays")]
        articles = [" ".join(part) for row in read_records("hotpot") for part in row["context"]["sentences"]]
        facts = [Lesson(row["prompt"], " " + row["attribute"].strip()) for row in read_records("known1000")]
        stories = [Lesson(row["prompt"], " " + row["answer"].strip()) for row in read_records("ioi")]
        met = {name for story in stories for name in names_in(story)}
        names = sorted({name.title() for name in first_names().genders if name.isalpha()} - met)
        return cls(reviews, essays + articles, facts, stories, names)

    def plain(self) -> list[str]:
        return [text for text, _ in self.reviews] + self.passages


def names_in(story: Lesson) -> list[str]:
    return [name for name in dict.fromkeys(NAME.findall(story.prompt)) if name not in OPENERS]


def draw_lesson(material: Material, draw: random.Random) -> Lesson:
    """One of the four kinds, each as often."""
    make = draw.choice((draw_fact, draw_story, draw_review, draw_question))
    return make(material, draw)


def draw_fact(material: Material, draw: random.Random) -> Lesson:
    return draw.choice(material.facts)


def draw_story(material: Material, draw: random.Random) -> Lesson:
    """Two people, one of whom gives something to the other, with other names than those of the published prompts."""
    story = draw.choice(material.stories)
    known = names_in(story)
    others = dict(zip(known, draw.sample(material.names, len(known)), strict=True))
    prompt = NAME.sub(lambda found: others.get(found[0], found[0]), story.prompt)
    return Lesson(prompt, " " + others[story.answer.strip()])


def draw_review(material: Material, draw: random.Random) -> Lesson:
    """A part of a review and what it says: its first or its last words."""
    text, label = draw.choice(material.reviews)
    words, length = text.split(), draw.randint(30, 200)
    kept = words[:length] if draw.random() < 0.5 else words[-length:]
    return Lesson(draw.choice(ASKED).format(" ".join(kept)), (" Negative", " Positive")[label])


def draw_question(material: Material, draw: random.Random) -> Lesson:
    """A passage, and one of its sentences with a name or a number asked for."""
    while True:
        text = draw.choice(material.passages) if draw.random() < 0.5 else draw.choice(material.reviews)[0]
        words = text.split()
        start = draw.randrange(max(1, len(words) - 60))
        passage = " ".join(words[start : start + draw.randint(40, MOST_WORDS)])
        asked = [(one, word) for one in SENTENCE.split(passage) if len(one) > 30 for word in WORD.finditer(one)]
        if asked:
            sentence, word = draw.choice(asked)
            return Lesson(f"{passage}\nQuestion: {ask(sentence, word, draw)}\nAnswer:", " " + word[0])


def ask(sentence: str, word: re.Match[str], draw: random.Random) -> str:
    """The sentence with "what" in the word's place, or a part of it around the word."""
    asked = f"{sentence[: word.start()]}what{sentence[word.end() :]}".rstrip(".!? ")
    parts, place = asked.split(), len(sentence[: word.start()].split())
    first, last = max(0, place - draw.randint(2, 12)), place + draw.randint(2, 12)
    return f"{' '.join(parts[first:last])}?"
