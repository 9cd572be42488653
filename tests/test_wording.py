"""Messages speak the language of where they appear, and every command's help is grouped, uncut and has examples."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import headwater
from headwater.cli import app
from headwater.cli.help import OTHER, sort_into_groups
from headwater.cli.wording import in_options, options_of

SOURCES = Path(headwater.__file__).parent
PYTHON = re.compile(r"(?<![\w(…])([a-z_]+)=(?=['\"\[\w …,.;:)]|$)")


@cache
def commands() -> dict[str, Any]:
    """Every command by the words that call it, those of the experiments too."""
    whole: Any = get_command(app)
    found = {}
    for name, one in whole.commands.items():
        inner = getattr(one, "commands", None)
        found |= {name: one} if inner is None else {f"{name} {sub}": command for sub, command in inner.items()}
    return found


@cache
def refusals() -> list[str]:
    """The literal text of every message that the library raises."""
    found = []
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                found.append(text_of(node.exc.args[0]))
    return [text for text in found if "=" in text]


def text_of(node: ast.expr) -> str:
    """A string as it is written; what is filled in is a word."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "value" for part in node.values)
    return ""


@pytest.mark.parametrize("name", ["explain", "compare", "generate", "answer", "audit", "evaluate", "run", "bias"])
def test_no_option_of_a_command_is_named_as_python_writes_it(name: str) -> None:
    options = options_of([commands()[name]])
    assert len(refusals()) > 30
    for message in refusals():
        said = in_options(message, options)
        left = {found for found in PYTHON.findall(said) if found in options}
        assert not left, f"{message!r} becomes {said!r}"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Pass truncate=True to cut it there, or window=True.", "Pass --truncate to cut it there, or --window."),
        ("if you trust it, pass allow_pickle=True (--allow-pickle).", "if you trust it, pass --allow-pickle."),
        ("run with sinks='show' (--sinks).", "run with --sinks."),
        ("engine='ray' (--engine ray).", "--engine ray."),
        ("target= and output= have no place.", "--target and --output have no place."),
        ("pass methods=['gi', 'lrp'].", "pass --methods gi,lrp."),
        ("the class 'a=True' of x.target=True", "the class 'a=True' of x.target=True"),
        ("a text needs a tokenizer: explain(model, text, tokenizer=tokenizer).",
         "a text needs a tokenizer, and the model has none."),
    ],
)  # fmt: skip
def test_arguments_become_options(message: str, said: str) -> None:
    names = ("truncate", "window", "allow_pickle", "sinks", "engine", "target", "output", "methods")
    assert in_options(message, {name: f"--{name.replace('_', '-')}" for name in names}) == said


def test_a_text_that_is_too_long_is_answered_with_options() -> None:
    done = CliRunner().invoke(app, ["explain", "good " * 600])
    assert done.exit_code == 2
    assert "--truncate" in done.stderr
    assert "--window" in done.stderr
    assert "=True" not in done.stderr
    done = CliRunner().invoke(app, ["audit", "good " * 600])
    assert "--truncate" in done.stderr


# --help


def help_of(name: str, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = CliRunner().invoke(app, [*name.split(), "--help"])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", [*commands()])
def test_help_is_grouped_uncut_and_ends_in_two_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = help_of(name, monkeypatch)
    assert max(map(len, lines)) < 80
    start = lines.index("Examples:")
    examples = lines[start + 1 :]
    assert len(examples) == 2
    heads = [line for line in lines if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert len(heads) >= 3
    words = {word for line in lines for word in line.split()}
    command = commands()[name]
    for param in command.params:
        assert {*(param.opts if param.param_type_name == "option" else ())} <= {word.rstrip(",") for word in words}
        for word in (param.help or "").split():
            assert word in words, f"{word!r} of --{param.name} is cut"
    for example in examples:
        given = shlex.split(example.strip())
        assert given[: 1 + len(name.split())] == ["headwater", *name.split()]
        known = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
        assert {word for word in given if word.startswith("-")} <= known


@pytest.mark.parametrize("name", [*commands()])
def test_what_names_a_model_stands_with_the_model(name: str) -> None:
    """Not among the other options, where nobody looks for it."""
    found = sort_into_groups(commands()[name].params)
    other = [opt for param in found.get(OTHER, ()) for opt in param.opts]
    assert [opt for opt in other if "model" in opt] == []


def test_the_whole_help_lists_the_commands_and_ends_in_two_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = help_of("", monkeypatch)
    assert max(map(len, lines)) < 80
    assert all(any(line.startswith(f"  {name.split()[0]} ") for line in lines) for name in commands())
    assert len(lines[lines.index("Examples:") + 1 :]) == 2


def test_a_narrow_terminal_cuts_no_word_either(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "text-classification." in " ".join(help_of("explain", monkeypatch, 50)).split()
