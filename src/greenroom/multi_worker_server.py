"""Serving with several worker processes: `server.run("http", workers=4)`. The program that was run starts and watches them, and serves no client itself.

::

    workers (one_for_one)
    ├─ cluster         starts processes, and ends them
    ├─ handover        passes the listening sockets to each worker
    ├─ processes       a worker owner for each process, restarted with a growing delay
    ├─ inspect socket  if the operator may inspect this program
    └─ serving         has all workers serve when all are ready, and, as it stops first, has all drain at once

A worker that ends takes its own sessions with it, and no others; connections that it has not accepted go to the other workers. When the program ends, all workers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import secrets
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.catalogue import KINDS
from greenroom.actors.ensemble.routed_ids import MAX_NODES
from greenroom.actors.ensemble.session_router import SESSION_SERVER, NodeSlot, SessionServer
from greenroom.actors.handler_options import MAIN_MODULE, WORKER_MAIN_NAME, ImportPath, MainProgram, main_program
from greenroom.actors.pools.handler_spec import NotLoaded, load_function
from greenroom.supervision import (
    NO_CONNECTION,
    SHUTDOWN,
    ActorError,
    Backoff,
    CallTimeout,
    ChildSpec,
    Crash,
    Exit,
    GenServer,
    NotRegistered,
    On,
    Options,
    ProcessExited,
    Quit,
    Ref,
    Reject,
    Shutdown,
    StartFailed,
    Stop,
    Supervisor,
    child,
    current_node,
    exit,
    kill,
    send_after,
    start_link,
    terminate_child,
    visible,
    wait_down,
)
from greenroom.supervision.cluster import Cluster, ClusterSettings, NodeOwner, NodeSpec, launch_on
from greenroom.supervision.cluster.crash_output import PRINTED
from greenroom.supervision.event_bus import bus
from greenroom.transports.access_log import is_on
from greenroom.transports.access_log import log as access
from greenroom.transports.listening_sockets import (
    SocketHandoverFailed,
    create_shares_file,
    handover_child,
    new_socket_ticket,
    take_over_binding,
)

from . import program_runner
from .errors import ConfigError, GreenroomError
from .run_options import announce_urls, bind_sockets, urls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

    from greenroom.supervision import Continue, ExitReason, Ignore, NoReply
    from greenroom.supervision.cluster.node_engine import NodeEngine
    from greenroom.transports.http_config import HttpConfig
    from greenroom.transports.listening_sockets import Binding, SocketTicket

    from .inspect_protocol import Inspect
    from .observe.admin_settings import Admin
    from .observe.observed_program import ObservedProgram
    from .server import Server

log: Final = logging.getLogger("greenroom.multi_worker_server")

HUNG: Final = 30
"""Seconds without a sign of life after which a process counts as hung, and is replaced."""
RESTARTS: Final = 20
"""How often each worker may be replaced in a minute, before the program gives up."""
_START: Final = 120.0
_STOP: Final = 2.0
_BACKOFF: Final = Backoff(first=0.05, factor=2.0, longest=2.0, jitter=0.25, quiet=30.0)
"""The delays are short enough for that many restarts in a minute; with longer ones the program would never give up."""
_PRELOAD: Final = (
    "greenroom.server",
    "greenroom.transports.http_listener",
    "greenroom.transports.asgi",
    "greenroom.multi_worker_server",
)


def check_workers(workers: Any) -> int:
    """Check the number of workers. Raises `ConfigError`."""
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MAX_NODES:
        raise ConfigError(
            f"workers must be a whole number, 1 to {MAX_NODES}, or None to serve in this process, not {workers!r}"
        )
    return workers


class WorkerProcesses:
    """The settings and state of all workers of a program. They begin to serve when all are ready, or the first would get every client."""

    def __init__(  # noqa: PLR0913 - the facts about the workers
        self,
        count: int,
        application: ServerLocation,
        config: HttpConfig,
        binding: Binding,
        grace: float,
        *,
        inspectors: Sequence[ChildSpec[Any]] = (),
        inspect: Inspect = False,
        admin: Admin | None = None,
    ) -> None:
        """`binding` listens since it was made. Each worker has `grace` seconds to drain.

        `inspectors` let the operator inspect this program, and `inspect` says how each worker can be inspected as well. With `admin`, each worker collects what
        the program's admin listener asks for.
        """
        if config.is_tls:
            paths = {word: getattr(config, word) for word in ("certfile", "keyfile", "cacertfile")}
            config = replace(config, **{word: os.path.abspath(path) for word, path in paths.items() if path})  # noqa: PTH100
        self.names = tuple(f"worker-{number}" for number in range(1, count + 1))
        self.grace = grace
        self.announce: Callable[[], object] = lambda: None
        """Called when all workers serve for the first time."""
        self.binding = binding
        self._cluster = Cluster(ClusterSettings(misses=HUNG, preload=_PRELOAD))
        self.open = False
        self._application = application
        self._config = config
        self._inspectors = inspectors
        self._inspect: Inspect = inspect
        # A worker gets what it has to know: who may see it is the parent's to check.
        self._admin = None if admin is None else replace(admin, host=_LOOPBACK, auth=None, scope=None, act_scope=None)
        self._key = secrets.token_bytes(32)
        self._ticket = new_socket_ticket()
        self._page = create_shares_file(count)
        self._addresses: dict[str, Sequence[str]] = {}
        """The addresses of each worker's node."""

    def child_spec(self) -> ChildSpec[Any]:
        """The whole, as a child of the program's top supervisor."""
        worker_specs = [self._worker_spec(number) for number in range(len(self.names))]
        restarts = RESTARTS * len(self.names)
        children: list[ChildSpec[Any]] = [
            self._cluster.child_spec(),
            handover_child(self.binding, self._ticket, self._page),
            child(Supervisor, worker_specs, intensity=restarts, period=60.0, backoff=_BACKOFF).but(
                id="processes", restart="transient", significant=True, name=_OWNERS
            ),
            *self._inspectors,
            child(ServingControl, self).but(id="serving", shutdown=self.grace + 2 * _DRAIN_SLACK),
        ]
        # Giving up on the workers ends all of this (`auto_shutdown`): a restart would begin to count from zero again.
        return child(Supervisor, children, intensity=5, period=10.0, auto_shutdown="any_significant").but(id="workers")

    def _worker_spec(self, number: int) -> ChildSpec[Any]:
        name = self.names[number]
        slot = NodeSlot(number, self.names, self._key)
        spec = NodeSpec(name=name, start_timeout=_START, stop_timeout=_STOP)
        tracer = bus.tracer
        telemetry = tracer.home if tracer is not None and tracer.is_of_environment else ""
        served = WorkerNodeSpec(
            self._application, self._config, slot, self._ticket, self._inspect, is_on(), telemetry, self._admin
        )
        return child(WorkerOwner, self, self._cluster.engine, spec, served).but(
            id=name, shutdown=self.grace + _STOP + 1.0
        )

    async def ask(self, name: str, request: bytes, seconds: float) -> bytes:
        """The answer of a worker to the admin listener's request. Raises `ActorError`."""
        return await Ref[WorkerNode](On(WORKER_NODE, name), seconds).call(WorkerNode.observed, request)

    def missing(self) -> Sequence[str]:
        """Why no client can be served: empty while one worker runs, since it takes the clients of those that are being restarted."""
        from .observe.readiness import missing_parts  # noqa: PLC0415 - only for programs with an admin listener

        reasons = tuple(missing_parts(_OWNERS))
        return reasons if len(reasons) >= len(self.names) or not self.open else ()

    def on_node_started(self, name: str, addresses: Sequence[str]) -> None:
        """Introduce a new worker's node to the others, and them to it."""
        for other, theirs in self._addresses.items():
            if other != name:
                Ref[SessionServer](On(SESSION_SERVER, other)).cast(SessionServer.introduce, name, addresses)
                Ref[SessionServer](On(SESSION_SERVER, name)).cast(SessionServer.introduce, other, theirs)
        self._addresses[name] = addresses


