"""A worker: one process for one piece of user code, and the one that answers for it.

Whatever the code does, its session hears exactly once. A result is fitted to the revision and encoded here, so what cannot be sent is this
worker's crash and not the session's. What the code raises on purpose (`McpError`, `ToolError`) is an answer; anything else, `SystemExit` and
`KeyboardInterrupt` among it, is answered in general terms and then is this process's crash, so that the reports hold what it was. A worker
that is killed in between says nothing: its session, which is linked to it, answers then.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from greenroom.protocol.elicitation_forms import UrlElicitationRequired
from greenroom.protocol.errors import ErrorCode, McpError, RequestCancelled, ToolError
from greenroom.protocol.handler_results import (
    InfiniteNumber,
    completion_result,
    prompt_result,
    resource_contents,
    reword_nan_problems,
    tool_result,
)
from greenroom.protocol.jsonrpc import decode_checked, encode, encode_result, is_object
from greenroom.protocol.methods import is_declared, unsupported_error
from greenroom.protocol.revision_downgrade import downgrade
from greenroom.protocol.serialization import is_slow_to_serialize
from greenroom.protocol.type_schemas import FunctionArguments
from greenroom.protocol.validation_errors import STEPS_IN_THREAD, Mismatch, StepsExceeded, too_costly_reason
from greenroom.protocol.versions import LATEST, V2025_11_25
from greenroom.supervision import CallTimeout, Shutdown, current_process, safe_repr, start_task_alone
from greenroom.transports.interfaces import Peer

from .catalogue import LISTINGS, NotFound, list_answer, quota_key_of_job, reached_entries
from .context import Context
from .handlers import ExecutionMode
from .offloaded_validation import run_check
from .peer_channels import NoStream
from .server_questions import NotAwaited
from .task_record import with_related_task
from .worker_interfaces import Cancellation, EncodedResult, JobError, JobReply, RemoteCrash, SessionFacts, end_worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.protocol.validation_errors import StepMeter, ValidationProblem

    from .bulkheads import Bulkheads
    from .catalogue import Catalogue, Kind
    from .catalogue_entries import ToolEntry
    from .handlers import Handler
    from .settings import Settings
    from .worker_interfaces import AroundHook, Job, MethodHandler, WorkerServices

TOOL_FAILED = "Tool execution failed"
INTERNAL = "Internal error"


async def execute_job(job: Job) -> None:
    """Run a job to its end, and tell its session how it ended."""
    ctx = Context(
        job.facts, job.peer_channel, job.cancelled, job.request_id, job.params, job.services.settings.ask_timeout
    )
    process = current_process("work")
    try:
        catalogue = job.services.catalogue_ref.current
        if catalogue is not job.catalogue:  # it has changed since
            reached_entries(job.method, job.params, catalogue, job.facts.peer)
        answer: Any = job.services.own.get(job.method) or METHOD_ANSWERS[job.method][1]
        around = job.services.around
        try:
            result: Any = await (answer(job, ctx) if around is None else _run_around_hook(around, job, ctx, answer))
        except Exception as error:
            if not isinstance(error, McpError | ToolError):
                ctx.check_questions_awaited(error)
            raise
        ctx.check_questions_awaited()
        ending: JobReply | JobError = _result_reply(job, result)
    except BaseException as error:
        ctx.close()
        if process.life:
            raise  # ended from outside: the process that did so has answered, or wants no answer
        expected = _ungrouped(error)
        if isinstance(expected, ToolError):
            job.session.send(_tool_error_reply(job, expected))
            return
        if isinstance(expected, McpError):
            job.session.send(JobError(job.key, check_url_elicitation(job, expected)))
            return
        if isinstance(error, RemoteCrash):
            job.session.send(error.ending)
            raise error.error from error.error.__cause__
        job.session.send(crash_reply(job, error))
        if isinstance(error, RequestCancelled | NoStream) and job.cancelled:
            return  # it has noticed, as it should, or was just asking the peer
        raise
    ctx.close()
    if job.task is None:
        job.session.send_now(ending)
    else:
        job.session.send(ending)  # what was said of the task before is told before


async def _run_around_hook(around: AroundHook, job: Job, ctx: Context, answer: MethodHandler) -> dict[str, Any]:
    """The result that the server's own code makes of the result; what ran elsewhere is encoded, and comes through untouched."""
    describe_target(ctx, job)
    result: Any = await around(job.method, ctx, lambda: answer(job, ctx))
    if not isinstance(result, dict):
        raise TypeError(f"Hooks.around has to return the result of {job.method}, a dict, not {safe_repr.short(result)}")
    return cast("dict[str, Any]", result)


