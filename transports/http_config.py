"""`HttpConfig`: how a server is reached over HTTP. One frozen value, validated when it is made, with safe defaults.

A server that listens on more than this machine has to name the page origins that may call (`allowed_origins`), since browsers let every
page send requests. On a loopback address the default is safe. Times are seconds.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from greenroom.errors import ConfigError, suggests

from .open_connections import TrustedProxies

if TYPE_CHECKING:
    import os

Listed: TypeAlias = Sequence[str] | Literal["any"] | None

ANY: Final = "any"
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
METHODS: Final = ("POST", "GET", "DELETE", "OPTIONS")

_MIB: Final = 1024 * 1024
_BODIES: Final = 256 * _MIB
DRAIN_GRACE: Final = 5.0
"""Seconds for running requests where neither a setting nor the program says how many."""


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone. A name other than `localhost` counts as public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@suggests("HttpConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where to listen, which origins may call, what is served, and the limits for peers. Every field is optional."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8000
    """The port; 0 takes a free one, which the listener reports."""
    path: str = "/mcp"
    """The endpoint's path."""
    serve_root: bool = True
    """Whether the endpoint is at `/` as well, where it is when mounted in another application."""

    certfile: str | os.PathLike[str] | None = None
    """The certificate with its chain, as PEM. With it the listener speaks TLS only."""
    keyfile: str | os.PathLike[str] | None = None
    """The certificate's private key; None: it is in the same file."""
    keyfile_password: str | bytes | None = field(default=None, repr=False)
    """The password of an encrypted key."""
    cacertfile: str | os.PathLike[str] | None = None
    """The authorities whose certificates clients must present; None: clients need no certificate."""
    http2: bool = False
    """Whether HTTP/2 is offered to clients. Only over TLS."""
    handshake_timeout: float = 30.0
    """How long a new connection's TLS handshake may take."""
    max_streams: int = 128
    """How many requests may run at once on one HTTP/2 connection."""

    allowed_origins: Listed = None
    """The page origins that may call, as `scheme://host[:port]`, also `"null"`; `"any"` for all.

    None: pages of this machine, if `host` is a loopback address; otherwise the origins have to be given.
    """
    allow_missing_origin: bool = True
    """Whether requests without an `Origin` are served.

    A browser sends one with every POST, so a request without it comes from a program, which no list of origins is about. False is for a
    server that only pages may call.
    """
    allowed_hosts: Listed = None
    """The accepted values of `Host`, as `name` or `name:port`; `"any"` for all: the public names of this server, also behind a proxy that forwards `Host`.

    None: this machine's names on a loopback address, which prevents DNS rebinding; elsewhere any, since there the `Origin`, which a page
    cannot hide, protects.
    """

    session_enabled: bool = True
    """Whether sessions are used. If not, no session id is issued or read, and each request stands alone."""
    require_session: bool = True
    """Whether a request without a session id is refused instead of answered without a session."""
    enable_get: bool = True
    """Whether GET opens a stream for messages that belong to no call."""
    allow_delete: bool = True
    """Whether a client may end its session with DELETE."""
    validate_protocol_version: bool = True
    """Whether a request with an unknown `MCP-Protocol-Version` is refused."""
    accept: Literal["both", "either"] = "both"
    """Whether a POST has to accept both JSON and event streams, as the protocol asks, or one of them is enough."""
    honour_accept_order: bool = False
    """Whether a single reply is sent as an event stream when the peer's `Accept` lists that first."""

    plain: bool = False
    """Plain HTTP for the oldest clients: one POST, one JSON response, no sessions and no streams."""
    old_sse: bool = False
    """Whether clients of revision 2024-11-05 are served, which open a stream at `old_sse_path` and post to `old_messages_path`."""
    old_sse_path: str = "/sse"
    """Where clients of 2024-11-05 open their stream."""
    old_messages_path: str = "/messages"
    """Where clients of 2024-11-05 post messages."""

    hypercorn: bool = False
    """Whether HTTP/1.1 is served by Hypercorn instead of our own implementation, at several times the cost."""

    max_body: int = 4 * _MIB
    """The largest request body, in bytes."""
    max_bodies: int | None = None
    """The memory for request bodies that are being read, in bytes over all connections; more is refused (503, with `Retry-After`).

    A principal, or an address without one, may use as much as is free: half of it if it is alone. None: 256 MiB, or eight times `max_body`
    if that is more.
    """
    body_timeout: float = 30.0
    """How long a whole request body may take to arrive."""
    heartbeat: float = 30.0
    """After how long a silent stream carries a comment, which keeps it alive through proxies and detects a broken connection."""
    quiet_after: float | None = 10.0
    """After how many seconds without a message a call's response becomes an event stream with comments, if the client accepts streams.

    A proxy would take the silence for a hanging server and cut the connection. Such a stream carries a comment that often. None: never.
    """
    sse_retry: float | None = None
    """How long a client is asked to wait before it reconnects a broken stream; None leaves that to the client."""
    write_timeout: float = 20.0
    """How long a peer may take to read what it is sent before its connection is cut."""
    header_timeout: float = 30.0
    """How long a new connection may take to send its first request head."""
    keep_alive: float = 75.0
    """How long a connection may be idle between requests: longer than the proxy in front keeps it."""
    keep_alive_requests: int = 1_000_000
    """After how many requests a connection is closed."""
    max_header: int = 32 * 1024
    """The largest request head, in bytes."""
    max_connections: int = 16_384
    """The most open connections. Fewer where the limit of open files (`ulimit -n`) is low: a quarter of that is reserved for files, child processes and upstream servers."""
    max_connections_per_address: int | None = None
    """The most connections of one address, or of one IPv6 /64. None: a quarter of all, at least 8."""
    trusted_proxies: Sequence[str] | None = None
    """Addresses and networks of proxies, each of which brings many clients, so that their connections are not counted by address.

    None: the loopback addresses, since a proxy on this machine connects from there; an empty list for none. With a list, the access log has
    the client's address from the proxies' `X-Forwarded-For`, which each of them must write or extend.
    """
    backlog: int = 2048
    """How many connections the kernel queues before they are accepted."""
    send_buffer: int | None = None
    """The kernel's send buffer for each connection, in bytes; None leaves it to the kernel."""
    drain_grace: float | None = None
    """How long running requests may take after the listener begins to stop.

    None: as long as the `grace` of `server.run` allows; 5 seconds for a listener of `server.listen` or `child_spec`.
    """

    def __post_init__(self) -> None:
        _check_kinds(self)
        self._check_where()
        self._check_tls()
        for name in _SECONDS:
            value = getattr(self, name)
            if not _is_number(value) or not math.isfinite(value) or value <= 0:
                raise ConfigError(f"{name} must be a number of seconds, more than 0, not {value!r}")
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number, 1 or more, not {value!r}")
        self._check_bodies()
        share: Any = self.max_connections_per_address
        if share is not None and (not isinstance(share, int) or isinstance(share, bool) or share < 1):
            raise ConfigError(f"max_connections_per_address must be a whole number, 1 or more, or None, not {share!r}")
        quiet: Any = self.quiet_after
        if quiet is not None and not (_is_number(quiet) and math.isfinite(quiet) and quiet > 0):
            raise ConfigError(f"quiet_after must be a number of seconds, more than 0, or None, not {quiet!r}")
        if self.sse_retry is not None and not (_is_number(self.sse_retry) and 0 <= self.sse_retry < math.inf):
            raise ConfigError(f"sse_retry must be a number of seconds, 0 or more, or None, not {self.sse_retry!r}")
        if self.drain_grace is not None and not (_is_number(self.drain_grace) and 0 <= self.drain_grace < math.inf):
            raise ConfigError(f"drain_grace must be a number of seconds, 0 or more, or None, not {self.drain_grace!r}")
        if self.send_buffer is not None and not (_is_whole(self.send_buffer) and self.send_buffer >= 1):
            raise ConfigError(f"send_buffer must be a number of bytes, 1 or more, or None, not {self.send_buffer!r}")

    def _check_bodies(self) -> None:
        most: Any = self.max_bodies
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 2 * self.max_body):
            raise ConfigError(
                f"max_bodies must be a whole number, at least twice max_body ({2 * self.max_body}) since one caller gets half of it, "
                f"or None, not {most!r}"
            )

    @property
    def bodies(self) -> int:
        """The memory for request bodies, in bytes."""
        return max(_BODIES, 8 * self.max_body) if self.max_bodies is None else self.max_bodies

    def _check_where(self) -> None:
        for name in ("path", "old_sse_path", "old_messages_path"):
            path: str = getattr(self, name)
            if not path.startswith("/") or "?" in path or "#" in path:
                raise ConfigError(f"{name} must begin with a slash and be a path alone, not {path!r}")
        if self.old_sse and len({self.path, self.old_sse_path, self.old_messages_path}) < 3:  # noqa: PLR2004 - all differ
            raise ConfigError("path, old_sse_path and old_messages_path must differ")
        if self.plain and self.old_sse:
            raise ConfigError("plain and old_sse exclude each other: plain has no streams")
        if not 0 <= self.port <= 65535:  # noqa: PLR2004 - what a port is
            raise ConfigError(f"port must be between 0 and 65535, 0 for any that is free, not {self.port!r}")
        for name in ("allowed_origins", "allowed_hosts"):
            _check_listed(name, getattr(self, name))
        from .http_request import AllowedHosts  # noqa: PLC0415 - it imports this module

        AllowedHosts(self)
        if isinstance(self.trusted_proxies, str):
            raise ConfigError(f"trusted_proxies must be a list of addresses and networks, not {self.trusted_proxies!r}")
        TrustedProxies(self.trusted_proxies)
        if self.allowed_origins is None and not self.is_loopback:
            raise ConfigError(
                f"{self.host} can be reached from other machines: say allowed_origins=[…] with the origins that may call "
                "(an empty list for none, 'any' for all), or listen on 127.0.0.1"
            )
        if self.accept not in ("both", "either"):
            raise ConfigError(f"accept must be 'both' or 'either', not {self.accept!r}")

    def _check_tls(self) -> None:
        for name in ("keyfile", "cacertfile", "http2"):
            if getattr(self, name) and self.certfile is None:
                raise ConfigError(f"{name} needs a certfile: without, there is no TLS")

    @property
    def is_tls(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.certfile is not None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the listener."""
        return is_loopback(self.host)

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods served, in the order of `Allow`."""
        bare = (
            self.plain or not self.session_enabled
        )  # without sessions there is neither a standalone stream nor a session to end
        off = {"GET": bare or not self.enable_get, "DELETE": bare or not self.allow_delete}
        return tuple(method for method in METHODS if not off.get(method))


_SECONDS: Final = ("body_timeout", "heartbeat", "write_timeout", "header_timeout", "keep_alive", "handshake_timeout")
_COUNTS: Final = ("max_body", "keep_alive_requests", "max_header", "max_connections", "backlog", "max_streams")


_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_kinds(config: HttpConfig) -> None:
    """Refuse values of the wrong type, with what to write instead: environment variables and configuration files often supply texts."""
    port: Any = config.port
    if not _is_whole(port):
        as_number = f": write int({port!r})" if isinstance(port, str) and port.strip().isdecimal() else ""
        raise ConfigError(f"port must be a whole number from 0 to 65535, not {port!r}{as_number}")
    for each in fields(config):
        value: Any = getattr(config, each.name)
        if each.type == "bool" and not isinstance(value, bool):
            raise ConfigError(f"{each.name} must be True or False, not {value!r}")
        if each.type == "str" and not isinstance(value, str):
            raise ConfigError(f"{each.name} must be a text, not {value!r}")
        if each.name in ("certfile", "keyfile", "cacertfile") and not isinstance(value, str | PathLike | None):
            raise ConfigError(f"{each.name} must be the path of a file, or None, not {value!r}")


def _check_listed(name: str, listed: object) -> None:
    if listed is None or listed == ANY:
        return
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise ConfigError(f"{name} must be a list, or 'any', not {listed!r}")
    for each in listed:  # pyright: ignore[reportUnknownVariableType] - whatever it was given
        if not isinstance(each, str) or not each or each == "*":
            raise ConfigError(f"{name} must be a list of texts without wildcards (or 'any' alone), but has {each!r}")
        if name == "allowed_origins" and each != "null" and not _ORIGIN.fullmatch(each):
            raise ConfigError(
                f"allowed_origins has {each!r}, which is no origin: write scheme://host[:port], such as https://app.example.com, without a path"
            )
