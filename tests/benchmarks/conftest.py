"""Makes `benchmarks` importable by its path: with the repository's root on `sys.path`, `import actors` would succeed."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def _load() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    spec = spec_from_file_location("benchmarks", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["benchmarks"] = module_from_spec(spec)
    spec.loader.exec_module(module)


_load()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here `processor_time`: they need a CPU clock that is finer than the kernel's ticks."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("processor_time")
