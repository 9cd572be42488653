"""Methods of captum on a model that has positions before samples."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny, tokenizer

import headwater as hw
from headwater.testing import check_method

pytest.importorskip("captum")

TEXTS = ["a gripping, beautifully acted film", "the movie is dull"]


@pytest.mark.parametrize("method", ["saliency", "integrated-gradients", "occlusion", "gradient-shap"])
def test_a_model_that_turns_its_input_round_is_explained_like_any_other(method):
    found = check_method(method, tiny("xlnet"), TEXTS, tokenizer=tokenizer())
    assert found is not None
    assert all(len(e.relevance) == len(e.tokens) for e in found)


def test_integrated_gradients_sum_to_the_difference_from_the_baseline():
    e = hw.explain(tiny("xlnet"), TEXTS[0], tokenizer=tokenizer(), method="integrated-gradients")
    assert e.ledger.inputs + sum(e.ledger.constants.values()) == pytest.approx(e.score, abs=0.02 * abs(e.score) + 1e-3)


def test_occlusion_is_the_change_of_the_score_when_a_token_is_replaced():
    model, read = tiny("xlnet"), tokenizer()
    e = hw.explain(model, TEXTS[1], tokenizer=read, method="occlusion")
    ids = read(TEXTS[1], return_tensors="pt")
    label = int(model(**ids).logits.argmax())
    for place in range(ids["input_ids"].shape[1]):
        other = {**ids, "input_ids": ids["input_ids"].clone()}
        other["input_ids"][0, place] = read.unk_token_id
        with torch.no_grad():
            change = float(model(**ids).logits[0, label] - model(**other).logits[0, label])
        assert float(e.relevance[place]) == pytest.approx(change, abs=1e-9)
