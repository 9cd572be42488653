"""What masking showed: the change of the score, beside what each method had given to what was masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .verdict import Phrase, amount, list_names, write_phrases

NAMED = 6  # masked inputs that a sentence names
SMALL = 0.02  # of the score before: a change that is no change
TIE = 0.02  # of the change: methods that differ by less were equally near,
TIE_OFF = 0.05  # and of the distance: of two that are far off, a little less far is not nearer
FAR = 0.75  # of the change: who is further off did not come near


@dataclass(frozen=True)
class MaskTest:
    """A score before and after some inputs were masked, and `claims`: the relevance that each method gave to them.

    The quickest test of an explanation, and no more: relevance says what an input gave to this score, masking what
    the model makes of another input. Where inputs act together the two may differ, and both be right.
    """

    masked: tuple[str, ...]
    target: str
    before: float
    after: float
    claims: tuple[tuple[str, float], ...]

    @property
    def took(self) -> float:
        """How much the score lost by the masking."""
        return self.before - self.after

    @property
    def nearest(self) -> tuple[str, ...]:
        """The methods whose claim came nearest to what was lost; several, where they were equally near."""
        off = {method: abs(claim - self.took) for method, claim in self.claims}
        least = min(off.values(), default=0.0)
        room = max(TIE * abs(self.took), TIE_OFF * least)
        return tuple(method for method, far in off.items() if far - least <= room)

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """ "Masking *not* took 5.2 from positive; *lrp* had said 8.8, *gi* 1.0: *lrp* was nearer"."""
        return (*self._change(), *self._claims(), *self._nearest())

    def __str__(self) -> str:
        return write_phrases(self.phrases)

    def _change(self) -> list[Phrase]:
        names = list_names(self.masked[:NAMED])
        if len(self.masked) > NAMED:
            names.append(Phrase(f" and {len(self.masked) - NAMED} more"))
        said = self._size(self.took)
        if abs(self.took) <= SMALL * abs(self.before):
            changed = f" hardly changed {self.target} ({amount(-self.took, self.before)})"
        elif self.took > 0:
            changed = f" took {said} from {self.target}"
        else:
            changed = f" added {said} to {self.target}"
        return [Phrase("Masking "), *names, Phrase(changed)]

    def _claims(self) -> list[Phrase]:
        """What each method had said, counted in the direction of the change."""
        sign, found = -1 if self.took < 0 else 1, list[Phrase]()
        for i, (method, claim) in enumerate(self.claims):
            said = self._size(claim) if claim * sign >= 0 else f"-{self._size(claim)}"
            found += [Phrase("; " if i == 0 else ", "), Phrase(method, True)]
            found.append(Phrase(f" had said {said}" if i == 0 else f" {said}"))
        return found

    def _nearest(self) -> list[Phrase]:
        if len(self.claims) < 2:
            return []
        if len(self.nearest) == len(self.claims):
            pair = len(self.claims) == 2
            if abs(self.claims[0][1] - self.took) > FAR * abs(self.took):
                return [Phrase(": neither came near" if pair else ": none came near")]
            return [Phrase(": both were equally near" if pair else ": all were equally near")]
        was = "was" if len(self.nearest) == 1 else "were"
        return [
            Phrase(": "),
            *list_names(self.nearest),
            Phrase(f" {was} near{'er' if len(self.claims) == 2 else 'est'}"),
        ]

    def _size(self, value: float) -> str:
        return amount(abs(value), self.took or self.before).lstrip("+")


def sum_claims(relevance: Sequence[float], masked: Sequence[int]) -> float:
    """The relevance of what was masked, together."""
    return float(sum(relevance[i] for i in set(masked)))
