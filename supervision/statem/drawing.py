"""The picture of a machine, made from its class, so that it cannot tell another story.

It shows the states, where a machine begins if the class says so, and the transitions that are declared. Those are held
to when the machine runs. A state that declares nothing may lead anywhere, and the picture says so.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from .plan import END

if TYPE_CHECKING:
    from .machine import GenStatem


def draw(machine: type[GenStatem[Any]]) -> str:
    """A Mermaid state diagram of a class of machines."""
    plan = machine._otp_plan
    if plan.states is None:
        raise TypeError(f"{machine.__name__} cannot be drawn: its states are no Enum")
    lines = ["---", f"title: {machine.__name__}", "---", "stateDiagram-v2"]
    if machine.initial is not None:
        lines.append(f"    [*] --> {_name(machine.initial)}")
    for state in plan.states:
        exits = plan.exits.get(state)
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
