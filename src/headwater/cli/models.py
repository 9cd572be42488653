"""Which model a command works on."""

from __future__ import annotations

from typing import Any

from .screen import waiting

BUNDLED = "headwater/sentiment"


def chosen_model(
    model: str | None,
    task: str | None,
    device: str | None,
    dtype: str | None,
    allow_pickle: bool,
    trust_remote_code: bool,
) -> tuple[Any, Any]:
    """The model that was named, else the bundled one, with its tokenizer."""
    with waiting(f"loading {model or 'the bundled model'}"):
        from headwater.models.bundled import bundled_path
        from headwater.models.loading import load

        loaded, tokenizer = load(
            bundled_path() if model is None else model,
            task=task,
            device=device,
            dtype=dtype or "float32",
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
    if model is None:
        loaded.config._name_or_path = BUNDLED  # where this copy of the package lies says nothing
    return loaded, tokenizer
