"""The paper's graphs: trained or brought in, measured on what the model has not seen, in the tables and figures."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import need_real_data
from test_figures import off_the_page, overlapping
from test_graphs import digit
from test_paper import made_evaluation
from typer.testing import CliRunner

from headwater.api.compare import compare
from headwater.api.explain import explain
from headwater.cli import app
from headwater.errors import DataError, LoadError, UnknownName, UsageError
from headwater.inputs.table import DATA_DIRECTORY
from headwater.models.loading import load
from headwater_experiments.models.superpixels import CACHE
from headwater_experiments.paper import (
    checkpoints,
    drawing,
    figures,
    graph_ablation,
    graph_cards,
    graph_checkpoints,
    graph_data,
    graph_pictures,
    published,
    tables,
    trials,
)
from headwater_experiments.paper.drawing import patches, skeletons
from headwater_experiments.paper.graph_training import GraphPhase, roc_auc
from headwater_experiments.paper.graphs import (
    BACE,
    MNIST,
    GraphRecipe,
    GraphReport,
    bace_split,
    change_recipe,
    choices,
)
from headwater_experiments.paper.sizes import FULL, QUICK, Size
from headwater_experiments.paper.trials import Run, Trial
from headwater_experiments.training.accuracy import Accuracy

pytest.importorskip("rdkit")
pytest.importorskip("skimage")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("matplotlib")

SMALL = {"hidden_size": 16, "intermediate_size": 16, "heads": 2}
RECIPES = {
    "bace": replace(BACE, phase=GraphPhase(epochs=2, batch=16), **SMALL),
    "mnist": replace(MNIST, phase=GraphPhase(epochs=1, batch=16), number_hidden_size=8, **SMALL),
}
CHOSEN = ("random", "rollout", "gi", "lrp(ah+ln)", "lrp", "lrp-gamma")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Made-up copies of BACE (amines are active) and MNIST, and a small model of each, trained and installed."""
    import pyarrow

    home = tmp_path_factory.mktemp("graphs")
    smiles = [f"C{'C' * (i % 7)}{'N' if i % 2 else 'O'}{'C' * (i // 14)}c1ccccc1" for i in range(80)]
    parts = ["train"] * 72 + ["valid"] * 4 + ["test"] * 4
    (home / "data" / "bace").mkdir(parents=True)
    columns = {"smiles": smiles, "label": [i % 2 for i in range(80)], "scaffold_split": parts}
    parquet.write_table(pyarrow.table(columns), home / "data" / "bace" / "bace.parquet")
    small = digit()[::5, ::5]  # maximum flow takes seconds for a whole digit
    images = np.stack([np.roll(small if i % 2 else small.T, i % 5, i % 2) for i in range(24)])
    (home / "data" / "mnist").mkdir()
    labels = np.arange(24, dtype=np.uint8) % 2
    both = {f"{what}_{part}": v for part in ("train", "test") for what, v in (("x", images), ("y", labels))}
    np.savez_compressed(home / "data" / "mnist" / "mnist.npz", **both)
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, home)
        for name, recipe in RECIPES.items():
            report = graph_checkpoints.train_checkpoint(
                name, home / "work", arrays=home / "arrays", seeds=(0, 1), recipe=recipe
            )
            (home / f"{name}.json").write_text(json.dumps(asdict(report)))
            for seed in (0, 1):
                path = checkpoints.place("tuned", name, seed)
                graph_checkpoints.install_checkpoint([report], path, arrays=home / "arrays", seed=seed)
    return home


def settle(patch: pytest.MonkeyPatch, home: Path) -> None:
    patch.setenv(DATA_DIRECTORY, str(home / "data"))
    patch.setenv(CACHE, str(home / "cache"))
    patch.setenv(checkpoints.DIRECTORY, str(home / "checkpoints"))


@pytest.fixture
def home(place, monkeypatch):
    settle(monkeypatch, place)
    return place


def report(home: Path, name: str = "bace") -> GraphReport:
    return graph_checkpoints.read_report(home / f"{name}.json")


# training, and what is brought in


