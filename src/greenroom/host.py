"""`Host`: the client of many servers at once, for a program or for its model.

::

    async with Host({"git": Command("uvx", "mcp-server-git"), "web": "http://127.0.0.1:8000/mcp"}) as host:
        log = await host.call("git:log", {"n": 3})
        tools = await host.to_anthropic()             # or to_openai(): names that the provider takes
        answer = await host.run(block)                # run a model's call, and answer in the provider's format

It is not a process itself. Behind it is a federation, with a supervisor for each server: one that does not start, dies or hangs affects no
other. Servers can be added, replaced and removed while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeAlias, TypeVar, cast, overload

from greenroom.actors.client.era_verdicts import EraVerdicts
from greenroom.actors.client.errors import NotReady
from greenroom.actors.client.response_cache import cache_of
from greenroom.actors.client.settings import SETTING_HINTS, ClientSettings
from greenroom.actors.consent.consent import Consent, ConsentAnswer, ConsentQuestion
from greenroom.actors.consent.rules import ConsentDenied, Permissions, Rule
from greenroom.actors.elicitation.bridge import ElicitationBridge, OpenQuestion
from greenroom.actors.federation.federation import Federation
from greenroom.actors.federation.federation_errors import (
    InvalidArguments,
    MisconfiguredServer,
    NoSeparator,
    UnknownServer,
)
from greenroom.actors.federation.tool_router import AS_SET, ToolRouter
from greenroom.actors.federation.upstream_spec import PATIENCE, ConnectionProcess, UpstreamSpec, check_away
from greenroom.actors.mentions.mention_reader import MentionReader, ResourceListCache
from greenroom.actors.output.output_limits import OutputLimit, OutputLimiter, OutputLimits, Spill
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.extension_ids import APPS_ID
from greenroom.protocol.received_results import read_page, read_tool_reply
from greenroom.protocol.tool_pins import Pins, ToolRefused
from greenroom.supervision import node_of, whereis

from .child_runner import ChildRunner
from .client import takes_one_dict
from .client_callbacks import CallbackHandler, check_callbacks, check_roots
from .client_targets import in_process_server, keep_running, origin_of, route_of
from .errors import ConfigError, suggests
from .host_files import HostFiles
from .host_guests import checked_admin, guest_listener, host_tree
from .hosted_server import NOT_OPEN, HostedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Sequence

    from greenroom.actors.client.client_handler import ClientHandler
    from greenroom.actors.client.interfaces import Line, Progress, ServerNotification
    from greenroom.actors.client.response_cache import ResponseCache
    from greenroom.actors.federation.offering import Part
    from greenroom.actors.federation.tool_catalogue import Aliases, ToolCatalogue
    from greenroom.actors.federation.tool_router import Invalid
    from greenroom.actors.federation.upstream import Upstream
    from greenroom.actors.federation.upstream_spec import Away, Isolation, OfferingChange, UpstreamStatus
    from greenroom.actors.thespian_guests.guest_listener import GuestListener
    from greenroom.auth.client.auth_option import CallerIdentity
    from greenroom.protocol.received_results import PromptReply, ResourceReply, ToolReply
    from greenroom.protocol.tool_pins import PinReport, Policy
    from greenroom.supervision import ChildSpec

    from .client_callbacks import Roots
    from .client_targets import InProcessServer, Target
    from .host_apps import HostApps
    from .observe.admin_settings import Admin
    from .skill_reader import HostSkills

    SomeServer: TypeAlias = Target | UpstreamSpec
    SomePins: TypeAlias = Pins | Mapping[str, Any] | str | os.PathLike[str]

P = ParamSpec("P")
T = TypeVar("T")
Listed = TypeVar("Listed", Tool, Resource, ResourceTemplate, Prompt)
_log: Final = logging.getLogger("greenroom.agent")

__all__ = [
    "ConnectionProcess",
    "Consent",
    "ConsentAnswer",
    "ConsentDenied",
    "ConsentQuestion",
    "ElicitationBridge",
    "Host",
    "OpenQuestion",
    "OutputLimit",
    "OutputLimits",
    "Permissions",
    "Pins",
    "Rule",
    "ToolRefused",
]


def _from_router(
    word: Callable[Concatenate[ToolRouter, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Host, P], Coroutine[Any, Any, T]]:
    """A method of the tool router as one of the host, with its signature and docstring; it raises unless the host is open."""
    name = word.__name__

    @wraps(word)
    async def call_router(self: Host, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.check_open()
        ask: Callable[P, Coroutine[Any, Any, T]] = getattr(self.router, name)
        return await ask(*args, **kwargs)

    return call_router


@suggests(
    "a host",
    SETTING_HINTS
    | {
        "permissions": "write consent=Consent(Permissions([…]))",
        "rules": "write consent=Consent(Permissions([…]))",
        "timeout": "write settings=ClientSettings(request_timeout=…)",
    },
)
class Host(HostFiles):
    """The client of many servers, by ids that the program gives them."""

    def __init__(  # noqa: PLR0913 - the servers, the policies for their tools, and a callback for each kind of server message
        self,
        servers: Mapping[str, SomeServer] | None = None,
        *,
        separator: str = ":",
        aliases: Aliases | None = None,
        invalid: Invalid = "raise",
        pins: SomePins | None = None,
        policy: Policy = "report",
        consent: Consent | None = None,
        limits: OutputLimits | None = None,
        sampling: Callable[[str, Any], Any] | None = None,
        elicitation: Callable[[str, Any], Any] | None = None,
        url_elicitation: Callable[[str, Any], Any] | None = None,
        roots: Roots | Callable[[str], Any] | None = None,
        on_log: Callable[[str, Any], Any] | None = None,
        settings: ClientSettings | None = None,
        isolation: Isolation = None,
        away: Away = "mark",
        patience: float = PATIENCE,
        cache: ResponseCache | bool = True,
        verdicts: EraVerdicts | None = None,
        apps: bool = False,
        name: str = "host",
        admin: Admin | None = None,
    ) -> None:
        """`servers` are URLs, commands, `Server`s, routes, or `UpstreamSpec`s for servers with options of their own.

        `sampling`, `elicitation`, `url_elicitation`, `roots` and `on_log` are as a client's, with the server's id as first argument:
        `elicitation(server, request)`. `pins` are a file or a mapping; by `policy` a tool that differs from its pin is reported, or refused.
        `consent` decides about each call by a tool's full name, and each question for the user; calls by `server(id)` are the program's own and
        need none. `limits` bound how much of a result a model gets. `patience` is how long a catalogue, or a call, waits for a server that is
        being started; after a failed attempt they do not wait. `apps` declares to all servers that the program shows apps, by `host.apps`.

        `settings`, `isolation` and `away` hold for servers that are given without an `UpstreamSpec`. `away` says how tools of an unreachable server
        are listed: "mark" notes it in their descriptions, "withdraw" does not list them, "keep" changes nothing. With `isolation="process"`
        each connection runs in a process of its own, with a `ConnectionProcess` all of them in that one.

        `cache` keeps lists and resources for as long as their servers allow, also those of a gateway's clients, for each by itself unless a server
        calls them public. `verdicts` are where the host remembers which servers have a handshake: an `EraVerdictFile` outlasts the program. `admin` adds
        a listener for health checks, metrics and the observer.
        """
        self._answers: dict[str, Any] = {
            "sampling": sampling,
            "elicitation": elicitation,
            "url_elicitation": url_elicitation,
            "roots": check_roots(roots),
            "on_log": on_log,
        }
        self._extensions: Mapping[str, Mapping[str, Any]] = _apps_extension() if apps else {}
        functions = {name: each for name, each in self._answers.items() if name != "roots" or callable(each)}
        check_callbacks(functions, "server")
        servers = _check_servers(servers)
        self._settings = settings or ClientSettings()
        self._isolation: Isolation = isolation
        check_away(away)
        self._away: Away = away
        if verdicts is not None and not isinstance(cast("object", verdicts), EraVerdicts):
            raise ConfigError(f"verdicts are an EraVerdictFile() or EraVerdicts(), not {verdicts!r}")
        self.limiter = None if limits is None else OutputLimiter(limits, Spill())
        """Cuts results for a model; None without limits."""
        if consent is not None:
            if not isinstance(cast("object", consent), Consent):
                raise ConfigError(
                    f"consent is a Consent, as in Host(…, consent=Consent(ask=function)), not {consent!r}"
                )
            consent.origin = self._origin
        self.consent = consent
        """Decides which calls are allowed, and which the user is asked about; None when the program decides itself."""
        self._separator = separator
        self._in_process: dict[str, InProcessServer] = {}
        self._incarnations: dict[str, int] = {}
        self._departures: list[Callable[[str, int, float], Awaitable[None]]] = []
        self._departing: set[asyncio.Future[None]] = set()
        self._specs: dict[str, UpstreamSpec] = {}
        for id, server in (servers or {}).items():
            guest = in_process_server(server)
            self._settle(id, self._spec(id, server, guest), guest)
        self.federation = Federation(
            self._specs, name=name, patience=patience, cache=cache_of(cache), verdicts=verdicts
        )
        """The federation of the servers, as actors use it."""
        self._pin_file = pins if isinstance(pins, str | os.PathLike) else None
        self.router = ToolRouter(
            self.federation,
            separator=separator,
            aliases=aliases,
            invalid=invalid,
            pins=_pins(pins),
            policy=policy,
            patience=patience,
            consent=consent,
            limiter=self.limiter,
        )
        """The router for the tools of all servers."""
        self.router.misconfigured = self._misconfigured
        self.resource_lists = ResourceListCache(lambda id: self.server(id).line)
        """The resources of the servers that were listed so far."""
        self._server_views: dict[str, HostedServer] = {}
        self._guest_listeners: list[GuestListener] = []
        self._runner = ChildRunner(self.child_spec)
        self._opens = 0
        self._outside_opens = 0
        self._admin = checked_admin(admin)

    def __repr__(self) -> str:
        return f"<Host of {', '.join(self.federation.ids() or self._specs) or 'no servers'}>"

    def _spec(self, id: str, server: SomeServer, guest: InProcessServer | None) -> UpstreamSpec:
        if not id or self._separator in id:
            raise ConfigError(f"a server's id is a text without {self._separator!r}, not {id!r}")
        if isinstance(server, UpstreamSpec):
            spec = server
        else:
            route = route_of(server) if guest is None else guest.route()
            spec = UpstreamSpec(route, settings=self._settings, isolation=self._isolation, away=self._away)
        return spec if spec.handler is not None else replace(spec, handler=lambda: self._handler(id))

    def _settle(self, id: str, spec: UpstreamSpec, guest: InProcessServer | None) -> InProcessServer | None:
        """Register the server under this id. Returns the in-process server that it replaces, if any."""
        before = self._in_process.pop(id, None)
        if guest is not None:
            self._in_process[id] = guest
        self._specs[id] = spec
        self._incarnations[id] = self._incarnations.get(id, 0) + 1
        return before

    def _handler(self, id: str) -> ClientHandler:
        callbacks: dict[str, Any] = {
            word: partial(one, id) if callable(one) else one for word, one in self._answers.items()
        }
        allowed = None if self.consent is None else partial(self.consent.elicitation, id)
        return CallbackHandler(
            **callbacks,
            extensions=self._extensions,
            allowed=allowed,
            on_notification=partial(self._on_notification, id),
        )

    def _origin(self, id: str) -> str:
        return origin_of(self._specs[id].route) if id in self._specs else ""

    def _on_notification(self, id: str, notification: ServerNotification) -> None:
        if notification.method == "notifications/resources/list_changed":
            self.resource_lists.changed(id)

    @property
    def mentions(self) -> MentionReader:
        """Completes and reads mentions (`@server:resource`) as users type them. Lists are fetched at their first use."""
        return MentionReader(self.resource_lists, lambda: self._specs, self._read, self._complete)

    @property
    def apps(self) -> HostApps:
        """The apps of the tools: their documents, and the calls that these make."""
        from .host_apps import HostApps  # noqa: PLC0415 - few hosts show any

        return HostApps(self)

    @property
    def skills(self) -> HostSkills:
        """The skills of the servers."""
        from .skill_reader import HostSkills  # noqa: PLC0415 - few hosts read any

        return HostSkills(self)

    async def _read(self, id: str, uri: str) -> ResourceReply:
        return await self.server(id).read_resource(uri)

    async def _complete(
        self, id: str, template: str, name: str, prefix: str, known: Mapping[str, str]
    ) -> Sequence[str]:
        return (await self.server(id).complete({"type": "ref/resource", "uri": template}, name, prefix, known)).values

    # --- open and close

    def child_spec(self) -> ChildSpec[Any]:
        """The host as a child of any supervisor, without `async with`."""
        return host_tree(self.federation, self._guest_listeners, self.limiter, self._config_sync, self._admin)

    def admit_guests(
        self, key: bytes | str | os.PathLike[str], *, address: str | None = None, most_guests: int = 64
    ) -> GuestListener:
        """Accept Thespian programs over an authenticated link while the host is open: see `greenroom.thespian`. They may call all servers.

        `key` is a file that only its owner can read, or bytes. `address` is `unix:@NAME`, `unix:PATH` or `tcp:HOST:PORT`; by default a local
        name, which the returned object has.
        """
        if self._opens:
            raise ConfigError("call admit_guests before the host is opened")
        listener = guest_listener(self.federation, self.router, key, address, most_guests)
        self._guest_listeners.append(listener)
        return listener

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start all servers, without waiting for them. Each `open` needs a `close`.

        A host that already runs as the child of another supervisor is used as it is.
        """
        if not self._opens and self._runs and not self._runner.is_active:
            self._outside_opens += 1
            return
        began = () if self._opens else tuple(self._in_process.values())
        for guest in began:
            guest.begin()
        try:
            await self._runner.acquire()
        except BaseException:
            for guest in began:
                await guest.leave()
            raise
        self._opens += 1

    async def close(self) -> None:
        """Undo one `open`; the last one stops the host, and requests under way fail with `ClientClosed`."""
        if self._outside_opens:
            self._outside_opens -= 1
            return
        self._opens -= 1
        try:
            await self._runner.release()
        finally:
            if not self._opens:
                departing = tuple(self._departing)
                for going in departing:
                    going.cancel()
                await asyncio.gather(*departing, return_exceptions=True)
                if self.limiter is not None:
                    self.limiter.spill.close()
                for guest in tuple(self._in_process.values()):
                    await guest.leave()

    def check_open(self) -> None:
        """Raise `NotReady` unless the host is open, or runs as the child of a supervisor."""
        if self._opens or self._outside_opens or self._runner.is_active:
            return
        if not self._runs:
            raise NotReady(NOT_OPEN)

    @property
    def _runs(self) -> bool:
        # Not the manager: between two managers the federation runs, and the next one may have read its initial servers already.
        return (
            node_of(asyncio.get_running_loop()) is not None and whereis(self.federation.name("federation")) is not None
        )

    # --- servers

    async def add(self, id: str, server: SomeServer) -> None:
        """Add a server. It need not be reachable yet. Raises `ConfigError` or `AlreadyRegistered` for an id in use."""
        if id in self._specs:
            raise ConfigError(f"there is a server {id!r} already: replace it, or remove it first")
        guest = in_process_server(server)
        spec = self._spec(id, server, guest)
        if self._runs:
            async with keep_running(guest):
                await self.federation.start(id, spec)
        else:
            self.federation.initial = {**self.federation.initial, id: spec}
        self._settle(id, spec, guest)

    async def replace(self, id: str, server: SomeServer, *, ready_within: float = 30.0, keep_old: bool = False) -> None:
        """Replace the server under an id. Requests under way finish on the old one.

        With `keep_old` a new one that is not ready in time is stopped, and `Unavailable` raised.
        """
        self._known(id)
        guest = in_process_server(server)
        spec = self._spec(id, server, guest)
        turn, grace = self._incarnations[id], self._specs[id].grace
        if not self._runs:
            self._at_rest(id, spec)
            self._settle(id, spec, guest)
            self.resource_lists.forget(id)
            return
        old = self.federation.members.get(id)
        async with keep_running(guest):
            await self.federation.start_or_replace(id, spec, ready_within=ready_within, keep_old=keep_old)
        before = self._settle(id, spec, guest)
        self.resource_lists.forget(id)
        going = asyncio.ensure_future(self._drain_replaced(id, turn, grace, old, before))
        self._departing.add(going)
        going.add_done_callback(self._departing.discard)

    async def _drain_replaced(
        self, id: str, turn: int, grace: float, old: Upstream | None, guest: InProcessServer | None
    ) -> None:
        """Wait until the calls to a replaced server have ended, then release it: stopping an in-process server ends its calls."""
        going = [depart(id, turn, grace) for depart in self._departures]
        if old is not None:
            going.append(self.federation.wait_departed(old))
        try:
            await asyncio.gather(*going)
        finally:
            if guest is not None:
                await guest.leave()

    async def remove(self, id: str, grace: float | None = None) -> None:
        """Remove a server. Calls under way, also those of a gateway's clients, have `grace` seconds (by default its spec's), then fail with `ClientClosed`.

        Returns when its connections and processes have ended. Raises `UnknownServer`.
        """
        self._known(id)
        seconds = self._specs[id].grace if grace is None else grace
        if not self._runs:
            self._at_rest(id, None)
        elif not self.federation.lacks_server(id):  # or an earlier removal was interrupted
            departing = (depart(id, self._incarnations[id], seconds) for depart in self._departures)
            await asyncio.gather(self.federation.stop(id, seconds), *departing)
        self._specs.pop(id, None)
        self._server_views.pop(id, None)
        self.resource_lists.forget(id)
        guest = self._in_process.pop(id, None)
        if guest is not None:
            await guest.leave()

    def _at_rest(self, id: str, spec: UpstreamSpec | None) -> None:
        """Change the initial servers of a host that does not run: there is no process to call."""
        upstream = self.federation.members.get(id)
        if upstream is not None:
            self.federation.unregister(upstream)
        first = {each: one for each, one in self.federation.initial.items() if each != id}
        self.federation.initial = first if spec is None else {**first, id: spec}

    def has(self, id: str) -> bool:
        """Whether there is a server with this id."""
        return id in self._specs

    async def forget(self, id: str) -> None:
        """Stop a server of the federation that is not registered here, because its `add` was interrupted."""
        if id not in self._specs and id in self.federation.members and self._runs:
            await self.federation.stop(id, 0.0)

    def _known(self, id: str) -> None:
        if id not in self._specs:
            why = self._misconfigured().get(id)
            raise UnknownServer(id, self._specs) if why is None else MisconfiguredServer(id, why)

    def _misconfigured(self) -> dict[str, str]:
        return {id: why for id, why in self._failures().items() if id not in self._specs}

    def server(self, id: str) -> HostedServer:
        """One server, with all methods of a client. Raises `UnknownServer`."""
        self._known(id)
        words = self._server_views.get(id)
        if words is None:
            words = self._server_views[id] = HostedServer(self.federation, id)
        return words

    def connection(
        self, id: str, handler: ClientHandler, caller: CallerIdentity | None = None, principal: Hashable = None
    ) -> tuple[ChildSpec[Any], Line]:
        """One more connection to a server, for one caller: its child spec, and its line.

        Where each caller has its own login, it uses that of `caller`. What is kept of it is kept for this `principal`. Raises `UnknownServer`, `CallerNotSignedIn`.
        """
        self._known(id)
        spec = replace(self._specs[id].personal(caller), handler=lambda: handler)
        return self.federation.extra_connection(id, spec, principal)

    def per_caller(self, id: str) -> bool:
        """Whether each caller of a gateway has its own login at this server."""
        upstream = self.federation.members.get(id)  # both: during a replacement this may be the new server already
        specs = (self._specs.get(id), None if upstream is None else upstream.spec)
        return any(spec is not None and spec.caller_auth is not None for spec in specs)

    def most_pages(self, id: str) -> int:
        """The most pages of a list of this server. Raises `UnknownServer`."""
        self._known(id)
        return self._specs[id].settings.max_pages

    def incarnation(self, id: str) -> int:
        """A number that changes when the server with this id is replaced. Raises `UnknownServer`."""
        self._known(id)
        return self._incarnations[id]

    def on_departure(self, depart: Callable[[str, int, float], Awaitable[None]]) -> None:
        """Call `depart` with the id, the incarnation and the grace in seconds of each server that is removed or replaced."""
        self._departures.append(depart)

    # --- tools

    async def catalogue(self) -> ToolCatalogue:
        """The catalogue: all tools with their servers, the servers that are left out and why, and the comparison with the pins."""
        self.check_open()
        return await self.router.catalogue()

    async def tools(self, *, for_apps: bool = False) -> list[Tool]:
        """All tools that a model may use, under their full names; `for_apps` lists those as well that are only for the documents of apps.

        Raises `ToolCollision`.
        """
        self.check_open()
        listed = await self.router.list_tools(for_models=not for_apps)
        return list(read_page(Tool, {"tools": listed}).items)

    to_anthropic = _from_router(ToolRouter.to_anthropic)
    to_openai = _from_router(ToolRouter.to_openai)
    to_gemini = _from_router(ToolRouter.to_gemini)
    from_anthropic_call = _from_router(ToolRouter.from_anthropic_call)
    from_openai_call = _from_router(ToolRouter.from_openai_call)
    from_gemini_call = _from_router(ToolRouter.from_gemini_call)
    run = _from_router(ToolRouter.run)

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: type[T], **more: Any
    ) -> T: ...

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = ..., /, *, into: Any = ..., **more: Any
    ) -> Any: ...

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, /, *, into: Any = None, **more: Any
    ) -> Any:
        """Call a tool by its full name, and return its value, as a client's `call`. Raises as that, `InvalidArguments`, and the errors of wrong names."""
        self.check_open()
        given = {**(arguments or {}), **more}
        tool = await self.router.checked(name, given)
        return await self.server(tool.server).call(tool.tool, given, into=into)

    @takes_one_dict
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
        timeout: float | None = AS_SET,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolReply:
        """Call a tool by its full name, and return the whole reply. Invalid arguments raise, or make an error reply, as `invalid` says."""
        self.check_open()
        given = dict(arguments or {})
        try:
            tool = await self.router.checked(name, given, timeout=timeout)
        except InvalidArguments as error:
            return read_tool_reply(self.router.invalid_arguments_result(error))
        words = HostedServer(self.federation, tool.server)
        if timeout is not AS_SET:
            words = words.within(timeout)
        return await words.call_tool(tool.tool, given, on_progress=on_progress, meta=meta)

    # --- resources and prompts

    async def resources(self) -> list[Resource]:
        """All resources of the servers whose lists are known, by URIs with the server's id: `git:file:///x`."""
        return await self._listed(Resource, "resources", "resources", "uri")

    async def resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates, likewise."""
        return await self._listed(ResourceTemplate, "templates", "resourceTemplates", "uriTemplate")

    async def prompts(self) -> list[Prompt]:
        """All prompts, likewise."""
        return await self._listed(Prompt, "prompts", "prompts", "name")

    async def read_resource(self, uri: str) -> ResourceReply:
        """Read a resource by its URI with the server's id."""
        words, own = self._split(uri)
        return await words.read_resource(own)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> PromptReply:
        """Get a prompt with these arguments, by its full name."""
        words, own = self._split(name)
        return await words.get_prompt(own, arguments, **more)

    async def _listed(self, kind: type[Listed], part: Part, member: str, key: str) -> list[Listed]:
        """The entries of one list of all servers; a list that was not kept before is fetched now."""
        self.check_open()
        for id, error in (await self.federation.listed(part, timeout=self.router.patience)).items():
            _log.warning("the %s of %s are left out: %s", part, id, error)
        entries = [{**one, key: f"{id}{self.router.separator}{name}"} for id, name, one in self._offered(part)]
        return list(read_page(kind, {member: entries}).items)

    def _offered(self, part: Part) -> list[tuple[str, str, Mapping[str, Any]]]:
        known = {id: self.federation.known(id) for id in self.federation.ids()}
        return [
            (id, name, one)
            for id, offering in known.items()
            if offering is not None
            for name, one in offering.part(part).items()
        ]

    def _split(self, name: str) -> tuple[HostedServer, str]:
        self.check_open()
        id, found, own = name.partition(self.router.separator)
        if not found:
            error = NoSeparator(name)
            error.separator = self.router.separator
            raise error
        return self.server(id), own

    # --- pins

    async def pin_report(self) -> PinReport | None:
        """The comparison of the tools with the pins; None without pins."""
        self.check_open()
        return (await self.router.catalogue()).pins

    async def pin(self) -> Pins:
        """Pin all tools as they are now; tools of unreachable servers keep their pins. Written to the pin file, if there is one."""
        self.check_open()
        offered = self._offered("tools")
        known = {id for id in self.federation.ids() if self.federation.known(id) is not None}
        before = self.router.pins or Pins()
        gone = [id for id in before.to_json() if id.partition(":")[0] in known]
        pins = before.pinned({f"{id}:{name}": one for id, name, one in offered}, gone)
        if self._pin_file is not None:
            pins.save(self._pin_file)
        self.router.pins = pins
        return pins

    # --- status

    def status(self) -> dict[str, UpstreamStatus]:
        """The status of each server: its state, and why it is not ready."""
        return self.federation.statuses()

    def watch(self) -> AsyncGenerator[UpstreamStatus]:
        """The status of each server, then each change, without end."""
        return self.federation.watch()

    def changes(self) -> AsyncGenerator[OfferingChange]:
        """The changes of the servers' lists, from now on without end."""
        return self.federation.changes()

    def retry(self, id: str) -> None:
        """Connect to a server now: out of parking, backoff or an open breaker. Calls and the next catalogue wait for it, as for a first start."""
        self.router.wait_again_for(id)
        self.federation.retry(id)


def _apps_extension() -> Mapping[str, Mapping[str, Any]]:
    from greenroom.actors.apps import APPS_SETTINGS  # noqa: PLC0415 - few hosts show any

    return {APPS_ID: APPS_SETTINGS}


def _check_servers(servers: Any) -> Mapping[str, SomeServer] | None:
    """Check that servers are given by id. Raises `ConfigError`."""
    if servers is None or isinstance(servers, Mapping):
        return cast("Mapping[str, SomeServer] | None", servers)
    raise ConfigError(f'a host has servers by ids, as in Host({{"notes": server}}), not {servers!r}')


def _pins(given: SomePins | None) -> Pins | None:
    if given is None or isinstance(given, Pins):
        return given
    return Pins.load(given) if isinstance(given, str | os.PathLike) else Pins(given)


if not TYPE_CHECKING:  # type checkers that saw this function would accept all names

    def __getattr__(name: str) -> object:
        """Load a name that had another one in the version before."""
        from .moved import moved_name  # noqa: PLC0415 - only needed for names that have moved

        return moved_name(__name__, name)
