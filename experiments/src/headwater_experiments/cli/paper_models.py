"""`headwater paper train`, `pretrain` and `install`: the models of the paper's experiments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli import options
from headwater.cli.screen import waiting
from headwater.errors import UsageError
from headwater.names import split_names

app = typer.Typer(help="The paper's experiments: train its models, make its tables and figures.", no_args_is_help=True)

Arrays = Annotated[
    Path | None,
    typer.Option(
        help="Graphs: directory of the array files, which are made there if they are missing. Default: the cache."
    ),
]
Kind = Annotated[
    str,
    typer.Option(
        "--model",
        help="small: the paper's text transformer; minilm: MiniLM as a whole; distilbert: it in DistilBERT's build.",
    ),
]
RecipeName = Annotated[
    str, typer.Option("--recipe", help="paper: as the paper trained; tuned: chosen on the validation parts.")
]
Where = Annotated[
    str | None,
    typer.Option("--device", callback=options.check_device, help="Where to compute: cpu, cuda, cuda:1, mps."),
]
ALL = "sst2, imdb, t-emotions, t-hate, t-sentiment, meld-s, semaine; bace, mnist"
GRAPHS = ("bace", "mnist")


@app.command("train", epilog="headwater paper train sst2\nheadwater paper train bace --seeds 3 --device cuda")
def train(
    dataset: Annotated[str, typer.Argument(help=f"One of {ALL}.")],
    model: Kind = "small",
    recipe: RecipeName = "tuned",
    out: Annotated[Path | None, typer.Option(help="Directory for the model. Default: where the tables look.")] = None,
    embeddings: Annotated[
        str | None, typer.Option(help="The BERT that it stands on, by directory or hub name. Default: MiniLM.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", "--epochs", min=1, max=options.MOST, help="At most so many rounds.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=options.MOST, help="Samples in a step.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, max=1, help="Highest rate of AdamW.")] = None,
    warmup: Annotated[
        float | None,
        typer.Option(
            min=0, max=options.MOST, help="Texts: share of the steps over which the rate rises; graphs: epochs."
        ),
    ] = None,
    decay: Annotated[float | None, typer.Option(min=0, max=1, help="Weight decay.")] = None,
    dropout: Annotated[float | None, typer.Option(min=0, max=0.99)] = None,
    word_dropout: Annotated[
        float | None, typer.Option(min=0, max=0.99, help="Texts: share of the tokens that training replaces by [UNK].")
    ] = None,
    smoothing: Annotated[float | None, typer.Option(min=0, max=0.99, help="Label smoothing.")] = None,
    average: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=options.MOST,
            help="Mean of the weights; 0: none. Texts: over so many steps; graphs: share of the past.",
        ),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Stop after so many rounds without a better one.")
    ] = None,
    longest: Annotated[int | None, typer.Option(min=2, max=options.MOST, help="Texts: tokens that are read.")] = None,
    ignore_mask: Annotated[
        bool | None, typer.Option("--ignore-mask/--no-ignore-mask", help="As the authors' code: padding is attended.")
    ] = None,
    unscaled: Annotated[
        bool | None, typer.Option("--unscaled/--no-unscaled", help="As the authors' code: scores are not scaled.")
    ] = None,
    bfloat16: Annotated[
        bool | None, typer.Option("--bfloat16/--no-bfloat16", help="Texts on a card: products in half precision.")
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(min=0, max=options.MANY, help="minilm: train a change of this rank to each matrix; 0: all of it."),
    ] = None,
    bent: Annotated[
        bool | None, typer.Option("--bent/--no-bent", help="mnist: digits turned and shifted at random in training.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=options.LAST_SEED, help="Seed of the first training.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=options.MANY, help="How many trainings, each with a seed.")] = 1,
    split: Annotated[str, typer.Option(help="BACE: random or scaffold.")] = "random",
    arrays: Arrays = None,
    work: Annotated[
        Path | None, typer.Option(help="Graphs: directory of every seed's model. Default: the cache.")
    ] = None,
    device: Where = None,
    as_json: options.Json = False,
) -> None:
    """Train one model for each seed; cut off, the same command goes on after the last whole round.

    Two recipes are known, and every choice of either can be changed. bace and mnist are graphs, for a Graphormer.
    """
    if out is not None and seeds > 1:
        raise UsageError("--out is the directory of one model. Leave it out, or train one seed at a time.")
    numbers = range(seed, seed + seeds)
    shared = {"rate": rate, "decay": decay, "dropout": dropout, "smoothing": smoothing, "average": average}
    shared |= {"batch": batch, "patience": patience, "warmup": warmup}
    texts = {"word_dropout": word_dropout, "longest": longest, "ignore_mask": ignore_mask, "unscaled": unscaled}
    texts |= {"bfloat16": bfloat16, "rank": rank}
    if dataset in GRAPHS:
        given = {option_name(name): value for name, value in {**texts, "embeddings": embeddings}.items()}
        refuse(dataset, "texts", {"--model": model != "small" or None, **given})
        changes = {**shared, "epochs": rounds, "bent": bent}
        graphs(dataset, out, recipe, numbers, split, changes, arrays, work, device or "cpu", as_json)
        return
    others = {"split": None if split == "random" else split, "bent": bent, "arrays": arrays, "work": work}
    refuse(dataset, "graphs", {option_name(name): value for name, value in others.items()})
    with waiting("reading the data"):
        from headwater.models.pretrained import MINILM
        from headwater_experiments.paper.checkpoints import place
        from headwater_experiments.paper.published import ACCURACY
        from headwater_experiments.paper.training import train_text as make
    kind = model if model != "small" else recipe
    paper = f"; the paper's model {ACCURACY[dataset]:.1%}" if dataset in ACCURACY else ""
    for number in numbers:
        path = out or place(kind, dataset, number)
        found = make(
            dataset,
            path,
            kind=model,
            recipe=recipe,
            seed=number,
            device=device or "cpu",
            embeddings=embeddings or MINILM,
            **{**shared, **texts, "rounds": rounds, "average": None if average is None else int(average)},
        )
        typer.echo(json.dumps(found.to_dict()) if as_json else f"{path}: test accuracy {found.test}{paper}")


def option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def refuse(dataset: str, others: str, given: Mapping[str, object]) -> None:
    """An option that means nothing for this dataset would be believed to have done something."""
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is for {others}, and {dataset} is not of them. Leave it out.")


def graphs(
    dataset: str,
    out: Path | None,
    recipe_name: str,
    seeds: range,
    split: str,
    changes: Mapping[str, Any],
    arrays: Path | None,
    work: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Train on graphs; every seed's model becomes a checkpoint."""
    with waiting("reading the data"):
        from headwater_experiments.paper import graph_checkpoints as made
        from headwater_experiments.paper.checkpoints import place
        from headwater_experiments.paper.graph_data import arrays_directory
        from headwater_experiments.paper.graphs import graph_recipe_for
        from headwater_experiments.paper.training import device_name
    kept = arrays or arrays_directory()
    recipe = graph_recipe_for(dataset, recipe_name, **changes)
    report = made.train_checkpoint(
        dataset,
        work or kept / "trained" / recipe_name,
        arrays=kept,
        split=split,
        seeds=seeds,
        device=device,
        recipe=recipe,
    )
    for seed in seeds:
        path = out or place(recipe_name, dataset, seed)
        record = made.install_checkpoint(
            [report], path, arrays=kept, seed=seed, device=device, trained_on=device_name(device)
        )
        print_record(path, record, as_json)


