"""For Thespian programs: a guest actor, and the messages that it understands.

::

    guest = system.createActor(Guest)
    ask(system, guest, Connect("unix:@greenroom-1000-guests-host", key_file="guests.key"))
    answer = ask(system, guest, CallTool("git", "log", {"n": 3}))

An actor sends the guest the same messages, and is sent the answers. The guest lives in the program's own system, which nothing is changed in. `ForeignActor` is the other direction, below `Server.thespian_tool`: an
actor of theirs, to be asked from a thread of ours.
"""

from __future__ import annotations

from greenroom.actors.guest.guest import Guest
from greenroom.actors.guest.guest_wire import new_key_file
from greenroom.actors.guest.messages import (
    Answer,
    CallTool,
    Connect,
    Connected,
    Ended,
    Failed,
    GetPrompt,
    Listed,
    ListPrompts,
    ListResources,
    ListResourceTemplates,
    ListServers,
    ListTools,
    PromptMessages,
    ReadResource,
    Request,
    ResourceContents,
    Servers,
    Subscribe,
    Subscribed,
    ToolResult,
    Unsubscribe,
    Unsubscribed,
    Updated,
    ask,
)
from greenroom.supervision.cluster.foreign import (
    ActorGone,
    ActorNotMade,
    ActorPoisoned,
    ActorSilent,
    ForeignActor,
    ForeignActorError,
)

__all__ = [
    "ActorGone",
    "ActorNotMade",
    "ActorPoisoned",
    "ActorSilent",
    "Answer",
    "CallTool",
    "Connect",
    "Connected",
    "Ended",
    "Failed",
    "ForeignActor",
    "ForeignActorError",
    "GetPrompt",
    "Guest",
    "ListPrompts",
    "ListResourceTemplates",
    "ListResources",
    "ListServers",
    "ListTools",
    "Listed",
    "PromptMessages",
    "ReadResource",
    "Request",
    "ResourceContents",
    "Servers",
    "Subscribe",
    "Subscribed",
    "ToolResult",
    "Unsubscribe",
    "Unsubscribed",
    "Updated",
    "ask",
    "new_key_file",
]
