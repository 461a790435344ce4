"""The fake authorization server: one issuer with its clients, users, tokens and faults, over HTTP on 127.0.0.1 or in memory through `fetch`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import urlsplit

from greenroom.auth.credential_headers import base64url
from greenroom.auth.errors import SignInError
from greenroom.auth.jose import make_key, public_jwk, sign
from greenroom.auth.jwks_and_introspection import KeySet
from greenroom.supervision.acceptor import serve, stream_protocol, tcp_sockets
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, ResponseTooLarge
from greenroom.transports.client.fetch import SIZE, Fetcher, FetchResponse
from greenroom.transports.client.http_address import Guard

from .fake_auth_endpoints import FakeAuthEndpoints
from .fake_auth_proofs import PROOF_ALGORITHMS
from .fake_auth_records import (
    METHODS,
    Approve,
    AuthServerRequest,
    AuthServerResponse,
    EndlessResponse,
    Faults,
    Grant,
    NoResponse,
    OAuthError,
    RedirectResponse,
    RegisteredClient,
    TruncatedResponse,
    json_response,
    text_response,
    with_fault,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from greenroom.auth.jose import JsonWebKey
    from greenroom.supervision.acceptor import Acceptor
    from greenroom.transports.client.fetch import FetchFunction

    from .fake_auth_records import (
        AuthorizationCode,
        ConsentRequest,
        Decision,
        DeviceAuthorization,
        IssuedRefreshToken,
        Method,
        PlannedResponse,
    )

log: Final = logging.getLogger("greenroom.auth.testing")
MOST_REQUESTS = 10_000
LARGEST_REQUEST: Final = 1 << 20
_FILLER: Final = b" " * (64 * 1024)


class AuthorizationServer:
    """One issuer. A test may read and change its public attributes at any time."""

    def __init__(  # noqa: PLR0913 - all that a test may configure
        self,
        *,
        path: str = "",
        issuer: str | None = None,
        users: Sequence[str] = ("ann",),
        scopes: Sequence[str] = ("read", "write"),
        opaque: bool = False,
        family: Literal["RSA", "EC", "OKP"] = "EC",
        lifetime: float = 3600.0,
        registration: bool = True,
        dpop: Literal["accept", "require"] | None = None,
        clock: Callable[[], float] = time.time,
        documents: FetchFunction | None = None,
    ) -> None:
        """`path` is the path of the issuer; `issuer` is the issuer's URL if the server is used in memory only.

        `opaque` issues random tokens instead of JWTs. `dpop` binds tokens to the keys of proofs (RFC 9449); without it, proofs are ignored. `documents` fetches client metadata documents; None: from this machine only.

        """
        self.path = path.rstrip("/")
        self._issuer = issuer
        self.users = list(users)
        self.scopes = tuple(scopes)
        self.opaque = opaque
        self.keys = SigningKeys(family)
        self.lifetime = lifetime
        self.registration = registration
        self.dpop = dpop
        self.dpop_nonce: str | None = None
        """The nonce that proofs need from now on, and that each token response names; None: proofs need none."""
        self.clock = clock
        self.faults = Faults()
        """The faults in its responses."""
        self.consent: Callable[[ConsentRequest], Decision] = lambda _: Approve(self.users[0])
        """The decision of the user on the consent page."""
        self.audience: str | None = None
        """The audience of tokens that were requested without a resource; None: no audience."""
        self.device_interval = 1
        self.device_lifetime = 600.0
        self.rotates = True
        """Whether refresh tokens are rotated."""
        self.clients: dict[str, RegisteredClient] = {}
        self.client_documents: dict[str, Any] = {}
        """Client metadata documents by URL, which are used instead of fetching."""
        self.trusted: dict[str, AuthorizationServer] = {}
        """Other issuers whose assertions are accepted, by issuer."""
        self.requests: deque[AuthServerRequest] = deque(maxlen=MOST_REQUESTS)
        """All requests, in order."""
        self.codes: dict[str, AuthorizationCode] = {}
        self.refresh_tokens: dict[str, IssuedRefreshToken] = {}
        self.devices: dict[str, DeviceAuthorization] = {}
        self.issued_tokens: dict[str, tuple[Grant | None, dict[str, Any]]] = {}
        """Access tokens with their grants and claims."""
        self.assertions: set[str] = set()
        self.documents: FetchFunction = Fetcher(Guard(loopback=True)) if documents is None else documents
        self._plans: dict[str, Iterator[PlannedResponse]] = {}
        self._acceptor: Acceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._endpoints = FakeAuthEndpoints(self)

    def __repr__(self) -> str:
        return f"AuthorizationServer({self._issuer or 'not started'})"

    # --- listening

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Self:
        """Listen on a port; 0 is any free one."""
        sockets = await tcp_sockets(host, port)
        self._acceptor = serve(stream_protocol(self._serve, LARGEST_REQUEST), sockets, log)
        self._issuer = f"http://{host}:{sockets[0].getsockname()[1]}{self.path}"
        return self

    async def stop(self) -> None:
        """Close all connections. The records are kept."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is None:
            return
        acceptor.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def issuer(self) -> str:
        """The issuer's URL. Raises `RuntimeError` before the server is started."""
        if self._issuer is None:
            raise RuntimeError("an authorization server has an issuer after start(), or with issuer=…")
        return self._issuer

    def url(self, place: str) -> str:
        """The URL of an endpoint: `authorize`, `token`, `register`, `introspect`, `revoke`, `device_authorization`, `device`, `jwks`."""
        return f"{self.issuer}/{place}"

    # --- clients

    def add_client(
        self,
        id: str,
        *,
        secret: str | None = None,
        redirect_uris: Sequence[str] = (),
        method: Method | None = None,
        keys: Sequence[JsonWebKey] = (),
        grants: Sequence[str] | None = None,
    ) -> RegisteredClient:
        """Register a client."""
        how: Method = "private_key_jwt" if keys else "client_secret_basic" if secret else "none"
        allowed = None if grants is None else tuple(grants)
        client = RegisteredClient(id, secret, tuple(redirect_uris), method or how, tuple(keys), allowed)
        self.clients[id] = client
        return client

    def trust(self, other: AuthorizationServer) -> None:
        """Accept assertions of the other server about its users (RFC 7523)."""
        self.trusted[other.issuer] = other

    # --- tokens and keys

    def token(
        self,
        *,
        resource: str | Sequence[str] = (),
        scope: str = "",
        user: str | None = None,
        client_id: str = "test",
        lifetime: float | None = None,
        **claims: Any,
    ) -> str:
        """Issue an access token without a request. `claims` are added; None removes one."""
        about = (resource,) if isinstance(resource, str) else tuple(resource)
        grant = Grant(client_id, user or self.users[0], tuple(scope.split()), about)
        return self._endpoints.issue_access_token(grant, lifetime, claims)

    def rotate_keys(self, *, keep: bool = True) -> None:
        """Sign with a new key; without `keep`, the old keys are not published any more."""
        self.keys.rotate(keep=keep)

    def key_set(self) -> KeySet:
        """Its keys, for a resource server on this machine. Unknown key ids are fetched again after 0.1 s."""
        return KeySet(self.url("jwks"), Fetcher(Guard(loopback=True)), pause=0.1)

    # --- users

    async def browse(self, url: str) -> str:
        """Act as the user's browser: open the URL, decide by `consent`, and return the redirect's location. Raises `SignInError`."""
        answer = await self.fetch(url)
        location = answer.headers.get("location")
        if location is None:
            raise SignInError("authorization", f"no redirect, but status {answer.status}: {answer.body.decode()}")
        return location

    def decide(self, user_code: str, decision: Decision | None = None) -> None:
        """Approve the device authorization with this user code, or decide otherwise. Raises `KeyError` for an unknown code."""
        device = next((each for each in self.devices.values() if each.user_code == user_code), None)
        if device is None:
            raise KeyError(user_code)
        device.decision = Approve(self.users[0]) if decision is None else decision

    def revoke_all(self) -> None:
        """Revoke all tokens."""
        self.issued_tokens.clear()
        self.refresh_tokens.clear()

    # --- requests

    def plan(self, place: str, plan: PlannedResponse, times: int | None = None) -> None:
        """Set the response of a path such as `/token` or `/.well-known/oauth-authorization-server`, for so many requests or for all."""
        if isinstance(plan, RedirectResponse):
            plan = AuthServerResponse(plan.status, headers=[("location", plan.url)])
        where = place if place.startswith("/.well-known") else f"{self.path}{place}"
        self._plans[where] = repeat(plan) if times is None else repeat(plan, times)

    def unplan(self) -> None:
        """Remove all planned responses."""
        self._plans.clear()

    async def handle(self, request: AuthServerRequest) -> PlannedResponse:
        """Respond to a request."""
        self.requests.append(request)
        planned = next(self._plans.get(request.path, iter(())), None)
        if planned is not None:
            return planned
        if request.method == "OPTIONS":
            allowed = (("access-control-allow-origin", "*"), ("access-control-allow-headers", "*"))
            return AuthServerResponse(204, headers=(*allowed, ("access-control-allow-methods", "GET, POST")))
        try:
            return await self._route(request)
        except OAuthError as error:
            return error.answer()

    async def _route(self, request: AuthServerRequest) -> AuthServerResponse:
        if request.path in self._metadata_paths():
            return json_response(self.metadata())
        if (request.method, request.path) == ("GET", f"{self.path}/jwks"):
            return json_response(self.keys.document())
        route = self._endpoints.routes.get((request.method, request.path.removeprefix(self.path)))
        return (
            await route(request)
            if route is not None and request.path.startswith(self.path)
            else text_response("Not Found", 404)
        )

    def _metadata_paths(self) -> set[str]:
        name = "/.well-known/oauth-authorization-server"
        other = "/.well-known/openid-configuration"
        return {f"{name}{self.path}", f"{other}{self.path}", f"{self.path}{other}"}

    def metadata(self) -> dict[str, Any]:
        """The metadata (RFC 8414, OpenID Connect)."""
        fields: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": self.url("authorize"),
            "token_endpoint": self.url("token"),
            "jwks_uri": self.url("jwks"),
            "introspection_endpoint": self.url("introspect"),
            "revocation_endpoint": self.url("revoke"),
            "device_authorization_endpoint": self.url("device_authorization"),
            "scopes_supported": [*self.scopes, "openid", "offline_access"],
            "response_types_supported": ["code"],
            "grant_types_supported": list(self._endpoints.grants),
            "token_endpoint_auth_methods_supported": list(METHODS),
            "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256", "EdDSA"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.keys.algorithm],
        }
        if self.dpop is not None:
            fields["dpop_signing_alg_values_supported"] = list(PROOF_ALGORITHMS)
        if self.registration:
            fields["registration_endpoint"] = self.url("register")
        return with_fault(fields, self.faults.metadata)

    # --- in memory

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        """Send a request in memory, as a `FetchFunction`. Raises `TransportError` for another server's URL, and for faults of the transport."""
        if urlsplit(url)[:2] != urlsplit(self.issuer)[:2]:
            raise ConnectFailed(f"{url.partition('?')[0]}: no server is there")
        answer = await self.handle(AuthServerRequest.of(method, url, headers or {}, body))
        if isinstance(answer, NoResponse):
            await asyncio.Event().wait()
        if isinstance(answer, TruncatedResponse):
            raise ConnectionLost(f"{self.issuer}: the connection was closed before the response was complete")
        if isinstance(answer, EndlessResponse):
            raise ResponseTooLarge(answer.size, SIZE, f"the response of {self.issuer}")
        assert isinstance(answer, AuthServerResponse)
        return FetchResponse(answer.status, dict(answer.headers), answer.body, url)

    # --- HTTP/1.1 on 127.0.0.1: one request per connection, then the response or the planned fault. One task per connection, which ends with it or with the server.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            request = await _read_request(reader)
            await _write_response(writer, request, await self.handle(request))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the peer is gone, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # stop() cancelled this task, and nothing else awaits it
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


