"""The context of a call: its facts, notifications and questions, from the loop, from a thread, and from a loop of its own."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

from greenroom.actors.context import CallIsOver, Context
from greenroom.actors.server_questions import Accepted, Declined, Dismissed, Root
from greenroom.actors.worker_interfaces import Cancellation, SessionFacts
from greenroom.protocol.content import ToolUse
from greenroom.protocol.errors import McpError, PeerError, RequestCancelled
from greenroom.protocol.handler_results import assistant_message, user_message
from greenroom.supervision import CallTimeout
from greenroom.transports.interfaces import Peer

from .job_runner import RecordingChannel, until

if TYPE_CHECKING:
    from .job_runner import FakeServices, JobRunner, StartedJob


def make(
    peer_channel: RecordingChannel, *, meta: Any = None, version: str = "2025-11-25", ask_timeout: float | None = 30.0
) -> Context:
    facts = SessionFacts("s1", version, Peer("test"), {}, {})
    params = {"name": "x"} if meta is None else {"name": "x", "_meta": meta}
    return Context(facts, peer_channel, Cancellation(), "r1", params, ask_timeout)


@pytest.fixture
def peer_channel() -> RecordingChannel:
    return RecordingChannel()


@pytest.mark.row("TF-02", "TF-24", "WC-19")
async def test_a_context_knows_the_call_the_session_and_the_client(services: FakeServices, runner: JobRunner) -> None:
    seen: list[Context] = []

    async def look(city: str, ctx: Context) -> str:
        seen.append(ctx)
        return str(ctx.assign("k", 1).assigns["k"])

    services.tool(look)
    calling = await runner.call(
        "look",
        {"city": "Oslo"},
        meta={"progressToken": "p7", "trace": "abc"},
        auth={"sub": "ada"},
        principal="ada",
        client_info={"name": "c", "version": "1"},
        client_capabilities={"sampling": {}},
        state={"db": 1},
    )
    await calling.result()
    (ctx,) = seen
    assert ctx.session_id == "s1"
    assert ctx.request_id == calling.job.request_id
    assert ctx.progress_token == "p7"
    assert ctx.meta["trace"] == "abc"
    assert (ctx.auth, ctx.principal) == ({"sub": "ada"}, "ada")
    assert ctx.tool_name == ctx.name == "look"
    assert ctx.protocol_version == "2025-11-25"
    assert ctx.client_info == {"name": "c", "version": "1"}
    assert ctx.client_capabilities == {"sampling": {}}
    assert ctx.state == {"db": 1}
    assert ctx.params["arguments"] == {"city": "Oslo"}
    assert ctx.uri is None
    assert ctx.over
    assert repr(ctx) == f"<Context of 'look', request {calling.job.request_id!r}, over>"


# --- telling


@pytest.mark.row("TF-20", "TF-22")
async def test_progress_increases_and_needs_a_progress_token(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel, meta={"progressToken": 7})
    assert ctx.progress(1, 10, "begun")
    assert not ctx.progress(1, 10)
    assert not ctx.progress(0.5)
    assert await ctx.progress(2)
    assert peer_channel.said == [
        ("notifications/progress", {"progressToken": 7, "progress": 1, "total": 10, "message": "begun"}),
        ("notifications/progress", {"progressToken": 7, "progress": 2}),
    ]
    silent = make(RecordingChannel())
    assert not silent.progress(1)


@pytest.mark.row("TF-22")
async def test_fields_unknown_to_an_old_revision_are_left_out(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel, meta={"progressToken": 7}, version="2024-11-05")
    assert ctx.progress(1, message="begun")
    assert peer_channel.said == [("notifications/progress", {"progressToken": 7, "progress": 1})]


@pytest.mark.parametrize("number", [math.nan, math.inf, True, "1"])
async def test_progress_is_a_number(peer_channel: RecordingChannel, number: Any) -> None:
    with pytest.raises(ValueError, match="progress is a finite number"):
        _ = make(peer_channel).progress(number)


@pytest.mark.row("TF-22")
async def test_log_messages_and_notifications_go_out_as_they_are(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)
    assert ctx.log("warning", {"hot": True}, logger="oven")
    assert await ctx.info("fine")
    assert ctx.debug("x")
    assert ctx.warning("x")
    assert ctx.error("x")
    assert [level for level, _, _ in peer_channel.logged] == ["warning", "info", "debug", "warning", "error"]
    assert peer_channel.logged[0] == ("warning", {"hot": True}, "oven")
    assert ctx.notify("notifications/custom", {"n": 1})
    assert peer_channel.said == [("notifications/custom", {"n": 1})]
    with pytest.raises(ValueError, match="level is one of debug, info"):
        _ = ctx.log("loud", "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="notifications/"):
        _ = ctx.notify("custom")


async def test_a_message_that_cannot_be_encoded_is_the_handlers_error(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)
    with pytest.raises(TypeError):
        _ = ctx.log("info", object())
    with pytest.raises(TypeError):
        _ = ctx.notify("notifications/custom", {"x": object()})
    assert not peer_channel.said
    assert not peer_channel.logged


@pytest.mark.row("TF-22")
async def test_telling_works_from_a_thread_and_in_order(services: FakeServices, runner: JobRunner) -> None:
    def work(ctx: Context) -> str:
        for n in range(50):
            _ = ctx.progress(n + 1, 50)
        _ = ctx.log("info", threading.current_thread().name)
        return "done"

    services.tool(work)
    calling = await runner.call("work", meta={"progressToken": "p"})
    await calling.result()
    assert [params["progress"] for _, params in calling.peer_channel.said] == list(range(1, 51))
    assert calling.peer_channel.logged[0][1] != threading.current_thread().name


async def test_progress_from_many_threads_never_decreases(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel, meta={"progressToken": "p"})

    def tell() -> None:
        for n in range(200):
            _ = ctx.progress(n)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [params["progress"] for _, params in peer_channel.said]
    assert told == sorted(set(told))


@pytest.mark.row("TF-20", "TF-22")
async def test_after_the_call_notifications_are_not_sent_and_questions_raise(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel, meta={"progressToken": "p"})
    ctx.close()
    assert not ctx.progress(1)
    assert not ctx.log("info", "x")
    assert not ctx.notify("notifications/x")
    assert not ctx.interrupt_stream(1.0)
    with pytest.raises(CallIsOver, match="the call is over"):
        await ctx.sample("hello")
    assert not peer_channel.said
    assert not peer_channel.logged
    assert not peer_channel.asked


async def test_a_context_that_is_kept_is_over_when_its_call_is(services: FakeServices, runner: JobRunner) -> None:
    kept: list[Context] = []

    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        return "x"

    async def keep_and_fail(ctx: Context) -> str:
        kept.append(ctx)
        raise ValueError

    services.tool(keep)
    services.tool(keep_and_fail)
    for name in ("keep", "keep_and_fail"):
        calling = await runner.call(name)
        await calling.answer()
        assert kept[-1].over
        assert not kept[-1].log("info", "late")
        assert calling.peer_channel.logged == []


async def test_a_stream_may_be_interrupted(peer_channel: RecordingChannel) -> None:
    assert make(peer_channel).interrupt_stream(0.5)
    assert peer_channel.interrupted == [0.5]


# --- asking


@pytest.mark.row("SC-11", "SC-05")
async def test_sampling_asks_the_clients_model(peer_channel: RecordingChannel) -> None:
    peer_channel.answers["sampling/createMessage"] = {
        "role": "assistant",
        "content": {"type": "text", "text": "Paris"},
        "model": "m1",
        "stopReason": "endTurn",
    }
    ctx = make(peer_channel)
    said = await ctx.sample("Capital of France?", max_tokens=10, system_prompt="Be brief", temperature=0.5, stop=["\n"])
    assert (said.text, said.model, said.stop_reason, said.role) == ("Paris", "m1", "endTurn", "assistant")
    assert peer_channel.asked == [
        (
            "sampling/createMessage",
            {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}],
                "maxTokens": 10,
                "systemPrompt": "Be brief",
                "temperature": 0.5,
                "stopSequences": ["\n"],
            },
            30.0,
        )
    ]


async def test_sampling_takes_messages_in_many_forms(peer_channel: RecordingChannel) -> None:
    peer_channel.answers["sampling/createMessage"] = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "u1", "name": "t", "input": {}},
            {"type": "text", "text": "b"},
        ],
        "model": "m1",
    }
    said = await make(peer_channel).sample(
        [
            "one",
            user_message("two"),
            assistant_message({"type": "text", "text": "three"}),
            {"role": "user", "content": {"type": "text", "text": "four"}},
        ],
        tools=[{"name": "t", "inputSchema": {"type": "object"}}],
        tool_choice="auto",
    )
    assert said.text == "ab"
    assert said.tool_uses == [ToolUse("u1", "t", {})]
    assert len(said.blocks) == 3
    params = peer_channel.asked[0][1]
    assert [(m["role"], m["content"]["text"]) for m in params["messages"]] == [
        ("user", "one"),
        ("user", "two"),
        ("assistant", "three"),
        ("user", "four"),
    ]
    assert params["toolChoice"] == {"mode": "auto"}


@pytest.mark.parametrize("answer", [{}, {"content": "text"}])
async def test_a_sampled_answer_without_content_is_the_peers_error(peer_channel: RecordingChannel, answer: Any) -> None:
    peer_channel.answers["sampling/createMessage"] = answer
    with pytest.raises(PeerError, match="no content"):
        await make(peer_channel).sample("x")


@dataclass
class Booking:
    """A form of a booking."""

    city: str
    kind: Literal["bus", "train"]
    days: int = 1


@pytest.mark.row("SC-06", "SC-11")
async def test_a_form_is_made_from_a_class_and_its_answer_into_it(peer_channel: RecordingChannel) -> None:
    peer_channel.answers["elicitation/create"] = {"action": "accept", "content": {"city": "Oslo", "kind": "bus"}}
    match await make(peer_channel).elicit("Where to?", Booking):
        case Accepted(value):
            assert value == Booking("Oslo", "bus", 1)
        case other:
            pytest.fail(f"{other} is no booking")
    method, params, _ = peer_channel.asked[0]
    assert method == "elicitation/create"
    assert params["message"] == "Where to?"
    assert params["requestedSchema"]["properties"]["kind"]["enum"] == ["bus", "train"]


@pytest.mark.row("SC-06")
async def test_a_no_is_a_value(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)
    peer_channel.answers["elicitation/create"] = {"action": "decline"}
    assert await ctx.elicit("?", Booking) == Declined()
    peer_channel.answers["elicitation/create"] = {"action": "cancel"}
    assert await ctx.elicit("?", Booking) == Dismissed()
    assert (Declined().action, Dismissed().action, Accepted(1).action) == ("decline", "cancel", "accept")


async def test_an_answer_that_does_not_fit_is_the_peers_error(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)
    peer_channel.answers["elicitation/create"] = {"action": "accept", "content": {"city": 3}}
    with pytest.raises(PeerError, match="does not fit the form"):
        await ctx.elicit("?", Booking)
    peer_channel.answers["elicitation/create"] = {"action": "maybe"}
    with pytest.raises(PeerError, match="maybe"):
        await ctx.elicit("?", Booking)


async def test_a_form_may_be_a_schema_by_hand(peer_channel: RecordingChannel) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    peer_channel.answers["elicitation/create"] = {"action": "accept", "content": {"ok": True}}
    assert await make(peer_channel).elicit("sure?", schema) == Accepted({"ok": True})
    assert peer_channel.asked[0][1]["requestedSchema"] == schema


async def test_the_user_may_be_sent_to_a_page(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)
    for action, expected in (("accept", Accepted("e1")), ("decline", Declined()), ("cancel", Dismissed())):
        peer_channel.answers["elicitation/create"] = {"action": action}
        assert await ctx.elicit_url("pay", "https://pay.example", "e1") == expected
    assert peer_channel.asked[0][1] == {
        "mode": "url",
        "message": "pay",
        "url": "https://pay.example",
        "elicitationId": "e1",
    }


@pytest.mark.row("SC-07")
async def test_roots_are_values(peer_channel: RecordingChannel) -> None:
    peer_channel.answers["roots/list"] = {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}, {"no": 1}]}
    assert await make(peer_channel).roots() == [Root("file:///a", "A"), Root("file:///b", None)]
    peer_channel.answers["roots/list"] = {}
    with pytest.raises(PeerError, match="no list of roots"):
        await make(peer_channel).roots()


@pytest.mark.row("SC-11")
async def test_any_request_may_be_made_and_its_error_is_raised(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)
    peer_channel.answers["custom/do"] = {"done": True}
    assert await ctx.request("custom/do", {"n": 1}) == {"done": True}
    assert await ctx.request("custom/do", timeout=2.5) == {"done": True}
    assert await ctx.request("custom/do", timeout=math.inf) == {"done": True}
    assert [timeout for _, _, timeout in peer_channel.asked] == [30.0, 2.5, None]
    peer_channel.answers["custom/do"] = McpError(-32601, "cannot do that")
    with pytest.raises(McpError, match="cannot do that"):
        await ctx.request("custom/do")
    peer_channel.answers["custom/do"] = CallTimeout(30.0)
    with pytest.raises(CallTimeout):
        await ctx.request("custom/do")


async def _asks_and_sees(ctx: Context) -> str:
    said = await ctx.sample("x")
    return f"{said.text} {bool(ctx.progress(1))}"


@pytest.mark.row("SC-11")
async def test_asking_works_from_a_loop_of_its_own(services: FakeServices, runner: JobRunner) -> None:
    services.tool(_asks_and_sees, "asks", isolation="thread")
    calling = await _asking(runner, "asks")
    assert (await calling.result())["content"][0]["text"] == "yes True"


async def _asking(runner: JobRunner, name: str) -> StartedJob:
    calling = await runner.call(name, meta={"progressToken": "p"})
    calling.peer_channel.answers["sampling/createMessage"] = {
        "role": "assistant",
        "content": {"type": "text", "text": "yes"},
        "model": "m",
    }
    return calling


# --- from a thread


@pytest.mark.row("SC-11")
async def test_a_plain_function_waits_for_what_is_awaited_in_the_loop(
    services: FakeServices, runner: JobRunner
) -> None:
    def asks(ctx: Context) -> str:
        return ctx.wait(ctx.sample("x")).text

    services.tool(asks)
    assert (await (await _asking(runner, "asks")).result())["content"][0]["text"] == "yes"


async def test_waiting_ends_when_the_call_is_cancelled(services: FakeServices, runner: JobRunner) -> None:
    heard: list[BaseException] = []
    waiting = threading.Event()

    def waits(ctx: Context) -> str:
        async def for_ever() -> None:
            waiting.set()
            await asyncio.get_running_loop().create_future()

        try:
            ctx.wait(for_ever())
        except BaseException as error:
            heard.append(error)
            raise
        return "never"

    services.tool(waits)
    calling = await runner.call("waits")
    await asyncio.to_thread(waiting.wait)
    calling.job.cancelled.set("not wanted")
    await calling.gone()
    assert isinstance(heard[0], RequestCancelled)


async def test_waiting_may_have_a_deadline_and_raises_what_is_raised(services: FakeServices, runner: JobRunner) -> None:
    async def fails() -> None:
        raise LookupError("nothing there")

    async def sleeps() -> None:
        await asyncio.get_running_loop().create_future()

    def waits(ctx: Context) -> str:
        with pytest.raises(LookupError, match="nothing there"):
            ctx.wait(fails())
        with pytest.raises(TimeoutError):
            ctx.wait(sleeps(), timeout=0.01)
        return "both"

    services.tool(waits)
    assert await runner.text("waits") == "both"


async def test_in_a_loop_one_awaits(peer_channel: RecordingChannel) -> None:
    ctx = make(peer_channel)

    async def something() -> None: ...

    with pytest.raises(RuntimeError, match="here, await it"):
        ctx.wait(something())


async def test_waiting_after_the_end_is_refused(peer_channel: RecordingChannel) -> None:
    over, cancelled = make(peer_channel), make(peer_channel)
    over.close()
    cancelled.cancelled.set("gone")

    async def something() -> None: ...

    with pytest.raises(CallIsOver):
        await asyncio.to_thread(over.wait, something())
    with pytest.raises(RequestCancelled):
        await asyncio.to_thread(cancelled.wait, something())


@pytest.mark.row("TF-23")
async def test_a_handler_may_look_at_its_flag(services: FakeServices, runner: JobRunner) -> None:
    steps: list[int] = []

    async def work(ctx: Context) -> str:
        while not ctx.cancelled:
            steps.append(1)
            await asyncio.sleep(1)
        ctx.raise_if_cancelled()
        return "never"

    services.tool(work)
    calling = await runner.call("work")
    await until(lambda: len(steps) > 3)
    calling.job.cancelled.set("enough")
    await calling.gone()
    assert len(steps) < 10
