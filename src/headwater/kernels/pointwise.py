"""A chain of operations that compute each number alone, as one kernel on a card: one pass over memory for all.

Where it takes means or halves of rows, a program has whole rows.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from ..traces.pointwise import CAST, CHECKS, MEAN, RSQRT, SILU, Chain, ChainCheck, ChainStep, From, aten, turn_halves
from .cards import is_served_card, on_device

NAMES = {torch.float32: "tl.float32", torch.bfloat16: "tl.bfloat16", torch.float16: "tl.float16"}
SIGNS = {aten.mul.Tensor: "*", aten.add.Tensor: "+", aten.sub.Tensor: "-"}
TILE, WIDEST = 2048, 1024  # numbers of each tensor in a program, and of one row of it where there are several
LONGEST = 16384  # numbers of a row of which a mean is taken
DIGITS, DIGITS_OF_HALF = 16, 4  # how many ones of the last digit a kernel's numbers may differ from torch's
AXES = 4  # of a tensor, when those that lie behind one another are one
MOST = 64  # sets of shapes that a kernel remembers


@dataclass(frozen=True)
class Launch:
    """How a chain is computed for tensors of certain shapes: its program, and the results that are to be made."""

    program: Any
    programs: int
    numbers: tuple[int, ...]
    made: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]
    tile: tuple[int, int]
    warps: int = 4


def is_near(found: Tensor, expected: Tensor, beside: Tensor) -> Tensor:
    """Equal but for the last digits, beside the largest of other numbers: a sum may be rounded in another order."""
    digits = DIGITS if expected.dtype is torch.float32 else DIGITS_OF_HALF
    room = digits * torch.finfo(expected.dtype).eps * beside.where(beside.isfinite(), 0).abs().max().double()
    near = (found.double() - expected.double()).abs() <= room
    return (near | (found == expected) | (found.isnan() & expected.isnan())).all()


@dataclass(eq=False)
class PointwiseKernel:
    """Called with the chain's inputs, it gives what the chain gives; by torch's operations where no kernel fits."""

    chain: Chain
    fits: Callable[[Tensor], bool] = is_served_card
    launches: dict[Any, Launch | None] = field(default_factory=dict)

    def __call__(self, *tensors: Tensor) -> Any:
        key = tuple([(one.shape, one.stride(), one.dtype, one.device) for one in tensors])
        if key not in self.launches:
            if len(self.launches) >= MOST:
                self.launches.clear()
            self.launches[key] = plan_launch(self.chain, tensors) if all(map(self.fits, tensors)) else None
        launch, checks = self.launches[key], CHECKS.get()
        if launch is not None and checks is not None:
            checks.append(ChainCheck(self.check(launch, tensors), partial(self.launches.__setitem__, key, None)))
        made = self.by_torch(tensors) if launch is None or checks is not None else launch_chain(launch, tensors)
        return made[0] if len(made) == 1 else tuple(made)

    def check(self, launch: Launch, tensors: Sequence[Tensor]) -> Tensor:
        """Whether all results are what torch's operations give; not where the kernel cannot be compiled.

        A mean is held beside the size of what it is a mean of, which may cancel.
        """
        try:
            made = launch_chain(launch, tensors)
        except RuntimeError:  # no memory
            raise
        except Exception:
            return torch.zeros((), dtype=torch.bool, device=tensors[0].device)
        found, checks = self.chain.run(*tensors), []
        for one, place in zip(made, self.chain.gives, strict=True):
            step = self.chain.steps[place - self.chain.inputs]
            beside = found[step.args[0].place].abs().mean(-1) if step.function is MEAN else found[place]
            checks.append(is_near(one, found[place], beside))
        return torch.stack(checks).all()

    def by_torch(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        found = self.chain.run(*tensors)
        return [found[place] for place in self.chain.gives]


def launch_chain(launch: Launch, tensors: Sequence[Tensor]) -> list[Tensor]:
    device = tensors[0].device
    made = [torch.empty_strided(shape, steps, dtype=dtype, device=device) for shape, steps, dtype in launch.made]
    rows, columns = launch.tile
    with on_device(made[0]):
        launch.program[(launch.programs,)](
            *tensors,
            *made,
            *launch.numbers,
            ROWS=rows,
            COLUMNS=columns,
            enable_fp_fusion=False,
            num_warps=launch.warps,
        )
    return made


def plan_launch(chain: Chain, tensors: Sequence[Tensor]) -> Launch | None:
    """None where the tensors are of other types, or results are not all of one shape."""
    if any(step.device not in (None, tensors[0].device) for step in chain.steps):
        return None
    empty = [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta") for one in tensors]
    if not turns_last_axis(chain, [one.shape for one in empty]):
        return None
    found = chain.on_meta().run(*empty)
    shape = find_common_shape([one.shape for one in found])
    given = [found[place] for place in chain.gives]
    if shape is None or any(one.dtype not in NAMES for one in found) or not math.prod(shape):
        return None
    if not fit_shapes(chain, shape, [one.shape for one in found]):
        return None
    every = [one.expand(shape).stride() for one in (*found[: chain.inputs], *given)]
    if chain.rows:
        outer, strides = join_axes(shape[:-1], [own[:-1] for own in every])
        sizes, strides = [*outer, shape[-1]], [[*steps, own[-1]] for steps, own in zip(strides, every, strict=True)]
    else:
        sizes, strides = join_axes(shape, every)
    if len(sizes) > AXES:
        return None
    *outer, columns = sizes
    rows = math.prod(outer)
    tile = choose_tile(rows, columns, whole=bool(chain.rows))
    warps = max(4, min(16, tile[1] // 512))
    blocks = -(-columns // tile[1])
    numbers = [rows, columns, blocks, *outer[1:]]
    numbers += [step for own in strides for step in own if step > 1]
    source = write_program(chain, [one.dtype for one in found], strides)
    made = tuple((one.shape, one.stride(), one.dtype) for one in given)
    return Launch(define_program(source), blocks * -(-rows // tile[0]), tuple(numbers), made, tile, warps)


def choose_tile(rows: int, columns: int, whole: bool) -> tuple[int, int]:
    """How many rows and columns a program has; `whole` rows are not cut."""
    width = 1 << (columns - 1).bit_length()
    if whole:
        return max(1, TILE // width), width
    if rows == 1:
        return 1, min(width, TILE)
    return max(1, TILE // min(width, WIDEST)), min(width, WIDEST)


def find_common_shape(shapes: Sequence[torch.Size]) -> torch.Size | None:
    """The shape that all can be expanded to; None where a mean of rows meets rows of another length."""
    try:
        found: torch.Size = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return None
    return found


def fit_shapes(chain: Chain, shape: torch.Size, found: Sequence[torch.Size]) -> bool:
    """Whether all results are of one shape; in a chain by rows, whether they are rows, or one number of each."""
    if not chain.rows:
        return all(found[place] == shape for place in chain.gives)
    alone = torch.Size((*shape[:-1], 1))
    rows = len(shape) > 1 and shape[-1] <= LONGEST and all(found[place][-1:] == shape[-1:] for place in chain.rows)
    return rows and all(found[place] in (shape, alone) for place in chain.gives)


def turns_last_axis(chain: Chain, given: Sequence[torch.Size]) -> bool:
    """Whether halves that are changed are those of rows, of tensors that are given."""
    turned = [step.args for step in chain.steps if step.function is turn_halves]
    return all(one.place < chain.inputs and axis == len(given[one.place]) - 1 for one, axis, _ in turned)


def join_axes(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Sizes, and strides of each tensor, with as few axes as serve all; the longest stride of the last comes first."""
    order = sorted((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: -strides[-1][axis])
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in strides]
    for axis in order:
        steps = [own[axis] for own in strides]
        if sizes and all(own[-1] == step * shape[axis] for own, step in zip(found, steps, strict=True)):
            sizes[-1] *= shape[axis]
            for own, step in zip(found, steps, strict=True):
                own[-1] = step
        else:
            sizes.append(shape[axis])
            for own, step in zip(found, steps, strict=True):
                own.append(step)
    return (sizes, found) if sizes else ([1], [[1] for _ in strides])


