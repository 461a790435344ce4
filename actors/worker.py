"""A worker: one process for one piece of user code, and the one that answers for it.

Whatever the code does, its session hears exactly once. A result is fitted to the revision and encoded here, so what cannot be sent is this
worker's crash and not the session's. What the code raises on purpose (`McpError`, `ToolError`) is an answer; anything else, `SystemExit` and
`KeyboardInterrupt` among it, is answered in general terms and then is this process's crash, so that the reports hold what it was. A worker
that is killed in between says nothing: its session, which is linked to it, answers then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from greenroom.protocol.elicitations import UrlElicitationRequired
from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.fitting import fit
from greenroom.protocol.messages import encode_result
from greenroom.protocol.negotiation import declares, unable
from greenroom.protocol.results import tool_result
from greenroom.protocol.versions import V2025_11_25, at_least
from greenroom.supervision.kernel import describe
from greenroom.supervision.kernel.current import current_process

from .answers import ANSWERS, introduce
from .asking_calls import NotAwaited
from .cancellation import RequestCancelled
from .context import Context
from .jobs import Encoded, Failed, FarCrash, Finished
from .outbound import NoStream
from .scopes import check_call
from .task_record import related

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .jobs import Around, Job, Own
    from .settings import Settings

TOOL_FAILED = "Tool execution failed"
INTERNAL = "Internal error"


async def work(job: Job) -> None:
    """Run a job to its end, and tell its session how it ended."""
    ctx = Context(job.facts, job.voice, job.cancelled, job.request_id, job.params, job.house.settings.ask_timeout)
    process = current_process("work")
    try:
        check_call(job.method, job.params, job.house.shelf.catalogue, job.facts.peer)  # it may have changed since
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
            raise  # ended from outside: whoever did that has answered, or does not want to be
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
            return  # it has noticed, as it should, or was just asking somebody
        raise
    ctx.close()
    job.session.send(ending)


async def _within(around: Around, job: Job, ctx: Context, answer: Own) -> dict[str, Any]:
    """The result that the server's own code makes of the result; what ran elsewhere is encoded, and comes through untouched."""
    introduce(ctx, job)
    result: Any = await around(job.method, ctx, lambda: answer(job, ctx))
    if not isinstance(result, dict):
        raise TypeError(f"Hooks.around has to return the result of {job.method}, a dict, not {describe.short(result)}")
    return cast("dict[str, Any]", result)


def sent_away(job: Job, error: McpError) -> McpError:
    """An error that sends the user to a page is for clients that can; whoever was sent is told of the end."""
    if not isinstance(error, UrlElicitationRequired):
        return error
    facts = job.facts
    # Whoever has not introduced themselves (there is no session) has not declared anything, and may be able all the same.
    able = declares(facts.client_capabilities, "elicitation.url") or not facts.client_info
    if not able or not at_least(facts.version, V2025_11_25):
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
    except Exception as broken:  # noqa: BLE001 - whatever is in it, somebody waits for an answer
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
