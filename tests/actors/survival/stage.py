"""The server of the survival tests: some of its tools die in a pool, the others run in the loop, in threads and in another pool."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from greenroom import Pool, Server, Settings, ToolOptions
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import Sequence

MIB = 1024 * 1024


class Stage:
    """``async with Stage() as stage``: the server runs, and `stage.probe` is initialized."""

    def __init__(self, *, size: int = 2, **pool: Any) -> None:
        limits: dict[str, Any] = {"size": size, "memory": 256 * MIB}
        self.doomed = Pool(**(limits | pool))
        self.tools: Any = import_module("survival_tools")
        self.server = Server("survival", settings=Settings(max_in_flight=2000, cancel_grace=0.2))
        for name in self._names():
            self.server.tool(name, isolation=self.doomed)(getattr(self.tools, name))
        self.server.tool("late", isolation=self.doomed, timeout=1)(self.tools.deadlocks)
        self.server.tool("late_at_random", isolation=self.doomed, timeout=0.5)(self.tools.at_random)
        self.server.tool("hundred_megabytes", isolation=Pool(size=1))(self.tools.much)
        self.server.tool(self.tools.in_loop)
        self.server.tool(self.tools.in_thread)
        self.server.tool(isolation=Pool(size=1))(self.tools.in_process)
        self.probe: WireProbe
        self._open = AsyncExitStack()

    def _names(self) -> Sequence[str]:
        module: dict[str, Any] = self.tools.__dict__
        others = {"in_loop", "in_thread", "in_process", "drawn"}
        return [
            name
            for name, value in module.items()
            if getattr(value, "__module__", None) == self.tools.__name__ and name not in others
        ]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            self.probe = await opening.enter_async_context(WireProbe(self.server))
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._open.aclose()

    async def result(self, tool: str, /, *, within: float = 60.0, **arguments: Any) -> Any:
        """What a tool answers: its result, or the error as text."""
        asked = await self.probe.ask("tools/call", {"name": tool, "arguments": arguments})
        return said(await self.probe.answer(asked, within=within))

    def options(self, **words: Any) -> ToolOptions:
        """Of a tool that runs with the doomed."""
        return ToolOptions(isolation=self.doomed, **words)

    async def others(self, count: int) -> list[Any]:
        """So many calls of what goes on, at once; what came of each."""
        names = ("in_loop", "in_thread", "in_process")
        return await asyncio.gather(*(self.result(names[n % len(names)], n=n) for n in range(count)))

    def answers_to(self, request: int) -> int:
        """How many there were."""
        return sum("method" not in message and message.get("id") == request for message in self.probe.received)


def said(answer: dict[str, Any]) -> str:
    """In one text: what a result shows, or `error: …`."""
    if "error" in answer:
        return f"error: {answer['error']['message']}"
    result = answer["result"]
    text = "".join(block.get("text", "") for block in result["content"])
    return f"failed: {text}" if result["isError"] else text
