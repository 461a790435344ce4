"""`CallbackHandler`: a client's handler made of plain functions, one for each kind of request or notification, each sync or async.

The declared capabilities follow from the functions that are given. Each request is answered in a process of its own; a plain `def` runs in
a thread, so that one that blocks (on a model, on a user) delays no other. Notifications are passed to their function in order.
"""

from __future__ import annotations

import inspect
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from greenroom.actors.client.client_handler import ClientHandler, asking_call
from greenroom.actors.client.interfaces import ServerNotification
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.server_questions import Accepted, Declined, Dismissed, Elicited, Root, Sampled
from greenroom.actors.worker_interfaces import accepts_arguments
from greenroom.protocol.content import ToolUse, check_sampling, is_block, sampled_blocks, uses_tools
from greenroom.protocol.errors import BadAnswer, ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.handler_results import Message, blocks
from greenroom.protocol.methods import check_params
from greenroom.protocol.received_results import read_log, read_message, text_of
from greenroom.protocol.serialization import is_array, is_object, to_jsonable
from greenroom.protocol.validation_errors import Mismatch, ProblemReason, StepMeter, ValidationProblem
from greenroom.supervision import Threads, visible

from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from greenroom.actors.client.client_handler import AskingCall
    from greenroom.actors.client.interfaces import Line
    from greenroom.protocol.received_results import LogMessage

SamplingCallback: TypeAlias = "Callable[[SamplingRequest], Any]"
ElicitationCallback: TypeAlias = "Callable[[ElicitationRequest], Any]"
UrlElicitationCallback: TypeAlias = "Callable[[UrlElicitationRequest], Any]"
Roots: TypeAlias = "Iterable[Any] | Callable[[], Any]"
LogCallback: TypeAlias = "Callable[[LogMessage], Any]"
NotificationCallback: TypeAlias = "Callable[[ServerNotification], Any]"

_log: Final = logging.getLogger("greenroom.client")
_THREADS = 8
"""Threads for plain functions of one client; further calls wait."""


