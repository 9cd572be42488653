"""Which model a command works on."""

from __future__ import annotations

from typing import Any

from headwater.models import bundled

from .screen import waiting


def load_chosen_model(
    model: str | None,
    task: str | None,
    device: str | None,
    dtype: str | None,
    allow_pickle: bool,
    trust_remote_code: bool,
    own: str = bundled.NAME,
) -> tuple[Any, Any]:
    """The model that was named, else the bundled one called `own`, with its tokenizer or image processor."""
    images = own == bundled.DIGITS
    with waiting(f"loading {model or own}"):
        from headwater.models.loading import load, load_image_model

        loaded, reader = (load_image_model if images else load)(
            bundled.bundled_path(own) if model is None else model,
            task=task or ("image-classification" if images else None),
            device=device,
            dtype=dtype or "float32",
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
    if model is None:
        loaded.config._name_or_path = own
    return loaded, reader
