"""The repository as the rules see it: texts by path, and the module name and imports of each source file.

A rule takes a `Tree`, so that a test can pass a bad one of three lines and see it refused.
"""

from __future__ import annotations

import ast
import gc
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOMS = ("actors", "auth", "supervision", "transports")
"""The packages that stand at the repository's root."""

FRONT_DOOR_FOLDER = "src/greenroom"

PARTS = {
    "greenroom": {*ROOMS, "cli", "config", "event_types", "observe", "protocol", "pytest_plugin"},
    "greenroom.supervision": {"behaviours", "cluster", "introspect", "kernel", "supervisors", "testing"},
}
"""Names in `from greenroom import …` that are packages or modules, which the rules distinguish from the package's own names."""


@dataclass(frozen=True)
class Import:
    """One import of a source file, anywhere in the file."""

    line: int
    target: str
    dots: int
    whole: str = ""
    """The target with the imported name, which may be a module, too."""

    @property
    def root(self) -> str:
        """The top-level package."""
        return self.target.partition(".")[0]


@dataclass(frozen=True)
class Source:
    """A module of greenroom."""

    path: str
    module: str
    text: str

    @property
    def package(self) -> str:
        """The package that a single dot means in this file."""
        return self.module if self.path.endswith("/__init__.py") else self.module.rpartition(".")[0]

    @cached_property
    def syntax(self) -> ast.Module:
        """The parsed file."""
        return parsed(self.path, self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree, for all rules."""
        return list(ast.walk(self.syntax))

    @cached_property
    def imports(self) -> list[Import]:
        """Everything imported: at the top, in functions, for type checkers, and by name."""
        return [found for node in self.nodes for found in self.imports_of(node)]

    @cached_property
    def loads(self) -> list[Import]:
        """The imports when the module or one of its functions runs, without those for type checkers."""
        return [found for _, found in self._running]

    @cached_property
    def _running(self) -> list[tuple[ast.AST, Import]]:
        skipped = {id(each) for node in self.nodes for one in for_checkers(node) for each in ast.walk(one)}
        return [(node, found) for node in self.nodes if id(node) not in skipped for found in self.imports_of(node)]

    @cached_property
    def loads_at_once(self) -> list[Import]:
        """The imports when the module is imported, without those inside of functions."""
        inner = {
            id(each)
            for node in self.nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for each in ast.walk(node)
        }
        return [found for node, found in self._running if id(node) not in inner]

    def imports_of(self, node: ast.AST) -> Iterator[Import]:
        """The imports of one node."""
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield Import(node.lineno, name.name, 0)
            case ast.ImportFrom(module=module, names=names, level=dots):
                base = self._absolute(module, dots)
                for name in names:
                    part = name.name in PARTS.get(base, ())
                    whole = f"{base}.{name.name}"
                    yield Import(node.lineno, whole if part else base, dots, whole)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield Import(node.lineno, target, 0)
            case _:
                pass

    def _absolute(self, module: str | None, dots: int) -> str:
        if not dots:
            return module or ""
        base = self.package.split(".")
        base = base[: len(base) - dots + 1]
        return ".".join([*base, *([module] if module else [])])


def for_checkers(node: ast.AST) -> list[ast.stmt]:
    """The statements for type checkers only, without those of an `else`."""
    return node.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []


@dataclass(frozen=True)
class Tree:
    """Texts by their path from the root."""

    files: Mapping[str, str]

    @classmethod
    def of(cls, root: Path) -> Tree:
        """The files that git tracks or would track: a new file is checked before it is committed."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        paths = (Path(name) for name in listing if name)
        return cls(dict(_texts(root, paths)))

    @cached_property
    def sources(self) -> list[Source]:
        """The modules that are installed."""
        return [Source(path, module, text) for path, text in self.files.items() if (module := module_of(path))]

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        """Every file of Python, parsed once for all rules."""
        return {path: parsed(path, text) for path, text in self.files.items() if path.endswith(".py")}

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """The parsed pyproject.toml."""
        return tomllib.loads(self.files["pyproject.toml"])


@cache
def parsed(path: str, text: str) -> ast.Module:
    """The parsed Python file, cached for all test modules."""
    was = gc.isenabled()
    gc.disable()  # the parsed trees are all kept: looking for cycles in them took four fifths of the time
    try:
        return ast.parse(text, path)
    finally:
        if was:
            gc.enable()


@cache
def current_tree(root: Path) -> Tree:
    """The current files of the repository, read once for all test modules."""
    return Tree.of(root)


def forget() -> None:
    """Drop all files that were read and parsed. pytest keeps the trees for longer, in reference cycles, so they are emptied."""
    if current_tree.cache_info().currsize:
        house = current_tree(Path(__file__).parents[2])
        for each in (*house.sources, house):
            vars(each).clear()
    current_tree.cache_clear()
    parsed.cache_clear()


def module_of(path: str) -> str | None:
    """The module name of a file of the product: `auth/tokens.py` is `greenroom.auth.tokens`. None for other files."""
    pure = PurePosixPath(path)
    if pure.suffix != ".py":
        return None
    if path.startswith(f"{FRONT_DOOR_FOLDER}/"):
        parts = pure.with_suffix("").parts[1:]
    elif pure.parts[0] in ROOMS:
        parts = ("greenroom", *pure.with_suffix("").parts)
    else:
        return None
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _texts(root: Path, paths: Iterator[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        file = root / path
        if file.is_symlink() or not file.is_file():
            continue
        try:
            yield path.as_posix(), file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
