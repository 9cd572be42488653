"""The paper's text model: against a slow version of its equations, on disk, and under the rules."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

import headwater as hw
from headwater.errors import LoadError
from headwater.models.loading import load
from headwater_experiments.models.text_transformer import TextTransformerForSequenceClassification as TextTransformer
from headwater_experiments.models.text_transformer import save_compact
from headwater_experiments.training.student import SPECIAL, small_tokenizer

PIECES = [*SPECIAL, "a", "fine", "dull", "film", "plot"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT of a few weights, whose embeddings are taken."""
    path = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    shape = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=len(PIECES), max_position_embeddings=16, **shape))
    for value in model.parameters():
        torch.nn.init.normal_(value, std=0.5)
    model.save_pretrained(path)
    small_tokenizer(PIECES, 16).save_pretrained(path)
    return str(path)


def made(bert: str, **choices: object) -> TextTransformer:
    torch.manual_seed(1)
    model = TextTransformer.new(bert, num_labels=3, **choices)
    for name, value in model.named_parameters():
        if value.requires_grad:
            torch.nn.init.normal_(value, std=0.3 if "bias" in name else 0.4)
    return model.double().eval()


def slowly(model: TextTransformer, ids: list[int], real: int) -> Tensor:
    """The equations of the paper's model, a token and a head at a time."""
    e, config = model.embeddings, model.config
    x = [
        e.LayerNorm(e.word_embeddings.weight[i] + e.position_embeddings.weight[p] + e.token_type_embeddings.weight[0])
        for p, i in enumerate(ids)
    ]
    seen = range(len(ids) if config.ignore_mask else real)
    width = config.hidden_size // config.num_attention_heads
    for block in model.blocks:
        out = []
        for x_i in x:
            heads = []
            for h in range(config.num_attention_heads):
                part = slice(h * width, (h + 1) * width)
                scores = torch.stack([block.query(x_i)[part] @ block.key(x[j])[part] for j in seen])
                weights = torch.softmax(scores if config.unscaled else scores / math.sqrt(width), 0)
                heads.append(sum(w * block.value(x[j])[part] for w, j in zip(weights, seen, strict=True)))
            y = x_i + block.dense(torch.cat(heads))
            centred = y - y.mean()
            out.append(centred / (centred.square().sum() / (len(y) - 1)).sqrt())
        x = out
    return model.classifier(torch.tanh(model.pooler(x[0])))


@pytest.mark.parametrize("choices", [{}, {"ignore_mask": True}, {"unscaled": True}])
def test_it_computes_what_the_paper_says(bert: str, choices: dict[str, bool]) -> None:
    model = made(bert, **choices)
    ids, mask = [1, 5, 6, 8, 2, 0], [1, 1, 1, 1, 1, 0]
    found = model(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([mask])).logits[0]
    torch.testing.assert_close(found, slowly(model, ids, 5), rtol=1e-12, atol=1e-12)


