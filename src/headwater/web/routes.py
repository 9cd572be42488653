"""The API: one function per route. It takes a request, calls the library, and gives the answer in the API's terms."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from ..errors import DataError
from ..methods import available
from ..results.meanings import MEANINGS
from ..version import __version__
from ..viz.colour import PALETTES
from .generation import generation_answer
from .generation_schemas import GenerateAnswer, GenerateAsked
from .jobs import RESPONSES, AnyCaller, NamedCaller
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
def about(caller: AnyCaller) -> About:
    """What this server has and allows: models, methods, palettes, limits."""
    return About(
        version=__version__,
        models=[model_about(model) for model in caller.state.models.all()],
        methods=[MethodAbout(name=m.name, summary=m.summary, group=m.group) for m in available()],
        palettes=[
            PaletteAbout(name=name, said=p.said, positive={**p.positive}, negative={**p.negative})
            for name, p in PALETTES.items()
        ],
        limits={name: float(value) for name, value in vars(caller.state.limits).items()},
        datasets=len(caller.state.stores),
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
    caller: AnyCaller, kind: Annotated[Kind, Path(description="What the model is of.")], name: ModelName = None
) -> ModelAbout:
    """Begin to read a model, where that has not begun: the first of its kind, or one of those named at start."""
    model = caller.state.models.of(kind, name)
    model.begin()
    return model_about(model)


@router.post("/explain", tags=["text"])
async def post_explain(caller: NamedCaller, ask: TextAsked) -> TextAnswer:
    """What each word of a text contributed to a score, by one or several methods, with a ledger for each."""
    return await caller.submit(lambda: text_answer(caller.state.take("text", ask.model), ask, caller.state.text(ask)))


@router.post("/explain/report", tags=["text"], response_class=Response, responses=FILE)
async def explain_report(
    caller: NamedCaller, ask: TextAsked, form: Format = "html", palette: PaletteName = "red-blue"
) -> Response:
    """The same as one file: a self-contained page, an SVG, or JSON."""

    def work() -> str:
        found, loaded = caller.state.text(ask), caller.state.take("text", ask.model)
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

    return send_file(await caller.submit(work), form, "explanation")


@router.post("/predict", tags=["text"])
async def post_predict(caller: NamedCaller, ask: PredictAsked) -> PredictAnswer:
    """What the model says when some words are masked: the quickest test of an explanation."""
    return await caller.submit(lambda: predict_with_masks(caller.state.take("text", ask.model), ask))


@router.post("/audit", tags=["text"])
async def post_audit(caller: NamedCaller, ask: AuditAsked) -> AuditAnswer:
    """Where relevance is lost on its way from the score to the inputs, layer by layer."""
    return await caller.submit(lambda: audit_answer(caller.state.audit(ask)))


@router.post("/audit/report", tags=["text"], response_class=Response, responses=FILE)
async def audit_file(caller: NamedCaller, ask: AuditAsked, form: Format = "html") -> Response:
    """The audit as one file."""
    made = await caller.submit(lambda: audit_report(caller.state.audit(ask), form))
    return send_file(made, form, "audit")


@router.post("/image", tags=["image"])
async def image(caller: NamedCaller, ask: ImageAsked) -> PictureAnswer:
    """What each patch of an image contributed, drawn over the image."""

    def work() -> PictureAnswer:
        loaded = caller.state.take("image", ask.model)
        return image_answer(loaded, ask, *caller.state.image(ask))

    return await caller.submit(work)


@router.post("/image/report", tags=["image"], response_class=Response, responses=FILE)
async def image_report(caller: NamedCaller, ask: ImageAsked, form: PictureFormat = "html") -> Response:
    """The image with its relevance as one file: a page, an SVG, a PNG or JSON."""

    def work() -> str | bytes:
        found, picture = caller.state.image(ask)
        if form == "png":
            return image_png(found, picture, ask.level, ask.palette)
        loaded = caller.state.take("image", ask.model)
        answer = image_answer(loaded, ask, found, picture)
        tested = ask_without_patches(loaded, ask, found, picture) if ask.masked and form == "html" else None
        return sheet_report(found, image_sheet(found, picture, ask), form, ask.palette, *page_parts(answer, tested))

    return send_file(await caller.submit(work), form, "image")


def page_parts(answer: PictureAnswer, tested: MaskAnswer | None) -> tuple[str, str]:
    """Of a saved page: the prediction, and what masking showed."""
    after = tested.after if tested is not None else ()
    shown = prediction_part(answer.classes, answer.prediction, after)
    return shown, mask_section(tested) if tested is not None else ""


@router.post("/molecule", tags=["molecule"])
async def post_molecule(caller: NamedCaller, ask: MoleculeAsked) -> PictureAnswer:
    """What each atom of a molecule contributed, drawn on its structure."""
    return await caller.submit(
        lambda: molecule_answer(
            caller.state.take("molecule", ask.model), ask, caller.state.molecule(ask), caller.state.limits
        )
    )


@router.post("/molecule/report", tags=["molecule"], response_class=Response, responses=FILE)
async def molecule_report(caller: NamedCaller, ask: MoleculeAsked, form: Format = "html") -> Response:
    """The molecule as one file."""

    def work() -> str:
        found = caller.state.molecule(ask)
        loaded = caller.state.take("molecule", ask.model)
        answer = molecule_answer(loaded, ask, found, caller.state.limits)
        graph = make_graph(ask, caller.state.limits)
        tested = ask_without_atoms(loaded, ask, found, graph) if ask.masked and form == "html" else None
        return sheet_report(found, molecule_sheet(found, ask), form, ask.palette, *page_parts(answer, tested))

    return send_file(await caller.submit(work), form, "molecule")


@router.post("/generate", tags=["generation"])
async def generate(caller: NamedCaller, ask: GenerateAsked) -> GenerateAnswer:
    """Let a language model go on, and say what every token came from."""
    return await caller.submit(lambda: generation_answer(caller.state.generation(ask)))


@router.post("/generate/report", tags=["generation"], response_class=Response, responses=FILE)
async def generate_report(
    caller: NamedCaller, ask: GenerateAsked, form: Format = "html", palette: PaletteName = "red-blue"
) -> Response:
    """The generated text as one file; in the page every token lights up what it came from."""

    def work() -> str:
        tested = mask_section(caller.state.ask_without_tokens(ask)) if ask.masked and form == "html" else ""
        return generation_report(caller.state.generation(ask), form, palette, tested)

    return send_file(await caller.submit(work), form, "generation")


@router.get("/jobs/{job}", tags=["jobs"])
async def get_job(caller: AnyCaller, job: JobPath) -> JobShown:
    """Where a request stands: 0 is being done, 1 comes next."""
    return JobShown(id=job, place=caller.state.pool.place(job))


@router.delete("/jobs/{job}", tags=["jobs"], status_code=204)
async def cancel(caller: AnyCaller, job: JobPath) -> None:
    """Take a request out of the line, or stop it."""
    if not caller.state.pool.cancel(job):
        raise DataError(f"no request called {job!r} waits or is being answered.")


def send_file(content: str | bytes, form: str, name: str) -> Response:
    """A file to be saved. Its name is ours, so nothing of a request is in the header."""
    saved = {"Content-Disposition": f'attachment; filename="headwater-{name}.{form}"'}
    return Response(content, media_type=MEDIA[form], headers=saved)
