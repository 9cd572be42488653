"""A bill of materials of every wheel in a directory, in CycloneDX's JSON: python packaging/sbom.py DIRECTORY

What a wheel asks for, with its bounds and whether an extra asks for it; and what comes in it that others made, or that
was trained on what others made, by hash. Only the standard library is used, and the same wheel gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

# What is in the library's wheel and has terms of its own: where it lies, its licence, where its notices are.
INSIDE = {
    "headwater/bias/lists/ordinary.txt": ("SCOWL word list", "LicenseRef-SCOWL", "ordinary-COPYRIGHT.txt"),
    "headwater/models/weights/sentiment/model.safetensors": ("sentiment model", "Apache-2.0", "sentiment/README.md"),
    "headwater/models/weights/mnist/model.safetensors": ("model of digits", "Apache-2.0", "mnist/README.md"),
    "headwater/models/weights/bace/model.safetensors": ("model of molecules", "Apache-2.0", "bace/README.md"),
}
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?\s*([^;]*)(?:;\s*(.*))?")


def describe_wheel(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        about = message_from_string(wheel.read(name).decode("utf-8"))
        inside = [describe_file(wheel, path) for path in INSIDE if path in wheel.namelist()]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    component = {
        "type": "library",
        "bom-ref": purl(about["Name"], about["Version"]),
        "name": about["Name"],
        "version": about["Version"],
        "purl": purl(about["Name"], about["Version"]),
        "licenses": [{"expression": about["License-Expression"]}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    asked = describe_requirements(about)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": component},
        "components": [*asked, *inside],
        "dependencies": [{"ref": component["bom-ref"], "dependsOn": sorted(one["bom-ref"] for one in asked)}],
    }


def describe_requirements(about: Message) -> list[dict[str, Any]]:
    """One component for each project that is asked for; what an extra asks for is optional."""
    found: dict[str, dict[str, Any]] = {}
    for line in about.get_all("Requires-Dist", []):
        parts = REQUIREMENT.match(line)
        if parts is None or parts[1] == about["Name"]:
            continue
        optional = "extra ==" in (parts[3] or "")
        known = found.get(parts[1])
        if known is None or known["scope"] == "optional":
            found[parts[1]] = {
                "type": "library",
                "bom-ref": purl(parts[1]),
                "name": parts[1],
                "purl": purl(parts[1]),
                "scope": "optional" if optional else "required",
                "properties": [{"name": "headwater:bounds", "value": parts[2].strip()}],
            }
    return sorted(found.values(), key=lambda one: str(one["name"]))


def describe_file(wheel: zipfile.ZipFile, path: str) -> dict[str, Any]:
    name, licence, notices = INSIDE[path]
    return {
        "type": "machine-learning-model" if path.endswith(".safetensors") else "data",
        "bom-ref": path,
        "name": name,
        "licenses": [{"expression": licence}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read(path)).hexdigest()}],
        "properties": [{"name": "headwater:path", "value": path}, {"name": "headwater:notices", "value": notices}],
    }


def purl(name: str, version: str = "") -> str:
    return f"pkg:pypi/{name.lower().replace('_', '-')}" + (f"@{version}" if version else "")


def main(folder: Path) -> None:
    for file in sorted(folder.glob("*.whl")):
        out = folder / f"{file.name.partition('-')[0]}.cdx.json"
        out.write_text(json.dumps(describe_wheel(file), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
