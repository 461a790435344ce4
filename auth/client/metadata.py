"""What a resource and an authorization server say of themselves (RFC 9728, RFC 8414, OpenID Connect), and where that is to be found. Pure.

A document must name exactly what its URL was made from, character by character: an issuer's the issuer, a resource's the resource. Otherwise one server
could speak for another, and a server at a path of a shared host could have a token for the whole host sent to itself (RFC 9728, 3.3; RFC 8414, 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import text, texts
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.json import decode, is_object

from .words import plain

if TYPE_CHECKING:
    from collections.abc import Mapping


_RESOURCE: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """A protected resource: which servers give tokens for it."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class ServerMetadata:
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
    client_documents: bool = False
    """Whether it reads client metadata documents."""
    names_issuer: bool = False
    """Whether it says in the redirect who it is (RFC 9207)."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


def resource_urls(server: str) -> dict[str, str]:
    """Where a server's own metadata may be, best first, and which resource the document there is of: the server itself, or its whole host."""
    whole = canonical(server)
    host = _at(whole, "")
    path = urlsplit(whole).path
    return {_at(host, f"{_RESOURCE}{path}"): whole, _at(host, _RESOURCE): host}


def server_urls(issuer: str) -> list[str]:
    """Where an authorization server's metadata may be, best first."""
    path = urlsplit(issuer).path.rstrip("/")
    forms = [
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ]
    return [_at(issuer, form) for form in dict.fromkeys(forms)]


def read_resource(body: bytes, expected: str, asked: str | None = None) -> ResourceMetadata:
    """Metadata of the resource `expected`, by its canonical name, or by its URL as it was asked. Raises `SignInError` for what is none, or another's."""
    said = _object(body, "discovery", "the resource's metadata")
    resource = text(said.get("resource"))
    if resource is None:
        raise SignInError("discovery", "the resource's metadata names no resource")
    # A URL and the same with a slash are made into one well-known URL.
    if resource not in (expected, f"{expected}/", expected if asked is None else _as_asked(asked)):
        raise SignInError(
            "discovery",
            f"the metadata is of {plain(resource)}, and not of the server that was asked: "
            f"its operator has to name {plain(expected)} as its `resource`",
        )
    scopes = said.get("scopes_supported")
    return ResourceMetadata(
        resource, texts(said.get("authorization_servers")), None if scopes is None else texts(scopes), said
    )


def read_server(body: bytes, issuer: str | None) -> ServerMetadata:
    """Metadata of an issuer. Raises `SignInError` for what is none, or another's."""
    said = _object(body, "discovery", "the authorization server's metadata")
    named = text(said.get("issuer"))
    if named is None or (issuer is not None and named != issuer):
        raise SignInError(
            "discovery", f"the metadata looked for is {issuer}'s, and it says that it is {plain(named or 'nobody')}'s"
        )
    methods = said.get("code_challenge_methods_supported")
    return ServerMetadata(
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


def canonical(server: str) -> str:
    """How a server is named as the resource that a token is for (RFC 8707): without a fragment, a query or a usual port, and no slash at the end."""
    parts = urlsplit(server)
    scheme = parts.scheme.lower()
    netloc = parts.netloc.rpartition("@")[2].lower().removesuffix(":443" if scheme == "https" else ":80")
    return urlunsplit((scheme, netloc, parts.path.rstrip("/"), "", ""))


def _as_asked(url: str) -> str:
    """With its port, case and query, and without what is no part of a resource's name: a user and a fragment."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _at(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))


def _object(body: bytes, step: str, what: str) -> dict[str, Any]:
    try:
        said = decode(body)
    except ProtocolError:
        said = None
    if not is_object(said):
        raise SignInError(step, f"{what} is no JSON object")
    return said
