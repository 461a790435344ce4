"""How what a peer sends becomes what a function is called with: one binder for each style in which handlers are written.

A binder is made when the function is registered, and refuses there what could never be called. `bind` runs at each call, and raises
`Mismatch` with everything that is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Protocol, get_origin

from greenroom.protocol.hints import MISSING, BadHint, parameters_of, why_no_value
from greenroom.protocol.problems import Mismatch, Problem, Reason
from greenroom.protocol.schemas import arguments_of, filled, into

from .catalogue import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from greenroom.protocol.hints import Parameter

OPEN: Final[Mapping[str, Any]] = {"type": "object"}
"""The schema of whatever there may be."""
_ALL_OF_THEM: Final = frozenset({"args", "arguments", "params"})
"""What a function calls the one parameter that takes all arguments."""
_DICTS: Final = frozenset({dict, Mapping, MutableMapping})


class Binder(Protocol):
    """Arguments as they came in, keyword arguments out."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """What peers are told that it takes."""
        ...

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What to call the function with. Raises `Mismatch`."""
        ...


class Whole:
    """`def tool(args)`: all arguments in one dict. In a tool, `args: dict` is an argument like any other, as it is in other libraries."""

    def __init__(self, name: str, schema: Mapping[str, Any] = OPEN) -> None:
        """`name` is the parameter."""
        self._name = name
        self.schema = schema

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A dict of its own, which the function may change."""
        return {self._name: dict(arguments)}


class Bare:
    """`def tool(city, days=3)` beside a schema that was written by hand: arguments by name, as they came."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter], schema: Mapping[str, Any]) -> None:
        """The function's parameters without the context. Raises `BadHint` for a default that only a schema from hints would be made of."""
        self.schema = schema
        for each in parameters.values():
            if why := why_no_value(each.default):
                raise BadHint(f"{each.name}: its default is {why}")
        kinds = {each.kind for each in parameters.values()}
        self._open = inspect.Parameter.VAR_KEYWORD in kinds
        named = [each for each in parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        self._names = frozenset(each.name for each in named)
        self._required = [each.name for each in named if each.default is MISSING]

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What is missing, or is there for nobody, is told."""
        missing = [name for name in self._required if name not in arguments]
        unknown = [] if self._open else [name for name in arguments if name not in self._names]
        if missing or unknown:
            raise Mismatch(
                [Problem((name,), Reason("is missing", "missing_required")) for name in missing]
                + [Problem((name,), Reason("there is no such argument", "unexpected_property")) for name in unknown]
            )
        return dict(arguments)


class Texts:
    """Where peers can send texts only: prompts, and the variables of templates. A hint that is no text is held to what it says."""

    def __init__(self, parameters: Collection[Parameter]) -> None:
        """By name."""
        self.parameters = {each.wire: each for each in parameters}
        self._typed = {each.wire: each.hint for each in parameters if each.hint not in (str, Any, MISSING)}
        self._required = [each.wire for each in parameters if each.required]
        self.schema = OPEN

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Texts, and what they stand for where the function wants something else: "3", "true", "[1, 2]"."""
        problems = [
            Problem((name,), Reason("is missing", "missing_required"))
            for name in self._required
            if name not in arguments
        ]
        bound: dict[str, Any] = {}
        for name, value in arguments.items():
            if name not in self.parameters:
                problems.append(Problem((name,), Reason("there is no such argument", "unexpected_property")))
                continue
            try:
                bound[name] = _from_text(self._typed[name], value) if name in self._typed else value
            except Mismatch as error:
                problems += [Problem((name, *each.path), each.reason) for each in error.errors]
        if problems:
            raise Mismatch(problems)
        return filled(self.parameters.values(), bound)


def _from_text(hint: Any, text: Any) -> Any:
    """What the text stands for: itself if the hint takes it, else the JSON that it is."""
    from greenroom.protocol.errors import RemoteProtocolError  # noqa: PLC0415 - who takes texts never loads them
    from greenroom.protocol.json import decode  # noqa: PLC0415 - same

    try:
        return into(hint, text)
    except Mismatch:
        try:
            value = decode(str(text).encode())
        except RemoteProtocolError:
            value = text
        return into(hint, value)


def binder_of(function: Callable[..., Any], context: str | None, schema: Mapping[str, Any] | None) -> Binder:
    """The binder of a tool. `context` is the parameter that gets the context, `schema` what was written by hand."""
    skip = () if context is None else (context,)
    parameters = parameters_by_name(function, skip)
    whole = _whole(parameters, schema)
    if whole is not None and (schema is not None or parameters[whole].annotation is MISSING):
        return Whole(whole, OPEN if schema is None else schema)
    if schema is None:
        return arguments_of(function, skip)
    for each in parameters.values():
        if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            raise BadHint(f"{each} cannot be given by name, and arguments come by name: take it by its name")
    return Bare(parameters, schema)


def texts_of(function: Callable[..., Any], context: str | None) -> Texts | Whole:
    """The binder of a prompt, or of a template's variables."""
    skip = () if context is None else (context,)
    whole = _whole(parameters_by_name(function, skip), None)
    return Texts(parameters_of(function, skip)) if whole is None else Whole(whole)


def parameters_by_name(function: Callable[..., Any], skip: Collection[str]) -> dict[str, inspect.Parameter]:
    """What a function takes, besides what is not for peers."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"the parameters of {function!r} cannot be read ({error}): wrap it in a function"
        ) from None
    return {name: each for name, each in signature.parameters.items() if name not in skip}


def _whole(parameters: Mapping[str, inspect.Parameter], schema: Mapping[str, Any] | None) -> str | None:
    """The one parameter that takes all arguments in a dict, if the function is written so."""
    if len(parameters) != 1:
        return None
    ((name, only),) = parameters.items()
    if only.kind not in (only.POSITIONAL_ONLY, only.POSITIONAL_OR_KEYWORD, only.KEYWORD_ONLY):
        return None
    if not _takes_a_dict(only.annotation):
        return None
    by_hand = schema is not None and name not in schema.get("properties", {})
    return name if name in _ALL_OF_THEM or by_hand else None


def _takes_a_dict(hint: Any) -> bool:
    if hint is MISSING or hint is Any:
        return True
    if isinstance(hint, str):
        return hint.partition("[")[0].rpartition(".")[2] in ("Any", "dict", "Dict", "Mapping", "MutableMapping")
    return (get_origin(hint) or hint) in _DICTS if isinstance(hint, Hashable) else False
