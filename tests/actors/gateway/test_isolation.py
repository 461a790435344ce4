"""Session state at upstreams belongs to one principal; changes and failures of upstreams."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Server
from greenroom.actors.client.errors import (
    ClientClosed,
    ClientError,
    Parked,
    RequestTimeout,
    StreamLost,
    Unavailable,
    Unsupported,
)
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.federation.federation_errors import UpstreamBusy
from greenroom.actors.gateway.gateway import GatewayProcess
from greenroom.actors.gateway.upstream_calls import upstream_error
from greenroom.errors import ConfigError
from greenroom.protocol.errors import PeerError, RequestCancelled
from greenroom.supervision import kill, wait_down, whereis, which_children
from greenroom.transports.client.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from greenroom import Client
    from greenroom.client import PendingCall

from .recording_upstream import FRAGILE, UNREACHABLE, Upstream, client, gateway, run, session_host


@asynccontextmanager
async def three_callers(server: Server) -> AsyncGenerator[tuple[Client, Client, Client]]:
    """A gateway that runs, and three principals who call it."""
    async with (
        server.started(),
        client(server, "ann") as ann,
        client(server, "bob") as bob,
        client(server, "eve") as eve,
    ):
        yield ann, bob, eve


# --- the error for a client


@pytest.mark.parametrize(
    ("error", "maybe", "text"),
    [
        (Unavailable("one"), False, "has not answered: unavailable"),
        (Parked("one"), False, "has not answered: parked"),
        (UpstreamBusy("one", 8), False, "has not answered: busy"),
        (StreamLost("tools/call", ConnectionLost("gone")), True, "has not answered: stream_lost"),
        (RequestTimeout("tools/call", 5.0), None, "has not answered: timeout"),
        (ClientClosed("one was removed"), None, "has not answered: closed"),
        (
            Unsupported("resources/subscribe", "resources.subscribe"),
            False,
            "cannot do this: the server does not declare resources.subscribe, which resources/subscribe needs",
        ),
    ],
)
def test_the_error_of_an_upstream_says_whether_anything_was_sent(
    error: ClientError, *, maybe: bool | None, text: str
) -> None:
    said = upstream_error("one", error)
    assert said.message == f"The upstream server 'one' {text}"
    assert said.data is not None
    assert said.data.get("maybeDone") is maybe


# --- session state


def test_an_upstreams_session_state_belongs_to_one_principal() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        async with (
            server.started(),
            client(server, "ann") as ann,
            client(server, "ann") as ann_again,
            client(server, "bob") as bob,
            client(server) as stranger,
            client(server) as other_stranger,
        ):
            assert await ann.call("one__remember", what="ann's") == "nothing"
            assert await bob.call("one__remember", what="bob's") == "nothing"
            assert await stranger.call("one__remember", what="unknown") == "nothing"
            assert await other_stranger.call("one__remember", what="another's") == "nothing"
            assert await ann_again.call("one__remember", what="again") == "ann's"
            assert await bob.call("one__remember", what="again") == "bob's"

    run(main)


def test_a_shared_server_has_one_connection_for_all() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"), Upstream("two"), shared=["one"])
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            assert await ann.call("one__remember", what="ann's") == "nothing"
            assert await bob.call("one__remember", what="bob's") == "ann's"
            assert await ann.call("two__remember", what="ann's") == "nothing"
            assert await bob.call("two__remember", what="bob's") == "nothing"
            with pytest.raises(PeerError):
                await ann.call("one__think")  # a shared connection asks no client

    run(main)


def test_there_are_so_many_connections_and_the_idle_one_makes_room() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up, most=2)
        async with three_callers(server) as (ann, bob, eve):
            await ann.call("one__remember", what="ann's")
            await bob.call("one__remember", what="bob's")
            waiting = bob.start_tool("one__wait")
            await up.waiting.wait()
            await eve.call("one__remember", what="eve's")
            assert await ann.call("one__remember", what="again") == "nothing"
            more = ann.start_tool("one__wait")
            up.waiting.clear()
            await up.waiting.wait()
            with pytest.raises(PeerError, match="no_room"):
                await eve.call("one__add", a=1, b=2)
            waiting.cancel()
            more.cancel()

    run(main)


def test_a_connection_that_a_call_waits_for_makes_no_room() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up, most=2)
        async with three_callers(server) as (ann, bob, eve):
            await ann.call("one__remember", what="ann's")
            connections = client_connections_of(server)
            usable, arrived, go_on = connections._usable, asyncio.Event(), asyncio.Event()

            async def slow(connection: Any) -> None:
                if connection.owner == ("principal", "ann"):
                    arrived.set()
                    await go_on.wait()
                await usable(connection)

            connections._usable = slow
            waiting = ann.start_tool("one__remember", {"what": "again"})
            await arrived.wait()
            await bob.call("one__remember", what="bob's")
            assert await eve.call("one__add", a=1, b=2) == 3, "there is room where no call waits"
            go_on.set()
            assert (await waiting.result()).text == "ann's"

    run(main)


def test_each_principal_has_at_most_half_of_the_connections() -> None:
    """It makes room for its next one among its own; with all of them in use it is refused, and another goes on."""

    async def main() -> None:
        ups = [Upstream(name) for name in ("one", "two", "three", "four")]
        server = gateway(*ups, most=4)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            connections = client_connections_of(server)
            for name in ("one", "two", "three", "four", "one"):
                await ann.call(f"{name}__remember", what="ann's")
            assert [key.server for key in connections._connections] == ["four", "one"]
            waiting: list[PendingCall] = []
            for up in (ups[0], ups[3]):
                waiting.append(ann.start_tool(f"{up.server.settings.name}__wait"))
                await up.waiting.wait()
            for _ in range(3):
                with pytest.raises(PeerError, match="no_room"):
                    await ann.call("two__add", a=1, b=2)
            assert await bob.call("two__remember", what="bob's") == "nothing"
            assert await bob.call("three__remember", what="bob's") == "nothing"
            assert await bob.call("three__remember", what="again") == "bob's"
            assert len(connections) == 3
            for each in waiting:
                each.cancel()

    run(main)


def test_connections_that_are_being_opened_count_too() -> None:
    async def main() -> None:
        server = gateway(*(Upstream(name) for name in ("one", "two", "three", "four")), most=4)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            names = ("one", "two", "three", "four")
            found = await asyncio.gather(
                *(ann.call(f"{name}__add", a=1, b=2) for name in names), return_exceptions=True
            )
            assert 1 <= sum(isinstance(each, PeerError) for each in found) <= 2
            assert await bob.call("four__add", a=1, b=2) == 3

    run(main)


def test_connections_that_are_opened_together_within_a_share_are_all_kept() -> None:
    """One that has just opened takes one place, also before its call has begun."""

    async def main() -> None:
        server = gateway(*(Upstream(name) for name in ("one", "two", "three")), most=4)
        async with server.started(), client(server, "ann") as ann:
            connections = client_connections_of(server)
            found = await asyncio.gather(*(ann.call(f"{name}__add", a=1, b=2) for name in ("one", "two")))
            assert found == [3, 3]
            assert sorted(key.server for key in connections._connections) == ["one", "two"]

    run(main)


def test_a_connection_that_has_just_opened_takes_one_place_of_its_owners_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is asked for in the turn in which the first is there, and its caller has not woken."""

    async def main() -> None:
        server = gateway(*(Upstream(name) for name in ("one", "two")), most=4)
        async with server.started(), client(server, "ann") as ann:
            connections = client_connections_of(server)
            original, rooms = connections._open, list[int]()

            async def opened(key: Any, owner: Any, capabilities: Any, caller: Any) -> Any:
                connection = await original(key, owner, capabilities, caller)
                connections._make_room(owner)
                rooms.append(len(connections))
                return connection

            monkeypatch.setattr(connections, "_open", opened)
            assert await ann.call("one__add", a=1, b=2) == 3
            assert rooms == [1]

    run(main)


