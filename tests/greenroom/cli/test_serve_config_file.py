"""`greenroom serve --config FILE`: a gateway from a configuration file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from greenroom import Client
from greenroom.cli.exit_codes import UsageError
from greenroom.cli.serve_command import gateway_from_file
from greenroom.errors import ConfigError
from greenroom.protocol.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

UP = """
from greenroom import Server

server = Server("up")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "up.py").write_text(UP)
    made = tmp_path / "gateway.toml"
    made.write_text(
        f'[permissions]\nallow = ["up:*"]\n[server.up]\ncommand = "{sys.executable}"\nargs = ["{tmp_path / "up.py"}"]\n'
        f'[server.other]\ncommand = "{sys.executable}"\nargs = ["{tmp_path / "up.py"}"]\n'
    )
    return made


@pytest.mark.greenroom(clock="real")
async def test_the_servers_of_a_file_are_served_without_code(file: Path) -> None:
    async with Client(gateway_from_file(file, ["up"])) as client:
        assert {one.name for one in await client.list_tools()} == {"up__add"}
        assert await client.call("up__add", a=1, b=2) == 3


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--config", "none.toml"), 2, "the file none.toml does not exist"),
        (("--config", "FILE", "--only", "upp"), 2, "has no server 'upp'; did you mean up"),
        (("--config", "FILE", "weather.py"), 2, "cannot be combined with weather.py"),
        (("--config", "FILE", "--http", "0", "--workers", "2"), 2, "cannot be combined with --workers"),
        (("--config", "FILE", "--http", "0", "--watch"), 2, "it reloads its file in any case"),
        (("--only", "up", "weather.py"), 2, "--only is only for --config"),
        ((), 2, "name a server"),
        (("--config", "EMPTY"), 2, "add one as [server.NAME]"),
        (("--config", "WRONG"), 3, "commando"),
    ],
)
def test_a_file_without_servers_is_refused_with_advice(
    typed: Type, file: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    (file.parent / "empty.toml").write_text("")
    (file.parent / "wrong.toml").write_text('[server.up]\ncommando = "x"\n')
    places = {"FILE": file, "EMPTY": file.parent / "empty.toml", "WRONG": file.parent / "wrong.toml"}
    seen = typed("serve", *(str(places.get(word, word)) for word in words))
    assert seen.code == code
    assert says in seen.err


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


@pytest.mark.greenroom(clock="real")
async def test_the_right_servers_of_a_file_are_served_and_the_wrong_ones_said(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _append(file, '[server.bad]\ncommand = "${NO_SUCH_VARIABLE}"\n')
    async with Client(gateway_from_file(file)) as client:
        assert {one.name for one in await client.list_tools()} == {"up__add", "other__add"}
        with pytest.raises(PeerError) as caught:
            await client.call("bad__add")
        assert caught.value.data == {"server": "bad", "reason": "misconfigured"}
        assert "toml" not in str(caught.value)
    assert "NO_SUCH_VARIABLE" in caplog.text


def test_a_wrong_server_is_no_matter_of_those_that_are_named(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(file.read_text() + "[server.bad]\n")
    gateway_from_file(file, ["up"])
    assert "bad" not in caplog.text
    with pytest.raises(UsageError, match="did you mean up"):
        gateway_from_file(file, ["upp"])
    with pytest.raises(ConfigError, match="server bad"):
        gateway_from_file(file, ["bad"])


@pytest.mark.greenroom(clock="real")
async def test_a_gateway_follows_its_file(file: Path) -> None:
    async with Client(gateway_from_file(file)) as client:
        assert {one.name for one in await client.list_tools()} == {"up__add", "other__add"}
        async with client.listen("notifications/tools/list_changed") as updates:
            _append(file, f'[server.third]\ncommand = "{sys.executable}"\nargs = ["{file.with_name("up.py")}"]\n')
            async for _ in updates:
                if {one.name for one in await client.list_tools()} == {"up__add", "other__add", "third__add"}:
                    break
        assert await client.call("up__add", a=1, b=2) == 3


def test_a_gateway_is_not_made_of_a_file_in_which_nothing_is_right(file: Path) -> None:
    file.write_text("[server.bad]\n")
    with pytest.raises(ConfigError):
        gateway_from_file(file)
    with pytest.raises(UsageError):
        gateway_from_file(file.parent / "none.toml")
