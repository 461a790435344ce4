"""Records of the fake authorization server: clients, grants, codes and tokens; its requests and responses; its faults."""

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
    """A client that is registered at the server."""

    id: str
    secret: str | None = field(default=None, repr=False)
    redirect_uris: tuple[str, ...] = ()
    method: Method = "none"
    """Its client authentication method."""
    keys: tuple[JsonWebKey, ...] = ()
    """The keys of its assertions."""
    grants: tuple[str, ...] | None = None
    """The grant types that it may use; None is any."""
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The metadata that it registered with."""

    def allows_redirect_to(self, url: str) -> bool:
        """Whether the redirect URI is registered, exactly, or as a loopback URI with any port (RFC 8252)."""
        return any(url == known or _same_but_for_port(url, known) for known in self.redirect_uris)


class ConsentRequest(NamedTuple):
    """A request for consent, as the user sees it."""

    client: RegisteredClient
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    params: Mapping[str, str]


class Approve(NamedTuple):
    """The user grants the request; with fewer scopes, if they are named."""

    user: str
    scopes: tuple[str, ...] | None = None


class Refuse(NamedTuple):
    """The user denies the request: the redirect contains this error."""

    error: str = "access_denied"
    description: str = ""


Decision: TypeAlias = "Approve | Refuse | None"
"""None is a user who does not answer: the page is shown, and no redirect follows."""


@dataclass
class Grant:
    """An authorization grant, of a user or of a client for itself."""

    client_id: str
    user: str
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    family: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tokens of one family are revoked together."""
    jkt: str | None = None
    """The thumbprint of the key that its tokens are bound to (DPoP)."""


@dataclass
class AuthorizationCode:
    """An authorization code that was issued."""

    grant: Grant
    redirect_uri: str
    challenge: str | None
    expires: float
    used: bool = False

    def matches_verifier(self, verifier: str | None) -> bool:
        """Whether the PKCE verifier matches the challenge."""
        if self.challenge is None:
            return verifier is None
        digest = base64url(hashlib.sha256((verifier or "").encode()).digest())
        return hmac.compare_digest(digest, self.challenge)


@dataclass
class IssuedRefreshToken:
    """A refresh token that was issued."""

    grant: Grant
    used: bool = False


@dataclass
class DeviceAuthorization:
    """A device authorization that waits for its user."""

    code: str
    user_code: str
    client_id: str
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    expires: float
    decision: Decision = None
    polled_at: float | None = None


def client_from_metadata(fields: Any, id: str, secret: str | None, keys: tuple[JsonWebKey, ...]) -> RegisteredClient:
    """A client from its registration request or its metadata document. Raises `OAuthError`."""
    redirects = texts(fields.get("redirect_uris"))
    grants = texts(fields.get("grant_types")) or ("authorization_code",)
    if "authorization_code" in grants and not redirects:
        raise OAuthError("invalid_redirect_uri", "redirect_uris is empty")
    for each in redirects:
        parts = urlsplit(each)
        if parts.fragment or not parts.scheme or parts.scheme in ("javascript", "data", "file"):
            raise OAuthError(
                "invalid_redirect_uri",
                "redirect_uris must be absolute, without a fragment, and not of the scheme javascript, data or file",
            )
        if parts.scheme == "http" and not is_local(parts.hostname or ""):
            raise OAuthError("invalid_redirect_uri", "http is allowed for loopback addresses only")
    method = fields.get("token_endpoint_auth_method", "client_secret_basic" if secret else "none")
    if method not in METHODS:
        raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(METHODS)}")
    kept = secret if method in ("client_secret_basic", "client_secret_post") else None
    return RegisteredClient(id, kept, redirects, method, keys, grants, text(fields.get("client_name")) or "", fields)


def _same_but_for_port(url: str, known: str) -> bool:
    one, other = urlsplit(url), urlsplit(known)
    return (
        one.scheme == other.scheme == "http"
        and is_local(one.hostname or "")
        and (one.hostname, one.path, one.query, one.fragment) == (other.hostname, other.path, other.query, "")
    )


# --- Requests, responses and OAuth errors. Pure.


