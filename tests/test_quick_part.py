"""The quick part of the tests (`make test`): it has every promise of the project, and says when it grows too dear."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import budget
import pytest
from budget import SPENT, Budget
from crossing import cover_values, mark_slow_cases
from missing import describe_skips, skip_without

HERE = Path(__file__).parent
PROMISES = {
    "the ledger closes": "test_ledger.py::test_ledger_closes",
    "without a rule it stays open": "test_ledger.py::test_ledger_stays_open_without",
    "the prediction is untouched": "test_ledger.py::test_prediction_is_untouched",
    "padding changes nothing": "test_ledger.py::test_padding_changes_nothing",
    "a batch changes nothing": "test_ledger.py::test_batch_changes_nothing",
    "a rule is what the paper's sums give": "test_paper_rules.py::test_relevance_is_what_the_sums_give",
    "a plan gives what a plain run gives": "test_plans.py::test_played_it_says_the_same_at_every_length",
    "nothing is left behind": "test_promises.py::test_nothing_is_left_behind",
    "the command line explains": "test_cli.py::test_explain_in_a_pipe_is_plain_text",
    "the explorer explains what is typed": "test_explorer.py::test_typing_a_text_explains_it",
    "the explorer's ledger adds up": "test_explorer.py::test_the_ledger_opens_and_its_bars_add_up",
    "the server explains as the library does": "test_web.py::test_an_explanation_is_the_librarys",
    "a run explains every row": "test_run.py::test_every_row_is_explained_as_explain_does",
    "results come back as they were written": "test_stores.py::test_a_row_is_the_explanation_that_was_made",
    "the guide says what is so": "test_docs.py::test_guide",
}


def names_slow(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "slow" for part in ast.walk(node))


def is_quick(file: str, test: str) -> bool:
    """Whether the file has that test, and neither of them bears the mark. Where some cases do, others must not."""
    body = ast.parse((HERE / file).read_text(encoding="utf-8")).body
    (found,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == test)
    whole = [node for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    marks = [one for one in found.decorator_list if not isinstance(one, ast.Call)]
    return not any(names_slow(node) for node in (*whole, *marks))


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_a_test_in_the_quick_part(promise):
    assert is_quick(*PROMISES[promise].split("::"))


def test_a_test_that_is_marked_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("test_quick_part.HERE", tmp_path)
    (tmp_path / "one.py").write_text("@pytest.mark.slow\ndef test_a(): ...\n\ndef test_b(): ...\n")
    (tmp_path / "all.py").write_text("pytestmark = [pytest.mark.slow]\n\ndef test_a(): ...\n")
    assert not is_quick("one.py", "test_a")
    assert is_quick("one.py", "test_b")
    assert not is_quick("all.py", "test_a")


def test_of_crossed_parameters_every_value_is_in_the_quick_part():
    cases = [{"name": a, "method": b, "masked": c} for a in "abcdefg" for b in "xyz" for c in (True, False)]
    quick = [cases[number] for number in cover_values(cases)]
    assert len(quick) == 7
    for name in ("name", "method", "masked"):
        assert {case[name] for case in quick} == {case[name] for case in cases}


@pytest.mark.crossed
@pytest.mark.parametrize("first", "abc")
@pytest.mark.parametrize("second", "xy")
def test_the_cases_left_out_of_the_quick_part_are_marked(first, second, request):
    quick = request.node.get_closest_marker("slow") is None
    assert quick == (first + second in ("ax", "by", "cx"))


def test_a_test_that_is_not_crossed_keeps_all_its_cases(request):
    mark_slow_cases([request.node])
    assert request.node.get_closest_marker("slow") is None


def report(name: str, seconds: float, slow: bool = False) -> SimpleNamespace:
    keywords = {"slow": 1} if slow else {}
    properties = [(SPENT, seconds)]
    return SimpleNamespace(nodeid=name, when="teardown", skipped=False, keywords=keywords, user_properties=properties)


class Screen(list):
    def write_line(self, line: str, **_: bool) -> None:
        self.append(line)


def summary(*reports: SimpleNamespace, complete: bool = False) -> list[str]:
    plugin, screen = Budget(complete), Screen()
    for one in reports:
        plugin.pytest_runtest_logreport(one)
    plugin.pytest_terminal_summary(screen)
    return list(screen)


def test_a_quick_part_past_its_budget_is_told(monkeypatch):
    monkeypatch.setattr(budget, "QUICK", 10.0)
    kept = [report("cheap", 1.0), report("dear", 8.0), report("marked", 90.0, slow=True)]
    assert summary(*kept) == []
    assert summary(*kept, complete=True) == ["quick part: 9 s of processor time; its budget is 10 s"]
    (line,) = summary(*kept, report("new", 2.0))
    assert "11 s of processor time, more than its budget of 10 s" in line
    assert line.endswith("The dearest: dear (8.0 s), new (2.0 s), cheap (1.0 s)")


def test_time_is_measured_with_the_processes_that_a_test_waits_for():
    import subprocess
    import sys

    before = budget.processor_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert budget.processor_seconds() - before > 0.05


def test_what_is_missing_is_said_in_one_line(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    reasons = ["Skipped: could not import 'timm': No module named 'timm'"]
    for thing in ("data", "data", "Chromium"):
        with pytest.raises(pytest.skip.Exception) as skipped:
            skip_without(thing, "there is none")
        reasons.append(f"Skipped: {skipped.value}")
    line = describe_skips(reasons)
    assert "2 without data (set HEADWATER_DATA to a directory of datasets)" in line
    assert "1 without Chromium (make browser)" in line
    assert "1 without an optional package" in line
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        skip_without("Chromium", "there is none")
