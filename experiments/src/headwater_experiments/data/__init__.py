"""Labelled texts by name: from a directory of files, or from the Hugging Face hub. Knows nothing of explanations."""

from headwater.inputs.table import LabelledTexts

from .catalogue import DATASETS, Dataset, load, named
from .experiments import Experiment, experiment
from .holding import hold_back, whole_sentences, words

__all__ = [
    "DATASETS",
    "Dataset",
    "Experiment",
    "LabelledTexts",
    "experiment",
    "hold_back",
    "load",
    "named",
    "whole_sentences",
    "words",
]
