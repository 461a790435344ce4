"""Answers that are too long for a model: the beginning and the end are kept, the whole is in a file, and the answer says so.

Only what goes to a model is cut (`Host.run`, `Agent.call_tool`); what a program asks for itself it gets whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from greenroom.errors import ConfigError
from greenroom.protocol.wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .spill import Kept, Spill

TOKENS: Final = 25_000
BYTES: Final = 1024 * 1024
_HEAD: Final = 2 / 3
"""How much of what is kept is of the beginning."""
_LEAST: Final = 100


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much one answer may have; None is without end. `tokens` are of its text, `bytes` of all that it carries."""

    tokens: int | None = TOKENS
    bytes: int | None = BYTES

    def __post_init__(self) -> None:
        given: Any
        for name, given in (("tokens", self.tokens), ("bytes", self.bytes)):
            if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < _LEAST):
                raise ConfigError(f"{name} of an answer are {_LEAST} or more, or None for no limit, not {given!r}")


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """For a whole host: what holds for all, for a server, and for a tool (`git:log`); what is more particular decides."""

    default: OutputLimit = field(default_factory=OutputLimit)
    servers: Mapping[str, OutputLimit] = field(default_factory=dict[str, OutputLimit])
    tools: Mapping[str, OutputLimit] = field(default_factory=dict[str, OutputLimit])

    def of(self, server: str, tool: str) -> OutputLimit:
        """What holds for this tool."""
        return self.tools.get(f"{server}:{tool}") or self.servers.get(server) or self.default


class Size(NamedTuple):
    """How much an answer has."""

    tokens: int
    bytes: int


def tokens(text: str) -> int:
    """About how many tokens a text is: four characters of ASCII are one, and each other character is one."""
    plain = len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + len(text) - plain


class Limiter:
    """Cuts what is too much."""

    def __init__(self, limits: OutputLimits, spill: Spill, count: Callable[[str], int] = tokens) -> None:
        """`count` counts the tokens of a text, where a program can do that better than by its length."""
        self.limits = limits
        self.spill = spill
        self._count = count

    def size(self, result: Mapping[str, Any]) -> Size:
        """How much an answer has."""
        content: Any = result.get("content")
        texts = [_text(block) for block in content if is_object(block)] if is_array(content) else []
        structured = result.get("structuredContent")
        written = b"" if structured is None else msgspec.json.encode(structured)
        said = sum(self._count(text) for text in texts)
        return Size(max(said, self._count(written.decode())), len(msgspec.json.encode(content)) + len(written))

    def limited(self, server: str, tool: str, result: dict[str, Any]) -> dict[str, Any]:
        """The answer, or what of it fits. Where the rest cannot be kept it says so: what was called has done what it does."""
        limit = self.limits.of(server, tool)
        size = self.size(result)
        if size.tokens <= (limit.tokens or size.tokens) and size.bytes <= (limit.bytes or size.bytes):
            return result
        content: Any = result.get("content")
        blocks = [block for block in content if is_object(block)] if is_array(content) else []
        plain = result.get("structuredContent") is None and bool(blocks)
        only_text = plain and all(block.get("type") == "text" for block in blocks)
        whole = "\n".join(map(_text, blocks))
        data = whole.encode() if only_text else msgspec.json.format(msgspec.json.encode(result))
        kept: Kept | None = None
        try:
            kept = self.spill.keep(f"{server}-{tool}", ".txt" if only_text else ".json", data)
        except OSError as error:
            where = f"the rest could not be kept ({error.strerror or error})"
        else:
            where = f"all of it is in {kept.uri}"
        head, tail = self._ends(whole or msgspec.json.encode(result.get("structuredContent")).decode(), limit)
        note = (
            f"[This answer of {server}:{tool} has about {size.tokens} tokens ({size.bytes} bytes), more than the limit of "
            f"{_told(limit)}. Here are its beginning and its end; {where}]"
        )
        texts = [part for part in (head, note, tail) if part]
        rest = {key: value for key, value in result.items() if key not in ("content", "structuredContent")}
        text = {"type": "text", "text": "\n\n".join(texts)}
        if kept is None:
            return {**rest, "content": [text]}
        link = {
            "type": "resource_link",
            "uri": kept.uri,
            "name": kept.path.name,
            "description": f"The whole answer of {server}:{tool}",
            "mimeType": "text/plain" if only_text else "application/json",
            "size": len(data),
        }
        return {**rest, "content": [text, link]}

    def _ends(self, text: str, limit: OutputLimit) -> tuple[str, str]:
        """The beginning and the end of a text that together are no more than the limit."""
        low, high = 0, len(text)
        while low < high:  # how many characters fit: a text's tokens grow with it
            middle = (low + high + 1) // 2
            head, tail = _cut(text, middle)
            fits = limit.tokens is None or self._count(head) + self._count(tail) <= limit.tokens
            if fits and (limit.bytes is None or len(head.encode()) + len(tail.encode()) <= limit.bytes):
                low = middle
            else:
                high = middle - 1
        return _cut(text, low)


def _cut(text: str, keep: int) -> tuple[str, str]:
    if keep >= len(text):
        return text, ""
    head = int(keep * _HEAD)
    return text[:head], text[len(text) - (keep - head) :] if keep > head else ""


def _text(block: Mapping[str, Any]) -> str:
    resource: Any = block.get("resource")
    found: Any = resource.get("text") if is_object(resource) else block.get("text")
    return found if isinstance(found, str) else ""


def _told(limit: OutputLimit) -> str:
    parts = [f"{limit.tokens} tokens" if limit.tokens else "", f"{limit.bytes} bytes" if limit.bytes else ""]
    return " and ".join(part for part in parts if part)
