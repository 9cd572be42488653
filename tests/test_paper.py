"""The paper's experiments: trainings that stop and resume, models by name, tables beside the paper's numbers."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import any_counts, need_real_data
from transformers import BertConfig, BertModel

from headwater import explain
from headwater.errors import LoadError, UnknownName, UsageError
from headwater.evaluation.measures import ACTIVATION, LEDGER, PRUNING
from headwater.evaluation.protocols import ali2022
from headwater.evaluation.results import Evaluation, Samples, summarise
from headwater.inputs.table import DATA_DIRECTORY
from headwater.models.loading import load
from headwater_experiments import data
from headwater_experiments.data import LabelledTexts
from headwater_experiments.paper import checkpoints, published, tables, trainings, trials
from headwater_experiments.paper.fitting import (
    ResumableDescent,
    Round,
    TextRecipe,
    evaluate_loss,
    fit_text,
    rounds_since_best,
)
from headwater_experiments.paper.sizes import Size
from headwater_experiments.paper.tokens import Tokenised, Tokens
from headwater_experiments.paper.training import new_classifier, recipe_for, train_text
from headwater_experiments.paper.trials import Run, Trial
from headwater_experiments.training.accuracy import Accuracy
from headwater_experiments.training.student import SPECIAL, small_tokenizer

PRAISE, BLAME, OTHER = ["good", "warm", "fine"], ["bad", "cold", "dull"], ["film", "plot", "cast", "an", "the"]
PIECES = [*SPECIAL, ".", *PRAISE, *BLAME, *OTHER]
QUICK = TextRecipe(rounds=6, batch=8, rate=5e-3, dropout=0.0, patience=6, longest=16)


def rows(count: int, seed: int) -> tuple[list[str], list[int]]:
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=count).tolist()
    texts = [
        " ".join(random.permutation([random.choice(PRAISE if label else BLAME), *random.choice(OTHER, size=2)]))
        + f" {i}"
        for i, label in enumerate(labels)
    ]
    return texts, labels


@pytest.fixture
def bert(tmp_path: Path) -> str:
    torch.manual_seed(0)
    shape = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=len(PIECES), max_position_embeddings=32, **shape))
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight)
    model.save_pretrained(tmp_path / "b")
    small_tokenizer(PIECES, 32).save_pretrained(tmp_path / "b")
    return str(tmp_path / "b")


@pytest.fixture
def semaine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up dataset of two classes in the place of Semaine."""
    folder = tmp_path / "data" / "silicone_sem"
    folder.mkdir(parents=True)
    for seed, (split, count) in enumerate((("train", 192), ("dev", 48), ("test", 40))):
        lines = "".join(f"{text}\t{label}\n" for text, label in zip(*rows(count, seed), strict=True))
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{lines}", encoding="utf-8")
    any_counts(monkeypatch)
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path / "data"))
    monkeypatch.setenv(checkpoints.DIRECTORY, str(tmp_path / "checkpoints"))


def tokenised(bert: str) -> Tokenised:
    from transformers import AutoTokenizer

    return Tokenised.of(data.experiment("semaine"), AutoTokenizer.from_pretrained(bert), 16)


def test_a_batch_holds_the_texts_and_nothing_else(bert: str, semaine: None) -> None:
    from transformers import AutoTokenizer

    table, tokenizer = data.experiment("semaine").test, AutoTokenizer.from_pretrained(bert)
    tokens = Tokens.of(table, tokenizer, 6)
    batch = tokens.batch([3, 0])
    for row, i in enumerate((3, 0)):
        ids = tokenizer(table.texts[i], truncation=True, max_length=6)["input_ids"]
        assert batch.input_ids[row, : len(ids)].tolist() == ids
        assert batch.attention_mask[row].sum() == len(ids) == 6
        assert batch.labels[row] == table.labels[i]


def test_a_round_shows_every_text_once_in_an_order_of_its_own(bert: str, semaine: None) -> None:
    tokens = tokenised(bert).train
    rounds = []
    for number in (0, 0, 1):
        seen = [
            tuple(ids[mask.bool()].tolist())
            for b in tokens.shuffle(16, 5, number)
            for ids, mask in zip(b.input_ids, b.attention_mask, strict=True)
        ]
        rounds.append(seen)
    every = sorted(tuple(tokens.ids[a:b].tolist()) for a, b in zip(tokens.starts, tokens.starts[1:], strict=False))
    assert sorted(rounds[0]) == every
    assert rounds[0] == rounds[1]
    assert rounds[0] != rounds[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["small", "minilm", "distilbert"])
