"""Why a server cannot be reached, or was lost. Each error has a `reason`, a constant that programs can compare.

::

    TransportError
    ├─ ConnectFailed        no server answers there: nothing was sent
    ├─ ConnectionLost       the server closed or lost the connection
    │  └─ NodeEnded         the process that held the connection is gone
    ├─ ProcessDied          the child process ended: exit status or signal, and its last stderr output
    ├─ HttpError            an HTTP status without an MCP reply
    │  ├─ Unauthorized      401, and no other credentials to try
    │  ├─ RequestTooLarge   413: the message is larger than the server accepts
    │  └─ SessionGone       404 for a session that existed
    ├─ ResponseTooLarge     a response over the limit
    ├─ SilentTooLong        a stream without a byte, not even a comment
    ├─ NotMcp               the server does not speak MCP
    └─ WireFull             too many messages are queued
"""

from __future__ import annotations

import signal as signals
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from greenroom.protocol.errors import PeerError

    from .http_connection_pool import ResponseHead

_TEMPORARY: Final = frozenset({408, 425, 429})
UNAUTHORIZED: Final = 401
_WANTS: Final = (
    ': the server wants a login, or refuses the one it got: headers={…} or auth=…, in a configuration headers = {…} or oauth = "auto", '
    "on the command line --header or `greenroom login`"
)
"""Lists every way, since this error may come from another process, where it is not known which one was used."""


class TransportError(GreenroomError):
    """The transport to a server failed. The message says what happened, and what to do where that is known."""

    reason: ClassVar[str] = "transport_error"

    @property
    def final(self) -> bool:
        """Whether retrying is useless until a person has done something."""
        return False

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed when it is sent again."""
        return not self.final


class ConnectFailed(TransportError):
    """No server answers there; nothing was sent."""

    reason = "connect_failed"


class ConnectionLost(TransportError):
    """The server closed or lost the connection. Requests in flight may have been executed or not."""

    reason = "connection_lost"


class NodeEnded(ConnectionLost):
    """The process of ours that held the connection is gone; requests in flight may have been executed or not."""

    reason = "node_ended"

    def __init__(self, how: str) -> None:
        """`how` completes the sentence, as in "was ended by signal 11 (SIGSEGV)"."""
        super().__init__(how)
        self.how = how

    def __str__(self) -> str:
        return f"the process that kept the connection {self.how}"


class ProcessDied(TransportError):
    """The child process ended by itself."""

    reason = "exit_status"

    def __init__(self, command: str, status: int, stderr: str = "") -> None:
        """`status` as returned by `wait`: negative for a signal. `stderr` is the end of its stderr output."""
        super().__init__(command, status, stderr)
        self.command = command
        self.status = status
        self.stderr = stderr

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended it, if one did."""
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
    """The server answered with an HTTP status that contains no MCP reply."""

    reason = "http_error"
    answer: PeerError | None = None
    """The error in the body, if it names no request: that of a request which stands alone, or of a server that has other ideas of it."""

    def __init__(self, status: int, body: str = "", where: str = "", retry_after: float | None = None) -> None:
        """`body` is the beginning of the response body; `retry_after` is the server's `Retry-After` in seconds, if it sent one."""
        super().__init__(status, body, where, retry_after)
        self.status = status
        self.body = body
        self.where = where
        self.retry_after = retry_after

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in _TEMPORARY or self.status >= 500  # noqa: PLR2004 - a server error

    def __str__(self) -> str:
        place = f" from {self.where}" if self.where else ""
        return f"HTTP status {self.status}{place}{f': {self.body}' if self.body else ''}"


class Unauthorized(HttpError):
    """401, or a 403 that demands more scopes, and there are no other credentials to try."""

    reason = "unauthorized"

    def __init__(
        self, status: int = 401, body: str = "", where: str = "", challenge: str = "", *, renewed: bool = False
    ) -> None:
        """`challenge` is the `WWW-Authenticate` header; `renewed` tells whether there are new credentials now, for a resend."""
        super().__init__(status, body, where)
        self.renewed = renewed
        self.args = (status, body, where, challenge)  # the arguments from which another process makes an equal error
        self.challenge = challenge

    def __str__(self) -> str:
        return f"{super().__str__()}{_WANTS if self.status == UNAUTHORIZED else ''}"

    @property
    def is_temporary(self) -> bool:
        """Whether the next try has new credentials."""
        return self.renewed


