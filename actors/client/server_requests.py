"""What a server says to the client: its requests, and its notifications, each taken to the handler by processes of their own.

A request is worked on in a process of its own, bounded in number and in time. Whatever the handler does, the server is answered once: its
result, its `McpError`, or an internal error when it crashes, hangs, is killed or answers with what cannot be said. A crash is in the reports;
the connection never notices.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, not_executed
from greenroom.protocol.jsonrpc import encode_error, encode_result, id_key
from greenroom.supervision import (
    ActorError,
    Exit,
    current_process,
    kill,
    receive,
    send_after,
    spawn_link,
    trap_exit,
)

from .client_handler import ClientHandler, Deferred
from .interfaces import ServerNotification

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId
    from greenroom.supervision import ExitReason, Pid, Process, Timer
    from greenroom.transports.client.interfaces import ClientWire

    from .connection_line import ConnectionLine
    from .settings import ClientSettings

INTERNAL = McpError(ErrorCode.INTERNAL_ERROR, "Internal error")
TOO_LATE = McpError(ErrorCode.INTERNAL_ERROR, "The client did not answer in time")


class HandlerReply(NamedTuple):
    """To the connection: the answer to an server_request, or that it has to be told that there is none."""

    request: ServerRequest
    result: Any
    error: BaseException | None = None


class HandlerTimeout(NamedTuple):
    """To the connection: an server_request takes too long."""

    request: ServerRequest


class ServerRequest:
    """One request of the server's."""

    __slots__ = ("_connection", "_replied", "id", "key", "method", "timer", "wire", "worker")

    def __init__(self, connection: Process, wire: ClientWire, request: JsonRpcRequest) -> None:
        """`wire` is where it came from, and where its answer belongs."""
        self._connection = connection
        self.wire = wire
        self.id: RequestId = request.id
        self.key = wire.pid, id_key(request.id)
        self.method = request.method
        self.worker: Process | None = None
        self.timer: Timer | None = None
        self._replied = False

    def answer(self, result: Any, error: BaseException | None) -> None:
        """Tell the connection, from any thread. Once is enough: it ignores what comes later."""
        self._replied = True
        process = self._connection
        answered = HandlerReply(self, result, error)
        if threading.get_ident() == process.node.thread:
            process.send(answered)  # before the worker's end, which would be taken for no answer
        else:
            process.node.call_from_thread(process.send, answered)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The worker is gone: if it has not answered, answer with an internal error."""
        self.worker = None
        if not self._replied:
            self._connection.send(HandlerReply(self, None, INTERNAL))


class ServerRequests:
    """All of one connection."""

    def __init__(self, connection: Process, handler: ClientHandler, settings: ClientSettings) -> None:
        """They run on behalf of `connection`, and end with it."""
        self._connection = connection
        self._handler = handler
        self._settings = settings
        self._open: dict[tuple[Pid, RequestId | bytes], ServerRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, request: JsonRpcRequest, wire: ClientWire) -> bytes | None:
        """Have it worked on, or the refusal at once."""
        limit = self._settings.max_server_requests
        refusal: McpError | None = None
        server_request = ServerRequest(self._connection, wire, request)
        if server_request.key in self._open:
            refusal = McpError(ErrorCode.INVALID_REQUEST, "This id is in use by a request that is under way")
        elif len(self._open) >= limit:
            text = f"Too many requests at once: at most {limit} may be under way"
            refusal = McpError(ErrorCode.INTERNAL_ERROR, text, not_executed("too_many_requests"))
        if refusal is not None:
            return encode_error(request.id, refusal)
        try:
            pid = spawn_link(_run_handler, server_request, self._handler, request)
        except ActorError:  # the node is closing
            return encode_error(request.id, INTERNAL)
        self._open[server_request.key] = server_request
        server_request.worker = self._connection.node.process(pid)
        assert server_request.worker is not None
        server_request.worker.add_exit_waiter(server_request)
        if self._settings.server_request_timeout is not None:
            server_request.timer = send_after(
                self._settings.server_request_timeout, self._connection.pid, HandlerTimeout(server_request)
            )
        return None

    def on_reply(self, answered: HandlerReply) -> bytes | None:
        """The words for the server, unless it was answered, or does not want to be."""
        server_request = answered.request
        if isinstance(answered.result, Deferred) and answered.error is None:
            if self._has(server_request):
                answered.result.deliver_to(server_request.answer)
            return None
        if not self._drop(server_request):
            return None
        if answered.error is not None:
            error = answered.error
            return encode_error(server_request.id, error if isinstance(error, McpError) else INTERNAL)
        try:
            return encode_result(server_request.id, {} if answered.result is None else answered.result)
        except LocalProtocolError:
            return encode_error(server_request.id, INTERNAL)

    def on_timeout(self, server_request: ServerRequest) -> bytes | None:
        """It takes too long: the server is told, and its worker ended."""
        return encode_error(server_request.id, TOO_LATE) if self._drop(server_request) else None

    def cancel(self, wire: Pid, id: Any) -> None:
        """The server does not want it any more, and no answer."""
        server_request = self._open.get((wire, id_key(id))) if isinstance(id, str | int) else None
        if server_request is not None:
            self._drop(server_request)

    def abandon(self, wire: Pid | None = None) -> None:
        """Drop the errands whose wire is gone: those of one wire, or all."""
        for server_request in tuple(self._open.values()):
            if wire is None or server_request.wire.pid == wire:
                self._drop(server_request)

    def _has(self, server_request: ServerRequest) -> bool:
        return self._open.get(server_request.key) is server_request

    def _drop(self, server_request: ServerRequest) -> bool:
        """Forget the server_request, and end its worker; False when that was done already."""
        if not self._has(server_request):
            return False
        del self._open[server_request.key]
        if server_request.timer is not None:
            server_request.timer.cancel()
        worker, server_request.worker = server_request.worker, None
        if worker is not None:
            worker.remove_exit_waiter(server_request)
            kill(worker.pid)
        return True


async def _run_handler(server_request: ServerRequest, handler: ClientHandler, request: JsonRpcRequest) -> None:
    process = current_process("work")
    try:
        result: Any = handler.handle_request(request.method, request.params)
        if inspect.isawaitable(result):
            result = await result
    except BaseException as error:
        if process.life:
            raise  # ended from outside: the task that did so has answered
        server_request.answer(None, error)
        if not isinstance(error, McpError):
            raise
    else:
        server_request.answer(result, None)


# --- The attendant takes notifications to the handler: one process, in the order in which they were said, with a bounded mailbox.
# It begins with the handler's `init` and ends with its `terminate`. What the handler raises is this process's crash: it is reported, and
# the next notification finds a new one.

_LISTENING_METHODS = ("init", "handle_notification", "terminate")


class NotificationDispatcher:
    """The connection's side of it. Without a handler that listens there is no process."""

    def __init__(self, connection: Process, handler: ClientHandler, line: ConnectionLine) -> None:
        """Nothing runs yet."""
        self._connection = connection
        self._handler = handler
        self._line = line
        self._process: Process | None = None
        kind = type(handler)
        self.wanted = any(getattr(kind, name) is not getattr(ClientHandler, name) for name in _LISTENING_METHODS)
        """Whether the handler listens at all."""
        self.full = False
        """Whether the last one had to be dropped."""

    def begin(self) -> None:
        """Run, in the connection's process."""
        if self.wanted:
            pid = spawn_link(_dispatch_notifications, self._handler, self._line)
            self._process = self._connection.node.process(pid)
            assert self._process is not None
            self._process.limit = self._line.settings.max_updates

    def tell(self, method: str, params: Mapping[str, Any]) -> bool:
        """Pass it on. False when it had to be dropped, and the one before it had not."""
        if not self.wanted:
            return True
        if self._process is None:
            self.begin()
        assert self._process is not None
        before, self.full = self.full, not self._process.send(ServerNotification(method, params))
        return before or not self.full

    def on_exit(self, pid: Pid) -> None:
        """A linked process has ended, perhaps this one."""
        if self._process is not None and self._process.pid == pid:
            self._process = None


async def _dispatch_notifications(handler: ClientHandler, line: ConnectionLine) -> None:
    trap_exit()
    await _await_if_needed(handler.init(line))
    while True:
        message = await receive()
        if isinstance(message, ServerNotification):
            await _await_if_needed(handler.handle_notification(message.method, dict(message.params)))
        elif isinstance(message, Exit):
            async with asyncio.timeout(line.settings.close_grace):
                await _await_if_needed(handler.terminate())
            return


async def _await_if_needed(value: Any) -> None:
    if inspect.isawaitable(value):
        await value
