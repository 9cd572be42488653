"""`session`: a model made ready once, with all that its explanations learn of it, until it is closed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

from ..engine.model import DTYPES, in_copy
from ..engine.options import read_options
from ..engine.session import Session
from ..errors import UsageError
from ..inputs.restoring import restores
from ..methods.registry import Method, resolve_method
from ..results.audit import Audit
from ..results.comparison import Comparison
from ..results.explanation import Entity, Explanation
from ..results.generation import Generation
from ..results.patching import PatchEffect
from .answers import AnswerExplainer
from .audit.trace import audit
from .compare import compare
from .entities import explain_entities
from .explain import explain
from .explain_answer import explain_answer
from .explain_generation import explain_generation
from .node_names import Chosen
from .patch import patch
from .requests import Model, take_model


@restores
def session(
    model: Model,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    method: str | Method | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    plans: bool = True,
) -> ExplainSession:
    """A model made ready for many explanations: `session.explain(…)`, `.compare(…)`, `.audit(…)`, `.generate(…)`,
    `.answer(…)`, `.patch(…)`, `.close()`.

    Where `device` or `dtype` differ from the model's own, the model is copied once, not for every explanation; the copy
    does not follow later changes of the model. What explanations learn of the model serves the later ones, until the
    session is closed or the model changes. It can be used in a `with`, and by several threads at once.

    Args:
        model: as for `explain`.
        tokenizer: of every call that names no other.
        processor: the image processor of every call that names no other.
        method: of every call that names no other; None is the default for the kind of model.
        device: where it is computed; None is where the model lies.
        dtype: what it is computed in; None is the model's own, but float32 where that is half precision.
        plans: False computes every explanation anew.

    Returns:
        An `ExplainSession`.

    Raises:
        UsageError: there is no such method, device or dtype.
        ModelError: the model cannot be loaded, or not be explained.

    Example:
        >>> with hw.session("headwater/sentiment", method="lrp") as session:
        ...     found = [session.explain(text).target for text in ("a dull film", "a fine film")]
        >>> found
        ['negative', 'positive']
    """
    if method is not None:
        resolve_method(method)  # a method that does not exist is refused before any work
    asked = {"tokenizer": tokenizer, "processor": processor, "plans": plans, "device": device}
    given, shared = take_model(model, asked)
    options = read_options(dtype=dtype, **shared)
    del shared["device"]
    return ExplainSession(Session.open(given, options), method, shared, given)


class ExplainSession:
    """What `session` gives. `model` is the model as it is computed: the caller's own, or a copy."""

    def __init__(self, opened: Session, method: str | Method | None, shared: dict[str, Any], given: nn.Module) -> None:
        self._opened: Session | None = opened
        self._method, self._shared = method, shared
        self._given = weakref.ref(given)

    @property
    def model(self) -> nn.Module:
        """The model that is run: the caller's own, or its copy."""
        return self._session.model

    @property
    def dtype(self) -> str | None:
        """The name of the dtype that it computes in; None for a model that has no weights of one."""
        return name_floating(self._session.dtype)

    @property
    def _session(self) -> Session:
        if self._opened is None:
            raise UsageError("the session was closed. Open another: hw.session(model, …).")
        return self._opened

    @overload
    def explain(self, data: str | tuple[str, str], **options: Any) -> Explanation: ...

    @overload
    def explain(self, data: list[Any] | Mapping[str, Any] | Tensor, **options: Any) -> list[Explanation]: ...

    @overload
    def explain(self, data: Any, **options: Any) -> Any: ...

    def explain(self, data: Any, **options: Any) -> Explanation | list[Explanation]:
        """As `explain(model, data, …)`, which see for `data` and the options."""
        found: Explanation | list[Explanation] = explain(self.model, data, **self._with(options, "method"))
        return found

    def explain_entities(self, data: Any, **options: Any) -> list[Entity] | list[list[Entity]]:
        """As `explain_entities(model, data, …)`: `data` is a text or a list of texts."""
        return explain_entities(self.model, data, **self._with(options, "method"))

    def compare(self, data: Any, **options: Any) -> Comparison:
        """As `compare(model, data, …)`: `data` is one sample."""
        return compare(self.model, data, **self._with(options))

    def audit(self, data: Any, **options: Any) -> Audit:
        """As `audit(model, data, …)`: `data` is one sample."""
        return audit(self.model, data, **self._with(options, "method"))

    @overload
    def generate(self, prompt: str, **options: Any) -> Generation: ...

    @overload
    def generate(self, prompt: Sequence[str], **options: Any) -> list[Generation]: ...

    @overload
    def generate(self, prompt: str | None = None, **options: Any) -> Any: ...

    def generate(self, prompt: Any = None, **options: Any) -> Generation | list[Generation]:
        """As `explain_generation(model, prompt, …)`: `prompt` is a text or a list of texts."""
        asked = self._with(options, "method")
        for name in ("processor", "plans"):
            asked.pop(name)
        found: Generation | list[Generation] = explain_generation(self.model, prompt, **asked)
        return found

    @overload
    def answer(self, question: str | None = None, **options: Any) -> AnswerExplainer: ...

    @overload
    def answer(self, question: Sequence[str], **options: Any) -> list[AnswerExplainer]: ...

    def answer(self, question: Any = None, **options: Any) -> AnswerExplainer | list[AnswerExplainer]:
        """As `explain_answer(model, question, …)`: `question` is a text or a list of texts."""
        asked = self._with(options, "method")
        for name in ("processor", "plans"):
            asked.pop(name)
        found: AnswerExplainer | list[AnswerExplainer] = explain_answer(self.model, question, **asked)
        return found

    def patch(self, data: Any, nodes: Chosen | Sequence[Chosen], **options: Any) -> PatchEffect:
        """As `patch(model, data, nodes, …)`: `data` is one sample, `nodes` are replaced."""
        return patch(self.model, data, nodes, **self._with(options))

    def close(self) -> None:
        """Let go of the copy, if there is one, and of what was learned of the model. A closed session stays closed."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> ExplainSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with(self, options: dict[str, Any], *more: str) -> dict[str, Any]:
        """The session's own options, and over them those of one call."""
        for name in ("device", "dtype"):
            if options.get(name) is not None:
                raise UsageError(f"{name}= is the session's: open another one, hw.session(model, {name}=…).")
        found = {**self._shared, **options, "dtype": self.dtype}
        if isinstance(found.get("inputs"), nn.Module):
            found["inputs"] = self._in_copy(found["inputs"])
        if "method" in more and found.get("method") is None:
            found["method"] = self._method
        return found

    def _in_copy(self, module: nn.Module) -> nn.Module:
        """A module of the model that the session was opened for, found again in the copy of it."""
        given = self._given()
        known = {id(part) for part in self.model.modules()}
        found: nn.Module = module if given is None or id(module) in known else in_copy(given, self.model, module)
        return found


def name_floating(dtype: torch.dtype | None) -> str | None:
    """The name of a floating dtype; None for a model that has no weights of one."""
    return next((name for name, known in DTYPES.items() if known is dtype), None)
