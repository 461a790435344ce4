"""How a server is reached: the wire that is in use, the handshake on it, and what comes next when that has come to nothing.

A part of the connection, which asks it in its own process. What it decides, it leaves in `turn` and `acts`: where the state machine goes,
and which timers run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.json import is_object
from greenroom.protocol.messages import encode_notification, encode_request
from greenroom.protocol.versions import SUPPORTED
from greenroom.supervision import NORMAL, SHUTDOWN, Report, Shutdown, exit, kill, send_after
from greenroom.supervision.statem import (
    Action,
    After,
    Cancel,
    GenericTimeout,
    Internal,
    Keep,
    Next,
    NextEvent,
    Result,
    StateTimeout,
    Stop,
)
from greenroom.transports.client.errors import (
    ConnectFailed,
    ConnectionLost,
    HttpError,
    NotMcp,
    SessionGone,
    SilentTooLong,
    TransportError,
    Unauthorized,
    WireFull,
)

from .errors import InitFailed, ProtocolVersionError, RequestLost
from .requests import LONGEST, OwnRequest
from .seam import Phase, Welcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ExitReason, Pid
    from greenroom.transports.client.seam import Lost, Route, Wire

    from .connection import Connection
    from .settings import ClientSettings

PING: Final = GenericTimeout("ping")
PONG: Final = GenericTimeout("pong")


class Overlong(NamedTuple):
    """To the connection: a wire that was told to end should have."""

    wire: Pid


class Reach:
    """Of one connection."""

    def __init__(self, connection: Connection, route: Route, greeting: dict[str, Any]) -> None:
        """`greeting` is what `initialize` says."""
        self._connection = connection
        self._board = connection.board
        self._settings = connection.board.settings
        self._requests = connection.requests
        self._route = route
        self._greeting = greeting
        self.wire: Wire | None = None
        """The one that is in use, or about to be."""
        self.wires: dict[Pid, Wire] = {}
        """All that have not ended yet."""
        self.turn: Next[Phase] | Stop | None = None
        self.acts: list[Action] = []
        self.proven = False
        """Whether anything was answered since the handshake."""
        self._falls = 0
        """How often it has come to nothing in a row."""
        self._ready_at: float | None = None
        self._missed_pings = 0

    # --- attempts

    def again(self, *, patient: bool = True) -> Result[Phase]:
        """The next attempt is due; not `patient` when a caller has asked for it."""
        if not patient:
            self._falls = 0
        self._board.tell(Phase.CONNECTING, self._board.cause, self._board.attempts)
        return Next(Phase.CONNECTING, NextEvent(Internal()))

    def open(self) -> Result[Phase]:
        """Open a wire, and greet."""
        board = self._board
        try:
            wire = self.wire = self._route.open(self._connection.pid)
        except Exception as error:  # noqa: BLE001 - a route may be a user's code, and this is one failure of many
            cause = error if isinstance(error, TransportError) else ConnectFailed(f"{type(error).__name__}: {error}")
            return self.fail(cause)
        self.wires[wire.pid] = wire
        board.tell(Phase.INITIALIZING, board.cause, board.attempts)
        hello = OwnRequest(next(board.ids), "initialize", self._greeting, self._greeted)
        hello.wire = wire.pid
        self._requests.table[hello.id] = hello
        try:
            wire.send(encode_request(hello.id, hello.method, hello.params), hello.id)
        except WireFull as error:
            return self.fail(error)
        return Next(Phase.INITIALIZING, After(self._settings.init_timeout, StateTimeout()))

    def _greeted(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        """The outcome of `initialize`."""
        if self._board.phase is not Phase.INITIALIZING:
            return
        try:
            if result is None:
                raise refused(error or InitFailed("no answer"))  # noqa: TRY301 - one way to fail for both
            welcome = read_welcome(result)
        except Exception as cause:  # noqa: BLE001 - what `refused` made of it
            self.fall(cause)
            return
        board, wire, requests = self._board, self.wire, self._requests
        assert wire is not None
        wire.agreed(welcome.version)
        try:
            wire.send(encode_notification("notifications/initialized"), ordered=True)
        except WireFull as full:  # the server asks more than it reads
            self.fall(full)
            return
        board.welcome = welcome
        board.generation += 1
        requests.wire = wire
        self.proven, self._ready_at, self._missed_pings = False, self._connection.now, 0
        board.tell(Phase.READY)
        self._connection.report(Connected, version=welcome.version, generation=board.generation)
        self.turn = Next(Phase.READY)
        if self._settings.ping_interval is not None:
            self.acts += [Cancel(PONG), After(self._settings.ping_interval, PING)]
        if board.generation > 1:
            self._restore()
        requests.flush()

    def _restore(self) -> None:
        """What the server was asked for in an earlier session."""
        board = self._board
        if board.level is not None:
            self._ask_again("logging/setLevel", {"level": board.level})
        for uri in tuple(board.readers.granted):
            self._ask_again("resources/subscribe", {"uri": uri})
        board.readers.gap()

    def _ask_again(self, method: str, params: dict[str, Any]) -> None:
        def outcome(_: object, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, RequestLost):  # else there is another handshake to come
                self._connection.report(NotRestored, method=method, error=error)

        self._requests.take(OwnRequest(next(self._board.ids), method, params, outcome))

    # --- what has come to nothing

    def fail(self, cause: Exception) -> Result[Phase]:
        """As `fall`, for a state function that has nothing else to do."""
        self.fall(cause)
        turn, self.turn = self.turn, None
        return turn

    def fall(self, cause: Exception) -> None:
        """An attempt, or a connection, has come to nothing: what now."""
        board, settings = self._board, self._settings
        now = self._connection.now
        was_ready = board.phase is Phase.READY
        if self._ready_at is not None and now - self._ready_at >= settings.backoff.quiet:
            self._falls = 0
        self._falls += 1
        attempts = board.attempts + (not was_ready)
        wire, self.wire = self.wire, None
        self._requests.wire = None
        self._ready_at = None
        delay: float | None = 0.0
        if is_final(cause) or (settings.park_after is not None and attempts >= settings.park_after):
            delay = None
        elif not was_ready or self._falls > 1:
            delay = settings.backoff.delay(max(0, self._falls - 1 - was_ready), self._connection.random)
        if delay is not None and isinstance(cause, HttpError) and cause.retry_after is not None:
            delay = max(delay, min(cause.retry_after, LONGEST))
        if delay is None:
            board.tell(Phase.PARKED, cause, attempts)
            self.turn = Next(Phase.PARKED)
        elif was_ready and not delay:
            board.tell(Phase.CONNECTING, cause, attempts)
            self.turn = Next(Phase.CONNECTING, NextEvent(Internal()))
        else:
            board.tell(Phase.BACKOFF, cause, attempts, now + delay)
            self.turn = Next(Phase.BACKOFF, After(delay, StateTimeout()))
        self._connection.report(Disconnected, cause=cause, attempts=attempts, retry_in=delay)
        if wire is not None and wire.pid in self.wires:
            if isinstance(cause, SessionGone):
                self.release(wire.pid)
            else:
                self._end(wire, cause)
        self._requests.refuse()

    def _end(self, wire: Wire, cause: Exception) -> None:
        """It is of no use any more; what is under way on it is lost."""
        lost = cause if isinstance(cause, TransportError) else ConnectionLost(str(cause))
        self._requests.lose_all(wire.pid, lost)
        exit(wire.pid, SHUTDOWN)
        send_after(self._settings.close_grace, self._connection.pid, Overlong(wire.pid))

    def lost(self, wire: Wire, lost: Lost) -> None:
        """One request will not be answered on this wire. When its session is gone, the others may be answered all the same."""
        entry = self._requests.table.get(lost.id)
        if entry is None or entry.wire != wire.pid:
            return
        gone = isinstance(lost.error, SessionGone) and wire is self.wire and self._board.phase is Phase.READY
        if gone or (lost.ending and wire is self.wire):
            self._requests.wire = None
        self._requests.lose(entry, lost.error, seen=not lost.resend)
        if not gone:
            return
        if self.proven:  # we introduce ourselves again
            self.wire = None
            self._board.tell(Phase.CONNECTING, lost.error)
            self.turn = Next(Phase.CONNECTING, NextEvent(Internal()))
        else:  # which was no use
            self.fall(lost.error)

    # --- the end of wires

    def gone(self, pid: Pid, reason: ExitReason) -> bool:
        """A linked process has ended; whether it was a wire."""
        if self.wires.pop(pid, None) is None:
            return False
        detail = reason.detail if isinstance(reason, Shutdown) else None
        cause = detail if isinstance(detail, TransportError) else ConnectionLost(f"the wire has ended: {reason}")
        if self._board.phase is Phase.CLOSING:
            if not self.wires:
                self.turn = Stop(NORMAL)
            return True
        if self.wire is not None and self.wire.pid == pid:
            self.fall(cause)
        self._requests.lose_all(pid, cause)
        return True

    def release(self, pid: Pid | None) -> None:
        """A wire that is not in use any more can go as soon as nothing is under way on it."""
        if pid is None or (self.wire is not None and self.wire.pid == pid) or pid not in self.wires:
            return
        if not self._requests.waiting_on(pid):
            exit(pid, SHUTDOWN)

    def overlong(self, pid: Pid) -> None:
        """It has had its grace."""
        if pid in self.wires:
            kill(pid)

    def end_all(self) -> None:
        """The connection is over."""
        for pid in self.wires:
            exit(pid, SHUTDOWN)

    # --- pings

    def ping(self) -> Result[Phase]:
        """Ask whether the server still answers."""
        self._requests.take(OwnRequest(next(self._board.ids), "ping", None, self._ponged))
        return Keep(After(self._settings.ping_timeout, PONG))

    def _ponged(self, _: object, error: BaseException | None) -> None:
        if not isinstance(error, RequestLost):  # an error is an answer, too
            self._missed_pings = 0
            if self._settings.ping_interval is not None:
                self.acts += [Cancel(PONG), After(self._settings.ping_interval, PING)]

    def no_pong(self) -> Result[Phase]:
        """The ping was not answered in time."""
        self._missed_pings += 1
        if self._missed_pings >= self._settings.ping_failure_threshold:
            return self.fail(SilentTooLong(f"no answer to {self._missed_pings} pings in a row"))
        assert self._settings.ping_interval is not None
        return Keep(After(self._settings.ping_interval, PING))


# --- The handshake as pure functions: what we say, what the server's answer means, and whether another try is worth while.

_FINAL: Final = frozenset(
    (ErrorCode.METHOD_NOT_FOUND, ErrorCode.INVALID_PARAMS, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
)
"""What a server answers that will not answer otherwise the next time."""


def greeting(settings: ClientSettings, handled: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `initialize`; `handled` is what the handler can do."""
    return {
        "protocolVersion": settings.protocol_version,
        "capabilities": settings.declared(handled),
        "clientInfo": dict(settings.client_info),
    }


