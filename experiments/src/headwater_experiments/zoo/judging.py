"""The verdict on one entry: build it, predict plainly, explain, and compare the ledger with the plain prediction."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headwater.api.audit.trace import audit
from headwater.api.explain import explain
from headwater.errors import HeadwaterError
from headwater.inputs.batch import map_leaves
from headwater.results.explanation import Explanation

from .building import NotBuilt, Specimen, build
from .entries import Entry
from .results import Finding, unfinished_finding, versions

EXACT, CAST = 1e-9, 1e-5  # of the sum of the absolute lines: in float64, and where less is forced inside
SILENT = 1e-9  # less relevance of the inputs than this is none
SHOWN = 3  # leaking operations that are named

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Best:
    """The score that is explained: the largest output of the plain run, at the last position where there are several.

    Answer spans take the sum of the best start and the best end.
    """

    places: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, out: Any) -> Best:
        names = ("start_logits", "end_logits") if hasattr(out, "start_logits") else (logits_name(out),)
        return cls(tuple((name, best_place(getattr(out, name))) for name in names))

    def __call__(self, out: Any) -> Tensor:
        return sum((getattr(out, name)[place] for name, place in self.places), torch.zeros(())).reshape(1)


def logits_name(out: Any) -> str:
    for name in ("logits", "last_hidden_state", "prediction_logits", "question_answering_score"):
        if isinstance(getattr(out, name, None), Tensor):
            return name
    raise NotBuilt(f"the model gives {type(out).__name__}, without logits to explain")


def best_place(values: Tensor) -> tuple[int, ...]:
    """Where the largest finite value stands: of a row of classes anywhere, of rows at several positions in the last."""
    at = (0,) * (values.dim() - 1) if values.dim() < 3 else (0,) * (values.dim() - 2) + (values.shape[-2] - 1,)
    row = values[at].detach()
    row = torch.where(row.isfinite(), row, torch.full_like(row, -math.inf))
    return (*at, int(row.argmax()))


def judge(entry: Entry, progress: Progress = lambda stage: None) -> Finding:
    """Everything that can go wrong ends in a verdict; only what stops the process is left to the caller."""
    before = torch.get_default_dtype()
    try:
        return judge_stages(entry, progress, time.monotonic())
    finally:
        torch.set_default_dtype(before)


def judge_stages(entry: Entry, progress: Progress, began: float) -> Finding:
    def ended(verdict: str, why: str) -> Finding:
        return unfinished_finding(entry, verdict, why, time.monotonic() - began)

    try:
        specimen, score, plain = build_specimen(entry)
    except MemoryError:
        raise
    except Exception as error:
        return ended("not built", reason(error))
    progress("explaining")
    try:
        found = explain_specimen(specimen, score)
    except HeadwaterError as refusal:
        return ended("refused", reason(refusal))
    except Exception as error:
        return ended("open", f"crashed: {reason(error)}")
    judged = verdict(entry, specimen, score, plain, found, began)
    progress("explaining again")
    return replace(judged, way=later_way(specimen, score))


def later_way(specimen: Specimen, score: Best) -> str:
    """How a third explanation is computed, which must be a plain one's to the last bit."""
    explain_specimen(specimen, score)
    found, plain = explain_specimen(specimen, score), explain_specimen(specimen, score, plans=False)
    same = torch.equal(found.relevance, plain.relevance) and found.ledger == plain.ledger
    return found.provenance.way if same else "another"


