"""The life of a connection: the handshake, losses and returns, backoff and the end of all attempts, pings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import start_connection, start_link_connection

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import (
    ClientClosed,
    InitFailed,
    InitTimeout,
    Parked,
    ProtocolVersionError,
    RequestLost,
    Unavailable,
)
from greenroom.actors.client.handshake import ConnectionReport, Disconnected, HandshakeSucceeded
from greenroom.actors.client.interfaces import Phase, Status
from greenroom.actors.client.settings import ClientSettings, expand
from greenroom.actors.settings import BadSetting
from greenroom.protocol.errors import ErrorCode, PeerError, RemoteProtocolError
from greenroom.supervision import (
    Backoff,
    Report,
    StartFailed,
    Supervisor,
    current_node,
    inbox,
    kill,
    spawn,
    start,
    stop,
    wait_down,
    whereis,
)
from greenroom.transports.client.errors import (
    ConnectFailed,
    ConnectionLost,
    NotMcp,
    ProcessDied,
    SessionGone,
    Unauthorized,
    WireFull,
)
from greenroom.transports.client.interfaces import InvalidMessage, UnansweredRequest

from .client_helpers import phase, playing
from .fake_server import SILENCE, After, Garbled, Stage

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import JsonRpcRequest

CALL: dict[str, Any] = {"name": "anything", "arguments": {}}
STEADY = Backoff(first=1.0, factor=2.0, longest=8.0, jitter=0.0, quiet=60.0)


# --- the handshake


@pytest.mark.row("CL-02", "CL-05", "CL-07", "CL-24")
async def test_the_handshake_says_who_we_are_and_keeps_who_they_are() -> None:
    class Sampler(ClientHandler):
        def capabilities(self) -> dict[str, Any]:
            return {"sampling": True, "roots": {"list_changed": True, "other": False}, "elicitation": False}

    async with playing(handler=Sampler(), capabilities={"experimental": {"x": {}}}) as (line, stage):
        (hello,) = stage.asked("initialize")
        assert hello.params == {
            "protocolVersion": "2025-11-25",
            "capabilities": {"sampling": {}, "roots": {"listChanged": True}, "experimental": {"x": {}}},
            "clientInfo": {"name": "greenroom", "version": "0"},
        }
        assert stage.notes("notifications/initialized") == [{}]
        assert stage.wire.version == "2025-11-25"
        welcome = line.welcome
        assert welcome is not None
        assert (welcome.version, welcome.server_info["name"], welcome.instructions) == ("2025-11-25", "stage", None)
        assert "tools" in welcome.capabilities
        assert line.status == Status(Phase.READY, generation=1)
        assert line.pid == whereis(line.key)


@pytest.mark.row("CL-07")
def test_capabilities_in_short() -> None:
    assert expand({"a": True, "b": False, "c": None, "d": {"list_changed": True, "e": False}}) == {
        "a": {},
        "d": {"listChanged": True},
    }
    settings = ClientSettings(capabilities={"sampling": False, "roots": {"listChanged": False}})
    assert settings.declared({"sampling": {}, "roots": {"listChanged": True}}) == {"roots": {}}


@pytest.mark.row("26-V6")
def test_extensions_are_declared_with_their_settings_as_they_are() -> None:
    given = {"a/b": True, "com.example/my_notes": {"list_changed": True, "off": False}, "a/c": None, "a/d": False}
    declared = ClientSettings(capabilities={"extensions": given}).declared({})
    assert declared == {"extensions": {"a/b": {}, "com.example/my_notes": {"list_changed": True, "off": False}}}


@pytest.mark.row("CL-02")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("init_timeout", 0),
        ("init_timeout", None),
        ("request_timeout", -1),
        ("ping_interval", float("nan")),
        ("ping_failure_threshold", 0),
        ("park_after", 0),
        ("max_pending", True),
        ("mode", "1999-01-01"),
        ("client_info", {"name": "x"}),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadSetting) as caught:
        ClientSettings(**{name: value})
    assert caught.value.name == name


@pytest.mark.row("CL-06")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_an_older_server_is_taken_up(version: str) -> None:
    async with playing(Stage(version=version)) as (line, stage):
        assert line.welcome is not None
        assert line.welcome.version == stage.wire.version == version


@pytest.mark.row("CL-05", "CL-06")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"protocolVersion": "1.0", "capabilities": {}}, ProtocolVersionError),
        ({"capabilities": {}}, ProtocolVersionError),
        ({"protocolVersion": 7}, ProtocolVersionError),
        (PeerError(-32602, "no such version"), InitFailed),
        (NotMcp("that is a web page"), NotMcp),
        (Unauthorized(), Unauthorized),
    ],
)
async def test_a_handshake_that_is_no_use_parks_the_connection(answer: Any, error: type[Exception]) -> None:
    stage = Stage()
    stage.answers["initialize"] = answer
    async with playing(stage, ready=False) as (line, _):
        waiting = asyncio.create_task(line.request("tools/list"))
        with pytest.raises((error, Parked)) as caught:
            await line.ready()
        assert isinstance(caught.value, error) or isinstance(getattr(caught.value, "cause", None), error)
        assert line.status.phase is Phase.PARKED
        assert isinstance(line.status.cause, error)
        for asked in (waiting, line.request("tools/list", timeout=None)):
            with pytest.raises((error, Parked)):
                await asked
        assert len(stage.wires) == 1
        stage.answers["initialize"] = Stage()._welcome
        line.retry()
        await line.ready()
        assert await line.request("ping") == {}


@pytest.mark.row("CL-05")
async def test_a_server_that_does_not_answer_initialize_is_tried_again() -> None:
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    async with playing(stage, ready=False, init_timeout=3.0, backoff=STEADY) as (line, _):
        status = await phase(line, Phase.BACKOFF)
        assert isinstance(status.cause, InitTimeout)
        assert (status.attempts, status.retry_in) == (1, 1.0)
        assert asyncio.get_running_loop().time() == pytest.approx(3.0)
        stage.answers["initialize"] = Stage()._welcome
        await line.ready()
        assert stage.wires[0].ended
        assert stage.notes("notifications/cancelled") == []


@pytest.mark.parametrize(("lines", "times"), [(1, "once"), (3, "3 times")])
async def test_a_server_that_prints_instead_of_answering_is_told_apart_from_a_slow_one(lines: int, times: str) -> None:
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    async with playing(stage, ready=False, init_timeout=3.0, backoff=STEADY) as (line, _):
        await stage.opened(1)
        for _ in range(lines):
            stage.wire.say(
                InvalidMessage(RemoteProtocolError(ErrorCode.PARSE_ERROR, "no JSON"), "Loading the model" + 100 * ".")
            )
        status = await phase(line, Phase.BACKOFF)
        assert f"no answer within 3 s; it sent an invalid message {times}, such as 'Loading the model..." in str(
            status.cause
        )
        assert len(str(status.cause)) < 250
        await stage.opened(2)
        status = await phase(line, Phase.BACKOFF)  # the next wire is not blamed for it
        assert str(status.cause).endswith("within 3 s")


async def test_a_server_that_refuses_for_now_is_tried_again() -> None:
    stage = Stage()
    answers: list[Any] = [PeerError(-32603, "not just now"), Stage()._welcome(None)]  # type: ignore[arg-type]
    stage.answers["initialize"] = lambda _: answers.pop(0)
    async with playing(stage):
        assert len(stage.wires) == 2


async def test_ready_says_why_it_is_not_when_the_time_is_up() -> None:
    stage = Stage()
    stage.failures += [ConnectFailed("connection refused")] * 20
    async with playing(stage, ready=False, backoff=STEADY) as (line, _):
        with pytest.raises(Unavailable, match="connection refused"):
            await line.ready(timeout=2.5)
        stage.failures.clear()
        await line.ready(timeout=None)
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    async with playing(stage, ready=False) as (line, _):
        with pytest.raises(InitTimeout):
            await line.ready(timeout=1.0)


async def test_invalid_capabilities_raise_where_the_connection_is_started() -> None:
    class Undeclarable(ClientHandler):
        def capabilities(self) -> dict[str, Any]:
            return {"sampling": object()}

    with pytest.raises(StartFailed):
        await start_connection(Stage(), handler=Undeclarable())


# --- losses


async def test_a_lost_wire_is_replaced_at_once_and_what_was_under_way_is_settled() -> None:
    async with playing(backoff=STEADY) as (line, stage):
        stage.answers["tools/call"] = stage.answers["resources/read"] = SILENCE
        call = line.begin("tools/call", CALL)
        read = line.begin("resources/read", {"uri": "a:b"})
        await stage.wire.hears("resources/read")
        stage.answers["resources/read"] = {"contents": []}
        began = asyncio.get_running_loop().time()
        await stage.wire.break_off(ProcessDied("server", -9, "the last words"))
        with pytest.raises(RequestLost, match="the last words") as caught:
            await call.result()
        assert isinstance(caught.value.cause, ProcessDied)
        assert caught.value.maybe_done
        assert await read.result() == {"contents": []}
        assert asyncio.get_running_loop().time() == began
        assert line.status == Status(Phase.READY, generation=2)
        assert len(stage.asked("tools/call")) == 1
        assert len(stage.asked("resources/read")) == 2


async def test_a_server_that_falls_again_and_again_is_given_more_and_more_time() -> None:
    async with playing(backoff=STEADY) as (line, stage):
        loop = asyncio.get_running_loop()
        pauses: list[float] = []
        for count in range(2, 7):
            began = loop.time()
            await stage.wire.break_off(ConnectionLost("fell"))
            await stage.opened(count)
            await line.ready()
            pauses.append(loop.time() - began)
        assert pauses == pytest.approx([0, 1, 2, 4, 8])
        await asyncio.sleep(61)
        began = loop.time()
        await stage.wire.break_off(ConnectionLost("fell"))
        await stage.opened(7)
        assert loop.time() == began


async def test_in_backoff_requests_wait_unless_they_cannot() -> None:
    stage = Stage()
    stage.failures += [ConnectFailed("connection refused")]
    stage.answers["tools/list"] = {"tools": []}
    async with playing(stage, ready=False, backoff=STEADY.__class__(first=10.0, jitter=0.0)) as (line, _):
        early = line.begin("tools/list", timeout=4.0)
        patient = asyncio.create_task(line.request("tools/list", timeout=60.0))
        await phase(line, Phase.BACKOFF)
        with pytest.raises(Unavailable) as caught:
            await early.result()
        assert caught.value.retry_in == pytest.approx(10.0)
        with pytest.raises(Unavailable):
            await line.request("tools/list", timeout=9.0)
        assert asyncio.get_running_loop().time() == pytest.approx(0.0)
        assert await patient == {"tools": []}
        assert asyncio.get_running_loop().time() == pytest.approx(10.0)


async def test_a_retry_ends_the_backoff() -> None:
    stage = Stage()
    stage.failures += [ConnectFailed("connection refused")]
    async with playing(stage, ready=False, backoff=Backoff(first=30.0, jitter=0.0)) as (line, _):
        await phase(line, Phase.BACKOFF)
        line.retry()
        await line.ready()
        assert asyncio.get_running_loop().time() == 0.0


@pytest.mark.row("CL-01")
async def test_after_so_many_attempts_it_is_parked_and_says_so_at_once() -> None:
    stage = Stage()
    stage.failures += [ConnectFailed("connection refused")] * 3
    async with playing(stage, ready=False, park_after=3, backoff=STEADY) as (line, _):
        waiting = line.begin("tools/list", timeout=None)
        status = await phase(line, Phase.PARKED)
        assert (status.attempts, status.retry_in) == (3, None)
        for asked in (waiting, line.begin("tools/list")):
            with pytest.raises(Parked, match="connection refused"):
                await asked.result()
        with pytest.raises(Parked):
            await line.ready()
        line.retry()
        await line.ready()


async def test_a_route_that_raises_is_an_attempt_in_vain() -> None:
    stage = Stage()
    stage.failures += [RuntimeError("the route is broken"), OSError("still")]
    async with playing(stage, ready=False, backoff=STEADY) as (line, _):
        status = await phase(line, Phase.BACKOFF)
        assert isinstance(status.cause, ConnectFailed)
        assert "the route is broken" in str(status.cause)
        await line.ready()


async def test_a_wire_that_crashes_of_its_own_is_a_loss_as_any() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        kill(stage.wire.pid)
        with pytest.raises(RequestLost, match="killed"):
            await pending.result()
        await phase(line, Phase.READY, lambda status: status.generation == 2)


# --- sessions


async def test_a_session_that_is_gone_is_begun_anew_and_nothing_is_lost() -> None:
    async with playing() as (line, stage):
        gone = SessionGone(404)

        def answer(request: JsonRpcRequest) -> Any:
            return (
                {"content": []} if len(stage.wires) > 1 else Garbled(UnansweredRequest(request.id, gone, resend=True))
            )

        await line.request("ping")
        stage.answers["tools/call"] = answer
        results = await asyncio.gather(*(line.request("tools/call", CALL) for _ in range(16)))
        assert results == [{"content": []}] * 16
        assert len(stage.wires) == 2
        assert len(stage.asked("tools/call")) == 32
        assert line.status.generation == 2
        await wait_down(stage.wires[0].pid)


async def test_requests_of_a_lost_session_may_still_be_answered() -> None:
    async with playing() as (line, stage):
        await line.request("ping")
        stage.answers["tools/call"] = SILENCE
        slow = line.begin("tools/call", CALL)
        asked = await stage.wire.hears("tools/call")
        stage.answers["tools/list"] = lambda request: (
            {"tools": []}
            if len(stage.wires) > 1
            else Garbled(UnansweredRequest(request.id, SessionGone(404), resend=True))
        )
        assert await line.request("tools/list") == {"tools": []}
        assert not stage.wires[0].ended
        stage.wires[0].answer(asked, {"content": []})  # type: ignore[arg-type]
        assert await slow.result() == {"content": []}
        await wait_down(stage.wires[0].pid)


async def test_a_session_that_is_gone_twice_in_a_row_is_an_error() -> None:
    async with playing(backoff=STEADY) as (line, stage):
        await line.request("ping")
        stage.answers["tools/call"] = lambda request: Garbled(
            UnansweredRequest(request.id, SessionGone(404), resend=True)
        )
        with pytest.raises(RequestLost) as caught:
            await line.request("tools/call", CALL)
        assert isinstance(caught.value.cause, SessionGone)
        assert not caught.value.maybe_done
        assert len(stage.asked("tools/call")) == 2


# --- pings


@pytest.mark.row("CL-17")
async def test_pings_go_out_while_it_is_ready_and_tell_a_dead_peer() -> None:
    async with playing(ping_interval=10.0, ping_timeout=5.0, ping_failure_threshold=2) as (line, stage):
        await asyncio.sleep(35)
        assert len(stage.asked("ping")) == 3
        stage.answers["ping"] = SILENCE
        await asyncio.sleep(10)  # one unanswered
        stage.answers["ping"] = {}
        await asyncio.sleep(60)
        assert line.status.generation == 1
        stage.answers["ping"] = SILENCE
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL, timeout=None)
        with pytest.raises(RequestLost, match="pings"):
            await pending.result()
        stage.answers["ping"] = PeerError(-32601, "what is a ping?")  # which is an answer
        await phase(line, Phase.READY, lambda status: status.generation == 2)
        await wait_down(stage.wires[0].pid)
        await asyncio.sleep(300)
        assert line.status.generation == 2


@pytest.mark.row("CL-17")
async def test_no_ping_is_sent_unless_an_interval_is_set() -> None:
    async with playing() as (_, stage):
        await asyncio.sleep(10_000)
        assert stage.asked("ping") == []


# --- starting and ending


@pytest.mark.row("CL-03")
async def test_a_linked_connection_ends_with_its_parent() -> None:
    stage, lines = Stage(), list[ConnectionLine]()

    async def owner() -> None:
        lines.append(await start_link_connection(stage, name="linked"))
        await asyncio.sleep(1000)

    pid = spawn(owner)
    await stage.opened(1)
    await lines[0].ready()
    kill(pid)
    await phase(lines[0], Phase.CLOSED)
    assert lines[0].pid is None
    with pytest.raises((ClientClosed, Unavailable)):
        await lines[0].request("ping")


@pytest.mark.row("CL-03")
async def test_a_start_does_not_wait_for_the_handshake() -> None:
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    async with inbox():
        line = await start_link_connection(stage)
        assert line.status.phase in (Phase.CONNECTING, Phase.INITIALIZING)
        await line.close()


async def test_a_supervised_connection_that_is_killed_comes_back_to_the_same_line() -> None:
    stage = Stage()
    stage.answers["tools/call"] = SILENCE
    line = ConnectionLine("supervised")
    held = line.begin("ping")
    top = await start(Supervisor, [connection_spec(stage, line=line)])
    with pytest.raises(Exception, match="is not open"):
        await held.result()
    await line.ready()
    pending = line.begin("tools/call", CALL)
    await stage.wire.hears("tools/call")
    first = line.pid
    kill(first)
    with pytest.raises(RequestLost, match="killed"):
        await pending.result()
    assert await line.request("ping") == {}
    assert line.pid != first
    assert line.status.generation == 2
    await line.close()
    await asyncio.sleep(10)
    assert line.pid is None  # closed is closed
    await stop(top)


async def test_a_supervisor_that_stops_ends_it_in_order() -> None:
    stage = Stage()
    stage.answers["tools/call"] = SILENCE
    line = ConnectionLine("supervised")
    top = await start(Supervisor, [connection_spec(stage, line=line)])
    await line.ready()
    pending = line.begin("tools/call", CALL)
    await stage.wire.hears("tools/call")
    await stop(top)
    with pytest.raises(ClientClosed):
        await pending.result()
    assert stage.wire.ended
    assert line.status == Status(Phase.CLOSED, generation=1)


async def test_a_handshake_that_a_supervisor_breaks_off_is_no_failed_attempt() -> None:
    reports: list[ConnectionReport] = []
    current_node().reports.subscribe(
        lambda report: reports.append(report) if isinstance(report, ConnectionReport) else None
    )
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    line = ConnectionLine("supervised")
    top = await start(Supervisor, [connection_spec(stage, line=line)])
    await stage.wire.hears("initialize")
    await stop(top)
    assert line.status.phase is Phase.CLOSED
    assert stage.wire.ended
    assert reports == []


@pytest.mark.row("CL-01")
async def test_watchers_see_each_phase_and_reports_say_the_same() -> None:
    reports: list[ConnectionReport] = []

    def hear(report: Report) -> None:
        if isinstance(report, ConnectionReport):
            reports.append(report)

    current_node().reports.subscribe(hear)
    stage = Stage()
    stage.failures.append(ConnectFailed("connection refused"))
    stage.answers["initialize"] = lambda request: After(1.0, Stage()._welcome(request))
    seen: list[Phase] = []
    async with playing(stage, ready=False) as (line, _):

        async def watch() -> None:
            async for status in line.watch():
                if not seen or seen[-1] is not status.phase:
                    seen.append(status.phase)
                if status.phase is Phase.CLOSED:
                    return

        watching = asyncio.create_task(watch())
        await line.ready()
    await watching
    assert seen[-5:] == [Phase.BACKOFF, Phase.INITIALIZING, Phase.READY, Phase.CLOSING, Phase.CLOSED]
    assert [type(report) for report in reports] == [Disconnected, HandshakeSucceeded]
    assert "connection refused" in str(reports[0])
    assert reports[1].server == "stage"


async def test_fifty_are_opened_and_closed_in_any_order_from_any_task() -> None:
    lines = [await start_connection(Stage(), name=f"s{number}") for number in range(50)]
    await asyncio.gather(*(asyncio.create_task(line.ready()) for line in lines))
    order = sorted(lines, key=lambda line: hash(line.key))
    await asyncio.gather(*(asyncio.create_task(line.close()) for line in order))
    assert all(line.pid is None for line in lines)


@pytest.mark.row("CL-03")
async def test_a_wire_that_takes_no_word_after_the_greeting_is_an_attempt_in_vain() -> None:
    stage = Stage()

    def clogged(request: JsonRpcRequest) -> Any:
        stage.wire.full = len(stage.wires) == 1
        return stage._welcome(request)

    stage.answers["initialize"] = clogged
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with playing(stage, backoff=STEADY) as (line, _):
        assert len(stage.wires) == 2
        assert line.status.generation == 1
    assert [type(each.cause) for each in reports if isinstance(each, Disconnected)] == [WireFull]


@pytest.mark.row("CL-03")
async def test_a_connection_that_is_killed_in_its_handshake_promises_no_other_attempt() -> None:
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with playing(stage, ready=False) as (line, _):
        await (await stage.opened(1)).hears("initialize")
        assert line.pid is not None
        kill(line.pid)
        await wait_down(line.pid)
        assert line.status.phase is Phase.CLOSED
        assert isinstance(line.status.cause, ConnectionLost)
    assert not [each for each in reports if isinstance(each, Disconnected)]
