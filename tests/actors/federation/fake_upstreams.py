"""Fake upstreams with scripted lists and faults, and a federation of them, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.actors.client.fake_server import Stage

from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.federation import Federation
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.supervision import Backoff, Supervisor, start, stop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest

STEADY = Backoff(first=1.0, factor=2.0, longest=8.0, jitter=0.0)
"""A wait that a test can foretell."""


class Upstairs(Stage):
    """A server with tools, a page for every two of them."""

    def __init__(self, *tools: str, **options: Any) -> None:
        super().__init__(**options)
        self.tools: dict[str, str] = dict.fromkeys(tools or ("echo",), "")
        self.answers |= {
            "tools/list": self.list_tools,
            "tools/call": lambda request: {"content": [{"type": "text", "text": request.params["name"]}]},
            "resources/list": {"resources": [{"uri": "a:1", "name": "one"}]},
            "prompts/list": {"prompts": []},
            "resources/subscribe": {},
            "resources/unsubscribe": {},
        }

    def list_tools(self, request: JsonRpcRequest) -> dict[str, Any]:
        """A page."""
        start = int(request.params.get("cursor", "0"))
        names = list(self.tools)
        page: dict[str, Any] = {
            "tools": [
                {"name": name, "description": self.tools[name], "inputSchema": {"type": "object"}}
                for name in names[start : start + 2]
            ]
        }
        if start + 2 < len(names):
            page["nextCursor"] = str(start + 2)
        return page

    def changed(self, what: str = "tools") -> None:
        """Say that a list has changed."""
        self.wire.say(JsonRpcNotification(f"notifications/{what}/list_changed", {}))

    def updated(self, uri: str) -> None:
        """Say that a resource has changed."""
        self.wire.say(JsonRpcNotification("notifications/resources/updated", {"uri": uri}))


def spec(route: Stage, **changes: Any) -> UpstreamSpec:
    """Waits that a test can foretell."""
    options: dict[str, Any] = {
        "settings": ClientSettings(request_timeout=10.0, init_timeout=5.0, backoff=STEADY),
        "breaker": BreakerSettings(failures=3, window=10.0, cooldown=STEADY, probe_timeout=2.0),
        "revive": Backoff(first=30.0, factor=2.0, longest=120.0, jitter=0.0, quiet=600.0),
    }
    return UpstreamSpec(route, **{**options, **changes})


@asynccontextmanager
async def federated(
    first: Mapping[str, UpstreamSpec] | None = None, name: str = "federation"
) -> AsyncGenerator[Federation]:
    """A federation under a supervisor of its own."""
    federation = Federation(first, name=name)
    top = await start(Supervisor, [federation.child_spec()], intensity=3)
    try:
        yield federation
    finally:
        await stop(top)


async def reaches(
    federation: Federation, id: str, *states: UpstreamState, within: float = 60.0
) -> BaseException | None:
    """Wait until it is in one of these states; returns its cause."""
    async with asyncio.timeout(within):
        async for standing in federation.watch():
            if standing.id == id and standing.state in states:
                return standing.cause
    raise AssertionError


async def all_ready(federation: Federation, *ids: str) -> None:
    """Wait until all of them are ready and their lists known."""
    for id in ids or federation.ids():
        await reaches(federation, id, UpstreamState.READY)
        await federation.offering(id)


async def call(federation: Federation, id: str, tool: str = "echo", **options: Any) -> str:
    """Call a tool, and return its text."""
    line = federation.line(id)
    assert line is not None
    result = await line.begin("tools/call", {"name": tool, "arguments": {}}, **options)
    return str(result["content"][0]["text"])


async def none_leaving(federation: Federation) -> None:
    """Wait until the upstreams that have lost their place are gone."""
    while federation.leaving:
        await next(iter(federation.leaving.values())).wakeup.wait()
