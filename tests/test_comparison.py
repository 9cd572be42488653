"""Several methods on one prediction: the same numbers as one by one, one pass shared, pictures that say the scale."""

from __future__ import annotations

import json
import re
from copy import deepcopy

import pytest
import torch
from page_reader import Reader
from rich.console import Console
from rich.text import Text
from tiny import tiny, tokenizer
from torch import nn
from typer.testing import CliRunner

import headwater as hw
from headwater.api.compare import PAPER
from headwater.cli import app
from headwater.defaults import TEXT_METHOD
from headwater.errors import TooLong, UnknownName, UsageError
from headwater.names import split_names
from headwater.results.comparison import Comparison
from headwater.results.explanation import Explanation, Provenance
from headwater.results.ledger import Ledger
from headwater.viz.comparison import page, plain, render
from headwater.viz.svg import picture

SENTENCE = "a gripping, beautifully acted film"
MADE = Provenance("0", "0", "0", "tiny", "cpu", "float32", 0)
TOKENS = ("[CLS]", "good", "film", "##s", "[SEP]")
LARGE, SMALL = (0.0, 4.0, -2.0, 1.0, -0.5), (0.0, -0.0004, 0.0002, 0.0, 0.0001)


def explanation(method: str, relevance: tuple[float, ...], score: float = 2.5, **changes: object) -> Explanation:
    values = torch.tensor(relevance, dtype=torch.float64)
    fields = {
        "tokens": TOKENS,
        "relevance": values,
        "score": score,
        "target": "positive",
        "ledger": Ledger(score, float(values.sum())),
        "method": method,
        "provenance": MADE,
        "special": (True, False, False, False, True),
    }
    return Explanation(**{**fields, **changes})


def example(**changes: object) -> Comparison:
    found = (explanation("lrp", LARGE, **changes), explanation("gi", SMALL, **changes))
    return Comparison(found, (("a-last", "the model has no attention"),))


def on_screen(comparison: Comparison, width: int = 120, theme: str = "dark", words: bool = False) -> str:
    screen = Console(width=width, force_terminal=True, color_system="truecolor")
    with screen.capture() as captured:
        screen.print(render(comparison, words=words, theme=theme))
    return captured.get()


def without_codes(text: str) -> str:
    return Text.from_ansi(text).plain


# compare


class Calls:
    """How often the caller's model ran."""

    def __init__(self, model: nn.Module) -> None:
        self.number = 0
        self.handle = model.register_forward_hook(self.count)

    def count(self, *_: object) -> None:
        self.number += 1

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


def explained_once(*methods: str) -> nn.Module:
    """A model of its own that was looked at closely, as every model is at its first explanation by a method."""
    model = deepcopy(tiny("bert"))
    for name in methods:
        hw.explain(model, SENTENCE, tokenizer=tokenizer(), method=name)
    return model


METHODS = ["lrp", "random", "gae", "a-last", "gi", "lrp(ah+ln)", "rollout", "smoothgrad"]


@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_every_method_says_what_it_says_alone_and_in_the_order_asked_for(model):
    found = hw.compare(tiny(model), SENTENCE, tokenizer=tokenizer(), methods=METHODS, seed=3)
    assert [e.method for e in found.explanations] == METHODS
    assert found.refused == ()
    for name in METHODS:
        alone = hw.explain(tiny(model), SENTENCE, tokenizer=tokenizer(), method=name, seed=3)
        torch.testing.assert_close(found[name].relevance, alone.relevance, rtol=0, atol=0)
        assert (found[name].score, found[name].tokens) == (alone.score, alone.tokens)
        assert found[name].ledger.inputs == alone.ledger.inputs


def test_without_methods_the_papers_are_compared():
    found = hw.compare(tiny("bert"), SENTENCE, tokenizer=tokenizer())
    assert tuple(e.method for e in found.explanations) == (*PAPER, TEXT_METHOD)


def test_what_only_reads_the_plain_pass_shares_one():
    model = explained_once("a-last", "rollout", "gae", "gi")
    with Calls(model) as calls:
        hw.compare(model, SENTENCE, tokenizer=tokenizer(), methods=["a-last", "rollout", "gae", "gi"])
    assert calls.number == 1
    with Calls(model) as calls:
        for name in ("a-last", "rollout", "gae", "gi"):
            hw.explain(model, SENTENCE, tokenizer=tokenizer(), method=name)
    assert calls.number == 4