def test_connections_of_many_principals_that_are_being_opened_count_towards_all() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"), most=2)
        async with three_callers(server) as (ann, bob, eve):
            connections = client_connections_of(server)
            original, opening, go = connections._open, asyncio.Semaphore(0), asyncio.Event()

            async def held(*of_it: Any) -> Any:
                opening.release()
                await go.wait()
                return await original(*of_it)

            connections._open = held
            calls = [asyncio.create_task(each.call("one__add", a=1, b=2)) for each in (ann, bob)]
            for _ in calls:
                await opening.acquire()
            with pytest.raises(PeerError, match="no_room"):
                await eve.call("one__add", a=1, b=2)
            go.set()
            assert await asyncio.gather(*calls) == [3, 3]

    run(main)


def client_connections_of(server: Server) -> Any:
    return server.company.hooks.answers["tools/call"].__self__.client_connections  # type: ignore[attr-defined]


async def waiting_at(gate: Any, count: int) -> None:
    while gate.waiting < count:  # noqa: ASYNC110 - a count, not an event
        await asyncio.sleep(0)


def test_a_shared_connection_serves_waiting_principals_in_turn() -> None:
    """A principal with fifty waiting calls delays another's first by one."""

    async def main() -> None:
        up = Upstream("one")
        order: list[str] = []
        free = asyncio.Event()

        @up.server.tool
        async def note(who: str) -> str:
            await free.wait()
            order.append(who)
            return who

        server = gateway(up, shared=True)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            await ann.list_tools()
            flood = [ann.start_tool("one__note", {"who": "ann"}) for _ in range(50)]
            # The host's own book of that server.
            limiter = server.company.hooks.answers["tools/call"].__self__.host.federation.members["one"].limiter  # type: ignore[attr-defined]
            await waiting_at(limiter, 50 - 16)
            mine = bob.start_tool("one__note", {"who": "bob"})
            await waiting_at(limiter, 50 - 16 + 1)
            free.set()
            await mine.result()
            for each in flood:
                await each.result()
            assert len(order) == 51
            assert order.index("bob") <= 16 + 1

    run(main)


