"""`ConnectionOpening`: how an attempt opens a connection, by `server/discover`, by `initialize`, or by the one after the other.

A server's era is a property of the server, so the last one that it spoke is the first guess. Without a guess the server is asked: whatever is no
discovery is the answer of a server that wants a handshake, and gets one on the same wire. A child process that dies of the question gets the
handshake in the next process. A guess that fails is forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import encode, encode_notification, encode_request
from greenroom.transports.client.errors import ConnectFailed, HttpError, WireFull
from greenroom.transports.client.interfaces import endpoint_of, extensions_of

from .errors import InitFailed, InitTimeout, RequestTimeout
from .handshake import (
    DISCOVER,
    INITIALIZE,
    initialize_error,
    initialize_params,
    names_stateless,
    read_discovery,
    read_welcome,
)
from .interfaces import Phase
from .outgoing_envelope import OutgoingEnvelope, mirrored_headers, stateless_capabilities
from .pending_requests import InternalRequest
from .settings import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.transports.client.interfaces import ClientWire, Route

    from .connection_line import ConnectionLine
    from .interfaces import ServerWelcome
    from .request_table import RequestTable

_QUOTED: Final = 200
"""Characters of an error that are kept as evidence."""
_MOST_QUESTIONS = 2
"""How often one attempt sends `server/discover`: once more where the answer names a revision of ours."""


def _with_mode(error: Exception, revision: str) -> Exception:
    """The error of a server that may speak an older, or a newer, revision than the settings allow: it says what to write."""
    if not isinstance(error, InitFailed) and not (isinstance(error, HttpError) and error.answer is not None):
        return error
    failed = (type(error) if isinstance(error, InitFailed) else InitFailed)(
        f'{error}; the mode allows no {revision} revision: where the server speaks one, write mode="auto" (--era auto)'
    )
    failed.__cause__ = error.__cause__ or error
    return failed


class ConnectionOpening:
    """The opening of one connection, anew with each attempt."""

    def __init__(
        self,
        line: ConnectionLine,
        requests: RequestTable,
        route: Route,
        handled: Mapping[str, Any],
        succeed: Callable[[ServerWelcome], object],
        fail: Callable[[Exception], object],
    ) -> None:
        """`handled` are the handler's capabilities; `succeed` or `fail` is called with the outcome of an attempt."""
        settings = line.settings
        self._line = line
        self._requests = requests
        self._succeed, self._fail = succeed, fail
        self._initialize_params = initialize_params(settings, handled)
        self.envelope = OutgoingEnvelope(
            settings.client_info,
            stateless_capabilities(
                self._initialize_params["capabilities"], tasks=settings.follow_tasks, extensions=extensions_of(route)
            ),
        )
        if line.cache is not None:
            line.cache.declared = encode(self.envelope.capabilities)
        self._endpoint = endpoint_of(route)
        self.may_discover = settings.may_discover and not getattr(route, "old", False)
        self.may_change = self.may_discover and settings.may_initialize
        """Whether the server may turn out to be of either era."""
        self._wire: ClientWire | None = None
        self._sent: InternalRequest | None = None
        self._asked: list[str] = []
        """The methods that the present attempt has sent."""
        self._refusal = ""
        """The answer that came instead of a discovery."""

    def check(self) -> None:
        """Raise `LocalProtocolError` for settings that cannot be encoded, instead of at each attempt."""
        encode_request(0, INITIALIZE, self._initialize_params)

    def recall(self) -> None:
        """Take the era that the endpoint spoke last, when this connection does not know one."""
        if self._line.era is None and self.may_change:
            self._line.era = self._line.verdicts.of(self._endpoint)

    @property
    def method(self) -> str:
        """The method whose answer is waited for."""
        return INITIALIZE if self._sent is None else self._sent.method

    @property
    def id(self) -> int | None:
        """The id of the request that is not answered yet."""
        return None if self._sent is None else self._sent.id

    @property
    def is_probe(self) -> bool:
        """Whether silence is an answer: a program that does not know `server/discover` may ignore it."""
        return self.may_change and self.method == DISCOVER and self._wire is not None and not self._wire.is_http

    @property
    def had_probe(self) -> bool:
        """Whether a program was asked for its era before it got the handshake: it may be one that does not survive the question."""
        return len(self._asked) > 1 and self.may_change and self._wire is not None and not self._wire.is_http

    def begin(self, wire: ClientWire) -> None:
        """Send the first request of an attempt."""
        self._wire = wire
        self._asked = []
        self._requests.envelope = None
        era = self._line.era
        guess = era is not None and not dialect_of(era).is_stateless
        self._send(DISCOVER if self.may_discover and not (guess and self.may_change) else INITIALIZE)

    def on_silence(self) -> None:
        """The server does not answer the probe."""
        if self.is_probe:
            self._refusal = "no answer"
            self._send(INITIALIZE)

    def _send(self, method: str) -> None:
        wire, line, requests = self._wire, self._line, self._requests
        assert wire is not None
        assert line.process is not None
        loop = line.process.node.loop
        silent, self._sent = self._sent, None
        if silent is not None:
            requests.end(silent, RequestTimeout(silent.method, line.settings.probe_timeout))
        self._asked.append(method)
        if method == DISCOVER:
            hello = InternalRequest(line, loop, method, None, self._on_discovered)
            frame = self.envelope.request(hello.id, method, hello.params_to_send())
            mirrored = mirrored_headers(method, None) if wire.is_http else ()
        else:
            hello = InternalRequest(line, loop, method, self._initialize_params, self._on_initialized)
            frame, mirrored = encode_request(hello.id, method, hello.params_to_send()), ()
        hello.wire = wire.pid
        self._sent = requests.table[hello.id] = hello
        try:
            line.transmit(wire, frame, hello.id, mirrored=mirrored)
        except WireFull as error:
            self._fail(error)

    def _take(self, method: str) -> bool:
        """Whether the outcome of this method is waited for; from now on it is not."""
        if self._line.phase is not Phase.INITIALIZING or self._sent is None or self._sent.method != method:
            return False
        self._sent = None
        return True

    def _on_discovered(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        """The outcome of `server/discover`."""
        if not self._take(DISCOVER):
            return
        found = read_discovery(result, error)
        if found.welcome is not None:
            assert self._wire is not None
            self._wire.on_negotiated(found.welcome.version)
            self._requests.envelope = self.envelope
            self._succeeded(found.welcome)
        elif found.ask_again and self._asked.count(DISCOVER) < _MOST_QUESTIONS:
            self._send(DISCOVER)
        elif found.may_initialize and self.may_change and INITIALIZE not in self._asked:
            self._refusal = str(found.error)[:_QUOTED]
            self._send(INITIALIZE)
        else:
            assert found.error is not None
            pinned = found.may_initialize and not self._line.settings.may_initialize
            self._fail(_with_mode(found.error, "older") if pinned else found.error)

    def _on_initialized(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        """The outcome of `initialize`."""
        if not self._take(INITIALIZE):
            return
        wire = self._wire
        assert wire is not None
        try:
            if result is None:
                raise initialize_error(error or InitFailed("no answer"))  # noqa: TRY301 - one way to fail for both
            welcome = read_welcome(result)
        except Exception as cause:  # noqa: BLE001 - what `initialize_error` made of it
            self.doubt(cause)
            if self._is_worth_a_probe(error):
                self._send(DISCOVER)
            else:
                pinned = names_stateless(error) and not self._line.settings.may_discover
                self._fail(_with_mode(cause, "newer") if pinned else cause)
            return
        wire.on_negotiated(welcome.version)
        try:
            self._line.transmit(wire, encode_notification("notifications/initialized"), ordered=True)
        except WireFull as full:  # the server asks more than it reads
            self._fail(full)
            return
        self._succeeded(welcome)

    def _is_worth_a_probe(self, error: BaseException | None) -> bool:
        """Whether a server that refuses `initialize` may answer `server/discover`: it says so, or was not asked."""
        if not self.may_change or not isinstance(error, PeerError):
            return False
        asked = self._asked.count(DISCOVER)
        return asked == 0 or (asked < _MOST_QUESTIONS and names_stateless(error))

    def _succeeded(self, welcome: ServerWelcome) -> None:
        line = self._line
        if line.settings.mode == AUTO:  # elsewhere the settings have decided, which says nothing of what else it speaks
            line.era = welcome.version
            line.verdicts.learn(self._endpoint, welcome.version)
        if line.cache is not None and line.generation:
            line.cache.forget()  # changes may have been missed, and a program may be another one by now
        evidence, self._refusal = self._evidence, ""
        self._succeed(replace(welcome, evidence=evidence))

    @property
    def _evidence(self) -> str:
        if self._asked[-1] == DISCOVER:
            return f"it answers {DISCOVER}"
        if self._refusal:
            return f"it answers {INITIALIZE}, and {DISCOVER} with: {self._refusal}"
        return "it had a handshake before" if self.may_change else "only a handshake was tried"

    # --- guesses that fail

    def forget(self) -> None:
        """The server may speak another revision by now."""
        self._line.era = None
        self._line.verdicts.forget(self._endpoint)

    def doubt(self, cause: Exception) -> None:
        """An attempt by `initialize` has failed: if that was a guess, the next one asks."""
        if self.may_change and not isinstance(cause, ConnectFailed):
            self.forget()

    def on_failure(self, cause: Exception) -> bool:
        """The attempt has failed. Returns whether that is only the end of a process that has died of the probe.

        Then the next process gets the handshake, and it is no failed attempt. It gets that, too, after one that answered nothing any more.
        """
        sent, self._sent = self._sent, None
        line = self._line
        if sent is None:
            return False
        if sent.call is not None and isinstance(cause, InitTimeout):
            sent.call.end(None, cause)
        if self.had_probe and isinstance(cause, InitTimeout):
            line.era = line.settings.handshake_version
        if len(self._asked) > 1:
            return False
        if sent.method == INITIALIZE:
            self.doubt(cause)
            return False
        assert self._wire is not None
        if not self.may_change or self._wire.is_http or isinstance(cause, ConnectFailed | WireFull):
            return False
        if line.era is not None:
            if dialect_of(line.era).is_stateless:
                self.forget()  # an older program may be in its place: the next one that dies of the probe shows it
            return False
        line.era = line.settings.handshake_version
        self._refusal = str(cause)[:_QUOTED]
        return True
