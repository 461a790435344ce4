"""``greenroom check``: tests any server.

For the handshake revisions it runs the official conformance suite, with the scenarios that fit any server, which needs Node 22 and npx; the other
scenarios expect the suite's own tools on the server, and `--scenario` runs them. With `--era modern` it makes the checks of `stateless_checks` and
`stateless_http_checks`, which need nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json as json_library
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from concurrent.futures import Future
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from greenroom.protocol.dialect import STATELESS_DIALECT

from .click_app import echo, styled
from .command_output import print_json
from .exit_codes import FAILED, OK, UNREACHABLE, CommandFailed, UsageError, visible
from .server_loader import TargetOptions, is_server_name, is_url, parse_pairs
from .target_client import connected

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from .stateless_probe import CheckOutcome

SUITE: Final = "@modelcontextprotocol/conformance@0.1.16"
NODE: Final = 22
_STARTS_WITHIN: Final = 60.0
_ENDS_WITHIN: Final = 300.0
_STOPS_WITHIN: Final = 10.0
_KEPT_LINES: Final = 50
"""The last lines of the server's output that are kept for an error message."""
_FOR_ANY_SERVER: Final = ("server-initialize", "ping", "dns-rebinding-protection")
_BY_CAPABILITY: Final = {
    "tools": "tools-list",
    "resources": "resources-list",
    "prompts": "prompts-list",
    "logging": "logging-set-level",
}


def check(  # noqa: PLR0913 - the options of the command
    *,
    target: str | None,
    era: str,
    scenario: Sequence[str],
    suite: str | None,
    header: Sequence[str],
    second_header: Sequence[str],
    env: Sequence[str],
    config: Path | None,
    json: bool,
    command: Sequence[str] | None,
) -> int:
    """Check the server; exit code 1 if a check failed."""
    where = TargetOptions(target, command, header=header, env=env, config=config)
    _require_one_target(where)
    if era == "modern":
        if suite is not None:
            raise UsageError("--suite is for the official suite, which --era modern does not run")
        return asyncio.run(_check_stateless(where, scenario, second_header, json=json))
    if command is not None:
        raise UsageError(
            "a command behind -- is for --era modern: the official suite speaks HTTP only, and a bridge in between would be tested instead; "
            "serve it over HTTP, and check the URL"
        )
    if header or second_header or env:
        raise UsageError(
            "--header, --second-header and --env are for --era modern: the official suite sends no headers"
        )
    assert target is not None
    return _check_by_suite(target, scenario, suite, config, json=json)


def _require_one_target(where: TargetOptions) -> None:
    if where.target is None and not where.command:
        raise UsageError("name a server: a URL, a name in your configuration, module:server, or a command behind --")
    if where.target is not None and where.command is not None:
        raise UsageError(f"give either {where.target} or a command behind --, not both")


# --- Revision 2026-07-28, by requests of our own.

_STYLES: Final = {"passed": "good", "failed": "bad", "absent": "odd", "not applicable": "dim"}


async def _check_stateless(
    where: TargetOptions, only: Sequence[str], second_header: Sequence[str], *, json: bool
) -> int:
    from .raw_peer import CommandPeer, HttpPeer, PeerFailed  # noqa: PLC0415 - the suite needs none of it
    from .stateless_http_checks import CHECKS  # noqa: PLC0415 - as above
    from .stateless_probe import CheckedServer, Deviation, run_checks  # noqa: PLC0415 - as above

    if unknown := [each for each in only if not any(each in (one.id, one.row) for one in CHECKS)]:
        raise UsageError(f"there is no check {', '.join(unknown)}; there are {', '.join(one.id for one in CHECKS)}")
    headers, others = parse_pairs("--header", where.header), parse_pairs("--second-header", second_header)
    env = parse_pairs("--env", where.env)
    async with contextlib.AsyncExitStack() as opened:
        try:
            if where.command is not None:
                if headers or others:
                    raise UsageError("--header and --second-header are only for a URL")
                server = CheckedServer(await opened.enter_async_context(CommandPeer(where.command, env)))
            else:
                if env:
                    raise UsageError("--env is only for a command")
                url = opened.enter_context(_target_url(str(where.target), where.config, by_suite=False))
                server = CheckedServer(HttpPeer(url, headers), HttpPeer(url, others) if others else None)
            await server.discover()
        except PeerFailed as failure:
            raise CommandFailed(UNREACHABLE, str(failure)) from None
        except Deviation as deviation:
            raise CommandFailed(
                FAILED, f"the server does not serve revision {STATELESS_DIALECT.version}: {deviation}"
            ) from None
        outcomes = await run_checks(CHECKS, server, only, None if json else _print_outcome)
    if json:
        print_json(
            {
                "revision": STATELESS_DIALECT.version,
                "transport": server.peer.transport,
                "checks": [one._asdict() for one in outcomes],
            }
        )
    else:
        counted = Counter[str](one.verdict for one in outcomes)
        echo(", ".join(f"{counted[verdict]} {verdict}" for verdict in _STYLES if counted[verdict]))
    return FAILED if any(one.verdict == "failed" for one in outcomes) else OK


