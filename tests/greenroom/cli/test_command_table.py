"""Rules for every command of the table: JSON output and shell completion."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom.cli.click_app import CliCommand, CommandGroup
from greenroom.cli.command_table import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import click

    from .conftest import Typed

    Type = Callable[..., Typed]

GREENROOM = str(Path(sys.executable).with_name("greenroom"))


def shown(value: object) -> str:
    words: Any = value
    return " ".join(words) if isinstance(value, tuple) else ""


def every(
    commands: Iterable[click.Command] = COMMANDS, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], CliCommand]]:
    for each in commands:
        here = (*path, str(each.name))
        if isinstance(each, CliCommand):
            yield here, each
        elif isinstance(each, CommandGroup):
            yield from every(each.commands.values(), here)


def test_every_command_answers_programs_but_those_that_answer_clients_or_draw_a_screen() -> None:
    without = [path for path, each in every() if "json" not in {one.name for one in each.params}]

    assert without == [("serve",), ("top",)]


@pytest.mark.parametrize(
    "words",
    [
        ("list", "weather.py"),
        ("call", "weather.py", "forecast", "city=Oslo"),
        ("read", "weather.py", "today"),
        ("prompt", "weather.py", "pack", "city=Oslo"),
        ("inspect", "weather.py"),
        ("install", "weather.py", "--to", "cursor", "--dry-run"),
        ("new", "sky"),
        ("config", "check"),
        ("config", "show"),
        ("config", "effective"),
        ("config", "schema"),
        ("whoami",),
        ("logout", "http://127.0.0.1:9/mcp"),
    ],
    ids=" ".join,
)
def test_json_output_is_one_json_value(typed: Type, words: tuple[str, ...]) -> None:
    seen = typed(*words, "--json")

    assert seen.code == 0, seen.err
    assert isinstance(json.loads(seen.out), dict)


# --- completion


@pytest.fixture
def shell(folder: Path) -> Callable[..., list[str]]:
    """The completions after these words, the last of which is incomplete."""
    (folder / "greenroom.toml").write_text(
        '[server.sky]\ncommand = "uvx"\nargs = ["--key=secret"]\n[server.sea]\ntransport = "http"\nurl = "http://127.0.0.1:1/mcp"\n'
        '[server.off]\ncommand = "uvx"\ndisabled = true\n[server.wrong]\ncomand = "x"\n'
    )
    (folder / "sub").mkdir()
    (folder / "sub" / "inner.py").write_text("")
    (folder / "other.toml").write_text('[server.snow]\ncommand = "uvx"\n')

    def offered(*words: str, kind: str = "bash") -> list[str]:
        asked = {"COMP_WORDS": " ".join(("greenroom", *words)), "COMP_CWORD": str(len(words))}
        if kind == "fish":
            asked["COMP_CWORD"] = words[-1]
        done = subprocess.run(
            [GREENROOM],
            env={**os.environ, **asked, "_GREENROOM_COMPLETE": f"{kind}_complete"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    return offered


@pytest.mark.parametrize(("kind", "has"), [("bash", "complete "), ("zsh", "compdef "), ("fish", "complete ")])
def test_each_shell_has_its_script(kind: str, has: str) -> None:
    done = subprocess.run(
        [GREENROOM],
        env={**os.environ, "_GREENROOM_COMPLETE": f"{kind}_source"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert has in done.stdout
    assert f"_GREENROOM_COMPLETE={kind}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    one_in(
        3,
        [
            (("config", "check", "green"), ["file,green"]),
            (("in",), ["plain,inspect", "plain,install"]),
            (("config", "s"), ["plain,schema", "plain,show"]),
            (("call", "--ti"), ["plain,--timeout"]),
            (("install", "--to", "c"), ["plain,claude", "plain,claude-code", "plain,codex", "plain,cursor"]),
            (("list", "s"), ["plain,sky", "plain,sea", "plain,sub/"]),
            (("list", "--json", "sk"), ["plain,sky"]),
            (("list", "--config", "other.toml", "s"), ["plain,snow", "plain,sub/"]),
            (("call", "s"), ["plain,sky", "plain,sea", "plain,sub/"]),
            (("call", "sky", "s"), []),
            (("login", "se"), ["plain,sea"]),
            (("config", "effective", "s"), ["plain,sky", "plain,sea"]),
            (("list", "weath"), ["plain,weather.py"]),
            (("serve", "weath"), ["plain,weather.py"]),
            (("serve", "sub/in"), ["plain,sub/inner.py"]),
            (("list", "nothing-of-that-name"), ["file,nothing-of-that-name"]),
            (("check", "s"), ["plain,sky", "plain,sea", "plain,sub/"]),
            (("new", "s"), []),
        ],
    ),
    ids=shown,
)
def test_a_shell_is_offered_what_can_stand_there(
    shell: Callable[..., list[str]], words: tuple[str, ...], offered: list[str]
) -> None:
    assert shell(*words) == offered


@pytest.mark.parametrize("kind", ["zsh", "fish"])
def test_other_shells_are_offered_the_same_with_where_it_stands(shell: Callable[..., list[str]], kind: str) -> None:
    said = "\n".join(shell("list", "sk", kind=kind))

    assert "sky" in said
    assert "greenroom.toml:1" in said
    assert "secret" not in said


@pytest.mark.usefixtures("shell")
def test_a_shell_completes_with_the_script(folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = f"""
PATH={Path(GREENROOM).parent}:$PATH
complete() {{ :; }}
eval "$(_GREENROOM_COMPLETE=bash_source greenroom)"
COMP_WORDS=(greenroom list sk) COMP_CWORD=2
_greenroom_completion greenroom
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run([bash, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("sky\n", "")


# --- Ctrl-C


@pytest.mark.greenroom(clock="real")
def test_a_long_call_that_is_interrupted_says_so_by_its_code(folder: Path) -> None:
    (folder / "long.py").write_text(
        "import asyncio, sys\nfrom greenroom import Server\nserver = Server('long')\n\n"
        "@server.tool\nasync def wait() -> str:\n    print('begun', file=sys.stderr, flush=True)\n    await asyncio.Event().wait()\n    return ''\n"
    )
    process = subprocess.Popen(
        [GREENROOM, "call", "long.py", "wait"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert (process.returncode, out, err.strip()) == (130, "", "greenroom: interrupted")
