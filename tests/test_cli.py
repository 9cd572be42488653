"""The command line: standard output is data, standard error is talk, refusals are one line and exit code 2."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import torch
import typer
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
from typer.testing import CliRunner

import headwater
from headwater.cli import app, options
from headwater.cli.explain import lines_of
from headwater.errors import LoadError
from headwater.models import bundled

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a gripping beautiful ##ly acted film bad ,".split()
SENTENCE = "a gripping, beautifully acted film"


@pytest.fixture(scope="session")
def directory(tmp_path_factory) -> Path:
    """A random BERT for sentiment with a tokenizer of a few words."""
    place = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(place)
    BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(place)
    return place


@pytest.fixture(autouse=True)
def stand_in(directory, monkeypatch):
    """The tiny model in the place of the bundled one."""
    monkeypatch.setattr(bundled, "bundled_path", lambda *_: directory)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)


def call(*words: str, **options):
    return CliRunner().invoke(app, list(words), **options)


def answer(*words: str, **options) -> str:
    result = call(*words, **options)
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(*words: str, **options) -> str:
    """What is said on standard error where a call is refused: one line, nothing on standard output."""
    result = call(*words, **options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def commands(group: Any = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command's words, and its function."""
    for command in group.registered_commands:
        yield " ".join((*path, command.name)), command.callback
    for below in group.registered_groups:
        yield from commands(below.typer_instance, (*path, below.name))


def numbers() -> Iterator[tuple[str, str, Any]]:
    """Every option that takes a number: its command, its name, and how it is declared."""
    for words, function in commands():
        for name, hint in get_type_hints(function, include_extras=True).items():
            kinds = get_args(get_args(hint)[0]) or get_args(hint)[:1] if get_origin(hint) is Annotated else ()
            if {int, float} & set(kinds):
                yield words, name, get_args(hint)[1]


def test_options_that_belong_together_are_one_value():
    given = []

    @options.takes_groups
    def command(loading: options.LoadOptions = options.LOADING, seed: options.Seed = 0) -> None:
        given.append((loading, seed))

    alone = typer.Typer()
    alone.command()(command)
    for words in (["--task", "fill-mask", "--allow-pickle", "--seed", "3"], []):
        assert CliRunner().invoke(alone, words).exit_code == 0
    assert given == [(options.LoadOptions(task="fill-mask", allow_pickle=True), 3), (options.LOADING, 0)]


def test_every_number_has_a_range():
    found = list(numbers())
    assert len(found) > 50
    assert [(words, name) for words, name, option in found if option.min is None or option.max is None] == []


@pytest.mark.parametrize("value", ["0", "99999999999999999999", "-1", "nan", "1e9", "²"])
def test_a_number_out_of_its_range_is_refused(value):
    assert "--batch-size" in refusal("explain", SENTENCE, "--batch-size", value)
    assert "--tokens" in refusal("bench", "--tokens", value)
    assert "--timeout" in refusal("zoo", "--timeout", "inf" if value in ("99999999999999999999", "1e9") else value)
    if value != "0":
        assert "--seed" in refusal("compare", SENTENCE, "--seed", value)


@pytest.mark.parametrize("limit", ["0", "9" * 400 + "GiB", "nan", "inf", "-5", "1e9GiB"])
def test_a_memory_limit_out_of_its_range_is_refused(limit):
    assert "memory" in refusal("explain", SENTENCE, f"--memory-limit={limit}")


@pytest.mark.crossed
@pytest.mark.parametrize("device", ["gpu9", "", "meta", "cuda:99", *([] if torch.cuda.is_available() else ["cuda"])])
@pytest.mark.parametrize(
    "words",
    [
        *(("explain", "x"), ("compare", "x"), ("audit", "x"), ("generate", "x"), ("paper", "train", "sst2")),
        ("answer", "x"),
        *(
            ("bundled", "evaluate"),
            ("image", "train"),
            ("bench",),
            ("app",),
            ("answers",),
            ("bias",),
            ("faithfulness",),
        ),
        ("evaluate", "--data", "x.csv"),
    ],
)
def test_a_device_that_is_not_here_is_refused(words, device):
    assert re.search("device|nothing can be computed", refusal(*words, "--device", device))


