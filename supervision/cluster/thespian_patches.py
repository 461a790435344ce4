"""Thespian's door: no other file imports it, and all that has to be different in it is done here, with the reasons.

The keeper imports this file, which is the engine of processes that a warden has, and so does what runs in a Thespian system of a user's own:
a guest actor, or what asks an actor of theirs. A house test names them. Importing it changes nothing in Thespian.

What is taken from it is of two kinds: its public words (an actor, the messages that it gets, the system), and the internals that
`install_patches` replaces. `check_thespian` refuses any Thespian but the one that both were read in.
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

# ruff: noqa: F401, N813, N815, TC002 - Thespian's names are its own, and others have them from here


if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    class ActorAddress:
        """Of an actor."""

    class Actor:
        """What Thespian runs in a process of its own."""

        myAddress: ActorAddress
        _myRef: Any

        def createActor(self, actor_class: type | str, requirements: dict[str, object] | None = None) -> ActorAddress:  # noqa: N802
            """Start a child; what is sent to it waits until it runs."""
            ...

        def send(self, target: ActorAddress, message: object) -> None:
            """Some time."""

        def receiveMessage(self, message: object, sender: ActorAddress) -> object:  # noqa: N802
            """One message."""
            ...

        def notifyOnSystemRegistrationChanges(self, setting: bool) -> None:  # noqa: FBT001, N802
            """Hear of the machines of the convention."""

        def updateCapability(self, name: str, value: object) -> None:  # noqa: N802
            """This machine has, from now on."""

        def wakeupAfter(self, period: object, payload: object = None) -> None:  # noqa: N802
            """Have a `WakeupMessage`, after a `timedelta`."""

    class ActorSystemException(Exception):
        """Whatever Thespian raises."""

    class ActorSystemMessage:
        """Whatever Thespian itself sends."""

    class ActorSystemConventionUpdate(ActorSystemMessage):
        """A machine has joined the convention, or has left it."""

        remoteCapabilities: dict[str, Any]
        remoteAdded: bool

    class ActorExitRequest(ActorSystemMessage):
        """An actor is to end."""

    class ChildActorExited(ActorSystemMessage):
        """A child has ended."""

        childAddress: ActorAddress

    class PoisonMessage(ActorSystemMessage):
        """A message that its receiver has failed at, twice."""

        poisonMessage: Any
        details: str | None

    class WakeupMessage(ActorSystemMessage):
        """The time has come."""

        payload: Any

    class WatchMessage(ActorSystemMessage):
        """A watched descriptor has something to read."""

        ready: list[int]

    class ThespianWatch:
        """What a handler returns to have descriptors watched until the next message."""

        def __init__(self, descriptors: list[int]) -> None: ...

    class ActorSystem:
        """The system, seen from outside."""

        def __init__(
            self,
            base: str,
            capabilities: dict[str, object],
            logDefs: dict[str, object],  # noqa: N803 - Thespian's name
            *,
            transientUnique: bool,  # noqa: N803
        ) -> None: ...
        def createActor(self, actor_class: type | str) -> ActorAddress:  # noqa: N802
            """Have the admin start one."""
            ...

        def tell(self, target: ActorAddress, message: object) -> None:
            """Send, and wait until that is done."""

        def ask(self, target: ActorAddress, message: object, timeout: object = None) -> Any:
            """Send, and wait for whatever comes next."""
            ...

        def listen(self, timeout: object = None) -> Any:
            """Wait for whatever comes next."""
            ...

        def private(self) -> AbstractContextManager[ActorSystem]:
            """An endpoint of its own."""
            ...

        def shutdown(self) -> None:
            """Ask all of it to end, and wait for that."""

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

# --- What has to be different in Thespian before it may run: where it listens, whom it believes, how much it takes, and what it tells.
# As it comes it listens on all addresses and unpickles whatever is sent there. Here a frame is unpickled only when it carries the MAC
# of this system's own key, every socket is bound to the chosen address, and a frame has a largest size. It also learns to tell how a child has
# ended, which it knows and keeps to itself. All of that is done to the module's insides, once, in the warden, before anything is
# forked: `check_thespian` makes sure that the insides are the ones that this was written for.

# ruff: noqa: SLF001 - what is replaced is private, which is why `check_thespian` looks at its very text


MAC_BYTES: Final = 32
LARGEST: Final = 256 * 1024
"""Bytes of a frame between parts of the system: orders and exits, never what users send. So much, of each newcomer, is kept unseen."""
_DIGITS: Final = 12
_NEWCOMERS: Final = 64
"""How many connections may have said nothing yet that is known to be ours."""


class ForgedFrame(ValueError):
    """A frame that was not made by this system."""


class SealedPickle:
    """In place of the pickle module: what it makes carries a MAC, and without one nothing is unpickled."""

    def __init__(self, key: bytes, refused: Callable[[str], None]) -> None:
        """`refused` is told of what was not taken."""
        self._key = key
        self._refused = refused

    def __repr__(self) -> str:
        return "<Sealed>"

    def dumps(self, value: object) -> bytes:
        """Pickle and seal."""
        body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return hmac.digest(self._key, body, sha256) + body

    def loads(self, data: bytes) -> Any:
        """Unpickle what one of us has sealed. Raises `ForgedFrame`."""
        mac, body = data[:MAC_BYTES], data[MAC_BYTES:]
        if not hmac.compare_digest(mac, hmac.digest(self._key, body, sha256)):
            self._refused(f"a frame of {len(data)} bytes was refused: it is not from this system")
            raise ForgedFrame("not from this system")
        return pickle.loads(body)  # noqa: S301 - the MAC was right: it is our own


class PatchCallbacks:
    """What became known about children, and what is to be logged; set in the process that has somewhere to tell it."""

    on_exit: Callable[[int, int | None], None] | None = None
    on_note: Callable[[int, str], None] | None = None


def note(level: int, text: str) -> None:
    """Tell it, if there is a receiver for it."""
    if PatchCallbacks.on_note is not None:
        PatchCallbacks.on_note(level, text)


ROOT: Final = logging.root
MANAGER: Final = logging.Logger.manager


def install_patches(key: bytes, bind: str) -> None:
    """Make this process's Thespian, and that of all that it forks, the one that may run. Raises `EngineFailed`."""
    check_thespian()
    sealed = SealedPickle(key, lambda text: note(logging.WARNING, text))
    tcp.serializer = sealed
    tcp.ackMsg = streams.toSendBuffer(streams.ackPacket, sealed.dumps)
    tcp.ackDataErrMsg = streams.toSendBuffer(streams.ackDataErrPacket, sealed.dumps)
    tcp.ReceiveBuffer = _bounded(streams.ReceiveBuffer)
    addresses.IPActorAddress.bindArgs = property(lambda address: ((bind, address.sockname[1]),))
    _limit_newcomers()
    _report_exits()
    _survive_lost_machines()
    system_base.MAX_SYSTEM_SHUTDOWN_DELAY = timedelta(seconds=1)  # a process that has not ended by then is ended by pid
    system_logs.thesplog_control(logging.CRITICAL, False, 0)  # noqa: FBT003 - it would write a file into the temporary folder


