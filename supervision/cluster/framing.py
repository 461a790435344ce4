"""Frames: how items become the bytes of a link and come back. Pure, and the same for a loop's link and for a guest's plain socket.

A frame is its payload's length, its kind, its MAC and the payload. Items that were sent in one turn of the loop share a frame; a frame that
would be longer than `PIECE` is sent in pieces, so that whoever reads it can do something else in between.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import TYPE_CHECKING, Final

from .sealing import MAC_BYTES, LinkRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .sealing import Seal

WHOLE: Final = 0
PART: Final = 1
LAST: Final = 2
PIECE: Final = 256 * 1024
LARGEST: Final = 1 << 30
"""How many bytes one item may have, put together."""

_HEAD: Final = struct.Struct(">IB")
HEAD_BYTES: Final = _HEAD.size + MAC_BYTES


def batch(items: Sequence[bytes]) -> bytes:
    """Encoded items as one encoded list of them."""
    return b"".join((b"\xdd", len(items).to_bytes(4, "big"), *items))


def frames(payload: bytes, seal: Seal) -> Iterator[bytes]:
    """The frames that carry a payload, each made when it is asked for."""
    if len(payload) <= PIECE:
        yield _frame(WHOLE, payload, seal)
        return
    view = memoryview(payload)
    for start in range(0, len(payload), PIECE):
        piece = view[start : start + PIECE]
        yield _frame(LAST if start + PIECE >= len(payload) else PART, piece, seal)


def _frame(kind: int, payload: bytes | memoryview, seal: Seal) -> bytes:
    return b"".join((_HEAD.pack(len(payload), kind), seal.mac(kind, payload), payload))


class Unframer:
    """Bytes in, payloads out. Raises `LinkRefused` at the first byte that is not the other end's."""

    __slots__ = ("_buffer", "_largest", "_needed", "_parts", "_seal")

    def __init__(self, seal: Seal, largest: int = LARGEST) -> None:
        """Nothing has come yet."""
        self._seal = seal
        self._largest = largest
        self._buffer = bytearray()
        self._needed = HEAD_BYTES  # how much has to be in the buffer before it is worth a look
        self._parts = BytesIO()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that are complete with these bytes."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data, self._buffer = bytes(self._buffer), bytearray()
        view, start, total = memoryview(data), 0, len(data)
        self._needed = HEAD_BYTES
        try:
            while total - start >= HEAD_BYTES:
                length, kind = _HEAD.unpack_from(data, start)
                if length > PIECE or kind > LAST:
                    raise LinkRefused("a frame that no node of this version sends")
                end = start + HEAD_BYTES + length
                if total < end:
                    self._needed = end - start
                    break
                payload = view[start + HEAD_BYTES : end]
                if not self._seal.check(kind, view[start + _HEAD.size : start + HEAD_BYTES], payload):
                    raise LinkRefused("a frame with a forged seal")
                start = end
                if kind == WHOLE:
                    if length > self._largest:
                        raise LinkRefused(f"a message of more than {self._largest} bytes")
                    yield bytes(payload)
                elif (whole := self._put_together(kind, payload)) is not None:
                    yield whole
        finally:
            self._buffer += view[start:]

    def _put_together(self, kind: int, payload: memoryview) -> bytes | None:
        if self._parts.tell() + len(payload) > self._largest:
            raise LinkRefused(f"a message of more than {self._largest} bytes")
        self._parts.write(payload)
        if kind == PART:
            return None
        whole, self._parts = self._parts.getvalue(), BytesIO()  # as it lies there: nothing is copied at once
        return whole
