"""Skills at a host: listed of all servers, loaded with consent for these very files, and read from the server that announced them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.registry.test_skill_folder import skill_at

from greenroom import Cache, Client, ClientSettings, Context, Extension, Hooks, Host, Server, SkillReader, SkillRefused
from greenroom.actors.client.errors import TooManyPages
from greenroom.actors.consent.consent import Consent, ConsentAnswer, ConsentQuestion
from greenroom.actors.consent.rules import BadRule, ConsentDenied, Permissions, Rule
from greenroom.actors.federation.federation_errors import UnknownServer
from greenroom.protocol.errors import PeerError
from greenroom.protocol.extension_ids import SKILLS_ID
from greenroom.skill_reader import FOLDER_TYPE, SkillEntry

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.skill_reader import LoadedSkill

URI = "skill://a/SKILL.md"
STATELESS, LEGACY = "2026-07-28", "legacy"


def serving(folder: Path, read: list[str] | None = None, cache: Cache | None = None) -> Server:
    """A server of these skills; `read` gets the URIs of the resources that are read."""

    async def watch(method: str, ctx: Context, proceed: Any) -> Any:
        if read is not None and method == "resources/read":
            read.append(ctx.name)
        return await proceed()

    server = Server("skilled", hooks=Hooks(around=watch))
    server.skills(folder, refresh=0, cache=cache)
    return server


@pytest.fixture(name="shops")
def _shops(tmp_path: Path) -> tuple[Path, Path]:
    """Two servers' folders, with a skill of one name and one URI each."""
    skill_at(tmp_path / "one" / "a", "Of one.", templates_mail=b"Dear", templates_deep_x=b"1", b=b"2")
    skill_at(tmp_path / "two" / "a", "Of two.")
    return tmp_path / "one", tmp_path / "two"


@pytest.mark.row("26-X2")
@pytest.mark.parametrize("mode", [STATELESS, LEGACY])
async def test_skills_of_all_servers_are_known_by_their_server_and_uri(shops: tuple[Path, Path], mode: str) -> None:
    one, two = shops
    servers: dict[str, Any] = {
        "one": serving(one),
        "two": serving(two),
        "plain": Server("plain"),
        "gone": "http://127.0.0.1:9/mcp",
    }
    async with Host(servers, settings=ClientSettings(mode=mode)) as host:
        found = await host.skills.list()
        assert [(each.key, each.description) for each in found] == [
            (("one", URI), "Of one."),
            (("two", URI), "Of two."),
        ]
        skills = [await host.skills.load(each) for each in found]
        assert ["Of one." in skills[0].text, "Of two." in skills[1].text] == [True, True]
        assert await host.skills.get("two", URI) == found[1]
        with pytest.raises(PeerError):
            await host.skills.get("one", "skill://b/SKILL.md")
        with pytest.raises(SkillRefused, match="has not declared that it serves skills"):
            await host.skills.get("plain", URI)
        with pytest.raises(UnknownServer):
            await host.skills.get("none", URI)


