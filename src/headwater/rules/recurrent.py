"""Recurrent layers, written out in operations that have rules: gates are gates, tanh is an activation.

What is fused (a cell, or a whole LSTM, GRU or RNN over a sequence) gives the value, bit for bit. On the way back the
same sums are gone through step by step. An LSTM's c' = f c + i g and h' = o tanh(c') and a GRU's h' = (1 - z) n + z h
are sums of signals weighed by gates: by the GATE-rule the gates are constants (as by Arras et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .call import Call, find_signal, is_signal
from .constants import parameter_of
from .gradients import value_of
from .handlers import on
from .scope import Scope

State = tuple[Tensor, ...]  # what a step hands on: h, or h and c
START = "initial state"


@dataclass(frozen=True)
class Weights:
    """The parameters of one direction of one layer."""

    of_input: Tensor
    of_state: Tensor
    input_bias: Tensor | None = None
    state_bias: Tensor | None = None
    projection: Tensor | None = None

    def of_step(self, state: Tensor) -> Tensor:
        return F.linear(state, self.of_state, self.state_bias)


Step = Callable[[Tensor, State, Weights], State]


def lstm_step(given: Tensor, state: State, weights: Weights) -> State:
    """`given` is what comes from the input: x W^T + b."""
    hidden, cell = state
    write, keep, new, show = (given + weights.of_step(hidden)).chunk(4, -1)
    cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(new)
    hidden = torch.sigmoid(show) * torch.tanh(cell)
    return (hidden if weights.projection is None else F.linear(hidden, weights.projection)), cell


def gru_step(given: Tensor, state: State, weights: Weights) -> State:
    (hidden,) = state
    reset, keep, new = given.chunk(3, -1)
    reset_too, keep_too, new_too = weights.of_step(hidden).chunk(3, -1)
    new = torch.tanh(new + torch.sigmoid(reset + reset_too) * new_too)
    keep = torch.sigmoid(keep + keep_too)
    return ((1 - keep) * new + keep * hidden,)


def tanh_step(given: Tensor, state: State, weights: Weights) -> State:
    return (torch.tanh(given + weights.of_step(state[0])),)


def relu_step(given: Tensor, state: State, weights: Weights) -> State:
    return (torch.relu(given + weights.of_step(state[0])),)


STEPS: dict[str, Step] = {"lstm": lstm_step, "gru": gru_step, "rnn_tanh": tanh_step, "rnn_relu": relu_step}


@on(*(f"{name}_cell" for name in STEPS), rules=("act", "gate", "gamma", "output", "residual"))
def cell(scope: Scope, call: Call) -> Any:
    """One step: input, state, W of the input, W of the state, and their biases."""
    x, state, *rest = call.args
    value = run_whole(call)
    step, sources = STEPS[call.name.removesuffix("_cell")], StateSources.of(scope, call)
    with scope:
        weights = Weights(*rest)
        state = tuple(sources.alive(part, START) for part in (state if isinstance(state, (list, tuple)) else (state,)))
        given = F.linear(sources.alive(x, "input"), weights.of_input, weights.input_bias)
        made = step(given, state, weights)
    if isinstance(value, Tensor):
        return value_of(value, gradient_of=made[0])
    return tuple(value_of(v, gradient_of=m) for v, m in zip(value, made, strict=True))


@on(*STEPS, rules=("act", "gate", "gamma", "output", "residual"))
def recurrent_layers(scope: Scope, call: Call) -> Any:
    """Several layers over a sequence, in one direction or two; sequences of different lengths may be packed."""
    value = run_whole(call)
    with scope:
        made = write_out_recurrence(scope, call)
    return tuple(value_of(v, gradient_of=m) if is_signal(m) else v for v, m in zip(value, made, strict=True))


def run_whole(call: Call) -> Any:
    """What the fused operation gives, of the model's own parameters: by them torch chooses how it is computed."""

    def own(value: Any) -> Any:
        return type(value)(own(item) for item in value) if isinstance(value, (list, tuple)) else parameter_of(value)

    with torch.no_grad():
        return call.func(*own(call.args), **call.kwargs)


