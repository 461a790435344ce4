"""Outgoing messages adapted to the peer's revision: server requests are checked, results lose what the revision does not know.

A request to a client is checked before it is sent, so a request that cannot be made is the caller's error and never reaches the session. The
client's capabilities are checked by the session (`methods.missing_capability`).
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .content import check_sampling, uses_tools
from .elicitation_forms import check_form, check_id, check_message, check_url
from .errors import LocalProtocolError, McpError
from .function_parameters import BadHint
from .methods import check_params, unsupported_error
from .serialization import is_array, is_object
from .versions import LATEST, STATELESS, V2025_11_25

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def prepare_params(method: str, params: dict[str, Any], version: str) -> dict[str, Any]:
    """The params of a request in that revision's form. `params` must be JSON types already.

    Raises `McpError` for features that the revision lacks, `LocalProtocolError` for params that every client would refuse.
    """
    check = _CHECKS.get(method)
    if check is None:
        return downgrade(method, params, version)
    try:
        check_params(method, params)
    except McpError as error:
        raise LocalProtocolError(error.message) from None
    young = check(params, version)
    if young is not None and version < V2025_11_25:
        raise unsupported_error(f"{method}: revision {version}, which this client speaks, has no {young}")
    if version >= STATELESS:
        return {name: value for name, value in params.items() if name not in _REMOVED}
    return downgrade(method, params, version)


_REMOVED: Final = frozenset({"elicitationId", "task"})
"""The members of questions that the stateless revision removed: a client of that era learns the outcome at a URL by its next request, and has no tasks."""


def _check_elicitation(params: Mapping[str, Any], version: str) -> str | None:
    check_message(params.get("message"))
    if params.get("mode") == "url":
        check_url(params.get("url"))
        if version < STATELESS or "elicitationId" in params:
            check_id(params.get("elicitationId"))
        return "elicitation by url"
    form: Any = params.get("requestedSchema")
    try:
        check_form(form)
    except BadHint as error:
        raise LocalProtocolError(f"elicitation: {error}") from error
    several = any(is_object(field) and field.get("type") == "array" for field in form["properties"].values())
    return "choice of several in a form" if several else None


def _check_sampling(params: Mapping[str, Any], version: str) -> str | None:  # noqa: ARG001 - the same in all revisions
    check_sampling(params)
    return "sampling with tools" if uses_tools(params) else None


# Checks of params. Each returns the name of a feature in them that only the newest handshake revision has.
_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any], str], str | None]]] = {
    "elicitation/create": _check_elicitation,
    "sampling/createMessage": _check_sampling,
}


# --- Results for older revisions.
# Everything is built in the newest revision's shape; `downgrade` removes or rewrites what the peer's revision does not know. One table says since
# when each member exists. The given value is never modified: lists come from a snapshot that all sessions share.

# Shape -> member -> the first revision with it. Members that are not listed were always there.
SINCE: Final[Mapping[str, Mapping[str, str]]] = {
    "implementation": {"title": "2025-06-18", "icons": "2025-11-25", "description": "2025-11-25", "websiteUrl": "2025-11-25"},
    "capabilities": {"completions": "2025-03-26", "tasks": "2025-11-25"},
    "tool": {
        "annotations": "2025-03-26", "title": "2025-06-18", "outputSchema": "2025-06-18", "_meta": "2025-06-18",
        "icons": "2025-11-25", "execution": "2025-11-25",
    },
    "resource": {"title": "2025-06-18", "_meta": "2025-06-18", "icons": "2025-11-25"},
    "prompt": {"title": "2025-06-18", "_meta": "2025-06-18", "icons": "2025-11-25"},
    "argument": {"title": "2025-06-18"},
    "annotations": {"lastModified": "2025-06-18"},
    "block": {"_meta": "2025-06-18", "icons": "2025-11-25"},
    "contents": {"_meta": "2025-06-18"},
    "tool result": {"structuredContent": "2025-06-18", "task": "2025-11-25"},
    "progress": {"message": "2025-03-26"},
    "elicitation": {"mode": "2025-11-25"},
    "sampling": {"tools": "2025-11-25", "toolChoice": "2025-11-25"},
}  # fmt: skip

# Block type -> the first revision with it. Text, image and resource were always there.
BLOCKS_SINCE: Final[Mapping[str, str]] = {
    "audio": "2025-03-26",
    "resource_link": "2025-06-18",
    "tool_use": "2025-11-25",
    "tool_result": "2025-11-25",
}


# Shape or method -> its members that have a shape themselves, alone or in a list.
_ANNOTATED: Final[Mapping[str, str]] = {"annotations": "annotations"}
_RESULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "initialize": {"serverInfo": "implementation", "capabilities": "capabilities"},
    "tools/list": {"tools": "tool"},
    "resources/list": {"resources": "resource"},
    "resources/templates/list": {"resourceTemplates": "resource"},
    "resources/read": {"contents": "contents"},
    "prompts/list": {"prompts": "prompt"},
}
_INSIDE: Final[Mapping[str, Mapping[str, str]]] = {**_RESULTS, "prompt": {"arguments": "argument", **_ANNOTATED}}


def downgrade(method: str, result: dict[str, Any], version: str | None) -> dict[str, Any]:
    """The result of a method, or the params of a server's message, in the form of a revision.

    Returns the same object if nothing changes; without a version, the newest is meant.
    """
    fitter = None if version is None or version >= LATEST else _DOWNGRADERS.get(method)
    return result if fitter is None or version is None else fitter(result, version)


def _without_unknown(shape: str, value: Any, version: str) -> Any:
    """An object, or a list of objects, without the members that the revision does not know."""
    if is_array(value):
        return [_without_unknown(shape, one, version) for one in value]
    since, inside = SINCE.get(shape, {}), _INSIDE.get(shape, _ANNOTATED)
    if not is_object(value) or not any(name in since or name in inside for name in value):
        return value
    fitted = {name: one for name, one in value.items() if name not in since or version >= since[name]}
    return fitted | {
        name: _without_unknown(inside[name], one, version) for name, one in fitted.items() if name in inside
    }


def _block(value: Any, version: str) -> Any:
    """A content block; a block of an unknown type becomes a resource if it has data, and text otherwise."""
    if not is_object(value):
        return value
    kind = value.get("type")
    if kind == "resource":
        value = {**value, "resource": _without_unknown("contents", value.get("resource"), version)}
    floor = BLOCKS_SINCE.get(kind) if isinstance(kind, str) else None
    if floor is None or version >= floor:
        return _without_unknown("block", value, version)
    match kind:
        case "audio":
            data = str(value.get("data", ""))
            name = f"urn:sha256:{sha256(data.encode()).hexdigest()}"
            return {"type": "resource", "resource": {"uri": name, "mimeType": value.get("mimeType"), "blob": data}}
        case "resource_link":
            texts = [value.get("title") or value.get("name"), value.get("description"), value.get("uri")]
            return {"type": "text", "text": "\n".join(str(one) for one in texts if one)}
        case _:
            return {"type": "text", "text": msgspec.json.encode(value).decode()}


def _blocks(value: Any, version: str) -> Any:
    return [_block(one, version) for one in value] if is_array(value) else _block(value, version)


def _tool_result(result: dict[str, Any], version: str) -> dict[str, Any]:
    """A tool's result. Structured content is added as text if the revision does not know it."""
    fitted: dict[str, Any] = {**_without_unknown("tool result", result, version)}
    if "content" in result:
        fitted["content"] = _blocks(result["content"], version)
    if "structuredContent" in result and "structuredContent" not in fitted and not fitted.get("content"):
        fitted["content"] = [{"type": "text", "text": msgspec.json.encode(result["structuredContent"]).decode()}]
    return fitted


