"""The record of a task: an immutable value, replaced at each change, and the rules for changes.

A record has everything that a peer may ask for, the result included, so reading it needs no process. Only the task's
process makes the next one, and the store keeps the newest. Times are seconds since 1970, on the company's clock.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from greenroom.errors import GreenroomError
from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.handler_results import tool_result
from greenroom.protocol.jsonrpc import decode_checked, encode, encode_error, encode_result, is_object
from greenroom.protocol.serialization import is_array
from greenroom.protocol.versions import JSONRPC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import Pid, Ref
    from greenroom.transports.interfaces import Peer

    from .worker_interfaces import SessionFacts

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""The key in a message's `_meta` that names its task."""


class BadTransition(GreenroomError):
    """A task cannot change from the one status to the other."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(before, after)

    def __str__(self) -> str:
        return f"a task that is {self.args[0]} cannot become {self.args[1]}"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task at one moment. `owner` says whose it is (`owner_of`); no other owner may know that it exists."""

    id: str
    owner: str
    session_id: str = ""
    """The session that asked for it, which may have ended."""
    method: str = "tools/call"
    name: str = ""
    status: TaskStatus = "working"
    message: str | None = None
    created: float
    updated: float
    ended: float | None = None
    ttl: float
    """For how many seconds it is kept after its end."""
    poll: float | None = None
    """How many seconds the peer should wait before it asks again."""
    result: bytes | None = None
    """The result that the call would have returned, as JSON…"""
    error: bytes | None = None
    """…or the error. Neither before the end."""

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    @property
    def expires(self) -> float:
        """When it may be removed; never before it has ended."""
        return math.inf if self.ended is None else self.ended + self.ttl

    @property
    def size(self) -> int:
        """The size of its result or error in bytes."""
        return len(self.result or b"") + len(self.error or b"")

    def with_status(
        self,
        status: TaskStatus,
        now: float,
        message: str | None = None,
        *,
        result: bytes | None = None,
        error: bytes | None = None,
    ) -> TaskRecord:
        """The record with another status. Raises `BadTransition`."""
        if self.terminal or status == self.status:
            raise BadTransition(self.status, status)
        now = max(now, self.updated)
        ended = now if status in TERMINAL else None
        return msgspec.structs.replace(
            self, status=status, updated=now, ended=ended, message=message, result=result, error=error
        )

    def to_wire(self) -> dict[str, Any]:
        """The revision's `Task`."""
        wire: dict[str, Any] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": wire_time(self.created),
            "lastUpdatedAt": wire_time(self.updated),
            "ttl": _milliseconds(self.ttl),
        }
        if self.message is not None:
            wire["statusMessage"] = self.message
        if self.poll is not None:
            wire["pollInterval"] = _milliseconds(self.poll)
        return wire


def owner_of(peer: Peer, session_id: str) -> str:
    """The owner of a peer's tasks: its principal; without one, the local user on stdio, else its session.

    A principal without a `repr` of its own cannot be told from others in writing, and its sessions stand for it.
    """
    principal = peer.principal
    if isinstance(principal, str):
        return f"principal {principal}"
    if principal is not None and type(principal).__repr__ is not object.__repr__:
        return f"principal {type(principal).__name__} {principal!r}"
    return "local" if peer.transport == "stdio" and principal is None else f"session {session_id}"


def belongs_to_session(owner: str) -> bool:
    """Whether no peer can ask for the task any more once its session has ended."""
    return owner.startswith("session ")


def wire_time(moment: float) -> str:
    """The wire form of a time: RFC 3339, with milliseconds, in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def with_related_task(params: Mapping[str, Any], id: str) -> dict[str, Any]:
    """The params or result, with the task's id in `_meta`."""
    meta: Any = params.get("_meta")
    kept = meta if is_object(meta) else {}
    return {**params, "_meta": {**kept, RELATED_TASK: {"taskId": id}}}


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000 - 1e-6)


# --- Messages between sessions, the program and a task's process.


class TaskSpec(NamedTuple):
    """The work of a peer's task, and the call that gets the task's id."""

    session: Ref[Any]
    key: int
    """The session's number for the call that asked."""
    request: JsonRpcRequest
    facts: SessionFacts
    timeout: float | None
    wanted_task: bool
    """Whether the peer asked for a task, rather than for a result."""


class AwaitTask(NamedTuple):
    """A call of that session waits for the task's end."""

    session: Ref[Any]
    pid: Pid
    key: int


