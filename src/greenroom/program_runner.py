"""Runs a supervision tree as a program: orderly shutdown on signals, a deadline that is always met, and the exit status.

The first SIGTERM, SIGINT or SIGHUP stops the tree: listeners first, then what they served. A process that has not ended when the grace is over is
killed; and a thread outside of the loop (`ExitDeadline`) ends the program half a second later, even if the loop is stuck or the interpreter's exit
hangs. A second signal ends the program at once, by the signal's default action. SIGHUP does not count as a second signal and is ignored during
shutdown, since a closing terminal may send several, and systemd sends one after its SIGTERM. Ignored signals stay ignored (nohup). A tree that
gives up is an error with exit code 1. The handlers belong to the program: a forked child gets the previous ones back.
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
"""The default grace: how long the tree may take to stop, in seconds."""
_UNWINDING: Final = 0.2
_ANSWERING: Final = 0.3
"""The seconds of a grace that are reserved for answering calls that did not finish."""

_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class GaveUp(GreenroomError):
    """The tree ended although no stop was requested; the reason says what could not be kept alive."""

    def __init__(self, reason: ExitReason) -> None:
        """`reason` is the exit reason of the top supervisor."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the server has ended: {self.reason}"


def grace_of_calls(grace: float) -> float:
    """The part of a grace for calls in progress; the rest is for answering those that did not finish."""
    return grace - min(_ANSWERING, grace / 4)


def grace_with_calls(seconds: float) -> float:
    """The grace of a program whose calls may take `seconds`; at least the default."""
    return max(GRACE, seconds + _ANSWERING)


def check_no_loop() -> None:
    """Raise `RuntimeError` in a running event loop: a thread can only have one."""
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

    `children` is called in the loop, inside the node; `ready` when all children have started. `until` gets a function to call when the grace begins,
    if that is before it returns.
    """
    program = _Program(grace)
    visible_text.escape_logged_text()
    visible_text.escape_uncaught_errors()
    with program.handle_signals():
        asyncio.run(program.run(children, until, ready))


class _Program:
    """One run of a program: its signals, its shutdown and its deadline."""

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
        """Start the tree, wait for a reason to stop, and stop it."""
        self._loop = asyncio.get_running_loop()
        if self._signalled:
            self._stop_requested.set()
        node = Node(handle_sigint=False)
        await node.open()
        reason: ExitReason | None = None
        try:
            # If its own supervisor cannot keep a child alive, this one does not try again: the program ends.
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
        """Start the tree; None if a signal came before it was up, which may take a while. The node's end then stops what has started."""
        async with _first_of(start(Supervisor, children, intensity=0), self._stop_requested.wait()) as (starting, _):
            if starting.done():
                return cast("Ref[Any]", starting.result())
            self._exit_deadline.start()
            return None

    async def _wait_for_stop(
        self, top: Ref[Any], until: Callable[[Callable[[], None]], Awaitable[object]] | None
    ) -> ExitReason | None:
        """Wait for a reason to stop, then stop the tree. Returns the exit reason if the tree ended by itself."""
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
        """End the remaining processes, even if they resist."""
        closing = asyncio.ensure_future(node.close())
        for _ in range(3):
            done, _ = await asyncio.wait((closing,), timeout=_UNWINDING / 2)
            if done:
                break
            closing.cancel()  # the first cancellation ends the waiting, the second one abandons the processes

    # --- around the loop

    @contextlib.contextmanager
    def handle_signals(self) -> Any:
        """Handle signals during the block, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        global _running_program  # noqa: PLW0603 - signals belong to the process, and so does their handler
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
            elif not self._terminated:  # SIGTERM is meant for the whole program, whatever it does after the run
                self._exit_deadline.wait_for_exit()
        finally:
            _running_program = None
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            if self._signalled:
                # A trick: freeze the garbage collector at exit. A session leaves 140 objects in cycles, and the interpreter's final collection would
                # take half a second for a thousand sessions, in which the deadline thread cannot run. The system frees the memory anyway.
                atexit.register(gc.freeze)

    def restore_signals(self) -> None:
        """In a forked child: restore the previous handlers, so that a signal to the child does not stop the program."""
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
            for number, handler in self._previous_handlers.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a signal handler
        # Runs between two bytecodes of any code in the main thread: nothing may be raised here.
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
    """All futures, as soon as one is done; the others are cancelled when the block ends."""
    racing = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        yield racing
    finally:
        for each in racing:
            each.cancel()
        await asyncio.wait(racing)


_running_program: _Program | None = None
_fork_state = threading.local()  # per thread: a fork and its saved signal mask belong to one thread


def _before_fork() -> None:
    # A fork trick: signals are blocked around the fork. Otherwise a signal that reaches the child before its handlers are restored would be taken by
    # the program's handler there and be lost.
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


# --- The exit deadline: a thread that ends the program when its time is over.
# A stuck loop keeps a program alive, and so does code at the interpreter's exit: a pool with busy threads, a child process, a slow `atexit` function.
# The interpreter waits for all of these without limit. The deadline runs from the stop request until the process is gone.
# While the thread ends the program, no other thread may run Python. If terminating a child released a main thread that waits for it, that thread
# would continue its own exit: two threads in the cleanup at once, and a segmentation fault when one uses what the other has freed. So the children
# are terminated last, with the interpreter's lock held, and the system's `_exit` follows at once.

EXIT_MARGIN: Final = 0.4
"""How much longer than its grace a program may take, in seconds."""
_POOLS: Final = {"concurrent.futures.thread": "_threads_queues", "concurrent.futures.process": "_threads_wakeups"}
"""Pools whose threads the interpreter joins at exit, even if they are daemon threads."""
_EXIT_SWITCH_INTERVAL: Final = 0.5
"""The thread switch interval while children are terminated: long enough that no other thread gets the interpreter's lock."""
_system_exit: Final[Callable[[int], NoReturn]] = import_module(os.name)._exit  # noqa: SLF001 - its name
"""The system's `_exit`, from the C module. Coverage tools replace `os._exit` by a Python function, which would let the main thread continue."""


