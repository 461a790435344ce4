"""TLS to a complete server, from the bytes of a connection: damaged handshakes and records, and the data inside.

An input says which flights of a real client are damaged and how, what comes in their stead or behind them, and what the client says when
they have shaken hands after all. The certificate is made once, when the first input is tried.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.fuzz_target import Target, numbers, pieces
from tests.fuzz.fuzzed_server import PersistentServer
from tests.fuzz.memory_connection import Wire, answers
from tests.fuzz.targets import frames
from tests.fuzz.targets.connections import CONFIG, GET, GOOD, PATIENCE, WORDS, entered, leave, look_at
from tests.transports.tls.certificate_authority import CertificateAuthority

from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http1_connection import Http1Connection
from greenroom.transports.http2_connection import PREFACE, Http2Connection
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.open_connections import OpenConnections
from greenroom.transports.tls import H2, Certificates, TlsConnection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.actors.company import Company

FLIGHTS = 3
SPARE, CUT, FLIP, INSERT, INSTEAD = range(5)
"""The damage to a flight: none, truncation, a changed byte, inserted bytes, replacement."""
RECORDS = (
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"\x15\x03\x03\x00\x02\x01\x00",
)
"""An empty hello, an alert, a close notification."""


class SharedContexts:
    """The shared state of both ends."""

    def __init__(self) -> None:
        """Make the certificate and contexts."""
        with tempfile.TemporaryDirectory() as folder:
            authority = CertificateAuthority(Path(folder))
            certfile, keyfile = authority.issue()
            self.server = Certificates(HttpConfig(certfile=certfile, keyfile=keyfile, http2=True))
            self.contexts = {alpn: authority.client(alpn=alpn) for alpn in (("http/1.1",), ("h2",), ())}
            self.old = authority.client()
            self.old.maximum_version = ssl.TLSVersion.TLSv1_2


@cache
def both() -> SharedContexts:
    return SharedContexts()


class Client:
    """A real TLS client, whose bytes pass through the test."""

    def __init__(self, kind: int) -> None:
        """`kind` is its offered version."""
        contexts = [*both().contexts.values(), both().old]
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = contexts[kind % len(contexts)].wrap_bio(self._in, self._out, server_hostname="localhost")
        self.shaken = False
        self._taken = 0

    def flight(self, wire: Wire) -> bytes:
        """The client's next bytes."""
        self._hear(wire)
        if not self.shaken:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                self.shaken = True
        return self._out.read()

    def sealed(self, data: bytes) -> bytes:
        """Encrypt data as records."""
        if data:
            self.tls.write(data)
        return self._out.read()

    def opened(self, wire: Wire) -> bytes:
        """The decrypted data of the server."""
        self._hear(wire)
        found = b""
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            while piece := self.tls.read(1 << 16):
                found += piece
        return found

    def _hear(self, wire: Wire) -> None:
        heard = wire.heard
        self._in.write(heard[self._taken :])
        self._taken = len(heard)


def damaged(flight: bytes, how: int, where: int, scrap: bytes) -> bytes:
    place = where * len(flight) // 256
    match how % 5:
        case 1:
            return flight[:place]
        case 2 if flight:
            changed = flight[place] ^ (scrap[0] if scrap else 0xFF)
            return flight[:place] + bytes([changed]) + flight[place + 1 :]
        case 3:
            return flight[:place] + scrap + flight[place:]
        case 4:
            return scrap
        case _:
            return flight


@cache
def standing() -> PersistentServer:
    return PersistentServer()


def check(data: bytes) -> None:
    front, sent = numbers(data, 3 + 2 * FLIGHTS)

    async def scene(company: Company) -> None:
        await connected(company, sent, front)

    standing().play(scene)


def wired(hall: OpenConnections) -> Wire:
    return Wire(
        TlsConnection(
            hall, both().server, lambda agreed: Http2Connection(hall) if agreed == H2 else Http1Connection(hall)
        )
    )


async def connected(company: Company, sent: bytes, front: bytes) -> None:
    kind, end, step, *plan = front
    hall = OpenConnections(AsgiEndpoint(HttpEngine(company, CONFIG)), CONFIG)
    session = await entered(company)
    scrap, _, inside = sent.partition(b"\xff\xff")
    inside = inside.replace(b"$S", session.id.encode()).replace(frames.SESSION.encode(), session.id.encode())
    wire, client = wired(hall), Client(kind)
    spared = True
    try:
        for flight in range(FLIGHTS):
            how, where = plan[2 * flight : 2 * flight + 2]
            said = client.flight(wire)
            spoilt = damaged(said, how, where, scrap)
            spared = spared and spoilt == said
            await wire.send(pieces(spoilt, bytes([step])))
        if client.shaken:
            behind = scrap if end & 4 else b""
            spared = spared and not behind
            await wire.send(pieces(client.sealed(inside) + behind, bytes([step])))
    except ssl.SSLError:
        assert not spared, "an undisturbed handshake failed"
    if end & 1:
        wire.hang_up()
    elif end & 2:
        wire.lose()
    if not await wire.ended(PATIENCE):
        assert client.shaken, "who never shakes hands is let go"
        wire.lose()
    if spared:
        assert client.shaken
        look(client, wire, inside)
    await check_still_there(company, hall)
    await hall.drain(0)
    assert not hall.open
    await leave(company)


def look(client: Client, wire: Wire, inside: bytes) -> None:
    heard = client.opened(wire)
    if client.tls.selected_alpn_protocol() == H2:
        frames.FrameChecker(heard)
    else:
        look_at(answers(heard, heads=b"HEAD" in inside))


async def check_still_there(company: Company, hall: OpenConnections) -> None:
    session = await entered(company)
    wire, client = wired(hall), Client(0)
    while not client.shaken:
        await wire.send([client.flight(wire)])
    await wire.send([client.sealed(GOOD.replace(b"$S", session.id.encode()))])
    await asyncio.sleep(1)
    (answer,) = answers(client.opened(wire))
    assert json.loads(answer.body) == {"jsonrpc": "2.0", "id": "good", "result": {}}
    wire.lose()


def texts() -> Iterable[bytes]:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for kind in range(4):
        inside = PREFACE + frames.READY + frames.post(1, ping) if kind == 1 else GOOD
        for end in (0, 2, 5):
            yield bytes([kind, end, 255, *bytes(2 * FLIGHTS)]) + RECORDS[2] + b"\xff\xff" + inside
        yield bytes([kind, 0, 7, *bytes(2 * FLIGHTS)]) + b"\xff\xff" + GET + b"\r\n"
        for flight in range(FLIGHTS):
            for how in (CUT, FLIP, INSERT, INSTEAD):
                plan = bytearray(2 * FLIGHTS)
                plan[2 * flight], plan[2 * flight + 1] = how, 100 + 30 * flight
                yield bytes([kind, how, 40]) + bytes(plan) + RECORDS[how % 3] + b"\xff\xff" + inside


TARGET = Target(
    "handshakes",
    check,
    lambda: list(texts()),
    (
        *RECORDS,
        *WORDS,
        PREFACE,
        frames.READY,
        b"\xff\xff",
        b"\x16\x03\x03",
        b"\x17\x03\x03",
        b"\x14\x03\x03\x00\x01\x01",
    ),
    longest=2500,
)
