"""`Server`: offers a program's functions to MCP clients, and the ways to run it.

::

    server = Server("weather")

    @server.tool
    async def forecast(city: str, days: int = 3) -> list[Day]: ...

    server.run()                        # stdio; or server.run("http", port=8000)
    app = server.asgi()                 # for any ASGI server, alone or mounted
    Supervisor([server.child_spec()])   # a child among others

A `Server` is not a process: it holds the configuration and registrations, and builds the child specs of the company that serves it.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from inspect import signature, unwrap
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast
from weakref import WeakSet

from greenroom.actors.catalogue import KINDS, LISTINGS, CatalogueRef, announced_scopes
from greenroom.actors.company import Company
from greenroom.actors.extensions import Extension
from greenroom.actors.pools.handler_spec import stop_import_in_worker
from greenroom.actors.session_supervisor import count_sessions
from greenroom.actors.settings import Settings
from greenroom.actors.subscriptions import announce_list_changed
from greenroom.actors.task_store import TaskStoreError
from greenroom.actors.url_elicitations import ElicitationDone, find_eliciting_session
from greenroom.actors.worker_interfaces import Hooks, company_of_call
from greenroom.supervision import child, current_node, delete_child, start_child, terminate_child
from greenroom.transports.asgi import AsgiRouter
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.listening_sockets import CannotListen
from greenroom.transports.stdio import LINE_LIMIT, StandardStreams, StdioWire, stdio_child
from greenroom.transports.tls import Certificates

from . import program_runner
from .asgi_mount import CLOSE_TIMEOUT, LifespanProcess, MountedApp, opener_of
from .child_runner import ChildRunner
from .console_log import LogOptions
from .decorators import Decorators, Registrations
from .errors import ConfigError, suggests
from .run_options import (
    announce_urls,
    auth_gate_of,
    check_admin,
    check_inspect,
    check_options,
    check_run,
    check_store,
    closed_on_failure,
    grace_periods,
    http_config,
    urls_of,
)
from .server_tasks import ServerTasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from typing import Self, Unpack

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import ConnectedPeers
    from greenroom.actors.context import Context
    from greenroom.actors.ensemble.session_router import NodeSlot
    from greenroom.actors.gateway.gateway import Gateway
    from greenroom.actors.server_registry import WaitFor
    from greenroom.actors.task_store import TaskStore
    from greenroom.actors.thespian_guests.guest_listener import GuestListener
    from greenroom.actors.worker_interfaces import WorkerServices
    from greenroom.auth.auth_info import AuthProvider
    from greenroom.protocol.cache_hints import Cache
    from greenroom.supervision import ChildSpec, Node
    from greenroom.transports.http_config import HttpConfig
    from greenroom.transports.interfaces import SessionRouter
    from greenroom.transports.listening_sockets import Binding
    from greenroom.transports.quart_door import Quart

    from .asgi_mount import Caller
    from .decorators import ToolKeywords
    from .host import Host
    from .inspect_protocol import Inspect
    from .observe.admin_listener import AdminPart
    from .observe.admin_settings import Admin

    Transport = Literal["stdio", "http"]

F = TypeVar("F", bound="Callable[[], Any]")


class Server(Decorators):
    """An MCP server: a name, the registered functions, and the configuration."""

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Refuse unknown options with a suggestion; Python's own error would only name the option."""
        check_options(cls.__init__, options)
        return super().__new__(cls)

    def __init__(  # noqa: PLR0913 - all optional and by keyword
        self,
        name: str,
        *,
        version: str | None = None,
        title: str | None = None,
        instructions: str | None = None,
        settings: Settings | None = None,
        hooks: Hooks | None = None,
        wait_for: WaitFor = None,
        task_store: TaskStore | None = None,
        auth: AuthProvider | Sequence[AuthProvider] | None = None,
        required_scopes: Collection[str] = (),
        extensions: Sequence[Extension] = (),
        cache: Cache | float | Mapping[str, Cache] | None = None,
    ) -> None:
        """`settings` has all settings; arguments given beside it take precedence. `hooks` are called for sessions.

        `auth` authenticates callers over HTTP, however it is served: one provider, or several, of which the first one that recognizes the credentials
        decides. All callers need all `required_scopes`. Callers over stdio and in memory are on this machine and are not authenticated.

        Lookups in the company's registry wait for `wait_for`: the name of a process, an event, or any awaitable. Tasks are lost when the program
        ends, unless a `task_store` keeps them: `SqliteTasks("tasks.db")`.

        `extensions` add methods to the protocol: see `Extension`. `cache` is how long clients may keep lists: `Cache(60)`, or hints by method.
        """
        if settings is not None and not isinstance(cast("object", settings), Settings):
            raise ConfigError(f"settings must be Settings(…), not {settings!r}")
        if not isinstance(cast("object", name), str):
            raise ConfigError(f'a server needs a name, as in Server("weather"), not {name!r}')
        if hooks is not None and not isinstance(cast("object", hooks), Hooks):
            raise ConfigError(
                f"hooks must be Hooks(init=…, around=…), one value with a function for each, not {hooks!r}"
            )
        check_store(task_store)
        fields: dict[str, Any] = {"name": name, "version": version, "title": title, "instructions": instructions}
        fields["cache"] = cache
        given = {word: value for word, value in fields.items() if value is not None}
        self.settings = replace(settings or Settings(), **given)
        self._auth_gate = auth_gate_of(auth, required_scopes)
        self._catalogue = catalogue = CatalogueRef()
        if self._auth_gate is not None:
            self._auth_gate.program = self.settings.name
            self._auth_gate.operation_scopes = lambda headers: announced_scopes(headers, catalogue.current)
        self.registry = Registrations(self._catalogue, self._changed)
        self.company = Company(
            self.settings, catalogue_ref=self._catalogue, hooks=hooks, wait_for=wait_for, task_store=task_store
        )
        self.changes: Mapping[str, Any] = {}
        """The changes by `set_up`, for the other processes that serve this server."""
        # Weak, so that a server that outlives its loops, as in tests, keeps no closed node alive.
        self._nodes: WeakSet[Node] = WeakSet()
        self.tasks = ServerTasks(self.company, self._nodes)
        """Starts, ends and lists tasks of the program itself. From any thread."""
        self._admin: Admin | None = None
        """The admin listener of `started`."""
        self._runner = ChildRunner(lambda: self.child_spec(admin=self._admin))
        self._pages: Quart | None = None
        self._bindings: list[tuple[Binding, HttpConfig]] = []
        self._certificates: list[Certificates] = []
        self._gateways: list[Gateway] = []
        self._lifespans: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self._extra_children: list[ChildSpec[Any]] = []
        """Further children beside the company's listeners."""
        self._guest_listeners: list[GuestListener] = []
        for extension in extensions:
            self.extend(extension)

    def __repr__(self) -> str:
        return f"<Server {self.settings.name}>"

    def set_up(self, **changes: Any) -> None:
        """Change settings before the server runs, by field names of `Settings`. Raises `BadSetting`, and `ConfigError` once it runs.

        For programs that serve another module's server, as `greenroom serve` does. Workers get the same changes.
        """
        if self._is_running:
            raise ConfigError("set_up() must be called before the server runs")
        known = {each.name for each in fields(Settings)}
        if unknown := sorted(changes.keys() - known):
            raise ConfigError(f"there is no setting {unknown[0]!r}: there are {', '.join(sorted(known))}")
        self.settings = replace(self.settings, **changes)
        self.company.set_up(self.settings)
        self.changes = {**self.changes, **changes}

    @property
    def urls(self) -> list[str]:
        """The HTTP URLs, once a listener is made; port 0 is replaced by the real port."""
        return [url for binding, config in self._bindings for url in urls_of(binding, config)]

    @property
    def http(self) -> Quart:
        """The Quart application for pages of your own beside the endpoint: ``@server.http.get("/status")``. Quart is loaded with its first use.

        Pages answer to the names in `allowed_hosts` alone, and what may change a state to `allowed_origins` alone. The server's `auth` is not asked for them.
        """
        if self._pages is None:
            from greenroom.transports.quart_door import make_application  # noqa: PLC0415 - few servers have pages

            self._pages = make_application()
        return self._pages

    @property
    def _running_nodes(self) -> list[Node]:
        return [node for node in tuple(self._nodes) if node.running]

    @property
    def _is_running(self) -> bool:
        return bool(self._running_nodes)

    @property
    def mounted(self) -> int:
        """The number of mounted hosts."""
        return len(self._gateways)

    # --- lifespans

    def lifespan(self, function: F, /) -> F:
        """Register a lifespan: ``@server.lifespan`` on an `async def` that yields once.

        The code before the `yield` runs before the first peer is admitted, the code after it when the server has stopped. The function takes no
        arguments; what it opens goes into a variable of the program. An exception before the `yield` keeps the server from starting. There may be
        several: each opens after those before it, and closes before them. Handlers in processes of their own do not see what it opened.
        """
        if self._is_running:
            raise ConfigError("a lifespan must be registered before the server runs")
        self._lifespans.append(opener_of(function))
        return function

    def lifespans(self) -> list[tuple[str, str]]:
        """The registered lifespans: name and module."""
        found = [unwrap(each) for each in self._lifespans]
        return [(getattr(each, "__name__", repr(each)), getattr(each, "__module__", "")) for each in found]

    # --- extensions of the protocol

    def extend(self, extension: Extension) -> None:
        """Add an extension, as `Server(extensions=[…])` does. Raises `RegistrationError` for one that is there, or whose methods are."""
        if not isinstance(cast("object", extension), Extension):
            raise ConfigError(
                f'an extension is a value of its own: write Extension("com.example/notes"), not {extension!r}'
            )
        self._catalogue.write(lambda catalogue: catalogue.extended(extension))
        extension.attach(self.registry)

    def skills(
        self,
        *folders: str | PathLike[str],
        scopes: Collection[str] = (),
        refresh: float = 1.0,
        cache: Cache | None = None,
    ) -> None:
        """Serve the skills in these folders: each folder with a `SKILL.md` is one, and all its files are resources. See `Skills`."""
        from greenroom.actors.skills import Skills  # noqa: PLC0415 - few servers have any

        self.extend(Skills(*folders, scopes=scopes, refresh=refresh, cache=cache))

    # --- running

    @suggests("server.run()")
    def run(  # noqa: PLR0913 - all optional and by keyword
        self,
        transport: Transport = "stdio",
        *,
        host: str | None = None,
        port: int | None = None,
        config: HttpConfig | None = None,
        grace: float | None = None,
        line_limit: int = LINE_LIMIT,
        workers: int | None = None,
        inspect: Inspect = False,
        access_log: bool | None = None,
        log_json: bool = False,
        admin: Admin | None = None,
    ) -> None:
        """Serve until the peer disconnects (stdio) or a signal comes; then stop in order.

        Stopping takes at most `grace` seconds: 5, or what `HttpConfig(drain_grace=…)` needs. `line_limit` is the longest message on stdio in bytes;
        for HTTP see `config`. With `workers`, as many processes serve HTTP under this one; they import this server by its name. `inspect` lets this
        user see the program with `greenroom top`, `tree`, `logs` and the like, also its workers, named `name-1`, `name-2` and so on; with `inspect="acts"`
        also act on it. `access_log=True` logs each call and
        refusal to stderr, or to the program's own log if it has set one up; False disables that; None leaves it to the logger `greenroom.access`.
        `log_json` logs JSON lines. `admin` adds a listener for health checks, metrics and the observer in a browser: `Admin()`. Exits with code 1 when the tree cannot be kept alive.
        """
        stop_import_in_worker("server.run()")
        program_runner.check_no_loop()
        check_inspect(inspect)
        if inspect and workers is None:
            self._add_inspect_socket(self.settings.name, inspect)
        with LogOptions(access=access_log, json=log_json).applied():
            try:
                check_run(transport, host=host, port=port, config=config, workers=workers, grace=grace)
                if admin is not None:
                    check_admin(admin)
                if transport == "stdio":
                    self._run_stdio(program_runner.GRACE if grace is None else grace, line_limit, admin)
                else:
                    config, grace = grace_periods(http_config(config, host, port), grace)
                    self._run_http(config, grace, workers, inspect=inspect, admin=admin)
            except (ConfigError, CannotListen) as error:
                raise error.with_traceback(
                    None
                ) from None  # the message is enough; twenty internal frames would hide it
            except (program_runner.GaveUp, TaskStoreError) as error:
                sys.exit(f"greenroom: {error}")

    def _run_stdio(self, grace: float, line_limit: int, admin: Admin | None) -> None:
        streams = StandardStreams()
        wire = StdioWire(self.company, streams.input, streams.output, line_limit=line_limit)

        async def until(start_grace: Callable[[], None]) -> None:
            await wire.ending.wait()
            start_grace()
            await wire.finished.wait()

        name, patience = self.company.name("stdio"), program_runner.grace_of_calls(grace)
        try:
            children = self._around(admin, self._spec([stdio_child(wire, name=name, grace=patience)]))
            program_runner.run(lambda: children, until, grace=grace)
        finally:
            wire.close()
            streams.close()

    def _add_inspect_socket(self, name: str, inspect: Inspect) -> None:
        from .inspect_socket import inspect_child  # noqa: PLC0415 - rarely used

        self._extra_children.append(inspect_child(name, lambda: self.urls, inspect=inspect))

    def _around(self, admin: Admin | None, spec: ChildSpec[Any]) -> list[ChildSpec[Any]]:
        return [spec] if admin is None else self._admin_part(admin).around(spec)

    def _admin_part(self, admin: Admin) -> AdminPart:
        from .server_parts import admin_part_of  # noqa: PLC0415 - only for programs that ask for it

        return admin_part_of(self, admin)

    def _run_http(
        self, config: HttpConfig, grace: float, workers: int | None, *, inspect: Inspect, admin: Admin | None
    ) -> None:
        if workers is not None:
            from .multi_worker_server import run_workers  # noqa: PLC0415 - rarely used, and it loads the cluster

            run_workers(self, config, grace, workers, inspect=inspect, admin=admin)
            return
        with closed_on_failure(config) as binding:
            children = self._around(admin, self._spec([self._http_listener(config, binding)]))
            program_runner.run(
                lambda: children, grace=grace, ready=lambda: announce_urls(self.settings.name, self.urls)
            )

    def children_at(
        self, place: NodeSlot, config: HttpConfig, binding: Binding, *, inspect: Inspect = False
    ) -> Sequence[ChildSpec[Any]]:
        """The children for one of several nodes that share sockets. For workers."""
        from greenroom.actors.ensemble.session_router import EnsembleMember  # noqa: PLC0415 - as above

        if self._auth_gate is not None:
            self._auth_gate.share(place.key)
        for each in self._guest_listeners:
            each.stands_by = True  # one node admits guests, and another one takes over when it is gone
        if inspect:
            self._add_inspect_socket(f"{self.settings.name}-{place.number + 1}", inspect)
        member = EnsembleMember(self.company, place, self._reload_own_certificates)
        if binding.shares is not None:
            binding.shares.extra_load = lambda: count_sessions(self.company)
        return [member.child, self._spec([self._http_listener(config, binding, member.router, place.key)])]

    def child_spec(  # noqa: PLR0913 - all optional and by keyword
        self,
        transport: Transport | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        config: HttpConfig | None = None,
        streams: StandardStreams | None = None,
        line_limit: int = LINE_LIMIT,
        admin: Admin | None = None,
    ) -> ChildSpec[Any]:
        """The whole company as a child of any supervisor, with a transport if one is named, and with an admin listener.

        `"stdio"` takes over the program's standard streams at once, unless `streams` are given.
        """
        if admin is not None:
            part = self._admin_part(admin)
            with part.closed_on_failure():
                served = self.child_spec(
                    transport, host=host, port=port, config=config, streams=streams, line_limit=line_limit
                )
            return part.beside(served)
        if transport is None:
            return self._spec([])
        check_run(transport, host=host, port=port, config=config)
        if transport == "http":
            config = http_config(config, host, port)
            with closed_on_failure(config) as binding:
                return self._spec([self._http_listener(config, binding)])
        streams = StandardStreams() if streams is None else streams
        wire = StdioWire(self.company, streams.input, streams.output, line_limit=line_limit)
        return self._spec([stdio_child(wire, name=self.company.name("stdio"))])

    def asgi(self, config: HttpConfig | None = None, *, caller: Caller | None = None) -> MountedApp:
        """An ASGI application, for any ASGI server, or mounted in another application at any path.

        The first request starts the company in its event loop. The company ends with the host's lifespan, if the host passes it on or uses the
        application's `.lifespan` as its own. `caller` gets a request's scope and returns the `AuthInfo` of the user authenticated by the host, or
        None; by default that is the user found by Starlette's `AuthenticationMiddleware`. A server with `auth` of its own authenticates callers by that instead.
        """
        engine = self._engine(http_config(config, None, None))
        endpoint = AsgiRouter(engine, own_pages=lambda: self._pages, is_mounted=True)
        return MountedApp(self._runner, endpoint, caller, opens=lambda: bool(self._lifespans))

    @asynccontextmanager
    async def started(self, *, admin: Admin | None = None) -> AsyncGenerator[Company]:
        """Run the company in this loop during the block, for tests and for programs with their own loop."""
        if not self._runner.is_active:
            self._admin = admin
        elif admin is not None:
            raise ConfigError("the server runs already: give admin=… where it is started first")
        await self._runner.acquire()
        try:
            yield self.company
        finally:
            await self._runner.release()

    def mount(
        self,
        host: Host,
        prefix: str = "",
        *,
        shared: bool | Collection[str] = False,
        most: int = 128,
        idle: float = 300.0,
    ) -> None:
        """Serve all servers of a host as well: their tools, resources, prompts and completions. To be called before the server runs.

        Every principal, or every session without a principal, has its own connections to them: at most `most`, each closed after `idle` seconds
        without use. `shared` servers have one connection for all callers: only for servers without state per client. `prefix` comes before all names,
        if several hosts are mounted.
        """
        if self._is_running:
            raise ConfigError("a host must be mounted before the server runs")
        from greenroom.actors.gateway.gateway import Gateway  # noqa: PLC0415 - rarely used, and large

        from .server_parts import GATEWAY_FEATURES, both_hooks, check_mount  # noqa: PLC0415 - as above

        check_mount(self, host, prefix)
        company, before = self.company, self._gateways
        listed = {listing.method for listing in LISTINGS} & company.hooks.answers.keys()
        if listed and not before:
            raise ConfigError(
                f"{self!r} answers {', '.join(sorted(listed))} itself: mount the host on a server of its own"
            )
        if prefix in {each.prefix for each in before}:
            raise ConfigError(f"a host is mounted with the prefix {prefix!r} already: give this one another")
        self.settings = replace(self.settings, capabilities={**GATEWAY_FEATURES, **self.settings.capabilities})
        company.set_up(self.settings)
        gateway = Gateway(
            host,
            company,
            outside=self.session,
            completed=self.elicitation_complete,
            beside=before[-1] if before else None,
            prefix=prefix,
            shared=shared,
            most=most,
            idle=idle,
        )
        hooks = company.hooks
        company.hooks = replace(
            hooks,
            answers=gateway.answers(),
            roots_changed=both_hooks(lambda _, facts: gateway.roots_changed(facts.session_id), hooks.roots_changed),
            level=both_hooks(lambda wanted, facts: gateway.level(facts.session_id, wanted), hooks.level),
        )
        self._gateways.append(gateway)
        company.catalogue_ref.write(lambda catalogue: catalogue.with_mounted(gateway))

    def thespian_tool(
        self,
        system: Any,
        actor: Any,
        name: str | None = None,
        *,
        request: Callable[..., Any],
        reply: Callable[[Any], Any] | None = None,
        **options: Unpack[ToolKeywords],
    ) -> None:
        """Offer an actor of a Thespian system as a tool: its arguments are those of `request`, which makes the message to send.

        `actor` is an address; or a class, of which one actor is created at the first call and ended with the server. `reply` converts the actor's
        answer to the result; by default it is the result. If the actor does not answer within `timeout` (30 seconds), fails or is gone, the result is
        an `isError` that says so.
        """
        from .thespian_tools import register_actor_tool  # noqa: PLC0415 - it loads Thespian

        made = register_actor_tool(
            self.registry, system, actor, name=name, request=request, reply=reply, options=options
        )
        self._extra_children.append(made)

    def admit_guests(
        self, key: bytes | str | PathLike[str], *, address: str | None = None, most_guests: int = 64
    ) -> GuestListener:
        """Admit Thespian programs over an authenticated link while the server runs: see `greenroom.thespian`. They see a server of this name.

        `key` is bytes, or a file that only its owner can read. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default a generated
        local address, which the returned listener knows.
        """
        from .host_guests import admitted_to_company  # noqa: PLC0415 - rarely used

        listener_of_guests, made = admitted_to_company(self.company, key, address, most_guests)
        self._extra_children.append(made)
        self._guest_listeners.append(listener_of_guests)
        return listener_of_guests

    def _spec(self, listeners: Sequence[ChildSpec[Any]]) -> ChildSpec[Any]:
        listeners = [*self._extra_children, *listeners]
        if self._gateways:
            from greenroom.actors.gateway.gateway import gateway_spec  # noqa: PLC0415 - as above

            listeners = [*(gateway_spec(each, self._changed) for each in self._gateways), *listeners]
        if self._auth_gate is not None:
            listeners = [*self._auth_gate.children(), *listeners]
        lifespans = [
            child(LifespanProcess, opener).but(id=f"lifespan {number}", shutdown=CLOSE_TIMEOUT)
            for number, opener in enumerate(self._lifespans, 1)
        ]
        spec = self.company.child_spec(listeners, first=lifespans)

        async def start() -> Any:
            stop_import_in_worker("a server")
            self._nodes.add(current_node())
            return await spec.start()

        return replace(spec, start=start)

    def _engine(self, config: HttpConfig, door: SessionRouter | None = None, key: bytes | None = None) -> HttpEngine:
        config = replace(config, session_enabled=config.session_enabled and self.settings.sessions)
        return HttpEngine(door or self.company, config, self._auth_gate, key=key)

    def _http_listener(
        self, config: HttpConfig, binding: Binding, door: SessionRouter | None = None, key: bytes | None = None
    ) -> ChildSpec[Any]:
        from greenroom.transports.http_listener import listener  # noqa: PLC0415 - a server on stdio has none

        engine = self._engine(config, door, key)
        certificates = Certificates(config) if config.is_tls else None
        if certificates is not None:
            self._certificates.append(certificates)
        app = AsgiRouter(engine, name=self.settings.name, own_pages=lambda: self._pages)
        self._bindings.append((binding, config))
        return listener(app, binding, config, engine, certificates)

    # --- listeners added at run time

    async def listen(
        self, *, host: str | None = None, port: int | None = None, config: HttpConfig | None = None
    ) -> str:
        """Add an HTTP listener while the company runs. Returns its URL, for `stop_listening`. Raises `CannotListen`."""
        config = http_config(config, host, port)
        if not self._is_running:
            raise ConfigError(
                'listen() is for a server that runs: write `async with server.started():` around it, or server.run("http")'
            )
        with closed_on_failure(config) as binding:
            spec = self._http_listener(config, binding)
            url = urls_of(binding, config)[0]
            await start_child(self.company.listeners, spec.but(id=url))
        return url

    async def stop_listening(self, url: str) -> None:
        """Remove a listener in order. Raises `ChildNotFound` if there is none with this URL."""
        await terminate_child(self.company.listeners, url)
        await delete_child(self.company.listeners, url)

    def reload_certificates(self) -> None:
        """Reload all certificates, for new connections. From any thread.

        Raises `BadCertificate`, and then the current ones stay. If several processes serve, all of them reload.
        """
        self._reload_own_certificates()
        others = self.company.other_nodes
        if others is not None:
            self._on_running_nodes(others.renew_certificates)

    def _reload_own_certificates(self) -> None:
        for each in self._certificates:
            each.reload()

    # --- notifying peers

    @property
    def peers(self) -> ConnectedPeers:
        """The connected peers, and messages to them outside of any call."""
        return self.company.peers

    def session(self, session_id: str) -> Context:
        """The context of one session, for use outside of a handler: `sample`, `elicit`, `roots`, `log`, `notify`. Raises `UnknownSession`."""
        from .server_parts import context_of_session  # noqa: PLC0415 - few servers address a session by its id

        return context_of_session(self.company, session_id)

    async def broadcast(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a notification to all peers. Returns the number of sessions."""
        return await self.company.peers.broadcast(method, params)

    def notify_resource_updated(self, uri: str, extra: Mapping[str, Any] | None = None) -> None:
        """Notify subscribers that a resource has changed. From any thread."""
        self._on_company(lambda services: services.updated(uri, extra or {}))

    def notify_list_changed(self, kind: Kind) -> None:
        """Notify peers of a change in a list that was not made by registering. From any thread."""
        if kind not in KINDS:
            raise ConfigError(
                f"the kind must be one of {', '.join(KINDS)}, not {kind!r}: write server.notify_list_changed('tool')"
            )
        self._on_company(lambda services: services.list_changed(kind))

    def elicitation_complete(self, elicitation_id: str) -> bool:
        """Notify the one client that sent its user to a page that the user has finished there. From any thread.

        False if no user is expected back: none was sent to a page with this id, the session has ended, the user declined, or the client was notified
        already. If several processes serve, True also if the others were asked to notify it.
        """
        company = self.company
        nodes = self._running_nodes
        if not nodes and (home := company_of_call()) is not None:
            return home.completed(elicitation_id)
        found = [
            (node, ref) for node in nodes if (ref := find_eliciting_session(node, company, elicitation_id)) is not None
        ]
        message, others = ElicitationDone(elicitation_id), company.other_nodes
        if others is not None and not found:
            tell = partial(others.completed, elicitation_id)
            return any(node.call_from_thread(node.context.run, tell) for node in nodes)
        return any(node.call_from_thread(node.context.run, lambda ref=ref: ref.send(message)) for node, ref in found)

    def _changed(self, kind: Kind) -> None:
        company = self.company
        self._on_running_nodes(lambda: announce_list_changed(company.subscriptions, company.subscription_table, kind))

    def _on_company(self, tell: Callable[[WorkerServices], object]) -> None:
        home = company_of_call()
        if home is not None and not self._is_running:
            tell(home)  # called by a handler in a worker, whose company runs elsewhere
        else:
            self._on_running_nodes(lambda: tell(self.company))

    def _on_running_nodes(self, tell: Callable[[], object]) -> None:
        for node in self._running_nodes:
            node.call_from_thread(node.context.run, tell)


# `__new__` accepts any option only to report unknown ones; `help(Server)`, editors and the reference should show the real options.
Server.__new__.__signature__ = signature(Server.__init__)  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
