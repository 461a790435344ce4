"""`Admin`: the settings of a program's admin listener, which serves its health, its metrics and its observer."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.errors import ConfigError, suggests
from greenroom.transports.http_config import HttpConfig, Listed, is_loopback

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from greenroom.auth.auth_info import AuthProvider

Capture: TypeAlias = "bool | Collection[str]"

_LARGEST_BODY: Final = 256 * 1024
"""The largest body of a request to the listener in bytes: arguments of a tool that a viewer tries."""
_CONNECTIONS: Final = 128
_DRAIN: Final = 0.3


@suggests("Admin")
@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Where the admin listener is, who may use it, and what it shows. It is plain data, so that other processes of the program can have it."""

    port: int = 9091
    """The port; 0 takes a free one, which the printed address has."""
    host: str = "127.0.0.1"
    """The address to listen on. On one that other machines can reach, `auth` and `scope` are required."""
    auth: AuthProvider | Sequence[AuthProvider] | None = field(default=None, repr=False)
    """Authenticates viewers, and readers of the metrics, as a server's `auth` does. None: by the link that the program prints, on this machine alone."""
    scope: str | None = None
    """The scope that each viewer needs. Required with `auth`."""
    act_scope: str | None = None
    """The scope for acts and faults, which `scope` does not include. Required with `auth` where `acts` or `faults` are on."""
    acts: bool = False
    """Whether viewers may act: end, restart, retry, park and drain."""
    faults: bool = False
    """Whether viewers may inject faults."""
    capture: Capture = False
    """Whether arguments and results of calls are shown: of all calls, or of these tools. Secrets never are."""
    allowed_hosts: Listed = None
    """The accepted values of `Host`, as for `HttpConfig`. None: this machine's names on a loopback address, and on another one that address alone."""
    certfile: str | os.PathLike[str] | None = None
    """The certificate with its chain, as PEM. With it the listener speaks TLS only."""
    keyfile: str | os.PathLike[str] | None = None
    """The certificate's private key; None: it is in the same file."""
    session_lifetime: float = 8 * 3600.0
    """After how many seconds a viewer has to sign in again."""
    link_lifetime: float = 3600.0
    """For how many seconds a link with a one-time token can be used."""
    max_viewers: int = 32
    """The most browsers that are signed in at once; the one that has been idle for longest gives way to the next."""

    def __post_init__(self) -> None:
        self._check_kinds()
        if not is_loopback(self.host) and (self.auth is None or not self.scope):
            missing = "auth" if self.auth is None else "scope"
            raise ConfigError(
                f"the admin listener on {self.host} can be reached from other machines, and has no {missing}: write "
                f'Admin(host="{self.host}", auth=BearerAuth(…), scope="observe"), or leave out host to listen on 127.0.0.1'
            )
        if self.auth is not None and not self.scope:
            raise ConfigError(
                'Admin(auth=…) needs the scope that viewers must have: write Admin(auth=…, scope="observe")'
            )
        if self.auth is None and (self.scope or self.act_scope):
            raise ConfigError("Admin(scope=…) needs auth: configure how viewers authenticate, or leave out the scope")
        if self.auth is not None and (self.acts or self.faults) and not self.act_scope:
            raise ConfigError(
                "Admin(acts=True) or Admin(faults=True) with auth needs a scope of its own for them: write "
                f'Admin(auth=…, scope="{self.scope}", act_scope="operate", …)'
            )
        _ = self.http_config  # its own checks

    def _check_kinds(self) -> None:
        for name in ("acts", "faults"):
            value: Any = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"Admin({name}=…) must be True or False, not {value!r}")
        for name in ("scope", "act_scope"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value or set(value) & set(' \t\r\n"\\')):
                raise ConfigError(f"Admin({name}=…) must be one word without blanks, or None, not {value!r}")
        for name in ("session_lifetime", "link_lifetime"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ConfigError(f"Admin({name}=…) must be a number of seconds, more than 0, not {value!r}")
        viewers: Any = self.max_viewers
        if not isinstance(viewers, int) or isinstance(viewers, bool) or viewers < 1:
            raise ConfigError(f"Admin(max_viewers=…) must be a whole number, 1 or more, not {viewers!r}")
        shown: Any = self.capture
        if not isinstance(shown, bool) and (
            isinstance(shown, str)
            or not isinstance(shown, Collection)
            or not all(isinstance(each, str) for each in shown)  # pyright: ignore[reportUnknownVariableType]
        ):
            raise ConfigError(
                f'Admin(capture=…) must be True, False or names of tools, as in capture=["add"], not {shown!r}'
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the listener."""
        return is_loopback(self.host)

    @property
    def is_tls(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.certfile is not None

    @property
    def http_config(self) -> HttpConfig:
        """The settings of the HTTP listener below it: served by Hypercorn, with small bounds, since its peers are a few browsers and a scraper."""
        hosts = self.allowed_hosts
        if hosts is None and not self.is_loopback:
            hosts = (self.host,)
        return HttpConfig(
            host=self.host,
            port=self.port,
            hypercorn=True,
            allowed_hosts=hosts,
            allowed_origins=None if self.is_loopback else (),
            certfile=self.certfile,
            keyfile=self.keyfile,
            max_body=_LARGEST_BODY,
            body_timeout=10.0,
            header_timeout=10.0,
            write_timeout=10.0,
            max_header=16 * 1024,
            max_connections=_CONNECTIONS,
            backlog=_CONNECTIONS,
            drain_grace=_DRAIN,
        )
