"""Metadata discovery: in the order of the specification, and accepted only if it matches."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.auth import SignInError
from greenroom.auth.client.login_process import bearer_challenge, parse_challenges
from greenroom.auth.client.metadata_discovery import (
    canonical_resource,
    check_endpoint,
    discover,
    discover_authorization_server,
    discover_protected_resource,
    resource_metadata_urls,
    server_metadata_urls,
)

from .oauth_world import CHALLENGE, ISSUER, PRM, URL, World

HOST = "https://mcp.example"
ROOT = "https://mcp.example/.well-known/oauth-protected-resource"


def named_in(header: str) -> str | None:
    """The metadata URL in a bearer challenge."""
    challenge = bearer_challenge(header)
    return None if challenge is None else challenge.params.get("resource_metadata")


@pytest.mark.row("CA-04")
def test_the_challenge_names_the_metadata() -> None:
    assert named_in(CHALLENGE) == PRM
    assert named_in('Basic realm="x", Bearer resource_metadata=https://a.example/x') == "https://a.example/x"
    assert named_in("Bearer") is None
    assert named_in('Digest nonce="Bearer resource_metadata=\\"x\\""') is None
    assert named_in("") is None


@pytest.mark.parametrize(
    "junk", ["=", ",,,", 'Bearer a="', "Bearer =x", "\x00", 'Bearer a="b" c', "Bearer " * 5000, '"' * 9000]
)
def test_whatever_a_header_says_it_is_read(junk: str) -> None:
    parse_challenges(junk)
    bearer_challenge(junk)


def test_the_first_of_two_params_counts() -> None:
    found = bearer_challenge('Bearer scope="a b", SCOPE=c, error="x\\"y"')
    assert found is not None
    assert found.params == {"scope": "a b", "error": 'x"y'}


@pytest.mark.row("CA-04")
def test_the_forms_of_well_known_addresses() -> None:
    assert list(resource_metadata_urls(URL).items()) == [(PRM, URL), (ROOT, HOST)]
    assert resource_metadata_urls("https://mcp.example/") == {ROOT: HOST}
    assert server_metadata_urls("https://a.example/one") == [
        "https://a.example/.well-known/oauth-authorization-server/one",
        "https://a.example/.well-known/openid-configuration/one",
        "https://a.example/one/.well-known/openid-configuration",
    ]
    assert len(server_metadata_urls("https://a.example")) == 2


FOREIGN = [
    HOST,
    f"{HOST}/",
    "https://mcp.example/mc",
    "https://mcp.example/mcp/more",
    "https://mcp.example/other",
    "https://mcp.example/mcp//",
    "https://mcp.example/./mcp",
    "https://mcp.example/x/../mcp",
    "https://mcp.example/%6dcp",
    "https://mcp.example/MCP",
    "https://mcp.example/mcp?",
    "https://mcp.example/mcp?a=b",
    "https://mcp.example/mcp#",
    "https://mcp.example/mcp#a",
    "https://u@mcp.example/mcp",
    "https://mcp.example\\@evil.example/mcp",
    "https://mcp.example.evil.example/mcp",
    "https://mcp.example:444/mcp",
    "https://mcp.example:notaport/mcp",
    "http://mcp.example/mcp",
    "https://evil.example/mcp",
    " https://mcp.example/mcp",
    "//mcp.example/mcp",
    "/mcp",
]


@pytest.mark.parametrize("named", [PRM, ROOT, "https://mcp.example/elsewhere.json", "https://other.example/x", None])
@pytest.mark.parametrize("resource", FOREIGN)
async def test_a_document_at_the_servers_own_place_may_name_nothing_but_the_server(
    resource: str, named: str | None
) -> None:
    """Whether the URL was derived from the server's, or named in its challenge."""
    world = World()
    world.documents = {named or PRM: {"resource": resource, "authorization_servers": [ISSUER]}}
    with pytest.raises(SignInError, match="not the requested server"):
        await discover(URL, world.fetch, resource_metadata=named)
    assert world.asked == [named or PRM]


@pytest.mark.parametrize("resource", [URL, *FOREIGN[2:]])
async def test_a_document_of_the_whole_host_may_name_nothing_but_the_host(resource: str) -> None:
    world = World()
    world.documents = {ROOT: {"resource": resource, "authorization_servers": [ISSUER]}}
    with pytest.raises(SignInError, match="not the requested server"):
        await discover(URL, world.fetch)
    assert world.asked == [PRM, ROOT]


@pytest.mark.parametrize("url", [URL, f"{URL}/", "HTTPS://MCP.Example:443/mcp/", "https://u:p@mcp.example/mcp?a=b#c"])
@pytest.mark.parametrize("resource", [URL, f"{URL}/"])
async def test_a_server_is_known_however_its_url_is_written(url: str, resource: str) -> None:
    world = World()
    world.documents = {PRM: {"resource": resource, "authorization_servers": [ISSUER]}}
    assert (await discover(url, world.fetch)).resource == resource


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://mcp.example:443/mcp", "/mcp"),
        ("https://MCP.Example/mcp", "/mcp"),
        ("https://mcp.example/mcp?tenant=1", "/mcp"),
        ("https://MCP.example:443", ""),
    ],
)
async def test_a_document_may_name_the_url_exactly_as_it_was_asked(url: str, path: str) -> None:
    world = World()
    world.documents = {f"{ROOT}{path}": {"resource": url, "authorization_servers": [ISSUER]}}
    assert (await discover(url, world.fetch)).resource == url


async def test_a_user_in_the_url_and_a_fragment_are_no_part_of_a_resources_name() -> None:
    url = "https://u:p@mcp.example/mcp?a=b#c"
    world = World()
    world.documents[PRM]["resource"] = url
    with pytest.raises(SignInError, match="not the requested server"):
        await discover(url, world.fetch)


