"""The grid believes no server: what it declares and does not do, does and does not declare, and leaves behind, all of that makes a row wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Context, Server

from . import page, stage
from .grid import BOTH_ERAS, STEPS, Mark, Outcome, Row, play
from .playhouse import OURS
from .rows import ROWS, TOGETHER
from .scene import Scene, WrongError, same

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from .grid import Opener, Step


def small() -> Server:
    """One tool, which may say how far it is, and ask."""
    server = Server("small")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 1)
        return f"{len(await ctx.roots())}"

    return server


def opening(server: Server) -> Opener:
    @asynccontextmanager
    async def opened(_folder: Path) -> AsyncGenerator[Any]:
        yield server

    return opened


async def right(scene: Scene) -> None:
    await scene.client.ping()


async def wrong(scene: Scene) -> None:
    same("a value", 1, 2)


async def works(scene: Scene) -> None:
    same("what it says", await scene.client.call("work"), "1")


STEPS_OF_IT: Mapping[str, Step] = {
    "list": right,
    "call": works,
    "failure": right,
    "cancel": right,
    "changes": right,
}


def fails(_folder: Path) -> None:
    raise OSError("no room")


async def played(folder: Path, steps: Mapping[str, Step], **more: Any) -> Outcome:
    given: dict[str, Any] = {"speaks": BOTH_ERAS, **more}
    return await play(Row("small", "memory", opening(small()), steps, **given), folder)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_row_is_right_when_all_that_is_declared_and_done_has_its_step(tmp_path: Path, mode: str) -> None:
    steps = {**STEPS_OF_IT, "logging": right, "progress": right, "roots": right}
    outcome = await played(tmp_path, steps, mode=mode)
    assert outcome.wrong == {}
    assert outcome.marks == {
        name: Mark.RIGHT if name in {*steps, "open", "revisions", "close"} else Mark.NOT_DECLARED for name in STEPS
    }
    assert str(outcome).endswith("right")


NO: dict[str, Any] = {}
CASES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"call": wrong}, NO, "call", "WrongError: a value: got 1, not 2"),
    ({"call": None}, NO, "call", "the server declares it, and there is no step for it"),
    ({"prompt": right}, NO, "prompt", "there is a step for it, and the server does not declare it"),
    ({"progress": None}, NO, "progress", "it is said to be n/a, and happened"),
    ({"roots": None}, NO, "roots", "it is said to be n/a, and happened"),
    ({"sampling": right}, NO, "sampling", "it is said to be yes, and happened 0 times"),
    (NO, {"never": {"roots": "it does not"}}, "roots", "it is said to be never, and happened"),
    (NO, {"never": {"prompt": "it does not"}}, "prompt", "it does not even declare it"),
    ({"changes": wrong}, {"never": {"changes": "it does not"}}, "changes", "WrongError: a value: got 1, not 2"),
    (NO, {"prepare": fails}, "open", "no room"),
    (NO, {"speaks": ("2025-11-25",)}, "open", "the revision: got '2026-07-28', not '2025-11-25'"),
]


@pytest.mark.parametrize(("change", "more", "step", "complaint"), CASES)
async def test_a_row_is_wrong(
    tmp_path: Path, change: dict[str, Any], more: dict[str, Any], step: str, complaint: str
) -> None:
    steps = {**STEPS_OF_IT, "logging": right, "progress": right, "roots": right, **change}
    outcome = await played(tmp_path, {name: each for name, each in steps.items() if each is not None}, **more)
    assert complaint in outcome.wrong[step]
    assert outcome.marks[step] is Mark.WRONG
    assert "WRONG" in str(outcome)


async def test_a_program_that_its_server_leaves_behind_is_found_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "GONE_WITHIN", 0.1)
    word = str(tmp_path)
    quiet = subprocess.Popen(  # noqa: ASYNC220 - no task is to own it
        [sys.executable, "-c", "input()"], env={stage.WORD: word}, stdin=subprocess.PIPE
    )
    try:
        with pytest.raises(WrongError, match="1 of its programs were still there"):
            await stage.gone(word)
        assert quiet.wait(10) == -9
        assert stage.living(word) == []
    finally:
        quiet.communicate()


async def test_a_program_started_by_a_client_carries_the_marker(tmp_path: Path, root: Path) -> None:
    server = root / "tests" / "interop" / "server.py"
    async with stage.on_stdio(sys.executable, str(server), "stdio", "pids")(tmp_path) as target, Client(target):
        alive = stage.living(str(tmp_path))
        assert int((tmp_path / "pids").read_text()) in alive
    assert stage.living(str(tmp_path)) == []


async def test_a_server_at_a_port_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    opened = stage.on_http(sys.executable, "-c", "exit('no room')")
    with pytest.raises(WrongError, match="the server was not there: no room"):
        async with opened(tmp_path):
            await asyncio.Event().wait()


def test_every_server_is_called_over_every_transport_that_it_speaks() -> None:
    found: dict[str, set[str]] = {}
    for row in ROWS:
        found.setdefault(row.server.partition(" ")[0], set()).add(row.transport)
    web = {"stdio", "Streamable HTTP", "HTTP+SSE"}
    both = {"stdio, legacy", "Streamable HTTP, legacy", "JSON, no sessions, legacy"}
    programs = ("server-filesystem", "server-memory", "mcp-server-time", "mcp-server-git", "mcp-server-fetch")
    assert found == {
        "server-everything": web,
        **{program: {"stdio"} for program in programs},
        "mcp": {*web, "JSON, no sessions", *both},
        "FastMCP": {*web, "JSON, no sessions", *both},
        "TypeScript": {"stdio", "Streamable HTTP", "stdio, legacy"},
        "greenroom": {
            *web,
            "memory",
            "plain JSON",
            "stdio, legacy",
            "Streamable HTTP, legacy",
            "memory, legacy",
            "plain JSON, legacy",
        },
    }
    assert set(STEPS) - set(OURS) == {"open", "revisions", "close"}
    assert all(row.mode in {"auto", "legacy"} and row.revision in row.speaks for row in ROWS)
    assert {row.server for row in ROWS if row.name in TOGETHER} == {row.server for row in ROWS}


def test_the_page_has_every_server_step_and_reason() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert set(page.WHAT) == set(STEPS)
    assert "WRONG" not in text
    for row in ROWS:
        assert f"| {row.server} | {row.transport} | {row.revision} |" in text
        for why in (*row.never.values(), *row.differs.values()):
            assert f"| {why} |" in text


def test_the_page_names_the_locked_versions(root: Path) -> None:
    locked = root.joinpath("requirements/referees/servers.txt").read_text(encoding="utf-8")
    package = root.joinpath("requirements/referees/node/package.json").read_text(encoding="utf-8")
    for server in {row.server for row in ROWS}:
        name, _, version = server.partition(" ")
        if name.startswith("mcp-server"):
            assert f"\n{name}=={version} " in f"\n{locked}"
        elif name.startswith("server-"):
            assert f'"@modelcontextprotocol/{name}": "{version}"' in package
