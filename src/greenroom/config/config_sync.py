"""Keeps a host's servers in line with its configuration, and reloads the configuration when a file changes.

::

    config_sync (one_for_one)
    ├─ sync_tree (one_for_all)
    │   ├─ jobs          one job for each server that is being added, replaced or removed
    │   └─ reconciler    compares the configured servers with the running ones, and starts jobs
    └─ watcher           checks the files for changes; only with `watch`

`ConfigSync` is an object, not a process. It holds the state that outlives these processes: a restarted reconciler or watcher continues from it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

from greenroom.actors.consent.rules import Permissions, RuleDecision
from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.actors.process_names import CompanyKey, ProcessName
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
"""How long to wait for a restarting reconciler, in seconds."""
READY_WITHIN: Final = 5.0
"""How long a changed server may take to be ready before its name moves to it in any case, in seconds."""


class SyncedHost(Protocol):
    """The host whose servers are kept in line with the configuration."""

    async def add(self, id: str, server: UpstreamSpec) -> None:
        """Add a server."""
        ...

    async def replace(self, id: str, server: UpstreamSpec, *, ready_within: float = ...) -> None:
        """Replace a server under the same id."""
        ...

    async def remove(self, id: str) -> None:
        """Remove a server."""
        ...

    async def forget(self, id: str) -> None:
        """Stop processes under that id that the host itself does not know."""
        ...

    def has(self, id: str) -> bool:
        """Whether the host has such a server."""
        ...


@dataclass(eq=False, repr=False)
class ConfigSync:
    """The configuration of a host that was made from files, and the state of its servers."""

    config: HostConfig
    """The configuration in force."""
    read: Callable[[], HostConfig]
    """Reads the files."""
    _: KW_ONLY
    settings: ClientSettings | None = None
    sign_in: SignIn | None = None
    watch: float | None = None
    """The interval at which the files are checked for changes; None for no checks."""
    allows_by_default: bool = False
    """Whether everything is allowed if no rule allows anything."""

    def __post_init__(self) -> None:
        self.key = CompanyKey.new("config_sync")
        self.latest = self.config
        """The configuration that was read last; it is not in force if it has mistakes."""
        self.running: dict[str, ServerConfig] = {}
        """The configuration of each running server."""
        self.interrupted: set[str] = set()
        """Servers with a change that was begun and has not succeeded: `running` may be wrong for them."""
        self.failures: dict[str, Exception] = {}
        """The error of each server that could not be brought into its configured state."""
        self.rules = self._rules_for(self.config)
        """The rules in force."""
        self.reconciler_started = Wakeup()
        """Wakes waiters when a reconciler has started."""
        self._rules_of_running: dict[str, RuleTransition] = {}
        """The rules that each running server was started under."""
        self._rules_of_changing: dict[str, RuleTransition] = {}
        """The rules of the step under way for a server."""
        self._applied: Callable[[HostConfig], object] = lambda _: None
        self._host: SyncedHost | None = None
        self.jobs: Ref[TaskSupervisor] = Ref(self.name("jobs"), None)
        self.reconciler: Ref[Reconciler] = Ref(self.name("reconciler"), None)

    def __repr__(self) -> str:
        return f"<ConfigSync: {', '.join(self.running) or 'no servers'}>"

    def name(self, role: str) -> ProcessName:
        """The registered name of the process with that role."""
        return ProcessName(self.key, role)

    def child_spec(self) -> ChildSpec[Any]:
        """The supervision tree of the reconciler and the watcher."""
        works = [
            child(TaskSupervisor).but(id="jobs", name=self.name("jobs")),
            child(Reconciler, self).but(id="reconciler", name=self.name("reconciler")),
        ]
        tree = child(ExclusiveSupervisor, works, intensity=_INTENSITY, period=_PERIOD, strategy="one_for_all")
        children: list[ChildSpec[Any]] = [tree.but(id="sync_tree", name=self.name("sync_tree"))]
        if self.watch is not None:
            children.append(child(FileWatcher, self, self.watch).but(id="watcher", name=self.name("watcher")))
        whole = child(ExclusiveSupervisor, children, intensity=_INTENSITY, period=_PERIOD)
        return whole.but(id=self.key, name=self.name("config_sync"))

    def beside_host(self, host: ChildSpec[Any]) -> ChildSpec[Any]:
        """A supervisor of the host and of this tree; a restart of one does not restart the other."""
        both = child(ExclusiveSupervisor, [host, self.child_spec()], intensity=_INTENSITY, period=_PERIOD)
        return both.but(id=f"{self.key} and its host", name=self.name("config_host"))

    # --- start

    def initial_specs(self) -> dict[str, UpstreamSpec]:
        """The specs of the servers that the host starts with."""
        specs: dict[str, UpstreamSpec] = {}
        for name, server in self.config.enabled.items():
            try:
                specs[name] = self._spec(server)
            except Exception as error:  # noqa: BLE001 - any error is recorded as this server's failure
                self._record_failure(name, error)
            else:
                self.running[name] = server
                self._rules_of_running[name] = self.rules
        self._log_mistakes(self.config.mistakes)
        return specs

    def attach(self, host: SyncedHost, applied: Callable[[HostConfig], object]) -> None:
        """Set the host. `applied` is called with each configuration that comes into force."""
        self._host = host
        self._applied = applied

    def _spec(self, server: ServerConfig) -> UpstreamSpec:
        return spec_of(server, self.settings, self.sign_in)

    # --- changes

    @property
    def wanted(self) -> Mapping[str, ServerConfig]:
        """The servers that should run."""
        return self.config.enabled

    def step(self, name: str) -> SyncStep | None:
        """The step that brings a server into its configured state; None if it is in that state."""
        wanted = self.wanted.get(name)
        step = step_for(name, wanted, self.running.get(name))
        if name in self.interrupted and (step is None or step.kind == "adjust"):
            # The interrupted change is no longer wanted, and may have been made.
            return SyncStep("remove", name, None) if wanted is None else SyncStep("replace", name, wanted)
        return step

    def accept(self, config: HostConfig) -> bool:
        """Put a configuration into force, unless it has mistakes; mistakes are logged. Returns whether it is in force."""
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
        """The rules of a server's running and coming version, which count in addition to the rules in force."""
        return [
            one for each in (self._rules_of_running, self._rules_of_changing) if (one := each.get(name)) is not None
        ]

    def _is_settled(self, name: str) -> bool:
        """Whether no server has to be started or stopped; settings that are read at each call may still differ."""
        step = self.step(name)
        return step is None or step.kind == "adjust"

    def _log_mistakes(self, mistakes: Sequence[Mistake]) -> None:
        for one in mistakes[:_MOST_LOGGED]:
            _log.warning("%s", one)
        if len(mistakes) > _MOST_LOGGED:
            _log.warning("and %d more mistakes", len(mistakes) - _MOST_LOGGED)

    async def reload(self, config: HostConfig | None = None) -> tuple[SyncStep, ...]:
        """Put a configuration (or the current files) into force and wait until the servers follow. Raises `BadConfig`; then nothing is changed."""
        new = self.read() if config is None else config
        doing = steps(new.enabled, self.running)
        if not self.accept(new):
            raise BadConfig([one for one in new.mistakes if not one.harmless])
        await self._wait_for_reconciler()
        if whereis(self.name("config_sync")) is None:
            for step in doing:
                with suppress(Exception):  # `run_step` has recorded the failure, as it does for jobs
                    await self.run_step(step)
        else:
            await self.reconciler.within(None).call(Reconciler.settle)
        return doing

    async def _wait_for_reconciler(self) -> None:
        """Wait for a restarting reconciler. Without it, a step made here could run at the same time as a job of the next reconciler."""
        until = asyncio.get_running_loop().time() + _RECONCILER_WITHIN
        while whereis(self.name("reconciler")) is None and whereis(self.name("config_sync")) is not None:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await self.reconciler_started.wait(left)

    async def run_step(self, step: SyncStep) -> None:
        """Run a step for one server. A failure is recorded and raised."""
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
            elif self._is_settled(name):  # another configuration may have come into force meanwhile
                self._rules_of_running[name] = self.rules
        self.failures.pop(name, None)

    def _rules_of_step(self, step: SyncStep) -> RuleTransition:
        """The rules of the configuration that the step belongs to, which may no longer be in force."""
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
        """The text of a server's failure."""
        error = self.failures[name]
        return str(error) if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}"

    def is_permanent(self, name: str) -> bool:
        """Whether a retry is useless: the configuration or a function of the user is wrong."""
        error = self.failures.get(name)
        return isinstance(error, ConfigError) or (error is not None and not isinstance(error, GreenroomError))

    # --- files

    def files(self) -> tuple[Path, ...]:
        """The files to watch: those of the configuration in force, and those of the last reading."""
        return tuple(dict.fromkeys((*self.config.files, *self.latest.files)))


