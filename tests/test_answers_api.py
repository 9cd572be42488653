"""Whole answers: a span costs one backward pass and is the sum of its tokens; sums are exact, ledgers close."""

from __future__ import annotations

import dataclasses
import json
import math
from copy import deepcopy

import numpy
import pandas
import pytest
import torch
from hostile import HOSTILE
from speaker import speaker, talker
from tiny import CASTS
from typer.testing import CliRunner

import headwater as hw
from headwater.api.leave_out import leave_out
from headwater.cli import app
from headwater.engine import propagate
from headwater.errors import InputError, UsageError
from headwater.inputs.documents import Material
from headwater.results.answer_report import Citation, describe_change, judge_sources
from headwater.results.sentences import find_sentences
from headwater.viz.answer_page import page

approx = pytest.approx
DOCUMENTS = ["the capital of France is Paris. it was a good film.", "", "she said London! the film was good."]
ANSWER = "Paris is good. it was London."
MODELS = ("llama", "gpt2", "t5-lm")


def ask(name: str = "gpt2", **options) -> hw.AnswerExplainer:
    given = {"documents": DOCUMENTS, "answer": ANSWER, "tokenizer": speaker()} | options
    return hw.explain_answer(talker(name), given.pop("question", "the capital is"), **given)


def without_template():
    plain = deepcopy(speaker())
    plain.chat_template = None
    return plain


def tolerance(name: str) -> float:
    """In float64; a model that casts to float32 inside has that precision."""
    return 1e-6 if name in CASTS else 1e-10


@pytest.mark.parametrize("score", ["logprob", "logit", "advantage", "contrast"])
@pytest.mark.parametrize("name", MODELS)
def test_a_span_is_the_sum_of_its_tokens_and_its_ledger_closes(name, score):
    found = ask(name, score=score)
    rows, whole, span = found.tokens(), found.whole(), found.span("good. it")
    assert span.first == rows.prompt + 2
    own = rows.relevance[2 : span.last - rows.prompt]
    assert torch.allclose(whole.relevance, rows.relevance.sum(0), rtol=0, atol=tolerance(name))
    assert torch.allclose(span.relevance, own.sum(0), rtol=0, atol=tolerance(name))
    assert not torch.allclose(span.relevance, rows.relevance.sum(0), rtol=0, atol=1e-3)
    for one in (whole, span):
        assert one.ledger.error < tolerance(name)
        assert float(one.relevance.sum()) == approx(one.ledger.inputs, abs=1e-12)
    assert span.score == approx(sum(rows.scores[2 : span.last - rows.prompt]), abs=tolerance(name))


@pytest.mark.parametrize("name", MODELS)
def test_nothing_comes_from_the_spans_own_last_token_or_later(name):
    found = ask(name)
    span = found.sentence(0)
    assert bool((span.relevance[span.last - 1 :] == 0).all())
    assert float(span.relevance[span.first : span.last - 1].abs().min()) > 0  # its own beginning has a part


def test_without_rules_the_ledger_of_a_span_stays_open():
    assert ask(method="gi").whole().ledger.error > 1e-3


def test_a_span_takes_one_forward_and_one_backward_pass_however_long_it_is(monkeypatch):
    passes = {"forward": 0, "backward": 0}
    plain = propagate.backward
    monkeypatch.setattr(propagate, "backward", lambda *a: passes.update(backward=passes["backward"] + 1) or plain(*a))
    model = deepcopy(talker("gpt2"))
    found = hw.explain_answer(
        model, "the capital is", tokenizer=speaker(), documents=DOCUMENTS, answer=f"{ANSWER} {ANSWER}"
    )
    found.whole()  # at its first explanation a model is looked at closely
    model.register_forward_pre_hook(lambda *_: passes.update(forward=passes["forward"] + 1))
    passes.update(forward=0, backward=0)
    found.whole()
    assert passes == {"forward": 1, "backward": 1}