@dataclass(eq=False, repr=False, kw_only=True)
class CallbackHandler(ClientHandler):
    """Answers requests with the given functions, and passes the rest to another handler."""

    sampling: SamplingCallback | None = None
    elicitation: ElicitationCallback | None = None
    url_elicitation: UrlElicitationCallback | None = None
    roots: Roots | None = None
    on_log: LogCallback | None = None
    on_notification: NotificationCallback | None = None
    rest: ClientHandler = field(default_factory=ClientHandler)
    """Handles requests without a function here, and receives every notification."""
    allowed: Callable[[str, AskingCall | None], Awaitable[None]] | None = None
    """Called with a question's message, and the call during which it came. Raises `ConsentDenied` if the server may not ask the user."""
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """Extensions to declare, with their settings."""
    model_uses_tools: bool = False
    """Whether `sampling.tools` was declared."""
    _threads: Threads = field(default_factory=lambda: Threads(_THREADS), init=False)

    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities for which there is a function, and those of the other handler."""
        modes = {"form": self.elicitation, "url": self.url_elicitation}
        modes_with_function: dict[str, Any] = {mode: {} for mode, function in modes.items() if function is not None}
        own: dict[str, Any] = {"elicitation": modes_with_function} if modes_with_function else {}
        if self.sampling is not None:
            own["sampling"] = {}
        if self.roots is not None:
            own["roots"] = {"listChanged": True}
        rest = self.rest.capabilities()
        if self.extensions:
            own["extensions"] = {**(rest.get("extensions") or {}), **self.extensions}
        return {**rest, **own}

    def init(self, line: Line) -> Awaitable[None] | None:
        """Pass the start of the connection to the other handler."""
        return self.rest.init(line)

    def terminate(self) -> Awaitable[None] | None:
        """Pass the end of the connection to the other handler."""
        return self.rest.terminate()

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        """Answer with the function for this request, or with the other handler."""
        call = asking_call()
        match method:
            case "sampling/createMessage" if self.sampling is not None:
                request = SamplingRequest.of(params, tools=self.model_uses_tools, call=call)
                return request.to_result(await self._ask(self.sampling, request))
            case "elicitation/create":
                return await self._elicit(params, call)
            case "roots/list" if self.roots is not None:
                roots = self.roots
                return roots_result(await self._ask(roots) if callable(roots) else roots)
            case _:
                return await self._pass_on(method, params)

    async def _elicit(self, params: dict[str, Any], call: AskingCall | None) -> Any:
        """Answer a question for the user. One that could not be shown is refused before the user is asked whether the server may ask."""
        mode: Any = params.get("mode", "form")
        page = form = None
        if mode == "url" and self.url_elicitation is not None:
            page = UrlElicitationRequest.of(params, call=call)
        elif mode == "form" and self.elicitation is not None:
            form = ElicitationRequest.of(params, call=call)
        elif (self.elicitation or self.url_elicitation) and "elicitation" not in self.rest.capabilities():
            raise McpError(
                ErrorCode.INVALID_PARAMS, f"this client declares no elicitation of the mode {visible(str(mode), 40)}"
            )
        if not await self._may_ask(str(params.get("message", "")), call):
            return {"action": "decline"}
        if page is not None:
            return page.to_result(await self._ask(self.url_elicitation, page))
        if form is not None:
            return form.to_result(await self._ask(self.elicitation, form))
        return await self._pass_on("elicitation/create", params)

    async def _pass_on(self, method: str, params: dict[str, Any]) -> Any:
        answer = self.rest.handle_request(method, params)
        return await answer if inspect.isawaitable(answer) else answer

    async def handle_notification(self, method: str, params: dict[str, Any]) -> None:
        """Pass the notification to its functions, and to the other handler."""
        if method == "notifications/message" and self.on_log is not None:
            await call_and_await(self.on_log, read_log(params))
        if self.on_notification is not None:
            await call_and_await(self.on_notification, ServerNotification(method, params))
        passed_on = self.rest.handle_notification(method, params)
        if passed_on is not None:
            await passed_on

    def wants_list_changes(self) -> bool:
        """Whether any function or handler gets them."""
        return self.on_notification is not None or self.rest.wants_list_changes()

    def wants_logs(self) -> bool:
        """Whether any function or handler gets them."""
        return self.on_log is not None or self.on_notification is not None or self.rest.wants_logs()

    async def _may_ask(self, message: str, call: AskingCall | None) -> bool:
        """Whether the server may ask the user. A refusal looks like a user's decline: the server learns nothing of the rules."""
        if self.allowed is None:
            return True
        try:
            await self.allowed(message, call)
        except ConsentDenied as error:
            _log.info("a question was declined: %s", error)
            return False
        return True

    async def _ask(self, function: Any, *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - the object's `__call__` may be async, which `callable` does not tell
            return await function(*arguments)
        answer = await self._threads.run(function, *arguments)
        return await answer if inspect.isawaitable(answer) else answer


async def call_and_await(function: Callable[[Any], Any], value: Any) -> None:
    """Call the function, and await its result if it is awaitable."""
    answer = function(value)
    if inspect.isawaitable(answer):
        await answer


_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "sampling": ("request",),
    "elicitation": ("request",),
    "url_elicitation": ("request",),
    "roots": (),
    "on_log": ("message",),
    "on_progress": ("step",),
    "on_notification": ("notification",),
}
"""The arguments of each function."""


def check_callbacks(functions: Mapping[str, Any], *first: str) -> None:
    """Raise `ConfigError` for a function that does not take its arguments; `first` come before them."""
    for name, function in functions.items():
        given = (*first, *_ARGUMENTS[name])
        if function is not None and not accepts_arguments(function, len(given)):
            raise ConfigError(f"{name} is a function of {len(given)} ({', '.join(given)}), not {function!r}")


def check_roots(roots: Any) -> Any:
    """Check roots, or the function that returns them. Raises `TypeError`."""
    if roots is None or callable(roots):
        return roots
    if isinstance(roots, str | bytes) or is_object(roots) or not (is_array(roots) or hasattr(roots, "__iter__")):
        raise TypeError(f"roots are a list of paths, URIs or Root, or a function that returns one; not {roots!r}")
    found = list(roots)
    roots_result(found)
    return found


