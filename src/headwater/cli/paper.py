"""`headwater paper`: the experiments of Ali et al. (2022), run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from . import options
from .names import separated
from .screen import say, waiting

app = typer.Typer(help="The paper's experiments: train its models, make its tables and figures.", no_args_is_help=True)

Datasets = Annotated[
    str, typer.Option(help="Which datasets, separated by commas. Default: all seven of the paper's texts.")
]
Kind = Annotated[str, typer.Option("--model", help="small: the paper's text transformer; minilm: MiniLM as a whole.")]
Where = Annotated[str | None, typer.Option("--device", help="Where to compute: cpu, cuda, cuda:1, mps.")]
ALL = "sst2,imdb,t-emotions,t-hate,t-sentiment,meld-s,semaine"


@app.command("train")
def train(
    dataset: Annotated[str, typer.Argument(help=f"One of {ALL.replace(',', ', ')}.")],
    model: Kind = "small",
    out: Annotated[Path | None, typer.Option(help="Directory for the model. Default: where the tables look.")] = None,
    embeddings: Annotated[
        str | None, typer.Option(help="The BERT that it stands on, by directory or hub name. Default: MiniLM.")
    ] = None,
    ignore_mask: Annotated[
        bool, typer.Option("--ignore-mask", help="As the authors' code: padding is attended.")
    ] = False,
    unscaled: Annotated[bool, typer.Option("--unscaled", help="As the authors' code: scores are not scaled.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
    device: Where = None,
    as_json: options.Json = False,
) -> None:
    """Train one model; cut off, the same command goes on after the last whole round."""
    with waiting("reading the data"):
        from headwater.models.pretrained import MINILM
        from headwater.paper.checkpoints import place
        from headwater.paper.training import train as make
    path = out or place(model, dataset)
    found = make(
        dataset,
        path,
        kind=model,
        seed=seed,
        device=device or "cpu",
        embeddings=embeddings or MINILM,
        ignore_mask=ignore_mask,
        unscaled=unscaled,
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    from headwater.paper.published import ACCURACY

    paper = f"; the paper's model {ACCURACY[dataset]:.1%}" if dataset in ACCURACY else ""
    typer.echo(f"{path}: test accuracy {found.test}{paper}")


@app.command("tables")
def tables(
    model: Kind = "small",
    datasets: Datasets = ALL,
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas. Default: the paper's and ours.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for measurements and tables.")] = Path("paper"),
    quick: Annotated[bool, typer.Option("--quick", help="A seeded part of every dataset: minutes on a CPU.")] = False,
    flow: Annotated[bool, typer.Option("--flow/--no-flow", help="Also measure A-Flow, which is slow.")] = True,
    flow_rows: Annotated[int | None, typer.Option(min=1, help="How many texts A-Flow is measured on.")] = None,
    flow_tokens: Annotated[int | None, typer.Option(min=1, help="How long these may be.")] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Draw this many samples of every dataset.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts explained at once.")] = 32,
    device: Where = None,
    workers: options.Workers = 1,
    seed: options.Seed = 0,
) -> None:
    """Tables 1 and 2 with ours beside the paper's: Markdown on standard output, and files in --out.

    Every dataset is kept when it is done, and an interrupted run goes on where it stopped.
    """
    with waiting("loading"):
        import dataclasses

        from headwater.paper import tables as made
        from headwater.paper.trials import FULL, METHODS, QUICK, Trial, trials

    size = QUICK if quick else FULL
    size = dataclasses.replace(
        size,
        rows=rows or size.rows,
        flow_rows=flow_rows or size.flow_rows,
        flow_tokens=flow_tokens or size.flow_tokens,
        seed=seed,
    )
    chosen = METHODS if methods is None else tuple(separated(methods))
    found: list[Trial] = []
    for trial in trials(
        model,
        separated(datasets),
        out,
        methods=chosen,
        flow=flow,
        size=size,
        device=device,
        batch_size=batch_size,
        workers=workers,
    ):
        found.append(trial)
        say(f"{trial.dataset}: measured, {len(trial.main):,} texts")
    page = made.page(found)
    (out / f"tables-{model}.md").write_text(page, encoding="utf-8")
    (out / f"tables-{model}.csv").write_text(made.as_csv(found), encoding="utf-8")
    typer.echo(page)
    say(f"kept in {out}: tables-{model}.md, tables-{model}.csv, and the measurements")


@app.command("figures")
def figures(
    model: Kind = "small",
    results: Annotated[Path, typer.Option(help="What `headwater paper tables` wrote.")] = Path("paper"),
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("paper/figures"),
    datasets: Datasets = ALL,
    seed: options.Seed = 0,
) -> None:
    """Draw the paper's figures from what `tables` measured, as SVG and PNG.

    Conservation, activation and pruning curves of every dataset; the collapse at LayerNorm, sentence heatmaps and
    runtimes of the first.
    """
    with waiting("drawing"):
        from headwater.paper.figures import figures as draw

    for path in draw(model, results, out, separated(datasets), seed):
        typer.echo(str(path))
