"""Sources of rules: the user's file, a project's file from a clone, a program's own rules, and no rules at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom import Host
from greenroom.config.config_reader import read
from greenroom.config.variables import user_file
from greenroom.host import Consent, ConsentDenied, ConsentQuestion, Permissions, Rule

from .config_files import block

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.config.host_config import HostConfig

    from .config_files import Workspace

MAIL = '[server.mail]\ncommand = "mail"\n'


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository as the working directory, and a user's configuration folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in ("GREENROOM_PROJECT_DIR", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    user_file().parent.mkdir(parents=True)
    return folder


def configured(work: Path, user: str, project: str) -> HostConfig:
    user_file().write_text(user, encoding="utf-8")
    (work / "greenroom.toml").write_text(project, encoding="utf-8")
    return read()


@pytest.mark.row("CB-02", "CB-16")
@pytest.mark.parametrize("pattern", ["*", "mail:*", "mcp__mail", "send"])
def test_a_projects_file_allows_nothing_of_the_users_servers(work: Path, pattern: str) -> None:
    own = '[server.own]\ncommand = "own"\n'
    config = configured(work, MAIL, f'{own}[permissions]\nallow = ["{pattern}", "Elicit(*)"]\n')
    permissions = config.permissions

    assert permissions.of_tool("mail", "send").verdict == "ask"
    assert permissions.of_elicitation("mail").verdict == "ask"
    assert permissions.of_elicitation("own").verdict == "allow"
    assert permissions.of_tool("own", "send").verdict == ("allow" if pattern in ("*", "send") else "ask")
    assert config.good
    if pattern in ("mail:*", "mcp__mail"):
        assert "cannot allow tools of servers in other files" in str(config.mistakes)


@pytest.mark.row("CB-02", "CB-16")
@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_deny_and_ask_rules_of_a_projects_file_apply_everywhere(work: Path, verdict: str) -> None:
    config = configured(work, f'{MAIL}[permissions]\nallow = ["*"]\n', f'[permissions]\n{verdict} = ["send"]\n')

    assert config.permissions.of_tool("mail", "send").verdict == verdict
    assert config.permissions.of_tool("mail", "read").verdict == "allow"


@pytest.mark.row("CB-02", "CB-16")
def test_a_users_denials_apply_to_a_projects_replacement_of_the_server(work: Path) -> None:
    mine = '[server.mail.permissions]\ndeny = ["send", "Elicit"]\nask = ["rm"]\nallow = ["list"]\n'
    theirs = '[server.mail]\ncommand = "theirs"\n[server.mail.permissions]\nallow = ["*", "Elicit"]\n'
    config = configured(work, MAIL + mine, theirs)
    decided = {tool: config.permissions.of_tool("mail", tool) for tool in ("send", "rm", "list", "more")}

    assert config.servers["mail"].command == "theirs"
    assert {tool: one.verdict for tool, one in decided.items()} == {
        "send": "deny",
        "rm": "ask",
        "list": "allow",
        "more": "allow",
    }
    assert config.permissions.of_elicitation("mail").verdict == "deny"
    assert f"({user_file()}:4)" in str(decided["send"])
    bare = configured(work, MAIL + mine, '[server.mail]\ncommand = "theirs"\n').permissions
    assert bare.of_tool("mail", "list").verdict == "ask"


@pytest.mark.row("CB-16")
def test_a_project_that_replaces_the_only_server_with_rules_has_not_made_everything_allowed(work: Path) -> None:
    user = f'{MAIL}[server.mail.permissions]\nallow = ["list"]\n[server.other]\ncommand = "other"\n'
    config = configured(work, user, '[server.mail]\ncommand = "theirs"\n')

    assert config.permissions.of_tool("mail", "list").verdict == "ask"
    assert config.permissions.of_tool("other", "x").verdict == "ask"


@pytest.mark.parametrize("wrong", ['deny = ["Elicit(other)"]', "deny = 3"])
def test_an_unreadable_block_of_a_replaced_user_server_allows_nothing(work: Path, wrong: str) -> None:
    user = f"{MAIL}[server.mail.permissions]\n{wrong}\n"
    config = configured(work, user, f'{MAIL}[server.mail.permissions]\nallow = ["*"]\n')

    assert config.doubtful
    assert [one.source.file for one in config.mistakes if not one.harmless] == [str(user_file())]
    assert config.permissions.of_tool("mail", "send").verdict == "ask"


@pytest.mark.row("CB-16")
def test_files_that_a_program_names_are_all_its_own(work: Path) -> None:
    configured(work, MAIL, '[permissions]\nallow = ["*"]\n')

    assert read(user_file(), work / "greenroom.toml").permissions.of_tool("mail", "send").verdict == "allow"


def test_a_name_that_denies_nothing_is_told_as_such(workspace: Workspace) -> None:
    [told] = workspace.toml(f'[permissions]\ndeny = ["mial:*"]\n{MAIL}')

    assert "'mial:*' can never match: there is no server called 'mial'; so it denies nothing: correct the name" in told


@pytest.mark.row("CB-17")
def test_where_no_file_has_rules_that_is_why_all_is_allowed(workspace: Workspace) -> None:
    workspace.write("greenroom.toml", MAIL)
    permissions = workspace.read("greenroom.toml").permissions

    assert str(permissions.of_tool("mail", "send")) == "allow: no file has rules"
    assert str(permissions.of_elicitation("mail")) == "allow: no file has rules"


@pytest.mark.row("CB-17")
async def test_the_shown_verdict_is_the_one_applied_also_without_rules(workspace: Workspace) -> None:
    path = workspace.write("greenroom.toml", block("a", "1"))
    async with Host.from_config(path) as host:
        assert host.consent is not None
        assert host.consent.verdict("a", "which", {}) == ("allow", "allow: no file has rules")
        assert await host.call("a:which") == "1"
        workspace.write("greenroom.toml", f'[permissions]\nallow = ["pid"]\n{block("a", "1")}')
        await host.reload()
        assert host.consent.verdict("a", "which", {}) == ("ask", "ask: no rule matches")


@pytest.mark.row("CB-16")
async def test_denials_of_files_apply_to_a_program_with_its_own_rules(workspace: Workspace) -> None:
    def says_yes(_: ConsentQuestion) -> bool:
        return True

    rules = '[permissions]\ndeny = ["which", "Elicit(a)"]\n[server.a.permissions]\nask = ["pid"]\nallow = ["slow"]\n'
    path = workspace.write("greenroom.toml", block("a", "1") + rules)
    consent = Consent(Permissions([Rule("allow", "*"), Rule("allow", "Elicit(*)"), Rule("deny", "slow")]), ask=says_yes)
    async with Host.from_config(path, consent=consent) as host:
        with pytest.raises(ConsentDenied, match=r"deny 'which' \("):
            await host.call("a:which")
        with pytest.raises(ConsentDenied, match="deny 'slow'"):
            await host.call("a:slow", seconds=0)
        assert await host.call("a:pid")
        with pytest.raises(ConsentDenied):
            await consent.elicitation("a")

        workspace.write("greenroom.toml", block("a", "1"))
        await host.reload()
        assert await host.call("a:which") == "1"
        with pytest.raises(ConsentDenied, match="deny 'slow'"):
            await host.call("a:slow", seconds=0)
