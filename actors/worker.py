"""A worker's code: run one job, and send the session its reply or error exactly once.

A result is fitted to the revision and encoded here, so one that cannot be sent crashes this worker and not the session. `McpError` and `ToolError` are replies.
Anything else, `SystemExit` and `KeyboardInterrupt` included, gets a general reply and then crashes this process, so that the reports hold the exception. A
worker that is killed sends nothing; the session, which is linked to it, replies then.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from greenroom.protocol.elicitation_forms import UrlElicitationRequired
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, RequestCancelled, ToolError
from greenroom.protocol.handler_results import (
    InfiniteNumber,
    completion_result,
    prompt_result,
    resource_contents,
    reword_nan_problems,
    tool_result,
)
from greenroom.protocol.input_required import MOST_ROUNDS, InputRequired
from greenroom.protocol.jsonrpc import decode_checked, encode, encode_result
from greenroom.protocol.methods import is_declared, method_not_found, unsupported_error
from greenroom.protocol.revision_downgrade import downgrade
from greenroom.protocol.serialization import UnderResult, is_slow_to_serialize
from greenroom.protocol.type_schemas import FunctionArguments
from greenroom.protocol.validation_errors import STEPS_IN_THREAD, Mismatch, StepsExceeded, too_costly_reason
from greenroom.supervision import current_process, safe_repr
from greenroom.supervision.event_bus import bus

from .apps import with_text
from .catalogue import LISTINGS, list_answer, quota_key_of_job, reached_entries
from .context import Context
from .handler_options import ExecutionMode
from .offloaded_validation import run_check
from .peer_channels import NoStream
from .server_description import discover_result
from .server_questions import NotAwaited
from .settings import server_info
from .task_record import with_related_task
from .worker_interfaces import EncodedResult, JobAsks, JobError, JobReply, RemoteCrash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence

    from greenroom.event_types import Outcome
    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.protocol.validation_errors import StepMeter, ValidationProblem

    from .bulkheads import Bulkheads
    from .catalogue import Catalogue
    from .catalogue_entries import ToolEntry
    from .handler_options import Handler
    from .settings import Settings
    from .worker_interfaces import AroundHook, Cancellation, Job, MethodHandler, SessionFacts, WorkerServices

TOOL_FAILED = "Tool execution failed"
INTERNAL = "Internal error"


async def execute_job(job: Job) -> None:
    """Run a job, and send its session the reply or error."""
    settings = job.services.settings
    patience = settings.parked_timeout if job.facts.dialect.is_stateless else settings.ask_timeout
    ctx = Context(job.facts, job.peer_channel, job.cancelled, job.request_id, job.params, patience)
    process = current_process("work")
    if job.observed is not None:
        enter_call(job, ctx)
    if job.task is not None or job.task_starter is not None:
        ctx.may_become_task(job, process.pid)
    if job.input is not None:
        ctx.set_input(job.input)
    try:
        catalogue = job.services.catalogue_ref.current
        if catalogue is not job.catalogue:  # changed since the session checked the scopes
            reached_entries(job.method, job.params, catalogue, job.facts.peer)
        answer: Any = job.services.method_handlers.get(job.method) or _answer_of(job.method, catalogue)
        around = job.services.around
        try:
            result: Any = await (answer(job, ctx) if around is None else _run_around_hook(around, job, ctx, answer))
        except Exception as error:
            required = _ungrouped(error)
            if not isinstance(required, InputRequired):
                if not isinstance(error, McpError | ToolError):
                    ctx.check_questions_awaited(error)
                raise
            result = await _next_round(job, ctx, answer, required)
        ctx.check_questions_awaited()
        ending: JobReply | JobError = _result_reply(job, result)
    except BaseException as error:
        ctx.close()
        if process.life:
            raise  # ended from outside: the session has replied, or no reply is wanted
        expected = _ungrouped(error)
        if isinstance(expected, ToolError):
            job.session.send(_tool_error_reply(job, expected))
            return
        if isinstance(expected, InputRequired):
            job.session.send(JobAsks(job.key, expected))
            return
        if isinstance(expected, McpError):
            job.session.send(JobError(job.key, check_url_elicitation(job, expected)))
            return
        if isinstance(error, RemoteCrash):
            job.session.send(error.ending)
            raise error.error from error.error.__cause__
        job.session.send(crash_reply(job, error))
        if job.cancelled and _is_cancellation(error):
            return  # the handler obeyed its cancellation: no crash
        raise
    ctx.close()
    if job.task is None:
        # The session runs in this same turn of the loop; a queued message would cost every call another turn.
        job.session.send_now(ending)
    else:
        job.session.send(ending)  # queued behind the task's earlier messages


def enter_call(job: Job, ctx: Context) -> None:
    """The code of this context works for the job's call from now on."""
    ctx.work_for(job)
    observed = job.observed
    if observed is not None and job.method in job.services.method_handlers:
        is_elsewhere = job.services.catalogue_ref.current.mounted is not None
        observed.reached("" if is_elsewhere else "loop")
    if bus.tracer is not None:
        bus.tracer.enter(job.call)


