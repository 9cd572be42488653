"""`leave-one-out` and `contextcite`: answers that can be worked out by hand, and their cost in forward passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import arguments, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.errors import NotApplicable, NotFinite, UnknownName, UsageError
from headwater.methods import ablation, available, resolve_method
from headwater.methods.surrogate import fit_lasso
from headwater.testing import check_method

TEXTS = ["a gripping, beautifully acted film", "the movie is not good", "dull"]
METHODS = ["leave-one-out", "leave-one-out(zero)", "leave-one-out(unk)", "contextcite", "contextcite(8)"]


class Additive(nn.Module):
    """One class whose logit is the sum of a number for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(120, 4, dtype=torch.float64)
        self.config = SimpleNamespace(pad_token_id=0)
        with torch.no_grad():
            self.words.weight.copy_(torch.randn(120, 4, generator=torch.Generator().manual_seed(3)))

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        values: Tensor = self.words(input_ids).sum(-1) * attention_mask
        return values.sum(1, keepdim=True)


def addends(model: Additive, text: str) -> Tensor:
    return model.words.weight[tokenizer()(text)["input_ids"]].sum(-1).detach()


class Passes:
    """Counts the inputs that a model is run on."""

    def __init__(self, model: nn.Module) -> None:
        self.samples: list[int] = []
        self.handle = model.register_forward_hook(self._note)

    def _note(self, module: nn.Module, args: Any, output: Any) -> None:
        self.samples.append(len(output if isinstance(output, Tensor) else output.logits))

    def __enter__(self) -> Passes:
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


def test_leave_one_out_gives_the_addends_of_a_sum() -> None:
    model = Additive().eval()
    unknown = model.words.weight[tokenizer().unk_token_id].sum().detach()
    for method, of_nothing in (
        ("leave-one-out(zero)", 0.0),
        ("leave-one-out(unk)", unknown),
        ("leave-one-out", unknown),
    ):
        found = hw.explain(model, TEXTS, tokenizer=tokenizer(), method=method)
        for text, e in zip(TEXTS, found, strict=True):
            assert e.relevance == pytest.approx(addends(model, text) - of_nothing, abs=1e-12)


def test_contextcite_recovers_the_addends_of_a_sum() -> None:
    """Up to the penalty: a weight is smaller by alpha over the spread of a column, which is 1/2."""
    model, text = Additive().eval(), TEXTS[0]
    unknown = model.words.weight[tokenizer().unk_token_id].sum().detach()
    e = hw.explain(model, text, tokenizer=tokenizer(), method="contextcite(400)")
    expected = addends(model, text) - unknown
    shrunk = expected.sign() * (expected.abs() - 0.02).clamp(min=0)
    assert e.relevance == pytest.approx(shrunk, abs=0.01)
    assert e.ledger.constants["intercept of the linear model"] == pytest.approx(float(len(expected) * unknown), abs=0.1)
    few = hw.explain(model, text, tokenizer=tokenizer(), method="contextcite(3)")
    assert few.relevance != pytest.approx(shrunk, abs=0.2)


@pytest.mark.parametrize("name", ["bert", "llama", "xlnet"])
def test_leave_one_out_is_occlusion_of_texts(name: str) -> None:
    pytest.importorskip("captum")
    for method in ("leave-one-out", "leave-one-out(unk)"):
        ours = hw.explain(tiny(name), TEXTS, tokenizer=tokenizer(), method=method)
        theirs = hw.explain(tiny(name), TEXTS, tokenizer=tokenizer(), method="occlusion")
        for a, b in zip(ours, theirs, strict=True):
            assert a.relevance == pytest.approx(b.relevance, abs=1e-10)
            assert (a.score, a.target, a.prediction) == (pytest.approx(b.score), b.target, b.prediction)


def test_leave_one_out_is_occlusion_of_images_and_tensors() -> None:
    pytest.importorskip("captum")
    from test_images import photo, processor
    from test_images import tiny as tiny_vision

    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).double().eval()
    rows = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Flatten(), nn.Linear(24, 3)).double().eval()
    generator = torch.Generator().manual_seed(0)
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        (tiny_vision("vit"), photo(), {"processor": processor()}),
        (tiny("vit"), arguments("vit"), {}),
        (plain, torch.randn(2, 4, generator=generator, dtype=torch.float64), {}),
        (rows, torch.randn(2, 3, 4, generator=generator, dtype=torch.float64), {}),
    ]
    for model, data, options in cases:
        ours = hw.explain(model, data, method="leave-one-out", **options)
        theirs = hw.explain(model, data, method="occlusion", **options)
        pairs = zip(ours, theirs, strict=True) if isinstance(ours, list) else [(ours, theirs)]
        for a, b in pairs:
            assert a.relevance.shape == b.relevance.shape
            assert a.relevance == pytest.approx(b.relevance, abs=1e-10)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("method", METHODS)
