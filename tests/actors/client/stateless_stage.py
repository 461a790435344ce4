"""A scripted server of the stateless era, behind the wire of `fake_server`.

::

    stage = stateless_stage(answers={"tools/call": {"content": []}})
    async with playing(stage) as (line, _):
        await line.request("tools/call", {"name": "t"})
    assert sent(stage, "tools/call") == [{"name": "t"}]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .fake_server import EVERYTHING, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest

VERSION: Final = "2026-07-28"
PREFIX: Final = "io.modelcontextprotocol/"
CAPABILITIES: Final[Mapping[str, Any]] = {name: value for name, value in EVERYTHING.items() if name != "tasks"}


def discovered(**more: Any) -> dict[str, Any]:
    """A result of `server/discover`, with these members replaced."""
    return {
        "resultType": "complete",
        "supportedVersions": [VERSION],
        "capabilities": dict(CAPABILITIES),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {f"{PREFIX}serverInfo": {"name": "stage", "version": "1"}},
        **more,
    }


def stateless_stage(*, answers: Mapping[str, Any] | None = None, **discovery: Any) -> Stage:
    """A server that knows no handshake. `discovery` are members of its answer to `server/discover`."""
    stage = Stage()
    del stage.answers["initialize"], stage.answers["ping"]
    stage.answers |= {"server/discover": discovered(**discovery), **(answers or {})}
    return stage


def in_turn(*answers: Any) -> Callable[[JsonRpcRequest], Any]:
    """Each answer once, for the requests of one method."""
    left = iter(answers)

    def answer(_: JsonRpcRequest) -> Any:
        return next(left)

    return answer


def sent(stage: Stage, method: str) -> list[dict[str, Any]]:
    """The params of all requests of a method, without the envelope."""
    return [{name: value for name, value in each.params.items() if name != "_meta"} for each in stage.asked(method)]


def asking(*keys: str, state: str | None = None, method: str = "elicitation/create") -> dict[str, Any]:
    """A result that asks a question under each key."""
    params = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    question: dict[str, Any] = {"method": method}
    if method == "elicitation/create":
        question["params"] = params
    result: dict[str, Any] = {"resultType": "input_required"}
    if keys:
        result["inputRequests"] = dict.fromkeys(keys, question)
    if state is not None:
        result["requestState"] = state
    return result
