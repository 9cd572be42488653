"""`headwater answer`: which documents and sentences an answer rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwater.defaults import LANGUAGE_BY_KIND, LANGUAGE_OUTPUT

from . import options
from .models import load_chosen_model
from .screen import save_file, waiting

DEFAULT = "smollm2"

EXAMPLES = (
    'headwater answer "When was the tower finished?" --documents notes/',
    'headwater answer "When was it?" -d tower.txt -d paris.md --answer "In 1889."',
)


def command(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What the model is asked.")],
    documents: Annotated[
        list[Path] | None,
        typer.Option(
            "--documents", "-d", help="A .txt, .md, .html or .pdf file, or a directory of them. May be given again."
        ),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="Explain this answer, whether the model would give it or not.")
    ] = None,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="A directory, a .gguf file, a hub name, or smollm2, from its wheel."),
    ] = DEFAULT,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How many tokens the answer has at most.")
    ] = 100,
    method: Annotated[
        str | None, typer.Option("--method", help=f"See `headwater methods`. Default: {LANGUAGE_BY_KIND}.")
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(help=f"advantage, logit, logprob, or contrast (with the runner-up). Default: {LANGUAGE_OUTPUT}."),
    ] = None,
    sinks: Annotated[str, typer.Option(help="The first token: show, or aside, in the ledger.")] = "aside",
    special: Annotated[str, typer.Option(help="Special tokens: show, or aside, in the ledger.")] = "show",
    keep: options.Keep = "device",
    recompute: options.Recompute = None,
    memory_limit: options.MemoryLimit = None,
    task: options.Task = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    html: options.Html = None,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Ask a language model about documents, and say which of their sentences carry its answer."""
    from headwater.inputs.document_files import read_documents_from

    texts = read_documents_from(documents or [])
    loaded, tokenizer = load_chosen_model(model, task, device, dtype, allow_pickle, trust_remote_code)
    with waiting("answering and explaining"):
        import headwater

        found = headwater.explain_answer(
            loaded,
            question,
            tokenizer=tokenizer,
            documents=texts,
            answer=answer,
            max_new_tokens=max_new_tokens,
            method=method,
            score=score,
            sinks=sinks,
            special=special,
            keep=keep,
            recompute=options.count_of(recompute),
            memory_limit=memory_limit,
            dtype=dtype,
            seed=seed,
        )
        report = found.report()
    if html is not None:
        from headwater.viz.answer_page import page

        save_file(html, page(report))
    if as_json:
        typer.echo(json.dumps(report.summary(), ensure_ascii=False))
    else:
        typer.echo(str(report))
