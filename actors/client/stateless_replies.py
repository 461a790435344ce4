"""`StatelessReplies`: replies that do not settle their request: questions, tasks, and refusals that this client can mend.

A refusal for a wrong header is answered by listing the tools again, and one that only a server of the other era gives by opening the connection
anew. Each is tried once for a request, which then has a new id; nothing was done before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.envelope import PROTOCOL_VERSION_KEY
from greenroom.protocol.errors import BadAnswer, ErrorCode
from greenroom.protocol.input_required import INPUT_REQUIRED
from greenroom.transports.client.errors import NOT_FOUND, HttpError, SessionGone

from .errors import RequestLost, request_lost
from .followed_tasks import TASK
from .handshake import ToolLeftOut, names_stateless
from .pending_requests import InternalRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.protocol.errors import PeerError
    from greenroom.protocol.jsonrpc import JsonRpcResponse
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import UnansweredRequest

    from .connection_line import ConnectionLine
    from .followed_tasks import FollowedTasks
    from .input_rounds import InputRounds
    from .pending_requests import PendingRequest
    from .request_table import RequestTable

_LEGACY_STATUSES: Final = frozenset({400, 404, 405})
"""Statuses with which a server of the handshake era answers a request that stands alone. The first and the last say that it was not executed."""


class StatelessReplies:
    """The replies of one connection that need more than to be handed to their caller."""

    def __init__(
        self,
        line: ConnectionLine,
        requests: RequestTable,
        rounds: InputRounds,
        tasks: FollowedTasks,
        report: Callable[..., None],
        reopen: Callable[[Exception, Pid | None], bool],
    ) -> None:
        """`report` emits a report of the connection; `reopen` opens it anew in place of a wire, and returns False where that could not change the era."""
        self._line = line
        self._requests = requests
        self._rounds = rounds
        self._tasks = tasks
        self._report = report
        self._reopen = reopen
        requests.on_interim = self.on_interim
        requests.on_refused = self.on_refused

    def learn_tools(self, answer: JsonRpcResponse, wire: Pid) -> None:
        """Take from a list of tools what the headers of their calls need, and leave out the tools whose headers cannot be written."""
        entry = self._requests.table.get(answer.id)
        if entry is not None and entry.method == "tools/list" and entry.wire == wire:
            for name, why in self._line.tool_headers.learn(answer.result).items():
                self._report(ToolLeftOut, name=name, why=why)

    def on_interim(self, entry: PendingRequest, answer: JsonRpcResponse) -> None:
        """A result that is not complete."""
        result = answer.result
        kind = result.get("resultType")
        if entry.settled:
            self._tasks.cancel_made(answer)
        elif kind == INPUT_REQUIRED:
            self._rounds.begin(entry, result)
        elif kind == TASK and entry.method == "tools/call" and self._line.settings.follow_tasks:
            self._tasks.begin(entry, result)
        else:
            wrong = f"Invalid answer to {entry.method}: its resultType {kind!r:.60} is none that it may have"
            entry.settle(None, BadAnswer(wrong))

    def on_refused(self, entry: PendingRequest, error: PeerError) -> bool:
        """An error answer. Returns whether the request goes on, since the reason can be mended."""
        requests = self._requests
        if entry.refused or isinstance(entry, InternalRequest):
            return False
        alone = entry.envelope is not None
        if alone and error.code == ErrorCode.HEADER_MISMATCH and entry.method == "tools/call":
            entry.refused += 1
            if self._line.cache is not None:
                self._line.cache.on_notification("notifications/tools/list_changed", {})
            requests.suspend(entry)
            self._list_tools_for(entry, None, set())
            return True
        is_http = requests.wire is not None and requests.wire.is_http
        if (
            not _is_of_other_era(error, alone=alone, is_http=is_http)
            or self._is_common(error)
            or not self._reopen(error, entry.wire)
        ):
            return False
        entry.refused += 1
        entry.doubted = (error, alone)
        requests.send_again(entry)
        return True

    def on_lost(self, entry: PendingRequest, lost: UnansweredRequest) -> bool:
        """A request got no reply. Returns whether that is dealt with: it stood alone, and was refused as a server of the handshake era would."""
        error, requests = lost.error, self._requests
        if (
            entry.refused
            or entry.open_ended
            or entry.envelope is None
            or not isinstance(error, HttpError)
            or error.status not in _LEGACY_STATUSES
            or not self._reopen(error, entry.wire)
        ):
            return False
        entry.refused += 1
        refused = error.status != NOT_FOUND or error.answer is not None
        if refused and not (lost.resend or entry.idempotent or isinstance(entry, InternalRequest)):
            entry.doubted = (error.answer or request_lost(entry.method, error, maybe_done=True, alone=True), True)
            requests.pop(entry.id)
            requests.send_again(entry)
        else:
            requests.lose(entry, SessionGone(error.status, error.body, error.where), seen=not (lost.resend or refused))
        return True

    def _is_common(self, error: PeerError) -> bool:
        """Whether this server has used the error's code for something else a moment ago: then it is not asked for its era each time."""
        process = self._line.process
        assert process is not None
        return error.code == ErrorCode.INVALID_REQUEST and process.node.loop.time() < self._requests.sure_until

    def _list_tools_for(self, entry: PendingRequest, cursor: str | None, before: set[str | None]) -> None:
        """List the tools again, page by page, and then send a call again whose headers were wrong. A list that goes round ends; `before` are its cursors."""
        before.add(cursor)

        def then(result: dict[str, Any] | None, error: BaseException | None) -> None:
            following = None if result is None else result.get("nextCursor")
            if self._requests.table.get(entry.id) is not entry:
                return
            if isinstance(following, str) and following not in before and len(before) < line.settings.max_pages:
                self._list_tools_for(entry, following, before)
            elif error is None:
                self._requests.resume(entry)
            elif isinstance(
                error, RequestLost
            ):  # the list may have been lost on its way back, and the call was refused
                self._requests.end(entry, entry.lost_with(error.cause))
            else:
                self._requests.end(entry, error)

        line = self._line
        process = line.process
        assert process is not None
        node = process.node
        params = None if cursor is None else {"cursor": cursor}
        request = InternalRequest(line, node.loop, "tools/list", params, then)
        request.begin(node, line.settings.request_timeout)
        request.connection = process
        self._requests.take(request)


def _is_of_other_era(error: PeerError, *, alone: bool, is_http: bool) -> bool:
    """Whether this error answer is one of a server of the other era, to a request that it did not execute.

    A program that is replaced ends, and its pipes with it; so a general error is in doubt over HTTP only.
    """
    if alone:
        doubtful = is_http and error.code == ErrorCode.INVALID_REQUEST
        return doubtful or error.code == ErrorCode.UNSUPPORTED_PROTOCOL_VERSION
    return names_stateless(error) or (error.code == ErrorCode.INVALID_PARAMS and PROTOCOL_VERSION_KEY in error.message)
