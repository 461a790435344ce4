"""State machines: `GenStatem`, and the words that its state functions speak.

They are imported from here and not from `greenroom.supervision`, because some of them mean something else to a
GenServer: its `Reply` answers the one call that is being handled, this one any caller.
"""

from __future__ import annotations

from greenroom.supervision.behaviours.caller import IGNORE, Ignore, Reject, Stop
from greenroom.supervision.behaviours.server import BadReturn

from .events import (
    POSTPONE,
    Action,
    After,
    Ask,
    At,
    Call,
    Cancel,
    Cast,
    Enter,
    Event,
    EventTimeout,
    Fail,
    GenericTimeout,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    Postpone,
    Repeat,
    Reply,
    Result,
    StateTimeout,
    StopAndReply,
    Tell,
    Update,
)
from .machine import GenStatem
from .plan import END, draw, event, state

__all__ = [
    "END",
    "IGNORE",
    "POSTPONE",
    "Action",
    "After",
    "Ask",
    "At",
    "BadReturn",
    "Call",
    "Cancel",
    "Cast",
    "Enter",
    "Event",
    "EventTimeout",
    "Fail",
    "GenStatem",
    "GenericTimeout",
    "Ignore",
    "Info",
    "Internal",
    "Keep",
    "Next",
    "NextEvent",
    "Postpone",
    "Reject",
    "Repeat",
    "Reply",
    "Result",
    "StateTimeout",
    "Stop",
    "StopAndReply",
    "Tell",
    "Update",
    "draw",
    "event",
    "state",
]
