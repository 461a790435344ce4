"""Whom a client trusts over TLS, and as whom it shows itself: read and tried when it is set up, and always verifying.

There is no switch to verify nothing. A server with a certificate of its own is trusted by naming that certificate, or who has signed
it, as `cacertfile`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What is known beforehand. Without anything, the system's authorities are trusted."""

    cacertfile: str | os.PathLike[str] | None = None
    """Whose certificates are trusted, and nobody else's, as PEM."""
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
