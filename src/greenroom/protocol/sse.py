"""Framing of byte streams: server-sent events, and messages as lines.

The event parser never holds more than one event's limit: an event over it is dropped to its end, and an `OversizedMessage` takes its place. It
accepts what the standard allows, which is more than any server writes: three kinds of line breaks, a byte order mark, comments, multi-line data.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import LocalProtocolError
from .jsonrpc import LIMITS, OversizedMessage

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment frame: writing it fails once the peer is gone."""


def encode_event(id: str, data: bytes | None, event: str | None = None, retry: int | None = None) -> bytes:
    """Encode one event as a frame. An empty id is left out, and so is `data` when it is None.

    An event with empty data only sets the position for a resumption. Raises `LocalProtocolError` for an id or a name that would break the frame.
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
    """Encode a comment, which parsers skip."""
    return b"".join(b": " + line + b"\n" for line in _BREAK.split(text.encode(errors="replace"))) + b"\n"


def _one_line(what: str, text: str) -> bytes:
    if not text.isprintable() and ("\n" in text or "\r" in text or "\0" in text):
        raise LocalProtocolError(f"an {what} has no line break and no NUL in it, unlike {text!r}")
    return text.encode(errors="replace")


_BREAK = re.compile(rb"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"
_NAME, _ID, _RETRY, _DATA = b"event", b"id", b"retry", b"data"
_MOST_DIGITS = 9  # of a retry in milliseconds: eleven days


class SseEvent(NamedTuple):
    """A parsed event."""

    data: bytes
    id: str = ""
    """The last event id in the stream so far, which is not always this event's own."""
    event: str = "message"


class SseParser:
    """Parses events from pieces of a stream. An event that is cut off by the stream's end is discarded, as the standard says."""

    def __init__(self, limit: int = LIMITS.size) -> None:
        """`limit` is the largest data of one event in bytes, and the longest line."""
        self.limit = limit
        self.last_event_id = ""
        """The event id to resume from when the stream is lost."""
        self.retry: int | None = None
        """The reconnection delay in milliseconds, if the server sent one."""
        self._line = bytearray()  # that has not ended
        self._data: bytearray | None = None  # data of the event that has not ended
        self._id = ""
        self._event = ""
        self._dropped: OversizedMessage | None = None  # set while an oversized event is being dropped
        self._empty = True  # the line so far
        self._after_cr = False
        self._begun = False

    @property
    def held(self) -> int:
        """The number of buffered bytes of the unfinished event."""
        return len(self._line) + len(self._data or b"")

    def feed(self, data: bytes) -> list[SseEvent | OversizedMessage]:
        """Add received bytes. Returns the events that are complete now."""
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
        """Process one field. A line that begins with a colon is a comment."""
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


# --- Messages as lines: splits a stream at its line breaks, and never holds more than one line's limit.
# The framer is fed pieces of any size and returns complete lines. The bytes of a line over the limit are counted and dropped, and an
# `OversizedMessage` takes its place, in order. So a peer that sends 200 MiB without a line break costs no memory, gets an error with the size, and
# can continue.

UNENDED_LINE_FACTOR = 2
"""An oversized line is reported when it ends, or after this many times the limit if it still has not."""


class LineFramer:
    """Splits a byte stream into lines. A line ends with LF or CRLF; empty lines are skipped."""

    def __init__(self, limit: int = LIMITS.size) -> None:
        """`limit` is the longest line in bytes."""
        self.limit = limit
        self._kept = bytearray()  # bytes of the unfinished line
        self._dropped: OversizedMessage | None = None  # the unfinished line, if it is too long already
        self._reported = False  # whether it was reported

    @property
    def held(self) -> int:
        """The number of buffered bytes of the unfinished line."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[bytes | OversizedMessage]:
        """Add received bytes. Returns the lines that are complete now."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | OversizedMessage] = []
        if ended and (line := self._finish(ended[0])):
            lines.append(line)
        # Fast path: after a line's end nothing is buffered, and tens of thousands of empty lines are skipped at once.
        behind = (line for piece in filter(None, ended[1:]) if (line := piece.removesuffix(b"\r")))
        lines += [line if len(line) <= self.limit else OversizedMessage.of(line) for line in behind]
        self._keep(rest)
        dropped = self._dropped
        if dropped is not None and not self._reported and dropped.length > UNENDED_LINE_FACTOR * self.limit:
            self._reported = True
            lines.append(dropped._replace(tail=b""))
        return lines

    def end(self) -> bytes | OversizedMessage | None:
        """End the stream. Returns the last line, if it had no line break; the framer can then be used for another stream."""
        return self._finish(b"") or None

    def _keep(self, piece: bytes) -> None:
        if self._dropped is not None:
            self._dropped = self._dropped.longer(piece)
            return
        self._kept += piece
        if len(self._kept) > self.limit + 1:  # one byte more, which may be the CR
            self._dropped = OversizedMessage.of(bytes(self._kept))
            self._kept = bytearray()  # a new bytearray: clearing one would keep its memory

    def _finish(self, piece: bytes) -> bytes | OversizedMessage | None:
        """The line that `piece` ends, unless it was reported before its end."""
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