# --- what changes


def test_lists_that_change_upstream_are_told_here() -> None:
    async def main() -> None:
        up = Upstream("one")
        async with client(gateway(up)) as peer:
            await peer.list_tools()
            async with peer.listen("notifications/tools/list_changed") as told:
                up.server.registry.unregister_tool("add")
                async for _ in told:
                    if "one__add" not in {one.name for one in await peer.list_tools()}:
                        break
            with pytest.raises(PeerError):
                await peer.call("one__add", a=1, b=2)

    run(main)


def test_a_changed_resource_is_announced_to_its_subscribers() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        uri = "upstream://one/note://one"
        async with server.started(), client(server) as first, client(server) as second:
            async with first.subscribe(uri) as updates, second.listen("notifications/resources/updated"):
                up.server.notify_resource_updated("note://one")
                told = await anext(aiter(updates))
                assert told.params["uri"] == uri
            assert await second.call("one__add", a=1, b=2) == 3

    run(main)


def test_a_server_that_is_added_is_there_for_all() -> None:
    async def main() -> None:
        host = session_host(patience=1.0)
        server = Server("front")
        server.mount(host)
        async with client(server) as peer:
            assert await peer.list_tools() == []
            async with peer.listen("notifications/tools/list_changed") as told:
                await host.add("one", Upstream("one").server)
                await anext(aiter(told))
            assert await peer.call("one__add", a=1, b=2) == 3
            replaced = Upstream("other")
            await host.replace("one", replaced.server)
            assert await peer.call("one__remember", what="x") == "nothing"
            assert len(replaced.memory) == 1
            await host.remove("one")
            with pytest.raises(PeerError):
                await peer.call("one__add", a=1, b=2)

    run(main)


# --- trouble


