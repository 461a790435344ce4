"""Running a tree as a program: it stops in order when it is told to, is gone in time whatever its code does, and says how it ended.

The first SIGTERM, SIGINT or SIGHUP stops the tree: listeners first, then what they served. A process that is not done when the grace is over is
killed; and a thread outside of the loop (`last_resort`) sees to it that the program is gone half a second later, even if the loop is
stuck or its exit takes longer. A second signal ends the program at once, by its own default action; a SIGHUP is no second one, and is none to
what ends already, since a terminal that closes may send several, and systemd sends one behind its SIGTERM. What is ignored stays so (nohup). A tree that gives up is an error,
and the exit code 1. The signals are the program's: a child that it forks has those that were there before.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import math
import os
import select
import signal
import sys
import threading
import time
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    CallTimeout,
    Node,
    StartFailed,
    Supervisor,
    exit,
    start,
    visible,
    visible_text,
    wait_down,
)

from .errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from types import FrameType

    from greenroom.supervision import ChildSpec, ExitReason, Ref

GRACE: Final = 5.0
"""How long the tree may take to stop."""
_UNWINDING: Final = 0.2
_ANSWERING: Final = 0.3
"""Seconds of a grace in which calls that were not waited for any longer are answered."""

_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class GaveUp(GreenroomError):
    """The tree has ended without an order to end; the reason says what could not be kept alive."""

    def __init__(self, reason: ExitReason) -> None:
        """`reason` is that of the topmost supervisor."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the server has ended: {self.reason}"


def grace_of_calls(grace: float) -> float:
    """How much of a grace calls may have that are under way: the rest is for saying that they were not waited for any longer."""
    return grace - min(_ANSWERING, grace / 4)


def grace_with_calls(seconds: float) -> float:
    """The grace of a program whose calls may have so many seconds, which is at least the usual one."""
    return max(GRACE, seconds + _ANSWERING)


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
    until: Callable[[Callable[[], None]], Awaitable[object]] | None = None,
    *,
    grace: float = GRACE,
    ready: Callable[[], None] | None = None,
) -> None:
    """Run a supervisor with these children until `until` returns, a signal comes, or it gives up: then `GaveUp` is raised.

    `children` is called in the loop, inside the node; `ready` when all of them have started. `until` is given a function to call when the grace
    begins, unless that is when it returns.
    """
    program = _Program(grace)
    visible_text.escape_logged_text()
    visible_text.escape_uncaught_errors()
    with program.handle_signals():
        asyncio.run(program.run(children, until, ready))


