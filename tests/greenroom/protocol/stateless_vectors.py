"""Messages and values of revision 2026-07-28, by the schema's own names of their types, and how each goes through our types and back.

The schema comes with example files, which no package ships, so these values are our own: a small one or several for each type that has an example there.
`make schemas` lets the official SDK's models, which are generated from the schema, judge them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.protocol.cache_hints import CACHEABLE
from greenroom.protocol.content import (
    Audio,
    Contents,
    Embedded,
    Image,
    ResourceLink,
    Text,
    ToolResult,
    ToolUse,
    check_sampling,
)
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.elicitation_forms import check_form
from greenroom.protocol.envelope import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    read_envelope,
)
from greenroom.protocol.errors import McpError, PeerError
from greenroom.protocol.handler_results import Completion
from greenroom.protocol.input_required import check_response, input_required_result, read_responses
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    decode,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    is_object,
    parse,
)
from greenroom.protocol.methods import METHODS, PeerSide, check_params, check_result
from greenroom.protocol.received_results import (
    read_completion,
    read_contents,
    read_message,
    read_page,
    read_prompt,
    read_tool_reply,
)
from greenroom.protocol.serialization import to_jsonable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.protocol.serialization import WireObject

# --- the values

_INFO: Final = {"name": "probe", "version": "0.1"}
_META: Final = {PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_INFO_KEY: _INFO, CLIENT_CAPABILITIES_KEY: {}}
_LISTENED: Final = {"io.modelcontextprotocol/subscriptionId": 7}
_TEXT: Final = {"type": "text", "text": "two words"}
_ICON: Final = {"src": "https://icons.invalid/a.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
_NOTES: Final = {"audience": ["user", "assistant"], "priority": 0.25, "lastModified": "2026-07-28T12:00:00Z"}
_FORM: Final = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
_ASKING: Final = {"messages": [{"role": "user", "content": _TEXT}], "maxTokens": 12}
_SAID: Final = {"role": "assistant", "content": _TEXT, "model": "parrot", "stopReason": "endTurn"}
_QUESTIONS: Final[Mapping[str, Any]] = {
    "colour": {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": _FORM}},
    "word": {"method": "sampling/createMessage", "params": _ASKING},
    "places": {"method": "roots/list"},
}
_TOOL: Final = {
    "name": "mix",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
}
_RESOURCE: Final = {
    "uri": "test://a",
    "name": "a",
    "title": "A",
    "description": "The first",
    "mimeType": "text/plain",
    "size": 3,
}
_TEMPLATE: Final = {"uriTemplate": "test://{a}", "name": "each", "title": "Each", "mimeType": "text/plain"}
_PROMPT: Final = {
    "name": "greet", "title": "Greet", "description": "A greeting", "icons": [_ICON],
    "arguments": [{"name": "who", "description": "A name", "required": True}],
}  # fmt: skip
_HINT: Final = {"ttlMs": 1500, "cacheScope": "public"}
_WORDS: Final = {"values": ["red", "rose"], "total": 9, "hasMore": True}
_COLOURS: Final = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
_TO_COMPLETE: Final = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "a"}}
_CHANGED: Final = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["test://a"]}}

_PARAMS: Final[Mapping[str, dict[str, Any]]] = {
    "tools/call": {"name": "mix", "arguments": {"a": 1.5}},
    "tools/list": {"cursor": ""},
    "prompts/list": {},
    "prompts/get": {"name": "greet", "arguments": {"who": "Ada"}},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "test://a"},
    "completion/complete": {**_TO_COMPLETE, "context": {"arguments": {"tone": "warm"}}},
    "server/discover": {},
    "subscriptions/listen": _CHANGED,
}
_RESULTS: Final[Mapping[str, Any]] = {
    "tools/call": {"content": [_TEXT], "structuredContent": [1, {"two": None}], "isError": False},
    "tools/list": {"tools": [_TOOL], "nextCursor": "p2", **_HINT},
    "prompts/list": {"prompts": [_PROMPT], "nextCursor": "", **_HINT},
    "prompts/get": {"description": "A greeting", "messages": [{"role": "user", "content": _TEXT}]},
    "resources/list": {"resources": [_RESOURCE], **_HINT},
    "resources/templates/list": {"resourceTemplates": [_TEMPLATE], **_HINT},
    "resources/read": {"contents": [{"uri": "test://a", "text": "abc", "mimeType": "text/plain"}], **_HINT},
    "completion/complete": {"completion": _WORDS},
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "Mix.",
        **_HINT,
    },
    "subscriptions/listen": {"_meta": _LISTENED},
}
_NOTIFICATIONS: Final[Mapping[str, dict[str, Any]]] = {
    "notifications/cancelled": {"requestId": 4, "reason": "late"},
    "notifications/progress": {"progressToken": "t", "progress": 0.5, "total": 2, "message": "half"},
    "notifications/message": {"level": "warning", "logger": "mixer", "data": ["any", None]},
    "notifications/tools/list_changed": {"_meta": _LISTENED},
    "notifications/prompts/list_changed": {"_meta": _LISTENED},
    "notifications/resources/list_changed": {"_meta": _LISTENED},
    "notifications/resources/updated": {"_meta": _LISTENED, "uri": "test://a"},
    "notifications/subscriptions/acknowledged": {"_meta": _LISTENED, **_CHANGED},
}
METHOD_TYPES: Final[Mapping[str, str]] = {
    "CallTool": "tools/call", "ListTools": "tools/list", "ListPrompts": "prompts/list", "GetPrompt": "prompts/get",
    "ListResources": "resources/list", "ListResourceTemplates": "resources/templates/list",
    "ReadResource": "resources/read", "Complete": "completion/complete", "Discover": "server/discover",
    "SubscriptionsListen": "subscriptions/listen", "Cancelled": "notifications/cancelled",
    "Progress": "notifications/progress", "LoggingMessage": "notifications/message",
    "ToolListChanged": "notifications/tools/list_changed", "PromptListChanged": "notifications/prompts/list_changed",
    "ResourceListChanged": "notifications/resources/list_changed", "ResourceUpdated": "notifications/resources/updated",
    "SubscriptionsAcknowledged": "notifications/subscriptions/acknowledged",
    "Elicit": "elicitation/create", "CreateMessage": "sampling/createMessage", "ListRoots": "roots/list",
}  # fmt: skip
"""The methods by the schema's names of their types."""


