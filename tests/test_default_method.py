"""One default by kind of model, whoever asks: functions, sessions, jobs, the command line, the explorer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")

import torch
import transformers as tf
from browsing import make_state
from fastapi.testclient import TestClient
from jobs_here import here, write
from speaker import speaker, talker
from tiny import GROUPED, SMALL, arguments, randomised, tiny, tokenizer
from typer.testing import CliRunner

import headwater as hw
from headwater import defaults
from headwater.cli import app
from headwater.defaults import (
    DEFAULT_METHOD,
    ENCODER_DECODER_METHOD,
    GRAPH_METHOD,
    LANGUAGE_METHOD,
    METHOD_BY_KIND,
    TEXT_METHOD,
)
from headwater.engine import kind
from headwater.engine.kind import default_method
from headwater.errors import HiddenOperation, UnknownName, UsageError
from headwater.evaluation.stored import check_run
from headwater.models.graphormer import GraphormerForGraphClassification
from headwater.results.ledger import SINK
from headwater.web.app import create_app
from headwater.web.models import LazyModel, Loaded
from headwater.web.state import AppState

PROMPT = "the capital of France is"
TEXTS = [PROMPT, "Paris is", "she said it was a good film in London"]
LANGUAGE = {
    "llama": LANGUAGE_METHOD,
    "gpt2": LANGUAGE_METHOD,
    "t5-lm": ENCODER_DECODER_METHOD,
    "bart-lm": ENCODER_DECODER_METHOD,
}
approx = pytest.approx


def masked() -> torch.nn.Module:
    return randomised(tf.BertForMaskedLM(tf.BertConfig(**SMALL)).double())


def decoder_classifier() -> torch.nn.Module:
    return randomised(tf.LlamaForSequenceClassification(tf.LlamaConfig(**GROUPED, pad_token_id=0)).double())


OTHERS = {
    "masked": masked,
    "decoder classifier": decoder_classifier,
    "classifier": lambda: tiny("bert"),
    "encoder-decoder classifier": lambda: tiny("t5"),
    "vision": lambda: tiny("vit"),
    "bare module": lambda: tiny("torch-encoder"),
}


def explained(name: str, data: object = PROMPT, **options: object):
    return hw.explain(talker(name), data, tokenizer=speaker(), **options)


# which model is which


@pytest.mark.parametrize(("name", "method"), LANGUAGE.items())
def test_a_model_that_predicts_a_next_token_is_a_language_model(name, method):
    assert default_method(talker(name)) == method == explained(name).method


def offset_of(e: hw.Explanation) -> float:
    return sum(abs(v) for k, v in e.ledger.constants.items() if "offset" in k)


def test_halves_are_attnlrp_with_a_ledger_that_closes():
    e = explained("t5-lm", method="lrp-halves", sinks="show")
    other = explained("t5-lm", method="attnlrp", sinks="show")
    torch.testing.assert_close(e.relevance, other.relevance, rtol=0, atol=1e-12)
    assert e.ledger.error < 1e-9 < 1e-3 < other.ledger.error
    assert offset_of(e) > 1e-3


@pytest.mark.parametrize("name", ["t5-lm", "bart-lm"])
def test_the_default_of_encoder_decoders_leaves_no_offset(name):
    e = explained(name, sinks="show")
    assert e.method == ENCODER_DECODER_METHOD
    assert e.ledger.error < 1e-9
    assert offset_of(e) == 0 < 1e-3 < offset_of(explained(name, method="lrp-halves", sinks="show"))


@pytest.mark.parametrize(
    ("name", "method"),
    {
        "masked": TEXT_METHOD,
        "decoder classifier": TEXT_METHOD,
        "classifier": TEXT_METHOD,
        "encoder-decoder classifier": TEXT_METHOD,
        "vision": DEFAULT_METHOD,
        "bare module": DEFAULT_METHOD,
    }.items(),
)
def test_other_models_of_texts_have_their_own(name, method):
    assert default_method(OTHERS[name]()) == method


def test_models_of_graphs_have_their_own():
    assert default_method(GraphormerForGraphClassification) == GRAPH_METHOD


class Detaching(tf.BertForSequenceClassification):
    """A classifier that cuts a part of its input off: differences from a reference refuse it."""

    def forward(self, input_ids=None, **options):
        found = super().forward(input_ids, **options)
        found.logits = found.logits + found.logits.detach().square()
        return found


def test_a_model_that_its_kinds_default_refuses_has_that_of_all():
    model, ids = randomised(Detaching(tf.BertConfig(**SMALL)).double()), arguments("bert")
    with pytest.raises(HiddenOperation):
        hw.explain(model, ids, method=TEXT_METHOD)
    e = hw.explain(model, ids)[0]
    assert e.method == DEFAULT_METHOD
    assert e.ledger == hw.explain(model, ids, method=DEFAULT_METHOD)[0].ledger


@pytest.mark.parametrize("options", [{"inside": "heads"}, {"keep": "disk"}, {"memory_limit": "2GiB"}])
def test_what_differences_do_not_allow_has_the_default_of_all(options):
    given = {"tokenizer": tokenizer()}
    assert hw.explain(tiny("bert"), "a good film", **given).method == TEXT_METHOD
    e = hw.explain(tiny("bert"), "a good film", **given, **options)
    assert e.method == DEFAULT_METHOD
    assert e.ledger.closed


def test_the_defaults_are_a_line_each(monkeypatch):
    monkeypatch.setattr(defaults, "DEFAULT_METHOD", "gi")
    monkeypatch.setattr(defaults, "TEXT_METHOD", "lrp-gamma")
    monkeypatch.setattr(defaults, "LANGUAGE_METHOD", "lrp-query")
    monkeypatch.setattr(defaults, "ENCODER_DECODER_METHOD", "lrp")
    assert hw.explain(tiny("vit"), arguments("vit"))[0].method == "gi"
    assert hw.explain(tiny("bert"), "a good film", tokenizer=tokenizer()).method == "lrp-gamma"
    for name, method in (("gpt2", "lrp-query"), ("t5-lm", "lrp")):
        e = explained(name)
        assert e.method == method
        assert SINK in e.ledger.constants


# explain and explain_generation agree


@pytest.mark.parametrize("name", LANGUAGE)
def test_explain_says_of_the_next_token_what_explain_generation_says(name):
    e = explained(name)
    g = hw.explain_generation(talker(name), PROMPT, tokenizer=speaker(), max_new_tokens=1)
    torch.testing.assert_close(e.relevance, g.relevance[0, : g.prompt], rtol=0, atol=1e-12)
    assert e.method == g.method
    assert dict(e.ledger.constants) == approx(dict(g.ledgers[0].constants), abs=1e-12)
    assert e.ledger.inputs == approx(float(e.relevance.sum()), abs=1e-12)
    assert e.ledger.closed
    assert g.ledgers[0].closed


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_sink_is_a_line_of_the_ledger(name):
    aside, shown = explained(name), explained(name, sinks="show")
    place = 0 if "target" not in aside.segments else aside.segments.index("target")
    assert float(aside.relevance[place]) == 0
    assert float(shown.relevance[place]) != 0
    assert aside.ledger.constants[SINK] == approx(float(shown.relevance[place]), abs=1e-12)
    assert SINK not in shown.ledger.constants
    others = [i for i in range(len(aside.relevance)) if i != place]
    assert torch.equal(aside.relevance[others], shown.relevance[others])
    assert aside.ledger.unaccounted == approx(shown.ledger.unaccounted, abs=1e-12)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_every_text_of_a_batch_has_its_own_sink(name):
    for text, e in zip(TEXTS, explained(name, TEXTS), strict=True):
        g = hw.explain_generation(talker(name), text, tokenizer=speaker(), max_new_tokens=1)
        torch.testing.assert_close(e.relevance, g.relevance[0, : g.prompt], rtol=0, atol=1e-6)
        assert e.ledger.constants[SINK] == approx(g.ledgers[0].constants[SINK], abs=1e-6)
        assert e.ledger.closed


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_sink(side):
    """Llama's positions are relative, so that padding on the left changes nothing."""
    reader = speaker()
    before, reader.padding_side = reader.padding_side, side
    try:
        fields = reader(TEXTS, return_tensors="pt", padding=True)
    finally:
        reader.padding_side = before
    fields = {name: fields[name] for name in ("input_ids", "attention_mask")}
    for text, e in zip(TEXTS, explained("llama", fields), strict=True):
        alone = explained("llama", text)
        assert e.tokens == alone.tokens
        assert float(e.relevance[0]) == 0
        torch.testing.assert_close(e.relevance, alone.relevance, rtol=0, atol=1e-5)
        assert e.ledger.constants[SINK] == approx(alone.ledger.constants[SINK], abs=1e-5)


