"""A complete server for fuzzers: tools that answer, wait, report, ask, fail and never end; and checks for hidden failures.

All of it in one loop, on a virtual clock, so that a deadline of a minute costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from greenroom import Context, Server, Settings, ToolError
from greenroom.supervision import CrashReport, Leaked, current_node
from greenroom.supervision.kernel.node import Node
from greenroom.supervision.testing.leak_check import ResourceSnapshot, loop_leftovers, raise_for_leaks
from greenroom.supervision.testing.virtual_time import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from greenroom.actors.company import Company
    from greenroom.supervision import Report

T = TypeVar("T")

SETTINGS = Settings(
    call_timeout=20.0, ask_timeout=5.0, session_idle=600.0, log_level="debug", page_size=3, task_lifetime=900.0
)
LONG = 3600.0
"""Seconds after which no request is in progress."""


def company(settings: Settings = SETTINGS) -> Server:
    """The server."""
    server = Server("playhouse", settings=settings)

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool(task_support="optional")
    async def slow(seconds: float = 1.0) -> str:
        await asyncio.sleep(min(max(seconds, 0.0), 5.0))
        return "done"

    @server.tool(task_support="optional")
    async def steps(ctx: Context, count: int = 2) -> str:
        for step in range(min(count, 5)):
            await ctx.progress(step, count)
            await ctx.info(step)
            await asyncio.sleep(1)
        return "done"

    @server.tool(task_support="optional")
    async def ask(ctx: Context) -> str:
        return f"{await ctx.roots()} {await ctx.sample('a question')}"

    @server.tool(task_support="optional")
    async def refuse() -> str:
        raise ToolError("no")

    @server.tool(task_support="optional")
    async def fail() -> str:
        raise ValueError("a mistake")

    @server.tool(task_support="required")
    async def endless() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool(long_running=True)
    async def forever() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.resource("note://{title}")
    async def note(title: str) -> str:
        return title

    @server.resource("plain://text")
    async def plain() -> bytes:
        return b"\x00\xff"

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @server.completion("name", prompt="greet")
    async def names(value: str) -> list[str]:
        return [value + "a"]

    return server


CLUMSY = ("tools/call 'fail'", "tools/call 'ask'")
"""Calls that may crash: one always, and one that asks a peer that may not answer."""
NAMES = ("add", "echo", "slow", "steps", "ask", "refuse", "fail", "forever", "endless")


class FailureRecorder(logging.Handler):
    """Records hidden failures: crashes, leaks, errors that were only logged, tasks that died unnoticed."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        """Start recording."""
        super().__init__(logging.ERROR)
        self.troubles: list[str] = []
        self._end = node.reports.subscribe(self._report)
        self._logger = logging.getLogger("greenroom")
        self._logger.addHandler(self)
        loop.set_exception_handler(lambda _, context: self.troubles.append(f"the loop: {context}"))

    def emit(self, record: logging.LogRecord) -> None:
        """An error was logged."""
        if record.name != "greenroom.supervision":  # whose reports are recorded anyway
            self.troubles.append(f"{record.name}: {record.getMessage()} {record.exc_info}")

    def _report(self, report: Report) -> None:
        if isinstance(report, CrashReport | Leaked) and not report.label.startswith(CLUMSY):
            self.troubles.append(repr(report))

    def check(self) -> None:
        """Assert that nothing failed; each failure is reported once."""
        troubles, self.troubles = self.troubles, []
        assert not troubles, "\n".join(troubles)

    def close(self) -> None:
        """Stop recording."""
        self._logger.removeHandler(self)
        super().close()


@asynccontextmanager
async def watched() -> AsyncGenerator[None]:
    """A block inside a node without hidden failures."""
    watch = FailureRecorder(current_node(), asyncio.get_running_loop())
    try:
        yield
        watch.check()
    finally:
        watch.close()


class PersistentServer:
    """A server that is kept between inputs: effects of one input are found by the check after it."""

    watch: FailureRecorder
    company: Company

    def __init__(self) -> None:
        """Start the server, until the process ends."""
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self._open = AsyncExitStack()
        self._node = Node(watchdog=None, handle_sigint=False)
        self._runner.run(self._begin())

    async def _begin(self) -> None:
        await self._open.enter_async_context(self._node)
        self.watch = FailureRecorder(self._node, asyncio.get_running_loop())
        self._open.callback(self.watch.close)
        self.company = await self._open.enter_async_context(company().started())
        await asyncio.sleep(1)

    def play(self, scene: Callable[[Company], Coroutine[Any, Any, T]]) -> T:
        """Run one scene; afterwards nothing of it is left, and nothing has failed."""
        return self._runner.run(self._play(scene))

    async def _play(self, scene: Callable[[Company], Coroutine[Any, Any, T]]) -> T:
        before = ResourceSnapshot.of_loop(asyncio.get_running_loop())
        value = await scene(self.company)
        raise_for_leaks(await loop_leftovers(before))
        self.watch.check()
        return value

    def close(self) -> None:
        """Stop the server, for a test."""
        self._runner.run(self._open.aclose())
        self._runner.close()
