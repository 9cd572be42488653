"""Every measure against an answer worked out by hand, and a perfect order above a random one above a reversed one."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from headwater import plugins
from headwater.errors import DataError, UnknownName, UsageError
from headwater.evaluation import charts, measures, progress, ranking, statistics, summary
from headwater.evaluation.bounds import Bounds
from headwater.evaluation.conservation import conservation, moments_of
from headwater.evaluation.files import load_evaluation
from headwater.evaluation.job import EvaluationJob
from headwater.evaluation.measures import PERTURBATIONS, Answer, Measure, register_measure, resolve_measures
from headwater.evaluation.perturbation import InputPool, Perturbed
from headwater.evaluation.protocols import ali2022, counts, resolve_protocol
from headwater.evaluation.report import page
from headwater.evaluation.results import summarise
from headwater.evaluation.run import evaluate
from headwater.evaluation.statistics import differences_to_best, resample_means, with_few_samples
from headwater.inputs.batch import group_by_length
from headwater.results.explanation import Explanation, Provenance
from headwater.results.ledger import Ledger
from headwater.web.stores import drawings
from headwater.web.stores.evaluations import EvaluationStore

WHERE = Provenance("", "", None, "", "cpu", "float64")


class Sums:
    """Samples of weighted items, no text anywhere: the logits are 0 and the sum of the weights that are present."""

    mixes = True
    bounds = Bounds()

    def __init__(self, weights: Sequence[np.ndarray], relevance: dict[str, Sequence[np.ndarray]]) -> None:
        self.weights, self.relevance = weights, relevance
        self.batches: list[int] = []

    def __len__(self) -> int:
        return len(self.weights)

    def part(self, samples: Sequence[int]) -> Sums:
        kept = {name: [found[i] for i in samples] for name, found in self.relevance.items()}
        return Sums([self.weights[i] for i in samples], kept)

    def describe(self) -> dict[str, object]:
        return {"items": "weights"}

    def items(self, sample: int) -> np.ndarray:
        return np.arange(len(self.weights[sample]))

    def explain(self, samples: Sequence[int], method: str, target: int, seed: int) -> list[Explanation]:
        sign = 1 if target == 1 else -1
        found = []
        for i in samples:
            relevance = torch.from_numpy(sign * self.relevance[method][i])
            ledger = Ledger(sign * float(self.weights[i].sum()), float(relevance.sum()), dtype="float64")
            found.append(Explanation((), relevance, ledger.score, str(target), ledger, method, WHERE))
        return found

    def perturb(self, sample: int, kept: np.ndarray) -> list[Perturbed]:
        rows = [self.weights[sample] * row for row in kept]
        return [Perturbed(row.tobytes(), len(row), row) for row in rows]

    def logits(self, inputs: Sequence[Perturbed]) -> np.ndarray:
        self.batches.append(len(inputs))
        return np.array([[0.0, entry.value.sum()] for entry in inputs])


def run(weights, relevance, labels=None, protocol=ali2022, asked="all", chunk=16):
    source = Sums(weights, relevance)
    labels = [1] * len(source) if labels is None else labels
    chosen = resolve_measures(asked)
    job = EvaluationJob(source, range(len(source)), labels, tuple(relevance), chosen, protocol, 4096, 0)
    return summarise(job.run(chunk), chosen, protocol, {"seed": 0})


def sigmoid(values):
    return [1 / (1 + math.exp(-v)) for v in values]


def trapezoid(values):
    return sum((a + b) / 2 for a, b in pairwise(values)) / (len(values) - 1)


# One sample of five items, worked out by hand. Best first: 2, .5, 0, 0 (as they stand), -1.
WEIGHTS = np.array([0.0, 2.0, 0.5, -1.0, 0.0])
# ceil(f · 5) items: 0 1 1 2 2 3 3 4 4 5 5
SHOWN = [0, 2, 2, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 1.5, 1.5]
# Smallest |relevance| first: 0, 0, .5, -1, 2
PRUNED = [1.5, 1.5, 1.5, 1.5, 1.5, 1.0, 1.0, 2.0, 2.0, 0.0, 0.0]
# Best first removed: what is left
LEFT = [1.5, -0.5, -0.5, -1, -1, -1, -1, -1, -1, 0, 0]


@pytest.fixture(scope="module")
def by_hand():
    return run([WEIGHTS], {"exact": [WEIGHTS]})["exact"]


def test_activation_by_hand(by_hand):
    assert by_hand.activation.mean == pytest.approx(sigmoid(SHOWN), abs=1e-12)
    assert by_hand.auac == pytest.approx(trapezoid(sigmoid(SHOWN)), abs=1e-12)
    assert by_hand.activation.area == by_hand.auac


def test_pruning_by_hand(by_hand):
    assert by_hand.pruning.mean == pytest.approx([(1.5 - s) ** 2 for s in PRUNED], abs=1e-12)
    assert by_hand.aumse == pytest.approx(0.4375, abs=1e-12)


def test_pruning_as_the_mean_over_logits_is_half_of_it_for_two_classes():
    found = run([WEIGHTS], {"exact": [WEIGHTS]}, protocol=ali2022.replace(error="mean"))
    assert found["exact"].aumse == pytest.approx(0.4375 / 2, abs=1e-12)


def test_insertion_and_deletion_by_hand(by_hand):
    """The predicted class is 1, whose weights these are."""
    assert by_hand.insertion == pytest.approx(trapezoid(sigmoid(SHOWN)), abs=1e-12)
    assert by_hand.deletion == pytest.approx(trapezoid(sigmoid(LEFT)), abs=1e-12)


def test_comprehensiveness_and_sufficiency_by_hand(by_hand):
    """Bins of 1, 5, 10, 20 and 50 % of five items: 1, 1, 1, 1 and 3."""
    whole = sigmoid([1.5])[0]
    without, alone = sigmoid([-0.5] * 4 + [-1]), sigmoid([2] * 4 + [2.5])
    assert by_hand.comprehensiveness == pytest.approx(np.mean([whole - p for p in without]), abs=1e-12)
    assert by_hand.sufficiency == pytest.approx(np.mean([whole - p for p in alone]), abs=1e-12)


def test_a_wrongly_classified_sample_counts_and_is_followed_in_its_true_class():
    """Class 0 is true and has the weights turned round: -1 first, then the zeros, then .5, then 2."""
    found = run([WEIGHTS], {"exact": [WEIGHTS]}, labels=[0])["exact"]
    shown = [0, -1, -1, -1, -1, -1, -1, -0.5, -0.5, 1.5, 1.5]
    assert found.activation.mean == pytest.approx([1 - p for p in sigmoid(shown)], abs=1e-12)
    assert found.insertion == pytest.approx(trapezoid(sigmoid(SHOWN)), abs=1e-12)  # of the predicted class


def test_the_predicted_class_can_be_followed_instead():
    found = run([WEIGHTS], {"exact": [WEIGHTS]}, labels=[0], protocol=ali2022.replace(target="predicted"))
    assert found["exact"].activation.mean == pytest.approx(sigmoid(SHOWN), abs=1e-12)
    assert found.accuracy == 0


def test_the_area_of_the_mean_curve_is_the_mean_of_the_areas():
    found = run([WEIGHTS, 2 * WEIGHTS], {"exact": [WEIGHTS, WEIGHTS]})["exact"]
    assert trapezoid(found.activation.mean) == pytest.approx(found.auac, abs=1e-12)


def orders(task: str, random: np.random.Generator, count: int = 60):
    """Weights, and relevances that rank their items perfectly, at random, and the wrong way round."""
    weights = [random.normal(size=random.integers(8, 30)) for _ in range(count)]
    wrong = (lambda w: 1 / w) if task == "pruning" else np.negative
    relevance = {
        "reversed": [wrong(w) for w in weights],
        "random": [random.normal(size=len(w)) for w in weights],
        "perfect": weights,
    }
    return weights, relevance


@pytest.mark.parametrize("measure", PERTURBATIONS, ids=lambda measure: measure.name)
def test_perfect_before_random_before_reversed(measure):
    weights, relevance = orders(measure.name, np.random.default_rng(0))
    labels = [int(w.sum() > 0) for w in weights]
    found = run(weights, relevance, labels, asked=[measure.name])
    score, sign = measure.score, measure.sign
    worst, middle, best = (sign * found[m].estimate(score).value for m in ("reversed", "random", "perfect"))
    assert worst < middle < best
    assert found.compare("perfect", "random", score).better == "perfect"
    assert found.compare("reversed", "random", score).better == "random"


@pytest.mark.parametrize("items", [1, 2, 3, 9, 10, 26, 100, 256])
def test_counts_are_exact(items):
    assert counts(ali2022.fractions, items).tolist() == [math.ceil(Fraction(i, 10) * items) for i in range(11)]


def test_ten_items_are_counted_one_by_one():
    """In floating point, ceil(.3 · 10) is 4 and ceil(.6 · 10) is 7."""
    assert counts(ali2022.fractions, 10).tolist() == list(range(11))


def test_equal_relevance_is_taken_as_it_stands():
    flags = ranking.only_top(np.array([1.0, 2.0, 1.0, 1.0]), np.array([2]))
    assert flags.tolist() == [[True, True, False, False]]
    flags = ranking.without_smallest(np.array([-1.0, 0.0, 1.0, -0.0]), np.array([1, 3]))
    assert flags.tolist() == [[True, False, True, True], [False, False, True, False]]


def test_each_input_is_run_once():
    subjects = Sums([WEIGHTS, np.array([3.0, 1.0])], {})
    pool = InputPool(subjects, budget=20)
    first = pool.add(0, np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool))
    again = pool.add(1, np.array([[1, 1], [0, 1]], dtype=bool))
    pool.run()
    assert first.tolist() == [0, 1, 0]
    assert sum(subjects.batches) == len(pool) == 4
    assert pool.asked == 5
    assert pool.logits[first][:, 1].tolist() == [1.5, 0, 1.5]
    assert pool.logits[again][:, 1].tolist() == [4, 1]
    more = pool.add(1, np.array([[1, 0], [1, 1]], dtype=bool))
    pool.run()
    assert pool.logits[more][:, 1].tolist() == [3, 4]
    assert sum(subjects.batches) == 5


def test_the_largest_batch_runs_first_and_answers_stay_in_their_places():
    subjects = Sums([2.0 ** np.arange(5), 2.0 ** np.arange(4)], {})
    subjects.mixes = False
    pool = InputPool(subjects, budget=100)
    long = pool.add(0, np.eye(5, dtype=bool)[:2])
    short = pool.add(1, ~np.eye(4, dtype=bool))
    pool.run()
    assert subjects.batches == [4, 2]  # 4 inputs of 4 items, 2 of 5
    assert pool.logits[long][:, 1].tolist() == [1, 2]
    assert pool.logits[short][:, 1].tolist() == [14, 13, 11, 7]


def test_batches_hold_like_costs_within_the_budget():
    costs = [5, 9, 2, 9, 5, 5, 30]
    found = group_by_length(costs, budget=18)
    assert sorted(i for group in found for i in group) == list(range(7))
    assert all(len(g) * max(costs[i] for i in g) <= 18 or len(g) == 1 for g in found)
    assert [[costs[i] for i in g] for g in found] == [[30], [9, 9], [5, 5, 5], [2]]
    assert [[costs[i] for i in g] for g in group_by_length(costs, budget=1000, mixes=False)] == [
        [30],
        [9, 9],
        [5, 5, 5],
        [2],
    ]
    assert [len(g) for g in group_by_length(costs, budget=1000, most=3)] == [3, 3, 1]


def test_chunks_do_not_change_the_numbers():
    weights, relevance = orders("activation", np.random.default_rng(1), 20)
    one, many = (run(weights, relevance, chunk=c) for c in (20, 3))
    for method in relevance:
        for name, values in one.samples.values[method].items():
            assert np.array_equal(values, many.samples.values[method][name])


def test_probabilities_of_large_logits_are_finite():
    answer = Answer(np.array([[1e4, 0.0]]), np.array([1e4, 0.0]), 0, ali2022)
    assert measures.probability(answer).tolist() == [1.0]
    assert measures.logit_error(answer).tolist() == [0.0]


def test_the_bootstrap_interval_covers():
    """Of 300 samples of a known mean, about 95 % have it in their interval; 92 % is three standard errors below."""
    random = np.random.default_rng(0)
    values = random.exponential(size=(60, 300))
    low, high = statistics.percentile_interval(statistics.resample_means(values, seed=1))
    covered = float(((low < 1) & (high > 1)).mean())
    assert 0.90 < covered < 0.98  # the percentile interval of a skewed mean is a little narrow


def test_the_bootstrap_is_that_of_a_loop():
    values = np.random.default_rng(0).normal(size=(40, 2))
    random = np.random.default_rng(5)
    slow = np.stack([values[random.integers(40, size=40)].mean(0) for _ in range(2000)])
    fast = statistics.resample_means(values, seed=3)
    assert fast.shape == slow.shape
    assert fast.mean(0) == pytest.approx(slow.mean(0), abs=0.02)
    assert fast.std(0) == pytest.approx(slow.std(0), rel=0.1)
    assert np.array_equal(fast, statistics.resample_means(values, seed=3))


def test_blocks_do_not_change_the_resamples(monkeypatch):
    values = np.random.default_rng(0).normal(size=(40, 2))
    whole = statistics.resample_means(values, seed=3, resamples=50)
    monkeypatch.setattr(statistics, "BLOCK", 280)
    assert statistics.resample_means(values, seed=3, resamples=50) == pytest.approx(whole, abs=1e-15)


@pytest.fixture(scope="module")
def compared():
    random = np.random.default_rng(2)
    weights = [random.normal(size=12) for _ in range(80)]
    noisy = [w + 0.4 * random.normal(size=12) for w in weights]
    return run(weights, {"good": weights, "fair": noisy, "twin": noisy}, asked=["activation", "pruning"])


def test_a_method_does_not_differ_from_itself(compared):
    for other in ("fair", "twin"):
        d = compared.compare("fair", other)
        assert (d.value, d.low, d.high, d.share, d.p, d.better) == (0, 0, 0, 0.5, 1.0, None)


def test_a_real_difference_is_seen_from_both_sides(compared):
    there, back = compared.compare("good", "fair"), compared.compare("fair", "good")
    assert there.value == pytest.approx(compared["good"].auac - compared["fair"].auac)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert there.better == back.better == "good"
    assert there.p == back.p < 0.05
    assert there.share == pytest.approx(1 - back.share)
    assert compared.compare("good", "fair", "aumse").share > 0.5  # where less is better


def test_pairing_sees_what_separate_intervals_do_not(compared):
    d = compared.compare("good", "fair")
    low, high = compared["good"].interval()
    assert d.high - d.low < (high - low) / 2


def test_what_was_not_measured_says_so(compared):
    with pytest.raises(UsageError, match="'insertion' was not measured"):
        _ = compared["good"].insertion
    with pytest.raises(UnknownName, match="Did you mean 'fair'"):
        _ = compared["fare"]
    with pytest.raises(UnknownName, match="Did you mean 'auac'"):
        compared.compare("good", "fair", "auca")
    with pytest.raises(UnknownName, match="Did you mean 'pruning'"):
        resolve_measures("prunning")


def test_conservation_by_hand():
    score, total = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 5.0])
    found = conservation(score, total, np.array([0.0, 0.1, 0.3, 0.2]))
    assert found.correlation == pytest.approx(np.corrcoef(score, total)[0, 1])
    assert found.error == pytest.approx(0.25 / 2.5)
    assert found.largest_unaccounted == 0.3
    assert found.low <= found.correlation <= found.high


def test_conservation_of_a_perfect_a_random_and_a_reversed_sum():
    random = np.random.default_rng(0)
    score, nothing = random.normal(size=200), np.zeros(200)
    sums = (score, random.normal(size=200), -score)
    perfect, chance, turned = (conservation(score, total, nothing) for total in sums)
    assert (perfect.correlation, perfect.error) == pytest.approx((1, 0))
    assert (turned.correlation, turned.error) == pytest.approx((-1, 2))
    assert abs(chance.correlation) < 0.2
    assert chance.low < 0 < chance.high


def test_conservation_where_nothing_varies():
    found = conservation(np.ones(5), np.arange(5.0), np.zeros(5))
    assert math.isnan(found.correlation)
    assert math.isnan(found.low)
    assert moments_of(np.full(4, 1e9), np.arange(4.0))[:, 0].tolist() == [0, 0, 0, 0]


def test_rank_correlation_by_hand():
    assert statistics.mean_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]
    up = np.array([1.0, 2.0, 3.0, 4.0])
    assert statistics.rank_correlation(up, up**3) == pytest.approx(1)
    assert statistics.rank_correlation(up, -up) == pytest.approx(-1)
    assert statistics.rank_correlation(up, np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(0.6)
    assert math.isnan(statistics.rank_correlation(up, np.ones(4)))


def test_a_variant_of_a_protocol_says_what_was_changed():
    variant = ali2022.replace(special_tokens="kept", max_length=64)
    assert variant.name == "ali2022(special_tokens=kept,max_length=64)"
    assert variant.version == ali2022.version
    assert (
        resolve_protocol(variant.name) == resolve_protocol("ALI2022( max_length=64, special_tokens=kept )") == variant
    )
    assert variant.replace(special_tokens="ranked", max_length=256) == ali2022
    assert resolve_protocol("ali2022(fractions=0+1/2+1,max_length=none)").fractions == (0, Fraction(1, 2), 1)
    assert type(ali2022).from_dict(variant.to_dict()) == variant


def test_the_published_protocol_is_pinned():
    """Any change to these numbers is another protocol, or another version of it."""
    assert ali2022.to_dict() == {
        "name": "ali2022",
        "version": 1,
        "fractions": ["0", "1/10", "1/5", "3/10", "2/5", "1/2", "3/5", "7/10", "4/5", "9/10", "1"],
        "bins": ["1/100", "1/20", "1/10", "1/5", "1/2"],
        "special_tokens": "ranked",
        "replacement": "unk",
        "target": "true",
        "error": "sum",
        "max_length": 256,
    }


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ali2023", "Did you mean 'ali2022'"),
        ("ali2022(special_tokens=keep)", "Did you mean 'kept'"),
        ("ali2022(spezial_tokens=kept)", "Did you mean 'special_tokens'"),
        ("ali2022(kept)", "name=value"),
        ("ali2022(replacement=zero)", "no replacement called 'zero'"),
        ("ali2022(max_length=0)", "max_length must be from 1"),
        ("ali2022(fractions=0+2)", "from 0 to 1"),
        ("ali2022(fractions=1+0)", "ascending"),
        ("ali2022(fractions=a+b)", "numbers from 0 to 1"),
    ],
)
def test_a_protocol_that_does_not_exist_is_answered(asked, message):
    with pytest.raises(UsageError, match=message):
        resolve_protocol(asked)


def test_a_fraction_is_read_as_it_is_written():
    assert ali2022.replace(fractions=[0, 0.1, 0.3, 1]).fractions[2] == Fraction(3, 10)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0.43, 0.97, [0.4, 0.6, 0.8, 1.0]), (-3, 42, [-10, 0, 10, 20, 30, 40, 50])],
)
def test_axes_have_round_numbers(low, high, expected):
    assert charts.find_ticks(low, high) == pytest.approx(expected)
    assert len(set(charts.label_ticks(charts.find_ticks(low, high)))) == len(expected)


def test_no_two_series_look_alike_in_black_and_white():
    looks = {
        (style.replace(f"s{n % 8}", ""), dash, marker)
        for n in range(16)
        for style, dash, marker in [charts.series_style(n)]
    }
    assert len(looks) == 16
    assert len({(dash, marker) for *_, dash, marker in map(charts.series_style, range(16))}) == 16


ALLOCATE = """
import torch
from headwater.evaluation.peak_memory import Meter
torch.set_num_threads(1)
meter = Meter.start(on_card=False)
for job in (lambda: float((torch.ones(32 << 20) + 1).sum()), lambda: None):  # two times 128 MiB, and nothing
    print(meter.peak(job)[1] >> 20)
