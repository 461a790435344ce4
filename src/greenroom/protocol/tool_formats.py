"""Tools, calls and results in the formats of model providers: dictionaries in, dictionaries out, without any provider's SDK.

A tool is an entry of `tools/list`, as a mapping or as our `Tool`. A call is what a model returned, as a mapping or as an object of the provider's
SDK: only attributes are read. Content for which a provider has no place (sounds, files, pictures where only text is accepted) becomes a line of
text that names it, so that a result never seems empty to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import msgspec

from greenroom.errors import GreenroomError

from .definitions import Tool
from .jsonrpc import decode_checked
from .provider_rules import provider_schema, refusals
from .serialization import is_array, is_object, to_jsonable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .provider_rules import Provider

    SomeTool = Tool | Mapping[str, Any]

_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image formats that models accept."""
_LARGEST: Final = 5 * 1024 * 1024
"""The largest picture in base64 characters: one provider refuses the whole request for a larger one."""
_SHAPES: Final = frozenset({"anthropic", "openai_responses"})
"""The formats whose results may contain pictures."""
_GEMINI_KEYS: Final = frozenset({"id", "name", "args", "willContinue", "will_continue", "partialArgs", "partial_args"})
_EXPECTED_CALL: Final = (
    "expected one tool call: a tool_use block of Anthropic's, a tool call or a function_call item of OpenAI's, "
    "or a functionCall part of Gemini's, as a dict or as an object of their SDKs"
)


class BadCall(GreenroomError, ValueError):
    """The value is no tool call, or its arguments cannot be read, mostly since the output was cut off."""


class NotAToolCall(BadCall):
    """The value is no tool call at all: a mistake of the program, not of the model."""

    def __init__(self, given: Any) -> None:
        """`given` is the value."""
        super().__init__(f"{_described(given)} is no tool call: {_EXPECTED_CALL}")


def _described(given: Any) -> str:
    kind = type(given).__name__
    if not is_object(given):
        return "a list" if isinstance(given, (list, tuple)) else f"an object of the type {kind}"
    names = ", ".join(repr(str(name)[:40]) for name in list(given)[:5])
    return f"a dict with {names}" if names else "an empty dict"


class ProviderCall(NamedTuple):
    """A model's tool call."""

    id: str
    name: str
    arguments: dict[str, Any]
    shape: str
    """The format: `anthropic`, `openai`, `openai_responses` or `gemini`. The result needs the same format."""


# --- tools


@overload
def to_anthropic(tools: SomeTool) -> dict[str, Any]: ...
@overload
def to_anthropic(tools: Sequence[SomeTool]) -> list[dict[str, Any]]: ...
def to_anthropic(tools: SomeTool | Sequence[SomeTool]) -> dict[str, Any] | list[dict[str, Any]]:
    """Convert one tool or several to `{name, description, input_schema}`."""
    if isinstance(tools, Sequence):
        return [to_anthropic(tool) for tool in tools]
    name, description, schema = _read(tools)
    return {"name": name, "description": description, "input_schema": schema}


@overload
def to_openai(tools: SomeTool) -> dict[str, Any]: ...
@overload
def to_openai(tools: Sequence[SomeTool]) -> list[dict[str, Any]]: ...
def to_openai(tools: SomeTool | Sequence[SomeTool]) -> dict[str, Any] | list[dict[str, Any]]:
    """Convert one tool or several to `{type: "function", function: {name, description, parameters}}`.

    An object without `properties` is refused there, so it gets empty ones.
    """
    if isinstance(tools, Sequence):
        return [to_openai(tool) for tool in tools]
    name, description, schema = _read(tools)
    schema.setdefault("properties", {})
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


@overload
def to_gemini(tools: SomeTool) -> dict[str, Any]: ...
@overload
def to_gemini(tools: Sequence[SomeTool]) -> list[dict[str, Any]]: ...
def to_gemini(tools: SomeTool | Sequence[SomeTool]) -> dict[str, Any] | list[dict[str, Any]]:
    """Convert one tool or several to `{name, description, parametersJsonSchema}`, for `tools=[{"functionDeclarations": …}]`."""
    if isinstance(tools, Sequence):
        return [to_gemini(tool) for tool in tools]
    name, description, schema = _read(tools)
    return {"name": name, "description": description, "parametersJsonSchema": schema}


def refusal_reasons(provider: Provider, tool: SomeTool) -> list[str]:
    """The reasons why a provider would refuse a request with this tool; empty if it accepts it."""
    return refusals(provider, *_read(tool))


