"""The page of events and the table of metrics are current, and the package offers every event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom import event_types, observe
from greenroom.observe.metric_table import METRICS

from . import events

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_of_events_is_current(root: Path) -> None:
    assert (root / events.EVENTS).read_text(encoding="utf-8") == events.page(), f"run `{events.COMMAND}`"


def test_the_table_of_metrics_is_current(root: Path) -> None:
    written = (root / events.METRICS_PAGE).read_text(encoding="utf-8")
    assert written == events.with_metrics(written), f"run `{events.COMMAND}`"


def test_every_event_and_metric_is_on_its_page() -> None:
    page, table = events.page(), events.metrics()
    for kind in event_types.EVENT_TYPES:
        assert f"\n### {kind.__name__}\n" in page
        assert all(f"| `{field}` |" in page for field in kind.__struct_fields__ if field != "at")
    assert all(f"<br>`{metric.name}`" in table for metric in METRICS)


def test_the_public_package_has_every_event() -> None:
    defined = {
        name for name, value in vars(event_types).items() if isinstance(value, type) and issubclass(value, event_types.Event)
    }  # fmt: skip
    assert {kind.__name__ for kind in event_types.EVENT_TYPES} == defined - {"Event"}
    assert defined <= set(" ".join(observe._HOMES.values()).split())


def test_both_are_written_and_a_page_without_marks_is_refused(root: Path, tmp_path: Path) -> None:
    for name in (events.EVENTS, events.METRICS_PAGE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{events.BEGIN}\nold\n{events.END}\nafter\n", encoding="utf-8")
    assert events.main(tmp_path) == 0
    assert (tmp_path / events.EVENTS).read_text(encoding="utf-8") == events.page()
    written = (tmp_path / events.METRICS_PAGE).read_text(encoding="utf-8")
    assert "\nold\n" not in written
    assert written.endswith(f"{events.END}\nafter\n")
    with pytest.raises(SystemExit, match="the table of metrics"):
        events.with_metrics("# Metrics")
