"""`HttpSettings`: how a client uses HTTP. One frozen value, validated when it is made. Times are seconds, sizes bytes. And `Trust`, for TLS."""

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
    """Settings of a client's HTTP connections. Every field is optional."""

    connect_timeout: float = 10.0
    """How long connecting may take, the TLS handshake included."""
    send_timeout: float = 30.0
    """How long the server may take to acknowledge a notification or an answer; a request has its caller's deadline."""
    max_connections: int = 64
    """How many requests may be in flight; the others wait. Notifications and answers to the server do not wait for those."""
    max_waiting: int = 1024
    """How many messages may be queued before more are refused with `WireFull`."""
    max_waiting_bytes: int = 64 * _MIB
    idle: float = 4.0
    """How long an idle connection is kept. Most servers close theirs after five seconds, and a request sent at that moment may or may not be executed."""
    max_header: int = 32 * 1024
    max_response: int = 16 * _MIB
    """The largest reply that is one JSON text."""
    max_event: int = 4 * _MIB
    """The largest event of a stream. The stream itself may have any length."""
    quarantine: int = 1000
    """After so many invalid messages in a row the session ends: it is no MCP server. The same holds for a child process's output."""
    retry: float = 1.0
    """After how long a broken stream is reopened, unless the server says."""
    max_retry: float = 60.0
    """The longest delay that the server can ask for."""
    resumes: int = 5
    """How often in a row a reply's stream is resumed without any progress before the request is lost."""
    silence: float | None = None
    """After how long a stream without a byte, not even a comment, counts as dead.

    None leaves that to TCP keep-alive and to the caller's deadline. For servers that send comments, three times their interval is a good
    value.
    """
    close_grace: float = 2.0
    """How long closing may take: queued messages are sent, and the session is deleted."""
    redirects: int = 3
    """How many redirects are followed in a row; only within the same origin, and only those that keep the method."""

    def __post_init__(self) -> None:
        """Raises `ConfigError` for invalid values."""
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


# --- TLS: the authorities that a client trusts, and its own certificate. Loaded when it is set up; verification is always on.
# There is no switch to disable verification. A server with a self-signed certificate is trusted by naming that certificate, or its issuer,
# as `cacertfile`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The trusted authorities and our own certificate. By default the system's authorities are trusted."""

    cacertfile: str | os.PathLike[str] | None = None
    """The only trusted authorities, as PEM."""
    certfile: str | os.PathLike[str] | None = None
    """Our certificate with its chain, as PEM, for servers that ask for one."""
    keyfile: str | os.PathLike[str] | None = None
    """The certificate's private key; None: it is in the same file."""
    keyfile_password: str | bytes | None = field(default=None, repr=False)
    """The password of an encrypted key."""

    def located(self) -> Trust:
        """The same with absolute paths, valid from any working directory."""
        found = {name: getattr(self, name) for name in ("cacertfile", "certfile", "keyfile")}
        return replace(
            self, **{name: None if path is None else str(Path(path).absolute()) for name, path in found.items()}
        )

    def context(self) -> ssl.SSLContext:
        """Raises `ConfigError` that names the unusable file."""
        cacertfile = None if self.cacertfile is None else Path(self.cacertfile)
        try:
            context = ssl.create_default_context(cafile=cacertfile)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cacertfile {cacertfile}: {error_text(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self.certfile is not None:
            password = (
                self.keyfile_password or ""
            )  # passed as a function, since OpenSSL would otherwise ask for a missing password at the terminal
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=lambda: password)
            except (OSError, ssl.SSLError, ValueError) as error:
                raise ConfigError(f"certfile {self.certfile}: {error_text(error)}") from None
        elif self.keyfile is not None:
            raise ConfigError("keyfile needs a certfile")
        return context


def error_text(error: BaseException) -> str:
    """The reason of a failed connection in plain words, without OpenSSL's source locations."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, ConnectionRefusedError):
        return "no server listens there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
