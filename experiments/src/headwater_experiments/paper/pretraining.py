"""`headwater paper pretrain`: a masked language model of BERT's build, trained on the texts of the experiments.

The authors stood their small transformer on the embeddings of a BERT that is 768 wide and was fitted to the task. Where
BERT's weights cannot be had, this makes a model of that build from the training parts of all seven datasets. Fine-tuned
on a task (`headwater paper train DATASET --model minilm --embeddings DIR`), its embeddings serve the small model
(`--embeddings` again).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, PreTrainedTokenizerBase

from headwater.evaluation.progress import show_progress
from headwater.models.pretrained import MINILM, locate
from headwater_experiments.data import experiment

from .fitting import rise_and_fall
from .published import TEXTS

RECORD = "pretraining.json"
NOTHING = -100  # a position that is not asked for


@dataclass(frozen=True)
class Build:
    """The model's size, BERT's unless said otherwise, and how it is trained. `block` tokens are read at once."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    positions: int = 512
    block: int = 128
    rounds: int = 40
    batch: int = 256
    rate: float = 2e-4
    warmup: float = 0.06
    decay: float = 0.01
    masked: float = 0.15


@dataclass(frozen=True)
class Pretrained:
    """What came of it: the mean loss over masked tokens in every round, on texts that were held back."""

    losses: tuple[float, ...]
    blocks: int
    seconds: float


def pretrain_model(
    out: Path, build: Build | None = None, *, datasets: Sequence[str] = TEXTS, seed: int = 0, device: str = "cpu"
) -> Pretrained:
    """Train on the training parts of the datasets, whose validation parts say how well; write model and tokenizer."""
    build = build or Build()
    began = time.perf_counter()
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(locate(MINILM))
    parts = [experiment(name) for name in datasets]
    train = blocks((text for part in parts for text in part.train.texts), tokenizer, build.block)
    held = blocks((text for part in parts for text in part.validation.texts), tokenizer, build.block)
    model = new_masked_model(build, tokenizer).to(device)
    losses = tuple(rounds(model, train, held, tokenizer, build, seed))
    found = Pretrained(losses, len(train), round(time.perf_counter() - began, 1))
    model.eval().half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    told = {"build": asdict(build), "datasets": list(datasets), "seed": seed, **asdict(found)}
    (out / RECORD).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return found


def new_masked_model(build: Build, tokenizer: PreTrainedTokenizerBase) -> BertForMaskedLM:
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=build.width,
        num_hidden_layers=build.layers,
        num_attention_heads=build.heads,
        intermediate_size=build.inner,
        max_position_embeddings=build.positions,
        pad_token_id=tokenizer.pad_token_id,
    )
    return BertForMaskedLM(config)


def blocks(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, size: int) -> NDArray[np.int32]:
    """All texts one after the other, [CLS] and [SEP] around each, cut into rows of `size` tokens; the rest is left."""
    ids = tokenizer(list(texts), truncation=True, max_length=512)["input_ids"]
    flat = np.concatenate([np.asarray(row, dtype=np.int32) for row in ids])
    return flat[: len(flat) // size * size].reshape(-1, size)


def rounds(
    model: BertForMaskedLM,
    train: NDArray[np.int32],
    held: NDArray[np.int32],
    tokenizer: PreTrainedTokenizerBase,
    build: Build,
    seed: int,
) -> Iterator[float]:
    """The loss on what was held back, after every round."""
    device = model.device
    on_card = device.type == "cuda"
    steps = math.ceil(len(train) / build.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=build.rate, weight_decay=build.decay, fused=on_card)
    total = steps * build.rounds
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rise_and_fall(step, total, build.warmup))
    for number in range(build.rounds):
        chance = torch.Generator().manual_seed(seed * 1000 + number)
        order = torch.randperm(len(train), generator=chance).numpy()
        model.train()
        starts = range(0, len(train), build.batch)
        with show_progress(len(starts), doing=f"round {number + 1}", what="batches") as tick:
            for start in starts:
                rows = torch.from_numpy(train[order[start : start + build.batch]].astype(np.int64))
                with torch.autocast(device.type, torch.bfloat16, enabled=on_card):
                    loss = loss_of(model, rows, tokenizer, build.masked, chance)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                tick(1)
        found = validation_loss(model, held, tokenizer, build)
        tick.say(f"round {number + 1}: held back {found:.4f}")
        yield found


def loss_of(
    model: BertForMaskedLM, rows: Tensor, tokenizer: PreTrainedTokenizerBase, share: float, chance: torch.Generator
) -> Tensor:
    """The mean loss over the masked tokens; scores are computed for these alone."""
    inputs, asked = (part.to(model.device) for part in mask_tokens(rows, tokenizer, share, chance))
    masked = asked != NOTHING
    scores = model.cls(model.bert(input_ids=inputs).last_hidden_state[masked])
    return F.cross_entropy(scores.float(), asked[masked])


@torch.no_grad()
def validation_loss(
    model: BertForMaskedLM, held: NDArray[np.int32], tokenizer: PreTrainedTokenizerBase, build: Build
) -> float:
    """The mean loss, with the same tokens masked each time."""
    model.eval()
    chance = torch.Generator().manual_seed(0)
    found = [
        loss_of(model, torch.from_numpy(held[i : i + 64].astype(np.int64)), tokenizer, build.masked, chance).item()
        for i in range(0, len(held), 64)
    ]
    return float(np.mean(found))


def mask_tokens(
    rows: Tensor, tokenizer: PreTrainedTokenizerBase, share: float, chance: torch.Generator
) -> tuple[Tensor, Tensor]:
    """BERT's masking: of the chosen tokens 8 of 10 become [MASK], one another word, one stays. What is asked for."""
    special: Any = torch.tensor(tokenizer.all_special_ids)
    chosen = (torch.rand(rows.shape, generator=chance) < share) & ~torch.isin(rows, special)
    asked = rows.masked_fill(~chosen, NOTHING)
    kind = torch.rand(rows.shape, generator=chance)
    other = torch.randint(len(tokenizer), rows.shape, generator=chance)
    inputs = rows.masked_fill(chosen & (kind < 0.8), int(tokenizer.mask_token_id))
    return torch.where(chosen & (kind >= 0.9), other, inputs), asked