def test_an_unreachable_upstream_fails_at_once_and_affects_no_other() -> None:
    async def main() -> None:
        up = Upstream("one")
        host = session_host({"one": up.server, "dead": UNREACHABLE}, patience=0.05)
        server = Server("front")
        server.mount(host)
        async with client(server) as peer:
            assert "one__add" in {one.name for one in await peer.list_tools()}
            with pytest.raises(PeerError) as caught:
                await asyncio.wait_for(peer.read_resource("upstream://dead/x:1"), 2)
            assert caught.value.data["server"] == "dead"
            assert caught.value.data["reason"] in ("unavailable", "circuit_open", "parked")
            assert "9" not in caught.value.message
            assert await peer.call("one__add", a=1, b=2) == 3

    run(main)


def test_an_upstream_that_is_killed_in_mid_call_is_told_and_the_next_call_has_another(tmp_path: Path) -> None:
    program = tmp_path / "fragile.py"
    program.write_text(FRAGILE)

    async def main() -> None:
        up = Upstream("one")
        server = Server("front")
        server.mount(session_host({"fragile": [sys.executable, str(program)], "one": up.server}, patience=20.0))
        async with client(server) as peer:
            assert await peer.call("fragile__pid") > 0
            with pytest.raises(PeerError) as caught:
                await asyncio.wait_for(peer.call("fragile__die"), 5)
            assert caught.value.data == {
                "server": "fragile",
                "reason": "lost",
                "cause": "exit_status",
                "maybeDone": True,
            }
            assert "secret" not in str(caught.value)
            assert await peer.call("one__add", a=1, b=2) == 3
            assert await asyncio.wait_for(peer.call("fragile__pid"), 10) > 0

    run(main)


@pytest.mark.parametrize("role", ["process", "connections", "subscriptions"])
def test_whichever_process_of_a_gateway_is_killed_it_comes_back(role: str) -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        (mounted,) = server._gateways
        uri = "upstream://one/note://one"
        async with (
            server.started(),
            client(server) as peer,
            client(server) as other,
            peer.subscribe(uri) as updates,
        ):
            assert await peer.call("one__add", a=1, b=2) == 3
            call = other.start_tool("one__wait")
            await up.waiting.wait()
            supervisor = mounted.client_connections.supervisor
            assert supervisor is not None
            name = supervisor._replace(role=supervisor.role.replace("connections", role))
            before = whereis(name)
            assert before is not None
            kill(before)
            await wait_down(before)
            while whereis(name) in (None, before):  # noqa: ASYNC110 - its supervisor starts it in a moment
                await asyncio.sleep(0)
            assert await asyncio.wait_for(peer.call("one__add", a=1, b=2), 5) == 3
            if role == "subscriptions":
                call.cancel()
            with pytest.raises((PeerError, RequestCancelled)):
                await asyncio.wait_for(call.result(), 5)
            await mounted.sweep(0.0)
            assert (await asyncio.wait_for(anext(aiter(updates)), 5)).params[
                "uri"
            ] == uri  # there may have been a change
            up.server.notify_resource_updated("note://one")
            assert (await asyncio.wait_for(anext(aiter(updates)), 5)).params["uri"] == uri

    run(main)


def test_a_call_waits_for_the_connections_supervisor_that_restarts_after_the_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        (mounted,) = server._gateways
        opened, go_on = asyncio.Event(), asyncio.Event()
        init = GatewayProcess.init

        async def held(keeper: GatewayProcess) -> None:
            await init(keeper)
            opened.set()
            await go_on.wait()

        async with server.started(), client(server) as peer:
            assert await peer.call("one__add", a=1, b=2) == 3
            supervisor = mounted.client_connections.supervisor
            assert supervisor is not None
            keeper = whereis(supervisor._replace(role=supervisor.role.replace("connections", "process")))
            assert keeper is not None
            monkeypatch.setattr(GatewayProcess, "init", held)
            kill(keeper)
            await asyncio.wait_for(opened.wait(), 5)
            assert whereis(supervisor) is None
            call = asyncio.ensure_future(peer.call("one__add", a=1, b=2))
            try:
                while not (call.done() or mounted.client_connections.supervisor_started._waiting):  # noqa: ASYNC110 - it is on its way
                    await asyncio.sleep(0)
            finally:
                go_on.set()
            assert await asyncio.wait_for(call, 5) == 3

    run(main)


