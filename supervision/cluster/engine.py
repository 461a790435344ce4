"""The engine: the process of the application's node that owns the warden, and knows every node that was started through it.

Hosts ask it for processes, and are told how those end; it is told by the warden, by the links, and by the nodes themselves. The first who
asks has the warden started. When the warden ends, the engine does: whoever waits hears why, the kernel ends everything that is left below, and
the engine's supervisor starts another. A process whose host has gone is ended by it, and one that has fallen silent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.supervision.behaviours.actions import Stop, later
from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.current import self_pid
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.messages import Down
from greenroom.supervision.kernel.reasons import Crash

from . import boots, pids
from .boots import Boot, NodeReady, NodeUnfit, Said
from .endings import Ending, EngineFailed, NodeFailed
from .home_links import key_of_home, links_of_home
from .orders import (
    Begin,
    Born,
    EndHost,
    Failed,
    Finish,
    Gone,
    Note,
    NotStarted,
    Order,
    Ping,
    Pong,
    Ready,
    Replaced,
    StartHost,
)
from .peers import NodeDown, NodeUp
from .warden_process import WardenProcess

if TYPE_CHECKING:
    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.pid import Pid
    from greenroom.supervision.kernel.reasons import ExitReason

    from .specs import ClusterSettings, NodeSpec

log = logging.getLogger("greenroom.cluster")

_PING: Final = 2.0
_PATIENCE: Final = 10.0
"""How long the warden may take to answer, before it is taken for hung."""
_STOPPING: Final = 5.0
_UNTOLD: Final = 0.3
"""After the link is gone: how long it may take to be told of the process's end, before the process is ended."""
_TERM: Final = 0.5


class Started:
    """What a host learns of its process: its pid, and who ends the node."""

    __slots__ = ("os_pid", "steward")

    def __init__(self, os_pid: int, steward: Pid) -> None:
        """The node is ready."""
        self.os_pid = os_pid
        self.steward = steward


class Ended:
    """To a host: its process has ended, so."""

    __slots__ = ("ending",)

    def __init__(self, ending: Ending) -> None:
        """It is gone."""
        self.ending = ending


class _Charge:
    """A node's process, from the moment when somebody wants it until it has ended."""

    def __init__(self, name: str, spec: NodeSpec, host: Pid, caller: Caller[Any], watch: Monitor) -> None:
        self.name = name
        self.spec = spec
        self.host = host
        self.watch = watch
        self.starting: Caller[Any] | None = caller
        self.ending: list[Caller[Any]] = []
        self.steward: Pid | None = None
        self.pid = 0
        self.pidfd: int | None = None
        self.why = ""
        self.words = ""
        self.hung = False
        self.asked = False
        self.timers: list[Any] = []


