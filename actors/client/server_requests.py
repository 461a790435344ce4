"""Requests, questions and notifications from the server, and the processes that pass them to the client's handler.

A question is a request of the stateless era: it comes in a reply, and its answer goes with the next request. Each request runs in a process
of its own, bounded in number and in time. The server gets exactly one reply, whatever the handler does: its result, its `McpError`, or an
internal error when it crashes, hangs, is killed or returns a value that cannot be encoded. A crash is reported and does not reach the connection.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, not_executed
from greenroom.protocol.jsonrpc import encode_error, encode_result, id_key, is_object
from greenroom.supervision import ActorError, Exit, current_process, kill, receive, send_after, spawn_link, trap_exit
from greenroom.supervision.event_bus import bus

from .client_handler import ClientHandler, Deferred, begin_asking
from .interfaces import ServerNotification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId
    from greenroom.supervision import ExitReason, Pid, Process, Timer
    from greenroom.transports.client.interfaces import ClientWire

    from .client_events import ClientQuestion
    from .client_handler import AskingCall
    from .connection_line import ConnectionLine

TellAnswer: TypeAlias = "Callable[[Any, BaseException | None], object]"
"""Called with the handler's answer to a question, or with its error."""
INTERNAL = McpError(ErrorCode.INTERNAL_ERROR, "Internal error")
TOO_LATE = McpError(ErrorCode.INTERNAL_ERROR, "The client did not answer in time")


class HandlerReply(NamedTuple):
    """To the connection: the handler's result for a request, or its error."""

    request: ServerRequest
    result: Any
    error: BaseException | None = None


class HandlerTimeout(NamedTuple):
    """To the connection: the handler takes too long for a request."""

    request: ServerRequest


class ServerRequest:
    """One request from the server, while the handler works on it."""

    __slots__ = ("_connection", "_replied", "id", "key", "method", "question", "tell", "timer", "wire", "worker")

    def __init__(
        self, connection: Process, wire: ClientWire | None, request: JsonRpcRequest, tell: TellAnswer | None
    ) -> None:
        """`wire` is where the request came from, and where its reply goes; a question has none, and `tell` gets the answer."""
        self._connection = connection
        self.wire = wire
        self.id: RequestId = request.id
        self.key = (connection if wire is None else wire).pid, id_key(request.id)
        self.method = request.method
        self.tell = tell
        self.worker: Process | None = None
        self.timer: Timer | None = None
        self.question: ClientQuestion | None = None
        """The question that listeners of events hear of."""
        self._replied = False

    def answer(self, result: Any, error: BaseException | None) -> None:
        """Pass the outcome to the connection, from any thread. Only the first one counts."""
        self._replied = True
        process = self._connection
        answered = HandlerReply(self, result, error)
        if threading.get_ident() == process.node.thread:
            process.send(answered)  # at once: the worker's exit, if it came first, would be taken for a missing reply
        else:
            process.node.call_from_thread(process.send, answered)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """Called when the worker has ended: without a reply of its own, the server gets an internal error."""
        self.worker = None
        if not self._replied:
            self._connection.send(HandlerReply(self, None, INTERNAL))


