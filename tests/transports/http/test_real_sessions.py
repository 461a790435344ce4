"""The HTTP engine in front of real sessions: what their streams look like on the wire."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Context, Server, Settings
from greenroom.supervision import kill, which_children
from greenroom.transports.http_request import KEEP_ALIVE

from .engine_driver import EngineDriver, RecordedResponse, notification, parse_events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Wire:
    """One peer with a session."""

    def __init__(self, server: Server, driver: EngineDriver) -> None:
        self.server = server
        self.driver = driver
        self.session = ""
        self.tasks: list[asyncio.Task[None]] = []

    async def enter(self, version: str = "2025-11-25") -> None:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        hello = await self.driver.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert hello.status == 200, hello.body
        self.session = hello.headers["mcp-session-id"]
        assert (await self.tell(notification())).status == 202

    async def tell(self, message: dict[str, Any]) -> RecordedResponse:
        return await self.driver.post(message, {"mcp-session-id": self.session})

    def call(self, name: str, id: Any = 1, **arguments: Any) -> tuple[RecordedResponse, asyncio.Task[None]]:
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "t"}}
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()
        return self._begin("POST", {"content-type": "application/json"}, body)

    def listen(self, last: str | None = None) -> tuple[RecordedResponse, asyncio.Task[None]]:
        return self._begin("GET", {"last-event-id": last}, b"")

    def _begin(
        self, verb: str, headers: dict[str, str | None], body: bytes
    ) -> tuple[RecordedResponse, asyncio.Task[None]]:
        response = RecordedResponse()
        said = {"mcp-session-id": self.session, **headers}
        task = asyncio.create_task(self.driver.begin(response, verb, "/mcp", said, body))
        self.tasks.append(task)
        return response, task

    async def shout(self, count: int) -> None:
        """Have so many notifications sent that belong to no request."""
        for _ in range(count):
            await self.server.peers.broadcast("notifications/message", {"level": "info", "data": "x"})


@asynccontextmanager
async def wire(settings: Settings | None = None, **config: Any) -> AsyncGenerator[Wire]:
    server = Server("streams", settings=settings)

    @server.tool
    async def quick() -> str:
        return "done"

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        for step in range(count):
            await ctx.progress(step, count)
            await asyncio.sleep(1)
        return "done"

    @server.tool
    async def forever() -> str:
        await asyncio.Event().wait()
        return "never"

    async with server.started() as company:
        peer = Wire(server, EngineDriver.before(company, **config))
        yield peer
        for task in peer.tasks:
            task.cancel()
        await asyncio.gather(*peer.tasks, return_exceptions=True)


def ids(response: RecordedResponse) -> list[str]:
    return [event["id"] for event in parse_events(b"".join(response.chunks)) if "id" in event]


async def heard(response: RecordedResponse, count: int) -> list[dict[str, str]]:
    """Wait for so many events."""
    while len(events := parse_events(b"".join(response.chunks))) < count:
        response.news.clear()
        await response.news.wait()
    return events


@pytest.mark.row("ST-07")
@pytest.mark.row("ST-09")
@pytest.mark.row("ST-10")
async def test_a_call_that_reports_progress_is_a_stream_and_a_quick_one_is_not() -> None:
    async with wire() as peer:
        await peer.enter()
        response, task = peer.call("quick")
        await task
        assert response.said == ["reply"]
        response, task = peer.call("steps", id=2, count=2)
        await task
        events = parse_events(b"".join(response.chunks))
        stream = events[0]["id"].partition(":")[0]
        assert [event["id"] for event in events] == [f"{stream}:{n}" for n in range(4)]
        assert events[0]["data"] == ""
        assert '"id":2' in events[-1]["data"]
        other, task = peer.call("steps", id=3, count=1)
        await task
        assert not set(ids(other)) & set(ids(response))


@pytest.mark.row("ST-10")
async def test_older_revisions_get_no_event_that_only_sets_a_mark() -> None:
    async with wire() as peer:
        await peer.enter("2025-03-26")
        response, task = peer.call("steps", count=1)
        await task
        assert all(event["data"] for event in parse_events(b"".join(response.chunks)))


@pytest.mark.row("SE-06")
@pytest.mark.row("SE-08")
async def test_a_resumed_stream_has_missed_events_before_new_ones() -> None:
    async with wire() as peer:
        await peer.enter()
        first, task = peer.listen()
        (mark,) = await heard(first, 1)
        await peer.shout(1)
        await heard(first, 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await peer.shout(2)
        again, _ = peer.listen(mark["id"])
        await heard(again, 3)
        await peer.shout(1)
        await heard(again, 4)
        stream = mark["id"].partition(":")[0]
        assert ids(again) == [f"{stream}:{n}" for n in range(1, 5)]


@pytest.mark.row("SE-07")
async def test_an_event_that_is_no_longer_kept_is_reported_as_gone() -> None:
    async with wire(Settings(buffer_events=2)) as peer:
        await peer.enter()
        first, task = peer.listen()
        (mark,) = await heard(first, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await peer.shout(5)
        again, _ = peer.listen(mark["id"])
        events = await heard(again, 1)
        assert "notifications/replay_truncated" in events[0]["data"]


@pytest.mark.row("SE-06")
async def test_the_stream_of_a_call_can_be_resumed() -> None:
    async with wire() as peer:
        await peer.enter()
        response, task = peer.call("steps", id=9, count=5)
        events = await heard(response, 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        again, task = peer.listen(events[-1]["id"])
        await task
        assert '"id":9' in parse_events(b"".join(again.chunks))[-1]["data"]
        assert ids(again)[0].endswith(":2")


@pytest.mark.row("SE-16")
async def test_a_second_reader_replaces_the_first() -> None:
    async with wire() as peer:
        await peer.enter()
        first, old = peer.listen()
        await heard(first, 1)
        second, _ = peer.listen()
        await old
        assert first.said[-1] == "end"
        await heard(second, 1)
        await peer.shout(1)
        await heard(second, 2)


@pytest.mark.row("SE-15")
@pytest.mark.parametrize("how", ["delete", "kill"])
async def test_the_end_of_a_session_is_the_end_of_its_streams(how: str) -> None:
    async with wire() as peer:
        await peer.enter()
        stream, listening = peer.listen()
        await heard(stream, 1)
        call, calling = peer.call("forever", id=4)
        progress, stepping = peer.call("steps", id=5, count=100)
        await heard(progress, 2)
        if how == "delete":
            assert (await peer.driver.ask("DELETE", headers={"mcp-session-id": peer.session})).status == 204
        else:
            (child,) = await which_children(peer.server.company.sessions)
            assert child.pid is not None
            kill(child.pid)
        await asyncio.gather(listening, calling, stepping)
        assert stream.said[-1] == "end"
        assert call.error[:2] == (200, -32603)  # it may have been executed: a 404 would make the client send it again
        assert call.json["id"] == 4
        assert '"id":5,"error"' in parse_events(b"".join(progress.chunks))[-1]["data"]
        assert (await peer.tell(notification())).status == 404


@pytest.mark.row("WC-17")
async def test_a_cancelled_call_gets_an_empty_response_or_its_stream_ends() -> None:
    async with wire() as peer:
        await peer.enter()
        call, calling = peer.call("forever", id=4)
        progress, stepping = peer.call("steps", id=5, count=100)
        await heard(progress, 2)
        for id in (4, 5):
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
            assert (await peer.tell(cancel)).status == 202
        await asyncio.gather(calling, stepping)
        assert (call.status, call.headers["content-type"], call.body) == (200, "text/event-stream", KEEP_ALIVE)
        assert [each for each in parse_events(call.body) if "data" in each] == [], (
            "what the official SDKs take in silence: they log an empty body of type JSON as a parse error"
        )
        assert progress.said[-1] == "end"
        assert b'"id":5' not in b"".join(progress.chunks)


@pytest.mark.row("SE-03")
async def test_a_server_without_sessions_answers_requests() -> None:
    server = Server("single", settings=Settings(sessions=False))

    @server.tool
    async def quick(ctx: Any) -> str:
        return str(ctx.session_id) or "done"

    async with server.started():
        driver = EngineDriver()
        driver.engine = server._engine(driver.config)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        response = await driver.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert response.status == 200
        assert "mcp-session-id" not in response.headers
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "quick"}}
        response = await driver.post(call)
        assert response.json["result"]["content"][0]["text"] == "done"
        assert (await driver.ask("GET")).status == 405
        await asyncio.sleep(1)
        assert await which_children(server.company.sessions) == []