def check_url_elicitation(job: Job, error: McpError) -> McpError:
    """An error that sends the user to a page is for clients that can do so; the client is told of the end of the visit."""
    if not isinstance(error, UrlElicitationRequired):
        return error
    facts = job.facts
    # A client that has not introduced itself (there is no session) has not declared anything, and may be able all the same.
    able = is_declared(facts.client_capabilities, "elicitation.url") or not facts.client_info
    if not able or facts.version < V2025_11_25:
        problem = (
            f"{job.method} needs the capability 'elicitation.url', which the client has not declared: {error.message}"
        )
        return unsupported_error(problem)
    job.services.expect_elicitations(
        facts.session_id, job.key if job.task is None else None, [each.id for each in error.elicitations]
    )
    return error


def _result_reply(job: Job, result: dict[str, Any]) -> JobReply:
    if isinstance(result, EncodedResult):
        return JobReply(job.key, result.body)
    if job.task is not None:
        result = with_related_task(result, job.task)
    return JobReply(job.key, encode_result(job.request_id, downgrade(job.method, result, job.facts.version)))


def _tool_error_reply(job: Job, error: ToolError) -> JobReply | JobError:
    """What a handler says of its own failure. If even that cannot be said, it has crashed."""
    if job.method != "tools/call":
        text = error.content if isinstance(error.content, str) else INTERNAL
        return JobError(job.key, McpError(ErrorCode.INTERNAL_ERROR, text))
    try:
        return _result_reply(job, tool_result(error))
    except Exception as broken:  # noqa: BLE001 - whatever is in it, the caller waits for an answer
        return crash_reply(job, broken)


def crash_reply(job: Job, error: BaseException) -> JobReply | JobError:
    """What the peer is told of a crash: that there was one, and no more unless the company says so."""
    settings = job.services.settings
    if job.method == "tools/call":
        if settings.crashes == "tool":
            return _result_reply(job, tool_result(ToolError(_crash_text(error, settings, TOOL_FAILED))))
        return JobError(job.key, McpError(ErrorCode.TOOL_ERROR, _crash_text(error, settings, "Internal tool error")))
    return JobError(job.key, McpError(ErrorCode.INTERNAL_ERROR, _crash_text(error, settings, INTERNAL)))


def _crash_text(error: BaseException, settings: Settings, general: str) -> str:
    if isinstance(error, NotAwaited):  # it names a method of ours, and nothing of the server's
        return f"{general}: {error}"
    if not settings.expose_errors:
        return general
    text = f"{general}: {type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()


def _ungrouped(error: BaseException) -> BaseException:
    """What was raised on purpose, also when a task group has put it into a group of its own."""
    grouped = issubclass(type(error), BaseExceptionGroup)
    members: Sequence[BaseException] = getattr(error, "exceptions", ()) if grouped else ()
    return _ungrouped(members[0]) if len(members) == 1 else error


# --- `tools/call`: find the tool, check what goes in, run it, check what comes out.

_QUOTED_NAME_CHARACTERS = 200


async def call_tool(job: Job, ctx: Context) -> dict[str, Any]:
    """The result. Raises `McpError` for a tool that there is not, and whatever the tool raises."""
    params, services = job.params, job.services
    name = params["name"]
    entry = services.catalogue_ref.current.tool(name)
    if entry is None:
        raise McpError(
            ErrorCode.INVALID_PARAMS,
            f"Unknown tool: {name if len(name) <= _QUOTED_NAME_CHARACTERS else name[:_QUOTED_NAME_CHARACTERS] + '…'}",
        )
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
        wrong = await check_result(entry, result, services.settings, who)
    except Mismatch as error:
        wrong = error.errors
    except InfiniteNumber as error:
        return tool_result(ToolError(f"The result of {name} cannot be sent: {error.problem}"))
    if wrong:
        text = "; ".join(str(problem) for problem in wrong)
        return tool_result(ToolError(f"The result of {name} is not what its output schema promises: {text}"))
    return result


async def bind_arguments(
    entry: ToolEntry, arguments: Mapping[str, Any], settings: Settings, peer: Hashable
) -> dict[str, Any]:
    """What to call the function with. Raises `Mismatch` with everything that is wrong."""
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
    """What is wrong with a structured result. A promise that was made by a hint is held to unless the tool says otherwise."""
    data = result.get("structuredContent")
    if data is None or result["isError"]:
        return ()
    if entry.check_output is not None:
        wanted = _is_validated(entry.options.validate_output, strict=settings.strict)
        if not wanted:
            return ()
        return reword_nan_problems(
            await _find_problems(partial(entry.check_output.check, decode_checked(encode(data))), peer), data
        )
    if entry.returns is not None and is_object(data) and entry.options.validate_output is not False:
        return await _find_problems(partial(entry.returns.errors, data), peer)
    return ()