class ServerRequests:
    """All requests from the server that are under way on one connection."""

    def __init__(self, connection: Process, handler: ClientHandler, line: ConnectionLine) -> None:
        """The workers are linked to `connection`, and end with it."""
        self._connection = connection
        self._handler = handler
        self._line = line
        self._settings = line.settings
        self._open: dict[tuple[Pid, RequestId | bytes], ServerRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, request: JsonRpcRequest, wire: ClientWire, call: AskingCall | None) -> bytes | None:
        """Start a worker for the request. Returns the encoded refusal where that is not possible. `call` is the request it belongs to, if that is certain."""
        refusal = self._start(ServerRequest(self._connection, wire, request, None), request, call)
        return None if refusal is None else encode_error(request.id, refusal)

    def ask(self, question: JsonRpcRequest, call: AskingCall, tell: TellAnswer) -> None:
        """Start a worker for a question that came in the reply to `call`. `tell` is called once, with the answer or the error."""
        refusal = self._start(ServerRequest(self._connection, None, question, tell), question, call)
        if refusal is not None:
            tell(None, refusal)

    def _start(
        self, server_request: ServerRequest, request: JsonRpcRequest, call: AskingCall | None
    ) -> McpError | None:
        """Start a worker. Returns the refusal where that is not possible."""
        limit = self._settings.max_server_requests
        if server_request.key in self._open:
            return McpError(ErrorCode.INVALID_REQUEST, "This id is in use by a request that is under way")
        if len(self._open) >= limit:
            self._line.announce_refusal("too_many_requests", "max_server_requests", request.method)
            text = f"Too many requests at once: at most {limit} may be under way"
            return McpError(ErrorCode.INTERNAL_ERROR, text, not_executed("too_many_requests"))
        try:
            pid = spawn_link(_run_handler, server_request, self._handler, request, call)
        except ActorError:  # the node is closing
            return INTERNAL
        self._open[server_request.key] = server_request
        server_request.worker = self._connection.node.process(pid)
        assert server_request.worker is not None
        server_request.worker.add_exit_waiter(server_request)
        if self._settings.server_request_timeout is not None:
            server_request.timer = send_after(
                self._settings.server_request_timeout, self._connection.pid, HandlerTimeout(server_request)
            )
        if bus.listener is not None:
            from .client_events import start_question  # noqa: PLC0415 - only a program with a listener loads the events

            loop = self._connection.node.loop
            about = None if call is None else call.call
            is_request = server_request.wire is not None
            server_request.question = start_question(self._line, loop, request, about, is_request=is_request)
        return None

    def on_reply(self, answered: HandlerReply) -> bytes | None:
        """The encoded reply; None if the request was settled before, or its answer is deferred."""
        server_request = answered.request
        if isinstance(answered.result, Deferred) and answered.error is None:
            if self._has(server_request):
                answered.result.deliver_to(server_request.answer)
            return None
        if not self._drop(server_request, answered.result, answered.error, is_lost=False):
            return None
        if server_request.tell is not None:
            answer: Any = {} if answered.result is None else answered.result
            error = answered.error
            if error is None and not is_object(answer):
                error = TypeError(f"the handler returned a {type(answer).__name__} instead of a dict")
            server_request.tell(answer, error)
            return None
        if answered.error is not None:
            error = answered.error
            return encode_error(server_request.id, error if isinstance(error, McpError) else INTERNAL)
        try:
            return encode_result(server_request.id, {} if answered.result is None else answered.result)
        except LocalProtocolError:
            return encode_error(server_request.id, INTERNAL)

    def on_timeout(self, server_request: ServerRequest) -> bytes | None:
        """End a worker that takes too long. Returns the encoded error."""
        if not self._drop(server_request, None, TOO_LATE, is_lost=False):
            return None
        if server_request.tell is not None:
            server_request.tell(None, TOO_LATE)
            return None
        return encode_error(server_request.id, TOO_LATE)

    def cancel(self, wire: Pid, id: Any) -> None:
        """The server cancelled the request: end its worker, and send no reply."""
        server_request = self._open.get((wire, id_key(id))) if isinstance(id, str | int) else None
        if server_request is not None:
            self._drop(server_request)

    def withdraw(self, id: RequestId) -> None:
        """The answer to this question is not wanted any more: end its worker."""
        server_request = self._open.get((self._connection.pid, id_key(id)))
        if server_request is not None:
            self._drop(server_request)

    def abandon(self, wire: Pid | None = None) -> None:
        """Drop the requests of a wire that has ended, or all."""
        for server_request in tuple(self._open.values()):
            if wire is None or (server_request.wire is not None and server_request.wire.pid == wire):
                self._drop(server_request)

    def _has(self, server_request: ServerRequest) -> bool:
        return self._open.get(server_request.key) is server_request

    def end_questions(self) -> None:
        """The connection's process has ended: so have the questions, and listeners of events are told."""
        for server_request in self._open.values():
            if server_request.question is not None:
                server_request.question.end(None, None, is_lost=True)

    def _drop(
        self,
        server_request: ServerRequest,
        result: object = None,
        error: BaseException | None = None,
        *,
        is_lost: bool = True,
    ) -> bool:
        """Forget the request, and end its worker. False when that was done already. `is_lost`: there is no answer."""
        if not self._has(server_request):
            return False
        del self._open[server_request.key]
        if server_request.question is not None:
            server_request.question.end(result, error, is_lost=is_lost)
        if server_request.timer is not None:
            server_request.timer.cancel()
        worker, server_request.worker = server_request.worker, None
        if worker is not None:
            worker.remove_exit_waiter(server_request)
            kill(worker.pid)
        return True


async def _run_handler(
    server_request: ServerRequest, handler: ClientHandler, request: JsonRpcRequest, call: AskingCall | None
) -> None:
    process = current_process("work")
    begin_asking(call)
    if bus.tracer is not None and server_request.question is not None:
        bus.tracer.enter(server_request.question.number)
    try:
        result: Any = handler.handle_request(request.method, request.params)
        if inspect.isawaitable(result):
            result = await result
    except BaseException as error:
        if process.life:
            raise  # this process was killed: the connection has replied already
        server_request.answer(None, error)
        if not isinstance(error, McpError):
            raise
    else:
        server_request.answer(result, None)


# --- The dispatcher passes notifications to the handler: one process, in the order in which they came, with a bounded mailbox.
# It calls the handler's `init` first and its `terminate` last. An exception of the handler crashes this process: it is reported, and
# the next notification starts another one.

_LISTENING_METHODS = ("init", "handle_notification", "terminate")


class NotificationDispatcher:
    """The connection's handle of that process, which exists only if the handler overrides a method for notifications."""

    def __init__(self, connection: Process, handler: ClientHandler, line: ConnectionLine) -> None:
        self._connection = connection
        self._handler = handler
        self._line = line
        self._process: Process | None = None
        kind = type(handler)
        self.wanted = any(getattr(kind, name) is not getattr(ClientHandler, name) for name in _LISTENING_METHODS)
        """Whether the handler overrides any method for notifications."""
        self.full = False
        """Whether the last notification was dropped."""

    def begin(self) -> None:
        """Start the process, linked to the connection."""
        if self.wanted:
            pid = spawn_link(_dispatch_notifications, self._handler, self._line)
            self._process = self._connection.node.process(pid)
            assert self._process is not None
            self._process.limit = self._line.settings.max_updates

    def tell(self, method: str, params: Mapping[str, Any]) -> bool:
        """Pass a notification on. False for the first one that is dropped, so that each overflow is reported once."""
        if not self.wanted:
            return True
        if self._process is None:
            self.begin()
        assert self._process is not None
        before, self.full = self.full, not self._process.send(ServerNotification(method, params))
        return before or not self.full

    def on_exit(self, pid: Pid) -> None:
        """A linked process has ended: forget it if it was the dispatcher."""
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
