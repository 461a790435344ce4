"""A call by method reference has the method's return type and parameters."""

from __future__ import annotations

from typing import assert_type

from greenroom.supervision import GenServer, Ref


class Counter(GenServer):
    """A counter."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.total = 0

    def add(self, amount: int) -> int:
        """Add at once."""
        self.total += amount
        return self.total

    async def add_slowly(self, amount: int, *, times: int = 1) -> int:
        """Add asynchronously."""
        return self.add(amount * times)


class Greeter(GenServer):
    """Greets."""

    def greet(self, name: str) -> str:
        """Say hello."""
        return f"hello {name}"


async def right(ref: Ref[Counter]) -> None:
    """Accepted by both checkers."""
    assert_type(await ref.call(Counter.add, 2), int)
    assert_type(await ref.call(Counter.add_slowly, 2), int)
    assert_type(await ref.call(Counter.add_slowly, 2, times=3), int)
    assert_type(await ref.within(None).call(Counter.add, 2), int)
    assert_type(ref.cast(Counter.add, 2), bool)


async def wrong(ref: Ref[Counter]) -> None:
    """Refused by both checkers."""
    await ref.call(Counter.add, "two")  # expect-error: call-overload, reportCallIssue, reportArgumentType
    await ref.call(Counter.add)  # expect-error: call-overload, reportCallIssue
    await ref.call(Counter.add, 1, 2)  # expect-error: call-overload, reportCallIssue
    await ref.call(Counter.add_slowly, 2, often=3)  # expect-error: call-arg, reportCallIssue
    await ref.call(Greeter.greet, "you")  # expect-error: call-overload, reportCallIssue, reportArgumentType
    ref.cast(Counter.add, "two")  # expect-error: arg-type, reportArgumentType
    assert_type(await ref.call(Counter.add, 2), str)  # expect-error: assert-type, reportAssertTypeFailure
