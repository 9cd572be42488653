"""A configuration as the class makes it by default, shrunk: few layers, narrow, and still of one piece.

Numbers that must agree stay in agreement; lists with one value per layer keep one layer of every kind; token ids that
no longer lie in the vocabulary move into it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from .sizes import HEAD, HEADS, VOCABULARY, WIDTH, small

FIRST_FREE = 16  # token ids below are kept for special tokens
MOST_LAYERS = 4

_TOKEN = re.compile(r"\w*token_(id|index)|\w*(pad|bos|eos|cls|sep|mask|unk)_(id|index)")
_EACH = re.compile(r"\w*key_value_heads|\w*kv_(n_)?heads|num_query_groups")
_WIDE = re.compile(r"\w*(_size|_dim|_width)|d_model|dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_NO_SIZES = ("chunk_size_feed_forward", "rope_parameters", "id2label", "label2id")


def shrunk(config: Any, hints: Mapping[str, Any], labels: int = 0) -> Any:
    """The same kind of configuration, small. `hints` are fields with their values, of parts by dotted names."""
    values = {**small_fields(config, hints), **{k: v for k, v in hints.items() if "." not in k}}
    if labels:
        values.setdefault("id2label", {i: f"LABEL_{i}" for i in range(labels)})
    return type(config)(**values)


def small_fields(config: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """What the small configuration is told: what shrinks, and what a configuration around this one chose for it."""
    values: dict[str, Any] = {}
    worked_out, usual = fields_left_open(config), usual_values(config)
    for name in field_names(config):
        value = vars(config).get(name)
        if is_config(value):
            values[name] = shrunk(value, hints_of_part(hints, name))
            continue
        chosen = value != usual.get(name)
        if chosen:
            values[name] = value
        if name in _NO_SIZES or value is None or (name in worked_out and not chosen):
            continue
        less = agreeing(config, name, value, small(name, value))
        if less != value:
            values[name] = less
    values.update(keep_layers(config, hints))
    values.update(tokens_inside(config, values.get("vocab_size", vars(config).get("vocab_size"))))
    return values


def is_config(value: Any) -> bool:
    return hasattr(value, "to_dict") and hasattr(value, "model_type")


def field_names(config: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(config) if one.init]


def fields_left_open(config: Any) -> set[str]:
    """Fields that are None by default: the class works them out from the others."""
    return {one.name for one in dataclasses.fields(config) if one.init and one.default is None}


def usual_values(config: Any) -> dict[str, Any]:
    """What the class gives by itself; the configuration's own values where it cannot do without arguments."""
    try:
        return dict(vars(type(config)()))
    except Exception:
        return dict(vars(config))


def hints_of_part(hints: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The hints for a part."""
    return {name[len(part) + 1 :]: value for name, value in hints.items() if name.startswith(f"{part}.")}


def agreeing(config: Any, name: str, before: Any, less: Any) -> Any:
    """What was as wide as the model stays so; keys of one head each stay so; stages can be divided by their heads."""
    known = vars(config)
    width = next((known[n] for n in ("hidden_size", "d_model", "dim") if isinstance(known.get(n), int)), None)
    stages = known.get("num_heads")
    if name == "embed_dim" and isinstance(before, int) and isinstance(stages, (list, tuple)):
        return HEAD * stages[0]
    if _EACH.fullmatch(name) and before == known.get("num_attention_heads"):
        return HEADS
    if before == width and _WIDE.fullmatch(name) and less != before:
        return min(WIDTH, before)
    return less


def keep_layers(config: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Lists with one value per layer keep the first layer of every kind, two layers at least."""
    names = field_names(config)
    name = next((n for n in _LAYERS if n in names), None)
    count = getattr(config, "num_hidden_layers", None)
    if name is None or name in hints or not isinstance(count, int) or count < 2:
        return {}
    rows = {field: row for field in names if len_of(row := vars(config).get(field)) == count}
    if not rows:
        return {}
    kinds = list(zip(*(map(str, row) for row in rows.values()), strict=True))
    kept = sorted(kinds.index(kind) for kind in dict.fromkeys(kinds))[:MOST_LAYERS]
    kept = kept if len(kept) > 1 else [0, 1]
    return {name: len(kept), **{field: type(row)(row[i] for i in kept) for field, row in rows.items()}}


def len_of(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple)) else -1


def tokens_inside(config: Any, size: int | None) -> dict[str, Any]:
    """Special tokens outside the vocabulary, or among those that texts are made of, get numbers of their own."""
    known = {n: vars(config).get(n) for n in field_names(config) if _TOKEN.fullmatch(n)}
    taken = {value for value in known.values() if isinstance(value, int)}
    free = iter(i for i in range(3, size or VOCABULARY) if i not in taken)
    last = min(size or VOCABULARY, FIRST_FREE)
    moved: dict[str, Any] = {}
    for name, value in known.items():
        if isinstance(value, (list, tuple)):
            moved[name] = 2
        elif isinstance(value, int) and not -1 <= value < last:
            moved[name] = next(free)
    return moved
