"""Tools that an upstream offers on one client's own connection, and to no other."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import McpServer, Server
from greenroom.host import Consent, Host, Permissions, Rule
from greenroom.protocol.errors import PeerError
from greenroom.protocol.tool_pins import Pins
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from greenroom import Client, Context

from .bridged_pair import MODERN
from .recording_upstream import client, run, says, session_host


def definition(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


class Personal(McpServer):
    """`login` adds `secret` for the session that calls it."""

    open: ClassVar[set[str]] = set()
    listed: ClassVar[int] = 0

    async def list_tools(self, cursor: str | None, ctx: Context) -> Any:
        Personal.listed += 1
        names = ["login", *(["secret"] if ctx.session_id in self.open else ())]
        return [definition(name) for name in names]

    async def call_tool(self, name: str, arguments: Any, ctx: Context) -> Any:
        if name == "login":
            self.open.add(ctx.session_id)
            for _ in range(arguments.get("times", 1)):
                _ = ctx.notify("notifications/tools/list_changed")
            _ = ctx.error("done")
        return name if name == "login" or ctx.session_id in self.open else "nothing"


def front(**options: Any) -> tuple[Host, Server]:
    Personal.open.clear()
    host, server = session_host({"up": Personal.server()}, patience=20.0, **options), Server("front")
    server.mount(host)
    return host, server


async def names(peer: Client) -> set[str]:
    return {one.name for one in await peer.list_tools()}


async def signed_in(peer: Client) -> None:
    async with peer.listen("notifications/tools/list_changed") as changes:
        await peer.call("up__login")
        await anext(aiter(changes))


def test_a_tool_that_an_upstream_adds_for_a_session_is_listed_and_callable_there_alone() -> None:
    async def main() -> None:
        _, server = front()
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            assert await names(ann) == await names(bob) == {"up__login"}
            await asyncio.wait_for(signed_in(ann), 30)
            assert await names(ann) == {"up__login", "up__secret"}
            assert await ann.call("up__secret") == "secret"
            assert await names(bob) == {"up__login"}
            with pytest.raises(PeerError, match="Unknown tool"):
                await bob.call("up__secret")

    run(main)


def test_a_session_that_calls_its_new_tool_without_listing_first_reaches_it() -> None:
    async def main() -> None:
        _, server = front()
        async with server.started(), client(server) as peer:
            await asyncio.wait_for(signed_in(peer), 30)
            assert await peer.call("up__secret") == "secret"

    run(main)


def test_an_upstream_that_repeats_a_change_is_asked_once_and_its_client_hears_of_it_once() -> None:
    async def main() -> None:
        host, server = front()
        async with host:
            await host.tools()  # before the server starts: a list that comes later is announced to all clients
            async with server.started(), client(server, "ann") as ann:
                await hears_once(ann)

    async def hears_once(ann: Client) -> None:
        await names(ann)
        before = Personal.listed
        async with ann.listen("notifications/tools/list_changed", "notifications/message") as heard:
            await ann.call_tool("up__login", {"times": 50})  # `call` would list the tools, for their output schemas
            changes = aiter(heard)
            assert (await asyncio.wait_for(anext(changes), 30)).method == "notifications/tools/list_changed"
            assert (await asyncio.wait_for(anext(changes), 30)).method == "notifications/message"
        await asyncio.gather(names(ann), names(ann))
        assert Personal.listed - before == 1

    run(main)


def test_a_sessions_own_tool_passes_the_hosts_rules_and_pins() -> None:
    async def main() -> None:
        _, server = front(consent=Consent(Permissions([Rule("deny", "secret"), Rule("allow", "login")])))
        async with server.started(), client(server, "ann") as ann:
            await asyncio.wait_for(signed_in(ann), 30)
            assert (await ann.call_tool("up__secret")).is_error
        _, server = front(pins=Pins.of({"up:login": definition("login")}), policy="refuse")
        async with server.started(), client(server, "ann") as ann:
            await asyncio.wait_for(signed_in(ann), 30)
            assert await names(ann) == {"up__login"}
            with pytest.raises(PeerError, match="Unknown tool"):
                await ann.call("up__secret")

    run(main)


def test_pins_that_are_set_later_hold_for_a_sessions_own_tools() -> None:
    async def main() -> None:
        host, server = front(policy="refuse")
        async with server.started(), client(server, "ann") as ann:
            await asyncio.wait_for(signed_in(ann), 30)
            assert await names(ann) == {"up__login", "up__secret"}
            host.router.pins = Pins.of({"up:login": definition("login")})
            assert await names(ann) == {"up__login"}

    run(main)


@pytest.mark.parametrize("able", [False, True])
async def test_a_principal_without_a_session_hears_of_its_own_list_and_gets_it(able: bool) -> None:  # noqa: FBT001 - a parameter
    """It makes no difference whether its calls may be asked something, and so have connections for themselves."""
    _, server = front()
    options: dict[str, Any] = {"mode": MODERN, **({"sampling": says("x")} if able else {})}
    async with server.started(), client(server, "ann", **options) as ann, client(server, "bob", **options) as bob:
        assert await names(ann) == await names(bob) == {"up__login"}
        await signed_in(ann)
        assert await names(ann) == {"up__login", "up__secret"}
        assert await names(bob) == {"up__login"}
        assert await ann.call("up__secret") == "secret"
        with pytest.raises(PeerError):
            await bob.call("up__secret")


async def test_what_a_strangers_call_has_changed_is_shown_to_no_other_stranger() -> None:
    _, server = front()
    async with server.started() as company:
        one, other = (StatelessClient(company, Peer("http"), {"sampling": {}}) for _ in range(2))
        await one.result("tools/list")
        (mounted,) = server._gateways
        connections = mounted.client_connections
        release, late = connections.release, list[Any]()

        def held(*connection: Any, **how: Any) -> None:  # the call is over, and its session still there
            late.append(partial(release, *connection, **how))

        connections.release = held  # type: ignore[method-assign]
        await one.call("up__login")
        assert len(connections) == 1
        assert {tool["name"] for tool in (await other.result("tools/list"))["tools"]} == {"up__login"}
        late.pop()()
        assert len(connections) == 0
