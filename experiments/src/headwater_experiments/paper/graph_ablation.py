"""MNIST superpixels: which condition of the training decides the order of the methods, and which LayerNorm lowers GI.

Small trainings differ in one condition at a time. Each is measured on the same test digits, by the paper's protocol.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from headwater.errors import UnknownName
from headwater.evaluation.results import Evaluation
from headwater.evaluation.run import evaluate
from headwater.models.loading import load
from headwater.viz.tables import markdown_rows

from . import graphs
from .checkpoints import find, seeds
from .graph_data import ensure_arrays, unseen
from .graph_trials import CHUNK, reading
from .tables import against_attention, format_difference, format_number, method_title, write_table
from .trainings import pooled_score, same_order
from .trials import Run, Trial

DATASET = "mnist"
METHODS = ("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)")
LIMIT, EPOCHS, ROWS = 6000, 6, 200
PLAIN = graphs.graph_recipe_for(DATASET, "tuned", epochs=EPOCHS, average=0.0, bent=False)
CONDITIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plain": ("6 epochs, the rate falls from 1e-3, nothing bent, no average", {}),
    "bent": ("digits bent at random", {"bent": True}),
    "averaged": ("weights averaged over 4 % of the steps, as in the tuned training", {"average": 0.95}),
    "constant": ("the rate stays at 1e-3", {"falling": False}),
    "slow": ("the rate falls from 2e-4", {"rate": 2e-4}),
    "long": ("12 epochs", {"epochs": 12}),
    "linear": ("grey and place enter through a linear layer, without sines", {"number_hidden_size": 0}),
    "post": ("LayerNorm after the sums of a block, not before its parts", {"post_norm": True}),
}
NORMS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "first block, before attention": ("layers.0.attention_norm",),
    "first block, before the feed-forward layers": ("layers.0.norm",),
    "second block, before attention": ("layers.1.attention_norm",),
    "second block, before the feed-forward layers": ("layers.1.norm",),
    "last": ("norm",),
    "both before attention": ("layers.0.attention_norm", "layers.1.attention_norm"),
}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ablation:
    """One condition: the accuracy of each training on all test digits, and what was measured of them."""

    name: str
    tests: tuple[float, ...]
    trial: Trial


def ablate(
    arrays: Path,
    out: Path,
    *,
    conditions: Sequence[str] = tuple(CONDITIONS),
    first: int = 2,
    limit: int = LIMIT,
    rows: int = ROWS,
    device: str = "cpu",
    tell: Tell = lambda _: None,
) -> Iterator[Ablation]:
    """Train each condition `first` times on `limit` digits, and measure it on `rows` test digits.

    What lies finished in `out` is neither trained nor measured again.
    """
    for name in conditions:
        if name not in CONDITIONS:
            raise UnknownName("condition", name, CONDITIONS)
    ensure_arrays(DATASET, arrays)
    digits = unseen(DATASET, {}, rows)
    for name in conditions:
        runs, tests = [], []
        for seed in range(first):
            trained = train_one(name, seed, arrays, out, limit, device)
            tell(f"{name}, seed {seed}: test accuracy {trained.test:.1%}")
            found = measure(Path(trained.out), digits, METHODS, out / name / f"measured-{seed}", device)
            runs.append(Run(seed, found, None))
            tests.append(trained.test)
        yield Ablation(name, tuple(tests), Trial(DATASET, name, tuple(runs)))


def train_one(name: str, seed: int, arrays: Path, out: Path, limit: int, device: str) -> graphs.Trained:
    """The training of a condition, or what an earlier one of the same recipe left."""
    recipe = graphs.change_recipe(PLAIN, **CONDITIONS[name][1])
    asked = {"recipe": asdict(recipe), "limit": limit}
    kept = out / name / f"report-{seed}.json"
    if kept.is_file():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["asked"] == asked:
            return graphs.Trained(**found["run"])
    (run,) = graphs.train_mnist(arrays, out / name, seeds=(seed,), device=device, recipe=recipe, limit=limit).runs
    kept.write_text(json.dumps({"asked": asked, "run": asdict(run)}, indent=2) + "\n", encoding="utf-8")
    return run


def measure(path: Path, digits: Sequence[Any], methods: Sequence[str], out: Path, device: str) -> Evaluation:
    model, _ = load(path)
    return measure_model(model, digits, methods, device, out)


def measure_model(
    model: nn.Module, digits: Sequence[Any], methods: Sequence[str], device: str, out: Path | None = None
) -> Evaluation:
    options: dict[str, Any] = {"runtime": False, "seed": 0, "chunk_size": CHUNK, "device": device}
    return evaluate(model, digits, methods=methods, protocol=reading("induced"), out=out, **options)


def table(found: Sequence[Ablation]) -> str:
    """A row for each condition: methods in both measures, the lead of LRP(AH+LN), the order against the paper's."""
    lines = []
    for measure_name, label in (("auac", "AUAC, higher is better"), ("aumse", "AU-MSE, lower is better")):
        head = ["condition", "trainings", "test accuracy", *map(method_title, METHODS)]
        head += ["LRP(AH+LN) − best of attention", "LRP(AH+LN) − GI", "order as in the paper"]
        lines += [f"{label}:", "", *markdown_rows(head, [row(one, measure_name) for one in found]), ""]
    told = "; ".join(f"{one.name}: {CONDITIONS[one.name][0]}" for one in found)
    return "\n".join([*lines, f"{told}.", ""])