# --- Requests of a server as values for the functions that answer them: a conversation to continue, a form to fill in, a page to open.
# Each makes its answers: `request.accept(…)`, `request.decline()`, `request.cancel()`, and `request.answer(…)` for a conversation. Answers
# are checked where they are made, so that a mistake raises in the code that made it, and is not sent to the server.

REJECTED: Final = "User rejected sampling request"


class _OfCall:
    """The call in whose reply a request came."""

    __slots__ = ()
    call: AskingCall | None

    @property
    def call_text(self) -> str:
        """That call in one line, for the user: `send_mail(to='Ada')`, with long values cut and secrets hidden; empty where it is not known."""
        from greenroom.actors.consent.call_text import call_text  # noqa: PLC0415 - few clients show it

        return call_text(self.call)


# --- sampling


@dataclass(frozen=True, slots=True)
class SamplingRequest(_OfCall):
    """A request for your model to continue a conversation. Answer with a text, with blocks, or with `answer(…)`."""

    messages: Sequence[Message]
    """The conversation so far. `content` is a block, or a list of blocks."""
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] = ()
    model_preferences: Mapping[str, Any] = field(default_factory=dict[str, Any])
    include_context: str = "none"
    tools: Sequence[Mapping[str, Any]] = ()
    """The tools that the model may use, as the server defined them: `name`, `description`, `inputSchema`."""
    tool_choice: str = "auto"
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    call: AskingCall | None = field(default=None, repr=False)
    """The call of this client in whose reply the server asks; None where that is not certain."""

    @classmethod
    def of(cls, params: Mapping[str, Any], *, tools: bool = True, call: AskingCall | None = None) -> SamplingRequest:
        """Read a request from the wire. `tools` is whether your model may use tools. Raises `McpError` for invalid params."""
        params = dict(params)
        check_params("sampling/createMessage", params)
        try:
            check_sampling(params)
            messages = [read_message(one) for one in params["messages"]]
        except (LocalProtocolError, BadAnswer) as error:
            raise McpError(ErrorCode.INVALID_PARAMS, str(error)) from None
        if not tools and uses_tools(params):
            raise McpError(
                ErrorCode.INVALID_PARAMS, "this client's model uses no tools: it does not declare sampling.tools"
            )
        choice: Any = params.get("toolChoice")
        return cls(
            messages,
            params["maxTokens"],
            params.get("systemPrompt"),
            params.get("temperature"),
            params.get("stopSequences") or (),
            params.get("modelPreferences") or {},
            params.get("includeContext") or "none",
            params.get("tools") or (),
            choice.get("mode", "auto") if is_object(choice) else "auto",
            params.get("metadata") or {},
            params,
            call,
        )

    @property
    def text(self) -> str:
        """The text of the last message."""
        if not self.messages:
            return ""
        content = self.messages[-1].content
        return text_of(content if is_array(content) else [content])

    def answer(self, content: Any, *, model: str = "unknown", stop_reason: str | None = None) -> Sampled:
        """Your model's reply: text, a block, or several, `ToolUse` among them. The stop reason is derived from it unless given."""
        wire = _content(content)
        uses = any(block.get("type") == "tool_use" for block in wire)
        result = {
            "role": "assistant",
            "content": wire[0] if len(wire) == 1 else wire,
            "model": model,
            "stopReason": stop_reason or ("toolUse" if uses else "endTurn"),
        }
        return Sampled("assistant", result["content"], model, str(result["stopReason"]), result, sampled_blocks(wire))

    def refusal(self, message: str = REJECTED) -> McpError:
        """The error for a user's refusal: `raise request.refusal()`."""
        return McpError(ErrorCode.USER_REJECTED, message)

    def to_result(self, returned: Any) -> dict[str, Any]:
        """The result for the server, from a function's return value. Raises `TypeError` for an invalid one."""
        if isinstance(returned, Message):
            returned = returned.content
        if is_object(returned) and "role" in returned and "content" in returned:
            whole: dict[str, Any] = to_jsonable(returned)
            return {"model": "unknown", **whole}
        if not isinstance(returned, Sampled):
            returned = self.answer(returned)
        return {name: value for name, value in _of_sampled(returned).items() if value is not None}


def _of_sampled(returned: Sampled) -> dict[str, Any]:
    model = returned.model or "unknown"
    return {
        "role": returned.role,
        "content": to_jsonable(returned.content),
        "model": model,
        "stopReason": returned.stop_reason,
    }


