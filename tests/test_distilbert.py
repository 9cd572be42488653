"""A BERT in DistilBERT's build computes what the BERT computes, and is explained like any other."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertModel

import headwater as hw
from headwater_experiments.models.distilbert import as_distilbert


def bert() -> BertModel:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = BertModel(BertConfig(vocab_size=50, max_position_embeddings=20, **shape)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def test_hidden_states_are_those_of_the_bert() -> None:
    source = bert()
    made = as_distilbert(source, num_labels=2).eval()
    ids, mask = torch.randint(1, 50, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    with torch.no_grad():
        expected = source(input_ids=ids, attention_mask=mask).last_hidden_state
        found = made.distilbert(input_ids=ids, attention_mask=mask).last_hidden_state
    real = mask.bool()
    torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-5)


def test_it_is_explained_with_a_ledger_that_closes() -> None:
    made = as_distilbert(bert(), num_labels=2).eval()
    (found,) = hw.explain(made, {"input_ids": torch.randint(1, 50, (1, 9))}, target=1)
    assert found.ledger.closed
