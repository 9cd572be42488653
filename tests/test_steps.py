"""Recurrent layers by their definition: step by step, with gates held, each tanh its input times a constant."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from defining import hold, times_constant, weighed
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from weighing import drawn, seeded

import headwater as hw

SIZE, HIDDEN, STEPS = 5, 6, 3
tanh = times_constant(torch.tanh)


def sigmoid(x: Tensor) -> Tensor:
    return hold(torch.sigmoid(x))


def lstm(given: Tensor, back: Tensor, state: list[Tensor]) -> list[Tensor]:
    write, keep, new, show = (given + back).chunk(4, -1)
    cell = sigmoid(keep) * state[1] + sigmoid(write) * tanh(new)
    return [sigmoid(show) * tanh(cell), cell]


def gru(given: Tensor, back: Tensor, state: list[Tensor]) -> list[Tensor]:
    (reset, keep, new), (reset_back, keep_back, new_back) = given.chunk(3, -1), back.chunk(3, -1)
    new = tanh(new + sigmoid(reset + reset_back) * new_back)
    keep = sigmoid(keep + keep_back)
    return [(1 - keep) * new + keep * state[0]]


def plain(given: Tensor, back: Tensor, state: list[Tensor]) -> list[Tensor]:
    return [tanh(given + back)]


def rectified(given: Tensor, back: Tensor, state: list[Tensor]) -> list[Tensor]:
    return [(given + back) * hold(given + back > 0)]


Step = Callable[[Tensor, Tensor, list[Tensor]], list[Tensor]]
KINDS: dict[str, tuple[type[nn.RNNBase], Step, dict[str, str]]] = {
    "lstm": (nn.LSTM, lstm, {}),
    "gru": (nn.GRU, gru, {}),
    "tanh": (nn.RNN, plain, {}),
    "relu": (nn.RNN, rectified, {"nonlinearity": "relu"}),
}


def by_steps(step: Step, layer: nn.RNNBase, weights: dict[str, Tensor], x: Tensor, start: list[Tensor]) -> list[Tensor]:
    """What comes out of one sample, [steps, size], and the last states, [layers and directions, size]."""
    ends: list[list[Tensor]] = []
    for number in range(layer.num_layers):
        found = []
        for back in range(2 if layer.bidirectional else 1):
            own = f"_l{number}" + "_reverse" * back
            state = [part[len(ends)] for part in start]
            given = x @ weights["weight_ih" + own].T + weights.get("bias_ih" + own, 0)
            outs: list[Tensor] = []
            for row in given.flip(0) if back else given:
                recurrent = weights["weight_hh" + own] @ state[0] + weights.get("bias_hh" + own, 0)
                state = step(row, recurrent, state)
                if "weight_hr" + own in weights:
                    state[0] = weights["weight_hr" + own] @ state[0]
                outs.append(state[0])
            ends.append(state)
            found.append(torch.stack(outs[::-1] if back else outs))
        x = torch.cat(found, -1)
    return [x, *(torch.stack(part) for part in zip(*ends, strict=True))]


class Recurrent(nn.Module):
    """All that a layer gives, each element with a weight of its own."""

    def __init__(self, name: str, start: bool, **options: object) -> None:
        super().__init__()
        kind, self.step, more = KINDS[name]
        self.layer = kind(SIZE, HIDDEN, **options, **more)
        places = self.layer.num_layers * (2 if self.layer.bidirectional else 1)
        sizes = [getattr(self.layer, "proj_size", 0) or HIDDEN, HIDDEN][: 2 if name == "lstm" else 1]
        self.sizes, self.places = sizes, places
        self.start = nn.ParameterList(nn.Parameter(torch.zeros(places, 1, size)) for size in sizes if start)

    def forward(self, x: Tensor) -> Tensor:
        begin = tuple(part.expand(-1, len(x), -1).contiguous() for part in self.start)
        turned = x if self.layer.batch_first else x.transpose(0, 1)
        out, ends = self.layer(turned, (begin if len(begin) > 1 else begin[0]) if begin else None)
        out = out if self.layer.batch_first else out.transpose(0, 1)
        ends = ends if isinstance(ends, tuple) else (ends,)
        return weighed(torch.cat([out.flatten(1), *(end.transpose(0, 1).flatten(1) for end in ends)], 1))

    def line(self, x: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Relevance of one sample's input, and of every bias and state that enters."""
        weights = {n: p.detach().clone().requires_grad_("bias" in n) for n, p in self.layer.named_parameters()}
        start = [p.detach()[:, 0].clone().requires_grad_() for p in self.start]
        leaf = x.clone().requires_grad_()
        zeros = [torch.zeros(self.places, size, dtype=x.dtype) for size in self.sizes]
        parts = by_steps(self.step, self.layer, weights, leaf, start or zeros)
        sources = {f"layer.{n}": p for n, p in weights.items() if p.requires_grad}
        sources |= {f"start.{i}": p for i, p in enumerate(start)}
        score = weighed(torch.cat([part.flatten() for part in parts])[None]).sum()
        found = torch.autograd.grad(score, [leaf, *sources.values()])
        amounts = {name: (p * g).sum().item() for (name, p), g in zip(sources.items(), found[1:], strict=True)}
        return leaf.detach() * found[0], amounts


