"""A host's servers as its configuration has them: what is wanted, what runs, and what is read again when a file changes.

::

    household (one_for_one)
    ├─ works (one_for_all)
    │   ├─ jobs          one job for each server that is being added, replaced or removed
    │   └─ reconciler    compares what is wanted with what runs
    └─ watcher           looks whether a file has changed; only where that was asked for

`ConfigSync` is no process. It holds what outlives each of them, so that a process that dies is succeeded by one that goes on from what is there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

from greenroom.actors.consent.rules import Permissions, RuleDecision
from greenroom.actors.process_names import CompanyKey, ProcessName
from greenroom.actors.successor_supervisor import SuccessorSupervisor
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

from .configured_upstreams import spec_of
from .mistakes import RULES_UNREADABLE, BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from greenroom.actors.client.settings import ClientSettings
    from greenroom.actors.consent.rules import Verdict
    from greenroom.actors.federation.upstream_spec import UpstreamSpec
    from greenroom.supervision import ChildSpec, Monitor

    from .configured_upstreams import SignIn
    from .host_config import HostConfig, ServerConfig
    from .mistakes import Mistake

_log: Final = logging.getLogger("greenroom.config")
_INTENSITY, _PERIOD = 5, 10.0
_MOST_LOGGED: Final = 50
_RECONCILER_WITHIN: Final = 5.0
"""How long to wait for a reconciler that is being started again, in seconds."""
READY_WITHIN: Final = 5.0
"""How long a changed server may take to be ready before its name moves to it all the same, in seconds."""


class SyncedHost(Protocol):
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
class ConfigSync:
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
    allows_by_default: bool = False
    """Whether all is allowed where no rule allows anything."""

    def __post_init__(self) -> None:
        self.key = CompanyKey.new("config_sync")
        self.latest = self.config
        """What was read last, which may be wrong, and then does not hold."""
        self.running: dict[str, ServerConfig] = {}
        """How the servers that run are configured."""
        self.interrupted: set[str] = set()
        """Servers at which a change was begun and has not succeeded: `running` may not be what runs there."""
        self.failures: dict[str, Exception] = {}
        """Why a server is not as it is wanted."""
        self.rules = self._rules_for(self.config)
        """Which rules hold."""
        self.reconciler_started = Wakeup()
        """Rings when a reconciler is there."""
        self._rules_of_running: dict[str, RuleTransition] = {}
        """Under which rules a server runs."""
        self._rules_of_changing: dict[str, RuleTransition] = {}
        """The same of one about which something is being done."""
        self._applied: Callable[[HostConfig], object] = lambda _: None
        self._host: SyncedHost | None = None
        self.jobs: Ref[TaskSupervisor] = Ref(self.name("jobs"), None)
        self.reconciler: Ref[Reconciler] = Ref(self.name("reconciler"), None)

    def __repr__(self) -> str:
        return f"<Household of {', '.join(self.running) or 'nobody'}>"

    def name(self, role: str) -> ProcessName:
        """What the process with that role is registered as."""
        return ProcessName(self.key, role)

    def child_spec(self) -> ChildSpec[Any]:
        """Its processes."""
        works = [
            child(TaskSupervisor).but(id="jobs", name=self.name("jobs")),
            child(Reconciler, self).but(id="reconciler", name=self.name("reconciler")),
        ]
        tree = child(SuccessorSupervisor, works, intensity=_INTENSITY, period=_PERIOD, strategy="one_for_all")
        children: list[ChildSpec[Any]] = [tree.but(id="sync_tree", name=self.name("sync_tree"))]
        if self.watch is not None:
            children.append(child(FileWatcher, self, self.watch).but(id="watcher", name=self.name("watcher")))
        whole = child(SuccessorSupervisor, children, intensity=_INTENSITY, period=_PERIOD)
        return whole.but(id=self.key, name=self.name("config_sync"))

    def beside_host(self, host: ChildSpec[Any]) -> ChildSpec[Any]:
        """A host's child, and the household beside it: neither is started anew for the other."""
        both = child(SuccessorSupervisor, [host, self.child_spec()], intensity=_INTENSITY, period=_PERIOD)
        return both.but(id=f"{self.key} and its host", name=self.name("config_host"))

    # --- at first

    def initial_specs(self) -> dict[str, UpstreamSpec]:
        """What a host is made with."""
        specs: dict[str, UpstreamSpec] = {}
        for name, server in self.config.enabled.items():
            try:
                specs[name] = self._spec(server)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is that server's trouble
                self._record_failure(name, error)
            else:
                self.running[name] = server
                self._rules_of_running[name] = self.rules
        self._log_mistakes(self.config.mistakes)
        return specs

    def attach(self, host: SyncedHost, applied: Callable[[HostConfig], object]) -> None:
        """Where it is from now on. `applied` hears what holds from now on, whenever that is something else."""
        self._host = host
        self._applied = applied

    def _spec(self, server: ServerConfig) -> UpstreamSpec:
        return spec_of(server, self.settings, self.sign_in)

    # --- when something is different

    @property
    def wanted(self) -> Mapping[str, ServerConfig]:
        """The servers that are to run."""
        return self.config.enabled

    def step(self, name: str) -> SyncStep | None:
        """What has to be done about one server; None when it is as it is wanted."""
        wanted = self.wanted.get(name)
        step = step_for(name, wanted, self.running.get(name))
        if name in self.interrupted and (step is None or step.kind == "adjust"):
            # The change that was interrupted is not wanted any more, and may have been made by now.
            return SyncStep("remove", name, None) if wanted is None else SyncStep("replace", name, wanted)
        return step

    def accept(self, config: HostConfig) -> bool:
        """Have this hold from now on, unless it is wrong: then everything stays as it is, and what is wrong is said. Returns whether it holds."""
        before, self.latest = self.latest, config
        if config.mistakes != before.mistakes:
            self._log_mistakes(
                config.mistakes if config.good else [one for one in config.mistakes if one != RULES_UNREADABLE]
            )
        if not config.good:
            return False
        self.config = config
        self.rules = self._rules_for(config)
        for name in self.running:
            if name not in self._rules_of_changing and self._is_settled(name):
                self._rules_of_running[name] = self.rules
        self._applied(config)
        return True

    def _rules_for(self, config: HostConfig) -> RuleTransition:
        return RuleTransition(config, self._other_rules, allows_by_default=self.allows_by_default)

    def _other_rules(self, name: str) -> list[RuleTransition]:
        """The regimes whose rules count for a server beside those that are wanted."""
        return [
            one for each in (self._rules_of_running, self._rules_of_changing) if (one := each.get(name)) is not None
        ]

    def _is_settled(self, name: str) -> bool:
        """Whether no server has to be started or stopped for it: there may be something else to be looked up at each call."""
        step = self.step(name)
        return step is None or step.kind == "adjust"

    def _log_mistakes(self, mistakes: Sequence[Mistake]) -> None:
        for one in mistakes[:_MOST_LOGGED]:
            _log.warning("%s", one)
        if len(mistakes) > _MOST_LOGGED:
            _log.warning("and %d more mistakes", len(mistakes) - _MOST_LOGGED)

    async def reload(self, config: HostConfig | None = None) -> tuple[SyncStep, ...]:
        """Have this hold, or what the files say now; returned when the servers are as they are wanted. Raises `BadConfig`, and nothing is changed."""
        new = self.read() if config is None else config
        doing = steps(new.enabled, self.running)
        if not self.accept(new):
            raise BadConfig([one for one in new.mistakes if not one.harmless])
        await self._wait_for_reconciler()
        if whereis(self.name("config_sync")) is None:
            for step in doing:
                with suppress(Exception):  # it is that server's trouble, as it is where jobs do this
                    await self.run_step(step)
        else:
            await self.reconciler.within(None).call(Reconciler.settle)
        return doing

    async def _wait_for_reconciler(self) -> None:
        """Between two reconcilers, wait for the next one: its jobs and those of a caller would be two at once for a server."""
        until = asyncio.get_running_loop().time() + _RECONCILER_WITHIN
        while whereis(self.name("reconciler")) is None and whereis(self.name("config_sync")) is not None:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await self.reconciler_started.wait(left)

    async def run_step(self, step: SyncStep) -> None:
        """Do what has to be done about one server. A trouble is kept, and raised."""
        name = step.name
        rules = self._rules_of_changing[name] = self._rules_of_step(step)
        try:
            await self._do(step)
        except Exception as error:
            self._record_failure(name, error)
            raise
        else:
            self._rules_of_running[name] = rules
        finally:
            self._rules_of_changing.pop(name, None)
            if name not in self.running:
                self._rules_of_running.pop(name, None)
            elif self._is_settled(name):  # what holds by now may be something else than when this began
                self._rules_of_running[name] = self.rules
        self.failures.pop(name, None)

    def _rules_of_step(self, step: SyncStep) -> RuleTransition:
        """The rules that it was written with, though something else may be wanted by now."""
        server = step.server
        if server is None or self.wanted.get(step.name) is server:
            return self.rules
        return self._rules_for(replace(self.config, servers={**self.config.servers, step.name: server}))

    async def _do(self, step: SyncStep) -> None:
        host, name, server = self._host, step.name, step.server
        assert host is not None
        if step.kind != "adjust":
            spec = None if server is None else self._spec(server)
            self.interrupted.add(name)
            there = host.has(name)  # an earlier step may have been interrupted in the middle
            if spec is None:
                await (host.remove(name) if there else host.forget(name))
            elif there:
                await host.replace(name, spec, ready_within=READY_WITHIN)
            else:
                await host.forget(name)
                await host.add(name, spec)
            self.interrupted.discard(name)
        if server is None:
            self.running.pop(name, None)
        else:
            self.running[name] = server

    def _record_failure(self, name: str, error: Exception) -> None:
        before = self.failures.get(name)
        if type(before) is not type(error) or str(before) != str(error):
            ours = isinstance(error, GreenroomError)
            _log.warning("server %s: %s", name, error, exc_info=None if ours else error)
        self.failures[name] = error

    def failure_text(self, name: str) -> str:
        """What its trouble is, in a word."""
        error = self.failures[name]
        return str(error) if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}"

    def is_permanent(self, name: str) -> bool:
        """Whether it is of no use to try again what failed: something is wrong with what was written, or with a function of the user's."""
        error = self.failures.get(name)
        return isinstance(error, ConfigError) or (error is not None and not isinstance(error, GreenroomError))

    # --- files

    def files(self) -> tuple[Path, ...]:
        """What is to be watched: what the last reading looked for, and what holds came from."""
        return tuple(dict.fromkeys((*self.config.files, *self.latest.files)))