@pytest.mark.parametrize("name", MODELS)
def test_sentences_documents_and_roles_add_up(name):
    found = ask(name)
    whole, parts = found.whole(), found.all_sentences()
    assert [part.text for part in parts] == list(found.sentences) == ["Paris is good.", "it was London."]
    assert torch.allclose(sum(part.relevance for part in parts), whole.relevance, rtol=0, atol=tolerance(name))
    roles, documents = whole.by_role(), whole.by_document()
    assert sum(roles.values()) == approx(whole.ledger.inputs, abs=1e-12)
    assert sum(documents.values()) == approx(roles["document"], abs=1e-12)
    assert list(documents) == ["Document 1", "Document 2", "Document 3"]
    assert documents["Document 2"] == 0  # it is empty
    assert min(abs(documents[one]) for one in ("Document 1", "Document 3")) > 0
    sources = whole.by_sentence()
    assert sum(one.relevance for one in sources) == approx(whole.ledger.inputs, abs=1e-12)
    assert [one.text for one in sources if one.document is not None] == [
        "the capital of France is Paris.",
        "it was a good film.",
        "she said London!",
        "the film was good.",
    ]
    assert [one.text for one in sources if one.role == "question"] == ["the capital is"]


def test_the_log_probability_of_sentences_is_that_of_the_model_and_adds_up():
    found = ask()
    rows = found.tokens()
    assert found.whole().log_probability == approx(sum(torch.tensor(rows.probabilities).log().tolist()), abs=1e-4)
    parts = [part.log_probability for part in found.all_sentences()]
    assert sum(parts) == approx(found.whole().log_probability, abs=1e-9)
    assert found.whole().score != approx(found.whole().log_probability)
    assert ask(score="logprob").whole().score == approx(found.whole().log_probability, abs=1e-9)


@pytest.mark.parametrize("sinks", ["show", "aside"])
@pytest.mark.parametrize("name", MODELS)
def test_what_ended_on_the_models_own_words_is_passed_on_and_the_ledger_stays_whole(name, sinks):
    found = ask(name, score="logprob", sinks=sinks)
    span = found.sentence(1)
    traced = found.through(span)
    start = span.roles.index("output")
    assert abs(span.by_role()["output"]) > 1e-6
    assert bool((traced.relevance[start:] == 0).all())
    assert traced.score == span.score
    assert traced.ledger.error < tolerance(name)
    assert float(traced.relevance.sum()) == approx(traced.ledger.inputs, abs=1e-12)
    rows = found.tokens()  # the triangular system, solved at once
    shares = rows.relevance.double() / torch.tensor(rows.scores).double().unsqueeze(1)
    own = torch.eye(len(rows)).double() - shares[:, start:]
    weights = torch.linalg.solve(own.T, span.relevance[start:].double())
    assert torch.allclose(traced.relevance[:start], span.relevance[:start] + weights @ shares[:, :start], atol=1e-9)


def test_a_token_with_a_score_of_nearly_nothing_keeps_its_share():
    found = ask(score="logprob")
    rows, span = found.tokens(), found.whole()
    small = dataclasses.replace(rows.ledgers[1], score=1e-9)
    traced = span.through(dataclasses.replace(rows, ledgers=(rows.ledgers[0], small, *rows.ledgers[2:])))
    assert float(traced.relevance[rows.prompt + 1]) != 0
    assert traced.ledger.error < 1e-10
    with pytest.raises(UsageError, match="token by token"):
        span.through(rows.words())


TWICE = ["the sea is blue. it is cold.", "the sea is blue.", "the sea is blue."]


@pytest.mark.parametrize("given", ["prompt", "chat"])
@pytest.mark.parametrize("document", range(3))
def test_a_document_whose_words_stand_twice_is_left_out_where_it_stands(given, document):
    marked = [f"<{number}> {text}" for number, text in enumerate(TWICE)]
    chat = [{"role": "user", "content": text} for text in marked]
    chat.insert(1, {"role": "assistant", "content": None})
    prompt, turns = (" ".join(marked), None) if given == "prompt" else (None, chat)
    left = Material.of(None, TWICE, prompt, turns).without({document: None})
    said = left.prompt or " ".join(one["content"] for one in left.chat if one["content"])
    expected = [f"<{number}> {'' if number == document else text}" for number, text in enumerate(TWICE)]
    assert said == " ".join(expected)
    assert [one["role"] for one in left.chat or ()] == [one["role"] for one in turns or ()]


