"""The gateway: serves a federation as one server, with the lists of all upstreams, and each request forwarded to the right one.

It answers requests in place of the server's catalogue, in a worker for each request, as the server's own tools do; entries of the server itself
remain. Progress, log messages and questions reach the client of the call; its cancellation, end and deadline reach the
upstream. A request to an unreachable upstream fails at once, with a reason that programs can read. The host's rules and pins hold for every call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.catalogue import LISTINGS, may_use, wire_of
from greenroom.actors.client.errors import ClientError, Unavailable
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.context import Context
from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.actors.federation.federation_errors import FederationError
from greenroom.actors.federation.offering import LISTS, PARTS
from greenroom.actors.federation.tool_router import error_result
from greenroom.actors.local_calls import NO_PEER
from greenroom.actors.subscriptions import ChangeAnnouncement, Subscriptions
from greenroom.actors.worker import METHOD_ANSWERS
from greenroom.actors.worker_interfaces import Cancellation
from greenroom.auth.errors import SignInError
from greenroom.protocol.cache_hints import Cache, check_caches, merged_cache
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.errors import ErrorCode, McpError, PeerError
from greenroom.protocol.pagination import page, read_cursor
from greenroom.protocol.provider_rules import provider_name
from greenroom.protocol.tool_pins import ToolRefused
from greenroom.supervision import (
    DynamicSupervisor,
    GenServer,
    Ref,
    TaskSupervisor,
    child,
    is_alive,
    send,
    send_after,
    spawn_link,
)

from .client_connections import IDLE_SECONDS, MOST_CONNECTIONS, ClientConnections
from .era_bridge import UpstreamTool, UpstreamTraits, listed_tool
from .gateway_view import ClientUpstreams, UpstreamUris, ViewCache
from .upstream_calls import UpstreamCalls, upstream_error
from .upstream_subscriptions import UpstreamSubscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.company import Company
    from greenroom.actors.federation.offering import Part
    from greenroom.actors.worker_interfaces import Job, MethodHandler, SessionFacts
    from greenroom.supervision import ChildSpec, ExitReason, Pid, Wakeup

    from .client_connections import ClientConnection, GatewayHost
    from .gateway_view import GatewayView, UpstreamRef
    from .upstream_subscriptions import Subscriber

_log: Final = logging.getLogger("greenroom.gateway")
_MOST_BEGUN: Final = 128
"""Subscriptions of one client that are begun at once: a server bounds the requests of one connection."""
_MOST_VARIED: Final = 64
"""Views of single clients that are cached; making one again takes milliseconds."""


class Gateway:
    """One mounted host. Not a process: `gateway_spec` makes its processes."""

    def __init__(  # noqa: PLR0913 - the host, the server, and how clients are kept apart
        self,
        host: GatewayHost,
        company: Company,
        *,
        outside: Callable[[str], Context],
        completed: Callable[[str], object],
        beside: Gateway | None = None,
        prefix: str = "",
        shared: bool | Collection[str] = False,
        most: int = MOST_CONNECTIONS,
        idle: float = IDLE_SECONDS,
    ) -> None:
        """`beside` is another gateway of the same server. `shared` are the servers for which the host's own connection serves all clients; True is all of them."""
        self.host = host
        self.company = company
        self.uris = UpstreamUris(prefix)
        self.client_connections = ClientConnections(host, outside, completed, self._announce_lists, most, idle)
        host.on_departure(self.client_connections.depart)
        self.calls = UpstreamCalls(host, self.client_connections, self.uris, shared, lambda: company.settings.log_level)
        self.upstream_subscriptions = UpstreamSubscriptions(self._line, self._notify, self.calls.is_shared)
        self.prefix = prefix
        self._outside = outside
        self._beside = beside
        self._listeners: dict[Pid, Hashable] = {}
        """The principals of the listen processes that want to know of changed lists."""
        self._server_answers: Mapping[str, MethodHandler] = company.hooks.answers
        self._patient = True
        self._view_cache = ViewCache(host.router, host.federation, self.uris, prefix)
        self._view_caches: dict[frozenset[ClientConnection], ViewCache] = {}

    def answers(self) -> dict[str, MethodHandler]:
        """The functions that answer instead of the catalogue, by method."""
        listings = {listing.method: self._lists(listing.method, listing.member, listing.kind) for listing in LISTINGS}
        return {
            **self._server_answers,
            **listings,
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "completion/complete": self._complete,
        }

    # --- lists

    async def _view_cache_for(self, ctx: Context) -> ViewCache:
        """The lists for this client: the host's, unless upstreams offer others on the client's own connections."""
        connections = await self.client_connections.differing(ctx)
        if not connections:
            return self._view_cache
        key = frozenset(connections.values())
        viewer = self._view_caches.pop(key, None)
        if viewer is None or viewer.router.pins is not self.host.router.pins:
            varied = ClientUpstreams(self.host.federation, connections)
            viewer = ViewCache(self.host.router.with_upstreams(varied), varied, self.uris, self.prefix)
        self._view_caches[key] = viewer  # moved to the end: the order of the dict is that of the last use
        while len(self._view_caches) > _MOST_VARIED:
            del self._view_caches[next(iter(self._view_caches))]
        return viewer

    async def view(self, viewer: ViewCache) -> GatewayView:
        """The present view. It waits once for upstreams that are being started, and for lists that were not kept before."""
        catalogue = await viewer.router.catalogue()
        patience = viewer.router.patience if self._patient else 0.0
        self._patient = False
        await self.host.federation.listed(*PARTS, timeout=patience)  # lists that come later are announced as changed
        return viewer.view(catalogue, self.company.catalogue_ref.current)

    async def _tool(self, name: str, viewer: ViewCache) -> UpstreamRef | None:
        """The upstream of this tool. Mostly the known lists are enough."""
        own = self.company.catalogue_ref.current
        if own.tool(name) is not None:
            return None
        return viewer.view(viewer.router.snapshot(), own).tools.get(name) or (await self.view(viewer)).tools.get(name)

    async def _prompt(self, name: str, ctx: Context) -> UpstreamRef | None:
        """The upstream of this prompt."""
        own = self.company.catalogue_ref.current
        if own.prompt(name) is not None:
            return None
        viewer = await self._view_cache_for(ctx)
        known = viewer.view(viewer.router.snapshot(), own)
        return known.prompts.get(name) or (await self.view(viewer)).prompts.get(name)

    async def entries(self, method: str, ctx: Context) -> tuple[dict[str, Any], Cache]:
        """The upstreams' entries for this client, by sort key, without denied tools; and for how long the client may keep them."""
        viewer = await self._view_cache_for(ctx)
        view = await self.view(viewer)
        listed: Mapping[str, Mapping[str, Any]] = view.lists[method]
        if method == "tools/list":
            denies = self.host.router.denies
            front, traits = dialect_of(ctx.protocol_version), self.client_connections.traits
            listed = {
                name: listed_tool(one, view.tools[name].definition, front, traits(view.tools[name].server))
                for name, one in listed.items()
                if not denies(*view.tools[name][:2])
            }
        cache = self._cache_of(method) if viewer is self._view_cache else Cache(0.0)
        if self._beside is None:
            return dict(listed), cache
        others, of_others = await self._beside.entries(method, ctx)
        return {**others, **listed}, merged_cache((of_others, cache))

    def _cache_of(self, method: str) -> Cache:
        """For how long clients may keep a list. Where callers have logins of their own, others may see another list."""
        part: Part = next(part for part in PARTS if LISTS[part].method == method)
        federation = self.host.federation
        cache = federation.cache_of(part)
        is_private = any(map(self.host.per_caller, federation.ids()))
        return Cache(cache.seconds) if is_private else cache

    def _lists(self, method: str, member: str, kind: Any) -> MethodHandler:
        async def answer(job: Job, ctx: Context) -> dict[str, Any]:
            settings, dialect = job.services.settings, job.facts.dialect
            entries, cache = await self.entries(method, ctx)
            own = job.services.catalogue_ref.current.all(kind).values()
            for entry in own:
                if not may_use(entry, job.facts.peer):
                    continue
                wire = wire_of(entry, dialect)
                entries[wire.get("uri") or wire["name"]] = wire
            keys, cursor = sorted(entries), job.params.get("cursor")
            if cursor == "" and dialect.is_stateless:  # there it is a cursor as any other, and no list has given it
                read_cursor(cursor, kind)
            part, following = page(keys, cursor, settings.page_size, kind)
            result: dict[str, Any] = {member: [entries[key] for key in keys[part]]}
            if dialect.is_stateless:
                if own:
                    cache = merged_cache((cache, check_caches("cache", settings.cache).get(method) or Cache(0.0)))
                result |= cache.to_wire(private=any(getattr(entry, "scopes", ()) for entry in own))
            return result if following is None else {**result, "nextCursor": following}

        return answer

    # --- requests

    async def _call_tool(self, job: Job, ctx: Context) -> dict[str, Any]:
        name: str = job.params["name"]
        viewer = await self._view_cache_for(ctx)
        origin = await self._tool(name, viewer)
        if origin is None:
            return await self._from_server_or_unreachable(job, ctx, name, self.company.catalogue_ref.current.tool(name))
        ctx.name = name
        params: dict[str, Any] = {"name": origin.name, "arguments": job.params.get("arguments") or {}}
        try:
            serial = await viewer.router.permitted(
                origin.server, origin.name, params["arguments"], timeout=self.host.router.patience
            )
        except (ConsentDenied, ToolRefused) as error:
            return error_result(error)
        except (ClientError, FederationError, SignInError) as error:
            raise upstream_error(origin.server, error) from error
        result = await self.calls.carry(
            origin.server, "tools/call", params, job, ctx, serial=serial, tool=origin.definition
        )
        return self.uris.tool_result(origin.server, result, self._listed(origin.server))

    async def _get_prompt(self, job: Job, ctx: Context) -> dict[str, Any]:
        name: str = job.params["name"]
        origin = await self._prompt(name, ctx)
        if origin is None:
            return await self._from_server_or_unreachable(
                job, ctx, name, self.company.catalogue_ref.current.prompt(name)
            )
        ctx.name = name
        params: dict[str, Any] = {"name": origin.name, "arguments": job.params.get("arguments") or {}}
        result = await self.calls.carry(origin.server, "prompts/get", params, job, ctx)
        return self.uris.prompt(origin.server, result, self._listed(origin.server))

    async def _read(self, job: Job, ctx: Context) -> dict[str, Any]:
        origin = self._origin(job.params["uri"])
        if origin is None:
            return await self._from_server(job, ctx)
        server, own = origin
        ctx.uri = job.params["uri"]
        result = await self.calls.carry(server, "resources/read", {"uri": own}, job, ctx)
        if "cacheScope" in result and self.host.per_caller(server):
            result["cacheScope"] = "private"
        return self.uris.contents(server, result)

    async def _complete(self, job: Job, ctx: Context) -> dict[str, Any]:
        ref = job.params["ref"]
        if ref.get("type") == "ref/prompt":
            found = await self._prompt(str(ref.get("name")), ctx)
            inner = None if found is None else {**ref, "name": found.name}
            server = None if found is None else found.server
        else:
            origin = self._origin(str(ref.get("uri")))
            inner = None if origin is None else {**ref, "uri": origin[1]}
            server = None if origin is None else origin[0]
        if server is None:
            return await self._from_server(job, ctx)
        params = {key: value for key, value in job.params.items() if key != "_meta"}
        return await self.calls.carry(server, "completion/complete", {**params, "ref": inner}, job, ctx)

    def _origin(self, uri: str) -> tuple[str, str] | None:
        origin = self.uris.inward(uri)
        return origin if origin is not None and origin[0] in self.host.federation.ids() else None

    def _listed(self, server: str) -> Collection[str]:
        offering = self.host.federation.known(server)
        return () if offering is None else offering.resources

    async def _from_server_or_unreachable(self, job: Job, ctx: Context, name: str, own: object) -> dict[str, Any]:
        """The server's own answer. An unknown name that may be of an upstream that was never reached fails with that upstream's error."""
        try:
            return await self._from_server(job, ctx)
        except McpError as error:
            if own is not None or error.code != ErrorCode.INVALID_PARAMS:
                raise
            router = self.host.router
            here = name.removeprefix(provider_name(f"{self.prefix}x")[:-1]) if self.prefix else name
            missing = router.missing(here, (await router.catalogue()).skipped)
            if missing is None:
                raise
            server, why = missing
            known = why if isinstance(why, ClientError | FederationError | SignInError) else Unavailable(server, why)
            raise upstream_error(server, known) from error

    async def _from_server(self, job: Job, ctx: Context) -> dict[str, Any]:
        """The server's own answer."""
        answer: Any = self._server_answers.get(job.method) or METHOD_ANSWERS[job.method][1]
        result: dict[str, Any] = await answer(job, ctx)
        return result

    # --- subscriptions

    async def _subscribe(self, job: Job, ctx: Context) -> dict[str, Any]:
        uri: str = job.params["uri"]
        company = self.company
        session = company.peers.whereis(ctx.session_id)
        if session is None:
            raise McpError(ErrorCode.INVALID_REQUEST, "There is no session to subscribe for")
        origin = self._origin(uri)
        if origin is None and "resources/subscribe" in self._server_answers:
            return await self._from_server(job, ctx)
        await company.subscriptions.call(Subscriptions.subscribe, session, uri)
        if origin is not None:
            server, own = origin
            try:
                id = ctx.session_id
                await self.upstream_subscriptions.begin(id, uri, server, own, lambda: self._outside(id))
            except (PeerError, ClientError, FederationError, SignInError) as error:
                await company.subscriptions.call(Subscriptions.unsubscribe, session, uri)
                if isinstance(error, PeerError):
                    raise self.calls.outward(server, error, job.method, ctx) from error
                raise upstream_error(server, error) from error
        return {}

    async def _unsubscribe(self, job: Job, ctx: Context) -> dict[str, Any]:
        session = self.company.peers.whereis(ctx.session_id)
        if session is None or (
            self._origin(job.params["uri"]) is None and "resources/unsubscribe" in self._server_answers
        ):
            return await self._from_server(job, ctx) if session is not None else {}
        await self.company.subscriptions.call(Subscriptions.unsubscribe, session, job.params["uri"])
        self.upstream_subscriptions.end(ctx.session_id, job.params["uri"])
        return {}

    async def _line(self, server: str, ctx: Context) -> Line:
        return (await self.calls.connect(server, ctx))[0]

    def _notify(self, subscriber: Subscriber, method: str, params: dict[str, Any]) -> bool:
        if isinstance(subscriber, str):
            return self.company.peers.notify(subscriber, method, params)
        return send(subscriber, ChangeAnnouncement(method, params))

    def _announce_lists(self, connection: ClientConnection, method: str) -> None:
        """Tell the clients of this connection that a list has changed on it."""
        for session in connection.sessions:
            self._notify(session, method, {})
        principal = None if connection.key is None else connection.key.principal
        if principal is not None:
            for listener, owner in tuple(self._listeners.items()):
                if owner == principal and not self._notify(listener, method, {}):
                    self._listeners.pop(listener, None)

    async def listen(self, listener: Pid, facts: SessionFacts, uris: Sequence[str], *, lists: bool) -> Sequence[str]:
        """Announce changes to a process, until `stop_listening` or its death: of these resources, and with `lists` of lists that differ for its client.

        Returns the resources that are followed: of those that are no upstream's, all. One that its upstream cannot follow is left out.
        """
        if lists and facts.peer.principal is not None:
            self._listeners[listener] = facts.peer.principal
        # It is followed on a connection of the client on which no call is asked anything.
        plain = replace(facts, client_capabilities={}, log_level=None)

        def context() -> Context:
            return Context(plain, NO_PEER, Cancellation(), None, {})

        turns = asyncio.Semaphore(_MOST_BEGUN)

        async def follow(uri: str, server: str, own: str) -> str | None:
            try:
                async with asyncio.timeout(self.host.router.patience), turns:
                    await self.upstream_subscriptions.begin(listener, uri, server, own, context)
            except (PeerError, ClientError, FederationError, SignInError, TimeoutError) as error:
                _log.info("a client cannot listen to %s of %s: %s", own, server, error)
                return None
            return uri

        here = {uri: origin for uri in uris if (origin := self._origin(uri)) is not None}
        # One that names a server which is not there is followed by none.
        others = [uri for uri in uris if self.uris.inward(uri) is None]
        if self._beside is not None:
            others = list(await self._beside.listen(listener, facts, others, lists=lists))
        elif "resources/subscribe" in self._server_answers:
            others = []  # the server's own code decides on each subscription, and does so for sessions alone
        followed = {*others, *await asyncio.gather(*(follow(uri, *origin) for uri, origin in here.items()))}
        return [uri for uri in uris if uri in followed]

    def stop_listening(self, listener: Pid) -> None:
        """Announce nothing more to this process."""
        self._listeners.pop(listener, None)
        self.upstream_subscriptions.end_all(listener)
        if self._beside is not None:
            self._beside.stop_listening(listener)

    # --- what the server asks before a request is answered

    @property
    def runs_own_tools(self) -> bool:
        """Whether the server's own tools are called as they are registered."""
        return "tools/call" not in self._server_answers if self._beside is None else self._beside.runs_own_tools

    def tool(self, name: str) -> UpstreamTool | None:
        """The upstream's tool that clients call by this name. None for one that no upstream has; while a list is not known yet, a tool of it that may be there."""
        viewer, federation = self._view_cache, self.host.federation
        found = viewer.view(viewer.router.snapshot(), self.company.catalogue_ref.current).tools.get(name)
        if found is None:
            other = None if self._beside is None else self._beside.tool(name)
            is_known = all(federation.known(server) is not None for server in federation.ids())
            return other or (None if is_known else UpstreamTool.unknown(name))
        return UpstreamTool.of(name, found.definition, self.client_connections.traits(found.server), found.header_plan)

    def announces(self, method: str, name: str) -> bool:
        """Whether an upstream's list has the tool, prompt or resource that a request names."""
        viewer = self._view_cache
        view = viewer.view(viewer.router.snapshot(), self.company.catalogue_ref.current)
        match method:
            case "tools/call":
                is_listed = name in view.tools
            case "prompts/get":
                is_listed = name in view.prompts
            case _:
                is_listed = name in view.lists["resources/list"]
        if is_listed:
            return True
        return self._beside is not None and self._beside.announces(method, name)

    # --- maintenance

    async def sweep(self, now: float) -> None:
        """Close idle connections and those of ended sessions; restart subscription processes that have died."""

        def lives(subscriber: Subscriber) -> bool:
            if isinstance(subscriber, str):
                return self.company.peers.whereis(subscriber) is not None
            return is_alive(subscriber)

        for listener in [each for each in self._listeners if not is_alive(each)]:
            del self._listeners[listener]
        self.client_connections.sweep(now, lives)
        await self.upstream_subscriptions.sweep(lives)

    async def level(self, session: str, level: str) -> None:
        """Set a client's log level at the upstreams that work for it, now and later ones."""
        await self.client_connections.set_level(session, level)

    async def roots_changed(self, session: str) -> None:
        """Notify the upstreams that work for a client that its roots have changed. Those of the stateless era ask for them when they need them."""
        for line in self.client_connections.lines_of(session):
            if UpstreamTraits.of(line.welcome).is_stateless:
                continue
            with contextlib.suppress(ClientError):
                await line.notify("notifications/roots/list_changed")


