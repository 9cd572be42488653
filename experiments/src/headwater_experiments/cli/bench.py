"""`headwater bench`: what explanations cost on this machine beside the prediction alone, and what evaluating saves."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import options
from headwater.cli.models import load_chosen_model
from headwater.cli.screen import say, waiting
from headwater.errors import UsageError
from headwater.names import split_names

if TYPE_CHECKING:
    from headwater.viz.tables import Table

COST, EVALUATION, THROUGHPUT = "neither --evaluation nor --throughput", "--evaluation", "--throughput"
GRAPHS = "--graphs"
PLACES = {  # which benchmarks an option has a meaning for, where not for all
    **dict.fromkeys(
        "batch tokens mixed layers dtype attention keep recompute memory_limit replay peers".split(), (COST,)
    ),
    **dict.fromkeys(("limit", "measures"), (EVALUATION,)),
    "shape": (COST, THROUGHPUT),
    "busy": (COST, THROUGHPUT, GRAPHS),
    "data": (EVALUATION, THROUGHPUT),
}
ATTENTION = ("headwater", "sdpa", "eager")
NOISE = "rounds after a first one to warm up; what else runs on this machine moves the figures"

EXAMPLES = (
    "headwater bench",
    "headwater bench --json",
)


def command(
    context: typer.Context,
    evaluation: Annotated[
        bool, typer.Option("--evaluation", help="Time `evaluate` against a loop over single sentences instead.")
    ] = False,
    throughput: Annotated[
        bool, typer.Option("--throughput", help="Texts a second over a whole dataset instead, by the bundled model.")
    ] = False,
    graphs: Annotated[
        str | None,
        typer.Option(
            help="Time a Graphormer on graphs of so many nodes instead; several numbers are separated by commas.",
            metavar="NODES",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas. Default: gi and every preset of lrp; "
            "with --evaluation gi,lrp(ah),lrp(ln),lrp(ah+ln),lrp; with --throughput gi,lrp, where torch is "
            "Gradient x Input written with torch alone; with --graphs "
            "lrp,gi,rollout."
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help="Other tools to time beside: captum, lxt, none. Default: those that are installed, where no --methods "
            "are named."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MOST,
            help="How often all is timed, in turn. Default: 7; with --evaluation or --graphs 3, with --throughput 5.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="The model, with random weights: bert-base, llama-small, gemma2-small, llama-8b, mistral-7b. "
            "Default: bert-base; with --throughput the bundled model."
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Samples in a batch. Default: 8; of a decoder 1.")
    ] = None,
    tokens: Annotated[str, typer.Option(help="Tokens in a sample; several lengths are separated by commas.")] = "128",
    mixed: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MOST,
            help="Time each method once at so many lengths between the least and the most of --tokens, none twice.",
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Layers of the model, where not all are wanted.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    attention: Annotated[
        str | None,
        typer.Option(help="How attention is computed: headwater, sdpa, eager. Default: what transformers chooses."),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Time each method replayed from a recording, too (a graphics card's).")
    ] = False,
    keep: options.Keep = "device",
    recompute: options.Recompute = None,
    memory_limit: options.MemoryLimit = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With --evaluation or --throughput: labelled texts, as for `evaluate`. Default: SST-2 dev."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="With --evaluation: how many texts, drawn by a fixed seed.")
    ] = 48,
    measures: Annotated[
        str, typer.Option(help="With --evaluation: the curves, as for `evaluate`.")
    ] = "activation,pruning",
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda.")] = "cpu",
    busy: Annotated[
        bool, typer.Option("--busy", help="Count the processor's time, where others share the machine. Not on a card.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, max=options.MANY, help="Threads of torch. Default: its own choice.")
    ] = None,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Time explanations of a model, as ratios to its forward pass; or the evaluation's gain."""
    modes = {EVALUATION: evaluation, THROUGHPUT: throughput, GRAPHS: graphs is not None}
    chosen = [name for name, asked in modes.items() if asked]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} are benchmarks of their own: ask for one at a time.")
    refuse_what_has_no_place(context, chosen[0] if chosen else COST)
    if busy and device != "cpu":
        raise UsageError("--busy counts the processor's time, which says nothing of a card.")
    options.check_device(device)
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    names = None if methods is None else split_names(methods)
    clock = time.process_time if busy else time.perf_counter
    if graphs is not None:
        found, table = costs_of_graphs(parse_counts("--graphs", graphs), names, rounds or 3, clock, device)
    elif throughput:
        found, table = rate(data, shape, names or ["gi", "lrp"], device, clock, rounds or 5)
    elif evaluation:
        found, table = gain(data, limit, names, split_names(measures), rounds or 3, device)
    else:
        saving = Saving(keep, options.count_of(recompute), memory_limit)
        beside = parse_peers(peers, names)
        lengths = parse_counts("--tokens", tokens)
        subject = Subject(shape or "bert-base", layers, batch, lengths, dtype, device, replay, beside, attention)
        if mixed is not None:
            found, table = costs_of_mixed_lengths(subject, names or ["lrp"], mixed)
        else:
            found, table = costs(subject, names, rounds or 7, clock, saving)
    typer.echo(json.dumps(found) if as_json else format_table(table, plain))