def test_documents_that_become_alike_are_left_out_where_they_stand():
    texts = ["the sea. it is cold.", "the sea."]
    prompt = f"the sea. {texts[0]} | {texts[1]}"
    left = Material.of(None, texts, prompt, None).without({0: [(9, 20)], 1: None})
    assert left.prompt == "the sea. the sea. | "


@pytest.mark.parametrize("texts", [["the film. it is good.", "it is good."], ["it is good.", "it is good."]])
def test_documents_that_stand_inside_each_other_are_left_out_where_they_stand(texts):
    found = ask(prompt="the film. it is good. the capital is", documents=texts)
    report = found.report()
    assert all(one.before == approx(report.without[0].before) for one in report.without)
    both = found.without_all([(0, None), (1, None)])
    assert both.after == approx(found.without(0).after, abs=1e-9)
    assert both.after != approx(both.before)


def test_a_sentence_that_stands_twice_is_left_out_where_it_stands():
    found = Material.of(None, TWICE, " | ".join(TWICE), None).without({1: [(0, 16)]})
    assert found.prompt == f"{TWICE[0]} |  | {TWICE[2]}"


def test_without_a_document_is_what_the_model_says_of_the_prompt_without_it():
    found = ask()
    left = found.without(document=0)
    assert left.name == "Document 1"
    assert left.before == approx(found.whole().log_probability, abs=1e-9)
    assert left.drop == approx(sum(left.drops), abs=1e-9)
    assert found.without(document=1).drop != approx(left.drop)
    shorter = found.prompt.replace(f"Document 1:\n{DOCUMENTS[0]}\n\n", "")
    assert shorter != found.prompt
    said = hw.explain_generation(
        talker("gpt2"), tokenizer=speaker(), answer=" " + ANSWER, chat=[turn(shorter)], score="logprob", method="lrp"
    )
    assert left.after == approx(sum(said.scores), abs=1e-9)
    with pytest.raises(UsageError, match="no document 3"):
        found.without(document=3)


def turn(rendered: str) -> dict[str, str]:
    return {"role": "user", "content": rendered.removeprefix("<s>user ").removesuffix("</s><s>assistant")}


def test_citations_are_the_sources_with_the_largest_shares_and_what_their_loss_does():
    found = ask(score="logprob")
    cited = found.citations(least=0.0)
    assert len(cited) == 2
    for number, sources in enumerate(cited):
        positive = [
            one for one in found.sentence(number).by_sentence() if one.document is not None and one.relevance > 0
        ]
        assert [one.text for one in sources] == [
            one.text for one in sorted(positive, key=lambda one: -one.relevance)[:3]
        ]
        if len(positive) <= 3 and positive:
            assert sum(one.share for one in sources) == approx(1)
        for one in sources:
            assert one.sure is None or 0 <= one.sure <= 1
    source = next(one for sources in cited for one in sources)
    texts = [text.replace(source.text, "", 1) if n == source.document else text for n, text in enumerate(DOCUMENTS)]
    again = ask(score="logprob", documents=texts).sentence(source.sentence)
    assert source.drop == approx(found.sentence(source.sentence).log_probability - again.log_probability, abs=1e-9)


def test_a_source_that_stands_twice_is_left_out_where_it_was_cited():
    text = "the film is good. good. she said."
    found = ask(documents=[text])
    cited = [one for one in found.whole().by_sentence() if one.document == 0]
    assert [one.text for one in cited] == ["the film is good.", "good.", "she said."]
    left = [leave_out(found._material, found._places[0], [(0, n)]).texts[0] for n in range(3)]
    assert left == [" good. she said.", "the film is good.  she said.", "the film is good. good. "]


def test_a_span_is_a_value_that_goes_through_json():
    span = ask().sentence(1)
    again = hw.SpanExplanation.from_dict(json.loads(json.dumps(span.to_dict())))
    assert torch.equal(again.relevance, span.relevance)
    assert again.to_dict() == span.to_dict()
    assert again.by_document() == span.by_document()
    assert again.as_explanation().ledger == span.ledger


