"""The gate limits guessing callers and no others; a failing provider admits no caller and logs no secret."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from greenroom import ConfigError, Server
from greenroom.auth.auth_gate import CHECKS_AT_ONCE, AuthGate, FailureLimiter
from greenroom.auth.auth_info import AuthInfo
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.errors import STATUS
from greenroom.auth.shared_secrets import BasicAuth, CustomAuth, ExpiringCache, NoAuth, hash_password, keyed_digest
from greenroom.transports.interfaces import HttpRefusal, Peer
from greenroom.transports.open_connections import host_in, source_of

from .auth_test_server import KINDS, basic, bearer, call, reception

OFFICE = "203.0.113.7:5000"


async def knock(gate: AuthGate, shown: Any, address: str = OFFICE, *, proxied: bool | None = None) -> Peer | int:
    headers = {name: value for name, value in shown.items() if value is not None}
    found = await gate.authenticate("POST", "/mcp?x=1", headers, Peer("http", address, proxied=proxied))
    return found.status if isinstance(found, HttpRefusal) else found


def passwords() -> BasicAuth:
    return BasicAuth({user: hash_password("right", iterations=1) for user in ("ann", "bob", "cat")})


async def test_guesses_are_bounded_by_user_and_by_source() -> None:
    gate = AuthGate(passwords(), per_source=FailureLimiter(10, 60.0), per_claim=FailureLimiter(3, 60.0))
    assert isinstance(await knock(gate, basic("ann", "right")), Peer)
    guesses = [await knock(gate, basic("bob", f"guess {n}"), f"198.51.100.{n}:1") for n in range(5)]
    assert guesses == [401, 401, 401, 429, 429]  # many sources, one user
    refused = await gate.authenticate(
        "POST", "/", {k: v or "" for k, v in basic("bob", "x").items()}, Peer("http", "192.0.2.1:1")
    )
    assert isinstance(refused, HttpRefusal)
    assert int(dict(refused.headers)["retry-after"]) >= 1
    assert "www-authenticate" not in dict(refused.headers)
    spread = [await knock(gate, basic(f"user {n}", "x")) for n in range(14)]
    assert spread == [401] * 10 + [429] * 4  # many users, one source
    assert isinstance(await knock(gate, basic("ann", "right")), Peer)  # who was right before is let in all the same
    assert await knock(gate, basic("cat", "right")) == 429  # who was not has to wait
    assert isinstance(await knock(gate, basic("cat", "right"), "192.0.2.9:1"), Peer)


def test_each_kind_of_refusal_has_its_http_status() -> None:
    assert STATUS == {
        "missing": 401,
        "invalid_request": 400,
        "invalid_token": 401,
        "expired_token": 401,
        "invalid_credentials": 401,
        "invalid_dpop_proof": 401,
        "use_dpop_nonce": 401,
        "insufficient_scope": 403,
        "too_many_failures": 429,
        "server_error": 500,
    }


async def test_a_known_credential_that_is_refused_is_forgotten() -> None:
    known = {"t": {"subject": "ann"}}
    gate = AuthGate(CustomAuth(known.get), per_source=FailureLimiter(2, 60.0))
    assert isinstance(await knock(gate, bearer("t")), Peer)
    del known["t"]
    assert await knock(gate, bearer("t")) == 401
    assert await knock(gate, bearer("guess")) == 401
    assert await knock(gate, bearer("t")) == 429  # it waits as all others do, who were never good


async def test_a_revoked_token_shown_a_hundred_times_is_one_guess_and_a_hundred_tokens_are_a_hundred() -> None:
    known = {"t": {"subject": "ann"}, "new": {"subject": "ann"}}
    gate = AuthGate(CustomAuth(known.get))
    assert isinstance(await knock(gate, bearer("t")), Peer)
    del known["t"]
    assert [await knock(gate, bearer("t")) for _ in range(300)] == [401] * 300
    assert isinstance(await knock(gate, bearer("new")), Peer)
    assert [await knock(gate, bearer(f"guess {n}")) for n in range(100)].count(429) > 0


async def test_the_same_wrong_token_is_not_looked_at_without_end() -> None:
    looked = 0

    def verify(token: str) -> None:
        nonlocal looked
        looked += 1

    gate = AuthGate(CustomAuth(verify))
    found = [await knock(gate, bearer("t")) for _ in range(3000)]
    assert found[:100] == [401] * 100
    assert found[-1] == 429
    assert looked < 1500


async def test_a_wrong_password_for_many_users_counts_as_many_guesses() -> None:
    gate = AuthGate(passwords(), per_source=FailureLimiter(10, 60.0))
    assert [await knock(gate, basic(f"user {n}", "x")) for n in range(14)] == [401] * 10 + [429] * 4


async def test_nothing_shown_and_expired_tokens_are_no_guesses() -> None:
    about = KINDS["bearer, secret"]
    gate = AuthGate(about.make(), per_source=FailureLimiter(1, 60.0), per_claim=FailureLimiter(1, 60.0))
    for state in ("none", "expired") * 5:
        assert await knock(gate, about.states[state]) == 401
    assert isinstance(await knock(gate, about.states["good"]), Peer)


async def test_the_books_are_bounded_and_forget() -> None:
    book = FailureLimiter(2, 10.0, most=3)
    for number in range(100):
        book.add_failure(number, 0.0)
    assert len(book) == 3
    book.add_failure(99, 0.0)
    assert 0 < book.wait_seconds(99, 0.0) <= 5.0
    assert book.wait_seconds(99, 6.0) == 0
    assert book.wait_seconds(99, 100.0) == 0
    good, key = ExpiringCache[int](3), b"a key"
    for number in range(100):
        good.keep(keyed_digest(key, str(number), "x"), number, 60.0)
    assert len(good) == 3
    assert good.get(keyed_digest(key, "99", "x")) == 99
    assert good.get(keyed_digest(b"another", "99", "x")) is None
    assert good.get(keyed_digest(key, "9", "9x")) is None  # parts do not run into each other
    assert b"99" not in b"".join(good._entries)
    assert ExpiringCache[int](3).get(b"a") is None
    for seconds in (0.0, -1.0):
        gone = ExpiringCache[int](3)
        gone.keep(b"a", 1, seconds)
        assert gone.get(b"a") is None
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
def test_addresses_are_grouped_by_source(address: str, source: str) -> None:
    assert source_of(host_in(address)) == source


@pytest.mark.row("SA-19")
@pytest.mark.parametrize("wrong", [ValueError, "text", 5, [], SystemError])
async def test_a_provider_that_fails_admits_no_caller_and_logs_no_secret(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(token: str) -> Any:
        if isinstance(wrong, type):
            raise wrong(f"cannot read {token}")
        return wrong

    gate = AuthGate(CustomAuth(fail))
    with caplog.at_level(logging.DEBUG):
        assert await knock(gate, bearer("s3cret-t0ken")) == 500
    assert "the authentication provider failed" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_refusal_that_cannot_be_worded_is_one_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(CustomAuth):
        async def challenge(self, denied: Any, request: Any) -> HttpRefusal:
            raise RuntimeError(request.headers["authorization"])

    gate = AuthGate(Mute(lambda _: None))
    assert await knock(gate, {"authorization": "Bearer t0psecret"}) == 401
    assert "t0psecret" not in caplog.text


async def test_a_refusal_is_logged_with_its_kind_and_without_the_credential(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        peer, shown = Peer("http", OFFICE), {"authorization": str(basic("ann", "wr0ng-passw0rd")["authorization"])}
        refused = await AuthGate(passwords()).authenticate("POST", "/mcp", shown, peer)
    assert isinstance(refused, HttpRefusal)
    assert refused.why.startswith("Authentication: invalid_credentials"), "the access log has it, with the address"
    assert "wr0ng" not in refused.why + caplog.text


async def test_unnamed_callers_differ_by_credential_and_anonymous_ones_have_no_principal() -> None:
    gate = AuthGate(CustomAuth(lambda _: AuthInfo(None, scopes=frozenset())))
    found = [await knock(gate, bearer(token)) for token in ("one", "one", "two")]
    first, again, other = [peer.principal for peer in found if isinstance(peer, Peer)]
    assert first == again != other
    assert first is not None
    caller = await knock(AuthGate(NoAuth()), {})
    assert isinstance(caller, Peer)
    assert (caller.principal, caller.auth.subject, caller.auth.scopes) == (None, "anonymous", frozenset())
    assert await knock(AuthGate(NoAuth(), required_scopes=["a"]), {}) == 403
    assert (repr(NoAuth()), NoAuth().children()) == ("NoAuth()", ())


@pytest.mark.row("SA-19")
async def test_a_provider_of_ones_own_may_be_an_object() -> None:
    class Mine:
        async def authenticate(self, token: str) -> dict[str, Any] | None:
            return {"sub": "ann", "scope": "a", "tier": 1} if token == "t" else {"subject": "bob", "tier": 2}

    gate = AuthGate(CustomAuth(Mine()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
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


async def test_a_source_with_a_thousand_checks_leaves_turns_to_another() -> None:
    """A verifier that takes its time: half of the turns are the other sources', and theirs go before the rest of the flood."""
    asked: list[str] = []
    go = asyncio.Event()

    async def verify(token: str) -> dict[str, Any] | None:
        asked.append(token)
        await go.wait()
        return {"sub": token}

    gate = AuthGate(BearerAuth(verifier=verify, audience=None))
    flood = [asyncio.create_task(knock(gate, bearer(f"flood{n}"))) for n in range(500)]
    await turns()
    assert len(asked) == CHECKS_AT_ONCE // 2
    others = [asyncio.create_task(knock(gate, bearer(f"other{n}"), f"198.51.100.{n}:1")) for n in range(4)]
    await turns()
    assert asked[CHECKS_AT_ONCE // 2 :] == [f"other{n}" for n in range(4)]
    go.set()
    assert all(isinstance(each, Peer) for each in await asyncio.gather(*flood, *others))


async def test_guesses_that_come_at_once_are_counted_as_those_that_come_one_after_the_other() -> None:
    asked = 0

    async def verify(token: str) -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.1)

    gate = AuthGate(BearerAuth(verifier=verify, audience=None), per_source=FailureLimiter(20, 60.0))
    found = await asyncio.gather(*(knock(gate, bearer(f"guess{n}")) for n in range(500)))
    assert asked <= 20 + CHECKS_AT_ONCE // 2
    assert sorted({each for each in found if isinstance(each, int)}) == [401, 429]