# --- The reconciler compares the configured servers with the running ones and starts the missing steps as jobs, never two for one server.
# It works from the state and not from change events: so a restarted reconciler misses nothing, and of a hundred changes in a row only the last is carried
# out. A job is a process of its own, because a step waits for calls under way; when a job ends, its server is compared again.

_RETRY_AFTER: Final = 1.0
"""Seconds before a failed step is repeated."""


class _Retry(NamedTuple):
    """Timer message of the reconciler: repeat a failed step."""

    name: str


class Reconciler(GenServer):
    """Starts a job for each server that is not in its configured state.

    It gets `Down` of its jobs, its retry timers, `settle` from `ConfigSync.reload`, and `reconcile` from the watcher.
    """

    traps_exit: ClassVar[bool] = True

    def __init__(self, sync: ConfigSync) -> None:
        """`sync` holds the configuration and the state of the servers."""
        self._sync = sync
        self._jobs: dict[Monitor, SyncStep] = {}
        self._busy: set[str] = set()
        self._paused: set[str] = set()
        self._waiting: list[tuple[set[str], Caller[None]]] = []
        """Waiting callers, each with the servers whose jobs it waits for."""

    async def init(self) -> None:
        """Start jobs that a predecessor did not finish."""
        self._sync.reconciler_started.wake()
        await self.reconcile()

    async def reconcile(self) -> None:
        """Start a job for each server that is not in its configured state."""
        sync = self._sync
        for name in dict.fromkeys((*sync.running, *sync.wanted, *sync.interrupted)):
            await self._start_job(name)
        self._reply_to_settled()

    async def settle(self) -> None:
        """Reconcile, and reply when the jobs have ended, with or without success."""
        self._paused.clear()
        for name in tuple(self._sync.failures):
            if name not in self._sync.wanted:
                del self._sync.failures[name]
        caller = self.caller
        await self.reconcile()
        self._waiting.append((set(self._busy), caller))
        self._reply_to_settled()
        return later()  # type: ignore[no-any-return]  # the reply (None) is sent later

    async def _start_job(self, name: str) -> None:
        if name in self._busy or name in self._paused:
            return
        step = self._sync.step(name)
        if step is None:
            self._sync.failures.pop(name, None)  # the file was edited back, so the failed change is no longer wanted
            return
        self._busy.add(name)
        pid = await supervise_job(self._sync.jobs, _run_step, self._sync, step)
        self._jobs[monitor(pid)] = step

    async def handle_info(self, message: Any) -> Any:
        """Handle the end of a job, or a retry timer."""
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
            await self._start_job(name)  # the configuration has changed meanwhile, or the step was done in part
            return
        self._paused.add(name)
        if not self._sync.is_permanent(name):
            send_after(_RETRY_AFTER, self.pid, _Retry(name))

    def _reply_to_settled(self) -> None:
        """Reply to callers whose servers have no job. A paused server counts as done: it was tried; later changes do not count."""
        for names, caller in self._waiting:
            names.intersection_update(self._busy)
            if not names:
                caller.reply(None)
        self._waiting = [one for one in self._waiting if one[0]]

    def report_state(self) -> str:
        """Jobs and retries, for the report."""
        return f"{len(self._jobs)} jobs, {len(self._paused)} waiting for a retry"


