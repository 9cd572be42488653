"""What of a model decides which operations it runs: weights, parts, hooks, switches. Has any of it changed?"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from operator import eq, itemgetter
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..inputs.hooks import HOOKED, hooks_seen_here
from ..inputs.walking import Named, named_modules

EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type)
CLOSED = (nn.Module, Tensor, type, ModuleType, FunctionType, MethodType, partial, weakref.ref)  # not looked into
BUILTIN = (dict, list, set, tuple)
INTERNAL = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
MANY = 1000  # entries of a list or dict inside another one, from which on it is not looked into
DEEP = 4  # so deep are lists, dicts and objects looked into that a module holds
OTHER = object()  # in the place of what is not plain


class Holder(NamedTuple):
    """What a dict, a list or an object held: its values by identity, and those of them that are plain themselves."""

    parent: int  # the number of the holder that it stands in, and its key there
    key: Any
    size: int
    take: Callable[[Any], Sequence[Any]]  # its values
    ids: list[int]
    plain: list[Any]
    inside: frozenset[int]  # places of values that are holders, too

    def holds(self, now: Any) -> bool:
        """Whether it holds the same; equal numbers and texts are."""
        if len(now) != self.size:
            return False
        values = self.take(now)
        return list(map(id, values)) == self.ids or all(
            id(value) == was or place in self.inside or (type(value) is type(then) and value == then)
            for place, (value, was, then) in enumerate(zip(values, self.ids, self.plain, strict=True))
        )


@dataclass(frozen=True)
class ModelState:
    """All modules of a model, as they were: the attributes of each by identity, and what they hold in turn; their code.

    Comparing is a matter of microseconds a module. Hooks that an explanation on another thread has attached meanwhile
    are left out. The model must be free to go: its attributes and hooks may lead back to it (`model.forward` replaced
    by a function that calls the old one). So only its weights are held, and all else by weak references. What is gone
    has changed, and nothing that lives has its identity.
    """

    modules: list[weakref.ref[nn.Module]]
    holders: list[Holder]  # the attributes of each module, then what is inside
    empty: list[Any]  # dicts and lists that held nothing: most do, and then less is to be compared
    alive: list[weakref.ref[Any]]  # what the holders know by identity
    gone: list[Any]  # those of them that are no more
    kept: list[Any]  # the same, where there is no weak reference to it
    hooks: list[list[tuple[int, int]]]  # of each module, by identity
    kinds: list[type]
    classes: list[tuple[type, dict[str, Any]]]
    functions: list[FunctionType]
    code: list[CodeType]
    weights: list[Tensor]
    places: list[int]  # of the weights, in memory
    everywhere: tuple[int, ...]

    @classmethod
    def of(cls, model: nn.Module) -> ModelState:
        modules = [module for _, module in named_modules(model)]
        holders, empty, leaves = take_holders(modules)
        gone: list[Any] = []
        leaves += [hook for module in modules for _, hook in hooks_of(module)]
        classes = classes_of(modules)
        functions = [made for one in classes for made in vars(one).values() if type(made) is FunctionType]
        return cls(
            [weakref.ref(module) for module in modules],
            holders,
            empty,
            [weakref.ref(leaf, gone.append) for leaf in leaves if type(leaf).__weakrefoffset__],
            gone,
            [leaf for leaf in leaves if not type(leaf).__weakrefoffset__],
            [by_identity(module) for module in modules],
            list(map(type, modules)),
            [(one, dict(vars(one))) for one in classes],
            functions,
            [function.__code__ for function in functions],
            (weights := [weight for weight in weights_of(model) if not weight.is_meta]),
            [weight.data_ptr() for weight in weights],
            hooks_everywhere(),
        )

    def holds(self, model: nn.Module) -> bool:
        """Whether the model is as it was."""
        modules: list[Any] = [one() for one in self.modules]
        try:
            same = (
                not self.gone
                and modules[0] is model
                and list(map(type, modules)) == self.kinds
                and not any(self.empty)
                and self._holders_hold(modules)
            )
        except (RuntimeError, ValueError, KeyError, IndexError, TypeError):  # what is there now has another shape
            return False
        return (
            same
            and all(map(eq, map(by_identity, modules), self.hooks))
            and [weight.data_ptr() for weight in self.weights] == self.places
            and hooks_everywhere() == self.everywhere
            and all(vars(one) == then for one, then in self.classes)
            and [function.__code__ for function in self.functions] == self.code
        )

    def name_modules(self, names: Sequence[str]) -> Named:
        """The modules with these names, which were just seen to be there."""
        found = [one() for one in self.modules]
        return [(name, module) for name, module in zip(names, found, strict=True) if module is not None]

    def _holders_hold(self, modules: list[Any]) -> bool:
        found = [module.__dict__ for module in modules]
        for holder in self.holders[len(found) :]:
            found.append(open_holder(found[holder.parent][holder.key]))
        if list(map(len, found)) == self.sizes:  # all at once: mostly nothing has changed
            values = chain.from_iterable([take(now) for take, now in zip(self.takes, found, strict=True)])
            if list(map(id, values)) == self.ids:
                return True
        return all(map(Holder.holds, self.holders, found))

    @cached_property
    def sizes(self) -> list[int]:
        """How much each holder held."""
        return [holder.size for holder in self.holders]

    @cached_property
    def takes(self) -> list[Callable[[Any], Sequence[Any]]]:
        """What takes the values of each holder."""
        return [holder.take for holder in self.holders]

    @cached_property
    def ids(self) -> list[int]:
        """The values of all holders, by identity."""
        return [one for holder in self.holders for one in holder.ids]


def take_holders(modules: list[nn.Module]) -> tuple[list[Holder], list[Any], list[Any]]:
    """Holders, those that are empty, and what is known by identity alone, each once."""
    holders: list[Holder] = []
    empty: dict[int, Any] = {}
    leaves: dict[int, Any] = {}
    waiting: list[tuple[int, Any, Any, int]] = [(0, None, module.__dict__, 0) for module in modules]
    seen: set[int] = set()
    for number, (parent, key, holder, depth) in enumerate(waiting):  # which grows meanwhile
        own = number < len(modules)
        keys = [name for name in holder if not (own and is_torchs(name, holder[name]))]
        take = taker(holder, keys)
        values = take(holder)
        inside = set()
        for i, value in enumerate(values):
            builtin, opened = isinstance(value, BUILTIN), not isinstance(holder, set) and is_open(value, depth)
            if is_plain(value):
                continue
            if builtin and not value:
                empty[id(value)] = value
            elif opened and id(value) not in seen:
                seen.add(id(value))
                inside.add(i)
                waiting.append((number, keys[i] if isinstance(holder, dict) else i, open_holder(value), depth + 1))
            if not builtin or (value and not opened):
                leaves[id(value)] = value
        if own:
            empty |= {id(holder[name]): holder[name] for name in holder.keys() - set(keys) - HOOKED}
        plain = [value if is_plain(value) else OTHER for value in values]
        known = frozenset(i for i in inside if isinstance(values[i], BUILTIN))
        holders.append(Holder(parent, key, len(holder), take, list(map(id, values)), plain, known))
    return holders, list(empty.values()), list(leaves.values())


def is_torchs(name: str, value: Any) -> bool:
    """Whether an attribute is a dict of torch's own that stays the same and is empty, or is looked at elsewhere."""
    return name in HOOKED or (name in INTERNAL and isinstance(value, BUILTIN) and not value)