# what was named stays as it was


@pytest.mark.parametrize("method", ["lrp", "gi", "attnlrp", "rollout"])
def test_a_method_that_is_named_shows_its_first_token(method):
    e = explained("llama", method=method)
    assert e.method == method
    assert SINK not in e.ledger.constants
    assert torch.equal(e.relevance, explained("llama", method=method, sinks="show").relevance)
    aside = explained("llama", method=method, sinks="aside")
    assert torch.equal(aside.relevance[1:], e.relevance[1:])
    assert aside.ledger.constants[SINK] == approx(float(e.relevance[0]))


def test_the_default_by_its_name_is_the_default():
    e = explained("llama")
    assert torch.equal(e.relevance, explained("llama", method=e.method).relevance)


def test_a_classifier_shows_its_first_token():
    e = hw.explain(tiny("bert"), "a good film", tokenizer=tokenizer())
    named = hw.explain(tiny("bert"), "a good film", tokenizer=tokenizer(), method=TEXT_METHOD, sinks="show")
    assert e.method == TEXT_METHOD
    assert torch.equal(e.relevance, named.relevance)
    assert e.ledger == named.ledger
    assert SINK not in e.ledger.constants
    on_decoder = hw.explain(decoder_classifier(), arguments("llama"))[0]
    assert SINK not in on_decoder.ledger.constants


