"""A host's servers as its configuration has them: what is wanted, what runs, and what is read again when a file changes.

::

    household (one_for_one)
    ├─ works (one_for_all)
    │   ├─ jobs          one job for each server that is being added, replaced or removed
    │   └─ reconciler    compares what is wanted with what runs
    └─ watcher           looks whether a file has changed; only where that was asked for

`Household` is no process. It holds what outlives each of them, so that whoever dies is succeeded by one that goes on from what is there.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.actors.federation.news import Bell
from greenroom.actors.names import Key, Name
from greenroom.actors.tree import Tree
from greenroom.errors import ConfigError, GreenroomError
from greenroom.supervision import Ref, TaskSupervisor, child, whereis

from .mistakes import DOUBT, BadConfig
from .reconciler import Reconciler
from .regime import Regime
from .routes import spec_of
from .steps import Step, step_for, steps
from .watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from greenroom.actors.client.settings import ClientSettings
    from greenroom.actors.federation.specs import UpstreamSpec
    from greenroom.supervision import ChildSpec

    from .mistakes import Mistake
    from .routes import SignIn
    from .values import HostConfig, ServerConfig

_log: Final = logging.getLogger("greenroom.config")
_INTENSITY, _PERIOD = 5, 10.0
_TOLD: Final = 50
_MANNED: Final = 5.0
"""How long to wait for a reconciler that is being started again, in seconds."""
READY_WITHIN: Final = 5.0
"""How long a changed server may take to be ready before its name moves to it all the same, in seconds."""


class Premises(Protocol):
    """What a household has servers in: a host."""

    async def add(self, id: str, server: UpstreamSpec) -> None:
        """One more."""
        ...

    async def replace(self, id: str, server: UpstreamSpec, *, ready_within: float = ...) -> None:
        """Another one under the same id."""
        ...

    async def remove(self, id: str) -> None:
        """One less."""
        ...

    async def forget(self, id: str) -> None:
        """See to it that nobody is there of whom the host itself does not know."""
        ...

    def has(self, id: str) -> bool:
        """Whether there is such a server."""
        ...


class Household:
    """One for a host that was made from files."""

    def __init__(
        self,
        config: HostConfig,
        read: Callable[[], HostConfig],
        *,
        settings: ClientSettings | None = None,
        sign_in: SignIn | None = None,
        watch: float | None = None,
        free: bool = False,
    ) -> None:
        """`read` reads the files again. `watch` is how often to look whether they have changed. `free`: who has no rules at all has everything allowed."""
        self.key = Key.new("household")
        self.config = config
        """What holds."""
        self.latest = config
        """What was read last, which may be wrong, and then does not hold."""
        self.read = read
        self.watch = watch
        self.running: dict[str, ServerConfig] = {}
        """How the servers that run are configured."""
        self.unfinished: set[str] = set()
        """Servers at which a change was begun and has not succeeded: `running` may not be what runs there."""
        self.troubles: dict[str, Exception] = {}
        """Why a server is not as it is wanted."""
        self._settings = settings
        self._sign_in = sign_in
        self._free = free
        self.rules = self._regime(config)
        """Which rules hold."""
        self.bell = Bell()
        """Rings when a reconciler is there."""
        self._came_by: dict[str, Regime] = {}
        """Under which rules a server runs."""
        self._comes_by: dict[str, Regime] = {}
        """The same of one about which something is being done."""
        self._applied: Callable[[HostConfig], object] = lambda _: None
        self._premises: Premises | None = None
        self.jobs: Ref[TaskSupervisor] = Ref(self.name("jobs"), None)
        self.reconciler: Ref[Reconciler] = Ref(self.name("reconciler"), None)

    def __repr__(self) -> str:
        return f"<Household of {', '.join(self.running) or 'nobody'}>"

    def name(self, role: str) -> Name:
        """What the process with that role is registered as."""
        return Name(self.key, role)

    def child_spec(self) -> ChildSpec[Any]:
        """Its processes."""
        works = [
            child(TaskSupervisor).but(id="jobs", name=self.name("jobs")),
            child(Reconciler, self).but(id="reconciler", name=self.name("reconciler")),
        ]
        tree = child(Tree, works, intensity=_INTENSITY, period=_PERIOD, strategy="one_for_all")
        children: list[ChildSpec[Any]] = [tree.but(id="works", name=self.name("works"))]
        if self.watch is not None:
            children.append(child(Watcher, self, self.watch).but(id="watcher", name=self.name("watcher")))
        whole = child(Tree, children, intensity=_INTENSITY, period=_PERIOD)
        return whole.but(id=self.key, name=self.name("household"))

    def around(self, host: ChildSpec[Any]) -> ChildSpec[Any]:
        """A host's child, and the household beside it: neither is started anew for the other."""
        both = child(Tree, [host, self.child_spec()], intensity=_INTENSITY, period=_PERIOD)
        return both.but(id=f"{self.key} and its host", name=self.name("premises"))

    # --- at first

    def begin(self) -> dict[str, UpstreamSpec]:
        """What a host is made with."""
        specs: dict[str, UpstreamSpec] = {}
        for name, server in self.config.enabled.items():
            try:
                specs[name] = self._spec(server)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is that server's trouble
                self._trouble(name, error)
            else:
                self.running[name] = server
                self._came_by[name] = self.rules
        self._tell(self.config.mistakes)
        return specs

    def settle_in(self, premises: Premises, applied: Callable[[HostConfig], object]) -> None:
        """Where it is from now on. `applied` hears what holds from now on, whenever that is something else."""
        self._premises = premises
        self._applied = applied

    def _spec(self, server: ServerConfig) -> UpstreamSpec:
        return spec_of(server, self._settings, self._sign_in)

    # --- when something is different

    @property
    def wanted(self) -> Mapping[str, ServerConfig]:
        """The servers that are to run."""
        return self.config.enabled

    def step(self, name: str) -> Step | None:
        """What has to be done about one server; None when it is as it is wanted."""
        wanted = self.wanted.get(name)
        step = step_for(name, wanted, self.running.get(name))
        if name in self.unfinished and (step is None or step.doing == "adjust"):
            # The change that was interrupted is not wanted any more, and may have been made by now.
            return Step("remove", name, None) if wanted is None else Step("replace", name, wanted)
        return step

    def accept(self, config: HostConfig) -> bool:
        """Have this hold from now on, unless it is wrong: then everything stays as it is, and what is wrong is said. Returns whether it holds."""
        before, self.latest = self.latest, config
        if config.mistakes != before.mistakes:
            self._tell(config.mistakes if config.good else [one for one in config.mistakes if one != DOUBT])
        if not config.good:
            return False
        self.config = config
        self.rules = self._regime(config)
        for name in self.running:
            if name not in self._comes_by and self._is_at_rest(name):
                self._came_by[name] = self.rules
        self._applied(config)
        return True

    def _regime(self, config: HostConfig) -> Regime:
        return Regime(config, self._others, free=self._free)

    def _others(self, name: str) -> list[Regime]:
        """Whose rules count for a server beside those that are wanted."""
        return [one for each in (self._came_by, self._comes_by) if (one := each.get(name)) is not None]

    def _is_at_rest(self, name: str) -> bool:
        """Whether nobody has to come or to go for it: there may be something else to be looked up at each call."""
        step = self.step(name)
        return step is None or step.doing == "adjust"

    def _tell(self, mistakes: Sequence[Mistake]) -> None:
        for one in mistakes[:_TOLD]:
            _log.warning("%s", one)
        if len(mistakes) > _TOLD:
            _log.warning("and %d more mistakes", len(mistakes) - _TOLD)

    async def reload(self, config: HostConfig | None = None) -> tuple[Step, ...]:
        """Have this hold, or what the files say now; returned when the servers are as they are wanted. Raises `BadConfig`, and nothing is changed."""
        new = self.read() if config is None else config
        doing = steps(new.enabled, self.running)
        if not self.accept(new):
            raise BadConfig([one for one in new.mistakes if not one.harmless])
        await self._manned()
        if whereis(self.name("household")) is None:
            for step in doing:
                with suppress(Exception):  # it is that server's trouble, as it is where jobs do this
                    await self.carry_out(step)
        else:
            await self.reconciler.within(None).call(Reconciler.settle)
        return doing

    async def _manned(self) -> None:
        """Between two reconcilers, wait for the next one: its jobs and those of a caller would be two at once for a server."""
        until = asyncio.get_running_loop().time() + _MANNED
        while whereis(self.name("reconciler")) is None and whereis(self.name("household")) is not None:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await self.bell.wait(left)

    async def carry_out(self, step: Step) -> None:
        """Do what has to be done about one server. A trouble is kept, and raised."""
        name = step.name
        rules = self._comes_by[name] = self._regime_of(step)
        try:
            await self._do(step)
        except Exception as error:
            self._trouble(name, error)
            raise
        else:
            self._came_by[name] = rules
        finally:
            self._comes_by.pop(name, None)
            if name not in self.running:
                self._came_by.pop(name, None)
            elif self._is_at_rest(name):  # what holds by now may be something else than when this began
                self._came_by[name] = self.rules
        self.troubles.pop(name, None)

    def _regime_of(self, step: Step) -> Regime:
        """The rules that it was written with, though something else may be wanted by now."""
        server = step.server
        if server is None or self.wanted.get(step.name) is server:
            return self.rules
        return self._regime(replace(self.config, servers={**self.config.servers, step.name: server}))

    async def _do(self, step: Step) -> None:
        premises, name, server = self._premises, step.name, step.server
        assert premises is not None
        match step.doing:
            case "remove":
                self.unfinished.add(name)
                if premises.has(name):
                    await premises.remove(name)
                else:
                    await premises.forget(name)
                self.running.pop(name, None)
                self.unfinished.discard(name)
                return
            case "add" | "replace":  # an earlier step may have been interrupted in the middle of either
                assert server is not None
                spec = self._spec(server)
                self.unfinished.add(name)
                if premises.has(name):
                    await premises.replace(name, spec, ready_within=READY_WITHIN)
                else:
                    await premises.forget(name)
                    await premises.add(name, spec)
            case "adjust":
                pass
        if server is not None:
            self.running[name] = server
        if step.doing != "adjust":
            self.unfinished.discard(name)

    def _trouble(self, name: str, error: Exception) -> None:
        before = self.troubles.get(name)
        if type(before) is not type(error) or str(before) != str(error):
            ours = isinstance(error, GreenroomError)
            _log.warning("server %s: %s", name, error, exc_info=None if ours else error)
        self.troubles[name] = error

    def why(self, name: str) -> str:
        """What its trouble is, in a word."""
        error = self.troubles[name]
        return str(error) if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}"

    def permanent(self, name: str) -> bool:
        """Whether it is of no use to try again what failed: something is wrong with what was written, or with somebody's own function."""
        error = self.troubles.get(name)
        return isinstance(error, ConfigError) or (error is not None and not isinstance(error, GreenroomError))

    # --- files

    def files(self) -> tuple[Path, ...]:
        """What is to be watched: what the last reading looked for, and what holds came from."""
        return tuple(dict.fromkeys((*self.config.files, *self.latest.files)))
