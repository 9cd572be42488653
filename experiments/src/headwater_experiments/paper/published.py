"""The paper's own numbers (Ali et al. 2022), for the columns beside ours: tables 1 and 2, accuracies, runtimes."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS = ("sst2", "imdb", "t-emotions", "t-hate", "t-sentiment", "meld-s", "semaine")
GRAPHS = ("bace", "mnist")
COLUMNS = ("imdb", "sst2", "bace", "mnist", "t-emotions", "t-hate", "t-sentiment", "meld-s", "semaine")

ROWS = ("random", "a-last", "a-flow", "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)")
OURS = ("lrp", "lrp-gamma(0.05)", "attnlrp", "integrated-gradients")

ACCURACY = {"sst2": 0.813, "imdb": 0.881, "mnist": 0.972}
ROC_AUC = {"bace": 0.835}

_ = float("nan")  # the paper leaves A-Flow out where it took too long

_AUAC = {
    "random": (0.673, 0.664, 0.624, 0.324, 0.516, 0.640, 0.484, 0.460, 0.432),
    "a-last": (0.708, 0.712, 0.620, 0.862, 0.542, 0.663, 0.515, 0.483, 0.451),
    "a-flow": (_, 0.711, 0.637, _, _, _, _, _, _),
    "rollout": (0.738, 0.713, 0.653, 0.358, 0.554, 0.659, 0.520, 0.489, 0.441),
    "gae": (0.872, 0.821, 0.675, 0.426, 0.675, 0.762, 0.611, 0.548, 0.532),
    "gi": (0.920, 0.847, 0.646, 0.942, 0.652, 0.772, 0.651, 0.591, 0.529),
    "lrp(ah)": (0.911, 0.855, 0.645, 0.942, 0.675, 0.797, 0.668, 0.594, 0.544),
    "lrp(ln)": (0.935, 0.907, 0.702, 0.947, 0.735, 0.829, 0.710, 0.632, 0.593),
    "lrp(ah+ln)": (0.939, 0.908, 0.707, 0.948, 0.750, 0.838, 0.713, 0.635, 0.606),
}
_AUMSE = {
    "random": (2.16, 3.97, 1.95, 69.82, 4.25, 9.12, 2.87, 2.54, 1.92),
    "a-last": (1.65, 2.56, 1.99, 45.82, 3.73, 7.77, 1.90, 1.74, 1.42),
    "a-flow": (_, 2.52, 1.87, _, _, _, _, _, _),
    "rollout": (1.04, 2.43, 1.77, 115.2, 2.85, 6.55, 1.71, 1.53, 1.40),
    "gae": (1.63, 2.26, 1.66, 59.81, 2.21, 7.40, 1.61, 1.56, 1.37),
    "gi": (0.87, 2.10, 2.06, 18.06, 2.09, 6.69, 1.41, 1.57, 1.43),
    "lrp(ah)": (0.77, 2.02, 2.08, 18.03, 1.83, 6.43, 1.43, 1.69, 1.38),
    "lrp(ln)": (0.69, 1.78, 1.65, 17.55, 1.55, 5.02, 1.25, 1.50, 1.13),
    "lrp(ah+ln)": (0.65, 1.56, 1.61, 17.49, 1.47, 4.88, 1.23, 1.48, 1.08),
}


def by_dataset(table: Mapping[str, tuple[float, ...]]) -> dict[str, dict[str, float]]:
    """Rows of a table as method → dataset → number, without the cells that the paper leaves empty."""
    return {
        method: {name: value for name, value in zip(COLUMNS, row, strict=True) if value == value}
        for method, row in table.items()
    }


TABLES = {"auac": by_dataset(_AUAC), "aumse": by_dataset(_AUMSE)}

RUNTIME = {
    "forward": 0.024,
    "random": 6e-5,
    "a-last": 2e-4,
    "rollout": 4e-4,
    "gae": 0.016,
    "gi": 0.017,
    "lrp(ah)": 0.014,
    "lrp(ah+ln)": 0.012,
}
"""Seconds per sample on SST-2, as printed."""
