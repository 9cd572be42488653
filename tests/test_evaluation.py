"""`evaluate` from data to files: the numbers of a slow loop, bad rows named, interrupted runs taken up, one page."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
import tracemalloc
import weakref
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

from headwater.cli import evaluate as evaluate_command
from headwater.cli import report as report_command
from headwater.cli.refusals import Commands
from headwater.errors import (
    DataError,
    InputError,
    MissingExtra,
    ModelError,
    NotApplicable,
    TargetError,
    TrainingMode,
    UsageError,
)
from headwater.evaluation import job, sanity, stability
from headwater.evaluation import run as evaluations
from headwater.evaluation.files import load_evaluation
from headwater.evaluation.kept_lines import KeptLines
from headwater.evaluation.measures import PERTURBATIONS
from headwater.evaluation.protocols import ali2022
from headwater.evaluation.provenance import model_sha256
from headwater.evaluation.report import page
from headwater.evaluation.run import evaluate
from headwater.evaluation.sources import read_labelled
from headwater.evaluation.summary import evaluation_tables
from headwater.evaluation.tokens import TokenSource, find_replacement
from headwater.inputs.classes import Names
from headwater.names import split_names
from headwater_experiments.bench import speed
from headwater_experiments.data import LabelledTexts

TOKENS = tiny.tokenizer()
VALUES = {"good": 2.0, "film": 0.5, "bad": -1.0, "great": 3.0, "dull": -2.0}


class Bag(nn.Module):
    """A bag of words: the logit of class 1 is the sum of the words' values, that of class 0 is 0."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.config = SimpleNamespace(id2label={0: "negative", 1: "positive", 2: "neutral"}, pad_token_id=0)
        self.embed = nn.Embedding(120, classes, dtype=torch.float64)
        nn.init.zeros_(self.embed.weight)
        with torch.no_grad():
            for word, value in VALUES.items():
                self.embed.weight[TOKENS.convert_tokens_to_ids(word), 1] = value
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        return (self.embed(input_ids) * attention_mask.unsqueeze(-1)).sum(1)


TEXTS = ["good film bad", "the great movie was dull", "bad film", "a good , good film and not bad", "dull", "great"]
LABELS = [1, 1, 0, 1, 0, 1]
ROWS = list(zip(TEXTS, LABELS, strict=True))


def judged(model=None, data=ROWS, **options):
    settings = {"methods": ["gi"], "tokenizer": TOKENS, "runtime": False, "progress": False, **options}
    return evaluate(Bag() if model is None else model, data, **settings)


def same(a, b) -> bool:
    """Equal in every number of every sample, and in what is made of them."""
    pairs = [(a.samples.values[m][n], b.samples.values[m][n]) for m in a.methods for n in a.samples.values[m]]
    pairs += [(a.samples.common[n], b.samples.common[n]) for n in a.samples.common]
    pairs += [(np.array(list(vars(x).values())), np.array(list(vars(y).values()))) for x, y in estimates(a, b)]
    return a.methods == b.methods and all(np.array_equal(x, y) for x, y in pairs)


def estimates(a, b):
    return [(a[m].estimates[n], b[m].estimates[n]) for m in a.methods for n in a[m].estimates]


def test_a_sentence_worked_out_by_hand():
    """[CLS] good film bad [SEP]: five items, the special ones worth nothing, ranked like the others."""
    found = judged(data=[("good film bad", 1)])["gi"]
    shown = [0, 2, 2, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 1.5, 1.5]
    assert found.activation.mean == pytest.approx([1 / (1 + math.exp(-s)) for s in shown], abs=1e-12)
    assert found.aumse == pytest.approx(0.4375, abs=1e-12)


def test_special_tokens_can_be_kept():
    """good film bad: three items. Kept ones count nowhere, so a third is one item."""
    rule = ali2022.replace(special_tokens="kept", fractions=(0, 0.34, 0.67, 1))
    found = judged(data=[("good film bad", 1)], protocol=rule)
    assert found.samples.common["items"].tolist() == [3]
    assert found["gi"].activation.mean == pytest.approx([1 / (1 + math.exp(-s)) for s in (0, 2.5, 1.5, 1.5)])


def test_conservation_of_a_model_without_biases():
    found = judged(data=[*ROWS, ("good good", 1)])["gi"]
    assert found.conservation.correlation == pytest.approx(1)
    assert found.conservation.error == pytest.approx(0, abs=1e-12)
    assert found.conservation.largest_unaccounted < 1e-12


@pytest.mark.parametrize("name", ["bag", "bert"])
def test_the_numbers_are_those_of_a_loop_over_single_sentences(name):
    model = Bag() if name == "bag" else tiny.tiny("bert")
    methods = ["gi"] if name == "bag" else ["gi", "lrp"]
    slow = speed.loop(model, TOKENS, ROWS[:4], methods, tuple(measure.name for measure in PERTURBATIONS))
    for options in ({}, {"batch_tokens": 1, "batch_size": 1}, {"batch_tokens": 40, "chunk_size": 2}):
        fast = judged(model, ROWS[:4], methods=methods, measures="all", **options)
        for method in methods:
            for measure, curve in slow[method].items():
                assert fast.samples.values[method][measure] == pytest.approx(curve, abs=1e-10)