def started(*words: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own, which ends without a traceback."""
    done = subprocess.run([sys.executable, "-m", "headwater", *words], timeout=120, **options)
    assert b"Traceback" not in (done.stderr or b"")
    assert b"Exception ignored" not in (done.stderr or b"")
    return done


def test_a_byte_order_mark_is_no_part_of_the_first_text():
    assert lines_of(io.StringIO("\ufeffgood\r\n\ufeffbad\r\n")) == ["good", "\ufeffbad"]


def test_arguments_that_are_no_utf8_are_refused():
    done = started("explain", b"caf\xe9", capture_output=True)
    assert done.returncode == 2
    assert b"argument 2 is no UTF-8" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8:surrogateescape"])
def test_standard_input_that_is_no_utf8_is_refused(encoding):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = started("explain", "-", input=b"good\ncaf\xe9\n", capture_output=True, env=environment)
    assert done.returncode == 2
    assert b"standard input" in done.stderr
    assert b"UTF-8" in done.stderr or b"utf-8" in done.stderr


@pytest.mark.parametrize("command", [["evaluate"], ["bias"]])
@pytest.mark.parametrize("content", [b'{"text": "caf\xe9", "label": 1}\n', b'{"text": "caf\\ud800", "label": 1}\n'])
def test_files_that_are_no_utf8_are_refused(tmp_path, command, content):
    (tmp_path / "bad.jsonl").write_bytes(content)
    (tmp_path / "groups.json").write_text('{"one": ["good"], "other": ["bad"]}', encoding="utf-8")
    groups = ["--groups", str(tmp_path / "groups.json")] if command == ["bias"] else []
    assert "bad.jsonl" in refusal(*command, *groups, "--data", str(tmp_path / "bad.jsonl"))


@pytest.mark.parametrize("length", ["0", "²", "9" * 30, "9" * 5000, "-1"])
def test_a_protocols_number_has_a_range(tmp_path, length):
    data = tmp_path / "texts.csv"
    data.write_text("text,label\na film,1\n")
    assert "max_length" in refusal("evaluate", "--data", str(data), "--protocol", f"ali2022(max_length={length})")


def test_a_chat_that_is_none_is_refused(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text("[" * 100_000)
    assert "chat.json" in refusal("generate", "--chat", str(file))


def test_too_little_memory_is_said(monkeypatch):
    def explode(*_: Any, **__: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2199023254528 bytes.")

    monkeypatch.setattr("headwater.explain", explode)
    assert "not enough memory" in refusal("explain", SENTENCE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(
    "words", [("methods",), ("methods", "--json"), ("--version",), ("--help",), ("methods", "--help")]
)
def test_an_output_that_is_full_is_said(words):
    with open("/dev/full", "wb") as full:
        done = started(*words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"headwater: the output cannot be written: No space left on device.\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = started("methods", stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert done.stderr == b""


def test_explain_in_a_pipe_is_plain_text():
    shown = answer("explain", SENTENCE)
    assert "\x1b" not in shown
    assert re.search(r"gripping\s+[+-]0\.\d+", shown)
    assert re.search(r"^  closed: ", shown, re.M)


def test_explain_on_a_terminal_is_coloured_unless_asked_not_to_be():
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    assert "\x1b[" in answer("explain", SENTENCE, env=terminal)
    assert "\x1b[" not in answer("explain", SENTENCE, "--plain", env=terminal)
    assert not re.search(r"\x1b\[[\d;]*(38|48)", answer("explain", SENTENCE, env={**terminal, "NO_COLOR": "1"}))
    assert answer("explain", SENTENCE, env=terminal) != answer(
        "explain", SENTENCE, env={**terminal, "COLORFGBG": "0;15"}
    )


def test_json_is_one_object_a_line_and_adds_up():
    records = [json.loads(line) for line in answer("explain", SENTENCE, "a bad film", "--json").splitlines()]
    assert [record["text"] for record in records] == [SENTENCE, "a bad film"]
    for record in records:
        assert record["ledger"]["closed"]
        assert sum(record["relevance"]) == pytest.approx(record["ledger"]["inputs"])


def test_options_reach_the_library():
    options = ["--method", "lrp(ah+ln)", "--target", "negative", "--output", "probability", "--at", "words"]
    record = json.loads(answer("explain", SENTENCE, "--json", "--words", "--dtype", "float64", "--seed", "7", *options))
    assert (record["method"], record["target"], record["output"], record["at"]) == (
        "lrp(ah+ln)",
        "negative",
        "probability",
        "words",
    )
    assert (record["ledger"]["dtype"], record["provenance"]["seed"]) == ("float64", 7)
    assert [word["text"] for word in record["words"]][1:-1] == ["a", "gripping", ",", "beautifully", "acted", "film"]


def test_a_model_can_be_named(directory):
    named = json.loads(answer("explain", SENTENCE, "--json", "--model", str(directory)))
    default = json.loads(answer("explain", SENTENCE, "--json"))
    assert named["provenance"].pop("model") == str(directory)
    assert default["provenance"].pop("model") == "headwater/sentiment"
    assert named == default


def test_pairs_of_texts():
    record = json.loads(answer("explain", "a film", "--pair", "bad", "--json"))
    assert record["text"] == ["a film", "bad"]
    assert "once for every text" in refusal("explain", "a film", "a film", "--pair", "bad")


def test_lines_of_standard_input_also_in_small_batches():
    texts = ["a film", "bad film", "a bad film"]
    result = call("explain", "-", "--json", "--batch-size", "2", input="\n".join([*texts, "", ""]))
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == texts
    assert "blank lines left out" in result.stderr
    assert "no text" in refusal("explain", "-", input="\n\n")


def test_the_whole_ledger_on_request():
    short, full = (answer("explain", SENTENCE, "--method", "lrp", *more) for more in ([], ["--full"]))
    assert "bert.encoder.layer.0  " in short
    assert "bert.encoder.layer.0.attention.self.value.bias" in full
    assert "self.value" not in short


def test_html_and_svg_are_written_and_said_on_standard_error(tmp_path):
    html, svg = tmp_path / "page.html", tmp_path / "picture.svg"
    result = call("explain", SENTENCE, "--html", str(html), "--svg", str(svg))
    assert result.exit_code == 0
    assert "beautiful" in html.read_text(encoding="utf-8")
    assert svg.read_text(encoding="utf-8").startswith("<svg")
    assert str(html) in result.stderr
    assert str(html) not in result.stdout
    assert "cannot be written" in call("explain", SENTENCE, "--html", str(tmp_path / "no" / "page.html")).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explain", "  "], "empty"),
        (["explain", SENTENCE, "--method", "lpr"], "Did you mean 'lrp'?"),
        (["explain", SENTENCE, "--target", "postive"], "Did you mean 'positive'?"),
        (["explain", SENTENCE, "--output", "logits"], "Did you mean 'logit'?"),
        (["explain", SENTENCE, "--dtype", "flota32"], "Did you mean 'float32'?"),
        (["explain", SENTENCE, "--task", "sentiment"], "no task"),
        (["explain", SENTENCE, "--model", "./nowhere"], "no directory nowhere"),
        (["explain", SENTENCE * 9], "at most 16"),
    ],
)
def test_bad_input_is_answered(words, message):
    assert message in refusal(*words)


def test_a_text_past_the_models_length_is_cut_on_request():
    assert len(json.loads(answer("explain", SENTENCE * 9, "--truncate", "--json"))["tokens"]) == 16


def test_a_refusal_in_a_long_list_says_where():
    result = call("explain", "a film", SENTENCE * 9, "--batch-size", "1")
    assert result.exit_code == 2
    assert "stopped in texts 2 to 2 of 2" in result.stderr


def test_a_pickle_is_refused_on_the_command_line_too(tmp_path, directory):
    model = BertForSequenceClassification.from_pretrained(directory)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert "--allow-pickle" in refusal("explain", SENTENCE, "--model", str(tmp_path))
    assert "closed" in answer("explain", SENTENCE, "--model", str(tmp_path), "--allow-pickle")


def test_methods_and_rules_are_listed():
    shown = answer("methods")
    assert re.search(r"^  lrp\(ah\+ln\)\s+\S", shown, re.M)
    listed = json.loads(answer("methods", "--json"))
    assert {"gi", "lrp", "lrp(ah+ln)"} <= {method["name"] for method in listed["methods"]}
    assert {"ah", "ln", "act", "gate"} <= {rule["name"] for rule in listed["rules"]}


def test_audit_names_what_leaked():
    shown = answer("audit", SENTENCE, "--method", "gi")
    assert "normalisation" in shown
    assert "NOT closed" in shown
    record = json.loads(answer("audit", SENTENCE, "--method", "lrp", "--json"))
    assert {"explanation", "modules", "norms", "heads", "leaks"} <= set(record)
    assert record["explanation"]["ledger"]["closed"]
    assert "Did you mean 'gi'?" in refusal("audit", SENTENCE, "--method", "gii")


def test_the_bundled_model_is_measured(monkeypatch):
    from headwater_experiments.training import accuracy

    asked: dict[str, object] = {}

    def evaluate(model, split, device):
        asked.update(model=model, split=split, device=device)
        return accuracy.Accuracy(3, 4)

    monkeypatch.setattr(accuracy, "evaluate_accuracy", evaluate)
    assert answer("bundled", "evaluate", "--split", "tune").startswith("SST-2 tune: 75.0%")
    assert asked == {"model": None, "split": "tune", "device": "cpu"}
    assert json.loads(answer("bundled", "evaluate", "--json"))["accuracy"] == 0.75


@pytest.fixture
def labelled(tmp_path) -> str:
    rows = ["text,label", "a gripping film,1", "a bad film,0", '"a beautifully acted, gripping film",positive']
    (tmp_path / "rows.csv").write_text("\n".join(rows), encoding="utf-8")
    return str(tmp_path / "rows.csv")


@pytest.mark.slow
def test_the_evaluation_is_timed_against_a_loop_in_one_run(labelled):
    words = ["bench", "--evaluation", "--data", labelled, "--limit", "2", "--methods", "gi,lrp(ah+ln)", "--rounds", "2"]
    title, _, head, rule, row = answer(*words).splitlines()
    assert title.startswith("2 texts, 2 methods (gi, lrp(ah+ln)), 2 rounds; ")
    assert "| times faster |" in head
    assert set(rule) == {"|", "-"}
    assert re.fullmatch(r"\| activation, pruning \|( \d+\.\d+ \|){3} \d+\.\d to \d+\.\d \| \de-\d\d \|", row)
    shown = answer(*words, "--plain")
    assert "|" not in shown
    assert re.search(r"^activation, pruning +\d", shown, re.M)
    record = json.loads(answer(*words, "--measures", "deletion", "--threads", "1", "--json"))
    assert (record["samples"], record["measures"], record["threads"]) == (2, ["deletion"], 1)
    assert 0 < record["low"] <= record["ratio"] <= record["high"]
    assert record["apart"] < 1e-5


@pytest.mark.slow
def test_explanations_are_timed_as_ratios_to_the_forward_pass():
    words = ["bench", "--layers", "1", "--batch", "1", "--tokens", "8", "--rounds", "1", "--methods", "lrp"]
    assert re.search(r"^\| lrp \| \d", answer(*words), re.M)
    assert [cost["name"] for cost in json.loads(answer(*words, "--json"))] == ["forward", "lrp"]


@pytest.mark.slow
def test_texts_a_second_are_counted_over_a_dataset(labelled):
    words = ["bench", "--throughput", "--busy", "--rounds", "2", "--data", labelled]
    assert re.search(r"^\| lrp \| \d+\.\d \| \d+\.\d \| \d+\.\d\d \|$", answer(*words), re.M)
    gi, lrp = json.loads(answer(*words, "--json"))
    assert (gi["name"], gi["ratio"], lrp["name"]) == ("gi", 1.0, "lrp")
    assert lrp["texts"] == gi["texts"] > 0
    other = answer("bench", "--throughput", "--rounds", "1", "--data", labelled, "--shape", "llama-small")
    assert ", llama-small, cpu, " in other.splitlines()[0]


def test_gradient_times_input_with_torch_alone_is_what_gi_says():
    from headwater.models.bundled import load_bundled
    from headwater_experiments.bench.throughput import gradient_times_input

    model, tokenizer = load_bundled()
    texts = ["a good film", "not a bad film, all in all"]
    ours = headwater.explain(model, texts, tokenizer=tokenizer, method="gi", at="words")
    for one, other in zip(ours, gradient_times_input(model, tokenizer, texts), strict=True):
        assert torch.allclose(one.relevance, other, atol=1e-5)


@pytest.mark.slow
def test_a_decoder_is_timed_at_several_lengths_beside_other_tools(monkeypatch):
    from headwater_experiments.bench import cost, peers

    monkeypatch.setattr(peers, "STEPS", 2)
    monkeypatch.setattr(peers, "find_installed", lambda: ["captum"])
    monkeypatch.setattr(cost, "PRESETS", ("lrp",))
    words = ["bench", "--shape", "llama-small", "--layers", "1", "--tokens", "5,40", "--rounds", "1", "--json"]
    found = json.loads(answer(*words))
    names = ["forward", "lrp", "captum InputXGradient", "captum IntegratedGradients, 2 steps"]
    assert [(one["tokens"], one["name"]) for one in found] == [(n, name) for n in (5, 40) for name in names]
    assert all(one["memory"] >= 0 and one["ratio"] > 0 for one in found)
    assert found[1]["error"] < 1e-4


@pytest.mark.slow
def test_the_attention_that_is_timed_can_be_chosen():
    words = ["bench", "--shape", "gemma2-small", "--layers", "1", "--tokens", "20", "--rounds", "1", "--methods", "lrp"]
    assert "headwater attention" in answer(*words, "--attention", "headwater")
    assert "eager attention" in answer(*words, "--attention", "eager")


@pytest.mark.slow
def test_graphs_are_timed_by_their_number_of_nodes():
    names = ("forward", "rollout", "distances and paths")
    words = ["bench", "--graphs", "8,500", "--rounds", "1", "--methods", "rollout"]
    costs = json.loads(answer(*words, "--json"))
    assert [(cost["tokens"], cost["name"]) for cost in costs] == [(n, m) for n in (8, 500) for m in names]
    small, large = costs[1], costs[4]
    assert large["seconds"] > 2 * small["seconds"]
    assert large["memory"] > small["memory"] + 8 * 501**2 * 4  # one float for each head and pair of nodes
    shown = answer("bench", "--graphs", "8", "--rounds", "1")
    assert "| nodes | forward | lrp | gi | rollout | distances and paths |" in shown
    assert re.search(r"^\| 8 \|( \d+\.\d\d s, \d+\.\d\d GiB \|){5}$", shown, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--graphs", "4"], "--graphs takes numbers above 4"),
        (["--graphs", "9,x"], "--graphs takes numbers above 0, separated by commas, not '9,x'"),
        (["--graphs", "9", "--throughput"], "ask for one at a time"),
        (["--graphs", "9", "--shape", "bert-base"], "--shape has a meaning only with neither"),
        (["--attention", "headwaters"], "Did you mean 'headwater'?"),
        (["--limit", "3"], "--limit has a meaning only with --evaluation"),
        (["--tokens", "8,x"], "--tokens takes numbers above 0, separated by commas, not '8,x'"),
        (["--shape", "bert-bas"], "Did you mean 'bert-base'?"),
        (["--layers", "1", "--tokens", "600"], "bert-base has 512 positions, too few for 600 tokens"),
        (["--evaluation", "--layers", "3"], "--layers has a meaning only with neither --evaluation nor --throughput"),
        (["--evaluation", "--throughput"], "ask for one at a time"),
        (["--throughput", "--layers", "3"], "--layers has a meaning only with neither"),
        (["--busy", "--device", "cuda"], "--busy counts the processor's time"),
        (["--evaluation", "--data", "nowhere.csv"], "no file nowhere.csv"),
    ],
)
def test_what_the_benchmark_would_not_heed_is_refused(words, message):
    assert message in refusal("bench", *words)


def test_refusals_inside_a_group_of_commands_are_answered_too(monkeypatch):
    from headwater_experiments.training import accuracy

    def evaluate(model, split, device):
        raise LoadError("no such model")

    monkeypatch.setattr(accuracy, "evaluate_accuracy", evaluate)
    assert refusal("bundled", "evaluate") == "headwater: no such model\n"


def test_a_bug_is_not_hidden(monkeypatch):
    """Only what the library raises on purpose becomes a message."""
    monkeypatch.setattr(bundled, "bundled_path", lambda *_: 1 / 0)
    assert isinstance(call("explain", SENTENCE).exception, ZeroDivisionError)


def test_the_command_itself(directory):
    """Once through a real process, where standard output and standard error are two."""
    words = [sys.executable, "-m", "headwater.cli", "explain", "a film", "--model", str(directory), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"})
    assert json.loads(done.stdout)["tokens"] == ["[CLS]", "a", "film", "[SEP]"]
    assert done.stderr == ""
