"""Identifiers invented by a peer: a million of them start no process, and none is kept."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom.actors.company import Company
from greenroom.actors.settings import Settings
from greenroom.auth.auth_gate import MOST_SOURCES, FailureLimiter
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.supervision import current_node
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.transports.interfaces import SessionHandle

PEER = Peer("http", "203.0.113.9:4711", "mallory")
HELLO = JsonRpcRequest(
    "h",
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "inventor", "version": "1"}},
)


class Crowd:
    """One client of a server, and the ways in which it can name things that do not exist."""

    def __init__(self, company: Company, session: SessionHandle) -> None:
        self.company = company
        self.session = session

    async def session_id(self, name: str) -> None:
        assert self.company.find(name, PEER) is None

    async def event_id(self, name: str) -> None:
        (await self.session.listen(f"{name}_7")).leave()

    async def cancelled_request(self, name: str) -> None:
        await self.session.notify(JsonRpcNotification("notifications/cancelled", {"requestId": name}))

    async def progress_token(self, name: str) -> None:
        await self.session.notify(JsonRpcNotification("notifications/progress", {"progressToken": name, "progress": 1}))

    async def unknown_notification(self, name: str) -> None:
        await self.session.notify(JsonRpcNotification(f"notifications/{name}"))

    async def answered_request(self, name: str) -> None:
        await self.session.respond(JsonRpcResponse(name, {}))

    async def failed_request(self, name: str) -> None:
        await self.session.respond(JsonRpcError(name, PeerError(-32603, "no")))

    async def method(self, name: str) -> None:
        await self._refused(name, f"invented/{name}")

    async def task(self, name: str) -> None:
        await self._refused(name, "tasks/get", taskId=name)

    async def task_to_cancel(self, name: str) -> None:
        await self._refused(name, "tasks/cancel", taskId=name)

    async def tool(self, name: str) -> None:
        await self._refused(name, "tools/call", name=name, arguments={})

    async def prompt(self, name: str) -> None:
        await self._refused(name, "prompts/get", name=name)

    async def resource(self, name: str) -> None:
        await self._refused(name, "resources/read", uri=f"note://{name}")

    async def subscription(self, name: str) -> None:
        await self._answer(name, "resources/unsubscribe", uri=f"note://{name}")

    async def cursor(self, name: str) -> None:
        await self._refused(name, "tools/list", cursor=name)

    async def _answer(self, request: str, method: str, /, **params: Any) -> EncodedReply:
        answer = await self.session.request(JsonRpcRequest(request, method, params))
        assert isinstance(answer, EncodedReply)
        return answer

    async def _refused(self, request: str, method: str, /, **params: Any) -> None:
        body = (await self._answer(request, method, **params)).body
        assert b'"error"' in body or b'"isError":true' in body, body


WORKED = {"tool", "prompt", "resource", "subscription"}
"""Names looked up by the worker of their request: a process for each, which ends with it."""
WAYS = [name for name in vars(Crowd) if not name.startswith("_")]


async def flood(invent: Callable[[str], Awaitable[None]], count: int) -> int:
    """How many more memory blocks are in use after that many inventions than after the first thousand."""
    for number in range(1_000):  # bounded caches fill up
        await invent(f"first-{number}")
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(count):
        await invent(f"invented-{number}")
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", one_in(4, WAYS))
async def test_invented_identifiers_start_nothing_and_are_not_kept(way: str, count: int) -> None:
    company = Company(Settings())
    await start_supervised(company.child_spec())
    session = (await company.start_session(PEER, HELLO)).session
    assert session is not None
    await session.notify(JsonRpcNotification("notifications/initialized"))
    node = current_node()
    begun, there = node._serial, (len(node.processes), len(node.names))
    kept = await flood(getattr(Crowd(company, session), way), count)
    assert (len(node.processes), len(node.names)) == there
    assert node._serial == begun or way in WORKED, "a process was begun"
    assert kept < count / 10, f"{kept} blocks of memory more for {count} inventions"


def test_invented_users_displace_each_other_among_the_counted_failures() -> None:
    limiter = FailureLimiter()
    for number in range(3 * MOST_SOURCES):
        limiter.add_failure(("claim", f"invented-{number}"), 0.0)
    assert len(limiter) == MOST_SOURCES
