"""Who answers which method: one table for all that is answered from the catalogue, or by user code.

`("now", function)` is answered on the spot from a snapshot; `("work", function)` runs user code, and belongs in a worker. The rest
(`initialize`, `ping`, subscriptions, levels) is the session's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from greenroom.protocol.messages import encode_result

from .completions import complete
from .lists import LISTINGS, answer_of
from .prompts import get_prompt
from .reads import read_resource
from .tool_calls import call_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.protocol.messages import Request

    from .catalogue import Catalogue
    from .context import Context
    from .handlers import Handler
    from .jobs import Facts, House, Job
    from .settings import Settings

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


def timeout_of(request: Request, house: House) -> float | None:
    """How long the handler of this request may take, where it has a limit of its own."""
    handler = handler_of(request.method, request.params, house.shelf.catalogue)
    return None if handler is None else handler.timeout


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


def handler_of(method: str, params: Mapping[str, Any], catalogue: Catalogue) -> Handler | None:
    """The handler that a request would reach."""
    entry: Any = None
    if method == "tools/call":
        entry = catalogue.tool(params["name"])
    elif method == "prompts/get":
        entry = catalogue.prompt(params["name"])
    elif method == "resources/read":
        entry = catalogue.resource(params["uri"])
        if entry is None:
            found = catalogue.matching(params["uri"])
            entry = None if found is None else found[0]
    return None if entry is None else cast("Handler", entry.handler)
