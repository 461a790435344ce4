"""How a task can end, as values: what becomes of its record, and what the call would have been answered with.

Pure. A worker's whole response is taken apart again, since the answer that it belongs in comes later and under another id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.json import encode, is_object, read
from greenroom.protocol.messages import encode_error, encode_result
from greenroom.protocol.results import tool_result
from greenroom.protocol.versions import JSONRPC
from greenroom.protocol.wire import is_array

from .task_record import related

if TYPE_CHECKING:
    from .task_record import Status, TaskRecord

_SHOWN: Final = 500


class Ending(NamedTuple):
    """What comes of a task."""

    status: Status
    message: str | None = None
    result: bytes | None = None
    error: bytes | None = None

    def of(self, record: TaskRecord, now: float) -> TaskRecord:
        """The record of a task that ends so."""
        return record.moved(self.status, now, self.message, result=self.result, error=self.error)


class _Response(msgspec.Struct):
    result: msgspec.Raw


class _Looked(msgspec.Struct):
    isError: Any = False  # noqa: N815 - as the wire has it


def finished(body: bytes) -> Ending:
    """The work is done: it has failed if the result says so itself."""
    result = bytes(msgspec.json.decode(body, type=_Response).result)
    if msgspec.json.decode(result, type=_Looked).isError is not True:
        return Ending("completed", None, result)
    return Ending("failed", _said(read(result)), result)


def returned(record: TaskRecord, value: Any) -> Ending:
    """What the host says came of it: whatever a tool may return, or for another method the whole result."""
    result = tool_result(value) if record.method == "tools/call" else value
    return finished(encode_result(record.id, related(result, record.id)))


def error_of(error: McpError) -> Ending:
    """The work has ended in a JSON-RPC error."""
    wire = msgspec.json.decode(encode_error(None, error), type=_Error).error
    return Ending("failed", _short(error.message), None, bytes(wire))


class _Error(msgspec.Struct):
    error: msgspec.Raw


def crashed(record: TaskRecord, text: str, crashes: str) -> Ending:
    """The work has ended without a word of its own, because of a crash or a deadline: as for a call."""
    if crashes == "tool" and record.method == "tools/call":
        return finished(encode_result(record.id, related(tool_result(ToolError(text)), record.id)))
    return error_of(McpError(ErrorCode.TOOL_ERROR, text))


def cancelled(why: str) -> Ending:
    """Nobody wants it any more."""
    error = McpError(ErrorCode.INVALID_PARAMS, f"Task cancelled: {why}" if why else "Task cancelled")
    return error_of(error)._replace(status="cancelled", message=_short(why) or None)


def created(record: TaskRecord, *, asked: bool) -> dict[str, Any]:
    """The answer to the call: there is a task. Whoever did not ask for one can read that, and which."""
    result: dict[str, Any] = {"task": record.to_wire()}
    if not asked:
        text = f"This takes a while, and goes on as task {record.id}: tasks/result has what comes of it"
        result |= {"content": [{"type": "text", "text": text}], "isError": False}
    return result


def answer(record: TaskRecord, id: str | int) -> bytes:
    """The response to a `tasks/result`, when the task has ended: what the call would have been answered with."""
    if record.result is not None:
        return encode_result(id, msgspec.Raw(record.result))
    return encode({"jsonrpc": JSONRPC, "id": id, "error": msgspec.Raw(record.error or b"{}")})


def _said(result: Any) -> str:
    """What a failed tool says of it: its first text."""
    content: Any = result.get("content") if is_object(result) else None
    for block in content if is_array(content) else ():
        if is_object(block) and isinstance(text := block.get("text"), str):
            return _short(text)
    return "The tool has failed"


def _short(text: str) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
