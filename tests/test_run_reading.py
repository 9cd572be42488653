"""Rows out of every kind of file, any stretch of them, and hostile ones."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from jobs_here import here, results, run, sentences, write
from pyarrow import parquet

from headwater.errors import DataError
from headwater.inputs import lines as text_lines
from headwater.jobs.reading import lines, rows
from headwater.jobs.reading.rows import Bad
from headwater.jobs.reading.sources import RowReader, find_sources

TEXTS = [f"row {i} of many" for i in range(1300)]


def all_of(data, columns=("text",), step=100):
    """Read in stretches, each after the other."""
    sources = find_sources(data, columns)
    reading = RowReader(sources)
    found, tables = [], []
    for start in range(0, sources.rows, step):
        part = reading.read(start, min(start + step, sources.rows))
        found += part.texts
        tables.append(part.carried)
    return found, pa.concat_tables(tables)


def as_csv(path, texts, labels):
    quoted = (f'"{text.replace(chr(34), chr(34) * 2)}",{label}' for text, label in zip(texts, labels, strict=True))
    path.write_text("\n".join(["text,label", *quoted, ""]), encoding="utf-8")


def as_jsonl(path, texts, labels):
    made = (json.dumps({"text": text, "label": label}) for text, label in zip(texts, labels, strict=True))
    path.write_text("".join(line + "\n\n" for line in made), encoding="utf-8")


def as_parquet(path, texts, labels):
    parquet.write_table(pa.table({"label": labels, "text": texts}), path, row_group_size=333)


def as_dataset(path, texts, labels):
    pytest.importorskip("datasets").Dataset.from_dict({"text": texts, "label": labels}).save_to_disk(path)


WRITERS = {"in.csv": as_csv, "in.jsonl": as_jsonl, "in.parquet": as_parquet, "in": as_dataset}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_rows(tmp_path, name):
    texts = [text + ("\n, \"quoted\" 'x'\t" if i % 3 else "") for i, text in enumerate(TEXTS)]
    WRITERS[name](tmp_path / name, texts, list(range(1300)))
    found, carried = all_of(tmp_path / name, ("text", "label"))
    assert found == texts
    assert [int(label) for label in carried.column("label").to_pylist()] == list(range(1300))
    assert carried.schema.field("label").type == (pa.string() if "." in name and "parquet" not in name else pa.int64())


@pytest.mark.parametrize("name", WRITERS)
def test_stretches_may_be_asked_in_any_order(tmp_path, name):
    WRITERS[name](tmp_path / name, TEXTS, [0] * 1300)
    reading = RowReader(find_sources(tmp_path / name, ["text"]))
    draw = random.Random(1)
    for _ in range(40):
        start = draw.randrange(1300)
        stop = draw.randint(start + 1, 1300)
        assert reading.read(start, stop).texts == TEXTS[start:stop]


def test_files_go_one_after_the_other(tmp_path):
    as_csv(tmp_path / "a.csv", TEXTS[:700], ["x"] * 700)
    as_jsonl(tmp_path / "b.jsonl", TEXTS[700:701], ["x"])
    (tmp_path / "c.csv").write_text("label,text\n")
    parquet.write_table(pa.table({"text": TEXTS[701:], "label": ["y"] * 599}), tmp_path / "d.parquet")
    for data in (tmp_path, str(tmp_path / "*.*"), sorted(tmp_path.iterdir())):
        found, carried = all_of(data, ("text", "label"))
        assert found == TEXTS
        assert carried.column("label").to_pylist() == ["x"] * 701 + ["y"] * 599
    sources = find_sources(tmp_path, ["text"])
    assert sources.place(705) == (str(tmp_path / "d.parquet"), 4)


def test_splits_of_a_dataset_are_read_in_their_order(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = {name: datasets.Dataset.from_dict({"text": [name, "good"]}) for name in ("test", "train")}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "both")
    assert all_of(tmp_path / "both")[0] == ["test", "good", "train", "good"]
    shuffled = datasets.Dataset.from_dict({"text": TEXTS}).shuffle(seed=3)
    shuffled.save_to_disk(tmp_path / "shuffled")
    assert all_of(tmp_path / "shuffled")[0] == shuffled["text"][:]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"a.csv": "review,label\nx,1\n"}, "no column 'text'; it has 'review', 'label'"),
        ({"a.jsonl": '{"review": "x"}\n'}, "no column 'text'; it has 'review'"),
        ({"a.csv": ""}, "has no header line"),
        ({"a.csv": "text\n"}, "no rows"),
        ({"a.xlsx": "PK"}, "is none of .parquet, .csv"),
        ({"a.csv.gz": "x"}, "is packed"),
        ({"a.parquet": "not parquet"}, "is no parquet file"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, made, said):
    for name, content in made.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=said):
        find_sources([tmp_path / name for name in made], ["text"])


def test_input_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        find_sources(tmp_path / "*.csv", ["text"])
    with pytest.raises(DataError, match=r"holds no .parquet"):
        find_sources(tmp_path, ["text"])
    with pytest.raises(DataError, match="no input"):
        find_sources([], ["text"])


def test_columns_of_two_types_are_refused(tmp_path):
    write(tmp_path / "a.parquet", text=["x"], label=[1])
    write(tmp_path / "b.parquet", text=["x"], label=["one"])
    assert find_sources(tmp_path, ["text"]).rows == 2
    with pytest.raises(DataError, match=r"'label' is int64 in .*a.parquet and string in .*b.parquet"):
        find_sources(tmp_path, ["text", "label"])


BROKEN = b"caf\xe9 au lait"


def test_bytes_that_are_not_utf8_spoil_their_row_alone(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\ngood,1\n" + BROKEN + b",2\nbad," + BROKEN + b"\ngood,4\n")
    found, carried = all_of(tmp_path / "a.csv", ("text", "label"))
    assert [getattr(text, "reason", text) for text in found] == ["good", "invalid UTF-8", "bad", "good"]
    assert found[1].text == "caf\\xe9 au lait"
    assert carried.column("label").to_pylist() == ["1", "2", "caf\ufffd au lait", "4"]
    (tmp_path / "b.jsonl").write_bytes(
        b'{"text": "good"}\n{"text": "' + BROKEN + b'"}\n{"text": "\\ud800 half"}\n{"text": "caf\xc3\xa9"}\n'
    )
    found, _ = all_of(tmp_path / "b.jsonl")
    assert [getattr(text, "reason", text) for text in found] == ["good", "invalid UTF-8", "invalid UTF-8", "café"]
    raw = pa.array([b"good", BROKEN, None, b"bad"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"text": raw, "label": raw}), tmp_path / "c.parquet")
    found, carried = all_of(tmp_path / "c.parquet", ("text", "label"))
    assert [getattr(text, "reason", text) for text in found] == ["good", "invalid UTF-8", "empty", "bad"]
    assert carried.column("label").to_pylist() == ["good", "caf\ufffd au lait", None, "bad"]


def test_rows_that_are_no_rows(tmp_path):
    deep = "[" * 100_000
    (tmp_path / "a.jsonl").write_text(
        f'{{"text": "good"}}\n{{"text": \n[1, 2]\n{{"label": 3}}\n{{"text": 4}}\n{deep}\n'
    )
    found, _ = all_of(tmp_path / "a.jsonl")
    assert found[0] == "good"
    assert [text.reason for text in found[1:]] == [*["unreadable row"] * 3, "not text", "unreadable row"]
    (tmp_path / "b.csv").write_text("text,label\ngood,1\nbad\nvery,bad,indeed\ngood,2\n")
    found, _ = all_of(tmp_path / "b.csv")
    assert [getattr(text, "reason", text) for text in found] == ["good", "unreadable row", "unreadable row", "good"]
    assert found[1].message == "the row has 1 column under a header of 2"
    write(tmp_path / "c.parquet", text=[1, 2])
    assert {text.reason for text in all_of(tmp_path / "c.parquet")[0]} == {"not text"}


def test_a_byte_order_mark_is_no_part_of_a_column_name(tmp_path):
    (tmp_path / "a.csv").write_text("\ufefftext\ngood\n", encoding="utf-8")
    assert all_of(tmp_path / "a.csv")[0] == ["good"]


def test_a_quotation_mark_that_is_never_closed_takes_one_row(tmp_path, monkeypatch):
    for module in (lines, text_lines):
        monkeypatch.setattr(module, "MOST_BYTES", 4096)
    (tmp_path / "a.csv").write_text("text\ngood\n" + '"never closed ' + "x" * 5000 + "\nbad\ngood\n")
    found, _ = all_of(tmp_path / "a.csv")
    assert found[0] == "good"
    assert isinstance(found[1], Bad)
    assert "more than" in found[1].message
    assert found[2:] == ["bad", "good"]


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl", "in.parquet"])
def test_ten_megabytes_in_one_cell(tmp_path, name, monkeypatch):
    here(monkeypatch)
    WRITERS[name](tmp_path / name, ["good", "very " * 2_000_000, "bad"], [1, 2, 3])
    stored = run(tmp_path / name, tmp_path / "out")
    (error,) = stored.errors()
    assert (error["row_id"], error["reason"]) == (1, "too long")
    assert error["message"] == "the text has 10,000,000 characters, 1,000,000 at most"
    assert len(error["text"]) == rows.SHOWN
    assert results(tmp_path / "out").column("row_id").to_pylist() == [0, 2]


@pytest.mark.slow
def test_ten_megabytes_may_be_cut(tmp_path, monkeypatch):
    here(monkeypatch)
    as_parquet(tmp_path / "in.parquet", ["very " * 2_000_000], [1])
    (row,) = run(tmp_path / "in.parquet", tmp_path / "out", truncate=True).rows()
    assert len(row["tokens"]) == 64


def test_control_characters_are_explained_and_kept(tmp_path, monkeypatch):
    here(monkeypatch)
    nasty = ["good\x00 film", "\x1b[31mbad\x1b[0m", "a\r\nb\u2028c\u202e", *sentences(3)]
    write(tmp_path / "in.parquet", text=nasty)
    stored = run(tmp_path / "in.parquet", tmp_path / "out")
    assert [row["text"] for row in stored.rows()] == nasty


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path):
    as_csv(tmp_path / "a.csv", TEXTS, [0] * 1300)
    reading = RowReader(find_sources(tmp_path / "a.csv", ["text"]))
    as_csv(tmp_path / "a.csv", TEXTS[:100], [0] * 100)
    with pytest.raises(DataError, match="became shorter"):
        reading.read(90, 120)
