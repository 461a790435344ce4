"""How long a question stays open: until it is answered, or its handler stops waiting, which cancels it at the peer."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.session.session_client import messages_in, read, turns

from greenroom import Accepted, Context, McpError, Root, Settings
from greenroom.actors.company import UnknownSession
from greenroom.actors.peer_channels import NoStream
from greenroom.protocol.jsonrpc import JsonRpcResponse
from greenroom.supervision import CallTimeout, ProcessExited, kill

from .question_server import result_text, running_question_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.actors.server_questions import ClientRequester

TAKEN_BACK = "notifications/cancelled"


async def thinks(_: Any) -> Any:
    """A user who never comes to an end."""
    await asyncio.Event().wait()


THINKING: dict[str, Callable[[Any], Any]] = {
    "elicitation/create": thinks,
    "sampling/createMessage": thinks,
    "roots/list": thinks,
}


async def ask_each(peer: ClientRequester, which: str, timeout: float | None = None) -> Any:
    match which:
        case "form":
            return await peer.elicit("?", int, timeout=timeout)
        case "page":
            return await peer.elicit_url("Go.", "https://a.b", timeout=timeout)
        case "model":
            return await peer.sample("hello", timeout=timeout)
        case _:
            return await peer.roots(timeout=timeout)


QUESTIONS = ("form", "page", "model", "roots")


@pytest.mark.row("SC-11")
@pytest.mark.parametrize("which", QUESTIONS)
async def test_a_call_that_is_cancelled_while_the_user_thinks_takes_its_question_back(which: str) -> None:
    ended: list[BaseException] = []

    async def ask(ctx: Context) -> str:
        try:
            await ask_each(ctx, which)
        except BaseException as error:
            ended.append(error)
            raise
        return "never"

    async with running_question_server(ask) as stage:
        probe = await stage.probe(THINKING)
        call = await probe.ask("tools/call", {"name": "ask", "arguments": {}})
        await probe.wait_for(lambda message: message.get("id") == "srv-1")
        await probe.cancel(call)
        [taken] = await probe.wait_for_notifications(TAKEN_BACK)
        assert taken["requestId"] == "srv-1"
        assert await stage.questions() == []
        await asyncio.sleep(2)
        assert len(ended) == 1
        assert [each for each in probe.received if each.get("id") == call] == []  # a cancelled call is not answered
        await probe.request("ping")


@pytest.mark.row("SC-11")
@pytest.mark.parametrize("which", QUESTIONS)
async def test_a_handler_that_stops_waiting_withdraws_its_question(which: str) -> None:
    async def ask(ctx: Context) -> str:
        try:
            async with asyncio.timeout(3):
                await ask_each(ctx, which)
        except TimeoutError:
            return "went on"
        return "never"

    async with running_question_server(ask) as stage:
        probe = await stage.probe(THINKING)
        assert result_text(await probe.call("ask")) == "went on"
        assert [each["requestId"] for each in probe.notifications(TAKEN_BACK)] == ["srv-1"]
        assert await stage.questions() == []


@pytest.mark.row("SC-11")
@pytest.mark.greenroom(clock="real")  # a thread that waits is on no other
async def test_a_thread_that_stops_waiting_takes_its_question_back() -> None:
    def ask(ctx: Context) -> str:
        try:
            ctx.wait(
                ctx.elicit("?", int), 0.5
            )  # of real time: long enough for the question to be asked, whatever else the machine does
        except TimeoutError:
            return "went on"
        return "never"

    async with running_question_server(ask) as stage:
        probe = await stage.probe(THINKING)
        assert result_text(await probe.call("ask")) == "went on"
        assert len(await probe.wait_for_notifications(TAKEN_BACK)) == 1
        assert await stage.questions() == []


@pytest.mark.row("SC-11")
async def test_one_of_several_questions_is_withdrawn_and_the_others_stay() -> None:
    async def ask(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(ctx.request("custom/ask", {"n": n})) for n in range(3)]
            await asyncio.sleep(1)
            asking[1].cancel()
        return str([task.result()["n"] for task in asking if not task.cancelled()])

    async def slow(params: Any) -> Any:
        await asyncio.sleep(2)
        return params

    async with running_question_server(ask) as stage:
        probe = await stage.probe({"custom/ask": slow})
        assert result_text(await probe.call("ask")) == "[0, 2]"
        [taken] = probe.notifications(TAKEN_BACK)
        [asked] = [each for each in probe.received if each.get("id") == taken["requestId"]]
        assert asked["params"] == {"n": 1}


@pytest.mark.row("SC-05", "SC-11")
@pytest.mark.parametrize("which", QUESTIONS)
async def test_every_question_has_a_deadline(which: str) -> None:
    async with running_question_server(settings=Settings(ask_timeout=12)) as stage:
        probe = await stage.probe(THINKING)
        peer = stage.server.session((await stage.server.peers.all())[0].id)
        now = asyncio.get_running_loop().time
        for timeout, seconds in ((None, 12), (2.5, 2.5)):
            began = now()
            with pytest.raises(CallTimeout):
                await ask_each(peer, which, timeout)
            assert now() - began == pytest.approx(seconds)
        assert len(await probe.wait_for_notifications(TAKEN_BACK, 2)) == 2
        waiting = asyncio.create_task(ask_each(peer, which, math.inf))
        await asyncio.sleep(1_000_000)
        assert not waiting.done()
        waiting.cancel()
        await probe.wait_for_notifications(TAKEN_BACK, 3)
        assert await stage.questions() == []


@pytest.mark.row("SC-11")
@pytest.mark.parametrize("which", QUESTIONS)
async def test_askers_get_an_error_when_the_session_ends(which: str) -> None:
    async with running_question_server() as stage:
        await stage.probe(THINKING)
        [card] = await stage.server.peers.all()
        peer = stage.server.session(card.id)
        asking = asyncio.create_task(ask_each(peer, which))
        await turns()
        kill(stage.server.peers.ref(card.id))
        with pytest.raises(ProcessExited):
            await asking
        with pytest.raises(UnknownSession):
            await ask_each(peer, which)


@pytest.mark.row("SC-11")
async def test_no_more_are_open_than_may_be_and_places_become_free() -> None:
    async with running_question_server(settings=Settings(max_asks=3)) as stage:
        probe = await stage.probe(THINKING)
        peer = stage.server.session((await stage.server.peers.all())[0].id)
        asking = [asyncio.create_task(ask_each(peer, which)) for which in QUESTIONS]
        await turns()
        assert len(await stage.questions()) == 3
        with pytest.raises(McpError, match="at most 3"):
            await asking[3]
        for task in asking[:3]:
            task.cancel()
        await probe.wait_for_notifications(TAKEN_BACK, 3)
        assert await stage.questions() == []
        later = [asyncio.create_task(ask_each(peer, which)) for which in QUESTIONS[:3]]
        await turns()
        assert not any(task.done() for task in later)
        for task in later:
            task.cancel()
        await asyncio.gather(*later, return_exceptions=True)


@pytest.mark.row("SC-05")
@pytest.mark.row("SC-09")
async def test_on_streams_questions_from_outside_need_a_reader_and_are_answered_there() -> None:
    async with running_question_server() as stage:
        player = await stage.player()
        peer = stage.server.session(player.session.id)
        for which in QUESTIONS:
            with pytest.raises(NoStream, match="no open stream"):
                await ask_each(peer, which)
        feed = await player.session.listen()
        answers: list[tuple[str, dict[str, Any], Any]] = [
            ("form", {"action": "accept", "content": {"value": 3}}, Accepted(3)),
            ("roots", {"roots": [{"uri": "file:///a"}, {"name": "none"}]}, [Root("file:///a")]),
        ]
        for which, answer, value in answers:
            asking = asyncio.create_task(ask_each(peer, which))
            [question] = messages_in(await read(feed))
            await player.session.respond(JsonRpcResponse(question["id"], answer))
            assert await asking == value
        feed.leave()