def test_the_switches_change_the_answer(bert: str) -> None:
    inputs = {"input_ids": torch.tensor([[1, 5, 6, 2, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}
    sane, *others = [
        made(bert, **choices)(**inputs).logits for choices in ({}, {"ignore_mask": True}, {"unscaled": True})
    ]
    assert all((sane - other).abs().max() > 1e-3 for other in others)


def test_embeddings_are_those_of_the_bert_and_stay_as_they_are(bert: str) -> None:
    model, source = TextTransformer.new(bert), BertModel.from_pretrained(bert)
    own = model.embeddings.state_dict()
    for name, value in source.embeddings.state_dict().items():
        if name in own:
            assert torch.equal(own[name], value.half().float())
    assert not any(value.requires_grad for value in model.embeddings.parameters())
    assert all(value.requires_grad for name, value in model.named_parameters() if not name.startswith("embeddings."))


def test_a_compact_checkpoint_fetches_its_embeddings_and_tokenizer(bert: str, tmp_path: Path) -> None:
    model = made(bert).float()
    save_compact(model, tmp_path)
    from safetensors.torch import load_file

    kept = load_file(tmp_path / "model.safetensors")
    assert not any(name.startswith("embeddings.") for name in kept)
    assert {value.dtype for value in kept.values()} == {torch.float16}
    again, tokenizer = load(tmp_path)
    assert isinstance(again, TextTransformer)
    assert torch.equal(again.embeddings.word_embeddings.weight, model.embeddings.word_embeddings.weight)
    assert again.blocks[0].query.weight.dtype is torch.float32
    assert tokenizer is not None
    assert hw.explain(again, "a fine film", tokenizer=tokenizer).tokens == ("[CLS]", "a", "fine", "film", "[SEP]")


def test_a_full_checkpoint_needs_no_bert(bert: str, tmp_path: Path) -> None:
    model = made(bert).float()
    model.config.embeddings_from = "no/such-bert"
    model.save_pretrained(tmp_path)
    again = TextTransformer.from_pretrained(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_a_missing_block_is_still_refused(bert: str, tmp_path: Path) -> None:
    """Only the embeddings may be left out: random blocks would be explained as if they had been trained."""
    model = made(bert).float()
    weights = {name: value for name, value in model.state_dict().items() if name != "blocks.1.key.weight"}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(LoadError, match=r"blocks\.1\.key\.weight"):
        load(tmp_path)


def test_embeddings_of_another_shape_are_refused(bert: str, tmp_path: Path) -> None:
    save_compact(made(bert).float(), tmp_path / "small")
    other = BertModel(BertConfig(vocab_size=5, hidden_size=12, num_hidden_layers=1, num_attention_heads=3))
    other.save_pretrained(tmp_path / "other")
    config = (tmp_path / "small" / "config.json").read_text().replace(bert, str(tmp_path / "other"))
    (tmp_path / "small" / "config.json").write_text(config)
    with pytest.raises(LoadError, match="do not fit"):
        load(tmp_path / "small")


@pytest.mark.parametrize("choices", [{}, {"unscaled": True}])
def test_the_ledger_closes(bert: str, choices: dict[str, bool]) -> None:
    model = made(bert, **choices)
    batch = {
        "input_ids": torch.tensor([[1, 5, 6, 8, 2], [1, 9, 2, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    }
    for e in hw.explain(model, batch, method="lrp"):
        assert e.ledger.error < 1e-12
        assert e.ledger.biases.total != 0
    assert all(e.ledger.error > 1e-3 for e in hw.explain(model, batch, method="lrp(ah+ln)"))


def test_padding_changes_nothing(bert: str) -> None:
    model = made(bert)
    (alone,) = hw.explain(model, {"input_ids": torch.tensor([[1, 9, 2]]), "attention_mask": torch.ones(1, 3).long()})
    (padded,) = hw.explain(
        model, {"input_ids": torch.tensor([[1, 9, 2, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0]])}
    )
    torch.testing.assert_close(padded.relevance[:3], alone.relevance, rtol=1e-10, atol=1e-12)


def test_without_biases_and_tanh_the_papers_rules_add_up(bert: str) -> None:
    """What the paper says of its own model: AH and LN alone, and the sum is the logit."""
    model = made(bert)
    for name, value in model.named_parameters():
        if name.endswith("bias") and value.requires_grad:
            torch.nn.init.zeros_(value)
    ids = torch.tensor([[1, 5, 6, 8, 2]])
    (whole,) = hw.explain(model, {"input_ids": ids}, method="lrp(ah+ln)")
    assert abs(whole.ledger.inputs - whole.score) > 1e-3  # the pooler's tanh
    (linear,) = hw.explain(model, {"input_ids": ids}, method="lrp(ah+ln+act)")
    assert linear.ledger.inputs == pytest.approx(linear.score, abs=1e-12)


def test_an_audit_sees_its_normalisations(bert: str) -> None:
    """They are written out by hand: eps stands beside the deviation, and almost nothing passes the gradient."""
    model = made(bert)
    inputs = {"input_ids": torch.tensor([[1, 5, 6, 8, 2]])}
    for method, share in (("gi", 0.0), ("lrp(ah+ln)", 1.0)):
        norms = hw.audit(model, inputs, method=method).norms
        assert [norm.name for norm in norms] == [f"blocks.{i}.norm" for i in range(3)]
        for norm in norms:
            assert norm.measured == pytest.approx(norm.predicted, abs=1e-9)
            assert norm.predicted == pytest.approx(share, abs=1e-9)
            assert 0 <= norm.collapse < 1e-11


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("freedom", [0, 1])
def test_a_hand_written_norm_is_known_by_what_it_does(inside: bool, freedom: int) -> None:
    class Own(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            var = x.var(-1, keepdim=True, correction=freedom)
            return (x - x.mean(-1, keepdim=True)) / ((var + 1e-3).sqrt() if inside else var.sqrt() + 1e-3)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.nothing, self.head = Own(), torch.nn.Identity(), torch.nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.nothing(self.norm(x))).sum(1)

    torch.manual_seed(0)
    model, x = Model().double().eval(), torch.randn(1, 4, 6, dtype=torch.float64)
    (norm,) = hw.audit(model, {"x": x}, inputs="x", method="gi", target=0).norms
    assert norm.name == "norm"
    assert norm.measured == pytest.approx(norm.predicted, rel=1e-6)
    assert norm.predicted > 1e-5