def taker(holder: Any, keys: list[Any]) -> Callable[[Any], Sequence[Any]]:
    """What takes the values of a holder."""
    return itemgetter(*keys, keys[-1]) if isinstance(holder, dict) and keys else tuple  # one key alone gives no tuple


def is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (type(value) is tuple and all(map(is_plain, value)))


def is_open(value: Any, depth: int) -> bool:
    """Whether it is looked into: a list, a dict, or an object of a plain class."""
    if isinstance(value, BUILTIN):
        return depth == 0 or (depth < DEEP and len(value) <= MANY)
    return depth < DEEP and not isinstance(value, CLOSED) and isinstance(getattr(value, "__dict__", None), dict)


def open_holder(value: Any) -> Any:
    """What is compared of it: a dict or a list is itself, an object is its attributes."""
    return value if isinstance(value, BUILTIN) else vars(value)


def by_identity(module: nn.Module) -> list[tuple[int, int]]:
    """The hooks of a module by number and identity."""
    if not module._forward_hooks and not module._forward_pre_hooks:
        return []
    return [(number, id(hook)) for number, hook in hooks_of(module)]


def hooks_of(module: nn.Module) -> list[tuple[int, Any]]:
    return [*hooks_seen_here(module._forward_hooks), *hooks_seen_here(module._forward_pre_hooks)]


def classes_of(modules: Iterable[nn.Module]) -> list[type]:
    """The classes that the modules' code is from."""
    found = {one: None for kind in set(map(type, modules)) for one in kind.__mro__ if one not in (object, nn.Module)}
    return list(found)


def weights_of(model: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers of all modules, a shared one as often as it is shared."""
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            yield from (weight for weight in held.values() if weight is not None)


def hooks_everywhere() -> tuple[int, ...]:
    return tuple(len(getattr(torch_module, name)) for name in EVERYWHERE)
