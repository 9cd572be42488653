"""Every public docstring says what goes in, what comes out and what is refused, and has an example that runs."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from public_names import ROOT, list_members, parameters_of, public_classes, public_functions, public_values
from real_models import smollm2

import headwater as hw
from headwater import errors
from headwater.evaluation import measures
from headwater.methods import registry
from headwater.rules import OPERATIONS, VARIANTS, handlers
from headwater.testing import NotConforming

FUNCTIONS, CLASSES = public_functions(), public_classes()
SECTION = re.compile(r"^(Args|Returns|Raises|Example):\n((?: {4}.*\n?|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^(\w+):", re.MULTILINE)
EXAMPLES = (ROOT / "docs" / "reference" / "examples.md").read_text(encoding="utf-8")


def sections(value: Any) -> dict[str, str]:
    """The text below each heading of a docstring."""
    said = inspect.getdoc(inspect.unwrap(value)) or ""
    return {name: textwrap.dedent(body).strip() for name, body in SECTION.findall(said)}


def entries(body: str) -> list[str]:
    return ENTRY.findall(body)


def raises_itself(function: Any) -> bool:
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def error_called(name: str) -> type[BaseException] | None:
    found = NotConforming if name == "NotConforming" else getattr(errors, name, getattr(builtins, name, None))
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes(name: str) -> None:
    assert entries(sections(FUNCTIONS[name]).get("Args", "")) == [one.name for one in parameters_of(FUNCTIONS[name])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_gives_and_refuses(name: str) -> None:
    function, said = FUNCTIONS[name], sections(FUNCTIONS[name])
    assert said.get("Returns") or inspect.signature(function).return_annotation in (None, "None")
    if name.count(".") == 1 or raises_itself(function):
        assert said.get("Raises")
    assert [one for one in entries(said.get("Raises", "")) if error_called(one) is None] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_an_example(name: str) -> None:
    assert ">>>" in sections(FUNCTIONS[name]).get("Example", "")


@pytest.mark.parametrize("name", [name for name in CLASSES if not name.startswith("headwater.errors.")])
def test_a_public_class_has_a_docstring_and_an_example(name: str) -> None:
    """In its docstring, or on the page of examples. What raises an error and what helps is a page of its own."""
    assert CLASSES[name].__doc__
    assert (
        ">>>" in sections(CLASSES[name]).get("Example", "") or f"\n## {name.removeprefix('headwater.')}\n" in EXAMPLES
    )


@pytest.mark.parametrize("name", CLASSES)
def test_methods_of_public_classes_say_what_they_take(name: str) -> None:
    for member, value in list_members(CLASSES[name]):
        said = inspect.getdoc(value if isinstance(value, property) else getattr(CLASSES[name], member))
        assert said, f"{name}.{member} has no docstring"
        if not isinstance(value, property):
            named = [one.name for one in parameters_of(value) if one.kind is not one.VAR_KEYWORD]
            missing = [one for one in named if not re.search(rf"`(?:[^`]*\W)?{one}\b", said)]
            assert missing == [], f"{name}.{member} does not say what {missing} are"


def bare(first: int, second: int) -> int:
    """`first` is the first.

    Args:
        first: the first

    Raises:
        NoSuchError: never
    """
    return first + second


def test_what_a_docstring_leaves_out_would_be_seen() -> None:
    said = sections(bare)
    assert entries(said["Args"]) == ["first"] != [one.name for one in parameters_of(bare)]
    assert "Returns" not in said
    assert "Example" not in said
    assert [error_called(one) for one in entries(said["Raises"])] == [None]


# Calls that are refused: each error is one that the function's docstring names.
MODEL = "headwater/sentiment"
REFUSED: dict[str, list[Callable[[], Any]]] = {
    "explain": [
        lambda: hw.explain(MODEL, "a film", method="lpr"),
        lambda: hw.explain(MODEL, ""),
        lambda: hw.explain(MODEL, "a film", target="angry"),
        lambda: hw.explain(hw.load(MODEL)[0].train(), {"input_ids": torch.tensor([[2, 3]])}),
    ],
    "audit": [lambda: hw.audit(MODEL, ["a film", "a film"]), lambda: hw.audit(MODEL, "a film", method="a-flo")],
    "compare": [lambda: hw.compare(MODEL, ["a film", "b"]), lambda: hw.compare(MODEL, "a film", methods=["lpr"])],
    "estimate": [lambda: hw.estimate(MODEL, "a film", memory_limit="1MB"), lambda: hw.estimate(MODEL, [])],
    "explain_entities": [
        lambda: hw.explain_entities(MODEL, "a film"),
        lambda: hw.explain_entities(MODEL, "a", target=0),
    ],
    "session": [lambda: hw.session(MODEL, method="lpr"), lambda: hw.session(MODEL, dtype="float3")],
    "fast_attention": [lambda: hw.fast_attention(hw.load(MODEL)[0].classifier)],
    "load": [lambda: hw.load("/no/such/directory")],
    "patch": [
        lambda: hw.patch(MODEL, "a film", "layer 30 head 5"),
        lambda: hw.patch(MODEL, "a film", "layer 3 heads", with_="a longer film"),
    ],
    "patch_each": [lambda: hw.patch_each(MODEL, "a film", ["layer 30 head 5"])],
    "difference": [lambda: hw.difference(MODEL, "a film", "a film", inside="hands")],
    "circuit": [lambda: hw.circuit(MODEL, "a film", parts=["hands"])],
    "explain_similarity": [
        lambda: hw.explain_similarity(hw.load(MODEL)[0].bert, "", "b", tokenizer=hw.load(MODEL)[1]),
        lambda: hw.explain_similarity(hw.load(MODEL)[0].bert, "a", "b", tokenizer=hw.load(MODEL)[1], pooling="men"),
    ],
    "rank": [lambda: hw.rank(hw.load(MODEL)[0].bert, "a", [], tokenizer=hw.load(MODEL)[1])],
    "explain_generation": [
        lambda: hw.explain_generation(MODEL, "a film"),
        lambda: hw.explain_generation(MODEL, "a film", chat=[]),
    ],
    "explain_answer": [lambda: hw.explain_answer(MODEL, "a film?", documents=["a"])],
    "evaluate": [
        lambda: hw.evaluate(MODEL, [("a film", "positive")], methods=[]),
        lambda: hw.evaluate(MODEL, "missing.parquet", methods=["gi"]),
        lambda: hw.evaluate(MODEL, [("a film", "angry")], methods=["gi"]),
    ],
    "audit_bias": [
        lambda: hw.audit_bias(MODEL, ["a film"], permutations=0),
        lambda: hw.audit_bias(MODEL, "missing.csv"),
    ],
    "run": [lambda: hw.run(MODEL, "missing.csv", "out"), lambda: hw.run(MODEL, "missing.csv", "out", engine="rai")],
    "open_run": [lambda: hw.open_run("missing")],
}


def test_every_function_is_refused_something() -> None:
    """`recorded` refuses nothing."""
    assert {name.removeprefix("headwater.") for name in FUNCTIONS if name.count(".") == 1} - {*REFUSED} == {"recorded"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_as_the_docstring_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = entries(sections(getattr(hw, name))["Raises"])
    for call in REFUSED[name]:
        with pytest.raises(errors.HeadwaterError) as caught:
            call()
        assert {kind.__name__ for kind in type(caught.value).__mro__} & {*named}, repr(caught.value)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What an example registers is gone after it."""
    known: list[dict[Any, Any]] = [registry._METHODS, registry._MAKERS, OPERATIONS, VARIANTS, measures._MEASURES]
    known.append(handlers.RULES_AT)
    before = [dict(one) for one in known]
    yield
    for one, old in zip(known, before, strict=True):
        one.clear()
        one.update(old)


def with_examples() -> list[str]:
    return [name for name, value in public_values().items() if "Example" in sections(value)]


@pytest.mark.slow
@pytest.mark.parametrize("name", with_examples())
@pytest.mark.usefixtures("registries")
def test_the_example_of_a_docstring_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = sections(public_values()[name])["Example"]
    for package in ("rdkit", "networkx", "torch_geometric", "pyarrow"):
        if re.search(rf"(import|from) {package}", example):
            pytest.importorskip(package)
    if "CCO" in example:  # a molecule is read from its string
        pytest.importorskip("rdkit")
    if "smollm2" in example:
        smollm2()
    assert "+SKIP" not in example
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    test = doctest.DocTestParser().get_doctest(example, {"hw": hw, "torch": torch}, name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test, out=said.append).failed == 0, "".join(said)
    assert len(test.examples) > 0
