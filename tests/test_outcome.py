"""What results hold of a batch: a card is asked for it once, when all is computed."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from tiny import tiny, tokenizer
from torch import Tensor

import headwater as hw
from headwater.engine.finite import not_finite
from headwater.engine.outcome import FetchingOutcome, Outcome
from headwater.engine.run_graphs import ByOperations, clone_all
from headwater.inputs.host_copies import HostCopies
from headwater.inputs.readouts import ReadNames, ScoreReading
from headwater.inputs.text import ItemsOfIds
from headwater.results.ledger import Lines
from headwater.rules import Books

TEXTS = ["a gripping, beautifully acted film", "dull", "so so"]


def some_tensors() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3).double(), torch.randn(2), torch.randn(3).double(), torch.randn(3), torch.randn(2, 3)]


def make_outcome(**given: object) -> Outcome:
    score = torch.tensor([1.0, 2.0], dtype=torch.float64)
    books = Books(2, amounts={0: score + 1, 1: score * 2}, sizes={1: score * 3})
    reading = ScoreReading.later(score, [score + 5], lambda found: ReadNames([str(x) for x in found.tolist()], ["?"]))
    made = Outcome(reading, score, score - 1, [], [torch.arange(12.0).reshape(2, 2, 3)], books, {})
    return replace(made, **given)  # type: ignore[arg-type]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every tensor lay on a card."""
    monkeypatch.setattr("headwater.inputs.host_copies.lies_far", lambda tensor: True)


def test_copies_for_the_host_are_the_same_numbers_in_the_same_order(far: None) -> None:
    given = some_tensors()
    found = HostCopies(given).wait()
    assert [one.tolist() for one in found] == [one.tolist() for one in given]
    assert [(one.shape, one.dtype) for one in found] == [(one.shape, one.dtype) for one in given]
    given[0].zero_()
    assert found[0].abs().sum() > 0  # memory of its own
    assert HostCopies([]).wait() == []


def test_what_lies_in_main_memory_is_not_copied() -> None:
    given = some_tensors()
    assert all(one is other for one, other in zip(HostCopies(given).wait(), given, strict=True))


def test_many_tensors_are_cloned_in_their_order() -> None:
    given = some_tensors()
    found = clone_all(given)
    assert [one.tolist() for one in found] == [one.tolist() for one in given]
    given[0].zero_()
    assert found[0].abs().sum() > 0


@pytest.mark.parametrize("on_card", [False, True])
def test_an_outcome_is_the_same_when_it_was_fetched(on_card: bool, request: pytest.FixtureRequest) -> None:
    if on_card:
        request.getfixturevalue("far")
    given, real = make_outcome(), torch.ones(2, 2).bool()
    expected = (
        [a.tolist() for a in given.books.amounts.values()],
        given.books.cut_size().tolist(),
        given.score.tolist(),
    )
    found = FetchingOutcome(given, real).wait()
    books, fetched = found.books, found.fetched
    assert ([a.tolist() for a in books.amounts.values()], books.cut_size().tolist(), found.score.tolist()) == expected
    assert found.reading.targets == ["6.0", "7.0"]
    assert fetched.sum_of(found.relevance[0]).tolist() == found.relevance[0].sum(-1).tolist()
    assert [fetched.copy_of(one).tolist() for one in (found.readout, real)] == [[0.0, 1.0], real.tolist()]
    assert (fetched.copy_of(real) is real) != on_card


def test_what_was_fetched_is_no_other_tensors() -> None:
    found = FetchingOutcome(make_outcome()).wait()
    other = replace(found, score=found.score + 1, relevance=[found.relevance[0] * 2])
    assert other.fetched.copy_of(other.score).tolist() == [2.0, 3.0]
    assert other.fetched.sum_of(other.relevance[0]).tolist() == (found.relevance[0] * 2).sum(-1).tolist()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_none_is_found(wrong: float) -> None:
    relevance = torch.ones(2, 2, 3)
    assert not_finite(FetchingOutcome(make_outcome(relevance=[relevance])).wait()) is None
    relevance[1, 0, 2] = wrong
    assert not_finite(FetchingOutcome(make_outcome(relevance=[relevance])).wait()) == "the relevance"
    both = relevance.clone()
    both[1, 0, 1] = -wrong  # they do not cancel
    assert not_finite(FetchingOutcome(make_outcome(relevance=[both])).wait()) == "the relevance"
    score = torch.tensor([1.0, wrong], dtype=torch.float64)
    assert not_finite(FetchingOutcome(make_outcome(score=score)).wait()) == "the score"


