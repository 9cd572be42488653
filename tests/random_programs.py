"""Random programs over operations that the rules know, cut at random places, and the right linear map of each.

A program is a list of steps over registers of one shape. Every step says twice what it does: `plain` in torch as a
model's author would write it, `linear` with the rules' constants held by hand, on numbers that know whether they are a
signal or were cut off. Nothing in here imports Headwater.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from adversarial_models.cases import CLASSES, SIZE, TOKENS, attended, held, normed
from adversarial_models.cut_ways import SAME
from torch import Tensor, nn

WAYS = (
    "no_grad",
    "inference mode",
    "detach",
    "torch.detach",
    "detach_",
    ".data",
    "from_numpy",
    "tensor of numpy",
    "tolist",
    "items",
    "dlpack",
    "deepcopy",
    "empty_like and copy_",
    "stack of rows",
)
ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    F.gelu,
    F.silu,
    F.relu,
    torch.tanh,
    torch.sigmoid,
    F.softplus,
    F.elu,
)
EVEN = torch.arange(SIZE) % 2 == 0


@dataclass(frozen=True)
class Part:
    """A register in the linear map: its numbers, and whether they still depend on the input."""

    value: Tensor
    alive: bool


@dataclass
class Entered:
    """What was cut off and then entered a signal additively, each as a variable of its own."""

    mended: bool = False  # no cut cuts
    leaves: list[Tensor] = field(default_factory=list)

    def enter(self, part: Part) -> Tensor:
        """The part as something that is added to a signal."""
        if part.alive:
            return part.value
        self.leaves.append(part.value.detach().clone().requires_grad_())
        return self.leaves[-1]


class Step(nn.Module):
    """One operation; `cut` is among its inputs where the program says so."""

    takes = 1

    def plain(self, *given: Tensor) -> Tensor:
        raise NotImplementedError

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        raise NotImplementedError

    def run(self, entered: Entered, *given: Part) -> Part:
        """On numbers that are all cut off it is any function; else it is linear."""
        if not any(part.alive for part in given):
            return Part(self.plain(*(part.value.detach() for part in given)).detach(), alive=False)
        return Part(self.linear(entered, *given), alive=True)


class Cut(Step):
    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.way = choose.choice(WAYS)

    def plain(self, *given: Tensor) -> Tensor:
        return SAME[self.way](given[0])

    def run(self, entered: Entered, *given: Part) -> Part:
        return given[0] if entered.mended else Part(given[0].value.detach(), alive=False)

    def extra_repr(self) -> str:
        return self.way


class Coded(Step):
    """Numbers that are no longer those of the input, though made from it; without the cut, the input itself."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.how = choose.choice(("code book", "integers", "rounded", "numbers"))
        self.codes = nn.Parameter(torch.randn(5, SIZE))

    def plain(self, *given: Tensor) -> Tensor:
        x = given[0]
        if self.how == "code book":
            return self.codes[(x @ self.codes.T).argmax(-1)]
        if self.how == "integers":
            return (8 * x).long().to(x.dtype) / 8
        if self.how == "rounded":
            return ((8 * x).round() / 8).detach()
        return torch.tensor([round(value, 1) for value in x.flatten().tolist()], dtype=x.dtype).reshape(x.shape)

    def run(self, entered: Entered, *given: Part) -> Part:
        if entered.mended:
            return given[0]
        return Part(self.plain(given[0].value.detach()).detach(), alive=False)

    def extra_repr(self) -> str:
        return self.how


class Layer(Step):
    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.layer = nn.Linear(SIZE, SIZE)

    def plain(self, *given: Tensor) -> Tensor:
        return self.layer(given[0])

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        return self.layer(given[0].value)


class Scaled(Step):
    """Times a vector plus a vector, then times a number plus a number."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(SIZE)), nn.Parameter(torch.randn(SIZE))
        self.factor, self.number = choose.uniform(-2, 2), choose.uniform(-1, 1)

    def plain(self, *given: Tensor) -> Tensor:
        return (given[0] * self.scale + self.shift) * self.factor + self.number

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        return self.plain(given[0].value)


class Sum(Step):
    takes = 2

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.sign = choose.choice((1, -1))

    def plain(self, *given: Tensor) -> Tensor:
        return given[0] + given[1] if self.sign > 0 else given[0] - given[1]

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        one, two = (entered.enter(part) for part in given)
        return one + self.sign * two


class Norm(Step):
    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias)

    def plain(self, *given: Tensor) -> Tensor:
        return self.norm(given[0])

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        return normed(self.norm, given[0].value)


class Activation(Step):
    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.function = choose.choice(ACTIVATIONS)

    def plain(self, *given: Tensor) -> Tensor:
        return self.function(given[0])

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        return held(self.function, given[0].value)

    def extra_repr(self) -> str:
        return self.function.__name__


class Gate(Step):
    """sigmoid(A a) * (B b). A gate is held; over what is cut off it is the signal itself, times a constant."""

    takes = 2

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def plain(self, *given: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(given[0])) * self.value(given[1])

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        asked, value = self.gate(given[0].value), self.value(given[1].value)
        if given[1].alive:
            return torch.sigmoid(asked).detach() * value
        return held(torch.sigmoid, asked) * value.detach()


class Attention(Step):
    """Weights from the first register over values from the second; over values that are cut off nothing is alive."""

    takes = 2

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(SIZE, SIZE) for _ in range(3))
        self.fused = choose.random() < 0.5

    def plain(self, *given: Tensor) -> Tensor:
        query, key, value = self.query(given[0]), self.key(given[0]), self.value(given[1])
        if self.fused:
            return F.scaled_dot_product_attention(query, key, value)
        return (query @ key.transpose(1, 2) / SIZE**0.5).softmax(-1) @ value

    def run(self, entered: Entered, *given: Part) -> Part:
        value = attended(self.query(given[0].value), self.key(given[0].value), self.value(given[1].value))
        return Part(value if given[1].alive else value.detach(), given[1].alive)


class Joined(Step):
    """Tokens of the one beside tokens of the other, or features, by cat, where or an assignment."""

    takes = 2

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.how = choose.choice(("cat", "features", "where", "stack"))

    def plain(self, *given: Tensor) -> Tensor:
        one, two = given
        if self.how == "cat":
            return torch.cat([one[:, :2], two[:, 2:]], 1)
        if self.how == "features":
            return torch.cat([one[..., :3], two[..., 3:]], -1)
        if self.how == "where":
            return torch.where(EVEN, one, two)
        return torch.stack([one, two], 1).mean(1)

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        return self.plain(*(entered.enter(part) for part in given))

    def extra_repr(self) -> str:
        return self.how


class Moved(Step):
    """Elements go elsewhere, or are averaged."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__()
        self.how = choose.choice(("roll", "flip", "mean", "index", "turn"))

    def plain(self, *given: Tensor) -> Tensor:
        x = given[0]
        if self.how == "roll":
            return x.roll(1, 1)
        if self.how == "flip":
            return x.flip(-1)
        if self.how == "mean":
            return x.mean(1, keepdim=True).expand(-1, TOKENS, -1)
        if self.how == "index":
            return x[:, [2, 0, 3, 1]]
        return x.transpose(1, 2).reshape(-1, TOKENS, SIZE)

    def linear(self, entered: Entered, *given: Part) -> Tensor:
        return self.plain(given[0].value)

    def extra_repr(self) -> str:
        return self.how


