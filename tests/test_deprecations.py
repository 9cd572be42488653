"""What is deprecated warns for one minor version, and is then removed. What is logged is seen by who asks."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import headwater as hw
from headwater import deprecations
from headwater.deprecations import ALL, Deprecation

SOURCES = Path(hw.__file__).parent


def minor(version: str) -> tuple[int, int]:
    major, second = version.split(".")[:2]
    return int(major), int(second)


def is_over(one: Deprecation, version: str) -> bool:
    return minor(version) >= minor(one.gone)


def goes_with_a_major(one: Deprecation) -> bool:
    return minor(one.gone)[1] == 0


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.what)
def test_it_warns_for_a_minor_version_and_is_not_overdue(one: Deprecation):
    assert minor(one.gone) > minor(one.since)
    assert goes_with_a_major(one), "docs/policy.md: what is deprecated goes away in a major version"
    assert minor(one.since) <= minor(hw.__version__), "it warns from a version on that is not here yet"
    assert not is_over(one, hw.__version__), f"{one.what} was to be removed in {one.gone}"


def test_an_overdue_one_is_seen():
    one = Deprecation("a", "b", since="0.1", gone="0.2")
    assert not is_over(one, "0.1.9")
    assert is_over(one, "0.2.0")
    assert is_over(one, "1.0.0")
    assert not goes_with_a_major(one)


def test_the_warning_says_what_to_write_and_when_it_goes_and_points_at_the_caller():
    def old() -> None:
        Deprecation("old()", "new()", "0.1", "0.2").warn()

    with pytest.warns(
        DeprecationWarning, match=r"old\(\) is deprecated\. Write new\(\)\. It goes away in 0\.2\."
    ) as heard:
        old()
    assert heard[0].filename == __file__


def test_no_deprecation_is_written_elsewhere():
    """All of them are in one list, so that none is forgotten."""
    own = Path(deprecations.__file__)
    files = [file for file in SOURCES.rglob("*.py") if file != own]
    assert [file.name for file in files if "DeprecationWarning" in file.read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_the_library_logs_to_one_logger_which_is_quiet_by_default(caplog_lines):
    hw.load("headwater/sentiment")
    (line,) = caplog_lines
    assert (
        line
        == "headwater.models.loading INFO: headwater/sentiment loaded as BertForSequenceClassification, cpu, float32"
    )
    code = "import headwater as hw; hw.load('headwater/sentiment')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.fixture
def caplog_lines():
    """What is logged meanwhile; pytest's own plug-in for it is switched off here."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name} {record.levelname}: {record.getMessage()}")

    logger, handler = logging.getLogger("headwater"), Kept()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
