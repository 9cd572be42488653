"""Forward hooks that act on one thread alone, and never stay: the one place where they are attached to modules."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import Any

from torch import nn

from .restoring import undone

Before = Callable[[nn.Module, Any, Any], Any]  # (module, args, kwargs) -> None, or (args, kwargs)
After = Callable[[nn.Module, Any, Any, Any], Any]  # (module, args, kwargs, output) -> None, or another output
Attached = tuple[nn.Module, Callable[..., Any]]
_KINDS = (
    ("_forward_hooks", ("_forward_hooks_with_kwargs", "_forward_hooks_always_called")),
    ("_forward_pre_hooks", ("_forward_pre_hooks_with_kwargs",)),
)
HOOKED = frozenset(name for kind, flags in _KINDS for name in (kind, *flags))  # attributes that attaching changes


@contextmanager
def hook_modules(
    modules: Iterable[nn.Module], *, before: Before | None = None, after: After | None = None, innermost: bool = False
) -> Iterator[None]:
    """Inside, `before` and `after` are called around every call of these modules on this thread.

    With `innermost`, `after` runs before all other hooks, and also where the call fails.
    """
    modules = list(modules)
    enter = None if before is None else Hook(before)
    leave = None if after is None else Hook(after)
    ours = [(module, hook) for module in modules for hook in (enter, leave) if hook is not None]
    with undone(partial(detach, ours)):
        for module in modules:
            if enter is not None:
                module.register_forward_pre_hook(enter, with_kwargs=True)
            if leave is not None:
                module.register_forward_hook(leave, with_kwargs=True, prepend=innermost, always_call=innermost)
        yield


@dataclass(eq=False)
class Hook:
    """A hook that acts on the thread that made it. Torch may call it on others, and there even without keywords."""

    function: Callable[..., Any]
    thread: int = field(default_factory=get_ident)

    def __call__(self, *given: Any) -> Any:
        return self.function(*given) if get_ident() == self.thread else None


def hooks_seen_here(attached: Mapping[int, Any]) -> list[tuple[int, Any]]:
    """A module's hooks without ours that act on other threads, where another explanation is under way."""
    here = get_ident()
    return [(number, hook) for number, hook in list(attached.items()) if not is_of_another(hook, here)]


def is_of_another(hook: Any, thread: int) -> bool:
    return isinstance(hook, Hook) and hook.thread != thread


def without_hooks(module: nn.Module) -> nn.Module:
    """The same module without our hooks after it: torch takes its fused paths only where none is attached."""
    twin = copy.copy(module)
    twin._forward_hooks = OrderedDict((k, h) for k, h in module._forward_hooks.items() if not isinstance(h, Hook))
    return twin


def detach(hooks: Iterable[Attached]) -> None:
    """Removes hooks from their modules. They are searched for: an interrupt while attaching loses torch's handle."""
    for module, hook in hooks:
        for kind, flags in _KINDS:
            attached = getattr(module, kind)
            for number in [number for number, one in list(attached.items()) if one is hook]:
                for flag in flags:
                    getattr(module, flag).pop(number, None)
                attached.pop(number, None)  # last: by it the others are found


def find_hooks_of(package: str, modules: Iterable[nn.Module]) -> list[Attached]:
    """The forward hooks that a package has on modules."""
    return [
        (module, hook)
        for module in modules
        for kind, _ in _KINDS
        for hook in getattr(module, kind).values()
        if getattr(hook, "__module__", None) is not None and hook.__module__.split(".")[0] == package
    ]


class _Enough(Exception):
    """What was asked for is known; the rest of the model need not run."""


@contextmanager
def stop_after(modules: Sequence[nn.Module]) -> Iterator[None]:
    """A model that is called inside runs until the first of these modules is done, on this thread; then it is left."""

    def stop(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        raise _Enough

    with suppress(_Enough), hook_modules(modules, after=stop):
        yield
