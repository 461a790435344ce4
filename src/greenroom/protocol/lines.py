"""Messages as lines: cuts a stream of bytes at its line breaks, and never holds more than one line's limit.

The framer is fed whatever arrived, in pieces of any size, and gives the lines that are complete. A line over the limit is not kept:
its bytes are counted and dropped, and an `Overlong` takes its place among the lines, in order. So a peer that sends 200 MiB without a
line break costs no memory, hears how long it was, and can go on.
"""

from __future__ import annotations

from typing import NamedTuple

from .json import LIMITS

EDGE = 256
"""How much is kept of both ends of what was too long, for whoever wants to know which request it was."""

PATIENCE = 2
"""An over-long line is reported when it ends, and at so many times the limit when it still has not."""


class Overlong(NamedTuple):
    """What is known of a message that was too long to be kept."""

    length: int
    """How many bytes it had, or had so far."""
    head: bytes
    """How it began."""
    tail: bytes
    """How it ended; empty when its end has not been seen."""

    @classmethod
    def of(cls, data: bytes) -> Overlong:
        """What is to be kept of it."""
        return cls(len(data), data[:EDGE], data[-EDGE:])

    def longer(self, piece: bytes) -> Overlong:
        """The same, with more of it."""
        head = self.head if len(self.head) == EDGE else (self.head + piece[:EDGE])[:EDGE]
        return Overlong(self.length + len(piece), head, (self.tail + piece[-EDGE:])[-EDGE:])


class Lines:
    """The framer. A line ends with LF; a CR before that belongs to the break; empty lines are nothing."""

    def __init__(self, limit: int = LIMITS.size) -> None:
        """`limit` is how many bytes a line may have."""
        self.limit = limit
        self._kept = bytearray()  # of the line that has not ended
        self._dropped: Overlong | None = None  # the line that has not ended, when it is too long already
        self._reported = False  # that one

    @property
    def held(self) -> int:
        """How many bytes of a line that has not ended are kept."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        """Take in whatever arrived; the lines that are complete now."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | Overlong] = []
        if ended and (line := self._finish(ended[0])):
            lines.append(line)
        # Behind a line's end nothing is kept, and tens of thousands of empty lines are nothing.
        behind = (line for piece in filter(None, ended[1:]) if (line := piece.removesuffix(b"\r")))
        lines += [line if len(line) <= self.limit else Overlong.of(line) for line in behind]
        self._keep(rest)
        dropped = self._dropped
        if dropped is not None and not self._reported and dropped.length > PATIENCE * self.limit:
            self._reported = True
            lines.append(dropped._replace(tail=b""))
        return lines

    def end(self) -> bytes | Overlong | None:
        """The stream is over: the last line, if it had no break. The framer is as new afterwards."""
        return self._finish(b"") or None

    def _keep(self, piece: bytes) -> None:
        if self._dropped is not None:
            self._dropped = self._dropped.longer(piece)
            return
        self._kept += piece
        if len(self._kept) > self.limit + 1:  # the one more may be the CR
            self._dropped = Overlong.of(bytes(self._kept))
            self._kept = bytearray()  # a new one: a bytearray keeps the memory that it once had

    def _finish(self, piece: bytes) -> bytes | Overlong | None:
        """The line that `piece` ends; nothing when it was reported before it ended."""
        if self._kept or self._dropped is not None:
            self._keep(piece)
            line, dropped, reported = bytes(self._kept), self._dropped, self._reported
            self._kept, self._dropped, self._reported = bytearray(), None, False
            if dropped is not None:
                return None if reported else dropped
        else:
            line = piece
        line = line.removesuffix(b"\r")
        return line if len(line) <= self.limit else Overlong.of(line)
