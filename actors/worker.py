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

from greenroom.protocol.errors import ErrorCode, McpError, RequestCancelled, ToolError
from greenroom.protocol.forms import UrlElicitationRequired
from greenroom.protocol.messages import encode, encode_result, is_object, read
from greenroom.protocol.methods import declares, unable
from greenroom.protocol.outgoing import fit
from greenroom.protocol.problems import IN_ALL, Mismatch, TooMuch, too_much
from greenroom.protocol.results import (
    Infinite,
    completion_result,
    prompt_result,
    resource_contents,
    told_of_nan,
    tool_result,
)
from greenroom.protocol.schemas import Arguments
from greenroom.protocol.versions import LATEST, V2025_11_25
from greenroom.protocol.wire import is_slow
from greenroom.supervision import CallTimeout, Shutdown, current_process, describe, start_task_alone
from greenroom.transports.interfaces import Peer

from .catalogue import LISTINGS, NotFound, answer_of, reached, whose
from .context import Context
from .handlers import Place
from .jobs import Cancellation, Encoded, Facts, Failed, FarCrash, Finished, end_worker
from .paced_checks import paced
from .peer_channels import NoStream
from .server_questions import NotAwaited
from .task_record import related

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence

    from greenroom.protocol.messages import Request
    from greenroom.protocol.problems import Meter, Problem

    from .bulkheads import Bulkheads
    from .catalogue import Catalogue, Kind
    from .entries import ToolEntry
    from .handlers import Handler
    from .jobs import Around, House, Job, Own
    from .settings import Settings

TOOL_FAILED = "Tool execution failed"
INTERNAL = "Internal error"


async def work(job: Job) -> None:
    """Run a job to its end, and tell its session how it ended."""
    ctx = Context(job.facts, job.voice, job.cancelled, job.request_id, job.params, job.house.settings.ask_timeout)
    process = current_process("work")
    try:
        catalogue = job.house.shelf.catalogue
        if catalogue is not job.catalogue:  # it has changed since
            reached(job.method, job.params, catalogue, job.facts.peer)
        answer: Any = job.house.own.get(job.method) or ANSWERS[job.method][1]
        around = job.house.around
        try:
            result: Any = await (answer(job, ctx) if around is None else _within(around, job, ctx, answer))
        except Exception as error:
            if not isinstance(error, McpError | ToolError):
                ctx.check_asked(error)
            raise
        ctx.check_asked()
        ending: Finished | Failed = _finished(job, result)
    except BaseException as error:
        ctx.close()
        if process.life:
            raise  # ended from outside: the process that did so has answered, or wants no answer
        expected = _meant(error)
        if isinstance(expected, ToolError):
            job.session.send(_told(job, expected))
            return
        if isinstance(expected, McpError):
            job.session.send(Failed(job.key, sent_away(job, expected)))
            return
        if isinstance(error, FarCrash):
            job.session.send(error.ending)
            raise error.error from error.error.__cause__
        job.session.send(crashed(job, error))
        if isinstance(error, RequestCancelled | NoStream) and job.cancelled:
            return  # it has noticed, as it should, or was just asking the peer
        raise
    ctx.close()
    if job.task is None:
        job.session.send_now(ending)
    else:
        job.session.send(ending)  # what was said of the task before is told before


async def _within(around: Around, job: Job, ctx: Context, answer: Own) -> dict[str, Any]:
    """The result that the server's own code makes of the result; what ran elsewhere is encoded, and comes through untouched."""
    introduce(ctx, job)
    result: Any = await around(job.method, ctx, lambda: answer(job, ctx))
    if not isinstance(result, dict):
        raise TypeError(f"Hooks.around has to return the result of {job.method}, a dict, not {describe.short(result)}")
    return cast("dict[str, Any]", result)


def sent_away(job: Job, error: McpError) -> McpError:
    """An error that sends the user to a page is for clients that can do so; the client is told of the end of the visit."""
    if not isinstance(error, UrlElicitationRequired):
        return error
    facts = job.facts
    # A client that has not introduced itself (there is no session) has not declared anything, and may be able all the same.
    able = declares(facts.client_capabilities, "elicitation.url") or not facts.client_info
    if not able or facts.version < V2025_11_25:
        problem = (
            f"{job.method} needs the capability 'elicitation.url', which the client has not declared: {error.message}"
        )
        return unable(problem)
    job.house.expect(facts.session_id, job.key if job.task is None else None, [each.id for each in error.elicitations])
    return error


