"""Deadlines of calls, in lanes.

Nearly every call has a deadline and nearly none reaches it, so arming one must cost next to nothing. Calls that wait
equally long fall due in the order they were made: one queue per duration keeps them sorted for free, what was answered
is dropped when it comes to the front, and the loop has one timer for the lane instead of one per call.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

    from .node import Node

_SWEEP_FROM = 256  # a lane shorter than this is not worth sweeping
_LANES_KEPT = 64  # with more lanes than this, those that no call waits in are dropped


class Expiring(Protocol):
    """Something that can come too late."""

    _future: asyncio.Future[Any]
    """Done when it was answered, or its caller waits no more."""

    def expire(self, seconds: float) -> None:
        """The deadline has passed."""
        ...


class _Lane:
    __slots__ = ("handle", "queue", "seconds", "sweep_at")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.queue: deque[tuple[float, Expiring]] = deque()
        self.handle: asyncio.TimerHandle | None = None
        self.sweep_at = _SWEEP_FROM


class Deadlines:
    """All deadlines of one node."""

    __slots__ = ("_lanes", "_node", "_sweep_at")

    def __init__(self, node: Node) -> None:
        """A node has one of these."""
        self._node = node
        self._lanes: dict[float, _Lane] = {}
        self._sweep_at = _LANES_KEPT

    def __len__(self) -> int:
        """How many entries are held, answered ones that were not dropped yet included."""
        return sum(len(lane.queue) for lane in self._lanes.values())

    def add(self, seconds: float, item: Expiring) -> None:
        """`item` expires in so many seconds, unless it is over by then."""
        lane = self._lanes.get(seconds)
        if lane is None:
            lane = self._open(seconds)
        queue = lane.queue
        while queue and queue[0][1]._future.done():
            queue.popleft()
        if len(queue) >= lane.sweep_at:
            # One that waits at the front holds up the answered ones behind it; sweep when they may be the most.
            lane.queue = queue = deque(entry for entry in queue if not entry[1]._future.done())
            lane.sweep_at = max(_SWEEP_FROM, 2 * len(queue))
        queue.append((self._node.loop.time() + seconds, item))
        if lane.handle is None:
            self._arm(lane)

    def _open(self, seconds: float) -> _Lane:
        if len(self._lanes) >= self._sweep_at:
            # Code that hands on what is left of a deadline has a lane for each call: a sweep has to be paid for by many.
            for key, lane in tuple(self._lanes.items()):
                if all(item._future.done() for _, item in lane.queue):
                    if lane.handle is not None:
                        lane.handle.cancel()
                    del self._lanes[key]
            self._sweep_at = max(_LANES_KEPT, 2 * len(self._lanes))
        lane = self._lanes[seconds] = _Lane(seconds)
        return lane

    def _arm(self, lane: _Lane) -> None:
        node = self._node
        lane.handle = node.loop.call_at(lane.queue[0][0], self._due, lane, context=node.context)

    def _due(self, lane: _Lane) -> None:
        lane.handle = None
        now = self._node.loop.time()
        queue = lane.queue
        while queue:
            deadline, item = queue[0]
            if not item._future.done():
                if deadline > now:
                    break
                queue.popleft()
                item.expire(lane.seconds)
            else:
                queue.popleft()
        if queue:
            self._arm(lane)

    def close(self) -> None:
        """Disarm everything."""
        for lane in self._lanes.values():
            if lane.handle is not None:
                lane.handle.cancel()
        self._lanes.clear()
