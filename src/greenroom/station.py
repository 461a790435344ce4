"""A worker, as the program that was run sees it: the process, and what serves in it. It lives as long as both do.

Its supervisor starts another one in its place. When the process has ended, the links to it are gone a little before anybody knows how it ended: that is
waited for, so that whoever reads the log learns of the signal, and not of a connection.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.supervision import (
    NO_CONNECTION,
    SHUTDOWN,
    ActorError,
    CallTimeout,
    Crash,
    Exit,
    GenServer,
    Options,
    Quit,
    Ref,
    Shutdown,
    StartFailed,
    Stop,
    exit,
    kill,
    send_after,
    start_link,
    wait_down,
)
from greenroom.supervision.cluster.host import Host
from greenroom.supervision.cluster.ushering import launch_on

from .roster import Doors, Roster
from .wing import WING, Wing

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason
    from greenroom.supervision.cluster.engine import Engine
    from greenroom.supervision.cluster.specs import NodeSpec

_PATIENCE: Final = 2.0
"""Seconds until it is known how a process has ended that cannot be reached."""
_SLACK: Final = 1.0
_LATE: Final = object()


class Station(GenServer):
    """One for each worker."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, engine: Ref[Engine], spec: NodeSpec, wing: tuple[Any, ...], doors: Doors, grace: float) -> None:
        """`wing` is what a `Wing` is made of. It has `grace` seconds to stop, and its process as many as `spec` says."""
        assert spec.name is not None
        self._engine = engine
        self._spec = spec
        self._name: str = spec.name
        self._arguments = wing
        self._doors = doors
        self._grace = grace
        self._host: Ref[Host] | None = None
        self._wing: Ref[Wing] | None = None

    async def init(self) -> None:
        """Start the process, and what serves in it. It begins to serve when all are there, or at once if they have been."""
        self._host = await start_link(Host, self._engine, self._spec)
        try:
            self._wing = wing = await launch_on(self._name, Options(name=WING), Wing, self._arguments, link=True)
        except StartFailed as failed:  # what it has crashed of is in the log already, as its own report
            raise Quit(Shutdown(worker_error(failed))) from None
        addresses = await wing.call(Wing.addresses)
        await self._doors.roster.call(
            Roster.arrived, self._name, addresses
        )  # before anybody comes to it for another's session
        if self._doors.open:
            await wing.within(None).call(Wing.open)

    def handle_info(self, message: Any) -> Stop | None:
        """One of the two has ended."""
        match message:
            case Exit(reason=reason) if reason == NO_CONNECTION:
                send_after(_PATIENCE, self.pid, _LATE)
            case Exit(reason=reason):
                return Stop(_why(reason))
            case _ if message is _LATE:
                return Stop(Shutdown("its node cannot be reached"))
            case _:
                super().handle_info(message)
        return None

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """First what serves, in order; then the process."""
        await _ended(self._wing, self._grace)
        await _ended(self._host, self._spec.stop_timeout + _SLACK)


def worker_error(failed: BaseException) -> BaseException:
    """Why a worker, or what stands above it, did not start: the first cause."""
    reason: Any = getattr(failed, "reason", None)
    while isinstance(reason, Crash | Shutdown):
        cause: Any = reason.error if isinstance(reason, Crash) else reason.detail
        if isinstance(cause, BaseException):
            failed = cause
        reason = getattr(cause, "reason", None)
    return failed


def _why(reason: ExitReason) -> ExitReason:
    """In a word, for a report: it was reported in full already, by whoever it has happened to."""
    return Shutdown(str(reason.error)) if isinstance(reason, Crash) else reason


async def _ended(who: Ref[Any] | None, seconds: float) -> None:
    if who is None:
        return
    exit(who, SHUTDOWN)
    try:
        await wait_down(who, seconds)
    except CallTimeout:
        kill(who)
        with contextlib.suppress(ActorError):
            await wait_down(who, _SLACK)
