"""Labelled texts as a table, and where datasets are looked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

DATA_DIRECTORY = "HEADWATER_DATA"  # the environment variable that names the directory of datasets


@dataclass(frozen=True)
class LabelledTexts:
    """Texts and their labels, in the order of the source. `source` says where they were read."""

    texts: list[str]
    labels: list[int]
    label_names: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, keep: Sequence[int]) -> LabelledTexts:
        """The rows at these positions, as a table of the same source."""
        return LabelledTexts(
            [self.texts[i] for i in keep], [self.labels[i] for i in keep], self.label_names, self.source
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """How many rows each label has."""
        found = Counter(self.labels)
        return tuple(found[label] for label in range(len(self.label_names)))
