"""What a program answers to the server, and hears from it: derive from `ClientHandler`.

Each request of the server's is worked on in a process of its own, so none delays another, the connection least of all. Notifications
come one after the other, in the order in which they were said.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any

from greenroom.protocol.methods import method_not_found

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .interfaces import Line


class Deferred:
    """An answer that comes later: return it from `handle_request`, and `reply` or `fail` it, once, from any task or thread."""

    __slots__ = ("_outcome",)

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._outcome: Future[Any] = Future()

    def reply(self, result: Any) -> bool:
        """Answer. False when it was answered already."""
        return _settled(self._outcome.set_result, result)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error: an `McpError` as it is, anything else as an internal one. False when it was answered already."""
        return _settled(self._outcome.set_exception, error)

    def deliver_to(self, deliver: Callable[[Any, BaseException | None], object]) -> None:
        """Have the outcome delivered to this callback, at once if there is one."""

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
    """Answers nothing, and listens to nothing: by itself the handler of a client that only asks.

    Each of its methods may be `async`. One object serves all handshakes of a connection.
    """

    def capabilities(self) -> Mapping[str, Any]:
        """What it can do, as it is declared to the server: `{"sampling": {}}`."""
        return {}

    def init(self, line: Line) -> Awaitable[None] | None:
        """The connection has begun. `line` is the way to ask its server something."""

    def handle_request(self, method: str, params: dict[str, Any]) -> Awaitable[Any] | Any:  # noqa: ARG002 - for subclasses that override it
        """Answer a request of the server's: the result, or a `Deferred`. Raise `McpError` to refuse."""
        raise method_not_found(method)

    def handle_notification(self, method: str, params: dict[str, Any]) -> Awaitable[None] | None:
        """Hear of everything that the server says and that is no answer."""

    def terminate(self) -> Awaitable[None] | None:
        """The connection is over."""