def test_a_model_that_cannot_pad_gives_the_same_numbers():
    bert = tiny.tiny("bert")
    padded, alone = judged(bert), judged(bert, tokenizer=tiny.tokenizer(pad=False))
    assert padded["gi"].auac == pytest.approx(alone["gi"].auac, abs=1e-12)


def test_speed_is_measured_and_written():
    found = speed.measure_speed(Bag(), TOKENS, ROWS, methods=["gi"], rounds=1)
    assert found.apart < 1e-10
    assert found.ratio == pytest.approx(found.loop / found.evaluation)
    assert speed.speed_table(found).rows[0][0] == "activation, pruning"


def test_texts_that_are_too_long_are_cut_alike_in_loop_and_evaluation():
    rows = speed.draw_rows(Bag(), TOKENS, [("good film bad " * 200, "positive"), *ROWS[:2]])
    assert [label for _, label in rows] == [1, 1, 1]
    assert speed.measure_speed(Bag(), TOKENS, rows, ["GI"], ["aumse", "activation"], rounds=1).apart < 1e-10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["lpr"]}, "Did you mean 'lrp'"),
        ({"measures": ["activaton"]}, "Did you mean 'activation'"),
        ({"rounds": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_timed_is_answered(options, message):
    with pytest.raises(UsageError, match=message):
        speed.measure_speed(Bag(), TOKENS, ROWS, **{"methods": ["gi"], **options})


@pytest.mark.parametrize("kind", ["dict", "table", "csv", "tsv", "jsonl", "parquet", "names"])
def test_data_in_every_form_give_the_same(kind, tmp_path):
    assert same(judged(), judged(data=in_form(kind, tmp_path)))


def in_form(kind, folder):
    names = ["Positive" if label else "negative" for label in LABELS]
    path = folder / f"data.{kind}"
    if kind == "dict":
        return {"text": TEXTS, "label": np.array(LABELS)}
    if kind == "names":
        return {"text": TEXTS, "label": names}
    if kind == "table":
        return LabelledTexts(TEXTS, [1 - label for label in LABELS], ("positive", "negative"), "turned round")
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps({"text": t, "label": n}) for t, n in ROWS))
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pa.parquet = pytest.importorskip("pyarrow.parquet")
        pa.parquet.write_table(pa.table({"text": TEXTS, "label": pa.array(LABELS, pa.int8())}), path)
    else:
        mark = {"csv": ",", "tsv": "\t"}[kind]
        path.write_text("\n".join([f"text{mark}label", *(f'"{t}"{mark}{n}' for t, n in ROWS)]))
    return path


CLASSES = Names(2, ("bad", "good").__getitem__, {"bad": 0, "0": 0, "good": 1, "1": 1}.__getitem__)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "\ufefftext,label\r\n\r\ngood,1\r\nbad\u2028film,0\r\n\r\n"),
        ("a.jsonl", '\ufeff{"text": "good", "label": 1}\r\n\r\n{"text": "bad\u2028film", "label": 0}\r\n\r\n'),
        ("a.ndjson", '{"text": "good", "label": 1}\n{"text": "bad\u2028film", "label": 0}'),
    ],
)
def test_marks_and_blank_lines_are_no_rows_and_only_a_line_feed_ends_one(name, content, tmp_path):
    (tmp_path / name).write_bytes(content.encode())
    found = read_labelled(tmp_path / name, "text", "label", CLASSES, True)
    assert (found.texts, found.labels) == (["good", "bad\u2028film"], [1, 0])


def test_a_cell_may_be_large(tmp_path):
    (tmp_path / "a.csv").write_text(f"text,label\n{'very ' * 40_000},1\n")
    found = read_labelled(tmp_path / "a.csv", "text", "label", CLASSES, True)
    assert len(found.texts[0]) == 200_000


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_of_two_columns_with_one_name_none_is_taken(name, tmp_path):
    if name == "a.parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table([["good"], [1], [0]], names=["text", "label", "label"]), tmp_path / name)
    else:
        (tmp_path / name).write_text("text,label,label\ngood,1,0\n")
    with pytest.raises(DataError, match="has 2 columns called 'label'"):
        read_labelled(tmp_path / name, "text", "label", CLASSES, True)


def test_what_was_kept_is_read_again_whatever_it_says(tmp_path):
    KeptLines.open(tmp_path / "rows.jsonl", {}, {}).add({"text": "one\u2028two\x85three"})
    assert KeptLines.open(tmp_path / "rows.jsonl", {}, {}).lines == [{"text": "one\u2028two\x85three"}]


