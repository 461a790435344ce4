"""Tokens that carry a key or name its URL: each is signed with that key, so that only the key's origin is wrong with it."""

from __future__ import annotations

import base64
import datetime as dt
import hmac
import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from greenroom.auth.auth_info import AuthRequest
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.errors import Denied
from greenroom.auth.jose import make_key, parse_jwk_set, public_jwk, sign, verified_claims
from greenroom.auth.jwks_and_introspection import KeySet
from greenroom.auth.resource_server import OAuthResource
from greenroom.supervision import Supervisor, start, stop
from greenroom.transports.client.fetch import Fetcher, FetchResponse

from .auth_test_server import AUDIENCE, ISSUER, KEY, SECRET, claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.auth.auth_info import AuthProvider

RSA, EC, OKP = make_key("RSA", kid="r"), KEY, make_key("OKP", kid="o")
KNOWN = (RSA, EC, OKP)
ALGORITHM = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
ALL = tuple(ALGORITHM.values())


class Web:
    """A `Fetch` that serves the issuer's keys at the issuer's URL, and the attacker's at any other."""

    def __init__(self, strange: Any) -> None:
        self.asked: list[str] = []
        self.strange = strange

    async def fetch(self, url: str, **_: Any) -> FetchResponse:
        self.asked.append(url)
        keys = KNOWN if url == f"{ISSUER}/jwks" else (self.strange,)
        return FetchResponse(200, {}, json.dumps({"keys": [public_jwk(key) for key in keys]}).encode(), url)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def certificate(key: Any) -> str:
    """A self-signed certificate of the key, as in `x5c`."""
    private = key.inner.private_key
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "id.example")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(private, None if key.family == "OKP" else hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(Encoding.DER)).decode()


HEADERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "nothing": lambda _: {},
    "jwk": lambda key: {"jwk": public_jwk(key)},
    "jwk with a known kid": lambda key: {"jwk": {**public_jwk(key), "kid": "one"}, "kid": "one"},
    "jwk as text": lambda key: {"jwk": json.dumps(public_jwk(key))},
    "jwks": lambda key: {"jwks": {"keys": [public_jwk(key)]}},
    "jku": lambda _: {"jku": "https://evil.example/jwks"},
    "jku of the issuer's host": lambda _: {"jku": f"{ISSUER}/jwks?../evil"},
    "x5u": lambda _: {"x5u": "https://evil.example/cert"},
    "x5c": lambda key: {"x5c": [certificate(key)]},
    "x5c and jwk": lambda key: {"x5c": [certificate(key)], "jwk": public_jwk(key), "x5t": "AAAA"},
    "a known kid": lambda _: {"kid": "one"},
    "a kid that is a path": lambda _: {"kid": "../../../../dev/null"},
    "a kid that is a URL": lambda _: {"kid": "https://evil.example/jwks"},
    "a kid that is a query": lambda _: {"kid": "x' UNION SELECT 'key"},
    "a kid that is empty": lambda _: {"kid": ""},
    "the issuer in the header": lambda _: {"iss": ISSUER, "aud": AUDIENCE},
}


PLAIN = {name for name in HEADERS if name in ("nothing", "jku", "x5u") or "kid that" in name}
SMALL = {"jwk", "jwk with a known kid"}
"""The library accepts headers of up to 512 bytes, in which an RSA key has no room."""


def signed(said: dict[str, Any], key: Any, header: dict[str, Any]) -> str:
    """A token with any header, signed below the library's checks."""
    text = ".".join(b64(json.dumps(each).encode()) for each in ({"alg": ALGORITHM[key.family], **header}, said))
    private, data = key.inner.private_key, text.encode()
    if key.family == "RSA":
        return f"{text}.{b64(private.sign(data, padding.PKCS1v15(), hashes.SHA256()))}"
    if key.family == "OKP":
        return f"{text}.{b64(private.sign(data))}"
    pair = decode_dss_signature(private.sign(data, ec.ECDSA(hashes.SHA256())))
    return f"{text}.{b64(b''.join(each.to_bytes(32, 'big') for each in pair))}"


def providers(web: Web) -> dict[str, AuthProvider]:
    """The providers that verify signatures."""
    keys = KeySet(f"{ISSUER}/jwks", web.fetch, pause=0.0)
    found: dict[str, AuthProvider] = {
        f"a key of {key.family}": BearerAuth(
            key=key.inner.as_pem(private=False), algorithms=(ALGORITHM[key.family],), issuer=ISSUER, audience=AUDIENCE
        )
        for key in KNOWN
    }
    found["a key set"] = BearerAuth(keys=keys, algorithms=ALL, issuer=ISSUER, audience=AUDIENCE)
    found["a secret"] = BearerAuth(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)
    found["a resource"] = OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], keys=keys)
    return found


async def subject(provider: AuthProvider, token: str) -> str | None:
    """The subject for which a token is accepted; None if it is refused."""
    try:
        info = await provider.authenticate(AuthRequest("POST", "/mcp", {"authorization": f"Bearer {token}"}))
    except Denied as denied:
        assert denied.kind in ("invalid_token", "invalid_request"), denied.detail
        return None
    return info.subject


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    """Replaces every `Fetcher` too, so that an unexpected fetch is noticed."""
    made = Web(None)

    async def fetch(_: Fetcher, url: str, **more: Any) -> FetchResponse:
        return await made.fetch(url, **more)

    monkeypatch.setattr(Fetcher, "__call__", fetch)
    return made


