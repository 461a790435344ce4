"""Sign-ins and refused credentials as events: they tell a kind and a step, and nothing that a caller or a server has sent."""

from __future__ import annotations

from typing import Any

import pytest
from tests.heard_events import hearing

from greenroom import Server
from greenroom.auth import ClientCredentials, GivenTokens, MemoryStore, SignInError
from greenroom.auth.auth_gate import AuthGate, FailureLimiter
from greenroom.auth.shared_secrets import BasicAuth, CustomAuth, hash_password
from greenroom.event_types import SignInEnded
from greenroom.transports.interfaces import HttpRefusal, Peer

from .auth_test_server import basic
from .client.oauth_world import CHALLENGE, ISSUER, URL, World
from .client.test_login_flows import oauth, signed_in

PEER = Peer("http", "203.0.113.7:5000")


async def refused(gate: AuthGate, headers: dict[str, str]) -> None:
    assert isinstance(await gate.authenticate("POST", "/mcp", headers, PEER), HttpRefusal)


async def test_each_refusal_of_a_caller_has_its_kind() -> None:
    gate = AuthGate(BasicAuth({"ann": hash_password("right", iterations=1)}), per_claim=FailureLimiter(2, 60.0))
    gate.program = "weather"
    wrong = {name: value for name, value in basic("ann", "s3cret").items() if value is not None}
    with hearing() as heard:
        await refused(gate, {})
        for _ in range(60):
            await refused(gate, wrong)
            if heard.of(SignInEnded)[-1].kind == "too_many_failures":
                break
    assert [each.kind for each in heard.of(SignInEnded)][:2] == ["missing", "invalid_credentials"]
    assert heard.of(SignInEnded)[-1].kind == "too_many_failures"
    assert {(each.side, each.program, each.is_failure, each.reason) for each in heard.of(SignInEnded)} == {
        ("server", "weather", True, "")
    }
    assert "s3cret" not in repr(heard)
    assert "ann" not in repr(heard)


async def test_a_provider_that_fails_is_a_refusal_of_the_server() -> None:
    def fail(token: str) -> Any:
        raise RuntimeError(token)

    gate = AuthGate(CustomAuth(fail))
    with hearing() as heard:
        await refused(gate, {"authorization": "Bearer s3cret"})
    assert [each.kind for each in heard.of(SignInEnded)] == ["server_error"]
    assert "s3cret" not in repr(heard)


def test_a_server_tells_its_gate_its_name() -> None:
    gate = Server("weather", auth=CustomAuth(lambda _: None))._auth_gate
    assert gate is not None
    assert gate.program == "weather"


async def test_a_user_signs_in_once_and_the_token_is_renewed() -> None:
    world = World(lifetime=1e-9)
    with hearing() as heard:
        credentials = oauth(world).credentials(URL)
        await signed_in(credentials)
    events = heard.of(SignInEnded)
    assert [(each.kind, each.is_failure, each.reason) for each in events] == [
        ("user", False, ""),
        ("refresh", False, ""),
    ]
    assert {(each.side, each.program) for each in events} == {("client", "mcp.example:443")}
    assert not [token for token in world.idp.issued_tokens if token in repr(heard)]


async def test_a_failed_sign_in_tells_its_step_alone() -> None:
    world = World()
    robot = ClientCredentials(
        client_id="robot", client_secret="s3cret", token_endpoint=f"{ISSUER}/token", fetch=world.fetch
    )
    with hearing() as heard, pytest.raises(SignInError):
        await robot.credentials(URL).headers()
    (failed,) = heard.of(SignInEnded)
    assert (failed.kind, failed.is_failure, failed.reason) == ("program", True, "token: invalid_client")
    assert "s3cret" not in repr(failed)


async def test_a_refresh_token_that_is_rejected_and_a_token_that_cannot_be_replaced_are_failures() -> None:
    world, store = World(), MemoryStore()
    given = GivenTokens(
        access_token="at",
        refresh_token="rt",
        token_endpoint=f"{ISSUER}/token",
        client_id="c",
        fetch=world.fetch,
        store=store,
    )
    credentials = given.credentials(URL)
    sent = await credentials.headers()
    with hearing() as heard, pytest.raises(SignInError):
        await credentials.refused(401, CHALLENGE, sent)
    assert [(each.kind, each.is_failure) for each in heard.of(SignInEnded)] == [("refresh", True), ("given", True)]


async def test_the_use_of_a_token_is_no_sign_in() -> None:
    credentials = oauth(World()).credentials(URL)
    await signed_in(credentials)
    with hearing() as heard:
        await credentials.headers()
    assert heard.of(SignInEnded) == []
