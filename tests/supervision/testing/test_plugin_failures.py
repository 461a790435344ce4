"""The pytest plugin, from outside: which tests it fails, and what it prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]


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
    result.stdout.fnmatch_lines(["*unexpected reports:*"])


@pytest.mark.deep
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
    seeds = re.findall(r"replay this delivery order: --greenroom-seed=(\d+)", text)
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