"""


@pytest.mark.slow
def test_memory_is_what_a_computation_holds_at_its_highest():
    """In a process of its own: here, what other tests left behind may be given back in between."""
    done = subprocess.run([sys.executable, "-c", ALLOCATE], capture_output=True, text=True, check=True)
    most, least = map(int, done.stdout.split())
    assert 256 <= most < 288
    assert least < 16


def tables_of_equal_methods(tables: int, methods: int = 12, samples: int = 60) -> list[dict[str, tuple[float, Any]]]:
    """Means and resampled means of methods that differ by chance alone; samples are hard or easy for all of them."""
    chance = np.random.default_rng(7)
    found = []
    for number in range(tables):
        shared = chance.normal(size=(samples, 1))
        values = shared + 0.3 * chance.normal(size=(samples, methods))
        means = resample_means(values, seed=number, resamples=400)
        found.append({f"m{i}": (float(values[:, i].mean()), means[:, i]) for i in range(methods)})
    return found


def test_equal_methods_are_rarely_told_from_the_best_though_it_was_picked_afterwards() -> None:
    told, alone = [], []
    for found in tables_of_equal_methods(150):
        told.append(any(one.better is not None for one in differences_to_best("auac", found, True, 60).values()))
        best = max(found, key=lambda name: found[name][0])
        gaps = [found[best][1] - means for name, (_, means) in found.items() if name != best]
        alone.append(any(np.quantile(gap, 0.025) > 0 for gap in gaps))
    assert np.mean(told) <= 0.1  # a twentieth, and chance
    assert np.mean(alone) > 0.5  # as it is where the choice is not allowed for


@pytest.mark.parametrize("higher", [True, False])
def test_a_method_that_is_worse_is_told_from_the_best(higher: bool) -> None:
    (found,) = tables_of_equal_methods(1)
    sign = -1 if higher else 1
    found["worse"] = (found["m3"][0] + sign, found["m3"][1] + sign)
    compared = differences_to_best("auac", found, higher, 60)
    best = (max if higher else min)(found, key=lambda name: found[name][0])
    assert compared["worse"].better == best
    assert compared["worse"].p <= 1 / 401 + 1e-12
    assert compared["worse"].value == pytest.approx(found["worse"][0] - found[best][0])
    assert compared[best].value == 0
    assert compared[best].p == 1
    assert all((one.p <= 0.05) == (one.better is not None) for one in compared.values())


def test_a_copy_of_the_best_is_not_told_from_it() -> None:
    (found,) = tables_of_equal_methods(1, methods=2)
    best = max(found, key=lambda name: found[name][0])
    found["copy"] = found[best]
    compared = differences_to_best("auac", found, True, 60)
    assert (compared["copy"].value, compared["copy"].low, compared["copy"].high, compared["copy"].p) == (0, 0, 0, 1)


def test_a_method_that_is_worse_by_the_same_in_every_sample_is_told_from_the_best() -> None:
    """Its differences do not vary; p was 1, beside an interval without 0."""
    (found,) = tables_of_equal_methods(1, methods=2)
    best = max(found, key=lambda name: found[name][0])
    halved = {best: (1.5, np.floor(found[best][1])), "worse": (1.0, np.floor(found[best][1]) - 0.5)}
    one = differences_to_best("auac", halved, True, 60)["worse"]
    assert (one.value, one.low, one.high, one.better) == (-0.5, -0.5, -0.5, best)
    assert one.p < 0.05


def test_with_few_samples_as_much_more_is_asked_as_students_t_asks() -> None:
    stats = pytest.importorskip("scipy.stats")
    for samples in (10, 60, 1000):
        for size in (1.0, 2.0, 3.5):
            exact = stats.t.isf(stats.norm.sf(size), samples - 1)
            assert with_few_samples(size, samples) == pytest.approx(exact, rel=6e-3)


def test_statistics_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    first, second = random.exponential(size=(40, 1)), 0.3 + random.exponential(size=(50, 1))
    theirs = stats.bootstrap((first[:, 0],), np.mean, n_resamples=9999, method="percentile", rng=1).confidence_interval
    low, high = statistics.percentile_interval(resample_means(first, seed=1, resamples=9999)[:, 0])
    assert (low, high) == pytest.approx((theirs.low, theirs.high), rel=0.02)  # three errors of a quantile

    def mean(sums):
        return sums[..., 0] / sums[..., 1]

    sums = [np.concatenate([values, np.ones_like(values)], 1) for values in (first, second)]
    ours = statistics.permutation_p(*sums, mean, seed=0, permutations=9999)
    theirs = stats.permutation_test(
        (first[:, 0], second[:, 0]),
        lambda a, b: abs(a.mean() - b.mean()),
        n_resamples=9999,
        alternative="greater",
        rng=1,
    )
    assert ours == pytest.approx(theirs.pvalue, abs=0.015)
    ranks = random.integers(6, size=(2, 30)).astype(float)
    assert statistics.rank_correlation(*ranks) == pytest.approx(stats.spearmanr(*ranks).statistic)


def keep_nothing(relevance, counts):
    return np.zeros((len(counts), len(relevance)), dtype=bool)


def count_classes(answer):
    return np.linspace(1.0, 3.0, len(answer.logits))


def largest_share(part, method, explanations, targets, seed):
    """Of a sample's |relevance|, what its largest item has."""
    return np.array([float(e.relevance.abs().max() / e.relevance.abs().sum()) for e in explanations])