async def _read_request(reader: asyncio.StreamReader) -> AuthServerRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    body = await reader.readexactly(length) if 0 < length <= LARGEST_REQUEST else b""
    return AuthServerRequest.of(method, target, headers, body)


async def _write_response(writer: asyncio.StreamWriter, request: AuthServerRequest, answer: PlannedResponse) -> None:
    if isinstance(answer, NoResponse):
        await asyncio.Event().wait()
    elif isinstance(answer, TruncatedResponse):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
        await writer.drain()
    elif isinstance(answer, EndlessResponse):
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {answer.size}\r\n\r\n".encode()
        )
        left = answer.size
        while left > 0:
            writer.write(_FILLER[:left])
            await writer.drain()
            left -= len(_FILLER)
    elif isinstance(answer, AuthServerResponse):
        lines = [f"HTTP/1.1 {answer.status} OK", *(f"{name}: {value}" for name, value in answer.headers)]
        lines += [f"content-length: {len(answer.body)}", "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + (b"" if request.method == "HEAD" else answer.body))
        await writer.drain()


# --- The keys and tokens of the server, signed correctly or in one of the ways that no resource server may accept.

if TYPE_CHECKING:
    Family = Literal["RSA", "EC", "OKP"]

FAMILY_ALGORITHMS: dict[str, str] = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}


