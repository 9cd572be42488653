"""Shared by all tests: one thread for torch, no talk from transformers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # the models are tiny: threads would wait for each other, and for what else runs here