LAYERS = [
    (name, bias, layers, both, first, start)
    for name in KINDS
    for bias, layers, both, first, start in product((True, False), (1, 2), (False, True), (False, True), (False, True))
    if name in ("lstm", "gru") or (bias and first)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bias", "layers", "both", "first", "start"), LAYERS)
def test_a_recurrent_layer(name: str, bias: bool, layers: int, both: bool, first: bool, start: bool) -> None:
    check(lambda: Recurrent(name, start, bias=bias, num_layers=layers, bidirectional=both, batch_first=first))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("both", [False, True])
def test_a_projected_layer(bias: bool, both: bool) -> None:
    check(lambda: Recurrent("lstm", True, bias=bias, num_layers=2, bidirectional=both, proj_size=4, batch_first=True))


def check(make: Callable[[], nn.Module]) -> None:
    model, x = seeded(make), drawn(2, STEPS, SIZE)
    with torch.no_grad():
        score = model(x)[:, 0].tolist()
    for i, e in enumerate(hw.explain(model, x, score=lambda out: out[:, 0])):
        expected, amounts = model.line(x[i])
        assert e.score == score[i]
        torch.testing.assert_close(e.relevance, expected, rtol=1e-9, atol=1e-12)
        assert dict(e.ledger.biases) == pytest.approx(amounts, rel=1e-9, abs=1e-12)
        assert dict(e.ledger.constants) == pytest.approx(dict.fromkeys(e.ledger.constants, 0.0))
        assert e.ledger.error < 1e-12


class Stepped(nn.Module):
    """A cell, called with a state of its own, by turns with and without one."""

    def __init__(self, name: str, bias: bool, start: bool) -> None:
        super().__init__()
        made = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "tanh": nn.RNNCell, "relu": nn.RNNCell}[name]
        more = {"nonlinearity": "relu"} if name == "relu" else {}
        self.cell, self.name = made(SIZE, HIDDEN, bias=bias, **more), name
        self.start = nn.ParameterList(
            nn.Parameter(torch.zeros(1, HIDDEN)) for _ in range(2 if name == "lstm" else 1) if start
        )

    def forward(self, x: Tensor) -> Tensor:
        begin = tuple(part.expand(len(x), -1) for part in self.start)
        state = (begin if len(begin) > 1 else begin[0]) if begin else None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return weighed(torch.cat(state if isinstance(state, tuple) else (state,), 1))

    def line(self, x: Tensor) -> tuple[Tensor, dict[str, float]]:
        weights = {n: p.detach().clone().requires_grad_("bias" in n) for n, p in self.cell.named_parameters()}
        start = [p.detach()[0].clone().requires_grad_() for p in self.start]
        leaf = x.clone().requires_grad_()
        state = list(start) or [torch.zeros(HIDDEN, dtype=x.dtype)] * (2 if self.name == "lstm" else 1)
        for row in leaf:
            given = weights["weight_ih"] @ row + weights.get("bias_ih", 0)
            state = KINDS[self.name][1](given, weights["weight_hh"] @ state[0] + weights.get("bias_hh", 0), state)
        sources = {f"cell.{n}": p for n, p in weights.items() if p.requires_grad}
        sources |= {f"start.{i}": p for i, p in enumerate(start)}
        found = torch.autograd.grad(weighed(torch.cat(state)[None]).sum(), [leaf, *sources.values()])
        amounts = {name: (p * g).sum().item() for (name, p), g in zip(sources.items(), found[1:], strict=True)}
        return leaf.detach() * found[0], amounts


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_a_cell(name: str, bias: bool, start: bool) -> None:
    check(lambda: Stepped(name, bias, start))


