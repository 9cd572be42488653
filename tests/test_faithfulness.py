"""The protocols for language models: measures with answers by hand, halves, resuming, and the sentence at the end."""

from __future__ import annotations

import gzip
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from real_data import need_real_data
from real_models import smollm2
from speaker import Additive, likelihood, speaker, talker
from torch import Tensor, nn
from typer.testing import CliRunner

import headwater as hw
from headwater import plugins
from headwater.cli import app
from headwater.defaults import ENCODER_DECODER_METHOD, LANGUAGE_METHOD, LANGUAGE_OUTPUT
from headwater.errors import DataError, NotApplicable, UnknownName, UsageError
from headwater.evaluation.charts import ChartFrame
from headwater.evaluation.language.agreement import Agreement, rank_of
from headwater.evaluation.language.asking import LATER, AnsweringModel, PerturbedAnswers, split_score
from headwater.evaluation.language.catalogue import LANGUAGE_PROTOCOLS, resolve_language_protocol, single_token
from headwater.evaluation.language.faithfulness import Faithfulness, FaithfulnessRow, base_name
from headwater.evaluation.language.hotpot import Hotpot
from headwater.evaluation.language.needles import (
    Needles,
    align_magnitude,
    falling_response,
    relevance_left,
    split_sentences,
)
from headwater.evaluation.language.picture import (
    DOT,
    LETTER,
    CostPoint,
    cost_points,
    draw_costs,
    draw_methods,
    frontier,
    hides,
    place,
)
from headwater.evaluation.language.prompts import (
    HALVES,
    TOKEN_SETS,
    PromptCase,
    half_of,
    join_entities,
    read_records,
    read_token_cases,
    take_half,
)
from headwater.evaluation.language.protocols import CaseSet
from headwater.evaluation.language.single_token import SingleToken, TokenPool, disrupt_and_recover
from headwater.evaluation.language.study import ROWS, measure_faithfulness, read_faithfulness, resolve_row, resolve_rows
from headwater.evaluation.language.tables import faithfulness_tables
from headwater.evaluation.protocols import TENTHS
from headwater.inputs.table import DATA_DIRECTORY
from headwater.models import bundled
from headwater_experiments.bench.peers import explain_answer_by_lxt

TEXTS = ("the capital of France is", "a good film in London was it", "she said it was a good film.", "in Paris it is a")
ANSWER = 5


def tokens(text: str) -> list[int]:
    return list(speaker()(text)["input_ids"])


def worth(**words: float) -> dict[int, float]:
    return {tokens(word)[0]: value for word, value in words.items()}


def pose(model: nn.Module, text: str = TEXTS[0]) -> tuple[AnsweringModel, Any]:
    asked = AnsweringModel(model, speaker())
    return asked, asked.pose(text, None)


PARIS = tokens("Paris")[0]
VALUES = worth(capital=1.0, France=3.0, the=2.0)  # "the" stands first and is never touched


def test_the_perfect_order_gives_the_areas_that_were_worked_out_by_hand():
    """Words capital 1, of 0, France 3, is 0, on a base of 2; perfect order: France, capital, then the others."""
    asked, prompt = pose(Additive(VALUES))
    assert prompt.answer == (ANSWER,)
    assert prompt.words.tolist() == [1, 2, 3, 4]
    answers = PerturbedAnswers(asked, prompt, prompt.words, None)
    counts = [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4]  # ceil(f * 4)
    recovered = [likelihood((2, 5, 6, 6, 6)[n]) / likelihood(6) for n in counts]
    disrupted = [likelihood((6, 3, 2, 2, 2)[n]) / likelihood(6) for n in counts]
    hand = 100 * (np.trapezoid(recovered, dx=0.1) - np.trapezoid(disrupted, dx=0.1))
    perfect, reverse = np.array([1.0, 0.0, 3.0, 0.0]), np.array([-1.0, 0.5, -3.0, 0.5])
    assert disrupt_and_recover(answers, perfect, TENTHS) == pytest.approx(hand)
    assert disrupt_and_recover(answers, reverse, TENTHS) < 0 < hand


def test_random_orders_lie_between_the_reversed_and_the_perfect_one():
    asked, prompt = pose(Additive(VALUES))
    answers = PerturbedAnswers(asked, prompt, prompt.words, None)
    draw, truth = np.random.default_rng(0), np.array([1.0, 0.0, 3.0, 0.0])
    found = [disrupt_and_recover(answers, draw.random(4), TENTHS) for _ in range(300)]
    best, worst = (disrupt_and_recover(answers, sign * truth, TENTHS) for sign in (1, -1))
    assert max(found) <= best + 1e-9
    assert min(found) >= worst - 1e-9
    assert worst + 20 < np.mean(found) < best - 20


def test_what_each_word_takes_along_is_what_it_was_worth():
    asked, prompt = pose(Additive(VALUES))
    drops = PerturbedAnswers(asked, prompt, prompt.words, None).drops()
    hand = [np.log(likelihood(6) / likelihood(6 - value)) for value in (1, 0, 3, 0)]
    assert drops == pytest.approx(hand)


def token_set(*texts: str) -> CaseSet:
    cases = [PromptCase(text, None) for text in texts]
    return CaseSet("made-up", cases, TokenPool.of(speaker(), cases))


