"""The pytest plugin, from outside: tests that pass, tests that have to fail, and what each says."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]

HEAD = """
    import asyncio, random, threading, time
    import pytest
    from hypothesis import given, settings, strategies
    from greenroom.supervision import *
    from greenroom.supervision.testing import *
"""


@pytest.fixture
def play(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run a test file with the plugin, in the auto mode unless told otherwise."""

    def run(text: str, *arguments: str, mode: str = "auto") -> pytest.RunResult:
        pytester.makeini(f"[pytest]\ngreenroom_mode = {mode}\naddopts = -p no:randomly -p no:cacheprovider -W error\n")
        pytester.makepyfile(textwrap.dedent(HEAD) + textwrap.dedent(text))
        return pytester.runpytest_inprocess(*arguments)

    return run


# --- which tests


def test_strict_mode_runs_what_is_marked(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        @pytest.mark.greenroom
        async def test_marked():
            await asyncio.sleep(1000)
            assert current_node().running

        class TestClass:
            pytestmark = pytest.mark.greenroom

            async def test_method(self, node):
                assert current_node() is node

        def test_plain(): pass
    """
    play(text, mode="strict").assert_outcomes(passed=3)


def test_strict_mode_leaves_other_async_tests_alone(play: Callable[..., pytest.RunResult]) -> None:
    result = play("async def test_unmarked(): pass", mode="strict")
    result.stdout.fnmatch_lines(["*async def functions are not natively supported*"])


def test_auto_mode_leaves_tests_of_other_plugins_alone(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        @pytest.fixture
        def anyio_backend(): return "asyncio"

        @pytest.mark.anyio
        async def test_of_anyio():
            assert asyncio.get_running_loop().time() > 0
            with pytest.raises(NoNode):
                current_node()

        async def test_ours():
            assert asyncio.get_running_loop().time() == 0
    """
    play(text).assert_outcomes(passed=2)


def test_a_mode_that_there_is_not_is_refused(play: Callable[..., pytest.RunResult]) -> None:
    result = play("def test(): pass", mode="automatic")
    result.stderr.fnmatch_lines(["*greenroom_mode must be auto or strict, not 'automatic'*"])


# --- how they run


def test_each_test_has_a_loop_and_a_node_of_its_own(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        seen = []

        @pytest.mark.parametrize("number", [1, 2, 3])
        async def test_one(number, node):
            seen.append((asyncio.get_running_loop(), node, node.incarnation))
            await start(GenServer)
            await asyncio.sleep(number)
            assert asyncio.get_running_loop().time() == number
            assert len({id(loop) for loop, _, _ in seen}) == len({id(node) for _, node, _ in seen}) == number
            assert len(node.processes) == 1
    """
    play(text).assert_outcomes(passed=3)


def test_the_marker_passes_options_on(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        pytestmark = pytest.mark.greenroom(kill_grace=7, name="outer")

        def watched():
            return any(each.name.startswith("greenroom-watchdog") for each in threading.enumerate())

        @pytest.mark.greenroom(name="inner")
        async def test_options(node):
            assert (node.name, node.kill_grace, watched()) == ("inner", 7, False)

        @pytest.mark.greenroom(clock="real", watchdog=0.5)
        async def test_real(node):
            before = time.monotonic()
            await asyncio.sleep(0.05)
            assert time.monotonic() - before >= 0.04
            assert watched()
    """
    play(text).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("clock='slow'", "clock must be 'virtual' or 'real', not 'slow'"),
        ("colour='red'", "unexpected keyword argument 'colour'"),
        ("leaks=False", "needs a reason"),
        ("seeds=0", "how many orders to try"),
        ("'virtual'", "takes its arguments by name"),
    ],
)
def test_a_wrong_marker_is_told(play: Callable[..., pytest.RunResult], marker: str, told: str) -> None:
    result = play(f"@pytest.mark.greenroom({marker})\nasync def test(): pass")
    assert told in result.stdout.str() + result.stderr.str()
    assert result.ret != 0


