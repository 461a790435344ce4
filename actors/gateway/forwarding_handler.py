"""Forwarding: a client's capabilities to the upstream, and the upstream's questions and notifications to the client.

An upstream of the stateless era asks in its reply to a call, so the call is known. A question of a handshake server does not say to which of our requests
it belongs: `ClientConnection.context_for_question` finds the one session or call that it can be for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.client_handler import ClientHandler, asking_call
from greenroom.actors.context import CallIsOver
from greenroom.actors.peer_channels import NoStream
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.elicitation_forms import new_elicitation_id
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.input_required import QUESTION_METHODS
from greenroom.protocol.methods import method_not_found
from greenroom.protocol.serialization import is_object
from greenroom.protocol.wire_shapes import LOG_LEVELS
from greenroom.supervision import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.actors.context import Context

    from .client_connections import ClientConnection

_GONE: Final = {"reason": "gone"}
_FORWARDABLE: Final[Mapping[str, frozenset[str]]] = {
    "sampling": frozenset({"tools", "context"}),
    "elicitation": frozenset({"form", "url"}),
    "roots": frozenset({"listChanged"}),
}


def forwardable_capabilities(declared: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a client's capabilities that can be declared to an upstream on its behalf."""
    found: dict[str, Any] = {}
    for name, members in _FORWARDABLE.items():
        value = declared.get(name)
        if is_object(value):
            found[name] = {member: {} for member in sorted(members) if is_object(value.get(member))}
            if name == "roots" and value.get("listChanged") is True:
                found[name]["listChanged"] = True
    return found


@dataclass(eq=False, repr=False)
class ForwardingHandler(ClientHandler):
    """Forwards an upstream's questions to the client that they are for."""

    _connection: ClientConnection
    _capabilities: Mapping[str, Any]
    _completed: Callable[[str], object]
    """Called with the id of a URL elicitation that the upstream reports as completed."""
    _may_ask: Callable[[], bool] = lambda: True
    """Whether the rules allow the upstream to ask users."""
    _lists_changed: Callable[[str], object] = lambda _: None
    """Called with the notification that a list has changed."""

    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client that the connection was opened for."""
        return self._capabilities

    def wants_logs(self) -> bool:
        """False: each request names the level that its own client asks for, if any."""
        return False

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        """Forward the question to the client."""
        if method not in QUESTION_METHODS:
            raise method_not_found(method)
        if method == "elicitation/create" and not self._may_ask():
            return {"action": "decline"}
        ctx = self._context(method)
        self._connection.remember_pages([params.get("elicitationId")])
        asked = {name: value for name, value in params.items() if name not in ("_meta", "task")}
        if params.get("mode") == "url" and not dialect_of(ctx.protocol_version).is_stateless:
            asked.setdefault("elicitationId", new_elicitation_id())  # questions of the stateless era have none
        try:
            return await ctx.request(method, asked)
        except (CallIsOver, NoStream, ActorError) as error:
            # The client is gone, or its call: there is no client to ask.
            raise McpError(ErrorCode.INVALID_REQUEST, f"{method}: the client that it is for is gone", _GONE) from error

    def _context(self, method: str) -> Context:
        """The context of the call that this question belongs to, or of the one session that it can be for. Raises `McpError`."""
        connection, call = self._connection, asking_call()
        if call is not None and not connection.mixes_strangers:
            ctx = connection.context_of(call.params)
            if ctx is None:
                raise McpError(ErrorCode.INVALID_REQUEST, f"{method}: the client that it is for is gone", _GONE)
            return ctx
        ctx = connection.context_for_question()
        if ctx is not None:
            return ctx
        if connection.is_unused:
            raise McpError(
                ErrorCode.METHOD_NOT_FOUND,
                f"{method}: no client's call is under way that this could belong to, so there is no user to ask",
                {"reason": "no_call"},
            )
        raise McpError(
            ErrorCode.INVALID_REQUEST,
            f"{method}: it is not certain which client's call this belongs to, so no user is asked",
            {"reason": "whose_call"},
        )

    def handle_notification(self, method: str, params: dict[str, Any]) -> None:
        """Forward log messages to the client that a question would go to, and completed URL elicitations to theirs."""
        match method:
            case "notifications/message":
                ctx = self._connection.context_for_question()
                level: Any = params.get("level")
                if ctx is not None and level in LOG_LEVELS:
                    own = params.get("logger")
                    name = (
                        f"{self._connection.server}.{own}" if isinstance(own, str) and own else self._connection.server
                    )
                    _ = ctx.log(level, params.get("data"), name)
            case "notifications/elicitation/complete":
                if (id := self._connection.take_page(params.get("elicitationId"))) is not None:
                    self._completed(id)
            case _ if method.endswith("/list_changed"):
                self._lists_changed(method)
            case _:
                pass
