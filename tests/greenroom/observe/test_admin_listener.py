"""The admin listener in a program's tree: what it says of the program's health, and that its own faults harm nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.transports.http.raw_http import request

from greenroom import Client, ConfigError, Host, Server
from greenroom.observe import Admin
from greenroom.observe.admin_listener import new_links
from greenroom.observe.readiness import ProgramReadiness, missing_parts
from greenroom.observe.view_models import NowView, ViewQuery
from greenroom.supervision import (
    Supervisor,
    kill,
    restart_child,
    start,
    stop,
    terminate_child,
    wait_down,
    whereis,
    which_children,
)
from greenroom.supervision.event_bus import bus

from .admin_helpers import running_admin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .admin_helpers import RunningAdmin


def adding() -> Server:
    server = Server("weather")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def part_of_admin(admin: RunningAdmin, id: str) -> Any:
    (top,) = [each for each in await which_children(admin.top) if each.id == "admin"]
    (found,) = [each for each in await which_children(top.ref) if str(each.id).startswith(id)]
    return found.ref


# --- health


async def test_readiness_follows_the_parts_that_the_program_needs() -> None:
    async with running_admin(adding()) as admin:
        company = admin.server.company
        assert (await admin.ask("GET", "/readyz")).json == {"status": "ok"}
        await terminate_child(company.name("company"), "listeners")
        down = await admin.ask("GET", "/readyz")
        assert (down.status, down.json) == (
            503,
            {"status": "unavailable", "reasons": [f"{company.name('company')}: listeners is stopped"]},
        )
        assert (await admin.ask("GET", "/livez")).status == 200
        await restart_child(company.name("company"), "listeners")
        assert (await admin.ask("GET", "/readyz")).status == 200


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "x_real_ip", "via"])
async def test_what_a_proxy_passes_on_learns_no_reasons(header: str) -> None:
    async with running_admin(adding()) as admin:
        await terminate_child(admin.server.company.name("company"), "listeners")
        response = await admin.ask("GET", "/readyz", **{header: "192.0.2.1"})
        assert (response.status, response.json) == (503, {"status": "unavailable"})


async def test_a_program_is_not_ready_before_its_last_part_and_while_it_stops() -> None:
    readiness = ProgramReadiness(lambda: ())
    assert readiness.reasons() == ["the program is starting"]
    readiness.has_started = True
    assert readiness.reasons() == []
    readiness.is_drained = True
    assert readiness.reasons() == ["an operator has drained the program"]
    readiness.is_stopping = True
    assert readiness.reasons() == ["the program is stopping"]


async def test_a_drained_program_is_not_ready_until_it_is_undrained() -> None:
    async with running_admin(adding(), acts=True) as admin:
        outcome = await admin.part.observed.act("drain", "weather", "ada")
        assert outcome.is_done
        response = await admin.ask("GET", "/readyz")
        assert (response.status, response.json["reasons"]) == (503, ["an operator has drained the program"])
        now = await admin.part.observed.view("now", ViewQuery())
        assert isinstance(now, NowView)
        assert now.state == "drained"
        assert (await admin.part.observed.act("undrain", "weather", "ada")).is_done
        assert (await admin.ask("GET", "/readyz")).status == 200


async def test_a_part_that_is_gone_is_named() -> None:
    assert list(missing_parts("nothing of this name")) == ["nothing of this name is not running"]


async def test_the_program_says_that_it_stops_before_anything_else_does() -> None:
    server, seen = adding(), list[list[str]]()

    @server.lifespan
    async def around() -> AsyncGenerator[None]:
        yield
        seen.append(admin.part.readiness.reasons())
        assert (await admin.ask("GET", "/livez")).status == 200  # what is served stops before the listener

    async with running_admin(server) as admin:
        assert [each.id for each in await which_children(admin.top)] == ["ready", server.company.key, "admin"]
        assert admin.part.readiness.reasons() == []
    assert seen == [["the program is stopping"]]


# --- faults


async def test_a_killed_listener_comes_back_and_no_call_notices() -> None:
    async with running_admin(adding()) as admin, Client(admin.server) as client:
        await admin.sign_in()
        company = whereis(admin.server.company.name("company"))
        for part in ("http:", "observer"):
            victim = await part_of_admin(admin, part)
            kill(victim)
            assert await client.call("add", a=1, b=2) == 3
            await wait_down(victim, None)
            # The sockets stay bound, so a request that comes meanwhile waits in the kernel, and the viewer is still signed in.
            assert (await admin.ask("GET", "/observe/", **admin.own)).status == 200
        assert whereis(admin.server.company.name("company")) == company
    assert bus.listener is None


async def test_readers_that_hang_keep_neither_calls_nor_other_readers() -> None:
    async with running_admin(adding()) as admin, Client(admin.server) as client:
        await admin.sign_in()
        for _ in range(60):
            hanging = await admin.client()
            await hanging.send(b"GET /observe/ HTTP/1.1\r\nhost: 127")
        silent = await admin.client()
        for _ in range(200):  # asks, and reads nothing
            await silent.send(request("GET", "/observe/", None, **admin.own))
        assert await client.call("add", a=1, b=2) == 3
        assert (await admin.ask("GET", "/livez")).status == 200


async def test_more_connections_than_the_bound_are_refused() -> None:
    async with running_admin(adding()) as admin:
        most = admin.part.admin.http_config.max_connections
        for _ in range(most):
            await (await admin.client()).send(b"GET")
        assert (await admin.ask("GET", "/livez")).status == 503


# --- in programs


async def test_a_server_in_a_loop_of_ones_own_has_a_listener_during_the_block() -> None:
    server = adding()
    async with server.started(admin=Admin(port=0)), httpx.AsyncClient(trust_env=False) as client:
        (link,) = new_links()
        assert (await client.get(link, follow_redirects=True)).status_code == 200
        with pytest.raises(ConfigError, match="runs already"):
            await server.started(admin=Admin(port=0)).__aenter__()
    async with server.started(), httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):  # it was for that block alone
            await client.get(link)


async def test_a_server_as_a_child_of_a_supervisor_brings_its_listener() -> None:
    server = adding()
    top = await start(Supervisor, [server.child_spec("http", port=0, admin=Admin(port=0))])
    async with httpx.AsyncClient(trust_env=False) as client:
        (link,) = new_links()
        assert (await client.get(link.partition("/observe")[0] + "/readyz")).json() == {"status": "ok"}
        assert (await client.get(server.urls[0].removesuffix("mcp"))).json()["server"] == "weather"
    await stop(top)


async def test_a_host_has_a_listener_too() -> None:
    async with (
        Host({"weather": adding()}, admin=Admin(port=0)) as host,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        (link,) = new_links()
        assert (await client.get(link.partition("/observe")[0] + "/readyz")).json() == {"status": "ok"}
        assert await host.call("weather:add", {"a": 1, "b": 2}) == 3


@pytest.mark.parametrize("wrong", [9091, True, "9091"])
def test_what_is_no_setting_is_refused_with_what_to_write(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"admin must be Admin\(…\).*write admin=Admin\("):
        adding().child_spec(admin=wrong)
    with pytest.raises(ConfigError, match=r"admin must be Admin\(…\)"):
        Host({}, admin=wrong)