def test_fixtures_are_there(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        class Server(GenServer):
            def boom(self): raise ValueError("boom")

        async def test_all(node, probe, reports, start_supervised):
            server = await start_supervised(Server)
            probe.monitor(server)
            server.cast(Server.boom)
            assert isinstance(await probe.expect_down(server), Crash)
            crash = await reports.expect(CrashReport, lambda report: report.pid == server.pid)
            assert crash in reports
            assert current_node() is node

        @pytest.fixture
        def counted(node):
            return node

        async def test_a_fixture_may_use_them(counted, node):
            assert counted is node is current_node()

        def test_elsewhere(no_leaks):
            pass
    """
    play(text).assert_outcomes(passed=3)


def test_async_fixtures_run_in_the_loop_and_the_node_of_the_test(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        log = []

        @pytest.fixture
        async def server(node, probe):
            assert current_node() is node
            await asyncio.sleep(1)
            return await start(GenServer)

        @pytest.fixture
        async def watched(server, probe):
            log.append("begin")
            yield probe.monitor(server)
            await asyncio.sleep(1)
            assert current_node().loop.time() == 3
            log.append("end")

        @pytest.fixture(autouse=True)
        async def everywhere():
            log.append("everywhere")

        class TestClass:
            @pytest.fixture
            async def mine(self, watched):
                return self, watched

            async def test_it(self, mine, watched, server, probe):
                assert mine[0] is not None and mine[1] is watched
                assert asyncio.get_running_loop().time() == 1
                await stop(server)
                assert await probe.expect_down(watched) == Normal()
                await asyncio.sleep(1)

        @given(strategies.integers(0, 5))
        @settings(deadline=None, max_examples=5)
        async def test_property(number):
            assert log.pop() == "everywhere"
            log.append("example")

        async def test_end():
            assert log.pop() == "everywhere"
            assert log[:3] == ["everywhere", "begin", "end"]
            assert log[3:].count("example") == len(log[3:]) >= 5
    """
    play(text).assert_outcomes(passed=3)


def test_an_async_fixture_that_fails_fails_the_test(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        @pytest.fixture
        async def before(): raise OSError("before")

        @pytest.fixture
        async def behind():
            yield 1
            raise OSError("behind")

        async def test_before(before): pass
        async def test_behind(behind): pass
    """
    result = play(text)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*OSError: before", "*OSError: behind"])


def test_who_marks_a_test_gets_it_here_whatever_another_plugin_made_of_it(
    play: Callable[..., pytest.RunResult],
) -> None:
    text = """
        import functools

        def takes_all(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                asyncio.run(function(*args, **kwargs))
            return wrapper

        @pytest.mark.greenroom
        @takes_all
        async def test_marked(node):
            assert current_node() is node

        @takes_all
        async def test_unmarked():
            with pytest.raises(NoNode):
                current_node()
    """
    play(text).assert_outcomes(passed=2)


def test_a_fixture_in_a_test_without_a_node_is_refused(play: Callable[..., pytest.RunResult]) -> None:
    result = play("def test_plain(node): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*does not run in a node: make it `async def`*"])


def test_a_suite_may_have_its_own_fixtures_of_these_names(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        @pytest.fixture
        def node(): return "mine"

        async def test_own(node):
            assert node == "mine"
            assert current_node().running
    """
    play(text).assert_outcomes(passed=1)


# --- what fails


def test_failures_fail_and_say_why(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        async def test_assertion():
            await asyncio.sleep(5)
            assert 1 == 2

        async def test_task():
            test_task.kept = asyncio.create_task(asyncio.sleep(100), name="the-lost-task")

        def forget():
            over.wait()

        over = threading.Event()

        async def test_thread():
            threading.Thread(target=forget, daemon=True, name="the-lost-thread").start()

        async def test_descriptor():
            test_descriptor.kept = open(__file__)

        def test_end():
            over.set()
            test_descriptor.kept.close()
    """
    result = play(text)
    result.assert_outcomes(failed=4, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*assert 1 == 2",
            "*LeakError: 1 thing was left behind:*",
            "*task 'the-lost-task' of sleep(), *",
            "*daemon thread 'the-lost-thread' of forget(), at *over.wait()*",
            "*file descriptor *test_failures_fail_and_say_why.py*",
        ]
    )


def test_a_leak_that_has_a_reason_is_allowed(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        @pytest.mark.greenroom(leaks=False, reason="on purpose")
        async def test_task():
            test_task.kept = asyncio.create_task(asyncio.sleep(100))
    """
    play(text).assert_outcomes(passed=1)


def test_a_deadlock_fails_at_once_and_names_who_waits(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        class Slow(GenServer):
            async def hang(self):
                await asyncio.Event().wait()

        async def test_stuck():
            slow = await start(Slow)
            await slow.within(None).call(Slow.hang)
    """
    result = play(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*await slow.within(None).call(Slow.hang)",
            "*Deadlock: nothing can ever happen*",
            "*in test_stuck: await slow.within(None).call(Slow.hang)",
            "*process Slow <node.1>, in a handler",
            "*in Slow.hang: await asyncio.Event().wait()",
        ]
    )
    assert result.duration < 5


def test_the_reports_of_a_failed_test_are_shown(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        class Server(GenServer):
            def boom(self): raise ValueError("the reason of it all")

        async def test_it():
            server = await start(Server)
            with pytest.raises(ProcessExited):
                await server.call(Server.boom)
            assert False
    """
    result = play(text)
    result.stdout.fnmatch_lines(["*reports of the node*", "*Server*the reason of it all*"])


def test_strict_fails_on_a_crash_that_was_not_expected(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        pytestmark = pytest.mark.greenroom(strict=True)

        class Server(GenServer):
            def boom(self): raise ValueError("boom")

        async def crash():
            server = await start(Server)
            with pytest.raises(ProcessExited):
                await server.call(Server.boom)

        async def test_unexpected():
            await crash()

        async def test_expected(reports):
            await crash()
            await reports.expect(CrashReport)
    """
    result = play(text)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*reports that nobody expected:*"])


def test_an_interrupt_ends_the_run(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ngreenroom_mode = auto\naddopts = -p no:randomly\n")
    pytester.makepyfile(
        """
        import asyncio, os, signal

        async def test_long():
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(1)

        async def test_never():
            print("never", "reached")
        """
    )
    result = pytester.runpytest_subprocess("-s")
    result.stdout.fnmatch_lines(["*KeyboardInterrupt*"])
    result.stdout.no_fnmatch_line("*never reached*")
    assert result.ret == pytest.ExitCode.INTERRUPTED


# --- orders

RACE = """
    class Hand(GenServer):
        def __init__(self, number, probe): self.number, self.probe = number, probe
        def wave(self): send(self.probe, self.number)

    @pytest.mark.greenroom(seeds=20)
    async def test_race(probe):
        hands = [await start(Hand, number, probe) for number in range(4)]
        for hand in hands:
            hand.cast(Hand.wave)
        order = [await probe.expect(int) for _ in hands]
        assert order[0] == 0, f"order {order}"
"""


def test_a_race_is_found_shown_and_replayed(play: Callable[..., pytest.RunResult]) -> None:
    result = play(RACE)
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] > 0
    assert outcomes["failed"] > 0
    text = result.stdout.str()
    seeds = re.findall(r"this order of delivery again: --greenroom-seed=(\d+)", text)
    orders = re.findall(r"^E +AssertionError: order (\[.*?\])", text, re.MULTILINE)
    assert len(seeds) == len(orders) == outcomes["failed"]
    for seed, order in zip(seeds[:3], orders[:3], strict=True):
        again = play(RACE, f"--greenroom-seed={seed}")
        again.assert_outcomes(failed=1)
        again.stdout.fnmatch_lines([f"*AssertionError: order {order.replace('[', '[[]')}*"])


def test_the_command_line_draws_an_order_for_each_test(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        numbers = []

        @pytest.mark.parametrize("n", range(3))
        async def test_drawn(n, request):
            numbers.append(request.getfixturevalue("_greenroom_stage").seed.number)

        @pytest.mark.greenroom(seed=5)
        async def test_chosen(request):
            assert request.getfixturevalue("_greenroom_stage").seed.number == 5

        def test_end():
            assert len(set(numbers)) == 3
    """
    play(text, "--greenroom-seed=random").assert_outcomes(passed=5)


def test_without_a_seed_the_order_is_the_engines_own(play: Callable[..., pytest.RunResult]) -> None:
    result = play("async def test_it(node):\n    assert node.seed is None and node.inline_budget\n    assert False")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*greenroom-seed*")


# --- Hypothesis


def test_each_example_of_hypothesis_runs_apart(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        nodes = []

        @given(number=strategies.integers(0, 100))
        @settings(max_examples=15, deadline=None)
        async def test_property(number):
            nodes.append(current_node())
            await asyncio.sleep(number)
            assert asyncio.get_running_loop().time() == number
            assert not current_node().processes

        class TestClass:
            @given(strategies.integers())
            @settings(max_examples=5, deadline=None)
            async def test_method(self, number):
                nodes.append(current_node())

        def test_end():
            assert len(set(map(id, nodes))) >= 15
    """
    play(text).assert_outcomes(passed=3)


def test_a_failing_example_is_shrunk_and_shown(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        @given(strategies.integers(0, 1000))
        @settings(max_examples=200, deadline=None, database=None)
        async def test_property(number):
            await asyncio.sleep(1)
            assert number < 10
    """
    result = play(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*: test_property(*", "*number=10,*"])


def test_an_example_that_leaks_fails(play: Callable[..., pytest.RunResult]) -> None:
    text = """
        kept = []

        @given(strategies.integers(0, 5))
        @settings(max_examples=10, deadline=None, database=None)
        async def test_property(number):
            if number > 2:
                kept.append(asyncio.create_task(asyncio.sleep(9), name="the-lost-task"))
    """
    result = play(text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the-lost-task*"])


# --- the plugin itself


def test_the_start_of_pytest_loads_no_room() -> None:
    program = (
        "import sys, greenroom.pytest_plugin;"
        "print(*sorted(name for name in sys.modules if name.startswith(('greenroom', 'hypothesis', 'asyncio'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["greenroom", "greenroom.pytest_plugin"]


def test_the_kit_needs_neither_pytest_nor_hypothesis() -> None:
    program = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
import asyncio
from greenroom.supervision.testing import run
async def main():
    await asyncio.sleep(10)
    return asyncio.get_running_loop().time()
print(run(main, seed=3))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["10.0"]
