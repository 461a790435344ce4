"""A server with an authentication provider, requested over HTTP; and, for each provider, the credentials that callers can show."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.transports.http.engine_driver import EngineDriver, RecordedResponse, parse_events

from greenroom import Context, HttpConfig, Server
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.jose import make_key, public_jwk, secret_key, sign
from greenroom.auth.jwks_and_introspection import Introspection, KeySet
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.shared_secrets import APIKeyAuth, BasicAuth, CustomAuth, hash_key, hash_password
from greenroom.transports.client.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from greenroom.auth.auth_info import AuthProvider

ISSUER, AUDIENCE = "https://id.example", "https://mcp.example/mcp"
SECRET = "a secret that is long enough for HMAC, and then some"
PEPPER = "pepper"
KEY = make_key("EC", kid="one")
STRANGERS = make_key("EC", kid="one")
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def claims(subject: str = "ann", **more: Any) -> dict[str, Any]:
    """Claims of a valid token, with changes; None removes one."""
    usual = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 86_400, "scope": "use look"}
    return {name: value for name, value in {**usual, **more}.items() if value is not None}


def bearer(token: str) -> dict[str, str | None]:
    """The header with a token."""
    return {"authorization": f"Bearer {token}"}


def basic(user: str, password: str) -> dict[str, str | None]:
    """The header with a password."""
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


class Kind(NamedTuple):
    """A provider, and the credentials that callers can show, by state."""

    make: Callable[[], AuthProvider]
    states: Mapping[str, Mapping[str, str | None]]
    challenge: str
    """The prefix of its challenges."""


def _tokens(sign_with: Callable[[dict[str, Any]], str], wrong: str) -> dict[str, Mapping[str, str | None]]:
    return {
        "none": {},
        "malformed": bearer("a b"),
        "wrong": bearer(wrong),
        "expired": bearer(sign_with(claims(exp=time.time() - 3600))),
        "wrong audience": bearer(sign_with(claims(aud="https://other.example"))),
        "no scope": bearer(sign_with(claims(scope="look"))),
        "good": bearer(sign_with(claims())),
        "foreign": bearer(sign_with(claims("bob"))),
    }


class Book:
    """Opaque tokens and their claims, for verifiers and for an introspection endpoint."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.asked = 0

    def issue(self, said: dict[str, Any]) -> str:
        token = f"opaque-{len(self.known)}"
        self.known[token] = said
        return token

    def verify(self, token: str) -> dict[str, Any] | None:
        return self.known.get(token)

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        self.asked += 1
        assert method == "POST"
        assert (headers or {})["authorization"].startswith("Basic ")
        token = body.decode().partition("token=")[2].partition("&")[0]
        said = self.known.get(token)
        answer = {"active": False} if said is None else {"active": True, **said}
        return FetchResponse(200, {}, json.dumps(answer).encode(), url)