CURVE = Measure(
    name="emptiness",
    score="aue",
    title="AU-<E>",
    summary="a curve from 1 to 3, whatever the model says",
    better="lower",
    axes=("how far & wide", "classes"),
    aggregation="area",
    kept=keep_nothing,
    read=count_classes,
)
NUMBER = Measure("focus", "share of the largest item", "higher", title="Focus", compute=largest_share)


@pytest.fixture
def plugged(monkeypatch):
    """Two measures of a package outside, found by their entry points."""
    monkeypatch.setattr(measures, "_MEASURES", dict(measures._MEASURES))
    found = {"emptiness": CURVE, "focus": NUMBER}
    monkeypatch.setattr(plugins, "load_all", lambda group: found if group == plugins.MEASURES else {})


def test_a_measure_from_outside_is_computed_saved_loaded_and_shown(plugged, tmp_path):
    pytest.importorskip("pyarrow")
    asked = ["activation", "focus", "aue"]
    options = {"methods": ["gi", "lrp"], "tokenizer": tiny.tokenizer(), "runtime": False, "progress": False}
    rows = [("good film", 1), ("a bad film", 0), ("dull", 0)]
    made = evaluate(tiny.tiny("bert"), rows, measures=asked, out=tmp_path, **options)
    assert made.measures == ("auac", "aue", "focus")
    assert made["lrp"].estimate("aue").value == pytest.approx(2)
    assert 0 < made["lrp"].estimate("focus").value <= 1
    assert made.compare("gi", "lrp", "focus").value == pytest.approx(
        made["gi"].estimate("focus").value - made["lrp"].estimate("focus").value
    )
    found = load_evaluation(tmp_path)
    assert found.to_dict()["methods"] == made.to_dict()["methods"]
    shown, in_notebook = page(found), found._repr_html_()
    for said in ("AU-&lt;E&gt; ↓", "Focus ↑", "Emptiness: a lower curve is better", "how far &amp; wide"):
        assert said in shown
    assert "how far &amp; wide" in in_notebook
    assert [table.title for table in summary.evaluation_tables(found)][:3] == [
        "AUAC, higher is better",
        "AU-<E>, lower is better",
        "Focus, higher is better",
    ]
    store = EvaluationStore("e", "e", tmp_path)
    assert [(c.name, c.better, c.axes) for c in store.curves()][1] == ("emptiness", "lower", CURVE.axes)
    assert "how far &amp; wide" in drawings.draw_curves(store)


