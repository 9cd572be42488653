"""Gradient checkpointing under the rules: a block's saved tensors are computed again in the backward pass.

A block is a member of an outermost stack of layers. In the forward pass its inputs are kept, and each tensor that it
saves is replaced by a number. When the backward pass asks for the first of them, the block runs again under the same
rules, with books that nobody reads. The tensors that it saves this time are handed out by their numbers, each once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.compiled import run_eagerly
from ..errors import HiddenOperation, NotApplicable, UsageError
from ..inputs.hooks import hook_modules
from ..inputs.places import is_stack, start
from ..inputs.restoring import hook_saved_tensors, outside_inference
from ..rules import Books, Scope
from ..rules.branches import Branch, branch_of, set_branch
from ..rules.lineage import Lineage, lineage, mark
from ..rules.modules import FUSED, watch_foreign_modules
from ..rules.saved import SavedTensor
from .saved_tensors import memories, memory_of

Count = int | str | None
Seen = tuple[torch.Size, torch.dtype, torch.device]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Members of the outermost stacks, in order. Torch's own encoders choose another path where they are watched."""
    if isinstance(model, FUSED):
        return []
    if is_stack(model):
        return [part for part in model.children() if not isinstance(part, FUSED)]
    return list({id(part): part for child in model.children() for part in blocks_of(child)}.values())


def choose_blocks(count: Count, model: nn.Module, places: list[nn.Module]) -> list[nn.Module]:
    """The blocks to recompute: all for "blocks", or the first `count`, whose tensors would be kept the longest."""
    if count is None or count == 0:
        return []
    inside = {id(place) for place in places}
    found = [block for block in blocks_of(model) if not any(id(part) in inside for part in block.modules())]
    if not found:
        raise NotApplicable(f"{type(model).__name__} has no stack of blocks that could be computed again.")
    if count == "blocks":
        return found
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise UsageError(f"recompute is 'blocks' or a number of blocks, not {count!r}.")
    return found[:count]


@dataclass
class Recomputing:
    """`recomputing.watch` belongs around the forward pass of a run."""

    model: nn.Module
    blocks: list[nn.Module]
    again: int = 0  # how often a block was run once more
    _latest: weakref.ref[BlockCall] | None = None  # weak, for a passage knows its owner
    _weights: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._weights = memories(self.model)

    @contextmanager
    def watch(self, scope: Scope) -> Iterator[None]:
        if type(scope) is not Scope:
            raise NotApplicable("blocks are computed again for methods that are made of rules, such as lrp and gi.")
        inside: list[tuple[nn.Module, ExitStack]] = []

        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if inside or not torch.is_grad_enabled():
                return
            signal = first_with_gradient((args, kwargs))
            if signal is None:
                return
            scope.pending.settle_ratios()
            stack = ExitStack()
            stack.callback(scope.pending.forget_borrowers, scope.pending.moment())
            passage = BlockCall(self, scope, module, BlockArguments.of(args, kwargs), Precision.now(signal))
            stack.enter_context(hook_saved_tensors(passage.pack, passage.unpack))
            inside.append((module, stack))

        def leave(module: nn.Module, *_: Any) -> None:
            if inside and inside[-1][0] is module:
                inside.pop()[1].close()

        with hook_modules(self.blocks, before=enter, after=leave, innermost=True):
            try:
                yield
            finally:
                while inside:
                    inside.pop()[1].close()

    def is_weight(self, tensor: Tensor) -> bool:
        place = memory_of(tensor)
        return place != 0 and place in self._weights

    def only(self, passage: BlockCall) -> None:
        """Frees what was computed again for other blocks: the backward pass is done with them."""
        latest = self._latest() if self._latest is not None else None
        if latest is not None and latest is not passage:
            latest.made.clear()
        self._latest = weakref.ref(passage)


class Enough(Exception):
    """Raised when every tensor that is needed is there: the rest of the block need not run."""


@dataclass(frozen=True)
class Number:
    """Stands in for a saved tensor in the graph."""

    number: int
    seen: Seen


