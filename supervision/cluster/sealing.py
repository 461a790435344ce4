"""Who is at the other end, and that nobody else speaks: the keyed handshake of a link, and the seal on each of its frames.

Pure: bytes in, bytes out. Both ends prove that they hold the key by an HMAC over both greetings, each with a fresh nonce; from those come a
key for each direction, and each frame carries a MAC over its place in the sequence and its content, so that none can be forged, repeated,
left out or sent back. It gives authenticity and not secrecy: between machines, run it inside WireGuard or the like.

    dialler                         listener
      greeting  ─────────────────────▶
      ◀───────────────── greeting, proof
      proof  ────────────────────────▶
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

import msgspec

from greenroom.supervision.kernel.errors import ActorError

VERSION: Final = 1
MAC_BYTES: Final = 16
GREETING_LIMIT: Final = 4096
_PROOF_BYTES: Final = 32
_KEY_BYTES: Final = 16


class LinkRefused(ActorError):
    """The other end is not who it should be, or does not want us: what was wrong."""


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """What an end says of itself before it has proved anything."""

    version: int
    name: str
    incarnation: int
    nonce: bytes
    kind: str = "node"
    addresses: tuple[str, ...] = ()


def greeting(name: str, incarnation: int, *, kind: str = "node", addresses: tuple[str, ...] = ()) -> Greeting:
    """One of ours, with a nonce of its own."""
    return Greeting(VERSION, name, incarnation, secrets.token_bytes(32), kind, addresses)


def check_key(key: bytes) -> bytes:
    """Refuse a key that anybody could guess."""
    if len(key) < _KEY_BYTES:
        raise ValueError(
            f"a cluster's key must have at least {_KEY_BYTES} bytes, not {len(key)}: use secrets.token_bytes(32)"
        )
    return key


@dataclass(slots=True)
class Seal:
    """One direction of a link: makes the MAC of each frame in its turn, or looks at it."""

    key: bytes = field(repr=False)
    count: int = 0

    def mac(self, kind: int, payload: bytes | bytearray | memoryview) -> bytes:
        """The MAC of the next frame."""
        made = hashlib.blake2b(self.count.to_bytes(8, "big") + bytes((kind,)), key=self.key, digest_size=MAC_BYTES)
        made.update(payload)
        self.count += 1
        return made.digest()

    def check(self, kind: int, mac: bytes | memoryview, payload: bytes | bytearray | memoryview) -> bool:
        """Whether the next frame is theirs."""
        return hmac.compare_digest(self.mac(kind, payload), mac)


class Handshake:
    """One handshake, as one end of it. `take` each message of the other; `done` when both have proved themselves."""

    def __init__(self, key: bytes, mine: Greeting, *, dialling: bool) -> None:
        """The dialler sends `first` and waits."""
        self._key = key
        self._mine = mine
        self._first = _encode(mine)
        self._dialling = dialling
        self._transcript = b""
        self.peer: Greeting | None = None
        self.done = False

    def __repr__(self) -> str:
        return f"<Handshake of {self._mine.name} with {self.peer.name if self.peer else 'whom, it does not know yet'}>"

    def first(self) -> bytes:
        """What the dialler says first."""
        return self._first

    def take(self, message: bytes) -> bytes | None:
        """What to answer; None when there is nothing more to say. Raises `LinkRefused`."""
        if self.peer is None:
            return self._meet(message)
        if self.done or self._dialling:
            raise LinkRefused("the other end says more than a handshake has")
        self._prove(b"dialler", message)
        self.done = True
        return None

    def _meet(self, message: bytes) -> bytes:
        proof = b""
        if self._dialling:
            message, proof = message[:-_PROOF_BYTES], message[-_PROOF_BYTES:]
        try:
            peer = _decode(message)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LinkRefused("the other end does not speak the protocol of a greenroom cluster") from error
        if peer.version != VERSION:
            raise LinkRefused(
                f"{peer.name!r} speaks version {peer.version} of the protocol between nodes, and this is {VERSION}: "
                "run the same version of greenroom at both ends"
            )
        both = self._first + message if self._dialling else message + self._first
        self._transcript = hashlib.sha256(both).digest()
        if self._dialling:
            self._prove(b"listener", proof)
            self.peer, self.done = peer, True
            return self._sign(b"dialler")
        self.peer = peer
        return self._first + self._sign(b"listener")

    def _prove(self, who: bytes, proof: bytes) -> None:
        if not hmac.compare_digest(self._sign(who), proof):
            raise LinkRefused("the other end does not hold this cluster's key")

    def _sign(self, what: bytes) -> bytes:
        return hmac.digest(self._key, what + self._transcript, "sha256")

    def seals(self) -> tuple[Seal, Seal]:
        """For what is sent, and for what comes."""
        out, back = Seal(self._sign(b"seal from dialler")), Seal(self._sign(b"seal from listener"))
        return (out, back) if self._dialling else (back, out)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Greeting).decode
