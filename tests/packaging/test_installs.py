"""Installations of greenroom in all common ways give the same package."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import greenroom

from .environments import Environment, run

if TYPE_CHECKING:
    from .environments import Found

ROOMS = ("actors", "auth", "supervision", "transports")
QUICK = ("--no-build-isolation",)
"""Build with the locked setuptools from the environment, and not download it for each test."""


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false"]
    return run(["git", *who, *arguments], folder)


@pytest.fixture(scope="module")
def repository(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit of the working tree."""
    copy = tmp_path_factory.mktemp("packaging") / "repository"
    copy.mkdir()
    listing = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listing.split("\0")):
        source = root / name
        if source.is_symlink() or source.exists():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    git(copy, "init", "--quiet", "--initial-branch=main")
    git(copy, "add", "--all")
    # symlinks are committed as links even if the working tree, a clone without symlinks, has files
    for room in ROOMS:
        blob = git(copy, "rev-parse", f":src/greenroom/{room}").strip()
        git(copy, "update-index", "--cacheinfo", f"120000,{blob},src/greenroom/{room}")
    git(copy, "commit", "--quiet", "--message=everything")
    return copy


def clone(repository: Path, target: Path, *options: str) -> Path:
    git(repository.parent, "clone", "--quiet", *options, repository.as_uri(), str(target))
    return target


@pytest.fixture
def empty(tmp_path: Path) -> Environment:
    return Environment.create(tmp_path / "environment")


def healthy(found: Found) -> bool:
    return found.strangers == [] and found.version == greenroom.__version__


def installed(found: Found, environment: Environment) -> bool:
    """Whether every package was copied into the environment."""
    return all(Path(file).is_relative_to(environment.site) for file in found.modules.values())


def linked(found: Found, source: Path) -> bool:
    """Whether every package is imported from its source folder."""
    rooms = {source / room for room in (*ROOMS, "src/greenroom")}
    return all(any(Path(file).resolve().is_relative_to(room) for room in rooms) for file in found.modules.values())


def test_an_empty_environment_has_no_greenroom(empty: Environment) -> None:
    looked = subprocess.run(
        [empty.python, "-c", "import greenroom"], cwd=empty.folder, capture_output=True, check=False, text=True
    )
    assert "No module named 'greenroom'" in looked.stderr


def test_the_wheel_holds_every_module_once_and_nothing_else(
    repository: Path, empty: Environment, tmp_path: Path
) -> None:
    source = clone(repository, tmp_path / "source")
    wheels = tmp_path / "wheels"
    build = [str(empty.python), "-m", "pip", "wheel", "--quiet", "--no-deps", *QUICK]
    run([*build, "--wheel-dir", str(wheels), str(source)], tmp_path)
    (wheel,) = wheels.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    modules = {
        f"greenroom/{path.relative_to(source).as_posix()}" for room in ROOMS for path in (source / room).rglob("*.py")
    }
    modules |= {path.relative_to(source / "src").as_posix() for path in (source / "src").rglob("*.py")}
    pages = source / "src/greenroom/observe"
    data = {
        path.relative_to(source / "src").as_posix()
        for folder in ("static", "templates")
        for path in (pages / folder).rglob("*")
        if path.is_file()
    }
    inside = [name for name in names if ".dist-info/" not in name]
    assert len(set(names)) == len(names)
    assert set(inside) == {*modules, *data, "greenroom/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)

    empty.pip(str(wheel))
    found = empty.look(source)
    assert healthy(found)
    assert installed(found, empty)


@pytest.mark.deep
@pytest.mark.parametrize("symlinks", ["true", "false"])
def test_editable_with_pip(repository: Path, empty: Environment, tmp_path: Path, symlinks: str) -> None:
    source = clone(repository, tmp_path / "source", "-c", f"core.symlinks={symlinks}")
    assert (source / "src/greenroom/actors").is_symlink() is (symlinks == "true")
    empty.pip(*QUICK, "--editable", str(source))
    found = empty.look(source)
    assert healthy(found)
    assert linked(found, source)


@pytest.mark.deep
@pytest.mark.parametrize("symlinks", ["true", "false"])
def test_editable_with_uv(repository: Path, empty: Environment, tmp_path: Path, symlinks: str) -> None:
    source = clone(repository, tmp_path / "source", "-c", f"core.symlinks={symlinks}")
    empty.uv(*QUICK, "--editable", str(source))
    found = empty.look(source)
    assert healthy(found)
    assert linked(found, source)


@pytest.mark.deep
def test_from_git_by_pip_with_its_own_build_environment(repository: Path, empty: Environment) -> None:
    """An isolated build, as users run it: the requirements in pyproject are sufficient."""
    empty.pip(f"git+{repository.as_uri()}")
    found = empty.look(repository)
    assert healthy(found)
    assert installed(found, empty)


@pytest.mark.deep
def test_from_a_clone_without_symlinks(repository: Path, empty: Environment, tmp_path: Path) -> None:
    source = clone(repository, tmp_path / "source", "-c", "core.symlinks=false")
    empty.pip(*QUICK, str(source))
    found = empty.look(source)
    assert healthy(found)
    assert installed(found, empty)


@pytest.mark.deep
def test_from_a_source_distribution(repository: Path, empty: Environment, tmp_path: Path) -> None:
    source = clone(repository, tmp_path / "source")
    program = f"from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))"
    archive = run([str(empty.python), "-c", program], source).split()[-1]
    empty.pip(*QUICK, str(tmp_path / archive))
    found = empty.look(source)
    assert healthy(found)
    assert installed(found, empty)
