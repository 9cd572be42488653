"""What a worker needs to know of a job, as one value that can be handed to another process or another machine."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..engine.model import where_it_is
from ..errors import JobStopped, ModelError, UnknownName
from ..evaluation.job import keep_freed_memory
from ..evaluation.provenance import versions
from .answer_rows import AnswerRows
from .explaining import Explainer
from .inside_rows import InsideRows
from .reading.sources import InputFiles
from .settings import JobSettings
from .similar_rows import SimilarRows

TOLD = ("headwater", "torch", "transformers")


@dataclass(frozen=True)
class Payload:
    """`model` is on the CPU, where it can be handed over."""

    model: nn.Module
    tokenizer: Any
    settings: JobSettings
    sources: InputFiles

    def pack(self) -> bytes:
        """With the versions it was made by: pickles of one are not always read by another, nor are numbers equal."""
        try:
            inner = pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ModelError(f"the model cannot be handed to a worker process: {error}.") from error
        return pickle.dumps({"versions": relevant_versions(), "payload": inner}, protocol=pickle.HIGHEST_PROTOCOL)

    def open(self, model: nn.Module) -> Explainer:
        """Who explains its rows: texts, texts with parts of the model, questions about documents, or pairs of texts."""
        settings = self.settings
        if settings.asks:
            kind: type[Explainer] = AnswerRows
        elif settings.similar is not None:
            kind = SimilarRows
        else:
            kind = Explainer if settings.inside is None else InsideRows
        return kind(model, self.tokenizer, self.settings, self.sources)

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any, settings: JobSettings, sources: InputFiles) -> Payload:
        if where_it_is(model)[0].type != "cpu":
            from copy import deepcopy

            model = deepcopy(model).cpu()
        return cls(model, tokenizer, settings, sources)


def relevant_versions() -> dict[str, str]:
    found = versions()
    return {name: found[name] for name in TOLD if name in found}


def unpack_payload(content: bytes, device: str) -> Explainer:
    """In the process that explains: its threads set, its model on its device."""
    outer = pickle.loads(content)
    if outer["versions"] != relevant_versions():
        raise JobStopped(f"this worker has {relevant_versions()}, the job was started with {outer['versions']}.")
    payload: Payload = pickle.loads(outer["payload"])
    torch.set_num_threads(payload.settings.threads)
    keep_freed_memory()
    try:
        return payload.open(payload.model.to(device))
    except UnknownName as error:
        raise JobStopped(
            f"a worker lacks what the job was started with: {error} Workers know what installed packages add by entry "
            "points; on a cluster, install the plug-in on every node."
        ) from error