_AGAIN_LATER: Final = 1.0
"""Seconds before a handler that has ended without a question runs again. In the stateless era its client decides that."""


async def _next_round(job: Job, ctx: Context, answer: MethodHandler, required: InputRequired) -> Any:
    """The result of a handler that has ended with questions.

    In the stateless era the result asks them. Where the client can be asked meanwhile, the handler runs again with the answers, and its result counts.
    """
    for _ in range(MOST_ROUNDS):
        if job.input is not None and job.task is None:
            return job.input.asking_result(required, required.answers or ctx.answers.recorded)
        responses: dict[str, dict[str, Any]] = {}
        if not required.questions:
            await asyncio.sleep(_AGAIN_LATER)
        for question in required.questions:
            responses[question.key] = await ctx.request(question.method, question.params, key=question.key)
        ctx.bring(ctx.answers.with_responses(responses), required.state)
        try:
            around = job.services.around
            return await (answer(job, ctx) if around is None else _run_around_hook(around, job, ctx, answer))
        except Exception as error:
            again = _ungrouped(error)
            if not isinstance(again, InputRequired):
                raise
            required = again
    why = f"the handler has ended with questions {MOST_ROUNDS} times: it has to accept an answer"
    raise LocalProtocolError(f"{job.method}: {why}")


async def _run_around_hook(around: AroundHook, job: Job, ctx: Context, answer: MethodHandler) -> dict[str, Any]:
    """The result of the `around` hook. A result that another process has encoded passes through untouched."""
    describe_target(ctx, job)
    result: Any = await around(job.method, ctx, lambda: answer(job, ctx))
    if not isinstance(result, dict):
        raise TypeError(f"Hooks.around has to return the result of {job.method}, a dict, not {safe_repr.short(result)}")
    return cast("dict[str, Any]", result)


def check_url_elicitation(job: Job, error: McpError) -> McpError:
    """The error to send for a `UrlElicitationRequired`.

    Only clients with that capability get it, and are told when the user is done.
    """
    if not isinstance(error, UrlElicitationRequired):
        return error
    facts = job.facts
    # A request without a session has no declared capabilities, and its client may be able to do it all the same.
    able = is_declared(facts.client_capabilities, "elicitation.url") or not facts.client_info
    if not able or not facts.dialect.has_url_error:
        problem = (
            "needs the capability 'elicitation.url', which the client has not declared"
            if not facts.dialect.is_stateless
            else f"needs a page to be opened first, and revision {facts.version} has no error that says which"
        )
        return unsupported_error(f"{job.method} {problem}: {error.message}")
    job.services.expect_elicitations(
        facts.session_id, job.key if job.task is None else None, [each.id for each in error.elicitations]
    )
    return error


def _result_reply(job: Job, result: dict[str, Any]) -> JobReply:
    if isinstance(result, EncodedResult):
        return JobReply(job.key, result.body, result.outcome)
    outcome: Outcome = "tool_error" if result.get("isError") is True else "result"
    if job.task is not None:
        result = with_related_task(result, job.task)
    dialect = job.facts.dialect
    if dialect.is_stateless:
        result = dialect.finish(job.method, result, server_info(job.services.settings))
    else:
        result = downgrade(job.method, result, job.facts.version)
    return JobReply(job.key, encode_result(job.request_id, result), outcome)


