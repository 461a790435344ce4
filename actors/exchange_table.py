"""The exchanges of a company: the way in for requests of the stateless era, their admission, and the calls that are parked.

A transport hands an enveloped request to `Exchanges.answer`. Lists and `server/discover` are answered inline, from the catalogue's snapshot; everything else becomes
an `Exchange`, whose job runs in a process under the supervisor `exchanges`. The table belongs to the company and outlives the processes, so a restarted supervisor
goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol import methods
from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.envelope import check_spoken, is_enveloped, read_envelope
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, not_executed
from greenroom.protocol.input_required import (
    MAY_ASK,
    NO_RETRY,
    BadRequestState,
    RecordedAnswers,
    RequestState,
    missing_capability_error,
    read_responses,
    undeclared,
)
from greenroom.protocol.jsonrpc import encode_error
from greenroom.protocol.methods import MethodKind, PeerSide
from greenroom.protocol.mirrored_headers import VERSION_HEADER, check_standard_headers
from greenroom.supervision import ActorError, Ref, TaskSupervisor, current_node, is_alive, tracebacks
from greenroom.supervision.event_bus import bus
from greenroom.transports.access_log import is_on, log_refusal
from greenroom.transports.interfaces import EncodedReply

from .catalogue import MissingScopes, caller_key, may_use, reached_entries
from .exchange import Exchange
from .extensions import admitted_method
from .listen_process import HonouredFilter, honoured_filter, open_listen_feed
from .mounted_entries import callable_tool
from .server_description import is_disabled
from .settings import server_info
from .stateless_tasks import TaskReply, require_extension, task_reply_to, task_starter
from .task_record import owner_of
from .tasks import TooManyTasks
from .worker import answer_inline, handler_timeout
from .worker_interfaces import Job, SessionFacts, request_observer, run_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.protocol.input_required import InputRequired, RecordedAnswer, RetryFields
    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import ExitReason, Process
    from greenroom.transports.interfaces import Peer, SessionReply

    from .call_events import ObservedCall
    from .catalogue import Caller
    from .company import Company
    from .listen_process import ListenFeed
    from .mounted_entries import CallableTool

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
NOT_ACCEPTABLE: Final = 406
UNAVAILABLE: Final = 503
MOST_PARKED_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of requests and answers all parked calls may have. The last one may exceed it."""
MOST_PARKED_BYTES_EACH: Final = 16 * 1024 * 1024
"""How many of them one caller's calls may have. A parked call needs no connection, so nothing else bounds what its client makes this server keep."""
_NONE_PARKED: Final = (0, 0)
_logger = logging.getLogger("greenroom.exchange")


class ExchangeRefused(McpError):
    """A request that is refused before it is worked on, with the HTTP status of the refusal."""

    def __init__(self, error: McpError, status: int, setting: str = "") -> None:
        """`setting` is the setting that would allow it."""
        super().__init__(error.code, error.message, error.data)
        self.status = status
        self.setting = setting

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (McpError(self.code, self.message, self.data), self.status, self.setting)


class _RoundInput:
    """The `RoundInput` of a job."""

    __slots__ = ("_exchange", "_params", "_state", "responses")

    def __init__(
        self,
        exchange: Exchange,
        params: Mapping[str, Any],
        responses: Mapping[str, dict[str, Any]] | None,
        state: RequestState | None,
    ) -> None:
        self._exchange = exchange
        self._params = params
        self.responses = responses
        self._state = state

    @property
    def recorded(self) -> list[RecordedAnswer] | None:
        """The answers of earlier rounds."""
        return [] if self._state is None else self._state.answers

    @property
    def state(self) -> Any:
        """The author's value."""
        return None if self._state is None else self._state.value

    def asking_result(self, required: InputRequired, answers: RecordedAnswers) -> dict[str, Any]:
        """The result that ends the call with questions, and with a state for whatever server gets the retry."""
        exchange = self._exchange
        company, facts = exchange.company, exchange.facts
        needed = undeclared(required.asked, facts.client_capabilities)
        if needed is not None:
            raise missing_capability_error(needed, exchange.method)
        return required.to_wire(
            company.sealing,
            owner_of_state(facts.peer),
            exchange.method,
            self._params,
            expires=company.tasks.now() + company.settings.parked_timeout,
            round_number=exchange.round + 1,
            answers=answers,
        )