def _content(content: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in content if is_array(content) else [content]:
        if isinstance(one, ToolUse) or (is_object(one) and one.get("type") == "tool_use"):
            found.append(to_jsonable(one))
        elif isinstance(one, str) or is_block(one):
            found += blocks(one)
        else:
            raise TypeError(f"a model's reply has text, blocks and tool uses, not {type(one).__name__}")
    if not found:
        raise TypeError("a model's reply has at least one block; this one is empty")
    return found


# --- elicitation


class _Elicitation(_OfCall):
    """The answers that both kinds have in common: decline and cancel."""

    __slots__ = ()

    def decline(self) -> Declined:
        """The user declined."""
        return Declined()

    def cancel(self) -> Dismissed:
        """The user did not answer: closed the form, or left."""
        return Dismissed()


@dataclass(frozen=True, slots=True)
class ElicitationRequest(_Elicitation):
    """A request for your user to fill in a form. Answer with `accept(…)`, `decline()` or `cancel()`."""

    message: str
    """The server's reason. Show it, with the server's name."""
    schema: Mapping[str, Any]
    """The form: each of the `properties` is a field, and `required` names those that must be filled in."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    call: AskingCall | None = field(default=None, repr=False)
    """The call of this client in whose reply the server asks; None where that is not certain."""

    @classmethod
    def of(cls, params: Mapping[str, Any], *, call: AskingCall | None = None) -> ElicitationRequest:
        """Read a request from the wire. Raises `McpError` for an invalid form."""
        schema: Any = params.get("requestedSchema")
        if not is_object(schema) or not is_object(schema.get("properties", {})):
            raise McpError(ErrorCode.INVALID_PARAMS, "a form has a requestedSchema with properties")
        return cls(str(params.get("message", "")), schema, params, call)

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """The fields by name, in their order."""
        found: Any = self.schema.get("properties", {})
        return cast("Mapping[str, Mapping[str, Any]]", found)

    @property
    def required(self) -> Sequence[str]:
        """The fields that must be filled in."""
        found: Any = self.schema.get("required")
        return [name for name in found if name in self.fields] if is_array(found) else []

    def defaults(self) -> dict[str, Any]:
        """The default values of the fields."""
        return {
            name: one["default"]
            for name, one in self.fields.items()
            if is_object(one) and one.get("default") is not None
        }

    def accept(self, content: Mapping[str, Any] | None = None, /, **fields: Any) -> Accepted[dict[str, Any]]:
        """The user's answer, with defaults for fields that they left unchanged. Raises `Mismatch`, with all problems.

        A field that is None is left out, unless it is required.
        """
        given = {**(content or {}), **fields}
        left_out = {name for name, value in given.items() if value is None and name not in self.required}
        answer: dict[str, Any] = {**self.defaults(), **to_jsonable({**given})}
        answer = {name: value for name, value in answer.items() if name not in left_out}
        if problems := self._problems(answer):
            raise Mismatch(problems)
        return Accepted(answer)

    def _problems(self, answer: Mapping[str, Any]) -> list[ValidationProblem]:
        from greenroom.protocol.validation import BadSchema, ForeignFormValidator, StepsExceeded  # noqa: PLC0415 - slow to import, and few clients need it

        strange = [
            ValidationProblem(
                (name,),
                ProblemReason(f"the form has no such field; it has {', '.join(self.fields)}", "unexpected_property"),
            )
            for name in answer
            if name not in self.fields
        ]
        try:
            validator = ForeignFormValidator(self.schema, meter=StepMeter())
        except (BadSchema, StepsExceeded):
            return strange  # an invalid form is the server's mistake: send the answer unchecked
        return strange + validator.errors(answer)

    def to_result(self, returned: Any) -> dict[str, Any]:
        """The result for the server, from a function's return value."""
        if is_object(returned):
            if returned.get("action") in ("accept", "decline", "cancel") and returned.keys() <= {
                "action",
                "content",
                "_meta",
            }:
                return dict(returned)
            returned = self.accept(returned)
        answer = elicitation_decision(returned, self.accept)
        return {"action": answer.action} | ({"content": answer.value} if isinstance(answer, Accepted) else {})


@dataclass(frozen=True, slots=True)
class UrlElicitationRequest(_Elicitation):
    """A request for your user to open a page. Show all of `url`, ask, and only then open it in the user's browser.

    Never fetch it yourself: what happens there is between the user and the page. `accept()` means that the user agreed to open it.
    """

    message: str
    url: str = field(repr=False)
    elicitation_id: str = field(default="", repr=False)
    """The id that `notifications/elicitation/complete` has when the user is done there; empty in the stateless era, where the call's next reply tells."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    call: AskingCall | None = field(default=None, repr=False)
    """The call of this client in whose reply the server asks; None where that is not certain."""

    @classmethod
    def of(cls, params: Mapping[str, Any], *, call: AskingCall | None = None) -> UrlElicitationRequest:
        """Read a request from the wire. Raises `McpError` for a URL that is not http(s)."""
        url: Any = params.get("url")
        if not isinstance(url, str) or not url.lower().startswith(("https://", "http://")):
            raise McpError(ErrorCode.INVALID_PARAMS, "the url of an elicitation must be an http(s) URL")
        return cls(str(params.get("message", "")), url, str(params.get("elicitationId", "")), params, call)

    @property
    def host(self) -> str:
        """The host that the page is of, as a browser would read it. Show it beside the whole URL."""
        return _host_of(self.url)

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the URL, for the user to read before you ask."""
        return _url_warnings(self.url)

    def accept(self) -> Accepted[None]:
        """The user agreed to open the page."""
        return Accepted(None)

    def to_result(self, returned: Any) -> dict[str, Any]:
        """The result for the server, from a function's return value."""
        return {"action": elicitation_decision(returned, self.accept).action}


def _host_of(url: str) -> str:
    """The host of an http(s) URL, as browsers find it: they read a backslash as a slash, and skip further slashes."""
    rest = url.partition(":")[2].replace("\\", "/").lstrip("/")
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0].rpartition("@")[2]
    host = authority if authority.endswith("]") else _PORT.sub("", authority)
    return host.lower()