def test_a_measure_is_given_as_a_value_too():
    found = evaluate(
        tiny.tiny("bert"),
        [("good film", 1)],
        measures=[NUMBER],
        methods=["gi"],
        tokenizer=tiny.tokenizer(),
        runtime=False,
    )
    assert found.measures == ("focus",)
    with pytest.raises(UnknownName, match="no measure called 'focus'"):
        resolve_measures("focus")


def test_what_is_saved_names_the_measure_that_is_missing(plugged, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    options = {"methods": ["gi"], "tokenizer": tiny.tokenizer(), "runtime": False, "out": tmp_path}
    evaluate(tiny.tiny("bert"), [("good film", 1)], measures="focus", **options)
    monkeypatch.setattr(measures, "_MEASURES", {m.name: m for m in PERTURBATIONS})
    monkeypatch.setattr(plugins, "load_all", lambda group: {})
    with pytest.raises(DataError, match="holds the measure 'focus', which is not known here"):
        load_evaluation(tmp_path)


def test_unknown_measures_answer_with_the_nearest(plugged):
    with pytest.raises(UnknownName, match="Did you mean 'focus'"):
        resolve_measures(["focsu"])
    assert {m.name for m in resolve_measures("all")} == {m.name for m in PERTURBATIONS}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "Score"}, "cannot be called 'Score'"),
        ({"name": "inputs"}, "cannot be called 'inputs'"),
        ({"better": "more"}, "no direction of a measure called 'more'"),
        ({"aggregation": "sum"}, "no aggregation of a measure called 'sum'"),
        ({"aggregation": "area"}, "needs kept="),
        ({"compute": None}, "needs compute="),
    ],
)
def test_a_measure_that_could_not_be_shown_is_refused_when_it_is_made(changed, message):
    with pytest.raises(UsageError, match=message):
        dataclasses.replace(NUMBER, **{"score": "", **changed})
    with pytest.raises(UsageError, match="needs axes="):
        dataclasses.replace(CURVE, axes=None)


def test_two_measures_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(measures, "_MEASURES", dict(measures._MEASURES))
    with pytest.raises(UsageError, match="there is a measure called 'auac' already"):
        register_measure(dataclasses.replace(NUMBER, score="auac"))
    assert register_measure(NUMBER) is resolve_measures("focus")[0]


def test_a_bar_counts_says_and_notes_on_standard_error(capsys):
    with progress.show_progress(2000, 500, True, "explaining", "rows", tokens=True) as tick:
        tick(1500, 40)
        tick.note(", nearly done")
        tick.say("a line that stays [bold]")
    shown = capsys.readouterr()
    assert shown.out == ""
    for said in ("2,000 of 2,000 rows", ", nearly done", "a line that stays [bold]"):
        assert said in shown.err
    with progress.show_progress(1, 0, False) as tick:
        tick(1)
        tick.say("said")
    assert capsys.readouterr().err == "said\n"
