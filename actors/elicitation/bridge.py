"""The elicitation bridge: a queue between servers that ask and subscribers (terminals, windows) at which users answer.

The first answer of any subscriber counts. A question is declined at once without a subscriber, when the last subscriber leaves, or when it has waited for the
cap. The number of waiting questions is bounded, and one server may have at most half of the places that other servers leave free. The bridge is an object, not
a process: each question belongs to the task that waits for its answer, and ends with that task.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import sys
from collections import deque
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias

from greenroom.errors import ConfigError
from greenroom.protocol.serialization import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log: Final = logging.getLogger("greenroom.elicitation")

LIMIT: Final = 64
CAP: Final = 300.0

Action: TypeAlias = Literal["accept", "decline", "cancel"]


class OpenQuestion:
    """A question, as subscribers get it. The first answer counts; later ones return False."""

    def __init__(self, server: str, request: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Made by the bridge. `request` is the client's request object for a form or a page, with a `message` and methods to answer."""
        self.server = server
        """The server that asks. Show it: the message is the server's own, and may claim to come from another."""
        self.request = request
        self._answer: asyncio.Future[Any] = loop.create_future()

    def __repr__(self) -> str:
        return f"<OpenQuestion of {self.server}{', over' if self.over else ''}>"

    @property
    def message(self) -> str:
        """The server's message to the user."""
        return str(self.request.message)

    @property
    def call_text(self) -> str:
        """The call in whose reply the server asks, in one line that can be shown as it is: `send_mail(to='Ada')`; empty where that is not certain."""
        return getattr(self.request, "call_text", "")

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the URL of a page, for the user to read first; empty for a form."""
        return getattr(self.request, "warnings", ())

    @property
    def url(self) -> str | None:
        """The whole URL of the page for the user, to be shown unchanged; only the user's browser may fetch it. None for a form."""
        return getattr(self.request, "url", None)

    @property
    def fields(self) -> Sequence[FormField]:
        """The fields of the form; empty for a page."""
        schema: Mapping[str, Any] | None = getattr(self.request, "schema", None)
        return [] if schema is None else fields_of(schema)

    @property
    def over(self) -> bool:
        """Whether it was answered or withdrawn."""
        return self._answer.done()

    @property
    def withdrawn(self) -> bool:
        """Whether the server has withdrawn it."""
        return self._answer.cancelled()

    def accept(self, content: Mapping[str, Any] | None = None) -> bool:
        """Answer with the user's values. Raises `Mismatch` if they do not fit the form; the question stays open then."""
        answer = self.request.accept() if self.url is not None else self.request.accept(content or {})
        return self.settle(answer)

    def decline(self) -> bool:
        """Answer that the user declines."""
        return self.settle(self.request.decline())

    def cancel(self) -> bool:
        """Answer that the user has dismissed the question."""
        return self.settle(self.request.cancel())

    def settle(self, answer: Any) -> bool:
        """Set the answer. False if the question is over already."""
        if self._answer.done():
            return False
        self._answer.set_result(answer)
        return True

    async def wait_answered(self) -> Any:
        """Wait for the answer."""
        # Shielded, because a cancelled waiter (a timeout) would cancel the future, and that means "withdrawn by the server" here.
        return await asyncio.shield(self._answer)

    def withdraw(self) -> None:
        """Cancel the question: the server no longer wants an answer."""
        self._answer.cancel()

    async def wait(self) -> None:
        """Wait until the question is over, for code that displays it."""
        await asyncio.wait((self._answer,))


class QuestionSubscription:
    """A subscriber's queue of questions: ``async with bridge.subscribe() as questions: async for question in questions``."""

    def __init__(self, bridge: ElicitationBridge) -> None:
        """Made by `subscribe`."""
        self._bridge = bridge
        self._waiting: deque[OpenQuestion] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        self._bridge.join(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OpenQuestion:
        while True:
            while self._waiting:
                question = self._waiting.popleft()
                if not question.over:
                    return question
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, question: OpenQuestion) -> None:
        """Add a question."""
        self._waiting.append(question)
        self._arrived.set()

    def drop(self, question: OpenQuestion) -> None:
        """Remove a question that is over from the queue."""
        if question in self._waiting:
            self._waiting.remove(question)

    def close(self) -> None:
        """End the subscription."""
        self._closed = True
        self._waiting.clear()
        self._arrived.set()
        self._bridge.leave(self)


