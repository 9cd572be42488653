"""Headwater traces a transformer's prediction upstream to its sources, and loses nothing on the way."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from . import moved
from .version import __version__

if TYPE_CHECKING:
    from .api.answers import AnswerExplainer as AnswerExplainer
    from .api.audit.trace import audit as audit
    from .api.circuit import circuit as circuit
    from .api.compare import compare as compare
    from .api.difference import difference as difference
    from .api.entities import explain_entities as explain_entities
    from .api.estimate import estimate as estimate
    from .api.explain import explain as explain
    from .api.explain_answer import explain_answer as explain_answer
    from .api.explain_generation import explain_generation as explain_generation
    from .api.fast_attention import fast_attention as fast_attention
    from .api.patch import patch as patch
    from .api.patch import patch_each as patch_each
    from .api.rank import rank as rank
    from .api.sessions import ExplainSession as ExplainSession
    from .api.sessions import session as session
    from .api.similarity import explain_similarity as explain_similarity
    from .bias.audit import audit_bias as audit_bias
    from .bias.results import BiasAudit as BiasAudit
    from .evaluation.results import Evaluation as Evaluation
    from .evaluation.run import evaluate as evaluate
    from .inputs.targets import Span as Span
    from .inputs.targets import Token as Token
    from .jobs.running import run as run
    from .memory.cuda_graphs import recorded as recorded
    from .memory.estimate import Estimate as Estimate
    from .models.loading import load as load
    from .results.answer import SpanExplanation as SpanExplanation
    from .results.answer_report import AnswerReport as AnswerReport
    from .results.audit import Audit as Audit
    from .results.circuit import Circuit as Circuit
    from .results.comparison import Comparison as Comparison
    from .results.explanation import Entity as Entity
    from .results.explanation import Explanation as Explanation
    from .results.generation import Generation as Generation
    from .results.inside import Inside as Inside
    from .results.ledger import Ledger as Ledger
    from .results.patching import PatchEffect as PatchEffect
    from .results.ranking import Ranking as Ranking
    from .results.similarity import Similarity as Similarity
    from .results.who_told import WhoTold as WhoTold
    from .store.runs import StoredRun as StoredRun
    from .store.runs import open_run as open_run

moved.install()
logging.getLogger(__name__).addHandler(logging.NullHandler())  # quiet, until somebody asks for it

_PUBLIC = {
    "explain": "api.explain",
    "fast_attention": "api.fast_attention",
    "audit": "api.audit.trace",
    "audit_bias": "bias.audit",
    "BiasAudit": "bias.results",
    "circuit": "api.circuit",
    "Circuit": "results.circuit",
    "compare": "api.compare",
    "patch": "api.patch",
    "patch_each": "api.patch",
    "difference": "api.difference",
    "PatchEffect": "results.patching",
    "Inside": "results.inside",
    "evaluate": "evaluation.run",
    "Evaluation": "evaluation.results",
    "Comparison": "results.comparison",
    "Explanation": "results.explanation",
    "Ledger": "results.ledger",
    "Audit": "results.audit",
    "explain_generation": "api.explain_generation",
    "explain_answer": "api.explain_answer",
    "AnswerExplainer": "api.answers",
    "AnswerReport": "results.answer_report",
    "WhoTold": "results.who_told",
    "SpanExplanation": "results.answer",
    "Generation": "results.generation",
    "session": "api.sessions",
    "ExplainSession": "api.sessions",
    "estimate": "api.estimate",
    "Estimate": "memory.estimate",
    "recorded": "memory.cuda_graphs",
    "Token": "inputs.targets",
    "Span": "inputs.targets",
    "explain_entities": "api.entities",
    "explain_similarity": "api.similarity",
    "Similarity": "results.similarity",
    "rank": "api.rank",
    "Ranking": "results.ranking",
    "Entity": "results.explanation",
    "load": "models.loading",
    "run": "jobs.running",
    "open_run": "store.runs",
    "StoredRun": "store.runs",
}

__all__ = [
    "AnswerExplainer",
    "Audit",
    "BiasAudit",
    "Circuit",
    "Comparison",
    "Entity",
    "Estimate",
    "Evaluation",
    "ExplainSession",
    "Explanation",
    "Generation",
    "Inside",
    "Ledger",
    "PatchEffect",
    "Ranking",
    "Similarity",
    "Span",
    "SpanExplanation",
    "StoredRun",
    "Token",
    "__version__",
    "audit",
    "audit_bias",
    "circuit",
    "compare",
    "difference",
    "estimate",
    "evaluate",
    "explain",
    "explain_answer",
    "explain_entities",
    "explain_generation",
    "explain_similarity",
    "fast_attention",
    "load",
    "open_run",
    "patch",
    "patch_each",
    "rank",
    "recorded",
    "run",
    "session",
]


# Who draws and writes the results of a package, loaded when one is first shown.
_DRAWN_BY = {"evaluation": "evaluation.notebook", "bias": "bias.saving"}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that `import headwater` stays light."""
    if name in _PUBLIC:
        value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
        drawer = _DRAWN_BY.get(_PUBLIC[name].partition(".")[0], "viz.forms")
        importlib.import_module(".results.display", __name__).register_drawer(f"{__name__}.{drawer}")
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
