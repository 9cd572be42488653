"""Types of the package are complete: pyright knows every symbol, and public signatures have no gap."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from missing import skip_without
from public_names import list_members, parameters_of, public_classes, public_functions

import headwater as hw

VERIFY = ("--verifytypes", "headwater", "--ignoreexternal", "--outputjson")


def verify_types(folder: Path) -> dict[str, Any]:
    """What pyright says of the package that is imported here. It is asked from an empty folder, or it reads ours."""
    if importlib.util.find_spec("pyright") is None:
        skip_without("pyright", "it says whether types are complete")
    here = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *VERIFY]
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True)
    if not done.stdout.strip().startswith("{"):
        skip_without("pyright", f"it could not be started: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return found


@pytest.mark.slow
def test_every_type_is_known(tmp_path: Path) -> None:
    found = verify_types(tmp_path)
    assert Path(found["packageRootDirectory"]) == Path(hw.__file__).parent
    unknown = [one["name"] for one in found["symbols"] if not one["isTypeKnown"] and one["isExported"]]
    assert unknown == []
    assert found["exportedSymbolCounts"]["withKnownType"] > 10_000
    assert found["completenessScore"] == 1


def gaps_of(function: Any) -> list[str]:
    """Parameters without a type, and "return" where it has none."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    found = [one.name for one in parameters_of(plain) if one.annotation is one.empty]
    return [*found, *(["return"] if inspect.signature(plain).return_annotation is inspect.Signature.empty else [])]


@pytest.mark.parametrize("name", public_functions())
def test_a_public_function_has_all_types(name: str) -> None:
    assert gaps_of(public_functions()[name]) == []


def test_methods_of_public_classes_have_all_types() -> None:
    gaps = {
        f"{name}.{member}": found
        for name, kind in public_classes().items()
        for member, value in list_members(kind)
        if (found := gaps_of(value.fget if isinstance(value, property) else value))
    }
    assert gaps == {}


def test_a_gap_would_be_seen() -> None:
    def gappy(first, second: int):  # type: ignore[no-untyped-def]
        return first + second

    assert gaps_of(gappy) == ["first", "return"]
