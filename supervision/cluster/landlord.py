"""The landlord of a machine that takes nodes of others: which nodes have a place there, and what becomes of them.

Applications ask it for a place before they have Thespian put a process there, and are told when there is one, and how it ended. A node that
came without a place is ended, and so is one whose application is gone or cannot be reached any more. When it dies, their supervisor has the
machine's engine begin anew, and no node is left.
"""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.caller import Reject
from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.current import self_pid
from greenroom.supervision.kernel.messages import Down

from .daemon_protocol import Born, Departed, EndHost, Gone, Left, Lodged, NoRoom, Ready, Renewed, WrongVersion
from .engine import Engine
from .machines import mismatch
from .node_records import Due

if TYPE_CHECKING:
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.messages import Pid

    from .machines import Machine

log = logging.getLogger("greenroom.machine")

_PATIENCE: Final = 60.0
"""How long a place is kept for a process that does not come."""
_AGAIN: Final = 5.0
"""A machine that is to register anew twice within so many seconds has a new Thespian system made."""


@dataclass(eq=False, slots=True)
class _Lodger:
    """One node that has a place."""

    name: str
    owner: Pid
    watch: Monitor
    os_pid: int = 0


class Landlord(GenServer):
    """One for each machine."""

    def __init__(self, engine: Ref[Engine]) -> None:
        """`engine` is the machine's own."""
        self._engine = engine
        self._lodgers: dict[str, _Lodger] = {}
        self._memberships: dict[Monitor, Pid] = {}
        self._nudged = -_AGAIN

    async def init(self) -> None:
        """Have the machine join, and hear of the nodes that were not started here."""
        self._me: Ref[Landlord] = Ref(self_pid())
        self._machine, self._system = await self._engine.within(None).call(Engine.take_guests, self._me)
        log.info("machine %s takes nodes", self._machine)

    # --- for applications

    def enlist(self, other: Machine, membership: Pid) -> tuple[Pid, Machine, str]:
        """An application wants to place nodes here: this landlord, its machine, and that machine's Thespian system. Raises `WrongVersion`."""
        wrong = mismatch(other, self._machine)
        if wrong is not None:
            log.error("%s", wrong)
            raise Reject(WrongVersion(wrong))
        if membership not in self._memberships.values():
            self._memberships[monitor(membership)] = membership
        return self._me.pid, self._machine, self._system

    def reserve(self, name: str, owner: Pid) -> None:
        """Keep a place for that node, which `owner` is told of. Raises `NoRoom`."""
        machine = self._machine
        if name in self._lodgers:
            raise Reject(
                NoRoom(f"machine {machine.name} has a node called {name} already: give each a name of its own")
            )
        if machine.room is not None and len(self._lodgers) >= machine.room:
            raise Reject(NoRoom(f"machine {machine.name} takes {machine.room} nodes, and has as many"))
        lodger = self._lodgers[name] = _Lodger(name, owner, monitor(owner))
        send_after(_PATIENCE, self._me, Due(self._late, (lodger,)))

    def release(self, name: str) -> None:
        """It is not to come after all; if it has, it is ended."""
        lodger = self._lodgers.get(name)
        if lodger is not None:
            self._evict(lodger)

    def rejoin(self) -> None:
        """We are not in the convention any more, as an application sees it, and it can be reached again."""
        now = self._otp_process.node.loop.time()
        again, self._nudged = now - self._nudged < _AGAIN, now
        self._engine.cast(Engine.rejoin, anew=again)

    def lodgers(self) -> dict[str, int]:
        """The nodes that have a place here, with the pids of their processes; 0 of one that has not come yet."""
        return {lodger.name: lodger.os_pid for lodger in self._lodgers.values()}

    # --- what it is told

    def handle_info(self, message: Any) -> None:
        """By the engine, by monitors and by the clock."""
        match message:
            case Born():
                self._born(message)
            case EndHost():
                self._engine.cast(Engine.end_guest, message.name, message.signal)
            case Departed():
                self.release(message.name)
            case Gone():
                lodger = self._lodgers.pop(message.name, None)
                if lodger is not None:
                    demonitor(lodger.watch, flush=True)
                    Ref[Any](lodger.owner).send(Left(message.name, message.status, message.words))
            case Ready():
                self._system = message.system
                for membership in self._memberships.values():
                    Ref[Any](membership).send(Renewed(self._machine.id, message.system))
            case Down():
                self._memberships.pop(message.ref, None)
                for lodger in [each for each in self._lodgers.values() if each.watch is message.ref]:
                    self._evict(lodger)
            case Due():
                message.do(*message.args)
            case _:
                super().handle_info(message)

    def _born(self, born: Born) -> None:
        lodger = self._lodgers.get(born.name)
        if lodger is None:
            log.warning("node %s came without a place, and is ended", born.name)
            self._engine.cast(Engine.end_guest, born.name, signal.SIGKILL)
            return
        lodger.os_pid = born.pid
        Ref[Any](lodger.owner).send(Lodged(born.name, born.pid))

    def _late(self, lodger: _Lodger) -> None:
        if self._lodgers.get(lodger.name) is lodger and not lodger.os_pid:
            self._evict(lodger)

    def _evict(self, lodger: _Lodger) -> None:
        """Its place is gone at once when there is no process; else when that has ended."""
        if lodger.os_pid:
            self._engine.cast(Engine.end_guest, lodger.name, signal.SIGKILL)
        else:
            del self._lodgers[lodger.name]
            demonitor(lodger.watch, flush=True)