async def _find_problems(
    check: Callable[[StepMeter], Sequence[ValidationProblem]], peer: Hashable
) -> Sequence[ValidationProblem]:
    try:
        return await run_check(check, peer)
    except StepsExceeded:
        return [too_costly_reason(STEPS_IN_THREAD)]


def _is_validated(said: bool | None, *, strict: bool) -> bool:  # noqa: FBT001 - it is what an option says
    return strict if said is None else said


# --- `prompts/get`: the messages of a prompt, with its arguments filled in.


async def get_prompt(job: Job, ctx: Context) -> dict[str, Any]:
    """The result. Raises `McpError` for a prompt that there is not or arguments that do not fit, and whatever the function raises."""
    services, name = job.services, job.params["name"]
    entry = services.catalogue_ref.current.prompt(name)
    if entry is None:
        shown = name if len(name) <= _QUOTED_NAME_CHARACTERS else name[:_QUOTED_NAME_CHARACTERS] + "…"
        raise McpError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {shown}")
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


# --- `resources/read`: the resource at that very URI, or the first template that it fits.


async def read_resource(job: Job, ctx: Context) -> dict[str, Any]:
    """The result. Raises `McpError` for a resource that there is not, and whatever the function raises."""
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
        return await build_result(
            exact.handler, services.bulkheads, key, quota_key_of_job(job), resource_contents, value, *more
        )
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
    return await build_result(
        entry.handler, services.bulkheads, key, quota_key_of_job(job), resource_contents, value, *more
    )


