"""A federation as one server: what is listed, what is carried, whose it is, and what happens when an upstream is away."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Server, Settings, resource_link
from greenroom.actors.cancellation import RequestCancelled
from greenroom.errors import ConfigError
from greenroom.host import Host
from greenroom.protocol.errors import McpError, PeerError
from greenroom.supervision import wait_down
from greenroom.transports.client.memory import MemoryRoute
from greenroom.transports.seam import Peer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from greenroom.actors.client.seam import Progress

NOBODY = "http://127.0.0.1:9/mcp"


FRAGILE = """
import os, signal, sys
from greenroom import Server

server = Server("fragile")

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def die() -> None:
    print("a secret", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

server.run()
"""


class Upstream:
    """A server that remembers, asks, tells and waits."""

    def __init__(self, name: str = "up") -> None:
        self.server = Server(name)
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.memory: dict[str, str] = {}
        server = self.server

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b

        @server.tool
        def remember(ctx: Any, what: str) -> str:
            """A note that belongs to the session."""
            before = self.memory.get(ctx.session_id, "nothing")
            self.memory[ctx.session_id] = what
            return before

        @server.tool
        async def think(ctx: Any) -> str:
            ctx.info("thinking", logger="mind")
            return str((await ctx.sample("What now?")).text)

        @server.tool
        async def confirm(ctx: Any) -> str:
            answer = await ctx.elicit("Sure?", {"type": "object", "properties": {"yes": {"type": "boolean"}}})
            return str(answer.action)

        @server.tool
        async def count(ctx: Any, to: int) -> int:
            for done in range(to):
                ctx.progress(done + 1, to, f"step {done + 1}")
                await asyncio.sleep(0)
            return to

        @server.tool
        async def wait(ctx: Any) -> None:
            self.waiting.set()
            try:
                await ctx.cancelled.wait()
            finally:
                self.cancelled.set()

        @server.tool
        async def able(ctx: Any) -> list[str]:
            return sorted(ctx.client_capabilities)

        @server.tool
        def link() -> Any:
            return resource_link("note://one", "one")

        @server.tool
        def fail() -> None:
            raise McpError(-32050, "own error", {"uri": "note://one", "k": 1})

        @server.resource("note://one")
        def note() -> str:
            return "a note"

        @server.resource("note://{id}/more")
        def more(id: str) -> str:
            return f"more of {id}"

        @server.prompt
        def greet(name: str) -> str:
            return f"Greet {name}."

        @server.completion("name", prompt="greet")
        def names(value: str) -> list[str]:
            return [one for one in ("Ann", "Bob") if one.startswith(value)]


def gateway(*upstreams: Upstream, **options: Any) -> Server:
    server = Server("front", settings=Settings(page_size=4))
    servers: dict[str, Any] = {one.server.settings.name: one.server for one in upstreams}
    server.mount(Host(servers, patience=1.0), **options)
    return server


def says(text: str) -> Callable[[Any], str]:
    def answer(_: Any) -> str:
        return text

    return answer


def agrees(form: Any) -> Any:
    return form.accept({"yes": True})


def client(server: Server, principal: str | None = None, **options: Any) -> Client:
    if principal is None:
        return Client(server, **options)
    return Client(MemoryRoute(server.company, peer=Peer("memory", principal=principal)), **options)


def run(main: Callable[[], Any]) -> None:
    asyncio.run(main())


def test_everything_is_listed_over_all_pages() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"), Upstream("two"))

        @server.tool
        def own() -> str:
            return "mine"

        async with Client(server) as peer:
            names = [one.name for one in await peer.list_tools()]
            assert names == sorted(names)
            assert len(names) == 19
            assert {"one__add", "two__add", "own"} <= set(names)
            assert {one.uri for one in await peer.list_resources()} == {
                "upstream://one/note://one",
                "upstream://two/note://one",
            }
            assert "upstream://one/note://{id}/more" in {
                one.uri_template for one in await peer.list_resource_templates()
            }
            assert {one.name for one in await peer.list_prompts()} == {"one__greet", "two__greet"}
            assert await peer.call("own") == "mine"
            assert await peer.call("two__add", a=1, b=2) == 3

    run(main)


def test_resources_prompts_and_completions_come_through() -> None:
    async def main() -> None:
        async with Client(gateway(Upstream("one"))) as peer:
            reply = await peer.read_resource("upstream://one/note://one")
            assert reply.text == "a note"
            assert reply.contents[0].uri == "upstream://one/note://one"
            assert (await peer.read_resource("upstream://one/note://7/more")).text == "more of 7"
            assert "Greet Ann." in str(await peer.get_prompt("one__greet", name="Ann"))
            assert list((await peer.complete("one__greet", "name", "A")).values) == ["Ann"]
            link = (await peer.call_tool("one__link")).content[0]
            assert link.uri == "upstream://one/note://one"
            assert (await peer.read_resource(link.uri)).text == "a note"
            with pytest.raises(PeerError) as caught:
                await peer.read_resource("upstream://one/note://none")
            assert caught.value.code == -32002
            assert caught.value.data["uri"] == "upstream://one/note://none"
            with pytest.raises(PeerError):
                await peer.read_resource("upstream://nobody/note://one")

    run(main)


def test_the_upstreams_own_errors_are_the_clients() -> None:
    async def main() -> None:
        async with Client(gateway(Upstream("one"))) as peer:
            with pytest.raises(PeerError) as caught:
                await peer.call("one__fail")
            assert (caught.value.code, caught.value.message) == (-32050, "own error")
            assert caught.value.data == {"uri": "upstream://one/note://one", "k": 1}
            reply = await peer.call_tool("one__add", {"a": 1})
            assert reply.is_error
            with pytest.raises(PeerError, match="one__nothing"):
                await peer.call_tool("one__nothing")

    run(main)


# --- both ways


def test_progress_and_log_messages_come_back() -> None:
    async def main() -> None:
        logged: list[tuple[str | None, Any]] = []
        server = gateway(Upstream("one"))
        async with Client(
            server, sampling=says("x"), on_log=lambda said: logged.append((said.logger, said.data))
        ) as peer:
            steps: list[Progress] = []
            await peer.call_tool("one__count", {"to": 5}, on_progress=steps.append)
            assert [(one.progress, one.total, one.message) for one in steps] == [
                (n, 5, f"step {n}") for n in range(1, 6)
            ]
            await peer.call("one__think")
            assert logged == [("one.mind", "thinking")]

    run(main)


def test_a_question_goes_to_the_very_client_whose_call_it_is() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        async with (
            client(server, sampling=says("A")) as first,
            client(server, sampling=says("B"), elicitation=agrees) as second,
        ):
            for _ in range(5):
                answers = await asyncio.gather(*(one.call("one__think") for one in (first, second) * 4))
                assert answers == ["A", "B"] * 4
            assert await second.call("one__confirm") == "accept"
            assert await first.call("one__able") == ["sampling"]
            assert await second.call("one__able") == ["elicitation", "sampling"]

    run(main)


def test_a_principals_two_clients_are_not_taken_for_each_other() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        async with (
            server.started(),
            client(server, "ann", sampling=says("A")) as first,
            client(server, "ann", sampling=says("B")) as second,
        ):
            assert await first.call("one__think") == "A"
            assert await second.call("one__think") == "B"
            waiting = first.start_tool("one__wait")
            await up.waiting.wait()
            with pytest.raises(PeerError, match="cannot be told"):
                await second.call("one__think")  # both have calls under way on one connection
            waiting.cancel()
            with pytest.raises(RequestCancelled):
                await waiting
            await up.cancelled.wait()
            with pytest.raises(PeerError, match="cannot be told"):
                await second.call("one__think")  # the upstream may still be at what was given up

    run(main)


def test_a_client_that_does_not_want_it_any_more_is_heeded() -> None:
    async def main() -> None:
        up = Upstream("one")
        async with Client(gateway(up)) as peer:
            call = peer.start_tool("one__wait")
            await up.waiting.wait()
            call.cancel()
            await asyncio.wait_for(up.cancelled.wait(), 5)
            assert await peer.call("one__add", a=1, b=2) == 3

    run(main)


def test_a_client_that_goes_away_takes_its_calls_along() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        async with server.started():
            async with Client(server) as peer:
                call = peer.start_tool("one__wait")
                await up.waiting.wait()
            await asyncio.wait_for(up.cancelled.wait(), 5)
            with pytest.raises(Exception, match="closed"):
                await call

    run(main)


def test_over_http_it_is_the_same() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        async with server.started():
            url = await server.listen(port=0)
            async with (
                Client(url, sampling=says("A")) as first,
                Client(url, sampling=says("B"), elicitation=agrees) as second,
            ):
                answers = await asyncio.gather(*(one.call("one__think") for one in (first, second) * 3))
                assert answers == ["A", "B"] * 3
                assert await second.call("one__confirm") == "accept"
                steps: list[Progress] = []
                await first.call_tool("one__count", {"to": 3}, on_progress=steps.append)
                assert [one.progress for one in steps] == [1, 2, 3]
                assert await first.call("one__remember", what="x") == "nothing"
                assert await second.call("one__remember", what="y") == "nothing"
                call = first.start_tool("one__wait")
                await up.waiting.wait()
                call.cancel()
                await asyncio.wait_for(up.cancelled.wait(), 5)
            await server.stop_listening(url)

    run(main)


# --- whose state it is


def test_what_an_upstream_remembers_belongs_to_one_principal() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"))
        async with (
            server.started(),
            client(server, "ann") as ann,
            client(server, "ann") as ann_again,
            client(server, "bob") as bob,
            client(server) as nobody,
            client(server) as nobody_else,
        ):
            assert await ann.call("one__remember", what="ann's") == "nothing"
            assert await bob.call("one__remember", what="bob's") == "nothing"
            assert await nobody.call("one__remember", what="nobody's") == "nothing"
            assert await nobody_else.call("one__remember", what="another's") == "nothing"
            assert await ann_again.call("one__remember", what="again") == "ann's"
            assert await bob.call("one__remember", what="again") == "bob's"

    run(main)


def test_what_was_declared_shared_is_one_for_all() -> None:
    async def main() -> None:
        server = gateway(Upstream("one"), Upstream("two"), shared=["one"])
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            assert await ann.call("one__remember", what="ann's") == "nothing"
            assert await bob.call("one__remember", what="bob's") == "ann's"
            assert await ann.call("two__remember", what="ann's") == "nothing"
            assert await bob.call("two__remember", what="bob's") == "nothing"
            with pytest.raises(PeerError):
                await ann.call("one__think")  # a connection that is everybody's asks nobody

    run(main)


def test_there_are_so_many_connections_and_the_idle_one_makes_room() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up, most=2)
        async with (
            server.started(),
            client(server, "ann") as ann,
            client(server, "bob") as bob,
            client(server, "eve") as eve,
        ):
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


# --- what changes


def test_lists_that_change_upstream_are_told_here() -> None:
    async def main() -> None:
        up = Upstream("one")
        async with Client(gateway(up)) as peer:
            await peer.list_tools()
            async with peer.listen("notifications/tools/list_changed") as told:
                up.server.registry.unregister_tool("add")
                async for _ in told:
                    if "one__add" not in {one.name for one in await peer.list_tools()}:
                        break
            with pytest.raises(PeerError):
                await peer.call("one__add", a=1, b=2)

    run(main)


def test_a_resource_that_changes_is_told_to_whoever_subscribed() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        uri = "upstream://one/note://one"
        async with server.started(), Client(server) as first, Client(server) as second:
            async with first.subscribe(uri) as updates, second.listen("notifications/resources/updated"):
                up.server.notify_resource_updated("note://one")
                told = await anext(aiter(updates))
                assert told.params["uri"] == uri
            assert await second.call("one__add", a=1, b=2) == 3

    run(main)


def test_a_server_that_is_added_is_there_for_all() -> None:
    async def main() -> None:
        host = Host(patience=1.0)
        server = Server("front")
        server.mount(host)
        async with Client(server) as peer:
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


def test_an_upstream_that_is_away_is_told_at_once_and_nobody_else_notices() -> None:
    async def main() -> None:
        up = Upstream("one")
        host = Host({"one": up.server, "dead": NOBODY}, patience=0.05)
        server = Server("front")
        server.mount(host)
        async with Client(server) as peer:
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
        server.mount(Host({"fragile": [sys.executable, str(program)], "one": up.server}, patience=20.0))
        async with Client(server) as peer:
            assert await peer.call("fragile__pid") > 0
            with pytest.raises(PeerError) as caught:
                await asyncio.wait_for(peer.call("fragile__die"), 5)
            assert caught.value.data == {"server": "fragile", "reason": "lost", "cause": "exit_status"}
            assert "secret" not in str(caught.value)
            assert await peer.call("one__add", a=1, b=2) == 3
            assert await asyncio.wait_for(peer.call("fragile__pid"), 10) > 0

    run(main)


def test_what_belonged_to_a_client_that_is_gone_is_closed() -> None:
    async def main() -> None:
        up = Upstream("one")
        server = gateway(up)
        (mounted,) = server._gateways
        async with server.started():
            async with Client(server) as peer, client(server, "ann") as ann:
                await peer.call("one__add", a=1, b=2)
                await ann.call("one__add", a=1, b=2)
                peer_id, ann_id = [card.id for card in await server.company.peers.all()]
                async with peer.subscribe("upstream://one/note://one"):
                    assert len(mounted.lodgings) == 2
                    mounted.sweep(0.0)
                    assert len(mounted.lodgings) == 2
            for id in (peer_id, ann_id):
                pid = server.company.peers.whereis(id)
                if pid is not None:
                    await wait_down(pid)
            mounted.sweep(0.0)
            assert len(mounted.lodgings) == 1  # Ann may come again
            mounted.sweep(asyncio.get_running_loop().time() + 301)
            assert len(mounted.lodgings) == 0

    run(main)


def test_two_hosts_are_told_apart_by_their_prefixes() -> None:
    async def main() -> None:
        server = Server("front")
        for prefix in ("a-", "b-"):
            server.mount(Host({"one": Upstream("one").server}, patience=1.0), prefix)
        async with Client(server) as peer:
            names = {one.name for one in await peer.list_tools()}
            assert {"a-one__add", "b-one__add"} <= names
            assert await peer.call("a-one__remember", what="x") == "nothing"
            assert await peer.call("b-one__remember", what="x") == "nothing"
            assert {one.uri for one in await peer.list_resources()} == {
                "upstream://a-one/note://one",
                "upstream://b-one/note://one",
            }

    run(main)


def test_what_could_not_be_told_apart_is_refused() -> None:
    server = gateway(Upstream("one"))
    with pytest.raises(ConfigError, match="prefix"):
        server.mount(Host())


def test_it_is_mounted_before_it_runs() -> None:
    async def main() -> None:
        server = Server("front")
        async with server.started():
            with pytest.raises(ConfigError, match="before"):
                server.mount(Host())

    run(main)