@pytest.mark.parametrize(("name", "classes"), [("bace", ["inactive", "active"]), ("mnist", list("0123456789"))])
def test_a_checkpoint_has_names_a_record_and_a_card(home, name, classes):
    path = checkpoints.find("tuned", name)
    record, card = graph_checkpoints.record_of(path), (path / "README.md").read_text()
    model, _ = load(path)
    assert [model.config.id2label[i] for i in range(len(classes))] == classes
    first = report(home, name).runs[0]
    assert (record["seed"], record["test"]["value"]) == (0, pytest.approx(first.test))
    assert f"{first.test:.1%} of {record['test']['total']}" in card
    assert graph_data.find_graph_dataset(name).terms in card
    assert f"{graph_data.find_graph_dataset(name).paper:.1%}" in card
    assert f"{report(home, name).mean:.1%} ±" in card
    assert f"--epochs {RECIPES[name].phase.epochs} --batch 16" in card
    assert "--seeds 2 --device cuda`" in card


def test_the_card_has_every_choice_that_is_not_the_recipe_s():
    recipe = replace(MNIST, phase=replace(MNIST.phase, rate=2e-4, patience=7), bent=False)
    runs = [{"seed": 0}, {"seed": 1}]
    record = {"dataset": "mnist", "split": "standard", "trainings": [{"split": "standard", "runs": runs}]}
    record |= {"recipe_name": "tuned", "recipe": asdict(recipe), "trained_on": "CPU"}
    asked = "headwater paper train mnist --recipe tuned --rate 0.0002 --patience 7 --no-bent --seeds 2"
    assert graph_cards.graph_training_command(record) == asked
    assert graph_cards.graph_training_command({**record, "recipe": asdict(MNIST), "trained_on": "a card"}) == (
        "headwater paper train mnist --recipe tuned --seeds 2 --device cuda"
    )


def test_weights_are_those_that_were_trained(home):
    record = graph_checkpoints.record_of(checkpoints.find("tuned", "bace"))
    trained = home / "work" / f"bace-random-{record['seed']}" / "model.safetensors"
    assert (checkpoints.find("tuned", "bace") / "model.safetensors").read_bytes() == trained.read_bytes()


def test_a_seed_that_is_finished_is_not_trained_again(home, monkeypatch):
    asked = {"arrays": home / "arrays", "seeds": (0, 1), "recipe": RECIPES["bace"]}

    def refused(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(graph_checkpoints.graphs, "train_bace", refused)
    assert graph_checkpoints.train_checkpoint("bace", home / "work", **asked) == report(home)
    with pytest.raises(AssertionError):
        graph_checkpoints.train_checkpoint(
            "bace", home / "work", **{**asked, "recipe": replace(RECIPES["bace"], dropout=0.5)}
        )


def test_the_command_trains_and_says_how_well(home, tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoints.DIRECTORY, str(tmp_path))
    asked = ["paper", "train", "bace", "--recipe", "paper", "--seeds", "2", "--epochs", "1", "--split", "scaffold"]
    done = CliRunner().invoke(app, [*asked, "--arrays", str(home / "arrays"), "--work", str(tmp_path / "work")])
    assert done.exit_code == 0, done.output
    assert "scaffold split: test ROC-AUC" in done.stdout
    assert "over 2 seeds; the paper's model 83.5%" in done.stdout
    assert checkpoints.seeds("paper", "bace") == [0, 1]
    records = [graph_checkpoints.record_of(checkpoints.find("paper", "bace", seed)) for seed in (0, 1)]
    assert [(record["split"], record["seed"]) for record in records] == [("scaffold", 0), ("scaffold", 1)]
    assert "--recipe paper --epochs 1 --seeds 2" in (checkpoints.find("paper", "bace") / "README.md").read_text()
    assert sorted(p.name for p in (tmp_path / "work").iterdir()) == ["bace-scaffold-0", "bace-scaffold-1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sst2", "--bent"], "--bent is for graphs, and sst2 is not of them"),
        (["sst2", "--split", "scaffold"], "--split is for graphs"),
        (["bace", "--ignore-mask"], "--ignore-mask is for texts, and bace is not of them"),
        (["mnist", "--model", "minilm"], "--model is for texts"),
    ],
)
def test_options_of_the_other_kind_are_refused(words, message):
    done = CliRunner().invoke(app, ["paper", "train", *words])
    assert done.exit_code != 0
    assert message in done.stderr