class StopAwaitingTask(NamedTuple):
    """The call no longer waits."""

    pid: Pid
    key: int


class CancelTask(NamedTuple):
    """Cancel the task. The session that asks may wait for the outcome."""

    why: str
    session: Ref[Any] | None = None
    key: int = 0


class ForwardedToTask(NamedTuple):
    """To a session: the task's process has that call's message, and can be monitored from now on."""

    key: int


class TaskDecided(NamedTuple):
    """To a session: that call can be answered from the record now. `won` is whether its own request decided."""

    key: int
    won: bool = False


class TaskUpdate(NamedTuple):
    """The program's new status message."""

    message: str | None


# --- Outcomes: how a task can end, and the result or error that the call would have returned.
# Pure functions. A worker's whole response is decoded again, since the response that it becomes part of comes later
# and under another id.

_MAX_MESSAGE_CHARACTERS: Final = 500


class TaskOutcome(NamedTuple):
    """The outcome of a task."""

    status: TaskStatus
    message: str | None = None
    result: bytes | None = None
    error: bytes | None = None

    def apply_to(self, record: TaskRecord, now: float) -> TaskRecord:
        """The record of the task with this outcome."""
        return record.with_status(self.status, now, self.message, result=self.result, error=self.error)


class _Response(msgspec.Struct):
    result: msgspec.Raw


class _ErrorFlag(msgspec.Struct):
    isError: Any = False  # noqa: N815 - as the wire has it


def reply_outcome(body: bytes) -> TaskOutcome:
    """The outcome of a job's reply: failed if its result has `isError`."""
    # A copy: a `Raw` is a view, which would keep the whole response in memory for as long as the record.
    result = bytes(msgspec.json.decode(body, type=_Response).result)
    if msgspec.json.decode(result, type=_ErrorFlag).isError is not True:
        return TaskOutcome("completed", None, result)
    return TaskOutcome("failed", _failure_text(decode_checked(result)), result)


def value_outcome(record: TaskRecord, value: Any) -> TaskOutcome:
    """The outcome of the program's own value: what a tool may return, or for another method the whole result."""
    result = tool_result(value) if record.method == "tools/call" else value
    return reply_outcome(encode_result(record.id, with_related_task(result, record.id)))


def error_outcome(error: McpError) -> TaskOutcome:
    """The outcome of a JSON-RPC error."""
    wire = msgspec.json.decode(encode_error(None, error), type=_Error).error
    return TaskOutcome("failed", _shortened(error.message), None, bytes(wire))


class _Error(msgspec.Struct):
    error: msgspec.Raw


def crash_outcome(record: TaskRecord, text: str, crashes: str) -> TaskOutcome:
    """The outcome of a crash or a timeout, reported as for a call."""
    if crashes == "tool" and record.method == "tools/call":
        return reply_outcome(encode_result(record.id, with_related_task(tool_result(ToolError(text)), record.id)))
    return error_outcome(McpError(ErrorCode.TOOL_ERROR, text))


def cancel_outcome(why: str) -> TaskOutcome:
    """The outcome of a cancelled task."""
    error = McpError(ErrorCode.INVALID_PARAMS, f"Task cancelled: {why}" if why else "Task cancelled")
    return error_outcome(error)._replace(status="cancelled", message=_shortened(why) or None)


def task_created_result(record: TaskRecord, *, wanted_task: bool) -> dict[str, Any]:
    """The result of a call that became a task. For a client that did not ask for one, it has a text that names the task."""
    result: dict[str, Any] = {"task": record.to_wire()}
    if not wanted_task:
        text = f"This takes a while, and goes on as task {record.id}: tasks/result returns its result"
        result |= {"content": [{"type": "text", "text": text}], "isError": False}
    return result


def task_reply(record: TaskRecord, id: str | int) -> bytes:
    """The response to `tasks/result`, once the task has ended: the result or error of the call."""
    if record.result is not None:
        return encode_result(id, msgspec.Raw(record.result))
    return encode({"jsonrpc": JSONRPC, "id": id, "error": msgspec.Raw(record.error or b"{}")})


def _failure_text(result: Any) -> str:
    """The first text of a failed tool's result."""
    content: Any = result.get("content") if is_object(result) else None
    for block in content if is_array(content) else ():
        if is_object(block) and isinstance(text := block.get("text"), str):
            return _shortened(text)
    return "The tool has failed"


def _shortened(text: str) -> str:
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else text[:_MAX_MESSAGE_CHARACTERS] + "…"
