"""The head of an HTTP/1.1 answer, and how its body is told from what follows. Pure.

No header gets out that could be read as two: names are tokens, values have no line breaks, and how long a body is is said here alone.
"""

from __future__ import annotations

import re
import time
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LONGEST_REMEMBERED: Final = 256
_CHANGING: Final = frozenset({b"content-length", b"mcp-session-id"})
"""Headers that say something else each time: what is remembered of them would keep the memory around it from being given back."""
_BODILESS: Final = frozenset({204, 304})
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLOSE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"


class Framing(Enum):
    """What ends a body."""

    LENGTH = auto()
    """Its length, which the head says."""
    CHUNKS = auto()
    """An empty chunk."""
    CLOSE = auto()
    """The connection's end: HTTP/1.0 knows no better."""
    NONE = auto()
    """There is none, whatever the head says of it."""


class Shape(NamedTuple):
    """A head as bytes, and what goes after it."""

    head: bytes
    framing: Framing
    length: int
    closing: bool


def head(
    status: int, headers: Iterable[tuple[bytes, bytes]], *, method: str, version: str, persistent: bool, now: float
) -> Shape:
    """Raises `ValueError` for headers that nobody should send."""
    lines = [_status(status), *_date(int(now))]
    length: int | None = None
    for name, value in headers:
        line = _line(name, value) if name in _CHANGING or len(value) > _LONGEST_REMEMBERED else _known(name, value)
        if line.startswith(b"content-length:"):
            if length is not None or not value.isdigit():
                raise ValueError(f"a content-length is one number, not {value!r}")
            length = int(value)
        elif line.startswith(b"transfer-encoding:"):
            continue
        elif line.startswith(b"connection:"):
            if b"close" in value.lower():
                persistent = False
            continue
        lines.append(line)
    if method == "HEAD" or status in _BODILESS:
        framing = Framing.NONE
    elif length is not None:
        framing = Framing.LENGTH
    elif version == "1.1":
        framing = Framing.CHUNKS
        lines.append(b"transfer-encoding: chunked\r\n")
    else:
        framing = Framing.CLOSE
        persistent = False
    lines.append(b"\r\n" if persistent else CLOSE + b"\r\n")
    return Shape(b"".join(lines), framing, length or 0, not persistent)


def refusal(status: int, now: float) -> bytes:
    """The whole answer to what is no request; it is the last on its connection."""
    return b"".join((_status(status), *_date(int(now)), b"content-length: 0\r\n", CLOSE, b"\r\n"))


@lru_cache(maxsize=128)
def _status(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    if not 200 <= status <= 999:  # noqa: PLR2004 - the others come before the answer
        raise ValueError(f"no answer has the status {status}")
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))


@lru_cache(maxsize=2)
def _date(second: int) -> tuple[bytes]:
    year, month, day, hour, minute, at, weekday, *_ = time.gmtime(second)
    text = f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{at:02} GMT"
    return (b"date: %b\r\n" % text.encode("ascii"),)


def wall() -> float:
    """What the clock on the wall says: dates are about that one."""
    return time.time()


def _line(name: bytes, value: bytes) -> bytes:
    name, value = bytes(name).strip().lower(), bytes(value).strip()
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise ValueError(f"no header can be made of {name!r}: {value!r}")
    return b"%b: %b\r\n" % (name, value)


_known = lru_cache(maxsize=256)(_line)
