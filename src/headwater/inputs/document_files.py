"""Documents from files: plain text, Markdown, HTML, and PDF with the extra `documents`."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from ..errors import InputError, UsageError, require_extra
from ..plurals import say_count

TEXTS, PAGES, PDF = (".txt", ".md"), (".html", ".htm"), ".pdf"
KINDS = (*TEXTS, *PAGES, PDF)
SAID_KINDS = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
# What an HTML page holds and does not show, and elements after which a new line begins.
UNSEEN = {"script", "style", "template", "noscript", "head", "title", "svg", "math", "iframe", "object", "select"}
BLOCKS = set(
    "address article aside blockquote br dd div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li "
    "main nav ol option p pre section table td th tr ul".split()
)
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
ALIKE_ENDS = {"li", "dd", "dt", "td", "th", "tr", "option"}  # elements that the next of their kind ends
CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)


def read_documents_from(given: Iterable[Path]) -> dict[str, str]:
    """The texts of files and of directories' files, in order, by their names; by their paths where two are alike."""
    files = [file for path in given for file in list_documents(path)]
    names = [file.name for file in files]
    return {str(file) if names.count(file.name) > 1 else file.name: read_document(file) for file in files}


def list_documents(path: Path) -> list[Path]:
    """A file, or the files of a directory whose kind is known, by name."""
    if not path.is_dir():
        if path.suffix.lower() not in KINDS:
            raise UsageError(f"{path} is neither a directory nor a file that ends in {SAID_KINDS}.")
        return [path]
    found = sorted(file for file in path.iterdir() if file.is_file() and file.suffix.lower() in KINDS)
    if not found:
        raise UsageError(f"{path} holds no file that ends in {SAID_KINDS}.")
    return found


def read_document(file: Path) -> str:
    """The text of one file. An empty file is an empty document; what is no text is refused."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error
    return read_content(raw, file)


def read_content(raw: bytes, file: Path, most: int | None = None) -> str:
    """The text of a file's bytes, by what its name ends in. One with more than `most` characters is refused."""
    kind = file.suffix.lower()
    if kind not in KINDS:
        raise UsageError(f"{file} does not end in {SAID_KINDS}.")
    read: Callable[[bytes, Path], str] = read_html if kind in PAGES else decode_file
    text = (read_pdf(raw, file, most) if kind == PDF else read(raw, file)).strip()
    if most is not None and len(text) > most:
        raise InputError(f"{file} has more than {most:,} characters, which is what a document may have here.")
    return text


def decode_file(raw: bytes, file: Path, encoding: str = "utf-8-sig") -> str:
    """Bytes as text. A byte of zero is in no text, whatever the encoding makes of it."""
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else encoding)
    except (UnicodeError, LookupError) as error:
        raise UsageError(f"{file} is no text in UTF-8.") from error
    if "\x00" in text:
        raise UsageError(f"{file} is no text: it has bytes of zero.")
    return text


def read_html(raw: bytes, file: Path) -> str:
    """What a page shows, a line per block. Its styles are not computed: only what is marked `hidden` is left out."""
    parser = ShownText()
    parser.feed(decode_file(raw, file, find_encoding(raw)))
    parser.close()
    return parser.text


def find_encoding(raw: bytes) -> str:
    """What a page says of itself, but where its first bytes say that it is UTF-8, or what it says cannot be true."""
    named = CHARSET.search(raw[:2048])
    if named is None or raw.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    encoding = named.group(1).decode("ascii")
    try:
        readable = named.group().decode(encoding) == named.group().decode("ascii")  # UTF-16 would not have read as this
    except (UnicodeError, LookupError):
        readable = True  # said when all of it is read
    return encoding if readable else "utf-8-sig"


class ShownText(HTMLParser):
    """Collects the text of a page that a reader sees. Nothing of it is run or fetched."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._unseen: list[str] = []  # open elements that show nothing, from the outermost one on
        self._open: Counter[str] = Counter()  # how many of each: a page may open a million

    @property
    def text(self) -> str:
        """Lines without the space around them; empty ones are left out."""
        lines = (" ".join(line.split()) for line in "".join(self._parts).split("\n"))
        return "\n".join(line for line in lines if line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self._unseen.clear()  # a head whose end is missing ends here
            self._open.clear()
        if self._unseen and ends_unsaid(self._unseen[-1], tag):
            self.handle_endtag(self._unseen[-1])
        if tag not in VOID and (self._unseen or tag in UNSEEN or any(name == "hidden" for name, _ in attrs)):
            self._unseen.append(tag)
            self._open[tag] += 1
        elif tag in BLOCKS:
            self._parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._open[tag]:
            wanted = self._open[tag] - 1
            while self._open[tag] > wanted:
                self._open[self._unseen.pop()] -= 1
        elif not self._unseen and tag in BLOCKS:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._parts.append(re.sub(r"\s+", " ", data))


def ends_unsaid(element: str, following: str) -> bool:
    """Whether an element that is open ends where another begins, though its end is not written."""
    return following in BLOCKS - VOID if element == "p" else element == following and element in ALIKE_ENDS


def read_pdf(raw: bytes, file: Path, most: int | None = None) -> str:
    """The text of all pages, or of so many that they have more than `most` characters.

    Lines of a paragraph are joined: where a line ends says nothing in a PDF.
    """
    with require_extra(f"reading {file}", "documents"):
        import pypdf
    import io
    import logging

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of every oddity that it can read past
    try:
        pages = list(take_pages((page.extract_text() for page in pypdf.PdfReader(io.BytesIO(raw)).pages), most))
    except Exception as error:  # a broken PDF fails in many ways; pypdf names most of them, not all
        raise InputError(f"{file} cannot be read as a PDF: {error}") from error
    text = "\n\n".join(join_lines(page) for page in pages)
    if pages and not text.strip():
        pictures = "it is a picture" if len(pages) == 1 else "they are pictures"
        raise InputError(f"{file} has {say_count(len(pages), 'page')} and no text: {pictures}, to be recognised first.")
    return text


def take_pages(pages: Iterable[str], most: int | None) -> Iterator[str]:
    """Pages until there are more letters than wanted: a file may have any number of them."""
    letters = 0
    for page in pages:
        yield page
        letters += len("".join(page.split()))
        if most is not None and letters > most:
            return


def join_lines(page: str) -> str:
    """Paragraphs, one a line. A word that was cut at the end of a line is whole again."""
    whole = re.sub(r"(?<=[a-zà-ÿ])-\n(?=[a-zà-ÿ])", "", page)
    return "\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", whole))
