"""Shared fixtures and hooks: the repository's root, Hypothesis profiles, time limits, stable test ids, and a working Ctrl-C."""

from __future__ import annotations

import gc
import shutil
import signal
import sys
import tempfile
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from . import example_counts, stable_ids, time_limits

if TYPE_CHECKING:
    from collections.abc import Generator

# The profile ignores deadlines, since a slow machine is no failure, and prints what replays a failure.
settings.load_profile(example_counts.PROFILE)

# Programs that run in the background of a script ignore SIGINT, and under nohup SIGHUP; the programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins for time limits and stable ids."""
    pluginmanager.register(time_limits)
    pluginmanager.register(stable_ids)


def pytest_configure(config: pytest.Config) -> None:
    """Give xdist workers a temporary folder with a short path: the path of a Unix socket has at most 107 bytes."""
    if (
        getattr(config.option, "numprocesses", None)
        and config.option.basetemp is None
        and not hasattr(config, "workerinput")
    ):
        config.option.basetemp = tempfile.mkdtemp(prefix="gr-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist=loadfile`, run the tests of a file in one worker, and all of `tests/house` in one, since its files share the syntax trees."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler: Any = import_module("xdist.scheduler").LoadFileScheduling(config, log)  # ships no types
    file_of = scheduler._split_scope

    def together(test: str) -> str:
        return "tests/house" if test.startswith("tests/house/") else str(file_of(test))

    scheduler._split_scope = together
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Disable garbage collection while tests are collected, and freeze what was collected: a test that looks for references took 3.6 s, of which 3.5 s were spent there."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


_numbers = count()


@pytest.fixture(scope="session")
def state_folders() -> Generator[Path]:
    """Where tests keep what programs remember between two runs."""
    with tempfile.TemporaryDirectory(prefix="gr-state-") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _own_state_folder(state_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program remembers of a server at some port must not reach the test that gets this port next, and nothing is written to the user's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state_folders / str(next(_numbers))))
    verdicts = sys.modules.get("greenroom.actors.client.era_verdicts")
    if verdicts is not None:
        verdicts.PROCESS_VERDICTS.clear()
    loading = sys.modules.get("greenroom.actors.pools.handler_spec")
    if loading is not None:
        loading._loader.is_worker = False  # a pool whose workers run in the test's process said otherwise


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository, which tests only read."""
    return Path(__file__).parents[1]
