"""One HTTP request of a wire's and what becomes of it: who we are is said, a 401 and a 403 tried once more each, a redirect followed, a refusal read.

A kind of visit says in `accepted`, `take` and `over` what it does with an answer, in `rejected` with a refusal, and in `lost` when there was
neither. Each comes at most once after the other, and never after `drop`.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, ClassVar, Final

from .errors import HttpError, NotMcp, RequestTooLarge, TransportError, Unauthorized

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from .http_address import Address
    from .http_reader import Errand, Head
    from .http_wire import HttpWire

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_REFUSED: Final = 8 * 1024
"""How much of a refusal is read."""
_CALM: Final = 0.005
_LONGEST_CALM: Final = 0.5
_SHOWN: Final = 400
_MOVED: Final = frozenset({307, 308})
_FIRST_REFUSAL: Final = 300


def content_type(head: Head) -> str:
    """What kind of answer it is, without its parameters."""
    return head.get(b"content-type").partition(";")[0].strip().lower()


class Visit:
    """One request, tried again where that is right."""

    __slots__ = ("_alarm", "_errand", "_head", "_moves", "_refusal", "_sent", "_task", "_tried", "done", "wire")

    method: ClassVar[str] = "POST"

    def __init__(self, wire: HttpWire) -> None:
        """Of a wire, and not begun."""
        self.wire = wire
        self.done = False
        """Whether it is over, and nothing more will be told."""
        self._errand: Errand | None = None
        self._head: Head | None = None
        self._refusal: bytearray | None = None
        self._sent: Mapping[str, str] = {}
        self._tried: frozenset[int] = frozenset()
        self._moves = 0
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    # --- what kinds of visits do

    def body(self, data: bytes) -> None:
        """More of the answer, or of the refusal."""
        if self._refusal is None:
            self.take(data)
        else:
            self._refusal += data
            if len(self._refusal) > _REFUSED:
                self._hang_up()
                self._decide()

    def accepted(self, head: Head) -> None:
        """An answer with a status that is none of a refusal."""

    def take(self, data: bytes) -> None:
        """More of it."""

    def over(self) -> None:
        """That was all of it."""

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:
        """The server refuses."""

    def lost(self, error: TransportError, *, unseen: bool) -> None:
        """There was no answer, or no end of it."""

    @property
    def frame(self) -> bytes:
        """What is sent."""
        return b""

    @property
    def urgent(self) -> bool:
        """Whether it does not wait for requests that are under way."""
        return True

    @property
    def address(self) -> Address:
        """Where it goes."""
        return self.wire.address

    def extra(self) -> tuple[tuple[str, str], ...]:
        """Headers of its own."""
        return ()

    @property
    def left(self) -> bool:
        """Whether anything of it may have left, and may be answered."""
        return self._errand is not None and self._errand.left

    # --- going

    def go(self) -> None:
        """Begin, or begin again."""
        self._head = self._refusal = None
        fixed = self.wire.known_headers
        if fixed is not None:
            self._leave(fixed)
        else:
            self._task = self.wire.task(self._ask())

    async def _ask(self) -> None:
        try:
            headers = await self.wire.credentials.headers()
        except TransportError as error:
            self._fail(error, unseen=True)
        except Exception as error:  # noqa: BLE001 - somebody else's code
            self._fail(Unauthorized(0, f"the credentials failed: {type(error).__name__}"), unseen=True)
        else:
            if not self.done:
                self._leave(headers)

    def _leave(self, credentials: Mapping[str, str]) -> None:
        self._sent = credentials
        try:
            order = self.wire.order(self, credentials)
        except ValueError as error:
            self._fail(Unauthorized(0, f"the credentials cannot be sent: {error}"), unseen=True)
            return
        self._errand = self.wire.carrier.begin(order, self)

    def drop(self) -> None:
        """Nobody wants to know any more."""
        if not self.done:
            self._close()

    def _close(self) -> None:
        self.done = True
        self._hang_up()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _hang_up(self) -> None:
        errand, self._errand = self._errand, None
        if errand is not None:
            errand.drop()

    # --- what carries it tells

    def head(self, head: Head) -> None:
        """The answer begins."""
        self._head = head
        if head.status >= _FIRST_REFUSAL:
            self._refusal = bytearray()
        elif head.get(b"content-encoding").lower() not in ("", "identity"):
            self._fail(NotMcp(f"{self.address.origin} sends what is compressed, and nobody has asked it to"))
        else:
            self.accepted(head)

    def end(self) -> None:
        """It is complete."""
        self._errand = None
        if self._refusal is None:
            self.over()
        else:
            self._decide()

    def failed(self, error: TransportError, *, unseen: bool) -> None:
        """It will not be."""
        self._errand = None
        if self._refusal is not None:
            self._decide()
        else:
            self._fail(error, unseen=unseen)

    def _fail(self, error: TransportError, *, unseen: bool = False) -> None:
        self._hang_up()
        if not self.done:
            self.lost(error, unseen=unseen)

    def _decide(self) -> None:
        """It is a refusal: try again, or say so."""
        head, body = self._head, bytes(self._refusal or b"")
        assert head is not None
        challenge = head.get(b"www-authenticate")
        if is_challenge(head):
            refused = Unauthorized(head.status, shown(body), self.address.origin, challenge)
            # So a token may be renewed, and then be given more scopes; and that is all.
            if head.status not in self._tried:
                self._tried |= {head.status}
                self._task = self.wire.task(self._refused(refused, body, head, challenge))
                return
            error: HttpError = refused
        elif head.status in _MOVED and self._moves < self.wire.settings.redirects:
            self._moves += 1
            elsewhere = self.address.beside(head.get(b"location"))
            what = "it redirects to another server, which is not followed"
            if elsewhere is not None:
                self.move(elsewhere)
                if self._was_not_done(head):
                    self.go()
                    return
                what = "it redirects a request that another server may have been given before"
            error = HttpError(head.status, what, self.address.origin)
        elif head.status == TOO_LARGE:
            error = RequestTooLarge(len(self.frame), shown(body), self.address.origin, retry_after(head))
        else:
            error = HttpError(head.status, shown(body), self.address.origin, retry_after(head))
        self.rejected(error, body, head)

    def _was_not_done(self, head: Head) -> bool:
        """Whether it can be sent again without being done twice."""
        return self.method != "POST" or self.wire.was_not_done(head)

    async def _refused(self, error: Unauthorized, body: bytes, head: Head, challenge: str) -> None:
        unseen = self._was_not_done(head)
        try:
            again = await self.wire.credentials.refused(head.status, challenge, self._sent)
        except TransportError as failed:
            self._fail(failed, unseen=unseen)
            return
        except Exception:  # noqa: BLE001 - somebody else's code
            again = False
        if self.done:
            return
        if again:
            self.wire.known_headers = None
            error.renewed = True
        if again and unseen:
            self.go()
        else:
            self.rejected(error, body, head)

    def move(self, elsewhere: Address) -> None:
        """The server says that it is somewhere else."""
        self.wire.address = elsewhere

    # --- time

    def breathe(self, seconds: float = _CALM, *, behind: bool = False) -> None:
        """Read no further while the connection has not caught up with what it was told; looked at less and less often.

        `behind`: events are left of the turn, and are taken before anything more is read.
        """
        if self._errand is not None and not self.done:
            if self.wire.crowded():
                self._errand.pause()
                self.wire.later(seconds, lambda: self.breathe(min(2 * seconds, _LONGEST_CALM), behind=behind))
            elif behind:
                self._errand.pause()  # which also holds the end of the answer back
                self.wire.later(0, self._catch_up)
            else:
                self._errand.resume()

    def _catch_up(self) -> None:
        if self._errand is not None and not self.done:
            self.take(b"")

    def alarm(self, seconds: float | None) -> None:
        """Have `rang` called in so many seconds, and not as was said before."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if seconds is not None:
            self._alarm = self.wire.later(seconds, self._ring)

    def is_silent(self, heard_at: float) -> bool:
        """Whether nothing has come for longer than settings allow. If not, it rings again when that may be so."""
        silence = self.wire.settings.silence
        assert silence is not None, "nobody listens for silence then"
        left = heard_at + silence - self.wire.now()
        if left > 0 or self.wire.crowded():
            self.alarm(max(left, 1.0))
            return False
        return True

    def _ring(self) -> None:
        self._alarm = None
        if not self.done:
            self.rang()

    def rang(self) -> None:
        """It is time."""


def shown(body: bytes) -> str:
    """The beginning of a refusal, as text in one line."""
    text = body[: 4 * _SHOWN].decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)[:_SHOWN].strip()


# --- What is known of a request that was answered with an HTTP status and no answer: whether it was surely not done, and when to try again. Pure.
# A status says what its sender has done, and not what happened before. A load balancer that has lost the first server in the middle of a call hands the
# call to a second one: that one's 404, 401 or 429 is true, and the call was done. So a refusal is believed of the process alone that has our session.
# Servers of greenroom say which process they are (`greenroom-instance`), with `initialize` and with each refusal of a request that they have not acted
# upon. The word has two parts, the program and the process in it.
# Servers that say nothing of the kind are believed the statuses that are by definition given before a request is acted upon; 404 is none of those.

INSTANCE: Final = b"greenroom-instance"
TOO_LARGE: Final = 413
_LONGEST: Final = 64
_DECLINED: Final = frozenset({307, 308, 401, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431})
_DENIED: Final = frozenset({401, 403})


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
