"""The breaker as a state machine: it opens when enough of the latest requests failed, allows one probe at a time, and closes after a good one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from greenroom.actors.client.errors import (
    ClientClosed,
    InitTimeout,
    NotReady,
    RequestLost,
    RequestTimeout,
    Unavailable,
    Unsupported,
)
from greenroom.actors.federation.breaker import Breaker, BreakerSettings, BreakerState, is_failure
from greenroom.errors import ConfigError
from greenroom.protocol.errors import PeerError, RequestCancelled
from greenroom.supervision import Backoff
from greenroom.transports.client.errors import ConnectionLost, WireFull

LOST = ConnectionLost("gone")
STEADY = Backoff(first=1.0, factor=2.0, longest=8.0, jitter=0.0)


def breaker(**changes: object) -> Breaker:
    settings = BreakerSettings(failures=3, rate=0.5, window=10.0, cooldown=STEADY, **changes)  # type: ignore[arg-type]
    return Breaker(settings, random.Random(1))


def fail(machine: Breaker, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        machine.record(machine.epoch, failed=True, now=now, cause=LOST)


def test_opens_at_the_count_and_says_why() -> None:
    machine = breaker()
    fail(machine, 2)
    assert machine.closed
    fail(machine, 1)
    assert machine.state is BreakerState.OPEN
    assert machine.cause is LOST
    assert machine.retry_in(0.0) == 1.0


def test_few_failures_among_many_successes_do_not_open_it() -> None:
    machine = breaker()
    for _ in range(100):
        machine.record(machine.epoch, failed=False, now=0.0)
    fail(machine, 99)
    assert machine.closed
    fail(machine, 1)
    assert not machine.closed


def test_old_failures_are_forgotten() -> None:
    machine = breaker()
    fail(machine, 2, now=0.0)
    fail(machine, 2, now=10.5)
    assert machine.closed


def test_a_good_probe_closes_and_a_bad_one_doubles_the_wait() -> None:
    machine = breaker()
    fail(machine, 3)
    assert machine.probe(0.9) is None
    ticket = machine.probe(1.0)
    assert ticket is not None
    assert machine.probe(1.0) is None
    assert machine.record_probe(ticket, failed=True, now=1.5)
    assert machine.retry_in(1.5) == 2.0
    second = machine.probe(3.5)
    assert second is not None
    assert not machine.record_probe(ticket, failed=False, now=3.5)
    assert machine.record_probe(second, failed=False, now=3.6)
    assert machine.closed
    assert machine.cause is None
    fail(machine, 3, now=4.0)
    assert machine.retry_in(4.0) == 1.0


def test_an_unfinished_probe_counts_as_failed() -> None:
    machine = breaker(probe_timeout=1.0)
    fail(machine, 3)
    ticket = machine.probe(1.0)
    assert ticket is not None
    assert machine.probe(2.9) is None
    assert machine.probe(3.0) is None  # it is open again, and waits
    assert machine.state is BreakerState.OPEN
    assert not machine.record_probe(ticket, failed=False, now=3.0)
    assert machine.probe(5.0) is not None


def test_hasten_makes_the_probe_due() -> None:
    machine = breaker()
    fail(machine, 3)
    machine.retry_now(0.2)
    assert machine.retry_in(0.2) == 0.0
    assert machine.probe(0.2) is not None


def test_requests_from_before_the_breaker_opened_do_not_count() -> None:
    machine = breaker()
    old = machine.epoch
    fail(machine, 3)
    ticket = machine.probe(1.0)
    assert ticket is not None
    machine.record_probe(ticket, failed=False, now=1.0)
    for _ in range(10):
        machine.record(old, failed=True, now=1.0)
    assert machine.closed


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (None, False),
        (RequestTimeout("ping", 1.0), True),
        (RequestLost("ping", LOST), True),
        (LOST, True),
        (InitTimeout("late"), True),
        (PeerError(-32603, "broken"), False),
        (PeerError(-32602, "wrong"), False),
        (RequestCancelled(), None),
        (ClientClosed("closed"), None),
        (NotReady("not yet"), None),
        (Unsupported("tools/list", "tools"), None),
        (Unavailable("git"), None),
        (RequestLost("ping", WireFull("full"), maybe_done=False), None),
    ],
)
def test_which_outcomes_count_as_failures(error: BaseException | None, verdict: bool | None) -> None:  # noqa: FBT001 - a table
    assert is_failure(error) is verdict


def test_an_answer_counts_when_its_code_was_named() -> None:
    assert is_failure(PeerError(-32603, "broken"), {-32603}) is True


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"rate": 1.5}, {"window": 0.0}, {"probe_timeout": -1.0}])
def test_settings_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        BreakerSettings(**wrong)  # type: ignore[arg-type]


class Machine(RuleBasedStateMachine):
    """Beside a plain memory of every failure."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.machine = breaker(probe_timeout=2.0)
        self.ended: list[tuple[float, bool]] = []
        self.probing: int | None = None
        self.turns: list[int] = [self.machine.epoch]

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(failed=st.booleans(), times=st.integers(1, 4))
    def ends(self, failed: bool, times: int) -> None:  # noqa: FBT001 - drawn
        for _ in range(times):
            if not self.machine.closed:
                return
            self.ended.append((self.now, failed))
            opened = self.machine.record(self.machine.epoch, failed=failed, now=self.now, cause=LOST)
            recent = [bad for at, bad in self.ended if at > self.now - 9.0]
            counting = [bad for at, bad in self.ended if at > self.now - 11.0]  # some of them, by when their part began
            certain = failed and sum(recent) >= 3 and all(counting)
            assert opened or not certain
            if opened:
                bad = [bad for at, bad in self.ended if at > self.now - 11.0]
                assert sum(bad) >= 3
                self.ended.clear()

    @rule(failed=st.booleans(), which=st.integers(0, 100))
    def ends_late(self, failed: bool, which: int) -> None:  # noqa: FBT001 - drawn
        turn = self.turns[which % len(self.turns)]
        if turn != self.machine.epoch:
            before = self.machine.state
            assert not self.machine.record(turn, failed=failed, now=self.now)
            assert self.machine.state is before

    @rule()
    def probe(self) -> None:
        ticket = self.machine.probe(self.now)
        if ticket is not None:
            assert self.machine.state is BreakerState.HALF_OPEN
            assert self.machine.probe(self.now) is None
            self.probing = ticket

    @precondition(lambda self: self.probing is not None)
    @rule(failed=st.booleans())
    def record_probe(self, failed: bool) -> None:  # noqa: FBT001 - drawn
        assert self.probing is not None
        counted = self.machine.record_probe(self.probing, failed=failed, now=self.now)
        if counted:
            assert self.machine.closed is not failed
            self.ended.clear()
        self.probing = None

    @invariant()
    def tells(self) -> None:
        if self.machine.epoch != self.turns[-1]:
            self.turns.append(self.machine.epoch)
        left = self.machine.retry_in(self.now)
        assert (left is None) is self.machine.closed
        assert left is None or 0 <= left <= 8.0 + 1e-9  # a moment and a span do not add up to the last bit
        assert (self.machine.cause is None) is self.machine.closed


TestMachine = Machine.TestCase


@given(st.integers(0, 2**32))
def test_jitter_only_shortens(seed: int) -> None:
    settings = BreakerSettings(failures=1, cooldown=Backoff(first=4.0, longest=4.0, jitter=0.5))
    machine = Breaker(settings, random.Random(seed))
    fail(machine, 1)
    left = machine.retry_in(0.0)
    assert left is not None
    assert 2.0 <= left <= 4.0
