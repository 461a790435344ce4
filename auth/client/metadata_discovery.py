"""Metadata discovery: from a server and its 401 to the authorization server that issues tokens for it (RFC 9728, RFC 8414).

A server without metadata is treated as one of revision 2025-03-26, whose authorization server is at its own root. The result is not cached here; the caller
compares it with the previous one, since the authorization server of a resource can change.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from greenroom.auth.auth_info import parse_object, text, texts
from greenroom.auth.credential_headers import base64url, split_web_url
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError
from greenroom.transports.client.errors import TransportError
from greenroom.transports.client.http_address import ForbiddenAddress, ServerUrl, is_local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.client.fetch import FetchFunction, FetchResponse

    from .dpop_proofs import DpopUse

DPOP_ALGORITHM: Final = "ES256"
"""The algorithm of our proofs (DPoP)."""
_OK: Final = 200
_SERVER_ERROR: Final = 500
_STEP: Final = "discovery"


class TokenSource(NamedTuple):
    """A protected resource and the authorization server that issues tokens for it."""

    resource: str
    server: AuthorizationServerMetadata
    scopes: tuple[str, ...] | None = None
    """The scopes that the resource supports."""
    dpop: DpopUse = "never"
    """Whether the resource states that it accepts tokens that are bound to a key, or only such."""


async def discover(
    url: str, fetch: FetchFunction, *, resource_metadata: str | None = None, issuer: str | None = None
) -> TokenSource:
    """Discover the authorization server. `issuer` selects one if the resource names several. Raises `SignInError`."""
    resource = await discover_protected_resource(url, fetch, resource_metadata)
    if resource is None:
        return TokenSource(canonical_resource(url), await _legacy_metadata(url, fetch))
    offered = resource.authorization_servers
    if not offered:
        raise SignInError(
            _STEP, f"{canonical_resource(url)} names no authorization server: its operator has to publish one"
        )
    if issuer is not None and issuer not in offered:
        raise SignInError(
            _STEP,
            f"{canonical_resource(url)} accepts tokens of {printable_line(', '.join(offered))}, and the client is registered at {issuer}: register it at one of those",
        )
    server = await discover_authorization_server(issuer or offered[0], fetch)
    return TokenSource(resource.resource, server, resource.scopes, resource.dpop)


async def discover_protected_resource(
    url: str, fetch: FetchFunction, resource_metadata: str | None = None
) -> ProtectedResourceMetadata | None:
    """The protected resource metadata of a server (RFC 9728); None without any. Raises `SignInError`.

    Metadata at a URL that the server named must be for the server's own URL, even if that URL is the one for the whole host.

    """
    places = {resource_metadata: canonical_resource(url)} if resource_metadata else resource_metadata_urls(url)
    for place, expected in places.items():
        body = await _fetch_document(place, fetch)
        if body is not None:
            return parse_resource_metadata(body, expected, url if expected == canonical_resource(url) else None)
    if resource_metadata:
        raise SignInError(
            _STEP, f"{redacted_url(resource_metadata)}, which the server names as its metadata, does not exist"
        )
    return None


async def discover_authorization_server(issuer: str, fetch: FetchFunction) -> AuthorizationServerMetadata:
    """The metadata of an authorization server (RFC 8414, OpenID Connect). Raises `SignInError`."""
    check_endpoint(issuer, _STEP)
    for place in server_metadata_urls(issuer):
        body = await _fetch_document(place, fetch)
        if body is not None:
            return parse_server_metadata(body, issuer)
    raise SignInError(_STEP, f"{redacted_url(issuer)} publishes no authorization server metadata: its operator has to")


async def _legacy_metadata(url: str, fetch: FetchFunction) -> AuthorizationServerMetadata:
    """The authorization server of a server without metadata: the metadata at its root, or else the default endpoints of revision 2025-03-26."""
    parts = urlsplit(canonical_resource(url))
    root = f"{parts.scheme}://{parts.netloc}"
    body = await _fetch_document(f"{root}/.well-known/oauth-authorization-server", fetch)
    if body is not None:
        return parse_server_metadata(body, root)
    return AuthorizationServerMetadata(
        root,
        urljoin(root, "/authorize"),
        urljoin(root, "/token"),
        urljoin(root, "/register"),
        challenge_methods=("S256",),  # which revision 2025-03-26 requires of all servers
    )


async def _fetch_document(url: str, fetch: FetchFunction) -> bytes | None:
    answer = await fetch_in_step(url, fetch, _STEP)
    if answer.status >= _SERVER_ERROR:
        raise SignInError(
            _STEP, f"{redacted_url(url)} answers with status {answer.status}: try again later", temporary=True
        )
    return answer.body if answer.status == _OK else None


async def fetch_in_step(
    url: str,
    fetch: FetchFunction,
    step: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> FetchResponse:
    """Fetch a URL; the `step` goes into the error. Raises `SignInError`."""
    check_endpoint(url, step)
    try:
        return await fetch(url, method=method, headers=headers or {}, body=body)
    except ForbiddenAddress as error:
        raise SignInError(step, str(error)) from None
    except TransportError as error:
        raise SignInError(step, f"{redacted_url(url)} cannot be reached: {error}", temporary=True) from None


def check_endpoint(url: str, step: str) -> None:
    """Raises `SignInError` for a URL to which no secret may be sent."""
    check_web_url(url, step)
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_local(parts.hostname or ""):
        raise SignInError(step, f"{redacted_url(url)} is not https: nothing secret is sent there")


def redacted_url(url: str) -> str:
    """The URL without user, query and fragment, for messages."""
    try:
        return ServerUrl.of(url).description
    except ConfigError:
        return "an invalid address"


# --- Parsers for the metadata (RFC 9728, RFC 8414, OpenID Connect), and the URLs at which it is found. Pure.
# The metadata must name exactly the issuer or resource that its URL was made from, character by character. Otherwise one server could speak for another, and
# a server at a path of a shared host could obtain tokens for the whole host (RFC 9728, 3.3; RFC 8414, 3.3).

_RESOURCE: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ProtectedResourceMetadata:
    """Metadata of a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None
    dpop: DpopUse = "never"


