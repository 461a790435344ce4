"""Staying awake for a peer that asks again at once.

A program that has nothing to do is put to sleep, and to be woken takes it longer than many an answer: its own time, the system's, and that
of a processor whose caches have gone cold. A peer that asks one thing after another, each as soon as the last is answered, pays that each
time. So after an answer with which all is answered, the loop is kept turning for a moment, but only where the last question came
within that moment, too: whoever takes their time costs nothing, and a quick peer costs one such moment when it stops. Nobody is held up
by it, since every turn of the loop serves whatever has come.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from greenroom.supervision.kernel import clock

if TYPE_CHECKING:
    import asyncio

MOMENT = 1e-4
"""Seconds within which a peer has asked again at once."""
TURNS = 32
"""For so many turns the loop is kept awake: a moment or less, and bounded whatever the clock says."""


class Lingering:
    """For one peer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, processors: int | None = None) -> None:
        """`processors` is how many there are: where there is one, staying awake would keep the peer from asking."""
        self._loop = loop
        self._can = (processors or os.cpu_count() or 1) > 1
        self._answered = -MOMENT
        self._quick = False
        self._left = 0

    @property
    def awake(self) -> bool:
        """Whether the loop is kept turning just now."""
        return self._left > 0

    def asked(self) -> None:
        """The peer has said something."""
        self._quick = self._can and clock.now(self._loop) - self._answered < MOMENT

    def answered(self) -> None:
        """All that it has asked is answered."""
        self._answered = clock.now(self._loop)
        if self._quick:
            if not self._left:
                self._loop.call_soon(self._turn)
            self._left = TURNS

    def _turn(self) -> None:
        self._left -= 1
        if self._left:
            self._loop.call_soon(self._turn)
