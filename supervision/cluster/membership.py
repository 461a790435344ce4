"""The machines of a cluster, as an application sees them: which have joined, which can be reached, and which takes the next node.

Thespian's convention says which have joined. Each of those is dialled, and the link to its landlord says that it lives: when that is
lost the machine is, and it is dialled again each second. A machine takes nodes when both hold; one that can be reached and is not in the
convention any more, as after a link was cut, is told to register anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.task import spawn
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.current import On, self_pid
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.messages import NO_CONNECTION, Down

from .daemon_protocol import LANDLORD, Absent, Departed, Joined, NotPlaced, Place, Placed, Renewed
from .engine import Engine
from .home_links import links_of_home
from .landlord import Landlord
from .machines import Candidate, Machine, MachineDown, MachineUp, NothingFits, choose, mismatch
from .node_records import Due
from .peers import NodeDown, NodeUp

if TYPE_CHECKING:
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.messages import Pid

    from .peers import Peers

log = logging.getLogger("greenroom.cluster")

AGAIN: Final = 1.0
"""How often a machine that cannot be reached is dialled, and one that is not in the convention is told to register."""
_DIALLING: Final = 3.0
_ASKING: Final = 5.0
_FORGOTTEN: Final = 600.0
"""How long a machine is dialled that has left the convention."""


@dataclass(eq=False, slots=True)
class _Known:
    """One run of a machine's member program."""

    machine: Machine
    system: str = ""
    """The Thespian system that it has, as it says itself, or as the convention last said."""
    landlord: Ref[Landlord] | None = None
    watch: Monitor | None = None
    up: bool = False
    dialling: bool = False
    absent_since: float = 0.0
    said: str = ""
    nodes: set[str] = field(default_factory=set[str])


@dataclass(eq=False, slots=True)
class _Wanted:
    """A node that is being placed: which machines do not take it, and why."""

    place: Place
    refused: dict[str, str] = field(default_factory=dict[str, str])


