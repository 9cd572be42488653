"""Runs the notebooks of `examples` from top to bottom and stores their outputs in them: `make notebooks`.

They are run by IPython in this process, so that neither a kernel nor a server is needed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
NUMBER = re.compile(r"[-+−]?\d[\d.,]*(e[-+]?\d+)?")


def read_notebook(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def run_cells(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell, as a notebook stores them."""
    from IPython.core.displayhook import CapturingDisplayHook
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.clear_instance()
    shell, found = InteractiveShell.instance(), []
    try:
        for number, cell in enumerate(code_cells(notebook), 1):
            shell.display_trap.hook = hook = CapturingDisplayHook(shell, outputs=[])
            with capture_output(display=False) as captured:
                result = shell.run_cell("".join(cell["source"]))
            result.raise_error()
            found.append(make_outputs(captured.stdout, hook.outputs, number))
    finally:
        InteractiveShell.clear_instance()
    return found


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def make_outputs(printed: str, results: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """What was printed, then what the cell ends on."""
    made: list[dict[str, Any]] = []
    if printed:
        made.append({"name": "stdout", "output_type": "stream", "text": lines(printed)})
    for shown in results:
        data = {kind: lines(text) for kind, text in sorted(shown["data"].items())}
        made.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return made


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def without_numbers(outputs: list[dict[str, Any]]) -> list[str]:
    """What was printed, and values that are no pictures. Numbers are left out: last digits differ between machines."""
    plain = [one for one in outputs if "text/html" not in one.get("data", {})]
    texts = ["".join(one.get("text") or one["data"]["text/plain"]) for one in plain]
    return [" ".join(NUMBER.sub("#", text).split()) for text in texts]


def store_outputs(file: Path) -> None:
    notebook = read_notebook(file)
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), run_cells(notebook), strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, outputs
    file.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    named = [Path(name) for name in sys.argv[1:]]
    for file in named or sorted(EXAMPLES.glob("*.ipynb")):
        store_outputs(file)
        print(f"ran {file.name}")  # noqa: T201
