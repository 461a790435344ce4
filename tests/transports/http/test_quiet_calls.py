"""A call that says nothing for long becomes a stream with comments, where its client takes streams; and what is said without a session."""

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

from .engine_driver import Desk, Paper, note, sse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

COMMENT = b": keep-alive\n\n"


class Line:
    """One client of a server whose tool `work` waits until it may go on."""

    desk: Desk

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
        hello = await self.desk.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self.headers = {"mcp-session-id": hello.headers["mcp-session-id"], "mcp-protocol-version": version}
        assert (await self.desk.post(note(), self.headers)).status == 202

    def call(self, name: str = "work", **headers: str) -> tuple[Paper, asyncio.Task[None]]:
        params = {"name": name, "arguments": {}, "_meta": {"progressToken": "t"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()
        return self.begin("POST", {"content-type": "application/json", **headers}, body)

    def begin(self, verb: str, headers: dict[str, str], body: bytes = b"") -> tuple[Paper, asyncio.Task[None]]:
        paper = Paper()
        task = asyncio.create_task(self.desk.begin(paper, verb, "/mcp", {**self.headers, **headers}, body))
        self.tasks.append(task)
        return paper, task


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
        client.desk = Desk.before(company, **config)
        if version is not None:
            await client.enter(version)
        yield client
        for task in client.tasks:
            task.cancel()
        await asyncio.gather(*client.tasks, return_exceptions=True)


def answer(paper: Paper) -> Any:
    """The text of the result, at the end of a stream."""
    return json.loads(sse(b"".join(paper.chunks))[-1]["data"])["result"]["content"][0]["text"]


async def test_after_ten_seconds_without_a_word_a_call_is_a_stream_with_comments() -> None:
    async with line() as client:
        paper, task = client.call()
        await advance(9.9)
        assert paper.said == []
        await advance(0.2)
        assert (paper.status, paper.headers["content-type"]) == (200, "text/event-stream")
        assert paper.headers["mcp-session-id"] == client.headers["mcp-session-id"]
        assert paper.chunks == [COMMENT, b"id: p1:0\ndata: \n\n"]
        await advance(20.1)
        assert paper.chunks[2:] == [COMMENT, COMMENT]
        client.go.set()
        await task
        assert (answer(paper), paper.said[-1]) == ("done", "end")


async def test_a_client_of_an_older_revision_gets_comments_and_no_mark() -> None:
    async with line("2025-06-18") as client:
        paper, task = client.call()
        await advance(20.2)
        assert paper.chunks == [COMMENT, COMMENT]
        client.go.set()
        await task
        assert answer(paper) == "done"


async def test_an_answer_whose_connection_broke_while_it_was_awaited_can_be_had() -> None:
    async with line() as client:
        paper, task = client.call()
        await advance(10.1)
        assert len(paper.chunks) == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        client.go.set()
        again, task = client.begin("GET", {"last-event-id": "p1:0"})
        await task
        assert answer(again) == "done"


async def test_a_client_that_takes_no_stream_waits_for_its_answer() -> None:
    async with line(accept="either") as client:
        paper, task = client.call(accept="application/json")
        await advance(59)
        client.go.set()
        await task
        assert (paper.said, paper.json["result"]["content"][0]["text"]) == (["reply"], "done")


@pytest.mark.parametrize(("quiet", "seconds"), [(None, 59.0), (30.0, 29.9)])
async def test_when_a_call_is_quiet_is_a_setting(quiet: float | None, seconds: float) -> None:
    async with line(quiet_after=quiet) as client:
        paper, task = client.call()
        await advance(seconds)
        assert paper.said == []
        client.go.set()
        await task
        assert paper.said == ["reply"]


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), "10"])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="quiet_after"):
        HttpConfig(quiet_after=wrong)


async def test_a_stream_that_a_call_has_already_is_kept_alive_as_often() -> None:
    async with line() as client:
        paper, task = client.call("speak")
        await client.begun.wait()
        await paper.until(1)
        await advance(0)
        before = len(paper.chunks)
        await advance(30.1)
        assert paper.chunks[before:] == [COMMENT] * 3
        client.go.set()
        await task
        assert (answer(paper), client.told) == ("done", [True, True])


# --- without sessions


async def test_without_sessions_what_is_said_comes_before_the_answer_and_has_no_ids() -> None:
    async with line(None, session_enabled=False) as client:
        paper, task = client.call("speak")
        await client.begun.wait()
        client.go.set()
        await task
        events = sse(b"".join(paper.chunks))
        assert [json.loads(event["data"]).get("method") for event in events] == [
            "notifications/progress",
            "notifications/message",
            None,
        ]
        assert all("id" not in event for event in events)
        assert "mcp-session-id" not in paper.headers
        assert (answer(paper), client.told) == ("done", [True, True])
        await advance(1)
        assert await which_children(client.server.company.sessions) == []


async def test_without_sessions_a_client_that_takes_no_stream_is_told_nothing_and_the_tool_knows() -> None:
    async with line(None, session_enabled=False, accept="either") as client:
        client.go.set()
        paper, task = client.call("speak", accept="application/json")
        await task
        assert paper.json["result"]["content"][0]["text"] == "done"
        assert client.told == [False, False]


async def test_without_sessions_a_quiet_call_is_a_stream_as_well() -> None:
    async with line(None, session_enabled=False) as client:
        paper, task = client.call()
        await advance(20.2)
        assert paper.chunks == [COMMENT, COMMENT]
        client.go.set()
        await task
        assert (answer(paper), paper.said[-1]) == ("done", "end")


async def test_without_sessions_a_stream_that_is_left_ends_its_call() -> None:
    async with line(None, session_enabled=False) as client:
        paper, task = client.call()
        await advance(10.1)
        assert paper.said[0] == "start"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await advance(2)
        assert client.ended.is_set()
        assert await which_children(client.server.company.sessions) == []


# --- on a socket


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("sessions", [True, False])
async def test_our_client_takes_a_quiet_answer_on_a_real_connection(sessions: bool) -> None:  # noqa: FBT001
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