def transport_of(system: ActorSystem) -> Any:
    """The transport of a system, as it is seen from outside."""
    whole: Any = system
    return whole._systemBase.transport


def restore_logging() -> None:
    """In an actor's process: take back what Thespian has made of `logging`, whose records would each be one of its messages."""
    logging.root = ROOT
    logging.Logger.root = ROOT
    logging.Logger.manager = MANAGER


def _bounded(buffer: type[Any]) -> type[Any]:
    class BoundedBuffer(buffer):  # type: ignore[misc]  # Thespian has no types
        """Refuses what could never be a frame of ours: a number of bytes that is none, or is too large."""

        def addMore(self, data: bytes) -> None:  # noqa: N802 - Thespian's name
            if self._size is None and b">" not in data and len(self._buf) + len(data) > _DIGITS:
                raise ForgedFrame("not a frame")
            if self._size is None and b">" in data:
                digits = self._buf + data[: data.index(b">")]
                if not digits.isdigit() or len(digits) > _DIGITS or not MAC_BYTES < int(digits) <= LARGEST:
                    note(logging.WARNING, "a frame was refused: its length is none that this system sends")
                    raise ForgedFrame("not a frame")
            super().addMore(data)  # pyright: ignore[reportUnknownMemberType] - nor has this

    return BoundedBuffer


