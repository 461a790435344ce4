"""The authorization server's book: the users, the known programs, and what was given to each. All in memory, and in plain sight."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlsplit

from greenroom.auth.auth_info import text, texts
from greenroom.auth.credential_headers import base64url
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.jsonrpc import decode, encode
from greenroom.transports.client.http_address import is_local

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.auth.jose import JsonWebKey

Method: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
METHODS: tuple[Method, ...] = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")


@dataclass
class RegisteredClient:
    """A program that the server knows."""

    id: str
    secret: str | None = field(default=None, repr=False)
    redirect_uris: tuple[str, ...] = ()
    method: Method = "none"
    """How it shows itself at the token endpoint."""
    keys: tuple[JsonWebKey, ...] = ()
    """What it signs its assertions with."""
    grants: tuple[str, ...] | None = None
    """What it may ask for; None is anything."""
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What it said of itself when it was registered."""

    def allows_redirect_to(self, url: str) -> bool:
        """Whether users may be sent there: exactly a known address, or one of this machine's at any port (RFC 8252)."""
        return any(url == known or _same_but_for_port(url, known) for known in self.redirect_uris)


class ConsentRequest(NamedTuple):
    """What a user on the consent page is asked to grant."""

    client: RegisteredClient
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    params: Mapping[str, str]


class Approve(NamedTuple):
    """Yes, as this user; with fewer scopes, if they are named."""

    user: str
    scopes: tuple[str, ...] | None = None


class Refuse(NamedTuple):
    """No: the redirect says why."""

    error: str = "access_denied"
    description: str = ""


Decision: TypeAlias = "Approve | Refuse | None"
"""None is a user who does nothing: there is a page, and no redirect."""


@dataclass
class Grant:
    """What a user, or a program for itself, has given."""

    client_id: str
    user: str
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    family: str = field(default_factory=lambda: secrets.token_hex(8))
    """Its tokens are taken back together."""


@dataclass
class AuthorizationCode:
    """A code, until it is redeemed."""

    grant: Grant
    redirect_uri: str
    challenge: str | None
    expires: float
    used: bool = False

    def matches_verifier(self, verifier: str | None) -> bool:
        """Whether the client that redeems it is the one that asked for it."""
        if self.challenge is None:
            return verifier is None
        digest = base64url(hashlib.sha256((verifier or "").encode()).digest())
        return hmac.compare_digest(digest, self.challenge)


@dataclass
class IssuedRefreshToken:
    """A refresh token."""

    grant: Grant
    used: bool = False


@dataclass
class DeviceAuthorization:
    """A machine without a browser that waits for its user."""

    code: str
    user_code: str
    client_id: str
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    expires: float
    decision: Decision = None
    polled_at: float | None = None


def client_from_metadata(said: Any, id: str, secret: str | None, keys: tuple[JsonWebKey, ...]) -> RegisteredClient:
    """A program that registers itself, or that a document of its own describes. Raises `OAuthError`."""
    redirects = texts(said.get("redirect_uris"))
    grants = texts(said.get("grant_types")) or ("authorization_code",)
    if "authorization_code" in grants and not redirects:
        raise OAuthError("invalid_redirect_uri", "redirect_uris is empty")
    for each in redirects:
        parts = urlsplit(each)
        if parts.fragment or not parts.scheme or parts.scheme in ("javascript", "data", "file"):
            raise OAuthError("invalid_redirect_uri", "nobody is sent there")
        if parts.scheme == "http" and not is_local(parts.hostname or ""):
            raise OAuthError("invalid_redirect_uri", "http is for this machine alone")
    method = said.get("token_endpoint_auth_method", "client_secret_basic" if secret else "none")
    if method not in METHODS:
        raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
    kept = secret if method in ("client_secret_basic", "client_secret_post") else None
    return RegisteredClient(id, kept, redirects, method, keys, grants, text(said.get("client_name")) or "", said)


def _same_but_for_port(url: str, known: str) -> bool:
    one, other = urlsplit(url), urlsplit(known)
    return (
        one.scheme == other.scheme == "http"
        and is_local(one.hostname or "")
        and (one.hostname, one.path, one.query, one.fragment) == (other.hostname, other.path, other.query, "")
    )


# --- What is asked of the authorization server, and what it says: requests, answers, and the errors of OAuth. Pure.


