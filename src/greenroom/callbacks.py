"""The overridden methods of a class-based server as answers to requests: decorated methods first, then these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from greenroom.actors.answers import ANSWERS
from greenroom.actors.scopes import may_use
from greenroom.actors.subscriptions import Subscriptions
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.results import completion_result, prompt_result, resource_contents, tool_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import Company
    from greenroom.actors.context import Context
    from greenroom.actors.jobs import Job, Own

    from .service import McpServer

_LISTS: tuple[tuple[str, str, str, Kind], ...] = (
    ("list_tools", "tools/list", "tools", "tool"),
    ("list_resources", "resources/list", "resources", "resource"),
    ("list_resource_templates", "resources/templates/list", "resourceTemplates", "resource_template"),
    ("list_prompts", "prompts/list", "prompts", "prompt"),
)


def answers_of(instance: McpServer) -> dict[str, Own]:
    """By method, what the class answers itself."""
    answers: dict[str, Own] = {}
    for callback, method, member, kind in _LISTS:
        if instance.overrides(callback):
            answers[method] = _listing(getattr(instance, callback), member, kind)
    own: dict[str, tuple[str, Callable[[McpServer], Own]]] = {
        "call_tool": ("tools/call", _call_tool),
        "read_resource": ("resources/read", _read_resource),
        "get_prompt": ("prompts/get", _get_prompt),
        "complete": ("completion/complete", _complete),
    }
    for callback, (method, answer) in own.items():
        if instance.overrides(callback):
            answers[method] = answer(instance)
    if instance.overrides("subscribe_resource"):
        answers["resources/subscribe"] = _subscribing(instance.subscribe_resource, Subscriptions.subscribe)
    if instance.overrides("unsubscribe_resource"):
        answers["resources/unsubscribe"] = _subscribing(instance.unsubscribe_resource, Subscriptions.unsubscribe)
    return answers


def _listing(callback: Callable[[str | None, Context], Awaitable[Any]], member: str, kind: Kind) -> Own:
    """The decorated ones come with the first page: the cursors are the callback's own."""

    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        cursor: str | None = job.params.get("cursor")
        page: Any = await callback(cursor, ctx)
        items, following = cast("tuple[Any, Any]", page) if isinstance(page, tuple) else (page, None)
        entries: Any = job.house.shelf.catalogue.all(kind) if cursor is None else {}
        own = [dict(each.wire) for each in entries.values() if may_use(each, job.facts.peer)]
        result: dict[str, Any] = {member: [*own, *map(_wire, items)]}
        if following is not None:
            result["nextCursor"] = following
        return result

    return answer


def _wire(item: Any) -> Any:
    return item.to_wire() if hasattr(item, "to_wire") else item


def _call_tool(instance: McpServer) -> Own:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        name, arguments = job.params["name"], job.params.get("arguments")
        if job.house.shelf.catalogue.tool(name) is not None:
            return await _from_catalogue(job, ctx)
        ctx.name = name
        return tool_result(await instance.call_tool(name, dict(arguments or {}), ctx))

    return answer


def _read_resource(instance: McpServer) -> Own:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        uri, catalogue = job.params["uri"], job.house.shelf.catalogue
        if catalogue.resource(uri) is not None or catalogue.matching(uri) is not None:
            return await _from_catalogue(job, ctx)
        ctx.uri = uri
        return resource_contents(await instance.read_resource(uri, ctx), uri)

    return answer


def _get_prompt(instance: McpServer) -> Own:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        name, arguments = job.params["name"], job.params.get("arguments")
        if job.house.shelf.catalogue.prompt(name) is not None:
            return await _from_catalogue(job, ctx)
        ctx.name = name
        return prompt_result(await instance.get_prompt(name, dict(arguments or {}), ctx))

    return answer


def _complete(instance: McpServer) -> Own:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        ref, argument = job.params["ref"], job.params["argument"]
        kind = "prompt" if ref["type"] == "ref/prompt" else "resource_template"
        called = ref.get("name") if kind == "prompt" else ref.get("uri")
        if job.house.shelf.catalogue.completion(kind, called, argument["name"]) is not None:
            return await _from_catalogue(job, ctx)
        return completion_result(await instance.complete(ref, argument, ctx))

    return answer


async def _from_catalogue(job: Job, ctx: Context) -> dict[str, Any]:
    answer: Any = ANSWERS[job.method][1]
    result: dict[str, Any] = await answer(job, ctx)
    return result


def _subscribing(callback: Callable[[str, Context], Awaitable[None]], then: Any) -> Own:
    async def answer(job: Job, ctx: Context) -> dict[str, Any]:
        uri = job.params["uri"]
        await callback(uri, ctx)
        company = cast("Company", job.house)
        session = company.peers.whereis(job.facts.session_id)
        if session is None:
            raise McpError(ErrorCode.INVALID_REQUEST, "There is no session to subscribe for")
        await company.subscriptions.call(then, session, uri)
        return {}

    return answer
