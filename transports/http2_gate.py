"""What an HTTP/2 peer may ask for that costs it nothing: counted frame by frame, before anything is done about it.

Pings, settings, resets, empty frames: each is legal, and a flood of them is an attack. They are paid from an allowance that grows
with time and with what is really exchanged. Header blocks are bounded while they arrive, not when they are whole.
"""

from __future__ import annotations

import math
from typing import Final

HEAD: Final = 9
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4

BURST: Final = 1000.0
"""What may be asked for at once, and is saved up at the most."""
A_SECOND: Final = 50.0
"""What a second of waiting earns."""
AN_ANSWER: Final = 4.0
"""What a part of an answer that was sent earns: its reader has a word to say on it."""
_COSTS: Final = {SETTINGS: 10.0, PING: 2.0, WINDOW_UPDATE: 1.0, CONTINUATION: 5.0, PRIORITY: 1.0}
_RESET: Final = 5.0
_NOTHING: Final = 5.0
"""For a frame that has nothing in it, and asks for nothing."""


BLOCK_STEPS: Final = 8
"""How many steps a frame with headers counts as: a request is begun with it. All others are one, whatever is in them."""

MAX_FRAME: Final = 16 * 1024
"""How much a frame may hold: asked before it is here, since the library looks when it has all of it, up to 16 MB."""


class Flood(Exception):
    """This peer costs more than it brings. `code` is what HTTP/2 calls it."""

    def __init__(self, what: str, code: int = 0xB) -> None:
        """`what` is for the log; the peer hears that it should calm down, or the code."""
        super().__init__(what)
        self.code = code


class Gate:
    """One connection's. What passes is for the protocol; a peer's goodbye does not, and is noted."""

    def __init__(self, max_header: int, now: float) -> None:
        """`max_header` is how many bytes one header block may have."""
        self.said_goodbye = False
        self.taken = 0
        """How many of the bytes were looked at that were fed last."""
        self._max_header = max_header
        self._allowance = BURST
        self._since = now
        self._preface = len(PREFACE)
        self._head = b""
        self._left: int = 0
        self._passes = True
        self._block = 0

    def feed(self, data: bytes, now: float, steps: float = math.inf) -> bytes:
        """Look at what came, and hand on what is to be dealt with, up to where it has taken so many steps. Raises `Flood`."""
        self._allowance = min(BURST, self._allowance + (now - self._since) * A_SECOND)
        self._since = now
        passed: list[bytes] = []
        at, end = 0, len(data)
        if self._preface:
            at = min(self._preface, end)
            self._preface -= at
            passed.append(data[:at])
        while at < end and (steps > 0 or self._left):
            if self._left:
                upto = min(end, at + self._left)
                self._left -= upto - at
                if self._passes:
                    passed.append(data[at:upto])
                at = upto
                continue
            upto = min(end, at + HEAD - len(self._head))
            self._head += data[at:upto]
            at = upto
            if len(self._head) == HEAD:
                head, self._head = self._head, b""
                self._look(head)
                steps -= BLOCK_STEPS if head[3] in (HEADERS, CONTINUATION) else 1
                if self._passes:
                    passed.append(head)
        self.taken = at
        return b"".join(passed)

    def earn(self, parts: float = 1.0) -> None:
        """So many parts of an answer were sent."""
        self._allowance = min(BURST, self._allowance + parts * AN_ANSWER)

    def spend(self, cost: float, what: str) -> None:
        """Something that costs. Raises `Flood`."""
        self._allowance -= cost
        if self._allowance < 0:
            raise Flood(what)

    def reset(self) -> None:
        """A request was taken back before it was answered. Raises `Flood`."""
        self.spend(_RESET, "too many requests that are taken back")

    def _look(self, head: bytes) -> None:
        self._left = length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        if length > MAX_FRAME:
            raise Flood("a frame that is too large", 0x6)
        # Their goodbye would end everything for the protocol's library, and priorities are nobody's business here.
        self._passes = kind not in (GOAWAY, PRIORITY)
        if kind in (HEADERS, CONTINUATION):
            self._block = length if kind == HEADERS else self._block + length
            if self._block > self._max_header:
                raise Flood("more headers than max_header")
        elif kind == GOAWAY:
            self.said_goodbye = True
        if kind == DATA and not length and not flags & END_STREAM:
            self.spend(_NOTHING, "too many frames with nothing in them")
        elif kind > CONTINUATION:
            self.spend(1.0, "too many frames that nobody knows")
        elif cost := _COSTS.get(kind):
            self.spend(cost, "too many frames that ask for nothing")