def _messages() -> dict[str, list[Any]]:
    """A request or notification, its params, its result and the response of each method."""
    found: dict[str, list[Any]] = {}
    for kind, method in METHOD_TYPES.items():
        if method in _PARAMS:
            params: dict[str, Any] = {"_meta": _META, **_PARAMS[method]}
            result: dict[str, Any] = {"resultType": "complete", **_RESULTS[method]}
            named = {**result.get("_meta", {}), SERVER_INFO_KEY: _INFO}
            found[f"{kind}Request"] = [{"jsonrpc": "2.0", "id": "r1", "method": method, "params": params}]
            found[f"{kind}Result"] = [result, {**result, "_meta": named}]
            found[f"{kind}ResultResponse"] = [{"jsonrpc": "2.0", "id": 3, "result": result}]
            if kind in ("CallTool", "GetPrompt", "Complete"):
                found[f"{kind}RequestParams"] = [params]
        elif method in _NOTIFICATIONS:
            params = _NOTIFICATIONS[method]
            found[f"{kind}Notification"] = [{"jsonrpc": "2.0", "method": method, "params": params}]
            if kind in ("Cancelled", "Progress", "LoggingMessage", "ResourceUpdated"):
                found[f"{kind}NotificationParams"] = [params]
    return found


def _refusal(code: int, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": "No", **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": 5, "error": error}


