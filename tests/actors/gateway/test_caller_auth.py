"""Callers of a gateway with logins of their own at an upstream: each connection shows its own principal's, and no other."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.auth.auth_test_server import Reception, bearer
from tests.transports.client_http.request_signer import RequestSigner
from tests.transports.client_http.scripted_server import ReceivedRequest, ScriptedServer, scripted_server

from greenroom import Client, Command, ConfigError, Server
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.auth.auth_info import AuthInfo
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.client.auth_option import CallerCredentials, CallerIdentity, CallerNotSignedIn
from greenroom.client_targets import route_of
from greenroom.host import Host
from greenroom.protocol.errors import PeerError
from greenroom.transports import HttpRoute
from greenroom.transports.client.memory_route import MemoryRoute
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

pytestmark = pytest.mark.greenroom(clock="real")
OWN = "token-of-the-host"
REFUSED = {"server": "web", "reason": "caller_sign_in"}


class Tokens(dict[str, str]):
    """The upstream's tokens by the caller's subject, and which callers were asked about."""

    def __init__(self, *subjects: str) -> None:
        super().__init__({each: f"upstream-token-of-{each}" for each in subjects})
        self.asked: list[CallerIdentity] = []

    def __call__(self, caller: CallerIdentity) -> str | None:
        self.asked.append(caller)
        return self.get(caller.subject or "")


@asynccontextmanager
async def upstream() -> AsyncGenerator[ScriptedServer]:
    """A server over HTTP whose tool answers with the token that the call has shown."""

    async def tools(visit: ReceivedRequest) -> None:
        await visit.result({"tools": [{"name": "whose", "inputSchema": {"type": "object"}}]})

    async def whose(visit: ReceivedRequest) -> None:
        shown = visit.headers.get("authorization", "nothing")
        await visit.result({"content": [{"type": "text", "text": shown.removeprefix("Bearer ")}]})

    async with scripted_server() as web:
        web.on("tools/list", tools)
        web.on("tools/call", whose)
        yield web


def front(web: ScriptedServer, ask: Callable[[CallerIdentity], Any], *, shared: Any = False, **more: Any) -> Server:
    server = Server("front", **more)
    server.mount(
        Host({"web": UpstreamSpec(route_of(web.url, auth=OWN), caller_auth=ask)}, patience=10.0), shared=shared
    )
    return server


def client(server: Server, subject: str | None, **more: Any) -> Client:
    info = None if subject is None else AuthInfo(subject, **more)
    peer = Peer("memory", principal=None if info is None else info.principal, auth=info)
    return Client(MemoryRoute(server.company, peer=peer), mode="legacy")


async def whose(peer: Client) -> str:
    return str((await peer.call_tool("web__whose", {})).text)


async def refusal(peer: Client) -> Any:
    with pytest.raises(PeerError) as caught:
        await whose(peer)
    return caught.value


def shown(web: ScriptedServer, *kinds: str) -> list[str]:
    return [visit.headers.get("authorization", "") for kind in kinds for visit in web.seen(kind)]


async def test_each_caller_shows_its_own_token_from_the_handshake_on_also_at_the_same_time() -> None:
    tokens = Tokens("ann", "bob")
    async with upstream() as web:
        server = front(web, tokens)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            answers = await asyncio.gather(*(whose(each) for each in (ann, bob) * 8))
        assert answers == [tokens["ann"], tokens["bob"]] * 8
        own = {visit.connection: set[str]() for visit in web.requests}
        for visit in web.requests:
            own[visit.connection].add(visit.headers["authorization"])
        assert all(len(each) == 1 for each in own.values()), "a connection has shown two logins"
        expected = sorted(f"Bearer {each}" for each in (OWN, *tokens.values()))
        assert sorted(shown(web, "initialize")) == expected
        assert f"Bearer {OWN}" not in shown(web, "tools/call")


async def test_over_http_a_callers_inbound_token_never_reaches_the_upstream(caplog: pytest.LogCaptureFixture) -> None:
    inbound = {"inbound-token-of-ann": "ann", "inbound-token-of-bob": "bob"}
    tokens = Tokens("ann", "bob")

    def known(token: str) -> dict[str, Any] | None:
        return {"sub": inbound[token], "scope": "use"} if token in inbound else None

    with caplog.at_level(logging.DEBUG):
        async with upstream() as web:
            server = front(web, tokens, auth=BearerAuth(verifier=known, audience=None))
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            message["params"] = {"name": "web__whose", "arguments": {}}
            async with server.started():
                desk = Reception(server, plain=True)
                for token, subject in inbound.items():
                    paper = await desk.ask("POST", bearer(token), message)
                    assert tokens[subject] in paper.body.decode()
                await desk.close()
            sent = "\n".join(f"{each.headers} {each.body.decode()}" for each in web.requests)
    assert "inbound-token" not in sent
    assert "inbound-token" not in caplog.text
    assert not any(token in caplog.text for token in (OWN, *tokens.values()))


@pytest.mark.parametrize("shared", [False, True, ["web"]])
@pytest.mark.parametrize("subject", [None, "eve"])
async def test_a_caller_without_credentials_is_refused_and_never_acts_as_the_host(
    subject: str | None, shared: Any
) -> None:
    tokens = Tokens("ann")
    async with upstream() as web:
        server = front(web, tokens, shared=shared)
        async with server.started(), client(server, subject) as peer, client(server, "ann") as ann:
            error = await refusal(peer)
            assert error.data == REFUSED
            assert ("anonymous" if subject is None else "no credentials") in error.message
            assert await whose(ann) == tokens["ann"]
        assert shown(web, "tools/call") == [f"Bearer {tokens['ann']}"]
        assert sorted(shown(web, "initialize")) == sorted([f"Bearer {OWN}", f"Bearer {tokens['ann']}"])


async def test_a_request_without_a_session_or_a_login_does_not_use_the_hosts_connection() -> None:
    async with upstream() as web:
        server = front(web, Tokens("ann"))
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        message["params"] = {"name": "web__whose", "arguments": {}}
        async with server.started():
            desk = Reception(server, plain=True)
            paper = await desk.ask("POST", {}, message)
            await desk.close()
        assert '"caller_sign_in"' in paper.body.decode().replace(" ", "")
        assert web.seen("tools/call") == []


async def test_the_hosts_own_login_is_used_where_the_function_returns_it() -> None:
    async with upstream() as web:
        server = front(web, lambda caller: OWN if caller.subject == "ann" else None)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            assert await whose(ann) == OWN
            assert (await refusal(bob)).data == REFUSED


async def test_revoked_credentials_end_with_the_next_call_and_new_ones_are_taken() -> None:
    tokens = Tokens("ann", "bob")
    async with upstream() as web:
        server = front(web, tokens)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            first = await whose(ann)
            assert await whose(bob) == tokens["bob"]
            del tokens["ann"]
            for _ in range(2):  # on the open connection, and on the next one
                assert (await refusal(ann)).data == REFUSED
            assert await whose(bob) == tokens["bob"]
            tokens["ann"] = "another-token-of-ann"
            assert await whose(ann) == "another-token-of-ann" != first
        begun = shown(web, "initialize")  # the connection was closed, so that no stream goes on with the old login
        assert [begun.count(f"Bearer {each}") for each in ("another-token-of-ann", tokens["bob"])] == [1, 1]


async def test_a_token_that_the_upstream_refuses_is_asked_for_again_once() -> None:
    tokens = Tokens("ann")
    old = tokens["ann"]
    async with upstream() as web:
        answer = web.handlers["tools/call"]

        async def judged(visit: ReceivedRequest) -> None:
            if visit.headers["authorization"] == f"Bearer {old}":
                await web.until("tools/call", 2)  # both calls have shown the old one
                tokens["ann"] = "renewed-token-of-ann"  # by another part of the program, just now
                await visit.reply(401, www_authenticate="Bearer")
            else:
                await answer(visit)

        web.on("tools/call", judged)
        server = front(web, tokens)
        async with server.started(), client(server, "ann") as ann:
            assert tuple(await asyncio.gather(whose(ann), whose(ann))) == ("renewed-token-of-ann",) * 2
            tokens["ann"] = old
            web.on("tools/call", lambda visit: visit.reply(401, www_authenticate="Bearer"))
            error = await refusal(ann)
        assert old not in f"{error.message} {error.data}"


async def test_a_reconnect_shows_the_callers_token_again() -> None:
    tokens = Tokens("ann", "bob")
    async with upstream() as web:
        server = front(web, tokens)
        async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
            await asyncio.gather(whose(ann), whose(bob))
            answer = web.handlers["tools/call"]

            async def forgotten(visit: ReceivedRequest) -> None:
                web.on("tools/call", answer)
                await visit.reply(404)

            web.on("tools/call", forgotten)
            assert (await refusal(ann)).data["reason"] == "lost"
            assert await whose(ann) == tokens["ann"]
            begun = shown(web, "initialize")
            assert [begun.count(f"Bearer {each}") for each in (tokens["ann"], tokens["bob"])] == [2, 1]
            kept = tokens["ann"]

            async def revoked(visit: ReceivedRequest) -> None:
                del tokens["ann"]  # the next reconnect finds no login, and parks
                await forgotten(visit)

            web.on("tools/call", revoked)
            assert (await refusal(ann)).data["reason"] == "lost"
            assert (await refusal(ann)).data == REFUSED
            assert await whose(bob) == tokens["bob"]
            tokens["ann"] = kept
            assert await whose(ann) == kept
        assert shown(web, "initialize").count(f"Bearer {OWN}") == 1


@pytest.mark.parametrize("later", [False, True])
async def test_a_function_that_raises_fails_that_callers_call_with_a_reason_and_no_other(
    *, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens("bob")

    def ask(caller: CallerIdentity) -> Any:
        if caller.subject == "ann":
            raise KeyError("secret-in-the-text")
        return tokens(caller)

    async def ask_later(caller: CallerIdentity) -> Any:
        await asyncio.sleep(0)
        return ask(caller)

    async with upstream() as web:
        server = front(web, ask_later if later else ask)
        with caplog.at_level(logging.DEBUG):
            async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
                error, answer = await asyncio.gather(refusal(ann), whose(bob))
        assert error.data == REFUSED
        assert "KeyError" in error.message
        assert "test_caller_auth.py, line" in caplog.text
        assert "secret-in-the-text" not in f"{error.message} {error.data} {caplog.text}"
        assert answer == tokens["bob"]


async def test_an_invalid_login_is_refused_without_being_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with upstream() as web:
        server = front(web, lambda _: "Bearer two words")
        with caplog.at_level(logging.DEBUG):
            async with server.started(), client(server, "ann") as ann:
                error = await refusal(ann)
        assert error.data == REFUSED
        assert "two words" not in f"{error.message} {caplog.text}"


async def test_callers_of_one_name_from_two_issuers_are_two() -> None:
    async with upstream() as web:
        server = front(web, lambda caller: f"token-by-{caller.issuer}")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(server.started())
            peers = [await stack.enter_async_context(client(server, "ann", issuer=each)) for each in ("one", "two")]
            assert [await whose(each) for each in peers] == ["token-by-one", "token-by-two"]


async def test_the_function_is_given_the_principal_and_nothing_of_a_single_token() -> None:
    tokens = Tokens("ann")
    async with upstream() as web:
        server = front(web, tokens)
        async with server.started(), client(server, "ann", scopes=frozenset({"all"}), client_id="app") as ann:
            await whose(ann)
    assert set(tokens.asked) == {CallerIdentity("ann", None, None)}


async def test_connections_in_a_process_of_their_own_show_the_callers_token() -> None:
    tokens = Tokens("ann")
    async with upstream() as web:
        server = Server("front")
        spec = UpstreamSpec(route_of(web.url, auth=OWN), caller_auth=tokens, isolation="process")
        server.mount(Host({"web": spec}, patience=10.0))
        async with server.started(), client(server, "ann") as ann, client(server, "eve") as eve:
            assert await whose(ann) == tokens["ann"]
            error = await refusal(eve)
        assert error.data == REFUSED
        assert shown(web, "tools/call") == [f"Bearer {tokens['ann']}"]


def test_a_connection_of_an_unknown_caller_is_not_opened_with_the_hosts_login() -> None:
    spec = UpstreamSpec(HttpRoute("http://127.0.0.1:9/mcp"), caller_auth=lambda _: "a-token")
    with pytest.raises(CallerNotSignedIn):
        spec.personal(None)
    assert "a-token" not in f"{spec!r} {CallerCredentials(lambda _: 'a-token', CallerIdentity('a', None, None), '')!r}"


@pytest.mark.parametrize(
    ("route", "match"),
    [
        (HttpRoute("http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer x"}), "in its authorization header"),
        (HttpRoute("http://127.0.0.1:9/mcp", headers={"Cookie": "x=y"}), "in its cookie header"),
        (HttpRoute("http://ann:secret@127.0.0.1:9/mcp"), "in its URL"),
        (
            HttpRoute("http://127.0.0.1:9/mcp", transport=httpx.MockTransport(lambda _: httpx.Response(500))),
            "keeps cookies",
        ),
        (Command("a-program"), "for a server at a URL"),
    ],
)
def test_a_login_that_every_caller_would_show_besides_is_a_mistake(route: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        UpstreamSpec(route, caller_auth=lambda _: None)
    assert "secret" not in str(caught.value)


async def test_each_callers_own_login_signs_its_requests_and_learns_its_nonces() -> None:
    signers = {"ann": RequestSigner(), "bob": RequestSigner()}
    given = {
        name: CallerCredentials(
            lambda caller: signers[str(caller.subject)], CallerIdentity(name, None, None), "https://x/"
        )
        for name in signers
    }
    given["ann"].on_nonce("https://x/", "too early")  # nothing has signed a request yet
    assert (await given["ann"].headers_for("POST", "https://x/mcp"))["dpop"] == "0 POST https://x/mcp none"
    given["ann"].on_nonce("https://x/mcp", "n1")
    assert (await given["ann"].headers_for("GET", "https://x/mcp"))["dpop"] == "1 GET https://x/mcp n1"
    assert (await given["bob"].headers_for("POST", "https://x/mcp"))["dpop"] == "0 POST https://x/mcp none"
    plain = CallerCredentials(lambda _: "a-token", CallerIdentity("ann", None, None), "https://x/")
    assert await plain.headers_for("POST", "https://x/mcp") == {"authorization": "Bearer a-token"}
    plain.on_nonce("https://x/mcp", "n1")
    assert await plain.headers_for("POST", "https://x/mcp") == {"authorization": "Bearer a-token"}
