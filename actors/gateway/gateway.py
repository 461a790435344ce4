"""The gateway: serves a federation as one server, with the lists of all upstreams, and each request forwarded to the right one.

It answers requests in place of the server's catalogue, in a worker for each request, as the server's own tools do; entries of the server itself
remain. Progress, log messages and questions reach the client of the call; its cancellation, end and deadline reach the
upstream. A request to an unreachable upstream fails at once, with a reason that programs can read. The host's rules and pins hold for every call.
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
from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.actors.federation.federation_errors import FederationError
from greenroom.actors.federation.offering import LISTS, PARTS
from greenroom.actors.federation.tool_router import error_result
from greenroom.actors.subscriptions import Subscriptions
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

    async def entries(self, method: str, ctx: Context) -> dict[str, Any]:
        """The upstreams' entries for this client, by sort key, without denied tools."""
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

    # --- forwarding

    async def _connect(self, server: str, ctx: Context) -> tuple[Line, ClientConnection | None]:
        """The connection for this client. Callers without principal and session share the host's own.

        Raises `CallerNotSignedIn` where each caller needs its own login: then no connection is shared, whatever `shared` says.
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
        """Send the request to the upstream on behalf of this call; with `serial`, only to that very server and not to its replacement.

        Raises `McpError`: the upstream's, or one that says why it has not answered.
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
                # The host's own line counts its calls by itself.
                with contextlib.nullcontext() if connection is None else self.host.federation.count_call(server):
                    cancel: Callable[[str], object]
                    if as_task:
                        task = asyncio.ensure_future(call_as_task(line, whole, timeout=None))
                        cancel, ended = task.cancel, _await_task(task, ctx)
                    else:
                        # Progress is requested even if the client did not: each report restarts the worker's timeout for silent calls.
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
        """The upstream's error for the client, with the gateway's URI. A URL elicitation of a server that may not ask users is refused."""
        if error.code == ErrorCode.URL_ELICITATION_REQUIRED and not self.host.router.may_ask_users(server):
            detail = {"server": server, "reason": ConsentDenied.reason}
            return McpError(
                ErrorCode.INTERNAL_ERROR, f"The upstream server {server!r} may not ask users anything", detail
            )
        data: Any = error.data
        if is_object(data) and isinstance(uri := data.get("uri"), str):
            data = {**data, "uri": self.uris.outward(server, uri)}
        return McpError(error.code, error.message, data)

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

    # --- maintenance

    async def sweep(self, now: float) -> None:
        """Close idle connections and those of ended sessions; restart subscription processes that have died."""

        def lives(session: str) -> bool:
            return self.company.peers.whereis(session) is not None

        self.client_connections.sweep(now, lives)
        await self.upstream_subscriptions.sweep(lives)

    async def level(self, session: str, level: str) -> None:
        """Set a client's log level at the upstreams that work for it, now and later ones."""
        await self.client_connections.set_level(session, level)

    async def roots_changed(self, session: str) -> None:
        """Notify the upstreams that work for a client that its roots have changed."""
        for line in self.client_connections.lines_of(session):
            with contextlib.suppress(ClientError):
                await line.notify("notifications/roots/list_changed")


async def _relay_progress(pending: Pending, ctx: Context) -> dict[str, Any]:
    """The result, after all progress before it was passed on. The client's cancellation is passed to the upstream."""
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
    """The result of a call made as a task, which is cancelled with the client's call."""
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
    """An upstream's URL elicitation error as our own, so that the client is notified of its completion; None for other errors."""
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
        return None  # invalid pages: pass the upstream's error on unchanged


def _not_signed_in(error: Exception) -> CallerNotSignedIn | None:
    cause = getattr(error, "cause", None)
    return next((each for each in (error, cause) if isinstance(each, CallerNotSignedIn)), None)


def upstream_error(server: str, error: ClientError | FederationError | SignInError) -> McpError:
    """The error for a client when an upstream does not answer: its name and a reason. The error's text is left out, since it may contain secrets."""
    if (caller := _not_signed_in(error)) is not None:
        detail = {"server": server, "reason": caller.reason}
        return McpError(ErrorCode.INVALID_REQUEST, f"The upstream server {server!r} was not asked: {caller}", detail)
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


# --- Clients' subscriptions to resources of upstreams: one process for each, which follows the resource on the client's own connection.
# Only the session that subscribed is notified. When such a process has died (with the connection, or with its supervisor), the next sweep
# starts another one, and the client is notified, since the resource may have changed meanwhile.

_UPDATED: Final = "notifications/resources/updated"


@dataclass(eq=False, slots=True)
class _Subscription:
    """One subscription, from subscribe to unsubscribe. A later one to the same resource is another object."""

    server: str
    own: str
    pid: Pid | None = None
    begins: bool = False

    @property
    def lost(self) -> bool:
        """Whether its process has died."""
        return not self.begins and (self.pid is None or not is_alive(self.pid))


@dataclass(eq=False, repr=False)
class UpstreamSubscriptions:
    """All subscriptions of one gateway."""

    _connect: Callable[[str, Context], Awaitable[Line]]
    """Finds a client's connection to a server."""
    _outside: Callable[[str], Context]
    """Makes the context of a session."""
    _notify: Callable[[str, str, dict[str, Any]], bool]
    """Sends a notification to a session."""

    def __post_init__(self) -> None:
        self._wanted: dict[tuple[str, str], _Subscription] = {}
        self.supervisor: Ref[TaskSupervisor] | None = None
        """The supervisor of the subscriptions' processes, once there is one."""

    async def begin(self, session: str, uri: str, server: str, own: str) -> None:
        """Subscribe a session to `uri`, which is `own` at the server. Raises the upstream's error."""
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
        """End a subscription; a no-op without one."""
        wanted = self._wanted.pop((session, uri), None)
        if wanted is not None and wanted.pid is not None:
            exit(wanted.pid, SHUTDOWN)

    async def sweep(self, lives: Callable[[str], bool]) -> None:
        """End the subscriptions of ended sessions, and restart processes that have died."""
        for key, wanted in tuple(self._wanted.items()):
            if not lives(key[0]):
                self.end(*key)
            elif wanted.lost:
                try:
                    await self._start(key, wanted, None)
                except ActorError:
                    return  # the supervisor is being restarted: try again at the next sweep

    async def _start(self, key: tuple[str, str], wanted: _Subscription, ready: asyncio.Future[None] | None) -> None:
        if self.supervisor is None:
            raise Unavailable(wanted.server)
        wanted.begins = True
        try:
            wanted.pid = await supervise_job(self.supervisor, self._follow, key, wanted, ready)
        finally:
            wanted.begins = False

    async def _follow(self, key: tuple[str, str], wanted: _Subscription, ready: asyncio.Future[None] | None) -> None:
        """The body of a subscription's process. After a restart it notifies once, since changes may have been missed."""
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
                    ready.set_result(None)  # the session has unsubscribed meanwhile, or has ended: that is a success


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
