"""How a client uses HTTP: one frozen value, checked when it is made. Times are seconds, sizes bytes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError, suggests

if TYPE_CHECKING:
    import os

_MIB: Final = 1024 * 1024


@suggests("HttpSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """All is optional, and the defaults are meant to be right."""

    connect_timeout: float = 10.0
    """How long it may take to connect, and to agree on TLS."""
    send_timeout: float = 30.0
    """How long the server may take to take note of what is no request; a request has the deadline of its caller."""
    max_connections: int = 64
    """How many requests may be under way at once; the others wait. Answers to the server, and notifications, do not wait for those."""
    max_waiting: int = 1024
    """How many messages may wait to be sent, before more are refused as `WireFull`."""
    max_waiting_bytes: int = 64 * _MIB
    idle: float = 4.0
    """How long an idle connection is kept: most servers hang up after five, and a caller that asks just then does not know what became of its request."""
    max_header: int = 32 * 1024
    max_response: int = 16 * _MIB
    """How large an answer may be that is one JSON text."""
    max_event: int = 4 * _MIB
    """How large one event of a stream may be. The stream itself may be of any length."""
    quarantine: int = 1000
    """So many messages in a row that are none, and it is no MCP server: the session ends. As on a child process's output."""
    retry: float = 1.0
    """After how long a broken stream is opened again, unless the server says."""
    max_retry: float = 60.0
    """How long the server can make us wait for that."""
    resumes: int = 5
    """How often in a row an answer's stream is taken up again without anything coming of it, before the request is lost."""
    silence: float | None = None
    """After how long a stream without a byte, not even a comment, is taken for dead. None leaves that to the kernel, which asks the
    peer's kernel, and to the caller's deadline; servers that send comments can be given three times their interval."""
    close_grace: float = 2.0
    """How long the end may take: what was said is sent, and the session given back."""
    redirects: int = 3
    """How many redirects are followed in a row; only within the same origin, and only such as keep the method."""

    def __post_init__(self) -> None:
        """Raises `ConfigError` for what makes no sense."""
        for name in (
            "connect_timeout",
            "send_timeout",
            "max_connections",
            "max_waiting",
            "max_response",
            "max_event",
            "quarantine",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be more than 0, not {getattr(self, name)!r}")
        for name in ("idle", "retry", "max_retry", "resumes", "close_grace", "redirects"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)!r}")
        if self.silence is not None and not self.silence > 0:
            raise ConfigError(f"silence must be more than 0 seconds, or None, not {self.silence!r}")


# --- Which authorities a client trusts over TLS, and with which certificate it shows itself: read and tried when it is set up, and always verifying.
# There is no switch to verify nothing. A server with a certificate of its own is trusted by naming that certificate, or the one that has signed
# it, as `cacertfile`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What is known beforehand. Without anything, the system's authorities are trusted."""

    cacertfile: str | os.PathLike[str] | None = None
    """The authorities that are trusted, and no others, as PEM."""
    certfile: str | os.PathLike[str] | None = None
    """Our own certificate, for servers that want one, and those that lead from it to one that they know, as PEM."""
    keyfile: str | os.PathLike[str] | None = None
    """Its private key; None: it is in the same file."""
    keyfile_password: str | bytes | None = field(default=None, repr=False)
    """What opens the key, if it is encrypted."""

    def located(self) -> Trust:
        """The same, by texts that name the same files from any working directory."""
        found = {name: getattr(self, name) for name in ("cacertfile", "certfile", "keyfile")}
        return replace(
            self, **{name: None if path is None else str(Path(path).absolute()) for name, path in found.items()}
        )

    def context(self) -> ssl.SSLContext:
        """Raises `ConfigError`, which names the file that cannot be used."""
        cacertfile = None if self.cacertfile is None else Path(self.cacertfile)
        try:
            context = ssl.create_default_context(cafile=cacertfile)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cacertfile {cacertfile}: {why(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self.certfile is not None:
            password = self.keyfile_password or ""  # asked for as a function, or OpenSSL would ask at the terminal
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=lambda: password)
            except (OSError, ssl.SSLError, ValueError) as error:
                raise ConfigError(f"certfile {self.certfile}: {why(error)}") from None
        elif self.keyfile is not None:
            raise ConfigError("a keyfile is of no use without its certfile")
        return context


def why(error: BaseException) -> str:
    """What went wrong with a connection, in words, and without what OpenSSL says of its own source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
