"""Modules under the paths that they had."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from greenroom.moved import PLACES


def test_each_old_path_leads_to_the_module_of_today_with_a_warning_that_names_it() -> None:
    program = (
        "import importlib, sys, warnings\n"
        "from greenroom.moved import PLACES\n"
        "for old, new in PLACES.items():\n"
        "    module, spec = importlib.import_module(new), sys.modules[new].__spec__\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        warnings.simplefilter('always')\n"
        "        assert importlib.import_module(old) is module, old\n"
        "    assert [str(each.message) for each in caught] == [f'{old} has moved: import {new}'], old\n"
        "    assert module.__spec__ is spec and module.__name__ == new, old\n"
        "print(len(PLACES))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=False, text=True)
    assert (done.stdout, done.stderr) == (f"{len(PLACES)}\n", "")


@pytest.mark.parametrize("name", ["greenroom.nowhere", "greenroom.actors.nowhere"])
def test_a_module_that_never_was_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)
