"""A question to a client before it goes out: whether its revision has words for it, whether it keeps the rules, and how it is said there.

It runs where the question is asked, so a question that cannot be asked is the asker's error, and nothing reaches the session. What the client
has declared is the session's business (`negotiation.missing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import methods
from .errors import LocalProtocolError, McpError
from .fitting import fit
from .forms import check_form, check_id, check_message, check_url
from .hints import BadHint
from .negotiation import unable
from .results import check_sampling, uses_tools
from .versions import V2025_11_25, at_least
from .wire import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def prepared(method: str, params: dict[str, Any], version: str) -> dict[str, Any]:
    """The params as that revision says them; `params` are in JSON's own types.

    Raises `McpError` for what the revision does not have, `LocalProtocolError` for what no client would take.
    """
    check = _CHECKS.get(method)
    if check is None:
        return fit(method, params, version)
    try:
        methods.check_params(method, params)
    except McpError as error:
        raise LocalProtocolError(error.message) from None
    young = check(params)
    if young is not None and not at_least(version, V2025_11_25):
        raise unable(f"{method}: revision {version}, which this client speaks, has no {young}")
    return fit(method, params, version)


def _elicitation(params: Mapping[str, Any]) -> str | None:
    check_message(params.get("message"))
    if params.get("mode") == "url":
        check_url(params.get("url"))
        check_id(params.get("elicitationId"))
        return "elicitation by url"
    form: Any = params.get("requestedSchema")
    try:
        check_form(form)
    except BadHint as error:
        raise LocalProtocolError(f"elicitation: {error}") from error
    several = any(is_object(field) and field.get("type") == "array" for field in form["properties"].values())
    return "choice of several in a form" if several else None


def _sampling(params: Mapping[str, Any]) -> str | None:
    check_sampling(params)
    return "sampling with tools" if uses_tools(params) else None


# What looks at the params, and names what is in them that only the newest handshake revision has.
_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], str | None]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
}


def check_progress(said: object) -> None:
    """Whether to ask for progress is a flag. Raises `LocalProtocolError` for a function, which would never be called."""
    if not isinstance(said, bool):
        raise LocalProtocolError(
            f"progress must be True or False (whether to ask for it), not {said!r}: follow it with `async for step in call.progress()` of the "
            "call that start_tool returns, or give the function to call_tool(…, on_progress=…)"
        )
