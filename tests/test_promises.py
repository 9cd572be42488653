"""Nothing is silently wrong, nothing is left behind, and two threads do not meet."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf
from tiny import arguments, randomised, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater import errors

TEXT = "a gripping, beautifully acted film"
METHODS = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp")


def explain(model: nn.Module | None = None, text: Any = TEXT, **options: Any) -> Any:
    return hw.explain(tiny("bert") if model is None else model, text, tokenizer=tokenizer(), **options)


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model that somebody could notice."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_with_kwargs")
    return {
        "parameters": {n: (p.requires_grad, p.grad is None, p._version, id(p)) for n, p in model.named_parameters()},
        "hooks": {(n, h): dict(getattr(m, h)) for n, m in model.named_modules() for h in hooks},
        "training": [m.training for m in model.modules()],
        "config": copy.deepcopy(model.config.to_dict()),
        "attributes": {n: sorted(vars(m)) for n, m in model.named_modules()},
        "forwards": {n: "forward" in vars(m) for n, m in model.named_modules()},
        "grad mode": torch.is_grad_enabled(),
        "random": torch.get_rng_state().tolist(),
    }


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_behind(method: str) -> None:
    model = tiny("bert")
    before = state(model)
    explain(model, method=method)
    hw.audit(model, TEXT, tokenizer=tokenizer(), method=method)
    assert state(model) == before


def broken(out: Any) -> Tensor:
    raise ZeroDivisionError("in the user's own score function")


class Breaks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ZeroDivisionError("in the model")


@pytest.mark.parametrize("call", [hw.explain, hw.audit])
def test_nothing_is_left_behind_by_an_exception(call: Callable[..., Any]) -> None:
    model = copy.deepcopy(tiny("bert"))
    before = state(model)
    with pytest.raises(ZeroDivisionError, match="score function"):
        call(model, TEXT, tokenizer=tokenizer(), method="lrp", score=broken)
    assert state(model) == before
    dense = model.bert.encoder.layer[1].output.dense
    model.bert.encoder.layer[1].output.dense = Breaks().eval()
    before = state(model)
    with pytest.raises(ZeroDivisionError, match="in the model"):
        call(model, TEXT, tokenizer=tokenizer(), method="lrp")
    assert state(model) == before
    model.bert.encoder.layer[1].output.dense = dense
    assert torch.overrides._get_current_function_mode_stack() == []


def test_works_inside_no_grad_and_inference_mode() -> None:
    expected = explain().relevance
    with torch.no_grad():
        assert torch.equal(explain().relevance, expected)
    with torch.inference_mode():
        assert torch.equal(explain().relevance, expected)


def test_frozen_parameters_change_nothing() -> None:
    model = copy.deepcopy(tiny("bert")).requires_grad_(False)
    assert torch.equal(explain(model).relevance, explain().relevance)


def test_the_models_own_gradients_are_not_touched() -> None:
    model = copy.deepcopy(tiny("bert"))
    loss = model(**tokenizer()(TEXT, return_tensors="pt")).logits.sum()
    explain(model)
    loss.backward()
    untouched = copy.deepcopy(tiny("bert"))
    untouched(**tokenizer()(TEXT, return_tensors="pt")).logits.sum().backward()
    for a, b in zip(model.parameters(), untouched.parameters(), strict=True):
        assert (a.grad is None and b.grad is None) or torch.equal(a.grad, b.grad)


def test_two_threads_with_different_rules_do_not_meet() -> None:
    """One model, four methods at once, each many times: everyone gets what they get alone."""
    model = tiny("bert")
    alone = {method: explain(model, method=method) for method in METHODS}
    wrong: list[str] = []
    start = threading.Barrier(len(METHODS))

    def work(method: str) -> None:
        start.wait()
        for _ in range(15):
            e = explain(model, method=method)
            same = torch.equal(e.relevance, alone[method].relevance) and e.score == alone[method].score
            if not same or dict(e.ledger.biases) != dict(alone[method].ledger.biases):
                wrong.append(method)

    threads = [threading.Thread(target=work, args=(method,)) for method in METHODS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not any(m._forward_hooks for m in model.modules())


def test_a_plain_prediction_beside_an_explanation_is_plain() -> None:
    model, fields = tiny("bert"), tokenizer()(TEXT, return_tensors="pt")
    with torch.no_grad():
        expected = model(**fields).logits
    stop, wrong = threading.Event(), []

    def predict() -> None:
        while not stop.is_set():
            with torch.no_grad():
                if not torch.equal(model(**fields).logits, expected):
                    wrong.append(1)

    thread = threading.Thread(target=predict)
    thread.start()
    for _ in range(20):
        explain(model)
    stop.set()
    thread.join()
    assert not wrong


# Bad input is answered


def test_unknown_method_and_rule() -> None:
    with pytest.raises(errors.UnknownName, match=r"no method called 'lpr'\. Did you mean 'lrp'"):
        explain(method="lpr")
    with pytest.raises(errors.UnknownName, match="no rule called 'an'"):
        explain(method="lrp(an+ln)")
    with pytest.raises(errors.UnknownName, match=r"no share for 'gate' called 'hlf'\. Did you mean 'half'"):
        explain(method="lrp(gate=hlf)")
    with pytest.raises(errors.UsageError, match="takes no value"):
        explain(method="lrp(ln=half)")
    with pytest.raises(errors.UsageError, match="names no rule"):
        explain(method="lrp()")


def test_rules_compose_in_any_order() -> None:
    assert explain(method="lrp(ln+ah)").method == "lrp(ah+ln)"
    assert torch.equal(explain(method=" LRP( ah + ln + act + gate ) ").relevance, explain(method="lrp").relevance)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_empty_text(text: str) -> None:
    with pytest.raises(errors.EmptyInput, match="nothing to explain"):
        explain(text=text)
    with pytest.raises(errors.EmptyInput, match="text 1 is empty"):
        explain(text=["good", text])


@pytest.mark.parametrize("text", [None, 7, ["good", 7], [None]])
def test_what_is_no_text(text: Any) -> None:
    with pytest.raises(errors.InputError):
        explain(text=text)


@pytest.mark.parametrize("text", ["a \ud800 film", ("a film", "\udcff")])
def test_half_of_a_surrogate_pair_is_no_text(text: Any) -> None:
    with pytest.raises(errors.InputError, match="half of a surrogate pair"):
        hw.explain(tiny("bert"), text, tokenizer=tokenizer())


def test_no_tokenizer() -> None:
    with pytest.raises(errors.InputError, match="tokenizer"):
        hw.explain(tiny("bert"), TEXT)


def test_unknown_place_and_dtype() -> None:
    with pytest.raises(errors.UnknownName, match="Did you mean 'embeddings'"):
        explain(at="embedding")
    with pytest.raises(errors.UnknownName, match="Did you mean 'float32'"):
        explain(dtype="float23")


def test_training_mode() -> None:
    model = copy.deepcopy(tiny("bert"))
    model.bert.encoder.layer[0].output.dropout.train()
    with pytest.raises(errors.TrainingMode, match=r"bert\.encoder\.layer\.0\.output\.dropout.*model\.eval\(\)"):
        explain(model)
    with pytest.raises(errors.TrainingMode, match="the model is in training"):
        explain(model.train())


def test_nan_in_the_weights_is_named() -> None:
    model = copy.deepcopy(tiny("bert"))
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight[0, 0] = torch.nan
    with pytest.raises(errors.NotFinite, match=r"bert\.encoder\.layer\.1\.output\.dense\.weight"):
        explain(model)


class Plain(nn.Module):
    """No attention, no norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.mark.parametrize("method", ["lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp(ah+act)"])
