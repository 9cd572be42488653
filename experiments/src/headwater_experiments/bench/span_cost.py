r"""`python -m headwater_experiments.bench.span_cost`: what a long span of an answer costs, beside a forward pass.

A model by its measures, with random weights, and random words: a prompt, and an answer that is explained as a whole, as
one score, and then passed on through the answer's own words, one hop. Seconds are by the clock, the median of rounds.

python -m headwater_experiments.bench.span_cost --shape llama-8b --prompt 8000 --answer 1000 --device cuda \
    --dtype bfloat16
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import headwater as hw
from headwater.engine.model import DTYPES
from headwater_experiments.bench.cost import GIB, fastest_attention
from headwater_experiments.bench.shapes import SHAPES, find_shape

WORDS = 1000


def make_tokenizer() -> Any:
    """One token for each of a thousand words."""
    inner = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w0", pad_token="w1")


def draw_words(count: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(f"w{draw.randrange(2, WORDS)}" for _ in range(count))


def measure(job: Callable[[], Any], rounds: int, device: str) -> tuple[float, str]:
    """Seconds, and GiB that a card held above what was there before; a first round is not counted."""
    on_card = device != "cpu"
    found = []
    for number in range(rounds + 1):
        if on_card:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        job()
        if on_card:
            torch.cuda.synchronize()
        if number:
            found.append(time.perf_counter() - start)
    held = f"{(torch.cuda.max_memory_allocated() - before) / GIB:.2f}" if on_card else ""
    return statistics.median(found), held


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-small")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--prompt", type=int, default=200, help="words of the prompt")
    parser.add_argument("--answer", type=int, default=50, help="words of the answer")
    parser.add_argument("--methods", nargs="+", default=["lrp", "lrp-language"])
    parser.add_argument("--memory-limit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    given = parser.parse_args(words)
    shape = find_shape(given.shape).with_layers(given.layers)
    model, tokenizer = shape.build(given.device, DTYPES[given.dtype]), make_tokenizer()
    prompt, answer = draw_words(given.prompt, 0), draw_words(given.answer, 1)
    ids = tokenizer(f"{prompt} {answer}", return_tensors="pt")["input_ids"].to(given.device)
    options = {"memory_limit": given.memory_limit} if given.memory_limit else {}

    def ask(method: str, hops: int) -> Any:
        found = hw.explain_answer(
            model, prompt=prompt, answer=answer, tokenizer=tokenizer, method=method, dtype=given.dtype, **options
        )
        return found.whole(hops=hops)

    def forward() -> None:
        with torch.no_grad():
            model(input_ids=ids, logits_to_keep=given.answer, use_cache=False)

    lines = [f"{shape.name}, {shape.layers} layers, {given.dtype}, {given.prompt} + {given.answer} tokens", ""]
    lines += ["| what | seconds | x forward | GiB above the model |", "|---|---|---|---|"]
    with fastest_attention(model, {"input_ids": ids, "logits_to_keep": 1}):
        seconds, memory = measure(forward, given.rounds, given.device)
        lines.append(f"| forward | {seconds:.3f} | 1.00 | {memory} |")
        for method in given.methods:
            for hops in (0, 1):
                took, memory = measure(partial(ask, method, hops), given.rounds, given.device)
                name = f"{method}, the whole answer" + (", one hop" if hops else "")
                lines.append(f"| {name} | {took:.3f} | {took / seconds:.2f} | {memory} |")
                sys.stderr.write(lines[-1] + "\n")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