LONG = "the movie was not good , and the film is great . " * 40


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_a_long_text_is_compared_in_windows_as_each_method_explains_it(batch_size):
    """Also where windows take several batches, which must not read each other's plain pass."""
    options = {"tokenizer": tokenizer(), "window": True, "stride": 10, "seed": 3, "batch_size": batch_size}
    found = hw.compare(tiny("bert"), LONG, methods=METHODS, **options)
    assert [e.method for e in found.explanations] == METHODS
    for name in METHODS:
        alone = hw.explain(tiny("bert"), LONG, method=name, **options)
        assert len(found[name].relevance) == len(found[name].tokens) == len(alone.tokens) > 400
        assert found[name].windows == alone.windows > 6
        torch.testing.assert_close(found[name].relevance, alone.relevance, rtol=0, atol=0)
        assert (found[name].score, found[name].target) == (alone.score, alone.target)
        assert found[name].ledger == alone.ledger


def test_windows_share_the_plain_pass_too():
    model = explained_once("a-last", "gae", "gi")
    windows = hw.explain(model, LONG, tokenizer=tokenizer(), window=True).windows
    with Calls(model) as calls:
        hw.compare(model, LONG, tokenizer=tokenizer(), methods=["a-last", "gae", "gi"], window=True, batch_size=1)
    assert calls.number == 2 * windows  # one to find the class of the mean, one for the methods


def test_a_long_text_without_windows_is_refused():
    with pytest.raises(TooLong, match="window=True"):
        hw.compare(tiny("bert"), LONG, tokenizer=tokenizer(), methods=["gi"])


def test_one_comparison_leaves_nothing_to_the_next():
    first, second = (
        hw.compare(tiny("bert"), text, tokenizer=tokenizer(), methods=["gi", "a-last"])
        for text in (SENTENCE, "the movie is dull")
    )
    assert first["gi"].tokens != second["gi"].tokens
    assert second["a-last"].relevance.shape == (len(second["a-last"].tokens),)


def test_an_unknown_method_is_refused_before_any_work():
    model = tiny("bert")
    with Calls(model) as calls, pytest.raises(UnknownName, match="Did you mean 'lrp'"):
        hw.compare(model, SENTENCE, tokenizer=tokenizer(), methods=["gi", "lpr"])
    assert calls.number == 0


def test_a_comparison_is_of_one_input_and_of_some_method():
    with pytest.raises(UsageError, match="one input, not of 2"):
        hw.compare(tiny("bert"), [SENTENCE, "dull"], tokenizer=tokenizer(), methods=["gi"])
    with pytest.raises(UsageError, match="one input, not of 2"):
        hw.compare(nn.Linear(4, 3).eval(), torch.randn(2, 4), methods=["gi"])
    with pytest.raises(UsageError, match="at least one method"):
        hw.compare(tiny("bert"), SENTENCE, tokenizer=tokenizer(), methods=[])


def test_a_method_that_does_not_apply_is_named_and_the_others_stay():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).double().eval()
    found = hw.compare(model, torch.randn(1, 4, dtype=torch.float64), methods=["a-last", "gi", "lrp(act)"])
    assert [e.method for e in found.explanations] == ["gi", "lrp(act)"]
    assert [name for name, _ in found.refused] == ["a-last"]
    assert "attention" in found.refused[0][1]
    assert found.to_dict()["refused"] == dict(found.refused)
    with pytest.raises(UsageError, match="not in this comparison: gi, lrp"):
        found["a-last"]


# pictures


def test_plain_numbers_are_the_relevance():
    shown = plain(example())
    for token, large, small in zip(("[CLS]", "good", "film", "s", "[SEP]"), LARGE, SMALL, strict=True):
        line = re.search(rf"^  {re.escape(token)} +(\S+) +(\S+)$", shown, re.M)
        assert line is not None
        assert [float(number) for number in line.groups()] == [large, small]
    assert "\x1b" not in shown


def test_plain_text_says_what_each_method_adds_up_to():
    shown = plain(Comparison((explanation("lrp", LARGE), explanation("gi", LARGE, score=9.0))))
    assert re.search(r"^  lrp +closed +4.00 +\+2.50 +\+2.50$", shown, re.M)
    assert re.search(r"^  gi +NOT closed +4.00 +\+2.50 +\+9.00$", shown, re.M)
    assert "  gi: tokens 2.50 + unaccounted 6.50 = 9.00" in shown