def build_specimen(entry: Entry) -> tuple[Specimen, Best, float]:
    """In float64, or in float32 where the model's code allows no other; with the score that it gives by itself."""
    refused: BaseException | None = None
    for dtype in (torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            specimen = replace(build(entry, dtype), method=entry.method)
            out = plain_run(specimen)
            score = Best.of(out)
            value = float(score(out))
            if not math.isfinite(value):
                raise NotBuilt("its plain prediction is not finite")
            if value == 0:
                raise NotBuilt("its plain prediction is zero")
            return specimen, score, value
        except (RuntimeError, NotImplementedError, NotBuilt) as error:
            refused = refused or error
            if not about_dtype(error):
                break
    assert refused is not None
    raise refused


def about_dtype(error: BaseException) -> bool:
    """Whether another precision may help: code that mixes them, or a mask that only holds in float32."""
    return any(
        word in str(error) for word in ("dtype", "Double", "double", "scalar type", "Float64", "not finite", "overflow")
    )


def plain_run(specimen: Specimen) -> Any:
    """The model alone, without anything of ours around it."""
    torch.manual_seed(0)
    options = {"use_cache": False} if hasattr(specimen.model.config, "use_cache") else {}
    with torch.no_grad():
        try:
            return specimen.model(**specimen.arguments, **options)
        except TypeError:
            return specimen.model(**specimen.arguments)


def explain_specimen(specimen: Specimen, score: Best, plans: bool = True) -> Explanation:
    torch.manual_seed(0)
    found: list[Explanation] = explain(
        specimen.model, specimen.arguments, method=specimen.method, score=score, inputs=specimen.explained, plans=plans
    )
    return found[0]


def verdict(entry: Entry, specimen: Specimen, score: Best, plain: float, found: Explanation, began: float) -> Finding:
    """Closed is what closes as the model computes, and again with its casts lifted: no leak hides in rounding then."""
    ledger = found.ledger
    error, tolerance = missing(plain, found), EXACT if ledger.dtype == "float64" else CAST
    reached = float(found.relevance.double().abs().sum()) / ledger.size
    why = silence(plain, found, reached, tolerance)
    exact = None if ledger.dtype == "float64" else error_without_casts(specimen, score)
    leaks = error > tolerance or (exact is not None and exact > EXACT)
    closed = not why and not leaks
    return Finding(
        entry.map,
        entry.name,
        "closed" if closed else "open",
        why,
        error,
        tolerance,
        exact,
        leaking(specimen, score, lift=exact is not None) if leaks else (),
        plain,
        reached,
        ledger.dtype,
        round(time.monotonic() - began, 2),
        versions(),
        method=entry.method,
    )


def missing(plain: float, found: Explanation) -> float:
    """What the lines lack of the plain model's score, relative to the sum of their absolute amounts."""
    return abs(plain - (found.ledger.score - found.ledger.unaccounted)) / found.ledger.size


def error_without_casts(specimen: Specimen, score: Best) -> float | None:
    """The same ledger with every cast to float32 or less lifted; None where the model does not run so."""
    if next(specimen.model.parameters()).dtype is not torch.float64:
        return None
    try:
        with Exact():
            plain, found = float(score(plain_run(specimen))), explain_specimen(specimen, score)
    except Exception:
        return None
    return missing(plain, found) if found.ledger.dtype == "float64" else None


def silence(plain: float, found: Explanation, reached: float, tolerance: float) -> str:
    """Why a ledger that adds up would still say nothing, or nothing of this model."""
    if not bool(found.relevance.isfinite().all()):
        return "the relevance is not finite"
    if reached < SILENT:
        return "no relevance reaches the inputs"
    if abs(found.score - plain) > tolerance * max(abs(plain), abs(found.score)):
        return f"the score under the rules is {found.score:.6g}, the plain model's {plain:.6g}"
    return found.ledger.why


def leaking(specimen: Specimen, score: Best, lift: bool) -> tuple[str, ...]:
    """Operations that did not pass on what they received, each with the class of the module that it stands in."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"method": specimen.method, "score": score, "inputs": specimen.explained}
    try:
        with Exact() if lift else nullcontext():
            report = audit(specimen.model, specimen.arguments, **options)
    except Exception as error:
        return (f"unknown, for the audit failed ({reason(error)})",)
    amounts: dict[str, float] = {}
    for leak in report.leaks:
        place = f"{leak.operation} in {kind_of(specimen.model, leak.module)}"
        amounts[place] = amounts.get(place, 0.0) + abs(leak.amount)
    largest = sorted(amounts, key=lambda place: -amounts[place])[:SHOWN]
    return tuple(largest) or ("none above rounding: see the error",)


def kind_of(model: nn.Module, name: str) -> str:
    try:
        return type(model.get_submodule(name)).__name__
    except AttributeError:
        return name or type(model).__name__


def reason(error: BaseException) -> str:
    kind = "" if isinstance(error, NotBuilt) else f"{type(error).__name__}: "
    return f"{kind}{first_line(error)}"


def first_line(error: BaseException, limit: int = 200) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines[0] if lines else "no message")
    return said if len(said) <= limit else said[: limit - 1] + "…"


_LOWER = (torch.float32, torch.bfloat16, torch.float16)
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)


class Exact(TorchFunctionMode):
    """Inside, every cast to a lower precision is one to float64: what is missing then was lost, not rounded away.

    Stands around the rules, which see the result.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _CASTS:
            return args[0].double()
        args, kwargs = map_leaves((tuple(args), kwargs or {}), lift_dtype)
        return func(*args, **kwargs)


def lift_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _LOWER else value
