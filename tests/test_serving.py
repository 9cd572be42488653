"""The explorer's server under hostile requests: each is refused by a sentence or cut off, and the server lives."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi")
import httpx
from browsing import make_state
from fastapi.testclient import TestClient
from speaker import speaker, talker

from headwater.web.app import create_app
from headwater.web.bodies import Bodies, Gone, Refusal
from headwater.web.connections import TimedConnection
from headwater.web.limits import Limits
from headwater.web.models import Loaded
from headwater.web.server import serve_in_thread
from headwater.web.state import AppState

MIB = 2**20
TEXT = "a gripping, beautifully acted film"
JSON = {"content-type": "application/json"}
PATIENCE = 60.0  # seconds that a busy machine may need; what is bound to come fails only where it never does
ASKED = {"explain": "text", "audit": "text", "predict": "text", "image": "image", "molecule": "smiles"}
ASKED |= {"generate": "prompt", "explain/report": "text", "molecule/report": "smiles"}


@pytest.fixture(scope="module")
def made() -> AppState:
    found = make_state(language=lambda: Loaded(talker("llama"), speaker()))
    for model in (found.models.image, found.models.molecule, found.models.language):
        model.load()
    return found


@pytest.fixture(scope="module")
def client(made: AppState) -> TestClient:
    return TestClient(create_app(made), base_url="http://127.0.0.1", raise_server_exceptions=False)


def check_refused(found: httpx.Response, *statuses: int) -> str:
    """A refusal: one of the statuses, a word for programs, a sentence for people."""
    assert found.status_code in (statuses or range(400, 500)), found.text[:200]
    said = found.json()
    assert said["error"]
    assert said["message"].rstrip().endswith((".", "?"))
    return str(said["message"])


# what cannot be read


@pytest.mark.crossed
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    "value",
    [
        r'"\ud800 film"',
        r'"film \udfff"',
        "NaN",
        "Infinity",
        "-1e999",
        "1e999",
        "[NaN]",
        '{"a": NaN}',
        "[" * 5000 + "]" * 5000,
    ],
)
def test_what_json_and_unicode_do_not_have_is_refused(client, path, value):
    field = ASKED[path]
    check_refused(client.post(f"/api/{path}", content=f'{{"{field}": {value}}}', headers=JSON), 400, 422)
    others = json.dumps({field: "CCO"})[:-1]
    for name in ("seed", "target", "methods", "output", "masked", "new_tokens", r"\udc00"):
        check_refused(client.post(f"/api/{path}", content=f'{others}, "{name}": {value}}}', headers=JSON), 400, 422)


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\xfd", b'{"text": "\xff"}', b'{"text": "\xed\xa0\x80"}', b"1" * 6000, b"[" * 100_000]
)
def test_what_is_no_json_is_refused(client, body):
    check_refused(client.post("/api/explain", content=body, headers=JSON), 400, 422)


def test_a_refusal_repeats_nothing_long(client):
    body = json.dumps({"text": "film", "x" * 100_000: 1, "masked": ["y" * 500] * 400})
    found = client.post("/api/explain", content=body, headers=JSON)
    check_refused(found, 422)
    assert len(found.content) < 6000


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "\xff"])
def test_an_origin_that_is_none_is_refused(client, origin):
    headers = {**JSON, "origin": origin.encode("latin-1")}
    check_refused(client.post("/api/explain", json={"text": TEXT}, headers=headers), 403)


@pytest.mark.parametrize("smiles", ["[CH99999]", "[#999]", "[CH999999999999]", "C%(99999)", "[C:1e9]"])
def test_a_molecule_that_there_is_not_is_refused(client, smiles):
    assert "SMILES" in check_refused(client.post("/api/molecule", json={"smiles": smiles}), 400)


@pytest.mark.parametrize("value", ["1e308", "1e7", "-1", "nan", "1e999"])
@pytest.mark.parametrize("name", ["lrp-gamma({})", "lrp(ah+gamma={})", "smoothgrad(lrp-gamma({}))"])
def test_a_gamma_outside_its_range_is_refused(client, name, value):
    method = name.format(value)
    bodies: dict[str, dict[str, Any]] = {
        "explain": {"text": TEXT, "methods": [method]},
        "audit": {"text": TEXT, "methods": [method]},
        "molecule": {"smiles": "CCO", "methods": [method]},
        "generate": {"prompt": "a", "method": method, "new_tokens": 1},
    }
    for path, body in bodies.items():
        assert "from 0 to 1,000,000" in check_refused(client.post(f"/api/{path}", json=body), 400)


def test_an_address_that_is_none_is_said(client):
    assert check_refused(client.get("/api/nothing"), 404)
    assert check_refused(client.get("/api/explain"), 405)


# images


def header_of(width: int, height: int) -> str:
    """A PNG that says how large it is and has no pixels: whoever looks for them first finds it broken."""
    size = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + size + struct.pack(">I", zlib.crc32(size))
    return base64.b64encode(parts + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))).decode()


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((1, 23_000_000), "16,384"),
        ((23_000_000, 1), "16,384"),
        ((1, 16_000), "50 times"),
        ((16_384, 300), "50 times"),
        ((5_000, 5_000), "24,000,000"),
    ],
)
def test_an_image_of_a_bad_shape_is_refused_before_its_pixels_are_read(client, size, said):
    assert said in check_refused(client.post("/api/image", json={"image": header_of(*size)}), 400)


def test_a_broken_image_is_refused(client):
    import io

    from PIL import Image

    kept = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(kept, "JPEG", exif=exif.tobytes())
    whole = kept.getvalue()
    for cut in (20, 60, 100, len(whole) // 2):
        for content in (whole[:cut], whole[:cut] + b"\xff" * 64, whole[:cut] + b"\0" * 64 + whole[cut + 64 :]):
            found = client.post("/api/image", json={"image": base64.b64encode(content).decode()})
            assert found.status_code in (200, 400), found.text


# bodies, over a real socket


@pytest.fixture
def home(made: AppState) -> Iterator[Any]:
    """A server with limits of one's own, by its address."""
    open_now = []

    def start(**limits: Any) -> tuple[str, int]:
        context = serve_in_thread(AppState(made.models, Limits(**limits)))
        open_now.append(context)
        found = urlsplit(context.__enter__())
        assert found.hostname is not None
        assert found.port is not None
        return found.hostname, found.port

    yield start
    for context in open_now:
        context.__exit__(None, None, None)


