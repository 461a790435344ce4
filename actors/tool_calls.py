"""`tools/call`: find the tool, check what goes in, run it, check what comes out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.protocol.json import encode, is_object, read
from greenroom.protocol.meter import IN_ALL, TooMuch
from greenroom.protocol.problems import Mismatch, too_much
from greenroom.protocol.results import Infinite, tool_result
from greenroom.protocol.returns import told_of_nan
from greenroom.protocol.schemas import Arguments

from .callers import whose
from .calling import call, written
from .paced_checks import paced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from greenroom.protocol.meter import Meter
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