def _url_warnings(url: str) -> list[str]:
    host = _host_of(url)
    authority = _AUTHORITY_END.split(url.partition("//")[2], maxsplit=1)[0]
    found: list[str] = []
    if not host:
        found.append("it names no host")
    if "@" in authority:
        found.append("what stands before the @ is not the host")
    if not host.isascii() or any(label.startswith("xn--") for label in host.split(".")):
        found.append("the name of its host has letters that can look like others")
    if not url.isprintable() or "\\" in url or " " in url:
        found.append("it has a character that no URL has")
    if not url.lower().startswith("https://") and host not in _LOOPBACK:
        found.append("it is not encrypted (http)")
    return found


_AUTHORITY_END: Final = re.compile(r"[/?#]")
_PORT: Final = re.compile(r":[0-9]*$")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def elicitation_decision(returned: Any, accept: Any) -> Elicited[Any]:
    """The user's decision from a function's return value. True accepts, False declines, None cancels. Raises `TypeError` for others."""
    match returned:
        case Accepted() | Declined() | Dismissed():
            return returned  # pyright: ignore[reportUnknownVariableType] - of anything
        case True:
            return cast("Elicited[Any]", accept())
        case False:
            return Declined()
        case None:
            return Dismissed()
        case _:
            kind = type(returned).__name__
            raise TypeError(f"answer with request.accept(…), request.decline() or request.cancel(), not {kind}")


# --- roots


def roots_result(roots: Any) -> dict[str, Any]:
    """The `roots/list` result for paths, URIs and `Root`s."""
    return {"roots": [_root(one) for one in ([roots] if isinstance(roots, str) else roots)]}


def _root(one: Root | Path | str | Mapping[str, Any]) -> dict[str, Any]:
    from pathlib import Path, PurePath  # noqa: PLC0415 - few clients have roots

    if isinstance(one, Root):
        return {"uri": one.uri} | ({"name": one.name} if one.name else {})
    if is_object(one):
        return dict(one)
    text = str(one)
    if not isinstance(one, PurePath) and "://" in text:
        return {"uri": text}
    path = Path(text).expanduser().absolute()
    return {"uri": path.as_uri(), "name": path.name or text}