def _read(tool: SomeTool) -> tuple[str, str, dict[str, Any]]:
    wire = tool.to_wire() if isinstance(tool, Tool) else tool
    description = wire.get("description")
    return (
        str(wire["name"]),
        description if isinstance(description, str) else "",
        provider_schema(wire.get("inputSchema")),
    )


# --- calls


def from_anthropic_call(call: Any) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a `tool_use` block. Raises `BadCall` if there is no name."""
    name = _check_name(_member(call, "name") or _member(call, "toolName"), "a tool_use block needs a name")
    given = _member(call, "input")
    return name, dict(to_jsonable(given)) if is_object(given) else {}


def from_openai_call(call: Any) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a tool call, which are parsed or JSON text. Arguments that are no object count as none.

    Raises `BadCall` if there is no name, or if the JSON is broken: a tool must not run with half of its arguments.
    """
    function = _member(call, "function") or call
    name = _check_name(_member(function, "name"), "a tool call needs a function with a name")
    given = _member(function, "arguments")
    if isinstance(given, (str, bytes)):
        given = _parse_arguments(name, given)
    return name, dict(to_jsonable(given)) if is_object(given) else {}


def _check_name(name: Any, rule: str) -> str:
    if not isinstance(name, str) or not name:
        raise BadCall(rule)
    return name


def _parse_arguments(name: str, text: str | bytes) -> Any:
    if not text.strip():
        return None
    try:
        return decode_checked(text)
    except (ValueError, RecursionError) as error:
        raise BadCall(f"the arguments of {name} are no JSON: {error}") from None


def from_gemini_call(call: Any) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a `functionCall`, alone or in its part. Raises `BadCall` if there is no name."""
    function = _gemini_call(call) or call
    name = _check_name(_member(function, "name"), "a functionCall needs a name")
    given = _member(function, "args")
    if given is not None and not is_object(given):
        raise BadCall(f"the args of {name} are an object, not {type(given).__name__}")
    return name, dict(to_jsonable(given)) if is_object(given) else {}


def _gemini_call(part: Any) -> Any:
    """The `functionCall` of a part, in the spelling of the wire or the SDK."""
    return _member(part, "functionCall") or _member(part, "function_call")


def _is_gemini(call: Any) -> bool:
    """Whether the value is a bare `functionCall`."""
    if is_object(call):
        return isinstance(call.get("name"), str) and ("args" in call or call.keys() <= _GEMINI_KEYS)
    return hasattr(call, "args") and isinstance(getattr(call, "name", None), str)


def call_shape(call: Any) -> tuple[str, str]:
    """The id and the format of a call, also of a call whose arguments cannot be read. Raises `NotAToolCall`."""
    if (
        _member(call, "type") == "tool_use"
        or _member(call, "input") is not None
        or isinstance(_member(call, "toolName"), str)
    ):
        return _id(call, "id", "toolUseId"), "anthropic"
    if (inner := _gemini_call(call)) is not None and not isinstance(inner, (str, bytes)):
        return _id(inner, "id"), "gemini"
    if _member(call, "type") == "function_call":
        return _id(call, "call_id", "id"), "openai_responses"
    if _member(call, "function") is not None or _member(call, "arguments") is not None:
        return _id(call, "id"), "openai"
    if _is_gemini(call):
        return _id(call, "id"), "gemini"
    raise NotAToolCall(call)


def read_call(call: Any) -> ProviderCall:
    """Read a call in any provider's format. Raises `NotAToolCall`, and `BadCall` if its arguments cannot be read."""
    id, shape = call_shape(call)
    read = {"anthropic": from_anthropic_call, "gemini": from_gemini_call}.get(shape, from_openai_call)
    return ProviderCall(id, *read(call), shape)


def called_name(call: Any) -> str:
    """The name in a call whose arguments cannot be read, for formats whose results repeat it."""
    name = _member(_gemini_call(call) or call, "name")
    return name if isinstance(name, str) else ""


def _member(value: Any, name: str) -> Any:
    return value.get(name) if is_object(value) else getattr(value, name, None)


def _id(call: Any, *names: str) -> str:
    return next((found for name in names if isinstance(found := _member(call, name), str)), "")


# --- results