class ElicitationBridge:
    """The questions of a host's servers: ``Host(…, elicitation=bridge.form, url_elicitation=bridge.page)``."""

    def __init__(self, *, limit: int = LIMIT, cap: float = CAP) -> None:
        """`limit` is the number of questions that may wait; `cap` is how long each may wait, in seconds."""
        if limit < 1 or not cap > 0:
            raise ConfigError(f"limit has to be at least 1 and cap more than 0 seconds, not {limit!r} and {cap!r}")
        self.limit = limit
        self.cap = cap
        self._open: dict[OpenQuestion, None] = {}
        self._subscriptions: dict[QuestionSubscription, None] = {}

    def __repr__(self) -> str:
        return f"<ElicitationBridge: {len(self._open)} questions, {len(self._subscriptions)} subscribers>"

    @property
    def waiting(self) -> Sequence[OpenQuestion]:
        """The open questions."""
        return tuple(self._open)

    def subscribe(self) -> QuestionSubscription:
        """Subscribe to the questions, as a terminal, a window or a program that can answer them."""
        return QuestionSubscription(self)

    async def form(self, server: str, request: Any) -> Any:
        """Callback for a server's form."""
        return await self._ask(server, request)

    async def page(self, server: str, request: Any) -> Any:
        """Callback for a page that the user should open."""
        return await self._ask(server, request)

    async def _ask(self, server: str, request: Any) -> Any:
        if not self._subscriptions:
            return _declined(server, request, "no subscriber can answer")
        if len(self._open) >= self.limit:
            return _declined(server, request, f"{self.limit} questions are waiting already")
        own = sum(each.server == server for each in self._open)
        if own >= max(1, (self.limit - len(self._open) + own) // 2):
            return _declined(server, request, f"{own} questions of this server are waiting already")
        question = OpenQuestion(server, request, asyncio.get_running_loop())
        self._open[question] = None
        try:
            for each in tuple(self._subscriptions):
                each.put(question)
            async with asyncio.timeout(self.cap):
                return await question.wait_answered()
        except TimeoutError:
            answer = _declined(server, request, f"no answer within {self.cap:g} s")
            question.settle(answer)
            return answer
        finally:
            del self._open[question]
            question.withdraw()
            for each in self._subscriptions:
                each.drop(question)

    def join(self, subscription: QuestionSubscription) -> None:
        """Add a subscriber; it gets the waiting questions as well."""
        self._subscriptions[subscription] = None
        for question in self._open:
            subscription.put(question)

    def leave(self, subscription: QuestionSubscription) -> None:
        """Remove a subscriber; when the last one leaves, waiting questions are declined."""
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions:
            for question in tuple(self._open):
                question.settle(_declined(question.server, question.request, "the last subscriber has left"))


def _declined(server: str, request: Any, why: str) -> Any:
    _log.info("a question of %s was declined: %s", server, why)
    return request.decline()


# --- A form's schema as a list of fields, and typed texts as values. Pure.
# The protocol's forms are flat: text, number, yes or no, one of several, some of several. A typed text is checked against its field here, with messages for the
# user; the whole form is checked against its schema when it is accepted.

FormFieldKind: TypeAlias = Literal["text", "integer", "number", "yes or no", "one of", "some of"]

_YES: Final = frozenset(("y", "yes", "true", "1", "on"))
_NO: Final = frozenset(("n", "no", "false", "0", "off"))
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s][^@\s.]*\.[^@\s]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_LIST_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_LARGEST: Final = sys.float_info.max
"""The largest finite float. A larger answer is refused, and a larger bound is ignored."""


class InvalidAnswer(ValueError):
    """A typed text is not a value of its field; the message is for the user."""


