"""The command: `python -m tests.revision [--only NAME] [--write]`, a part of `make interop`.

`greenroom check --era modern` checks servers of four makes, as a user would. A server of greenroom must keep every promise, and the page must say what came out; `--write` writes it anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.free_ports import free_port
from tests.served_program import _wait_for

from .servers import GUARDED_CHECKS, MODULES, SERVERS, Contestant
from .table import PAGE, page

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

ENDS_WITHIN = 120
STOPS_WITHIN = 15
ENVIRONMENT = {**os.environ, "NODE_PATH": str(MODULES), "PYTHONDONTWRITEBYTECODE": "1"}
HEADERS = ("--header", "Authorization: Bearer one", "--second-header", "Authorization: Bearer two")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check them all, and print how each fared; 1 if greenroom deviates, or the page says something else."""
    parser = argparse.ArgumentParser(prog="python -m tests.revision", description="Promises of the current revision.")
    parser.add_argument("--only", metavar="NAME", default="", help="servers with NAME in their name")
    parser.add_argument("--write", action="store_true", help="write the page anew")
    options = parser.parse_args(arguments)
    servers = [server for server in SERVERS if options.only.lower() in server.name.lower()]
    found = {server: {transport: _outcomes(server, transport) for transport in ("HTTP", "stdio")} for server in servers}
    deviating = [
        f"{server.name}, {transport}: {id}: {one['evidence']}"
        for server, outcomes in found.items()
        for transport, by_id in outcomes.items()
        for id, one in by_id.items()
        if one["verdict"] == "failed" and server.name == "greenroom"
    ]
    wrong = [*deviating, *(_compared(page(found), write=options.write and not deviating) if not options.only else ())]
    print(*wrong, f"{len(servers)} servers; wrong: {len(wrong) or 'nothing'}", sep="\n")
    return 1 if wrong or not servers else 0


def _outcomes(server: Contestant, transport: str) -> dict[str, Any]:
    """The outcomes of the checks by id; over HTTP those that need credentials come from a server that asks for them."""
    began = time.monotonic()
    if transport == "stdio":
        found = _checked("--", *server.command, "stdio")
    else:
        with _served(server.command) as url:
            found = _checked(url)
        if server.guarded:
            with _served((*server.command, "guarded")) as url:
                chosen = [word for id in GUARDED_CHECKS for word in ("--scenario", id)]
                found |= _checked(url, *HEADERS, *chosen)
    verdicts = [one["verdict"] for one in found.values()]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
    print(f"{server.name:<18} {transport:<6} {time.monotonic() - began:5.1f} s  {counts}", flush=True)
    return found


def _checked(*words: str) -> dict[str, Any]:
    """What the command says about a server."""
    command = [sys.executable, "-m", "greenroom.cli", "check", "--era", "modern", "--json", *words]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=ENDS_WITHIN, check=False)
    checks = json.loads(done.stdout or "{}").get("checks")
    if not checks:
        raise SystemExit(f"{' '.join(words)}: the command ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return {one["id"]: one for one in checks}


@contextmanager
def _served(command: Sequence[str]) -> Generator[str]:
    """The URL of a server that runs for the block. However it ends, it has to end."""
    port = free_port()
    with tempfile.NamedTemporaryFile() as log:
        words = [*command, str(port)]
        server = subprocess.Popen(words, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait_for(server, port, Path(log.name))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()
            try:
                server.wait(STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _compared(text: str, *, write: bool) -> list[str]:
    if write:
        PAGE.write_text(text, encoding="utf-8")
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return []
    return [f"docs/reference/{PAGE.name} is not what came out: python -m tests.revision --write"]


if __name__ == "__main__":
    sys.exit(main())
