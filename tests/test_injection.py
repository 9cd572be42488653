"""Nothing that comes from a text, a label, a file's name or a model's name is executed, in any output, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")
import pyarrow as pa
import tokenizers
import transformers as tf
from browsing import Watched, make_state
from hostile import HOSTILE
from jobs_here import made, retold, rewritten
from speaker import speaker, talker
from test_web import picture

import headwater as hw
from headwater.viz import audit_page, comparison, generation, html
from headwater.web.models import LazyModel, Loaded, Models
from headwater.web.picture_schemas import ImageAsked
from headwater.web.pictures import image_comparison, image_sheet
from headwater.web.pictures import open_picture as opened
from headwater.web.reports import sheet_report, text_report
from headwater.web.server import serve_in_thread
from headwater.web.state import AppState
from headwater.web.stores import stores_in

ALL = " ".join(HOSTILE)
MODEL = HOSTILE[17]


def test_the_list_is_long_enough():
    assert len(set(HOSTILE)) >= 50


def one_token(size: int = 120) -> tf.PreTrainedTokenizerFast:
    """A tokenizer that takes a whole text for one token, so that no string of the list is cut into harmless parts.

    Its vocabulary is the list: a language model with it says nothing else.
    """
    names = ["<pad>", "<s>", "</s>", "<unk>", *HOSTILE]
    vocabulary = [*names, *(f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(size - len(names)))]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(vocabulary)}, "<unk>"))
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return tf.PreTrainedTokenizerFast(tokenizer_object=inner, **special)


def hostile_model() -> Loaded:
    """A classifier whose labels are the list, and whose name is of it."""
    tokenizer = one_token()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    labels = {"id2label": dict(enumerate(HOSTILE)), "label2id": {name: i for i, name in enumerate(HOSTILE)}}
    config = tf.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=0, **sizes, **labels)
    model = tf.BertForSequenceClassification(config).eval()
    model.config._name_or_path = MODEL
    return Loaded(model, tokenizer)


@pytest.fixture(scope="module")
def bad() -> Loaded:
    return hostile_model()


ARMED = "window.pwned = []; window.pwn = () => { window.pwned.push(1); };"
FOREIGN = """() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const bad = [
    ...all('script').filter(s => !s.src.includes('/static/') && !('ours' in s.dataset)),
    ...all('*').filter(e => [...e.attributes].some(a => a.name.startsWith('on'))),
    ...all('iframe:not(.framed), object, embed, base, foreignObject, marquee, [href^="javascript:"]'),
    ...all('img').filter(i => !i.src.includes('/static/')),
  ];
  return bad.map(e => e.outerHTML.slice(0, 80));
}"""


def harmless(found: Watched) -> None:
    """Nothing ran, nothing was asked of another host, and no element came out of a string."""
    found.page.wait_for_timeout(30)
    assert found.page.evaluate("() => window.pwned") == []
    assert found.page.evaluate(FOREIGN) == []


@pytest.fixture
def page(chrome: Any) -> Iterator[Callable[[str], Watched]]:
    contexts = []

    def make(home: str = "file:") -> Watched:
        context = chrome.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script(ARMED)
        contexts.append(context)
        return Watched(context, home)

    yield make
    for context in contexts:
        context.close()


def test_the_watch_would_notice(page, tmp_path):
    file = tmp_path / "bad.html"
    file.write_text(f"<meta charset=utf-8><body>{HOSTILE[16]}", encoding="utf-8")
    found = page()
    found.page.goto(file.as_uri())
    found.page.wait_for_timeout(200)
    assert found.page.evaluate("() => window.pwned.length") > 0
    assert found.page.evaluate(FOREIGN) != []


@pytest.mark.slow
def test_in_the_app_text_labels_and_model_name_stay_text(page, bad):
    base = make_state()
    model = LazyModel("text", MODEL, lambda: bad)
    model.load()
    with serve_in_thread(
        AppState(Models(model, base.models.image, base.models.molecule, base.models.language))
    ) as home:
        found = page(home)
        for number, text in enumerate(HOSTILE):
            found.page.goto(f"{home}#text={quote(text)}&t={number}&audit={int(number % 16 == 0) or ''}")
            said = found.page.locator(".method header p").first
            said.filter(has_text=HOSTILE[number].partition("\x00")[0][:12]).wait_for()
            found.page.locator(".method .w.can").first.hover()
            if number % 8 == 0:
                found.page.locator(".method .w.can").first.click()
                found.page.locator('[data-line="/inputs"]').click()
                harmless(found)
        assert MODEL in found.page.locator(".which").first.inner_text()
        assert found.page.locator(".choices select").first.locator("option").all_text_contents()[18] == HOSTILE[17]
        harmless(found)
        assert [t for t in found.trouble if not t.startswith("console")] == []


@pytest.mark.slow
def test_in_the_app_file_names_smiles_and_prompts_stay_text(page):
    base = make_state(language=lambda: Loaded(talker("llama"), one_token()))
    with serve_in_thread(base) as home:
        found = page(home)
        for text in HOSTILE[::13]:
            image = quote(f"data:image/png;base64,{picture()}")
            found.page.goto(f"{home}#tab=images&image={image}&called={quote(text)}")
            found.page.locator("#panel-images .sheet svg").wait_for(timeout=60_000)
            found.page.goto(f"{home}#tab=molecules&smiles={quote(text)}")
            found.page.locator("#panel-molecules .status.failed").wait_for(timeout=60_000)
            found.page.goto(f"{home}#tab=generation&n=2&prompt={quote(text)}")
            found.page.locator("#panel-generation .output .w").first.wait_for(timeout=60_000)
            assert text.strip()[:12] in found.page.locator("#panel-generation .said").inner_text()
            harmless(found)
            found.page.goto("about:blank")
        found.page.goto(home)
        harmless(found)
        assert [t for t in found.trouble if not t.startswith("console")] == []


def stripped(text: str) -> str:
    """A page without its policy: what escaping alone does. Its own script is marked."""
    start = text.index("<meta http-equiv")
    end = text.index(">", text.index("content=", start)) + 1
    return (text[:start] + text[end:]).replace("<script>\n(() =>", "<script data-ours>\n(() =>")


def opens_harmlessly(context: Any, file: Path, act: Callable[[Any], Any] = lambda page: None) -> None:
    """A saved page does nothing but what it is for, without its policy too."""
    bare = file.with_name("bare.html")
    bare.write_text(stripped(file.read_text(encoding="utf-8")), encoding="utf-8")
    alone = Watched(context, "file:")
    alone.page.goto(bare.as_uri())
    act(alone.page)
    harmless(alone)
    assert alone.trouble == []
    alone.page.close()


def open_all(found: Watched, texts: dict[str, str], folder: Path) -> None:
    for name, text in texts.items():
        file = folder / name
        file.write_text(text, encoding="utf-8", errors="replace")
        found.page.goto(file.as_uri())
        assert found.page.evaluate("() => window.pwned") == [], name
        assert found.page.evaluate(FOREIGN) == [], name
    found.page.wait_for_timeout(100)
    assert found.page.evaluate("() => window.pwned") == []
    assert found.trouble == []


def test_reports_are_harmless_even_without_their_policy(page, bad, tmp_path):
    """One page holds every string as a text and as a target; some also stand alone, as page, drawing and audit."""
    every, texts = [], {}
    for number, text in enumerate(HOSTILE):
        options = {"tokenizer": bad.reader, "target": number}
        every.append(hw.explain(bad.model, text, **options))
        if number % 5 == 0:
            found = hw.compare(bad.model, text, methods=["gi", "lrp"], **options)
            texts[f"{number}.html"] = stripped(comparison.page(found, words=True))
            texts[f"{number}.svg"] = text_report(found, True, "svg", "red-blue")
        if number % 16 == 0:
            texts[f"{number}-audit.html"] = stripped(audit_page.page(hw.audit(bad.model, text, **options)))
    whole = html.page(every, words=True)
    assert sum(escape(text) in whole for text in HOSTILE) >= 60  # some hold what is shown in another way
    open_all(page(), {"every.html": stripped(whole), **texts}, tmp_path)


@pytest.mark.slow
def test_pictures_generations_and_notebooks_are_harmless(page, bad, tmp_path):
    made = hw.explain_generation(talker("llama"), "the capital of France is", tokenizer=speaker(), max_new_tokens=3)
    e = hw.explain(bad.model, "a film", tokenizer=bad.reader)
    texts, shown = {}, []
    for number, text in enumerate(HOSTILE):
        pieces = tuple(f" {text}" for _ in made.pieces)
        names = replace(made.provenance, model=text)
        told = replace(made, pieces=pieces, tokens=pieces, targets=(text,) * 3, provenance=names)
        cells = replace(e, tokens=(text,) * len(e.tokens), target=text, prediction=text, provenance=names, offsets=None)
        both = hw.Comparison((cells, cells), ((text, text),))
        shown += [result._repr_html_() for result in (told, cells, both)]
        if number % 5 == 0:
            texts[f"generation-{number}.html"] = stripped(generation.page(told))
    texts["notebook.html"] = f"<!doctype html><meta charset=utf-8><body>{''.join(shown)}"
    open_all(page(), texts, tmp_path)
    open_all(page(), dict(image_reports()), tmp_path)


def image_reports() -> Iterator[tuple[str, str]]:
    base = make_state()
    base.models.image.load()
    for number, text in enumerate(HOSTILE[::16]):
        ask = ImageAsked(image=picture(), name=text, methods=["lrp"])
        image = opened(ask, base.limits)
        found = image_comparison(base.models.image.take(), ask, image)
        yield f"image-{number}.html", stripped(sheet_report(found, image_sheet(found, image, ask), "html", ask.palette))


@pytest.mark.slow
def test_results_on_disk_are_harmless(page, tmp_path, bad):
    folder = tmp_path / "<img src=x onerror=pwn()>"
    hostile_run(folder, bad)
    hostile_bias(tmp_path / "names")
    stores = stores_in([folder, tmp_path / "names"])
    base = make_state()
    with serve_in_thread(AppState(base.models, stores=stores)) as home:
        found = page(home)
        for part in ("words", "rows", "page"):
            found.page.goto(f"{home}#tab=results&result={stores[0].id}&part={part}")
            found.page.locator(f'[data-part="{part}"][aria-pressed=true]').wait_for()
            found.page.wait_for_timeout(200)
            harmless(found)
        found.page.goto(f"{home}#tab=results&result={stores[0].id}&part=rows")
        found.page.get_by_label("Open row 0", exact=True).click()
        found.page.locator(".opened .w").first.wait_for()
        found.page.goto(f"{home}#tab=results&result=names&part=page")
        found.page.locator("iframe.framed").wait_for()
        found.page.wait_for_timeout(300)
        harmless(found)
        assert [t for t in found.trouble if "evil" in t and "console" not in t] == []
        assert found.page.frames[1].evaluate("() => window.pwned ?? []") == []
    open_all(page(), {"run.html": stripped(stores[0].page())}, tmp_path)


def hostile_run(folder: Path, bad: Loaded) -> None:
    """A run whose texts and labels are of the list, and which somebody has gone over so that the rest is, too."""
    texts = [text.replace("\x00", "") for text in HOSTILE]
    made(folder, {"text": texts, "yours": texts}, bad.model, tokenizer=bad.reader)
    (file,) = (folder / "shards").iterdir()
    rewritten(file, everywhere)
    retold(folder, hostile_manifest)


def hostile_manifest(told: dict[str, Any]) -> None:
    assert told["provenance"]["model"] == MODEL
    told["asked"]["method"] = told["state"] = HOSTILE[16]


def everywhere(table: pa.Table) -> pa.Table:
    """The texts again where a run has names of its own."""
    assert table.column("tokens")[0].as_py() == [table.column("text")[0].as_py()]
    for name in ("target", "prediction", "method"):
        table = table.set_column(table.column_names.index(name), name, [table.column("text").combine_chunks()])
    return table


def hostile_bias(folder: Path) -> None:
    """A bias audit whose page is not ours, but anybody's."""
    folder.mkdir()
    names = [{"name": text, "mentions": 3, "mean": 0.1} for text in HOSTILE]
    told = {"target": MODEL, "method": MODEL, "texts": 3, "names": names, "provenance": {"model": MODEL}}
    (folder / "audit.json").write_text(json.dumps(told), encoding="utf-8")
    (folder / "mentions.csv").write_text('row,name,relevance,score,text\n1,"<b>x",0.5,1.0,"<script>pwn()</script>"\n')
    (folder / "page.html").write_text(f"<script>parent.pwn(); pwn()</script><body onload=pwn()>{ALL}", errors="replace")
