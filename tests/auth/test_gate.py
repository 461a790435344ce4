"""Who guesses is slowed down, and nobody else with them; whatever a provider does, nobody gets in by it, and no secret gets out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from greenroom import ConfigError, Server
from greenroom.auth.basic import BasicAuth
from greenroom.auth.custom import CustomAuth
from greenroom.auth.failures import Failures
from greenroom.auth.gate import Gate, source_of
from greenroom.auth.hashing import hash_password
from greenroom.auth.info import AuthInfo
from greenroom.auth.nobody import NoAuth
from greenroom.auth.remembered import Remembered
from greenroom.transports.seam import Peer, Refusal

from .reception import KINDS, basic, bearer, call, reception

OFFICE = "203.0.113.7:5000"


async def knock(gate: Gate, shown: Any, address: str = OFFICE) -> Peer | int:
    headers = {name: value for name, value in shown.items() if value is not None}
    found = await gate.admit("POST", "/mcp?x=1", headers, Peer("http", address))
    return found.status if isinstance(found, Refusal) else found


def passwords() -> BasicAuth:
    return BasicAuth({user: hash_password("right", iterations=1) for user in ("ann", "bob", "cat")})


async def test_guesses_are_bounded_by_user_and_by_source() -> None:
    gate = Gate(passwords(), per_source=Failures(10, 60.0), per_claim=Failures(3, 60.0))
    assert isinstance(await knock(gate, basic("ann", "right")), Peer)
    guesses = [await knock(gate, basic("bob", f"guess {n}"), f"198.51.100.{n}:1") for n in range(5)]
    assert guesses == [401, 401, 401, 429, 429]  # many sources, one user
    refused = await gate.admit(
        "POST", "/", {k: v or "" for k, v in basic("bob", "x").items()}, Peer("http", "192.0.2.1:1")
    )
    assert isinstance(refused, Refusal)
    assert int(dict(refused.headers)["retry-after"]) >= 1
    assert "www-authenticate" not in dict(refused.headers)
    spread = [await knock(gate, basic(f"user {n}", "x")) for n in range(14)]
    assert spread == [401] * 10 + [429] * 4  # many users, one source
    assert isinstance(await knock(gate, basic("ann", "right")), Peer)  # who was right before is let in all the same
    assert await knock(gate, basic("cat", "right")) == 429  # who was not has to wait
    assert isinstance(await knock(gate, basic("cat", "right"), "192.0.2.9:1"), Peer)


async def test_what_was_good_and_is_no_more_is_forgotten() -> None:
    known = {"t": {"subject": "ann"}}
    gate = Gate(CustomAuth(known.get), per_claim=Failures(2, 60.0))
    assert isinstance(await knock(gate, bearer("t")), Peer)
    del known["t"]
    assert [await knock(gate, bearer("t")) for _ in range(4)] == [401, 401, 429, 429]


async def test_nothing_shown_and_expired_tokens_are_no_guesses() -> None:
    about = KINDS["bearer, secret"]
    gate = Gate(about.make(), per_source=Failures(1, 60.0), per_claim=Failures(1, 60.0))
    for state in ("none", "expired") * 5:
        assert await knock(gate, about.states[state]) == 401
    assert isinstance(await knock(gate, about.states["good"]), Peer)


def test_the_books_are_bounded_and_forget() -> None:
    book = Failures(2, 10.0, most=3)
    for number in range(100):
        book.failed(number, 0.0)
    assert len(book) == 3
    book.failed(99, 0.0)
    assert 0 < book.wait(99, 0.0) <= 5.0
    assert book.wait(99, 6.0) == 0
    assert book.wait(99, 100.0) == 0
    good = Remembered(3, 60.0)
    for number in range(100):
        good.add(str(number), "x")
    assert len(good) == 3
    assert good.has("99", "x")
    assert not good.has("9", "9x")  # parts do not run into each other
    assert b"99" not in b"".join(good._until)
    assert not Remembered(3, 0.0).has("a")
    gone = Remembered(3, -1.0)
    gone.add("a")
    assert not gone.has("a")
    assert len(gone) == 0


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1:99", "192.0.2.1"),
        ("[2001:db8:1:2:3::4]:99", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9:99", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1:99", "192.0.2.1"),
        ("", ""),
        ("pipe", "pipe"),
    ],
)
def test_where_somebody_comes_from(address: str, source: str) -> None:
    assert source_of(address) == source


@pytest.mark.row("SA-19")
@pytest.mark.parametrize("wrong", [ValueError, "text", 5, [], SystemError])
async def test_a_provider_that_fails_lets_nobody_in_and_tells_no_secret(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(token: str) -> Any:
        if isinstance(wrong, type):
            raise wrong(f"cannot read {token}")
        return wrong

    gate = Gate(CustomAuth(fail))
    with caplog.at_level(logging.DEBUG):
        assert await knock(gate, bearer("s3cret-t0ken")) == 500
    assert "the provider of authentication failed" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_refusal_that_cannot_be_worded_is_one_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(CustomAuth):
        async def challenge(self, denied: Any, asking: Any) -> Refusal:
            raise RuntimeError(asking.headers["authorization"])

    gate = Gate(Mute(lambda _: None))
    assert await knock(gate, {"authorization": "Bearer t0psecret"}) == 401
    assert "t0psecret" not in caplog.text


async def test_what_is_logged_of_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await knock(Gate(passwords()), basic("ann", "wr0ng-passw0rd"))
    assert f"POST from {OFFICE}: invalid_credentials" in caplog.text
    assert "wr0ng" not in caplog.text


async def test_the_nameless_are_told_apart_by_what_they_show_and_the_anonymous_are_nobody() -> None:
    gate = Gate(CustomAuth(lambda _: AuthInfo(None, scopes=frozenset())))
    found = [await knock(gate, bearer(token)) for token in ("one", "one", "two")]
    first, again, other = [peer.principal for peer in found if isinstance(peer, Peer)]
    assert first == again != other
    assert first is not None
    nobody = await knock(Gate(NoAuth()), {})
    assert isinstance(nobody, Peer)
    assert (nobody.principal, nobody.auth.subject, nobody.auth.scopes) == (None, "anonymous", frozenset())
    assert await knock(Gate(NoAuth(), required_scopes=["a"]), {}) == 403
    assert (repr(NoAuth()), NoAuth().children()) == ("NoAuth()", ())


@pytest.mark.row("SA-19")
async def test_a_provider_of_ones_own_may_be_an_object() -> None:
    class Mine:
        async def authenticate(self, token: str) -> dict[str, Any] | None:
            return {"sub": "ann", "scope": "a", "tier": 1} if token == "t" else {"subject": "bob", "tier": 2}

    gate = Gate(CustomAuth(Mine()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ann, bob = await knock(gate, bearer("t")), await knock(gate, {"x-api-key": "k"})
    assert isinstance(ann, Peer)
    assert isinstance(bob, Peer)
    assert (ann.auth.subject, ann.auth.scopes) == ("ann", {"a"})
    assert (bob.auth.subject, bob.auth.claims) == ("bob", {"tier": 2})
    with pytest.raises(ConfigError):
        CustomAuth(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.row("SA-02", "SA-08")
def test_a_server_that_would_be_open_by_mistake_is_refused() -> None:
    with pytest.raises(ConfigError):
        Server("s", required_scopes=["a"])
    for wrong in ("admin", ["a b"], [""], ['a"'], [5]):
        with pytest.raises(ConfigError):
            Server("s", auth=NoAuth(), required_scopes=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.row("SA-23")
async def test_handlers_see_who_calls() -> None:
    about = KINDS["bearer, secret"]
    async with reception(about.make()) as desk:
        session = await desk.enter(about.states["good"])
        paper = await desk.ask("POST", about.states["good"], call("whoami"), mcp_session_id=session)
        assert paper.json["result"]["content"][0]["text"] == "ann"
