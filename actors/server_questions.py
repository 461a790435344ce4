"""Questions of a server to its client: sampling, elicitation and roots, as methods that return an awaitable.

Python discards a coroutine that is not awaited with only a warning on stderr, and the handler would go on with a coroutine in place of the user's answer: it
fails no `if`, and matches no case. `AwaitableQuestion` raises `NotAwaited` where it is used like an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial, wraps
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
from greenroom.protocol.elicitation_forms import UrlElicitation, form_of, new_elicitation_id, parse_answer
from greenroom.protocol.errors import BadAnswer
from greenroom.protocol.handler_results import Message
from greenroom.protocol.input_required import (
    InputRequired,
    RecordedAnswers,
    bad_response,
    check_response,
    default_key,
    question_digest,
    stateless_params,
)
from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import to_jsonable
from greenroom.protocol.validation_errors import Mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from greenroom.protocol.content import IncludeContext, SampledBlock, ToolChoice

T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class NotAwaited(GreenroomError, AttributeError):
    """A handler did not await its question to the client, so nothing was asked."""

    def __init__(self, what: str) -> None:
        """`what` is the method that was called."""
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}() was not awaited: write `answer = await {self.what}(…)`, or in a plain def `answer = ctx.wait({self.what}(…))`"


class AwaitableQuestion(Coroutine[Any, Any, T_co]):
    """A question to the client, sent when it is awaited."""

    __slots__ = ("_coroutine", "is_started", "what")

    def __init__(self, what: str, asking: Coroutine[Any, Any, T_co]) -> None:
        """`what` is the method that was called."""
        self.what = what
        self._coroutine = asking
        self.is_started = False

    def __await__(self) -> Generator[Any, Any, T_co]:
        self.is_started = True
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """As for a coroutine: a task calls it."""
        self.is_started = True
        return self._coroutine.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        """As for a coroutine."""
        self.is_started = True
        return (
            self._coroutine.throw(kind)
            if value is None and traceback is None
            else self._coroutine.throw(kind, value, traceback)
        )

    def close(self) -> None:
        """As for a coroutine."""
        self._coroutine.close()

    def __bool__(self) -> bool:
        raise NotAwaited(self.what)

    def __getattr__(self, name: str) -> Any:
        # asyncio reads these to treat it as a coroutine (`create_task`, `wait_for`, a task's repr). Any other attribute is
        # one of the answer's, looked up on the question by mistake.
        if name.startswith(("__", "cr_")):
            return getattr(self._coroutine, name)
        raise NotAwaited(self.what)

    def __repr__(self) -> str:
        return f"<{self.what}(), {'begun' if self.is_started else 'not awaited'}>"


S = TypeVar("S", bound="ClientRequester")


def returns_question(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorator for methods that ask the client: they return an `AwaitableQuestion`."""

    @wraps(method)
    def ask(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        asking: Any = method(self, *args, **kwargs)
        question: AwaitableQuestion[T] = AwaitableQuestion(f"ctx.{method.__name__.lstrip('_')}", asking)
        self.note_question(question)
        return question

    return ask


# --- The questions as methods, for every object that can send a request: a handler's context, and a peer outside of
# any call.


class ClientRequester:
    """Mixin with all questions, for a class that has `request`."""

    __slots__ = ()

    def note_question(self, question: AwaitableQuestion[Any]) -> None:
        """Called for each new question. This class does not know when it should have been awaited."""

    @returns_question
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Send a request to the client, and wait for its result.

        In the stateless era `key` names the question on the wire; one is made unless given.
        """
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
        key: str | None = None,
    ) -> Sampled:
        """Have the client's model continue `messages`: a text, a message, or several. Earlier answers are passed on unchanged.

        With `tools`, it may answer with uses of them (`answer.tool_uses`), each of which needs a `ToolResult` in the
        next message. Raises `LocalProtocolError` for a conversation that no client would accept.
        """
        question = Question.sample(
            messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop=stop,
            model_preferences=model_preferences,
            include_context=include_context,
            tools=tools,
            tool_choice=tool_choice,
            metadata=metadata,
        )
        return question.read(await self.request(question.method, question.params, timeout=timeout, key=key))

    @overload
    async def elicit(
        self, message: str, form: Mapping[str, Any], *, timeout: float | None = ..., key: str | None = ...
    ) -> Elicited[dict[str, Any]]: ...

    @overload
    async def elicit(
        self, message: str, form: None = ..., *, timeout: float | None = ..., key: str | None = ...
    ) -> Elicited[None]: ...

    @overload
    async def elicit(
        self, message: str, form: type[T], *, timeout: float | None = ..., key: str | None = ...
    ) -> Elicited[T]: ...

    def elicit(
        self, message: str, form: Any = None, *, timeout: float | None = None, key: str | None = None
    ) -> Coroutine[Any, Any, Elicited[Any]]:
        """Have the user fill in a form: a class with fields, a type for one field, or a schema; without any, only agree or not.

        `Accepted(value)`, `Declined()` or `Dismissed()`. Raises `BadAnswer` when the client's answer does not fit.
        Never ask for passwords, keys or payment details this way: use `elicit_url`.
        """
        return self._elicit(message, form, timeout, key)

    @returns_question
    async def _elicit(self, message: str, form: Any, timeout: float | None, key: str | None) -> Elicited[Any]:
        question = _elicitation(message, form, None)
        read, answer = question.read, self.request(question.method, question.params, timeout=timeout, key=key)
        del question  # a user takes long to answer, and many calls may wait for theirs
        return read(await answer)

    @returns_question
    async def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = None,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> Elicited[str]:
        """Have the user open a page. `{elicitation_id}` in the address is replaced by the elicitation's id, which is made unless it is given.

        `Accepted(id)` means that they agreed to go there, not that they are done: `server.elicitation_complete(id)`
        reports that.
        """
        question = Question.elicit_url(message, url, new_elicitation_id() if elicitation_id is None else elicitation_id)
        return question.read(await self.request(question.method, question.params, timeout=timeout, key=key))

    @returns_question
    async def roots(self, *, timeout: float | None = None, key: str | None = None) -> list[Root]:
        """The folders or other places that the client works in."""
        question = Question.roots()
        return question.read(await self.request(question.method, question.params, timeout=timeout, key=key))


# --- Questions as values: what a context's methods send, and what an `InputRequired` asks for.


class Question(Generic[T_co]):
    """A question to the client as a value: `Question.elicit("Which city?", City)`. `ctx.answers` has its answer when the handler runs again.

    It is the key of its own answer: an equal question gets the same answer, in whatever process it was made.
    """

    __slots__ = ("_digest", "_key", "_wire_params", "method", "params", "read")

    def __init__(
        self, method: str, params: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T_co], key: str | None = None
    ) -> None:
        """`read` makes the value of a result, and raises `BadAnswer` for one that does not fit. `key` is its name on the wire: made unless given."""
        self.method = method
        self.params = params
        self.read = read
        self._key = key
        self._wire_params: dict[str, Any] | None = None
        self._digest: bytes | None = None

    def __repr__(self) -> str:
        return f"<Question {self._key or self.method}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # For a reply that crosses processes, which needs what is sent. The reader has the author's types and stays.
        return unread_question, (self.method, self.params, self._key)

    @property
    def wire_params(self) -> Mapping[str, Any]:
        """The params as the stateless era sends them. Raises `LocalProtocolError` for a question that no client would accept."""
        if self._wire_params is None:
            self._wire_params = stateless_params(self.method, self.params)
        return self._wire_params

    @property
    def digest(self) -> bytes:
        """The identity of the question: that of its method and params."""
        if self._digest is None:
            self._digest = question_digest(self.method, self.wire_params)
        return self._digest

    @property
    def key(self) -> str:
        """Its key among the questions of a reply."""
        return self._key or default_key(self.method, self.digest)

    def answer_of(self, response: dict[str, Any]) -> T_co:
        """The value of a client's response. Raises `McpError` (-32602) for one that does not fit."""
        check_response(self.method, response, self.key)
        try:
            return self.read(response)
        except BadAnswer as error:
            raise bad_response(self.key, error) from None

    @staticmethod
    def sample(  # noqa: PLR0913 - the protocol's own parameters
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
        key: str | None = None,
    ) -> Question[Sampled]:
        """Have the client's model continue `messages`, as `ctx.sample` does."""
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
        return Question("sampling/createMessage", params, Sampled.of, key)

    @overload
    @staticmethod
    def elicit(
        message: str, form: Mapping[str, Any], *, key: str | None = ...
    ) -> Question[Elicited[dict[str, Any]]]: ...

    @overload
    @staticmethod
    def elicit(message: str, form: None = ..., *, key: str | None = ...) -> Question[Elicited[None]]: ...

    @overload
    @staticmethod
    def elicit(message: str, form: type[T], *, key: str | None = ...) -> Question[Elicited[T]]: ...

    @staticmethod
    def elicit(message: str, form: Any = None, *, key: str | None = None) -> Question[Any]:
        """Have the user fill in a form, as `ctx.elicit` does."""
        return _elicitation(message, form, key)

    @staticmethod
    def elicit_url(message: str, url: str, elicitation_id: str, *, key: str | None = None) -> Question[Elicited[str]]:
        """Have the user open a page, as `ctx.elicit_url` does.

        The id has to be the same when the handler runs again: keep it in the state of the `InputRequired`.
        """
        elicitation = UrlElicitation(message, url, elicitation_id)
        return Question(
            "elicitation/create", elicitation.to_wire(), lambda result: elicited(result, lambda _: elicitation.id), key
        )

    @staticmethod
    def roots(*, key: str | None = None) -> Question[list[Root]]:
        """The folders or other places that the client works in, as `ctx.roots` asks for them."""
        return Question("roots/list", {}, roots_of, key)


def _elicitation(message: str, form: Any, key: str | None) -> Question[Elicited[Any]]:
    params = {"message": message, "requestedSchema": form_of(form)}
    return Question("elicitation/create", params, partial(_filled_form, form), key)


def _filled_form(form: Any, result: Mapping[str, Any]) -> Elicited[Any]:
    return elicited(result, partial(parse_answer, form))


def unread_question(method: str, params: Mapping[str, Any], key: str | None) -> Question[Mapping[str, Any]]:
    """A question whose answer is its result, for a process that only sends it."""
    return Question(method, params, lambda result: result, key)


class Answers:
    """The client's answers to the questions of an `InputRequired`, of this round and those before it: `ctx.answers`."""

    __slots__ = ("_recorded", "_responses")

    def __init__(
        self, responses: Mapping[str, dict[str, Any]] | None = None, recorded: RecordedAnswers | None = None
    ) -> None:
        """`responses` are those of this request, by key; `recorded` gets those that are read, for the next round."""
        self._responses: Mapping[str, dict[str, Any]] = {} if responses is None else responses
        self._recorded = RecordedAnswers() if recorded is None else recorded

    def __repr__(self) -> str:
        return f"<Answers, {len(self._responses)} of this request>"

    @property
    def recorded(self) -> RecordedAnswers:
        """The answers that were read, for the next round."""
        return self._recorded

    def with_responses(self, responses: Mapping[str, dict[str, Any]]) -> Answers:
        """The same with further responses."""
        return Answers({**self._responses, **responses}, self._recorded)

    def get(self, question: Question[T]) -> T | None:
        """The answer, as the awaited form of the question returns it; None if the client has not given one.

        Raises `McpError` (-32602) for an answer that does not fit, which ends the call when it is not caught.
        """
        response = self._responses.get(question.key)
        if response is None:
            earlier = self._recorded.find(question.digest)
            return None if earlier is None else question.answer_of(earlier)
        answer = question.answer_of(response)
        self._recorded.put(question.digest, response)
        return answer

    def __contains__(self, question: Question[Any]) -> bool:
        return question.key in self._responses or self._recorded.find(question.digest) is not None

    @overload
    def require(self, question: Question[T], /, *, state: Any = ...) -> T: ...

    @overload
    def require(self, one: Question[T], two: Question[T2], /, *, state: Any = ...) -> tuple[T, T2]: ...

    @overload
    def require(
        self, one: Question[T], two: Question[T2], three: Question[T3], /, *, state: Any = ...
    ) -> tuple[T, T2, T3]: ...

    @overload
    def require(
        self,
        one: Question[Any],
        two: Question[Any],
        three: Question[Any],
        four: Question[Any],
        /,
        *more: Question[Any],
        state: Any = ...,
    ) -> tuple[Any, ...]: ...

    def require(self, *questions: Question[Any], state: Any = None) -> Any:
        """The answers to these questions. Raises `InputRequired` for those that the client has not answered: then the call ends with them.

        One question gives its answer, several give a tuple.
        """
        found = [self.get(question) for question in questions]
        missing = [question for question, answer in zip(questions, found, strict=True) if answer is None]
        if missing:
            raise InputRequired(*missing, state=state)
        return found[0] if len(found) == 1 else tuple(found)


# --- Answers as values, so that a user's no is not an exception.


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
    """The answer as a value; `read` makes the value of an acceptance.

    Raises `BadAnswer` for an unknown action, or a value that does not fit.
    """
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
            raise BadAnswer(f"the client answered with the action {other!r}, which is not one of the protocol")


@dataclass(frozen=True, slots=True)
class Sampled:
    """The message of the client's model."""

    role: str
    content: Any
    """A block, or a list of blocks, unchanged."""
    model: str = ""
    stop_reason: str | None = None
    """`"endTurn"`, `"stopSequence"`, `"maxTokens"`, `"toolUse"`, or another reason of the model."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    blocks: Sequence[SampledBlock | Mapping[str, Any]] = ()
    """The content as a list of values: `Text`, `Image`, `Audio`, `ToolUse`; unknown blocks unchanged."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Sampled:
        """Read it from the wire form. Raises `BadAnswer`."""
        content = result.get("content")
        if not is_object(content) and not is_list(content):
            raise BadAnswer("the client's answer has no content")
        role, model = str(result.get("role", "assistant")), str(result.get("model", ""))
        return cls(role, content, model, result.get("stopReason"), result, sampled_blocks(content))

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tools that the model wants to call; each needs a `ToolResult` in the next message."""
        return [block for block in self.blocks if isinstance(block, ToolUse)]

    @property
    def message(self) -> Message:
        """The answer as a message, to continue the conversation from."""
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
    """Read roots from the wire form. Invalid ones are left out."""
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
    """The wire form of a message. A text, a block or several are the user's; a `Sampled` is the model's."""
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
