"""Makes `examples` importable by its path: with the repository's root on `sys.path`, `import actors` would succeed."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path


def _load() -> None:
    spec = ModuleSpec("examples", None, is_package=True)
    spec.submodule_search_locations = [str(Path(__file__).parents[2] / "examples")]
    sys.modules["examples"] = module_from_spec(spec)


_load()
