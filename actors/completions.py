"""`completion/complete`: how the argument of a prompt, or the variable of a template, could go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.results import completion_result

from .callers import whose
from .calling import call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .context import Context
    from .jobs import Job


async def complete(job: Job, ctx: Context) -> dict[str, Any]:
    """The result; no suggestions where nobody makes any. Raises whatever the function raises."""
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
