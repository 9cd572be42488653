"""A SentenceTransformer is known by its parts; the package itself is not needed."""

from __future__ import annotations

import json

import pytest
import torch
from tiny import tiny, tokenizer
from torch import nn

import headwater as hw
from headwater.errors import NotApplicable, TooLong, UsageError
from headwater.models.sentence_parts import read_sentence_files

A, B = "the movie was not good", "a gripping film , beautifully acted"


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.auto_model, self.tokenizer = tiny("bert").base_model, tokenizer()
        self.max_seq_length, self.do_lower_case = 20, True


class Pooling(nn.Module):
    def __init__(self, *modes: str, include_prompt: bool = True) -> None:
        super().__init__()
        for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"):
            setattr(self, f"pooling_mode_{mode}", mode in modes)
        self.include_prompt = include_prompt


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.activation_function = nn.Linear(32, 12).double(), nn.Tanh()


class Normalize(nn.Module):
    pass


class Router(nn.Module):
    pass


class SentenceTransformer(nn.Sequential):
    """The structure that sentence-transformers gives a model."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__(*parts)
        self.prompts = {"query": "play : ", "document": ""}
        self.default_prompt_name = self.truncate_dim = None


def sentence_model(*parts: nn.Module) -> SentenceTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return SentenceTransformer(Transformer(), *parts).eval()


def states(text: str) -> torch.Tensor:
    fields = tokenizer()(text, return_tensors="pt")
    with torch.no_grad():
        return tiny("bert").base_model(**fields).last_hidden_state[0]


def cosine(x, y):
    return float(torch.cosine_similarity(x, y, 0))


def test_transformer_pooling_normalise():
    s = hw.explain_similarity(sentence_model(Pooling("mean_tokens"), Normalize()), A, B)
    assert s.score == pytest.approx(cosine(states(A).mean(0), states(B).mean(0)), abs=1e-10)
    assert abs(s.ledger.unaccounted) < 1e-10
    dot = hw.explain_similarity(sentence_model(Pooling("mean_tokens"), Normalize()), A, B, normalise=False)
    assert dot.score == pytest.approx(s.score, abs=1e-10)  # its vectors have length 1 already


def test_several_poolings_are_joined_in_the_order_of_the_package():
    s = hw.explain_similarity(sentence_model(Pooling("mean_tokens", "cls_token")), A, B)
    x, y = (torch.cat([states(t)[0], states(t).mean(0)]) for t in (A, B))
    assert s.score == pytest.approx(cosine(x, y), abs=1e-10)
    assert s.dimensions == 64


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "max_tokens"])
def test_a_dense_layer_after_the_pooling(mode):
    model = sentence_model(Pooling(mode), Dense(), Normalize())
    s = hw.explain_similarity(model, A, B)
    pool = {"mean_tokens": lambda h: h.mean(0), "cls_token": lambda h: h[0], "max_tokens": lambda h: h.max(0).values}
    with torch.no_grad():
        x, y = (model[2].linear(pool[mode](states(t))).tanh() for t in (A, B))
    assert s.score == pytest.approx(cosine(x, y), abs=1e-10)
    assert s.dimensions == 12
    assert abs(s.ledger.unaccounted) < 1e-10


def test_prompts_by_name_and_by_default():
    model = sentence_model(Pooling("mean_tokens"))
    s = hw.explain_similarity(model, A, B, prompts=("query", None))
    assert s.a.text == "play : " + A
    assert s.score == pytest.approx(cosine(states("play : " + A).mean(0), states(B).mean(0)), abs=1e-10)
    model.default_prompt_name = "query"
    assert hw.explain_similarity(model, A, B).b.text == "play : " + B


def test_a_prompt_that_is_not_pooled():
    s = hw.explain_similarity(sentence_model(Pooling("mean_tokens", include_prompt=False)), A, B, prompts=("query", ""))
    x = states("play : " + A)[3:].mean(0)  # [CLS] play :
    assert s.score == pytest.approx(cosine(x, states(B).mean(0)), abs=1e-10)
    assert abs(s.ledger.unaccounted) < 1e-10


def test_dimensions_lengths_and_letters_of_the_model_count():
    model = sentence_model(Pooling("mean_tokens"))
    model.truncate_dim = 9
    assert hw.explain_similarity(model, A, B).dimensions == 9
    assert hw.explain_similarity(model, A.upper(), B).a.text == A
    with pytest.raises(TooLong, match="at most 20"):
        hw.explain_similarity(model, "film " * 30, B)


def test_parts_that_are_not_known_are_refused():
    with pytest.raises(NotApplicable, match="Router"):
        hw.explain_similarity(sentence_model(Pooling("mean_tokens"), Router()), A, B)
    with pytest.raises(NotApplicable, match="before its last"):
        hw.explain_similarity(sentence_model(Pooling("mean_tokens"), Normalize(), Dense()), A, B)


def test_a_directory_says_how_it_pools(tmp_path):
    tiny("bert").base_model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="pooling='mean'"):
        hw.explain_similarity(tmp_path, A, B)
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    written = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in kinds.items()]
    (tmp_path / "modules.json").write_text(json.dumps(written))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    parts = read_sentence_files(tmp_path)
    assert parts is not None
    assert parts.pooling == ("cls",)
    s = hw.explain_similarity(tmp_path, A, B, dtype="float64")
    assert s.score == pytest.approx(cosine(states(A)[0], states(B)[0]), abs=1e-5)  # loaded in float32
