"""Pairs of inputs that differ in what decides the answer, of as many tokens each: agreement, names, sentiment."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

import headwater as hw
from headwater.evaluation.language.prompts import read_records
from headwater.models.pretrained import MINILM, locate

AGREEMENT = ("agreement_simple", "agreement_nounpp", "agreement_within_rc")


@dataclass(frozen=True)
class InputPair:
    """A text, another of as many tokens, and the score that both are read with."""

    clean: str
    other: str
    target: Any


@dataclass(frozen=True)
class PairTask:
    """A model, its pairs, and the modules whose outputs are those of its feed-forward layers."""

    name: str
    model: Any
    tokenizer: Any
    pairs: list[InputPair]
    mlp: str  # a pattern of names


def make_task(name: str, count: int, skip: int = 0, seed: int = 0) -> PairTask:
    """`agreement` and `ioi` with SmolLM2, `sst2` with MiniLM; `count` pairs after the first `skip`, drawn by `seed`."""
    if name == "sst2":
        return sentiment_task(count, skip, seed)
    model, tokenizer = hw.load("smollm2")
    find: Callable[[Any, random.Random], Iterator[InputPair]] = {"agreement": agreement_pairs, "ioi": name_pairs}[name]
    pairs = list(islice(find(tokenizer, random.Random(seed)), skip, skip + count))
    return PairTask(name, model, tokenizer, pairs, "model.layers.*.mlp")


def agreement_pairs(tokenizer: Any, draw: random.Random) -> Iterator[InputPair]:
    """ "The teachers" and "The teacher": which verb follows. Equally many of each construction."""
    sets = [read_records(name) for name in AGREEMENT]
    for records in sets:
        draw.shuffle(records)
    for together in zip(*sets, strict=False):
        for record in together:
            answers = (record["clean_answer"], record["patch_answer"])
            clean, other = record["clean_prefix"], record["patch_prefix"]
            if is_usable(tokenizer, clean, other, answers):
                yield InputPair(clean, other, contrast(tokenizer, answers))


def name_pairs(tokenizer: Any, draw: random.Random) -> Iterator[InputPair]:
    """Who gets it: the last name is the other of the two, so that the answer is the other one, too."""
    records = read_records("ioi")
    draw.shuffle(records)
    for record in records:
        found = re.search(r"([A-Z]\w+) and ([A-Z]\w+)", record["prompt"])
        answer = record["answer"].strip()
        if found is None or answer not in found.groups():
            continue
        giver = next(name for name in found.groups() if name != answer)
        head, _, tail = record["prompt"].rpartition(giver)
        other, answers = f"{head}{answer}{tail}", (f" {answer}", f" {giver}")
        if is_usable(tokenizer, record["prompt"], other, answers):
            yield InputPair(record["prompt"], other, contrast(tokenizer, answers))


def contrast(tokenizer: Any, answers: tuple[str, str]) -> Any:
    first, second = (tokenizer(answer, add_special_tokens=False)["input_ids"][0] for answer in answers)
    return hw.Token(-1, first, versus=second)


def is_usable(tokenizer: Any, clean: str, other: str, answers: tuple[str, str]) -> bool:
    """Whether both have as many tokens, and each answer is one."""
    lengths = {len(tokenizer(text)["input_ids"]) for text in (clean, other)}
    single = all(len(tokenizer(answer, add_special_tokens=False)["input_ids"]) == 1 for answer in answers)
    return len(lengths) == 1 and single and clean != other


def sentiment_task(count: int, skip: int, seed: int) -> PairTask:
    """Sentences of SST-2's validation set and MiniLM: pairs of as many tokens with two different predictions."""
    from transformers import AutoTokenizer

    from headwater_experiments.data.catalogue import load
    from headwater_experiments.paper.checkpoints import find

    model, _ = hw.load(find("minilm", "sst2"))
    tokenizer = AutoTokenizer.from_pretrained(locate(MINILM))
    texts = list(load("sst2", "dev").texts)
    random.Random(seed).shuffle(texts)
    waiting: dict[tuple[int, int], str] = {}
    pairs: list[InputPair] = []
    for text in texts:
        if len(pairs) == skip + count:
            break
        encoded = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            said = int(model(**encoded).logits.argmax())
        length = encoded["input_ids"].shape[1]
        other = waiting.pop((length, 1 - said), None)
        if other is None:
            waiting[length, said] = text
        else:
            names = model.config.id2label
            pairs.append(InputPair(text, other, f"{names[said]} - {names[1 - said]}"))
    return PairTask("sst2", model, tokenizer, pairs[skip:], "*.layer.[0-9].output.dense")
