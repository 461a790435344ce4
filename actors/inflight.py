"""The calls of one session that are under way, each decided exactly once.

An entry is made when its request comes, under our own number; the peer's id stands beside it. Whatever comes first (the result, a
cancellation, the deadline, the worker's death, the session's end) takes the entry, and with it the right to answer; what comes later
finds nothing. A worker whose call is decided is remembered until it is gone.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.messages import ID_LIMIT, id_key

from .cancellation import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision import Caller, Pid
    from greenroom.transports.seam import Reply

    from .streams import Stream
    from .voice import CallVoice

NEVER: Final = math.inf
_REMEMBERED: Final = 64
"""How many ids of calls that are over, and of cancellations that came too early, are remembered."""
_EARLY_SECONDS: Final = 5.0
"""How long a cancellation waits for the request that it overtook."""


class Call:
    """One request that is being worked on."""

    __slots__ = (
        "began",
        "caller",
        "cancelled",
        "due",
        "heard",
        "id",
        "key",
        "lasting",
        "limit",
        "method",
        "name",
        "note",
        "quiet",
        "stream",
        "task",
        "voice",
        "worker",
    )

    def __init__(self, key: int, id: str | int, method: str, caller: Caller[Reply] | None) -> None:
        """`caller` waits for the reply; there is none on a channel."""
        self.key = key
        self.id = id
        self.method = method
        self.caller = caller
        self.cancelled = Cancellation()
        self.name = ""
        self.began = 0.0
        """When its request came, on the loop's clock."""
        self.note: Any = None
        """What is to be done with what a hook returns."""
        self.stream: Stream | None = None
        self.task: str | None = None
        """The task that answers it, instead of a worker."""
        self.worker: Pid | None = None
        self.voice: CallVoice | None = None
        self.due = NEVER
        """When its deadline is over, on the loop's clock."""
        self.quiet = NEVER
        """When its answer becomes a stream, on the loop's clock, unless it has one by then."""
        self.lasting = False
        """Whether its deadline holds whatever it says meanwhile."""
        self.limit: float | None = None
        """How many seconds that is."""
        self.heard = 0.0
        """When a question of its handler was last answered, or given up, on the loop's clock; reports are counted by its voice."""

    def __repr__(self) -> str:
        return f"<Call {self.key} {self.method} {self.name}>"


class InFlight:
    """The table of one session."""

    __slots__ = ("_by_id", "_calls", "_early", "_over", "_workers")

    def __init__(self) -> None:
        """Nothing is under way."""
        self._calls: dict[int, Call] = {}
        self._by_id: dict[str | int | bytes, Call] = {}
        self._workers: dict[Pid, Call] = {}
        self._early: dict[str | int | bytes, float] | None = None
        self._over: deque[str | int] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(tuple(self._calls.values()))

    @property
    def busy(self) -> bool:
        """Whether anything runs, a call that is decided already included."""
        return bool(self._calls or self._workers)

    def add(self, call: Call) -> None:
        """It is under way."""
        self._calls[call.key] = call
        self._by_id[id_key(call.id)] = call

    def has(self, id: str | int) -> bool:
        """Whether a request with this id is under way."""
        return id_key(id) in self._by_id

    def get(self, key: int) -> Call | None:
        """The call with this number, if it is not decided yet."""
        return self._calls.get(key)

    def with_id(self, id: str | int) -> Call | None:
        """The call that the peer calls so."""
        return self._by_id.get(id_key(id))

    def take(self, key: int) -> Call | None:
        """Decide this call: whoever gets it answers, and nobody else will."""
        call = self._calls.pop(key, None)
        if call is not None:
            del self._by_id[id_key(call.id)]
            if self._over is None:
                self._over = deque(maxlen=_REMEMBERED)
            self._over.append(call.id)
        return call

    # --- workers

    def began(self, key: int, worker: Pid) -> bool:
        """That process works on it. False when the call is decided already."""
        call = self._calls.get(key)
        if call is None:
            return False
        call.worker = worker
        self._workers[worker] = call
        return True

    def gone(self, worker: Pid) -> Call | None:
        """That process is gone; the call it worked on, decided or not."""
        return self._workers.pop(worker, None)

    def knows(self, worker: Pid) -> bool:
        """Whether that worker is still there."""
        return worker in self._workers

    def unstarted(self) -> list[Call]:
        """The calls that no worker has begun with."""
        return [call for call in self._calls.values() if call.worker is None and call.task is None]

    # --- cancellations that overtook their requests

    def came_early(self, id: str | int, now: float) -> None:
        """A cancellation for an id that is not under way: either over, or still to come."""
        if (self._over is not None and id in self._over) or (isinstance(id, str) and len(id) > ID_LIMIT):
            return
        if self._early is None:
            self._early = {}
        self._early[id_key(id)] = now + _EARLY_SECONDS
        while len(self._early) > _REMEMBERED:
            del self._early[next(iter(self._early))]

    def is_cancelled_early(self, id: str | int, now: float) -> bool:
        """Whether the cancellation of this request was here before it; asked once."""
        if not self._early:
            return False
        until = self._early.pop(id_key(id), None)
        return until is not None and now <= until
