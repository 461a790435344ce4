"""The engine's dealings with other machines: where a node goes that requires something, and who comes here from elsewhere.

A node on another machine is a charge of the engine as any other. What is done to its process is done by that machine's landlord, who also
tells how it ended; when that machine cannot be reached any more, its nodes are lost.
"""

from __future__ import annotations

import secrets
import signal
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.errors import ConfigError
from greenroom.supervision.behaviours.actions import Reject, later
from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.kernel.api import demonitor, monitor, send_after

from .charges import Again
from .endings import Ending
from .lodging import Departed, Left, Lodged, NotPlaced, Place, Placed
from .machines import NODE, SYSTEM, Machine, check_all, fits, here, shown
from .orders import Absent, Born, EndHost, Gone, Joined, NotStarted, Order, Ready, Rejoin, StartHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.kernel.messages import Down

    from .charges import Charge
    from .peers import Peers
    from .specs import ClusterSettings, NodeSpec
    from .warden_process import WardenProcess

_AGAIN: Final = 0.3

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
        self._guests: set[str] = set()
        self._system = ""
        self._until_ready: list[tuple[Caller[Any], Callable[[], Any]]] = []

    @abstractmethod
    def _begin(self) -> WardenProcess:
        """The warden; it is started when there is none yet."""

    @abstractmethod
    def _boot_of(self, charge: Charge, machine: Machine | None) -> bytes:
        """What its process is to be told; `machine` when that is not this one. Raises `ValueError`."""

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
        for charge in self._charges.values():
            if charge.placing:  # whoever was asked for it before is gone
                self._send_out(charge)
        result: tuple[Machine, list[Joined]] = self._when_ready(lambda: (self._here(), list(self._joined.values())))
        return result

    def take_guests(self, landlord: Ref[Any]) -> tuple[Machine, str]:
        """Be in the convention, for others, with what Thespian system: `landlord` is told of their nodes."""
        self._landlord = landlord
        for name in self._guests:  # a former landlord's, who can tell nobody of them any more
            self.end_guest(name, signal.SIGKILL)
        result: tuple[Machine, str] = self._when_ready(lambda: (self._here(), self._system))
        return result

    def _when_ready(self, answer: Callable[[], Any]) -> Any:
        self._begin()
        if self._system:
            return answer()
        self._until_ready.append((self.caller, answer))
        return later()

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
        self._over(charge, Ending(lost=True, asked=charge.asked))

    def _start_here(self, charge: Charge) -> None:
        self._make_host(charge, None, {})

    def _make_host(
        self, charge: Charge, machine: Machine | None, requires: dict[str, str | int | float | bool]
    ) -> None:
        try:
            boot = self._boot_of(charge, machine)
        except ValueError as error:
            charge.why = str(error)
            self._over(charge, Ending(lost=True))
        else:
            self._begin().send(StartHost(charge.name, boot, requires))

    def _of_machines(self, message: Told) -> None:
        """Something that the membership or another machine's landlord tells."""
        charge = self._charges.get(message.name)
        match message:
            case Placed():
                self._placed(charge, message)
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

    def _placed(self, charge: Charge | None, placed: Placed) -> None:
        landlord: Ref[Any] | None = None if placed.landlord is None else Ref(placed.landlord)
        if charge is None or not charge.placing:  # it was called off
            if landlord is not None:
                landlord.send(Departed(placed.name))
            self._departed(placed.name)
            return
        charge.placing = False
        if landlord is None:
            self._start_here(charge)
        else:
            charge.landlord, charge.watch_elsewhere = landlord, monitor(landlord)
            self._make_host(charge, placed.machine, {SYSTEM: placed.system})

    def _place_again(self, charge: Charge) -> None:
        """The machine that was to have it has another Thespian system by now, or has none: no process was made."""
        self._let_go(charge)
        self._departed(charge.name)
        charge.placing = True
        charge.timers.append(send_after(_AGAIN, self._otp_process.pid, Again(charge)))

    def _let_go(self, charge: Charge) -> None:
        """It has no process on another machine, or none any more."""
        if charge.watch_elsewhere is not None:
            demonitor(charge.watch_elsewhere, flush=True)
        if charge.landlord is not None and not charge.pid:
            charge.landlord.send(Departed(charge.name))
        charge.landlord = charge.watch_elsewhere = None

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

    def _landlord_lost(self, down: Down) -> bool:
        """Whether this was one; whoever was on its machine is lost, and nobody can tell how."""
        lost = [charge for charge in self._charges.values() if charge.watch_elsewhere is down.ref]
        for charge in lost:
            charge.why = f"its machine was lost: {down.reason}"
            self._over(charge, Ending(lost=True, asked=charge.asked))
            self._peers.disconnect(
                charge.name, "its machine was lost"
            )  # should it be there all the same, it ends of that
        return bool(lost)

    # --- what the warden tells of others

    def _of_others(self, order: Order) -> bool:
        """Whether this is about other machines, or their nodes here."""
        match order:
            case Joined():
                self._joined[order.system] = order
            case Absent():
                self._joined.pop(order.system, None)
            case NotStarted() if order.name in self._charges and self._charges[order.name].landlord is not None:
                self._place_again(self._charges[order.name])
                return True
            case Born() | Gone() if order.name not in self._charges:
                if isinstance(order, Born):
                    self._guests.add(order.name)
                else:
                    self._guests.discard(order.name)
                if self._landlord is not None:
                    self._landlord.send(order)
                return True
            case Ready():
                self._system = order.system
                if self._landlord is not None:
                    self._landlord.send(order)
                waiting, self._until_ready = self._until_ready, []
                for caller, answer in waiting:
                    caller.reply(answer())
                return False
            case _:
                return False
        if self._membership is not None:
            self._membership.send(order)
        return True

    def _replaced(self) -> None:
        """Of those that another machine was asked for and that are not there yet nobody knows what became: another place is looked for."""
        for charge in tuple(self._charges.values()):
            if charge.landlord is not None and not charge.pid:
                self._place_again(charge)
