"""Which model a command works on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .screen import waiting


def chosen_model(
    model: str | None,
    task: str | None,
    device: str | None,
    dtype: str | None,
    allow_pickle: bool,
    trust_remote_code: bool,
    images: bool = False,
) -> tuple[Any, Any]:
    """The model that was named, else one of ours, with what prepares its inputs: a tokenizer, or an image processor."""
    with waiting(f"loading {model or ('the model trained on MNIST' if images else 'the bundled model')}"):
        from headwater.models.loading import load, load_image_model

        name, source = own_model(images) if model is None else (None, model)
        loaded, reader = (load_image_model if images else load)(
            source,
            task=task or ("image-classification" if images else None),
            device=device,
            dtype=dtype or "float32",
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
    if name is not None:
        loaded.config._name_or_path = name
    return loaded, reader


def own_model(images: bool) -> tuple[str, Path]:
    """What ours is called, and where it lies: the bundled one for texts, the one trained on MNIST for images."""
    if images:
        from headwater.digits import NAME
        from headwater.digits.model import trained

        return NAME, trained()
    from headwater.models import bundled

    return bundled.NAME, bundled.bundled_path()