class RequestTooLarge(HttpError):
    """413: the message is larger than the server, or a proxy in front of it, accepts. It was not executed.

    The limit of a greenroom server is `HttpConfig(max_body=…)`, 4 MiB by default.
    """

    reason = "request_too_large"

    def __init__(self, size: int, body: str = "", where: str = "", retry_after: float | None = None) -> None:
        """`size` is the message's size in bytes."""
        super().__init__(413, body, where, retry_after)
        self.args = (size, body, where, retry_after)  # the arguments from which another process makes an equal error
        self.size = size

    def __str__(self) -> str:
        return f"a message of {self.size:,} bytes is more than the server takes ({super().__str__()})"


class SessionGone(HttpError):
    """The server has lost our session."""

    reason = "session_gone"

    @property
    def is_temporary(self) -> bool:
        """True: the same request may succeed in a new session."""
        return True


class ResponseTooLarge(TransportError):
    """A response exceeded the limit."""

    reason = "response_too_large"

    def __init__(self, size: int, limit: int, what: str = "an answer") -> None:
        """`size` is how much had arrived; `limit` is the most that is accepted."""
        super().__init__(size, limit, what)
        self.size = size
        self.limit = limit
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} has more than {self.limit:,} bytes: raise the limit if that is what you expect"


class SilentTooLong(TransportError):
    """Nothing arrived for too long, not even a comment."""

    reason = "silent"


class NotMcp(TransportError):
    """The server does not speak MCP."""

    reason = "not_mcp"


class WireFull(TransportError):
    """Too many messages are queued; this one was not accepted."""

    reason = "wire_full"


_SAMPLE: Final = 120


def sample(data: bytes, most: int = _SAMPLE) -> str:
    """The beginning of some input as one printable line, for reports."""
    text = data[: 4 * most].decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)[:most].strip()


# --- Refused requests: whether one was surely not executed, and when to try again. Pure.
# A status tells what its sender did, not what happened before. A load balancer that loses the first server in the middle of a call gives
# the call to a second one: that one's 404, 401 or 429 is true, and yet the call was executed. So a refusal is trusted only from the process
# that has our session. Greenroom servers name their process (`greenroom-instance`: the program and the process in it) with `initialize`, with
# `server/discover`, and with each refusal of a request that was not executed. Of other servers, those statuses are trusted that are by definition sent before
# execution; 404 is not among them.

INSTANCE: Final = b"greenroom-instance"
NOT_FOUND: Final = 404
TOO_LARGE: Final = 413
TOO_MANY: Final = 429
RETRY_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a later retry may succeed."""
_LONGEST: Final = 64
_DECLINED: Final = frozenset({307, 308, 401, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431})


def instance_of(head: ResponseHead) -> str:
    """The process that responded; empty where it does not say."""
    said = head.headers.get(INSTANCE, b"")
    return said.decode("latin-1") if len(said) <= _LONGEST else ""


def is_challenge(head: ResponseHead) -> bool:
    """Whether the response asks for other credentials, or for more scopes."""
    return head.status == 401 or (  # noqa: PLR2004
        head.status == 403 and "insufficient_scope" in head.get(b"www-authenticate")  # noqa: PLR2004
    )


_NONCE_CHALLENGE: Final = 0


def kinds_tried(tried: frozenset[int], head: ResponseHead) -> frozenset[int] | None:
    """The kinds of challenges after which a request was retried, this one included; None if it was retried after this kind before.

    A token may be renewed after a 401, and then get more scopes after a 403, each once. A proof may lack a nonce (RFC 9449, 9) at the first attempt,
    and after either of those, since signing in takes longer than a nonce is good for.
    """
    if head.status == 401 and b"dpop-nonce" in head.headers and "use_dpop_nonce" in head.get(b"www-authenticate"):  # noqa: PLR2004
        return None if _NONCE_CHALLENGE in tried else tried | {_NONCE_CHALLENGE}
    return None if head.status in tried else (tried | {head.status}) - {_NONCE_CHALLENGE}


def is_not_done(head: ResponseHead, instance: str, *, alone: bool = False) -> bool:
    """Whether a request refused with this head was surely not executed. `instance` is the process that has our session; empty if unknown.

    `alone`: there are no sessions, so any process of the server may refuse a request, and does so in its own name. No proxy may give such a
    request to a second server (RFC 9110, 9.2.2).
    """
    said = instance_of(head)
    if said:
        # In a session a refusal by another worker of the same program proves nothing: the one with the session may have died of the call.
        return alone or said == instance
    if instance:
        # A component in front of the server: it can check credentials and the length before it forwards a request, and nothing else for
        # sure.
        return is_challenge(head) or head.status == TOO_LARGE
    return head.status in _DECLINED or is_challenge(head)


def retry_after(head: ResponseHead) -> float | None:
    """The server's `Retry-After` in seconds (RFC 9110, 10.2.3): a number, or a date by its own clock."""
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
