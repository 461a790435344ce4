"""Each call is answered once: by its result, its cancellation, its deadline, or the death of the process that works on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.context import Context
from greenroom.actors.peer_channels import NoStream
from greenroom.actors.session_calls import CallTable, SessionCall
from greenroom.actors.settings import Settings
from greenroom.actors.worker_interfaces import Job, JobReply
from greenroom.protocol.errors import McpError
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, encode_result
from greenroom.supervision import ProcessExited, inbox, is_alive, kill, self_pid, trap_exit
from greenroom.supervision.testing import kill as kill_and_wait
from greenroom.transports.interfaces import EncodedReply, Peer

from .session_client import ScriptedTools, echo, join, message, messages_in, open_company, read, turns

if TYPE_CHECKING:
    from collections.abc import Callable

PEER = Peer("test")


async def for_ever(job: Job) -> Any:
    """Never answer."""
    await asyncio.Event().wait()


async def patient(job: Job) -> Any:
    """Answer when it is cancelled, and not before."""
    await job.cancelled.wait()
    return {"noticed": job.cancelled.reason}


def leave(error: BaseException) -> Any:
    """A tool that raises."""

    async def tool(job: Job) -> Any:
        raise error

    return tool


async def talks(job: Job) -> Any:
    """Say something, then answer when the argument says so."""
    for number in range(job.params["arguments"]["count"]):
        job.peer_channel.emit("notifications/progress", {"progressToken": "t", "progress": number})
    await asyncio.sleep(job.params["arguments"].get("seconds", 0))
    return {"done": True}


TOOLS: dict[str, Any] = {
    "echo": echo,
    "for_ever": for_ever,
    "patient": patient,
    "talks": talks,
    "boom": leave(ValueError("secret")),
    "exits": leave(SystemExit(3)),
    "interrupts": leave(KeyboardInterrupt()),
    "refuses": leave(McpError(-32099, "no", {"why": 1})),
}


async def test_calls_do_not_wait_for_each_other() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    waiting = player.later("for_ever", id="a")
    await turns()
    assert "result" in await player.call("echo")
    assert (await player.ask("ping"))["result"] == {}
    await player.cancel("a")
    assert await waiting is None


@pytest.mark.row("WC-19")
async def test_further_messages_of_the_peer_reach_the_worker() -> None:
    tools = ScriptedTools(**TOOLS)
    player = await join(await open_company(tools))
    await player.ask("tools/call", name="echo", _meta={"progressToken": 7, "own": {"x": 1}})
    assert tools.jobs[0].params["_meta"] == {"progressToken": 7, "own": {"x": 1}}


# --- cancelled


@pytest.mark.row("WC-17")
@pytest.mark.row("TF-23")
async def test_a_cancelled_call_is_answered_with_nothing_at_once() -> None:
    tools = ScriptedTools(**TOOLS)
    player = await join(await open_company(tools))
    waiting = player.later("for_ever", id="a")
    await turns()
    began = asyncio.get_running_loop().time()
    await player.cancel("a")
    assert await waiting is None
    assert asyncio.get_running_loop().time() == began
    assert tools.jobs[0].cancelled.reason == "changed my mind"


@pytest.mark.row("TF-23")
async def test_a_call_that_does_not_notice_is_ended_after_a_grace() -> None:
    pids: list[Any] = []

    async def tool(job: Job) -> Any:
        pids.append(self_pid())
        await asyncio.Event().wait()

    player = await join(await open_company(ScriptedTools(tool=tool), settings=Settings(cancel_grace=2)))
    waiting = player.later("tool", id=1)
    await turns()
    await player.cancel(1)
    assert await waiting is None
    await asyncio.sleep(1.9)
    assert is_alive(pids[0])
    await asyncio.sleep(0.2)
    assert not is_alive(pids[0])


async def test_a_session_is_busy_with_a_call_that_no_worker_has_begun_and_with_a_worker_whose_call_is_over() -> None:
    table, seen = CallTable(), list[bool]()
    async with inbox() as me:
        for step in (
            lambda: None,
            lambda: table.add(SessionCall(1, "a", "tools/call", None)),
            lambda: table.assign_worker(1, me.pid),
            lambda: table.take(1),
            lambda: table.forget_worker(me.pid),
        ):
            step()
            seen.append(table.is_busy)
    assert seen == [False, True, True, True, False]


async def test_a_callback_that_fails_is_not_the_sessions_end(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("mine")

    async def subscribes(job: Job) -> Any:
        job.cancelled.subscribe(fail)
        await asyncio.Event().wait()

    player = await join(await open_company(ScriptedTools(subscribes=subscribes, echo=echo)))
    waiting = player.later("subscribes", id=1)
    await turns()
    await player.cancel(1)
    assert await waiting is None
    assert "a callback of a cancelled call failed" in caplog.text
    assert "result" in await player.call("echo")


async def test_one_that_notices_may_clean_up_in_peace() -> None:
    tools = ScriptedTools(**TOOLS)
    company = await open_company(tools)
    player = await join(company)
    waiting = player.later("patient", id=1)
    await turns()
    await player.cancel(1)
    assert await waiting is None
    await turns()
    assert (await company.peers.snapshot(player.session.id))["calls"] == []


async def test_one_that_traps_exits_is_killed_in_the_end() -> None:
    pids: list[Any] = []

    async def tool(job: Job) -> Any:
        pids.append(self_pid())
        trap_exit()
        await asyncio.Event().wait()

    player = await join(await open_company(ScriptedTools(tool=tool), settings=Settings(cancel_grace=1)))
    waiting = player.later("tool", id=1)
    await turns()
    await player.cancel(1)
    await waiting
    await asyncio.sleep(1.5)
    assert is_alive(pids[0])
    await asyncio.sleep(1)
    assert not is_alive(pids[0])


@pytest.mark.row("SE-20")
async def test_a_cancellation_may_overtake_its_request() -> None:
    tools = ScriptedTools(**TOOLS)
    player = await join(await open_company(tools))
    await player.cancel("late")
    assert await player.reply("tools/call", id="late", name="echo") is None
    assert tools.jobs == []
    assert "result" in await player.ask("tools/call", id="late", name="echo")


@pytest.mark.row("SE-20")
async def test_but_it_waits_for_it_only_so_long() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    await player.cancel("late")
    await asyncio.sleep(6)
    assert "result" in await player.ask("tools/call", id="late", name="echo")


async def test_a_cancellation_after_the_reply_is_ignored() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    assert "result" in await player.ask("tools/call", id=1, name="echo")
    await player.cancel(1)
    assert "result" in await player.ask("tools/call", id=1, name="echo")


async def test_cancellations_of_nothing_are_not_kept_for_ever() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    for number in range(200):
        await player.cancel(f"x{number}")
    assert "result" in await player.ask("tools/call", id="x0", name="echo")
    assert await player.reply("tools/call", id="x199", name="echo") is None


async def test_text_and_number_are_different_ids() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    text, number = player.later("for_ever", id="1"), player.later("for_ever", id=1)
    await turns()
    await player.cancel("1")
    assert await text is None
    assert not number.done()
    await player.cancel(1)
    assert await number is None


async def test_the_same_id_cannot_be_in_flight_twice() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    waiting = player.later("for_ever", id=1)
    await turns()
    error = (await player.ask("tools/call", id=1, name="echo"))["error"]
    assert error["code"] == -32600
    assert "in use" in error["message"]
    assert (await player.ask("ping", id=1))["error"]["code"] == -32600
    await player.cancel(1)
    assert await waiting is None
    assert "result" in await player.ask("tools/call", id=1, name="echo")


async def test_the_number_of_calls_in_flight_is_limited() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS), settings=Settings(max_in_flight=2)))
    waiting = [player.later("for_ever", id=id) for id in "ab"]
    await turns()
    error = (await player.call("echo"))["error"]
    assert "at most 2" in error["message"]
    await player.cancel("a")
    assert await waiting[0] is None
    assert "result" in await player.call("echo")
    await player.cancel("b")
    assert await waiting[1] is None


# --- the deadline


@pytest.mark.row("TF-21")
async def test_a_call_that_takes_too_long_is_answered_without_its_result() -> None:
    tools = ScriptedTools(**TOOLS)
    player = await join(await open_company(tools, settings=Settings(call_timeout=60)))
    began = asyncio.get_running_loop().time()
    result = (await player.call("for_ever"))["result"]
    text = "Tool 'for_ever' timed out: it said nothing for 60 s (call_timeout)"
    assert result == {"content": [{"type": "text", "text": text}], "isError": True}, "the model reads it"
    assert asyncio.get_running_loop().time() - began == 60
    assert tools.jobs[0].cancelled
    assert "result" in await player.call("echo")


@pytest.mark.row("TF-21")
async def test_each_call_has_its_own_deadline() -> None:
    loop = asyncio.get_running_loop()
    player = await join(await open_company(ScriptedTools(**TOOLS), settings=Settings(call_timeout=60)))
    first = player.later("for_ever", id="first")
    await asyncio.sleep(30)
    second = player.later("for_ever", id="second")
    await asyncio.sleep(15)
    third = player.later("for_ever", id="third")
    await turns()
    began = loop.time() - 45
    await player.cancel("first")
    assert await first is None
    ends: list[float] = []
    for each in (second, third):
        assert "timed out: it said nothing for 60 s" in message((await each).body)["result"]["content"][0]["text"]
        ends.append(loop.time() - began)
    assert ends == [pytest.approx(90), pytest.approx(105)]


@pytest.mark.row("TF-21")
async def test_the_call_timeout_restarts_with_each_message() -> None:
    async def chatty(job: Job) -> Any:
        for seconds in (0, 59, 59, 59, job.params["arguments"]["last"]):
            await asyncio.sleep(seconds)
            job.peer_channel.emit("notifications/progress", {"progress": seconds})
        return {"done": True}

    player = await join(await open_company(ScriptedTools(chatty=chatty), settings=Settings(call_timeout=60)))
    patient, late = [await player.reply("tools/call", name="chatty", arguments={"last": last}) for last in (59, 61)]
    assert messages_in(await read(patient, 100))[-1]["result"] == {"done": True}
    messages = messages_in(await read(late, 100))
    assert "timed out: it said nothing for 60 s" in messages[-1]["result"]["content"][0]["text"]
    assert len(messages) == 5


REPORTS: dict[str, Callable[[Context, int], object]] = {
    "progress that was not asked for": lambda ctx, n: ctx.progress(n),
    "progress that is no further": lambda ctx, n: ctx.progress(1),
    "a log message below the level": lambda ctx, n: ctx.debug(n),
    "a notification": lambda ctx, n: ctx.notify("notifications/mine"),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_the_general_deadline_begins_anew_with_each_report_also_where_it_is_not_sent(
    report: Any, where: str
) -> None:
    async def reports(job: Job) -> Any:
        ctx = Context(job.facts, job.peer_channel, job.cancelled, job.request_id, job.params)
        for number in range(3):
            await asyncio.sleep(59)
            _ = report(ctx, number) if where == "loop" else await asyncio.to_thread(report, ctx, number)
        await asyncio.sleep(job.params["arguments"]["last"])
        return {"done": True}

    player = await join(await open_company(ScriptedTools(reports=reports), settings=Settings(call_timeout=60)))
    await player.ask("logging/setLevel", level="error")
    patient, late = player.later("reports", last=59), player.later("reports", last=61)
    for waiting, last in ((patient, "done"), (late, "said nothing for 60 s")):
        reply = await waiting
        messages = [message(reply.body)] if isinstance(reply, EncodedReply) else messages_in(await read(reply, 100))
        assert last in str(messages[-1]["result"])


async def test_a_call_without_a_session_counts_unsent_reports() -> None:
    async def reports(job: Job) -> Any:
        for number in range(3):
            await asyncio.sleep(59)
            assert not job.peer_channel.emit("notifications/progress", {"progressToken": "t", "progress": number})
        return {"done": True}

    company = await open_company(ScriptedTools(reports=reports), settings=Settings(call_timeout=60, sessions=False))
    reply = await company.once(PEER, JsonRpcRequest(1, "tools/call", {"name": "reports"}))
    assert isinstance(reply, EncodedReply)
    assert message(reply.body)["result"] == {"done": True}


async def test_a_call_may_have_no_deadline() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS), settings=Settings(call_timeout=None)))
    waiting = player.later("for_ever", id=1)
    await asyncio.sleep(10_000)
    assert not waiting.done()
    await player.cancel(1)
    assert await waiting is None


# --- the worker's death


@pytest.mark.row("SX-07")
@pytest.mark.parametrize("name", ["boom", "exits", "interrupts"])
async def test_a_worker_that_dies_without_a_reply_is_replied_for(name: str, caplog: Any) -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    answer = await player.call(name)
    assert answer["result"] == {"content": [{"type": "text", "text": "Tool execution failed"}], "isError": True}
    assert "result" in await player.call("echo")


@pytest.mark.row("SX-07")
async def test_outside_of_tools_it_is_an_internal_error() -> None:
    player = await join(await open_company(ScriptedTools(boom=leave(ValueError("secret")))))
    error = (await player.ask("prompts/get", name="boom"))["error"]
    assert error == {"code": -32603, "message": "Internal server error"}


async def test_crashes_may_be_errors_with_their_text() -> None:
    settings = Settings(crashes="protocol", expose_errors=True)
    player = await join(await open_company(ScriptedTools(**TOOLS), settings=settings))
    assert (await player.call("boom"))["error"] == {"code": -32000, "message": "Tool execution failed: secret"}


async def test_what_a_worker_refuses_is_the_answer() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    assert (await player.call("refuses"))["error"] == {"code": -32099, "message": "no", "data": {"why": 1}}


async def test_the_call_of_a_killed_worker_gets_a_reply() -> None:
    pids: list[Any] = []

    async def tool(job: Job) -> Any:
        pids.append(self_pid())
        await asyncio.Event().wait()

    player = await join(await open_company(ScriptedTools(tool=tool)))
    waiting = player.later("tool")
    await turns()
    kill(pids[0])
    assert message((await waiting).body)["result"]["isError"] is True


async def test_a_worker_that_answers_twice_answers_once() -> None:
    async def tool(job: Job) -> Any:
        job.session.send(JobReply(job.key, encode_result(job.request_id, {"first": 1})))
        return {"second": 2}

    player = await join(await open_company(ScriptedTools(tool=tool, echo=echo)))
    assert (await player.call("tool"))["result"] == {"first": 1}
    assert (await player.call("echo", x=1))["result"] == {"echo": {"x": 1}}


async def test_worker_keys_are_unique() -> None:
    """A worker that knows another call's number could answer it; it never learns one: each session counts its own."""
    tools = ScriptedTools(**TOOLS)
    company = await open_company(tools)
    one, other = await join(company), await join(company)
    first, second = one.later("for_ever", id=1), other.later("for_ever", id=1)
    await turns()
    assert [job.key for job in tools.jobs] == [1, 1]
    await one.cancel(1)
    assert await first is None
    assert not second.done()
    await other.cancel(1)
    assert await second is None


