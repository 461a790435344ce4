"""Floods of cheap messages: nothing of them stays, no other client notices, and each request gets its one reply."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom.actors.company import Company
from greenroom.actors.settings import Settings
from greenroom.actors.subscriptions import MAX_SESSION_CHARACTERS, MAX_URI_CHARACTERS
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.supervision import current_node
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.transports.interfaces import SessionHandle

PEER = Peer("http", "127.0.0.1:1")
INFO = {"name": "flood", "version": "1"}
HELLO = JsonRpcRequest(
    "h", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": INFO}
)
FLOOD = 3_000
ROOM = 256 * 1024
"""How many bytes a session may hold after any messages, ids of a thousand characters included."""


async def enter(hooks: Hooks | None = None, **settings: Any) -> tuple[Company, SessionHandle]:
    company = Company(Settings(**settings), hooks=hooks)
    await start_supervised(company.child_spec())
    session = (await company.start_session(PEER, HELLO)).session
    assert session is not None
    await session.notify(JsonRpcNotification("notifications/initialized"))
    return company, session


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def there() -> tuple[int, int, int]:
    """Processes, names and running timers, except the timer for all deadlines of the node."""
    node = current_node()
    loop: Any = asyncio.get_running_loop()
    timers = [each for each in loop._scheduled if not each.cancelled() and "Deadlines" not in repr(each)]
    return len(node.processes), len(node.names), len(timers)


NOTIFICATIONS: dict[str, Callable[[int], JsonRpcNotification]] = {
    "progress of nothing": lambda n: JsonRpcNotification("notifications/progress", {"progressToken": n, "progress": n}),
    "cancelled, ids at random": lambda n: JsonRpcNotification("notifications/cancelled", {"requestId": f"{n:064x}"}),
    "cancelled, ids without end": lambda n: JsonRpcNotification(
        "notifications/cancelled", {"requestId": f"{n}" * 20_000}
    ),
    "cancelled, the same id": lambda n: JsonRpcNotification("notifications/cancelled", {"requestId": 1}),
    "cancelled, no id at all": lambda n: JsonRpcNotification("notifications/cancelled", {"requestId": {"n": [n]}}),
    "cancelled, with long reasons": lambda n: JsonRpcNotification(
        "notifications/cancelled", {"requestId": n, "reason": "x" * 20_000}
    ),
    "unknown": lambda n: JsonRpcNotification(f"notifications/{n}", {"x": "x" * 1000}),
    "initialized again": lambda n: JsonRpcNotification("notifications/initialized"),
    "roots have changed": lambda n: JsonRpcNotification("notifications/roots/list_changed"),
    "what only we may say": lambda n: JsonRpcNotification("notifications/message", {"level": "error", "data": n}),
}


@pytest.mark.row("SE-13")
@pytest.mark.parametrize("kind", one_in(3, NOTIFICATIONS))
async def test_a_flood_of_notifications_leaves_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    _, session = await enter()
    make = NOTIFICATIONS[kind]
    await session.notify(make(0))
    before = there()
    tracemalloc.start()
    try:
        memory = held()
        with caplog.at_level(logging.INFO):
            for count in range(FLOOD if "without end" not in kind else 100):
                await session.notify(make(count))
        assert held() - memory < ROOM
    finally:
        tracemalloc.stop()
    assert there() == before
    assert len(caplog.records) < 10, "nor does it fill the log"
    answer = await session.request(JsonRpcRequest(1_000_000, "ping"))
    assert isinstance(answer, EncodedReply)
    assert b'"result":{}' in answer.body


async def test_unexpected_answers_leave_nothing() -> None:
    _, session = await enter()
    before = there()
    tracemalloc.start()
    try:
        memory = held()
        for count in range(FLOOD):
            await session.respond(JsonRpcResponse(count, {"x": "x" * 1000}))
            await session.respond(JsonRpcError(f"{count}", PeerError(-1, "no")))
        assert held() - memory < ROOM
    finally:
        tracemalloc.stop()
    assert there() == before


REQUESTS: dict[str, Callable[[int], JsonRpcRequest]] = {
    "pings": lambda n: JsonRpcRequest(n, "ping"),
    "ids that are long": lambda n: JsonRpcRequest(f"{n}".ljust(1000, "x"), "ping"),
    "levels": lambda n: JsonRpcRequest(n, "logging/setLevel", {"level": ("debug", "error")[n % 2]}),
    "unknown methods": lambda n: JsonRpcRequest(n, f"m/{n}"),
    "tools that are not there": lambda n: JsonRpcRequest(n, "tools/call", {"name": f"t{n}", "arguments": {}}),
    "subscriptions, the same one": lambda n: JsonRpcRequest(n, "resources/subscribe", {"uri": "note://one"}),
    "subscriptions, on and off": lambda n: JsonRpcRequest(
        n, ("resources/subscribe", "resources/unsubscribe")[n % 2], {"uri": f"note://{n // 2}"}
    ),
    "cursors that are forged": lambda n: JsonRpcRequest(n, "tools/list", {"cursor": f"{n}"}),
    "to be introduced again": lambda n: JsonRpcRequest(n, "initialize", HELLO.params),
}


@pytest.mark.row("SE-13")
@pytest.mark.parametrize("kind", one_in(3, REQUESTS))
async def test_a_flood_of_requests_is_answered_one_by_one_and_leaves_nothing(kind: str) -> None:
    _, session = await enter()
    make = REQUESTS[kind]
    for count in range(5):
        await session.request(make(count))
    await asyncio.sleep(20.0)
    before = there()
    tracemalloc.start()
    try:
        memory = held()
        for count in range(FLOOD // 3):
            answer = await session.request(make(count))
            assert isinstance(answer, EncodedReply)
        await asyncio.sleep(1.0)
        assert held() - memory < ROOM
    finally:
        tracemalloc.stop()
    assert there() == before


async def test_requests_in_flight_are_bounded_whatever_their_ids() -> None:
    release = asyncio.Event()

    async def level(level: str, facts: Any) -> None:
        await release.wait()

    _, session = await enter(Hooks(level=level), max_in_flight=20)
    asked = [
        asyncio.ensure_future(session.request(JsonRpcRequest(n % 40, "logging/setLevel", {"level": "debug"})))
        for n in range(1000)
    ]
    await asyncio.sleep(1.0)
    processes = len(current_node().processes)
    assert processes < 40
    answered = [each.result() for each in asked if each.done()]
    assert len(answered) == 980
    for each in answered:
        assert isinstance(each, EncodedReply)
        assert b"in use by a request" in each.body or b"Too many requests" in each.body
    release.set()
    assert all(isinstance(each, EncodedReply) for each in await asyncio.gather(*asked))


async def test_the_server_handles_new_roots_one_at_a_time() -> None:
    heard: list[Any] = []
    at_once = most = 0

    async def roots_changed(params: Any, facts: Any) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(1.0)
        heard.append(params["n"])
        at_once -= 1
        if params["n"] == 99:
            sys.exit(1)

    _, session = await enter(Hooks(roots_changed=roots_changed))
    before = len(current_node().processes)
    for burst in range(3):
        for count in range(100):
            await session.notify(JsonRpcNotification("notifications/roots/list_changed", {"n": burst * 100 + count}))
        assert len(current_node().processes) <= before + 1
        await asyncio.sleep(5.0)
    assert most == 1
    assert heard == [0, 99, 100, 199, 200, 299], "the first, and the last once for all that came meanwhile"


async def test_a_hook_that_never_ends_is_given_up() -> None:
    heard: list[int] = []

    async def roots_changed(params: Any, facts: Any) -> None:
        heard.append(params["n"])
        await asyncio.Event().wait()

    _, session = await enter(Hooks(roots_changed=roots_changed), call_timeout=60.0)
    for count in range(3):
        await session.notify(JsonRpcNotification("notifications/roots/list_changed", {"n": count}))
        await asyncio.sleep(40.0)
    assert heard == [0, 2]


@pytest.mark.row("SE-13")
async def test_subscriptions_are_bounded_by_number_length_and_total_size() -> None:
    company, session = await enter()

    async def subscribe(uri: str) -> bytes:
        answer = await session.request(JsonRpcRequest(1, "resources/subscribe", {"uri": uri}))
        assert isinstance(answer, EncodedReply)
        return answer.body

    assert b"-32602" in await subscribe("note://" + "x" * MAX_URI_CHARACTERS)
    taken = 0
    for count in range(200):
        taken += b'"result"' in await subscribe(f"note://{count:04}".ljust(MAX_URI_CHARACTERS, "x"))
    assert taken == MAX_SESSION_CHARACTERS // MAX_URI_CHARACTERS
    assert len(await company.peers.subscriptions(session.id)) == taken
    await session.end()
    await asyncio.sleep(1.0)
    assert not company.subscription_table.sessions
    assert not company.subscription_table.subscribers
