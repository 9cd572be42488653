"""Texts and models in the forms that people have them in: taken, or refused with the line to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
import transformers as tf
from tiny import tiny, tokenizer
from torch import nn

import headwater as hw
from headwater import errors
from headwater.jobs.running import load_model
from headwater.models.bundled import bundled_path
from headwater.models.loading import load

TEXTS = ["a dull film", "the movie is not good"]
FRAME = pd.DataFrame({"id": [1, 2], "review": TEXTS, "label": [0, 1]})

TAKEN: dict[str, Callable[[], Any]] = {
    "series": lambda: FRAME["review"],
    "series of strings": lambda: FRAME["review"].astype("string"),
    "categories": lambda: FRAME["review"].astype("category"),
    "array": lambda: np.array(TEXTS),
    "array of objects": lambda: np.array(TEXTS, dtype=object),
    "generator": lambda: (text for text in TEXTS),
    "map": lambda: map(str.strip, TEXTS),
    "keys": lambda: dict.fromkeys(TEXTS).keys(),
    "polars": lambda: pl.DataFrame({"review": TEXTS})["review"],
    "pyarrow": lambda: pa.table({"review": TEXTS})["review"],
    "columns by name": lambda: {"text": TEXTS, "label": [0, 1]},
    "rows by name": lambda: [{"text": text} for text in TEXTS],
}


def scores(data: Any, model: Any = None) -> list[float]:
    return [e.score for e in hw.explain(model or tiny("bert"), data, tokenizer=tokenizer())]


@pytest.mark.parametrize("form", TAKEN)
def test_a_column_in_any_form_is_a_list_of_texts(form: str) -> None:
    assert scores(TAKEN[form]()) == scores(TEXTS)


def test_columns_of_datasets_are_taken_and_tables_are_not() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_pandas(FRAME)
    assert scores(table["review"]) == scores(TEXTS)
    with pytest.raises(errors.InputError, match=r"data\['review'\]"):
        scores(table)
    with pytest.raises(errors.InputError, match=r"data\['train'\]\['review'\]"):
        scores(datasets.DatasetDict({"train": table}))


PAIRS: dict[str, Any] = {
    "question and context": {"question": "is it good", "context": "a dull film", "id": "7"},
    "premise and hypothesis": {"premise": "is it good", "hypothesis": "a dull film"},
    "text and text_pair": {"text": "is it good", "text_pair": "a dull film"},
}


@pytest.mark.parametrize("form", PAIRS)
def test_a_row_with_two_texts_is_a_pair(form: str) -> None:
    one = hw.explain(tiny("bert"), PAIRS[form], tokenizer=tokenizer())
    assert one.text == ("is it good", "a dull film")
    assert scores([PAIRS[form], "dull"])[0] == pytest.approx(one.score)
    columns = {name: [value] * 2 for name, value in PAIRS[form].items() if name != "id"}
    assert [e.text for e in hw.explain(tiny("bert"), columns, tokenizer=tokenizer())] == [one.text] * 2
    rows = np.array([one.text, one.text])
    assert [e.text for e in hw.explain(tiny("bert"), rows, tokenizer=tokenizer())] == [one.text] * 2


REFUSED: list[tuple[Any, str]] = [
    (FRAME, r"DataFrame has the columns 'id', 'review', 'label': pass .* data\['review'\]"),
    (pl.DataFrame({"review": TEXTS}), r"data\['review'\]"),
    (pa.table({"review": TEXTS}), r"data\['review'\]"),
    ({"first": "a", "second": "b"}, r"data\['first'\], or a pair of them, \(data\['first'\], data\['second'\]\)"),
    ([["a film", "is good"]], r"\[tuple\(pair\) for pair in data\]"),
    (("a", "b", "c"), "as a list"),
    ({"a film", "a movie"}, r"sorted\(data\)"),
    (b"a film", r"data\.decode"),
    ([{"role": "user", "content": "is it good"}], "hw.explain_generation"),
    (pd.Series(["a film", None]), r"text 1 is missing .*dropna\(\)"),
    (np.array([["a", "b", "c"]]), r"not the shape \(1, 3\)"),
]


@pytest.mark.parametrize(("data", "said"), REFUSED, ids=[type(data).__name__ for data, _ in REFUSED])
def test_what_can_be_read_in_several_ways_is_refused_with_the_line_to_write(data: Any, said: str) -> None:
    with pytest.raises(errors.InputError, match=said):
        scores(data)


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return tf.pipeline("text-classification", model=bundled_path().as_posix(), device="cpu")


def test_a_model_may_be_a_name_a_path_or_a_pipeline(pipeline: Any) -> None:
    text, (model, tokens) = "a gripping, beautifully acted film", hw.load("headwater/sentiment")
    assert load is hw.load
    expected = hw.explain(model, text, tokenizer=tokens)
    for form in ("headwater/sentiment", bundled_path(), str(bundled_path()), pipeline):
        found = hw.explain(form, text)
        assert found.target == "positive"
        assert torch.allclose(found.relevance, expected.relevance, atol=1e-5)
    assert hw.compare(pipeline, text, methods=["gi", "ig(steps=2)"])["gi"].score == pytest.approx(expected.score)
    assert hw.audit("headwater/sentiment", text).explanation.score == pytest.approx(expected.score)
    assert hw.estimate(pipeline, text).peak > 0
    with hw.session("headwater/sentiment", device="cpu") as session:
        assert session.explain(text).score == pytest.approx(expected.score)
    with hw.session(pipeline) as session:
        assert session.dtype == "float32"  # the pipeline has loaded half precision
        assert session.explain(FRAME["review"])[0].target == "negative"


def test_evaluate_run_and_bias_take_the_same_models_and_rows(pipeline: Any) -> None:
    asked = {"methods": ["gi", "random"], "runtime": False, "measures": "activation"}
    expected = hw.evaluate(pipeline.model, list(zip(TEXTS, [0, 0], strict=True)), tokenizer=pipeline.tokenizer, **asked)
    rows = [{"text": text, "label": 0} for text in TEXTS]
    for data in (rows, (pair for pair in zip(TEXTS, ["negative"] * 2, strict=True)), FRAME.assign(text=TEXTS, label=0)):
        assert hw.evaluate(pipeline, data, **asked)["gi"].auac == pytest.approx(expected["gi"].auac)
    with pytest.raises(errors.DataError, match="text_column="):
        hw.evaluate(pipeline, FRAME["review"], **asked)
    assert load_model(pipeline, None) == (pipeline.model, pipeline.tokenizer)  # of a run
    groups = {"films": ["film"], "movies": ["movie"]}
    found = hw.audit_bias(pipeline, TEXTS * 3, groups=groups, permutations=9, progress=False)
    assert {group.name for group in found.groups} == set(groups)


def test_other_models_are_refused_with_what_to_do() -> None:
    with pytest.raises(errors.InputError, match=r"model, tokenizer = hw\.load"):
        hw.explain((tiny("bert"), tokenizer()), "a film")  # type: ignore[call-overload]
    with pytest.raises(errors.InputError, match="a pipeline of transformers, not dict"):
        hw.explain({"model": nn.Linear(2, 2)}, "a film")  # type: ignore[call-overload]
    with pytest.raises(errors.LoadError, match="no directory"):
        hw.explain("./nowhere", "a film")
