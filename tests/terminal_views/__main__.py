"""The command: `python -m tests.terminal_views`, a part of `make terminal`: `greenroom top` in tmux, of 80 columns and 24 lines, with and without colours.

A tool crashes, a server behind the program is killed and comes back, an act is confirmed, the program itself is killed and started again, and quitting gives the
terminal back as it was. Each step waits for what the screen has to show.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.first_use.shells import Tmux, installed
from tests.free_ports import free_port

from greenroom import Client, PeerError, ToolError

from .watched_program import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.first_use.shells import Window

ROOT: Final = Path(__file__).parents[2]
WITHIN: Final = 20.0
SIZE: Final = (24, 80)
VIEWS: Final = {
    "2": "PROCESS",
    "3": "calls in flight",
    "4": "REF CRASH",
    "5": "evicted so far",
    "6": "UPSTREAM",
    "7": "MINUTES",
    "8": "POOL",
    "9": "TASK",
    "0": "QUESTION",
    "-": "LOOP",
    "1": "WHAT HAPPENED LAST",
}
"""The keys of the views, and what each has to show."""


class NotShownError(Exception):
    """The screen does not show what it has to."""


class Screen:
    """The screen of a window, and its keys."""

    def __init__(self, window: Window) -> None:
        self.window = window

    def until(self, there: Callable[[str], object], what: str) -> str:
        """Wait until the screen shows something; `what` says it in an error."""
        deadline = time.monotonic() + WITHIN
        while not there(shown := self.window.whole):
            if time.monotonic() > deadline:
                raise NotShownError(f"{what} is not shown:\n{shown}")
            self.window.look(0.1)
        return shown

    def see(self, text: str) -> str:
        """Wait for a text."""
        return self.until(lambda shown: text in shown, repr(text))

    def prompt(self) -> str:
        """Wait for the shell's prompt as the last line."""
        return self.until(lambda shown: shown.rstrip().endswith("$"), "the shell")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self.window.press(*keys)

    def command(self, text: str) -> None:
        """Type a command on a clear screen."""
        self.window.type(f"clear; {text}\n")


@contextlib.contextmanager
def program(port: int, home: Path) -> Generator[subprocess.Popen[bytes]]:
    """The watched program, which is ended by its pid."""
    command = [sys.executable, "-m", "tests.terminal_views.watched_program", str(port)]
    log = home / "program.log"
    with log.open("ab") as out:
        running = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "XDG_RUNTIME_DIR": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        while not list((home / "greenroom").glob(f"{running.pid}-{NAME}.sock")):
            if running.poll() is not None:
                raise NotShownError(f"the program ended with {running.returncode}: {log.read_text()}")
            time.sleep(0.05)  # another process: there is no event to await
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        running.wait(30)


def views(screen: Screen) -> None:
    """Each view is shown, and no line is wider than the screen."""
    for key, text in VIEWS.items():
        screen.press(key)
        shown = screen.see(text)
        if wide := [line for line in shown.split("\n") if len(line) > SIZE[1]]:
            raise NotShownError(f"a line is wider than the screen: {wide[0]}")


async def a_call(screen: Screen, client: Client) -> None:
    """A call is seen in flight, opened, and seen to be cancelled."""
    waiting = asyncio.ensure_future(client.call("wait"))
    screen.press("3", "/", *"wait", "Enter")
    await asyncio.to_thread(screen.until, partial(_has_line, re.compile(r"(?m)^ *\S+ m?s wait ")), "the call")
    screen.press("Enter")
    await asyncio.to_thread(screen.see, "tools/call wait: in flight")
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.to_thread(screen.see, "tools/call wait: cancelled")
    screen.press("Escape")


async def a_crash(screen: Screen, client: Client) -> None:
    """A tool ends its process, and the screen shows it."""
    with contextlib.suppress(ToolError, PeerError):
        await client.call("crash")
    screen.press("4")
    await asyncio.to_thread(screen.until, lambda shown: re.search(r"crash .* 1 .* 1 ", shown), "the crashed tool")
    screen.press("1")
    await asyncio.to_thread(screen.see, "1 failed")