VECTORS: Final[Mapping[str, list[Any]]] = {
    **_messages(),
    "PaginatedRequestParams": [{"_meta": _META, "cursor": "p2"}, {"_meta": _META, "cursor": ""}],
    "AudioContent": [{"type": "audio", "data": "AAEC", "mimeType": "audio/wav"}],
    "ImageContent": [{"type": "image", "data": "AAEC", "mimeType": "image/png", "annotations": _NOTES}],
    "TextContent": [_TEXT, {**_TEXT, "_meta": {"own/key": 1}}],
    "ResourceLink": [{"type": "resource_link", **_RESOURCE, "icons": [_ICON]}],
    "EmbeddedResource": [{"type": "resource", "resource": {"uri": "test://a", "blob": "AAEC"}, "annotations": _NOTES}],
    "TextResourceContents": [{"uri": "test://a", "text": ""}, {"uri": "test://a", "text": "abc", "mimeType": "text/plain"}],
    "BlobResourceContents": [{"uri": "test://a", "blob": "AAEC", "mimeType": "image/png"}],
    "ToolUseContent": [{"type": "tool_use", "id": "u1", "name": "mix", "input": {"a": 1}}],
    "ToolResultContent": [
        {"type": "tool_result", "toolUseId": "u1", "content": [_TEXT]},
        {"type": "tool_result", "toolUseId": "u1", "content": [], "isError": True, "structuredContent": {"a": 1}},
    ],
    "Tool": [
        _TOOL,
        {
            **_TOOL, "title": "Mix", "description": "Mixes", "icons": [_ICON], "outputSchema": {"type": "array"},
            "annotations": {"title": "Mix", "readOnlyHint": True, "idempotentHint": False}, "_meta": {"own/key": [1]},
        },
        {"name": "either", "inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}},
        {"name": "old", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}},
        {"name": "none", "inputSchema": {"type": "object", "additionalProperties": False}},
    ],
    "Resource": [_RESOURCE, {**_RESOURCE, "annotations": _NOTES, "icons": [_ICON], "_meta": {"own/key": {}}}],
    "SamplingMessage": [
        {"role": "user", "content": _TEXT},
        {"role": "user", "content": [{"type": "tool_result", "toolUseId": "u1", "content": [_TEXT]}, _TEXT]},
    ],
    "Root": [{"uri": "file:///a", "name": "home"}],
    "ModelPreferences": [{"hints": [{"name": "parrot"}], "costPriority": 0, "speedPriority": 0.5, "intelligencePriority": 1}],
    "ClientCapabilities": [
        {},
        {"elicitation": {}},
        {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}},
        {"extensions": {"own.example/extension": {"setting": [1]}}, "experimental": {"own": {}}},
    ],
    "ServerCapabilities": [
        {},
        {"completions": {}, "logging": {}, "prompts": {}, "resources": {}, "tools": {}},
        {"prompts": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}, "tools": {"listChanged": True}},
        {"extensions": {"own.example/extension": {}}},
    ],
    "BooleanSchema": [{"type": "boolean", "title": "Sure", "description": "Whether", "default": False}],
    "NumberSchema": [{"type": "number", "minimum": 0.5, "maximum": 9.5, "default": 1.5}, {"type": "integer", "minimum": 0}],
    "StringSchema": [{"type": "string", "minLength": 1, "maxLength": 9, "format": "email", "default": "a@b.cz"}],
    "TitledMultiSelectEnumSchema": [
        {"type": "array", "items": {"anyOf": _COLOURS}, "minItems": 1, "maxItems": 2, "default": ["r"]}
    ],
    "TitledSingleSelectEnumSchema": [{"type": "string", "oneOf": _COLOURS, "default": "g"}],
    "UntitledMultiSelectEnumSchema": [{"type": "array", "items": {"type": "string", "enum": ["r", "g"]}, "maxItems": 2}],
    "UntitledSingleSelectEnumSchema": [{"type": "string", "enum": ["r", "g"], "default": "r"}],
    "ElicitRequest": [{"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": _FORM}}],
    "ElicitRequestFormParams": [
        {"message": "Which?", "requestedSchema": _FORM},
        {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}},
    ],
    "ElicitRequestURLParams": [{"mode": "url", "message": "Open it", "url": "https://pages.invalid/x"}],
    "ElicitResult": [
        {"action": "accept", "content": {"colour": "red", "often": 2, "sure": True, "all": ["r", "g"]}},
        {"action": "accept"},
        {"action": "decline"},
        {"action": "cancel"},
    ],
    "CreateMessageRequest": [{"method": "sampling/createMessage", "params": _ASKING}],
    "CreateMessageRequestParams": [
        {
            **_ASKING, "systemPrompt": "Be brief", "temperature": 0.5, "stopSequences": ["."], "includeContext": "none",
            "metadata": {"own": 1}, "modelPreferences": {"hints": [{"name": "parrot"}]},
        },
        {**_ASKING, "tools": [_TOOL], "toolChoice": {"mode": "auto"}},
        {
            "messages": [
                {"role": "user", "content": _TEXT},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "u1", "name": "mix", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "toolUseId": "u1", "content": [_TEXT]}]},
            ],
            "maxTokens": 12,
            "tools": [_TOOL],
        },
    ],
    "CreateMessageResult": [
        _SAID,
        {**_SAID, "content": [{"type": "tool_use", "id": "u1", "name": "mix", "input": {}}, _TEXT], "stopReason": "toolUse"},
    ],
    "ListRootsRequest": [{"method": "roots/list"}, {"method": "roots/list", "params": {}}],
    "ListRootsResult": [{"roots": []}, {"roots": [{"uri": "file:///a", "name": "home"}, {"uri": "file:///b"}]}],
    "InputRequests": [_QUESTIONS],
    "InputRequiredResult": [
        {"resultType": "input_required", "inputRequests": _QUESTIONS, "requestState": "s.1"},
        {"resultType": "input_required", "requestState": "s.2", "_meta": {SERVER_INFO_KEY: _INFO}},
    ],
    "InputResponses": [{"colour": {"action": "accept", "content": {"colour": "r"}}, "word": _SAID, "places": {"roots": []}}],
    "ParseError": [{"code": -32700, "message": "No"}],
    "MethodNotFoundError": [{"code": -32601, "message": "No", "data": {"why": "none"}}],
    "InvalidParamsError": [{"code": -32602, "message": "No"}, {"code": -32602, "message": "No", "data": {"uri": "test://a"}}],
    "InternalError": [{"code": -32603, "message": "No"}],
    "HeaderMismatchError": [_refusal(-32020)],
    "MissingRequiredClientCapabilityError": [_refusal(-32021, {"requiredCapabilities": {"sampling": {"tools": {}}}})],
    "UnsupportedProtocolVersionError": [_refusal(-32022, {"supported": ["2026-07-28"], "requested": "1999-01-01"})],
}  # fmt: skip
"""The values by the name of their type in the schema."""


