"""Write down relevance and ledgers of tiny models under every method, bit for bit, or compare with what was written.

`python tests/record_numbers.py FILE` writes FILE; where it is there, every number is made again and what differs is
printed. For a change that must move no number. Another machine rounds in another way: record and compare on one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from tiny import BUILD, arguments, tiny, tokenizer
from torch import Tensor

import headwater as hw
from headwater import methods

TEXT = "a gripping, beautifully acted film"


def written(value: Any) -> Any:
    """A value as JSON that changes when one bit of it changes."""
    if isinstance(value, Tensor):
        return hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest()
    if isinstance(value, float):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return {f.name: written(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "provenance"}
    if isinstance(value, Mapping):  # lines of a ledger, too
        return {str(key): written(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, str)) else repr(value)


def explain(name: str, method: str) -> Any:
    model = tiny(name)
    try:
        if name == "vit":
            return [written(e) for e in hw.explain(model, arguments(name), method=method, seed=3)]
        return written(hw.explain(model, TEXT, tokenizer=tokenizer(), method=method, seed=3))
    except Exception as error:  # a refusal is recorded, too
        return f"{type(error).__name__}: {error}"


def record() -> dict[str, Any]:
    torch.set_num_threads(1)
    found = {}
    for name in BUILD:
        for method in methods.available():
            found[f"{name} {method}"] = explain(name, method)
        print(name, file=sys.stderr)  # noqa: T201
    return found


def main(path: Path) -> int:
    now = json.loads(json.dumps(record()))
    if not path.exists():
        path.write_text(json.dumps(now, indent=1), encoding="utf-8")
        return 0
    before = json.loads(path.read_text(encoding="utf-8"))
    differ = [key for key in before.keys() | now.keys() if before.get(key) != now.get(key)]
    print(f"{len(before)} recorded, {len(differ)} differ", *sorted(differ), sep="\n")  # noqa: T201
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
