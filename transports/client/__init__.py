"""The client's ends of the transports: HTTP, child processes, and servers in the same loop.

Each transport is a process linked to the connection that opened it. `interfaces` has what all of them share.
"""
