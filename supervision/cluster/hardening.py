"""What has to be different in Thespian before it may run: where it listens, whom it believes, how much it takes, and what it tells.

As it comes it listens on all addresses and unpickles what anybody sends there. Here a frame is unpickled only when it carries the MAC
of this system's own key, every socket is bound to the chosen address, and a frame has a largest size. It also learns to tell how a child has
ended, which it knows and keeps to itself. All of that is done to the module's insides, once, in the warden, before anything is
forked: `versions` makes sure that the insides are the ones that this was written for.
"""
# ruff: noqa: SLF001 - what is replaced is private, which is why `versions` looks at its very text

from __future__ import annotations

import hmac
import logging
import pickle
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from . import versions
from .thespian_door import ActorSystem, addresses, convention, processes, streams, system_base, system_logs, tcp

if TYPE_CHECKING:
    from collections.abc import Callable

MAC_BYTES: Final = 32
LARGEST: Final = 256 * 1024
"""Bytes of a frame between parts of the system: orders and exits, never what users send. So much, of each newcomer, is kept unseen."""
_DIGITS: Final = 12
_NEWCOMERS: Final = 64
"""How many connections may have said nothing yet that is known to be ours."""


class Forged(ValueError):
    """A frame that nobody of this system has made."""


class Sealed:
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
        """Unpickle what one of us has sealed. Raises `Forged`."""
        mac, body = data[:MAC_BYTES], data[MAC_BYTES:]
        if not hmac.compare_digest(mac, hmac.digest(self._key, body, sha256)):
            self._refused(f"a frame of {len(data)} bytes was refused: it is not from this system")
            raise Forged("not from this system")
        return pickle.loads(body)  # noqa: S301 - the MAC was right: it is our own


class Log:
    """What became known about children, and what is to be logged; set in the process that has somewhere to tell it."""

    exited: Callable[[int, int | None], None] | None = None
    note: Callable[[int, str], None] | None = None


def note(level: int, text: str) -> None:
    """Tell it, if there is somebody to tell."""
    if Log.note is not None:
        Log.note(level, text)


ROOT: Final = logging.root
MANAGER: Final = logging.Logger.manager


def install(key: bytes, bind: str) -> None:
    """Make this process's Thespian, and that of all that it forks, the one that may run. Raises `EngineFailed`."""
    versions.check()
    sealed = Sealed(key, lambda text: note(logging.WARNING, text))
    tcp.serializer = sealed
    tcp.ackMsg = streams.toSendBuffer(streams.ackPacket, sealed.dumps)
    tcp.ackDataErrMsg = streams.toSendBuffer(streams.ackDataErrPacket, sealed.dumps)
    tcp.ReceiveBuffer = _bounded(streams.ReceiveBuffer)
    addresses.IPActorAddress.bindArgs = property(lambda address: ((bind, address.sockname[1]),))
    _limit_newcomers()
    _tell_of_exits()
    _survive_lost_machines()
    system_base.MAX_SYSTEM_SHUTDOWN_DELAY = timedelta(seconds=1)  # who has not ended by then is ended by pid
    system_logs.thesplog_control(logging.CRITICAL, False, 0)  # noqa: FBT003 - it would write a file into the temporary folder


def inside_of(system: ActorSystem) -> Any:
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
                raise Forged("not a frame")
            if self._size is None and b">" in data:
                digits = self._buf + data[: data.index(b">")]
                if not digits.isdigit() or len(digits) > _DIGITS or not MAC_BYTES < int(digits) <= LARGEST:
                    note(logging.WARNING, "a frame was refused: its length is none that this system sends")
                    raise Forged("not a frame")
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
    """When a machine is lost that was asked for an actor, and no other would do, an admin says so to whoever wants it, and does not die of it."""
    admin = convention.ConventioneerAdmin

    def look_elsewhere(self: Any, _result: object, intent: Any) -> None:
        envelope = intent.orig_create_envelope
        try:
            self._not_compatible(envelope)
        except convention.NoCompatibleSystemForActor:
            code = convention.PendingActorResponse.ERROR_No_Compatible_ActorSystem
            self._sendPendingActorResponse(envelope, None, errorCode=code, errorStr="")

    admin._pending_send_failed = look_elsewhere


def _tell_of_exits() -> None:
    look = processes.MultiProcReplicator._checkChildLiveness

    def look_and_tell(child: Any) -> bool:
        lives = bool(look(child))
        if not lives and Log.exited is not None:
            code = child.childProc.exitcode
            Log.exited(child.childProc.pid, code if isinstance(code, int) else None)
        return lives

    processes.MultiProcReplicator._checkChildLiveness = staticmethod(look_and_tell)