def test_a_swap_puts_tokens_of_other_prompts_in_place_and_zero_none():
    """The others' tokens are worth 10 each: swapped, every word that goes adds 10."""
    cases = token_set(TEXTS[0], "London London")
    model = Additive({**VALUES, **worth(London=10.0)})
    posed = SingleToken(least_probability=0).pose(AnsweringModel(model, speaker()), cases.cases[0], cases)
    nothing = np.zeros((1, 4), dtype=bool)
    assert posed.answers["zero"].of(nothing) == pytest.approx(np.log(likelihood(2)))
    assert posed.answers["swap"].of(nothing) == pytest.approx(np.log(likelihood(42)))
    assert posed.answers["swap"].drops()[2] == pytest.approx(np.log(likelihood(6) / likelihood(13)))


def test_drawn_tokens_are_never_the_prompts_own_and_stay_the_same():
    pool = token_set(*TEXTS).pool
    for number, text in enumerate(TEXTS):
        others = {t for other in TEXTS if other != text for t in tokens(other)}
        drawn = pool.draw(number, 50, seed=4)
        assert set(drawn) <= others
        assert drawn == pool.draw(number, 50, seed=4)
        assert drawn != pool.draw(number, 50, seed=5)
    with pytest.raises(DataError, match="at least two prompts"):
        token_set(TEXTS[0]).pool.draw(0, 3, seed=0)


def test_rank_correlation_is_one_for_the_truth_and_minus_one_for_its_opposite():
    cases = token_set(TEXTS[0], "a good film")
    asked = AnsweringModel(Additive(VALUES | worth(of=0.5, **{"is": 0.2})), speaker())
    posed = SingleToken(least_probability=0).pose(asked, cases.cases[0], cases)
    truth = np.array([9.0, 1.0, 0.5, 3.0, 0.2])
    assert posed.measure(truth)["zero rho"] == pytest.approx(1)
    assert posed.measure(-truth)["zero rho"] == pytest.approx(-1)
    assert posed.measure(np.ones(5))["zero rho"] == 0


@pytest.mark.parametrize(
    ("changes", "kept"), [({}, False), ({"least_probability": 0.01}, True), ({"least_tokens": 6}, False)]
)
def test_prompts_are_kept_by_the_probability_of_the_answer_and_by_length(changes, kept):
    """e^1 of e^1 + 119 is .02."""
    cases = token_set(*TEXTS)
    asked = AnsweringModel(Additive(worth(capital=1.0)), speaker())
    assert (SingleToken(**changes).pose(asked, cases.cases[0], cases) is not None) == kept


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_zeroed_embeddings_equal_a_slow_version_with_embeddings_as_inputs(name):
    model, cases = talker(name), token_set(*TEXTS)
    rule = SingleToken(least_probability=0)
    posed = rule.pose(AnsweringModel(model, speaker()), cases.cases[1], cases)
    relevance = np.random.default_rng(1).normal(size=len(posed.prompt.ids))
    ids = torch.tensor([posed.prompt.ids])
    vectors = model.get_input_embeddings()(ids).detach()
    order = 1 + np.argsort(-relevance[1:])

    def relative(gone: np.ndarray) -> float:
        x = vectors.clone()
        x[0, list(gone)] = 0
        with torch.no_grad():
            chances = [model(inputs_embeds=e).logits[0, -1].softmax(-1)[posed.prompt.answer[0]] for e in (x, vectors)]
        return float(chances[0] / chances[1])

    areas = [0.0, 0.0]
    for side, parts in enumerate((lambda c: order[c:], lambda c: order[:c])):
        steps = [int(np.ceil(Fraction(i, 10) * len(order))) for i in range(11)]
        areas[side] = float(np.trapezoid([relative(parts(c)) for c in steps], dx=0.1))
    assert posed.measure(relevance)["zero total"] == pytest.approx(100 * (areas[0] - areas[1]), abs=1e-8)


def test_the_decoders_own_tokens_stay_where_an_encoders_are_zeroed():
    model = talker("t5-lm")
    asked, prompt = pose(model, TEXTS[1])
    kept = np.ones((1, len(prompt.words)), dtype=bool)
    kept[0, 2] = False
    vectors = model.encoder.embed_tokens(torch.tensor([prompt.ids])).detach()
    vectors[0, prompt.words[2]] = 0
    with torch.no_grad():
        out = model(inputs_embeds=vectors, decoder_input_ids=torch.tensor([[0]]))
    slow = out.logits[0, -1].log_softmax(-1)[prompt.answer[0]]
    assert PerturbedAnswers(asked, prompt, prompt.words, None).of(kept)[0] == pytest.approx(float(slow), abs=1e-10)


