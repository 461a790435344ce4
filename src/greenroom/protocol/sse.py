"""Server-sent events: written as frames, and read from a stream of bytes that may be cut anywhere.

The reader holds no more than one event's limit. An event over it is dropped to its end, and an `OversizedMessage` takes its place. It reads
what the standard allows, which is more than any server writes: three kinds of line break, a byte order mark, comments, data in many lines.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import LocalProtocolError
from .jsonrpc import LIMITS, OversizedMessage

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: it says nothing, and fails to arrive when the peer is gone."""


def encode_event(id: str, data: bytes | None, event: str | None = None, retry: int | None = None) -> bytes:
    """One event as a frame. An empty id is left out, and so is `data` when it is None.

    Empty data is data: such an event only sets a mark to come back to. Raises `LocalProtocolError` for an id or a name that would
    break the frame.
    """
    if data and event is None and retry is None and id.isprintable() and b"\n" not in data and b"\r" not in data:
        return b"id: %b\ndata: %b\n\n" % (id.encode(), data) if id else b"data: %b\n\n" % data
    frame = b"" if event is None else b"event: %b\n" % _one_line("event name", event)
    if id:
        frame += b"id: %b\n" % _one_line("event id", id)
    if retry is not None:
        frame += b"retry: %d\n" % retry
    if data is None:
        return frame + b"\n"
    if b"\n" in data or b"\r" in data:
        data = _BREAK.sub(b"\ndata: ", data)
    return b"%bdata: %b\n\n" % (frame, data)


def encode_comment(text: str) -> bytes:
    """A frame that no reader sees."""
    return b"".join(b": " + line + b"\n" for line in _BREAK.split(text.encode(errors="replace"))) + b"\n"


def _one_line(what: str, text: str) -> bytes:
    if not text.isprintable() and ("\n" in text or "\r" in text or "\0" in text):
        raise LocalProtocolError(f"an {what} has no line break and no NUL in it, unlike {text!r}")
    return text.encode(errors="replace")


