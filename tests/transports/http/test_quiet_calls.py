"""A long quiet call becomes a stream with comments for a client that accepts streams; and messages outside of sessions."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Context, HttpConfig, Server
from greenroom.errors import ConfigError
from greenroom.supervision import which_children
from greenroom.supervision.testing import advance

from .engine_driver import EngineDriver, RecordedResponse, notification, parse_events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

COMMENT = b": keep-alive\n\n"


class Line:
    """One client of a server whose tool `work` waits until told to continue."""

    driver: EngineDriver

    def __init__(self, server: Server) -> None:
        self.server = server
        self.go = asyncio.Event()
        self.told: list[bool] = []
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.headers: dict[str, str | None] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def enter(self, version: str) -> None:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        hello = await self.driver.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.headers = {"mcp-session-id": hello.headers["mcp-session-id"], "mcp-protocol-version": version}
        assert (await self.driver.post(notification(), self.headers)).status == 202

    def call(self, name: str = "work", **headers: str) -> tuple[RecordedResponse, asyncio.Task[None]]:
        params = {"name": name, "arguments": {}, "_meta": {"progressToken": "t"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()
        return self.begin("POST", {"content-type": "application/json", **headers}, body)

    def begin(
        self, verb: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[RecordedResponse, asyncio.Task[None]]:
        response = RecordedResponse()
        task = asyncio.create_task(self.driver.begin(response, verb, "/mcp", {**self.headers, **headers}, body))
        self.tasks.append(task)
        return response, task


@asynccontextmanager
async def line(version: str | None = "2025-11-25", **config: Any) -> AsyncGenerator[Line]:
    server = Server("quiet")
    client = Line(server)

    @server.tool
    async def work() -> str:
        client.begun.set()
        try:
            await client.go.wait()
        finally:
            client.ended.set()
        return "done"

    @server.tool
    async def speak(ctx: Context) -> str:
        client.told.append(await ctx.progress(1, 2))
        client.told.append(await ctx.info("half"))
        client.begun.set()
        await client.go.wait()
        return "done"

    async with server.started() as company:
        client.driver = EngineDriver.before(company, **config)
        if version is not None:
            await client.enter(version)
        yield client
        for task in client.tasks:
            task.cancel()
        await asyncio.gather(*client.tasks, return_exceptions=True)


def answer(response: RecordedResponse) -> Any:
    """The text of the result at the end of a stream."""
    return json.loads(parse_events(b"".join(response.chunks))[-1]["data"])["result"]["content"][0]["text"]


async def test_a_call_without_a_message_for_ten_seconds_becomes_a_stream_with_comments() -> None:
    async with line() as client:
        response, task = client.call()
        await advance(9.9)
        assert response.said == []
        await advance(0.2)
        assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
        assert response.headers["mcp-session-id"] == client.headers["mcp-session-id"]
        assert response.chunks == [COMMENT, b"id: p1:0\ndata: \n\n"]
        await advance(20.1)
        assert response.chunks[2:] == [COMMENT, COMMENT]
        client.go.set()
        await task
        assert (answer(response), response.said[-1]) == ("done", "end")


async def test_a_client_of_an_older_revision_gets_comments_and_no_mark() -> None:
    async with line("2025-06-18") as client:
        response, task = client.call()
        await advance(20.2)
        assert response.chunks == [COMMENT, COMMENT]
        client.go.set()
        await task
        assert answer(response) == "done"


async def test_a_reply_whose_connection_broke_can_be_resumed() -> None:
    async with line() as client:
        response, task = client.call()
        await advance(10.1)
        assert len(response.chunks) == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        client.go.set()
        again, task = client.begin("GET", {"last-event-id": "p1:0"})
        await task
        assert answer(again) == "done"


async def test_a_client_that_accepts_no_stream_waits_for_its_reply() -> None:
    async with line(accept="either") as client:
        response, task = client.call(accept="application/json")
        await advance(59)
        client.go.set()
        await task
        assert (response.said, response.json["result"]["content"][0]["text"]) == (["reply"], "done")


@pytest.mark.parametrize(("quiet", "seconds"), [(None, 59.0), (30.0, 29.9)])
async def test_quiet_after_is_a_setting(quiet: float | None, seconds: float) -> None:
    async with line(quiet_after=quiet) as client:
        response, task = client.call()
        await advance(seconds)
        assert response.said == []
        client.go.set()
        await task
        assert response.said == ["reply"]


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), "10"])
def test_an_invalid_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="quiet_after"):
        HttpConfig(quiet_after=wrong)


async def test_the_stream_of_a_call_carries_comments_as_often() -> None:
    async with line() as client:
        response, task = client.call("speak")
        await client.begun.wait()
        await response.until(1)
        await advance(0)
        before = len(response.chunks)
        await advance(30.1)
        assert response.chunks[before:] == [COMMENT] * 3
        client.go.set()
        await task
        assert (answer(response), client.told) == ("done", [True, True])


# --- without sessions


async def test_without_sessions_messages_before_the_reply_have_no_event_ids() -> None:
    async with line(None, session_enabled=False) as client:
        response, task = client.call("speak")
        await client.begun.wait()
        client.go.set()
        await task
        events = parse_events(b"".join(response.chunks))
        assert [json.loads(event["data"]).get("method") for event in events] == [
            "notifications/progress",
            "notifications/message",
            None,
        ]
        assert all("id" not in event for event in events)
        assert "mcp-session-id" not in response.headers
        assert (answer(response), client.told) == ("done", [True, True])
        await advance(1)
        assert await which_children(client.server.company.sessions) == []


async def test_without_sessions_a_client_that_accepts_no_stream_gets_only_the_reply_and_the_tool_knows() -> None:
    async with line(None, session_enabled=False, accept="either") as client:
        client.go.set()
        response, task = client.call("speak", accept="application/json")
        await task
        assert response.json["result"]["content"][0]["text"] == "done"
        assert client.told == [False, False]


async def test_without_sessions_a_quiet_call_becomes_a_stream_as_well() -> None:
    async with line(None, session_enabled=False) as client:
        response, task = client.call()
        await advance(20.2)
        assert response.chunks == [COMMENT, COMMENT]
        client.go.set()
        await task
        assert (answer(response), response.said[-1]) == ("done", "end")


async def test_without_sessions_leaving_a_stream_ends_its_call() -> None:
    async with line(None, session_enabled=False) as client:
        response, task = client.call()
        await advance(10.1)
        assert response.said[0] == "start"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await advance(2)
        assert client.ended.is_set()
        assert await which_children(client.server.company.sessions) == []


# --- on a socket


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("sessions", [True, False])
async def test_our_client_reads_a_quiet_reply_on_a_real_connection(sessions: bool) -> None:  # noqa: FBT001
    server = Server("quiet")
    seen: list[str] = []

    @server.tool
    async def work(ctx: Context) -> str:
        go = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, go.set)
        await go.wait()
        seen.append(str(await ctx.info("late")))
        return "done"

    async with server.started():
        url = await server.listen(config=HttpConfig(port=0, quiet_after=0.02, session_enabled=sessions))
        logs: list[Any] = []
        async with Client(url, on_log=logs.append) as client:
            assert await client.call("work") == "done"
        assert (seen, len(logs)) == (["True"], 1)
        await server.stop_listening(url)
