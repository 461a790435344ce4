"""The companies and federations of this program whose trees run, for views of them: a tree has only processes, and what outlives those is in an object."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision import Node


T = TypeVar("T")

_tops: Final[WeakKeyDictionary[object, Hashable]] = WeakKeyDictionary()
"""The registered names of the trees' top processes, by the owner of each tree."""
_lock: Final = threading.Lock()


def note_tree(owner: object, top: Hashable) -> None:
    """Note a tree that is about to run, and the name of its top process. It is forgotten with the last reference to its owner."""
    with _lock:
        _tops[owner] = top


def running_trees(node: Node, kind: type[T]) -> list[T]:
    """The owners of this kind whose trees run on this node, in no particular order."""
    with _lock:
        owners = list(_tops.items())
    return [owner for owner, top in owners if isinstance(owner, kind) and node.named(top) is not None]