def test_a_classifier_may_put_its_first_token_aside():
    e = hw.explain(decoder_classifier(), arguments("llama"), sinks="aside")[0]
    assert float(e.relevance[0]) == 0
    assert e.ledger.constants[SINK] != 0
    assert e.ledger.closed


def test_a_decoders_start_that_has_a_line_has_no_second_one():
    e = hw.explain(tiny("t5"), arguments("t5"), sinks="aside")[0]
    assert "decoder start token" in e.ledger.constants
    assert SINK not in e.ledger.constants


def test_only_tokens_can_be_put_aside():
    with pytest.raises(UsageError, match="first token of a text"):
        hw.explain(tiny("vit"), arguments("vit"), sinks="aside")
    with pytest.raises(UnknownName, match="Did you mean 'aside'"):
        explained("gpt2", sinks="asid")


# every function


def test_every_function_takes_the_same_default():
    model, options = talker("llama"), {"tokenizer": speaker()}
    c = hw.compare(model, PROMPT, **options)
    assert [name for name in (e.method for e in c.explanations) if name in ("lrp", LANGUAGE_METHOD)] == [
        "lrp",
        LANGUAGE_METHOD,
    ]
    assert torch.equal(c[LANGUAGE_METHOD].relevance, explained("llama").relevance)
    aside = hw.compare(model, PROMPT, methods=["lrp", LANGUAGE_METHOD], sinks="aside", **options)
    assert all(SINK in e.ledger.constants for e in aside.explanations)
    a = hw.audit(model, PROMPT, **options)
    assert a.explanation.method == LANGUAGE_METHOD
    torch.testing.assert_close(a.explanation.relevance, explained("llama").relevance, rtol=0, atol=1e-6)
    by_name = hw.estimate(model, PROMPT, method=LANGUAGE_METHOD, **options)
    assert hw.estimate(model, PROMPT, **options).kept == by_name.kept
    assert hw.explain(model, PROMPT, memory_limit="1GiB", **options).method == LANGUAGE_METHOD