def run_workers(
    server: Server,
    config: HttpConfig,
    grace: float,
    count: int,
    *,
    inspect: Inspect = False,
    admin: Admin | None = None,
) -> None:
    """Bind the address, and run the workers until a signal comes. Raises `ConfigError`, `CannotListen`, `GaveUp`."""
    from .inspect_socket import inspect_child  # noqa: PLC0415 - a worker loads it only when it is inspected

    application = application_of(server)
    name, binding = server.settings.name, bind_sockets(config)
    try:
        urls = urls_of(binding, config)
        inspectors = [inspect_child(name, lambda: urls, inspect=inspect)] if inspect else []
        workers = WorkerProcesses(
            count, application, config, binding, grace, inspectors=inspectors, inspect=inspect, admin=admin
        )
        workers.announce = lambda: announce_urls(name, urls)
        children = [workers.child_spec()]
        if admin is not None:
            from .observe.admin_listener import AdminPart  # noqa: PLC0415 - only for programs that ask for it
            from .observe.observed_workers import ObservedWorkers  # noqa: PLC0415 - as above

            observed = partial(ObservedWorkers, admin, name, workers.names, workers.ask, urls=lambda: urls)
            children = AdminPart(admin, name, workers.missing, observed=observed).around(*children)
        with echo_worker_output():
            program_runner.run(lambda: children, grace=grace)
    except (ActorError, NotLoaded, SocketHandoverFailed) as error:
        cause = worker_error(error)
        ours = isinstance(cause, GreenroomError)  # such errors explain themselves
        text = str(cause) if ours else f"{type(cause).__name__}: {cause}"
        sys.exit(f"greenroom: no worker could be started: {text}")
    finally:
        binding.close()