@dataclass(frozen=True)
class AuthServerRequest:
    """One request. Names of headers are lower-cased."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> AuthServerRequest:
        """From a URL, or a path with its query."""
        parts = urlsplit(url)
        return cls(method, parts.path or "/", parts.query, {name.lower(): each for name, each in headers.items()}, body)

    @property
    def params(self) -> dict[str, str]:
        """The query's; of what came twice, the first."""
        return {name: values[0] for name, values in parse_qs(self.query, keep_blank_values=True).items()}

    @property
    def form(self) -> dict[str, str]:
        """The body's, in the same way."""
        return {name: values[0] for name, values in self.forms.items()}

    @property
    def forms(self) -> dict[str, list[str]]:
        """All of the body's."""
        return parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True)

    def json(self) -> Any:
        """The body; None for what is no JSON."""
        try:
            return decode(self.body)
        except ProtocolError:
            return None


@dataclass(frozen=True)
class AuthServerResponse:
    """An answer, word by word."""

    status: int = 200
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),)


class OAuthError(Exception):
    """A no in the words of OAuth."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        """`error` is one of the registered codes."""
        super().__init__(error, description)
        self.error = error
        self.description = description
        self.status = status

    def answer(self) -> AuthServerResponse:
        """As a token endpoint says it."""
        said = {"error": self.error} | ({"error_description": self.description} if self.description else {})
        more = (("www-authenticate", 'Basic realm="oauth"'),) if self.status == 401 else ()  # noqa: PLR2004 - what it means
        return json_response(said, self.status, more)


def json_response(value: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> AuthServerResponse:
    """An answer in JSON, for this one reader."""
    shared = (("content-type", "application/json"), ("cache-control", "no-store"), ("access-control-allow-origin", "*"))
    return AuthServerResponse(status, encode(value), (*shared, *headers))


def text_response(text: str, status: int = 200) -> AuthServerResponse:
    """An answer for people."""
    return AuthServerResponse(
        status, text.encode(), (("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store"))
    )


def redirect_params(location: str) -> dict[str, str]:
    """What a redirect brings: the params of its query."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


# --- What the authorization server does wrong: in what it says, and in how it answers at all.

Signature: TypeAlias = Literal["good", "none", "confused", "foreign", "broken"]


@dataclass
class Faults:
    """What is said wrong, from now on. In a mapping, None takes a word out."""

    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the metadata: `{"issuer": "https://evil.example"}`, `{"token_endpoint": "http://169.254.169.254/"}`."""
    redirect: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """In the redirect: `{"iss": None}`, `{"iss": "https://evil.example"}`, `{"state": "another"}`."""
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In what the token endpoint says: `{"token_type": "mac"}`, `{"expires_in": -5}`."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In access tokens: `{"aud": "https://other.example"}`, `{"exp": 1}`, `{"iss": None}`."""
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the header of tokens: `{"kid": "../../dev/null"}`, `{"jku": "https://evil.example/keys"}`."""
    signature: Signature = "good"
    """How tokens are signed: not at all (`none`); by HS256 with the public key (`confused`); with a key that is not published (`foreign`);
    or with a bit turned (`broken`)."""
    replayed_codes: bool = False
    """Whether a code is good for more than one token."""
    reused_refresh: bool = False
    """Whether a refresh token is, although another was given for it."""
    any_verifier: bool = False
    """Whether a code is redeemed without the proof of who asked for it."""


@dataclass(frozen=True)
class NoResponse:
    """No answer, ever."""


@dataclass(frozen=True)
class TruncatedResponse:
    """Half of an answer, and then the connection is closed."""


@dataclass(frozen=True)
class EndlessResponse:
    """An answer that does not end for a long while."""

    size: int = 1 << 30


@dataclass(frozen=True)
class RedirectResponse:
    """Somewhere else."""

    url: str
    status: int = 302


PlannedResponse: TypeAlias = "NoResponse | TruncatedResponse | EndlessResponse | RedirectResponse | AuthServerResponse"
"""How one place answers."""


def with_fault(said: Mapping[str, Any], fault: Mapping[str, Any]) -> dict[str, Any]:
    """What is said, with the fault in it."""
    return {name: value for name, value in {**said, **fault}.items() if name not in fault or value is not None}
