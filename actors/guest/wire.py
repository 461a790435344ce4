"""What a guest and its node say to each other, as bytes: JSON, in the items of a link's frames.

Both ends bound what they take and what they send. Who has an item that is too large says so, instead of sending it.

    to the node      ["ask", id, kind, fields, seconds], ["drop", id], ["ping"]
    to the guest     ["answer", id, kind, fields], ["updated", server, uri, gap], ["ended", server, uri, why], ["pong"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from greenroom.errors import GreenroomError
from greenroom.protocol.json import Limits, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KIND: Final = "guest"
"""What a guest's greeting says that it is."""

TO_NODE: Final = 4 * 1024 * 1024
TO_GUEST: Final = 16 * 1024 * 1024
_AROUND: Final = 64 * 1024
"""What a frame may have around its items."""
MOST_ITEMS: Final = 4096
"""How many items one payload may have: each is dealt with before anything else has its turn."""

_wrap: Final = msgspec.msgpack.Encoder().encode
_unwrap: Final = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=MOST_ITEMS)]).decode


class BadItem(GreenroomError):
    """The other end says what nobody of this version does."""


class TooLarge(GreenroomError):
    """It is more than the other end takes."""


def packed(item: list[Any], limit: int) -> bytes:
    """One item, to be posted. Raises `TooLarge`, and `LocalProtocolError` for what is no JSON."""
    data = encode(item)
    if len(data) > limit:
        raise TooLarge(f"{len(data)} bytes, and {limit} is the most that is sent over this link")
    return _wrap(data)


def payload_limit(limit: int) -> int:
    """How large the payload of a frame may be, for items of such a limit: several small ones come in one."""
    return 2 * limit + _AROUND


def unpacked(payload: bytes, limit: int) -> Iterator[list[Any]]:
    """The items of a payload. Raises `BadItem`."""
    try:
        items: Iterable[bytes] = _unwrap(payload)
    except msgspec.MsgspecError as error:
        raise BadItem(f"a payload that is no list of {MOST_ITEMS} items at most") from error
    limits = Limits.of_size(limit)
    for data in items:
        try:
            item: Any = decode(data, limits)
        except GreenroomError as error:
            raise BadItem(str(error)) from error
        if not isinstance(item, list) or not item or not isinstance(item[0], str):
            raise BadItem("an item without a kind")
        yield item