def _print_outcome(one: CheckOutcome) -> None:
    echo(f"{styled(one.verdict, _STYLES[one.verdict])}  {one.id}  {one.promise} ({one.level})")
    echo(f"        {visible(one.evidence)}")


# --- Handshake revisions, by the official suite.


def _check_by_suite(target: str, scenario: Sequence[str], suite: str | None, config: Path | None, *, json: bool) -> int:
    words = _suite_command(suite)
    with (
        tempfile.TemporaryDirectory(prefix="greenroom-check-") as place,
        _target_url(target, config, by_suite=True) as url,
    ):
        scenarios = list(scenario) or asyncio.run(_fitting_scenarios(url))
        found = {each: _run_scenario(words, url, each, Path(place)) for each in scenarios}
    failed = [each for checks in found.values() for each in checks if each["status"] == "FAILURE"]
    empty = [name for name, checks in found.items() if not checks]
    if json:
        print_json(found)
    else:
        for name, checks in found.items():
            wrong = [each for each in checks if each["status"] == "FAILURE"]
            passed = sum(each["status"] == "SUCCESS" for each in checks)
            verdict = (
                styled("failed", "bad") if wrong else styled("passed", "good") if checks else styled("not run", "odd")
            )
            echo(f"{verdict}  {name}  ({passed} of {len(checks)} checks)")
            for each in wrong:
                why = visible(f"{each.get('description', each['name'])}: {each.get('errorMessage', '')}")
                echo(f"        {why}")
    if empty and not json:
        echo(f"{', '.join(empty)}: the suite ran no checks; is the name of the scenario right?", error=True)
    return FAILED if failed or empty else OK


def _suite_command(suite: str | None) -> list[str]:
    """The command that runs the suite. Raises `CommandFailed` if Node or npx is missing."""
    node = shutil.which("node")
    version = "" if node is None else _node_version(node)
    major = version.strip().removeprefix("v").partition(".")[0]
    if not major.isdigit() or int(major) < NODE:
        present = f"this is {version.strip()}" if version else "Node is not installed"
        raise CommandFailed(UNREACHABLE, f"the official suite needs Node {NODE} or newer, and {present}")
    if suite is not None:
        assert node is not None
        if not Path(suite).exists():
            raise UsageError(f"--suite: the file {suite} does not exist")
        return [node, suite]
    npx = shutil.which("npx")
    if npx is None:
        raise CommandFailed(
            UNREACHABLE,
            "npx is not installed, and fetches the official suite; pass the path of an installed suite with --suite",
        )
    return [npx, "--yes", SUITE]


def _node_version(node: str) -> str:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=_STARTS_WITHIN)  # noqa: S603 - the user's own
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


@contextlib.contextmanager
def _target_url(target: str, config: Path | None, *, by_suite: bool) -> Generator[str]:
    """The URL of the target; for Python code, of a process that serves it while the block runs."""
    if is_url(target):
        yield target
    elif is_server_name(target):
        with _served_url(target) as url:
            yield url
    else:
        yield _configured_url(target, config, by_suite=by_suite)


