"""A session's dealings with tasks: calls that become one, and what the peer asks of its tasks later.

It is the part of the session's process that deals with `tasks/*`. Looking at tasks is answered from their records; what has to wait, or to be
decided, is an entry like any other call's, which the task's collector answers for: by a word when there is something to say, or by its
death. Either way the answer is made here, from the record, and once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, McpError, not_done
from greenroom.protocol.messages import encode_result
from greenroom.protocol.methods import Side
from greenroom.protocol.pages import page
from greenroom.supervision import Ref, demonitor, monitor
from greenroom.transports.access_log import log_refusal

from .task_endings import answer
from .task_record import belongs_to_session, owner_of
from .task_words import Cancel, Plan, Unwait, Wait
from .tasks import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.messages import Request
    from greenroom.supervision import Monitor

    from .inflight import Call
    from .session import Session
    from .task_record import TaskRecord
    from .task_words import Decided, Kept
    from .tasks import Tasks

_UNREAD: Final = "Another tasks/result of yours waits for this task, and nobody reads this one"
_GONE: Final = "The server was restarted in the middle of this"


class TaskCalls:
    """One session's."""

    __slots__ = ("_session", "_watching")

    def __init__(self, session: Session) -> None:
        """None yet."""
        self._session = session
        self._watching: dict[Monitor, int] | None = None

    @property
    def _tasks(self) -> Tasks:
        return self._session.company.tasks

    @property
    def owner(self) -> str:
        """Whose the tasks of this session are."""
        card = self._session.card
        return owner_of(card.peer, card.id)

    # --- calling a tool as a task

    def begin(self, request: Request) -> bool:
        """Whether this call becomes a task. Raises `McpError` where it must not, or must and does not say so."""
        session = self._session
        company, wish = session.company, request.params.get("task")
        catalogue = company.shelf.catalogue
        entry = catalogue.tool(request.params["name"])
        if entry is None or (wish is None and entry.as_task == "forbidden"):
            return False  # as nearly all calls
        support = entry.as_task
        if request.method in company.own or methods.find("tasks/get", session.agreed.version, Side.SERVER) is None:
            return False
        owner = self.owner
        if not session.gated and belongs_to_session(owner) and session.outlet.channel is None:
            return False  # the session is over with this answer, and nobody could ever ask for the task
        if not declared(company.settings, catalogue):
            return False
        if wish is None:
            if support == "required":
                raise McpError(
                    ErrorCode.METHOD_NOT_FOUND, f"{entry.name} runs as a task only: call it with params.task"
                )
            if not entry.options.long_running:
                return False
        elif support == "forbidden":
            raise McpError(
                ErrorCode.METHOD_NOT_FOUND, f"{entry.name} does not run as a task: call it without params.task"
            )
        ttl = None if wish is None else _seconds(wish)
        call = session.begin(request, company.settings.call_timeout, lasting=True)
        try:
            record = self._tasks.admit(
                owner, method=request.method, name=entry.name, session_id=session.card.id, ttl=ttl
            )
        except McpError as error:
            log_refusal(error.message, peer=session.agreed.facts.peer, setting="max_tasks", method=request.method)
            session.calls.fail(call.key, error)
            return True
        call.task = record.id
        plan = Plan(session.own_ref, call.key, request, session.agreed.facts, entry.handler.timeout, wish is not None)
        if self._tasks.launch(record, plan, session.own_ref):
            self._watch(self._tasks.collectors, call)
        else:
            session.calls.fail(
                call.key,
                McpError(ErrorCode.INTERNAL_ERROR, "No task can be started just now: try again", not_done("busy")),
            )
        return True

    # --- tasks/*

    def take(self, request: Request) -> bytes | None:
        """The answer to one of the methods; None when it comes later."""
        return _ANSWERS[request.method](self, request)

    def _get(self, request: Request) -> bytes:
        return encode_result(request.id, self._find(request).to_wire())

    def _list(self, request: Request) -> bytes:
        """In the order in which they were created."""
        records = sorted(self._tasks.of(self.owner), key=_place)
        size = self._session.company.settings.page_size
        part, following = page([_place(each) for each in records], request.params.get("cursor"), size, "task")
        result: dict[str, Any] = {"tasks": [each.to_wire() for each in records[part]]}
        if following is not None:
            result["nextCursor"] = following
        return encode_result(request.id, result)

    def _result(self, request: Request) -> bytes | None:
        """Wait until it has ended. Whoever waited before and has gone away meanwhile waits no longer."""
        record = self._find(request)
        if record.terminal:
            return answer(record, request.id)
        session = self._session
        for call in session.calls.table:
            if call.method == "tasks/result" and call.task == record.id and _is_unread(call):
                self.left(call)
                session.calls.fail(call.key, McpError(ErrorCode.INTERNAL_ERROR, _UNREAD))
        call = session.begin(request, None, lasting=True)
        self._wait(call, record, Wait(session.own_ref, session.pid, call.key))
        return None

    def _cancel(self, request: Request) -> bytes | None:
        """The first wish that reaches its collector before the end decides."""
        record = self._find(request)
        if record.terminal:
            raise _too_late(record)
        session = self._session
        call = session.begin(request, session.company.settings.call_timeout)
        self._wait(call, record, Cancel("by request", session.own_ref, call.key))
        return None

    def _find(self, request: Request) -> TaskRecord:
        return self._tasks.find(request.params["taskId"], self.owner)

    def _wait(self, call: Call, record: TaskRecord, word: Wait | Cancel) -> None:
        """Whoever passes it on is watched, and then whoever keeps the task: it may be about to start, or to end."""
        call.task = record.id
        self._watch(self._tasks.collectors, call)
        self._tasks.tell(record.id, word)

    def _watch(self, who: Ref[Any], call: Call) -> None:
        if self._watching is None:
            self._watching = {}
        self._watching[monitor(who)] = call.key

    def kept(self, word: Kept) -> None:
        """Whoever keeps the task has it now."""
        call = self._session.calls.table.get(word.key)
        if call is not None and call.task is not None:
            self.settled(call)
            self._watch(Ref[Any](self._tasks.name(call.task)), call)

    # --- what comes of it

    def decided(self, word: Decided) -> None:
        """A collector has a word for one of our calls."""
        call = self._session.calls.table.get(word.key)
        if call is not None:
            self._answer(call, won=word.won)

    def gone(self, ref: Monitor) -> bool:
        """Whether somebody is gone who was to answer for one of our calls: then it is answered now."""
        key = None if self._watching is None else self._watching.pop(ref, None)
        if key is None:
            return False
        call = self._session.calls.table.get(key)
        if call is not None:
            self._answer(call, won=True)
        return True

    def _answer(self, call: Call, *, won: bool) -> None:
        calls = self._session.calls
        record = self._tasks.store.get(call.task or "")
        if record is None or not record.terminal:
            if record is not None and call.method == "tools/call" and not self._tasks.alive(record.id):
                self._tasks.store.remove(record.id)  # nobody has heard of it
            calls.fail(call.key, McpError(ErrorCode.INTERNAL_ERROR, _GONE))
        elif call.method == "tasks/result":
            calls.finish(call.key, answer(record, call.id))
        elif call.method == "tasks/cancel":
            if won and record.status == "cancelled":
                calls.finish(call.key, encode_result(call.id, record.to_wire()))
            else:
                calls.fail(call.key, _too_late(record))
        else:
            calls.fail(call.key, McpError(ErrorCode.INTERNAL_ERROR, _GONE))

    def left(self, call: Call) -> None:
        """The peer does not wait any more: whoever was to answer need not, and a task that nobody has heard of is nobody's."""
        if call.method == "tasks/result":
            self._tasks.tell(call.task or "", Unwait(self._session.pid, call.key))
        elif call.method == "tools/call":
            self._tasks.tell(call.task or "", Cancel("the call was cancelled"))

    def settled(self, call: Call) -> None:
        """It is answered: whoever was to answer for it is not watched any more."""
        for ref, key in tuple((self._watching or {}).items()):
            if key == call.key:
                assert self._watching is not None
                del self._watching[ref]
                demonitor(ref, flush=True)

    def abandon_all(self) -> None:
        """The session is gone, and its tasks are nobody's unless somebody else owns them."""
        self._tasks.orphan(self.owner)


def _seconds(wish: Mapping[str, Any]) -> float | None:
    ttl = wish.get("ttl")
    if ttl is None:
        return None
    if not (math.isfinite(ttl) and ttl >= 0):
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid params: task.ttl is a number of milliseconds, not {ttl!r}")
    return float(ttl) / 1000


def _place(record: TaskRecord) -> str:
    return f"{record.created:018.6f} {record.id}"


def _is_unread(call: Call) -> bool:
    if call.stream is not None:
        return call.stream.reader is None
    return call.caller is not None and call.caller.over


def _too_late(record: TaskRecord) -> McpError:
    return McpError(ErrorCode.INVALID_PARAMS, f"Cannot cancel the task: it has ended already, and is {record.status}")


_ANSWERS: Final[Mapping[str, Callable[[TaskCalls, Request], bytes | None]]] = {
    "tasks/get": TaskCalls._get,  # noqa: SLF001 - the table of this file
    "tasks/list": TaskCalls._list,  # noqa: SLF001 - same
    "tasks/result": TaskCalls._result,  # noqa: SLF001 - same
    "tasks/cancel": TaskCalls._cancel,  # noqa: SLF001 - same
}
