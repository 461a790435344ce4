"""Errors of requests that the server did not answer. Each has a `reason`, a word that programs can compare.

::

    ClientError
    ├─ NotReady            the connection is not open yet, and the caller did not want to wait
    ├─ ClientClosed        the client was closed, or is about to be
    ├─ Unsupported         the server does not declare the capability: nothing was sent
    │  ├─ SubscriptionRefused  the server declares it, and leaves this resource out
    │  └─ NotInRevision        the revision that the server speaks has no such method
    ├─ RequestTimeout      the deadline is over; the server was notified
    ├─ RequestLost         the connection broke while the request was under way
    │  └─ StreamLost       the same in the stateless era: the server may have acted on it, and it is not sent again
    ├─ InputRefused        the server asked for input in its reply, and a handler of this client gave none
    ├─ TaskLost            the task that the server made of a call was cancelled, or is not known any more
    ├─ InitFailed          the server refused the request that opens the connection
    │  ├─ InitTimeout
    │  └─ ProtocolVersionError
    ├─ Unavailable         the server cannot be reached: the next attempt comes later, or not at all
    │  ├─ CircuitOpen
    │  └─ Parked
    └─ TooManyPages        a list has more pages than allowed

An error that the server answered with is a `PeerError`; a caller that cancels its own request gets `RequestCancelled`.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar, Final, Literal

from greenroom.auth.errors import SignInError
from greenroom.errors import GreenroomError


class ClientError(GreenroomError):
    """A request was not answered by the server."""

    reason: ClassVar[str] = "client_error"


class NotReady(ClientError):
    """The connection is not open yet."""

    reason = "not_ready"


class ClientClosed(ClientError):
    """The client is closed, or about to be."""

    reason = "closed"


class Unsupported(ClientError):
    """The server does not declare the capability that this method needs. Nothing was sent."""

    reason = "unsupported"

    def __init__(self, method: str, capability: str) -> None:
        """`capability` is the path that the server would have to declare."""
        super().__init__(method, capability)
        self.method = method
        self.capability = capability

    def __str__(self) -> str:
        return f"the server does not declare {self.capability}, which {self.method} needs"


class SubscriptionRefused(Unsupported):
    """The server announces no updates of this resource, though it declares subscriptions: it left it out of its acknowledgement."""

    def __init__(self, uri: str) -> None:
        """`uri` is the resource's."""
        super().__init__("subscriptions/listen", "resources.subscribe")
        self.args = (uri,)
        self.uri = uri

    def __str__(self) -> str:
        return f"the server announces no updates of {self.uri}: it left it out of its acknowledgement"


class NotInRevision(Unsupported):
    """The revision that the server speaks has no such method. Nothing was sent."""

    def __init__(self, method: str, version: str, instead: str) -> None:
        """`instead` says what to do."""
        super().__init__(method, version)
        self.args = (method, version, instead)
        self.instead = instead

    def __str__(self) -> str:
        return f"revision {self.capability}, which the server speaks, has no {self.method}: {self.instead}"


class RequestTimeout(ClientError, TimeoutError):
    """The deadline is over. The server was notified that the request is cancelled."""

    reason = "timeout"

    def __init__(self, method: str, seconds: float) -> None:
        """`seconds` is the timeout that was set."""
        super().__init__(method, seconds)
        self.method = method
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.method}: no answer within {self.seconds:g} s"


class RequestLost(ClientError):
    """The connection broke while the request was under way.

    `cause` is the error that broke it. `maybe_done` is False when the server certainly did not act on the request: it was never sent, or was
    refused first. Otherwise it may have been done, so repeat it only if it is idempotent. `retry_in` is the number of seconds after which
    the server wants to be asked again, where it named one.
    """

    reason = "lost"

    def __init__(self, method: str, cause: Exception, *, maybe_done: bool = True) -> None:
        """`cause` is mostly a `TransportError`."""
        super().__init__(method, cause)
        self.method = method
        self.cause = cause
        self.maybe_done = maybe_done
        self.retry_in: float | None = getattr(cause, "retry_after", None)

    def __str__(self) -> str:
        fate = "it may have been done or not" if self.maybe_done else "it was not done"
        when = "" if self.retry_in is None else f"; try again in {self.retry_in:g} s"
        return f"{self.method}: {self.cause} ({fate}{when})"


class StreamLost(RequestLost):
    """The stream of a request that stands alone broke before the reply, and the server may have acted on it.

    No revision lets a client ask what became of it. Lists, reads and idempotent calls are sent again; whether to repeat this one is for its
    caller to decide.
    """

    reason = "stream_lost"


def request_lost(method: str, cause: Exception, *, maybe_done: bool, alone: bool = False) -> Exception:
    """The error for a lost request: `RequestLost`, or the `SignInError` itself, since a program can act on that.

    `alone`: the request was one of the stateless era.
    """
    if isinstance(cause, SignInError) and not maybe_done:
        return copy(cause)  # a copy: several callers share the failure, and each adds its own traceback
    return (StreamLost if alone and maybe_done else RequestLost)(method, cause, maybe_done=maybe_done)


class InputRefused(ClientError):
    """The server answered a request with a question, and this client's handler gave no answer. `cause` is why."""

    reason = "input_refused"

    def __init__(self, method: str, question: str, cause: BaseException) -> None:
        """`question` is the method of the question."""
        super().__init__(method, question, cause)
        self.method = method
        self.question = question
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.method}: the server asks for input ({self.question}), and got none: {self.cause}"


class TaskLost(ClientError):
    """The task that the server made of a call has no result: it was cancelled, has expired, or is not known to the server."""

    reason = "task_lost"

    def __init__(self, task: str, status: Literal["cancelled", "expired", "unknown"], message: str = "") -> None:
        """`task` is its id, and `message` the server's, if any."""
        super().__init__(task, status, message)
        self.task = task
        self.status = status
        self.message = message

    def __str__(self) -> str:
        why = f": {self.message[:_LONGEST_MESSAGE]}" if self.message else ""
        return f"the task {self.task[:64]!r} {_FATES[self.status]}{why}"


_LONGEST_MESSAGE: Final = 500
_FATES: Final = {
    "cancelled": "was cancelled",
    "expired": "has expired: the server kept it for its ttl, and no result was fetched in that time",
    "unknown": "is not known to the server: it was deleted, or belongs to another caller",
}


class InitFailed(ClientError):
    """The connection could not be opened: `server/discover` or `initialize` was refused, or its answer is not valid."""

    reason = "init_failed"


class InitTimeout(InitFailed):
    """The server did not answer `server/discover` or `initialize` in time."""

    reason = "init_timeout"


class ProtocolVersionError(InitFailed):
    """The server speaks no protocol revision that this client knows, or that its mode allows."""

    reason = "protocol_version"


class Unavailable(ClientError):
    """The server cannot be reached. `cause` is the last error."""

    reason = "unavailable"

    def __init__(self, server: str, cause: Exception | None = None, retry_in: float | None = None) -> None:
        """`retry_in` is the seconds until the next attempt: 0 while one is under way, None when none is due."""
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
    """Too many requests failed recently: the circuit breaker refuses requests until a probe succeeds."""

    reason = "circuit_open"
    _state = "not called for a while after failures"


class Parked(Unavailable):
    """The connection was given up: no attempt is made until `retry` is called."""

    reason = "parked"
    _state = "parked"


class TooManyPages(ClientError):
    """A list went on for more pages than the settings allow."""

    reason = "max_pages"