def head_of(path: str, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *more, "", ""]
    return "\r\n".join(lines).encode()


def rest_of(connection: socket.socket) -> bytes:
    """All that still comes until the server closes; an error where it does not within the socket's own timeout."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


def pour(place: tuple[str, int], path: str, most: int) -> tuple[int, bytes]:
    """Sends an endless body in chunks: how many bytes of it were taken, and what was answered."""
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0
    with socket.create_connection(place, timeout=PATIENCE) as connection:
        connection.sendall(head_of(path, "Transfer-Encoding: chunked"))
        try:
            while sent < most:
                connection.sendall(chunk)
                sent += 65536
        except ConnectionError:
            pass
        return sent, rest_of(connection)


def lives(place: tuple[str, int]) -> bool:
    found = httpx.post(f"http://{place[0]}:{place[1]}/api/predict", json={"text": TEXT}, timeout=PATIENCE)
    return found.status_code == 200


@pytest.mark.parametrize(
    ("path", "bound"), [("/api/explain", MIB // 2), ("/api/image", 12 * MIB), ("/api/nothing", MIB // 2)]
)
def test_a_body_without_a_length_is_cut_off_at_its_bound(home, path, bound):
    place = home()
    sent, answer = pour(place, path, 200 * MIB)
    assert sent < bound + 8 * MIB  # what the sockets themselves hold, on both sides, comes on top
    assert not answer or answer.startswith(b"HTTP/1.1 413")
    assert lives(place)


def test_the_refusal_of_a_long_body_is_read_by_who_waits_for_it(home):
    place = home()
    with socket.create_connection(place, timeout=PATIENCE) as connection:
        connection.sendall(head_of("/api/explain", "Transfer-Encoding: chunked"))
        connection.sendall(b"90000\r\n" + b"x" * 0x90000 + b"\r\n")
        answer = rest_of(connection)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"524,288 bytes" in answer
    for length in ("600000", "9" * 19):
        with socket.create_connection(place, timeout=PATIENCE) as connection:
            connection.sendall(head_of("/api/explain", f"Content-Length: {length}"))
            assert rest_of(connection).startswith(b"HTTP/1.1 413")  # said at once, and closed: no byte is waited for


def resident() -> int:
    """Bytes of this process's memory that are in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts memory as Linux does")
def test_memory_returns_after_large_bodies(home):
    place = home()
    bodies = [
        b'{"image": "' + b"x" * (11 * MIB) + b'"}',  # too many characters
        b'{"image": "x", "methods": [' + b"{}," * (3 * MIB) + b"{}]}",  # many small objects
        b'{"image": "x", "seed": "' + b"9" * (11 * MIB) + b'"}',
    ]

    def send() -> None:
        for body in bodies:
            url = f"http://{place[0]}:{place[1]}/api/image"
            check_refused(httpx.post(url, content=body, headers=JSON, timeout=PATIENCE))

    send()
    before = resident()
    for _ in range(4):
        send()
    pour(place, "/api/image", 64 * MIB)
    assert resident() - before < 48 * MIB


