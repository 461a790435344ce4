"""What a listen may take: a place of its caller's share, and memory for its filter, however much happens and however little its client reads."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Server, Settings
from greenroom.supervision import current_node
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.company import Company
    from greenroom.actors.listen_process import ListenFeed
    from greenroom.supervision import Process

URIS = [f"test://{number}" for number in range(20)]
WISH: dict[str, Any] = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": URIS}
CHANGES = 20_000


@asynccontextmanager
async def announcing(**settings: Any) -> AsyncGenerator[Company]:
    """A server with tools, prompts and resources that change."""
    server = Server("announcing", settings=Settings(**settings))
    server.tool("tool")(lambda: "")
    server.prompt("prompt")(lambda: "")

    @server.resource("test://{number}", "numbers")
    def numbers(number: str) -> str:
        return number

    async with server.started() as company:
        yield company


def named(company: Company, name: str) -> StatelessClient:
    return StatelessClient(company, Peer("test", principal=name))


async def listen(client: StatelessClient) -> Any:
    """Open a listen: its feed, or the reply that refuses it."""
    request = client.request("subscriptions/listen", {"notifications": WISH})
    return await client.company.exchange(client.peer, request, quiet=float("inf"))


async def feed_of(client: StatelessClient) -> ListenFeed:
    """An open listen, whose acknowledgement was read."""
    feed = await listen(client)
    assert not isinstance(feed, EncodedReply)
    (first,) = await feed.next()
    assert json.loads(first.data)["method"] == "notifications/subscriptions/acknowledged"
    return cast("ListenFeed", feed)


def listeners() -> list[Process]:
    """The processes of listens."""
    return [each for each in current_node().processes.values() if each.label == "listen"]


async def test_listens_take_places_of_their_callers_share_alone() -> None:
    async with announcing(max_exchanges_per_principal=2, max_exchanges=5) as company:
        ada, eve, bob = (named(company, name) for name in ("ada", "eve", "bob"))
        feeds = [await feed_of(ada), await feed_of(ada)]
        refused = await listen(ada)
        assert (refused.status, json.loads(refused.body)["error"]["data"]["reason"]) == (503, "too_many_requests")
        assert (await ada.reply("tools/call", name="tool", arguments={})).status == 503
        feeds += [await feed_of(eve), await feed_of(eve), await feed_of(bob)]
        refused = await listen(bob)
        assert json.loads(refused.body)["error"]["message"].endswith("at most 5 may be worked on")
        assert len(listeners()) == company.exchanges.open == 5

        feeds[0].leave()
        await asyncio.sleep(1)
        assert len(listeners()) == company.exchanges.open == 4
        feeds.append(await feed_of(ada))
        for feed in feeds:
            feed.leave()
        await asyncio.sleep(1)
        assert (listeners(), company.exchanges.open) == ([], 0)
        assert (await ada.result("tools/call", name="tool", arguments={}))["resultType"] == "complete"


async def change_everything(company: Company, changes: int) -> None:
    """Announce changes of each list and resource in turn, most of them of what no client has asked for."""
    kinds = ("tool", "prompt", "resource")
    for number in range(changes):
        company.list_changed(kinds[number % 3])  # type: ignore[arg-type]
        company.updated(f"test://{number % 1000}", {})
        if number % 100 == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(1)


@pytest.mark.row("26-L1", "26-L3")
async def test_a_client_that_does_not_read_holds_one_message_for_each_thing_of_its_filter() -> None:
    async with announcing() as company:
        idle, reader = await feed_of(named(company, "idle")), await feed_of(named(company, "reader"))
        await change_everything(company, 1000)
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await change_everything(company, CHANGES)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 100_000  # those 20,000 changes are some megabytes, unless they replace each other
        for process in listeners():
            assert not process.mailbox
        for feed in (idle, reader):
            events = await feed.next()
            assert events is not None
            seen = [json.loads(event.data) for event in events]
            told = {(each["method"], each["params"].get("uri")) for each in seen}
            assert len(seen) == len(told) == len(URIS) + 2
            assert {uri for _, uri in told} == {None, *URIS}
            assert await feed.next(0.5) == []
        idle.leave()
        reader.leave()
