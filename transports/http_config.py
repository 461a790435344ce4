"""How a server is reached over HTTP: one frozen value, checked when it is made, whose defaults are safe.

Whoever listens on more than this machine says which origins may call (`allowed_origins`), since a browser tells every page that
asks. On a loopback address that is known without being told. Times are seconds.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    import os

Listed: TypeAlias = Sequence[str] | Literal["any"] | None

ANY: Final = "any"
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
METHODS: Final = ("POST", "GET", "DELETE", "OPTIONS")

_MIB: Final = 1024 * 1024


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone. A name other than `localhost` counts as public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where to listen, who may call, what is served, and how much is taken from a peer. All is optional."""

    host: str = "127.0.0.1"
    port: int = 9090
    """0 takes any that is free; the listener says which."""
    path: str = "/mcp"
    serve_root: bool = True
    """Whether the endpoint is at `/` as well, which is where it stands when it is mounted in another application."""

    certfile: str | os.PathLike[str] | None = None
    """The certificate, and those that lead from it to one that clients know, as PEM. With it, TLS is spoken, and nothing else."""
    keyfile: str | os.PathLike[str] | None = None
    """The certificate's private key; None: it is in the same file."""
    keyfile_password: str | bytes | None = field(default=None, repr=False)
    """What opens the key, if it is encrypted."""
    cacertfile: str | os.PathLike[str] | None = None
    """Whose certificates clients have to show; None: they need none."""
    http2: bool = False
    """Whether clients that can are spoken to in HTTP/2. Only over TLS."""
    handshake_timeout: float = 30.0
    """How long it may take a new connection to agree on TLS."""
    max_streams: int = 128
    """How many requests may run at once on one connection of HTTP/2."""

    allowed_origins: Listed = None
    """Which pages may call, as `scheme://host[:port]`, `"null"` among them if need be; `"any"` for all. None: those of this
    machine, if `host` is a loopback address; else it must be said."""
    allow_missing_origin: bool | None = None
    """Whether callers that are no browser, and send no `Origin`, may call. None: on a loopback address only."""
    allowed_hosts: Listed = None
    """What `Host` may say, as `name` or `name:port`; `"any"` for all. None: this machine's names on a loopback address, where
    it keeps other names from being pointed here; elsewhere all."""

    session_enabled: bool = True
    """Without, no session id is given out or read, and each request stands alone."""
    require_session: bool = True
    """Whether a request without a session id is refused, rather than answered alone."""
    enable_get: bool = True
    allow_delete: bool = True
    validate_protocol_version: bool = True
    accept: Literal["both", "either"] = "both"
    """Whether a POST has to accept JSON and event streams, as the protocol wants it, or may accept just one of them."""
    honour_accept_order: bool = False
    """Whether an answer goes as an event stream, though there is only the answer, when the peer names that first."""

    plain: bool = False
    """Plain HTTP for the oldest clients: one POST, one JSON answer, no sessions and no streams."""
    old_sse: bool = False
    """Whether clients of 2024-11-05 may come too, who open a stream at `old_sse_path` and post to `old_messages_path`."""
    old_sse_path: str = "/sse"
    old_messages_path: str = "/messages"

    hypercorn: bool = False
    """Whether HTTP/1.1 goes by way of Hypercorn's parser and streams, at several times the cost, instead of by ours."""

    max_body: int = 4 * _MIB
    body_timeout: float = 30.0
    """How long a request's body may take to arrive, all of it."""
    heartbeat: float = 30.0
    """After how long a silent stream carries a comment, by which both ends and all between see that it lives."""
    sse_retry: float | None = None
    """How long a reader is asked to wait before it comes back to a stream that broke; None leaves that to it."""
    write_timeout: float = 20.0
    """How long a peer may take to read what it is sent. Then its connection is cut."""
    header_timeout: float = 30.0
    """How long a new connection may take to say what it wants."""
    keep_alive: float = 75.0
    """How long a connection may be idle between requests: longer than the proxy in front keeps it."""
    keep_alive_requests: int = 1_000_000
    max_header: int = 32 * 1024
    """How many bytes a request's line and headers may have."""
    max_connections: int = 16_384
    backlog: int = 2048
    send_buffer: int | None = None
    """The kernel's buffer for each connection, in bytes; None leaves it to the kernel."""
    drain_grace: float = 5.0
    """How long requests that are running may take to end, once the listener is told to stop."""

    def __post_init__(self) -> None:
        self._check_where()
        self._check_tls()
        for name in _SECONDS:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
                raise ConfigError(f"{name} must be a number of seconds, more than 0, not {value!r}")
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} must be a whole number, 1 or more, not {value!r}")
        if self.sse_retry is not None and not 0 <= self.sse_retry < math.inf:
            raise ConfigError(f"sse_retry must be a number of seconds, 0 or more, or None, not {self.sse_retry!r}")
        if not 0 <= self.drain_grace < math.inf:
            raise ConfigError(f"drain_grace must be a number of seconds, 0 or more, not {self.drain_grace!r}")
        if self.send_buffer is not None and self.send_buffer < 1:
            raise ConfigError(f"send_buffer must be a number of bytes, 1 or more, or None, not {self.send_buffer!r}")

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
            raise ConfigError(f"port must be between 0 and 65535, not {self.port!r}")
        for name in ("allowed_origins", "allowed_hosts"):
            _check_listed(name, getattr(self, name))
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
        """Whether TLS is spoken."""
        return self.certfile is not None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def takes_missing_origin(self) -> bool:
        """Whether a request without an `Origin` may come in."""
        return self.is_loopback if self.allow_missing_origin is None else self.allow_missing_origin

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods that are served, as `Allow` names them."""
        off = {"GET": self.plain or not self.enable_get, "DELETE": self.plain or not self.allow_delete}
        return tuple(method for method in METHODS if not off.get(method))


_SECONDS: Final = ("body_timeout", "heartbeat", "write_timeout", "header_timeout", "keep_alive", "handshake_timeout")
_COUNTS: Final = ("max_body", "keep_alive_requests", "max_header", "max_connections", "backlog", "max_streams")


def _check_listed(name: str, listed: object) -> None:
    if listed is None or listed == ANY:
        return
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise ConfigError(f"{name} must be a list, or 'any', not {listed!r}")
    for each in listed:  # pyright: ignore[reportUnknownVariableType] - whatever it was given
        if not isinstance(each, str) or not each or each == "*":
            raise ConfigError(f"{name} must be a list of texts without wildcards (or 'any' alone), but has {each!r}")