@pytest.mark.parametrize("width", [120, 60])
def test_the_terminal_says_scale_sum_and_ledger_of_every_row(width):
    shown = without_codes(on_screen(example(), width))
    said = " ".join(shown.split())
    assert said.count("[CLS] good films [SEP]") == 2
    for fact in ("±4.00", "+2.50", "closed", "±0.000400", "-0.000100", "NOT closed", "its own largest"):
        assert fact in said
    assert max(map(len, shown.splitlines())) <= width


def test_one_method_is_refused_where_several_are_asked_for():
    """It was ignored, and all of the paper's were compared."""
    with pytest.raises(UsageError, match=r"methods=\[…\], not method="):
        hw.compare(tiny("bert"), "good", tokenizer=tokenizer(), method="gi")


def test_every_row_has_full_colour_at_its_own_largest():
    """Rows that differ by a factor look alike; of one sign turned round, red and blue change places."""
    scaled = explanation("gi", tuple(x * 1e-4 for x in LARGE))
    one, other = (
        [a["style"] for _, a in Reader(page(Comparison((e,)))).tags if "t" in (a.get("class") or "").split()]
        for e in (explanation("lrp", LARGE), scaled)
    )
    assert one == other
    assert one[2:] == [f"--o:{o}" for o in ("0.000", "1.000", "0.500", "0.250", "0.125")]  # two are the key
    red, blue = "48;2;192;45;45", "48;2;38;92;204"
    lrp, gi = (line for line in on_screen(example()).splitlines() if "CLS" in line)
    assert re.search(rf"{red}mgood", lrp)
    assert re.search(rf"\x1b\[4;[\d;]*{blue}mgood", gi), "what takes away is also underlined"


@pytest.mark.parametrize(("words", "unit", "other"), [(False, "token", "word"), (True, "word", "token")])
def test_the_heads_say_whether_tokens_or_words_are_shown(words, unit, other):
    offsets = ((0, 0), (0, 4), (5, 9), (9, 10), (0, 0))
    found = example(
        text="good films", offsets=offsets, word_ids=(None, 0, 1, 1, None), sequence_ids=(None, 0, 0, 0, None)
    )
    written, drawn = plain(found, words=words), without_codes(on_screen(found, words=words))
    assert bool(re.search(r"^  films ", written, re.M)) == words
    assert re.search(rf"^  {unit} +lrp +gi$", written, re.M)
    assert re.search(rf"^ *method +{unit}s ", drawn, re.M)
    said = Reader(page(found, words=words)).text
    assert f"method{unit}sledger" in said
    assert f"every {unit} with its numbers" in said
    assert not any(re.search(rf"\b{other}s?\b", shown) for shown in (written, drawn))


def test_dark_and_light_differ():
    assert on_screen(example()) != on_screen(example(), theme="light")


@pytest.mark.parametrize(
    "draw",
    [
        plain,
        page,
        lambda c: without_codes(on_screen(c)),
        lambda c: picture(render(c), width=120).replace("&#160;", " "),
    ],
)
def test_what_gave_no_explanation_is_named(draw):
    assert "a-last" in draw(example())
    assert "the model has no attention" in draw(example())
    assert "a-last" not in draw(Comparison(example().explanations))
    assert "the model has no attention" in draw(Comparison((), example().refused))


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b", "</style>", "</main>")


def test_what_comes_from_a_text_or_a_model_stays_text():
    bad = example(tokens=HOSTILE, target="<b>positive</b>", special=())
    named = Comparison(bad.explanations, (("<i>method</i>", "<u>reason</u>"),))
    read = Reader(page(named, title="<em>title</em>"))
    assert not {"script", "img", "i", "u", "em"} & {tag for tag, _ in read.tags}
    assert [tag for tag, _ in read.tags].count("b") == 1  # the name of what was refused
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    for said in (*HOSTILE, "<b>positive</b>", "<i>method</i>", "<u>reason</u>"):
        assert said in read.text
    assert "[red]x" in without_codes(on_screen(example(tokens=("[red]x", *TOKENS[1:]))))