@dataclass(frozen=True, slots=True)
class AuthorizationServerMetadata:
    """Metadata of an authorization server (RFC 8414)."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    device_endpoint: str | None = None
    challenge_methods: tuple[str, ...] | None = None
    """The supported PKCE methods; None if not stated."""
    auth_methods: tuple[str, ...] = ()
    """How clients may authenticate at the token endpoint."""
    scopes: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    accepts_client_documents: bool = False
    """Whether it supports client metadata documents."""
    sends_issuer: bool = False
    """Whether its redirects name the issuer (RFC 9207)."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def proof_algorithms(self) -> tuple[str, ...] | None:
        """The algorithms of proofs (DPoP) that it accepts; None if not stated."""
        return _texts_if_stated(self.raw.get("dpop_signing_alg_values_supported"))


def resource_metadata_urls(server: str) -> dict[str, str]:
    """Where a server's metadata may be, best first, each with the resource that it must name: the server, or its whole host."""
    whole = canonical_resource(server)
    host = _with_path(whole, "")
    path = urlsplit(whole).path
    return {_with_path(host, f"{_RESOURCE}{path}"): whole, _with_path(host, _RESOURCE): host}


def server_metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of an authorization server may be, best first."""
    path = urlsplit(issuer).path.rstrip("/")
    forms = [
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ]
    return [_with_path(issuer, form) for form in dict.fromkeys(forms)]


def parse_resource_metadata(body: bytes, expected: str, asked: str | None = None) -> ProtectedResourceMetadata:
    """Metadata that must name the resource `expected`, or the URL `asked` as the user wrote it. Raises `SignInError`."""
    metadata = _parse_document(body, "the resource's metadata")
    resource = text(metadata.get("resource"))
    if resource is None:
        raise SignInError("discovery", "the resource's metadata names no resource")
    # A URL and the same URL with a trailing slash have one well-known URL.
    if resource not in (expected, f"{expected}/", expected if asked is None else _without_user_and_fragment(asked)):
        raise SignInError(
            "discovery",
            f"the metadata names {printable_line(resource)}, which is not the requested server: "
            f"its operator has to name {printable_line(expected)} as its `resource`",
        )
    dpop: DpopUse = "auto" if DPOP_ALGORITHM in texts(metadata.get("dpop_signing_alg_values_supported")) else "never"
    if metadata.get("dpop_bound_access_tokens_required") is True:
        dpop = "require"
    scopes = _texts_if_stated(metadata.get("scopes_supported"))
    return ProtectedResourceMetadata(resource, texts(metadata.get("authorization_servers")), scopes, dpop)


def parse_server_metadata(body: bytes, issuer: str | None) -> AuthorizationServerMetadata:
    """Metadata that must name `issuer`. Raises `SignInError`."""
    metadata = _parse_document(body, "the authorization server's metadata")
    named = text(metadata.get("issuer"))
    if named is None or (issuer is not None and named != issuer):
        raise SignInError(
            "discovery",
            f"the metadata of {issuer} names another issuer: {printable_line(named or 'none')}",
        )
    return AuthorizationServerMetadata(
        named,
        text(metadata.get("authorization_endpoint")),
        text(metadata.get("token_endpoint")),
        text(metadata.get("registration_endpoint")),
        text(metadata.get("device_authorization_endpoint")),
        _texts_if_stated(metadata.get("code_challenge_methods_supported")),
        texts(metadata.get("token_endpoint_auth_methods_supported")),
        texts(metadata.get("scopes_supported")),
        texts(metadata.get("grant_types_supported")),
        metadata.get("client_id_metadata_document_supported") is True,
        metadata.get("authorization_response_iss_parameter_supported") is True,
        metadata,
    )


def _texts_if_stated(value: Any) -> tuple[str, ...] | None:
    return None if value is None else texts(value)


def canonical_resource(server: str) -> str:
    """The name of a server as a resource (RFC 8707): without a fragment, a query, a default port and a trailing slash."""
    parts = urlsplit(server)
    scheme = parts.scheme.lower()
    netloc = parts.netloc.rpartition("@")[2].lower().removesuffix(":443" if scheme == "https" else ":80")
    return urlunsplit((scheme, netloc, parts.path.rstrip("/"), "", ""))


def _without_user_and_fragment(url: str) -> str:
    """The URL as the user wrote it, with port, case and query, but without a user and a fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _with_path(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))


