"""Two texts on the command line, as text, as a picture and as a page; hostile strings stay text."""

from __future__ import annotations

import copy
import json
from xml.etree import ElementTree

import pytest
from tiny import tiny, tokenizer
from typer.testing import CliRunner

import headwater as hw
from headwater.cli import build_app
from headwater.viz.two_texts import draw_similarity_page, draw_word_lines

HOSTILE = '<script>alert(1)</script> film & "movie"'


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    place = tmp_path_factory.mktemp("encoder")
    copy.deepcopy(tiny("bert").base_model).float().save_pretrained(place)
    tokenizer().save_pretrained(place)
    return str(place)


def answer(*words: str) -> str:
    found = CliRunner().invoke(build_app(), list(words))
    assert found.exit_code == 0, found.output
    return found.stdout


def similar(text: str = HOSTILE):
    return hw.explain_similarity(tiny("bert").base_model, "the film was not good", text, tokenizer=tokenizer())


def test_the_picture_has_every_word_and_lines_by_strength():
    s = similar()
    drawn = ElementTree.fromstring(draw_word_lines(s))
    texts = [next(iter(e.itertext())) for e in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [*s.words().rows, *s.words().columns]
    widths = [float(e.get("stroke-width")) for e in drawn.iter("{http://www.w3.org/2000/svg}line")]
    assert widths == sorted(widths)
    assert widths[-1] == 8
    signs = {e.get("stroke-dasharray") is None for e in drawn.iter("{http://www.w3.org/2000/svg}line")}
    assert signs == {
        bool(float(x) > 0) for x in s.words().matrix.flatten() if abs(x) > 0.05 * s.words().matrix.abs().max()
    }


def test_hostile_strings_stay_text():
    for drawn in (draw_word_lines(similar()), draw_similarity_page(similar())):
        assert "<script>alert" not in drawn
    assert "&lt;script&gt;alert" in draw_similarity_page(similar())


def test_the_text_names_score_pairs_and_ledger():
    shown = str(similar("a gripping movie"))
    assert shown.startswith("cosine")
    assert "pairs of words:" in shown
    assert "words of a × biases of b" in shown
    assert "constants of" not in shown


def test_similar_on_the_command_line(directory, tmp_path):
    words = ("similar", "the film", "a movie", "--model", directory, "--pooling", "cls", "--dtype", "float64")
    shown = answer(*words, "--svg", str(tmp_path / "a.svg"), "--html", str(tmp_path / "a.html"))
    assert "closed" in shown
    record = json.loads(answer(*words, "--json", "--rank", "3"))
    assert record["rank"] == 3
    assert f"{record['score']:+.4f}" in shown
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert "Ledger" in (tmp_path / "a.html").read_text()
    assert hw.Similarity.from_dict(record).rows[0] == "[CLS]"


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cross") / "model"
    tiny("bert").save_pretrained(path)
    tokenizer().save_pretrained(path)
    return str(path)


def test_a_cross_encoder_is_named_on_the_command_line(cross_encoder, tmp_path):
    """It was told to say how it pools. Its logit is explained, as that of the same model as a module."""
    words = ("the film", "a movie", "--model", cross_encoder, "--dtype", "float64", "--target", "1")
    record = json.loads(answer("similar", *words, "--json"))
    expected = hw.explain_similarity(tiny("bert"), "the film", "a movie", tokenizer=tokenizer(), target=1)
    assert record["measure"] == "logit of 'LABEL_1'"
    assert record["score"] == pytest.approx(expected.score, abs=1e-6)  # the weights were read as float32
    file = tmp_path / "passages.txt"
    file.write_text("a gripping movie\nvery dull\n")
    shown = answer("rank", "the film", str(file), *words[2:])
    assert shown.startswith("logit with: the film")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dot",), "gives no vectors: leave out --dot."),
        (("--prompt-a", "query: "), "gives no vectors: leave out --prompt-a and --prompt-b."),
        (("--pooling", "mean"), "gives no vectors: leave out --pooling."),
        (("--rank", "2"), "has no directions: leave out --rank."),
    ],
)
def test_what_a_cross_encoder_has_not_is_refused_by_the_option(cross_encoder, words, said):
    found = CliRunner().invoke(build_app(), ["similar", "the film", "a movie", "--model", cross_encoder, *words])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())


def test_rank_on_the_command_line(directory, tmp_path):
    file = tmp_path / "passages.txt"
    file.write_text("a gripping movie\n\nparis is the capital\nvery dull\n")
    words = ("rank", "the film", str(file), "--model", directory, "--pooling", "mean", "--why", "0,1")
    shown = answer(*words)
    assert "difference +" in shown
    records = [json.loads(line) for line in answer(*words, "--json", "--top", "2").splitlines()]
    assert [one["place"] for one in records[:2]] == [0, 1]
    assert records[0]["score"] >= records[1]["score"]
    assert records[2]["difference"] == pytest.approx(records[0]["score"] - records[1]["score"], abs=1e-5)
    assert sum(w["relevance"] for w in records[2]["words"]) + records[2]["rest"] == pytest.approx(
        records[2]["difference"]
    )


def test_a_passage_ends_at_a_line_feed_and_has_the_number_of_its_line(directory, tmp_path):
    (tmp_path / "p.txt").write_text("\ufeffa film\n\nvery\u2028dull\n", encoding="utf-8")
    words = ("rank", "the film", str(tmp_path / "p.txt"), "--model", directory, "--pooling", "mean", "--json")
    records = [json.loads(line) for line in answer(*words).strip().split("\n")]
    assert {one["line"]: one["passage"] for one in records} == {0: "a film", 2: "very\u2028dull"}


def test_a_terminal_obeys_nothing_that_stands_in_a_text(directory, tmp_path):
    obeyed = "the \x1b]0;taken\x07film \x1b[2J\u202e was\rnot"
    s = similar(obeyed)
    ranking = hw.rank(tiny("bert").base_model, obeyed, [obeyed, "a film"], tokenizer=tokenizer())
    for shown in (str(s), draw_similarity_page(s), draw_word_lines(s), str(ranking), str(ranking.why(0, 1))):
        assert not [c for c in shown if not c.isprintable() and c != "\n"]
    (tmp_path / "t.csv").write_bytes(b"\x1b]0;taken\x07\nfilm\n")
    found = CliRunner().invoke(build_app(), ["evaluate", "--data", str(tmp_path / "t.csv")])
    assert "\\x1b]0;taken\\x07" in found.stderr
    assert found.stderr.endswith("\n")
    assert not [c for c in found.stderr if not c.isprintable() and c != "\n"]


def test_places_that_are_none(directory, tmp_path):
    file = tmp_path / "p.txt"
    file.write_text("a film\n")
    found = CliRunner().invoke(build_app(), ["rank", "x", str(file), "--model", directory, "--why", "first"])
    assert found.exit_code != 0