# --- through our types and back


def round_trip(kind: str, value: Any) -> Any:
    """The value after it was read and written by our types. Raises an error for a value that they refuse, `KeyError` for an unknown type."""
    if kind in _OBJECTS:
        shape = _OBJECTS[kind]
        return _without_defaults(value, shape.from_wire(value).to_wire())
    if kind in _OWN:
        return _OWN[kind](value)
    for ending, way in _ENDINGS.items():
        if kind.endswith(ending):
            return way(METHOD_TYPES[kind.removesuffix(ending)], value)
    raise KeyError(kind)


_OBJECTS: Final[Mapping[str, type[WireObject]]] = {
    "AudioContent": Audio, "ImageContent": Image, "TextContent": Text, "ResourceLink": ResourceLink,
    "EmbeddedResource": Embedded, "TextResourceContents": Contents, "BlobResourceContents": Contents,
    "ToolUseContent": ToolUse, "ToolResultContent": ToolResult, "Tool": Tool, "Resource": Resource,
}  # fmt: skip


def _without_defaults(given: Any, back: Any) -> Any:
    """What came back, without members that have their default and were not given."""
    return {name: one for name, one in back.items() if name in given or one not in (False, None)}


def _request(method: str, value: Any) -> Any:
    if "jsonrpc" not in value:  # a question, without an envelope
        return _question(value)
    request = parse(encode(value))
    assert isinstance(request, JsonRpcRequest)
    assert STATELESS_DIALECT.find_method(request.method, PeerSide.SERVER).name == method
    return decode(encode_request(request.id, request.method, _request_params(method, request.params)))


