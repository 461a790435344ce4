"""The start of a process as a node: its boot message, the state it inherits by the forks, and the death pipe that ends it with the application."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from .daemon_protocol import DaemonMessage, ForeignNodeStarted, LogNote, ProcessReaped, encode_message

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from types import FrameType

    from greenroom.supervision.kernel.process_messages import Pid

    from .cluster_settings import ClusterSettings, NodeSpec
    from .machines import Machine


class NodeBoot(msgspec.Struct, frozen=True, kw_only=True):
    """The boot message of a node. The key is not in it: the process inherits that."""

    name: str
    home: list[str]
    """Addresses of the application's node."""
    engine: tuple[str, int, int]
    """The pid of the engine, which is told when the node is ready."""
    heartbeat: float
    misses: int
    tcp: str | None
    memory: int | None
    open_files: int | None
    path: list[bytes] | None
    """As bytes, since a path may be any bytes."""
    cwd: bytes | None
    env: dict[bytes, bytes]
    preload: list[str]
    main_module: str | None
    main_path: bytes | None
    stop_timeout: float
    log_level: int


LARGEST: Final = 192 * 1024
"""The largest boot message: it travels in one of Thespian's frames."""


def pack(boot: NodeBoot) -> bytes:
    """Encode a boot message. Raises `ValueError`, which says what is wrong with it."""
    try:
        data = encode_message(boot)
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object!r} is not text that can be sent to another process") from None
    if len(data) > LARGEST:
        raise ValueError(f"its boot message has {len(data)} bytes, and may have {LARGEST}: look at its env and path")
    return data


def boot_for(
    name: str, spec: NodeSpec, settings: ClusterSettings, home: Iterable[str], engine: Pid, machine: Machine | None
) -> NodeBoot:
    """The boot message for a node here, or on `machine`, which has other directories and reaches this node by TCP only."""
    main, away = spec.main, machine is not None
    path = spec.path if away else tuple(sys.path if spec.path is None else spec.path)
    return NodeBoot(
        name=name,
        home=[each for each in home if each.startswith("tcp:") or not away],
        engine=(engine.node, engine.incarnation, engine.serial),
        heartbeat=settings.heartbeat,
        misses=settings.misses,
        tcp=settings.tcp if machine is None else machine.host,
        memory=spec.limits.memory,
        open_files=spec.limits.open_files,
        path=None if path is None else encoded_paths(path),
        cwd=_here() if not away and spec.cwd is None else _encoded(spec.cwd),
        env={os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()},
        preload=list(spec.preload),
        main_module=None if main is None else main.module,
        main_path=None if main is None else _encoded(main.path),
        stop_timeout=spec.stop_timeout,
        log_level=logging.getLogger().getEffectiveLevel(),
    )


def encoded_paths(path: Iterable[object]) -> list[bytes]:
    """The entries of a `sys.path` that are paths, as bytes; import skips the others too."""
    found: list[Any] = [each for each in path if isinstance(each, str | os.PathLike)]
    return [os.fsencode(each) for each in found]


