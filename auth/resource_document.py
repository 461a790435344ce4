"""What a protected resource says of itself (RFC 9728), and where: anybody may read it, from any page, since it is how one learns where to log in.

It is served at the well-known place of the resource's path and at the bare one, by whatever serves the resource: `read` answers a request.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from greenroom.errors import ConfigError
from greenroom.protocol.json import encode
from greenroom.supervision.kernel.tracebacks import log_error
from greenroom.transports.seam import Refusal

from .grants import is_many
from .urls import issuer_url, resource_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from .seam import Asking

    Servers: TypeAlias = Sequence[str] | Callable[[Asking], Sequence[str] | Awaitable[Sequence[str]]]
    MetadataUrl: TypeAlias = str | Callable[[Asking], str | Awaitable[str]]

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
METHODS: Final = ("GET", "HEAD", "OPTIONS")
_MANAGED: Final = frozenset(
    {
        "resource",
        "authorization_servers",
        "scopes_supported",
        "bearer_methods_supported",
        "resource_name",
        "jwks_uri",
        "resource_documentation",
    }
)
_HEADERS: Final = (
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", ", ".join(METHODS)),
    ("access-control-allow-headers", "*"),
    ("cache-control", "no-store"),
)


class ResourceDocument:
    """The document of one resource. It may differ by request only in who gives tokens."""

    def __init__(  # noqa: PLR0913 - what can be said of a resource
        self,
        resource: str,
        authorization_servers: Servers,
        *,
        scopes_supported: Sequence[str] | None = None,
        bearer_methods_supported: Sequence[str] = ("header",),
        resource_name: str | None = None,
        jwks_uri: str | None = None,
        resource_documentation: str | None = None,
        metadata_url: MetadataUrl | None = None,
        metadata: Mapping[str, Any] | None = None,
        insecure: bool = False,
    ) -> None:
        """Raises `ConfigError` for URLs that are none, and for `metadata` that would say something else than the rest."""
        self.resource = resource_url(resource)
        self._insecure = insecure
        self._servers: Servers = (
            authorization_servers
            if callable(authorization_servers)
            else _issuers(authorization_servers, insecure=insecure)
        )
        managed = sorted(_MANAGED & set(metadata or {}))
        if managed:
            raise ConfigError(
                f"metadata may not say {', '.join(managed)} in another way than the argument of that name"
            )
        self._url: MetadataUrl = _default_url(self.resource) if metadata_url is None else metadata_url
        if not callable(self._url):
            resource_url(self._url, "resource_metadata_url")
        self.scopes_supported = None if scopes_supported is None else names("scopes_supported", scopes_supported)
        said = {
            "scopes_supported": None if self.scopes_supported is None else list(self.scopes_supported),
            "bearer_methods_supported": list(names("bearer_methods_supported", bearer_methods_supported)),
            "resource_name": resource_name,
            "jwks_uri": None if jwks_uri is None else resource_url(jwks_uri, "jwks_uri"),
            "resource_documentation": None
            if resource_documentation is None
            else resource_url(resource_documentation, "resource_documentation"),
        }
        self._said = {name: value for name, value in said.items() if value is not None} | dict(metadata or {})
        path = urlsplit(self.resource).path.rstrip("/")
        self.paths: frozenset[str] = frozenset({f"{WELL_KNOWN}{path}", WELL_KNOWN})
        """Where it is served."""
        encode(self._said)  # what is no JSON is found out now

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> ResourceDocument:
        """From a mapping with `resource`, `authorization_servers`, and perhaps `metadata_url` and the rest. Raises `ConfigError`."""
        try:
            return cls(**said)
        except TypeError as error:
            raise ConfigError(f"resource_metadata: {str(error).rpartition('__init__() ')[2]}") from None

    @property
    def issuers(self) -> tuple[str, ...] | None:
        """Who gives tokens, where that is the same for all requests."""
        return None if callable(self._servers) else tuple(self._servers)

    async def authorization_servers(self, asking: Asking) -> tuple[str, ...]:
        """Who gives tokens for this request. Raises `ConfigError` for what the function gave that is no list of issuers."""
        if not callable(self._servers):
            return tuple(self._servers)
        found = self._servers(asking)
        return _issuers(await found if inspect.isawaitable(found) else found, insecure=self._insecure)

    async def url(self, asking: Asking) -> str:
        """Where the document is to be read, as a challenge names it."""
        if not callable(self._url):
            return self._url
        found = self._url(asking)
        return resource_url(await found if inspect.isawaitable(found) else found, "resource_metadata_url")

    async def document(self, asking: Asking) -> dict[str, Any]:
        """All of it."""
        servers = await self.authorization_servers(asking)
        return {"resource": self.resource, "authorization_servers": list(servers), **self._said}

    async def read(self, asking: Asking) -> Refusal:
        """The answer to whoever asks for it."""
        if asking.method not in METHODS:
            allowed = (("allow", ", ".join(METHODS)), ("content-type", "text/plain"))
            return Refusal(405, (*allowed, *_HEADERS), b"Method Not Allowed")
        if asking.method == "OPTIONS":
            return Refusal(204, _HEADERS)
        try:
            body = encode(await self.document(asking))
        except Exception:  # noqa: BLE001 - the author's function, or what it gave
            log_error(log, "the metadata of %s cannot be told", self.resource)
            return Refusal(500, (("content-type", "application/json"), *_HEADERS), b'{"error":"server_error"}')
        return Refusal(200, (("content-type", "application/json"), *_HEADERS), body)


def names(what: str, given: object) -> tuple[str, ...]:
    """A list of words. Raises `ConfigError`."""
    if not is_many(given):
        raise ConfigError(f"{what} must be a list of texts, not {given!r}")
    if not all(isinstance(each, str) and each and " " not in each and each.isprintable() for each in given):
        raise ConfigError(f"{what} must be a list of texts without spaces, not {given!r}")
    return tuple(dict.fromkeys(given))


def _issuers(given: object, *, insecure: bool) -> tuple[str, ...]:
    if not is_many(given):
        raise ConfigError(f"authorization_servers must be a list of URLs, not {given!r}")
    if not given:
        raise ConfigError("authorization_servers is empty: somebody has to give the tokens")
    return tuple(issuer_url(each, insecure=insecure) for each in given)


def _default_url(resource: str) -> str:
    parts = urlsplit(resource)
    return urlunsplit((parts.scheme, parts.netloc, f"{WELL_KNOWN}{parts.path.rstrip('/')}", parts.query, ""))
