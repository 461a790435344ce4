"""A peer without the key, or one that has it and sends nonsense, is refused; no other link notices."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import Ref, Report, current_node, inbox, monitor
from greenroom.supervision.cluster import link as link_module
from greenroom.supervision.cluster import peers as peers_module
from greenroom.supervision.cluster.framing import GREETING_LIMIT, Handshake, LinkRefused, Seal, batch, frames, greeting
from greenroom.supervision.cluster.peers import LinkOffence, NodeDown, Peers
from greenroom.supervision.cluster.remote_spawn import start_on
from greenroom.supervision.cluster.value_codec import encode
from greenroom.supervision.kernel.process_messages import NO_CONNECTION

from .two_nodes import KEY, Counter, here, other_node, pair, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real", name="one")


class Stranger:
    """A plain socket connected to a node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seal: Seal

    @classmethod
    async def at(cls, peers: Peers) -> Stranger:
        """A connected one."""
        path = peers.addresses[0].removeprefix("unix:@")
        return cls(*await asyncio.open_unix_connection(f"\0{path}"))

    def say(self, message: bytes) -> None:
        """A message of the handshake."""
        self.writer.write(len(message).to_bytes(4, "big") + message)

    async def hear(self) -> bytes:
        """A message of the handshake."""
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def enter(self, key: bytes = KEY, name: str = "stranger") -> None:
        """Shake hands as a node does."""
        handshake = Handshake(key, greeting(name, 1), dialling=True)
        self.say(handshake.first())
        proof = handshake.take(await self.hear())
        assert proof is not None
        self.say(proof)
        self.seal, _ = handshake.seals()
        assert await self.reader.readexactly(21), "an empty frame: come in"

    def post(self, *items: list[object]) -> None:
        """Frames as a node sends them."""
        for frame in frames(batch([encode(item, "stranger") for item in items]), self.seal):
            self.writer.write(frame)

    async def turned_away(self) -> bytes:
        """All that the node has sent, up to the end."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""
            finally:
                self.writer.close()


@pytest.fixture(name="offences")
async def _offences() -> AsyncGenerator[list[LinkOffence]]:
    found: list[LinkOffence] = []

    def note(report: Report) -> None:
        if isinstance(report, LinkOffence):
            found.append(report)

    unsubscribe = current_node().reports.subscribe(note)
    yield found
    unsubscribe()


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\0\0\0\5hello",
        (GREETING_LIMIT + 1).to_bytes(4, "big"),
        b"\xff" * 100,
        pickle.dumps({"a": 1}),
        b"\0\0\0\0",
        (50).to_bytes(4, "big") + bytes(50),
    ],
    ids=range(7),
)
async def test_noise_is_turned_away_and_reported(noise: bytes, offences: list[LinkOffence]) -> None:
    async with pair() as (one, _):
        ref = await start_on("two", Counter)
        stranger = await Stranger.at(one)
        stranger.writer.write(noise)
        assert await stranger.turned_away() == b""
        assert [str(report) for report in offences] == [
            "a connection was refused: the other end does not speak the protocol of a greenroom cluster"
        ]
        assert await ref.call(Counter.add) == 1
        assert len(one._links) == 1


async def test_a_wrong_key_is_refused_at_both_ends(offences: list[LinkOffence]) -> None:
    async with here() as one, other_node(key=b"another key, as long") as two:
        with pytest.raises(LinkRefused, match="does not hold this cluster's key"):
            await one.connect(two.peers.addresses)
        with pytest.raises(LinkRefused, match="does not hold this cluster's key"):
            await two.do(two.peers.connect, one.addresses)
        assert one.connected == ()
        assert offences == [], "who dials hears of it"
        stranger = await Stranger.at(one)
        handshake = Handshake(b"x" * 32, greeting("x", 1), dialling=True)
        stranger.say(handshake.first())
        await stranger.hear()
        stranger.say(bytes(32))
        assert await stranger.turned_away() == b""
        assert "key" in str(offences[0])


async def test_silence_and_slowness_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "HANDSHAKE_SECONDS", 0.05)
    async with here() as one:
        silent, slow = await Stranger.at(one), await Stranger.at(one)
        slow.writer.write(b"\0")
        assert await silent.turned_away() == b""
        assert await slow.turned_away() == b""
        await until(lambda: not one._links)


async def test_a_crowd_of_strangers_does_not_keep_peers_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "_HANDSHAKES", 8)
    async with here() as one, other_node() as two:
        crowd = [await Stranger.at(one) for _ in range(30)]
        assert await two.do(two.peers.connect, one.addresses) == "one"
        await until(lambda: len(one._links) <= 9)
        for each in crowd:
            each.writer.close()
        await until(lambda: len(one._links) == 1)


async def test_a_truncated_handshake_leaves_nothing(offences: list[LinkOffence]) -> None:
    async with here() as one:
        first = Handshake(KEY, greeting("x", 1), dialling=True).first()
        whole = len(first).to_bytes(4, "big") + first
        for length in range(0, len(whole) + 1, 7):
            stranger = await Stranger.at(one)
            stranger.writer.write(whole[:length])
            await stranger.writer.drain()
            stranger.writer.close()
        await until(lambda: not one._links)
        assert offences == [], "who goes away has done nothing"


async def test_a_forged_frame_ends_the_link_it_came_on(offences: list[LinkOffence]) -> None:
    async with pair() as (one, _), inbox() as me:
        ref = await start_on("two", Counter)
        stranger = await Stranger.at(one)
        await stranger.enter()
        await until(lambda: "stranger" in one.connected)
        one.watch(Ref(me.pid))
        forged = bytearray(next(frames(b"\x90", Seal(b"f" * 32))))
        stranger.writer.write(forged)
        assert await stranger.turned_away() == b""
        assert await me.receive() == NodeDown("stranger", "a frame with a forged seal")
        assert [report.what for report in offences] == ["a frame with a forged seal"]
        assert await ref.call(Counter.add) == 1


async def test_nonsense_from_who_has_the_key_costs_only_itself() -> None:
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with here() as one:
        stranger = await Stranger.at(one)
        await stranger.enter()
        counter = await start_on("one", Counter)
        serial = counter.pid.serial
        stranger.post(
            [99],
            list[object](),
            [2, serial],
            [4, 1, None, serial, "no method", [], {}],
            [6, 77, "an answer to nothing"],
            [12, 5, "no reason"],
            [15, 1, serial, NO_CONNECTION],
            [16, 1, serial, "no reason"],
            [14, 3, 4],
            [11, 9],
            [9, 9],
            [1, [["unhashable"]], "x"],
            [1, 10**9, "x"],
            [13, 5, "x"],
        )
        stranger.post([2, serial, Counter.add, [41], {}])
        async with asyncio.timeout(5):
            while await counter.call(Counter.add, 0) != 41:
                pass
        assert len(problems) >= 4
        assert "stranger" in one.connected
        stranger.writer.close()
        await until(lambda: not one.connected)
    asyncio.get_running_loop().set_exception_handler(None)


async def test_a_payload_that_is_no_list_ends_the_link(offences: list[LinkOffence]) -> None:
    async with here() as one:
        for number, payload in enumerate((b"\xc1", b"\x01", b"\xa5hello", b"\x91\x01", b"")):
            stranger = await Stranger.at(one)
            await stranger.enter(name=f"s{number}")
            for frame in frames(payload, stranger.seal):
                stranger.writer.write(frame)
            if payload == b"\x91\x01":
                stranger.writer.close()
            await stranger.turned_away()
        await until(lambda: not one._links)
        assert offences


async def test_a_link_that_ends_in_the_middle_of_an_item_loses_only_that() -> None:
    async with here() as one, inbox() as me:
        counter = await start_on("one", Counter)
        stranger = await Stranger.at(one)
        await stranger.enter()
        one.watch(Ref(me.pid))
        stranger.post([2, counter.pid.serial, Counter.add, [1], {}])
        large: list[Any] = [2, counter.pid.serial, Counter.add, [bytes(600_000)], {}]
        half = list(frames(batch([encode(large, "x")]), stranger.seal))
        stranger.writer.write(half[0] + half[1][:1000])
        await stranger.writer.drain()
        stranger.writer.close()
        assert (await me.receive()).name == "stranger"
        assert await counter.call(Counter.add, 0) == 1
        monitor(counter)
        assert me.pending() == ()