def _encoded(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def _here() -> bytes | None:
    """The working directory; None when it was removed."""
    try:
        return os.fsencode(Path.cwd())
    except FileNotFoundError:
        return None


unpack: Final = msgspec.msgpack.Decoder(NodeBoot).decode
"""Decode a `NodeBoot`. Raises `msgspec.MsgspecError`."""
LEAVE: Final = "leave"
"""To a `NodeStopper`: stop the node in order."""


class NodeReady(NamedTuple):
    """From a node to the application's engine: its imports are done; `stopper` ends it."""

    name: str
    os_pid: int
    stopper: Pid


class NodeImportFailed(NamedTuple):
    """From a node to the engine: an import has failed, and the node ends."""

    name: str
    why: str


class NodeOutput(NamedTuple):
    """From a node to the engine: what its code logged and printed (logger, level, line, data of the record). `dropped` lines did not fit."""

    name: str
    lines: list[tuple[str, int, str, dict[str, Any] | None]]
    dropped: int


# --- State that every process below a daemon inherits, since each is a fork of a fork of it: the nodes' key, and two sockets.
# The fork server has one socket, for its commands. The other takes notes from any process: lines for the application's log, dropped when the socket is full, so
# that no writer ever waits for the reader.

NOTE_BYTES: Final = 2_000
NODE_VARIABLE: Final = "GREENROOM_NODE"
"""Environment variable with the node's name, for programs that a node's code executes: the daemon finds them by it."""


def name_of_node(name: str) -> str:
    """The process name of a node, and of forks that C code makes of it."""
    return f"gr-{name}"


def name_of_forks(pid: int) -> str:
    """The process name of a fork that Python code in the node of process `pid` has made."""
    return f"gr-of-{pid}"


class InheritedState:
    """Set in the daemon, read in the processes below it."""

    key: bytes = b""
    fork_server: socket.socket | None = None
    notes: socket.socket | None = None
    node: str = ""
    """The name of the node that this process is, or was forked by."""
    pid: int = 0
    """The pid of that node's own process."""
    private: Final[set[int]] = set()
    """Descriptors of the daemon alone, which its forks close."""
    environment: Final[dict[str, str | None]] = {}
    """Variables that the daemon has changed, with their former values, which nodes restore."""


def send_log_line(level: int, text: str) -> None:
    """Send a line to the application's log; dropped when the socket is full."""
    if InheritedState.notes is not None:
        with contextlib.suppress(OSError, ValueError):
            InheritedState.notes.send(encode_message(LogNote(level, text[-NOTE_BYTES:], InheritedState.node)))


def change_environment(name: str, value: str) -> None:
    """Set a variable for Thespian; nodes restore it."""
    InheritedState.environment.setdefault(name, os.environ.get(name))
    os.environ[name] = value


def restore_environment() -> None:
    """Restore the variables, in a node's process."""
    for name, value in InheritedState.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def close_private_fds() -> None:
    """In a fork of the daemon or below it: close what belongs to the parent alone.

    That includes listening sockets: Thespian's logger would inherit the admin's, and hold the port when the admin is gone.
    """
    redirect_to_null((*InheritedState.private, *_listening()))
    InheritedState.private.clear()


def open_fds() -> list[int]:
    """The open descriptors of this process, where the system lists them."""
    try:
        return [int(entry) for entry in os.listdir("/dev/fd")]  # noqa: PTH208 - an iterator would have a descriptor of its own
    except FileNotFoundError:
        return []


def redirect_to_null(descriptors: Iterable[int]) -> None:
    """Redirect these descriptors to /dev/null. They are not closed: an object that still refers to a number could close another file that has got it by then."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        if descriptor != null:
            with contextlib.suppress(OSError):  # it is closed already
                os.fstat(descriptor)
                os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _listening() -> Iterator[int]:
    for number in open_fds():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        yield number


# --- The death pipe: only the application holds its writing end, so its closing tells every process below that the application has ended.
# However the application dies, the kernel closes the pipe. Each process below has armed its reading end with `F_SETSIG` (`SIGKILL`), so the kernel kills it,
# whether it computes, sleeps, is stopped or holds the interpreter's lock. `PR_SET_PDEATHSIG` would not do: it follows the thread that forked, and one generation.
# Each fork arms itself again, also forks that a node's code makes. Programs that such code executes are not armed; the daemon, which polls the pipe, kills those.

_SETSIG: Final[int | None] = getattr(fcntl, "F_SETSIG", None)  # only Linux can choose the signal

_uncut_pipes: Final[set[DeathPipe]] = set()
"""Keeps them alive: a forked child must close each of them, also those that nothing else refers to."""


class DeathPipe:
    """The application's end of the pipe."""

    def __init__(self) -> None:
        """`reading` is inherited by the processes below; `handed_over` closes it here."""
        self.reading, self._writing = os.pipe()
        self._pid = os.getpid()
        _uncut_pipes.add(self)

    def handed_over(self) -> None:
        """Close the reading end here: the processes below have theirs."""
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def cut(self) -> None:
        """Kill every process below, now. Calling it again is a no-op."""
        _uncut_pipes.discard(self)
        self.handed_over()
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


class _DeathPipeState:
    """This process's part of the death pipe: the reading end that it inherited, and its own open file description."""

    reading = -1
    own = -1
    waiting = -1
    """A third description, while `abort_when_application_ends` is active."""


class ApplicationGone(BaseException):
    """The application is gone. A `BaseException`, so that no `except Exception` on the way stops it."""


def arm_forks(reading: int) -> None:
    """In the daemon: arm every later fork, and the forks of those."""
    _DeathPipeState.reading = reading
    os.register_at_fork(after_in_child=_arm_this_fork)


def is_death_pipe(descriptor: int) -> bool:
    """Whether the descriptor is the death pipe's. Code that closes all others leaves it open."""
    return descriptor >= 0 and descriptor in (_DeathPipeState.reading, _DeathPipeState.own)


def is_application_gone(reading: int) -> bool:
    """Whether the writing end is closed."""
    poll = select.poll()
    poll.register(reading, 0)
    return bool(poll.poll(0))


@contextlib.contextmanager
def abort_when_application_ends(reading: int) -> Generator[None]:
    """In the daemon: abort the block with `ApplicationGone` when the application ends, whatever it waits for."""
    own = _armed(reading, signal.SIGIO)
    if own is None:
        yield
        return
    _DeathPipeState.waiting = own
    before = signal.signal(signal.SIGIO, _give_up)
    try:
        if is_application_gone(reading):
            raise ApplicationGone
        yield
    finally:
        # forks made in the block share this description: switch its signal off for them as well
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK)
        _DeathPipeState.waiting = -1
        os.close(own)
        signal.signal(signal.SIGIO, before)


