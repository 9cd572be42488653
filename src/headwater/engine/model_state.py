"""What of a model decides which operations it runs: weights, parts, hooks, switches. Has any of it changed?"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from operator import eq, itemgetter
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..inputs.hooks import HOOKED, hooks_seen_here
from ..inputs.walking import Named, named_modules

EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type)
CLOSED = (Tensor, type, ModuleType, weakref.ref)  # not looked into
BUILTIN = (dict, list, set, tuple)
MAPPINGS = (dict, MappingProxyType)
CALLED = (FunctionType, MethodType, partial)  # they hold what they were made with
INTERNAL = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
MANY = 1000  # entries of a list or dict inside another one, from which on it is not looked into
DEEP = 4  # so deep are lists, dicts and objects looked into that a module holds
OTHER = object()  # in the place of what is not plain


class Holder(NamedTuple):
    """What a dict, a list or an object held: its values by identity, and those of them that are plain themselves."""

    parent: int  # the number of the holder that it stands in, and its key there
    key: Any
    size: int
    keys: list[Any]  # of a dict, in its order; not of attributes, which nobody goes through in order
    take: Callable[[Any], Sequence[Any]]  # its values
    ids: list[int]
    plain: list[Any]
    inside: frozenset[int]  # places of values that are holders, too

    def holds(self, now: Any) -> bool:
        """Whether it holds the same; equal numbers and texts are."""
        if len(now) != self.size or (self.keys and list(now) != self.keys):
            return False
        values = self.take(now)
        return list(map(id, values)) == self.ids or all(
            id(value) == was or place in self.inside or (type(value) is type(then) and value == then)
            for place, (value, was, then) in enumerate(zip(values, self.ids, self.plain, strict=True))
        )


@dataclass(frozen=True)
class ModelState:
    """All modules of a model, as they were: the attributes of each by identity, and what they hold in turn; their code.

    What they hold is in dicts, lists, objects, and functions that were made with it; what their classes hold is in
    dicts and lists. Comparing is a matter of microseconds a module. Hooks that an explanation on another thread has
    attached meanwhile are left out. The model must be free to go: its attributes and hooks may lead back to it
    (`model.forward` replaced by a function that calls the old one). So only its weights are held, and all else by weak
    references. What is gone has changed, and nothing that lives has its identity.
    """

    modules: list[weakref.ref[nn.Module]]
    holders: list[Holder]  # the attributes of each module, then what is inside
    empty: list[Any]  # dicts and lists that held nothing: most do, and then less is to be compared
    alive: list[weakref.ref[Any]]  # what the holders know by identity
    gone: list[Any]  # those of them that are no more
    kept: list[Any]  # the same, where there is no weak reference to it
    hooks: list[list[tuple[int, int]]]  # of each module, by identity
    kinds: list[type]
    classes: list[type]
    functions: list[FunctionType]
    code: list[CodeType]
    weights: list[Tensor]
    places: list[list[Any]]  # of the weights, in memory
    held: list[dict[str, nn.Parameter | None]]  # the parameters of each module that has any, as it holds them
    parameters: list[int]  # the same by identity
    parts: list[int]  # the modules that each module holds, by identity
    everywhere: tuple[int, ...]

    @classmethod
    def of(cls, model: nn.Module) -> ModelState:
        modules = [module for _, module in named_modules(model)]
        classes = classes_of(modules)
        holders, empty, leaves = take_holders(modules, classes)
        gone: list[Any] = []
        leaves += [hook for module in modules for _, hook in hooks_of(module)]
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
            classes,
            functions,
            [function.__code__ for function in functions],
            (weights := [weight for weight in weights_of(model) if not weight.is_meta]),
            places_of(weights),
            (held := [module._parameters for module in modules if module._parameters]),
            parameters_in(held),
            parts_of(modules),
            hooks_everywhere(),
        )

    def seems_to_hold(self, model: nn.Module) -> bool:
        """Whether its modules hold the same parts and weights, and these lie where they lay: a short look.

        After it a plan finds what it reads in memory. A new table of words may be longer than the one that the plan
        reads: an index behind the end of that would leave a card unusable.
        """
        return (
            not self.gone
            and self.modules[0]() is model
            and parts_of([one() for one in self.modules]) == self.parts
            and [weight.data_ptr() for weight in self.weights] == self.places[0]
            and parameters_in(self.held) == self.parameters
            and hooks_everywhere() == self.everywhere
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
            and places_of(self.weights) == self.places
            and hooks_everywhere() == self.everywhere
            and [function.__code__ for function in self.functions] == self.code
        )

    @cached_property
    def is_hooked(self) -> bool:
        """Whether somebody's hooks are called where it runs: they may do anything, and look at anything."""
        return any(self.hooks) or any(self.everywhere)

    def name_modules(self, names: Sequence[str]) -> Named:
        """The modules with these names, which were just seen to be there."""
        found = [one() for one in self.modules]
        return [(name, module) for name, module in zip(names, found, strict=True) if module is not None]

    def _holders_hold(self, modules: list[Any]) -> bool:
        found: list[Any] = [*map(vars, modules), *map(vars, self.classes)]
        for holder in self.holders[len(found) :]:
            found.append(open_holder(found[holder.parent][holder.key]))
        if list(map(len, found)) == self.sizes and self._keys_of(found) == self.keys:  # mostly nothing has changed
            values = chain.from_iterable([take(now) for take, now in zip(self.takes, found, strict=True)])
            if list(map(id, values)) == self.ids:
                return True
        return all(map(Holder.holds, self.holders, found))

    def _keys_of(self, found: list[Any]) -> list[Any]:
        return list(chain.from_iterable([found[number] for number in self.ordered]))

    @cached_property
    def ordered(self) -> list[int]:
        """Holders whose keys have an order, by number."""
        return [number for number, holder in enumerate(self.holders) if holder.keys]

    @cached_property
    def keys(self) -> list[Any]:
        """The keys of all of them."""
        return [key for holder in self.holders for key in holder.keys]

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


