"""What a computation changes around it while it runs, put back whatever line it is left at.

Ctrl+C, or a stop from another thread, raises an exception between any two lines. It may skip the `__exit__` of a
`with`, or end it in the middle. So a `with` alone cannot promise to restore everything. Two things together can:
`restores` remembers the state of the thread when a function begins, and puts it back in two nested `finally`, because
the exception may arrive in the first. `undone` notes each change before it is made, so that it can be found and undone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager, suppress
from functools import partial, wraps
from operator import methodcaller
from traceback import walk_tb
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

P = ParamSpec("P")
T = TypeVar("T")
DEVICES = ("cpu", "cuda", *(["mps"] if torch.backends.mps.is_built() else []))  # whose autocast is looked at
_CALL = methodcaller("__call__")
_END = object()
_BLOCKS = {part.__code__ for part in (_GeneratorContextManager.__enter__, _GeneratorContextManager.__exit__)}
_THREAD = threading.local()
_LEFT_OPEN: list[Any] = []  # guards whose end would turn inference mode again


def restores(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, which leaves the thread as it found it and undoes what was noted, also if interrupted."""

    @wraps(function)
    def restoring(*args: P.args, **kwargs: P.kwargs) -> T:
        before, done, handled = Before.now(), False, sys.exc_info()[1]
        try:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                end_blocks(error, handled)
                raise
            finally:
                before.put_back()
                done = True
        finally:
            if not done:
                before.put_back()

    return restoring


def end_blocks(error: BaseException, handled: BaseException | None) -> None:
    """Closes the generators of `with` blocks that an exception left in the middle of their `__exit__`.

    The traceback keeps them alive. They would run on when it is freed, at any later time: one of torch's would then
    push a mode. `handled` is the exception that the caller was handling before; its traceback is left alone.
    """
    found: BaseException | None = error
    while found is not None and found is not handled:
        for frame, _ in walk_tb(found.__traceback__):
            if frame.f_code in _BLOCKS:
                with suppress(
                    Exception
                ):  # of blocks that were left halfway; what they do not put back is put back here
                    frame.f_locals["self"].gen.close()
        found = found.__context__