# --- The processes of a gateway, as a child of the server's company (rest_for_one): process (keeps the host open, announces changed lists, and
# sweeps), connections (the clients' own, to upstreams) and subscriptions (one process for each client's subscription to an upstream's resource).

_SWEEP: Final = object()
_EVERY: Final = 5.0
_numbers: Final = count(1)


class GatewayProcess(GenServer):
    """The process of one gateway: keeps the host open, announces changed lists, and sweeps. Its successor opens the host again."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, gateway: Gateway, changed: Callable[[Kind], object]) -> None:
        """`changed` is called with the kind of each list that has changed."""
        self._gateway = gateway
        self._changed = changed
        self._opened = False

    async def init(self) -> None:
        """Open the host, keep all lists, and follow their changes."""
        self._gateway.host.federation.keep(*PARTS)
        await self._gateway.host.open()
        self._opened = True
        spawn_link(_announce_changes, self._gateway, self._changed)
        send_after(_EVERY, self.pid, _SWEEP)

    async def handle_info(self, message: Any) -> None:
        """Sweep, when the timer is due."""
        if message is _SWEEP:
            await self._gateway.sweep(asyncio.get_running_loop().time())
            send_after(_EVERY, self.pid, _SWEEP)
            return
        super().handle_info(message)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Release the host."""
        if self._opened:
            await self._gateway.host.close()


