"""Heartbeats: each end of a link says something now and then, and who says nothing for too long is lost.

Looked at four times a heartbeat, so that a node which has fallen silent is given up within `heartbeat * misses` seconds of its last word and
not later. Whoever was held up themselves has not listened either, and judges nobody in that turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import items
from .values import encode

if TYPE_CHECKING:
    import asyncio

    from .peers import Peers

_LOOKS: Final = 4
_BEAT: Final = encode([items.BEAT], "")


class Silence:
    """The clock of one node's links."""

    def __init__(self, peers: Peers, heartbeat: float, misses: int) -> None:
        """Not running yet."""
        if not heartbeat > 0 or misses < 1:
            raise ValueError(
                f"heartbeat must be more than 0 seconds and misses at least 1, not {heartbeat!r} and {misses!r}"
            )
        self.heartbeat = heartbeat
        self.misses = misses
        self._peers = peers
        self._patient: set[str] = set()
        self._turn: asyncio.TimerHandle | None = None
        self._due: float | None = None

    def begin(self) -> None:
        """From now on."""
        loop = self._peers.node.loop
        step = self.heartbeat / _LOOKS
        self._due = loop.time() + step
        self._turn = loop.call_later(step, self._look, context=self._peers.node.context)

    def end(self) -> None:
        """No more."""
        if self._turn is not None:
            self._turn.cancel()

    def allow(self, name: str) -> None:
        """That node may be silent."""
        self._patient.add(name)

    def forget(self, name: str) -> None:
        """It may not."""
        self._patient.discard(name)

    def _look(self) -> None:
        now = self._peers.node.loop.time()
        late = now - (self._due or now)
        beat = self.heartbeat / 2
        # The last look before the time is over decides; a link with no miss to spare has its time out.
        limit = self.heartbeat * self.misses - (self.heartbeat / _LOOKS if self.misses > 1 else 0.0)
        for name, link in self._peers.links():
            if now - link.spoke >= beat:
                link.post(_BEAT)
            if late < beat and name not in self._patient and now - link.heard > limit:
                link.end(f"nothing was heard of it for {now - link.heard:.1f} s")
        self.begin()
