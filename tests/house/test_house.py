"""The repository keeps the rules, and each rule refuses its violations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import language, rules, shape, suite
from .routes import routes
from .tree import FRONT_DOOR_FOLDER, ROOMS, Tree, current_tree

if TYPE_CHECKING:
    from collections.abc import Callable

PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
[project]
dependencies = ["anyio>=4", "quart>=0.20", "joserfc", "thespian==4.0.1"]
[project.optional-dependencies]
keyring = ["keyring>=25"]
[dependency-groups]
dev = ["pyright[nodejs]>=1.1"]
[tool.setuptools]
packages = ["greenroom", "greenroom.supervision"]
[tool.setuptools.package-dir]
"" = "src"
"greenroom.actors" = "actors"
"greenroom.auth" = "auth"
"greenroom.supervision" = "supervision"
"greenroom.transports" = "transports"
[tool.mypy]
files = ["src"]
[tool.pyright]
include = ["src", "src/greenroom/actors", "src/greenroom/auth", "src/greenroom/supervision", "src/greenroom/transports"]
"""


@pytest.fixture(scope="module")
def house(root: Path) -> Tree:
    return current_tree(root)


@pytest.mark.parametrize(
    "rule", [*rules.RULES, *suite.RULES, *language.RULES, shape.proportions], ids=lambda rule: rule.__name__
)
def test_the_code_keeps_the_rule(house: Tree, rule: Callable[[Tree], list[str]]) -> None:
    broken = rule(house)
    assert not broken, "\n".join(broken)


def test_the_tree_contains_every_room(house: Tree) -> None:
    assert {"greenroom", *(f"greenroom.{room}" for room in ROOMS)} <= {source.module for source in house.sources}


@pytest.mark.row("FM-05")
def test_no_module_imports_a_models_library_or_knows_where_a_model_is_served(house: Tree) -> None:
    models = (
        "anthropic",
        "google",
        "groq",
        "langchain",
        "litellm",
        "llama_index",
        "mistralai",
        "ollama",
        "openai",
        "transformers",
        "vertexai",
    )
    hosts = (
        "api.openai.com",
        "api.anthropic.com",
        "generativelanguage.googleapis.com",
        "api.mistral.ai",
        "openrouter.ai",
        ":11434",
    )
    sources = house.sources
    assert len(sources) > 300
    assert [f"{each.path}: {one.root}" for each in sources for one in each.imports if one.root in models] == []
    assert [f"{each.path}: {host}" for each in sources for host in hosts if host in each.text] == []


def test_the_links_for_type_checkers_lead_to_the_rooms(root: Path) -> None:
    for room in ROOMS:
        link = root / FRONT_DOOR_FOLDER / room
        # in a clone without symlinks this is a file with the link's target
        leads_to = link.readlink() if link.is_symlink() else link.read_text(encoding="utf-8").strip()
        assert Path(leads_to) == Path("..", "..", room)


