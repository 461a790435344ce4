"""What `ctx.elicit()` and its like return: something to be awaited, that says so where it is not.

A coroutine of Python's own is thrown away with a warning on stderr, and what was meant to be the user's answer is a coroutine in the handler: it fails no
`if`, and matches no case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeGuard,
    TypeVar,
    cast,
    overload,
)

from greenroom.errors import GreenroomError
from greenroom.protocol.content import Text, ToolResult, ToolUse, is_block, sampled_blocks
from greenroom.protocol.elicitation_forms import UrlElicitation, new_elicitation_id
from greenroom.protocol.errors import BadAnswer
from greenroom.protocol.handler_results import Message
from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import to_jsonable
from greenroom.protocol.validation_errors import Mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from greenroom.protocol.content import IncludeContext, SampledBlock, ToolChoice

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class NotAwaited(GreenroomError, AttributeError):
    """A handler has asked the client something and did not await the answer, so nothing was asked."""

    def __init__(self, what: str) -> None:
        """`what` was called."""
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}() was not awaited: write `answer = await {self.what}(…)`, or in a plain def `answer = ctx.wait({self.what}(…))`"


class AwaitableQuestion(Coroutine[Any, Any, T_co]):
    """A question to the client, asked when it is awaited."""

    __slots__ = ("_coroutine", "is_started", "what")

    def __init__(self, what: str, asking: Coroutine[Any, Any, T_co]) -> None:
        """`what` was called."""
        self.what = what
        self._coroutine = asking
        self.is_started = False

    def __await__(self) -> Generator[Any, Any, T_co]:
        self.is_started = True
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """As a coroutine's: a task does it."""
        self.is_started = True
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        """As a coroutine's."""
        self.is_started = True
        return (
            self._coroutine.throw(kind)
            if value is None and traceback is None
            else self._coroutine.throw(kind, value, traceback)
        )

    def close(self) -> None:
        """As a coroutine's."""
        self._coroutine.close()

    def __bool__(self) -> bool:
        raise NotAwaited(self.what)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "cr_")):  # what asyncio looks at
            return getattr(self._coroutine, name)
        raise NotAwaited(self.what)

    def __repr__(self) -> str:
        return f"<{self.what}(), {'begun' if self.is_started else 'not awaited'}>"


S = TypeVar("S", bound="ClientRequester")


