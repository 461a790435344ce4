"""Where to sign in: from a server, and what it said with its 401, to the authorization server that gives tokens for it.

A server that says nothing of itself is one of 2025-03-26, whose authorization server is at its own root. What is found once more is held against
what was found before by whoever asks: an authorization server can change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError
from greenroom.transports.client.errors import TransportError
from greenroom.transports.client.guard import Forbidden, is_local
from greenroom.transports.client.http_address import Address

from .metadata import ServerMetadata, canonical, read_resource, read_server, resource_urls, server_urls
from .pkce import check_web
from .words import plain

if TYPE_CHECKING:
    from greenroom.transports.client.fetch import Fetch, Fetched

    from .metadata import ResourceMetadata

_OK: Final = 200
_BROKEN: Final = 500
_STEP: Final = "discovery"


class Place(NamedTuple):
    """Where tokens for a server are to be had."""

    resource: str
    server: ServerMetadata
    scopes: tuple[str, ...] | None = None
    """What the resource says that one may ask for."""


async def discover(url: str, fetch: Fetch, *, resource_metadata: str | None = None, issuer: str | None = None) -> Place:
    """Find it. `issuer` is the one to choose, where the resource names several. Raises `SignInError`."""
    resource = await discover_protected_resource(url, fetch, resource_metadata)
    if resource is None:
        return Place(canonical(url), await _at_the_root(url, fetch))
    offered = resource.authorization_servers
    if not offered:
        raise SignInError(_STEP, f"{canonical(url)} names no authorization server: its operator has to")
    if issuer is not None and issuer not in offered:
        raise SignInError(
            _STEP,
            f"{canonical(url)} wants tokens of {plain(', '.join(offered))}, and the client was registered with {issuer}: register it there",
        )
    server = await discover_authorization_server(issuer or offered[0], fetch)
    return Place(resource.resource, server, resource.scopes)


async def discover_protected_resource(
    url: str, fetch: Fetch, resource_metadata: str | None = None
) -> ResourceMetadata | None:
    """What a server says of itself (RFC 9728); None when it says nothing. Raises `SignInError`.

    A document at a place that the server has named must be of the server's own URL, also when that place is where the whole host's is.
    """
    places = {resource_metadata: canonical(url)} if resource_metadata else resource_urls(url)
    for place, expected in places.items():
        body = await _document(place, fetch)
        if body is not None:
            return read_resource(body, expected, url if expected == canonical(url) else None)
    if resource_metadata:
        raise SignInError(
            _STEP, f"there is nothing at {shown(resource_metadata)}, where the server says its metadata is"
        )
    return None


async def discover_authorization_server(issuer: str, fetch: Fetch) -> ServerMetadata:
    """What an authorization server says of itself (RFC 8414, OpenID Connect). Raises `SignInError`."""
    check_endpoint(issuer, _STEP)
    for place in server_urls(issuer):
        body = await _document(place, fetch)
        if body is not None:
            return read_server(body, issuer)
    raise SignInError(
        _STEP, f"{shown(issuer)} has no metadata of an authorization server: its operator has to publish some"
    )


async def _at_the_root(url: str, fetch: Fetch) -> ServerMetadata:
    """Of a server that knows no metadata of resources: its root's, and where there are none, what used to be the rule."""
    parts = urlsplit(canonical(url))
    root = f"{parts.scheme}://{parts.netloc}"
    body = await _document(f"{root}/.well-known/oauth-authorization-server", fetch)
    if body is not None:
        return read_server(body, root)
    return ServerMetadata(
        root,
        urljoin(root, "/authorize"),
        urljoin(root, "/token"),
        urljoin(root, "/register"),
        challenge_methods=("S256",),  # which the revision that has this rule demands of everybody
    )


async def _document(url: str, fetch: Fetch) -> bytes | None:
    answer = await reach(url, fetch, _STEP)
    if answer.status >= _BROKEN:
        raise SignInError(_STEP, f"{shown(url)} answers with status {answer.status}: try again later", temporary=True)
    return answer.body if answer.status == _OK else None


async def reach(
    url: str, fetch: Fetch, step: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
) -> Fetched:
    """Fetch, and say in which step it failed. Raises `SignInError`."""
    check_endpoint(url, step)
    try:
        return await fetch(url, method=method, headers=headers or {}, body=body)
    except Forbidden as error:
        raise SignInError(step, str(error)) from None
    except TransportError as error:
        raise SignInError(step, f"{shown(url)} cannot be reached: {error}", temporary=True) from None


def check_endpoint(url: str, step: str) -> None:
    """Raises `SignInError` for where nothing secret may be sent."""
    check_web(url, step)
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_local(parts.hostname or ""):
        raise SignInError(step, f"{shown(url)} is not https: nothing secret is sent there")


def shown(url: str) -> str:
    """As much of it as people may see."""
    try:
        return Address.of(url).description
    except ConfigError:
        return "an address that is none"