def refuse_what_has_no_place(context: typer.Context, mode: str) -> None:
    """An option of another benchmark would be read and not heeded."""
    for name, places in PLACES.items():
        source = context.get_parameter_source(name)
        if mode not in places and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{name.replace('_', '-')} has a meaning only with {' or '.join(places)}.")


def parse_counts(option: str, text: str) -> list[int]:
    found = split_names(text)
    if not found or not all(map(options.is_all_digits, found)):
        raise UsageError(f"{option} takes numbers above 0, separated by commas, not {text!r}.")
    return [options.parse_count(option, one) for one in found]


def parse_peers(peers: str | None, methods: list[str] | None) -> list[str] | None:
    """Tools by name; None is all that are installed."""
    if peers is None:
        return None if methods is None else []
    return [] if peers == "none" else split_names(peers)


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is timed: a model by the name of its shape, and the sizes of what it reads; which tools beside."""

    shape: str
    layers: int | None
    batch: int | None
    lengths: list[int]
    dtype: str
    device: str
    replay: bool = False
    peers: list[str] | None = None
    attention: str | None = None

    def model(self) -> tuple[Any, Any]:
        """Its shape, and the model itself with the attention that was asked for."""
        from headwater.engine.model import DTYPES
        from headwater.errors import UnknownName
        from headwater_experiments.bench.shapes import find_shape

        if self.dtype not in DTYPES:
            raise UnknownName("dtype", self.dtype, DTYPES)
        if self.attention not in (None, *ATTENTION):
            raise UnknownName("attention", self.attention, ATTENTION)
        shape = find_shape(self.shape).with_layers(self.layers)
        model = shape.build(self.device, DTYPES[self.dtype])
        if self.attention is not None:
            from headwater.api.fast_attention import with_attention

            with_attention(model, self.attention)
        return shape, model


@dataclasses.dataclass(frozen=True)
class Saving:
    """How methods keep what their backward pass needs. A limit is looked at once, before anything is timed."""

    keep: str = "device"
    recompute: int | str | None = None
    limit: str | None = None

    def jobs(self, model: Any, inputs: Any, methods: Sequence[str], dtype: str) -> dict[str, Callable[[], Any]]:
        """Explanations by name, to be timed beside the forward pass; none where nothing is to be saved."""
        from headwater.engine.options import Request, read_options
        from headwater.engine.session import answer_request
        from headwater.memory.estimate import MemoryTrial, parse_bytes
        from headwater.memory.policy import UNLIMITED

        options = read_options(dtype=dtype, keep=self.keep, recompute=self.recompute)
        found: dict[str, Callable[[], Any]] = {}
        if options.memory == UNLIMITED and self.limit is None:
            return {}
        for name in methods:
            ask = Request(model, inputs, dataclasses.replace(options, method=name))
            if self.limit is not None:
                fits = MemoryTrial.of(ask).fit(parse_bytes(self.limit))
                ask = dataclasses.replace(ask, options=ask.options.with_memory(fits.room))
                say(f"{name}, estimated: {fits}")
            found[name] = functools.partial(answer_request, ask)
        return found


def costs(
    asked: Subject, methods: list[str] | None, rounds: int, clock: Callable[[], float], saving: Saving
) -> tuple[Any, Table]:
    """Each method's time over that of the forward pass, with random weights; for JSON and as a table."""
    from headwater.evaluation.cost import measure_costs
    from headwater_experiments.bench.cost import GIB, PRESETS, cost_table, fastest_attention, measure_replays
    from headwater_experiments.bench.peers import check_tools, peers

    check_tools(asked.peers or [])
    shape, model = asked.model()
    batch = asked.batch or (1 if shape.decoder else 8)
    size = sum(weight.nbytes for weight in model.parameters())
    say(f"{rounds} {NOISE}")
    found = []
    trial = shape.inputs(batch, min(max(asked.lengths), 8192), asked.device)
    with waiting("timing explanations"), fastest_attention(model, trial) as kernel:
        for tokens in asked.lengths:
            inputs = shape.inputs(batch, tokens, asked.device)
            others = dict(peers(model, inputs, asked.peers, say))
            chosen = methods or PRESETS
            saved = saving.jobs(model, inputs, chosen, asked.dtype)
            jobs = {**saved, **others}
            found += measure_costs(
                model, inputs, () if saved else chosen, rounds, others=jobs, clock=clock, dtype=asked.dtype
            )
            if asked.replay:
                replayed, reasons = measure_replays(model, inputs, chosen, rounds, clock, dtype=asked.dtype)
                found += replayed
                for why in reasons:
                    say(f"{tokens} tokens were not replayed by {why}")
    model_in_words = f"{shape.name}, {shape.layers} layers, {size / GIB:.2f} GiB, {asked.dtype}, {asked.device}"
    chosen_attention = f"{asked.attention} attention" if asked.attention else kernel
    about = (model_in_words, f"batches of {batch}", f"{rounds} rounds", chosen_attention, clock_name(clock))
    title = ", ".join(filter(None, about))
    return [dataclasses.asdict(cost) for cost in found], cost_table(found, title)


