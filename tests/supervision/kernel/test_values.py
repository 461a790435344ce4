"""Pids, exit reasons, errors and clocks."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    ActorError,
    AlreadyRegistered,
    CallCycle,
    CallTimeout,
    Crash,
    GreenroomError,
    InternalError,
    MailboxFull,
    NoNode,
    NotAnActor,
    NotRegistered,
    Pid,
    ProcessExited,
    Shutdown,
    StartFailed,
    StartIgnored,
    StartTimeout,
)
from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel.process_messages import as_reason, is_orderly

PID = Pid("node", 0xABC, 7)
ERROR = ValueError("x")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_a_pid_says_where_and_which() -> None:
    assert str(PID) == "<node.7>"
    assert repr(PID) == "<node/abc.7>"
    assert Pid("node", 0xABC, 7) == PID != Pid("node", 0xABD, 7)
    assert len({PID, Pid("node", 0xABC, 7), Pid("other", 0xABC, 7)}) == 2


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (NORMAL, "normal"),
        (SHUTDOWN, "shutdown"),
        (Shutdown("drained"), "shutdown (drained)"),
        (KILLED, "killed"),
        (NO_PROCESS, "no such process"),
        (NO_CONNECTION, "no connection to its node"),
        (Crash(ERROR), "crash: ValueError: x"),
        (Crash(KeyboardInterrupt()), "crash: KeyboardInterrupt"),
        (Crash(Unspeakable()), "crash: Unspeakable (its str raised)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_reason_is_a_value_that_can_be_told(reason: Any, text: str) -> None:
    assert str(reason) == text
    assert as_reason(reason) is reason
    assert is_orderly(reason) == text.startswith(("normal", "shutdown"))
    assert hash(reason) == hash(copy.copy(reason))


def test_reasons_are_compared_by_what_they_say() -> None:
    assert Shutdown("a") == Shutdown("a") != Shutdown("b")
    assert Crash(ERROR) == Crash(ERROR) != Crash(ValueError("x"))
    assert as_reason(ERROR) == Crash(ERROR)


ERRORS: dict[ActorError, str] = {
    ProcessExited(KILLED, PID): "<node.7> exited before it answered: killed",
    ProcessExited(KILLED): "the process exited before it answered: killed",
    NotRegistered(NO_PROCESS, "hits"): "no process is registered as 'hits'",
    CallTimeout(0.5, PID): "<node.7> did not answer within 0.5 s",
    CallTimeout(5.0, PID, "stop"): "<node.7> did not stop within 5 s",
    CallCycle(["a", "a"]): "a process cannot call itself: a → a",
    CallCycle(["a", "b", "a"]): "a cycle of calls can never end: a → b → a",
    MailboxFull(PID, 3): "the mailbox of <node.7> is full (3 messages)",
    AlreadyRegistered("hits", PID): "'hits' is already registered by <node.7>",
    StartFailed(KILLED, "Counter"): "Counter did not start: killed",
    StartFailed(KILLED): "the process did not start: killed",
    StartTimeout(2.0, KILLED, "Counter"): "Counter did not start within 2 s",
    StartIgnored("it chose not to"): "it chose not to",
    NoNode(): "no node runs in this event loop: open one with `async with Node():`",
    NotAnActor("link"): "only a process can link: call it in a process, or open one here with `async with inbox():`",
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_says_what_happened_and_survives_being_copied(error: ActorError) -> None:
    assert str(error) == ERRORS[error]
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == ERRORS[error]
        assert vars(again) == vars(error)


def test_all_errors_have_one_root() -> None:
    assert all(isinstance(error, ActorError) for error in ERRORS)
    assert issubclass(ActorError, GreenroomError)
    assert issubclass(InternalError, GreenroomError)
    assert not issubclass(InternalError, ActorError)


def test_no_two_lives_of_a_node_are_the_same_in_any_thread() -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(clock.incarnation() for _ in range(2000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8000


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("-inf"), "1", [1]])
def test_an_impossible_number_of_seconds_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="give 0 or more seconds, or None for no limit"):
        clock.check_seconds(seconds)


@pytest.mark.parametrize("seconds", [None, 0, 0.0, 1, 2.5, float("inf"), True])
def test_a_span_of_time_is_none_or_a_number_from_0(seconds: Any) -> None:
    assert clock.check_seconds(seconds) is None  # type: ignore[func-returns-value]  # it returns, and that is the claim