def test_arrays_are_made_where_they_are_missing(home, tmp_path):
    assert graph_data.ensure_arrays("bace", tmp_path).is_file()
    made = (tmp_path / "bace.npz").stat().st_mtime_ns
    assert graph_data.ensure_arrays("bace", tmp_path).stat().st_mtime_ns == made
    assert graph_data.arrays_directory() == home / "cache" / "graphs"
    with pytest.raises(UnknownName, match="Did you mean 'bace'"):
        graph_data.ensure_arrays("base", tmp_path)


def test_the_command_brings_in_what_was_trained_elsewhere(home, tmp_path):
    found = report(home)
    away = replace(found, runs=[replace(run, out=f"/nowhere/{Path(run.out).name}") for run in found.runs])
    for run in away.runs:  # one report a seed, as machines write them
        (tmp_path / f"{run.seed}.json").write_text(json.dumps(asdict(replace(away, runs=[run]))))
    asked = ["paper", "install", *(str(tmp_path / f"{i}.json") for i in (0, 1)), "--arrays", str(home / "arrays")]
    asked += ["--out", str(tmp_path / "out"), "--seed", "1", "--trained-on", "a far machine", "--json"]
    lost = CliRunner().invoke(app, asked)
    assert lost.exit_code != 0
    assert "--models" in str(lost.output)
    done = CliRunner().invoke(app, [*asked, "--models", str(home / "work")])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record == graph_checkpoints.record_of(tmp_path / "out")
    assert (record["seed"], len(record["trainings"][0]["runs"])) == (1, 2)
    assert "a far machine" in (tmp_path / "out" / "README.md").read_text()


def test_a_model_that_is_not_its_reports_is_refused(home, tmp_path):
    found = report(home)
    wrong = replace(found, runs=[replace(run, test=run.test - 0.3) for run in found.runs])
    with pytest.raises(DataError, match="do not belong together"):
        graph_checkpoints.install_checkpoint([wrong], tmp_path / "out", arrays=home / "arrays")
    assert not (tmp_path / "out").exists()


def test_reports_of_two_splits_stand_on_one_card(home, tmp_path):
    found = report(home)
    other = replace(found, split="scaffold", runs=[replace(run, test=0.5) for run in found.runs])
    graph_checkpoints.install_checkpoint([other, found], tmp_path, arrays=home / "arrays", split="random")
    card = (tmp_path / "README.md").read_text()
    assert "over seeds, scaffold split | 50.0% ± 0.0%" in card
    assert "| test part | random split" in card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: [r, r], "a seed twice"),
        (lambda r: [r, replace(r, recipe=replace(r.recipe, dropout=0.5))], "different recipes"),
        (lambda r: [r, replace(r, dataset="mnist")], "one dataset at a time"),
        (lambda r: [replace(r, split="scaffold")], "no report is of the random split"),
    ],
)
def test_reports_that_do_not_go_together_are_refused(home, tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        graph_checkpoints.install_checkpoint(change(report(home)), tmp_path, arrays=home / "arrays", split="random")


def test_refusals_of_seeds_and_files(home, tmp_path):
    with pytest.raises(UsageError, match="no run has the seed 7; there are 0, 1"):
        graph_checkpoints.install_checkpoint([report(home)], tmp_path, arrays=home / "arrays", seed=7)
    (tmp_path / "no.json").write_text('{"summary": "nothing"}')
    with pytest.raises(DataError, match="no report"):
        graph_checkpoints.read_report(tmp_path / "no.json")
    with pytest.raises(DataError, match=r"no training\.json"):
        graph_checkpoints.record_of(tmp_path)


def test_intervals_hold_the_value():
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (150,), generator=chance)
    logits = torch.randn(150, 2, generator=chance)
    logits[:, 1] += labels
    found = graph_checkpoints.with_interval("ROC-AUC", logits, labels)
    assert found["value"] == roc_auc(logits, labels)
    assert found["low"] < found["value"] < found["high"] < found["low"] + 0.25
    share = graph_checkpoints.with_interval("accuracy", logits, labels)
    correct = Accuracy(int((logits.argmax(1) == labels).sum()), 150)
    assert (share["value"], share["low"], share["high"]) == (correct.value, *correct.interval)