def costs_of_mixed_lengths(asked: Subject, methods: list[str], count: int) -> tuple[Any, Table]:
    """Each method's time over that of the forward pass where no length comes twice; for JSON and as a table."""
    from headwater.api.explain import explain
    from headwater.evaluation.cost import run_forward
    from headwater_experiments.bench.cost import GIB, cost_table, fastest_attention, mixed_costs, mixed_lengths
    from headwater_experiments.bench.peers import check_tools, peers

    check_tools(asked.peers or [])
    shape, model = asked.model()
    batch = asked.batch or (1 if shape.decoder else 8)
    size = sum(weight.nbytes for weight in model.parameters())
    lengths = mixed_lengths(min(asked.lengths), max(asked.lengths), count)

    def jobs(tokens: int) -> dict[str, Any]:
        inputs = shape.inputs(batch, tokens, asked.device, seed=tokens)
        found: dict[str, Any] = {"forward": functools.partial(run_forward, model, inputs)}
        for name in methods:
            found[name] = functools.partial(explain, model, inputs, method=name, dtype=asked.dtype)
            found[f"{name}, plans=False"] = functools.partial(found[name], plans=False)
        return {**found, **dict(peers(model, inputs, asked.peers))}

    on_card = asked.device != "cpu"
    with (
        waiting("timing explanations"),
        fastest_attention(model, shape.inputs(batch, lengths[1], asked.device)) as kernel,
    ):
        found = mixed_costs(jobs, lengths, on_card)
    about = (
        f"{shape.name}, {shape.layers} layers, {size / GIB:.2f} GiB, {asked.dtype}, {asked.device}",
        f"batches of {batch}",
        f"{count} lengths from {lengths[0]} to {lengths[1]} tokens, none twice",
        f"{asked.attention} attention" if asked.attention else kernel,
    )
    return [dataclasses.asdict(cost) for cost in found], cost_table(found, ", ".join(filter(None, about)))


