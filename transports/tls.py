"""TLS for listeners: certificates, and the connection between a socket's transport and the protocol inside TLS.

Certificates are loaded and tried before anything listens, and reloaded when they are renewed. An unusable one is an error that names the
file; an expired one is a warning. No message contains a key or its password.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .http_config import HttpConfig
    from .open_connections import OpenConnections

log: Final = logging.getLogger("greenroom.http")

H2: Final = "h2"
HTTP1: Final = "http/1.1"

EXPIRY_WARNING: Final = 14 * 86_400.0
"""Seconds before its expiry from which on a certificate causes a warning."""

_UNREADABLE: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "there is no such file",
    PermissionError: "this user may not read it",
}
_EXPIRED: Final = 10
_NOT_YET: Final = 9


class BadCertificate(ConfigError):
    """A certificate or key cannot be used; the message names the file and the reason."""


class Certificates:
    """A listener's certificates: always the last ones that were valid."""

    def __init__(self, config: HttpConfig) -> None:
        """Raises `BadCertificate`."""
        self._config = config
        self.context = _load_context(config)

    def reload(self) -> None:
        """Read the files again, for new connections. Raises `BadCertificate`, and then nothing has changed."""
        self.context = _load_context(self._config)


def _load_context(config: HttpConfig) -> ssl.SSLContext:
    assert config.certfile is not None
    certfile, keyfile = Path(config.certfile), Path(config.keyfile or config.certfile)
    for name, path in (("certfile", certfile), ("keyfile", keyfile), ("cacertfile", config.cacertfile)):
        if path is not None:
            _check_readable(name, Path(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers(
        "ECDHE+AESGCM:ECDHE+CHACHA20"
    )  # for TLS 1.2: what HTTP/2 allows; every cipher of TLS 1.3 is good
    context.set_alpn_protocols([H2, HTTP1] if config.http2 else [HTTP1])
    password = (
        config.keyfile_password or ""
    )  # passed as a function, since OpenSSL would otherwise ask for a missing password at the terminal
    try:
        context.load_cert_chain(certfile, keyfile, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCertificate(_load_error(error, certfile, keyfile, given=bool(password))) from None
    _try_handshake(context, certfile)
    if config.cacertfile is not None:
        try:
            context.load_verify_locations(config.cacertfile)
        except (ssl.SSLError, OSError):
            raise BadCertificate(f"cacertfile {config.cacertfile}: there is no certificate in it (PEM)") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        why = _UNREADABLE.get(type(error), error.strerror)
        raise BadCertificate(f"{name} {path}: {why}") from None


def _load_error(error: Exception, certfile: Path, keyfile: Path, *, given: bool) -> str:
    """The reason of a failed load: OpenSSL reports many causes by the same error."""
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"keyfile {keyfile}: the key is not that of the certificate in {certfile}"
    if b"CERTIFICATE-----" not in certfile.read_bytes():
        return f"certfile {certfile}: there is no certificate in it (PEM)"
    key = keyfile.read_bytes()
    if b"PRIVATE KEY-----" not in key:
        return f"keyfile {keyfile}: there is no private key in it (PEM)"
    if b"ENCRYPTED" in key:
        told = "keyfile_password is wrong" if given else "it is encrypted: set keyfile_password"
        return f"keyfile {keyfile}: {told}"
    return f"certfile {certfile} and keyfile {keyfile}: OpenSSL cannot use them: {getattr(error, 'reason', None) or 'it does not say why'}"


def _try_handshake(server: ssl.SSLContext, certfile: Path) -> None:
    """Complete a handshake with ourselves, as a client that trusts this certificate: that shows errors which only peers would see."""
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
        for _ in range(4):  # enough rounds for every flight of a handshake
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
            log.warning("certfile %s: clients may refuse the certificate: %s", certfile, error.verify_message)
        return
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificate(
            f"certfile {certfile}: no handshake succeeds with it: {getattr(error, 'reason', None) or error}"
        ) from None
    left = ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time() if "notAfter" in shown else EXPIRY_WARNING
    if left < EXPIRY_WARNING:
        log.warning("certfile %s: the certificate expires in %.1f days", certfile, left / 86_400)


# --- The TLS connection.
# asyncio's own TLS does not count peers in their handshake as connections, hides how much the kernel has not accepted (so a peer that does
# not read is not noticed), cannot half-close, and costs a quarter of a MiB for each connection instead of a few KiB.

READ_SIZE: Final = 64 * 1024
RECORDS_PER_TURN: Final = 32
"""How many records are read from a connection in one turn of the loop: a peer may put a single byte in each."""
UNREAD_LIMIT: Final = 64 * 1024
"""How many undecrypted bytes are buffered before reading pauses."""


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """One TLS connection: the protocol of the socket's transport, and the transport of the protocol inside.

    During the handshake it is itself in the table of open connections.
    """

    def __init__(
        self, connections: OpenConnections, certificates: Certificates, inside: Callable[[str | None], asyncio.Protocol]
    ) -> None:
        """`inside` makes the protocol for the ALPN result."""
        super().__init__()
        self._connections = connections
        self._make_inside = inside
        self._inside: asyncio.Protocol | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = certificates.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: Any = None
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._continuation: asyncio.Handle | None = None
        self._paused_inside = False  # paused by the protocol inside
        self._reading = True
        self._eof_seen = False  # a TCP FIN without TLS close_notify; records before it may still be unread
        self._ended = False
        self._half_open = False
        self._close_notify_sent = False

    # --- callbacks of the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = transport
        if not self._connections.has_room(transport):
            self._ended = True
            self._raw.abort()
            return
        self._connections.add(self, transport)
        self._handshake_timer = self._connections.loop.call_later(
            self._connections.config.handshake_timeout, self.abort
        )

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._incoming.write(data)
        if self._inside is None and not self._do_handshake():
            return
        if self._continuation is None:
            self._read()
        self._update_reading()

    def _do_handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ValueError) as error:
            log.debug("a handshake failed: %s", error)
            self._ended = True
            self._flush()  # the alert with the reason
            self._raw.close()
            return False
        self._flush()
        self._inside = self._make_inside(self._tls.selected_alpn_protocol())
        self._end_handshake()
        self._inside.connection_made(self)
        return True

    def _read(self) -> None:
        assert self._inside is not None
        pieces: list[bytes] = []
        ended = False
        try:
            while len(pieces) < RECORDS_PER_TURN and not ended:
                piece = self._tls.read(READ_SIZE)
                pieces.append(piece)
                ended = not piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            log.debug("a connection broke TLS: %s", error)
            self._ended = True
            self._flush()
            self._raw.abort()
            return
        self._flush()  # TLS's own messages
        if data := pieces[0] if len(pieces) == 1 else b"".join(pieces):
            self._inside.data_received(data)
        if ended:
            self._end()
        elif len(pieces) == RECORDS_PER_TURN:
            self._continuation = self._connections.loop.call_soon(self._continue_input)
        elif self._eof_seen:
            self._end()

    def _continue_input(self) -> None:
        self._continuation = None
        if not self._ended and not self._raw.is_closing():
            self._read()
            self._update_reading()

    def _update_reading(self) -> None:
        """Resume or pause reading from the socket, by how much is buffered."""
        reading = not self._paused_inside and self._incoming.pending <= UNREAD_LIMIT
        if reading is not self._reading and not self._raw.is_closing():
            self._reading = reading
            if reading:
                self._raw.resume_reading()
            else:
                self._raw.pause_reading()

    def _end(self) -> None:
        """The peer sends no more. The connection may stay open for our response."""
        self._ended = True
        self._half_open = bool(self._inside and self._inside.eof_received())
        if not self._half_open:
            self.close()

    def eof_received(self) -> bool:
        """The TCP end, without or after the TLS one: HTTP marks the ends of its messages itself."""
        self._eof_seen = True
        if self._continuation is not None:
            return True
        if not self._ended:
            self._end()
        elif self._half_open and self._inside is not None:
            self._inside.eof_received()  # reported again: the peer may have waited for our end, and left
        return self._half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_handshake()
        self._ended = True
        if self._inside is not None:
            self._inside.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inside is not None:
            self._inside.pause_writing()

    def resume_writing(self) -> None:
        if self._inside is not None:
            self._inside.resume_writing()

    def _end_handshake(self) -> None:
        """The handshake is over: the protocol inside is in the table now, or there is none."""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
            self._connections.remove(self)

    # --- called by the table of connections during the handshake

    def close_when_idle(self) -> None:
        """Close: nothing is running."""
        self.abort()

    def cut(self) -> None:
        """Close."""
        self.abort()

    def cancel_tasks(self) -> None:
        """A no-op: there is no task to cancel."""

    # --- the transport, for the protocol inside

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "ssl_object":
                return self._tls
            case "sslcontext":
                return self._tls.context
            case "peercert":
                return self._tls.getpeercert() or default
            case "cipher":
                return self._tls.cipher() or default
            case _:
                return self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not data or self._close_notify_sent or self._raw.is_closing():
            return
        view = memoryview(data).cast("B")
        while view:  # a MemoryBIO has no limit, so a write never has to wait here
            view = view[self._tls.write(view) :]
        self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Half-close: send close_notify and FIN, and go on reading."""
        if not self._close_notify_sent:
            self._send_close_notify()
            if not self._raw.is_closing():
                self._raw.write_eof()

    def _send_close_notify(self) -> None:
        with suppress(ssl.SSLError, ValueError):  # unwrap wants the peer's close_notify, which may never come
            self._tls.unwrap()
        self._flush()
        self._close_notify_sent = True

    def close(self) -> None:
        """Send close_notify, and close when the kernel has accepted everything."""
        if not self._close_notify_sent:
            self._send_close_notify()
        self._raw.close()

    def abort(self) -> None:
        self._ended = True
        self._raw.abort()

    def _flush(self) -> None:
        if (data := self._outgoing.read()) and not self._close_notify_sent and not self._raw.is_closing():
            self._raw.write(data)

    def is_closing(self) -> bool:
        return bool(self._raw.is_closing())

    def pause_reading(self) -> None:
        """Pause reading; input that was decrypted already still arrives."""
        self._paused_inside = True
        self._update_reading()

    def resume_reading(self) -> None:
        self._paused_inside = False
        self._update_reading()

    def is_reading(self) -> bool:
        return not self._paused_inside

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        low, high = self._raw.get_write_buffer_limits()
        return low, high

    def get_write_buffer_size(self) -> int:
        return int(self._raw.get_write_buffer_size())

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._inside is not None
        return self._inside

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._inside = protocol
