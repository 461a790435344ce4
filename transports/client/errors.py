"""Why a server could not be reached, or is not there any more. Each has its `reason`, a word that programs can compare.

::

    TransportError
    ├─ ConnectFailed        no server answers there: nothing was sent
    ├─ ConnectionLost       it was there, and hung up
    │  └─ NodeEnded         it was reached by way of another process, which is gone
    ├─ ProcessDied          the child process ended: with which status or signal, and what it said last on stderr
    ├─ HttpError            an HTTP status that is no answer of MCP
    │  ├─ Unauthorized      401, and nothing else to try
    │  ├─ RequestTooLarge   413: the message has more bytes than the server takes
    │  └─ SessionGone       404 for a session that was there before
    ├─ ResponseTooLarge     more than was bound for
    ├─ SilentTooLong        a stream without a word, not even a comment
    ├─ NotMcp               the server there speaks something else
    └─ WireFull             too much waits to be sent
"""

from __future__ import annotations

import signal as signals
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from .http_pool import Head

_PASSING: Final = frozenset({408, 425, 429})
UNAUTHORIZED: Final = 401
_WANTS: Final = (
    ': it wants a login, or another one than it was shown: headers={…} or auth=…, in a configuration headers = {…} or oauth = "auto", '
    "on the command line --header or `greenroom login`"
)
"""All ways: what was shown is not known here, and the error may come from another process."""


class TransportError(GreenroomError):
    """The way to the server is broken. The message says what happened, and what to do where that is known."""

    reason: ClassVar[str] = "transport_error"

    @property
    def final(self) -> bool:
        """Whether trying again is no use until a person has done something."""
        return False

    @property
    def passing(self) -> bool:
        """Whether the same request may go well when it is sent again: not so where that is what is wrong."""
        return not self.final


class ConnectFailed(TransportError):
    """No server answers there; nothing was sent."""

    reason = "connect_failed"


class ConnectionLost(TransportError):
    """The server was there, and hung up. What was under way may have been done, or not."""

    reason = "connection_lost"


class NodeEnded(ConnectionLost):
    """The process of ours that kept the connection is gone, and with it what was under way there."""

    reason = "node_ended"

    def __init__(self, how: str) -> None:
        """`how` it ended, as in "was ended by signal 11 (SIGSEGV)"."""
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        return f"the process that kept the connection {self.how}"


class ProcessDied(TransportError):
    """The child process ended by itself."""

    reason = "exit_status"

    def __init__(self, command: str, status: int, stderr: str = "") -> None:
        """`status` as `wait` tells it: negative for a signal. `stderr` is the end of what it wrote there."""
        super().__init__(command, status, stderr)
        self.command = command
        self.status = status
        self.stderr = stderr

    @property
    def signal(self) -> str | None:
        """By which signal it ended, if it was one."""
        if self.status >= 0:
            return None
        try:
            return signals.Signals(-self.status).name
        except ValueError:
            return f"signal {-self.status}"

    def __str__(self) -> str:
        how = f"was ended by {self.signal}" if self.status < 0 else f"ended with exit status {self.status}"
        said = f"; the last that it wrote to stderr:\n{self.stderr}" if self.stderr else "; it wrote nothing to stderr"
        return f"the server process ({self.command}) {how}{said}"


