"""`python -m headwater_experiments.similarity.cost`: how many forward passes an explanation of two texts takes."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch

import headwater as hw
from headwater.evaluation.language.prompts import read_records
from headwater.kernels.row_products import find_product
from headwater.models.pretrained import MINILM
from headwater.names import split_names

PASSES = 6  # forward passes of a round: one alone is too short to be timed


def main(arguments: list[str] | None = None) -> None:
    asked = make_parser().parse_args(arguments)
    torch.set_num_threads(1)
    model, tokenizer = hw.load(MINILM)
    texts = read_texts(asked.words)
    encoded = encode_both(tokenizer, texts)
    sys.stdout.write(f"two texts of {asked.words} words, {encoded['input_ids'].shape[1]} tokens with padding\n")
    ways = (False,) if find_product() is None else (True, False)
    for method, rank, onednn in product(split_names(asked.methods), asked.ranks, ways):
        ratios = measure_ratios(model, tokenizer, texts, (method, rank, onednn), asked.rounds)
        sys.stdout.write(write_line(method, rank, onednn, ratios) + "\n")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater_experiments.similarity.cost", description=__doc__)
    parser.add_argument("--words", type=int, default=64, help="of each text, the first ones of a paragraph of SQuAD")
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 2])
    parser.add_argument("--methods", default="lrp", help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def read_texts(words: int) -> tuple[str, str]:
    """The first words of the first two paragraphs that have so many."""
    paragraphs = dict.fromkeys(record["context"] for record in read_records("squad"))
    long = (text.split()[:words] for text in paragraphs if len(text.split()) >= words)
    return " ".join(next(long)), " ".join(next(long))


def encode_both(tokenizer: Any, texts: tuple[str, str]) -> Any:
    """Both texts in one batch."""
    return tokenizer(list(texts), padding=True, return_tensors="pt")


def measure_ratios(
    model: Any, tokenizer: Any, texts: tuple[str, str], how: tuple[str, int, bool], rounds: int
) -> list[float]:
    """Processor time of an explanation over that of a forward pass of both texts in one batch, in turns."""
    encoded = encode_both(tokenizer, texts)
    method, rank, onednn = how

    def pass_forward() -> None:
        with torch.no_grad():
            model(**encoded)

    def explain() -> None:
        with switch_onednn(onednn):
            hw.explain_similarity(model, *texts, tokenizer=tokenizer, rank=rank, method=method)

    take_time(explain, 1), take_time(pass_forward, 1)
    return [take_time(explain, 1) / take_time(pass_forward, PASSES) for _ in range(rounds)]


@contextmanager
def switch_onednn(on: bool) -> Iterator[None]:
    before = torch.backends.mkldnn.enabled
    setattr(torch.backends.mkldnn, "enabled", on)  # noqa: B010 - its type says it is no bool
    try:
        yield
    finally:
        setattr(torch.backends.mkldnn, "enabled", before)  # noqa: B010


def take_time(function: Callable[[], None], times: int) -> float:
    """Seconds of processor time of one call."""
    start = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - start) / times


def write_line(method: str, rank: int, onednn: bool, ratios: Sequence[float]) -> str:
    by = "with oneDNN" if onednn else "without it"
    middle = statistics.median(ratios)
    return f"{method}, rank {rank:2d}, {by}: {middle:.1f} forward passes (from {min(ratios):.1f} to {max(ratios):.1f})"


if __name__ == "__main__":
    main()
