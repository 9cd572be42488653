"""The protocols for language models, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import DataError, UnknownName, UsageError
from ..protocols import VARIANT
from .agreement import Agreement
from .hotpot import Hotpot
from .needles import Needles
from .protocols import LanguageProtocol
from .single_token import SingleToken

single_token: SingleToken = SingleToken()
agreement: Agreement = Agreement()
needles: Needles = Needles()
hotpot: Hotpot = Hotpot()

LANGUAGE_PROTOCOLS: dict[str, LanguageProtocol] = {
    rule.name: rule for rule in (single_token, agreement, needles, hotpot)
}
DEFAULT_PROTOCOLS = (single_token.name,)


def resolve_language_protocol(protocol: str | LanguageProtocol) -> LanguageProtocol:
    """The protocol called so: `needles`, or with other choices `needles(answer=whole,most_tokens=600)`."""
    if isinstance(protocol, LanguageProtocol):
        return protocol
    parts = VARIANT.fullmatch(protocol)
    if parts is None or parts["base"] not in LANGUAGE_PROTOCOLS:
        raise UnknownName("protocol for language models", protocol, LANGUAGE_PROTOCOLS)
    base = LANGUAGE_PROTOCOLS[parts["base"]]
    written = [part.partition("=") for part in (parts["choices"] or "").split(",") if part.strip()]
    choices = {name.strip(): read_choice(base, name.strip(), value.strip()) for name, _, value in written}
    return replace(base, **choices)


def protocol_of_rows(written: str) -> LanguageProtocol:
    """The protocol as rows name it: `single-token 2(most_tokens=100)`. Other versions are not comparable."""
    name, _, rest = written.partition(" ")
    version, bracket, choices = rest.partition("(")
    rule = resolve_language_protocol(name + bracket + choices)
    if str(rule.version) != version:
        raise DataError(f"these rows are of {written}; the protocol is {name} {rule.version} now: measure them again.")
    return rule


def read_choice(base: LanguageProtocol, name: str, value: str) -> Any:
    """A choice as it is written: a number where the usual one is a number, else a word."""
    if name not in base.choices:
        raise UnknownName(f"choice of {base.name}", name, base.choices)
    kind = type(base.choices[name])
    if kind not in (int, float, str):
        raise UsageError(f"{name} of {base.name} is set in Python, by dataclasses.replace.")
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{name} of {base.name} is a number, not {value!r}.") from None