# --- The reconciler compares the servers that are wanted with those that run, and has done what is missing: one job for each server, never two.
# It looks at what is, not at what has changed: so it need not have been there when that happened, and of a hundred changes in a row only the last one is
# carried out. A job is a process of its own, which takes the time that calls under way take; when it is over that server is looked at again.

_RETRY_AFTER: Final = 1.0
"""In how many seconds to try again what failed."""


class _Retry(NamedTuple):
    """To itself: it is time to try again."""

    name: str


class Reconciler(GenServer):
    """One in each household."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, sync: ConfigSync) -> None:
        """The household whose servers they are."""
        self._sync = sync
        self._jobs: dict[Monitor, SyncStep] = {}
        self._busy: set[str] = set()
        self._paused: set[str] = set()
        self._waiting: list[tuple[set[str], Caller[None]]] = []
        """The callers that wait, and the servers that are to be at rest for each."""

    async def init(self) -> None:
        """Do what a predecessor has left undone."""
        self._sync.reconciler_started.wake()
        await self.reconcile()

    async def reconcile(self) -> None:
        """See to everything that is not as it is wanted."""
        sync = self._sync
        for name in dict.fromkeys((*sync.running, *sync.wanted, *sync.interrupted)):
            await self._start_job(name)
        self._reply_to_settled()

    async def settle(self) -> None:
        """The same; answered when all is as it is wanted, or cannot be."""
        self._paused.clear()
        for name in tuple(self._sync.failures):
            if name not in self._sync.wanted:
                del self._sync.failures[name]
        caller = self.caller
        await self.reconcile()
        self._waiting.append((set(self._busy), caller))
        self._reply_to_settled()
        return later()  # type: ignore[no-any-return]  # stands for the None that comes later

    async def _start_job(self, name: str) -> None:
        if name in self._busy or name in self._paused:
            return
        step = self._sync.step(name)
        if step is None:
            self._sync.failures.pop(name, None)  # what failed is not wanted any more: the file was edited back
            return
        self._busy.add(name)
        pid = await supervise_job(self._sync.jobs, _run_step, self._sync, step)
        self._jobs[monitor(pid)] = step

    async def handle_info(self, message: Any) -> Any:
        """A job is over, or it is time."""
        match message:
            case Down(ref=ref) if ref in self._jobs:
                await self._on_job_done(self._jobs.pop(ref))
            case _Retry(name):
                self._paused.discard(name)
                await self._start_job(name)
            case _:
                return await _awaited(super().handle_info(message))
        self._reply_to_settled()
        return None

    async def _on_job_done(self, step: SyncStep) -> None:
        name = step.name
        self._busy.discard(name)
        left = self._sync.step(name)
        if left is None:
            self._sync.failures.pop(name, None)
            return
        if left.server != step.server or left.kind != step.kind:
            await self._start_job(name)  # something else is wanted by now, or half of it was done
            return
        self._paused.add(name)
        if not self._sync.is_permanent(name):
            send_after(_RETRY_AFTER, self.pid, _Retry(name))

    def _reply_to_settled(self) -> None:
        """Answer each caller whose servers have no job any more: what is paused was tried, and what has changed since does not count."""
        for names, caller in self._waiting:
            names.intersection_update(self._busy)
            if not names:
                caller.reply(None)
        self._waiting = [one for one in self._waiting if one[0]]

    def report_state(self) -> str:
        """What is being done."""
        return f"{len(self._jobs)} jobs, {len(self._paused)} to be tried again"


async def _run_step(sync: ConfigSync, step: SyncStep) -> None:
    try:
        await sync.run_step(step)
    except Exception:  # noqa: BLE001
        return  # the household knows, and so does a caller that looks at it


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


# --- The watcher looks whether a configuration's files have changed, and reads them when they have come to rest.
# Files are looked at by time, number and size, every second or so, on the node's clock: that works on every system and every file system, also when a
# file is replaced by a rename, comes into being, or goes. A file that changes all the time is read now and then all the same; what is read while it
# changes counts for nothing. A file that is wrong changes nothing, and is said to be wrong once.

if TYPE_CHECKING:
    FileStats: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]

_QUIET_FOR: Final = 0.2
"""For how long nothing may have changed before it is read,"""
_LONGEST_WAIT: Final = 2.0
"""and when it is read even so."""


class _LookNow(NamedTuple):
    """To itself: look."""


class FileWatcher(GenServer):
    """One in a household that is to notice by itself."""

    def __init__(self, sync: ConfigSync, every: float) -> None:
        """`every` is how many seconds are between two looks."""
        self._sync = sync
        self._every = every
        self._seen: FileStats = ()
        self._since: float | None = None
        """Since when it is known that something is different."""

    def init(self) -> None:
        """What a predecessor did not live to see is different: read at once, and everything is known."""
        self._seen = self._look()
        self._since = self.process.node.now()
        send_after(0.0, self.pid, _LookNow())

    def _look(self) -> FileStats:
        found: list[tuple[str, int, int, int, int] | None] = []
        for path in self._sync.files():
            try:
                told = os.stat(path)  # noqa: PTH116 - the same for whatever stands for a path
            except (OSError, ValueError):
                found.append(None)
            else:
                found.append((str(path), told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_size))
        return tuple(found)

    def handle_info(self, message: Any) -> Any:
        """It is time."""
        if not isinstance(message, _LookNow):
            return super().handle_info(message)
        now = self.process.node.now()
        seen = self._look()
        changed = seen != self._seen
        self._seen = seen
        if changed and self._since is None:
            self._since = now
        if self._since is not None and (not changed or now - self._since >= _LONGEST_WAIT):
            self._read()
        send_after(self._every if self._since is None else _QUIET_FOR, self.pid, _LookNow())
        return None

    def _read(self) -> None:
        sync = self._sync
        config = sync.read()
        before, self._seen = self._seen, self._look()
        self._since = None
        if before != self._seen:  # it changed meanwhile
            self._since = self.process.node.now()
            return
        if config != sync.latest and sync.accept(config):
            sync.reconciler.cast(Reconciler.reconcile)
        self._seen = self._look()  # what is to be watched may be something else now


# --- What has to be done so that the servers that run are those that are wanted: a pure comparison, one step a server.

StepKind: TypeAlias = Literal["remove", "replace", "add", "adjust"]


@dataclass(frozen=True, slots=True)
class SyncStep:
    """One server, and what becomes of it."""

    kind: StepKind
    """`adjust`: only what is looked up at each call is different, so no server has to be touched."""
    name: str
    server: ServerConfig | None
    """How it is wanted; None when it is not."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def step_for(name: str, wanted: ServerConfig | None, running: ServerConfig | None) -> SyncStep | None:
    """What has to be done about one server; None when it is as it should be."""
    if wanted is None:
        return None if running is None else SyncStep("remove", name, None)
    if running is None:
        return SyncStep("add", name, wanted)
    if wanted.has_same_effect(running):
        return None
    return SyncStep("adjust" if wanted.connects_as(running) else "replace", name, wanted)


