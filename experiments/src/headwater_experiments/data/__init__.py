"""Labelled texts by name: from a directory of files, or from the Hugging Face hub. Knows nothing of explanations."""

from headwater.inputs.table import Table

from .catalogue import DATASETS, Dataset, load, named
from .experiments import Experiment, experiment
from .holding import hold_back, whole_sentences, words

__all__ = [
    "DATASETS",
    "Dataset",
    "Experiment",
    "Table",
    "experiment",
    "hold_back",
    "load",
    "named",
    "whole_sentences",
    "words",
]
