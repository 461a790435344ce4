"""The one module that imports Thespian, and the patches without which it is not safe to run.

Importing it changes nothing in Thespian: `install_patches` does, once, in the daemon. It is imported by the daemon, which runs a patched Thespian, and by code
that runs in a user's own, unpatched Thespian system (the guest actor, and actors that answer tools); a test lists these modules.

It uses Thespian's public names (actors, their messages, the system) and the internals that the patches replace. `check_thespian` refuses every Thespian but the
release whose text the patches were written for.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import pickle
import signal
import socket
import time
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import os_processes
from .node_records import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Callable

# ruff: noqa: F401, N813, N815, TC002 - names are Thespian's own, and other modules import them from here


if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    class ActorAddress:
        """The address of an actor."""

    class Actor:
        """A Thespian actor, which runs in a process of its own."""

        myAddress: ActorAddress
        _myRef: Any

        def createActor(self, actor_class: type | str, requirements: dict[str, object] | None = None) -> ActorAddress:  # noqa: N802
            """Start a child. Messages to it wait until it runs."""
            ...

        def send(self, target: ActorAddress, message: object) -> None:
            """Send a message, without waiting."""

        def receiveMessage(self, message: object, sender: ActorAddress) -> object:  # noqa: N802
            """Handle one message."""
            ...

        def notifyOnSystemRegistrationChanges(self, setting: bool) -> None:  # noqa: FBT001, N802
            """Get an `ActorSystemConventionUpdate` when a machine joins or leaves the convention."""

        def updateCapability(self, name: str, value: object) -> None:  # noqa: N802
            """Change a capability of this machine."""

        def wakeupAfter(self, period: object, payload: object = None) -> None:  # noqa: N802
            """Get a `WakeupMessage` after a `timedelta`."""

    class ActorSystemException(Exception):
        """The base of Thespian's errors."""

    class ActorSystemMessage:
        """The base of the messages that Thespian itself sends."""

    class ActorSystemConventionUpdate(ActorSystemMessage):
        """A machine has joined or left the convention."""

        remoteCapabilities: dict[str, Any]
        remoteAdded: bool

    class ActorExitRequest(ActorSystemMessage):
        """The actor is to end."""

    class ChildActorExited(ActorSystemMessage):
        """A child has ended."""

        childAddress: ActorAddress

    class PoisonMessage(ActorSystemMessage):
        """A message that raised in its receiver twice."""

        poisonMessage: Any
        details: str | None

    class WakeupMessage(ActorSystemMessage):
        """The time of `wakeupAfter` is over."""

        payload: Any

    class WatchMessage(ActorSystemMessage):
        """A watched descriptor is readable."""

        ready: list[int]

    class ThespianWatch:
        """Returned by a handler to have these descriptors watched until its next message."""

        def __init__(self, descriptors: list[int]) -> None: ...

    class ActorSystem:
        """A system, as a program outside of it uses it."""

        def __init__(
            self,
            base: str,
            capabilities: dict[str, object],
            logDefs: dict[str, object],  # noqa: N803 - Thespian's name
            *,
            transientUnique: bool,  # noqa: N803
        ) -> None: ...
        def createActor(self, actor_class: type | str) -> ActorAddress:  # noqa: N802
            """Have the admin start an actor."""
            ...

        def tell(self, target: ActorAddress, message: object) -> None:
            """Send a message, and wait until it is written."""

        def ask(self, target: ActorAddress, message: object, timeout: object = None) -> Any:
            """Send a message, and wait for the next message that comes, from any sender."""
            ...

        def listen(self, timeout: object = None) -> Any:
            """Wait for the next message."""
            ...

        def private(self) -> AbstractContextManager[ActorSystem]:
            """A temporary endpoint with an address of its own."""
            ...

        def shutdown(self) -> None:
            """Ask the whole system to end, and wait for it."""

    convention: Any
    tcp: Any
    streams: Any
    addresses: Any
    processes: Any
    system_base: Any
    system_logs: Any
