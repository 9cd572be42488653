"""Tensors of a card on their way to main memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def lies_far(tensor: Tensor) -> bool:
    """Whether a tensor lies on a card."""
    return tensor.is_cuda


class HostCopies:
    """Copies in main memory of tensors, which a card makes when it comes to it: it is waited for in `wait`.

    Not for what it is given to do after the copies. What is alike travels as one. What lies in main memory already is
    not copied.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.found: list[Tensor] = list(tensors)
        self.travelling: list[tuple[list[int], Tensor]] = []  # places in `found`, and what lies there, stacked
        alike: dict[tuple[torch.Size, torch.dtype, torch.device], list[int]] = {}
        for place, one in enumerate(self.found):
            if lies_far(one):
                alike.setdefault((one.shape, one.dtype, one.device), []).append(place)
        for places in alike.values():
            stacked = torch.stack([self.found[place] for place in places])
            self.travelling.append((places, stacked.to("cpu", non_blocking=True)))
        cards = {device for _, _, device in alike if device.type == "cuda"}
        self.made: list[torch.cuda.Event] = [torch.cuda.current_stream(card).record_event() for card in cards]

    def wait(self) -> list[Tensor]:
        """The copies, in the order of the tensors."""
        for event in self.made:
            event.synchronize()
        for places, stacked in self.travelling:
            for place, own in zip(places, stacked.unbind(), strict=True):
                self.found[place] = own
        self.made, self.travelling = [], []
        return self.found
