"""Arguments that do not fit a method are an error of the sender, and the server goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import GenServer, Ref, Report, Unexpected, start

if TYPE_CHECKING:
    from greenroom.supervision import Node


class Counter(GenServer):
    """Counts."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total


WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, 2), {}),
    ((), {"amuont": 1}),
    ((1,), {"amount": 1}),
]


@pytest.mark.parametrize("known", [False, True], ids=["a method never used before", "a known method"])
async def test_a_cast_that_does_not_fit_is_reported_and_the_server_goes_on(node: Node, *, known: bool) -> None:
    reports: list[Report] = []
    node.reports.subscribe(reports.append)
    ref: Ref[Any] = await start(Counter)
    if known:
        assert await ref.call(Counter.add, 1) == 1
    for args, kwargs in WRONG:
        ref.cast(Counter.add, *args, **kwargs)
    assert await ref.call(Counter.add, 1) == 1 + known
    assert [type(report) for report in reports] == [Unexpected] * len(WRONG)


@pytest.mark.parametrize("behind", [False, True], ids=["on the spot", "through the mailbox"])
async def test_a_call_that_does_not_fit_is_its_callers_error(*, behind: bool) -> None:
    ref: Ref[Any] = await start(Counter)
    for args, kwargs in WRONG:
        if behind:
            ref.cast(Counter.add, 0)
        with pytest.raises(TypeError, match=r"add\(\)"):
            await ref.call(Counter.add, *args, **kwargs)
    assert await ref.call(Counter.add, 1) == 1


async def test_a_type_error_of_the_method_itself_is_the_servers_crash() -> None:
    ref: Ref[Any] = await start(Counter)
    not_a_number: Any = "one"
    ref.cast(Counter.add, not_a_number)
    with pytest.raises(Exception, match="unsupported operand"):
        await ref.call(Counter.add, 1)
