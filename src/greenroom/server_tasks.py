"""`server.tasks`: tasks that the program itself creates and finishes, and access to all other tasks of a server.

Work that is done outside (a queue, another service, a person) is a task without a worker: `create` makes it for the caller of a tool, who can then
use all methods of tasks, and `finish` or `fail` ends it. All methods work from any thread and any coroutine: in the node's own loop they
act directly; from elsewhere they run in that loop and block until its next iteration has done it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from greenroom.actors.company import UnknownSession
from greenroom.actors.context import peer_of
from greenroom.actors.session import ENDED
from greenroom.actors.session_supervisor import find_session
from greenroom.actors.stateless_tasks import UNWRITTEN_OWNER, owner_without_session
from greenroom.actors.task_record import CancelTask, TaskUpdate, error_outcome, owner_of, value_outcome
from greenroom.protocol import methods
from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.methods import PeerSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from greenroom.actors.company import Company
    from greenroom.actors.context import Context
    from greenroom.actors.task_record import TaskRecord
    from greenroom.supervision import Node
    from greenroom.transports.interfaces import Peer

T = TypeVar("T")

_PATIENCE: Final = 10.0
_NOT_FOUND: Final = object()


class ServerTasks:
    """The tasks of one server, in whichever node it runs."""

    def __init__(self, company: Company, nodes: Iterable[Node]) -> None:
        """`nodes` are the nodes in which the server has run."""
        self._company = company
        self._nodes = nodes

    # --- create and finish

    def create(
        self, caller: str | Context, name: str = "", *, method: str = "tools/call", ttl: float | None = None
    ) -> str:
        """Create a task for the client of that call, or of the session with that id. It is working until it is finished. Returns its id.

        A call may be without a session, so its context is the better choice. `ttl` is how many seconds the task is kept after its end.
        Raises `UnknownSession`, and `McpError` when the client has too many.
        """
        if not isinstance(caller, str) and dialect_of(caller.protocol_version).is_stateless:
            peer = peer_of(caller)
            return str(self._wherever(lambda: self._create_for(peer, name, method, ttl)))
        session_id = caller if isinstance(caller, str) else caller.session_id

        def begin() -> Any:
            found = find_session(self._company, session_id)
            if found is None:
                return _NOT_FOUND
            session, card = found
            tasks = self._company.tasks
            owner = owner_of(card.peer, card.id)
            record = tasks.admit(owner, method=method, name=name, session_id=card.id, ttl=ttl)
            knows = methods.find_method("tasks/get", card.version or "", PeerSide.SERVER) is not None
            if not tasks.start_process(record, None, session, announces=knows):
                raise McpError(ErrorCode.INTERNAL_ERROR, "No task can be started just now: try again")
            return record.id

        made = self._wherever(begin)
        if made is _NOT_FOUND:
            raise UnknownSession(ENDED, session_id)
        return str(made)

    def _create_for(self, peer: Peer, name: str, method: str, ttl: float | None) -> str:
        """Create a task for a peer that has no session."""
        tasks, owner = self._company.tasks, owner_without_session(peer)
        if owner is None:
            raise McpError(ErrorCode.INTERNAL_ERROR, UNWRITTEN_OWNER.format(kind=type(peer.principal).__name__))
        record = tasks.admit(owner, method=method, name=name, session_id="", ttl=ttl)
        if not tasks.start_process(record, None, None):
            raise McpError(ErrorCode.INTERNAL_ERROR, "No task can be started just now: try again")
        return record.id

    def finish(self, task_id: str, value: Any) -> bool:
        """Finish a task with a value, as a tool returns it. False when it has ended already, or does not exist."""
        return self._tell(task_id, lambda record: value_outcome(record, value))

    def fail(self, task_id: str, error: str | McpError) -> bool:
        """Finish a task with an error."""
        mcp_error = error if isinstance(error, McpError) else McpError(ErrorCode.TOOL_ERROR, error)
        return self._tell(task_id, lambda _: error_outcome(mcp_error))

    def cancel(self, task_id: str, why: str = "by the server") -> bool:
        """Cancel a task. Its worker, if it has one, is notified and ended."""
        return self._tell(task_id, lambda _: CancelTask(why))

    def update(self, task_id: str, message: str | None) -> bool:
        """Set the status message that peers see."""
        return self._tell(task_id, lambda _: TaskUpdate(message))

    # --- look

    def get(self, task_id: str) -> TaskRecord | None:
        """The record of a task; None if it does not exist."""
        return self._company.tasks.store.get(task_id)

    def all(self, session_id: str | None = None) -> list[TaskRecord]:
        """All tasks, or those of one session, oldest first."""
        found = self._company.tasks.store.list()
        return [each for each in found if session_id is None or each.session_id == session_id]

    def _tell(self, task_id: str, word: Callable[[TaskRecord], object]) -> bool:
        def tell() -> Any:
            tasks = self._company.tasks
            record = tasks.store.get(task_id)
            if record is None or record.terminal:
                return _NOT_FOUND
            return tasks.send(task_id, word(record)) or _NOT_FOUND

        return self._wherever(tell) is not _NOT_FOUND

    def _wherever(self, act: Callable[[], Any]) -> Any:
        for node in tuple(self._nodes):
            if node.running:
                found = _in_node(node, act)
                if found is not _NOT_FOUND:
                    return found
        return _NOT_FOUND


def _in_node(node: Node, act: Callable[[], T]) -> T:
    try:
        here = asyncio.get_running_loop() is node.loop
    except RuntimeError:
        here = False
    if here:
        return act()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(node.context.run(act))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            done.set_exception(error)

    if not node.call_from_thread(run):
        raise RuntimeError("the server has stopped")
    return done.result(_PATIENCE)