def test_they_conform(method: str, name: str) -> None:
    assert check_method(method, tiny(name), TEXTS, tokenizer=tokenizer()) is not None


def test_they_conform_on_images() -> None:
    for method in ("leave-one-out", "contextcite"):
        assert check_method(method, tiny("vit"), arguments("vit")) is not None


def test_a_truncated_text_is_that_text() -> None:
    model = tiny("bert")
    long = "film " * 100
    for method in ("leave-one-out", "contextcite(8)"):
        e = hw.explain(model, long, tokenizer=tokenizer(), method=method, truncate=True)
        assert len(e.relevance) == len(e.tokens) == 64
        same = hw.explain(model, "film " * 62, tokenizer=tokenizer(), method=method)
        assert torch.equal(e.relevance, same.relevance)


@pytest.mark.parametrize(
    ("method", "runs"), [("leave-one-out", 8), ("leave-one-out(zero)", 8), ("contextcite(20)", 20)]
)
def test_what_they_cost(method: str, runs: int) -> None:
    """Tokens + 1, or ablations + 1; many copies in one pass."""
    model = tiny("bert")
    with Passes(model) as passes:
        e = hw.explain(model, TEXTS[0], tokenizer=tokenizer(), method=method)
    assert len(e.tokens) == 8
    assert passes.samples == [1, runs]


def test_copies_are_bounded_and_the_numbers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("bert")
    expected = hw.explain(model, TEXTS[0], tokenizer=tokenizer(), method="leave-one-out").relevance
    for bound, value in (("COPIES", 3), ("ROWS", 24), ("NUMBERS", 3 * 8 * 32)):
        with monkeypatch.context() as patch, Passes(model) as passes:
            patch.setattr(ablation, bound, value)
            found = hw.explain(model, TEXTS[0], tokenizer=tokenizer(), method="leave-one-out").relevance
        assert passes.samples == [1, 3, 3, 2]
        assert found == pytest.approx(expected, abs=1e-10)


# Generated text


@pytest.mark.parametrize("score", ["logit", "logprob", "contrast"])
def test_one_set_of_passes_serves_all_output_tokens(score: str) -> None:
    options: dict[str, Any] = {"answer": "good film", "score": score, "sinks": "show", "method": "leave-one-out"}
    model = tiny("gpt2")
    with Passes(model) as passes:
        together = hw.explain_generation(model, "the movie is", tokenizer=tokenizer(), **options)
    count = len(together.targets)
    assert count > 1
    assert passes.samples == [1, together.prompt + count - 1]
    alone = hw.explain_generation(model, "the movie is", tokenizer=tokenizer(), tokens_at_once=1, **options)
    assert together.relevance == pytest.approx(alone.relevance, abs=1e-10)
    assert together.targets == alone.targets
    assert together.probabilities == pytest.approx(alone.probabilities, abs=1e-12)


def test_leave_one_out_of_generated_text_by_hand() -> None:
    """The change of a contrast whose other token stays what it was, when an embedding is zero."""
    model, words = tiny("gpt2"), tokenizer()
    made = hw.explain_generation(
        model,
        "the movie",
        tokenizer=words,
        answer="good film",
        method="leave-one-out(zero)",
        score="contrast",
        sinks="show",
    )
    ids = torch.tensor([words("the movie")["input_ids"] + words("good film", add_special_tokens=False)["input_ids"]])
    table, prompt = model.get_input_embeddings(), made.prompt

    def row(place: int | None, number: int) -> Tensor:
        vectors = table(ids).detach().clone()
        if place is not None:
            vectors[0, place] = 0
        with torch.no_grad():
            return model(inputs_embeds=vectors).logits[0, prompt + number - 1]

    for number in range(len(made.targets)):
        token, whole = int(ids[0, prompt + number]), row(None, number)
        other = next(int(i) for i in whole.argsort(descending=True) if int(i) != token)
        for place in range(prompt + number):
            changed = row(place, number)
            expected = (whole[token] - whole[other]) - (changed[token] - changed[other])
            assert float(made.relevance[number, place]) == pytest.approx(float(expected), abs=1e-10)
        assert not made.relevance[number, prompt + number :].any()


def test_contextcite_of_generated_text() -> None:
    """Every output token has the same ablations, and none has a part in what stands before it."""
    model = tiny("gpt2")
    with Passes(model) as passes:
        made = hw.explain_generation(
            model, "the movie", tokenizer=tokenizer(), answer="good film", method="contextcite(40)"
        )
    assert passes.samples == [1, 40]
    for number, row in enumerate(made.relevance):
        assert row[: made.prompt + number].any()
        assert not row[made.prompt + number :].any()