@pytest.mark.parametrize("content", ["mine", "a line\nand half a line", '{"study": {}}\n{"half', "[1]\n", ""])
def test_a_file_that_holds_no_study_or_another_one_is_left_as_it_is(content, tmp_path):
    """A last line without an end was cut off before it was known whose file it is: one of a single line was emptied."""
    file = tmp_path / "mine.txt"
    file.write_text(content)
    with pytest.raises((UsageError, DataError), match=r"mine\.txt (holds|is) (no|another)"):
        KeptLines.open(file, {"seed": 1}, {})
    assert file.read_text() == content


def test_a_line_that_was_not_written_to_its_end_is_computed_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    KeptLines.open(file, {}, {}).add({"row": 1})
    whole = file.read_text()
    file.write_text(whole + '{"ro')
    assert KeptLines.open(file, {}, {}).lines == [{"row": 1}]
    assert file.read_text() == whole


def test_pandas_and_column_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sentence": TEXTS, "class": [float(label) for label in LABELS]})
    assert same(judged(), judged(data=frame, text_column="sentence", label_column="class"))


BAD = [
    ({"text": TEXTS}, "the data has no column 'label'; it has text"),
    ({"sentence": TEXTS, "label": LABELS}, "no column 'text'"),
    ([("good", 1), ("  ", 0)], "row 1 of the list: the text is empty"),
    ([("good", 1), ("good", 0), ("\u200b", 0)], "row 2 of the list: the text is empty"),
    ([("good", 1), (None, 0)], "row 1 of the list: the text is None, not a string"),
    ([("good", 1), ("bad", 2)], "row 1 of the list: the model has no label 2: the model has 2 classes"),
    ([("good", 1), ("bad", -1)], "row 1 .* no label -1"),
    ([("good", "positive"), ("bad", "negativ")], "row 1 .* no label 'negativ': .* Did you mean 'negative'"),
    ([("good", 1), ("bad", float("nan"))], "row 1 .* no label nan"),
    ([("good", 1), ("bad", True)], "row 1 .* no label True"),
    ([("good", 1), "bad"], "row 1 of the list is not a"),
    ([], "the list has no rows"),
    (LabelledTexts(["good"], [0], ("a", "b", "c"), "three"), "three has 3 labels .* the model 2 classes"),
    ("nowhere.parquet", "there is no file nowhere.parquet"),
    ("data.txt", "data.txt is none of .parquet"),
    (7, "data must be a path"),
]


@pytest.mark.parametrize(("data", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_data_are_refused_before_any_work_and_the_row_is_named(data, message, monkeypatch, tmp_path):
    monkeypatch.setattr(evaluations.EvaluationJob, "run", lambda *a: pytest.fail("work was begun"))
    with pytest.raises(DataError, match=message):
        judged(data=data, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text;label\ngood;1\n", "it has text;label. Its columns seem to stand between semicolons: a .csv"),
        ("a.csv", "text\tlabel\ngood\t1\n", "Its columns seem to stand between tabs: .* a .tsv file has tabs"),
        ("a.csv", "text,label\ngood,1\nbad\n", "row 1 of .*a.csv has 1 column under a header of 2"),
        ("a.jsonl", '{"text": "good", "label": 1}\nbad\n', "row 1 of .*a.jsonl is no JSON object"),
        ("a.jsonl", '{"text": "good", "label": 1}\n{"text": "bad"}\n', "row 1 of .* no label None"),
        ("a.parquet", "text", "is no parquet file"),
        ("a.csv", "", "no column 'text'; it has none"),
    ],
)
def test_bad_files_are_named(name, content, message, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        judged(data=tmp_path / name)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"methods": ["gi", "lpr"]}, UsageError, "Did you mean 'lrp'"),
        ({"methods": []}, UsageError, "no methods"),
        ({"protocol": "ali"}, UsageError, "Did you mean 'ali2022'"),
        ({"measures": ["activaton"]}, UsageError, "Did you mean 'activation'"),
        ({"tokenizer": None}, InputError, "need a tokenizer"),
        ({"batch_size": 0}, UsageError, "batch_size"),
        ({"batch_tokens": 0}, UsageError, "batch_tokens"),
        ({"chunk_size": 0}, UsageError, "chunk_size"),
        ({"limit": 0}, UsageError, "limit"),
    ],
)
def test_a_call_that_cannot_be_carried_out_is_answered(options, error, message):
    with pytest.raises(error, match=message):
        judged(**options)


def test_models_that_cannot_be_judged_are_refused():
    with pytest.raises(TrainingMode):
        judged(Bag().train())
    with pytest.raises(TargetError, match="at least 2 classes"):
        judged(tiny.tiny("gpt2"))


