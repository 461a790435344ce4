"""Requests from the server: each is answered once, whatever the handler does, and the connection is not affected."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import snapshot

from greenroom.actors.client.client_handler import ClientHandler, Deferred
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcMessage,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
)
from greenroom.supervision import CrashReport, Report, current_node, kill
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import playing

if TYPE_CHECKING:
    from .fake_server import Stage


class Player(ClientHandler):
    """Answers as it is told to, and remembers what it has heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.deferred = Deferred()
        self.began = self.ended = 0
        self.line: Any = None
        self.slow = asyncio.Event()

    def init(self, line: Any) -> None:
        self.began += 1
        self.line = line

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        match method:
            case "echo":
                return params
            case "nothing":
                return None
            case "refuse":
                raise McpError(-1, "the user said no")
            case "crash":
                raise RuntimeError("a secret")
            case "leave":
                sys.exit(3)
            case "interrupt":
                raise KeyboardInterrupt
            case "cancel":
                raise asyncio.CancelledError
            case "unsayable":
                return {"x": object()}
            case "later":
                return self.deferred
            case "ask back":
                return await self.line.request("ping")
            case _:
                return await asyncio.sleep(10_000)

    def handle_notification(self, method: str, params: dict[str, Any]) -> Any:
        if method == "bomb":
            raise RuntimeError("bomb")
        self.heard.append((method, params))
        return self.slow.wait() if method == "slow" else None

    def terminate(self) -> None:
        self.ended += 1


def answer_of(id: int | str) -> Any:
    def matches(message: JsonRpcMessage) -> bool:
        return isinstance(message, JsonRpcResponse | JsonRpcError) and message.id == id

    return matches


async def ask(stage: Stage, method: str, params: dict[str, Any] | None = None, id: str = "s1") -> Any:
    """A matcher for the client's reply."""
    stage.wire.say(JsonRpcRequest(id, method, params or {}))
    message = await stage.wire.hears(answer_of(id))
    return message.result if isinstance(message, JsonRpcResponse) else getattr(message, "error", None)


@pytest.mark.row("CL-20")
async def test_a_handler_answers_refuses_and_asks_back() -> None:
    async with playing(handler=Player()) as (_, stage):
        assert await ask(stage, "echo", {"a": 1}) == {"a": 1}
        assert await ask(stage, "nothing", id="s2") == {}
        error = await ask(stage, "refuse", id="s3")
        assert (error.code, error.message) == (-1, "the user said no")
        assert await ask(stage, "ask back", id="s4") == {}


@pytest.mark.row("CL-22")
async def test_without_a_handler_every_request_is_unknown_but_ping() -> None:
    async with playing() as (_, stage):
        assert (await ask(stage, "sampling/createMessage")).code == ErrorCode.METHOD_NOT_FOUND
        assert await ask(stage, "ping", id="s2") == {}
        stage.wire.say(
            JsonRpcNotification("notifications/whatever", {}), JsonRpcNotification("notifications/cancelled", {})
        )
        assert await ask(stage, "ping", id="s3") == {}


@pytest.mark.row("CL-20")
@pytest.mark.parametrize("method", ["crash", "leave", "interrupt", "cancel", "unsayable"])
async def test_whatever_a_handler_raises_is_an_internal_error_and_the_connection_lives(method: str) -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with playing(handler=Player()) as (line, stage):
        error = await ask(stage, method)
        assert (error.code, error.message) == (ErrorCode.INTERNAL_ERROR, "Internal error")
        assert await line.request("ping") == {}
        assert line.status.generation == 1
        assert (await snapshot(line))["server_requests"] == []
    if method in ("crash", "leave", "interrupt"):
        assert any(isinstance(report, CrashReport) for report in reports)


async def test_a_handler_that_hangs_is_given_up_and_one_that_is_cancelled_is_ended() -> None:
    async with playing(handler=Player(), server_request_timeout=5.0) as (line, stage):
        error = await ask(stage, "hang")
        assert "in time" in error.message
        assert asyncio.get_running_loop().time() == pytest.approx(5.0)
        stage.wire.say(JsonRpcRequest("s2", "hang", {}))
        assert (await snapshot(line))["server_requests"] == ["hang"]
        stage.wire.say(JsonRpcNotification("notifications/cancelled", {"requestId": "s2"}))
        assert (await snapshot(line))["server_requests"] == []
        await asyncio.sleep(10)
        assert not [each for each in stage.wire.heard if answer_of("s2")(each)]


async def test_server_requests_are_bounded_and_slow_ones_delay_no_other() -> None:
    async with playing(handler=Player(), max_server_requests=3) as (line, stage):
        for number in range(3):
            stage.wire.say(JsonRpcRequest(number, "hang", {}))
        error = await ask(stage, "echo")
        assert "at most 3" in error.message
        assert (await ask(stage, "echo", id=0)).code == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
        assert await line.request("ping") == {}
        await stage.wire.break_off(ConnectionLost("cut"))
        await line.ready()
        await line.request("ping")
        assert (await snapshot(line))["server_requests"] == []