RECORDS = {
    "known1000": [{"prompt": f"the capital of w{i} is", "subject": f"w{i}", "attribute": "Paris"} for i in range(40)],
    "ioi": [
        {"prompt": f"When W{i} and W{j} said it, W{i} said it to", "answer": f"W{j}"}
        for i in range(9)
        for j in range(9)
    ],
    "squad": [{"context": f"It was w{i}.", "question": f"w{q}?", "answer": "Paris"} for i in range(20) for q in (1, 2)],
    "imdb_prompts": [{"text": f"a good film w{i}", "answer": "Positive"} for i in range(20)],
}


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of datasets with prompts of our own."""
    (tmp_path / "llm").mkdir()
    for name, records in RECORDS.items():
        write_records(tmp_path, name, records)
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    return tmp_path


def write_records(directory: Path, name: str, records: list[dict[str, Any]]) -> None:
    with gzip.open(directory / "llm" / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def check_halves(name: str) -> None:
    kind = TOKEN_SETS[name]
    records = read_records(name)
    halves = {half: take_half(records, half, kind.entities) for half in HALVES}
    entities = {half: {e for record in found for e in kind.entities(record)} for half, found in halves.items()}
    assert entities["choose"]
    assert entities["report"]
    assert not entities["choose"] & entities["report"]
    assert read_token_cases(name, "choose") == read_token_cases(name, "choose")
    assert not {c.id for c in read_token_cases(name, "choose")} & {c.id for c in read_token_cases(name, "report")}


@pytest.mark.parametrize("name", TOKEN_SETS)
def test_halves_share_no_entity(name, made_up):
    check_halves(name)


@pytest.mark.parametrize("name", TOKEN_SETS)
def test_halves_of_the_published_prompts_share_no_entity(name):
    need_real_data("prompts of language models")
    check_halves(name)


def test_names_of_both_halves_are_in_neither(made_up):
    mixed = [r for r in RECORDS["ioi"] if len({half_of(name) for name in TOKEN_SETS["ioi"].entities(r)}) == 2]
    kept = {case.text for half in HALVES for case in read_token_cases("ioi", half)}
    assert mixed
    assert not kept & {record["prompt"] for record in mixed}


def test_entities_that_stand_together_get_one_name():
    found = join_entities([("b", "c"), ("d",), ("e", "f"), ("c", "a"), ("f", "g"), ("a", "h")])
    assert {name: found[name] for name in "abcdefgh"} == dict(zip("abcdefgh", "aaadeeea", strict=True))


def test_prompts_that_are_not_here_say_where_to_get_them(monkeypatch, tmp_path):
    monkeypatch.delenv(DATA_DIRECTORY, raising=False)
    with pytest.raises(DataError, match=r"HEADWATER_DATA is not set.*dual_path_attribution"):
        read_token_cases("known1000", "choose")
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    with pytest.raises(DataError, match=r"llm/known1000.jsonl.gz"):
        read_token_cases("known1000", "choose")


def test_a_protocol_is_a_value():
    assert SingleToken() == single_token
    assert str(SingleToken(most_tokens=100)) == "single-token 2(most_tokens=100)"
    assert SingleToken(most_tokens=100) != single_token
    assert single_token.to_dict()["fractions"][1] == "1/10"
    with pytest.raises(UnknownName, match="Did you mean 'single-token'"):
        resolve_language_protocol("single-tokens")
    assert set(LANGUAGE_PROTOCOLS) == {"single-token", "agreement", "needles", "hotpot"}


LOW = SingleToken(least_probability=0)


def own_prompts(path: Path, texts: tuple[str, ...] = TEXTS) -> Path:
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5-lm"])
def test_a_run_on_prompts_of_ones_own(name, tmp_path):
    said: list[str] = []
    prompts = own_prompts(tmp_path / "prompts.jsonl")
    found = measure_faithfulness(
        talker(name), speaker(), [LOW], prompts=prompts, methods=["random", LATER, "attnlrp", "a-mean"], say=said.append
    )
    left_out = name == "t5-lm"
    assert found.methods == ("random", LATER, "attnlrp") + (() if left_out else ("a-mean",))
    assert any("a-mean" in line for line in said) == left_out
    assert [column.column.name for column in found.columns] == ["zero total", "zero rho", "swap total", "swap rho"]
    assert all(column.prompts == 4 for column in found.columns)
    assert found.cost(LATER) == 0
    assert found.cost("attnlrp") > 1
    assert json.loads(json.dumps(found.to_dict()))["recommended"] in ("attnlrp", "a-mean")


def test_what_was_interrupted_goes_on_and_is_not_computed_again(tmp_path, monkeypatch):
    prompts, out = own_prompts(tmp_path / "prompts.jsonl"), tmp_path / "rows.jsonl"
    model, methods = talker("llama"), ["random", "attnlrp"]
    whole = measure_faithfulness(model, speaker(), [LOW], prompts=prompts, methods=methods)
    plain, calls = AnsweringModel.relevance, []

    def stops(self: AnsweringModel, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(self, *given)

    monkeypatch.setattr(AnsweringModel, "relevance", stops)
    with pytest.raises(KeyboardInterrupt):
        measure_faithfulness(model, speaker(), [LOW], prompts=prompts, methods=methods, out=out)
    assert len(out.read_text().splitlines()) == 4
    with out.open("a") as file:
        file.write('{"protocol": "single-to')
    again = measure_faithfulness(model, speaker(), [LOW], prompts=prompts, methods=methods, out=out)
    assert len(calls) == 4 + 5
    for one, other in zip(again.rows, whole.rows, strict=True):  # a run that is played differs by rounding
        assert one.values == pytest.approx(other.values, rel=1e-9)
    measure_faithfulness(model, speaker(), [LOW], prompts=prompts, methods=methods, out=out)
    assert len(calls) == 9
    with pytest.raises(UsageError, match="another study"):
        measure_faithfulness(model, speaker(), [LOW], prompts=prompts, methods=methods, out=out, seed=1)
    measure_faithfulness(model, speaker(), [LOW], prompts=own_prompts(prompts, TEXTS[:3]), methods=methods, out=out)
    assert len(calls) == 9 + 6  # other prompts to draw from are other data


def test_prompts_that_are_left_out_are_not_asked_again(tmp_path, monkeypatch):
    prompts, out = own_prompts(tmp_path / "prompts.jsonl"), tmp_path / "rows.jsonl"
    model, rule = talker("llama"), SingleToken(least_probability=0, least_tokens=6)
    found = measure_faithfulness(model, speaker(), [rule], prompts=prompts, methods=[LATER], out=out)
    assert len(found.rows) == 2
    posed: list[PromptCase] = []
    plain = SingleToken.pose
    monkeypatch.setattr(SingleToken, "pose", lambda self, m, case, c: posed.append(case) or plain(self, m, case, c))
    measure_faithfulness(model, speaker(), [rule], prompts=prompts, methods=[LATER], out=out)
    assert posed == []


def test_where_no_prompt_is_kept_it_is_an_error_that_says_why(tmp_path):
    prompts = own_prompts(tmp_path / "prompts.jsonl")
    with pytest.raises(DataError, match="none is kept"):
        measure_faithfulness(
            talker("llama"), speaker(), [SingleToken(least_tokens=50)], prompts=prompts, methods=[LATER]
        )


def test_the_usual_rows_are_there_and_unknown_ones_are_said():
    said: list[str] = []
    found = resolve_rows(None, said.append, talker("llama"))
    assert {"random", LATER, "a-mean", "gi", "integrated-gradients", "attnlrp", LANGUAGE_METHOD} <= set(found)
    assert resolve_rows(None, model=talker("t5-lm"))[-1] == ENCODER_DECODER_METHOD
    assert set(ROWS) - set(found) == {line.partition(" ")[0] for line in said}
    with pytest.raises(UnknownName):
        resolve_rows(["ifrr"], said.append)


def test_another_tool_is_a_row_by_its_entry_point(monkeypatch, tmp_path):
    """A stand-in that gives what `gi` gives for the contrast has the values of `gi`."""

    def stand_in(model: nn.Module, ids: Any, token: int, other: int | None) -> Tensor:
        vectors = model.get_input_embeddings()(torch.tensor([list(ids)])).detach().requires_grad_(True)
        (found,) = torch.autograd.grad(model(inputs_embeds=vectors).logits[0, -1, token], vectors)
        return (vectors * found).sum(-1)[0]

    plain = plugins.load_all
    added = lambda group: {"tool": stand_in} if group == plugins.PEERS else plain(group)  # noqa: E731
    monkeypatch.setattr(plugins, "load_all", added)
    prompts = own_prompts(tmp_path / "prompts.jsonl")
    found = measure_faithfulness(talker("llama"), speaker(), [LOW], prompts=prompts, methods=["gi", "tool"])
    rows = {(row.prompt, row.method): row.values for row in found.rows}
    assert all(rows[row.prompt, "gi"] == pytest.approx(row.values) for row in found.rows)


def test_lxt_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("headwater_experiments.bench.peers.find_spec", lambda name: None)
    with pytest.raises(NotApplicable, match="pip install --no-deps lxt"):
        explain_answer_by_lxt(talker("llama"), [1, 2], 3, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("no json", "line 1"), ('{"text": "a"}', "line 1"), ('{"prompt": ""}', "not empty"), ("", "no prompts")],
)
def test_prompts_that_cannot_be_read_are_refused(tmp_path, line, reason):
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    with pytest.raises(DataError, match=reason):
        measure_faithfulness(talker("llama"), speaker(), prompts=path)


def test_a_set_that_no_protocol_has_is_named(made_up):
    with pytest.raises(UnknownName, match="'known1001'"):
        measure_faithfulness(talker("llama"), speaker(), sets=["known1001"])


def made(values: dict[str, float], costs: dict[str, float] | None = None, prompts: int = 30) -> Faithfulness:
    """Results in which every method has its value, a little spread, the same for all methods, and its cost."""
    spread = np.random.default_rng(0).normal(size=prompts)
    names = [column.name for column in single_token.columns]
    rows = [
        FaithfulnessRow(
            str(single_token),
            "known1000",
            "d",
            str(i),
            method,
            9,
            dict.fromkeys(names, value + noise),
            (costs or {}).get(method, 2.0),
            1.0,
        )
        for method, value in values.items()
        for i, noise in enumerate(spread + 0.01 * np.random.default_rng(len(method)).normal(size=prompts))
    ]
    return Faithfulness(tuple(rows), (single_token,), {"half": "choose"}, {"model": "made-up"})


def test_the_sentence_names_the_method_and_how_sure_it_is():
    found = made({"random": 0, LATER: 5, "attnlrp": 3, "lrp-query": 6})
    assert found.sentence == (
        "Use lrp-query (2.0 forward passes): first or level with the first in 4 of 4 columns; above attnlrp in 4 with "
        "the interval away from zero, below in none; above later-words in 4, below in none (30 prompts per set)."
    )


@pytest.mark.parametrize(
    ("measured", "beside"), [((LATER, "attnlrp", "gi"), ["attnlrp", LATER]), (("gi", "ifr"), ["gi", "ifr"])]
)
def test_differences_are_to_the_references_and_to_all_others_where_there_is_none(measured, beside):
    found = made({**dict.fromkeys(measured, 1), "lrp-query": 6})
    *_, table = faithfulness_tables(found)
    assert list(table.columns[1:]) == [f"minus {other}" for other in beside]
    assert all(cell.startswith("+5.") for row in table.rows for cell in row[1:])


def test_what_is_no_explanation_is_not_recommended_and_few_prompts_are_said():
    found = made({LATER: 9, "attnlrp": 3, "gi": 1}, prompts=5)
    assert found.sentence == (
        "Use attnlrp (2.0 forward passes): first or level with the first in 0 of 4 columns; above later-words in none "
        "with the interval away from zero, below in 4 (5 prompts per set, too few to be sure)."
    )


def test_what_chance_is_above_is_not_recommended():
    found = made({"random": 9, "gi": 3}, prompts=5)
    assert found.recommended is None
    assert found.best == "gi"
    assert found.sentence == (
        "None can be recommended: gi is the best of these explanations, and it is below random in 4 of 4 columns, "
        "above in none (5 prompts per set, too few to be sure)."
    )
    assert made({"random": 3, "gi": 9}).recommended == "gi"


def test_one_method_alone_is_minus_nothing():
    assert len(faithfulness_tables(made({"gi": 3}))) == 1


def test_prompts_of_your_own_have_no_sets_and_no_halves(tmp_path):
    own = tmp_path / "mine.jsonl"
    own.write_text('{"prompt": "the capital of france is"}')
    for ignored in ({"sets": ["ioi"]}, {"half": "report"}):
        with pytest.raises(UsageError, match="leave out sets="):
            measure_faithfulness(talker("llama"), speaker(), [LOW], prompts=own, methods=["random"], **ignored)


def test_a_dear_method_is_named_beside_the_one_to_use():
    found = made({"attnlrp": 3, "lrp-query": 6, "contextcite(32)": 9}, {"contextcite(32)": 33.0})
    assert found.recommended == "lrp-query"
    assert "; contextcite(32) leads in 4 at 33 forward passes (30" in found.sentence


@pytest.mark.parametrize("name", ["leave-one-out", "leave-one-out(zero)"])
def test_leave_one_out_is_not_ranked_where_it_is_the_measure(name):
    found = made({name: 9, "attnlrp": 3, "lrp-query": 6})
    leaders = {column.column.name: column.leaders for column in found.columns}
    assert leaders["zero total"] == (name,)
    assert leaders["zero rho"] == ("lrp-query",)


def test_equal_methods_lead_together():
    found = made({"attnlrp": 3.0, "lrp-query": 3.0, "gi": 1.0})
    assert set(found.columns[0].leaders) == {"attnlrp", "lrp-query"}
    assert found.columns[0].difference("lrp-query", "gi").low > 0


def test_the_picture_joins_the_most_faithful_at_each_cost():
    costs = {"gi": 2.0, "attnlrp": 3.0, "lrp-query": 5.0, "ifr": 4.0, "random": 1.0}
    found = made({"gi": 4, "attnlrp": 8, "lrp-query": 9, "ifr": 5, LATER: 6, "random": 1}, {**costs, LATER: 0.0})
    points = cost_points(found)
    assert [point.method for point in frontier(points)] == [LATER, "attnlrp", "lrp-query"]
    assert next(point.cost for point in points if point.method == "random") == 0
    drawn = draw_costs(found)
    assert drawn.startswith("<svg")
    assert all(f">{method}</text>" in drawn for method in costs)


def test_ranks_count_from_one_and_ties_share():
    values = np.array([3.0, 1.0, 3.0, 0.0])
    assert [rank_of(values, i) for i in range(4)] == [1.5, 3.0, 1.5, 4.0]


PAIRS = [
    {
        "clean_prefix": "The w1 in London",
        "patch_prefix": "The w2 in London",
        "clean_answer": " is",
        "patch_answer": " was",
    },
    {
        "clean_prefix": "The w3 in Paris",
        "patch_prefix": "The w4 in Paris",
        "clean_answer": " is",
        "patch_answer": " was",
    },
    {"clean_prefix": "The w5 in w1", "patch_prefix": "The w6 in w1", "clean_answer": " is", "patch_answer": " was"},
]


def number(one: list[int], other: list[int]) -> nn.Module:
    """Says "is" after the words of one number, and "was" after those of the other."""
    return Additive({**dict.fromkeys(one, 1.0), **dict.fromkeys(other, -1.0)}, tokens("is")[0])


def test_the_subject_is_found_and_ranked(made_up):
    write_records(made_up, "agreement_nounpp", PAIRS)
    one, other = ([tokens(f"w{i}")[0] for i in numbers] for numbers in ((1, 3, 5), (2, 4, 6)))
    asked = AnsweringModel(number(one, other), speaker())
    rule = Agreement()
    found = [rule.read("agreement_nounpp", half, speaker()) for half in HALVES]
    case = next(case for cases in found for case in cases.cases if case.text == PAIRS[0]["clean_prefix"])
    posed = rule.pose(asked, case, found[0])
    assert posed.prompt.answer == (tokens("is")[0],)
    assert posed.prompt.other == tokens("was")[0]
    assert posed.measure(np.array([9.0, 5.0, 1.0, 0.0])) == {"rank": 1.0, "first": 1.0}
    assert posed.measure(np.arange(4.0)) == {"rank": 3.0, "first": 0.0}
    wrong = AnsweringModel(number(other, one), speaker())
    assert rule.pose(wrong, case, found[0]) is None


def test_agreement_halves_share_no_noun(made_up):
    """w1 is the subject of one pair and stands in the third: these two are never in different halves."""
    write_records(made_up, "agreement_nounpp", PAIRS)
    texts = {half: {c.text for c in Agreement().read("agreement_nounpp", half, speaker()).cases} for half in HALVES}
    for first, second in ((0, 2), (2, 0)):
        for half, other in (HALVES, HALVES[::-1]):
            assert not (PAIRS[first]["clean_prefix"] in texts[half] and PAIRS[second]["clean_prefix"] in texts[other])


def test_a_response_falls_from_one_to_nothing():
    scores = np.array([0.0, -1.0, -0.5, -4.0, -2.0])
    assert falling_response(scores).tolist() == [1.0, 0.5, 0.5, 0.0, 0.0]


def test_aligned_magnitude_by_hand():
    """The response is 1, .5, 0; relevance left 1, .25, 0: corrected 1, .75, 0."""
    response = np.array([1.0, 0.5, 0.0])
    kept = np.array([[True, True], [False, True], [False, False]])
    left = relevance_left(np.array([3.0, 1.0]), kept)
    assert left.tolist() == [1.0, 0.25, 0.0]
    assert align_magnitude(response, left).tolist() == [1.0, 0.75, 0.0]
    assert align_magnitude(response, response).tolist() == [1.0, 0.5, 0.0]
    assert relevance_left(np.array([-3.0, -1.0]), kept).tolist() == [1.0, 0.5, 0.0]


def test_sentences_are_parted_where_a_paragraph_follows_a_full_stop_at_once():
    assert split_sentences("One is.\n Two was.Three said 1.5 of U.S.A it!") == [
        "One is.",
        "Two was.",
        "Three said 1.5 of U.S.A it!",
    ]


def hidden_needle(directory: Path) -> tuple[Any, Any]:
    write_records(directory, "essays", [{"title": f"e{i}", "text": "she said it was. " * 30} for i in range(6)])
    needles = [{"question": f"w{i}?", "needles": ["The capital is Paris."], "gt_answers": ["Paris"]} for i in range(8)]
    write_records(directory, "needles_srt", needles)
    rule = Needles(most_tokens=60, least_probability=0)
    return rule, rule.read("needles_srt", "choose", speaker())


def test_a_needle_is_found_by_the_truth_and_missed_by_its_opposite(made_up):
    rule, cases = hidden_needle(made_up)
    case = cases.cases[0]
    assert case.text[slice(*case.needles[0])] == "The capital is Paris."
    assert case.text.endswith("?\nAnswer: The capital is")
    asked = AnsweringModel(Additive(worth(Paris=6.0), PARIS), speaker())
    posed = rule.pose(asked, case, cases)
    assert len(posed.prompt.ids) <= 60
    gold = posed.words[posed.gold]
    truth = np.zeros(len(posed.prompt.ids))
    truth[gold] = 1.0
    best, worst = posed.measure(truth), posed.measure(-truth)
    assert best["recovery"] == pytest.approx(min(1, np.ceil(len(posed.words) / 10) / len(gold)))
    assert worst["recovery"] == 0
    assert best["rise"] < 0.2 < 0.8 < worst["rise"]
    assert best["mas"] < worst["mas"]


def test_an_answer_that_does_not_hang_on_the_essay_is_left_out(made_up):
    rule, cases = hidden_needle(made_up)
    assert rule.pose(AnsweringModel(Additive(worth(Paris=-6.0), PARIS), speaker()), cases.cases[0], cases) is None


ARTICLES = {
    "question": "w1?",
    "answer": "Paris",
    "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 1]},
    "context": {
        "title": ["A", "B", "w20"],
        "sentences": [["w10 it.", " w11 it."], ["w12 it.", " w13 it."], ["w14 it.", " w15 it."]],
    },
}
WORTH = worth(w10=4.0, w11=0.5, w12=0.25, w13=3.0, w14=0.1, w15=0.0)


@pytest.fixture
def evidence(made_up: Path) -> Any:
    write_records(made_up, "hotpot", [ARTICLES])
    rule = Hotpot(least_probability=0)
    cases = rule.read("hotpot", half_of("A"), speaker())
    return rule.pose(AnsweringModel(Additive(WORTH, PARIS), speaker()), cases.cases[0], cases)


def per_sentence(posed: Any, values: list[float]) -> np.ndarray:
    relevance = np.zeros(len(posed.prompt.ids))
    for places, value in zip(posed.places, values, strict=True):
        relevance[places[-1]] = value
    return relevance


def test_evidence_by_hand(evidence):
    total = sum(WORTH.values())
    truth = [4.0, 0.5, 0.25, 3.0, 0.1, 0.0]
    found = evidence.measure(per_sentence(evidence, truth))
    assert found["lds"] == pytest.approx(1)
    for k, gone in ((1, 4.0), (3, 7.5), (5, 7.85)):
        assert found[f"drop {k}"] == pytest.approx(np.log(likelihood(total) / likelihood(total - gone)))
    assert [found[f"evidence {k}"] for k in (1, 3, 5)] == [1, 1, 1]
    wrong = evidence.measure(per_sentence(evidence, [-value for value in truth]))
    assert wrong["lds"] == pytest.approx(-1)
    assert [wrong[f"evidence {k}"] for k in (1, 3, 5)] == [0, 0, 0.5]
    assert wrong["drop 3"] < found["drop 3"]


def test_other_articles_are_there_as_long_as_there_is_room(made_up, evidence):
    """Two articles of two sentences are too few to take five sentences out."""
    assert "w20: w14 it." in evidence.prompt.text
    rule = Hotpot(most_tokens=len(evidence.prompt.ids) - 1, top=(1, 3))
    (short,) = rule.read("hotpot", half_of("A"), speaker()).cases
    assert "w20" not in short.text
    assert "w13 it." in short.text
    assert Hotpot(most_tokens=8).read("hotpot", half_of("A"), speaker()).cases == []


def test_the_mean_of_attention_is_that_of_the_answering_row():
    model, ids = talker("llama"), torch.tensor([tokens(TEXTS[1])])
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            maps = model(ids, output_attentions=True).attentions
    finally:
        model.set_attn_implementation("sdpa")
    slow = torch.stack(maps).mean((0, 1, 2))[-1]
    found = hw.explain_generation(model, TEXTS[1], tokenizer=speaker(), answer=[7], method="a-mean", sinks="show")
    assert found.relevance[0, :-1].tolist() == pytest.approx(slow.tolist(), abs=1e-6)


def run_command(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    loaded = lambda *_, **__: (talker("llama"), speaker())  # noqa: E731
    monkeypatch.setattr("headwater.cli.faithfulness.load_chosen_model", loaded)
    return CliRunner().invoke(app, ["faithfulness", *words])


def test_the_command_ends_in_one_sentence_and_draws(made_up, monkeypatch, tmp_path):
    monkeypatch.setattr("headwater.evaluation.language.catalogue.LANGUAGE_PROTOCOLS", {"single-token": LOW})
    picture, methods = tmp_path / "cost.svg", "random,later-words,attnlrp"
    common = ("--data", "known1000,ioi", "--methods", methods, "--count", "3")
    found = run_command(monkeypatch, *common, "--picture", str(picture))
    assert found.exit_code == 0, found.output
    assert "known1000, 3 prompts" in found.stdout
    assert found.stdout.rstrip().splitlines()[-1].startswith("Use attnlrp (")
    assert picture.read_text().startswith("<svg")
    as_json = json.loads(run_command(monkeypatch, *common, "--json").stdout)
    assert len(as_json["columns"]) == 8
    assert as_json["sentence"].startswith("Use attnlrp (")
    assert run_command(monkeypatch, *common, "--picture", "cost.png").exit_code == 2


def test_what_was_kept_is_read_again_without_the_model(made_up, monkeypatch, tmp_path):
    out, packed, picture = (tmp_path / name for name in ("rows.jsonl", "rows.jsonl.gz", "cost.svg"))
    sets, methods = ["known1000", "ioi"], ["random", LATER, "attnlrp"]
    model = talker("llama")
    measured = measure_faithfulness(model, speaker(), [LOW], sets=sets, methods=methods, count=3, out=out)
    packed.write_bytes(gzip.compress(out.read_bytes()))
    monkeypatch.setattr("headwater.cli.faithfulness.load_chosen_model", None)
    found = CliRunner().invoke(app, ["faithfulness", "--read", str(packed), "--picture", str(picture), "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["sentence"] == measured.sentence
    assert [row.values for row in read_faithfulness(out).rows] == [row.values for row in measured.rows]
    assert picture.read_text() == draw_costs(measured)
    few = read_faithfulness(out, sets=["ioi"], methods=[LATER], count=2)
    assert [(c.data, c.prompts, list(c.values)) for c in few.columns] == [("ioi", 2, [LATER])] * 4
    with pytest.raises(UsageError, match="unpack it first"):
        measure_faithfulness(model, speaker(), [LOW], sets=sets, methods=methods, count=3, out=packed)
    assert CliRunner().invoke(app, ["faithfulness", "--read", str(out), "--out", str(out)]).exit_code == 2
    told = CliRunner().invoke(app, ["faithfulness", "--read", str(out), "--half", "report", "--dtype", "float32"])
    assert told.exit_code == 2
    assert "leave out --half, --dtype" in told.stderr


def test_reading_leaves_out_prompts_that_lack_a_method_and_rows_of_another_version(made_up, tmp_path):
    out = tmp_path / "rows.jsonl"
    measure_faithfulness(talker("llama"), speaker(), [LOW], sets=["ioi"], methods=[LATER, "random"], count=3, out=out)
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:-1]))  # interrupted before the last row
    assert [column.prompts for column in read_faithfulness(out).columns] == [2] * 4
    assert [column.prompts for column in read_faithfulness(out, methods=[LATER]).columns] == [3] * 4
    with pytest.raises(UnknownName, match=r"no row in .*Known: 'later-words', 'random'"):
        read_faithfulness(out, methods=["gi"])
    with pytest.raises(UnknownName, match=r"no set of prompts in .*Known: 'ioi'"):
        read_faithfulness(out, sets=["known1000"])
    out.write_text(out.read_text().replace("single-token 2", "single-token 1"))
    with pytest.raises(DataError, match="single-token 2 now"):
        read_faithfulness(out)
    out.write_text("{}")
    with pytest.raises(DataError, match="--out"):
        read_faithfulness(out)


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_says_how_to_go_on(made_up, monkeypatch, tmp_path, kept):
    def stops(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.evaluation.language.study.measure_faithfulness", stops)
    found = run_command(monkeypatch, *(("--out", str(tmp_path / "rows.jsonl")) if kept else ()))
    assert found.exit_code == 130
    assert ("rows.jsonl, and the same command goes on" in found.stderr) == kept
    assert ("nothing was kept: with --out" in found.stderr) != kept


def test_a_classifier_is_told_what_measures_it():
    found = CliRunner().invoke(app, ["faithfulness", "-m", bundled.NAME, "--quick"])
    assert found.exit_code == 2
    assert f"headwater evaluate --model {bundled.NAME}" in found.stderr


def test_an_encoder_decoder_needs_no_task(made_up, monkeypatch, tmp_path):
    talker("t5-lm").save_pretrained(tmp_path / "model")
    speaker().save_pretrained(tmp_path / "model")
    prompts = str(own_prompts(tmp_path / "prompts.jsonl"))
    monkeypatch.setattr("headwater.evaluation.language.catalogue.LANGUAGE_PROTOCOLS", {"single-token": LOW})
    words = ["faithfulness", "-m", str(tmp_path / "model"), "--prompts", prompts, "--methods", f"{LATER},attnlrp"]
    found = CliRunner().invoke(app, [*words, "--count", "2"])
    assert found.exit_code == 0, found.output
    assert "Use attnlrp" in found.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_real_run_on_four_prompts():
    need_real_data("prompts of language models")
    model, tokenizer = smollm2()
    methods = [LATER, "attnlrp", LANGUAGE_METHOD]
    found = measure_faithfulness(model, tokenizer, sets=["known1000"], methods=methods, count=4)
    assert [column.prompts for column in found.columns] == [4] * 4
    assert 1 < found.cost("attnlrp") < 30
    assert found.sentence.startswith("Use ")
    by_prompt = {row.prompt for row in found.rows}
    asked = AnsweringModel(model, tokenizer)
    for case in read_token_cases("known1000", "choose"):
        if case.id in by_prompt:
            prompt = asked.pose(case.text, case.answer)
            assert np.exp(asked.log_probabilities([prompt.ids], prompt.answer)[0, 0]) > 0.1


def test_a_row_may_name_its_score():
    assert split_score("attnlrp@advantage") == ("attnlrp", "advantage")
    assert split_score("attnlrp") == ("attnlrp", "logit")
    for default in (LANGUAGE_METHOD, ENCODER_DECODER_METHOD, "lrp-halves"):
        assert split_score(default) == (default, LANGUAGE_OUTPUT)
    assert resolve_row("leave-one-out@logprob") == "leave-one-out@logprob"
    with pytest.raises(UnknownName, match="Did you mean 'advantage'"):
        resolve_row("attnlrp@advantege")
    assert base_name("leave-one-out(zero)@logprob") == "leave-one-out"


def test_in_the_picture_no_name_hides_another_or_a_point():
    points = [CostPoint(f"method-{n}", 3.0 + n / 50, 50.0 + n / 10) for n in range(8)]
    frame = ChartFrame((0.0, 3.0), (0.0, 100.0), 720, 420)
    drawn = "".join(draw_methods(frame, points, points[:2]))
    boxes = [
        (float(x), float(y) - 4, LETTER * 8)
        for x, y in re.findall(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"', drawn)
    ]
    dots = [(x - DOT, y, 2 * DOT) for x, y in (place(frame, point) for point in points)]
    assert len(boxes) == 8
    for number, box in enumerate(boxes):
        assert not hides([*boxes[:number], *boxes[number + 1 :], *dots], box)


def test_a_name_that_is_longer_than_the_picture_still_has_a_place():
    frame = ChartFrame((0.0, 3.0), (0.0, 100.0), 720, 420)
    point = CostPoint(
        "lrp(ah=shares(q=0.3,k=0.2,v=0.5,offset=values)+ln+act+gate=half+output=0.02)@advantage", 3.4, 50.0
    )
    assert "offset=values" in "".join(draw_methods(frame, [point], [point]))
