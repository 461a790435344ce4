"""Tasks of requests that stand alone: the extension `io.modelcontextprotocol/tasks` of the stateless era.

The records and processes are those of `tasks`, so a task that was begun in a session can be read, answered and cancelled by its principal without one, and the
other way round. What differs is how a record is written: an `isError` result is a completed task here, and the open questions stand in the task.

No state is kept between requests. Each has to declare the extension, and each is checked against the owner of the task.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.extension_ids import extension_not_declared, is_extension_declared
from greenroom.protocol.input_required import QUESTION_METHODS, check_response
from greenroom.protocol.jsonrpc import encode_result, is_object
from greenroom.protocol.methods import TASKS_EXTENSION, method_not_found
from greenroom.supervision import CallTimeout, ProcessExited, Ref
from greenroom.supervision.event_bus import bus
from greenroom.transports.access_log import log_refusal

from .catalogue import caller_key
from .task_process import TaskProcess
from .task_record import CancelTask, RunningWork, TaskSpec, milliseconds, result_for, stateless_owner, wire_time
from .tasks import NO_TASK, TooManyTasks, declared
from .worker_interfaces import CallBecameTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import Pid
    from greenroom.transports.interfaces import Peer

    from .company import Company
    from .mounted_entries import CallableTool
    from .task_process import CreatedTask
    from .task_record import TaskRecord
    from .tasks import CompanyTasks
    from .worker_interfaces import Job, PeerChannel, SessionFacts

_ACKNOWLEDGED: Final[Mapping[str, Any]] = {"resultType": "complete"}
UNWRITTEN_OWNER: Final = (
    "A task needs an owner that can be written down: give {kind}, the type of the principal, a __repr__"
)
_PATIENCE: Final = 5.0
"""How many seconds an update waits until it is seen in the record. After that it is acknowledged all the same."""


# --- The way in, for exchanges.


class TaskReply:
    """The result of a request that concerns a task, as soon as it is there."""

    __slots__ = ("_result",)

    def __init__(self, result: dict[str, Any] | Awaitable[dict[str, Any]]) -> None:
        self._result = result

    async def encoded(self, request: JsonRpcRequest, server_info: Mapping[str, Any]) -> bytes:
        """The response. Raises `McpError`. Cancelling the wait cancels a call that was to become a task."""
        result = self._result if isinstance(self._result, dict) else await self._result
        return encode_result(request.id, STATELESS_DIALECT.finish(request.method, result, server_info))


def task_reply_to(
    company: Company, request: JsonRpcRequest, facts: SessionFacts, tool: CallableTool | None, creator: int = 0
) -> TaskReply | None:
    """The reply to one of the task methods, or to a call that becomes a task at once. None for any other request.

    `tool` is the one that the request calls, and `creator` the number of the call in events. Raises `McpError`.
    """
    if request.method in _ANSWERS:
        if request.method in company.method_handlers:
            return None
        return TaskReply(answer_task_method(company, request, facts))
    if tool is None:
        return None
    begun = begin_task(company, request, facts, tool, creator)
    return None if begun is None else TaskReply(begun)


# --- tasks/*


def answer_task_method(
    company: Company, request: JsonRpcRequest, facts: SessionFacts
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """The result of `tasks/get`, `tasks/update` or `tasks/cancel`, whose params were checked. Raises `McpError`."""
    if company.settings.capabilities.get("tasks", True) in (None, False):
        raise method_not_found(request.method)
    require_extension(facts, request.method)
    owner = owner_without_session(facts.peer)
    if owner is None:
        raise McpError(ErrorCode.INVALID_PARAMS, NO_TASK)
    return _ANSWERS[request.method](company.tasks, company.tasks.find(request.params["taskId"], owner), request)


def require_extension(facts: SessionFacts, what: str) -> None:
    """Raise `McpError` (-32021) unless this request has declared the extension. `what` needs it."""
    if not is_extension_declared(facts.client_capabilities, TASKS_EXTENSION):
        raise extension_not_declared(what, TASKS_EXTENSION)


def _get(tasks: CompanyTasks, record: TaskRecord, request: JsonRpcRequest) -> dict[str, Any]:  # noqa: ARG001 - as the others
    if record.input_requests is not None:
        Ref[TaskProcess](tasks.name(record.id)).cast(TaskProcess.questions_shown)
    return {"resultType": "complete", **detailed_task(tasks, record)}


async def _update(tasks: CompanyTasks, record: TaskRecord, request: JsonRpcRequest) -> dict[str, Any]:
    """Hand the answers to the task's process. The record has them before this is acknowledged, so that the next `tasks/get` does not show them as open."""
    answers = _answers(record, request.params["inputResponses"])
    if answers:
        process: Ref[TaskProcess] = Ref(tasks.name(record.id))
        # Otherwise the task has just ended, or its store is slow and the answers are queued.
        with contextlib.suppress(ProcessExited, CallTimeout):
            await process.within(_PATIENCE).call(TaskProcess.take_answers, answers)
    return dict(_ACKNOWLEDGED)


