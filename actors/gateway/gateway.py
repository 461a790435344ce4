"""A federation served as one server: lists from what all upstreams offer, and each request carried to the one that it is for.

It answers in the place of the server's catalogue, in a worker for each request, as a tool of the server's own would run. What is registered at the
server itself is still there. Progress, log messages and questions come back to the client whose call it is; its cancellation, its end and
its deadline reach the upstream. An upstream that is away is told at once, with a reason that programs can read. What the host's rules and pins say of
a tool holds here, too: no call goes by them.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.catalogue import LISTINGS, may_use, quota_key
from greenroom.actors.client.errors import ClientClosed, ClientError, RequestLost, Unavailable
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.task_only_tools import call_as_task
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.context import peer_of
from greenroom.actors.federation.federation_errors import FederationError
from greenroom.actors.federation.offering import LISTS, PARTS
from greenroom.actors.federation.tool_router import error_result
from greenroom.actors.subscriptions import Subscriptions
from greenroom.actors.successor_supervisor import SuccessorSupervisor
from greenroom.actors.worker import METHOD_ANSWERS
from greenroom.auth.client.auth_option import CallerNotSignedIn
from greenroom.auth.errors import SignInError
from greenroom.protocol.elicitation_forms import UrlElicitation, UrlElicitationRequired
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, PeerError, RequestCancelled
from greenroom.protocol.pagination import page
from greenroom.protocol.provider_rules import provider_name
from greenroom.protocol.serialization import is_array, is_object
from greenroom.protocol.tool_pins import ToolRefused
from greenroom.supervision import (
    SHUTDOWN,
    ActorError,
    DynamicSupervisor,
    GenServer,
    Ref,
    TaskSupervisor,
    child,
    exit,
    is_alive,
    self_pid,
    send_after,
    spawn_link,
    supervise_job,
)

from .client_connections import IDLE_SECONDS, MOST_CONNECTIONS, ClientConnections
from .gateway_view import ClientUpstreams, UpstreamUris, ViewCache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.client.interfaces import Line, Pending
    from greenroom.actors.company import Company
    from greenroom.actors.context import Context
    from greenroom.actors.worker_interfaces import Job, MethodHandler
    from greenroom.supervision import ChildSpec, ExitReason, Pid, Wakeup

    from .client_connections import ClientConnection, GatewayHost
    from .gateway_view import GatewayView, UpstreamRef

_NOTHING: Final[Mapping[str, Any]] = {}
_MOST_VARIED: Final = 64
"""Views of single clients that are kept: one is made anew in milliseconds."""


class Gateway:
    """One mounted host. No process itself: `keeper` has those."""

    def __init__(  # noqa: PLR0913 - whose, where, and how clients are kept apart
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
        """`beside` is another one, of the same server. `shared` are the servers whose one connection, the host's own, serves all clients: True for all of them."""
        self.host = host
        self.company = company
        self.uris = UpstreamUris(prefix)
        self.client_connections = ClientConnections(host, outside, completed, company.peers.notify, most, idle)
        host.on_departure(self.client_connections.depart)
        self.upstream_subscriptions = UpstreamSubscriptions(self._line, outside, company.peers.notify)
        self.prefix = prefix
        self._beside = beside
        self._shared = shared
        self._server_answers: Mapping[str, MethodHandler] = company.hooks.answers
        self._patient = True
        self._view_cache = ViewCache(host.router, host.federation, self.uris, prefix)
        self._view_caches: dict[frozenset[ClientConnection], ViewCache] = {}

    def answers(self) -> dict[str, MethodHandler]:
        """By method, what answers instead of the catalogue."""
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

    # --- what there is

    async def _view_cache_for(self, ctx: Context) -> ViewCache:
        """The lists for this client: the host's, unless upstreams offer something else on the client's own connections."""
        connections = await self.client_connections.differing(ctx)
        if not connections:
            return self._view_cache
        key = frozenset(connections.values())
        viewer = self._view_caches.pop(key, None)
        if viewer is None or viewer.router.pins is not self.host.router.pins:
            varied = ClientUpstreams(self.host.federation, connections)
            viewer = ViewCache(self.host.router.with_upstreams(varied), varied, self.uris, self.prefix)
        self._view_caches[key] = viewer  # the one that was used last is the last
        while len(self._view_caches) > _MOST_VARIED:
            del self._view_caches[next(iter(self._view_caches))]
        return viewer

    async def view(self, viewer: ViewCache) -> GatewayView:
        """What is offered. Upstreams that are slow to begin are waited for once, and so are lists that were not wanted before."""
        catalogue = await viewer.router.catalogue()
        patience = viewer.router.patience if self._patient else 0.0
        self._patient = False
        await self.host.federation.listed(*PARTS, timeout=patience)  # lists that are late are announced when they come
        return viewer.view(catalogue, self.company.catalogue_ref.current)

    async def _tool(self, name: str, viewer: ViewCache) -> UpstreamRef | None:
        """The upstream that has this tool. What is known already is enough, mostly."""
        own = self.company.catalogue_ref.current
        if own.tool(name) is not None:
            return None
        return viewer.view(viewer.router.snapshot(), own).tools.get(name) or (await self.view(viewer)).tools.get(name)

    async def _prompt(self, name: str, ctx: Context) -> UpstreamRef | None:
        """The upstream that has this prompt."""
        own = self.company.catalogue_ref.current
        if own.prompt(name) is not None:
            return None
        viewer = await self._view_cache_for(ctx)
        known = viewer.view(viewer.router.snapshot(), own)
        return known.prompts.get(name) or (await self.view(viewer)).prompts.get(name)

    async def entries(self, method: str, ctx: Context) -> dict[str, Any]:
        """What is listed of upstreams for this client, by what it is sorted by. Tools that are denied are not."""
        others = {} if self._beside is None else await self._beside.entries(method, ctx)
        view = await self.view(await self._view_cache_for(ctx))
        listed = view.lists[method]
        if method == "tools/list":
            denies = self.host.router.denies
            listed = {name: one for name, one in listed.items() if not denies(*view.tools[name][:2])}
        return {**others, **listed}

    def _lists(self, method: str, member: str, kind: Any) -> MethodHandler:
        async def answer(job: Job, ctx: Context) -> dict[str, Any]:
            entries = await self.entries(method, ctx)
            for entry in job.services.catalogue_ref.current.all(kind).values():
                if not may_use(entry, job.facts.peer):
                    continue
                wire: dict[str, Any] = dict(getattr(entry, "wire", _NOTHING))
                entries[wire.get("uri") or wire["name"]] = wire
            keys = sorted(entries)
            part, following = page(keys, job.params.get("cursor"), job.services.settings.page_size, kind)
            result: dict[str, Any] = {member: [entries[key] for key in keys[part]]}
            return result if following is None else {**result, "nextCursor": following}

        return answer

    # --- what is asked

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
        result = await self._carry(origin.server, "tools/call", params, ctx, serial, as_task=origin.task_only)
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
        result = await self._carry(origin.server, "prompts/get", params, ctx)
        return self.uris.prompt(origin.server, result, self._listed(origin.server))

    async def _read(self, job: Job, ctx: Context) -> dict[str, Any]:
        origin = self._origin(job.params["uri"])
        if origin is None:
            return await self._from_server(job, ctx)
        server, own = origin
        ctx.uri = job.params["uri"]
        return self.uris.contents(server, await self._carry(server, "resources/read", {"uri": own}, ctx))

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
        return await self._carry(server, "completion/complete", {**params, "ref": inner}, ctx)

    def _origin(self, uri: str) -> tuple[str, str] | None:
        origin = self.uris.inward(uri)
        return origin if origin is not None and origin[0] in self.host.federation.ids() else None

    def _listed(self, server: str) -> Collection[str]:
        offering = self.host.federation.known(server)
        return () if offering is None else offering.resources

    async def _from_server_or_unreachable(self, job: Job, ctx: Context, name: str, own: object) -> dict[str, Any]:
        """The server's own answer; a name that it does not know either, of an upstream that was never reached, is told as that upstream's absence."""
        try:
            return await self._from_server(job, ctx)
        except McpError as error:
            if own is not None or error.code != ErrorCode.INVALID_PARAMS:
                raise
            agent = self.host.router
            here = name.removeprefix(provider_name(f"{self.prefix}x")[:-1]) if self.prefix else name
            missing = agent.missing(here, (await agent.catalogue()).skipped)
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

    # --- carrying it

    async def _connect(self, server: str, ctx: Context) -> tuple[Line, ClientConnection | None]:
        """The connection for this client. One that cannot be told from others (no principal, no session) uses the host's own.

        Raises `CallerNotSignedIn` where callers have logins of their own: then nothing is shared, whatever `shared` says.
        """
        alone = ctx.principal is None and not ctx.session_id
        shared = alone or (self._shared if isinstance(self._shared, bool) else server in self._shared)
        if shared and not self.host.per_caller(server):
            line = self.host.federation.line(server, quota_key(peer_of(ctx), ctx.session_id))
            if line is None:
                raise Unavailable(server)
            status = line.status
            if status.phase in (Phase.BACKOFF, Phase.PARKED):
                raise Unavailable(server, status.cause, status.retry_in)
            return line, None
        connection = await self.client_connections.connection_for(server, ctx)
        return connection.line, connection

    async def _carry(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        ctx: Context,
        serial: int | None = None,
        *,
        as_task: bool = False,
    ) -> dict[str, Any]:
        """Ask the upstream on behalf of this call: that one, and none that takes its place while it is reached.

        Raises `McpError`: its own, or one that says why there is none.
        """
        meta = {key: value for key, value in ctx.meta.items() if key != "progressToken"}
        whole = {**params, "_meta": meta} if meta else dict(params)
        connection: ClientConnection | None = None
        try:
            line, connection = await self._connect(server, ctx)
            if serial is not None and self.host.federation.serial(server) != serial:
                raise Unavailable(server)
            number = None if connection is None else connection.enter(ctx)
            answered = False
            try:
                # The host's own line counts its calls itself.
                with contextlib.nullcontext() if connection is None else self.host.federation.count_call(server):
                    cancel: Callable[[str], object]
                    if as_task:
                        task = asyncio.ensure_future(call_as_task(line, whole, timeout=None))
                        cancel, ended = task.cancel, _await_task(task, ctx)
                    else:
                        # Progress is asked for also where the client does not want it: each report begins the call's time of silence anew.
                        pending = line.begin(method, whole, timeout=None, progress=True)
                        cancel, ended = pending.cancel, _relay_progress(pending, ctx)
                    if connection is not None and number is not None:
                        connection.set_cancel(number, cancel)
                    result = await ended
                answered = True
            except PeerError as error:
                answered = True
                may_ask = self.host.router.may_ask_users(server)
                if may_ask and connection is not None and (first := url_elicitation_of(error)) is not None:
                    connection.remember_pages([each.id for each in first.elicitations])
                    raise first from None
                raise
            finally:
                if connection is not None and number is not None:
                    connection.leave(number, answered=answered)
        except PeerError as error:
            raise self._outward(server, error) from None
        except RequestCancelled:
            if connection is None or not connection.closed:
                raise
            raise upstream_error(server, ClientClosed(f"{server} was removed")) from None
        except (ClientError, FederationError, SignInError) as error:
            if connection is not None and _not_signed_in(error) is not None:
                self.client_connections.dismiss(connection)
            raise upstream_error(server, error) from error
        return result

    def _outward(self, server: str, error: PeerError) -> McpError:
        """The upstream's error, with the address that the client knows. A server that may not ask users sends none to a page."""
        if error.code == ErrorCode.URL_ELICITATION_REQUIRED and not self.host.router.may_ask_users(server):
            told = {"server": server, "reason": ConsentDenied.reason}
            return McpError(
                ErrorCode.INTERNAL_ERROR, f"The upstream server {server!r} may not ask users anything", told
            )
        data: Any = error.data
        if is_object(data) and isinstance(uri := data.get("uri"), str):
            data = {**data, "uri": self.uris.outward(server, uri)}
        return McpError(error.code, error.message, data)

    # --- resources that change

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
                await self.upstream_subscriptions.begin(ctx.session_id, uri, server, own)
            except (PeerError, ClientError, FederationError, SignInError) as error:
                await company.subscriptions.call(Subscriptions.unsubscribe, session, uri)
                raise (
                    self._outward(server, error) if isinstance(error, PeerError) else upstream_error(server, error)
                ) from error
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
        return (await self._connect(server, ctx))[0]

    # --- from time to time

    async def sweep(self, now: float) -> None:
        """Close what belonged to sessions that have ended, and idle connections; restart followers that have died."""

        def lives(session: str) -> bool:
            return self.company.peers.whereis(session) is not None

        self.client_connections.sweep(now, lives)
        await self.upstream_subscriptions.sweep(lives)

    async def level(self, session: str, level: str) -> None:
        """A client wants to hear so much of what is logged: the upstreams that work for it are told, now and when more of them do."""
        await self.client_connections.set_level(session, level)

    async def roots_changed(self, session: str) -> None:
        """A client works elsewhere now: the upstreams that work for it are told."""
        for line in self.client_connections.lines_of(session):
            with contextlib.suppress(ClientError):
                await line.notify("notifications/roots/list_changed")


