"""What home and a worker say to each other: lists that begin with one of these numbers, and small structs as bytes.

::

    home -> seat     PLAN n, plan          what handler n is; before the first call of it
                     RUN call, n, errand   begin with this call
                     CANCEL call, why      nobody wants it any more: raise its flag
                     STOP call             end it, as far as that can be done from inside
                     ANSWER call, q, ok, value
                     HEARD call, count     so many of its words have arrived
    seat -> home     SAID call, method, params
                     LOG call, level, data, logger
                     TOUCH call            its handler has reported something that is not sent
                     ASK call, q, method, params, timeout
                     UNASK call, q         whoever asked does not wait any more
                     EXPECT call, ids
                     UPDATED call, uri, extra
                     CHANGED call, kind
                     VISITED call, id      a user has done with the page that they were sent to
                     AWAY call, retry      close the call's stream for now
                     PART call, piece      of a long response, before the last
                     DONE call, *outcome   the last of a call; its body is empty when that came in parts

Calls are counted by home, and a seat has one at a time. All of it goes over one link, which keeps the order: nothing that a handler says
arrives behind its result.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from greenroom.protocol.json import to_float

PLAN: Final = 1
RUN: Final = 2
CANCEL: Final = 3
STOP: Final = 4
ANSWER: Final = 5
HEARD: Final = 6

SAID: Final = 11
LOG: Final = 12
ASK: Final = 13
UNASK: Final = 14
EXPECT: Final = 15
AWAY: Final = 16
UPDATED: Final = 18
CHANGED: Final = 19
PART: Final = 20
VISITED: Final = 21
TOUCH: Final = 22
DONE: Final = 17

TOUCHES: Final = 0.25
"""How many seconds lie between two `TOUCH` of a call at least; home adds them to its time of silence, so that none is missed."""
PIECE: Final = 255 * 1024
"""How long a part is: it fits into one frame of the link, with what stands around it."""


class Errand(msgspec.Struct, array_like=True, frozen=True):
    """What a worker has to know of one call."""

    request_id: str | int
    method: str
    params: dict[str, Any]
    task: str | None
    session_id: str
    version: str
    transport: str
    address: str
    client_info: dict[str, Any]
    client_capabilities: dict[str, Any]


class Outcome(NamedTuple):
    """How a call has ended in its worker: exactly one of the first three. It travels as a list, so that a large body is not wrapped twice."""

    body: bytes | None = None
    """The whole encoded response."""
    error: list[Any] | None = None
    """A JSON-RPC error: code, message, data."""
    why: str | None = None
    """There is neither, and this is why: a clause that follows "Tool execution failed:"."""
    crash: list[str] | None = None
    """What was raised, if it crashed besides: its type, what it says, and where."""
    worn: bool = False
    """Whether the worker had better be replaced."""


errand_to_bytes: Final = msgspec.json.Encoder().encode
errand_of: Final = msgspec.json.Decoder(Errand, float_hook=to_float).decode