@contextlib.contextmanager
def echo_worker_output() -> Generator[None]:
    """While this is open, the lines that workers print are printed here."""
    logger, echo = logging.getLogger(PRINTED), _Echo()
    before, level = logger.propagate, logger.level
    logger.addHandler(echo)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(echo)
        logger.propagate = before
        logger.setLevel(level)


class _Echo(logging.Handler):
    """Prints the records of printed lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print to the same stream as the worker did."""
        with contextlib.suppress(OSError, ValueError):  # the output has no reader
            print(
                visible(record.getMessage(), lines=True),
                file=sys.stdout if record.levelno < logging.WARNING else sys.stderr,
                flush=True,
            )


# --- One worker, as the main program sees it: its process, and the supervisor that serves in it. It lives as long as both do.
# Its supervisor restarts it. When a process ends, its links are gone a little earlier than its exit status is known: wait for the status, so that the log names the
# signal and not a lost connection.

_PATIENCE: Final = 2.0
"""Seconds to wait for the exit status of a process that cannot be reached."""
_SLACK: Final = 1.0
_LATE: Final = object()


class WorkerOwner(GenServer):
    """One per worker."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self, workers: WorkerProcesses, engine: Ref[NodeEngine], spec: NodeSpec, served: WorkerNodeSpec
    ) -> None:
        """`served` goes to the `WorkerNode`, which has the grace of all workers to stop; its process has the `stop_timeout` of `spec`."""
        assert spec.name is not None
        self._workers = workers
        self._engine = engine
        self._spec = spec
        self._name: str = spec.name
        self._served = served
        self._host: Ref[NodeOwner] | None = None
        self._node: Ref[WorkerNode] | None = None

    async def init(self) -> None:
        """Start the process and the worker node in it. It serves when all are ready; after a restart at once."""
        self._host = await start_link(NodeOwner, self._engine, self._spec)
        try:
            self._node = worker = await launch_on(
                self._name, Options(name=WORKER_NODE), WorkerNode, (self._served,), link=True
            )
        except StartFailed as failed:  # the cause is in the log already, by its own report
            raise Quit(Shutdown(worker_error(failed))) from None
        addresses = await worker.call(WorkerNode.addresses)
        self._workers.on_node_started(
            self._name, addresses
        )  # before a request for another worker's session can come to it
        if self._workers.open:
            await worker.within(None).call(WorkerNode.open)

    def handle_info(self, message: Any) -> Stop | None:
        """The process or the worker node has ended."""
        match message:
            case Exit(reason=reason) if reason == NO_CONNECTION:
                send_after(_PATIENCE, self.pid, _LATE)
            case Exit(reason=reason):
                return Stop(_short_reason(reason))
            case _ if message is _LATE:
                return Stop(Shutdown("its node cannot be reached"))
            case _:
                super().handle_info(message)
        return None

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for any reason
        """Stop the worker node in order, then the process."""
        await _stop_and_wait(self._node, self._workers.grace)
        await _stop_and_wait(self._host, self._spec.stop_timeout + _SLACK)


def worker_error(failed: BaseException) -> BaseException:
    """The first cause of a failed start of a worker, or of its supervisor."""
    reason: Any = getattr(failed, "reason", None)
    while isinstance(reason, Crash | Shutdown):
        cause: Any = reason.error if isinstance(reason, Crash) else reason.detail
        if isinstance(cause, BaseException):
            failed = cause
        reason = getattr(cause, "reason", None)
    return failed


def _short_reason(reason: ExitReason) -> ExitReason:
    """A short reason for the report: the process concerned has reported it in full."""
    return Shutdown(str(reason.error)) if isinstance(reason, Crash) else reason


async def _stop_and_wait(ref: Ref[Any] | None, seconds: float) -> None:
    if ref is None:
        return
    exit(ref, SHUTDOWN)
    try:
        await wait_down(ref, seconds)
    except CallTimeout:
        kill(ref)
        with contextlib.suppress(ActorError):
            await wait_down(ref, _SLACK)


# --- Whether the workers accept clients.

_DRAIN_SLACK: Final = 0.5


class ServingControl(GenServer):
    """The last child of the program's tree: it lets all workers serve when all are ready, and has all drain before anything else stops."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, workers: WorkerProcesses) -> None:
        self._workers = workers

    async def init(self) -> None:
        """Let all workers serve. At the first start, a worker that cannot keeps the program from starting."""
        first, self._workers.open = not self._workers.open, True
        await self._all(None, lambda worker: _open_worker(worker, first=first))
        if first:
            self._workers.announce()

    async def terminate(self, reason: ExitReason) -> None:
        """Refuse new connections, and let running calls finish, in all workers at once."""
        if not isinstance(reason, Crash):
            self._workers.open = False
            self._workers.binding.shut_down()  # before anything else: from then on new connections are refused
        await self._all(self._workers.grace + _DRAIN_SLACK, _drain_worker)

    async def _all(self, seconds: float | None, act: Callable[[Ref[WorkerNode]], Coroutine[None, None, None]]) -> None:
        await asyncio.gather(*(act(Ref[WorkerNode](On(WORKER_NODE, name), seconds)) for name in self._workers.names))


