"""`fast_attention`: Headwater's attention in a model of transformers, for scores that are capped and for sinks.

Gemma 2 caps its scores and GPT-OSS has sinks; transformers computes both with all weights at once, or in kernels that
hide them. Ours takes a block at a time, and the rules know it. Everything else stays with torch's own attention.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import NotApplicable
from ..inputs.restoring import restores, undone
from ..kernels.capped import capped_attention

NAME = "headwater"
FEW = 8  # positions at which a model's own attention is asked whether it computes the same
ROOM = {torch.float16: 2e-2, torch.bfloat16: 1e-1}
UNKNOWN = ("position_bias", "head_mask", "cache")  # what would change the result, and is not looked at here

M = TypeVar("M", bound=nn.Module)


def fast_attention(model: M) -> M:
    """Let the model compute attention in blocks: memory that grows with the length of a text, not with its square.

    The model is changed, and given back; `model.set_attn_implementation("eager")` undoes it. From here on transformers
    knows the name, so that a model can be loaded with `attn_implementation="headwater"`, too. When attention runs for
    the first time, the model's own is asked at a few positions whether it is the same; one that is not is refused.

    Args:
        model: a model of transformers.

    Returns:
        The same model.

    Raises:
        ModelError: the model's attention cannot be replaced; `NotApplicable` where it computes something else.

    Example:
        >>> from transformers import Gemma2Config, Gemma2ForCausalLM
        >>> config = Gemma2Config(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        ...                       num_key_value_heads=2, head_dim=4, intermediate_size=16)
        >>> gemma = hw.fast_attention(Gemma2ForCausalLM(config).eval())
        >>> hw.explain(gemma, {"input_ids": torch.tensor([[1, 2, 3]])})[0].ledger.closed
        True
    """
    return with_attention(model, NAME)


@restores
def with_attention(model: M, name: str) -> M:
    """The model with another of its attentions, really: transformers only warns where it did not take it."""
    if not hasattr(model, "set_attn_implementation"):
        raise NotApplicable(
            f"{type(model).__name__} is no model of transformers, so that its attention cannot be replaced. Attention "
            "through torch's scaled_dot_product_attention is fast as it is."
        )
    register_attention()
    before = [(part.config, part.config._attn_implementation) for part in parts(model)]

    def put_back() -> None:
        for config, chosen in before:
            config._attn_implementation = chosen

    with undone(put_back):
        replace_attention(model, name)
        before.clear()  # all of it is replaced, so none is put back
    return model


def replace_attention(model: nn.Module, name: str) -> None:
    replace: Any = model.set_attn_implementation
    try:
        replace(name)
    except ValueError as error:
        said = str(error).split(". ")[0]
        raise NotApplicable(f"{type(model).__name__} does not take the attention {name!r}: {said}.") from error
    refused = [type(part).__name__ for part in parts(model) if part.config._attn_implementation != name]
    if refused:
        raise NotApplicable(
            f"{' and '.join(dict.fromkeys(refused))} cannot change how attention is computed: it does not go through "
            "transformers' attention interface. The model was left as it was."
        )


def register_attention() -> None:
    """Make the name known to transformers, with a mask: an attention that has none registered is given none at all."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend_fast)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def parts(model: nn.Module) -> Iterator[Any]:
    """The models inside a model that have a configuration, itself first."""
    from transformers import PreTrainedModel

    return (part for part in model.modules() if isinstance(part, PreTrainedModel))


def attend_fast(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers calls it. Windows are in the mask."""
    if softcap is None and s_aux is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        given: Any = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **kwargs}
        check_against_own(module, (query, key, value), attention_mask, given, sdpa_attention_forward)
        mixed: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **given)
        return mixed
    given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, "softcap": softcap, "s_aux": s_aux}
    unknown = [name for name in UNKNOWN if kwargs.get(name) is not None] + ["dropout"] * bool(dropout)
    if attention_mask is not None and attention_mask.requires_grad:
        unknown.append("mask that is learned")
    if unknown:
        raise NotApplicable(
            f"Headwater's attention knows no {unknown[0]}: call model.set_attn_implementation('eager')."
        )
    check_against_own(module, (query, key, value), attention_mask, {**given, **kwargs}, attend_groups)
    return attend_groups(module, query, key, value, attention_mask, **given)


def attend_groups(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **given: Any,
) -> tuple[Tensor, None]:
    """By the product's own attention. Of `given`, as transformers has it: scaling, is_causal, softcap and s_aux."""
    causal = causal_by(module, query, mask, given.get("is_causal"))
    sinks, scale, cap = given.get("s_aux"), given.get("scaling"), given.get("softcap") or 0.0
    result = capped_attention(query, key, value, mask, sinks, scale=scale, is_causal=causal, cap=cap)
    return result.transpose(1, 2).contiguous(), None


def causal_by(module: nn.Module, query: Tensor, mask: Tensor | None, said: bool | None) -> bool:
    """Where no mask is given, transformers leaves it to the attention to look at the past alone."""
    causal = said if said is not None else getattr(module, "is_causal", True)
    return bool(causal) and mask is None and query.shape[2] > 1


_CHECKED: set[Any] = set()


def check_against_own(
    module: nn.Module, whole: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, given: Any, ours: Any
) -> None:
    """Once for every kind of attention: at its first positions it must be what the model's own file computes.

    A model may add to its scores what no argument tells. Its file has a function of a fixed name that writes it out.
    """
    kind = (type(module), ours, given.get("softcap") is None, given.get("s_aux") is None)
    if kind in _CHECKED or given.get("dropout"):
        return
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise NotApplicable(f"{type(module).__name__} does not tell how it computes attention, so ours is not tried.")
    query = whole[0]
    few = tuple(part[:, :, :FEW].detach() for part in whole)
    looks, added = mask_of_few(few, mask, causal_by(module, query, mask, given.get("is_causal")))
    given = {name: value for name, value in given.items() if value is not None}
    with torch._C.DisableTorchFunction(), torch.no_grad():
        expected = eager(module, *few, added, **given)[0]
        found = ours(module, *few, added if mask is not None and mask.dtype is not torch.bool else looks, **given)[0]
        alive = looks.any(-1).any(1)  # a query that looks at nothing is computed in several ways, and not looked at
        room = ROOM.get(query.dtype, 1e-3) * (1e-3 + float(expected.abs().max()))
        same = bool(((found - expected).abs() <= room)[alive].all())
    if not same:
        raise NotApplicable(
            f"{type(module).__name__} computes something else than attention with a cap and sinks: call "
            "model.set_attn_implementation('eager')."
        )
    if bool(alive.any()):
        _CHECKED.add(kind)


def mask_of_few(few: tuple[Tensor, ...], mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    """Where the first queries look among the first keys; and the same to be added, as models that write it out want."""
    query, key, _ = few
    shape = (len(query), 1, query.shape[2], key.shape[2])
    if mask is not None and mask.dtype is not torch.bool:
        part = mask[..., :FEW, :FEW]
        return (part > torch.finfo(part.dtype).min / 2).expand(len(query), -1, *shape[2:]), part
    looks = torch.ones(shape, dtype=torch.bool, device=query.device)
    looks = mask[..., :FEW, :FEW].expand(len(query), -1, *shape[2:]) if mask is not None else looks
    looks = looks.tril() if causal else looks
    return looks, torch.zeros_like(looks, dtype=query.dtype).masked_fill(~looks, torch.finfo(query.dtype).min)