async def test_a_document_of_the_whole_host_may_not_name_the_url_that_was_asked() -> None:
    url = "https://mcp.example/mcp?a=b"
    world = World()
    world.documents = {ROOT: {"resource": url, "authorization_servers": [ISSUER]}}
    with pytest.raises(SignInError, match="not the requested server"):
        await discover(url, world.fetch)


def test_a_server_is_named_without_what_does_not_belong() -> None:
    assert canonical_resource("HTTPS://u:p@Mcp.Example:443/mcp/?a=b#c") == URL
    assert canonical_resource("http://Mcp.Example:80/") == "http://mcp.example"
    assert canonical_resource("https://mcp.example:80") == "https://mcp.example:80"


@pytest.mark.row("CA-04")
async def test_metadata_is_fetched_only_where_the_challenge_names_it() -> None:
    world = World()
    place = await discover(URL, world.fetch, resource_metadata=PRM)
    assert (place.resource, place.server.issuer) == (URL, ISSUER)
    assert world.asked == [PRM, f"{ISSUER}/.well-known/oauth-authorization-server"]


@pytest.mark.row("CA-04")
async def test_without_it_both_forms_are_tried() -> None:
    world = World()
    world.documents = {ROOT: {"resource": f"{HOST}/", "authorization_servers": [ISSUER], "scopes_supported": ["a"]}}
    place = await discover(URL, world.fetch)
    assert (place.resource, place.scopes) == (f"{HOST}/", ("a",))
    assert world.asked[:2] == [PRM, ROOT]


@pytest.mark.row("CA-04")
async def test_an_authorization_server_is_found_in_its_three_places() -> None:
    world = World()
    issuer = "https://other.example/one"
    last = server_metadata_urls(issuer)[-1]
    world.documents[last] = {"issuer": issuer, "token_endpoint": "https://other.example/t"}
    found = await discover_authorization_server(issuer, world.fetch)
    assert found.token_endpoint == "https://other.example/t"
    assert world.asked == server_metadata_urls(issuer)


@pytest.mark.row("CA-04")
async def test_an_old_server_is_its_own_authorization_server() -> None:
    world = World()
    world.documents = {}
    server = (await discover(URL, world.fetch)).server
    assert (server.authorization_endpoint, server.token_endpoint, server.registration_endpoint) == (
        "https://mcp.example/authorize",
        "https://mcp.example/token",
        "https://mcp.example/register",
    )
    world.documents["https://mcp.example/.well-known/oauth-authorization-server"] = {
        "issuer": "https://mcp.example",
        "token_endpoint": "https://mcp.example/t",
    }
    assert (await discover(URL, world.fetch)).server.token_endpoint == "https://mcp.example/t"


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        (
            {PRM: {"resource": "https://evil.example/mcp", "authorization_servers": [ISSUER]}},
            "not the requested server",
        ),
        ({PRM: {"authorization_servers": [ISSUER]}}, "names no resource"),
        ({PRM: ["no object"]}, "is not a JSON object"),
        ({PRM: {"resource": URL}}, "names no authorization server"),
        (
            {PRM: {"resource": URL, "authorization_servers": ["https://unknown.example"]}},
            "publishes no authorization server metadata",
        ),
        ({PRM: {"resource": URL, "authorization_servers": ["file:///etc/passwd"]}}, "not a plain http or https URL"),
        ({PRM: {"resource": URL, "authorization_servers": ["http://idp.example"]}}, "is not https"),
        ({PRM: 503}, "try again later"),
        ({}, "which the server names as its metadata"),
    ],
)
async def test_metadata_that_does_not_match_is_refused(documents: dict[str, Any], says: str) -> None:
    world = World()
    world.documents = documents
    with pytest.raises(SignInError, match=says) as caught:
        await discover(URL, world.fetch, resource_metadata=PRM)
    assert caught.value.step == "discovery"


@pytest.mark.row("26-A2")
@pytest.mark.parametrize("issuer", ["https://evil.example", f"{ISSUER}/", "HTTPS://idp.example", None])
async def test_metadata_of_another_issuer_are_not_believed(issuer: str | None) -> None:
    world = World()
    world.idp.faults.metadata = {"issuer": issuer}
    with pytest.raises(SignInError, match="names another issuer"):
        await discover(URL, world.fetch)


async def test_the_issuer_of_a_registered_client_is_chosen() -> None:
    world = World()
    world.documents[PRM]["authorization_servers"] = ["https://first.example", ISSUER]
    assert (await discover(URL, world.fetch, issuer=ISSUER)).server.issuer == ISSUER
    with pytest.raises(SignInError, match=r"registered at https://third\.example: register it"):
        await discover(URL, world.fetch, issuer="https://third.example")


@pytest.mark.row("CA-04")
async def test_no_redirect_is_followed_and_an_unreachable_server_is_temporary() -> None:
    world = World()
    world.documents = {PRM: 302, ROOT: 302}
    assert await discover_protected_resource(URL, world.fetch) is None
    world.down = True
    with pytest.raises(SignInError) as caught:
        await discover(URL, world.fetch)
    assert caught.value.temporary


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://a.example/$(id)`id`",
        "https://a.example/ --flag",
        "https://a.example/\nx",
        "https://u:p@a.example/",
        "http://a.example/",
        "http://127.0.0.1.evil.example/",
        "https://",
        "",
        "https://a.example/" + "a" * 9000,
        'https://a.example/"',
        "https://[::1/",
    ],
)
def test_unsafe_endpoints_are_refused(url: str) -> None:
    with pytest.raises(SignInError):
        check_endpoint(url, "authorization")
    check_endpoint("http://127.0.0.1:9/x", "authorization")