class Engine(GenServer):
    """One for each cluster."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, settings: ClusterSettings) -> None:
        """It needs the node's links, and nothing else."""
        self.settings = settings
        self._warden: WardenProcess | None = None
        self._charges: dict[str, _Charge] = {}
        self._pings = 0
        self._answered = 0
        self._why = ""
        self.parts: dict[str, int] = {}
        self.port = 0

    def init(self) -> None:
        """Nothing is started before it is needed."""
        self._me: Ref[Engine] = Ref(self_pid())
        self._peers = links_of_home()
        self._peers.watch(self._me)
        self._otp_process.await_death(_Cut(self))

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """In order: the warden ends everything, and itself."""
        self._peers.unwatch(self._me)
        warden = self._warden
        if warden is None or warden.over:
            return
        warden.send(Finish())
        await _within(_STOPPING, warden)
        warden.let_go()
        if not await _within(_STOPPING, warden):
            warden.kill()
            await _within(_STOPPING, warden)

    # --- for hosts

    def start_host(self, host: Pid, name: str, spec: NodeSpec) -> Started:
        """A process for that node, for whom it is; answered when it is ready. Raises `NodeFailed`, `EngineFailed`."""
        if name in self._charges:
            raise ActorError(f"there is a node called {name} already")
        warden = self._begin()
        charge = self._charges[name] = _Charge(name, spec, host, self.caller, monitor(host))
        charge.timers.append(send_after(spec.start_timeout, self._me, _Late(charge)))
        requires: dict[str, Any] = dict(spec.requires)
        warden.send(StartHost(name, boots.pack(self._boot(name, spec)), requires))
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
            charge.timers.append(send_after(patience, self._me, _Signal(charge, signal.SIGTERM)))
            charge.timers.append(send_after(patience + _TERM, self._me, _Signal(charge, signal.SIGKILL)))
        result: Ending = later()
        return result

    def running(self) -> dict[str, int]:
        """The pids of the processes that run: the parts of the engine, and the nodes by their names."""
        nodes = {charge.name: charge.pid for charge in self._charges.values() if charge.pid}
        return {**self.parts, **nodes}

    def _begin(self) -> WardenProcess:
        warden = self._warden
        if warden is None:
            warden = self._warden = WardenProcess(self._me.send)
            settings = self.settings
            capabilities: dict[str, Any] = dict(settings.capabilities)
            warden.send(
                Begin(
                    key_of_home(),
                    settings.bind,
                    settings.port,
                    list(settings.preload),
                    capabilities,
                    settings.intensity,
                    settings.period,
                )
            )
            self.parts = {"warden": warden.pid}
            send_after(_PING, self._me, _Look())
        if warden.over:
            raise EngineFailed("what starts processes has ended just now")
        return warden

    def _boot(self, name: str, spec: NodeSpec) -> Boot:
        me, settings, main = self._me.pid, self.settings, spec.main
        return Boot(
            name=name,
            home=list(self._peers.addresses),
            engine=(me.node, me.incarnation, me.serial),
            heartbeat=settings.heartbeat,
            misses=settings.misses,
            tcp=settings.tcp,
            memory=spec.limits.memory,
            open_files=spec.limits.open_files,
            path=list(sys.path if spec.path is None else spec.path),
            cwd=os.getcwd() if spec.cwd is None else spec.cwd,  # noqa: PTH109 - a string
            env=dict(spec.env),
            preload=list(spec.preload),
            main_module=None if main is None else main.module,
            main_path=None if main is None else main.path,
            stop_timeout=spec.stop_timeout,
            log_level=logging.getLogger().getEffectiveLevel(),
        )

    # --- what it is told

    def handle_info(self, message: Any) -> Stop | None:
        """By the warden, by nodes, by links, by monitors and by the clock."""
        match message:
            case None:
                return self._warden_ended()
            case Order():
                self._ordered(message)
            case NodeReady() | NodeUnfit() | Said():
                self._heard(message)
            case NodeDown():
                charge = self._charges.get(message.name)
                if charge is not None and not charge.timers:
                    charge.timers.append(send_after(_UNTOLD, self._me, _Silent(charge)))
            case Down():
                for charge in self._charges.values():
                    if charge.watch is message.ref:
                        charge.asked = True
                        self._signal(charge, signal.SIGKILL)
            case _Late() | _Silent() | _Signal() | _Look():
                self._timed(message)
            case NodeUp():
                pass
            case _:
                return super().handle_info(message)  # type: ignore[return-value]  # it reports, and returns None
        return None

    def _ordered(self, order: Order) -> None:
        match order:
            case Ready():
                self.parts, self.port = order.parts, order.port
                log.info(
                    "processes can be started: %s, at port %d, after %.0f ms",
                    order.parts,
                    order.port,
                    order.took * 1000,
                )
            case Replaced():
                log.warning(
                    "the Thespian system was replaced in %.0f ms: its %s had ended", order.took * 1000, order.part
                )
            case Note():
                log.log(order.level, "%s", order.text)
                charge = self._charges.get(order.node)
                if charge is not None:
                    charge.words = order.text
            case Failed():
                self._why = order.why
            case Pong():
                self._answered = order.number
            case Born():
                self._born(order)
            case NotStarted():
                charge = self._charges.get(order.name)
                if charge is not None:
                    charge.why = order.why
                    self._over(charge, Ending(lost=True))
            case Gone():
                charge = self._charges.get(order.name)
                if charge is not None:
                    self._over(charge, self._ending(charge, order))
            case _:
                log.error("the warden said what it should not: %r", order)

    def _born(self, order: Born) -> None:
        charge = self._charges.get(order.name)
        if charge is None:
            return
        charge.pid = order.pid
        charge.pidfd = pids.descriptor(order.pid)
        if charge.asked:
            self._signal(charge, signal.SIGKILL)

    def _heard(self, message: NodeReady | NodeUnfit | Said) -> None:
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
                self._signal(charge, signal.SIGKILL)
            case Said():
                for logger, level, line in message.lines:
                    logging.getLogger(logger).log(level, "%s", line, extra={"node": message.name})
                if message.dropped:
                    log.warning("node %s said %d lines more than there was room for", message.name, message.dropped)

    def _timed(self, message: Any) -> None:
        match message:
            case _Late(charge=charge) if charge.starting is not None:
                charge.why = f"it was not ready within {charge.spec.start_timeout:g} s"
                self._signal(charge, signal.SIGKILL)
            case _Silent(charge=charge):
                charge.hung = not pids.has_ended(charge.pid, charge.pidfd)
                self._signal(charge, signal.SIGKILL)
            case _Signal(charge=charge, number=number):
                self._signal(charge, number)
            case _Look():
                self._look()
            case _:
                pass

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
        warden.send(Ping(self._pings))
        send_after(_PING, self._me, _Look())

    # --- ends

    def _signal(self, charge: _Charge, number: int) -> None:
        """To the process: at once where that can be done, and by the warden, which knows whether there is one yet."""
        if self._charges.get(charge.name) is not charge:
            return
        if charge.pidfd is not None:
            pids.send_signal(number, charge.pid, charge.pidfd)
        elif self._warden is not None:
            self._warden.send(EndHost(charge.name, number))

    def _ending(self, charge: _Charge, order: Gone) -> Ending:
        how = Ending(lost=True) if order.status is None else Ending.of_status(order.status)
        return Ending(
            signal=how.signal,
            code=how.code,
            lost=how.lost,
            hung=charge.hung,
            asked=charge.asked,
            memory=charge.spec.limits.memory,
            words=order.words or charge.words,
        )

    def _over(self, charge: _Charge, ending: Ending) -> None:
        del self._charges[charge.name]
        self._forget_timers(charge)
        self._drop(charge)
        demonitor(charge.watch, flush=True)
        if charge.starting is not None:
            charge.starting.fail(NodeFailed(charge.name, charge.why or f"its process {ending}"))
        else:
            Ref(charge.host).send(Ended(ending))
        for caller in charge.ending:
            caller.reply(ending)

    def _forget_timers(self, charge: _Charge) -> None:
        for timer in charge.timers:
            timer.cancel()
        charge.timers.clear()

    def _drop(self, charge: _Charge) -> None:
        if charge.pidfd is not None:
            os.close(charge.pidfd)
            charge.pidfd = None

    def _warden_ended(self) -> Stop:
        warden = self._warden
        assert warden is not None
        how = "ended" if warden.status is None else str(Ending.of_status(warden.status))
        why = self._why or f"the warden {how}. {warden.last_words()}".strip()
        return Stop(Crash(EngineFailed(why)))

    def cut(self) -> None:
        """The engine is gone, however it ended: so is everything below, as far as this node is concerned."""
        for charge in self._charges.values():
            self._drop(charge)
        if self._warden is not None:
            self._warden.let_go()
            self._warden.last_words()


class _Cut:
    """Told of the engine's end, also of one that lets it do nothing any more."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        self._engine.cut()


class _Timed:
    __slots__ = ("charge", "number")
    __match_args__ = ("charge", "number")

    def __init__(self, charge: _Charge, number: int = 0) -> None:
        self.charge = charge
        self.number = number


class _Late(_Timed):
    """It should be ready by now."""

    __slots__ = ()


class _Silent(_Timed):
    """Its link is gone, and nobody has told of its end."""

    __slots__ = ()


class _Signal(_Timed):
    """It had its time."""

    __slots__ = ()


class _Look:
    """It is time to ask the warden whether it is there."""

    __slots__ = ()


async def _within(seconds: float, warden: WardenProcess) -> bool:
    try:
        await asyncio.wait_for(warden.ended.wait(), seconds)
    except TimeoutError:
        return False
    return True
