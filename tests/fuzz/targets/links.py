"""A link between nodes: a stranger without the key sends any bytes, one with the key any sealed frames; the node is unaffected."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.fuzz.fuzz_target import Target, is_list, numbers, pieces

from greenroom.supervision import GenServer, Node, Pid, Ref, Shutdown, start
from greenroom.supervision.cluster import link_protocol
from greenroom.supervision.cluster.framing import Handshake, Unframer, batch, frames, greeting
from greenroom.supervision.cluster.link import Link
from greenroom.supervision.cluster.peers import Peers
from greenroom.supervision.cluster.value_codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = b"a key that cannot be guessed    "
MOST = 8 * 1024 * 1024


class Adder(GenServer):
    """A process that adds numbers."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, by: int) -> int:
        """Count."""
        self.total += by
        return self.total


class Wire(asyncio.Transport):
    """Replaces a socket: the written bytes, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__({"socket": self})
        self.family = None
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Collect the bytes."""
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Accept all bytes."""

    def get_write_buffer_size(self) -> int:
        """Return at once."""
        return 0

    def close(self) -> None:
        """Close."""
        self.closed = True

    abort = close


def _heard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The logger that gets invalid items."""
    assert loop.is_running()
    assert "message" in context


class PersistentNode:
    """A node that is kept between all inputs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.node = Node("standing", handle_sigint=False, log=False, watchdog=None)
        self.loop.set_exception_handler(_heard)
        self.loop.run_until_complete(self.node.open())
        self.peers = Peers(self.node, KEY)
        self.peers._open, self.node.remote_nodes = True, self.peers

    async def meet(self, data: bytes, steps: bytes, *, keyed: bool) -> None:
        """Run one stranger from the first byte to the last."""
        ref = await start(Adder)
        serial = ref.pid.serial
        link, wire = Link(self.peers, dialling=False), Wire()
        self.peers._links[link] = None
        link.connection_made(wire)
        if keyed:
            self._say_keyed(link, wire, data.replace(b"\xff\xfe\xfd", serial.to_bytes(3, "big")), steps)
        else:
            for piece in pieces(data, steps):
                link.data_received(piece)
            assert not link.up, "it was let in without the key"
            assert len(wire.written) <= MOST
        await asyncio.sleep(0)
        assert link.over == wire.closed
        link.connection_lost(None)
        await asyncio.sleep(0)
        assert not self.peers._links
        assert not self.peers._remotes
        assert not self.peers._dialled
        fresh = await start(Adder)
        assert await fresh.call(Adder.add, 2) == 2, "the node goes on as before"

    def _say_keyed(self, link: Link, wire: Wire, payload: bytes, steps: bytes) -> None:
        handshake = Handshake(KEY, greeting("stranger", 1), dialling=True)

        def say(message: bytes) -> None:
            link.data_received(len(message).to_bytes(4, "big") + message)

        say(handshake.first())
        proof = handshake.take(bytes(wire.written[4:]))
        assert proof is not None
        del wire.written[:]
        say(proof)
        assert link.up
        out, back = handshake.seals()
        for frame in frames(payload, out):
            for piece in pieces(frame, steps):
                link.data_received(piece)
        said = [item for each in Unframer(back).feed(bytes(wire.written)) if each for item in decode(each)]
        answers = Tally(
            item[1] for item in said if item[0] in (link_protocol.REPLY, link_protocol.FAIL, link_protocol.EXITED)
        )
        asked = _asked(payload)
        assert asked is None or all(answers[number] <= asked[number] for number in answers), "one answer to a call"


def _asked(payload: bytes) -> Tally[Any] | None:
    """The numbers of the calls in it; None if they cannot be read from outside."""
    try:
        batched = decode(payload)
        return Tally(
            item[1]
            for item in batched
            if is_list(item) and len(item) > 1 and item[0] in (link_protocol.CALL, link_protocol.ASK)
        )
    except Exception:  # noqa: BLE001 - any error of malformed input
        return None


@cache
def standing() -> PersistentNode:
    """The single node."""
    return PersistentNode()


def check(data: bytes) -> None:
    """The first byte says whether the stranger has the key, the next two how its bytes are cut."""
    (kind, *steps), rest = numbers(data, 3)
    node = standing()
    node.loop.run_until_complete(node.meet(rest, bytes(steps), keyed=bool(kind & 1)))


SERIAL = 0xFFFEFD  # stands for an existing process


def seeds() -> Iterable[bytes]:
    """A greeting, and a batch of each kind of item."""
    hello = Handshake(KEY, greeting("stranger", 1), dialling=True).first()
    for steps in (b"\xff\xff", b"\0\x03"):
        yield b"\0" + steps + len(hello).to_bytes(4, "big") + hello
        said: list[list[Any]] = [
            [link_protocol.CALL, 1, 2, SERIAL, Adder.add, [1], {}],
            [link_protocol.ASK, 2, None, SERIAL, "x"],
            [link_protocol.CAST, SERIAL, Adder.add, [1], {}],
            [link_protocol.SEND, SERIAL, {"a": (1, 2.5, None, b"x", {3}, 1 << 70)}],
            [link_protocol.TELL, ["name"], [Pid("standing", 1, 2), Ref("x"), Shutdown("y"), ValueError("z")]],
            [link_protocol.WATCH, 3, SERIAL],
            [link_protocol.UNWATCH, 3],
            [link_protocol.LINK, 5, SERIAL],
            [link_protocol.CUT, 5, SERIAL, Shutdown(1)],
            [link_protocol.EXIT, 5, SERIAL, Shutdown(1)],
            [link_protocol.STOP, SERIAL, Shutdown(1)],
            [link_protocol.KILL, SERIAL],
            [link_protocol.REPLY, 1, 2],
            [link_protocol.FAIL, 1, KeyError("x")],
            [link_protocol.FORGET, 1],
            [link_protocol.GONE, 1, Shutdown(1)],
            [link_protocol.BEAT],
        ]
        encoded = [encode(item, "stranger") for item in said]
        for each in encoded:
            yield b"\1" + steps + batch([each])
        yield b"\1" + steps + batch(encoded)


WORDS = (
    *(bytes((kind,)) for kind in range(1, 20)),
    *(b"\xc7\x05" + bytes((code,)) for code in range(1, 17)),
    b"\x91",
    b"\x94",
    b"\xdd\0\0\0\1",
    b"builtins:int",
    b"greenroom.supervision.kernel.process_messages:Shutdown",
    b"tests.fuzz.targets.links:Adder.add",
    encode(SERIAL, ""),
)
TARGET = Target("links", check, seeds, WORDS)
