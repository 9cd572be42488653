"""`python -m headwater_experiments.inside.cost`: what `inside=` takes on top of the explanation, in seconds and memory.

A model by its measures, with random weights, one text of random tokens. The forward pass, the explanation and the
explanation with `inside=` take turns; memory is the most that is held above the model. How far the cuts are from
closing stands beside them, in parts of what a cut adds up. On a card:

python -m headwater_experiments.inside.cost --shape llama-8b --tokens 8192 --device cuda --dtype bfloat16
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from headwater.api.explain import explain
from headwater.cli.screen import say
from headwater.engine.model import DTYPES
from headwater.evaluation.cost import Job, measure_costs
from headwater.results.explanation import Explanation
from headwater.viz.tables import markdown
from headwater_experiments.bench.cost import GIB, cost_table, fastest_attention
from headwater_experiments.bench.shapes import SHAPES, find_shape


def name_jobs(
    model: nn.Module, inputs: dict[str, Any], methods: Sequence[str], inside: list[str], dtype: str
) -> dict[str, Job]:
    """Each method without `inside=` and with it."""
    found: dict[str, Job] = {}
    for method in methods:
        plain = partial(explain, model, inputs, method=method, dtype=dtype)
        found[method] = plain
        found[f"{method}, inside={','.join(inside)}"] = partial(plain, inside=inside)
    return found


def worst_cut(explanation: Explanation) -> float:
    """Of all cuts the largest error, in parts of the cut's absolute sum."""
    assert explanation.inside is not None
    cuts = [group.ledger for group in explanation.inside.groups if group.ledger is not None]
    return max(abs(cut.unaccounted) / cut.size for cut in cuts)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-small")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--inside", default="heads,layers", help="parts, separated by commas")
    parser.add_argument("--methods", nargs="+", default=["lrp", "lrp-language"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    given = parser.parse_args(words)
    shape = find_shape(given.shape).with_layers(given.layers)
    model = shape.build(given.device, DTYPES[given.dtype])
    size = sum(weight.nbytes for weight in model.parameters())
    inputs = shape.inputs(1, given.tokens, given.device)
    jobs = name_jobs(model, inputs, given.methods, given.inside.split(","), given.dtype)
    say(f"the model takes {size / GIB:.2f} GiB; the median of {given.rounds} rounds, after one that is not counted")
    with fastest_attention(model, inputs) as kernel:
        costs = measure_costs(model, inputs, (), given.rounds, others=jobs)
        cuts = [worst_cut(explain_once(jobs[one.name])) for one in costs if ", inside=" in one.name and one.seconds > 0]
    title = ", ".join(filter(None, (shape.name, f"{shape.layers} layers", given.dtype, kernel)))
    table = cost_table(costs, title)
    sys.stdout.write("\n".join((table.title, "", *markdown(table), "")))
    sys.stdout.write(f"worst cut, in the order of the table: {', '.join(f'{one:.1e}' for one in cuts)}\n")


def explain_once(job: Job) -> Explanation:
    made = job()
    found: Explanation = made[0] if isinstance(made, list) else made
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
