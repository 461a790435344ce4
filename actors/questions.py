"""What a handler may ask of the peer, and what comes back: as values, so that a user's no is not an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeGuard, TypeVar, cast

from greenroom.protocol.content import is_block
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.json import is_object
from greenroom.protocol.results import Message
from greenroom.protocol.wire import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T_co]):
    """The user has filled in the form."""

    value: T_co
    action: ClassVar[Literal["accept"]] = "accept"


@dataclass(frozen=True, slots=True)
class Declined:
    """The user has said no."""

    action: ClassVar[Literal["decline"]] = "decline"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The user has closed the form without an answer."""

    action: ClassVar[Literal["cancel"]] = "cancel"


Elicited: TypeAlias = Accepted[T_co] | Declined | Dismissed


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the client's model said."""

    role: str
    content: Any
    """A block, or a list of blocks, as they came."""
    model: str = ""
    stop_reason: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Sampled:
        """Read it from the wire."""
        content = result.get("content")
        if not is_object(content) and not is_list(content):
            raise PeerError(ErrorCode.INTERNAL_ERROR, "the client's answer has no content")
        stop = result.get("stopReason")
        return cls(str(result.get("role", "assistant")), content, str(result.get("model", "")), stop, result)

    @property
    def blocks(self) -> list[Any]:
        """The content as a list."""
        return self.content if is_list(self.content) else [self.content]

    @property
    def text(self) -> str:
        """All that is text in it, one after the other."""
        found = [block.get("text") for block in self.blocks if is_object(block)]
        return "".join(text for text in found if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class Root:
    """A place that the client works in."""

    uri: str
    name: str | None = None


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether it is a JSON array."""
    return isinstance(value, list)


def roots_of(result: Mapping[str, Any]) -> list[Root]:
    """Read them from the wire, leaving out what is none."""
    roots = result.get("roots")
    if not is_list(roots):
        raise PeerError(ErrorCode.INTERNAL_ERROR, "the client's answer has no list of roots")
    return [
        Root(root["uri"], root.get("name")) for root in roots if is_object(root) and isinstance(root.get("uri"), str)
    ]


def sampling_params(messages: Any, **options: Any) -> dict[str, Any]:
    """The params of `sampling/createMessage`. Options of None are left out."""
    one = isinstance(messages, str | Message) or is_object(messages) or is_block(messages)
    params = {"messages": [_message(each) for each in ([messages] if one else cast("Sequence[Any]", messages))]}
    return params | {name: plain(value) for name, value in options.items() if value is not None}


def _message(value: Any) -> dict[str, Any]:
    """A message as the wire has it: a text or block is the user's."""
    if isinstance(value, Message):
        return {"role": value.role, "content": _content(value.content)}
    if is_object(value) and "role" in value:
        message: dict[str, Any] = plain(value)
        return message
    return {"role": "user", "content": _content(value)}


def _content(value: Any) -> Any:
    return {"type": "text", "text": value} if isinstance(value, str) else plain(value)
