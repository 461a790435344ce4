"""The engine: the process of the application's node that owns the warden, and knows every node that was started through it.

Hosts ask it for processes, and are told how those end; it is told by the warden, by the links, and by the nodes themselves. The first
request has the warden started. When the warden ends, the engine does: waiting callers hear why, the kernel ends everything that is left below, and
the engine's supervisor starts another. A process whose host has gone is ended by it, and one that has fallen silent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.errors import ConfigError
from greenroom.supervision.behaviours.caller import Reject, Stop, later
from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.current import self_pid
from greenroom.supervision.kernel.messages import Crash, Down

from . import bootstrap as boots
from . import daemon_protocol as orders
from . import pids
from .bootstrap import NodeReady, NodeUnfit, Said
from .home_links import key_of_home, links_of_home
from .machines import NODE, SYSTEM, Machine, check_all, fits, here, shown
from .node_records import Charge, Due, Ended, Ending, EngineFailed, NodeFailed, Started
from .peers import NodeDown, NodeUp
from .warden_process import WardenProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.kernel.messages import ExitReason, Pid

    from .machines import Capability
    from .specs import ClusterSettings, NodeSpec

log = logging.getLogger("greenroom.cluster")

_BEGINNING: Final = 30.0
_PING: Final = 2.0
_PATIENCE: Final = 10.0
"""How long the warden may take to answer, before it is taken for hung."""
_STOPPING: Final = 5.0
_UNTOLD: Final = 0.3
"""After the link is gone: how long it may take to be told of the process's end, before the process is ended."""
_TERM: Final = 0.5
_AGAIN: Final = 0.3