@pytest.mark.parametrize("name", published.GRAPHS)
def test_the_kept_checkpoint_is_what_its_card_says(name, monkeypatch):
    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    kept = [(kind, seed) for kind in ("paper", "tuned") for seed in checkpoints.seeds(kind, name)]
    assert kept
    for kind, seed in kept:
        path = checkpoints.find(kind, name, seed)
        record, card = graph_checkpoints.record_of(path), (path / "README.md").read_text()
        assert (record["recipe_name"], record["seed"]) == (kind, seed)
        assert (path / "model.safetensors").stat().st_size <= 4_000_000
        assert f"| test {record['measure']} | {record['test']['value']:.1%} of {record['test']['total']:,}" in card
        assert graph_data.find_graph_dataset(name).terms in card
        assert f"--recipe {kind}" in card
        model, _ = load(path)
        classes = tuple(model.config.id2label[i] for i in range(model.config.num_labels))
        assert classes == graph_data.find_graph_dataset(name).label_names


def test_the_kept_model_of_bace_is_as_good_as_its_card(monkeypatch):
    need_real_data("BACE")
    monkeypatch.delenv(checkpoints.DIRECTORY, raising=False)
    path = checkpoints.find("tuned", "bace")
    model, record = load(path)[0], graph_checkpoints.record_of(path)
    graphs = graph_data.unseen("bace", record)
    with torch.inference_mode():
        logits = torch.cat([model(**model.headwater_inputs([graph]).arguments).logits for graph in graphs])
    found = roc_auc(logits, torch.tensor([graph.label for graph in graphs]))
    assert found == pytest.approx(record["test"]["value"], abs=graph_checkpoints.SAME)


# what the model has not seen


def test_molecules_are_those_of_the_records_test_part(home):
    columns = parquet.read_table(home / "data" / "bace" / "bace.parquet").to_pydict()
    scaffold = np.array([("train", "valid", "test").index(part) for part in columns["scaffold_split"]], np.int8)
    for split, seed in (("random", 3), ("scaffold", 0)):
        rows = bace_split(scaffold, split, seed)[2].tolist()
        found = graph_data.unseen_molecules({"split": split, "seed": seed})
        assert found == [(columns["smiles"][i], columns["label"][i]) for i in rows]
    few = graph_data.unseen_molecules({"split": "random", "seed": 3}, rows=3, seed=1)
    assert len(few) == 3
    assert set(few) <= set(graph_data.unseen_molecules({"split": "random", "seed": 3}))


def test_digits_are_drawn_with_the_seed(home):
    whole, few, again = graph_data.unseen_digits(), graph_data.unseen_digits(5, 1), graph_data.unseen_digits(5, 1)
    assert (len(whole), len(few)) == (24, 5)
    assert np.array_equal(few.segments, again.segments)
    assert not np.array_equal(few.images, graph_data.unseen_digits(5, 2).images)
    rows = graph_data.draw_indices(24, 5, 1)
    assert np.array_equal(few.segments, whole.segments[rows])
    assert [g.label for g in graph_data.unseen("mnist", {}, 5, 1)] == whole.labels[rows].tolist()


# tables


@pytest.fixture(scope="module")
def measured(place, tmp_path_factory):
    out = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, place)
        return out, run(out)


def run(out: Path) -> list[Trial]:
    size = Size(rows=6, digits=6, flow_rows=2, flow_whole=())
    return list(trials.trials("tuned", ["bace", "mnist"], out, methods=CHOSEN, size=size))


@pytest.mark.slow
def test_graphs_are_measured_in_both_readings(measured):
    out, found = measured
    assert [(t.dataset, t.kind, t.title) for t in found] == [("bace", "tuned", "BACE"), ("mnist", "tuned", "MNIST")]
    for trial in found:
        assert trial.main.protocol.name == "ali2022(removal=induced)"
        assert trial.masked.protocol.name == "ali2022(removal=masked)"
        assert (len(trial.main), len(trial.masked), len(trial.flow)) == (6, 6, 2)
        assert trial.main["lrp"].aumse != trial.masked["lrp"].aumse
        assert tables.largest_error(trial.main) < 1e-4
        assert [run.seed for run in trial.runs] == [0, 1]
    assert all(run.roc_auc is not None for run in found[0].runs)
    assert all(run.roc_auc is None for run in found[1].runs)
    assert (out / "tuned" / "bace" / "1" / "masked" / "evaluation.json").is_file()