def to_result(id: str, shape: str, result: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """A `tools/call` result in the format of the call. `name` is the called name, which some formats repeat."""
    match shape:
        case "gemini":
            return gemini_result(id, name, result)
        case "anthropic":
            return anthropic_result(id, result)
        case "openai_responses":
            return openai_output(id, result)
        case _:
            return openai_result(id, result)


def anthropic_result(id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """A `tool_result` block with text and pictures. The provider refuses empty text, and failures without text."""
    content: list[dict[str, Any]] = []
    for kind, value, mime_type in _shown_blocks(result):
        if kind == "image":
            content.append({
                "type": "image", "source": {"type": "base64", "media_type": mime_type, "data": value},
            })  # fmt: skip
        else:
            content.append({"type": "text", "text": value})
    failed = result.get("isError") is True
    if failed and not content:
        content = [{"type": "text", "text": "it failed without a message"}]
    wire: dict[str, Any] = {"type": "tool_result", "tool_use_id": id, "content": content}
    return {**wire, "is_error": True} if failed else wire


def openai_result(id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """A message with the role `tool`. It can only contain text, so the text says whether the call failed."""
    return {"role": "tool", "tool_call_id": id, "content": _with_failure(_text(result), result)}


def openai_output(id: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """A `function_call_output`: text, or parts if there are pictures."""
    shown = _shown_blocks(result)
    if all(kind == "text" for kind, _, _ in shown):
        output: Any = _with_failure("\n".join(value for _, value, _ in shown), result)
    else:
        output = [
            {"type": "input_text", "text": value}
            if kind == "text"
            else {"type": "input_image", "image_url": f"data:{mime_type};base64,{value}"}
            for kind, value, mime_type in shown
        ]
        if result.get("isError") is True:
            output.insert(0, {"type": "input_text", "text": "Error"})
    return {"type": "function_call_output", "call_id": id, "output": output}


def gemini_result(id: str, name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """A part with a `functionResponse`: the result under `output`, a failure under `error`."""
    text = _text(result)
    failed = result.get("isError") is True
    response = {"error": text or "no message"} if failed else {"output": text}
    return {"functionResponse": {**({"id": id} if id else {}), "name": name, "response": response}}


def can_show(shape: str, mime_type: str, data: str) -> bool:
    """Whether a result of this format can contain a picture; without a format, whether any model could see it."""
    return mime_type in _PICTURES and len(data) <= _LARGEST and (not shape or shape in _SHAPES)


def _text(result: Mapping[str, Any]) -> str:
    """The result as text only."""
    shown = _shown_blocks(result)
    return "\n".join(
        value if kind == "text" else _omission_note(mime_type, value, "picture") for kind, value, mime_type in shown
    )


def _with_failure(text: str, result: Mapping[str, Any]) -> str:
    return f"Error: {text or 'no message'}" if result.get("isError") is True else text


def _shown_blocks(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The parts of a result that a model can see, as (`text` or `image`, the text or the base64, the MIME type)."""
    content = result.get("content")
    shown = [one for block in (content if is_array(content) else ()) for one in _block(block)]
    if not shown and result.get("structuredContent") is not None:
        shown = [("text", msgspec.json.encode(to_jsonable(result["structuredContent"])).decode(), "")]
    return shown


def _block(block: Any) -> list[tuple[str, str, str]]:
    if not is_object(block):
        return []
    match to_jsonable(block):
        case {"type": "text", "text": str(text)}:
            return [("text", text, "")] if text else []
        case {"type": "image" | "audio" as kind, "data": str(data), "mimeType": str(mime_type)}:
            return _media(kind, data, mime_type, "")
        case {"type": "resource_link", "uri": str(uri), **more}:
            name = more.get("title") or more.get("name")
            return [("text", f"[{name}: {uri}]" if name else f"[{uri}]", "")]
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return [("text", f"[{uri}]\n{text}", "")]
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data), **more}}:
            return _media("file", data, str(more.get("mimeType") or "application/octet-stream"), uri)
        case unknown:
            return [("text", f"[content of the type {unknown.get('type')!r}, which cannot be shown here]", "")]


def _media(kind: str, data: str, mime_type: str, uri: str) -> list[tuple[str, str, str]]:
    named = [("text", f"[{uri}]", "")] if uri else []
    if can_show("", mime_type, data):
        return [*named, ("image", data, mime_type)]
    return [*named, ("text", _omission_note(mime_type, data, MEDIA_KINDS.get(kind, "file")), "")]


MEDIA_KINDS: Final = {"image": "picture", "audio": "sound"}
"""The name of binary content in the text that replaces it; all other content is a file."""


def _omission_note(mime_type: str, data: str, what: str) -> str:
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return f"[a {what} ({mime_type}, {size:,} bytes), which cannot be shown here]"