def test_a_comparison_of_a_classifier_is_the_papers():
    c = hw.compare(tiny("bert"), "a good film", tokenizer=tokenizer())
    names = [e.method for e in c.explanations]
    assert LANGUAGE_METHOD not in names
    assert names.count(DEFAULT_METHOD) == names.count(TEXT_METHOD) == 1


def test_an_audit_is_of_what_explain_gives():
    assert hw.audit(tiny("bert"), "a good film", tokenizer=tokenizer()).explanation.method == DEFAULT_METHOD


def test_a_session_has_the_default_of_its_model():
    with hw.session(talker("llama"), tokenizer=speaker()) as s:
        assert s.explain(PROMPT).method == s.generate(PROMPT, max_new_tokens=1).method == LANGUAGE_METHOD
    with hw.session(talker("llama"), tokenizer=speaker(), method="gi") as s:
        assert s.explain(PROMPT).method == s.explain(PROMPT, method=None).method == "gi"
        assert s.explain(PROMPT, method="lrp").method == "lrp"


# jobs


@pytest.fixture
def data(tmp_path) -> Path:
    return write(tmp_path / "in.parquet", text=TEXTS)


def run(data: Path, out: Path, **options: object):
    return hw.run(talker("llama"), data, out, tokenizer=speaker(), progress=False, **options)


def test_a_run_names_what_it_took_and_goes_on_with_it(data, tmp_path, monkeypatch):
    engine = here(monkeypatch)
    stored = run(data, tmp_path / "out")
    asked = stored.manifest.asked
    assert (asked["method"], asked["sinks"]) == (LANGUAGE_METHOD, "aside")
    for text, e in zip(TEXTS, stored.explanations(), strict=True):
        alone = explained("llama", text)
        assert e.method == LANGUAGE_METHOD
        torch.testing.assert_close(e.relevance, alone.relevance, rtol=0, atol=1e-5)
        assert e.ledger.constants[SINK] == approx(alone.ledger.constants[SINK], abs=1e-5)
        assert e.ledger.closed
    done = len(engine.chunks)
    assert run(data, tmp_path / "out").manifest.job == stored.manifest.job
    assert run(data, tmp_path / "out", method=LANGUAGE_METHOD).manifest.job == stored.manifest.job
    assert len(engine.chunks) == done
    with pytest.raises(UsageError, match="sinks was aside, is show"):
        run(data, tmp_path / "out", sinks="show")


def test_a_run_of_a_classifier_names_what_it_took(tmp_path, monkeypatch):
    here(monkeypatch)
    given = write(tmp_path / "in.parquet", text=["a good film"])
    stored = hw.run(tiny("bert"), given, tmp_path / "out", tokenizer=tokenizer(), progress=False)
    assert stored.manifest.asked["method"] == TEXT_METHOD
    assert "sinks" not in stored.manifest.asked


def test_an_evaluation_takes_no_run_with_sinks_aside(data, tmp_path, monkeypatch):
    here(monkeypatch)
    stored = run(data, tmp_path / "out", output="logit")
    with pytest.raises(UsageError, match="put aside"):
        check_run(stored, [LANGUAGE_METHOD], stored.manifest.asked["dtype"], 0)


# the command line