class Membership(GenServer):
    """One for each application that has joined a convention."""

    def __init__(self, engine: Ref[Engine]) -> None:
        """`engine` is the application's own."""
        self._engine = engine
        self._known: dict[str, _Known] = {}
        self._systems: set[str] = set()
        self._wanted: dict[str, _Wanted] = {}
        self._watchers: dict[Ref[Any], None] = {}

    async def init(self) -> None:
        """Have the engine join, and hear which machines have."""
        self._me: Ref[Membership] = Ref(self_pid())
        self._peers: Peers = links_of_home()
        self._peers.watch(self._me)
        self._here, joined = await self._engine.within(30.0).call(Engine.join, self._me)
        self._otp_process.await_death(self)
        for each in joined:
            self._joined(each)

    def exited(self, reason: object) -> None:  # noqa: ARG002 - whatever it is
        """The process is gone, however it ended: nothing is sent to it any more."""
        self._peers.unwatch(self._me)

    # --- for others

    def machines(self) -> list[Machine]:
        """Those that take nodes, besides the application's own."""
        return [known.machine for known in self._known.values() if self._takes_nodes(known)]

    def here(self) -> Machine:
        """The application's own."""
        return self._here

    def watch(self, who: Ref[Any]) -> None:
        """Send `who` a `MachineUp` and a `MachineDown` for each from now on."""
        self._watchers[who] = None

    def unwatch(self, who: Ref[Any]) -> None:
        """No more."""
        self._watchers.pop(who, None)

    # --- what it is told

    def handle_info(self, message: Any) -> None:
        """By the engine, by links, by its own errands and by the clock."""
        match message:
            case Joined():
                self._joined(message)
            case Absent():
                self._systems.discard(message.system)
                known = self._known.get(message.id)
                if known is not None and known.system == message.system:
                    known.absent_since = self._now()
                    self._settle(known)
            case Renewed():
                for known in [each for each in self._known.values() if each.machine.id == message.id]:
                    known.system = message.system
                    self._settle(known)
            case NodeDown():
                for known in [each for each in self._known.values() if each.machine.node == message.name]:
                    self._lost(known, message.why)
            case Down(reason=reason) if reason != NO_CONNECTION:  # of a lost link, NodeDown tells more
                for known in [each for each in self._known.values() if each.watch is message.ref]:
                    self._lost(known, f"its landlord has ended: {reason}")
            case Down() | NodeUp():
                pass
            case Place():
                wanted = self._wanted[message.name] = _Wanted(message)
                self._place(wanted)
            case Departed():
                self._departed(message.name)
            case Due():
                message.do(*message.args)
            case _:
                super().handle_info(message)

    def _takes_nodes(self, known: _Known) -> bool:
        return known.up and known.system in self._systems

    # --- coming and going

    def _now(self) -> float:
        return self._otp_process.node.loop.time()

    def _joined(self, order: Joined) -> None:
        machine = Machine.announced(order.id, order.announcement)
        if machine is None or machine.id == self._here.id:
            return
        known = self._known.get(machine.id)
        if known is None:
            for old in [each for each in self._known.values() if each.machine.name == machine.name and not each.up]:
                del self._known[old.machine.id]
            known = self._known[machine.id] = _Known(machine)
        self._systems.add(order.system)
        if known.landlord is None or not known.system:  # else it says so itself
            known.system = order.system
        wrong = mismatch(machine, self._here)
        if wrong is not None and not known.said:
            known.said = wrong
            log.error("%s", wrong)  # it is dialled all the same, so that it hears of it too
        self._settle(known)

    def _settle(self, known: _Known) -> None:
        """See to it that what should hold will: that it can be reached, and is in the convention."""
        if self._known.get(known.machine.id) is not known:
            return
        if known.landlord is None:
            if not known.dialling:
                self._dial(known)
        elif known.system not in self._systems:
            if not known.dialling:
                self._later(known)
                known.landlord.cast(Landlord.rejoin)
        elif not known.up:
            known.up = True
            log.info("machine %s has joined", known.machine)
            self._tell(MachineUp(known.machine.name, dict(known.machine.capabilities)))

    def _later(self, known: _Known) -> None:
        known.dialling = True
        send_after(AGAIN, self._me, Due(self._again, (known,)))

    def _again(self, known: _Known) -> None:
        known.dialling = False
        self._settle(known)

    def _dial(self, known: _Known) -> None:
        machine = known.machine
        if known.system not in self._systems and self._now() - known.absent_since > _FORGOTTEN:
            del self._known[machine.id]
            self._peers.forget(machine.node)
            return
        twin = next((each for each in self._known.values() if each.up and each.machine.name == machine.name), None)
        if twin is not None:
            self._twins(known, twin)
            return
        known.dialling = True
        self._peers.introduce(machine.node, machine.addresses)
        spawn(self._reach, known)

    async def _reach(self, known: _Known) -> None:
        """In a process of its own: dial the machine, and ask its landlord."""
        machine, peers = known.machine, self._peers
        try:
            if machine.node not in peers.connected:
                await peers.connect(machine.addresses, timeout=_DIALLING)
            landlord: Ref[Landlord] = Ref(On(LANDLORD, machine.node), _ASKING)
            pid, found, system = await landlord.call(Landlord.enlist, self._here, self._me.pid)
            if found.id == machine.id:
                self._me.send(Due(self._reached, (known, pid, system)))
                return
            why, level = f"machine {machine.name} has started anew", logging.WARNING
        except ActorError as error:
            why = f"machine {machine.name} cannot be used: {error}"
            level = logging.ERROR if machine.node in peers.connected else logging.WARNING
        self._me.send(Due(self._unreached, (known, why, level)))

    def _unreached(self, known: _Known, why: str, level: int) -> None:
        known.dialling = False
        if why != known.said:
            known.said = why
            log.log(level, "%s", why)
        self._later(known)

    def _twins(self, known: _Known, twin: _Known) -> None:
        if not known.said:
            known.said = "twin"
            log.error(
                "two machines are called %s (at %s and %s), and only the first is used: give each a name of its own",
                known.machine.name,
                ", ".join(twin.machine.addresses),
                ", ".join(known.machine.addresses),
            )
        self._later(known)

    def _reached(self, known: _Known, landlord: Pid, system: str) -> None:
        known.dialling = False
        if self._known.get(known.machine.id) is not known:
            return
        known.system = system
        known.landlord = Ref(landlord, _ASKING)
        known.watch = monitor(landlord)
        known.said = ""
        self._settle(known)

    def _lost(self, known: _Known, why: str) -> None:
        if known.watch is not None:
            demonitor(known.watch, flush=True)
        known.landlord = known.watch = None
        if known.up:
            known.up = False
            log.warning("machine %s is lost: %s", known.machine.name, why)
            self._tell(MachineDown(known.machine.name, why))
        if not known.dialling:
            self._later(known)

    def _tell(self, event: MachineUp | MachineDown) -> None:
        for who in tuple(self._watchers):
            if not who.send(event):
                self._watchers.pop(who, None)

    # --- placing

    def _place(self, wanted: _Wanted) -> None:
        """Choose, and ask that machine's landlord for a place."""
        there = [
            Candidate(known.machine, len(known.nodes))
            for known in self._known.values()
            if self._takes_nodes(known) and known.machine.id not in wanted.refused
        ]
        try:
            machine = choose(wanted.place.requires, [Candidate(self._here, wanted.place.local), *there])
        except NothingFits as error:
            self._refuse(wanted, error)
            return
        known = self._known.get(machine.id)
        if known is None or known.landlord is None:
            del self._wanted[wanted.place.name]
            self._engine.send(Placed(wanted.place.name, machine, "", None))
            return
        known.nodes.add(wanted.place.name)
        spawn(self._keep, known, known.landlord, wanted, self._engine.pid)

    async def _keep(self, known: _Known, landlord: Ref[Landlord], wanted: _Wanted, engine: Pid) -> None:
        """In a process of its own: ask that landlord."""
        refusal: str | None = None
        try:
            await landlord.call(Landlord.reserve, wanted.place.name, engine)
        except ActorError as error:
            refusal = str(error)
        self._me.send(Due(self._kept, (known, wanted, refusal)))

    def _refuse(self, wanted: _Wanted, error: NothingFits) -> None:
        del self._wanted[wanted.place.name]
        refusals = tuple(wanted.refused.values())
        if refusals:
            error = NothingFits(error.requires, (*error.there, *refusals), full=True)
        self._engine.send(NotPlaced(wanted.place.name, error))

    def _kept(self, known: _Known, wanted: _Wanted, refusal: str | None) -> None:
        name, landlord = wanted.place.name, known.landlord
        if self._wanted.get(name) is not wanted:  # it was called off
            known.nodes.discard(name)
            if refusal is None and landlord is not None:
                landlord.cast(Landlord.release, name)
        elif refusal is not None or landlord is None:
            known.nodes.discard(name)
            wanted.refused[known.machine.id] = refusal or f"{known.machine.name} was lost just now"
            self._place(wanted)
        else:
            del self._wanted[name]
            self._engine.send(Placed(name, known.machine, known.system, landlord.pid))

    def _departed(self, name: str) -> None:
        self._wanted.pop(name, None)
        for known in self._known.values():
            known.nodes.discard(name)
