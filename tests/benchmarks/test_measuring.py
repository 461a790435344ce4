"""The framework: measurement, comparison with the floor of the same repeat, and targets for the median."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks import benchmark_types, curves
from benchmarks.benchmark_types import Benchmark, Run, benchmark
from benchmarks.curves import Point, curve, draw
from benchmarks.measure import Plan, Result, measure, spread, with_floors

if TYPE_CHECKING:
    from collections.abc import Iterable

ONCE = Plan(repeats=1)


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolates registrations of each test."""
    monkeypatch.setattr(benchmark_types, "_registered", {})
    monkeypatch.setattr(curves, "_registered", {})


def recording(name: str, values: Iterable[float], log: list[str], **options: object) -> Benchmark:
    """A benchmark that takes its costs from a list, one per repeat."""
    rest = iter(values)

    def record(run: Run) -> None:
        """Record the next value."""
        log.append(name)
        run.record(next(rest))

    return benchmark(name, unit="bytes", **options)(record)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_benchmark_is_registered_under_its_name_with_its_docstring() -> None:
    @benchmark("sleep", count=3)
    def sleep(run: Run) -> None:
        """Nothing.

        At all.
        """

    assert benchmark_types.registered() == (sleep,)
    assert (sleep.name, sleep.about, sleep.count) == ("sleep", "Nothing. At all.", 3)


def test_a_benchmark_that_does_not_say_what_it_measures_is_refused() -> None:
    def silent(run: Run) -> None:
        pass

    with pytest.raises(ValueError, match="silent: a benchmark says in its docstring"):
        benchmark("silent")(silent)
    with pytest.raises(ValueError, match="silent: a curve says in its docstring"):
        curve("silent", sizes=[1], size="things")(silent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_name_is_given_once() -> None:
    log: list[str] = []
    recording("twice", [], log)
    with pytest.raises(ValueError, match="a benchmark named 'twice' already"):
        recording("twice", [], log)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="the unit 'parsec' is none of"):
        benchmark("far", unit="parsec")


def test_cpu_time_is_averaged_and_a_latency_is_the_median() -> None:
    run = Run(1)
    for value in (1.0, 2.0, 9.0):
        run.record(value)
    assert run.cost("cpu") == 4.0
    assert run.cost("wall") == 2.0


def test_a_block_is_measured_by_both_clocks_for_as_many_operations_as_it_did() -> None:
    run = Run(1_000_000)
    with run.measured(10):
        sum(range(10_000))
    for clock in (run.cost("cpu"), run.cost("wall")):
        assert clock > 0
    run = Run(10**9)
    with run.measured():
        sum(range(10_000))
    assert run.cost("cpu") < 1e-6


def test_a_benchmark_that_measures_nothing_is_an_error() -> None:
    @benchmark("lazy")
    def lazy(run: Run) -> None:
        """Measure nothing."""

    with pytest.raises(RuntimeError, match="measured nothing"):
        measure([lazy], ONCE)


def test_each_repeat_runs_right_after_a_repeat_of_its_floor() -> None:
    log: list[str] = []
    floor = recording("floor", [1.0, 2.0, 4.0], log)
    house = recording("house", [3.0, 4.0, 8.0], log, floor=floor, target=2)
    (result,) = measure([house], Plan(repeats=3))
    assert log == ["floor", "house"] * 3
    assert result.costs == [3.0, 4.0, 8.0]
    assert result.ratios == [3.0, 2.0, 2.0]
    assert result.met is True


@pytest.mark.parametrize(("target", "met"), [(4.9, False), (5, True), (None, None)])
def test_the_median_is_held_against_the_target(target: float | None, met: bool | None) -> None:  # noqa: FBT001
    (result,) = measure([recording("five", [1.0, 5.0, 50.0], [], target=target)], Plan(repeats=3))
    assert result.cost == 5.0
    assert result.met is met


def test_floors_come_first_and_once() -> None:
    log: list[str] = []
    floor = recording("floor", [], log)
    one, other = recording("one", [], log, floor=floor), recording("other", [], log, floor=floor)
    assert with_floors([one, other]) == [floor, one, other]
    assert with_floors([one, floor]) == [floor, one]


def test_a_result_is_told_as_soon_as_it_is_there() -> None:
    log: list[str] = []
    first, second = recording("first", [1.0], log), recording("second", [1.0], log)
    measure([first, second], ONCE, lambda result: log.append(f"told {result.benchmark.name}"))
    assert log == ["first", "told first", "second", "told second"]


def test_a_plan_divides_counts_and_bounds_them() -> None:
    counts: list[int] = []

    @benchmark("counted", count=5_000)
    async def counted(run: Run) -> None:
        """Record the requested number of operations."""
        counts.append(run.count)
        run.record(1.0)

    for plan in (ONCE, Plan(repeats=1, divisor=10), Plan(repeats=1, divisor=10_000), Plan(repeats=1, largest=7)):
        measure([counted], plan)
    assert counts == [5_000, 500, 1, 7]


def test_a_benchmark_may_say_itself_how_often_it_runs() -> None:
    log: list[str] = []
    measure([recording("long", [1.0] * 9, log, repeats=2)], Plan(repeats=9))
    assert log == ["long"] * 2


def test_asides_are_kept_for_each_repeat_in_the_benchmarks_unit() -> None:
    @benchmark("steps", unit="ms")
    def steps(run: Run) -> None:
        """Two steps."""
        run.record(0.003)
        run.asides = {"first": 0.001, "second": 0.002}

    (result,) = measure([steps], Plan(repeats=2))
    assert result.cost == pytest.approx(3)
    assert result.asides == {"first": [1.0, 1.0], "second": [2.0, 2.0]}


def test_the_spread_is_the_distance_of_the_quartiles_by_the_median() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert spread([5.0]) == 0
    assert spread([0.0, 0.0]) == 0


def test_a_result_without_a_floor_is_judged_by_its_cost() -> None:
    result = Result(recording("bytes", [], [], target=700), costs=[701.0])
    assert result.judged == [701.0]
    assert result.met is False


def test_a_curve_has_a_point_for_each_size_up_to_the_largest() -> None:
    seen: list[tuple[int, int]] = []

    @curve("line", sizes=(1, 100, 10_000), size="things", unit="bytes")
    async def straight(point: Point) -> None:
        """Record the size."""
        seen.append((point.size, point.rounds))
        point.costs["size"] = float(point.size)

    drawn = draw(straight, Plan(divisor=20, largest=100))
    assert drawn.series == {"size": [(1, 1.0), (100, 100.0)]}
    assert seen == [(1, 1000), (100, 10)]


@pytest.mark.deep
def test_small_sizes_are_repeated_and_large_ones_run_once() -> None:
    seen: list[int] = []

    @curve("flat", sizes=(10, 100_000), size="things")
    async def flat(point: Point) -> None:
        """Do nothing in some rounds."""
        seen.append(point.size)
        for _ in range(point.rounds):
            with point.measured("nothing"):
                pass

    drawn = draw(flat, Plan())
    assert seen == [10] * 20 + [100_000]
    assert [size for size, cost in drawn.series["nothing"] if cost >= 0] == [10, 100_000]