def test_finite_numbers_may_add_up_to_more_than_their_type_holds() -> None:
    relevance = torch.full((2, 2, 3), 3e38)
    found = FetchingOutcome(make_outcome(relevance=[relevance])).wait()
    assert not found.fetched.sum_of(relevance).isfinite().any()
    assert not_finite(found) is None


def test_names_are_made_when_they_are_asked_for() -> None:
    calls: list[Tensor] = []

    def name(numbers: Tensor) -> ReadNames:
        calls.append(numbers)
        return ReadNames(["a"], ["b"], [1.0])

    reading = ScoreReading.later(torch.ones(1), [torch.ones(1)], name)
    assert not calls
    assert (reading.targets, reading.predictions, reading.magnitudes, reading.classes) == (["a"], ["b"], [1.0], [])
    assert reading.names.probabilities == [{}]
    assert [one.tolist() for one in calls] == [[1.0]]  # once


def test_numbers_that_were_sent_are_as_they_were_then(far: None) -> None:
    numbers = torch.ones(1)
    reading = ScoreReading.later(torch.ones(1), [numbers], lambda found: ReadNames([str(found.item())], [None]))
    reading.send()
    numbers.zero_()  # as the next run does, in the memory of a graph
    reading.send()
    assert reading.targets == ["1.0"]


def test_items_of_ids_are_named_once_and_keep_the_ids_as_they_were() -> None:
    ids = torch.tensor([[3, 4, 5], [6, 7, 0]])
    items = ItemsOfIds(ids.clone(), ids > 0, None)
    assert (len(items), items[1].tokens, [one.tokens for one in items[:1]]) == (2, ("6", "7"), [("3", "4", "5")])
    assert items[0] is items[0]
    assert [one.tokens for one in items] == [("3", "4", "5"), ("6", "7")]


def test_a_row_of_lines_is_what_a_dict_of_them_is() -> None:
    given = {"a": 1.5, "b": -2.0}
    row, whole = Lines.of_row(tuple(given), list(given.values())), Lines(given)
    for one in (row, pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert (one, dict(one), repr(one), one.total, one.absolute) == (whole, given, repr(whole), -0.5, 3.5)
    assert (len(row), list(row), row["b"], "c" in row, row + 1) == (2, ["a", "b"], -2.0, False, 0.5)
    assert Lines.of_row((), ()) == Lines()
    with pytest.raises(ValueError, match="names"):
        Lines.of_row(("a",), (1.0, 2.0))


ASKS = ("tolist", "item", "cpu", "__bool__", "__float__", "__int__", "nonzero")


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_no_number_is_asked_for_between_the_two_parts_of_a_played_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, order = copy.deepcopy(tiny(name)), list[str]()  # every 64th explanation of a model is a plain one
    for number in range(4):
        hw.explain(model, TEXTS[number % 2 :], tokenizer=tokenizer(), method="lrp")
    for ask in ASKS:
        monkeypatch.setattr(Tensor, ask, noting(getattr(Tensor, ask), order, ask))
    monkeypatch.setattr(torch, "equal", noting(torch.equal, order, "equal"))
    monkeypatch.setattr(ByOperations, "forwards", noting(ByOperations.forwards, order, "-", "forwards"))
    monkeypatch.setattr(ByOperations, "backwards", noting(ByOperations.backwards, order, "backwards", "-"))
    monkeypatch.setattr(HostCopies, "wait", noting(HostCopies.wait, order, "wait"))
    found = hw.explain(model, TEXTS, tokenizer=tokenizer(), method="lrp")
    assert {e.provenance.way for e in found} == {"plan"}
    assert order[order.index("forwards") + 1] == "backwards"
    assert order[order.index("-", order.index("backwards")) + 1] == "wait"
    assert order.count("wait") == 2  # for the forward pass, and for the way back


def noting(function: object, order: list[str], before: str, after: str | None = None) -> object:
    def noted(*args: object, **kwargs: object) -> object:
        order.append(before)
        try:
            return function(*args, **kwargs)  # type: ignore[operator]
        finally:
            order.extend([] if after is None else [after])

    return noted