class Alone(Bag):
    """A bag of words that is called with the ids alone."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.embed(input_ids).sum(1)


def test_a_module_of_ones_own_is_given_what_it_takes():
    """It knows no mask, so no text is padded, and the numbers are those of the same bag with one."""
    assert judged(Alone())["gi"].auac == judged()["gi"].auac


@pytest.mark.parametrize("tokenizer", [TOKENS, None])
def test_a_module_that_takes_no_ids_hears_what_is_needed(tokenizer):
    class Own(Alone):
        def forward(self, tokens):
            return super().forward(tokens)

    message = re.escape("Own.forward(tokens) takes no input_ids") + ".*needs forward.input_ids, attention_mask"
    with pytest.raises(NotApplicable, match=message):
        judged(Own(), tokenizer=tokenizer)


def test_a_module_that_does_not_say_where_its_words_are_hears_what_is_needed():
    class Mute(Alone):
        get_input_embeddings = None

    with pytest.raises(NotApplicable, match=r"evaluate has no inputs=: give it a method get_input_embeddings\(\)"):
        judged(Mute())


def test_a_model_that_fails_on_replaced_tokens_says_what_to_do():
    class Reads(Bag):
        def forward(self, input_ids, attention_mask, token_type_ids=None):
            if not bool((input_ids == TOKENS.sep_token_id).any(1).all()):
                raise ValueError("no [SEP]")
            return super().forward(input_ids, attention_mask)

    with pytest.raises(ModelError, match="special_tokens=kept"):
        judged(Reads())
    assert judged(Reads(), protocol="ali2022(special_tokens=kept)")["gi"].auac > 0.5


def test_labels_are_not_needed_where_the_predicted_class_is_followed():
    found = judged(data={"text": TEXTS}, protocol="ali2022(target=predicted)")
    assert found.accuracy is None
    with_labels = judged(protocol="ali2022(target=predicted)")
    assert found["gi"].auac == with_labels["gi"].auac
    assert with_labels.accuracy == 1


def test_a_limit_is_drawn_by_the_seed_from_all_over_the_data():
    rows = [("good", 1)] * 50 + [("bad", 0)] * 50
    found = judged(data=rows, limit=20)
    drawn = found.samples.common["row"].tolist()
    assert len(drawn) == 20
    assert drawn == sorted(drawn)
    assert {0, 1} == set(found.samples.common["label"].tolist())
    assert drawn == judged(data=rows, limit=20).samples.common["row"].tolist()
    assert drawn != judged(data=rows, limit=20, seed=1).samples.common["row"].tolist()


def test_texts_are_cut_where_the_protocol_says():
    found = judged(data=[("good " * 40, 1)], protocol="ali2022(max_length=10)")
    assert found.samples.common["items"].tolist() == [10]
    longest = judged(data=[("good " * 400, 1)])
    assert longest.samples.common["items"].tolist() == [64]  # the tokenizer's own limit is shorter than 256


def test_which_token_replaces_stands_in_the_result():
    assert judged().provenance["replacement"] == {"kind": "unk", "token": "[UNK]", "id": 1}
    asked = judged(protocol="ali2022(replacement=mask)")
    assert asked.provenance["replacement"] == {"kind": "mask", "token": "[MASK]", "id": 4}
    asked = judged(protocol=ali2022.replace(replacement=7))
    assert (asked.provenance["replacement"]["kind"], asked.provenance["replacement"]["id"]) == ("id", 7)


def test_a_tokenizer_without_an_unknown_token():
    def told(**ids):
        tokenizer = SimpleNamespace(convert_ids_to_tokens=str, **{f"{k}_token_id": v for k, v in ids.items()})
        return find_replacement(Bag(), tokenizer, "unk").kind

    assert told(unk=None, mask=4) == "mask"
    assert told(pad=9) == "pad"
    with pytest.raises(UsageError, match="no unk or mask or pad token"):
        told()
    with pytest.raises(UsageError, match="the model's padding"):
        told(unk=0)


def test_a_plug_in_method_is_reached_by_its_name(monkeypatch):
    """Whatever `explain` knows is evaluated: here the same rules under two spellings of one name."""
    found = judged(tiny.tiny("bert"), methods=["lrp(ln+ah)", "LRP(AH+LN)"])
    assert found.methods == ("lrp(ah+ln)",)
    assert found["lrp(ln + ah)"].method == "lrp(ah+ln)"


@pytest.fixture
def counted(monkeypatch):
    """Which samples were computed, chunk by chunk; `stop_at` interrupts before that chunk."""
    chunk = evaluations.EvaluationJob.chunk
    seen = SimpleNamespace(chunks=[], stop_at=None)

    def watched(self, numbers, tick):
        if len(seen.chunks) == seen.stop_at:
            raise KeyboardInterrupt
        seen.chunks.append(list(numbers))
        return chunk(self, numbers, tick)

    monkeypatch.setattr(evaluations.EvaluationJob, "chunk", watched)
    return seen


def test_an_interrupted_run_is_taken_up_where_it_stopped(counted, tmp_path):
    pytest.importorskip("pyarrow")
    options = {"methods": ["gi", "lrp"], "measures": ["all"], "chunk_size": 2, "out": tmp_path / "out"}
    bert = tiny.tiny("bert")
    undisturbed = judged(bert, **{**options, "out": None})
    counted.chunks.clear()
    counted.stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        judged(bert, **options)
    with pytest.raises(DataError, match="was interrupted"):
        load_evaluation(tmp_path / "out")
    assert counted.chunks == [[0, 1], [2, 3]]
    counted.stop_at = None
    resumed = judged(bert, **options)
    assert counted.chunks == [[0, 1], [2, 3], [4, 5]]
    assert same(resumed, undisturbed)
    again = judged(bert, **options)
    assert len(counted.chunks) == 3
    assert same(again, undisturbed)
    assert same(load_evaluation(tmp_path / "out"), undisturbed)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["evaluation.json", "samples.parquet"]


def test_an_interruption_in_the_middle_of_writing_leaves_no_half_chunk(counted, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from headwater.evaluation import files

    replace = files.os.replace

    def stopped(source, target):
        if str(target).endswith("000001.parquet"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        judged(chunk_size=2, out=tmp_path)
    monkeypatch.setattr(files.os, "replace", replace)
    assert same(judged(chunk_size=2, out=tmp_path), judged())
    assert counted.chunks[:4] == [[0, 1], [2, 3], [2, 3], [4, 5]]


@pytest.mark.slow
def test_workers_give_the_same_numbers_and_are_gone_afterwards(tmp_path):
    pytest.importorskip("pyarrow")
    bert = tiny.tiny("bert")
    options = {"methods": ["gi", "lrp", "random"], "chunk_size": 2}
    alone = judged(bert, **options)
    shared = judged(bert, **options, workers=2, out=tmp_path)
    assert same(shared, alone)
    assert same(load_evaluation(tmp_path), alone)
    assert multiprocessing.active_children() == []
    with pytest.raises(UsageError, match="workers must be at least 1"):
        judged(bert, workers=0)


@pytest.mark.slow
def test_an_error_in_a_worker_is_the_error_of_the_call_and_what_was_done_is_kept(tmp_path):
    pytest.importorskip("pyarrow")
    longer = [*ROWS[:4], ("good " * 70, 1)]
    broken = Brittle()
    with pytest.raises(ModelError, match="too long for me"):
        judged(broken, data=longer, chunk_size=2, workers=2, out=tmp_path)
    assert multiprocessing.active_children() == []
    broken.limit = 1000
    assert same(judged(broken, data=longer, chunk_size=2, out=tmp_path), judged(broken, data=longer))


class Brittle(Bag):
    """Fails on texts that are too long for it."""

    limit = 50

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        if input_ids.shape[1] > self.limit:
            raise ValueError("too long for me")
        return super().forward(input_ids, attention_mask, token_type_ids)


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    """A killed parent cannot say goodbye."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from test_evaluation import ROWS, judged, tiny\n"
        "from headwater.evaluation import workers\n"
        "if __name__ == '__main__':\n"
        "    given = workers.compute_chunks\n"
        "    def killed(pool, chunks):\n"
        "        next(given(pool, chunks))\n"
        "        print(*pool._processes, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    from headwater.evaluation import job\n"
        "    job.compute_chunks = killed\n"
        "    judged(tiny.tiny('bert'), chunk_size=2, workers=2)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    children = [int(pid) for pid in done.stdout.split()]
    assert done.returncode < 0, done.stderr
    assert len(children) == 2
    until = time.monotonic() + 120
    while any(alive(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(alive(pid) for pid in children)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("name", ["samples.parquet", "parts/0.txt"])
@pytest.mark.parametrize("resume", [True, False])
def test_files_of_others_are_not_deleted(name, resume, tmp_path):
    """`--out .` took a folder `parts` and a file `samples.parquet` away that no evaluation had written."""
    pytest.importorskip("pyarrow")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=r"holds no evaluation and has (samples|parts)"):
        judged(out=tmp_path, resume=resume)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"model": Bag(3)}, "model_sha256"),
        ({"data": [*ROWS[:-1], ("good", 1)]}, "data_sha256"),
        ({"data": [*ROWS[:-1], ("great", 0)]}, "data_sha256"),
        ({"methods": ["gi", "lrp"]}, "methods was gi, is gi, lrp"),
        ({"protocol": "ali2022(error=mean)"}, r"protocol was ali2022, is ali2022\(error=mean\)"),
        ({"measures": ["activation"]}, "measures"),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"chunk_size": 3}, "chunk"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_another_evaluation_is_not_mixed_in(changed, named, finished, counted, tmp_path):
    pytest.importorskip("pyarrow")
    counted.stop_at = None if finished else 1
    try:
        judged(chunk_size=2, out=tmp_path)
    except KeyboardInterrupt:
        counted.stop_at = None
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match=named):
        judged(**{"chunk_size": 2, "out": tmp_path, **changed})
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    if changed.get("methods") is None:
        assert same(judged(**{"chunk_size": 2, "out": tmp_path, "resume": False, **changed}), judged(**changed))


