"""Changes that are sent to all nodes, and those that stay on one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.http.engine_driver import RecordedResponse

from greenroom import Settings
from greenroom.supervision import kill

from .several_nodes import Client, House, Town, answer_of, heard, town, until

if TYPE_CHECKING:
    from collections.abc import Generator


pytestmark = pytest.mark.greenroom(clock="real")

Ears = tuple[RecordedResponse, asyncio.Task[None]]


@pytest.fixture(name="three")
def _three() -> Generator[Town]:
    with town(3) as made:
        yield made


def listening(town: Town, client: Client, place: int) -> Ears:
    """An open stream of a client at that node."""

    async def listen() -> Ears:
        paper, work = client.listen(town.houses[place])
        await until(lambda: paper.chunks)
        return paper, work

    return town.at(place, listen)


def hears(town: Town, place: int, ears: Ears, word: str) -> list[str]:
    """The events on the stream up to one with that word; then it is closed."""

    async def hear() -> list[str]:
        paper, work = ears
        events = await heard(paper, word)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return [event["data"] for event in events if event.get("data")]

    return town.at(place, hear)


@pytest.mark.parametrize("at", [0, 1])
def test_an_update_reaches_subscribers_on_all_nodes(three: Town, at: int) -> None:
    clients = [three.client(place) for place in range(3)]
    for place, client in enumerate(clients):
        assert client.ask((place + 1) % 3, "resources/subscribe", uri="town://news")["result"] == {}
    ears = [listening(three, client, place) for place, client in enumerate(clients)]
    three.houses[at].server.notify_resource_updated("town://news", {"title": "extra"})
    for place, each in enumerate(ears):
        said = hears(three, place, each, "resources/updated")
        assert len(said) == 1
        assert "extra" in said[0]


def test_an_update_that_a_registry_tells_goes_everywhere_too(three: Town) -> None:
    client = three.client(1)
    client.ask(1, "resources/subscribe", uri="town://news")
    ears = listening(three, client, 1)

    async def tell() -> None:
        three.houses[2].server.company.registry.notify_resource_updated("town://news")

    three.at(2, tell)
    assert hears(three, 1, ears, "resources/updated")


def test_a_list_change_is_sent_to_all_nodes_when_announced_and_to_this_node_when_registered(three: Town) -> None:
    clients = [three.client(place) for place in range(2)]
    ears = [listening(three, client, place) for place, client in enumerate(clients)]
    three.houses[0].server.registry.register_tool("new", _new)
    assert hears(three, 0, ears[0], "tools/list_changed")
    three.houses[0].server.notify_list_changed("prompt")
    said = hears(three, 1, ears[1], "prompts/list_changed")
    assert not any("tools/list_changed" in each for each in said)


async def _new() -> str:
    return "new"


def test_a_broadcast_reaches_all_sessions_and_counts_them(three: Town) -> None:
    clients = [three.client(place) for place in (0, 1, 1)]
    ears = [listening(three, client, 2) for client in clients]
    server = three.houses[0].server
    assert three.at(0, server.broadcast, "notifications/message", {"level": "info", "data": "to all"}) == 3
    for each in ears:
        assert hears(three, 2, each, "to all")


def test_a_page_that_another_node_serves_says_that_a_user_has_done(three: Town) -> None:
    client = three.client(0)
    ears = listening(three, client, 0)
    company = three.houses[0].server.company

    async def sent() -> None:
        company.expect_elicitations(client.session, None, ["page-1"])
        ref: Any = company.peers.ref(client.session)
        await ref.call(type(three.houses[0].node.node.process(ref.pid).behaviour).snapshot)  # type: ignore[union-attr]

    three.at(0, sent)
    assert three.houses[2].server.elicitation_complete("page-1") is True
    assert hears(three, 0, ears, "page-1")


def test_certificates_are_read_again_by_all(three: Town) -> None:
    three.houses[1].server.reload_certificates()

    async def renewed(house: House) -> int:
        await until(lambda: house.renewed)
        return house.renewed

    assert [three.at(place, renewed, three.houses[place]) for place in (0, 2)] == [1, 1]


def test_after_a_session_server_died_all_subscribers_are_notified_of_a_gap(three: Town) -> None:
    client = three.client(1)
    client.ask(1, "resources/subscribe", uri="town://news")
    ears = listening(three, client, 1)

    async def die() -> None:
        kill(three.houses[0].node.node.names["greenroom.session_server"].pid)

    three.at(0, die)
    said = hears(three, 1, ears, "resources/updated")
    assert any("tools/list_changed" in each for each in said)


def test_a_node_that_is_not_there_costs_the_others_nothing(three: Town) -> None:
    client = three.client(1)
    ears = listening(three, client, 1)
    three.at(2, three.houses[2].peers.close)
    server = three.houses[0].server
    assert three.at(0, server.broadcast, "notifications/message", {"level": "info", "data": "to all"}) == 1
    assert hears(three, 1, ears, "to all")


def test_tasks_of_a_principal_are_found_from_every_node_and_only_by_them() -> None:
    with town(3, Settings(task_poll=0.05)) as three:
        three.houses[0].server.registry.register_tool("slow", _new, _as_task())
        alice, too, eve = three.client(0, "alice"), three.client(1, "alice"), three.client(1, "eve")
        begun = alice.ask(0, "tools/call", name="slow", arguments={}, task={"ttl": 60_000})
        id = begun["result"]["task"]["taskId"]
        for place in (0, 1, 2):
            assert too.ask(place, "tasks/result", taskId=id)["result"]["content"][0]["text"] == "new"
            assert too.ask(place, "tasks/get", taskId=id)["result"]["status"] == "completed"
            assert alice.ask(place, "tasks/get", taskId=id)["result"]["status"] == "completed"
            assert "error" in eve.ask(place, "tasks/get", taskId=id)


def _as_task() -> Any:
    from greenroom.actors.handler_options import ToolOptions  # noqa: PLC0415 - for this alone

    return ToolOptions(task_support="optional")


def test_posts_of_the_old_transport_find_their_stream_from_every_node() -> None:
    with town(2, old_sse=True) as two:
        house, other = two.houses

        async def listen() -> Any:
            paper = RecordedResponse()
            work = asyncio.create_task(house.engine.begin(paper, "GET", "/sse", {"accept": "text/event-stream"}))
            events = await heard(paper, "session_id")
            return paper, work, events[0]["data"]

        paper, work, where = two.at(0, listen)
        path = "/" + where.split("/")[-1]

        async def post(body: Any) -> int:
            return (await other.engine.post(body, path=path)).status

        params: dict[str, Any] = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        assert two.at(1, post, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) == 202
        assert two.at(1, post, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        call: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "where", "arguments": {}},
        }
        assert two.at(1, post, call) == 202

        async def hear() -> Any:
            await heard(paper, '"id":2')
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return answer_of(paper)

        assert two.at(0, hear)["result"]["content"][0]["text"] == "0"
