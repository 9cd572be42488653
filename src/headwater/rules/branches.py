"""Which branch of the model a signal belongs to, so that a sum of two branches can be told from one signal's parts.

A branch begins at a layer: an operation that sums over features or positions, such as a linear layer, a convolution,
or attention. Everything else (norms, activations, views, rotations, a mean that is taken off) stays in the branch of
its operands, and begins a new one where these belong to different branches. So `x + mlp(norm(x))` is a sum of two
branches. `q * cos + rotate_half(q) * sin` and `x - x.mean()` put parts of one branch together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from .call import Call, is_signal

_FIELD = "_headwater_branch"

CONVOLUTIONS = frozenset(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))
# sums over the neighbours of a position
_POOLS = frozenset(f"{kind}_pool{n}d" for kind in ("avg", "adaptive_avg", "lp") for n in (1, 2, 3)) | {"interpolate"}
# sums of products in which every operand may be a signal
CONTRACTIONS = frozenset(
    """
    matmul mm bmm mv dot rmatmul einsum tensordot inner _grouped_mm grouped_mm grouped_mm_fallback bilinear baddbmm
    addbmm addmv scaled_dot_product_attention capped_attention
    """.split()
)
_LAYERS = frozenset(
    """
    linear addmm embedding embedding_bag lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    fft rfft ifft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn fft_fft fft_ifft fft_rfft fft_irfft fft_fft2
    fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn fft_rfftn fft_irfftn linalg_solve linalg_solve_triangular cdist
    """.split()
)
_STARTS = CONVOLUTIONS | _POOLS | CONTRACTIONS | _LAYERS
_REORDERS = frozenset(  # after these the channels may lie along another axis
    "view reshape reshape_as view_as transpose permute movedim moveaxis t flatten unflatten squeeze unsqueeze".split()
)


class Branch(NamedTuple):
    """`root` identifies the branch.

    `mixed`: it comes out of a sum of products that is no layer with weights, such as scores, or values that attention
    mixed. `channels` is the axis of features, counted from the end, where a convolution put it before the positions.
    """

    root: object
    mixed: bool = False
    channels: int | None = None


def branch_of(tensor: Tensor) -> Branch:
    """The branch of a signal; one of its own where nothing is known."""
    found: Branch | None = getattr(tensor, _FIELD, None)
    if found is None:
        found = Branch(object())
        set_branch(tensor, found)
    return found


def set_branch(tensor: Tensor, branch: Branch) -> None:
    setattr(tensor, _FIELD, branch)


def keep_branch(result: Any, source: Tensor) -> None:
    """`result` is `source` under another name."""
    found: Branch | None = getattr(source, _FIELD, None)
    if found is not None and isinstance(result, Tensor):
        set_branch(result, found)


def pass_branch_on(call: Call, result: Any) -> None:
    """Sets the branch of what an operation gave."""
    given = [branch_of(signal) for signal in signals_of(call)]
    several = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, (list, tuple)) else []
    several = [one for one in several if is_signal(one)]
    if not given or not several:
        return
    starts = call.name in _STARTS
    same = all(one.root is given[0].root for one in given)
    root = object() if starts or not same else given[0].root
    mixed = is_mixed(call) if starts else all(one.mixed for one in given)
    for one in several:
        set_branch(one, Branch(root, mixed, channels_after(call, given, one)))


def signals_of(call: Call) -> list[Tensor]:
    found: list[Tensor] = []
    for value in (*call.args, *call.kwargs.values()):
        found += [one for one in (value if type(value) in (list, tuple) else (value,)) if is_signal(one)]
    return found


def is_mixed(call: Call) -> bool:
    """Whether a layer of the model's is none with weights: all sums of products, but for those with a matrix."""
    if call.name not in CONTRACTIONS:
        return False
    constants = [one for one in call.args if isinstance(one, Tensor) and not is_signal(one)]
    return not any(one.dim() == 2 for one in constants)


def channels_after(call: Call, given: list[Branch], result: Tensor) -> int | None:
    """The axis of features of a result, counted from the end, if convolutions say which."""
    if call.name in CONVOLUTIONS:
        return -int(call.name[-2]) - 1
    if call.name in _REORDERS or (call.name in _STARTS and call.name not in _POOLS):
        return None
    found = {one.channels for one in given} - {None}
    axis = found.pop() if len(found) == 1 else None
    ranks = {signal.dim() for signal in signals_of(call)}
    return axis if axis is not None and ranks == {result.dim()} else None


def are_terms(a: Tensor, b: Tensor) -> bool:
    """Whether two signals that are added are terms of a residual sum: of different branches, not both mixed."""
    mine, other = branch_of(a), branch_of(b)
    return mine.root is not other.root and not (mine.mixed and other.mixed)


def feature_axis(*tensors: Tensor) -> int:
    """The axis of features, from the end: the last, if no convolution put them elsewhere."""
    found = {branch_of(one).channels for one in tensors} - {None}
    return min((axis for axis in found if axis is not None), default=-1)
