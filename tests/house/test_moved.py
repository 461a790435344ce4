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


def test_a_name_that_has_left_the_front_door_is_there_with_a_warning_that_says_where() -> None:
    program = (
        "import importlib, warnings, greenroom\n"
        "from greenroom.moved import _NAMES\n"
        "for place, names in _NAMES.items():\n"
        "    for name in names.split():\n"
        "        with warnings.catch_warnings(record=True) as caught:\n"
        "            warnings.simplefilter('always')\n"
        "            exec(f'from greenroom import {name} as found')\n"
        "        assert found is getattr(importlib.import_module(place), name), name\n"
        "        assert name in importlib.import_module(place).__all__, name\n"
        "        assert name not in greenroom.__all__, name\n"
        "        (said,) = caught\n"
        "        assert str(said.message) == f'greenroom.{name} has moved: from {place} import {name}', said\n"
        "        assert (said.category, said.filename) == (DeprecationWarning, '<string>'), said\n"
        "print(sum(len(names.split()) for names in _NAMES.values()))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=False, text=True)
    assert (done.stdout, done.stderr) == ("62\n", "")


@pytest.mark.parametrize("name", ["greenroom.nowhere", "greenroom.actors.nowhere"])
def test_a_module_that_never_was_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)