def returns_question(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """For methods that ask the client: what they return is a `AwaitableQuestion`."""

    @wraps(method)
    def ask(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        asking: Any = method(self, *args, **kwargs)
        question: AwaitableQuestion[T] = AwaitableQuestion(f"ctx.{method.__name__.lstrip('_')}", asking)
        self.note_question(question)
        return question

    return ask


# --- What a client may be asked, in Python's own words: its model, its user, its roots.
# An object that can send a request can ask all of it: a handler's context does, and what stands for a peer outside of any call does too.


class ClientRequester:
    """Derive from it what has `request`."""

    __slots__ = ()

    def note_question(self, question: AwaitableQuestion[Any]) -> None:
        """A question was made with this; nothing is known here of when it ought to have been awaited."""

    @returns_question
    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a request to the client, and wait for its result."""
        raise NotImplementedError

    @returns_question
    async def sample(  # noqa: PLR0913 - the protocol's own parameters
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        model_preferences: Mapping[str, Any] | None = None,
        include_context: IncludeContext | None = None,
        tools: Sequence[Any] = (),
        tool_choice: ToolChoice | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Sampled:
        """Have the client's model continue `messages`: a text, a message, or several; what it said before goes in as it came.

        With `tools`, it may answer with uses of them (`said.tool_uses`), each of which wants a `ToolResult` in the next message. Raises
        `LocalProtocolError` for a conversation that no client would take.
        """
        params = sampling_params(
            messages,
            maxTokens=max_tokens,
            systemPrompt=system_prompt,
            temperature=temperature,
            stopSequences=list(stop) or None,
            modelPreferences=model_preferences,
            includeContext=include_context,
            tools=list(tools) or None,
            toolChoice=None if tool_choice is None else {"mode": tool_choice},
            metadata=metadata,
        )
        return Sampled.of(await self.request("sampling/createMessage", params, timeout=timeout))

    @overload
    async def elicit(
        self, message: str, form: Mapping[str, Any], *, timeout: float | None = ...
    ) -> Elicited[dict[str, Any]]: ...

    @overload
    async def elicit(self, message: str, form: None = ..., *, timeout: float | None = ...) -> Elicited[None]: ...

    @overload
    async def elicit(self, message: str, form: type[T], *, timeout: float | None = ...) -> Elicited[T]: ...

    def elicit(
        self, message: str, form: Any = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, Elicited[Any]]:
        """Have the user fill in a form: a class with fields, a type for one field, or a schema; without any, only agree or not.

        `Accepted(value)`, `Declined()` or `Dismissed()`. Raises `BadAnswer` when what the client sends does not fit. Never ask for
        passwords, keys or payment details so: that is what `elicit_url` is for.
        """
        return self._elicit(message, form, timeout)

    @returns_question
    async def _elicit(self, message: str, form: Any, timeout: float | None) -> Elicited[Any]:
        from greenroom.protocol.elicitation_forms import form_of, parse_answer  # noqa: PLC0415 - few ask, and it is much to load

        asked = {"message": message, "requestedSchema": form_of(form)}
        result = await self.request("elicitation/create", asked, timeout=timeout)
        return elicited(result, lambda content: parse_answer(form, content))

    @returns_question
    async def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, *, timeout: float | None = None
    ) -> Elicited[str]:
        """Have the user visit a page; `{elicitation_id}` in the address is replaced by its id, which is made unless it is given.

        `Accepted(id)` means that they agreed to go there, not that they are done: `server.elicitation_complete(id)` says that.
        """
        visit = UrlElicitation(message, url, new_elicitation_id() if elicitation_id is None else elicitation_id)
        result = await self.request("elicitation/create", visit.to_wire(), timeout=timeout)
        return elicited(result, lambda _: visit.id)

    @returns_question
    async def roots(self, *, timeout: float | None = None) -> list[Root]:
        """Which folders or other places the client works in."""
        return roots_of(await self.request("roots/list", timeout=timeout))


# --- What a handler may ask of the peer, and what comes back: as values, so that a user's no is not an exception.


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
    blocks: Sequence[SampledBlock | Mapping[str, Any]] = ()
    """The content as a list of values: `Text`, `Image`, `Audio`, `ToolUse`; what is none of them as it came."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Sampled:
        """Read it from the wire. Raises `BadAnswer`."""
        content = result.get("content")
        if not is_object(content) and not is_list(content):
            raise BadAnswer("the client's answer has no content")
        role, model = str(result.get("role", "assistant")), str(result.get("model", ""))
        return cls(role, content, model, result.get("stopReason"), result, sampled_blocks(content))

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
    return params | {name: to_jsonable(value) for name, value in options.items() if value is not None}


def _message(value: Any) -> dict[str, Any]:
    """A message as the wire has it: a text, a block or several are the user's, and what a model said is its own."""
    if isinstance(value, Sampled):
        value = value.message
    if isinstance(value, Message):
        return {"role": value.role, "content": _content(value.content)}
    if is_object(value) and "role" in value:
        return {**to_jsonable(value), "content": _content(value.get("content"))}
    return {"role": "user", "content": _content(value)}


def _content(value: Any) -> Any:
    if is_list(value):
        return [_content(each) for each in value]
    return {"type": "text", "text": value} if isinstance(value, str) else to_jsonable(value)


def _is_block(value: Any) -> bool:
    return isinstance(value, ToolUse | ToolResult) or is_block(value)
