"""What a program answers to the server, and hears from it: derive from `ClientHandler`.

Each request of the server's is worked on in a process of its own, so none delays another, the connection least of all. Notifications
come one after the other, in the order in which they were said.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from greenroom.protocol.methods import not_found

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .seam import Line


class Deferred:
    """An answer that comes later: return it from `handle_request`, and `reply` or `fail` it, once, from any task or thread."""

    __slots__ = ("_deliver", "_lock", "_outcome")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lock = threading.Lock()
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._deliver: Callable[[Any, BaseException | None], object] | None = None

    def reply(self, result: Any) -> bool:
        """Answer. False when it was answered already."""
        return self._settle(result, None)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error: an `McpError` as it is, anything else as an internal one. False when it was answered already."""
        return self._settle(None, error)

    def _settle(self, result: Any, error: BaseException | None) -> bool:
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome = result, error
            deliver = self._deliver
        if deliver is not None:
            deliver(result, error)
        return True

    def deliver_to(self, deliver: Callable[[Any, BaseException | None], object]) -> None:
        """Have the outcome delivered to this callback, at once if there is one."""
        with self._lock:
            self._deliver = deliver
            outcome = self._outcome
        if outcome is not None:
            deliver(*outcome)


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
        raise not_found(method)

    def handle_notification(self, method: str, params: dict[str, Any]) -> Awaitable[None] | None:
        """Hear of everything that the server says and that is no answer."""

    def terminate(self) -> Awaitable[None] | None:
        """The connection is over."""
