"""check --era modern: a server that is right passes every check, and each check finds the fault that it is for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.example_counts import one_in

from greenroom.cli import raw_peer, stateless_checks, stateless_http_checks, stateless_probe
from greenroom.cli.raw_peer import CommandPeer, HttpPeer
from greenroom.cli.stateless_http_checks import CHECKS
from greenroom.cli.stateless_probe import CheckedServer, run_checks

from .stateless_fake import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.cli.stateless_probe import CheckOutcome

    from .conftest import Typed

    Type = Callable[..., Typed]

pytestmark = pytest.mark.greenroom(clock="real")

FAKE = Path(__file__).with_name("stateless_fake.py")
MODERN_ONLY = {"V9", "H7.bare", "H11.methods:status"}
"""Faults of a server without a handshake."""
FAULTS = [
    *(each.id for each in CHECKS if "http" in each.transports),
    *("M9:data", "V3.handshake:data", "F7.level:unasked", "S5:token", "S5:unasked", "L2:undeclared"),
    *("H6:session", "H7:session", "H11.methods:status", "H11.events:retry", "H11.events:priming"),
    *("P2:case", "P2:names", "P7:missing", "P7:case", "A10:resource", "A9:metadata"),
]
LINE_FAULTS = [
    *(each.id for each in CHECKS if "http" not in each.transports),
    *("S2:answer", "M9", "M14", "V9", "L5", "M1", "S5", "F7.level"),
    # Its acknowledgement belongs to no request, and is waited for in full; over HTTP the same fault is found at once.
    pytest.param("L4", marks=pytest.mark.deep),
]


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is not waited for as long as at another's server."""
    monkeypatch.setattr(raw_peer, "_ENDS_WITHIN", 0.3)
    monkeypatch.setattr(stateless_probe, "_STOPS_WITHIN", 0.4)
    monkeypatch.setattr(stateless_checks, "_EXITS_WITHIN", 1.0)
    monkeypatch.setattr(stateless_checks, "_QUIET", 0.1)
    monkeypatch.setattr(stateless_checks, "_STRAYS_WITHIN", 0.1)
    monkeypatch.setattr(stateless_http_checks, "_ENDS_WITHIN", 0.3)


async def over_http(fault: str = "", only: Sequence[str] = ()) -> list[CheckOutcome]:
    async with serving(fault, handshake=fault not in MODERN_ONLY and fault != "modern") as url:
        peers = [HttpPeer(url, {"Authorization": f"Bearer {name}"}) for name in ("one", "two")]
        server = CheckedServer(peers[0], peers[1])
        await server.discover()
        return await run_checks(CHECKS, server, only)


async def on_stdio(fault: str = "", only: Sequence[str] = ()) -> list[CheckOutcome]:
    era = ["modern"] if fault in {*MODERN_ONLY, "modern"} else []
    async with CommandPeer([sys.executable, "-S", str(FAKE), fault, *era]) as peer:
        server = CheckedServer(peer)
        await server.discover()
        return await run_checks(CHECKS, server, only)


