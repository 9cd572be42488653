"""`headwater answer`: which documents and sentences an answer rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .models import load_chosen_model
from .screen import print_json, save_file, waiting

DEFAULT = "smollm2"

EXAMPLES = (
    'headwater answer "When was the tower finished?" --documents notes/',
    'headwater answer "When was it?" -d tower.txt -d paris.md --answer "In 1889."',
)


@options.takes_groups
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
    model: options.LanguageModel = DEFAULT,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How many tokens the answer has at most.")
    ] = 100,
    method: options.LanguageMethod = None,
    score: options.Score = None,
    sinks: options.FirstToken = "aside",
    special: options.SpecialTokens = "show",
    memory: options.MemoryOptions = options.MEMORY,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    html: options.Html = None,
) -> None:
    """Ask a language model about documents, and say which of their sentences carry its answer."""
    from headwater.inputs.document_files import read_documents_from

    texts = read_documents_from(documents or [])
    loaded, tokenizer = load_chosen_model(model, loading)
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
            dtype=loading.dtype,
            seed=seed,
            **memory.settings(),
        )
        report = found.report()
    if html is not None:
        from headwater.viz.answer_page import page

        save_file(html, page(report))
    if as_json:
        print_json(report.summary())
    else:
        typer.echo(str(report))
