"""Files of other projects that the pages use: unchanged, with their licences, and asking nothing of any other site."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import greenroom.observe

FOLDER = Path(greenroom.observe.__file__).parent / "static" / "vendor"
LIST = "hashes.toml"


def packages() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((FOLDER / LIST).read_text(encoding="utf-8"))["package"]
    return found


@pytest.mark.parametrize("package", packages(), ids=lambda each: each["name"])
def test_each_vendored_file_is_what_its_package_published(package: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
    assert package["license"] in ("0BSD", "MIT")
    assert package["integrity"].startswith("sha512-")
    for file in package["file"]:
        assert hashlib.sha256((FOLDER / file["name"]).read_bytes()).hexdigest() == file["sha256"], file["name"]
    assert any(file["name"].endswith(".LICENSE") for file in package["file"])


def test_nothing_is_vendored_that_the_list_does_not_name() -> None:
    named = [file["name"] for package in packages() for file in package["file"]]
    assert sorted([*named, LIST]) == sorted(path.name for path in FOLDER.iterdir())


def test_no_script_of_ours_evaluates_text_and_none_names_another_site() -> None:
    own = (FOLDER.parent / "observer.js").read_text(encoding="utf-8")
    assert not re.search(r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://", own)
    style = (FOLDER.parent / "observer.css").read_text(encoding="utf-8")
    assert not re.search(r"@import|url\(|@font-face", style)
