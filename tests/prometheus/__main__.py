"""The command `python -m tests.prometheus`, which is `make metrics`: Debian's Prometheus scrapes a running server, and judges what we say about metrics.

promtool reads the examples' configuration, rules and dashboard, and runs the tests of the rules. Then a real Prometheus scrapes a server every second: calls
are counted exactly, their rate and quantiles are right, and a part that dies again and again makes the rule of a crash loop fire, and no other.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.free_ports import free_port
from tests.served_program import served

from greenroom import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parents[1] / "examples/monitoring"
WITHIN: Final = 30.0
CALLS: Final = 200
SLOW: Final = 40
HITS: Final = 6


class WrongError(Exception):
    """Prometheus says something else than it should."""


def check(what: str, *, right: bool, found: object = "") -> None:
    """Print a line, and end the run if it is wrong."""
    print(f"{'right' if right else 'WRONG'}  {what}{f': {found}' if found != '' else ''}", flush=True)
    if not right:
        raise WrongError(what)


def promtool(*arguments: str | Path, said: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool; `said` is its standard input."""
    return subprocess.run(
        ["promtool", *map(str, arguments)], input=said, capture_output=True, check=False, text=True, timeout=30
    )


# --- what promtool says of the examples


def check_examples(folder: Path) -> None:
    """The configuration, the rules and their tests are right, and the tests notice when a rule is changed."""
    for what, arguments in (
        ("the configuration", ("check", "config", EXAMPLES / "prometheus.yml")),
        ("the rules", ("check", "rules", "--lint-fatal", EXAMPLES / "alerts.yml")),
        ("the tests of the rules", ("test", "rules", EXAMPLES / "alerts_test.yml")),
    ):
        done = promtool(*arguments)
        check(what, right=done.returncode == 0, found=(done.stdout + done.stderr).strip() if done.returncode else "")
    rules = (EXAMPLES / "alerts.yml").read_text()
    tests = (EXAMPLES / "alerts_test.yml").read_text()
    (folder / "alerts_test.yml").write_text(tests)
    for old, new in (
        ("[2m])) > 3", "[2m])) > 30"),
        ("unless greenroom_supervisor_gave_up_total offset 10m", "unless greenroom_supervisor_gave_up_total offset 1m"),
        ("deadline|worker_crashed", "deadline|tool_error|worker_crashed"),
        ("open|parked", "open"),
        ("quantile(0.9,", "quantile(0.4,"),
        ("> 1000 and", "> 1 and"),
        ("[10m])) > 3", "[10m])) > 30"),
    ):
        assert old in rules, old
        (folder / "alerts.yml").write_text(rules.replace(old, new))
        done = promtool("test", "rules", folder / "alerts_test.yml")
        check(f"a rule with {new!r} fails its test", right=done.returncode == 1)
    expressions = [
        target["expr"] for panel in json.loads((EXAMPLES / "dashboard.json").read_text())["panels"] for target in panel.get("targets", ())
    ]  # fmt: skip
    recorded = [
        {"record": f"panel_{number}", "expr": expression.replace("$__rate_interval", "1m").replace("$instance", ".*")}
        for number, expression in enumerate(expressions)
    ]
    panels = folder / "panels.yml"
    panels.write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))  # JSON is YAML
    done = promtool("check", "rules", panels)
    check(f"{len(expressions)} expressions of the dashboard", right=done.returncode == 0, found=done.stderr.strip())


# --- a running Prometheus


