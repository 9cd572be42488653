"""What a report of a whole answer costs on a processor: `python -m headwater_experiments.bench.answer_cost`.

Six documents, a question and an answer of three sentences, together 350 tokens of SmolLM2. Seconds are processor time
of one thread: of a plain forward pass, of the sentences' explanations and of the report after them, first for a model
that was never explained, then once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import typer

import headwater as hw

DOCUMENTS = {
    "tower": (
        "The Eiffel Tower stands on the Champ de Mars in Paris. It was finished in 1889 for the World's Fair. "
        "Gustave Eiffel's company designed and built it. It is 330 metres tall."
    ),
    "fruit": (
        "Bananas are yellow when they are ripe. They grow in warm countries, in large bunches. Most of them "
        "are eaten fresh, and some are cooked."
    ),
    "river": (
        "The Nile flows to the north through eleven countries. It is about 6,650 kilometres long. Most of its "
        "water comes from the Blue Nile."
    ),
    "music": (
        "Johann Sebastian Bach was born in Eisenach in 1685. He worked in Leipzig from 1723 until his death. "
        "His works include the Mass in B minor."
    ),
    "planet": (
        "Mars has two small moons, Phobos and Deimos. A day on Mars is about 24 hours and 37 minutes long. "
        "Its sky looks red from the dust."
    ),
    "sport": (
        "A marathon is a race over 42.195 kilometres. The first modern one was run in Athens in 1896. Many "
        "cities hold one every year now."
    ),
}
QUESTION = "When was the Eiffel Tower finished, what do ripe bananas look like, and how many moons does Mars have?"
ANSWER = (
    "The Eiffel Tower was finished in 1889 for the World's Fair. Ripe bananas are yellow, and they grow "
    "in warm countries. Mars has two small moons."
)

Found = TypeVar("Found")


def measure(name: str, job: Callable[[], Found]) -> Found:
    """Does the job, and prints the processor time that it took."""
    start = time.process_time()
    found = job()
    typer.echo(f"| {name} | {time.process_time() - start:.1f} |")
    return found


def ask(model: Any, tokenizer: Any) -> hw.AnswerExplainer:
    return hw.explain_answer(model, QUESTION, tokenizer=tokenizer, documents=DOCUMENTS, answer=ANSWER)


def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = hw.load("smollm2")
    assert tokenizer is not None
    ids = tokenizer(ask(model, tokenizer).prompt + ANSWER, return_tensors="pt")["input_ids"]
    typer.echo(f"{ids.shape[1]} tokens\n\n| what | seconds |\n|---|---|")
    for _ in range(2):
        with torch.no_grad():
            measure("a forward pass", lambda: model(input_ids=ids, logits_to_keep=1, use_cache=False))
    for when in ("the first time", "again"):
        found = ask(model, tokenizer)
        measure(f"all sentences, {when}", found.all_sentences)
        report = measure(f"the report after that, {when}", found.report)
    typer.echo(f"\nleft out: {len(report.tried)} sentences and {len(report.without)} documents")


if __name__ == "__main__":
    main()
