"""Terminals with a shell, on a pty or in a tmux window, for the steps of a page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.pty_terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

SIZE: Final = (1000, 1000)
"""Enough lines and columns that nothing is wrapped or scrolls away."""
ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = ("COV_", "COVERAGE_", "GIT_CONFIG_", "GIT_SSL_", "PIP_", "SSL_")
_ADDRESS: Final = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60).read()"


def environment(home: Path) -> dict[str, str]:
    """A beginner's environment: a home, a shell, and a browser that follows every URL; in addition, the package index and coverage settings."""
    browser = home / ".browser"
    browser.write_text(f"#!{sys.executable}\n{_ADDRESS}\n", encoding="utf-8")
    browser.chmod(0o755)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_KEPT) or name.endswith(("_proxy", "_PROXY"))
    }
    return kept | {
        "BROWSER": f"{browser} %s",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": os.environ["PATH"],
        "PS1": "$ ",
        "TERM": "xterm",
        "VIRTUAL_ENV_DISABLE_PROMPT": "1",
    }


def installed(home: Path) -> dict[str, str]:
    """The same environment with the command line of the running tests, so that no clone is needed."""
    whole = environment(home)
    return whole | {"PATH": os.pathsep.join((str(Path(sys.executable).parent), whole["PATH"]))}


class Ptys:
    """Terminals on ptys."""

    def __init__(self, home: Path) -> None:
        """Terminals are created on demand."""
        self._home = home
        self._open: dict[str, Terminal] = {}

    def __call__(self, name: str) -> Terminal:
        if name not in self._open:
            self._open[name] = Terminal(["sh", "-i"], self._home, installed(self._home), SIZE)
        return self._open[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._open.values():
            each.close()


class Window:
    """A window of tmux."""

    def __init__(self, tmux: Tmux, name: str) -> None:
        """The window exists already."""
        self._tmux = tmux
        self._name = name
        self._seen = ""

    def type(self, text: str) -> None:
        """Press these keys."""
        if text == "\x03":
            self._tmux.say("send-keys", "-t", self._name, "C-c")
            return
        self._tmux.say("send-keys", "-t", self._name, "-l", text.removesuffix("\n"))
        self._tmux.say("send-keys", "-t", self._name, "Enter")

    def look(self, seconds: float) -> bool:
        """Wait for new output by polling: tmux offers no event to wait for."""
        deadline = time.monotonic() + seconds
        before = self._seen
        while (now := self.screen) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        return now != before

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._tmux.say("send-keys", "-t", self._name, *keys)

    @property
    def whole(self) -> str:
        """The text of the whole screen, also of a program that draws on all of it."""
        return self._tmux.say("capture-pane", "-p", "-t", self._name)

    @property
    def screen(self) -> str:
        """The text up to the cursor."""
        row = int(self._tmux.say("display-message", "-p", "-t", self._name, "#{cursor_y}"))
        lines = self._tmux.say("capture-pane", "-p", "-t", self._name).split("\n")
        self._seen = "\n".join(line.rstrip() for line in [*lines, *[""] * (row + 1)][: row + 1])
        return self._seen


class Tmux:
    """A tmux server with a unique name."""

    def __init__(self, home: Path, variables: Mapping[str, str], size: tuple[int, int] = SIZE) -> None:
        """Start tmux with the first window; `size` is its lines and columns. Raises `FileNotFoundError`."""
        found = shutil.which("tmux")
        if found is None:
            raise FileNotFoundError("there is no tmux here: apt-get install tmux")
        self._home = home
        self._size = size
        self._program = found
        self._environment = {**variables, "TMUX_TMPDIR": str(home)}
        self._windows: dict[str, Window] = {}

    def say(self, *words: str) -> str:
        """Run a tmux command."""
        done = subprocess.run(
            [self._program, "-u", "-f", "/dev/null", "-L", "first-use", *words],
            cwd=self._home,
            env=self._environment,
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        return done.stdout.removesuffix("\n")

    def __call__(self, name: str) -> Window:
        called = name or "first"
        if called not in self._windows:
            if self._windows:
                self.say("new-window", "-d", "-n", called, "sh", "-i")
            else:
                lines, columns = map(str, self._size)
                self.say("new-session", "-d", "-s", "first-use", "-n", called, "-x", columns, "-y", lines, "sh", "-i")
                self.say("set-option", "-g", "allow-rename", "off")
            self._windows[called] = Window(self, called)
        return self._windows[called]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._windows:
            self.say("kill-server")
