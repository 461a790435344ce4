"""Event timeouts: when they come, what cancels them, and what does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    CallTimeout,
    Continue,
    Crash,
    EventTimeout,
    Exit,
    NoReply,
    Options,
    ProcessExited,
    Ref,
    Reply,
    become,
    inbox,
    introspect,
    self_pid,
    send,
    start,
    start_link,
    start_routine_link,
)

from .servers import Stopped, Subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.supervision import Inbox

FORMS = ["relative", "absolute"]
BY = ["init", "hand"]
VIA = ["timeout", "continue"]
SOURCES = ["call", "cast", "message"]


def timeout(me: Inbox, seconds: float | None, form: str = "relative") -> EventTimeout:
    """An event timeout whose message is sent to the inbox."""
    message = (me.pid, "handle")
    if form == "absolute" and seconds is not None:
        return EventTimeout(asyncio.get_running_loop().time() + seconds, message, absolute=True)
    return EventTimeout(seconds, message, absolute=form == "absolute")


def through(way: str, first: EventTimeout) -> Any:
    """The timeout itself, or a continue that returns it."""
    return Continue(first) if way == "continue" else first


async def started(by: str, first: Any, *before: Any) -> Ref[Subject]:
    """A server whose `init` returns `first`, after sending itself messages."""
    if by == "init":
        return await start_link(Subject, (first, *before) if before else first)

    async def by_hand() -> None:
        for message in before:
            send(self_pid(), message)
        become(Subject(), first=NoReply(then=first))

    return await start_routine_link(by_hand)


async def ask_for(source: str, ref: Ref[Subject], me: Inbox, first: Any, *before: Any) -> None:
    """Make a callback return `first`, after sending itself messages."""
    if source == "call":
        assert await ref.ask(("do", first, *before)) == "ok"
    else:
        tell: Callable[[object], bool] = ref.tell if source == "cast" else ref.send
        tell((me.pid, "do", first, *before))


async def comes(me: Inbox, ref: Ref[Subject], within: float) -> None:
    assert await me.receive(timeout=within) == (ref.pid, "handled info")


async def comes_not(me: Inbox, within: float) -> None:
    with pytest.raises(CallTimeout):
        await me.receive(timeout=within)


async def stopped(me: Inbox, ref: Ref[Subject]) -> None:
    assert await ref.call(Subject.stop) == "ok"
    match await me.receive(timeout=5):
        case Exit(pid=pid, reason=Crash(error=Stopped())):
            assert pid == ref.pid
        case other:
            pytest.fail(f"{other!r}")
    with pytest.raises(ProcessExited):
        await ref.call(Subject.started)


@pytest.mark.otp("gen_server_SUITE", "start_event_timeout")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", VIA)
@pytest.mark.parametrize("by", BY)
async def test_an_init_timeout_comes_despite_introspection(by: str, way: str, form: str) -> None:
    async with inbox() as me:
        ref = await started(by, through(way, timeout(me, 0.5, form)))
        await asyncio.sleep(0.3)
        assert (await introspect.status(ref)).pid == ref.pid
        await comes(me, ref, 0.201)
        await stopped(me, ref)


@pytest.mark.otp("gen_server_SUITE", "start_event_timeout")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", VIA)
@pytest.mark.parametrize("by", BY)
async def test_any_message_cancels_a_timeout_asked_for_at_the_start(by: str, way: str, form: str) -> None:
    async with inbox() as me:
        ref = await started(by, through(way, timeout(me, 0.5, form)))
        await introspect.status(ref)
        assert await ref.call(Subject.ping) == "pong"
        await comes_not(me, 1)
        await stopped(me, ref)


@pytest.mark.otp("gen_server_SUITE", "start_event_timeout_zero")
@pytest.mark.parametrize("way", VIA)
@pytest.mark.parametrize("by", BY)
async def test_a_zero_timeout_at_the_start_comes_before_what_was_sent_earlier(by: str, way: str) -> None:
    async with inbox() as me:
        ref = await started(by, through(way, timeout(me, 0)), "after")
        await comes(me, ref, 1)
        assert await me.receive(timeout=1) == (ref.pid, "after")
        await stopped(me, ref)


@pytest.mark.otp("gen_server_SUITE", "handle_event_timeout")
@pytest.mark.parametrize("form", FORMS)
async def test_a_timeout_that_a_callback_asks_for_comes_unless_another_message_does(form: str) -> None:
    async with inbox() as me:
        ref = await start_link(Subject)
        for source in SOURCES:
            for way in VIA:
                await ask_for(source, ref, me, through(way, timeout(me, 0.1, form)))
                await introspect.status(ref)
                await comes(me, ref, 0.2)

                await ask_for(source, ref, me, through(way, timeout(me, 0.1, form)))
                await introspect.status(ref)
                assert await ref.call(Subject.ping) == "pong"
                await comes_not(me, 0.2)
        await stopped(me, ref)


@pytest.mark.otp("gen_server_SUITE", "handle_event_timeout_infinity")
@pytest.mark.parametrize("form", FORMS)
async def test_an_infinite_timeout_never_comes(form: str) -> None:
    async with inbox() as me:
        ref = await start_link(Subject)
        for source in SOURCES:
            for way in VIA:
                await ask_for(source, ref, me, through(way, timeout(me, None, form)))
                await introspect.status(ref)
                assert await ref.call(Subject.ping) == "pong"
                await comes_not(me, 0.2)
        await stopped(me, ref)


@pytest.mark.otp("gen_server_SUITE", "handle_event_timeout_zero")
async def test_a_zero_timeout_comes_before_what_the_handler_sent_itself() -> None:
    async with inbox() as me:
        ref = await start_link(Subject)
        for source in SOURCES:
            for way in VIA:
                await ask_for(source, ref, me, through(way, timeout(me, 0)), "after")
                await comes(me, ref, 1)
                assert await me.receive(timeout=1) == (ref.pid, "after")
        await stopped(me, ref)


@pytest.mark.otp("gen_server_SUITE", "handle_event_timeout_plain")
async def test_looking_inside_leaves_an_idle_timeout_alone_and_a_message_cancels_it() -> None:
    async with inbox() as me:
        ref = await start_link(Subject)
        ref.tell((me.pid, "delayed", 0.1))
        await asyncio.sleep(0.05)
        await introspect.status(ref)
        assert await me.receive(timeout=0.2) == (ref.pid, "delayed")

        ref.tell((me.pid, "delayed", 0.1))
        assert await ref.call(Subject.ping) == "pong"
        await comes_not(me, 0.2)
        await stopped(me, ref)


async def test_a_message_that_is_there_before_the_timeout_is_handled_makes_it_void() -> None:
    async with inbox() as me:
        ref = await start(Subject)
        for seconds in (0.1, 0.0):
            ref.tell((me.pid, "do", timeout(me, 0.1)))
            await introspect.suspend(ref)  # so that both lie in its mailbox when it goes on
            ref.send((me.pid, "delayed", seconds))
            await asyncio.sleep(0.2)
            await introspect.resume(ref)
            assert await me.receive(timeout=0.2) == (ref.pid, "delayed")
            await comes_not(me, 1)


async def test_an_idle_timeout_of_zero_yields_to_a_message_that_waits() -> None:
    async with inbox() as me:
        ref = await start(Subject)
        await introspect.suspend(ref)
        ref.send((me.pid, "delayed", 0.0))
        ref.send((me.pid, "handle"))
        await introspect.resume(ref)
        await comes(me, ref, 1)
        await comes_not(me, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EventTimeout(-1),
        lambda: EventTimeout("soon"),  # type: ignore[arg-type]
        lambda: NoReply(idle_after=-0.5),
        lambda: Reply("ok", idle_after=float("nan")),
        lambda: NoReply(then=EventTimeout(1), idle_after=1),
        lambda: NoReply(then=Continue("x"), idle_after=1),
        lambda: Reply("ok", then="later"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_next_step_is_refused_where_it_is_made(make: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        make()


async def test_a_bad_action_crashes_the_server_before_its_caller_is_answered() -> None:
    class Wrong(Subject):
        def ping(self) -> Any:
            return Reply("pong", then="later")  # type: ignore[arg-type]

    ref = await Options(name="wrong").start(Wrong)
    asked: Awaitable[Any] = ref.call(Wrong.ping)
    with pytest.raises(ProcessExited) as exited:
        await asked
    assert isinstance(exited.value.__cause__, TypeError)
