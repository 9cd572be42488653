"""A model as it is to be computed: on its device, in its dtype; and a batch as it takes it."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HiddenOperation, InputError, ModelError, TrainingMode, UnknownName
from ..inputs.batch import Batch
from ..inputs.restoring import outside_inference
from ..inputs.text import with_decoder_start
from ..inputs.walking import list_weights, named_modules, named_weights
from ..models.loading import usable_device
from ..results.explanation import Provenance
from ..version import __version__

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def prepare_model(model: nn.Module, device: Any, dtype: Any) -> nn.Module:
    """The model as it is to be computed: the caller's own object, or a copy where device or dtype must differ."""
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be a torch.nn.Module, not {type(model).__name__}.")
    model = getattr(model, "_orig_mod", model)  # torch.compile keeps the module it compiled
    scripted = torch.jit.ScriptModule
    for name, module in named_modules(model):
        if module.training:
            raise TrainingMode(f"the module {name!r}" if name else "the model")
        if isinstance(module, scripted):
            raise HiddenOperation(f"the module {name!r} is TorchScript, which hides its operations from the rules.")
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(chosen, str) and ("flash" in chosen or "flex" in chosen):
        raise HiddenOperation(
            f"the model was loaded with attn_implementation={chosen!r}, which hides its attention from the rules. "
            "Call model.set_attn_implementation('sdpa') or load it so; where scores are capped or it has sinks, "
            "hw.fast_attention(model)."
        )
    have, (fixed, made_for_inference) = where_it_is(model), state_of(model)
    own = have[1] if fixed and dtype is None else choose_dtype(dtype, have[1])
    want = (usable_device(device) if device is not None else have[0], own)
    if fixed and want != have:
        raise ModelError(
            f"the model cannot be copied to {want[0]}, {want[1]}, for {fixed}: load it as it is to be computed. It is "
            f"on {have[0]} in {have[1]}."
        )
    if not made_for_inference and (want == have or (want[1] is None and want[0] == have[0])):
        return model
    with outside_inference():
        copied = copy.deepcopy(model)
        return type(copied).to(copied, device=want[0], dtype=want[1])  # an instance's own `to` may lead to the original


def state_of(model: nn.Module) -> tuple[str, bool]:
    """Why weights cannot be copied to another dtype or device ("" if they can); whether any is an inference tensor."""
    weights = [tensor for tensor in list_weights(model) if tensor is not None]
    inference = any(tensor.is_inference() for tensor in weights)
    if all(type(tensor) in (Tensor, nn.Parameter) and not tensor.is_meta for tensor in weights):
        return "", inference
    for name, tensor in named_weights(model):
        if tensor.is_meta:
            return f"the weights {name!r} are offloaded", inference
        if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            return f"the weights {name!r} are packed ({type(tensor).__name__})", inference
    return "", inference


def choose_dtype(dtype: str | torch.dtype | None, have: torch.dtype | None) -> torch.dtype | None:
    if dtype is None:
        return torch.float32 if have in (torch.float16, torch.bfloat16) else have
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise UnknownName("dtype", str(dtype), DTYPES)
    return found


def where_it_is(model: nn.Module) -> tuple[torch.device, torch.dtype | None]:
    """Device and dtype of the first weights. Offloaded ones are nowhere; what holds them moves inputs by itself.

    Weights in float8 are kept, not computed in: of those the device alone counts.
    """
    away: torch.dtype | None = None
    device: torch.device | None = None
    for _, tensor in named_weights(model):
        if not tensor.is_floating_point():
            continue
        computes = tensor.dtype.itemsize > 1
        if computes and not tensor.is_meta:
            return tensor.device, tensor.dtype
        away = away or (tensor.dtype if computes else None)
        device = device or (None if tensor.is_meta else tensor.device)
    return device or torch.device("cpu"), away


def place_batch(model: nn.Module, batch: Batch) -> Batch:
    """A batch as the model takes it: on its device, in its dtype, a decoder's first token with it."""
    placed = replace(batch.to(*where_it_is(model)), starts=decoder_starts(model))
    return with_decoder_start(model, placed)


def decoder_starts(model: nn.Module) -> tuple[int, ...]:
    """The tokens that a decoder may start with when it is given the text itself."""
    config = getattr(model, "config", None)
    configs = (config, getattr(config, "decoder", None)) if getattr(config, "is_encoder_decoder", False) else ()
    found = [getattr(one, name, None) for one in configs for name in ("decoder_start_token_id", "bos_token_id")]
    return tuple(token for token in found if isinstance(token, int))


def in_copy(model: nn.Module, copied: nn.Module, inputs: Any) -> Any:
    """A module of the caller's model, found again where the model had to be copied."""
    if not isinstance(inputs, nn.Module) or copied is model:
        return inputs
    model = getattr(model, "_orig_mod", model)
    names = [name for name, module in named_modules(model) if module is inputs]
    if not names:
        raise InputError("inputs= is a module that is not part of the model.")
    return copied.get_submodule(names[0])


def describe_model(model: nn.Module, device: torch.device, dtype: torch.dtype | None, seed: int) -> Provenance:
    transformers = sys.modules.get("transformers")
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", "") or type(model).__name__
    return Provenance(
        headwater=__version__,
        torch=torch.__version__,
        transformers=getattr(transformers, "__version__", None),
        model=str(name),
        device=str(device),
        dtype=str(dtype or torch.get_default_dtype()).removeprefix("torch."),
        seed=seed,
    )
