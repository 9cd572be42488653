"""Every operation that has a rule may be called by keyword: relevance is what it is by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import randomised
from torch import Tensor, nn

import headwater as hw
from headwater.rules import OPERATIONS

A = "a"  # stand for signals of their own
B = "b"
C = "c"


def constant(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def mask() -> Tensor:
    return torch.ones(4, 4, dtype=torch.bool).tril()


Example = tuple[Callable[..., Any], dict[str, Any]]

ELEMENTWISE = """
relu gelu silu sigmoid softplus elu celu selu leaky_relu rrelu hardtanh relu6 hardswish hardsigmoid mish softsign
tanhshrink softshrink hardshrink
""".split()
TORCH = """
tanh erf exp exp2 expm1 log1p sin cos arctan atan sinh asinh square abs neg negative positive nan_to_num clone t squeeze
rsqrt reciprocal sqrt log log2 log10 frobenius_norm mean sum nanmean prod std var inverse pinverse
""".split()
POSITIVE = {"log1p", "rsqrt", "sqrt", "log", "log2", "log10"}


def positive(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(v.abs() + 0.1 for v in args), **{k: v.abs() + 0.1 for k, v in kwargs.items()})

    return call


DROPOUTS = {"dropout": 0, "alpha_dropout": 0, "dropout1d": 1, "dropout2d": 2, "dropout3d": 3}  # and further axes


def dropped(name: str, axes: int) -> Callable[..., Any]:
    return lambda input: getattr(F, name)(input=input.reshape(*[1] * axes, 4, 4), training=False).reshape(4, 4)


EXAMPLES: dict[str, Example] = {
    **{name: (getattr(F, name), {"input": A}) for name in ELEMENTWISE},
    **{name: (getattr(torch, name), {"input": A}) for name in TORCH if name not in POSITIVE | {"frobenius_norm"}},
    **{name: (positive(getattr(torch, name)), {"input": A}) for name in POSITIVE},
    **{name: (dropped(name, axes), {"input": A}) for name, axes in DROPOUTS.items()},
    "log_sigmoid": (F.logsigmoid, {"input": A}),
    "feature_dropout": (torch.feature_dropout, {"input": A, "p": 0.1, "train": False}),
    "special_expit": (torch.special.expit, {"input": A}),
    "special_erf": (torch.special.erf, {"input": A}),
    "special_logsumexp": (torch.special.logsumexp, {"input": A, "dim": 1}),
    "special_log_softmax": (torch.special.log_softmax, {"input": A, "dim": 0}),
    "prelu": (F.prelu, {"input": A, "weight": torch.tensor(0.3, dtype=torch.float64)}),
    "threshold": (F.threshold, {"input": A, "threshold": 0.1, "value": 0.2}),
    "clamp": (torch.clamp, {"input": A, "min": -0.3, "max": 0.4}),
    "clamp_min": (torch.clamp_min, {"input": A, "min": 0.2}),
    "clamp_max": (torch.clamp_max, {"input": A, "max": 0.2}),
    "pow": (torch.pow, {"input": A, "exponent": 3}),
    "softmax": (F.softmax, {"input": A, "dim": 0}),
    "log_softmax": (F.log_softmax, {"input": A, "dim": 0}),
    "logsumexp": (torch.logsumexp, {"input": A, "dim": 1}),
    "logcumsumexp": (torch.logcumsumexp, {"input": A, "dim": 1}),
    "logaddexp": (torch.logaddexp, {"input": A, "other": B}),
    "logaddexp2": (torch.logaddexp2, {"input": A, "other": constant(4, 4)}),
    "scaled_dot_product_attention": (F.scaled_dot_product_attention, {"query": A, "key": B, "value": C}),
    "glu": (F.glu, {"input": A, "dim": 0}),
    "lerp": (torch.lerp, {"input": A, "end": B, "weight": C}),
    "add": (torch.add, {"input": A, "other": constant(4, 4)}),
    "sub": (torch.sub, {"input": constant(4, 4), "other": A}),
    "rsub": (torch.rsub, {"input": A, "other": constant(4, 4)}),
    "mul": (torch.mul, {"input": A, "other": B}),
    "div": (torch.div, {"input": A, "other": B}),
    "matmul": (torch.matmul, {"input": A, "other": B}),
    "mm": (torch.mm, {"input": A, "mat2": B}),
    "bmm": (lambda x, mat2: torch.bmm(input=x[None], mat2=mat2[None]), {"x": A, "mat2": B}),
    "mv": (lambda x, vec: torch.mv(input=x, vec=vec[0]), {"x": A, "vec": B}),
    "dot": (lambda x, tensor: torch.dot(input=x[0], tensor=tensor[0]), {"x": A, "tensor": B}),
    "inner": (torch.inner, {"input": A, "other": B}),
    "tensordot": (torch.tensordot, {"a": A, "b": B, "dims": 1}),
    "bilinear": (F.bilinear, {"input1": A, "input2": B, "weight": constant(3, 4, 4), "bias": constant(3)}),
    "linear": (F.linear, {"input": A, "weight": B, "bias": constant(4)}),
    "addmm": (torch.addmm, {"input": constant(4), "mat1": A, "mat2": B}),
    "addmv": (lambda x, mat: torch.addmv(input=constant(4), mat=x, vec=mat[0]), {"x": A, "mat": B}),
    "baddbmm": (lambda x, y: torch.baddbmm(input=constant(4), batch1=x[None], batch2=y[None]), {"x": A, "y": B}),
    "addbmm": (lambda x, y: torch.addbmm(input=constant(4), batch1=x[None], batch2=y[None]), {"x": A, "y": B}),
    "addcmul": (torch.addcmul, {"input": constant(4, 4), "tensor1": A, "tensor2": B}),
    "addcdiv": (torch.addcdiv, {"input": constant(4, 4), "tensor1": A, "tensor2": B}),
    "linalg_solve": (torch.linalg.solve, {"A": A, "B": B}),
    "linalg_solve_triangular": (
        lambda x, y: torch.linalg.solve_triangular(input=x, B=y, upper=True),
        {"x": A, "y": B},
    ),
    "linalg_inv": (torch.linalg.inv, {"A": A}),
    "linalg_pinv": (torch.linalg.pinv, {"input": A}),
    "cat": (torch.cat, {"tensors": (A, constant(4, 4)), "dim": 1}),
    "stack": (torch.stack, {"tensors": (A, constant(4, 4)), "dim": 1}),
    "hstack": (torch.hstack, {"tensors": (A, B)}),
    "vstack": (torch.vstack, {"tensors": (A, B)}),
    "where": (torch.where, {"condition": mask(), "input": A, "other": constant(4, 4)}),
    "masked_fill": (torch.masked_fill, {"input": A, "mask": mask(), "value": 0.3}),
    "maximum": (torch.maximum, {"input": A, "other": constant(4, 4)}),
    "minimum": (torch.minimum, {"input": constant(4, 4), "other": A}),
    "fmax": (torch.fmax, {"input": A, "other": constant(4, 4)}),
    "fmin": (torch.fmin, {"input": A, "other": constant(4, 4)}),
    "pad": (F.pad, {"input": A, "pad": (1, 1), "mode": "constant", "value": 0.2}),
    "layer_norm": (F.layer_norm, {"input": A, "normalized_shape": (4,), "weight": constant(4), "bias": constant(4)}),
    "rms_norm": (F.rms_norm, {"input": A, "normalized_shape": (4,), "weight": constant(4)}),
    "group_norm": (F.group_norm, {"input": A, "num_groups": 2, "weight": constant(4), "bias": constant(4)}),
    "batch_norm": (
        F.batch_norm,
        {"input": A, "running_mean": constant(4), "running_var": constant(4).square(), "weight": constant(4)},
    ),
    "instance_norm": (lambda input: F.instance_norm(input=input[None]), {"input": A}),
    "cdist": (torch.cdist, {"x1": A, "x2": constant(4, 4)}),
    "pairwise_distance": (F.pairwise_distance, {"x1": A, "x2": constant(4, 4)}),
    "cosine_similarity": (F.cosine_similarity, {"x1": A, "x2": B}),
    "norm": (torch.norm, {"input": A, "p": 2, "dim": 1}),
    "linalg_vector_norm": (torch.linalg.vector_norm, {"x": A}),
    "linalg_norm": (torch.linalg.norm, {"input": A}),
    "linalg_matrix_norm": (torch.linalg.matrix_norm, {"input": A}),
    "std_mean": (lambda input: torch.std_mean(input=input)[0], {"input": A}),
    "var_mean": (lambda input: torch.var_mean(input=input)[0], {"input": A}),
    "cumsum": (torch.cumsum, {"input": A, "dim": 1}),
    "cumprod": (torch.cumprod, {"input": A, "dim": 1}),
    "reshape": (torch.reshape, {"input": A, "shape": (2, 8)}),
    "transpose": (torch.transpose, {"input": A, "dim0": 0, "dim1": 1}),
    "permute": (torch.permute, {"input": A, "dims": (1, 0)}),
    "movedim": (torch.movedim, {"input": A, "source": 0, "destination": 1}),
    "moveaxis": (torch.moveaxis, {"input": A, "source": 0, "destination": 1}),
    "flatten": (torch.flatten, {"input": A, "start_dim": 0}),
    "unflatten": (torch.unflatten, {"input": A, "dim": 1, "sizes": (2, 2)}),
    "unsqueeze": (torch.unsqueeze, {"input": A, "dim": 1}),
    "narrow": (torch.narrow, {"input": A, "dim": 1, "start": 0, "length": 2}),
    "select": (torch.select, {"input": A, "dim": 1, "index": 0}),
    "chunk": (lambda input: torch.chunk(input=input, chunks=2)[0], {"input": A}),
    "split": (lambda tensor: torch.split(tensor=tensor, split_size_or_sections=2)[0], {"tensor": A}),
    "split_with_sizes": (lambda input: torch.split_with_sizes(input=input, split_sizes=(1, 3))[1], {"input": A}),
    "tensor_split": (lambda input: torch.tensor_split(input=input, sections=2)[1], {"input": A}),
    "unbind": (lambda input: torch.unbind(input=input, dim=1)[1], {"input": A}),
    "repeat_interleave": (torch.repeat_interleave, {"input": A, "repeats": 2, "dim": 1}),
    "roll": (torch.roll, {"input": A, "shifts": 1, "dims": 1}),
    "flip": (torch.flip, {"input": A, "dims": (1,)}),
    "tile": (torch.tile, {"input": A, "dims": (2,)}),
    "broadcast_to": (torch.broadcast_to, {"input": A, "size": (2, 4, 4)}),
    "masked_select": (torch.masked_select, {"input": A, "mask": mask()}),
    "diagonal": (torch.diagonal, {"input": A}),
    "tril": (torch.tril, {"input": A}),
    "triu": (torch.triu, {"input": A}),
    "topk": (lambda input: torch.topk(input=input, k=2, dim=1)[0], {"input": A}),
    "sort": (lambda input: torch.sort(input=input, dim=1)[0], {"input": A}),
    "gather": (torch.gather, {"input": A, "dim": 1, "index": torch.tensor([[1], [0], [2], [3]])}),
    "index_select": (torch.index_select, {"input": A, "dim": 1, "index": torch.tensor([1, 0])}),
    "take": (torch.take, {"input": A, "index": torch.tensor([1, 5])}),
    "take_along_dim": (torch.take_along_dim, {"input": A, "indices": torch.tensor([[1], [0], [2], [3]]), "dim": 1}),
    "max": (lambda input: torch.max(input=input, dim=1)[0], {"input": A}),
    "min": (lambda input: torch.min(input=input, dim=1)[0], {"input": A}),
    "amax": (torch.amax, {"input": A, "dim": 1}),
    "amin": (torch.amin, {"input": A, "dim": 1}),
    "scatter": (
        torch.scatter,
        {"input": A, "dim": 0, "index": torch.tensor([[1], [0], [2], [3]]).expand(4, 4), "src": B},
    ),
    "scatter_add": (
        torch.scatter_add,
        {"input": A, "dim": 0, "index": torch.tensor([[1], [0], [2], [3]]).expand(4, 4), "src": B},
    ),
    "index_add": (torch.index_add, {"input": A, "dim": 0, "index": torch.tensor([1, 0, 2, 3]), "source": B}),
    "index_put": (torch.index_put, {"input": A, "indices": (torch.tensor([1]),), "values": constant(4)}),
    "masked_scatter": (torch.masked_scatter, {"input": A, "mask": mask(), "source": constant(4, 4)}),
    "index_fill": (torch.index_fill, {"input": A, "dim": 0, "index": torch.tensor([1]), "value": 0.3}),
    "index_copy": (torch.index_copy, {"input": A, "dim": 0, "index": torch.tensor([1]), "source": constant(1, 4)}),
    "slice_scatter": (torch.slice_scatter, {"input": A, "src": constant(2, 4), "dim": 0, "start": 0, "end": 2}),
    "select_scatter": (torch.select_scatter, {"input": A, "src": constant(4), "dim": 0, "index": 1}),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(input=x[None], output_size=1), {"x": A}),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(input=x[None, None], output_size=1), {"x": A}),
    "adaptive_avg_pool3d": (
        lambda x: F.adaptive_avg_pool3d(input=x[None, None, None], output_size=(1, 1, 1)),
        {"x": A},
    ),
    "conv1d": (lambda x: F.conv1d(input=x[None], weight=constant(2, 4, 1), bias=constant(2)), {"x": A}),
    "conv2d": (lambda x: F.conv2d(input=x[None, None], weight=constant(2, 1, 2, 2), bias=constant(2)), {"x": A}),
    "conv3d": (lambda x: F.conv3d(input=x[None, None, None], weight=constant(2, 1, 1, 2, 2)), {"x": A}),
    "conv_transpose1d": (lambda x: F.conv_transpose1d(input=x[None], weight=constant(4, 2, 1)), {"x": A}),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(input=x[None, None], weight=constant(1, 2, 2, 2)), {"x": A}),
    "conv_transpose3d": (
        lambda x: F.conv_transpose3d(input=x[None, None, None], weight=constant(1, 2, 1, 2, 2)),
        {"x": A},
    ),
}

# methods, subscripts and operators; operands without names; and what a module calls for us
WITHOUT = set(
    """
    to type type_as float double half bfloat16 cuda cpu contiguous view reshape_as view_as expand expand_as getitem
    repeat setitem copy fill rdiv rmatmul einsum index frobenius_norm capped_attention _grouped_mm
    grouped_mm lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _pack_padded_sequence
    _pad_packed_sequence
    """.split()
)
OPEN = {"logcumsumexp"}  # its ledger does not close, either way
HELD = {"softmax", "rsqrt", "reciprocal", "inverse", "pinverse", "linalg_inv", "linalg_pinv"}  # nothing flows back


def test_every_operation_has_an_example() -> None:
    own = {name for name, handler in OPERATIONS.items() if handler.__module__.startswith("headwater.")}
    assert own == set(EXAMPLES) | WITHOUT


class Called(nn.Module):
    """The operation on one to three linear maps of the input, by position or by keyword; a signal beside it."""

    def __init__(self, name: str, by_keyword: bool) -> None:
        super().__init__()
        self.maps = nn.ModuleDict({letter: nn.Linear(4, 4) for letter in (A, B, C)})
        self.name, self.by_keyword = name, by_keyword

    def forward(self, x: Tensor) -> Tensor:
        function, given = EXAMPLES[self.name]
        signals = {letter: layer(x)[0] for letter, layer in self.maps.items()}
        values = {name: put_in(value, signals) for name, value in given.items()}
        out = function(**values) if self.by_keyword else function(*values.values())
        return (out.flatten() * torch.arange(1, out.numel() + 1)).sum()[None, None] + x.sum((1, 2))[:, None]


def put_in(value: Any, signals: dict[str, Tensor]) -> Any:
    if isinstance(value, tuple) and any(part is A for part in value):
        return tuple(put_in(part, signals) for part in value)
    return signals[value] if isinstance(value, str) and value in signals else value


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_by_keyword_it_is_what_it_is_by_position(name: str) -> None:
    x = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    models = [randomised(Called(name, by_keyword).double()) for by_keyword in (True, False)]
    models[1].load_state_dict(models[0].state_dict())
    ours, theirs = (hw.explain(model, x, score=lambda out: out[:, 0])[0] for model in models)
    assert ours.relevance == pytest.approx(theirs.relevance, abs=1e-12)
    assert dict(ours.ledger.biases) == pytest.approx(dict(theirs.ledger.biases), abs=1e-12)
    assert dict(ours.ledger.constants) == pytest.approx(dict(theirs.ledger.constants), abs=1e-12)
    if name not in OPEN | HELD:
        assert ours.ledger.error < 1e-12