async def _relay_progress(pending: Pending, ctx: Context) -> dict[str, Any]:
    """The result, with all progress that was told before it; a client that does not want it any more is heeded."""
    loop = asyncio.get_running_loop()
    unsubscribe = ctx.cancelled.subscribe(lambda: loop.call_soon_threadsafe(pending.cancel, "cancelled by the client"))
    telling = asyncio.ensure_future(_forward_progress(pending, ctx))
    try:
        result = await pending.result()
        await telling
        return result
    finally:
        unsubscribe()
        if not telling.done():
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling


async def _await_task(task: asyncio.Future[dict[str, Any]], ctx: Context) -> dict[str, Any]:
    """The result of a call that is made as a task; it is cancelled with the client's call."""
    loop = asyncio.get_running_loop()
    unsubscribe = ctx.cancelled.subscribe(lambda: loop.call_soon_threadsafe(task.cancel, "cancelled by the client"))
    try:
        await asyncio.wait((task,))
    finally:
        unsubscribe()
        task.cancel()
    if task.cancelled():
        raise RequestCancelled
    return task.result()


async def _forward_progress(pending: Pending, ctx: Context) -> None:
    async for step in pending.progress():
        _ = ctx.progress(step.progress, step.total, step.message)


def url_elicitation_of(error: PeerError) -> UrlElicitationRequired | None:
    """The upstream's user has to visit a page first: the same, as our own error, whose end the client is told."""
    if error.code != ErrorCode.URL_ELICITATION_REQUIRED or not is_object(error.data):
        return None
    listed = error.data.get("elicitations")
    try:
        pages = [
            UrlElicitation(one["message"], one["url"], one["elicitationId"])
            for one in (listed if is_array(listed) else ())
        ]
        return UrlElicitationRequired(pages, error.message)
    except (LocalProtocolError, KeyError, TypeError):
        return None  # no user is sent to what is no page; the upstream's words are passed on as they are


