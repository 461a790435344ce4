"""MCP's processes, one role a file: registry, session, exchange, worker, tasks, subscriptions, connection, federation.

An actor owns its state and is the only one that changes it. This room speaks to the wire through `greenroom.transports` and is
kept alive by `greenroom.supervision`.
"""