def test_the_model_writes_the_answer_where_none_is_given():
    found = ask(answer=None, max_new_tokens=4)
    assert len(found.pieces) == 4
    said = hw.explain_generation(talker("gpt2"), chat=[turn(found.prompt)], tokenizer=speaker(), max_new_tokens=4)
    assert found.text == said.text


def test_a_prompt_of_ones_own_and_a_chat_have_their_documents_found():
    text = f"{DOCUMENTS[0]} and {DOCUMENTS[2]} the capital is"
    mine = ask(prompt=text, documents=[DOCUMENTS[0], DOCUMENTS[2]]).whole()
    assert set(mine.by_role()) == {"document", "prompt", "question", "output"}
    chat = [
        {"role": "system", "content": "it is a good film"},
        {"role": "tool", "content": f"she said {DOCUMENTS[0]}"},
        {"role": "user", "content": "the capital is"},
    ]
    found = ask(question=None, chat=chat, documents=[DOCUMENTS[0]])
    roles = found.whole().by_role()
    assert {"system", "tool", "document", "user", "template", "output"} == set(roles)
    assert sum(roles.values()) == approx(found.whole().ledger.inputs, abs=1e-12)
    assert found.without(0).drop != 0
    with pytest.raises(InputError, match="word for word"):
        ask(prompt="the capital is", documents=["Paris"])


def test_a_document_of_a_chat_is_not_looked_for_in_the_template():
    chat = [{"role": "user", "content": "she said system user assistant"}]
    said, parts = Material.of("assistant", ["user"], None, chat).render(speaker())
    assert [said.text[part.start : part.end] for part in parts] == ["user", "assistant", chat[0]["content"]]
    assert all(said.turns[0].start <= part.start and part.end <= said.turns[0].end for part in parts)


def test_two_hundred_documents_are_told_apart():
    model = deepcopy(talker("llama"))
    model.config.max_position_embeddings = 10_000
    documents = {f"w{n}": f"the film w{n % 60} is good." for n in range(200)}
    found = hw.explain_answer(model, "it was", tokenizer=speaker(), documents=documents, answer="Paris.")
    shares = found.whole().by_document()
    assert list(shares) == list(documents)
    assert all(shares.values())
    assert found.whole().ledger.closed


def test_of_many_documents_those_that_matter_most_are_left_out_as_a_whole():
    model = deepcopy(talker("llama"))
    model.config.max_position_embeddings = 10_000
    documents = {f"w{n}": f"the film w{n} is good." for n in range(20)}
    found = hw.explain_answer(model, "it was", tokenizer=speaker(), documents=documents, answer="Paris.")
    report = found.report()
    sizes = {name: abs(amount) for name, amount in found.whole().by_document().items()}
    cited = {report.documents[one.document] for some in report.citations for one in some}
    left = [one.name for one in report.without]
    assert len(left) == 8
    assert left == [name for name in documents if name in left]
    assert cited <= set(left)
    rest = [name for name in sorted(sizes, key=lambda name: -sizes[name]) if name not in cited]
    assert set(left) == cited | set(rest[: 8 - len(cited)])
    assert "12 others give less, and were not left out" in str(report)
    assert "12 others give less, and were not left out" in page(report)


def test_each_source_is_compared_with_eight_others_and_no_more_are_left_out():
    model = deepcopy(talker("llama"))
    model.config.max_position_embeddings = 10_000
    documents = {f"w{n}": f"the film w{n} is good." for n in range(20)}
    found = hw.explain_answer(model, "it was", tokenizer=speaker(), documents=documents, answer="Paris. it is good.")
    report = found.report()
    cited = {(one.document, one.source) for some in report.citations for one in some}
    assert cited
    assert len(report.tried) == max(9, len(cited))
    assert {one.sources[0] for one in report.tried} >= cited


def test_what_is_too_long_names_the_longest_document():
    with pytest.raises(InputError, match=r"at most \d+\. The longest document is 'Document 2'"):
        ask(documents=["the film", "the film " * 4000])