def _parse_document(body: bytes, what: str) -> dict[str, Any]:
    metadata = parse_object(body)
    if metadata is None:
        raise SignInError(_STEP, f"{what} is not a JSON object")
    return metadata


# --- PKCE (RFC 7636), which proves that the client that redeems a code is the one that requested it, and the authorization request.

_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}\Z")
_LONGEST: Final = 8192


class AuthorizationRequest(NamedTuple):
    """An authorization request: the URL for the user, and the verifier and the state to keep until the response."""

    url: str
    verifier: str
    state: str


def gen_code_verifier() -> str:
    """A new code verifier: 64 random bytes as text."""
    return base64url(secrets.token_bytes(64))


def code_challenge(verifier: str) -> str:
    """The S256 challenge of a verifier. Raises `SignInError` for an invalid verifier."""
    if not _VERIFIER.match(verifier):
        raise SignInError("authorization", "a code verifier must have 43 to 128 unreserved characters")
    return base64url(hashlib.sha256(verifier.encode("ascii")).digest())


def build_authorization_url(
    endpoint: str, params: Mapping[str, str | None], *, verifier: str | None = None, state: str | None = None
) -> AuthorizationRequest:
    """Build an authorization request with PKCE and a state. Params of None are left out. Raises `SignInError` for an invalid endpoint."""
    check_web_url(endpoint, "authorization")
    verifier = gen_code_verifier() if verifier is None else verifier
    state = secrets.token_urlsafe(32) if state is None else state
    ours = {name: value for name, value in params.items() if value is not None} | {
        "response_type": params.get("response_type") or "code",
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "state": state,
    }
    parts = urlsplit(endpoint)
    theirs = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in ours]
    return AuthorizationRequest(urlunsplit(parts._replace(query=urlencode([*theirs, *ours.items()]))), verifier, state)


def check_web_url(url: str, step: str) -> None:
    """Raises `SignInError` for a URL that is not safe to give to a browser: another scheme than http(s), or characters that a shell interprets."""
    parts = split_web_url(url, _LONGEST)
    if parts is None or parts.fragment or "'" in url:
        raise SignInError(
            step, "the server names an address that is not a plain http or https URL: the user is not sent there"
        )


# --- Text from other servers, made safe for messages, logs and terminals.

_LONGEST_QUOTE: Final = 300


def refusal_message(code: str, detail: str | None) -> str:
    """The message for an error of the authorization server."""
    return f"the authorization server refuses: {printable_line(code)}{f' ({printable_line(detail)})' if detail else ''}"


def printable_line(words: str) -> str:
    """One line of printable characters, shortened."""
    return "".join(each if each.isprintable() else " " for each in words[:_LONGEST_QUOTE]).strip()
