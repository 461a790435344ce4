"""What a server tells beside the endings of its calls: where handlers run, who calls, sessions, questions, tasks, pools, refusals, steps and messages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.actors.tasks.stateless_client import StatelessClient
from tests.heard_events import hearing

from greenroom import Context, McpError, Server, Settings
from greenroom.event_types import (
    CallEnded,
    CallStarted,
    CallStep,
    FramePassed,
    PoolWorkerEnded,
    PoolWorkerStarted,
    QuestionAsked,
    QuestionEnded,
    RequestRefused,
    SessionClosed,
    SessionOpened,
    TaskCreated,
    TaskEnded,
)
from greenroom.observe.observatory import Observatory
from greenroom.observe.view_models import PoolsView
from greenroom.supervision import kill
from greenroom.supervision.cluster.node_records import ProcessEnding
from greenroom.transports.access_log import log_refusal
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

from .call_stage import call_stage

if TYPE_CHECKING:
    from collections.abc import Hashable

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_call_that_waits_for_a_thread_says_for_how_long() -> None:
    server = Server("queues", settings=Settings(tool_threads=1))

    @server.tool
    def hold(ctx: Context) -> str:
        ctx.wait(asyncio.sleep(2))
        return "held"

    async with WireProbe(server) as probe:
        with hearing() as heard:
            await asyncio.gather(*(probe.call("hold") for _ in range(2)))
    first, second = sorted(heard.ended("tools/call"), key=lambda each: each.queued)
    assert (first.isolation, second.isolation) == ("thread", "thread")
    assert (round(first.queued), round(second.queued)) == (0, 2)


@pytest.mark.parametrize(
    ("principal", "kind", "text"),
    [
        (None, "anonymous", ""),
        (("", "5ec4e7" * 10), "unnamed", "unnamed 5ec4e75e"),
        (("https://issuer.example", "ada", ""), "token", "ada of https://issuer.example"),
        (("", "ada", ""), "named", "ada"),
        ("ada", "named", "ada"),
    ],
)
async def test_a_caller_has_a_kind_and_a_name_without_secrets(principal: Hashable, kind: str, text: str) -> None:
    async with Server("who").started() as company:
        with hearing() as heard:
            async with WireProbe(company, peer=Peer("test", "192.0.2.1:5", principal)) as probe:
                await probe.request("ping")
    told: list[CallStarted | CallEnded | SessionOpened] = [*heard.of(CallStarted), *heard.of(CallEnded)]
    for event in (*told, *heard.of(SessionOpened)):
        assert (event.principal_kind, event.principal, event.address) == (kind, text, "192.0.2.1:5")


async def test_what_a_peer_makes_up_is_not_known_and_bounded() -> None:
    async with call_stage() as stage:
        with hearing() as heard:
            for method, name in (("tools/call", "no" * 5000), ("made/up", "x"), ("resources/read", "a://b?key=secret")):
                key = "uri" if method == "resources/read" else "name"
                await stage.probe.answer(await stage.probe.ask(method, {key: name}))
                await stage.client.answer(method, **{key: name})
            await stage.probe.answer(await stage.probe.ask("long" * 5000))
    assert len(heard.of(CallStarted)[-1].method) == 2048
    ended = heard.of(CallEnded)[:-1]
    assert {(each.method, each.is_method_known, each.is_known) for each in ended} == {
        ("tools/call", True, False),
        ("made/up", False, False),
        ("resources/read", True, False),
    }
    assert len(ended) == 6
    assert max(len(each.name) for each in ended) == 2048
    assert "secret" not in str(heard.of(CallStarted)) + str([(each.name, each.message) for each in ended])


async def test_the_trace_context_of_a_request_and_of_its_http_headers_are_told() -> None:
    server = Server("traced")
    mounted = server.asgi()
    transport = httpx.ASGITransport(mounted)
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
            "_meta": {"traceparent": TRACE, "baggage": 7},
        },
    }
    headers = {"accept": "application/json, text/event-stream", "tracestate": "a=b", "traceparent": TRACE[:-1] + "0"}
    with hearing() as heard:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            assert (await http.post("/mcp", json=body, headers=headers)).status_code == 200
        await mounted.close()
    (started,) = heard.of(CallStarted)
    assert (started.trace, started.http_version) == ({"traceparent": TRACE}, "1.1")
    assert started.http_trace == {"traceparent": TRACE[:-1] + "0", "tracestate": "a=b"}


# --- sessions, questions, tasks, pools


async def test_a_session_is_told_when_it_has_shaken_hands_and_when_it_ends() -> None:
    async with Server("sessions").started() as company:
        with hearing() as heard:
            async with WireProbe(company):
                await asyncio.sleep(2)
            async with WireProbe(company):
                (info,) = await company.peers.all()
                kill(company.peers.ref(info.id).pid)
                await asyncio.sleep(1)
    opened, closed = heard.of(SessionOpened), heard.of(SessionClosed)
    assert [each.session for each in opened] == [each.session for each in closed]
    assert [(each.peer, each.revision) for each in opened] == [("probe", "2025-11-25")] * 2
    assert [(round(each.seconds), each.is_failure) for each in closed] == [(2, False), (0, True)]
    assert info.id not in str(heard)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"action": "accept", "content": {"value": "Ada"}}, "accept"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        (None, "error"),
        (..., "lost"),
    ],
)
async def test_a_question_ends_once_as_it_was_answered(answer: Any, outcome: str) -> None:
    def reply(_: dict[str, Any]) -> Any:
        if answer is None:
            raise McpError(-32099, "not now")
        return asyncio.Event().wait() if answer is ... else answer

    async with call_stage() as stage:
        probe = WireProbe(
            stage.company, capabilities={"elicitation": {"form": {}}}, answers={"elicitation/create": reply}
        )
        with hearing(details=True) as heard:
            async with probe:
                await probe.answer(await probe.ask("tools/call", {"name": "ask", "arguments": {}}), within=100)
    (asked,), (ended,) = heard.of(QuestionAsked), heard.of(QuestionEnded)
    (call,) = (each.call for each in heard.of(CallStarted) if each.name == "ask")
    assert (ended.question, ended.method, ended.outcome) == (asked.question, "elicitation/create", outcome)
    assert asked.call == ended.call == call
    steps = [(each.step, each.text) for each in heard.of(CallStep) if each.call == call]
    assert steps[:3] == [("queued", ""), ("worker", "loop"), ("question", "elicitation/create")]


async def test_a_question_of_the_stateless_era_ends_with_the_next_round_which_is_a_call_of_its_own() -> None:
    async with call_stage() as stage:
        with hearing() as heard:
            asked = await stage.client.result("tools/call", name="ask", arguments={})
            await asyncio.sleep(5)
            last = await stage.client.result(
                "tools/call",
                name="ask",
                arguments={},
                inputResponses={"who": {"action": "accept", "content": {"value": "Ada"}}},
                requestState=asked["requestState"],
            )
    assert last["content"][0]["text"] == "accept"
    (ended,) = heard.of(QuestionEnded)
    assert (ended.outcome, round(ended.seconds)) == ("accept", 5)
    assert [each.outcome for each in heard.ended("tools/call")] == ["asks", "result"]
    assert [round(each.seconds) for each in heard.ended("tools/call")] == [0, 0]
    assert heard.unbalanced() == []


async def test_a_task_is_told_with_the_call_that_created_it() -> None:
    async with call_stage() as stage:
        with hearing() as heard:
            id = await stage.task("echo")
            await stage.probe.request("tasks/result", {"taskId": id})
    (created,), (ended,) = heard.of(TaskCreated), heard.of(TaskEnded)
    assert (created.task, ended.status, ended.name) == (ended.task, "completed", "echo")
    creating, work, reading = heard.of(CallStarted)
    assert (creating.way, work.way, work.creator, work.task) == ("session", "task", creating.call, created.task)
    assert (reading.method, heard.ended("tasks/result")[0].outcome) == ("tasks/result", "result")
    assert id not in str(heard)


async def test_the_result_of_a_failed_task_is_told_as_what_it_was() -> None:
    async with call_stage() as stage:
        with hearing() as heard:
            for tool in ("complain", "refuse"):
                id = await stage.task(tool)
                await stage.probe.answer(await stage.probe.ask("tasks/result", {"taskId": id}))
    assert [(each.outcome, each.code) for each in heard.ended("tasks/result")] == [
        ("tool_error", None),
        ("error", -32011),
    ]


async def test_a_call_that_becomes_a_task_goes_on_as_the_work_of_the_task() -> None:
    server = Server("defers")

    @server.tool(task_support="optional", defer_task=True)
    async def later(ctx: Context) -> str:
        await asyncio.sleep(1)
        assert await ctx.start_task()
        await asyncio.sleep(3)
        return "done"

    async with server.started() as company:
        client = StatelessClient(company)
        with hearing() as heard:
            await client.start("later")
            await asyncio.sleep(5)
    call, work = heard.ended("tools/call")
    assert (call.way, call.outcome, round(call.seconds)) == ("exchange", "result", 1)
    assert (work.way, work.outcome, round(work.seconds), work.isolation) == ("task", "result", 3, "loop")
    started = heard.of(CallStarted)
    assert started[1].creator == started[0].call
    assert heard.unbalanced() == []


async def test_a_process_of_a_pool_is_told_with_the_signal_that_ended_it() -> None:
    observatory = Observatory("stage")
    with hearing() as heard:
        async with call_stage() as stage:
            observatory.start()
            await stage.call("pid")
            stage.provider.processes[-1].lose(ProcessEnding(signal=11))
            await asyncio.sleep(1)
            await stage.call("pid")
            view = await observatory.view("pools")
            observatory.stop()
    started, ended = heard.of(PoolWorkerStarted), heard.of(PoolWorkerEnded)
    assert (len(started), len(ended)) == (2, 2)
    assert isinstance(view, PoolsView)
    assert [(each.started, each.lost) for each in view.rows] == [(1, {"SIGSEGV": 1})]  # the first one was warm before
    assert [(each.signal, each.is_failure) for each in ended] == [("SIGSEGV", True), ("", False)]
    assert {(each.program, each.process) for each in started} == {("stage", 4711)}
    assert len({each.pool for each in started} | {each.pool for each in ended}) == 1


# --- refusals, steps, messages


async def test_a_refusal_is_told_also_while_the_access_log_is_off() -> None:
    with hearing() as heard:
        log_refusal("Host is wrong", status=403, setting="allowed_hosts", method="POST")
        log_refusal("Parse error", peer=Peer("stdio"), method="MADE-UP", program="here")
    assert [
        (each.kind, each.setting, each.method, each.transport, each.program) for each in heard.of(RequestRefused)
    ] == [
        ("allowed_hosts", "allowed_hosts", "POST", "http", ""),
        ("bad_message", "", "", "stdio", "here"),
    ]


async def test_steps_and_messages_are_for_listeners_that_ask_for_them() -> None:
    server = Server("steps")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.info("a secret")
        return "done"

    async with server.started() as company, WireProbe(company) as probe:
        with hearing() as few, hearing(details=True) as all_of_them:
            await probe.request("tools/call", {"name": "work", "arguments": {}, "_meta": {"progressToken": 1}})
    assert (few.of(CallStep), few.of(FramePassed)) == ([], [])
    steps = [(each.step, each.text) for each in all_of_them.of(CallStep)]
    assert steps == [("queued", ""), ("worker", "loop"), ("progress", "1/2"), ("log", "info")]
    frames = all_of_them.of(FramePassed)
    assert frames[0].direction == "in"
    assert b'"method":"tools/call"' in frames[0].body
    assert b"".join(each.body for each in frames).count(b"a secret") == 1
    (info,) = {each.session for each in frames}
    assert info.endswith("…")


# --- no listener

_UNHEARD = """
import asyncio, sys
from greenroom import Client, Server
server = Server("quiet")
@server.tool
async def echo() -> str: return "said"
@server.tool(task_support="optional")
def fail() -> str: raise ValueError
async def main():
    for mode in ("legacy", "auto"):
        async with Client(server, mode=mode) as client:
            await client.call_tool("echo")
            await client.call_tool("fail")
asyncio.run(main())
print([name for name in ("greenroom.event_types", "greenroom.actors.call_events") if name in sys.modules])
"""


def test_without_a_listener_no_event_is_made_or_even_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", _UNHEARD], capture_output=True, check=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


async def test_a_listener_that_comes_in_the_middle_of_a_call_hears_nothing_of_it() -> None:
    async with call_stage() as stage:
        number = await stage.begin("wait")
        with hearing() as heard:
            await stage.probe.answer(number, within=100)
    assert heard.of(CallEnded) == []