@pytest.mark.parametrize("text", HOSTILE[:12])
def test_hostile_markup_stays_in_its_document(text):
    found = ask(documents=[f"{text} the film", "Paris is good."])
    span = found.whole()
    assert found.without(0).drop != 0
    own = [one.text for one in span.by_sentence() if one.document == 0]
    assert "the film" in " ".join(own)
    assert sum(span.by_role().values()) == approx(span.ledger.inputs, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"question": None}, UsageError),
        ({"question": " "}, InputError),
        ({"documents": "a text"}, InputError),
        ({"documents": [b"bytes"]}, InputError),
        ({"documents": 5}, InputError),
        ({"documents": {"a text", "another"}}, InputError),
        ({"documents": {1: "a text", "1": "another"}}, InputError),
        ({"documents": pandas.DataFrame({"text": ["a text"]})}, InputError),
        ({"question": 5}, InputError),
        ({"question": b"the capital is"}, InputError),
        ({"question": ["the capital is"], "documents": 5}, InputError),
        ({"answer": b"Paris"}, InputError),
        ({"answer": 5}, InputError),
        ({"methd": "gi"}, UsageError),
        ({"answer": "", "tokenizer": without_template()}, InputError),
        ({"prompt": "a", "chat": []}, UsageError),
        ({"question": None, "chat": 5}, InputError),
        ({"question": None, "chat": {"role": "user", "content": "a"}}, InputError),
        ({"answer": ""}, InputError),
    ],
)
def test_what_cannot_be_asked_is_refused(options, error):
    with pytest.raises(error):
        ask(**options)


@pytest.mark.parametrize("given", [pandas.Series(DOCUMENTS), numpy.array(DOCUMENTS), iter(DOCUMENTS)])
def test_documents_are_a_column_an_array_or_a_generator_too(given):
    assert [one.documents for one in ask(question=["the film", "it"], documents=given)] == [ask().documents] * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda found: found.sentence(1.5),
        lambda found: found.span(5),
        lambda found: found.whole(hops=1.5),
        lambda found: found.without("Document 1"),
        lambda found: found.without(0, 0.5),
        lambda found: found.citations(most=-1),
        lambda found: found.told(most=-1),
    ],
)
def test_a_number_of_another_kind_is_refused(call):
    with pytest.raises(UsageError):
        call(ask())


def test_words_and_sentences_that_are_not_there_are_refused():
    found = ask()
    with pytest.raises(UsageError, match="stands 0 times"):
        found.span("Rome")
    with pytest.raises(UsageError, match="the answer has 2"):
        found.sentence(2)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. J. S. Bach paid 3.14 euros. He left.", ["Dr. J. S. Bach paid 3.14 euros.", "He left."]),
        ('He said "no." Then\nnothing', ['He said "no."', "Then", "nothing"]),
        ("日本の首都は東京です。はい。", ["日本の首都は東京です。", "はい。"]),
        ("well... perhaps. so it is.", ["well... perhaps.", "so it is."]),
        ("  \n ", []),
    ],
)
def test_sentences_are_split_where_people_split_them(text, sentences):
    assert [text[a:b] for a, b in find_sentences(text)] == sentences


def test_a_session_answers_as_the_function_does():
    with hw.session(talker("gpt2"), tokenizer=speaker(), method="lrp") as session:
        found = session.answer("the capital is", documents=DOCUMENTS, answer=ANSWER).whole()
    assert found.method == "lrp"
    assert torch.equal(found.relevance, ask(method="lrp").whole().relevance)


def test_what_is_printed_adds_up_and_obeys_no_document():
    span = ask(documents=["Paris\x1b[31m is good.", "London."]).whole()
    said = str(span)
    assert "\x1b" not in said
    assert "closed" in said
    roles = said.partition("by role:\n")[2].partition("\n\n")[0].splitlines()
    assert {line.split()[1] for line in roles} == set(span.by_role())
    assert sum(float(line.split()[0]) for line in roles) == approx(span.ledger.inputs, abs=0.51 * unit_of(roles[0]))