def write_program(chain: Chain, dtypes: Sequence[torch.dtype], strides: Sequence[Sequence[int]]) -> str:
    """The Triton program. Between its steps numbers are float32, and rounded as each step's result was."""
    axes = len(strides[0])
    names = [f"I{k}" for k in range(chain.inputs)] + [f"O{k}" for k in range(len(chain.gives))]
    sizes = [f"N{axis}" for axis in range(1, axes - 1)]
    steps = [f"{name}S{axis}" for name, own in zip(names, strides, strict=True) for axis, s in enumerate(own) if s > 1]
    lines = [
        "@triton.jit",
        f"def program({', '.join([*names, 'rows', 'columns', 'blocks', *sizes, *steps])},"
        " ROWS: tl.constexpr, COLUMNS: tl.constexpr):",
        "    at = tl.program_id(0).to(tl.int64)",
        "    row = at // blocks * ROWS + tl.arange(0, ROWS)",
        "    column = at % blocks * COLUMNS + tl.arange(0, COLUMNS)",
        "    keep = (row < rows)[:, None] & (column < columns)[None, :]",
        "    rest = row",
    ]
    for axis in reversed(range(1, axes - 1)):
        lines += [f"    at{axis} = rest % N{axis}", f"    rest = rest // N{axis}"]
    lines.append("    at0 = rest")
    for name, own in zip(names, strides, strict=True):
        lines += [f"    {name}A = {name} + {place_of(name, own)}"]
    lines += [f"    v{k} = tl.load(I{k}A, mask=keep, other=0.0).to(tl.float32)" for k in range(chain.inputs)]
    for place, step in enumerate(chain.steps, chain.inputs):
        if step.function is turn_halves:
            lines += load_turned(step, names, strides)
        value, dtype = compute(step), dtypes[place]
        lines.append(
            f"    v{place} = {value if dtype is torch.float32 else f'({value}).to({NAMES[dtype]}).to(tl.float32)'}"
        )
    for k, place in enumerate(chain.gives):
        alone = chain.rows and not strides[chain.inputs + k][-1]  # a number for each row
        value = f"tl.broadcast_to(v{place}, (ROWS, COLUMNS))" if chain.rows else f"v{place}"
        mask = "keep & (column == 0)[None, :]" if alone else "keep"
        lines.append(f"    tl.store(O{k}A, {value}.to({NAMES[dtypes[place]]}), mask={mask})")
    return "\n".join(lines) + "\n"