@pytest.fixture
def directory(tmp_path) -> str:
    talker("llama").save_pretrained(tmp_path / "model")
    speaker().save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def answer(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_line_takes_the_same(directory):
    asked = (PROMPT, "-m", directory, "--dtype", "float64", "--json")
    found, alone = json.loads(answer("explain", *asked)), explained("llama")
    assert found["method"] == LANGUAGE_METHOD
    assert found["relevance"] == approx(alone.relevance.tolist(), abs=1e-6)
    assert found["ledger"]["constants"][SINK] == approx(alone.ledger.constants[SINK], abs=1e-6)
    shown = json.loads(answer("explain", *asked, "--sinks", "show"))
    assert shown["relevance"][0] == approx(alone.ledger.constants[SINK], abs=1e-6)
    named = json.loads(answer("explain", *asked, "--method", "lrp"))
    assert (named["method"], SINK in named["ledger"]["constants"]) == ("lrp", False)
    assert json.loads(answer("audit", *asked))["explanation"]["method"] == LANGUAGE_METHOD
    generated = json.loads(answer("generate", *asked, "--max-new-tokens", "1"))
    assert generated["method"] == LANGUAGE_METHOD
    assert generated["relevance"][0][: len(alone.tokens)] == approx(found["relevance"], abs=1e-6)
    text = answer("explain", PROMPT, "-m", directory, "--plain")
    assert f"method: {LANGUAGE_METHOD}" in text
    assert SINK in text


@pytest.mark.parametrize("command", ["explain", "audit", "run", "bias"])
def test_help_says_the_default_for_each_kind(command):
    said = " ".join(CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).stdout.split())
    assert METHOD_BY_KIND in said


# the explorer


@pytest.fixture(scope="module")
def client():
    made = make_state(language=lambda: Loaded(talker("llama"), speaker()))
    yield TestClient(create_app(made), base_url="http://127.0.0.1")
    made.close()


def test_the_explorer_says_and_takes_the_default_of_each_model(client):
    said = {model["kind"]: model["method"] for model in client.get("/api/about").json()["models"]}
    by_kind = {"text": TEXT_METHOD, "molecule": GRAPH_METHOD, "language": LANGUAGE_METHOD}
    assert said == dict.fromkeys(("image", "sentence"), DEFAULT_METHOD) | by_kind
    rows = client.post("/api/explain", json={"text": "a good film"}).json()["rows"]
    assert [row["method"] for row in rows] == [TEXT_METHOD]
    rows = client.post("/api/audit", json={"text": "a good film"}).json()["rows"]
    assert [row["method"] for row in rows] == ["gi", DEFAULT_METHOD]


def test_the_explorer_generates_by_the_default(client):
    state: AppState = client.app.state.headwater
    state.models.language.load()
    found = client.post("/api/generate", json={"prompt": PROMPT, "new_tokens": 1}).json()
    assert found["method"] == LANGUAGE_METHOD
    assert found["rows"][0]["relevance"] == approx(explained("llama").relevance.tolist(), abs=1e-6)


def test_a_model_that_is_read_says_its_own_default():
    place = LazyModel("text", "tiny", lambda: Loaded(talker("llama"), speaker()))
    assert place.method == TEXT_METHOD
    place.load()
    assert place.method == LANGUAGE_METHOD


def test_the_page_names_no_default():
    static = Path(kind.__file__).parents[1] / "web" / "static"
    for file in static.glob("*.js"):
        text = file.read_text(encoding="utf-8")
        assert LANGUAGE_METHOD not in text
        assert ENCODER_DECODER_METHOD not in text


def test_no_other_line_of_the_library_names_a_default():
    """A parameter, a field or an option whose default is one of these methods by name."""
    source = Path(defaults.__file__).parent
    names = (DEFAULT_METHOD, TEXT_METHOD, GRAPH_METHOD, LANGUAGE_METHOD, ENCODER_DECODER_METHOD)
    named = [f'= "{name}"' for name in names]
    files = [file for file in source.rglob("*.py") if file != Path(defaults.__file__)]
    assert [str(f) for f in files if any(one in f.read_text(encoding="utf-8") for one in named)] == []


def test_with_aside_moves_and_keeps_the_sum():
    ledger = explained("gpt2", sinks="show").ledger
    moved = ledger.with_aside({SINK: 1.5}).with_aside({SINK: 0.5})
    assert (moved.constants[SINK], moved.inputs) == (2.0, approx(ledger.inputs - 2.0))
    assert moved.unaccounted == approx(ledger.unaccounted, abs=1e-12)
