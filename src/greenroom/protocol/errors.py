"""What can go wrong on the wire, as exceptions that know whose fault it is and how they travel.

::

    GreenroomError
    ├─ McpError                 a JSON-RPC error: code, message, data; raised by a handler, it is the answer
    │  └─ PeerError             the other side answered our request with this one
    │     └─ BadAnswer          or with what was not asked for
    ├─ RequestCancelled         the call was cancelled: its result will not be used
    ├─ ToolError                a tool says that it failed: `isError`, which the model sees and can act on
    └─ ProtocolError            one side broke the rules of the wire
       ├─ LocalProtocolError    we did: nothing was sent
       └─ RemoteProtocolError   they did: has the code, the id where one could be read, and the HTTP status to say so with
          └─ Unacceptable        it was JSON, but too big, too deep or ambiguous

`McpError` and `ToolError` are values as well: a handler may return a `ToolError` instead of raising it, and a registry can hold an
`McpError` to answer with later.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self, cast

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Sequence


class ErrorCode(IntEnum):
    """The numbers that errors have on the wire."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    TOOL_ERROR = -32000
    """A failed tool, where a server is set up to answer with errors rather than with `isError`."""
    RESOURCE_NOT_FOUND = -32002
    """Has the uri in its data. The stateless revision says `INVALID_PARAMS` instead."""
    URL_ELICITATION_REQUIRED = -32042
    """The user has to visit the addresses in `data.elicitations` first."""
    CANCELLED = -32800
    """For code that has to answer a cancelled request; MCP itself answers nothing."""
    USER_REJECTED = -1
    """The user has declined what the server asked for."""

    UNSUPPORTED_PROTOCOL_VERSION = -32022
    """Read when a server of the stateless revision sends it."""


class McpError(GreenroomError):
    """One JSON-RPC error. Equal to another one that would look the same on the wire."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """`data` is whatever helps the peer; it must be expressible in JSON, and is left out when None."""
        super().__init__(code, message, data)
        self.code = int(code)
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, McpError) and self.to_wire() == other.to_wire()

    def __hash__(self) -> int:
        return hash((self.code, self.message))

    def to_wire(self) -> dict[str, Any]:
        """The error object of a JSON-RPC response."""
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire

    @classmethod
    def wrap(cls, error: BaseException) -> McpError:
        """The error itself if it is one of these; for anything else, an internal error that gives nothing away."""
        match error:
            case McpError():
                return error
            case RemoteProtocolError():
                return McpError(error.code, error.message, error.data)
            case _:
                return McpError(ErrorCode.INTERNAL_ERROR, "Internal error")


def not_executed(reason: str) -> dict[str, Any]:
    """The data of an error that says that the request was not acted upon, and may be sent again."""
    return {"reason": reason, "maybe_done": False}


class PeerError(McpError):
    """The peer's answer to one of our requests was this error."""

    @property
    def maybe_done(self) -> bool:
        """Whether the request may have been acted upon. False where its data says that it was not: then it may be sent again."""
        data: Any = self.data
        return not (isinstance(data, dict) and cast("dict[str, Any]", data).get("maybe_done") is False)

    @classmethod
    def from_wire(cls, wire: Any) -> Self:
        """Read an error object leniently: a peer that cannot even complain properly has still complained."""
        if not isinstance(wire, dict):
            return cls(ErrorCode.INTERNAL_ERROR, "the peer answered with an error that is no object", wire)
        error = cast("dict[str, Any]", wire)
        code, message = error.get("code"), error.get("message")
        return cls(
            code if type(code) is int else ErrorCode.INTERNAL_ERROR,
            message if type(message) is str else "the peer's error has no message",
            error.get("data"),
        )


class BadAnswer(PeerError):
    """The peer answered one of our requests with what was not asked for. `problems` are all of them, where they have a place."""

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        """`problems` as a check of values tells them: path and reason."""
        super().__init__(ErrorCode.INTERNAL_ERROR, message)
        self.problems = list(problems)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.problems)


class ToolError(GreenroomError):
    """A tool could not do it, and says so to the model. Raise it or return it."""

    def __init__(self, content: Any, meta: dict[str, Any] | None = None) -> None:
        """`content` is a text, a content block, or a list of blocks; `meta` becomes the result's `_meta`."""
        super().__init__(content)
        self.content = content
        self.meta = meta


class ProtocolError(GreenroomError):
    """The rules of the wire were broken."""


class LocalProtocolError(ProtocolError):
    """We were about to break them: what was handed in cannot be said, or not now."""


class RemoteProtocolError(ProtocolError):
    """The peer broke them. `to_wire` is what to tell it, `status` as which HTTP status that travels."""

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        id: str | int | None = None,
        status: int = 400,
    ) -> None:
        """`id` is the request's, where it could be read without doubt."""
        super().__init__(code, message, data, id, status)
        self.code = int(code)
        self.message = message
        self.data = data
        self.id = id
        self.status = status
        self.answers: str | int | None = None
        """When the broken message was an answer: to which of our requests. No other answer to that one will come."""

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class Unacceptable(RemoteProtocolError):
    """A message that is well-formed and not taken all the same: too big, too deep, ambiguous. So its id may be told."""

    anonymous = False
    """It has more than one id, so it is not known which is meant."""


class RequestCancelled(GreenroomError):
    """The call that this code works for has been cancelled; its result will not be used."""

    def __init__(self, reason: str = "") -> None:
        """`reason` is what was said when it was cancelled."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the call was cancelled{f': {self.reason}' if self.reason else ''}"
