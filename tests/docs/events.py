"""Writes the page of events and the table of metrics, from their docstrings and definitions: `python tests/docs/events.py`."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

from greenroom import event_types
from greenroom.observe.metric_table import METRICS

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = "python tests/docs/events.py"
EVENTS: Final = "docs/reference/events.md"
METRICS_PAGE: Final = "docs/how-to/metrics-and-alerts.md"
BEGIN: Final = f"<!-- the table of metrics: {COMMAND} -->"
END: Final = "<!-- end of the table of metrics -->"
_INTRODUCTION: Final = f"""# Events

An event says what happened in a running program: a call ended, a process crashed, an upstream has another state. `greenroom.observe.subscribe(listener)` calls
the listener with each; `details=True` adds `CallStep`, `FramePassed` and `ServerWrote`. Metrics, traces, logs of calls, the observer and `greenroom top` are made
of these events. All are frozen structs of texts and numbers, which `msgspec.json.encode` writes. Texts of a peer may hold anything: show them with
`greenroom.supervision.visible`.

```python
from greenroom import Client, Server
from greenroom.observe import CallEnded, subscribe
from greenroom.supervision import run

server = Server("clock")


@server.tool
def now() -> int:
    return 1200


def show(event):
    if isinstance(event, CallEnded) and event.side == "server" and event.name:
        print(event.method, event.name, event.outcome)


async def main():
    unsubscribe = subscribe(show)
    async with server.started(), Client(server) as client:
        await client.call("now")
    unsubscribe()


run(main)
```

```text output
tools/call now result
```

Without a listener an event costs one comparison and is not made. `{COMMAND}` writes this page."""


def page() -> str:
    """The page of events: each with its fields."""
    source = inspect.getsource(event_types)
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    titles = {
        source.count("\n", 0, found.start()) + 1: found[1].capitalize()
        for found in re.finditer(r"^# --- (.*)$", source, re.MULTILINE)
    }
    lines = [_INTRODUCTION, "", "Each event has `at`, its time in seconds since 1970.", "", *_words(source)]
    for kind in event_types.EVENT_TYPES:
        node = classes[kind.__name__]
        due = [line for line in titles if line < node.lineno]
        lines += [text for line in due for text in ("", f"## {titles.pop(line)}")]
        lines += ["", f"### {node.name}", "", _flat(ast.get_docstring(node) or ""), ""]
        lines += ["| Field | Type | Default | |", "| --- | --- | --- | --- |", *_rows(node)]
    return "\n".join(lines) + "\n"


def _rows(node: ast.ClassDef) -> list[str]:
    rows: list[str] = []
    body = [*node.body, ast.Pass()]
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign):
            default = "" if field.value is None else f"`{ast.unparse(field.value)}`"
            kind = ast.unparse(field.annotation).replace("|", "\\|")
            rows.append(f"| `{ast.unparse(field.target)}` | `{kind}` | {default} | {_comment(after)} |")
    return rows


def _words(source: str) -> list[str]:
    """The types of some fields, and what their words mean."""
    lines: list[str] = []
    body = ast.parse(source).body
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            assert node.value is not None
            lines += [f"- `{ast.unparse(node.target)}`: `{ast.unparse(node.value)}`. {_comment(after)}"]
    return lines


def _comment(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return _flat(inspect.cleandoc(text))
        case _:
            return ""


def _flat(text: str) -> str:
    return " ".join(text.replace("\n- ", "\n; ").split()).replace(": ;", ":").replace("; ;", ";")


def metrics() -> str:
    """The table of all metrics."""
    lines = ["| Metric | Kind | Labels | What it says | From |", "| --- | --- | --- | --- | --- |"]
    for metric in METRICS:
        name = f"{metric.prometheus_name}{'_total' * (metric.kind == 'counter')}"
        labels = " ".join(f"`{label}`" for label in metric.prometheus_labels)
        source = (
            f"[{metric.source}](../reference/events.md#{metric.source.lower()})"
            if metric.source[0].isupper()
            else metric.source
        )
        lines.append(f"| `{name}`<br>`{metric.name}` | {metric.kind} | {labels} | {metric.help} | {source} |")
    return "\n".join(lines)


def with_metrics(written: str) -> str:
    """The page about metrics, with its table written again."""
    before, found, rest = written.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{METRICS_PAGE}: no {END if found else BEGIN}")
    return f"{before}{BEGIN}\n\n{metrics()}\n\n{END}{after}"


def main(root: Path = ROOT) -> int:
    """Write both."""
    (root / EVENTS).write_text(page(), encoding="utf-8")
    about = root / METRICS_PAGE
    about.write_text(with_metrics(about.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
