"""Several providers on one server: the first that finds credentials of its kind decides, and the others are not asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError, Server
from greenroom.auth import APIKeyAuth, BasicAuth, BearerAuth, KeySet, hash_password
from greenroom.auth.auth_gate import ProviderChain
from greenroom.auth.auth_info import AuthRequest
from greenroom.auth.errors import Denied
from greenroom.auth.jose import secret_key, sign
from greenroom.run_options import auth_gate_of
from greenroom.transports.interfaces import HttpRefusal, Peer

from .auth_test_server import AUDIENCE, ISSUER, SECRET, basic, bearer, claims, fetch_keys

if TYPE_CHECKING:
    from greenroom.auth.auth_gate import AuthGate

BEARER, KEY = 'Bearer realm="mcp"', 'ApiKey header="x-api-key"'


def token(**more: Any) -> str:
    return sign(claims(**more), secret_key(SECRET), "HS256")


def tokens() -> BearerAuth:
    return BearerAuth(secret=SECRET, issuer=ISSUER, audience=AUDIENCE)


def keys() -> APIKeyAuth:
    return APIKeyAuth({"k-ci": {"subject": "ci", "scopes": ["use"]}, "k-none": {"subject": "none", "scopes": []}})


async def knock(gate: AuthGate, shown: Any) -> str | tuple[int, list[str]]:
    """The subject that is admitted; or the status and the challenges."""
    headers = {name: value for name, value in shown.items() if value is not None}
    found = await gate.authenticate("POST", "/mcp", headers, Peer("http", "203.0.113.7:5000"))
    if isinstance(found, HttpRefusal):
        return found.status, [value for name, value in found.headers if name == "www-authenticate"]
    return str(found.auth.subject)


@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        (bearer(token()), "ann"),
        ({"x-api-key": "k-ci"}, "ci"),
        ({"authorization": "ApiKey k-ci"}, "ci"),
        ({**bearer(token()), "x-api-key": "wrong"}, "ann"),
        ({}, (401, [BEARER, KEY])),
        (basic("ann", "right"), (401, [BEARER, KEY])),
        ({**bearer("wrong"), "x-api-key": "k-ci"}, (401, ["Bearer …invalid_token"])),
        (bearer(token(exp=1)), (401, ["Bearer …invalid_token"])),
        ({"x-api-key": "wrong"}, (401, [KEY])),
        ({"authorization": "Bearer a b"}, (400, ["Bearer …invalid_request"])),
        (bearer(token(scope="look")), (403, ["Bearer …insufficient_scope"])),
        ({"x-api-key": "k-none"}, (403, [KEY])),
    ],
)
async def test_the_first_that_finds_its_credentials_decides(shown: Any, outcome: Any) -> None:
    gate = auth_gate_of([tokens(), keys()], ["use"])
    assert gate is not None

    found = await knock(gate, shown)

    if isinstance(found, tuple) and found[1] and "…" in outcome[1][0]:
        kind, _, error = outcome[1][0].partition(" …")
        assert found[0] == outcome[0]
        assert len(found[1]) == 1
        assert found[1][0].startswith(kind)
        assert f'error="{error}"' in found[1][0]
    else:
        assert found == outcome


async def test_a_call_that_lacks_a_scope_is_told_so_as_its_own_provider_does() -> None:
    gate = auth_gate_of([tokens(), keys()], [])
    assert gate is not None
    for shown, begins in ((bearer(token()), "Bearer"), ({"x-api-key": "k-ci"}, "ApiKey")):
        headers = {name: str(value) for name, value in shown.items()}
        refused = await gate.challenge_for_scopes(["write"], "POST", "/mcp", headers, Peer("http", "203.0.113.7:5000"))
        (challenge,) = (value for name, value in refused.headers if name == "www-authenticate")
        assert (refused.status, challenge.partition(" ")[0]) == (403, begins)
    headers = {"authorization": f"Bearer {token(exp=1)}"}  # it has expired between the two
    refused = await gate.challenge_for_scopes(["write"], "POST", "/mcp", headers, Peer("http", "203.0.113.7:5000"))
    assert [value.partition(" ")[0] for name, value in refused.headers if name == "www-authenticate"] == ["Bearer"]


async def test_a_wrong_password_is_not_asked_of_the_next() -> None:
    asked: list[str] = []

    def look(key: str) -> None:
        asked.append(key)

    both = ProviderChain([BasicAuth({"ann": hash_password("right", iterations=1)}), APIKeyAuth(verifier=look)])
    headers = {"x-api-key": "k", **{name: str(value) for name, value in basic("ann", "wrong").items()}}
    with pytest.raises(Denied, match="invalid_credentials"):
        await both.authenticate(AuthRequest("POST", "/mcp", headers))
    assert asked == []


def test_they_need_what_each_of_them_needs() -> None:
    keys_of_issuer = KeySet("https://id.example/jwks", fetch_keys)
    signed = BearerAuth(keys=keys_of_issuer, algorithms=("ES256",), issuer=ISSUER, audience=AUDIENCE)
    both = ProviderChain([keys(), signed])
    assert list(both.headers) == ["x-api-key", "authorization"]
    assert len(both.children()) == 1
    assert SECRET not in repr(ProviderChain([tokens(), keys()]))
    assert "k-ci" not in repr(both)


def test_an_invalid_list_of_providers_is_refused_with_a_remedy() -> None:
    for wrong in ([tokens(), "hunter2"], [APIKeyAuth], ({"auth": tokens()},)):
        with pytest.raises(ConfigError, match=r"auth must be BearerAuth\(…\).*, or a list of them, not") as failed:
            Server("x", auth=wrong)  # type: ignore[arg-type]
        assert "hunter2" not in str(failed.value)
    with pytest.raises(ConfigError, match="auth=None"):
        Server("x", auth=[])
    documented = [
        BearerAuth(
            secret=SECRET,
            audience=AUDIENCE,
            resource_metadata={"resource": AUDIENCE, "authorization_servers": [ISSUER]},
        )
        for _ in range(2)
    ]
    with pytest.raises(ConfigError, match="clients read only one"):
        Server("x", auth=documented)
    assert ProviderChain([keys(), documented[0]]).public_document is documented[0].public_document
