"""What a process is told to become a node: read once, in that process; and what it says of itself when it is one."""

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
    """All that it needs to know; the key it has inherited."""

    name: str
    home: list[str]
    """Addresses of the application's node."""
    engine: tuple[str, int, int]
    """The pid of the engine, which is told that it is ready."""
    heartbeat: float
    misses: int
    tcp: str | None
    memory: int | None
    open_files: int | None
    path: list[bytes] | None
    """Names of files are bytes, and any bytes may be one."""
    cwd: bytes | None
    env: dict[bytes, bytes]
    preload: list[str]
    main_module: str | None
    main_path: bytes | None
    stop_timeout: float
    log_level: int


LARGEST: Final = 192 * 1024
"""Bytes of a boot: it travels in one of Thespian's frames, whose size is bounded."""


def pack(boot: NodeBoot) -> bytes:
    """As bytes. Raises `ValueError`, which says what is wrong with it."""
    try:
        data = encode_message(boot)
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object!r} is no text that can be told to another process") from None
    if len(data) > LARGEST:
        raise ValueError(
            f"what it is to be told has {len(data)} bytes, and may have {LARGEST}: look at its env and path"
        )
    return data


def boot_for(
    name: str, spec: NodeSpec, settings: ClusterSettings, home: Iterable[str], engine: Pid, machine: Machine | None
) -> NodeBoot:
    """For a node here, or on another machine, which has other directories, and reaches this one by TCP alone."""
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
    """Those of a `sys.path`, as the system has them; anything else in it import passes over as well."""
    found: list[Any] = [each for each in path if isinstance(each, str | os.PathLike)]
    return [os.fsencode(each) for each in found]


def _encoded(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def _here() -> bytes | None:
    """The directory that this process works in; None when that was removed."""
    try:
        return os.fsencode(Path.cwd())
    except FileNotFoundError:
        return None


unpack: Final = msgspec.msgpack.Decoder(NodeBoot).decode
"""A `NodeBoot` of its bytes. Raises `msgspec.MsgspecError`."""
LEAVE: Final = "leave"
"""To a node's steward: stop in order."""


class NodeReady(NamedTuple):
    """From a node to the application's engine: it has imported what it was to, and `stopper` ends it when told to."""

    name: str
    os_pid: int
    stopper: Pid


class NodeImportFailed(NamedTuple):
    """... it could not, and ends."""

    name: str
    why: str


class NodeOutput(NamedTuple):
    """... what its code has logged and printed: logger, level and line of each, and what a record has as data. `dropped` lines there was no room for."""

    name: str
    lines: list[tuple[str, int, str, dict[str, Any] | None]]
    dropped: int


# --- What every process below a warden has from it, since each is a fork of a fork of it: the key of the nodes, and two sockets.
# One socket is the keeper's, for its orders. The other takes notes from any process: a line for the application's log, which is dropped when
# there is no room for it, so that no process ever waits for its reader.

NOTE_BYTES: Final = 2_000
NODE_VARIABLE: Final = "GREENROOM_NODE"
"""In the environment of whatever code in a node executes: whose it is."""


def name_of_node(name: str) -> str:
    """What the process of that node is called; and so is a fork of it that was made without Python's knowledge."""
    return f"gr-{name}"


def name_of_forks(pid: int) -> str:
    """What a process is called that code in the node of process `pid` has forked."""
    return f"gr-of-{pid}"


class InheritedState:
    """Set in the warden, read below it."""

    key: bytes = b""
    fork_server: socket.socket | None = None
    notes: socket.socket | None = None
    node: str = ""
    """Whose process this is by now, or that of whatever code has forked it: a node's, by its name."""
    pid: int = 0
    """Of that node's process itself."""
    private: Final[set[int]] = set()
    """Descriptors of the warden's alone: closed in whatever it forks."""
    environment: Final[dict[str, str | None]] = {}
    """What the warden has changed in the environment, as it was before: nodes get that back."""


def send_log_line(level: int, text: str) -> None:
    """Have it logged at home, if there is room."""
    if InheritedState.notes is not None:
        with contextlib.suppress(OSError, ValueError):
            InheritedState.notes.send(encode_message(LogNote(level, text[-NOTE_BYTES:], InheritedState.node)))


def change_environment(name: str, value: str) -> None:
    """For Thespian's sake; a node's code does not see it."""
    InheritedState.environment.setdefault(name, os.environ.get(name))
    os.environ[name] = value


def restore_environment() -> None:
    """In a node's process."""
    for name, value in InheritedState.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def close_private_fds() -> None:
    """In a process that was forked below the warden, or by it: what is its parent's alone.

    A listening socket is that always; Thespian leaves the admin's to its logger, which then keeps the port when the admin is gone.
    """
    redirect_to_null((*InheritedState.private, *_listening()))
    InheritedState.private.clear()


def open_fds() -> list[int]:
    """The descriptors of this process, where the system lists them."""
    try:
        return [int(entry) for entry in os.listdir("/dev/fd")]  # noqa: PTH208 - an iterator would have a descriptor of its own
    except FileNotFoundError:
        return []


def redirect_to_null(descriptors: Iterable[int]) -> None:
    """Have these descriptors lead nowhere. Their numbers stay taken, since some object may still close them."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        if descriptor != null:
            with contextlib.suppress(OSError):  # it is not open any more
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


# --- The lifeline: a pipe whose writing end only the application holds, so that its end is the end of everything below.
# However the application dies, the kernel closes the pipe. Each process below has the reading end armed: the kernel then kills it, whether
# it computes, sleeps, is stopped or holds the interpreter's lock. Every process that is forked below arms itself anew, also one that code
# in a node forks; only a program that such code executes is not, and the warden, which looks at the pipe itself, ends that.

_SETSIG: Final[int | None] = getattr(fcntl, "F_SETSIG", None)  # Linux alone can say which signal it shall be

_uncut_pipes: Final[set[DeathPipe]] = set()
"""The lifelines that are not cut: a fork must know of them, also when nothing else refers to them."""


class DeathPipe:
    """The application's end."""

    def __init__(self) -> None:
        """`reading` is for the processes below; close it here once they have it."""
        self.reading, self._writing = os.pipe()
        self._pid = os.getpid()
        _uncut_pipes.add(self)

    def handed_over(self) -> None:
        """The processes below hold their end."""
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def cut(self) -> None:
        """End every process below, now. Again is nothing."""
        _uncut_pipes.discard(self)
        self.handed_over()
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1


class _DeathPipeState:
    """What this process has of the lifeline: the reading end that it inherited, and its own description of it."""

    reading = -1
    own = -1
    waiting = -1
    """Another one, while something is waited for that is void when the application ends."""


class ApplicationGone(BaseException):
    """The application is gone. Not an error, and no handler on the way may catch it."""


def arm_forks(reading: int) -> None:
    """Below, in the process that forks the others: tie what it forks to the lifeline, and what those fork, each by itself."""
    _DeathPipeState.reading = reading
    os.register_at_fork(after_in_child=_arm_this_fork)


def is_death_pipe(descriptor: int) -> bool:
    """Whether that descriptor is the lifeline's: code that closes all others leaves it open."""
    return descriptor >= 0 and descriptor in (_DeathPipeState.reading, _DeathPipeState.own)


def is_application_gone(reading: int) -> bool:
    """Whether the application is gone."""
    poll = select.poll()
    poll.register(reading, 0)
    return bool(poll.poll(0))


@contextlib.contextmanager
def abort_when_application_ends(reading: int) -> Generator[None]:
    """For the warden: what waits in here, for whatever and as long as it likes, is given up when the application ends. Raises `ApplicationGone`."""
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
        # Forks that are under way have this description, too: nothing is to come of it any more.
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK)
        _DeathPipeState.waiting = -1
        os.close(own)
        signal.signal(signal.SIGIO, before)


