"""What a handler may ask of the peer, and what comes back: as values, so that a user's no is not an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeGuard, TypeVar, cast

from greenroom.protocol.content import Text, is_block
from greenroom.protocol.errors import BadAnswer
from greenroom.protocol.json import is_object
from greenroom.protocol.problems import Mismatch
from greenroom.protocol.results import Message
from greenroom.protocol.sampling import ToolResult, ToolUse, said_blocks
from greenroom.protocol.wire import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.protocol.sampling import SaidBlock

T = TypeVar("T")
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


def elicited(result: Mapping[str, Any], read: Callable[[Any], T]) -> Elicited[T]:
    """What came back; `read` makes the value of an acceptance. Raises `BadAnswer` for what is none of these, or does not fit."""
    match result.get("action"):
        case "accept":
            try:
                return Accepted(read(result.get("content")))
            except Mismatch as error:
                raise BadAnswer(f"the client's answer does not fit the form: {error}", error.errors) from error
        case "decline":
            return Declined()
        case "cancel":
            return Dismissed()
        case other:
            raise BadAnswer(f"the client answered with the action {other!r}, which is none")


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the client's model said."""

    role: str
    content: Any
    """A block, or a list of blocks, as they came."""
    model: str = ""
    stop_reason: str | None = None
    """`"endTurn"`, `"stopSequence"`, `"maxTokens"`, `"toolUse"`, or a word of the model's own."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    blocks: Sequence[SaidBlock | Mapping[str, Any]] = ()
    """The content as a list of values: `Text`, `Image`, `Audio`, `ToolUse`; what is none of them as it came."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Sampled:
        """Read it from the wire. Raises `BadAnswer`."""
        content = result.get("content")
        if not is_object(content) and not is_list(content):
            raise BadAnswer("the client's answer has no content")
        role, model = str(result.get("role", "assistant")), str(result.get("model", ""))
        return cls(role, content, model, result.get("stopReason"), result, said_blocks(content))

    @property
    def text(self) -> str:
        """All that is text in it, one after the other."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tools that the model wants to be called; each has to get its `ToolResult` in the next message."""
        return [block for block in self.blocks if isinstance(block, ToolUse)]

    @property
    def message(self) -> Message:
        """The same as a message, to go on from."""
        return Message("assistant" if self.role == "assistant" else "user", self.content)


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
        raise BadAnswer("the client's answer has no list of roots")
    return [
        Root(root["uri"], root.get("name")) for root in roots if is_object(root) and isinstance(root.get("uri"), str)
    ]


def sampling_params(messages: Any, **options: Any) -> dict[str, Any]:
    """The params of `sampling/createMessage`. Options of None are left out."""
    one = isinstance(messages, str | Message | Sampled) or is_object(messages) or _is_block(messages)
    params = {"messages": [_message(each) for each in ([messages] if one else cast("Sequence[Any]", messages))]}
    return params | {name: plain(value) for name, value in options.items() if value is not None}


def _message(value: Any) -> dict[str, Any]:
    """A message as the wire has it: a text, a block or several are the user's, and what a model said is its own."""
    if isinstance(value, Sampled):
        value = value.message
    if isinstance(value, Message):
        return {"role": value.role, "content": _content(value.content)}
    if is_object(value) and "role" in value:
        return {**plain(value), "content": _content(value.get("content"))}
    return {"role": "user", "content": _content(value)}


def _content(value: Any) -> Any:
    if is_list(value):
        return [_content(each) for each in value]
    return {"type": "text", "text": value} if isinstance(value, str) else plain(value)


def _is_block(value: Any) -> bool:
    return isinstance(value, ToolUse | ToolResult) or is_block(value)
