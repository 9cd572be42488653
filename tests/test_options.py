"""What can be asked is written once: every function takes the same options, and refuses what it does not know."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest
import torch
from tiny import tiny, tokenizer
from transformers import ByT5Tokenizer

import headwater as hw
from headwater.engine.options import NAMES, ExplainOptions, Options, read_options
from headwater.errors import UnknownName, UsageError
from headwater.memory.policy import UNLIMITED

SENTENCE = "a gripping, beautifully acted film"


def test_the_lists_of_options_are_one_list():
    given = [name for name in inspect.signature(hw.explain).parameters if name not in ("model", "data")]
    assert set(given) == set(NAMES) == set(ExplainOptions.__annotations__)
    defaults = {name: inspect.signature(hw.explain).parameters[name].default for name in given}
    assert defaults == {name: getattr(Options(), name) for name in given}


def test_results_have_their_types():
    assert get_type_hints(hw.compare)["return"] is hw.Comparison
    assert get_type_hints(hw.audit)["return"] is hw.Audit


SAVING = [
    (hw.compare, {"recompute": "blocks"}),
    (hw.compare, {"keep": "disk"}),
    (hw.compare, {"memory_limit": "1GiB"}),
    (hw.audit, {"keep": "disk"}),
    (hw.audit, {"memory_limit": "1GiB"}),
]


@pytest.mark.parametrize(("function", "saving"), SAVING)
def test_memory_is_saved_by_every_function_and_changes_no_number(function, saving):
    options = {"tokenizer": tokenizer(), **({"methods": ["gi", "lrp", "rollout"]} if function is hw.compare else {})}
    plain, saved = (function(tiny("bert"), SENTENCE, **options, **more) for more in ({}, saving))
    pairs = (
        zip(plain.explanations, saved.explanations, strict=True)
        if function is hw.compare
        else [(plain.explanation, saved.explanation)]
    )
    assert not getattr(saved, "refused", ())
    for one, other in pairs:
        assert one.method == other.method
        torch.testing.assert_close(one.relevance, other.relevance, rtol=0, atol=1e-12)


def test_an_audit_computes_nothing_again():
    with pytest.raises(UsageError, match="an audit watches every operation"):
        hw.audit(tiny("bert"), SENTENCE, tokenizer=tokenizer(), recompute="blocks")


@pytest.mark.parametrize("function", [hw.compare, hw.audit, hw.estimate], ids=["compare", "audit", "estimate"])
def test_an_option_that_does_not_exist_is_answered_with_the_nearest(function):
    with pytest.raises(UnknownName, match="Did you mean 'truncate'"):
        function(tiny("bert"), SENTENCE, tokenizer=tokenizer(), truncat=True)


def test_a_place_that_does_not_exist_is_refused_before_any_work():
    with pytest.raises(UnknownName, match="place to keep"):
        read_options(keep="cellar")
    assert read_options().memory == UNLIMITED


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"device": "nowhere"}, "no device called 'nowhere'"),
        ({"device": "meta"}, "nothing can be computed on meta here"),
        ({"dtype": torch.int32}, "no dtype called 'torch.int32'"),
        ({"batch_size": "4"}, "batch_size is a whole number, not '4'"),
        ({"score": 1}, "score= is a function of the model's output, not 1"),
        ({"tokenizer": "bert-base-uncased"}, "tokenizer= is a tokenizer, not 'bert-base-uncased'"),
        ({"tokenizer": ByT5Tokenizer()}, "the model knows 0 to 119: the tokenizer is that of another model"),
    ],
)
def test_what_an_option_cannot_be_is_said(asked, said):
    """A number as score= was taken for a class."""
    with pytest.raises(UsageError, match=said):
        hw.explain(tiny("bert"), SENTENCE, **{"tokenizer": tokenizer(), **asked})


def test_one_method_is_no_list_of_methods():
    """Its letters were taken for methods."""
    with pytest.raises(UsageError, match=r"methods=\['lrp'\]"):
        hw.compare(tiny("bert"), SENTENCE, tokenizer=tokenizer(), methods="lrp")