def _messages(result: dict[str, Any], version: str) -> dict[str, Any]:
    """Sampling messages with one block each: a message with several blocks becomes several messages."""
    fitted: dict[str, Any] = {**_without_unknown("sampling", result, version)}
    if is_array(messages := result.get("messages")):
        fitted["messages"] = [single for one in messages for single in _single_block_messages(one, version)]
    return fitted


def _single_block_messages(message: Any, version: str) -> list[Any]:
    if not is_object(message):
        return [message]
    content = message.get("content")
    blocks = content if is_array(content) else [content]
    return [{**message, "content": _block(block, version)} for block in blocks]


def _elicitation(params: dict[str, Any], version: str) -> dict[str, Any]:
    """An elicitation. Choices with titles become `enumNames`, as in the first revision with elicitation."""
    fitted: dict[str, Any] = {**_without_unknown("elicitation", params, version)}
    schema = fitted.get("requestedSchema")
    if is_object(schema) and is_object(fields := schema.get("properties")):
        fitted["requestedSchema"] = {**schema, "properties": {name: _choices(one) for name, one in fields.items()}}
    return fitted


def _choices(field: Any) -> Any:
    if not is_object(field) or not is_array(titled := field.get("oneOf")):
        return field
    if not all(is_object(one) and "const" in one and "title" in one for one in titled):
        return field
    rest = {name: one for name, one in field.items() if name != "oneOf"}
    return {**rest, "enum": [one["const"] for one in titled], "enumNames": [one["title"] for one in titled]}


_DOWNGRADERS: Final[Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]]] = {
    **{method: partial(_without_unknown, method) for method in _RESULTS},
    "tools/call": _tool_result,
    "tasks/result": _tool_result,
    "prompts/get": _messages,
    "notifications/progress": partial(_without_unknown, "progress"),
    "elicitation/create": _elicitation,
    "sampling/createMessage": _messages,
}
