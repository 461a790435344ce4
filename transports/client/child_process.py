"""A child process with its process group and its three pipes: started, watched, ended and reaped. It knows nothing of MCP.

The child leads a session of its own, so it gets no Ctrl-C from the terminal, cannot stop over a password prompt, and can be ended together
with everything it starts. Our ends of the pipes are non-blocking and belong to us alone; no other process holds them, not even forks of
this program. Its end is reported by a pidfd where the system has those, otherwise by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOST_STATUS: Final = 255
"""The status reported when other code has already reaped the child."""
_BLOCKING_WAIT: Final = 0.1
"""How long a killed process is waited for where nothing can be awaited."""
_GROUP_CHECK: Final = 0.01
"""How often a process group is checked for being empty; the system does not report that."""

_open: weakref.WeakSet[ChildProcess] = weakref.WeakSet()
_unreaped: set[int] = set()


class ChildProcess:
    """A running child process and its group."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: str | None, called: str | None = None
    ) -> None:
        """Start it. Raises `ConnectFailed`, which names the program as `called`, and then leaves nothing behind."""
        if not hasattr(os, "killpg"):
            raise ConnectFailed("child processes are started on POSIX systems only, so far")
        _reap_leftovers()
        self.pid = 0
        self.status: int | None = None
        """The exit status as returned by `wait`; None while it runs."""
        self.reaped = asyncio.Event()
        self._owner_pid = os.getpid()
        self._pidfd: int | None = None
        self._exit_callback: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._pipes: set[int] = set()
        theirs: list[int] = []
        pipe = 0
        try:
            their_input, self.input = self._pipe(theirs, ours=1)
            self.output, their_output = self._pipe(theirs, ours=0)
            self.errors, their_errors = self._pipe(theirs, ours=0)
            pipe = os.fstat(self.input).st_ino
            orphan_reaper.expect_child(pipe)
            started = subprocess.Popen(  # noqa: S603 - the user chooses the program
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
                orphan_reaper.start_failed(pipe)
            self.close_pipes()
            program = called or words[0]
            if isinstance(error, OSError) and error.filename == words[0]:
                error.filename = program  # a traceback with the cause shows the file name
            raise ConnectFailed(_start_error(error, words[0], program, environment, folder)) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.pid = started.pid
        started.returncode = 0  # otherwise Popen would warn, and wait for it, too; it is reaped here only
        orphan_reaper.watch_group(self.pid, pipe)
        _open.add(self)

    def _pipe(self, theirs: list[int], ours: int) -> tuple[int, int]:
        ends = os.pipe()
        theirs.append(ends[1 - ours])
        self._pipes.add(ends[ours])
        os.set_blocking(ends[ours], False)
        return ends

    # --- its end

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call `on_exit` in the loop once it has ended; by then it is reaped, and `status` is set."""
        self._exit_callback = on_exit
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._on_pidfd)
        except (AttributeError, OSError):  # pidfd_open is missing on this system, or forbidden in this sandbox
            threading.Thread(target=self._wait, name=f"greenroom-wait-{self.pid}", daemon=True).start()

    def _wait(self) -> None:
        status = _reap(self.pid, 0)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_exit_status, status)

    def _on_pidfd(self) -> None:
        status = _reap(self.pid, getattr(os, "WNOHANG", 0))
        if status is not None:
            self._on_exit_status(status)

    def _on_exit_status(self, status: int | None) -> None:
        if self.status is not None:
            return
        self.status = LOST_STATUS if status is None else status
        self._forget_pidfd(watched=True)
        self.reaped.set()
        if self._exit_callback is not None:
            self._exit_callback()
        if not self.group_exists():
            orphan_reaper.unwatch_group(self.pid)

    # --- its group

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        if self._owner_pid == os.getpid():
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def group_exists(self) -> bool:
        """Whether the group has a process, alive or zombie. While it has, the group's number is not reused."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return True

    def group_is_alive(self) -> bool:
        """Whether the group has a live process. Zombies stay in their group if their parent does not reap them, as init in some containers."""
        return self.group_exists() and (self.status is None or _has_live_member(self.pid))

    async def end(self, grace: float, *, politely: bool = True) -> None:
        """End the whole group: by closing its input (if `politely`), then SIGTERM, then SIGKILL; `grace` is for each of the first two."""
        self.close_input()
        if politely:
            await self.wait(grace)
        if self.group_is_alive():
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # a stopped process handles SIGTERM only after SIGCONT
            await self.wait(grace, group=True)
        await self.kill()

    async def wait(self, seconds: float, *, group: bool = False) -> bool:
        """Wait for the process, or for its whole `group`, to end; returns whether it did in time."""
        until = self._loop.time() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self.reaped.wait()
                while group and self.group_is_alive():  # noqa: ASYNC110 - the system reports no event
                    await asyncio.sleep(_GROUP_CHECK)
        return self.reaped.is_set() and not (group and self.group_is_alive())

    async def kill(self) -> None:
        """Kill the rest of the group, and wait until it is gone."""
        while not self.reaped.is_set() or self.group_is_alive():
            self.signal(signal.SIGKILL)
            if not self.reaped.is_set():
                await self.reaped.wait()
            elif self.group_is_alive():
                await asyncio.sleep(_GROUP_CHECK)
        orphan_reaper.unwatch_group(self.pid)

    def destroy(self) -> None:
        """Kill everything and release all resources without awaiting. A no-op when repeated."""
        if self._owner_pid != os.getpid():
            return
        self.close_pipes()
        if self.status is None or self.group_exists():
            self.signal(signal.SIGKILL)
        until = time.monotonic() + _BLOCKING_WAIT
        while self.status is None and self._pidfd is not None:
            status = _reap(self.pid, os.WNOHANG)
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
        orphan_reaper.unwatch_group(self.pid)
        _open.discard(self)

    # --- its descriptors

    def is_open(self, descriptor: int) -> bool:
        """Whether that pipe is still open: once closed, its number may belong to another file."""
        return descriptor in self._pipes

    def close_input(self) -> None:
        """Close the child's input, so that it reads the end of it."""
        self._close(self.input)

    def close_pipes(self) -> None:
        """Close our ends of all pipes."""
        for descriptor in tuple(self._pipes):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._pipes:
            self._pipes.discard(descriptor)
            if not self._loop.is_closed():
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
            os.close(descriptor)

    def _forget_pidfd(self, *, watched: bool) -> None:
        if self._pidfd is not None:
            if watched:
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def release_after_fork(self) -> None:
        """Release our descriptors in a forked child of this program, without touching the loop or the process."""
        pipes, self._pipes = self._pipes, set()
        for descriptor in (*pipes, *([] if self._pidfd is None else [self._pidfd])):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._pidfd = None


def _has_live_member(group: int) -> bool:
    """Whether the group has a process that is no zombie; True where /proc does not tell."""
    proc = Path("/proc")
    try:
        places = [place for place in proc.iterdir() if place.name.isdigit()]
    except OSError:
        return True
    for place in places:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            state, _, its_group, *_ = (place / "stat").read_bytes().rpartition(b") ")[2].split()
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return not places


def _reap(pid: int, options: int) -> int | None:
    """Reap the child. None if it has not ended yet."""
    try:
        found, status = os.waitpid(pid, options)
    except ChildProcessError:  # other code has reaped it, or the program ignores SIGCHLD
        return LOST_STATUS
    return os.waitstatus_to_exitcode(status) if found else None


def _reap_leftovers() -> None:
    for pid in tuple(_unreaped):
        if _reap(pid, os.WNOHANG) is not None:
            _unreaped.discard(pid)
    for child in list(_open):
        if child._loop.is_closed():  # noqa: SLF001 - its loop is closed, so nothing else will end it
            child.destroy()


def _start_error(
    error: Exception, started: str, program: str, environment: Mapping[str, str], folder: str | None
) -> str:
    """The reason of a failed start and what to do about it, with the program's displayed name."""
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


# --- The orphan reaper: a small shell beside the program that ends its child processes when the program dies without doing so.
# A program killed by SIGKILL, or by the kernel, ends nothing itself. So a shell holds the reading end of a pipe whose only writer is this
# program, and is told the process groups of our children. When the pipe ends, the remaining groups get a moment to see the end of their
# input, then SIGTERM, then SIGKILL.
# No child escapes between its start and its report: what is reported *before* the start is the inode of the pipe that will be its input.
# The child also holds the shell's pipe until it executes its program (Python closes all other descriptors then), so when the shell sees the
# end of the pipe, the child exists in its final form and is found in /proc by its input.
# It is a shell because of the cost: it starts in half a millisecond and takes a tenth of a megabyte; a Python process takes fifteen times
# as long and thirty times as much. It runs while there are children.

log = logging.getLogger("greenroom.command")

SHELL: Final = "/bin/sh"
_SCRIPT: Final = r"""
trap '' HUP INT QUIT TERM TSTP TTIN TTOU
groups=' ' pipes=' '
while read -r sign what pipe; do
  case $sign in
  '?') pipes="$pipes$what " ;;
  '!') case $pipes in *" $what "*) pipes="${pipes%% $what *} ${pipes#* $what }" ;; esac ;;
  +) groups="$groups$what "
     case $pipes in *" $pipe "*) pipes="${pipes%% $pipe *} ${pipes#* $pipe }" ;; esac ;;
  -) case $groups in *" $what "*) groups="${groups%% $what *} ${groups#* $what }" ;; esac ;;
  esac
done
if [ "$pipes" != ' ' ]; then
  for found in $(ls -l /proc/[0-9]*/fd/0 | sed -n 's|.*/proc/\([0-9]*\)/fd/0 -> pipe:\[\([0-9]*\)\]$|\1:\2|p'); do
    case $pipes in *" ${found#*:} "*) groups="$groups${found%%:*} " ;; esac
  done
fi
[ "$groups" = ' ' ] && exit
sleep 1
for group in $groups; do kill -s TERM -- -$group; kill -s CONT -- -$group; done
sleep 1
for group in $groups; do kill -s KILL -- -$group; done
"""


class OrphanReaper:
    """The program's orphan reaper. Methods may be called from any thread."""

    def __init__(self) -> None:
        """The shell starts with the first child."""
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._expected: set[int] = set()
        self._death_pipe: int | None = None
        self._pid = 0
        self._missing = False

    @property
    def pid(self) -> int:
        """The shell's process id; 0 while there is none."""
        return 0 if self._death_pipe is None else self._pid

    def expect_child(self, pipe: int) -> None:
        """A child is about to be started whose input is the pipe of that inode. Raises `OSError` if the shell cannot be started."""
        with self._lock:
            self._expected.add(pipe)
            self._tell_shell(f"? {pipe}")

    def watch_group(self, group: int, pipe: int) -> None:
        """The child was started, and leads that group."""
        with self._lock:
            self._expected.discard(pipe)
            self._groups.add(group)
            self._try_tell_shell(f"+ {group} {pipe}")

    def start_failed(self, pipe: int) -> None:
        """The child could not be started."""
        with self._lock:
            self._expected.discard(pipe)
            if self._death_pipe is not None:
                self._try_tell_shell(f"! {pipe}")
            self._stop_shell_if_idle()

    def unwatch_group(self, group: int) -> None:
        """The group is empty: forget it."""
        with self._lock:
            if group in self._groups:
                self._groups.discard(group)
                self._try_tell_shell(f"- {group}")
                self._stop_shell_if_idle()

    def reset_after_fork(self) -> None:
        """Reset in a forked child of this program: neither the children nor the shell are its own."""
        if self._death_pipe is not None:
            with contextlib.suppress(OSError):
                os.close(self._death_pipe)
        self._reset()

    def _try_tell_shell(self, word: str) -> None:
        """Tell the shell, without raising: a new shell is told everything, and a running child is not given up for want of a shell."""
        with contextlib.suppress(OSError):
            self._tell_shell(word)

    def _tell_shell(self, word: str) -> None:
        if self._missing:
            return
        for _ in range(2):
            if self._death_pipe is None:
                self._start_shell()
                return  # a new shell was told everything
            try:
                os.write(self._death_pipe, f"{word}\n".encode())
            except OSError:  # the shell was killed, or was stopped until the pipe was full
                self._stop_shell()
            else:
                return

    def _start_shell(self) -> None:
        reading, writing = os.pipe()
        words = [*(f"? {pipe}\n" for pipe in self._expected), *(f"+ {group}\n" for group in self._groups)]
        try:
            shell = subprocess.Popen(  # noqa: S603 - our own script
                [SHELL, "-c", _SCRIPT],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except OSError as error:
            os.close(writing)
            if not isinstance(error, FileNotFoundError | PermissionError):
                raise  # the shell exists but cannot be started for want of resources: then neither can a child
            self._missing = True
            log.warning(
                "server processes will not be ended if this program is killed: %s cannot be started (%s)", SHELL, error
            )
            return
        else:
            _wake_at_end(reading, shell.pid)
        finally:
            os.close(reading)
        self._pid, shell.returncode = shell.pid, 0  # it is reaped here only
        self._death_pipe = writing
        os.write(writing, "".join(words).encode())
        os.set_blocking(writing, False)

    def _stop_shell_if_idle(self) -> None:
        if not self._groups and not self._expected and self._death_pipe is not None:
            self._stop_shell()

    def _stop_shell(self) -> None:
        assert self._death_pipe is not None
        # Killed first, so that it neither acts on the end of the pipe nor has to be waited for.
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self._pid, 0)
        os.close(self._death_pipe)
        self._death_pipe = None


def _wake_at_end(reading: int, pid: int) -> None:
    """Make the kernel send the shell SIGCONT when its pipe becomes readable or ends (F_SETSIG, on Linux only): a stopped shell would not notice the end."""
    signalled = getattr(fcntl, "F_SETSIG", None)
    if signalled is not None:
        with contextlib.suppress(OSError):  # forbidden in this sandbox
            fcntl.fcntl(reading, signalled, signal.SIGCONT)
            fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
            fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)


orphan_reaper = OrphanReaper()


def _after_fork_in_child() -> None:
    for child in list(_open):
        child.release_after_fork()
    orphan_reaper.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
