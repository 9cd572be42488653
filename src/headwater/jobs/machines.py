"""What this machine has: cores, memory and GPUs, and how many workers that is enough for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torch import nn

from ..errors import UsageError

A_WORKER = 768 * 2**20  # bytes that a process takes with torch and transformers loaded, before any model
GROUP = Path("/sys/fs/cgroup")
TIMES_THE_MODEL = 3  # its weights, what is unpacked from them, and what a batch leaves in memory


def device_kind(asked: str | None) -> str:
    """`cpu` or `cuda`: the GPUs if there are any, unless told otherwise."""
    import torch

    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if check_device_name(asked).startswith("cuda"):
        if not torch.cuda.is_available():
            raise UsageError(f"there is no GPU that torch can use here, so nothing can be computed on {asked}.")
    elif not computes_on(asked):
        raise UsageError(f"torch can compute nothing on {asked} here; --device cpu always works.")
    return asked


def check_device_name(asked: str) -> str:
    """The name again, if it is one: workers would find out each for itself."""
    import torch

    try:
        torch.device(asked)
    except RuntimeError as error:
        raise UsageError(f"no device called {asked!r}: cpu, or cuda for GPUs.") from error
    return asked


def computes_on(device: str) -> bool:
    import torch

    try:
        return bool(torch.ones(1, device=device).item() == 1)
    except Exception:  # each kind of device has its own way to say that it is not there
        return False


def workers_for(model: nn.Module, device: str, threads: int) -> int:
    """One for each GPU, or as many as there are cores and as memory allows."""
    if device.startswith("cuda"):
        import torch

        return max(1, torch.cuda.device_count()) if device == "cuda" else 1
    room = free_memory()
    each = A_WORKER + TIMES_THE_MODEL * sum(p.numel() * p.element_size() for p in model.parameters())
    return max(1, min(count_cores() // threads, count_cores() if room is None else int(room // each)))


def count_cores() -> int:
    """That this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes that can be taken without others having to give way; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    rooms = [room for room in (found.get("MemAvailable"), room_of_group()) if room is not None]
    return min(rooms) if rooms else None


def room_of_group() -> int | None:
    """What a container is still allowed to take; None where it has no limit."""
    try:
        most, now = (int((GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return None
    return max(0, most - now)


def peak_memory() -> dict[str, int]:
    """The most that this process, and the largest of its workers that have ended, ever held, in MiB."""
    try:
        import resource
    except ImportError:
        return {}
    unit = 2**20 if sys.platform == "darwin" else 2**10
    parent, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"parent_mib": parent // unit, "largest_worker_mib": workers // unit}
