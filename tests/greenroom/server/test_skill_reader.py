"""A host reads the skills of a server: it checks what it reads, fetches nothing ahead, and trusts no entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.registry.test_skill_folder import skill_at

from greenroom import Client, Extension, Server, SkillReader, SkillRefused
from greenroom.actors.client.errors import TooManyPages
from greenroom.protocol.content import Contents
from greenroom.protocol.errors import PeerError
from greenroom.protocol.extension_ids import SKILLS_ID
from greenroom.protocol.frontmatter import MOST_BYTES, MOST_FILES
from greenroom.skill_reader import SkillEntry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URI = "skill://a/SKILL.md"
TEXT = "---\nname: a\ndescription: Does it.\nflag: true\n---\n# A\n"
DIGEST = "sha256:" + "0" * 64


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    skill_at(tmp_path / "a", templates_mail=b"Dear \xff", b=b"1")
    skill_at(tmp_path / "x" / "a", "Another.")
    return tmp_path


def serving(folder: Path) -> Server:
    server = Server("skilled")
    server.skills(folder, refresh=0)
    return server


def entry(**changes: Any) -> dict[str, Any]:
    """An entry of a skill that is made at each request."""
    return {
        "uri": URI,
        "frontmatter": {"name": "a", "description": "Does it.", "flag": True},
        "resources": "dynamic",
        **changes,
    }


def lying(
    listed: Callable[[dict[str, Any]], dict[str, Any]], text: str = TEXT, files: dict[str, Any] | None = None
) -> Server:
    """A server whose entries are what `listed` says."""
    extension = Extension(SKILLS_ID, requires_client=False)

    @extension.method("skills/list")
    async def list_skills(params: dict[str, Any]) -> dict[str, Any]:
        return listed(params)

    @extension.method("skills/get")
    async def get_skill(params: dict[str, Any]) -> dict[str, Any]:
        return {"skill": listed(params)["skills"][0]}

    server = Server("lying", extensions=[extension])
    server.resource(URI, "main")(lambda: text)
    for name, value in (files or {}).items():
        server.resource(f"skill://a/{name}", name)(lambda value=value: value)
    return server


@pytest.mark.row("26-X2")
async def test_a_listing_reads_no_file_and_each_skill_is_known_by_its_server_too(folder: Path) -> None:
    read: list[str] = []

    class Watched(Client):
        async def read_resource(self, uri: str) -> Any:
            read.append(uri)
            return await super().read_resource(uri)

    async with Watched(serving(folder)) as client:
        reader = SkillReader(client, "shop")
        assert reader.is_offered
        found = await reader.list()
        assert [(each.key, each.name, each.description) for each in found] == [
            (("shop", URI), "a", "Does it."),
            (("shop", "skill://x/a/SKILL.md"), "a", "Another."),
        ]
        assert await reader.get(URI) == found[0]
        assert found[0].fingerprint is not None
        assert read == []
        assert SkillEntry(
            "other", *(getattr(found[0], each) for each in ("uri", "frontmatter", "files"))
        ).fingerprint != (found[0].fingerprint)


@pytest.mark.row("26-X2")
async def test_a_skill_is_loaded_and_its_files_are_read(folder: Path) -> None:
    async with Client(serving(folder)) as client:
        reader = SkillReader(client, "shop")
        skill = await reader.load(await reader.get(URI))
        assert skill.text == (folder / "a" / "SKILL.md").read_text()
        for path in ("templates/mail", "./templates/../templates/mail", "skill://a/templates/mail"):
            assert await skill.read(path) == b"Dear \xff"
        for path in ("new", "../x/a/SKILL.md", "/etc/passwd", "skill://x/a/SKILL.md", ""):
            with pytest.raises(SkillRefused, match="announces no file"):
                await skill.read(path)


@pytest.mark.row("26-X2")
async def test_a_file_that_has_changed_is_refused_until_the_entry_is_fetched_again(folder: Path) -> None:
    async with Client(serving(folder)) as client:
        reader = SkillReader(client, "shop")
        before = await reader.get(URI)
        skill = await reader.load(before)
        (folder / "a" / "b").write_bytes(b"2")
        with pytest.raises(SkillRefused, match="its digest is not the one in the entry"):
            await skill.read("b")
        (folder / "a" / "b").write_bytes(b"333")
        with pytest.raises(SkillRefused, match="it has 3 bytes, and the entry says 1"):
            await skill.read("b")
        after = await reader.get(URI)
        assert after.fingerprint != before.fingerprint
        assert await (await reader.load(after)).read("b") == b"333"
        (folder / "a" / "SKILL.md").write_text(TEXT)
        with pytest.raises(SkillRefused, match="bytes"):
            await reader.load(after)


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    ("frontmatter", "why"),
    [
        ({"name": "a", "description": "Does it.", "flag": True}, None),
        ({"name": "a", "description": "Does it.", "flag": 1}, "differs"),
        ({"name": "a", "description": "Does it.", "flag": "true"}, "differs"),
        ({"name": "a", "description": "Does it."}, "differs"),
        ({"name": "a", "description": "Harmless.", "flag": True}, "differs"),
        ({"name": "a", "description": "Does it.", "flag": True, "more": None}, "differs"),
    ],
)
async def test_a_frontmatter_must_be_the_one_that_was_approved(frontmatter: dict[str, Any], why: str | None) -> None:
    async with Client(lying(lambda _: {"skills": [entry(frontmatter=frontmatter)]})) as client:
        reader = SkillReader(client, "shop")
        (found,) = await reader.list()
        if why is None:
            assert (await reader.load(found, unverified=True)).text == TEXT
            return
        with pytest.raises(SkillRefused, match=why):
            await reader.load(found, unverified=True)


@pytest.mark.row("26-X2")
async def test_a_frontmatter_that_is_not_understood_is_refused() -> None:
    async with Client(lying(lambda _: {"skills": [entry()]}, TEXT.replace("true", "yes"))) as client:
        reader = SkillReader(client, "shop")
        with pytest.raises(SkillRefused, match="line 4: 'yes'"):
            await reader.load(await reader.get(URI), unverified=True)


@pytest.mark.row("26-X2")
async def test_content_that_is_made_at_each_request_needs_permission_and_is_bounded() -> None:
    big = "x" * (MOST_BYTES // 2)
    async with Client(lying(lambda _: {"skills": [entry()]}, files={"big": big, "small": "y"})) as client:
        reader = SkillReader(client, "shop")
        (found,) = await reader.list()
        assert (found.files, found.fingerprint) == (None, None)
        with pytest.raises(SkillRefused, match="cannot be verified"):
            await reader.load(found)
        skill = await reader.load(found, unverified=True)
        assert await skill.read("small") == b"y"
        for path in ("../b/SKILL.md", "/x", "skill://b/SKILL.md", "skill://a/../b"):
            with pytest.raises(SkillRefused, match="announces no file"):
                await skill.read(path)
        assert len(await skill.read("big")) == len(big)
        with pytest.raises(SkillRefused, match="more than"):
            await skill.read("big")


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"uri": 3}, "has the URI of a SKILL.md"),
        ({"uri": "skill://a/README.md"}, "has the URI of a SKILL.md"),
        ({"uri": f"skill://{'x' * 9000}/SKILL.md"}, "has the URI of a SKILL.md"),
        ({"frontmatter": None}, "no frontmatter with a name"),
        ({"frontmatter": {"name": "a"}}, "no frontmatter with a name"),
        ({"frontmatter": {"name": "b", "description": ""}}, "is not called as its name says, 'b'"),
        ({"resources": None}, "has no list of files"),
        ({"resources": "static"}, "has no list of files"),
        ({"resources": []}, "does not list its SKILL.md"),
        ({"resources": [3]}, "a file that is not in its folder"),
        ({"resources": [{"uri": "skill://b/x", "digest": DIGEST, "size": 1}]}, "a file that is not in its folder"),
        ({"resources": [{"uri": "skill://a/../b", "digest": DIGEST, "size": 1}]}, "a file that is not in its folder"),
        ({"resources": [{"uri": URI, "digest": "sha256:0", "size": 1}]}, "without a digest or a size"),
        ({"resources": [{"uri": URI, "digest": DIGEST.upper(), "size": 1}]}, "without a digest or a size"),
        ({"resources": [{"uri": URI, "digest": DIGEST, "size": True}]}, "without a digest or a size"),
        ({"resources": [{"uri": URI, "digest": DIGEST, "size": -1}]}, "without a digest or a size"),
        ({"resources": [{"uri": URI, "digest": DIGEST}]}, "without a digest or a size"),
        ({"resources": [{"uri": URI, "digest": DIGEST, "size": 1}] * 2}, "has a file twice"),
        ({"resources": [{"uri": URI, "digest": DIGEST, "size": MOST_BYTES + 1}]}, "bytes, and"),
        ({"resources": [{"uri": URI, "digest": DIGEST, "size": 1}] * (MOST_FILES + 1)}, "files, and"),
    ],
)
async def test_an_invalid_entry_is_left_out_of_a_list_and_refused_alone(
    changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = {"uri": "skill://c/SKILL.md", "frontmatter": {"name": "c", "description": "C."}, "resources": "dynamic"}
    async with Client(lying(lambda _: {"skills": [entry(**changes), good]})) as client:
        reader = SkillReader(client, "shop")
        assert [each.name for each in await reader.list()] == ["c"]
        assert why in caplog.text
        with pytest.raises(SkillRefused) as refused:
            await reader.get(URI)
        assert len(str(refused.value)) < 1000


@pytest.mark.row("26-X2")
async def test_many_invalid_entries_and_line_breaks_in_them_do_not_fill_a_log(caplog: pytest.LogCaptureFixture) -> None:
    many = [entry(uri=f"skill://x{number}\nWARNING forged/README.md") for number in range(500)]
    async with Client(lying(lambda _: {"skills": many})) as client:
        assert await SkillReader(client, "shop").list() == []
    said = [each.getMessage() for each in caplog.records if each.name == "greenroom.skills"]
    assert len(said) == 21
    assert said[-1] == "shop lists 500 skills that are left out"
    assert not any("\n" in each for each in said)


@pytest.mark.row("26-X2")
async def test_another_skill_or_file_than_was_asked_for_is_refused() -> None:
    async with Client(lying(lambda _: {"skills": [entry()]}, files={"x": Contents("skill://a/y", text="y")})) as client:
        reader = SkillReader(client, "shop")
        with pytest.raises(SkillRefused, match="another skill"):
            await reader.get("skill://b/SKILL.md")
        skill = await reader.load(await reader.get(URI), unverified=True)
        with pytest.raises(SkillRefused, match="something else than this file"):
            await skill.read("x")


@pytest.mark.row("26-X2")
async def test_all_pages_are_listed_and_a_circle_ends() -> None:
    def listed(params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", "0"))
        name = f"s{number}"
        page = entry(uri=f"skill://{name}/SKILL.md", frontmatter={"name": name, "description": "x"})
        return {"skills": [page], **({"nextCursor": str(number + 1)} if number < 2 else {})}

    async with Client(lying(listed)) as client:
        assert [each.name for each in await SkillReader(client, "shop").list()] == ["s0", "s1", "s2"]
    circles: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
        lambda _: {"skills": [], "nextCursor": "same"},
        lambda _: {"nextCursor": "same"},
    ]
    for circle in circles:
        async with Client(lying(circle)) as client:
            with pytest.raises(TooManyPages):
                await SkillReader(client, "shop").list()


@pytest.mark.row("26-V7")
async def test_a_server_without_skills_says_so() -> None:
    async with Client(Server("plain")) as client:
        reader = SkillReader(client, "shop")
        assert not reader.is_offered
        with pytest.raises(PeerError, match="Method not found"):
            await reader.list()
