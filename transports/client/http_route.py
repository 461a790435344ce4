"""Routes over HTTP: `HttpRoute(url)`, and `SseRoute(url)` for servers of the legacy transport (2024-11-05)."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # which is public in fact

from greenroom.errors import ConfigError
from greenroom.protocol.mirrored_headers import RESERVED_HEADERS
from greenroom.transports.http_config import is_loopback

from .http_address import ServerUrl
from .http_connection_pool import HttpConnectionPool
from .http_settings import HttpSettings, Trust
from .http_wire import HttpWire, is_header
from .interfaces import FixedHeaders, PortableRoute, digest_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from typing import Self

    from greenroom.supervision import Pid, Process

    from .httpx_door import HttpxTransport
    from .interfaces import Credentials, Headers, HttpCarrier
    from .remote_wire import HomeCallbacks

_LOGIN_HEADERS: Final = frozenset({"authorization", "cookie", "x-api-key"})
AGENT: Final = ("user-agent", "greenroom")


class HttpRoute:
    """A server at a URL. Opens any number of wires, one after another or in parallel; each has its own connections and session."""

    is_http: ClassVar[bool] = True
    transport_name: ClassVar[str] = "http"
    old: ClassVar[bool] = False
    """Whether the legacy transport is used from the beginning."""

    def __init__(  # noqa: PLR0913 - the options of a route
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        trust: Trust | ssl.SSLContext | None = None,
        settings: HttpSettings | None = None,
        fallback: bool = True,
        transport: HttpxTransport | None = None,
        proxy: str | None = None,
    ) -> None:
        """`headers` go with every request. `fallback`: if the server refuses `initialize`, try the legacy transport.

        `transport` is a client or a transport of httpx that sends the requests; its owner closes it. `proxy` is a URL; without one,
        `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` apply, but never for this machine itself. Raises `ConfigError`.
        """
        self.address = ServerUrl.of(url)
        self._url = url
        self.credentials: Credentials = FixedHeaders({}) if credentials is None else credentials
        self.settings = HttpSettings() if settings is None else settings
        self.fallback = fallback
        self.headers: Headers = _checked_headers(headers or {})
        self._header_digest = digest_of(*(text for header in self.headers for text in header))
        self._trust = trust
        self._httpx_transport = transport
        if transport is not None and proxy is not None:
            raise ConfigError("transport and proxy exclude each other: set the proxy in the transport")
        self._proxy = proxy or (None if transport is not None else _environment_proxy(self.address))
        self._context: ssl.SSLContext | None = None
        if isinstance(trust, Trust) and self.address.secure:
            self._context = trust.context()  # an unusable certificate is reported now

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description!r})"

    @property
    def description(self) -> str:
        """The URL without its secrets."""
        return self.address.description

    @property
    def http_version(self) -> str:
        """The version of HTTP of connections of our own."""
        return "1.1" if self._httpx_transport is None and self._proxy is None else ""

    @property
    def peer_address(self) -> str:
        """Host and port of the server."""
        return self.address.host_and_port

    @property
    def endpoint(self) -> str:
        """The identity of the server: its whole URL, which may contain secrets."""
        return self._url

    @property
    def authorization(self) -> Hashable:
        """By what requests are authorized now: the headers, the certificate and the credentials. None where the credentials do not say, or a transport of the program may add to them."""
        own: Hashable = getattr(self.credentials, "authorization", None)
        if own is None or self._httpx_transport is not None:
            return None
        return self._header_digest, self._trust, own

    @property
    def extensions(self) -> Sequence[str]:
        """The extensions of the protocol by which requests are authorized."""
        found: Sequence[str] = getattr(self.credentials, "extensions", ())
        return found

    def check_caller_credentials(self) -> None:
        """Raise `ConfigError` where other logins, or state shared by connections, would go along with a caller's own credentials."""
        if self._httpx_transport is not None:
            raise ConfigError(
                f"{self!r} has a transport that keeps cookies for all connections: leave it out, or caller_auth"
            )
        logins = {name for name, _ in self.headers} & _LOGIN_HEADERS
        if logins or self.address.login:
            where = f"in its {min(logins)} header" if logins else "in its URL"
            raise ConfigError(
                f"{self!r} has a login {where}, which every caller would use: give it as credentials instead"
            )

    def with_credentials(self, credentials: Callable[[str], Credentials]) -> Self:
        """The same route with a caller's own credentials, made for its URL."""
        route = copy(self)
        route.credentials = credentials(self._url)
        return route

    def hide_path(self) -> None:
        """Hide the path, too, wherever the URL is shown."""
        self.address = replace(self.address, path_hidden=True)

    def portable(self) -> PortableRoute:
        """The route for another process. Credentials other than fixed headers stay here, and are asked for each request."""
        if self._httpx_transport is not None:
            raise ConfigError(f"{self!r} has a transport of this process: leave out its isolation, or the transport")
        if self._trust is not None and not isinstance(self._trust, Trust):
            raise ConfigError(f"{self!r} has an SSLContext, which is of this process: give it a Trust(…) instead")
        credentials = self.credentials
        given = {
            "url": self._url,
            "headers": dict(self.headers),
            "fixed": dict(credentials._headers) if isinstance(credentials, FixedHeaders) else None,  # noqa: SLF001 - the same package
            "trust": None if self._trust is None else self._trust.located(),
            "settings": self.settings,
            "fallback": self.fallback,
            "proxy": self._proxy,
            "old": self.old,
            "path_hidden": self.address.path_hidden,
        }
        return PortableRoute(_rebuild_route, given)

    def open(self, owner: Pid) -> HttpWire:
        """Start a wire for the calling process, which is `owner`."""
        return HttpWire(self, owner)

    def carrier(self) -> Callable[[Process], HttpCarrier]:
        """A function that makes the carrier of one wire, given its process. Raises `ConfigError` for an unusable proxy."""
        tls = self._tls()
        if self._httpx_transport is None and self._proxy is None:
            return lambda process: HttpConnectionPool(process, self.settings, tls)
        from .httpx_door import HttpxCarrier, httpx_client  # noqa: PLC0415 - importing httpx is expensive, and few clients need it

        client = httpx_client(self._httpx_transport, self._proxy, tls, self.settings)
        return lambda _: HttpxCarrier(self.settings, client, own=self._httpx_transport is None)

    def _tls(self) -> ssl.SSLContext | None:
        if self._context is None and self.address.secure:
            self._context = Trust().context() if self._trust is None else self._trust  # type: ignore[assignment]
        return self._context


