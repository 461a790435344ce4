"""`prompts/get`: the messages of a prompt, with its arguments filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.problems import Mismatch
from greenroom.protocol.results import prompt_result

from .callers import whose
from .calling import call, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .context import Context
    from .jobs import Job

_SHOWN = 200


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
