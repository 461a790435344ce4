"""URIs of upstreams come back, whatever is in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import AppView, Host, Server
from greenroom.actors.gateway.gateway_view import UpstreamUris
from greenroom.wire_probe import WireProbe

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
uris = words | words.map(lambda word: f"ui://{word}")


@given(words, words, uris)
def test_every_address_comes_back(prefix: str, server: str, uri: str) -> None:
    addresses = UpstreamUris(prefix)
    assert addresses.inward(addresses.outward(server, uri)) == (server, uri)


@given(st.tuples(words, uris), st.tuples(words, uris))
def test_two_resources_stay_two(one: tuple[str, str], other: tuple[str, str]) -> None:
    addresses = UpstreamUris()
    assert (addresses.outward(*one) == addresses.outward(*other)) == (one == other)


def test_a_template_stays_a_template() -> None:
    assert UpstreamUris().outward("git", "file:///{+path}") == "upstream://git/file:///{+path}"
    assert UpstreamUris("a-").outward("{x}", "y:{z}") == "upstream://a-%7Bx%7D/y:{z}"


@pytest.mark.parametrize("uri", ["file:///x", "upstream://git", "upstream://%67it/x", "upstream://other-git/x", ""])
def test_foreign_uris_are_not_mapped(uri: str) -> None:
    assert UpstreamUris("own-").inward(uri) is None


def test_links_are_addresses_too_but_for_the_web() -> None:
    link = {"type": "resource_link", "uri": "note://1", "name": "one"}
    web = {"type": "resource_link", "uri": "https://example.org/", "name": "web"}
    inside = {"type": "resource", "resource": {"uri": "note://2", "text": "two"}}
    text = {"type": "text", "text": "note://1"}
    result: dict[str, Any] = {"content": [link, web, inside, text, 3], "isError": False}
    mapped = UpstreamUris().tool_result("s", result, ())
    assert mapped["content"][0]["uri"] == "upstream://s/note://1"
    assert mapped["content"][1] == web
    assert mapped["content"][2]["resource"]["uri"] == "upstream://s/note://2"
    assert mapped["content"][3:] == [text, 3]
    assert (
        UpstreamUris().tool_result("s", result, ["https://example.org/"])["content"][1]["uri"].startswith("upstream://")
    )
    assert result["content"][0]["uri"] == "note://1"
    prompt = UpstreamUris().prompt("s", {"messages": [{"role": "user", "content": link}, 3]}, ())
    assert prompt["messages"][0]["content"]["uri"] == "upstream://s/note://1"


@pytest.mark.row("26-X1")
@given(words, words)
def test_the_document_of_an_app_keeps_the_scheme_by_which_hosts_know_it(server: str, path: str) -> None:
    outward = UpstreamUris("a-").outward(server, f"ui://{path}")
    assert outward.startswith("ui://upstream/a-")
    assert UpstreamUris("b-").inward(outward) is None


@pytest.mark.row("26-X1")
@pytest.mark.parametrize("meta", [None, 3, {}, {"ui": 3}, {"ui": {"visibility": ["app"]}}, {"ui": {"resourceUri": 3}}])
def test_a_tool_without_a_document_stays_as_it_is(meta: Any) -> None:
    definition = {"name": "x", "_meta": meta}
    assert UpstreamUris().tool("s", definition) is definition


@pytest.mark.row("26-X1")
async def test_a_host_behind_a_gateway_finds_the_documents_of_upstreams() -> None:
    games = Server("games")
    board = games.app("ui://board", "<!doctype html>", view=AppView(prefers_border=True))
    games.tool("scores", app=board)(lambda: "1:0")
    front = Server("front")
    front.mount(Host({"games": games}))
    async with WireProbe(front) as probe:
        (tool,) = (await probe.request("tools/list"))["tools"]
        assert tool["name"] == "games__scores"
        uri = tool["_meta"]["ui"]["resourceUri"]
        assert uri == "ui://upstream/games/board"
        assert [each["uri"] for each in (await probe.request("resources/list"))["resources"]] == [uri]
        (contents,) = (await probe.request("resources/read", {"uri": uri}))["contents"]
        assert (contents["uri"], contents["text"]) == (uri, "<!doctype html>")
        assert contents["_meta"] == {"ui": {"prefersBorder": True}}
