"""`FollowedTasks`: tasks that a server of the stateless era makes of calls, followed until they have ended.

A process for each task, linked to the connection, polls it with `tasks/get` and sends answers with `tasks/update`; a notification about the task is as
good as a poll. The connection asks the task's questions, each key once, and settles the requests that wait for the end. A call whose caller leaves takes
its task along (`tasks/cancel`).

The record of a task stands on the line, which outlives both processes: a connection that was restarted follows on, and a key that was answered is
never asked again.
"""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.errors import BadAnswer, ErrorCode, LocalProtocolError, PeerError
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.protocol.received_results import read_created_task, read_detailed_task
from greenroom.supervision import (
    ActorError,
    Backoff,
    CallTimeout,
    GreenroomError,
    is_orderly,
    kill,
    receive,
    spawn_link,
)
from greenroom.transports.client.errors import ConnectionLost, WireFull

from .client_handler import AskingCall
from .errors import InputRefused, NotReady, Parked, RequestLost, RequestTimeout, TaskLost, Unavailable, Unsupported
from .input_rounds import check_declared, read_questions
from .interfaces import Progress
from .outgoing_envelope import mirrored_headers
from .pending_requests import InternalRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from greenroom.protocol.jsonrpc import JsonRpcResponse, RequestId
    from greenroom.protocol.received_results import RemoteTask
    from greenroom.supervision import ExitReason, Process

    from .connection_line import ConnectionLine
    from .notification_readers import NotificationReaders
    from .pending_requests import PendingRequest
    from .request_table import RequestTable
    from .server_requests import ServerRequests

TASK: Final = "task"
"""The `resultType` of a result that is a task."""
_GET_METHOD: Final = "tasks/get"
RESULT_METHOD: Final = "tasks/result"
"""The method of a request for the end of a task. It is sent in the handshake era only: in the stateless era the task is followed instead."""
UPDATE_METHOD: Final = "tasks/update"
_CANCEL_METHOD: Final = "tasks/cancel"
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 3600.0
"""Bounds of the pause between two polls, whatever the server asks for."""
USUAL_PAUSE: Final = 1.0
"""The pause if the server asks for none."""
MOST_KEYS: Final = 1024
"""How many questions a task may ask over its life."""
REMEMBERED: Final = 256
"""How many tasks that are not followed at the moment are remembered, so that no key is answered twice. The oldest is forgotten first."""
MOST_LISTENED: Final = 64
"""How many tasks are listened to at once; the others are polled only. A server may refuse a listen that names too many."""
MOST_FAILURES: Final = 8
"""How many polls in a row may fail when no caller has a deadline."""
_ANSWER_TIMEOUT: Final = 30.0
_CANCEL_TIMEOUT: Final = 5.0
_ANSWERED: Final = "answered"
"""To the process of a task: there is an answer to be sent."""
_PAUSES: Final = Backoff(first=0.5, longest=60.0)
"""The least pauses after polls that failed."""


class TaskReport(NamedTuple):
    """To the connection: the state of a task, or why it cannot be followed."""

    task: FollowedTask
    found: RemoteTask | BaseException