@pytest.mark.parametrize("peer", [(OFFICE, True), ("127.0.0.1:5000", None)], ids=["a trusted proxy", "loopback"])
async def test_the_clients_of_a_proxy_do_not_share_the_turns_of_one_source(peer: tuple[str, bool | None]) -> None:
    address, proxied = peer
    asked: list[str] = []
    go = asyncio.Event()

    async def verify(token: str) -> dict[str, Any]:
        asked.append(token)
        await go.wait()
        return {"sub": token}

    gate = AuthGate(BearerAuth(verifier=verify, audience=None))

    def many(count: int, name: str) -> list[asyncio.Task[Peer | int]]:
        return [
            asyncio.create_task(knock(gate, bearer(name.format(n)), address, proxied=proxied)) for n in range(count)
        ]

    flood = many(2000, "flood")  # one credential
    await turns()
    assert len(asked) == CHECKS_AT_ONCE // 2
    others = many(1300, "client{}")
    await turns()
    assert asked[CHECKS_AT_ONCE // 2 :] == [f"client{n}" for n in range(CHECKS_AT_ONCE // 2)]
    go.set()
    found = await asyncio.gather(*flood, *others)
    assert [each for each in found if not isinstance(each, Peer)] == []


async def test_an_address_that_brings_no_other_clients_has_half_of_the_turns_with_all_its_credentials() -> None:
    asked = 0
    go = asyncio.Event()

    async def verify(token: str) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await go.wait()
        return {"sub": token}

    gate = AuthGate(BearerAuth(verifier=verify, audience=None))
    all_of_it = [asyncio.create_task(knock(gate, bearer(f"t{n}"), "127.0.0.1:5000", proxied=False)) for n in range(100)]
    await turns()
    assert asked == CHECKS_AT_ONCE // 2
    go.set()
    await asyncio.gather(*all_of_it)


async def test_thirteen_hundred_addresses_sign_in_at_once() -> None:
    async def verify(token: str) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"sub": token}

    gate = AuthGate(BearerAuth(verifier=verify, audience=None))
    found = await asyncio.gather(
        *(knock(gate, bearer(f"new{n}"), f"198.51.{n // 250}.{n % 250}:1") for n in range(1300))
    )
    assert all(isinstance(each, Peer) for each in found)


async def test_a_credential_that_was_good_waits_for_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.auth.auth_gate.MOST_WAITING", 1024)
    go = asyncio.Event()

    async def verify(token: str) -> dict[str, Any]:
        if token != "good":
            await go.wait()
        return {"sub": token}

    gate = AuthGate(BearerAuth(verifier=verify, audience=None))
    assert isinstance(await knock(gate, bearer("good")), Peer)
    flood = [asyncio.create_task(knock(gate, bearer(f"new{n}"), f"198.51.{n // 250}.{n % 250}:1")) for n in range(1000)]
    await turns()
    assert isinstance(await knock(gate, bearer("good"), "203.0.113.200:1"), Peer)
    more = [asyncio.create_task(knock(gate, bearer(f"more{n}"), "203.0.113.201:1")) for n in range(100)]
    await turns()
    assert 429 in [each.result() for each in more if each.done()]  # no more may wait
    go.set()
    await asyncio.gather(*flood, *more)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
