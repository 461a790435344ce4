"""The definition of a state machine, read from its class: states, their functions, allowed transitions, and events.

It is read once, when the class is made, so that a state without a function is found there and not in production.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_args, get_origin

from greenroom.supervision.behaviours.gen_server import BadReturn
from greenroom.supervision.kernel import safe_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from .events import Event, Result
    from .gen_statem import GenStatem

F = TypeVar("F", bound="Callable[..., Any]")
StateFunction = TypeVar("StateFunction", bound="Callable[[Any, Event], Result[Any] | Awaitable[Result[Any]]]")

_STATE: Final = "__greenroom_state__"
_EVENT: Final = "__greenroom_event__"


class End:
    """The target of a transition that stops the machine."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "END"


END: Final = End()
"""Among the `to` of a state: the machine may stop there."""


@dataclass(frozen=True, slots=True)
class StateMark:
    """The arguments of `@state` on a method."""

    states: tuple[Any, ...]
    to: tuple[Any, ...] | None


def state(*states: Any, to: Iterable[Any] | None = None) -> Callable[[StateFunction], StateFunction]:
    """Mark a method as the function of these states: ``@state(DoorState.LOCKED, to=(DoorState.CLOSED,))``.

    `to` names all allowed next states, with `END` if the machine may stop there. It is drawn and enforced: any other
    transition is a `BadReturn`. Without `to` all are allowed.
    """
    if not states or isinstance(states[0], FunctionType):
        raise TypeError("@state names the states that a method handles: @state(DoorState.LOCKED)")
    mark = StateMark(states, None if to is None else tuple(to))

    def marked(function: StateFunction) -> StateFunction:
        _mark("state", function, _STATE, value=mark)
        return function

    return marked


def event(method: F) -> F:
    """Mark a method as an event: its signature is that of calls and casts. Its body is never run."""
    _mark("event", method, _EVENT, value=True)
    return method


def _mark(word: str, method: object, name: str, *, value: object) -> None:
    if not isinstance(method, FunctionType):
        raise TypeError(f"@{word} marks a plain method, not {method!r}")
    setattr(method, name, value)


class EventSignature:
    """The signature of an event, which normalises the arguments of callers."""

    __slots__ = ("_count", "_name", "_signature")

    def __init__(self, method: Any) -> None:
        """`method` is marked with `event`."""
        whole = inspect.signature(method)
        taken = list(whole.parameters.values())[1:]
        simple = all(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in taken)
        self._name = method.__qualname__
        self._signature = whole.replace(parameters=taken)
        self._count = len(taken) if simple else -1

    def arrange(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Normalise to positional arguments where possible, defaults filled in. Raises `TypeError` when they do not fit."""
        if not kwargs and len(args) == self._count:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None
        bound.apply_defaults()
        return bound.args, bound.kwargs


Functions: TypeAlias = "dict[Any, str]"
Exits: TypeAlias = "dict[Any, tuple[Any, ...]]"


@dataclass(frozen=True, slots=True)
class MachineDefinition:
    """The definition of one class of machines."""

    states: type[Enum] | None = None
    """The states, when they are an Enum's members."""
    ready: bool = False
    """Whether machines can be started: each state has a handler."""
    functions: Functions = field(default_factory=dict[Any, str])
    """The method name of each state's function; empty when `handle_event` handles all."""
    exits: Exits = field(default_factory=dict[Any, tuple[Any, ...]])
    """The allowed next states of each state that declares them."""
    events: dict[Any, EventSignature] = field(default_factory=dict[Any, EventSignature])

    def check_state(self, state: Any) -> None:
        """Raise `BadReturn` for a value that is no state."""
        if self.states is not None and not isinstance(state, self.states):
            raise BadReturn(f"{state_name(state)} is no state of {self.states.__name__}")

    def check_exit(self, state: Any, to: Any) -> None:
        """Raise `BadReturn` for a transition that `state` does not declare."""
        if self.exits and (exits := self.exits.get(state)) is not None and to not in exits:
            known = ", ".join(state_name(each) for each in exits) or "nothing"
            there = "stop" if to is END else f"lead to {state_name(to)}"
            raise BadReturn(f"{state_name(state)} may not {there}: it declares {known}")


def read_definition(cls: type, root: type) -> MachineDefinition:
    """Read the definition of a class that derives from `root`. Raises `TypeError` for a wrong one."""
    states = _parameter(cls, root)
    enum = states if isinstance(states, type) and issubclass(states, Enum) else None
    functions, exits = _functions(cls)
    events = _events(cls)
    if not functions and _overrides(cls, root, "handle_event"):
        exits = {each: tuple(to) for each, to in getattr(cls, "exits", {}).items()}
        _check(cls, enum, exits, "exits")
        _check(cls, enum, (each for to in exits.values() for each in to), "exits")
        return MachineDefinition(enum, ready=True, exits=exits, events=events)
    if _overrides(cls, root, "exits"):
        raise TypeError(f"{cls.__name__}: exits is for machines that only override handle_event; say @state(…, to=…)")
    if enum is None:
        if isinstance(states, TypeVar):
            return MachineDefinition(
                functions=functions, exits=exits, events=events
            )  # a base, for classes that say what S is
        raise TypeError(f"{cls.__name__}: say what its states are, an Enum: class {cls.__name__}(GenStatem[DoorState])")
    _check(cls, enum, functions, "@state")
    _check(cls, enum, (each for to in exits.values() for each in to), "to")
    missing = [state_name(each) for each in enum if each not in functions]
    if missing:
        raise TypeError(
            f"{cls.__name__} does not handle {', '.join(missing)}: mark a method with @state({missing[0]}), "
            "or override handle_event"
        )
    return MachineDefinition(enum, ready=True, functions=functions, exits=exits, events=events)


def state_name(state: object) -> str:
    """The name of a state in texts."""
    return f"{type(state).__name__}.{state.name}" if isinstance(state, Enum) else safe_repr.short(state)


def _overrides(cls: type, root: type, name: str) -> bool:
    return getattr(cls, name) is not getattr(root, name)


def _check(cls: type, enum: type[Enum] | None, states: Iterable[Any], where: str) -> None:
    for each in states:
        if enum is not None and not isinstance(each, enum | End):
            raise TypeError(f"{cls.__name__}: {where} names {state_name(each)}, which is no state of {enum.__name__}")


def _parameter(cls: type, root: type) -> Any:
    """The argument of `root`'s type parameter in a class: an Enum, an open type variable, or None."""
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin: Any = get_origin(base) or base
        if origin is root:
            return get_args(base)[0] if get_args(base) else None
        if isinstance(origin, type) and issubclass(origin, root):
            found = _parameter(origin, root)
            open_ones: Collection[Any] = getattr(origin, "__parameters__", ())
            return dict(zip(open_ones, get_args(base), strict=False)).get(found, found)
    return None


def _marked(cls: type, mark: str) -> Iterator[tuple[type, str, Any]]:
    """All methods with a mark, base classes first."""
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, FunctionType) and hasattr(value, mark):
                yield base, name, value