def test_a_body_that_does_not_arrive_is_given_up(home):
    place = home(arriving=0.5)
    for way in ("Content-Length: 40", "Transfer-Encoding: chunked"):
        with socket.create_connection(place, timeout=PATIENCE) as connection:
            connection.sendall(head_of("/api/explain", way))
            begun = time.monotonic()
            answer = rest_of(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"within 0.5 seconds" in answer
        assert time.monotonic() - begun < 20  # forty times as long, for a busy machine
    assert lives(place)


def messages(*parts: bytes, then: dict[str, Any] | None = None) -> Any:
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting.append(then or {"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return waiting.pop(0)

    return receive


def test_all_bodies_together_are_bounded():
    bodies = Bodies(seconds=5, at_once=100)
    assert asyncio.run(bodies.read(messages(b"x" * 60), most=80)) == b"x" * 60
    with pytest.raises(Refusal, match="Try again") as refusal:
        asyncio.run(bodies.read(messages(b"x" * 30, b"x" * 30), most=80))
    assert refusal.value.status == 429
    with pytest.raises(Refusal, match="80 bytes"):
        asyncio.run(bodies.read(messages(b"x" * 30, b"x" * 60), most=80))
    with pytest.raises(Gone):
        asyncio.run(bodies.read(messages(b"x" * 30, then={"type": "http.disconnect"}), most=80))
    assert bodies.held == 60
    bodies.let_go(60)
    assert len(asyncio.run(bodies.read(messages(b"x" * 40, b"x" * 40), most=80))) == 80


def test_a_busy_server_says_so_and_recovers(home):
    place = home(bodies=MIB)
    large = b'{"image": "' + b"x" * (2 * MIB) + b'"}'
    url = f"http://{place[0]}:{place[1]}/api/image"
    for _ in range(2):
        found = httpx.post(url, content=large, headers=JSON, timeout=PATIENCE)
        check_refused(found, 429)
        assert found.headers["retry-after"] == "1"
    assert lives(place)


# connections that stand still


def check_cut_off(connection: socket.socket) -> None:
    """The server closes it, and answers nothing."""
    assert b" 200 " not in rest_of(connection)


@pytest.mark.parametrize("begun", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_half_sent_headers_are_cut_off(home, monkeypatch, begun):
    monkeypatch.setattr(TimedConnection, "headers_seconds", 0.5)
    place = home()
    since = time.monotonic()
    with socket.create_connection(place, timeout=PATIENCE) as connection:
        connection.sendall(begun)
        check_cut_off(connection)
    assert time.monotonic() - since > 0.4  # not at once: there was time to send the rest
    assert lives(place)


def test_a_byte_now_and_then_gains_nothing(home, monkeypatch):
    monkeypatch.setattr(TimedConnection, "headers_seconds", 0.6)
    place = home()
    with socket.create_connection(place, timeout=PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert is_closed_while_dripping(connection)


def is_closed_while_dripping(connection: socket.socket) -> bool:
    """Sends a byte ten times a second, as long as it is taken; whether it was refused at last."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            connection.sendall(b"a")
        except ConnectionError:
            return True
        time.sleep(0.1)
    return False


def test_the_second_request_of_a_connection_is_timed_too(home, monkeypatch):
    monkeypatch.setattr(TimedConnection, "headers_seconds", 0.5)
    place = home()
    with socket.create_connection(place, timeout=PATIENCE) as connection:
        connection.sendall(b"GET /api/jobs/12345678 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        check_cut_off(connection)


def test_a_request_that_takes_long_is_not_cut_off(made, monkeypatch):
    monkeypatch.setattr(TimedConnection, "headers_seconds", 0.2)
    state, go = AppState(made.models, Limits(workers=1)), threading.Event()
    state.pool.submit(go.wait)  # the only worker has something else to do
    since = time.monotonic()
    threading.Timer(0.6, go.set).start()
    with serve_in_thread(state) as home:
        found = httpx.post(f"{home}api/predict", json={"text": TEXT}, timeout=PATIENCE)
    assert found.status_code == 200
    assert time.monotonic() - since > 0.6


def test_an_answer_that_nobody_reads_is_given_up(home, monkeypatch):
    monkeypatch.setattr(TimedConnection, "stalled_seconds", 0.5)
    lost: list[Exception | None] = []
    usual = TimedConnection.connection_lost
    monkeypatch.setattr(TimedConnection, "connection_lost", lambda self, exc: (lost.append(exc), usual(self, exc)))
    place = home()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(place)
        request = b"GET /api/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        connection.sendall(request * 600)
        begun = time.monotonic()
        while not lost and time.monotonic() - begun < PATIENCE:
            time.sleep(0.05)
    assert lost, "the connection is still held"
    assert lives(place)


def test_every_number_of_a_request_has_a_range(client):
    """As the API's own document says it, so that a reader of it sees the range too."""
    document = client.get("/api/openapi.json").json()
    asked = [p["schema"] for path in document["paths"].values() for o in path.values() for p in o.get("parameters", [])]
    parts = [part for name, part in document["components"]["schemas"].items() if re.search("Asked$", name)]
    numbers = [n for schema in (*asked, *parts) for n in numbers_in(schema)]
    assert len(numbers) > 8
    assert all({"minimum", "maximum"} <= set(n) for n in numbers)


def numbers_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield schema
        for below in schema.values():
            yield from numbers_in(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from numbers_in(below)
