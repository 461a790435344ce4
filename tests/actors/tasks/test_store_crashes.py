"""A task store whose program is killed between any two steps of its writing, or whose disk fails at any of them.

A killed program leaves its files as they are at that moment: the tests copy them, and open the copy. Every record
that was reported as safe is in the copy, and its content is the state after one of the writes, never in between.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.task_record import TaskRecord
from greenroom.actors.task_store import TaskStoreError
from greenroom.actors.task_store_sqlite import TaskFile

from .task_records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = [f"task_{n}" for n in range(6)]
State = dict[str, TaskRecord]


@st.composite
def batches(draw: st.DrawFn) -> dict[str, TaskRecord | None]:
    """A batch of records: tasks in any state, and some to be removed."""
    batch: dict[str, TaskRecord | None] = {}
    for id in draw(st.lists(st.sampled_from(TASKS), min_size=1, max_size=4, unique=True)):
        size = draw(st.sampled_from([None, None, 0, 10, 9000]))
        if size is None:
            batch[id] = draw(st.sampled_from([None, record(id=id, created=1.0, updated=1.0)]))
        else:
            working = record(id=id, created=1.0, updated=1.0, name=str(draw(st.integers(0, 99))))
            batch[id] = working.with_status("completed", 2e9, result=b"r" * size)
    return batch


def after(state: State, batch: dict[str, TaskRecord | None]) -> State:
    new: dict[str, TaskRecord | None] = {**state, **batch}
    return {id: each for id, each in new.items() if each is not None}


class Steps:
    """Counts the steps of writing, and does something at one of them."""

    def __init__(self) -> None:
        self.left = -1
        self.act: Any = None

    def step(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.act()

    def connect(self, *args: Any, **more: Any) -> sqlite3.Connection:
        steps = self

        class Watched(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                steps.step()
                found = super().execute(*args)
                steps.step()
                return found

            def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
                def one_by_one() -> Iterator[Any]:
                    for row in rows:
                        steps.step()
                        yield row

                return super().executemany(sql, one_by_one())

        return sqlite3.connect(*args, factory=Watched, **more)


def reopened(folder: Path) -> State:
    file = TaskFile(folder / "tasks.db")
    found = {each.id: each for each in file.open(0)}
    file.close()
    return found


@settings(max_examples=examples(60))
@given(
    plan=st.lists(batches(), min_size=1, max_size=5), at=st.integers(0, 40), cut=st.integers(0, 5000), data=st.data()
)
def test_a_kill_between_any_two_steps_loses_nothing_that_was_safe(
    plan: list[dict[str, TaskRecord | None]], at: int, cut: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, left = Path(place, "now"), Path(place, "left")
        folder.mkdir()
        steps = Steps()
        file = TaskFile(folder / "tasks.db", sync=False, connect=steps.connect)
        file.open(0)
        steps.left, steps.act = at, lambda: shutil.copytree(folder, left)
        state: State = {}
        allowed: list[State] | None = None
        for batch in plan:
            before, state = state, after(state, batch)
            file.write(batch)
            if left.exists() and allowed is None:
                allowed = [before, state]
        if not left.exists():
            steps.act()
            allowed = [state]
        file.close()
        assert allowed is not None
        log = left / "tasks.db-wal"
        if len(allowed) == 2 and data.draw(st.booleans()) and log.stat().st_size > cut:
            # the machine went down as well, before the end of the last write was on disk
            grown = log.stat().st_size
            os_cut = max(grown - cut, 0)
            with log.open("r+b") as end:
                end.truncate(os_cut)
            found = reopened(left)
            history: list[State] = [{}]
            for batch in plan:
                history.append(after(history[-1], batch))
            assert found in history
        else:
            assert reopened(left) in allowed


@settings(max_examples=examples(60))
@given(plan=st.lists(batches(), min_size=1, max_size=6), at=st.integers(0, 40), times=st.integers(1, 3))
def test_a_disk_that_fails_at_any_step_leaves_the_write_before(
    plan: list[dict[str, TaskRecord | None]], at: int, times: int
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        steps = Steps()
        file = TaskFile(folder / "tasks.db", sync=False, connect=steps.connect)
        file.open(0)
        steps.left, failures = at, 0

        def fail() -> None:
            nonlocal failures
            failures += 1
            if failures < times:
                steps.left = failures - 1  # soon again, perhaps when the first failure is being dealt with
            raise sqlite3.OperationalError("disk I/O error")

        steps.act = fail
        state: State = {}
        for batch in plan:
            try:
                file.write(batch)
            except TaskStoreError as error:
                assert "cannot be written: disk I/O error" in str(error)
                steps.left = -1
                file.write(batch)  # as the store does, later
            state = after(state, batch)
        file.close()
        assert reopened(folder) == state
