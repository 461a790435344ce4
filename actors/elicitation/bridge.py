"""The bridge between servers that ask and users who answer: a queue of its own, never a tool.

A question waits for the first of its subscribers who answers it. Where nobody subscribes it is declined at once, and so it is when the last of
them leaves; nobody waits for longer than the cap, and no more than so many wait at all. One server has at most half of the places that others
have left it, so that there is always one for somebody else. It is no process: what it keeps are questions that somebody waits
for, and each of them ends with whoever that is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from greenroom.errors import ConfigError

from .forms import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from .forms import Field

_log: Final = logging.getLogger("greenroom.elicitation")

LIMIT: Final = 64
CAP: Final = 300.0

Action: TypeAlias = Literal["accept", "decline", "cancel"]


class Asked(Protocol):
    """What a server wants: a form, or a visit to a page. The client's own words for them are these."""

    @property
    def message(self) -> str:
        """Why the user is asked."""
        ...

    def decline(self) -> Any:
        """The user does not want to."""
        ...

    def cancel(self) -> Any:
        """The user has turned away."""
        ...


class OpenQuestion:
    """One question, as a subscriber has it. Whoever answers first has answered; the others hear False."""

    def __init__(self, server: str, request: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Made by the bridge."""
        self.server = server
        """Who asks. Show it: the message is the server's own, and may claim to be anybody's."""
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
        """The whole address of the page to visit, to be shown as it is; it is fetched by nobody but the user. None for a form."""
        return getattr(self.request, "url", None)

    @property
    def fields(self) -> Sequence[Field]:
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

    async def answered(self) -> Any:
        """The answer, once there is one."""
        return await asyncio.shield(self._answer)

    def withdraw(self) -> None:
        """Nobody wants an answer any more."""
        self._answer.cancel()

    async def wait(self) -> None:
        """Until it is over, for whoever shows it."""
        await asyncio.wait((self._answer,))


class Subscription:
    """The questions, as one who can answer gets them: ``async with bridge.subscribe() as questions: async for question in questions``."""

    def __init__(self, bridge: ElicitationBridge) -> None:
        """Made by `subscribe`."""
        self._bridge = bridge
        self._waiting: deque[OpenQuestion] = deque()
        self._bell = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        self._bridge.join(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            self._bell.clear()
            await self._bell.wait()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, question: OpenQuestion) -> None:
        """Another one."""
        self._waiting.append(question)
        self._bell.set()

    def drop(self, question: OpenQuestion) -> None:
        """That one is over, and need not be kept for a subscriber who has not come to it yet."""
        if question in self._waiting:
            self._waiting.remove(question)

    def close(self) -> None:
        """This one answers no more."""
        self._closed = True
        self._waiting.clear()
        self._bell.set()
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
        self._subscriptions: dict[Subscription, None] = {}

    def __repr__(self) -> str:
        return f"<ElicitationBridge: {len(self._open)} questions, {len(self._subscriptions)} subscribers>"

    @property
    def waiting(self) -> Sequence[OpenQuestion]:
        """The questions that nobody has answered yet."""
        return tuple(self._open)

    def subscribe(self) -> Subscription:
        """Somebody who can answer: a terminal, a window, a program."""
        return Subscription(self)

    async def form(self, server: str, request: Any) -> Any:
        """A server wants a form filled in."""
        return await self._ask(server, request)

    async def page(self, server: str, request: Any) -> Any:
        """A server wants the user to visit a page."""
        return await self._ask(server, request)

    async def _ask(self, server: str, request: Asked) -> Any:
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
                return await question.answered()
        except TimeoutError:
            answer = _declined(server, request, f"nobody answered within {self.cap:g} s")
            question.settle(answer)
            return answer
        finally:
            del self._open[question]
            question.withdraw()
            for each in self._subscriptions:
                each.drop(question)

    def join(self, subscription: Subscription) -> None:
        """One more who can answer; what waits is theirs too."""
        self._subscriptions[subscription] = None
        for question in self._open:
            subscription.put(question)

    def leave(self, subscription: Subscription) -> None:
        """One less; after the last, what waits is declined."""
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions:
            for question in tuple(self._open):
                question.settle(_declined(question.server, question.request, "nobody is there to answer any more"))


def _declined(server: str, request: Asked, why: str) -> Any:
    _log.info("a question of %s was declined: %s", server, why)
    return request.decline()
