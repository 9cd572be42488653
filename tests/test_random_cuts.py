"""Random programs with random cuts: a closed ledger means that nothing was cut off, and every line is the right one.

`HEADWATER_CUTS_SEED` is the first program's seed (else another one every time), `HEADWATER_CUTS_SECONDS` how long
programs are tried.
"""

from __future__ import annotations

import os
import secrets
import time

import pytest
from random_programs import Program, Right, numbers, program

import headwater as hw

EXACT = 1e-8
NOTHING = 1e-12
SECONDS = float(os.environ.get("HEADWATER_CUTS_SECONDS", "20"))


def explained(model: Program) -> list[hw.Explanation]:
    found: list[hw.Explanation] = hw.explain(model, numbers(model.seed), score=lambda out: out[:, 1])
    return found


def disagreements(found: hw.Explanation, right: Right, mended: Right) -> list[str]:
    """Where an explanation is not what the program's linear map says; closed, it must say as much as without cuts."""
    said, ledger = [], found.ledger
    size = max(float(right.relevance.abs().max()), abs(right.score), right.size)
    gap = float((found.relevance - right.relevance).abs().max())
    if found.score != pytest.approx(right.score, abs=EXACT * size):
        said.append(f"the score is {found.score:.6g}, not {right.score:.6g}")
    if not gap <= EXACT * size:  # so that NaN is noticed, too
        said.append(f"relevance is off by {gap:.3g} of {size:.3g}")
    lost = float((found.relevance - mended.relevance).abs().max())
    if ledger.closed and right.size > EXACT * size and not lost <= EXACT * size:
        said.append(f"closed, and {right.size:.3g} of {size:.3g} was cut off: relevance lacks {lost:.3g}")
    if not ledger.closed and right.size <= NOTHING * size:
        said.append(f"nothing was cut off, and it is open: {getattr(ledger, 'why', ledger.unaccounted)}")
    if hasattr(ledger, "cut_off"):
        booked = ledger.cut_off.total + ledger.held.total
        if not abs(booked - right.amount) <= EXACT * size:
            said.append(f"{booked:.6g} is booked as cut off, {right.amount:.6g} was")
    return said


def judged(seed: int, cuts: bool = True) -> list[str]:
    model = program(seed, cuts)
    if not all(model.is_sound(x) for x in numbers(seed).split(1)):
        return []
    samples = zip(explained(model), numbers(seed).split(1), strict=True)
    return [said for e, x in samples for said in disagreements(e, model.right(x), model.right(x, mended=True))]


@pytest.mark.slow
def test_random_programs_with_cuts() -> None:
    first = int(os.environ.get("HEADWATER_CUTS_SEED", secrets.randbits(31)))
    end, seed = time.monotonic() + SECONDS, first
    while time.monotonic() < end:
        if said := judged(seed):
            pytest.fail(f"HEADWATER_CUTS_SEED={seed} ({seed - first} were right): {said}\n{program(seed).extra_repr()}")
        seed += 1


@pytest.mark.parametrize("seed", [759777312])
def test_programs_that_were_once_wrong(seed: int) -> None:
    """A code that is the same for every input near by."""
    assert judged(seed) == []


@pytest.mark.parametrize("seed", range(40))
def test_programs_without_cuts_close(seed: int) -> None:
    assert judged(seed, cuts=False) == []


@pytest.mark.parametrize("seed", range(40))
def test_linear_map_has_the_programs_score(seed: int) -> None:
    for cuts in (True, False):
        model, x = program(seed, cuts), numbers(seed)[:1]
        assert model.right(x).score == pytest.approx(float(model(x)[0, 1].detach()), rel=1e-12)


def test_programs_are_cut_and_are_not() -> None:
    """Both kinds come up often, also beside a living path; and without cuts nothing enters."""
    sizes = [program(seed).right(numbers(seed)[:1]).size for seed in range(100)]
    assert 20 < sum(size > 1e-3 for size in sizes) < 80
    assert sum(program(seed).is_sound(numbers(seed)[:1]) for seed in range(100)) > 80
    assert all(program(seed, cuts=False).right(numbers(seed)[:1]).size == 0 for seed in range(40))
