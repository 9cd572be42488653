"""The API's mask tests: the body of an explanation with `masked`, and what the model says then."""

from __future__ import annotations

from fastapi import APIRouter, Request

from .generation_schemas import GenerateAsked
from .jobs import RESPONSES, JobName, app_state, submit
from .mask_tests import ask_without_atoms, ask_without_patches, ask_without_words
from .picture_schemas import ImageAsked, MoleculeAsked
from .pictures import make_graph
from .schemas import MaskAnswer
from .text_schemas import TextAsked

router: APIRouter = APIRouter(prefix="/api", responses=RESPONSES)


@router.post("/explain/mask", tags=["text"])
async def mask_text(request: Request, ask: TextAsked, job: JobName = None) -> MaskAnswer:
    """Mask words, and see which method had said best what that does."""
    state = app_state(request)
    return await submit(
        request, lambda: ask_without_words(state.models.of("text", ask.model).take(), ask, state.text(ask)), job
    )


@router.post("/image/mask", tags=["image"])
async def mask_image(request: Request, ask: ImageAsked, job: JobName = None) -> MaskAnswer:
    """Paint patches over in the mean colour, and see which method had said best what that does."""
    state = app_state(request)
    return await submit(
        request, lambda: ask_without_patches(state.models.of("image", ask.model).take(), ask, *state.image(ask)), job
    )


@router.post("/molecule/mask", tags=["molecule"])
async def mask_molecule(request: Request, ask: MoleculeAsked, job: JobName = None) -> MaskAnswer:
    """Take the embedding of atoms out, and see which method had said best what that does."""
    state = app_state(request)

    def work() -> MaskAnswer:
        loaded = state.models.of("molecule", ask.model).take()
        return ask_without_atoms(loaded, ask, state.molecule(ask), make_graph(ask, state.limits))

    return await submit(request, work, job)


@router.post("/generate/mask", tags=["generation"])
async def mask_prompt(request: Request, ask: GenerateAsked, job: JobName = None) -> MaskAnswer:
    """Mask tokens before a piece of the output, and see how that piece's score changes."""
    state = app_state(request)
    return await submit(request, lambda: state.ask_without_tokens(ask), job)
