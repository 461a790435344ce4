"""How a program is started: what it sees, what can be wrong with it, and what is said then."""

from __future__ import annotations

import os
import resource
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from greenroom import ConfigError
from greenroom.supervision import KILLED, exit, kill
from greenroom.transports.client.errors import ConnectFailed
from greenroom.transports.client.server_command import Command, CommandLimits

from .wire_owner import opened, wicked

pytestmark = pytest.mark.greenroom(clock="real")


def script(path: Path, text: str, *, executable: bool = True) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(stat.S_IRWXU if executable else stat.S_IRUSR)
    return path


def descriptors(process: int | str = "self") -> set[str]:
    """The open ones."""
    return {each.name for each in Path(f"/proc/{process}/fd").iterdir()}


async def why(command: Command) -> str:
    """What is said of a program that cannot be started; nothing of it stays open."""
    before = descriptors()
    async with opened(command) as owner:
        owner.ask("echo")  # is kept, and lost with the wire
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert owner.wire.process_id is None
        assert len(descriptors()) == len(before)
        return str(error)


@pytest.mark.row("CT-10")
async def test_what_is_wrong_is_told_with_what_to_do(tmp_path: Path) -> None:
    assert "no program named nobody-has-this in" in await why(Command("nobody-has-this"))
    assert "install it, or give its path" in await why(Command("nobody-has-this"))
    assert "give the path of one" in await why(Command(tmp_path / "missing"))
    assert "chmod +x" in await why(Command(script(tmp_path / "plain", "#!/bin/sh\n", executable=False)))
    assert "it is a directory" in await why(Command(tmp_path))
    assert "first line names does not exist" in await why(Command(script(tmp_path / "moved", "#!/nowhere/python\n")))
    assert "a first line like #!/bin/sh" in await why(Command(script(tmp_path / "headless", "echo\n")))
    assert "does not exist" in await why(Command("true", cwd=tmp_path / "nowhere"))
    assert "is no directory" in await why(Command("true", cwd=tmp_path / "plain"))
    assert "too long" in await why(Command("true", "x" * 3_000_000))


@pytest.mark.parametrize("spare", range(7))
async def test_no_descriptors_left_is_a_failed_start(spare: int) -> None:
    """Three pipes, the guardian's and what the start itself takes: whichever of them is one too many, nothing is left of the others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for each in taken[len(taken) - spare :]:
            os.close(each)
        del taken[len(taken) - spare :]
        async with opened(wicked()) as owner:
            error = await owner.end()
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(error, ConnectFailed)
    assert "Too many open files" in str(error)


@pytest.mark.row("CT-10")
async def test_the_environment_is_small_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("SHELL_FUNCTION", "() { echo; }")
    monkeypatch.setenv("HOME", "() { echo; }")

    async def seen(**options: Any) -> dict[str, str]:
        async with opened(wicked(**options)) as owner:
            found: dict[str, str] = await owner.call("environment")
            return found

    small = await seen(env={"MINE": "1"})
    assert small["MINE"] == "1"
    assert small["LC_TIME"] == "C"
    assert small["PATH"] == os.environ["PATH"]
    assert not {"API_KEY", "SHELL_FUNCTION", "HOME"} & set(small)
    assert (await seen(inherit=["API_KEY"]))["API_KEY"] == "secret"
    everything = await seen(inherit=True, env={"API_KEY": "other"})
    assert everything["API_KEY"] == "other"
    assert set(os.environ) <= set(everything)


async def test_it_leads_a_session_of_its_own(tmp_path: Path) -> None:
    async with opened(wicked(cwd=tmp_path)) as owner:
        where = await owner.call("where")
        assert where.pop("cwd").endswith(tmp_path.name)
        assert where == dict.fromkeys(("pid", "group", "session"), owner.process)


async def test_it_holds_nothing_of_ours_but_its_three_pipes() -> None:
    mine = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(mine, True)  # noqa: FBT003 - os has it so
    try:
        async with opened(wicked()) as first, opened(wicked()) as second:
            for owner in (first, second):
                await owner.call("echo")
                assert descriptors(owner.process) == {"0", "1", "2"}
    finally:
        os.close(mine)


def test_a_command_is_checked_when_it_is_made() -> None:
    for words in (("",), ("a", "b\0c")):
        with pytest.raises(ConfigError):
            Command(*words)
    with pytest.raises(ConfigError):
        Command.of([])
    with pytest.raises(ConfigError):
        Command.of("ls -l")
    with pytest.raises(ConfigError, match=r"inherit=\['HOME'\]"):
        Command("a", inherit="HOME")
    for name in ("", "A=B"):
        with pytest.raises(ConfigError):
            Command("a", env={name: "1"})
    with pytest.raises(ConfigError):
        Command(b"bytes")  # type: ignore[arg-type]


@pytest.mark.row("CT-10")
def test_a_list_is_short_for_a_command() -> None:
    assert Command.of(["uvx", "mcp-server-time", Path("x")]).words == ("uvx", "mcp-server-time", "x")
    made = Command("a")
    assert Command.of(made) is made


def test_nothing_secret_is_shown() -> None:
    command = Command(
        "serve",
        "--api-key",
        "k1",
        "--token=k2",
        "-v",
        "https://u:k3@host/path?key=k4",
        "GITHUB_TOKEN=k5",
        "--header",
        "Authorization: Bearer k7",
        "--header=X-Api-Key:k8",
        "C:\\auth\\here",
        env={"PASSWORD": "k6"},
    )
    for shown in (repr(command), command.description):
        assert not [secret for secret in ("k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8") if secret in shown]
    assert "serve" in command.description
    assert "C:\\auth\\here" in command.description
    assert "https://host/path" in command.description


async def test_killed_before_it_has_started() -> None:
    async with opened(wicked()) as owner:
        kill(owner.wire.pid)
        assert await owner.rest_of_it() == []
        assert owner.ended == KILLED
        assert owner.wire.process_id is None
    async with opened(wicked(limits=CommandLimits(grace=0.2))) as owner:
        exit(owner.wire.pid, KILLED)
        await owner.rest_of_it()