else:
    from thespian.actors import (
        Actor,
        ActorAddress,
        ActorExitRequest,
        ActorSystem,
        ActorSystemConventionUpdate,
        ActorSystemException,
        ActorSystemMessage,
        ChildActorExited,
        PoisonMessage,
        ThespianWatch,
        WakeupMessage,
        WatchMessage,
    )
    from thespian.system import multiprocCommon as processes
    from thespian.system import systemBase as system_base
    from thespian.system import utilis as system_logs
    from thespian.system.admin import convention
    from thespian.system.transport import IPBase as addresses
    from thespian.system.transport import TCPTransport as tcp
    from thespian.system.transport import streamBuffer as streams

# --- The patches: which address Thespian listens on, which frames it accepts, how large they may be, and what it reports.
# Unpatched, Thespian listens on all addresses and unpickles whatever is sent there, so any process that reaches the port runs code. With the patches a frame is
# unpickled only when it carries a MAC made with this system's key, every socket is bound to the chosen address, and frames have a largest size. Thespian also
# reports how a child ended, which it knows and does not tell. The patches replace attributes of its modules, once, in the daemon, before it forks.

# ruff: noqa: SLF001 - what is replaced is private, so `check_thespian` compares its text


MAC_BYTES: Final = 32
LARGEST: Final = 256 * 1024
"""Bytes of a frame between parts of the system, which carry commands and exits and never users' data. A connection that has sent no valid frame can fill that much."""
_DIGITS: Final = 12
_NEWCOMERS: Final = 64
"""How many connections may exist that have not sent a valid frame yet."""


class ForgedFrame(ValueError):
    """A frame without this system's MAC."""


class SealedPickle:
    """Stands in for the `pickle` module in Thespian's transport: seals what it pickles with a MAC, and unpickles nothing without a valid one."""

    def __init__(self, key: bytes, refused: Callable[[str], None]) -> None:
        """`refused` is called with a text for each rejected frame."""
        self._key = key
        self._refused = refused

    def __repr__(self) -> str:
        return "<SealedPickle>"

    def dumps(self, value: object) -> bytes:
        """Pickle, and prepend the MAC."""
        body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return hmac.digest(self._key, body, sha256) + body

    def loads(self, data: bytes) -> Any:
        """Check the MAC, then unpickle. Raises `ForgedFrame`."""
        mac, body = data[:MAC_BYTES], data[MAC_BYTES:]
        if not hmac.compare_digest(mac, hmac.digest(self._key, body, sha256)):
            self._refused(f"a frame of {len(data)} bytes was refused: it is not from this system")
            raise ForgedFrame("not from this system")
        return pickle.loads(body)  # noqa: S301 - the MAC is valid, so this system made it


class PatchCallbacks:
    """Callbacks for ends of children and for log lines, set in the process that can pass them on."""

    on_exit: Callable[[int, int | None], None] | None = None
    on_note: Callable[[int, str], None] | None = None


def note(level: int, text: str) -> None:
    """Pass a line to the log, if this process has a callback for it."""
    if PatchCallbacks.on_note is not None:
        PatchCallbacks.on_note(level, text)


ROOT: Final = logging.root
MANAGER: Final = logging.Logger.manager


def install_patches(key: bytes, bind: str) -> None:
    """Patch Thespian in this process, and so in all that are forked from it. Raises `EngineFailed` for another release."""
    check_thespian()
    sealed = SealedPickle(key, lambda text: note(logging.WARNING, text))
    # Without this, Thespian unpickles what any process sends to its port, which runs that process's code. A pipe between the parts would need no MAC, but
    # Thespian's convention of machines, and its placement of actors, exist over TCP only.
    tcp.serializer = sealed
    # The two acknowledgements are pickled when the module is imported, by the real pickle: made again, or the receiver would refuse them.
    tcp.ackMsg = streams.toSendBuffer(streams.ackPacket, sealed.dumps)
    tcp.ackDataErrMsg = streams.toSendBuffer(streams.ackDataErrPacket, sealed.dumps)
    # Without this, a frame of any announced length is buffered before it can be refused.
    tcp.ReceiveBuffer = _bounded(streams.ReceiveBuffer)
    # Without this, every part listens on 0.0.0.0: Thespian uses an address only to tell others where it can be reached.
    addresses.IPActorAddress.bindArgs = property(lambda address: ((bind, address.sockname[1]),))
    _limit_newcomers()
    _report_exits()
    _survive_lost_machines()
    # Without this, a shutdown waits for ten seconds when a part is dead; the daemon kills by pid what has not ended by then.
    system_base.MAX_SYSTEM_SHUTDOWN_DELAY = timedelta(seconds=1)
    # Without this, every part appends to a log file in the temporary folder.
    system_logs.thesplog_control(logging.CRITICAL, False, 0)  # noqa: FBT003 - Thespian's own order of arguments


