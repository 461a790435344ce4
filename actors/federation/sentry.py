"""The sentry of an upstream: while the breaker is open it sends the one probe, a ping, each time that it is due.

It also wakes a connection that has given up, after a long while. When it dies in the middle of a probe, that one is taken for
failed in time, and its successor sends the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.actors.client.seam import Phase
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import PeerError
from greenroom.supervision import GenServer
from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel.current import current_node

from .vital import vital

if TYPE_CHECKING:
    import asyncio

    from .upstream import Upstream


class Sentry(GenServer):
    """One for each upstream. It has no messages: one task keeps watch."""

    def __init__(self, upstream: Upstream) -> None:
        """What it watches."""
        self._upstream = upstream
        self._wakings = 0
        self._task: asyncio.Task[None] | None = None

    def init(self) -> None:
        """Begin."""
        self._task = vital(self._watch())

    def _now(self) -> float:
        return clock.now(self._otp_process.node.loop)

    async def _watch(self) -> None:
        upstream = self._upstream
        while True:
            ticket = upstream.breaker.probe(self._now())
            if ticket is not None:
                await self._probe(ticket)
                continue
            waits = [each for each in (upstream.breaker.retry_in(self._now()), self._wake()) if each is not None]
            await upstream.bell.wait(min(waits, default=None))

    async def _probe(self, ticket: int) -> None:
        upstream = self._upstream
        upstream.refresh()
        failure: GreenroomError | None = None
        try:
            await upstream.line.request("ping", timeout=upstream.breaker.settings.probe_timeout)
        except PeerError as error:  # also who knows no ping is there
            if error.code in upstream.breaker.settings.peer_codes:
                failure = error
        except GreenroomError as error:
            failure = error
        upstream.breaker.probed(ticket, failed=failure is not None, now=self._now(), cause=failure)
        upstream.refresh()
        upstream.gate.pump()

    def _wake(self) -> float | None:
        """In how many seconds a connection that has given up is told to try again; None when it has not."""
        upstream = self._upstream
        if upstream.line.status.phase is not Phase.PARKED:
            upstream.wake_at = None
            if upstream.line.status.phase is Phase.READY:
                self._wakings = 0
            return None
        now = self._now()
        if upstream.wake_at is None:
            upstream.wake_at = now + upstream.spec.revive.delay(self._wakings, current_node().random)
        if upstream.wake_at <= now:
            upstream.wake_at = None
            self._wakings += 1
            upstream.line.retry()
            return None
        return upstream.wake_at - now
