"""State machines: `GenStatem`, and the words that its state functions speak.

They are imported from here and not from `greenroom.supervision`, because some of them mean something else to a
GenServer: its `Reply` answers the one call that is being handled, this one any caller.
"""

from __future__ import annotations

from greenroom.lazy import passed_on
from greenroom.supervision.behaviours.caller import IGNORE as IGNORE
from greenroom.supervision.behaviours.caller import Ignore as Ignore
from greenroom.supervision.behaviours.caller import Reject as Reject
from greenroom.supervision.behaviours.caller import Stop as Stop
from greenroom.supervision.behaviours.gen_server import BadReturn as BadReturn

from .events import POSTPONE as POSTPONE
from .events import Action as Action
from .events import After as After
from .events import Ask as Ask
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
from .events import Repeat as Repeat
from .events import Reply as Reply
from .events import Result as Result
from .events import StateTimeout as StateTimeout
from .events import StopAndReply as StopAndReply
from .events import Tell as Tell
from .events import Update as Update
from .machine import GenStatem as GenStatem
from .plan import END as END
from .plan import draw as draw
from .plan import event as event
from .plan import state as state

__all__ = passed_on(__name__)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - what is imported here
