"""A server's provider applies over sockets and when mounted, its processes are started with the server, and local transports do not use it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from greenroom import Client, ClientError, Host, HttpConfig, Server, Unauthorized
from greenroom.auth import BearerAuth, Introspection, KeySet
from greenroom.auth.auth_info import AuthRequest
from greenroom.auth.errors import Denied
from greenroom.auth.jose import secret_key, sign
from greenroom.supervision import kill, whereis
from greenroom.transports import FixedHeaders, HttpRoute

from .auth_test_server import AUDIENCE, HELLO, ISSUER, KEY, KINDS, SECRET, claims, fetch_keys


def shown(token: str) -> FixedHeaders:
    return FixedHeaders({"authorization": f"Bearer {token}"})


@pytest.mark.row("SA-02", "SA-23")
async def test_over_a_real_socket_with_keys_that_a_process_keeps() -> None:
    keys = KeySet("https://id.example/jwks", fetch_keys)
    provider = BearerAuth(keys=keys, algorithms=("ES256",), issuer=ISSUER, audience=AUDIENCE)
    server = Server("socket", auth=provider, required_scopes=["use"])

    @server.tool
    async def whoami(ctx: Any) -> str:
        return str(ctx.auth.subject)

    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        async with Client(HttpRoute(url, credentials=shown(sign(claims(), KEY, "ES256")))) as client:
            assert (await client.call_tool("whoami")).text == "ann"
            process = whereis(keys._name)
            assert process is not None
            kill(process)  # a child of the server's tree: it restarts, and the keys are kept
            assert (await client.call_tool("whoami")).text == "ann"
        for wrong in ("none", sign(claims(scope="look"), KEY, "ES256")):
            with pytest.raises(Unauthorized):
                async with Client(HttpRoute(url, credentials=shown(wrong))):
                    pass
        await server.stop_listening(url)
    assert whereis(keys._name) is None


async def test_mounted_in_an_application() -> None:
    about = KINDS["bearer, secret"]
    app = Server("mounted", auth=about.make()).asgi()
    for state, status in (("none", 401), ("good", 200), ("wrong", 401)):
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(HELLO).encode(), "more_body": False}

        async def send(message: Any, said: list[Any] = said) -> None:
            said.append(message)

        headers = {"host": "127.0.0.1", "content-type": "application/json", **about.states[state]}
        raw = [(name.encode(), (value or "").encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "query_string": b"", "headers": raw}
        await app({**scope, "client": ("192.0.2.1", 5)}, receive, send)
        assert said[0]["status"] == status
    await app.close()


async def test_in_memory_clients_need_no_credentials() -> None:
    server = Server("local", auth=KINDS["basic"].make(), required_scopes=["use"])

    @server.tool
    async def who(ctx: Any) -> str:
        return repr(ctx.auth)

    async with Client(server) as client:
        assert (await client.call_tool("who")).text == "None"


async def test_a_token_that_was_seen_expires_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = BearerAuth(secret=SECRET, audience=AUDIENCE, clock_skew=0.0)
    token = sign(claims(exp=time.time() + 10), secret_key(SECRET), "HS256")
    asking = AuthRequest("POST", "/mcp", {"authorization": f"Bearer {token}"})
    assert await provider.authenticate(asking) is await provider.authenticate(asking)
    later = time.time() + 20
    monkeypatch.setattr("greenroom.auth.bearer_tokens.time.time", lambda: later)
    with pytest.raises(Denied) as denied:
        await provider.authenticate(asking)
    assert denied.value.kind == "expired_token"


async def test_caches_for_tokens_are_bounded() -> None:
    provider = BearerAuth(secret=SECRET, audience=AUDIENCE)
    for number in range(1010):
        token = sign(claims(str(number)), secret_key(SECRET), "HS256")
        info = await provider.authenticate(AuthRequest("POST", "/mcp", {"authorization": f"Bearer {token}"}))
        assert info.subject == str(number)
    assert len(provider._verified) == 1000
    assert all(len(place) == 32 for place in provider._verified._entries)  # digests, and no token


def test_default_fetchers_reach_public_addresses_only() -> None:
    for made in (
        KeySet("https://id.example/jwks"),
        Introspection("https://id.example/i", client_id="a", client_secret="b"),
    ):
        fetch: Any = getattr(made, "_fetch", None) or getattr(made, "fetch", None)
        assert (fetch.guard.loopback, fetch.guard.private, fetch.redirects) == (False, False, 0)


async def test_a_client_and_a_host_without_a_login_are_told_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("guarded", auth=KINDS["bearer, secret"].make())
    hint = (
        r"401 .*a bearer token is required.*: the server wants a login, .* headers=\{…\} or auth=…, .* oauth = \"auto\""
    )
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        with pytest.raises(Unauthorized, match=hint):
            async with Client(url):
                pass
        async with Host({"guarded": url}) as host:
            await host.tools()
            with pytest.raises(ClientError, match=hint):
                await host.call("guarded:x")
            assert host.status()["guarded"].next_attempt is not None
        await server.stop_listening(url)
    said = "\n".join(record.message for record in caplog.records)
    assert "the server wants a login" in said
    assert "the next attempt is in" in said, "the host tries again, as its status says"