def test_rule_that_met_no_operation(method: str) -> None:
    model, x = randomised(Plain().double()), torch.randn(2, 4, dtype=torch.float64)
    with pytest.raises(errors.RuleNotMet, match="met no operation"):
        hw.explain(model, x, method=method)
    assert all(e.ledger.closed for e in hw.explain(model, x))


class HidesAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x @ x.transpose(-1, -2)).softmax(-1) @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class Hiding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(HidesAttention.apply(self.norm(x))[:, 0])


def test_attention_hidden_in_a_custom_function() -> None:
    model, x = randomised(Hiding().double()), torch.randn(1, 5, 4, dtype=torch.float64)
    with pytest.raises(errors.HiddenOperation, match="HidesAttention"):
        hw.explain(model, x, method="lrp(ln)")


def test_flash_attention_is_refused_by_name() -> None:
    model = copy.deepcopy(tiny("bert"))
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(errors.HiddenOperation, match=r"flash_attention_2.*sdpa"):
        explain(model)


def test_torchscript_is_refused() -> None:
    with pytest.warns(DeprecationWarning, match="torch.jit.trace"):
        model = torch.jit.trace(randomised(Plain()), torch.randn(1, 4))
    with pytest.raises(errors.HiddenOperation, match="TorchScript"):
        hw.explain(model.eval(), torch.randn(1, 4))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.detach())


