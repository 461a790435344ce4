"""A scripted server of the stateless era that acknowledges listens, and announces changes when a test says so; and what tests of listens share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from greenroom.supervision import Backoff, Report, current_node
from greenroom.supervision.introspect import get_state

from .fake_server import SILENCE, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.actors.client.connection_line import ConnectionLine
    from greenroom.supervision import Process

    from .fake_server import StageWire

LISTEN: Final = "subscriptions/listen"
ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"
TASK: Final = "notifications/tasks"
EVERYTHING: Final[Mapping[str, Any]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}


class ListenScript:
    """The server. By default it declares every change, and honours every wish."""

    def __init__(self, capabilities: Mapping[str, Any] = EVERYTHING) -> None:
        self.honours: Callable[[dict[str, Any]], Any] = lambda wish: wish
        """What it acknowledges of a wish; None for no acknowledgement."""
        self.answers: list[Any] = []
        """What it answers to the next listens, in place of an acknowledgement: see `Stage`."""
        self.stage = Stage()
        self.stage.answers |= {
            "server/discover": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": dict(capabilities),
                "ttlMs": 0,
                "cacheScope": "private",
            },
            LISTEN: self._listen,
            "tools/call": {"content": []},
            "tools/list": {"tools": []},
        }

    def _listen(self, request: JsonRpcRequest) -> Any:
        if self.answers:
            return self.answers.pop(0)
        honoured = self.honours(request.params["notifications"])
        if honoured is not None:
            self.acknowledge(request, honoured)
        return SILENCE

    # --- what the client has sent

    @property
    def wire(self) -> StageWire:
        """The latest wire."""
        return self.stage.wire

    @property
    def listens(self) -> list[JsonRpcRequest]:
        """All listens so far."""
        return self.stage.asked(LISTEN)

    @property
    def wishes(self) -> list[dict[str, Any]]:
        """Their filters."""
        return [request.params["notifications"] for request in self.listens]

    @property
    def cancelled(self) -> list[Any]:
        """The ids of the requests that the client has cancelled."""
        return [params["requestId"] for params in self.stage.notes(CANCELLED)]

    async def listen(self, count: int = 1) -> Any:
        """Wait for so many listens on the latest wire. Returns the id of the last one."""
        request = await self.wire.hears(LISTEN, count)
        assert isinstance(request, JsonRpcRequest)
        return request.id

    # --- what the server sends

    def acknowledge(self, request: JsonRpcRequest, honoured: Any) -> None:
        """Acknowledge a listen."""
        self.change(ACKNOWLEDGED, request.id, notifications=honoured)

    def change(self, method: str, listen: Any, **params: Any) -> None:
        """Send a notification on a listen."""
        self.wire.say(JsonRpcNotification(method, {**params, "_meta": {ID_KEY: listen}}))


EVERY_LIST = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
STEADY = Backoff(first=1.0, factor=2.0, longest=30.0, jitter=0.0)


class Hearing(ClientHandler):
    """A handler that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def handle_notification(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))


def reports_of(kind: type[Report]) -> list[Any]:
    """The reports of that kind from now on."""
    found: list[Any] = []

    def note(report: Report) -> None:
        if isinstance(report, kind):
            found.append(report)

    current_node().reports.subscribe(note)
    return found


def now() -> float:
    return asyncio.get_running_loop().time()


async def listener(line: ConnectionLine) -> Process:
    """The process that listens."""
    process: Process = (await get_state(line.pid))["listening"].process
    return process


async def settled(line: ConnectionLine) -> None:
    """Wait until what the server has said so far is processed, also by the process that listens."""
    await line.request("ping")
    await asyncio.sleep(0)
    await line.request("ping")