def resume_when_application_ends(reading: int) -> int | None:
    """In the daemon: have it continued, if it is stopped, when the application ends, so that it can kill everything below. Returns the armed descriptor.

    `SIGCONT` and not `SIGKILL`: only the daemon can kill the programs that nodes have executed, so it must not die itself.
    """
    return _armed(reading, signal.SIGCONT)


def _give_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise ApplicationGone


def _armed(reading: int, number: int) -> int | None:
    """Open a new description of the pipe that sends this process the signal; None where the kernel cannot do that."""
    if _SETSIG is None:
        return None
    # The receiver of the signal is a property of the open file description, which forks share: so each process opens its own, through /proc.
    try:
        own = os.open(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # code in a node has closed the descriptor; the daemon still kills the process
    fcntl.fcntl(own, _SETSIG, number)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    return own


def _arm_this_fork() -> None:
    reading, before = _DeathPipeState.reading, _DeathPipeState.own
    if _DeathPipeState.waiting >= 0:
        os.close(_DeathPipeState.waiting)
        _DeathPipeState.waiting = -1
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    own = _armed(reading, signal.SIGKILL)
    if own is None:
        return
    _DeathPipeState.own = own
    if before >= 0:
        with contextlib.suppress(OSError):
            os.close(before)
    if is_application_gone(reading):  # it was closed before the signal was armed
        os.kill(os.getpid(), signal.SIGKILL)


def watch_death_pipe_in_thread() -> None:
    """Where the kernel cannot send a chosen signal: a thread that reads the pipe and exits. Only in processes that do not fork again."""
    if _SETSIG is not None:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(_DeathPipeState.reading, 1)
        os._exit(1)

    threading.Thread(target=wait, name="greenroom-death-pipe", daemon=True).start()


def _cut_in_child() -> None:
    """In a fork of the application: close the writing ends, or the child would keep the processes below alive after the application's end."""
    for death_pipe in list(_uncut_pipes):
        with contextlib.suppress(OSError):
            death_pipe.cut()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_cut_in_child)


# --- Reports about nodes that another machine has asked for. Thespian's admin forks their processes, so the fork server knows nothing of them.
# The process reports that it runs, and the admin how it ended, over the socket of the notes; unlike notes, these are not dropped.

_WAIT: Final = 2.0


def announce_foreign_node() -> bool:
    """Report this process. False when the daemon has read nothing for so long that it may be gone."""
    return _send_report(ForeignNodeStarted(InheritedState.node, os.getpid()))


def report_exit(pid: int, status: int | None) -> None:
    """Report an ended child, in the admin."""
    if status is not None:
        _send_report(ProcessReaped(pid, status))


def _send_report(message: DaemonMessage) -> bool:
    notes = InheritedState.notes
    until = time.monotonic() + _WAIT
    while notes is not None and (left := until - time.monotonic()) > 0:
        try:
            notes.send(encode_message(message))
        except BlockingIOError:
            select.select((), (notes,), (), left)
        except OSError:
            return False
        else:
            return True
    return False