def _tool_error_reply(job: Job, error: ToolError) -> JobReply | JobError:
    """The reply for a failure that the handler reports itself. If it cannot be encoded, the handler has crashed."""
    if job.method != "tools/call":
        text = error.content if isinstance(error.content, str) else INTERNAL
        return JobError(job.key, McpError(ErrorCode.INTERNAL_ERROR, text))
    try:
        return _result_reply(job, tool_result(error))
    except Exception as broken:  # noqa: BLE001 - any content: the caller waits for a reply
        return crash_reply(job, broken)


def crash_reply(job: Job, error: BaseException) -> JobReply | JobError:
    """The reply for a crash: that there was one, and no details unless `expose_errors` is set."""
    settings = job.services.settings
    if job.method == "tools/call":
        if settings.crashes == "tool":
            reply = _result_reply(job, tool_result(ToolError(_crash_text(error, settings, TOOL_FAILED))))
            return reply._replace(outcome="worker_crashed")
        failure = McpError(ErrorCode.TOOL_ERROR, _crash_text(error, settings, "Internal tool error"))
    else:
        failure = McpError(ErrorCode.INTERNAL_ERROR, _crash_text(error, settings, INTERNAL))
    return JobError(job.key, failure, "worker_crashed")


def _crash_text(error: BaseException, settings: Settings, general: str) -> str:
    if isinstance(error, NotAwaited):  # its text names a method of `Context`, and nothing private
        return f"{general}: {error}"
    if not settings.expose_errors:
        return general
    text = f"{general}: {type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()


def _ungrouped(error: BaseException) -> BaseException:
    """The exception itself, also when a task group has wrapped it in a group of one."""
    grouped = issubclass(type(error), BaseExceptionGroup)
    members: Sequence[BaseException] = getattr(error, "exceptions", ()) if grouped else ()
    return _ungrouped(members[0]) if len(members) == 1 else error


def _is_cancellation(error: BaseException) -> bool:
    """Whether this is what a handler meets whose call is cancelled, also several times in a task group."""
    if isinstance(error, BaseExceptionGroup):
        members: Sequence[BaseException] = cast("Any", error).exceptions
        return all(map(_is_cancellation, members))
    return isinstance(error, RequestCancelled | NoStream)


# --- `tools/call`: find the tool, check the arguments, run it, check the result.

_QUOTED_NAME_CHARACTERS = 200


def _quoted(name: str) -> str:
    return name if len(name) <= _QUOTED_NAME_CHARACTERS else f"{name[:_QUOTED_NAME_CHARACTERS]}…"


async def call_tool(job: Job, ctx: Context) -> dict[str, Any]:
    """The result of a tool. Raises `McpError` for an unknown tool, and whatever the tool raises."""
    params, services = job.params, job.services
    name = params["name"]
    entry = services.catalogue_ref.current.tool(name)
    if entry is None:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {_quoted(name)}")
    ctx.name = name
    if entry.handler.pool is not None:
        return await services.pools.run(job, entry)
    who = quota_key_of_job(job)
    try:
        arguments = await bind_arguments(entry, params.get("arguments") or {}, services.settings, who)
    except Mismatch as error:
        return tool_result(ToolError(f"Invalid arguments for {name}: {error}"))
    value = await call_handler(entry.handler, ctx, arguments, services.bulkheads, ("tool", name), who)
    wrong: Sequence[ValidationProblem]
    result: dict[str, Any] = {}
    try:
        result = await build_result(
            entry.handler, services.bulkheads, ("tool", name), who, tool_result, value, entry.returns
        )
        if entry.wraps_output and not result["isError"]:
            data = result.get("structuredContent")
            if data is not None and type(data) is not UnderResult:
                result["structuredContent"] = UnderResult(result=data)
        wrong = await check_result(entry, result, services.settings, who)
    except Mismatch as error:
        wrong = error.errors
    except InfiniteNumber as error:
        return tool_result(ToolError(f"The result of {name} cannot be sent: {error.problem}"))
    if wrong:
        text = "; ".join(str(problem) for problem in wrong)
        return tool_result(ToolError(f"The result of {name} does not match its output schema: {text}"))
    return result if entry.app is None else with_text(entry, result)