def an_upstream(screen: Screen) -> None:
    """A server is killed and comes back as another process; an act is refused and confirmed."""
    screen.press("6")
    pid = _upstream_process(screen.until(_upstream_process, "the upstream"))
    os.kill(int(pid), signal.SIGKILL)
    screen.until(lambda shown: _upstream_process(shown) not in ("", pid), "the upstream's next process")
    for answer, state in (("n", "ready"), ("y", "parked")):
        screen.press("a")
        shown = screen.see("park")
        found = re.search(r"(\d)  park", shown)
        if found is not None:
            screen.press(found[1])
        screen.see("y  do it")
        screen.press(answer)
        pattern = re.compile(rf"(?m)^up +{state}")
        screen.until(partial(_is_answered, pattern), f"up, {state}")


def _has_line(pattern: re.Pattern[str], shown: str) -> bool:
    return pattern.search(shown) is not None and "filter: wait" in shown


def _is_answered(pattern: re.Pattern[str], shown: str) -> bool:
    return pattern.search(shown) is not None and "do it" not in shown


def _is_printed(text: str, shown: str) -> bool:
    return text in shown and shown.rstrip().endswith("\ndone\n$")


def _upstream_process(shown: str) -> str:
    line = next((each for each in shown.split("\n") if re.match(r"up +ready", each)), "")
    numbers = [each for each in line.split() if each.isdigit() and int(each) > 100]
    return numbers[0] if numbers else ""


def the_tree(screen: Screen) -> None:
    """The tree is filtered, and a process opened."""
    screen.press("2", "/", *"session")
    screen.see("filter: session")
    screen.press("Escape")
    screen.until(lambda shown: "filter: session" not in shown, "the whole tree")
    screen.press("Enter")
    screen.see("restarts, age")
    screen.press("Escape")


def the_terminal(screen: Screen) -> None:
    """Quitting gives the terminal back as it was, and a terminal without colours shows the same."""
    screen.press("q")
    screen.prompt()
    screen.command("stty -a > after; cmp before after && echo as it was")
    screen.until(lambda shown: shown.startswith("as it was"), "the terminal as it was")
    screen.command("NO_COLOR=1 TERM=vt100 greenroom top")
    screen.see(f"{NAME} (process ")
    screen.press("2")
    screen.see("▸tree")
    screen.press("q")
    screen.prompt()


async def commands(screen: Screen, url: str) -> None:
    """The commands that write lines."""
    async with Client(url) as client:
        with contextlib.suppress(ToolError, PeerError):
            await client.call("crash")
        await client.call("up__behind")
    for command, text in (
        ("status", "UPSTREAM"),
        ("calls --failed --no-follow", "crash"),
        ("logs --level warning --no-follow", "PoolWorkerEnded"),
        ("park up", "up"),
        ("status", "parked"),
        ("retry up", "up"),
    ):
        screen.command("true")
        await asyncio.to_thread(screen.until, lambda shown: shown.rstrip() == "$", "an empty screen")
        screen.command(f"greenroom {command}; echo done")
        await asyncio.to_thread(screen.until, partial(_is_printed, text), f"{text!r} of {command}")


def judge(screen: Screen, port: int, home: Path, tell: Callable[[str], object]) -> None:
    """Each step, in the order of the page "watch from a terminal"."""
    url = f"http://127.0.0.1:{port}/mcp"

    async def calls() -> None:
        async with Client(url) as client:
            await client.call("add", a=1, b=2)
            await client.call("up__behind")
            await a_call(screen, client)
            tell(f"{a_call.__doc__}")
            await a_crash(screen, client)
            tell(f"{a_crash.__doc__}")

    with program(port, home):
        screen.prompt()
        screen.command("stty -a > before; greenroom top")
        screen.see(f"{NAME} (process ")
        views(screen)
        tell(f"{views.__doc__}")
        asyncio.run(calls())
        for step in (an_upstream, the_tree):
            step(screen)
            tell(f"{step.__doc__}")
    screen.see("waiting for it")
    with program(port, home) as again:
        screen.see(f"{NAME} (process {again.pid})")
        tell("The program is started again, and the screen shows it.")
        the_terminal(screen)
        tell(f"{the_terminal.__doc__}")
        asyncio.run(commands(screen, url))
        tell(f"{commands.__doc__}")


def main() -> int:
    """Exit code 1 if a step fails."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        variables = {**installed(home), "XDG_RUNTIME_DIR": str(home), "TERM": "xterm-256color"}
        try:
            with Tmux(home, variables, SIZE) as tmux:
                judge(Screen(tmux("top")), free_port(), home, _tell)
        except (NotShownError, FileNotFoundError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
