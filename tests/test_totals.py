"""Totals of a protocol without its rank correlation: a file that goes on, and differences by prompt."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("headwater_experiments")
from headwater_experiments.language import totals

FOUND = [{"a": 3.0, "b": 1.0}, {"a": 5.0, "b": 3.0}, {"a": 1.0, "b": -1.0}]


def test_a_row_is_compared_prompt_by_prompt() -> None:
    assert totals.compare_totals(FOUND, "a", "b") == (2.0, 2.0, 2.0)  # it has 2 more everywhere
    assert totals.write_table(FOUND).splitlines()[-1] == "| `b` | 1.0 | -2.0 (-2.0 to -2.0) |  |"


def test_a_file_is_read_as_it_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "totals.jsonl"
    totals.write_totals(file, {str(n): one for n, one in enumerate(FOUND)})
    assert list(totals.read_totals(file).values()) == FOUND
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[1]) == {"prompt": "1", "values": FOUND[1]}
    totals.main(["--read", str(file)])
    assert "| 3 prompts | total |" in capsys.readouterr().out


def test_a_prompt_that_is_known_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pose(rule: Any, model: Any, case: Any, cases: Any) -> None:
        asked.append(case.id)

    cases = SimpleNamespace(cases=[SimpleNamespace(id=one) for one in "xyz"])
    monkeypatch.setattr(type(totals.single_token), "read", lambda *_: cases)
    monkeypatch.setattr(type(totals.single_token), "pose", pose)
    given = Namespace(removal="zero", methods="a", data="ioi", half="choose")
    list(totals.measure_totals(SimpleNamespace(tokenizer=None), given, {"y": FOUND[0]}))  # type: ignore[arg-type]
    assert asked == ["x", "z"]


def test_a_file_of_other_rows_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "totals.jsonl"
    totals.write_totals(file, {"x": FOUND[0]})
    with pytest.raises(SystemExit):
        totals.main(["--out", str(file), "--methods", "a,c"])
    assert "has other rows" in capsys.readouterr().err
