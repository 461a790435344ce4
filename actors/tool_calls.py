"""`tools/call`: find the tool, check what goes in, run it, check what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.json import is_object
from greenroom.protocol.problems import Mismatch
from greenroom.protocol.results import tool_result

from .calling import call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.protocol.problems import Problem

    from .context import Context
    from .entries import ToolEntry
    from .jobs import Job
    from .settings import Settings

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
    try:
        arguments = take_in(entry, params.get("arguments") or {}, house.settings)
    except Mismatch as error:
        return tool_result(ToolError(f"Invalid arguments for {name}: {error}"))
    value = await call(entry.handler, ctx, arguments, house.bulkheads, ("tool", name), whose(job))
    result = tool_result(value, entry.returns)
    wrong = look_at(entry, result, house.settings)
    if wrong:
        text = "; ".join(str(problem) for problem in wrong)
        return tool_result(ToolError(f"The result of {name} is not what its output schema promises: {text}"))
    return result


def take_in(entry: ToolEntry, arguments: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """What to call the function with. Raises `Mismatch` with everything that is wrong."""
    if entry.check_input is not None and _wanted(entry.options.validate_input, strict=settings.strict):
        problems = entry.check_input.errors(arguments)
        if problems:
            raise Mismatch(problems)
    return entry.binder.bind(arguments)


def look_at(entry: ToolEntry, result: Mapping[str, Any], settings: Settings) -> Sequence[Problem]:
    """What is wrong with a structured result. A promise that was made by a hint is held to unless the tool says otherwise."""
    data = result.get("structuredContent")
    if data is None or result["isError"]:
        return ()
    if entry.check_output is not None:
        return entry.check_output.errors(data) if _wanted(entry.options.validate_output, strict=settings.strict) else ()
    if entry.returns is not None and is_object(data) and entry.options.validate_output is not False:
        return entry.returns.errors(data)
    return ()


def _wanted(said: bool | None, *, strict: bool) -> bool:  # noqa: FBT001 - it is what an option says
    return strict if said is None else said


def whose(job: Job) -> Any:
    """Whose threads a call uses: its principal's, or without authentication its session's; where there is none, its own."""
    principal = job.facts.peer.principal
    return (job.facts.session_id or job.session) if principal is None else principal
