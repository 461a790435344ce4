"""What a host and a gateway keep of their servers' lists and resources: for all of their connections, and for each principal by itself."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Cache, Client, ResponseCache, Server
from greenroom.actors.client.era_verdict_file import EraVerdictFile
from greenroom.actors.client.era_verdicts import PROCESS_VERDICTS
from greenroom.host import Host
from greenroom.protocol.dialect import LATEST_DIALECT, STATELESS_DIALECT
from greenroom.transports.client.memory_route import MemoryRoute
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from pathlib import Path

MODES = ["legacy", STATELESS_DIALECT.version]


class Library:
    """A server that counts what is read of it."""

    def __init__(self, name: str = "books") -> None:
        self.reads: list[str] = []
        self.server = Server(name, cache=Cache(60))

        @self.server.resource("book://private", cache=Cache(60))
        def private() -> str:
            return self.read("private")

        @self.server.resource("book://public", cache=Cache(60, public=True))
        def public() -> str:
            return self.read("public")

        @self.server.resource("book://fleeting")
        def fleeting() -> str:
            return self.read("fleeting")

        @self.server.tool
        def lend(title: str) -> str:
            return title

    def read(self, uri: str) -> str:
        self.reads.append(uri)
        return f"{uri} {len(self.reads)}"


def front(*libraries: Library, **options: Any) -> tuple[Server, Host]:
    """A gateway of these servers, and its host."""
    host = Host({library.server.settings.name: library.server for library in libraries}, **options)
    server = Server("front")
    server.mount(host)
    return server, host


def client_of(server: Server, principal: str | None, mode: str) -> Client:
    return Client(MemoryRoute(server.company, peer=Peer("memory", principal=principal)), mode=mode, cache=False)


@pytest.mark.row("26-C3")
async def test_a_host_reads_once_what_its_server_lets_it_keep() -> None:
    library = Library()
    async with Host({"books": library.server}) as host:
        words = host.server("books")
        for uri in ("book://private", "book://public", "book://fleeting"):
            for _ in range(2):
                await words.read_resource(uri)
    assert library.reads == ["private", "public", "fleeting", "fleeting"]


async def test_a_host_without_a_cache_reads_each_time() -> None:
    library = Library()
    async with Host({"books": library.server}, cache=False) as host:
        for _ in range(2):
            await host.server("books").read_resource("book://public")
    assert library.reads == ["public", "public"]


@pytest.mark.row("26-C3")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at_a_url", [False, True])
async def test_principals_of_a_gateway_share_what_is_public_alone(mode: str, *, at_a_url: bool) -> None:
    library, server = Library(), Server("front")
    async with AsyncExitStack() as stack:
        if at_a_url:  # the gateway comes with the same credentials for every principal: none
            await stack.enter_async_context(library.server.started())
        server.mount(Host({"books": await library.server.listen(port=0) if at_a_url else library.server}))
        await stack.enter_async_context(server.started())
        texts: dict[tuple[str, str], set[str | None]] = {}
        for principal in ("ann", "bob", "ann"):
            async with client_of(server, principal, mode) as client:
                uris = {resource.name: resource.uri for resource in await client.list_resources()}
                for name in ("private", "public"):
                    for _ in range(2):
                        text = (await client.read_resource(uris[name])).text
                        texts.setdefault((principal, name), set()).add(text)
    assert sorted(library.reads) == ["private", "private", "public"]
    assert len(texts["ann", "private"]) == len(texts["bob", "private"]) == 1
    assert not texts["ann", "private"] & texts["bob", "private"]
    assert texts["ann", "public"] == texts["bob", "public"]


@pytest.mark.row("26-C3")
async def test_strangers_of_a_gateway_do_not_get_what_a_session_has_read() -> None:
    library = Library()
    server, _ = front(library)
    async with server.started(), client_of(server, None, "legacy") as one, client_of(server, None, "legacy") as other:
        for client in (one, other, one):
            uris = {resource.name: resource.uri for resource in await client.list_resources()}
            await client.read_resource(uris["private"])
    assert library.reads == ["private", "private"]


async def test_a_server_that_was_replaced_by_one_at_the_same_url_is_read_anew() -> None:
    library = Library()
    async with library.server.started():
        url = await library.server.listen(port=0)
        async with Host({"books": url}) as host:
            await host.server("books").read_resource("book://public")
            await host.replace("books", url)
            await host.server("books").read_resource("book://public")
    assert library.reads == ["public", "public"]


async def test_a_replaced_server_is_read_anew() -> None:
    before, after = Library(), Library()
    async with Host({"books": before.server}) as host:
        await host.server("books").read_resource("book://private")
        await host.replace("books", after.server)
        await host.server("books").read_resource("book://private")
    assert (before.reads, after.reads) == (["private"], ["private"])


async def test_nothing_is_kept_of_a_server_that_was_removed() -> None:
    cache = ResponseCache()
    one, other = Library("one"), Library("other")
    async with Host({"one": one.server, "other": other.server}, cache=cache) as host:
        for id in ("one", "other"):
            await host.server(id).read_resource("book://private")
        both = cache.count
        await host.remove("one")
        assert 0 < cache.count < both


@pytest.mark.row("26-V10")
async def test_a_host_uses_the_verdicts_that_it_is_given(tmp_path: Path) -> None:
    library = Library()
    async with library.server.started():
        url = await library.server.listen(port=0)
        verdicts = EraVerdictFile(tmp_path / "eras.json")
        verdicts.learn(url, LATEST_DIALECT.version)
        async with Host({"books": url}, verdicts=verdicts) as host:
            assert host.federation.verdicts is verdicts
            await host.server("books").list_tools()
            assert host.server("books").protocol_version == LATEST_DIALECT.version
        assert Host({"books": url}).federation.verdicts is PROCESS_VERDICTS


async def test_a_host_of_configuration_files_remembers_eras_in_the_users_folder(tmp_path: Path) -> None:
    path = tmp_path / "greenroom.toml"
    library = Library()
    async with library.server.started():
        url = await library.server.listen(port=0)
        path.write_text(f'[server.books]\ntransport = "http"\nurl = "{url}"\n')
        host = Host.from_config(path)
        verdicts = host.federation.verdicts
        assert isinstance(verdicts, EraVerdictFile)
        async with host:
            await host.server("books").list_tools()
        assert EraVerdictFile(verdicts.path).of(url) == STATELESS_DIALECT.version
    own = EraVerdictFile(tmp_path / "own.json")
    assert Host.from_config(path, verdicts=own).federation.verdicts is own
