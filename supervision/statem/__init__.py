"""State machines: `GenStatem`, and the events, results and actions of its state functions.

They are imported from here and not from `greenroom.supervision`, because some names mean something else to a
GenServer: its `Reply` answers the current call, the one here any caller.
"""

from __future__ import annotations

from greenroom.lazy_names import exported_names
from greenroom.supervision.behaviours.gen_server import BadReturn as BadReturn
from greenroom.supervision.behaviours.replies import IGNORE as IGNORE
from greenroom.supervision.behaviours.replies import Ignore as Ignore
from greenroom.supervision.behaviours.replies import Reject as Reject
from greenroom.supervision.behaviours.replies import Stop as Stop

from .events import POSTPONE as POSTPONE
from .events import Action as Action
from .events import After as After
from .events import AskEvent as AskEvent
from .events import At as At
from .events import Call as Call
from .events import Cancel as Cancel
from .events import Cast as Cast
from .events import Enter as Enter
from .events import Event as Event
from .events import EventTimeout as EventTimeout
from .events import Fail as Fail
from .events import GenericTimeout as GenericTimeout
from .events import Info as Info
from .events import Internal as Internal
from .events import Keep as Keep
from .events import Next as Next
from .events import NextEvent as NextEvent
from .events import Postpone as Postpone
from .events import RepeatState as RepeatState
from .events import Reply as Reply
from .events import Result as Result
from .events import StateTimeout as StateTimeout
from .events import StopAndReply as StopAndReply
from .events import TellEvent as TellEvent
from .events import UpdateTimeout as UpdateTimeout
from .gen_statem import GenStatem as GenStatem
from .machine_definition import END as END
from .machine_definition import draw as draw
from .machine_definition import event as event
from .machine_definition import state as state

__all__ = exported_names(__name__)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - what is imported here
