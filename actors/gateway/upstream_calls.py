"""Requests that a gateway carries to an upstream on behalf of its clients' calls.

Progress, log messages and questions reach the client of the call; its cancellation, end and deadline reach the upstream. Where the client and the
upstream are of different eras, `era_bridge` says what becomes of the request, the result and the error.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.catalogue import quota_key
from greenroom.actors.client.errors import (
    ClientClosed,
    ClientError,
    InputRefused,
    RequestLost,
    Unavailable,
    Unsupported,
)
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.task_only_tools import call_as_task
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.context import peer_of
from greenroom.actors.federation.federation_errors import FederationError, UpstreamBusy
from greenroom.actors.task_record import TaskUpdate
from greenroom.auth.client.auth_option import CallerNotSignedIn
from greenroom.auth.errors import SignInError
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.elicitation_forms import UrlElicitation, UrlElicitationRequired
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, PeerError, RequestCancelled
from greenroom.protocol.input_required import MOST_ROUNDS
from greenroom.protocol.serialization import is_array, is_object
from greenroom.supervision import detached_task
from greenroom.supervision.event_bus import bus

from .era_bridge import (
    UpstreamTraits,
    bridged_error,
    bridged_result,
    forwarded_meta,
    may_be_task,
    needs_task,
    wanted_level,
    wraps_result,
)
from .forwarding_handler import forwardable_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from greenroom.actors.client.interfaces import Line, Pending, Progress
    from greenroom.actors.context import Context
    from greenroom.actors.worker_interfaces import Job
    from greenroom.protocol.dialect import Dialect

    from .client_connections import ClientConnection, ClientConnections, GatewayHost
    from .gateway_view import UpstreamUris

_PAGE_PATIENCE: Final = 10.0
"""Seconds that a call waits for the news that its user is done with a page, before it is sent again."""
_CANCEL_TIMEOUT: Final = 5.0


class UpstreamCalls:
    """The requests of one gateway to its upstreams."""

    def __init__(
        self,
        host: GatewayHost,
        connections: ClientConnections,
        uris: UpstreamUris,
        shared: bool | Collection[str],  # noqa: FBT001 - as `Server.mount` takes it
        usual_level: Callable[[], str],
    ) -> None:
        """`shared` are the servers for which the host's own connection serves all clients. `usual_level` is the log level of a session that has set none."""
        self._host = host
        self._connections = connections
        self._uris = uris
        self._shared = shared
        self._usual_level = usual_level

    def is_shared(self, server: str, ctx: Context) -> bool:
        """Whether the host's own connection serves this caller."""
        alone = ctx.principal is None and not ctx.session_id
        if alone and dialect_of(ctx.protocol_version).is_stateless:
            alone = wanted_level(ctx.meta) is None and not forwardable_capabilities(ctx.client_capabilities)
        shared = alone or (self._shared if isinstance(self._shared, bool) else server in self._shared)
        return shared and not self._host.per_caller(server)

    async def connect(self, server: str, ctx: Context) -> tuple[Line, ClientConnection | None]:
        """The connection for this client. Callers that stand alone, and can be asked and told nothing, share the host's own.

        Raises `CallerNotSignedIn` where each caller needs its own login: then no connection is shared, whatever `shared` says.
        """
        if self.is_shared(server, ctx):
            line = self._host.federation.line(server, quota_key(peer_of(ctx), ctx.session_id))
            if line is None:
                raise Unavailable(server)
            status = line.status
            if status.phase in (Phase.BACKOFF, Phase.PARKED):
                raise Unavailable(server, status.cause, status.retry_in)
            return line, None
        connection = await self._connections.connection_for(server, ctx)
        return connection.line, connection

    async def _connected(
        self, server: str, method: str, params: Mapping[str, Any], ctx: Context
    ) -> tuple[Line, ClientConnection | None]:
        """The same; listeners of events hear of a request that gets no connection."""
        try:
            return await self.connect(server, ctx)
        except (ClientError, SignInError) as error:
            if bus.listener is not None:
                from greenroom.actors.federation.upstream_events import announce_unsent  # noqa: PLC0415 - only a program with a listener loads the events

                announce_unsent(self._host.federation.key.name, server, method, params, error)
            raise

    async def carry(  # noqa: PLR0913 - the request, and the call that it is for
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        job: Job,
        ctx: Context,
        *,
        serial: int | None = None,
        tool: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send the request to the upstream on behalf of this call; with `serial`, only to that very server and not to its replacement.

        `tool` is the definition of the tool that is called. Raises `McpError`: the upstream's, or one that says why it has not answered.
        """
        connection: ClientConnection | None = None
        number: int | None = None
        traits, answered = UpstreamTraits(), False
        try:
            line, connection = await self._connected(server, method, params, ctx)
            number = None if connection is None else connection.enter(ctx)
            if serial is not None and self._host.federation.serial(server) != serial:
                answered = True  # nothing was sent
                raise Unavailable(server)
            traits = UpstreamTraits.of(line.welcome)
            # The host's own line counts its calls by itself.
            with contextlib.nullcontext() if connection is None else self._host.federation.count_call(server):
                result = await _CarriedRequest(self, server, line, connection, number, job, ctx).result(
                    method, params, tool
                )
            answered = True
            traits = UpstreamTraits.of(line.welcome)
        except PeerError as error:
            answered = True
            raise self.outward(server, error, method, ctx, traits) from None
        except RequestCancelled:
            if connection is None or not connection.closed:
                raise
            raise upstream_error(server, ClientClosed(f"{server} was removed")) from None
        except UrlElicitationRequired:
            answered = True
            raise
        except InputRefused as error:
            answered = True
            raise refused_question(server, error) from error
        except (ClientError, FederationError, SignInError) as error:
            if connection is not None and _not_signed_in(error) is not None:
                self._connections.dismiss(connection)
            raise upstream_error(server, error) from error
        finally:
            if connection is not None and number is not None:
                connection.leave(number, answered=answered or not connection.may_say_more)
                self._connections.release(connection)
        front = dialect_of(ctx.protocol_version)
        return bridged_result(method, result, front, traits, wraps=tool is not None and wraps_result(tool, traits))

    def outward(
        self, server: str, error: PeerError, method: str, ctx: Context, traits: UpstreamTraits | None = None
    ) -> McpError:
        """The upstream's error for the client, with the gateway's URI. A URL elicitation of a server that may not ask users is refused."""
        if error.code == ErrorCode.URL_ELICITATION_REQUIRED and not self._host.router.may_ask_users(server):
            detail = {"server": server, "reason": ConsentDenied.reason}
            return McpError(
                ErrorCode.INTERNAL_ERROR, f"The upstream server {server!r} may not ask users anything", detail
            )
        data: Any = error.data
        if is_object(data) and isinstance(uri := data.get("uri"), str):
            data = {**data, "uri": self._uris.outward(server, uri)}
        traits = self._connections.traits(server) if traits is None else traits
        return bridged_error(
            McpError(error.code, error.message, data), method, dialect_of(ctx.protocol_version), traits
        )

    def level(self, ctx: Context) -> str | None:
        """The lowest level of log messages that the client of this call wants; None for no messages."""
        said = self._connections.level_of(ctx)
        return self._usual_level() if said is None and ctx.session_id else said

    def may_ask_users(self, server: str) -> bool:
        """Whether the rules allow the server to ask users."""
        return self._host.router.may_ask_users(server)


class _CarriedRequest:
    """One request to an upstream, and its repetitions after its user has been to a page."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a request goes between
        self,
        calls: UpstreamCalls,
        server: str,
        line: Line,
        connection: ClientConnection | None,
        number: int | None,
        job: Job,
        ctx: Context,
    ) -> None:
        """`number` is that of the call on the connection."""
        self._calls = calls
        self._server = server
        self._line = line
        self._connection = connection
        self._number = number
        self._job = job
        self._ctx = ctx
        self._front: Dialect = dialect_of(ctx.protocol_version)

    async def result(self, method: str, params: Mapping[str, Any], tool: Mapping[str, Any] | None) -> dict[str, Any]:
        """The upstream's result. Raises its `PeerError`, and errors of the connection."""
        for _ in range(MOST_ROUNDS):
            try:
                return await self._sent(method, params, tool)
            except PeerError as error:
                required = url_elicitation_of(error) if self._calls.may_ask_users(self._server) else None
                if required is None or (self._connection is None and not self._front.is_stateless):
                    raise
                if self._connection is not None:
                    self._connection.remember_pages([each.id for each in required.elicitations])
                if not self._front.is_stateless:
                    raise required from None
                await self._visit(required)
        raise McpError(
            ErrorCode.INTERNAL_ERROR,
            f"The upstream server {self._server!r} sends the user to a page again and again",
            {"server": self._server, "reason": "input_refused"},
        )

    async def _visit(self, required: UrlElicitationRequired) -> None:
        """Send the user to these pages, in one question each. Raises `McpError` if one is declined."""
        asked = (
            self._ctx.request(
                "elicitation/create",
                {"mode": "url", "message": page.message, "url": page.url, "elicitationId": page.id},
            )
            for page in required.elicitations
        )
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            if answer.get("action") != "accept":
                raise McpError(
                    ErrorCode.INTERNAL_ERROR,
                    f"The upstream server {self._server!r} needs its user to visit a page first: {required.message}",
                    {"server": self._server, "reason": "input_refused"},
                )
        if self._connection is not None:
            await self._connection.wait_visited([page.id for page in required.elicitations], _PAGE_PATIENCE)

    async def _sent(self, method: str, params: Mapping[str, Any], tool: Mapping[str, Any] | None) -> dict[str, Any]:
        traits = UpstreamTraits.of(self._line.welcome)
        meta = forwarded_meta(self._ctx.meta, self._front, traits, self._calls.level(self._ctx))
        whole = {**params, "_meta": meta} if meta else dict(params)
        if self._connection is not None and self._number is not None:
            self._connection.set_params(self._number, whole)
        if tool is not None:
            may_start = self._job.task_starter is not None and self._job.task is None
            if traits.tasks == "extension" and may_start:
                return await self._as_task_of_client(method, whole)
            has_task = traits.tasks == "session" and may_be_task(tool, traits)
            if has_task and may_start:  # its list was not known when the call began
                with contextlib.suppress(McpError):
                    await self._ctx.start_task()
            if needs_task(tool, traits) or (has_task and self._job.task is not None):
                return await self._as_session_task(whole)
        # Progress is requested even if the client did not: each report restarts the worker's timeout for silent calls.
        return await self._settled(self._line.begin(method, whole, timeout=None, progress=True))

    async def _as_session_task(self, whole: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a task call to a handshake server."""
        # Not this worker's: it cancels the upstream's task also while the worker ends.
        task = detached_task(call_as_task(self._line, whole, on_progress=self._tell, timeout=None))
        self._set_cancel(task.cancel)
        return await _await_task(task, self._ctx)

    async def _as_task_of_client(self, method: str, whole: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a call that becomes a task of the client's, too, as soon as the upstream makes a task of it."""
        line = self._line
        begun = await self._settled(line.begin(method, whole, timeout=None, progress=True, as_task=True))
        id: Any = begun.get("taskId")
        if begun.get("resultType") != "task" or not isinstance(id, str):
            return begun
        try:
            # A client with too many tasks waits for the result itself.
            with contextlib.suppress(McpError):
                await self._ctx.start_task()
            return await self._settled(line.begin("tasks/result", {"taskId": id}, timeout=None, progress=True))
        except (asyncio.CancelledError, RequestCancelled):
            # Awaited before the connection is given back, which may close it; not this worker's, which may end meanwhile.
            await asyncio.shield(detached_task(_cancel_task(line, id)))
            raise

    async def _settled(self, pending: Pending) -> dict[str, Any]:
        self._set_cancel(pending.cancel)
        return await _relay_progress(pending, self._ctx, self._tell)

    def _tell(self, step: Progress) -> None:
        """Pass a step on; its message is also the status of the task that the client has of this call."""
        _ = self._ctx.progress(step.progress, step.total, step.message)
        if self._job.task is not None and step.message is not None:
            self._job.session.send(TaskUpdate(step.message))

    def _set_cancel(self, cancel: Callable[[str], object]) -> None:
        if self._connection is not None and self._number is not None:
            self._connection.set_cancel(self._number, cancel)


async def _relay_progress(pending: Pending, ctx: Context, tell: Callable[[Progress], object]) -> dict[str, Any]:
    """The result, after all progress before it was passed on. The client's cancellation is passed to the upstream."""
    loop = asyncio.get_running_loop()
    unsubscribe = ctx.cancelled.subscribe(lambda: loop.call_soon_threadsafe(pending.cancel, "cancelled by the client"))
    telling = asyncio.ensure_future(_forward_progress(pending, tell))
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


async def _cancel_task(line: Line, id: str) -> None:
    with contextlib.suppress(ClientError, FederationError, PeerError):
        await line.request("tasks/cancel", {"taskId": id}, timeout=_CANCEL_TIMEOUT, wait=False)


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


async def _forward_progress(pending: Pending, tell: Callable[[Progress], object]) -> None:
    async for step in pending.progress():
        tell(step)


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
    elif isinstance(error, Unavailable | Unsupported | UpstreamBusy):
        data["maybeDone"] = False  # nothing was sent
    retry_in = getattr(error, "retry_in", None)
    if isinstance(retry_in, int | float):
        data["retryIn"] = round(float(retry_in), 3)
    what = f"cannot do this: {error}" if isinstance(error, Unsupported) else f"has not answered: {error.reason}"
    return McpError(ErrorCode.INTERNAL_ERROR, f"The upstream server {server!r} {what}", data)


def refused_question(server: str, error: InputRefused) -> McpError:
    """The error for a client whose upstream has asked something, and got no answer. A capability that the client lacks is named to it."""
    cause = error.cause
    if isinstance(cause, McpError) and cause.code == ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY:
        return McpError(cause.code, cause.message, cause.data)
    why = f": {cause.message}" if isinstance(cause, McpError) else ""
    detail = {"server": server, "reason": error.reason, "question": error.question}
    return McpError(
        ErrorCode.INTERNAL_ERROR,
        f"The upstream server {server!r} asks for {error.question}, and got no answer{why}",
        detail,
    )
