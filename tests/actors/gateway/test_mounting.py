"""A gateway keeps the hooks of the server that it is mounted on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError, Host, McpServer, Server
from greenroom.actors.worker_interfaces import Hooks
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from greenroom import Context


class Own(McpServer):
    """Has a list of its own."""

    async def list_tools(self, cursor: str | None, ctx: Context) -> Any:
        raise NotImplementedError


def test_a_server_that_answers_lists_itself_is_no_gateway() -> None:
    with pytest.raises(ConfigError, match=r"answers tools/list itself: mount the host on a server of its own"):
        Own.server("own").mount(Host({}))


def test_two_hosts_have_two_prefixes() -> None:
    server = Server("both")
    server.mount(Host({}), "a")
    with pytest.raises(ConfigError, match="mounted with the prefix 'a' already"):
        server.mount(Host({}), "a")


@pytest.mark.parametrize("waits", [False, True])
async def test_the_servers_own_hooks_are_still_called(*, waits: bool) -> None:
    heard: list[Any] = []

    async def later(what: Any) -> None:
        heard.append(what)

    def on_level(what: Any, _: Any) -> Any:
        return later(what) if waits else heard.append(what)

    server = Server("heeds", hooks=Hooks(level=on_level))
    server.mount(Host({"up": Server("up")}))
    async with WireProbe(server) as probe:
        await probe.request("logging/setLevel", {"level": "error"})
    assert heard == ["error"]