def test_the_page_needs_nothing_else_and_is_one_whole():
    html = page(example())
    tags = Reader(html).tags
    policy = next(a["content"] for _, a in tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert not re.search(r"https?://|src=|url\(|@import|<link", html)
    for tag in ("main", "style", "article", "body"):
        assert html.count(f"<{tag}>") == html.count(f"</{tag}>") == 1
    assert "prefers-color-scheme: dark" in html
    assert "position: sticky" in html


def test_the_page_says_every_number_and_every_sign():
    read = Reader(page(example()))
    for said in ("±4.00", "±0.000400", "NOT closed", "film (-2.00)", "-0.00040000", "positive", "model tiny"):
        assert said in read.text
    marks = {a["title"]: (a["class"] or "").split() for _, a in read.tags if "title" in a}
    assert "take" in marks["-2.00"]
    assert "add" in marks["+4.00"]


def test_methods_that_do_not_share_their_entries_have_tables_of_their_own():
    """A bare tensor is shown by its largest entries, and those differ from method to method."""
    bare = {"tokens": (), "special": ()}
    found = Comparison((explanation("lrp", (3.0, -1.0), **bare), explanation("gi", (1.0, -3.0), **bare)))
    shown = plain(found)
    assert re.search(r"\[0\] +\+3.*\n +\[1\] +-1", shown)
    assert re.search(r"\[1\] +-3.*\n +\[0\] +\+1", shown)
    assert shown.count("relevance:") == page(found).count("every token") == 2


def test_no_relevance_at_all_is_drawn_without_nan():
    found = Comparison((explanation("gi", (0.0,) * 5, ledger=Ledger(0.0, 0.0)),))
    for shown in (plain(found), page(found), on_screen(found)):
        assert not re.search(r"\b(nan|inf)\b", shown, re.I)


# command


def call(*words: str, **options):
    return CliRunner().invoke(app, ["compare", *words], **options)


def test_names_are_split_at_commas_outside_brackets():
    assert split_names("gi,lrp(ah+ln), lrp(ah+gate=half),") == ["gi", "lrp(ah+ln)", "lrp(ah+gate=half)"]
    assert split_names("f(a,g(b,c)),gi") == ["f(a,g(b,c))", "gi"]


def test_the_command_in_a_pipe_is_plain_text():
    result = call(SENTENCE, "--methods", "gi,lrp(ah+ln),lrp", "--target", "negative")
    assert result.exit_code == 0, result.output
    assert f"\ntext: {SENTENCE}\ntarget: negative\n" in result.stdout
    assert re.search(r"^  token +gi +lrp\(ah\+ln\) +lrp$", result.stdout, re.M)
    assert result.stderr == ""


def test_the_command_takes_a_long_text_in_windows():
    result = call("a gripping film . " * 200, "--methods", "gi,lrp", "--window", "--json")
    assert result.exit_code == 0, result.output
    for e in json.loads(result.stdout)["explanations"]:
        assert e["windows"] > 1
        assert len(e["relevance"]) == len(e["tokens"]) == 802


def test_the_command_draws_on_a_terminal_unless_asked_not_to():
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    assert "\x1b[" in call(SENTENCE, "--methods", "gi", env=terminal).stdout
    assert "\x1b[" not in call(SENTENCE, "--methods", "gi", "--plain", env=terminal).stdout


def test_json_holds_every_explanation_and_what_gave_none():
    result = call(SENTENCE, "--methods", "lrp,gi,lrp(gate)", "--json", "--dtype", "float64")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert [e["method"] for e in record["explanations"]] == ["lrp", "gi"]
    assert record["explanations"][0]["ledger"]["closed"]
    assert list(record["refused"]) == ["lrp(gate)"]
    assert "lrp(gate) gave no explanation: " in result.stderr


def test_pages_and_pictures_are_written(tmp_path):
    html, svg = tmp_path / "page.html", tmp_path / "picture.svg"
    result = call(SENTENCE, "--methods", "gi,rollout", "--words", "--html", str(html), "--svg", str(svg))
    assert result.exit_code == 0, result.output
    assert re.search(r"^  word +gi +rollout$", result.stdout, re.M)
    assert "rollout" in html.read_text(encoding="utf-8")
    assert svg.read_text(encoding="utf-8").startswith("<svg")
    assert str(html) in result.stderr
    assert str(svg) in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([SENTENCE, "--methods", "gi,lpr"], "Did you mean 'lrp'?"),
        ([SENTENCE, "--methods", ","], "at least one method"),
        ([SENTENCE, "--methods", "lrp(gate)"], "no method gave an explanation"),
        (["  "], "empty"),
    ],
)
def test_what_cannot_be_compared_is_refused(words, message):
    result = call(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