def restores_steps(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same generator, whose every step is as above: the thread is as it was also while the generator waits.

    What is noted stays until the generator ends, or whoever runs it does.
    """

    @wraps(function)
    def steps(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        noted: list[undone] = []
        inner: Any = function(*args, **kwargs)
        end = partial(_end, inner, noted)
        with undone(end):
            try:
                try:
                    while (found := _step(noted, partial(next, inner, _END))) is not _END:
                        yield found
                finally:
                    end()
            finally:
                end()

    return steps


@restores
def _step(noted: list[undone], act: Callable[[], Any]) -> Any:
    _THREAD.noted = noted
    return act()


def _end(generator: Any, noted: list[undone]) -> None:
    try:
        _step(noted, generator.close)
    finally:
        undo_from(0, noted)


class undone:
    """`with undone(undo): …`: a change, and how it is undone when the block is left, by whatever line.

    The change belongs inside the block. `undo` may be called where nothing has been changed, or only a part.
    """

    def __init__(self, undo: Callable[[], Any]) -> None:
        self.undo = undo
        self.noted: list[undone] = pending_undos()

    def __enter__(self) -> None:
        self.noted.append(self)

    def __exit__(self, *_: object) -> None:
        if self in self.noted:  # else it was undone already, and this is a block that was left long ago
            self.undo()
            self.noted.remove(self)


def pending_undos() -> list[undone]:
    """What this thread has to undo."""
    try:
        return _THREAD.noted  # type: ignore[no-any-return]
    except AttributeError:
        _THREAD.noted = []
        return _THREAD.noted  # type: ignore[no-any-return]


def undo_from(count: int, noted: list[undone]) -> None:
    """Undo what was noted last first, until `count` are left."""
    while len(noted) > count:
        noted[-1].undo()
        noted.pop()


def hook_saved_tensors(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> undone:
    """As `torch.autograd.graph.saved_tensors_hooks`, but it never takes away the hooks of somebody else."""
    return _Saved(pack, unpack)


class _Saved(undone):
    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self.hooks = (pack, unpack)
        super().__init__(self._pop)

    def __enter__(self) -> None:
        super().__enter__()
        torch._C._autograd._push_saved_tensors_default_hooks(*self.hooks)

    def _pop(self) -> None:
        found = find_saved_tensor_hooks()
        if found is not None and found[0] is self.hooks[0]:
            torch._C._autograd._pop_saved_tensors_default_hooks()


def find_saved_tensor_hooks() -> Any:
    """The hooks for saved tensors that act on this thread, if any do."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


class Mode(TorchFunctionMode):
    """A torch function mode whose block never takes away the mode of somebody else.

    Torch takes a mode off the stack while it is asked. Interrupted there, the block would take the next one.
    `harmless` is a mode that lets every operation happen as it would without it.
    """

    harmless = False

    def __exit__(self, *_: object) -> None:
        count = torch._C._len_torch_function_stack()
        if count and torch._C._get_function_stack_at(count - 1) is self:
            torch._C._pop_torch_function_stack()


class DispatchMode(TorchDispatchMode):
    """The same for a mode below autograd. It comes and goes in C alone: torch's own notes how it came in Python."""

    def __enter__(self) -> Any:
        torch._C._push_on_torch_dispatch_stack(self)
        return self

    def __exit__(self, *_: object) -> None:
        count = torch._C._len_torch_dispatch_stack()
        if count and torch._C._get_dispatch_stack_at(count - 1) is self:
            torch._C._pop_torch_dispatch_stack(None)


class without_dispatch_modes(undone):
    """Inside, no mode below autograd acts."""

    def __init__(self) -> None:
        self.modes: tuple[Any, ...] = dispatch_modes()
        super().__init__(self._push)

    def __enter__(self) -> None:
        super().__enter__()
        while torch._C._len_torch_dispatch_stack():
            torch._C._pop_torch_dispatch_stack(None)

    def _push(self) -> None:
        set_dispatch_modes(self.modes)


def function_modes() -> tuple[Any, ...]:
    """The torch function modes that act on this thread, the innermost last."""
    get, count = torch._C._get_function_stack_at, torch._C._len_torch_function_stack()
    return tuple([get(i) for i in range(count)]) if count else ()


def dispatch_modes() -> tuple[Any, ...]:
    """The modes below autograd that act on this thread, the innermost last."""
    count = torch._C._len_torch_dispatch_stack()
    return tuple([torch._C._get_dispatch_stack_at(i) for i in range(count)]) if count else ()


def set_dispatch_modes(modes: tuple[Any, ...]) -> None:
    """Take away those that are not among these, and put back those that are missing."""
    shared = count_shared(dispatch_modes(), modes)
    while torch._C._len_torch_dispatch_stack() > shared:
        torch._C._pop_torch_dispatch_stack(None)
    for mode in modes[torch._C._len_torch_dispatch_stack() :]:
        torch._C._push_on_torch_dispatch_stack(mode)


def count_shared(now: tuple[Any, ...], before: tuple[Any, ...]) -> int:
    """How many of the first modes are the same."""
    shared = 0
    for one, other in zip(now, before, strict=False):
        if one is not other:
            break
        shared += 1
    return shared


def outside_inference() -> AbstractContextManager[Any]:
    """As `torch.inference_mode(False)`, but in C alone: interrupted, that may turn the mode when it is collected."""
    return torch._C._InferenceMode(False)


@contextmanager
def seed_torch(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch draws by this seed, on the processor and on this card; then its generators are as they were."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    before = [one.get_state() for one in generators]

    def put_back() -> None:
        for one, state in zip(generators, before, strict=True):
            one.set_state(state)

    with undone(put_back):
        for one in generators:
            one.manual_seed(seed)
        yield


class TorchState(NamedTuple):
    """What torch keeps for this thread, and a computation changes."""

    modes: tuple[Any, ...]  # torch function modes, the innermost last
    dispatch: tuple[Any, ...]  # modes below autograd
    functions: tuple[bool, bool]  # whether torch function acts; whether modes are off, too
    gradients: bool
    inference: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]
    cast_cache: bool
    cast_nesting: int
    saved: Any
    stream: Any

    @classmethod
    def now(cls) -> TorchState:
        return cls(
            function_modes(),
            dispatch_modes(),
            (torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple([(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in DEVICES]),
            torch.is_autocast_cache_enabled(),
            cast_nesting(),
            find_saved_tensor_hooks(),
            torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
        )

    def put_back(self) -> None:
        """An interrupt may come after any line. So each line can be run again with the same effect."""
        if TorchState.now() == self:
            return
        torch._C.DisableTorchFunction().__enter__()  # modes of the caller see nothing of this, and cannot stop it
        self._put_back_modes()
        self._put_back_saved_hooks()
        self._put_back_autocast()
        if torch.is_inference_mode_enabled() != self.inference:
            _LEFT_OPEN.append(torch._C._InferenceMode(self.inference))
        torch._C._set_grad_enabled(self.gradients)
        if self.stream is not None:
            torch.cuda.set_stream(self.stream)
        self._put_back_functions()

    def _put_back_modes(self) -> None:
        set_dispatch_modes(self.dispatch)
        shared = count_shared(TorchState.now().modes, self.modes)
        while torch._C._len_torch_function_stack() > shared:
            torch._C._pop_torch_function_stack()
        for mode in self.modes[torch._C._len_torch_function_stack() :]:
            torch._C._push_on_torch_function_stack(mode)

    def _put_back_saved_hooks(self) -> None:
        while (found := find_saved_tensor_hooks()) is not None and found != self.saved:
            torch._C._autograd._pop_saved_tensors_default_hooks()
        if found is None and self.saved is not None:
            torch._C._autograd._push_saved_tensors_default_hooks(*self.saved)

    def _put_back_autocast(self) -> None:
        while cast_nesting() > self.cast_nesting:
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        while cast_nesting() < self.cast_nesting:
            torch.autocast_increment_nesting()
        for device, (enabled, dtype) in zip(DEVICES, self.autocast, strict=True):
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cast_cache)

    def _put_back_functions(self) -> None:
        """Torch offers this state only as a context manager: exiting one that was never entered sets the default."""
        enabled, all_off = self.functions
        if enabled:
            torch._C.DisableTorchFunction().__exit__(None, None, None)
        elif not all_off:
            torch._C.DisableTorchFunction().__exit__(None, None, None)
            torch._C.DisableTorchFunctionSubclass().__enter__()


def cast_nesting() -> int:
    """How many blocks of autocast this thread is in. Torch tells it only to those who count one up, and down again.

    Both happen in C, inside one instruction, where no exception arrives.
    """
    _, found = map(_CALL, (torch.autocast_increment_nesting, torch.autocast_decrement_nesting))
    return int(found)


class Before(NamedTuple):
    """A thread as it was, and how much it had to undo."""

    thread: TorchState
    noted: list[undone]
    size: int

    @classmethod
    def now(cls) -> Before:
        noted = pending_undos()
        return cls(TorchState.now(), noted, len(noted))

    def put_back(self) -> None:
        _THREAD.noted = self.noted
        if len(self.noted) > self.size:
            undo_from(self.size, self.noted)
        self.thread.put_back()
