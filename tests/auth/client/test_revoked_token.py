"""A token is revoked while many calls are in flight: each call is done once, with the next token, and the client is not limited as a guesser."""

from __future__ import annotations

import asyncio
import socket

import pytest

from greenroom import Client, Context, HttpConfig, Server, Settings
from greenroom.auth import BearerAuth, OAuth
from greenroom.auth.auth_gate import FailureLimiter
from greenroom.auth.testing import AuthorizationServer
from greenroom.transports import HttpSettings
from greenroom.transports.client.http_route import HttpRoute

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.mark.row("CT-08", "SA-09")
@pytest.mark.parametrize("strict", [False, True], ids=["as it ships", "with a guard that refuses the burst"])
async def test_each_call_of_a_burst_is_done_once_though_its_token_was_revoked(*, strict: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:  # the audience of the tokens has it, before anything listens
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    revoked: set[str] = set()
    done: list[int] = []
    async with AuthorizationServer() as idp:

        def verify(token: str) -> dict[str, str] | None:
            if token in revoked or token not in idp.issued_tokens:
                return None
            return {"sub": "ann", "aud": url, "scope": "read", "iss": idp.issuer}

        document = {"resource": url, "authorization_servers": [idp.issuer], "scopes_supported": ["read"]}
        auth = BearerAuth(verifier=verify, audience=url, resource_metadata=document)
        server = Server("calendar", auth=auth, settings=Settings(max_in_flight=300))
        if strict:
            assert server._auth_gate is not None
            server._auth_gate._per_claim = FailureLimiter(1, 1.0)

        @server.tool
        async def book(number: int, ctx: Context) -> str:
            done.append(number)
            return str(ctx.auth.subject)

        async with server.started():
            await server.listen(config=HttpConfig(port=port))
            credentials = OAuth(browser=idp.browse).credentials(url)
            settings = HttpSettings(max_connections=100, max_waiting=500)
            async with Client(HttpRoute(url, settings=settings, credentials=credentials)) as client:
                assert await client.call("book", number=-1) == "ann"
                for burst in range(1 if strict else 2):
                    revoked.update(idp.issued_tokens)
                    numbers = range(100 * burst, 100 * burst + 100)
                    assert await asyncio.gather(*(client.call("book", number=n) for n in numbers)) == ["ann"] * 100
    assert sorted(done) == list(range(-1, 100 if strict else 200))
