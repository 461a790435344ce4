"""A Thespian other than the known release does not run: nothing is started, and the caller is told what to install."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest

from greenroom.supervision.cluster import thespian_patches as versions
from greenroom.supervision.cluster.node_records import EngineFailed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of what is replaced."""
    installed = Path(str(metadata.distribution("thespian").locate_file("thespian")))
    for name in versions.PATCHED_FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(installed / name, tmp_path / name)
    return tmp_path


def test_the_one_that_is_installed_is_known(folder: Path) -> None:
    versions.check_thespian()
    versions.check_thespian(folder)


def test_another_release_is_refused() -> None:
    with pytest.raises(EngineFailed, match=r"Thespian 4\.0\.2 is installed.*pip install thespian==4\.0\.1"):
        versions.check_thespian(version="4.0.2")


@pytest.mark.parametrize("name", versions.PATCHED_FILES)
def test_a_release_of_the_same_name_with_other_insides_is_refused(folder: Path, name: str) -> None:
    changed = folder / name
    changed.write_text(changed.read_text(encoding="utf-8") + "\n# patched\n", encoding="utf-8")
    with pytest.raises(EngineFailed, match=f"{name} is not that of release"):
        versions.check_thespian(folder)


def test_the_ends_of_lines_do_not_matter(folder: Path) -> None:
    for name in versions.PATCHED_FILES:
        (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))
    versions.check_thespian(folder)


def test_insides_that_cannot_be_read_are_refused(folder: Path) -> None:
    (folder / "system/systemBase.py").unlink()
    with pytest.raises(EngineFailed, match=r"cannot read Thespian's system/systemBase\.py"):
        versions.check_thespian(folder)
