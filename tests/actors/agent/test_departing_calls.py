"""A server is removed or replaced under a call: the call has its result within the grace, by what its tool promised when the call began."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.example_counts import one_in

from greenroom import Client, Command, Host, Server
from greenroom.actors.client.errors import ClientError
from greenroom.errors import GreenroomError
from greenroom.transports.client.memory_route import MemoryRoute

if TYPE_CHECKING:
    from collections.abc import Callable

Way: TypeAlias = "Host | Client"

PROGRAM = """
from greenroom import Server

server = Server("old")

@server.tool
def data(fifo: str) -> list[str]:
    return [open(fifo).read()]

server.run()
"""


def old() -> Server:
    server = Server("old")

    @server.tool
    def data(fifo: str) -> list[str]:
        return [Path(fifo).read_text()]

    return server


def without_the_tool() -> Server:
    server = Server("new")

    @server.tool
    def shout() -> str:
        return "x"

    return server


def with_another_output() -> Server:
    server = Server("new")

    @server.tool
    def data(fifo: str) -> dict[str, int]:
        return {fifo: 1}

    return server


async def _remove(host: Host) -> None:
    await host.remove("up", grace=60)


def _replace(by: Callable[[], Server]) -> Any:
    async def replace(host: Host) -> None:
        await host.replace("up", by())

    return replace


ENDS: dict[str, Any] = {
    "removed": _remove,
    "replaced without the tool": _replace(without_the_tool),
    "replaced with another output": _replace(with_another_output),
}


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


async def _target(kind: str, tmp_path: Path, stack: AsyncExitStack) -> Any:
    if kind == "command":
        program = tmp_path / "old.py"
        program.write_text(PROGRAM)
        return Command(sys.executable, str(program))
    server = old()
    if kind == "http":
        await stack.enter_async_context(server.started())
        return await server.listen(port=0)
    return server


@pytest.mark.parametrize("through", ["host", "gateway"])
@pytest.mark.parametrize("end", one_in(2, ENDS))
@pytest.mark.parametrize("kind", ["server", "command", "http"])
async def test_a_call_under_way_has_its_result_by_its_own_schema(
    kind: str, end: str, through: str, tmp_path: Path, fifo: str
) -> None:
    async with AsyncExitStack() as stack:
        host = Host({"up": await _target(kind, tmp_path, stack)}, patience=30.0)
        way: Way = host
        name = "up:data"
        if through != "host":
            front = Server("front")
            front.mount(host)
            way, name = Client(front), "up__data"
        await stack.enter_async_context(way)
        await (way.tools() if isinstance(way, Host) else way.list_tools())
        call = asyncio.ensure_future(way.call(name, fifo=fifo))
        gate = await asyncio.wait_for(asyncio.to_thread(open, fifo, "w"), 30)  # the tool has opened it, too
        ending = asyncio.ensure_future(ENDS[end](host))
        if end == "removed":
            await _until(lambda: not host.federation.ids())
        else:
            await asyncio.wait_for(ending, 30)
            await host.tools()
        assert not call.done()
        gate.write("done")
        gate.close()
        assert await asyncio.wait_for(call, 30) == ["done"]
        await asyncio.wait_for(ending, 30)


async def _until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not met():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)


async def test_a_replaced_server_of_this_program_ends_once_its_calls_have_ended(fifo: str) -> None:
    before = old()
    async with Host({"up": before}, patience=30.0) as host:
        await host.tools()
        call = asyncio.ensure_future(host.call("up:data", fifo=fifo))
        gate = await asyncio.to_thread(open, fifo, "w")
        await host.replace("up", without_the_tool())
        assert before._runner.is_active
        gate.write("done")
        gate.close()
        assert await call == ["done"]
        await _until(lambda: not (before._runner.is_active or host._departing))


async def test_a_replaced_server_of_this_program_ends_with_its_host() -> None:
    before, begun = Server("before"), asyncio.Event()

    @before.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Host({"up": before}, patience=30.0) as host:
        await host.tools()
        call = asyncio.ensure_future(host.call("up:wait"))
        await begun.wait()
        await host.replace("up", without_the_tool())
    with pytest.raises(ClientError):
        await asyncio.wait_for(call, 30)
    assert not before._runner.is_active
    assert not host._departing


async def test_a_call_of_a_server_that_replaces_one_is_judged_by_its_own_schema_and_not_by_its_predecessors() -> None:
    begins, seen = asyncio.Event(), asyncio.Event()
    slow = with_another_output()
    route: Any = _Slow(slow, begins, seen)
    async with slow.started(), Host({"up": old()}, patience=30.0) as host:
        await host.tools()
        await host.replace("up", route, ready_within=0)
        call = asyncio.ensure_future(host.server("up").call("data", fifo="x"))
        await asyncio.wait_for(seen.wait(), 30)
        begins.set()
        assert await asyncio.wait_for(call, 30) == {"x": 1}


class _Slow:
    """The way to a server that is not ready before it is let."""

    def __init__(self, server: Server, begins: asyncio.Event, seen: asyncio.Event) -> None:
        async def prepare() -> None:
            seen.set()
            await begins.wait()

        self._inner = MemoryRoute(server.company, prepare=prepare)
        self.description = "slow"

    def open(self, owner: Any) -> Any:
        return self._inner.open(owner)


async def test_tools_that_change_under_a_clients_call_change_nothing_for_it() -> None:
    server, begun, go = Server("up"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def data() -> list[str]:
        begun.set()
        await go.wait()
        return ["done"]

    def changed() -> dict[str, int]:
        return {"x": 1}

    async with Client(server) as client:
        await client.list_tools()
        call = asyncio.ensure_future(client.call("data"))
        await begun.wait()
        async with client.listen("notifications/tools/list_changed") as updates:
            server.registry.register_tool("data", changed)
            await anext(aiter(updates))
        go.set()
        assert await call == ["done"]
        assert await client.call("data") == {"x": 1}


async def test_a_server_that_breaks_its_own_promise_is_still_told_so() -> None:
    server = old()
    async with Host({"up": server}, patience=30.0) as host:
        await host.tools()
        answered: Any = host.federation.members["up"]
        tools = {"data": {**answered.offering.tools["data"], "outputSchema": {"type": "object", "required": ["n"]}}}
        answered.publish(answered.offering.with_lists({"tools": tools.values()}), ["tools"])
        with pytest.raises(GreenroomError, match="does not match its output schema"):
            await host.call("up:data", fifo=os.devnull)
