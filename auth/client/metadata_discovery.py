"""Where to sign in: from a server, and what it said with its 401, to the authorization server that gives tokens for it.

A server that says nothing of itself is one of 2025-03-26, whose authorization server is at its own root. The caller holds what is found against
what was found before: an authorization server can change.
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

_OK: Final = 200
_SERVER_ERROR: Final = 500
_STEP: Final = "discovery"


class TokenSource(NamedTuple):
    """Where tokens for a server are to be had."""

    resource: str
    server: AuthorizationServerMetadata
    scopes: tuple[str, ...] | None = None
    """What the resource says that one may ask for."""


async def discover(
    url: str, fetch: FetchFunction, *, resource_metadata: str | None = None, issuer: str | None = None
) -> TokenSource:
    """Find it. `issuer` is the one to choose, where the resource names several. Raises `SignInError`."""
    resource = await discover_protected_resource(url, fetch, resource_metadata)
    if resource is None:
        return TokenSource(canonical_resource(url), await _legacy_metadata(url, fetch))
    offered = resource.authorization_servers
    if not offered:
        raise SignInError(_STEP, f"{canonical_resource(url)} names no authorization server: its operator has to")
    if issuer is not None and issuer not in offered:
        raise SignInError(
            _STEP,
            f"{canonical_resource(url)} wants tokens of {printable_line(', '.join(offered))}, and the client was registered with {issuer}: register it there",
        )
    server = await discover_authorization_server(issuer or offered[0], fetch)
    return TokenSource(resource.resource, server, resource.scopes)


async def discover_protected_resource(
    url: str, fetch: FetchFunction, resource_metadata: str | None = None
) -> ProtectedResourceMetadata | None:
    """What a server says of itself (RFC 9728); None when it says nothing. Raises `SignInError`.

    A document at a place that the server has named must be of the server's own URL, also when that place is where the whole host's is.
    """
    places = {resource_metadata: canonical_resource(url)} if resource_metadata else resource_metadata_urls(url)
    for place, expected in places.items():
        body = await _fetch_document(place, fetch)
        if body is not None:
            return parse_resource_metadata(body, expected, url if expected == canonical_resource(url) else None)
    if resource_metadata:
        raise SignInError(
            _STEP, f"there is nothing at {redacted_url(resource_metadata)}, where the server says its metadata is"
        )
    return None


async def discover_authorization_server(issuer: str, fetch: FetchFunction) -> AuthorizationServerMetadata:
    """What an authorization server says of itself (RFC 8414, OpenID Connect). Raises `SignInError`."""
    check_endpoint(issuer, _STEP)
    for place in server_metadata_urls(issuer):
        body = await _fetch_document(place, fetch)
        if body is not None:
            return parse_server_metadata(body, issuer)
    raise SignInError(
        _STEP, f"{redacted_url(issuer)} has no metadata of an authorization server: its operator has to publish some"
    )


async def _legacy_metadata(url: str, fetch: FetchFunction) -> AuthorizationServerMetadata:
    """Of a server that knows no metadata of resources: its root's, and where there are none, what used to be the rule."""
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
        challenge_methods=("S256",),  # which the revision that has this rule demands of all servers
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
    """Fetch, and say in which step it failed. Raises `SignInError`."""
    check_endpoint(url, step)
    try:
        return await fetch(url, method=method, headers=headers or {}, body=body)
    except ForbiddenAddress as error:
        raise SignInError(step, str(error)) from None
    except TransportError as error:
        raise SignInError(step, f"{redacted_url(url)} cannot be reached: {error}", temporary=True) from None


def check_endpoint(url: str, step: str) -> None:
    """Raises `SignInError` for where nothing secret may be sent."""
    check_web_url(url, step)
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_local(parts.hostname or ""):
        raise SignInError(step, f"{redacted_url(url)} is not https: nothing secret is sent there")


def redacted_url(url: str) -> str:
    """As much of it as people may see."""
    try:
        return ServerUrl.of(url).description
    except ConfigError:
        return "an address that is none"


# --- What a resource and an authorization server say of themselves (RFC 9728, RFC 8414, OpenID Connect), and where that is to be found. Pure.
# A document must name exactly what its URL was made from, character by character: an issuer's the issuer, a resource's the resource. Otherwise one server
# could speak for another, and a server at a path of a shared host could have a token for the whole host sent to itself (RFC 9728, 3.3; RFC 8414, 3.3).

_RESOURCE: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ProtectedResourceMetadata:
    """A protected resource: which servers give tokens for it."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AuthorizationServerMetadata:
    """An authorization server."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    device_endpoint: str | None = None
    challenge_methods: tuple[str, ...] | None = None
    """How codes can be proven; None where it does not say."""
    auth_methods: tuple[str, ...] = ()
    """How clients show themselves at the token endpoint."""
    scopes: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    accepts_client_documents: bool = False
    """Whether it reads client metadata documents."""
    sends_issuer: bool = False
    """Whether it says in the redirect who it is (RFC 9207)."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


def resource_metadata_urls(server: str) -> dict[str, str]:
    """Where a server's own metadata may be, best first, and which resource the document there is of: the server itself, or its whole host."""
    whole = canonical_resource(server)
    host = _with_path(whole, "")
    path = urlsplit(whole).path
    return {_with_path(host, f"{_RESOURCE}{path}"): whole, _with_path(host, _RESOURCE): host}