def _not_signed_in(error: Exception) -> CallerNotSignedIn | None:
    cause = getattr(error, "cause", None)
    return next((each for each in (error, cause) if isinstance(each, CallerNotSignedIn)), None)


def upstream_error(server: str, error: ClientError | FederationError | SignInError) -> McpError:
    """What a client is told of an upstream that does not answer: which, and why in a word. What is in the error may be the upstream's own secret."""
    if (caller := _not_signed_in(error)) is not None:
        told = {"server": server, "reason": caller.reason}
        return McpError(ErrorCode.INVALID_REQUEST, f"The upstream server {server!r} was not asked: {caller}", told)
    cause: Any = getattr(error, "cause", None)
    data: dict[str, Any] = {"server": server, "reason": error.reason}
    if isinstance(reason := getattr(cause, "reason", None), str):
        data["cause"] = reason
    if isinstance(error, RequestLost):
        data["maybeDone"] = error.maybe_done
    retry_in = getattr(error, "retry_in", None)
    if isinstance(retry_in, int | float):
        data["retryIn"] = round(float(retry_in), 3)
    return McpError(ErrorCode.INTERNAL_ERROR, f"The upstream server {server!r} has not answered: {error.reason}", data)


# --- Clients' subscriptions to resources of upstreams: for each a process, which hears of the resource on the client's own connection.
# Only the session that subscribed is told, and no other that may have a resource of the same name. When such a process has died (with the
# connection, or with its supervisor), another one takes its place, and the client is told that the resource may have changed meanwhile.