@dataclass(eq=False)
class BlockCall:
    """One call of a block: its inputs, how many tensors it saved, and these tensors once they are computed again."""

    owner: Recomputing
    scope: Scope
    block: nn.Module
    entered: BlockArguments
    precision: Precision
    count: int = 0
    made: dict[int, tuple[Tensor, int]] = field(default_factory=dict)

    def pack(self, tensor: Tensor) -> Any:
        if self.owner.is_weight(tensor):
            return tensor
        self.count += 1
        return Number(self.count - 1, (tensor.shape, tensor.dtype, tensor.device))

    def unpack(self, kept: Any) -> Tensor:
        if not isinstance(kept, Number):
            return kept  # type: ignore[no-any-return]
        if kept.number not in self.made:
            self.run_again()
        if kept.number not in self.made:
            raise self.differs(f"saved {len(self.made)} tensors and not {self.count}")
        tensor, version = self.made.pop(kept.number)
        if tensor._version != version:
            raise HiddenOperation("the model writes over a tensor that the backward pass still needs.")
        seen = (tensor.shape, tensor.dtype, tensor.device)
        if seen != kept.seen:
            raise self.differs(f"saved {tuple(seen[0])}, {seen[1]} in place of {tuple(kept.seen[0])}, {kept.seen[1]}")
        return tensor

    def run_again(self) -> None:
        self.owner.only(self)
        self.owner.again += 1
        self.made.clear()
        books = Books(
            self.scope.books.samples, self.scope.books.length
        )  # their hooks lie on a graph without a way back
        scope = Scope(self.scope.rules, books, self.scope.names, self.scope.modules)
        scope.fleeting = self.scope.fleeting
        collected = 0

        def collect(tensor: Tensor) -> Any:
            nonlocal collected
            if self.owner.is_weight(tensor):
                return tensor
            held = tensor.detach()
            self.made[collected] = (held, held._version)
            collected += 1
            if collected == self.count:
                raise Enough
            return None

        with outside_inference(), torch.enable_grad(), run_eagerly(), self.precision.again():
            args, kwargs = self.entered.again()
            with (
                watch_foreign_modules(self.owner.model, scope),
                hook_saved_tensors(collect, unread),
                scope,
                suppress(Enough),
            ):
                self.block.forward(*args, **kwargs)

    def differs(self, how: str) -> HiddenOperation:
        name = self.scope.modules.get(id(self.block), type(self.block).__name__)
        return HiddenOperation(
            f"the block {name!r} {how} when it was run once more: it does not do the same twice, so it cannot be "
            "computed again. Leave recompute= out."
        )


def map_containers(value: Any, change: Callable[[Any], Any]) -> Any:
    """Applies `change` to the leaves of plain lists, tuples and dicts. Objects of any other type are leaves."""
    if type(value) is dict:
        return {key: map_containers(part, change) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_containers(part, change) for part in value)
    return change(value)


def first_with_gradient(value: Any) -> Tensor | None:
    found: list[Tensor] = []
    map_containers(value, lambda leaf: found.append(leaf) if isinstance(leaf, Tensor) and leaf.requires_grad else None)
    return found[0] if found else None


def unread(kept: Any) -> Tensor:
    raise AssertionError("nothing goes back through a block that was run again")


@dataclass
class BlockArguments:
    """The arguments of a call: tensors with a gradient are detached from what came before, others stay as they are."""

    args: Any
    kwargs: Any

    @classmethod
    def of(cls, args: Any, kwargs: Any) -> BlockArguments:
        known: dict[int, Signal] = {}

        def kept(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.requires_grad or value.is_leaf:
                return value
            if id(value) not in known:
                known[id(value)] = Signal.of(value)
            return known[id(value)]

        return cls(*map_containers((args, kwargs), kept))

    def again(self) -> tuple[Any, Any]:
        known: dict[int, Tensor] = {}

        def made(value: Any) -> Any:
            if not isinstance(value, Signal):
                return value
            if id(value) not in known:
                known[id(value)] = value.again()
            return known[id(value)]

        args, kwargs = map_containers((self.args, self.kwargs), made)
        return args, kwargs


@dataclass
class Signal:
    """An input of the block, kept as a saved tensor: where saved tensors are offloaded, it is, too."""

    value: SavedTensor
    origin: Tensor | None
    version: int
    lineage: Lineage
    branch: Branch

    @classmethod
    def of(cls, tensor: Tensor) -> Signal:
        with torch._C.DisableTorchFunction():
            waiting = SavedTensor(tensor)
            own = tensor.detach() if waiting.here else None
        return cls(waiting, own, tensor._version, lineage(tensor), branch_of(tensor))

    def again(self) -> Tensor:
        if self.origin is not None and self.origin._version != self.version:
            raise HiddenOperation("a block writes over what entered it, so it cannot be computed again.")
        tensor = start(self.value.tensor().detach().requires_grad_(True))
        mark(tensor, *self.lineage)
        set_branch(tensor, self.branch)
        return tensor


@dataclass(frozen=True)
class Precision:
    """The autocast settings of the forward pass."""

    device: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, signal: Tensor) -> Precision:
        device = signal.device.type
        return cls(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))

    def again(self) -> torch.autocast:
        return torch.autocast(self.device, enabled=self.enabled, dtype=self.dtype)