class ExitDeadline:
    """Ends the process when its grace is over. One per program."""

    def __init__(self, grace: float) -> None:
        """`grace` is how long the program may take after the stop request."""
        self._grace = grace
        self._deadline: float | None = None
        self._earlier_threads = set(threading.enumerate())
        # `SimpleQueue.put` is reentrant and so safe in a signal handler; a lock is not.
        self._deadlines: SimpleQueue[float | None] = SimpleQueue()
        self._process = os.getpid()
        self.stopped_in_order = False
        """Whether the tree has stopped in order."""

    @property
    def is_running(self) -> bool:
        """Whether the deadline runs."""
        return self._deadline is not None

    @property
    def remaining(self) -> float:
        """The remaining seconds of the grace."""
        return self._grace if self._deadline is None else max(0.0, self._deadline - EXIT_MARGIN - time.monotonic())

    def start_thread(self) -> None:
        """Start the thread that waits for the deadline."""
        threading.Thread(target=self._wait_for_deadline, name="greenroom-exit-deadline", daemon=True).start()

    def start(self) -> None:
        """Start the deadline, at the first stop request. Safe in a signal handler."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace + EXIT_MARGIN
            self._deadlines.put(self._deadline)

    def cancel(self) -> None:
        """Cancel the deadline and end its thread."""
        self._deadlines.put(None)

    def wait_for_exit(self) -> None:
        """Pause the deadline while the program's own code runs, and resume it at the interpreter's exit."""
        # A private function of `threading`: `atexit` runs only after the pools were joined, and there is no public hook before that. Functions
        # registered last run first.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            with contextlib.suppress(RuntimeError):  # the interpreter's exit has begun
                register(self._at_exit)
                self._deadlines.put(math.inf)  # keep the thread: no thread can be started during the interpreter's exit

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
        for child in children:  # otherwise they become orphans, which may hold the program's port
            with contextlib.suppress(Exception):
                child.terminate()
        _system_exit(0 if self.stopped_in_order else 1)

    def _blocking_threads(self) -> list[threading.Thread]:
        """The threads started since the run began that the interpreter joins at exit."""
        pooled = {thread for module, name in _POOLS.items() for thread in getattr(sys.modules.get(module), name, ())}
        newer = set(threading.enumerate()) - self._earlier_threads - {threading.main_thread()}
        return [thread for thread in newer if not thread.daemon or thread in pooled]


def _children() -> list[Any]:
    """The children of `multiprocessing`, if the program uses it."""
    module = sys.modules.get("multiprocessing")
    try:
        return [] if module is None else module.active_children()
    except Exception:  # noqa: BLE001 - another thread may change the list; the program must end nevertheless
        return []


def write_to_stderr(text: str) -> None:
    """Write a line to stderr without buffers and locks. Dropped if the pipe is full, since waiting would delay the exit."""
    with contextlib.suppress(OSError):
        if is_writable(2):
            os.write(2, f"greenroom: {visible(text)}\n".encode(errors="backslashreplace"))


def is_writable(descriptor: int) -> bool:
    """Whether a line can be written without waiting for the reader, as far as the system can tell."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))
