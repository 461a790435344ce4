"""Stored forms of keys and passwords: what is stored, how it is compared, and how long that takes."""

from __future__ import annotations

import asyncio
import logging
import statistics
import threading
import time
from typing import TYPE_CHECKING

import pytest

from greenroom import ConfigError
from greenroom.auth import shared_secrets as hashing
from greenroom.auth.auth_info import AuthRequest
from greenroom.auth.errors import Denied
from greenroom.auth.shared_secrets import (
    HASHES_AT_ONCE,
    MOST_QUEUED,
    APIKeyAuth,
    BasicAuth,
    PepperRequired,
    dummy_hash,
    hash_key,
    hash_password,
    plain_digest,
    verify_key,
    verify_password,
)

from .auth_test_server import basic

if TYPE_CHECKING:
    from collections.abc import Callable


def asking(**headers: str | None) -> AuthRequest:
    return AuthRequest("POST", "/mcp", {name.replace("_", "-"): value for name, value in headers.items() if value})


@pytest.fixture(autouse=True)
def _warn_again() -> None:
    hashing._warn_once.cache_clear()


@pytest.mark.row("SA-13", "SA-14")
def test_keys_with_and_without_pepper(caplog: pytest.LogCaptureFixture) -> None:
    stored = hash_key("key", "pepper")
    assert stored.startswith("hmac-sha256$")
    assert verify_key("key", stored, "pepper")
    assert verify_key("key", stored, b"pepper")
    assert not verify_key("key", stored, "other")
    assert not verify_key("kex", stored, "pepper")
    with pytest.raises(PepperRequired):
        verify_key("key", stored)
    assert caplog.text == ""
    old = plain_digest("key")
    assert verify_key("key", old)
    assert verify_key("key", old.upper(), "pepper")  # of either form, where there is a pepper
    assert caplog.text.count("plain SHA-256") == 1  # once, not with each request
    for odd in ("", "x", "hmac-sha256$ä", "hmac-sha256$", "5" * 63):
        assert not verify_key("key", odd, "pepper")