def _finished(job: Job, result: dict[str, Any]) -> Finished:
    if isinstance(result, Encoded):
        return Finished(job.key, result.body)
    if job.task is not None:
        result = related(result, job.task)
    return Finished(job.key, encode_result(job.request_id, fit(job.method, result, job.facts.version)))


def _told(job: Job, error: ToolError) -> Finished | Failed:
    """What a handler says of its own failure. If even that cannot be said, it has crashed."""
    if job.method != "tools/call":
        text = error.content if isinstance(error.content, str) else INTERNAL
        return Failed(job.key, McpError(ErrorCode.INTERNAL_ERROR, text))
    try:
        return _finished(job, tool_result(error))
    except Exception as broken:  # noqa: BLE001 - whatever is in it, the caller waits for an answer
        return crashed(job, broken)


def crashed(job: Job, error: BaseException) -> Finished | Failed:
    """What the peer is told of a crash: that there was one, and no more unless the company says so."""
    settings = job.house.settings
    if job.method == "tools/call":
        if settings.crashes == "tool":
            return _finished(job, tool_result(ToolError(_shown(error, settings, TOOL_FAILED))))
        return Failed(job.key, McpError(ErrorCode.TOOL_ERROR, _shown(error, settings, "Internal tool error")))
    return Failed(job.key, McpError(ErrorCode.INTERNAL_ERROR, _shown(error, settings, INTERNAL)))


def _shown(error: BaseException, settings: Settings, general: str) -> str:
    if isinstance(error, NotAwaited):  # it names a method of ours, and nothing of the server's
        return f"{general}: {error}"
    if not settings.expose_errors:
        return general
    text = f"{general}: {type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()


def _meant(error: BaseException) -> BaseException:
    """What was raised on purpose, also when a task group has put it into a group of its own."""
    grouped = issubclass(type(error), BaseExceptionGroup)
    members: Sequence[BaseException] = getattr(error, "exceptions", ()) if grouped else ()
    return _meant(members[0]) if len(members) == 1 else error


# --- `tools/call`: find the tool, check what goes in, run it, check what comes out.

_SHOWN = 200


async def call_tool(job: Job, ctx: Context) -> dict[str, Any]:
    """The result. Raises `McpError` for a tool that there is not, and whatever the tool raises."""
    params, house = job.params, job.house
    name = params["name"]
    entry = house.shelf.catalogue.tool(name)
    if entry is None:
        raise McpError(
            ErrorCode.INVALID_PARAMS, f"Unknown tool: {name if len(name) <= _SHOWN else name[:_SHOWN] + '…'}"
        )
    ctx.name = name
    if entry.handler.pool is not None:
        return await house.pools.run(job, entry)
    who = whose(job)
    try:
        arguments = await take_in(entry, params.get("arguments") or {}, house.settings, who)
    except Mismatch as error:
        return tool_result(ToolError(f"Invalid arguments for {name}: {error}"))
    value = await call(entry.handler, ctx, arguments, house.bulkheads, ("tool", name), who)
    wrong: Sequence[Problem]
    result: dict[str, Any] = {}
    try:
        result = await written(entry.handler, house.bulkheads, ("tool", name), who, tool_result, value, entry.returns)
        wrong = await look_at(entry, result, house.settings, who)
    except Mismatch as error:
        wrong = error.errors
    except Infinite as error:
        return tool_result(ToolError(f"The result of {name} cannot be sent: {error.problem}"))
    if wrong:
        text = "; ".join(str(problem) for problem in wrong)
        return tool_result(ToolError(f"The result of {name} is not what its output schema promises: {text}"))
    return result


async def take_in(entry: ToolEntry, arguments: Mapping[str, Any], settings: Settings, peer: Hashable) -> dict[str, Any]:
    """What to call the function with. Raises `Mismatch` with everything that is wrong."""
    check = entry.check_input if _wanted(entry.options.validate_input, strict=settings.strict) else None
    binder = entry.binder
    if check is not None and (problems := await _paced(partial(check.check, arguments), peer)):
        raise Mismatch(problems)
    if not isinstance(binder, Arguments):
        return binder.bind(arguments)
    try:
        return await paced(partial(binder.bind, arguments), peer)
    except TooMuch:
        raise Mismatch([too_much(IN_ALL)]) from None


async def look_at(entry: ToolEntry, result: Mapping[str, Any], settings: Settings, peer: Hashable) -> Sequence[Problem]:
    """What is wrong with a structured result. A promise that was made by a hint is held to unless the tool says otherwise."""
    data = result.get("structuredContent")
    if data is None or result["isError"]:
        return ()
    if entry.check_output is not None:
        wanted = _wanted(entry.options.validate_output, strict=settings.strict)
        if not wanted:
            return ()
        return told_of_nan(await _paced(partial(entry.check_output.check, read(encode(data))), peer), data)
    if entry.returns is not None and is_object(data) and entry.options.validate_output is not False:
        return await _paced(partial(entry.returns.errors, data), peer)
    return ()


