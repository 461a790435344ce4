"""Starting a program: its environment and descriptors, what can be wrong, and what is reported then."""

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

from .wire_owner import misbehaving_server, open_wire

pytestmark = pytest.mark.greenroom(clock="real")


def script(path: Path, text: str, *, executable: bool = True) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(stat.S_IRWXU if executable else stat.S_IRUSR)
    return path


def descriptors(process: int | str = "self") -> set[str]:
    """The open descriptors."""
    return {each.name for each in Path(f"/proc/{process}/fd").iterdir()}


async def why(command: Command) -> str:
    """The error of a program that cannot be started; nothing of it stays open."""
    before = descriptors()
    async with open_wire(command) as owner:
        owner.ask("echo")  # the error is kept, and lost with the wire
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert owner.wire.process_id is None
        assert len(descriptors()) == len(before)
        return str(error)


@pytest.mark.row("CT-10")
async def test_a_failed_start_is_reported_with_advice(tmp_path: Path) -> None:
    assert "no program named no-such-program-here in" in await why(Command("no-such-program-here"))
    assert "install it, or give its path" in await why(Command("no-such-program-here"))
    assert "give the path of one" in await why(Command(tmp_path / "missing"))
    assert "chmod +x" in await why(Command(script(tmp_path / "plain", "#!/bin/sh\n", executable=False)))
    assert "it is a directory" in await why(Command(tmp_path))
    assert "first line names does not exist" in await why(Command(script(tmp_path / "moved", "#!/nowhere/python\n")))
    assert "a first line like #!/bin/sh" in await why(Command(script(tmp_path / "headless", "echo\n")))
    assert "does not exist" in await why(Command("true", cwd=tmp_path / "nowhere"))
    assert "is no directory" in await why(Command("true", cwd=tmp_path / "plain"))
    assert "too long" in await why(Command("true", "x" * 3_000_000))


@pytest.mark.parametrize("spare", range(7))
async def test_missing_descriptors_are_a_failed_start(spare: int) -> None:
    """A start needs three pipes, the reaper's pipe and more: whichever of them fails, the others are closed."""
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
        async with open_wire(misbehaving_server()) as owner:
            error = await owner.end()
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(error, ConnectFailed)
    assert "Too many open files" in str(error)


@pytest.mark.row("CT-10")
async def test_the_environment_is_small_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("SHELL_FUNCTION", "() { echo; }")
    monkeypatch.setenv("HOME", "() { echo; }")

    async def seen(**options: Any) -> dict[str, str]:
        async with open_wire(misbehaving_server(**options)) as owner:
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


async def test_a_child_leads_a_session_of_its_own(tmp_path: Path) -> None:
    async with open_wire(misbehaving_server(cwd=tmp_path)) as owner:
        where = await owner.call("where")
        assert where.pop("cwd").endswith(tmp_path.name)
        assert where == dict.fromkeys(("pid", "group", "session"), owner.process)


async def test_a_child_holds_only_its_three_pipes() -> None:
    mine = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(mine, True)  # noqa: FBT003 - os has it so
    try:
        async with open_wire(misbehaving_server()) as first, open_wire(misbehaving_server()) as second:
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
def test_a_list_is_shorthand_for_a_command() -> None:
    assert Command.of(["uvx", "mcp-server-time", Path("x")]).words == ("uvx", "mcp-server-time", "x")
    made = Command("a")
    assert Command.of(made) is made


def test_a_description_contains_no_secret() -> None:
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


async def test_a_wire_can_be_killed_before_its_child_has_started() -> None:
    async with open_wire(misbehaving_server()) as owner:
        kill(owner.wire.pid)
        assert await owner.rest_of_it() == []
        assert owner.ended == KILLED
        assert owner.wire.process_id is None
    async with open_wire(misbehaving_server(limits=CommandLimits(grace=0.2))) as owner:
        exit(owner.wire.pid, KILLED)
        await owner.rest_of_it()
