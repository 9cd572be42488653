"""Which plans a model has, and when they serve: runs that were written down and are played from then on.

The first explanations of a model are computed plainly and written down (`run_writing`). Two of different lengths make
one plan for all lengths between them; a length outside is computed plainly, compared operation by operation, and then
belongs to it. A plan is played (`run_playing`), left where a number that Python looked at is another than it was, and
thrown away where anything of the model has changed.

Threads share the plans of a model, without a lock: the operations of a plan, a list of plans and a dict of kinds are
replaced and never changed. Where two threads learn at once, what one of them learned may be lost, and is learned again.

Whether a model has changed is found out before its plan is played. Where a card has captured one, a short look comes
first and the long one while the card is at work (`look_later`): a result is given back only after that.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs.batch import list_leaves, map_leaves
from ..inputs.restoring import dispatch_modes, function_modes, undone
from ..inputs.walking import named_modules, recall_walk, take_unchanged
from ..rules.handlers import rules_there_are
from .forward import Demand, Run, asks_links, is_unwatched, side_modules, tables_of
from .model_state import ModelState
from .run_playing import Played, RunPlan, play_run
from .run_writing import PLAIN, RunWriter, Written, given_tensors, length_of

SWITCH = "HEADWATER_PLANS"
KEPT = 8  # plans of a model
WRITING, CONFIRMING = 1, 3  # what it costs to write a run down, and to try a plan beside a plain run
SELDOM = 1 / 16  # what a plain run earns, so that one in so many is written down
MOST = 32  # that can be earned
PATIENCE = 4  # runs of one kind that gave no plan, or left it, after which no more is tried

Confirm = Callable[[RunPlan], bool | None]  # None: it cannot be told with this input


@dataclass
class PlanAccount:
    """Whether plans with the same rules are worth their cost, in the cost of writing a run down.

    A run that is played earns it. Batches of ever other sizes are hardly ever played: a few are written down, and from
    then on one in many.
    """

    balance: float = 16.0

    def pay(self, cost: float) -> bool:
        """Whether there is enough for it, which is then spent."""
        if self.balance < cost:
            return False
        self.balance -= cost
        return True

    def earn(self, amount: float) -> None:
        self.balance = min(self.balance + amount, MOST)


@dataclass
class KindOfRun:
    """Runs that differ in their numbers and their length alone, and the plans for them."""

    account: PlanAccount = field(default_factory=PlanAccount)
    plans: list[RunPlan] = field(default_factory=list)
    failed: int = 0
    plays: int = 0
    writing: weakref.ref[RunWriter] | None = None
    why: str | None = None  # the last reason for computing plainly

    def find(self, length: int) -> RunPlan | None:
        return next((plan for plan in self.plans if plan.takes(length)), None)

    @property
    def given_up(self) -> bool:
        return self.failed >= PATIENCE

    def play(self, run: Run, confirm: Confirm) -> Played | None:
        """The run by a plan; None where it must be computed plainly. `confirm` tries a plan that nobody played yet."""
        plan = self.find(length_of(run.batch))
        if plan is None:
            return None
        if not plan.trusted:
            if plan.tried_now or not self.account.pay(CONFIRMING):
                return None
            plan.tried_now = True
            try:
                found = confirm(plan)
            finally:
                plan.tried_now = False
            plan.trusted = bool(found)
            if found is None:
                plan.left += 1
                self._drop_if_left(plan)
            elif not found:
                self._drop(plan, "played, it does not say what it says otherwise")
                self.failed = PATIENCE
            if not found:
                return None
        played = play_run(plan, run)
        if played is not None:
            self.failed, self.plays = 0, self.plays + 1
            self.account.earn(1)
        else:
            self._drop_if_left(plan)
        return played

    def writer(self, run: Run, close: bool) -> RunWriter | None:
        """What writes a plain run down, where there is no plan for its length or the plan is looked at once more.

        One is written at a time: what another thread is writing serves this one, too.
        """
        busy = self.writing is not None and self.writing() is not None
        if close or (not busy and self.find(length_of(run.batch)) is None and self.account.pay(WRITING)):
            made = RunWriter(self.learn)
            self.writing = weakref.ref(made)
            return made
        self.account.earn(SELDOM)
        return None

    def _drop_if_left(self, plan: RunPlan) -> None:
        if plan.left >= PATIENCE:
            self._drop(plan, "numbers that Python looks at change from run to run")
            self.failed += 1

    def _drop(self, plan: RunPlan, why: str) -> None:
        self.plans, self.why = [one for one in self.plans if one is not plan], why

    def learn(self, written: Written) -> None:
        """A run that was computed plainly becomes part of a plan, or the beginning of one."""
        if written.trace.refused is not None:
            self.failed, self.why = self.failed + 1, written.trace.refused
            return
        # computed plainly for a closer look, and not because a number was another: the plan must do the same
        kept = [plan for plan in self.plans if not plan.takes(written.length) or plan.left or plan.agrees(written)]
        for place, plan in enumerate(kept):
            longer = plan.extend(written)
            if longer is not None:
                self.plans = [*kept[:place], longer, *kept[place + 1 :]]
                return
        if kept:
            self.failed += 1
        self.plans = [*kept[-KEPT + 1 :], RunPlan(written, written.length, written.length)]


@dataclass
class PlansOfModel:
    """All plans of one model as it is: they go when anything of it changes."""

    state: ModelState
    names: list[str]  # of its modules, in order
    ready: set[Any] = field(default_factory=set)  # devices and dtypes that were asked for, and are its own
    kinds: dict[Any, KindOfRun] = field(default_factory=dict)
    changes: int = 0  # of the model, since a plan was last of use

    def take(self, key: Any) -> KindOfRun:
        """The kind with this key, which comes last from now on. Of too many the first goes.

        Kinds with the same rules share an account.
        """
        kinds = dict(self.kinds)
        kind: KindOfRun | None = kinds.pop(key, None)
        if kind is None:
            same = (one.account for known, one in kinds.items() if known[0] == key[0])
            kind = KindOfRun(next(same, None) or PlanAccount())
        self.kinds = {**dict(list(kinds.items())[-KEPT + 1 :]), key: kind}
        return kind

    @property
    def was_of_use(self) -> bool:
        return any(kind.plays for kind in self.kinds.values())

    @property
    def is_captured(self) -> bool:
        return any(plan.graphs.made for kind in self.kinds.values() for plan in kind.plans)


PLANS: weakref.WeakKeyDictionary[nn.Module, PlansOfModel] = weakref.WeakKeyDictionary()

Looks = dict[nn.Module, ModelState]  # that are still to be made
_LOOKS: ContextVar[Looks | None] = ContextVar("looks", default=None)


class ModelChanged(Exception):
    """After a short look a model was taken to be as it was, and is not."""


@contextmanager
def look_later() -> Iterator[None]:
    """Inside, models are looked at shortly, and at length by `look_now`, at the end at the latest.

    Raises `ModelChanged` then, also in the place of an error that the change may have led to.
    """
    with undone(partial(_LOOKS.set, _LOOKS.get())):
        _LOOKS.set({})
        try:
            yield
        except Exception:
            look_now()
            raise
        look_now()


def look_now() -> None:
    """Look at length at what was only looked at shortly. A change is found again until the explanation ends.

    A method may catch the error, and what it would give then is not of the model as it is.
    """
    looks = _LOOKS.get() or {}
    for model, state in list(looks.items()):
        if not state.holds(model):
            forget_plans(model)
            raise ModelChanged
        looks.pop(model, None)


def is_unchanged(model: nn.Module, found: PlansOfModel) -> bool:
    """Whether a model is as it was; where a card can begin meanwhile, after a short look."""
    looks = _LOOKS.get()
    if looks is None or not found.is_captured:
        return found.state.holds(model)
    if not found.state.seems_to_hold(model):
        return False
    looks[model] = found.state
    return True


def forget_plans(model: nn.Module) -> None:
    """Let go of all plans of a model, and of the memory that their graphs hold."""
    PLANS.pop(model, None)


def forget_stale_plans(model: nn.Module) -> None:
    """Let go of the plans of a model that has changed: they hold views of its weights as they were."""
    found = PLANS.get(model)
    if found is not None and not found.state.holds(model):
        forget_plans(model)


def recall_model(model: nn.Module, wanted: Any) -> bool:
    """Whether a model can be explained as it is on this device and in this dtype, for it could and has not changed."""
    found = PLANS.get(model)
    if found is None or found.changes >= PATIENCE or wanted not in found.ready or not is_unchanged(model, found):
        return False
    recall_walk(model, found.state.name_modules(found.names))
    return True


def remember_ready(model: nn.Module, wanted: Any) -> None:
    """It was looked at, and is to be explained as it is."""
    found = PLANS.get(model)
    if found is not None and wanted not in found.ready and found.state.holds(model):
        found.ready.add(wanted)


def plans_are_on() -> bool:
    return os.environ.get(SWITCH, "on").lower() not in ("off", "0", "no", "false")


def can_be_planned(run: Run, demand: Demand) -> bool:
    """Whether nobody's modes or hooks watch the run, and all that it is given can be seen."""
    watched = any(not getattr(mode, "harmless", False) for mode in function_modes()) or bool(dispatch_modes())
    hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    known = all(tensor.device.type in ("cpu", "cuda") for tensor in given_tensors(run.batch))
    leaves = list_leaves((run.batch.args, run.batch.kwargs))
    free = is_unwatched(run) and not watched and not hooked and all(isinstance(one, (Tensor, *PLAIN)) for one in leaves)
    return run.planned and free and demand.backward and known and plans_are_on()


