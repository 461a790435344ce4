"""`ClientHandler`: the base class for handlers of requests and notifications from a server.

Each request is handled in a process of its own, so a slow one delays neither other requests nor the connection. Notifications are passed one
after the other, in the order in which the server sent them.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.methods import method_not_found

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.protocol.jsonrpc import RequestId

    from .client_events import ClientCall
    from .interfaces import Line


class AskingCall(NamedTuple):
    """The request of this client in whose reply the server asks."""

    method: str
    params: Mapping[str, Any]
    id: RequestId
    """The request's id on the wire at that moment."""
    call: ClientCall | None = None
    """The call that listeners of events hear of."""


_asking: Final[ContextVar[AskingCall | None]] = ContextVar("asking_call", default=None)


def asking_call() -> AskingCall | None:
    """The request that the question being handled belongs to; None where that is not certain, as may be in the handshake era."""
    return _asking.get()


def begin_asking(call: AskingCall | None) -> None:
    """Note the request that the question of this process belongs to."""
    _asking.set(call)


class Deferred:
    """An answer that comes later: return it from `handle_request`, and `reply` or `fail` it, once, from any task or thread."""

    __slots__ = ("_outcome",)

    def __init__(self) -> None:
        self._outcome: Future[Any] = Future()

    def reply(self, result: Any) -> bool:
        """Answer. False when it was answered already."""
        return _settled(self._outcome.set_result, result)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error: an `McpError` as it is, anything else as an internal one. False when it was answered already."""
        return _settled(self._outcome.set_exception, error)

    def deliver_to(self, deliver: Callable[[Any, BaseException | None], object]) -> None:
        """Call this function with the outcome, at once if it is known already."""

        def done(outcome: Future[Any]) -> None:
            error = outcome.exception()
            deliver(None if error is not None else outcome.result(), error)

        self._outcome.add_done_callback(done)


def _settled(settle: Callable[[Any], None], value: Any) -> bool:
    try:
        settle(value)
    except InvalidStateError:
        return False
    return True


class ClientHandler:
    """Refuses all requests and ignores all notifications: the handler of a client that only calls.

    Each of its methods may be `async`. One object serves all handshakes of a connection.
    """

    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities to declare to the server, such as `{"sampling": {}}`."""
        return {}

    def init(self, line: Line) -> Awaitable[None] | None:
        """Called when the connection starts. `line` is the handle for requests to the server."""

    def handle_request(self, method: str, params: dict[str, Any]) -> Awaitable[Any] | Any:  # noqa: ARG002 - for subclasses that override it
        """Handle a request from the server: return the result, or a `Deferred`. Raise `McpError` to refuse."""
        raise method_not_found(method)

    def handle_notification(self, method: str, params: dict[str, Any]) -> Awaitable[None] | None:
        """Called with each notification from the server."""

    def wants_list_changes(self) -> bool:
        """Whether to ask a server of the stateless era for changes of its lists; by default if `handle_notification` is overridden."""
        return type(self).handle_notification is not ClientHandler.handle_notification

    def wants_logs(self) -> bool:
        """Whether to ask a server of the stateless era for log messages; by default if `handle_notification` is overridden."""
        return type(self).handle_notification is not ClientHandler.handle_notification

    def terminate(self) -> Awaitable[None] | None:
        """Called when the connection ends."""