def _limit_newcomers() -> None:
    accept = tcp.TCPTransport._acceptNewIncoming

    def accept_few(transport: Any) -> None:
        silent = [number for number, each in transport._incomingSockets.items() if not each.fromAddress.addressDetails]
        for number in silent[: max(0, len(silent) - _NEWCOMERS)]:
            transport._incomingSockets.pop(number).close()
        accept(transport)

    tcp.TCPTransport._acceptNewIncoming = accept_few


def _survive_lost_machines() -> None:
    """When a machine is lost that was asked for an actor, and no other would do, an admin says so to the actor's requester, and does not die of it."""
    admin = convention.ConventioneerAdmin

    def look_elsewhere(self: Any, _result: object, intent: Any) -> None:
        envelope = intent.orig_create_envelope
        try:
            self._not_compatible(envelope)
        except convention.NoCompatibleSystemForActor:
            code = convention.PendingActorResponse.ERROR_No_Compatible_ActorSystem
            self._sendPendingActorResponse(envelope, None, errorCode=code, errorStr="")

    admin._pending_send_failed = look_elsewhere


def _report_exits() -> None:
    look = processes.MultiProcReplicator._checkChildLiveness

    def look_and_tell(child: Any) -> bool:
        lives = bool(look(child))
        if not lives and PatchCallbacks.on_exit is not None:
            code = child.childProc.exitcode
            PatchCallbacks.on_exit(child.childProc.pid, code if isinstance(code, int) else None)
        return lives

    processes.MultiProcReplicator._checkChildLiveness = staticmethod(look_and_tell)


# --- Which Thespian this is written for: the release, and the very text of what `install_patches` replaces in it.
# A Thespian whose insides are others would run, and listen on all addresses and unpickle whatever is sent there. So nothing is started then.

THESPIAN: Final = "4.0.1"
PATCHED_FILES: Final = {
    "system/admin/convention.py": "7791a9fcbea84bdd79b9d902493fdf82398302e2e3ba80fc426b56e54fda22c4",
    "system/multiprocCommon.py": "fe2c4c348eac187d6cc7dabe0eff23dca276a2822e51b41d07e0c954c9e5efee",
    "system/systemBase.py": "778f900603739440168272618faf74be53ff6c4a2e1aac746498ea254ae7fd40",
    "system/transport/IPBase.py": "ff75cc8eb35019a3783b9ee3d8e8720c9fe4d6a6c3219fef7e1934b85c359a69",
    "system/transport/TCPTransport.py": "303b9a9b3871ca949f70c5f57654fc8147e44f8d0e9981c55902a1b0f16a2c59",
    "system/transport/streamBuffer.py": "3aa2191109c9aec9b7c96a6617eb7799dbe63e866de0d403075eb11e8f53f850",
}
"""The files of which something is replaced or relied upon from inside, with the SHA-256 of their text."""


def check_thespian(folder: Path | None = None, version: str | None = None) -> None:
    """Raise `EngineFailed` unless the Thespian that is installed is the one that is known."""
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
                f"Thespian's {name} is not that of release {THESPIAN}, and what makes it safe would not fit: "
                f"pip install --force-reinstall thespian=={THESPIAN}"
            )


# --- Holders of the port that is wanted: processes of a former system whose warden is gone are ended, and any other is named.
# The lifeline leaves no process behind. But code in a node can close it, and where the system cannot kill by it a warden that was killed could not
# either; and Thespian's own processes go on without each other for ever.

PROGRAM: Final = b"greenroom.supervision.cluster.daemon_main"
"""What stands in the command line of a warden, and of all that are forked below it."""
_LISTENS: Final = "0A"
_SECONDS: Final = 2.0
_LOOK: Final = 0.01


def free_port(bind: str, port: int) -> None:
    """Make sure that the port is free: stale processes of ours that have it are ended. Raises `EngineFailed`, which names others."""
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
    """Whether it is a process of ours, of a system without a warden."""
    everybody = os_processes.all_processes()
    if PROGRAM not in os_processes.read_proc(pid, "cmdline") or not os_processes.name_of(pid).startswith("gr-"):
        return False
    while (seen := everybody.get(pid)) is not None:
        if seen.name == "gr-daemon" and seen.state not in ("Z", "X"):
            return False
        pid = seen.parent
    return True


def port_holders(port: int) -> list[int]:
    """The processes that listen there, as far as we may know."""
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