@pytest.mark.row("SA-16", "SA-17")
def test_passwords(caplog: pytest.LogCaptureFixture) -> None:
    stored = hash_password("right", iterations=10)
    scheme, rounds, salt, digest = stored.split("$")
    assert (scheme, rounds, len(salt), len(digest)) == ("pbkdf2-sha256", "10", 24, 44)
    assert stored != hash_password("right", iterations=10)
    assert hash_password("x").split("$")[1] == "100000"
    assert verify_password("right", stored)
    assert not verify_password("wrong", stored)
    assert caplog.text == ""
    assert verify_password("right", hash_password("right", algorithm="sha256-hex"))
    assert "easily guessed" in caplog.text
    for odd in (
        "",
        "pbkdf2-sha256$",
        "pbkdf2-sha256$99999999999$AA==$AA==",
        "pbkdf2-sha256$1$ä$ä",
        "pbkdf2-sha256$1$$",
        stored.replace("$10$", "$\N{ARABIC-INDIC DIGIT ONE}\N{ARABIC-INDIC DIGIT ZERO}$"),
        stored.replace("$10$", "$+10$"),
        stored.removeprefix("pbkdf2-sha256$"),
    ):
        assert not verify_password("right", odd)
    with pytest.raises(ConfigError):
        hash_password("x", iterations=0)
    with pytest.raises(ConfigError):
        hash_password("x", algorithm="md5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.row("SA-18")
def test_a_user_who_is_not_there_costs_what_the_others_do() -> None:
    assert dummy_hash([hash_password("a", iterations=7), hash_password("b", iterations=9)]).split("$")[1] == "9"
    assert len(dummy_hash([hash_password("a", algorithm="sha256-hex")])) == 64
    assert dummy_hash([]).split("$")[1] == "100000"


@pytest.mark.row("SA-11")
async def test_keys_of_a_list_and_of_old_stores(caplog: pytest.LogCaptureFixture) -> None:
    one = APIKeyAuth(["key-a", "key-b"])
    first, second = [await one.authenticate(asking(x_api_key=key)) for key in ("key-a", "key-b")]
    assert first.subject != second.subject
    assert "key-a" not in str(first)
    assert first.scopes == frozenset()
    old = APIKeyAuth({plain_digest("a-key").upper(): {"subject": "old"}}, hash_keys=True, pepper="p")
    assert (await old.authenticate(asking(authorization="apikey a-key"))).subject == "old"
    assert "hash it again" in caplog.text
    with pytest.raises(Denied):  # what is stored is no key
        await old.authenticate(asking(x_api_key=plain_digest("a-key")))
    named = APIKeyAuth(["k"], header_name="X-My-Key")
    assert named.headers == ("x-my-key", "authorization")
    assert (await named.authenticate(asking(x_my_key="k"))).subject

    async def look_up(key: str) -> dict[str, str] | None:
        return {"subject": "v", "plan": "gold"} if key == "known" else None

    verified = APIKeyAuth(verifier=look_up)
    assert (await verified.authenticate(asking(x_api_key="known"))).claims == {"plan": "gold"}
    with pytest.raises(Denied):
        await verified.authenticate(asking(x_api_key="unknown"))


@pytest.mark.parametrize(
    "make",
    [
        APIKeyAuth,
        lambda: APIKeyAuth([""]),
        lambda: APIKeyAuth("key"),
        lambda: APIKeyAuth({"a": {"scope": "x"}}),
        lambda: APIKeyAuth([hash_key("a", "p")], hash_keys=True),
        BasicAuth,
        lambda: BasicAuth({"ann": ""}),
        lambda: BasicAuth({"ann": {"scopes": ["a"]}}),
    ],
)
def test_an_empty_key_or_password_is_refused_at_once(make: object) -> None:
    with pytest.raises(ConfigError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("pepper", [None, "", b""])
def test_a_key_is_not_hashed_without_a_pepper(pepper: str | bytes | None) -> None:
    with pytest.raises(PepperRequired, match="needs a pepper"):
        hash_key("k-secret", pepper)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: APIKeyAuth({"k-secret": {}}, hash_keys=True, pepper="p"), "1 of 1 keys are not hashes"),
        (
            lambda: APIKeyAuth(["k-secret", hash_key("b", "p")], hash_keys=True, pepper="p"),
            "1 of 2 keys are not hashes",
        ),
        (lambda: APIKeyAuth(["hmac-sha256$k-secret"], hash_keys=True, pepper="p"), "not hashes"),
        (lambda: APIKeyAuth([hash_key("k-secret", "p")], hash_keys=True, pepper=""), "the pepper is empty"),
        (lambda: APIKeyAuth({hash_key("k-secret", "p"): {}}), "pass hash_keys=True"),
        (lambda: APIKeyAuth({hash_password("k-secret", iterations=1): {}}), "pass hash_keys=True"),
        (lambda: APIKeyAuth(["k-secret"], pepper="p"), "pass hash_keys=True"),
        (lambda: APIKeyAuth({"k-secret": "user"}), "an entry must be a mapping"),  # type: ignore[dict-item]
        (lambda: BasicAuth({"ann": "k-secret"}), "the password of 'ann' is not hashed"),
        (lambda: BasicAuth({"ann": hash_key("k-secret", "p")}), "is not hashed"),
        (lambda: BasicAuth({"ann": {"password": 5}}), "must be a text, not int"),
        (lambda: BasicAuth({"ann": 5}), "not int"),  # type: ignore[dict-item]
        (lambda: BasicAuth({"ann": hash_password("k-secret", iterations=1)}, hash_passwords=False), "is a hash"),
    ],
)
def test_stored_secrets_that_can_never_match_are_refused_with_a_remedy(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        make()
    assert "k-secret" not in str(caught.value)


def test_a_random_key_in_hexadecimal_is_a_key() -> None:
    key = "ab" * 32
    assert len(APIKeyAuth([key])._index) == 1
    assert len(APIKeyAuth([plain_digest(key)], hash_keys=True)._index) == 1


@pytest.mark.row("SA-15")
async def test_a_right_password_is_hashed_once_and_a_wrong_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def counted(password: str, stored: str) -> bool:
        hashed.append(password)
        return verify_password(password, stored)

    monkeypatch.setattr("greenroom.auth.shared_secrets.verify_password", counted)
    provider = BasicAuth({"ann": hash_password("right", iterations=1)})
    for password in ("right", "right", "wrong", "wrong", "right"):
        try:
            await provider.authenticate(asking(**basic("ann", password)))
        except Denied:
            assert password == "wrong"
    assert hashed == ["right", "wrong", "wrong"]
    with pytest.raises(Denied):
        await provider.authenticate(asking(**basic("bob", "right")))
    plain = BasicAuth({"ann": "right"}, hash_passwords=False)
    assert (await plain.authenticate(asking(**basic("ann", "right")))).subject == "ann"
    with pytest.raises(Denied):
        await plain.authenticate(asking(**basic("zoe", "\0x"[1:])))
    checked = BasicAuth(verifier=lambda user, password: {"scopes": ["a"]} if password == "p" else None)
    assert (await checked.authenticate(asking(**basic("ann", "p")))).subject == "ann"
    with pytest.raises(Denied):
        await checked.authenticate(asking(**basic("ann", "q")))


async def test_a_flood_of_guesses_is_not_queued_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def slow(password: str, stored: str) -> bool:
        return not go.wait(30)

    monkeypatch.setattr("greenroom.auth.shared_secrets.verify_password", slow)
    provider = BasicAuth({"ann": hash_password("right", iterations=1)})
    guesses = [
        asyncio.ensure_future(why_not(provider, f"guess {number}")) for number in range(HASHES_AT_ONCE + MOST_QUEUED)
    ]
    for _ in range(3):
        await asyncio.sleep(0)  # each guess takes its place in its first turn
    assert provider._threads.waiting == MOST_QUEUED
    assert provider._threads.running == HASHES_AT_ONCE
    assert await why_not(provider, "one too many") == "too_many_failures"
    go.set()
    assert set(await asyncio.gather(*guesses)) == {"invalid_credentials"}


async def why_not(provider: BasicAuth, password: str) -> str:
    with pytest.raises(Denied) as denied:
        await provider.authenticate(asking(**basic("ann", password)))
    return denied.value.kind


@pytest.mark.soak
@pytest.mark.row("SA-18")
async def test_response_times_do_not_reveal_user_names() -> None:
    provider = BasicAuth({"ann": hash_password("right", iterations=2000), "bob": hash_password("x", iterations=2000)})
    tries = {"wrong": basic("ann", "wrong"), "unknown": basic("zoe", "wrong"), "other": basic("bob", "wrong")}
    took: dict[str, list[float]] = {name: [] for name in tries}
    logging.disable()
    for _ in range(2000):
        for name, shown in tries.items():
            began = time.perf_counter()
            with pytest.raises(Denied):
                await provider.authenticate(asking(**shown))
            took[name].append(time.perf_counter() - began)
    logging.disable(logging.NOTSET)
    medians = {name: statistics.median(times) for name, times in took.items()}
    spread = max(medians.values()) - min(medians.values())
    quarter = statistics.quantiles(took["wrong"], n=4)
    assert spread < max(quarter[2] - quarter[0], 0.05 * medians["wrong"]), medians
