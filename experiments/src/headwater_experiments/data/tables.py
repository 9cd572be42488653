"""Labelled texts as a table, read from a file or asked of the Hugging Face hub, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import DataError, require_extra
from headwater.inputs.table import LabelledTexts

TEXT_COLUMNS = ("text", "sentence", "Utterance")
LABEL_COLUMNS = ("label", "Sentiment")


@dataclass(frozen=True)
class Hub:
    """Where the Hugging Face hub keeps a dataset as parquet files; scripts of datasets no longer load."""

    path: str
    splits: Mapping[str, str]
    config: str | None = None
    revision: str | None = None

    def read(self, split: str, label_names: tuple[str, ...]) -> LabelledTexts:
        with require_extra(f"loading {self.path} from the hub", "data"):
            from datasets import load_dataset
        options = {"name": self.config, "revision": self.revision}
        try:
            columns = load_dataset(
                self.path, split=self.splits[split], **{name: value for name, value in options.items() if value}
            )
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self.path} could not be loaded from the hub: {error}. Set HEADWATER_DATA to a directory that holds "
                "it."
            ) from error
        source = ", ".join(filter(None, (self.path, self.config, self.splits[split])))
        return check_table({n: list(columns[n]) for n in columns.column_names}, label_names, source)


def read_folder(folder: Path, stems: Sequence[str], label_names: tuple[str, ...]) -> LabelledTexts:
    """The first of the files `stem`.parquet and `stem`.tsv that is there."""
    for stem in stems:
        for suffix, read in ((".parquet", _read_parquet), (".tsv", _read_tsv)):
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                return check_table(read(path), label_names, str(path))
    raise DataError(
        f"no file {stems[0]}.parquet or {stems[0]}.tsv in {folder}. Put it there, point HEADWATER_DATA at the "
        f"directory above {folder.name}/, or unset HEADWATER_DATA to load from the Hugging Face hub."
    )


def check_table(columns: Mapping[str, list[object]], label_names: tuple[str, ...], source: str) -> LabelledTexts:
    """Columns as a table: texts stripped, labels as class numbers, whether they came as numbers or as names."""
    text = next((c for c in TEXT_COLUMNS if c in columns), None)
    label = next((c for c in LABEL_COLUMNS if c in columns), None)
    if text is None or label is None:
        raise DataError(f"{source} has the columns {', '.join(columns)}; needed are text (or sentence) and label.")
    texts = [str(value).strip() for value in columns[text]]
    labels = [_label(value, label_names, source) for value in columns[label]]
    return LabelledTexts(texts, labels, label_names, source)


def _label(value: object, names: tuple[str, ...], source: str) -> int:
    text = str(value).strip().lower()
    if text.isdigit() and int(text) < len(names):
        return int(text)
    if text in names:
        return names.index(text)
    raise DataError(
        f"{source} holds the label {str(value)!r}; it must be a number from 0 to {len(names) - 1} or one of "
        f"{', '.join(names)}."
    )


def _read_parquet(path: Path) -> dict[str, list[object]]:
    with require_extra(f"reading {path.name}", "data"):
        from pyarrow import parquet
    columns: dict[str, list[object]] = parquet.read_table(path).to_pydict()
    return columns


def _read_tsv(path: Path) -> dict[str, list[object]]:
    """Tab-separated columns under a header line, without quoting: a quotation mark is part of the text."""
    header, *lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    names = header.split("\t")
    rows = [line.split("\t") for line in lines]
    bad = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if bad is not None:
        raise DataError(f"{path}, line {bad + 2}: {len(rows[bad])} columns under a header of {len(names)}.")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
