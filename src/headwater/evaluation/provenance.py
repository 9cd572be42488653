"""What is needed to repeat a result: which weights, which data, which versions, where and when."""

from __future__ import annotations

import hashlib
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from ..engine.model import describe_model, where_it_is
from ..version import __version__

PACKAGES = ("torch", "transformers", "numpy", "captum", "scipy")


def model_sha256(model: nn.Module) -> str:
    """Of all parameters and buffers that are saved with the model, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}:".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Of this library, Python, and the packages that numbers depend on; those not installed are left out."""
    found = {"headwater": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine(device: torch.device) -> dict[str, Any]:
    """Where it was computed."""
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": str(device), "hardware": named, "threads": torch.get_num_threads(), "system": sys.platform}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_work(given: nn.Module, ready: nn.Module, seed: int, found: dict[str, Any]) -> dict[str, Any]:
    """What is needed to repeat a result: the model as given and as it computes, what was `found`, the machine."""
    place, dtype = where_it_is(ready)
    about = describe_model(ready, place, dtype, seed)
    return {
        "model": about.model,
        "model_class": type(given).__name__,
        "model_sha256": model_sha256(given),
        **found,
        "dtype": about.dtype,
        "seed": seed,
        "versions": versions(),
        **machine(place),
        "started": now(),
    }


def shorten(value: Any) -> str:
    """A value in a few letters, for a message."""
    if isinstance(value, dict):
        return str(value.get("name", "…"))
    said = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return said if len(said) <= 60 else f"{said[:12]}…"
