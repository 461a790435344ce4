"""The command: `python -m tests.browser [--write]`, which is `make browser`.

Debian's Chromium looks at each page of the observer of a real program, in which tools, upstreams and a process die. `browse.cjs` says what it does; here the program and
the browser are started, what was found is told, and both are ended by their pids. With `--write` the pictures of the documentation are made anew.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from PIL import Image
from tests.inspector.questions import MODULES, NODE

from .looked_at import MARK

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

HERE: Final = Path(__file__).parent
PICTURES: Final = HERE.parents[1] / "docs" / "pictures"
LARGEST_PICTURE: Final = 150_000
"""Bytes of a picture: the documentation loads each of them."""
EXPECTED: Final = 26
"""How many things the browser finds out: a run that ends early proves nothing."""
STEPS: Final = 400
"""How often Tab is pressed on a page at most."""
STARTS_WITHIN: Final = 30.0
STOPS_WITHIN: Final = 15.0
RUNS_FOR: Final = 240.0
"""Seconds that the browser has on a busy machine; alone it takes a quarter of that."""
_COLOURS: Final = 256
_LINK: Final = re.compile(r"http://127\.0\.0\.1:\d+/observe/\?token=\S+")


class BrowserFailedError(Exception):
    """The program or the browser did not do what the run needs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the browser; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="make the pictures of the documentation anew")
    given = parser.parse_args(arguments)
    chromium = shutil.which("chromium")
    if chromium is None:
        raise BrowserFailedError("there is no chromium: apt-get install chromium")
    begun = time.monotonic()
    if given.write:
        PICTURES.mkdir(exist_ok=True)
    with _looked_at() as link:
        options = {
            "chromium": chromium,
            "link": link,
            "mark": MARK,
            "modules": str(MODULES),
            "pictures": str(PICTURES) if given.write else "",
            "root": str(PICTURES.parents[1]),
            "steps": STEPS,
        }
        command = [NODE, str(HERE / "browse.cjs"), json.dumps(options)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as browser:
            assert browser.stdout is not None
            try:
                found, wrong = _told(_lines(browser.stdout))
            finally:
                if browser.poll() is None:
                    browser.terminate()
    if given.write:
        wrong += _made_small()
    if found < EXPECTED:
        wrong.append(f"only {found} of {EXPECTED} things were looked at")
    _say(f"browser: {found} things looked at in {time.monotonic() - begun:.0f} s, {len(wrong)} wrong")
    return int(bool(wrong))


def _told(lines: Generator[str]) -> tuple[int, list[str]]:
    """What the browser has found out: how much, and what is wrong."""
    found, wrong = 0, list[str]()
    for line in lines:
        told = json.loads(line)
        found += 1
        _say(f"{'wrong' if told['wrong'] else 'well '} {told['what']}")
        for each in told["wrong"]:
            _say(f"      {each}")
            wrong.append(each)
    return found, wrong


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _lines(stream: IO[str]) -> Generator[str]:
    """The lines of a stream until it ends. Raises `BrowserFailedError` when that takes too long."""
    told: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            told.put(line)
        told.put(None)

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + RUNS_FOR
    while True:
        try:
            line = told.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise BrowserFailedError(f"it took longer than {RUNS_FOR:g} s") from None
        if line is None:
            return
        yield line


@contextmanager
def _looked_at() -> Generator[str]:
    """The link to the observer of a running program."""
    command = [sys.executable, "-m", "tests.browser.looked_at"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        said: queue.Queue[str] = queue.Queue()
        errors = program.stderr

        def read() -> None:
            for line in errors:
                said.put(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield _link(said)
            if program.poll() is not None:
                raise BrowserFailedError(f"the program ended by itself with {program.returncode}")
            program.terminate()
            if (code := program.wait(STOPS_WITHIN)) != 0:
                raise BrowserFailedError(f"the program ended with {code} after SIGTERM")
        finally:
            if program.poll() is None:
                program.kill()
            reader.join(STOPS_WITHIN)
            if errors_said := "".join(said.get() for _ in range(said.qsize())):
                _say(f"the program said: {errors_said[-4000:]}")


def _link(said: queue.Queue[str]) -> str:
    deadline = time.monotonic() + STARTS_WITHIN
    lines: list[str] = []
    while True:
        try:
            lines.append(said.get(timeout=max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            raise BrowserFailedError(f"the program printed no link; it said: {''.join(lines)[-2000:]}") from None
        if found := _LINK.search(lines[-1]):
            return found.group()


def _made_small() -> list[str]:
    """Give each picture a palette, which its few colours fit into; those that are too large all the same."""
    wrong: list[str] = []
    for path in sorted(PICTURES.glob("observe-*.png")):
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(
                _COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE
            )
        small.save(path, optimize=True)
        if (size := path.stat().st_size) > LARGEST_PICTURE:
            wrong.append(f"{path.name} has {size} bytes")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
