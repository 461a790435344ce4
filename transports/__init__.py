"""Bytes in, envelopes out: the only room that touches the wire.

Each transport is a process. What it needs to know of sessions and credentials it declares here as a Protocol, so that this room
imports nothing from the actors. The file `seam` holds them.
"""
