"""The pytest plugin, from outside: which tests it runs, and which fixtures they get."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]


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

        def watched(node):
            return f"greenroom-watchdog-{node.name}" in [each.name for each in threading.enumerate()]

        @pytest.mark.greenroom(name="inner")
        async def test_options(node):
            assert (node.name, node.kill_grace, watched(node)) == ("inner", 7, False)

        @pytest.mark.greenroom(clock="real", watchdog=0.5)
        async def test_real(node):
            before = time.monotonic()
            await asyncio.sleep(0.05)
            assert time.monotonic() - before >= 0.04
            assert watched(node)
    """
    play(text).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("clock='slow'", "clock must be 'virtual' or 'real', not 'slow'"),
        ("colour='red'", "unexpected keyword argument 'colour'"),
        ("leaks=False", "needs a reason"),
        ("seeds=0", "must be the number of orders to try"),
        ("'virtual'", "takes keyword arguments only"),
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


def test_a_marked_test_runs_here_even_if_another_plugin_wrapped_it(
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


def test_the_node_of_a_test_is_dropped_when_the_test_is_over(play: Callable[..., pytest.RunResult]) -> None:
    """Pytest keeps each item until the run ends, so what an item held of its node would add up."""
    text = """
        import gc, weakref

        nodes = []

        async def test_that_has_a_node(node):
            nodes.append(weakref.ref(node))

        def test_that_looks_for_it():
            gc.collect()
            assert nodes[0]() is None
    """
    play(text).assert_outcomes(passed=2)
