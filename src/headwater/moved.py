"""Modules that have moved: their old names work for one version more, with a warning that names the new one.

A finder on `sys.meta_path` knows them. It comes first, for an update may leave an empty directory behind.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .deprecations import MODULE_NAMES
from .errors import MissingExtra

EXPERIMENTS = "headwater_experiments"
MOVED = {
    "answers": "headwater_experiments.answers",
    "attention": "api.fast_attention",
    "audits": "api.audit.trace",
    "cli.answers": "headwater_experiments.cli.answers",
    "cli.bench": "headwater_experiments.cli.bench",
    "cli.bundled": "headwater_experiments.cli.bundled",
    "cli.image": "headwater_experiments.cli.image",
    "cli.paper": "headwater_experiments.cli.paper",
    "cli.zoo": "headwater_experiments.cli.zoo",
    "comparison": "api.compare",
    "conversation": "inputs.prompt",
    "data": "headwater_experiments.data",
    "digits": "headwater_experiments.digits",
    "explanation": "results.explanation",
    "flows": "results.audit",
    "generating": "api.generate",
    "generation": "results.generation",
    "heads": "api.audit.heads",
    "inputs.own": "inputs.custom",
    "inputs.words": "results.words",
    "jobs.trouble": "jobs.failures",
    "kernels.reached": "kernels.sparse_rows",
    "ledger": "results.ledger",
    "measures": "evaluation",
    "measures.evaluation": "evaluation.run",
    "measures.labelled": "evaluation.sources",
    "measures.lxts": "headwater_experiments.bench.lxt_adapter",
    "measures.memory": "evaluation.peak_memory",
    "measures.nameless": "evaluation.model_file",
    "measures.peers": "headwater_experiments.bench.peers",
    "measures.protocol": "evaluation.protocols",
    "measures.saving": "evaluation.files",
    "measures.shapes": "headwater_experiments.bench.shapes",
    "measures.speed": "headwater_experiments.bench.speed",
    "measures.throughput": "headwater_experiments.bench.throughput",
    "methods.captums": "methods.captum",
    "methods.chance": "methods.random",
    "methods.checks": "engine.checks",
    "methods.compiled": "engine.compiled",
    "methods.elsewhere": "memory.backends",
    "methods.keeping": "memory.saved_tensors",
    "methods.metering": "memory.meter",
    "methods.passes": "engine.forward",
    "methods.perturbed": "methods.perturbation",
    "methods.propagation": "engine.propagate",
    "methods.recomputing": "memory.recompute",
    "methods.recording": "memory.cuda_graphs",
    "methods.room": "memory.policy",
    "methods.sharing": "engine.sharing",
    "methods.shelf": "memory.offload",
    "methods.smooth": "methods.smoothgrad",
    "models.accuracy": "headwater_experiments.training.accuracy",
    "models.augmentation": "headwater_experiments.training.augmentation",
    "models.distilbert": "headwater_experiments.models.distilbert",
    "models.distillation": "headwater_experiments.training.distillation",
    "models.fitting": "headwater_experiments.training.fitting",
    "models.packing": "headwater_experiments.models.packing",
    "models.segmentation": "headwater_experiments.models.segmentation",
    "models.student": "headwater_experiments.training.student",
    "models.superpixels": "headwater_experiments.models.superpixels",
    "models.text_transformer": "headwater_experiments.models.text_transformer",
    "models.training": "headwater_experiments.training.bundled",
    "paper": "headwater_experiments.paper",
    "picture": "results.picture",
    "prompts": "headwater_experiments.prompts",
    "relevance": "engine.attribution",
    "rules.asking": "rules.attention.query",
    "rules.capped": "rules.attention.capped",
    "rules.carriers": "rules.shape_ops",
    "rules.following": "rules.attention.weights",
    "rules.waiting": "rules.saved",
    "samples": "inputs.protocol",
    "taps": "api.audit.watch",
    "targets": "inputs.targets",
    "texts": "engine.texts",
    "web.answering": "web.jobs",
    "web.keeping": "web.state",
    "web.masking": "web.reports",
    "web.speaking": "web.generation",
    "web.studio": "web.state",
    "zoo": "headwater_experiments.zoo",
}


def new_name(name: str) -> str | None:
    """Where a module of this package is now, or None for one that has not moved."""
    parts = name.split(".")[1:]
    for count in range(len(parts), 0, -1):
        new = MOVED.get(".".join(parts[:count]))
        if new is not None:
            rest = parts[count:]
            return ".".join([new] if new.startswith(EXPERIMENTS) else [__package__ or "headwater", new]) + "".join(
                f".{part}" for part in rest
            )
    return None


class MovedFinder(MetaPathFinder):
    """Finds modules by their old names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != __package__:
            return None
        new = new_name(name)
        return None if new is None else ModuleSpec(name, MovedLoader(new), is_package=True)


class MovedLoader(Loader):
    """Gives a module all that the module of the new name has."""

    def __init__(self, new: str) -> None:
        self.new = new

    def exec_module(self, module: ModuleType) -> None:
        try:
            found = importlib.import_module(self.new)
        except ModuleNotFoundError as error:
            if error.name != EXPERIMENTS:
                raise
            raise MissingExtra(
                f"{module.__name__}, which is now {self.new},", "all", "headwater-experiments"
            ) from error
        MODULE_NAMES.warn(f"{module.__name__} is now {self.new}.")
        module.__dict__.update({name: value for name, value in vars(found).items() if not name.startswith("__")})


def install() -> None:
    """Once, however often the package is imported."""
    if not any(isinstance(finder, MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedFinder())