async def fetch_keys(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> FetchResponse:
    """The issuer's JWK set."""
    return FetchResponse(200, {}, json.dumps({"keys": [public_jwk(KEY)]}).encode(), url)


def _pem() -> bytes:
    pem: bytes = KEY.inner.as_pem(private=False)
    return pem


_BOOK = Book()
_CUSTOM: dict[str, dict[str, Any]] = {
    "good": {"subject": "ann", "scopes": ["use"], "tier": "gold"},
    "foreign": {"subject": "bob", "scopes": ["use"]},
    "no-scope": {"subject": "ann", "scopes": ["look"]},
    "expired": {"subject": "ann", "scopes": ["use"], "expires_at": 1.0},
}
_KEYS: dict[str, dict[str, Any]] = {
    f"key-{name}-0123456789abcdef": {word: value for word, value in entry.items() if word != "tier"}
    for name, entry in _CUSTOM.items()
}


def _known(token: str) -> dict[str, Any] | None:
    return _CUSTOM.get(token)


_BY_KEY: dict[str, Mapping[str, str | None]] = {
    "none": {},
    "malformed": {"x-api-key": "two words"},
    "wrong": {"x-api-key": "key-unknown"},
    "expired": {"x-api-key": "key-expired-0123456789abcdef"},
    "no scope": {"x-api-key": "key-no-scope-0123456789abcdef"},
    "good": {"x-api-key": "key-good-0123456789abcdef"},
    "foreign": {"authorization": "ApiKey key-foreign-0123456789abcdef"},
}


def _by(key: Any, algorithm: str) -> Callable[[dict[str, Any]], str]:
    return lambda said: sign(said, key, algorithm)


_SECRET = secret_key(SECRET)
_TO_BEARER = 'Bearer realm="mcp"'

KINDS: dict[str, Kind] = {
    "bearer, secret": Kind(
        lambda: BearerAuth(secret=SECRET, issuer=ISSUER, audience=AUDIENCE),
        _tokens(_by(_SECRET, "HS256"), sign(claims(), secret_key("another secret that is long enough, too"), "HS256")),
        _TO_BEARER,
    ),
    "bearer, key": Kind(
        lambda: BearerAuth(key=_pem(), algorithms=("ES256",), issuer=ISSUER, audience=AUDIENCE),
        _tokens(_by(KEY, "ES256"), sign(claims(), STRANGERS, "ES256")),
        _TO_BEARER,
    ),
    "bearer, key set": Kind(
        lambda: BearerAuth(
            keys=KeySet("https://id.example/jwks", fetch_keys),
            algorithms=("ES256",),
            issuer=ISSUER,
            audience=AUDIENCE,
        ),
        _tokens(_by(KEY, "ES256"), sign(claims(), STRANGERS, "ES256")),
        _TO_BEARER,
    ),
    "bearer, verifier": Kind(
        lambda: BearerAuth(verifier=_BOOK.verify, issuer=ISSUER, audience=AUDIENCE),
        _tokens(_BOOK.issue, "unknown-token"),
        _TO_BEARER,
    ),
    "bearer, introspection": Kind(
        lambda: BearerAuth(
            introspection=Introspection(
                "https://id.example/introspect", _BOOK.fetch, client_id="me", client_secret="s"
            ),
            issuer=ISSUER,
            audience=AUDIENCE,
        ),
        _tokens(_BOOK.issue, "unknown-token"),
        _TO_BEARER,
    ),
    "OAuth resource": Kind(
        lambda: OAuthResource(
            resource=AUDIENCE,
            authorization_servers=[ISSUER],
            keys=KeySet("https://id.example/jwks", fetch_keys),
        ),
        _tokens(_by(KEY, "ES256"), sign(claims(), STRANGERS, "ES256")),
        "Bearer ",
    ),
    "API key": Kind(lambda: APIKeyAuth(_KEYS), _BY_KEY, 'ApiKey header="x-api-key"'),
    "API key, hashed": Kind(
        lambda: APIKeyAuth(
            {hash_key(key, PEPPER): entry for key, entry in _KEYS.items()}, hash_keys=True, pepper=PEPPER
        ),
        _BY_KEY,
        'ApiKey header="x-api-key"',
    ),
    "basic": Kind(
        lambda: BasicAuth(
            {
                "ann": {"password": hash_password("right", iterations=1), "scopes": ["use"]},
                "bob": {"password": hash_password("other", iterations=1), "scopes": "use"},
                "cat": {"password": hash_password("right", iterations=1), "scopes": ["look"]},
                "dan": {"password": hash_password("right", iterations=1), "scopes": ["use"], "expires_at": 1},
            }
        ),
        {
            "none": {},
            "malformed": {"authorization": "Basic %%%"},
            "wrong": basic("ann", "wrong"),
            "expired": basic("dan", "right"),
            "no scope": basic("cat", "right"),
            "good": basic("ann", "right"),
            "foreign": basic("bob", "other"),
        },
        'Basic realm="mcp", charset="UTF-8"',
    ),
    "custom": Kind(
        lambda: CustomAuth(_known),
        {
            "none": {},
            "malformed": bearer("a b"),
            "wrong": bearer("unknown"),
            "expired": bearer("expired"),
            "no scope": bearer("no-scope"),
            "good": bearer("good"),
            "foreign": {"x-api-key": "foreign"},
        },
        _TO_BEARER,
    ),
}


def call(tool: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
    """A `tools/call` request."""
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


class Reception:
    """A running server, with helpers for requests."""

    def __init__(self, server: Server, **config: Any) -> None:
        """`config` is the listener's."""
        self.server = server
        self.desk = EngineDriver()
        self.desk.engine = server._engine(HttpConfig(**config))  # as each listener makes its own
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(
        self, verb: str, shown: Mapping[str, str | None], message: Any = None, path: str = "/mcp", **more: str
    ) -> RecordedResponse:
        """Send a request; returns the response, or the beginning of its stream."""
        paper = RecordedResponse()
        body = b"" if message is None else json.dumps(message).encode()
        headers = {"content-type": None if message is None else "application/json", **shown}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        task = asyncio.create_task(self.desk.begin(paper, verb, path, headers, body))
        self._tasks.append(task)
        while not paper.said and not task.done():
            paper.news.clear()
            await paper.news.wait()
        if paper.said == ["reply"]:
            await task
        return paper

    async def enter(self, shown: Mapping[str, str | None]) -> str:
        """Open a session; returns its id."""
        paper = await self.ask("POST", shown, HELLO)
        assert paper.status == 200, (paper.status, paper.body)
        session = paper.headers["mcp-session-id"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.ask("POST", shown, note, mcp_session_id=session)).status == 202
        return session

    async def open_old(self, shown: Mapping[str, str | None]) -> tuple[RecordedResponse, str]:
        """Open an SSE stream of the old transport; returns the URL for posts."""
        paper = await self.ask("GET", shown, path="/sse")
        assert paper.status == 200
        return paper, "/" + parse_events(await paper.until(1))[0]["data"]

    async def close(self) -> None:
        """Close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def reception(provider: AuthProvider | None, *scopes: str, **config: Any) -> AsyncGenerator[Reception]:
    """A server with this provider for the duration of the block."""
    server = Server("reception", auth=provider, required_scopes=scopes)

    @server.tool
    async def whoami(ctx: Context) -> str:
        return ctx.auth.subject if ctx.auth else "no caller"

    @server.tool(scopes=["deploy"])
    async def deploy(ctx: Context) -> str:
        return f"deployed for {ctx.auth.subject}"

    async with server.started():
        desk = Reception(server, **config)
        try:
            yield desk
        finally:
            await desk.close()
