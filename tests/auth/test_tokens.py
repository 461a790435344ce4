"""Signed tokens and attacks on them, key sets that rotate, and introspection of opaque tokens."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from greenroom import ConfigError
from greenroom.auth.auth_info import AuthRequest
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.errors import Denied
from greenroom.auth.jose import (
    InvalidKeyError,
    make_key,
    parse_jwk_set,
    public_jwk,
    public_key,
    secret_key,
    sign,
    verified_claims,
)
from greenroom.auth.jwks_and_introspection import LARGEST_RESPONSE, REQUESTS_AT_ONCE, Introspection, KeySet
from greenroom.supervision import Supervisor, send, start, stop, whereis
from greenroom.transports.client.errors import ConnectFailed
from greenroom.transports.client.fetch import FetchResponse

from .auth_test_server import AUDIENCE, ISSUER, KEY, SECRET, Book, bearer, claims

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.auth.auth_info import AuthInfo

HMAC = secret_key(SECRET)


async def let_in(provider: BearerAuth, token: str) -> AuthInfo:
    headers = {name: value for name, value in bearer(token).items() if value}
    return await provider.authenticate(AuthRequest("POST", "/mcp", headers))


async def why_not(provider: BearerAuth, token: str) -> str:
    with pytest.raises(Denied) as denied:
        await let_in(provider, token)
    assert token not in f"{denied.value!r} {denied.value.detail}"
    return denied.value.kind


def with_secret(**more: Any) -> BearerAuth:
    options: dict[str, Any] = {"secret": SECRET, "issuer": ISSUER, "audience": AUDIENCE, **more}
    return BearerAuth(**options)


@pytest.mark.row("SA-04", "SA-05")
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, None),
        ({"exp": -30}, None),  # within the skew
        ({"exp": -61}, "expired_token"),
        ({"exp": "soon"}, "invalid_token"),
        ({"exp": True}, "invalid_token"),
        ({"nbf": 30}, None),
        ({"nbf": 90}, "invalid_token"),
        ({"nbf": [1]}, "invalid_token"),
        ({"iss": "https://id.example/"}, "invalid_token"),
        ({"iss": None}, "invalid_token"),
        ({"iss": [ISSUER]}, "invalid_token"),
        ({"aud": ["https://a.example", AUDIENCE]}, None),
        ({"aud": None}, "invalid_token"),
        ({"aud": []}, "invalid_token"),
        ({"aud": {AUDIENCE: 1}}, "invalid_token"),
        ({"aud": AUDIENCE + "/"}, "invalid_token"),
    ],
)
async def test_claims(said: dict[str, Any], kind: str | None) -> None:
    for word in ("exp", "nbf"):
        if type(said.get(word)) is int:
            said = {**said, word: time.time() + said[word]}
    token = sign(claims(**said), HMAC, "HS256")
    book = Book()
    book.known[token] = claims(**said)
    for provider in (with_secret(), with_secret(secret=None, verifier=book.verify)):
        if kind is None:
            assert (await let_in(provider, token)).subject == "ann"
        else:
            assert await why_not(provider, token) == kind


@pytest.mark.row("SA-05")
async def test_either_side_may_name_several() -> None:
    provider = with_secret(audience=["https://x.example", AUDIENCE], issuer=[ISSUER, "https://b.example"])
    info = await let_in(provider, sign(claims(aud=[AUDIENCE, "https://y.example"], client_id="c"), HMAC, "HS256"))
    assert (info.subject, info.issuer, info.client_id) == ("ann", ISSUER, "c")
    assert info.audience == (AUDIENCE, "https://y.example")
    assert info.scopes == frozenset({"use", "look"})
    assert (
        await let_in(with_secret(audience=None, issuer=None), sign(claims(aud=None, iss=None), HMAC, "HS256"))
    ).subject == "ann"


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.row("SA-04")
async def test_tricks_with_algorithms_and_names_of_keys() -> None:
    pem: bytes = KEY.inner.as_pem(private=False)
    good = sign(claims(), KEY, "ES256")
    public = BearerAuth(key=pem, algorithms=("ES256",), audience=AUDIENCE)
    assert (await let_in(public, good)).subject == "ann"
    head, body, signature = good.split(".")
    unsigned = [
        f"{part({'alg': alg})}.{body}.{end}" for alg in ("none", "None", "NONE", "", "nOnE") for end in ("", signature)
    ]
    # the public key, taken for a secret
    mac = hmac.digest(pem, f"{part({'alg': 'HS256'})}.{body}".encode(), "sha256")
    confused = f"{part({'alg': 'HS256'})}.{body}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    critical = f"{part({'alg': 'ES256', 'crit': ['exp'], 'exp': 1})}.{body}.{signature}"
    paths = [
        f"{part({'alg': 'ES256', 'kid': kid})}.{body}.{signature}"
        for kid in ("../../dev/null", "' or 1=1", 5, "k" * 600)
    ]
    tampered = f"{head}.{part(claims('root'))}.{signature}"
    for token in (*unsigned, confused, critical, *paths, tampered, f"{head}.{body}.", good[:-4]):
        assert await why_not(public, token) in ("invalid_token", "invalid_request")
    for algorithm in ("HS384", "HS512"):
        assert await why_not(with_secret(), sign(claims(), HMAC, algorithm)) == "invalid_token"


@pytest.mark.parametrize(
    ("family", "algorithms"),
    [
        ("RSA", ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("EC", ("ES256",)),
        ("OKP", ("EdDSA",)),
    ],
)
def test_every_algorithm_signs_and_is_checked(family: Any, algorithms: tuple[str, ...]) -> None:
    key = make_key(family, kid="k")
    read = parse_jwk_set(
        {"keys": [public_jwk(key), {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA"}, 5, {"kty": "EC", "use": "enc"}]}
    )
    assert len(read) == 1
    assert "d" not in public_jwk(key)
    for algorithm in algorithms:
        token = sign({"sub": "ann"}, key, algorithm)
        assert verified_claims(token, read, [algorithm]) == {"sub": "ann"}
        with pytest.raises(Denied):
            verified_claims(token, read, [each for each in algorithms if each != algorithm] or ["HS256"])
    with pytest.raises(InvalidKeyError):
        sign({}, key, "HS256")
    with pytest.raises(InvalidKeyError):
        public_jwk(HMAC)


@pytest.mark.parametrize(
    "options",
    [
        {"secret": SECRET},
        {"audience": AUDIENCE},
        {"secret": "short", "audience": AUDIENCE},
        {"secret": SECRET, "key": b"x", "algorithms": ("RS256",), "audience": AUDIENCE},
        {"secret": SECRET, "algorithms": ("RS256",), "audience": AUDIENCE},
        {"secret": SECRET, "algorithms": ("none",), "audience": AUDIENCE},
        {"secret": SECRET, "algorithms": "HS256", "audience": AUDIENCE},
        {"key": b"no key", "algorithms": ("RS256",), "audience": AUDIENCE},
        {"key": KEY.inner.as_pem(private=False), "audience": AUDIENCE},
        {"key": KEY.inner.as_pem(private=False), "algorithms": ("RS256",), "audience": AUDIENCE},
        {"key": KEY.inner.as_pem(private=False), "algorithms": ("HS256",), "audience": AUDIENCE},
        {"verifier": str, "algorithms": ("RS256",), "audience": AUDIENCE},
        {"secret": SECRET, "audience": []},
        {"secret": SECRET, "audience": ""},
        {"secret": SECRET, "audience": AUDIENCE, "issuer": 5},
        {"secret": SECRET, "audience": AUDIENCE, "clock_skew": -1},
    ],
)
def test_contradictory_settings_are_refused_at_once_without_quoting_a_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        BearerAuth(**options)
    assert SECRET not in str(refused.value)


def test_a_short_rsa_key_is_none() -> None:
    short = (
        rsa.generate_private_key(65537, 1024).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidKeyError, match="1024 bits"):
            public_key(short)
    with pytest.raises(InvalidKeyError):
        public_key(short)


@pytest.mark.row("SA-06")
async def test_a_verifier_of_ones_own() -> None:
    book = Book()
    token = book.issue(claims(scope=["use"]))

    async def later(token: str) -> dict[str, Any] | None:
        return book.verify(token)

    for verifier in (book.verify, later):
        provider = BearerAuth(verifier=verifier, audience=AUDIENCE)
        assert (await let_in(provider, token)).scopes == frozenset({"use"})
        assert await why_not(provider, "unknown") == "invalid_token"


# --- key sets


class Issuer:
    """Its keys, and how often it was asked for them."""

    def __init__(self) -> None:
        self.keys = [make_key("EC", kid="k0")]
        self.asked = 0
        self.failure: Exception | None = None
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, url: str, **_: Any) -> FetchResponse:
        self.asked += 1
        self.called.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return FetchResponse(200, {}, json.dumps({"keys": [public_jwk(key) for key in self.keys]}).encode(), url)


@asynccontextmanager
async def running(provider: BearerAuth) -> AsyncGenerator[BearerAuth]:
    top = await start(Supervisor, provider.children())
    yield provider
    await stop(top)


def by_keys(issuer: Issuer, **options: float) -> BearerAuth:
    keys = KeySet("https://id.example/jwks?secret=1", issuer.fetch, **options)
    assert "secret" not in repr(keys)
    return BearerAuth(keys=keys, algorithms=("ES256",), audience=AUDIENCE)


async def test_keys_are_fetched_once_for_all_and_again_for_a_new_one() -> None:
    issuer = Issuer()
    async with running(by_keys(issuer, pause=0.0)) as provider:
        issuer.gate.clear()
        token = sign(claims(), issuer.keys[0], "ES256")
        callers = [asyncio.create_task(let_in(provider, token)) for _ in range(100)]
        await issuer.called.wait()
        issuer.gate.set()
        assert {info.subject for info in await asyncio.gather(*callers)} == {"ann"}
        assert issuer.asked == 1
        issuer.keys = [make_key("EC", kid="k1")]
        assert (await let_in(provider, sign(claims(), issuer.keys[0], "ES256"))).subject == "ann"
        assert issuer.asked == 2
        assert await why_not(provider, token) == "invalid_token"  # its key is gone


async def test_made_up_names_of_keys_cost_one_fetch_in_a_while() -> None:
    issuer = Issuer()
    async with running(by_keys(issuer)) as provider:
        token = sign(claims(), issuer.keys[0], "ES256")
        await let_in(provider, token)
        for number in range(50):
            assert await why_not(provider, sign(claims(), make_key("EC", kid=f"x{number}"), "ES256")) == "invalid_token"
        assert issuer.asked == 1
        assert (await let_in(provider, token)).subject == "ann"


async def test_a_token_that_was_let_in_is_refused_once_another_key_has_the_name_of_its_own() -> None:
    issuer = Issuer()
    async with running(by_keys(issuer, fresh=100.0)) as provider:
        token = sign(claims(), issuer.keys[0], "ES256")
        assert (await let_in(provider, token)).subject == "ann"
        issuer.keys = [make_key("EC", kid="k0")]
        await asyncio.sleep(101)
        assert issuer.asked == 2
        assert await why_not(provider, token) == "invalid_token"
        assert (await let_in(provider, sign(claims(), issuer.keys[0], "ES256"))).subject == "ann"


def test_two_keys_of_one_name_are_not_the_same_key() -> None:
    one, other = make_key("EC", kid="k0"), make_key("EC", kid="k0")
    assert one != other
    assert len({one, other, one}) == 2


@pytest.mark.parametrize("failure", [ConnectFailed("down"), RuntimeError("a secret")])
async def test_an_issuer_that_is_away_leaves_the_keys_as_they_are(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer()
    issuer.failure = failure
    async with running(by_keys(issuer, pause=0.0)) as provider:
        token = sign(claims(), issuer.keys[0], "ES256")
        assert await why_not(provider, token) == "server_error"
        issuer.failure = None
        assert (await let_in(provider, token)).subject == "ann"
        issuer.failure = failure
        assert await why_not(provider, sign(claims(), make_key("EC", kid="new"), "ES256")) == "invalid_token"
        assert (await let_in(provider, token)).subject == "ann"
    assert "secret" not in caplog.text


async def test_keys_are_fetched_again_after_a_while_without_an_unknown_key_id() -> None:
    issuer = Issuer()
    async with running(by_keys(issuer, fresh=100.0)) as provider:
        token = sign(claims(), issuer.keys[0], "ES256")
        await let_in(provider, token)
        issuer.keys = [make_key("EC", kid="k9")]
        await asyncio.sleep(101)
        assert issuer.asked == 2
        assert await why_not(provider, token) == "invalid_token"  # its key was taken back
        assert (await let_in(provider, sign(claims(), issuer.keys[0], "ES256"))).subject == "ann"
        [process] = [each.id for each in provider.children()]
        pid = whereis(process)
        assert pid is not None
        send(pid, "what is this?")
        await asyncio.sleep(1)
        assert whereis(process) == pid


async def test_an_answer_without_keys_is_told_as_the_servers_own_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async def fetch(url: str, **_: Any) -> FetchResponse:
        return FetchResponse(503, {}, b"", url)

    keys = KeySet("https://id.example/jwks", fetch)
    async with running(BearerAuth(keys=keys, algorithms=("ES256",), audience=AUDIENCE)) as provider:
        token = sign(claims(), make_key("EC", kid="k0"), "ES256")
        assert await why_not(provider, token) == "server_error"
    assert "could not be fetched: status 503" in caplog.text


async def test_without_the_process_of_the_key_set_no_caller_is_admitted() -> None:
    issuer = Issuer()
    assert await why_not(by_keys(issuer), sign(claims(), issuer.keys[0], "ES256")) == "server_error"
    assert issuer.asked == 0


# --- introspection


def by_asking(fetch: Callable[..., Any], **options: Any) -> BearerAuth:
    asked = Introspection("https://id.example/i?x=secret", fetch, client_id="me", client_secret="secret", **options)
    assert "secret" not in repr(asked)
    return BearerAuth(introspection=asked, audience=AUDIENCE, issuer=ISSUER)


async def test_answers_are_kept_and_asked_for_once() -> None:
    book = Book()
    token = book.issue(claims())
    async with running(by_asking(book.fetch)) as provider:
        infos = await asyncio.gather(*(let_in(provider, token) for _ in range(50)))
        assert {info.subject for info in infos} == {"ann"}
        assert book.asked == 1
        for _ in range(3):
            assert await why_not(provider, "unknown") == "invalid_token"
        assert book.asked == 2


async def test_made_up_tokens_put_no_good_one_out_and_nothing_is_kept_beyond_its_time() -> None:
    book = Book()
    token, old = book.issue(claims()), book.issue(claims(exp=time.time() - 5))
    async with running(by_asking(book.fetch, most=10)) as provider:
        await let_in(provider, token)
        for number in range(30):
            await why_not(provider, f"made-up-{number}")
        asked = book.asked
        await let_in(provider, token)
        assert book.asked == asked
        await let_in(provider, old)  # within the skew
        await let_in(provider, old)
        assert book.asked == asked + 2


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"{}"),
        (200, b"[]"),
        (200, b"no"),
        (200, b'{"active":"true"}'),
        (200, b'{"a":"' + b"x" * LARGEST_RESPONSE + b'"}'),
    ],
)
async def test_invalid_introspection_responses_admit_no_caller(answer: tuple[int, bytes]) -> None:
    async def fetch(url: str, **_: Any) -> FetchResponse:
        return FetchResponse(answer[0], {}, answer[1], url)

    async with running(by_asking(fetch)) as provider:
        kind = "invalid_token" if b"active" in answer[1] else "server_error"
        assert await why_not(provider, "t0ken") == kind


async def test_only_so_many_tokens_are_asked_about_at_once_and_the_same_one_counts_once() -> None:
    book, go, asked = Book(), asyncio.Event(), asyncio.Event()
    tokens = [book.issue(claims()) for _ in range(REQUESTS_AT_ONCE + 1)]
    begun: list[str] = []

    async def fetch(url: str, **more: Any) -> FetchResponse:
        begun.append(url)
        if len(begun) == REQUESTS_AT_ONCE:
            asked.set()
        await go.wait()
        return await book.fetch(url, **more)

    async with running(by_asking(fetch)) as provider, asyncio.TaskGroup() as group:
        waiting = [group.create_task(let_in(provider, token)) for token in tokens[:REQUESTS_AT_ONCE]]
        await asked.wait()
        again = group.create_task(let_in(provider, tokens[0]))
        with pytest.raises(Denied) as denied:
            await let_in(provider, tokens[REQUESTS_AT_ONCE])
        assert (denied.value.kind, len(begun)) == ("server_error", REQUESTS_AT_ONCE)
        assert f"{REQUESTS_AT_ONCE} introspection requests are in flight already" in denied.value.detail
        go.set()
        assert {(await each).subject for each in [*waiting, again]} == {"ann"}
        assert (await let_in(provider, tokens[REQUESTS_AT_ONCE])).subject == "ann"


async def test_a_crashing_introspection_fails_only_its_own_callers(caplog: pytest.LogCaptureFixture) -> None:
    book = Book()
    token = book.issue(claims())
    broken = True

    async def fetch(url: str, **more: Any) -> FetchResponse:
        if broken:
            raise ConnectFailed("down")
        return await book.fetch(url, **more)

    async with running(by_asking(fetch)) as provider:
        assert await why_not(provider, token) == "server_error"
        broken = False
        assert (await let_in(provider, token)).subject == "ann"
    assert token not in caplog.text
