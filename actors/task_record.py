"""The record of a task: an immutable value, replaced at each change, and the rules for changes.

A record has everything that a peer may ask for, the result included, so reading it needs no process. Only the task's
process makes the next one, and the store keeps the newest. Times are seconds since 1970, on the company's clock.

A record serves both eras. `to_wire` and `task_reply` write it for a session; `stateless_tasks` writes it for a request that
stands alone.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from greenroom.errors import GreenroomError
from greenroom.protocol.elicitation_forms import new_elicitation_id
from greenroom.protocol.envelope import SERVER_INFO_KEY
from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.handler_results import tool_result
from greenroom.protocol.jsonrpc import JSONRPC, decode_checked, encode, encode_error, encode_result, is_object
from greenroom.protocol.serialization import is_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.event_types import Isolation
    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import Pid, Ref
    from greenroom.transports.interfaces import Peer

    from .worker_interfaces import Cancellation, SessionFacts

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
Era: TypeAlias = Literal["handshake", "stateless"]
"""An era of the protocol: its revisions share a connection model."""
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
    era: Era = "handshake"
    """The era of the call, in whose form the result is written."""
    input_requests: bytes | None = None
    """The questions that wait for an answer, as a JSON object: key to method and params. No key is used twice."""

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
            self,
            status=status,
            updated=now,
            ended=ended,
            message=message,
            result=result,
            error=error,
            input_requests=None,
        )

    def with_questions(self, requests: Mapping[str, msgspec.Raw], now: float) -> TaskRecord:
        """The record of a task that waits for these answers, or goes on working without any."""
        if self.terminal:
            raise BadTransition(self.status, "input_required" if requests else "working")
        return msgspec.structs.replace(
            self,
            status="input_required" if requests else "working",
            updated=max(now, self.updated),
            input_requests=msgspec.json.encode(requests) if requests else None,
        )

    def to_wire(self) -> dict[str, Any]:
        """The revision's `Task`."""
        wire: dict[str, Any] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": wire_time(self.created),
            "lastUpdatedAt": wire_time(self.updated),
            "ttl": milliseconds(self.ttl),
        }
        if self.message is not None:
            wire["statusMessage"] = self.message
        if self.poll is not None:
            wire["pollInterval"] = milliseconds(self.poll)
        return wire


def owner_of(peer: Peer, session_id: str) -> str:
    """The owner of a peer's tasks: its principal; without one, the local user on stdio, else its session.

    A principal without a `repr` of its own cannot be told from others in writing, and its sessions stand for it.
    A request that stands alone has no session: see `stateless_owner`.
    """
    principal = peer.principal
    if isinstance(principal, str):
        return f"principal {principal}"
    if principal is not None and type(principal).__repr__ is not object.__repr__:
        return f"principal {type(principal).__name__} {principal!r}"
    return "local" if peer.transport == "stdio" and principal is None else f"session {session_id}"


def stateless_owner(peer: Peer, address: str) -> str | None:
    """The owner of the tasks of a peer without a session. None if it cannot be told from others in writing.

    Anonymous peers own tasks by address, so that each has a share of its own. What gives access is the task's id.
    """
    owner = owner_of(peer, "")
    if not belongs_to_session(owner):
        return owner
    return f"{_ANONYMOUS}{address}" if peer.principal is None else None


_ANONYMOUS: Final = "anonymous "


def is_anonymous(owner: str) -> bool:
    """Whether the owner is a peer without principal and session: whichever of them has a task's id may use the task."""
    return owner.startswith(_ANONYMOUS)


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


def milliseconds(seconds: float) -> int:
    """The wire form of a duration."""
    return math.ceil(seconds * 1000 - 1e-6)


def input_request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A question as it stands in the record: as the stateless era has it, without what belongs to a session."""
    kept = {name: value for name, value in params.items() if name not in ("elicitationId", "task")}
    return {"method": method, "params": kept} if kept else {"method": method}


def session_params(params: Mapping[str, Any], id: str) -> dict[str, Any]:
    """The params of a task's question as a session sends them."""
    if params.get("mode") == "url" and "elicitationId" not in params:
        params = {**params, "elicitationId": new_elicitation_id()}
    return with_related_task(params, id)


# --- Messages between sessions, the program and a task's process.


class TaskSpec(NamedTuple):
    """The work of a peer's task, and the call that gets the task's id."""

    session: Ref[Any] | None
    """The session that gets the reply to the call; None where another process asks for it (`TaskProcess.created`)."""
    key: int
    """The session's number for the call that asked."""
    request: JsonRpcRequest
    facts: SessionFacts
    timeout: float | None
    wanted_task: bool
    """Whether the peer asked for a task, rather than for a result."""
    running: RunningWork | None = None
    """The worker of a call that becomes a task while it runs."""
    creator: int = 0
    """The number of the call that asked, in events."""


class RunningWork(NamedTuple):
    """The worker of a call, which goes on as the worker of a task."""

    worker: Pid
    cancelled: Cancellation
    """The flag that its handler reads."""
    isolation: Isolation
    """Where that runs."""


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


class TaskChanged(NamedTuple):
    """To a process that watches a task: its record is this one now."""

    record: TaskRecord


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


def task_reply(record: TaskRecord, id: str | int, *, wrapped: bool = False) -> bytes:
    """The response to `tasks/result`, once the task has ended: the result or error of the call.

    `wrapped` is for the result of a call of the stateless era, as for `result_for`.
    """
    if record.result is None:
        return encode({"jsonrpc": JSONRPC, "id": id, "error": msgspec.Raw(record.error or b"{}")})
    result = msgspec.Raw(record.result)
    return encode_result(id, result if record.era == "handshake" else result_for(record, "handshake", wrapped=wrapped))


def result_for(record: TaskRecord, era: Era, *, wrapped: bool = False) -> dict[str, Any]:
    """The result of the call in the form of an era: large members are encoded already.

    Handshake revisions name the task in `_meta`, and have objects only as structured results: `wrapped` tells whether they have the
    tool's values under `result`.
    """
    members: dict[str, Any] = msgspec.json.decode(record.result or b"{}", type=dict[str, msgspec.Raw])
    meta: Any = msgspec.json.decode(members.pop("_meta", b"{}"))
    data: Any = members.get("structuredContent")
    if era == "handshake":
        members.pop("resultType", None)
        members["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO_KEY} | {
            RELATED_TASK: {"taskId": record.id}
        }
        if record.era != era and data is not None and (wrapped or not bytes(data).startswith(b"{")):
            members["structuredContent"] = {"result": data}
        return members
    meta.pop(RELATED_TASK, None)
    if meta:
        members["_meta"] = meta
    if record.era != era and wrapped and data is not None and (inner := _under_result(data)):
        members["structuredContent"] = inner["result"]
    return {"resultType": "complete", **members}


def _under_result(data: Any) -> dict[str, msgspec.Raw] | None:
    """The members of an encoded object that has `result` alone; None for any other value."""
    if not bytes(data).startswith(b"{"):
        return None
    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return members if members.keys() == {"result"} else None


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
