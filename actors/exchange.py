"""An exchange: one call of the stateless era, through all of its rounds.

An exchange is no process. Its job runs in one, under the supervisor `exchanges`; the exchange is the job's owner (told of its start and its exit), its channel to the
client, and the one place where the reply is made, once. When the process dies without a reply, for any reason, the exchange replies for it. When the client goes
away, which is how requests of this era are cancelled, the process is ended and nothing more is sent.

A handler that asks its user something *parks* the call: the questions end the request, with a sealed state, and the handler waits where it is. The next request with
that state is the next round of the same call.
"""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Raw

from greenroom.protocol import methods
from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.input_required import (
    LONGEST_KEY,
    MAY_ASK,
    MOST_RESPONSES,
    QUESTION_METHODS,
    check_key,
    check_response,
    default_key,
    input_required_result,
    missing_capability_error,
    question_digest,
    request_digest,
    required_capabilities,
)
from greenroom.protocol.jsonrpc import encode, encode_error, encode_notification, encode_result
from greenroom.protocol.methods import unsupported_error
from greenroom.protocol.wire_shapes import LOG_LEVELS
from greenroom.supervision import CallTimeout, clock, current_node, exit
from greenroom.supervision.event_bus import bus
from greenroom.transports.access_log import name_in
from greenroom.transports.interfaces import EncodedReply, FeedEvent

from .call_failures import aborted, timed_out, worker_lost
from .catalogue import caller_key
from .peer_channels import MAX_QUEUED_MESSAGES, NoStream, log_body
from .reply_sinks import ChannelFeed
from .session_calls import CANCELLED, CLOCK_TOLERANCE, TIMED_OUT
from .settings import server_info
from .worker_interfaces import CallBecameTask, Cancellation, JobError, JobReply, end_worker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.event_types import Outcome
    from greenroom.protocol.input_required import RecordedAnswers
    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId
    from greenroom.supervision import ExitReason, Node, Pid, Shutdown
    from greenroom.transports.interfaces import SessionReply

    from .call_events import ObservedCall, ObservedQuestion
    from .call_failures import CallFailure
    from .company import Company
    from .exchange_table import Exchanges
    from .settings import Settings
    from .worker_interfaces import Job, SessionFacts

_COLLECT_SECONDS: Final = 0.002
"""For how long questions are collected, so that those of a task group go out together."""
_LONGEST_WANTED: Final = LONGEST_KEY - 4
"""What is left of a key that is taken already, so that its number fits."""
_BAD_REQUEST: Final = 400
_REFUSALS: Final = frozenset({ErrorCode.HEADER_MISMATCH, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION})
"""Errors that refuse a request before anything is done: a client corrects the request and sends it again. A handler may raise one that an upstream server has
sent, and has then begun: its client must not repeat the call."""
_SENT_BY_CALLS: Final = frozenset({"notifications/progress", "notifications/message"})
"""The protocol's notifications that belong on the stream of a call. Changes are told to those that listen for them."""


