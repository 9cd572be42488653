"""The API: one function per route. It takes a request, calls the library, and gives the answer in the API's terms."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from ..errors import DataError
from ..methods import available
from ..results.meanings import MEANINGS
from ..version import __version__
from ..viz.colour import PALETTES
from .generation import generation_answer
from .generation_schemas import GenerateAnswer, GenerateAsked
from .jobs import RESPONSES, JobName, app_state, submit
from .layers import audit_answer
from .mask_tests import ask_without_atoms, ask_without_patches, ask_without_words
from .models import Kind, LazyModel
from .picture_schemas import ImageAsked, MoleculeAsked, PictureAnswer
from .pictures import image_answer, image_sheet, make_graph, molecule_answer, molecule_sheet
from .reports import (
    MEDIA,
    Format,
    PictureFormat,
    audit_report,
    generation_report,
    image_png,
    mask_section,
    prediction_part,
    sheet_report,
    text_report,
)
from .schemas import NAME, About, JobShown, MaskAnswer, MethodAbout, ModelAbout, PaletteAbout, PaletteName
from .text_schemas import AuditAnswer, AuditAsked, PredictAnswer, PredictAsked, TextAnswer, TextAsked
from .texts import predict_with_masks, text_answer, unit_for

router: APIRouter = APIRouter(prefix="/api", responses=RESPONSES)
ModelName = Annotated[
    str | None, Query(max_length=NAME, description="One of the models in /api/about; by default the first of its kind.")
]
JobPath = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{8,64}$", description="The name that the request was given.")]
FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {media: {} for media in MEDIA.values()}, "description": "The file."}
}


@router.get("/about", tags=["about"])
def about(request: Request) -> About:
    """What this server has and allows: models, methods, palettes, limits."""
    state = app_state(request)
    return About(
        version=__version__,
        models=[model_about(model) for model in state.models.all()],
        methods=[MethodAbout(name=m.name, summary=m.summary, group=m.group) for m in available()],
        palettes=[
            PaletteAbout(name=name, said=p.said, positive={**p.positive}, negative={**p.negative})
            for name, p in PALETTES.items()
        ],
        limits={name: float(value) for name, value in vars(state.limits).items()},
        datasets=len(state.stores),
        words=MEANINGS,
    )


def model_about(model: LazyModel) -> ModelAbout:
    found = model.found
    return ModelAbout(
        kind=model.kind,
        name=model.name,
        state=model.state,
        hint=model.hint,
        classes=[] if found is None or model.kind in ("language", "sentence") else found.classes[:1000],
        method=model.method,
        vector="" if found is None or found.parts is None else found.parts.describe(),
    )


@router.post("/models/{kind}", tags=["about"], status_code=202)
def begin_loading(
    request: Request, kind: Annotated[Kind, Path(description="What the model is of.")], name: ModelName = None
) -> ModelAbout:
    """Begin to read a model, where that has not begun: the first of its kind, or one of those named at start."""
    model = app_state(request).models.of(kind, name)
    model.begin()
    return model_about(model)


@router.post("/explain", tags=["text"])
async def post_explain(request: Request, ask: TextAsked, job: JobName = None) -> TextAnswer:
    """What each word of a text contributed to a score, by one or several methods, with a ledger for each."""
    state = app_state(request)
    return await submit(
        request, lambda: text_answer(state.models.of("text", ask.model).take(), ask, state.text(ask)), job
    )


@router.post("/explain/report", tags=["text"], response_class=Response, responses=FILE)
async def explain_report(
    request: Request, ask: TextAsked, form: Format = "html", palette: PaletteName = "red-blue", job: JobName = None
) -> Response:
    """The same as one file: a self-contained page, an SVG, or JSON."""
    state = app_state(request)

    def work() -> str:
        found, loaded = state.text(ask), state.models.of("text", ask.model).take()
        words = unit_for(found.explanations[0], ask.unit) == "word"
        if form != "html":
            return text_report(found, words, form, palette)
        predicted = found.explanations[0].prediction
        if not ask.masked:
            said = predict_with_masks(loaded, PredictAsked(text=ask.text))
            return text_report(found, words, form, palette, prediction=prediction_part(said.before, predicted))
        tested = ask_without_words(loaded, ask, found)
        shown = prediction_part(tested.before, predicted, tested.after)
        return text_report(found, words, form, palette, mask_section(tested), shown)

    return file(await submit(request, work, job), form, "explanation")


@router.post("/predict", tags=["text"])
async def post_predict(request: Request, ask: PredictAsked, job: JobName = None) -> PredictAnswer:
    """What the model says when some words are masked: the quickest test of an explanation."""
    state = app_state(request)
    return await submit(request, lambda: predict_with_masks(state.models.of("text", ask.model).take(), ask), job)


@router.post("/audit", tags=["text"])
async def post_audit(request: Request, ask: AuditAsked, job: JobName = None) -> AuditAnswer:
    """Where relevance is lost on its way from the score to the inputs, layer by layer."""
    state = app_state(request)
    return await submit(request, lambda: audit_answer(state.audit(ask)), job)


@router.post("/audit/report", tags=["text"], response_class=Response, responses=FILE)
async def audit_file(request: Request, ask: AuditAsked, form: Format = "html", job: JobName = None) -> Response:
    """The audit as one file."""
    state = app_state(request)
    made = await submit(request, lambda: audit_report(state.audit(ask), form), job)
    return file(made, form, "audit")


@router.post("/image", tags=["image"])
async def image(request: Request, ask: ImageAsked, job: JobName = None) -> PictureAnswer:
    """What each patch of an image contributed, drawn over the image."""
    state = app_state(request)

    def work() -> PictureAnswer:
        loaded = state.models.of("image", ask.model).take()
        return image_answer(loaded, ask, *state.image(ask))

    return await submit(request, work, job)


@router.post("/image/report", tags=["image"], response_class=Response, responses=FILE)
async def image_report(
    request: Request, ask: ImageAsked, form: PictureFormat = "html", job: JobName = None
) -> Response:
    """The image with its relevance as one file: a page, an SVG, a PNG or JSON."""
    state = app_state(request)

    def work() -> str | bytes:
        found, picture = state.image(ask)
        if form == "png":
            return image_png(found, picture, ask.level, ask.palette)
        loaded = state.models.of("image", ask.model).take()
        answer = image_answer(loaded, ask, found, picture)
        tested = ask_without_patches(loaded, ask, found, picture) if ask.masked and form == "html" else None
        return sheet_report(found, image_sheet(found, picture, ask), form, ask.palette, *page_parts(answer, tested))

    return file(await submit(request, work, job), form, "image")


def page_parts(answer: PictureAnswer, tested: MaskAnswer | None) -> tuple[str, str]:
    """Of a saved page: the prediction, and what masking showed."""
    after = tested.after if tested is not None else ()
    shown = prediction_part(answer.classes, answer.prediction, after)
    return shown, mask_section(tested) if tested is not None else ""


@router.post("/molecule", tags=["molecule"])
async def post_molecule(request: Request, ask: MoleculeAsked, job: JobName = None) -> PictureAnswer:
    """What each atom of a molecule contributed, drawn on its structure."""
    state = app_state(request)
    return await submit(
        request,
        lambda: molecule_answer(state.models.of("molecule", ask.model).take(), ask, state.molecule(ask), state.limits),
        job,
    )


@router.post("/molecule/report", tags=["molecule"], response_class=Response, responses=FILE)
async def molecule_report(request: Request, ask: MoleculeAsked, form: Format = "html", job: JobName = None) -> Response:
    """The molecule as one file."""
    state = app_state(request)

    def work() -> str:
        found = state.molecule(ask)
        loaded = state.models.of("molecule", ask.model).take()
        answer = molecule_answer(loaded, ask, found, state.limits)
        graph = make_graph(ask, state.limits)
        tested = ask_without_atoms(loaded, ask, found, graph) if ask.masked and form == "html" else None
        return sheet_report(found, molecule_sheet(found, ask), form, ask.palette, *page_parts(answer, tested))

    return file(await submit(request, work, job), form, "molecule")


@router.post("/generate", tags=["generation"])
async def generate(request: Request, ask: GenerateAsked, job: JobName = None) -> GenerateAnswer:
    """Let a language model go on, and say what every token came from."""
    state = app_state(request)
    return await submit(request, lambda: generation_answer(state.generation(ask)), job)


@router.post("/generate/report", tags=["generation"], response_class=Response, responses=FILE)
async def generate_report(
    request: Request, ask: GenerateAsked, form: Format = "html", palette: PaletteName = "red-blue", job: JobName = None
) -> Response:
    """The generated text as one file; in the page every token lights up what it came from."""
    state = app_state(request)

    def work() -> str:
        tested = mask_section(state.ask_without_tokens(ask)) if ask.masked and form == "html" else ""
        return generation_report(state.generation(ask), form, palette, tested)

    return file(await submit(request, work, job), form, "generation")


@router.get("/jobs/{job}", tags=["jobs"])
async def get_job(request: Request, job: JobPath) -> JobShown:
    """Where a request stands: 0 is being done, 1 comes next."""
    return JobShown(id=job, place=app_state(request).pool.place(job))


@router.delete("/jobs/{job}", tags=["jobs"], status_code=204)
async def cancel(request: Request, job: JobPath) -> None:
    """Take a request out of the line, or stop it."""
    if not app_state(request).pool.cancel(job):
        raise DataError(f"no request called {job!r} waits or is being answered.")


def file(content: str | bytes, form: str, name: str) -> Response:
    """A file to be saved. Its name is ours, so nothing of a request is in the header."""
    saved = {"Content-Disposition": f'attachment; filename="headwater-{name}.{form}"'}
    return Response(content, media_type=MEDIA[form], headers=saved)