@pytest.mark.slow
def test_the_page_has_a_column_a_dataset_and_the_other_reading_below(measured):
    _, found = measured
    text = Trial("sst2", "tuned", (Run(0, made_evaluation(dict.fromkeys(CHOSEN, (0.8, 1.0))), None),))
    page = tables.tables_page([text, *found])
    assert page.count("| method | SST-2 | BACE | MNIST |") == 3
    assert page.count("| method | BACE | MNIST |") == 2
    assert "ROC-AUC" in page
    assert "(paper 83.5%)" in page
    assert "(.707)" in page  # the paper's LRP(AH+LN) on BACE
    assert "MNIST is measured on 6 of the 10,000 test digits" in page
    assert "BACE 2 molecules, MNIST 2 digits" in page
    assert "the other reading" not in tables.tables_page([text])


@pytest.mark.slow
def test_the_csv_says_which_reading_it_was(measured):
    _, found = measured
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(found))))
    rows = [r for r in rows if r["seed"] in ("0", "mean" if r["method"] == "a-flow" else "0")]
    of = {(r["dataset"], r["removal"], r["measure"]): float(r["value"]) for r in rows if r["method"] == "lrp"}
    assert of["bace", "masked", "aumse"] == pytest.approx(found[0].masked["lrp"].aumse, abs=1e-6)
    assert of["bace", "induced", "aumse"] == pytest.approx(found[0].main["lrp"].aumse, abs=1e-6)
    assert {r["recipe"] for r in rows} == {"tuned"}
    assert {r["removal"] for r in rows if r["method"] == "a-flow"} == {"induced"}


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again(home, measured, monkeypatch):
    out, found = measured
    monkeypatch.setattr("headwater.evaluation.job.EvaluationJob.run", lambda *_: pytest.fail("measured again"))
    assert tables.tables_page(run(out)) == tables.tables_page(found)


def test_all_molecules_and_a_part_of_the_digits_unless_asked():
    from headwater_experiments.paper.graph_trials import flow_limit, row_count

    assert [row_count(name, FULL) for name in ("bace", "mnist")] == [None, 1000]
    assert [row_count(name, Size(rows=7, digits=3)) for name in ("bace", "mnist")] == [7, 3]
    assert [flow_limit(name, FULL) for name in ("bace", "mnist")] == [None, 50]
    assert [flow_limit(name, QUICK) for name in ("bace", "mnist")] == [4, 1]


def test_graphs_stand_beside_the_small_models_where_they_are(home, monkeypatch, tmp_path):
    assert trials.available("tuned")[-2:] == ["bace", "mnist"]
    assert "bace" not in trials.available("minilm")
    with pytest.raises(UsageError, match="minilm reads texts"):
        list(trials.trials("minilm", ["bace"], tmp_path))
    with pytest.raises(UnknownName, match="Did you mean 'mnist'"):
        list(trials.trials("tuned", ["minst"], tmp_path))
    told = []
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    assert trials.available("tuned", told.append) == list(published.TEXTS)
    assert [line.partition(":")[0] for line in told] == ["bace is left out", "mnist is left out"]
    with pytest.raises(DataError, match="no MNIST"):
        list(trials.trials("tuned", ["mnist"], tmp_path))
    monkeypatch.setenv(checkpoints.DIRECTORY, str(tmp_path))
    assert "bace" not in trials.available("tuned")
    with pytest.raises(LoadError, match="headwater paper train bace --recipe tuned` makes it"):
        list(trials.trials("tuned", ["bace"], tmp_path))


# figures


@pytest.mark.slow
def test_figures_of_graphs_are_drawn_from_what_the_tables_left(home, measured, monkeypatch, tmp_path):
    monkeypatch.setattr(graph_pictures, "right", lambda *_: True)  # the small models are no good
    monkeypatch.setattr(graph_pictures, "EACH", 1)
    monkeypatch.setattr(graph_pictures, "DIGITS", 1)
    out, _ = measured
    assert figures.drawable("tuned", out) == [*published.TEXTS, "bace", "mnist"]
    assert figures.drawable("minilm", out) == figures.drawable("tuned", tmp_path) == list(published.TEXTS)
    made = list(figures.draw_figures("tuned", out, tmp_path, ["bace", "mnist"]))
    names = ("conservation", "conservation-attention", "curves", "curves-masked", "molecules", "digits")
    assert {path.name for path in made} == {f"{n}-graphs-tuned.{suffix}" for n in names for suffix in ("svg", "png")}
    with pytest.raises(DataError, match="headwater paper tables --recipe tuned --datasets bace --out"):
        list(figures.draw_figures("tuned", tmp_path / "none", tmp_path, ["bace"]))