class _Program:
    """One run: what was asked of it, and what is to be done about it."""

    def __init__(self, grace: float) -> None:
        if not grace >= 0:
            raise ValueError(f"grace must be 0 seconds or more, not {grace!r}")
        self.grace = grace
        self._stop_requested = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signalled = False
        self._stop_signals = 0
        self._terminated = False
        self._previous_handlers: dict[int, Any] = {}
        self._exit_deadline = ExitDeadline(grace)

    # --- in the loop

    async def run(
        self,
        children: Callable[[], Sequence[ChildSpec[Any]]],
        until: Callable[[Callable[[], None]], Awaitable[object]] | None,
        ready: Callable[[], None] | None,
    ) -> None:
        """Start, wait, stop."""
        self._loop = asyncio.get_running_loop()
        if self._signalled:
            self._stop_requested.set()
        node = Node(handle_sigint=False)
        await node.open()
        reason: ExitReason | None = None
        try:
            # What cannot be kept alive by its own supervisor is not kept alive by this one: it is the program's end.
            top = await self._start(children())
            if top is not None and ready is not None:
                ready()
            reason = None if top is None else await self._wait_for_stop(top, until)
        except StartFailed as error:
            cause = error.__cause__
            raise (cause if isinstance(cause, Exception) else error) from None
        finally:
            await self._close(node)
            self._exit_deadline.stopped_in_order = True
        if reason is not None and reason not in (SHUTDOWN, NORMAL):
            raise GaveUp(reason)

    async def _start(self, children: Sequence[ChildSpec[Any]]) -> Ref[Any] | None:
        """The tree; None if a signal came before it was there, which may take a while: then what there is of it ends with the node."""
        async with _first_of(start(Supervisor, children, intensity=0), self._stop_requested.wait()) as (starting, _):
            if starting.done():
                return cast("Ref[Any]", starting.result())
            self._exit_deadline.start()
            return None

    async def _wait_for_stop(
        self, top: Ref[Any], until: Callable[[Callable[[], None]], Awaitable[object]] | None
    ) -> ExitReason | None:
        """Until there is a reason to stop, and then stop; why the tree has ended, if it has by itself."""
        ordered = () if until is None else (until(self._exit_deadline.start),)
        async with _first_of(wait_down(top, None), self._stop_requested.wait(), *ordered) as (ended, *_):
            if ended.done():
                return cast("ExitReason", ended.result())
            self._exit_deadline.start()
            exit(top, SHUTDOWN)
            with contextlib.suppress(CallTimeout):
                await wait_down(top, self._exit_deadline.remaining)
        return None

    async def _close(self, node: Node) -> None:
        """End the processes that are left, however they take it."""
        closing = asyncio.ensure_future(node.close())
        for _ in range(3):
            done, _ = await asyncio.wait((closing,), timeout=_UNWINDING / 2)
            if done:
                break
            closing.cancel()  # the first time it ends the patience, the second time it abandons

    # --- around it

    @contextlib.contextmanager
    def handle_signals(self) -> Any:
        """Hear the signals, where they can be heard: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        global _running_program  # noqa: PLW0603 - signals are the process's, and so is their receiver
        self._exit_deadline.start_thread()
        before = self._previous_handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        _running_program = self
        try:
            yield
        except BaseException:
            self._exit_deadline.cancel()
            raise
        else:
            if not self._exit_deadline.is_running:
                self._exit_deadline.cancel()
            elif not self._terminated:  # that one is for the program as a whole, whatever it does after the run
                self._exit_deadline.wait_for_exit()
        finally:
            _running_program = None
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            if self._signalled:
                # A full house leaves 140 objects a session in cycles, and the interpreter would collect them on its way out: half a
                # second for a thousand, in which no thread of ours can insist any more. The system takes it all back anyway.
                atexit.register(gc.freeze)

    def restore_signals(self) -> None:
        """In a forked child: a signal to it is none to the program."""
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
            for number, handler in self._previous_handlers.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as `signal` calls it
        # Runs between two bytecodes of whatever the main thread is at: nothing may be raised here.
        hangup = number == getattr(signal, "SIGHUP", None)
        if hangup and self._signalled:
            return
        self._signalled = True
        self._stop_signals += not hangup
        if self._stop_signals > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._terminated = number != signal.SIGINT
        self._exit_deadline.start()
        write_to_stderr(
            f"{signal.Signals(number).name}: stopping in order; {'SIGTERM twice' if hangup else 'once more'} ends it at once"
        )
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop_requested.set)


@contextlib.asynccontextmanager
async def _first_of(*work: Awaitable[Any]) -> AsyncGenerator[Sequence[asyncio.Future[Any]]]:
    """All of this, as soon as one is over; what is not when the block ends is cancelled."""
    racing = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        yield racing
    finally:
        for each in racing:
            each.cancel()
        await asyncio.wait(racing)


_running_program: _Program | None = None
_fork_state = threading.local()  # a fork is its thread's, and so is what it holds back


def _before_fork() -> None:
    # A signal that came to the child before it is its own would be taken by the program's handler there, and be lost.
    if _running_program is not None:
        _fork_state.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _after_fork() -> None:
    mask = _fork_state.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forked() -> None:
    global _running_program
    program, _running_program = _running_program, None
    if program is not None:
        program.restore_signals()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)


# --- The last resort: a thread that ends the program when its time is over, whatever keeps it.
# A loop that does not turn keeps a program, and so does what an author has left at its exit: a pool whose threads are at work, a child
# process, a slow function of `atexit`. The interpreter waits for all of those, without end. The deadline counts from the moment the
# program was told to stop until the process is really gone.
# While that thread ends the program, no other may run Python. A main thread that is let go by the end of a child it waited for would go on with
# its own exit: two threads at once in what `atexit` closes, and a segmentation fault where the one uses what the other has freed. So the
# children are told last, with the interpreter's lock held, and the system's `_exit` follows at once.

EXIT_MARGIN: Final = 0.4
"""How much longer than its grace a program takes at the most."""
_POOLS: Final = {"concurrent.futures.thread": "_threads_queues", "concurrent.futures.process": "_threads_wakeups"}
"""Whose threads the interpreter waits for at its exit, though they are daemons where a daemon has started them."""
_EXIT_SWITCH_INTERVAL: Final = 0.5
"""For so many seconds no thread that waits for the interpreter's lock may ask for it, once the children are being ended."""
_system_exit: Final[Callable[[int], NoReturn]] = import_module(os.name)._exit  # noqa: SLF001 - its name
"""The system's own. A tool that measures puts a function in the place of `os._exit`: Python, which would let the main thread go on."""