def read_welcome(result: dict[str, Any]) -> Welcome:
    """The server's answer. Raises `InitFailed`."""
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise ProtocolVersionError("the server's answer to initialize names no protocolVersion")
    if version not in SUPPORTED:
        raise ProtocolVersionError(f"the server speaks {version[:40]!r}, and this client {', '.join(SUPPORTED)}")
    capabilities, info, instructions = (result.get(name) for name in ("capabilities", "serverInfo", "instructions"))
    return Welcome(
        version,
        capabilities if is_object(capabilities) else {},
        info if is_object(info) else {},
        instructions if isinstance(instructions, str) else None,
        result,
    )


def refused(error: BaseException) -> Exception:
    """Why there was no answer to `initialize`, or not a good one."""
    if isinstance(error, PeerError):
        failed = InitFailed(f"the server refused to initialize: {error}")
        failed.__cause__ = error
        return failed
    cause = getattr(error, "cause", error)
    return cause if isinstance(cause, Exception) else InitFailed(str(error))


def is_final(cause: Exception) -> bool:
    """Whether trying again is no use, until the user or an operator has changed something."""
    if isinstance(cause, InitFailed):
        said = cause.__cause__
        return isinstance(cause, ProtocolVersionError) or (isinstance(said, PeerError) and said.code in _FINAL)
    return isinstance(cause, NotMcp | Unauthorized) or (isinstance(cause, TransportError) and cause.final)


