"""The replies to calls whose worker gave none: it died, or the call took too long. Pure functions.

A failed tool call gets a result, which the model reads and may act on, unless the setting `crashes` is "protocol".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.supervision import Crash

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason

    from .settings import Settings

CallFailure: TypeAlias = "McpError | dict[str, Any]"
"""An error, or a tool's result with `isError`."""
_QUOTED_NAME_CHARACTERS: Final = 100
"""How many characters of a tool's name an error text quotes."""


def worker_lost(method: str, reason: ExitReason, settings: Settings, *, as_task: bool = False) -> CallFailure:
    """The reply to a call whose worker died, in general terms."""
    detail = f": {reason.error}" if settings.expose_errors and isinstance(reason, Crash) else ""
    if method == "tools/call":
        return _tool_failure(f"Tool execution failed{detail}", ErrorCode.TOOL_ERROR, settings, as_task=as_task)
    return McpError(ErrorCode.INTERNAL_ERROR, f"Internal server error{detail}")


def timed_out(
    method: str, name: str, seconds: float | None, settings: Settings, *, is_fixed: bool, as_task: bool = False
) -> CallFailure:
    """The reply to a call that has passed its deadline. A deadline that is not fixed counts silence only."""
    text = (
        f"timed out after {seconds:g} s" if is_fixed else f"timed out: it said nothing for {seconds:g} s (call_timeout)"
    )
    if method == "tools/call":
        quoted = f"Tool {name[:_QUOTED_NAME_CHARACTERS]!r} {text}"
        return _tool_failure(quoted, ErrorCode.INTERNAL_ERROR, settings, as_task=as_task)
    return McpError(ErrorCode.INTERNAL_ERROR, f"{method} {text}")


def aborted() -> McpError:
    """The error of a call that an operator of the server has ended."""
    return McpError(ErrorCode.INTERNAL_ERROR, "The call was cancelled by an operator of the server")


def _tool_failure(text: str, code: int, settings: Settings, *, as_task: bool) -> CallFailure:
    if settings.crashes == "tool" and not as_task:
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return McpError(code, text)
