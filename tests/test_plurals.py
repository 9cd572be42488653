"""Where the number is one, the noun is singular: in tables, headlines, pages and errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny import tiny, tokenizer

import headwater as hw
from headwater.bias.analysis import write_verdict
from headwater.bias.pictures import draw_group_key
from headwater.bias.summary import audit_headline
from headwater.cli.run import summarise_run
from headwater.errors import DataError, UsageError
from headwater.evaluation.sources import columns_from_csv
from headwater.plurals import say_count
from headwater.results.ledger import Lines


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 texts"), (1, "1 text"), (2, "2 texts"), (1234, "1,234 texts"), (-1, "-1 texts")]
)
def test_a_number_with_its_noun(number, said):
    assert say_count(number, "text") == said


def test_a_noun_whose_plural_is_another():
    assert [say_count(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]


def test_a_bias_audit_of_one_text():
    audit = SimpleNamespace(
        groups=[SimpleNamespace(mentions=1)], texts=1, target="positive", method="lrp", provenance={"model": "m"}
    )
    assert audit_headline(audit) == "positive by lrp: 1 mention in 1 text, m"
    audit.texts = audit.groups[0].mentions = 1200
    assert "1,200 mentions in 1,200 texts" in audit_headline(audit)
    assert "a: 1 mention<" in draw_group_key(0, "a", 1)


def test_a_group_of_one_entry():
    said = write_verdict("men", "women", None, None, 1.0, {"men": 1, "women": 1})
    assert said == "Too few to say anything: men has 1, women has 1 entry; at least 20 are needed."
    said = write_verdict("men", "women", None, None, 1.0, {"men": 20, "women": 4})
    assert "women has 4 different entries; at" in said


def test_a_run_over_one_row():
    counts = SimpleNamespace(rows=1, tokens=1, open=1, errors=0)
    run = SimpleNamespace(manifest=SimpleNamespace(counts=counts, shards=1), method="lrp", path=Path("out"))
    first, second = summarise_run(run).split("\n")
    assert first.startswith("1 row and 1 token explained by lrp, in 1 shard:")
    assert second.startswith("1 ledger is open;")


def test_a_row_of_one_column(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text,label\nalone\n")
    with pytest.raises(DataError, match="has 1 column under a header of 2"):
        columns_from_csv(path, "excel", ["text"])


def test_one_of_everything_in_results():
    assert repr(Lines({"a": 1.0})) == "Lines(total=1, 1 line)"
    model = tiny("bert").base_model
    assert "(lrp, 1 direction of 32:" in str(hw.explain_similarity(model, "good", "bad", tokenizer=tokenizer(), rank=1))
    ranking = hw.rank(model, "good", ["bad"], tokenizer=tokenizer())
    with pytest.raises(UsageError, match="the ranking has 1 passage, the first is at place 0"):
        ranking.explain(1)
