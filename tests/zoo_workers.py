"""What a process of the zoo may do instead of its work. Light to import, for every child imports it."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from headwater_experiments.zoo import pool
from headwater_experiments.zoo.entries import Entry


def hangs(entry: Entry, pipe: Connection, memory: float) -> None:
    pipe.send("explaining")
    time.sleep(60)


def dies(entry: Entry, pipe: Connection, memory: float) -> None:
    raise SystemExit(3)


def grows(entry: Entry, pipe: Connection, memory: float) -> None:
    pool.silence_output()
    pool.limit_memory(memory)
    with pool.note_memory_error(entry, pipe, memory):
        bytearray(4 << 30)
