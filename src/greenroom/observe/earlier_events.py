"""What began before an observer listened, and is open: the states of upstreams, and the sessions of their connections, as the events that would have told of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from greenroom.actors.running_trees import running_trees
from greenroom.supervision.kernel.process_lookup import open_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.actors.federation.federation import Federation
    from greenroom.event_types import BreakerChanged, SessionOpened, UpstreamChanged
    from greenroom.supervision.kernel.node import Node


def running_federations() -> Iterator[tuple[Node, Federation]]:
    """The hosts and gateways of this program, each with its node. Any thread may ask."""
    module: Any = sys.modules.get("greenroom.actors.federation.federation")
    if module is None:
        return  # a program without hosts and gateways
    for node in open_nodes():
        for federation in running_trees(node, module.Federation):
            yield node, federation


def earlier_events() -> Iterator[UpstreamChanged | BreakerChanged | SessionOpened]:
    """The events of all that is open now. A connection that became ready unobserved has a session from now on, whose end is told."""
    for node, federation in running_federations():
        from greenroom.actors.client.connection_line import ConnectionLine  # noqa: PLC0415 - only where there are upstreams
        from greenroom.actors.client.interfaces import Phase  # noqa: PLC0415 - as above
        from greenroom.actors.federation.upstream_events import breaker_of, state_of  # noqa: PLC0415 - as above

        # The one that has the name now comes last.
        for some in (federation.leaving, federation.arriving, federation.members):
            for upstream in list(some.values()):
                state, breaker = state_of(upstream), breaker_of(upstream)
                if state.state != "stopped":  # its end has been told
                    yield state
                    if breaker.state != "closed":
                        yield breaker
                line = upstream.line
                if isinstance(line, ConnectionLine) and line.phase is Phase.READY:
                    session = line.session or line.start_session(node.loop, upstream.status.since or 0.0)
                    yield session.opened
