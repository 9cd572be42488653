"""Models that are not transformers' own: other libraries, adapters, packed and offloaded weights, compiled parts."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import transformers as tf
from tiny import SMALL, arguments, randomised, tiny
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import headwater as hw
from headwater.errors import HiddenOperation, ModelError, RandomPrediction, TargetError
from headwater.results.explanation import Explanation

X = arguments("bert")


def fresh(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    return copy.deepcopy(tiny(name, dtype))


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def worst(found: list[Explanation]) -> float:
    return max(e.ledger.error for e in found)


def same(some: list[Explanation], others: list[Explanation], within: float = 1e-12) -> bool:
    return all(torch.allclose(a.relevance, b.relevance, atol=within) for a, b in zip(some, others, strict=True))


# --- other libraries' operations


class LayerScale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Drops whole branches in training; in evaluation it is nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x if not self.training else x * torch.bernoulli(torch.full((len(x), 1, 1), 0.9))


class ImageBlock(nn.Module):
    """A block as timm writes it: fused qkv, normalised queries and keys, fused attention, LayerScale, DropPath."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.LayerNorm(width // heads), nn.LayerNorm(width // heads)
        self.ls1, self.ls2, self.drop_path = LayerScale(width), LayerScale(width), DropPath()
        self.mlp = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, width))

    def attend(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
        else:
            x = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(b, n, c))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.ls1(self.attend(self.norm1(x))))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))


class ImageTransformer(nn.Module):
    def __init__(self, fused: bool, pool: str) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 5, 32))
        self.blocks = nn.Sequential(*(ImageBlock(32, 4, fused) for _ in range(2)))
        self.norm, self.head, self.pool = nn.LayerNorm(32), nn.Linear(32, 3), pool

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0] if self.pool == "token" else x[:, 1:].mean(1))


@pytest.mark.parametrize("pool", ["token", "avg"])
@pytest.mark.parametrize("fused", [True, False])
def test_an_image_transformer_in_timms_operations(fused: bool, pool: str) -> None:
    model = randomised(ImageTransformer(fused, pool).double())
    found = hw.explain(model, draw(2, 3, 16, 16))
    assert worst(found) < 1e-9
    assert "blocks.1.qkv.bias" in found[0].ledger.biases
    assert worst(hw.explain(model, draw(2, 3, 16, 16), method="lrp(ah+ln)")) > 1e-3


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_patch16_224", "vit_base_patch16_rope_224"])
def test_timm(name: str) -> None:
    timm = pytest.importorskip("timm")
    more = {"embed_dim": 32, "depth": 2, "num_heads": 4, "img_size": 32, "num_classes": 3}
    model = randomised(timm.create_model(name, pretrained=False, **more).double())
    assert worst(hw.explain(model, draw(2, 3, 32, 32))) < 1e-9


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("part", ["encoder", "decoder", "both"])
def test_torchs_own_transformer(part: str, norm_first: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            options: dict[str, Any] = {"batch_first": True, "norm_first": norm_first, "activation": "gelu"}
            self.inner = {
                "encoder": lambda: nn.TransformerEncoder(
                    nn.TransformerEncoderLayer(8, 2, 12, **options), 2, nn.LayerNorm(8), enable_nested_tensor=False
                ),
                "decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, **options), 2),
                "both": lambda: nn.Transformer(8, 2, 2, 2, 12, **options),
            }[part]()
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
            if part == "encoder":
                return self.head(self.inner(x, mask=mask)).mean(1)
            return self.head(self.inner(x, x.flip(1), tgt_mask=mask)).mean(1)

    with pytest.warns(UserWarning, match="enable_nested_tensor") if part == "both" and norm_first else nullcontext():
        model = randomised(Model().double())
    assert worst(hw.explain(model, draw(2, 5, 8))) < 1e-9


class Functions(nn.Module):
    """No modules inside: tensors in a plain object, and torch's functions."""

    class Weights:
        def __init__(self) -> None:
            shapes = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8), "up": (12, 8), "down": (8, 12), "out": (3, 8)}
            self.of = {name: 0.3 * draw(*shape) for name, shape in shapes.items()}
            self.bias = {name: 0.1 * draw(shape[0]) for name, shape in shapes.items()}
            self.scale, self.shift = 1 + 0.1 * draw(8), 0.1 * draw(8)

    def __init__(self) -> None:
        super().__init__()
        self.weights = self.Weights()
        self.eval()

    def line(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights.of[name], self.weights.bias[name])

    def norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (8,), self.weights.scale, self.weights.shift)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (self.line(x, name).unflatten(-1, (2, 4)) for name in "qkv")
        p = F.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(4), -1)
        return self.line(torch.einsum("bhqk,bkhd->bqhd", p, v).flatten(2), "o")

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm(x))
        x = x + self.line(F.gelu(self.line(self.norm(x), "up")), "down")
        return self.line(self.norm(x).mean(1), "out")


