"""Running a tree as a program: it stops in order when it is told to, is gone in time whatever its code does, and says how it ended.

The first SIGTERM or SIGINT stops the tree: listeners first, then what they served. Whoever is not done when the grace is over is
killed; and a thread outside of the loop sees to it that the program is gone half a second later even if the loop is stuck. A second
signal ends the program at once, by its own default action. A tree that gives up is an error, and the exit code 1.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    CallTimeout,
    Node,
    StartFailed,
    Supervisor,
    exit,
    start,
    wait_down,
)

from .errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import FrameType

    from greenroom.supervision import ChildSpec, ExitReason, Ref

GRACE: Final = 5.0
"""How long the tree may take to stop."""
MARGIN: Final = 0.4
"""How much longer until the program ends without it."""
_UNWINDING: Final = 0.2
_INSIST: Final = "insist"
_LEAVE: Final = "leave"

_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


class GaveUp(GreenroomError):
    """The tree has ended though nobody has told it to; the reason says what could not be kept alive."""

    def __init__(self, reason: ExitReason) -> None:
        """`reason` is that of the topmost supervisor."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the server has ended: {self.reason}"


def check_no_loop() -> None:
    """Raise `RuntimeError` where there is a loop already: two do not fit into a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "run() starts an event loop, and this code runs in one: write `async with server.started():`, mount server.asgi(), "
        "or give server.child_spec() to a supervisor"
    )


def run(
    children: Callable[[], Sequence[ChildSpec[Any]]],
    until: Callable[[Ref[Any]], Awaitable[object]] | None = None,
    *,
    grace: float = GRACE,
) -> None:
    """Run a supervisor with these children until `until` returns, a signal comes, or it gives up: then `GaveUp` is raised.

    `children` is called in the loop, inside the node; `until` is given the supervisor.
    """
    program = _Program(grace)
    with program.listening():
        asyncio.run(program.play(children, until))


class _Program:
    """One run: what was asked of it, and what is to be done about it."""

    def __init__(self, grace: float) -> None:
        if not grace >= 0:
            raise ValueError(f"grace must be 0 seconds or more, not {grace!r}")
        self.grace = grace
        self._told: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals = 0
        self._threads = set(threading.enumerate())
        self._orders: SimpleQueue[str] = SimpleQueue()  # may be put to in a signal handler, as locks may not
        self._in_order = False

    # --- in the loop

    async def play(
        self,
        children: Callable[[], Sequence[ChildSpec[Any]]],
        until: Callable[[Ref[Any]], Awaitable[object]] | None,
    ) -> None:
        """Start, wait, stop."""
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        if self._signals:
            self._told.set()
        node = Node(handle_sigint=False)
        await node.open()
        reason: ExitReason | None = None
        try:
            # What cannot be kept alive by its own supervisor is not kept alive by this one: it is the program's end.
            top = await start(Supervisor, children(), intensity=0)
            reason = await self._wait(top, until)
        except StartFailed as error:
            cause = error.__cause__
            raise (cause if isinstance(cause, Exception) else error) from None
        finally:
            await self._close(node)
            self._in_order = True
        if reason is not None and reason not in (SHUTDOWN, NORMAL):
            raise GaveUp(reason)

    async def _wait(self, top: Ref[Any], until: Callable[[Ref[Any]], Awaitable[object]] | None) -> ExitReason | None:
        """Until there is a reason to stop, and then stop; why the tree has ended, if it has by itself."""
        assert self._told is not None
        ended = asyncio.ensure_future(wait_down(top, None))
        waits: list[asyncio.Future[Any]] = [ended, asyncio.ensure_future(self._told.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(_awaited(until, top)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return ended.result()
            exit(top, SHUTDOWN)
            with contextlib.suppress(CallTimeout):
                await wait_down(top, self.grace)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)
        return None

    async def _close(self, node: Node) -> None:
        """End whoever is left, however they take it."""
        closing = asyncio.ensure_future(node.close())
        for _ in range(3):
            done, _ = await asyncio.wait((closing,), timeout=_UNWINDING / 2)
            if done:
                break
            closing.cancel()  # the first time it ends the patience, the second time it abandons

    # --- around it

    @contextlib.contextmanager
    def listening(self) -> Any:
        """Hear the signals, where they can be heard: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        threading.Thread(target=self._insist, name="greenroom-last-resort", daemon=True).start()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._hear)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            if not (self._signals and self._holding_up()):
                self._orders.put(_LEAVE)
            if self._signals:
                # A full house leaves 140 objects a session in cycles, and the interpreter would collect them on its way out: half a
                # second for a thousand, in which no thread of ours can insist any more. The system takes it all back anyway.
                atexit.register(gc.freeze)

    def _hear(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as `signal` calls it
        # Runs between two bytecodes of whatever the main thread is at: nothing may be raised here.
        self._signals += 1
        if self._signals > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._orders.put(_INSIST)
        _say(f"{signal.Signals(number).name}: stopping in order; once more ends it at once")
        if self._loop is not None and self._told is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._told.set)

    def _insist(self) -> None:
        """In a thread: the program is to be gone in time, if the loop does not turn or somebody's thread does not end."""
        if self._orders.get() == _LEAVE:
            return
        with contextlib.suppress(Empty):
            self._orders.get(timeout=self.grace + MARGIN)
            return
        if self._in_order:
            names = ", ".join(sorted(thread.name for thread in self._holding_up())) or "code at exit"
            _say(f"stopped in order; not waiting for {names}")
        else:
            _say(f"the loop did not stop within {self.grace:g} seconds: ended without it")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(0 if self._in_order else 1)

    def _holding_up(self) -> list[threading.Thread]:
        """The threads that came after us and that the interpreter would wait for."""
        return [
            thread
            for thread in threading.enumerate()
            if not thread.daemon and thread not in self._threads and thread is not threading.main_thread()
        ]


async def _awaited(until: Callable[[Ref[Any]], Awaitable[object]], top: Ref[Any]) -> None:
    await until(top)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"greenroom: {text}\n".encode())
