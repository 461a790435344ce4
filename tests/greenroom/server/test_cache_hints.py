"""Cache hints of lists, of the server's description and of resources, and what they never allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from greenroom import Cache, ConfigError, RegistrationError, Server, Settings
from greenroom.actors.settings import BadSetting
from greenroom.auth.auth_info import AuthInfo
from greenroom.protocol.cache_hints import BadCache
from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.transports.interfaces import EncodedReply, Peer

ENVELOPE = {PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_CAPABILITIES_KEY: dict[str, Any]()}
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover")


def library(**options: Any) -> Server:
    server = Server("library", **options)

    @server.tool
    async def lend(book: str) -> str:
        return book

    @server.resource("book://kept", cache=Cache(30))
    async def kept() -> str:
        return "kept"

    @server.resource("book://public/{name}", cache=Cache(0.5, public=True))
    async def public(name: str) -> str:
        return name

    @server.resource("book://plain")
    async def plain() -> str:
        return "plain"

    return server


async def hints(server: Server, method: str, peer: Peer | None = None, **params: Any) -> tuple[Any, Any]:
    async with server.started() as company:
        request = JsonRpcRequest(1, method, {**params, "_meta": ENVELOPE})
        reply = await company.exchange(Peer("http", "") if peer is None else peer, request)
    assert isinstance(reply, EncodedReply)
    result = json.loads(reply.body)["result"]
    return result.get("ttlMs"), result.get("cacheScope")


@pytest.mark.row("26-C1")
@pytest.mark.parametrize("method", LISTS)
async def test_a_list_may_not_be_kept_unless_the_server_says_so(method: str) -> None:
    assert await hints(library(), method) == (0, "private")
    assert await hints(library(cache=Cache(60)), method) == (60_000, "private")
    assert await hints(library(cache=60), method) == (60_000, "private")
    assert await hints(library(settings=Settings(cache=Cache(60, public=True))), method) == (60_000, "public")


@pytest.mark.row("26-C1")
async def test_hints_by_method_leave_other_methods_alone() -> None:
    server = library(cache={"tools/list": Cache(1.5)})
    assert await hints(server, "tools/list") == (1500, "private")
    assert await hints(server, "prompts/list") == (0, "private")


@pytest.mark.row("26-C1")
@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("book://kept", (30_000, "private")),
        ("book://public/a", (500, "public")),
        ("book://plain", (0, "private")),
    ],
)
async def test_a_resource_has_the_hints_of_its_own(uri: str, expected: tuple[int, str]) -> None:
    assert await hints(library(cache=Cache(60)), "resources/read", uri=uri) == expected


@pytest.mark.row("26-C1")
async def test_other_results_carry_no_hints() -> None:
    assert await hints(library(cache=Cache(60)), "tools/call", name="lend", arguments={"book": "a"}) == (None, None)


@pytest.mark.row("26-C6")
async def test_a_list_that_depends_on_scopes_is_private_for_every_caller_whatever_was_said() -> None:
    server = library(cache=Cache(60, public=True))

    @server.tool(scopes=("books:burn",))
    async def burn() -> str:
        return "ash"

    trusted = Peer("http", "", principal="ann", auth=AuthInfo(subject="ann", scopes=frozenset({"books:burn"})))
    for peer in (Peer("http", ""), trusted):
        assert await hints(server, "tools/list", peer) == (60_000, "private")
    assert await hints(server, "prompts/list") == (60_000, "public")


@pytest.mark.row("26-C6")
async def test_a_resource_with_scopes_cannot_be_public() -> None:
    server = Server("s")
    with pytest.raises(RegistrationError, match="leave out public=True"):

        @server.resource("book://secret", cache=Cache(1, public=True), scopes=("read",))
        async def secret() -> str:
            return "s"


@pytest.mark.row("26-C2")
async def test_all_pages_of_a_list_have_the_same_scope() -> None:
    server = Server("many", settings=Settings(page_size=2, cache=Cache(9, public=True)))
    for number in range(5):
        server.registry.register_tool(f"t{number}", lambda: "x")
    seen: list[tuple[Any, Any]] = []
    async with server.started() as company:
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"_meta": ENVELOPE} | ({} if cursor is None else {"cursor": cursor})
            reply = await company.exchange(Peer("http", ""), JsonRpcRequest(1, "tools/list", params))
            assert isinstance(reply, EncodedReply)
            result = json.loads(reply.body)["result"]
            seen.append((result["ttlMs"], result["cacheScope"]))
            cursor = result.get("nextCursor")
            if cursor is None:
                break
    assert seen == [(9000, "public")] * 3


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "60", None, 1e12])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(BadCache, match="Cache"):
        Cache(seconds)


@pytest.mark.parametrize(
    "cache", ["60", -1, True, {"tools/call": Cache(1)}, {"resources/read": Cache(1)}, {"tools/list": 60}]
)
def test_a_hint_for_what_has_none_is_refused_with_what_to_write(cache: Any) -> None:
    with pytest.raises((BadSetting, ConfigError), match="cache"):
        Server("s", cache=cache)
