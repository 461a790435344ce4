"""Skills over the wire: lists, entries, folders and files in both eras, and hostile requests for them."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.tasks.stateless_client import StatelessClient
from tests.example_counts import examples

from greenroom import RegistrationError, Server, Skills
from greenroom.auth.auth_info import AuthInfo
from greenroom.protocol.cache_hints import Cache
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.extension_ids import SKILLS_ID
from greenroom.protocol.frontmatter import read_frontmatter
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

from .test_skill_folder import skill_at

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

REFUNDS = "skill://acme/refunds/SKILL.md"


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    skill_at(tmp_path / "acme" / "refunds", "Refunds orders.", templates_eu_mail=b"\xff\x00", templates_us=b"Dear")
    skill_at(tmp_path / "git-log")
    return tmp_path


def serving(*folders: Path, **options: Any) -> Server:
    server = Server("skilled")
    given: dict[str, Any] = {"refresh": 0, **options}
    server.skills(*folders, **given)
    return server


async def refusal(waiting: Awaitable[Any]) -> PeerError:
    with pytest.raises(PeerError) as refused:
        await waiting
    return refused.value


@pytest.mark.row("26-X2")
@pytest.mark.row("26-V6")
async def test_the_extension_and_resources_are_declared_in_both_eras(folder: Path) -> None:
    async with serving(folder).started() as company, WireProbe(company) as probe:
        for found in (probe.welcome, await StatelessClient(company).result("server/discover")):
            assert found["capabilities"]["extensions"] == {SKILLS_ID: {"directoryRead": True}}
            assert "resources" in found["capabilities"]


@pytest.mark.row("26-X2")
async def test_a_list_has_an_entry_for_each_skill_and_cache_hints_where_the_revision_has_them(folder: Path) -> None:
    async with serving(folder, cache=Cache(2.5, public=True)).started() as company, WireProbe(company) as probe:
        old, new = (
            await probe.request("skills/list"),
            await StatelessClient(company, capabilities={}).result("skills/list"),
        )
        assert old.keys() == {"skills"}
        assert (new["resultType"], new["ttlMs"], new["cacheScope"]) == ("complete", 2500, "public")
        assert old["skills"] == new["skills"]
        for uri in (REFUNDS, "skill://acme/refunds/templates/us"):
            file = await StatelessClient(company).result("resources/read", uri=uri)
            assert (file["ttlMs"], file["cacheScope"]) == (2500, "public")
        assert [each["uri"] for each in new["skills"]] == [REFUNDS, "skill://git-log/SKILL.md"]
        assert new["skills"][0]["frontmatter"] == {"name": "refunds", "description": "Refunds orders."}


@pytest.mark.row("26-X2")
async def test_an_entry_can_be_verified_by_what_is_read(folder: Path) -> None:
    async with serving(folder).started() as company:
        client = StatelessClient(company)
        found = await client.result("skills/get", uri=REFUNDS)
        assert found["skill"] == (await client.result("skills/list"))["skills"][0]
        assert "nextCursor" not in found
        assert (found["ttlMs"], found["cacheScope"]) == (0, "private")
        assert len(found["skill"]["resources"]) == 3
        for each in found["skill"]["resources"]:
            (contents,) = (await client.result("resources/read", uri=each["uri"]))["contents"]
            assert contents["uri"] == each["uri"]
            data = contents["text"].encode() if "text" in contents else base64.b64decode(contents["blob"])
            assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (each["size"], each["digest"])
            if each["uri"] == REFUNDS:
                assert contents["mimeType"] == "text/markdown"
                assert read_frontmatter(contents["text"]) == found["skill"]["frontmatter"]


@pytest.mark.row("26-X2")
async def test_skill_files_are_listed_resources_with_name_and_description(folder: Path) -> None:
    skill_at(folder / "other" / "refunds", "Others.")
    server = serving(folder)
    server.resource("x://y", "refunds")(lambda: "")
    async with WireProbe(server) as probe:
        found = {each["uri"]: each for each in (await probe.request("resources/list"))["resources"]}
        size = (folder / "acme" / "refunds" / "SKILL.md").stat().st_size
        assert found[REFUNDS] == {
            "uri": REFUNDS,
            "name": "refunds",
            "description": "Refunds orders.",
            "mimeType": "text/markdown",
            "size": size,
        }
        assert found["skill://other/refunds/SKILL.md"]["name"] == "refunds"
        assert found["x://y"]["name"] == "refunds"
        (template,) = (await probe.request("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "skill://{+path}"


@pytest.mark.row("26-X2")
async def test_a_folder_lists_its_direct_children(folder: Path) -> None:
    (folder / "acme" / "refunds" / "empty").mkdir()
    async with WireProbe(serving(folder)) as probe:

        async def children(uri: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await probe.request("resources/directory/read", {"uri": uri}))["resources"]
            return found

        assert await children("skill://acme") == [
            {"uri": "skill://acme/refunds", "name": "refunds", "mimeType": "inode/directory"}
        ]
        assert [(each["name"], each["mimeType"]) for each in await children("skill://acme/refunds")] == [
            ("refunds", "text/markdown"),
            ("empty", "inode/directory"),
            ("templates", "inode/directory"),
        ]
        assert await children("skill://acme/refunds/templates") == [
            {"uri": "skill://acme/refunds/templates/eu", "name": "eu", "mimeType": "inode/directory"},
            {"uri": "skill://acme/refunds/templates/us", "name": "us", "mimeType": "text/plain", "size": 4},
        ]
        assert await children("skill://acme/refunds/empty") == []


@pytest.mark.row("26-X2")
async def test_pages_have_whole_entries_and_end(tmp_path: Path) -> None:
    names = [f"s{number:03}" for number in range(120)]
    for name in names:
        skill_at(tmp_path / name)
    for number in range(600):
        (tmp_path / "s000" / f"{number // 300}").mkdir(exist_ok=True)
        if number % 300 < 255:
            (tmp_path / "s000" / f"{number // 300}" / f"{number}").touch()
    async with WireProbe(serving(tmp_path, refresh=1000)) as probe:
        pages: list[dict[str, Any]] = [await probe.request("skills/list")]
        while "nextCursor" in pages[-1]:
            pages.append(await probe.request("skills/list", {"cursor": pages[-1]["nextCursor"]}))
        assert [len(page["skills"]) for page in pages] == [50, 50, 20]
        assert [each["frontmatter"]["name"] for page in pages for each in page["skills"]] == names
        assert len(pages[0]["skills"][0]["resources"]) == 511
        children = [await probe.request("resources/directory/read", {"uri": "skill://s000/0"})]
        assert len(children[0]["resources"]) == 255
        for number in range(600):
            (tmp_path / "s001" / str(number)).mkdir()
    async with WireProbe(serving(tmp_path, refresh=1000)) as probe:
        children = [await probe.request("resources/directory/read", {"uri": "skill://s001"})]
        more = {"uri": "skill://s001", "cursor": children[0]["nextCursor"]}
        children.append(await probe.request("resources/directory/read", more))
        assert [len(page["resources"]) for page in children] == [500, 101]
        assert "nextCursor" not in children[1]


@pytest.mark.row("26-X2")
async def test_a_page_has_not_too_many_files(tmp_path: Path) -> None:
    for name in "abcdef":
        folder = skill_at(tmp_path / name)
        for number in range(510):
            (folder / str(number)).touch()
    async with WireProbe(serving(tmp_path, refresh=1000)) as probe:
        first = await probe.request("skills/list")
        second = await probe.request("skills/list", {"cursor": first["nextCursor"]})
        assert [len(page["skills"]) for page in (first, second)] == [4, 2]


# --- the folder changes while the server runs


@pytest.mark.row("26-X2")
async def test_lists_entries_and_resources_follow_the_folder(folder: Path) -> None:
    async with WireProbe(serving(folder)) as probe:
        before = (await probe.request("skills/get", {"uri": REFUNDS}))["skill"]
        skill_at(folder / "acme" / "refunds", "Refunds all.")
        skill_at(folder / "new")
        (folder / "git-log" / "SKILL.md").unlink()
        after = (await probe.request("skills/get", {"uri": REFUNDS}))["skill"]
        assert before["resources"] != after["resources"]
        assert after["frontmatter"]["description"] == "Refunds all."
        await probe.wait_for_notifications("notifications/resources/list_changed")
        found = {each["uri"]: each.get("description") for each in (await probe.request("resources/list"))["resources"]}
        assert found == {REFUNDS: "Refunds all.", "skill://new/SKILL.md": "Does it."}
        gone = {"uri": "skill://git-log/SKILL.md"}
        assert (await refusal(probe.request("skills/get", gone))).code == ErrorCode.INVALID_PARAMS
        assert (await refusal(probe.request("resources/read", gone))).code == ErrorCode.RESOURCE_NOT_FOUND
        (folder / "acme" / "refunds" / "late").write_text("now")
        assert await probe.request("resources/read", {"uri": "skill://acme/refunds/late"})


# --- hostile requests


@pytest.mark.row("26-X2")
@pytest.mark.parametrize("is_stateless", [False, True])
@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("skills/get", {}, '"uri" is missing'),
        ("skills/get", {"uri": 3}, '"uri" must be a string'),
        ("skills/get", {"uri": "skill://acme/refunds"}, "No skill is served at skill://acme/refunds"),
        ("skills/get", {"uri": "x" * 100_000}, "No skill is served at xxx"),
        ("skills/list", {"cursor": 3}, '"cursor" must be a string'),
        ("skills/list", {"cursor": "nonsense"}, "Invalid cursor"),
        ("resources/directory/read", {}, '"uri" is missing'),
        ("resources/directory/read", {"uri": REFUNDS}, f"{REFUNDS} is not a directory resource"),
        ("resources/directory/read", {"uri": "skill://acme/"}, "No directory is served at skill://acme/"),
        ("resources/directory/read", {"uri": "skill://acme", "cursor": "x"}, "Invalid cursor"),
        ("resources/directory/read", {"uri": "skill://"}, "No directory is served at skill://"),
    ],
)
async def test_params_that_name_nothing_are_refused(
    folder: Path, method: str, params: dict[str, Any], why: str, *, is_stateless: bool
) -> None:
    async with serving(folder).started() as company, WireProbe(company) as probe:
        if is_stateless:
            error = await StatelessClient(company).error(method, **params)
        else:
            error = (await refusal(probe.request(method, params))).to_wire()
        assert error["code"] == ErrorCode.INVALID_PARAMS
        assert why in error["message"]
        assert len(error["message"]) < 1000


SEGMENTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "acme",
        "refunds",
        "SKILL.md",
        "templates",
        "us",
        "%2e%2e",
        "%2E",
        "%2f",
        "..%2f",
        "\\",
        "%5c..",
        "%00",
        "secret",
        "~",
        "C:",
        "//",
    ]
)


@pytest.mark.row("26-X2")
@given(
    st.lists(SEGMENTS, max_size=8),
    st.sampled_from(["skill://", "skill:///", "skill:/", "skill://acme/", "file:///", "SKILL://"]),
)
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_uri_is_looked_up_and_makes_no_path(folder: Path, segments: list[str], start: str) -> None:
    (folder / "secret").write_text("secret")
    (folder.parent / "secret").write_text("secret")
    skills = Skills(folder)
    served = set(skills._snapshot().files)
    assert len(served) == 4
    uri = start + "/".join(segments)
    try:
        contents = skills._contents(uri)
    except Exception as refused:  # noqa: BLE001 - only this one is right
        assert getattr(refused, "code", None) == ErrorCode.RESOURCE_NOT_FOUND
        assert uri not in served
    else:
        assert uri in served
        assert contents.text != "secret"


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    "uri",
    [
        "skill://acme/refunds/../../secret",
        "skill://acme/refunds/%2e%2e/%2e%2e/secret",
        "skill://acme/refunds/..%2f..%2fsecret",
        "skill:///etc/passwd",
        "skill://acme/refunds/templates",
        "skill://acme/refunds/templates/us/",
        "skill://ACME/refunds/SKILL.md",
        "skill://acme/refunds/SKILL%2Emd",
        "skill://acme/refunds/SKILL.md\x00",
    ],
)
async def test_another_uri_of_the_scheme_is_no_resource(folder: Path, uri: str) -> None:
    (folder / "secret").write_text("secret")
    async with serving(folder).started() as company, WireProbe(company) as probe:
        assert (await refusal(probe.request("resources/read", {"uri": uri}))).code == ErrorCode.RESOURCE_NOT_FOUND
        error = await StatelessClient(company).error("resources/read", uri=uri)
        assert (error["code"], error["data"]) == (ErrorCode.INVALID_PARAMS, {"uri": uri})


@pytest.mark.row("26-X2")
async def test_scopes_apply_to_the_skills_and_their_files(folder: Path) -> None:
    granted = AuthInfo("ann", scopes=frozenset({"read"}))
    async with serving(folder, scopes=["read"]).started() as company:
        able = StatelessClient(company, Peer("test", principal="ann", auth=granted))
        other = StatelessClient(company)
        assert len((await able.result("skills/list"))["skills"]) == 2
        assert len((await able.result("resources/list"))["resources"]) == 2
        assert (await other.result("resources/list"))["resources"] == []
        for method, params in (
            ("skills/list", {}),
            ("skills/get", {"uri": REFUNDS}),
            ("resources/directory/read", {"uri": "skill://acme"}),
            ("resources/read", {"uri": REFUNDS}),
            ("resources/read", {"uri": "skill://acme/refunds/templates/us"}),
        ):
            assert await able.result(method, **params)
            assert (await other.reply(method, **params)).status == 403


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"refresh": -1}, "0 or more seconds"),
        ({"refresh": "1"}, "0 or more seconds"),
        ({"refresh": True}, "0 or more seconds"),
        ({"refresh": float("nan")}, "0 or more seconds"),
        ({"cache": 3}, "must be Cache"),
        ({"cache": Cache(3, public=True), "scopes": ["read"]}, "leave out public=True"),
    ],
)
def test_a_wrong_option_is_refused(folder: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RegistrationError, match=why):
        Skills(folder, **options)


def test_skills_are_there_once(folder: Path) -> None:
    server = serving(folder)
    with pytest.raises(RegistrationError, match="the server has it already"):
        server.skills(folder)
    both = Server("both", extensions=[Skills(folder / "acme", folder / "git-log")])
    assert both.registry.catalogue.resource("skill://git-log/SKILL.md") is not None
    assert both.registry.catalogue.resource("skill://refunds/SKILL.md") is not None
