"""Callables as tools: functions, methods, partials, objects; and refusals at registration with their reasons."""

import functools
import importlib.util
import sys
from collections.abc import Callable
from datetime import date
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import annotated_types
import pytest

from greenroom.protocol.function_parameters import BadHint, docstring_of
from greenroom.protocol.type_schemas import Mismatch, arguments_of, schema_of


@pytest.fixture
def late() -> ModuleType:
    """A module whose hints are strings."""
    path = Path(__file__).with_name("string_annotations.py")
    spec = importlib.util.spec_from_file_location("string_annotations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["string_annotations"] = module  # where dataclasses resolve their hints
    spec.loader.exec_module(module)
    return module


def problems(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[tuple[str | int, ...], str]:
    """Path -> the kind of the mistake there."""
    with pytest.raises(Mismatch) as caught:
        arguments_of(function).bind(arguments)
    return {path: reason.kind for path, reason in caught.value.errors}


# --- supported callables


def test_methods_partials_and_callable_objects() -> None:
    class Shop:
        def sell(self, item: str) -> None:
            """Sell it.

            Args:
                item: what
            """

        @classmethod
        def close(cls, when: date) -> None: ...

        @staticmethod
        def greet(name: str) -> None: ...

        def __call__(self, count: int) -> None:
            """Count.

            Args:
                count: how many
            """

    shop = Shop()
    assert arguments_of(shop.sell).schema["properties"] == {"item": {"type": "string", "description": "what"}}
    assert set(arguments_of(Shop.close).schema["properties"]) == {"when"}
    assert set(arguments_of(Shop.greet).schema["properties"]) == {"name"}
    assert arguments_of(shop).schema["properties"] == {"count": {"type": "integer", "description": "how many"}}
    assert docstring_of(shop) == "Count.\n\nArgs:\n    count: how many"


def test_arguments_bound_by_a_partial_cannot_be_sent() -> None:
    def add(a: int, b: int, c: int = 1) -> int:
        """Add them."""
        return a + b + c

    part = functools.partial(functools.partial(add, 1), c=3)
    arguments = arguments_of(part)
    assert set(arguments.schema["properties"]) == {"b"}
    assert part(**arguments.bind({"b": 2})) == 6
    assert problems(part, {"b": 2, "c": 4}) == {("c",): "unexpected_property"}
    assert docstring_of(part) == "Add them."


def test_a_decorated_function_is_the_function_inside() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @logged
    def tool(a: int) -> None: ...

    assert set(arguments_of(tool).schema["properties"]) == {"a"}


def test_hints_that_are_strings(late: ModuleType) -> None:
    arguments = arguments_of(late.tree)
    assert set(arguments.schema["properties"]) == {"root"}
    bound = arguments.bind({"root": {"name": "a", "inner": [{"name": "b"}]}})
    assert bound == {"root": late.Leaf("a", [late.Leaf("b")])}
    assert schema_of(late.Leaf)["$defs"]["Leaf"]["properties"]["inner"]["anyOf"][0]["items"] == {"$ref": "#/$defs/Leaf"}


def test_names_for_hints_may_be_given() -> None:
    def tool(a: int) -> None: ...

    tool.__annotations__["a"] = "Local"
    assert arguments_of(tool, names={"Local": int}).schema["properties"] == {"a": {"type": "integer"}}


def test_a_parameter_without_a_hint_takes_anything() -> None:
    def tool(a: Any, b: Any = 1) -> None: ...

    tool.__annotations__.clear()
    assert arguments_of(tool).schema["properties"] == {"a": {}, "b": {"default": 1}}


# --- refusals at registration


def args(*values: int) -> None: ...
def kwargs(**values: int) -> None: ...
def positional(a: int, /) -> None: ...
def callback(done: Callable[[], None]) -> None: ...
def number(it: complex) -> None: ...
def code(a: Annotated[int, annotated_types.Predicate(lambda it: it > 1)]) -> None: ...


class Mixed(Enum):
    A = 1
    B = "b"


def mixed(it: Mixed) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (args, r"args: \*values has no names.*take a list"),
        (kwargs, r"kwargs: \*\*values has no schema.*dict"),
        (positional, "positional: a is positional-only.*remove the `/`"),
        (callback, "callback: done has no schema.*Callable.*cannot be expressed in JSON"),
        (number, "number: it has no schema.*complex.*cannot be expressed in JSON"),
        (mixed, "mixed: it has no schema.*all str or all int"),
        (code, "Predicate.*inside the function"),
        (print, r"print: \*args"),
        (dict, "dict: its parameters cannot be read"),
    ],
)
def test_a_function_that_cannot_be_offered_is_refused_with_the_reason(function: Any, reason: str) -> None:
    with pytest.raises(BadHint, match=reason):
        arguments_of(function)


def test_names_that_are_only_there_for_checkers_are_refused(late: ModuleType) -> None:
    with pytest.raises(BadHint, match=r"unresolvable: the hint of amount uses 'OnlyForCheckers'.*TYPE_CHECKING"):
        arguments_of(late.unresolvable)
