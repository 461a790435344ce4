"""The admission queue: never over its bounds, every principal in turn, and no request forgotten."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from greenroom.actors.client.errors import ClientError
from greenroom.actors.federation.federation_errors import UpstreamBusy
from greenroom.actors.federation.upstream_requests import AdmissionQueue
from greenroom.supervision import Busy


def book(limit: int = 2, queue: int = 4) -> AdmissionQueue[str]:
    made: AdmissionQueue[str] = AdmissionQueue("git", limit, queue)
    made.is_open = True
    return made


def test_waiting_requests_are_served_in_turn_by_principal() -> None:
    made = book(limit=1)
    assert made.enter("a", "a0", 0.0).granted
    for request in ("a1", "a2", "a3"):
        assert not made.enter("a", request, 0.0).granted
    made.enter("b", "b1", 0.0)
    order: list[str] = []
    request = "a0"
    while made.leave(request, 1.0):
        following = made.next(1.0)
        if following is None:
            break
        order.append(following)
        request = following
    assert order == ["a1", "b1", "a2", "a3"]


def test_a_request_over_the_limit_is_refused_with_a_hint() -> None:
    made = book(limit=1, queue=1)
    made.enter("a", "a0", 0.0)
    made.leave("a0", 3.0)
    made.enter("a", "a1", 3.0)
    made.enter("a", "a2", 3.0)
    with pytest.raises(UpstreamBusy, match="1 requests are under way, and 1 wait") as refused:
        made.enter("a", "a3", 3.0)
    assert refused.value.retry_after == 3.0
    assert refused.value.reason == "busy"
    assert isinstance(refused.value, Busy)
    assert isinstance(refused.value, ClientError)


def test_the_greedy_one_makes_room() -> None:
    made = book(limit=1, queue=3)
    for number in range(4):
        made.enter("a", f"a{number}", 0.0)
    assert made.enter("b", "b0", 0.0).displaced == "a3"
    with pytest.raises(UpstreamBusy):
        made.enter("a", "a4", 0.0)
    with pytest.raises(UpstreamBusy):
        made.enter("b", "b1", 0.0)  # a has two now, and b would have two


def test_no_request_is_admitted_while_the_queue_is_shut() -> None:
    made: AdmissionQueue[str] = AdmissionQueue("git", 2, 4)
    assert not made.enter("a", "a0", 0.0).granted
    assert made.next(0.0) is None
    made.is_open = True
    assert made.next(0.0) == "a0"


def test_bounds_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="limit is 1 or more"):
        AdmissionQueue("git", 0, 1)


class Book(RuleBasedStateMachine):
    """Beside plain sets."""

    def __init__(self) -> None:
        super().__init__()
        self.book = book(limit=2, queue=5)
        self.gone: list[str] = []
        self.waiting: dict[str, str] = {}
        self.serial = 0
        self.now = 0.0

    @rule(who=st.sampled_from("abc"))
    def enter(self, who: str) -> None:
        self.serial += 1
        self.now += 1
        request = f"{who}{self.serial}"
        try:
            entry = self.book.enter(who, request, self.now)
        except UpstreamBusy:
            assert len(self.waiting) == 5
            mine = sum(owner == who for owner in self.waiting.values())
            assert all(sum(o == other for o in self.waiting.values()) <= mine + 1 for other in "abc")
            return
        if entry.displaced is not None:
            assert self.waiting.pop(entry.displaced) != who
        if entry.granted:
            assert not self.waiting
            self.gone.append(request)
        else:
            self.waiting[request] = who

    @rule(which=st.integers(0, 10))
    def leave(self, which: int) -> None:
        if self.gone:
            self.now += 1
            request = self.gone.pop(which % len(self.gone))
            assert self.book.leave(request, self.now)
            assert not self.book.leave(request, self.now)
            while (following := self.book.next(self.now)) is not None:
                owner = self.waiting.pop(following)
                assert not any(r for r, o in self.waiting.items() if o == owner and int(r[1:]) < int(following[1:]))
                self.gone.append(following)

    @rule(which=st.integers(0, 10))
    def give_up(self, which: int) -> None:
        if self.waiting:
            request = list(self.waiting)[which % len(self.waiting)]
            del self.waiting[request]
            assert self.book.give_up(request)
            assert not self.book.give_up(request)

    @rule(shut=st.booleans())
    def shut(self, shut: bool) -> None:  # noqa: FBT001 - drawn
        self.book.is_open = not shut
        while (following := self.book.next(self.now)) is not None:
            del self.waiting[following]
            self.gone.append(following)

    @invariant()
    def bounds(self) -> None:
        assert self.book.under_way == len(self.gone) <= 2
        assert self.book.waiting == len(self.waiting) <= 5
        assert set(self.book) == set(self.waiting)
        assert not (self.waiting and len(self.gone) < 2 and self.book.is_open)


TestBook = Book.TestCase
