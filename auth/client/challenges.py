"""What a server says with its 401 or 403: `WWW-Authenticate` read into challenges, leniently, bounded, and in linear time. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 8192
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SCHEME: Final = re.compile(rf"[\s,]*({_WORD})(?:[ \t]+|\Z|(?=,))")
_PARAM: Final = re.compile(rf'[\s,]*({_WORD})[ \t]*=[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s,"]*))')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Challenge:
    """One of them. Names of schemes and params are lower-cased; of a param that came twice, the first counts."""

    scheme: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_challenges(header: str) -> list[Challenge]:
    """All challenges of a header's value, as far as they can be read."""
    header = header[:LONGEST]
    found: list[Challenge] = []
    at = 0
    params: dict[str, str] = {}
    while at < len(header):
        param = _PARAM.match(header, at) if found else None
        if param is not None:
            value = param[3] if param[2] is None else _ESCAPED.sub(r"\1", param[2])
            params.setdefault(param[1].lower(), value)
            at = param.end()
            continue
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            break
        params = {}
        found.append(Challenge(scheme[1].lower(), params))
        at = scheme.end()
    return found


def bearer_challenge(header: str) -> Challenge | None:
    """The first that asks for a bearer token."""
    return next((each for each in parse_challenges(header) if each.scheme == "bearer"), None)
