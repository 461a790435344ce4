"""The bridge between servers that ask and users who answer: a queue of its own, never a tool.

A question waits for the first of its subscribers who answers it. Without a subscriber it is declined at once, and so it is when the last of
them leaves; no question waits for longer than the cap, and no more than so many wait at all. One server has at most half of the places that others
have left it, so that there is always one for another server. It is no process: each question that it keeps has a task that waits for
it, and ends with that task.
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
    """One question, as a subscriber has it. The first answer counts; later ones return False."""

    def __init__(self, server: str, request: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Made by the bridge. `request` is what a server wants, a form or a visit to a page, as the client has it: with a `message`, and ways to answer."""
        self.server = server
        """The server that asks. Show it: the message is the server's own, and may claim to come from another."""
        self.request = request
        self._answer: asyncio.Future[Any] = loop.create_future()

    def __repr__(self) -> str:
        return f"<OpenQuestion of {self.server}{', over' if self.over else ''}>"

    @property
    def message(self) -> str:
        """Why the user is asked, in the server's words."""
        return str(self.request.message)

    @property
    def url(self) -> str | None:
        """The whole address of the page to visit, to be shown as it is; only the user fetches it. None for a form."""
        return getattr(self.request, "url", None)

    @property
    def fields(self) -> Sequence[FormField]:
        """The fields of the form; none for a page."""
        schema: Mapping[str, Any] | None = getattr(self.request, "schema", None)
        return [] if schema is None else fields_of(schema)

    @property
    def over(self) -> bool:
        """Whether it was answered, or is not wanted any more."""
        return self._answer.done()

    @property
    def withdrawn(self) -> bool:
        """Whether the server has taken it back."""
        return self._answer.cancelled()

    def accept(self, content: Mapping[str, Any] | None = None) -> bool:
        """The user's answer. Raises `Mismatch` for what does not fit the form: the question stays open."""
        answer = self.request.accept() if self.url is not None else self.request.accept(content or {})
        return self.settle(answer)

    def decline(self) -> bool:
        """The user does not want to."""
        return self.settle(self.request.decline())

    def cancel(self) -> bool:
        """The user has turned away without an answer."""
        return self.settle(self.request.cancel())

    def settle(self, answer: Any) -> bool:
        """Have this be the answer. False when there is one."""
        if self._answer.done():
            return False
        self._answer.set_result(answer)
        return True

    async def wait_answered(self) -> Any:
        """The answer, once there is one."""
        return await asyncio.shield(self._answer)

    def withdraw(self) -> None:
        """Cancel it: an answer is not wanted any more."""
        self._answer.cancel()

    async def wait(self) -> None:
        """Wait until it is over, for code that shows it."""
        await asyncio.wait((self._answer,))


class QuestionSubscription:
    """The questions, as a subscriber that can answer gets them: ``async with bridge.subscribe() as questions: async for question in questions``."""

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
        """Another one."""
        self._waiting.append(question)
        self._arrived.set()

    def drop(self, question: OpenQuestion) -> None:
        """The question is over, and need not be kept for a subscriber that has not come to it yet."""
        if question in self._waiting:
            self._waiting.remove(question)

    def close(self) -> None:
        """This one answers no more."""
        self._closed = True
        self._waiting.clear()
        self._arrived.set()
        self._bridge.leave(self)