class Reached(NamedTuple):
    """The parts of the server that a request reaches."""

    entries: Sequence[Any]
    """Those of the catalogue."""
    tool: CallableTool | None
    """The tool that it calls, here or at an upstream."""

    @property
    def may_run_again(self) -> bool:
        """Whether the request may be carried out twice: it calls a tool that is declared idempotent, or that changes nothing."""
        entry = self.entries[0] if len(self.entries) == 1 and self.entries[0].kind == "tool" else self.tool
        return entry is not None and entry.may_run_again


class ListenPlace:
    """The place of a listen. It may be given back both when a start has failed and when the process ends, and counts once."""

    __slots__ = ("_caller", "_table")

    def __init__(self, table: Exchanges, caller: Caller | None) -> None:
        """Take the place. Raises `ExchangeRefused` when there is none."""
        table.admit(caller)
        self._table: Exchanges | None = table
        self._caller = caller

    def give_back(self) -> None:
        """Give the place back, unless that was done."""
        table, self._table = self._table, None
        if table is not None:
            table.give_back(self._caller)


class Exchanges:
    """All exchanges of a company."""

    __slots__ = (
        "_callers",
        "_company",
        "_parked",
        "_parked_bytes",
        "_parked_callers",
        "_resumed",
        "_supervisor",
        "_supervisor_process",
        "_unstarted",
        "open",
    )

    def __init__(self, company: Company) -> None:
        self._company = company
        self.open = 0
        """How many are worked on, without those that are parked."""
        self._callers: dict[Caller, int] = {}
        self._parked: dict[str, Exchange] = {}
        self._resumed: set[str] = set()
        """The ids of calls that were parked and are worked on again: their states are used."""
        self._parked_callers: dict[Caller | None, tuple[int, int]] = {}
        """The number of each caller's parked calls, and their bytes."""
        self._parked_bytes = 0
        self._supervisor: Ref[TaskSupervisor]
        self._supervisor_process: Process | None = None
        self._unstarted: dict[Exchange, None] = {}

    @property
    def company(self) -> Company:
        """The company that they belong to."""
        return self._company

    @property
    def supervisor(self) -> Ref[Any]:
        """The supervisor of their processes."""
        return Ref(self._company.name("exchanges"), None)

    @property
    def parked(self) -> int:
        """How many calls wait for the answers of their users."""
        return len(self._parked)

    # --- the way in

    async def answer(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        """Answer one enveloped request. Cancelling the wait cancels the request.

        `headers` are those of an HTTP request, by lower-case name. With `quiet`, which may be infinite, messages that precede the reply
        come on a feed, which is also made after so many seconds without a message; the reader has to leave it, which cancels a request
        that has no reply yet.
        """
        try:
            facts = self._read_facts(peer, request, headers)
        except ExchangeRefused as error:
            unread = self._observe(request, peer, "") if bus.listener is not None else None
            return _refusal(self._company.program, peer, request, error, unread)
        observed = self._observe(request, peer, facts.version) if bus.listener is not None or is_on() else None
        try:
            outcome = self._begin(request, facts, quiet, observed)
            if isinstance(outcome, TaskReply):
                outcome = await outcome.encoded(request, server_info(self._company.settings))
        except McpError as error:
            return _failure(self._company.program, peer, request, error, observed)
        except LocalProtocolError:  # a registration or setting that cannot be encoded
            tracebacks.log_error(_logger, "%s has a reply that cannot be sent", request.method)
            return _failure(
                self._company.program, peer, request, McpError(ErrorCode.INTERNAL_ERROR, "Internal error"), observed
            )
        except BaseException as error:
            if observed is not None:  # the transport answers with an internal error, if its client still waits
                is_cancelled = isinstance(error, asyncio.CancelledError)
                observed.end("cancelled" if is_cancelled else "error", None if is_cancelled else McpError.wrap(error))
            raise
        if isinstance(outcome, HonouredFilter):
            return await self._listen(request, facts, outcome, observed)
        if isinstance(outcome, bytes):
            if observed is not None:
                observed.reached("inline")
                observed.end("result")
            return EncodedReply(outcome)
        try:
            return await outcome.first_reply()
        except asyncio.CancelledError:
            outcome.cancel("the client has disconnected")
            raise

    def _observe(self, request: JsonRpcRequest, peer: Peer, revision: str) -> ObservedCall:
        return request_observer()(current_node(), self._company, "exchange", request, peer, revision)

    def _read_facts(self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None) -> SessionFacts:
        """Check the envelope, and that the headers say the same. Raises `ExchangeRefused`."""
        params = request.params
        try:
            if headers is not None and VERSION_HEADER in headers and not is_enveloped(params):
                check_spoken(headers[VERSION_HEADER])
            envelope = read_envelope(params)
            if headers is not None:
                check_standard_headers(request.method, params, headers, envelope.version)
            check_spoken(envelope.version)
            if headers is not None and request.method == "tools/call" and type(name := params.get("name")) is str:
                catalogue = self._company.catalogue_ref.current
                tool: CallableTool | None = catalogue.tool(name)
                if tool is None and catalogue.mounted is not None:
                    tool = catalogue.mounted.tool(name)
                # A peer that may not use the tool cannot know its headers; it is told which scopes it lacks.
                if tool is not None and tool.header_plan is not None and may_use(tool, peer):
                    tool.header_plan.check(params.get("arguments") or {}, headers)
        except McpError as error:
            raise ExchangeRefused(error, BAD_REQUEST) from None
        return SessionFacts(
            "", envelope.version, peer, envelope.client_info, envelope.client_capabilities, log_level=envelope.log_level
        )

    async def _listen(
        self, request: JsonRpcRequest, facts: SessionFacts, wanted: HonouredFilter, observed: ObservedCall | None
    ) -> SessionReply:
        """Open a listen feed."""
        try:
            place = ListenPlace(self, caller_key(facts.peer))
        except ExchangeRefused as error:
            return _refusal(self._company.program, facts.peer, request, error, observed)
        opening = asyncio.ensure_future(open_listen_feed(self._company, request, facts, wanted, place, observed))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_leave_feed)
            raise
        except ActorError:
            return _refusal(self._company.program, facts.peer, request, ExchangeRefused(_busy(), UNAVAILABLE), observed)

    def _begin(
        self, request: JsonRpcRequest, facts: SessionFacts, quiet: float | None, observed: ObservedCall | None
    ) -> bytes | TaskReply | HonouredFilter | Exchange:
        """The response, or what will make it. Raises `McpError`."""
        company = self._company
        method = methods.find_method(request.method, facts.version, PeerSide.SERVER)
        if method is None:
            extended = admitted_method(company.catalogue_ref.current, request.method, request.params, facts)
            if extended is not None:
                return self._start_exchange(request, facts, quiet, observed, Reached((extended,), None))
        if method is None or method.kind is not MethodKind.REQUEST or is_disabled(company.settings, method):
            raise ExchangeRefused(_method_not_found(request.method), NOT_FOUND)
        params = methods.check_params(method, request.params)
        if request.method == "subscriptions/listen":
            if quiet is None:
                raise ExchangeRefused(_NO_STREAM, NOT_ACCEPTABLE)
            if params.notifications.task_ids is not None:
                require_extension(facts, "notifications.taskIds")
            return honoured_filter(company, params.notifications, facts)
        found = reached_entries(request.method, request.params, company.catalogue_ref.current, facts.peer)
        tool = callable_tool(company, request, found) if request.method == "tools/call" else None
        reached = Reached(found, tool)
        body = answer_inline(request, facts, company)
        if body is not None:
            return body
        retry = read_responses(request.params) if request.method in MAY_ASK else NO_RETRY
        if retry.state is not None:
            return self._next_round(request, facts, quiet, observed, reached, retry)
        about_task = task_reply_to(company, request, facts, tool, 0 if observed is None else observed.number)
        return about_task or self._start_exchange(request, facts, quiet, observed, reached, retry.responses)

    def _start_exchange(  # noqa: PLR0913, PLR0917 - what a call has
        self,
        request: JsonRpcRequest,
        facts: SessionFacts,
        quiet: float | None,
        observed: ObservedCall | None,
        reached: Reached,
        responses: Mapping[str, dict[str, Any]] | None = None,
        state: RequestState | None = None,
    ) -> Exchange:
        """Start a new exchange; with a `state`, for a call that was asked in an earlier run, which is gone."""
        company = self._company
        own_timeout = handler_timeout(request.method, reached.entries)
        starter = task_starter(company, request, reached.tool)
        # Before the exchange is made, which sets its alarm: without a place of its own, it would give back another's.
        self.admit(caller_key(facts.peer))
        exchange = Exchange(self, request, facts, quiet, own_timeout, observed)
        if state is not None:
            exchange.round = state.round
            exchange.set_answers(RecordedAnswers(state.answers), responses)
        else:
            exchange.set_answers(RecordedAnswers() if reached.may_run_again else None, responses)
        job = Job(
            0,
            exchange,  # type: ignore[arg-type]  # it takes the job's ending, as a reference to a session would
            request.id,
            request.method,
            request.params,
            facts,
            exchange,
            exchange.cancelled,
            company,
            catalogue=company.catalogue_ref.current,
            task_starter=starter,
            input=_RoundInput(exchange, request.params, responses, state) if request.method in MAY_ASK else None,
            observed=observed,
        )
        if observed is not None:
            observed.wait()
        exchange.set_job(job)
        self._start(exchange, job)
        return exchange

    # --- calls that are parked

    def _next_round(
        self,
        request: JsonRpcRequest,
        facts: SessionFacts,
        quiet: float | None,
        observed: ObservedCall | None,
        reached: Reached,
        retry: RetryFields,
    ) -> Exchange:
        """Go on with the call that the request's state leads to. Raises `McpError`; then a state that was valid stays so."""
        state = self._open_state(facts.peer, request, retry.state or "")
        exchange = self._parked.get(state.exchange)
        if exchange is None:
            if state.exchange in self._resumed:
                raise _used()
            # Without an exchange nothing waits: the handler has ended its run with questions, and is made to run again.
            if state.exchange and (state.answers is None or not reached.may_run_again):
                raise _gone()
            return self._start_exchange(request, facts, quiet, observed, reached, retry.responses, state)
        if exchange.round != state.round:
            raise _used()
        responses = exchange.check_responses(retry.responses or {})
        self.admit(exchange.caller)
        self._remove_parked(exchange)
        self._resumed.add(state.exchange)
        exchange.resume(request, facts, quiet, responses, observed)
        return exchange

    def parked_id(self, peer: Peer, request: JsonRpcRequest) -> str | None:
        """The id of the parked call that the request's state leads to, on whichever node; None where it leads to none."""
        text = request.params.get("requestState")
        try:
            return self._open_state(peer, request, text if isinstance(text, str) else "").exchange or None
        except McpError:
            return None  # the node that answers the request says what is wrong

    def _open_state(self, peer: Peer, request: JsonRpcRequest, text: str) -> RequestState:
        company = self._company
        owner, now = owner_of_state(peer), company.tasks.now()
        return RequestState.open(company.sealing, text, owner, request.method, request.params, now)

    def park(self, exchange: Exchange) -> str:
        """Keep a call until its next round. Returns the state for its client. Raises `McpError` when too many wait."""
        company, settings, caller = self._company, self._company.settings, exchange.caller
        if len(self._parked) >= settings.max_parked:
            raise McpError(
                ErrorCode.INTERNAL_ERROR, f"Too many calls wait for answers: at most {settings.max_parked} may"
            )
        count, size = self._parked_callers.get(caller, _NONE_PARKED)
        if size >= MOST_PARKED_BYTES_EACH or self._parked_bytes >= MOST_PARKED_BYTES:
            raise McpError(
                ErrorCode.INTERNAL_ERROR, "Too many calls wait for answers: together their requests are too large"
            )
        if count >= settings.max_parked_per_principal:
            raise McpError(
                ErrorCode.INTERNAL_ERROR,
                f"Too many calls wait for answers: one caller may have {settings.max_parked_per_principal}",
            )
        if exchange.parked_as is None:
            exchange.parked_as = company.new_id("call")
        exchange.round += 1
        answers = exchange.answers
        state = RequestState(
            expires=company.tasks.now() + settings.parked_timeout,
            request=exchange.request_digest,
            round=exchange.round,
            exchange=exchange.parked_as,
            answers=None if answers is None else answers.recorded,
        )
        text = state.seal(company.sealing, owner_of_state(exchange.facts.peer))
        self._parked_callers[caller] = (count + 1, size + exchange.kept_bytes)
        self._parked_bytes += exchange.kept_bytes
        self._parked[exchange.parked_as] = exchange
        self._resumed.discard(exchange.parked_as)
        self.give_back(exchange.caller)
        return text

    def _remove_parked(self, exchange: Exchange) -> None:
        assert exchange.parked_as is not None
        del self._parked[exchange.parked_as]
        count, size = self._parked_callers.pop(exchange.caller)
        self._parked_bytes -= exchange.kept_bytes
        if count > 1:
            self._parked_callers[exchange.caller] = (count - 1, size - exchange.kept_bytes)

    # --- admission

    def admit(self, caller: Caller | None) -> None:
        """Take a place. Raises `ExchangeRefused` when there is none."""
        settings = self._company.settings
        limit, own_limit = settings.max_exchanges, settings.max_exchanges_per_principal
        if limit is not None and self.open >= limit:
            raise _too_many(f"Too many requests at once: at most {limit} may be worked on", "max_exchanges")
        if caller is not None:
            count = self._callers.get(caller, 0)
            if own_limit is not None and count >= own_limit:
                why = f"Too many requests at once: one caller may have {own_limit}"
                raise _too_many(why, "max_exchanges_per_principal")
            self._callers[caller] = count + 1
        self.open += 1

    def release(self, exchange: Exchange) -> None:
        """The exchange is over: release its place."""
        self._unstarted.pop(exchange, None)
        if exchange.parked_as is not None and self._parked.get(exchange.parked_as) is exchange:
            self._remove_parked(exchange)
        else:
            self._resumed.discard(exchange.parked_as or "")
            self.give_back(exchange.caller)

    def give_back(self, caller: Caller | None) -> None:
        """Give a place back."""
        self.open -= 1
        if caller is not None:
            left = self._callers.pop(caller) - 1
            if left:
                self._callers[caller] = left

    # --- processes

    def _start(self, exchange: Exchange, job: Job) -> None:
        """Start the exchange's process, or reply that the server is busy."""
        process = self._supervisor_process
        if process is None or process.life:
            process = self._find_supervisor()
        self._unstarted[exchange] = None
        if process is not None:
            begin = TaskSupervisor.begin_job
            worker = self._supervisor.now(begin, run_job, (self._company.work, job), (), "temporary", exchange)
            if worker is not None or is_alive(self._supervisor):
                return
        exchange.fail(_busy(), "process_ended")

    @property
    def is_supervised(self) -> bool:
        """Whether the supervisor of the exchanges' processes is running."""
        # The one that the last exchange was started under: a successor may have its name already.
        process = self._supervisor_process or current_node().named(self._company.name("exchanges"))
        return process is not None and not process.life

    def _find_supervisor(self) -> Process | None:
        process = self._supervisor_process = current_node().named(self._company.name("exchanges"))
        if process is not None:
            self._supervisor = Ref.of(process)
            process.add_exit_waiter(self)
        return process

    def on_started(self, exchange: Exchange) -> None:
        """The exchange has its process."""
        self._unstarted.pop(exchange, None)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for every reason
        """The supervisor has died, and its processes with it: forget the parked calls, and fail the exchanges that it had not started."""
        for exchange in tuple(self._parked.values()):
            exchange.forget()
        for exchange in tuple(self._unstarted):
            restarted = McpError(ErrorCode.INTERNAL_ERROR, "The server was restarted during this request")
            exchange.fail(restarted, "process_ended")


