"""Certificates: what a listener shows, read and tried before anything listens, and read again when they are renewed.

What cannot work is an error that names the file. A certificate that has expired works, badly, and is a warning. Nothing of a
key or its password is ever in a message.
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
    from .open_connections import Hall

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
    """What a listener shows to its clients: always the last certificate that was right."""

    def __init__(self, config: HttpConfig) -> None:
        """Reads them. Raises `BadCertificate`."""
        self._config = config
        self.context = _context(config)

    def reload(self) -> None:
        """Read the files again, for connections from now on. Raises `BadCertificate`, and nothing has changed."""
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
    if b"CERTIFICATE-----" not in certfile.read_bytes():
        return f"certfile {certfile}: there is no certificate in it (PEM)"
    key = keyfile.read_bytes()
    if b"PRIVATE KEY-----" not in key:
        return f"keyfile {keyfile}: there is no private key in it (PEM)"
    if b"ENCRYPTED" in key:
        told = "keyfile_password does not open it" if given else "it is encrypted: say keyfile_password"
        return f"keyfile {keyfile}: {told}"
    return f"certfile {certfile} and keyfile {keyfile}: OpenSSL cannot use them: {getattr(error, 'reason', None) or 'it does not say why'}"


def _try(server: ssl.SSLContext, certfile: Path) -> None:
    """Shake hands with ourselves, as a client that trusts just this: that shows what only peers would see."""
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


# --- TLS between a socket's transport and the protocol that speaks inside: the handshake first, then bytes both ways.
# asyncio has this too. Ours counts a peer in its handshake among the connections, tells truly how much is not yet with the kernel (so a
# peer that does not read is seen), says the end and listens on as a plain connection can, and costs a connection a few KiB
# where asyncio's takes a quarter of a MiB.

PIECE: Final = 64 * 1024
RECORDS: Final = 32
"""How many records are taken of a connection in one turn of the loop: a peer may put a single byte in each."""
AHEAD: Final = 64 * 1024
"""How many bytes wait for their turn before no more is read."""


class TlsWire(asyncio.Protocol, asyncio.Transport):
    """One connection's: the socket's protocol, and the transport of the protocol that speaks inside.

    While it shakes hands it is a guest of the hall by itself.
    """

    def __init__(
        self, hall: Hall, certificates: Certificates, inside: Callable[[str | None], asyncio.Protocol]
    ) -> None:
        """`inside` makes the protocol, for what the handshake has agreed on. Nothing happens before there is a transport."""
        super().__init__()
        self._hall = hall
        self._make = inside
        self._inside: asyncio.Protocol | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = certificates.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: Any = None
        self._alarm: asyncio.TimerHandle | None = None
        self._going_on: asyncio.Handle | None = None
        self._held = False  # by the protocol inside
        self._reading = True
        self._fin = False  # said without TLS, maybe in front of what is still to be read
        self._ended = False
        self._half_open = False
        self._said_end = False

    # --- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and is to introduce itself."""
        self._raw = transport
        if not self._hall.has_room(transport):
            self._ended = True
            self._raw.abort()
            return
        self._hall.enter(self, transport)
        self._alarm = self._hall.loop.call_later(self._hall.config.handshake_timeout, self.abort)

    def data_received(self, data: bytes) -> None:
        """Take what came, as far as it makes sense."""
        if self._ended:
            return
        self._incoming.write(data)
        if self._inside is None and not self._shake():
            return
        if self._going_on is None:
            self._read()
        self._relax()

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ValueError) as error:
            log.debug("a handshake failed: %s", error)
            self._ended = True
            self._flush()  # the alert that says why
            self._raw.close()
            return False
        self._flush()
        self._inside = self._make(self._tls.selected_alpn_protocol())
        self._come_in()
        self._inside.connection_made(self)
        return True

    def _read(self) -> None:
        assert self._inside is not None
        pieces: list[bytes] = []
        ended = False
        try:
            while len(pieces) < RECORDS and not ended:
                piece = self._tls.read(PIECE)
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
        self._flush()  # what TLS itself has to say
        if data := pieces[0] if len(pieces) == 1 else b"".join(pieces):
            self._inside.data_received(data)
        if ended:
            self._end()
        elif len(pieces) == RECORDS:
            self._going_on = self._hall.loop.call_soon(self._go_on)
        elif self._fin:
            self._end()

    def _go_on(self) -> None:
        self._going_on = None
        if not self._ended and not self._raw.is_closing():
            self._read()
            self._relax()

    def _relax(self) -> None:
        """Read from the socket, unless too much waits already."""
        reading = not self._held and self._incoming.pending <= AHEAD
        if reading is not self._reading and not self._raw.is_closing():
            self._reading = reading
            if reading:
                self._raw.resume_reading()
            else:
                self._raw.pause_reading()

    def _end(self) -> None:
        """The peer says no more. The connection may stay open for what we have to say."""
        self._ended = True
        self._half_open = bool(self._inside and self._inside.eof_received())
        if not self._half_open:
            self.close()

    def eof_received(self) -> bool:
        """The same, said without TLS, or after it: HTTP knows by itself where its messages end."""
        self._fin = True
        if self._going_on is not None:
            return True
        if not self._ended:
            self._end()
        elif self._half_open and self._inside is not None:
            self._inside.eof_received()  # once more: it may have waited for our end, and left
        return self._half_open

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._come_in()
        self._ended = True
        if self._inside is not None:
            self._inside.connection_lost(exc)

    def pause_writing(self) -> None:
        """The kernel has enough."""
        if self._inside is not None:
            self._inside.pause_writing()

    def resume_writing(self) -> None:
        """The kernel takes more."""
        if self._inside is not None:
            self._inside.resume_writing()

    def _come_in(self) -> None:
        """The handshake is over: from now on the protocol inside is the guest, or there is none."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            self._hall.left(self)

    # --- from the hall, while the handshake lasts

    def leave(self) -> None:
        """Go: nothing is running."""
        self.abort()

    def cut(self) -> None:
        """Go."""
        self.abort()

    def kill(self) -> None:
        """There is nothing to it but the socket."""

    # --- from inside: as a plain connection, but that it says more of itself

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket knows, and what TLS does."""
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
        """Send this."""
        if not data or self._said_end or self._raw.is_closing():
            return
        view = memoryview(data).cast("B")
        while view:  # the buffer between has no end, so nothing ever has to wait here
            view = view[self._tls.write(view) :]
        self._flush()

    def can_write_eof(self) -> bool:
        """It can be said that this was all."""
        return True

    def write_eof(self) -> None:
        """Say that this was all, and go on listening; what was sent before still goes out."""
        if not self._said_end:
            self._say_end()
            if not self._raw.is_closing():
                self._raw.write_eof()

    def _say_end(self) -> None:
        with suppress(ssl.SSLError, ValueError):  # it wants to hear the other end's, which comes or does not
            self._tls.unwrap()
        self._flush()
        self._said_end = True

    def close(self) -> None:
        """Say so, and be gone when the kernel has it all."""
        if not self._said_end:
            self._say_end()
        self._raw.close()

    def abort(self) -> None:
        """Be gone."""
        self._ended = True
        self._raw.abort()

    def _flush(self) -> None:
        if (data := self._outgoing.read()) and not self._said_end and not self._raw.is_closing():
            self._raw.write(data)

    def is_closing(self) -> bool:
        """Whether it is on its way out."""
        return bool(self._raw.is_closing())

    def pause_reading(self) -> None:
        """Take nothing more for now; what is already here still comes."""
        self._held = True
        self._relax()

    def resume_reading(self) -> None:
        """Take more again."""
        self._held = False
        self._relax()

    def is_reading(self) -> bool:
        """Whether it takes what comes."""
        return not self._held

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """From how many bytes on a writer is to wait."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The same, as it is: low and high."""
        low, high = self._raw.get_write_buffer_limits()
        return low, high

    def get_write_buffer_size(self) -> int:
        """How much the kernel has not got yet."""
        return int(self._raw.get_write_buffer_size())

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that speaks."""
        assert self._inside is not None
        return self._inside

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol speak."""
        assert isinstance(protocol, asyncio.Protocol)
        self._inside = protocol
