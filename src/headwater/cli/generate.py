"""`headwater generate`: what every generated token came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import UsageError

from . import options
from .models import load_chosen_model
from .screen import print_json, save_file, show, waiting

if TYPE_CHECKING:
    from headwater.results.generation import Generation

DEFAULT = "smollm2"

EXAMPLES = (
    'headwater generate "The capital of France is" --model smollm2',
    'headwater generate "The capital of France is" -m smollm2 --contrast London',
)


@options.takes_groups
def command(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="The text to be continued.")] = None,
    chat: Annotated[
        Path | None, typer.Option(help="A JSON file with a list of {role, content}, in place of a prompt.")
    ] = None,
    model: options.LanguageModel = DEFAULT,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How many tokens are generated at most.")
    ] = 20,
    answer: Annotated[
        str | None, typer.Option(help="Explain this continuation, whether the model would say it or not.")
    ] = None,
    method: options.LanguageMethod = None,
    score: options.Score = None,
    contrast: Annotated[
        str | None, typer.Option(help="Why what was generated rather than this.", metavar="TEXT")
    ] = None,
    sinks: options.FirstToken = "aside",
    special: options.SpecialTokens = "show",
    words: Annotated[bool, typer.Option("--words", help="Sum tokens to words.")] = False,
    sentences: Annotated[bool, typer.Option("--sentences", help="Sum tokens to sentences.")] = False,
    tokens_at_once: Annotated[
        int | None,
        typer.Option(min=1, max=options.MOST, help="Output tokens that one forward pass serves. Default: all."),
    ] = None,
    memory: options.MemoryOptions = options.MEMORY,
    at: options.At = "embeddings",
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    html: options.Html = None,
) -> None:
    """Let a language model go on, and say what every token that it generates came from."""
    if words and sentences:
        raise UsageError("--words and --sentences exclude each other.")
    turns = None if chat is None else read_chat(chat)
    if (prompt is None) == (turns is None):
        raise UsageError("give either a PROMPT or --chat.")
    loaded, tokenizer = load_chosen_model(model, loading)
    with waiting("generating and explaining"):
        import headwater

        found = headwater.explain_generation(
            loaded,
            prompt,
            tokenizer=tokenizer,
            chat=turns,
            max_new_tokens=max_new_tokens,
            answer=answer,
            method=method,
            score=score,
            contrast=contrast,
            sinks=sinks,
            special=special,
            at=at,
            tokens_at_once=tokens_at_once,
            dtype=loading.dtype,
            seed=seed,
            **memory.settings(),
        )
    found = found.words() if words else found.sentences() if sentences else found
    print_generation(found, as_json, plain)
    if html is not None:
        from headwater.viz.generation import page

        save_file(html, page(found))


def read_chat(file: Path) -> list[dict[str, str]]:
    try:
        turns: Any = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(turns, list):
        raise UsageError(f"{file} must hold a list of {{role, content}}.")
    return turns


def print_generation(generation: Generation, as_json: bool, plain: bool) -> None:
    """What was found, on standard output."""
    if as_json:
        print_json(generation.to_dict())
        return
    from headwater.viz import generation as viz

    show(lambda ground: viz.render(generation, theme=ground), lambda: viz.plain(generation), plain)
