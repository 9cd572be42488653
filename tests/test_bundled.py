"""The model that comes with the package: small, safe to read, good enough, and blind to `tune`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from real_data import need_real_data

from headwater.models.bundled import bundled_path, load_bundled
from headwater_experiments.data import load, split_words
from headwater_experiments.training.accuracy import Accuracy, evaluate_accuracy

MEGABYTES = 1_000_000


def test_it_fits_in_eight_megabytes() -> None:
    assert sum(file.stat().st_size for file in bundled_path().iterdir()) <= 8 * MEGABYTES


def test_its_weights_are_only_data() -> None:
    """Safetensors, text and JSON: nothing that is unpickled or run when it is read."""
    assert {file.suffix for file in bundled_path().iterdir()} == {".json", ".safetensors", ".md"}


def test_it_loads_in_float32_and_evaluation_mode() -> None:
    model, _ = load_bundled()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("a gripping, beautifully acted film", "positive"),
        ("An unforgettable, warm and very funny movie.", "positive"),
        ("a dull and lifeless mess", "negative"),
        ("One of the worst movies of the year: boring, clumsy and far too long.", "negative"),
    ],
)
def test_it_tells_praise_from_blame(text: str, label: str) -> None:
    model, tokenizer = load_bundled()
    with torch.inference_mode():
        probability = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
    assert probability[model.config.label2id[label]] > 0.8


def test_any_english_word_can_be_spelt() -> None:
    """Every word has pieces of its own; a word of another script is one [UNK]."""
    _, tokenizer = load_bundled()
    assert tokenizer.unk_token not in tokenizer.tokenize("Xylophagous naïveté: “qwrtzpx” — 3½ €5 @#~^ bjørk")
    assert tokenizer.tokenize("日") == [tokenizer.unk_token]


def test_special_pieces_come_first() -> None:
    model, tokenizer = load_bundled()
    pieces = tokenizer.convert_ids_to_tokens(list(range(5)))
    assert pieces == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(tokenizer) == model.config.vocab_size
    assert tokenizer.model_max_length == model.config.max_position_embeddings


def test_finding_it_loads_no_torch() -> None:
    code = "import sys, headwater.models.bundled as b; b.bundled_path(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_interval_is_wilsons() -> None:
    """Eight of ten, and none of ten: worked out by hand from Wilson's formula with z = 1.96."""
    assert Accuracy(8, 10).interval == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert Accuracy(0, 10).interval == pytest.approx((0.0, 0.2775), abs=1e-4)


@pytest.mark.slow
def test_accuracy_on_sst2_dev() -> None:
    need_real_data()
    accuracy = evaluate_accuracy(split="dev")
    assert accuracy.total == 872
    assert accuracy.value >= 0.82
    card = (bundled_path() / "README.md").read_text(encoding="utf-8")
    stated = re.search(r"this model, as shipped.*\((\d+) of 872", card)
    assert stated is not None
    assert abs(int(stated[1]) - accuracy.correct) <= 1  # one sentence is so near the line that arithmetic may decide


@pytest.mark.slow
def test_no_training_row_holds_a_tune_sentence() -> None:
    need_real_data()
    rows = "\n".join(" ".join(split_words(text)) for text in load("sst2", "train-without-tune").texts)
    assert not [text for text in load("sst2", "tune").texts if " ".join(split_words(text)) in rows]


def test_results_name_the_model_and_not_where_it_lies():
    assert load_bundled()[0].config._name_or_path == "headwater/sentiment"
