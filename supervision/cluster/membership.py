"""The machines of a cluster as an application knows them: which have joined, which can be reached, and which takes the next node.

Thespian's convention tells which machines have joined. Each of them is dialled, and the link to its machine host shows that it is alive; when the link is lost the
machine counts as lost, and is dialled again each second. A machine takes nodes when it has joined and can be reached. One that can be reached but has dropped out
of the convention, as after a network cut, is told to register again. The engine sends it placement requests; when it dies, the engine waits for its successor.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.task import spawn
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.process_lookup import On, self_pid
from greenroom.supervision.kernel.process_messages import NO_CONNECTION, Down

from .daemon_protocol import (
    MACHINE_HOST,
    MachineAbsent,
    MachineJoined,
    NodePlaced,
    NodeReleased,
    PlacementFailed,
    PlacementRequest,
    SystemRenewed,
)
from .home_links import links_of_home
from .machine_host import MachineHost
from .machines import Candidate, Machine, MachineDown, MachineUp, NothingFits, choose_machine, version_mismatch
from .node_engine import NodeEngine
from .node_records import ScheduledCall
from .peers import NodeDown, NodeUp

if TYPE_CHECKING:
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.process_messages import Pid

    from .peers import Peers

log = logging.getLogger("greenroom.cluster")

RETRY: Final = 1.0
"""How often an unreachable machine is dialled, and one outside the convention is told to register."""
_DIALLING: Final = 3.0
_ASKING: Final = 5.0
_FORGOTTEN: Final = 600.0
"""How long a machine that has left the convention is still dialled."""


@dataclass(eq=False, slots=True)
class _KnownMachine:
    """One run of a machine's member program."""

    machine: Machine
    system: str = ""
    """Its Thespian system, as it says itself or as the convention last said."""
    machine_host: Ref[MachineHost] | None = None
    watch: Monitor | None = None
    up: bool = False
    dialling: bool = False
    absent_since: float = 0.0
    last_problem: str = ""
    nodes: set[str] = field(default_factory=set[str])


@dataclass(eq=False, slots=True)
class _PendingPlacement:
    """A node that is being placed, and the machines that have refused it, each with the reason."""

    place: PlacementRequest
    refused: dict[str, str] = field(default_factory=dict[str, str])


