"""A server that is removed or replaced while clients of a gateway have connections of their own to it."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Hooks, Server
from greenroom.protocol.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from greenroom.actors.gateway.client_connections import ClientConnections
    from greenroom.host import Host

from .recording_upstream import Upstream, client, run, session_host

SLEEPER = """
import asyncio, os
from greenroom import Server

server = Server("sleeper")

@server.tool
def pid() -> int:
    return os.getpid()

@server.tool
async def sleep() -> None:
    await asyncio.Event().wait()

server.run()
"""


def connections_of(server: Server) -> ClientConnections:
    return server._gateways[0].client_connections


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not met():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)


def front(**servers: Any) -> tuple[Host, Server]:
    host, server = session_host(servers, patience=20.0), Server("front")
    server.mount(host)
    return host, server


def test_removing_a_server_ends_the_calls_and_the_process_of_a_clients_own_connection(tmp_path: Path) -> None:
    program = tmp_path / "sleeper.py"
    program.write_text(SLEEPER)

    async def main() -> None:
        host, server = front(up=[sys.executable, str(program)])
        async with client(server) as peer:
            pid = await peer.call("up__pid")
            call = peer.start_tool("up__sleep")
            async with asyncio.timeout(30):
                await until(lambda: any(one.busy for one in connections_of(server)._connections.values()))
                await host.remove("up", grace=0.05)
                with pytest.raises(PeerError) as caught:
                    await call
            assert caught.value.data == {"server": "up", "reason": "closed"}
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            with pytest.raises(PeerError, match="Unknown tool"):
                await peer.call("up__pid")

    run(main)


def test_a_call_that_ends_within_the_grace_has_its_result_and_the_removal_waits_for_it() -> None:
    async def main() -> None:
        up, go = Server("up"), asyncio.Event()
        begun = asyncio.Event()

        @up.tool
        async def hold() -> str:
            begun.set()
            await go.wait()
            return "held"

        host, server = front(up=up)
        async with client(server) as peer:
            call = peer.start_tool("up__hold")
            await begun.wait()
            removing = asyncio.ensure_future(host.remove("up", grace=60))
            await until(lambda: not host.federation.ids())
            assert not removing.done()
            go.set()
            assert (await call).text == "held"
            await asyncio.wait_for(removing, 30)
            assert len(connections_of(server)) == 0

    run(main)


def test_an_interrupted_removal_leaves_no_connection_behind() -> None:
    async def main() -> None:
        up = Upstream("up")
        host, server = front(up=up.server)
        async with client(server) as peer:
            call = peer.start_tool("up__wait")
            await up.waiting.wait()
            line = next(iter(connections_of(server)._connections.values())).line
            removing = asyncio.ensure_future(host.remove("up", grace=0.05))
            await until(lambda: not host.federation.ids())
            removing.cancel()
            with suppress(asyncio.CancelledError):
                await removing
            with pytest.raises(PeerError):
                await asyncio.wait_for(call.result(), 30)
            await asyncio.wait_for(up.cancelled.wait(), 30)
            assert line.pid is None or line.status.phase.value in ("closing", "closed")

    run(main)


def test_a_connection_that_opens_while_its_server_is_removed_is_closed_and_its_call_refused() -> None:
    async def main() -> None:
        up = Upstream("up")
        host, server = front(up=up.server)
        connections = connections_of(server)
        async with server.started(), client(server) as peer:
            await peer.list_tools()
            connections._departed["up"] = 1  # as if the removal had come between the handshake and the call
            with pytest.raises(PeerError) as caught:
                await peer.call("up__add", a=1, b=2)
            assert caught.value.data["reason"] == "unavailable"
            assert len(connections) == 0
            await host.remove("up")
            await host.add("up", Upstream("up").server)
            await until(lambda: host.federation.known("up") is not None)
            assert await peer.call("up__add", a=1, b=2) == 3

    run(main)


def test_a_replaced_servers_connections_are_closed_when_their_calls_have_ended() -> None:
    async def main() -> None:
        one, two = Upstream("up"), Upstream("up")
        async with one.server.started(), two.server.started():
            host, server = front(up=one.server)
            async with client(server) as peer:
                call = peer.start_tool("up__wait")
                await one.waiting.wait()
                old = next(iter(connections_of(server)._connections.values())).line
                await host.replace("up", two.server)
                assert await peer.call("up__remember", what="x") == "nothing"
                assert len(two.memory) == 1
                assert old.status.phase.value == "ready"
                call.cancel()
                await one.cancelled.wait()
                await until(lambda: old.status.phase.value == "closed")

    run(main)


async def test_a_clients_own_connection_that_never_becomes_ready_is_waited_for_as_long_as_the_patience_allows() -> None:
    sessions, loop = 0, asyncio.get_running_loop()

    async def init(facts: Any) -> None:
        nonlocal sessions
        sessions += 1
        if sessions > 1:  # the first is the host's own
            await asyncio.Event().wait()

    up = Server("up", hooks=Hooks(init=init))

    @up.tool
    def hello() -> str:
        return "hello"

    _, server = front(up=up)
    async with client(server) as peer:
        began = loop.time()
        with pytest.raises(PeerError) as caught:
            await peer.call("up__hello")
        assert loop.time() - began == pytest.approx(20.0, abs=0.1)
        assert caught.value.data == {
            "server": "up",
            "reason": "unavailable",
            "cause": "init_timeout",
            "maybeDone": False,
        }