async def bind_arguments(
    entry: ToolEntry, arguments: Mapping[str, Any], settings: Settings, peer: Hashable
) -> dict[str, Any]:
    """The function's arguments. Raises `Mismatch` with every problem found."""
    check = entry.check_input if _is_validated(entry.options.validate_input, strict=settings.strict) else None
    binder = entry.binder
    if check is not None and (problems := await _find_problems(partial(check.check, arguments), peer)):
        raise Mismatch(problems)
    if not isinstance(binder, FunctionArguments):
        return binder.bind(arguments)
    try:
        return await run_check(partial(binder.bind, arguments), peer)
    except StepsExceeded:
        raise Mismatch([too_costly_reason(STEPS_IN_THREAD)]) from None


async def check_result(
    entry: ToolEntry, result: Mapping[str, Any], settings: Settings, peer: Hashable
) -> Sequence[ValidationProblem]:
    """The problems of a structured result. A return hint is checked too, unless the tool's options say otherwise."""
    data = result.get("structuredContent")
    if data is None or result["isError"]:
        return ()
    if entry.check_output is not None:
        wanted = _is_validated(entry.options.validate_output, strict=settings.strict)
        if not wanted:
            return ()
        data = data["result"] if entry.wraps_output else data
        return reword_nan_problems(
            await _find_problems(partial(entry.check_output.check, decode_checked(encode(data))), peer), data
        )
    if entry.returns is not None and isinstance(data, dict) and entry.options.validate_output is not False:
        return await _find_problems(partial(entry.returns.errors, data), peer)
    return ()


async def _find_problems(
    check: Callable[[StepMeter], Sequence[ValidationProblem]], peer: Hashable
) -> Sequence[ValidationProblem]:
    try:
        return await run_check(check, peer)
    except StepsExceeded:
        return [too_costly_reason(STEPS_IN_THREAD)]


def _is_validated(option: bool | None, *, strict: bool) -> bool:  # noqa: FBT001 - it is what an option says
    return strict if option is None else option


# --- `prompts/get`: the messages of a prompt, with its arguments filled in.


async def get_prompt(job: Job, ctx: Context) -> dict[str, Any]:
    """The messages of a prompt. Raises `McpError` for an unknown prompt or unfit arguments, and whatever the function raises."""
    services, name = job.services, job.params["name"]
    entry = services.catalogue_ref.current.prompt(name)
    if entry is None:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {_quoted(name)}")
    ctx.name = name
    if entry.handler.pool is not None:
        return await services.pools.run(job, entry)
    given: Mapping[str, Any] = job.params.get("arguments") or {}
    missing = [each for each in entry.required if each not in given]
    if missing:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid arguments for {name}: {', '.join(missing)} must be given")
    try:
        arguments = entry.binder.bind(given)
    except Mismatch as error:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid arguments for {name}: {error}") from None
    key = ("prompt", name)
    value = await call_handler(entry.handler, ctx, arguments, services.bulkheads, key, quota_key_of_job(job))
    return await build_result(
        entry.handler, services.bulkheads, key, quota_key_of_job(job), prompt_result, value, entry.description
    )


# --- `resources/read`: the resource with that URI, or the first template that matches it.


async def read_resource(job: Job, ctx: Context) -> dict[str, Any]:
    """The contents of a resource. Raises `McpError` for an unknown resource, and whatever the function raises."""
    services, uri = job.services, job.params["uri"]
    catalogue = services.catalogue_ref.current
    ctx.uri = uri
    exact = catalogue.resource(uri)
    if exact is not None:
        ctx.name = exact.name
        if exact.handler.pool is not None:
            return await services.pools.run(job, exact)
        arguments = {} if exact.whole is None else {exact.whole: dict(job.params)}
        key = ("resource", exact.name)
        value = await call_handler(exact.handler, ctx, arguments, services.bulkheads, key, quota_key_of_job(job))
        more = (uri, exact.mime_type)
        result = await build_result(
            exact.handler, services.bulkheads, key, quota_key_of_job(job), resource_contents, value, *more
        )
        if exact.contents_meta is not None:
            result = _with_contents_meta(result, exact.contents_meta)
        return _with_cache(job, result, exact.cache)
    found = catalogue.matching(uri)
    if found is None:
        raise unknown_resource(uri)
    entry, variables = found
    ctx.name = entry.name
    if entry.handler.pool is not None:
        return await services.pools.run(job, entry)
    ctx.variables = variables
    try:
        arguments = entry.binder.bind(variables)
    except Mismatch as error:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid params for {entry.uri_template}: {error}") from None
    key = ("resource_template", entry.name)
    value = await call_handler(entry.handler, ctx, arguments, services.bulkheads, key, quota_key_of_job(job))
    more = (uri, entry.mime_type)
    result = await build_result(
        entry.handler, services.bulkheads, key, quota_key_of_job(job), resource_contents, value, *more
    )
    return _with_cache(job, result, entry.cache)


