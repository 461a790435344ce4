"""A client's calls, each way against each ending: exactly one `CallEnded`, with the outcome of its caller.

Two outcomes are no client's. `asks`: a request that is answered with questions goes on as the same call, whatever its rounds. `worker_crashed`: the handler
is the server's, which answers with an error. And only the end of a process that this program started is `process_ended`; over HTTP it is `peer_gone`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.heard_events import HeardEvents, hearing

from greenroom import Client, ClientSettings
from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.connection_line import ConnectionLine
from greenroom.actors.client.errors import ClientError
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.server_connection import ServerConnection
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import PeerError, RemoteProtocolError
from greenroom.supervision import Backoff, kill, spawn, start, wait_down
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, HttpError, NodeEnded, ProcessDied
from greenroom.transports.client.interfaces import InvalidMessage

from .calls_program import make_server
from .client_helpers import phase, playing
from .fake_server import SILENCE, After, Garbled, Stage
from .stateless_stage import asking, discovered, in_turn, stateless_stage
from .task_script import CALL, UNKNOWN, TaskScript, completed, task, working
from .test_input_rounds import DONE, Answering

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from greenroom.actors.client.interfaces import Line, Pending
    from greenroom.actors.client.pending_requests import PendingRequest
    from greenroom.protocol.jsonrpc import JsonRpcRequest

    Ending = Callable[[ConnectionLine, Stage], Awaitable[object]]

PROGRAM = Path(__file__).with_name("calls_program.py")
MODES = {"handshake": "legacy", "stateless": "auto"}
STEADY = Backoff(first=1.0, factor=1.0, longest=1.0, jitter=0.0)


def outcomes(heard: HeardEvents, method: str = "tools/call") -> list[str]:
    """How the calls of this method ended, once all others have ended as well."""
    assert heard.unbalanced() == []
    return [each.outcome for each in heard.ended(method)]


async def over(pending: PendingRequest) -> None:
    """Wait until the request has its outcome, whatever it is."""
    with contextlib.suppress(GreenroomError):
        await pending


async def settled(pending: PendingRequest) -> None:
    """Wait until the request has its error."""
    with pytest.raises(GreenroomError):
        await pending


# --- each ending, with a server in both eras


def answering(answer: Any) -> Ending:
    async def end(line: ConnectionLine, stage: Stage) -> None:
        stage.answers["tools/call"] = answer
        pending = line.begin("tools/call", CALL, timeout=5.0)
        await over(pending)

    return end


def silent(act: Callable[[ConnectionLine, Stage, PendingRequest], Awaitable[object] | None]) -> Ending:
    """The server is silent, and then this happens."""

    async def end(line: ConnectionLine, stage: Stage) -> None:
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        waiting = act(line, stage, pending)
        if waiting is not None:
            await waiting
        await settled(pending)

    return end


async def in_a_process_that_ends(line: ConnectionLine, stage: Stage) -> None:
    stage.answers["tools/call"] = SILENCE
    pid = spawn(line.request, "tools/call", CALL)
    await stage.wire.hears("tools/call")
    kill(pid)
    await wait_down(pid)


def garbled(request: JsonRpcRequest) -> Garbled:
    error = RemoteProtocolError(-32700, "Parse error: rubbish")
    error.response_to = request.id
    return Garbled(InvalidMessage(error, "rubbish"))


async def full_wire(line: ConnectionLine, stage: Stage) -> None:
    stage.wire.full = True
    await settled(line.begin("tools/call", CALL))


async def no_capability(line: ConnectionLine, stage: Stage) -> None:
    capabilities = {name: value for name, value in stage.capabilities.items() if name != "tools"}
    stage.capabilities = capabilities
    stage.answers["server/discover"] = discovered(capabilities=capabilities)
    await stage.wire.break_off(ConnectionLost("deployed anew"))
    await line.ready()
    await settled(line.begin("tools/call", CALL))


async def without_time(line: ConnectionLine, _: Stage) -> None:
    await settled(line.begin("tools/call", CALL, timeout=0))


async def no_json(line: ConnectionLine, _: Stage) -> None:
    await settled(line.begin("tools/call", {**CALL, "arguments": {"a": object()}}))


async def after_the_end(line: ConnectionLine, _: Stage) -> None:
    await line.close()
    await settled(line.begin("tools/call", CALL))


async def while_it_is_away(line: ConnectionLine, stage: Stage) -> None:
    stage.failures = [ConnectFailed("no server listens there")] * 2
    await stage.wire.break_off(ConnectionLost("gone"))
    await phase(line, Phase.BACKOFF)
    await settled(line.begin("tools/call", CALL, wait=False))
    await settled(line.begin("tools/call", CALL, timeout=0.5))


ENDINGS: list[tuple[str, Ending, list[str]]] = [
    ("a result", answering({"content": []}), ["result"]),
    ("a tool's error", answering({"content": [], "isError": True}), ["tool_error"]),
    ("an error", answering(PeerError(-32000, "no")), ["error"]),
    ("an invalid answer", answering(garbled), ["error"]),
    ("its deadline", answering(SILENCE), ["deadline"]),
    ("no time at all", without_time, ["deadline"]),
    ("its caller", silent(lambda _line, _stage, pending: pending.cancel()), ["cancelled"]),
    ("its caller's process", in_a_process_that_ends, ["cancelled"]),
    ("a lost wire", silent(lambda _, stage, __: stage.wire.break_off(ConnectionLost("gone"))), ["peer_gone"]),
    ("a refusal by HTTP", answering(HttpError(500)), ["peer_gone"]),
    ("a dead program", silent(lambda _, stage, __: stage.wire.break_off(ProcessDied("p", 3))), ["process_ended"]),
    ("a dead node", silent(lambda _, stage, __: stage.wire.break_off(NodeEnded("was killed"))), ["process_ended"]),
    ("a dead connection", silent(lambda line, _, __: kill(line.pid)), ["peer_gone"]),
    ("a closed client", silent(lambda line, _, __: line.close()), ["peer_gone"]),
    ("a full wire", full_wire, ["refused"]),
    ("no such capability", no_capability, ["refused"]),
    ("a value that is no JSON", no_json, ["refused"]),
    ("a client that was closed", after_the_end, ["refused"]),
    ("a server that is away", while_it_is_away, ["refused", "refused"]),
]


@pytest.mark.parametrize("era", MODES)
@pytest.mark.parametrize(("end", "expected"), [pytest.param(end, each, id=name) for name, end, each in ENDINGS])
async def test_each_ending_is_told_once(era: str, end: Ending, expected: list[str]) -> None:
    stage = stateless_stage() if era == "stateless" else Stage()
    with hearing() as heard:
        async with playing(stage, mode=MODES[era], backoff=STEADY) as (line, _):
            await end(line, stage)
    assert outcomes(heard) == expected


# --- endings of one era


async def test_a_request_with_rounds_is_one_call() -> None:
    stage = stateless_stage(answers={"tools/call": in_turn(asking("name"), asking("name"), DONE)})
    with hearing() as heard:
        async with playing(stage, handler=Answering()) as (line, _):
            await line.request("tools/call", CALL)
    assert outcomes(heard) == ["result"]


async def test_a_question_without_an_answer_is_an_error() -> None:
    stage = stateless_stage(answers={"tools/call": asking("name")})
    with hearing() as heard:
        async with playing(stage, handler=Answering(PeerError(-1, "no"))) as (line, _):
            await settled(line.begin("tools/call", CALL))
    assert outcomes(heard) == ["error"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([working(), completed()], "result"),
        ([task("completed", result={"content": [], "isError": True})], "tool_error"),
        ([task("failed", error={"code": -32011, "message": "shut"})], "error"),
        ([task("cancelled")], "cancelled"),
        ([UNKNOWN], "error"),
    ],
)
async def test_a_call_that_becomes_a_task_ends_with_it(states: list[Any], expected: str) -> None:
    script = TaskScript(*states, created=working())
    with hearing() as heard:
        async with playing(script.stage, request_timeout=None) as (line, _):
            await over(line.begin("tools/call", CALL))
    assert outcomes(heard) == [expected]
    assert heard.ended("tasks/get")


async def test_a_resent_request_is_one_call() -> None:
    stage = stateless_stage(answers={"resources/read": in_turn(HttpError(429, retry_after=2.0), {"contents": []})})
    with hearing() as heard:
        async with playing(stage) as (line, _):
            await line.request("resources/read", {"uri": "a:1"})
    (call,) = heard.ended("resources/read")
    assert (call.outcome, call.queued) == ("result", 0.0)
    assert call.seconds >= 2.0
    assert heard.unbalanced() == []


# --- the connection's own requests


async def test_a_handshake_that_is_refused_is_an_error_and_one_without_an_answer_a_deadline() -> None:
    stage = Stage()
    welcome = {"protocolVersion": stage.version, "capabilities": {}, "serverInfo": {"name": "stage", "version": "1"}}
    stage.answers["initialize"] = in_turn(PeerError(-32000, "no"), SILENCE, welcome)
    with hearing() as heard:
        async with playing(stage, ready=False, mode="legacy", backoff=STEADY, init_timeout=3.0) as (line, _):
            await line.ready(60.0)
    assert outcomes(heard, "initialize") == ["error", "deadline", "result"]


async def test_a_program_that_is_silent_to_the_first_question_has_let_it_pass() -> None:
    stage = Stage()
    stage.answers["server/discover"] = SILENCE
    with hearing() as heard:
        async with playing(stage, probe_timeout=2.0) as (line, _):
            await line.ready()
    assert outcomes(heard, "server/discover") == ["deadline"]
    assert [each.seconds for each in heard.ended("server/discover")] == [2.0]
    assert outcomes(heard, "initialize") == ["result"]


async def test_pings_are_calls_also_those_without_an_answer() -> None:
    stage = Stage()
    stage.answers["ping"] = in_turn({}, SILENCE, {}, {})
    with hearing() as heard:
        async with playing(stage, mode="legacy", ping_interval=1.0, ping_timeout=0.5, ping_failure_threshold=1) as (
            line,
            _,
        ):
            await stage.opened(2)
            await phase(line, Phase.READY)
    assert outcomes(heard, "ping")[:2] == ["result", "peer_gone"]


async def test_notifications_are_no_calls() -> None:
    with hearing() as heard:
        async with playing(mode="legacy") as (line, _):
            await line.notify("notifications/roots/list_changed")
    assert {each.method for each in heard.ended("") + heard.ended("initialize")} == {"initialize"}
    assert heard.unbalanced() == []


# --- where it waits


async def test_the_time_until_a_request_is_sent_is_told() -> None:
    stage = Stage()
    stage.answers["tools/call"] = After(1.0, {"content": []})
    line = ConnectionLine("stage", ClientSettings(mode="legacy"))
    line.supervised = True
    with hearing(details=True) as heard:
        pending = line.begin("tools/call", CALL)
        await asyncio.sleep(2.0)
        await start(ServerConnection, line, stage, ClientHandler())
        await pending
        await line.close()
    (call,) = heard.ended("tools/call")
    assert (call.queued, call.seconds) == (2.0, 3.0)


async def test_too_many_requests_are_refused_and_those_that_wait_are_ended_with_the_client() -> None:
    stage = Stage()
    stage.answers["tools/call"] = SILENCE
    with hearing() as heard:
        async with playing(stage, mode="legacy", max_pending=2) as (line, _):
            pending = [line.begin("tools/call", CALL) for _ in range(3)]
            await settled(pending[2])
    assert sorted(outcomes(heard)) == ["peer_gone", "peer_gone", "refused"]


# --- our own server, over each transport and in both eras


@asynccontextmanager
async def client_of(transport: str, mode: str) -> AsyncGenerator[Client]:
    if transport == "stdio":
        async with Client([sys.executable, str(PROGRAM)], mode=mode, name="calls") as client:
            yield client
        return
    server = make_server()
    async with server.started():
        target: Any = server if transport == "memory" else await server.listen(port=0)
        async with Client(target, mode=mode, name="calls") as client:
            yield client


async def waiting(line: Line) -> Pending:
    """A call that the server works on."""
    begun = line.begin("tools/call", {"name": "wait", "arguments": {}}, progress=True)
    async for _ in begun.progress():
        break
    return begun


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
async def test_each_transport_tells_the_same_endings(transport: str, mode: str) -> None:
    with hearing() as heard:
        async with client_of(transport, mode) as client:
            line = client.line
            await line.begin("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}).result()
            await line.begin("tools/call", {"name": "fail", "arguments": {}}).result()
            with pytest.raises(PeerError):
                await line.begin("tools/call", {"name": "unknown", "arguments": {}}).result()
            with pytest.raises(TimeoutError):
                await line.begin("tools/call", {"name": "wait", "arguments": {}}, timeout=0.05, progress=True).result()
            left = await waiting(line)
            left.cancel()
            await waiting(line)
            with pytest.raises(ClientError):
                await line.begin("completion/complete", {}).result()
            if transport == "stdio":
                died = line.begin("tools/call", {"name": "die", "arguments": {}})
                with pytest.raises(ClientError):
                    await died.result()
    calls = heard.ended("tools/call", "client")
    found = {each.name: each for each in calls} | {"late": calls[3], "left": calls[4], "lost": calls[-1]}
    assert {name: each.outcome for name, each in found.items() if name != "wait"} == {
        "add": "result",
        "fail": "tool_error",
        "unknown": "error",
        "late": "deadline",
        "left": "cancelled",
        "lost": "process_ended" if transport == "stdio" else "peer_gone",
        **({"die": "process_ended"} if transport == "stdio" else {}),
    }
    assert [each.outcome for each in heard.ended("completion/complete", "client")] == ["refused"]
    assert {(each.program, each.transport) for each in calls} == {("calls", transport)}
    assert all(each.address.startswith("127.0.0.1:") if transport == "http" else each.address == "" for each in calls)
    client_calls = {each.call for each in heard.of(type(calls[0])) if each.side == "client"}
    assert not client_calls.intersection(heard.unbalanced())