def test_occlusion_of_generated_text_is_leave_one_out() -> None:
    pytest.importorskip("captum")
    options: dict[str, Any] = {"answer": "good film", "score": "contrast"}
    ours, theirs = (
        hw.explain_generation(tiny("llama"), "the movie is", tokenizer=tokenizer(), method=method, **options)
        for method in ("leave-one-out", "occlusion")
    )
    assert ours.relevance == pytest.approx(theirs.relevance, abs=1e-10)


# Seeds, names, refusals


def test_contextcite_is_seeded_by_the_argument_and_the_text() -> None:
    def explain(**options: Any) -> Tensor:
        found: Tensor = hw.explain(
            tiny("bert"), TEXTS[0], tokenizer=tokenizer(), method="contextcite", **options
        ).relevance
        return found

    assert torch.equal(explain(seed=1), explain(seed=1))
    assert not torch.equal(explain(seed=1), explain(seed=2))
    assert torch.equal(
        explain(), hw.explain(tiny("bert"), TEXTS, tokenizer=tokenizer(), method="contextcite(32)")[0].relevance
    )


def test_they_are_listed() -> None:
    from headwater.cli.methods import list_methods

    names = [one["name"] for one in list_methods()["methods"]]
    assert {"leave-one-out", "contextcite"} <= set(names)
    assert [m.name for m in available()] == names
    assert resolve_method("ContextCite( 64 )").name == "contextcite(64)"


def test_names_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UnknownName, match="zero"):
        resolve_method("leave-one-out(zeros)")
    for wrong in ("contextcite(1)", "contextcite(x)", "contextcite(-3)", "contextcite(1e9)"):
        with pytest.raises(UsageError, match="samples"):
            resolve_method(wrong)


def test_without_a_token_for_nothing_embeddings_are_zero() -> None:
    model, fields = tiny("bert"), arguments("bert", 1)
    plain, zero = (hw.explain(model, fields, method=name)[0] for name in ("leave-one-out", "leave-one-out(zero)"))
    assert torch.equal(plain.relevance, zero.relevance)
    with pytest.raises(NotApplicable, match="zero"):
        hw.explain(model, fields, method="leave-one-out(unk)")


def test_models_that_look_their_input_up_twice_are_refused() -> None:
    for method in ("leave-one-out", "contextcite"):
        with pytest.raises(NotApplicable, match="more than once"):
            hw.explain(tiny("bart"), arguments("bart", 1), method=method)


def test_a_score_that_is_not_finite_without_a_token_is_refused() -> None:
    class Inverse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (1 / x).sum(-1, keepdim=True)

    with pytest.raises(NotFinite, match="taken out"):
        hw.explain(Inverse().eval(), torch.ones(1, 3, dtype=torch.float64), method="leave-one-out")


# The sparse linear model


def test_lasso_of_columns_at_right_angles_is_a_soft_threshold() -> None:
    x = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    y = x @ np.array([2.0, -0.5, 0.03]) + 7
    weights, intercept = fit_lasso(x, y, alpha=0.1)
    assert weights == pytest.approx([1.8, -0.3, 0.0], abs=1e-12)  # 2 * max(|w| / 2 - alpha, 0)
    assert intercept == pytest.approx(y.mean() - weights.sum() / 2, abs=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(32, 12), (32, 100), (6, 40), (2, 3)])
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_lasso_meets_the_conditions_of_its_minimum(rows: int, columns: int, size: float) -> None:
    """x_k (y - X w) / n = alpha sign(w_k) where w_k is not 0, and at most alpha in size elsewhere."""
    draw = np.random.default_rng(rows + columns)
    x = draw.random((rows, columns)) < 0.5
    y = size * (x @ draw.normal(size=columns) + draw.normal(size=rows))
    weights, intercept = fit_lasso(x, y, alpha=0.01)
    spread = x.std(0)
    scaled = np.where(spread > 0, (x - x.mean(0)) / np.where(spread > 0, spread, 1), 0)
    pulls = scaled.T @ (y - x @ weights - intercept) / rows
    used = weights != 0
    assert np.abs(pulls[~used]).max(initial=0) <= 0.01 + 1e-8
    assert pulls[used] == pytest.approx(0.01 * np.sign(weights[used]), abs=1e-8)
    assert (y - x @ weights - intercept).mean() == pytest.approx(0, abs=1e-9)


def test_lasso_is_what_contextcite_asks_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    from sklearn.linear_model import Lasso
    from sklearn.preprocessing import StandardScaler

    draw = np.random.default_rng(5)
    x = draw.random((32, 20)) < 0.5
    y = x @ draw.normal(size=20) + draw.normal(size=32)
    scaler = StandardScaler()
    model = Lasso(alpha=0.01, tol=1e-12, max_iter=100_000).fit(scaler.fit_transform(x.astype(float)), y)
    weights, intercept = fit_lasso(x, y)
    assert weights == pytest.approx(model.coef_ / scaler.scale_, abs=1e-6)
    assert intercept == pytest.approx(model.intercept_ - scaler.mean_ / scaler.scale_ @ model.coef_, abs=1e-6)