def print_record(path: Path, record: dict[str, Any], as_json: bool) -> None:
    """The record, or in words: every split over its seeds beside the paper's number, and the model that was kept."""
    if as_json:
        typer.echo(json.dumps(record))
        return
    from headwater_experiments.paper.graph_data import find_graph_dataset

    measure, test, paper = record["measure"], record["test"], find_graph_dataset(record["dataset"]).paper
    for training in record["trainings"]:
        runs = len(training["runs"])
        over = f" ± {training['spread']:.1%} over {runs} seeds" if runs > 1 else ", one seed"
        said = f"test {measure} {training['mean']:.1%}{over}; the paper's model {paper:.1%}"
        typer.echo(f"{record['dataset']}, {training['split']} split: {said}")
    typer.echo(
        f"{path}: {record['split']} split, seed {record['seed']}, test {measure} {test['value']:.1%} "
        f"({test['total']:,}; 95% interval {test['low']:.1%} to {test['high']:.1%})"
    )


@app.command("pretrain", epilog="headwater paper pretrain --out bert\nheadwater paper pretrain --out bert --rounds 20")
def pretrain(
    out: Annotated[Path, typer.Option(help="Directory for the model.")],
    datasets: Annotated[
        str | None, typer.Option(help="Whose training texts, separated by commas. Default: all seven.")
    ] = None,
    width: Annotated[int, typer.Option(min=2, max=options.MOST, help="Width of the embeddings.")] = 768,
    layers: Annotated[int, typer.Option(min=1, max=options.MANY)] = 12,
    heads: Annotated[int, typer.Option(min=1, max=options.MANY)] = 12,
    rounds: Annotated[int, typer.Option(min=1, max=options.MOST, help="Times through the texts.")] = 40,
    batch: Annotated[int, typer.Option(min=1, max=options.MOST, help="Rows of 128 tokens in a step.")] = 256,
    rate: Annotated[float, typer.Option(min=0, max=1, help="Highest rate of AdamW.")] = 2e-4,
    device: Where = None,
    seed: options.Seed = 0,
) -> None:
    """Train a masked language model of BERT's build on the texts of the experiments, for `train --embeddings`."""
    with waiting("reading the data"):
        from headwater_experiments.paper.pretraining import Build
        from headwater_experiments.paper.pretraining import pretrain_model as make
        from headwater_experiments.paper.published import TEXTS
    build = Build(width=width, layers=layers, heads=heads, inner=4 * width, rounds=rounds, batch=batch, rate=rate)
    chosen = TEXTS if datasets is None else tuple(split_names(datasets))
    found = make(out, build, datasets=chosen, seed=seed, device=device or "cpu")
    typer.echo(f"{out}: loss {found.losses[-1]:.3f} on texts held back, {found.blocks:,} rows, {found.seconds:,.0f} s")


