"""Errors travel: from a worker process, through a copy, with their message and all they know."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import headwater
from headwater import errors
from headwater.errors import HeadwaterError

SAMPLES: dict[str, Any] = {
    "str": "a",
    "object": "lpr",
    "int": 3,
    "float": 2.5,
    "Iterable[str]": ("lrp", "gi"),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {p}": lambda e, p=p: pickle.loads(pickle.dumps(e, protocol=p)) for p in range(6)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def every_class() -> list[type[HeadwaterError]]:
    """The whole tree, wherever its classes are defined."""
    for module in pkgutil.walk_packages(headwater.__path__, "headwater."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, open_ends = [], [HeadwaterError]
    while open_ends:
        kind = open_ends.pop()
        found.append(kind)
        open_ends += [below for below in kind.__subclasses__() if below.__module__.startswith("headwater")]
    return found


def made(kind: type[HeadwaterError]) -> HeadwaterError:
    """An instance by its own constructor where plain values make one, with an attribute and a note added later."""
    own = kind.__init__ if inspect.isfunction(kind.__init__) else None
    parameters = list(inspect.signature(own).parameters.values())[1:] if own is not None else []
    if own is None:
        error = kind("the message") if issubclass(kind, ImportError) else kind("the message", 7)
    elif all(p.annotation in SAMPLES for p in parameters):
        error = kind(*(SAMPLES[p.annotation] for p in parameters))
    else:  # its constructor asks for more than values: a message is what it hands on
        error = kind.__new__(kind, "the message")
        Exception.__init__(error, "the message")
    error.found = {"rows": [1, 2]}  # type: ignore[attr-defined]
    error.__notes__ = ["seen in shard 3"]  # type: ignore[attr-defined]
    return error


def check_same(back: Any, error: HeadwaterError) -> None:
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)
    assert getattr(back, "msg", None) == getattr(error, "msg", None)


@pytest.mark.parametrize("way", WAYS)
def test_every_error_survives(way):
    kinds = every_class()
    assert {"TooLong", "MissingExtra", "OutOfTime", "TooLittle", "Busy"} <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        error = made(kind)
        check_same(WAYS[way](error), error)


def test_an_error_of_a_plugin_survives_too(monkeypatch):
    class Theirs(errors.UsageError):
        def __init__(self, *, shard: int, why: str) -> None:
            self.shard = shard
            super().__init__(f"shard {shard}: {why}")

    monkeypatch.setitem(globals(), "Theirs", Theirs)
    Theirs.__qualname__ = "Theirs"
    error = Theirs(shard=3, why="torn")
    check_same(pickle.loads(pickle.dumps(error)), error)
    check_same(copy.deepcopy(error), error)


def test_what_an_importer_reads_of_a_missing_extra_survives():
    error = errors.MissingExtra("the engine 'ray'", "cluster")
    error.name = "ray"
    assert pickle.loads(pickle.dumps(error)).name == "ray"


def refuse(which: str) -> None:
    if which == "name":
        raise errors.UnknownName("method", "lpr", ("lrp", "gi"))
    raise errors.TooLong(700, 512)


def test_a_worker_process_says_what_was_wrong():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        with pytest.raises(errors.UnknownName, match=r"Did you mean 'lrp'\?") as unknown:
            workers.submit(refuse, "name").result(timeout=120)
        assert (unknown.value.name, unknown.value.known) == ("lpr", ("lrp", "gi"))
        with pytest.raises(errors.TooLong, match="700 tokens") as long:
            workers.submit(refuse, "length").result(timeout=120)
        assert (long.value.length, long.value.limit) == (700, 512)
