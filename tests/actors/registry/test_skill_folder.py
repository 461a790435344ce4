"""Folders of skills: the files and digests of a snapshot, hostile and wrong folders, and folders that change."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors import skill_folder
from greenroom.actors.skill_folder import BadSkill, SkillFolder
from greenroom.protocol.frontmatter import MOST_FILES

if TYPE_CHECKING:
    from greenroom.actors.skill_folder import SkillSnapshot


def skill_at(folder: Path, description: str = "Does it.", name: str | None = None, **files: Any) -> Path:
    """Write a skill; `files` have `_` for a slash in their names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: {name or folder.name}\ndescription: {description}\n---\n# {folder.name}\n"
    )
    for path, data in files.items():
        where = folder / path.replace("_", "/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(data)
    return folder


def look(folder: Path) -> SkillSnapshot:
    return SkillFolder([folder], refresh=0).snapshot()


def refusal(*folders: Path) -> str:
    with pytest.raises(BadSkill) as refused:
        SkillFolder(folders)
    return str(refused.value)


@pytest.mark.row("26-X2")
def test_a_skill_has_all_its_files_with_digests_and_sizes(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "acme" / "billing" / "refunds", examples_email=b"Hello \xff", b=b"")
    found = look(tmp_path)
    assert list(found.skills) == ["skill://acme/billing/refunds/SKILL.md"]
    (skill,) = found.skills.values()
    wire = skill.to_wire()
    assert wire["frontmatter"] == {"name": "refunds", "description": "Does it."}
    expected = {
        f"skill://acme/billing/refunds/{path}": (folder / path).read_bytes()
        for path in ("SKILL.md", "b", "examples/email")
    }
    assert {each["uri"]: (each["digest"], each["size"]) for each in wire["resources"]} == {
        uri: (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) for uri, data in expected.items()
    }
    assert len(wire["resources"]) == len(expected)
    assert found.directories == {
        "skill://acme": ("skill://acme/billing",),
        "skill://acme/billing": ("skill://acme/billing/refunds",),
        "skill://acme/billing/refunds": (
            "skill://acme/billing/refunds/SKILL.md",
            "skill://acme/billing/refunds/b",
            "skill://acme/billing/refunds/examples",
        ),
        "skill://acme/billing/refunds/examples": ("skill://acme/billing/refunds/examples/email",),
    }


@pytest.mark.row("26-X2")
def test_a_folder_that_is_a_skill_itself_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill_at(tmp_path / "refunds", x=b"1")
    assert list(look(folder).files) == ["skill://refunds/SKILL.md", "skill://refunds/x"]
    monkeypatch.chdir(folder)
    assert list(look(Path()).skills) == ["skill://refunds/SKILL.md"]


@pytest.mark.row("26-X2")
def test_files_outside_of_skills_and_hidden_ones_are_not_served(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a")
    (tmp_path / "README.md").write_text("x")
    for path in (".env", ".git/config", "__pycache__/x.pyc", "b/.DS_Store"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("secret")
    found = look(tmp_path)
    assert list(found.files) == ["skill://a/SKILL.md"]
    assert found.directories == {"skill://a": ("skill://a/SKILL.md", "skill://a/b"), "skill://a/b": ()}


@pytest.mark.row("26-X2")
def test_a_nested_skill_is_one_of_its_own_and_belongs_to_the_outer_one(tmp_path: Path) -> None:
    skill_at(tmp_path / "outer")
    skill_at(tmp_path / "outer" / "inner", x=b"1")
    skills = look(tmp_path).skills
    assert [each.uri for each in skills["skill://outer/SKILL.md"].files] == [
        "skill://outer/SKILL.md",
        "skill://outer/inner/SKILL.md",
        "skill://outer/inner/x",
    ]
    assert [each.uri for each in skills["skill://outer/inner/SKILL.md"].files] == [
        "skill://outer/inner/SKILL.md",
        "skill://outer/inner/x",
    ]


@pytest.mark.row("26-X2")
def test_types_are_by_name_and_texts_by_content(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a")
    files = {
        "x.py": b"",
        "y.md": b"",
        "z.json": b"{}",
        "noname": b"text",
        "bin": b"\xff",
        "p.png": b"\x89",
        "t.tar.gz": b"\x1f\x8b",
        "c.yaml": b"",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert {each.name: each.mime_type for each in look(tmp_path).files.values()} == {
        "SKILL.md": "text/markdown",
        "x.py": "text/x-python",
        "y.md": "text/markdown",
        "z.json": "application/json",
        "noname": "text/plain",
        "bin": "application/octet-stream",
        "p.png": "image/png",
        "t.tar.gz": "application/octet-stream",
        "c.yaml": "application/yaml",
    }


@pytest.mark.row("26-X2")
def test_any_name_of_a_file_is_a_uri(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a")
    names = ["a b", "ä", "100%", "q?#x", "..x", "x\\y", "[1]", 'say "hi"', "new\nline"]
    served = [name for name in names if not name.startswith(".")]
    for name in names:
        (folder / name).write_text("x")
    (folder / os.fsdecode(b"\xff")).write_text("x")
    found = look(tmp_path)
    assert len(found.files) == len(served) + 2
    for uri, file in found.files.items():
        assert uri.isascii()
        assert not set(uri) & set(' %"\\[]?#\n') - {"%"}
        file.name.encode()
    assert "skill://a/%FF" in found.files


# --- links and special files


@pytest.mark.row("26-X2")
def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    skill_at(outside / "stolen")
    folder = skill_at(tmp_path / "skills" / "a")
    (folder / "file").symlink_to(outside / "secret")
    (folder / "inside").symlink_to(folder / "SKILL.md")
    (folder / "folder").symlink_to(outside)
    (tmp_path / "skills" / "stolen").symlink_to(outside / "stolen")
    (folder / "loop").symlink_to(folder)
    found = look(tmp_path / "skills")
    assert list(found.files) == ["skill://a/SKILL.md"]
    assert list(found.directories) == ["skill://a"]


@pytest.mark.row("26-X2")
def test_a_skill_file_that_is_a_link_makes_no_skill(tmp_path: Path) -> None:
    skill_at(tmp_path / "skills" / "a")
    (tmp_path / "skills" / "b").mkdir()
    (tmp_path / "skills" / "b" / "SKILL.md").symlink_to(tmp_path / "skills" / "a" / "SKILL.md")
    assert list(look(tmp_path / "skills").skills) == ["skill://a/SKILL.md"]


@pytest.mark.row("26-X2")
def test_a_link_that_replaces_a_file_or_a_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x").write_text("secret")
    folder = skill_at(tmp_path / "skills" / "a", f_x=b"mine", y=b"mine")
    skills = SkillFolder([tmp_path / "skills"], refresh=1000)
    files = skills.snapshot().files
    assert skills.read(files["skill://a/f/x"]) == b"mine"
    (folder / "f").rename(tmp_path / "old")
    (folder / "f").symlink_to(tmp_path / "secret")
    (folder / "y").unlink()
    (folder / "y").symlink_to(tmp_path / "secret" / "x")
    assert skills.read(files["skill://a/f/x"]) is None
    assert skills.read(files["skill://a/y"]) is None
    assert list(skills.snapshot().files) == ["skill://a/SKILL.md"]


@pytest.mark.row("26-X2")
def test_the_folder_itself_may_be_a_link_that_changes(tmp_path: Path) -> None:
    skill_at(tmp_path / "v1" / "a")
    skill_at(tmp_path / "v2" / "b")
    (tmp_path / "current").symlink_to(tmp_path / "v1")
    skills = SkillFolder([tmp_path / "current"], refresh=0)
    assert list(skills.snapshot().skills) == ["skill://a/SKILL.md"]
    (tmp_path / "next").symlink_to(tmp_path / "v2")
    (tmp_path / "next").replace(tmp_path / "current")
    assert list(skills.snapshot().skills) == ["skill://b/SKILL.md"]


@pytest.mark.row("26-X2")
def test_special_files_are_neither_served_nor_opened(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a", x=b"1")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        directory = os.open(folder, os.O_RDONLY)
        try:
            listening.bind(f"/proc/self/fd/{directory}/socket")
        finally:
            os.close(directory)
        skills = SkillFolder([tmp_path], refresh=1000)
        files = skills.snapshot().files
        assert list(files) == ["skill://a/SKILL.md", "skill://a/x"]
    (folder / "x").unlink()
    os.mkfifo(folder / "x")
    assert skills.read(files["skill://a/x"]) is None


# --- changes


@pytest.mark.row("26-X2")
def test_a_change_is_seen_and_digests_of_other_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill_at(tmp_path / "a", x=b"one", y=b"same")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    skills = SkillFolder([tmp_path], refresh=0)
    before = skills.snapshot().files
    (folder / "x").write_bytes(b"two")
    hashed: list[bytes] = []
    digest = skill_folder._digest

    def counted(data: bytes) -> str:
        hashed.append(data)
        return digest(data)

    monkeypatch.setattr(skill_folder, "_digest", counted)
    after = skills.snapshot().files
    assert before["skill://a/x"].digest != after["skill://a/x"].digest == digest(b"two")
    assert before["skill://a/y"] == after["skill://a/y"]
    assert hashed == [b"two"]


@pytest.mark.row("26-X2")
def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill_at(tmp_path / "a", x=b"one")
    now = time.time_ns()

    def coarse(status: os.stat_result) -> Any:
        return skill_folder._FileState(status.st_size, now, now, status.st_ino)

    monkeypatch.setattr(skill_folder, "_state_of", coarse)
    skills = SkillFolder([tmp_path], refresh=0)
    before = skills.snapshot().files["skill://a/x"]
    (folder / "x").write_bytes(b"two")
    assert skills.snapshot().files["skill://a/x"].digest != before.digest


@pytest.mark.row("26-X2")
def test_the_folder_is_looked_at_once_in_a_while_and_again_after_a_changed_read(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a", x=b"one")
    skills = SkillFolder([tmp_path], refresh=1000)
    before = skills.snapshot()
    (folder / "new").write_bytes(b"")
    assert skills.snapshot() is before
    (folder / "x").write_bytes(b"three")
    assert skills.read(before.files["skill://a/x"]) == b"three"
    after = skills.snapshot()
    assert after.files["skill://a/x"].size == 5
    assert "skill://a/new" in after.files


@pytest.mark.row("26-X2")
def test_a_skill_that_becomes_wrong_is_left_out_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = skill_at(tmp_path / "a")
    skill_at(tmp_path / "b")
    skills = SkillFolder([tmp_path], refresh=0)
    (folder / "SKILL.md").write_text("---\nname: yes\n---\n")
    with caplog.at_level(logging.WARNING, logger="greenroom.skills"):
        assert list(skills.snapshot().skills) == ["skill://b/SKILL.md"]
        assert list(skills.snapshot().files) == ["skill://b/SKILL.md"]
    (said,) = caplog.messages
    assert f"{folder / 'SKILL.md'}: line 2: 'yes': quote it" in said
    skill_at(folder)
    assert list(skills.snapshot().skills) == ["skill://a/SKILL.md", "skill://b/SKILL.md"]


@pytest.mark.row("26-X2")
def test_a_folder_that_vanishes_has_no_skills_until_it_is_back(tmp_path: Path) -> None:
    skill_at(tmp_path / "skills" / "a")
    skills = SkillFolder([tmp_path / "skills"], refresh=0)
    (tmp_path / "skills").rename(tmp_path / "away")
    assert skills.snapshot().skills == {}
    (tmp_path / "away").rename(tmp_path / "skills")
    assert list(skills.snapshot().skills) == ["skill://a/SKILL.md"]


def test_a_skill_file_at_the_top_makes_the_folder_a_skill(tmp_path: Path) -> None:
    skill_at(tmp_path / "top" / "a")
    skills = SkillFolder([tmp_path / "top"], refresh=0)
    skill_at(tmp_path / "top")
    assert list(skills.snapshot().skills) == ["skill://top/SKILL.md", "skill://top/a/SKILL.md"]


# --- folders that cannot be served


def test_wrong_folders_are_refused_with_what_to_give(tmp_path: Path) -> None:
    assert "there is no folder" in refusal(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    assert "there is no folder" in refusal(tmp_path / "file")
    assert "there is no SKILL.md in" in refusal(tmp_path)
    assert 'write server.skills("path/to/skills")' in refusal()
    skill_at(tmp_path / "x" / "a")
    skill_at(tmp_path / "y" / "a")
    assert "another folder has a skill a as well" in refusal(tmp_path / "x", tmp_path / "y")


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    ("frontmatter", "why"),
    [
        ("", "name must be"),
        ("name: a", "description must be"),
        ("name: a\ndescription: ''", "description must be"),
        ("name: a\ndescription: 3", "description must be"),
        (f"name: a\ndescription: {'x' * 1025}", "description must be"),
        ("name: b\ndescription: x", "name is 'b', and its folder is called 'a'"),
        ("name: A\ndescription: x", "name must be"),
        ("name: -a\ndescription: x", "name must be"),
        ("name: a--b\ndescription: x", "name must be"),
        (f"name: {'a' * 65}\ndescription: x", "name must be"),
        ('name: "a\\n"\ndescription: x', "name must be"),
        ("name: a\ndescription: x\nmetadata:\n  io.modelcontextprotocol/x: 1", "is reserved"),
        ("name: a\ndescription: &x y", "line 3: a value that begins with '&'"),
    ],
)
def test_a_wrong_frontmatter_is_refused_with_its_file(tmp_path: Path, frontmatter: str, why: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").write_text(f"---\n{frontmatter}\n---\n")
    said = refusal(tmp_path)
    assert why in said
    assert str(tmp_path / "a" / "SKILL.md") in said
    assert len(said) < 1000


def test_every_wrong_skill_is_named(tmp_path: Path) -> None:
    skill_at(tmp_path / "a", name="b")
    skill_at(tmp_path / "c", name="d")
    said = refusal(tmp_path)
    assert "name is 'b'" in said
    assert "name is 'd'" in said


@pytest.mark.row("26-X2")
def test_a_skill_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (skill_at(tmp_path / "a") / "SKILL.md").write_bytes(b"---\nname: a\n---\n\xff")
    assert "not UTF-8" in refusal(tmp_path)


@pytest.mark.row("26-X2")
def test_a_skill_that_is_larger_than_every_host_takes_is_refused(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a")
    for number in range(MOST_FILES - 1):
        (folder / str(number)).touch()
    assert len(look(tmp_path).files) == MOST_FILES
    (folder / "one more").touch()
    assert f"the skill has {MOST_FILES + 1} files" in refusal(tmp_path)
    skill_at(tmp_path / "b" / "c")
    with (tmp_path / "b" / "c" / "big").open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    assert "hosts take 16777216" in refusal(tmp_path / "b")


def test_a_folder_with_too_much_in_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill_at(tmp_path / "a")
    deep = folder.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    assert "more than 32 levels" in refusal(tmp_path)
    monkeypatch.setattr(skill_folder, "_MOST_ENTRIES", 10)
    wide = skill_at(tmp_path / "wide" / "b")
    for number in range(10):
        (wide / str(number)).touch()
    assert "more than 10 files and folders" in refusal(tmp_path / "wide")


@pytest.mark.row("26-X2")
def test_a_file_that_grows_too_large_is_not_read(tmp_path: Path) -> None:
    folder = skill_at(tmp_path / "a", x=b"one")
    skills = SkillFolder([tmp_path], refresh=1000)
    file = skills.snapshot().files["skill://a/x"]
    with (folder / "x").open("wb") as grown:
        grown.truncate(16 * 1024 * 1024 + 1)
    assert skills.read(file) is None


def test_many_looks_leave_no_open_files(tmp_path: Path) -> None:
    skill_at(tmp_path / "a", d_e_f=b"1")
    skills = SkillFolder([tmp_path], refresh=0)
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(20):
        assert skills.read(skills.snapshot().files["skill://a/d/e/f"]) == b"1"
    file = skills.snapshot().files["skill://a/d/e/f"]
    (tmp_path / "a" / "d" / "e" / "f").unlink()
    assert skills.read(file) is None
    assert len([*Path("/proc/self/fd").iterdir()]) == before
