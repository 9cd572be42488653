"""What other tools do on the same model and batch, called as their own documents have it, for the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from headwater.api.explain import explain
from headwater.engine.model import where_it_is
from headwater.errors import NotApplicable, UnknownName, UsageError
from headwater.evaluation.cost import Job
from headwater.inputs.readouts import logits_of

from .lxt_adapter import Lxt

STEPS = 32  # of integrated gradients, as in `headwater.methods`
SHORT = 8  # tokens on which LXT's relevance is compared with ours before it is timed
OURS = {"AttnLRP": "attnlrp", "CP-LRP": "lrp"}  # the method here that follows the same rules

Tell = Callable[[str], None]


def peers(
    model: nn.Module, inputs: dict[str, Any], tools: Iterable[str] | None = None, tell: Tell = lambda line: None
) -> Iterator[tuple[str, Job]]:
    """Jobs by name, of the tools that are asked for; else of those that are installed. `tell` hears why one is not."""
    for tool in find_installed() if tools is None else check_tools(tools):
        yield from TOOLS[tool](model, inputs, tell)


def find_installed() -> list[str]:
    return [tool for tool in TOOLS if find_spec(tool) is not None]


def check_tools(tools: Iterable[str]) -> list[str]:
    """The same names; an error where one is unknown or missing."""
    found = list(tools)
    for tool in found:
        if tool not in TOOLS:
            raise UnknownName("tool to time beside", tool, TOOLS)
        if find_spec(tool) is None:
            raise UsageError(f"{tool} is not installed, so it cannot be timed: {HOW[tool]}.")
    return found


def captum(model: nn.Module, inputs: dict[str, Any], tell: Tell) -> Iterator[tuple[str, Job]]:
    yield "captum InputXGradient", lambda: captum_gradient(model, inputs)
    yield f"captum IntegratedGradients, {STEPS} steps", lambda: captum_path(model, inputs)


def lxt(model: nn.Module, inputs: dict[str, Any], tell: Tell) -> Iterator[tuple[str, Job]]:
    """Its two sets of rules, each tried on a few tokens. Whatever it raises there is a reason not to time it."""
    for rules, ours in OURS.items():
        try:
            tool = Lxt.of(model, rules)
            away = largest_difference(tool, model, shorten_inputs(inputs), ours)
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            tell(f"lxt {version_of('lxt')} is not timed beside transformers {version_of('transformers')}: {reason}")
            return
        tell(f"lxt {rules}: its relevance is {away:.0e} from that of {ours}, relative to the highest")
        yield f"lxt {rules}", lambda tool=tool: tool.relevance(*score_function(model, inputs))  # type: ignore[misc]


def explain_answer_by_lxt(model: nn.Module, ids: Sequence[int], token: int, other: int | None) -> Tensor:
    """LXT's AttnLRP of the logit of the next token, or of its difference to another's, for every id."""
    if find_spec("lxt") is None:
        raise NotApplicable(f"lxt is not installed: {HOW['lxt']}.")
    embed: Any = model.get_input_embeddings
    vectors = embed()(torch.tensor([list(ids)], device=where_it_is(model)[0])).detach().requires_grad_(True)

    def score(x: Tensor) -> Tensor:
        row = logits_of(model(inputs_embeds=x, use_cache=False))[0, -1]
        return row[token] if other is None else row[token] - row[other]

    return Lxt.of(model, "AttnLRP").relevance(vectors, score)[0]


TOOLS: dict[str, Callable[[nn.Module, dict[str, Any], Tell], Iterator[tuple[str, Job]]]] = {
    "captum": captum,
    "lxt": lxt,
}
HOW = {"captum": "pip install 'headwater[captum]'", "lxt": "pip install --no-deps lxt"}


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(of unknown version)"


def largest_difference(tool: Lxt, model: nn.Module, inputs: dict[str, Any], ours: str) -> float:
    """The largest difference between LXT's relevance and that of a method here, over the highest relevance."""
    theirs = tool.relevance(*score_function(model, inputs))
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    place = next(name for name, part in model.named_modules() if part is embedding)
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    found = explain(model, inputs, method=ours, inputs=place, dtype=dtype, output="logit")
    mine = torch.stack([torch.as_tensor(one.relevance) for one in found]).to(theirs)
    return float((theirs - mine).abs().max() / mine.abs().max())


def shorten_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value[:, :SHORT] if isinstance(value, Tensor) else value for name, value in inputs.items()}


def captum_gradient(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    from captum.attr import InputXGradient

    vectors, score = score_function(model, inputs)
    found: Tensor = InputXGradient(score).attribute(vectors)
    return found.sum(-1)


def captum_path(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    """From zero, the batch's own size at a time."""
    from captum.attr import IntegratedGradients

    vectors, score = score_function(model, inputs)
    path = IntegratedGradients(score)
    found: Tensor = path.attribute(vectors, n_steps=STEPS, internal_batch_size=len(vectors))
    return found.sum(-1)


def score_function(model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The word embeddings, and each row's highest logit as a function of them."""
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    embed: Any = model.get_input_embeddings
    vectors = embed()(inputs["input_ids"]).detach().requires_grad_(True)

    def score(x: Tensor) -> Tensor:
        fields = {k: v[:1].expand(len(x), *v.shape[1:]) if isinstance(v, Tensor) else v for k, v in rest.items()}
        logits = logits_of(model(inputs_embeds=x, **fields))
        return torch.amax(logits.reshape(len(x), -1, logits.shape[-1])[:, -1], -1)

    return vectors, score