def test_a_molecule_is_laid_out_as_it_is_spelled():
    places, names, bonds = graph_pictures.lay_out_atoms("C#CC(=O)[O-]")
    assert names == ["", "", "", "O", "O−"]
    assert bonds == [(0, 1, 3), (1, 2, 1), (2, 3, 2), (2, 4, 1)]
    lengths = [np.linalg.norm(np.subtract(places[a], places[b])) for a, b, _ in bonds]
    assert lengths == pytest.approx([1] * 4, abs=0.15)


def molecule(home: Path, relevance: list[float] | None = None, edges=None) -> drawing.Molecule:
    from headwater.models.molecules import from_smiles

    model, _ = load(checkpoints.find("tuned", "bace"))
    found = compare(model, from_smiles("CC(=O)N"), methods=["gi", "lrp"], target=1)
    if relevance is not None:
        told = replace(found["lrp"], relevance=torch.tensor(relevance), edges=edges)
        found = replace(found, explanations=(told,))
    return drawing.Molecule(*graph_pictures.lay_out_atoms("CC(=O)N"), found)


def minus_signs(axes) -> int:
    return sum(artist.get_label() == "minus" for artist in (*axes.patches, *axes.lines))


def test_atoms_and_bonds_that_take_away_are_dashed(home):
    figure = drawing.molecules({"": molecule(home, [1.0, -0.5, -0.01, 0.2], ((0, 1, -0.4), (1, 2, 0.4)))})
    picture = figure.axes[0]
    discs = [p for p in picture.patches if p.get_fill()]
    assert len(discs) == 3  # the third atom has a hundredth of full colour
    assert matplotlib_hex(discs[0]) == "#ff6b6b"
    assert minus_signs(picture) == 1 + 2  # a ring, and both sides of a bond


def matplotlib_hex(patch) -> str:
    from matplotlib.colors import to_hex

    return to_hex(patch.get_facecolor())


def test_molecules_keep_to_the_page_under_their_names(home):
    figure = drawing.molecules({"first": molecule(home), "second": molecule(home)}, ["lrp", "gi"])
    said = [text.get_text() for text in figure.texts]
    assert any(line.startswith("second: active, score") for line in said)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["LRP (all rules)", "GI"]
    assert off_the_page(figure) == []
    assert overlapping(figure) == []


def test_a_bond_leaves_room_for_names_and_its_lines_run_beside_each_other():
    assert skeletons.shift_line((0, 0), (2, 0), 0.5, 0.25, 0.0) == [(0.25, 0.5), (2.0, 0.5)]


def pictured(home: Path, relevance: torch.Tensor | None = None) -> drawing.Digit:
    model, _ = load(checkpoints.find("tuned", "mnist"))
    known = graph_data.unseen_digits(1)
    found = compare(model, known.graph(0), methods=["gi", "lrp"], target=1)
    if relevance is not None:
        found = replace(found, explanations=(replace(found["lrp"], relevance=relevance),))
    return drawing.Digit(known.images[0], known.segments[0], found)


def test_patches_that_take_away_are_hatched_and_only_they(home):
    from matplotlib.collections import LineCollection

    size = int(graph_data.unseen_digits(1).segments.max()) + 1
    plain, values = torch.ones(size), torch.ones(size)
    values[3], values[4], values[5] = -1.0, -0.3, -0.01
    counts = []
    for relevance in (plain, values):
        axes = drawing.digits([pictured(home, relevance)]).axes[1]
        counts.append(sum(isinstance(c, LineCollection) for c in axes.collections))
        painted = axes.images[1].get_array()
    assert counts == [1, 1 + 2]  # borders, and two strengths of hatching
    segments = graph_data.unseen_digits(1).segments[0]
    assert np.asarray(painted)[segments == 4][0, 3] == pytest.approx(0.3 * patches.STRONGEST)


def test_digits_keep_to_the_page(home):
    figure = drawing.digits([pictured(home)] * 2, ["gi", "lrp"])
    assert [axes.get_title() for axes in figure.axes[:3]] == ["image", "GI", "LRP (all rules)"]
    assert off_the_page(figure) == []
    assert overlapping(figure) == []


def test_borders_run_between_patches_in_straight_pieces():
    segments = np.array([[0, 0, 1], [0, 0, 1], [2, 2, 2]])
    frame, *lines = patches.borders(segments)
    assert frame == [(0, 0), (3, 0), (3, 3), (0, 3), (0, 0)]
    assert lines == [[(2, 0), (2, 2)], [(0, 2), (3, 2)]]