# --- What connections report: structured events on the node's bus, for logs, metrics and tests. Nothing in them is secret.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport(Report):
    """Something about the connection to `server`."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(ConnectionReport):
    """A handshake has succeeded; `generation` counts them."""

    level: ClassVar[int] = logging.INFO

    version: str
    generation: int

    def __str__(self) -> str:
        return f"{self.server} is ready, and speaks {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(ConnectionReport):
    """An attempt has failed, or the wire has ended. `retry_in` is None where this connection makes no more: its owner may begin another."""

    cause: Exception
    attempts: int
    retry_in: float | None

    def __str__(self) -> str:
        then = (
            "this connection is given up" if self.retry_in is None else f"the next attempt is in {self.retry_in:.1f} s"
        )
        return f"{self.server} is away: {self.cause}; {then}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(ConnectionReport):
    """The server has said something that is no message."""

    error: Exception
    sample: str

    def __str__(self) -> str:
        return f"{self.server} has said what is no message: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheard(ConnectionReport):
    """Notifications were dropped, since the handler does not keep up; told once until it does."""

    method: str

    def __str__(self) -> str:
        return f"the handler does not keep up with what {self.server} says: {self.method} was dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored(ConnectionReport):
    """After a new handshake, the server refused what it had granted before: a subscription, or the level of logs."""

    method: str
    error: BaseException

    def __str__(self) -> str:
        return f"{self.server} did not restore what {self.method} had: {self.error}"