def _answers(record: TaskRecord, responses: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The answers to open questions. Raises `McpError` for one that does not fit its question, and then none counts."""
    if record.input_requests is None:
        return {}
    asked: dict[str, _Asked] = msgspec.json.decode(record.input_requests, type=dict[str, _Asked])
    answers: dict[str, dict[str, Any]] = {}
    for key, question in asked.items():
        if key not in responses:
            continue
        answer = responses[key]
        if not is_object(answer):
            raise McpError(ErrorCode.INVALID_PARAMS, f'Invalid params: the input response "{key}" must be an object')
        answers[key] = check_response(question.method, answer, key) if question.method in QUESTION_METHODS else answer
    return answers


class _Asked(msgspec.Struct):
    method: str


def _cancel(tasks: CompanyTasks, record: TaskRecord, request: JsonRpcRequest) -> dict[str, Any]:  # noqa: ARG001 - as the others
    """Have the task cancelled. One that has ended stays as it is."""
    if not record.terminal and not tasks.send(record.id, CancelTask("by request")):
        raise McpError(ErrorCode.INTERNAL_ERROR, "The task cannot be cancelled just now: try again")
    return dict(_ACKNOWLEDGED)


_ANSWERS: Final[
    Mapping[str, Callable[[CompanyTasks, TaskRecord, JsonRpcRequest], dict[str, Any] | Awaitable[dict[str, Any]]]]
] = {"tasks/get": _get, "tasks/update": _update, "tasks/cancel": _cancel}


# --- How a record is written.


def plain_task(tasks: CompanyTasks, record: TaskRecord) -> dict[str, Any]:
    """The extension's `Task`.

    A task is kept for its ttl after its end, and `ttlMs` counts from its creation: so it grows as long as the task works,
    and no task is removed before the time that any reader was told.
    """
    lasted = max(0.0, (tasks.now() if record.ended is None else record.ended) - record.created)
    wire: dict[str, Any] = {
        "taskId": record.id,
        "status": _status(record),
        "createdAt": wire_time(record.created),
        "lastUpdatedAt": wire_time(record.updated),
        "ttlMs": milliseconds(lasted + record.ttl),
    }
    if record.message is not None:
        wire["statusMessage"] = record.message
    if record.poll is not None:
        wire["pollIntervalMs"] = milliseconds(record.poll)
    return wire


def detailed_task(tasks: CompanyTasks, record: TaskRecord) -> dict[str, Any]:
    """The extension's `DetailedTask`: with the open questions, the result or the error. Large members are encoded already."""
    wire = plain_task(tasks, record)
    match wire["status"]:
        case "input_required":
            wire["inputRequests"] = msgspec.Raw(record.input_requests or b"{}")
        case "completed":
            wire["result"] = result_for(record, "stateless", wrapped=tasks.wraps_result(record))
        case "failed":
            wire["error"] = _error(record)
        case _:
            pass
    return wire


def _error(record: TaskRecord) -> dict[str, Any]:
    """The error of the call, with a code that this era has."""
    error = msgspec.json.decode(record.error or b"{}", type=dict[str, Any])
    return STATELESS_DIALECT.fit_error(McpError(error["code"], error["message"], error.get("data"))).to_wire()


def _status(record: TaskRecord) -> str:
    """The status: a tool that reports its failure has completed, and only a JSON-RPC error fails a task."""
    return "completed" if record.status == "failed" and record.result is not None else record.status


# --- tools/call


def begin_task(
    company: Company, request: JsonRpcRequest, facts: SessionFacts, tool: CallableTool, creator: int = 0
) -> Awaitable[dict[str, Any]] | None:
    """The `CreateTaskResult` of a call that becomes a task at once. None for any other call.

    Raises `McpError` for a tool that runs as a task only, if this request has not declared the extension.
    """
    owner = _task_owner(company, facts, tool)
    if owner is None or tool.defer_task:
        return None
    return _begin(company, request, facts, tool, owner, creator)


def task_starter(company: Company, request: JsonRpcRequest, tool: CallableTool | None) -> CallTaskStarter | None:
    """What makes the call a task when its handler asks for that (`Job.task_starter`). None if its tool does not."""
    return CallTaskStarter(company, request, tool) if tool is not None and tool.defer_task else None


def _task_owner(company: Company, facts: SessionFacts, tool: CallableTool) -> str | None:
    """The owner of the task that this call may become. None if it stays a call."""
    if tool.as_task == "forbidden":
        return None
    if not declared(company.settings, company.catalogue_ref.current):
        return None
    if not is_extension_declared(facts.client_capabilities, TASKS_EXTENSION):
        if tool.as_task == "required":
            raise extension_not_declared(f"{tool.name} runs as a task only, and", TASKS_EXTENSION)
        return None
    owner = owner_without_session(facts.peer)
    if owner is None and tool.as_task == "required":
        raise McpError(ErrorCode.INTERNAL_ERROR, UNWRITTEN_OWNER.format(kind=type(facts.peer.principal).__name__))
    return owner


async def _begin(
    company: Company, request: JsonRpcRequest, facts: SessionFacts, tool: CallableTool, owner: str, creator: int
) -> dict[str, Any]:
    created = await _create(company, request, facts, tool, owner, creator)
    return created_result(company.tasks, created.record)


async def _create(  # noqa: PLR0913, PLR0917 - what a task has
    company: Company,
    request: JsonRpcRequest,
    facts: SessionFacts,
    tool: CallableTool,
    owner: str,
    creator: int,
    running: RunningWork | None = None,
) -> CreatedTask:
    try:
        record = company.tasks.admit(
            owner, method=request.method, name=tool.name, session_id="", ttl=None, era="stateless"
        )
    except TooManyTasks as error:
        log_refusal(error.message, peer=facts.peer, setting="max_tasks", method=request.method, program=company.program)
        raise
    spec = TaskSpec(None, 0, request, facts, tool.task_timeout, wanted_task=False, running=running, creator=creator)
    return await company.tasks.create(record, spec)


def created_result(tasks: CompanyTasks, record: TaskRecord) -> dict[str, Any]:
    """The `CreateTaskResult`: the task alone, also if it has ended already."""
    return {"resultType": "task", **plain_task(tasks, record)}


class CallTaskStarter:
    """Makes a running call a task: its worker goes on as the task's."""

    __slots__ = ("_company", "_request", "_tool")

    def __init__(self, company: Company, request: JsonRpcRequest, tool: CallableTool) -> None:
        self._company = company
        self._request = request
        self._tool = tool

    async def start(self, job: Job, worker: Pid) -> PeerChannel | None:
        """Have the task's process take the worker over, and the call answered with the task. Raises `McpError`: then the call goes on.

        Returns the peer channel of the task; None if the client cannot follow one.
        """
        company, key = self._company, job.key
        exchange: Any = job.session  # only exchanges have jobs with a starter
        # Those of the request that waits for a reply now, which may be a later one than that of the job.
        facts: SessionFacts = exchange.facts
        owner = _task_owner(company, facts, self._tool)
        if owner is None:
            return None
        isolation = "" if job.observed is None else job.observed.isolation
        running = RunningWork(worker, job.cancelled, isolation)
        created = await _create(company, self._request, facts, self._tool, owner, job.call, running)
        if created.peer_channel is None:  # it was cancelled just now, and this worker is being ended
            job.cancelled.raise_if_set()
            raise McpError(ErrorCode.INTERNAL_ERROR, "The task has ended before it was begun")
        process: Ref[TaskProcess] = Ref(company.tasks.name(created.record.id))
        if job.cancelled:  # meanwhile, and the client has got another reply: it will never know of the task
            process.send(CancelTask("the call was cancelled"))
            job.cancelled.raise_if_set()
        job.session = process
        job.task = created.record.id
        job.peer_channel = created.peer_channel
        job.observed = created.observed
        if bus.tracer is not None:
            bus.tracer.enter(job.call)
        exchange.send(CallBecameTask(key, created_result(company.tasks, created.record)))
        return created.peer_channel


def owner_without_session(peer: Peer) -> str | None:
    """The owner of the tasks that this peer begins without a session. None if it has a principal that cannot be written down."""
    caller = caller_key(peer)
    return stateless_owner(peer, "" if caller is None else str(caller[1]))


# --- subscriptions/listen with `taskIds`


def watch_tasks(company: Company, facts: SessionFacts, ids: Iterable[str], watcher: Ref[Any]) -> list[TaskRecord]:
    """Send the watcher a `TaskChanged` after each change of these tasks, from now on. Raises `McpError` (-32021).

    Returns the records of those that this peer may see, as they are now: the others are not watched, and look unknown.
    """
    require_extension(facts, "notifications.taskIds")
    owner = owner_without_session(facts.peer)
    if owner is None:
        return []
    found = [company.tasks.find_or_none(id, owner) for id in dict.fromkeys(ids)]
    records = [record for record in found if record is not None]
    for record in records:
        company.tasks.watchers.watch(record, watcher)
    return records
