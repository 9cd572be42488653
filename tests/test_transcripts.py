"""The commands on the page of the command line exist, with their options. `test_docs` runs them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from headwater.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"


def find_commands() -> list[str]:
    """Every line that begins with `$ headwater`, joined where it goes on; what a pipe does with it is left out."""
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.partition(" | ")[0] for line in re.findall(r"^\$ (headwater .*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("line", find_commands(), ids=lambda line: line[10:40])
def test_every_command_on_the_page_exists_with_its_options(line: str) -> None:
    command, words = get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    assert {word for word in words if word.startswith("-") and not word[1:2].isdigit()} <= known


def test_the_page_has_commands() -> None:
    assert len(find_commands()) >= 15