def load_turned(step: ChainStep, names: Sequence[str], strides: Sequence[Sequence[int]]) -> list[str]:
    """Loads a row of an input again, as `turned`, from the places where its changed halves come from."""
    source, _, half = step.args
    there = place_of(names[source.place], strides[source.place], "other")
    return [
        f"    other = tl.where(column < columns - {half}, column + {half}, column - columns + {half})",
        f"    turned = tl.load({names[source.place]} + {there}, mask=keep, other=0.0).to(tl.float32)",
    ]


def place_of(name: str, strides: Sequence[int], column: str = "column") -> str:
    """Where the numbers of a tensor lie, as an expression."""

    def term(axis: int, of: str) -> str:
        return of if strides[axis] == 1 else f"{of} * {name}S{axis}" if strides[axis] else f"{of} * 0"

    rows = " + ".join(term(axis, f"at{axis}") for axis in range(len(strides) - 1) if strides[axis])
    rows = f"({rows or 'row * 0'})[:, None]"
    return f"{rows} + ({term(len(strides) - 1, column)})[None, :]"


def compute(step: ChainStep) -> str:
    given = step.args[:1] if step.function in (MEAN, turn_halves) else step.args
    args = [f"v{one.place}" if isinstance(one, From) else repr(float(one)) for one in given]
    if step.function in SIGNS:
        return f"{args[0]} {SIGNS[step.function]} {args[1]}"
    if step.function is aten.neg.default:
        return f"{args[0]} * -1.0"  # 0 becomes -0, as it does in torch
    if step.function is aten.abs.default:
        return f"tl.abs({args[0]})"
    if step.function is CAST:
        return args[0]
    if step.function is RSQRT:
        return f"tl.rsqrt({args[0]})"
    if step.function is SILU:
        return f"tl.math.div_rn({args[0]}, 1.0 + tl.exp(-{args[0]}))"
    if step.function is MEAN:
        return f"tl.sum(tl.where(keep, {args[0]}, 0.0), axis=1, keep_dims=True) / columns"
    if step.function is turn_halves:  # `load_turned`
        return f"tl.where((column < columns - {step.args[2]})[None, :], turned * -1.0, turned)"
    raise LookupError(f"no program is known for {step.function}")


@cache
def define_program(source: str) -> Any:
    """The program that this text defines. Triton reads the text again, so it is kept where Python keeps sources."""
    import triton
    import triton.language as tl

    name = f"<pointwise {hash(source) & 0xFFFFFFFFFFFF:x}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(source, name, "exec"), space)
    return space["program"]
