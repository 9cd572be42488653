"""What was made from the explained input, but has no gradient that leads back to it.

Such a tensor is no constant. It carries an `Origin`, which says what took the gradient away: the model's own code
(`detach`, `no_grad`, a cast to integers), or a rule of ours that holds it constant. The origin goes along wherever the
tensor goes. Where the tensor enters a signal by a sum, the ledger has a line for it, apart from biases and constants.
A factor of a product makes no line: there relevance goes to the other factor, as with attention weights and gates.

Numbers that choose (an index, a comparison) are an origin of their own kind. A mixture of experts chooses by numbers
whose values then weigh what was chosen: that choice is a gate, and what it looks up stays a bias. A code book that is
looked up by the nearest entry has no such weight: it is cut off.

Numbers that leave torch (`item`, `numpy`) cannot be followed. They are noted, and another input shows whether a
constant depends on them (`methods.checks.find_escapes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from .lineage import Kind, lineage_kind

ORIGIN = "_headwater_origin"
_CHOICE = "_headwater_choice"
_FAR = 64  # nodes of the graph that are asked whether a weight was chosen
_NEAR = 128  # nodes before a weighed factor that are asked whether a look-up entered there

# of their first operand these read the shape, the type or the place, and none of its numbers
SHAPES = frozenset(
    """
    zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty
    new_tensor new_empty_strided size stride dim numel element_size get_device is_floating_point finfo
    """.split()
)
# of their operands the first alone gives numbers
FIRST = frozenset("to type_as expand_as view_as reshape_as sum_to_size unflatten".split())
WEIGHING = frozenset("mul matmul mm bmm einsum tensordot".split())
CONTRACTING = WEIGHING - {"mul"} | {"linear", "scaled_dot_product_attention", "addmm", "baddbmm"}
OVERWRITING = frozenset("copy fill zero".split())
SELECTING = frozenset(
    """
    getitem gather index_select index take take_along_dim masked_select masked_fill where mul scatter scatter_add
    setitem index_put topk sort max min
    """.split()
)
READS = frozenset(
    """
    item tolist numpy __array__ __float__ __int__ __index__ __complex__ __dlpack__ untyped_storage storage data_ptr
    """.split()
)
_STOPS = ("_Product", "_Boosted", "_WeightsHeld", "Mm", "Bmm", "Addmm", "Convolution", "_Start")  # linear layers


class Choice:
    """A choice by numbers of the input. It `weighs` where the numbers that were chosen multiply a signal."""

    __slots__ = ("__weakref__", "weighs")

    def __init__(self) -> None:
        self.weighs: bool = False


@dataclass(frozen=True)
class Origin:
    """Where a tensor lost its gradient: operation and module, or, where a rule of ours `held` it, the operation alone.

    `choice` is the choice that took part. Without `value` the tensor holds nothing but the outcome of that choice.
    """

    name: str
    held: bool = False
    choice: Choice | None = None
    value: bool = True
    weights: bool = False  # whether these are weights of attention, which a rule holds

    @property
    def rank(self) -> int:
        """What was cut off counts before what is held, and both before a choice."""
        return 0 if not self.value else 1 if self.held else 2


def merge(one: Origin | None, other: Origin | None) -> Origin | None:
    """The origin of what was made of two tensors."""
    if one is None or other is None:
        return one or other
    first, second = (one, other) if one.rank >= other.rank else (other, one)
    return first if first.choice is not None or second.choice is None else replace(first, choice=second.choice)


@dataclass
class Chosen:
    """A constant that was looked up by a choice, line `site` of the books; and what it is if the choice weighs."""

    site: int
    choice: Choice
    name: str
    bias: bool


@dataclass(eq=False)
class Cuts:
    """The origins of one run. `where` names the module whose code is running."""

    where: Callable[[], str]
    reads: list[Choice | None] = field(default_factory=list)  # numbers left torch, as outcomes of this choice
    chosen: list[Chosen] = field(default_factory=list)
    memory: dict[int, tuple[StorageWeakRef, Origin]] = field(default_factory=dict)
    selected: dict[Any, Choice] = field(default_factory=dict)  # node of the graph -> the choice that selected there
    weighed: list[tuple[Choice, set[Any]]] = field(default_factory=list)  # choice -> nodes that its weights multiply
    nodes: dict[int, Any] = field(default_factory=dict)  # site -> node of the graph

    def of(self, value: Any) -> Origin | None:
        """The origin of a tensor that is no signal; None for a true constant."""
        found: Origin | None = getattr(value, ORIGIN, None)
        if found is None and self.memory and isinstance(value, Tensor) and not value.requires_grad:
            return self._of_memory(value)
        return found

    def of_any(self, values: Any) -> Origin | None:
        """What tensors among `values` have been made of, where no gradient is made: signals count, too."""
        found: Origin | None = None
        for value in tensors(values):
            if value.requires_grad:
                if not value.is_leaf:
                    found = merge(
                        found, self._here("inference_mode" if torch.is_inference_mode_enabled() else "no_grad")
                    )
            else:
                found = merge(found, self.of(value))
        return found

    def carry(self, value: Tensor, made_of: Any) -> Tensor:
        """A constant that a rule made of others, with their origin."""
        found = self.of_constants(made_of)
        if found is not None:
            self._mark(value, found)
        return value

    def of_constants(self, values: Any) -> Origin | None:
        """The origin of what is made of these, signals among them left out."""
        found: Origin | None = None
        for tensor in tensors(values):
            if not tensor.requires_grad:
                found = merge(found, self.of(tensor))
        return found

    def pass_on(self, result: Any, origin: Origin, name: str, args: Any, *, inplace: bool = False) -> None:
        """An operation on constants, one of which has an origin: what it gives has it, and what it writes into."""
        if name in SHAPES or (inplace and name in OVERWRITING):
            again = self.of_any(args[1:])
            if again is None:
                self._forget(args[0] if inplace else None)
                return
            origin = again
        written = args[0] if inplace else None
        origin = self._origin_in_sum(name, args) or origin
        if origin.weights and name in CONTRACTING:
            origin = replace(origin, weights=False)
        if origin.choice is None and chooses(result):
            origin = replace(origin, choice=self._choice(args))
        for tensor in tensors((result, written)):
            if not tensor.requires_grad:
                self._mark(tensor, origin)
                if not origin.held and (origin.value or tensor.is_floating_point()):
                    self._remember(tensor, origin)

    def lose(self, result: Any, name: str, args: Any, given: Origin | None, *, by_rule: bool) -> None:
        """An operation on a signal: what has no gradient now lost it there. `given` is the origin of its constants."""
        if name in SHAPES:
            if given is not None and (origin := self.of_constants(args[1:])) is not None:
                self.pass_on(result, origin, "", args)
            return
        if given is not None and given.value and not given.held and name not in FIRST:
            self.pass_on(result, given, name, args)
            return
        if by_rule and isinstance(result, Tensor) and result.is_floating_point() and name not in FIRST:
            origin = self._origin_by_rule(name, args, given)  # often, so it is not asked in which module
            if lineage_kind(result) is Kind.WEIGHTS:
                origin = replace(origin, weights=True)
            setattr(result, ORIGIN, origin)
            return
        first = next(tensors(args), None)
        if name in FIRST and first is not None and not first.requires_grad:
            if (origin := self.of(first)) is not None:
                self.pass_on(result, origin, name, args)
            return
        origin = None
        for tensor in tensors(result):
            if tensor.requires_grad:
                continue
            if origin is None:
                choice = self._choice(args) if chooses(result) else None
                origin = Origin(name, True, choice) if by_rule else self._here(name, choice)
            self._mark(tensor, origin)
            if tensor.is_floating_point() and not by_rule:
                self._remember(tensor, origin)
        if origin is not None and isinstance(result, tuple | list):
            for tensor in tensors(result):
                self._select(tensor, origin.choice)

    def _origin_by_rule(self, name: str, args: Any, given: Origin | None) -> Origin:
        """By a rule. A weight that a choice selected is still that choice's; values that one looked up stay those."""
        if given is None and not self.selected:
            return make_held_origin(name)
        values = self._origin_in_sum(name, args)
        if values is not None:
            return values
        choices = [self.selected[n] for t in tensors(args) for n in before(t, _FAR, _STOPS) if n in self.selected]
        choice = given.choice if given is not None else None
        return Origin(name, True, choice or (choices[0] if choices else None))

    def _origin_in_sum(self, name: str, args: Any) -> Origin | None:
        """In a sum of products, the origin of values that were looked up by a choice: what weighs them is another."""
        if name not in CONTRACTING:
            return None
        origins = [self.of(t) for t in tensors(args) if not t.requires_grad and t.is_floating_point()]
        looked_up = [one for one in origins if one is not None and not one.value]
        others = [one for one in origins if one is not None and one.value]
        return looked_up[0] if looked_up and all(one.choice is not looked_up[0].choice for one in others) else None

    def meet(self, result: Any, name: str, args: Any, origin: Origin | None) -> None:
        """A signal meets what has an origin. A weight that was chosen, and now multiplies a signal, makes it a gate."""
        if origin is not None and origin.choice is not None:
            self.place(result, [one.site for one in self.chosen if one.site not in self.nodes])
            if origin.value and name in WEIGHING:
                self._weigh({origin.choice}, [factor for factor in tensors(args) if factor.requires_grad])
            if name in SELECTING:
                for tensor in tensors(result):
                    self._select(tensor, origin.choice)
        if self.selected and name in WEIGHING:
            factors = [factor for factor in tensors(args) if factor.requires_grad]
            for weight in factors if len(factors) > 1 else ():
                choices = {self.selected[node] for node in before(weight, _FAR, _STOPS) if node in self.selected}
                self._weigh(choices, [factor for factor in factors if factor is not weight])

    def read(self, value: Any) -> None:
        """Numbers leave torch. A yes or a no does not count: a model that branches computes what it computes."""
        if not isinstance(value, Tensor) or value.dtype is torch.bool:
            return
        alive = value.requires_grad and not value.is_leaf
        origin = None if alive else self.of(value)
        if alive or origin is not None:
            self.reads.append(None if origin is None or origin.value else origin.choice)
        if alive:
            self._remember(value, self._here("numbers read"))

    def place(self, result: Any, sites: Sequence[int]) -> None:
        """Where in the graph the sources entered that an operation has booked."""
        node = result.grad_fn if isinstance(result, Tensor) else None
        if node is not None:
            self.nodes |= dict.fromkeys(sites, node)

    def unclear(self) -> bool:
        """Whether numbers left torch that may have come back as constants."""
        return any(choice is None or not choice.weighs for choice in self.reads)

    def is_weighed(self, site: int, choice: Choice | None = None) -> bool:
        """Whether what entered there was multiplied, further on, by a weight that this choice, or any, selected."""
        node = self.nodes.get(site)
        return any(node in reached for one, reached in self.weighed if choice is None or one is choice)

    def release(self) -> None:
        self.selected.clear()
        self.memory.clear()
        self.weighed.clear()
        self.nodes.clear()

    def _here(self, how: str, choice: Choice | None = None) -> Origin:
        module = self.where()
        return Origin(f"{module}: {how}" if module else how, choice=choice)

    def _mark(self, tensor: Tensor, origin: Origin) -> None:
        if not tensor.is_floating_point() and not tensor.is_complex():
            origin = replace(origin, value=False, choice=origin.choice or Choice())
        setattr(tensor, ORIGIN, origin)

    def _remember(self, tensor: Tensor, origin: Origin) -> None:
        """Other tensors may lie in the same memory: views, `.data`, an array of numpy."""
        try:
            storage = tensor.untyped_storage()
            self.memory[storage.data_ptr()] = (StorageWeakRef(storage), origin)
        except (NotImplementedError, RuntimeError):  # a tensor without memory of its own
            return

    def _forget(self, written: Any) -> None:
        """A constant was written over all that was there."""
        if isinstance(written, Tensor):
            if hasattr(written, ORIGIN):
                delattr(written, ORIGIN)
            if self.memory and not written._is_view():
                self.memory.pop(written.untyped_storage().data_ptr(), None)

    def _of_memory(self, tensor: Tensor) -> Origin | None:
        try:
            found = self.memory.get(tensor.untyped_storage().data_ptr())
        except (NotImplementedError, RuntimeError):
            return None
        return found[1] if found is not None and not found[0].expired() else None

    def _choice(self, args: Any) -> Choice:
        """All choices by one tensor are one: where its largest number stands, and which number that is."""
        source = next((tensor for tensor in tensors(args) if tensor.requires_grad or self.of(tensor)), None)
        found: Choice | None = getattr(source, _CHOICE, None)
        if found is None:
            found = Choice()
            if source is not None:
                setattr(source, _CHOICE, found)
        return found

    def _select(self, tensor: Tensor, choice: Choice | None) -> None:
        if choice is not None and not choice.weighs and tensor.requires_grad and tensor.grad_fn is not None:
            self.selected[tensor.grad_fn] = choice

    def _weigh(self, choices: set[Choice], factors: list[Tensor]) -> None:
        for choice in choices:
            choice.weighs = True
            for factor in factors:
                self.weighed.append((choice, set(before(factor, _NEAR))))


def before(tensor: Tensor, most: int, stops: tuple[str, ...] = ()) -> Iterator[Any]:
    """The nodes of the graph that led to a tensor, the nearest first, not past those whose names begin so."""
    queue, seen = deque([tensor.grad_fn]), set[Any]()
    while queue and len(seen) < most:
        node = queue.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if not (stops and node.name().startswith(stops)):
            queue.extend(parent for parent, _ in node.next_functions)


def numbers_of(name: str, args: Any, kwargs: Any) -> Any:
    """The operands whose numbers an operation uses: of some it reads no more than the shape or the type."""
    if name in FIRST:
        return args[:1]
    return (args[1:], kwargs) if name in SHAPES else (args, kwargs)


@cache
def make_held_origin(name: str) -> Origin:
    return Origin(name, held=True)


def chooses(result: Any) -> bool:
    """Whether integers, or yes and no, are among what an operation gives."""
    return any(not tensor.is_floating_point() and not tensor.is_complex() for tensor in tensors(result))


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in a value, also inside lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)
