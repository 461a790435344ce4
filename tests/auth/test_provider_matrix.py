"""Every provider with every kind of HTTP request and every credential: the expected response, cell by cell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.example_counts import one_in

from .auth_test_server import HELLO, KINDS, call, reception

WAYS = ("POST", "POST initialize", "GET", "DELETE", "OPTIONS", "plain POST", "old GET", "old POST")
DENIED = {
    "none": 401,
    "malformed": 400,
    "wrong": 401,
    "expired": 401,
    "wrong audience": 401,
    "no scope": 403,
}
WELCOME = {
    "POST": 200,
    "POST initialize": 200,
    "GET": 200,
    "DELETE": 204,
    "plain POST": 200,
    "old GET": 200,
    "old POST": 202,
}
IN_A_SESSION = ("POST", "GET", "DELETE", "old POST")
ERRORS: dict[tuple[str, str], str | None] = {
    ("bearer", "none"): None,
    ("bearer", "malformed"): "invalid_request",
    ("bearer", "no scope"): "insufficient_scope",
    ("bearer", ""): "invalid_token",
}
"""The error in a bearer challenge."""


def cells() -> list[Any]:
    return [
        pytest.param(kind, way, state, id=f"{kind}-{way}-{state}")
        for kind, about in KINDS.items()
        for way in WAYS
        for state in about.states
    ]


@pytest.mark.row("SA-01", "SA-02", "SA-08", "SA-09", "SA-10", "SA-12", "SA-21", "SX-04")
@pytest.mark.parametrize(("kind", "way", "state"), one_in(3, cells()))
async def test_a_cell(kind: str, way: str, state: str) -> None:
    about = KINDS[kind]
    good, shown = about.states["good"], about.states[state]
    config: dict[str, Any] = {"plain": True} if way.startswith("plain") else {"old_sse": True}
    origin = "http://localhost:3000"
    async with reception(about.make(), "use", **config) as desk:
        session = await desk.enter(good) if way in ("POST", "GET", "DELETE") else ""
        there = (await desk.open_old(good))[1] if way == "old POST" else ""
        more = {"mcp_session_id": session} if session else {}
        match way:
            case "POST" | "plain POST":
                paper = await desk.ask("POST", shown, call("whoami"), origin=origin, **more)
            case "POST initialize":
                paper = await desk.ask("POST", shown, HELLO, origin=origin)
            case "old GET":
                paper = await desk.ask("GET", shown, path="/sse", origin=origin)
            case "old POST":
                paper = await desk.ask("POST", shown, HELLO, path=there, origin=origin)
            case verb:
                paper = await desk.ask(verb, shown, origin=origin, **more)
        if way == "OPTIONS":  # a browser asks without credentials
            assert paper.status == 204
            allowed = {each.strip().lower() for each in paper.headers["access-control-allow-headers"].split(",")}
            assert {"content-type", "mcp-session-id", *desk.server._auth_gate.headers} <= allowed  # type: ignore[union-attr]
            return
        assert paper.headers["access-control-allow-origin"] == origin
        if state == "foreign" and way in IN_A_SESSION:
            assert paper.status == 404
            made_up = {"mcp_session_id": "mcp_" + "0" * 32} if session else {}
            path = "/messages?session_id=mcp_" + "0" * 32 if there else "/mcp"
            verb = way.removeprefix("old ")
            body = None if verb in ("GET", "DELETE") else call("whoami")
            unknown = await desk.ask(verb, shown, body, path=path, origin=origin, **made_up)
            assert (unknown.status, unknown.headers) == (404, paper.headers)
            assert json.loads(unknown.body)["error"] == json.loads(paper.body)["error"]
            return
        if state in ("good", "foreign"):
            assert paper.status == WELCOME[way], paper.body
            assert "www-authenticate" not in paper.headers
            if way in ("POST", "plain POST"):
                assert paper.json["result"]["content"][0]["text"] == ("ann" if state == "good" else "bob")
            return
        assert paper.status == DENIED[state], paper.body
        asked = paper.headers["www-authenticate"]
        assert asked.startswith(about.challenge)
        assert "WWW-Authenticate" in paper.headers["access-control-expose-headers"]
        if kind == "custom":
            assert paper.body == b""
        else:
            assert paper.headers["cache-control"] == "no-store"
            assert set(paper.json) == {"error", "error_description"}
        if kind.startswith("bearer"):
            error = ERRORS.get(("bearer", state), ERRORS["bearer", ""] if state != "none" else None)
            assert (f'error="{error}"' in asked) if error else ("error" not in asked)
            assert ('scope="use"' in asked) == (state == "no scope")
            assert paper.json["error"] == (error or "unauthorized")
        if kind.startswith("API"):
            errors = {"none": "invalid_request", "wrong": "invalid_key", "expired": "invalid_key"}
            assert paper.json["error"] == errors.get(state, paper.json["error"])
            if state in ("none", "wrong"):
                assert (
                    paper.json["error_description"] == {"none": "API key required", "wrong": "Invalid API key"}[state]
                )


async def test_without_a_provider_every_caller_is_anonymous() -> None:
    async with reception(None) as desk:
        session = await desk.enter({})
        paper = await desk.ask("POST", {}, call("whoami"), mcp_session_id=session)
        assert paper.json["result"]["content"][0]["text"] == "no caller"
        assert desk.server._auth_gate is None