def steps(wanted: Mapping[str, ServerConfig], running: Mapping[str, ServerConfig]) -> tuple[SyncStep, ...]:
    """For all of them: first the servers that go, so that there is room, then those that change, then those that come."""
    names = dict.fromkeys((*running, *wanted))
    found = [step for name in names if (step := step_for(name, wanted.get(name), running.get(name))) is not None]
    order: tuple[StepKind, ...] = ("remove", "replace", "adjust", "add")
    return tuple(sorted(found, key=lambda step: order.index(step.kind)))


# --- Which rules hold while servers change: stricter ones at once, looser ones when the server that they were written for is there.
# A file may change a server's program and, with it, what that may do. The new program takes a moment to come up, and until then the old one is
# called, under rules that were never meant for it; and one that is removed still answers while it leaves. So for each server the rules that it came by
# count as long as it is there, beside those that are wanted: of what they say the strictest holds.

_STRICTNESS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")


class RuleTransition(Permissions):
    """The rules of one configuration, beside those under which a server runs that is not yet, or still, as it is wanted."""

    def __init__(
        self, config: HostConfig, others: Callable[[str], Iterable[RuleTransition]], *, allows_by_default: bool = False
    ) -> None:
        """`others` says which else count for a server. With `allows_by_default`, what no rule is about is allowed where none allows anything."""
        super().__init__(config.permissions.rules, otherwise="ask" if config.ruled or not allows_by_default else "allow")
        self._other_rules = others

    def of_tool(self, server: str, tool: str) -> RuleDecision:
        """What holds for a call of this tool."""
        return self._strictest(server, lambda one: Permissions.of_tool(one, server, tool))

    def of_elicitation(self, server: str) -> RuleDecision:
        """What holds when this server wants to ask the user something."""
        return self._strictest(server, lambda one: Permissions.of_elicitation(one, server))

    def _all(self, server: str) -> list[RuleTransition]:
        return [self, *(one for one in self._other_rules(server) if one is not self)]

    def _strictest(self, server: str, decide: Callable[[RuleTransition], RuleDecision]) -> RuleDecision:
        return max(map(decide, self._all(server)), key=lambda said: _STRICTNESS.index(said.verdict))

    def beside(self, own: Permissions) -> Permissions:
        """A program's own rules, and what is denied here besides."""
        return _DeniedByFiles(own.own if isinstance(own, _DeniedByFiles) else own, self)


class _DeniedByFiles(Permissions):
    """Rules that are a program's own, where files deny more."""

    def __init__(self, own: Permissions, files: RuleTransition) -> None:
        super().__init__(own.rules)
        self.own = own
        self._files = files

    def of_tool(self, server: str, tool: str) -> RuleDecision:
        """What holds for a call of this tool."""
        said = self._files.of_tool(server, tool)
        return said if said.verdict == "deny" else self.own.of_tool(server, tool)

    def of_elicitation(self, server: str) -> RuleDecision:
        """What holds when this server wants to ask the user something."""
        said = self._files.of_elicitation(server)
        return said if said.verdict == "deny" else self.own.of_elicitation(server)