_UPDATED: Final = "notifications/resources/updated"


@dataclass(eq=False, slots=True)
class _Subscription:
    """One subscription, from when it is asked for until it is not wanted any more. A later one of the same resource is another."""

    server: str
    own: str
    pid: Pid | None = None
    begins: bool = False

    @property
    def lost(self) -> bool:
        """Whether it has no process that follows it."""
        return not self.begins and (self.pid is None or not is_alive(self.pid))


@dataclass(eq=False, repr=False)
class UpstreamSubscriptions:
    """All of one gateway."""

    _connect: Callable[[str, Context], Awaitable[Line]]
    """Finds a client's connection to a server."""
    _outside: Callable[[str], Context]
    """Makes the context of a session."""
    _notify: Callable[[str, str, dict[str, Any]], bool]
    """Tells a session."""

    def __post_init__(self) -> None:
        self._wanted: dict[tuple[str, str], _Subscription] = {}
        self.supervisor: Ref[TaskSupervisor] | None = None
        """The supervisor of the followers, once there is one."""

    async def begin(self, session: str, uri: str, server: str, own: str) -> None:
        """Follow what a server calls `own` for a session that knows it as `uri`. Raises why the upstream does not take it."""
        key = (session, uri)
        if key in self._wanted:
            return
        wanted = self._wanted[key] = _Subscription(server, own)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await self._start(key, wanted, ready)
            await ready
        except BaseException as error:
            if self._wanted.get(key) is wanted:
                self.end(session, uri)
            if isinstance(error, ActorError):
                raise Unavailable(server, error) from error
            raise

    def end(self, session: str, uri: str) -> None:
        """Not any more. It need not have been."""
        wanted = self._wanted.pop((session, uri), None)
        if wanted is not None and wanted.pid is not None:
            exit(wanted.pid, SHUTDOWN)

    async def sweep(self, lives: Callable[[str], bool]) -> None:
        """End what belonged to sessions that have ended, and begin again with what has died."""
        for key, wanted in tuple(self._wanted.items()):
            if not lives(key[0]):
                self.end(*key)
            elif wanted.lost:
                try:
                    await self._start(key, wanted, None)
                except ActorError:
                    return  # its supervisor is away: at the next sweep

    async def _start(self, key: tuple[str, str], wanted: _Subscription, ready: asyncio.Future[None] | None) -> None:
        if self.supervisor is None:
            raise Unavailable(wanted.server)
        wanted.begins = True
        try:
            wanted.pid = await supervise_job(self.supervisor, self._follow, key, wanted, ready)
        finally:
            wanted.begins = False

    async def _follow(self, key: tuple[str, str], wanted: _Subscription, ready: asyncio.Future[None] | None) -> None:
        """A process. What may have been missed is told as a change."""
        session, uri = key
        why: Exception = Unavailable(wanted.server)
        try:
            if self._wanted.get(key) is not wanted:
                return
            wanted.pid = self_pid()
            line = await self._connect(wanted.server, self._outside(session))
            async with line.subscribe(wanted.own) as updates:
                if ready is None:
                    self._notify(session, _UPDATED, {"uri": uri})
                elif not ready.done():
                    ready.set_result(None)
                async for _ in updates:
                    if not self._notify(session, _UPDATED, {"uri": uri}):
                        return
        except (ClientError, PeerError, ActorError) as error:
            why = error
        finally:
            if ready is not None and not ready.done():
                if self._wanted.get(key) is wanted:
                    ready.set_exception(why)
                else:
                    ready.set_result(None)  # the session has unsubscribed meanwhile, or is gone


