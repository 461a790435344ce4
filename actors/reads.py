"""`resources/read`: the resource at that very URI, or the first template that it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.problems import Mismatch
from greenroom.protocol.results import resource_contents

from .callers import whose
from .calling import call, written

if TYPE_CHECKING:
    from .context import Context
    from .jobs import Job


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
