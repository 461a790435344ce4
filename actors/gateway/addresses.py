"""URIs of upstreams as clients of the gateway see them: `upstream://git/file:///x` is `file:///x` of `git`.

What follows the server's id is the upstream's own URI, character by character, so that templates stay templates and everything comes back. Two
servers that have a resource of the same URI stay two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from greenroom.protocol.wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

SCHEME: Final = "upstream"
_WEB: Final = ("http://", "https://")


class Addresses:
    """The URIs of one gateway."""

    def __init__(self, prefix: str = "") -> None:
        """`prefix` tells two gateways of one server apart."""
        self._prefix = prefix
        self._begin = f"{SCHEME}://"

    def outward(self, server: str, uri: str) -> str:
        """What clients know it as: a URI, or a template."""
        return f"{self._begin}{quote(self._prefix + server, safe='')}/{uri}"

    def inward(self, uri: str) -> tuple[str, str] | None:
        """Whose it is, and what it is there; None when it is not of this gateway."""
        if not uri.startswith(self._begin):
            return None
        server, slash, own = uri[len(self._begin) :].partition("/")
        name = unquote(server)
        if not slash or not name.startswith(self._prefix) or quote(name, safe="") != server:
            return None
        return name[len(self._prefix) :], own

    # --- what upstreams answer

    def contents(self, server: str, result: Mapping[str, Any]) -> dict[str, Any]:
        """A `resources/read` result."""
        contents = result.get("contents")
        return {**result, "contents": [self._with_uri(server, one) for one in contents] if is_array(contents) else []}

    def tool_result(self, server: str, result: Mapping[str, Any], listed: Container[str]) -> dict[str, Any]:
        """A `tools/call` result. An address in the web stays what it is, unless it is in the server's list."""
        content = result.get("content")
        if not is_array(content):
            return dict(result)
        return {**result, "content": [self._block(server, one, listed) for one in content]}

    def prompt(self, server: str, result: Mapping[str, Any], listed: Container[str]) -> dict[str, Any]:
        """A `prompts/get` result."""
        messages = result.get("messages")
        if not is_array(messages):
            return dict(result)
        return {**result, "messages": [self._message(server, one, listed) for one in messages]}

    def _message(self, server: str, message: Any, listed: Container[str]) -> Any:
        if not is_object(message) or "content" not in message:
            return message
        return {**message, "content": self._block(server, message["content"], listed)}

    def _block(self, server: str, block: Any, listed: Container[str]) -> Any:
        match block:
            case {"type": "resource_link", "uri": str(uri)}:
                return block if uri.startswith(_WEB) and uri not in listed else self._with_uri(server, block)
            case {"type": "resource", "resource": resource}:
                return {**block, "resource": self._with_uri(server, resource)}
            case _:
                return block

    def _with_uri(self, server: str, value: Any) -> Any:
        if is_object(value) and isinstance(uri := value.get("uri"), str):
            return {**value, "uri": self.outward(server, uri)}
        return value
