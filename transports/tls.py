"""Certificates: what a listener shows, read and tried before anything listens, and read again when they are renewed.

What cannot work is an error that names the file. A certificate that has expired works, badly, and is a warning. Nothing of a
key or its password is ever in a message.
"""

from __future__ import annotations

import logging
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from .http_config import HttpConfig

log: Final = logging.getLogger("greenroom.http")

H2: Final = "h2"
HTTP1: Final = "http/1.1"

SOON: Final = 14 * 86_400.0
"""Seconds before its end from which on a certificate is worth a warning."""

_UNREADABLE: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "there is no such file",
    PermissionError: "this user may not read it",
}
_EXPIRED: Final = 10
_NOT_YET: Final = 9


class BadCertificate(ConfigError):
    """A certificate, a key or what they stand in cannot be used: which file, and why."""


class Certificates:
    """What a listener shows to those who connect: always the last that was right."""

    def __init__(self, config: HttpConfig) -> None:
        """Reads them. Raises `BadCertificate`."""
        self._config = config
        self.context = _context(config)

    def reload(self) -> None:
        """Read the files again, for those who connect from now on. Raises `BadCertificate`, and nothing has changed."""
        self.context = _context(self._config)


def _context(config: HttpConfig) -> ssl.SSLContext:
    assert config.certfile is not None
    certfile, keyfile = Path(config.certfile), Path(config.keyfile or config.certfile)
    for name, path in (("certfile", certfile), ("keyfile", keyfile), ("cacertfile", config.cacertfile)):
        if path is not None:
            _readable(name, Path(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2: what HTTP/2 allows; those of 1.3 are all good
    context.set_alpn_protocols([H2, HTTP1] if config.http2 else [HTTP1])
    password = config.keyfile_password or ""  # asked for as a function, or OpenSSL would ask at the terminal
    try:
        context.load_cert_chain(certfile, keyfile, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCertificate(_why(error, certfile, keyfile, given=bool(password))) from None
    _try(context, certfile)
    if config.cacertfile is not None:
        try:
            context.load_verify_locations(config.cacertfile)
        except (ssl.SSLError, OSError):
            raise BadCertificate(f"cacertfile {config.cacertfile}: there is no certificate in it (PEM)") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _readable(name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        why = _UNREADABLE.get(type(error), error.strerror)
        raise BadCertificate(f"{name} {path}: {why}") from None


def _why(error: Exception, certfile: Path, keyfile: Path, *, given: bool) -> str:
    """What OpenSSL means, which says the same of many things."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"keyfile {keyfile}: the key is not that of the certificate in {certfile}"
    if not _holds(certfile, b"CERTIFICATE-----"):
        return f"certfile {certfile}: there is no certificate in it (PEM)"
    if not _holds(keyfile, b"PRIVATE KEY-----"):
        return f"keyfile {keyfile}: there is no private key in it (PEM)"
    text = keyfile.read_bytes()
    if b"ENCRYPTED" in text:
        told = "keyfile_password does not open it" if given else "it is encrypted: say keyfile_password"
        return f"keyfile {keyfile}: {told}"
    return f"certfile {certfile} and keyfile {keyfile}: OpenSSL cannot use them: {getattr(error, 'reason', None) or 'it does not say why'}"


def _holds(path: Path, what: bytes) -> bool:
    return what in path.read_bytes()


def _try(server: ssl.SSLContext, certfile: Path) -> None:
    """Shake hands with ourselves, as somebody who trusts just this: that shows what only peers would see."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certfile)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there),
        server.wrap_bio(there, back, server_side=True),
    )
    try:
        for _ in range(4):  # flights
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        shown = ends[0].getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _EXPIRED:
            log.warning("certfile %s: the certificate has expired; clients will not connect", certfile)
        elif error.verify_code == _NOT_YET:
            log.warning("certfile %s: the certificate is not valid yet; clients will not connect", certfile)
        else:
            log.warning("certfile %s: clients may not like the certificate: %s", certfile, error.verify_message)
        return
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificate(
            f"certfile {certfile}: nobody could shake hands with it: {getattr(error, 'reason', None) or error}"
        ) from None
    left = ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time() if "notAfter" in shown else SOON
    if left < SOON:
        log.warning("certfile %s: the certificate expires in %.1f days", certfile, left / 86_400)