# --- what dies around it


async def test_a_killed_session_ends_its_workers_and_fails_its_callers() -> None:
    pids: list[Any] = []

    async def tool(job: Job) -> Any:
        pids.append(self_pid())
        await asyncio.Event().wait()

    tools = ScriptedTools(tool=tool, echo=echo)
    company = await open_company(tools)
    player, other = await join(company), await join(company)
    waiting = player.later("tool")
    await turns()
    kill(company.peers.ref(player.session.id))
    with pytest.raises(ProcessExited):
        await waiting
    await turns()
    assert not is_alive(pids[0])
    assert tools.jobs[0].cancelled
    assert company.find(player.session.id, PEER) is None
    assert "result" in await other.call("echo")


@pytest.mark.parametrize("role", ["workers", "registry", "subscriptions"])
async def test_when_a_neighbour_is_killed_calls_are_answered_and_the_next_one_works(role: str) -> None:
    company = await open_company(ScriptedTools(**TOOLS))
    player = await join(company)
    waiting = player.later("for_ever", id=1)
    await turns()
    await kill_and_wait(company.name(role), successor=True)
    if role == "workers":
        assert message((await waiting).body)["result"]["isError"] is True
    else:
        assert not waiting.done()
        await player.cancel(1)
        assert await waiting is None
    assert "result" in await player.call("echo")
    assert (await player.ask("resources/subscribe", uri="x://y"))["result"] == {}