def verdicts(outcomes: Sequence[CheckOutcome]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in outcomes:
        found.setdefault(one.verdict, set()).add(one.id)
    return found


@pytest.mark.parametrize(("era", "no_use"), [("", {"V9", "H7.bare"}), ("modern", {"V8"})])
async def test_a_server_without_fault_passes_every_check_over_http(era: str, no_use: set[str]) -> None:
    outcomes = await over_http(era)

    everything = {each.id for each in CHECKS if "http" in each.transports}
    assert verdicts(outcomes) == {"passed": everything - no_use, "not applicable": no_use}, outcomes


@pytest.mark.parametrize(("era", "no_use"), [("", {"V9"}), ("modern", set[str]())])
async def test_a_server_without_fault_passes_every_check_on_stdio(era: str, no_use: set[str]) -> None:
    found = verdicts(await on_stdio(era))

    lacking = {"V8.process"} if era else set[str]()
    everything = {each.id for each in CHECKS if "stdio" in each.transports}
    assert found.pop("absent", set[str]()) == lacking
    assert found.pop("not applicable", set[str]()) == no_use
    assert found == {"passed": everything - no_use - lacking}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_check_over_http_fails_at_a_server_with_its_fault(fault: str) -> None:
    name = fault.partition(":")[0]
    needed = [name] if name not in _WHOLE_RUN else ()
    (one,) = [each for each in await over_http(fault, needed) if each.id == name]

    assert one.verdict == ("absent" if one.level == "may" else "failed"), one
    assert one.evidence


@pytest.mark.parametrize("fault", one_in(3, LINE_FAULTS))
async def test_each_check_on_stdio_fails_at_a_server_with_its_fault(fault: str) -> None:
    name = fault.partition(":")[0]
    needed = [name] if name not in _WHOLE_RUN else ()
    (one,) = [each for each in await on_stdio(fault, needed) if each.id == name]

    assert one.verdict == ("absent" if one.level == "may" else "failed"), one


_WHOLE_RUN = {"M1", "M8", "M12", "M12.legacy", "M15", "S4"}
"""Checks of everything that was sent before."""


# --- the command


@pytest.fixture
def fake() -> list[str]:
    return ["--", sys.executable, "-S", str(FAKE)]


def test_the_command_prints_each_check_with_its_evidence_and_counts_them(typed: Type, fake: list[str]) -> None:
    seen = typed("check", "--era", "modern", "--scenario", "F1", "--scenario", "V9", *fake)

    assert (seen.code, seen.err) == (0, "")
    assert seen.out.splitlines() == [
        "not applicable  V9  A server without a handshake names its revisions in the error for initialize (should)",
        "        the server has a handshake, too",
        "passed  F1  An unknown tool is an error -32602, not a result (should)",
        "        error -32602 'no such tool'",
        "passed  F1.arguments  Wrong arguments of a tool are a result with isError (should)",
        "        a result with isError",
        "2 passed, 1 not applicable",
    ]


def test_a_failed_check_is_exit_code_1_and_in_the_json(typed: Type, fake: list[str]) -> None:
    seen = typed("check", "--era", "modern", "--json", "--scenario", "F6", *fake, "F6")
    found = json.loads(seen.out)

    assert seen.code == 1
    assert (found["revision"], found["transport"]) == ("2026-07-28", "stdio")
    assert found["checks"] == [
        {
            "id": "F6",
            "promise": "A cursor that was never given out is the error -32602",
            "level": "should",
            "verdict": "failed",
            "evidence": "tools/list with an invented cursor: a result, where the error -32602 is due",
        }
    ]


def test_what_a_server_need_not_have_is_no_failure(typed: Type, fake: list[str]) -> None:
    seen = typed("check", "--era", "modern", "--scenario", "R10.once", *fake, "R10.once")

    assert (seen.code, seen.out.splitlines()[-1]) == (0, "1 absent")


def test_a_server_of_another_era_is_named_as_such(typed: Type) -> None:
    legacy = 'import sys\nfor line in sys.stdin: print(\'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "?"}}\', flush=True)'
    seen = typed("check", "--era", "modern", "--", sys.executable, "-S", "-c", legacy)

    assert (seen.code, seen.out) == (1, "")
    assert seen.err == "greenroom: the server does not serve revision 2026-07-28: server/discover: error -32601 '?'\n"


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--era", "modern"), 2, "name a server"),
        (("--era", "modern", "http://127.0.0.1:9/mcp", "--", "echo"), 2, "not both"),
        (("--era", "modern", "http://127.0.0.1:9/mcp"), 4, "cannot be reached"),
        (("--era", "modern", "http://127.0.0.1:9/mcp", "--suite", "x"), 2, "--suite is for the official suite"),
        (("--era", "modern", "http://127.0.0.1:9/mcp", "--env", "A=b"), 2, "--env is only for a command"),
        (("--era", "modern", "http://127.0.0.1:9/mcp", "--scenario", "Z9"), 2, "there is no check Z9; there are M14, "),
        (("--era", "modern", "--header", "A: b", "--", "echo"), 2, "only for a URL"),
        (("--era", "modern", "--", "/no/such/program"), 4, "/no/such/program cannot be started: No such file"),
        (("http://127.0.0.1:9/mcp", "--header", "A: b"), 2, "for --era modern"),
        (("--", "echo"), 2, "a command behind -- is for --era modern"),
    ],
)
def test_wrong_words_are_told_what_to_type(typed: Type, words: Sequence[str], code: int, why: str) -> None:
    seen = typed("check", *words)

    assert (seen.code, seen.out) == (code, "")
    assert why in seen.err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sky", "sky is a program (AT:1): write its command behind --, and its variables with --env"),
        ("sea", "sea needs headers, a login or SSE (AT:3): write its URL, and the headers with --header"),
    ],
)
def test_a_configured_server_that_needs_more_than_a_url_is_written_out(
    typed: Type, folder: Path, name: str, why: str
) -> None:
    (folder / "greenroom.toml").write_text(
        '[server.sky]\ncommand = "uvx"\n[server.sea]\ntransport = "http"\nurl = "http://127.0.0.1:1/mcp"\nheaders = { A = "b" }\n'
    )
    seen = typed("check", "--era", "modern", name)

    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"greenroom: {why.replace('AT', str(folder / 'greenroom.toml'))}\n"
