"""`evaluate` and `audit_bias` take a run's directory: what was explained is not explained again."""

from __future__ import annotations

import pickle
import random

import pytest

pytest.importorskip("pyarrow")

import tiny
import torch
from jobs_here import here, run, sentences, write

import headwater as hw
from headwater.bias import audit
from headwater.defaults import TEXT_METHOD
from headwater.errors import DataError, UsageError
from headwater.evaluation import tokens
from headwater.store.manifest import read_manifest, write_manifest

TEXTS = sentences(60)
BERT = tiny.tiny("bert", torch.float32)
GROUPS = {"first": ["mary"], "second": ["john"]}


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    return here(monkeypatch)


@pytest.fixture
def explained(monkeypatch):
    """How many texts were explained since, by method."""
    counted: list[int] = []
    given = tokens.answer_all

    def counting(ask):
        made = given(ask)
        counted.append(len(made))
        return made

    monkeypatch.setattr(tokens, "answer_all", counting)
    return counted


@pytest.fixture
def data(tmp_path):
    labels = [random.Random(i).randrange(3) for i in range(60)]
    return write(tmp_path / "in.parquet", text=[*TEXTS, ""], label=[*labels, 0])


def judged(data, **options):
    given = {"methods": ["lrp"], "tokenizer": tiny.tokenizer(), "runtime": False, **options}
    return hw.evaluate(BERT, data, **given)


def test_an_evaluation_takes_what_was_explained(data, tmp_path, explained):
    stored = run(data, tmp_path / "out", columns=["text", "label"], method="lrp")
    plain = write(tmp_path / "plain.parquet", text=TEXTS, label=[row["label"] for row in stored.rows()])
    anew = judged(plain, protocol="ali2022(target=predicted)")
    assert sum(explained) == 60
    explained.clear()
    found = judged(tmp_path / "out", protocol="ali2022(target=predicted)")
    assert explained == []
    assert found["lrp"].auac == pytest.approx(anew["lrp"].auac, abs=1e-6)
    assert found["lrp"].aumse == pytest.approx(anew["lrp"].aumse, rel=1e-4)
    assert found.samples.common["row"].tolist() == list(range(60))
    assert found.provenance["run"] == stored.manifest.job


@pytest.mark.slow
def test_another_class_or_method_is_explained_where_it_must_be(data, tmp_path, explained):
    stored = run(data, tmp_path / "out", columns=["text", "label"], method="lrp")
    plain = write(tmp_path / "plain.parquet", text=TEXTS, label=[row["label"] for row in stored.rows()])
    anew = judged(plain, methods=["lrp", "gi"])
    explained.clear()
    found = judged(tmp_path / "out", methods=["lrp", "gi"])
    wrong = sum(row["prediction"] != f"LABEL_{row['label']}" for row in stored.rows())
    assert 0 < wrong < 60
    assert sum(explained) == wrong + 60
    assert found["lrp"].auac == pytest.approx(anew["lrp"].auac, abs=1e-6)
    assert found["gi"].auac == pytest.approx(anew["gi"].auac, abs=1e-6)


def test_an_evaluation_of_a_run_can_be_drawn_from_and_handed_to_workers(data, tmp_path):
    stored = run(data, tmp_path / "out", columns=["text", "label"], method="lrp")
    assert len(judged(tmp_path / "out", limit=10, seed=0).samples) == 10
    assert stored.row(7)["row_id"] == 7  # a file is open
    assert pickle.loads(pickle.dumps(stored)).explanation(7).to_dict() == stored.explanation(7).to_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ran", "asked", "said"),
    [
        ({"method": "gi"}, {}, "was explained by gi, which is none of the methods: lrp"),
        ({"target": "LABEL_0 - LABEL_1"}, {}, "run without --target"),
        ({"output": "probability"}, {}, "its output is probability, asked for is logit"),
        ({}, {"dtype": "float64"}, "its dtype is float32, asked for is float64"),
        ({"columns": ["text"]}, {}, "was written without the column 'label'.*--columns text,label"),
    ],
)
def test_a_run_of_something_else_is_refused(data, tmp_path, ran, asked, said):
    run(data, tmp_path / "out", **{"columns": ["text", "label"], "method": "lrp", **ran})
    with pytest.raises(UsageError, match=said):
        judged(tmp_path / "out", **asked)


def test_a_run_of_another_model_or_one_that_is_not_finished_is_refused(data, tmp_path):
    run(data, tmp_path / "out", model=tiny.randomised(tiny.BUILD["bert"]().float(), seed=5))
    with pytest.raises(UsageError, match="the weights of the model that was explained is"):
        judged(tmp_path / "out")
    said = read_manifest(tmp_path / "out")
    write_manifest(tmp_path / "out", type(said)(**{**vars(said), "state": "stopped"}))
    with pytest.raises(DataError, match="is not finished"):
        judged(tmp_path / "out")


def biased(data, **options):
    given = {"tokenizer": tiny.tokenizer(), "groups": GROUPS, "permutations": 50, "progress": False, **options}
    return hw.audit_bias(BERT, data, **given)


def test_a_bias_audit_takes_what_was_explained(tmp_path, monkeypatch):
    texts = [text + random.Random(text).choice([" mary", " john", ""]) for text in TEXTS]
    data = write(tmp_path / "in.parquet", text=texts, part=["x", "y"] * 30)
    target = "LABEL_0 - LABEL_1"
    run(data, tmp_path / "out", columns=["text", "part"], target=target)
    anew = biased(data, target=target, part_column="part")

    def never(*_, **__):
        raise AssertionError("nothing is to be explained")

    monkeypatch.setattr(audit, "explain", never)
    found = biased(tmp_path / "out", part_column="part")
    assert found.target == anew.target
    assert [m.row for m in found.mentions] == [m.row for m in anew.mentions]
    assert [m.part for m in found.mentions] == [m.part for m in anew.mentions]
    assert [m.relevance for m in found.mentions] == pytest.approx([m.relevance for m in anew.mentions], abs=1e-5)
    assert found["first"].mean.value == pytest.approx(anew["first"].mean.value, abs=1e-5)
    with pytest.raises(UsageError, match=r"its target is LABEL_0 - LABEL_1, asked for is LABEL_1"):
        biased(tmp_path / "out", target="LABEL_1")
    with pytest.raises(UsageError, match=f"its method is {TEXT_METHOD}, asked for is gi"):
        biased(tmp_path / "out", method="gi")


def test_a_bias_audit_needs_one_score_for_all_rows(tmp_path):
    data = write(tmp_path / "in.parquet", text=["good mary", "bad john"])
    run(data, tmp_path / "out")
    with pytest.raises(UsageError, match=r"explains what each row predicts.*--target 'positive - negative'"):
        biased(tmp_path / "out")
