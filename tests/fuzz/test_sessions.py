"""Several sessions on one server, in any order: calls, cancellations, streams that come, go and are resumed, ends.

A call is answered once, on any open stream; no session gets another session's messages; and at the end nothing is left.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from tests.example_counts import examples

from greenroom.actors.session_supervisor import SessionSupervisor
from greenroom.protocol.versions import SUPPORTED
from greenroom.supervision.kernel.node import Node
from greenroom.supervision.testing.leak_check import ResourceSnapshot, loop_leftovers, raise_for_leaks
from greenroom.supervision.testing.virtual_time import VirtualLoop
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_engine import HttpEngine

from .asgi_requests import PLAIN, AsgiRequest, answers
from .fuzz_target import pieces
from .fuzzed_server import LONG, FailureRecorder, company
from .targets.channels import lines
from .targets.connections import CONFIG, HELLO, call

if TYPE_CHECKING:
    from collections.abc import Coroutine

TOOLS = ("echo", "slow", "steps", "forever")
MOST = 4
NOTHING: Any = multiple()  # pyright: ignore[reportUnknownVariableType] - of no values


class Client:
    """A session's peer, and all messages that it received."""

    def __init__(self, number: int, session: str, version: str) -> None:
        self.number = number
        self.session = session
        self.version = version
        self.calls: list[Call] = []
        self.streams: list[AsgiRequest] = []
        self.deleted = False

    @property
    def heard(self) -> list[dict[str, Any]]:
        """All messages on all its streams; replayed ones occur again."""
        return [message for ride in [*(each.ride for each in self.calls), *self.streams] for message in ride.messages]

    def last(self, ride: AsgiRequest) -> str | None:
        """The last event id of a stream, for resuming it."""
        named = [event["id"] for event in ride.events if "id" in event]
        return named[-1] if named else None


class Call:
    """One call of a client."""

    def __init__(self, client: Client, id: int, tool: str, ride: AsgiRequest) -> None:
        self.client = client
        self.id = id
        self.tool = tool
        self.ride = ride
        self.cancelled = False
        self.left = False

    @property
    def answered(self) -> set[str]:
        """All received answers to the call, without replays."""
        return {str(message) for message in self.client.heard if answers([message], self.id)}


