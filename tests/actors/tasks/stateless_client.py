"""A client of the stateless era, for the tests of tasks: each of its requests stands alone."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import TYPE_CHECKING, Any

from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.protocol.methods import TASKS_EXTENSION
from greenroom.protocol.versions import STATELESS
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.company import Company

    from .task_server import TaskServer

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
MISSING: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
"""What the error for an undeclared extension asks for."""
ANNE: dict[str, Any] = {"action": "accept", "content": {"name": "anne"}}
ASKED_ANNE = "asked: Accepted(value={'name': 'anne'})"
FOLLOWS_TASKS: dict[str, Any] = {**ABLE, "extensions": {TASKS_EXTENSION: {}}}


class StatelessClient:
    """A client that sends requests without a session."""

    def __init__(
        self, company: Company, peer: Peer | None = None, capabilities: Mapping[str, Any] = FOLLOWS_TASKS
    ) -> None:
        self.company = company
        self.peer = Peer("test") if peer is None else peer
        self.capabilities = capabilities
        self._ids = count(1)

    def request(self, method: str, params: Mapping[str, Any]) -> JsonRpcRequest:
        """An enveloped request."""
        meta = {PROTOCOL_VERSION_KEY: STATELESS, CLIENT_CAPABILITIES_KEY: self.capabilities}
        return JsonRpcRequest(next(self._ids), method, {**params, "_meta": {**meta, **params.get("_meta", {})}})

    async def reply(self, method: str, /, **params: Any) -> EncodedReply:
        """Send a request; returns the reply with its status."""
        reply = await self.company.exchange(self.peer, self.request(method, params))
        assert isinstance(reply, EncodedReply)
        return reply

    async def answer(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a request; returns the message that answers it."""
        found: dict[str, Any] = json.loads((await self.reply(method, **params)).body)
        return found

    async def result(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a request; returns its result."""
        message = await self.answer(method, **params)
        assert "result" in message, message
        found: dict[str, Any] = message["result"]
        return found

    async def error(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a request; returns the error."""
        found: dict[str, Any] = (await self.answer(method, **params))["error"]
        return found

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return await self.result("tools/call", name=tool, arguments=arguments)

    async def start(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that becomes a task; returns its id."""
        created = await self.call(tool, **arguments)
        assert created["resultType"] == "task", created
        id: str = created["taskId"]
        return id

    async def get(self, id: str) -> dict[str, Any]:
        """The task, as `tasks/get` returns it."""
        return await self.result("tasks/get", taskId=id)


def use_store(company: Company, store: Any) -> None:
    """Have the company keep its tasks there."""
    company.tasks.store = store


class HeldStore:
    """A store in which nothing is safe before it is released."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, record: Any, *, at_once: bool = False) -> Any:
        """Keep the record, and say later that it is safe."""
        self._inner.put(record)
        return None if at_once else self._safe

    def release(self, error: Exception | None = None) -> None:
        """All that was put is safe now, or cannot be."""
        if error is None:
            self._safe.set_result(None)
        else:
            self._safe.set_exception(error)


async def ended(client: StatelessClient, id: str) -> dict[str, Any]:
    """The task, once it has ended."""
    task: dict[str, Any] = {}
    for _ in range(400):
        task = await client.get(id)
        if task["status"] not in ("working", "input_required"):
            return task
        await asyncio.sleep(0.01)
    raise AssertionError(f"the task goes on: {task}")


async def asking(client: StatelessClient, id: str, questions: int = 1) -> dict[str, Any]:
    """The open questions of the task, once there are so many."""
    task: dict[str, Any] = {}
    for _ in range(400):
        task = await client.get(id)
        if len(task.get("inputRequests", ())) == questions:
            assert task["status"] == "input_required"
            found: dict[str, Any] = task["inputRequests"]
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"it does not ask: {task}")


def named(name: str) -> dict[str, Any]:
    """The answer to a form."""
    return {"action": "accept", "content": {"name": name}}


def register_two(stage: TaskServer) -> None:
    """Register a tool that asks two questions at once, and then a third."""

    @stage.server.tool(task_support="optional")
    async def two(ctx: Any) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.elicit(question, form)) for question in ("first?", "second?")]
        answers: list[Any] = [*(each.result() for each in asked), await ctx.elicit("third?", form)]
        return " ".join(str(each.value["name"]) for each in answers)