def test_pictures_of_something_else_are_refused(home):
    one = pictured(home)
    with pytest.raises(UsageError, match="of one size"):
        drawing.digits([replace(one, image=one.image[:3])])
    with pytest.raises(UsageError, match="patches"):
        drawing.digits([pictured(home, torch.ones(3))])
    with pytest.raises(UsageError, match="atoms"):
        drawing.molecules({"": molecule(home, [1.0])})
    with pytest.raises(UsageError, match="nothing to draw"):
        drawing.digits([one], ["rollout"])
    with pytest.raises(UsageError, match="different methods"):
        drawing.molecules({"a": molecule(home), "b": molecule(home, [1.0, 1, 1, 1])})


def test_recipes_survive_a_report(home):
    assert report(home, "mnist").recipe == RECIPES["mnist"]
    assert isinstance(report(home).recipe, GraphRecipe)


# one condition at a time


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(graph_ablation, "PLAIN", RECIPES["mnist"])


def test_conditions_differ_from_the_plain_training_in_one_choice_each():
    plain = choices(graph_ablation.PLAIN)
    for _, changes in graph_ablation.CONDITIONS.values():
        told = choices(change_recipe(graph_ablation.PLAIN, **changes))
        assert {name: value for name, value in told.items() if value != plain[name]} == dict(changes)
    assert (plain["bent"], plain["average"], plain["epochs"]) == (False, 0, 6)


@pytest.mark.slow
def test_ablations_are_trained_once_measured_and_set_side_by_side(home, small, tmp_path, monkeypatch):
    asked = ["paper", "ablate", "--conditions", "plain,linear", "--limit", "24", "--rows", "6", "--seeds", "2"]
    asked += ["--arrays", str(home / "arrays"), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| plain |", "| linear |"))]
    assert len(rows) == 4  # both measures
    assert all(row.split(" | ")[1] == "2" for row in rows)
    assert (tmp_path / "conditions.md").read_text().strip() == done.stdout.strip()
    waves, linear = (load(tmp_path / name / "mnist-0")[0].config.number_hidden_size for name in ("plain", "linear"))
    assert (waves, linear) == (8, 0)

    def refused(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(graph_ablation.graphs, "train_mnist", refused)
    assert CliRunner().invoke(app, asked).stdout == done.stdout
    assert isinstance(CliRunner().invoke(app, [*asked, "--limit", "20"]).exception, AssertionError)


def test_an_unknown_condition_is_refused_before_any_training(home, tmp_path):
    with pytest.raises(UnknownName, match="Did you mean 'bent'"):
        list(graph_ablation.ablate(home / "arrays", tmp_path, conditions=["plain", "bend"]))
    assert list(tmp_path.iterdir()) == []


def test_normalisers_held_everywhere_make_gi_the_rule_of_layer_norm(home):
    """GI on a model whose normalisers are constant is LRP(LN) on the model itself; the prediction does not change."""
    model, _ = load(checkpoints.find("tuned", "mnist"))
    graph = graph_data.unseen("mnist", {}, 1)[0]
    every = [name for name, module in model.named_modules() if isinstance(module, torch.nn.LayerNorm)]
    assert sorted(every) == sorted({name for names in graph_ablation.NORMS.values() for name in names})
    held = explain(graph_ablation.hold_normalisers(model, every), graph, method="gi")
    by_rule, plain = (explain(model, graph, method=method) for method in ("lrp(ln)", "gi"))
    assert held.score == pytest.approx(plain.score, rel=1e-5)
    assert torch.allclose(held.relevance, by_rule.relevance, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(held.relevance, plain.relevance, rtol=1e-3, atol=1e-5)


def test_which_normaliser_is_told_for_every_one(home):
    found = list(graph_ablation.hold_each("tuned", rows=4))
    assert [one.name for one in found] == [*graph_ablation.NORMS, "all"]
    assert {len(one.mains) for one in found} == {2}
    table = graph_ablation.held_table(found)
    gi = trials_gi(found[0])
    assert f"| none | {tables.format_number(gi, 3)}<br>" in table


def trials_gi(none: graph_ablation.Held) -> float:
    return sum(main["gi"].auac for main in none.mains) / len(none.mains)
