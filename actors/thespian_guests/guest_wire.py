"""The encoding of messages between a guest and its node: JSON, in the items of a link's frames; and the guests' key.

Both ends bound what they accept and what they send. Instead of an item that is too large, an end sends an error.

    to the node      ["ask", id, kind, fields, seconds], ["drop", id], ["ping"]
    to the guest     ["answer", id, kind, fields], ["updated", server, uri, gap], ["ended", server, uri, why], ["pong"]
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from greenroom.errors import ConfigError, GreenroomError
from greenroom.protocol.jsonrpc import MessageLimits, decode, encode
from greenroom.supervision.cluster import write_key
from greenroom.supervision.cluster.key_files import LEAST, read_key

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

KIND: Final = "guest"
"""The `kind` in a guest's greeting."""

TO_NODE: Final = 4 * 1024 * 1024
TO_GUEST: Final = 16 * 1024 * 1024
_AROUND: Final = 64 * 1024
"""Room in a frame for what surrounds its items."""
MOST_ITEMS: Final = 4096
"""How many items one payload may have: all are handled before anything else has its turn."""

_wrap: Final = msgspec.msgpack.Encoder().encode
_unwrap: Final = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=MOST_ITEMS)]).decode


class BadItem(GreenroomError):
    """The other end has sent what no end of this version sends."""


class ItemTooLarge(GreenroomError):
    """An item is larger than the other end accepts."""


def pack_item(item: list[Any], limit: int) -> bytes:
    """Encode an item. Raises `ItemTooLarge`, and `LocalProtocolError` for values that are not JSON."""
    data = encode(item)
    if len(data) > limit:
        raise ItemTooLarge(f"{len(data)} bytes, and {limit} is the most that is sent over this link")
    return _wrap(data)


def payload_limit(limit: int) -> int:
    """The largest payload for items of such a limit: small items share a payload."""
    return 2 * limit + _AROUND


def unpack_items(payload: bytes, limit: int) -> Iterator[list[Any]]:
    """Decode the items of a payload. Raises `BadItem`."""
    try:
        items: Iterable[bytes] = _unwrap(payload)
    except msgspec.MsgspecError as error:
        raise BadItem(f"the payload is not a list of at most {MOST_ITEMS} items") from error
    limits = MessageLimits.of_size(limit)
    for data in items:
        try:
            item: Any = decode(data, limits)
        except GreenroomError as error:
            raise BadItem(str(error)) from error
        if not isinstance(item, list) or not item or not isinstance(item[0], str):
            raise BadItem("an item without a kind")
        yield item


# --- The key of guests and node: in a file that only its owner can read, or as bytes.


def new_key_file(path: str | os.PathLike[str]) -> Path:
    """Write a fresh key into a new file that only its owner can read. Raises `ConfigError` when the file exists."""
    write_key(path)
    return Path(path)


def read_guest_key(given: bytes | str | os.PathLike[str]) -> bytes:
    """The key. Raises `ConfigError` for a file that others can read or change, and for a key that could be guessed."""
    if not isinstance(given, bytes):
        return read_key(given)
    if len(given) < LEAST:
        raise ConfigError(f"a key has at least {LEAST} bytes, not {len(given)}: write one with new_key_file(path)")
    return given


def guest_link_key(given: bytes | str | os.PathLike[str]) -> bytes:
    """The key for guests' links, derived from the given one: so a guest's link is never accepted as a node's, even if a cluster uses the same file. Raises as `read_guest_key`."""
    return hmac.digest(read_guest_key(given), b"greenroom guests", "sha256")
