"""What `ctx.elicit()` and its like return: something to be awaited, that says so where it is not.

A coroutine of Python's own is thrown away with a warning on stderr, and what was meant to be the user's answer is a coroutine in the handler: it fails no
`if`, and matches no case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from types import TracebackType

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


class Question(Coroutine[Any, Any, T_co]):
    """A question to the client, asked when it is awaited."""

    __slots__ = ("_asking", "begun", "what")

    def __init__(self, what: str, asking: Coroutine[Any, Any, T_co]) -> None:
        """`what` was called."""
        self.what = what
        self._asking = asking
        self.begun = False

    def __await__(self) -> Generator[Any, Any, T_co]:
        self.begun = True
        return self._asking.__await__()

    def send(self, value: Any, /) -> Any:
        """As a coroutine's: a task does it."""
        self.begun = True
        return self._asking.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        """As a coroutine's."""
        self.begun = True
        return (
            self._asking.throw(kind)
            if value is None and traceback is None
            else self._asking.throw(kind, value, traceback)
        )

    def close(self) -> None:
        """As a coroutine's."""
        self._asking.close()

    def __bool__(self) -> bool:
        raise NotAwaited(self.what)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "cr_")):  # what asyncio looks at
            return getattr(self._asking, name)
        raise NotAwaited(self.what)

    def __repr__(self) -> str:
        return f"<{self.what}(), {'begun' if self.begun else 'not awaited'}>"


class Noting(Protocol):
    """What keeps the questions that were made with it."""

    def note(self, question: Question[Any]) -> None:
        """One more."""
        ...


S = TypeVar("S", bound=Noting)


def asks(method: Callable[Concatenate[S, P], Awaitable[T]]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """For methods that ask the client: what they return is a `Question`."""

    @wraps(method)
    def ask(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        asking: Any = method(self, *args, **kwargs)
        question: Question[T] = Question(f"ctx.{method.__name__.lstrip('_')}", asking)
        self.note(question)
        return question

    return ask