class FollowedTask:
    """The record of one task, and the requests that wait for its end."""

    __slots__ = (
        "_began",
        "_connection",
        "answers",
        "asked",
        "call",
        "due",
        "failures",
        "id",
        "message",
        "open",
        "pause",
        "process",
        "refusal",
        "state",
        "uncertain",
        "waiting",
    )

    def __init__(self, id: str) -> None:
        """`id` is the server's."""
        self.id = id
        self.call: AskingCall | None = None
        """The call that it was made of, if that is known."""
        self.state: RemoteTask | None = None
        self.waiting: dict[PendingRequest, None] = {}
        self.asked: dict[str, None] = {}
        """The keys of the questions that are being asked, or were answered."""
        self.open: dict[str, str] = {}
        """The ids of the questions that are being asked, by key."""
        self.answers: dict[str, Any] = {}
        """Answers that the server has not acknowledged."""
        self.uncertain: set[str] = set()
        """The keys of those that were sent, so that the server may have them."""
        self.refusal: tuple[PeerError, frozenset[str]] | None = None
        """The error that the last answers met, and their keys."""
        self.message: str | None = None
        self.failures = 0
        """Polls that failed, in a row."""
        self.pause = USUAL_PAUSE
        """The pause between two polls that the server asks for, within bounds."""
        self.process: Process | None = None
        self.due = 0.0
        """The time of the next poll, on the loop's clock."""
        self._began: float | None = None
        self._connection: Process | None = None

    def __repr__(self) -> str:
        return f"<FollowedTask {self.id[:64]!r}, {len(self.waiting)} waiting>"

    @property
    def has_deadline(self) -> bool:
        """Whether all requests that wait for its end will give up some time."""
        return all(entry.deadline is not None for entry in self.waiting)

    @property
    def least_pause(self) -> float:
        """The pause before the next poll."""
        return max(self.pause, _PAUSES.most(self.failures - 1)) if self.failures else self.pause

    def note(self, state: RemoteTask, now: float) -> None:
        """Take over a state of the task."""
        self.state = state
        if self._began is None:
            self._began = now
        if state.poll_interval is not None:
            self.pause = min(max(state.poll_interval, SHORTEST_PAUSE), LONGEST_PAUSE)

    def has_expired(self, now: float) -> bool:
        """Whether the server may have deleted it. The time is counted from when this side first knew of the task, so that it ends no earlier than the server's."""
        ttl = None if self.state is None else self.state.ttl
        return ttl is not None and self._began is not None and now >= self._began + ttl

    def start(self, line: ConnectionLine, connection: Process) -> None:
        """Start the process that follows it, linked to the calling one."""
        pid = spawn_link(_follow, self, line, connection)
        self._connection = connection
        self.process = connection.node.process(pid)
        assert self.process is not None
        self.process.label = "task"
        self.process.add_exit_waiter(self)

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.remove_exit_waiter(self)
            kill(process.pid)

    def on_exit(self, reason: ExitReason) -> None:
        """Called when the process has ended by itself, which it never does in order."""
        self.process = None
        if self._connection is not None and not is_orderly(reason):
            lost = ConnectionLost("the process that followed a task has ended")
            self._connection.send(TaskReport(self, RequestLost(_GET_METHOD, lost)))


class TaskRecords:
    """The tasks of one line: those that are followed, and some that were."""

    def __init__(self, readers: NotificationReaders) -> None:
        """`readers` are those of the line: they listen to changes of tasks, too."""
        self.followed: dict[str, FollowedTask] = {}
        self._readers = readers
        self.idle: dict[str, FollowedTask] = {}
        self._listened: set[str] = set()

    def find(self, id: str) -> FollowedTask:
        """The record of a task; a new one if it is not known."""
        found = self.followed.get(id) or self.idle.get(id)
        return FollowedTask(id) if found is None else found

    def follow(self, task: FollowedTask) -> None:
        """Keep a task for as long as it is followed, and listen to its changes, if those of not too many others are listened to."""
        self.idle.pop(task.id, None)
        self.followed[task.id] = task
        if len(self._listened) < MOST_LISTENED and task.id not in self._listened and is_plain(task.id):
            self._listened.add(task.id)
            self._readers.follow_task(task.id)

    def rest(self, task: FollowedTask) -> None:
        """Remember a task that is not followed."""
        self.forget(task)
        self.idle[task.id] = task
        if len(self.idle) > REMEMBERED:
            del self.idle[next(iter(self.idle))]

    def forget(self, task: FollowedTask) -> None:
        """Forget a task."""
        self.followed.pop(task.id, None)
        self.idle.pop(task.id, None)
        if task.id in self._listened:
            self._listened.discard(task.id)
            self._readers.unfollow_task(task.id)


# --- The process of a task: it polls, and sends answers.


async def _follow(task: FollowedTask, line: ConnectionLine, connection: Process) -> None:
    loop = connection.node.loop
    while True:
        if await _is_due(task.due - loop.time()):
            polled_at = loop.time()
            found = await _poll(task, line, loop)
            task.due = polled_at + task.least_pause
            if found is not None:
                connection.send(TaskReport(task, found))
        if task.answers:
            error = await _send_answers(task, line)
            if error is not None:
                connection.send(TaskReport(task, error))


async def _is_due(seconds: float) -> bool:
    """Wait until the next poll. False if there is an answer to be sent before it."""
    if seconds <= 0:
        return True
    try:
        await receive(timeout=seconds)
    except CallTimeout:
        return True
    return False