def transport_of(system: ActorSystem) -> Any:
    """The transport of the endpoint that a system has in this process."""
    whole: Any = system
    return whole._systemBase.transport


def restore_logging() -> None:
    """Restore `logging` in an actor's process: Thespian replaces its root so that each record becomes a Thespian message, of which it drops those beyond 1,050."""
    logging.root = ROOT
    logging.Logger.root = ROOT
    logging.Logger.manager = MANAGER


def _bounded(buffer: type[Any]) -> type[Any]:
    class BoundedBuffer(buffer):  # type: ignore[misc]  # Thespian has no types
        """Rejects a frame by its length prefix, before its body is buffered: the prefix must be digits, and within `LARGEST`."""

        def addMore(self, data: bytes) -> None:  # noqa: N802 - Thespian's name
            if self._size is None and b">" not in data and len(self._buf) + len(data) > _DIGITS:
                raise ForgedFrame("not a frame")
            if self._size is None and b">" in data:
                digits = self._buf + data[: data.index(b">")]
                if not digits.isdigit() or len(digits) > _DIGITS or not MAC_BYTES < int(digits) <= LARGEST:
                    note(logging.WARNING, "a frame was refused: this system sends none of that length")
                    raise ForgedFrame("not a frame")
            super().addMore(data)  # pyright: ignore[reportUnknownMemberType] - nor has this

    return BoundedBuffer


def _limit_newcomers() -> None:
    # Unpatched, each connection that never sends a valid frame keeps a socket and a buffer until the part ends. Here the oldest of them is closed.
    accept = tcp.TCPTransport._acceptNewIncoming

    def accept_few(transport: Any) -> None:
        silent = [number for number, each in transport._incomingSockets.items() if not each.fromAddress.addressDetails]
        for number in silent[: max(0, len(silent) - _NEWCOMERS)]:
            transport._incomingSockets.pop(number).close()
        accept(transport)

    tcp.TCPTransport._acceptNewIncoming = accept_few


def _survive_lost_machines() -> None:
    """Answer the requester when the machine that was asked for an actor is lost and no other fits; unpatched, the exception ends the admin."""
    admin = convention.ConventioneerAdmin

    def answer_requester(self: Any, _result: object, intent: Any) -> None:
        envelope = intent.orig_create_envelope
        try:
            self._not_compatible(envelope)
        except convention.NoCompatibleSystemForActor:
            code = convention.PendingActorResponse.ERROR_No_Compatible_ActorSystem
            self._sendPendingActorResponse(envelope, None, errorCode=code, errorStr="")

    admin._pending_send_failed = answer_requester


def _report_exits() -> None:
    # Unpatched, the parent learns that a child has ended, and its exit status stays in `childProc.exitcode`, where no message tells it. To reap the children
    # here instead would take the status from Thespian's own `waitpid`.
    check = processes.MultiProcReplicator._checkChildLiveness

    def check_and_report(child: Any) -> bool:
        lives = bool(check(child))
        if not lives and PatchCallbacks.on_exit is not None:
            code = child.childProc.exitcode
            PatchCallbacks.on_exit(child.childProc.pid, code if isinstance(code, int) else None)
        return lives

    processes.MultiProcReplicator._checkChildLiveness = staticmethod(check_and_report)


# --- Which Thespian the patches fit: the release, and the text of each file that they rely on.
# With any other text a patch could miss its place: Thespian would run, listen on all addresses and unpickle what is sent there. So it is not started then.