async def test_killed_handler_processes_are_answered_for_and_replaced() -> None:
    player = Player()
    async with playing(handler=player) as (line, stage):
        stage.wire.say(JsonRpcRequest("s1", "hang", {}))
        assert (await snapshot(line))["server_requests"] == ["hang"]
        for process in tuple(current_node().processes.values()):
            if process.label in ("_run_handler", "_dispatch_notifications"):
                kill(process.pid)
        message = await stage.wire.hears(answer_of("s1"))
        assert isinstance(message, JsonRpcError)
        assert message.error.message == "Internal error"
        stage.wire.say(JsonRpcNotification("own/thing", {}))
        assert await line.request("ping") == {}
        assert player.heard == [("own/thing", {})]


@pytest.mark.row("CL-21")
@pytest.mark.parametrize("where", ["task", "thread"])
async def test_an_answer_may_come_later_from_anywhere_once(where: str) -> None:
    player = Player()
    async with playing(handler=player) as (line, stage):
        stage.wire.say(JsonRpcRequest("s1", "later", {}))
        assert (await snapshot(line))["server_requests"] == ["later"]
        assert await line.request("ping") == {}
        if where == "thread":
            thread = threading.Thread(target=player.deferred.reply, args=({"late": 1},))
            thread.start()
            await asyncio.to_thread(thread.join)
        else:
            assert player.deferred.reply({"late": 1})
        assert not player.deferred.fail(RuntimeError("too late"))
        message = await stage.wire.hears(answer_of("s1"))
        assert message == JsonRpcResponse("s1", {"late": 1})
        await line.request("ping")
        assert len([each for each in stage.wire.heard if answer_of("s1")(each)]) == 1


@pytest.mark.row("CL-21")
async def test_a_deferred_answer_may_be_there_before_it_is_returned_or_be_an_error() -> None:
    player = Player()
    player.deferred.fail(McpError(-1, "no"))
    async with playing(handler=player) as (_, stage):
        assert (await ask(stage, "later")).code == -1
        player.deferred = Deferred()
        player.deferred.fail(RuntimeError("a secret"))
        assert (await ask(stage, "later", id="s2")).message == "Internal error"


async def test_a_deferred_answer_after_its_wire_ended_is_dropped() -> None:
    player = Player()
    async with playing(handler=player) as (line, stage):
        stage.wire.say(JsonRpcRequest("s1", "later", {}))
        await line.request("ping")
        await stage.wire.break_off(ConnectionLost("cut"))
        await line.ready()
        player.deferred.reply({})
        await line.request("ping")
        assert not [each for wire in stage.wires for each in wire.heard if answer_of("s1")(each)]
    assert not player.deferred.reply({})


@pytest.mark.row("CL-23")
async def test_every_notification_reaches_the_handler_in_order() -> None:
    player = Player()
    async with playing(handler=player) as (line, stage):
        assert player.line is line
        for number in range(50):
            stage.wire.say(JsonRpcNotification("own/thing", {"n": number}))
        stage.wire.say(JsonRpcNotification("notifications/progress", {"progressToken": 1, "progress": 1}))
        stage.wire.say(JsonRpcNotification("notifications/resources/updated", {"uri": "a:b"}))
        await line.request("ping")
        assert [params["n"] for method, params in player.heard if method == "own/thing"] == list(range(50))
        assert [method for method, _ in player.heard[50:]] == [
            "notifications/progress",
            "notifications/resources/updated",
        ]
    await asyncio.sleep(1)
    assert (player.began, player.ended) == (1, 1)


async def test_a_handler_that_raises_at_a_notification_hears_the_next_one() -> None:
    player = Player()
    async with playing(handler=player) as (line, stage):
        stage.wire.say(JsonRpcNotification("bomb", {}))
        await line.request("ping")
        stage.wire.say(JsonRpcNotification("own/thing", {}))
        await line.request("ping")
        assert player.heard == [("own/thing", {})]
        assert player.began == 2


async def test_a_handler_that_does_not_keep_up_loses_what_is_new_and_that_is_told_once() -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    player = Player()
    async with playing(handler=player, max_updates=10) as (line, stage):
        stage.wire.say(JsonRpcNotification("slow", {}))
        await line.request("ping")
        for number in range(100):
            stage.wire.say(JsonRpcNotification("own/thing", {"n": number}))
        assert await line.request("ping") == {}
        player.slow.set()
        await line.request("ping")
        assert [params["n"] for _, params in player.heard[1:]] == list(range(10))
        assert len([each for each in reports if type(each).__name__ == "NotificationsDropped"]) == 1
