"""The channel of standard input and output: one message a line, one peer, for as long as the program runs.

The process owns nothing but two helpers: one reads lines and hands them to the channel, one writes what the company says. Whatever
must not be lost when they die is in the `StdioWire`, which belongs to the code that describes the child: a restarted process
goes on in the middle of a line, with the same session. Reading waits until what was written is out, so a peer that does not
read its answers is not listened to, and costs no memory.

A peer that has closed the input and takes nothing of the output for a grace is gone, too, though what it wrote before was not read to the end:
the reader waits for the output, and would never come to see it.

At the end of the input the calls in flight get a grace, then the session ends, and the process stays, with nothing to do:
a permanent child that ended would be started again. A caller that wants to know waits for the wire to be `over`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.protocol.messages import Overlong, too_long
from greenroom.protocol.sse import Lines
from greenroom.supervision import (
    NORMAL,
    Exit,
    GenServer,
    Normal,
    Quit,
    Shutdown,
    Stop,
    child,
    clock,
    current_node,
    kill,
    self_pid,
    send_after,
    spawn_link,
    wait_down,
)

from .channel import Channel
from .descriptors import sink_of, source_of
from .interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from greenroom.supervision import ChildSpec, ExitReason, Pid, Ref

    from .descriptors import Sink, Source
    from .interfaces import Door

LINE_LIMIT = 4 * 1024 * 1024
GRACE = 5.0
PARENT_CHECKS = 2.0
"""How often it is looked whether the parent is still there, which a pipe that others hold open does not tell, and whether the peer is."""
_LINES_AT_A_TIME = 32
"""How many are handed over before other tasks have their turn."""
_JOINED = 256 * 1024
"""Up to so many bytes, messages are worth copying behind each other."""
_SOON = 0.05
"""The least for which a peer is watched that may be gone: a grace may be 0."""
_LAST_WORDS = 0.2
"""How long the session's end may take to answer what is owed."""

_PEER = "is the peer still there?"


