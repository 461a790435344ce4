"""A server whose calls end in every way, for the table of endings: for each way that a call can go, a function for each ending that it can have there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.actors.pools import handlers
from tests.actors.pools.local_processes import LocalProvider
from tests.actors.tasks.stateless_client import ABLE, StatelessClient

from greenroom import Context, McpError, PeerError, Server, Settings, ToolError
from greenroom.actors.pools.pool_options import Pool
from greenroom.actors.pools.pools import Pools
from greenroom.supervision import CallTimeout, current_node, kill
from greenroom.supervision.cluster.node_records import ProcessEnding
from greenroom.transports.interfaces import EncodedReply, Peer
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from greenroom.actors.company import Company

    Driver = Callable[["CallStage"], Coroutine[Any, Any, None]]

POOL = Pool(size=1, queue=0, warm=1)


def make_server(**limits: Any) -> Server:
    """A server with a tool for each ending."""
    bounds: dict[str, Any] = {"max_in_flight": 2, "max_exchanges": 1, "max_tasks": 1, **limits}
    settings = Settings(call_timeout=3.0, cancel_grace=0.5, **bounds)
    server = Server("stage", settings=settings)

    @server.tool(task_support="optional")
    async def echo() -> str:
        return "said"

    @server.tool(task_support="optional")
    def complain() -> str:
        raise ToolError("no luck")

    @server.tool(task_support="optional")
    async def refuse() -> str:
        raise McpError(-32011, "not today")

    @server.tool(task_support="optional")
    async def crash() -> str:
        raise ValueError("swordfish")

    @server.tool(task_support="optional", timeout=5.0)
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?", str, key="who")).action

    server.tool(isolation=POOL)(handlers.pid)
    server.tool(isolation=POOL)(handlers.complains)
    server.tool(isolation=POOL)(handlers.refuses)
    server.tool(isolation=POOL)(handlers.fails)
    server.tool(isolation=POOL, timeout=5.0)(handlers.waits)
    return server


class CallStage:
    """The running server, and its clients."""

    def __init__(self, server: Server, company: Company, probe: WireProbe, provider: LocalProvider) -> None:
        self.server = server
        self.company = company
        self.probe = probe
        self.provider = provider
        self.client = StatelessClient(company, Peer("test", principal="ada"), ABLE)

    async def call(self, tool: str, **arguments: Any) -> None:
        """Call a tool in the session, whatever comes of it."""
        try:
            await self.probe.request("tools/call", {"name": tool, "arguments": arguments}, within=100)
        except PeerError:
            return

    async def begin(self, tool: str) -> int:
        """Call a tool in the session, and let it run."""
        number = await self.probe.ask("tools/call", {"name": tool, "arguments": {}})
        await asyncio.sleep(1)
        return number

    async def exchange(self, tool: str) -> None:
        """Call a tool without a session, whatever comes of it."""
        await self.client.answer("tools/call", name=tool, arguments={})

    async def begin_exchange(self, tool: str) -> asyncio.Future[Any]:
        """Call a tool without a session, and let it run."""
        running = asyncio.ensure_future(self.exchange(tool))
        await asyncio.sleep(1)
        return running

    async def task(self, tool: str) -> str:
        """Call a tool as a task of the session, and let it run."""
        created = await self.probe.request("tools/call", {"name": tool, "arguments": {}, "task": {}})
        await asyncio.sleep(1)
        return str(created["task"]["taskId"])

    def kill(self, role: str) -> None:
        """Kill the process of the company with that role."""
        process = current_node().named(self.company.name(role))
        assert process is not None
        kill(process.pid)

    def kill_labelled(self, label: str) -> None:
        """Kill the one process with such a label."""
        (process,) = (each for each in current_node().processes.values() if each.label.startswith(label))
        kill(process.pid)

    async def local(self, tool: str) -> None:
        """Call a tool from the program, whatever comes of it."""
        try:
            await self.company.registry.call_tool(tool)
        except (CallTimeout, McpError, ToolError, ValueError):
            return

    async def listen(self) -> Any:
        """Listen to changes of lists."""
        request = self.client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        feed = await self.company.exchange(self.client.peer, request, quiet=1.0)
        assert feed is not None
        assert not isinstance(feed, EncodedReply)
        return feed


@asynccontextmanager
async def call_stage(**limits: Any) -> AsyncGenerator[CallStage]:
    """A running stage. Its pool has its worker in this node."""
    server, provider = make_server(**limits), LocalProvider()
    company = server.company
    company._pools = Pools(company.key, company.settings, company.catalogue_ref, provider)
    async with server.started(), WireProbe(company) as probe:
        yield CallStage(server, company, probe, provider)


# --- sessions


async def session_cancelled(stage: CallStage) -> None:
    """The client cancels its call."""
    await stage.probe.cancel(await stage.begin("wait"))
    await stage.probe.request("ping")


async def session_lost(stage: CallStage) -> None:
    """The session ends."""
    await stage.begin("wait")
    await stage.probe.close()


async def session_supervisor_lost(stage: CallStage) -> None:
    """The supervisor of the workers dies."""
    number = await stage.begin("wait")
    stage.kill("workers")
    await stage.probe.answer(number)


async def session_refused(stage: CallStage) -> None:
    """The client has as many requests in flight as it may have."""
    for _ in range(2):
        await stage.begin("wait")
    await stage.call("echo")
    await stage.probe.close()


# --- exchanges


async def exchange_asks(stage: CallStage) -> None:
    """The handler asks."""
    await stage.exchange("ask")


async def exchange_cancelled(stage: CallStage) -> None:
    """The client closes its stream."""
    running = await stage.begin_exchange("wait")
    running.cancel()
    await asyncio.wait([running])


async def exchange_supervisor_lost(stage: CallStage) -> None:
    """The supervisor of the exchanges dies."""
    running = await stage.begin_exchange("wait")
    stage.kill("exchanges")
    await running


async def exchange_refused(stage: CallStage) -> None:
    """There are as many exchanges as may be."""
    running = await stage.begin_exchange("wait")
    await stage.exchange("echo")
    running.cancel()
    await asyncio.wait([running])


# --- listens


async def listen_finished(stage: CallStage) -> None:
    """The server ends it."""
    feed = await stage.listen()
    feed.finish()
    while await feed.next() is not None:
        pass


async def listen_left(stage: CallStage) -> None:
    """The client leaves."""
    (await stage.listen()).leave()


async def listen_wrong(stage: CallStage) -> None:
    """The filter is none."""
    request = stage.client.request("subscriptions/listen", {"notifications": 1})
    await stage.company.exchange(stage.client.peer, request, quiet=1.0)


async def listen_killed(stage: CallStage) -> None:
    """Its process dies."""
    await stage.listen()
    stage.kill_labelled("listen")


async def listen_supervisor_lost(stage: CallStage) -> None:
    """The supervisor of the listens dies."""
    await stage.listen()
    stage.kill("exchanges")


async def listen_refused(stage: CallStage) -> None:
    """There are as many exchanges as may be."""
    running = await stage.begin_exchange("wait")
    request = stage.client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert isinstance(await stage.company.exchange(stage.client.peer, request, quiet=1.0), EncodedReply)
    running.cancel()
    await asyncio.wait([running])


# --- tasks


async def task_late(stage: CallStage) -> None:
    """The task takes too long."""
    await stage.task("wait")
    await asyncio.sleep(10)


async def task_cancelled(stage: CallStage) -> None:
    """The client cancels the task."""
    await stage.probe.request("tasks/cancel", {"taskId": await stage.task("wait")})


async def task_session_lost(stage: CallStage) -> None:
    """The session ends that the task belongs to."""
    await stage.task("wait")
    await stage.probe.close()
    await asyncio.sleep(1)


async def task_process_lost(stage: CallStage) -> None:
    """The task's process dies."""
    await stage.task("wait")
    stage.kill_labelled("task")


