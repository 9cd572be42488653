"""What a ledger says of itself, by numbers that can be added in one's head."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from tiny import arguments, tiny

import headwater as hw
from headwater.results.ledger import Ledger, Lines

# Rounding of a whole model: some thousand operations in float64 and float32, a few dozen in half precision.
ROUNDING = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 5e-2, "float16": 1e-2}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("sign", [1, -1])
def test_closed_is_rounding_of_the_dtype_and_no_more(dtype: str, sign: int) -> None:
    def with_gap(gap: float) -> Ledger:
        return Ledger(score=1.0 + sign * gap, inputs=1.0, dtype=dtype)

    assert with_gap(0.0).closed
    assert with_gap(0.5 * ROUNDING[dtype]).closed
    assert not with_gap(2 * ROUNDING[dtype]).closed
    assert not with_gap(0.3).closed


def test_float32_is_what_is_meant_where_nothing_is_said() -> None:
    assert Ledger(score=1.0 + 0.5e-5, inputs=1.0).closed
    assert not Ledger(score=1.0 + 2e-5, inputs=1.0).closed


def test_lines_add_up_like_a_number_and_read_like_a_dict() -> None:
    lines = Lines({"a": 1.5, "b": -0.5})
    assert lines.total == float(lines) == 1.0
    assert lines + 2 == 2 + lines == 3.0
    assert lines + 0.25 == 1.25
    assert lines + Lines({"c": 4.0}) == 5.0
    assert (dict(lines), len(lines), lines["b"]) == ({"a": 1.5, "b": -0.5}, 2, -0.5)
    assert "1" in repr(lines)
    assert "2 lines" in repr(lines)
    assert pickle.loads(pickle.dumps(lines)) == lines
    with pytest.raises(TypeError):
        lines + "one"


def test_lines_are_a_copy_that_nobody_changes() -> None:
    given = {"a": 1.0}
    lines = Lines(given)
    given["a"] = 2.0
    assert lines["a"] == 1.0
    assert (Lines().total, len(Lines())) == (0.0, 0)


def test_unaccounted_is_what_no_line_has() -> None:
    ledger = Ledger(10.0, 1.0, Lines({"b": 2.0}), Lines({"c": 3.0, "d": -0.5}), readout=0.25)
    assert ledger.unaccounted == 10.0 - 5.75
    assert ledger.size == 1.0 + 2.0 + 3.0 + 0.5 + 0.25
    assert ledger.error == 4.25 / 6.75
    assert not ledger.closed


def test_lines_that_cancel_are_judged_by_their_size() -> None:
    """A score near 0 of lines near 100 is known to the rounding of 100."""
    ledger = Ledger(1e-5, 100.0, Lines({"b": -100.0}))
    assert ledger.size == 200.0
    assert ledger.error == pytest.approx(5e-8)


def test_a_difference_is_known_no_better_than_what_it_is_the_difference_of() -> None:
    assert Ledger(1.0, 0.5, magnitude=1e6).size == 1e6
    assert Ledger(1.0, 0.5, magnitude=0.1).size == 0.5


def test_an_error_has_a_scale_even_where_all_lines_are_zero() -> None:
    assert (Ledger(-2.0, 0.0).size, Ledger(-2.0, 0.0).error) == (2.0, 1.0)
    assert (Ledger(0.0, 0.0).size, Ledger(0.0, 0.0).error) == (1.0, 0.0)
    assert Ledger(0.0, 0.0).closed


def test_as_a_dict_it_says_all_of_it() -> None:
    ledger = Ledger(4.0, 1.0, Lines({"b": 2.0}), Lines({"c": 0.5}), readout=0.25, dtype="float64")
    told = ledger.to_dict()
    assert {name: told[name] for name in ("score", "inputs", "readout", "unaccounted")} == {
        "score": 4.0,
        "inputs": 1.0,
        "readout": 0.25,
        "unaccounted": 0.25,
    }
    assert (told["biases"], told["constants"]) == ({"b": 2.0}, {"c": 0.5})
    assert (told["error"], told["closed"], told["dtype"]) == (0.25 / 3.75, False, "float64")
    assert "magnitude" not in told
    assert Ledger(4.0, 1.0, magnitude=9.0).to_dict()["magnitude"] == 9.0


def test_why_is_empty_where_a_ledger_is_closed_and_else_a_sentence() -> None:
    assert Ledger(1.0, 1.0).why == ""
    assert "+0.25" in Ledger(1.25, 1.0).why
    assert Ledger(float("nan"), 1.0).why
    assert not Ledger(float("nan"), 1.0).closed


def test_what_is_cut_off_opens_a_ledger_however_little_it_is() -> None:
    cut = Ledger(1.0, 0.999, cut_off=Lines({"detach": 0.001}))
    assert cut.unaccounted == pytest.approx(0, abs=1e-12)
    assert not cut.closed
    assert "detach" in cut.why
    assert Ledger(1.0, 1.0, cut_off=Lines({"detach": 1e-9})).closed


def test_what_is_held_opens_a_ledger_past_a_tenth_of_the_lines() -> None:
    def with_held(amount: float) -> Ledger:
        return Ledger(1.0, 1.0 - amount, held=Lines({"memory": amount}))

    assert with_held(0.05).closed
    assert not with_held(0.15).closed
    assert "memory" in with_held(0.15).why


def test_a_remainder_that_the_score_shows_is_no_rounding() -> None:
    """Beside lines of a million it is; beside a score of one it is not."""
    lines = {"a": 1e6, "b": -1e6}
    ledger = Ledger(1.0 + 0.3, 1.0, Lines(lines), dtype="float32")
    assert abs(ledger.unaccounted) <= 1e-5 * ledger.size
    assert not ledger.closed
    assert "finer dtype" in ledger.why
    assert (Ledger(1.0, 1.0).scale, ledger.scale) == ("score", "lines")
    assert Ledger(1.0 + 1e-4, 1.0, Lines(lines), dtype="float32").scale == "lines"
    assert Ledger(1.0 + 1e-4, 1.0, Lines(lines), dtype="float32").closed


def test_the_largest_lines_are_named_first() -> None:
    lines = Lines({"a": 0.1, "b": -3.0, "c": 2.0, "d": 0.2})
    assert lines.absolute == pytest.approx(5.3)
    assert lines.largest(2) == "'b' -3, 'c' +2 and 2 more"
    assert lines.largest(4) == "'b' -3, 'c' +2, 'd' +0.2, 'a' +0.1"


def test_groups_name_what_is_cut_off_or_held_where_something_is() -> None:
    assert list(Ledger(1.0, 1.0).groups) == ["biases", "constants"]
    full = Ledger(1.0, 1.0, cut_off=Lines({"a": 0.5}), held=Lines({"b": -0.5}))
    assert list(full.groups) == ["biases", "constants", "cut off", "held"]
    assert full.unaccounted == 0
    assert full.to_dict()["cut_off"] == {"a": 0.5}
    assert full.to_dict()["held"] == {"b": -0.5}
    assert "cut_off" not in Ledger(1.0, 1.0).to_dict()
    assert "held" not in Ledger(1.0, 1.0).to_dict()


def test_as_a_dict_each_entry_stands_where_it_says_something() -> None:
    assert Ledger(1.0, 1.0, spread=2.0).to_dict() == {
        "score": 1.0,
        "inputs": 1.0,
        "biases": {},
        "constants": {},
        "readout": 0.0,
        "unaccounted": 0.0,
        "error": 0.0,
        "closed": True,
        "scale": "score",
        "dtype": "float32",
        "spread": 2.0,
    }
    cut = Ledger(1.0, 0.5, cut_off=Lines({"detach": 0.25}), held=Lines({"memory": 0.25}), cut_size=0.75, magnitude=3.0)
    more = {name: value for name, value in cut.to_dict().items() if name not in Ledger(1.0, 1.0).to_dict()}
    assert more == {
        "cut_off": {"detach": 0.25},
        "held": {"memory": 0.25},
        "why": cut.why,
        "cut_size": 0.75,
        "magnitude": 3.0,
    }


def test_defaults_add_nothing() -> None:
    ledger = Ledger(1.0, 1.0)
    assert (ledger.readout, ledger.magnitude, ledger.spread, ledger.cut_size) == (0.0, 0.0, 0.0, 0.0)
    assert (dict(ledger.biases), dict(ledger.constants), dict(ledger.cut_off), dict(ledger.held)) == ({}, {}, {}, {})


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_every_bound_grows_with_what_it_is_a_part_of(dtype: str, tolerance: float, size: float) -> None:
    def with_gap(part: float) -> Ledger:
        return Ledger(size * (1 + part), size, dtype=dtype)

    assert with_gap(0.5 * tolerance).scale == "score"
    assert with_gap(2 * tolerance).scale == "lines"
    assert with_gap(0.5 * tolerance).closed
    assert not with_gap(2 * tolerance).closed
    cut = min(tolerance, 1e-5) * size
    assert Ledger(size, size, cut_off=Lines({"detach": 0.5 * cut, "round": -0.5 * cut}), dtype=dtype, cut_size=0).closed
    for opens in ({"cut_off": Lines({"a": 2 * cut, "b": -2 * cut})}, {"cut_size": 2 * cut}):
        assert "cuts off" in Ledger(size, size, dtype=dtype, **opens).why  # type: ignore[arg-type]
    held = {"held": Lines({"a": 0.06 * size, "b": -0.06 * size})}
    assert "hold constant" in Ledger(size, size, dtype=dtype, **held).why
    assert Ledger(size, size, dtype=dtype, held=Lines({"a": 0.03 * size, "b": -0.03 * size})).closed
    near = Ledger(
        size * (1 + 2 * tolerance**0.5), size, Lines({"a": 1e20 * size}), Lines({"b": -1e20 * size}), dtype=dtype
    )
    assert "finer dtype" in near.why


# A score that is a small difference of large numbers: rounding of the large ones is no leak.


def explain_shifted(shift: float, method: str = "lrp", **options: Any) -> Ledger:
    """The ledger of a classifier whose logits all have `shift` added, which changes no probability."""
    model = copy.deepcopy(tiny("bert", torch.float32))
    with torch.no_grad():
        model.classifier.bias += shift
    (e, *_) = hw.explain(model, arguments("bert"), method=method, **options)
    return e.ledger


@pytest.mark.parametrize(
    "options", [{"output": "log-probability"}, {"output": "advantage"}, {"target": "LABEL_0 - LABEL_1"}]
)
def test_rounding_of_large_logits_opens_no_ledger_of_their_difference(options: dict[str, Any]) -> None:
    near, shifts = explain_shifted(0.0, **options), (1500.0, 2500.0, 3000.0, 3500.0)
    shifted = [explain_shifted(shift, **options) for shift in shifts]
    for shift, far in zip(shifts, shifted, strict=True):
        assert far.score == pytest.approx(near.score, abs=1e-3)
        assert far.magnitude > 1.5 * shift
        assert far.closed
    # by itself it would not; how a number is rounded, its last digits say, and the processor
    assert any(abs(far.unaccounted) > 1e-5 * max(abs(far.score), abs(far.inputs), far.spread) for far in shifted)
    assert not explain_shifted(0.0, "lrp(ah+act)", **options).closed


def test_the_magnitude_of_a_log_probability_is_that_of_its_two_numbers() -> None:
    model = tiny("bert", torch.float32)
    with torch.no_grad():
        logits = model(**arguments("bert")).logits[0].double()
    (e, *_) = hw.explain(model, arguments("bert"), output="log-probability", target=0)
    assert e.ledger.magnitude == pytest.approx(float(logits[0].abs() + logits.logsumexp(-1).abs()), abs=1e-5)
    assert hw.explain(model, arguments("bert"), target=0)[0].ledger.magnitude == 0
