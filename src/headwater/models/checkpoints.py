"""Finds a checkpoint: a directory, a GGUF file, a name on the hub; and the form in which its weights may be read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.errors import LoadError, UnsafeWeights, nearest, require_extra

from .hub import check_hub_name
from .pretrained import locate, name_for_results
from .weight_files import check_adapter, check_weight_files, look_in_directory, on_hub


@dataclass(frozen=True)
class Checkpoint:
    """Where it lies, and in which form its weights may be read."""

    name: str
    local: bool
    use_safetensors: bool | None = True
    options: dict[str, Any] = field(default_factory=dict)
    called: str | None = None  # for provenance: where a wheel lies on this machine says nothing

    @property
    def is_gguf(self) -> bool:
        return "gguf_file" in self.options


def find_checkpoint(name_or_dir: str | os.PathLike[str], allow_pickle: bool) -> Checkpoint:
    """A directory, a GGUF file or a name on the hub; refused where there is none, before torch is loaded for it."""
    if not isinstance(name_or_dir, (str, os.PathLike)):
        raise LoadError(f"a model is loaded by a directory, a file or a name on the hub, not {name_or_dir!r:.60}.")
    path = Path(name_or_dir).expanduser()
    if isinstance(name_or_dir, str) and not path.exists() and (found := locate(name_or_dir)) != name_or_dir:
        return replace(find_checkpoint(found, allow_pickle), called=name_for_results(name_or_dir))
    if path.is_dir():
        return find_in_directory(path, allow_pickle)
    if path.is_file() and path.suffix == ".gguf":
        return find_gguf(path)
    if path.is_file():
        raise LoadError(f"{path} is a file. Give the directory that holds it with its config.json, or a .gguf file.")
    if path.suffix == ".gguf":
        near = nearest(path.name, [file.name for file in path.parent.glob("*.gguf")])
        raise LoadError(f"there is no file {path}. {near if near.startswith('Did') else ''}".strip())
    if isinstance(name_or_dir, Path) or is_path(str(name_or_dir)):
        near = nearest(str(path), map(str, path.parent.glob("*/"))) if path.parent.is_dir() else ""
        raise LoadError(f"there is no directory {path}. {near if near.startswith('Did') else ''}".strip())
    alone = check_hub_name(str(name_or_dir))
    return Checkpoint(
        str(name_or_dir),
        local=False,
        use_safetensors=None if allow_pickle else True,
        options={"local_files_only": True} if alone else {},
    )


def is_path(name: str) -> bool:
    """Whether it can only be a place on this machine, as people write it here or on Windows."""
    return name.startswith(("/", "./", "../", "~", ".\\", "..\\", "\\")) or name[1:3] in (":\\", ":/")


def find_in_directory(directory: Path, allow_pickle: bool) -> Checkpoint:
    """Safetensors where there are any, else one GGUF file, else (on request) a pickle."""
    if any(directory.glob("*.safetensors")):
        return Checkpoint(str(directory), local=True)
    ggufs = sorted(directory.glob("*.gguf"))
    if len(ggufs) > 1:
        names = ", ".join(file.name for file in ggufs)
        raise LoadError(f"{directory} holds {len(ggufs)} GGUF files ({names}). Give the path of one of them.")
    if ggufs:
        return find_gguf(ggufs[0])
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in directory.glob(pattern))
    if not pickles:
        raise LoadError(f"{directory} holds no weights: no *.safetensors and no *.gguf file was found.")
    if not allow_pickle:
        raise UnsafeWeights(
            f"{directory} holds its weights as a pickle ({', '.join(pickles[:3])}), which can run code when it is "
            "read. Convert it to safetensors, or, if you trust it, pass allow_pickle=True (--allow-pickle)."
        )
    return Checkpoint(str(directory), local=True, use_safetensors=False)


def find_gguf(file: Path) -> Checkpoint:
    for package in ("gguf", "accelerate"):
        with require_extra("reading a GGUF file", "gguf"):
            __import__(package)
    return Checkpoint(str(file.parent), local=True, use_safetensors=None, options={"gguf_file": str(file.absolute())})


def check_sources_of_weights(source: Checkpoint, config: Any, allow_pickle: bool) -> None:
    """Whatever transformers will read weights from lies in the checkpoint, or in that of the model below an adapter."""
    if source.is_gguf:
        return
    look_up = look_in_directory(Path(source.name)) if source.local else on_hub(source.name)
    check_weight_files(source.name, look_up, getattr(config, "transformers_weights", None), allow_pickle)
    base = check_adapter(source.name, look_up, allow_pickle)
    if source.local and look_up("config.json"):
        base = None  # then the model below the adapter is the checkpoint itself
    for name in filter(None, (base, getattr(config, "embeddings_from", None))):
        below = find_checkpoint(name, allow_pickle)
        found = look_in_directory(Path(below.name)) if below.local else on_hub(below.name)
        check_weight_files(below.name, found, None, allow_pickle)
