"""Generated text: what every token that a language model says came from."""

from __future__ import annotations

from ..results.generation import Generation
from ..viz.reading import name_piece, visible
from .generation_schemas import Chance, GenerateAnswer, GenerateAsked, OutputRow, Piece
from .models import Loaded
from .texts import ledger_answer, show_phrases


def generate_text(loaded: Loaded, ask: GenerateAsked) -> Generation:
    found: Generation = loaded.session.generate(
        None if ask.chat else ask.prompt,
        tokenizer=loaded.reader,
        chat=[{"role": "user", "content": ask.prompt}] if ask.chat else None,
        max_new_tokens=ask.new_tokens,
        answer=ask.answer,
        method=ask.method,
        score=None if ask.contrast is not None else ask.score,
        contrast=ask.contrast,
        sinks="aside" if ask.aside else "show",
    )
    return found


def generation_answer(found: Generation) -> GenerateAnswer:
    return GenerateAnswer(
        prompt=found.prompt,
        pieces=[
            Piece(text=visible_piece(piece), role=role, special=special, aside=aside)
            for piece, role, special, aside in zip(found.pieces, found.roles, found.special, found.aside, strict=True)
        ],
        rows=[output_row(found, number) for number in range(len(found))],
        text=found.text,
        method=found.method,
        score=found.score,
        unit=found.unit,
        model=found.provenance.model,
    )


def visible_piece(piece: str) -> str:
    """A token as text: spaces stay, what cannot be seen is made visible."""
    inner = piece.strip(" ")
    return piece.replace(inner, visible(inner), 1) if inner else piece or name_piece(piece)


def output_row(found: Generation, number: int) -> OutputRow:
    seen = found.prompt + number + (found.unit != "token")
    return OutputRow(
        text=name_piece(found.output[number]),
        target=name_piece(found.targets[number]),
        score=found.scores[number],
        probability=found.probabilities[number],
        alternatives=[
            Chance(text=visible(one.text or " "), probability=one.probability)
            for one in (found.alternatives[number] if found.alternatives else ())
        ],
        relevance=[float(v) for v in found.relevance[number][:seen].tolist()],
        ledger=ledger_answer(found.ledgers[number], f"{found.unit}s"),
        verdict=show_phrases(found.verdict(number).phrases),
    )
