"""One child process with its process group and its three pipes: started, watched, ended and reaped. Knows nothing of MCP.

The child leads a session of its own, so that a Ctrl-C at the terminal is not its, it cannot stop over a password prompt, and whatever it
starts can be ended with it. Our ends of the pipes are our own and do not block; nobody else holds them, also no child that this
program forks. Its end is told by a descriptor of the process where the system has those, else by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .command_guardian import guardian
from .errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOST_STATUS: Final = 255
"""What is told when somebody else has taken the exit status."""
_SYNCHRONOUSLY: Final = 0.1
"""How long a killed process is waited for where nothing can be awaited."""
_LOOK: Final = 0.01
"""How often it is looked whether a group is empty: nothing tells."""

_open: weakref.WeakSet[Child] = weakref.WeakSet()
_unreaped: set[int] = set()


class Child:
    """A process that runs, and its group."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: str | None, called: str | None = None
    ) -> None:
        """Start it. Raises `ConnectFailed`, which calls the program as is said, and leaves nothing behind then."""
        if not hasattr(os, "killpg"):
            raise ConnectFailed("child processes are started on POSIX systems only, so far")
        _reap_the_rest()
        self.pid = 0
        self.status: int | None = None
        """How it ended, as `wait` tells it."""
        self.reaped = asyncio.Event()
        self._host = os.getpid()
        self._pidfd: int | None = None
        self._told: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._pipes: set[int] = set()
        theirs: list[int] = []
        pipe = 0
        try:
            their_input, self.input = self._pipe(theirs, ours=1)
            self.output, their_output = self._pipe(theirs, ours=0)
            self.errors, their_errors = self._pipe(theirs, ours=0)
            pipe = os.fstat(self.input).st_ino
            guardian.expect(pipe)
            started = subprocess.Popen(  # noqa: S603 - what to start is what this is about
                words,
                stdin=their_input,
                stdout=their_output,
                stderr=their_errors,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            if pipe:
                guardian.failed(pipe)
            self.close_pipes()
            program = called or words[0]
            if isinstance(error, OSError) and error.filename == words[0]:
                error.filename = program  # whoever shows the cause shows that
            raise ConnectFailed(_why(error, words[0], program, environment, folder)) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.pid = started.pid
        started.returncode = 0  # waited for here, and by nobody else
        guardian.guard(self.pid, pipe)
        _open.add(self)

    def _pipe(self, theirs: list[int], ours: int) -> tuple[int, int]:
        ends = os.pipe()
        theirs.append(ends[1 - ours])
        self._pipes.add(ends[ours])
        os.set_blocking(ends[ours], False)
        return ends

    @property
    def forlorn(self) -> bool:
        """Whether its loop was closed, and something keeps what should have ended it from ending."""
        return self._loop.is_closed()

    # --- its end

    def watch(self, told: Callable[[], None]) -> None:
        """Call `told` in the loop once it has ended: it is reaped by then, and `status` is known."""
        self._told = told
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._ended)
        except (AttributeError, OSError):  # not on this system, or not in this sandbox
            threading.Thread(target=self._wait, name=f"greenroom-wait-{self.pid}", daemon=True).start()

    def _wait(self) -> None:
        status = _status(self.pid, 0)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._settle, status)

    def _ended(self) -> None:
        status = _status(self.pid, getattr(os, "WNOHANG", 0))
        if status is not None:
            self._settle(status)

    def _settle(self, status: int | None) -> None:
        if self.status is not None:
            return
        self.status = LOST_STATUS if status is None else status
        self._forget_pidfd(watched=True)
        self.reaped.set()
        if self._told is not None:
            self._told()
        if not self.group_lives():
            guardian.dismiss(self.pid)

    # --- its group

    def signal(self, number: int) -> None:
        """To all of the group."""
        if self._host == os.getpid():
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def group_lives(self) -> bool:
        """Whether anybody of it is left, dead or alive. Its number is nobody else's for as long as that is so."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return True

    def group_breathes(self) -> bool:
        """Whether anybody of it is left alive: a parent that reaps nobody (a container may have such a one) leaves the dead in their group."""
        return self.group_lives() and (self.status is None or _breathes(self.pid))

    async def end(self, grace: float, *, politely: bool = True) -> None:
        """End all of the group: at the end of the input (if `politely`), at SIGTERM, at SIGKILL; `grace` is for each of the first two."""
        self.close_input()
        if politely:
            await self.wait(grace)
        if self.group_breathes():
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # whoever is stopped can do nothing about the other
            await self.wait(grace, group=True)
        await self.kill()

    async def wait(self, seconds: float, *, group: bool = False) -> bool:
        """Wait for the process to end, or for all of its `group`; whether that came in time."""
        until = self._loop.time() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self.reaped.wait()
                while group and self.group_breathes():  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(_LOOK)
        return self.reaped.is_set() and not (group and self.group_breathes())

    async def kill(self) -> None:
        """Kill whoever is left of the group, and wait until that is done."""
        while not self.reaped.is_set() or self.group_breathes():
            self.signal(signal.SIGKILL)
            if not self.reaped.is_set():
                await self.reaped.wait()
            elif self.group_breathes():
                await asyncio.sleep(_LOOK)
        guardian.dismiss(self.pid)

    def destroy(self) -> None:
        """The end of everything that is left, here and now: for where nothing can be awaited. Again is nothing."""
        if self._host != os.getpid():
            return
        self.close_pipes()
        if self.status is None or self.group_lives():
            self.signal(signal.SIGKILL)
        until = time.monotonic() + _SYNCHRONOUSLY
        while self.status is None and self._pidfd is not None:
            status = _status(self.pid, os.WNOHANG)
            if status is not None:
                self.status = status
                if not self._loop.is_closed():
                    self.reaped.set()
            elif time.monotonic() > until:
                _unreaped.add(self.pid)
                break
            else:
                time.sleep(0.0005)
        self._forget_pidfd(watched=not self._loop.is_closed())
        guardian.dismiss(self.pid)
        _open.discard(self)

    # --- its descriptors

    def holds(self, descriptor: int) -> bool:
        """Whether that pipe is open still: later its number is somebody else's."""
        return descriptor in self._pipes

    def close_input(self) -> None:
        """The child reads an end of its input."""
        self._close(self.input, writing=True)

    def close_pipes(self) -> None:
        """Let go of all that lead to it."""
        for descriptor in tuple(self._pipes):
            self._close(descriptor)

    def _close(self, descriptor: int, *, writing: bool = False) -> None:
        if descriptor in self._pipes:
            self._pipes.discard(descriptor)
            if not self._loop.is_closed():
                if writing:
                    self._loop.remove_writer(descriptor)
                else:
                    self._loop.remove_reader(descriptor)
                    self._loop.remove_writer(descriptor)
            os.close(descriptor)

    def _forget_pidfd(self, *, watched: bool) -> None:
        if self._pidfd is not None:
            if watched:
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def forked(self) -> None:
        """This is a forked child of the program: let go, and touch neither the loop nor the process."""
        pipes, self._pipes = self._pipes, set()
        for descriptor in (*pipes, *([] if self._pidfd is None else [self._pidfd])):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._pidfd = None