async def test_calls_that_no_worker_has_begun_with_are_answered_when_the_workers_go() -> None:
    company = await open_company(ScriptedTools(**TOOLS))
    player = await join(company)
    waiting = [player.later("echo") for _ in range(5)]
    await asyncio.sleep(0)
    await kill_and_wait(company.name("workers"), successor=True)
    answers = [message((await each).body) for each in waiting]
    assert all("error" in answer or "result" in answer for answer in answers)
    assert "result" in await player.call("echo")


async def test_without_workers_a_call_is_refused_at_once() -> None:
    company = await open_company(ScriptedTools(**TOOLS))
    player = await join(company)
    kill(company.workers)
    reply = await player.reply("tools/call", name="echo")
    assert message(reply.body)["error"]["code"] == -32603
    await turns()
    assert "result" in await player.call("echo")


async def test_after_the_session_supervisor_is_killed_clients_begin_new_sessions() -> None:
    company = await open_company(ScriptedTools(**TOOLS))
    player = await join(company)
    feed = await player.session.listen()
    waiting = player.later("for_ever")
    await turns()
    await kill_and_wait(company.name("sessions"), successor=True)
    with pytest.raises(ProcessExited):
        await waiting
    while (events := await feed.next()) is not None:
        assert all(not event.data for event in events)
    assert company.find(player.session.id, PEER) is None
    assert "result" in await (await join(company)).call("echo")