class Prometheus:
    """The HTTP API of a Prometheus."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/"
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer."""
        with self._open(f"{self._base}{path}?{urllib.parse.urlencode(query)}", timeout=5) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float:
        """The value of an expression; not a number without one."""
        result = self.ask("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else float("nan")

    def until(self, what: str, look: Callable[[], object]) -> None:
        """Poll until `look` is true; another program's state has no event to await."""
        deadline = time.monotonic() + WITHIN
        seen: object = None
        while time.monotonic() < deadline:
            try:
                seen = look()
            except OSError as error:
                seen = error
            else:
                if seen:
                    check(what, right=True)
                    return
            time.sleep(0.1)
        check(what, right=False, found=seen)

    def targets(self) -> list[str]:
        """The health of each target."""
        return [target["health"] for target in self.ask("targets")["activeTargets"]]

    def alerts(self) -> list[tuple[str, str]]:
        """The names and kinds of the alerts that fire."""
        return [
            (alert["labels"]["alertname"], alert["labels"].get("kind", ""))
            for alert in self.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        ]


@contextmanager
def prometheus(folder: Path, target: int) -> Generator[Prometheus]:
    """A Prometheus with the examples' configuration, which scrapes that port every second."""
    port = free_port()
    text = (EXAMPLES / "prometheus.yml").read_text().replace("15s", "1s").replace(":9091", f":{target}")
    (folder / "prometheus.yml").write_text(text)
    (folder / "alerts.yml").write_text((EXAMPLES / "alerts.yml").read_text())
    log = folder / "prometheus.log"
    with log.open("wb") as said:
        running = subprocess.Popen(
            [
                *("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
                *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        yield Prometheus(port)
    except WrongError:
        print(log.read_text(errors="replace"), file=sys.stderr)
        raise
    finally:
        running.terminate()
        running.wait(10)


def judge(url: str, admin: int, watching: Prometheus) -> None:
    """Call tools, and ask Prometheus about them."""
    watching.until("the server is scraped", lambda: watching.targets() == ["up"])
    scraped = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        f"http://127.0.0.1:{admin}/metrics", timeout=5
    )
    done = promtool("check", "metrics", said=scraped.read().decode())
    check("the page of metrics", right=done.returncode == 0 and not done.stderr, found=done.stderr.strip())

    async def call(name: str, times: int, **arguments: int) -> None:
        async with Client(url) as client:
            for _ in range(times):
                await client.call_tool(name, arguments)

    def is_value(expression: str, expected: float) -> bool:
        return watching.value(expression) == expected

    def counted(name: str) -> float:
        return watching.value(f'sum(greenroom_calls_total{{side="server", name="{name}", outcome="result"}})')

    for name, arguments in (("add", {"a": 1, "b": 2}), ("slow", {})):
        asyncio.run(call(name, 1, **arguments))
    watching.until("the first calls are counted", lambda: (counted("add"), counted("slow")) == (1, 1))
    asyncio.run(call("add", CALLS, a=1, b=2))
    asyncio.run(call("slow", SLOW))
    watching.until(f"{CALLS} and {SLOW} calls more are counted", lambda: (counted("add"), counted("slow")) == (CALLS + 1, SLOW + 1))  # fmt: skip
    operation = "mcp_server_operation_duration_seconds"
    rise = watching.value(f'sum(increase({operation}_count{{gen_ai_tool_name="add"}}[1m]))')
    check("the increase of calls", right=CALLS * 0.95 <= rise <= CALLS * 1.3, found=round(rise, 1))
    for quantile in (0.5, 0.8):  # a fifth of the calls may take longer: other programs run beside this one
        bucket = f'sum by (le) ({operation}_bucket{{gen_ai_tool_name="slow"}})'
        seconds = watching.value(f"histogram_quantile({quantile}, {bucket})")
        check(f"quantile {quantile} of calls that take 0.15 s", right=0.1 < seconds <= 0.2, found=round(seconds, 3))
    seconds = watching.value(f'sum({operation}_sum{{gen_ai_tool_name="slow"}}) / {SLOW + 1}')
    check("their mean", right=0.15 <= seconds < 0.4, found=round(seconds, 3))
    check("the class of the part is known before it dies", right=watching.value('sum(greenroom_process_restarts_total{kind="Fragile"})') == 0)  # fmt: skip
    check("nothing fires yet", right=not watching.alerts(), found=watching.alerts() or "")
    asyncio.run(call("hit", HITS))
    for what in ("crashes", "restarts"):
        expression = f'sum(greenroom_process_{what}_total{{kind="Fragile"}})'
        watching.until(f"{HITS} {what} are counted", partial(is_value, expression, HITS))
    watching.until("the rule of a crash loop fires", lambda: ("GreenroomCrashLoop", "Fragile") in watching.alerts())
    check("and no other", right=watching.alerts() == [("GreenroomCrashLoop", "Fragile")], found=watching.alerts())


def main() -> int:
    """Judge, and return 1 if anything was wrong."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="prometheus-") as place:
        folder, admin = Path(place), free_port()
        try:
            check_examples(folder)
            command = [sys.executable, "-P", str(HERE / "fragile_server.py"), str(admin)]
            with served(command, folder / "server.log") as url, prometheus(folder, admin) as watching:
                judge(url, admin, watching)
        except WrongError:
            return 1
    print(f"Prometheus finds everything right, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