def take_holders(modules: list[nn.Module], classes: list[type]) -> tuple[list[Holder], list[Any], list[Any]]:
    """Holders, those that are empty, and what is known by identity alone, each once.

    The attributes of modules come first, then those of classes, of which only dicts and lists are looked into. Modules
    that are no part of the model, but held by an object or a function, are looked into as the model's own.
    """
    roots = [*map(vars, modules), *map(vars, classes)]
    holders: list[Holder] = []
    empty: dict[int, Any] = {}
    leaves: dict[int, Any] = {}
    waiting: list[tuple[int, Any, Any, int]] = [(0, None, root, 0) for root in roots]
    seen = set(map(id, modules))
    for number, (parent, key, holder, depth) in enumerate(waiting):  # which grows meanwhile
        own, root = number < len(modules), number < len(roots)
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
            elif opened and id(value) not in seen and (builtin or own or not root):
                seen.add(id(value))
                inside.add(i)
                deeper = 0 if isinstance(value, nn.Module) else depth + 1
                waiting.append((number, keys[i] if isinstance(holder, MAPPINGS) else i, open_holder(value), deeper))
            if not builtin or (value and not opened):
                leaves[id(value)] = value
        if own:
            empty |= {id(holder[name]): holder[name] for name in holder.keys() - set(keys) - HOOKED}
        plain = [value if is_plain(value) else OTHER for value in values]
        known = frozenset(i for i in inside if isinstance(values[i], BUILTIN))
        order = [] if root or not isinstance(holder, dict) else list(holder)
        holders.append(Holder(parent, key, len(holder), order, take, list(map(id, values)), plain, known))
    return holders, list(empty.values()), list(leaves.values())


def is_torchs(name: str, value: Any) -> bool:
    """Whether an attribute is a dict of torch's own that stays the same and is empty, or is looked at elsewhere."""
    return name in HOOKED or (name in INTERNAL and isinstance(value, BUILTIN) and not value)


def taker(holder: Any, keys: list[Any]) -> Callable[[Any], Sequence[Any]]:
    """What takes the values of a holder."""
    if isinstance(holder, MAPPINGS) and keys:
        return itemgetter(*keys, keys[-1])  # one key alone gives no tuple
    return tuple


def is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (type(value) is tuple and all(map(is_plain, value)))


def is_open(value: Any, depth: int) -> bool:
    """Whether it is looked into: a list, a dict, what a function was made with, or an object of a plain class."""
    if isinstance(value, BUILTIN):
        return depth == 0 or (depth < DEEP and len(value) <= MANY)
    if depth >= DEEP or isinstance(value, CLOSED):
        return False
    if isinstance(value, CALLED):
        return len(open_holder(value)) > 0
    return isinstance(getattr(value, "__dict__", None), dict) or len(slots_of(type(value).__mro__)) > 0


def open_holder(value: Any) -> Any:
    """What is compared of it: a dict or a list is itself, an object is its attributes."""
    if isinstance(value, BUILTIN):
        return value
    if isinstance(value, FunctionType):
        filled = map(read_cell, value.__closure__ or ())
        return [*filled, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    slots = slots_of(type(value).__mro__)
    if slots:
        return [*(getattr(value, name, OTHER) for name in slots), *getattr(value, "__dict__", {}).values()]
    return vars(value)


def read_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return OTHER


@cache
def slots_of(kinds: tuple[type, ...]) -> tuple[str, ...]:
    """Attributes that objects of a class hold outside of a dict, by the class and those it is made from."""
    found = [vars(one).get("__slots__", ()) for one in kinds]
    names = [name for slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


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


def parts_of(modules: Sequence[nn.Module | None]) -> list[int]:
    """The modules that these hold, by identity."""
    return [id(part) for module in modules if module is not None for part in module._modules.values()]


def parameters_in(held: list[dict[str, nn.Parameter | None]]) -> list[int]:
    """The parameters that modules hold, by identity."""
    return [id(weight) for own in held for weight in own.values()]


def places_of(weights: list[Tensor]) -> list[list[Any]]:
    """Where they lie in memory, and how."""
    return [list(map(look, weights)) for look in (Tensor.data_ptr, Tensor.size, Tensor.stride)]


def hooks_everywhere() -> tuple[int, ...]:
    return tuple(len(getattr(torch_module, name)) for name in EVERYWHERE)
