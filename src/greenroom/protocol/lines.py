"""Messages as lines: cuts a stream of bytes at its line breaks, and never holds more than one line's limit.

The framer is fed whatever arrived, in pieces of any size, and gives the lines that are complete. A line over the limit is not kept:
its bytes are counted and dropped until its end, and an `Overlong` takes its place among the lines, in order. So a peer that
sends 200 MiB without a line break costs no memory, hears how long it was, and can go on.
"""

from __future__ import annotations

from typing import NamedTuple

from .json import LIMITS

HEAD = 256
"""How much of an over-long line is kept, for whoever wants to know which request it was."""


class Overlong(NamedTuple):
    """Where a line was that is over the limit."""

    length: int
    """How many bytes it had, without its line break."""
    head: bytes
    """How it began."""


class Lines:
    """The framer. A line ends with LF; a CR before that belongs to the break; empty lines are nothing."""

    def __init__(self, limit: int = LIMITS.size) -> None:
        """`limit` is how many bytes a line may have."""
        self.limit = limit
        self._kept = bytearray()  # of the line that has not ended, or the head of one that is being dropped
        self._dropped: int | None = None  # how long the line that is being dropped is so far

    @property
    def held(self) -> int:
        """How many bytes of a line that has not ended are kept."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        """Take in whatever arrived; the lines that are complete now."""
        *ended, rest = data.split(b"\n")
        lines = [self._finish(piece) for piece in ended]
        self._keep(rest)
        return [line for line in lines if line]

    def end(self) -> bytes | Overlong | None:
        """The stream is over: the last line, if it had no break. The framer is as new afterwards."""
        return self._finish(b"") or None

    def _keep(self, piece: bytes) -> None:
        if self._dropped is not None:
            self._dropped += len(piece)
            return
        self._kept += piece
        if len(self._kept) > self.limit + 1:  # the one more may be the CR
            self._dropped = len(self._kept)
            self._kept = self._kept[:HEAD]  # a new one: a bytearray keeps the memory that it once had

    def _finish(self, piece: bytes) -> bytes | Overlong:
        """The line that `piece` ends."""
        if self._kept or self._dropped is not None:
            self._keep(piece)
            piece, dropped = bytes(self._kept), self._dropped
            self._kept, self._dropped = bytearray(), None
            if dropped is not None:
                return Overlong(dropped, piece)
        line = piece.removesuffix(b"\r")
        return line if len(line) <= self.limit else Overlong(len(line), line[:HEAD])
