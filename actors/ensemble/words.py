"""What desks say to each other: an errand, and what comes of it. All of it travels, in one piece with whatever else the link has to carry.

Messages of the protocol go as the bytes that they would be on the wire: no node has to walk through somebody's arguments twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.json import Limits
from greenroom.protocol.messages import (
    Failure,
    Notification,
    Request,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse,
)

if TYPE_CHECKING:
    from greenroom.protocol.messages import Message
    from greenroom.supervision import Pid
    from greenroom.transports.seam import Peer

DESK: Final = "greenroom.desk"
"""What the desk of each node is registered as."""

REQUEST, NOTIFY, RESPOND, LISTEN, END, ONCE, CONFIRM = range(7)
_LIMITS: Final = Limits.of_size(1 << 30)  # it has been through somebody's limits already


class Errand(NamedTuple):
    """To the desk of the node where a session lives, on behalf of a peer that has come to another one."""

    kind: int
    home: Pid
    """The desk that it comes from: when that is gone, nobody wants what was borrowed."""
    session: str
    peer: Peer
    what: Any = None


class Lent(NamedTuple):
    """The answer is a feed: whoever has it there gives its events to whoever asks."""

    name: str
    lender: Pid


class Unknown(NamedTuple):
    """There is no such session of that peer."""


class Gone(NamedTuple):
    """There was, and it has ended in the middle of this."""


class Taken(NamedTuple):
    """It was taken note of; what it brings comes where the peer listens."""


def packed(message: Message) -> bytes:
    """A message, to be sent on."""
    match message:
        case Request(id=id, method=method, params=params):
            return encode_request(id, method, params)
        case Notification(method=method, params=params):
            return encode_notification(method, params)
        case Response(id=id, result=result):
            return encode_result(id, result)
        case Failure(id=id, error=error):
            return encode_error(id, error)


def unpacked(data: bytes) -> Any:
    """The message again."""
    return parse(data, _LIMITS)