def unknown_resource(uri: str) -> McpError:
    """What to say of a resource that there is not."""
    return McpError(ErrorCode.RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


# --- `completion/complete`: how the argument of a prompt, or the variable of a template, could go on.


async def complete(job: Job, ctx: Context) -> dict[str, Any]:
    """The result; no suggestions where no function makes any. Raises whatever the function raises."""
    params, services = job.params, job.services
    reference, argument = params["ref"], params["argument"]
    kind, name = (
        ("prompt", reference["name"]) if reference["type"] == "ref/prompt" else ("resource_template", reference["uri"])
    )
    entry = services.catalogue_ref.current.completion(kind, name, argument["name"])
    if entry is None:
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


# --- The function that answers each method: one table for all that is answered from the catalogue, or by user code.
# `("now", function)` is answered on the spot from a snapshot; `("work", function)` runs user code, and belongs in a worker. The rest
# (`initialize`, `ping`, subscriptions, levels) is the session's own.

if TYPE_CHECKING:
    Now: TypeAlias = Callable[[Catalogue, Mapping[str, Any], Settings, SessionFacts], Any]
    Work: TypeAlias = Callable[[Job, Context], Awaitable[dict[str, Any]]]

INLINE: Final = "now"
IN_WORKER: Final = "work"

METHOD_ANSWERS: Final[Mapping[str, tuple[Literal["now"], Now] | tuple[Literal["work"], Work]]] = {
    **{listing.method: (INLINE, list_answer(listing)) for listing in LISTINGS},
    "tools/call": (IN_WORKER, call_tool),
    "resources/read": (IN_WORKER, read_resource),
    "prompts/get": (IN_WORKER, get_prompt),
    "completion/complete": (IN_WORKER, complete),
}


def answer_inline(request: JsonRpcRequest, facts: SessionFacts, services: WorkerServices) -> bytes | None:
    """The whole response, where no user code is needed for it. Raises `McpError`; its params were checked before."""
    found = METHOD_ANSWERS.get(request.method)
    if found is None or found[0] != INLINE or request.method in services.own:
        return None
    result = found[1](services.catalogue_ref.current, request.params, services.settings, facts)
    return encode_result(request.id, result)


def handler_timeout(method: str, found: Sequence[Any]) -> float | None:
    """How long the handler of a request may take that reaches this, where it has a limit of its own."""
    return found[0].handler.timeout if found and method != "completion/complete" else None


def describe_target(ctx: Context, job: Job) -> None:
    """Tell a context what is called or read, as `answer` does: for code that stands around it and may look first, or never ask for the answer."""
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


# --- Calling what is registered from the program itself: no session, no wire, and what comes back is what the function returned.
# The function runs in a process of its own all the same: that it exits is its own end, and not its caller's.


class _NoPeerChannel:
    """The peer_channel of a call that has no peer."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:  # noqa: ARG002 - there is no peer
        """Send nothing: there is no peer."""
        return False

    def log(self, level: str, data: Any, logger: str | None) -> bool:  # noqa: ARG002 - same
        """Send nothing: there is no peer."""
        return False

    def touch(self, ahead: float = 0.0) -> None:
        """A local call may be silent."""

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:  # noqa: ARG002
        """Refuse: there is no peer to ask."""
        raise McpError(ErrorCode.METHOD_NOT_FOUND, f"There is no client to ask for {method}: this is a local call")

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no stream
        """There is none."""
        return False


_NO_PEER: Final = _NoPeerChannel()
_CALLER_STOPPED_WAITING: Final = Shutdown("the caller has given up")
_LOCAL_FACTS: Final = SessionFacts("", LATEST, Peer("local"), {}, {})


async def call_locally(services: WorkerServices, kind: Kind, name: str, arguments: Mapping[str, Any] | None) -> Any:
    """What the function returns. Raises `NotFound`, `Mismatch`, `CallTimeout` after the handler's own, or what it raises."""
    entry: Any = services.catalogue_ref.current.find(kind, name)
    if entry is None:
        raise NotFound(kind, name)
    task = start_task_alone(_run_locally, services, entry, dict(arguments or {}))
    try:
        outcome = await task.wait(entry.handler.timeout)
    except (asyncio.CancelledError, CallTimeout):
        end_worker(task.pid, _CALLER_STOPPED_WAITING, services.settings.cancel_grace)
        raise
    if isinstance(outcome, _Raised):
        raise outcome.error
    return outcome


class _Raised:
    """An error on its way to the caller."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _run_locally(services: WorkerServices, entry: Any, arguments: dict[str, Any]) -> Any:
    cancelled = Cancellation()
    ctx = Context(_LOCAL_FACTS, _NO_PEER, cancelled, None, {"arguments": arguments})
    ctx.name = entry.name
    try:
        return await _call_entry(services, entry, arguments, ctx)
    except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
        return _Raised(error)
    finally:
        cancelled.set("the caller is gone")
        ctx.close()


async def _call_entry(services: WorkerServices, entry: Any, arguments: dict[str, Any], ctx: Context) -> Any:
    if entry.kind == "resource":
        ctx.uri = entry.uri
        named = {} if entry.whole is None else {entry.whole: arguments}
    else:
        named = entry.binder.bind(arguments)
    value = await call_handler(entry.handler, ctx, named, services.bulkheads, (entry.kind, entry.name), None)
    ctx.check_questions_awaited()
    return value


# --- Running a handler where it is to run: in the loop, in a thread, or in a thread with a loop of its own.
# The caller is a worker, whose end is the handler's end if that is in the loop. A thread goes on, with its slot, until it returns; the
# flag of its call tells it that no caller waits.


async def call_handler(
    handler: Handler,
    ctx: Context,
    arguments: Mapping[str, Any],
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
) -> Any:
    """What the function returns, or raises. `key` is what the threads of one tool are counted under."""
    named = arguments if handler.context is None else {**arguments, handler.context: ctx}
    if handler.mode is ExecutionMode.LOOP:
        value = handler.function(**named)
    elif handler.mode is ExecutionMode.THREAD:
        value = await bulkheads.run(key, principal, handler.threads, handler.function, **named)
    else:
        return await bulkheads.run(
            key, principal, handler.threads, run_in_own_loop, ctx.cancelled, handler.function, named
        )
    if handler.is_async or inspect.isawaitable(
        value
    ):  # a `def` may return what is to be awaited: a lambda, a decorator
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
    """The result that `write` makes of what a function returned: in a thread if that takes long, as a picture does."""
    if is_slow_to_serialize(value):
        return await bulkheads.run(key, principal, handler.threads, write, value, *more)
    return write(value, *more)


def run_in_own_loop(
    cancelled: Cancellation, function: Callable[..., Coroutine[Any, Any, Any]], arguments: Mapping[str, Any]
) -> Any:
    """In a thread: run an `async def` to its end in a loop that is made for it. A cancelled call cancels it, as in the node's loop."""
    try:
        with asyncio.Runner() as runner:
            return runner.run(_cancellable(cancelled, function, arguments))
    except asyncio.CancelledError:
        cancelled.raise_if_set()
        # Its own doing; raised as it is, it would look as if the task that waits for this thread had been cancelled.
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
            return  # it is over, and its loop is closed

    forget = cancelled.subscribe(cancel)
    try:
        return await function(**arguments)
    finally:
        forget()
