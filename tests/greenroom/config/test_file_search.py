"""The search for configuration files, and files that are not trusted."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from greenroom.config.config_reader import read
from greenroom.config.variables import distrust_reason, project_folder, user_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory and a working directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in ("GREENROOM_PROJECT_DIR", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(work)
    return tmp_path


def put(path: Path, *names: str, command: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'[server.{name}]\ncommand = "{command}"\n' for name in names), encoding="utf-8")


@pytest.mark.row("CB-02")
def test_both_files_are_optional(home: Path) -> None:
    config = read()
    assert (dict(config.servers), config.mistakes) == ({}, ())
    assert config.files == (
        home / "xdg/greenroom/greenroom.toml",
        home / "work/greenroom.toml",
        home / "work/.greenroom/greenroom.toml",
    )


@pytest.mark.row("CB-02")
def test_a_projects_server_replaces_the_users(home: Path) -> None:
    put(user_file(), "a", "b", command="user")
    put(home / "work/greenroom.toml", "b", "c", command="project")
    servers = read().servers
    assert {name: one.command for name, one in servers.items()} == {"a": "user", "b": "project", "c": "project"}


@pytest.mark.row("CB-02")
@pytest.mark.parametrize("name", ["greenroom.toml", ".greenroom/greenroom.toml"])
def test_a_projects_file_is_found_from_within_and_relative_paths_count_from_the_project(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = home / "work" / name
    put(file, "a")
    file.write_text('[server.a]\ncommand = "x"\ncwd = "sub"\n', encoding="utf-8")
    monkeypatch.chdir(home / "work/deep/er")
    config = read()
    assert config.project == home / "work"
    assert config.servers["a"].cwd == str(home / "work/sub")


def test_of_two_files_of_a_project_the_first_counts_and_the_other_is_said(home: Path) -> None:
    put(home / "work/greenroom.toml", "a")
    put(home / "work/.greenroom/greenroom.toml", "b")
    config = read()
    assert list(config.servers) == ["a"]
    assert [one.harmless for one in config.mistakes] == [True]


def test_without_a_repository_no_folder_above_is_looked_into(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / "greenroom.toml", "planted")
    (home / "loose").mkdir()
    monkeypatch.chdir(home / "loose")
    assert dict(read().servers) == {}
    monkeypatch.chdir(home / "work/deep")
    assert dict(read().servers) == {}


def test_the_environment_may_name_the_project(home: Path) -> None:
    assert project_folder({"CLAUDE_PROJECT_DIR": str(home)}) == home
    assert project_folder({"CLAUDE_PROJECT_DIR": "/x", "GREENROOM_PROJECT_DIR": str(home)}) == home
    assert project_folder({}) == home / "work"


def test_a_file_that_others_may_write_is_not_read_unless_it_is_named(home: Path) -> None:
    file = home / "work/greenroom.toml"
    put(file, "a")
    file.chmod(0o666)
    config = read()
    assert dict(config.servers) == {}
    assert config.mistakes[0].what == "is writable by all users"
    assert list(read(file).servers) == ["a"]


def test_a_file_that_its_group_may_write_is_not_read_unless_the_group_is_the_users_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "work/greenroom.toml"
    put(file, "a")
    file.chmod(0o664)
    group = file.stat().st_gid
    user = SimpleNamespace(pw_name="ada", pw_gid=group)
    groups = {group: SimpleNamespace(gr_name="ada", gr_mem=[])}
    monkeypatch.setattr("pwd.getpwuid", {os.geteuid(): user}.__getitem__)
    monkeypatch.setattr("grp.getgrgid", groups.__getitem__)

    assert distrust_reason(file) is None
    assert list(read().servers) == ["a"]
    shared = "is writable by other members of its group"
    groups[group] = SimpleNamespace(gr_name="ada", gr_mem=["ada", "bob"])
    assert distrust_reason(file) == shared
    assert dict(read().servers) == {}
    assert list(read(file).servers) == ["a"]
    groups[group] = SimpleNamespace(gr_name="staff", gr_mem=[])
    assert distrust_reason(file) == shared
    groups[group] = SimpleNamespace(gr_name="ada", gr_mem=["ada"])
    assert distrust_reason(file) is None
    user.pw_gid = group + 1
    assert distrust_reason(file) == shared
    groups.clear()
    assert distrust_reason(file) == shared
    file.chmod(0o644)
    assert distrust_reason(file) is None


def test_a_file_of_another_user_is_not_trusted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "work/greenroom.toml"
    put(file, "a")
    assert distrust_reason(file) is None
    assert distrust_reason(home / "none") is None
    told = SimpleNamespace(st_uid=file.stat().st_uid + 4242, st_mode=0o100644)

    def stat(_: Path) -> SimpleNamespace:
        return told

    monkeypatch.setattr(type(file), "stat", stat)
    assert distrust_reason(file) == "belongs to another user"