class SigningKeys:
    """The current signing key, and the previous ones that are still published."""

    def __init__(self, family: Family) -> None:
        """Generates the first key."""
        self._family: Family = family
        self.all = [self._new()]

    @property
    def current(self) -> JsonWebKey:
        """The key that signs."""
        return self.all[-1]

    @property
    def algorithm(self) -> str:
        """The algorithm of the current key."""
        return FAMILY_ALGORITHMS[self._family]

    def rotate(self, *, keep: bool = True) -> JsonWebKey:
        """Replace the current key; without `keep`, the old ones are no longer published."""
        self.all = [*(self.all if keep else ()), self._new()]
        return self.current

    def document(self) -> dict[str, Any]:
        """The public keys as a JWK set."""
        return {"keys": [public_jwk(key) for key in self.all]}

    def sign(self, claims: Mapping[str, Any], faults: Faults, header: Mapping[str, Any] | None = None) -> str:
        """Sign a token, with the fault applied."""
        kind = faults.signature
        extra = {**(header or {}), **faults.header}
        if kind == "none":
            return f"{_encode_part(with_fault({'alg': 'none', 'typ': 'JWT'}, extra))}.{_encode_part(claims)}."
        if kind == "confused":
            public = self.current.inner.as_pem(private=False)
            begun = (
                f"{_encode_part(with_fault({'alg': 'HS256', 'kid': self.current.kid}, extra))}.{_encode_part(claims)}"
            )
            return f"{begun}.{base64url(hmac.new(public, begun.encode(), hashlib.sha256).digest())}"
        key = self._new(self.current.kid) if kind == "foreign" else self.current
        token = sign(claims, key, self.algorithm, extra)
        if kind == "broken":
            begun, _, signature = token.rpartition(".")
            token = f"{begun}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
        return token

    def _new(self, kid: str | None = None) -> JsonWebKey:
        return make_key(self._family, kid=kid or secrets.token_hex(4))


def _encode_part(value: Mapping[str, Any]) -> str:
    return base64url(json.dumps(value).encode())