def test_a_model_of_bare_functions() -> None:
    found = hw.explain(Functions(), draw(2, 5, 8))
    assert worst(found) < 1e-9
    assert {"act": 1, "ah": 1, "ln": 3}.items() <= dict(found[0].rules_met).items()
    assert worst(hw.explain(Functions(), draw(2, 5, 8), method="lrp(ah+ln)")) > 1e-4


# --- adapters


def with_adapters(name: str, targets: list[str], **options: Any) -> nn.Module:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=targets, **options)
    return randomised(peft.get_peft_model(fresh(name), config).double(), seed=3)


@pytest.mark.parametrize(
    ("name", "targets"), [("llama", ["q_proj", "v_proj", "down_proj"]), ("bert", ["query", "value", "dense"])]
)
@pytest.mark.parametrize("dora", [False, True])
def test_adapters_merged_or_not_give_the_same(name: str, targets: list[str], dora: bool) -> None:
    """By `lrp`: a γ-rule takes an adapter beside its layer for two layers, and its sum with the layer for one."""
    model = with_adapters(name, targets, use_dora=dora)
    apart = hw.explain(model, X, method="lrp")
    merged = hw.explain(model.merge_and_unload(), X, method="lrp")
    assert max(worst(apart), worst(merged)) < (1e-5 if name == "llama" else 1e-9)
    assert same(apart, merged, 1e-6 if name == "llama" else 1e-9)
    assert not same(apart, hw.explain(tiny(name), X, method="lrp"), 1e-3)


def test_biases_of_an_adapter_have_lines() -> None:
    found = hw.explain(with_adapters("bert", ["value"], lora_bias=True), X)
    assert worst(found) < 1e-9
    lines = [name for name in found[0].ledger.biases if name.endswith("lora_B.default.bias")]
    assert len(lines) == 2
    assert all(abs(found[0].ledger.biases[name]) > 1e-6 for name in lines)


# --- weights elsewhere


def offloaded(model: nn.Module, how: str, folder: Path) -> nn.Module:
    accelerate = pytest.importorskip("accelerate")
    if how == "hooks":
        return accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)
    if how == "memory":
        return accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    if how == "disk":
        return accelerate.disk_offload(model, str(folder), execution_device=torch.device("cpu"))
    places = {"bert.embeddings": "cpu", "bert.pooler": "cpu", "classifier": "cpu"}
    layers = {"bert.encoder.layer.0": "cpu", "bert.encoder.layer.1": "disk"}
    return accelerate.dispatch_model(model, {**places, **layers}, main_device="cpu", offload_dir=str(folder))


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("how", ["hooks", "memory", "disk", "split"])
def test_weights_that_come_and_go(how: str, trainable: bool, tmp_path: Path) -> None:
    """Relevance is the same, and every bias keeps its name although it is another tensor whenever it is used."""
    plain = hw.explain(tiny("bert"), X)
    found = hw.explain(offloaded(fresh("bert").requires_grad_(trainable), how, tmp_path), X)
    assert worst(found) < 1e-9
    assert same(found, plain)
    assert dict(found[0].ledger.biases) == pytest.approx(dict(plain[0].ledger.biases), abs=1e-12)


def test_offloaded_weights_are_not_copied(tmp_path: Path) -> None:
    model = offloaded(fresh("bert"), "split", tmp_path)
    with pytest.raises(ModelError, match=r"'bert\.encoder\.layer\.1\..* are offloaded"):
        hw.explain(model, X, dtype="float32")


def test_a_hooked_model_is_copied_and_not_changed() -> None:
    model = offloaded(fresh("bert", torch.bfloat16), "hooks", Path())
    found = hw.explain(model, X)
    assert found[0].provenance.dtype == "float32"
    assert next(model.parameters()).dtype is torch.bfloat16
    assert same(found, hw.explain(fresh("bert", torch.bfloat16), X))


