"""What each extra is for, as a command or a few lines that need it: run with it alone, and without it.

Nothing but the standard library is imported here: `tests/run_matrix.py` reads it before anything is installed.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

SENTENCE = "a gripping, beautifully acted film"
DIGIT = Path(__file__).parents[1] / "docs" / "images" / "digit.png"
PDF = """
import sys
from pathlib import Path
from headwater.errors import HeadwaterError
from headwater.inputs.document_files import read_pdf
sys.path.insert(0, {tests!r})
from making_pdfs import make_pdf
try:
    print(read_pdf(make_pdf("It was finished in 1889."), Path("a.pdf")))
except HeadwaterError as refusal:
    sys.exit(f"headwater: {{refusal}}")
"""
PLOT = """
import sys
import headwater as hw
from headwater.errors import HeadwaterError
model, tokenizer = hw.load("headwater/sentiment")
try:
    print(type(hw.explain(model, "a good film", tokenizer=tokenizer).plot()).__name__)
except HeadwaterError as refusal:
    sys.exit(f"headwater: {refusal}")
"""
SERVE = """
import sys
from urllib.request import urlopen
from headwater.web.limits import Limits
from headwater.web.models import Loading, models_of
from headwater.web.server import serve_in_thread
from headwater.web.state import AppState
with serve_in_thread(AppState(models_of([], None, None, None, Loading()), Limits(), [])) as address:
    print(urlopen(address).read().decode())
    print(urlopen(address + "help/guide").status)
"""


@dataclass(frozen=True)
class Use:
    """Words for Python that need an extra, what they then say, and what they need beside it."""

    extra: str
    words: tuple[str, ...]
    says: str
    refused: tuple[str, ...] | None = None  # other words where it is missing, if the first say nothing of it
    needs: str = ""  # "Chromium" or "weights": not on every machine
    modules: tuple[str, ...] = ()  # what the extra brings, to be hidden where everything is installed
    includes: str = ""  # another extra that this one brings along, which may be missed first

    def is_named(self, said: str) -> bool:
        """Whether the extra, or the one that it includes, is named in a sentence that says how to have it."""
        return any(f"pip install 'headwater[{name}]'" in said for name in (self.extra, self.includes))

    def run(self, python: Path | str, folder: Path, missing: bool = False, **environment: str) -> tuple[int, str]:
        """Exit code, and what was said on either stream."""
        (folder / "texts.csv").write_text("text\na good film\na dull film\n", encoding="utf-8")
        (folder / "model.gguf").touch()
        words = self.refused if missing and self.refused is not None else self.words
        done = subprocess.run(
            [str(python), *words],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            timeout=600,
        )
        return done.returncode, done.stdout + done.stderr


def command(*words: str) -> tuple[str, ...]:
    return ("-m", "headwater", *words)


def code(text: str) -> tuple[str, ...]:
    return ("-c", text)


APP = command("app", "--no-browser", "--port", "0")
RUN = command("run", "--data", "texts.csv", "--columns", "text", "--out", "out", "--workers", "1")
GGUF, NO_GGUF = (command("explain", "Paris is", "-m", name) for name in ("smollm2", "model.gguf"))
USES = (
    Use("data", RUN, "2 rows", modules=("pyarrow", "datasets", "pandas")),
    Use("gguf", GGUF, "closed", refused=NO_GGUF, needs="weights", modules=("gguf",)),
    Use("flow", command("explain", SENTENCE, "--method", "a-flow"), "a-flow", modules=("scipy",)),
    Use("captum", command("explain", SENTENCE, "--method", "lime"), "lime", modules=("captum",)),
    Use("graphs", command("explain", "--smiles", "CCO"), "closed", modules=("rdkit",)),
    Use("images", command("explain", "--image", str(DIGIT)), "closed", modules=("PIL",)),
    Use("documents", code(PDF.format(tests=str(Path(__file__).parent))), "1889", modules=("pypdf",)),
    Use("plot", code(PLOT), "Axes", modules=("matplotlib",)),
    Use("cluster", (*RUN, "--engine", "ray"), "2 rows", modules=("ray",), includes="data"),
    Use("web", code(SERVE), "200", refused=APP, modules=("fastapi",)),
    Use(
        "screenshot",
        command("app", "--screenshot", "shot.png"),
        "wrote shot.png",
        needs="Chromium",
        modules=("playwright",),
        includes="web",
    ),
)
