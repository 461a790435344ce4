"""The consent check: when the user is asked, what is remembered, and the error if no user can be asked."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.consent.consent import Consent, ConsentAnswer, ConsentQuestion, QuestionQueue
from greenroom.actors.consent.rules import ConsentDenied, Permissions, Rule
from greenroom.errors import ConfigError
from greenroom.protocol.tool_pins import PinComparison

if TYPE_CHECKING:
    from pathlib import Path

YES = ConsentAnswer(allow=True)
NO = ConsentAnswer(allow=False)
PUSH = {"name": "push", "description": "Pushes"}


class Clock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class User:
    """A user who answers from a list and records the questions."""

    def __init__(self, *answers: ConsentAnswer | bool) -> None:
        self.answers = list(answers)
        self.asked: list[ConsentQuestion] = []

    async def __call__(self, question: ConsentQuestion) -> ConsentAnswer | bool:
        self.asked.append(question)
        await asyncio.sleep(0)
        return self.answers.pop(0)


def push(consent: Consent, definition: dict[str, Any] = PUSH, finding: PinComparison | None = None) -> Any:
    return consent.tool("git", "push", definition, {"force": True}, finding)


async def test_an_allowed_call_asks_no_question() -> None:
    user = User()

    await push(Consent(Permissions([Rule("allow", "push", "git")]), ask=user))

    assert user.asked == []


@pytest.mark.row("CB-16")
async def test_without_a_rule_the_user_is_asked_each_time() -> None:
    user = User(YES, NO)
    consent = Consent(ask=user)

    await push(consent)
    with pytest.raises(ConsentDenied, match="git:push is not allowed: the answer was no"):
        await push(consent)

    assert [(each.name, dict(each.arguments), each.why) for each in user.asked] == [
        ("git:push", {"force": True}, "ask: no rule matches")
    ] * 2


async def test_without_a_user_the_error_says_which_rule_to_write() -> None:
    with pytest.raises(ConsentDenied) as caught:
        await push(Consent())

    assert str(caught.value) == (
        "git:push is not allowed: ask: no rule matches, and no user can be asked: "
        'write allow = ["push"] in [server.git.permissions], or give the host an ask function'
    )


async def test_a_denied_call_is_not_asked_about() -> None:
    user = User(YES)

    with pytest.raises(ConsentDenied, match=r"deny: deny 'git:\*' \(a.toml:1\)"):
        await push(Consent(Permissions([Rule("deny", "git:*", None, "a.toml:1")]), ask=user, hook=lambda _: True))

    assert user.asked == []


async def test_an_answer_can_hold_for_a_while() -> None:
    clock = Clock()
    user = User(ConsentAnswer(allow=True, remember=60), ConsentAnswer(allow=False, remember=60))
    consent = Consent(ask=user, clock=clock)

    await push(consent)
    clock.now += 59
    await push(consent)
    clock.now += 1
    with pytest.raises(ConsentDenied):
        await push(consent)
    with pytest.raises(ConsentDenied, match="denied before"):
        await push(consent)

    assert len(user.asked) == 2


async def test_an_answer_for_good_outlives_the_program_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "state" / "decisions.json"
    await push(Consent(ask=User(ConsentAnswer(allow=True, remember="always")), remembers=path))

    await push(Consent(remembers=path))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["decisions.json"]
    assert list(json.loads(path.read_text())) == ["git:push"]


async def test_a_tool_that_has_become_another_asks_anew(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    user = User(ConsentAnswer(allow=True, remember="always"), YES)
    consent = Consent(ask=user, remembers=path)
    await push(consent)

    await push(consent, {"name": "push", "description": "Pushes, and sends your keys"})

    assert len(user.asked) == 2


@pytest.mark.parametrize("kind", ["changed", "new", "renamed"])
async def test_a_tool_that_is_not_what_was_pinned_is_asked_about_whatever_is_allowed(kind: Any) -> None:
    user = User(YES)
    consent = Consent(Permissions([Rule("allow", "*", "git")]), ask=user)

    await push(consent, finding=PinComparison("git:push", kind))
    await push(consent, finding=PinComparison("git:push", "same"))

    assert [each.why for each in user.asked] == [str(PinComparison("git:push", kind))]


async def test_many_calls_at_once_ask_once_when_the_answer_holds() -> None:
    user = User(ConsentAnswer(allow=True, remember=10))
    consent = Consent(ask=user, clock=Clock())

    await asyncio.gather(*(push(consent) for _ in range(20)))

    assert len(user.asked) == 1


async def test_a_caller_who_gives_up_does_not_keep_the_next_from_asking() -> None:
    asked = asyncio.Event()

    async def slow(_: ConsentQuestion) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    consent = Consent(ask=slow)
    first = asyncio.ensure_future(push(consent))
    await asked.wait()
    asked.clear()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    second = asyncio.ensure_future(push(consent))
    await asyncio.wait_for(asked.wait(), 5)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_no_answer_in_time_denies_the_call() -> None:
    async def never(_: ConsentQuestion) -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(ConsentDenied, match="no answer within 30 s"):
        await push(Consent(ask=never, patience=30))


async def test_a_failing_ask_function_denies_the_call() -> None:
    def broken(_: ConsentQuestion) -> bool:
        raise OSError("the terminal is gone")

    with pytest.raises(ConsentDenied, match=r"the ask function failed .OSError: the terminal is gone"):
        await push(Consent(ask=broken))


@pytest.mark.parametrize(("said", "fine"), [(True, True), (False, False), (None, False)])
async def test_the_program_has_its_own_say(*, said: bool | None, fine: bool) -> None:
    consent = Consent(hook=lambda _: said)

    if fine:
        await push(consent)
    else:
        with pytest.raises(ConsentDenied):
            await push(consent)


@pytest.mark.row("CB-13")
async def test_a_server_that_wants_to_ask_the_user_passes_the_same_gate() -> None:
    allowed = Consent(Permissions([Rule("allow", "Elicit(git)")]))

    await allowed.elicitation("git")
    with pytest.raises(
        ConsentDenied, match=r"Elicit\(hub\) is not allowed: .* allow = ..Elicit.. in .server.hub.permissions"
    ):
        await allowed.elicitation("hub")


@pytest.mark.row("CB-17")
async def test_the_verdict_can_be_shown_without_asking() -> None:
    user = User(ConsentAnswer(allow=True, remember=60))
    consent = Consent(Permissions([Rule("deny", "rm", "git", "a.toml:4")]), ask=user)

    assert consent.verdict("git", "rm", {}) == ("deny", "deny: deny 'rm' of server git (a.toml:4)")
    assert consent.verdict("git", "push", PUSH)[0] == "ask"
    await push(consent)
    assert consent.verdict("git", "push", PUSH) == ("allow", "decided before")


async def test_decisions_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    consent = Consent(ask=User(ConsentAnswer(allow=True, remember="always")), remembers=path)
    await push(consent)

    assert consent.memory.forget() == 1
    assert json.loads(path.read_text()) == {}
    assert consent.memory.forget() == 0


@pytest.mark.parametrize("written", ["", "[]", '{"git:push": {"allow": 1}}', '{"git:push": '])
def test_a_file_of_decisions_that_is_broken_is_named(tmp_path: Path, written: str) -> None:
    path = tmp_path / "decisions.json"
    path.write_text(written)

    with pytest.raises(ConfigError, match=r"decisions\.json: the stored decisions cannot be read"):
        Consent(remembers=path)


async def test_a_hook_that_fails_is_a_no_and_says_why() -> None:
    def broken(_: ConsentQuestion) -> bool:
        raise KeyError("policy")

    with pytest.raises(ConsentDenied, match=r"the program's hook failed .KeyError: 'policy'"):
        await push(Consent(hook=broken))


@pytest.mark.parametrize("asked", ["ask", "hook"])
async def test_a_denial_added_during_the_question_stays_in_force(asked: str) -> None:
    async def slow(_: ConsentQuestion) -> bool:
        consent.permissions = Permissions([Rule("deny", "git:*", None, "a.toml:1")])
        await asyncio.sleep(0)
        return True

    consent = Consent(ask=slow) if asked == "ask" else Consent(hook=slow)
    with pytest.raises(ConsentDenied, match=r"deny 'git:\*' \(a.toml:1\)"):
        await push(consent)


async def test_hosts_that_share_a_file_share_what_was_decided(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    always = [ConsentAnswer(allow=True, remember="always"), ConsentAnswer(allow=False, remember="always")]
    one, other = Consent(ask=User(always[0]), remembers=path), Consent(ask=User(always[1]), remembers=path)

    await push(one)
    await push(other)  # the user is not asked again
    with pytest.raises(ConsentDenied, match="the answer was no"):
        await other.tool("git", "rm", {"name": "rm"}, {})
    with pytest.raises(ConsentDenied, match="denied before"):
        await one.tool("git", "rm", {"name": "rm"}, {})
    assert sorted(json.loads(path.read_text())) == ["git:push", "git:rm"]

    assert one.memory.forget() == 2
    with pytest.raises(ConsentDenied, match="the ask function failed"):  # they had one answer
        await push(one)
    assert len(other.memory) == 0
    path.unlink()
    assert len(one.memory) == 0


async def test_an_answer_that_cannot_be_kept_holds_for_now_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    user = User(ConsentAnswer(allow=True, remember="always"))
    consent = Consent(ask=user, remembers=tmp_path / "file" / "decisions.json")

    await push(consent)
    await push(consent)

    assert len(user.asked) == 1
    assert "git:push cannot be stored" in caplog.text


def test_a_malformed_decision_file_allows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="it is no file"):
        Consent(remembers=path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Consent(remembers=tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Consent(remembers="/dev/zero")
    path.unlink()
    path.write_text("{}")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="other users can write to it"):
        Consent(remembers=path)


@pytest.mark.parametrize("remember", [0, -1, True, "for ever", float("nan")])
def test_how_long_an_answer_holds_is_checked(remember: Any) -> None:
    with pytest.raises(ConfigError, match="remember is"):
        ConsentAnswer(allow=True, remember=remember)


# --- several servers, and one user


async def test_servers_take_turns_however_much_one_of_them_asks() -> None:
    asked: list[str] = []

    async def slow(question: ConsentQuestion) -> bool:
        asked.append(question.name)
        await asyncio.sleep(1)
        return True

    consent = Consent(ask=slow)
    flood = [asyncio.ensure_future(consent.elicitation("evil")) for _ in range(10)]
    await asyncio.sleep(0)
    await push(consent)

    assert asked == ["Elicit(evil)", "git:push"]
    await asyncio.gather(*flood)
    assert len(asked) == 11


async def test_no_more_than_so_many_questions_about_one_server_wait() -> None:
    consent = Consent(ask=User(*[YES] * 34))
    flood = await asyncio.gather(
        *(consent.elicitation("evil") for _ in range(40)), push(consent), return_exceptions=True
    )

    refused = [str(each) for each in flood if each is not None]
    assert refused == ["Elicit(evil) is not allowed: 32 questions about evil are waiting already"] * 7
    assert flood[-1] is None


async def test_a_question_without_a_turn_in_time_is_denied() -> None:
    async def never(_: ConsentQuestion) -> bool:
        await asyncio.Event().wait()
        return True

    consent = Consent(ask=never, patience=30)
    said = await asyncio.gather(*(push(consent) for _ in range(4)), return_exceptions=True)

    assert [str(each).partition("allowed: ")[2] for each in said] == [
        "no answer within 30 s",
        "no answer within 30 s",
        "the question had no turn within 60 s, because of other questions",
        "the question had no turn within 60 s, because of other questions",
    ]
    await push(Consent(ask=User(YES)))


async def test_a_turn_that_comes_in_the_moment_it_is_given_up_goes_to_the_next() -> None:
    turns = QuestionQueue(5)
    async with turns.take("a", None):
        waiting = [asyncio.ensure_future(_once(turns, who)) for who in ("b", "c")]
        await asyncio.sleep(0)
    waiting[0].cancel()  # it has the turn but has not run yet
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]

    await waiting[1]
    async with turns.take("a", None):
        pass


async def test_a_turn_is_not_given_to_a_question_that_was_given_up_just_before() -> None:
    turns = QuestionQueue(5)
    async with turns.take("a", None):
        waiting = [asyncio.ensure_future(_once(turns, who)) for who in ("b", "c")]
        await asyncio.sleep(0)
        waiting[0].cancel()  # it stays in the queue until it runs
    await waiting[1]
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]


async def test_the_server_that_was_asked_last_comes_behind_the_others() -> None:
    turns, asked = QuestionQueue(5), list[str]()

    async def ask(who: str) -> None:
        async with turns.take(who, None):
            asked.append(who)

    async with turns.take("a", None):
        waiting = [asyncio.ensure_future(ask(who)) for who in ("a", "a", "b", "b", "c")]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert asked == ["b", "a", "c", "b", "a"]


async def _once(turns: QuestionQueue, who: str) -> None:
    async with turns.take(who, None):
        pass


async def test_a_timeout_error_of_the_ask_function_denies_the_call_even_without_patience() -> None:
    def late(_: ConsentQuestion) -> bool:
        raise TimeoutError("the window was closed")

    for patience in (None, 30.0):
        with pytest.raises(ConsentDenied, match=r"the ask function failed .TimeoutError: the window was closed"):
            await push(Consent(ask=late, patience=patience))


def test_a_consent_outlives_the_loop_in_which_it_was_asked() -> None:
    consent = Consent(ask=User(*[YES] * 4))

    async def two() -> None:
        await asyncio.gather(push(consent), push(consent))

    asyncio.run(two())
    asyncio.run(two())


@pytest.mark.row("CB-13")
async def test_a_permanent_decision_does_not_apply_to_another_server_of_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    always = ConsentAnswer(allow=True, remember="always")
    here, there = Consent(ask=User(always, always), remembers=path), Consent(remembers=path)
    here.origin = {"git": "git --serve"}.get  # type: ignore[assignment]
    there.origin = {"git": "evil --serve"}.get  # type: ignore[assignment]
    await here.elicitation("git")
    await push(here)

    await here.elicitation("git")
    await push(here)
    assert here.verdict("git", "push", PUSH) == ("allow", "decided before")
    assert there.verdict("git", "push", PUSH)[0] == "ask"
    with pytest.raises(ConsentDenied, match="no user can be asked"):
        await there.elicitation("git")
    with pytest.raises(ConsentDenied, match="no user can be asked"):
        await push(there)
    assert "serve" not in path.read_text()


async def test_permissions_without_rules_hold_as_they_are() -> None:
    await push(Consent(Permissions(otherwise="allow")))
