"""`headwater paper`: the experiments of Ali et al. (2022), run again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.errors import UsageError

from . import options
from .names import separated
from .screen import say, waiting

app = typer.Typer(help="The paper's experiments: train its models, make its tables and figures.", no_args_is_help=True)

Datasets = Annotated[
    str | None,
    typer.Option(
        help="Which datasets, separated by commas. Default: the paper's seven texts, and bace and mnist where their "
        "model is there."
    ),
]
Arrays = Annotated[
    Path | None,
    typer.Option(
        help="Graphs: directory of the array files, which are made there if they are missing. Default: the cache."
    ),
]
Kind = Annotated[str, typer.Option("--model", help="small: the paper's text transformer; minilm: MiniLM as a whole.")]
Where = Annotated[
    str | None, typer.Option("--device", callback=options.usable, help="Where to compute: cpu, cuda, cuda:1, mps.")
]
ALL = "sst2, imdb, t-emotions, t-hate, t-sentiment, meld-s, semaine; bace, mnist"
GRAPHS = ("bace", "mnist")


@app.command("train")
def train(
    dataset: Annotated[str, typer.Argument(help=f"One of {ALL}.")],
    model: Kind = "small",
    out: Annotated[Path | None, typer.Option(help="Directory for the model. Default: where the tables look.")] = None,
    embeddings: Annotated[
        str | None, typer.Option(help="The BERT that it stands on, by directory or hub name. Default: MiniLM.")
    ] = None,
    ignore_mask: Annotated[
        bool, typer.Option("--ignore-mask", help="As the authors' code: padding is attended.")
    ] = False,
    unscaled: Annotated[bool, typer.Option("--unscaled", help="As the authors' code: scores are not scaled.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=options.LAST_SEED, help="Seed of the training, of graphs the first one.")
    ] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, max=options.MANY, help="Graphs: how many trainings; the best by validation is kept.")
    ] = 1,
    split: Annotated[str, typer.Option(help="BACE: random or scaffold.")] = "random",
    epochs: Annotated[int | None, typer.Option(min=1, max=options.MOST, help="Graphs: at most so many epochs.")] = None,
    arrays: Arrays = None,
    work: Annotated[
        Path | None, typer.Option(help="Graphs: directory of every seed's model. Default: the cache.")
    ] = None,
    device: Where = None,
    as_json: options.Json = False,
) -> None:
    """Train one model; cut off, the same command goes on after the last whole round.

    bace and mnist are graphs: a Graphormer is trained once for each seed, and the seed that is best on its validation
    part becomes the model.
    """
    of_texts = {"--model": model != "small", "--embeddings": embeddings, "--ignore-mask": ignore_mask}
    of_graphs = {"--seeds": seeds > 1, "--split": split != "random", "--epochs": epochs, "--arrays": arrays}
    if dataset in GRAPHS:
        refuse(dataset, "texts", {**of_texts, "--unscaled": unscaled})
        graphs(dataset, out, range(seed, seed + seeds), split, epochs, arrays, work, device or "cpu", as_json)
        return
    refuse(dataset, "graphs", {**of_graphs, "--work": work})
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


def refuse(dataset: str, others: str, given: Mapping[str, object]) -> None:
    """An option that means nothing for this dataset would be believed to have done something."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is for {others}, and {dataset} is not of them. Leave it out.")


