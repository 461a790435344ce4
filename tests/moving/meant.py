"""The differences that are meant: each has the words that the page has for it, and tells whether a difference is one of its kind.

A rule that no pair needs any more is found out, as is one that the page does not have.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import is_array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_WRAPPED: Final = {"properties": {"result": {"type": "string"}}, "required": ["result"], "type": "object"}
_REFUSED: Final = ("Invalid arguments for ", "validation error")


def _strict(where: str, left: Any, right: Any) -> bool:
    return where.endswith(".inputSchema.additionalProperties") and (left, right) == (None, False)


def _text(where: str, left: Any, right: Any) -> bool:
    if right is not None or not is_object(left):
        return False
    if where.endswith(".outputSchema"):
        return {key: value for key, value in left.items() if key != "x-fastmcp-wrap-result"} == _WRAPPED
    return where.endswith(".structuredContent") and left.keys() == {"result"} and isinstance(left["result"], str)


def _json_text(where: str, left: Any, right: Any) -> bool:
    if where.endswith(".content[0].text"):
        return _read(right) in (_read(left), [_read(left)])
    if not where.endswith(".answer.content") or not is_array(right) or len(right) != 1:
        return False
    return [_read(each["text"]) for each in left or ()] == [*_items(right[0]["text"])]


def _items(text: str) -> list[Any]:
    items = _read(text)
    return list(items) if is_array(items) else [items]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _validators(where: str, left: Any, right: Any) -> bool:
    return where.endswith(".content[0].text") and all(any(word in each for word in _REFUSED) for each in (left, right))


def _prefixed(where: str, left: Any, right: Any) -> bool:
    if not where.endswith(".content[0].text") or not isinstance(left, str):
        return False
    return re.fullmatch(rf"Error executing tool \w+: {re.escape(str(right))}", left) is not None


def _no_such_tool(where: str, left: Any, right: Any) -> bool:
    if where.endswith(".answer"):
        return bool(is_object(left) and left.get("isError") and right.get("error") == -32602)
    return False


def _codes(where: str, left: Any, right: Any) -> bool:
    return bool(where.endswith(".answer") and left.get("error") is not None and right.get("error") is not None)


def _totals(where: str, left: Any, right: Any) -> bool:
    return left is None and right is not None and where.endswith((".completion.total", ".completion.hasMore"))


def _docstring(where: str, left: Any, right: Any) -> bool:
    return where.endswith(".description") and isinstance(left, str) and inspect.cleandoc(left) == right


def _enumerated(where: str, left: Any, right: Any) -> bool:
    return where.endswith(".type") and (left, right) == ("string", None)


def _form(where: str, left: Any, right: Any) -> bool:
    return where.endswith(".schema.description") and isinstance(left, str) and right is None


def _fastmcp(where: str, left: Any, right: Any) -> bool:
    if where.endswith("._meta"):
        return is_object(left) and left.keys() == {"fastmcp"} and right is None
    return right is None and where.endswith((".x-fastmcp-wrap-result", "._meta.fastmcp"))


def _title(where: str, left: Any, right: Any) -> bool:
    found = re.fullmatch(r"(?:tools|prompts) (\w+)\.title", where)
    return found is not None and right is None and left == found[1].replace("__", "_").replace("_", " ").title()


def _mime_type(where: str, left: Any, right: Any) -> bool:
    return (
        re.match(r"resource", where) is not None
        and where.endswith(".mimeType")
        and (left, right) == ("text/plain", None)
    )


def _repeated(where: str, left: Any, right: Any) -> bool:
    return where.endswith(".contents[0]._meta") and is_object(left) and right is None


MEANT: Final[Mapping[str, Callable[[str, Any, Any], bool]]] = {
    "Arguments that a function does not have": _strict,
    "A tool that returns a string": _text,
    "The text beside a structured result": _json_text,
    "The text for wrong arguments": _validators,
    "The text of a ToolError": _prefixed,
    "An unknown tool": _no_such_tool,
    "Errors of resources and prompts": _codes,
    "The number of completions": _totals,
    "A docstring of several lines": _docstring,
    "A choice of strings": _enumerated,
    "A form's docstring": _form,
    "FastMCP's own marks": _fastmcp,
    "Generated titles": _title,
    "The MIME type of a text": _mime_type,
    "A resource's metadata": _repeated,
}
"""By the words on the page."""


def meant_by(where: str, left: Any, right: Any) -> str | None:
    """Which of them it is, if any."""
    return next((words for words, holds in MEANT.items() if holds(where, left, right)), None)


def unmeant(found: Sequence[tuple[str, Any, Any]], used: set[str]) -> list[tuple[str, Any, Any]]:
    """Those that are none of them; whichever is needed is noted in `used`."""
    left_over: list[tuple[str, Any, Any]] = []
    for each in found:
        words = meant_by(*each)
        if words is None:
            left_over.append(each)
        else:
            used.add(words)
    return left_over
