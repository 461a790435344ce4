"""Everything that a client sees of a server, as data: what it lists, and what comes of requests, each with what was said meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom import Client, ProtocolError
from greenroom.protocol.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom import Command, ElicitationRequest, LogMessage, Progress, SamplingRequest, Server

    Target = Command | Server | str


@dataclass(frozen=True)
class Request:
    """One request: a method, and its params as they are on the wire."""

    method: str
    params: Mapping[str, Any]

    def __str__(self) -> str:
        about = self.params.get("name") or self.params.get("uri") or self.params.get("ref")
        return f"{self.method} {about}"


def call(tool: str, /, **arguments: Any) -> Request:
    """A tool."""
    return Request("tools/call", {"name": tool, "arguments": arguments})


def read(uri: str) -> Request:
    """A resource."""
    return Request("resources/read", {"uri": uri})


def prompt(name: str, /, **arguments: str) -> Request:
    """A prompt."""
    return Request("prompts/get", {"name": name, "arguments": arguments})


def complete(name: str, argument: str, value: str) -> Request:
    """A prompt's argument."""
    ref = {"type": "ref/prompt", "name": name}
    return Request("completion/complete", {"ref": ref, "argument": {"name": argument, "value": value}})


@dataclass
class Seen:
    """The observations of one server."""

    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


async def look(
    target: Target,
    requests: Sequence[Request],
    answers: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Seen:
    """Ask it all. Its user accepts every form with `answers`, or declines where there are none; its model repeats what it was asked."""
    seen, told = Seen(), list[Any]()

    def log(message: LogMessage) -> None:
        told.append({"log": message.level, "data": message.data})

    def progress(step: Progress) -> None:
        told.append({"progress": step.progress, "total": step.total, "message": step.message})

    def elicit(request: ElicitationRequest) -> Any:
        told.append({"asked": request.message, "schema": request.schema})
        return (
            request.decline()
            if answers is None
            else request.accept({name: answers[name] for name in request.fields if name in answers})
        )

    def sample(request: SamplingRequest) -> Any:
        told.append({"sampled": dict(request.raw)})
        return request.answer("It is fine.", model="none")

    tell: Callable[[Any], Any] = progress
    # What was moved is compared as the servers said it before.
    more: dict[str, Any] = {"mode": "legacy", **(settings or {})}
    async with Client(target, on_log=log, on_progress=tell, elicitation=elicit, sampling=sample, **more) as client:
        seen.server = {"instructions": client.instructions, **client.server_info}
        for kind, method in LISTS.items():
            declared = "resources" if kind == "resourceTemplates" else kind
            has = declared in client.server_capabilities
            seen.lists[kind] = list((await client.request(method))[kind]) if has else []
        for request in requests:
            told.clear()
            try:
                answer = await _asked(client, request)
            except (PeerError, ProtocolError) as error:
                answer = {"error": getattr(error, "code", None), "message": str(error)}
            seen.answers.append({"answer": answer, "told": sorted(told, key=_kind)})
    return seen


def _kind(told: Mapping[str, Any]) -> str:
    """Sort the messages by kind: logs and progress reach a client's functions by different ways."""
    return next(iter(told))


async def _asked(client: Client, request: Request) -> dict[str, Any]:
    if request.method == "tools/call":
        reply = await client.call_tool(request.params["name"], request.params["arguments"])
        return dict(reply.raw)
    return await client.request(request.method, request.params)
