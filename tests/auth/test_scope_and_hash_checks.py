"""Small checks: all of several scopes are needed, and an unknown user costs a hash."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Context, Server
from greenroom.auth import shared_secrets as basic_module
from greenroom.auth.auth_info import AuthInfo, AuthRequest
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.errors import Denied
from greenroom.auth.jose import sign
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.shared_secrets import ROUNDS, BasicAuth, hash_password, verify_password

from .auth_test_server import AUDIENCE, ISSUER, KEY, Reception, basic, bearer, call, claims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.transports.http.engine_driver import RecordedResponse

SETS: list[tuple[str, ...]] = [(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c")]
NEEDED = ("a", "b", "c")


@pytest.mark.parametrize("granted", SETS, ids=" ".join)
@pytest.mark.parametrize("needed", SETS, ids=" ".join)
def test_all_scopes_are_needed_and_nothing_stands_for_one(granted: tuple[str, ...], needed: tuple[str, ...]) -> None:
    info = AuthInfo("ann", scopes=frozenset(granted))
    assert info.has(needed) is set(needed).issubset(granted)
    assert info.lacks(needed) == set(needed) - set(granted)
    assert AuthInfo("ann", scopes=None).has(needed) is (not needed)


def _key_pem() -> bytes:
    pem: bytes = KEY.inner.as_pem(private=False)
    return pem


def _gate() -> Server:
    return Server(
        "gate", auth=BearerAuth(key=_key_pem(), algorithms=("ES256",), audience=AUDIENCE), required_scopes=NEEDED
    )


def _resource() -> Server:
    way = OAuthResource(
        resource=AUDIENCE,
        authorization_servers=[ISSUER],
        key=_key_pem(),
        algorithms=("ES256",),
        required_scopes=NEEDED,
    )
    return Server("resource", auth=way)


def _tool() -> Server:
    return Server("tool", auth=BearerAuth(key=_key_pem(), algorithms=("ES256",), audience=AUDIENCE))


def _both() -> Server:
    auth = BearerAuth(key=_key_pem(), algorithms=("ES256",), audience=AUDIENCE)
    return Server("both", auth=auth, required_scopes=["a", "b"])


@pytest.mark.row("TF-12")
@pytest.mark.parametrize("granted", SETS, ids=" ".join)
@pytest.mark.parametrize("make", [_gate, _resource, _tool, _both])
async def test_a_token_with_one_of_several_required_scopes_is_refused(make: Any, granted: Sequence[str]) -> None:
    """Wherever they are required: of all who come, by the resource, of one tool, or partly here and partly there."""
    server: Server = make()
    ran: list[str] = []

    @server.tool(scopes={_tool: NEEDED, _both: ["c"]}.get(make, []))
    async def change(ctx: Context) -> str:
        ran.append(ctx.auth.subject)
        return "changed"

    shown = bearer(sign(claims(scope=" ".join(granted)), KEY, "ES256"))
    enough = set(NEEDED) <= set(granted)
    async with server.started():
        desk = Reception(server, plain=True)
        paper = await desk.ask("POST", shown, call("change"))
        assert (paper.status, ran) == ((200, ["ann"]) if enough else (403, []))
        if not enough:
            assert 'error="insufficient_scope"' in paper.headers["www-authenticate"]
        listed = await desk.ask("POST", shown, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
        assert _names(listed) == (["change"] if enough else [])
        await desk.close()


def _names(paper: RecordedResponse) -> list[str]:
    return [each["name"] for each in paper.json["result"]["tools"]] if paper.status == 200 else []


# --- users


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """Each password that is looked at: with what it is compared, and whether that is away from the loop."""
    found: list[tuple[str, str, bool]] = []
    loop = threading.get_ident()

    def counted(password: str, stored: str) -> bool:
        found.append((password, stored, threading.get_ident() != loop))
        return verify_password(password, stored)

    monkeypatch.setattr(basic_module, "verify_password", counted)
    return found


async def _refused(provider: BasicAuth, user: str, password: str) -> Denied:
    with pytest.raises(Denied) as denied:
        await provider.authenticate(
            AuthRequest("POST", "/mcp", {"authorization": str(basic(user, password)["authorization"])})
        )
    return denied.value


@pytest.mark.row("SA-18")
async def test_an_unknown_user_is_refused_with_as_much_hashing_as_a_known_one(
    hashed: list[tuple[str, str, bool]],
) -> None:
    users = {name: hash_password("right", iterations=rounds) for name, rounds in (("ann", 3), ("bob", 7), ("cat", 5))}
    provider = BasicAuth(users)
    answers = {user: await _refused(provider, user, "wrong") for user in ("ann", "bob", "zoe", "", "ann ")}
    assert [each[0] for each in hashed] == ["wrong"] * 5
    rounds = [each[1].split("$")[1] for each in hashed]
    assert rounds == ["3", "7", "7", "7", "7"]  # an unknown one costs what the most expensive one does
    assert all(away for *_, away in hashed)
    assert len({str(each) for each in answers.values()}) == 1
    assert len({(each.kind, each.detail, each.message) for each in answers.values()}) == 1


@pytest.mark.row("SA-18")
async def test_without_any_user_a_guess_costs_what_a_new_password_would(
    hashed: list[tuple[str, str, bool]],
) -> None:
    await _refused(BasicAuth({}), "ann", "wrong")
    assert [each[1].split("$")[1] for each in hashed] == [str(ROUNDS)]


async def test_the_password_that_stands_for_unknown_users_opens_nothing(hashed: list[tuple[str, str, bool]]) -> None:
    provider = BasicAuth({"ann": hash_password("right", iterations=1)})
    for password in ("", provider._unknown_user_hash, "right"):
        await _refused(provider, "zoe", password)
    assert len(hashed) == 3
    plain = BasicAuth({"ann": "right"}, hash_passwords=False)
    for password in ("", "\0", plain._unknown_user_hash, "right"):
        await _refused(plain, "zoe", password)
    assert len(hashed) == 3