@pytest.mark.row("26-X2")
async def test_a_server_that_does_not_answer_is_left_out_with_a_warning(
    shops: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    async with Host({"one": serving(shops[0]), "gone": "http://127.0.0.1:9/mcp"}, patience=0.05) as host:
        assert [each.server for each in await host.skills.list()] == ["one"]
    assert "the skills of gone are left out" in caplog.text


@pytest.mark.row("26-X2")
async def test_nothing_is_read_before_the_user_agrees_and_then_the_text_alone(shops: tuple[Path, Path]) -> None:
    read: list[str] = []
    asked: list[str] = []

    def ask(question: ConsentQuestion) -> bool:
        asked.append(f"{question.name}: {question.text} {read}")
        return len(asked) > 1

    async with Host({"one": serving(shops[0], read)}, consent=Consent(ask=ask)) as host:
        (entry,) = await host.skills.list()
        with pytest.raises(ConsentDenied, match=r"Skill\(one\) skill://a/SKILL.md is not allowed: the answer was no"):
            await host.skills.load(entry)
        assert read == []
        skill = await host.skills.load(entry)
        assert read == [URI]
        assert await skill.read("b") == b"2"
        assert len(read) == 2
    text = f"Skill(one) {URI}: the skill {URI} of one: 'Of one.' []"
    assert asked == [text, text]


@pytest.mark.row("26-X2")
async def test_a_decision_that_is_kept_holds_for_these_files_at_this_server(
    shops: tuple[Path, Path], tmp_path: Path
) -> None:
    asked: list[str] = []

    def ask(question: ConsentQuestion) -> ConsentAnswer:
        asked.append(question.server)
        return ConsentAnswer(allow=True, remember="always")

    one, two = shops
    file = tmp_path / "decisions.json"
    async with Host({"one": serving(one), "two": serving(two)}, consent=Consent(ask=ask, remembers=file)) as host:
        for _ in range(2):
            for entry in await host.skills.list():
                await host.skills.load(entry)
        assert asked == ["one", "two"]
        (one / "a" / "b").write_bytes(b"3")  # one file has changed, and not the text
        await host.skills.load(await host.skills.get("one", URI))
        assert asked == ["one", "two", "one"]
        (one / "a" / "new").write_bytes(b"3")
        await host.skills.load(await host.skills.get("one", URI))
        assert asked == ["one", "two", "one", "one"]
    async with Host({"two": serving(two)}, consent=Consent(ask=ask, remembers=file)) as host:
        (entry,) = await host.skills.list()
        await host.skills.load(entry)
    assert len(asked) == 4


def changing(text: str = "---\nname: a\ndescription: Made.\n---\n", settings: Any = None, **folders: Any) -> Server:
    """A server whose skill is made at each request. `folders` are what its folders list."""
    extension = Extension(SKILLS_ID, requires_client=False, settings=settings or {})
    entry = {"uri": URI, "frontmatter": {"name": "a", "description": "Made."}, "resources": "dynamic"}

    @extension.method("skills/list")
    async def list_skills(params: dict[str, Any]) -> dict[str, Any]:
        return {"skills": [entry]}

    @extension.method("skills/get")
    async def get_skill(params: dict[str, Any]) -> dict[str, Any]:
        return {"skill": entry}

    @extension.method("resources/directory/read")
    async def read_folder(params: dict[str, Any]) -> dict[str, Any]:
        pages: list[Any] = folders[params["uri"].rpartition("/")[2]]
        number = int(params.get("cursor", 0))
        more = {"nextCursor": str((number + 1) % len(pages))} if number + 1 < len(pages) or pages[-1] is None else {}
        return {"resources": pages[number] or [], **more}

    server = Server("changing", extensions=[extension])
    server.resource(URI, "main")(lambda: text)
    return server


@pytest.mark.row("26-X2")
async def test_no_decision_is_kept_for_a_skill_that_is_made_at_each_request() -> None:
    asked: list[str] = []

    def ask(question: ConsentQuestion) -> ConsentAnswer:
        asked.append(question.skill)
        return ConsentAnswer(allow=True, remember="always")

    async with Host({"one": changing()}, consent=Consent(ask=ask)) as host:
        (entry,) = await host.skills.list()
        with pytest.raises(SkillRefused, match="cannot be verified"):
            await host.skills.load(entry)
        assert asked == []  # about what would be refused anyway
        for _ in range(2):
            await host.skills.load(entry, unverified=True)
    assert asked == [URI, URI]


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ([], "ask"),
        ([Rule("allow", "Skill(one)")], True),
        ([Rule("allow", "Skill(*)")], True),
        ([Rule("allow", "Skill(one)", "one")], True),
        ([Rule("deny", "Skill(one)"), Rule("allow", "Skill(*)")], False),
        ([Rule("deny", "Skill(two)"), Rule("allow", "Skill(*)")], True),
        ([Rule("allow", "*"), Rule("allow", "Elicit(*)")], "ask"),
        ([Rule("allow", "Skill", "one")], "ask"),
    ],
)
async def test_rules_decide_about_skills_by_their_server(shops: tuple[Path, Path], rules: Any, *, may: Any) -> None:
    consent = Consent(Permissions(rules))
    async with Host({"one": serving(shops[0])}, consent=consent) as host:
        (entry,) = await host.skills.list()
        if may is True:
            assert (await host.skills.load(entry)).text
            return
        why = r'write allow = \["Skill\(one\)"\] in \[server.one.permissions\]' if may == "ask" else "global deny|deny"
        with pytest.raises(ConsentDenied, match=why):
            await host.skills.load(entry)


def test_a_pattern_of_skills_names_its_server() -> None:
    for rule in (("Skill(two)", "one"), ("Skill(", None), ("Skill(one", None)):
        with pytest.raises(BadRule, match="Skill"):
            Permissions([Rule("allow", *rule)])
    rules = Permissions([Rule("deny", "Skill")])  # the name of a tool
    assert rules.of_tool("one", "Skill").verdict == "deny"
    assert rules.of_skill("one").verdict == "ask"
    assert rules.of_elicitation("one").verdict == "ask"


@pytest.mark.row("26-X2")
async def test_an_entry_is_read_from_the_server_that_announced_it_and_no_other(shops: tuple[Path, Path]) -> None:
    async with Host({"one": serving(shops[0]), "two": serving(shops[1])}) as host:
        (first, second) = await host.skills.list()
        with pytest.raises(SkillRefused, match="it is a skill of two, and would be read from one"):
            await host.skills.reader("one").load(second)
        claimed = SkillEntry("two", first.uri, first.frontmatter, first.files)
        with pytest.raises(SkillRefused, match="its digest is not the one in the entry"):
            await host.skills.load(claimed)
        await host.remove("two")
        with pytest.raises(UnknownServer):
            await host.skills.load(second)


