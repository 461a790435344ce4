"""Names for Thespian programs: the guest actor, the messages that it takes, and requests to actors of a user's system.

::

    guest = system.createActor(Guest)
    ask(system, guest, Connect("unix:@greenroom-1000-guests-host", key_file="guests.key"))
    answer = ask(system, guest, CallTool("git", "log", {"n": 3}))

An actor sends the guest the same messages, and gets the answers as messages. The guest runs in the program's own system, which is not changed. `ForeignActor` is
the other direction: a thread of this program asks an actor of the user's system; `Server.thespian_tool` builds on it.
"""

# ruff: noqa: PLC0414 - `as` passes a name on, to type checkers as well
from greenroom.actors.thespian_guests.guest import Guest as Guest
from greenroom.actors.thespian_guests.guest_messages import Answer as Answer
from greenroom.actors.thespian_guests.guest_messages import CallTool as CallTool
from greenroom.actors.thespian_guests.guest_messages import Connect as Connect
from greenroom.actors.thespian_guests.guest_messages import Connected as Connected
from greenroom.actors.thespian_guests.guest_messages import Ended as Ended
from greenroom.actors.thespian_guests.guest_messages import Failed as Failed
from greenroom.actors.thespian_guests.guest_messages import GetPrompt as GetPrompt
from greenroom.actors.thespian_guests.guest_messages import Listed as Listed
from greenroom.actors.thespian_guests.guest_messages import ListPrompts as ListPrompts
from greenroom.actors.thespian_guests.guest_messages import ListResources as ListResources
from greenroom.actors.thespian_guests.guest_messages import ListResourceTemplates as ListResourceTemplates
from greenroom.actors.thespian_guests.guest_messages import ListServers as ListServers
from greenroom.actors.thespian_guests.guest_messages import ListTools as ListTools
from greenroom.actors.thespian_guests.guest_messages import PromptMessages as PromptMessages
from greenroom.actors.thespian_guests.guest_messages import ReadResource as ReadResource
from greenroom.actors.thespian_guests.guest_messages import Request as Request
from greenroom.actors.thespian_guests.guest_messages import ResourceContents as ResourceContents
from greenroom.actors.thespian_guests.guest_messages import Servers as Servers
from greenroom.actors.thespian_guests.guest_messages import Subscribe as Subscribe
from greenroom.actors.thespian_guests.guest_messages import Subscribed as Subscribed
from greenroom.actors.thespian_guests.guest_messages import ToolResult as ToolResult
from greenroom.actors.thespian_guests.guest_messages import Unsubscribe as Unsubscribe
from greenroom.actors.thespian_guests.guest_messages import Unsubscribed as Unsubscribed
from greenroom.actors.thespian_guests.guest_messages import Updated as Updated
from greenroom.actors.thespian_guests.guest_messages import ask as ask
from greenroom.actors.thespian_guests.guest_wire import new_key_file as new_key_file
from greenroom.supervision.cluster.foreign_actor import ActorGone as ActorGone
from greenroom.supervision.cluster.foreign_actor import ActorNotMade as ActorNotMade
from greenroom.supervision.cluster.foreign_actor import ActorPoisoned as ActorPoisoned
from greenroom.supervision.cluster.foreign_actor import ActorSilent as ActorSilent
from greenroom.supervision.cluster.foreign_actor import ForeignActor as ForeignActor
from greenroom.supervision.cluster.foreign_actor import ForeignActorError as ForeignActorError

__all__ = sorted(name for name in globals() if not name.startswith("_"))  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - each is imported for this