@app.command("install", epilog="headwater paper install bace.json\nheadwater paper install bace.json --seed 0")
def install(
    reports: Annotated[
        list[Path],
        typer.Argument(help="What `python -m headwater_experiments.paper.graphs train` printed, of one dataset."),
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
        typer.Option(min=0, max=options.LAST_SEED, help="The seed of one model. Default: all of them."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the model of --seed. Default: where the tables look.")
    ] = None,
    arrays: Arrays = None,
    trained_on: Annotated[str, typer.Option(help="The machine that trained it, for the card.")] = "",
    device: Where = None,
    as_json: options.Json = False,
) -> None:
    """Bring in models of graphs that were trained elsewhere: each becomes a checkpoint, with its card.

    Its test part is measured again, so that a model that does not belong to its report is refused.
    """
    if out is not None and seed is None:
        raise UsageError("--out is the directory of one model: say which with --seed.")
    with waiting("measuring the test part"):
        from headwater_experiments.paper import graph_checkpoints as made
        from headwater_experiments.paper.checkpoints import place
        from headwater_experiments.paper.graph_data import arrays_directory
        from headwater_experiments.paper.graphs import nearest

        found = [made.read_report(path) for path in reports]
        one = made.of_split(made.join_reports(found), split)
        recipe = nearest(one.dataset, one.recipe)
        for number in [run.seed for run in one.runs] if seed is None else [seed]:
            path = out or place(recipe, one.dataset, number)
            record = made.install_checkpoint(
                found,
                path,
                arrays=arrays or arrays_directory(),
                models=models,
                split=split,
                seed=number,
                device=device or "cpu",
                trained_on=trained_on,
            )
            print_record(path, record, as_json)