class ConnectionSupervisor(DynamicSupervisor):
    """The supervisor of the clients' connections. It wakes the calls that wait for its start."""

    def __init__(self, started: Wakeup) -> None:
        """`started` is woken when it has started."""
        super().__init__()
        self._started = started

    def init(self) -> None:
        """Wake the waiting calls: the registered name is set by now."""
        super().init()
        self._started.wake()


async def _announce_changes(gateway: Gateway, changed: Callable[[Kind], object]) -> None:
    async for change in gateway.host.federation.changes():
        for part in PARTS:
            if getattr(change.differences, part):
                changed(LISTS[part].kind)


def gateway_spec(gateway: Gateway, changed: Callable[[Kind], object]) -> ChildSpec[Any]:
    """The gateway's processes as a child."""
    company = gateway.company
    number = next(_numbers)
    connections, subscriptions = (
        company.name(f"gateway connections {number}"),
        company.name(f"gateway subscriptions {number}"),
    )
    gateway.client_connections.supervisor = connections
    gateway.upstream_subscriptions.supervisor = Ref(subscriptions, None)
    children: list[ChildSpec[Any]] = [
        child(GatewayProcess, gateway, changed).but(id="process", name=company.name(f"gateway process {number}")),
        child(ConnectionSupervisor, gateway.client_connections.supervisor_started).but(
            id="connections", name=connections
        ),
        child(TaskSupervisor).but(id="subscriptions", name=subscriptions),
    ]
    return child(ExclusiveSupervisor, children, intensity=5, period=10.0, strategy="rest_for_one").but(
        id=f"gateway {number}"
    )
