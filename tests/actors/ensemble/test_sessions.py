"""A session lives on one node, and every node answers for it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import is_alive, kill

from .several_nodes import Client, House, Town, answer_of, heard, town, until

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(name="two")
def _two() -> Generator[Town]:
    with town(2) as made:
        yield made


def test_a_request_is_answered_where_its_session_lives_whichever_node_it_comes_to(two: Town) -> None:
    here, there = two.client(0), two.client(1)
    assert [here.tool(place, "where") for place in (0, 1, 0)] == ["0", "0", "0"]
    assert [there.tool(place, "where") for place in (0, 1, 0)] == ["1", "1", "1"]


def test_lists_reads_errors_and_what_is_only_told_cross_as_well(two: Town) -> None:
    client = two.client(0)
    assert [tool["name"] for tool in client.ask(1, "tools/list")["result"]["tools"]][:2] == ["asks", "asks_and_ends"]
    assert client.ask(1, "resources/read", uri="town://news")["result"]["contents"][0]["text"] == "news of 0"
    assert client.ask(1, "no/such")["error"]["code"] == -32601
    assert client.ask(1, "tools/call", name="unknown")["error"]["code"] == -32602
    assert client.say(1, {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}) == 202


def test_numbers_texts_and_large_arguments_arrive_as_they_were_sent(two: Town) -> None:
    client = two.client(0)
    said = client.ask(1, "tools/call", name="where", arguments={"n": 2**80})
    assert "result" in said
    assert said["id"] == client.last
    long = "ü" * 600_000
    assert "result" in client.ask(1, "tools/call", name="where", arguments={"text": long})


def test_a_session_is_its_principals_on_every_node(two: Town) -> None:
    alice = two.client(0, "alice")
    eve = Client(two, "eve")
    eve.session = alice.session
    assert alice.tool(1, "where") == "0"
    for place in (0, 1):
        assert two.at(place, _status, eve, two.houses[place]) == 404
    assert alice.tool(1, "where") == "0"


async def _status(client: Client, house: House) -> int:
    paper, work = client.begin(house, "tools/list")
    await work
    return paper.status


def test_a_foreign_task_id_is_asked_for_on_no_node(two: Town) -> None:
    client = two.client(0)
    good = client.session
    for forged in (good[:-1] + ("0" if good[-1] != "0" else "1"), "mcp_" + "0" * 40, good[:-8], good + "00", "x", "ü"):
        client.session = forged
        assert two.at(1, _status, client, two.houses[1]) == 404


def test_a_session_that_was_ended_elsewhere_is_ended(two: Town) -> None:
    client = two.client(0)
    assert two.at(1, _delete, client, two.houses[1]) == 204
    assert [two.at(place, _status, client, two.houses[place]) for place in (0, 1)] == [404, 404]


async def _delete(client: Client, house: House) -> int:
    return (await house.engine.ask("DELETE", "/mcp", client.headers())).status


def test_progress_comes_as_a_stream_from_the_other_node(two: Town) -> None:
    client = two.client(0)
    events = two.at(1, _steps, client, two.houses[1])
    assert [event["id"] for event in events] == [f"p1:{number}" for number in range(5)]
    assert "done at 0" in events[-1]["data"]


async def _steps(client: Client, house: House) -> Any:
    paper, work = client.call(house, "steps", count=3)
    await work
    return await heard(paper, "done")


def test_a_stream_that_broke_on_one_node_is_resumed_on_another() -> None:
    with town(3) as three:
        client = three.client(0)
        held = three.houses[0].server.gates  # type: ignore[attr-defined]
        last, paper = three.at(1, _begin_and_leave, client, three.houses[1])
        assert last == "p1:1"
        three.at(0, _open, held)
        events = three.at(2, _resume, client, three.houses[2], last)
        assert [event["id"] for event in events] == ["p1:2", "p1:3"]
        assert "done at 0" in events[-1]["data"]
        assert "done" not in str(paper.chunks)


async def _begin_and_leave(client: Client, house: House) -> Any:
    paper, work = client.call(house, "held")
    events = await heard(paper, "progress")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return events[-1]["id"], paper


async def _open(gates: list[asyncio.Event]) -> None:
    gates[-1].set()


async def _resume(client: Client, house: House, last: str) -> Any:
    paper, work = client.listen(house, last)
    await work
    return await heard(paper, "done")


def test_a_reader_that_left_there_reads_no_more_here(two: Town) -> None:
    client = two.client(0)
    company = two.houses[0].server.company
    two.at(1, _begin_and_leave, client, two.houses[1])

    async def has_reader() -> bool:
        process: Any = two.houses[0].node.node.process(company.peers.ref(client.session).pid)
        reply_sink = process.behaviour.reply_sink
        await until(lambda: not reply_sink.has_reader)
        return bool(reply_sink.has_reader)

    assert two.at(0, has_reader) is False
    two.at(0, _open, two.houses[0].server.gates)  # type: ignore[attr-defined]


def test_messages_outside_of_calls_come_on_a_stream_opened_at_another_node(two: Town) -> None:
    client = two.client(0)
    ears: list[Any] = []

    async def listen() -> Any:
        paper, work = client.listen(two.houses[1])
        await until(lambda: paper.chunks)
        ears.extend((paper, work))

    async def hear() -> Any:
        paper, work = ears
        events = await heard(paper, "hello")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return events

    two.at(1, listen)
    assert (
        two.at(0, two.houses[0].server.peers.broadcast, "notifications/message", {"level": "info", "data": "hello"})
        == 1
    )
    assert two.at(1, hear)[-1]["id"] == "g0:1"


def test_a_question_of_a_tool_is_answered_by_way_of_another_node(two: Town) -> None:
    client = two.client(0)

    async def begin() -> Any:
        paper, work = client.call(two.houses[1], "asks")
        events = await heard(paper, "roots/list")
        return paper, work, events[-1]["data"]

    paper, work, asked = two.at(1, begin)
    id = json.loads(asked)["id"]
    root = {"uri": "file:///town", "name": "town"}
    assert client.say(0, {"jsonrpc": "2.0", "id": id, "result": {"roots": [root]}}) == 202

    async def end() -> Any:
        await work
        return answer_of(paper)

    assert "file:///town" in two.at(1, end)["result"]["content"][0]["text"]


def test_a_call_is_cancelled_by_way_of_another_node(two: Town) -> None:
    client = two.client(0)
    server: Any = two.houses[0].server

    async def begin() -> Any:
        return client.call(two.houses[1], "forever")

    paper, work = two.at(1, begin)
    two.at(0, server.begun.wait)
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": client.last}}
    assert client.say(1, note) == 202
    two.at(0, server.ended.wait)

    async def end() -> Any:
        await work
        return paper.status, paper.body

    assert two.at(1, end) == (200, b": keep-alive\n\n")  # a stream that has no answer: an empty body is no JSON


def test_a_session_that_dies_in_the_middle_is_one_answer_there(two: Town) -> None:
    client = two.client(0)
    server: Any = two.houses[0].server

    async def begin() -> Any:
        return client.call(two.houses[1], "forever")

    paper, work = two.at(1, begin)
    two.at(0, server.begun.wait)

    async def die() -> None:
        kill(server.peers.whereis(client.session))

    two.at(0, die)

    async def end() -> Any:
        await work
        return paper.status, answer_of(paper)["error"]["message"]

    status, message = two.at(1, end)
    assert status == 200  # it may have been done: a 404 would have it sent again
    assert "initialize" in message


def test_a_stream_whose_session_dies_ends_with_the_answer_that_it_owes(two: Town) -> None:
    client = two.client(0)
    server: Any = two.houses[0].server

    async def begin() -> Any:
        paper, work = client.call(two.houses[1], "held")
        await heard(paper, "progress")
        return paper, work

    paper, work = two.at(1, begin)

    async def die() -> None:
        kill(server.peers.whereis(client.session))

    two.at(0, die)

    async def end() -> Any:
        await work
        return answer_of(paper)

    said = two.at(1, end)
    assert said["id"] == client.last
    assert "error" in said


@pytest.mark.parametrize("name", ["forever", "held"])
def test_a_node_that_is_lost_in_the_middle_is_one_answer_there(name: str) -> None:
    with town(3) as three:
        client, other = three.client(0), three.client(1)

        async def begin() -> Any:
            paper, work = client.call(three.houses[1], name)
            if name == "held":
                await heard(paper, "progress")
            return paper, work

        paper, work = three.at(1, begin)
        if name == "forever":
            three.at(0, three.houses[0].server.begun.wait)  # type: ignore[attr-defined]

        async def cut() -> None:
            three.houses[0].peers.node.remote_nodes = None
            await three.houses[0].peers.close()

        three.at(0, cut)

        async def end() -> Any:
            await work
            return answer_of(paper)

        said = three.at(1, end)
        assert said["id"] == client.last
        assert "initialize" in said["error"]["message"]
        assert three.at(1, _status, client, three.houses[1]) == 404
        assert other.tool(2, "where") == "1"


def test_a_session_server_that_dies_is_followed_by_another_and_sessions_do_not_notice(two: Town) -> None:
    client = two.client(0)
    node = two.houses[0].node.node
    session_server = node.names["greenroom.session_server"].pid

    async def die() -> bool:
        kill(session_server)
        await until(
            lambda: (
                "greenroom.session_server" in node.names
                and node.names["greenroom.session_server"].pid != session_server
            )
        )
        return is_alive(session_server)

    assert two.at(0, die) is False
    assert client.tool(1, "where") == "0"


def test_a_peer_that_gives_up_there_is_a_reader_that_left_here(two: Town) -> None:
    client = two.client(0)
    server: Any = two.houses[0].server

    async def begin() -> Any:
        _, work = client.call(two.houses[1], "forever")
        return work

    work = two.at(1, begin)
    two.at(0, server.begun.wait)

    async def give_up() -> None:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    two.at(1, give_up)

    async def over() -> int:
        process: Any = two.houses[0].node.node.process(server.peers.ref(client.session).pid)
        calls = list(process.behaviour.calls.table)
        await until(lambda: calls[0].caller.over)
        return len(calls)

    assert two.at(0, over) == 1  # the call goes on, and no caller waits
