"""Lines that somebody types, awaited in the loop: whatever else goes on goes on, and whoever needs no answer any more stops waiting for it.

No thread sits in a read that nobody can end, so Ctrl-C is heard, a question can be taken back, and the interpreter ends without anybody holding its
stdin. What was typed before a question was there is no answer to it, and is thrown away.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from greenroom.supervision import Threads

from .door import echo, styled

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

_LONGEST: Final = 1 << 16
_YES: Final = frozenset(("y", "yes"))
_NO: Final = frozenset(("n", "no"))


class Left(Exception):
    """Whoever was asked has turned away: the terminal's end of file."""


class Prompt:
    """The terminal, for one who asks one thing after the other."""

    def __init__(self, stdin: int | None = None) -> None:
        """`stdin` is the descriptor to read from."""
        self._stdin = sys.stdin.fileno() if stdin is None else stdin
        self._typed = b""
        self._interrupted = False

    def begin(self) -> None:
        """Something new is asked: forget what was typed for anything else."""
        self._typed = b""
        try:
            import termios  # noqa: PLC0415 - it is not everywhere
        except ImportError:
            return
        if os.isatty(self._stdin):
            termios.tcflush(self._stdin, termios.TCIFLUSH)

    async def ask(self, question: str, usual: str = "") -> str:
        """What was typed: nothing for what stands in brackets, which is only a picture of it. Raises `Left`."""
        echo(f"{question}{f' [{usual}]' if usual else ''}: ", error=True, newline=False)
        return (await self._line()).strip()

    async def confirmed(self, question: str, *, default: bool = False) -> bool:
        """Yes or no. Raises `Left`."""
        while True:
            echo(f"{question} [{'Y/n' if default else 'y/N'}]: ", error=True, newline=False)
            word = (await self._line()).strip().casefold()
            if not word:
                return default
            if word in _YES | _NO:
                return word in _YES
            echo(styled(f"  {word!r} is neither yes nor no", "bad"), error=True)

    async def _line(self) -> str:
        """One line, without its end."""
        while b"\n" not in self._typed and len(self._typed) < _LONGEST:
            got = await self._read()
            if not got:
                raise Left
            self._typed += got
        line, _, self._typed = self._typed.partition(b"\n")
        return line[:_LONGEST].decode(errors="replace")

    async def _read(self) -> bytes:
        """What there is, as soon as there is something; nothing at the end."""
        loop = asyncio.get_running_loop()
        there = asyncio.Event()
        try:
            loop.add_reader(self._stdin, there.set)
        except (
            NotImplementedError
        ):  # the loop of Windows: there, a thread sits in the read, and what it gets is the next one's
            return await Threads(1).run(os.read, self._stdin, _LONGEST)
        try:
            await there.wait()
            return os.read(self._stdin, _LONGEST)
        except OSError:  # the terminal has gone
            return b""
        finally:
            loop.remove_reader(self._stdin)

    @contextmanager
    def interruptible(self) -> Generator[asyncio.Event]:
        """While it lasts, the first Ctrl-C of all sets the event; any other is the program's own, and ends it."""
        left = asyncio.Event()
        before = signal.getsignal(signal.SIGINT)
        if self._interrupted or not callable(before) or threading.current_thread() is not threading.main_thread():
            yield left
            return
        loop = asyncio.get_running_loop()

        def heard(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals call it
            self._interrupted = True
            signal.signal(signal.SIGINT, before)
            loop.call_soon_threadsafe(left.set)

        signal.signal(signal.SIGINT, heard)
        try:
            yield left
        finally:
            if signal.getsignal(signal.SIGINT) is heard:
                signal.signal(signal.SIGINT, before)