def write_out_recurrence(scope: Scope, call: Call) -> tuple[Tensor, ...]:
    """The sequence that comes out, and the last states of every layer and direction."""
    packed = isinstance(call.args[1], Tensor) and not call.args[1].is_floating_point()
    if packed:
        x, sizes, states, params, biased, count, _, _, both = call.args
        rows = [int(size) for size in sizes]
    else:
        x, states, params, biased, count, _, _, both, batch_first = call.args
        x = x.transpose(0, 1) if batch_first else x
        rows = [x.shape[1]] * x.shape[0]
        x = x.flatten(0, 1)
    states = states if isinstance(states, (list, tuple)) else (states,)
    parts = recurrent_weights(params, biased, projected=call.name == "lstm" and is_projected(params))
    sources = StateSources.of(scope, call)
    x, ends = sources.alive(x, "input"), []
    for layer in range(count):
        directions = []
        for direction in range(2 if both else 1):
            place = layer * (2 if both else 1) + direction
            begin = tuple(sources.alive(part[place], START) for part in states)
            steps, end = run_over(STEPS[call.name], x, rows, begin, next(parts), backwards=direction == 1)
            directions.append(torch.cat(steps))
            ends.append(end)
        x = torch.cat(directions, -1) if both else directions[0]
    if not packed:
        x = x.unflatten(0, (len(rows), rows[0]))
        x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(part) for part in zip(*ends, strict=True))


def run_over(
    step: Step, x: Tensor, rows: Sequence[int], begin: State, weights: Weights, *, backwards: bool
) -> tuple[list[Tensor], State]:
    """One direction of one layer. `rows` says how many sequences each step has: later steps have fewer, or as many."""
    given = F.linear(x, weights.of_input, weights.input_bias).split(list(rows))
    steps = list(enumerate(rows))[::-1] if backwards else list(enumerate(rows))
    found: dict[int, Tensor] = {}
    ended: list[State] = []
    state = tuple(part[: steps[0][1]] for part in begin)
    for number, size in steps:
        have = state[0].shape[0]
        if size < have:  # the shortest end here
            ended.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        elif size > have:  # seen from the end, they begin here
            state = tuple(torch.cat([part, first[have:size]]) for part, first in zip(state, begin, strict=True))
        state = step(given[number], state, weights)
        found[number] = state[0]
    ended.append(state)
    last = tuple(torch.cat(parts[::-1]) if len(parts) > 1 else parts[0] for parts in zip(*ended, strict=True))
    return [found[number] for number in range(len(rows))], last


def is_projected(params: Sequence[Tensor]) -> bool:
    """Whether an LSTM maps its h to another size: its W of the state takes that size and gives each gate its own."""
    return params[1].shape[0] != 4 * params[1].shape[1]


def recurrent_weights(params: Sequence[Tensor], biased: bool, projected: bool) -> Iterator[Weights]:
    each = 2 + 2 * bool(biased) + bool(projected)
    for start in range(0, len(params), each):
        first, second, *rest = params[start : start + each]
        biases = rest[:2] if biased else (None, None)
        yield Weights(first, second, biases[0], biases[1], rest[-1] if projected else None)


@dataclass(frozen=True)
class StateSources:
    """Books a constant state or input where it enters. The gates that weigh it are constants there."""

    scope: Scope
    signal: Tensor  # any other argument: what is asked of the backward pass are ways that lead to the input

    @classmethod
    def of(cls, scope: Scope, call: Call) -> StateSources:
        signal = find_signal(call)
        assert signal is not None
        return cls(scope, signal)

    def alive(self, value: Tensor, what: str) -> Tensor:
        if is_signal(value):
            return value
        given: Tensor = _Beside.apply(self.signal, [value])
        name, sort = self.scope.label(value, what)
        self.scope.books.enter(given, name, sort=sort, varies=(), amount=torch.mul, held=(value,))
        return given


class _Beside(torch.autograd.Function):
    """A constant that counts as a signal, to which nothing of it goes back."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, value: list[Tensor]) -> Tensor:
        return value[0].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None


@on("_pack_padded_sequence", "_pad_packed_sequence")
def pack_or_pad(scope: Scope, call: Call) -> Any:
    """Packs or pads a sequence. Rows of samples are then in no known order, so further passes tell them apart."""
    scope.books.scrambled = True
    result = call.run()
    if call.name == "_pad_packed_sequence" and call.args[3]:
        filled = call.func(torch.zeros_like(call.args[0]), *call.args[1:], **call.kwargs)[0].detach()
        scope.source(result[0], filled, "padding")
    return result
