"""Texts in the forms that people have them in: columns of tables, arrays, generators, questions with their context.

What can be read in one way alone is read; the rest is refused with the line to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import InputError

PAIRS = (("question", "context"), ("text", "text_pair"), ("premise", "hypothesis"), ("sentence1", "sentence2"))
USUAL = ("text", "sentence", "review", "content", "comment", "document", "question")


def read_data(data: Any) -> Any:
    """The data as a text, a pair, or a list; whatever holds no texts is left as it is."""
    if isinstance(data, (str, Tensor)):
        return data
    if isinstance(data, bytes):
        raise InputError("the text is bytes: pass data.decode('utf-8').")
    if isinstance(data, Mapping):
        return read_mapping(data)
    if is_frame(data):
        raise InputError(say_column(type(data).__name__, list_columns(data), texts_in(data)))
    if isinstance(data, tuple) and all(isinstance(part, str) for part in data) and len(data) != 2:
        raise InputError(f"a tuple of two texts is a pair, and this has {len(data)}: pass several texts as a list.")
    if isinstance(data, Set) and not isinstance(data, KeysView):
        raise InputError("a set of texts has no order: pass sorted(data).")
    if comes_in_rows(data):
        return [read_entry(row) for row in list_rows(data)]
    if isinstance(data, list):
        refuse_chat(data)
        return [read_entry(row) for row in data]
    return data


def read_samples(data: Any) -> Any:
    """Samples of a model's own kind are left as they are; a column or a generator of them is a list."""
    return list_rows(data) if comes_in_rows(data) else data


def comes_in_rows(data: Any) -> bool:
    return is_column(data) or isinstance(data, (Iterator, KeysView, ValuesView))


def read_entry(row: Any) -> Any:
    """One entry of a list: a row with a question and a context is a pair."""
    if isinstance(row, Mapping):
        return read_mapping(row)
    flat = isinstance(row, list) or (isinstance(row, np.ndarray) and row.ndim == 1)
    if flat and len(row) and all(isinstance(part, str) for part in row):
        raise InputError("an entry is a list of texts. If it is a pair, write [tuple(pair) for pair in data].")
    return row


def read_mapping(data: Mapping[Any, Any]) -> Any:
    """A row, or columns, of texts by name; tensors by name are a model's arguments, and stay."""
    texts = [key for key, value in data.items() if isinstance(value, str) or is_texts(value)]
    splits = [key for key, value in data.items() if is_frame(value)]
    if splits:
        inner = data[splits[0]]
        said = say_column("dict of tables", list_columns(inner), texts_in(inner), f"[{splits[0]!r}]")
        raise InputError(said)
    if not texts or "input_ids" in data or any(isinstance(value, Tensor) for value in data.values()):
        return data
    for first, second in PAIRS:
        if first in texts and second in texts:
            return join_pair(data[first], data[second])
    if "text" in texts:
        return read_data(data["text"])
    one, *others = [f"data[{key!r}]" for key in texts]
    pair = f", or a pair of them, ({one}, {others[0]})" if others else ""
    raise InputError(f"a dict with {', '.join(map(repr, texts))} does not say which is the text: pass {one}{pair}.")


def join_pair(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return (first, second)
    if isinstance(first, str) or isinstance(second, str):
        raise InputError("of a pair by name one is a text and the other a list of texts.")
    firsts, seconds = list_rows(first), list_rows(second)
    if len(firsts) != len(seconds):
        raise InputError(f"of pairs by name there are {len(firsts)} first texts and {len(seconds)} second ones.")
    return list(zip(firsts, seconds, strict=True))


def is_texts(value: Any) -> bool:
    """A list or column of texts."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(part, str) for part in value)
    return is_column(value) and bool(len(value)) and all(isinstance(part, str) for part in list_rows(value))


def comes_from(value: Any, *packages: str) -> bool:
    return type(value).__module__.partition(".")[0] in packages


def is_frame(value: Any) -> bool:
    """A table with columns by name: of pandas, polars, pyarrow or datasets."""
    if comes_from(value, "pandas", "polars"):
        return getattr(value, "ndim", 2) == 2 and hasattr(value, "columns")
    return comes_from(value, "pyarrow", "datasets") and hasattr(value, "column_names")


def is_column(value: Any) -> bool:
    """One column of such a table, or an array of strings."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "UTO"
    if comes_from(value, "pandas", "polars"):
        return not is_frame(value) and (hasattr(value, "tolist") or hasattr(value, "to_list"))
    return comes_from(value, "pyarrow", "datasets") and not is_frame(value) and isinstance(value, Iterable)


def list_rows(column: Any) -> list[Any]:
    """A column as a list. Rows of an array with two columns are pairs."""
    if isinstance(column, np.ndarray):
        rows = column.tolist()
        if column.ndim == 2 and column.shape[1] == 2:
            return [tuple(row) for row in rows]
        if column.ndim > 1:
            raise InputError(f"an array of texts has one axis, or two texts a row, not the shape {column.shape}.")
        return rows if isinstance(rows, list) else [rows]
    for name in ("to_pylist", "tolist", "to_list"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def list_columns(frame: Any) -> list[str]:
    names = getattr(frame, "column_names", None)
    return [str(name) for name in (names if names is not None else frame.columns)]


def texts_in(frame: Any) -> list[str]:
    """The columns that begin with a text."""

    def begins(name: str) -> bool:
        try:
            return len(frame[name]) > 0 and is_texts(frame[name][:1])
        except Exception:  # a column may have any name, and any type
            return False

    return [name for name in list_columns(frame) if begins(name)]


def say_column(what: str, names: list[str], texts: list[str], inside: str = "") -> str:
    """Which column to pass: one that is usually called so, else the first that holds texts."""
    usual = [name for name in USUAL if name in texts] or texts or names or ["text"]
    shown = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"a {what} has the columns {shown}: pass the one that holds the texts, data{inside}[{usual[0]!r}]."


def refuse_chat(data: list[Any]) -> None:
    if data and all(isinstance(turn, Mapping) and {"role", "content"} <= set(turn) for turn in data):
        raise InputError("a list of turns is a chat: hw.explain_generation(model, chat=data, tokenizer=tokenizer).")