def server_metadata_urls(issuer: str) -> list[str]:
    """Where an authorization server's metadata may be, best first."""
    path = urlsplit(issuer).path.rstrip("/")
    forms = [
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ]
    return [_with_path(issuer, form) for form in dict.fromkeys(forms)]


def parse_resource_metadata(body: bytes, expected: str, asked: str | None = None) -> ProtectedResourceMetadata:
    """Metadata of the resource `expected`, by its canonical name, or by its URL as it was asked. Raises `SignInError` for what is none, or another's."""
    said = _parse_document(body, "the resource's metadata")
    resource = text(said.get("resource"))
    if resource is None:
        raise SignInError("discovery", "the resource's metadata names no resource")
    # A URL and the same with a slash are made into one well-known URL.
    if resource not in (expected, f"{expected}/", expected if asked is None else _without_user_and_fragment(asked)):
        raise SignInError(
            "discovery",
            f"the metadata is of {printable_line(resource)}, and not of the server that was asked: "
            f"its operator has to name {printable_line(expected)} as its `resource`",
        )
    scopes = said.get("scopes_supported")
    return ProtectedResourceMetadata(
        resource, texts(said.get("authorization_servers")), None if scopes is None else texts(scopes)
    )


def parse_server_metadata(body: bytes, issuer: str | None) -> AuthorizationServerMetadata:
    """Metadata of an issuer. Raises `SignInError` for what is none, or another's."""
    said = _parse_document(body, "the authorization server's metadata")
    named = text(said.get("issuer"))
    if named is None or (issuer is not None and named != issuer):
        raise SignInError(
            "discovery",
            f"the metadata looked for is {issuer}'s, and it says that it is {printable_line(named or 'nobody')}'s",
        )
    methods = said.get("code_challenge_methods_supported")
    return AuthorizationServerMetadata(
        named,
        text(said.get("authorization_endpoint")),
        text(said.get("token_endpoint")),
        text(said.get("registration_endpoint")),
        text(said.get("device_authorization_endpoint")),
        None if methods is None else texts(methods),
        texts(said.get("token_endpoint_auth_methods_supported")),
        texts(said.get("scopes_supported")),
        texts(said.get("grant_types_supported")),
        said.get("client_id_metadata_document_supported") is True,
        said.get("authorization_response_iss_parameter_supported") is True,
        said,
    )


def canonical_resource(server: str) -> str:
    """How a server is named as the resource that a token is for (RFC 8707): without a fragment, a query or a usual port, and no slash at the end."""
    parts = urlsplit(server)
    scheme = parts.scheme.lower()
    netloc = parts.netloc.rpartition("@")[2].lower().removesuffix(":443" if scheme == "https" else ":80")
    return urlunsplit((scheme, netloc, parts.path.rstrip("/"), "", ""))


def _without_user_and_fragment(url: str) -> str:
    """With its port, case and query, and without what is no part of a resource's name: a user and a fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _with_path(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))


def _parse_document(body: bytes, what: str) -> dict[str, Any]:
    said = parse_object(body)
    if said is None:
        raise SignInError(_STEP, f"{what} is no JSON object")
    return said


# --- Proof that a code is redeemed by the client that asked for it (RFC 7636), and the address that a user is sent to.

_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}\Z")
_LONGEST: Final = 8192


class AuthorizationRequest(NamedTuple):
    """Where to send the user, and what to keep until they come back."""

    url: str
    verifier: str
    state: str


def gen_code_verifier() -> str:
    """64 random bytes, as text."""
    return base64url(secrets.token_bytes(64))


def code_challenge(verifier: str) -> str:
    """What is shown of a verifier beforehand (S256). Raises `SignInError` for what is none."""
    if not _VERIFIER.match(verifier):
        raise SignInError("authorization", "a code verifier has 43 to 128 unreserved characters")
    return base64url(hashlib.sha256(verifier.encode("ascii")).digest())


def build_authorization_url(
    endpoint: str, params: Mapping[str, str | None], *, verifier: str | None = None, state: str | None = None
) -> AuthorizationRequest:
    """The address, with the challenge and a state in it. Params of None are left out. Raises `SignInError` for an endpoint that is none."""
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
    """Raises `SignInError` for what no browser should be given: another scheme than http and https, and what a shell might read."""
    parts = split_web_url(url, _LONGEST)
    if parts is None or parts.fragment or "'" in url:
        raise SignInError(step, "the server gives an address that is no plain http or https URL: nobody is sent there")


# --- What strangers say, in words that may be shown: in a message, a log, a terminal.

_LONGEST_QUOTE: Final = 300


def refusal_message(code: str, detail: str | None) -> str:
    """An error of the authorization server, in words that may be shown."""
    return f"the authorization server refuses: {printable_line(code)}{f' ({printable_line(detail)})' if detail else ''}"


def printable_line(words: str) -> str:
    """One line of it, without what a terminal would take for more than text."""
    return "".join(each if each.isprintable() else " " for each in words[:_LONGEST_QUOTE]).strip()
