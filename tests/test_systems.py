"""What macOS and Windows lack is taken away here: locks, `resource`, `/proc`, affinity, files, ports, Triton."""

from __future__ import annotations

import ast
import builtins
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.errors import LoadError, UsageError
from headwater.jobs import locking, machines
from headwater.models.checkpoints import is_path
from headwater.models.loading import load

ROOT = Path(__file__).parents[1]


class Windows:
    """`msvcrt.locking` as Windows has it: one byte of a file belongs to one open file at a time."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        assert place[1] >= 2**20, "what is written there must stay readable"
        if self.held.setdefault(place, descriptor) != descriptor:
            raise PermissionError(13, "held by another")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Windows:
    fake = Windows()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.delattr(os, "O_NOFOLLOW", raising=False)
    return fake


def test_a_run_is_locked_without_fcntl(windows, tmp_path):
    lock = tmp_path / "lock"
    with locking.hold_lock(lock, tmp_path):
        assert str(os.getpid()).encode() in lock.read_bytes()
        with pytest.raises(UsageError, match=f"is being written by process {os.getpid()}"):  # noqa: SIM117
            with locking.hold_lock(lock, tmp_path):
                pass
    assert len(windows.held) == 1


@pytest.mark.usefixtures("windows")
def test_a_link_is_no_lock_where_the_system_would_follow_it(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="is a symbolic link"):  # noqa: SIM117
        with locking.hold_lock(tmp_path / "lock", tmp_path):
            pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_cores_and_memory_are_found_or_left_open(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert machines.count_cores() == os.cpu_count()
    monkeypatch.setattr(Path, "read_text", lambda *args, **rest: (_ for _ in ()).throw(FileNotFoundError()))
    assert machines.free_memory() is None
    plain = builtins.__import__

    def without(name: str, *args: object, **rest: object) -> object:
        if name == "resource":
            raise ImportError(name)
        return plain(name, *args, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert machines.peak_memory() == {}


def test_memory_of_the_host_has_no_bound_where_the_system_does_not_say(monkeypatch, tmp_path):
    from headwater.memory import backends

    monkeypatch.setattr(backends, "MEMORY", tmp_path / "nowhere")
    assert backends.free_on_host() >= 1 << 60


def test_no_peak_is_measured_without_proc(monkeypatch, tmp_path):
    from headwater.evaluation import peak_memory

    monkeypatch.setattr(peak_memory, "REFERENCES", tmp_path / "nowhere")
    assert peak_memory.Meter.start(on_card=False) is None


@pytest.mark.parametrize(
    "given", [r".\model", r"..\model", r"C:\models\own", "C:/models/own", r"\\server\own", "./own"]
)
def test_paths_of_windows_are_not_asked_of_the_hub(given, monkeypatch):
    assert is_path(given)
    monkeypatch.setattr("headwater.models.hub.is_reachable", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(LoadError, match="there is no directory"):
        load(given)


@pytest.mark.parametrize("name", ["bert-base-uncased", "owner/model", "a", ""])
def test_names_on_the_hub_are_no_paths(name):
    assert not is_path(name)


def test_a_port_in_use_is_not_shared(monkeypatch):
    """On Windows the usual option would let two servers have one port."""
    pytest.importorskip("uvicorn")
    from headwater.web import server

    asked = []
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", -5, raising=False)
    made = SimpleNamespace(
        setsockopt=lambda *args: asked.append(args), bind=lambda place: None, listen=lambda: None, close=lambda: None
    )
    monkeypatch.setattr(server.socket, "socket", lambda family: made)
    server.open_socket("127.0.0.1", 0)
    assert asked == [(socket.SOL_SOCKET, -5, 1)]


def test_every_process_is_started_anew():
    """Windows has no fork; elsewhere a fork has torch's threads and locks without their owners."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "experiments" / "src").rglob("*.py")]
    forking = [
        file.name for file in sources if "os.fork" in (text := file.read_text(encoding="utf-8")) or '"fork"' in text
    ]
    assert forking == []


def test_no_place_of_one_system_is_written_down():
    sources = (ROOT / "src").rglob("*.py")
    assert [file.name for file in sources if '"/tmp' in file.read_text(encoding="utf-8")] == []


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None  # an import of it fails, as where it is not installed
import importlib, pkgutil
import headwater as hw
model, tokenizer = hw.load("headwater/sentiment")
texts = ("a b c", "a b c d e", "a b c d", "a b c d")
ways = [hw.explain(model, text, tokenizer=tokenizer).provenance.way for text in texts]
assert ways[-1] == "plan", ways
needs = {"programs", "elementwise_programs", "fused", "elementwise_launch", "split_products"}
for module in pkgutil.walk_packages(hw.__path__, "headwater."):
    if module.name.startswith(("headwater.kernels.", "headwater.rules.", "headwater.engine.", "headwater.traces.")):
        if module.name.rpartition(".")[2] not in needs:
            importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_without_triton_a_sentence_is_explained_and_played():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def imported_at_once(file: Path) -> set[str]:
    """The last parts of the modules that are imported as the file is."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = [name.name for one in tree.body if isinstance(one, ast.Import) for name in one.names]
    of = [one.module or "" for one in tree.body if isinstance(one, ast.ImportFrom)]
    return {name.rpartition(".")[2] for name in plain + of} | {name.partition(".")[0] for name in plain + of}


def test_what_needs_triton_is_imported_where_it_is_used():
    """torch for macOS and Windows, and for processors alone, comes without Triton."""
    found = {file: imported_at_once(file) for file in (ROOT / "src").rglob("*.py")}
    kernels = {file.stem for file, names in found.items() if "triton" in names}
    grown = 0
    while grown != len(kernels):  # what imports one of them needs it, too
        grown = len(kernels)
        kernels |= {f.stem for f, names in found.items() if f.parent.name == "kernels" and names & kernels}
    assert kernels == {"programs", "elementwise_programs", "fused", "elementwise_launch", "split_products"}
    assert [str(f) for f, names in found.items() if names & kernels and f.stem not in kernels] == []
