"""Recurrent layers close, each step by the rules for gates and activations, and give what was fused to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_operations import Wrapped, closes, data
from tiny import randomised
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import headwater as hw


class Over(nn.Module):
    """A recurrent layer, of which the sequence that comes out and the last states are used."""

    def __init__(self, layer: nn.Module, start: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.start = nn.ParameterList(
            nn.Parameter(torch.randn(2, 1, size)) for size in ((8, 8) if isinstance(layer, nn.LSTM) else (8,)) if start
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.layer.batch_first
        begin = [part.expand(-1, len(x), -1).contiguous() for part in self.start]
        state = None if not begin else tuple(begin) if len(begin) == 2 else begin[0]
        out, last = self.layer(x if first else x.transpose(0, 1), state)
        ends = last if isinstance(last, tuple) else (last,)
        out = out if first else out.transpose(0, 1)
        return (
            out
            + torch.cat([end.transpose(0, 1).mean(1, keepdim=True) for end in ends], -1).repeat(1, 1, 8)[
                ..., : out.shape[-1]
            ]
        )


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: Over(nn.LSTM(8, 8, batch_first=True)),
    "gru": lambda: Over(nn.GRU(8, 8, batch_first=True)),
    "tanh": lambda: Over(nn.RNN(8, 8, batch_first=True)),
    "relu": lambda: Over(nn.RNN(8, 8, batch_first=True, nonlinearity="relu")),
    "lstm, time first, two layers": lambda: Over(nn.LSTM(8, 8, 2)),
    "gru, time first, two layers": lambda: Over(nn.GRU(8, 8, 2)),
    "lstm, no bias": lambda: Over(nn.LSTM(8, 8, bias=False, batch_first=True)),
    "gru, no bias": lambda: Over(nn.GRU(8, 8, bias=False, batch_first=True)),
    "lstm from a learned state": lambda: Over(nn.LSTM(8, 8, 2, batch_first=True), start=True),
    "gru from a learned state": lambda: Over(nn.GRU(8, 8, 2, batch_first=True), start=True),
    "tanh from a learned state": lambda: Over(nn.RNN(8, 8, 2, batch_first=True), start=True),
    "lstm, projected": lambda: Over(nn.LSTM(8, 12, 2, proj_size=8, batch_first=True)),
    "lstm, both ways": lambda: Over(nn.LSTM(8, 4, 2, bidirectional=True, batch_first=True)),
    "gru, both ways": lambda: Over(nn.GRU(8, 4, 2, bidirectional=True, batch_first=True)),
    "tanh, both ways": lambda: Over(nn.RNN(8, 4, 2, bidirectional=True)),
    "lstm, both ways, projected": lambda: Over(nn.LSTM(8, 6, 2, proj_size=4, bidirectional=True, bias=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_layers_close(name: str) -> None:
    torch.manual_seed(0)
    model = Wrapped(LAYERS[name]())
    assert closes(model, data()) < 1e-12
    assert closes(model, data(), "lrp(act+gate=half)") < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAYERS if "relu" not in name])
def test_layers_are_open_without_their_rules(name: str) -> None:
    torch.manual_seed(0)
    assert closes(Wrapped(LAYERS[name]()), data(), "gi") > 1e-4


class Steps(nn.Module):
    """A cell, stepped through by hand."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, found = None, []
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(found, 1)


CELLS = {"lstm": (nn.LSTMCell, nn.LSTM), "gru": (nn.GRUCell, nn.GRU), "tanh": (nn.RNNCell, nn.RNN)}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells_close_and_need_their_rules(name: str, bias: bool) -> None:
    assert closes(Wrapped(Steps(CELLS[name][0](8, 8, bias=bias))), data()) < 1e-12
    assert closes(Wrapped(Steps(CELLS[name][0](8, 8, bias=bias))), data(), "gi") > 1e-4


@pytest.mark.parametrize("name", CELLS)
def test_a_layer_says_what_its_cell_says(name: str) -> None:
    cell, layer = (kind(8, 8) for kind in CELLS[name])
    with torch.no_grad():
        for own, other in zip(layer.parameters(), cell.parameters(), strict=True):
            own.copy_(other)
    layer.batch_first = True
    models = [Wrapped(Steps(cell)).double().eval(), Wrapped(Taken(layer)).double().eval()]
    models[1].load_state_dict(dict(zip(models[1].state_dict(), models[0].state_dict().values(), strict=True)))
    one, two = (hw.explain(model, data(), score=lambda out: out[:, 1]) for model in models)
    for a, b in zip(one, two, strict=True):
        assert a.relevance == pytest.approx(b.relevance, abs=1e-12)
        assert list(a.ledger.biases.values()) == pytest.approx(list(b.ledger.biases.values()), abs=1e-12)