class StdioWire:
    """Two descriptors with a company behind them, and everything that a restarted process goes on with."""

    source: Source
    sink: Sink
    _lingering: Lingering

    def __init__(self, door: Door, input: int, output: int, *, line_limit: int = LINE_LIMIT) -> None:  # noqa: A002
        """`input` and `output` stay the caller's: they are not closed here."""
        self._descriptors = input, output
        self._opened = False
        self._lines = Lines(line_limit)
        self._taken: deque[bytes | Overlong] = deque()
        self.channel = Channel(door, Peer("stdio"), self.write, line_limit)
        self.input_over = False
        self.ending = asyncio.Event()
        self.over = asyncio.Event()

    def open(self) -> None:
        """Get ready in the loop that runs; once."""
        if not self._opened:
            self.source = source_of(self._descriptors[0], current_node().serve)
            self.sink = sink_of(self._descriptors[1])
            self._lingering = Lingering(asyncio.get_running_loop())
            self._opened = True

    def close(self) -> None:
        """Close it: it is not used any more."""
        if self._opened:
            self.source.close()
            self.sink.close()

    async def write(self, messages: Sequence[bytes]) -> None:
        """Write messages, and come back when they are out. Ends the calling process when the reader has gone."""
        if sum(map(len, messages)) <= _JOINED:
            self.sink.put(b"\n".join((*messages, b"")))
        else:  # to copy something long would hold every task up
            for message in messages:
                self.sink.put(message)
                self.sink.put(b"\n")
        if not self.channel.owed:
            self._lingering.answered()
        if self.sink.busy:
            await self.sink.drained()
        if self.sink.gone:
            raise Quit(NORMAL)

    async def read(self) -> None:
        """Hand over line after line, until the input ends."""
        sink, taken = self.sink, self._taken
        left = _LINES_AT_A_TIME
        while True:
            while taken:
                if sink.busy:
                    await sink.drained()
                line = taken.popleft()
                if isinstance(line, Overlong):
                    await asyncio.sleep(0)  # what can be said of those before it is said before
                    await self.channel.refuse(too_long(line, self._lines.limit))
                elif line.strip():
                    await self.channel.take(line)
                left -= 1
                if not left:  # a peer that sends without a pause must not keep other tasks waiting
                    left = _LINES_AT_A_TIME
                    await asyncio.sleep(0)
            if self.input_over:
                return
            chunk = await self.source.read()
            self._lingering.asked()
            if chunk:
                taken.extend(self._lines.feed(chunk))
                continue
            self.input_over = True
            last = self._lines.end()
            if last is not None:
                taken.append(last)

    async def finish(self, grace: float) -> None:
        """The peer asks no more: let what was asked be answered, and end the session."""
        deadline = asyncio.get_running_loop().time() + grace
        if not self.sink.gone:
            await self.channel.settle(grace)
        await self.channel.end()
        # What was not answered in time is answered by the session's end. That takes a moment, also when no time is left.
        deadline = max(deadline, asyncio.get_running_loop().time() + _LAST_WORDS)
        if not self.sink.gone:
            await self.channel.settle(deadline - asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.sink.drained()

    async def conclude(self, grace: float) -> None:
        """The same, for good: the peer is gone, or will say nothing more."""
        self.ending.set()
        await self.finish(grace)
        self.over.set()


class Stdio(GenServer):
    """The process of the channel."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, wire: StdioWire, grace: float = GRACE, parent_checks: float = PARENT_CHECKS) -> None:
        """`grace` is how long calls in flight may take once the input has ended, or the program is to stop."""
        self._wire = wire
        self._grace = grace
        self._parent_checks = parent_checks
        self._parent = os.getppid()
        self._moved = 0
        self._moved_at = 0.0  # on a clock that began with the machine: `init` sets it
        self._reader: Pid | None = None
        self._writer: Pid | None = None
        self._finisher: Pid | None = None

    def init(self) -> None:
        """Begin, or go on where the one before has died."""
        if self._wire.over.is_set():
            return
        self._wire.open()
        self._moved, self._moved_at = self._wire.sink.moved, asyncio.get_running_loop().time()
        self._writer = spawn_link(self._wire.channel.carry)
        self._reader = spawn_link(self._wire.read)
        self._look_again()

    def handle_info(self, message: object) -> Stop | None:
        """One of the helpers has ended, or it is time to look for the parent."""
        match message:
            case Exit(pid=pid) if self._finisher is not None and pid != self._finisher:
                pass  # they are not needed any more
            case Exit(reason=Normal()):
                self._conclude()
            case Exit(reason=reason):
                return Stop(reason)
            case _ if message == _PEER:
                if os.getppid() != self._parent:
                    self._conclude()
                elif self._is_abandoned():
                    self._conclude(0.0)
                elif self._finisher is None:
                    self._look_again()
            case _:
                return super().handle_info(message)  # type: ignore[return-value]
        return None

    def _look_again(self) -> None:
        send_after(min(self._parent_checks, max(self._grace, _SOON)), self_pid(), _PEER)

    def _is_abandoned(self) -> bool:
        """Whether the peer has closed the input, and taken nothing of the output for a grace."""
        wire, now = self._wire, asyncio.get_running_loop().time()
        if not wire.sink.busy or wire.sink.moved != self._moved or not wire.source.hung_up:
            self._moved, self._moved_at = wire.sink.moved, now
        return now - self._moved_at >= max(self._grace, _SOON)

    def _conclude(self, grace: float | None = None) -> None:
        """The input has ended, the output has no reader, or the parent is dead."""
        if self._finisher is None:
            self._finisher = spawn_link(self._wire.conclude, self._grace if grace is None else grace)
            assert self._reader is not None
            kill(self._reader)

    async def terminate(self, reason: ExitReason) -> None:
        """Told to stop: listen no more, but answer what was asked."""
        if isinstance(reason, Shutdown) and self._reader is not None and not self._wire.over.is_set():
            kill(self._reader)
            await wait_down(self._reader)
            await self._wire.finish(self._grace)


def stdio_child(wire: StdioWire, *, name: Hashable | None = None, grace: float = GRACE) -> ChildSpec[Ref[Stdio]]:
    """The spec of a permanent child that serves `wire`."""
    return child(Stdio, wire, grace).but(id="stdio", name=name, shutdown=2 * grace + 1)


# --- Staying awake for a peer that asks again at once.
# A program that has nothing to do is put to sleep, and to be woken takes it longer than many an answer: its own time, the system's, and that
# of a processor whose caches have gone cold. A peer that asks one thing after another, each as soon as the last is answered, pays that each
# time. So after an answer with which all is answered, the loop is kept turning for a moment, but only where the last question came
# within that moment, too: a slow peer costs nothing, and a quick peer costs one such moment when it stops. No task is held up
# by it, since every turn of the loop serves whatever has come.

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


# --- The standard streams, taken away from the rest of the program.
# Under stdio, what goes to descriptor 1 is the protocol, and one `print` in a tool, in a C library or in a child process would be a
# broken message. So the two descriptors are moved to other numbers: 1 then leads to stderr and 0 to the null device. What
# Python has not flushed by then goes to stderr, too. It stays like that when the peer has gone, since what is printed then is no
# protocol either.

STDIN, STDOUT, STDERR = 0, 1, 2


class StandardStreams:
    """What they were: two descriptors that no other code knows, and that no child inherits."""

    def __init__(self) -> None:
        """Take both away."""
        self.input = _moved(STDIN)
        self.output = _moved(STDOUT)
        _lead(STDIN, os.devnull, os.O_RDONLY)
        _lead_to_stderr()
        _flush(sys.stdout)
        out: Any = sys.stdout
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(line_buffering=True)  # a message for people is to be seen when it is printed

    def close(self) -> None:
        """The peer is gone, or is to see that we are. A thread that is still at it must not find another file under that number."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self.input, inheritable=False)
        os.dup2(nothing, self.output, inheritable=False)
        os.close(nothing)

    def give_back(self) -> None:
        """As before, for a caller that knows that the output is not read as protocol."""
        _flush(sys.stdout)
        os.dup2(self.input, STDIN)
        os.dup2(self.output, STDOUT)
        os.close(self.input)
        os.close(self.output)


def _moved(descriptor: int) -> int:
    """Another number for what it leads to; the null device where it leads nowhere."""
    low: list[int] = []
    try:
        moved = _another(descriptor)
        while moved <= STDERR:  # a program that was started without one of them gets its number here
            low.append(moved)
            moved = _another(descriptor)
        return moved
    finally:
        for each in low:
            os.close(each)


def _another(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


def _lead(descriptor: int, path: str, flags: int) -> None:
    there = os.open(path, flags)
    if there != descriptor:  # a program that was started without it gets that very number
        os.dup2(there, descriptor)
        os.close(there)


def _lead_to_stderr() -> None:
    try:
        os.dup2(STDERR, STDOUT)
    except OSError:
        _lead(STDOUT, os.devnull, os.O_WRONLY)


def _flush(stream: Any) -> None:
    with contextlib.suppress(
        AttributeError, OSError, ValueError
    ):  # None, broken or closed: then nothing is lost that we could save
        stream.flush()
