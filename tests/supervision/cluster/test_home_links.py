"""The links of a node with clusters: opened by the first of them, closed by the last, and left as they were when that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.errors import ConfigError
from greenroom.supervision import ActorError, StartFailed, current_node, kill, start, stop, whereis
from greenroom.supervision.cluster.cluster_settings import ClusterSettings
from greenroom.supervision.cluster.home_links import HomeLinks, key_of_home, links_of_home
from greenroom.supervision.cluster.peers import Peers
from greenroom.supervision.cluster.remote_spawn import SPAWN_SERVER

from .core.two_nodes import here, until

if TYPE_CHECKING:
    from greenroom.supervision import Pid

pytestmark = pytest.mark.greenroom(clock="real")
ALONE = ClusterSettings()
MANY = ClusterSettings(listen="127.0.0.1", convention="127.0.0.1:7400", key=b"0123456789abcdef" * 2)


async def test_without_a_cluster_it_is_said_what_to_start() -> None:
    with pytest.raises(ActorError, match="has no links to others: start the cluster's child spec in it first"):
        links_of_home()


async def test_links_of_which_one_cannot_be_opened_are_none_and_can_be_opened_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Peers.open

    async def open_and_fail(peers: Peers, *, tcp: str | None = None) -> None:
        await opened(peers, tcp=tcp)
        raise OSError("one address too many")

    with monkeypatch.context() as patch:
        patch.setattr(Peers, "open", open_and_fail)
        with pytest.raises(StartFailed, match="one address too many"):
            await start(HomeLinks, ALONE)
    assert current_node().remote_nodes is None
    links = await start(HomeLinks, ALONE)
    assert links_of_home().addresses
    assert len(key_of_home()) == 32
    await stop(links)
    assert current_node().remote_nodes is None


async def test_the_last_of_several_closes_them_and_each_that_goes_leaves_an_spawn_server() -> None:
    first, second = await start(HomeLinks, ALONE), await start(HomeLinks, ALONE)
    peers, spawn_servers = links_of_home(), {whereis(SPAWN_SERVER)}
    kill(first)

    def another() -> bool:
        found: Pid | None = whereis(SPAWN_SERVER)
        return found is not None and found not in spawn_servers

    await until(another)
    assert links_of_home() is peers
    await stop(second)
    assert current_node().remote_nodes is None


async def test_without_its_spawn_server_it_is_started_anew() -> None:
    links = await start(HomeLinks, ALONE)
    spawn_server = whereis(SPAWN_SERVER)
    assert spawn_server is not None
    kill(spawn_server)
    await until(lambda: current_node().process(links.pid) is None)
    assert current_node().remote_nodes is None


async def test_links_that_are_not_for_other_machines_cannot_become_that() -> None:
    links = await start(HomeLinks, ALONE)
    with pytest.raises(StartFailed) as failed:
        await start(HomeLinks, MANY)
    assert isinstance(failed.value.__cause__, ConfigError)
    assert "start the cluster that has a `convention` before any other in this node" in str(failed.value.__cause__)
    assert links_of_home().addresses, "the first one has them still"
    await stop(links)


async def test_links_for_other_machines_serve_a_cluster_without_any_as_well() -> None:
    links, again, alone = [await start(HomeLinks, each) for each in (MANY, MANY, ALONE)]
    assert key_of_home() == MANY.key
    assert any(each.startswith("tcp:127.0.0.1:") for each in links_of_home().addresses)
    for each in (links, again, alone):
        await stop(each)
    assert current_node().remote_nodes is None


async def test_links_opened_by_other_code_are_left_to_it() -> None:
    async with here() as peers:
        links = await start(HomeLinks, ALONE)
        assert links_of_home() is peers
        await stop(links)
        assert links_of_home() is peers
