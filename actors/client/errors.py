"""Why a request to a server had no answer of the server's. Each has its `reason`, a word that programs can compare.

::

    ClientError
    ├─ NotReady            the handshake is not over, and the caller did not want to wait
    ├─ ClientClosed        the client was closed, or is about to be
    ├─ Unsupported         the server has not declared that it can do this: nothing was sent
    ├─ RequestTimeout      the deadline is over; the server was told
    ├─ RequestLost         the way to the server broke while it was under way
    ├─ InitFailed          the handshake failed
    │  ├─ InitTimeout
    │  └─ ProtocolVersionError
    ├─ Unavailable         the server is away: the next attempt is some time off, or there will be none
    │  ├─ CircuitOpen
    │  └─ Parked
    └─ TooManyPages        a list that does not end

An error that the server answered with is a `PeerError`; a caller that cancels its own request gets `RequestCancelled`.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar

from greenroom.auth.errors import SignInError
from greenroom.errors import GreenroomError


class ClientError(GreenroomError):
    """A request had no answer of the server's."""

    reason: ClassVar[str] = "client_error"


class NotReady(ClientError):
    """The handshake is not over yet."""

    reason = "not_ready"


class ClientClosed(ClientError):
    """The client is closed, or about to be."""

    reason = "closed"


class Unsupported(ClientError):
    """The server has not declared what this method needs. Nothing was sent."""

    reason = "unsupported"

    def __init__(self, method: str, capability: str) -> None:
        """`capability` is the path that would have to be declared."""
        super().__init__(method, capability)
        self.method = method
        self.capability = capability

    def __str__(self) -> str:
        return f"the server does not declare {self.capability}, which {self.method} needs"


class RequestTimeout(ClientError, TimeoutError):
    """The deadline is over. The server was told that the caller does not wait any more."""

    reason = "timeout"

    def __init__(self, method: str, seconds: float) -> None:
        """How long it was waited for."""
        super().__init__(method, seconds)
        self.method = method
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.method}: no answer within {self.seconds:g} s"


class RequestLost(ClientError):
    """The way to the server broke while the request was under way.

    `cause` is what happened. `maybe_done` is False when the request was surely not done: it never left, or the server refused it before it
    was acted upon. Otherwise it may have been done or not, and only a caller that knows that it can be repeated should repeat it. `retry_in`
    is after how many seconds the server wants to be asked again, where it said so.
    """

    reason = "lost"

    def __init__(self, method: str, cause: Exception, *, maybe_done: bool = True) -> None:
        """`cause` is a `TransportError`, mostly."""
        super().__init__(method, cause)
        self.method = method
        self.cause = cause
        self.maybe_done = maybe_done
        self.retry_in: float | None = getattr(cause, "retry_after", None)

    def __str__(self) -> str:
        fate = "it may have been done or not" if self.maybe_done else "it was not done"
        when = "" if self.retry_in is None else f"; try again in {self.retry_in:g} s"
        return f"{self.method}: {self.cause} ({fate}{when})"


def request_lost(method: str, cause: Exception, *, maybe_done: bool) -> Exception:
    """What the caller of a lost request gets: a sign-in that is needed as itself, since a program can do something about that."""
    if isinstance(cause, SignInError) and not maybe_done:
        return copy(cause)  # several callers share the failure, and each adds its own traceback
    return RequestLost(method, cause, maybe_done=maybe_done)


class InitFailed(ClientError):
    """The handshake failed."""

    reason = "init_failed"


class InitTimeout(InitFailed):
    """The server did not answer `initialize` in time."""

    reason = "init_timeout"


class ProtocolVersionError(InitFailed):
    """The server speaks no revision that we know."""

    reason = "protocol_version"


class Unavailable(ClientError):
    """The server is away. `cause` is what happened last."""

    reason = "unavailable"

    def __init__(self, server: str, cause: Exception | None = None, retry_in: float | None = None) -> None:
        """`retry_in` is in how many seconds the next attempt is made: 0 while one is under way, None when none is due."""
        super().__init__(server, cause, retry_in)
        self.server = server
        self.cause = cause
        self.retry_in = retry_in

    def __str__(self) -> str:
        why = f": {self.cause}" if self.cause is not None else ""
        if self.retry_in is None:
            when = ""
        else:
            when = f"; the next attempt is in {self.retry_in:.1f} s" if self.retry_in else "; it is being tried again"
        return f"{self.server} is {self._state}{why}{when}"

    _state: ClassVar[str] = "away"


class CircuitOpen(Unavailable):
    """It has failed so often of late that nothing is sent until a probe has come through."""

    reason = "circuit_open"
    _state = "left alone for a while"


class Parked(Unavailable):
    """No attempt is made until `retry` is called."""

    reason = "parked"
    _state = "parked"


class TooManyPages(ClientError):
    """A list went on for more pages than the settings allow."""

    reason = "max_pages"
