"""Helpers of the task tests: a server whose tools wait for the test, and clients on a channel or on streams."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.actors.session.session_client import SessionClient, initialize_request

from greenroom import Server, Settings
from greenroom.protocol.errors import McpError, ToolError
from greenroom.protocol.versions import LATEST
from greenroom.supervision import Pid, whereis
from greenroom.transports.interfaces import EncodedReply, Peer
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from greenroom.actors.company import Company
    from greenroom.actors.context import Context
    from greenroom.actors.task_record import TaskRecord
    from greenroom.actors.task_store import TaskStore

RELATED = "io.modelcontextprotocol/related-task"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}}


class TaskServer:
    """A running server, with clients."""

    def __init__(self, entered: AsyncExitStack, settings: Settings | None, task_store: TaskStore | None = None) -> None:
        self.server = Server("stage", settings=settings, task_store=task_store)
        self.gates: dict[str, asyncio.Event] = {}
        self.seen: list[str] = []
        """The cancellations that the tools have seen."""
        self._entered = entered
        self._register()

    @property
    def company(self) -> Company:
        return self.server.company

    def gate(self, name: str) -> asyncio.Event:
        """The event that a tool waits for."""
        return self.gates.setdefault(name, asyncio.Event())

    def _register(self) -> None:
        server = self.server

        @server.tool(task_support="optional")
        async def wait(gate: str) -> str:
            """Come through when the gate is open."""
            try:
                await self.gate(gate).wait()
            except asyncio.CancelledError:
                self.seen.append(f"{gate} cancelled")
                raise
            return f"through {gate}"

        @server.tool(task_support="optional")
        async def fail(how: str) -> str:
            """Fail in one way or the other."""
            if how == "told":
                raise ToolError("no flour left")
            if how == "error":
                raise McpError(-32011, "the mill is shut", {"until": "noon"})
            raise ValueError("the password is swordfish")

        @server.tool(task_support="optional")
        async def ask(ctx: Context) -> str:
            """Ask the user."""
            answer = await ctx.elicit("who?", FORM)
            return f"asked: {answer!r}"

        @server.tool(task_support="optional")
        async def talk(gate: str, ctx: Context) -> str:
            """Say how far it has come, before and after."""
            await ctx.progress(1, 2)
            await ctx.info("half way")
            await self.gate(gate).wait()
            await ctx.progress(2, 2)
            return "talked"

        @server.tool(task_support="required")
        async def only() -> str:
            """Run as a task only."""
            return "done"

        @server.tool(long_running=True)
        async def long(gate: str) -> int:
            """Take long."""
            await self.gate(gate).wait()
            return 7

        @server.tool
        async def plain() -> str:
            """Return a text."""
            return "plain"

    async def probe(
        self, answers: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None, **more: Any
    ) -> WireProbe:
        """A client on a channel."""
        probe = WireProbe(self.company, capabilities=CAPABILITIES, answers=answers, **more)
        return await self._entered.enter_async_context(probe)

    async def player(self, peer: Peer | None = None, *, version: str = LATEST) -> SessionClient:
        """A client on streams."""
        entered = await self.company.start_session(
            peer or Peer("test"), initialize_request(version, capabilities=CAPABILITIES)
        )
        assert entered.session is not None
        player = SessionClient(self.company, entered.session)
        await player.tell("notifications/initialized")
        return player

    def record(self, id: str) -> TaskRecord:
        """The record of a task."""
        found = self.server.tasks.get(id)
        assert found is not None
        return found

    def process(self, id: str) -> Pid | None:
        """The pid of the process of a task."""
        return whereis(self.company.tasks.name(id))


@asynccontextmanager
async def running_task_server(
    settings: Settings | None = None, task_store: TaskStore | None = None
) -> AsyncGenerator[TaskServer]:
    """A server, for as long as the block lasts."""
    async with AsyncExitStack() as entered:
        stage = TaskServer(entered, settings, task_store)
        await entered.enter_async_context(stage.server.started())
        yield stage


async def start_task(
    client: WireProbe | SessionClient, tool: str, ttl: float | None = None, /, **arguments: Any
) -> str:
    """Start a task; returns its id."""
    task = {} if ttl is None else {"ttl": ttl}
    answer = await reply_to(client, "tools/call", name=tool, arguments=arguments, task=task)
    id: str = answer["result"]["task"]["taskId"]
    return id


async def reply_to(client: WireProbe | SessionClient, method: str, /, **params: Any) -> dict[str, Any]:
    """Send a request; returns the message that answers it."""
    if isinstance(client, WireProbe):
        return await client.answer(await client.ask(method, params), within=1000)
    reply = await client.reply(method, **params)
    assert isinstance(reply, EncodedReply), reply
    found: dict[str, Any] = json.loads(reply.body)
    return found


async def status(client: WireProbe | SessionClient, id: str) -> str:
    """The task's status, as the peer sees it."""
    answer = await reply_to(client, "tasks/get", taskId=id)
    found: str = answer["result"]["status"]
    return found


async def result(client: WireProbe | SessionClient, id: str) -> dict[str, Any]:
    """The reply to `tasks/result`."""
    return await reply_to(client, "tasks/result", taskId=id)


def texts(message: dict[str, Any]) -> list[str]:
    """The texts of a tool's result."""
    return [block["text"] for block in message["result"]["content"]]


async def until(holds: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    for _ in range(400):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")