class Taken(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def relevance_by_hand(layer: nn.LSTM, x: Tensor, weight: Tensor) -> Tensor:
    """Of weight · h_T, by LRP for an LSTM: gates have none, R goes along c, and in g = tanh(z) by shares of z."""
    w, u, b, v = (p.detach() for p in layer.parameters())
    size, steps = layer.hidden_size, len(x)
    h, c = torch.zeros(size).double(), torch.zeros(size).double()
    seen: list[Any] = []
    for t in range(steps):
        z = w @ x[t] + u @ h + b + v
        i, f, g, o = z[:size].sigmoid(), z[size : 2 * size].sigmoid(), z[2 * size : 3 * size], z[3 * size :].sigmoid()
        before, h_before = c, h
        c = f * before + i * g.tanh()
        h = o * c.tanh()
        seen.append((h_before, before, i, f, g, c))
    found = torch.zeros_like(x)
    r_h, r_c = weight * h, torch.zeros(size).double()
    for t in reversed(range(steps)):
        h_before, before, i, f, g, c = seen[t]
        r_c = r_c + r_h  # h = [o tanh(c) / c] c
        to_g = r_c * i * g.tanh() / c
        r_c = r_c * f * before / c
        into, back = w[2 * size : 3 * size], u[2 * size : 3 * size]
        found[t] = (into * x[t] * (to_g / g)[:, None]).sum(0)
        r_h = (back * h_before * (to_g / g)[:, None]).sum(0)
    return found


def test_it_is_what_the_sums_say() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(6, 5, batch_first=True)
            self.register_buffer("weight", torch.arange(1.0, 6.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[1][0][0] @ self.weight[:, None]

    model = randomised(Last().double())
    (e,) = hw.explain(model, data(1), score=lambda out: out[:, 0])
    by_hand = relevance_by_hand(model.layer, data(1)[0], model.weight)
    torch.testing.assert_close(e.relevance, by_hand, rtol=1e-10, atol=1e-12)
    assert e.ledger.closed


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences(kind: type[nn.Module], both: bool) -> None:
    """Samples of other lengths in another order: each is explained as it is alone, without padding."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = kind(6, 4, 2, bidirectional=both, batch_first=True), nn.Linear(8 if both else 4, 3)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, last = self.layer(packed)
            last = last[0] if isinstance(last, tuple) else last
            padded, _ = pad_packed_sequence(out, batch_first=True)
            ends = torch.cat([last[-2], last[-1]], -1) if both else last[-1]
            return self.head(padded.sum(1) + ends)

    model, lengths = randomised(Packed().double()), torch.tensor([2, 4, 1])
    x = data(3)
    arguments = {"x": x, "lengths": lengths}
    with torch.no_grad():
        plain = model(**arguments)
    found = hw.explain(model, arguments, inputs="x", score=lambda out: out[:, 1])
    assert [e.score for e in found] == plain[:, 1].tolist()
    for i, e in enumerate(found):
        assert e.ledger.error < 1e-12
        length = int(lengths[i])
        alone = hw.explain(
            model,
            {"x": x[i : i + 1, :length], "lengths": lengths[i : i + 1]},
            inputs="x",
            score=lambda out: out[:, 1],
        )[0]
        assert e.relevance[:length] == pytest.approx(alone.relevance, abs=1e-12)
        assert not e.relevance[length:].any()
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)
    assert max(e.ledger.error for e in hw.explain(model, arguments, inputs="x", score=score, method="gi")) > 1e-4


def score(out: Tensor) -> Tensor:
    return out[:, 1]


def test_biases_and_learned_states_have_their_names() -> None:
    model = randomised(Wrapped(LAYERS["lstm from a learned state"]()).double())
    e = hw.explain(model, data(1), score=score)[0]
    for name in ("bias_ih_l0", "bias_hh_l0", "bias_ih_l1", "bias_hh_l1"):
        assert e.ledger.biases[f"operation.layer.{name}"] != 0
    lines = {**e.ledger.biases, **e.ledger.constants}
    assert all(lines[f"operation.start.{number}"] != 0 for number in (0, 1))


def test_a_state_made_from_the_input() -> None:
    """As in a decoder: the input may be constant, and the state the signal."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.begin = nn.GRU(8, 8, batch_first=True), nn.Parameter(torch.randn(1, 3, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.begin.expand(len(x), -1, -1), x.mean(1)[None])[0]

    assert closes(Wrapped(Decoder()), data()) < 1e-12
    assert closes(Wrapped(Decoder()), data(), "gi") > 1e-4