class Begun(nn.Module):
    """The input is a constant, and the state a signal."""

    def __init__(self, made: type[nn.Module]) -> None:
        super().__init__()
        self.layer = made(SIZE, SIZE)
        self.register_buffer("given", drawn(1, SIZE, seed=4))

    def forward(self, x: Tensor) -> Tensor:
        first = self.given.expand(len(x), -1)
        if isinstance(self.layer, nn.GRU):
            return weighed(self.layer(first[None], x.mean(1)[None])[0][0])
        return weighed(self.layer(first, x.mean(1)))


@pytest.mark.parametrize("made", [nn.GRU, nn.GRUCell])
def test_an_input_that_is_constant_has_its_line(made: type[nn.Module]) -> None:
    """n = tanh(W x + b + r (U h + c)): with the gates held, what the input has is W x times the factor of tanh."""
    model, x = seeded(lambda: Begun(made)), drawn(2, STEPS, SIZE)
    found = hw.explain(model, x, score=lambda out: out[:, 0])
    w, u, b, v = (p.detach() for p in model.layer.parameters())
    for i, e in enumerate(found):
        h, given = x[i].mean(0), model.given[0]
        (r, z, n), (r_back, z_back, n_back) = (w @ given).chunk(3), (u @ h).chunk(3)
        (r_b, z_b, n_b), (r_v, z_v, n_v) = b.chunk(3), v.chunk(3)
        reset, keep = torch.sigmoid(r + r_b + r_back + r_v), torch.sigmoid(z + z_b + z_back + z_v)
        inner = n + n_b + reset * (n_back + n_v)
        factor = (1 - keep) * torch.tanh(inner) / inner * drawn(SIZE, seed=31)
        assert sum(e.ledger.constants.values()) + e.ledger.biases.get("given", 0.0) == pytest.approx(float(n @ factor))
        assert e.ledger.error < 1e-12


class Packed(nn.Module):
    """Sequences of several lengths; what is missing is filled."""

    def __init__(self, name: str, both: bool, filled: float, ordered: bool) -> None:
        super().__init__()
        kind, _, more = KINDS[name]
        self.layer = kind(SIZE, 3, bidirectional=both, batch_first=True, **more)
        self.filled, self.ordered = filled, ordered

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.ordered)
        out, last = self.layer(packed)
        padded, _ = pad_packed_sequence(out, batch_first=True, padding_value=self.filled, total_length=4)
        last = torch.cat(last) if isinstance(last, tuple) else last
        return weighed(torch.cat([padded.flatten(1), last.transpose(0, 1).flatten(1)], 1))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lrp", "lrp(act+gate=half)"])
@pytest.mark.parametrize("filled", [0.0, 0.7])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", ["lstm", "gru", "relu"])
@pytest.mark.parametrize("ordered", [False, True])
def test_sequences_of_several_lengths(ordered: bool, name: str, both: bool, filled: float, method: str) -> None:
    """As many samples as the layer is wide, so that no shape tells them apart; what is filled in is a line."""
    model, lengths = (
        seeded(lambda: Packed(name, both, filled, ordered)),
        torch.tensor([4, 2, 2] if ordered else [2, 4, 1]),
    )
    x, method = drawn(3, 4, SIZE), "lrp(act)" if name == "relu" else method
    found = hw.explain(model, {"x": x, "lengths": lengths}, inputs="x", method=method, score=lambda out: out[:, 0])
    for i, e in enumerate(found):
        alone = hw.explain(
            model,
            {"x": x[i : i + 1], "lengths": lengths[i : i + 1]},
            inputs="x",
            method=method,
            score=lambda out: out[:, 0],
        )[0]
        assert e.relevance == pytest.approx(alone.relevance, abs=1e-12)
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)
        assert dict(e.ledger.constants) == pytest.approx(dict(alone.ledger.constants), abs=1e-12)
        assert e.ledger.error < 1e-12
        assert ("padding" in e.ledger.constants) is bool(filled)
        if filled:
            assert e.ledger.constants["padding"] == pytest.approx(filled * weights_of_missing(model, int(lengths[i])))


def weights_of_missing(model: nn.Module, length: int) -> float:
    """The weights of what is filled in; what comes out of the steps is weighed first, then the last states."""
    ways = 2 if model.layer.bidirectional else 1
    ends = 3 * ways * (2 if isinstance(model.layer, nn.LSTM) else 1)
    every = drawn(4 * 3 * ways + ends, seed=31)
    return float(every[length * 3 * ways : 4 * 3 * ways].sum())
