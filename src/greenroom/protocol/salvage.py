"""Whose message it was that could not be taken: its id, read from what is left of it.

A message may be too long to be kept, or well-formed and refused all the same. Whoever sent it waits for an answer, and an error without
an id answers nobody. The first and the last few bytes are enough, since all writers put the id at one end or the other; nothing is
guessed: where the id cannot be told without doubt, there is none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .errors import ErrorCode, RemoteProtocolError, Unacceptable

if TYPE_CHECKING:
    from .lines import Overlong

_STRING = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
_SPACE = rb"[ \t\r\n]*"
_ID = rb"(?P<id>-?(?:0|[1-9][0-9]{0,17})|" + _STRING + rb")"
_TOKEN = re.compile(
    rb"(?P<open>[{\[])|(?P<close>[}\]])|(?P<key>" + _STRING + rb")" + _SPACE + rb":"
    rb"|" + _STRING + rb"|[^{}\[\]\"]+",
    re.DOTALL,
)
_LAST = re.compile(
    rb"[{,]" + _SPACE + rb'"id"' + _SPACE + rb":" + _SPACE + _ID + _SPACE + rb"}" + _SPACE + rb"\Z", re.DOTALL
)
_SCALAR = re.compile(_SPACE + _ID + _SPACE + rb"(?=[,}])", re.DOTALL)


def too_long(what: Overlong, limit: int) -> RemoteProtocolError:
    """The error to answer an over-long message with, under its own id where that can be told."""
    error = RemoteProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"Message too large: {what.length} bytes, the limit is {limit}",
        status=413,
    )
    return address(error, what)


def address(error: RemoteProtocolError, what: Overlong) -> RemoteProtocolError:
    """The error, with the id that it is about."""
    if isinstance(error, Unacceptable) and error.anonymous:
        return error
    found = salvage(what.head, what.tail)
    if found.answers:
        error.answers = found.id
    else:
        error.id = found.id
    return error


class Salvaged(NamedTuple):
    """What could be told."""

    id: str | int | None = None
    answers: bool = False
    """It is an answer, so the id is one of ours."""


def salvage(head: bytes, tail: bytes) -> Salvaged:
    """Whose message begins with `head` and ends with `tail`. They may overlap; an empty tail says nothing."""
    keys = dict[bytes, bytes | None]()
    twice = _first_keys(head, keys)
    ids = {found for found in (keys.get(b'"id"'), _last_id(tail)) if found is not None}
    if twice or len(ids) != 1:
        return Salvaged()
    request, answer = b'"method"' in keys, b'"result"' in keys or b'"error"' in keys
    if request == answer:  # both, or neither is in sight: it may be either
        return Salvaged()
    try:
        return Salvaged(msgspec.json.decode(ids.pop()), answer)
    except (ValueError, msgspec.MsgspecError):
        return Salvaged()


def _first_keys(head: bytes, keys: dict[bytes, bytes | None]) -> bool:
    """Read the keys of the outermost object as far as the head goes, and the id's value; whether the id stands there twice."""
    depth = place = 0
    twice = False
    while found := _TOKEN.match(head, place):
        place = found.end()
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
        elif (key := found["key"]) and depth == 1:
            value = _SCALAR.match(head, place)
            twice = twice or (key == b'"id"' and key in keys)
            keys[key] = value["id"] if value else None
    return twice


def _last_id(tail: bytes) -> bytes | None:
    """The id, if it is the last member: what is followed by the last brace of all belongs to the outermost object."""
    found = _LAST.search(tail)
    return found["id"] if found else None
