"""The training of the bundled model, on a made-up SST-2 and a teacher of a few hundred weights."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest
import torch
from real_data import any_counts
from transformers import BertConfig, BertModel

from headwater.errors import LoadError
from headwater.inputs.table import DATA_DIRECTORY
from headwater.models.bundled import load_classifier
from headwater_experiments import data
from headwater_experiments.data import LabelledTexts
from headwater_experiments.training import bundled
from headwater_experiments.training.augmentation import MASK, Variation, vary
from headwater_experiments.training.distillation import NO_LABEL, NO_WORD, Collate, Distillation, Rounds, word_means
from headwater_experiments.training.fitting import Phase
from headwater_experiments.training.student import SPECIAL, StudentShape, choose_pieces, small_model, small_tokenizer

PRAISE, BLAME, OTHER = ["good", "warm", "fine"], ["bad", "cold", "dull"], ["film", "plot", "cast", "an", "the", "very"]
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
PIECES = [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), "[unused0]", "日", ".", *PRAISE, *BLAME, *OTHER]
STILL = Variation(mask=0, swap=0, cut=0, join=0)
TINY = bundled.BundledRecipe(
    shape=StudentShape(pieces=len(PIECES), hidden=12, layers=2, heads=2, intermediate=24, positions=32),
    teacher=Phase(rounds=8, batch=16, rate=5e-3),
    student=Phase(rounds=10, batch=16, rate=5e-3, varied=1),
    longest=24,
    workers=0,
)


def reviews(count: int = 150) -> tuple[list[str], list[int]]:
    """Sentences of nine words and phrases of three: the label is whether the words of praise are in it."""
    rng, texts, labels = random.Random(0), [], []
    for i in range(count):
        core = rng.choices(PRAISE if i % 2 else BLAME, k=3)
        texts += [" ".join([*rng.choices(OTHER, k=3), *core, *rng.choices(OTHER, k=3)]) + " .", " ".join(core)]
        labels += [i % 2, i % 2]
    return texts, labels


@pytest.fixture
def sst2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabelledTexts:
    texts, labels = reviews()
    (tmp_path / "data" / "sst2").mkdir(parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True))
        (tmp_path / "data" / "sst2" / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    any_counts(monkeypatch)
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path / "data"))
    return LabelledTexts(texts, labels, ("negative", "positive"), "made up")


@pytest.fixture
def teacher(tmp_path: Path) -> str:
    """A pretrained encoder without a head, as MiniLM is, with random weights."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(tmp_path / "teacher")
    small_tokenizer(PIECES, 64).save_pretrained(tmp_path / "teacher")
    return str(tmp_path / "teacher")


@pytest.mark.slow
def test_a_training_writes_a_model_that_has_learnt(sst2: LabelledTexts, teacher: str, tmp_path: Path) -> None:
    report = bundled.train_bundled(tmp_path / "out", teacher, seed=1, keep_teacher=tmp_path / "tuned", recipe=TINY)
    assert report.student_validation.value > 0.9
    assert bundled.evaluate_accuracy(tmp_path / "out").value > 0.9
    assert bundled.evaluate_accuracy(tmp_path / "tuned").value > 0.9
    assert report.bytes == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float16"


def test_the_same_seed_gives_the_same_weights(sst2: LabelledTexts, teacher: str, tmp_path: Path) -> None:
    once = dataclasses.replace(TINY, teacher=Phase(1, 16, 1e-3), student=Phase(1, 32, 1e-3, varied=1), limit=64)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        bundled.train_bundled(tmp_path / name, teacher, seed=seed, recipe=once)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_training_and_validation_share_no_phrase(sst2: LabelledTexts) -> None:
    parts = bundled.split_training(TINY)
    held = [" ".join(data.split_words(text)) for text in parts.validation.texts]
    assert held
    assert not any(" ".join(data.split_words(text)) in sentence for text in parts.train.texts for sentence in held)


