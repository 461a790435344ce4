"""Tasks in the hands of clients of either era, their owners without a session, and the processes that watch them."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import msgspec
import pytest
from tests.actors.session.session_client import messages_in, read

from greenroom import Settings
from greenroom.actors.stateless_tasks import watch_tasks
from greenroom.actors.task_record import TaskChanged
from greenroom.actors.worker_interfaces import SessionFacts
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.versions import STATELESS
from greenroom.transports.interfaces import EncodedReply, Peer
from greenroom.wire_probe import WireProbe

from .stateless_client import ABLE, ANNE, ASKED_ANNE, MISSING, StatelessClient, asking, ended, register_two
from .task_server import RELATED, reply_to, result, running_task_server, start_task, status, texts, until

# --- T9: no messages, and notifications for those that listen


@pytest.mark.row("26-T9")
async def test_a_task_sends_no_progress_and_no_messages() -> None:
    async with running_task_server() as stage:
        heard: list[bool] = []

        @stage.server.tool(task_support="optional")
        async def talk_on(ctx: Any) -> str:
            await stage.gate("g").wait()
            heard.extend(
                bool(each) for each in (ctx.progress(1, 2), ctx.info("half way"), ctx.notify("notifications/odd"))
            )
            return "talked"

        owner = Peer("test", principal="ada")
        client = StatelessClient(stage.company, owner)
        id = await client.start("talk_on")
        player = await stage.player(owner)
        waiting = asyncio.ensure_future(reply_to(player, "tasks/result", taskId=id))
        await asyncio.sleep(0.1)
        stage.gate("g").set()
        assert texts(await waiting) == ["talked"]
        assert heard == [False, False, False]


class Watcher:
    """A process that watches tasks would be one of these: it notes what it is sent."""

    def __init__(self, number: int = 1) -> None:
        self.pid: Any = number
        self.records: list[Any] = []
        self.alive = True

    def send(self, message: object) -> bool:
        assert isinstance(message, TaskChanged)
        self.records.append(message.record)
        return self.alive


def facts_of(client: StatelessClient) -> Any:
    return SessionFacts("", STATELESS, client.peer, {}, client.capabilities)


@pytest.mark.row("26-T9")
async def test_a_watcher_is_told_of_each_change_and_of_the_end() -> None:
    async with running_task_server() as stage:
        register_two(stage)
        client = StatelessClient(stage.company)
        id = await client.start("two")
        both = await asking(client, id, 2)
        watcher: Any = Watcher()
        (now,) = watch_tasks(stage.company, facts_of(client), [id, id, "task_nowhere"], watcher)
        assert now == stage.record(id)
        for key in (*both, "question-3"):
            await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
            await asyncio.sleep(0.1)
        open_questions = [
            len(msgspec.json.decode(each.input_requests)) if each.input_requests else each.status
            for each in watcher.records
        ]
        assert open_questions == [1, "working", 1, "working", "completed"]
        assert len(stage.company.tasks.watchers) == 0


@pytest.mark.row("26-L8")
async def test_watching_needs_the_extension_and_the_owner() -> None:
    async with running_task_server() as stage:
        ada = StatelessClient(stage.company, Peer("test", principal="ada"))
        id = await ada.start("wait", gate="g")
        watcher: Any = Watcher()
        with pytest.raises(McpError) as refused:
            watch_tasks(stage.company, facts_of(StatelessClient(stage.company, capabilities=ABLE)), [id], watcher)
        assert (refused.value.code, refused.value.data) == (-32021, MISSING)
        bob = StatelessClient(stage.company, Peer("test", principal="bob"))
        assert watch_tasks(stage.company, facts_of(bob), [id], watcher) == []
        assert len(watch_tasks(stage.company, facts_of(ada), [id], watcher)) == 1
        stage.company.tasks.watchers.unwatch([id, "task_nowhere"], watcher)
        stage.gate("g").set()
        await ended(ada, id)
        assert watcher.records == []


@pytest.mark.row("26-T9")
async def test_a_watcher_that_is_gone_is_forgotten() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="shut")
        gone: Any = Watcher()
        gone.alive = False
        watch_tasks(stage.company, facts_of(client), [id], gone)
        stage.server.tasks.update(id, "half way")
        await asyncio.sleep(0.1)
        assert len(stage.company.tasks.watchers) == 0


# --- T10: owners


@pytest.mark.row("26-T10")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize(
    "stranger", [Peer("test", principal="bob"), Peer("test"), Peer("stdio"), Peer("test", principal=("ada",))]
)
async def test_a_task_of_another_principal_looks_unknown(method: str, stranger: Peer) -> None:
    async with running_task_server() as stage:
        ada = StatelessClient(stage.company, Peer("test", principal="ada"))
        id = await ada.start("ask")
        (key,) = await asking(ada, id)
        other = StatelessClient(stage.company, stranger)
        error = await other.error(method, taskId=id, inputResponses={key: ANNE})
        assert error == await other.error(method, taskId="task_nowhere", inputResponses={})
        assert stage.record(id).status == "input_required"


@pytest.mark.row("26-T10")
async def test_the_id_alone_gives_an_anonymous_client_access_and_no_principal() -> None:
    async with running_task_server() as stage:
        here, there = Peer("http", "192.0.2.1:4000", proxied=False), Peer("http", "192.0.2.2:4000", proxied=False)
        id = await StatelessClient(stage.company, here).start("wait", gate="shut")
        assert len(id.removeprefix("task_")) >= 32
        assert (await StatelessClient(stage.company, there).get(id))["status"] == "working"
        principal = StatelessClient(stage.company, Peer("http", "192.0.2.1:4000", principal="ada", proxied=False))
        assert (await principal.error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS


@pytest.mark.row("26-T10")
async def test_anonymous_clients_have_a_share_of_their_own_by_address() -> None:
    async with running_task_server(Settings(max_tasks=1)) as stage:
        for address in ("192.0.2.1:4000", "192.0.2.2:4000"):
            client = StatelessClient(stage.company, Peer("http", address, proxied=False))
            await client.start("wait", gate="shut")
            error = await client.error("tools/call", name="wait", arguments={"gate": "shut"})
            assert error["data"]["reason"] == "too_many_tasks"


@pytest.mark.row("26-T10")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_header_names_the_task(method: str) -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="shut")
        request = client.request(method, {"taskId": id, "inputResponses": {}})
        told = {"mcp-protocol-version": STATELESS, "mcp-method": method}
        for wrong in ({}, {"mcp-name": id.upper()}, {"mcp-name": "wait"}):
            reply = await stage.company.exchange(client.peer, request, {**told, **wrong})
            assert isinstance(reply, EncodedReply)
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, ErrorCode.HEADER_MISMATCH)
        assert not stage.record(id).terminal
        reply = await stage.company.exchange(client.peer, request, {**told, "mcp-name": id})
        assert isinstance(reply, EncodedReply)
        assert json.loads(reply.body)["result"]["resultType"] == "complete"


class _Nameless:
    """A principal that cannot be told from others in writing."""


@pytest.mark.row("26-T10")
async def test_a_principal_that_cannot_be_written_down_owns_no_tasks() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company, Peer("test", principal=_Nameless()))
        assert (await client.call("wait", gate="open"))["resultType"] == "complete"
        assert "_Nameless" in (await client.error("tools/call", name="only"))["message"]
        id = await StatelessClient(stage.company).start("wait", gate="shut")
        assert (await client.error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS


# --- both eras


ADA = Peer("test", principal="ada")


@pytest.mark.row("26-T3")
@pytest.mark.row("26-T7")
async def test_a_task_of_a_session_is_read_without_one() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        failed = await start_task(player, "fail", how="told")
        number = await start_task(player, "long", gate="open")
        assert (await ended(client, failed))["status"] == "completed"
        assert await status(player, failed) == "failed"
        task = await ended(client, number)
        assert RELATED not in task["result"].get("_meta", {})
        assert task["ttlMs"] > 0
        assert "ttl" not in task
        assert (await result(player, number))["result"]["_meta"] == {RELATED: {"taskId": number}}


@pytest.mark.row("26-T4")
async def test_a_question_of_a_session_is_answered_without_one() -> None:
    async with running_task_server() as stage:
        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        id = await start_task(player, "ask")
        (key,) = await asking(client, id)
        waiting = await player.reply("tasks/result", taskId=id)  # the question goes onto this stream as well
        await asyncio.sleep(0.2)
        await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
        assert (await ended(client, id))["result"]["content"][0]["text"] == ASKED_ANNE
        messages = messages_in(await read(waiting))
        asked, taken, answer = messages
        assert asked["method"] == "elicitation/create"
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
        assert texts(answer) == [ASKED_ANNE]


@pytest.mark.row("26-T5")
async def test_a_task_of_a_session_is_cancelled_without_one() -> None:
    async with running_task_server() as stage:
        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        id = await start_task(player, "wait", gate="shut")
        await client.result("tasks/cancel", taskId=id)
        await ended(client, id)
        assert await status(player, id) == "cancelled"


@pytest.mark.row("26-T3")
async def test_a_task_without_a_session_is_read_answered_and_cancelled_in_one() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        probe = await stage.probe({"elicitation/create": lambda _: ANNE}, peer=ADA)
        client = StatelessClient(stage.company, ADA)
        seven = await client.start("long", gate="open")
        await ended(client, seven)
        answer = (await result(probe, seven))["result"]
        assert answer == {
            "content": [{"type": "text", "text": "7"}],
            "structuredContent": {"result": 7},
            "isError": False,
            "_meta": {RELATED: {"taskId": seven}},
        }
        asked = await client.start("ask")
        await asking(client, asked)
        assert texts(await result(probe, asked)) == [ASKED_ANNE]
        assert (await client.get(asked))["status"] == "completed"
        cancelled = await client.start("wait", gate="shut")
        assert (await reply_to(probe, "tasks/cancel", taskId=cancelled))["result"]["status"] == "cancelled"
        assert (await client.get(cancelled))["status"] == "cancelled"
        listed = (await reply_to(probe, "tasks/list"))["result"]["tasks"]
        assert {each["taskId"] for each in listed} == {seven, asked, cancelled}
        assert probe.notifications("notifications/tasks/status") == []  # it did not ask for these tasks


@pytest.mark.row("26-T3")
async def test_a_value_is_under_result_in_a_session_and_bare_without_one() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional")
        async def any_of(which: int) -> dict[str, int] | list[int]:
            return [{"result": 1}, [1, 2], {}][which]  # type: ignore[return-value]

        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        for which, value in enumerate(({"result": 1}, [1, 2], {})):
            for id in (await start_task(player, "any_of", which=which), await client.start("any_of", which=which)):
                task = await ended(client, id)
                assert task["result"]["structuredContent"] == value
                assert (await result(player, id))["result"]["structuredContent"] == {"result": value}


@pytest.mark.row("26-T5")
async def test_one_channel_has_tasks_of_both_eras_and_a_cancelled_request_leaves_its_task() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company, ADA)
        async with WireProbe(stage.company, peer=ADA) as probe:
            request = client.request("tools/call", {"name": "wait", "arguments": {"gate": "g"}})
            number = await probe.ask("tools/call", request.params)
            id = (await probe.answer(number))["result"]["taskId"]
            old = await start_task(probe, "wait", gate="g")
            await probe.notify("notifications/cancelled", {"requestId": number})
            await probe.notify("notifications/cancelled", {"requestId": number, "_meta": request.params["_meta"]})
            await asyncio.sleep(1)
            assert [await status(probe, each) for each in (id, old)] == ["working", "working"]
            stage.gate("g").set()
            for each in (id, old):
                assert texts(await result(probe, each)) == ["through g"]
                got = await probe.ask("tasks/get", client.request("tasks/get", {"taskId": each}).params)
                assert (await probe.answer(got))["result"]["result"]["content"][0]["text"] == "through g"


@pytest.mark.row("26-L1")
@pytest.mark.row("26-T9")
async def test_a_listening_client_is_told_of_its_tasks_also_of_what_it_could_not_hear() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company, ADA)
        over, asks, works = (
            await client.start("wait", gate="open"),
            await client.start("ask"),
            await client.start("wait", gate="g"),
        )
        await ended(client, over)
        (key,) = await asking(client, asks)
        other = await StatelessClient(stage.company, Peer("test", principal="bob")).start("wait", gate="g")
        wish = {"taskIds": [works, over, other, asks, "task_nowhere"]}
        request = client.request("subscriptions/listen", {"notifications": wish})
        feed: Any = await stage.company.exchange(client.peer, request, None, math.inf)

        async def heard(count: int) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            while len(found) < count:
                found += [json.loads(event.data) for event in (await feed.next(100) or ())]
            return found

        acknowledged, first, second = await heard(3)
        assert acknowledged["params"]["notifications"] == {"taskIds": [works, over, asks]}
        assert {each["method"] for each in (first, second)} == {"notifications/tasks"}
        told = {each["params"]["taskId"]: each["params"] for each in (first, second)}
        assert told[over]["result"]["content"][0]["text"] == "through open"
        assert told[asks]["inputRequests"].keys() == {key}
        assert told[over]["_meta"] == {"io.modelcontextprotocol/subscriptionId": request.id}
        stage.gate("g").set()
        (last,) = await heard(1)
        assert (last["params"]["taskId"], last["params"]["status"]) == (works, "completed")
        feed.leave()
        await until(lambda: len(stage.company.tasks.watchers) == 0)


async def test_a_session_that_cannot_answer_a_question_leaves_it_to_others() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company, ADA)
        id = await client.start("ask")
        async with WireProbe(stage.company, peer=ADA, capabilities={}) as unable:
            waiting = asyncio.ensure_future(result(unable, id))
            await asyncio.sleep(0.2)
            (key,) = await asking(client, id)
            await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
            assert texts(await waiting) == [ASKED_ANNE]


async def test_a_task_of_an_anonymous_session_is_not_read_without_it() -> None:
    async with running_task_server() as stage:
        player = await stage.player()
        id = await start_task(player, "wait", gate="shut")
        assert (await StatelessClient(stage.company).error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS
        free = await StatelessClient(stage.company).start("wait", gate="shut")
        assert await status(player, free) == "working"
        assert free not in {each["taskId"] for each in (await reply_to(player, "tasks/list"))["result"]["tasks"]}


async def test_the_program_creates_a_task_for_a_caller_without_a_session() -> None:
    async with running_task_server() as stage:
        server = stage.server

        @server.tool
        async def order(ctx: Any) -> str:
            return str(server.tasks.create(ctx, "order"))

        client = StatelessClient(stage.company, ADA)
        id = (await client.call("order"))["content"][0]["text"]
        assert (await client.get(id))["status"] == "working"
        await asyncio.to_thread(server.tasks.finish, id, "two loaves")
        assert (await ended(client, id))["result"]["content"][0]["text"] == "two loaves"
        probe = await stage.probe(peer=ADA)
        own = (await probe.request("tools/call", {"name": "order"}))["content"][0]["text"]
        assert await status(probe, own) == "working"