class SseRoute(HttpRoute):
    """A server of the legacy transport: the URL is that of its event stream."""

    old = True


def _rebuild_route(
    home: HomeCallbacks,
    url: str,
    *,
    fixed: Mapping[str, str] | None,
    proxy: str | None,
    old: bool,
    path_hidden: bool,
    **options: Any,
) -> HttpRoute:
    """Make a portable route again. Without `fixed` headers, credentials are asked for at home."""
    credentials = home if fixed is None else FixedHeaders(fixed)
    route = (SseRoute if old else HttpRoute)(url, credentials=credentials, **options)
    if path_hidden:
        route.hide_path()
    route._proxy = proxy  # noqa: SLF001 - the home process's environment decides
    return route


def _environment_proxy(address: ServerUrl) -> str | None:
    """The proxy of the environment variables, if any applies."""
    if is_loopback(address.host):
        return None
    proxies = getproxies_environment()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    return None if not proxy or proxy_bypass_environment(address.host, proxies) else proxy


def _checked_headers(headers: Mapping[str, str]) -> Headers:
    found = {AGENT[0]: AGENT[1]}
    for name, value in headers.items():
        if not is_header(name, value):
            raise ConfigError(f"the header {name!r} has an invalid name or value")
        if name.lower() in RESERVED_HEADERS:
            raise ConfigError(f"{name} is set by the transport itself")
        found[name.lower()] = value
    return tuple(found.items())
