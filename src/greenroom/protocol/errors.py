"""Protocol errors: exceptions that say which side is at fault and carry their JSON-RPC code.

::

    GreenroomError
    ├─ McpError                 a JSON-RPC error: code, message, data; a handler raises it to answer with it
    │  └─ PeerError             the other side answered our request with this one
    │     └─ BadAnswer          its result is not what the method returns
    ├─ RequestCancelled         the call was cancelled: its result will not be used
    ├─ ToolError                the tool failed: `isError`, which the model sees and can act on
    └─ ProtocolError            one side broke the rules of the wire
       ├─ LocalProtocolError    this side: nothing was sent
       └─ RemoteProtocolError   the peer: has the code, the id where one could be read, and the HTTP status to answer with
          └─ Unacceptable        valid JSON, but too big, too deep or ambiguous

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
    """JSON-RPC error codes."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    TOOL_ERROR = -32000
    """A failed tool, if the server is configured to answer with errors and not with `isError`."""
    RESOURCE_NOT_FOUND = -32002
    """The error's data has the URI. The stateless revision uses `INVALID_PARAMS` instead."""
    URL_ELICITATION_REQUIRED = -32042
    """The user has to open the URLs in `data.elicitations` first."""
    CANCELLED = -32800
    """For code that must answer a cancelled request; MCP itself does not answer it."""
    USER_REJECTED = -1
    """The user declined the server's request."""

    HEADER_MISMATCH = -32020
    """An HTTP header that mirrors a part of the request is missing, or says something else."""
    MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
    """`data.requiredCapabilities` has the capabilities that this request must declare."""
    UNSUPPORTED_PROTOCOL_VERSION = -32022
    """`data.supported` has the revisions that the server speaks. These three are of the stateless revision."""


class McpError(GreenroomError):
    """A JSON-RPC error. Two errors are equal when they look the same on the wire."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """`data` must be expressible in JSON, and is left out when None."""
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
        """The error itself if it is an `McpError`; otherwise an internal error that reveals nothing about the cause."""
        match error:
            case McpError():
                return error
            case RemoteProtocolError():
                return McpError(error.code, error.message, error.data)
            case _:
                return McpError(ErrorCode.INTERNAL_ERROR, "Internal error")


def not_executed(reason: str) -> dict[str, Any]:
    """The error data that says the request was not executed and may be sent again."""
    return {"reason": reason, "maybe_done": False}


class PeerError(McpError):
    """The peer answered a request of ours with this error."""

    @property
    def maybe_done(self) -> bool:
        """Whether the request may have been executed. False only if the error's data says that it was not: then a retry is safe."""
        data: object = self.data
        said = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        # a server's own word, and a gateway's
        return said.get("maybe_done") is not False and said.get("maybeDone") is not False

    @classmethod
    def from_wire(cls, wire: Any) -> Self:
        """Read an error object leniently: a malformed error is still reported as an error."""
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
    """The peer's result is not what the method returns. `problems` has all of them, each with its place."""

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        """`problems` are pairs of path and reason, as a validator reports them."""
        super().__init__(ErrorCode.INTERNAL_ERROR, message)
        self.problems = list(problems)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.problems)


class ToolError(GreenroomError):
    """A tool failed and tells the model why. Raise it or return it."""

    def __init__(self, content: Any, meta: dict[str, Any] | None = None) -> None:
        """`content` is text, a content block, or a list of blocks; `meta` becomes the result's `_meta`."""
        super().__init__(content)
        self.content = content
        self.meta = meta


class ProtocolError(GreenroomError):
    """A message breaks the protocol."""


class LocalProtocolError(ProtocolError):
    """This side was about to break the protocol: the value cannot be sent, or not in this state. Nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol. `to_wire` is the error to answer with, `status` its HTTP status."""

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        id: str | int | None = None,
        status: int = 400,
    ) -> None:
        """`id` is the request's id, if it could be read without doubt."""
        super().__init__(code, message, data, id, status)
        self.code = int(code)
        self.message = message
        self.data = data
        self.id = id
        self.status = status
        self.response_to: str | int | None = None
        """The id of our request, if the broken message was its response. No other response to that request will come."""

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class Unacceptable(RemoteProtocolError):
    """A well-formed message that is refused: too big, too deep, or ambiguous. Its id may be used in the answer."""

    anonymous = False
    """The message has more than one id, so the answer has none."""


class RequestCancelled(GreenroomError):
    """The current call was cancelled; its result will not be used."""

    def __init__(self, reason: str = "") -> None:
        """`reason` is the text that came with the cancellation."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the call was cancelled{f': {self.reason}' if self.reason else ''}"
