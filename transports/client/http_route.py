"""How to get to a server over HTTP: `HttpRoute(url)`, and `SseRoute(url)` for those that speak it as it was before."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]  # which is public in fact

from greenroom.errors import ConfigError
from greenroom.transports.http_config import is_loopback

from .http_address import Address
from .http_pool import Pool
from .http_settings import HttpSettings, Trust
from .http_wire import HttpWire, is_header
from .interfaces import FixedHeaders, Ticket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from typing import Self

    from greenroom.supervision import Pid, Process

    from .httpx_door import Brought
    from .interfaces import Carrier, Credentials, Headers
    from .remote_wire import Desk

_OURS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"),
        *("mcp-protocol-version", "mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_LOGINS: Final = frozenset({"authorization", "cookie", "x-api-key"})
AGENT: Final = ("user-agent", "greenroom")


class HttpRoute:
    """A server at a URL. Opens any number of wires, one after another or side by side; each has connections and a session of its own."""

    old: ClassVar[bool] = False
    """Whether the old transport is spoken from the beginning."""

    def __init__(  # noqa: PLR0913 - what can be said of a way to a server
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        trust: Trust | ssl.SSLContext | None = None,
        settings: HttpSettings | None = None,
        fallback: bool = True,
        transport: Brought | None = None,
        proxy: str | None = None,
    ) -> None:
        """`headers` go with every request. `fallback`: a server that refuses us may be one of the old transport, and is asked.

        `transport` is a client or a transport of httpx that is to carry the requests; it stays its owner's, who closes it. `proxy` is a URL;
        without one, what `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say holds, but never for this machine itself.
        Raises `ConfigError`.
        """
        self.address = Address.of(url)
        self._url = url
        self.credentials: Credentials = FixedHeaders({}) if credentials is None else credentials
        self.settings = HttpSettings() if settings is None else settings
        self.fallback = fallback
        self.headers: Headers = _checked(headers or {})
        self._trust = trust
        self._brought = transport
        if transport is not None and proxy is not None:
            raise ConfigError("whoever brings a transport says there which proxy it uses")
        self._proxy = proxy or (None if transport is not None else _proxy_around(self.address))
        self._context: ssl.SSLContext | None = None
        if isinstance(trust, Trust) and self.address.secure:
            self._context = trust.context()  # what cannot work is said now

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.description!r})"

    @property
    def description(self) -> str:
        """Where it leads, without its secrets."""
        return self.address.description

    def check_personal(self) -> None:
        """Raise `ConfigError` where another login, or state of other connections, would go along with the credentials of `personal`."""
        if self._brought is not None:
            raise ConfigError(
                f"{self!r} has a transport that keeps cookies for all connections: leave it out, or caller_auth"
            )
        logins = {name for name, _ in self.headers} & _LOGINS
        if logins or self.address.login:
            where = f"in its {min(logins)} header" if logins else "in its URL"
            raise ConfigError(
                f"{self!r} has a login {where}, which each caller would show: give it as credentials instead"
            )

    def personal(self, credentials: Callable[[str], Credentials]) -> Self:
        """The same way with other credentials, made for its URL."""
        route = copy(self)
        route.credentials = credentials(self._url)
        return route

    def veil(self) -> None:
        """Show nothing of its path either, wherever it is spoken of."""
        self.address = replace(self.address, veiled=True)

    def ticket(self) -> Ticket:
        """For another process. Credentials that are more than fixed headers stay here, and are asked for each request."""
        if self._brought is not None:
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
            "veiled": self.address.veiled,
        }
        return Ticket(_arrived, given)

    def open(self, owner: Pid) -> HttpWire:
        """Begin a wire for the calling process, which is `owner`."""
        return HttpWire(self, owner)

    def carrier(self) -> Callable[[Process], Carrier]:
        """Makes what carries the requests of one wire, given its process. Raises `ConfigError` for a proxy that cannot be one."""
        tls = self._tls()
        if self._brought is None and self._proxy is None:
            return lambda process: Pool(process, self.settings, tls)
        from .httpx_door import ThroughHttpx, client_of  # noqa: PLC0415 - it is dear to load, and few need it

        client = client_of(self._brought, self._proxy, tls, self.settings)
        return lambda _: ThroughHttpx(self.settings, client, own=self._brought is None)

    def _tls(self) -> ssl.SSLContext | None:
        if self._context is None and self.address.secure:
            self._context = Trust().context() if self._trust is None else self._trust  # type: ignore[assignment]
        return self._context


class SseRoute(HttpRoute):
    """A server of the old transport: the URL is that of its stream."""

    old = True


def _arrived(
    desk: Desk,
    url: str,
    *,
    fixed: Mapping[str, str] | None,
    proxy: str | None,
    old: bool,
    veiled: bool,
    **options: Any,
) -> HttpRoute:
    """The route of a ticket. Who we are, where that is not `fixed`, is asked for at home."""
    credentials = desk if fixed is None else FixedHeaders(fixed)
    route = (SseRoute if old else HttpRoute)(url, credentials=credentials, **options)
    if veiled:
        route.veil()
    route._proxy = proxy  # noqa: SLF001 - what holds is what the environment says at home
    return route


def _proxy_around(address: Address) -> str | None:
    """The proxy that the environment asks for."""
    if is_loopback(address.host):
        return None
    proxies = getproxies_environment()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    return None if not proxy or proxy_bypass_environment(address.host, proxies) else proxy


def _checked(headers: Mapping[str, str]) -> Headers:
    found = {AGENT[0]: AGENT[1]}
    for name, value in headers.items():
        if not is_header(name, value):
            raise ConfigError(f"no header can be made of {name!r} and its value")
        if name.lower() in _OURS:
            raise ConfigError(f"{name} is what the transport itself has to say")
        found[name.lower()] = value
    return tuple(found.items())
