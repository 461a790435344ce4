"""The handshake, the frames and the MACs of links, as pure functions of bytes; links with and without an event loop use them.

A frame is the length of its payload, its kind, its MAC and the payload. Items sent in one turn of the loop share a frame. A frame longer than `PIECE` is sent in
pieces, so that its reader can do other work in between.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec

from greenroom.errors import ConfigError
from greenroom.supervision.kernel.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# --- Authentication: the keyed handshake of a link, and the MAC on each of its frames.
# Both ends prove that they hold the key by an HMAC over both greetings, which have fresh nonces. From those follows a key for each direction, and each frame has a
# MAC over its position and its content, so none can be forged, repeated, left out or reflected. That is authenticity and not secrecy: between machines, run it
# inside WireGuard or the like.
#     dialler                         listener
#       greeting  ─────────────────────▶
#       ◀───────────────── greeting, proof
#       proof  ────────────────────────▶

VERSION: Final = 1
MAC_BYTES: Final = 16
GREETING_LIMIT: Final = 4096
_PROOF_BYTES: Final = 32
_KEY_BYTES: Final = 16


class LinkRefused(ActorError):
    """The other end is not the expected one, or refuses this one; the message says why."""


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """The statements of an end about itself before it is authenticated."""

    version: int
    name: str
    incarnation: int
    nonce: bytes
    kind: str = "node"
    addresses: tuple[str, ...] = ()


def greeting(name: str, incarnation: int, *, kind: str = "node", addresses: tuple[str, ...] = ()) -> Greeting:
    """A greeting of this end, with a fresh nonce."""
    return Greeting(VERSION, name, incarnation, secrets.token_bytes(32), kind, addresses)


def check_key(key: bytes) -> bytes:
    """Refuse a key short enough to be guessed. Raises `ConfigError`."""
    if len(key) < _KEY_BYTES:
        raise ConfigError(
            f"a cluster's key must have at least {_KEY_BYTES} bytes, not {len(key)}: use secrets.token_bytes(32)"
        )
    return key


@dataclass(slots=True)
class Seal:
    """Makes or checks the MACs of the frames of one direction, which are numbered."""

    key: bytes = field(repr=False)
    count: int = 0

    def mac(self, kind: int, payload: bytes | bytearray | memoryview) -> bytes:
        """The MAC of the next frame."""
        made = hashlib.blake2b(self.count.to_bytes(8, "big") + bytes((kind,)), key=self.key, digest_size=MAC_BYTES)
        made.update(payload)
        self.count += 1
        return made.digest()

    def check(self, kind: int, mac: bytes | memoryview, payload: bytes | bytearray | memoryview) -> bool:
        """Whether the MAC of the next frame is right."""
        return hmac.compare_digest(self.mac(kind, payload), mac)


# --- Length-prefixed messages: those of a handshake, and of the daemon's socket.

_LENGTH: Final = struct.Struct(">I")


def framed(message: bytes) -> bytes:
    """A message with its length in front."""
    return _LENGTH.pack(len(message)) + message


def messages(buffer: bytearray, largest: int, what: str) -> Iterator[bytes]:
    """Take the complete messages off the front of the buffer. Raises `ValueError` for one longer than `largest`; `what` names it."""
    while len(buffer) >= _LENGTH.size:
        length = _LENGTH.unpack_from(buffer)[0]
        if length > largest:
            raise ValueError(f"{what} of {length} bytes")
        end = _LENGTH.size + length
        if len(buffer) < end:
            return
        message = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        yield message


class Handshake:
    """One end of a handshake. `feed` it what the other end sends; it is `done` when both have proved themselves."""

    def __init__(self, key: bytes, mine: Greeting, *, dialling: bool) -> None:
        """The dialling end sends `first`, and waits."""
        self._key = key
        self._mine = mine
        self._first = _encode(mine)
        self._dialling = dialling
        self._transcript = b""
        self.peer: Greeting | None = None
        self.done = False
        self.rest = bytearray()
        """Bytes that are not read yet; after the handshake, those that follow it."""

    def __repr__(self) -> str:
        return f"<Handshake of {self._mine.name} with {self.peer.name if self.peer else 'an unknown peer'}>"

    def first(self) -> bytes:
        """The dialling end's first message."""
        return self._first

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The replies to send for the received data. Raises `LinkRefused`."""
        self.rest += data
        try:
            for message in messages(self.rest, GREETING_LIMIT, "a greeting"):
                answer = self.take(message)
                if answer is not None:
                    yield framed(answer)
                if self.done:
                    return
        except ValueError as error:
            raise LinkRefused("the other end does not speak the protocol of a greenroom cluster") from error

    def take(self, message: bytes) -> bytes | None:
        """The reply to one message; None when there is none. Raises `LinkRefused`."""
        if self.peer is None:
            return self._meet(message)
        if self.done or self._dialling:
            raise LinkRefused("the other end sent more than a handshake has")
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
        """The seal for sent frames, and the one for received frames."""
        out, back = Seal(self._sign(b"seal from dialler")), Seal(self._sign(b"seal from listener"))
        return (out, back) if self._dialling else (back, out)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Greeting).decode


WHOLE: Final = 0
PART: Final = 1
LAST: Final = 2
PIECE: Final = 256 * 1024
LARGEST: Final = 1 << 30
"""How many bytes one item may have when its pieces are put together."""

_HEAD: Final = struct.Struct(">IB")
HEAD_BYTES: Final = _HEAD.size + MAC_BYTES


def batch(items: Sequence[bytes]) -> bytes:
    """Encoded items as one encoded list."""
    return b"".join((b"\xdd", len(items).to_bytes(4, "big"), *items))


def frames(payload: bytes, seal: Seal) -> Iterator[bytes]:
    """The frames of a payload, each made when it is asked for."""
    if len(payload) <= PIECE:
        yield _frame(WHOLE, payload, seal)
        return
    view = memoryview(payload)
    for start in range(0, len(payload), PIECE):
        piece = view[start : start + PIECE]
        yield _frame(LAST if start + PIECE >= len(payload) else PART, piece, seal)


def _frame(kind: int, payload: bytes | memoryview, seal: Seal) -> bytes:
    return b"".join((_HEAD.pack(len(payload), kind), seal.mac(kind, payload), payload))


class Unframer:
    """Splits a byte stream into payloads. Raises `LinkRefused` at the first frame that is not the other end's."""

    __slots__ = ("_buffer", "_largest", "_needed", "_parts", "_seal")

    def __init__(self, seal: Seal, largest: int = LARGEST) -> None:
        self._seal = seal
        self._largest = largest
        self._buffer = bytearray()
        self._needed = HEAD_BYTES  # bytes needed before the buffer is worth parsing
        self._parts = BytesIO()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that are complete with this data."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data, self._buffer = bytes(self._buffer), bytearray()
        view, start, total = memoryview(data), 0, len(data)
        self._needed = HEAD_BYTES
        try:
            while total - start >= HEAD_BYTES:
                length, kind = _HEAD.unpack_from(data, start)
                if length > PIECE or kind > LAST:
                    raise LinkRefused("a frame that no node of this version sends")
                end = start + HEAD_BYTES + length
                if total < end:
                    self._needed = end - start
                    break
                payload = view[start + HEAD_BYTES : end]
                if not self._seal.check(kind, view[start + _HEAD.size : start + HEAD_BYTES], payload):
                    raise LinkRefused("a frame with a forged seal")
                start = end
                if kind == WHOLE:
                    if length > self._largest:
                        raise LinkRefused(f"a message of more than {self._largest} bytes")
                    yield bytes(payload)
                elif (whole := self._put_together(kind, payload)) is not None:
                    yield whole
        finally:
            self._buffer += view[start:]

    def _put_together(self, kind: int, payload: memoryview) -> bytes | None:
        if self._parts.tell() + len(payload) > self._largest:
            raise LinkRefused(f"a message of more than {self._largest} bytes")
        self._parts.write(payload)
        if kind == PART:
            return None
        whole, self._parts = self._parts.getvalue(), BytesIO()  # as it lies there: nothing is copied at once
        return whole
