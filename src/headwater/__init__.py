"""Headwater traces a transformer's prediction upstream to its sources, and loses nothing on the way."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .api import explain as explain
    from .attention import fast_attention as fast_attention
    from .audits import audit as audit
    from .bias.audit import audit_bias as audit_bias
    from .bias.results import BiasAudit as BiasAudit
    from .comparison import Comparison as Comparison
    from .comparison import compare as compare
    from .explanation import Explanation as Explanation
    from .flows import Audit as Audit
    from .generating import explain_generation as explain_generation
    from .generation import Generation as Generation
    from .jobs.running import run as run
    from .ledger import Ledger as Ledger
    from .measures.evaluation import evaluate as evaluate
    from .measures.results import Evaluation as Evaluation
    from .memory import Estimate as Estimate
    from .memory import estimate as estimate
    from .methods.recording import recorded as recorded
    from .store.runs import StoredRun as StoredRun
    from .store.runs import open_run as open_run
    from .targets import Span as Span
    from .targets import Token as Token

_PUBLIC = {
    "explain": "api",
    "fast_attention": "attention",
    "audit": "audits",
    "audit_bias": "bias.audit",
    "BiasAudit": "bias.results",
    "compare": "comparison",
    "evaluate": "measures.evaluation",
    "Evaluation": "measures.results",
    "Comparison": "comparison",
    "Explanation": "explanation",
    "Ledger": "ledger",
    "Audit": "flows",
    "explain_generation": "generating",
    "Generation": "generation",
    "estimate": "memory",
    "Estimate": "memory",
    "recorded": "methods.recording",
    "Token": "targets",
    "Span": "targets",
    "run": "jobs.running",
    "open_run": "store.runs",
    "StoredRun": "store.runs",
}

__all__ = [
    "Audit",
    "BiasAudit",
    "Comparison",
    "Estimate",
    "Evaluation",
    "Explanation",
    "Generation",
    "Ledger",
    "Span",
    "StoredRun",
    "Token",
    "__version__",
    "audit",
    "audit_bias",
    "compare",
    "estimate",
    "evaluate",
    "explain",
    "explain_generation",
    "fast_attention",
    "open_run",
    "recorded",
    "run",
]


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that `import headwater` stays light."""
    if name in _PUBLIC:
        value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