def _leave_feed(opening: asyncio.Future[ListenFeed]) -> None:
    """The client of a feed went away while it was opened."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().leave()


_NO_STREAM: Final = McpError(
    ErrorCode.INVALID_REQUEST,
    "subscriptions/listen is answered by a stream: send Accept: application/json, text/event-stream",
)


def owner_of_state(peer: Peer) -> str:
    """The principal that a state is sealed for, in writing; empty for callers without one.

    Raises `McpError` for a principal that cannot be told from others in writing.
    """
    if peer.principal is None:
        return ""
    owner = owner_of(peer, "")
    if not owner.startswith("principal "):
        kind = type(peer.principal).__qualname__
        raise McpError(
            ErrorCode.INTERNAL_ERROR,
            f"A call cannot wait for this caller's answer: give {kind}, the type of the principal, a __repr__",
        )
    return owner


def _gone() -> McpError:
    return McpError(
        ErrorCode.INVALID_PARAMS,
        'The call that "requestState" belongs to is over: its time was up, it was answered, or its server was restarted. What it has done until then stays done; begin again without "requestState" only if that is harmless',
        {"reason": "gone", "maybe_done": True},
    )


def _used() -> McpError:
    return McpError(
        ErrorCode.INVALID_PARAMS,
        'This "requestState" was used already: send the one of the latest reply to this call',
        {"reason": "used"},
    )


def _failure(
    program: str, peer: Peer, request: JsonRpcRequest, error: McpError, observed: ObservedCall | None
) -> EncodedReply:
    """The reply to a request that has failed before a process has begun to work on it."""
    if isinstance(error, ExchangeRefused):
        return _refusal(program, peer, request, error, observed)
    if error.code == ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY:
        return _refusal(program, peer, request, ExchangeRefused(error, BAD_REQUEST), observed)
    if isinstance(error, MissingScopes):
        if observed is not None:
            observed.end("refused", error, detail=f"{FORBIDDEN}, needs {' '.join(error.scopes)}")
        return EncodedReply(encode_error(request.id, error), FORBIDDEN, error.scopes)
    fitted = STATELESS_DIALECT.fit_error(error)
    if observed is not None:
        # Its client must not learn more, but the operator should.
        bad_state = f"requestState: {error.detail or error.reason}" if isinstance(error, BadRequestState) else ""
        observed.end("refused" if isinstance(error, TooManyTasks) else "error", fitted, detail=bad_state)
    return EncodedReply(encode_error(request.id, fitted))


def _refusal(
    program: str, peer: Peer, request: JsonRpcRequest, error: ExchangeRefused, observed: ObservedCall | None
) -> EncodedReply:
    if observed is not None:
        is_bound = error.setting != ""
        observed.end("refused" if is_bound else "error", error, is_logged=False)
    log_refusal(
        error.message, status=error.status, peer=peer, method=request.method, setting=error.setting, program=program
    )
    return EncodedReply(encode_error(request.id, error), error.status)


def _busy() -> McpError:
    why = "The server cannot work on this just now: try again"
    return McpError(ErrorCode.INTERNAL_ERROR, why, not_executed("busy"))


def _too_many(why: str, setting: str) -> ExchangeRefused:
    error = McpError(ErrorCode.INTERNAL_ERROR, why, not_executed("too_many_requests"))
    return ExchangeRefused(error, UNAVAILABLE, setting)


def _method_not_found(name: str) -> McpError:
    error = methods.method_not_found(name)
    if name == "initialize":  # a client of the other era learns what to speak
        error.data = {"supported": [STATELESS_DIALECT.version]}
    return error
