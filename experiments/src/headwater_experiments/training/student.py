"""A small BERT made from a large one: fewer word pieces, narrower layers, embeddings that start at the teacher's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LABELS = ("negative", "positive")
LATIN_ENDS = 0x250
MARKS = range(0x2010, 0x20C0)  # dashes, quotation marks, ellipsis, currencies


@dataclass(frozen=True)
class StudentShape:
    """The size of the small model. In half precision these numbers give the 8 MB that the package can carry."""

    pieces: int = 9500
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    intermediate: int = 768
    positions: int = 256


def choose_pieces(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], size: int) -> list[str]:
    """The teacher's word pieces that are worth keeping: special ones, characters, then the most frequent in the texts.

    With every Latin character kept, any English word can be spelt. A word of another script becomes [UNK].
    """
    count = Counter(piece for row in tokenizer(list(texts), add_special_tokens=False)["input_ids"] for piece in row)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: (-count[item[1]], item[1]))
    ranked = [piece for piece, _ in vocabulary if piece not in SPECIAL and not piece.startswith("[unused")]
    characters = [piece for piece in ranked if _is_character(piece)]
    kept = set(characters)
    frequent = [piece for piece in ranked if piece not in kept]
    return [*SPECIAL, *characters, *frequent][:size]


def _is_character(piece: str) -> bool:
    letter = piece.removeprefix("##") if len(piece) > 2 else piece
    return len(letter) == 1 and (ord(letter) < LATIN_ENDS or ord(letter) in MARKS)


def small_tokenizer(pieces: Iterable[str], positions: int) -> BertTokenizer:
    """A lower-casing WordPiece tokenizer over these pieces; ids follow their order, so [PAD] is 0."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=positions)


def small_model(
    shape: StudentShape, pieces: Sequence[str], teacher: PreTrainedModel, vocabulary: dict[str, int]
) -> BertForSequenceClassification:
    """A BERT classifier of this shape. Its embeddings are the teacher's, projected on their first principal axes."""
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=shape.positions,
        pad_token_id=0,
        id2label=dict(enumerate(LABELS)),
        label2id={name: i for i, name in enumerate(LABELS)},
    )
    student = BertForSequenceClassification(config)
    _copy_embeddings(student, teacher, [vocabulary[piece] for piece in pieces])
    return student


@torch.no_grad()
def _copy_embeddings(student: BertForSequenceClassification, teacher: PreTrainedModel, ids: Sequence[int]) -> None:
    """Words are centred before the projection, positions and types not: their sum only moves by a constant."""
    source, target = teacher.bert.embeddings, student.bert.embeddings
    words = source.word_embeddings.weight[list(ids)].float().cpu()
    centred = words - words.mean(0)
    axes = _principal_axes(centred, student.config.hidden_size)
    positions = source.position_embeddings.weight[: student.config.max_position_embeddings].float().cpu()
    target.word_embeddings.weight.copy_(centred @ axes)
    target.position_embeddings.weight.copy_(positions @ axes)
    target.token_type_embeddings.weight.copy_(source.token_type_embeddings.weight.float().cpu() @ axes)


def _principal_axes(centred: Tensor, count: int) -> Tensor:
    """The directions of largest variance, as columns."""
    axes: Tensor = torch.linalg.svd(centred, full_matrices=False).Vh
    return axes[:count].T