@dataclass(frozen=True)
class AuthServerRequest:
    """A request. Header names are lower-cased."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)
    jkt: str | None = None
    """The thumbprint of the key of its proof, which was verified."""

    @classmethod
    def of(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> AuthServerRequest:
        """A request for a URL, or for a path with its query."""
        parts = urlsplit(url)
        return cls(method, parts.path or "/", parts.query, {name.lower(): each for name, each in headers.items()}, body)

    @property
    def params(self) -> dict[str, str]:
        """The parameters of the query; the first of repeated ones."""
        return {name: values[0] for name, values in parse_qs(self.query, keep_blank_values=True).items()}

    @property
    def form(self) -> dict[str, str]:
        """The parameters of the form; the first of repeated ones."""
        return {name: values[0] for name, values in self.forms.items()}

    @property
    def forms(self) -> dict[str, list[str]]:
        """All values of the form."""
        return parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True)

    def json(self) -> Any:
        """The JSON body; None for anything else."""
        try:
            return decode(self.body)
        except ProtocolError:
            return None


@dataclass(frozen=True)
class AuthServerResponse:
    """A response, sent as it is."""

    status: int = 200
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),)


class OAuthError(Exception):
    """An error response of OAuth."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        """`error` is a registered error code."""
        super().__init__(error, description)
        self.error = error
        self.description = description
        self.status = status

    def answer(self) -> AuthServerResponse:
        """The response of a token endpoint for this error."""
        fields = {"error": self.error} | ({"error_description": self.description} if self.description else {})
        more = (("www-authenticate", 'Basic realm="oauth"'),) if self.status == 401 else ()  # noqa: PLR2004 - 401 needs a challenge
        return json_response(fields, self.status, more)


def json_response(value: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> AuthServerResponse:
    """A JSON response that must not be cached."""
    shared = (("content-type", "application/json"), ("cache-control", "no-store"), ("access-control-allow-origin", "*"))
    return AuthServerResponse(status, encode(value), (*shared, *headers))


def text_response(text: str, status: int = 200) -> AuthServerResponse:
    """A plain-text page."""
    return AuthServerResponse(
        status, text.encode(), (("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store"))
    )


def redirect_params(location: str) -> dict[str, str]:
    """The parameters in the query of a redirect."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


# --- Faults: wrong contents of responses, and responses that do not come as they should.

Signature: TypeAlias = Literal["good", "none", "confused", "foreign", "broken"]


@dataclass
class Faults:
    """Faults in what the server sends from now on. In a mapping, the value None removes a field."""

    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the metadata, e.g. `{"issuer": "https://evil.example"}` or `{"token_endpoint": "http://169.254.169.254/"}`."""
    redirect: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """In the redirect, e.g. `{"iss": None}`, `{"iss": "https://evil.example"}` or `{"state": "another"}`."""
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the token response, e.g. `{"token_type": "mac"}` or `{"expires_in": -5}`."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In access tokens, e.g. `{"aud": "https://other.example"}`, `{"exp": 1}` or `{"iss": None}`."""
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the header of tokens, e.g. `{"kid": "../../dev/null"}` or `{"jku": "https://evil.example/keys"}`."""
    signature: Signature = "good"
    """How tokens are signed: not at all (`none`), by HS256 with the public key (`confused`), with an unpublished key (`foreign`),
    or with one bit flipped (`broken`).
    """
    replayed_codes: bool = False
    """Whether a code can be redeemed more than once."""
    reused_refresh: bool = False
    """Whether a rotated refresh token can be used again."""
    any_verifier: bool = False
    """Whether a code is redeemed without a matching PKCE verifier."""


@dataclass(frozen=True)
class NoResponse:
    """No response at all."""


@dataclass(frozen=True)
class TruncatedResponse:
    """The first half of a response, then the connection is closed."""


@dataclass(frozen=True)
class EndlessResponse:
    """A response of `size` bytes."""

    size: int = 1 << 30


@dataclass(frozen=True)
class RedirectResponse:
    """A redirect to another URL."""

    url: str
    status: int = 302


PlannedResponse: TypeAlias = "NoResponse | TruncatedResponse | EndlessResponse | RedirectResponse | AuthServerResponse"
"""How one path responds."""


def with_fault(fields: Mapping[str, Any], fault: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the fault applied."""
    return {name: value for name, value in {**fields, **fault}.items() if name not in fault or value is not None}
