"""What every rule for attention owes, whatever it does with queries and keys."""

from __future__ import annotations

from tiny import CASTS, arguments, tiny
from torch.testing import assert_close

import headwater as hw
from headwater.results.explanation import Explanation

CASTS_SCORES = ("modernbert", "bloom")  # rotations, or the softmax, in float32


def closed(name: str, method: str) -> list[Explanation]:
    """Explanations whose ledger closes as well as the model computes."""
    found = hw.explain(tiny(name), arguments(name), method=method)
    for e in found:
        assert e.ledger.dtype == ("float32" if name in (*CASTS, *CASTS_SCORES) else "float64")
        assert e.ledger.error <= (1e-10 if e.ledger.dtype == "float64" else 1e-5)
    return found


def fused_and_written(name: str, method: str) -> list[tuple[Explanation, Explanation]]:
    """The same texts through fused attention and through attention that is written out: relevance is the same."""
    model = tiny(name)
    before = model.config._attn_implementation
    found = []
    try:
        for how in ("sdpa", "eager"):
            model.set_attn_implementation(how)
            found.append(hw.explain(model, arguments(name), method=method))
    finally:
        model.set_attn_implementation(before)
    pairs = list(zip(*found, strict=True))
    for fused, written in pairs:
        # Written out, Llama casts its softmax to float32.
        assert_close(fused.relevance, written.relevance, rtol=1e-4, atol=1e-5)
    return pairs
