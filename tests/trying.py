"""An API tried by schemathesis with what its own document allows, and with what it forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


def tried(app: Any, wanted: Callable[[str], bool], examples: Callable[[str], int], **path: str) -> list[int]:
    """The status of every answer. `path` gives parts of an address that chance would not find."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    statuses: list[int] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if not wanted(operation.path):
            continue

        @settings(
            max_examples=examples(operation.path),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def attempt(case: Any) -> None:
            for name, value in path.items():
                if name in (case.path_parameters or {}):
                    case.path_parameters[name] = value
            checks = CHECKS if not path else [c for c in CHECKS if c is not negative_data_rejection]
            statuses.append(case.call_and_validate(checks=checks).status_code)

        attempt()
    return statuses
