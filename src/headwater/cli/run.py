"""`headwater run`: a whole dataset explained, from files to files, on one machine or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.names import split_names
from headwater.plurals import say_count

from . import options
from .models import load_chosen_model
from .refusals import BAD_ROWS
from .screen import interruptions, print_json, say, waiting
from .similar import MINILM, Dot, PoolingName, RankNumber

if TYPE_CHECKING:
    from headwater.store.runs import StoredRun

EXAMPLES = (
    "headwater run --data reviews.parquet --out explained",
    "headwater run --data reviews.csv --out explained -m ./my-model --workers 4",
)


def command(
    data: Annotated[
        list[str],
        typer.Option(
            help="What to explain: a .parquet, .csv, .tsv or .jsonl file, a pattern in quotes ('in/*.parquet'), a "
            "directory of those or of `datasets`. May be given several times."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where results go. The same command again goes on from what lies there.")],
    model: options.Model = None,
    task: options.Task = None,
    method: options.Method = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns, separated by commas: the texts first, then those that go along. Default: text; with "
            "--similar, whose two columns are there in any case, none."
        ),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(help="Columns with documents: the first of --columns then holds questions, which are answered."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="A column with answers, which are explained. Empty: the model answers.")
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How many tokens an answer has at most.")
    ] = 100,
    similar: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A_COLUMN B_COLUMN", help="Two columns of texts: which words of each made them similar."),
    ] = None,
    pooling: PoolingName = None,
    dot: Dot = False,
    rank: RankNumber = None,
    target: options.Target = None,
    output: options.Output = None,
    at: options.At = "embeddings",
    sinks: options.Sinks = None,
    inside: Annotated[
        str | None,
        typer.Option(help="Also store parts of the model: heads, neurons, layers or names of modules, with commas."),
    ] = None,
    engine: Annotated[str, typer.Option(help="Who explains: local (processes of this machine) or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, e.g. auto or host:6379. Default: one is started here.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=options.MANY, help="Processes that share the work. Default: one a core or GPU, as memory allows."
        ),
    ] = None,
    shard_rows: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="Rows of the input in a file of the results.")
    ] = 4096,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=options.MOST, help="Tokens explained at once, padding too. Default: by device."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=options.MOST, help="A text of more tokens is too long. Default: what the model takes."),
    ] = None,
    truncate: options.Truncate = False,
    window: options.Window = False,
    threads: Annotated[
        int, typer.Option(min=1, max=options.MANY, help="Threads of each worker. Another number, other last digits.")
    ] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be explained.")] = False,
    device: Annotated[
        str | None, typer.Option(help="Where to compute: cpu or cuda. Default: GPUs if there are any.")
    ] = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output: the manifest.")] = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Explain a whole dataset into parquet files. Exit code 3: done, but some rows are in errors.parquet."""
    chosen = split_names("text" if columns is None and similar is None else columns or "")
    if similar is not None:
        model = model or MINILM
        chosen = [similar[0], *(name for name in chosen if name not in similar)]
    loaded, tokenizer = load_chosen_model(
        model, options.LoadOptions(task, None, dtype, allow_pickle, trust_remote_code)
    )
    with waiting("reading the data"):
        from headwater.jobs.running import run
        from headwater.jobs.similar_rows import find_pooling
    if similar is not None and pooling is None and model is not None:
        found_pooling, max_tokens = find_pooling(model, max_tokens)
        pooling = None if found_pooling is None else ",".join(found_pooling)
    with interruptions(out):
        found = run(
            loaded,
            data,
            out,
            tokenizer=tokenizer,
            method=method,
            columns=chosen,
            documents=None if documents is None else split_names(documents),
            answer=answer,
            max_new_tokens=max_new_tokens,
            similar=None if similar is None else similar[1],
            pooling=None if pooling is None else split_names(pooling),
            normalise=not dot,
            rank=rank,
            target=target,
            output=output,
            at=at,
            sinks=sinks,
            inside=None if inside is None else split_names(inside),
            engine=engine,
            address=address,
            workers=workers,
            shard_rows=shard_rows,
            batch_tokens=batch_tokens,
            max_tokens=max_tokens,
            truncate=truncate,
            window=window,
            threads=threads,
            device=device,
            dtype=dtype,
            seed=seed,
            strict=strict,
        )
    if as_json:
        print_json(found.manifest.to_dict())
    else:
        typer.echo(summarise_run(found))
    if found.manifest.counts.errors:
        bad = found.manifest.counts.errors
        say(f"{say_count(bad, 'row')} could not be explained: {out / 'errors.parquet'} says why")
        raise typer.Exit(BAD_ROWS)


def summarise_run(found: StoredRun) -> str:
    counts, shards = found.manifest.counts, found.manifest.shards
    rows, tokens = say_count(counts.rows, "row"), say_count(counts.tokens, "token")
    said = f"{rows} and {tokens} explained by {found.method}, in {say_count(shards, 'shard')}"
    books = say_count(counts.open, "ledger is open", "ledgers are open") if counts.open else "every ledger is closed"
    books = books if counts.rows else "no row was explained"
    return f"{said}: {found.path / 'shards'}\n{books}; rows that could not be explained: {counts.errors:,}"
