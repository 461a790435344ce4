"""Server-sent events: lines of one byte, events without data, ends that never come, whole and in small pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.linearity import Reader, repeated

from greenroom.protocol.sse import SseParser

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = {
    "empty lines": b"\n",
    "lines of one byte": b"x\n",
    "carriage returns": b"\r",
    "events without data": b"id: 1\n\n",
    "empty data": b"data\n\n",
    "comments": b":\n",
    "data in lines of one byte": b"data:x\n",
    "one line without an end": b"x",
    "data that never ends": b"data: x",
    "colons": b":",
    "spaces": b"data:  ",
    "marks": b"\xef\xbb\xbf\n",
    "retry": b"retry:9999999999999\n",
    "ids": b"id:x\n",
}
PIECES = {"whole": 1 << 20, "in single bytes": 1}


def _made(unit: bytes, length: int) -> Callable[[int], list[bytes]]:
    def made(size: int) -> list[bytes]:
        data = repeated(unit, size)
        return [data[at : at + length] for at in range(0, len(data), length)]

    return made


def _reading(limit: int) -> Callable[[list[bytes]], None]:
    def read(pieces: list[bytes]) -> None:
        parser = SseParser(limit)
        for piece in pieces:
            parser.feed(piece)

    return read


SHAPES = {f"{what}, {how}": _made(unit, length) for what, unit in UNITS.items() for how, length in PIECES.items()}

READERS = (Reader("events", _reading(1 << 20), SHAPES), Reader("long-events", _reading(16), SHAPES))