class ExitDeadline:
    """One program's."""

    def __init__(self, grace: float) -> None:
        """`grace` is how long the program may take once it is to hurry."""
        self._grace = grace
        self._deadline: float | None = None
        self._earlier_threads = set(threading.enumerate())
        self._deadlines: SimpleQueue[float | None] = (
            SimpleQueue()
        )  # may be put to in a signal handler, as locks may not
        self._process = os.getpid()
        self.stopped_in_order = False
        """Whether everything has stopped that could be stopped in order."""

    @property
    def is_running(self) -> bool:
        """Whether the time runs."""
        return self._deadline is not None

    @property
    def remaining(self) -> float:
        """How many seconds of the grace there are."""
        return self._grace if self._deadline is None else max(0.0, self._deadline - EXIT_MARGIN - time.monotonic())

    def start_thread(self) -> None:
        """Be ready."""
        threading.Thread(target=self._wait_for_deadline, name="greenroom-exit-deadline", daemon=True).start()

    def start(self) -> None:
        """The program has been told to stop: its time runs from now on. Also in a signal handler."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace + EXIT_MARGIN
            self._deadlines.put(self._deadline)

    def cancel(self) -> None:
        """There is nothing to hurry any more."""
        self._deadlines.put(None)

    def wait_for_exit(self) -> None:
        """Leave the program alone for as long as its own code goes on, and take the interpreter's exit for the rest of the time."""
        # There is no public word for "before the pools are waited for". The last that is registered is called first.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            with contextlib.suppress(RuntimeError):  # the exit has begun
                register(self._at_exit)
                self._deadlines.put(math.inf)  # the thread stays: an interpreter that exits starts none

    def _at_exit(self) -> None:
        if os.getpid() == self._process and self._deadline is not None:
            self._deadlines.put(max(self._deadline, time.monotonic() + EXIT_MARGIN))

    def _wait_for_deadline(self) -> None:
        patience = None
        while True:
            try:
                deadline = self._deadlines.get(timeout=patience)
            except Empty:
                self._end_program()
            if deadline is None:
                return
            patience = None if deadline == math.inf else max(0.0, deadline - time.monotonic())

    def _end_program(self) -> NoReturn:
        children = _children()
        if self.stopped_in_order:
            names = [*sorted(thread.name for thread in self._blocking_threads()), *(child.name for child in children)]
            write_to_stderr(f"stopped in order; not waiting for {', '.join(names) or 'code at exit'}")
        else:
            write_to_stderr(f"the loop did not stop within {self._grace:g} seconds: ended without it")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                if is_writable(stream.fileno()):
                    stream.flush()
        sys.setswitchinterval(_EXIT_SWITCH_INTERVAL)
        for child in children:  # orphans otherwise, which may hold the program's port
            with contextlib.suppress(Exception):
                child.terminate()
        _system_exit(0 if self.stopped_in_order else 1)

    def _blocking_threads(self) -> list[threading.Thread]:
        """The threads that came after us and that the interpreter waits for."""
        pooled = {thread for module, name in _POOLS.items() for thread in getattr(sys.modules.get(module), name, ())}
        newer = set(threading.enumerate()) - self._earlier_threads - {threading.main_thread()}
        return [thread for thread in newer if not thread.daemon or thread in pooled]


def _children() -> list[Any]:
    """The processes of `multiprocessing`, if the program has used it."""
    module = sys.modules.get("multiprocessing")
    try:
        return [] if module is None else module.active_children()
    except Exception:  # noqa: BLE001 - another thread may be at the same list; the end must come all the same
        return []


def write_to_stderr(text: str) -> None:
    """A line for people, past every buffer and lock. Dropped where the pipe is full, which would hold up the end itself."""
    with contextlib.suppress(OSError):
        if is_writable(2):
            os.write(2, f"greenroom: {visible(text)}\n".encode(errors="backslashreplace"))


def is_writable(descriptor: int) -> bool:
    """Whether a line can be written there without waiting for a reader, as far as the system tells."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))