async def _open_worker(worker: Ref[WorkerNode], *, first: bool) -> None:
    try:
        await worker.call(WorkerNode.open)
    except ProcessExited as error:  # a worker that is being restarted asks by itself whether to serve
        match error.reason:
            case Shutdown(detail=ActorError() as why) if first:
                raise why from None
            case _:
                pass


async def _drain_worker(worker: Ref[WorkerNode]) -> None:
    with contextlib.suppress(ProcessExited, CallTimeout):  # a worker that has not finished by now is stopped next
        await worker.call(WorkerNode.drain)


# --- The supervisor in a worker process: it imports the application, takes over the listening sockets, and starts the company beside a session server.
# The main program starts it, and is linked to it: the worker ends with the program.

WORKER_NODE: Final = "greenroom.worker_node"
_OWNERS: Final = "greenroom.worker_owners"
_LOOPBACK: Final = "127.0.0.1"
_INTENSITY: Final = 3


@dataclass(frozen=True, slots=True)
class WorkerNodeSpec:
    """The settings of a `WorkerNode`, sent by the main program."""

    application: ServerLocation
    config: HttpConfig
    slot: NodeSlot
    ticket: SocketTicket
    inspect: Inspect
    """Whether the worker can be inspected, and acted on."""
    logs_access: bool
    """Whether the main program writes an access log, to which the worker's records go."""
    telemetry: str = ""
    """The module whose `WorkerTelemetry` the worker starts, if the main program traces its calls as the environment says."""
    admin: Admin | None = None
    """What the worker collects for the main program's admin listener."""


class WorkerNode(Supervisor):
    """One per worker process."""

    def __init__(self, spec: WorkerNodeSpec) -> None:
        super().__init__()
        self._node_spec = spec
        self._company: Any = None
        self._serving: ChildSpec[Any] | None = None
        self._observed: ObservedProgram | None = None

    async def init(self) -> Continue | NoReply | Ignore | Stop | None:
        """Import the application, take over the sockets, and prepare the session server."""
        spec = self._node_spec
        try:
            server = await asyncio.to_thread(spec.application.load)
        except ConfigError as error:  # an error for the user, shown by the main program: nothing has crashed
            raise Quit(Shutdown(error)) from None
        access.setLevel(logging.INFO if spec.logs_access else logging.CRITICAL)
        binding = await take_over_binding(spec.ticket, spec.slot.number)
        self._company = server.company.name("company")
        if spec.admin is not None:
            from .observe.observed_program import ObservedProgram  # noqa: PLC0415 - only for programs that ask for it

            self._observed = ObservedProgram(spec.admin, server.settings.name)
            self._observed.start()
        session_server, self._serving = server.children_at(spec.slot, spec.config, binding, inspect=spec.inspect)
        children = [session_server]
        if spec.telemetry:
            make = import_module(spec.telemetry).WorkerTelemetry
            children.insert(0, child(make, server.settings.name).but(id="telemetry"))
        super().__init__(children, intensity=_INTENSITY)
        return await super().init()

    async def open(self) -> None:
        """Serve, unless it does already. When the server cannot start (a lifespan's resource is away, say), the worker ends."""
        serving, self._serving = self._serving, None
        if serving is not None:
            try:
                await self.start_child(serving)
            except Reject as refused:  # otherwise only its caller would learn of it; the failed start was reported
                raise Quit(Shutdown(refused.error)) from None

    async def observed(self, request: bytes) -> bytes:
        """The answer to a request of the main program's admin listener."""
        from .observe.observed_workers import answer_parent  # noqa: PLC0415 - only for programs that ask for it

        if self._observed is None:
            raise Reject(ConfigError("this worker collects nothing: the program has no admin listener"))
        return await answer_parent(self._observed, request)

    def addresses(self) -> Sequence[str]:
        """The addresses of this node's links."""
        elsewhere: Any = current_node().remote_nodes
        return tuple(elsewhere.addresses)

    async def drain(self) -> None:
        """Accept no more connections, and let running calls finish within the listeners' grace."""
        with contextlib.suppress(NotRegistered):  # it has never served
            await terminate_child(self._company, "listeners")