def test_what_is_saved_is_enough_to_repeat_it(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    model = Bag()
    found = judged(model, out=tmp_path, measures="all", runtime=True)
    kept = json.loads((tmp_path / "evaluation.json").read_text())
    about = kept["provenance"]
    assert about["model_sha256"] == model_sha256(model)
    assert {"headwater", "torch", "python", "numpy"} <= set(about["versions"])
    assert about["seed"] == 0
    assert about["samples"] == len(ROWS)
    assert {"data_sha256", "device", "dtype", "started", "seconds", "hardware", "replacement"} <= set(about)
    assert kept["protocol"]["name"] == "ali2022"
    assert kept["methods"]["gi"]["scores"]["auac"]["value"] == pytest.approx(found["gi"].auac)
    assert kept["methods"]["gi"]["runtime"]["ratio"] > 0
    table = parquet.read_table(tmp_path / "samples.parquet")
    assert table.num_rows == len(ROWS)
    assert {"row", "label", "predicted", "method", "score", "inputs", "activation", "pruning"} <= set(
        table.column_names
    )
    loaded = load_evaluation(tmp_path)
    assert loaded["gi"].runtime == found["gi"].runtime
    assert repr(loaded["gi"].randomisation) == repr(found["gi"].randomisation)
    assert page(loaded).replace(" ", "") == page(found).replace(" ", "")


def test_the_hash_of_a_model_is_that_of_its_weights():
    first, second = Bag(), Bag()
    assert model_sha256(first) == model_sha256(second)
    with torch.no_grad():
        second.embed.weight[50, 0] += 1e-12
    assert model_sha256(first) != model_sha256(second)
    assert model_sha256(Bag().to(torch.bfloat16)) != model_sha256(first)


def test_the_model_is_left_as_it_was():
    model = tiny.tiny("bert")
    before = model_sha256(model)
    judged(model, measures=["all"], methods=["gi", "lrp"], runtime=True)
    assert model_sha256(model) == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_memory_does_not_grow_with_the_samples(monkeypatch):
    """At any time the texts of one chunk are loaded, however many there are."""
    part, alive, most = TokenSource.part, [], []

    def watched(self, samples):
        gc.collect()
        alive[:] = [ref for ref in alive if ref() is not None]
        found = part(self, samples)
        alive.append(weakref.ref(found))
        most.append((len(alive), len(found)))
        return found

    monkeypatch.setattr(TokenSource, "part", watched)
    judged(data=ROWS * 5, chunk_size=3)
    assert len(most) > 10
    assert max(count for count, _ in most) <= 2
    assert max(size for _, size in most) <= 3


@pytest.mark.parametrize(
    ("threads", "asked", "tokens"), [(1, None, 2048), (2, None, 4096), (64, None, 4096), (64, 7, 7)]
)
def test_batches_grow_with_the_threads_up_to_a_bound(threads, asked, tokens, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert evaluations.budget(Bag(), asked) == tokens


def live_bytes() -> tuple[int, int]:
    """In tensors that anything still holds, and in what Python and numpy have allocated.

    What torch and transformers allocate for themselves is left out: their caches fill for some twenty chunks, and stay.
    """
    gc.collect()
    tensors = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]
    others = [tracemalloc.Filter(False, f"*/site-packages/{name}/*") for name in ("torch", "transformers")]
    traced = tracemalloc.take_snapshot().filter_traces([*others, tracemalloc.Filter(False, tracemalloc.__file__)])
    return sum(t.numel() * t.element_size() for t in tensors), sum(trace.size for trace in traced.traces)


def kept_per_chunk(monkeypatch) -> tuple[int, float]:
    """By how many bytes tensors and Python's objects grow from one chunk of the same six texts to the next."""
    chunk, after, model = evaluations.EvaluationJob.chunk, [], tiny.tiny("bert")

    def watched(self, numbers, tick):
        found = chunk(self, numbers, tick)
        after.append(live_bytes())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(evaluations.EvaluationJob, "chunk", watched)
        tracemalloc.start()
        try:
            judged(model, ROWS * 9, methods=["gi", "lrp"], chunk_size=len(ROWS))
        finally:
            tracemalloc.stop()
    tensors, traced = zip(*after[2:], strict=True)  # the first chunks fill caches
    steps = [later - earlier for earlier, later in pairwise(traced)]
    return tensors[-1] - tensors[0], statistics.median(steps)  # what grows once is a cache, too


@pytest.mark.slow
def test_from_chunk_to_chunk_only_numbers_are_kept(monkeypatch):
    """Six samples, two methods, 28 numbers each are 2.7 kB, and as much again for their arrays."""
    tensors, traced = kept_per_chunk(monkeypatch)
    assert tensors == 0
    assert 2000 < traced < 12000


@pytest.mark.slow
def test_keeping_explanations_would_be_seen(monkeypatch):
    ledger_columns, kept = job.ledger_columns, []
    monkeypatch.setattr(job, "ledger_columns", lambda made: kept.append(made) or ledger_columns(made))
    tensors, traced = kept_per_chunk(monkeypatch)
    assert tensors > 0
    assert traced > 30000


def test_runtime_is_measured_against_the_forward_pass():
    found = judged(tiny.tiny("bert"), methods=["gi", "lrp"], runtime=True)
    assert found["lrp"].runtime.ratio > 1
    assert found["lrp"].runtime.error < 1e-10
    assert judged(runtime=False)["gi"].runtime is None


def test_scrambled_weights_change_an_explanation_that_explains():
    """With its words' values drawn anew, a bag of words ranks them anew."""
    texts = ["good film bad great dull movie the", "a dull bad great film not good", "great good bad dull film act"] * 8
    model = Bag()
    with torch.no_grad():
        model.embed.weight.copy_(torch.randn(120, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    (stage,) = sanity.randomisation(model, texts, method="gi", tokenizer=TOKENS, seed=3)
    assert stage.module == "embed"
    assert stage.correlation.value < 0.9


def test_scrambling_cascades_from_the_output_to_the_embeddings():
    bert = tiny.tiny("bert")
    stages = sanity.randomisation(bert, TEXTS, method="lrp", tokenizer=TOKENS, mode="cascading")
    names = [stage.module for stage in stages]
    assert names[0] == "classifier"
    assert names[-1] == "bert.embeddings"
    assert names.index("bert.encoder.layer.1") < names.index("bert.encoder.layer.0")
    (full,) = sanity.randomisation(bert, TEXTS, method="lrp", tokenizer=TOKENS, mode="full")
    assert full == stages[-1]
    assert full.correlation.value < 0.99


def test_an_explanation_that_ignores_the_model_is_found_out(monkeypatch):
    """One that depends on the text alone correlates perfectly with itself."""
    explain = sanity.TokenPart.explain

    def ignorant(self, samples, method, target, seed):
        made = explain(self, samples, method, target, seed)
        return [dataclasses.replace(e, relevance=torch.arange(len(e.relevance)).double()) for e in made]

    monkeypatch.setattr(sanity.TokenPart, "explain", ignorant)
    found = judged(tiny.tiny("bert"), measures=["activation", "randomisation"])
    assert found["gi"].randomisation.value == pytest.approx(1)


def test_infidelity_by_hand():
    """Relevance that is exact forecasts every removal; relevance of zero misses by the square of what was removed."""
    pytest.importorskip("captum")
    assert judged(measures=["activation", "infidelity"])["gi"].infidelity == pytest.approx(0, abs=1e-20)
    part = TokenSource(Bag(), TOKENS, ["great"], ali2022).part([0])
    (made,) = part.explain([0], "gi", 1, 0)
    blind = dataclasses.replace(made, relevance=torch.zeros(3))
    (found,) = stability.infidelity(part, "gi", [blind], np.array([1]), seed=0, draws=400)
    assert found == pytest.approx(9 / 2, abs=0.7)  # 3 logits, gone in half of the draws: three standard errors


def test_sensitivity_by_hand():
    """Gradient x Input of a sum is its input: noise within a tenth of the spread moves it by no more than that."""
    pytest.importorskip("captum")
    found = judged(data=[("great", 1)], measures=["activation", "sensitivity"])["gi"].sensitivity
    embedded = torch.tensor([[0.0, 0.0], [0.0, 3.0], [0.0, 0.0]], dtype=torch.float64)
    assert 0 < found <= 0.1 * float(embedded.std()) * math.sqrt(3) / 3
    model = tiny.tiny("bert")
    assert judged(model, measures=["activation", "sensitivity"], methods=["lrp"], limit=2)["lrp"].sensitivity > 0
    assert not any(m._forward_hooks for m in model.modules())


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(MissingExtra, match=r"infidelity needs: pip install 'headwater\[captum\]'"):
        judged(measures=["activation", "infidelity"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(evaluations.EvaluationJob, "run", lambda *a: pytest.fail("work was begun"))
    with pytest.raises(MissingExtra, match=r"headwater\[data\]"):
        judged(out=tmp_path / "out")


def test_progress_is_on_standard_error(capsys):
    judged(progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "6 of 6 samples" in shown.err
    judged(progress=None)
    assert capsys.readouterr() == ("", "")


@pytest.fixture(scope="module")
def evaluated():
    return judged(tiny.tiny("bert"), methods=["gi", "lrp(ah+ln)", "lrp"], measures="all", runtime=True)


def test_the_page_needs_nothing_else(evaluated):
    shown = page(evaluated, "A & B <script>alert(1)</script>")
    assert "<script" not in shown
    assert "A &amp; B" in shown
    assert not re.search(r"""(src|href)\s*=|url\(|@import""", shown)
    assert re.findall(r"https?://[^\"' ]+", shown) == ["http://www.w3.org/2000/svg"] * shown.count("xmlns=")
    assert shown.count("<svg") == 4 + 3 + 3  # curves, legend, scatter plots
    for name in ("lrp(ah+ln)", "AUAC", "ali2022", evaluated.provenance["model_sha256"]):
        assert name in shown


def test_the_page_says_which_is_best(evaluated):
    best = max(evaluated, key=lambda one: one.auac)
    assert re.search(rf'<th scope="row">{re.escape(best.method)}</th><td><b>0\.', page(evaluated))


def test_the_page_escapes_what_comes_from_outside(evaluated):
    about = {**evaluated.provenance, "data": "<img onerror=x>", "model": "</style><b>"}
    shown = page(dataclasses.replace(evaluated, provenance=about))
    assert "<img" not in shown
    assert "&lt;img onerror=x&gt;" in shown
    assert shown.count("</style>") == 1


def test_a_page_of_one_method_on_one_sample():
    found = judged(data=[("great", 1)])
    shown = page(found)
    assert "Conservation" in shown
    assert "<td>—" in shown  # one sample has no correlation
    assert not re.search(r"\bnan\b", shown)
    assert [row[1] for row in evaluation_tables(found)[-1].rows] == ["—"]


def test_one_sample_says_nothing_of_how_sure_its_numbers_are():
    """Every resample was that sample: intervals were of no width, and p was .001."""
    found = judged(data=[("good film bad", 1)], methods="gi,random")
    assert found.methods == ("gi", "random")
    for d in (found.compare("gi", "random"), found.to_the_best("auac")["random"]):
        assert d.value != 0
        assert d.better is None
        assert all(math.isnan(number) for number in (d.low, d.high, d.share, d.p))
        assert (d.to_dict()["p"], d.to_dict()["low"]) == (None, None)
    assert all(map(math.isnan, found["gi"].interval()))
    assert "NaN" not in json.dumps(found.to_dict())
    shown = page(found)
    assert not re.search(r"\bnan\b|NaN|nan%|&lt; \.001", shown)
    (row,) = [row for row in evaluation_tables(found)[0].rows if row[3] != "best"]
    assert (row[2], *row[4:]) == ("—", "—", "—")


app = typer.Typer(cls=Commands)
app.command("evaluate")(evaluate_command.command)
app.command("report")(report_command.command)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    tiny.tiny("bert", torch.float32).save_pretrained(place)
    TOKENS.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    path.write_text("\n".join(["text,label", *(f'"{text}",{label}' for text, label in ROWS)]))
    return path


def call(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_says_how_to_go_on(directory, data, tmp_path, monkeypatch, kept):
    def stops(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluations, "evaluate", stops)
    done = call("evaluate", "--model", directory, "--data", data, *(["--out", tmp_path / "out"] if kept else []))
    assert done.exit_code == 130
    assert ("out, and the same command goes on" in done.stderr) == kept
    assert ("nothing was kept: with --out" in done.stderr) != kept


def test_the_command_evaluates_and_reports(directory, data, tmp_path):
    pytest.importorskip("pyarrow")
    words = ["evaluate", "--model", directory, "--data", data, "--methods", "gi, lrp(ah+ln)", "--out", tmp_path / "out"]
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert re.search(r"^AUAC, higher is better:$", done.stdout, re.M)
    assert re.search(r"^  lrp\(ah\+ln\)\s+0\.\d{4}", done.stdout, re.M)
    assert "headwater report" in done.stderr
    record = json.loads(call(*words, "--json").stdout)
    assert record["methods"]["gi"]["scores"]["auac"]["value"] == load_evaluation(tmp_path / "out")["gi"].auac
    done = call("report", tmp_path / "out", "--out", tmp_path / "page.html", "--title", "Mine")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "<h1>Mine</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert json.loads(call("report", tmp_path / "out", "--json").stdout) == record
    done = call("report", tmp_path / "out", "--json", "--out", tmp_path / "other.html")
    assert json.loads(done.stdout) == record
    assert (tmp_path / "other.html").stat().st_size > 1000
    before = (tmp_path / "out" / "samples.parquet").read_bytes()
    done = call("report", tmp_path / "out", "--out", tmp_path / "out" / "samples.parquet")
    assert done.exit_code == 2
    assert (tmp_path / "out" / "samples.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "lpr"], "Did you mean 'lrp'?"),
        (["--protocol", "ali"], "Did you mean 'ali2022'?"),
        (["--label-column", "klass"], "no column 'klass'"),
        (["--measures", "auca"], "no measure called 'auca'"),
        (["--out", __file__], "test_evaluation.py cannot be written"),
    ],
)
def test_the_command_answers_what_it_cannot_do(words, message, directory, data):
    done = call("evaluate", "--model", directory, "--data", data, *words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr


def test_a_report_of_nothing_is_refused(tmp_path):
    done = call("report", tmp_path)
    assert done.exit_code == 2
    assert "holds no evaluation.json" in done.stderr


def test_commas_inside_brackets_do_not_separate():
    assert split_names("gi, lrp(ah+ln),x(a=1,b=2)") == ["gi", "lrp(ah+ln)", "x(a=1,b=2)"]


def test_the_commands_load_nothing_heavy_before_they_run():
    code = "import headwater.cli.evaluate, headwater.cli.report, sys; print({'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
