"""The small vision transformer for MNIST: transformers' own ViT, of a size that a processor trains in minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwater_experiments.models.superpixels import load_mnist_images
from headwater_experiments.paper import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIDE, PATCH, CLASSES = 28, 4, 10
MEAN, SPREAD = 0.1307, 0.3081  # of the training part's grey, between 0 and 1
HELD_BACK = 5000


@dataclass(frozen=True)
class Digits:
    """Images [images, 1, 28, 28] as the processor makes them, and their labels."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> Digits:
        return Digits(self.pixels[rows], self.labels[rows])


def load_digits(split: str) -> Digits:
    """MNIST's `train` or `test` part, normalised."""
    images, labels = load_mnist_images(split)
    pixels = (torch.from_numpy(images).float() / 255 - MEAN) / SPREAD
    return Digits(pixels.unsqueeze(1), torch.from_numpy(labels))


def parts(seed: int) -> tuple[Digits, Digits]:
    """MNIST's training part without 5,000 images, and those, drawn with the seed: what is trained on, what chooses."""
    whole = load_digits("train")
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    return whole[order[HELD_BACK:]], whole[order[:HELD_BACK]]


def new_vit(seed: int, width: int, layers: int, heads: int, inner: int) -> PreTrainedModel:
    """A ViT with random weights that follow from the seed."""
    from transformers import ViTConfig, ViTForImageClassification

    names = {i: str(i) for i in range(CLASSES)}
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        image_size=SIDE,
        patch_size=PATCH,
        num_channels=1,
        id2label=names,
        label2id={name: i for i, name in names.items()},
        initializer_range=0.05,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = ViTForImageClassification(config)
    return model


def image_processor() -> Any:
    """What makes an image of any size the model's input."""
    from transformers import ViTImageProcessorPil

    return ViTImageProcessorPil(size={"height": SIDE, "width": SIDE}, image_mean=[MEAN], image_std=[SPREAD])


def model_directory() -> Path:
    """Where a model that is trained anew is written."""
    return checkpoints.home() / "image" / "mnist"
