"""Members of groups: phrases, groups files, and people's names that are names."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from real_data import need_real_data

from headwater.bias import lexicon
from headwater.bias.groups import read_groups
from headwater.bias.lexicon import FirstNames
from headwater.bias.names import BOTH, FAMILY, FIGURE, ORDINARY, PLACE, NameFinder, gender_names
from headwater.bias.phrases import SHARED, PhraseFinder
from headwater.bias.texts import Texts, read_texts
from headwater.errors import DataError, UnknownName, UsageError
from headwater.inputs.table import DATA_DIRECTORY
from headwater_experiments.data.checked_names import count_verdicts, verdicts

# ---- phrases and groups files


def test_phrases_are_whole_words_and_the_longest_first():
    finder = PhraseFinder.of({"a": ["new york", "york"], "b": ["new", "don't"]}, "here")
    text = "New York's newest york, a new\nday in New  York; don't"
    found = finder.find(text)
    assert [(h.group, text[h.start : h.end]) for h in found.hits] == [
        ("a", "New York"),
        ("a", "york"),
        ("b", "new"),
        ("a", "New  York"),
        ("b", "don't"),
    ]
    assert [
        h.entry for h in PhraseFinder.of({"a": ["US"], "b": ["us"]}, "here", case=True).find("us in the US").hits
    ] == [
        "us",
        "US",
    ]


def test_a_phrase_in_two_groups_is_set_aside_and_said():
    finder = read_groups({"a": ["Robin", "amy"], "b": ["robin", "tom"]})
    found = finder.find("robin and amy")
    assert [h.entry for h in found.hits] == ["amy"]
    assert found.skipped == (("Robin", SHARED),)
    assert "Set aside because they stand in more than one group: 1 (Robin)" in finder.rule


def test_groups_files_are_read_alike(tmp_path):
    (tmp_path / "g.json").write_text('{"a": ["x y"], "b": ["z"]}', encoding="utf-8")
    (tmp_path / "g.csv").write_text('note,phrase,group\n,x y,a\n\n"1,2",z,b\n', encoding="utf-8-sig")
    (tmp_path / "g.tsv").write_text("phrase\tgroup\nx y\ta\nz\tb\n", encoding="utf-8")
    finders = [read_groups(tmp_path / name) for name in ("g.json", "g.csv", "g.tsv")]
    assert {f.sha256 for f in finders} == {read_groups({"b": ["z"], "a": ["x  y"]}).sha256}
    assert all(f.groups == ("a", "b") for f in finders)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.json", '{"a": ["x"],\n "b" ["y"]}', "g.json, line 2: no JSON"),
        ("g.json", '["x"]', "one object, phrases by group"),
        ("g.json", '{"a": []}', "the group 'a' in .* has no phrases"),
        ("g.json", '{"a": "xyz"}', "must be a list of phrases, not 'xyz'"),
        ("g.json", '{"a": ["x", " !"]}', "the group 'a' in .*: phrase 1 is ' !'"),
        ("g.json", '{"a": ["x"], "b": ["X"]}', "every phrase of the group 'a' .* stands in another group"),
        ("g.json", "{}", "has no groups"),
        ("g.csv", "phrase\nx\n", "no column 'group' in its first line"),
        ("g.csv", "phrase,group\nx,a\n,b\n", "g.csv, line 3: the phrase is ''"),
        ("g.csv", "phrase,group\nx,a\ny,\n", "g.csv, line 3: the phrase 'y' has no group"),
        ("g.csv", "phrase,group\nx,a\ny,b,c\n", "g.csv, line 3: 3 columns under a header of 2"),
        ("g.tsv", "phrase,group\nx,a\n", "no column 'phrase'"),
        ("g.txt", "x", "g.txt is none of .json, .csv, .tsv"),
    ],
)
def test_a_bad_groups_file_is_answered_with_the_place(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_groups(tmp_path / name)


def test_groups_that_are_not_there():
    with pytest.raises(UnknownName, match="Did you mean 'gender-names'"):
        read_groups("gender-name")
    with pytest.raises(DataError, match="there is no file nowhere"):
        read_groups("nowhere.csv")
    with pytest.raises(UsageError, match="not int"):
        read_groups(3)


# ---- people's names

LISTED = {
    "female": "amy britney catherine chelsea donna grace hope jennifer jesse judith julianne julie love martha mary "
    "may sally",
    "male": "adam allen david francisco george grace guy harry howard hugh jackson jesse jose juan kendall lee love "
    "mark moore oscar paul peter philip raphael robert samuel see thomas will woody",
}
PAIRS = [(name, gender) for gender, names in LISTED.items() for name in names.split()]
FINDER = NameFinder(FirstNames.of(PAIRS), lexicon.lexicon())


def named(text: str) -> list[str]:
    return [f"{hit.group[0]}:{text[hit.start : hit.end]}" for hit in FINDER.find(text).hits]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the latest adam sandler assault", ["m:adam sandler"]),
        ("adam sandler 's heart may be", ["m:adam sandler"]),
        ("amy 's orgasm has a key strength", ["f:amy"]),
        ("squander jennifer love hewitt !", ["f:jennifer love hewitt"]),
        ("hotdog , and robert de niro ca n't make", ["m:robert de niro"]),
        ("co-writer catherine di napoli are", ["f:catherine di napoli"]),
        ("samuel l. jackson is one of", ["m:samuel l. jackson"]),
        ("wonder why paul thomas anderson ever", ["m:paul thomas anderson"]),
        ("based on philip k. dick stories", ["m:philip k. dick"]),
        ("co-writer juan josé campanella 's", ["m:juan josé campanella"]),
        ("director peter o'fallon ... is", ["m:peter o'fallon"]),
        ("hugh grant 's act", ["m:hugh grant"]),
        ("the sally jesse raphael atmosphere", ["f:sally jesse raphael"]),
        ("david and goliath", ["m:david"]),
        ("martha enormously endearing", ["f:martha"]),
        ("martha stomps her feet", ["f:martha"]),
        ("guy ritchie 's lock , stock", ["m:guy ritchie"]),
        ("the lousy guy", []),
        ("mark pellington 's latest", ["m:mark pellington"]),
        ("off the mark", []),
        ("it will , may and must", []),
        ("how long will filmmakers copy", []),
        ("a saving grace , see ?", []),
        ("i love moore or loathe him", []),
        ("you hope britney wo n't do it", ["f:britney"]),
        ("allen 's funniest and jackson shamefully strolls", []),
        ("woody allen can write", ["m:woody allen"]),
        ("an oscar nomination for julianne moore this year", ["f:julianne moore"]),
        ("san francisco lovers", []),
        ("mr. harry is late", []),
        ("d.w. howard made", []),
        ("famous prima donna", []),
        ("things peter out midway", []),
        ("harry potter and the chamber", ["m:harry potter"]),
        ("chelsea walls is a hotel", []),
        ("judith , julie and lee", ["f:judith", "f:julie", "m:lee"]),
    ],
)
def test_names_without_capitals(text, expected):
    assert named(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The latest Adam Sandler Assault.", ["m:Adam Sandler Assault"]),
        ("I saw adam and Eve. Will Smith is in it.", ["m:Will Smith"]),
        ("Will he come? I will. May I? Hope is lost.", []),
        ("It stars Hope Davis and Mark, too.", ["f:Hope Davis", "m:Mark"]),
        ("Mark my words.", []),
        ("Tom Hanks met Robert De Niro's friend; Robert de Niro, Jr.", ["m:Robert De Niro", "m:Robert de Niro"]),
        ("said Peter. Martha left", ["m:Peter", "f:Martha"]),
        ("I LOVE ADAM SANDLER", ["m:ADAM SANDLER"]),
        ("Peter\nJackson and Mary <br />", ["m:Peter", "f:Mary"]),
    ],
)
def test_names_with_capitals(text, expected):
    assert named(text) == expected


def test_what_is_not_counted_has_a_reason():
    text = "will jesse see san francisco , allen 's oscar , or kendall ? george may ."
    assert FINDER.find(text).skipped == (
        ("will", ORDINARY),
        ("jesse", BOTH),
        ("see", ORDINARY),
        ("francisco", PLACE),
        ("allen", FAMILY),
        ("oscar", FIGURE),
        ("kendall", BOTH),
        ("may", ORDINARY),
    )


def test_the_lists_do_not_contradict_each_other():
    sections = lexicon.lexicon().sections
    own = [words for name, words in sections.items() if name not in ("family", "idiom")]
    assert sum(map(len, own)) == len(frozenset().union(*own))
    assert all(word == word.lower() for words in sections.values() for word in words)
    assert sections["usual"] <= lexicon.lexicon().ordinary
    assert all("_" in idiom for idiom in sections["idiom"])


def test_ordinary_words_have_regular_forms():
    words = lexicon.lexicon()
    assert all(map(words.is_ordinary, "film stomps stomped shamefully tapping ladles wide-eyed 10-year-old".split()))
    assert not any(map(words.is_ordinary, "sandler scorsese niro apted james clarke-williams".split()))


def test_the_list_of_names_is_found_or_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_DIRECTORY, str(tmp_path))
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(DataError, match=r"nltk.downloader names.*--groups FILE"):
        gender_names()
    corpus_folder = tmp_path / "elsewhere"
    corpus_folder.mkdir()
    (corpus_folder / "female.txt").write_text("Amy\nRobin\n", encoding="utf-8")
    (corpus_folder / "male.txt").write_text("Tom \nRobin\n", encoding="utf-8")
    nltk = SimpleNamespace(data=SimpleNamespace(find=lambda name: str(corpus_folder)))
    monkeypatch.setitem(sys.modules, "nltk", nltk)
    assert gender_names().names.genders == {
        "amy": frozenset({"female"}),
        "tom": frozenset({"male"}),
        "robin": frozenset({"female", "male"}),
    }
    (tmp_path / "names").mkdir()
    with pytest.raises(DataError, match="there is no female"):
        gender_names()


def test_names_in_sst2_are_names():
    need_real_data()
    finder = gender_names()
    texts = read_texts("sst2")
    assert len(texts) == 5997 + 872
    hits = [(t[h.start : h.end], h.group) for t in texts.texts for h in finder.find(t).hits]
    found = {name for name, _ in hits}
    assert len(hits) == 875
    assert sum(group == "female" for _, group in hits) == 243
    assert {"jennifer love hewitt", "robert de niro", "samuel l. jackson", "mark pellington"} <= found
    ordinary = set("will grace may hope joy rich faith art love see way star oscar washington allen jackson".split())
    assert not found & ordinary
    handled = [words for name, words in finder.words.sections.items() if name not in ("word", "family", "idiom")]
    assert all(word in finder.names.genders for words in handled for word in words)


def test_verdicts_are_counted_and_what_nobody_has_read_is_seen():
    texts = Texts(["paul and peter", "robert came"], [0, 1], ["", ""], "made up")
    said = {("", 0, 0): "right", ("", 0, 9): "other name", ("", 9, 3): "no person"}
    found = count_verdicts("mine", texts, FINDER, said)
    assert (found.read, found.right, found.other, found.none, found.persons) == (3, 1, 1, 1, 2)
    assert (found.found, found.again) == (3, 2)


def test_every_name_in_sst2_has_been_read():
    need_real_data()
    said = verdicts("sst2")
    assert set(said.values()) <= {"right", "other name", "no person"}
    found = count_verdicts("sst2", read_texts("sst2"), gender_names(), said)
    assert found.found == found.again == found.read
