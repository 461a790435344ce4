"""A hundred clients that use the same ids, and resume and cancel at random: no client ever receives another's data."""

from __future__ import annotations

import contextlib
import json
import random
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from greenroom.actors.company import Company
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import Peer

from .raw_clients import ConnectionCut, RawCaller, target_server

if TYPE_CHECKING:
    from greenroom.transports.interfaces import SessionHandle

    from .raw_clients import Message, TargetServer

CLIENTS = 100
CANARY = re.compile(rb"canary-(\d+)-(\d+)")
FORGED = [
    "g0:0",
    "g0:1",
    "p1:1",
    "p2:0",
    "p9:9",
    "g0:99999999999999999999",
    "p1:-1",
    "p1:\u0661",
    "",
    ":",
    "x" * 5000,
    "p1",
]


class Client:
    """One client, which keeps everything that it ever receives."""

    def __init__(self, opened: TargetServer, number: int) -> None:
        self.opened = opened
        self.number = number
        self.dice = random.Random(number)
        self.session = opened.entered().session
        self.received: list[bytes] = []
        self.answered: dict[int, int] = {}
        self.resumed = self.cancelled = 0

    def line(self) -> RawCaller:
        """A connection of its own."""
        return RawCaller(self.opened.port, session=self.session)

    def work(self, rounds: int) -> None:
        """Call, leave, resume and cancel, with ids that all clients use."""
        for id in range(1, rounds + 1):
            text = f"canary-{self.number}-{id}"
            match self.dice.randrange(4):
                case 0:
                    self.echo(id, text)
                case 1:
                    self.whisper(id, text)
                case 2:
                    self.leave_and_resume(id, text)
                case _:
                    self.cancel(id, text)
        self.forge()

    def ask(self, line: RawCaller, id: int, tool: str, **arguments: object) -> None:
        params: Message = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        line.send("POST", json.dumps(message).encode())

    def take(self, line: RawCaller, id: int, text: str) -> None:
        """Read a whole reply, which must be single and ours."""
        heard = line.hear()
        self.received.append(heard.body)
        answers = [each for each in heard.messages if each.get("id") == id and "result" in each]
        assert [each["result"]["content"][0]["text"] for each in answers] == [text], heard.body
        self.answered[id] = self.answered.get(id, 0) + 1

    def echo(self, id: int, text: str) -> None:
        with contextlib.closing(self.line()) as line:
            self.ask(line, id, "echo", text=text)
            self.take(line, id, text)

    def whisper(self, id: int, text: str) -> None:
        with contextlib.closing(self.line()) as line:
            self.ask(line, id, "whisper", text=text, words=5)
            self.take(line, id, text)

    def leave_and_resume(self, id: int, text: str) -> None:
        self.resumed += 1
        said = b""
        with contextlib.closing(self.line()) as line:
            self.ask(line, id, "whisper", text=text, words=20)
            while len(marks := re.findall(rb"^id: (\S+)$", said, re.MULTILINE)) < 3 or not said.endswith(b"\n\n\r\n"):
                said += line.socket.recv(1 << 16)
        self.received.append(said)
        with contextlib.closing(self.line()) as line:
            line.send("GET", last_event_id=marks[-1].decode())
            self.take(line, id, text)

    def cancel(self, id: int, text: str) -> None:
        self.cancelled += 1
        with contextlib.closing(self.line()) as line, contextlib.closing(self.line()) as other:
            self.ask(line, id, "whisper", text=text, words=1000)
            self.received.append(line.socket.recv(100))  # it has begun
            assert other.post({"method": "notifications/cancelled", "params": {"requestId": id}}).status == 202
            line.socket.settimeout(20.0)
            with contextlib.suppress(ConnectionCut):
                while not self.received[-1].endswith(b"0\r\n\r\n"):
                    self.received.append(line.socket.recv(1 << 16))
            assert b'"result"' not in b"".join(self.received[-1:])

    def forge(self) -> None:
        """Ask for events of no session, or of another session: those names exist in every session."""
        for mark in FORGED:
            with contextlib.closing(self.line()) as line:
                line.send("GET", last_event_id=mark.encode("utf-8").decode("latin-1"))
                status, _ = line.head()
                assert status in {200, 400, 431}
                self.received.append(line._data)
                line.socket.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    while more := line.socket.recv(1 << 16):
                        self.received.append(more)


@pytest.mark.deep
@pytest.mark.row("SX-08")
@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_no_client_receives_data_of_another(rounds: int, no_leaks: None) -> None:
    with target_server() as opened:
        clients = [Client(opened, number) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            for worked in [pool.submit(each.work, rounds) for each in clients]:
                worked.result()
        seen = foreign = 0
        for client in clients:
            for number, _ in CANARY.findall(b"\n".join(client.received)):
                seen += 1
                foreign += int(number) != client.number
            assert set(client.answered.values()) <= {1}, "each answer came once"
            assert len(client.answered) + client.cancelled == rounds
        assert foreign == 0
        assert seen > CLIENTS * rounds
        assert sum(client.resumed for client in clients) > 10
        assert sum(client.cancelled for client in clients) > 10


HELLO = JsonRpcRequest(
    "h",
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
)


async def enter(company: Company, principal: str) -> SessionHandle:
    session = (await company.start_session(Peer("http", "127.0.0.1:1", principal), HELLO)).session
    assert session is not None
    await session.notify(JsonRpcNotification("notifications/initialized"))
    return session


@pytest.mark.row("SX-08")
@pytest.mark.parametrize("mark", [*FORGED, None])
async def test_a_session_replays_only_its_own_events_whatever_id_is_forged(mark: str | None) -> None:
    company = Company()
    await start_supervised(company.child_spec())
    one, two = await enter(company, "one"), await enter(company, "two")
    for number in range(5):
        company.peers.notify(one.id, "notifications/message", {"level": "error", "data": f"canary-1-{number}"})
        company.peers.notify(two.id, "notifications/message", {"level": "error", "data": f"canary-2-{number}"})
    feed = await two.listen(mark)
    said = b""
    while events := await feed.next(1.0):
        said += b"".join(event.data for event in events)
    assert {number for number, _ in CANARY.findall(said)} == {b"2"}


@pytest.mark.row("SX-08")
async def test_a_session_is_unknown_to_every_other_principal() -> None:
    company = Company()
    await start_supervised(company.child_spec())
    session = await enter(company, "one")
    assert company.find(session.id, Peer("http", "127.0.0.1:2", "one")) is not None
    for other in ("two", "", None, 0, ("one",)):
        assert company.find(session.id, Peer("http", "127.0.0.1:1", other)) is None
