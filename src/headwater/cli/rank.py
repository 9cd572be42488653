"""`headwater rank`: passages by their similarity to a query, and why the first is above the second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import DataError
from headwater.inputs.lines import read_lines
from headwater.plurals import say_count

from . import options
from .screen import interruptions, print_json, waiting
from .similar import MINILM, Dimensions, Dot, Encoder, PairTarget, PoolingName, RankNumber

if TYPE_CHECKING:
    from headwater.results.ranking import Ranking

EXAMPLES = ('headwater rank "Who wrote Emma?" passages.txt', 'headwater rank "Who wrote Emma?" passages.txt --why 0,1')


def command(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What the passages are compared with.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text file, one passage a line.")],
    model: Encoder = MINILM,
    pooling: PoolingName = None,
    dot: Dot = False,
    dimensions: Dimensions = None,
    top: Annotated[int, typer.Option(min=1, max=options.MOST, help="So many passages are written.")] = 10,
    why: Annotated[
        str | None, typer.Option(metavar="PLACES", help="Two places, such as 0,1: why the one is above the other.")
    ] = None,
    rank: RankNumber = None,
    target: PairTarget = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Scores are kept there: what was interrupted goes on with the same command."),
    ] = None,
    method: options.Method = None,
    truncate: options.Truncate = False,
    device: options.Device = None,
    dtype: options.Dtype = None,
    as_json: options.Json = False,
) -> None:
    """Put passages in the order of their similarity to a query, and say why one is above another."""
    lines = read_passages(file)
    places = None if why is None else read_places(why, len(lines))
    with waiting("loading"):
        import headwater
        from headwater.evaluation.progress import show_progress
    with interruptions(keep, "--keep"), show_progress(len(lines)) as tick:
        found = headwater.rank(
            model,
            query,
            list(lines.values()),
            directions=rank,
            tell=tick,
            keep=keep,
            pooling=pooling,
            normalise=not dot,
            dimensions=dimensions,
            target=target,
            method=method,
            truncate=truncate,
            device=device,
            dtype=dtype,
        )
    with waiting("explaining"):
        difference = None if places is None else found.why(*places)
    if as_json:
        for place, record in enumerate(list_records(found, top, list(lines))):
            print_json({"place": place, **record})
        if difference is not None:
            words = [{"word": word.text, "relevance": word.relevance} for word in difference.query_words()]
            record = {"difference": difference.score, "words": words, "rest": difference.query_rest}
            print_json(record)
        return
    typer.echo("\n".join(str(found).split("\n")[: top + 1]))
    if difference is not None:
        typer.echo(f"\n{difference}")


def list_records(ranking: Ranking, top: int, lines: Sequence[int]) -> list[dict[str, Any]]:
    numbers = ranking.order[:top]
    return [{"line": lines[n], "score": ranking.scores[n], "passage": ranking.passages[n]} for n in numbers]


def read_passages(file: Path) -> dict[int, str]:
    """The lines of a text file by their number, from 0; empty ones are no passages."""
    try:
        return {number: line for number, line in enumerate(read_lines(file)) if line.strip()}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as text: {error}.") from error


def read_places(text: str, count: int) -> tuple[int, int]:
    """Two places among so many, before anything is computed."""
    parts = text.split(",")
    if len(parts) != 2 or not all(options.is_all_digits(part.strip()) for part in parts):
        raise DataError(f"--why takes two places, such as 0,1, not {text!r}.")
    above, below = int(parts[0]), int(parts[1])
    if max(above, below) >= count:
        raise DataError(f"--why {text}: the file has {say_count(count, 'passage')}, the first is at place 0.")
    return above, below
