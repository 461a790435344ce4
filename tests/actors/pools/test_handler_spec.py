"""Which handlers other processes can find, and the errors for the others at registration."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Pool, RegistrationError, Server
from greenroom.actors.catalogue_entries import tool_entry
from greenroom.actors.handler_options import ImportPath, ToolOptions, import_path_of, verify_import_path
from greenroom.actors.pools.handler_spec import load_function, spec_of

from . import handlers

if TYPE_CHECKING:
    from pathlib import Path


def inside() -> Any:
    def closure() -> None: ...

    return closure


REFUSED: list[tuple[Any, str]] = [
    (handlers.LAMBDA, "a lambda has no name"),
    (inside(), r"closure is made inside of inside\(\)"),
    (partial(handlers.sleeps, 1.0), "a partial has no name"),
    (handlers.SHOP.sell, "Shop.sell is bound to an object"),
    ((1).__add__, "object of this process"),
]


@pytest.mark.parametrize(("function", "why"), REFUSED, ids=lambda value: str(value)[:20])
def test_handlers_that_no_other_process_could_find_are_refused_with_the_reason(function: Any, why: str) -> None:
    with pytest.raises(RegistrationError, match=f"tool 't': .*{why}.*: write it as a function at the top of a module"):
        import_path_of("tool 't'", function)


@pytest.mark.parametrize(
    "function",
    [handlers.add, vars(handlers.doubled)["__wrapped__"], handlers.tripled, handlers.Shop.price, handlers.bare],
)
def test_a_function_is_found_where_it_stands_under_all_its_wrappers(function: Any) -> None:
    found = verify_import_path("tool 't'", function, import_path_of("tool 't'", function))
    assert load_function(found, None) is function


def test_a_function_whose_name_leads_to_another_is_refused_before_it_is_called() -> None:
    shadowed = handlers.timed(handlers.add)  # it has the name of `add`, and is not what stands there
    entry = tool_entry("t", shadowed, ToolOptions(isolation="process"))
    with pytest.raises(RegistrationError, match="is not the function that was registered"):
        spec_of(entry)


async def test_a_server_with_such_a_function_says_so_when_it_starts() -> None:
    server = Server("x")
    server.tool("t", isolation="process")(handlers.timed(handlers.add))
    with pytest.raises(Exception, match="is not the function that was registered") as failed:
        async with server.started():
            pass
    assert isinstance(failed.value.__cause__, RegistrationError)


def test_a_function_that_was_typed_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys  # noqa: PLC0415 - what it is about
    from types import ModuleType  # noqa: PLC0415 - same

    def typed() -> None: ...

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(RegistrationError, match="is in no file"):
        import_path_of("tool 't'", typed)


@pytest.mark.parametrize("isolation", ["moon", 3, object()])
def test_isolation_has_four_words_and_pools(isolation: Any) -> None:
    with pytest.raises(RegistrationError, match="isolation is "):
        tool_entry("t", handlers.add, ToolOptions(isolation=isolation))


def test_the_function_stays_what_it_was() -> None:
    server = Server("x")
    assert server.tool(isolation="process")(handlers.add) is handlers.add
    assert server.tool("again", isolation=Pool(size=1))(handlers.add) is handlers.add


def test_a_place_says_itself() -> None:
    assert str(ImportPath("pictures", "render")) == "pictures:render"


@pytest.mark.parametrize(("guard", "refused"), [('if __name__ == "__main__":', True), ("if True:", False)])
def test_a_handler_under_the_guard_of_a_program_is_refused_before_its_first_call(
    guard: str, *, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import functools\n\n{guard}\n    @functools.cache\n    def g(): ...\n    f = g.__wrapped__\n")
    main = ModuleType("__main__")
    main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(file.read_text(), str(file), "exec"), main.__dict__)
    found = ImportPath("__main__", "f")
    if refused:
        with pytest.raises(RegistrationError, match="tool 'f': it is defined under `if __name__"):
            verify_import_path("tool 'f'", main.f, found)
    else:
        assert verify_import_path("tool 'f'", main.f, found) == found