STEPS: Sequence[type[Step]] = (Layer, Scaled, Sum, Norm, Activation, Gate, Attention, Joined, Moved)


class Program(nn.Module):
    """Steps that each read earlier registers; the last one is joined with the input, so that something is alive."""

    def __init__(self, seed: int, cuts: bool = True) -> None:
        super().__init__()
        choose = random.Random(seed)
        self.seed, self.reads = seed, []
        made: list[Step] = []
        for _ in range(choose.randint(3, 10)):
            kind = choose.choice((Cut, Cut, Coded)) if cuts and choose.random() < 0.15 else choose.choice(STEPS)
            made.append(kind(choose))
            recent = [max(0, len(made) - choose.choice((1, 1, 1, 2, 3))) for _ in range(made[-1].takes)]
            self.reads.append(recent)
        made.append(Sum(choose))
        self.reads.append([len(made) - 1, 0])
        self.steps, self.head = nn.ModuleList(made), nn.Linear(SIZE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        registers = [x]
        for step, reads in zip(self.steps, self.reads, strict=True):
            registers.append(step.plain(*(registers[i] for i in reads)))
        return self.head(registers[-1]).mean(1)

    def parts(self, x: Tensor, entered: Entered) -> list[Part]:
        registers = [Part(x, alive=True)]
        for step, reads in zip(self.steps, self.reads, strict=True):
            registers.append(step.run(entered, *(registers[i] for i in reads)))
        return registers

    def is_sound(self, x: Tensor) -> bool:
        """Whether all that was cut off is another number for another input, as c - c is not; and no number is rounding.

        The mean of x - roll(x) is 0 but for rounding, whose sign says nothing, and which a relu would take at its word.
        """
        ours, others = (self.parts(one, Entered()) for one in (x, 3 * x.flip(0, 1, 2) + 1))
        sizes = [part.value.detach().abs() for part in ours]
        if any(bool(((size > 0) & (size < 1e-12)).any()) for size in sizes):
            return False
        cut = [(one.value, other.value) for one, other in zip(ours, others, strict=True) if not one.alive]
        return not any(torch.allclose(one, other) for one, other in cut)

    def right(self, x: Tensor, mended: bool = False) -> Right:
        """For one sample: relevance of the input, and of what was cut off and entered; `mended`, as if nothing were."""
        leaf, entered = x.detach().clone().requires_grad_(), Entered(mended)
        registers = self.parts(leaf, entered)
        score = self.head(registers[-1].value).mean(1)[0, 1]
        wanted = [leaf, *entered.leaves]
        found = torch.autograd.grad(score, wanted, allow_unused=True, materialize_grads=True)
        own, *others = [(one * g).detach() for one, g in zip(wanted, found, strict=True)]
        return Right(float(score.detach()), own[0], others)

    def extra_repr(self) -> str:
        listed = enumerate(zip(self.steps, self.reads, strict=True), 1)
        rows = (f"{i}: {step} of {reads}" for i, (step, reads) in listed)
        return f"seed {self.seed}\n" + "\n".join(rows)


@dataclass(frozen=True)
class Right:
    """The right explanation of a program: relevance of the input, and of each thing that was cut off."""

    score: float
    relevance: Tensor
    cut: list[Tensor]

    @property
    def amount(self) -> float:
        return float(sum(float(one.sum()) for one in self.cut))

    @property
    def size(self) -> float:
        """Element by element, so that nothing cancels."""
        return float(sum(float(one.abs().sum()) for one in self.cut))


def program(seed: int, cuts: bool = True) -> Program:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Program(seed, cuts).double().eval()


def numbers(seed: int) -> Tensor:
    """One sample, or two: then each has books of its own."""
    samples = 1 + seed % 2
    return torch.randn(samples, TOKENS, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
