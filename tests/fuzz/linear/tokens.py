"""Credentials: the Authorization header, tokens that are signed, scopes and challenges."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tests.fuzz.linearity import Reader

from greenroom.auth.client import login_process as challenges
from greenroom.auth.credential_headers import extract_api_key, extract_basic_auth, extract_bearer_token
from greenroom.auth.errors import Denied
from greenroom.auth.jose import unverified_header

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = ("a", "a.", "=", " ", " a", ",", "\\", "a=b,", 'a="\\', "\t", "é")
FRONTS = ("", "Bearer ", 'Bearer realm="', "Bearer a.b.")
SIZES = (256, 1024, 4096, 16384)
"""No credential is longer than the last size."""


def _made(front: str, unit: str, end: str) -> Callable[[int], str]:
    return lambda size: front + unit * ((size - len(front) - len(end)) // len(unit)) + end


def _read(text: str) -> None:
    headers = {"authorization": text, "x-api-key": text}
    challenges.parse_challenges(text)
    for read in (extract_bearer_token, extract_basic_auth, extract_api_key):
        with suppress(Denied):
            read(headers)
    with suppress(Denied):
        unverified_header(text.partition(" ")[2] or text)


READERS = (
    Reader(
        "tokens",
        _read,
        {
            f"{front!r} {unit!r} {end!r}": _made(front, unit, end)
            for front in FRONTS
            for unit in UNITS
            for end in ("", "\x01")
        },
        sizes=SIZES,
    ),
)