@pytest.mark.parametrize("where", ["auto", {"": "cpu"}])
def test_device_map(where: Any, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    fresh("bert", torch.float32).save_pretrained(tmp_path)
    model = tf.AutoModelForSequenceClassification.from_pretrained(tmp_path, device_map=where).eval()
    assert same(hw.explain(model, X), hw.explain(tiny("bert", torch.float32), X), 1e-6)


# --- packed weights


def unpacked(model: nn.Module) -> nn.Module:
    """The same numbers in plain matrices."""
    twin = tiny("bert" if hasattr(model, "bert") else "llama", torch.float32)
    twin = copy.deepcopy(twin)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.copy_(model.get_parameter(name).dequantize())
    return twin


@pytest.mark.parametrize("bits", ["qint8", "qint4", "qfloat8"])
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma"])
def test_quanto(name: str, bits: str, method: str) -> None:
    quanto = pytest.importorskip("optimum.quanto")
    model = fresh(name, torch.float32)
    quanto.quantize(model, weights=getattr(quanto, bits))
    quanto.freeze(model)
    found = hw.explain(model.eval(), X, method=method)
    assert worst(found) < 1e-5
    assert same(found, hw.explain(unpacked(model), X, method=method), 1e-4)
    assert not same(found, hw.explain(tiny(name, torch.float32), X, method=method), 1e-4)


def torchao_packed(name: str, kind: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    q = pytest.importorskip("torchao.quantization")
    config = {
        "8": lambda: q.Int8WeightOnlyConfig(),
        "4": lambda: q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(16)),
        "activations": lambda: q.Int8DynamicActivationInt8WeightConfig(),
    }[kind]()
    model = fresh(name, dtype)
    q.quantize_(model, config)
    return model


@pytest.mark.parametrize("bits", ["8", "4"])
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma"])
def test_torchao(name: str, bits: str, method: str) -> None:
    model = torchao_packed(name, bits)
    found = hw.explain(model, X, method=method)
    assert worst(found) < 1e-5
    assert same(found, hw.explain(unpacked(model), X, method=method), 1e-4)


def test_activations_that_are_rounded_too_leave_the_ledger_open() -> None:
    """The sum that the model makes is not of the numbers that came in, and the ledger says so."""
    assert not any(e.ledger.closed for e in hw.explain(torchao_packed("bert", "activations"), X))


def test_packed_weights_are_computed_in_their_own_type() -> None:
    model = torchao_packed("llama", "8", torch.bfloat16)
    found = hw.explain(model, X)
    assert found[0].provenance.dtype == "bfloat16"
    assert all(e.ledger.closed for e in found)
    with pytest.raises(ModelError, match="packed"):
        hw.explain(model, X, dtype="float32")


class Matrix(torch.autograd.Function):
    """A product whose weights nobody sees, as in kernels for packed ones; with `rounded`, of rounded inputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, rounded: bool) -> Tensor:
        ctx.weight = weight
        return (x.mul(8).round().div(8) if rounded else x) @ weight.T + bias

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] @ ctx.weight, None, None, None


class Hidden(nn.Linear):
    rounded = False

    def forward(self, x: Tensor) -> Tensor:
        return Matrix.apply(x, self.weight.detach(), self.bias.detach(), self.rounded)


def with_hidden_layers(rounded: bool) -> nn.Module:
    model = fresh("bert")
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__, module.rounded = Hidden, rounded
    return model


def test_a_linear_layer_behind_an_autograd_function_is_known_by_its_values() -> None:
    plain, found = hw.explain(tiny("bert"), X), hw.explain(with_hidden_layers(rounded=False), X)
    assert worst(found) < 1e-9
    assert same(found, plain)
    assert dict(found[0].ledger.biases) == pytest.approx(dict(plain[0].ledger.biases), abs=1e-12)
    assert found[0].rules_met == plain[0].rules_met


def test_a_layer_that_is_not_linear_or_whose_weights_are_asked_for_is_refused() -> None:
    with pytest.raises(HiddenOperation, match="Matrix"):
        hw.explain(with_hidden_layers(rounded=True), X)
    with pytest.raises(HiddenOperation, match="Matrix"):
        hw.explain(with_hidden_layers(rounded=False), X, method="lrp-gamma")


@pytest.mark.parametrize("bits", [8, 4])
def test_bitsandbytes(bits: int) -> None:
    """In 8 bit the inputs are rounded too, so that nothing adds up: refused."""
    library = pytest.importorskip("bitsandbytes").nn
    model = fresh("bert", torch.float32)
    old = model.bert.pooler.dense
    new = library.Linear8bitLt(32, 32, has_fp16_weights=False) if bits == 8 else library.Linear4bit(32, 32)
    new.load_state_dict(old.state_dict())
    model.bert.pooler.dense = new
    model = model.to("cpu").eval()
    if bits == 4:
        assert worst(hw.explain(model, X)) < 1e-5
        return
    with pytest.raises(HiddenOperation, match="MatMul8bitLt"):
        hw.explain(model, X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_torchs_dynamic_quantisation_is_refused() -> None:
    model = torch.ao.quantization.quantize_dynamic(fresh("llama", torch.float32), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(HiddenOperation, match="'linear_dynamic' has no derivative"):
        hw.explain(model.eval(), X)


# --- compiled parts, checkpoints, inference mode


def compiled(how: str) -> nn.Module:
    model = fresh("bert")
    layer = model.bert.encoder.layer[0]
    if how == "model":
        return torch.compile(model, backend="eager")
    if how == "module":
        model.bert.encoder.layer[0] = torch.compile(layer, backend="eager")
    elif how == "in place":
        layer.compile(backend="eager")
    elif how == "forward":
        layer.forward = torch.compile(layer.forward, backend="eager")
    elif how == "model's forward":
        model.forward = torch.compile(model.forward, backend="aot_eager")
    return model


@pytest.mark.parametrize("how", ["model", "module", "in place", "forward", "model's forward"])
def test_compiled_parts_run_uncompiled(how: str) -> None:
    from torch._dynamo import eval_frame

    before = eval_frame._stance.stance
    found = hw.explain(compiled(how), X)
    assert same(found, hw.explain(tiny("bert"), X))
    assert worst(found) < 1e-9
    assert eval_frame._stance.stance == before


class Checkpointed(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.head = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6), nn.Linear(6, 3)
        self.options = options

    def part(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = checkpoint(self.part, x, **self.options) if self.options else self.part(x)
        return self.head(x).mean(1)


@pytest.mark.parametrize("method", ["lrp", "gi", "lrp-gamma"])
def test_a_checkpoint_in_evaluation_changes_nothing(method: str) -> None:
    plain, again = randomised(Checkpointed().double()), Checkpointed(use_reentrant=False).double().eval()
    again.load_state_dict(plain.state_dict())
    found = hw.explain(again, draw(2, 4, 6), method=method)
    assert same(found, hw.explain(plain, draw(2, 4, 6), method=method))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_reentrant_checkpoint_is_refused() -> None:
    model = randomised(Checkpointed(use_reentrant=True).double())
    with pytest.raises(HiddenOperation, match=r"CheckpointFunction.*gradient_checkpointing_disable"):
        hw.explain(model, draw(2, 4, 6))


def test_models_and_inputs_made_in_inference_mode() -> None:
    plain = hw.explain(tiny("bert"), X)
    with torch.inference_mode():
        model, inputs = fresh("bert"), {name: value.clone() for name, value in X.items()}
        inside = hw.explain(model, inputs)
        single = hw.explain(model, inputs, dtype="float32")
    assert same(inside, plain)
    assert same(hw.explain(model, inputs), plain)
    assert single[0].ledger.closed


# --- what is given


class SelfAttention(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x)


def test_a_tensor_that_is_given_twice_is_explained_wherever_it_enters() -> None:
    """Of self-attention called as (x, x, x) the query alone was explained, and keys and values were constants."""
    model = randomised(nn.MultiheadAttention(8, 2, batch_first=True).double())
    x = draw(2, 5, 8)
    plain = hw.explain(SelfAttention(model).eval(), x, score=first_number, method="lrp-gamma")
    assert all(e.ledger.closed and e.ledger.inputs != 0 for e in plain)
    named = {"query": x, "key": x, "value": x}
    for _ in range(3):
        assert same(hw.explain(model, (x, x, x), inputs=x, score=first_number, method="lrp-gamma"), plain)
        assert same(hw.explain(model, (x, x, x), score=first_number, method="lrp-gamma"), plain)
        found = hw.explain(model, named, score=first_number, method="lrp-gamma")
        assert same(found, plain)
        assert found[0].at == "query, key, value"
    value = hw.explain(model, named, inputs="value", score=first_number, method="lrp-gamma")
    apart = hw.explain(model, {**named, "value": x.clone()}, inputs="value", score=first_number, method="lrp-gamma")
    assert same(value, apart)


def first_number(out: Any) -> Tensor:
    number: Tensor = out[0][:, 0, 0]
    return number


class WritesOver(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.mul_(2))


def test_a_model_that_writes_over_its_input_leaves_the_callers() -> None:
    model, x = randomised(WritesOver().double()), draw(2, 4)
    before = x.clone()
    with pytest.raises(RandomPrediction, match="writes over its input"):
        hw.explain(model, x, target=1)
    assert torch.equal(x, before)


# --- outputs of every kind, rows that attend to nothing


class NamedOutput(NamedTuple):
    logits: Tensor
    hidden: Tensor


@dataclass(frozen=True, slots=True)
class SlotsOutput:
    logits: Tensor
    hidden: Tensor


@dataclass
class InnerOutput:
    inner: SlotsOutput
    name: str

    @property
    def logits(self) -> Tensor:
        return self.inner.logits


OUTPUTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "named tuple": NamedOutput,
    "frozen dataclass": SlotsOutput,
    "dataclass within a dataclass": lambda logits, hidden: InnerOutput(SlotsOutput(logits, hidden), "inner"),
    "object": lambda logits, hidden: SimpleNamespace(logits=logits, hidden=hidden),
    "distribution": lambda logits, hidden: torch.distributions.Categorical(logits=logits),
    "tuple of dicts": lambda logits, hidden: ({"logits": logits}, [hidden]),
}


class Gives(nn.Module):
    """A model whose output is of a kind of its own, and which keeps what it computed last."""

    def __init__(self, make: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.inside, self.head, self.make = nn.Linear(4, 4), nn.Linear(4, 3), make

    def forward(self, x: Tensor) -> Any:
        self.last = torch.tanh(self.inside(x))
        return self.make(self.head(self.last).log_softmax(-1), self.last)


def gives(make: Callable[[Tensor, Tensor], Any]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(Gives(make).double())


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_of_every_kind(kind: str) -> None:
    """Tensors in named tuples, dataclasses and objects are the output, in a plain run and in one that is played."""
    x, tuples = draw(2, 4), gives(lambda logits, hidden: (logits, hidden))
    plain = hw.explain(tuples, x, score=lambda out: out[0][:, 1], method="lrp")
    model = gives(OUTPUTS[kind])

    def score(out: Any) -> Tensor:
        logits: Tensor = out.logits if hasattr(out, "logits") else out[0]["logits"]
        return logits[:, 1]

    for _ in range(4):
        assert same(hw.explain(model, x, score=score, method="lrp"), plain)


@pytest.mark.parametrize("share", [0, 1])
def test_a_score_that_reads_inside_the_model_is_refused(share: int) -> None:
    """Of what is read past the output no relevance is known: it stood in the line of the readout."""
    model = gives(lambda logits, hidden: logits)
    for _ in range(3):
        with pytest.raises(TargetError, match="no part of the model's output"):
            hw.explain(model, draw(2, 4), score=lambda out: share * out[:, 1] + model.last[:, 1], method="lrp")
    direction = torch.nn.functional.one_hot(torch.tensor(1), 3).double()
    for weighed in (direction, nn.Parameter(direction)):
        assert hw.explain(model, draw(2, 4), score=lambda out, w=weighed: out @ w, method="lrp")[0].ledger.closed


@pytest.mark.parametrize("where", ["call", "config"])
def test_question_answering_that_gives_a_tuple(where: str) -> None:
    model = randomised(tf.BertForQuestionAnswering(tf.BertConfig(**SMALL)).double())
    plain = hw.explain(model, X)
    model.config.return_dict = where != "config"
    found = hw.explain(model, {**X, "return_dict": False} if where == "call" else X)
    assert [e.target for e in found] == [e.target for e in plain]
    assert same(found, plain)


@pytest.mark.parametrize("method", ["lrp", "gi", "attnlrp"])
def test_windows_that_hold_padding_alone(method: str) -> None:
    """Their softmax is NaN, which the model fills with zeros: its gradient is zero too."""
    config = tf.LongformerConfig(**{**SMALL, "max_position_embeddings": 70}, attention_window=8, pad_token_id=1)
    model = randomised(tf.LongformerForTokenClassification(config).double())
    ids = arguments("bert", 2, 24)["input_ids"]
    mask = torch.ones_like(ids)
    ids[1, 6:], mask[1, 6:] = 1, 0
    padded = hw.explain(model, {"input_ids": ids, "attention_mask": mask}, method=method, target=hw.Token(0))
    short = {"input_ids": ids[1:, :6], "attention_mask": mask[1:, :6]}
    alone = hw.explain(model, short, method=method, target=hw.Token(0))
    assert same(padded[1:], alone, 1e-6)
    assert method != "lrp" or worst(padded) < 1e-5
