"""The page of promises says what came out at each server, and nothing that changes from run to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.cli.stateless_http_checks import CHECKS

from .servers import SERVERS, Contestant
from .table import PAGE, page, stable

if TYPE_CHECKING:
    from collections.abc import Mapping


def outcome(verdict: str, evidence: str = "seen", level: str = "must") -> dict[str, Any]:
    return {"level": level, "promise": "a|b", "verdict": verdict, "evidence": evidence}


def rows(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start}")]


def written(**by_transport: Mapping[str, Any]) -> str:
    return page({Contestant("one", ("x",), how="by hand"): by_transport})


def test_a_check_has_one_mark_or_one_for_each_transport_where_they_differ() -> None:
    both = written(
        HTTP={"A1": outcome("passed"), "A2": outcome("passed")},
        stdio={"A1": outcome("passed"), "A2": outcome("failed")},
    )

    assert rows(both, "A1") == ["| A1 | must | a\\|b | yes |"]
    assert rows(both, "A2") == ["| A2 | must | a\\|b | yes, **no** |"]


def test_a_deviation_has_its_evidence_once_where_both_transports_show_the_same() -> None:
    same = outcome("failed", "it said <no>")
    text = written(HTTP={"A1": same}, stdio={"A1": same})

    assert rows(text, "one | HTTP, stdio") == ["| one | HTTP, stdio | A1 | it said &lt;no> |"]


def test_checks_that_were_not_made_are_listed_by_their_reason() -> None:
    text = written(HTTP={"A1": outcome("not applicable", "no tool"), "A2": outcome("not applicable", "no tool")})

    assert rows(text, "one | A1, A2") == ["| one | A1, A2 | no tool |"]


def test_the_verdicts_of_each_transport_are_counted() -> None:
    found = {"A1": outcome("passed"), "A2": outcome("failed"), "A3": outcome("absent", level="may")}

    assert rows(written(HTTP=found), "one | HTTP | 1") == ["| one | HTTP | 1 | 1 | 1 | 0 |"]


def test_times_and_ports_are_not_on_the_page() -> None:
    assert stable("still open after 5 s") == "still open after 5 s"
    assert stable("stopped after 0.3 s at http://127.0.0.1:8123/mcp") == "stopped after … s at http://…/mcp"
    assert stable("revision 2.3.0") == "revision 2.3.0"


def test_the_page_has_every_check_with_its_promise_and_every_server() -> None:
    text = PAGE.read_text(encoding="utf-8")

    for each in CHECKS:
        assert len(rows(text, f"{each.id} | {each.level} | {each.promise} |")) == 1, each.id
    assert f"| Check | Level | Promise | {' | '.join(server.name for server in SERVERS)} |" in text
