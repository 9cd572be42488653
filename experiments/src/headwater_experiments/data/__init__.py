"""Labelled texts by name: from a directory of files, or from the Hugging Face hub. Knows nothing of explanations."""

from headwater.inputs.table import LabelledTexts

from .catalogue import DATASETS, Dataset, find_dataset, load
from .experiments import Experiment, experiment
from .holding import hold_back, split_words, whole_sentences

__all__ = [
    "DATASETS",
    "Dataset",
    "Experiment",
    "LabelledTexts",
    "experiment",
    "find_dataset",
    "hold_back",
    "load",
    "split_words",
    "whole_sentences",
]
