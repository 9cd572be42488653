"""Documents from files: what a reader sees of a page, the text of a PDF, and clear words for what is no text."""

from __future__ import annotations

import builtins

import pytest
from hostile import HOSTILE
from making_pdfs import make_pdf

from headwater.errors import InputError, MissingExtra, UsageError
from headwater.inputs.document_files import read_document, read_documents_from

PAGE = """<!doctype html><html><head><title>Not shown</title><style>p { color: red }</style>
<script>var hidden = "<p>not shown</p>";</script></head>
<body><h1>Towers</h1><p>The Eiffel&nbsp;Tower was
finished in <b>1889</b>.<br>It is <i>high</i> &amp; old.</p><!-- not shown -->
<ul><li>one</li><li>two</ul><div hidden>not <p>shown</p></div><template><p>not shown</p></template>
<noscript>not shown</noscript>the end</body></html>"""


def write(folder, name: str, content: bytes | str):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_a_page_gives_what_a_reader_sees_a_line_per_block(tmp_path):
    found = read_document(write(tmp_path, "a.html", PAGE))
    assert found == "Towers\nThe Eiffel Tower was finished in 1889.\nIt is high & old.\none\ntwo\nthe end"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain words", "plain words"),
        ("<p>one<p>two", "one\ntwo"),
        ("<head><title>x<body>seen", "seen"),
        ("<script>never closed", ""),
        ("<meta charset=latin-1><p>caf\xe9".encode("latin-1"), "café"),
        ("\ufeff<p>caf\xe9", "café"),
        ("\ufeff<meta charset=utf-8><p>caf\xe9", "café"),
        ("\ufeff<meta charset=latin-1><p>caf\xe9", "café"),
        ("<meta charset=utf-16><p>caf\xe9", "café"),
        ("<meta charset=utf-16><p>caf\xe9!", "café!"),
        ("<meta charset=cp037><p>caf\xe9", "café"),
        ("<p>a &lt;b&gt; c", "a <b> c"),
        ("<p hidden>a</p>b", "b"),
        ("<input hidden>b", "b"),
    ],
)
def test_pages_of_every_kind(tmp_path, page, text):
    assert read_document(write(tmp_path, "a.htm", page)) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markup_is_read_and_not_obeyed(tmp_path, text):
    found = read_document(write(tmp_path, "a.html", f"<p>before</p><p>{text.replace(chr(0), '')}</p><p>after</p>"))
    assert found.startswith("before")
    assert "<script" not in found.lower() or "&lt;" in text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p hidden>no<p>yes", "yes"),
        ("<p hidden>no<br>no<b>no</b><div>yes", "yes"),
        ("<ul><li hidden>no<li>yes</ul>", "yes"),
        ("<div hidden>no<p>no<p>no</div>yes", "yes"),
    ],
)
def test_what_is_hidden_ends_where_a_browser_ends_it(tmp_path, page, text):
    assert read_document(write(tmp_path, "a.html", page)) == text


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"caf\xe9", "UTF-8"),
        ("a.md", b"zero\x00byte", "bytes of zero"),
        ("a.html", b"<meta charset=nothing><p>x", "UTF-8"),
        ("a.html", b"<meta charset=undefined><p>x", "UTF-8"),
        ("a.docx", b"PK", "ends in .txt"),
        ("a", b"x", "ends in .txt"),
    ],
)
def test_what_is_no_text_is_refused_in_words(tmp_path, name, content, says):
    with pytest.raises(UsageError, match=says):
        read_documents_from([write(tmp_path, name, content)])


def test_files_and_directories_in_order_with_names_that_tell_them_apart(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "b.txt", f"of {folder}")
    write(tmp_path / "x", "a.html", "<p>a page")
    write(tmp_path / "x", "c.png", b"\x89PNG")
    write(tmp_path / "y", "empty.md", "")
    found = read_documents_from([tmp_path / "y", tmp_path / "x"])
    assert list(found.values()) == ["of y", "", "a page", "of x"]
    assert list(found)[1:3] == ["empty.md", "a.html"]
    assert next(iter(found)) == str(tmp_path / "y" / "b.txt")
    assert read_document(write(tmp_path, "wide.txt", "zw\xf6lf".encode("utf-16"))) == "zwölf"


def test_a_pdf_gives_the_text_of_its_pages_with_lines_joined(tmp_path):
    pytest.importorskip("pypdf")
    file = write(tmp_path, "a.pdf", make_pdf("The tower was fin-\nished in\n1889.", "It is high."))
    assert read_document(file) == "The tower was finished in 1889.\n\nIt is high."


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"%PDF", "cannot be read as a PDF"), (b"", "cannot be read as a PDF"), (make_pdf("", ""), "2 pages and no text")],
)
def test_a_pdf_without_text_is_refused_in_words(tmp_path, content, says):
    pytest.importorskip("pypdf")
    with pytest.raises(InputError, match=says):
        read_document(write(tmp_path, "a.pdf", content))


def test_without_the_extra_a_pdf_says_what_to_install(tmp_path, monkeypatch):
    plain = builtins.__import__

    def refuse(name, *rest):
        if name == "pypdf":
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"headwater\[documents\]"):
        read_document(write(tmp_path, "a.pdf", make_pdf("words")))
