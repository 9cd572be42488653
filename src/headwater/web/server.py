"""Runs the explorer: finds a port, says where it is, opens the browser."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from ..errors import UsageError
from .app import create_app
from .connections import TimedConnection
from .limits import Limits
from .security import hosts_for, is_loopback
from .state import AppState

PORT = 8765
TRIED = 20  # ports from the usual one on, where that is taken and none was asked for


def open_socket(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for, else on the first free one from the usual on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for number in [port] if port is not None else range(PORT, PORT + TRIED):
        found = socket.socket(family)
        # a port that was closed a moment ago is free again; on Windows that option would share a port that is in use
        found.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR), 1)
        try:
            found.bind((host, number))
            found.listen()  # from here on who connects waits, and is not turned away
        except OSError as error:
            found.close()
            last = error
        else:
            return found
    said = last.strerror if last is not None else ""
    raise UsageError(f"{host} cannot listen on port {port or PORT}: {said}. Choose another with --port.")


def make_address(host: str, port: int, token: str | None) -> str:
    """What to open in a browser."""
    name = "127.0.0.1" if host in ("0.0.0.0", "") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def token_for(host: str, given: str | None) -> str | None:
    """None on this machine alone; else the token that was given, or a new one."""
    if given is not None:
        if len(given) < 16:
            raise UsageError("a token has at least 16 characters, so that it cannot be guessed.")
        return given
    return None if is_loopback(host) else secrets.token_urlsafe(24)


def share_cores(workers: int) -> None:
    """Cores among workers: more threads than cores only wait for each other."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


def configure_server(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """How uvicorn serves: quietly, no other protocol, so many connections, none of which may stand still."""
    return uvicorn.Config(
        app,
        http=TimedConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=2,
    )


def serve(
    state: AppState, host: str, port: int | None, token: str | None, browser: bool, say: Callable[[str], None]
) -> None:
    """Serve until interrupted."""
    with open_socket(host, port) as found:
        token = token_for(host, token)
        where = make_address(host, found.getsockname()[1], token)
        app = create_app(state, hosts=hosts_for(host), token=token)
        say(f"the explorer is at {where}  (Ctrl+C stops it)")
        if browser:
            threading.Timer(0.5, open_browser, [where, say]).start()
        uvicorn.Server(configure_server(app, state.limits)).run(sockets=[found])


def open_browser(where: str, say: Callable[[str], None]) -> None:
    """Open the address in this machine's browser; where there is none, say so."""
    if not webbrowser.open(where):
        say("no browser was found here: open that address in yours")


@contextmanager
def serve_in_thread(state: AppState) -> Iterator[str]:
    """The explorer on a free port of this machine, as long as the block runs."""
    with open_socket("127.0.0.1", 0) as found:
        server = uvicorn.Server(configure_server(create_app(state), state.limits))
        thread = threading.Thread(target=lambda: server.run(sockets=[found]), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{found.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
