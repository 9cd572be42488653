"""Who told it to? Roles add up, a turn's sentence is left out where it stands, and a decisive tool result is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from speaker import speaker, talker

import headwater as hw
from headwater.api.tellers import leave_place_out
from headwater.errors import UsageError
from headwater.results.who_told import ToldSentence, WhoTold

approx = pytest.approx
CHAT = [
    {"role": "system", "content": "it is a good film."},
    {"role": "user", "content": "the capital is"},
    {"role": "assistant", "content": "she said it."},
    {"role": "tool", "content": "the film is good. good. Paris was London!"},
]


def ask(name: str = "gpt2", chat=CHAT, **options) -> hw.AnswerExplainer:
    given = {"answer": "Paris is good.", "tokenizer": speaker(), "score": "logit"} | options
    return hw.explain_answer(talker(name), chat=chat, **given)


@pytest.mark.parametrize("name", ["gpt2", "t5-lm"])
def test_roles_add_up_and_every_loss_is_what_the_model_says_without_the_sentence(name):
    found = ask(name)
    told = found.told(most=9)
    assert sum(told.roles.values()) == approx(found.whole().ledger.inputs, abs=1e-12)
    assert {"system", "user", "tool", "assistant"} <= set(told.roles)
    assert sum(told.shares.values()) == approx(1) or max(told.roles.values()) <= 0
    assert told.log_probability == approx(found.whole().log_probability, abs=1e-9)
    assert len(told.sentences) >= 2
    for one in told.sentences:
        turn = dict(CHAT[one.turn])
        assert turn["content"].count(one.text) == (2 if one.text == "good." else 1)
        if one.text == "good.":
            continue
        turn["content"] = turn["content"].replace(one.text, "")
        chat = [*CHAT[: one.turn], turn, *CHAT[one.turn + 1 :]]
        assert one.after == approx(ask(name, chat).whole().log_probability, abs=1e-9)
    assert [one.drop for one in told.sentences] == sorted((one.drop for one in told.sentences), reverse=True)


def test_a_sentence_that_stands_twice_is_left_out_where_it_was_said():
    found = ask()
    places = found._places[0]
    number = next(n for n, place in enumerate(places) if place.text == "good.")
    left = leave_place_out(found._material, places, number, found._text.said)
    assert left.chat[3]["content"] == "the film is good.  Paris was London!"


def test_a_sentence_that_a_document_of_its_turn_has_too_is_left_out_where_it_was_said():
    chat = [{"role": "user", "content": " good. Paris was London! good. it is good."}]
    found = ask(chat=chat, documents=["good. Paris was London!"])
    places = found._places[0]
    turn, document = (
        next(n for n, one in enumerate(places) if one.text == "good." and one.role == role)
        for role in ("user", "document")
    )
    said = [leave_place_out(found._material, places, n, found._text.said).chat[0]["content"] for n in (document, turn)]
    assert said == [" Paris was London! good. it is good.", " good. Paris was London!  it is good."]
    assert {(one.role, one.text) for one in found.told(most=9).sentences} <= {(p.role, p.text) for p in places}


def test_a_span_of_the_answer_is_asked_about_alone():
    found = ask(answer="Paris is good. it was London.")
    told = found.told(found.sentence(1))
    assert told.text == "it was London."
    assert told.log_probability == approx(found.sentence(1).log_probability, abs=1e-9)
    assert json.loads(json.dumps(told.to_dict()))["text"] == told.text


def test_a_span_of_another_answer_is_refused():
    with pytest.raises(UsageError, match="another prompt or answer"):
        ask().told(ask(answer="Paris was good.").whole())


def test_documents_in_a_chat_are_tellers_too():
    told = ask(documents=["Paris was London!"]).told(most=9)
    documents = [one for one in told.sentences if one.document == 0]
    assert all(one.turn is None for one in documents)
    assert "document" in told.roles


def sentence(role: str, turn: int, drop: float) -> ToldSentence:
    return ToldSentence(role, turn, None, f"{role} says so.", 1.0, 0.5, before=math.log(0.5), drop=drop)


def test_a_decisive_tool_result_is_named_before_the_user():
    user, tool = sentence("user", 0, math.log(50)), sentence("tool", 2, math.log(20))
    told = WhoTold("x", math.log(0.5), {"user": 2.0, "tool": 1.0, "template": -1.0}, (user, tool))
    assert told.strangers == (tool,)
    said = "".join(part.text for part in told.verdict())
    assert said == ("told by a tool result (turn 3): “tool says so.”; without it 50 % → 2.5 %; the user told it, too")
    assert told.shares == {"user": approx(2 / 3), "tool": approx(1 / 3), "template": 0.0}
    assert "* decisive" in str(told)
    alone = replace(told, sentences=(user,))
    assert "told by the user (turn 1)" in "".join(part.text for part in alone.verdict())
    quiet = replace(told, sentences=(replace(tool, drop=1.0),))
    assert "no single sentence" in "".join(part.text for part in quiet.verdict())