async def _run_step(sync: ConfigSync, step: SyncStep) -> None:
    try:
        await sync.run_step(step)
    except Exception:  # noqa: BLE001
        return  # `run_step` has recorded the failure


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


# --- The watcher checks the configuration files for changes, and reads them when they have not changed for a moment.
# It compares times, inode number and size about once a second, on the node's clock. Change notification (inotify and the like) differs by system and fails on
# network file systems and for files that do not exist yet; polling works everywhere and sees renames. A file that changes all the time is read now and then;
# a reading during which the file changed is discarded. A configuration with mistakes changes nothing, and is logged once.

if TYPE_CHECKING:
    FileStats: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]

_QUIET_FOR: Final = 0.2
"""The files are read after this many seconds without a change."""
_LONGEST_WAIT: Final = 2.0
"""The files are read at the latest this many seconds after a change."""


class _LookNow(NamedTuple):
    """Timer message of the watcher: check the files."""


class FileWatcher(GenServer):
    """Checks the files at an interval, and tells the reconciler about a new configuration. It gets only its own timer messages."""

    def __init__(self, sync: ConfigSync, every: float) -> None:
        """`every` is the interval between two checks, in seconds."""
        self._sync = sync
        self._every = every
        self._seen: FileStats = ()
        self._since: float | None = None
        """When the change that is not read yet was noticed; None without one."""

    def init(self) -> None:
        """Read at once: the files may have changed since a predecessor died."""
        self._seen = self._look()
        self._since = self.process.node.now()
        send_after(0.0, self.pid, _LookNow())

    def _look(self) -> FileStats:
        found: list[tuple[str, int, int, int, int] | None] = []
        for path in self._sync.files():
            try:
                status = os.stat(path)  # noqa: PTH116 - works for any path-like value
            except (OSError, ValueError):
                found.append(None)
            else:
                found.append((str(path), status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size))
        return tuple(found)

    def handle_info(self, message: Any) -> Any:
        """Check the files on the timer."""
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
        if before != self._seen:  # a file changed during the reading
            self._since = self.process.node.now()
            return
        if config != sync.latest and sync.accept(config):
            sync.reconciler.cast(Reconciler.reconcile)
        self._seen = self._look()  # the new configuration may have other files