def _with_cache(job: Job, result: dict[str, Any], cache: Mapping[str, Any] | None) -> dict[str, Any]:
    """The result with its cache hints, in the era that has them."""
    return result if cache is None or not job.facts.dialect.is_stateless else {**result, **cache}


def _with_contents_meta(result: dict[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """A result whose contents have this metadata, unless the handler has set the same member."""
    return {**result, "contents": [{**each, "_meta": {**meta, **each.get("_meta", {})}} for each in result["contents"]]}


def unknown_resource(uri: str) -> McpError:
    """The error for a URI that no resource or template has."""
    return McpError(ErrorCode.RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


# --- `completion/complete`: suggestions for an argument of a prompt, or a variable of a template.


async def complete(job: Job, ctx: Context) -> dict[str, Any]:
    """The suggestions; none where no function is registered for them. Raises whatever the function raises.

    In the stateless era, a prompt or template that is not there is an `McpError`; older clients have been told that there are no suggestions.
    """
    params, services = job.params, job.services
    reference, argument = params["ref"], params["argument"]
    kind, name = (
        ("prompt", reference["name"]) if reference["type"] == "ref/prompt" else ("resource_template", reference["uri"])
    )
    entry = services.catalogue_ref.current.completion(kind, name, argument["name"])
    if entry is None:
        catalogue = services.catalogue_ref.current
        if job.facts.dialect.is_stateless and not reached_entries(job.method, params, catalogue, job.facts.peer):
            what = "prompt" if kind == "prompt" else "resource template"
            raise McpError(ErrorCode.INVALID_PARAMS, f"Unknown {what}: {_quoted(name)}")
        return completion_result(())
    ctx.name = argument["name"]
    if entry.handler.pool is not None:
        return await services.pools.run(job, entry)
    known: Mapping[str, Any] = params.get("context") or {}
    ctx.variables = known.get("arguments") or {}
    arguments = {} if entry.value is None else {entry.value: argument["value"]}
    value = await call_handler(
        entry.handler, ctx, arguments, services.bulkheads, ("completion", entry.name), quota_key_of_job(job)
    )
    return completion_result(value)


# --- The function that answers each method from the catalogue or by user code.
# `INLINE` answers from a snapshot, in the session's process; `IN_WORKER` runs user code in a worker. The session
# itself handles the rest (`initialize`, `ping`, subscriptions, levels).

if TYPE_CHECKING:
    Now: TypeAlias = Callable[[Catalogue, Mapping[str, Any], Settings, SessionFacts], Any]
    Work: TypeAlias = Callable[[Job, Context], Awaitable[dict[str, Any]]]

INLINE: Final = "now"
IN_WORKER: Final = "work"

METHOD_ANSWERS: Final[Mapping[str, tuple[Literal["now"], Now] | tuple[Literal["work"], Work]]] = {
    **{listing.method: (INLINE, list_answer(listing)) for listing in LISTINGS},
    "server/discover": (INLINE, discover_result),
    "tools/call": (IN_WORKER, call_tool),
    "resources/read": (IN_WORKER, read_resource),
    "prompts/get": (IN_WORKER, get_prompt),
    "completion/complete": (IN_WORKER, complete),
}


def _answer_of(method: str, catalogue: Catalogue) -> Any:
    """The function that answers a method: the protocol's own, or an extension's. Raises `McpError` for one that is gone meanwhile."""
    known = METHOD_ANSWERS.get(method)
    if known is not None:
        return known[1]
    found = catalogue.method(method)
    if found is None:
        raise method_not_found(method)
    return found.answer


def answer_inline(request: JsonRpcRequest, facts: SessionFacts, services: WorkerServices) -> bytes | None:
    """The whole response, if the method needs no user code; else None. Raises `McpError`. The params were checked before."""
    found = METHOD_ANSWERS.get(request.method)
    if found is None or found[0] != INLINE or request.method in services.method_handlers:
        return None
    result = found[1](services.catalogue_ref.current, request.params, services.settings, facts)
    return encode_result(request.id, result)


def handler_timeout(method: str, found: Sequence[Any]) -> float | None:
    """The timeout of the handler that the request reaches, if it has one of its own."""
    return found[0].handler.timeout if found and method != "completion/complete" else None


def describe_target(ctx: Context, job: Job) -> None:
    """Set a context's `name`, `uri` and `variables` as answering does, for an `around` hook that reads them first or never asks for the answer."""
    params, catalogue = job.params, job.services.catalogue_ref.current
    match job.method:
        case "tools/call" | "prompts/get":
            ctx.name = params["name"]
        case "completion/complete":
            ctx.name = params["argument"]["name"]
            known: Mapping[str, Any] = params.get("context") or {}
            ctx.variables = known.get("arguments") or {}
        case "resources/read":
            ctx.uri = uri = params["uri"]
            exact = catalogue.resource(uri)
            found = None if exact is not None else catalogue.matching(uri)
            if exact is not None:
                ctx.name = exact.name
            elif found is not None:
                ctx.name, ctx.variables = found[0].name, found[1]
        case _:
            pass


# --- Running a handler in its execution mode: in the loop, in a thread, or in a thread with a loop of its own.
# The caller is a worker. When the worker ends, a handler in the loop ends with it; a thread goes on, with its slot,
# until it returns, and learns from the call's flag that no caller waits.


async def call_handler(
    handler: Handler,
    ctx: Context,
    arguments: Mapping[str, Any],
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
) -> Any:
    """Run the function. `key` is what the threads of one tool are counted under."""
    named = arguments if handler.context is None else {**arguments, handler.context: ctx}
    function, observed = handler.function, ctx.observed
    if handler.mode is ExecutionMode.LOOP:
        if observed is not None:
            observed.reached("loop")
        value = function(**named)
    elif handler.mode is ExecutionMode.THREAD:
        if observed is not None:
            function = observed.in_thread(function)
        value = await bulkheads.run(key, principal, handler.threads, function, **named)
    else:
        if observed is not None:
            function = observed.in_thread(function)
        return await bulkheads.run(key, principal, handler.threads, run_in_own_loop, ctx.cancelled, function, named)
    if handler.is_async or inspect.isawaitable(value):  # a `def` may return an awaitable: a lambda, a decorator
        del named, arguments  # the function has its own, and may wait long
        return await value
    return value


async def build_result(
    handler: Handler,
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
    write: Callable[..., dict[str, Any]],
    value: Any,
    *more: Any,
) -> dict[str, Any]:
    """Build the result from a return value with `write`: in a thread if that takes long, as for an image."""
    if is_slow_to_serialize(value):
        return await bulkheads.run(key, principal, handler.threads, write, value, *more)
    return write(value, *more)


def run_in_own_loop(
    cancelled: Cancellation, function: Callable[..., Coroutine[Any, Any, Any]], arguments: Mapping[str, Any]
) -> Any:
    """In a thread: run an `async def` in a new event loop. Cancelling the call cancels it, as in the node's loop."""
    try:
        with asyncio.Runner() as runner:
            return runner.run(_cancellable(cancelled, function, arguments))
    except asyncio.CancelledError:
        cancelled.raise_if_set()
        # The function cancelled itself. Raised as `CancelledError`, it would look as if the task that waits for this
        # thread had been cancelled.
        raise RequestCancelled("by itself") from None


async def _cancellable(
    cancelled: Cancellation, function: Callable[..., Coroutine[Any, Any, Any]], arguments: Mapping[str, Any]
) -> Any:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        try:
            loop.call_soon_threadsafe(task.cancel)
        except RuntimeError:
            return  # the function has ended, and its loop is closed

    forget = cancelled.subscribe(cancel)
    try:
        return await function(**arguments)
    finally:
        forget()