def _request_params(method: str, params: Any) -> Any:
    envelope = read_envelope(params)
    assert (envelope.version, envelope.client_capabilities) == ("2026-07-28", params["_meta"][CLIENT_CAPABILITIES_KEY])
    return _params(method, params)


def _params(method: str, params: Any) -> Any:
    """The params as their shape has them."""
    return _like(params, msgspec.to_builtins(check_params(method, params)))


def _like(given: Any, shaped: Any) -> Any:
    """The shaped value with only the members that were given; those that the shape does not have are unchanged."""
    if is_object(given) and is_object(shaped):
        return {
            name: _like(one, shaped[name]) if name in shaped and name != "_meta" else one for name, one in given.items()
        }
    return shaped


def _notification(method: str, value: Any) -> Any:
    notification = parse(encode(value))
    assert isinstance(notification, JsonRpcNotification)
    assert METHODS[method].exists_in("2026-07-28")
    return decode(encode_notification(notification.method, _params(method, notification.params)))


def _response(method: str, value: Any) -> Any:
    response = parse(encode(value))
    assert isinstance(response, JsonRpcResponse)
    return decode(encode_result(response.id, _result(method, response.result)))


def _result(method: str, value: Any) -> Any:
    """A result, read as a client does, and written as a server does."""
    if method in _ANSWERS:
        return _ANSWERS[method](value)
    meta = dict(value.get("_meta", {}))
    info = meta.pop(SERVER_INFO_KEY, None)
    bare = {name: one for name, one in value.items() if name not in ("resultType", "ttlMs", "cacheScope", "_meta")}
    if meta:
        bare["_meta"] = meta
    hint = {name: value[name] for name in ("ttlMs", "cacheScope") if name in value}
    read = _READ.get(method, _as_it_is)(bare)
    return STATELESS_DIALECT.finish(method, _without_defaults(bare, read), info, hint if method in CACHEABLE else None)


def _as_it_is(result: Any) -> Any:
    return result


def _page(shape: type[WireObject], member: str) -> Callable[[Any], Any]:
    def read(result: Any) -> Any:
        page = read_page(shape, result)
        assert not page.problems
        written = {**result, member: [one.to_wire() for one in page]}
        return written if page.next_cursor is None else {**written, "nextCursor": page.next_cursor}

    return read


def _prompt(result: Any) -> Any:
    reply = read_prompt(result)
    return {**result, "description": reply.description, "messages": [to_jsonable(one) for one in reply.messages]}


def _contents(result: Any) -> Any:
    return {**result, "contents": [one.to_wire() for one in read_contents(result)]}


def _completion(result: Any) -> Any:
    found = read_completion(result)
    assert isinstance(found, Completion)
    return {**result, "completion": {"values": list(found.values), "total": found.total, "hasMore": found.has_more}}


def _discovery(result: Any) -> Any:
    check_result("server/discover", result)
    return result


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "server/discover": _discovery,
    "tools/call": lambda result: read_tool_reply(result).to_wire(),
    "tools/list": _page(Tool, "tools"),
    "resources/list": _page(Resource, "resources"),
    "resources/templates/list": _page(ResourceTemplate, "resourceTemplates"),
    "prompts/list": _page(Prompt, "prompts"),
    "prompts/get": _prompt,
    "resources/read": _contents,
    "completion/complete": _completion,
}


def _shaped_result(method: str) -> Callable[[Any], Any]:
    shape: Any = METHODS[method].result

    def read(result: Any) -> Any:
        shaped = msgspec.to_builtins(msgspec.convert(result, shape))
        return {name: shaped[name] for name in result}

    return read


_ANSWERS: Final = {
    name: _shaped_result(name) for name in ("elicitation/create", "sampling/createMessage", "roots/list")
}


