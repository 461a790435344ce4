"""The cost of authentication: one tool called over HTTP without authentication, and with each provider.

Requests are passed to the engine directly, so only the socket is missing, which all providers share.
"""

from __future__ import annotations

import base64
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from greenroom import HttpConfig, Server
from greenroom.auth import APIKeyAuth, BasicAuth, BearerAuth, CustomAuth, Introspection, KeySet, hash_key, hash_password
from greenroom.auth.jose import make_key, public_jwk, secret_key, sign
from greenroom.transports.client.fetch import FetchResponse

from .benchmark_types import benchmark

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from greenroom.auth.auth_info import AuthProvider
    from greenroom.transports.client.fetch import FetchFunction
    from greenroom.transports.http_engine import HttpEngine

    from .benchmark_types import Run

_SECRET = "a secret that is long enough for HMAC, and then some"  # noqa: S105 - of nothing
_AUDIENCE = "https://mcp.example/mcp"
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
_KEY = make_key("EC", kid="k")


class _RecordedResponse:
    """Receives an answer."""

    status = 0
    headers: Sequence[tuple[str, str]] = ()
    http_version = "1.1"
    around: dict[str, str] | None = None

    async def reply(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:  # noqa: ARG002
        self.status, self.headers = status, headers

    async def stream_start(self, status: int, headers: Sequence[tuple[str, str]], *, until_eof: bool = False) -> None:
        raise NotImplementedError

    async def stream_chunk(self, data: bytes) -> bool:
        raise NotImplementedError

    async def stream_end(self) -> None:
        raise NotImplementedError


def _message(method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


@asynccontextmanager
async def _entered(
    provider: AuthProvider | None, authorization: str
) -> AsyncGenerator[tuple[HttpEngine, list[tuple[str, str]]]]:
    server = Server("bench", auth=provider)

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with server.started():
        engine = server._engine(HttpConfig())  # noqa: SLF001 - as each listener makes its own
        headers = [
            ("host", "127.0.0.1:9090"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("authorization", authorization),
        ]
        response = _RecordedResponse()
        await engine.handle("POST", "/mcp", headers, _message("initialize", _HELLO), response)
        session = dict(response.headers)["mcp-session-id"]
        yield engine, [*headers, ("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")]


async def _calls(run: Run, provider: AuthProvider | None, authorization: str = "Bearer none") -> None:
    body = _message("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
    async with _entered(provider, authorization) as (engine, headers):
        note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        await engine.handle("POST", "/mcp", headers, note, _RecordedResponse())
        response = _RecordedResponse()
        with run.measured():
            for _ in range(run.count):
                await engine.handle("POST", "/mcp", headers, body, response)
        if response.status != 200:  # noqa: PLR2004
            message = f"answered with {response.status}"
            raise RuntimeError(message)


def _claims() -> dict[str, Any]:
    return {"sub": "ann", "iss": "https://id.example", "aud": _AUDIENCE, "exp": time.time() + 3600, "scope": "use"}


def _answering(said: Mapping[str, Any]) -> FetchFunction:
    async def fetch(
        url: str,
        *,
        method: str = "GET",  # noqa: ARG001 - as a fetch is called
        headers: Mapping[str, str] | None = None,  # noqa: ARG001
        body: bytes = b"",  # noqa: ARG001
    ) -> FetchResponse:
        return FetchResponse(200, {}, json.dumps(said).encode(), url)

    return fetch


@benchmark("auth, none", count=2_000)
async def auth_none(run: Run) -> None:
    """A call of a tool over HTTP, in a session, from the request's headers to the answer, without authentication."""
    await _calls(run, None)


@benchmark("auth, bearer HS256", count=2_000, floor=auth_none, target=1.15)
async def auth_hs256(run: Run) -> None:
    """The same with a token that is signed with a secret; the same token each time, as clients do."""
    token = sign(_claims(), secret_key(_SECRET), "HS256")
    await _calls(run, BearerAuth(secret=_SECRET, audience=_AUDIENCE), f"Bearer {token}")


@benchmark("auth, bearer ES256 with a key set", count=2_000, floor=auth_none)
async def auth_key_set(run: Run) -> None:
    """The same with a token that is signed with a key of its issuer's."""
    keys = KeySet("https://id.example/jwks", _answering({"keys": [public_jwk(_KEY)]}))
    provider = BearerAuth(keys=keys, algorithms=("ES256",), audience=_AUDIENCE)
    await _calls(run, provider, f"Bearer {sign(_claims(), _KEY, 'ES256')}")


@benchmark("auth, introspection, cached", count=2_000, floor=auth_none, target=1.15)
async def auth_introspection(run: Run) -> None:
    """The same with an opaque token, whose issuer was asked about it a moment ago."""
    asked = Introspection(
        "https://id.example/i",
        _answering({"active": True, **_claims()}),
        client_id="a",
        client_secret="b",  # noqa: S106
    )
    await _calls(run, BearerAuth(introspection=asked, audience=_AUDIENCE), "Bearer opaque")


@benchmark("auth, API key of 1,000, hashed", count=2_000, floor=auth_none)
async def auth_key(run: Run) -> None:
    """The same with one of a thousand keys, which are kept hashed with a pepper."""
    keys = {hash_key(f"key-{number}", "pepper"): {"subject": str(number)} for number in range(1000)}
    await _calls(run, APIKeyAuth(keys, hash_keys=True, pepper="pepper"), "ApiKey key-999")


@benchmark("auth, basic", count=2_000, floor=auth_none)
async def auth_basic(run: Run) -> None:
    """The same with a user and a password, which is hashed once, and known again after that."""
    shown = base64.b64encode(b"ann:right").decode()
    await _calls(run, BasicAuth({"ann": hash_password("right")}), f"Basic {shown}")


@benchmark("auth, custom", count=2_000, floor=auth_none)
async def auth_custom(run: Run) -> None:
    """The same with a function of one's own that looks into a dict."""
    await _calls(run, CustomAuth({"token": {"subject": "ann"}}.get), "Bearer token")