def test_the_command_line_answers_in_json(
    sst2: LabelledTexts,
    teacher: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setattr(bundled, "BundledRecipe", lambda: dataclasses.replace(TINY, limit=64))
    bundled.run_bundled_command(["train", "--out", str(tmp_path / "out"), "--teacher", teacher])
    assert json.loads(capsys.readouterr().out)["seed"] == 0
    bundled.run_bundled_command(["evaluate", "--model", str(tmp_path / "out")])
    assert json.loads(capsys.readouterr().out)["total"] == len(sst2)


def test_pieces_are_special_ones_letters_then_the_most_frequent(teacher: str) -> None:
    _, tokenizer = bundled.load_teacher(teacher)
    pieces = choose_pieces(tokenizer, ["a film", "film plot film 日"], len(SPECIAL) + 2 * len(LETTERS) + 3)
    assert tuple(pieces[:5]) == SPECIAL
    assert set(LETTERS) | {f"##{c}" for c in LETTERS} | {"."} < set(pieces)
    assert pieces[-2:] == ["film", "日"]  # "plot" is as frequent as "日" and comes later in the teacher's list
    assert "[unused0]" not in pieces


def test_embeddings_of_full_width_are_the_teachers_turned(teacher: str) -> None:
    """With as many axes as the teacher has, a projection only turns the centred words: distances stay."""
    model, tokenizer = bundled.load_teacher(teacher)
    shape = dataclasses.replace(TINY.shape, hidden=16)
    student = small_model(shape, PIECES, model, tokenizer.get_vocab())
    ours, theirs = (m.bert.embeddings.word_embeddings.weight.detach().double() for m in (student, model))
    torch.testing.assert_close(torch.cdist(ours, ours), torch.cdist(theirs, theirs), atol=1e-6, rtol=0)


def test_word_means_by_hand() -> None:
    """Two tokens of word 1 count half each; a token without a word counts nowhere."""
    means = word_means(torch.tensor([[0, 1, 1, NO_WORD]]), 3)
    assert means.tolist() == [[[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 0]]]


def test_a_student_that_equals_its_teacher_has_no_loss(teacher: str) -> None:
    """Same logits, same states: nothing is left but the label's part, which is switched off."""
    model, tokenizer = bundled.load_teacher(teacher)
    loss = Distillation(model.eval(), model, label_weight=0.0, state_weight=1.0)
    (batch,) = Collate((tokenizer, tokenizer), 4, 24)([("a good film", 1), ("dull plot", NO_LABEL)])
    assert loss(batch) > 0.1
    with torch.no_grad():
        loss.widen.weight.copy_(torch.eye(16))
        loss.widen.bias.zero_()
    assert loss(batch).item() == pytest.approx(0, abs=1e-6)


def test_each_round_has_every_text_once_and_its_variations_without_a_label(sst2: LabelledTexts) -> None:
    rows = Rounds(sst2, rounds=2, varied=1, variation=STILL, seed=0)
    order = list(rows.order())
    assert sorted(order) == list(range(len(rows))) != order
    first = [rows[i] for i in order[: rows.size]]
    assert sorted(text for text, label in first if label != NO_LABEL) == sorted(sst2.texts)
    assert sum(label == NO_LABEL for _, label in first) == len(sst2)


def test_variations_mask_swap_and_join_as_often_as_asked(sst2: LabelledTexts) -> None:
    def varied(**chances: float) -> list[str]:
        variation = dataclasses.replace(STILL, **chances)
        return [vary(sst2.texts, i, random.Random(i), variation) for i in range(len(sst2))]

    assert varied() == sst2.texts
    assert {word for text in varied(mask=1.0) for word in text.split()} == {MASK}
    assert all(len(new) < len(old) for new, old in zip(varied(cut=1.0), sst2.texts, strict=True) if new != old)
    assert all(48 <= text.count(" ") < 96 for text in varied(join=1.0))
    assert varied(swap=1.0) != sst2.texts


def test_a_model_without_a_tokenizer_is_refused(teacher: str, tmp_path: Path) -> None:
    model, _ = bundled.load_teacher(teacher)
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(LoadError, match="tokenizer"):
        load_classifier(tmp_path / "bare")
