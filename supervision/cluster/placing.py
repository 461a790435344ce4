"""The engine's dealings with other machines: where a node goes that requires something, and who comes here from elsewhere.

A node on another machine is a charge of the engine as any other. What is done to its process is done by that machine's landlord, who also
tells how it ended; when that machine cannot be reached any more, its nodes are lost.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom.errors import ConfigError
from greenroom.supervision.behaviours.actions import Reject
from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer

from .endings import Ending
from .lodging import Departed, Left, Lodged, NotPlaced, Place, Placed
from .machines import ID, NODE, Machine, check_all, fits, here, shown
from .orders import Absent, Born, EndHost, Gone, Joined, Order, Rejoin, StartHost

if TYPE_CHECKING:
    from .charges import Charge
    from .peers import NodeDown, Peers
    from .specs import ClusterSettings, NodeSpec
    from .warden_process import WardenProcess

Told: TypeAlias = Placed | NotPlaced | Lodged | Left


class Placing(GenServer):
    """What of the engine knows that there are other machines."""

    settings: ClusterSettings
    _peers: Peers
    _charges: dict[str, Charge]

    def __init__(self) -> None:
        """It is alone."""
        self._membership: Ref[Any] | None = None
        self._landlord: Ref[Any] | None = None
        self._joined: dict[str, Joined] = {}
        self._machine: Machine | None = None

    @abstractmethod
    def _begin(self) -> WardenProcess:
        """The warden; it is started when there is none yet."""

    @abstractmethod
    def _boot_of(self, charge: Charge, machine: Machine | None) -> bytes:
        """What its process is to be told; `machine` when that is not this one."""

    @abstractmethod
    def _over(self, charge: Charge, ending: Ending) -> None:
        """It has ended."""

    def _here(self) -> Machine:
        """This machine, as it announces itself."""
        if self._machine is None:
            settings = self.settings
            greenroom, python = here()
            self._machine = Machine(
                name=settings.machine,
                id=secrets.token_hex(16),
                addresses=tuple(each for each in self._peers.addresses if each.startswith("tcp:")),
                capabilities=check_all(settings.capabilities),
                room=settings.room,
                greenroom=greenroom,
                python=python,
            )
        return self._machine

    # --- for the membership, and for the landlord of a machine

    def join(self, membership: Ref[Any]) -> tuple[Machine, list[Joined]]:
        """Be in the convention: who we are, and who else is. `membership` is told of the others, and asked where nodes go."""
        self._membership = membership
        self._begin()
        for charge in self._charges.values():
            if charge.placing:  # whoever was asked for it before is gone
                self._send_out(charge)
        return self._here(), list(self._joined.values())

    def take_guests(self, landlord: Ref[Any]) -> Machine:
        """Be in the convention, for others: `landlord` is told of their nodes."""
        self._landlord = landlord
        self._begin()
        return self._here()

    def end_guest(self, name: str, number: int) -> None:
        """Send a signal to the process of another machine's node."""
        self._begin().send(EndHost(name, number))

    def rejoin(self, *, anew: bool) -> None:
        """Register with the convention again; `anew` with another Thespian system."""
        self._begin().send(Rejoin(anew))

    # --- where a node goes

    def _check_place(self, spec: NodeSpec) -> None:
        """Refuse what is required of other machines when there are none."""
        requires = spec.requires
        if self._membership is None and requires and not fits(self._here().offers, requires):
            raise Reject(
                ConfigError(
                    f"a node requires {shown(requires)}, which this machine has not: {self._here()}; to have it placed on "
                    "another one, set `convention` in the cluster's settings"
                )
            )

    def _send_out(self, charge: Charge) -> None:
        """Have its process made: here, unless it requires something."""
        requires = dict(charge.spec.requires)
        if requires and self._membership is not None:
            charge.placing = True
            local = sum(each.landlord is None and not each.placing for each in self._charges.values())
            self._membership.send(Place(charge.name, requires, local))
        else:
            self._start_here(charge)

    def _call_off(self, charge: Charge) -> None:
        """It is not wanted any more, or took too long, and there is no process yet."""
        if charge.landlord is not None:
            charge.landlord.send(Departed(charge.name))
        self._over(charge, Ending(lost=True, asked=charge.asked))

    def _start_here(self, charge: Charge) -> None:
        self._begin().send(StartHost(charge.name, self._boot_of(charge, None), {}))

    def _of_machines(self, message: Told) -> None:
        """Something that the membership or another machine's landlord tells."""
        charge = self._charges.get(message.name)
        match message:
            case Placed(landlord=landlord, machine=machine):
                self._placed(charge, message.name, machine, None if landlord is None else Ref(landlord))
            case NotPlaced() if charge is not None:
                if charge.starting is not None:
                    charge.starting.fail(message.error)
                    charge.starting = None
                self._over(charge, Ending(lost=True, asked=True))
            case Lodged() if charge is not None:
                charge.pid = message.os_pid
            case Left() if charge is not None:
                self._over(charge, charge.ended(message.status, message.words))
            case _:
                pass

    def _placed(self, charge: Charge | None, name: str, machine: Machine, landlord: Ref[Any] | None) -> None:
        if charge is None or not charge.placing:  # it was called off
            if landlord is not None:
                landlord.send(Departed(name))
            self._departed(name)
            return
        charge.placing = False
        if landlord is None:
            self._start_here(charge)
        else:
            charge.landlord = landlord
            self._begin().send(StartHost(name, self._boot_of(charge, machine), {ID: machine.id}))

    def _unfit(self, charge: Charge, why: str) -> str:
        """Why its process cannot be the node: on another machine, what is there may be other code."""
        if charge.landlord is None:
            return why
        machine = charge.landlord.pid.node.removeprefix(NODE)
        return (
            f"machine {machine} could not import what it needs; the application's modules have to be installed there, or be where "
            f"the `--path` of its member program says: {why.strip()}"
        )

    def _departed(self, name: str) -> None:
        if self._membership is not None:
            self._membership.send(Departed(name))

    def _machine_lost(self, down: NodeDown) -> None:
        """Whoever was there is lost, and nobody can tell how."""
        if down.name.startswith(NODE):
            for charge in tuple(self._charges.values()):
                if charge.landlord is not None and charge.landlord.pid.node == down.name:
                    charge.why = f"its machine was lost: {down.why}"
                    self._over(charge, Ending(lost=True, asked=charge.asked))
                    self._peers.disconnect(
                        charge.name, "its machine was lost"
                    )  # should it be there all the same, it ends of that

    # --- what the warden tells of others

    def _of_others(self, order: Order) -> bool:
        """Whether this is about other machines, or their nodes here."""
        match order:
            case Joined():
                self._joined[order.id] = order
            case Absent():
                self._joined.pop(order.id, None)
            case Born() | Gone() if order.name not in self._charges:
                if self._landlord is not None:
                    self._landlord.send(order)
                return True
            case _:
                return False
        if self._membership is not None:
            self._membership.send(order)
        return True

    def _fail_unsent(self) -> None:
        """Of those that another machine was asked for and that are not there yet nobody knows what became, when Thespian is replaced."""
        for charge in tuple(self._charges.values()):
            if charge.landlord is not None and not charge.pid:
                charge.why = "the Thespian system that was to ask another machine for it has ended"
                self._call_off(charge)
