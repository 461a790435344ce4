"""The client's side of the wire: from a frame to the server, and from what it says to messages.

Each of these transports is a process that is linked to the connection which opened it. What all of them share is in `seam`.
"""