# --- The processes of a gateway, as a child of the company that it serves in: keeper (keeps the host open, says when lists change, and sweeps),
# connections (the clients' own, to upstreams) and followers (one for each client's subscription to an upstream's resource); rest_for_one.

_SWEEP: Final = object()
_EVERY: Final = 5.0
_numbers: Final = count(1)


class GatewayProcess(GenServer):
    """One in each gateway."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, gateway: Gateway, changed: Callable[[Kind], object]) -> None:
        """`changed` is told which list is another one now."""
        self._gateway = gateway
        self._changed = changed
        self._opened = False

    async def init(self) -> None:
        """Open the host, and listen. Clients that list here want all that there is, and to hear of changes."""
        self._gateway.host.federation.keep(*PARTS)
        await self._gateway.host.open()
        self._opened = True
        spawn_link(_announce_changes, self._gateway, self._changed)
        send_after(_EVERY, self.pid, _SWEEP)

    async def handle_info(self, message: Any) -> None:
        """It is time to sweep."""
        if message is _SWEEP:
            await self._gateway.sweep(asyncio.get_running_loop().time())
            send_after(_EVERY, self.pid, _SWEEP)
            return
        super().handle_info(message)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Let go of the host."""
        if self._opened:
            await self._gateway.host.close()


class ConnectionSupervisor(DynamicSupervisor):
    """Has the clients' connections as children, and wakes the calls that wait for it."""

    def __init__(self, started: Wakeup) -> None:
        """`started` is what those calls wait at."""
        super().__init__()
        self._started = started

    def init(self) -> None:
        """From here on it has its name."""
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
    return child(SuccessorSupervisor, children, intensity=5, period=10.0, strategy="rest_for_one").but(
        id=f"gateway {number}"
    )