def _configured_url(name: str, config: Path | None, *, by_suite: bool) -> str:
    """The URL of a configured server. Raises `UsageError` if the suite, or a check by hand-written requests, cannot use it."""
    from greenroom.config.config_reader import server_named  # noqa: PLC0415 - only for names

    server = server_named(name, config)
    if server.url is None:
        raise UsageError(
            f"{name} is a program ({server.source}), and the suite speaks HTTP only: a bridge in between would be tested instead; "
            "serve it over HTTP, and check the URL"
            if by_suite
            else f"{name} is a program ({server.source}): write its command behind --, and its variables with --env"
        )
    if server.headers or server.oauth != "off" or server.transport == "sse":
        raise UsageError(
            f"{name} needs headers, a login or SSE ({server.source}), which the suite does not support: check a server without them"
            if by_suite
            else f"{name} needs headers, a login or SSE ({server.source}): write its URL, and the headers with --header"
        )
    return server.url


@contextlib.contextmanager
def _served_url(target: str) -> Generator[str]:
    """Serve the target in a child process, which the suite cannot harm, and give its URL.

    A thread reads the process's output all the time, because a full pipe would block the server.
    """
    words = [sys.executable, "-P", "-m", "greenroom.cli", "serve", target, "--http", "0"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - this program
    assert process.stdout is not None
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    url: Future[str] = Future()
    hearing = threading.Thread(target=_read_output, args=(process.stdout, lines, url), daemon=True)
    hearing.start()
    try:
        yield _reported_url(process, lines, url)
    finally:
        process.terminate()
        try:
            process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        hearing.join()
        process.stdout.close()


def _read_output(stream: IO[str], lines: deque[str], url: Future[str]) -> None:
    """Read the server's output to its end: keep the last lines, and set `url` to the URL that it reports, or to "" if it reports none."""
    for line in stream:
        lines.append(line.rstrip())
        before, found, named = line.strip().rpartition(" serves on ")
        if found and before.startswith("greenroom: ") and not url.done():
            url.set_result(named)
    if not url.done():
        url.set_result("")


def _reported_url(process: subprocess.Popen[str], lines: deque[str], url: Future[str]) -> str:
    try:
        if found := url.result(_STARTS_WITHIN):
            return found
    except TimeoutError:
        raise CommandFailed(UNREACHABLE, f"the server does not start within {_STARTS_WITHIN:g} seconds") from None
    code = process.wait(_STOPS_WITHIN)
    for line in list(lines)[:-1]:
        echo(visible(line, lines=True), error=True)
    last = lines[-1] if lines else f"the server has ended with {code}, without an error message"
    raise CommandFailed(code if code > 0 else FAILED, last.removeprefix("greenroom: "))


async def _fitting_scenarios(url: str) -> list[str]:
    async with connected(TargetOptions(url, None, era="legacy")) as client:
        return [
            *_FOR_ANY_SERVER,
            *(name for word, name in _BY_CAPABILITY.items() if word in client.server_capabilities),
        ]


def _run_scenario(words: Sequence[str], url: str, scenario: str, place: Path) -> list[dict[str, Any]]:
    """Run one scenario and read its checks from the files that the suite writes."""
    folder = place / scenario.replace("/", "-")
    folder.mkdir()
    command = [*words, "server", "--url", url, "--scenario", scenario, "--output-dir", str(folder)]
    # A new session, because npx starts further processes: killing only npx would leave them running.
    running = subprocess.Popen(  # noqa: S603 - the suite
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        _kill_group(running)
        return [
            _failure(scenario, "the suite comes to an end", f"the suite did not end within {_ENDS_WITHIN:g} seconds")
        ]
    except BaseException:
        _kill_group(running)
        raise
    files = list(folder.rglob("checks.json"))
    if not files and running.returncode:
        echo(visible(output.strip()[-2000:], lines=True), error=True)
    try:
        found = [each for file in files for each in json_library.loads(file.read_text(encoding="utf-8"))]
        return [each for each in found if each["status"] != "INFO"]
    except (ValueError, TypeError, KeyError) as error:
        return [_failure(scenario, "the suite writes its result", f"the result cannot be read: {error!r}")]


def _kill_group(running: subprocess.Popen[str]) -> None:
    """Kill the process and the processes that it has started."""
    if hasattr(os, "killpg"):
        os.killpg(running.pid, signal.SIGKILL)
    else:
        running.kill()
    running.communicate()


def _failure(name: str, what: str, why: str) -> dict[str, Any]:
    return {"name": name, "description": what, "status": "FAILURE", "errorMessage": why}
