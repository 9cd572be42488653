"""Citations by random halves of the sources: weights of a model that is known, and sources that say the same."""

from __future__ import annotations

import numpy as np
import pytest
from speaker import speaker, talker

import headwater as hw
from headwater.api.citations import weigh_sources
from headwater.errors import UsageError
from headwater.results.answer_report import LeftOut

approx = pytest.approx
SOURCES = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def leave(score):
    """What `AnswerExplainer` gives, with log-probabilities that are a known function of what stays."""

    def read(wanted):
        found = []
        for gone in wanted:
            stays = np.array([source not in gone for source in SOURCES], float)
            after = tuple(score(stays))
            found.append(LeftOut(0, "x", 0.0, sum(after), (0.0,) * len(after), after, tuple(gone)))
        return found

    return read


def test_a_sum_of_sources_gives_its_weights():
    true = np.array([4.0, 0.0, 0.0, 2.0, 0.0, -3.0])
    found = weigh_sources(SOURCES, leave(lambda stays: [true @ stays, 0.0]), 64, seed=0)
    assert found.weights[0] == approx(true, abs=0.1)  # the penalty takes a little of each
    assert found.of(0, (0, 0)) == (approx(4.0, abs=0.1), 1.0)
    assert found.of(0, (2, 1))[1] == 0.0
    assert not found.weights[1].any()


def test_two_sources_that_say_the_same_are_both_found():
    """Either of the first two suffices: leaving out one at a time shows nothing."""
    read = leave(lambda stays: [5.0 * max(stays[0], stays[1])])
    assert [one.sentences_after[0] for one in read([((0, 0),), ((0, 1),)])] == [5.0, 5.0]
    found = weigh_sources(SOURCES, read, 64, seed=1)
    for source in SOURCES[:2]:
        weight, sure = found.of(0, source)
        assert weight > 1
        assert sure > 0.9
    assert max(abs(found.of(0, source)[0]) for source in SOURCES[2:]) < 1


def test_citations_take_weights_where_they_are_asked_for():
    given = {"documents": ["the film is good. Paris.", "London. she said."], "answer": "Paris. it was London."}
    found = hw.explain_answer(talker("gpt2"), "the capital is", tokenizer=speaker(), score="logit", **given)
    plain, weighed = found.citations(least=0.0), found.citations(least=0.0, ablations=16)
    assert [[one.text for one in some] for some in weighed] == [[one.text for one in some] for some in plain]
    assert [[one.drop for one in some] for some in weighed] == [[one.drop for one in some] for some in plain]
    assert any(weighed)
    for one in (one for some in weighed for one in some):
        assert one.weight is not None
        assert 0 <= one.sure <= 1
    assert all(one.weight is None for some in plain for one in some)
    assert weighed == found.citations(least=0.0, ablations=16)  # the seed is the same
    nothing = hw.explain_answer(talker("gpt2"), "it was", tokenizer=speaker(), answer="Paris.")
    assert nothing.citations(ablations=16) == [[]]
    with pytest.raises(UsageError, match="at least 2"):
        found.citations(ablations=1)