def costs_of_graphs(
    sizes: list[int], methods: list[str] | None, rounds: int, clock: Callable[[], float], device: str
) -> tuple[Any, Table]:
    """Seconds and memory of each method by the number of nodes, with random weights; for JSON and as a table."""
    from headwater_experiments.bench.graph_cost import METHODS, NEIGHBOURS, measure_graphs, table

    if min(sizes) <= NEIGHBOURS:
        raise UsageError(f"--graphs takes numbers above {NEIGHBOURS}: a node has {NEIGHBOURS} neighbours.")
    say(f"{rounds} {NOISE}")
    with waiting("timing explanations of graphs"):
        found = measure_graphs(sizes, methods or METHODS, rounds, clock, device)
    about = (f"Graphormer, {device}", f"{NEIGHBOURS} neighbours a node", f"{rounds} rounds", clock_name(clock))
    return [dataclasses.asdict(cost) for cost in found], table(found, ", ".join(filter(None, about)))


def clock_name(clock: Callable[[], float]) -> str:
    return "processor time" if clock is time.process_time else ""


def rate(
    data: Path | None, shape: str | None, methods: list[str], device: str, clock: Callable[[], float], rounds: int
) -> tuple[Any, Table]:
    """Texts a second of the bundled model, or of another shape that reads them in the same tokens."""
    model, tokenizer = load_chosen_model(None, options.LoadOptions(device=device))
    from headwater_experiments.bench.shapes import find_shape
    from headwater_experiments.bench.speed import draw_rows
    from headwater_experiments.bench.throughput import BATCH, measure_throughput, throughput_table
    from headwater_experiments.data import load

    texts = [text for text, _ in draw_rows(model, tokenizer, load("sst2", "dev") if data is None else data)]
    if shape is not None:
        model = find_shape(shape).build(device)
    with waiting(f"explaining {len(texts)} texts"):
        found = measure_throughput(model, tokenizer, texts, methods, clock=clock, rounds=rounds)
    name = "bundled model" if shape is None else shape
    about = (f"{len(texts)} texts, {name}, {device}, batches of {BATCH}", f"{rounds} rounds", clock_name(clock))
    title = ", ".join(filter(None, about))
    return [dataclasses.asdict(one) for one in found], throughput_table(found, title)


def gain(
    data: Path | None, limit: int, methods: list[str] | None, measures: list[str], rounds: int, device: str
) -> tuple[Any, Table]:
    """The evaluation's time under that of a loop over single sentences, for the same curves of the bundled model."""
    model, tokenizer = load_chosen_model(None, options.LoadOptions(device=device))
    from headwater_experiments.bench.speed import METHODS, draw_rows, measure_speed, speed_table
    from headwater_experiments.data import load

    rows = draw_rows(model, tokenizer, load("sst2", "dev") if data is None else data, limit)
    say(f"{rounds} {NOISE}")
    with waiting(f"timing the evaluation of {len(rows)} texts"):
        found = measure_speed(model, tokenizer, rows, methods or METHODS, measures, rounds)
    return dataclasses.asdict(found), speed_table(found)


def format_table(table: Table, plain: bool) -> str:
    """Markdown, to be pasted; or columns of plain text."""
    from headwater.viz.plain import align_columns
    from headwater.viz.tables import markdown

    return "\n".join([table.title, "", *(align_columns(table) if plain else markdown(table))])
