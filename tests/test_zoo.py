"""The harness builds small models of one piece, and calls closed only what closes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers.modeling_outputs import ImageClassifierOutput
from transformers.models.auto import modeling_auto
from typer.testing import CliRunner
from zoo_workers import dies, grows, hangs

from headwater.cli import app
from headwater.errors import DataError, UnknownName, UsageError
from headwater_experiments.zoo import judging, pool, running
from headwater_experiments.zoo.building import NotBuilt, Specimen, randomise, small_config
from headwater_experiments.zoo.entries import MAPS, Entry, entries
from headwater_experiments.zoo.hints import Hint, hint_for
from headwater_experiments.zoo.judging import Exact
from headwater_experiments.zoo.page import FIRST, escape_cell, zoo_page
from headwater_experiments.zoo.results import VERDICTS, Finding, load_findings
from headwater_experiments.zoo.shrinking import shrunk

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"

# One of every kind: encoders, decoders, both, convolutions, experts, recurrences, several kinds of input.
FAST = (
    "sequence-classification/bert sequence-classification/t5 causal-lm/gpt2 causal-lm/mixtral causal-lm/mamba "
    "causal-lm/qwen3_next image-classification/vit image-classification/convnextv2 masked-lm/deberta-v2 "
    "token-classification/electra question-answering/roberta seq2seq/bart speech-classification/wav2vec2"
).split()


@pytest.fixture(scope="module")
def zoo() -> dict[str, Finding]:
    found = running.run(entries(names=FAST), jobs=2, progress=False)
    return {one.label: one for one in found.findings}


@pytest.mark.parametrize("label", FAST)
def test_closes(zoo: dict[str, Finding], label: str) -> None:
    found = zoo[label]
    assert found.verdict == "closed", found
    assert found.error is not None
    assert found.error <= (1e-9 if found.dtype == "float64" else 1e-5)
    assert found.dtype == "float64" or found.exact is None or found.exact <= 1e-9


def test_entries_are_those_of_transformers() -> None:
    assert [MAPS[name] for name in FIRST] == ["SEQUENCE_CLASSIFICATION", "CAUSAL_LM", "IMAGE_CLASSIFICATION"]
    for ours, theirs in MAPS.items():
        table = getattr(modeling_auto, f"MODEL_FOR_{theirs}_MAPPING_NAMES")
        assert [entry.name for entry in entries([ours])] == list(table)
    assert [entry.label for entry in entries(names=["causal-lm/gpt2"])] == ["causal-lm/gpt2"]
    assert {entry.map for entry in entries(names=["gpt2"])} > {"causal-lm", "sequence-classification"}


def test_an_unknown_map_or_architecture_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'causal-lm'"):
        entries(["casual-lm"])
    with pytest.raises(UnknownName, match="Did you mean 'gpt2'"):
        entries(names=["gpt22"])
    with pytest.raises(UsageError, match="none in common"):
        running.run([])


def small(name: str, label: str = "") -> Any:
    return small_config(Entry("causal-lm", name, ""), hint_for(label, name))


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "gemma3", "deepseek_v3", "whisper", "swin", "mamba2"])
def test_a_configuration_shrinks(name: str) -> None:
    config = small(name).get_text_config()
    width = getattr(config, "hidden_size", 0)
    assert width <= 192
    assert getattr(config, "vocab_size", 0) <= 128
    assert (getattr(config, "num_hidden_layers", None) or 0) <= 4


def test_layers_of_every_kind_are_kept() -> None:
    kinds = CONFIG_MAPPING["gemma3_text"]().layer_types
    config = small("gemma3_text")
    assert set(config.layer_types) == set(kinds) == {"sliding_attention", "full_attention"}
    assert config.num_hidden_layers == len(config.layer_types)


def test_keys_are_shared_as_they_were() -> None:
    assert (small("mistral").num_attention_heads, small("mistral").num_key_value_heads) == (4, 2)
    assert (small("gemma").num_attention_heads, small("gemma").num_key_value_heads) == (4, 4)
    assert small("llama").num_key_value_heads == 4


def test_special_tokens_lie_in_the_vocabulary_and_apart_from_the_text() -> None:
    config = small("qwen2_vl")
    found = [v for part in (config, config.text_config) for k, v in vars(part).items() if k.endswith("token_id")]
    assert found
    assert all(value is None or value < 16 for value in found)


def test_what_a_configuration_chose_for_its_part_is_kept() -> None:
    joined = small("encoder-decoder")
    assert joined.decoder.add_cross_attention
    assert joined.decoder.hidden_size == joined.encoder.hidden_size == 32


def test_hints_for_parts() -> None:
    config = shrunk(CONFIG_MAPPING["dbrx"](), {"attn_config.clip_qkv": 3.0})
    assert config.attn_config.clip_qkv == 3.0
    assert hint_for("causal-lm/reformer", "reformer").fields["is_decoder"]
    assert "is_decoder" not in hint_for("masked-lm/reformer", "reformer").fields


def test_nothing_is_zero_or_one_after_drawing() -> None:
    model = randomise(nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.LayerNorm(4), nn.Linear(4, 4)), seed=0)
    for tensor in (*model.parameters(), *model.buffers()):
        assert not tensor.is_floating_point() or not bool(((tensor == 0) | (tensor == 1)).any())
    again = randomise(nn.Sequential(nn.Linear(3, 3)), seed=3), randomise(nn.Sequential(nn.Linear(3, 3)), seed=3)
    assert torch.equal(again[0][0].weight, again[1][0].weight)


class Model(nn.Module):
    """Two linear layers with an operation between."""

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.first, self.last, self.operation = nn.Linear(4, 4), nn.Linear(4, 3), operation
        self.config = SimpleNamespace()

    def forward(self, pixel_values: Tensor) -> Any:
        return ImageClassifierOutput(logits=self.last(self.operation(self.first(pixel_values))))


def judged(monkeypatch: pytest.MonkeyPatch, operation: Any) -> Finding:
    """The verdict on a model with this operation, as if it were an entry of a map."""

    def build(entry: Entry, dtype: torch.dtype) -> Specimen:
        model = randomise(Model(operation), seed=1).to(dtype).eval()
        return Specimen(model, {"pixel_values": torch.ones(1, 4, dtype=dtype)}, "pixel_values")

    monkeypatch.setattr(judging, "build", build)
    before = torch.get_default_dtype()
    try:
        return judging.judge(Entry("image-classification", "made-up", ""))
    finally:
        assert torch.get_default_dtype() is before


def test_an_operation_that_conserves_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, torch.tanh)
    assert (found.verdict, found.leaks, found.dtype) == ("closed", (), "float64")
    assert found.error is not None
    assert found.error < 1e-12


def test_a_leak_is_open_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, torch.lgamma)
    assert found.verdict == "open"
    assert found.leaks[0] == "lgamma in Model"
    assert found.error is not None
    assert found.error > 1e-3


def test_a_leak_as_small_as_rounding_is_open_where_the_model_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    """2e-6 of the lines would pass for rounding in float32, if the casts were not lifted for a second look."""

    def leaks_a_little(x: Tensor) -> Tensor:
        return x.float().double() + 1e-6 * torch.lgamma(x)

    found = judged(monkeypatch, leaks_a_little)
    assert found.dtype == "float32"
    assert found.error is not None
    assert found.error < 1e-5
    assert (found.verdict, found.leaks[0]) == ("open", "lgamma in Model")
    assert judged(monkeypatch, lambda x: x.float().double()).verdict == "closed"


def test_what_says_nothing_of_the_inputs_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, lambda x: x * 1e-14 + 1)
    assert (found.verdict, found.why) == ("open", "no relevance reaches the inputs")
    found = judged(monkeypatch, lambda x: x.detach())
    assert found.verdict == "refused"
    assert found.why.startswith("NoSignal: the score does not depend")


def test_a_refusal_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    found = judged(monkeypatch, Hidden.apply)
    assert found.verdict == "refused"
    assert found.why.startswith("HiddenOperation: the model uses a custom autograd function (Hidden)")


def test_a_score_that_changes_under_the_rules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, lambda x: x * (2 if torch.is_grad_enabled() else 1))
    assert found.verdict == "refused"
    assert found.why.startswith("AnotherPrediction: under the rules the model's score is off by")


def test_what_a_model_cuts_off_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, lambda x: x + x.detach())
    assert found.verdict == "open"
    assert "cuts off" in found.why
    assert not found.leaks


def test_rules_that_break_down_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(specimen: Specimen, score: Any) -> Any:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(judging, "explain_specimen", breaks)
    found = judged(monkeypatch, torch.tanh)
    assert (found.verdict, found.why) == ("open", "crashed: RuntimeError: shapes differ")


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (lambda x: x * torch.nan, "its plain prediction is not finite"),
        (lambda x: x.reshape(7), "RuntimeError: shape '[7]' is invalid for input of size 4"),
    ],
)
def test_what_cannot_be_built_says_why(monkeypatch: pytest.MonkeyPatch, operation: Any, why: str) -> None:
    found = judged(monkeypatch, operation)
    assert (found.verdict, found.why) == ("not built", why)


def test_float32_where_the_code_allows_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.full((4, 4), 0.3, dtype=torch.float32)
    assert judged(monkeypatch, lambda x: torch.tanh(x @ weight)).dtype == "float32"


def test_a_head_that_cannot_stand_alone_is_not_built() -> None:
    found = judging.judge(entries(names=["causal-lm/gemma4_assistant"])[0])
    assert (found.verdict, found.why) == ("not built", hint_for("", "gemma4_assistant").cannot)
    assert Hint().cannot == ""


def test_casts_are_lifted() -> None:
    x = torch.ones(2, dtype=torch.float64) / 3
    with Exact():
        for y in (x.float(), x.to(torch.float32), x.type(torch.float32), x.sum(dtype=torch.float32), x.bfloat16()):
            assert y.dtype is torch.float64
        assert torch.zeros(1, dtype=torch.float32).dtype is torch.float64
    assert x.float().dtype is torch.float32


ONE = Entry("causal-lm", "gpt2", "GPT2LMHeadModel")


@pytest.mark.slow
def test_one_that_hangs_is_stopped() -> None:
    (found,) = pool.findings([ONE], 1, timeout=5, memory=4, target=hangs)
    assert (found.verdict, found.why) == ("open", "stopped after 5 s while explaining")


@pytest.mark.slow
def test_one_that_dies_is_told() -> None:
    (found,) = pool.findings([ONE], 1, timeout=60, memory=4, target=dies)
    assert (found.verdict, found.why) == ("not built", "its process ended while building, exit code 3")


@pytest.mark.slow
def test_one_that_grows_is_stopped() -> None:
    (found,) = pool.findings([ONE], 1, timeout=60, memory=1, target=grows)
    assert (found.verdict, found.why) == ("not built", "needs more than 1 GiB of memory")


FOUND = (
    Finding("causal-lm", "gpt2", "closed", error=1e-16, tolerance=1e-9, versions="v"),
    Finding("causal-lm", "one", "open", error=0.25, tolerance=1e-9, leaks=("mul in Odd", "pow in Odd"), versions="v"),
    Finding("sequence-classification", "two", "refused", "HiddenOperation: a | b", versions="v"),
    Finding("sequence-classification", "three", "not built", "ImportError: none", versions="v"),
)


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def findings(missing: list[Entry], *_: Any) -> Any:
        for entry in missing:
            made.append(entry.label)
            yield Finding(entry.map, entry.name, "closed", versions=running.versions())

    monkeypatch.setattr(running, "findings", findings)
    out = tmp_path / "zoo.jsonl"
    running.run(entries(names=["causal-lm/gpt2"]), out=out)
    both = running.run(entries(names=["causal-lm/gpt2", "causal-lm/opt"]), out=out)
    assert made == ["causal-lm/gpt2", "causal-lm/opt"]
    assert [one.label for one in both.findings] == ["causal-lm/gpt2", "causal-lm/opt"]
    rows = out.read_text(encoding="utf-8").splitlines()
    out.write_text("\n".join(row.replace(running.versions(), "others") for row in rows) + "\n", encoding="utf-8")
    running.run(entries(names=["causal-lm/gpt2"]), out=out)
    assert made[-1] == "causal-lm/gpt2"
    assert len(load_findings(out)) == 2


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"a": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match="holds no findings"):
        load_findings(file)


def test_findings_go_through_json() -> None:
    for one in FOUND:
        row = json.loads(json.dumps(one.to_dict()))
        assert Finding(**{**row, "leaks": tuple(row["leaks"])}) == one
    assert dataclasses.replace(FOUND[0], error=float("nan")).to_dict()["error"] is None


def test_page() -> None:
    text = zoo_page(FOUND)
    assert "| map/name | closed | error | operations that leaked |" in text
    assert "| causal-lm/one | open | 2e-01 | mul in Odd, pow in Odd |" in text
    assert "| sequence-classification/two | refused | – | HiddenOperation: a \\| b |" in text
    assert "| the first three | 4 | 3 | 1 | 1 | 1 | 33.3 % |" in text
    assert escape_cell("<a>") == "&lt;a>"


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running, "run", lambda wanted, **_: running.Zoo(FOUND))
    file = tmp_path / "page.md"
    said = CliRunner().invoke(app, ["zoo", "--names", "gpt2", "--page", str(file), "--plain"])
    assert said.exit_code == 0
    assert "1 closed, 1 open, 1 refused, 1 not built" in said.stdout
    assert file.read_text(encoding="utf-8") == zoo_page(FOUND)
    rows = json.loads(CliRunner().invoke(app, ["zoo", "--names", "gpt2", "--json"]).stdout)["findings"]
    assert [row["verdict"] for row in rows] == ["closed", "open", "refused", "not built"]
    assert CliRunner().invoke(app, ["zoo", "--maps", "causal"]).exit_code == 2


def rows_of_the_page() -> list[tuple[str, ...]]:
    lines = PAGE.read_text(encoding="utf-8").split("## Every entry")[1].splitlines()
    rows = [tuple(part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines if "/" in line]
    return [row for row in rows if row[0] != "map/name"]


def test_the_page_in_the_repository_meets_the_aim() -> None:
    """At least 310 entries of the first three maps are built, and 97 % of those close; the rest says why."""
    rows = rows_of_the_page()
    assert {row[0].split("/")[0] for row in rows} == set(MAPS)
    assert {row[1] for row in rows} <= set(VERDICTS)
    first = [row for row in rows if row[0].split("/")[0] in FIRST and row[1] != "not built"]
    assert len(first) >= 310
    assert sum(row[1] == "closed" for row in first) >= 0.97 * len(first)
    assert all(row[3] for row in rows if row[1] != "closed")


def test_no_architecture_has_its_name_in_the_engine() -> None:
    """Names of configurations and of classes, among identifiers and strings; comments and docstrings may tell."""
    names = {entry.name for entry in entries() if len(entry.name) > 3} | {entry.model for entry in entries()}
    names = {name for name in names if not hasattr(torch, name)}  # torch has a function `clip`
    source = Path(judging.__file__).parents[1]
    engine = [
        *source.glob("*.py"),
        *(p for part in ("rules", "methods", "inputs") for p in (source / part).glob("*.py")),
    ]
    found = {(path.name, word) for path in engine for word in words_in(path) if word in names}
    assert found == set()


def words_in(path: Path) -> set[str]:
    import ast

    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | strings


def test_not_built_is_no_error_of_the_library() -> None:
    assert not issubclass(NotBuilt, UsageError)