class ElicitationBridge:
    """One for a host: ``Host(…, elicitation=bridge.form, url_elicitation=bridge.page)``."""

    def __init__(self, *, limit: int = LIMIT, cap: float = CAP) -> None:
        """`limit` is how many questions may wait, of one server half of what others leave; `cap` is how many seconds each."""
        if limit < 1 or not cap > 0:
            raise ConfigError(f"a bridge holds at least 1 question for more than 0 seconds, not {limit!r} and {cap!r}")
        self.limit = limit
        self.cap = cap
        self._open: dict[OpenQuestion, None] = {}
        self._subscriptions: dict[QuestionSubscription, None] = {}

    def __repr__(self) -> str:
        return f"<ElicitationBridge: {len(self._open)} questions, {len(self._subscriptions)} subscribers>"

    @property
    def waiting(self) -> Sequence[OpenQuestion]:
        """The questions that have no answer yet."""
        return tuple(self._open)

    def subscribe(self) -> QuestionSubscription:
        """A subscription for a subscriber that can answer: a terminal, a window, a program."""
        return QuestionSubscription(self)

    async def form(self, server: str, request: Any) -> Any:
        """A server wants a form filled in."""
        return await self._ask(server, request)

    async def page(self, server: str, request: Any) -> Any:
        """A server wants the user to visit a page."""
        return await self._ask(server, request)

    async def _ask(self, server: str, request: Any) -> Any:
        if not self._subscriptions:
            return _declined(server, request, "nobody is there to answer")
        if len(self._open) >= self.limit:
            return _declined(server, request, f"{self.limit} questions wait already")
        own = sum(each.server == server for each in self._open)
        if own >= max(1, (self.limit - len(self._open) + own) // 2):
            return _declined(server, request, f"{own} questions of its own wait already")
        question = OpenQuestion(server, request, asyncio.get_running_loop())
        self._open[question] = None
        try:
            for each in tuple(self._subscriptions):
                each.put(question)
            async with asyncio.timeout(self.cap):
                return await question.wait_answered()
        except TimeoutError:
            answer = _declined(server, request, f"nobody answered within {self.cap:g} s")
            question.settle(answer)
            return answer
        finally:
            del self._open[question]
            question.withdraw()
            for each in self._subscriptions:
                each.drop(question)

    def join(self, subscription: QuestionSubscription) -> None:
        """Add a subscriber; it gets the questions that wait, too."""
        self._subscriptions[subscription] = None
        for question in self._open:
            subscription.put(question)

    def leave(self, subscription: QuestionSubscription) -> None:
        """Remove a subscriber; after the last, the questions that wait are declined."""
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions:
            for question in tuple(self._open):
                question.settle(_declined(question.server, question.request, "nobody is there to answer any more"))


def _declined(server: str, request: Any, why: str) -> Any:
    _log.info("a question of %s was declined: %s", server, why)
    return request.decline()


# --- A form's schema as fields to show, one after the other, and what the user types as a value. Pure.
# The schema is flat by the protocol: a text, a number, a yes or no, one of several, some of several. What is typed is held against its own field
# here, with words for the user who typed it; the whole form is held against the schema when it is accepted.

FormFieldKind: TypeAlias = Literal["text", "integer", "number", "yes or no", "one of", "some of"]

_YES: Final = frozenset(("y", "yes", "true", "1", "on"))
_NO: Final = frozenset(("n", "no", "false", "0", "off"))
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s][^@\s.]*\.[^@\s]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_LIST_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_LARGEST: Final = sys.float_info.max
"""The largest number that counts as finite. A larger answer is refused, a larger bound is none."""


class InvalidAnswer(ValueError):
    """What was typed is no value of its field; the text is for the user who typed it."""


class FormChoice(NamedTuple):
    """One of those that a field offers."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class FormField:
    """One line of a form."""

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
        """What may be typed, in short."""
        if self.kind in ("one of", "some of"):
            return ", ".join(each.label for each in self.choices)
        if self.kind == "yes or no":
            return "yes or no"
        bounds = _range_text(self.least, self.most, "" if self.kind in ("integer", "number") else " characters")
        known = _FORMATS.get(self.format, _ANY_TEXT)
        kind = {"integer": "a whole number", "number": "a number"}.get(self.kind, known.said)
        return ", ".join(part for part in (kind, bounds) if part)

    def shown(self, value: Any) -> str:
        """A value as it would be typed."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if is_array(value):
            return ", ".join(map(str, value))
        return "" if value is None else str(value)

    def read(self, typed: str) -> Any:
        """What was typed, as a value; nothing is the default, or None for a field that can be left out. Raises `InvalidAnswer`."""
        text = typed.strip()
        if not text:
            if self.default is None and self.required:
                raise InvalidAnswer(f"{self.label} cannot be left out")
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
            place = int(text)  # in the list, as a terminal shows it
            if 0 < place <= len(self.choices):
                return self.choices[place - 1].value
        for each in self.choices:
            if text == each.value or text.casefold() == each.label.casefold():
                return each.value
        raise InvalidAnswer(f"{text!r} is none of {self.hint}")

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
            raise InvalidAnswer(f"{text!r} is not {known.said}")
        return text


def fields_of(schema: Mapping[str, Any]) -> list[FormField]:
    """The fields of a form, in its own order. One that the protocol does not have is a text."""
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
    """A bound, unless it is none, or so far away that everything is within it."""
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
    said: str
    check: Callable[[str], object]


_FORMATS: Final[Mapping[str, _Format]] = {
    "email": _Format("an e-mail address", _EMAIL.fullmatch),
    "uri": _Format("a URI, as in https://example.org", _URI.fullmatch),
    "date": _Format("a date, as in 2026-01-31", _is_date),
    "date-time": _Format("a moment with its zone, as in 2026-01-31T12:00:00Z", _is_moment),
}
_ANY_TEXT: Final = _Format("", bool)