class Engine(GenServer):
    """One for each cluster."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, settings: ClusterSettings) -> None:
        """It needs the node's links, and nothing else."""
        self.settings = settings
        self._warden: WardenProcess | None = None
        self._charges: dict[str, Charge] = {}
        self._pings = 0
        self._answered = 0
        self._why = ""
        self.parts: dict[str, int] = {}
        self.port = 0
        self._membership: Ref[Any] | None = None
        self._landlord: Ref[Any] | None = None
        self._joined: dict[str, orders.Joined] = {}
        self._guests: set[str] = set()
        self._system = ""
        self._until_ready: list[tuple[Caller[Any], Callable[[], Any]]] = []

    def init(self) -> None:
        """Nothing is started before it is needed."""
        self._me: Ref[Engine] = Ref(self_pid())
        self._peers = links_of_home()
        self._peers.watch(self._me)
        self._otp_process.await_death(self)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """In order: the warden ends everything, and itself."""
        self._peers.unwatch(self._me)
        warden = self._warden
        if warden is None:
            return
        if not warden.over:
            warden.send(orders.Finish())
            await _within(_STOPPING, warden)
            warden.let_go()
        if not await _within(_STOPPING, warden):
            warden.kill()
            await _within(_STOPPING, warden)

    # --- for hosts

    def start_host(self, host: Pid, name: str, spec: NodeSpec) -> Started:
        """Start a process for that node of `host`; answered when it is ready. Raises `NodeFailed`, `EngineFailed`."""
        if name in self._charges:
            raise Reject(NodeFailed(name, "there is a node of that name already"))
        self._check_place(spec)
        self._begin()
        charge = self._charges[name] = Charge(name, spec, host, monitor(host), self.caller)
        self._later(spec.start_timeout, self._late, charge)
        self._send_out(charge)
        result: Started = later()
        return result

    def end_host(self, name: str) -> Ending:
        """End it: in order, then with SIGTERM, then with SIGKILL. Answered when it has ended, with how."""
        charge = self._charges.get(name)
        if charge is None:
            return Ending(lost=True, asked=True)
        charge.ending.append(self.caller)
        charge.asked = True
        if charge.steward is None:
            self._signal(charge, signal.SIGKILL)
        else:
            Ref(charge.steward).send(boots.LEAVE)
            patience = charge.spec.stop_timeout
            self._later(patience, self._signal, charge, signal.SIGTERM)
            self._later(patience + _TERM, self._signal, charge, signal.SIGKILL)
        result: Ending = later()
        return result

    def running(self) -> dict[str, int]:
        """The pids of the processes that run: the parts of the engine, and the nodes by their names."""
        nodes = {charge.name: charge.pid for charge in self._charges.values() if charge.pid}
        return {**self.parts, **nodes}

    def _begin(self) -> WardenProcess:
        """The warden; it is started when there is none yet."""
        warden = self._warden
        if warden is None:
            warden = self._warden = WardenProcess(self._me.send)
            settings = self.settings
            warden.send(
                orders.Begin(
                    key_of_home(),
                    settings.bind,
                    settings.port or (settings.port_of_leader if self._landlord is None else 0),
                    list(settings.preload),
                    self._here.announcement(),
                    settings.intensity,
                    settings.period,
                    settings.convention or "",
                )
            )
            self.parts = {"warden": warden.pid}
            send_after(_BEGINNING, self._me, Due(self._look_first))
        if warden.over:
            raise EngineFailed("what starts processes has ended just now")
        return warden

    @cached_property
    def _here(self) -> Machine:
        """This machine, as it announces itself."""
        settings = self.settings
        greenroom, python = here()
        return Machine(
            name=settings.machine,
            id=secrets.token_hex(16),
            addresses=tuple(each for each in self._peers.addresses if each.startswith("tcp:")),
            capabilities=check_all(settings.capabilities),
            room=settings.room,
            greenroom=greenroom,
            python=python,
        )

    # --- for the membership, and for the landlord of a machine

    def join(self, membership: Ref[Any]) -> tuple[Machine, list[orders.Joined]]:
        """Be in the convention: this machine, and the others in it. `membership` is told of the others, and asked where nodes go."""
        self._membership = membership
        for charge in self._charges.values():
            if charge.placing:  # the membership that was asked for it before is gone
                self._send_out(charge)
        result: tuple[Machine, list[orders.Joined]] = self._when_ready(
            lambda: (self._here, list(self._joined.values()))
        )
        return result

    def take_guests(self, landlord: Ref[Any]) -> tuple[Machine, str]:
        """Be in the convention, for others: this machine, and its Thespian system. `landlord` is told of their nodes."""
        self._landlord = landlord
        for name in self._guests:  # a former landlord's, which can tell no application of them any more
            self.end_guest(name, signal.SIGKILL)
        result: tuple[Machine, str] = self._when_ready(lambda: (self._here, self._system))
        return result

    def _when_ready(self, answer: Callable[[], Any]) -> Any:
        self._begin()
        if self._system:
            return answer()
        self._until_ready.append((self.caller, answer))
        return later()

    def end_guest(self, name: str, number: int) -> None:
        """Send a signal to the process of another machine's node."""
        self._begin().send(orders.EndHost(name, number))

    def rejoin(self, *, anew: bool) -> None:
        """Register with the convention again; `anew` with another Thespian system."""
        self._begin().send(orders.Rejoin(anew))

    # --- where a node goes
    # A node on another machine is a charge as any other. What is done to its process is done by that machine's landlord, which also tells how it
    # ended; when that machine cannot be reached any more, its nodes are lost.

    def _check_place(self, spec: NodeSpec) -> None:
        """Refuse what is required of other machines when there are none."""
        requires = spec.requires
        if self._membership is None and requires and not fits(self._here.offers, requires):
            raise Reject(
                ConfigError(
                    f"a node requires {shown(requires)}, which this machine has not: {self._here}; to have it placed on "
                    "another one, set `convention` in the cluster's settings"
                )
            )

    def _send_out(self, charge: Charge) -> None:
        """Have its process made: here, unless it requires something."""
        requires = dict(charge.spec.requires)
        if requires and self._membership is not None:
            charge.placing = True
            local = sum(each.landlord is None and not each.placing for each in self._charges.values())
            self._membership.send(orders.Place(charge.name, requires, local))
        else:
            self._make_host(charge, None, {})

    def _make_host(self, charge: Charge, machine: Machine | None, requires: dict[str, Capability]) -> None:
        """Have the warden make its process; on another machine, which `requires` says, that is `machine`."""
        try:
            told = boots.of(charge.name, charge.spec, self.settings, self._peers.addresses, self._me.pid, machine)
            boot = boots.pack(told)
        except ValueError as error:
            charge.why = str(error)
            self._over(charge, Ending(lost=True))
        else:
            self._begin().send(orders.StartHost(charge.name, boot, requires))

    def _placed(self, charge: Charge | None, placed: orders.Placed) -> None:
        landlord: Ref[Any] | None = None if placed.landlord is None else Ref(placed.landlord)
        if charge is None or not charge.placing:  # it was called off
            if landlord is not None:
                landlord.send(orders.Departed(placed.name))
            self._departed(placed.name)
            return
        charge.placing = False
        if landlord is None:
            self._make_host(charge, None, {})
        else:
            charge.landlord, charge.watch_elsewhere = landlord, monitor(landlord)
            self._make_host(charge, placed.machine, {SYSTEM: placed.system})

    def _place_again(self, charge: Charge) -> None:
        """The machine that was to have it has another Thespian system by now, or has none: no process was made."""
        self._let_go(charge)
        self._departed(charge.name)
        charge.placing = True
        self._later(_AGAIN, self._again, charge)

    def _again(self, charge: Charge) -> None:
        if self._charges.get(charge.name) is charge and charge.placing:
            self._send_out(charge)

    def _let_go(self, charge: Charge) -> None:
        """It has no process on another machine, or none any more."""
        if charge.watch_elsewhere is not None:
            demonitor(charge.watch_elsewhere, flush=True)
        if charge.landlord is not None and not charge.pid:
            charge.landlord.send(orders.Departed(charge.name))
        charge.landlord = charge.watch_elsewhere = None

    def _departed(self, name: str) -> None:
        if self._membership is not None:
            self._membership.send(orders.Departed(name))

    # --- what it is told

    def handle_info(self, message: Any) -> Stop | None:
        """By the warden, by nodes, by links, by monitors and by the clock."""
        match message:
            case None:
                return self._warden_ended()
            case orders.Order():
                self._ordered(message)
            case NodeReady() | NodeUnfit() | Said():
                self._heard(message)
            case NodeDown():
                charge = self._charges.get(message.name)
                if charge is not None and not charge.timers:
                    self._later(_UNTOLD, self._silent, charge)
            case orders.Placed() | orders.NotPlaced() | orders.Lodged() | orders.Left():
                self._of_machines(message)
            case Down():
                self._down(message)
            case Due():
                message.do(*message.args)
            case NodeUp():
                pass
            case _:
                return super().handle_info(message)  # type: ignore[return-value]  # it reports, and returns None
        return None

    def _ordered(self, order: orders.Order) -> None:
        """By the warden."""
        match order:
            case orders.Ready():
                self._ready(order)
            case orders.Joined() | orders.Absent():
                if isinstance(order, orders.Joined):
                    self._joined[order.system] = order
                else:
                    self._joined.pop(order.system, None)
                if self._membership is not None:
                    self._membership.send(order)
            case orders.Replaced():
                log.warning(
                    "the Thespian system was replaced in %.0f ms: its %s had ended", order.took * 1000, order.part
                )
                # What became of the nodes that another machine was asked for, and that are not there yet, is not known.
                for charge in tuple(self._charges.values()):
                    if charge.landlord is not None and not charge.pid:
                        self._place_again(charge)
            case orders.Note():
                log.log(order.level, "%s", order.text)
                if order.node in self._charges:
                    self._charges[order.node].words = order.text
            case orders.Failed():
                self._why = order.why
            case orders.Pong():
                self._answered = order.number
            case orders.Born() | orders.Gone() | orders.NotStarted():
                self._of_process(order, self._charges.get(order.name))
            case orders.Sent():
                pass  # its landlord tells of it
            case _:
                log.error("the warden said what it should not: %r", order)

    def _ready(self, ready: orders.Ready) -> None:
        self._system = ready.system
        if self._landlord is not None:
            self._landlord.send(ready)
        waiting, self._until_ready = self._until_ready, []
        for caller, answer in waiting:
            caller.reply(answer())
        if not self.port:
            self._look()
        self.parts, self.port = ready.parts, ready.port
        log.info("processes can be started: %s, at port %d, after %.0f ms", ready.parts, ready.port, ready.took * 1000)

    def _of_process(self, order: orders.Born | orders.Gone | orders.NotStarted, charge: Charge | None) -> None:
        if charge is None:
            if isinstance(order, orders.NotStarted):
                return
            # It is another machine's node, here.
            (self._guests.add if isinstance(order, orders.Born) else self._guests.discard)(order.name)
            if self._landlord is not None:
                self._landlord.send(order)
            return
        match order:
            case orders.Born():
                charge.pid = order.pid
                charge.pidfd = pids.descriptor(order.pid)
                if charge.asked:
                    self._signal(charge, signal.SIGKILL)
            case orders.Gone():
                self._over(charge, charge.ended(order.status, order.words))
            case orders.NotStarted() if charge.landlord is not None:
                self._place_again(charge)
            case orders.NotStarted():
                charge.why = order.why
                self._over(charge, Ending(lost=True))

    def _of_machines(self, message: orders.Placed | orders.NotPlaced | orders.Lodged | orders.Left) -> None:
        """Something that the membership or another machine's landlord tells."""
        charge = self._charges.get(message.name)
        match message:
            case orders.Placed():
                self._placed(charge, message)
            case orders.NotPlaced() if charge is not None:
                if charge.starting is not None:
                    charge.starting.fail(message.error)
                    charge.starting = None
                self._over(charge, Ending(lost=True, asked=True))
            case orders.Lodged() if charge is not None:
                charge.pid = message.os_pid
            case orders.Left() if charge is not None:
                self._over(charge, charge.ended(message.status, message.words))
            case _:
                pass

    def _heard(self, message: NodeReady | NodeUnfit | Said) -> None:
        """By a node."""
        charge = self._charges.get(message.name)
        if charge is None:
            return
        match message:
            case NodeReady():
                charge.steward = message.steward
                if charge.starting is not None:
                    self._forget_timers(charge)
                    caller, charge.starting = charge.starting, None
                    caller.reply(Started(message.os_pid, message.steward))
            case NodeUnfit():
                charge.why = message.why
                if charge.landlord is not None:  # what is on another machine may be other code
                    machine = charge.landlord.pid.node.removeprefix(NODE)
                    charge.why = (
                        f"machine {machine} could not import what it needs; the application's modules have to be installed "
                        f"there, or be where the `--path` of its member program says: {message.why.strip()}"
                    )
                self._signal(charge, signal.SIGKILL)
            case Said():
                for logger, level, line, data in message.lines:
                    extra = {"node": message.name} if data is None else {"node": message.name, "greenroom": data}
                    logging.getLogger(logger).log(level, "%s", line, extra=extra)
                if message.dropped:
                    log.warning("node %s said %d lines more than there was room for", message.name, message.dropped)

    def _down(self, down: Down) -> None:
        """The host of a node has ended, or a machine's landlord: the nodes on that machine are lost, and how they ended is not known."""
        for charge in tuple(self._charges.values()):
            if charge.watch is down.ref:
                charge.asked = True
                self._signal(charge, signal.SIGKILL)
            elif charge.watch_elsewhere is down.ref:
                charge.why = f"its machine was lost: {down.reason}"
                self._over(charge, Ending(lost=True, asked=charge.asked))
                # Should it be there all the same, it ends of that.
                self._peers.disconnect(charge.name, "its machine was lost")

    # --- what it has said to itself, for later

    def _later(self, seconds: float, do: Callable[..., object], charge: Charge, *more: Any) -> None:
        charge.timers.append(send_after(seconds, self._me, Due(do, (charge, *more))))

    def _late(self, charge: Charge) -> None:
        if charge.starting is not None:
            charge.why = f"it was not ready within {charge.spec.start_timeout:g} s"
            self._signal(charge, signal.SIGKILL)

    def _silent(self, charge: Charge) -> None:
        """Its link is gone, and its end was not reported."""
        charge.hung = charge.landlord is not None or not pids.has_ended(charge.pid, charge.pidfd)
        self._signal(charge, signal.SIGKILL)

    def _look_first(self) -> None:
        """Whether the warden has begun, by now."""
        if self._warden is not None and not self.port:
            self._why = f"the warden had not begun after {_BEGINNING:g} s, and was killed"
            self._warden.kill()

    def _look(self) -> None:
        """Whether the warden is there."""
        warden = self._warden
        if warden is None or warden.over:
            return
        if (self._pings - self._answered) * _PING > _PATIENCE:
            self._why = f"the warden did not answer for {_PATIENCE:g} s, and was killed"
            warden.kill()
            return
        self._pings += 1
        warden.send(orders.Ping(self._pings))
        send_after(_PING, self._me, Due(self._look))

    # --- ends

    def _signal(self, charge: Charge, number: int) -> None:
        """To the process: at once where that can be done, and by the warden, which knows whether there is one yet."""
        if self._charges.get(charge.name) is not charge:
            return
        if charge.placing or (charge.landlord is not None and not charge.pid):  # there is no process yet
            self._over(charge, Ending(lost=True, asked=charge.asked))
        elif charge.landlord is not None:
            charge.landlord.send(orders.EndHost(charge.name, number))
        elif charge.pidfd is not None:
            pids.send_signal(number, charge.pid, charge.pidfd)
        elif self._warden is not None:
            self._warden.send(orders.EndHost(charge.name, number))

    def _over(self, charge: Charge, ending: Ending) -> None:
        del self._charges[charge.name]
        self._let_go(charge)
        self._departed(charge.name)
        self._peers.forget(charge.name)
        self._forget_timers(charge)
        self._drop(charge)
        demonitor(charge.watch, flush=True)
        if charge.starting is not None:
            charge.starting.fail(NodeFailed(charge.name, charge.why or f"its process {ending}"))
        else:
            Ref(charge.host).send(Ended(ending))
        for caller in charge.ending:
            caller.reply(ending)

    def _forget_timers(self, charge: Charge) -> None:
        for timer in charge.timers:
            timer.cancel()
        charge.timers.clear()

    def _drop(self, charge: Charge) -> None:
        if charge.pidfd is not None:
            os.close(charge.pidfd)
            charge.pidfd = None

    def _warden_ended(self) -> Stop:
        warden = self._warden
        assert warden is not None
        how = "ended" if warden.status is None else str(Ending.of_status(warden.status))
        why = self._why or f"the warden {how}. {warden.last_words()}".strip()
        return Stop(Crash(EngineFailed(why)))

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """The engine is gone, however it ended, also when that lets it do nothing any more: so is everything below, as far as this node knows."""
        for charge in self._charges.values():
            self._drop(charge)
        if self._warden is not None:
            self._warden.let_go()
            self._warden.last_words()


async def _within(seconds: float, warden: WardenProcess) -> bool:
    try:
        await asyncio.wait_for(warden.ended.wait(), seconds)
    except TimeoutError:
        return False
    return True
