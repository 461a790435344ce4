"""A host's servers as its configuration has them: what is wanted, what runs, and what is read again when a file changes.

::

    household (one_for_one)
    ├─ works (one_for_all)
    │   ├─ jobs          one job for each server that is being added, replaced or removed
    │   └─ reconciler    compares what is wanted with what runs
    └─ watcher           looks whether a file has changed; only where that was asked for

`Household` is no process. It holds what outlives each of them, so that a process that dies is succeeded by one that goes on from what is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

from greenroom.actors.consent.rules import Decided, Permissions
from greenroom.actors.names import Key, Name
from greenroom.actors.tree import Tree
from greenroom.errors import ConfigError, GreenroomError
from greenroom.supervision import (
    Caller,
    Down,
    GenServer,
    Ref,
    TaskSupervisor,
    Wakeup,
    child,
    later,
    monitor,
    send_after,
    supervise_job,
    whereis,
)

from .mistakes import DOUBT, BadConfig
from .routes import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from greenroom.actors.client.settings import ClientSettings
    from greenroom.actors.consent.rules import Verdict
    from greenroom.actors.federation.specs import UpstreamSpec
    from greenroom.supervision import ChildSpec, Monitor

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
        """End what runs under that id and is not known to the host itself."""
        ...

    def has(self, id: str) -> bool:
        """Whether there is such a server."""
        ...


@dataclass(eq=False, repr=False)
class Household:
    """One for a host that was made from files."""

    config: HostConfig
    """What holds."""
    read: Callable[[], HostConfig]
    """Reads the files again."""
    _: KW_ONLY
    settings: ClientSettings | None = None
    sign_in: SignIn | None = None
    watch: float | None = None
    """How often to look whether the files have changed."""
    free: bool = False
    """Whether all is allowed where no rule allows anything."""

    def __post_init__(self) -> None:
        self.key = Key.new("household")
        self.latest = self.config
        """What was read last, which may be wrong, and then does not hold."""
        self.running: dict[str, ServerConfig] = {}
        """How the servers that run are configured."""
        self.unfinished: set[str] = set()
        """Servers at which a change was begun and has not succeeded: `running` may not be what runs there."""
        self.troubles: dict[str, Exception] = {}
        """Why a server is not as it is wanted."""
        self.rules = self._regime(self.config)
        """Which rules hold."""
        self.bell = Wakeup()
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
        return spec_of(server, self.settings, self.sign_in)

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
        return Regime(config, self._others, free=self.free)

    def _others(self, name: str) -> list[Regime]:
        """The regimes whose rules count for a server beside those that are wanted."""
        return [one for each in (self._came_by, self._comes_by) if (one := each.get(name)) is not None]

    def _is_at_rest(self, name: str) -> bool:
        """Whether no server has to be started or stopped for it: there may be something else to be looked up at each call."""
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
        if step.doing != "adjust":
            spec = None if server is None else self._spec(server)
            self.unfinished.add(name)
            there = premises.has(name)  # an earlier step may have been interrupted in the middle
            if spec is None:
                await (premises.remove(name) if there else premises.forget(name))
            elif there:
                await premises.replace(name, spec, ready_within=READY_WITHIN)
            else:
                await premises.forget(name)
                await premises.add(name, spec)
            self.unfinished.discard(name)
        if server is None:
            self.running.pop(name, None)
        else:
            self.running[name] = server

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
        """Whether it is of no use to try again what failed: something is wrong with what was written, or with a function of the user's."""
        error = self.troubles.get(name)
        return isinstance(error, ConfigError) or (error is not None and not isinstance(error, GreenroomError))

    # --- files

    def files(self) -> tuple[Path, ...]:
        """What is to be watched: what the last reading looked for, and what holds came from."""
        return tuple(dict.fromkeys((*self.config.files, *self.latest.files)))


# --- The reconciler compares the servers that are wanted with those that run, and has done what is missing: one job for each server, never two.
# It looks at what is, not at what has changed: so it need not have been there when that happened, and of a hundred changes in a row only the last one is
# carried out. A job is a process of its own, which takes the time that calls under way take; when it is over that server is looked at again.

_AGAIN: Final = 1.0
"""In how many seconds to try again what failed."""


class _Again(NamedTuple):
    """To itself: it is time to try again."""

    name: str


