"""A measure: how many tokens carry half of the relevance. Fewer make an explanation easier to read."""

import numpy as np

from headwater.evaluation.measures import Measure


def tokens_for_half(part, method, explanations, targets, seed):
    """The share of tokens, the largest first, whose |relevance| adds up to half of all."""
    found = []
    for e in explanations:
        sizes = np.sort(np.abs(e.relevance.double().numpy()))[::-1].cumsum()
        found.append((np.searchsorted(sizes, sizes[-1] / 2) + 1) / len(sizes))
    return np.array(found)


half = Measure(
    "half",
    "share of tokens that carry half of the relevance",
    "lower",
    title="tokens for half",
    compute=tokens_for_half,
)
