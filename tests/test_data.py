"""Datasets by name, and the part of SST-2 that no training may see."""

from __future__ import annotations

import hashlib
import sys
import types
from pathlib import Path

import pytest
from real_data import any_counts, need_real_data

from headwater.errors import DataError, MissingExtra, UnknownName
from headwater.inputs.table import DATA_DIRECTORY
from headwater_experiments import data
from headwater_experiments.data import LabelledTexts, hold_back, load, split_words


def sentence(i: int) -> str:
    """Fifteen words, each of which stands in this sentence alone."""
    return " ".join(f"word{i}x{j}" for j in range(15)) + " ."


def tiny_train(sentences: int = 120) -> tuple[list[str], list[int]]:
    """Sentences, each with phrases cut from it, and single words."""
    texts: list[str] = []
    for i in range(sentences):
        pieces = sentence(i).split()
        texts += [sentence(i), " ".join(pieces[2:7]), " ".join(pieces[3:13]), pieces[4], " ".join(pieces[5:7])]
    return texts, [i % 2 for i in range(len(texts))]


def write_parquet(folder: Path, split: str, texts: list[str], labels: list[int]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"text": texts, "label": labels}), folder / f"{split}.parquet")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up SST-2 in a directory named by HEADWATER_DATA."""
    write_parquet(tmp_path / "sst2", "train", *tiny_train())
    write_parquet(tmp_path / "sst2", "dev", ["a fine film", "a poor film "], [1, 0])
    any_counts(monkeypatch)
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    return tmp_path


def contains(long: tuple[str, ...], short: tuple[str, ...]) -> bool:
    """Whether `short` stands in `long`, word by word: the slow version of what `hold_back` does with sets."""
    return any(long[i : i + len(short)] == short for i in range(len(long) - len(short) + 1))


def test_a_split_is_read_from_the_directory(stored: Path) -> None:
    dev = load("sst2", "dev")
    assert (dev.texts, dev.labels) == (["a fine film", "a poor film"], [1, 0])
    assert dev.label_names == ("negative", "positive")
    assert dev.source == str(stored / "sst2" / "dev.parquet")


def test_a_tsv_serves_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    any_counts(monkeypatch)
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "dev.tsv").write_text('sentence\tlabel\nso "good \t1\nbad\t0\n', encoding="utf-8")
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    dev = load("sst2", "dev")
    assert (dev.texts, dev.labels) == (['so "good', "bad"], [1, 0])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("sentence\tlabel\ngood\t1\nbad\n", "line 3"),
        ("review\tlabel\ngood\t1\n", "text"),
        ("sentence\tlabel\ngood\t-1\n", "'-1'"),
    ],
)
def test_a_broken_file_is_named(content: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "dev.tsv").write_text(content, encoding="utf-8")
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    with pytest.raises(DataError, match=says):
        load("sst2", "dev")


def test_a_missing_file_says_where_it_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    with pytest.raises(DataError, match=r"train\.parquet"):
        load("sst2", "train")


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'sst2'"):
        load("sst", "dev")
    with pytest.raises(UnknownName, match="Did you mean 'tune'"):
        load("sst2", "tuned")


def test_without_a_directory_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Columns(dict):  # type: ignore[type-arg]
        column_names = ("idx", "sentence", "label")

    def load_dataset(name: str, split: str) -> Columns:
        asked.append((name, split))
        return Columns(idx=[0], sentence=["fine "], label=[1])

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.delenv(DATA_DIRECTORY, raising=False)
    any_counts(monkeypatch)
    assert load("sst2", "dev").texts == ["fine"]
    assert asked == [("stanfordnlp/sst2", "validation")]


@pytest.mark.parametrize("module", ["pyarrow", "datasets"])
def test_a_missing_package_names_the_extra(module: str, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    if module == "datasets":
        monkeypatch.delenv(DATA_DIRECTORY)
    with pytest.raises(MissingExtra, match=r"headwater\[data\]"):
        load("sst2", "dev")


def test_tune_holds_whole_sentences_and_training_none_of_their_phrases(stored: Path) -> None:
    tune, rest = load("sst2", "tune"), load("sst2", "train-without-tune")
    whole = {sentence(i) for i in range(120)}
    assert 2 <= len(tune) <= 30
    assert set(tune.texts) <= whole
    held = [split_words(text) for text in tune.texts]
    for row in map(split_words, rest.texts):
        assert not any(contains(row, sentence) for sentence in held)
        assert len(row) < 3 or not any(contains(sentence, row) for sentence in held)


def test_nothing_else_is_lost(stored: Path) -> None:
    """Five rows a sentence: three go with a held one, the two of fewer than three words stay."""
    train, tune, rest = (load("sst2", split) for split in ("train", "tune", "train-without-tune"))
    assert len(rest) == len(train) - 3 * len(tune)
    labels = dict(zip(train.texts, train.labels, strict=True))
    assert all(labels[text] == label for text, label in zip(rest.texts, rest.labels, strict=True))


def test_the_choice_depends_on_no_order_and_no_other_row() -> None:
    texts, labels = tiny_train()
    table = LabelledTexts(texts, labels, ("negative", "positive"), "made up")
    backwards = LabelledTexts(texts[::-1], labels[::-1], table.label_names, table.source)
    fewer = LabelledTexts(texts[: len(texts) // 2], labels[: len(texts) // 2], table.label_names, table.source)
    held = set(hold_back(table, 0.2, "salt")[0].texts)
    assert held == set(hold_back(backwards, 0.2, "salt")[0].texts)
    assert held >= set(hold_back(fewer, 0.2, "salt")[0].texts)
    assert held != set(hold_back(table, 0.2, "pepper")[0].texts)


def test_the_same_words_with_other_punctuation_are_the_same_sentence() -> None:
    text = "a slow , warm and very human film about going home"
    table = LabelledTexts(
        [text, f"{text} .", "`` A SLOW WARM and very human film ''"], [1, 1, 0], ("n", "p"), "made up"
    )
    held, rest = hold_back(table, 1.0, "salt")
    assert held.texts == [f"{text} ."]
    assert rest.texts == []


@pytest.mark.slow
def test_sst2_tune_is_the_same_for_ever() -> None:
    """Choices were made on these sentences: the hash of what is held back must never move."""
    need_real_data()
    train, tune, rest = (load("sst2", split) for split in ("train", "tune", "train-without-tune"))
    assert (len(train), len(tune), len(rest)) == (67349, 483, 62944)
    sentences = load("sst2", "sentences")
    assert len(sentences) == 5997
    assert set(tune.texts) <= set(sentences.texts)
    assert len(set(tune.labels)) == 2
    assert digest(tune) == "6892cc16bc1e1c7a"
    assert not {split_words(text) for text in tune.texts} & {split_words(text) for text in rest.texts}


@pytest.mark.slow
def test_sst2_training_rows_share_no_phrase_with_tune() -> None:
    """The slow check by substring on every twentieth row, independent of the sets that did the work."""
    need_real_data()
    held = [" " + " ".join(split_words(text)) + " " for text in load("sst2", "tune").texts]
    for row in map(split_words, load("sst2", "train-without-tune").texts[::20]):
        if len(row) >= 3:
            phrase = " " + " ".join(row) + " "
            assert not any(phrase in sentence or sentence in phrase for sentence in held)


def digest(table: LabelledTexts) -> str:
    return hashlib.sha256("\n".join(sorted(" ".join(split_words(t)) for t in table.texts)).encode()).hexdigest()[:16]


def test_another_number_of_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "sst2", "dev", ["good"] * 444 + ["bad"] * 428, [1] * 444 + [0] * 428)
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    assert load("sst2", "dev").counts == (428, 444)
    write_parquet(tmp_path / "sst2", "dev", ["good"] * 444 + ["bad"] * 427, [1] * 444 + [0] * 427)
    with pytest.raises(DataError, match=r"427 / 444 rows .* has 428 / 444"):
        load("sst2", "dev")


def test_labels_may_come_as_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "silicone_sem"
    folder.mkdir()
    (folder / "dev.tsv").write_text("Utterance\tSentiment\nfine\tPositive\nso\tneutral\n", encoding="utf-8")
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    any_counts(monkeypatch)
    assert load("semaine", "dev").labels == [2, 1]


def test_the_hub_is_asked_for_a_config_and_a_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Columns(dict):  # type: ignore[type-arg]
        column_names = ("Utterance", "Sentiment")

    def load_dataset(path: str, **options: str) -> Columns:
        asked.append((path, options))
        return Columns(Utterance=["fine "], Sentiment=["positive"])

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.delenv(DATA_DIRECTORY, raising=False)
    any_counts(monkeypatch)
    assert load("meld-s", "dev").labels == [2]
    assert asked == [("eusip/silicone", {"split": "validation", "name": "meld_s", "revision": "refs/convert/parquet"})]


def made_up(texts: list[str], labels: list[int]) -> LabelledTexts:
    return LabelledTexts(texts, labels, ("negative", "neutral", "positive"), "made up")


def test_the_parts_of_an_experiment_share_no_longer_text(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "train": made_up(["one two three four", "Yeah!", "of its own kind, this", ""], [0, 1, 2, 1]),
        "dev": made_up(["one two three five", "yeah", "said in the dev part"], [0, 1, 2]),
        "test": made_up(["One, two, three: four.", "yeah", "one two three five"], [0, 1, 2]),
    }
    monkeypatch.setattr("headwater_experiments.data.experiments.load", lambda name, split: parts[split])
    found = data.experiment("semaine")
    assert found.train.texts == ["Yeah!", "of its own kind, this"]
    assert found.validation.texts == ["yeah", "said in the dev part"]
    assert found.test.texts == parts["test"].texts
    assert any("1 rows of train and 1 of validation" in note for note in found.notes)


def test_a_rebuilt_training_part_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    need_real_data()
    found = data.experiment("t-sentiment")
    assert len(found.train) == 45606
    assert any("rebuilt" in note for note in found.notes)
    assert not any("rebuilt" in note for note in data.experiment("t-hate").notes)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("t-emotions", 1421), ("t-hate", 2970), ("t-sentiment", 12284), ("meld-s", 2610), ("semaine", 878)],
)
def test_the_published_test_parts_are_reported_whole(name: str, rows: int) -> None:
    need_real_data()
    found = data.experiment(name)
    assert len(found.test) == rows
    held = {split_words(t) for t in found.test.texts} | {split_words(t) for t in found.validation.texts}
    assert not [t for t in found.train.texts if split_words(t) in held and len(split_words(t)) >= 4]
    assert all(found.train.texts)


def test_imdb_is_drawn_by_its_words_and_not_by_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = {
        split: LabelledTexts(
            [f"{split} review number {i}" for i in range(400)], [i // 200 for i in range(400)], ("-", "+"), ""
        )
        for split in ("train", "test")
    }
    turned = {split: table.rows(range(399, -1, -1)) for split, table in reviews.items()}
    monkeypatch.setattr("headwater_experiments.data.experiments.IMDB_REPORTED", 150)
    found = []
    for parts in (reviews, turned):
        load = "headwater_experiments.data.experiments.load"
        monkeypatch.setattr(load, lambda name, split, parts=parts: parts[split])
        found.append(data.experiment("imdb"))
    assert {len(e.test) for e in found} == {150}
    assert set(found[0].test.texts) == set(found[1].test.texts)
    assert set(found[0].validation.texts) == set(found[1].validation.texts)
    assert 40 < sum(found[0].test.labels) < 110
    assert 20 < len(found[0].validation) < 65


@pytest.mark.slow
def test_imdb_reports_on_ten_thousand_reviews() -> None:
    need_real_data()
    found = data.experiment("imdb")
    assert len(found.test) == 10_000
    assert abs(sum(found.test.labels) - 5000) < 200
    assert len(found.train) + len(found.validation) < 25_000
