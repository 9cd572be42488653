"""An exception raised at any line of a call that one likes, and what the call has then left behind."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import tempfile
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo.eval_frame as dynamo
from torch import nn

import headwater

TORCH = Path(torch.__file__).parent
OURS = str(Path(headwater.__file__).parent)
STATEFUL = {
    contextlib.__file__,
    *(
        str(TORCH / name)
        for name in (
            "overrides.py",
            "autograd/grad_mode.py",
            "amp/autocast_mode.py",
            "autograd/graph.py",
            "utils/hooks.py",
            "_dynamo/eval_frame.py",
        )
    ),
}
MODULE = str(TORCH / "nn/modules/module.py")  # of which only what registers hooks changes anything
DEVICES = ("cpu", "cuda")
OFTEN = 12  # times that a line is tried in what enters and leaves
ENDS = ("restoring.py", "hooks.py", "compiled.py", "saved_tensors.py")
HOOKS = [name for name in vars(nn.Module()) if "hooks" in name and "state_dict" not in name]

Place = tuple[str, int]


@dataclass(frozen=True)
class Moment:
    """The `number`-th time that a line is about to run."""

    file: str
    line: int
    number: int

    def __str__(self) -> str:
        parts = Path(self.file).parts
        return f"{'/'.join(parts[-2:])}:{self.line} ({self.number})"


def is_looked_at(code: Any) -> bool:
    name = code.co_filename
    if name.startswith(OURS) or name in STATEFUL:
        return True
    return name == MODULE and code.co_name.startswith("register_forward")


def traced(
    act: Callable[[], Any], seen: Callable[[str, int], None], wanted: Callable[[Any], bool] = is_looked_at
) -> Any:
    """Calls `act`; `seen` is told every line of the code that is `wanted` before it runs, and may raise there."""

    def at_line(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            seen(frame.f_code.co_filename, frame.f_lineno)
        return at_line

    def at_call(frame: Any, event: str, _: Any) -> Any:
        return at_line if wanted(frame.f_code) else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        return act()
    finally:
        sys.settrace(before)


def lines_of(act: Callable[[], Any]) -> Counter[Place]:
    """How often each line runs."""
    found: Counter[Place] = Counter()
    traced(act, lambda file, line: found.update([(file, line)]))
    return found


def interrupted(act: Callable[[], Any], moment: Moment) -> BaseException | None:
    """Calls `act` and raises at that moment, as Ctrl+C would; what comes out, with its traceback.

    Only code that has the line is watched: to be told of every other line takes most of the time.
    """
    count = 0

    def has_it(code: Any) -> bool:
        return code.co_filename == moment.file and any(line == moment.line for _, _, line in code.co_lines())

    def seen(file: str, line: int) -> None:
        nonlocal count
        if line == moment.line and file == moment.file:
            count += 1
            if count == moment.number:
                raise KeyboardInterrupt

    try:
        with unraised():
            traced(act, seen, has_it)
    except KeyboardInterrupt as error:
        return error
    return None


@contextlib.contextmanager
def unraised() -> Iterator[None]:
    """Inside, an interrupt in a finaliser is lost, as Python has it, and nothing is said about it."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def moments(counts: Counter[Place], every: bool = False) -> list[Moment]:
    """Each line once, at one of the times that it runs. `every`: the first time and the last; more where blocks end."""
    found = []
    for (file, line), count in counts.items():
        draw = random.Random(line)
        numbers = {draw.choice((1, min(2, count), min(3, count), count))}
        if every:
            more = OFTEN if file.endswith(ENDS) or not file.startswith(OURS) else 0
            numbers = {1, count, *draw.sample(range(1, count + 1), min(count, more))}
        found += [Moment(file, line, number) for number in sorted(numbers)]
    return found


def surroundings(model: nn.Module) -> dict[str, Any]:
    """All that an explanation might change, by kind."""
    stack = range(torch._C._len_torch_function_stack())
    return {
        "hooks": [dict(getattr(m, name)) for m in model.modules() for name in HOOKS if getattr(m, name)],
        "values on modules": [name for m in model.modules() for name in ("input", "output") if name in vars(m)],
        "weights": [p.requires_grad for p in model.parameters()],
        "torch function modes": [id(torch._C._get_function_stack_at(i)) for i in stack],
        "torch function": (torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES],
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "autocast's nesting": nesting(),
        "saved tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "context variables": [id(found) for found in variables()],
        "compiler": dynamo._stance.stance,
        "lock": is_free(import_module("headwater.engine.compiled")._LOCK),
        "folders": sorted(path.name for path in Path(tempfile.gettempdir()).glob("headwater-*")),
        "random numbers": (torch.get_rng_state().sum().item(), np.random.get_state()[2]),  # noqa: NPY002
        "warnings": len(warnings.filters),
        "vmap": len(torch._C._functorch.get_interpreter_stack() or ()),
        "profiler": torch.autograd._profiler_enabled(),  # type: ignore[attr-defined]
        "garbage": gc.isenabled(),
    }


def nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def variables() -> list[Any]:
    """What context variables hold; of one that holds it weakly, what is still there."""
    names = (("inputs.walking", "_KNOWN"), ("engine.sharing", "_KEPT"), ("engine.replay", "ACTIVE"))
    found = [getattr(import_module(f"headwater.{module}"), name).get() for module, name in names]
    return [one() if isinstance(one, weakref.ref) else one for one in found]


def is_free(lock: Any) -> bool:
    """Whether another thread could have the lock."""
    got: list[bool] = []

    def take() -> None:
        if lock.acquire(blocking=False):
            got.append(True)
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return bool(got)
