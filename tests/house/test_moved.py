"""Old paths of modules and names lead to the current ones, with a warning."""

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


def test_a_public_name_that_has_moved_or_has_another_name_warns_and_says_where_it_is() -> None:
    program = (
        "import importlib, warnings\n"
        "from greenroom.moved import NAMES\n"
        "for old, new in NAMES.items():\n"
        "    package, _, name = old.rpartition('.')\n"
        "    place, _, now = new.rpartition('.')\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        warnings.simplefilter('always')\n"
        "        exec(f'from {package} import {name} as found')\n"
        "    assert found is getattr(importlib.import_module(place), now), old\n"
        "    assert now in importlib.import_module(place).__all__, old\n"
        "    assert name not in importlib.import_module(package).__all__, old\n"
        "    (warning,) = caught\n"
        "    assert str(warning.message) == f'{old} has moved: from {place} import {now}', warning\n"
        "    assert (warning.category, warning.filename) == (DeprecationWarning, '<string>'), warning\n"
        "print(len(NAMES))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=False, text=True)
    assert (done.stdout, done.stderr) == ("70\n", "")


@pytest.mark.parametrize("package", ["greenroom", "greenroom.auth", "greenroom.host", "greenroom.supervision"])
def test_an_unknown_name_is_an_attribute_error_of_its_package(package: str) -> None:
    with pytest.raises(AttributeError, match=rf"module '{package}' has no attribute 'Nothing'"):
        _ = importlib.import_module(package).Nothing


@pytest.mark.parametrize("name", ["greenroom.nowhere", "greenroom.actors.nowhere"])
def test_an_unknown_module_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(name)
