"""`headwater answer`: which documents and sentences an answer rests on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.defaults import LANGUAGE_METHOD, LANGUAGE_OUTPUT
from headwater.errors import UsageError

from . import options
from .models import load_chosen_model
from .screen import waiting

if TYPE_CHECKING:
    from headwater.api.answers import AnswerExplainer

DEFAULT = "smollm2"
KINDS = (".txt", ".md")

EXAMPLES = (
    'headwater answer "When was the tower finished?" --documents notes/',
    'headwater answer "When was it?" -d tower.txt -d paris.md --answer "In 1889."',
)


def command(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What the model is asked.")],
    documents: Annotated[
        list[Path] | None,
        typer.Option("--documents", "-d", help="A .txt or .md file, or a directory of them. May be given again."),
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
        str | None, typer.Option("--method", help=f"See `headwater methods`. Default: {LANGUAGE_METHOD}.")
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
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Ask a language model about documents, and say which of their sentences carry its answer."""
    texts = read_files(documents or [])
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
        written = write_json(question, found) if as_json else write_text(found)
    typer.echo(written)


def read_files(given: list[Path]) -> dict[str, str]:
    """The texts of files and of directories' files, in order, by their names; by their paths where two are alike."""
    files = [file for path in given for file in files_of(path)]
    names = [file.name for file in files]
    return {str(file) if names.count(file.name) > 1 else file.name: read_file(file) for file in files}


def files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix.lower() not in KINDS:
            raise UsageError(f"{path} is neither a directory nor a file that ends in {' or '.join(KINDS)}.")
        return [path]
    found = sorted(file for file in path.iterdir() if file.is_file() and file.suffix.lower() in KINDS)
    if not found:
        raise UsageError(f"{path} holds no file that ends in {' or '.join(KINDS)}.")
    return found


def read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no text in UTF-8.") from error


def write_text(found: AnswerExplainer) -> str:
    from headwater.viz.answers import plain_answer

    left_out = [found.without(number) for number in range(len(found.documents))]
    return plain_answer(found.text, found.all_sentences(), found.citations(), left_out)


def write_json(question: str, found: AnswerExplainer) -> str:
    """One object: the answer, its sentences with their sources and sums, and what happens without each document."""
    cited = found.citations()
    sentences: list[dict[str, Any]] = [
        {
            "text": span.text,
            "score": span.score,
            "log_probability": span.log_probability,
            "by_role": span.by_role(),
            "by_document": span.by_document(),
            "citations": [asdict(one) for one in sources],
            "ledger": span.ledger.to_dict(),
        }
        for span, sources in zip(found.all_sentences(), cited, strict=True)
    ]
    left_out = [found.without(number) for number in range(len(found.documents))]
    made = {
        "question": question,
        "answer": found.text,
        "documents": list(found.documents),
        "sentences": sentences,
        "without": [{**asdict(one), "drop": one.drop} for one in left_out],
    }
    return json.dumps(made, ensure_ascii=False)