class Machine(RuleBasedStateMachine):
    """The state machine; one server for each run."""

    clients = Bundle("clients")
    calls = Bundle("calls")
    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.open = AsyncExitStack()
        self.known: list[Client] = []
        self.do(self.begin())

    def do(self, scene: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(scene)

    async def begin(self) -> None:
        node = await self.open.enter_async_context(Node(watchdog=None, handle_sigint=False))
        self.watch = FailureRecorder(node, asyncio.get_running_loop())
        self.open.callback(self.watch.close)
        self.company = await self.open.enter_async_context(company().started())
        self.app = AsgiEndpoint(HttpEngine(self.company, CONFIG))
        await asyncio.sleep(1)
        self.before = ResourceSnapshot.of_loop(asyncio.get_running_loop())

    def ride(
        self, verb: str, client: Client | None, message: Any = None, steps: bytes = b"\xff", last: str | None = None
    ) -> AsgiRequest:
        headers = list(PLAIN) if last is None else [*PLAIN, (b"last-event-id", last.encode())]
        if client is not None:
            headers += [
                (b"mcp-session-id", client.session.encode()),
                (b"mcp-protocol-version", client.version.encode()),
            ]
        return AsgiRequest(self.app, verb, headers, pieces(lines(message), steps) if message else ())

    # --- actions

    @initialize(target=clients, first=st.sampled_from(SUPPORTED), second=st.sampled_from(SUPPORTED))
    def two_are_there(self, first: str, second: str) -> Any:
        return multiple(self.join(first), self.join(second))

    @precondition(lambda self: len(self.known) < MOST)
    @rule(target=clients, version=st.sampled_from(SUPPORTED))
    def another(self, version: str) -> Client:
        return self.join(version)

    def join(self, version: str) -> Client:
        async def scene() -> Client:
            params = HELLO | {"protocolVersion": version}
            ride = self.ride("POST", None, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            await ride.task
            assert ride.status == 200
            client = Client(len(self.known), ride.headers["mcp-session-id"], version)
            assert client.session not in [each.session for each in self.known]
            told = self.ride("POST", client, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            await told.task
            assert told.status == 202
            return client

        client: Client = self.do(scene())
        self.known.append(client)
        return client

    @rule(target=calls, client=clients, tool=st.sampled_from(TOOLS), steps=st.binary(min_size=1, max_size=2))
    def call(self, client: Client, tool: str, steps: bytes) -> Call:
        id = len(client.calls)  # shared by all
        arguments: dict[str, Any] = {"text": f"canary {client.number}"} if tool == "echo" else {}

        async def scene() -> Call:
            return Call(client, id, tool, self.ride("POST", client, call(tool, id, **arguments), steps))

        made: Call = self.do(scene())
        client.calls.append(made)
        return made

    @rule(target=streams, client=clients)
    def listen(self, client: Client) -> Any:
        return self.come(client)

    @rule(target=streams, stream=streams)
    def resume(self, stream: tuple[Client, AsgiRequest]) -> Any:
        client, ride = stream
        last = client.last(ride)
        return NOTHING if last is None else self.come(client, last)

    @rule(target=streams, made=calls)
    def resume_call(self, made: Call) -> Any:
        last = made.client.last(made.ride)
        if last is None:
            return NOTHING
        made.left = True
        return self.come(made.client, last)

    @rule(target=streams, client=clients, ride=streams)
    def resume_what_is_anothers(self, client: Client, ride: tuple[Client, AsgiRequest]) -> Any:
        last = ride[0].last(ride[1])
        return NOTHING if last is None else self.come(client, last)

    def come(self, client: Client, last: str | None = None) -> tuple[Client, AsgiRequest]:
        async def scene() -> AsgiRequest:
            return self.ride("GET", client, last=last)

        stream: AsgiRequest = self.do(scene())
        client.streams.append(stream)
        return client, stream

    @rule(stream=consumes(streams))
    def leave_stream(self, stream: tuple[Client, AsgiRequest]) -> None:
        stream[1].leave()

    @rule(made=calls)
    def leave_call(self, made: Call) -> None:
        made.left = True
        made.ride.leave()

    @rule(made=calls)
    def cancel(self, made: Call) -> None:
        async def scene() -> None:
            params = {"requestId": made.id}
            told = self.ride(
                "POST", made.client, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            )
            await told.task
            assert told.status == (404 if made.client.deleted else 202)

        made.cancelled = True
        self.do(scene())

    @rule(client=clients)
    def delete(self, client: Client) -> None:
        async def scene() -> None:
            ride = self.ride("DELETE", client)
            await ride.task
            assert ride.status == (404 if client.deleted else 204)

        self.do(scene())
        client.deleted = True

    @rule(number=st.integers(1, 5))
    def tell_all(self, number: int) -> None:
        async def scene() -> None:
            for _ in range(number):
                await self.company.peers.broadcast("notifications/message", {"level": "info", "data": "to all"})

        self.do(scene())

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    # --- invariants

    @invariant()
    def no_session_gets_anothers_messages(self) -> None:
        for client in self.known:
            for message in client.heard:
                text = str(message)
                assert "canary" not in text or f"canary {client.number}'" in text

    @invariant()
    def nothing_goes_wrong(self) -> None:
        self.watch.check()

    def teardown(self) -> None:
        try:
            self.do(self.end())
        finally:
            self.do(self.open.aclose())
            self.runner.close()

    async def end(self) -> None:
        await asyncio.sleep(LONG / 30)
        self.no_session_gets_anothers_messages()
        for client in self.known:
            for made in client.calls:
                self.judge(made)
        for client in self.known:
            for ride in [*client.streams, *(made.ride for made in client.calls)]:
                await ride.gone()
        for card in await self.company.sessions.call(SessionSupervisor.session_infos):
            await self.company.peers.end(card.id)
        # The tasks of a session are cancelled, and have the grace to end.
        await asyncio.sleep(2 * self.company.settings.cancel_grace + 1)
        raise_for_leaks(await loop_leftovers(self.before))
        self.watch.check()

    def judge(self, made: Call) -> None:
        ended = made.answered
        assert len(ended) <= 1, ended
        ride = made.ride
        if made.left:
            return  # answers that were not awaited may or may not arrive on a stream
        assert ride.task.done()
        assert ride.whole
        if ended:
            assert ride.status in ((200, 404) if made.client.deleted else (200,))
        else:
            assert made.cancelled


TestSessions = Machine.TestCase
TestSessions.settings = settings(max_examples=examples(100), stateful_step_count=30)
