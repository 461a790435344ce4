"""The messages between desks: an errand, and its outcome. All of it travels, in one piece with whatever else the link has to carry.

Messages of the protocol go as the bytes that they would be on the wire: no node has to walk through a caller's arguments twice.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b
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

_LIMITS: Final = Limits.of_size(1 << 30)  # the node that received it has checked it against its limits already


class Errand(NamedTuple):
    """To the desk of the node where a session lives, on behalf of a peer that has come to another one."""

    home: Pid
    """The desk that it comes from: when that is gone, a borrowed feed has no reader."""
    session: str
    peer: Peer
    method: str
    """Of the session's `Session`; or "once" of the company's `Door`, or "confirm", which asks only whether there is such a session."""
    args: tuple[Any, ...] = ()
    """Its arguments; a message of the protocol is packed."""


class Lent(NamedTuple):
    """The answer is a feed: the `lender` process on the session's node gives its events to the process that asks."""

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


# --- Ids that tell on which node the session or task that they name lives, to nodes that have the key and to no others.
# A mark of four bytes is appended to the random part. It is what a keyed hash makes of that part, and the node's number is folded into its last
# byte: so no table is shared, an invented id is refused without asking any other node, and clients do not learn how many nodes there are.

MOST: Final = 64
"""How many nodes can be told apart."""
_CHANNEL: Final = 0x80
_SIZE: Final = 4


class Marks:
    """Those of one node. All nodes of an ensemble have the same key."""

    __slots__ = ("_key", "place")

    def __init__(self, key: bytes, place: int) -> None:
        """`place` is this node's number, from 0."""
        if not 0 <= place < MOST:
            raise ValueError(f"a place is 0 to {MOST - 1}, not {place!r}")
        self._key = key
        self.place = place

    def __repr__(self) -> str:
        return f"<Marks of {self.place}>"

    def new(self, kind: str, *, channel: bool = False) -> str:
        """An id that cannot be guessed. `channel` says that the session it names has one channel, and no streams."""
        token = secrets.token_hex(16)
        return f"{kind}_{token}{self._mark(token, self.place | (_CHANNEL if channel else 0))}"

    def read(self, id: str) -> tuple[int, bool] | None:
        """On which node it lives, and whether it has a channel; None for what no node of ours has made."""
        _, _, rest = id.partition("_")
        token, mark = rest[: -2 * _SIZE], rest[-2 * _SIZE :]
        try:
            said = bytes.fromhex(mark)
        except ValueError:
            return None
        if len(said) != _SIZE or len(token) != 32 or not token.isascii():  # noqa: PLR2004 - as `new` makes it
            return None
        made = self._hash(token)
        if not hmac.compare_digest(said[:-1], made[:-1]):
            return None
        what = said[-1] ^ made[-1]
        place = what & ~_CHANNEL
        return (place, bool(what & _CHANNEL)) if place < MOST else None

    def _mark(self, token: str, what: int) -> str:
        made = self._hash(token)
        return (made[:-1] + bytes((made[-1] ^ what,))).hex()

    def _hash(self, token: str) -> bytes:
        return blake2b(token.encode(), digest_size=_SIZE, key=self._key).digest()
