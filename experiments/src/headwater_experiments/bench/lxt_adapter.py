"""LXT's rules on the benchmark's own models: its patches, put on before every run and taken off after it.

LXT patches classes and modules of transformers for good, so that everything else in the process would run patched, too.
And its package does not import beside a transformers that is newer than it knows: the copy of a modeling file in it no
longer fits. Its patches themselves do. So they are loaded without the rest, and applied to the classes of today.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from headwater.errors import NotApplicable

PACKAGES = ("lxt.efficient", "lxt.efficient.models")
RULES = {"AttnLRP": "attnLRP", "CP-LRP": "cp_LRP"}  # by what the papers call them, the names of LXT's tables

MISSING = object()

Patch = Callable[[Any], bool]
Table = dict[Any, Patch]  # what is patched, a class or a module, and by what
Score = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Lxt:
    """One of LXT's sets of rules for one model."""

    model: nn.Module
    table: Table

    @classmethod
    def of(cls, model: nn.Module, rules: str) -> Lxt:
        kind = getattr(getattr(model, "config", None), "model_type", None)
        if kind not in TABLES:
            raise NotApplicable(
                f"no patches of lxt are known for {type(model).__name__}, only for {', '.join(TABLES)}."
            )
        return cls(model, TABLES[kind](RULES[rules]))

    def relevance(self, vectors: Tensor, score: Score) -> Tensor:
        """Gradient x input at the embeddings, as its documents have it: parameters need no gradients."""
        with without_gradients(self.model), apply_patches(self.table):
            (found,) = torch.autograd.grad(score(vectors).sum(), vectors)
        return (vectors * found).sum(-1).detach()


def llama_patches(rules: str) -> Table:
    """LXT's own table."""
    found: Table = getattr(load_alone("lxt.efficient.models.llama"), rules)
    return found


def bert_patches(rules: str) -> Table:
    """LXT's BERT is the modeling file of an older transformers with changes in it; here are its changes.

    Norms, activations (the pooler's tanh, too) and attention, as in its copy; its rule for attention is that of all its
    other models. CP-LRP differs in attention alone, as in its table for GPT-2.
    """
    from transformers.activations import GELUActivation
    from transformers.models.bert import modeling_bert

    lxt = load_alone("lxt.efficient.patches")
    activation = partial(lxt.patch_method, lxt.non_linear_forward, keep_original=True)
    return {
        nn.LayerNorm: partial(lxt.patch_method, lxt.layer_norm_forward),
        nn.Dropout: partial(lxt.patch_method, lxt.dropout_forward),
        GELUActivation: activation,
        nn.Tanh: activation,
        modeling_bert: {"attnLRP": lxt.patch_attention, "cp_LRP": lxt.patch_cp_attention}[rules],
    }


TABLES: dict[str, Callable[[str], Table]] = {"bert": bert_patches, "llama": llama_patches}


def load_alone(name: str) -> ModuleType:
    """A module of LXT without what stands before it in its packages. Nothing of it stays among the loaded modules."""
    before = set(sys.modules)
    try:
        for package in PACKAGES:
            sys.modules.setdefault(package, bare(package))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    finally:
        for new in {known for known in sys.modules if known.partition(".")[0] == "lxt"} - before:
            del sys.modules[new]


def bare(package: str) -> ModuleType:
    """A package that only says where its modules lie."""
    spec = find_spec("lxt")
    roots = [] if spec is None else list(spec.submodule_search_locations or [])
    module = ModuleType(package)
    module.__path__ = [str(Path(root, *package.split(".")[1:])) for root in roots]
    return module


@contextmanager
def apply_patches(table: Mapping[Any, Patch]) -> Iterator[None]:
    """What LXT patches is patched inside, and as it was afterwards."""
    with restore_names(*table), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for target, patch in table.items():
            with protect_attention(target):
                if not patch(target):
                    raise NotApplicable(f"lxt could not patch {target.__name__}.")
        yield


@contextmanager
def restore_names(*places: Any) -> Iterator[None]:
    """Classes and modules hold the same names for the same things afterwards."""
    before = [dict(vars(place)) for place in places]
    try:
        yield
    finally:
        for place, names in zip(places, before, strict=True):
            for name in vars(place).keys() - names.keys():
                delattr(place, name)
            for name, value in names.items():
                if vars(place).get(name, MISSING) is not value:
                    setattr(place, name, value)


@contextmanager
def protect_attention(target: Any) -> Iterator[None]:
    """The attention functions of one modeling file stay an object of transformers' own, and no other file's.

    LXT puts a dict in its place, which the newer transformers cannot ask for an implementation; or writes into the one
    that all models share.
    """
    shared = vars(target).get("ALL_ATTENTION_FUNCTIONS")
    if shared is None:
        yield
        return
    target.ALL_ATTENTION_FUNCTIONS = own(shared, shared)
    yield
    target.ALL_ATTENTION_FUNCTIONS = own(shared, target.ALL_ATTENTION_FUNCTIONS)


def own(shared: Any, functions: Mapping[str, Any]) -> Any:
    mine = type(shared)()
    mine.update(functions)
    return mine


@contextmanager
def without_gradients(model: nn.Module) -> Iterator[None]:
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_(True)