_BREAK = re.compile(rb"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"
_NAME, _ID, _RETRY, _DATA = b"event", b"id", b"retry", b"data"
_MOST_DIGITS = 9  # of a retry: eleven days in milliseconds


class SseEvent(NamedTuple):
    """What a reader is told."""

    data: bytes
    id: str = ""
    """The last id that the stream has named, which is not always this event's own."""
    event: str = "message"


class SseParser:
    """The reader. It forgets an event that the stream's end cuts off, as the standard wants."""

    def __init__(self, limit: int = LIMITS.size) -> None:
        """`limit` is how many bytes of data one event may have, and one line."""
        self.limit = limit
        self.last_event_id = ""
        """Where to go on when the stream is lost."""
        self.retry: int | None = None
        """After how many milliseconds, if the other side has said so."""
        self._line = bytearray()  # that has not ended
        self._data: bytearray | None = None  # of the event that has not ended
        self._id = ""
        self._event = ""
        self._dropped: OversizedMessage | None = None  # what is known of the event that is being dropped
        self._empty = True  # the line so far
        self._after_cr = False
        self._begun = False

    @property
    def held(self) -> int:
        """How many bytes of an event that has not ended are kept."""
        return len(self._line) + len(self._data or b"")

    def feed(self, data: bytes) -> list[SseEvent | OversizedMessage]:
        """Take in whatever arrived; the events that are complete now."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        *ended, rest = _BREAK.split(data) if b"\r" in data else data.split(b"\n")
        found: list[SseEvent | OversizedMessage] = []
        for piece in ended:
            self._keep(piece)
            self._end_line(found)
        self._keep(rest)
        return found

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._empty = False
        if self._dropped is not None:
            self._dropped = self._dropped.longer(piece)
            return
        self._line += piece
        if self.held > self.limit + len(b"data: "):
            begun = bytes(self._data or b"") + bytes(self._line.removeprefix(b"data:").lstrip(b" "))
            self._dropped = OversizedMessage.of(begun)
            self._line, self._data = bytearray(), None

    def _end_line(self, found: list[SseEvent | OversizedMessage]) -> None:
        line, empty = bytes(self._line), self._empty
        self._line, self._empty = bytearray(), True
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_MARK)
        if empty:
            self._end_event(found)
        elif self._dropped is None:
            self._take(*line.split(b":", 1))

    def _take(self, name: bytes, value: bytes = b"") -> None:
        """One field. What is before a colon that comes first is nothing: the line is a comment."""
        value = value.removeprefix(b" ")
        if name == _DATA:
            if self._data is None:
                self._data = bytearray(value)
            else:
                self._data += b"\n" + value
            if len(self._data) > self.limit:
                self._dropped = OversizedMessage.of(bytes(self._data))
                self._data = None
        elif name == _ID:
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == _NAME:
            self._event = value.decode(errors="replace")
        elif name == _RETRY and value.isdigit() and len(value) <= _MOST_DIGITS:
            self.retry = int(value)

    def _end_event(self, found: list[SseEvent | OversizedMessage]) -> None:
        self.last_event_id = self._id
        if self._dropped is not None:
            found.append(self._dropped)
        elif self._data is not None:
            found.append(SseEvent(bytes(self._data), self._id, self._event or "message"))
        self._data, self._dropped, self._event = None, None, ""


# --- Messages as lines: cuts a stream of bytes at its line breaks, and never holds more than one line's limit.
# The framer is fed whatever arrived, in pieces of any size, and gives the lines that are complete. A line over the limit is not kept:
# its bytes are counted and dropped, and an `OversizedMessage` takes its place among the lines, in order. So a peer that sends 200 MiB without a
# line break costs no memory, hears how long it was, and can go on.

UNENDED_LINE_FACTOR = 2
"""An over-long line is reported when it ends, and at so many times the limit when it still has not."""


class LineFramer:
    """The framer. A line ends with LF; a CR before that belongs to the break; empty lines are nothing."""

    def __init__(self, limit: int = LIMITS.size) -> None:
        """`limit` is how many bytes a line may have."""
        self.limit = limit
        self._kept = bytearray()  # of the line that has not ended
        self._dropped: OversizedMessage | None = None  # the line that has not ended, when it is too long already
        self._reported = False  # that one

    @property
    def held(self) -> int:
        """How many bytes of a line that has not ended are kept."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[bytes | OversizedMessage]:
        """Take in whatever arrived; the lines that are complete now."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | OversizedMessage] = []
        if ended and (line := self._finish(ended[0])):
            lines.append(line)
        # Behind a line's end nothing is kept, and tens of thousands of empty lines are nothing.
        behind = (line for piece in filter(None, ended[1:]) if (line := piece.removesuffix(b"\r")))
        lines += [line if len(line) <= self.limit else OversizedMessage.of(line) for line in behind]
        self._keep(rest)
        dropped = self._dropped
        if dropped is not None and not self._reported and dropped.length > UNENDED_LINE_FACTOR * self.limit:
            self._reported = True
            lines.append(dropped._replace(tail=b""))
        return lines

    def end(self) -> bytes | OversizedMessage | None:
        """The stream is over: the last line, if it had no break. The framer is as new afterwards."""
        return self._finish(b"") or None

    def _keep(self, piece: bytes) -> None:
        if self._dropped is not None:
            self._dropped = self._dropped.longer(piece)
            return
        self._kept += piece
        if len(self._kept) > self.limit + 1:  # the one more may be the CR
            self._dropped = OversizedMessage.of(bytes(self._kept))
            self._kept = bytearray()  # a new one: a bytearray keeps the memory that it once had

    def _finish(self, piece: bytes) -> bytes | OversizedMessage | None:
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
        return line if len(line) <= self.limit else OversizedMessage.of(line)
