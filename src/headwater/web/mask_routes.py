"""The API's mask tests: the body of an explanation with `masked`, and what the model says then."""

from __future__ import annotations

from fastapi import APIRouter

from .generation_schemas import GenerateAsked
from .jobs import RESPONSES, NamedCaller
from .mask_tests import ask_without_atoms, ask_without_patches, ask_without_words
from .picture_schemas import ImageAsked, MoleculeAsked
from .pictures import make_graph
from .schemas import MaskAnswer
from .text_schemas import TextAsked

router: APIRouter = APIRouter(prefix="/api", responses=RESPONSES)


@router.post("/explain/mask", tags=["text"])
async def mask_text(caller: NamedCaller, ask: TextAsked) -> MaskAnswer:
    """Mask words, and see which method had said best what that does."""
    return await caller.submit(
        lambda: ask_without_words(caller.state.take("text", ask.model), ask, caller.state.text(ask))
    )


@router.post("/image/mask", tags=["image"])
async def mask_image(caller: NamedCaller, ask: ImageAsked) -> MaskAnswer:
    """Paint patches over in the mean colour, and see which method had said best what that does."""
    return await caller.submit(
        lambda: ask_without_patches(caller.state.take("image", ask.model), ask, *caller.state.image(ask))
    )


@router.post("/molecule/mask", tags=["molecule"])
async def mask_molecule(caller: NamedCaller, ask: MoleculeAsked) -> MaskAnswer:
    """Take the embedding of atoms out, and see which method had said best what that does."""

    def work() -> MaskAnswer:
        loaded = caller.state.take("molecule", ask.model)
        return ask_without_atoms(loaded, ask, caller.state.molecule(ask), make_graph(ask, caller.state.limits))

    return await caller.submit(work)


@router.post("/generate/mask", tags=["generation"])
async def mask_prompt(caller: NamedCaller, ask: GenerateAsked) -> MaskAnswer:
    """Mask tokens before a piece of the output, and see how that piece's score changes."""
    return await caller.submit(lambda: caller.state.ask_without_tokens(ask))