def bad(**files: str) -> Tree:
    """A small repository: `__` in a name is a slash."""
    texts = {f"{name.replace('__', '/')}.py": text for name, text in files.items()}
    return Tree({"pyproject.toml": PYPROJECT, **texts})


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("supervision/kernel/pid", "from greenroom.supervision.behaviours import call"),
        ("supervision/kernel/pid", "from greenroom.supervision import Supervisor"),
        ("supervision/kernel/pid", "from greenroom.supervision import testing"),
        ("supervision/behaviours/task", "import greenroom.supervision.supervisors.child_spec"),
        ("supervision/supervisors/child_spec", "import greenroom.supervision.cluster"),
        ("supervision/testing", "from . import Supervisor"),
        ("supervision/kernel/pid", "from greenroom.actors.session import Session"),
        ("transports/stdio", "from greenroom import auth"),
        ("transports/stdio", "def f():\n    from greenroom.actors import registry"),
        ("transports/stdio", "if TYPE_CHECKING:\n    import greenroom.auth.tokens"),
        ("transports/stdio", "import importlib\nimportlib.import_module('greenroom.actors')"),
        ("auth/tokens", "from greenroom.actors import session"),
        ("actors/session", "from greenroom import Server"),
        ("actors/session", "from greenroom.config import Settings"),
        ("src/greenroom/protocol/frames", "from greenroom.supervision.kernel import errors"),
        ("src/greenroom/server", "from .cli import main"),
        ("src/greenroom/__init__", "from .cli import main"),
        ("src/greenroom/config/config_reader", "from greenroom.host import Host"),
    ],
)
def test_an_import_of_a_higher_layer_is_refused(path: str, line: str) -> None:
    assert len(rules.layers(Tree({f"{path}.py": line}))) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("supervision/behaviours/task", "from greenroom.supervision.kernel import pid"),
        ("supervision/supervisors/dynamic_supervisor", "from .spec import ChildSpec"),
        ("supervision/testing", "from .kernel.clock import Clock"),
        ("supervision/testing", "from greenroom.supervision.kernel.clock import Clock"),
        ("supervision/testing", "from greenroom.supervision.kernel import clock"),
        ("actors/session", "from greenroom.supervision import GenServer"),
        ("actors/session", "from greenroom.protocol import frames"),
        ("src/greenroom/server", "from greenroom.actors import registry"),
        ("src/greenroom/cli", "from . import Server"),
        ("src/greenroom/cli", "from greenroom.config import values"),
        ("src/greenroom/host", "from greenroom.config.config_reader import read"),
        ("src/greenroom/config/config_reader", "from .host_config import HostConfig"),
        ("supervision/kernel/errors", "from greenroom.errors import GreenroomError"),
        ("src/greenroom/protocol/errors", "from greenroom.errors import GreenroomError"),
    ],
)
def test_imports_of_lower_layers_in_the_right_form_are_allowed(path: str, line: str) -> None:
    tree = Tree({f"{path}.py": line})
    assert rules.layers(tree) == []
    assert rules.import_form(tree) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("supervision/behaviours/task", "from ..kernel import pid"),
        ("supervision/kernel/node", "from greenroom.supervision.kernel.process_messages import Pid"),
        ("supervision/kernel/node", "from greenroom.supervision.kernel import pid"),
        ("supervision/testing", "from greenroom.supervision import introspect"),
        ("supervision/testing", "from greenroom.supervision.introspect import tree"),
        ("actors/session", "import actors"),
        ("actors/session", "from auth import tokens"),
        ("src/greenroom/server", "from .actors import session"),
        ("src/greenroom/server", "from greenroom.context import Context"),
        ("src/greenroom/protocol/frames", "from ..errors import PeerError"),
    ],
)
def test_an_import_in_the_wrong_form_is_refused(path: str, line: str) -> None:
    assert len(rules.import_form(Tree({f"{path}.py": line}))) == 1


@pytest.mark.parametrize(
    ("path", "line", "inner"),
    [
        ("actors/session", "from greenroom.supervision.kernel.process_lookup import current", "kernel.process_lookup"),
        ("actors/session", "def f():\n    from greenroom.supervision.kernel import clock", "kernel.clock"),
        ("actors/session", "import greenroom.supervision.cluster.link", "cluster.link"),
        ("actors/session", "if TYPE_CHECKING:\n    from greenroom.supervision import kernel", "kernel"),
        ("actors/session", "from greenroom.supervision.cluster import Cluster, values", None),
        ("actors/session", "from greenroom.supervision.fair_queue import FairQueue", None),
        ("actors/session", "from greenroom.supervision import GenServer, clock", None),
        ("supervision/groups", "from .kernel import clock", None),
    ],
)
def test_supervision_is_imported_by_its_public_modules(path: str, line: str, inner: str | None) -> None:
    tree = Tree({f"{path}.py": line})
    assert [wrong.split()[2] for wrong in rules.public_modules(tree, {})] == ([inner] if inner else [])
    assert rules.public_modules(tree, {inner: "a reason"} if inner else {}) == []


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("actors/session", "from greenroom.protocol.versions import LATEST", True),
        ("actors/session", "from greenroom.protocol import versions", True),
        ("transports/http_engine", 'newest = said == "2025-11-25"', True),
        ("src/greenroom/protocol/dialect", "from .versions import LATEST", False),
        ("src/greenroom/protocol/dialect", 'newest = said == "2025-11-25"', False),
        ("actors/session", "from greenroom.protocol.dialect import dialect_of", False),
        ("actors/session", 'about = "revision 2025-11-25 has it"', False),
    ],
)
def test_code_outside_of_protocol_asks_the_dialect_and_not_the_revision(path: str, line: str, wrong: bool) -> None:  # noqa: FBT001
    assert bool(rules.revisions(Tree({f"{path}.py": line}))) is wrong