class ClusterMembership(GenServer):
    """One per application that has joined a convention."""

    def __init__(self, engine: Ref[NodeEngine]) -> None:
        """`engine` is the application's own."""
        self._engine = engine
        self._known: dict[str, _KnownMachine] = {}
        self._systems: set[str] = set()
        self._placements: dict[str, _PendingPlacement] = {}
        self._watchers: dict[Ref[Any], None] = {}

    async def init(self) -> None:
        """Have the engine join the convention, and get its members."""
        self._me: Ref[ClusterMembership] = Ref(self_pid())
        self._peers: Peers = links_of_home()
        self._peers.watch(self._me)
        self._here, joined = await self._engine.within(30.0).call(NodeEngine.join, self._me)
        self._otp_process.add_exit_waiter(self)
        for each in joined:
            self._joined(each)

    def on_exit(self, reason: object) -> None:  # noqa: ARG002 - whatever it is
        """Stop watching the links, however the process ended."""
        self._peers.unwatch(self._me)

    # --- called by the application

    def machines(self) -> list[Machine]:
        """The machines that take nodes, without the application's own."""
        return [known.machine for known in self._known.values() if self._takes_nodes(known)]

    def here(self) -> Machine:
        """The application's own machine."""
        return self._here

    def watch(self, who: Ref[Any]) -> None:
        """Send `who` a `MachineUp` and a `MachineDown` for each change from now on."""
        self._watchers[who] = None

    def unwatch(self, who: Ref[Any]) -> None:
        """Stop sending to `who`."""
        self._watchers.pop(who, None)

    # --- messages

    def handle_info(self, message: Any) -> None:
        """Dispatch a message of the engine, the links, its own tasks or a timer."""
        match message:
            case MachineJoined():
                self._joined(message)
            case MachineAbsent():
                self._systems.discard(message.system)
                known = self._known.get(message.id)
                if known is not None and known.system == message.system:
                    known.absent_since = self._now()
                    self._settle(known)
            case SystemRenewed():
                for known in [each for each in self._known.values() if each.machine.id == message.id]:
                    known.system = message.system
                    self._settle(known)
            case NodeDown():
                for known in [each for each in self._known.values() if each.machine.node == message.name]:
                    self._lost(known, message.why)
            case Down(reason=reason) if reason != NO_CONNECTION:  # NodeDown comes as well, and says more of a lost link
                for known in [each for each in self._known.values() if each.watch is message.ref]:
                    self._lost(known, f"its machine host has ended: {reason}")
            case Down() | NodeUp():
                pass
            case PlacementRequest():
                placement = self._placements[message.name] = _PendingPlacement(message)
                self._place(placement)
            case NodeReleased():
                self._departed(message.name)
            case ScheduledCall():
                message.do(*message.args)
            case _:
                super().handle_info(message)

    def _takes_nodes(self, known: _KnownMachine) -> bool:
        return known.up and known.system in self._systems

    # --- joining and leaving

    def _now(self) -> float:
        return self._otp_process.node.loop.time()

    def _joined(self, joined: MachineJoined) -> None:
        machine = Machine.announced(joined.id, joined.announcement)
        if machine is None or machine.id == self._here.id:
            return
        known = self._known.get(machine.id)
        if known is None:
            for old in [each for each in self._known.values() if each.machine.name == machine.name and not each.up]:
                del self._known[old.machine.id]
            known = self._known[machine.id] = _KnownMachine(machine)
        self._systems.add(joined.system)
        if known.machine_host is None or not known.system:  # else it says so itself
            known.system = joined.system
        wrong = version_mismatch(machine, self._here)
        if wrong is not None and not known.last_problem:
            known.last_problem = wrong
            log.error("%s", wrong)  # it is dialled all the same, so that it hears of it too
        self._settle(known)

    def _settle(self, known: _KnownMachine) -> None:
        """Bring a machine to what it should be: reachable, and in the convention."""
        if self._known.get(known.machine.id) is not known:
            return
        if known.machine_host is None:
            if not known.dialling:
                self._dial(known)
        elif known.system not in self._systems:
            if not known.dialling:
                self._later(known)
                known.machine_host.cast(MachineHost.rejoin)
        elif not known.up:
            known.up = True
            log.info("machine %s has joined", known.machine)
            self._notify(MachineUp(known.machine.name, dict(known.machine.capabilities)))

    def _later(self, known: _KnownMachine) -> None:
        known.dialling = True
        send_after(RETRY, self._me, ScheduledCall(self._again, (known,)))

    def _again(self, known: _KnownMachine) -> None:
        known.dialling = False
        self._settle(known)

    def _dial(self, known: _KnownMachine) -> None:
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

    async def _reach(self, known: _KnownMachine) -> None:
        """In a process of its own: dial the machine, and call its machine host."""
        machine, peers = known.machine, self._peers
        try:
            if machine.node not in peers.connected:
                await peers.connect(machine.addresses, timeout=_DIALLING)
            machine_host: Ref[MachineHost] = Ref(On(MACHINE_HOST, machine.node), _ASKING)
            pid, found, system = await machine_host.call(MachineHost.register_application, self._here, self._me.pid)
            if found.id == machine.id:
                self._me.send(ScheduledCall(self._on_reached, (known, pid, system)))
                return
            why, level = f"machine {machine.name} has started anew", logging.WARNING
        except ActorError as error:
            why = f"machine {machine.name} cannot be used: {error}"
            level = logging.ERROR if machine.node in peers.connected else logging.WARNING
        self._me.send(ScheduledCall(self._on_unreached, (known, why, level)))

    def _on_unreached(self, known: _KnownMachine, why: str, level: int) -> None:
        known.dialling = False
        if why != known.last_problem:
            known.last_problem = why
            log.log(level, "%s", why)
        self._later(known)

    def _twins(self, known: _KnownMachine, twin: _KnownMachine) -> None:
        if not known.last_problem:
            known.last_problem = "twin"
            log.error(
                "two machines are called %s (at %s and %s), and only the first is used: give each a name of its own",
                known.machine.name,
                ", ".join(twin.machine.addresses),
                ", ".join(known.machine.addresses),
            )
        self._later(known)

    def _on_reached(self, known: _KnownMachine, machine_host: Pid, system: str) -> None:
        known.dialling = False
        if self._known.get(known.machine.id) is not known:
            return
        known.system = system
        known.machine_host = Ref(machine_host, _ASKING)
        known.watch = monitor(machine_host)
        known.last_problem = ""
        self._settle(known)

    def _lost(self, known: _KnownMachine, why: str) -> None:
        if known.watch is not None:
            demonitor(known.watch, flush=True)
        known.machine_host = known.watch = None
        if known.up:
            known.up = False
            log.warning("machine %s is lost: %s", known.machine.name, why)
            self._notify(MachineDown(known.machine.name, why))
        if not known.dialling:
            self._later(known)

    def _notify(self, event: MachineUp | MachineDown) -> None:
        for who in tuple(self._watchers):
            if not who.send(event):
                self._watchers.pop(who, None)

    # --- placement

    def _place(self, placement: _PendingPlacement) -> None:
        """Choose a machine, and ask its machine host for a place."""
        there = [
            Candidate(known.machine, len(known.nodes))
            for known in self._known.values()
            if self._takes_nodes(known) and known.machine.id not in placement.refused
        ]
        try:
            machine = choose_machine(placement.place.requires, [Candidate(self._here, placement.place.local), *there])
        except NothingFits as error:
            self._refuse(placement, error)
            return
        known = self._known.get(machine.id)
        if known is None or known.machine_host is None:
            del self._placements[placement.place.name]
            self._engine.send(NodePlaced(placement.place.name, machine, "", None))
            return
        known.nodes.add(placement.place.name)
        spawn(self._reserve, known, known.machine_host, placement, self._engine.pid)

    async def _reserve(
        self, known: _KnownMachine, machine_host: Ref[MachineHost], placement: _PendingPlacement, engine: Pid
    ) -> None:
        """In a process of its own: call the machine host."""
        refusal: str | None = None
        try:
            await machine_host.call(MachineHost.reserve, placement.place.name, engine)
        except ActorError as error:
            refusal = str(error)
        self._me.send(ScheduledCall(self._on_reserved, (known, placement, refusal)))

    def _refuse(self, placement: _PendingPlacement, error: NothingFits) -> None:
        del self._placements[placement.place.name]
        refusals = tuple(placement.refused.values())
        if refusals:
            error = NothingFits(error.requires, (*error.there, *refusals), full=True)
        self._engine.send(PlacementFailed(placement.place.name, error))

    def _on_reserved(self, known: _KnownMachine, placement: _PendingPlacement, refusal: str | None) -> None:
        name, machine_host = placement.place.name, known.machine_host
        if self._placements.get(name) is not placement:  # it was cancelled
            known.nodes.discard(name)
            if refusal is None and machine_host is not None:
                machine_host.cast(MachineHost.release, name)
        elif refusal is not None or machine_host is None:
            known.nodes.discard(name)
            placement.refused[known.machine.id] = refusal or f"{known.machine.name} was lost just now"
            self._place(placement)
        else:
            del self._placements[name]
            self._engine.send(NodePlaced(name, known.machine, known.system, machine_host.pid))

    def _departed(self, name: str) -> None:
        self._placements.pop(name, None)
        for known in self._known.values():
            known.nodes.discard(name)