async def _poll(
    task: FollowedTask, line: ConnectionLine, loop: asyncio.AbstractEventLoop
) -> RemoteTask | Exception | None:
    """The state of the task, or the error that ends the following; None if a later poll may succeed."""
    try:
        result = await line.begin(_GET_METHOD, {"taskId": task.id}, timeout=_ANSWER_TIMEOUT)
        state = read_detailed_task(result, task.id)
        check_outcome(state)
    except GreenroomError as error:
        return _judge(task, error, loop.time())
    task.failures = 0
    task.note(state, loop.time())
    task.answers = {
        key: answer for key, answer in task.answers.items() if key not in task.uncertain or key in state.input_requests
    }
    return state


def _judge(task: FollowedTask, error: GreenroomError, now: float) -> Exception | None:
    match error:
        case BadAnswer() | Parked():
            return error
        case Unsupported():  # another server, or one of another era, has its place
            return TaskLost(task.id, "unknown")
        case PeerError(code=ErrorCode.INVALID_PARAMS):
            return TaskLost(task.id, "expired" if task.has_expired(now) else "unknown")
        case PeerError() if error.code != ErrorCode.INTERNAL_ERROR and error.maybe_done:
            return error
        case PeerError() | RequestLost() | RequestTimeout() | Unavailable() | NotReady():
            task.failures += 1
        case _:
            return error
    if task.has_expired(now):
        return TaskLost(task.id, "expired")
    return None if task.has_deadline or task.failures < MOST_FAILURES else error


async def _send_answers(task: FollowedTask, line: ConnectionLine) -> Exception | None:
    """Send the answers. Returns the error that ends the following."""
    answers = dict(task.answers)
    task.uncertain |= answers.keys()
    params = {"taskId": task.id, "inputResponses": answers}
    try:
        await line.begin(UPDATE_METHOD, params, timeout=_ANSWER_TIMEOUT)
    except PeerError as error:
        task.refusal = error, frozenset(answers)
    except (RequestLost, RequestTimeout, Unavailable, NotReady):
        return None  # the next poll shows which questions are still open, and those answers are sent again
    except GreenroomError as error:
        return error
    for key in answers:
        task.answers.pop(key, None)
    return None


def check_outcome(state: RemoteTask) -> None:
    """Refuse a completed task whose result is none that ends a call. Raises `BadAnswer`."""
    kind = "complete" if state.result is None else state.result.get("resultType", "complete")
    if kind != "complete":
        raise BadAnswer(
            "Invalid result of tasks/get: the result of a completed task has a resultType that is not complete"
        )


# --- What the connection does.


