"""The alert rules and the dashboard use metrics and labels of the table, and no others. `make metrics` lets promtool judge them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.observe.metric_table import METRICS

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"\b(?:greenroom|mcp)_(?:server|client)?\w+")
_SELECTOR = re.compile(r"(\w+)\{([^{}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_LABEL = re.compile(r"(?:by|without) \(([\w, ]+)\)")
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}

SAMPLES = {
    f"{metric.prometheus_name}{suffix}": {*metric.prometheus_labels, "instance", "job", *(["le"] if suffix == "_bucket" else [])}
    for metric in METRICS
    for suffix in _SUFFIXES[metric.kind]
}  # fmt: skip
LABELS = {label for labels in SAMPLES.values() for label in labels}


def dashboard(root: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((root / "examples/monitoring/dashboard.json").read_text())
    return loaded


def expressions(root: Path) -> list[str]:
    """Those of the dashboard, then those of the rules."""
    rules = (root / "examples/monitoring/alerts.yml").read_text()
    found = re.findall(r"^ +expr: (?:>-\n)?((?:.+\n)(?: {10}.+\n)*)", rules, re.MULTILINE)
    assert len(found) == rules.count("- alert:")
    return [
        *(target["expr"] for panel in dashboard(root)["panels"] for target in panel.get("targets", ())),
        *found,
    ]


def faults(expression: str) -> list[str]:
    """Names of samples and labels that no metric has."""
    names = [name for name in _NAME.findall(expression) if name not in SAMPLES and name not in LABELS]
    labels = [
        f"{name}: {label}"
        for name, matchers in _SELECTOR.findall(expression)
        for label in _MATCHER.findall(matchers)
        if label not in SAMPLES.get(name, {"job", "instance"})
    ]
    grouped = [label for group in _LABEL.findall(expression) for label in re.split(", *", group) if label not in LABELS]
    return [*names, *labels, *grouped]


def test_each_expression_uses_metrics_and_labels_of_the_table(root: Path) -> None:
    found = expressions(root)
    assert len(found) > 30
    assert {expression: wrong for expression in found if (wrong := faults(expression))} == {}


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("rate(greenroom_calls[5m])", ["greenroom_calls"]),
        ('greenroom_processes{program="x"}', ["greenroom_processes: program"]),
        ("sum by (tool) (greenroom_processes)", ["tool"]),
        ("greenroom_crashes_total", ["greenroom_crashes_total"]),
    ],
)
def test_an_unknown_metric_or_label_is_found(expression: str, wrong: list[str]) -> None:
    assert faults(expression) == wrong


def test_the_dashboard_is_whole(root: Path) -> None:
    board = dashboard(root)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_the_page_explains_each_file(root: Path) -> None:
    page = (root / "docs/how-to/metrics-and-alerts.md").read_text()
    for file in (root / "examples/monitoring").iterdir():
        assert f"`{file.name}`" in page
