"""Which files weights are read from: those of the checkpoint itself, and no pickle unless it is permitted.

An index of shards names files, and so may a config. Both come with the checkpoint, and transformers joins what they say
to the directory as it is, and unpickles what does not end in .safetensors. So the names are checked before it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from headwater.errors import LoadError, UnsafeWeights

SAFE, PICKLED = ".safetensors", ".bin"
INDEX = ".index.json"
SAFE_INDEX, PICKLED_INDEX = f"model{SAFE}{INDEX}", f"pytorch_model{PICKLED}{INDEX}"
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", f"adapter_model{SAFE}"

Lookup = Callable[[str], Path | None]  # a file of the checkpoint by its name there; None where it has none


def look_in_directory(directory: Path) -> Lookup:
    return lambda name: found if (found := directory / name).is_file() else None


def on_hub(repository: str) -> Lookup:
    def look_up(name: str) -> Path | None:
        from transformers.utils import cached_file

        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        found = cached_file(repository, name, **quiet)
        return None if found is None else Path(found)

    return look_up


def check_weight_files(checkpoint: str, look_up: Lookup, named: str | None, allow_pickle: bool) -> None:
    """Refuses a checkpoint whose index, or whose config (`named`), leads out of it or to a pickle."""
    if named is not None:
        check_weight_file(checkpoint, look_up, "its config", named, (SAFE, SAFE + INDEX))
    for index in (named, SAFE_INDEX, PICKLED_INDEX if allow_pickle else None):
        found = look_up(index) if index is not None and index.endswith(INDEX) else None
        if found is None or index is None:
            continue
        suffix = PICKLED if index == PICKLED_INDEX else SAFE
        for name in list_shards(found):
            check_weight_file(checkpoint, look_up, index, name, (suffix,))


def check_adapter(checkpoint: str, look_up: Lookup, allow_pickle: bool) -> str | None:
    """The model that an adapter of peft stands on, by name; None where the checkpoint is no adapter."""
    config = look_up(ADAPTER)
    if config is None:
        return None
    if not allow_pickle and look_up(ADAPTER_WEIGHTS) is None:
        raise UnsafeWeights(f"{checkpoint} is an adapter without {ADAPTER_WEIGHTS}. {advise_on_pickle('adapter')}")
    base = read_json(config).get("base_model_name_or_path")
    return base if isinstance(base, str) else None


def list_shards(index: Path) -> list[str]:
    """The files that an index of shards names, each once."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise LoadError(f"{index} is no index of weights: it has no weight_map from names of weights to files.")
    return sorted(set(table.values()))


def read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(found, dict):
        raise LoadError(f"{file} must hold an object, not a {type(found).__name__}.")
    return found


def check_weight_file(checkpoint: str, look_up: Lookup, said_by: str, name: str, suffixes: tuple[str, ...]) -> None:
    if not name.endswith(suffixes):
        raise UnsafeWeights(
            f"{said_by} of {checkpoint} names {name!r}, which is no {suffixes[0]} file. {advise_on_pickle()}"
        )
    found = look_up(name) if stays_inside(name) else None
    if not stays_inside(name) or (found is not None and leads_outside(found, name)):
        raise UnsafeWeights(
            f"{said_by} of {checkpoint} names {name!r}, which does not lie in the checkpoint's own directory. Put the "
            "file there, or name it as it lies there."
        )


def stays_inside(name: str) -> bool:
    """Whether a name says nothing but where a file lies below the directory, on any system."""
    if not name or "\0" in name or PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor:
        return False
    return ".." not in (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)


def leads_outside(file: Path, name: str) -> bool:
    """Whether a link leads out of the directory; the hub's cache keeps what its snapshots link to in its blobs."""
    directory = file.parents[len(PurePosixPath(name).parts) - 1].resolve()
    target = file.resolve()
    in_cache = directory.parent.name == "snapshots" and target.parent == directory.parents[1] / "blobs"
    return directory not in target.parents and not in_cache


def advise_on_pickle(kind: str = "checkpoint") -> str:
    return f"A pickle can run code when it is read: convert the {kind}, or, if you trust it, pass allow_pickle=True."