# --- local calls


async def local_cancelled(stage: CallStage) -> None:
    """The program stops to wait."""
    running = asyncio.ensure_future(stage.local("wait"))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.wait([running])


# --- pools


async def pool_lost(stage: CallStage) -> None:
    """The process of the operating system dies."""
    number = await stage.begin("waits")
    stage.provider.processes[-1].lose(ProcessEnding(signal=11))
    await stage.probe.answer(number)


async def pool_cancelled(stage: CallStage) -> None:
    """The client cancels its call."""
    await stage.probe.cancel(await stage.begin("waits"))
    await stage.probe.request("ping")


async def pool_session_lost(stage: CallStage) -> None:
    """The session ends."""
    await stage.begin("waits")
    await stage.probe.close()


async def pool_full(stage: CallStage) -> None:
    """There are no processes for another call, and no room to wait."""
    await stage.begin("waits")
    await stage.call("pid")
    await stage.probe.close()


def in_session(tool: str, **arguments: Any) -> Driver:
    """A call of this tool in the session."""
    return lambda stage: stage.call(tool, **arguments)


def without_session(tool: str) -> Driver:
    """A call of this tool without a session."""
    return lambda stage: stage.exchange(tool)


def as_task(tool: str) -> Driver:
    """A call of this tool as a task."""

    async def run(stage: CallStage) -> None:
        await stage.task(tool)

    return run