@pytest.mark.row("26-X2")
async def test_a_model_is_told_from_which_server_a_skill_is(shops: tuple[Path, Path]) -> None:
    async with Host({"our shop": serving(shops[0])}) as host:
        (entry,) = await host.skills.list()
        skill = await host.skills.load(entry)
    first, _, rest = skill.for_model.partition("\n")
    assert first.startswith("[A skill, skill://a/SKILL.md, of the server 'our shop'.")
    assert rest == skill.text


# --- Folders.


@pytest.mark.row("26-X2")
async def test_a_folder_is_answered_from_the_entry(shops: tuple[Path, Path]) -> None:
    async with Host({"one": serving(shops[0])}) as host:
        (entry,) = await host.skills.list()
        skill = await host.skills.load(entry)
        (shops[0] / "a" / "templates" / "later").write_bytes(b"x")  # not in the entry
        assert sorted(await skill.list()) == ["SKILL.md", "b", "templates/"]
        assert sorted(await skill.list("templates")) == ["templates/deep/", "templates/mail"]
        assert await skill.list("./templates/deep/") == ["templates/deep/x"]
        for none in ("other", "../two", "temp", "/"):
            assert await skill.list(none) == [] or none == "/"
        assert await skill.read((await skill.list("templates/deep"))[0]) == b"1"


async def dynamic(server: Server) -> tuple[Host, LoadedSkill]:
    host = Host({"one": server})
    await host.open()
    (entry,) = await host.skills.list()
    return host, await host.skills.load(entry, unverified=True)


@pytest.mark.row("26-X2")
async def test_folders_of_a_skill_that_is_made_at_each_request_are_asked_of_the_server() -> None:
    top = [{"uri": URI}, {"uri": "skill://a/t", "mimeType": FOLDER_TYPE}]
    wrong: list[Any] = [
        *({"uri": "skill://b/x"}, {"uri": "skill://a/t/x"}, {"uri": "skill://a/"}, {"uri": "skill://a/.."}),
        *({"uri": 3}, "x", None, {"uri": "skill://a"}),
    ]
    server = changing(settings={"directoryRead": True}, a=[top, wrong], t=[[{"uri": "skill://a/t/x"}]])
    host, skill = await dynamic(server)
    try:
        assert await skill.list() == ["SKILL.md", "t/"]
        assert await skill.list("t") == ["t/x"]
        with pytest.raises(SkillRefused, match="announces no file"):
            await skill.list("../b")
    finally:
        await host.close()


@pytest.mark.row("26-X2")
async def test_a_folder_without_end_is_given_up() -> None:
    many: list[Any] = [[{"uri": f"skill://a/{page}-{number}"} for number in range(300)] for page in range(3)]
    circle: list[Any] = [[], None]
    for pages in (circle, many):
        host, skill = await dynamic(changing(settings={"directoryRead": True}, a=pages))
        try:
            with pytest.raises(TooManyPages, match="lists a folder in a circle"):
                await skill.list()
        finally:
            await host.close()


@pytest.mark.row("26-X2")
@pytest.mark.parametrize("settings", [{}, {"directoryRead": False}, {"directoryRead": "true"}])
async def test_a_server_that_does_not_declare_folders_is_not_asked_for_any(settings: Any) -> None:
    host, skill = await dynamic(changing(settings=settings))
    try:
        with pytest.raises(SkillRefused, match="its server does not list folders"):
            await skill.list()
    finally:
        await host.close()


def test_a_reader_says_whose_skills_it_reads() -> None:
    host = Host({"one": Server("x")})
    assert isinstance(host.skills.reader("one"), SkillReader)
    assert repr(host.skills.reader("one")) == "<SkillReader of one>"
    assert repr(host.skills) == "<HostSkills of <Host of one>>"


@pytest.mark.row("26-X2")
async def test_a_file_that_is_kept_for_longer_than_its_entry_is_read_again(shops: tuple[Path, Path]) -> None:
    read: list[str] = []
    counting = serving(shops[0], read, cache=Cache(600))
    async with (
        Host({"one": counting}, settings=ClientSettings(mode=STATELESS)) as host,
        Client(counting, mode=STATELESS) as client,
    ):
        for reader in (host.skills.reader("one"), SkillReader(client, "one")):
            skill = await reader.load(await reader.get(URI))
            before = len(read)
            assert await skill.read("b") == await skill.read("b")
            assert len(read) == before + 1  # the second time it was kept
            (shops[0] / "a" / "b").write_bytes(str(before).encode())
            changed = await reader.load(await reader.get(URI))
            assert await changed.read("b") == str(before).encode()
            (shops[0] / "a" / "b").write_bytes(b"later")
            count = len(read)
            assert await changed.read("b") == str(before).encode()  # still kept, and as announced
            assert len(read) == count