def _question(value: Any) -> Any:
    method = value["method"]
    if "params" not in value:
        return value
    params = value["params"]
    if method == "sampling/createMessage":
        check_sampling(params)
    if "requestedSchema" in params:
        check_form(params["requestedSchema"])
    return {**value, "params": _params(method, params)}


def _field(schema: Any) -> Any:
    form = {"type": "object", "properties": {"field": schema}}
    check_form(form)
    return _params("elicitation/create", {"message": "", "requestedSchema": form})["requestedSchema"]["properties"][
        "field"
    ]


def _capabilities(value: Any) -> Any:
    return read_envelope({"_meta": {**_META, CLIENT_CAPABILITIES_KEY: value}}).client_capabilities


def _error(value: Any) -> Any:
    return PeerError.from_wire(value).to_wire()


def _error_response(value: Any) -> Any:
    error = parse(encode(value))
    assert isinstance(error, JsonRpcError)
    fitted = STATELESS_DIALECT.fit_error(McpError(error.error.code, error.error.message, error.error.data))
    return decode(encode_error(error.id, fitted))


def _server_capabilities(value: Any) -> Any:
    return check_result("server/discover", {"supportedVersions": [], "capabilities": value}).capabilities


def _questions(value: Any) -> Any:
    """Questions as a reply asks them. One without params gets empty ones, which is as good."""
    asked = {key: (one["method"], _question(one).get("params", {})) for key, one in value.items()}
    return _like(value, input_required_result(asked)["inputRequests"])


def _asking(value: Any) -> Any:
    state = value.get("requestState")
    asked = {key: (one["method"], one.get("params", {})) for key, one in value.get("inputRequests", {}).items()}
    info = value.get("_meta", {}).get(SERVER_INFO_KEY)
    return _like(value, STATELESS_DIALECT.finish("tools/call", input_required_result(asked, state), info))


def _answers(value: Any) -> Any:
    responses = read_responses({"inputResponses": value, "requestState": "s.1"}).responses
    assert responses is not None
    return {key: check_response(_method_of(one), one, key) for key, one in responses.items()}


def _method_of(answer: Any) -> str:
    if "action" in answer:
        return "elicitation/create"
    return "roots/list" if "roots" in answer else "sampling/createMessage"


_OWN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "SamplingMessage": lambda value: to_jsonable(read_message(value)),
    "Root": lambda value: _ANSWERS["roots/list"]({"roots": [value]})["roots"][0],
    "ModelPreferences": lambda value: _params("sampling/createMessage", {**_ASKING, "modelPreferences": value})["modelPreferences"],
    "ClientCapabilities": _capabilities,
    "ServerCapabilities": _server_capabilities,
    **dict.fromkeys(
        (
            "BooleanSchema", "NumberSchema", "StringSchema", "TitledMultiSelectEnumSchema", "TitledSingleSelectEnumSchema",
            "UntitledMultiSelectEnumSchema", "UntitledSingleSelectEnumSchema",
        ),
        _field,
    ),
    "ElicitRequestFormParams": lambda value: _question({"method": "elicitation/create", "params": value})["params"],
    "ElicitRequestURLParams": lambda value: _question({"method": "elicitation/create", "params": value})["params"],
    "CreateMessageRequestParams": lambda value: _question({"method": "sampling/createMessage", "params": value})["params"],
    "PaginatedRequestParams": lambda value: _request_params("tools/list", value),
    "InputRequests": _questions,
    "InputRequiredResult": _asking,
    "InputResponses": _answers,
    **dict.fromkeys(("ParseError", "MethodNotFoundError", "InvalidParamsError", "InternalError"), _error),
    **dict.fromkeys(
        ("HeaderMismatchError", "MissingRequiredClientCapabilityError", "UnsupportedProtocolVersionError"), _error_response
    ),
}  # fmt: skip

_ENDINGS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "RequestParams": _request_params,
    "Request": _request,
    "NotificationParams": _params,
    "Notification": _notification,
    "ResultResponse": _response,
    "Result": _result,
}