class FollowedTasks:
    """All tasks that one connection follows. Its methods are called in the connection's process."""

    def __init__(
        self,
        connection: Process,
        line: ConnectionLine,
        table: RequestTable,
        server_requests: ServerRequests,
    ) -> None:
        self._connection = connection
        self._line = line
        self._table = table
        self._server_requests = server_requests
        self._task_of: dict[PendingRequest, FollowedTask] = {}
        self._left: dict[RequestId, None] = {}
        """The ids of calls whose callers have left before there was a reply."""
        self._numbers = count(1)
        table.on_task_result = self.take

    # --- requests

    def begin(self, entry: PendingRequest, result: Mapping[str, Any]) -> None:
        """The server has made a task of this call: follow it, unless the caller wants the task itself."""
        try:
            state = read_created_task(result)
        except BadAnswer as error:
            entry.settle(None, error)
            return
        task = self._line.tasks.find(state.id)
        task.call = AskingCall(entry.method, entry.params or {}, entry.id, entry.call)
        task.note(state, self._now)
        task.due = self._now + (0.0 if state.over else task.pause)
        if entry.as_task:
            if task.process is None:
                self._line.tasks.rest(task)
            entry.settle(dict(result))
        else:
            self._wait(entry, task)

    def take(self, entry: PendingRequest) -> None:
        """Follow the task of a request for its end (`RESULT_METHOD`), which is not sent."""
        self._table.pop(entry.id)
        id = (entry.params or {}).get("taskId")
        if not isinstance(id, str) or not id:
            entry.settle(None, LocalProtocolError(f"{RESULT_METHOD} needs the id of a task, as a text, in taskId"))
            return
        self._wait(entry, self._line.tasks.find(id))

    def _wait(self, entry: PendingRequest, task: FollowedTask) -> None:
        self._table.suspend(entry)
        entry.follows = True
        self._task_of[entry] = task
        task.waiting[entry] = None
        if task.process is not None:
            return
        self._line.tasks.follow(task)
        try:
            task.start(self._line, self._connection)
        except ActorError as error:  # the node is closing
            self._fail(task, error)

    def drop(self, entry: PendingRequest) -> None:
        """The request is not waited for any more. A call takes its task along."""
        task = self._task_of.pop(entry, None)
        if task is None:
            if entry.method == "tools/call":
                self._left[entry.id] = None
                if len(self._left) > REMEMBERED:
                    del self._left[next(iter(self._left))]
            return
        task.waiting.pop(entry, None)
        if entry.method != RESULT_METHOD:
            self.cancel(task.id)
        if not task.waiting:
            self._stop(task)

    def cancel(self, id: str) -> None:
        """Ask the server to cancel a task, without waiting for its answer."""
        process = self._connection
        params = {"taskId": id}
        request = InternalRequest(self._line, process.node.loop, _CANCEL_METHOD, params, _ignore)
        request.begin(process.node, _CANCEL_TIMEOUT)
        request.connection = process
        self._table.take(request)

    def on_stray(self, answer: JsonRpcResponse) -> None:
        """A reply that no request waits for. A task that was made of a call whose caller had left is cancelled."""
        if answer.id in self._left:
            del self._left[answer.id]
            self.cancel_made(answer)

    def cancel_made(self, answer: JsonRpcResponse) -> None:
        """Cancel the task, if the server has made one of a call whose caller has left."""
        if self._table.envelope is None or answer.result.get("resultType") != TASK:
            return
        with contextlib.suppress(BadAnswer):
            self.cancel(read_created_task(answer.result).id)

    # --- states

    def on_report(self, report: TaskReport) -> None:
        """The process of a task has polled it, or cannot follow it."""
        task, found = report
        if isinstance(found, BaseException):
            self._fail(task, found)
        else:
            self._on_state(task, found, is_polled=True)

    def on_notification(self, params: Mapping[str, Any]) -> None:
        """The server has announced the state of a task. An invalid announcement is ignored: the next poll decides."""
        id = params.get("taskId")
        task = self._line.tasks.followed.get(id) if isinstance(id, str) else None
        if task is None:
            return
        try:
            state = read_detailed_task(params, task.id, "notifications/tasks")
            check_outcome(state)
        except BadAnswer:
            return
        task.note(state, self._now)
        self._on_state(task, state, is_polled=False)

    def _on_state(self, task: FollowedTask, state: RemoteTask, *, is_polled: bool) -> None:
        if state.over:
            self._settle(task, state)
        else:
            self._tell_message(task, state)
            if not is_polled or self._close_questions(task, state):
                self._ask(task, state)

    def _tell_message(self, task: FollowedTask, state: RemoteTask) -> None:
        """A task has no progress of its own, so a new status message counts as a step."""
        if state.status_message is None or state.status_message == task.message:
            return
        task.message = state.status_message
        for entry in task.waiting:
            entry.tell(Progress(entry.reached + 1, None, task.message))

    def _close_questions(self, task: FollowedTask, state: RemoteTask) -> bool:
        """Withdraw questions that the server does not ask any more. False, and the task has failed, if it has refused an answer."""
        still_open = questions_of(state)
        for key in [key for key in task.open if key not in still_open]:
            self._withdraw(task, key)
        refusal, task.refusal = task.refusal, None
        if refusal is None or refusal[1].isdisjoint(still_open):
            return True
        self._fail(task, refusal[0])
        return False

    def _ask(self, task: FollowedTask, state: RemoteTask) -> None:
        new = {key: question for key, question in questions_of(state).items() if key not in task.asked}
        envelope = self._table.envelope
        if not new or envelope is None:
            return
        try:
            questions = read_questions(_GET_METHOD, new)
            check_declared(questions, envelope.capabilities)
        except BadAnswer as error:
            self._fail(task, error)
            return
        if len(task.asked) + len(new) > MOST_KEYS:
            self._fail(
                task, BadAnswer(f"the server asks again and again: a task has asked {len(task.asked)} questions")
            )
            return
        call = task.call or AskingCall(RESULT_METHOD, {"taskId": task.id}, next(iter(task.waiting)).id)
        for key, (method, params) in questions.items():
            if len(self._server_requests) >= self._line.settings.max_server_requests:
                return  # the next poll shows the others again
            id = f"task:{next(self._numbers)}"
            question = JsonRpcRequest(id, method, params)
            task.asked[key] = None
            task.open[key] = id
            self._server_requests.ask(question, call, partial(self._on_answer, task, key, method))

    def _on_answer(self, task: FollowedTask, key: str, method: str, answer: Any, error: BaseException | None) -> None:
        if task.open.pop(key, None) is None:
            return
        if error is not None:
            del task.asked[key]
            self._fail(task, InputRefused("tools/call" if task.call is None else task.call.method, method, error))
            return
        task.answers[key] = answer
        if task.process is not None:
            task.process.send(_ANSWERED)

    def _withdraw(self, task: FollowedTask, key: str) -> None:
        """End the process of a question. It may be asked again."""
        self._server_requests.withdraw(task.open.pop(key))
        task.asked.pop(key, None)

    # --- the end

    def _settle(self, task: FollowedTask, state: RemoteTask) -> None:
        """The task has ended: so have the requests that waited for it."""
        error = outcome_error(state)
        entries, task.waiting = task.waiting, {}
        self._stop(task)
        self._line.tasks.forget(task)
        for entry in entries:
            self._table.pop(entry.id)
            self._task_of.pop(entry, None)
            if entry.as_task:
                entry.settle(dict(state.raw))
            else:
                entry.settle(None if error is not None else dict(state.result or {}), error)

    def _fail(self, task: FollowedTask, error: BaseException) -> None:
        """The task cannot be followed. A call takes its task along."""
        entries, task.waiting = task.waiting, {}
        self._stop(task)
        if isinstance(error, TaskLost):
            self._line.tasks.forget(task)
        elif any(entry.method != RESULT_METHOD for entry in entries):
            self.cancel(task.id)
        for entry in entries:
            self._task_of.pop(entry, None)
            self._table.end(entry, error)

    def _stop(self, task: FollowedTask) -> None:
        """End its process and those of its questions, and remember it."""
        task.stop()
        for key in tuple(task.open):
            self._withdraw(task, key)
        self._line.tasks.rest(task)

    def hand_over(self) -> None:
        """The connection's process has died. Requests with a deadline wait for the successor; the others stay in the table, and fail."""
        for task in self._line.tasks.followed.values():
            task.stop()
            for key in task.open:
                task.asked.pop(key, None)
            task.open.clear()
            for entry in task.waiting:
                if entry.deadline is not None and self._line.supervised:
                    self._table.pop(entry.id)
        self._task_of.clear()

    def resume(self) -> None:
        """Follow the tasks of the process that died."""
        for task in tuple(self._line.tasks.followed.values()):
            entries, task.waiting = task.waiting, {}
            if any(entry.settled and entry.method != RESULT_METHOD for entry in entries):
                self.cancel(task.id)
            for entry in entries:
                if not entry.settled:
                    self._wait(entry, task)
            if not task.waiting:
                self._line.tasks.rest(task)

    def abandon(self) -> None:
        """The connection ends in order: calls take their tasks along, as far as there is a wire."""
        for task in tuple(self._line.tasks.followed.values()):
            if any(entry.method != RESULT_METHOD for entry in task.waiting):
                self._cancel_at_last(task.id)
            task.waiting.clear()
            self._stop(task)
        self._task_of.clear()

    def _cancel_at_last(self, id: str) -> None:
        """Ask the server to cancel a task, while the wire is closed."""
        wire, envelope = self._table.wire, self._table.envelope
        if wire is None or envelope is None:
            return
        number, params = next(self._line.ids), {"taskId": id}
        frame = envelope.request(number, _CANCEL_METHOD, params)
        with contextlib.suppress(WireFull):
            if wire.is_http:
                # Without an id it is a message that is only acknowledged: these are still sent when a wire closes, and requests are dropped.
                self._line.transmit(wire, frame, mirrored=mirrored_headers(_CANCEL_METHOD, params))
            else:
                self._line.transmit(wire, frame, number)

    @property
    def _now(self) -> float:
        return self._connection.node.loop.time()


def _ignore(_: object, error: BaseException | None) -> None:
    """For requests whose outcome changes nothing."""


def is_plain(id: str) -> bool:
    """Whether every server can compare the id with its own, and every header repeat it."""
    return id.isascii() and id.isprintable()


def questions_of(state: RemoteTask) -> Mapping[str, Any]:
    """The open questions of a task, as they came."""
    return state.input_requests if state.status == "input_required" else {}


def outcome_error(state: RemoteTask) -> Exception | None:
    """The error of a task that has ended; None if it has a result."""
    if state.status == "cancelled":
        return TaskLost(state.id, "cancelled", state.status_message or "")
    return state.error
