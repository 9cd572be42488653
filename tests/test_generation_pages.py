"""Pictures of generated text: whole, escaped, closed to other scripts, and the same numbers everywhere."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import re

import pytest
from page_reader import Reader
from rich.console import Console
from speaker import speaker, talker
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import app
from headwater.viz import generation as viz

PROMPT = "the capital of France is"
EVIL = '</p><script>alert(1)</script>"&'


def made(prompt: str | None = PROMPT, **options) -> hw.Generation:
    return hw.explain_generation(talker("gpt2"), prompt, tokenizer=speaker(), **{"max_new_tokens": 4} | options)


def test_every_output_token_carries_the_numbers_of_its_row():
    found = made()
    outputs = Reader(viz.page(found)).having("data-r")
    assert len(outputs) == len(found) == 4
    for number, tag in enumerate(outputs):
        values = [float(value) for value in tag["data-r"].split()]
        assert len(values) == found.prompt + number
        assert values == pytest.approx(found.relevance[number, : len(values)].tolist(), rel=1e-3, abs=1e-9)
        assert tag["role"] == "button"
    assert [tag["tabindex"] for tag in outputs] == ["0", "-1", "-1", "-1"]  # one stop for Tab, arrows from there
    assert len(Reader(viz.page(found)).having("data-t")) == len(found.tokens)


def test_before_any_script_runs_the_first_row_is_coloured_and_every_row_is_a_table():
    found = made()
    page = viz.page(found)
    tokens = Reader(page).having("data-t")
    signs = [{"add": 1, "take": -1}.get((tag["class"] or "").replace("o ", "").split()[1], 0) for tag in tokens]
    assert signs == [int(value > 0) - int(value < 0) for value in found.relevance[0].tolist()]
    assert page.count('class="panel"') == 4
    assert page.count("Ledger</h3>") == 5  # one for each output token, one for all together


def test_the_page_runs_its_own_script_only_and_asks_nobody():
    page = viz.page(made())
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"(https?:)?//[a-z]", page.split("<body>")[1].replace(script, ""))
    assert not re.search(r"\son\w+=", page)
    assert "innerHTML" not in script


def test_a_page_without_a_script_forbids_all():
    from headwater.viz.html import page

    assert "script-src" not in page(made().explanation(0))


def test_what_a_text_says_is_not_obeyed():
    found = made()
    evil = tuple(EVIL for _ in found.pieces)
    page = viz.page(dataclasses.replace(found, pieces=evil, tokens=evil, targets=evil[:4]), title=EVIL)
    assert page.count("<script>") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;" in page
    turn = {"role": '<img src=x onerror="alert(1)">', "content": PROMPT}
    assert "<img" not in viz.page(made(prompt=None, chat=[turn]))


def test_what_was_set_aside_is_marked():
    page = viz.page(made(sinks="aside"))
    assert len([tag for tag in Reader(page).having("data-t") if "aside" in tag["class"]]) == 1
    assert "attention sink" in page
    assert "attention sink" in viz.plain(made(sinks="aside"))


def test_plain_text_has_a_line_for_every_output_token():
    found = made(score="contrast")
    text = viz.plain(found)
    for target, score in zip(found.targets, found.scores, strict=True):
        assert any(target in line and f"{score:+.3f}"[:-1] in line for line in text.splitlines())
    assert "ledgers, the worst closed" in text
    assert f"verdict: {found.verdict()}" in text
    terms, total = re.search(r"all together: (.*) = (.*)", text).groups()
    assert sum(map(float, re.findall(r"-?\d+\.\d+", terms))) == pytest.approx(float(total), abs=1e-9)
    assert float(total) == pytest.approx(sum(found.scores), abs=0.01)


@pytest.mark.parametrize("colours", ["truecolor", "standard", None])
def test_a_terminal_shows_what_plain_text_says(colours):
    found = made()
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, color_system=colours, width=120).print(viz.render(found))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    for number in range(4):
        assert f"{found.scores[number]:+.4f}" in shown
        assert viz.name_source(found.top(number, 1)[0], found) in shown
    assert ("\x1b[4;" in screen.getvalue()) is (colours is not None)  # what takes away is underlined


@pytest.fixture
def saved(tmp_path):
    talker("gpt2").save_pretrained(tmp_path / "model")
    speaker().save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def ran(*words: str):
    return CliRunner().invoke(app, ["generate", *words])


def test_the_command_prints_plain_text_json_and_a_page(saved, tmp_path):
    page = tmp_path / "out.html"
    words = (PROMPT, "-m", saved, "--max-new-tokens", "3", "--dtype", "float64")
    plain = ran(*words, "--html", str(page))
    assert plain.exit_code == 0, plain.output
    assert "ledgers, the worst closed" in plain.stdout
    assert page.read_text().count('class="panel"') == 3
    found = hw.Generation.from_dict(json.loads(ran(*words, "--json").stdout))
    assert found.relevance.tolist() == made(max_new_tokens=3).relevance.tolist()


def test_the_command_takes_a_chat_a_contrast_and_words(saved, tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": PROMPT}]), encoding="utf-8-sig")  # as some editors write it
    done = ran("--chat", str(chat), "-m", saved, "--answer", " Paris", "--contrast", "London", "--words", "--json")
    assert done.exit_code == 0, done.output
    found = hw.Generation.from_dict(json.loads(done.stdout))
    assert found.targets == ("Paris - London",)
    assert "user" in found.roles
    assert found.unit == "word"


def test_the_command_refuses_what_it_cannot_do(saved, tmp_path):
    assert ran("-m", saved).exit_code == 2
    assert ran(PROMPT, "-m", saved, "--words", "--sentences").exit_code == 2
    assert ran("-m", saved, "--chat", str(tmp_path / "none.json")).exit_code == 2
    for wrong in ("{}", "[1]"):
        (tmp_path / "wrong.json").write_text(wrong)
        assert ran("-m", saved, "--chat", str(tmp_path / "wrong.json")).exit_code == 2
