"""What a guest is answered: each kind of request, put to a federation.

Whatever is asked here has one outcome, and all that can go wrong with an upstream is an outcome as well: a reason for programs, and a text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.actors.cancellation import RequestCancelled
from greenroom.actors.client.errors import RequestLost
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import PeerError
from greenroom.protocol.wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from greenroom.actors.client.seam import Line
    from greenroom.actors.federation.agent import Agent
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.offering import Part

    Fields = Mapping[str, Any]
    Outcome = tuple[str, dict[str, Any]]

_PARTS: Final[Mapping[str, Part]] = {
    "ListTools": "tools",
    "ListResources": "resources",
    "ListResourceTemplates": "templates",
    "ListPrompts": "prompts",
}


PATIENCE: Final = 2.0
"""How long a list of all waits for a server that has never said what it offers, in seconds."""


class Refused(GreenroomError):
    """It cannot be asked like this; `reason` is a word."""

    def __init__(self, reason: str, text: str) -> None:
        """What is wrong with it."""
        super().__init__(text)
        self.reason = reason


class Asked(NamedTuple):
    """Who is asked: the servers, and whoever has a say in which tools may be called, by what they were pinned as and by consent."""

    federation: Federation
    agent: Agent | None = None
    who: Hashable = None
    """On whose behalf: of requests that wait for one server, the guests take turns."""


async def outcome(asked: Asked, kind: str, fields: Fields, seconds: float) -> Outcome:
    """The answer's kind, and what is in it."""
    try:
        async with asyncio.timeout(seconds):
            return await _ASKED[kind](asked, fields, seconds)
    except TimeoutError as error:
        return failed("timeout", f"no answer within {seconds:.3g} s" if not str(error) else str(error))
    except GreenroomError as error:
        return failure(error)


def failure(error: BaseException) -> Outcome:
    """What is said of an error."""
    if isinstance(error, PeerError):
        return failed("peer_error", error.message, code=error.code, data=error.data)
    if isinstance(error, RequestLost):
        return failed(error.reason, str(error), maybe_done=error.maybe_done)
    if isinstance(error, RequestCancelled):  # its reason is somebody's words, or none
        return failed(
            "cancelled", f"the request was cancelled: {error.reason}" if error.reason else "the request was cancelled"
        )
    reason = getattr(error, "reason", None)
    return failed(reason if isinstance(reason, str) else "failed", str(error))


def failed(reason: str, text: str, **data: Any) -> Outcome:
    """A `Failed`."""
    return "Failed", {"reason": reason, "text": text, "data": data}


def line_of(asked: Asked, fields: Fields) -> Line:
    """The way to the server that is asked. Raises `Refused`."""
    server = fields.get("server")
    line = asked.federation.line(server, asked.who) if isinstance(server, str) else None
    if line is None:
        there = ", ".join(asked.federation.ids()) or "none"
        raise Refused("unknown_server", f"there is no server {server!r} here; there is {there}")
    return line


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Refused("bad_request", f"{name} is a text, not {value!r:.60}")
    return value


async def _list(asked: Asked, part: Part, fields: Fields, seconds: float) -> Outcome:
    """Who does not say in time what it offers is left out, unless nobody else was asked; and a tool that is not as it was pinned, if such are refused."""
    federation, agent = asked.federation, asked.agent
    one = fields.get("server")
    if one is not None:
        line_of(asked, fields)
    ids = list(federation.ids()) if one is None else [one]
    patience = seconds * 0.8 if one is not None else min(seconds * 0.8, PATIENCE)
    federation.keep(part)
    asking = (federation.offering(id, timeout=patience, parts=(part,)) for id in ids)
    found = await asyncio.gather(*asking, return_exceptions=True)
    items: dict[str, Any] = {}
    away: dict[str, str] = {}
    for id, offering in zip(ids, found, strict=True):
        if isinstance(offering, GreenroomError):
            if one is not None:
                raise offering
            away[id] = str(offering)
        elif isinstance(offering, BaseException):
            raise offering
        else:
            items[id] = [dict(each) for each in offering.part(part).values()]
    if part == "tools" and agent is not None and agent.pins is not None:
        allowed = {(tool.server, tool.tool) for tool in agent.snapshot()}
        items = {id: [each for each in tools if (id, each["name"]) in allowed] for id, tools in items.items()}
    return "Listed", {"items": items, "away": away}


def _listing(kind: str) -> Callable[[Asked, Fields, float], Awaitable[Outcome]]:
    async def answer(asked: Asked, fields: Fields, seconds: float) -> Outcome:
        return await _list(asked, _PARTS[kind], fields, seconds)

    return answer


async def _call(asked: Asked, fields: Fields, seconds: float) -> Outcome:
    agent = asked.agent
    params: dict[str, Any] = {"name": _text(fields, "tool"), "arguments": fields.get("arguments") or {}}
    line = line_of(asked, fields)
    if agent is not None:
        name = agent.name_of(fields["server"], params["name"])
        await agent.checked(name, params["arguments"], timeout=seconds)
    result = await line.request("tools/call", params, timeout=seconds)
    return "ToolResult", {
        "content": _objects(result.get("content")),
        "structured": result.get("structuredContent"),
        "is_error": result.get("isError") is True,
        "meta": result.get("_meta"),
    }


async def _read(asked: Asked, fields: Fields, seconds: float) -> Outcome:
    result = await line_of(asked, fields).request("resources/read", {"uri": _text(fields, "uri")}, timeout=seconds)
    return "ResourceContents", {"contents": _objects(result.get("contents"))}


async def _prompt(asked: Asked, fields: Fields, seconds: float) -> Outcome:
    params: dict[str, Any] = {"name": _text(fields, "name"), "arguments": fields.get("arguments") or {}}
    result = await line_of(asked, fields).request("prompts/get", params, timeout=seconds)
    return "PromptMessages", {
        "messages": _objects(result.get("messages")),
        "description": result.get("description"),
    }


async def _servers(asked: Asked, fields: Fields, seconds: float) -> Outcome:  # noqa: ARG001 - as all of them
    standings = asked.federation.standings()
    return "Servers", {
        "states": {id: standing.state.value for id, standing in standings.items()},
        "causes": {id: str(standing.cause) for id, standing in standings.items() if standing.cause is not None},
    }


def _objects(value: Any) -> list[Any]:
    return [one for one in value if is_object(one)] if is_array(value) else []


_ASKED: Final[Mapping[str, Callable[[Asked, Fields, float], Awaitable[Outcome]]]] = {
    "CallTool": _call,
    "ReadResource": _read,
    "GetPrompt": _prompt,
    "ListServers": _servers,
    **{kind: _listing(kind) for kind in _PARTS},
}
KINDS: Final = frozenset(_ASKED)
"""What is asked and answered once; subscriptions are the visit's own."""

__all__ = ["KINDS", "Refused", "failed", "failure", "line_of", "outcome"]
