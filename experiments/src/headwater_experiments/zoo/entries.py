"""What is in the zoo: the entries of transformers' maps from names of configurations to classes with a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.errors import UnknownName

# Our name of a map -> transformers' name of it. The first three are those that the targets are stated for.
MAPS = {
    "sequence-classification": "SEQUENCE_CLASSIFICATION",
    "causal-lm": "CAUSAL_LM",
    "image-classification": "IMAGE_CLASSIFICATION",
    "masked-lm": "MASKED_LM",
    "token-classification": "TOKEN_CLASSIFICATION",
    "question-answering": "QUESTION_ANSWERING",
    "seq2seq": "SEQ_TO_SEQ_CAUSAL_LM",
    "speech-classification": "AUDIO_CLASSIFICATION",
}


METHOD = "lrp"


@dataclass(frozen=True)
class Entry:
    """One line of a map: a kind of configuration, and the class that the map gives for it. `method` explains it."""

    map: str
    name: str
    model: str
    method: str = METHOD

    @property
    def label(self) -> str:
        return f"{self.map}/{self.name}"


def entries(maps: Sequence[str] = (), names: Sequence[str] = (), method: str = METHOD) -> list[Entry]:
    """The zoo, or a part of it; `names` are names of configurations, or labels such as causal-lm/gpt2."""
    for map_name in maps:
        if map_name not in MAPS:
            raise UnknownName("map", map_name, MAPS)
    every = [entry for map_name in maps or MAPS for entry in entries_of(map_name)]
    known = [one for entry in every for one in (entry.name, entry.label)]
    for name in names:
        if name not in known:
            raise UnknownName("architecture", name, dict.fromkeys(known))
    chosen = [entry for entry in every if not names or entry.name in names or entry.label in names]
    return [replace(entry, method=method) for entry in chosen]


def entries_of(map_name: str) -> list[Entry]:
    from transformers.models.auto import modeling_auto

    table = getattr(modeling_auto, f"MODEL_FOR_{MAPS[map_name]}_MAPPING_NAMES")
    return [Entry(map_name, name, found if isinstance(found, str) else found[0]) for name, found in table.items()]
