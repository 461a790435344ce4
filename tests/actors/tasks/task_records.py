"""Records of tasks, for the tests of their stores."""

from __future__ import annotations

import time
from typing import Any

from greenroom.actors.process_names import new_id
from greenroom.actors.task_record import TaskRecord


def record(**said: Any) -> TaskRecord:
    """The record of a working task, with these fields changed."""
    now = time.time()
    given: dict[str, Any] = {
        "id": new_id("task"),
        "owner": "principal ada",
        "created": now,
        "updated": now,
        "ttl": 600.0,
    }
    return TaskRecord(**{**given, **said})


def ended(before: TaskRecord, text: str = "done", **said: Any) -> TaskRecord:
    """The same record, completed."""
    return before.with_status("completed", said.pop("now", time.time()), result=text.encode())
