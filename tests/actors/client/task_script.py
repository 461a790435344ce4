"""A scripted server of the stateless era whose calls become tasks, for tests on virtual time.

::

    script = TaskScript(working(), completed("done"))
    async with playing(script.stage) as (line, _):
        await line.request("tools/call", {"name": "t", "arguments": {}})
    assert script.polled == [1.0, 2.0]
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.client_handler import ClientHandler, asking_call
from greenroom.protocol.errors import PeerError
from greenroom.protocol.methods import TASKS_EXTENSION

from .fake_server import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.client.client_handler import AskingCall
    from greenroom.protocol.jsonrpc import JsonRpcRequest

ID: Final = "task_1"
CALL: Final[dict[str, Any]] = {"name": "t", "arguments": {}}
QUESTION: Final[dict[str, Any]] = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {}}}
DONE: Final[dict[str, Any]] = {"content": [{"type": "text", "text": "done"}]}
UNKNOWN: Final = PeerError(-32602, "no such task")
ANNE: Final[dict[str, Any]] = {"action": "accept", "content": {"name": "anne"}}


def task(status: str, **more: Any) -> dict[str, Any]:
    """A task on the wire."""
    times = {"createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z"}
    return {
        "resultType": "complete",
        "taskId": ID,
        "status": status,
        **times,
        "ttlMs": None,
        "pollIntervalMs": 1000,
        **more,
    }


def working(**more: Any) -> dict[str, Any]:
    """A task that is worked at."""
    return task("working", **more)


def asking(*keys: str, **more: Any) -> dict[str, Any]:
    """A task that asks a question under each key."""
    return task("input_required", inputRequests=dict.fromkeys(keys, QUESTION), **more)


def completed(**more: Any) -> dict[str, Any]:
    """A task that has a result."""
    return task("completed", result=DONE, **more)


class TaskScript:
    """The server: each poll gets the next state, and the last one for ever."""

    def __init__(self, *states: Any, created: Mapping[str, Any] | None = None) -> None:
        """A state may be any answer of a `Stage`, such as an exception or `SILENCE`."""
        self.states = list(states)
        self.polled: list[float] = []
        """The times of the polls, from the call on."""
        self.updates: list[dict[str, Any]] = []
        """The answers of each `tasks/update`."""
        self.on_update: Any = {"resultType": "complete"}
        """The answer to `tasks/update`."""
        self.cancelled = asyncio.Event()
        self._created = dict(created or working())
        self._began = 0.0
        self.capabilities: dict[str, Any] = {"tools": {}, "extensions": {TASKS_EXTENSION: {}}}
        self.stage = Stage()
        self.stage.answers |= {
            "server/discover": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
            },
            "tools/call": self._call,
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The params of all requests of a method, without their `_meta`."""
        return [
            {name: value for name, value in request.params.items() if name != "_meta"}
            for request in self.stage.asked(method)
        ]

    def _call(self, _: JsonRpcRequest) -> Any:
        self._began = asyncio.get_running_loop().time()
        return {**self._created, "resultType": "task"}

    def _get(self, _: JsonRpcRequest) -> Any:
        self.polled.append(round(asyncio.get_running_loop().time() - self._began, 6))
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def _update(self, request: JsonRpcRequest) -> Any:
        self.updates.append(request.params["inputResponses"])
        return self.on_update(request) if callable(self.on_update) else self.on_update

    def _cancel(self, _: JsonRpcRequest) -> Any:
        self.cancelled.set()
        return {"resultType": "complete"}


class Asked(ClientHandler):
    """A handler that answers forms, by default at once with Anne's name."""

    def __init__(self, answer: Any = ANNE, **capabilities: Any) -> None:
        """An exception as the answer is raised; None waits for ever."""
        self.answer = answer
        self.calls: list[AskingCall | None] = []
        """For each question the call that it belongs to."""
        self._asked = asyncio.Condition()
        self.left = asyncio.Event()
        """Whether a question was withdrawn."""
        self._capabilities = capabilities or {"elicitation": {}}

    def capabilities(self) -> Mapping[str, Any]:
        """What is answered."""
        return self._capabilities

    async def asked(self, count: int) -> None:
        """Wait until so many questions were asked in all."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.calls) >= count)

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        """Answer."""
        self.calls.append(asking_call())
        async with self._asked:
            self._asked.notify_all()
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        return self.answer
