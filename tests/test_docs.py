"""Every block of code in the docs and the README is run, and gives what the page says, or is marked as not run."""

from __future__ import annotations

import doctest
import re
from itertools import zip_longest
from pathlib import Path

import pytest
from missing import skip_without
from real_models import smollm2
from run_pages import (
    DOCS,
    IMAGES,
    ROOT,
    Block,
    find_blocks,
    pictures_of,
    run_console,
    run_page,
    words_in,
)

import headwater as hw
from headwater.models.pretrained import locate

PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "paper" / "paper.md"]
CODE = ("python", "console", "sh")
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
QUICK = ("inside", "start")  # these are run in the quick part, as the guide is; the others are slow


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_slow(page: Path) -> bool:
    return page.stem not in QUICK


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    """Ray warns of files and names of its own, as in tests/test_run_ray.py."""
    warns = pytest.mark.filterwarnings("ignore")
    return [pytest.mark.slow] * is_slow(page) + [warns] * ('engine="ray"' in page.read_text(encoding="utf-8"))


def with_doctests() -> list[Path]:
    """The guide has a test of its own, below."""
    return [page for page in PAGES if page.stem != "guide" and any(block.is_doctest for block in find_blocks(page))]


def console_blocks() -> list[Block]:
    return [block for page in PAGES for block in find_blocks(page) if is_console(block)]


def is_console(block: Block) -> bool:
    return block.language == "console" and not block.mark


def need_models(text: str) -> None:
    """Skip where a model that the text names is not on this machine."""
    if "smollm2" in text:
        smollm2()
    if MINILM in text and locate(MINILM) == MINILM:
        skip_without("weights of MiniLM", "make setup")


def load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The language model is read once for all pages."""
    plain = hw.load

    def load(name: str, **options: object) -> object:
        return smollm2() if "smollm2" in name.lower() else plain(name, **options)

    monkeypatch.setattr("headwater.models.loading.load", load)
    monkeypatch.setattr(hw, "load", load)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_code_is_run_or_marked(page: Path) -> None:
    for block in find_blocks(page):
        if block.language not in CODE or block.is_doctest or is_console(block):
            continue
        if page.name == "README.md" and block.language == "python":
            continue  # run below
        assert block.mark, f"{block.where} is neither run nor marked <!-- not run: why -->"
        kind, _, why = block.mark.partition(":")
        if kind == "not run":
            assert len(why.split()) >= 2, block.where
        else:
            test = ROOT / block.mark.removeprefix("run by ")
            assert page.name in test.read_text(encoding="utf-8"), f"{block.where}: {test.name} does not read the page"


def test_a_page_that_says_too_much_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> 1 + 1\n3\n\n```\n```sh\nls\n```\n", encoding="utf-8")
    tried, said = run_page(page)
    assert tried == 1
    assert "Got:\n    2" in said
    assert [(block.language, block.mark, block.is_doctest) for block in find_blocks(page)] == [
        ("python", "", True),
        ("sh", "", False),
    ]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=marks_of(page)) for page in with_doctests()],
)
def test_a_page_says_what_is_so(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And draws the pictures that it shows, with the words that stand in them."""
    for package in ("pandas", "matplotlib", "rdkit", "pyarrow", "captum"):
        if package in page.read_text(encoding="utf-8"):
            pytest.importorskip(package)
    if 'engine="ray"' in page.read_text(encoding="utf-8"):
        pytest.importorskip("ray")
    need_models(page.read_text(encoding="utf-8"))
    load_once(monkeypatch)
    monkeypatch.chdir(tmp_path)
    tried, said = run_page(page)
    assert tried > 0
    assert not said, said
    for picture in pictures_of(page):
        if picture.endswith(".svg"):
            assert words_in(tmp_path / picture) == words_in(IMAGES / picture), f"{picture}: run tests/run_pages.py"