class FormChoice(NamedTuple):
    """A value that a field offers, and its label."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form."""

    name: str
    kind: FormFieldKind
    label: str
    description: str = ""
    required: bool = False
    default: Any = None
    choices: Sequence[FormChoice] = ()
    format: str = ""
    least: float | None = None
    """The smallest number, the shortest text, the fewest choices."""
    most: float | None = None

    @property
    def hint(self) -> str:
        """The accepted input, in short."""
        if self.kind in ("one of", "some of"):
            return ", ".join(each.label for each in self.choices)
        if self.kind == "yes or no":
            return "yes or no"
        bounds = _range_text(self.least, self.most, "" if self.kind in ("integer", "number") else " characters")
        known = _FORMATS.get(self.format, _ANY_TEXT)
        kind = {"integer": "a whole number", "number": "a number"}.get(self.kind, known.text)
        return ", ".join(part for part in (kind, bounds) if part)

    def shown(self, value: Any) -> str:
        """A value as text, as a user would type it."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if is_array(value):
            return ", ".join(map(str, value))
        return "" if value is None else str(value)

    def read(self, typed: str) -> Any:
        """Convert typed text to a value; empty text is the default, or None for an optional field. Raises `InvalidAnswer`."""
        text = typed.strip()
        if not text:
            if self.default is None and self.required:
                raise InvalidAnswer(f"{self.label} is required")
            return self.default
        match self.kind:
            case "integer" | "number":
                return self._number(text)
            case "yes or no":
                return self._yes(text)
            case "one of":
                return self._choice(text)
            case "some of":
                return self._choices(text)
            case _:
                return self._text(text)

    def _number(self, text: str) -> float:
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise InvalidAnswer(
                f"{text!r} is not {'a whole number' if self.kind == 'integer' else 'a number'}"
            ) from None
        if abs(value) > _LARGEST or math.isnan(value) or not _within(value, self.least, self.most):
            raise InvalidAnswer(f"{text} is not {_range_text(self.least, self.most) or 'a finite number'}")
        return value

    def _yes(self, text: str) -> bool:
        word = text.casefold()
        if word not in _YES | _NO:
            raise InvalidAnswer(f"{text!r} is neither yes nor no")
        return word in _YES

    def _choice(self, text: str) -> str:
        if _LIST_NUMBER.fullmatch(text) and text not in {each.value for each in self.choices}:
            place = int(text)  # the number in the displayed list
            if 0 < place <= len(self.choices):
                return self.choices[place - 1].value
        for each in self.choices:
            if text == each.value or text.casefold() == each.label.casefold():
                return each.value
        raise InvalidAnswer(f"{text!r} is not one of {self.hint}")

    def _choices(self, text: str) -> list[str]:
        picked = list(dict.fromkeys(self._choice(part.strip()) for part in text.split(",") if part.strip()))
        if not _within(len(picked), self.least, self.most):
            raise InvalidAnswer(f"pick {_range_text(self.least, self.most)} of them, not {len(picked)}")
        return picked

    def _text(self, text: str) -> str:
        if not _within(len(text), self.least, self.most):
            raise InvalidAnswer(f"it has to have {_range_text(self.least, self.most, ' characters')}, not {len(text)}")
        known = _FORMATS.get(self.format, _ANY_TEXT)
        if not known.check(text):
            raise InvalidAnswer(f"{text!r} is not {known.text}")
        return text


def fields_of(schema: Mapping[str, Any]) -> list[FormField]:
    """The fields of a form, in the schema's order. A field of an unknown type is a text field."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = set(map(str, required)) if is_array(required) else set[str]()
    if not is_object(properties):
        return []
    return [_field(name, one, required=name in names) for name, one in properties.items() if is_object(one)]


def _field(name: str, one: Mapping[str, Any], *, required: bool) -> FormField:
    kind, choices = _kind(one)
    size = {"text": ("minLength", "maxLength"), "some of": ("minItems", "maxItems")}.get(kind, ("minimum", "maximum"))
    return FormField(
        name,
        kind,
        label=str(one.get("title") or name),
        description=str(one.get("description") or ""),
        required=required,
        default=one.get("default"),
        choices=choices,
        format=str(one.get("format") or ""),
        least=_bound(one.get(size[0])),
        most=_bound(one.get(size[1])),
    )


def _kind(one: Mapping[str, Any]) -> tuple[FormFieldKind, Sequence[FormChoice]]:
    items = one.get("items")
    if one.get("type") == "array" and is_object(items):
        return "some of", _choices_of(items)
    if choices := _choices_of(one):
        return "one of", choices
    kinds: Mapping[str, FormFieldKind] = {"boolean": "yes or no", "integer": "integer", "number": "number"}
    return kinds.get(str(one.get("type")), "text"), ()


def _choices_of(one: Mapping[str, Any]) -> list[FormChoice]:
    titled: Any = one.get("oneOf") or one.get("anyOf")
    if is_array(titled):
        consts = [each for each in titled if is_object(each) and "const" in each]
        return [FormChoice(str(each["const"]), str(each.get("title") or each["const"])) for each in consts]
    values: Any = one.get("enum")
    if not is_array(values):
        return []
    named: Any = one.get("enumNames")
    labels = [*map(str, named)] if is_array(named) else []
    return [
        FormChoice(str(value), labels[place] if place < len(labels) else str(value))
        for place, value in enumerate(values)
    ]


def _bound(value: Any) -> float | None:
    """A numeric bound; None if it is missing, invalid, or beyond all finite numbers."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return value if known and abs(value) <= _LARGEST else None


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _range_text(least: float | None, most: float | None, what: str = "") -> str:
    match least, most:
        case None, None:
            return ""
        case None, _:
            return f"at most {most:g}{what}"
        case _, None:
            return f"at least {least:g}{what}"
        case _:
            return f"{least:g} to {most:g}{what}"


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and "T" in text.upper()
    except ValueError:
        return False


class _Format(NamedTuple):
    text: str
    check: Callable[[str], object]


_FORMATS: Final[Mapping[str, _Format]] = {
    "email": _Format("an e-mail address", _EMAIL.fullmatch),
    "uri": _Format("a URI, as in https://example.org", _URI.fullmatch),
    "date": _Format("a date, as in 2026-01-31", _is_date),
    "date-time": _Format("a moment with its zone, as in 2026-01-31T12:00:00Z", _is_moment),
}
_ANY_TEXT: Final = _Format("", bool)