def test_connections_of_a_client_that_left_are_closed() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        (mounted,) = server._gateways
        async with server.started():
            async with client(server) as peer, client(server, "ann") as ann:
                await peer.call("one__add", a=1, b=2)
                await ann.call("one__add", a=1, b=2)
                peer_id, ann_id = [card.id for card in await server.company.peers.all()]
                async with peer.subscribe("upstream://one/note://one"):
                    assert len(mounted.client_connections) == 2
                    await mounted.sweep(0.0)
                    assert len(mounted.client_connections) == 2
            for id in (peer_id, ann_id):
                pid = server.company.peers.whereis(id)
                if pid is not None:
                    await wait_down(pid)
            await mounted.sweep(0.0)
            assert len(mounted.client_connections) == 1  # Ann may come again
            await mounted.sweep(asyncio.get_running_loop().time() + 301)
            assert len(mounted.client_connections) == 0

    run(main)


def test_a_connection_whose_caller_left_is_closed_like_any_other() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        (mounted,) = server._gateways
        connections = mounted.client_connections
        arrived, go_on = asyncio.Event(), asyncio.Event()
        usable = connections._usable

        async def slow(connection: Any) -> None:
            arrived.set()
            await go_on.wait()
            await usable(connection)

        connections._usable = slow  # type: ignore[method-assign]  # as a server is that takes its time
        async with server.started(), client(server) as peer:
            call = peer.start_tool("one__add", {"a": 1, "b": 2})
            await arrived.wait()
            worker = (await which_children(server.company.workers))[0].ref
            call.cancel()
            await wait_down(worker)
            (opening,) = connections._opening.values()
            go_on.set()
            line = (await opening).line
            assert len(connections) == 1
            await mounted.sweep(asyncio.get_running_loop().time() + 301)
            assert len(connections) == 0
            async with asyncio.timeout(5):
                async for status in line.watch():
                    if status.phase is Phase.CLOSED:
                        break

    run(main)


def test_a_sessions_log_level_is_forgotten_with_the_session() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        (mounted,) = server._gateways
        async with server.started():
            async with client(server) as peer:
                await peer.set_log_level("debug")
                (id,) = [card.id for card in await server.company.peers.all()]
                await mounted.sweep(0.0)
                assert list(mounted.client_connections._levels) == [id]
            pid = server.company.peers.whereis(id)
            if pid is not None:
                await wait_down(pid)
            await mounted.sweep(0.0)
            assert not mounted.client_connections._levels

    run(main)


def test_two_hosts_are_told_apart_by_their_prefixes() -> None:
    async def main() -> None:
        server = Server("front")
        for prefix in ("a-", "b-"):
            server.mount(session_host({"one": Upstream("one").server}, patience=1.0), prefix)
        async with client(server) as peer:
            names = {one.name for one in await peer.list_tools()}
            assert {"a-one__add", "b-one__add"} <= names
            assert await peer.call("a-one__remember", what="x") == "nothing"
            assert await peer.call("b-one__remember", what="x") == "nothing"
            assert {one.uri for one in await peer.list_resources()} == {
                "upstream://a-one/note://one",
                "upstream://b-one/note://one",
            }

    run(main)


def test_ambiguous_server_prefixes_are_refused() -> None:
    server = gateway(Upstream("one"))
    with pytest.raises(ConfigError, match="prefix"):
        server.mount(session_host())


def test_a_tool_that_is_refused_is_not_served() -> None:
    async def main() -> None:
        up = Upstream("one")
        host = session_host({"one": up.server}, pins={}, policy="refuse")
        server = Server("front")
        server.mount(host)
        async with client(server) as peer:
            assert await peer.list_tools() == []
            with pytest.raises(PeerError, match="one__add"):
                await peer.call("one__add", a=1, b=2)
            await host.pin()
            assert await peer.call("one__add", a=1, b=2) == 3

    run(main)


def test_mounting_a_running_server_is_refused() -> None:
    async def main() -> None:
        server = Server("front")
        async with server.started():
            with pytest.raises(ConfigError, match="before"):
                server.mount(session_host())

    run(main)
