"""`InputRounds`: requests whose reply asks this client for input, and their retries.

In the stateless era a server asks by ending a request with questions. Each one runs in a process of its own, as a server's request does; with the
last answer the request is sent again, under a new id and with the server's state byte for byte. Meanwhile it stays in the table of requests,
so its caller's deadline and cancellation hold for all rounds together. A reply with a state and no question is followed by a retry, the later
ones after growing pauses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.errors import BadAnswer
from greenroom.protocol.input_required import INPUT_REQUIRED, LONGEST_KEY, MAY_ASK, MOST_RESPONSES, QUESTION_METHODS
from greenroom.protocol.jsonrpc import JsonRpcRequest, is_object
from greenroom.protocol.methods import PeerSide, missing_capability
from greenroom.protocol.sealing import LONGEST_SEAL
from greenroom.supervision import Backoff, send_after

from .client_handler import AskingCall
from .errors import InputRefused
from .outgoing_envelope import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Process

    from .pending_requests import PendingRequest
    from .request_table import RequestTable
    from .server_requests import ServerRequests

_PAUSES: Final = Backoff(first=0.1, longest=5.0)
"""The pauses before retries that bring no answers, from the second one on."""


class RoundDue(NamedTuple):
    """To the connection: the pause before a retry without answers is over."""

    request: PendingRequest


class OpenRound(NamedTuple):
    """The questions of one reply that are not answered yet, and the answers so far."""

    unanswered: dict[str, str]
    """The ids of the questions' processes by key."""
    answers: dict[str, dict[str, Any]]


class InputRounds:
    """All requests of one connection that wait for input."""

    def __init__(
        self,
        connection: Process,
        table: RequestTable,
        server_requests: ServerRequests,
        most: int,
    ) -> None:
        """`most` is how many rounds one request may take."""
        self._connection = connection
        self._table = table
        self._server_requests = server_requests
        self._most = most
        self._open: dict[PendingRequest, OpenRound] = {}

    def begin(self, entry: PendingRequest, result: Mapping[str, Any]) -> None:
        """The reply to this request asks for input: ask, and then send the request again."""
        try:
            questions, state = read_input_required(entry.method, result)
            self._check(entry, questions)
        except BadAnswer as error:
            entry.settle(None, error)
            return
        entry.rounds += 1
        call = AskingCall(entry.method, entry.params or {}, entry.id, entry.call)
        self._table.suspend(entry)
        entry.retry = {} if state is None else {"requestState": state}
        if not questions:
            self._retry_later(entry)
            return
        unanswered = {key: f"{entry.id}:{number}" for number, key in enumerate(questions)}
        self._open[entry] = OpenRound(unanswered, {})
        for key, (method, params) in questions.items():
            if entry not in self._open:
                return  # an earlier question was refused at once
            question = JsonRpcRequest(unanswered[key], method, params)
            self._server_requests.ask(question, call, partial(self._on_answer, entry, key, method))

    def drop(self, entry: PendingRequest) -> None:
        """The request is not waited for any more: end the processes of its questions."""
        asked = self._open.pop(entry, None)
        if asked is not None:
            for id in asked.unanswered.values():
                self._server_requests.withdraw(id)

    def on_due(self, entry: PendingRequest) -> None:
        """The pause of a request is over."""
        self._table.resume(entry)

    def _on_answer(
        self, entry: PendingRequest, key: str, method: str, answer: Any, error: BaseException | None
    ) -> None:
        asked = self._open.get(entry)
        if asked is None:
            return
        del asked.unanswered[key]
        if error is not None:
            self.drop(entry)
            self._table.end(entry, InputRefused(entry.method, method, error))
            return
        asked.answers[key] = answer
        if not asked.unanswered:
            del self._open[entry]
            entry.retry = {"inputResponses": asked.answers, **(entry.retry or {})}
            self._table.resume(entry)

    def _retry_later(self, entry: PendingRequest) -> None:
        entry.idle_rounds += 1
        if entry.idle_rounds == 1:
            self._table.resume(entry)
        else:
            process = self._connection
            pause = _PAUSES.delay(entry.idle_rounds - 2, process.node.random)
            send_after(pause, process.pid, RoundDue(entry))

    def _check(self, entry: PendingRequest, questions: Mapping[str, tuple[str, dict[str, Any]]]) -> None:
        if entry.rounds >= self._most:
            raise BadAnswer(
                f"the server asks again and again: {entry.method} has had {self._most} rounds, as many as ClientSettings(max_rounds=…) allows"
            )
        assert entry.envelope is not None
        check_declared(questions, entry.envelope.capabilities)


def read_input_required(
    method: str, result: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, dict[str, Any]]], str | None]:
    """The questions by key, and the state. Raises `BadAnswer`."""
    if method not in MAY_ASK:
        raise _invalid(method, f"only {', '.join(sorted(MAY_ASK))} may be answered so")
    state = result.get("requestState")
    if state is not None and not isinstance(state, str):
        raise _invalid(method, "its requestState is no string")
    if state is not None and len(state) > LONGEST_SEAL:
        raise _invalid(method, f"its requestState has more than {LONGEST_SEAL} characters")
    asked = result.get("inputRequests")
    if asked is None:
        asked = {}
    if not is_object(asked):
        raise _invalid(method, "its inputRequests is no object")
    if not asked and state is None:
        raise _invalid(method, "it has neither inputRequests nor a requestState")
    return read_questions(method, asked), state


def read_questions(method: str, asked: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """The questions by key, each a method and params, in the reply to a request of this method. Raises `BadAnswer`."""
    if len(asked) > MOST_RESPONSES:
        raise _invalid(method, f"it asks {len(asked)} questions at once, more than {MOST_RESPONSES}")
    return {key: _read_question(method, key, question) for key, question in asked.items()}


def check_declared(questions: Mapping[str, tuple[str, dict[str, Any]]], declared: Mapping[str, Any]) -> None:
    """Refuse questions that need a capability which this client has not declared. Raises `BadAnswer`."""
    for method, params in questions.values():
        needed = missing_capability(method, params, declared, PeerSide.CLIENT, VERSION)
        if needed is not None:
            raise BadAnswer(f"the server asks for {method}, which needs {needed}: this client has not declared it")


def _read_question(method: str, key: str, question: Any) -> tuple[str, dict[str, Any]]:
    if len(key) > LONGEST_KEY:
        raise _invalid(method, f"the key of a question has more than {LONGEST_KEY} characters")
    name = question.get("method") if is_object(question) else None
    params = question.get("params") if is_object(question) else None
    if not isinstance(name, str) or name not in QUESTION_METHODS:
        raise _invalid(method, f"a question has none of the methods {', '.join(sorted(QUESTION_METHODS))}")
    if params is not None and not is_object(params):
        raise _invalid(method, f"the params of a question ({name}) are no object")
    return name, params or {}


def _invalid(method: str, why: str) -> BadAnswer:
    return BadAnswer(f"Invalid answer to {method}: {INPUT_REQUIRED}: {why}")