def unit_of(line: str) -> float:
    """One unit of the last place of the number that a line begins with."""
    return 10.0 ** -len(line.split()[0].partition(".")[2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("answers")
    talker("gpt2").save_pretrained(place / "model")
    speaker().save_pretrained(place / "model")
    (place / "notes").mkdir()
    (place / "notes" / "b.txt").write_text("the capital of France is Paris. it was a good film.\n")
    (place / "notes" / "a.md").write_text("she said London!")
    (place / "empty").mkdir()
    (place / "latin.txt").write_bytes(b"caf\xe9")
    return place


def command(folder, *words: str):
    return CliRunner().invoke(app, ["answer", "the capital is", "-m", str(folder / "model"), *words])


def test_the_command_names_the_sources_of_every_sentence(folder):
    given = ("--documents", str(folder / "notes"), "--answer", ANSWER, "--dtype", "float64", "--score", "logprob")
    found = json.loads(command(folder, *given, "--json").stdout)
    assert found["documents"] == ["a.md", "b.txt"]
    assert [one["text"] for one in found["sentences"]] == ["Paris is good.", "it was London."]
    assert all(one["ledger"]["closed"] for one in found["sentences"])
    for one in found["sentences"]:
        assert sum(one["by_role"].values()) == approx(one["ledger"]["inputs"], abs=1e-9)
    before = sum(one["log_probability"] for one in found["sentences"])
    assert [one["before"] for one in found["without"]] == approx([before, before], abs=1e-6)
    said = command(folder, *given).stdout
    assert said.splitlines()[0] == found["answer"].strip()
    assert "without a document" in said
    assert max(map(len, said.splitlines())) <= 80 + len(found["answer"])


@pytest.mark.parametrize(
    ("path", "says"), [("empty", "holds no file"), ("nowhere.txt", "cannot be read"), ("latin.txt", "UTF-8")]
)
def test_files_that_are_no_documents_are_refused(folder, path, says):
    found = command(folder, "-d", str(folder / path))
    assert found.exit_code != 0
    assert says in found.output + str(found.exception)


def test_a_file_of_another_kind_is_refused(folder):
    (folder / "notes.docx").write_bytes(b"PK")
    found = command(folder, "-d", str(folder / "notes.docx"))
    assert ".html, .htm or .pdf" in found.output + str(found.exception)


def test_the_command_writes_one_page(folder):
    given = ("-d", str(folder / "notes"), "--answer", ANSWER, "--html", str(folder / "page.html"))
    assert command(folder, *given).exit_code == 0
    page = (folder / "page.html").read_text()
    assert "she said London!" in page
    assert "<title>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_report_is_a_value_that_goes_through_json():
    report = ask().report()
    again = hw.AnswerReport.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again.to_dict() == report.to_dict()
    assert [again.verdict(n) for n in range(2)] == [report.verdict(n) for n in range(2)]
    assert str(again) == str(report)
    with pytest.raises(UsageError, match="the answer has 2"):
        report.verdict(2)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.71, 0.09, "71 % → 9 %"),
        (0.999, 0.05, "99.9 % → 5 %"),
        (0.5, 1e-9, "50 % → less than 0.001 %"),
        (0.05, 0.0123, "5 % → 1.2 %"),
        (1e-3, 1e-5, "100 times less likely"),
        (1e-5, 2e-5, "2.0 times likelier"),
        (1e-5, 1e-20, "more than a million times less likely"),
        (1e-5, 1e-5, "as likely as before"),
    ],
)
def test_a_change_is_said_in_plain_words(before, after, said):
    assert describe_change(math.log(before), math.log(after)) == said


def test_a_small_change_is_told_from_the_number_of_the_source():
    span = ask().sentence(0)
    source = Citation(0, 0, 0, "x", 1.0, 0.5, before=math.log(0.16), drop=math.log(0.16 / 0.13), sure=1.0)
    said = "".join(part.text for part in judge_sources(span, [source], ["tower"]))
    assert said == "rests on no single sentence of a document; without tower, sentence 1: 16 % → 13 %"