async def test_a_peer_that_disconnects_does_not_cancel_its_call() -> None:
    done = asyncio.Event()

    async def tool(job: Job) -> Any:
        await asyncio.sleep(1)
        done.set()
        return {}

    player = await join(await open_company(ScriptedTools(tool=tool, echo=echo)))
    waiting = player.later("tool")
    await turns()
    waiting.cancel()
    await done.wait()
    await turns()
    assert "result" in await player.call("echo")


@pytest.mark.row("SE-03")
async def test_once_answers_without_a_session() -> None:
    company = await open_company(ScriptedTools(**TOOLS))
    answer = await company.once(PEER, JsonRpcRequest(1, "tools/call", {"name": "echo", "arguments": {"x": 1}}))
    assert message(answer.body)["result"] == {"echo": {"x": 1}}
    answer = await company.once(PEER, JsonRpcRequest(2, "tools/call", {"name": "talks", "arguments": {"count": 3}}))
    assert message(answer.body)["result"] == {"done": True}
    answer = await company.once(PEER, JsonRpcRequest("p", "ping", {}))
    assert message(answer.body) == {"jsonrpc": "2.0", "id": "p", "result": {}}
    await turns()
    assert await company.peers.all() == []


async def test_once_is_answered_when_its_session_dies() -> None:
    company = await open_company(ScriptedTools(**TOOLS))
    once = asyncio.create_task(company.once(PEER, JsonRpcRequest(1, "tools/call", {"name": "for_ever"})))
    await turns()
    kill(company.sessions)
    answer = await once
    assert answer.status == 500
    assert message(answer.body)["error"]["code"] == -32603


async def test_a_peer_that_disconnected_is_asked_on_its_general_stream() -> None:
    answers: list[Any] = []
    go = asyncio.Event()

    async def tool(job: Job) -> Any:
        await go.wait()
        job.peer_channel.emit("notifications/progress", {})
        for _ in range(2):
            try:
                answers.append(await job.peer_channel.ask("roots/list", {}, 5))
            except NoStream as error:
                answers.append(str(error))
            await asyncio.sleep(1)
        return {}

    player = await join(await open_company(ScriptedTools(tool=tool)))
    waiting = player.later("tool")
    await turns()
    waiting.cancel()
    await asyncio.wait([waiting])
    go.set()
    await asyncio.sleep(0.5)
    feed = await player.session.listen()
    (question,) = messages_in(await read(feed, 1))
    assert question["method"] == "roots/list"
    await player.session.respond(JsonRpcResponse(question["id"], {"roots": []}))
    await turns()
    assert answers == ["roots/list: the client has no open stream", {"roots": []}]


async def test_a_reply_follows_the_transport_interface() -> None:
    player = await join(await open_company(ScriptedTools(**TOOLS)))
    assert isinstance(await player.reply("ping"), EncodedReply)
    await player.session.notify(JsonRpcNotification("x", {}))
