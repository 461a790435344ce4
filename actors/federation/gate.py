"""The gate of an upstream: each request passes it, and is refused, made to wait or let go, and counted when it ends.

It is no process, so that a request costs no message: whoever asks, or whoever's answer makes room, does the book-keeping.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from greenroom.actors.client.errors import ClientClosed, InitTimeout, NotReady, RequestLost, Unavailable
from greenroom.transports.client.errors import ConnectFailed

from .breaker import is_failure
from .errors import UpstreamBusy
from .fan_out import FanOut

if TYPE_CHECKING:
    from .breaker import Breaker
    from .requests import GuardedRequest
    from .upstream import Upstream


class Gate:
    """Of one registration. It is open while the upstream's processes run."""

    __slots__ = ("_book", "_breaker", "_closed", "_upstream")

    def __init__(self, upstream: Upstream, breaker: Breaker) -> None:
        """Shut."""
        self._upstream = upstream
        self._breaker = breaker
        self._closed = False
        spec = upstream.spec
        self._book: FanOut[GuardedRequest] = FanOut(upstream.name, spec.concurrent, spec.queue)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        return not (self._book.under_way or self._book.waiting)

    @property
    def wanted(self) -> bool:
        """Whether it is to go on here, whatever ends just now."""
        upstream = self._upstream
        return not (self._closed or upstream.stopped or upstream.leave_by is not None)

    @property
    def under_way(self) -> int:
        """How many requests are."""
        return self._book.under_way

    @property
    def waiting(self) -> int:
        """How many wait for one of those to end."""
        return self._book.waiting

    @property
    def in_progress(self) -> int:
        """How many requests have no outcome yet."""
        return self._book.under_way + self._book.waiting

    def enter(self, request: GuardedRequest) -> None:
        """A request comes."""
        refusal = self.refusal()
        if not self._upstream.connected:
            self.shut()
        if refusal is None and not (self._book.is_open or request.wait):
            refusal = NotReady(f"{self._upstream.name} does not run just now")
        if refusal is not None:
            request.fail(refusal)
            return
        try:
            entry = self._book.enter(request.who, request, _now())
        except UpstreamBusy as busy:
            request.fail(busy)
            return
        if entry.granted:
            request.send(self._upstream.line, self, self._breaker.turn)
            return
        request.queue(self, None if self._book.is_open else self._upstream.patience)
        if entry.displaced is not None:
            entry.displaced.fail(self._book.refusal())

    def stalled(self, patience: float) -> Exception | None:
        """Why a request that has waited so long for the upstream's processes waits no more; None where they run now."""
        if self._book.is_open:
            return None
        upstream = self._upstream
        slow = InitTimeout(f"it is still {upstream.standing.state.value} after {patience:g} s")
        return Unavailable(upstream.name, slow)

    def refusal(self) -> Exception | None:
        """Why nothing may pass."""
        upstream = self._upstream
        if self._closed or (upstream.stopped and not upstream.connected):
            return ClientClosed(f"{upstream.name} was stopped")
        return upstream.refusal()

    def open(self) -> None:
        """Its processes run."""
        self._book.is_open = True
        self.pump()

    def shut(self) -> None:
        """They do not, just now."""
        self._book.is_open = False

    def close(self) -> None:
        """Nothing passes any more. What is under way is its line's to end."""
        self._closed = True
        self.refuse_waiting()

    def abandon(self) -> None:
        """Nobody is left behind it: what is under way, for whoever may come, does not wait for that."""
        self.refuse_waiting()
        refusal = self.refusal()
        for request in self._book.going:
            if refusal is not None:
                request.give_up(refusal)

    def refuse_waiting(self) -> None:
        """Those who wait do so in vain, if nothing may pass."""
        refusal = self.refusal
        for request in self._book:
            if (why := refusal()) is not None:
                request.fail(why)

    def ended(self, request: GuardedRequest, error: BaseException | None) -> None:
        """One that had gone has its outcome."""
        now = _now()
        self._book.leave(request, now)
        breaker = self._breaker
        failed = is_failure(error, breaker.settings.peer_codes)
        self._upstream.signs_in(error)
        if isinstance(error, RequestLost) and isinstance(error.cause, ConnectFailed):
            opens = breaker.opens(request.turn, now, error)  # it was tried twice, and no peer answers there
        else:
            opens = failed is not None and breaker.settle(request.turn, failed=failed, now=now, cause=error)
        if opens:
            self.refuse_waiting()
            self._upstream.refresh()
        self.pump()
        self._empty()

    def gave_up(self, request: GuardedRequest) -> None:
        """One that waited does so no more."""
        if self._book.give_up(request):
            self._empty()

    def _empty(self) -> None:
        """Perhaps somebody waits for it to be empty: only who is about to go."""
        if self._upstream.leave_by is not None and self.idle:
            self._upstream.bell.ring()

    def pump(self) -> None:
        """Let go whose turn it is."""
        if not self._book.waiting:
            return
        if not self._upstream.connected:
            self.shut()
        if not self._closed and self._breaker.closed:
            now = _now()
            while (request := self._book.next(now)) is not None:
                request.send(self._upstream.line, self, self._breaker.turn)


def _now() -> float:
    return asyncio.get_running_loop().time()