def test_a_way_past_the_public_module_that_is_not_used_is_refused() -> None:
    assert rules.public_modules(Tree({}), {"kernel.forks": "a reason"}) == [
        "kernel.forks: other rooms may import it, and none does: take it out of the table"
    ]


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("actors/session", "now = self._otp_process.node.now()", True),
        ("src/greenroom/host", "async def _otp_bring_up(self): ...", True),
        ("supervision/statem/gen_statem", "self._otp_process", False),
        ("actors/session", "self.process", False),
    ],
)
def test_the_names_of_behaviours_are_refused_outside_of_supervision(path: str, line: str, wrong: bool) -> None:  # noqa: FBT001
    assert bool(rules.engine_names(Tree({f"{path}.py": line}))) is wrong


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"auth__a": "import joserfc", "auth__b": "from joserfc import jwt"}, "more than one door"),
        (
            {"auth__a": "def f():\n    import keyring.backends", "auth__b": "from keyring import errors"},
            "more than one",
        ),
        ({"actors__a": "import quart"}, "the door of quart is in transports/"),
        ({"supervision__kernel__a": "import thespian.actors"}, "the door of thespian is in supervision/cluster/"),
        ({"actors__a": "import requests"}, "no dependency"),
    ],
)
def test_a_second_importer_or_a_wrong_folder_or_an_unknown_library_is_refused(
    files: dict[str, str], complaint: str
) -> None:
    (wrong,) = rules.single_importers(bad(**files))
    assert complaint in wrong


def test_anyio_may_be_imported_anywhere_and_other_libraries_by_one_file() -> None:
    tree = bad(auth__a="import anyio, joserfc, json", auth__b="import anyio", supervision__cluster__c="import thespian")
    assert rules.single_importers(tree) == []


def test_thespian_modules_may_be_imported_by_few() -> None:
    tree = bad(
        supervision__cluster__daemon="from . import thespian_patches\nfrom .thespian_system import ThespianSystem",
        supervision__cluster__daemon_main="from .thespian_system import ThespianSystem",
        actors__thespian_guests__guest="from greenroom.supervision.cluster.thespian_patches import Actor",
    )
    assert [wrong.partition(": ")[0] for wrong in rules.engine_importers(tree)] == [
        "supervision/cluster/daemon.py:1",
        "supervision/cluster/daemon.py:2",
    ]


def test_unlisted_and_missing_packages_and_folders_without_init_are_refused() -> None:
    files = {"src/greenroom/__init__.py": "", "auth/__init__.py": "", "actors/session.py": ""}
    assert rules.packages(Tree({"pyproject.toml": PYPROJECT, **files})) == [
        "pyproject.toml: greenroom.auth is not listed",
        "pyproject.toml: greenroom.supervision is listed, and is no package",
        "greenroom.actors: modules without an __init__.py",
    ]


def test_a_room_missing_in_package_dir_is_refused() -> None:
    blind = PYPROJECT.replace('"greenroom.auth" = "auth"\n', "")
    files = {"src/greenroom/__init__.py": "", "supervision/__init__.py": ""}
    assert rules.packages(Tree({"pyproject.toml": blind, **files})) == [
        "pyproject.toml: package-dir does not name src and the rooms"
    ]


def test_folders_that_a_type_checker_does_not_see_are_refused() -> None:
    blind = PYPROJECT.replace('"src/greenroom/auth", ', "")
    files = {"src/greenroom/__init__.py": "", "auth/__init__.py": "", "docs/conf.py": "", "examples/one.py": ""}
    assert rules.type_checked(Tree({"pyproject.toml": blind, **files})) == [
        "pyproject.toml: mypy does not see examples",
        "pyproject.toml: pyright does not see examples",
        "pyproject.toml: pyright does not see src/greenroom/auth",
    ]


