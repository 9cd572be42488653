"""Labelled texts by name: from a directory of files, or from the Hugging Face hub. Knows nothing of explanations."""

from .catalogue import DATASETS, DIRECTORY, Dataset, load, named
from .experiments import Experiment, experiment
from .holding import hold_back, whole_sentences, words
from .tables import Table

__all__ = [
    "DATASETS",
    "DIRECTORY",
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
