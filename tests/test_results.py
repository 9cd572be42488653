"""Results are kept, shown, plotted and made into tables; what is saved is read without a model, bit for bit."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from speaker import speaker
from speaker import talker as talker

import headwater as hw
from headwater.errors import DataError, InputError, MissingExtra, UsageError
from headwater.models.bundled import load_bundled
from headwater.results.explanation import Explanation
from headwater.results.generation import Generation
from headwater.results.ledger import Ledger, Lines

TEXT = "The plot is thin, but the cast is wonderful."


@cache
def bundled() -> Any:
    return load_bundled()


@cache
def explained(**options: Any) -> Explanation:
    model, tokenizer = bundled()
    return hw.explain(model, TEXT, tokenizer=tokenizer, **options)


@cache
def compared() -> hw.Comparison:
    model, tokenizer = bundled()
    return hw.compare(model, TEXT, tokenizer=tokenizer, methods=["gi", "lrp", "rollout"])


@cache
def generated(**options: Any) -> Generation:
    return hw.explain_generation(
        talker("gpt2"), "the capital of France is", tokenizer=speaker(), max_new_tokens=3, **options
    )


@cache
def audited() -> hw.Audit:
    model, tokenizer = bundled()
    return hw.audit(model, TEXT, tokenizer=tokenizer)


def of_an_image() -> Explanation:
    from headwater.models.bundled import DIGITS, bundled_path
    from headwater.models.loading import load_image_model

    pytest.importorskip("PIL")
    model, processor = load_image_model(bundled_path(DIGITS))
    image = torch.arange(28 * 28, dtype=torch.uint8).reshape(28, 28).numpy()
    return hw.explain(model, image, processor=processor)


def of_a_tensor() -> Explanation:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2)).double().eval()
    return hw.explain(model, torch.ones(1, 2, 3, dtype=torch.float64), score=lambda out: out.sum((1, 2)))[0]


def of_a_pair() -> Explanation:
    model, tokenizer = bundled()
    return hw.explain(model, ("a good film", "a bad film"), tokenizer=tokenizer)


RESULTS = {
    "text": explained,
    "pair": of_a_pair,
    "tensor": of_a_tensor,
    "image": of_an_image,
    "comparison": compared,
    "generation": generated,
    "audit": audited,
}


def fields_of(result: Any) -> Any:
    """Every field, tensors with their type and their bits."""
    if isinstance(result, torch.Tensor):
        return str(result.dtype), tuple(result.shape), result.numpy().tobytes()
    if isinstance(result, (tuple, list)):
        return [fields_of(one) for one in result]
    if isinstance(result, Lines):
        return dict(result)
    if hasattr(result, "__dataclass_fields__"):
        kept = [name for name, field in result.__dataclass_fields__.items() if field.compare]
        return {name: fields_of(getattr(result, name)) for name in kept}
    return result


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_saved_is_read_bit_for_bit(name: str, tmp_path: Path) -> None:
    made: Any = RESULTS[name]()
    made.save(tmp_path / "result.json")
    again = type(made).load(tmp_path / "result.json")
    assert fields_of(again) == fields_of(made)
    assert again == made
    assert again is not made
    assert again.to_dict() == made.to_dict() == json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert list(made.to_dict())[:2] == ["format", "kind"]


def test_the_last_bit_counts() -> None:
    record = explained().to_dict()
    moved = torch.nextafter(explained().relevance[1], torch.tensor(9.0))
    assert float(moved) != record["relevance"][1]
    record["relevance"][1] = float(moved)
    assert fields_of(Explanation.from_dict(record)) != fields_of(explained())
    assert Explanation.from_dict(record) != explained()
    assert [Explanation.from_dict(record), explained()].index(explained()) == 1
    assert explained() != record


def test_a_saved_explanation_is_read_where_no_model_can_be(tmp_path: Path) -> None:
    explained().save(tmp_path / "e.json")
    code = (
        "import sys; sys.modules['transformers'] = None; import headwater as hw; "
        f"e = hw.Explanation.load({str(tmp_path / 'e.json')!r}); print(e); print(e.probability)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{explained()}\n{explained().probability}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "does not say what it holds"),
        ("[1]", "does not say what it holds"),
        ("no json", "no saved explanation"),
        ('{"kind": "generation", "format": 1}', "it holds a generation"),
        ('{"kind": "explanation", "format": 2}', "format 2; this version reads format 1"),
    ],
)
def test_another_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(DataError, match=message):
        Explanation.load(tmp_path / "file.json")
    with pytest.raises(DataError, match=r"nothing\.json cannot be read: No such file or directory\."):
        hw.Explanation.load("nothing.json")
    with pytest.raises(DataError, match="cannot be written"):
        explained().save(tmp_path / "no such directory" / "e.json")


def test_a_ledger_is_read_with_all_that_it_says() -> None:
    ledger = Ledger(1.0, 0.5, Lines({"b": 0.1}), Lines(), 0.05, "float64", 3.0, Lines({"c": 0.2}), Lines(), 0.7, 0.3)
    assert Ledger.from_dict(json.loads(json.dumps(ledger.to_dict()))) == ledger


@pytest.mark.parametrize("command", ["explain", "compare --methods gi,lrp,rollout", "audit"])
def test_printed_it_is_what_the_command_line_puts_into_a_pipe(command: str) -> None:
    from typer.testing import CliRunner

    from headwater.cli import app

    made: Any = {"explain": explained, "compare": compared, "audit": audited}[command.split()[0]]()
    assert f"{made}\n" == CliRunner().invoke(app, [*command.split(), TEXT]).stdout
    assert "\x1b" not in str(made)


def test_a_printed_ledger_is_the_end_of_a_printed_explanation() -> None:
    lines = str(explained().ledger).splitlines()
    score = next(i for i, line in enumerate(lines) if line.split()[0] == "score")
    assert set(lines[: score + 1]) <= {*str(explained()).splitlines()}
    assert score > 3
    assert "\x1b" not in str(explained().ledger)
    assert "<table" in (explained().ledger._repr_html_() or "")


def test_shown_it_is_in_colour_on_a_terminal_and_plain_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    explained().show()
    assert capsys.readouterr().out == f"{explained()}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for result in (explained(), compared(), generated(), audited(), explained().ledger):
        result.show()
        assert "\x1b[" in capsys.readouterr().out


def test_probabilities_are_those_of_the_model() -> None:
    model, tokenizer = bundled()
    with torch.no_grad():
        chances = model(**tokenizer(TEXT, return_tensors="pt")).logits[0].double().softmax(-1)
    e = explained()
    names = [model.config.id2label[i] for i in range(len(chances))]
    assert dict(e.probabilities) == pytest.approx(dict(zip(names, chances.tolist(), strict=True)), abs=1e-6)
    assert e.probability == e.probabilities[e.target] == max(e.probabilities.values())
    assert next(iter(e.probabilities)) == e.prediction
    assert explained(target="positive - negative").probability is None
    assert explained(method="rollout").probability == pytest.approx(e.probability)
    assert explained(method="leave-one-out").probability == pytest.approx(e.probability)
    assert dict(of_a_tensor().probabilities) == {}


def test_probabilities_of_a_language_model_are_the_likeliest_and_that_of_the_explained_token() -> None:
    g = generated()
    e = g.explanation(0)
    assert e.probability == g.probabilities[0]
    assert g.whole().probability == pytest.approx(torch.tensor(g.probabilities).double().prod().item())
    assert list(generated(score="contrast").explanation(0).probabilities.values()) == [g.probabilities[0]]


def test_many_classes_keep_the_likeliest_and_the_target() -> None:
    from headwater.inputs.classes import LIKELIEST, MOST_CLASSES, ClassLogits, Names

    logits = torch.linspace(3, -3, MOST_CLASSES + 1)
    names = Names(len(logits), str, int)
    found = ClassLogits(logits, names).probabilities("700")
    assert list(found) == [*map(str, range(LIKELIEST)), "700"]
    assert found["700"] == pytest.approx(float(logits.double().softmax(-1)[700]))
    assert len(ClassLogits(logits[:-1], names).probabilities("700")) == MOST_CLASSES
    alone = ClassLogits(torch.zeros(2), names, independent=True).probabilities()
    assert alone == {"0": 0.5, "1": 0.5}


def test_a_stored_run_keeps_probabilities() -> None:
    from headwater.store.columns import explanation_row, to_explanation

    pytest.importorskip("pyarrow")
    row = {**explanation_row(explained(), 0), "double": False}
    again = to_explanation(row, explained().provenance, explained().rules_met)
    assert dict(again.probabilities) == dict(explained().probabilities)


# tables of pandas


def test_frames_have_a_row_for_each_number() -> None:
    pytest.importorskip("pandas")
    e = explained()
    frame = e.to_frame()
    assert list(frame.columns) == ["token", "special", "start", "end", "relevance"]
    assert frame.relevance.tolist() == e.relevance.tolist()
    assert "wonderful" in [TEXT[a:b] for a, b in zip(frame.start, frame.end, strict=True)]
    assert frame.attrs["score"] == e.score
    wide = compared().to_frame()
    assert list(wide.columns)[-3:] == ["gi", "lrp", "rollout"]
    assert wide["lrp"].tolist() == compared()["lrp"].relevance.tolist()
    long = generated().to_frame()
    assert long.groupby("output").relevance.sum().tolist() == pytest.approx([b.inputs for b in generated().ledgers])
    assert set(audited().to_frame().columns) == {"name", "kind", "out", "into", "sources", "lost"}
    image = of_an_image()
    assert image.to_frame().pivot(index="row", columns="column", values="relevance").shape == tuple(image.patches.shape)
    tensor = of_a_tensor()
    assert list(tensor.to_frame().columns) == ["axis_0", "axis_1", "relevance"]
    assert len(tensor.to_frame()) == tensor.relevance.numel()


# plots of matplotlib


@pytest.fixture
def closed_figures() -> Any:
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_plotted_on_the_axes_that_come_back(name: str, closed_figures: Any) -> None:
    made: Any = RESULTS[name]()
    own = made.plot()
    assert own.has_data()
    assert own.get_title()
    _, given = closed_figures.subplots()
    assert made.plot(ax=given) is given
    own.figure.canvas.draw()


def test_bars_are_the_words_with_their_relevance(closed_figures: Any) -> None:
    words = explained().words()
    axes = explained().plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == [word.text for word in words]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([word.relevance for word in words])


def test_a_text_with_dollar_signs_is_no_formula(closed_figures: Any) -> None:
    model, tokenizer = bundled()
    made = hw.explain(model, "it cost $5 and was worth $1_{x", tokenizer=tokenizer)
    made.plot().figure.canvas.draw()


@pytest.mark.parametrize(("package", "extra"), [("pandas", "data"), ("matplotlib", "plot")])
def test_a_missing_package_is_named_by_its_extra(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return usual(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    ask = explained().to_frame if package == "pandas" else explained().plot
    with pytest.raises(MissingExtra, match=rf"headwater\[{extra}\]"):
        ask()


# explain_generation takes its arguments like all others


def test_the_old_order_works_and_says_what_to_write() -> None:
    new = generated()
    for given in (("the capital of France is",), ()):
        options: dict[str, Any] = {"max_new_tokens": 3} | ({} if given else {"prompt": "the capital of France is"})
        with pytest.warns(DeprecationWarning, match=r"explain_generation\(model, prompt, tokenizer=tokenizer\)"):
            old: Any = hw.explain_generation(talker("gpt2"), speaker(), *given, **options)
        assert torch.equal(old.relevance, new.relevance)


def test_a_list_of_prompts_gives_a_list() -> None:
    prompts = ["the capital of France is", "a good film"]
    found = hw.explain_generation(talker("gpt2"), prompts, tokenizer=speaker(), max_new_tokens=3)
    assert [type(one) for one in found] == [Generation] * 2
    assert torch.equal(found[0].relevance, generated().relevance)
    assert hw.explain_generation(talker("gpt2"), [], tokenizer=speaker()) == []
    answers = hw.explain_generation(talker("gpt2"), iter(prompts), tokenizer=speaker(), answer=[" Paris", " good"])
    assert [one.text.strip() for one in answers] == ["Paris", "good"]
    with pytest.raises(UsageError, match="1 answer for 2 prompts"):
        hw.explain_generation(talker("gpt2"), prompts, tokenizer=speaker(), answer=[" Paris"])
    with pytest.raises(InputError, match="not int"):
        hw.explain_generation(talker("gpt2"), 5, tokenizer=speaker())
    with pytest.raises(InputError, match="tokenizer=tokenizer"):
        hw.explain_generation(talker("gpt2"), "a good film")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{}", r"result.json cannot be read: this is no saved explanation: it does not say what it holds\."),
        ('{"format": 1, "kind": "comparison"}', r"result.json cannot be read: .* it holds a comparison\."),
        ('{"format": 1, "kind": "explanation"}', r"result.json is damaged: .* is not whole \('score'\)\."),
        ('{"format": 1, "kind": "explanation", "score": 1, "ledger": 3}', r"result.json is damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(written: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(written)
    with pytest.raises(DataError, match=said):
        Explanation.load(tmp_path / "result.json")
