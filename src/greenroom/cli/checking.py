"""``greenroom check``: the official conformance suite judges a server, by the scenarios that fit any server. It needs Node 22 and npx.

The others want the suite's own tools on the server: `--scenario` runs those for whoever has written them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json as json_library
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .door import echo, styled
from .endings import FAILED, FINE, UNREACHED, Ended, Misused
from .loading import is_server_name, load_server
from .showing import as_json
from .targets import Way, connected

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

SUITE: Final = "@modelcontextprotocol/conformance@0.1.16"
NODE: Final = 22
_ANY: Final = ("server-initialize", "ping", "dns-rebinding-protection")
_OF: Final = {
    "tools": "tools-list",
    "resources": "resources-list",
    "prompts": "prompts-list",
    "logging": "logging-set-level",
}


def check(*, target: str, scenario: Sequence[str], suite: str | None, json: bool) -> int:
    """Judge it; 1 when a check has failed."""
    words = _runner(suite)
    with tempfile.TemporaryDirectory(prefix="greenroom-check-") as place, _served(target) as url:
        scenarios = list(scenario) or asyncio.run(_fitting(url))
        found = {each: _judged(words, url, each, Path(place)) for each in scenarios}
    failed = [each for checks in found.values() for each in checks if each["status"] == "FAILURE"]
    empty = [name for name, checks in found.items() if not checks]
    if json:
        as_json(found)
    else:
        for name, checks in found.items():
            wrong = [each for each in checks if each["status"] == "FAILURE"]
            passed = sum(each["status"] == "SUCCESS" for each in checks)
            verdict = (
                styled("failed", "bad") if wrong else styled("passed", "good") if checks else styled("not run", "odd")
            )
            echo(f"{verdict}  {name}  ({passed} of {len(checks)} checks)")
            for each in wrong:
                echo(f"        {each.get('description', each['name'])}: {each.get('errorMessage', '')}")
    if empty and not json:
        echo(f"{', '.join(empty)}: the suite has checked nothing; is that what its scenarios are called?", error=True)
    return FAILED if failed or empty else FINE


def _runner(suite: str | None) -> list[str]:
    """The words that run the suite. Raises `Ended` that says what is missing."""
    node = shutil.which("node")
    version = "" if node is None else _said(node)
    major = version.strip().removeprefix("v").partition(".")[0]
    if not major.isdigit() or int(major) < NODE:
        there = f"this is {version.strip()}" if version else "there is none here"
        raise Ended(UNREACHED, f"the official suite needs Node {NODE} or newer, and {there}")
    if suite is not None:
        assert node is not None
        return [node, suite]
    npx = shutil.which("npx")
    if npx is None:
        raise Ended(
            UNREACHED, "the official suite is fetched with npx, and there is none here; --suite names one that is there"
        )
    return [npx, "--yes", SUITE]


def _said(node: str) -> str:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
    return done.stdout


@contextlib.contextmanager
def _served(target: str) -> Generator[str]:
    """The URL: what was given, or of a process that serves it for as long as this takes."""
    if target.startswith(("http://", "https://")):
        yield target
        return
    if not is_server_name(target):
        raise Misused(f"{target!r} cannot be checked: give a URL, module:server or file.py")
    load_server(target)  # which says here what is wrong with it
    words = [sys.executable, "-m", "greenroom.cli", "serve", target, "--http", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:  # noqa: S603 - ourselves
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            url = line.rpartition(" ")[2].strip()
            if not url.startswith("http"):
                raise Ended(UNREACHED, f"it does not serve: {line.strip()}")
            yield url
        finally:
            process.terminate()


async def _fitting(url: str) -> list[str]:
    async with connected(Way(url, None)) as client:
        return [*_ANY, *(name for word, name in _OF.items() if word in client.server_capabilities)]


def _judged(words: Sequence[str], url: str, scenario: str, place: Path) -> list[dict[str, Any]]:
    """The checks of one scenario, from the files that the suite writes."""
    folder = place / scenario.replace("/", "-")
    folder.mkdir()
    command = [*words, "server", "--url", url, "--scenario", scenario, "--output-dir", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603 - the suite
    files = list(folder.rglob("checks.json"))
    if not files and done.returncode:
        echo((done.stderr or done.stdout).strip()[-2000:], error=True)
    return [each for file in files for each in json_library.loads(file.read_text()) if each["status"] != "INFO"]
