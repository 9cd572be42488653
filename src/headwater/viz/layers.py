"""An audit, layer by layer: relevance on its way from the score to the inputs, and where it is lost."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.results.audit import Audit, Leak

from .reading import layer_of, sum_by_layer

ELSEWHERE = "elsewhere"
TINY = 1e-3  # of the ledger's size: an audit names no leak that is much less, so neither is it a layer of its own


@dataclass(frozen=True)
class Layer:
    """What one layer did to relevance: of what `arrives` from the score, its biases and constants take `sources`.

    `lost` went nowhere (below 0: it was invented), the rest `leaves` towards the inputs. `leaks` say in which
    operations, the largest first.
    """

    name: str
    arrives: float
    sources: float
    leaks: tuple[Leak, ...]
    lost: float

    @property
    def leaves(self) -> float:
        return self.arrives - self.sources - self.lost


def audit_layers(audit: Audit) -> list[Layer]:
    """Every layer, starting at the score. The relevance that leaves one layer arrives at the next.

    The ledger's lines and the leaks add up to the score. So what leaves the last layer is the relevance of the inputs.
    """
    ledger = audit.explanation.ledger
    sources = sum_by_layer({name: amount for lines in ledger.groups.values() for name, amount in lines.items()})
    leaks: dict[str, list[Leak]] = {}
    for leak in audit.leaks:
        leaks.setdefault(layer_of_module(leak.module), []).append(leak)
    names = reversed(list(dict.fromkeys(layer_of_module(flow.name) for flow in audit.modules)))
    arrives, found = ledger.score - ledger.readout, list[Layer]()
    for name in names:
        taken, lost = sources.pop(name, 0.0), leaks.pop(name, [])
        if taken or lost or any(part.isdigit() for part in name.split(".")):
            found.append(make_layer(name, arrives, taken, lost))
            arrives = found[-1].leaves
    others = [leak for some in leaks.values() for leak in some]
    taken = sum(sources.values())
    last = make_layer(ELSEWHERE, arrives, taken, others, arrives - taken - ledger.inputs)
    return [*found, last] if max(abs(last.sources), abs(last.lost)) > TINY * ledger.size else found


def make_layer(name: str, arrives: float, sources: float, leaks: list[Leak], lost: float | None = None) -> Layer:
    ordered = tuple(sorted(leaks, key=lambda leak: -abs(leak.amount)))
    return Layer(name, arrives, sources, ordered, sum(leak.amount for leak in leaks) if lost is None else lost)


def layer_of_module(module: str) -> str:
    """The layer of a module by its dotted name; what is the model's own has none."""
    return layer_of(f"{module}.x") if module else ELSEWHERE


@dataclass(frozen=True)
class LayerSum:
    """One place on the way from the score back to the inputs: `relevance` + `taken` + `lost` = the score.

    `taken` is what biases and constants (and the readout) took on the way to this place, `lost` what went nowhere.
    """

    name: str
    relevance: float
    taken: float
    lost: float


def layer_sums(audit: Audit) -> list[LayerSum]:
    """What there is at every layer, and last at the inputs."""
    ledger = audit.explanation.ledger
    taken, lost, found = ledger.readout, 0.0, list[LayerSum]()
    for one in audit_layers(audit):
        found.append(LayerSum(one.name, one.arrives, taken, lost))
        taken, lost = taken + one.sources, lost + one.lost
    taken = ledger.readout + sum(lines.total for lines in ledger.groups.values())
    return [*found, LayerSum("inputs", ledger.inputs, taken, ledger.unaccounted)]