def test_guide() -> None:
    """The promise of the quick part: the guide says what is so."""
    failed, tried = doctest.testfile(
        str(DOCS / "guide.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 20
    assert failed == 0


def is_same_output(wanted: str, got: str) -> bool:
    """Word for word; numbers may differ in what another processor rounds otherwise: 1e-4, or a thousandth."""
    pairs = list(zip_longest(wanted.split(), got.split(), fillvalue=""))
    return all(one == other or is_near(one, other) for one, other in pairs)


def is_near(one: str, other: str) -> bool:
    try:
        return float(one) == pytest.approx(float(other), rel=1e-3, abs=1e-4)
    except ValueError:
        return False


def test_outputs_are_compared_word_for_word_and_number_by_number() -> None:
    assert is_same_output("score +4.0919\n  closed 7.8e-09", "score +4.0918 closed -6e-08")
    assert not is_same_output("score +4.0919", "score +4.0819")
    assert not is_same_output("score 1", "score 1 more")
    assert not is_same_output("gi 1", "lrp 1")


@pytest.mark.slow
@pytest.mark.parametrize("block", console_blocks(), ids=lambda block: block.where)
def test_a_command_prints_what_the_page_says(block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_models(block.text)
    (tmp_path / "docs").symlink_to(DOCS)
    monkeypatch.chdir(tmp_path)
    wanted, got = run_console(block)
    assert is_same_output(wanted, got), f"wanted:\n{wanted}\ngot:\n{got}"


def test_questions_and_gallery_draw_their_pictures() -> None:
    for page in [*(DOCS / "questions").glob("*.md"), DOCS / "gallery.md"]:
        shown = re.findall(r"^!\[(.+)\]\([./]*images/", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert shown, page
        assert all(len(words.split()) > 4 for words in shown)  # a picture has its text
        assert page.stem == "what-does-it-cost" or pictures_of(page), page


def test_a_question_has_ten_lines_what_it_costs_and_what_it_does_not_say() -> None:
    pages = sorted((DOCS / "questions").glob("*.md"))
    assert len(pages) == 9
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^(?:>>>|\.\.\.) ", text, re.MULTILINE)) <= 15, page
        assert "# " in text
        assert "## What it does not say" in text
        assert "## What it costs" in text or page.stem == "what-does-it-cost"


def test_a_study_begins_with_its_question_its_finding_and_what_did_not_hold() -> None:
    pages = sorted((DOCS / "studies").glob("*.md"))
    assert len(pages) > 10
    for page in pages:
        head = page.read_text(encoding="utf-8").split("\n## ")[0]
        said = re.findall(r"^\*\*(.+?)\.\*\* (.+)", head, re.MULTILINE)
        assert [name for name, _ in said] == ["Question", "Finding", "What did not hold", "Command"], page
        assert "`" in head.split("**Command.**")[1], page


def commands_of_cost(text: str) -> set[str]:
    """`headwater bench …` as it stands on a page, in one line."""
    found = re.findall(r"headwater bench [^`|]*?(?=`|$)", re.sub(r"\n(?!\s*\$)", " ", text), re.MULTILINE)
    return {" ".join(one.split()).rstrip(" .)") for one in found}


def rows_of_cost(text: str) -> list[tuple[str, str]]:
    """Of a table whose last column is a command or "the same": the numbers of a row, and its command."""
    found: list[tuple[str, str]] = []
    for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE):
        *cells, last = row.split(" | ")
        if last == "the same" or last.startswith("`headwater bench"):
            command = found[-1][1] if last == "the same" else last.strip("`")
            found += [(number, command) for cell in cells[1:] for number in re.findall(r"\b\d+\.\d+\b", cell)]
    return found


@pytest.mark.parametrize(
    "name",
    ["docs/questions/what-does-it-cost.md", "docs/questions/which-words.md", "docs/compare.md", "paper/paper.md"],
)
def test_costs_are_those_of_the_page_on_cost(name: str) -> None:
    """What another page says of cost names a command that is on that page, and a number that stands in its section."""
    cost = sections((DOCS / "cost.md").read_text(encoding="utf-8"))
    text = (ROOT / name).read_text(encoding="utf-8")
    commands = {one for one in commands_of_cost(text) if "--" in one}
    assert commands
    assert [one for one in commands if not any(one in part for part in cost)] == []
    assert [(n, one) for n, one in rows_of_cost(text) if not any(one in part and n in part for part in cost)] == []


def sections(page: str) -> list[str]:
    """A page cut at its headings, each part in one line."""
    return [" ".join(part.split()) for part in re.split(r"^#+ ", page, flags=re.MULTILINE)]


def test_a_cost_of_another_command_is_found() -> None:
    text = "| lrp | 1.84 | `headwater bench --rounds 7` |\n| gamma | 2.35 | the same |\n"
    assert rows_of_cost(text) == [("1.84", "headwater bench --rounds 7"), ("2.35", "headwater bench --rounds 7")]
    assert commands_of_cost("takes 2 (`headwater bench --a\nb --c 1`, so).") == {"headwater bench --a b --c 1"}


def test_slow_twins_on_the_page_of_rules_agree() -> None:
    """What is compared by `allclose` is said to be equal."""
    page = (DOCS / "theory" / "rules.md").read_text(encoding="utf-8")
    twins = [one for one in doctest.DocTestParser().get_examples(page) if "torch.allclose(" in one.source]
    assert len(twins) > 10
    for one in twins:
        equal = one.want.strip().strip("()").split(", ")[: one.source.count("torch.allclose(")]
        assert set(equal) == {"True"}, one.source


def test_every_public_name_has_an_example() -> None:
    page = (DOCS / "reference" / "examples.md").read_text(encoding="utf-8")
    named = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert {*hw.__all__} - {"__version__"} <= set(named)
    assert all(hasattr(hw, name) for name in named)


def test_the_first_snippet_of_the_readme_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("positive 4.09")
    assert "True" in said.splitlines()[0]
    assert "('beautifully', 0.83" in said


def test_the_readme_says_how_to_install_and_which_python() -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", project)
    assert f"Python {versions[0]} to {versions[-1]}" in page
    assert f'requires-python = ">={versions[0]}"' in project
    for package in ("torch", "transformers"):
        least = re.findall(rf'"{package}>=([\d.]+)"', project)[0]  # that of the library; extras may ask for more
        assert f"{package} {least}" in page
    assert "pip install headwater" in page


def test_the_first_hour_has_ten_tasks_of_five_lines() -> None:
    page = DOCS / "first-hour.md"
    tasks = re.split(r"^## \d+\. ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(tasks) == 10
    for task in tasks:
        assert 1 <= len(re.findall(r"^(?:>>>|\.\.\.)", task, re.MULTILINE)) <= 5, task