def _functions(cls: type) -> tuple[Functions, Exits]:
    """The function of each state. A new mark overrides those of base classes; a plain override of a method keeps the mark."""
    functions: Functions = {}
    exits: Exits = {}
    owners: dict[Any, type] = {}
    for base, name, function in _marked(cls, _STATE):
        mark: StateMark = getattr(function, _STATE)
        for each in [each for each, other in functions.items() if other == name]:
            del functions[each]
            exits.pop(each, None)
        for each in mark.states:
            if owners.get(each) is base:
                raise TypeError(f"{base.__name__} handles {state_name(each)} twice: in {functions[each]} and in {name}")
            owners[each] = base
            functions[each] = name
            exits.pop(each, None)
            if mark.to is not None:
                exits[each] = mark.to
    return functions, exits


def _events(cls: type) -> dict[Any, EventSignature]:
    events: dict[Any, EventSignature] = {}
    owners: dict[str, type] = {}
    for base, name, method in _marked(cls, _EVENT):
        if name in owners:
            raise TypeError(f"{base.__name__}.{name} is an event of {owners[name].__name__} already: match that one")
        owners[name] = base
        events[method] = EventSignature(method)
    return events


# --- The diagram of a machine, made from its class.
# It shows the states, the first state if the class declares it, and the declared transitions, which are enforced at run time.
# A state that declares none may lead anywhere, and the diagram says so.


def draw(machine: type[GenStatem[Any]]) -> str:
    """A Mermaid state diagram of a class of machines."""
    definition = machine._otp_definition
    if definition.states is None:
        raise TypeError(f"{machine.__name__} cannot be drawn: its states are no Enum")
    lines = ["---", f"title: {machine.__name__}", "---", "stateDiagram-v2"]
    if machine.initial is not None:
        lines.append(f"    [*] --> {_name(machine.initial)}")
    for state in definition.states:
        exits = definition.exits.get(state)
        lines.append(f"    {_name(state)}")
        if exits is None:
            lines.append(f"    note right of {_name(state)} : may lead anywhere")
        else:
            lines += [f"    {_name(state)} --> {_name(each)}" for each in dict.fromkeys(exits) if each is not state]
    return "\n".join(lines) + "\n"


def _name(state: object) -> str:
    if state is END:
        return "[*]"
    assert isinstance(state, Enum)
    return state.name