class ExchangeFeed(ChannelFeed):
    """The stream of one request: bounded, and gone with its reader."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange.settings)
        # A channel has one feed for everything that it sends; a caller may have many of these.
        self._max_bytes = exchange.settings.buffer_bytes
        self._exchange = exchange

    def offer(self, body: bytes) -> bool:
        """Add a notification, unless there is no room."""
        if self.over or self.full:
            return False
        self._append(FeedEvent("", body))
        return True

    def leave(self) -> None:
        """The reader is gone: cancel a request that has no reply yet."""
        super().leave()
        self._exchange.on_reader_left(self)


class _Ending(NamedTuple):
    """How a call has ended: the response, or None for no response."""

    ending: CallFailure | bytes | None
    outcome: Outcome


class _Question:
    """A question of the handler that its user has not answered."""

    __slots__ = ("answer", "digest", "method", "params")

    def __init__(self, method: str, params: Raw, digest: bytes, answer: asyncio.Future[dict[str, Any]]) -> None:
        self.method = method
        self.params = params
        self.digest = digest
        self.answer = answer


class Exchange:
    """One call of the stateless era, through all of its rounds.

    It is used in the node's loop, but notifications may come from any thread. In a round it has a request to reply to. Between two rounds
    it is parked: its handler waits for the answers to its questions, which the next request of the same call brings.
    """

    __slots__ = (
        "_alarm",
        "_collecting",
        "_deadline",
        "_ending",
        "_feed",
        "_first_id",
        "_first_reply",
        "_is_fixed",
        "_is_over",
        "_job",
        "_last_active",
        "_level",
        "_name",
        "_node",
        "_parked_until",
        "_progress_token",
        "_questions",
        "_queued",
        "_quiet",
        "_responses",
        "_stream_at",
        "_table",
        "_timeout",
        "_waiter",
        "answers",
        "caller",
        "cancelled",
        "facts",
        "kept_bytes",
        "method",
        "observed",
        "parked_as",
        "request_digest",
        "request_id",
        "round",
        "worker",
    )

    def __init__(
        self,
        table: Exchanges,
        request: JsonRpcRequest,
        facts: SessionFacts,
        quiet: float | None,
        own: float | None,
        observed: ObservedCall | None = None,
    ) -> None:
        """`own` is the handler's own timeout, if it has one."""
        self._table = table
        self._node: Node = current_node()
        self._first_id = request.id
        self.method = request.method
        self._name = name_in(request.params)
        self.caller = caller_key(facts.peer)
        self.cancelled = Cancellation()
        self._timeout = self.settings.call_timeout if own is None else own
        self._is_fixed = own is not None
        self._deadline = math.inf if self._timeout is None else self._node.now() + self._timeout
        self._feed: ExchangeFeed | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._collecting: asyncio.TimerHandle | None = None
        self._job: Job | None = None
        self._ending: _Ending | None = None
        self._is_over = False
        self._queued = 0
        """How many messages of threads wait for the loop. Threads may miscount a little: a lock would cost every message one."""
        self._questions: dict[str, _Question] | None = None
        self._responses: dict[str, dict[str, Any]] | None = None
        """Responses to questions that a handler that is gone has asked, and this one will ask again, by key."""
        self.answers: RecordedAnswers | None = None
        """The answers so far, where the handler may run again."""
        self._parked_until = math.inf
        self.request_digest = b""
        self.kept_bytes = 0
        """The size of the request and of all answers to it, which the handler may keep until the call is over. Counted from the first question."""
        self.worker: Pid | None = None
        self.parked_as: str | None = None
        """Its id among the parked calls; None before its first question."""
        self.round = 0
        self._attach(request, facts, quiet, observed)

    @property
    def company(self) -> Company:
        """The company that it belongs to."""
        return self._table.company

    @property
    def settings(self) -> Settings:
        """The company's settings."""
        return self._table.company.settings

    # --- the round: one request, and its reply

    def _attach(
        self, request: JsonRpcRequest, facts: SessionFacts, quiet: float | None, observed: ObservedCall | None
    ) -> None:
        self.observed = observed
        self.request_id = request.id
        self.facts = facts
        self._level = None if facts.log_level is None else LOG_LEVELS.index(facts.log_level)
        self._progress_token = request.progress_token
        self._quiet = quiet
        now = self._last_active = self._node.now()
        self._stream_at = math.inf if quiet is None else now + quiet
        # Two names: the reply may be there before it is awaited, and is not kept while the call is parked.
        self._waiter: asyncio.Future[SessionReply] | None = self._node.loop.create_future()
        self._first_reply: asyncio.Future[SessionReply] | None = self._waiter
        self._set_alarm()

    @property
    def is_attached(self) -> bool:
        """Whether a request waits for a reply."""
        return self._waiter is not None or self._feed is not None

    async def first_reply(self) -> SessionReply:
        """The reply, or the feed on which it comes; None if the request was cancelled. Awaited once for each request."""
        reply, self._first_reply = self._first_reply, None
        assert reply is not None
        return await reply

    def _reply(self, body: bytes | None, outcome: Outcome, status: int = 200, error: McpError | None = None) -> None:
        """Reply to the request; None ends it without a reply."""
        waiter, self._waiter = self._waiter, None
        feed, self._feed = self._feed, None
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(None if body is None else EncodedReply(body, status))
        elif feed is not None:
            if body is not None:
                feed.push(body, self.request_id)
            feed.end()
        if self.observed is not None:
            self.observed.end(outcome, error)
            self.observed = None

    def _open_stream(self) -> bool:
        """Make the reply a stream. False when there is no request, or its client reads no streams."""
        if self._feed is None:
            waiter = self._waiter
            if waiter is None or waiter.done() or self._quiet is None:
                return False
            self._waiter = None
            self._feed = ExchangeFeed(self)
            if self.observed is not None:
                self.observed.step("stream")
            waiter.set_result(self._feed)
        return True

    def on_reader_left(self, feed: ExchangeFeed) -> None:
        """The reader of a stream has left it: without a reply, that cancels the request."""
        if feed is self._feed:
            self.cancel("the client has disconnected")

    # --- the process

    def started(self, worker: Pid) -> None:
        """Note the process of the job."""
        self._table.on_started(self)
        if self._is_over:
            exit(worker, CANCELLED)
        else:
            self.worker = worker

    def on_exit(self, reason: ExitReason) -> None:
        """The process has ended: reply for it, if it did not."""
        self.worker = None
        if not self._is_over:
            outcome: Outcome = "worker_crashed" if self._table.is_supervised else "process_ended"
            self._end(worker_lost(self.method, reason, self.settings), outcome)

    def send(self, message: JobReply | JobError | CallBecameTask) -> bool:
        """Take the job's reply or error, or the task that works on it from now on."""
        if not self._is_over:
            match message:
                case JobReply(body=body, outcome=outcome):
                    self._end(body, outcome)
                case JobError(error=error, outcome=outcome):
                    self._end(error, outcome)
                case CallBecameTask(result=result):
                    self.worker = None  # it is the task's now
                    self._end(result, "result")
        return True

    send_now = send

    def set_job(self, job: Job) -> None:
        """Note the job, whose response has to name the request of the last round."""
        self._job = job

    def fail(self, error: McpError, outcome: Outcome = "error") -> None:
        """End the call with an error."""
        if not self._is_over:
            self._end(error, outcome)

    def cancel(self, why: str) -> None:
        """The client no longer waits: end the process, and send nothing more."""
        if not self._is_over:
            self._end_worker(why, CANCELLED)
            if self.is_attached:
                self._end(None, "cancelled")
            else:
                self.forget()  # its questions were on their way, and nothing but them leads to the next round

    def abort(self, why: str) -> bool:
        """End the call for an operator: its client gets an error. False when it has ended."""
        if self._is_over:
            return False
        self._end_worker(why, CANCELLED)
        self._end(aborted(), "cancelled")
        return True

    def _end_worker(self, why: str, reason: Shutdown) -> None:
        self.cancelled.set(why)
        if self.worker is not None:
            grace = self.settings.cancel_grace
            end_worker(self.worker, reason, grace, notice=grace)

    def _end(self, ending: CallFailure | bytes | None, outcome: Outcome) -> None:
        """The call has ended. A call that is parked keeps its ending for the next round."""
        self._is_over = True
        self._job = None  # the job refers to the exchange: without this they stay until the garbage collector runs
        self._deadline = self._stream_at = math.inf  # a call that is parked has its time for the next round left
        if self._collecting is not None:
            self._collecting.cancel()
            self._collecting = None
        questions, self._questions = self._questions, None
        for question in (questions or {}).values():
            if not question.answer.done():
                question.answer.set_exception(NoStream(f"{question.method}: the call is over"))
        if self.is_attached:
            self._close(_Ending(ending, outcome))
        elif ending is not None:
            self._ending = _Ending(ending, outcome)

    def _close(self, end: _Ending) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        ending, status, error = end.ending, 200, None
        if isinstance(ending, McpError):
            if ending.code == ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY:
                status = _BAD_REQUEST  # the one error of a handler that has a status of its own
            elif ending.code in _REFUSALS:
                ending = McpError(ErrorCode.INTERNAL_ERROR, ending.message, ending.data)
            ending = error = STATELESS_DIALECT.fit_error(ending)
        self._reply(None if ending is None else self._encoded(ending), end.outcome, status, error)
        self._table.release(self)

    def _encoded(self, ending: CallFailure | bytes) -> bytes:
        """The response to the request of this round."""
        if isinstance(ending, McpError):
            return encode_error(self.request_id, ending)
        if isinstance(ending, dict):
            return encode_result(
                self.request_id, STATELESS_DIALECT.finish(self.method, ending, server_info(self.settings))
            )
        if self.request_id != self._first_id:
            # A process of a pool has encoded the response, with the id of the first round.
            first = _response_start(self._first_id)
            if ending.startswith(first):
                return _response_start(self.request_id) + ending[len(first) :]
        return ending

    # --- time

    def _set_alarm(self) -> None:
        at, alarm = min(self._stream_at, self._deadline, self._parked_until), self._alarm
        if alarm is not None:
            if alarm.when() <= at:
                return  # it will set the next one: the loop would keep a cancelled timer until its time
            alarm.cancel()
            self._alarm = None
        if at != math.inf:
            node = self._node
            self._alarm = node.loop.call_at(at, self._on_alarm, context=node.context)

    def _on_alarm(self) -> None:
        self._alarm = None
        soon = self._node.now() + CLOCK_TOLERANCE
        if self._parked_until <= soon:
            self._on_parked_too_long()
            return
        if self._deadline <= soon:
            self._on_deadline(soon)
        if self._stream_at <= soon:
            self._stream_at = math.inf
            self._open_stream()
        self._set_alarm()

    def _on_deadline(self, now: float) -> None:
        """End the call, unless its deadline counts silence and it has reported something meanwhile."""
        if not self._is_fixed:
            limit = self._timeout or 0.0
            left = limit if self._questions else self._last_active + limit - now
            if left > 0:
                self._deadline = now + left
                return
        self._end_worker("it took too long", TIMED_OUT)
        failure = timed_out(self.method, self._name, self._timeout, self.settings, is_fixed=self._is_fixed)
        self._end(failure, "deadline")

    # --- questions, and the rounds that answer them

    async def ask(
        self, method: str, params: Mapping[str, Any], timeout: float | None, key: str | None = None
    ) -> dict[str, Any]:
        """Ask the client something, and wait for its answer, which comes with another request.

        `key` names the question on the wire; one is made unless given.
        """
        if method not in QUESTION_METHODS:
            raise unsupported_error(f"{method}: revision {self.facts.version} does not have it as a question")
        if self.method not in MAY_ASK:
            raise unsupported_error(f"{method}: in revision {self.facts.version}, {self.method} cannot ask the client")
        needed = required_capabilities(method, params, self.facts.client_capabilities)
        if needed is not None:
            raise missing_capability_error(needed, method)
        digest = question_digest(method, params)
        wanted = default_key(method, digest) if key is None else check_key(key)
        known = self._known_answer(method, digest, wanted)
        if known is not None:
            return known
        if self._is_over:
            raise NoStream(f"{method}: the call is over")
        limit = min(self.settings.max_asks, MOST_RESPONSES)
        if self._questions is not None and len(self._questions) >= limit:
            raise McpError(ErrorCode.INTERNAL_ERROR, f"Too many questions at once: at most {limit} may be open")
        key = self._free_key(wanted)
        question = _Question(method, Raw(encode(params)), digest, self._node.loop.create_future())
        del params  # many calls may be parked: a question is kept as it will be sent
        if self._questions is None:
            self._questions = {}
        self._questions[key] = question
        if self._collecting is None and self.is_attached:
            node = self._node
            self._collecting = node.loop.call_later(_COLLECT_SECONDS, self._park, context=node.context)
        observed = None if bus.listener is None else self._observe_question(method)
        try:
            if timeout is None or timeout >= self.settings.parked_timeout:
                answer = await question.answer  # the call is not parked for longer than that
            else:
                async with asyncio.timeout(timeout):
                    answer = await question.answer
        except TimeoutError:
            raise CallTimeout(timeout or 0.0, "the client", f"answer {method}") from None
        else:
            if observed is not None:
                observed.answered(answer)
            return answer
        finally:
            self._drop(key, question, observed)

    def _observe_question(self, method: str) -> ObservedQuestion:
        from .call_events import ObservedQuestion  # noqa: PLC0415 - only a program with a listener loads the events

        return ObservedQuestion(self._node, self.company.program, method, self.observed)

    def _drop(self, key: str, question: _Question, observed: ObservedQuestion | None) -> None:
        """The question is over: its handler goes on, in the round that has brought the answer."""
        if observed is not None:
            observed.end("lost")  # unless it was answered
        if bus.tracer is not None and self._job is not None:
            bus.tracer.enter(self._job.call)
        if self._questions is not None and self._questions.get(key) is question:
            del self._questions[key]

    def _free_key(self, wanted: str) -> str:
        """The key, with a number behind it where an open question has it."""
        key, count = wanted, 1
        while self._questions is not None and key in self._questions:
            count += 1
            key = f"{wanted[:_LONGEST_WANTED]}-{count}"
        return key

    def set_answers(self, answers: RecordedAnswers | None, responses: Mapping[str, dict[str, Any]] | None) -> None:
        """Give the answers of an earlier run of this call, None to record none; `responses` came with this request, by key."""
        self.answers = answers
        self._responses = dict(responses) if responses else None

    def _known_answer(self, method: str, digest: bytes, key: str) -> dict[str, Any] | None:
        """The answer that is there already: of an earlier run of this call, or sent with its first request."""
        known = None if self.answers is None else self.answers.take(digest)
        if known is None and self._responses is not None:
            keys = [key]
            if key == default_key(method, digest):  # equal questions of the earlier run had numbers
                keys += [f"{key}-{number}" for number in range(2, MOST_RESPONSES + 1)]
            key = next((each for each in keys if each in self._responses), key)
            response = self._responses.pop(key, None)
            if response is not None:
                known = check_response(method, response, key)
                if self.answers is not None:
                    self.answers.add(digest, known)
        return known

    def _park(self) -> None:
        """End the request with the open questions; the handler waits for the next round."""
        self._collecting = None
        questions = self._questions
        if self._is_over or not questions or not self.is_attached:
            return
        if not self.request_digest:
            assert self._job is not None
            self.request_digest = request_digest(self.method, self._job.params)
            self.kept_bytes = len(encode(self._job.params))
        try:
            state = self._table.park(self)
        except (McpError, LocalProtocolError) as error:
            for question in questions.values():
                if not question.answer.done():  # its time may be over, though its handler has not run since
                    question.answer.set_exception(error)
            return
        asked = {key: (question.method, question.params) for key, question in questions.items()}
        result = STATELESS_DIALECT.finish(self.method, input_required_result(asked, state), server_info(self.settings))
        self._stream_at = math.inf
        if not self._is_fixed:
            self._deadline = math.inf
        self._parked_until = self._node.now() + self.settings.parked_timeout
        self._set_alarm()
        self._reply(encode_result(self.request_id, result), "asks")

    def check_responses(self, responses: Mapping[str, dict[str, Any]]) -> Mapping[str, dict[str, Any]]:
        """The responses to open questions. Raises `McpError` for one that does not fit; those to other questions are ignored."""
        questions = self._questions or {}
        return {
            key: check_response(questions[key].method, response, key)
            for key, response in responses.items()
            if key in questions
        }

    def resume(
        self,
        request: JsonRpcRequest,
        facts: SessionFacts,
        quiet: float | None,
        responses: Mapping[str, dict[str, Any]],
        observed: ObservedCall | None = None,
    ) -> None:
        """Begin the next round: the handler goes on with these answers."""
        self._parked_until = math.inf
        if not self._is_fixed and self._timeout is not None:
            self._deadline = self._node.now() + self._timeout
        if self._job is not None:
            before, self._job.observed = self._job.observed, observed
            if observed is not None:
                observed.reached("" if before is None else before.isolation)
            self._job.request_id = request.id
        self.kept_bytes += len(encode([request.params.get("_meta"), responses]))
        self._attach(request, facts, quiet, observed)
        if self._is_over:
            self._close(self._ending or _Ending(None, "cancelled"))
            return
        for key, response in responses.items():
            assert self._questions is not None
            question = self._questions.pop(key)
            if self.answers is not None:
                self.answers.add(question.digest, response)
            if not question.answer.done():
                question.answer.set_result(response)
        if self._questions:
            node = self._node
            self._collecting = node.loop.call_later(_COLLECT_SECONDS, self._park, context=node.context)

    def forget(self) -> None:
        """The parked call is gone: its next round finds nothing."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._is_over:
            self.cancelled.set("the call is gone")  # no handler has crashed that goes with it
            self._end(None, "process_ended")
        self._ending = None
        self._table.release(self)

    def _on_parked_too_long(self) -> None:
        """No next round began in time: end the handler, and forget the call."""
        if not self._is_over:
            self._end_worker("its client did not answer in time", TIMED_OUT)
        self.forget()

    # --- the peer channel: messages to the client

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification on the request's stream. False when the client will not get it."""
        if method == "notifications/progress" and params.get("progressToken") != self._progress_token:
            if self._progress_token is None:  # the request of this round asks for no progress
                self.touch()
                return False
            params = {**params, "progressToken": self._progress_token}
        body = encode_notification(method, params)
        if self.observed is not None:
            self.observed.note_message(method, params)
        self.touch()
        return (method in _SENT_BY_CALLS or method not in methods.METHODS) and self._notify(body)

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, if the request asks for messages of this level."""
        body = log_body(level, data, logger)
        if self.observed is not None:
            self.observed.note_message("notifications/message", {"level": level})
        self.touch()
        wanted = self._level
        return wanted is not None and LOG_LEVELS.index(level) >= wanted and self._notify(body)

    def touch(self, ahead: float = 0.0) -> None:
        """Restart the timeout, `ahead` seconds from now."""
        self._last_active = max(self._last_active, clock.now(self._node.loop) + ahead)

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - streams of this era cannot be resumed
        """False: the client could not come back for its reply."""
        return False

    def _notify(self, body: bytes) -> bool:
        if self.cancelled:
            return False
        if threading.get_ident() == self._node.thread:
            return self._deliver(body)
        if self._queued >= MAX_QUEUED_MESSAGES or not self._node.call_from_thread(self._deliver_queued, body):
            return False
        self._queued += 1
        return True

    def _deliver_queued(self, body: bytes) -> None:
        self._queued -= 1
        self._deliver(body)

    def _deliver(self, body: bytes) -> bool:
        if self._is_over or not self._open_stream():
            return False
        assert self._feed is not None
        return self._feed.offer(body)


def _response_start(id: RequestId) -> bytes:
    return encode_result(id, None)[: -len(b"null}")]
