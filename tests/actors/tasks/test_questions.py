"""Questions of a task: `input_required`, delivery to a session that can answer, and back to work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.session.session_client import SessionClient, messages_in, read

from greenroom import Settings
from greenroom.protocol.jsonrpc import JsonRpcResponse
from greenroom.supervision import kill
from greenroom.transports.interfaces import Peer

from .task_server import RELATED, reply_to, result, running_task_server, start_task, status, texts, until

if TYPE_CHECKING:
    from greenroom.transports.interfaces import Feed

    from .task_server import TaskServer

ANNE = {"action": "accept", "content": {"name": "anne"}}
ASKED_ANNE = "asked: Accepted(value={'name': 'anne'})"


async def question_on(feed: Feed) -> dict[str, Any]:
    """The only request on the feed."""
    (found,) = [each for each in messages_in(await read(feed, 0.2)) if "id" in each and "method" in each]
    return found


async def open_questions(stage: TaskServer) -> list[str]:
    """Those of all sessions."""
    peers = stage.server.peers
    return [id for card in await peers.all() for id in (await peers.snapshot(card.id))["questions"]]


async def waits(player: SessionClient, id: str) -> Feed:
    """Ask for the result, and be given a stream since there is a question first."""
    feed = await player.reply("tasks/result", taskId=id)
    assert hasattr(feed, "next")
    return feed  # type: ignore[no-any-return]


@pytest.mark.row("TF-27")
async def test_a_question_waits_for_a_call_of_tasks_result_and_goes_onto_its_stream() -> None:
    async with running_task_server() as stage:
        player = await stage.player()
        id = await start_task(player, "ask")
        await asyncio.sleep(20)
        assert await status(player, id) == "input_required"
        assert not await open_questions(stage)
        feed = await waits(player, id)
        question = await question_on(feed)
        assert question["method"] == "elicitation/create"
        assert question["params"]["_meta"] == {RELATED: {"taskId": id}}
        assert await status(player, id) == "input_required"
        meta = {"_meta": {RELATED: {"taskId": id}}}
        await player.session.respond(JsonRpcResponse(question["id"], ANNE | meta))
        (answer,) = [each for each in messages_in(await read(feed)) if "result" in each]
        assert texts(answer) == [ASKED_ANNE]
        assert await status(player, id) == "completed"


async def test_on_a_channel_it_is_asked_at_once() -> None:
    async with running_task_server() as stage:
        client = await stage.probe({"elicitation/create": lambda _: ANNE})
        id = await start_task(client, "ask")
        assert texts(await result(client, id)) == [ASKED_ANNE]
        states = [each["status"] for each in client.notifications("notifications/tasks/status")]
        assert states == ["working", "input_required", "working", "completed"]


async def test_a_question_goes_onto_the_general_stream_once_it_has_a_reader() -> None:
    async with running_task_server() as stage:
        player = await stage.player()
        id = await start_task(player, "ask")
        await asyncio.sleep(3)
        feed = await player.session.listen()
        await asyncio.sleep(2)
        question = await question_on(feed)
        await player.session.respond(JsonRpcResponse(question["id"], ANNE))
        assert texts(await result(player, id)) == [ASKED_ANNE]


async def test_back_at_work_after_the_answer() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional")
        async def two(ctx: Any) -> str:
            await ctx.elicit("first?", {"type": "object", "properties": {}})
            await stage.gate("between").wait()
            await ctx.elicit("second?", {"type": "object", "properties": {}})
            return "both"

        player = await stage.player()
        id = await start_task(player, "two")
        feed = await waits(player, id)
        await player.session.respond(JsonRpcResponse((await question_on(feed))["id"], {"action": "decline"}))
        await asyncio.sleep(0.1)
        assert await status(player, id) == "working"
        stage.gate("between").set()
        await player.session.respond(JsonRpcResponse((await question_on(feed))["id"], {"action": "decline"}))
        assert texts(next(each for each in messages_in(await read(feed)) if "result" in each)) == ["both"]


async def test_a_client_that_stops_waiting_without_an_answer_is_asked_again_when_it_waits_again() -> None:
    async with running_task_server() as stage:
        player = await stage.player()
        id = await start_task(player, "ask")
        feed = await player.reply("tasks/result", id="first", taskId=id)
        first = await question_on(feed)
        await player.cancel("first")
        assert await status(player, id) == "input_required"
        await player.session.respond(JsonRpcResponse(first["id"], ANNE))  # too late: it was taken back
        again = await waits(player, id)
        second = await question_on(again)
        assert second["id"] != first["id"]
        await player.session.respond(JsonRpcResponse(second["id"], ANNE))
        assert texts(next(each for each in messages_in(await read(again)) if "result" in each)) == [ASKED_ANNE]


async def test_a_client_that_lost_the_stream_with_the_question_is_asked_again_on_the_next() -> None:
    async with running_task_server() as stage:
        player = await stage.player()
        id = await start_task(player, "ask")
        feed = await waits(player, id)
        await question_on(feed)
        feed.leave()
        del feed
        again = await waits(player, id)
        question = await question_on(again)
        assert await open_questions(stage) == [question["id"]]
        await player.session.respond(JsonRpcResponse(question["id"], ANNE))
        assert texts(next(each for each in messages_in(await read(again)) if "result" in each)) == [ASKED_ANNE]


async def test_a_session_that_dies_with_the_question_leaves_it_to_the_next_of_its_owner() -> None:
    async with running_task_server() as stage:
        peer = Peer("test", principal="ann")
        first, second = await stage.player(peer), await stage.player(peer)
        id = await start_task(first, "ask")
        await question_on(await waits(first, id))
        kill(stage.server.peers.ref(first.session.id))
        await asyncio.sleep(1)
        assert await status(second, id) == "input_required"
        feed = await waits(second, id)
        await player_answers(second, feed)
        assert texts(await result(second, id)) == [ASKED_ANNE]


async def player_answers(player: SessionClient, feed: Feed) -> None:
    """Say anne."""
    await player.session.respond(JsonRpcResponse((await question_on(feed))["id"], ANNE))


async def test_a_peer_that_cannot_be_asked_is_not_and_the_task_works_on() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional")
        async def roots(ctx: Any) -> str:
            try:
                await ctx.roots()
            except Exception as error:  # noqa: BLE001 - whatever it is, the tool says it
                return str(error)
            return "never"

        client = await stage.probe()
        id = await start_task(client, "roots")
        assert "roots" in texts(await result(client, id))[0]
        states = [each["status"] for each in client.notifications("notifications/tasks/status")]
        assert states == ["working", "completed"]


@pytest.mark.parametrize("end", ["cancel", "kill", "handler"])
async def test_when_the_task_is_over_its_questions_are_taken_back(end: str) -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional")
        async def gives_up(ctx: Any) -> str:
            try:
                async with asyncio.timeout(3):
                    await ctx.elicit("who?", {"type": "object", "properties": {}})
            except TimeoutError:
                pass
            return "gave up"

        player = await stage.player()
        id = await start_task(player, "gives_up" if end == "handler" else "ask")
        feed = await waits(player, id)
        question = await question_on(feed)
        if end == "cancel":
            await reply_to(player, "tasks/cancel", taskId=id)
        elif end == "kill":
            collector = stage.process(id)
            assert collector is not None
            kill(collector)
        else:
            await asyncio.sleep(5)
        left = messages_in(await read(feed))
        (taken,) = [each for each in left if each.get("method") == "notifications/cancelled"]
        assert taken["params"]["requestId"] == question["id"]
        assert [each for each in left if "id" in each] == [left[-1]]
        assert not await open_questions(stage)


async def test_a_question_is_taken_back_at_once_also_when_its_tool_takes_its_time_to_end() -> None:
    async with running_task_server(Settings(cancel_grace=60)) as stage:

        @stage.server.tool(task_support="optional")
        def stubborn(ctx: Any) -> str:
            return str(ctx.wait(ctx.elicit("who?", {"type": "object", "properties": {}})))

        for tool in ("ask", "stubborn"):
            client = await stage.probe()  # it leaves questions open

            def questions(client: Any = client) -> list[str]:
                return [each["id"] for each in client.received if each.get("method") == "elicitation/create"]

            client.answers["elicitation/create"] = lambda _: asyncio.Event().wait()
            id = await start_task(client, tool)
            await until(lambda questions=questions: questions())  # type: ignore[misc]
            await reply_to(client, "tasks/cancel", taskId=id)
            (taken,) = await client.wait_for_notifications("notifications/cancelled", within=1)
            assert [taken["requestId"]] == questions()


async def test_an_unanswered_question_of_a_task_times_out() -> None:
    async with running_task_server(Settings(ask_timeout=30)) as stage:
        player = await stage.player()
        id = await start_task(player, "ask")
        await asyncio.sleep(100)  # the client was not asked yet, so no time runs
        assert await status(player, id) == "input_required"
        feed = await waits(player, id)
        await question_on(feed)
        await asyncio.sleep(31)
        await until(lambda: stage.record(id).terminal)
        assert stage.record(id).status == "failed"
