"""tree: the choice of a running program, the drawing, and --watch."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.cli import tree_command
from greenroom.cli.tree_command import tree_lines
from greenroom.inspect_socket import inspectable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .conftest import Typed

    Type = Callable[..., Typed]


async def looking(typed: Type, names: Sequence[str], *words: str) -> Typed:
    """Run `greenroom tree` while programs with these names can be inspected; `PID` and `SOCKET` stand for those of the last one."""
    async with AsyncExitStack() as stack:
        paths = [
            await stack.enter_async_context(inspectable(name, lambda: ["http://127.0.0.1:1/mcp"])) for name in names
        ]
        meant = {"PID": str(os.getpid()), "SOCKET": str(paths[-1])}
        return await asyncio.to_thread(typed, *(meant.get(word, word) for word in words))


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("word", [None, "sky", "PID", "SOCKET"])
async def test_the_one_that_is_meant_is_drawn(typed: Type, word: str | None) -> None:
    seen = await looking(typed, ["sky"], "tree", *([] if word is None else [word]))

    assert (seen.code, seen.err) == (0, "")
    first, second, *lines = seen.out.splitlines()
    assert first.startswith(f"sky (process {os.getpid()}): ")
    assert second == "  http://127.0.0.1:1/mcp"
    assert any("InspectListener" in line for line in lines)


@pytest.mark.greenroom(clock="real")
async def test_of_several_programs_one_has_to_be_named(typed: Type) -> None:
    seen = await looking(typed, ["sea", "sky"], "tree")
    assert (seen.code, seen.out) == (2, "")
    assert f"name one of them: sea ({os.getpid()}), sky ({os.getpid()})" in seen.err
    told = json.loads((await looking(typed, ["sea", "sky"], "tree", "sea", "--json")).out)
    assert (told["name"], told["urls"]) == ("sea", ["http://127.0.0.1:1/mcp"])


@pytest.mark.greenroom(clock="real")
async def test_watch_redraws_the_tree_until_ctrl_c(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        slept: tuple[float, ...] = ()

        def sleep(self, seconds: float) -> None:
            self.slept = (*self.slept, seconds)
            if len(self.slept) == 3:
                raise KeyboardInterrupt

    time = Time()
    monkeypatch.setattr(tree_command, "time", time)

    seen = await looking(typed, ["sky"], "tree", "--watch")

    assert (seen.code, seen.err.strip()) == (130, "greenroom: interrupted")
    assert seen.out.count("sky (process ") == 3
    assert set(time.slept) == {1.0}


def test_a_process_activity_is_shown_after_its_name() -> None:
    one: dict[str, Any] = {"behaviour": "Session", "names": [], "label": "session", "waiting": 0, "bound": None}
    one |= {"calls": None, "activity": "idle", "parent": "<n.1>"}
    root = {**one, "behaviour": "Sessions", "names": ["sessions"], "pid": "<n.1>", "parent": None}

    def tree(*some: dict[str, Any]) -> Iterator[str]:
        processes = [root, *({**one, "pid": f"<n.{number}>", **each} for number, each in enumerate(some, 2))]
        seen = {"name": "x", "pid": 1, "urls": [], "lag": 0.0, "leaked": 0, "processes": processes}
        return iter([line.replace("\x1b[0m", "") for line in tree_lines(seen)])

    busy = {"activity": "running"}
    assert list(
        tree({"waiting": 3}, {"waiting": 2, "bound": 5}, {**busy, "calls": "<n.9>"}, {"activity": "dying"})
    ) == [
        "\x1b[1mx (process 1): 5 processes",
        "└─ sessions \x1b[2m<n.1>",
        "   ├─ session \x1b[2m<n.2>  3 waiting",
        "   ├─ session \x1b[2m<n.3>  2 of 5 waiting",
        "   ├─ session \x1b[2m<n.4>  \x1b[33mrunning, waits for <n.9>",
        "   └─ session \x1b[2m<n.5>  \x1b[31mdying",
    ]
    idle: list[dict[str, Any]] = [{}] * 13
    child = {"parent": "<n.2>", "behaviour": "Worker", "label": "worker"}
    assert list(tree(*idle, busy, child))[2:] == [
        "   ├─ 13 of Session\x1b[33m, 1 at work",
        "   └─ session \x1b[2m<n.2>",
        "      └─ worker \x1b[2m<n.16>",
    ]
