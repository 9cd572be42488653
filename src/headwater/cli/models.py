"""Which model a command works on."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from typing import Any

from headwater.models import bundled

from .options import LOADING, LoadOptions
from .screen import waiting


def import_libraries() -> None:
    """Import torch and transformers, and keep their objects out of Python's search for garbage.

    The search walks over hundreds of thousands of objects, none of which is ever garbage: several times while they are
    made, and again by and by. At the end of the process they are put back, so that all is freed in the usual order.
    """
    if "torch" in sys.modules:
        return
    collecting = gc.isenabled()
    gc.disable()
    try:
        import_module("transformers.modeling_utils")
        gc.freeze()
        atexit.register(gc.unfreeze)
    finally:
        if collecting:
            gc.enable()


def load_chosen_model(model: str | None, loading: LoadOptions = LOADING, own: str = bundled.NAME) -> tuple[Any, Any]:
    """The model that was named, else the bundled one called `own`, with its tokenizer or image processor."""
    from headwater.models.checkpoints import find_checkpoint
    from headwater.models.loading import load, load_image_model

    images = own == bundled.DIGITS
    with waiting(f"loading {model or own}"):
        if model is not None:
            find_checkpoint(model, loading.allow_pickle)
        import_libraries()

        loaded, reader = (load_image_model if images else load)(
            bundled.bundled_path(own) if model is None else model,
            task=loading.task or ("image-classification" if images else None),
            device=loading.device,
            dtype=loading.dtype or "float32",
            allow_pickle=loading.allow_pickle,
            trust_remote_code=loading.trust_remote_code,
        )
    if model is None:
        loaded.config._name_or_path = own
    return loaded, reader