async def _paced(check: Callable[[Meter], Sequence[Problem]], peer: Hashable) -> Sequence[Problem]:
    try:
        return await paced(check, peer)
    except TooMuch:
        return [too_much(IN_ALL)]


def _wanted(said: bool | None, *, strict: bool) -> bool:  # noqa: FBT001 - it is what an option says
    return strict if said is None else said


# --- `prompts/get`: the messages of a prompt, with its arguments filled in.


async def get_prompt(job: Job, ctx: Context) -> dict[str, Any]:
    """The result. Raises `McpError` for a prompt that there is not or arguments that do not fit, and whatever the function raises."""
    house, name = job.house, job.params["name"]
    entry = house.shelf.catalogue.prompt(name)
    if entry is None:
        shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "…"
        raise McpError(ErrorCode.INVALID_PARAMS, f"Unknown prompt: {shown}")
    ctx.name = name
    if entry.handler.pool is not None:
        return await house.pools.run(job, entry)
    given: Mapping[str, Any] = job.params.get("arguments") or {}
    missing = [each for each in entry.required if each not in given]
    if missing:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid arguments for {name}: {', '.join(missing)} must be given")
    try:
        arguments = entry.binder.bind(given)
    except Mismatch as error:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid arguments for {name}: {error}") from None
    key = ("prompt", name)
    value = await call(entry.handler, ctx, arguments, house.bulkheads, key, whose(job))
    return await written(entry.handler, house.bulkheads, key, whose(job), prompt_result, value, entry.description)


# --- `resources/read`: the resource at that very URI, or the first template that it fits.


async def read_resource(job: Job, ctx: Context) -> dict[str, Any]:
    """The result. Raises `McpError` for a resource that there is not, and whatever the function raises."""
    house, uri = job.house, job.params["uri"]
    catalogue = house.shelf.catalogue
    ctx.uri = uri
    exact = catalogue.resource(uri)
    if exact is not None:
        ctx.name = exact.name
        if exact.handler.pool is not None:
            return await house.pools.run(job, exact)
        arguments = {} if exact.whole is None else {exact.whole: dict(job.params)}
        key = ("resource", exact.name)
        value = await call(exact.handler, ctx, arguments, house.bulkheads, key, whose(job))
        more = (uri, exact.mime_type)
        return await written(exact.handler, house.bulkheads, key, whose(job), resource_contents, value, *more)
    found = catalogue.matching(uri)
    if found is None:
        raise unknown_resource(uri)
    entry, variables = found
    ctx.name = entry.name
    if entry.handler.pool is not None:
        return await house.pools.run(job, entry)
    ctx.variables = variables
    try:
        arguments = entry.binder.bind(variables)
    except Mismatch as error:
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid params for {entry.uri_template}: {error}") from None
    key = ("resource_template", entry.name)
    value = await call(entry.handler, ctx, arguments, house.bulkheads, key, whose(job))
    more = (uri, entry.mime_type)
    return await written(entry.handler, house.bulkheads, key, whose(job), resource_contents, value, *more)


