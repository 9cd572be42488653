"""Errors by name: what each means, what to do, and the messages that the library raises it with."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from docstrings import show_docstring

import headwater
from headwater import errors

# What to do, in a line. A test holds that every class has one.
CURES = {
    "HeadwaterError": "Catch it to catch everything that Headwater raises on purpose.",
    "UsageError": "Read the message: it names the argument, what was found and what is taken.",
    "UnknownName": "Take the name that is offered; `headwater methods` lists methods and rules.",
    "OutOfRange": "Give a number within the range that the message names.",
    "InputError": "Give a text, a pair, a list, tensors, or what the message names.",
    "EmptyInput": "Give at least one word, token or row.",
    "TooLong": "`truncate=True` cuts the text, `window=True` explains it in overlapping windows.",
    "TargetError": "Name a class, a token or a span as the guide's table of targets says; `score=` takes any function.",
    "ModelError": "Read the message: it names the part of the model and what can be done.",
    "TrainingMode": "Call `model.eval()`.",
    "RandomPrediction": "Switch off what draws random numbers in evaluation mode (sampling, dropout as a function).",
    "AnotherPrediction": "The model does something else when gradients are made. Report it with the model's name.",
    "NotFinite": "Compute in float32 or float64 (`dtype=`), and look for NaN in the weights.",
    "HiddenOperation": 'Load with `attn_implementation="sdpa"`, or call `hw.fast_attention(model)`; no TorchScript. '
    "Where neither helps, take a method that needs no rules: `integrated-gradients`, `leave-one-out`, `lime`.",
    "NoSignal": "Name the place to explain with `inputs=`; the score does not depend on the one that was taken.",
    "RuleNotMet": "Leave the rule out, or take `lrp`, which uses the rules that a model needs.",
    "NotApplicable": "Take another method; `headwater methods` says what each needs.",
    "UnsafeWeights": "Ask for safetensors, or pass `allow_pickle=True` if you trust the file.",
    "LoadError": "Check the name or directory; the message says what was looked for and where.",
    "DataError": "Check the path and the columns; `HEADWATER_DATA` names the folder of datasets.",
    "DamagedRun": "Give the command that wrote the run again: it makes what is missing.",
    "BadRow": "Leave `strict` off: bad rows are then listed in `errors.parquet`, and the others are explained.",
    "JobStopped": "Give the same command again: it goes on where it stopped.",
    "MissingExtra": "Install what the message names, for instance `pip install 'headwater[web]'`.",
}
MOST = 12  # messages that are listed for a class


def write_errors(source: Path) -> None:
    said = collect_messages()
    parts = [
        "# Errors by name\n\nAll are in `headwater.errors`, in one tree below `HeadwaterError`. Every message says "
        "what was asked, what was found and what to do. A word in {braces} stands for what is filled in. The page is "
        "made from the source."
    ]
    parts += [show_error(name, kind, said[name]) for name, kind in error_classes().items()]
    (source / "reference" / "errors.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def error_classes() -> dict[str, type[Exception]]:
    """In the order of the file."""
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.HeadwaterError)
    }


def show_error(name: str, kind: type[Exception], messages: list[str]) -> str:
    above = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    cause = show_docstring(kind).split("\n\n")[0]
    lines = [f"## `{name}`", f"A {above}.", f"**Cause.** {cause}", f"**Cure.** {CURES[name]}"]
    if messages:
        more = len(messages) - MOST
        listed = [f"- {as_text(message)}" for message in messages[:MOST]]
        lines.append("**Messages**\n\n" + "\n".join(listed) + (f"\n- and {more} more" if more > 0 else ""))
    return "\n\n".join(lines)


def as_text(message: str) -> str:
    mark = "``" if "`" in message else "`"
    return f"{mark} {message} {mark}" if mark == "``" else f"`{message}`"


def collect_messages() -> dict[str, list[str]]:
    """The text of every `raise` in the library, by the class that is raised; `require_extra` raises `MissingExtra`."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(Path(headwater.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            made = node.exc if isinstance(node, ast.Raise) else node
            if isinstance(made, ast.Call) and made.args:
                name = getattr(made.func, "id", getattr(made.func, "attr", ""))
                if made is node and name != "require_extra":
                    continue
                name = "MissingExtra" if made is node else name
                text = " ".join(write_message(made.args[0]).split())
                if len(text) > 15 and text not in found[name]:
                    found[name].append(text)
    return found


def write_message(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{name_value(part)}}}" for part in node.values
        )
    return ""


def name_value(part: ast.expr) -> str:
    words = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else "…"
    return words if len(words) <= 20 and "'" not in words and '"' not in words else "…"