def test_score_that_does_not_depend_on_the_input() -> None:
    with pytest.raises(errors.NoSignal, match="does not depend"):
        hw.explain(randomised(Detached()), torch.randn(1, 4), score=lambda out: out[:, 0])


def test_which_tensor_must_be_said() -> None:
    bilinear = nn.Bilinear(4, 4, 2).eval()
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    with pytest.raises(errors.InputError, match="2 floating tensors"):
        hw.explain(bilinear, (x, y))
    with pytest.raises(errors.InputError, match=r"whole numbers alone.*\{'input_ids': ids\}"):
        hw.explain(nn.Embedding(3, 2).eval(), torch.tensor([[1, 2]]))
    found = hw.explain(bilinear, (x, y), inputs=x)
    assert found[0].relevance.shape == (4,)
    with pytest.raises(errors.InputError, match="not among"):
        hw.explain(bilinear, (x, y), inputs=torch.randn(2, 4))
    with pytest.raises(errors.UnknownName, match="no input or module called 'lefft'"):
        hw.explain(bilinear, {"left": x, "right": y}, inputs="lefft")


def test_every_exception_is_of_one_tree() -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, errors.HeadwaterError), name


def test_model_without_embeddings_says_what_to_pass() -> None:
    with pytest.raises(errors.ModelError, match="inputs="):
        hw.explain(randomised(Plain()), TEXT, tokenizer=tokenizer())


def test_no_model_at_all() -> None:
    with pytest.raises(errors.InputError, match=r"torch\.nn\.Module"):
        hw.explain(3, TEXT, tokenizer=tokenizer())  # type: ignore[call-overload]


def test_compiled_model_is_explained_as_what_was_compiled() -> None:
    model = tiny("bert")
    assert torch.equal(explain(torch.compile(model)).relevance, explain(model).relevance)


def test_seed_is_an_argument_and_the_callers_random_state_is_kept() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert explain(seed=5).provenance.seed == 5
    assert torch.equal(torch.get_rng_state(), before)


def test_tuple_output_of_an_image_model() -> None:
    e = hw.explain(tiny("vit"), arguments("vit", 1))[0]
    assert len(e.tokens) == 5  # class token and four patches
    assert e.ledger.closed


def test_distilbert_and_hub_style_labels() -> None:
    config = tf.DistilBertConfig(dim=32, n_layers=1, n_heads=4, hidden_dim=48, vocab_size=120)
    e = explain(randomised(tf.DistilBertForSequenceClassification(config).double()), target="LABEL_1")
    assert e.target == "LABEL_1"