# --- Steps from the running servers to the configured ones: a pure comparison, one step per server.

StepKind: TypeAlias = Literal["remove", "replace", "add", "adjust"]


@dataclass(frozen=True, slots=True)
class SyncStep:
    """A change of one server."""

    kind: StepKind
    """`adjust`: only settings that are read at each call differ, so the server keeps running."""
    name: str
    server: ServerConfig | None
    """The server's configuration; None if it is removed."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def step_for(name: str, wanted: ServerConfig | None, running: ServerConfig | None) -> SyncStep | None:
    """The step for one server; None if it is in its configured state."""
    if wanted is None:
        return None if running is None else SyncStep("remove", name, None)
    if running is None:
        return SyncStep("add", name, wanted)
    if wanted.has_same_effect(running):
        return None
    return SyncStep("adjust" if wanted.connects_as(running) else "replace", name, wanted)


def steps(wanted: Mapping[str, ServerConfig], running: Mapping[str, ServerConfig]) -> tuple[SyncStep, ...]:
    """The steps for all servers: removals first, to free resources, then replacements, then additions."""
    names = dict.fromkeys((*running, *wanted))
    found = [step for name in names if (step := step_for(name, wanted.get(name), running.get(name))) is not None]
    order: tuple[StepKind, ...] = ("remove", "replace", "adjust", "add")
    return tuple(sorted(found, key=lambda step: order.index(step.kind)))


# --- Rule transition: while servers change, stricter rules hold at once, looser rules when their server is ready.
# A file may change a server's program together with its rules. Until the new program is ready, calls go to the old one, for which the new rules were not
# written; and a removed server still answers during its grace time. So the rules under which a server was started count as long as it runs, in addition to
# the rules in force: the strictest verdict decides.

_STRICTNESS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")


class RuleTransition(Permissions):
    """The rules of a configuration, combined with the rules of servers that are still changing."""

    def __init__(
        self, config: HostConfig, others: Callable[[str], Iterable[RuleTransition]], *, allows_by_default: bool = False
    ) -> None:
        """`others` gives the further rules for a server. With `allows_by_default`, a tool without a rule is allowed if no rule allows anything."""
        super().__init__(
            config.permissions.rules, otherwise="ask" if config.ruled or not allows_by_default else "allow"
        )
        self._other_rules = others

    def of_tool(self, server: str, tool: str) -> RuleDecision:
        """The decision for a call of this tool."""
        return self._strictest(server, lambda one: Permissions.of_tool(one, server, tool))

    def of_elicitation(self, server: str) -> RuleDecision:
        """The decision for a question of this server to the user."""
        return self._strictest(server, lambda one: Permissions.of_elicitation(one, server))

    def _all(self, server: str) -> list[RuleTransition]:
        return [self, *(one for one in self._other_rules(server) if one is not self)]

    def _strictest(self, server: str, decide: Callable[[RuleTransition], RuleDecision]) -> RuleDecision:
        return max(map(decide, self._all(server)), key=lambda decision: _STRICTNESS.index(decision.verdict))

    def beside(self, own: Permissions) -> Permissions:
        """A program's own rules, with the denials of the files added."""
        return _DeniedByFiles(own.own if isinstance(own, _DeniedByFiles) else own, self)


class _DeniedByFiles(Permissions):
    """A program's own rules, with the denials of the configuration files added."""

    def __init__(self, own: Permissions, files: RuleTransition) -> None:
        super().__init__(own.rules)
        self.own = own
        self._files = files

    def of_tool(self, server: str, tool: str) -> RuleDecision:
        """The decision for a call of this tool."""
        decision = self._files.of_tool(server, tool)
        return decision if decision.verdict == "deny" else self.own.of_tool(server, tool)

    def of_elicitation(self, server: str) -> RuleDecision:
        """The decision for a question of this server to the user."""
        decision = self._files.of_elicitation(server)
        return decision if decision.verdict == "deny" else self.own.of_elicitation(server)