def resume_when_application_ends(reading: int) -> int | None:
    """For the warden: should it be stopped when the application ends, it goes on, and ends everything below. The descriptor that does that, if any.

    It cannot be killed by the lifeline, as those below are: what code in nodes has executed is ended by nothing else.
    """
    return _armed(reading, signal.SIGCONT)


def _give_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - how handlers are called
    raise ApplicationGone


def _armed(reading: int, number: int) -> int | None:
    """A description of the pipe that is this process's own, and has it sent that signal. None where the kernel cannot be asked for it."""
    if _SETSIG is None:
        return None
    # To whom a signal goes is a property of the description, which a fork shares.
    try:
        own = os.open(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # code in a node has closed what was not its own: the warden still sees to it
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
    if is_application_gone(reading):  # it was so before there was a signal to be sent
        os.kill(os.getpid(), signal.SIGKILL)


def watch_death_pipe_in_thread() -> None:
    """Where the kernel cannot be asked for it: a thread that waits for the lifeline's end. In a process that never forks again."""
    if _SETSIG is not None:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(_DeathPipeState.reading, 1)
        os._exit(1)

    threading.Thread(target=wait, name="greenroom-lifeline", daemon=True).start()


def _cut_in_child() -> None:
    """In a child of the application's, which must not keep alive the processes that the application has left behind."""
    for death_pipe in list(_uncut_pipes):
        with contextlib.suppress(OSError):
            death_pipe.cut()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_cut_in_child)


# --- What the warden is told of a node that another machine wants here: its process is the admin's child, of which the keeper knows nothing.
# The process says itself that it is there, and the admin says how it ended, where notes are sent; but these are not dropped.

_WAIT: Final = 2.0


def announce_foreign_node() -> bool:
    """In the process, which has a name by now; False when the warden takes nothing for so long that it may be gone."""
    return _send_report(ForeignNodeStarted(InheritedState.node, os.getpid()))


def report_exit(pid: int, status: int | None) -> None:
    """In the admin."""
    if status is not None:
        _send_report(ProcessReaped(pid, status))


def _send_report(order: DaemonMessage) -> bool:
    notes = InheritedState.notes
    until = time.monotonic() + _WAIT
    while notes is not None and (left := until - time.monotonic()) > 0:
        try:
            notes.send(encode_message(order))
        except BlockingIOError:
            select.select((), (notes,), (), left)
        except OSError:
            return False
        else:
            return True
    return False