def test_a_training_learns_and_writes_a_model_with_its_card(
    kind: str, bert: str, semaine: None, tmp_path: Path
) -> None:
    found = train_text("semaine", tmp_path / "out", kind=kind, embeddings=bert, **asdict(QUICK))
    assert found.test.value > 0.9
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["test"]["accuracy"] == found.test.value
    model, tokenizer = load(tmp_path / "out")
    assert evaluate_loss(model, Tokens.of(data.experiment("semaine").test, tokenizer, 16))[0] == found.test
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"{found.test.value:.1%} of 40" in card
    assert "not for commercial use" in card
    assert not (tmp_path / "out" / "training-state.pt").exists()


def test_the_test_part_is_not_looked_at_while_choosing(
    bert: str, semaine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tokenised(bert)
    model = new_classifier("small", data.experiment("semaine"), bert, QUICK)[0]

    class Shut:
        def __getattr__(self, name: str) -> None:
            raise AssertionError("the test part was looked at")

    fit_text(model, replace(parts, test=Shut()), QUICK, 0, 1)


def weights_after(bert: str, recipe: TextRecipe, state: Path | None = None) -> dict[str, torch.Tensor]:
    """What a training ends with."""
    torch.manual_seed(0)
    model = new_classifier("small", data.experiment("semaine"), bert, recipe)[0]
    fit_text(model, tokenised(bert), recipe, 0, 1, state)
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_training_that_was_cut_off_ends_as_if_it_had_not_been(
    bert: str, semaine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(QUICK, rounds=4, patience=4, dropout=0.2, word_dropout=0.2, average=10)
    whole = weights_after(bert, recipe)
    from headwater_experiments.paper import fitting

    plain, made = fitting.one_round, []

    def breaking(*given: object) -> Round:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(given)
        return plain(*given)

    monkeypatch.setattr(fitting, "one_round", breaking)
    with pytest.raises(KeyboardInterrupt):
        weights_after(bert, recipe, tmp_path / "state.pt")
    monkeypatch.setattr(fitting, "one_round", plain)
    resumed = weights_after(bert, recipe, tmp_path / "state.pt")
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())


def test_the_state_of_another_training_is_refused(bert: str, semaine: None, tmp_path: Path) -> None:
    recipe = replace(QUICK, rounds=1)
    weights_after(bert, recipe, tmp_path / "state.pt")
    with pytest.raises(UsageError, match="another recipe or seed"):
        weights_after(bert, replace(recipe, rate=1e-3), tmp_path / "state.pt")


def test_training_ends_when_validation_has_not_improved() -> None:
    done = [Round(0, loss, Accuracy(correct, 10)) for loss, correct in ((0.9, 5), (0.5, 7), (0.6, 7), (0.4, 6))]
    assert [rounds_since_best(done[:n]) for n in range(5)] == [0, 0, 0, 1, 2]


def test_word_dropout_leaves_the_first_token_and_the_padding(bert: str, semaine: None) -> None:
    model = new_classifier("small", data.experiment("semaine"), bert, QUICK)[0]
    descent = ResumableDescent(model, replace(QUICK, word_dropout=0.5), 1, unknown=1)
    ids, mask = torch.full((200, 9), 7), torch.ones(200, 9).long()
    mask[:, 7:] = 0
    gaps = descent.with_gaps(ids, mask) == 1
    assert not gaps[:, 0].any()
    assert not gaps[:, 7:].any()
    assert 0.4 < gaps[:, 1:7].float().mean() < 0.6


def test_the_average_of_the_weights_is_what_is_judged(bert: str, semaine: None) -> None:
    model = new_classifier("small", data.experiment("semaine"), bert, QUICK)[0]
    descent = ResumableDescent(model, replace(QUICK, average=4), 10, unknown=1)
    seen = []
    for batch in list(tokenised(bert).train.shuffle(16, 0, 0))[:3]:
        descent(batch)
        seen.append(model.classifier.weight.detach().clone())
    with descent.use_average():
        torch.testing.assert_close(model.classifier.weight, sum(seen) / 3)  # so far, the plain mean
    assert torch.equal(model.classifier.weight, seen[-1])


def test_a_model_that_was_not_trained_is_named(semaine: None) -> None:
    with pytest.raises(LoadError, match="headwater paper train imdb --model minilm"):
        checkpoints.find("minilm", "imdb")
    with pytest.raises(UnknownName, match="small"):
        train_text("semaine", Path("nowhere"), kind="smal")


@pytest.mark.parametrize("kind", ["paper", "tuned"])
@pytest.mark.parametrize("name", published.TEXTS)
def test_the_kept_checkpoints_are_what_their_cards_say(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    assert len(checkpoints.seeds(kind, name)) >= 3
    for seed in checkpoints.seeds(kind, name):
        path = checkpoints.find(kind, name, seed)
        assert (path / "model.safetensors").stat().st_size <= 1_200_000
        record = json.loads((path / "training.json").read_text())
        card = (path / "README.md").read_text()
        assert f"test accuracy | {record['test']['accuracy']:.1%}" in card
        assert data.find_dataset(name).terms in card
        assert f"headwater paper train {name} --recipe {kind}" in card
        assert (record["seed"], record["changes"]) == (seed, {})
        assert TextRecipe(**record["recipe"]) == recipe_for("small", name, kind)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_model_changed_in_low_rank_is_a_plain_bert_from_a_small_file(
    rank: int, bert: str, semaine: None, tmp_path: Path
) -> None:
    quick = {**asdict(QUICK), "rank": rank, "rate": 1e-2}
    found = train_text("semaine", tmp_path / "out", kind="minilm", embeddings=bert, **quick)
    assert found.test.value > 0.9
    model, tokenizer = load(tmp_path / "out")
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.model_type == "bert"
    assert tokenizer is not None
    frozen = BertModel.from_pretrained(bert).embeddings.word_embeddings.weight.half().float()
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, frozen) == bool(rank)
    assert ("change of rank 2" in (tmp_path / "out" / "README.md").read_text()) == bool(rank)
    assert explain(model, "good", tokenizer=tokenizer).ledger.closed


@pytest.mark.parametrize("name", published.TEXTS)
def test_the_kept_changes_of_minilm_are_what_their_cards_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    assert len(checkpoints.seeds("minilm", name)) >= 3
    for seed in checkpoints.seeds("minilm", name):
        path = checkpoints.find("minilm", name, seed)
        assert (path / "model.safetensors").stat().st_size <= 300_000
        record = json.loads((path / "training.json").read_text())
        assert (record["seed"], record["changes"]) == (seed, {})
        assert f"test accuracy | {record['test']['accuracy']:.1%}" in (path / "README.md").read_text()
        assert TextRecipe(**record["recipe"]) == recipe_for("minilm", name)


def test_the_papers_recipe_is_the_papers() -> None:
    recipe = recipe_for("small", "imdb", "paper")
    assert (recipe.rate, recipe.batch, recipe.rounds, recipe.dropout) == (2e-5, 32, 20, 0.1)
    assert (recipe.word_dropout, recipe.average, recipe.smoothing, recipe.warmup) == (0, 0, 0, 0)
    assert recipe.unscaled
    assert not recipe.ignore_mask
    assert recipe_for("small", "imdb", "paper", word_dropout=0.5, rate=None) == replace(recipe, word_dropout=0.5)
    with pytest.raises(UnknownName, match="Did you mean 'paper'"):
        recipe_for("small", "imdb", "papers")
    with pytest.raises(UsageError, match="did not train MiniLM"):
        recipe_for("minilm", "imdb", "paper")


@pytest.mark.parametrize("warmup", [0.0, 0.25])
def test_the_rate_rises_and_falls_in_a_line(warmup: float) -> None:
    recipe = replace(QUICK, warmup=warmup)
    shares = [recipe.rate_at(step, 80) for step in range(80)]
    top = int(warmup * 80)
    assert max(shares) == pytest.approx(1, abs=0.06)
    assert shares.index(max(shares)) in (max(0, top - 1), top)
    assert np.allclose(np.diff(shares[top:]), -1 / (80 - top))
    assert all(share > 0 for share in shares)


@pytest.mark.slow
def test_a_kept_checkpoint_is_as_good_as_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    need_real_data()
    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    model, tokenizer = load(checkpoints.find("paper", "semaine"))
    found = evaluate_loss(model, Tokens.of(data.experiment("semaine").test, tokenizer, 256))[0]
    record = json.loads((checkpoints.find("paper", "semaine") / "training.json").read_text())
    assert abs(found.correct - record["test"]["correct"]) <= 2  # a graphics card rounds otherwise


def made_evaluation(values: dict[str, tuple[float, float]], count: int = 50, seed: int = 0) -> Evaluation:
    """An evaluation in which each method has about this AUAC and this AU-MSE."""
    random = np.random.default_rng(seed)
    spread = random.normal(0, 0.01, size=(count, 1))
    found = {
        method: {
            "activation": np.full((count, 11), auac) + spread,
            "pruning": np.full((count, 11), aumse) + spread,
            **{name: np.zeros(count) if name == "unaccounted" else random.normal(size=count) for name in LEDGER},
        }
        for method, (auac, aumse) in values.items()
    }
    common = {"row": np.arange(count), "label": np.zeros(count), "predicted": np.zeros(count), "items": np.ones(count)}
    return summarise(Samples(common, found), (ACTIVATION, PRUNING), ali2022, {"seed": 0})


@pytest.fixture
def trial() -> Trial:
    main = {
        "gi": (0.7, 2.0),
        "lrp(ln)": (0.84, 1.2),
        "lrp(ah+ln)": (0.9, 1.5),
        "lrp": (0.95, 1.4),
        "lrp-gamma(0.05)": (0.93, 1.1),
    }
    flow = made_evaluation({"a-flow": (0.99, 0.1), "lrp(ah+ln)": (0.9, 1.5)}, count=20)
    return Trial("sst2", "paper", (Run(0, made_evaluation(main), flow),))


def test_a_cell_holds_ours_and_the_papers(trial: Trial) -> None:
    found = tables.paper_cell(trial, "gi", "auac")
    assert found is not None
    assert found.ours.value == pytest.approx(0.7, abs=0.005)
    assert found.paper == 0.847
    assert tables.paper_cell(trial, "lrp", "auac").paper is None
    assert tables.paper_cell(trial, "gae", "auac") is None


def test_the_best_is_bold_and_a_part_does_not_compete(trial: Trial) -> None:
    lines = {line.split("|")[1].strip(): line for line in tables.measure_markdown([trial], "auac").splitlines()}
    assert "**.95" in lines["`lrp`"]
    assert sum("**" in line for line in lines.values()) == 1
    assert "<sup>20</sup>" in lines["A-Flow"]
    assert "(.711)" in lines["A-Flow"]
    mse = {line.split("|")[1].strip(): line for line in tables.measure_markdown([trial], "aumse").splitlines()}
    assert "**1.1" in mse["`lrp-gamma(0.05)`"]


def test_claims_are_paired_and_say_when_the_paper_is_not_confirmed(trial: Trial) -> None:
    auac, aumse = (tables.claims([trial], measure).splitlines()[-1].split("|") for measure in ("auac", "aumse"))
    assert auac[2].strip() == "LRP(AH+LN)"
    assert "LRP(LN): +0.0600<br>" in auac[3]  # one training says nothing of the next: not bold
    assert aumse[2].strip() == "LRP(LN)"
    assert "LRP(LN): +0.300<br>" in aumse[3]
    assert aumse[4].strip() == "`lrp-gamma(0.05)`"


def several(*values: dict[str, tuple[float, float]]) -> Trial:
    """The same samples measured on several trainings."""
    return Trial("sst2", "paper", tuple(Run(i, made_evaluation(one), None) for i, one in enumerate(values)))


def test_who_leads_is_said_where_samples_and_trainings_agree() -> None:
    agreeing = several(*({"lrp(ln)": (0.80 + d, 1.0), "lrp(ah+ln)": (0.86 + 1.1 * d, 1.0)} for d in (0, 0.01, 0.02)))
    assert "LRP(LN): **+0.0610**" in tables.claims([agreeing], "auac")
    turning = several(*({"lrp(ln)": (0.8, 1.0), "lrp(ah+ln)": (0.8 + d, 1.0)} for d in (0.06, -0.05, 0.17)))
    assert "LRP(LN): +0.0600<br>" in tables.claims([turning], "auac")
    found = trainings.pooled_difference(turning.mains, "lrp(ah+ln)", "lrp(ln)", "auac")
    assert found.samples.low > 0 > found.trainings.low
    middle, high = np.mean([0.06, -0.05, 0.17]), np.std([0.06, -0.05, 0.17], ddof=1) / np.sqrt(3)
    assert found.trainings.high == pytest.approx(middle + 4.303 * high, rel=0.05)  # Student's t, two free


def test_graphs_are_also_held_against_the_best_of_attention() -> None:
    values = {"gae": (0.7, 2.0), "rollout": (0.6, 1.0), "gi": (0.9, 0.5), "lrp(ah+ln)": (0.8, 1.5)}
    texts = several(values, values)
    graphs = Trial("mnist", "paper", texts.runs)
    heads = [tables.claims([trial], "auac").splitlines()[0] for trial in (texts, graphs)]
    assert ["best of attention" in head for head in heads] == [False, True]
    assert "| GAE: **+0.1000**<br>" in tables.claims([graphs], "auac")
    assert "| Rollout: **+0.500**<br>" in tables.claims([graphs], "aumse")
    nothing = Trial("mnist", "paper", several({"gi": (0.9, 0.5), "lrp(ah+ln)": (0.8, 1.5)}).runs)
    assert tables.against_attention(nothing, "auac") == "–"


def test_a_cell_is_the_mean_over_trainings_with_both_intervals() -> None:
    trial = several(*({"gi": (0.7 + d, 2.0), "random": (0.5, 4.0)} for d in (0.0, 0.02, 0.04)))
    found = tables.paper_cell(trial, "gi", "auac").ours
    assert found.value == pytest.approx(0.72, abs=0.005)
    assert found.trainings.high - found.trainings.low > 5 * (found.samples.high - found.samples.low)
    assert tables.format_cell(tables.paper_cell(trial, "gi", "auac"), "auac", leads=False).count("–") == 2
    assert trainings.relative(trial.mains, "gi", "aumse").value == pytest.approx(0.5, abs=0.01)
    assert "| GI | 0.50 (0.53)" in tables.against_random([trial])
    rows = list(csv.DictReader(io.StringIO(tables.as_csv([trial]))))
    assert [row["seed"] for row in rows if row["method"] == "gi" and row["measure"] == "auac"] == [
        "mean",
        "0",
        "1",
        "2",
    ]


def test_the_order_of_the_papers_rows_is_compared_with_the_papers() -> None:
    same = several({m: (published.TABLES["auac"][m]["sst2"], 1.0) for m in published.ROWS})
    assert trainings.same_order(same.mains, "sst2", "auac").value == pytest.approx(1)
    turned = several({m: (1 - published.TABLES["auac"][m]["sst2"], 1.0) for m in published.ROWS})
    assert trainings.same_order(turned.mains, "sst2", "auac").value == pytest.approx(-1)
    assert trainings.same_order(several({"gi": (0.5, 1.0), "lrp": (0.5, 1.0)}).mains, "sst2", "auac") is None


def test_the_csv_holds_every_cell(trial: Trial) -> None:
    found = list(csv.DictReader(io.StringIO(tables.as_csv([trial]))))
    assert len(found) == 2 * 6
    flow = next(row for row in found if row["method"] == "a-flow" and row["measure"] == "aumse")
    assert (flow["paper"], flow["samples"]) == ("2.52", "20")
    assert float(flow["value"]) == pytest.approx(0.1, abs=0.01)


def test_the_papers_tables_are_copied_right() -> None:
    """The best of every column is in bold in the paper, and is its own method each time."""
    for measure, best in (("auac", max), ("aumse", min)):
        for dataset in published.COLUMNS:
            column = {m: row[dataset] for m, row in published.TABLES[measure].items() if dataset in row}
            assert best(column, key=column.get) == "lrp(ah+ln)"
    assert set(published.TABLES["auac"]["a-flow"]) == {"sst2", "bace"}


def test_a_flow_is_measured_on_short_texts_where_the_whole_would_take_days(bert: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bert)
    table = LabelledTexts(["film " * n for n in range(1, 30)], [0] * 29, ("a", "b"), "made up")
    part, limit = trials.flow_part(table, "imdb", Size(flow_rows=5, flow_tokens=10), tokenizer)
    assert (len(part), limit) == (8, 5)
    assert trials.flow_part(table, "sst2", Size(), tokenizer) == (table, None)


@pytest.mark.slow
def test_tables_run_from_a_checkpoint_to_markdown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A small version of `headwater paper tables --quick`, with the kept model and the real data."""
    need_real_data()
    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    size = Size(rows=6, flow_rows=2, flow_tokens=12, flow_whole=())
    chosen = ("random", "gi", "lrp(ah+ln)", "lrp", "lrp-gamma(0.05)")
    (found,) = trials.trials("paper", ["semaine"], tmp_path, methods=chosen, size=size)
    page = tables.tables_page([found])
    assert all(
        title in page for title in ("Random", "A-Flow", "LRP(AH+LN)", "`lrp-gamma(0.05)`", "Who leads in AU-MSE")
    )
    assert tables.largest_error(found.main) < 1e-4
    (again,) = trials.trials("paper", ["semaine"], tmp_path, methods=chosen, size=size)
    assert tables.tables_page([again]) == page


FIGURES = ("conservation", "conservation-attention", "curves", "collapse", "heatmaps", "heatmaps-more", "runtime")


@pytest.mark.slow
def test_figures_are_drawn_from_what_the_tables_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_real_data()
    from headwater.errors import DataError
    from headwater_experiments.paper import figures

    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    with pytest.raises(DataError, match="headwater paper tables --recipe paper --datasets semaine"):
        list(figures.draw_figures("paper", tmp_path, tmp_path / "out", ["semaine"]))
    for name, value in (("AUDITED", 2), ("SHOWN", 1), ("MORE", 1), ("TIMED_TEXTS", 2)):
        monkeypatch.setattr(figures, name, value)
    size = Size(rows=4, flow_rows=2, flow_tokens=12, flow_whole=())
    chosen = [m for m in figures.CURVES if m not in ("a-last", "a-flow", "lrp-gamma(0.05)")]
    list(trials.trials("paper", ["semaine"], tmp_path, methods=chosen, flow=False, size=size))
    made = list(figures.draw_figures("paper", tmp_path, tmp_path / "out", ["semaine"]))
    assert {path.suffix for path in made} == {".svg", ".png", ".md", ".csv"}
    stems = {path.stem for path in made}
    assert stems == {f"{name}-paper" for name in FIGURES}
    assert all(path.stat().st_size > 500 for path in made)


def test_rows_of_a_flow_stand_beside_the_others_where_it_saw_every_text(trial: Trial) -> None:
    from headwater_experiments.paper.figures import with_flow

    assert with_flow({"SST-2": trial}) == {}  # 20 texts of 50
    flow = made_evaluation({"a-flow": (0.5, 1.0), "lrp(ah+ln)": (0.9, 1.5)})
    whole = replace(trial, runs=(replace(trial.runs[0], flow=flow),))
    assert "a-flow" in with_flow({"SST-2": whole, "IMDB": trial})["SST-2"].methods
    assert list(with_flow({"SST-2": whole, "IMDB": trial})) == ["SST-2"]


def test_a_flow_has_a_curve_where_it_saw_every_text(trial: Trial) -> None:
    from headwater_experiments.paper.figures import overviews

    def legend(flow: Evaluation | None) -> list[str]:
        main = made_evaluation({"gae": (0.7, 1.2), "lrp(ah+ln)": (0.9, 1.5)})
        found = replace(trial, runs=(replace(trial.runs[0], main=main, flow=flow),))
        (key,) = dict(overviews({"sst2": found}))["curves"].legends
        return [text.get_text() for text in key.get_texts()]

    assert "A-Flow" in legend(made_evaluation({"a-flow": (0.5, 1.0), "lrp(ah+ln)": (0.9, 1.5)}))
    assert "A-Flow" not in legend(trial.flow)
    assert "A-Flow" not in legend(None)


def test_the_command_trains_and_says_how_well(bert: str, semaine: None, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from headwater.cli import app

    asked = ["paper", "train", "semaine", "--embeddings", bert, "--recipe", "paper", "--rounds", "2", "--rate", "0.005"]
    done = CliRunner().invoke(app, [*asked, "--word-dropout", "0.2", "--no-unscaled", "--seeds", "2", "--json"])
    assert done.exit_code == 0, done.output
    for seed, line in enumerate(done.stdout.splitlines()):
        place = checkpoints.place("paper", "semaine", seed)
        assert json.loads(line) == json.loads((place / "training.json").read_text())
        record = json.loads(line)
        assert record["changes"] == {"rounds": 2, "rate": 0.005, "word_dropout": 0.2, "unscaled": False}
        options = "--recipe paper --rounds 2 --rate 0.005 --word-dropout 0.2 --no-unscaled"
        assert f"headwater paper train semaine {options}" in (place / "README.md").read_text()
        assert not load(place)[0].config.unscaled
    assert checkpoints.seeds("paper", "semaine") == [0, 1]
    for wrong in (["--bent"], ["--split", "scaffold"], ["--seeds", "2", "--out", str(tmp_path)], ["--recipe", "papr"]):
        assert CliRunner().invoke(app, ["paper", "train", "semaine", *wrong]).exit_code != 0


@pytest.mark.slow
def test_the_command_prints_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_real_data()
    from typer.testing import CliRunner

    from headwater.cli import app

    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    asked = ["paper", "tables", "--datasets", "semaine", "--methods", "gi,lrp(ah+ln),lrp", "--rows", "4", "--no-flow"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "| GI |" in done.stdout
    assert (tmp_path / "tables-paper.md").read_text().strip() == done.stdout.strip()
    assert (
        len((tmp_path / "tables-paper.csv").read_text().splitlines()) == 1 + 2 * 3 * 4
    )  # the mean, and three trainings
    wrong = CliRunner().invoke(app, ["paper", "tables", "--datasets", "semaine,imbd", "--out", str(tmp_path)])
    assert wrong.exit_code != 0
    assert "imdb" in wrong.output


@pytest.mark.slow
def test_a_masked_language_model_is_trained_on_the_texts_and_serves_as_embeddings(
    bert: str, semaine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater_experiments.paper import pretraining

    monkeypatch.setattr(pretraining, "locate", lambda _: bert)
    shape = {"width": 32, "layers": 1, "heads": 4, "inner": 16, "positions": 32, "block": 16}
    build = pretraining.Build(**shape, rounds=6, batch=4, rate=3e-3)
    found = pretraining.pretrain_model(tmp_path / "mlm", build, datasets=["semaine"])
    assert len(found.losses) == 6
    assert min(found.losses) < found.losses[0] - 0.1  # which kind of word stands where; which word is chance
    again = pretraining.pretrain_model(tmp_path / "again", build, datasets=["semaine"])
    assert again.losses == found.losses
    fitted = train_text(
        "semaine", tmp_path / "fitted", kind="minilm", embeddings=str(tmp_path / "mlm"), **asdict(QUICK)
    )
    assert fitted.test.value > 0.9
    small = train_text("semaine", tmp_path / "small", embeddings=str(tmp_path / "fitted"), **asdict(QUICK))
    assert load(tmp_path / "small")[0].config.hidden_size == 32
    assert small.test.value > 0.9


def test_masking_asks_for_words_alone_and_mostly_hides_them(bert: str) -> None:
    from transformers import AutoTokenizer

    from headwater_experiments.paper.pretraining import NOTHING, mask_tokens

    tokenizer = AutoTokenizer.from_pretrained(bert)
    rows = torch.randint(len(SPECIAL), len(PIECES), (400, 12))
    rows[:, 0], rows[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    inputs, asked = mask_tokens(rows, tokenizer, 0.15, torch.Generator().manual_seed(0))
    chosen = asked != NOTHING
    assert not chosen[:, [0, -1]].any()
    assert torch.equal(asked[chosen], rows[chosen])
    assert torch.equal(inputs[~chosen], rows[~chosen])
    assert 0.12 < chosen[:, 1:-1].float().mean() < 0.18
    assert 0.75 < (inputs[chosen] == tokenizer.mask_token_id).float().mean() < 0.88
    assert 0.07 < (inputs[chosen] == rows[chosen]).float().mean() < 0.2