# --- Finding this program's server in another process: by its module, and its name there.

_SHOWN: Final = 10
"""How many missing registrations an error names."""
_INSTEAD: Final = (
    "other processes import it by its name, so give it one at the top of a module: `server = Server(…)`, "
    "or `server = make_server()`"
)


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """The place of a server for other processes, and its registrations in this program."""

    found: ImportPath
    main: MainProgram | None
    registered: tuple[tuple[str, str], ...] = ()
    """Each registration with the module of its function."""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that were changed after the server was made."""

    def __str__(self) -> str:
        return str(self.found)

    def load(self) -> Server:
        """Import the module and return the server. Blocks for as long as that takes. Raises `NotLoaded`, and `ConfigError`."""
        from .server import Server  # noqa: PLC0415 - `server` imports this module

        server: Any = load_function(self.found, self.main)
        if not isinstance(server, Server):
            raise ConfigError(f"{self.found} is no Server when another process imports it, but {server!r}")
        self._compare(server)
        if self.changes:
            server.set_up(**self.changes)
        return server

    def _compare(self, server: Server) -> None:
        """Raise `ConfigError` when the import has registered less than the program has: the worker would lack it without a word."""
        here = {what for what, _ in registrations_of(server)}
        missing = [(what, module) for what, module in self.registered if what not in here]
        if not missing:
            return
        shown = ", ".join(f"{what} (of {module})" for what, module in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        home = self.main.file or self.main.module if self.main is not None else f"the module {self.found.module}"
        modules = sorted({module for _, module in missing} - {MAIN_MODULE, self.found.module})
        if modules:
            hint = f'write `import {", ".join(modules)}` in it, above `if __name__ == "__main__":`'
        elif self.main is None and any(module == MAIN_MODULE for _, module in missing):
            hint = "register it in a module that it imports, or make the server in the program's own file"
        else:
            hint = 'register it above `if __name__ == "__main__":`, where an import executes it'
        raise ConfigError(
            f"worker processes import {home}, and there {self.found.name} lacks some registrations of this program: "
            f"{shown}{more} would be missing; {hint}"
        )


def application_of(server: Server) -> ServerLocation:
    """The location of a server. Raises `ConfigError` when another process could not find it."""
    for module, names in sorted(_importable().items()):
        for name, value in names:
            if value is server:
                return ServerLocation(ImportPath(module, name), None, registrations_of(server), server.changes)
    main = main_program()
    for name, value in tuple(vars(sys.modules[MAIN_MODULE]).items()):
        if value is server:
            if main is None:
                raise ConfigError(f"this program is in no file, from which workers could import it: {_INSTEAD}")
            return ServerLocation(ImportPath(MAIN_MODULE, name), main, registrations_of(server), server.changes)
    raise ConfigError(f"workers cannot find this server: {_INSTEAD}")


def registrations_of(server: Server) -> tuple[tuple[str, str], ...]:
    """All registrations with the modules of their functions, and lifespans and mounted hosts, which a worker would lack without a word."""
    found = [
        (f"{kind.replace('_', ' ')} {name!r}", _module_of(entry.handler.function))
        for kind in KINDS
        for name, entry in server.registry.catalogue.all(kind).items()
    ]
    lifespans = [(f"lifespan {name}", module) for name, module in server.lifespans()]
    return (*found, *lifespans, *((f"mounted host {number}", MAIN_MODULE) for number in range(1, server.mounted + 1)))


def _module_of(function: Any) -> str:
    module: Any = getattr(inspect.unwrap(function), "__module__", None)
    return MAIN_MODULE if module == WORKER_MAIN_NAME or not isinstance(module, str) else module


def _importable() -> dict[str, list[tuple[str, Any]]]:
    """The names in all modules that another process can import; the main program is found in another way."""
    return {
        name: list(vars(module).items())
        for name, module in tuple(sys.modules.items())
        if name != MAIN_MODULE and getattr(module, "__spec__", None) is not None
    }