def _breathes(group: int) -> bool:
    """Whether somebody in it is more than a zombie; where nothing tells, it is taken to be so."""
    proc = Path("/proc")
    try:
        places = [place for place in proc.iterdir() if place.name.isdigit()]
    except OSError:
        return True
    for place in places:
        with contextlib.suppress(OSError, ValueError, IndexError):  # gone meanwhile
            state, _, its_group, *_ = (place / "stat").read_bytes().rpartition(b") ")[2].split()
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return not places


def _status(pid: int, options: int) -> int | None:
    """Reap it. None when it has not ended yet."""
    try:
        found, status = os.waitpid(pid, options)
    except ChildProcessError:  # somebody else has waited for it, or the program ignores SIGCHLD
        return LOST_STATUS
    return os.waitstatus_to_exitcode(status) if found else None


def _reap_the_rest() -> None:
    for pid in tuple(_unreaped):
        if _status(pid, os.WNOHANG) is not None:
            _unreaped.discard(pid)
    for child in list(_open):
        if child.forlorn:
            child.destroy()


def _why(error: Exception, started: str, program: str, environment: Mapping[str, str], folder: str | None) -> str:
    """What is wrong with what was to be started, by the name that may be shown, and what to do about it."""
    if folder is not None and not Path(folder).is_dir():
        return f"cannot start {program}: its working directory {folder} {'is no directory' if Path(folder).exists() else 'does not exist'}"
    where = Path(folder or ".", started)
    if isinstance(error, FileNotFoundError):
        if os.sep not in started:
            words = program.split()
            if len(words) > 1:
                return f"there is no program named {program!r}: write Command({', '.join(map(repr, words))})"
            return (
                f"there is no program named {program} in {environment.get('PATH', os.defpath)}: "
                "install it, or give its path, or a PATH in env"
            )
        if where.exists():
            return f"cannot start {program}: the interpreter that its first line names does not exist"
        return f"there is no program {program}: give the path of one, or its name alone to look for it in PATH"
    if isinstance(error, PermissionError):
        what = "it is a directory" if where.is_dir() else "it is not executable: chmod +x may be what it lacks"
        return f"cannot start {program}: {what}"
    if isinstance(error, OSError) and error.strerror == "Exec format error":
        return f"cannot start {program}: it is no program for this machine, or a script without a first line like #!/bin/sh"
    return f"cannot start {program}: {error}"


def _forked() -> None:
    for child in list(_open):
        child.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
