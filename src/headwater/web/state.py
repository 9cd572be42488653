"""All that a server has: its models, its workers, the last answers, the results that can be opened."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import DataError
from ..results.audit import Audit
from ..results.comparison import Comparison
from ..results.generation import Generation
from ..results.inside import HeadPairs
from .answer_schemas import AnswerAsked
from .answers import answer_question
from .generation import generate_text
from .generation_schemas import GenerateAsked
from .inside import Found, explain_inside, read_pairs
from .inside_schemas import HeadAsked, InsideAsked
from .layers import audit_text
from .limits import Limits
from .mask_tests import ask_without_tokens
from .models import Kind, Loaded, Models
from .picture_schemas import ImageAsked, MoleculeAsked
from .pictures import image_comparison, molecule_comparison, open_picture
from .pool import JobPool
from .rankings import TimedRanking, rank_passages
from .schemas import MaskAnswer
from .similar import TimedSimilarity, compare_pair
from .similar_schemas import RankAsked, SimilarAsked
from .stores import Sheet, Store
from .stores.pairs import pair_sheet
from .text_schemas import AuditAsked, TextAsked
from .texts import compare_text, text_answer

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..api.answers import AnswerExplainer

FIRST = ("text", "a first text, " * 6, "a first text")  # that a server explains before anybody asks
PAIRS = 4  # pairs of runs whose rows are kept
PARTS = 4  # texts whose parts of the model are kept: neurons by token are as large as the activations
LOOKS = {
    "unit",
    "palette",
    "level",
    "masked",
    "masked_for",
    "columns",
    "left_out",
    "left_first",
    "left_second",
    "places",
    "above",
    "below",
}  # what changes a picture, and no number


Value = TypeVar("Value")


class Kept:
    """At most so many values by their keys; what was not asked for longest goes first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made where it is not kept. Two who ask at once may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast(Value, self._values[key])
        found = make()
        with self._lock:
            self._values[key] = found
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return found


class AppState:
    """Answers requests, each from the models that were chosen when the server started."""

    def __init__(self, models: Models, limits: Limits | None = None, stores: Sequence[Store] = ()) -> None:
        self.models: Models = models
        self.limits: Limits = limits or Limits()
        self.stores: tuple[Store, ...] = tuple(stores)
        self.pool: JobPool = JobPool(self.limits.workers, self.limits.waiting, self.limits.seconds)
        self.kept: Kept = Kept(self.limits.kept)
        self.pairs: Kept = Kept(PAIRS)
        self.parts: Kept = Kept(PARTS)

    def warm(self) -> None:
        """Read the text model and have every worker explain a little, so that the first person does not wait for it.

        A short text and a longer one make a plan for those between them, and the third one tries it. One worker does
        that alone: while a thread tries a plan, others compute plainly.
        """
        self.models = self.models.ready()
        loaded = self.models.text.take()
        asked = [TextAsked(text=text, methods=[loaded.method, "gi"]) for text in FIRST]
        count = min(self.limits.workers, self.limits.waiting)
        everybody = threading.Barrier(count)  # so that none of them does another's part

        def explain_all() -> None:
            for ask in asked:
                text_answer(loaded, ask, compare_text(loaded, ask))

        def explain_beside_others() -> None:
            everybody.wait(timeout=60)
            explain_all()

        self.pool.submit(explain_all).done.result()
        for job in [self.pool.submit(explain_beside_others) for _ in range(count)]:
            job.done.result()

    def close(self) -> None:
        """Stop the workers, and let go of what they learned of the models."""
        self.pool.close()
        self.models.close()

    def take(self, kind: Kind, name: str | None) -> Loaded:
        """The model of this kind and name, or the first of its kind; it must have been read."""
        return self.models.of(kind, name).take()

    def text(self, ask: TextAsked) -> Comparison:
        return self.kept.get(key(ask), lambda: compare_text(self.take("text", ask.model), ask))

    def audit(self, ask: AuditAsked) -> tuple[Audit, ...]:
        return self.kept.get(key(ask), lambda: audit_text(self.take("text", ask.model), ask))

    def image(self, ask: ImageAsked) -> tuple[Comparison, Image]:
        image = open_picture(ask, self.limits)
        return self.kept.get(key(ask), lambda: image_comparison(self.take("image", ask.model), ask, image)), image

    def molecule(self, ask: MoleculeAsked) -> Comparison:
        return self.kept.get(key(ask), lambda: molecule_comparison(self.take("molecule", ask.model), ask, self.limits))

    def generation(self, ask: GenerateAsked) -> Generation:
        found = self.kept.get(key(ask), lambda: generate_text(self.take("language", ask.model), ask))
        return found.words() if ask.unit == "word" else found

    def ask_without_tokens(self, ask: GenerateAsked) -> MaskAnswer:
        """What becomes of one piece of the output when pieces before it are masked."""
        tokens = self.generation(ask.model_copy(update={"unit": "token"}))
        return ask_without_tokens(self.take("language", ask.model), ask, tokens, self.generation(ask))

    def answer(self, ask: AnswerAsked) -> AnswerExplainer:
        """The answer, ready to be asked what it rests on."""
        return self.kept.get(key(ask), lambda: answer_question(self.take("language", ask.model), ask))

    def encoder(self, name: str | None) -> Loaded:
        """The model that gives every text a vector."""
        return self.take("sentence", name)

    def similar(self, ask: SimilarAsked) -> TimedSimilarity:
        return self.kept.get(key(ask), lambda: compare_pair(self.encoder(ask.model), ask))

    def ranking(self, ask: RankAsked) -> TimedRanking:
        return self.kept.get(key(ask), lambda: rank_passages(self.encoder(ask.model), ask))

    def inside(self, ask: InsideAsked) -> Found:
        """The parts of the model for a text."""
        return self.parts.get(key(ask), lambda: explain_inside(self.inside_model(ask), ask))

    def inside_model(self, ask: InsideAsked) -> Loaded:
        return self.take(ask.kind, ask.model)

    def head_pairs(self, ask: HeadAsked) -> list[HeadPairs]:
        """All heads of the text between words: one of them is asked for after another."""
        own = InsideAsked(**ask.model_dump(exclude={"module", "head"}))
        named = ("pairs", *key(own))
        return self.parts.get(named, lambda: read_pairs(self.inside_model(ask), own))

    def sheet(self, name: str, beside: str | None = None) -> Sheet:
        """The rows of a result; with another run beside it, those that both have."""
        if beside is None:
            return self.store(name).sheet()
        one, other = self.store(name), self.store(beside)
        return self.pairs.get((one.id, other.id), lambda: pair_sheet(one, other))

    def store(self, name: str) -> Store:
        for one in self.stores:
            if one.id == name:
                return one
        raise DataError(f"there is no result called {name!r} here.")


def key(ask: Any) -> tuple[str, str]:
    """What tells requests apart, as a hash: an image is long."""
    said = ask.model_dump_json(exclude=LOOKS)
    return type(ask).__name__, hashlib.sha256(said.encode()).hexdigest()