def locally(tool: str) -> Driver:
    """A local call of this tool."""
    return lambda stage: stage.local(tool)


_ASKS_MEANWHILE = "its client is asked while the call goes on"
_NO_BOUND = "nothing bounds it"
_CLOSING_CANCELS = "a client of this era cancels a request by closing the stream or the connection that it came on"
_NO_HANDLER = "no handler runs for it"

ENDINGS: dict[tuple[str, str], Driver | str] = {
    ("session", "result"): in_session("echo"),
    ("session", "tool_error"): in_session("complain"),
    ("session", "error"): in_session("refuse"),
    ("session", "asks"): _ASKS_MEANWHILE,
    ("session", "deadline"): in_session("wait"),
    ("session", "cancelled"): session_cancelled,
    ("session", "peer_gone"): session_lost,
    ("session", "worker_crashed"): in_session("crash"),
    ("session", "process_ended"): session_supervisor_lost,
    ("session", "refused"): session_refused,
    ("exchange", "result"): without_session("echo"),
    ("exchange", "tool_error"): without_session("complain"),
    ("exchange", "error"): without_session("refuse"),
    ("exchange", "asks"): exchange_asks,
    ("exchange", "deadline"): without_session("wait"),
    ("exchange", "cancelled"): exchange_cancelled,
    ("exchange", "peer_gone"): _CLOSING_CANCELS,
    ("exchange", "worker_crashed"): without_session("crash"),
    ("exchange", "process_ended"): exchange_supervisor_lost,
    ("exchange", "refused"): exchange_refused,
    ("listen", "result"): listen_finished,
    ("listen", "tool_error"): _NO_HANDLER,
    ("listen", "error"): listen_wrong,
    ("listen", "asks"): _NO_HANDLER,
    ("listen", "deadline"): "it may last for ever",
    ("listen", "cancelled"): listen_left,
    ("listen", "peer_gone"): _CLOSING_CANCELS,
    ("listen", "worker_crashed"): listen_killed,
    ("listen", "process_ended"): listen_supervisor_lost,
    ("listen", "refused"): listen_refused,
    ("task", "result"): as_task("echo"),
    ("task", "tool_error"): as_task("complain"),
    ("task", "error"): as_task("refuse"),
    ("task", "asks"): _ASKS_MEANWHILE,
    ("task", "deadline"): task_late,
    ("task", "cancelled"): task_cancelled,
    ("task", "peer_gone"): task_session_lost,
    ("task", "worker_crashed"): as_task("crash"),
    ("task", "process_ended"): task_process_lost,
    ("task", "refused"): "the call that asks for it is refused, and there is no task",
    ("local", "result"): locally("echo"),
    ("local", "tool_error"): locally("complain"),
    ("local", "error"): locally("refuse"),
    ("local", "asks"): "there is no client to ask",
    ("local", "deadline"): locally("wait"),
    ("local", "cancelled"): local_cancelled,
    ("local", "peer_gone"): "there is no peer",
    ("local", "worker_crashed"): locally("crash"),
    ("local", "process_ended"): "its process has no supervisor, and is in the process of its caller",
    ("local", "refused"): _NO_BOUND,
    ("pool", "result"): in_session("pid"),
    ("pool", "tool_error"): in_session("complains"),
    ("pool", "error"): in_session("refuses"),
    ("pool", "asks"): _ASKS_MEANWHILE,
    ("pool", "deadline"): in_session("waits"),
    ("pool", "cancelled"): pool_cancelled,
    ("pool", "peer_gone"): pool_session_lost,
    ("pool", "worker_crashed"): in_session("fails", what="bang"),
    ("pool", "process_ended"): pool_lost,
    ("pool", "refused"): pool_full,
}
"""Each way that a server's call can go, and each ending: how the call ends so, or why it cannot."""
