"""The route to a server in the same loop behaves as any other wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import snapshot, start_connection

from greenroom import Context, Server
from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.errors import RequestLost
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.settings import ClientSettings
from greenroom.protocol.errors import BadAnswer, PeerError
from greenroom.protocol.jsonrpc import LIMITS
from greenroom.supervision import current_node, kill
from greenroom.transports.client.errors import ConnectFailed, WireFull
from greenroom.transports.client.memory_route import MAX_QUEUED, MemoryRoute

from .client_helpers import phase

if TYPE_CHECKING:
    from greenroom.actors.client.connection_line import ConnectionLine


def server() -> Server:
    made = Server("stage")

    @made.tool
    async def name(ctx: Context) -> str:
        answer = await ctx.elicit("who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return str(answer)

    @made.tool
    async def work(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step, 3)
        await ctx.log("info", "done")
        return "worked"

    return made


def kill_session() -> None:
    for process in tuple(current_node().processes.values()):
        if process.label == "session":
            kill(process.pid)


@pytest.mark.row("CT-01", "CL-11", "CL-20", "CL-23")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_both_ways(mode: str) -> None:
    heard: list[str] = []

    class Guest(ClientHandler):
        def capabilities(self) -> dict[str, Any]:
            return {"elicitation": {}}

        def handle_request(self, method: str, params: dict[str, Any]) -> Any:
            assert method == "elicitation/create"
            return {"action": "accept", "content": {"name": "greenroom"}}

        def handle_notification(self, method: str, params: dict[str, Any]) -> None:
            heard.append(method)

    async with server().started() as company:
        line = await start_connection(MemoryRoute(company), ClientSettings(mode=mode), handler=Guest())
        result = await line.request("tools/call", {"name": "name", "arguments": {}})
        assert "greenroom" in result["content"][0]["text"]
        working = line.begin("tools/call", {"name": "work", "arguments": {}}, progress=True)
        assert [each.progress async for each in working.progress()] == [0, 1, 2]
        assert (await working.result())["content"][0]["text"] == "worked"
        await line.request("ping")
        assert "notifications/message" in heard
        await line.close()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_message_that_is_too_large_is_refused_alone(mode: str) -> None:
    class Guest(ClientHandler):
        def capabilities(self) -> dict[str, Any]:
            return {"elicitation": {}}

        def handle_request(self, method: str, params: dict[str, Any]) -> Any:
            return {"action": "accept", "content": {"name": "x" * LIMITS.size}}

    async with server().started() as company:
        line = await start_connection(MemoryRoute(company), ClientSettings(mode=mode), handler=Guest())
        await line.ready()
        meanwhile = line.begin("tools/call", {"name": "work", "arguments": {}})
        for arguments in ({"text": "x" * LIMITS.size}, {"number": 10**400}):
            with pytest.raises(PeerError, match=r"too large|digits"):
                await line.request("tools/call", {"name": "work", "arguments": arguments})
        await line.notify("notifications/much", {"text": "x" * LIMITS.size})
        with pytest.raises(PeerError, match="too large"):  # our answer was, so the tool got none
            await line.request("tools/call", {"name": "name", "arguments": {}})
        assert (await meanwhile.result())["content"][0]["text"] == "worked"
        assert line.status.generation == 1
        await line.close()


async def test_an_answer_may_be_longer_than_a_request_and_one_that_is_too_long_fails_alone() -> None:
    long = Server("long")

    @long.tool
    def say(times: int) -> str:
        return "x" * times

    async with long.started() as company:
        line = await start_connection(MemoryRoute(company, line=3 * LIMITS.size))
        result = await line.request("tools/call", {"name": "say", "arguments": {"times": 2 * LIMITS.size}})
        assert len(result["content"][0]["text"]) == 2 * LIMITS.size
        with pytest.raises(BadAnswer, match="too large"):
            await line.request("tools/call", {"name": "say", "arguments": {"times": 3 * LIMITS.size}})
        assert (await line.request("ping")) == {}
        await line.close()


async def test_a_session_that_dies_is_a_loss_and_another_one_is_begun() -> None:
    async with server().started() as company:
        line = await start_connection(MemoryRoute(company), ClientSettings(mode="legacy"))
        await line.ready()
        kill_session()
        status = await phase(line, Phase.READY, lambda status: status.generation == 2)
        assert status.cause is None
        assert len((await line.request("tools/list"))["tools"]) == 2
        await line.close()


async def test_a_wire_that_is_killed_takes_its_session_along() -> None:
    async with server().started() as company:
        line = await start_connection(MemoryRoute(company))
        await line.ready()
        books = await snapshot(line)
        assert books["wires"] == ["memory"]
        await line.close()
        assert await company.peers.all() == []


async def test_a_company_that_does_not_run_is_a_connection_that_failed() -> None:
    async def prepare() -> None:
        raise OSError("it is closed on Mondays")

    line: ConnectionLine
    for route, words in (
        (MemoryRoute(server().company), "the server does not run"),
        (MemoryRoute(server().company, prepare=prepare), "Mondays"),
    ):
        line = await start_connection(route, ClientSettings(park_after=1))
        status = await phase(line, Phase.PARKED)
        assert isinstance(status.cause, ConnectFailed)
        assert words in str(status.cause)
        await line.close()


async def test_the_queue_of_unread_messages_is_bounded() -> None:
    async with server().started() as company:
        line = await start_connection(MemoryRoute(company))
        await line.ready()
        asked = [line.begin("ping") for _ in range(MAX_QUEUED + 10)]
        lost: list[Exception] = []
        for each in asked:
            try:
                assert await each.result() == {}
            except RequestLost as error:
                lost.append(error.cause)
        assert [type(cause) for cause in lost] == [WireFull] * 10
        assert await line.request("ping") == {}
        await line.close()


@pytest.mark.greenroom
async def test_messages_that_a_dead_session_has_not_read_go_to_the_next_session() -> None:
    made = server()
    async with made.started() as company:
        line = await start_connection(MemoryRoute(company), ClientSettings(mode="legacy"), name="stage")
        await line.ready()
        kill_session()  # the wire has yet to hear of it
        assert (await line.request("tools/call", {"name": "work", "arguments": {}}))["content"][0]["text"] == "worked"
        assert line.status.generation == 2
        await line.close()