class Reconciler(GenServer):
    """One in each household."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, household: Household) -> None:
        """The household whose servers they are."""
        self._household = household
        self._jobs: dict[Monitor, Step] = {}
        self._busy: set[str] = set()
        self._pausing: set[str] = set()
        self._waiting: list[tuple[set[str], Caller[None]]] = []
        """The callers that wait, and the servers that are to be at rest for each."""

    async def init(self) -> None:
        """Do what a predecessor has left undone."""
        self._household.bell.wake()
        await self.look()

    async def look(self) -> None:
        """See to everything that is not as it is wanted."""
        household = self._household
        for name in dict.fromkeys((*household.running, *household.wanted, *household.unfinished)):
            await self._see_to(name)
        self._answer()

    async def settle(self) -> None:
        """The same; answered when all is as it is wanted, or cannot be."""
        self._pausing.clear()
        for name in tuple(self._household.troubles):
            if name not in self._household.wanted:
                del self._household.troubles[name]
        caller = self.caller
        await self.look()
        self._waiting.append((set(self._busy), caller))
        self._answer()
        return later()  # type: ignore[no-any-return]  # stands for the None that comes later

    async def _see_to(self, name: str) -> None:
        if name in self._busy or name in self._pausing:
            return
        step = self._household.step(name)
        if step is None:
            self._household.troubles.pop(name, None)  # what failed is not wanted any more: the file was edited back
            return
        self._busy.add(name)
        pid = await supervise_job(self._household.jobs, _carry_out, self._household, step)
        self._jobs[monitor(pid)] = step

    async def handle_info(self, message: Any) -> Any:
        """A job is over, or it is time."""
        match message:
            case Down(ref=ref) if ref in self._jobs:
                await self._over(self._jobs.pop(ref))
            case _Again(name):
                self._pausing.discard(name)
                await self._see_to(name)
            case _:
                return await _maybe(super().handle_info(message))
        self._answer()
        return None

    async def _over(self, step: Step) -> None:
        name = step.name
        self._busy.discard(name)
        left = self._household.step(name)
        if left is None:
            self._household.troubles.pop(name, None)
            return
        if left.server != step.server or left.doing != step.doing:
            await self._see_to(name)  # something else is wanted by now, or half of it was done
            return
        self._pausing.add(name)
        if not self._household.permanent(name):
            send_after(_AGAIN, self.pid, _Again(name))

    def _answer(self) -> None:
        """Answer each caller whose servers have no job any more: what is paused was tried, and what has changed since does not count."""
        for names, caller in self._waiting:
            names.intersection_update(self._busy)
            if not names:
                caller.reply(None)
        self._waiting = [one for one in self._waiting if one[0]]

    def report_state(self) -> str:
        """What is being done."""
        return f"{len(self._jobs)} jobs, {len(self._pausing)} to be tried again"


async def _carry_out(household: Household, step: Step) -> None:
    try:
        await household.carry_out(step)
    except Exception:  # noqa: BLE001
        return  # the household knows, and so does a caller that looks at it


async def _maybe(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


# --- The watcher looks whether a configuration's files have changed, and reads them when they have come to rest.
# Files are looked at by time, number and size, every second or so, on the node's clock: that works on every system and every file system, also when a
# file is replaced by a rename, comes into being, or goes. A file that changes all the time is read now and then all the same; what is read while it
# changes counts for nothing. A file that is wrong changes nothing, and is said to be wrong once.

if TYPE_CHECKING:
    Look: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]

_QUIET: Final = 0.2
"""For how long nothing may have changed before it is read,"""
_LONGEST: Final = 2.0
"""and when it is read even so."""


class _Time(NamedTuple):
    """To itself: look."""


class Watcher(GenServer):
    """One in a household that is to notice by itself."""

    def __init__(self, household: Household, every: float) -> None:
        """`every` is how many seconds are between two looks."""
        self._household = household
        self._every = every
        self._seen: Look = ()
        self._since: float | None = None
        """Since when it is known that something is different."""

    def init(self) -> None:
        """What a predecessor did not live to see is different: read at once, and everything is known."""
        self._seen = self._look()
        self._since = self.process.node.now()
        send_after(0.0, self.pid, _Time())

    def _look(self) -> Look:
        found: list[tuple[str, int, int, int, int] | None] = []
        for path in self._household.files():
            try:
                told = os.stat(path)  # noqa: PTH116 - the same for whatever stands for a path
            except (OSError, ValueError):
                found.append(None)
            else:
                found.append((str(path), told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_size))
        return tuple(found)

    def handle_info(self, message: Any) -> Any:
        """It is time."""
        if not isinstance(message, _Time):
            return super().handle_info(message)
        now = self.process.node.now()
        seen = self._look()
        changed = seen != self._seen
        self._seen = seen
        if changed and self._since is None:
            self._since = now
        if self._since is not None and (not changed or now - self._since >= _LONGEST):
            self._read()
        send_after(self._every if self._since is None else _QUIET, self.pid, _Time())
        return None

    def _read(self) -> None:
        household = self._household
        config = household.read()
        before, self._seen = self._seen, self._look()
        self._since = None
        if before != self._seen:  # it changed meanwhile
            self._since = self.process.node.now()
            return
        if config != household.latest and household.accept(config):
            household.reconciler.cast(Reconciler.look)
        self._seen = self._look()  # what is to be watched may be something else now


# --- What has to be done so that the servers that run are those that are wanted: a pure comparison, one step a server.

Doing: TypeAlias = Literal["remove", "replace", "add", "adjust"]


@dataclass(frozen=True, slots=True)
class Step:
    """One server, and what becomes of it."""

    doing: Doing
    """`adjust`: only what is looked up at each call is different, so no server has to be touched."""
    name: str
    server: ServerConfig | None
    """How it is wanted; None when it is not."""

    def __str__(self) -> str:
        return f"{self.doing} {self.name}"


def step_for(name: str, wanted: ServerConfig | None, running: ServerConfig | None) -> Step | None:
    """What has to be done about one server; None when it is as it should be."""
    if wanted is None:
        return None if running is None else Step("remove", name, None)
    if running is None:
        return Step("add", name, wanted)
    if wanted.does_as(running):
        return None
    return Step("adjust" if wanted.runs_as(running) else "replace", name, wanted)


def steps(wanted: Mapping[str, ServerConfig], running: Mapping[str, ServerConfig]) -> tuple[Step, ...]:
    """For all of them: first the servers that go, so that there is room, then those that change, then those that come."""
    names = dict.fromkeys((*running, *wanted))
    found = [step for name in names if (step := step_for(name, wanted.get(name), running.get(name))) is not None]
    order: tuple[Doing, ...] = ("remove", "replace", "adjust", "add")
    return tuple(sorted(found, key=lambda step: order.index(step.doing)))


# --- Which rules hold while servers change: stricter ones at once, looser ones when the server that they were written for is there.
# A file may change a server's program and, with it, what that may do. The new program takes a moment to come up, and until then the old one is
# called, under rules that were never meant for it; and one that is removed still answers while it leaves. So for each server the rules that it came by
# count as long as it is there, beside those that are wanted: of what they say the strictest holds.

_STRICTNESS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")


class Regime(Permissions):
    """The rules of one configuration, beside those under which a server runs that is not yet, or still, as it is wanted."""

    def __init__(self, config: HostConfig, others: Callable[[str], Iterable[Regime]], *, free: bool = False) -> None:
        """`others` says which else count for a server. With `free`, what no rule is about is allowed where none allows anything."""
        super().__init__(config.permissions.rules, otherwise="ask" if config.ruled or not free else "allow")
        self._others = others

    def of_tool(self, server: str, tool: str) -> Decided:
        """What holds for a call of this tool."""
        return self._strictest(server, lambda one: Permissions.of_tool(one, server, tool))

    def of_elicitation(self, server: str) -> Decided:
        """What holds when this server wants to ask the user something."""
        return self._strictest(server, lambda one: Permissions.of_elicitation(one, server))

    def _all(self, server: str) -> list[Regime]:
        return [self, *(one for one in self._others(server) if one is not self)]

    def _strictest(self, server: str, decide: Callable[[Regime], Decided]) -> Decided:
        return max(map(decide, self._all(server)), key=lambda said: _STRICTNESS.index(said.verdict))

    def beside(self, own: Permissions) -> Permissions:
        """A program's own rules, and what is denied here besides."""
        return _Denied(own.own if isinstance(own, _Denied) else own, self)


class _Denied(Permissions):
    """Rules that are a program's own, where files deny more."""

    def __init__(self, own: Permissions, files: Regime) -> None:
        super().__init__(own.rules)
        self.own = own
        self._files = files

    def of_tool(self, server: str, tool: str) -> Decided:
        """What holds for a call of this tool."""
        said = self._files.of_tool(server, tool)
        return said if said.verdict == "deny" else self.own.of_tool(server, tool)

    def of_elicitation(self, server: str) -> Decided:
        """What holds when this server wants to ask the user something."""
        said = self._files.of_elicitation(server)
        return said if said.verdict == "deny" else self.own.of_elicitation(server)