def unknown_resource(uri: str) -> McpError:
    """What to say of a resource that there is not."""
    return McpError(ErrorCode.RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


# --- `completion/complete`: how the argument of a prompt, or the variable of a template, could go on.


async def complete(job: Job, ctx: Context) -> dict[str, Any]:
    """The result; no suggestions where no function makes any. Raises whatever the function raises."""
    params, house = job.params, job.house
    reference, argument = params["ref"], params["argument"]
    kind, name = (
        ("prompt", reference["name"]) if reference["type"] == "ref/prompt" else ("resource_template", reference["uri"])
    )
    entry = house.shelf.catalogue.completion(kind, name, argument["name"])
    if entry is None:
        return completion_result(())
    ctx.name = argument["name"]
    if entry.handler.pool is not None:
        return await house.pools.run(job, entry)
    known: Mapping[str, Any] = params.get("context") or {}
    ctx.variables = known.get("arguments") or {}
    arguments = {} if entry.value is None else {entry.value: argument["value"]}
    value = await call(entry.handler, ctx, arguments, house.bulkheads, ("completion", entry.name), whose(job))
    return completion_result(value)


# --- The function that answers each method: one table for all that is answered from the catalogue, or by user code.
# `("now", function)` is answered on the spot from a snapshot; `("work", function)` runs user code, and belongs in a worker. The rest
# (`initialize`, `ping`, subscriptions, levels) is the session's own.

if TYPE_CHECKING:
    Now: TypeAlias = Callable[[Catalogue, Mapping[str, Any], Settings, Facts], Any]
    Work: TypeAlias = Callable[[Job, Context], Awaitable[dict[str, Any]]]

NOW: Final = "now"
WORK: Final = "work"

ANSWERS: Final[Mapping[str, tuple[Literal["now"], Now] | tuple[Literal["work"], Work]]] = {
    **{listing.method: (NOW, answer_of(listing)) for listing in LISTINGS},
    "tools/call": (WORK, call_tool),
    "resources/read": (WORK, read_resource),
    "prompts/get": (WORK, get_prompt),
    "completion/complete": (WORK, complete),
}


def at_once(request: Request, facts: Facts, house: House) -> bytes | None:
    """The whole response, where no user code is needed for it. Raises `McpError`; its params were checked before."""
    found = ANSWERS.get(request.method)
    if found is None or found[0] != NOW or request.method in house.own:
        return None
    result = found[1](house.shelf.catalogue, request.params, house.settings, facts)
    return encode_result(request.id, result)


def timeout_of(method: str, found: Sequence[Any]) -> float | None:
    """How long the handler of a request may take that reaches this, where it has a limit of its own."""
    return found[0].handler.timeout if found and method != "completion/complete" else None


def introduce(ctx: Context, job: Job) -> None:
    """Tell a context what is called or read, as `answer` does: for code that stands around it and may look first, or never ask for the answer."""
    params, catalogue = job.params, job.house.shelf.catalogue
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


class _Nobody:
    """The voice of a call that has no peer."""

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


_NOBODY: Final = _Nobody()
_GIVEN_UP: Final = Shutdown("the caller has given up")
_FACTS: Final = Facts("", LATEST, Peer("local"), {}, {})


async def call_locally(house: House, kind: Kind, name: str, arguments: Mapping[str, Any] | None) -> Any:
    """What the function returns. Raises `NotFound`, `Mismatch`, `CallTimeout` after the handler's own, or what it raises."""
    entry: Any = house.shelf.catalogue.find(kind, name)
    if entry is None:
        raise NotFound(kind, name)
    task = start_task_alone(_run, house, entry, dict(arguments or {}))
    try:
        outcome = await task.wait(entry.handler.timeout)
    except (asyncio.CancelledError, CallTimeout):
        end_worker(task.pid, _GIVEN_UP, house.settings.cancel_grace)
        raise
    if isinstance(outcome, _Raised):
        raise outcome.error
    return outcome


class _Raised:
    """An error on its way to the caller."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _run(house: House, entry: Any, arguments: dict[str, Any]) -> Any:
    cancelled = Cancellation()
    ctx = Context(_FACTS, _NOBODY, cancelled, None, {"arguments": arguments})
    ctx.name = entry.name
    try:
        return await _answer(house, entry, arguments, ctx)
    except Exception as error:  # noqa: BLE001 - it is raised again where it is awaited
        return _Raised(error)
    finally:
        cancelled.set("the caller is gone")
        ctx.close()


async def _answer(house: House, entry: Any, arguments: dict[str, Any], ctx: Context) -> Any:
    if entry.kind == "resource":
        ctx.uri = entry.uri
        named = {} if entry.whole is None else {entry.whole: arguments}
    else:
        named = entry.binder.bind(arguments)
    value = await call(entry.handler, ctx, named, house.bulkheads, (entry.kind, entry.name), None)
    ctx.check_asked()
    return value


# --- Running a handler where it is to run: in the loop, in a thread, or in a thread with a loop of its own.
# The caller is a worker, whose end is the handler's end if that is in the loop. A thread goes on, with its slot, until it returns; the
# flag of its call tells it that no caller waits.


async def call(
    handler: Handler,
    ctx: Context,
    arguments: Mapping[str, Any],
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
) -> Any:
    """What the function returns, or raises. `key` is what the threads of one tool are counted under."""
    named = arguments if handler.context is None else {**arguments, handler.context: ctx}
    if handler.place is Place.LOOP:
        value = handler.function(**named)
    elif handler.place is Place.THREAD:
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


async def written(
    handler: Handler,
    bulkheads: Bulkheads,
    key: Hashable,
    principal: Hashable,
    write: Callable[..., dict[str, Any]],
    value: Any,
    *more: Any,
) -> dict[str, Any]:
    """The result that `write` makes of what a function returned: in a thread if that takes long, as a picture does."""
    if is_slow(value):
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