THESPIAN: Final = "4.0.1"
PATCHED_FILES: Final = {
    "system/admin/convention.py": "7791a9fcbea84bdd79b9d902493fdf82398302e2e3ba80fc426b56e54fda22c4",
    "system/multiprocCommon.py": "fe2c4c348eac187d6cc7dabe0eff23dca276a2822e51b41d07e0c954c9e5efee",
    "system/systemBase.py": "778f900603739440168272618faf74be53ff6c4a2e1aac746498ea254ae7fd40",
    "system/transport/IPBase.py": "ff75cc8eb35019a3783b9ee3d8e8720c9fe4d6a6c3219fef7e1934b85c359a69",
    "system/transport/TCPTransport.py": "303b9a9b3871ca949f70c5f57654fc8147e44f8d0e9981c55902a1b0f16a2c59",
    "system/transport/streamBuffer.py": "3aa2191109c9aec9b7c96a6617eb7799dbe63e866de0d403075eb11e8f53f850",
}
"""SHA-256 of each file that is patched, or whose internals are used."""


def check_thespian(folder: Path | None = None, version: str | None = None) -> None:
    """Raise `EngineFailed` unless exactly the known Thespian is installed."""
    found = metadata.version("thespian") if version is None else version
    if found != THESPIAN:
        raise EngineFailed(
            f"Thespian {found} is installed, and greenroom needs {THESPIAN}: pip install thespian=={THESPIAN}"
        )
    if folder is None:
        located = metadata.distribution("thespian").locate_file("thespian")
        folder = Path(str(located))
    for name, known in PATCHED_FILES.items():
        try:
            text = (folder / name).read_bytes().replace(b"\r\n", b"\n")
        except OSError as error:
            raise EngineFailed(
                f"cannot read Thespian's {name} to check it ({error}): install thespian=={THESPIAN} anew"
            ) from error
        if hashlib.sha256(text).hexdigest() != known:
            raise EngineFailed(
                f"Thespian's {name} is not that of release {THESPIAN}, and the patches that make it safe would not fit: "
                f"pip install --force-reinstall thespian=={THESPIAN}"
            )


# --- Freeing the wanted port: stale processes of a former system, whose daemon is gone, are killed; any other process is named in the error.
# The death pipe normally leaves no process behind. But code in a node can close it, where it is only polled it cannot end a stopped process, and Thespian's own
# processes never end just because the others are gone.

PROGRAM: Final = b"greenroom.supervision.cluster.daemon_main"
"""In the command line of a daemon, and of all processes forked below it."""
_LISTENS: Final = "0A"
_SECONDS: Final = 2.0
_LOOK: Final = 0.01


def free_port(bind: str, port: int) -> None:
    """Make sure that the port is free, killing stale processes of ours that hold it. Raises `EngineFailed`, which names other holders."""
    until = time.monotonic() + _SECONDS
    while (wrong := _bind_error(bind, port)) is not None:
        found = port_holders(port)
        if not found or any(not is_stale(pid) for pid in found) or time.monotonic() > until:
            who = "; ".join(f"process {pid} ({_command(pid)}) has that port" for pid in found)
            raise EngineFailed(f"Thespian cannot listen at {bind}:{port}: {wrong}{'; ' if who else ''}{who}")
        for pid in found:
            os_processes.send_signal(signal.SIGKILL, pid)
        time.sleep(_LOOK)


def is_stale(pid: int) -> bool:
    """Whether it is a process of a system of ours whose daemon is gone."""
    listed = os_processes.all_processes()
    if PROGRAM not in os_processes.read_proc(pid, "cmdline") or not os_processes.name_of(pid).startswith("gr-"):
        return False
    while (seen := listed.get(pid)) is not None:
        if seen.name == "gr-daemon" and seen.state not in ("Z", "X"):
            return False
        pid = seen.parent
    return True


def port_holders(port: int) -> list[int]:
    """The pids that listen on the port, as far as this user may see them."""
    inodes = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in _rows(Path("/proc/net", table))
        if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port
    }
    return [pid for pid in os_processes.all_processes() if pid != os.getpid() and _holds_socket(pid, inodes)]


def _bind_error(bind: str, port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _rows(table: Path) -> list[list[str]]:
    with suppress(OSError):
        return [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    return []


def _holds_socket(pid: int, inodes: set[str]) -> bool:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                    return True
    return False


def _command(pid: int) -> str:
    return os_processes.read_proc(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()[
        :80
    ] or os_processes.name_of(pid)
