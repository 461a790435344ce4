"""Shared fixtures and hooks: the repository's root, Hypothesis profiles, time limits, stable test ids, and a working Ctrl-C."""

from __future__ import annotations

import gc
import shutil
import signal
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from . import example_counts, stable_ids, time_limits

if TYPE_CHECKING:
    from collections.abc import Generator

# A slow machine is no failure, and a failure prints what replays it; pytest-randomly prints the seed of the order.
settings.load_profile(example_counts.PROFILE)

# A suite that runs in the background of a script has SIGINT ignored, under nohup SIGHUP, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Each test has a time limit, and a name that all runners know it by."""
    pluginmanager.register(time_limits)
    pluginmanager.register(stable_ids)


def pytest_configure(config: pytest.Config) -> None:
    """Runners that share the suite have folders of short paths: that of a socket has 107 bytes at most."""
    if (
        getattr(config.option, "numprocesses", None)
        and config.option.basetemp is None
        and not hasattr(config, "workerinput")
    ):
        config.option.basetemp = tempfile.mkdtemp(prefix="gr-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist=loadfile` the tests of a file run in one process, and those of `tests/house` too: all its files read the same syntax trees."""
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
    """All that is collected stays, so garbage is not looked for in it: a test that asks whether something is kept took 3.5 s for that, of 3.6."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository, which tests look at and never write to."""
    return Path(__file__).parents[1]
