"""The steps from running servers to configured ones: a pure comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.consent.rules import Rule
from greenroom.config.config_sync import steps
from greenroom.config.configured_upstreams import route_of, spec_of
from greenroom.config.host_config import Budget, OAuthConfig, RestartPolicy, ServerConfig, ServerLimits, Timeouts
from greenroom.config.mistakes import Source
from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.transports.client.http_route import HttpRoute, SseRoute
from greenroom.transports.client.server_command import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Source("a.toml", 1)
BASE = ServerConfig(name="a", source=HERE, command="x")


def server(name: str, command: str, tokens: int = 1000, line: int = 1) -> ServerConfig:
    return ServerConfig(name=name, source=Source("f", line), command=command, limits=ServerLimits(output_tokens=tokens))


def some() -> st.SearchStrategy[dict[str, ServerConfig]]:
    told = st.tuples(st.sampled_from("xy"), st.sampled_from([1000, 2000]), st.integers(1, 9))
    return st.dictionaries(st.sampled_from("abcd"), told, max_size=4).map(
        lambda found: {name: server(name, *one) for name, one in found.items()}
    )


@given(some(), some())
def test_after_the_steps_the_servers_are_as_configured_and_others_untouched(
    wanted: Mapping[str, ServerConfig], running: Mapping[str, ServerConfig]
) -> None:
    found = steps(wanted, running)
    now = dict(running)
    for step in found:
        if step.server is None:
            del now[step.name]
        else:
            now[step.name] = step.server
    assert now == wanted
    assert {step.name for step in found} == {
        name for name in {*wanted, *running} if wanted.get(name) != running.get(name)
    }
    assert steps(wanted, now) == ()


@pytest.mark.parametrize(
    ("other", "doing"),
    [
        (replace(BASE, source=Source("b.toml", 9)), None),
        (replace(BASE, written={"command": "y"}), None),
        (replace(BASE, rules=(Rule("deny", "x", "a", "f:1"),)), "adjust"),
        (replace(BASE, limits=ServerLimits(output_tokens=100)), "adjust"),
        (replace(BASE, limits=ServerLimits(message_bytes=4096)), "replace"),
        (replace(BASE, command="y"), "replace"),
        (replace(BASE, env={"A": "b"}), "replace"),
        (replace(BASE, timeouts=Timeouts(tool=1)), "replace"),
        (replace(BASE, restart=RestartPolicy(intensity=1)), "replace"),
        (replace(BASE, isolation="process"), "replace"),
        (replace(BASE, mode="legacy"), "replace"),
    ],
)
def test_only_what_a_connection_knows_takes_it_down(other: ServerConfig, doing: str | None) -> None:
    assert [step.kind for step in steps({"a": other}, {"a": BASE})] == ([] if doing is None else [doing])


def test_removals_come_before_additions() -> None:
    wanted = {"b": server("b", "y"), "c": server("c", "x"), "d": server("d", "x", 500)}
    running = {"a": server("a", "x"), "b": server("b", "x"), "d": server("d", "x")}
    assert [str(step) for step in steps(wanted, running)] == ["remove a", "replace b", "adjust d", "add c"]


@pytest.mark.row("CB-01")
def test_the_transport_is_a_field() -> None:
    url = "https://a.example/mcp"
    assert isinstance(route_of(BASE), Command)
    web = replace(BASE, transport="http", command=None, url=url, headers={"x-a": "b"})
    assert type(route_of(web)) is HttpRoute
    assert type(route_of(replace(web, transport="sse"))) is SseRoute
    assert dict(route_of(web).headers)["x-a"] == "b"  # type: ignore[attr-defined]


def test_all_that_is_said_of_a_server_reaches_its_upstream() -> None:
    told = replace(
        BASE,
        args=("y",),
        env={"A": "b"},
        inherit=("C",),
        cwd="/d",
        restart=RestartPolicy(intensity=1, period=2, first=3, factor=4, longest=5, jitter=0, park_after=6),
        budget=Budget(7, 8),
        timeouts=Timeouts(connect=9, tool=10, request=11, grace=12, ping=13),
        limits=ServerLimits(message_bytes=4096),
        isolation="process",
        mode="2025-06-18",
    )
    spec = spec_of(told)
    route = spec.route
    assert isinstance(route, Command)
    assert (route.words, route.env, route.inherit, route.cwd) == (("x", "y"), {"A": "b"}, frozenset({"C"}), "/d")
    assert route.limits.line == 4096
    assert (spec.intensity, spec.period, spec.concurrent, spec.queue, spec.grace) == (1, 2, 7, 8, 12)
    settings = spec.settings
    assert (settings.init_timeout, settings.request_timeout, settings.ping_interval, settings.park_after) == (
        9,
        11,
        13,
        6,
    )
    assert (settings.backoff.first, settings.backoff.factor, settings.backoff.longest) == (3, 4, 5)
    assert (spec.patience("tools/call"), spec.patience("tools/list"), spec.isolation) == (10, 11, "process")
    assert settings.mode == "2025-06-18"


def test_the_mode_of_a_server_is_the_hosts_unless_it_has_one() -> None:
    host = ClientSettings(mode="legacy")
    assert spec_of(BASE, host).settings.mode == "legacy"
    assert spec_of(replace(BASE, mode="auto"), host).settings.mode == "auto"
    assert spec_of(BASE).settings.mode == "auto"
    assert spec_of(replace(BASE, mode=STATELESS_DIALECT.version)).settings.mode == STATELESS_DIALECT.version


def test_signing_in_is_asked_for_only_where_it_is_wanted() -> None:
    asked: list[str] = []

    def sign_in(one: ServerConfig) -> str:
        asked.append(one.name)
        return "token"

    web = replace(BASE, transport="http", command=None, url="https://a.example/mcp")
    route_of(web, sign_in)
    assert asked == []
    route_of(replace(web, oauth="auto", oauth_config=OAuthConfig(client_id="x")), sign_in)
    assert asked == ["a"]
