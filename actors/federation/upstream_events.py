"""The events of an upstream: another state, and another state of its breaker. Imported when the first of them has a listener."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.client_events import ClientCall, reason_text
from greenroom.event_types import BreakerChanged, RequestRefused, UpstreamChanged
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.client.errors import ClientError
    from greenroom.auth.errors import SignInError

    from .federation_errors import UpstreamBusy
    from .upstream import Upstream

_BOUNDS: Final = frozenset({"no_room"})
"""The reasons of errors that are refusals by a bound of this program."""


def announce_state(upstream: Upstream, before: str) -> None:
    """Emit the present state of an upstream, which was in the state `before`; empty for a new one."""
    listener = bus.listener
    if listener is not None:
        listener(state_of(upstream, before))


def announce_breaker(upstream: Upstream) -> None:
    """Emit the present state of an upstream's breaker."""
    listener = bus.listener
    if listener is not None:
        listener(breaker_of(upstream))


def state_of(upstream: Upstream, before: str = "") -> UpstreamChanged:
    """The event that tells the present state of an upstream."""
    status = upstream.status
    return UpstreamChanged(
        program=upstream.federation.key.name,
        upstream=upstream.name,
        before=before,
        state=status.state.value,
        reason=reason_text(status.cause),
        next_attempt=status.next_attempt,
        revision=status.revision,
        process=status.process,
    )


def breaker_of(upstream: Upstream) -> BreakerChanged:
    """The event that tells the present state of an upstream's breaker."""
    breaker = upstream.breaker
    return BreakerChanged(
        program=upstream.federation.key.name,
        upstream=upstream.name,
        state=breaker.state.value,
        reason=reason_text(breaker.cause),
    )


def announce_unsent(
    program: str, upstream: str, method: str, params: Mapping[str, Any], error: ClientError | SignInError
) -> None:
    """Emit a call that got no connection to an upstream: all are in use, the upstream is away, or the caller has no login there."""
    ClientCall(upstream, None, asyncio.get_running_loop(), method, params, host=program).end(None, error)
    if error.reason in _BOUNDS and bus.listener is not None:
        bus.listener(RequestRefused(program=program, kind=error.reason, method=method))


def announce_full_queue(upstream: Upstream, busy: UpstreamBusy, method: str) -> None:
    """Emit that a request found the queue of an upstream full."""
    if bus.listener is not None:
        bus.listener(
            RequestRefused(
                program=upstream.federation.key.name, kind=busy.reason, setting="UpstreamSpec(queue=…)", method=method
            )
        )