def test_long_files_need_a_reason_and_reasons_need_a_long_file() -> None:
    tree = bad(auth__long="x = 1\n" * 701, auth__short="x = 1\n" * 700)
    assert rules.long_files(tree, {}) == ["auth/long.py: 701 lines"]
    assert rules.long_files(tree, {"auth/long.py": "because"}) == ["auth/long.py: 701 lines"]
    assert rules.long_files(tree, {"auth/long.py": "one table, read as a whole"}) == []
    reason = "one table, read as a whole"
    assert rules.long_files(tree, {"auth/long.py": reason, "auth/short.py": reason}) == [
        "auth/short.py: listed as long, and has at most 700 lines"
    ]


def test_a_file_without_a_docstring_is_refused() -> None:
    assert rules.docstrings(bad(auth__silent="x = 1", auth__told='"""I hold tokens."""')) == [
        "auth/silent.py: no docstring"
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("see /", "home/ann/notes"),
        ("cd /", "tmp/build"),
        ("C:", "\\Windows"),
        ("https://pypi", ".org/simple"),
        ("files.python", "hosted.org"),
    ],
)
def test_local_paths_and_package_indexes_are_refused(words: tuple[str, str]) -> None:
    assert len(rules.local_addresses(Tree({"docs/page.md": "fine\n" + "".join(words)}))) == 1


def test_other_paths_are_allowed() -> None:
    text = "docs/tmp/x, {root}/tmp/y, https://example.com/home/page, a /path and /etc/hosts"
    assert rules.local_addresses(Tree({"docs/page.md": text})) == []


def test_a_dependency_must_be_imported_by_reachable_code() -> None:
    def unused(**files: str) -> list[str]:
        tree = Tree(
            {
                "pyproject.toml": PYPROJECT,
                **{
                    f"{path.replace('__', '/').replace('/init/', '/__init__')}.py": text for path, text in files.items()
                },
            }
        )
        return [wrong.split()[1] for wrong in rules.used_dependencies(tree)]

    door = {"src__greenroom__init__": '_HOMES = {"Server": "greenroom.server"}'}
    needed = ["anyio", "joserfc", "keyring", "quart", "thespian"]
    assert unused(**door, src__greenroom__server="x = 1") == needed
    lazily = "def f():\n    import quart, anyio\n    from greenroom.auth import jose\n"
    assert unused(**door, src__greenroom__server=lazily, auth__jose="import joserfc") == ["keyring", "thespian"]
    for_checkers = "if TYPE_CHECKING:\n    import quart\n"
    assert unused(**door, src__greenroom__server=for_checkers) == needed
    assert unused(**door, src__greenroom__server="x = 1", actors__alone="import quart") == needed
    assert (
        unused(**door, src__greenroom__server="import greenroom.testing.a", src__greenroom__testing__a="import quart")
        == needed
    )


def test_the_dependencies_page_is_complete_and_only_that() -> None:
    page = "- **anyio**: the edges.\n- **quart**: the app.\n- **quart**: again.\n- **flask**: no.\n- **joserfc**: \n"
    assert rules.dependencies_page(Tree({"pyproject.toml": PYPROJECT, "docs/dependencies.md": page})) == [
        "docs/dependencies.md: nothing about joserfc",
        "docs/dependencies.md: nothing about keyring",
        "docs/dependencies.md: nothing about pyright",
        "docs/dependencies.md: nothing about setuptools",
        "docs/dependencies.md: nothing about thespian",
        "docs/dependencies.md: flask is no dependency",
        "docs/dependencies.md: quart twice",
    ]


