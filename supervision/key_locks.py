"""Locks by key: who holds which, and who waits for it, in order. The book-keeping of a `Registry`, which owns one.

Nothing here watches anybody: the owner says when a holder is gone, which is after its code has unwound, so that two
never hold a key at once. Whoever waits and gives up, or dies, is passed over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .kernel import api

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from .behaviours.caller import Caller
    from .kernel.pid import Pid


@dataclass(slots=True)
class _Lock:
    """One key: its holder, the holder's own mark, and the queue."""

    pid: Pid
    ticket: object
    waiting: deque[tuple[Pid, object, Caller[None]]] = field(
        default_factory=deque[tuple["Pid", object, "Caller[None]"]]
    )


class KeyLocks:
    """All locks of one registry. A key that nobody holds takes no room."""

    __slots__ = ("_held", "_locks")

    def __init__(self) -> None:
        """Nobody holds anything."""
        self._locks: dict[Hashable, _Lock] = {}
        self._held: dict[Pid, dict[object, Hashable]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def held_by(self, pid: Pid) -> bool:
        """Whether that process holds any key."""
        return pid in self._held

    def take(self, key: Hashable, pid: Pid, ticket: object, caller: Caller[None]) -> bool:
        """Hold the key, or queue up for it: then `caller` is answered when its turn has come."""
        lock = self._locks.get(key)
        if lock is None:
            self._locks[key] = _Lock(pid, ticket)
            self._note(key, pid, ticket)
            return True
        lock.waiting.append((pid, ticket, caller))
        return False

    def release(self, key: Hashable, pid: Pid, ticket: object) -> Pid | None:
        """Give a key back, or leave its queue. Returns who holds the key from now on, if that is somebody else."""
        lock = self._locks.get(key)
        if lock is None:
            return None
        if lock.ticket != ticket:
            lock.waiting = deque(entry for entry in lock.waiting if entry[1] != ticket)
            return None
        held = self._held[pid]
        del held[ticket]
        if not held:
            del self._held[pid]
        return self._pass_on(key, lock)

    def gone(self, pid: Pid) -> Iterable[Pid]:
        """A holder has ended: its keys go on. Returns to whom."""
        heirs = [self._pass_on(key, self._locks[key]) for key in self._held.pop(pid, {}).values()]
        return [heir for heir in heirs if heir is not None]

    def _pass_on(self, key: Hashable, lock: _Lock) -> Pid | None:
        while lock.waiting:
            pid, ticket, caller = lock.waiting.popleft()
            if not caller.over and api.is_alive(pid) and caller.reply(None):
                lock.pid, lock.ticket = pid, ticket
                self._note(key, pid, ticket)
                return pid
        del self._locks[key]
        return None

    def _note(self, key: Hashable, pid: Pid, ticket: object) -> None:
        self._held.setdefault(pid, {})[ticket] = key
