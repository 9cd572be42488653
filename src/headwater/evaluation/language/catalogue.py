"""The protocols for language models, by name."""

from __future__ import annotations

from ...errors import UnknownName
from .agreement import Agreement
from .hotpot import Hotpot
from .needles import Needles
from .protocols import LanguageProtocol
from .single_token import SingleToken

single_token = SingleToken()
agreement = Agreement()
needles = Needles()
hotpot = Hotpot()

LANGUAGE_PROTOCOLS: dict[str, LanguageProtocol] = {
    rule.name: rule for rule in (single_token, agreement, needles, hotpot)
}
DEFAULT_PROTOCOLS = (single_token.name,)


def resolve_language_protocol(protocol: str | LanguageProtocol) -> LanguageProtocol:
    """The protocol called so. One with other choices is made by `dataclasses.replace`."""
    if isinstance(protocol, LanguageProtocol):
        return protocol
    if protocol not in LANGUAGE_PROTOCOLS:
        raise UnknownName("protocol for language models", protocol, LANGUAGE_PROTOCOLS)
    return LANGUAGE_PROTOCOLS[protocol]