def test_the_lock_pins_everything_with_hashes_and_without_addresses() -> None:
    def entry(name: str) -> str:
        return f"{name} \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n    # via greenroom\n"

    good = "".join(
        map(entry, ("anyio==4.9", "joserfc==1 ; python_version < '4'", "keyring==1", "pyright==1", "quart==1"))
    )
    files = {"pyproject.toml": PYPROJECT, "requirements/build.txt": entry("setuptools==77")}
    assert rules.lock_files(Tree({**files, "requirements/dev.txt": good + entry("thespian==4.0.1")})) == []
    sloppy = good + "loose>=1\nbare==1\nthere @ https://example.com/x.whl\n"
    assert rules.lock_files(Tree({**files, "requirements/dev.txt": sloppy})) == [
        "requirements/dev.txt: loose>=1 without version or hash",
        "requirements/dev.txt: bare without version or hash",
        "requirements/dev.txt: there without version or hash",
        "requirements/dev.txt: there with an address",
        "requirements: thespian is not locked: make lock",
    ]


def test_the_run_and_docs_locks_have_the_versions_of_the_dev_lock() -> None:
    def lock(*pins: str) -> str:
        return "".join(f"{pin} \\\n    --hash=sha256:{'0' * 64}\n" for pin in pins)

    files = {
        "pyproject.toml": PYPROJECT,
        "requirements/dev.txt": lock("anyio==4.9", "quart==1", "quart==2"),
        "requirements/run.txt": lock("anyio==4.8", "quart==1"),
        "requirements/docs.txt": lock("quart==3", "sphinx==8"),
    }
    assert [told for told in rules.lock_files(Tree(files)) if "another" in told] == [
        "requirements/docs.txt: quart is 3 here and another in requirements/dev.txt: make lock",
        "requirements/run.txt: anyio is 4.8 here and another in requirements/dev.txt: make lock",
    ]


def test_locks_of_referees_are_checked_and_do_not_count_for_ours() -> None:
    needed = ("anyio==4.9", "joserfc==1", "keyring==1", "pyright==1", "quart==1", "thespian==4.0.1")
    text = "".join(f"{name} \\\n    --hash=sha256:{'0' * 64}\n" for name in needed)
    files = {
        "pyproject.toml": PYPROJECT,
        "requirements/build.txt": f"setuptools==77 \\\n    --hash=sha256:{'0' * 64}\n",
        "requirements/referees/peer.txt": f"{text}loose>=1\n",
        "requirements/referees/node/package-lock.json": '{"packages": {"x": {"resolved": "somewhere"}}}',
    }
    assert rules.lock_files(Tree({**files, "requirements/dev.txt": text})) == [
        "requirements/referees/peer.txt: loose>=1 without version or hash",
        "requirements/referees/node/package-lock.json: an address for each package; npm can be told to leave them out",
    ]
    assert rules.lock_files(Tree({**files, "requirements/dev.txt": ""}))[2:] == [
        f"requirements: {name.partition('==')[0]} is not locked: make lock" for name in needed
    ]


def test_a_small_module_with_one_importer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x = 1\n" * shape.SMALL
    small = bad(
        auth__a="from .b import x\nfrom .c import x\nfrom .d import x",
        auth__b="x = 1",
        auth__c=long,
        auth__d="x = 1",
        auth__e="from . import d",
    )
    assert shape.small_modules(small) == ["auth/b.py"]
    monkeypatch.setattr(shape, "MOST_SMALL", 0)
    assert any(wrong.startswith("auth/b.py: shorter than") for wrong in shape.proportions(small))


def test_headers_and_code_are_told_apart() -> None:
    text = '"""It is\n\nthis."""\n\nimport a\nfrom b import (\n    c,\n)\n\n# why\nx = """\n\n"""\n\n\ndef f():\n    """Says."""\n    import d\n    return x\n'
    (source,) = bad(auth__a=text).sources
    assert (shape.header_lines(source), shape.code_lines(source)) == (8, 10)
    assert shape.proportions(bad(auth__a=text)) == [
        f"42.1% of all lines are headers, and may be {shape.MOST_HEADERS:.1%}"
    ]


async def test_a_call_passes_the_expected_modules() -> None:
    served, called = await routes()
    assert {"greenroom.transports.http_engine", "greenroom.actors.session_calls"} <= served.modules.keys()
    assert {"greenroom.client", "greenroom.transports.client.http_wire"} <= called.modules.keys()
    assert not served.modules.keys() & {"greenroom.client"}
    assert 0 < served.changes(above=True) < served.changes() < len(served.modules)
    assert +called.sent == {"RequestPost": 1, "ResponseHead": 1}
