"""`headwater paper`: the experiments of Ali et al. (2022), run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli import options
from headwater.cli.screen import say, waiting
from headwater.names import split_names

from .paper_models import Arrays, Kind, RecipeName, Where, app

__all__ = ["app"]

Datasets = Annotated[
    str | None,
    typer.Option(
        help="Which datasets, separated by commas. Default: the paper's seven texts, and bace and mnist where their "
        "model is there."
    ),
]


@app.command("tables", epilog="headwater paper tables\nheadwater paper tables --out tables")
def tables(
    model: Kind = "small",
    recipe: RecipeName = "paper",
    datasets: Datasets = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas. Default: the paper's and ours.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for measurements and tables.")] = Path("paper"),
    quick: Annotated[bool, typer.Option("--quick", help="A seeded part of every dataset: minutes on a CPU.")] = False,
    flow: Annotated[bool, typer.Option("--flow/--no-flow", help="Also measure A-Flow, which is slow.")] = True,
    flow_rows: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="How many texts A-Flow is measured on.")
    ] = None,
    flow_tokens: Annotated[int | None, typer.Option(min=1, max=options.MOST, help="How long these may be.")] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MOST,
            help="Draw this many samples of every dataset. Default: all, and 1,000 digits of mnist.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, max=options.MOST, help="Samples explained at once.")] = 32,
    device: Where = None,
    workers: options.Workers = 1,
    trainings: Annotated[
        int | None, typer.Option(min=1, max=options.MANY, help="At most so many trainings of each. Default: all.")
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Tables 1 and 2 with ours beside the paper's: Markdown on standard output, and files in --out.

    Every dataset is kept when it is done, and an interrupted run goes on where it stopped.
    """
    with waiting("loading"):
        import dataclasses

        from headwater_experiments.paper import tables as made
        from headwater_experiments.paper.graph_data import samples
        from headwater_experiments.paper.sizes import FULL, QUICK
        from headwater_experiments.paper.trials import METHODS, Trial, available, trials

    size = QUICK if quick else FULL
    size = dataclasses.replace(
        size,
        rows=rows or size.rows,
        digits=rows or size.digits,
        flow_rows=flow_rows or size.flow_rows,
        flow_tokens=flow_tokens or size.flow_tokens,
        seed=seed,
    )
    chosen = METHODS if methods is None else tuple(split_names(methods))
    kind = model if model != "small" else recipe
    names = available(kind, say) if datasets is None else split_names(datasets)
    found: list[Trial] = []
    for trial in trials(
        kind,
        names,
        out,
        methods=chosen,
        flow=flow,
        size=size,
        device=device,
        batch_size=batch_size,
        workers=workers,
        first=trainings or (1 if quick else None),
    ):
        found.append(trial)
        each = f", {len(trial.runs)} trainings" if len(trial.runs) > 1 else ""
        say(f"{trial.dataset}: measured, {len(trial.main):,} {samples(trial.dataset)}{each}")
    page = made.tables_page(found)
    (out / f"tables-{kind}.md").write_text(page, encoding="utf-8")
    (out / f"tables-{kind}.csv").write_text(made.as_csv(found), encoding="utf-8")
    typer.echo(page)
    say(f"kept in {out}: tables-{kind}.md, tables-{kind}.csv, and the measurements")


@app.command("ablate", epilog="headwater paper ablate\nheadwater paper ablate --limit 1000 --seeds 1")
def ablate(
    conditions: Annotated[
        str | None,
        typer.Option(
            help="Conditions, separated by commas: plain,bent,averaged,constant,slow,long,linear,post. Default: all."
        ),
    ] = None,
    norms: Annotated[
        bool,
        typer.Option(
            "--norms", help="Instead, hold the normaliser of each LayerNorm constant, and see which lowers GI."
        ),
    ] = False,
    recipe: RecipeName = "paper",
    seeds: Annotated[int, typer.Option(min=1, max=options.MANY, help="How many trainings of each.")] = 2,
    limit: Annotated[int, typer.Option(min=20, max=options.MOST, help="So many training digits.")] = 6000,
    rows: Annotated[int, typer.Option(min=1, max=options.MOST, help="So many test digits are measured.")] = 200,
    out: Annotated[Path, typer.Option(help="Directory for trainings, measurements and tables.")] = Path("ablation"),
    arrays: Arrays = None,
    device: Where = None,
) -> None:
    """mnist: change one condition of a small training at a time, and measure what it does to the order of methods.

    --recipe says whose models --norms looks at; nothing is trained for it.
    """
    with waiting("loading"):
        from headwater_experiments.paper import graph_ablation as made
        from headwater_experiments.paper.graph_data import arrays_directory

    out.mkdir(parents=True, exist_ok=True)
    where = device or "cpu"
    if norms:
        page, name = made.held_table(list(made.hold_each(recipe, rows=rows, device=where, tell=say))), f"norms-{recipe}"
    else:
        chosen = tuple(made.CONDITIONS) if conditions is None else tuple(split_names(conditions))
        shared: dict[str, Any] = {"first": seeds, "limit": limit, "rows": rows, "device": where, "tell": say}
        found = list(made.ablate(arrays or arrays_directory(), out, conditions=chosen, **shared))
        page, name = made.table(found), "conditions"
    (out / f"{name}.md").write_text(page, encoding="utf-8")
    typer.echo(page)


@app.command("figures", epilog="headwater paper figures\nheadwater paper figures --out figures")
def figures(
    model: Kind = "small",
    recipe: RecipeName = "paper",
    results: Annotated[Path, typer.Option(help="What `headwater paper tables` wrote.")] = Path("paper"),
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("paper/figures"),
    datasets: Datasets = None,
    seed: options.Seed = 0,
) -> None:
    """Draw the paper's figures from what `tables` measured, as SVG and PNG.

    Conservation, activation and pruning curves of every dataset; the collapse at LayerNorm, sentence heatmaps and
    runtimes of the first of the texts; molecules and digits with their nodes coloured.
    """
    with waiting("drawing"):
        from headwater_experiments.paper.figures import draw_figures as draw
        from headwater_experiments.paper.figures import drawable

    kind = model if model != "small" else recipe
    names = drawable(kind, results) if datasets is None else split_names(datasets)
    for path in draw(kind, results, out, names, seed):
        typer.echo(str(path))
