"""Ids that tell the nodes of an ensemble alone which node has the session, the task or the parked call.

Four bytes are appended to the random part: a keyed hash of that part, with the slot folded into its last byte. So the nodes share no table, an invented id is refused
without asking another node, and clients do not learn how many nodes there are.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b
from typing import Final

MAX_NODES: Final = 64
"""How many nodes the ids can distinguish."""
_CHANNEL: Final = 0x80
_SIZE: Final = 4


class RoutedIds:
    """The ids of one node. All nodes of an ensemble have the same key."""

    __slots__ = ("_key", "slot")

    def __init__(self, key: bytes, slot: int) -> None:
        """`slot` is this node's number, from 0."""
        if not 0 <= slot < MAX_NODES:
            raise ValueError(f"a slot is 0 to {MAX_NODES - 1}, not {slot!r}")
        self._key = key
        self.slot = slot

    def __repr__(self) -> str:
        return f"<RoutedIds of slot {self.slot}>"

    def new(self, kind: str, *, channel: bool = False) -> str:
        """A new id that cannot be guessed. `channel` marks a session with one channel and no streams."""
        token = secrets.token_hex(16)
        return f"{kind}_{token}{self._mark(token, self.slot | (_CHANNEL if channel else 0))}"

    def read(self, id: str) -> tuple[int, bool] | None:
        """The slot of the id's node, and whether it has a channel; None for an id that no node of this ensemble has made."""
        _, _, rest = id.partition("_")
        token, mark = rest[: -2 * _SIZE], rest[-2 * _SIZE :]
        try:
            sent_mark = bytes.fromhex(mark)
        except ValueError:
            return None
        if len(sent_mark) != _SIZE or len(token) != 32 or not token.isascii():  # noqa: PLR2004 - as `new` makes it
            return None
        made = self._hash(token)
        if not hmac.compare_digest(sent_mark[:-1], made[:-1]):
            return None
        what = sent_mark[-1] ^ made[-1]
        slot = what & ~_CHANNEL
        return (slot, bool(what & _CHANNEL)) if slot < MAX_NODES else None

    def _mark(self, token: str, what: int) -> str:
        made = self._hash(token)
        return (made[:-1] + bytes((made[-1] ^ what,))).hex()

    def _hash(self, token: str) -> bytes:
        return blake2b(token.encode(), digest_size=_SIZE, key=self._key).digest()
