"""The events of an upstream: another state, and another state of its breaker. Imported when the first of them has a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.actors.client.client_events import reason_text
from greenroom.event_types import BreakerChanged, RequestRefused, UpstreamChanged
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from .federation_errors import UpstreamBusy
    from .upstream import Upstream


def announce_state(upstream: Upstream, before: str) -> None:
    """Emit the present state of an upstream, which was in the state `before`; empty for a new one."""
    if bus.listener is not None:
        status = upstream.status
        bus.listener(
            UpstreamChanged(
                program=upstream.federation.key.name,
                upstream=upstream.name,
                before=before,
                state=status.state.value,
                reason=reason_text(status.cause),
                next_attempt=status.next_attempt,
                revision=status.revision,
                process=status.process,
            )
        )


def announce_breaker(upstream: Upstream) -> None:
    """Emit the present state of an upstream's breaker."""
    if bus.listener is not None:
        breaker = upstream.breaker
        bus.listener(
            BreakerChanged(
                program=upstream.federation.key.name,
                upstream=upstream.name,
                state=breaker.state.value,
                reason=reason_text(breaker.cause),
            )
        )


def announce_full_queue(upstream: Upstream, busy: UpstreamBusy, method: str) -> None:
    """Emit that a request found the queue of an upstream full."""
    if bus.listener is not None:
        bus.listener(
            RequestRefused(
                program=upstream.federation.key.name, kind=busy.reason, setting="UpstreamSpec(queue=…)", method=method
            )
        )
