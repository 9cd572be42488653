"""A worker process: takes chunks, says where it stands in them, and hands back what it made."""

from __future__ import annotations

import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from ..errors import HeadwaterError
from ..evaluation.model_file import NamelessFile
from ..evaluation.workers import end_with_parent
from .explaining import Explainer, describe_error
from .failures import Place
from .payload import unpack_payload


def work(pipe: Connection, payload: NamelessFile, device: str) -> None:
    """The whole life of a worker. It ends with its parent, however that ends; Ctrl-C is the parent's to answer."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with report_failures(pipe), closing(unpack_payload(payload.read(), device)) as explainer:
        pipe.send(("ready",))
        while (task := pipe.recv()) is not None:
            pipe.send_bytes(answer_task(explainer, pipe, *task))


def answer_task(explainer: Explainer, pipe: Connection, *task: Any) -> bytes:
    def tell(place: Place, rows: int, tokens: int) -> None:
        pipe.send(("at", place, rows, tokens))

    chunk, care = task
    return pickle.dumps(("done", explainer.chunk(chunk, tell, care)), protocol=pickle.HIGHEST_PROTOCOL)


@contextmanager
def report_failures(pipe: Connection) -> Iterator[None]:
    """What went wrong is told to the parent, not to the screen."""
    try:
        yield
    except EOFError:
        return
    except HeadwaterError as error:
        pipe.send(("refused", error))
    except Exception as error:  # another worker may fare better: the parent counts how often this happens, and where
        with suppress(OSError):  # nobody listens any more where the job was ended
            pipe.send(("failed", describe_error(error)))
        sys.exit(1)