def graphs(
    dataset: str,
    out: Path | None,
    seeds: range,
    split: str,
    epochs: int | None,
    arrays: Path | None,
    work: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Train on graphs, and make the best seed's model the checkpoint."""
    with waiting("reading the data"):
        from headwater.paper import graph_checkpoints as made
        from headwater.paper.checkpoints import place
        from headwater.paper.graph_data import arrays_directory
        from headwater.paper.graphs import BACE, MNIST, changed
        from headwater.paper.training import device_name
    kept = arrays or arrays_directory()
    recipe = changed(BACE if dataset == "bace" else MNIST, epochs=epochs)
    report = made.train(
        dataset, work or kept / "trained", arrays=kept, split=split, seeds=seeds, device=device, recipe=recipe
    )
    path = out or place("graph", dataset)
    record = made.install([report], path, arrays=kept, device=device, trained_on=device_name(device))
    told(path, record, as_json)


def told(path: Path, record: dict[str, Any], as_json: bool) -> None:
    """The record, or in words: every split over its seeds beside the paper's number, and the model that was kept."""
    if as_json:
        typer.echo(json.dumps(record))
        return
    from headwater.paper.graph_data import named

    measure, test, paper = record["measure"], record["test"], named(record["dataset"]).paper
    for training in record["trainings"]:
        runs = len(training["runs"])
        over = f" ± {training['spread']:.1%} over {runs} seeds" if runs > 1 else ", one seed"
        said = f"test {measure} {training['mean']:.1%}{over}; the paper's model {paper:.1%}"
        typer.echo(f"{record['dataset']}, {training['split']} split: {said}")
    typer.echo(
        f"{path}: {record['split']} split, seed {record['seed']}, test {measure} {test['value']:.1%} "
        f"({test['total']:,}; 95% interval {test['low']:.1%} to {test['high']:.1%})"
    )


@app.command("install")
def install(
    reports: Annotated[
        list[Path], typer.Argument(help="What `python -m headwater.paper.graphs train` printed, of one dataset.")
    ],
    models: Annotated[
        Path | None, typer.Option(help="Directory that the seeds' models lie in now, where they were moved.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Of BACE, the split of the model: random or scaffold. Default: the first report's."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=options.LAST_SEED, help="The seed of the model. Default: the best by validation."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the model. Default: where the tables look.")] = None,
    arrays: Arrays = None,
    trained_on: Annotated[str, typer.Option(help="The machine that trained it, for the card.")] = "",
    device: Where = None,
    as_json: options.Json = False,
) -> None:
    """Bring in models of graphs that were trained elsewhere: one of them becomes the checkpoint, with its card.

    Its test part is measured again, so that a model that does not belong to its report is refused.
    """
    with waiting("measuring the test part"):
        from headwater.paper import graph_checkpoints as made
        from headwater.paper.checkpoints import place
        from headwater.paper.graph_data import arrays_directory

        found = [made.read_report(path) for path in reports]
        path = out or place("graph", found[0].dataset)
        record = made.install(
            found,
            path,
            arrays=arrays or arrays_directory(),
            models=models,
            split=split,
            seed=seed,
            device=device or "cpu",
            trained_on=trained_on,
        )
    told(path, record, as_json)


@app.command("tables")
def tables(
    model: Kind = "small",
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
    seed: options.Seed = 0,
) -> None:
    """Tables 1 and 2 with ours beside the paper's: Markdown on standard output, and files in --out.

    Every dataset is kept when it is done, and an interrupted run goes on where it stopped.
    """
    with waiting("loading"):
        import dataclasses

        from headwater.paper import tables as made
        from headwater.paper.graph_data import samples
        from headwater.paper.trials import FULL, METHODS, QUICK, Trial, available, trials

    size = QUICK if quick else FULL
    size = dataclasses.replace(
        size,
        rows=rows or size.rows,
        digits=rows or size.digits,
        flow_rows=flow_rows or size.flow_rows,
        flow_tokens=flow_tokens or size.flow_tokens,
        seed=seed,
    )
    chosen = METHODS if methods is None else tuple(separated(methods))
    names = available(model, say) if datasets is None else separated(datasets)
    found: list[Trial] = []
    for trial in trials(
        model,
        names,
        out,
        methods=chosen,
        flow=flow,
        size=size,
        device=device,
        batch_size=batch_size,
        workers=workers,
    ):
        found.append(trial)
        say(f"{trial.dataset}: measured, {len(trial.main):,} {samples(trial.dataset)}")
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
    datasets: Datasets = None,
    seed: options.Seed = 0,
) -> None:
    """Draw the paper's figures from what `tables` measured, as SVG and PNG.

    Conservation, activation and pruning curves of every dataset; the collapse at LayerNorm, sentence heatmaps and
    runtimes of the first of the texts; molecules and digits with their nodes coloured.
    """
    with waiting("drawing"):
        from headwater.paper.figures import drawable
        from headwater.paper.figures import figures as draw

    names = drawable(model, results) if datasets is None else separated(datasets)
    for path in draw(model, results, out, names, seed):
        typer.echo(str(path))
