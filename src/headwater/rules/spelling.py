"""How torch's operations and their operands are spelled: many names become one, operands get their places."""

from __future__ import annotations

from functools import cache
from typing import Any

# properties that are operations
_GETS = dict.fromkeys(("T", "mT", "H", "mH"), "transpose") | {name: name for name in ("data", "real", "imag")}
_OPERANDS = {
    "where": "condition input other",
    "masked_fill": "input mask value",
    "pow": "input exponent",
    "lerp": "input end weight",
    "mm": "input mat2",
    "bmm": "input mat2",
    "_grouped_mm": "input mat2",
    "grouped_mm": "input mat2",
    "mv": "input vec",
    "dot": "input tensor",
    "tensordot": "a b",
    "bilinear": "input1 input2 weight bias",
    "linear": "input weight bias",
    "addmm": "input mat1 mat2",
    "addmv": "input mat vec",
    "baddbmm": "input batch1 batch2",
    "addbmm": "input batch1 batch2",
    "addcmul": "input tensor1 tensor2",
    "addcdiv": "input tensor1 tensor2",
    "cdist": "x1 x2",
    "pairwise_distance": "x1 x2",
    "cosine_similarity": "x1 x2",
    "linalg_vector_norm": "x",
    "linalg_inv": "A",
    "linalg_solve": "A B",
    "linalg_solve_triangular": "input B",
    "scaled_dot_product_attention": "query key value",
    "cat": "tensors",
    "stack": "tensors",
    "hstack": "tensors",
    "vstack": "tensors",
    "split": "tensor",
}
_USUAL = "input other"  # operands of all others
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "a": "input", "x2": "other"}
_DUNDER = {"radd": "add", "rmul": "mul", "truediv": "div", "rtruediv": "rdiv", "rdiv": "rdiv", "rmatmul": "rmatmul"}
_INPLACE_DUNDER = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "idiv": "div", "ipow": "pow"}
_SYNONYMS = {
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "subtract": "sub",
    "concat": "cat",
    "concatenate": "cat",
    "clip": "clamp",
    "_softmax": "softmax",
    "swapaxes": "transpose",
    "swapdims": "transpose",
}


def operation_name(func: Any) -> str:
    """The name of what torch hands to a mode: a function's, or a property's that is read or set; "" if it is none."""
    name: str = getattr(func, "__name__", "")
    if name == "__get__":
        return _GETS.get(getattr(func.__self__, "__name__", ""), "")
    if name == "__set__":
        return "set_data" if getattr(func.__self__, "__name__", "") == "data" else ""
    return name


@cache
def canonical(name: str) -> tuple[str, bool]:
    """Torch's name of an operation without its spellings, and whether it writes into its first argument."""
    name = name.split(".")[0]
    if name.startswith("__"):
        core = name[2:-2]
        if core in _INPLACE_DUNDER:
            return _INPLACE_DUNDER[core], True
        return _DUNDER.get(core, core), core == "setitem"
    inplace = name.endswith("_")
    core = name[:-1] if inplace else name
    return _SYNONYMS.get(core, core), inplace


def torch_names(name: str, kwargs: Any) -> Any:
    """Arguments by numpy's names, which torch takes as well, get torch's own, by which handlers ask for them."""
    if _NUMPY.keys().isdisjoint(kwargs):
        return kwargs
    own = _OPERANDS.get(name, _USUAL).split()
    return {key if key in own else _NUMPY.get(key, key): value for key, value in kwargs.items()}


def positional(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Operands given by name are put where handlers look for them."""
    for operand in _OPERANDS.get(name, _USUAL).split()[len(args) :]:
        if operand not in kwargs:
            break
        args = (*args, kwargs[operand])
        kwargs = {other: value for other, value in kwargs.items() if other != operand}
    return args, kwargs