def find_kind(run: Run, demand: Demand) -> KindOfRun | None:
    """The kind of this run; a new one where there was none, or the model has changed.

    None if it always changes, or if somebody's hooks are called.
    """
    found = PLANS.get(run.model)
    unchanged = take_unchanged(run.model)
    if found is None or (found.changes < PATIENCE and not unchanged and not is_unchanged(run.model, found)):
        changes = 0 if found is None or found.was_of_use else found.changes + 1
        names = [name for name, _ in named_modules(run.model)]
        found = PLANS[run.model] = PlansOfModel(ModelState.of(run.model), names, changes=changes)
    if found.changes >= PATIENCE or found.state.is_hooked:
        return None
    return found.take(key_of_run(run, demand))


def key_of_run(run: Run, demand: Demand) -> Any:
    """What must be equal of two runs, their length and their numbers aside."""
    batch, length = run.batch, length_of(run.batch)
    given = given_tensors(batch)
    first = {id(t): i for i, t in reversed(list(enumerate(given)))}
    shapes = tuple(
        (tuple(-1 if axis and size == length else size for axis, size in enumerate(t.shape)), t.dtype, t.device)
        for t in given
    )
    side = side_modules(run, asks_links(run, demand))
    modules = tuple(  # whose outputs are explained
        tuple(id(module) for module in part) for part in (batch.places, tables_of(run), side, batch.lookups)
    )
    told = repr(map_leaves((batch.args, sorted(batch.kwargs.items())), lambda t: "?" if isinstance(t, Tensor) else t))
    aliases = tuple(first[id(t)] for t in given)
    return (demand, shapes, aliases, batch.samples, modules, told, batch.before, run.inside, read_switches())


def read_switches() -> Any:
    """The switches of torch that change which operations run."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
        torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else 0,
        rules_there_are(),
    )