class HttpError(TransportError):
    """The server answered with an HTTP status that is no answer of MCP."""

    reason = "http_error"

    def __init__(self, status: int, body: str = "", where: str = "", retry_after: float | None = None) -> None:
        """`body` is the beginning of what came with it; `retry_after`, after how many seconds it is to be tried again, where that was said."""
        super().__init__(status, body, where, retry_after)
        self.status = status
        self.body = body
        self.where = where
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether the same may go well a moment later."""
        return self.status in _PASSING or self.status >= 500  # noqa: PLR2004 - an error of the server's own

    def __str__(self) -> str:
        place = f" from {self.where}" if self.where else ""
        return f"HTTP status {self.status}{place}{f': {self.body}' if self.body else ''}"


class Unauthorized(HttpError):
    """401, or a 403 that asks for more: and there are no other credentials to try."""

    reason = "unauthorized"

    def __init__(
        self, status: int = 401, body: str = "", where: str = "", challenge: str = "", *, renewed: bool = False
    ) -> None:
        """`challenge` is what `WWW-Authenticate` said; `renewed`, whether there are other credentials by now, for what is sent again."""
        super().__init__(status, body, where)
        self.renewed = renewed
        self.args = (status, body, where, challenge)  # what another one is made of, in another process
        self.challenge = challenge

    def __str__(self) -> str:
        return f"{super().__str__()}{_WANTS if self.status == UNAUTHORIZED else ''}"

    @property
    def passing(self) -> bool:
        """Whether the next try has something else to show."""
        return self.renewed


class RequestTooLarge(HttpError):
    """413: the message has more bytes than the server takes, or something in front of it. It was not acted upon.

    A greenroom server says how many in `HttpConfig(max_body=…)`, which is 4 MiB unless it is set.
    """

    reason = "request_too_large"

    def __init__(self, size: int, body: str = "", where: str = "", retry_after: float | None = None) -> None:
        """`size` is how many bytes the message has."""
        super().__init__(413, body, where, retry_after)
        self.args = (size, body, where, retry_after)  # what another one is made of, in another process
        self.size = size

    def __str__(self) -> str:
        return f"a message of {self.size:,} bytes is more than the server takes ({super().__str__()})"


class SessionGone(HttpError):
    """The server does not know our session any more."""

    reason = "session_gone"

    @property
    def passing(self) -> bool:
        """In another session."""
        return True


class ResponseTooLarge(TransportError):
    """More came than was bound for."""

    reason = "response_too_large"

    def __init__(self, size: int, limit: int, what: str = "an answer") -> None:
        """`size` is how much had come when it was given up; `limit` how much may."""
        super().__init__(size, limit, what)
        self.size = size
        self.limit = limit
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} has more than {self.limit:,} bytes: raise the limit if that is what you expect"


class SilentTooLong(TransportError):
    """Nothing came for too long, not even a comment."""

    reason = "silent"


class NotMcp(TransportError):
    """The server there does not speak MCP."""

    reason = "not_mcp"


class WireFull(TransportError):
    """Too much waits to be sent; this message was not taken."""

    reason = "wire_full"


_SAMPLE: Final = 120


def sample(data: bytes, most: int = _SAMPLE) -> str:
    """The beginning of what came, as one line that a report can show."""
    text = data[: 4 * most].decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)[:most].strip()


# --- What is known of a request that was answered with an HTTP status and no answer: whether it was surely not done, and when to try again. Pure.
# A status says what its sender has done, and not what happened before. A load balancer that has lost the first server in the middle of a call hands the
# call to a second one: that one's 404, 401 or 429 is true, and the call was done. So a refusal is believed of the process alone that has our session.
# Servers of greenroom say which process they are (`greenroom-instance`), with `initialize` and with each refusal of a request that they have not acted
# upon. The word has two parts, the program and the process in it.
# Servers that say nothing of the kind are believed the statuses that are by definition given before a request is acted upon; 404 is none of those.

INSTANCE: Final = b"greenroom-instance"
NOT_FOUND: Final = 404
TOO_LARGE: Final = 413
TOO_MANY: Final = 429
LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""What is worth another try in a while."""
_LONGEST: Final = 64
_DECLINED: Final = frozenset({307, 308, 401, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431})


def instance_of(head: Head) -> str:
    """Which process has answered; empty where it does not say."""
    said = head.headers.get(INSTANCE, b"")
    return said.decode("latin-1") if len(said) <= _LONGEST else ""


def is_challenge(head: Head) -> bool:
    """Whether it asks for other credentials, or for more scopes."""
    return head.status == 401 or (  # noqa: PLR2004
        head.status == 403 and "insufficient_scope" in head.get(b"www-authenticate")  # noqa: PLR2004
    )


def is_not_done(head: Head, instance: str) -> bool:
    """Whether what was refused with this head was surely not acted upon. `instance` has our session; empty where that is not known."""
    said = instance_of(head)
    if not instance:
        return not said and (head.status in _DECLINED or is_challenge(head))
    if not said:
        # Something in front of the server, which can tell who we are, or how long the message is, before it lets us pass, and nothing else for sure.
        return is_challenge(head) or head.status == TOO_LARGE
    return said == instance  # not of another worker of its program: the one with the session may have died of the call


def retry_after(head: Head) -> float | None:
    """In how many seconds the server wants to hear of it again (RFC 9110, 10.2.3): as a number, or as a date by its own clock."""
    said = head.get(b"retry-after")[:_LONGEST].strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    then = _date(said)
    if then is None:
        return None
    now = _date(head.get(b"date")[:_LONGEST])
    return max(0.0, then - (time.time() if now is None else now))


def _date(said: str) -> float | None:
    try:
        return parsedate_to_datetime(said).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