def row(one: Ablation, measure_name: str) -> list[str]:
    trial, digits = one.trial, 3 if measure_name == "auac" else 2
    values = [format_number(pooled_score(trial.mains, m, measure_name).value, digits) for m in METHODS]
    order = same_order(trial.mains, DATASET, measure_name)
    assert order is not None
    each = "" if order.trainings is None else f"<br><sub>{' '.join(orders(trial, measure_name))}</sub>"
    tests = f"{sum(one.tests) / len(one.tests):.1%}"
    cells = [one.name, str(len(one.tests)), tests, *values, against_attention(trial, measure_name)]
    return [*cells, format_difference(trial, "lrp(ah+ln)", "gi", measure_name), f"{order.value:.2f}{each}"]


def orders(trial: Trial, measure_name: str) -> list[str]:
    """The order against the paper's in each training alone."""
    found = [same_order([main], DATASET, measure_name) for main in trial.mains]
    return [f"{one.value:.2f}" for one in found if one is not None]


class ConstantScale(nn.LayerNorm):
    """A LayerNorm whose normaliser is held constant: the LN-rule in one place. Its output is that of LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + self.eps).rsqrt().detach()
        return centred * scale * self.weight + self.bias


def hold_normalisers(model: nn.Module, names: Sequence[str]) -> nn.Module:
    """A copy of the model in which the LayerNorms of these names have a constant normaliser."""
    held = copy.deepcopy(model)
    for name in names:
        old = held.get_submodule(name)
        assert isinstance(old, nn.LayerNorm)
        new = ConstantScale(old.normalized_shape, old.eps)
        new.load_state_dict(old.state_dict())
        held.set_submodule(name, new.to(old.weight.device).train(old.training))
    return held


@dataclass(frozen=True)
class Held:
    """GI of several trainings with the normalisers of some LayerNorms held constant."""

    name: str
    mains: tuple[Evaluation, ...]


def hold_each(kind: str, *, rows: int = ROWS, device: str = "cpu", tell: Tell = lambda _: None) -> Iterator[Held]:
    """GI of every trained model of a recipe, with no, one and two normalisers held constant; all: LRP(LN)."""
    digits = unseen(DATASET, {}, rows)
    models = [load(find(kind, DATASET, seed))[0] for seed in seeds(kind, DATASET)]
    for name, held in NORMS.items():
        mains = tuple(measure_model(hold_normalisers(model, held), digits, ["gi"], device) for model in models)
        tell(f"normaliser held: {name}")
        yield Held(name, mains)
    yield Held("all", tuple(measure_model(model, digits, ["lrp(ln)"], device) for model in models))


def held_table(found: Sequence[Held]) -> str:
    head = ["normaliser held constant", "AUAC of GI", "AU-MSE of GI"]
    rows = []
    for one in found:
        (method,) = one.mains[0].methods
        cells = [
            f"{format_number(pooled.value, digits)}<br><sub>{format_number(pooled.samples.low, digits)}–"
            f"{format_number(pooled.samples.high, digits)}</sub>"
            for pooled, digits in (
                (pooled_score(one.mains, method, "auac"), 3),
                (pooled_score(one.mains, method, "aumse"), 2),
            )
        ]
        rows.append([one.name, *cells])
    return write_table(head, rows)