@pytest.mark.row("SA-04")
@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("family", ALGORITHM)
async def test_a_token_that_is_signed_with_a_key_of_its_own_is_admitted_nowhere(
    web: Web, family: Any, name: str
) -> None:
    strange = make_key(family, kid="strange")
    web.strange = strange
    header = HEADERS[name](strange)
    kid = {} if "kid" in header else {"kid": "strange"}
    tokens = [signed(claims("root"), strange, {**header, **more}) for more in ({}, kid)]
    if name in PLAIN or (name in SMALL and family != "RSA"):  # the library refuses the others in any token
        assert verified_claims(tokens[0], [strange], ALL)["sub"] == "root"  # so the signature itself is right
    for provider in (made := providers(web)).values():
        top = await start(Supervisor, provider.children())
        for token in tokens:
            assert await subject(provider, token) is None
        await stop(top)
    assert set(web.asked) <= {f"{ISSUER}/jwks"}
    assert made


@pytest.mark.row("SA-04")
@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "a known kid"])
async def test_keys_in_the_header_of_a_valid_token_are_ignored(web: Web, name: str) -> None:
    """Clients and issuers may add such headers: only the issuer's key counts."""
    strange = web.strange = make_key("EC", kid="strange")
    provider = providers(web)["a key set"]
    top = await start(Supervisor, provider.children())
    assert await subject(provider, signed(claims(), EC, HEADERS[name](strange))) == "ann"
    assert web.asked == [f"{ISSUER}/jwks"]
    await stop(top)


@pytest.mark.row("SA-04")
@pytest.mark.parametrize("secret", [b"", b"\0" * 32, b"secret", b"public", b"embedded"])
async def test_a_token_with_a_mac_by_what_the_attacker_knows_is_admitted_nowhere(web: Web, secret: bytes) -> None:
    pem: bytes = EC.inner.as_pem(private=False)
    own = b"a secret of the attacker's own, long enough for HMAC"
    used = {b"public": pem, b"embedded": own}.get(secret, secret)
    header: dict[str, Any] = {"alg": "HS256", "kid": "one"}
    if secret == b"embedded":
        header["jwk"] = {"kty": "oct", "k": b64(own)}
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims('root')).encode())}"
    token = f"{signed}.{b64(hmac.digest(used, signed.encode(), 'sha256'))}"
    for provider in providers(web).values():
        top = await start(Supervisor, provider.children())
        assert await subject(provider, token) is None
        await stop(top)


# --- keys that are too short, and algorithms that were not asked for


def short(bits: int) -> tuple[dict[str, Any], Callable[[bytes], bytes]]:
    """An RSA key of that length as an issuer publishes it, and a signer below the library's checks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        key = rsa.generate_private_key(65537, bits)
    numbers = key.public_key().public_numbers()
    shown = {"kty": "RSA", "kid": "short", "use": "sig", "e": "AQAB", "n": b64(numbers.n.to_bytes(bits // 8, "big"))}
    return shown, lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.row("SA-04")
@pytest.mark.parametrize(("bits", "admitted"), [(1024, False), (1536, False), (2040, False), (2048, True)])
async def test_an_rsa_key_of_less_than_2048_bits_is_none_in_a_key_set(bits: int, *, admitted: bool) -> None:
    """With warnings as in programs: as errors, they would make the library refuse such a key by itself."""
    shown, signer = short(bits)
    head, body = json.dumps({"alg": "RS256", "kid": "short"}), json.dumps(claims())
    signed = f"{b64(head.encode())}.{b64(body.encode())}"
    token = f"{signed}.{b64(signer(signed.encode()))}"

    async def fetch(url: str, **_: Any) -> FetchResponse:
        return FetchResponse(200, {}, json.dumps({"keys": [shown, public_jwk(EC)]}).encode(), url)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(parse_jwk_set({"keys": [shown]})) == admitted
        keys = KeySet(f"{ISSUER}/jwks", fetch)
        for provider in (
            BearerAuth(keys=keys, algorithms=("RS256",), issuer=ISSUER, audience=AUDIENCE),
            OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], keys=keys),
        ):
            top = await start(Supervisor, provider.children())
            assert await subject(provider, token) == ("ann" if admitted else None)
            await stop(top)


@pytest.mark.row("SA-04")
@pytest.mark.parametrize("algorithm", ["RS256", "ES384", "HS256", "none", "None", "EdDSA", "ES256 ", "es256", "XX999"])
async def test_no_keys_are_fetched_for_an_algorithm_that_is_not_accepted(web: Web, algorithm: str) -> None:
    """Otherwise each made-up token would cause a fetch at the issuer."""
    keys = KeySet(f"{ISSUER}/jwks", web.fetch, pause=0.0)
    provider = BearerAuth(keys=keys, algorithms=("ES256",), issuer=ISSUER, audience=AUDIENCE)
    top = await start(Supervisor, provider.children())
    for number in range(3):
        header = json.dumps({"alg": algorithm, "kid": f"new-{number}"}).encode()
        assert await subject(provider, f"{b64(header)}.{b64(json.dumps(claims()).encode())}.AAAA") is None
    assert web.asked == []
    assert await subject(provider, sign(claims(), EC, "ES256")) == "ann"
    assert web.asked == [f"{ISSUER}/jwks"]
    await stop(top)


def test_the_public_half_of_a_key_is_all_that_is_shown() -> None:
    for key in KNOWN:
        assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & set(public_jwk(key))
        pem = key.inner.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        assert b"PUBLIC" in pem
