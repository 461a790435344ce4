"""For Thespian programs: a guest actor, and the messages that it understands.

::

    guest = system.createActor(Guest)
    ask(system, guest, Connect("unix:@greenroom-1000-guests-host", key_file="guests.key"))
    answer = ask(system, guest, CallTool("git", "log", {"n": 3}))

An actor sends the guest the same messages, and is sent the answers. The guest lives in the program's own system, which nothing is changed in. `ForeignActor` is the other direction, below `Server.thespian_tool`: an
actor of theirs, to be asked from a thread of ours.
"""

# ruff: noqa: PLC0414 - `as` passes a name on, to type checkers as well
from greenroom.actors.guest.guest import Guest as Guest
from greenroom.actors.guest.guest_wire import new_key_file as new_key_file
from greenroom.actors.guest.messages import Answer as Answer
from greenroom.actors.guest.messages import CallTool as CallTool
from greenroom.actors.guest.messages import Connect as Connect
from greenroom.actors.guest.messages import Connected as Connected
from greenroom.actors.guest.messages import Ended as Ended
from greenroom.actors.guest.messages import Failed as Failed
from greenroom.actors.guest.messages import GetPrompt as GetPrompt
from greenroom.actors.guest.messages import Listed as Listed
from greenroom.actors.guest.messages import ListPrompts as ListPrompts
from greenroom.actors.guest.messages import ListResources as ListResources
from greenroom.actors.guest.messages import ListResourceTemplates as ListResourceTemplates
from greenroom.actors.guest.messages import ListServers as ListServers
from greenroom.actors.guest.messages import ListTools as ListTools
from greenroom.actors.guest.messages import PromptMessages as PromptMessages
from greenroom.actors.guest.messages import ReadResource as ReadResource
from greenroom.actors.guest.messages import Request as Request
from greenroom.actors.guest.messages import ResourceContents as ResourceContents
from greenroom.actors.guest.messages import Servers as Servers
from greenroom.actors.guest.messages import Subscribe as Subscribe
from greenroom.actors.guest.messages import Subscribed as Subscribed
from greenroom.actors.guest.messages import ToolResult as ToolResult
from greenroom.actors.guest.messages import Unsubscribe as Unsubscribe
from greenroom.actors.guest.messages import Unsubscribed as Unsubscribed
from greenroom.actors.guest.messages import Updated as Updated
from greenroom.actors.guest.messages import ask as ask
from greenroom.supervision.cluster.foreign import ActorGone as ActorGone
from greenroom.supervision.cluster.foreign import ActorNotMade as ActorNotMade
from greenroom.supervision.cluster.foreign import ActorPoisoned as ActorPoisoned
from greenroom.supervision.cluster.foreign import ActorSilent as ActorSilent
from greenroom.supervision.cluster.foreign import ForeignActor as ForeignActor
from greenroom.supervision.cluster.foreign import ForeignActorError as ForeignActorError

__all__ = sorted(name for name in globals() if not name.startswith("_"))  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - each is imported for this
